"""How far a process on a table is from the exact one, given any number of rows."""

import math
from dataclasses import dataclass
from typing import Any

import torch

from rfgp import random
from rfgp.approximations import Exact, RandomFeatures
from rfgp.counts import counted, read_seconds
from rfgp.errors import InvalidArgumentError
from rfgp.models.gp import GP
from rfgp.regression import Regression, mean_and_noise
from rfgp.regression.selection_report import MEMORY, RATE
from rfgp.rows import gathered
from rfgp.solvers.sampled import MOST_POINTS, ExactMarginals, exact_marginals, step_operations

STEPS = 15
"""Of conjugate gradients, as predicted; there may be more."""


@dataclass(frozen=True)
class Distance:
    """The divergence of a process from the exact one, at some points, each by itself, given all rows.

    Attributes:
        kl: KL(exact || process) of the law of an observation, nats, on average over the points.
        error: Its standard error over the points.
        mean: The root mean square of the difference of means, in the target's units.
        points: How many.
        rows: How many the exact process was given.
        steps: Of conjugate gradients.
        residual: The largest relative residual; the exact law is known to about as many digits.
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
            f"given all {self.rows:,} rows the exact process is {self.kl:.2g} nats of KL a point away (standard error "
            f"{self.error:.1g}, {counted(self.points, 'point')}; {counted(self.steps, 'step')} of conjugate "
            "gradients, to a relative "
            f"residual of {self.residual:.1g})"
        )


def distance_from_exact(
    model: GP, X: Any, *, num_points: int = 32, budget: str | float = "2min", seed: int = 0
) -> Distance:
    """Return how far a process is from the exact one with the same hyperparameters, given all of its rows.

    The exact posterior at a sample of points comes from conjugate gradients without a matrix
    (`rfgp.solvers.sampled`): O(n^2) time and O(n) memory, where `exact()` takes O(n^3) and O(n^2).

    Args:
        model: The process, of a normal likelihood and one output, with its rows in memory.
        X: New inputs (n, d), of which a sample is taken.
        num_points: How many.
        budget: What it may take, as predicted: 10^5 rows take an hour on one core.
        seed: Of the sample.

    Raises:
        InvalidArgumentError: it would take longer, with how long; learned frequencies, several outputs, or another
            likelihood; or the process is exact.
    """
    now = model.regression
    _check(model, now)
    rows = gathered(now.needed_rows("a comparison"))
    inputs, _ = now.points(X)
    order = torch.randperm(len(inputs), generator=random.generator(seed, random.Role.CHECK))
    points = inputs[order[:num_points]]
    check_distance(len(rows), rows.inputs.shape[1], len(points), budget)
    exact = model.exact().regression
    prior = exact.prior()
    mean, noise = (value.detach() for value in mean_and_noise(exact.hyperparameters))
    with torch.no_grad():
        generator = random.generator(seed, random.Role.SAMPLE)
        law = exact_marginals(prior, rows, mean, noise, points, generator=generator)
        return _distance(now, law, points, float(noise), len(rows))


def check_distance(rows: int, columns: int, points: int, budget: str | float) -> float:
    """Return the seconds that a comparison is predicted to take.

    Raises:
        InvalidArgumentError: they are more than the budget, or its memory more than 8 GB.
    """
    seconds = STEPS * step_operations(rows, columns, points) / RATE
    size = 8.0 * rows * 3 * min(MOST_POINTS, rows)
    if seconds > read_seconds("budget", budget) or size > MEMORY:
        raise InvalidArgumentError(
            f"The exact process at {counted(points, 'point')} given {rows:,} rows is predicted to take "
            f"{seconds:,.0f} s and "
            f"{size / 1e9:.1f} GB: more than allowed. Give a larger budget, or fewer rows."
        )
    return seconds


def _check(model: GP, now: Regression) -> None:
    used = model.family.approximations.values()
    is_learned = any(isinstance(one, RandomFeatures) and one.learn_frequencies for one in used)
    if is_learned or all(isinstance(one, Exact) for one in used):
        why = "Learned frequencies are a kernel of their own" if is_learned else "The process is exact"
        raise InvalidArgumentError(f"{why}: there is nothing to compare it with.")
    if not now.family.is_normal or now.scaling.targets.scale.ndim:
        raise InvalidArgumentError("The distance is known under a normal likelihood, of one output.")


def _distance(now: Regression, exact: ExactMarginals, points: torch.Tensor, noise: float, rows: int) -> Distance:
    """Return what laws at points (q, d) are apart."""
    own = now.process.at(points)
    mean = own.mean() + mean_and_noise(now.hyperparameters)[0]
    first, second = exact.variance + noise, own.variance() + noise
    ratio = first / second
    apart = 0.5 * (ratio - 1 - ratio.log() + (exact.mean - mean).square()[:, 0] / second)
    error = float(apart.std()) / math.sqrt(len(apart)) if len(apart) > 1 else math.inf
    root = float((exact.mean - mean).square().mean().sqrt() * now.scaling.targets.scale)
    return Distance(float(apart.mean()), error, root, len(points), rows, exact.steps, exact.residual)
