"""Attention from pairs of features in one pass over the positions: what is kept, and how it stays in range.

Row i of attention with features is num_i / den_i,

    num_i = sum_f l_if sum_j r_jf v_j,        den_i = sum_f l_if sum_j r_jf,

j over the keys that i may see. `State` holds the inner sums over what was seen, so time and memory are linear in n;
keys are absorbed block by block, and within a block of a causal pass the masked block of scores is formed.

Positive features are known by their logarithms. Let c_f be the largest log r_jf seen and M_i = max_f (log l_if + c_f).
Both cancel in num / den, and with l = exp(log l + c - M), r = exp(log r - c) every factor is at most 1 while the term
that attains M_i is 1, so that 1 <= den_i <= F n: nothing overflows, and what underflows is below what rounding loses.
c is per feature: one number for all features, as is common, leaves l . r to underflow where a query's large features
are not a key's. In a causal block c must not know the future, not even that of the block. A block of 2h is halved: for
queries in the upper half and keys in the lower one, all of the lower half's c are past; the two halves are divided
again. That takes log2 of the block's size times as many exponentials, which are cheap beside the products.

Features that change sign have no logarithm. They are those of the Gaussian kernel, which are bounded, and

    exp(q . k) = exp(|q|^2 / 2) gaussian(q, k) exp(|k|^2 / 2)

leaves a weight exp(|k_j|^2 / 2) of the key, stabilised by its running maximum; the factor of the query cancels.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor

from rfgp.features.softmax import FeaturePair, PositiveMap

_LOWEST = -1e30
"""Stands for the logarithm of 0 where a difference of two of them is taken."""


class State(NamedTuple):
    """Sums over the keys that were seen.

    Attributes:
        values: sum_j r_jf v_j, (..., F, Ev).
        total: sum_j r_jf, (..., F).
        peak: The logarithm by which both are divided, (..., F) or (..., 1); -inf before the first key.
        mass: sum_j of the keys' weights, (..., 1); positive features have none.
    """

    values: Tensor
    total: Tensor
    peak: Tensor
    mass: Tensor


class Rows(NamedTuple):
    """Outputs of a block.

    Attributes:
        output: (..., n, Ev).
        low: Whether the normaliser was raised to its floor, (..., n).
    """

    output: Tensor
    low: Tensor


class Pass(ABC):
    """How keys are absorbed and queries answered.

    Args:
        pair: The features.
    """

    def __init__(self, pair: FeaturePair) -> None:
        self.pair = pair

    def start(
        self,
        key: Tensor,  # (..., S, E)
        value: Tensor,  # (..., S, Ev)
    ) -> State:
        """Return the state before the first key."""
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
    def absorb(
        self,
        state: State,
        key: Tensor,  # (..., n, E)
        value: Tensor,  # (..., n, Ev)
        bias: Tensor,  # (..., n)
    ) -> State:
        """Return the state with more keys; the bias is added to the logarithms of their scores."""

    @abstractmethod
    def read(
        self,
        state: State,
        query: Tensor,  # (..., n, E)
    ) -> Rows:
        """Return the outputs of queries that see what was absorbed."""

    @abstractmethod
    def step(
        self,
        state: State,
        query: Tensor,  # (..., n, E)
        key: Tensor,  # (..., n, E)
        value: Tensor,  # (..., n, Ev)
        bias: Tensor,  # (..., n)
    ) -> tuple[Rows, State]:
        """Return the outputs of queries that see the state and the keys up to their own, and the state after them."""

    def key_bias(
        self,
        key: Tensor,  # (..., n, E)
        bias: Tensor,  # (..., n)
    ) -> Tensor:  # (..., n)
        """Return the logarithms of the keys' weights: a pair of the Gaussian kernel leaves exp(|k|^2 / 2)."""
        return bias + 0.5 * key.square().sum(-1) if self.pair.kernel == "gaussian" else bias


class PositivePass(Pass):
    """With features that are positive, by their logarithms."""

    @property
    def peak_width(self) -> int:
        """F: one maximum per feature."""
        return self.pair.num_features

    def absorb(
        self,
        state: State,
        key: Tensor,  # (..., n, E)
        value: Tensor,  # (..., n, Ev)
        bias: Tensor,  # (..., n)
    ) -> State:
        """See `Pass.absorb`."""
        return self._absorb(state, self._log_keys(key, bias), value)

    def read(
        self,
        state: State,
        query: Tensor,  # (..., n, E)
    ) -> Rows:
        """See `Pass.read`."""
        logs = _log_values(self.pair.left, query) + _finite(state.peak)[..., None, :]
        left = (logs - logs.detach().amax(-1, keepdim=True)).exp()
        return _divide(left @ state.values, left @ state.total[..., None])

    def step(
        self,
        state: State,
        query: Tensor,  # (..., n, E)
        key: Tensor,  # (..., n, E)
        value: Tensor,  # (..., n, Ev)
        bias: Tensor,  # (..., n)
    ) -> tuple[Rows, State]:
        """See `Pass.step`."""
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
    """With features of the Gaussian kernel that may change sign.

    The estimate of den_i can be small or negative. Its size is kept at least `floor` times the sum of the keys'
    weights, which den_i does not exceed in expectation; its sign stays.

    Args:
        pair: The features.
        floor: Relative to the keys' weights.
    """

    def __init__(self, pair: FeaturePair, floor: float) -> None:
        super().__init__(pair)
        self.floor = floor

    @property
    def peak_width(self) -> int:
        """1: one maximum for all features."""
        return 1

    def absorb(
        self,
        state: State,
        key: Tensor,  # (..., n, E)
        value: Tensor,  # (..., n, Ev)
        bias: Tensor,  # (..., n)
    ) -> State:
        """See `Pass.absorb`."""
        return self._absorb(state, self.pair.right(key), value, self.key_bias(key, bias))

    def read(
        self,
        state: State,
        query: Tensor,  # (..., n, E)
    ) -> Rows:
        """See `Pass.read`."""
        left = self.pair.left(query)
        return self._divide(left @ state.values, left @ state.total[..., None], state.mass[..., None])

    def step(
        self,
        state: State,
        query: Tensor,  # (..., n, E)
        key: Tensor,  # (..., n, E)
        value: Tensor,  # (..., n, Ev)
        bias: Tensor,  # (..., n)
    ) -> tuple[Rows, State]:
        """See `Pass.step`."""
        left, right, logs = self.pair.left(query), self.pair.right(key), self.key_bias(key, bias)
        peak = _finite(torch.maximum(state.peak, logs.cummax(-1).values))  # (..., n), of what a row sees
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
    """Return num / den, and 0 where no key was seen: there den is exactly 0, and NaN stays NaN."""
    none = den == 0
    output = torch.where(none, 0, num / torch.where(none, 1, den))
    return Rows(output, torch.zeros_like(den, dtype=torch.bool).squeeze(-1))


def _past_sums(
    scores: Tensor,  # (..., n, n)
    value: Tensor,  # (..., n, Ev)
) -> Tensor:  # (..., n, Ev)
    """Return scores @ value, where what is not finite reaches its own row and later ones: 0 times NaN is NaN."""
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


def _row_tops(
    log_left: Tensor,  # (..., n, F)
    log_right: Tensor,  # (..., n, F)
) -> Tensor:  # (..., n, 1)
    """Return max_f (log l_if + c_f) over the halvings in which row i is a query, and over its own key."""
    left, right = _padded(log_left, 0.0), _padded(log_right, -torch.inf)
    top, size = (left + right).amax(-1, keepdim=True), 1
    while size < left.shape[-2]:
        past, upper = _halves(right, size)[0], _halves(left, size)[1]
        found = (upper + past.amax(-2, keepdim=True)).amax(-1, keepdim=True)
        lower_top, upper_top = _halves(top, size)
        top = torch.stack([lower_top, torch.maximum(upper_top, found)], dim=-3).flatten(-4, -2)
        size *= 2
    return _finite(top[..., : log_left.shape[-2], :])


def past_scores(
    log_left: Tensor,  # (..., n, F)
    log_right: Tensor,  # (..., n, F)
) -> Tensor:  # (..., n, n)
    """Return sum_f exp(log l_if + log r_jf) for j <= i, otherwise 0; no row knows of what is after it."""
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
