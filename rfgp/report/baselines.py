"""Simple rules beside a model: the mean, the nearest observation, a straight line."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import dijkstra

from rfgp.fields import Field
from rfgp.tables import Table

MOST_NEAR = 10_000
"""Training rows, at random, among which the nearest is looked for."""
_CHUNK = 1000


class Baseline(NamedTuple):
    """A rule, and the root mean squared error of its predictions of what was held out."""

    name: str
    rmse: float


def baselines_of_rows(table: Table, train: NDArray[np.int64], test: NDArray[np.int64]) -> tuple[Baseline, ...]:
    """Return the rules on a table: positions (n,) to learn from, (k,) to predict; columns count by their deviations."""
    spread = table.X[train].std(axis=0)
    X = (table.X - table.X[train].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    near = train[:MOST_NEAR]
    name = "nearest row" if len(near) == len(train) else f"nearest of {len(near):,} rows"
    return _judged(table.y, test, table.y[train], (name, table.y[near][nearest(X[near], X[test])]), X, train)


def baselines_of_nodes(field: Field, train: NDArray[np.int64], test: NDArray[np.int64]) -> tuple[Baseline, ...]:
    """Return the rules on a field: observations (n,) to learn from, (k,) to predict.

    The nearest observed node is that by the way along edges of length 1 / weight.
    """
    positions, values = field.graph.index(field.nodes), field.values
    lengths = field.graph.adjacency.copy()
    lengths.data = 1 / lengths.data
    means = np.bincount(positions[train], values[train]) / np.maximum(np.bincount(positions[train]), 1)
    sources = dijkstra(
        lengths, directed=False, indices=np.unique(positions[train]), min_only=True, return_predecessors=True
    )[2][positions[test]]
    found = np.where(sources >= 0, means[np.maximum(sources, 0)], values[train].mean())  # none in its part: the mean
    places = field.coordinates[positions]
    return _judged(values, test, values[train], ("nearest observed node", found), places - places.mean(axis=0), train)


def _judged(
    y: NDArray[np.float64],
    test: NDArray[np.int64],
    known: NDArray[np.float64],
    near: tuple[str, NDArray[np.float64]],
    X: NDArray[np.float64],
    train: NDArray[np.int64],
) -> tuple[Baseline, ...]:
    line = np.linalg.lstsq(_with_one(X[train]), known, rcond=None)[0]
    rules = (("mean", np.full(len(test), known.mean())), near, ("straight line", _with_one(X[test]) @ line))
    return tuple(Baseline(name, float(np.sqrt(np.mean((y[test] - mean) ** 2)))) for name, mean in rules)


def _with_one(X: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.column_stack([np.ones(len(X)), X])


def nearest(
    rows: NDArray[np.float64],  # (n, d)
    points: NDArray[np.float64],  # (k, d)
) -> NDArray[np.int64]:  # (k,)
    """Return the row nearest to each point, the first among equals."""
    out, squares = [], (rows**2).sum(axis=1)
    for first in range(0, len(points), _CHUNK):
        out.append((squares - 2 * points[first : first + _CHUNK] @ rows.T).argmin(axis=1))
    return np.concatenate(out)
