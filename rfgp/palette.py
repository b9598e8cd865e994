"""Numbers and styles of plots in any library: colors for color-blind readers, color scales, ticks and bands."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#999999")
"""The palette of Okabe and Ito, with gray instead of its yellow, which is hard to see on white."""

_ROUNDING = 2e-5  # relative difference below which the ends of a scale count as equal

COLOR_MAPS = {"mean": "viridis", "sd": "cividis"}
"""Color maps of a field's mean and standard deviation. Larger values are lighter."""

_STYLES = {
    **{name: i for i, name in enumerate(("iid", "orthogonal", "pairwise", "energy"))},
    **{name: i for i, name in enumerate(("iid", "antithetic", "sigma", "systematic", "stratified", "exact-hops"))},
    "chebyshev": 6,
    "spectrum": 7,
}
"""The number of the color, marker and dash of each method that several plots draw."""


def styles(methods: Iterable[str]) -> dict[str, int]:
    """Return the number of each method's color.

    Methods that several plots share have the same number in all plots.

    Args:
        methods: The names of the methods. Repetitions have no effect.

    Examples:
        >>> styles(["energy", "mine"])
        {'energy': 3, 'mine': 0}
    """
    names = list(dict.fromkeys(methods))
    found = {name: _STYLES[name] for name in names if name in _STYLES}
    free = [i for i in range(len(COLORS)) if i not in found.values()]
    for i, name in enumerate(name for name in names if name not in found):
        found[name] = free[i % len(free)] if free else i % len(COLORS)
    return {name: found[name] for name in names}


def color_range(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 1 % and 99 % quantiles of values.

    A few extreme nodes then do not hide the others. Values that are constant up to rounding lie in the middle of a
    scale of a tenth of their size. Rounding errors therefore show no pattern. The scale of nonnegative values, such as
    standard deviations, does not begin below 0.

    Args:
        values: The values, (N,).

    Examples:
        >>> import numpy as np
        >>> color_range(np.full(3, 2.0))
        (1.9, 2.1)
    """
    low, high = (float(end) for end in np.quantile(values, [0.01, 0.99]))
    largest = max(abs(low), abs(high))
    if high - low <= _ROUNDING * largest:
        half = 0.05 * largest or 0.5
        low, high = low - half if low >= half or np.min(values) < 0 else 0.0, high + half
    return low, high


def log_ticks(values: Sequence[float]) -> tuple[list[float], tuple[float, float]]:
    """Return ticks for a logarithmic axis, and the ends of the axis.

    The ends leave room around positive values. Ticks are powers of ten, with 2 and 5 times these if the axis is short.
    Long axes have fewer ticks.

    Args:
        values: The values, positive.

    Returns:
        The ticks, and the lower and upper ends of the axis.

    Examples:
        >>> log_ticks([1.0, 100.0])[0]
        [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0]
    """
    low, high = math.log10(min(values)) - 0.35, math.log10(max(values)) + 0.35
    steps = (1, 2, 5) if high - low < 3 else (1,)
    powers = range(math.floor(low), math.ceil(high) + 1, max(1, round((high - low) / 8)))
    ticks = [float(f"{step}e{power}") for power in powers for step in steps]
    return [tick for tick in ticks if low <= math.log10(tick) <= high], (10**low, 10**high)


def coverage_band(levels: NDArray[np.float64], count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the band (L,) of the share of observations inside calibrated intervals, with 95 % probability.

    Args:
        levels: The levels (L,) of the intervals.
        count: The number of independent observations.

    Examples:
        >>> [float(end[0]) for end in coverage_band(np.array([0.5]), 100)]
        [0.4, 0.6]
    """
    from scipy import stats

    low, high = stats.binom.ppf([[0.025], [0.975]], count, levels) / count
    return low, high
