"""Bounds of the exact log density by features phi of a kernel k for which k - phi phi^T is positive semidefinite.

In the notation of `rfgp.inference.primal`, with Q = s^2 phi phi^T, K = s^2 k, and t = sum_i s^2 r_i / D_i the trace of
D^-1/2 (K - Q) D^-1/2, so that Q <= K <= Q + t D in the order of positive semidefinite matrices:

    log N(y; mean, Q + D) - k t / 2  <=  log N(y; mean, K + D)
                                     <=  log N(y; mean, Q + D) + (a(1) - a(1 + t)) / 2,
    a(c) = (y - mean)^T (Q + c D)^-1 (y - mean).

The first is Titsias' variational bound (2009, Eq. 9), the second follows from |K + D| >= |Q + D| and the order above
(Titsias 2014, "Variational inference for Gaussian and determinantal point processes", Section 2). Their distance is at
least the Kullback-Leibler divergence from the variational posterior, which is that of these features with what they
leave over, to the exact one: that divergence is what the first bound lacks (Burt, Rasmussen and van der Wilk 2019).
"""

from dataclasses import dataclass, replace

import torch

from rfgp.inference.linear import LinearModel, gather, quadratic, solve, summed
from rfgp.inference.primal import FeatureEvidence
from rfgp.inference.priors import Residual
from rfgp.rows.blocks import Sums


@dataclass(frozen=True)
class EvidenceBounds:
    """Between what the log marginal likelihood of the exact process lies, at the hyperparameters of a model.

    Attributes:
        lower: Nats, constants and units included.
        upper: Nats.
        count: The number of observations.
    """

    lower: float
    upper: float
    count: float

    @property
    def divergence(self) -> float:
        """The most that the Kullback-Leibler divergence can be from the posterior with diagonal="vfe" to the exact one.

        In nats, all observations together, of the whole functions.
        """
        return self.upper - self.lower

    def __str__(self) -> str:
        return (
            f"The exact log marginal likelihood is between {self.lower:.6g} and {self.upper:.6g}, so the posterior "
            f'with diagonal="vfe" is at most {self.divergence:.2g} nats from the exact one'
            f" ({self.count:,.6g} observations)."
        )


def evidence_bounds(model: LinearModel, log_jacobian: float = 0.0) -> EvidenceBounds:
    """Return the bounds, in three passes over the rows: O(n F^2).

    Args:
        model: Whose prior has a residual, of either kind.
        log_jacobian: Of the targets' scaling, which both bounds get.
    """
    assert model.prior.residual is not None
    with torch.no_grad():
        prior = replace(model.prior.detached(), residual=Residual(False, model.prior.residual.kernel))
        model = replace(model.detached(), prior=prior)
        statistics, variance, noise = gather(model), model.variance, model.noise
        solved = solve(statistics, variance, noise)
        told = FeatureEvidence(model, solved)
        lower, trace = float(told.log_marginal_likelihood()), float(summed(model, _trace)[0])
        more = noise * (1 + trace)
        less = quadratic(statistics, solve(statistics, variance, more), variance, more)
        gain = 0.5 * float(quadratic(statistics, solved, variance, noise) - less)
        upper = lower + 0.5 * model.rows.num_outputs * trace + gain
    return EvidenceBounds(lower + log_jacobian, upper + log_jacobian, model.rows.count)


def _trace(model: LinearModel) -> Sums:
    """Return sum_i s^2 r_i / D_i, 0-d."""
    total = torch.zeros_like(model.noise)
    for block in model.blocks():
        missed = model.prior.missing(model.variance.sqrt() * model.phi(block))
        total += (missed / block.noise_diag(model.noise)).sum()
    return (total,)
