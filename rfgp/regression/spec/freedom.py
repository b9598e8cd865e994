"""Effective degrees of freedom of the terms of a Gaussian regression."""

import torch
from torch import Tensor

from rfgp.regression.state import GPState


def degrees_of_freedom(state: GPState, points: Tensor) -> dict[str, float]:
    """Return the effective degrees of freedom of each term, from a sample of rows.

    The posterior covariance of f_t and f at the rows is K_t - K_t (K + D)^-1 K = K_t (K + D)^-1 D. The trace is
    therefore the sum of their covariances over the rows, divided by the error variances. For inducing points, K is the
    part that they explain. Their residual variance is left out, and added to D if it is noise (FITC). The sum over a
    sample may be below 0, unlike that over all rows. The result is then 0.

    Args:
        state: The state of the model.
        points: The standardized sample of rows, (n, D).

    Returns:
        The degrees of freedom by the name of the term.
    """
    process, names, prior = state.process, state.process.terms, state.prior()
    with torch.no_grad():
        residuals = {
            block.name: block.residual_variance(points, block.scaled(points).double())
            for block in prior.weights
            if block.residual is not None
        }
        of_noise = [block.name for block in prior.weights if block.residual is not None and block.residual.is_noise]
        noise = state.spec.observation_noise(state.hyperparameters).double()
        noise = noise + sum(residuals[name] for name in of_noise)
        traces = {
            name: ((process.cross_covariance(points, name, names).diagonal() - residuals.get(name, 0)) / noise).sum()
            for name in names
        }
    scale = state.num_observations / len(points)
    return {name: max(0.0, float(value) * scale) for name, value in traces.items()}
