"""The solver of a Matern process of one column, with score, information and posterior."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from rfgp.autograd import Array, Gradients, Needs, as_array, with_gradient
from rfgp.blocks import Prior
from rfgp.rows import Block
from rfgp.solvers.bordered import BorderedPosterior
from rfgp.solvers.chain.states import Ascending, ChainRows, Scores, as_tensor, column_of
from rfgp.solvers.role import Solver, check_joint, known_terms, log_density

# --- The posterior of a Matern process of one column, from the states of rows ----------------------------------------


@dataclass(frozen=True, eq=False)
class ChainProjection:
    """The posterior at n points.

    Attributes:
        given: The process given the rows.
        points: The values of the column at the points, in ascending order.
    """

    given: ChainRows
    points: Ascending

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        """The means (n, k) and variances (n,)."""
        states, given = [of_output.states_at(self.points.values) for of_output in self.given.states], self.given
        means = np.sqrt(given.variance) * np.stack([state.mean for state in states], axis=1)
        variances = given.variance * states[0].variance
        return as_tensor(self.points.restored(means)), as_tensor(self.points.restored(variances))

    @property
    def mean(self) -> Tensor:
        """The mean (n, k) of f."""
        return self._moments[0]

    @property
    def variances(self) -> Tensor:
        """The variances (n,) of f."""
        return self._moments[1]

    @property
    def covariance(self) -> Tensor:
        """The covariance (n, n) of f."""
        covariance = self.given.variance * self.given.states[0].covariance(self.points.values)
        return as_tensor(self.points.restored(self.points.restored(covariance).T))


@dataclass(frozen=True, eq=False)
class ChainPosterior(BorderedPosterior):
    """The posterior of a Matern process of one column, stored as the rows.

    Means, variances and covariances are computed from the states of rows. Derivatives in points and products are
    computed from the sparse factor of the same rows.

    Methods have the arguments of those of `Posterior`.

    Attributes:
        given: The computed process given the rows. If None, it is computed on demand.
    """

    given: ChainRows | None = None

    @cached_property
    def _states(self) -> ChainRows:
        return self.given or ChainRows(self.prior, self.inputs, self.noise_diag.double(), self.targets)

    def project(self, inputs: Tensor) -> Any:
        """Return the posterior at n single points (n, d), with its mean and variances."""
        if torch.is_grad_enabled() and inputs.requires_grad:
            return super().project(inputs)
        return ChainProjection(self._states, Ascending.of(as_array(inputs[:, column_of(self.prior).position])))

    def covariance(self, inputs: Tensor, projected: Any) -> Tensor:
        """Return the posterior covariance (n, n) of at most 2,000 points.

        Raises:
            InvalidArgumentError: If there are more points.
            NotDifferentiableError: If the inputs require gradients.
        """
        check_joint(len(inputs), "points")
        if torch.is_grad_enabled() and inputs.requires_grad:
            return super().covariance(inputs, projected)
        covariance: Tensor = self.project(inputs).covariance
        return covariance

    def of(self, names: Sequence[str]) -> "ChainPosterior":
        """Return the posterior itself, which is the sum of its one term.

        Raises:
            InvalidArgumentError: If a term is unknown, or none is named.
        """
        known_terms(self.prior, names)
        return self

    def cross_covariance(self, inputs: Tensor, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the posterior covariance (n, n) of the only term with itself.

        Raises:
            InvalidArgumentError: If a term is unknown, none is named, or there are more than 2,000 points.
            NotDifferentiableError: If the inputs require gradients.
        """
        return self.of(first).of(second).covariance(inputs, None)


# --- Score and information of a Matern process of one column, in one pass --------------------------------------------


class ChainScore:
    """Derivatives of the log marginal likelihood.

    The 3 + k coordinates are the log lengthscale, log s^2, the log noise and the mean.

    Args:
        given: The process given the rows.
        rows: The rows.
        learned: The learned variance of one observation, without the noise of the rows.
    """

    def __init__(self, given: ChainRows, rows: Block, learned: float) -> None:
        self._given, self._rows, self._learned = given, rows, learned

    @property
    def deviance(self) -> Tensor:
        """Minus twice the log likelihood, for s^2 = 1 and without constants, 0-d."""
        return self._rows.output_weights.new_tensor(
            sum(n * (scores.log_determinant + scores.squares) for n, _, _, scores in self._outputs)
        )

    @property
    def gradient(self) -> Tensor:
        """The derivatives, without those of repeated rows, (3 + k,)."""
        score = np.zeros(3 + self._rows.num_outputs)
        for count, scales, means, scores in self._outputs:
            score += count * (0.5 * scales @ scores.in_scales - means @ scores.in_means)
        return torch.from_numpy(score)

    @cached_property
    def information(self) -> Tensor:
        """The estimate of the Fisher information, (3 + k, 3 + k)."""
        size, rows = 3 + self._rows.num_outputs, self._rows
        information = np.zeros((size, size))
        for count, scales, means, scores in self._outputs:
            information += count * (0.5 * scales @ scores.of_scales @ scales.T + means @ scores.of_means @ means.T)
        if rows.weight is not None:  # repeated rows have the noise of one observation each
            repeated = (as_array(rows.weight) - 1) * np.square(self._noise_fraction)
            information[2, 2] += 0.5 * float(rows.output_weights.sum()) * repeated.sum()
        return torch.from_numpy(information)

    @property
    def _noise_fraction(self) -> Array:
        """The fraction of each row's noise variance due to the learned noise, (1,) or (n,)."""
        fixed = self._rows.fixed_noise
        return np.ones(1) if fixed is None else self._learned / (self._learned + as_array(fixed))

    @cached_property
    def _outputs(self) -> list[tuple[float, Array, Array, Scores]]:
        """The weight of each output, and the coordinates as directions of its scores, (3 + k, q + 2) twice.

        A log lengthscale is -log kappa. As s^2 grows, all innovations grow by its root, and noise falls relative to it.
        """
        learned, k, given = self._noise_fraction, self._rows.num_outputs, self._given
        ones = np.ones(len(learned))
        fractions = learned[None] if len(ones) == 1 else np.stack([given.order.sorted(learned), ones])
        scales, means = np.zeros((3 + k, len(fractions) + 2)), np.zeros((k, 3 + k, len(fractions) + 2))
        scales[0, 1] = scales[1, -1] = -1.0
        scales[1, 0] = scales[2, 2] = 1.0
        means[:, 0, 0] = means[:, 1, -2] = -1.0
        means[:, 2, 1] = 1.0
        means[range(k), range(3, 3 + k), -1] = given.variance**-0.5
        counts = self._rows.output_weights.tolist()
        pairs = zip(counts, means, given.states, strict=True)
        return [(count, scales, directions, states.scores(fractions)) for count, directions, states in pairs]


# --- The solver of a Matern process of one column, for rows in memory ------------------------------------------------


class ChainSolver(Solver):
    """Rows under a half-integer Matern process of one column.

    The time and the memory are linear in the rows. The formulas are in `rfgp.solvers.chain.states`. Let C = s^2 K + D
    and r = y - mean. The derivative of the log likelihood in s^2 follows from that in the logarithm of a common factor
    of s^2 and D. The latter is (r^T C^-1 r - n) / 2.

    Args:
        prior: The prior of one block (`supports`), with gradients.
        rows: The data.
        mean: The prior mean, (k,), float64.
        noise: The variance of one observation, 0-d, float64.
    """

    def __init__(self, prior: Prior, rows: Block, mean: Tensor, noise: Tensor) -> None:
        super().__init__(rows, mean, noise)
        self._prior, self._mean, self._learned = prior, mean, noise
        self._given_noise = rows.noise_diag(noise).reshape(-1)  # of all rows, or of each

    @cached_property
    def _given(self) -> ChainRows:
        return ChainRows(self._prior, self._rows.inputs, self._given_noise, self._residual)

    @property
    def _process(self) -> tuple[Tensor, Tensor]:
        """The lengthscale (1,) and s^2, 0-d."""
        (block,) = self._prior.precisions
        return block.values.double(), block.variance.double()

    def with_data(self, rows: Block, mean: Tensor, noise: Tensor) -> Self:
        """Return the solver for other targets and noise of the same inputs.

        The order of the rows is reused.

        Args:
            rows: The same inputs with targets (n, k), noise and weights.
            mean: The prior mean, (k,), float64.
            noise: The variance of one observation, 0-d, float64.
        """
        return type(self)(self._prior, rows, mean, noise)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood, 0-d."""
        return with_gradient(self._value, self._residual, self._given_noise, *self._process) + self._other_terms

    def _value(self, needs: Needs) -> tuple[Tensor, Gradients]:
        given, output_weights, n = self._given, self._rows.output_weights, len(self._rows)
        squares = output_weights.new_tensor([states.squares for states in given.states])
        determinant = given.states[0].log_determinant + n * math.log(given.variance)
        return log_density(squares, determinant, output_weights, n), partial(self._gradients, needs)

    def _gradients(self, needs: Needs) -> list[Tensor | None]:
        """Return the derivatives in the residual (n, k), the noise (1,) or (n,), the lengthscale (1,) and s^2."""
        given, output_weights, n = self._given, self._rows.output_weights, len(self._rows)
        coefficients, states = as_tensor(given.coefficients), given.states
        in_noise = 0.5 * (coefficients.square() @ output_weights - output_weights.sum() * as_tensor(given.precisions))
        common = 0.5 * (output_weights @ output_weights.new_tensor([state.squares - n for state in states]))
        slope = output_weights @ output_weights.new_tensor([state.smoothed.slope for state in states])
        return [
            as_tensor(given.order.restored(-given.coefficients)) * output_weights if needs[0] else None,
            in_noise.sum().reshape(1)
            if len(self._given_noise) == 1
            else as_tensor(given.order.restored(in_noise.numpy())),
            (-slope / given.lengthscale).reshape(1),
            (common - (in_noise * as_tensor(given.noise)).sum()) / given.variance,
        ]

    # --- scores ----------------------------------------------------------------------------------

    def score(self) -> Tensor:
        """Return the log marginal likelihood, 0-d, with its gradient.

        The gradient takes one pass over the rows. It has derivatives in hyperparameters only, but not in the noise or
        the targets of single rows.
        """

        def compute(needs: Needs) -> tuple[Tensor, Gradients]:
            lengthscale, variance = (tensor.detach() for tensor in self._process)
            gradient, noise = self._score.gradient, self._learned.detach()
            gradients = gradient[:1] / lengthscale, gradient[1] / variance, gradient[2] / noise, gradient[3:]
            constants = self._rows.output_weights.sum() * len(self._rows) * (2 * math.pi * variance).log()
            return -0.5 * (self._score.deviance + constants), lambda: gradients

        value = with_gradient(compute, *self._process, self._learned, self._mean)
        return value + self._other_terms

    @property
    def coordinates(self) -> Tensor:
        """The logarithms of lengthscale, s^2 and noise, and the mean, (3 + k,)."""
        lengthscale, variance = self._process
        return torch.cat([lengthscale.log(), variance.log()[None], self._learned.log()[None], self._mean]).detach()

    @property
    def information(self) -> Tensor:
        """The estimate of the Fisher information of the coordinates, (3 + k, 3 + k)."""
        return self._score.information

    @cached_property
    def _score(self) -> ChainScore:
        return ChainScore(self._given, self._rows, float(self._learned.detach()))

    # --- rows ------------------------------------------------------------------------------------

    @property
    def solved(self) -> Tensor:
        """The coefficients C^-1 (y - mean), (n, k)."""
        return as_tensor(self._given.order.restored(self._given.coefficients))

    @property
    def precisions(self) -> Tensor:
        """The diagonal of C^-1, (n,)."""
        return as_tensor(self._given.order.restored(self._given.precisions))

    @property
    def log_determinant(self) -> Tensor:
        """The log determinant of I + K D^-1, 0-d."""
        return self._given.states[0].log_determinant - (self._noise.detach() / self._given.variance).log().sum()

    def posterior(self) -> ChainPosterior:
        """Return the posterior, which keeps the rows and their filtered states."""
        rows = self._rows.inputs, self._noise.detach(), self._residual.detach()
        return ChainPosterior(self._prior.detached(), *rows, given=self._given)
