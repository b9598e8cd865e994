"""Bounds of the exact log marginal likelihood from features of kernels.

The notation is that of `rfgp.solvers.lowrank.solver`. Let Q = Phi Phi^T, K = sum_t s_t^2 k_t, and let
t = sum_i s^2 q_i / D_i be the trace of D^-1/2 (K - Q) D^-1/2. Then Q <= K <= Q + t D in the order of positive
semidefinite matrices:

    log N(y; mean, Q + D) - k t / 2  <=  log N(y; mean, K + D)
                                     <=  log N(y; mean, Q + D) + (a(1) - a(1 + t)) / 2,
    a(c) = (y - mean)^T (Q + c D)^-1 (y - mean).

The first is Titsias' variational bound (2009, Eq. 9). The second follows from |K + D| >= |Q + D| and the order above
(Titsias 2014, "Variational inference for Gaussian and determinantal point processes", Section 2). The first bound's gap
is the Kullback-Leibler divergence from the variational posterior to the exact one, at most the distance of both bounds
(Burt, Rasmussen and van der Wilk 2019).
"""

from dataclasses import dataclass, replace

import torch

from rfgp.blocks import WeightBlock, Weights
from rfgp.rows.blocks import Sums
from rfgp.solvers.lowrank.model import LinearModel, summed
from rfgp.solvers.lowrank.solver import LowRankSolver
from rfgp.solvers.lowrank.statistics import accumulate_gram, quadratic_form, solve


@dataclass(frozen=True)
class EvidenceBounds:
    """Bounds of the log marginal likelihood of the exact process.

    They hold at the hyperparameters of a model.

    Attributes:
        lower: The lower bound in nats, including constants and units.
        upper: The upper bound in nats.
        count: The number of observations.

    Examples:
        >>> bounds = EvidenceBounds(lower=-10.0, upper=-9.5, count=20)
        >>> bounds.divergence
        0.5
    """

    lower: float
    upper: float
    count: float

    @property
    def divergence(self) -> float:
        """An upper bound of the divergence of the variational from the exact posterior.

        The variational posterior is that of VFE. The divergence is the Kullback-Leibler divergence in nats, for whole
        functions and all observations together.
        """
        return self.upper - self.lower

    def __str__(self) -> str:
        return (
            f"The exact log marginal likelihood is between {self.lower:.6g} and {self.upper:.6g}, so the variational "
            f"posterior (VFE) is at most {self.divergence:.2g} nats from the exact one"
            f" ({self.count:,.6g} observations)."
        )


def evidence_bounds(model: LinearModel, log_jacobian: float = 0.0) -> EvidenceBounds:
    """Return bounds of the exact log marginal likelihood.

    They take three passes over the rows with O(n F^2) operations.

    Args:
        model: A model whose terms have a residual of either kind, or are exact.
        log_jacobian: The log Jacobian of the scaling of targets, added to both bounds. The default is 0.
    """
    with torch.no_grad():
        blocks = tuple(_bounding(block) for block in model.weights.detached().blocks)
        model = replace(model.detached(), weights=Weights(blocks))
        statistics, scale, noise = accumulate_gram(model), model.scale, model.noise
        solution = solve(statistics, scale, noise)
        lower = float(LowRankSolver(model, solution).log_marginal_likelihood())
        trace = float(summed(model, _trace)[0])
        inflated = noise * (1 + trace)
        smaller = quadratic_form(statistics, solve(statistics, scale, inflated), scale, inflated)
        gain = 0.5 * float(quadratic_form(statistics, solution, scale, noise) - smaller)
        upper = lower + 0.5 * model.rows.num_outputs * trace + gain
    return EvidenceBounds(lower + log_jacobian, upper + log_jacobian, model.rows.count)


def _bounding(block: WeightBlock) -> WeightBlock:
    return block if block.residual is None else replace(block, residual=replace(block.residual, is_noise=False))


def _trace(model: LinearModel) -> Sums:
    """Return the trace sum_i s^2 q_i / D_i, 0-d."""
    total = torch.zeros_like(model.noise)
    for block in model.blocks():
        residual_variance = model.vfe_variances @ model.weights.unscaled_residual_variances(
            model.phi(block), block.inputs
        )
        total += (residual_variance / block.noise_diag(model.noise)).sum()
    return (total,)
