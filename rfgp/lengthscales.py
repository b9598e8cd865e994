"""Lengthscales by published rules without a fit: from nearest neighbors, and from classes by positive features."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree
from torch import Tensor

from rfgp import random
from rfgp.couplings import Coupling, by_name
from rfgp.errors import InvalidArgumentError
from rfgp.features import Laplace
from rfgp.linalg import finite_rows, real_array
from rfgp.messages import check_counts, counted
from rfgp.torch_context import own_names

Array = NDArray[np.float64]

SCALES = np.geomspace(0.1, 2.0, 20)
"""The data scales of the simplex paper. They contain its eight published ones to all digits."""


def neighbor_distance(x: Any, neighbors: int = 50, *, num_points: int = 1000, seed: int = 0) -> float:
    """Return the mean distance to the k-th nearest neighbor.

    Yu et al. (2016, Section 5, Fig. 4) use it as the lengthscale for classification, with k = 50. In their data most
    pairs are then within two lengthscales, where orthogonal frequencies gain most. In tables of few columns and many
    rows it is far shorter.

    Args:
        x: Inputs (n, d) in their final units, n > neighbors.
        neighbors: The rank k of the neighbor. The point itself is not counted.
        num_points: The number of rows of the mean, drawn without replacement. Neighbors are sought among all rows.
        seed: The seed of these rows.

    Raises:
        InvalidArgumentError: If there are too few rows, values are not finite, or the distance is 0.

    Examples:
        >>> from rfgp import lengthscales
        >>> lengthscales.neighbor_distance([[0.0], [1.0], [2.0]], neighbors=1)
        1.0
    """
    check_counts(neighbors=neighbors, num_points=num_points)
    rows = finite_rows(x, least=neighbors + 1).numpy()
    chosen = random.numpy_generator(seed, random.Role.SPLIT).permutation(len(rows))[:num_points]
    distances, _ = KDTree(rows).query(rows[chosen], k=[neighbors + 1])
    found = float(distances.mean())
    if found == 0:
        raise InvalidArgumentError(
            f"The mean distance must be positive, got 0: each row has {counted(neighbors, 'copy', 'copies')} of itself "
            "or more. Use more neighbors."
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
    """Return the lengthscale at which independent positive features classify best.

    As in Reid et al. (2023, App. B.1), it is 1 / sigma for the sigma among `scales` with the highest validation
    accuracy of `class_accuracies`. The accuracy is averaged over draws of m = 10 d independent frequencies. If several
    sigma have it, the first one in `scales` is used.

    Args:
        train: Standardized inputs.
        train_classes: Their classes, integers from 0 on.
        valid: Validation inputs in the same units.
        valid_classes: Their classes.
        scales: The candidates sigma.
        num_draws: The number of draws of frequencies.
        seed: The seed of the draws.

    Returns:
        The lengthscale, and the mean accuracy at each scale.

    Raises:
        InvalidArgumentError: If scales are not positive, or for the reasons of `class_accuracies`.

    Examples:
        >>> from rfgp import lengthscales
        >>> x, classes = [[-1.0], [-0.9], [0.9], [1.0]], [0, 0, 1, 1]
        >>> _, accuracy = lengthscales.tuned_to_classes(x, classes, x, classes, scales=[2.0], num_draws=2)
        >>> accuracy.tolist()
        [1.0]
    """
    sigma = np.atleast_1d(real_array("scales", scales))
    if sigma.size == 0 or not bool((np.isfinite(sigma) & (sigma > 0)).all()):
        raise InvalidArgumentError(f"scales must be positive and finite, got {scales!r}.")
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
    """Return the accuracy of kernel regression of the classes by positive features.

    Each test row gets the class whose training rows have the largest sum of estimated kernel values:
    phi(test) (phi(train)^T classes), without an (n, k) matrix.

    Source: Reid et al. (2023, Section 5.3).

    Args:
        coupling: The coupling of the frequencies.
        train: Inputs divided by the lengthscale.
        train_classes: Their classes, integers from 0 on.
        test: Test inputs divided by the lengthscale.
        test_classes: Their classes.
        num_frequencies: m.
        num_draws: The number of draws of frequencies.
        seed: The seed of the draws.

    Returns:
        The share of test rows that are classified correctly in each draw.

    Raises:
        InvalidArgumentError: If inputs are not finite, or classes are not integers from 0 on, one for each row.

    Examples:
        >>> from rfgp import lengthscales
        >>> x, classes = [[-1.0], [-0.9], [0.9], [1.0]], [0, 0, 1, 1]
        >>> lengthscales.class_accuracies("iid", x, classes, x, classes, 32, 2).tolist()
        [1.0, 1.0]
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
    numbers = real_array("The classes", given)
    if numbers.shape != (count,) or not bool(((numbers >= 0) & (numbers == np.floor(numbers))).all()):
        raise InvalidArgumentError(f"The classes must be {count} integers from 0 on, one for each row, got others.")
    return torch.as_tensor(numbers.astype(np.int64))


def __dir__() -> list[str]:
    return own_names(globals(), "SCALES")
