"""Refusals of a layer: each says what was wrong and what to do."""

from typing import Protocol

import torch
from torch import Tensor

from rfgp.attention.draws import HeadFrequencies
from rfgp.attention.functional import check_numbers, check_pair
from rfgp.counts import check_count, counted
from rfgp.couplings import Frequencies
from rfgp.errors import InvalidArgumentError
from rfgp.features.softmax import FeaturePair


def check_options(embed_dim: int, num_heads: int, redraw_interval: int | None, chunk_size: int, floor: float) -> None:
    """Refuse arguments of the constructor.

    Raises:
        InvalidArgumentError: one of them is out of range or of another type.
    """
    if check_count("embed_dim", embed_dim) % check_count("num_heads", num_heads):
        raise InvalidArgumentError(f"num_heads must divide embed_dim, got {num_heads} and {embed_dim}.")
    if redraw_interval is not None:
        check_count("redraw_interval", redraw_interval)
    check_numbers(chunk_size, floor, None)


class Layer(Protocol):
    """What is asked of a layer here; `rfgp.attention.RandomFeatureAttention` is one."""

    embed_dim: int
    kdim: int
    vdim: int
    num_heads: int
    batch_first: bool
    floor: float

    @property
    def pair(self) -> FeaturePair:
        """The pair of feature maps that the layer uses now."""


def check_made(layer: Layer, given: bool) -> None:
    """Refuse a pair that attention cannot use.

    Args:
        layer: Its pair is made of the frequencies of its heads.
        given: Whether by a user's function.

    Raises:
        InvalidArgumentError: it cannot be made, is no pair, not stable, or not of each head's own frequencies.
    """
    try:
        pair: object = layer.pair
    except (RuntimeError, ValueError, IndexError) as error:
        if not given:
            raise
        raise InvalidArgumentError(_not_of_heads(layer.num_heads, error)) from error
    check_pair(pair, layer.floor)
    assert isinstance(pair, FeaturePair)
    for side in pair.modules():
        drawn = getattr(side, "frequencies", None)
        if isinstance(drawn, Frequencies) and drawn.antithetic and not isinstance(drawn, HeadFrequencies):
            raise InvalidArgumentError(_not_of_heads(layer.num_heads, "it has pairs of frequencies that no head has"))


def _not_of_heads(num_heads: int, why: object) -> str:
    """Return the message for a function that does not work on the frequencies of heads."""
    return (
        f"features= could not make a pair from the frequencies (H, m, d) of {counted(num_heads, 'head')}: "
        f"{why}. It is given "
        "`HeadFrequencies`; both signs of these are `frequencies.with_negatives()`."
    )


def check_call(
    layer: Layer,
    inputs: tuple[Tensor, Tensor, Tensor],  # query, key and value
    padding: Tensor | None,  # (N, S) or (S,)
    mask: Tensor | None,  # (L, S) or (N H, L, S)
) -> bool:
    """Return whether the inputs of a call are batched.

    Args:
        layer: Its sizes are what inputs must fit.
        inputs: Query, key and value.
        padding: The key_padding_mask.
        mask: The attn_mask.

    Raises:
        InvalidArgumentError: types or shapes that do not belong together.
    """
    for name, x in zip(("query", "key", "value"), inputs, strict=True):
        if not isinstance(x, Tensor) or not x.is_floating_point():
            kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise InvalidArgumentError(f"{name} must be a floating-point tensor, got {kind}.")
        if x.is_nested:
            raise InvalidArgumentError(
                f"{name} is a nested tensor, which this layer does not take. torch.nn.TransformerEncoder makes them of "
                "padded batches when evaluating: set encoder.use_nested_tensor = False, or make the encoder with "
                "enable_nested_tensor=False."
            )
    _check_masks(padding, mask)
    dims = tuple(x.ndim for x in inputs)
    if dims not in ((2, 2, 2), (3, 3, 3)) or (padding is not None and padding.ndim != dims[0] - 1):
        raise InvalidArgumentError(
            "query, key and value must all have 3 dimensions and key_padding_mask 2, or all 2 and it 1; got "
            f"{dims} and {None if padding is None else padding.ndim}."
        )
    batched = inputs[0].ndim == 3
    moved = tuple(x.transpose(0, 1) for x in inputs) if batched and not layer.batch_first else inputs
    _check_sizes(layer, moved, padding, mask)
    return batched


def check_causal(is_causal: bool, count: int, keys: int) -> bool:
    """Return whether a call is causal.

    Raises:
        InvalidArgumentError: it is, and has not as many queries as keys.
    """
    if is_causal and count != keys:
        raise InvalidArgumentError(f"Causal attention needs as many queries as keys, got {count} and {keys}.")
    return is_causal


def _check_masks(padding: object, mask: object) -> None:
    for name, x in (("key_padding_mask", padding), ("attn_mask", mask)):
        if x is not None and not (isinstance(x, Tensor) and (x.dtype.is_floating_point or x.dtype == torch.bool)):
            kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise InvalidArgumentError(f"{name} must be a boolean or floating-point tensor, got {kind}.")


def _check_sizes(layer: Layer, inputs: tuple[Tensor, ...], padding: Tensor | None, mask: Tensor | None) -> None:
    """Refuse sizes of inputs (..., n, width) and of masks."""
    widths = layer.embed_dim, layer.kdim, layer.vdim
    for name, x, width in zip(("query", "key", "value"), inputs, widths, strict=True):
        if x.shape[-1] != width:
            raise InvalidArgumentError(f"{name} must have {counted(width, 'column')}, got shape {tuple(x.shape)}.")
    query, key, value = inputs
    lead, count, keys = query.shape[:-2], query.shape[-2], key.shape[-2]
    if key.shape[:-2] != lead or value.shape[:-2] != lead or value.shape[-2] != keys:
        raise InvalidArgumentError(
            "query, key and value must have one batch size, and key and value one length, got (batch first) "
            f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}."
        )
    if padding is not None and padding.shape != (*lead, keys):
        raise InvalidArgumentError(
            f"key_padding_mask must fit the keys, {(*lead, keys)}, got shape {tuple(padding.shape)}."
        )
    full = (lead.numel() * layer.num_heads, count, keys)
    if mask is not None and mask.shape not in ((count, keys), full):
        raise InvalidArgumentError(f"attn_mask must be {(count, keys)} or {full}, got shape {tuple(mask.shape)}.")
