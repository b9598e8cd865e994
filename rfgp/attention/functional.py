"""Attention with random features as a function of queries, keys and values."""

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rfgp.attention.passes import Pass, PositivePass, Rows, SignedPass, State
from rfgp.counts import check_count
from rfgp.errors import InvalidArgumentError, PoorFeaturesWarning
from rfgp.features.softmax import FeaturePair

CHUNK_SIZE = 128
FLOOR = 1e-3
ENTRIES = 2**19
"""Features of a block of a pass that is not causal: on a CPU they stay in the cache."""
ENTRIES_ELSEWHERE = 2**26
_MOST_KEPT = 2**24


def random_feature_attention(
    query: Tensor,  # (..., L, E)
    key: Tensor,  # (..., S, E)
    value: Tensor,  # (..., S, Ev)
    pair: FeaturePair,
    attn_mask: Tensor | None = None,
    *,
    key_padding_mask: Tensor | None = None,  # (..., S)
    is_causal: bool = False,
    scale: float | None = None,
    chunk_size: int = CHUNK_SIZE,
    floor: float = FLOOR,
    recompute: bool | None = None,
) -> Tensor:  # (..., L, Ev)
    """Return softmax(scale query key^T) value, estimated with features in time and memory linear in L + S.

    The counterpart of `torch.nn.functional.scaled_dot_product_attention`. Numerator and normaliser are both unbiased,
    their ratio is consistent where kernel estimates are (with `SharedNorms` they are not): its error falls as
    1 / sqrt(m). Half precision is computed in float32 from the features on, so is the normaliser; autocasting is turned
    off inside. A query that may see no key gives 0, where torch gives NaN or, in its newer versions, 0.

    Positive features are stabilised exactly, by maxima that cancel. In single precision that serves scores of up to
    about 1e8; beyond, what the maxima themselves are rounded by is too much for causal attention. With features that
    change sign, the normaliser can be small or negative: it is kept from 0, see `floor`. What is not finite in a query
    or a visible key or value makes the rows that see it NaN or infinite.

    Source: Choromanski et al. (2021), section 2 and Algorithm 1; prefix sums in chunks: Katharopoulos et al. (2020),
    Eq. 9. The stabilisers: `rfgp.attention.passes`.

    Args:
        query: (..., L, E).
        key: (..., S, E).
        value: (..., S, Ev).
        pair: Features of the softmax kernel; of either kernel where they are positive, of the Gaussian one where they
            change sign, `kernel="gaussian"`. The result is that of the softmax kernel for both.
        attn_mask: Must be None: with features there are no scores (L, S) to mask.
        key_padding_mask: Of keys that count for nothing, neither in the values nor in the normaliser, or, with floating
            point, numbers that are added to their scores; (..., S), broadcast against the leading sizes of key.
        is_causal: Whether position i sees only keys up to i; then L = S.
        scale: None: 1 / sqrt(E).
        chunk_size: Positions of a chunk of causal attention.
        floor: The least normaliser of features that change sign, relative to the sum of the keys' weights.
        recompute: Whether the features of a chunk are computed again for gradients rather than kept: a third more
            time, and no memory for features. States, one for each chunk, are kept. None: where there are more than
            2^24 features.

    Raises:
        InvalidArgumentError: shapes or dtypes that do not belong together, a mask that features cannot serve, or a pair
            that is not stable.

    Warns:
        PoorFeaturesWarning: normalisers were raised to the floor.
    """
    if attn_mask is not None:
        raise InvalidArgumentError(
            "Attention with features has no scores (L, S) to mask. Use is_causal=True, key_padding_mask= for keys that "
            "nobody sees, or torch.nn.functional.scaled_dot_product_attention."
        )
    rows = attend(
        query,
        key,
        value,
        pair,
        key_padding_mask=key_padding_mask,
        is_causal=is_causal,
        scale=scale,
        chunk_size=chunk_size,
        floor=floor,
        recompute=recompute,
    )
    if not pair.is_positive and not torch.compiler.is_compiling():
        warn_of_low(rows.low)
    return rows.output


def warn_of_low(
    low: Tensor,  # (..., n)
) -> None:
    """Warn if normalisers were raised to their floor."""
    count = int(low.sum())
    if count:
        warnings.warn(
            f"{count} of {low.numel()} normalisers were below their floor: the features, which change sign, are too "
            "few or the queries and keys too large. Use more features, or positive ones.",
            PoorFeaturesWarning,
            stacklevel=3,
        )


def attend(
    query: Tensor,  # (..., L, E)
    key: Tensor,  # (..., S, E)
    value: Tensor,  # (..., S, Ev)
    pair: FeaturePair,
    *,
    key_padding_mask: Tensor | None = None,  # (..., S)
    always: tuple[Tensor, Tensor] | None = None,  # (..., A, E), (..., A, Ev)
    is_causal: bool = False,
    scale: float | None = None,
    chunk_size: int = CHUNK_SIZE,
    floor: float = FLOOR,
    recompute: bool | None = None,
) -> Rows:
    """Return the output of `random_feature_attention`, and where its normaliser was raised to the floor.

    Args:
        query: (..., L, E).
        key: (..., S, E).
        value: (..., S, Ev).
        pair: As there, as are all others.
        key_padding_mask: (..., S).
        always: Keys and values that every query sees, (..., A, E) and (..., A, Ev).
        is_causal: As there.
        scale: As there.
        chunk_size: As there.
        floor: As there.
        recompute: As there.
    """
    _check_shapes(query, key, value, is_causal)
    check_numbers(chunk_size, floor, scale)
    one_pass = check_pair(pair, floor)
    bias, hidden = hiding_bias(key, key_padding_mask)
    root = math.sqrt(scale if scale is not None else 1 / math.sqrt(query.shape[-1]))
    again = _is_large(query, key, pair) if recompute is None else recompute
    call = _Call(one_pass, root, value.dtype, again and torch.is_grad_enabled())
    with _plain_precision(query):
        state = call.start(key, value)
        if always is not None:
            state = call.absorb(state, *always, key.new_zeros(always[0].shape[:-1])[..., None], None)
        if is_causal and query.shape[-2]:
            return _causal(call, state, (query, key, value, bias, hidden), chunk_size)
        return _bidirectional(call, state, (query, key, value, bias, hidden))


@dataclass(frozen=True)
class _Call:
    """A pass over blocks as they are given: each is scaled and cast when its turn comes, and again for gradients.

    Attributes:
        one_pass: Of the pair.
        root: The factor of queries and of keys.
        dtype: Of the outputs; the pass is in float64 or else float32.
        recompute: Whether intermediate values are computed again for gradients.
    """

    one_pass: Pass
    root: float
    dtype: torch.dtype
    recompute: bool

    def start(self, key: Tensor, value: Tensor) -> State:
        return self.one_pass.start(key, value.to(self._inner))

    def absorb(self, state: State, key: Tensor, value: Tensor, bias: Tensor, hidden: Tensor | None) -> State:
        def run(*block: Any) -> State:
            return self.one_pass.absorb(block[0], *self._keys(*block[1:]))

        found: State = self._run(run, state, key, value, bias, hidden)
        return found

    def read(self, state: State, query: Tensor) -> Rows:
        def run(state: State, q: Tensor) -> Rows:
            return self._rows(self.one_pass.read(state, self._scaled(q)))

        found: Rows = self._run(run, state, query)
        return found

    def step(self, state: State, query: Tensor, *keys: Any) -> tuple[Rows, State]:
        def run(state: State, q: Tensor, *block: Any) -> tuple[Rows, State]:
            rows, after = self.one_pass.step(state, self._scaled(q), *self._keys(*block))
            return self._rows(rows), after

        found: tuple[Rows, State] = self._run(run, state, query, *keys)
        return found

    @property
    def _inner(self) -> torch.dtype:
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    def _scaled(self, x: Tensor) -> Tensor:
        return self.root * x.to(self._inner)

    def _rows(self, rows: Rows) -> Rows:
        return Rows(rows.output.to(self.dtype), rows.low)

    def _keys(self, key: Tensor, value: Tensor, bias: Tensor, hidden: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        k, v = self._scaled(key), value.to(self._inner)
        if hidden is not None:
            k, v = k.masked_fill(hidden, 0), v.masked_fill(hidden, 0)
        return k, v, bias.squeeze(-1).to(self._inner)

    def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if not self.recompute:
            return function(*arguments)
        return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)


_Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]
"""Query, key, value, and as columns (..., S, 1) bias and hidden keys."""


def _bidirectional(call: _Call, state: State, inputs: _Inputs) -> Rows:
    query, *keys = inputs
    size = _block_size(call.one_pass.pair, inputs[1])
    for block in _blocks(keys, size) if inputs[1].shape[-2] else ():
        state = call.absorb(state, *block)
    return _joined([call.read(state, *block) for block in _blocks((query,), size)])


def _causal(call: _Call, state: State, inputs: _Inputs, chunk_size: int) -> Rows:
    found = []
    for block in _blocks(inputs, chunk_size):
        rows, state = call.step(state, *block)
        found.append(rows)
    return _joined(found)


def _joined(rows: list[Rows]) -> Rows:
    return Rows(torch.cat([r.output for r in rows], dim=-2), torch.cat([r.low for r in rows], dim=-1))


def _blocks(tensors: Sequence[Tensor | None], size: int) -> Iterator[tuple[Any, ...]]:
    """Yield blocks of rows; of None always None."""
    yield from zip(*(repeat(None) if x is None else x.split(size, dim=-2) for x in tensors), strict=False)


def _is_large(query: Tensor, key: Tensor, pair: FeaturePair) -> bool:
    return pair.num_features * (query.shape[:-1].numel() + key.shape[:-1].numel()) > _MOST_KEPT


def _block_size(pair: FeaturePair, key: Tensor) -> int:
    entries = ENTRIES if key.device.type == "cpu" else ENTRIES_ELSEWHERE
    return max(CHUNK_SIZE, entries // max(1, pair.num_features * math.prod(key.shape[:-2])))


def check_pair(pair: object, floor: float) -> Pass:
    """Return the pass for a pair.

    Raises:
        InvalidArgumentError: it is none, or its features are neither positive nor bounded.
    """
    if not isinstance(pair, FeaturePair):
        raise InvalidArgumentError(
            f"Attention needs a FeaturePair, such as rfgp.features.softmax.Positive, got {type(pair).__name__}."
        )
    if pair.is_positive:
        return PositivePass(pair)
    if pair.kernel != "gaussian":
        raise InvalidArgumentError(
            "Features of the softmax kernel that change sign overflow, and cannot be stabilised. Make the pair with "
            'kernel="gaussian"; attention weighs the keys so that the result is that of the softmax kernel.'
        )
    return SignedPass(pair, floor)


@contextlib.contextmanager
def _plain_precision(like: Tensor) -> Iterator[None]:
    with torch.autocast(like.device.type, enabled=False):
        yield


def hiding_bias(
    key: Tensor,  # (..., S, E)
    mask: Tensor | None,  # (..., S)
) -> tuple[Tensor, Tensor | None]:  # (..., S, 1), (..., S, 1)
    """Return what is added to the logarithms of scores, -inf for hidden keys, and which keys are hidden.

    Raises:
        InvalidArgumentError: a mask of another shape or kind.
    """
    shape = key.shape[:-1]
    if mask is None:
        return key.new_zeros(1).expand(*shape, 1), None
    if not isinstance(mask, Tensor) or not (mask.dtype == torch.bool or mask.is_floating_point()):
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise InvalidArgumentError(f"key_padding_mask must be a boolean or floating-point tensor, got {kind}.")
    lead, missing = mask.shape[:-1], key.ndim - 1 - mask.ndim
    fits = missing >= 0 and all(a in (1, b) for a, b in zip(lead, shape[missing:-1], strict=True))
    if not fits or mask.shape[-1:] != shape[-1:]:
        raise InvalidArgumentError(
            f"key_padding_mask must fit the keys {tuple(shape)} (leading sizes and S), got shape {tuple(mask.shape)}."
        )
    full = mask.expand(shape)
    if mask.dtype == torch.bool:
        return torch.zeros_like(full, dtype=key.dtype).masked_fill(full, -torch.inf)[..., None], full[..., None]
    return full[..., None], (full == -torch.inf)[..., None]


def _check_shapes(query: Tensor, key: Tensor, value: Tensor, is_causal: bool) -> None:
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.ndim < 2:
            what = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise InvalidArgumentError(f"{name} must be a floating-point tensor (..., n, width), got {what}.")
    if 0 in (query.shape[-1], key.shape[-1]):
        raise InvalidArgumentError("Queries (..., L, E) and keys (..., S, E) must have at least one column, got E = 0.")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise InvalidArgumentError(
            "Queries (..., L, E), keys (..., S, E) and values (..., S, Ev) must share E and S, got "
            f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}."
        )
    if query.dtype != key.dtype or key.dtype != value.dtype:
        raise InvalidArgumentError(
            f"query, key and value must have one dtype, got {query.dtype}, {key.dtype} and {value.dtype}."
        )
    if is_causal and query.shape[-2] != key.shape[-2]:
        raise InvalidArgumentError(
            f"Causal attention needs as many queries as keys, got {query.shape[-2]} and {key.shape[-2]}. For new "
            "queries at the end, leave is_causal away and pass one query at a time."
        )
    try:
        torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    except RuntimeError as error:
        raise InvalidArgumentError(
            f"Leading sizes {tuple(query.shape[:-2])}, {tuple(key.shape[:-2])} and {tuple(value.shape[:-2])} of query, "
            "key and value do not broadcast."
        ) from error


def check_numbers(chunk_size: int, floor: float, scale: float | None) -> None:
    """Refuse numbers that are out of range, or none.

    Raises:
        InvalidArgumentError: there are such.
    """
    check_count("chunk_size", chunk_size)
    if not isinstance(floor, float | int) or not 0 < floor < 1:
        raise InvalidArgumentError(f"floor must be between 0 and 1, got {floor!r}.")
    if scale is not None and not (isinstance(scale, float | int) and 0 < scale < math.inf):
        raise InvalidArgumentError(f"scale must be positive and finite, got {scale!r}.")
