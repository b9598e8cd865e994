"""What stands beside a model: the mean, the nearest observation, a straight line; walks beside an exact process."""

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import dijkstra

from rfgp.counts import counted
from rfgp.fields import Field
from rfgp.models.graph import GraphGP
from rfgp.tables import Table

MOST_NEAR = 10_000
"""Training rows, at random, among which the nearest is looked for."""
MOST_ROWS = 100_000
"""Training rows, at random, that the mean and the line are learned from."""
MOST_WALKED = 10_000
"""Nodes of the largest graph on which walks are worth fitting beside an exact process: seconds, not minutes."""
_CHUNK = 1000


class Rule(NamedTuple):
    """A rule, and what it predicts of what was held out."""

    name: str
    mean: NDArray[np.float64]  # (k,)


class Baseline(NamedTuple):
    """A rule or process, and the root mean squared error of its predictions of what was held out."""

    name: str
    rmse: float


def baselines_of_rows(table: Table, train: NDArray[np.int64], test: NDArray[np.int64]) -> tuple[Baseline, ...]:
    """Return the rules on a table: positions (n,) to learn from, (k,) to predict; columns count by their deviations."""
    rows, y = train[:MOST_ROWS], table.y
    center, spread = table.X[rows].mean(axis=0), table.X[rows].std(axis=0)
    known, asked = ((table.X[part] - center) / np.where(spread > 0, spread, 1.0) for part in (rows, test))
    near = nearest(known[:MOST_NEAR], asked)
    name = "nearest row" if len(train) <= MOST_NEAR else f"nearest of {MOST_NEAR:,} rows"
    return _judged(known, y[rows], asked, y[test], Rule(name, y[rows][near]))


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
    center, spread = field.coordinates.mean(axis=0), field.coordinates.std(axis=0)
    places = (field.coordinates[positions] - center) / np.where(spread > 0, spread, 1.0)
    near = Rule("nearest observed node", found)
    return _judged(places[train], values[train], places[test], values[test], near)


def walks_beside(field: Field, train: NDArray[np.int64], test: NDArray[np.int64], seed: int) -> tuple[Baseline, ...]:
    """Return walks on a field's graph, with the diffusion kernel, fitted to (n,) and judged on (k,)."""
    gp = GraphGP(field.graph, features="walks", seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a process that is not the model
        gp.fit(field.nodes[train], field.values[train], max_iterations=100)
    mean = np.asarray(gp.predict(field.nodes[test]).mean)
    name = f"{counted(gp.walk_options.num_walkers, 'walker')} a node, diffusion on the graph"
    return (Baseline(name, float(np.sqrt(np.mean((field.values[test] - mean) ** 2)))),)


def _judged(
    known: NDArray[np.float64],  # (n, d)
    values: NDArray[np.float64],  # (n,)
    asked: NDArray[np.float64],  # (k, d)
    observed: NDArray[np.float64],  # (k,)
    near: Rule,
) -> tuple[Baseline, ...]:
    ones = _with_one(known)
    line = np.linalg.lstsq(ones.T @ ones, ones.T @ values, rcond=1e-12)[0]
    rules = (Rule("mean", np.full(len(asked), values.mean())), near, Rule("straight line", _with_one(asked) @ line))
    return tuple(Baseline(name, float(np.sqrt(np.mean((observed - mean) ** 2)))) for name, mean in rules)


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
