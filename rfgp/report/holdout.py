"""Splits of observations into a training set and a held-out set, and baselines that predict the latter."""

import warnings
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components, dijkstra

from rfgp import random
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.fields import Field
from rfgp.graph_gp import GraphGP
from rfgp.messages import check_choice, check_share, counted
from rfgp.names import HOLDOUTS
from rfgp.tables import Table

_LARGEST = 0.25
"""The share of the target of held-out rows above which a group is always trained on, if other groups have enough."""


def split(
    count: int,
    share: float,
    seed: int,
    groups: NDArray[np.int64] | None = None,  # (count,)
    holdout: str = "random",
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the positions (n,) of the training set and the positions (k,) of the held-out set.

    The target size of the held-out set is share * count, at least 2. Without groups it is met exactly.

    Observations of one group are in the same set, because the rest of a training group does not test the model. Groups
    are drawn uniformly by systematic sampling (Cochran (1977), "Sampling Techniques", chapter 8). They are sorted by
    size, with ties in random order, and every (1 / p)-th one is drawn from a random start. Each group that can be drawn
    therefore has the same probability p = target / (rows of those groups). The expected number of held-out rows is the
    target. Because the sizes are sorted, the number differs from the target by at most the size of the largest of these
    groups. Groups with more than a quarter of the target are always trained on, so that no group dominates the held-out
    set. This limit is raised until the other groups hold half of all rows and twice the target. The errors are then
    those of new groups of the sizes that can be drawn. At least two groups are held out, or one of three, even if they
    hold more rows than the target.

    Args:
        count: The number of observations.
        share: The fraction to hold out.
        seed: The seed of the split.
        groups: A number for each observation. If None, each observation is a group.
        holdout: "random", or "last" for the last observations in their order, even if it splits groups.

    Raises:
        InvalidArgumentError: If the fraction is not inside (0, 1), or the holdout is unknown.
        DataError: If there are fewer than 8 observations, or fewer than 3 groups.

    Examples:
        >>> train, test = split(100, 0.2, seed=0)
        >>> len(train), len(test)
        (80, 20)
    """
    check_choice("holdout", holdout, HOLDOUTS)
    check_share("test_share", share)
    if count < 8:
        raise DataError(f"{counted(count, 'observation')}: at least 8 are needed to hold some out.")
    generator = random.numpy_generator(seed, random.Role.SPLIT, 0)
    order = generator.permutation(count)
    held = min(max(2, round(share * count)), count - 4)
    if holdout == "last":
        return order[order < count - held], np.arange(count - held, count)
    if groups is None:
        return order[held:], order[:held]
    _, member, sizes = np.unique(groups[order], return_inverse=True, return_counts=True)
    if len(sizes) < 3:
        raise DataError(
            f"The observations are in {counted(len(sizes), 'group')} (nodes, copies or given ones); at least 3 groups "
            "are needed to hold some out."
        )
    hidden = _drawn(sizes, held, generator)[member.reshape(-1)]
    return order[~hidden], order[hidden]


def _drawn(
    sizes: NDArray[np.int64],  # (g,)
    target: int,
    generator: np.random.Generator,
) -> NDArray[np.bool_]:  # (g,)
    """Return the mask of held-out groups, by systematic sampling in order of size."""
    order = generator.permutation(len(sizes))
    order = order[np.argsort(sizes[order], kind="stable")]
    rows = np.cumsum(sizes[order])
    least = np.searchsorted(rows, min(max(rows[-1] / 2, 2 * target), rows[-1])) + 1  # groups with rows enough
    largest = max(_LARGEST * target, sizes[order][least - 1])
    order = order[sizes[order] <= largest]
    number = max(target / sizes[order].sum() * len(order), 2.0)  # of groups, expected
    number = min(number, len(order), len(sizes) - 2.0)
    steps = np.floor(number / len(order) * np.arange(len(order) + 1) + generator.random())
    out = np.zeros(len(sizes), dtype=bool)
    out[order[np.diff(steps) > 0]] = True
    return out


def group_numbers(groups: ArrayLike, count: int) -> NDArray[np.int64]:
    """Return the numbers (count,) of groups.

    Args:
        groups: The group of each row, a number or a text.
        count: The number of rows.

    Raises:
        InvalidArgumentError: If the number of groups differs from the number of rows.

    Examples:
        >>> group_numbers(["b", "a", "b"], 3).tolist()
        [1, 0, 1]
    """
    given = np.asarray(groups)
    if given.shape != (count,):
        raise InvalidArgumentError(f"groups must have one value for each of the {count:,} rows, got {given.shape}.")
    return np.unique(given, return_inverse=True)[1].reshape(-1)


def joined_groups(
    groups: NDArray[np.int64],  # (count,)
    others: NDArray[np.int64],  # (count,)
) -> NDArray[np.int64]:  # (count,)
    """Return the finest partition that is coarser than two partitions.

    Args:
        groups: The groups (count,) of the first partition.
        others: The groups (count,) of the second partition.

    Examples:
        >>> joined_groups(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2])).tolist()
        [0, 0, 0, 1]
    """
    first = np.unique(groups, return_inverse=True)[1].reshape(-1)
    second = np.unique(others, return_inverse=True)[1].reshape(-1) + first.max() + 1
    size = int(second.max()) + 1
    links = sp.coo_array((np.ones(len(first)), (first, second)), shape=(size, size))
    return np.asarray(connected_components(links, directed=False)[1][first], dtype=np.int64)


def independent_groups(
    groups: NDArray[np.int64],  # (k,)
) -> float:
    """Return the effective number of groups, (sum of sizes)^2 / sum of sizes^2.

    Suppose that observations are equal within a group and independent between groups. Their mean has the variance of
    the mean of this number of independent observations.

    Args:
        groups: The group (k,) of each observation.

    Examples:
        >>> independent_groups(np.array([0, 0, 1, 1]))
        2.0

    Source: Kish (1965), "Survey Sampling", Section 11.7.
    """
    sizes = np.unique(groups, return_counts=True)[1].astype(np.float64)
    return float(sizes.sum() ** 2 / (sizes**2).sum())


# --- Baselines -----------------------------------------------------------------------------------------------------

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
    return _scored(known, y[rows], queries, table.y[test], {name: y[rows][near]}, factor[test])


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
    near = {"nearest observed node": nearest_means}
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
    near: dict[str, NDArray[np.float64]],
    factor: NDArray[np.float64] | float = 1.0,  # (k,)
) -> tuple[Baseline, ...]:
    """Return the errors of the mean, the nearest observation and a linear model."""
    ones, of_queries = (np.column_stack([np.ones(len(part)), part]) for part in (known, queries))
    line = np.linalg.lstsq(ones.T @ ones, ones.T @ values, rcond=1e-12)[0]
    predictions = {"mean": np.full(len(queries), values.mean()), **near, "linear model": of_queries @ line}
    errors = {name: np.mean((observed - factor * mean) ** 2) for name, mean in predictions.items()}
    return tuple(Baseline(name, float(np.sqrt(error))) for name, error in errors.items())


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
