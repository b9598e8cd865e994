"""Results of a comparison: the scores of all draws, their means and standard errors."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from rfgp.gp import GP
from rfgp.inference.prediction import Prediction


class Estimate(NamedTuple):
    """A mean and its standard error, which is NaN for a single value.

    Examples:
        >>> Estimate(1.5, 0.1).mean
        1.5
    """

    mean: float
    error: float

    @classmethod
    def of(
        cls,
        values: NDArray[np.float64],  # (splits, draws)
    ) -> Self:
        """Return the mean of scores, with its standard error over splits, or over draws if there is one split.

        Args:
            values: Scores (splits, draws).
        """
        units = values.mean(1) if len(values) > 1 else values[0]
        error = float(np.std(units, ddof=1) / np.sqrt(len(units))) if len(units) > 1 else float("nan")
        return cls(float(values.mean()), error)


@dataclass(frozen=True)
class Draw:
    """The scores of one draw on one split.

    Attributes:
        method: The name of the method, such as a coupling.
        size: The number m of frequencies or walkers.
        split: The number of the split.
        kernel_error: The relative Frobenius error of the kernel matrix.
        kl: KL(exact || approximate) of the joint posteriors at the test points, in total nats.
        rmse: The root mean squared error of the test targets, in their units.
        nlpd: The negative log predictive density of a test point, in nats.
        seconds: The time to draw, condition and predict, in seconds.

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


POOR = 0.1
"""The explained fraction of the variance of test targets below which a comparison says that the model is poor.

At 0.1 the RMSE is 95 % of that of the mean of the targets."""


@dataclass(frozen=True)
class Exact:
    """The scores of the exact process on one split.

    Attributes:
        rmse: The root mean squared error of the test targets, in their units.
        nlpd: The negative log predictive density of a test point, in nats.
        seconds: The time of the fit and the predictions, in seconds.
        hyperparameters: The hyperparameters, as text.
        r_squared: The fraction of the variance of the test targets that is explained, or None if they are equal.

    Examples:
        >>> Exact(rmse=0.5, nlpd=0.7, seconds=0.1, hyperparameters="lengthscale 1").rmse
        0.5
    """

    rmse: float
    nlpd: float
    seconds: float
    hyperparameters: str
    r_squared: float | None = None


@dataclass(frozen=True, eq=False)
class Example:
    """An exact and an approximate process at test points, for plots.

    Attributes:
        process: The exact process.
        observed: The observed values at the test points.
        exact: The prediction of the exact process.
        approximate: The prediction of the approximate process.
        method: The name of the method.
        size: The number of frequencies or walkers.

    Examples:
        >>> import numpy as np
        >>> from rfgp.compare import Plan, compare_table
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> few = {"methods": ("iid",), "sizes": (8,), "num_train": 30, "num_test": 10, "plan": Plan(draws=2)}
        >>> run = compare_table(X, X[:, 0] ** 2, **few)
        >>> run.example.method, run.example.exact.mean.shape
        ('iid', (10,))
    """

    process: GP
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
        protocol: The protocol, as text.
        size_name: "frequencies" or "walkers".
        baseline: The method to which ratios are relative.
        exact: The scores of the exact process, one entry per split.
        draws: The scores of draws, one entry per method, size, split and repeat.
        example: The exact process and one draw, for plots.

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

    @property
    def remark(self) -> str:
        """A sentence if the exact process itself predicts poorly, or ""."""
        explained = [entry.r_squared for entry in self.exact if entry.r_squared is not None]
        if not explained or np.mean(explained) >= POOR:
            return ""
        share = max(100 * float(np.mean(explained)), 0.0)
        return (
            f"The exact process explains {share:.1f} % of the variance of the test targets, less than "
            f"{100 * POOR:.0f} %. No approximation of a poor model is worth comparing. Choose another kernel, "
            "more training rows or other columns."
        )

    def estimate(self, figure: str, method: str, size: int) -> Estimate:
        """Return the mean of a score over all draws, with its standard error.

        The standard error is over splits, or over draws if there is one split.

        Args:
            figure: The name of the score: "kernel_error", "kl", "rmse", "nlpd" or "seconds".
            method: The method.
            size: The number of frequencies or walkers.
        """
        return Estimate.of(self._by_split(figure, method, size))

    def error_ratio(self, method: str, size: int) -> Estimate:
        """Return the RMS kernel error divided by that of the baseline.

        The root mean square is over draws, and ratios are averaged over splits. The standard error is over splits. For
        one split it is over draws, which are paired, since the seed of a draw is the same for all methods (delta
        method). A method without randomness is paired with each draw of the baseline.

        Args:
            method: The method.
            size: The number of frequencies or walkers.
        """
        ours = self._by_split("kernel_error", method, size) ** 2
        base = self._by_split("kernel_error", self.baseline, size) ** 2
        quotients = np.sqrt(ours.mean(1) / base.mean(1))
        if method == self.baseline:
            return Estimate(1.0, 0.0)
        if len(quotients) > 1:
            return Estimate.of(quotients[:, None])
        paired = Estimate.of((ours - quotients[0] ** 2 * base) / base.mean())
        return Estimate(float(quotients[0]), 0.5 * paired.error / float(quotients[0]))

    def groups(self) -> list[tuple[str, int]]:
        """Return the pairs (method, size) in the order of the draws, by size."""
        seen = dict.fromkeys((draw.method, draw.size) for draw in self.draws)
        return sorted(seen, key=lambda pair: pair[1])

    def _by_split(self, figure: str, method: str, size: int) -> NDArray[np.float64]:
        rows: dict[int, list[float]] = {}
        for draw in self.draws:
            if (draw.method, draw.size) == (method, size):
                rows.setdefault(draw.split, []).append(getattr(draw, figure))
        return np.array(list(rows.values()))
