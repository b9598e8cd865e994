"""Distributions of walk lengths, and couplings of the lengths of the walkers of a node.

A coupling is a joint distribution of the m lengths of one start node. Each length keeps the same marginal distribution.
Walkers of different start nodes are always independent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphs import random
from graphs.checks import short_repr
from graphs.errors import InvalidArgumentError
from graphs.kernels import GraphKernel

Keys = NDArray[np.uint64]
Lengths = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class HaltingDistribution:
    """The distribution of the length of a walk, given by its survival P(length >= l).

    Attributes:
        p_halt: The probability in (0, 1) to halt before each step. Or survival probabilities (L + 1,): positive and
            non-increasing, starting with 1. No walk is then longer than L, so E[Phi] omits powers beyond L.

    Examples:
        >>> from graphs.lengths import HaltingDistribution
        >>> HaltingDistribution(0.1).mean(), HaltingDistribution([1.0, 0.5]).survival(2).tolist()
        (9.0, [1.0, 0.5, 0.0])
    """

    p_halt: float | NDArray[np.float64]

    def __post_init__(self) -> None:
        values = np.asarray(self.p_halt, dtype=np.float64)
        if values.ndim == 0:
            if not 0 < values < 1:
                raise InvalidArgumentError(f"p_halt must lie strictly between 0 and 1, got {self.p_halt!r}.")
            object.__setattr__(self, "p_halt", float(values))
            return
        fits = values.ndim == 1 and values.size > 0 and values[0] == 1 and (values > 0).all()
        if not fits or (np.diff(values) > 0).any():
            raise InvalidArgumentError(
                "p_halt must be a probability or a survival array P(length >= l), positive and non-increasing from 1, "
                f"got {short_repr(self.p_halt)}."
            )
        object.__setattr__(self, "p_halt", values)

    @property
    def is_geometric(self) -> bool:
        """Whether the halting probability is the same at each step."""
        return isinstance(self.p_halt, float)

    def survival(self, length: int) -> NDArray[np.float64]:
        """Return P(length >= l) for l = 0..length, shape (length + 1,).

        Args:
            length: The largest number of steps l.
        """
        if isinstance(self.p_halt, float):
            return np.asarray((1 - self.p_halt) ** np.arange(length + 1))
        out = np.zeros(length + 1)
        out[: len(self.p_halt)] = self.p_halt[: length + 1]
        return out

    def mean(self) -> float:
        """Return the mean length."""
        return 1 / self.p_halt - 1 if isinstance(self.p_halt, float) else float(np.sum(self.p_halt[1:]))

    def quantile(self, u: NDArray[np.float64]) -> Lengths:
        """Return quantiles of the length.

        Args:
            u: Probabilities in (0, 1), of any shape.

        Returns:
            The smallest length l with P(length <= l) > u for each entry, int64, in the shape of u.
        """
        u = np.clip(u, 2.0**-54, 1 - 2.0**-53)  # sums of uniforms may be rounded to 0 and 1
        if isinstance(self.p_halt, float):
            return np.asarray(np.log(1 - u) * (1 / np.log1p(-self.p_halt)), dtype=np.int64)  # log is faster than log1p
        return np.asarray(np.searchsorted(self._halted, u, side="right"), dtype=np.int64)

    @cached_property
    def _halted(self) -> NDArray[np.float64]:
        return 1 - np.asarray(self.p_halt)[1:]


def as_halting_distribution(p_halt: float | ArrayLike | HaltingDistribution) -> HaltingDistribution:
    """Return the distribution of a halting probability or of survival (L + 1,).

    Args:
        p_halt: The probability in (0, 1) to halt before each step, survival probabilities (L + 1,), or a distribution.

    Raises:
        InvalidArgumentError: If the value is neither.

    Examples:
        >>> from graphs.lengths import as_halting_distribution
        >>> as_halting_distribution(0.2).is_geometric
        True
    """
    if isinstance(p_halt, HaltingDistribution):
        return p_halt
    try:
        return HaltingDistribution(np.asarray(p_halt, dtype=np.float64))
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise InvalidArgumentError(
            f"p_halt must be a number or an array of survival probabilities, got {p_halt!r}."
        ) from error


class LengthCoupling(Protocol):
    """A coupling of the lengths of the m walkers of each start node.

    Examples:
        >>> import numpy as np
        >>> from graphs import lengths, random
        >>> keys = random.derive(random.stream(0, random.Role.LENGTHS), np.arange(3))[:, None]
        >>> lengths.Systematic().draw(keys, 4, lengths.HaltingDistribution(0.1)).shape
        (3, 4)
    """

    def draw(self, keys: Keys, num_walkers: int, halting: HaltingDistribution) -> Lengths:
        """Return the lengths (n, m) for n node keys (n, 1).

        Args:
            keys: Random keys (n, 1), one per start node.
            num_walkers: The number m of walkers per node.
            halting: The distribution of each length.
        """


@dataclass(frozen=True)
class IID:
    """Independent lengths.

    Examples:
        >>> from graphs.lengths import LENGTHS
        >>> LENGTHS["iid"]()
        IID()
    """

    def draw(self, keys: Keys, num_walkers: int, halting: HaltingDistribution) -> Lengths:
        """Return independent lengths (n, m)."""
        return halting.quantile(random.uniforms(keys, np.arange(num_walkers)[None, :]))


@dataclass(frozen=True)
class Antithetic:
    """Pairs with antithetic termination.

    Reid et al. 2023, "Quasi-Monte Carlo graph random features".

    Both walkers of a pair share one uniform u per step. One halts if u < p, the other if (u + 1/2) mod 1 < p. For p <=
    1/2 they never halt at the same step.

    Examples:
        >>> from graphs.lengths import LENGTHS
        >>> LENGTHS["antithetic"]()
        Antithetic()
    """

    def draw(self, keys: Keys, num_walkers: int, halting: HaltingDistribution) -> Lengths:
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
    """Pairs whose length quantiles are matched by a permutation (Reid et al. 2024, Definition 4.2).

    The first uniform of a pair falls into one of n quantile bins. The second is independent within the image of that
    bin under `permutation`.

    Attributes:
        permutation: The permutation (n,) of the quantiles.

    Examples:
        >>> from graphs.lengths import Sigma
        >>> Sigma.from_array([2, 1, 0]).permutation.tolist()
        [2, 1, 0]
    """

    permutation: NDArray[np.int64]  # (num_quantiles,)

    @classmethod
    def from_array(cls, permutation: ArrayLike) -> "Sigma":
        """Return the coupling of a permutation (num_quantiles,).

        Args:
            permutation: The image of each quantile, integers 0..n-1.

        Raises:
            InvalidArgumentError: If it does not hold 0..n-1 once each, with n at least 2.
        """
        table = _array(permutation)
        if table.ndim != 1 or not np.array_equal(np.sort(table), np.arange(len(table))) or len(table) < 2:
            raise InvalidArgumentError(
                f"permutation must hold each of 0..num_quantiles-1 once, got {short_repr(permutation)}. Use "
                "match_quantiles."
            )
        return cls(table.astype(np.int64))

    def draw(self, keys: Keys, num_walkers: int, halting: HaltingDistribution) -> Lengths:
        """Return lengths (n, m); walkers 2k and 2k + 1 are partners."""
        pairs = np.arange(_half(num_walkers, "sigma"))[None, :]
        count = len(self.permutation)
        first = random.uniforms(keys, 2 * pairs)
        within = random.uniforms(keys, 2 * pairs + 1)
        second = (self.permutation[(first * count).astype(np.int64)] + within) / count
        return halting.quantile(np.stack([first, second], axis=2).reshape(len(keys), num_walkers))


@dataclass(frozen=True, eq=False)
class Tuples:
    """All m lengths from one of S tuples of quantiles.

    A tuple is drawn uniformly, then each length within its quantile, independently.

    Attributes:
        tuples: Quantiles (S, m), integers from 0.

    Examples:
        >>> from graphs.lengths import Tuples
        >>> Tuples.from_array([[0, 1], [1, 0]], num_walkers=2).tuples.shape
        (2, 2)
    """

    tuples: NDArray[np.int64]  # (S, m)

    @classmethod
    def from_array(cls, tuples: ArrayLike, num_walkers: int) -> "Tuples":
        """Return the coupling of a table (S, m) of quantiles.

        Args:
            tuples: Quantiles (S, m), integers from 0.
            num_walkers: The number m of walkers.

        Raises:
            InvalidArgumentError: If the table has another number of walkers, or a column does not hold every quantile
                equally often.
        """
        table = _array(tuples)
        if table.ndim != 2 or not np.issubdtype(table.dtype, np.integer) or table.shape[1] != num_walkers:
            raise InvalidArgumentError(
                f"tuples must be integers of shape (S, {num_walkers}), one column per walker, got {table.dtype} of "
                f"shape {table.shape}."
            )
        count = min(int(table.max(initial=-1)), len(table)) + 1
        expected = np.repeat(np.arange(count), len(table) // count if count else 0)
        if count < 2 or any(not np.array_equal(np.sort(column), expected) for column in table.T):
            raise InvalidArgumentError(
                "Each column of tuples must hold every quantile equally often, got another table. Use couple_quantiles."
            )
        return cls(table.astype(np.int64))

    def draw(self, keys: Keys, num_walkers: int, halting: HaltingDistribution) -> Lengths:
        """Return lengths (n, m)."""
        count = int(self.tuples.max()) + 1
        chosen = (random.uniforms(keys, np.zeros((1, 1), dtype=np.int64)) * len(self.tuples)).astype(np.int64)
        within = random.uniforms(keys, 1 + np.arange(num_walkers)[None, :])
        u = (self.tuples[chosen[:, 0]] + within) / count
        return halting.quantile(u)


@dataclass(frozen=True)
class Systematic:
    """All m lengths from one uniform V: u_k = (V + k / m) mod 1.

    Each u_k is uniform, and together they fall into each of the m quantiles exactly once.

    Examples:
        >>> from graphs.lengths import LENGTHS
        >>> LENGTHS["systematic"]()
        Systematic()
    """

    def draw(self, keys: Keys, num_walkers: int, halting: HaltingDistribution) -> Lengths:
        """Return lengths (n, m) that are evenly spread over the quantiles."""
        start = random.uniforms(keys, np.zeros((1, 1), dtype=np.int64))
        u = (start + np.arange(num_walkers)[None, :] / num_walkers) % 1.0
        return halting.quantile(u)


def _array(values: ArrayLike) -> NDArray[Any]:
    """Return an array, empty for ragged lists."""
    try:
        return np.asarray(values)
    except ValueError:
        return np.zeros(0)


def _half(num_walkers: int, name: str) -> int:
    if num_walkers % 2:
        raise InvalidArgumentError(
            f'lengths="{name}" couples pairs of walkers, so num_walkers must be even, got {num_walkers}.'
        )
    return num_walkers // 2


def truncated_modulation(kernel: GraphKernel) -> NDArray[np.float64]:
    """Return the terms f_0, f_1, ... of a modulation until they sum to sqrt(k(0)) up to 1e-9.

    There are at most 65,536 terms.

    Args:
        kernel: The kernel.

    Examples:
        >>> from graphs import kernels
        >>> from graphs.lengths import truncated_modulation
        >>> float(truncated_modulation(kernels.Diffusion(1.0)).sum().round(6))
        1.0
    """
    total, length = float(np.sqrt(kernel.spectral(np.zeros(1))[0])), 64
    while True:
        f = kernel.modulation(length)
        if abs(f.sum() - total) < 1e-9 * total or length >= 2**16:
            return f
        length *= 2


def quantile_survival(halting: HaltingDistribution, num_quantiles: int, length: int) -> NDArray[np.float64]:
    """Return P(length >= l | q) / P(length >= l), (num_quantiles, length + 1).

    The uniform of quantile q is uniform on (q / n, (q + 1) / n), and the walk reaches l if it exceeds 1 - S_l. The mean
    of the ratio over q is 1 for every l that a walk can reach.

    Args:
        halting: The distribution of the length.
        num_quantiles: The number n of quantiles.
        length: The largest number of steps l.

    Examples:
        >>> from graphs.lengths import HaltingDistribution, quantile_survival
        >>> quantile_survival(HaltingDistribution(0.5), 2, 2).tolist()
        [[1.0, 0.0, 0.0], [1.0, 2.0, 2.0]]
    """
    survival = halting.survival(length)
    above = 1 - np.arange(1, num_quantiles + 1) / num_quantiles
    conditional_survival = np.clip(survival[None, :] - above[:, None], 0.0, 1 / num_quantiles) * num_quantiles
    zeros = np.zeros_like(conditional_survival)
    return np.asarray(np.divide(conditional_survival, survival, out=zeros, where=survival > 0))


LENGTHS: dict[str, Callable[..., LengthCoupling]] = {
    "iid": IID,
    "antithetic": Antithetic,
    "sigma": Sigma,
    "systematic": Systematic,
    "learned": Tuples,
}
"""The couplings of lengths by name."""
STEP_COUPLINGS = ("independent", "stratified", "repelling")
"""The couplings of the steps of walkers at the same node."""
