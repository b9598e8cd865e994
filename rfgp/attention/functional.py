"""Attention with random features as a function of queries, keys and values."""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from graphs.checks import is_number
from rfgp.attention.passes import Pass, PositivePass, Rows, SignedPass, State
from rfgp.errors import InvalidArgumentError, PoorFeaturesWarning
from rfgp.features.softmax import FeaturePair
from rfgp.messages import check_count

CHUNK_SIZE = 128
"""The default number of positions of a chunk of causal attention."""
FLOOR = 1e-3
"""The default floor of normalizers, relative to the weights of the keys."""
ENTRIES = 2**19
"""The number of features in a block of a bidirectional pass on a CPU, chosen so that they stay in the cache."""
ENTRIES_ELSEWHERE = 2**26
"""The same on other devices."""
_MAX_KEPT = 2**24
"""The number of features above which they are recomputed for gradients by default."""


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
    """Return an estimate of softmax(scale query key^T) value, in time and memory linear in L + S.

    It is the counterpart of `torch.nn.functional.scaled_dot_product_attention`. Numerator and normalizer are unbiased.
    Their ratio is consistent if kernel estimates are, which does not hold for `SharedNorms`. Its error decreases as
    1 / sqrt(m). For half precision, features and normalizer are computed in float32, and autocasting is disabled. A
    query that sees no key gives 0. torch gives NaN or, in newer versions, 0.

    Positive features are stabilized exactly, by maxima that cancel. In single precision this supports scores up to
    about 1e8. Beyond, the rounding of the maxima is too large for causal attention. With features that change sign, the
    normalizer can be small or negative, and is bounded away from 0 by `floor`. Entries of a query or a visible key or
    value that are not finite make the rows that see them NaN or infinite.

    Source: Choromanski et al. (2021), section 2 and Algorithm 1. Prefix sums in chunks: Katharopoulos et al. (2020),
        Eq. 9. The stabilization is derived in `rfgp.attention.passes`.

    Args:
        query: (..., L, E).
        key: (..., S, E).
        value: (..., S, Ev).
        pair: Positive features of either kernel, or features of the Gaussian kernel (`kernel="gaussian"`) that change
            sign. The result is that of the softmax kernel in both cases.
        attn_mask: Must be None, as features have no scores (L, S) to mask.
        key_padding_mask: (..., S), broadcast against the leading sizes of key. A boolean mask is True for keys that are
            excluded from the values and the normalizer. A floating-point mask is added to the scores.
        is_causal: Whether position i sees only keys up to i. Then L = S.
        scale: The factor of the scores. If None, 1 / sqrt(E).
        chunk_size: The number of positions of a chunk of causal attention.
        floor: The smallest normalizer of features that change sign, relative to the sum of the keys' weights.
        recompute: Whether the features of a chunk are recomputed for gradients instead of kept. This takes a third more
            time and no memory for features. One state for each chunk is kept. If None, they are recomputed above 2^24
            features.

    Raises:
        InvalidArgumentError: If shapes or dtypes do not agree, a mask is not supported, or the pair is not stable.

    Warns:
        PoorFeaturesWarning: If normalizers were raised to the floor.

    Examples:
        >>> from rfgp import attention, couplings
        >>> from rfgp.features import softmax
        >>> pair = softmax.Positive(couplings.by_name("monotone-antithetic").sample(64, 4, seed=0))
        >>> x = torch.randn(2, 10, 4)
        >>> attention.random_feature_attention(x, x, x, pair, is_causal=True).shape
        torch.Size([2, 10, 4])
    """
    if attn_mask is not None:
        raise InvalidArgumentError(
            "attn_mask must be None, got a mask. Attention with features has no scores (L, S) to mask. Use "
            "is_causal=True, key_padding_mask for keys that no query sees, or "
            "torch.nn.functional.scaled_dot_product_attention."
        )
    rows = Attention.of(pair, chunk_size, floor, recompute)(
        query, key, value, key_padding_mask=key_padding_mask, is_causal=is_causal, scale=scale
    )
    if not pair.is_positive and not torch.compiler.is_compiling():
        warn_of_low(rows.low)
    return rows.output


def warn_of_low(
    low: Tensor,  # (..., n)
) -> None:
    """Warn if normalizers were raised to their floor.

    Examples:
        >>> warn_of_low(torch.zeros(3, dtype=torch.bool))  # none were
    """
    count = int(low.sum())
    if count:
        warnings.warn(
            f"Normalizers must be above their floor, got {count} of {low.numel()} below. There are too few features, "
            "or queries and keys are too large. Use more features, or positive ones.",
            PoorFeaturesWarning,
            stacklevel=3,
        )


@dataclass(frozen=True)
class Attention:
    """Attention with a pair of features, in blocks of positions that are scaled and cast one at a time.

    Attributes:
        one_pass: The pass of the pair.
        chunk_size: The number of positions of a chunk of causal attention.
        recompute: Whether the features of a block are recomputed for gradients. If None, if there are many.

    Examples:
        >>> from rfgp.features import softmax
        >>> x = torch.ones(5, 2)
        >>> rows = Attention.of(softmax.Positive(torch.eye(2)))(x, x, x)
        >>> bool(torch.allclose(rows.output, x)), bool(rows.low.any())  # averages of ones
        (True, False)
    """

    one_pass: Pass
    chunk_size: int
    recompute: bool | None

    @classmethod
    def of(
        cls, pair: object, chunk_size: int = CHUNK_SIZE, floor: float = FLOOR, recompute: bool | None = None
    ) -> "Attention":
        """Return the attention of a pair, with the options of `random_feature_attention`.

        Args:
            pair: The pair of feature maps.
            chunk_size: The number of positions of a chunk of causal attention.
            floor: The smallest normalizer of features that change sign, in (0, 1).
            recompute: Whether features are recomputed for gradients. If None, if there are many.

        Raises:
            InvalidArgumentError: If numbers are out of range, it is not a pair, or its features are neither positive
                nor bounded.
        """
        check_numbers(chunk_size, floor)
        if not isinstance(pair, FeaturePair):
            raise InvalidArgumentError(
                f"pair must be a FeaturePair, such as rfgp.features.softmax.Positive, got {type(pair).__name__}."
            )
        if pair.is_positive:
            return cls(PositivePass(pair), chunk_size, recompute)
        if pair.kernel != "gaussian":
            raise InvalidArgumentError(
                'The kernel of features that change sign must be "gaussian", got "softmax". They overflow and cannot '
                'be stabilized. Use kernel="gaussian". The weights of the keys restore the softmax kernel.'
            )
        return cls(SignedPass(pair, floor), chunk_size, recompute)

    def __call__(
        self,
        query: Tensor,  # (..., L, E)
        key: Tensor,  # (..., S, E)
        value: Tensor,  # (..., S, Ev)
        *,
        key_padding_mask: Tensor | None = None,  # (..., S)
        always: tuple[Tensor, Tensor] | None = None,  # (..., A, E), (..., A, Ev)
        is_causal: bool = False,
        scale: float | None = None,
    ) -> Rows:
        """Return the output (..., L, Ev) of `random_feature_attention`, and whether normalizers were raised, (..., L).

        Args:
            query: (..., L, E).
            key: (..., S, E).
            value: (..., S, Ev).
            key_padding_mask: (..., S).
            always: Keys and values that every query sees, (..., A, E) and (..., A, Ev).
            is_causal: As in `random_feature_attention`.
            scale: As in `random_feature_attention`.
        """
        _check_shapes(query, key, value, is_causal)
        if scale is not None and not (isinstance(scale, float | int) and 0 < scale < math.inf):
            raise InvalidArgumentError(f"scale must be positive and finite, got {scale!r}.")
        bias, hidden = hiding_bias(key, key_padding_mask)
        pair, positions = self.one_pass.pair, query.shape[:-1].numel() + key.shape[:-1].numel()
        again = pair.num_features * positions > _MAX_KEPT if self.recompute is None else self.recompute
        root = math.sqrt(scale if scale is not None else 1 / math.sqrt(query.shape[-1]))
        call = _Call(self.one_pass, root, value.dtype, again and torch.is_grad_enabled())
        with torch.autocast(query.device.type, enabled=False):
            state = call.start(key, value)
            if always is not None:
                state = call.absorb(state, *always, key.new_zeros(always[0].shape[:-1])[..., None], None)
            if is_causal and query.shape[-2]:
                return _causal(call, state, (query, key, value, bias, hidden), self.chunk_size)
            return _bidirectional(call, state, (query, key, value, bias, hidden))


@dataclass(frozen=True)
class _Call:
    """A pass over blocks, which are scaled and cast one at a time, and again for gradients.

    Attributes:
        one_pass: The pass of the pair.
        root: The factor of queries and of keys.
        dtype: The dtype of the outputs. The pass is in float64 for float64 outputs, otherwise in float32.
        recompute: Whether intermediate values are recomputed for gradients.
    """

    one_pass: Pass
    root: float
    dtype: torch.dtype
    recompute: bool

    def start(self, key: Tensor, value: Tensor) -> State:
        return self.one_pass.start(key, value.to(self._inner))

    def absorb(self, state: State, *keys: Any) -> State:
        def run(state: State, *block: Any) -> State:
            return self.one_pass.absorb(state, *self._keys(*block))

        found: State = self._run(run, state, *keys)
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
"""Query, key, value, and, as columns (..., S, 1), bias and hidden keys."""


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
    """Yield blocks of rows. Blocks of None are None."""
    yield from zip(*(repeat(None) if x is None else x.split(size, dim=-2) for x in tensors), strict=False)


def _block_size(pair: FeaturePair, key: Tensor) -> int:
    entries = ENTRIES if key.device.type == "cpu" else ENTRIES_ELSEWHERE
    return max(CHUNK_SIZE, entries // max(1, pair.num_features * math.prod(key.shape[:-2])))


def hiding_bias(
    key: Tensor,  # (..., S, E)
    mask: Tensor | None,  # (..., S)
) -> tuple[Tensor, Tensor | None]:  # (..., S, 1), (..., S, 1)
    """Return a bias of the logarithms of scores, -inf for hidden keys, and whether each key is hidden.

    Raises:
        InvalidArgumentError: If the mask has another shape or dtype.

    Examples:
        >>> bias, hidden = hiding_bias(torch.zeros(2, 3), torch.tensor([False, True]))
        >>> bias.squeeze(-1), hidden.squeeze(-1).tolist()
        (tensor([0., -inf]), [False, True])
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
        raise InvalidArgumentError("Queries (..., L, E) and keys (..., S, E) must have columns, got E = 0.")
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise InvalidArgumentError(
            "Queries (..., L, E), keys (..., S, E) and values (..., S, Ev) must share E and S, got "
            f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}."
        )
    if query.dtype != key.dtype or key.dtype != value.dtype:
        raise InvalidArgumentError(
            f"query, key and value must have one dtype, got {query.dtype}, {key.dtype} and {value.dtype}."
        )
    check_causal(is_causal, query.shape[-2], key.shape[-2])
    try:
        torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    except RuntimeError as error:
        raise InvalidArgumentError(
            "Leading sizes of query, key and value must broadcast, got "
            f"{tuple(query.shape[:-2])}, {tuple(key.shape[:-2])} and {tuple(value.shape[:-2])}."
        ) from error


def check_numbers(chunk_size: int, floor: float) -> None:
    """Check the size of chunks and the floor of normalizers.

    Args:
        chunk_size: The number of positions of a chunk of causal attention.
        floor: The smallest normalizer of features that change sign, in (0, 1).

    Raises:
        InvalidArgumentError: If they are out of range.

    Examples:
        >>> check_numbers(128, 1e-3)
    """
    check_count("chunk_size", chunk_size)
    if not is_number(floor) or not 0 < floor < 1:
        raise InvalidArgumentError(f"floor must be between 0 and 1, got {floor!r}.")


def check_causal(is_causal: bool, count: int, keys: int) -> None:
    """Refuse causal attention of different numbers of queries and keys.

    Args:
        is_causal: Whether attention is causal.
        count: The number of queries.
        keys: The number of keys.

    Raises:
        InvalidArgumentError: If it is, and the numbers differ.

    Examples:
        >>> check_causal(False, 5, 7)
    """
    if is_causal and count != keys:
        raise InvalidArgumentError(
            f"Causal attention must have as many queries as keys, got {count} and {keys}. For new queries at the end, "
            "pass one at a time, not causal."
        )
