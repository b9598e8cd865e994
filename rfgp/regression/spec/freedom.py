"""Effective degrees of freedom of the terms of a Gaussian regression."""

import torch
from torch import Tensor

from rfgp.regression.state import GPState


def degrees_of_freedom(regression: GPState, points: Tensor) -> dict[str, float]:
    """Return the effective degrees of freedom of each term, from a sample of rows (n, D).

    The posterior covariance of f_t and f at the rows is K_t - K_t (K + D)^-1 K = K_t (K + D)^-1 D. The trace is
    therefore the sum of their covariances over the rows, divided by the error variances.

    """
    process, names = regression.process, regression.process.terms
    with torch.no_grad():
        noise = regression.spec.observation_noise(regression.hyperparameters).double()
        found = {name: process.cross_covariance(points, name, names).diagonal().sum() / noise for name in names}
    return {name: float(value) * regression.num_observations / len(points) for name, value in found.items()}
