"""Looks of plots and files: colours that colour-blind readers can tell apart, and ticks of logarithmic axes."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#999999")
"""Okabe and Ito's palette, but for its yellow, which is lost on white: a grey."""

_ROUNDING = 2e-5  # beside a value: ends of a scale that agree in their first five digits

COLOR_MAPS = {"mean": "viridis", "sd": "cividis"}
"""Of a field's mean and standard deviation; both grow lighter with the value."""

_STYLES = {
    **{name: i for i, name in enumerate(("iid", "orthogonal", "pairwise", "energy"))},
    **{name: i for i, name in enumerate(("iid", "antithetic", "sigma", "systematic", "stratified", "exact-hops"))},
    "chebyshev": 6,
    "spectrum": 7,
}
"""Of methods that are drawn in several places: the number of their colour, marker and dash."""


def styles(methods: Iterable[str]) -> dict[str, int]:
    """Return the number of each method's colour: the same in every picture where it has one, else one that is free."""
    names = list(dict.fromkeys(methods))
    found = {name: _STYLES[name] for name in names if name in _STYLES}
    free = [i for i in range(len(COLORS)) if i not in found.values()]
    for i, name in enumerate(name for name in names if name not in found):
        found[name] = free[i % len(free)] if free else i % len(COLORS)
    return {name: found[name] for name in names}


def color_range(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 1 % and 99 % quantiles of values (N,): a few extreme nodes would hide the others.

    What is as good as constant lies in the middle of a tenth of it, so that what rounding left shows no pattern; the
    scale of values that are nowhere negative, as standard deviations, does not begin below 0.
    """
    low, high = (float(end) for end in np.quantile(values, [0.01, 0.99]))
    largest = max(abs(low), abs(high))
    if high - low <= _ROUNDING * largest:
        half = 0.05 * largest or 0.5
        low, high = low - half if low >= half or np.min(values) < 0 else 0.0, high + half
    return low, high


def log_ticks(values: Sequence[float]) -> tuple[list[float], tuple[float, float]]:
    """Return ticks for a logarithmic axis, and the ends of the axis with room around positive values.

    The ticks are powers of ten, with 2 and 5 times these where they span few, and fewer of them where they span many.
    """
    low, high = math.log10(min(values)) - 0.35, math.log10(max(values)) + 0.35
    steps = (1, 2, 5) if high - low < 3 else (1,)
    powers = range(math.floor(low), math.ceil(high) + 1, max(1, round((high - low) / 8)))
    ticks = [float(f"{step}e{power}") for power in powers for step in steps]
    return [tick for tick in ticks if low <= math.log10(tick) <= high], (10**low, 10**high)
