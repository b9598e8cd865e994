"""Bayesian linear regression on features, in blocks of rows: memory O(block x F + F^2), however many rows.

In the notation of `rfgp.inference.posterior`, with Phi = s phi and s^2 the prior variance of the weights. A first pass
over the rows gathers phi^T D^-1 phi and phi^T D^-1 y, which is all that prediction needs. A second one computes the
residuals r = y - Phi w, and with them the log density and, where asked for, its gradient: since w minimises the
quadratic form and d log|A| = tr(A^-1 dA),

    d/dphi = s D^-1 (r w^T - Phi A^-1),     d/dmean = sum_i r_i / D_i,     d/ds^2 = (w^T w - F + tr A^-1) / (2 s^2),
    d/dD_i = (r_i^2 / D_i^2 + Phi_i A^-1 Phi_i^T / D_i^2 - 1 / D_i) / 2,

the first of which is pulled back through the features of one block at a time. Features are computed twice and never
kept. The first pass is `rfgp.inference.linear`, the second `rfgp.inference.density`.

k outputs share A: y, r and w have k columns, the quadratic forms add up, and what comes of log|A| counts k times. A row
of weight w_i (see `rfgp.inference.rows`) has D_i = (noise + known_i) / w_i, and with the factor that its observations
leave beside their mean its -1/2 log(2 pi D_i) becomes -w_i/2 log(2 pi (noise + known_i)).
"""

from collections.abc import Callable

import torch
from torch import Tensor

from rfgp.inference.density import log_density
from rfgp.inference.laws import WeightPredictor
from rfgp.inference.linear import LinearModel, Solved, Statistics, block_rows, gather, solve
from rfgp.inference.posterior import Posterior
from rfgp.inference.rows import Rows
from rfgp.linalg import cholesky

ABSORBING = {"weights", "factor"}
"""Names of the tensors of a predictor that `absorb` can add rows to."""


def absorb(
    model: LinearModel,
    weights: Tensor,  # (F, k)
    factor: Tensor,  # (F, F)
) -> WeightPredictor:
    """Return the predictor for the rows of `weights` and `factor` and those of `model`, reading only the latter.

    A grows by s^2 phi^T D^-1 phi and A w by s phi^T D^-1 (y - mean).

    Args:
        model: The new rows; mean, noise, variance and parameters are those of the old ones.
        weights: (F, k), the posterior mean given the old rows.
        factor: (F, F), the Cholesky factor of their A.
    """
    new, scale = gather(model), model.variance.sqrt()
    matrix = factor @ factor.mT + (model.variance / model.noise) * new.gram
    target = factor @ (factor.mT @ weights) + (scale / model.noise) * new.target
    grown = cholesky(matrix, "The feature matrix I + Phi^T Phi / noise")
    return WeightPredictor(_scaled_features(model), torch.cholesky_solve(target, grown), grown)


def _scaled_features(model: LinearModel) -> Callable[[Tensor], Tensor]:
    def features(x: Tensor) -> Tensor:
        phi: Tensor = model.variance.sqrt() * model.features(x, *model.parameters)
        return phi

    return features


class PrimalPosterior(Posterior):
    """Bayesian linear regression on features.

    Args:
        model: The data and what they are a function of; the likelihood is differentiable in its mean, noise, variance
            and parameters.
        solved: The posterior of the weights, where it is known; None: one pass over the rows.
    """

    def __init__(self, model: LinearModel, solved: Solved | None = None) -> None:
        self.model, self._known = model, model.detached()
        if solved is None:
            with torch.no_grad():
                solved = solve(gather(self._known), self._known.variance, self._known.noise)
        self._solved = solved

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log density of y, 0-d."""
        return log_density(self.model, self._known, self._solved)

    @property
    def weights_used(self) -> float:
        """The share of the weights that the data determine, (F - tr A^-1) / F."""
        count = len(self._solved.factor)
        return 1 - float(torch.cholesky_inverse(self._solved.factor).diagonal().sum()) / count

    def leave_one_out(self, some: Rows | None = None) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each y_i given all the other rows; of `some` of them, if given.

        With C^-1 = D^-1 - D^-1 Phi A^-1 Phi^T D^-1: (C^-1)_ii = (1 - h_i) / D_i, h_i = Phi_i A^-1 Phi_i^T / D_i.
        """
        means, variances, model = [], [], self._known
        with torch.no_grad():
            for block in (model.rows if some is None else some).blocks(block_rows(model.num_features)):
                phi, spread = model.variance.sqrt() * model.phi(block).double(), block.spread(model.noise)
                root = torch.linalg.solve_triangular(self._solved.factor, phi.mT, upper=False)
                kept = 1 - root.square().sum(0) / spread
                residual = block.targets - model.mean - phi @ self._solved.weights
                means.append(block.targets - residual / kept[:, None])
                variances.append(spread / kept)
        return torch.cat(means), torch.cat(variances)

    def predictor(self) -> WeightPredictor:
        """Return the weights and the factor of their precision; with gradients where these are enabled."""
        model = self.model
        solved = self._solved
        if torch.is_grad_enabled():
            statistics = _differentiable_statistics(model)
            solved = solve(statistics, model.variance, model.noise)
        return WeightPredictor(_scaled_features(model), solved.weights, solved.factor)


def _differentiable_statistics(model: LinearModel) -> Statistics:
    """Return the statistics of one block of all rows, for autograd."""
    block = next(iter(model.rows.blocks(len(model.rows))))
    root = (model.noise / block.spread(model.noise)).sqrt().expand(len(block.targets))[:, None]
    phi, y = model.phi(block).double() * root, (block.targets - model.mean) * root
    return Statistics(phi.mT @ phi, phi.mT @ y, y.square().sum())
