"""Results of a comparison: the figures of every draw, their means and standard errors."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rfgp.inference.prediction import Prediction
from rfgp.models import Process


class Estimate(NamedTuple):
    """A mean and its standard error (NaN where there is one value only).

    Examples:
        >>> Estimate(1.5, 0.1).mean
        1.5
    """

    mean: float
    error: float


@dataclass(frozen=True)
class Draw:
    """The figures of one draw on one split.

    Attributes:
        method: The name of the method, such as a coupling.
        size: The number m of frequencies or walkers.
        split: The number of the split.
        kernel_error: The relative Frobenius error of the kernel matrix.
        kl: KL from the exact to the approximate posterior at the test points, total nats.
        rmse: The root mean squared error of the test targets, in their units.
        nlpd: The negative log predictive density of a test point, in nats.
        seconds: The seconds to draw, condition and predict.

    Examples:
        >>> Draw("iid", 64, 0, kernel_error=0.1, kl=2.0, rmse=0.5, nlpd=0.7, seconds=0.01).kl
        2.0
    """

    method: str
    size: int
    split: int
    kernel_error: float
    kl: float
    rmse: float
    nlpd: float
    seconds: float


@dataclass(frozen=True)
class Exact:
    """The exact process on one split: test errors, seconds and hyperparameters.

    Examples:
        >>> Exact(rmse=0.5, nlpd=0.7, seconds=0.1, hyperparameters="lengthscale 1").rmse
        0.5
    """

    rmse: float
    nlpd: float
    seconds: float
    hyperparameters: str


@dataclass(frozen=True, eq=False)
class Example:
    """One exact and one approximate process with test points, for pictures.

    Examples:
        >>> import numpy as np
        >>> from rfgp.compare import Plan, compare_table
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> few = {"methods": ("iid",), "sizes": (8,), "num_train": 30, "num_test": 10, "plan": Plan(draws=2)}
        >>> run = compare_table(X, X[:, 0] ** 2, **few)
        >>> run.example.method, run.example.exact.mean.shape
        ('iid', (10,))
    """

    process: Process[Any]
    observed: NDArray[np.float64]
    exact: Prediction
    approximate: Prediction
    method: str
    size: int


@dataclass(frozen=True, eq=False)
class Comparison:
    """All draws of one comparison.

    Attributes:
        title: The name of the data.
        protocol: The protocol, in words.
        size_name: "frequencies" or "walkers".
        baseline: The method to which ratios are relative.
        exact: One entry per split.
        draws: One entry per method, size, split and repeat.
        example: The process and a draw, for pictures.

    Examples:
        >>> import numpy as np
        >>> from rfgp.compare import Plan, compare_table
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> few = {"methods": ("iid",), "sizes": (8,), "num_train": 30, "num_test": 10, "plan": Plan(draws=2)}
        >>> run = compare_table(X, X[:, 0] ** 2, **few)
        >>> run.error_ratio("iid", 8).mean, run.estimate("kl", "iid", 8).error > 0
        (1.0, True)
    """

    title: str
    protocol: str
    size_name: str
    baseline: str
    exact: list[Exact]
    draws: list[Draw]
    example: Example

    def estimate(self, figure: str, method: str, size: int) -> Estimate:
        """Return the mean of a figure over all draws, with its standard error.

        The standard error is over splits, or over draws if there is one split.

        Args:
            figure: The name of the figure: "kernel_error", "kl", "rmse", "nlpd" or "seconds".
            method: The method.
            size: The number of features or walkers.
        """
        return _estimate(self._by_split(figure, method, size))

    def error_ratio(self, method: str, size: int) -> Estimate:
        """Return the RMS kernel error relative to that of the baseline.

        The root mean square is over draws, and ratios are averaged over splits.

        The error is over splits; with one split over draws, paired, since a draw's seed is the same for
        every method (delta method). A method without randomness is paired with each draw of the baseline.

        Args:
            method: The method.
            size: The number of features or walkers.
        """
        ours = self._by_split("kernel_error", method, size) ** 2
        base = self._by_split("kernel_error", self.baseline, size) ** 2
        quotients = np.sqrt(ours.mean(1) / base.mean(1))
        if method == self.baseline:
            return Estimate(1.0, 0.0)
        if len(quotients) > 1:
            return _estimate(quotients[:, None])
        paired = _estimate((ours - quotients[0] ** 2 * base) / base.mean())
        return Estimate(float(quotients[0]), 0.5 * paired.error / float(quotients[0]))

    def groups(self) -> list[tuple[str, int]]:
        """Return the (method, size) pairs in the order they were drawn, by size."""
        seen = dict.fromkeys((draw.method, draw.size) for draw in self.draws)
        return sorted(seen, key=lambda pair: pair[1])

    def _by_split(self, figure: str, method: str, size: int) -> NDArray[np.float64]:
        rows: dict[int, list[float]] = {}
        for draw in self.draws:
            if (draw.method, draw.size) == (method, size):
                rows.setdefault(draw.split, []).append(getattr(draw, figure))
        return np.array(list(rows.values()))


def _estimate(values: NDArray[np.float64]) -> Estimate:
    """Return the mean of values (splits, draws), with its standard error."""
    units = values.mean(1) if len(values) > 1 else values[0]
    error = float(np.std(units, ddof=1) / np.sqrt(len(units))) if len(units) > 1 else float("nan")
    return Estimate(float(values.mean()), error)
