"""Results of a comparison: its plan, the scores of all draws, their means and standard errors, and tables of them."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from rfgp import random
from rfgp.errors import DataError, requires_extra
from rfgp.gp import GP
from rfgp.inference.prediction import Prediction
from rfgp.messages import check_counts, counted

if TYPE_CHECKING:
    from rich.table import Table

_COLUMNS = {"kernel_error": "kernel err", "kl": "KL, nats", "rmse": "test RMSE", "nlpd": "NLPD"}
"""The scores that tables show, with their headers."""


@dataclass(frozen=True)
class Plan:
    """The numbers of splits and draws of a comparison, and its seed.

    Attributes:
        splits: The number of random splits into a training set and a test set.
        draws: The number of draws per method, size and split.
        seed: The seed of all splits and draws.

    Examples:
        >>> Plan(splits=2, draws=5).extent
        '2 splits x 5 draws'
    """

    splits: int = 1
    draws: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        check_counts(splits=self.splits, draws=self.draws)
        random.resolve_seed(self.seed)

    @property
    def extent(self) -> str:
        """The numbers of splits and draws, as text."""
        return f"{counted(self.splits, 'split')} x {counted(self.draws, 'draw')}"

    def order(self, split: int, count: int) -> NDArray[np.int64]:
        """Return the random order of `count` items in one split, (count,).

        Args:
            split: The number of the split.
            count: The number of items.
        """
        return random.numpy_generator(self.seed, random.Role.SPLIT, split).permutation(count)

    def draw_seed(self, split: int, repeat: int) -> int:
        """Return the seed of one draw, which is the same for all methods.

        Args:
            split: The number of the split.
            repeat: The number of the draw.
        """
        return random.child_seed(self.seed, random.Role.FREQUENCIES, split, repeat)

    def parts(
        self,
        split: int,
        groups: NDArray[np.int64],  # (n,)
        num_train: int,
        num_test: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return training and test observations that do not share a group.

        A group is, for example, a node, or rows that are equal. Groups are in a uniformly random order. In a random
        order of observations large groups would tend to be first. The group at the border between the two sets is in
        the training set.

        Args:
            split: The number of the split.
            groups: The group (n,) of each observation.
            num_train: The number of training observations.
            num_test: The largest number of test observations.

        Returns:
            The indices of the training observations and of the test observations.

        Raises:
            DataError: If no group is left for the test set.
        """
        distinct, member = np.unique(groups, return_inverse=True)
        order = self.order(split, len(groups))
        if len(distinct) < len(groups):
            order = np.argsort(self.order(split, len(distinct))[member.reshape(-1)], kind="stable")
        train, test = order[:num_train], order[num_train : num_train + num_test]
        test = test[~np.isin(groups[test], groups[train])]
        if len(test) == 0:
            raise DataError(
                "All test observations are at nodes, or repeat rows, of the training part. Use a smaller num_train."
            )
        return train, test


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

    def curves(self, figure: str) -> Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Return the means (s,) of a score at all s sizes and 2 standard errors (s,), by method.

        Args:
            figure: The name of the score, as for `estimate`.
        """
        sizes, curves = self.sizes, {}
        for method in dict.fromkeys(draw.method for draw in self.draws):
            estimates = np.array([self.estimate(figure, method, size) for size in sizes])
            curves[method] = (estimates[:, 0], 2 * np.nan_to_num(estimates[:, 1]))
        return curves

    @property
    def sizes(self) -> list[int]:
        """The sizes in ascending order."""
        return sorted({draw.size for draw in self.draws})

    def cells(self) -> list[list[str]]:
        """Return the rows of a table: the exact process, and each method at each size.

        The columns are the method, the size, the kernel error, the KL, the RMSE, the NLPD, the seconds, and the ratio
        of kernel errors. Standard errors of the last digits are in brackets.
        """
        rmse, nlpd, seconds = (
            Estimate.of(np.array([[getattr(entry, name) for entry in self.exact]]))
            for name in ("rmse", "nlpd", "seconds")
        )
        rows = [["exact", "", "0", "0", format_estimate(rmse), format_estimate(nlpd), f"{seconds.mean:.2f}", ""]]
        for method, size in self.groups():
            scores = [format_estimate(self.estimate(figure, method, size)) for figure in _COLUMNS]
            spent = f"{self.estimate('seconds', method, size).mean:.2f}"
            rows.append([method, str(size), *scores, spent, format_estimate(self.error_ratio(method, size))])
        return rows

    def _by_split(self, figure: str, method: str, size: int) -> NDArray[np.float64]:
        rows: dict[int, list[float]] = {}
        for draw in self.draws:
            if (draw.method, draw.size) == (method, size):
                rows.setdefault(draw.split, []).append(getattr(draw, figure))
        return np.array(list(rows.values()))


def to_table(comparison: Comparison) -> "Table":
    """Return a table of means, with standard errors of the last digits in brackets.

    Args:
        comparison: The comparison.

    Examples:
        >>> import numpy as np
        >>> from rfgp.compare import Plan, compare_table, to_table
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> few = {"methods": ("iid",), "sizes": (8,), "num_train": 30, "num_test": 10, "plan": Plan(draws=2)}
        >>> run = compare_table(X, X[:, 0] ** 2, **few)
        >>> [column.header for column in to_table(run).columns][:3]
        ['coupling', 'm', 'kernel err']
    """
    with requires_extra("cli"):
        from rich import box
        from rich.table import Table
        from rich.text import Text

    caption = f"{comparison.protocol}. 1.23(4) means 1.23 with standard error 0.04."
    table = Table(
        title=Text(comparison.title, style="bold"),
        caption=Text(caption, style="dim"),
        caption_justify="left",
        title_style="bold",
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    header = ("coupling", "m", *_COLUMNS.values(), "s", f"err/{comparison.baseline}")
    for i, name in enumerate(header):
        table.add_column(name, justify="right" if i else "left", no_wrap=True)
    rows = comparison.cells()
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        table.add_row(*row, end_section=following is None or following[1] != row[1])
    return table


def format_estimate(estimate: Estimate) -> str:
    """Return a mean with one digit of its standard error in brackets, such as 1.23(4).

    Args:
        estimate: The mean and its standard error.

    Examples:
        >>> from rfgp.compare import Estimate
        >>> format_estimate(Estimate(1.2345, 0.0432))
        '1.23(4)'
    """
    if not estimate.error > 0 or not math.isfinite(estimate.error):
        return f"{estimate.mean:.3g}"
    if abs(estimate.mean) >= 1e5:
        return f"{estimate.mean:.1e}({estimate.error:.0e})"
    digits = -math.floor(math.log10(float(f"{estimate.error:.0e}")))
    shown = max(0, digits)
    return f"{estimate.mean:.{shown}f}({estimate.error * 10**shown:.0f})"


def to_json(comparison: Comparison) -> str:
    """Return all draws as JSON.

    Args:
        comparison: The comparison.

    Examples:
        >>> import json
        >>> import numpy as np
        >>> from rfgp.compare import Plan, compare_table, to_json
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> few = {"methods": ("iid",), "sizes": (8,), "num_train": 30, "num_test": 10, "plan": Plan(draws=2)}
        >>> run = compare_table(X, X[:, 0] ** 2, **few)
        >>> list(json.loads(to_json(run)))
        ['title', 'protocol', 'baseline', 'exact', 'draws']
    """
    content = {
        "title": comparison.title,
        "protocol": comparison.protocol,
        "baseline": comparison.baseline,
        "exact": [asdict(entry) for entry in comparison.exact],
        "draws": [asdict(entry) for entry in comparison.draws],
    }
    return json.dumps(content, indent=1, allow_nan=False)
