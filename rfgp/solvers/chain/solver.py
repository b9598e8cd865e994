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
from rfgp.blocks.precision import COLUMNS
from rfgp.rows import Block
from rfgp.solvers.bordered import BorderedPosterior
from rfgp.solvers.chain.states import Ascending, ChainRows, Scores, as_tensor, column_of
from rfgp.solvers.role import Functions, Inference, LatentOperator, Posterior, Shape, check_joint, known_terms

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
class ChainPosterior(Posterior):
    """The posterior of a Matern process of one column, stored as the rows.

    After loading, the states are computed again from the rows.

    Means, variances and covariances are computed from the states. Derivatives in points and products are computed on
    demand from the sparse factor of the same rows.

    Methods have the arguments of those of `Posterior`.

    Attributes:
        prior: The prior of one block.
        inputs: The inputs of the rows, (n, d).
        noise_diag: The noise D, (n,).
        targets: The centered targets y - mean, (n, k).
        given: The computed process given the rows. If None, it is computed on demand.
    """

    prior: Prior
    inputs: Tensor
    noise_diag: Tensor
    targets: Tensor
    given: ChainRows | None = None

    serialized_fields = ("inputs", "noise_diag", "targets")

    @cached_property
    def _states(self) -> ChainRows:
        if self.given is not None:
            return self.given
        return ChainRows(self.prior, self.inputs, self.noise_diag.double(), self.targets)

    @cached_property
    def _sparse(self) -> BorderedPosterior:
        return BorderedPosterior(self.prior, self.inputs, self.noise_diag, self.targets)

    @property
    def width(self) -> int:
        """The number of entries of a point.

        They are the states before and after it, and temporary arrays.
        """
        return COLUMNS

    def project(self, inputs: Tensor) -> Any:
        """Return the posterior at n single points (n, d), with its mean and variances."""
        if torch.is_grad_enabled() and inputs.requires_grad:
            return self._sparse.project(inputs)
        return self._project_single(inputs)

    def mean(self, projected: Any) -> Tensor:
        """Return the posterior mean, (n, k)."""
        mean: Tensor = projected.mean
        return mean

    def variance(self, inputs: Tensor, projected: Any) -> Tensor:
        """Return the marginal posterior variances, (n,)."""
        variance: Tensor = projected.variances
        return variance

    def covariance(self, inputs: Tensor, projected: Any) -> Tensor:
        """Return the posterior covariance (n, n) of at most 2,000 points.

        Raises:
            InvalidArgumentError: If there are more points.
            NotDifferentiableError: If the inputs require gradients.
        """
        check_joint(len(inputs), "points")
        if torch.is_grad_enabled() and inputs.requires_grad:
            return self._sparse.covariance(inputs, projected)
        return self._project_single(inputs).covariance

    def operator(self, inputs: Tensor) -> LatentOperator | None:
        """Return the posterior covariance (n, n) as products and solves, or None.

        The result is None if the covariance must be formed.
        """
        return self._sparse.operator(inputs)

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Raise an error, because the process is defined at given positions only.

        Raises:
            InvalidArgumentError: Always.
        """
        return self._sparse.sample_functions(count, generator)

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of noise_diag and targets by name."""
        return {"noise_diag": (n,), "targets": (n, k)}

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
        for names in (first, second):
            known_terms(self.prior, names)
        return self.covariance(inputs, self._project_single(inputs))

    def _project_single(self, inputs: Tensor) -> ChainProjection:
        return ChainProjection(self._states, Ascending.of(as_array(inputs[:, column_of(self.prior).position])))


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

_LOG_2PI = math.log(2 * math.pi)


class ChainSolver(Inference):
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
        self._prior, self._rows = prior, rows
        self._mean, self._learned, self._noise = mean, noise, rows.noise_diag(noise).reshape(-1)

    @cached_property
    def _residual(self) -> Tensor:
        return self._rows.targets - self._mean

    @cached_property
    def _given(self) -> ChainRows:
        return ChainRows(self._prior, self._rows.inputs, self._noise, self._residual)

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
        value = with_gradient(self._value, self._residual, self._noise, *self._process)
        return value + self._rows.replicate_log_prob(self._learned)

    def _value(self, needs: Needs) -> tuple[Tensor, Gradients]:
        given, output_weights, n = self._given, self._rows.output_weights, len(self._rows)
        constants = n * (_LOG_2PI + math.log(given.variance))
        totals = [states.log_determinant + states.squares + constants for states in given.states]
        return -0.5 * (output_weights @ output_weights.new_tensor(totals)), partial(self._gradients, needs)

    def _gradients(self, needs: Needs) -> list[Tensor | None]:
        """Return the derivatives in the residual (n, k), the noise (1,) or (n,), the lengthscale (1,) and s^2."""
        given, output_weights, n = self._given, self._rows.output_weights, len(self._rows)
        coefficients, states = as_tensor(given.coefficients), given.states
        in_noise = 0.5 * (coefficients.square() @ output_weights - output_weights.sum() * as_tensor(given.precisions))
        common = 0.5 * (output_weights @ output_weights.new_tensor([state.squares - n for state in states]))
        slope = output_weights @ output_weights.new_tensor([state.smoothed.slope for state in states])
        return [
            as_tensor(given.order.restored(-given.coefficients)) * output_weights if needs[0] else None,
            in_noise.sum().reshape(1) if len(self._noise) == 1 else as_tensor(given.order.restored(in_noise.numpy())),
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
            constants = self._rows.output_weights.sum() * len(self._rows) * (_LOG_2PI + variance.log())
            return -0.5 * (self._score.deviance + constants), lambda: gradients

        value = with_gradient(compute, *self._process, self._learned, self._mean)
        return value + self._rows.replicate_log_prob(self._learned)

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
    def coefficients(self) -> Tensor:
        """The coefficients C^-1 (y - mean), (n, k)."""
        return as_tensor(self._given.order.restored(self._given.coefficients))

    @property
    def precisions(self) -> Tensor:
        """The diagonal of C^-1, (n,)."""
        return as_tensor(self._given.order.restored(self._given.precisions))

    @property
    def fitted(self) -> Tensor:
        """The posterior mean of f at the rows, (n, k)."""
        return self._residual.detach() - self._noise.detach()[:, None] * self.coefficients

    @property
    def latent_variances(self) -> Tensor:
        """The posterior variances of f at the rows, (n,)."""
        noise = self._noise.detach()
        return (noise * (1 - noise * self.precisions)).clamp_min(0)

    @property
    def log_determinant(self) -> Tensor:
        """The log determinant of I + K D^-1, 0-d."""
        given, noise = self._given, self._noise.detach().expand(len(self._rows))
        return given.states[0].log_determinant - (noise / given.variance).log().sum()

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each row given all others."""
        variance = 1 / self.precisions
        return self._rows.targets - self.coefficients * variance[:, None], variance

    def posterior(self) -> ChainPosterior:
        """Return the posterior, which keeps the rows and their filtered states."""
        noise, inputs = self._noise.detach().expand(len(self._rows)), self._rows.inputs
        return ChainPosterior(self._prior.detached(), inputs, noise, self._residual.detach(), given=self._given)
