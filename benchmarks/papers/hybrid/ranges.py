"""Ranges of trials (least and greatest): the position of a printed range in its distribution, at any level.

A range is the logarithm of the greatest over the least, and does not change where all errors have one factor. Its
distribution is that of trials which are drawn from ours, smoothed in logarithms without widening them.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from rfgp import random

Array = NDArray[np.float64]
Cells = Mapping[int, Sequence[Array]]
"""By number of features: the errors of trials on each of our data sets."""

COUNT, REPLICATES = 20_000, 4000


def smoothed(errors: Array) -> tuple[Array, float]:
    """Return centers (t,) and width of a normal mixture with the mean and variance of the logarithms."""
    logs = np.log(errors)
    width = 0.9 * logs.std(ddof=1) * len(logs) ** -0.2
    shrunk = 1 / np.sqrt(1 + (width / logs.std()) ** 2)
    return logs.mean() + shrunk * (logs - logs.mean()), float(width * shrunk)


def ranges(errors: Array, trials: int, rng: np.random.Generator) -> Array:  # (COUNT,), ascending
    """Return ranges of trials drawn from the distribution of errors (t,)."""
    centers, width = smoothed(errors)
    drawn = rng.choice(centers, (COUNT, trials)) + width * rng.standard_normal((COUNT, trials))
    return np.sort(np.ptp(drawn, axis=1))


def scores(found: Sequence[Array], values: Array) -> Array:
    """Return the normal scores of ranges under distributions given by ascending ranges of each data set, averaged."""
    below = np.mean([(np.searchsorted(law, values) + 0.5) / (len(law) + 1) for law in found], axis=0)
    return np.asarray(stats.norm.ppf(below))


def score_of_printed(found: Sequence[Array], least: float, greatest: float, unit: float) -> float:
    """Return the normal score of a printed range, averaged over the rounding to the unit."""
    off = unit * (np.arange(9) - 4) / 9
    values = np.log((greatest + off[:, None]) / (least + off)).ravel()
    return float(scores(found, values).mean())


class Joint:
    """Columns of printed ranges against ours, with their null distribution by draws from ours.

    A replicate assigns one of our data sets to each data set of the paper, the same in all of its columns. It then
    draws all ranges from their distributions. The expected spread therefore includes differences between data sets.

    Args:
        columns: Trials by (data, method).
        printed: Least and greatest (k, 2) by (data, method), in the order of the numbers of features.
        trials: The number of trials of each range.
        unit: The unit to which ranges are rounded.
    """

    def __init__(
        self,
        columns: Mapping[tuple[str, str], Cells],
        printed: Mapping[tuple[str, str], Array],
        trials: int,
        unit: float,
    ) -> None:
        rng = random.numpy_generator(0, random.Role.DATA)
        names = list(dict.fromkeys(data for data, _ in columns))
        chosen = {data: rng.integers(0, 1 << 30, REPLICATES) for data in names}
        self.observed: dict[tuple[str, str], float] = {}
        self.expected: dict[tuple[str, str], Array] = {}
        self.medians: dict[tuple[str, str], float] = {}
        for key, cells in columns.items():
            laws = [[ranges(errors, trials, rng) for errors in some] for some in cells.values()]
            pairs = zip(laws, printed[key], strict=True)
            self.observed[key] = float(np.mean([score_of_printed(law, *row, unit) for law, row in pairs]))
            null = np.zeros(REPLICATES)
            for law in laws:
                places = rng.integers(0, COUNT, REPLICATES)
                null += scores(law, np.array(law)[chosen[key[0]] % len(law), places]) / len(laws)
            self.expected[key] = null
            self.medians[key] = float(np.mean([np.median(np.concatenate(law)) for law in laws]))

    def z(self, key: tuple[str, str]) -> float:
        """Return the difference of the mean score of a column from its expectation, as a normal variable."""
        null = self.expected[key]
        return float((self.observed[key] - null.mean()) / null.std())

    def whole(self) -> tuple[float, float]:
        """Return the mean score of all columns minus its expectation, and its standard error."""
        null = np.mean(list(self.expected.values()), axis=0)
        return float(np.mean(list(self.observed.values())) - null.mean()), float(null.std())

    def share_as_uneven(self) -> float:
        """Return the fraction of replicates with at least the printed sum of squared z of columns."""
        null = np.array(list(self.expected.values()))
        squares = (((null - null.mean(1, keepdims=True)) / null.std(1, keepdims=True)) ** 2).sum(0)
        return float((squares >= sum(self.z(key) ** 2 for key in self.observed)).mean())
