"""Solutions of Gaussian regressions of one target, again and again with other noise: what a search for a mode needs."""

import numpy as np
import torch
from torch import Tensor

from rfgp.autograd import as_array
from rfgp.inference.iterated.sparse_system import SparseSystem
from rfgp.inference.laplace.search import Regress, Solve
from rfgp.inference.markov import MarkovPrior
from rfgp.inference.markov.system import MarkovSystem
from rfgp.inference.priors import SparsePrior
from rfgp.linalg import cholesky

_TOLERANCE = 1e-11
"""Of conjugate gradients: the mode is searched to it."""


def dense_solve(
    kernel: Tensor,  # (n, n)
) -> Solve:
    """Return the solution under a covariance that fits in memory."""
    kernel = kernel.detach().double()

    def solve(weight: Tensor) -> Regress:
        covariance = kernel.clone()
        covariance.diagonal().add_(1 / weight)
        factor = cholesky(covariance, "The covariance K + 1 / W of the working observations")

        def regress(residual: Tensor) -> tuple[Tensor, Tensor]:
            coefficients = torch.cholesky_solve(residual[:, None], factor)[:, 0]
            return kernel @ coefficients, coefficients

        return regress

    return solve


def markov_solve(prior: MarkovPrior, inputs: Tensor) -> Solve:
    """Return the solution under a field with a sparse precision, for inputs of n points, (n,) or (n, d)."""
    seen = prior.seeing(inputs)
    observed, values, variance = seen.observe(inputs), as_array(prior.values), float(prior.variance.detach())

    def solve(weight: Tensor) -> Regress:
        zeros = np.zeros((len(weight), 1))
        factor = MarkovSystem(seen.field, values, variance, observed, as_array(1 / weight), zeros).factor

        def regress(residual: Tensor) -> tuple[Tensor, Tensor]:
            fitted = torch.from_numpy(observed @ factor.solve(observed.T @ as_array(weight * residual)))
            return fitted, (residual - fitted) * weight

        return regress

    return solve


def sparse_solve(prior: SparsePrior, inputs: Tensor) -> Solve:
    """Return the solution through sparse features of positions (n,), by conjugate gradients."""
    phi, variance = prior.at(inputs, True).matrix(), float(prior.variance.detach())

    def solve(weight: Tensor) -> Regress:
        system = SparseSystem(phi, variance, as_array(1 / weight), prior.seed)

        def regress(residual: Tensor) -> tuple[Tensor, Tensor]:
            coefficients = system.solve(residual[:, None], _TOLERANCE)
            fitted = variance * (phi @ (phi.T @ coefficients.numpy()))
            return torch.from_numpy(np.asarray(fitted)[:, 0]), coefficients[:, 0]

        return regress

    return solve
