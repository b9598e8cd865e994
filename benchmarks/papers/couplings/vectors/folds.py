"""The authors' rows and folds of Tables 1, 3 and 4 (Reid et al., 2024; `benchmarks/papers/couplings/data/README.md`).

The rows of a table are its first 512, in the order of the published file. One permutation of them is cut into 20 folds
of consecutive rows. A fold tests; the first 256 of the other rows, in the permutation's order, train. Columns and
targets are standardized on all rows outside the fold, with the population deviation.
"""

from functools import cache
from pathlib import Path

import numpy as np
import torch
from scipy.spatial import distance

from benchmarks import protocol
from benchmarks.papers.couplings.vectors.climb import climb, climb_scales
from benchmarks.papers.couplings.vectors.splits import Array, Case, Fit, Integers, most_likely
from rfgp import random

DATA = Path(__file__).parents[1] / "data"
FOLDS = 20
AUTHORS = 0
"""The number of the authors' permutation; others are random ones of ours."""
SLOW = "abalone"
"""The table on which Adam stops short of the highest likelihood in the lengthscale; elsewhere it gets there."""


@cache
def rows_of(name: str) -> tuple[Array, Array]:
    """Return the columns (n, d) and targets (n,) of the authors' rows of a table.

    Their code reads the first row of abalone and of machine as a header, so both lack it.
    """
    if name == "machine":
        X, y = protocol.load(name)
        return X[1:], y[1:]
    numbers = np.loadtxt(DATA / f"{name}.csv", delimiter=",", skiprows=1)
    return numbers[:, :-1], numbers[:, -1]


def order(size: int, permutation: int) -> Integers:
    """Return a permutation (size,) of the rows of a table."""
    if permutation == AUTHORS:
        return np.loadtxt(DATA / f"permutation-{size}.csv", dtype=np.int64)
    return random.numpy_generator(permutation, random.Role.SPLIT).permutation(size)


def parts(size: int, fold: int, permutation: int = AUTHORS) -> tuple[Integers, Integers]:
    """Return the positions of the test rows (size // 20,) of a fold, and of all other rows."""
    places, width = order(size, permutation), size // FOLDS
    first, end = fold * width, (fold + 1) * width
    return places[first:end], np.concatenate([places[:first], places[end:]])


@cache
def case(name: str, kind: str, fold: int, permutation: int = AUTHORS) -> Case:
    """Return a fold at hyperparameters that are fitted to its training rows."""
    X, y = rows_of(name)
    held, others = parts(len(X), fold, permutation)
    mean, spread, scale = X[others].mean(0), X[others].std(0), float(y[others].std())
    spread = np.where(spread > 0, spread, 1.0)
    train = others[: protocol.TRAIN]
    x, z = ((X[rows] - mean) / spread for rows in (train, held))
    target, truth = ((y[rows] - y[others].mean()) / scale for rows in (train, held))
    fit = _fitted(x, target, kind, climbs=name == SLOW and permutation == AUTHORS)
    rows_in_lengths = (torch.as_tensor(rows / fit.lengthscale) for rows in (x, z))
    return Case(*rows_in_lengths, torch.as_tensor(target), torch.as_tensor(truth), fit, scale)


def _fitted(x: Array, y: Array, kind: str, climbs: bool) -> Fit:
    """Return hyperparameters for training rows (n, d) and targets (n,).

    Positive features have the lengthscale of the authors' code, twice the mean of |x - y| over pairs of rows. (Eq. 36
    has |x + y|.) Adam climbs in signal and noise. For Fourier features it climbs in the lengthscale too if `climbs`.
    Otherwise the maximum of the likelihood is used.
    """
    if kind == "fourier":
        return climb(distance.squareform(distance.pdist(x, "sqeuclidean")), y) if climbs else most_likely(x, y)
    between = distance.squareform(distance.pdist(x))
    return climb_scales(between**2, y, 2 * float(between.mean()))
