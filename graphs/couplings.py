"""Joint laws of the lengths of a node's walkers, and the law of one length.

Every coupling leaves each length with the halting law; what it chooses is how the m lengths of one
start node depend on each other. Walkers of different start nodes are always independent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from graphs import random
from graphs.errors import InvalidArgumentError
from graphs.graph import Graph
from graphs.kernels import GraphKernel
from graphs.spectral import spectral_measure

Keys = NDArray[np.uint64]
Lengths = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Halting:
    """The law of a walk's length, through its survival P(length >= l).

    Attributes:
        halt: The probability to stop before each step, in (0, 1); or an array (L + 1,) of survival
            probabilities: the first 1, none increasing, all positive. No walk is longer than L then,
            so powers beyond L are left out of E[Phi].
    """

    halt: float | NDArray[np.float64]

    def __post_init__(self) -> None:
        values = np.asarray(self.halt, dtype=np.float64)
        if values.ndim == 0:
            if not 0 < values < 1:
                raise InvalidArgumentError(f"halt must lie strictly between 0 and 1, got {self.halt!r}.")
            object.__setattr__(self, "halt", float(values))
            return
        fits = values.ndim == 1 and values.size > 0 and values[0] == 1 and (values > 0).all()
        if not fits or (np.diff(values) > 0).any():
            raise InvalidArgumentError(
                "A survival array P(length >= l), l = 0, 1, ..., starts with 1, never increases and stays positive."
            )
        object.__setattr__(self, "halt", values)

    @property
    def is_geometric(self) -> bool:
        """Whether every step halts with the same probability."""
        return isinstance(self.halt, float)

    def survival(self, length: int) -> NDArray[np.float64]:
        """Return P(length >= l) for l = 0..length, shape (length + 1,)."""
        if isinstance(self.halt, float):
            return np.asarray((1 - self.halt) ** np.arange(length + 1))
        out = np.zeros(length + 1)
        out[: len(self.halt)] = self.halt[: length + 1]
        return out

    def mean(self) -> float:
        """Return the mean length."""
        return 1 / self.halt - 1 if isinstance(self.halt, float) else float(np.sum(self.halt[1:]))

    def quantile(self, u: NDArray[np.float64]) -> Lengths:
        """Return the lengths whose distribution function first reaches u in (0, 1), shape of u."""
        if isinstance(self.halt, float):
            return np.asarray(np.log(1 - u) * (1 / np.log1p(-self.halt)), dtype=np.int64)  # log is faster than log1p
        return np.asarray(np.searchsorted(self._halted, u, side="right"), dtype=np.int64)

    @cached_property
    def _halted(self) -> NDArray[np.float64]:
        return 1 - np.asarray(self.halt)[1:]


def as_halting(halt: float | ArrayLike) -> Halting:
    """Return the halting law of a probability or of survival probabilities (L + 1,).

    Raises:
        InvalidArgumentError: neither of the two.
    """
    try:
        return Halting(np.asarray(halt, dtype=np.float64))
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(
            f"halt must be a number or an array of survival probabilities, got {halt!r}."
        ) from error


class LengthCoupling(Protocol):
    """Draws the lengths of the m walkers of each start node from that node's key."""

    def draw(self, keys: Keys, num_walkers: int, halting: Halting) -> Lengths:
        """Return the lengths (n, m) for n node keys (n, 1)."""


@dataclass(frozen=True)
class IID:
    """Independent lengths."""

    def draw(self, keys: Keys, num_walkers: int, halting: Halting) -> Lengths:
        """Return independent lengths (n, m)."""
        return halting.quantile(random.uniforms(keys, np.arange(num_walkers)[None, :]))


@dataclass(frozen=True)
class Antithetic:
    """Pairs with antithetic termination (Reid et al. 2023, "Quasi-Monte Carlo graph random features").

    Both walkers of a pair look at one uniform u per step; one halts if u < p, its partner if
    (u + 1/2) mod 1 < p. For p <= 1/2 they never halt at the same step.
    """

    def draw(self, keys: Keys, num_walkers: int, halting: Halting) -> Lengths:
        """Return lengths (n, m); walkers 2k and 2k + 1 are partners."""
        pairs = random.derive(keys, np.arange(_half(num_walkers, "antithetic"))[None, :])
        lengths = np.zeros((*pairs.shape, 2), dtype=np.int64)
        alive = np.ones(lengths.shape, dtype=bool)
        rows = np.arange(pairs.size)
        flat, running, step = lengths.reshape(-1, 2), alive.reshape(-1, 2), 0
        while len(rows):
            reached = halting.survival(step + 1)
            hazard = 1 - reached[step + 1] / reached[step]
            u = random.uniforms(pairs.reshape(-1)[rows], np.array([step]))
            running[rows] &= np.stack([u, (u + 0.5) % 1.0], axis=1) >= hazard
            flat[rows] += running[rows]
            rows, step = rows[running[rows].any(axis=1)], step + 1
        return lengths.reshape(len(keys), num_walkers)


@dataclass(frozen=True, eq=False)
class Sigma:
    """Pairs whose length quantiles are matched by a permutation (Reid et al. 2024, section 4).

    The first uniform of a pair falls into one of n quantile bins, the second, independently within
    it, into the bin's image under `permutation`.
    """

    permutation: NDArray[np.int64]  # (num_quantiles,)

    @classmethod
    def checked(cls, permutation: ArrayLike) -> "Sigma":
        """Return the coupling of a permutation (num_quantiles,).

        Raises:
            InvalidArgumentError: it does not hold 0..n-1, each once, n at least 2.
        """
        table = np.asarray(permutation)
        if table.ndim != 1 or not np.array_equal(np.sort(table), np.arange(len(table))) or len(table) < 2:
            raise InvalidArgumentError("permutation must hold 0..num_quantiles-1, each once.")
        return cls(table.astype(np.int64))

    def draw(self, keys: Keys, num_walkers: int, halting: Halting) -> Lengths:
        """Return lengths (n, m); walkers 2k and 2k + 1 are partners."""
        pairs = np.arange(_half(num_walkers, "sigma"))[None, :]
        count = len(self.permutation)
        first = random.uniforms(keys, 2 * pairs)
        within = random.uniforms(keys, 2 * pairs + 1)
        second = (self.permutation[(first * count).astype(np.int64)] + within) / count
        second = np.clip(second, 2.0**-54, 1 - 2.0**-53)
        return halting.quantile(np.stack([first, second], axis=2).reshape(len(keys), num_walkers))


@dataclass(frozen=True)
class Systematic:
    """All m lengths from one uniform V: u_k = (V + k / m) mod 1.

    Each u_k is uniform, and together they fall into every one of the m quantiles exactly once.
    """

    def draw(self, keys: Keys, num_walkers: int, halting: Halting) -> Lengths:
        """Return lengths (n, m), evenly spread over the quantiles of the halting law."""
        start = random.uniforms(keys, np.zeros((1, 1), dtype=np.int64))
        u = (start + np.arange(num_walkers)[None, :] / num_walkers) % 1.0
        return halting.quantile(np.clip(u, 2.0**-54, 1 - 2.0**-53))


def _half(num_walkers: int, name: str) -> int:
    if num_walkers % 2:
        raise InvalidArgumentError(
            f'lengths="{name}" couples pairs of walkers, so num_walkers must be even, got {num_walkers}.'
        )
    return num_walkers // 2


def match_quantiles(
    graph: Graph,
    kernel: GraphKernel,
    halt: float | ArrayLike = 0.1,
    num_quantiles: int = 50,
) -> NDArray[np.int64]:
    """Return the permutation (num_quantiles,) that pairs length quantiles for "sigma" walkers.

    Reid et al. (2024), section 4, replace a walker whose length falls into quantile q by its
    average over directions, psi_i(q) = g_q(U) e_i with g_q(x) = sum_l f_l P(length >= l | q) /
    P(length >= l) x^l, and match quantiles by a linear assignment. The cost here is derived anew: it is
    what the coupling of node i changes in sum_{ij} E[(phi_i . phi_j)^2] when phi_j has its mean
    f(U) e_j. Up to constants the change is (1/n) sum_q cost(q, sigma(q)) with

        cost(q, q') = sum_i psi_i(q)^T K psi_i(q') = tr(g_q(U) K g_q'(U)),

    for independent directions. That leaves out the product of both nodes' covariances, a tenth of the
    squared error for short kernels and most of it for long ones. The cost needs the spectrum of U only:
    dense for small graphs, Lanczos quadrature for large ones.

    Where f >= 0, as for every kernel of this version, the answer is the reversal n-1, ..., 0 whatever
    the graph: the ratios P(length >= l | q) / P(length >= l) grow with q and tr(U^l K) >= 0, so the cost
    is supermodular, and the rearrangement inequality pairs long lengths with short ones.

    Args:
        graph: The graph, or a smaller one like it.
        kernel: The kernel whose features are coupled.
        halt: The halting probability in (0, 1), or a survival array.
        num_quantiles: The number n of bins, at least 2.

    Raises:
        InvalidArgumentError: `halt` or `num_quantiles` is out of range.
    """
    if isinstance(num_quantiles, bool) or not isinstance(num_quantiles, int | np.integer) or num_quantiles < 2:
        raise InvalidArgumentError(f"num_quantiles must be an integer of at least 2, got {num_quantiles!r}.")
    halting = as_halting(halt)
    u, mass = spectral_measure(graph)
    f = modulation_to_the_end(kernel)
    averaged = (quantile_survival(halting, num_quantiles, len(f) - 1) * f) @ (u[None, :] ** np.arange(len(f))[:, None])
    weight = mass * kernel.spectral(1 - u)
    _, permutation = linear_sum_assignment((averaged * weight) @ averaged.T)
    return np.asarray(permutation, dtype=np.int64)


def modulation_to_the_end(kernel: GraphKernel) -> NDArray[np.float64]:
    """Return f_0, f_1, ... until they sum to sqrt(k(0)) but for 1e-9, or 65,536 of them."""
    total, length = float(np.sqrt(kernel.spectral(np.zeros(1))[0])), 64
    while True:
        f = kernel.modulation(length)
        if abs(f.sum() - total) < 1e-9 * total or length >= 2**16:
            return f
        length *= 2


def quantile_survival(halting: Halting, num_quantiles: int, length: int) -> NDArray[np.float64]:
    """Return P(reach l | quantile q) / P(reach l) for l = 0..length, shape (num_quantiles, length + 1).

    The uniform of quantile q is uniform on (q / n, (q + 1) / n), and the walk reaches l where it exceeds
    1 - S_l; the ratio averages to 1 over q for every l that a walk can reach.
    """
    survival = halting.survival(length)
    above = 1 - np.arange(1, num_quantiles + 1) / num_quantiles
    share = np.clip(survival[None, :] - above[:, None], 0.0, 1 / num_quantiles) * num_quantiles
    return np.asarray(np.divide(share, survival, out=np.zeros_like(share), where=survival > 0))


LENGTHS: dict[str, Callable[..., LengthCoupling]] = {
    "iid": IID,
    "antithetic": Antithetic,
    "sigma": Sigma,
    "systematic": Systematic,
}
DIRECTIONS = ("independent", "stratified", "repelling")
