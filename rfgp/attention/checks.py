"""Validation of the arguments and inputs of a layer."""

from typing import Protocol

import torch
from torch import Tensor

from rfgp.attention.draws import HeadFrequencies
from rfgp.attention.functional import check_numbers, check_pair
from rfgp.couplings import Frequencies
from rfgp.errors import InvalidArgumentError
from rfgp.features.softmax import FeaturePair
from rfgp.messages import check_count, counted


def check_options(embed_dim: int, num_heads: int, redraw_interval: int | None, chunk_size: int, floor: float) -> None:
    """Refuse invalid arguments of the constructor.

    Args:
        embed_dim: The width of the queries, a multiple of `num_heads`.
        num_heads: The number of heads.
        redraw_interval: The number of training passes between draws, or None.
        chunk_size: The number of positions of a chunk.
        floor: The smallest normalizer, in (0, 1).

    Raises:
        InvalidArgumentError: If one of them is out of range or of another type.

    Examples:
        >>> check_options(embed_dim=8, num_heads=2, redraw_interval=None, chunk_size=128, floor=1e-3)
    """
    if check_count("embed_dim", embed_dim) % check_count("num_heads", num_heads):
        raise InvalidArgumentError(f"num_heads must divide embed_dim, got {num_heads} and {embed_dim}.")
    if redraw_interval is not None:
        check_count("redraw_interval", redraw_interval)
    check_numbers(chunk_size, floor, None)


class Layer(Protocol):
    """The attributes of a layer that are used here, as `rfgp.attention.RandomFeatureAttention` has them.

    Examples:
        >>> from rfgp import attention
        >>> layer: Layer = attention.RandomFeatureAttention(8, 2, seed=0)
        >>> layer.pair.is_positive
        True
    """

    embed_dim: int
    kdim: int
    vdim: int
    num_heads: int
    batch_first: bool
    floor: float

    @property
    def pair(self) -> FeaturePair:
        """The current pair of feature maps of the layer."""


def check_made(layer: Layer, given: bool) -> None:
    """Refuse a pair that attention cannot use.

    Args:
        layer: The layer, whose pair is a function of the frequencies of its heads.
        given: Whether the pair is from a user's function.

    Raises:
        InvalidArgumentError: If the pair cannot be constructed, is not stable, or does not use each head's own
            frequencies.

    Examples:
        >>> from rfgp import attention
        >>> check_made(attention.RandomFeatureAttention(8, 2, seed=0), given=False)
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
            raise InvalidArgumentError(
                _not_of_heads(layer.num_heads, "its antithetic frequencies do not belong to a head")
            )


def _not_of_heads(num_heads: int, why: object) -> str:
    """Return the message for a function that does not support the frequencies of heads."""
    return (
        f"features must be a function from `HeadFrequencies` (H, m, d) of {counted(num_heads, 'head')} to a pair, got "
        f"an error: {why}. Use `frequencies.with_negatives()` for both signs."
    )


def check_call(
    layer: Layer,
    inputs: tuple[Tensor, Tensor, Tensor],  # query, key and value
    padding: Tensor | None,  # (N, S) or (S,)
    mask: Tensor | None,  # (L, S) or (N H, L, S)
) -> bool:
    """Return whether the inputs of a call are batched.

    Args:
        layer: The layer, with which the sizes of inputs must agree.
        inputs: Query, key and value.
        padding: The key_padding_mask.
        mask: The attn_mask.

    Raises:
        InvalidArgumentError: If types or shapes do not agree.

    Examples:
        >>> from rfgp import attention
        >>> x = torch.zeros(5, 3, 8)
        >>> check_call(attention.RandomFeatureAttention(8, 2, seed=0), (x, x, x), None, None)
        True
    """
    for name, x in zip(("query", "key", "value"), inputs, strict=True):
        if not isinstance(x, Tensor) or not x.is_floating_point():
            kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise InvalidArgumentError(f"{name} must be a floating-point tensor, got {kind}.")
        if x.is_nested:
            raise InvalidArgumentError(
                f"{name} must be a dense tensor, got a nested one. torch.nn.TransformerEncoder makes them of padded "
                "batches in evaluation. Set encoder.use_nested_tensor = False, or make the encoder with "
                "enable_nested_tensor=False."
            )
    _check_masks(padding, mask)
    dims = tuple(x.ndim for x in inputs)
    if dims not in ((2, 2, 2), (3, 3, 3)) or (padding is not None and padding.ndim != dims[0] - 1):
        raise InvalidArgumentError(
            "query, key and value must all have 3 dimensions and key_padding_mask 2, or all 2 and it 1, got "
            f"{dims} and {None if padding is None else padding.ndim}."
        )
    batched = inputs[0].ndim == 3
    moved = tuple(x.transpose(0, 1) for x in inputs) if batched and not layer.batch_first else inputs
    _check_sizes(layer, moved, padding, mask)
    return batched


def check_causal(is_causal: bool, count: int, keys: int) -> bool:
    """Return whether a call is causal.

    Args:
        is_causal: Whether the call is causal.
        count: The number of queries.
        keys: The number of keys.

    Raises:
        InvalidArgumentError: If it is, and the numbers of queries and keys differ.

    Examples:
        >>> check_causal(True, 5, 5), check_causal(False, 5, 7)
        (True, False)
    """
    if is_causal and count != keys:
        raise InvalidArgumentError(f"Causal attention must have as many queries as keys, got {count} and {keys}.")
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
