"""The law of a function at its rows under normal factors, again and again with others: what a search for them needs."""

import torch
from torch import Tensor

from rfgp.autograd import as_array
from rfgp.inference.linear import LinearModel, add_symmetric_product, symmetrized
from rfgp.inference.markov import MarkovPrior
from rfgp.inference.markov.system import MarkovSystem
from rfgp.inference.priors import FeaturePrior
from rfgp.inference.variational.sites import Smooth, Smoothed
from rfgp.linalg import cholesky
from rfgp.rows import Block

_MATRIX = "The covariance I + lambda^1/2 K lambda^1/2 of the factors"


def dense_smooth(
    kernel: Tensor,  # (n, n)
) -> Smooth:
    """Return the law under a covariance that fits in memory."""

    def smooth(precision: Tensor, pull: Tensor) -> Smoothed:
        root = precision.sqrt()
        covariance = root[:, None] * kernel * root
        covariance.diagonal().add_(1)
        factor = cholesky(covariance, _MATRIX)
        half = torch.linalg.solve_triangular(factor, root[:, None] * kernel, upper=False)
        mean = kernel @ pull - half.mT @ (half @ pull)
        return Smoothed(mean, kernel.diagonal() - half.square().sum(0), factor.diagonal().log().sum())

    return smooth


def feature_smooth(prior: FeaturePrior, rows: Block) -> Smooth:
    """Return the law through features Phi (n, F): that of the weights has the precision I + Phi^T lambda Phi."""
    none = torch.zeros((), dtype=torch.float64)
    model = LinearModel(prior.detached(), rows, none[None], none + 1)
    scale = model.variance.sqrt()
    features = torch.cat([scale * model.phi(block).double() for block in model.blocks()])

    def smooth(precision: Tensor, pull: Tensor) -> Smoothed:
        total = pull.new_zeros(model.num_features, model.num_features)
        add_symmetric_product(total, precision.sqrt()[:, None] * features)
        matrix = symmetrized(total)
        matrix.diagonal().add_(1)
        factor = cholesky(matrix, "The feature matrix I + Phi^T lambda Phi")
        mean = features @ torch.cholesky_solve((features.mT @ pull)[:, None], factor)[:, 0]
        half = torch.linalg.solve_triangular(factor, features.mT, upper=False)
        return Smoothed(mean, half.square().sum(0), factor.diagonal().log().sum())

    return smooth


def markov_smooth(prior: MarkovPrior, inputs: Tensor) -> Smooth:
    """Return the law of a field with a sparse precision, for inputs of n points, (n,) or (n, d)."""
    seen = prior.seeing(inputs)
    observed, values, variance = seen.observe(inputs), as_array(prior.values), float(prior.variance.detach())

    def smooth(precision: Tensor, pull: Tensor) -> Smoothed:
        noise, residual = as_array(1 / precision), as_array(pull / precision)[:, None]
        system = MarkovSystem(seen.field, values, variance, observed, noise, residual)
        mean = torch.from_numpy(residual[:, 0] - system.left[:, 0])
        return Smoothed(mean, torch.from_numpy(system.explained), 0.5 * precision.new_tensor(system.log_determinant))

    return smooth
