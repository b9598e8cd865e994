"""What rows say under a field with a sparse precision."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rfgp.autograd import as_array
from rfgp.inference.dense import repetitions
from rfgp.inference.evidence import Evidence
from rfgp.inference.markov.posterior import MarkovPosterior
from rfgp.inference.markov.prior import MarkovPrior
from rfgp.inference.markov.system import MarkovSystem
from rfgp.rows import Block


class MarkovEvidence(Evidence):
    """What rows say under a field, exactly.

    Args:
        prior: With gradients in its parameters and its variance.
        rows: The data.
        mean: (k,).
        noise: Learned variance of one observation, 0-d.
    """

    def __init__(self, prior: MarkovPrior, rows: Block, mean: Tensor, noise: Tensor) -> None:
        self._prior, self._rows = prior, rows
        self._noise, self._residual = rows.noise_diag(noise.double()).expand(len(rows)), rows.targets - mean
        self._repeated = 0.0 if rows.weight is None else repetitions(rows, noise.double())
        numbers = (as_array(tensor) for tensor in (self._noise, self._residual, rows.each))
        seen, variance = prior.seeing(rows.inputs), float(prior.variance.detach())
        observed = seen.observe(rows.inputs)
        self._system = MarkovSystem(seen.field, as_array(prior.values), variance, observed, *numbers)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log density of y, 0-d."""
        density: Tensor = _Density.apply(
            self._prior.values.double(), self._prior.variance.double(), self._noise, self._residual, self._system
        )
        return density + self._repeated

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,), noise included, of each row given all the others.

        Row i has the precision (C^-1)_ii = (D_i - v_i) / D_i^2, v_i the variance of the function there given y.
        """
        noise, explained = self._noise.detach(), torch.from_numpy(self._system.explained)
        variance = noise.square() / (noise - explained)
        return self._rows.targets - torch.from_numpy(self._system.left) * (variance / noise)[:, None], variance

    def posterior(self) -> MarkovPosterior:
        """Return the rows, with what was computed of them."""
        return MarkovPosterior(
            self._prior.detached(), self._rows.inputs, self._noise.detach(), self._residual.detach(), self._system
        )


class _Density(torch.autograd.Function):
    """The log density as a function of parameters (p,), s^2, D (n,) and r (n, k), with its gradient in closed form."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, variance: Tensor, noise: Tensor, residual: Tensor, system: MarkovSystem
    ) -> Tensor:
        ctx.system = system
        return torch.tensor(system.log_density(), dtype=torch.float64)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        slopes = (torch.as_tensor(slope, dtype=torch.float64) for slope in ctx.system.gradient())
        return *(grads[0] * slope for slope in slopes), None
