"""Attention by pairs of features in one pass over the positions, and its stabilization.

Row i of attention with features is num_i / den_i. Both are sums over the keys j that i may see:

    num_i = sum_f l_if sum_j r_jf v_j,        den_i = sum_f l_if sum_j r_jf.

`State` holds the inner sums over the keys so far, so time and memory are linear in n. Keys are absorbed in blocks.
Within a block of a causal pass the masked block of scores is formed.

Positive features are computed by their logarithms. Let c_f be the largest log r_jf so far and M_i = max_f (log l_if +
c_f). Both cancel in num / den. With l = exp(log l + c - M) and r = exp(log r - c) every factor is at most 1. The term
that attains M_i is 1, so 1 <= den_i <= F n. So nothing overflows, and underflow is below rounding errors. c is per
feature. With a single number for all features, as is common, l . r could underflow if the large features of a query are
not those of a key. In a causal block c must not depend on later keys, not even those of the block. So a block of 2h is
halved. For queries in the upper half and keys in the lower half, all c of the lower half are past. Both halves are
divided again. Exponentials are then computed log2(block size) times, which is cheap relative to the products.

Features that change sign have no logarithm. They are those of the Gaussian kernel, which are bounded. By

    exp(q . k) = exp(|q|^2 / 2) gaussian(q, k) exp(|k|^2 / 2)

the key has a weight exp(|k_j|^2 / 2), stabilized by its running maximum. The factor of the query cancels.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from rfgp.features.softmax import FeaturePair, PositiveMap

_LOWEST = -1e30
"""A finite substitute for the logarithm of 0 in differences of logarithms."""


class State(NamedTuple):
    """Sums over the keys so far.

    Attributes:
        values: sum_j r_jf v_j, (..., F, Ev).
        total: sum_j r_jf, (..., F).
        peak: The logarithm by which both are divided, (..., F) or (..., 1), and -inf before the first key.
        mass: sum_j of the keys' weights, (..., 1), and 0 for positive features.

    Examples:
        >>> from rfgp.features import softmax
        >>> state = PositivePass(softmax.Positive(torch.eye(2))).start(torch.zeros(5, 2), torch.zeros(5, 3))
        >>> state.values.shape, state.total.shape
        (torch.Size([2, 3]), torch.Size([2]))
    """

    values: Tensor
    total: Tensor
    peak: Tensor
    mass: Tensor


class Rows(NamedTuple):
    """Outputs of a block.

    Attributes:
        output: (..., n, Ev).
        low: Whether the normalizer was raised to its floor, (..., n).

    Examples:
        >>> Rows(torch.zeros(5, 3), torch.zeros(5, dtype=torch.bool)).output.shape
        torch.Size([5, 3])
    """

    output: Tensor
    low: Tensor


class Pass(ABC):
    """The interface that absorbs keys and answers queries.

    Args:
        pair: The features.

    Examples:
        >>> from rfgp.features import softmax
        >>> one: Pass = PositivePass(softmax.Positive(torch.eye(2)))
        >>> one.peak_width
        2
    """

    def __init__(self, pair: FeaturePair) -> None:
        self.pair = pair

    def start(self, key: Tensor, value: Tensor) -> State:
        """Return the state before the first of the keys (..., S, E) with values (..., S, Ev)."""
        lead = torch.broadcast_shapes(key.shape[:-2], value.shape[:-2])
        count, width = self.pair.num_features, self.peak_width
        return State(
            value.new_zeros(*lead, count, value.shape[-1]),
            value.new_zeros(*lead, count),
            value.new_full((*lead, width), -torch.inf),
            value.new_zeros(*lead, 1),
        )

    @property
    @abstractmethod
    def peak_width(self) -> int:
        """The last size of `State.peak`."""

    @abstractmethod
    def absorb(self, state: State, key: Tensor, value: Tensor, bias: Tensor) -> State:
        """Return the state with more keys.

        Args:
            state: The state.
            key: The keys, (..., n, E).
            value: The values, (..., n, Ev).
            bias: The numbers that are added to the logarithms of the scores, (..., n).
        """

    @abstractmethod
    def read(self, state: State, query: Tensor) -> Rows:
        """Return the outputs of queries (..., n, E) that see all absorbed keys."""

    @abstractmethod
    def step(self, state: State, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> tuple[Rows, State]:
        """Return the outputs of queries that see the state and the keys up to their own, and the next state.

        Args:
            state: The state.
            query: The queries, (..., n, E).
            key: The keys at the same positions, (..., n, E).
            value: The values, (..., n, Ev).
            bias: The numbers that are added to the logarithms of the scores, (..., n).
        """

    def key_bias(self, key: Tensor, bias: Tensor) -> Tensor:
        """Return the logarithms (..., n) of the keys' weights from keys (..., n, E) and biases (..., n).

        They include |k|^2 / 2 for a pair of the Gaussian kernel.
        """
        return bias + 0.5 * key.square().sum(-1) if self.pair.kernel == "gaussian" else bias


class PositivePass(Pass):
    """The pass for positive features, by their logarithms.

    Examples:
        >>> from rfgp.features import softmax
        >>> one, key, value = PositivePass(softmax.Positive(torch.eye(2))), torch.zeros(3, 2), torch.ones(3, 1)
        >>> state = one.absorb(one.start(key, value), key, value, torch.zeros(3))
        >>> one.read(state, torch.zeros(1, 2)).output
        tensor([[1.]])
    """

    @property
    def peak_width(self) -> int:
        """F: one maximum per feature."""
        return self.pair.num_features

    def absorb(self, state: State, key: Tensor, value: Tensor, bias: Tensor) -> State:
        """Return the state with more keys, as specified by `Pass.absorb`."""
        return self._absorb(state, self._log_keys(key, bias), value)

    def read(self, state: State, query: Tensor) -> Rows:
        """Return the outputs of queries, as specified by `Pass.read`."""
        logs = _log_values(self.pair.left, query) + _finite(state.peak)[..., None, :]
        left = (logs - logs.detach().amax(-1, keepdim=True)).exp()
        return _divide(left @ state.values, left @ state.total[..., None])

    def step(self, state: State, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> tuple[Rows, State]:
        """Return the outputs of queries and the next state, as specified by `Pass.step`."""
        log_left, log_right = _log_values(self.pair.left, query), self._log_keys(key, bias)
        peak = _finite(state.peak)[..., None, :]
        with torch.no_grad():
            top = torch.maximum(_row_tops(log_left, log_right), (log_left + peak).amax(-1, keepdim=True))
            top = torch.where(top < 0.5 * _LOWEST, log_left.amax(-1, keepdim=True), top)  # no key was seen
        left = (log_left + (peak - top)).exp()
        scores = past_scores(log_left - top, log_right)
        total = left @ state.total[..., None] + scores.sum(-1, keepdim=True)
        num = left @ state.values + _past_sums(scores, value)
        return _divide(num, total), self._absorb(state, log_right, value)

    def _log_keys(self, key: Tensor, bias: Tensor) -> Tensor:
        return _log_values(self.pair.right, key) + self.key_bias(key, bias)[..., None]

    def _absorb(self, state: State, logs: Tensor, value: Tensor) -> State:
        peak = torch.maximum(state.peak, logs.detach().amax(-2))
        finite = _finite(peak)
        right, kept = (logs - finite[..., None, :]).exp(), (state.peak - finite).exp()
        values = kept[..., None] * state.values + right.mT @ value
        return State(values, kept * state.total + right.sum(-2), peak, state.mass)


class SignedPass(Pass):
    """The pass for features of the Gaussian kernel that may change sign.

    The estimate of den_i can be small or negative. Its absolute value is kept at least `floor` times the sum of the
    keys' weights, which bounds den_i in expectation. Its sign is kept.

    Args:
        pair: The features.
        floor: The floor relative to the keys' weights.

    Examples:
        >>> from rfgp.features import softmax
        >>> one = SignedPass(softmax.Trigonometric(torch.eye(2), "gaussian"), 1e-3)
        >>> one.peak_width
        1
    """

    def __init__(self, pair: FeaturePair, floor: float) -> None:
        super().__init__(pair)
        self.floor = floor

    @property
    def peak_width(self) -> int:
        """1: one maximum for all features."""
        return 1

    def absorb(self, state: State, key: Tensor, value: Tensor, bias: Tensor) -> State:
        """Return the state with more keys, as specified by `Pass.absorb`."""
        return self._absorb(state, self.pair.right(key), value, self.key_bias(key, bias))

    def read(self, state: State, query: Tensor) -> Rows:
        """Return the outputs of queries, as specified by `Pass.read`."""
        left = self.pair.left(query)
        return self._divide(left @ state.values, left @ state.total[..., None], state.mass[..., None])

    def step(self, state: State, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> tuple[Rows, State]:
        """Return the outputs of queries and the next state, as specified by `Pass.step`."""
        left, right, logs = self.pair.left(query), self.pair.right(key), self.key_bias(key, bias)
        peak = _finite(torch.maximum(state.peak, logs.cummax(-1).values))  # (..., n), over the keys that a row sees
        past = _future(logs.shape[-1], logs.device)
        weights = (logs[..., None, :] - peak[..., :, None]).masked_fill(past, -torch.inf).exp()
        kept = (state.peak - peak).exp()[..., None]
        scores = ((left @ right.mT) * weights).masked_fill(past, 0)
        num = kept * (left @ state.values) + _past_sums(scores, value)
        den = kept * (left @ state.total[..., None]) + scores.sum(-1, keepdim=True)
        mass = kept * state.mass[..., None] + weights.sum(-1, keepdim=True)
        return self._divide(num, den, mass), self._absorb(state, right, value, logs)

    def _absorb(self, state: State, right: Tensor, value: Tensor, logs: Tensor) -> State:
        peak = torch.maximum(state.peak, logs.amax(-1, keepdim=True))
        finite = _finite(peak)
        weights, kept = (logs - finite).exp(), (state.peak - finite).exp()
        weighted = right * weights[..., None]
        values = kept[..., None] * state.values + weighted.mT @ value
        mass = kept * state.mass + weights.sum(-1, keepdim=True)
        return State(values, kept * state.total + weighted.sum(-2), peak, mass)

    def _divide(self, num: Tensor, den: Tensor, mass: Tensor) -> Rows:
        least = self.floor * mass
        low = den.abs() < least
        held = torch.where(low, torch.where(den < 0, -least, least), den)
        none = mass == 0
        return Rows(torch.where(none, 0, num / torch.where(none, 1, held)), low.squeeze(-1))


def _divide(num: Tensor, den: Tensor) -> Rows:
    """Return num / den, and 0 if no key was seen. Then den is exactly 0, while NaN stays NaN."""
    none = den == 0
    output = torch.where(none, 0, num / torch.where(none, 1, den))
    return Rows(output, torch.zeros_like(den, dtype=torch.bool).squeeze(-1))


def _past_sums(scores: Tensor, value: Tensor) -> Tensor:
    """Return scores (..., n, n) @ value (..., n, Ev); values that are not finite affect only their own and later rows.

    Without this, 0 times NaN would be NaN in earlier rows.
    """
    finite = value.isfinite()
    return scores @ value.where(finite, 0) + value.masked_fill(finite, 0).cumsum(-2)


def _log_values(side: object, x: Tensor) -> Tensor:
    assert isinstance(side, PositiveMap)
    return side.log_values(x)


def _finite(logs: Tensor) -> Tensor:
    return logs.clamp_min(_LOWEST)


def _future(count: int, device: torch.device) -> Tensor:
    """Return whether column j is after row i, (count, count)."""
    return torch.ones(count, count, dtype=torch.bool, device=device).triu(1)


def _halves(x: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the lower and upper halves of the blocks of 2 `size` rows of (..., n, F), each (..., blocks, size, F)."""
    blocks = x.unflatten(-2, (-1, 2, size))
    return blocks[..., 0, :, :], blocks[..., 1, :, :]


def _row_tops(log_left: Tensor, log_right: Tensor) -> Tensor:
    """Return max_f (log l_if + c_f), (..., n, 1), over the halvings in which row i is a query, and over its own key.

    Logarithms are (..., n, F).
    """
    left, right = _padded(log_left, 0.0), _padded(log_right, -torch.inf)
    top, size = (left + right).amax(-1, keepdim=True), 1
    while size < left.shape[-2]:
        past, upper = _halves(right, size)[0], _halves(left, size)[1]
        found = (upper + past.amax(-2, keepdim=True)).amax(-1, keepdim=True)
        lower_top, upper_top = _halves(top, size)
        top = torch.stack([lower_top, torch.maximum(upper_top, found)], dim=-3).flatten(-4, -2)
        size *= 2
    return _finite(top[..., : log_left.shape[-2], :])


def past_scores(log_left: Tensor, log_right: Tensor) -> Tensor:
    """Return sum_f exp(log l_if + log r_jf), (..., n, n), for j <= i, otherwise 0. No row depends on later ones.

    Args:
        log_left: log l, (..., n, F).
        log_right: log r, (..., n, F).

    Examples:
        >>> past_scores(torch.zeros(2, 3), torch.zeros(2, 3))
        tensor([[3., 0.],
                [3., 3.]])
    """
    left, right = _padded(log_left, 0.0), _padded(log_right, -torch.inf)
    scores = (left + right).exp().sum(-1)[..., None, None]  # (..., blocks, size, size), size 1
    size = 1
    while size < left.shape[-2]:
        past, upper = _halves(right, size)[0], _halves(left, size)[1]
        peak = _finite(past.detach().amax(-2, keepdim=True))
        corner = (upper + peak).exp() @ (past - peak).exp().mT
        first, second = scores[..., ::2, :, :], scores[..., 1::2, :, :]
        rows = torch.cat([first, torch.zeros_like(first)], -1), torch.cat([corner, second], -1)
        scores, size = torch.cat(rows, -2), 2 * size
    count = log_left.shape[-2]
    return scores[..., 0, :count, :count]


def _padded(logs: Tensor, fill: float) -> Tensor:
    """Return (..., n, F) with n filled up to a power of two."""
    count = logs.shape[-2]
    missing = (1 << (count - 1).bit_length()) - count
    return torch.nn.functional.pad(logs, (0, 0, 0, missing), value=fill) if missing else logs
