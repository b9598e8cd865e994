"""Splits of observations into a training set and a held-out set."""

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components

from rfgp import random
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.messages import counted

HOLDOUTS = ("random", "last")
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
    if holdout not in HOLDOUTS:
        raise InvalidArgumentError(f"holdout must be one of {', '.join(HOLDOUTS)}, got {holdout!r}.")
    if not 0 < share < 1:
        raise InvalidArgumentError(f"test_share must lie strictly between 0 and 1, got {share}.")
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
