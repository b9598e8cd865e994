"""Baselines of a report: the mean, the nearest observation, a linear model, and random walks on a graph."""

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import dijkstra

from rfgp.fields import Field
from rfgp.graph_gp import GraphGP
from rfgp.messages import counted
from rfgp.tables import Table

MAX_NEAR = 10_000
"""The maximum number of training rows, at random, among which the nearest is searched."""
MAX_ROWS = 100_000
"""The maximum number of training rows, at random, to which the mean and the linear model are fitted."""
MAX_WALKED = 10_000
"""The maximum number of nodes of a graph on which random walks are fitted for comparison, which takes seconds."""
MAX_LEVELS = 100
"""The maximum number of levels of a column whose levels are columns of zeros and ones in the nearest row and the linear
model."""
_CHUNK = 1000


class BaselinePrediction(NamedTuple):
    """A baseline with its predictions of the held-out observations.

    Examples:
        >>> BaselinePrediction("mean", np.zeros(2)).mean.tolist()
        [0.0, 0.0]
    """

    name: str
    mean: NDArray[np.float64]  # (k,)


class Baseline(NamedTuple):
    """A baseline with its root mean squared error on the held-out observations.

    Examples:
        >>> Baseline("mean", 1.5).rmse
        1.5
    """

    name: str
    rmse: float


def baselines_of_rows(
    table: Table,
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    exposure: NDArray[np.float64] | None = None,  # (count,)
) -> tuple[Baseline, ...]:
    """Return the baselines of a table.

    Distances are between standardized columns.

    Args:
        table: The table.
        train: The rows (n,) to which the baselines are fitted.
        test: The rows (k,) that they predict.
        exposure: The exposures of all rows, so that baselines are of targets per exposure. If None, ones.
    """
    factor = np.ones(len(table.y)) if exposure is None else exposure
    rows, y, X = train[:MAX_ROWS], table.y / factor, _numbers(table)
    center, spread = X[rows].mean(axis=0), X[rows].std(axis=0)
    known, queries = ((X[part] - center) / np.where(spread > 0, spread, 1.0) for part in (rows, test))
    near = nearest(known[:MAX_NEAR], queries)
    name = "nearest row" if len(train) <= MAX_NEAR else f"nearest of {MAX_NEAR:,} rows"
    return _scored(known, y[rows], queries, table.y[test], BaselinePrediction(name, y[rows][near]), factor[test])


def _numbers(table: Table) -> NDArray[np.float64]:  # (n, d)
    """Return the inputs of a table, with indicators for each column of few levels."""
    parts, column = [], 0
    for rule in table.schema.inputs:
        part = table.X[:, column : column + len(rule.encoded)]
        is_split = rule.role == "level" and len(rule.levels) <= MAX_LEVELS
        parts.append(part == np.arange(len(rule.levels)) if is_split else part)
        column += len(rule.encoded)
    return np.hstack(parts, dtype=np.float64)


def baselines_of_nodes(field: Field, train: NDArray[np.int64], test: NDArray[np.int64]) -> tuple[Baseline, ...]:
    """Return the baselines of a field.

    Distances are lengths of shortest paths along edges of length 1 / weight.

    Args:
        field: The field.
        train: The observations (n,) to which the baselines are fitted.
        test: The observations (k,) that they predict.
    """
    positions, values = field.graph.index(field.nodes), field.values
    lengths = field.graph.adjacency.copy()
    lengths.data = 1 / lengths.data
    means = np.bincount(positions[train], values[train]) / np.maximum(np.bincount(positions[train]), 1)
    sources = dijkstra(
        lengths, directed=False, indices=np.unique(positions[train]), min_only=True, return_predecessors=True
    )[2][positions[test]]
    nearest_means = np.where(
        sources >= 0, means[np.maximum(sources, 0)], values[train].mean()
    )  # none in its part: the mean
    center, spread = field.coordinates.mean(axis=0), field.coordinates.std(axis=0)
    coordinates = (field.coordinates[positions] - center) / np.where(spread > 0, spread, 1.0)
    near = BaselinePrediction("nearest observed node", nearest_means)
    return _scored(coordinates[train], values[train], coordinates[test], values[test], near)


def random_walks(field: Field, train: NDArray[np.int64], test: NDArray[np.int64], seed: int) -> tuple[Baseline, ...]:
    """Return the error of random walks on the graph of a field, with the diffusion kernel.

    Args:
        field: The field.
        train: The observations (n,) to which the model is fitted.
        test: The observations (k,) that it predicts.
        seed: The seed of the walks.
    """
    gp = GraphGP(field.graph, features="walks", seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are not about the model of the report
        gp.fit(field.nodes[train], field.values[train], max_iterations=100)
    mean = np.asarray(gp.predict(field.nodes[test]).mean)
    name = f"{counted(gp.walk_options.num_walkers, 'walker')} a node, diffusion on the graph"
    return (Baseline(name, float(np.sqrt(np.mean((field.values[test] - mean) ** 2)))),)


def _scored(
    known: NDArray[np.float64],  # (n, d)
    values: NDArray[np.float64],  # (n,)
    queries: NDArray[np.float64],  # (k, d)
    observed: NDArray[np.float64],  # (k,)
    near: BaselinePrediction,
    factor: NDArray[np.float64] | float = 1.0,  # (k,)
) -> tuple[Baseline, ...]:
    ones = _with_one(known)
    line = np.linalg.lstsq(ones.T @ ones, ones.T @ values, rcond=1e-12)[0]
    constant = BaselinePrediction("mean", np.full(len(queries), values.mean()))
    predictions = (constant, near, BaselinePrediction("linear model", _with_one(queries) @ line))
    return tuple(Baseline(name, float(np.sqrt(np.mean((observed - factor * mean) ** 2)))) for name, mean in predictions)


def _with_one(X: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.column_stack([np.ones(len(X)), X])


def nearest(
    rows: NDArray[np.float64],  # (n, d)
    points: NDArray[np.float64],  # (k, d)
) -> NDArray[np.int64]:  # (k,)
    """Return the nearest row of each point, the first among equals.

    Args:
        rows: Rows (n, d).
        points: Points (k, d).

    Examples:
        >>> nearest(np.array([[0.0], [1.0], [2.0]]), np.array([[0.9], [5.0]])).tolist()
        [1, 2]
    """
    out, squares = [], (rows**2).sum(axis=1)
    for first in range(0, len(points), _CHUNK):
        out.append((squares - 2 * points[first : first + _CHUNK] @ rows.T).argmin(axis=1))
    return np.concatenate(out)
