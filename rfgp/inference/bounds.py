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

from rfgp.counts import counted
from rfgp.inference.linear import LinearModel, gather, quadratic, solve
from rfgp.inference.primal import FeatureEvidence
from rfgp.inference.priors import Residual


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
            f" ({counted(int(self.count), 'observation')})."
        )


def evidence_bounds(model: LinearModel, log_jacobian: float = 0.0) -> EvidenceBounds:
    """Return the bounds, in two passes over the rows: O(n F^2).

    Args:
        model: Whose prior has a residual, of either kind.
        log_jacobian: Of the targets' scaling, which both bounds get.
    """
    assert model.prior.residual is not None
    with torch.no_grad():
        left_over = Residual(False, model.prior.residual.kernel)
        plain = replace(model.detached(), prior=replace(model.prior.detached(), residual=None))
        bounded = replace(plain, prior=replace(plain.prior, residual=left_over))
        statistics = gather(plain)
        solved = solve(statistics, plain.variance, plain.noise)
        density = float(FeatureEvidence(plain, solved).log_marginal_likelihood())
        lower = float(FeatureEvidence(bounded, solved).log_marginal_likelihood())
        outputs = model.rows.num_outputs
        noise = plain.noise * (1 + 2 * (density - lower) / outputs)
        less = quadratic(statistics, solve(statistics, plain.variance, noise), plain.variance, noise)
        upper = density + 0.5 * float(quadratic(statistics, solved, plain.variance, plain.noise) - less)
    return EvidenceBounds(lower + log_jacobian, upper + log_jacobian, model.rows.count)
