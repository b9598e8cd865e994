"""The divergence of a model of a table from the exact one, given any number of rows."""

import math
from dataclasses import dataclass
from typing import Any

import torch

from rfgp import random
from rfgp.approximations import Exact, RandomFeatures
from rfgp.errors import InvalidArgumentError
from rfgp.gp import GP
from rfgp.messages import counted, read_seconds
from rfgp.models import GPState, mean_and_noise
from rfgp.models.report import FLOPS_PER_SECOND, MEMORY
from rfgp.rows import gathered
from rfgp.solvers.iterative.operator import MAX_POINTS, ExactMarginals, exact_marginals, step_operations

STEPS = 15
"""The steps of conjugate gradients by which seconds are predicted. There may be more."""


@dataclass(frozen=True)
class Distance:
    """The marginal divergence of a model from the exact one, given all rows.

    Attributes:
        kl: The mean over the points of KL(exact || model) of the posterior predictive distributions, in nats.
        error: The standard error of `kl` over the points.
        mean: The root mean square of the difference of means, in the unit of the target.
        points: The number of points.
        rows: The number of rows.
        steps: The number of steps of conjugate gradients.
        residual: The largest relative residual, which is about the relative error of the exact posterior.

    Examples:
        >>> from rfgp.compare import Distance
        >>> print(
        ...     Distance(kl=0.01, error=0.002, mean=0.1, points=32, rows=1000, steps=20, residual=1e-6)
        ... )  # doctest: +ELLIPSIS
        given all 1,000 rows, the KL from the exact process is 0.01 nats a point (standard error 0.002, 32...
    """

    kl: float
    error: float
    mean: float
    points: int
    rows: int
    steps: int
    residual: float

    def __str__(self) -> str:
        return (
            f"given all {self.rows:,} rows, the KL from the exact process is {self.kl:.2g} nats a point (standard "
            f"error {self.error:.1g}, {counted(self.points, 'point')}; {counted(self.steps, 'step')} of conjugate "
            f"gradients, to a relative residual of {self.residual:.1g})"
        )


def distance_from_exact(
    model: GP, X: Any, *, num_points: int = 32, budget: str | float = "2min", seed: int = 0
) -> Distance:
    """Return the divergence of a model from the exact one, given all of its rows.

    Both models have the same hyperparameters.

    The exact posterior at a sample of points is computed by conjugate gradients without a matrix
    (`rfgp.solvers.iterative.operator`). This takes O(n^2) time and O(n) memory, `exact()` O(n^3) and O(n^2).

    Args:
        model: The model, with a Gaussian likelihood, one output and its rows in memory.
        X: New inputs (n, d), from which a sample is drawn.
        num_points: The number of points in the sample.
        budget: The limit of the predicted time, such as "2min" or seconds. 10^5 rows take an hour on one core.
        seed: The seed of the sample.

    Raises:
        InvalidArgumentError: If the predicted time exceeds the budget, or the model is exact. Also if frequencies are
            learned, there are several outputs, or the likelihood is not Gaussian.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> from rfgp import kernels as k
        >>> from rfgp.compare import distance_from_exact
        >>> X = np.linspace(0, 10, 100)[:, None]
        >>> gp = rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(64), seed=0).condition(X, np.sin(X[:, 0]))
        >>> distance_from_exact(gp, X, num_points=8).rows
        100
    """
    now = model.state
    _check(model, now)
    rows = gathered(now.require_rows(purpose="a comparison"))
    inputs, _ = now.points(X)
    order = torch.randperm(len(inputs), generator=random.generator(seed, random.Role.CHECK))
    points = inputs[order[:num_points]]
    _check_cost(len(rows), rows.inputs.shape[1], len(points), budget)
    exact = model.exact().state
    prior = exact.prior()
    mean, noise = (value.detach() for value in mean_and_noise(exact.hyperparameters))
    with torch.no_grad():
        generator = random.generator(seed, random.Role.SAMPLE)
        exact_posterior = exact_marginals(prior, rows, mean, noise, points, generator=generator)
        return _distance(now, exact_posterior, points, float(noise), len(rows))


def _check_cost(rows: int, columns: int, points: int, budget: str | float) -> None:
    """Check that a comparison is predicted to fit into the budget of time and into 8 GB."""
    seconds = STEPS * step_operations(rows, columns, points) / FLOPS_PER_SECOND
    size = 8.0 * rows * 3 * min(MAX_POINTS, rows)
    if seconds > read_seconds("budget", budget) or size > MEMORY:
        raise InvalidArgumentError(
            f"The exact process at {counted(points, 'point')} given {rows:,} rows is predicted to take "
            f"{seconds:,.0f} s and {size / 1e9:.1f} GB, more than allowed. Give a larger budget, or fewer rows."
        )


def _check(model: GP, now: GPState) -> None:
    used = model.spec.approximations.values()
    is_learned = any(isinstance(entry, RandomFeatures) and entry.learn_frequencies for entry in used)
    if is_learned or all(isinstance(entry, Exact) for entry in used):
        why = "Learned frequencies are a kernel of their own" if is_learned else "The model is exact"
        raise InvalidArgumentError(f"{why}, so that there is no other exact process to compare it with.")
    if not now.spec.is_gaussian or now.scaling.targets.scale.ndim:
        raise InvalidArgumentError(
            "The distance requires a Gaussian likelihood and one output. Use rfgp.metrics.kl_divergence instead."
        )


def _distance(now: GPState, exact: ExactMarginals, points: torch.Tensor, noise: float, rows: int) -> Distance:
    """Return the divergence of predictive distributions at points (q, d)."""
    marginals = now.latent(points)
    mean = marginals.mean() + mean_and_noise(now.hyperparameters)[0]
    first, second = exact.variance + noise, marginals.variance() + noise
    ratio = first / second
    apart = 0.5 * (ratio - 1 - ratio.log() + (exact.mean - mean).square()[:, 0] / second)
    error = float(apart.std()) / math.sqrt(len(apart)) if len(apart) > 1 else math.inf
    root = float((exact.mean - mean).square().mean().sqrt() * now.scaling.targets.scale)
    return Distance(float(apart.mean()), error, root, len(points), rows, exact.steps, exact.residual)
