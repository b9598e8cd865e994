"""The solver of a Matern process of one column, for rows in memory."""

import math
from functools import cached_property, partial
from typing import Self

import torch
from torch import Tensor

from rfgp.autograd import Gradients, Needs, with_gradient
from rfgp.blocks import Prior
from rfgp.rows import Block
from rfgp.solvers.chain.posterior import ChainPosterior
from rfgp.solvers.chain.rows import ChainRows, as_tensor
from rfgp.solvers.chain.score import ChainScore
from rfgp.solvers.role import Inference

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
