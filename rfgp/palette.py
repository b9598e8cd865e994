"""Colours of plots and files: what colour-blind readers can tell apart."""

import numpy as np
from numpy.typing import NDArray

COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
"""Okabe and Ito's palette."""

COLOR_MAPS = {"mean": "viridis", "sd": "cividis"}
"""Of a field's mean and standard deviation; both grow lighter with the value."""


def color_range(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the 1 % and 99 % quantiles of values (N,): a few extreme nodes would hide the others."""
    low, high = np.quantile(values, [0.01, 0.99])
    return float(low), float(high)
