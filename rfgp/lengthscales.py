"""Lengthscales by published rules, without a fit: of the nearest neighbours, and for classes by positive features."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree
from torch import Tensor

from rfgp import random
from rfgp.counts import check_counts, counted
from rfgp.couplings import Coupling, by_name
from rfgp.errors import InvalidArgumentError
from rfgp.features import Laplace
from rfgp.linalg import finite_rows, read_numbers

Array = NDArray[np.float64]

SCALES = np.geomspace(0.1, 2.0, 20)
"""Data scales that the simplex paper tries: its eight published ones are members to all digits."""


def neighbor_distance(x: Any, neighbors: int = 50, *, num_points: int = 1000, seed: int = 0) -> float:
    """Return the mean distance to the 50th nearest neighbour, the lengthscale of Yu et al. (2016, Section 5, Fig. 4).

    There it serves classification. In their data most pairs are then within two lengthscales, where orthogonal
    frequencies win most; in tables of few columns and many rows it is far shorter than that.

    Args:
        x: Inputs (n, d) in the units that they will have, n > neighbors.
        neighbors: Which neighbour counts, the point itself not among them.
        num_points: Over how many rows drawn without replacement the mean goes; their neighbours are sought among all.
        seed: Of these rows.

    Raises:
        InvalidArgumentError: too few rows, values that are not finite, or a distance of 0.
    """
    check_counts(neighbors=neighbors, num_points=num_points)
    rows = finite_rows(x, least=neighbors + 1).numpy()
    chosen = random.numpy_generator(seed, random.Role.SPLIT).permutation(len(rows))[:num_points]
    distances, _ = KDTree(rows).query(rows[chosen], k=[neighbors + 1])
    found = float(distances.mean())
    if found == 0:
        raise InvalidArgumentError(
            f"Each row has {counted(neighbors, 'copy', 'copies')} of itself or more; take more neighbors."
        )
    return found


def tuned_to_classes(
    train: Any,  # (n, d)
    train_classes: Any,  # (n,)
    valid: Any,  # (k, d)
    valid_classes: Any,  # (k,)
    *,
    scales: Any = SCALES,
    num_draws: int = 10,
    seed: int = 0,
) -> tuple[float, Array]:
    """Return the lengthscale at which independent positive features classify best (Reid et al. 2023, App. B.1).

    It is 1 / sigma for the sigma among `scales` with the most rows of `valid` classified right by `class_accuracies` of
    m = 10 d independent frequencies, on average over draws; the least of several.

    Args:
        train: Inputs, standardised.
        train_classes: Their classes, whole numbers from 0 on.
        valid: Inputs in the same units.
        valid_classes: Their classes.
        scales: Data scales sigma that are tried.
        num_draws: Draws of frequencies.
        seed: Of the draws.

    Returns:
        The lengthscale, and the mean accuracy at each scale.

    Raises:
        InvalidArgumentError: as `class_accuracies`, or scales that are not positive.
    """
    sigma = np.atleast_1d(read_numbers("scales", scales))
    if sigma.size == 0 or not bool((np.isfinite(sigma) & (sigma > 0)).all()):
        raise InvalidArgumentError("scales must be positive and finite.")
    a, b = finite_rows(train), finite_rows(valid)
    found = [
        class_accuracies("iid", a * s, train_classes, b * s, valid_classes, 10 * a.shape[1], num_draws, seed=seed)
        for s in sigma
    ]
    mean = np.array([accuracies.mean() for accuracies in found])
    return float(1 / sigma[mean.argmax()]), mean


def class_accuracies(
    coupling: str | Coupling,
    train: Any,  # (n, d)
    train_classes: Any,  # (n,)
    test: Any,  # (k, d)
    test_classes: Any,  # (k,)
    num_frequencies: int,
    num_draws: int,
    *,
    seed: int = 0,
) -> Array:  # (num_draws,)
    """Return how many rows kernel regression of the classes by positive features puts right.

    Source: Reid et al. (2023, Section 5.3). Each test row gets the class whose training rows have the largest sum of
    estimated kernel values: phi(test) (phi(train)^T classes), without an (n, k) matrix.

    Args:
        coupling: Of the frequencies.
        train: Inputs divided by the lengthscale.
        train_classes: Their classes, whole numbers from 0 on.
        test: Inputs divided by the lengthscale.
        test_classes: Their classes.
        num_frequencies: m.
        num_draws: Draws of frequencies.
        seed: Of the draws.

    Returns:
        The share of test rows that each draw puts right.

    Raises:
        InvalidArgumentError: inputs that are not finite, or classes that are no whole numbers from 0 on, one a row.
    """
    check_counts(num_frequencies=num_frequencies, num_draws=num_draws)
    a, b = finite_rows(train), finite_rows(test)
    labels, truth = _classes(train_classes, len(a)), _classes(test_classes, len(b))
    classes = torch.eye(int(labels.max()) + 1, dtype=torch.float64)[labels]
    chosen, generator = by_name(coupling), random.generator(seed, random.Role.FREQUENCIES)
    shares = []
    for _ in range(num_draws):
        phi = Laplace(chosen.sample(num_frequencies, a.shape[1], generator=generator))
        shares.append(float(((phi(b) @ (phi(a).mT @ classes)).argmax(1) == truth).double().mean()))
    return np.array(shares)


def _classes(given: Any, count: int) -> Tensor:
    """Return classes (count,), int64."""
    numbers = read_numbers("The classes", given)
    if numbers.shape != (count,) or not bool(((numbers >= 0) & (numbers == np.floor(numbers))).all()):
        raise InvalidArgumentError(f"The classes must be {count} whole numbers from 0 on, one for each row.")
    return torch.as_tensor(numbers.astype(np.int64))


def __dir__() -> list[str]:
    return sorted(
        ["SCALES", *(name for name, value in globals().items() if getattr(value, "__module__", "") == __name__)]
    )
