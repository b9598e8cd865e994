"""Scores of draws of features on a split: kernel errors, predictions, and divergences from the exact posterior.

All matrices have rank F, the number of features. Let D (n, F) and T (k, F) be the features of the training and test
rows, and r the noise, all in units of the variance of the signal. With A = D'D + r I and M = A + T'T, the approximate
posterior of the observed targets at the test rows has the mean T A^-1 D'y. Its covariance is r (I + T A^-1 T'), with
the inverse (I - T M^-1 T') / r.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.papers.couplings.vectors.splits import Case, kernel
from rfgp import features
from rfgp.couplings import Frequencies


@dataclass(frozen=True, eq=False)
class Exact:
    """The exact posterior of the observed targets at the test rows.

    Attributes:
        gram: (k, k), the kernel of the test rows.
        mean: (k,).
        covariance: (k, k), in units of the signal's variance.
        factor: Its Cholesky factor.
    """

    gram: Tensor
    mean: Tensor
    covariance: Tensor
    factor: Tensor

    @classmethod
    def of(cls, case: Case) -> "Exact":
        """Return the exact posterior of a split."""
        gram, cross = kernel(case.test, case.test), kernel(case.train, case.test)
        noisy = kernel(case.train, case.train) + case.fit.noise * torch.eye(len(case.train), dtype=torch.float64)
        factor = torch.linalg.cholesky(noisy)
        half = torch.linalg.solve_triangular(factor, cross, upper=False)
        target = torch.linalg.solve_triangular(factor, case.y[:, None], upper=False)
        covariance = gram - half.mT @ half + case.fit.noise * torch.eye(len(gram), dtype=torch.float64)
        return cls(gram, (half.mT @ target)[:, 0], covariance, torch.linalg.cholesky(covariance))


def evaluated(draws: list[Frequencies], kind: str, x: Tensor) -> Tensor:  # (draws, n, F)
    """Return the features of rows for each draw."""
    with torch.no_grad():
        return torch.stack([features.by_name(kind)(draw)(x) for draw in draws])


def squared_errors(phi: Tensor, gram: Tensor) -> Tensor:  # (draws, k, F), (k, k) -> (draws,)
    """Return the mean over pairs of the squared error of the kernel, at signal variance 1."""
    inner = (phi.mT @ phi).square().sum((1, 2)) - 2 * (phi * (gram @ phi)).sum((1, 2))
    return (inner + gram.square().sum()) / gram.numel()


def draw_errors(case: Case, exact: Exact, draws: list[Frequencies], kind: str) -> Tensor:  # (draws, 3)
    """Return the squared kernel error, KL(exact || draw) in nats a row, and the test RMSE of each draw."""
    train, test = (evaluated(draws, kind, x) for x in (case.train, case.test))
    noise, signal, k = case.fit.noise, case.fit.signal, len(case.test)
    a = train.mT @ train + noise * torch.eye(train.shape[2], dtype=torch.float64)
    lower = torch.linalg.cholesky(a)
    upper = torch.linalg.cholesky(a + test.mT @ test)
    mean = (test @ torch.cholesky_solve(train.mT @ case.y[:, None], lower))[..., 0]
    gap = mean - exact.mean
    logs = k * math.log(noise) + _log_det(upper) - _log_det(lower) - _log_det(exact.factor)

    through = torch.linalg.solve_triangular(upper, test.mT, upper=False)  # (draws, F, k)
    trace = (exact.covariance.trace() - (through * (through @ exact.covariance)).sum((1, 2))) / noise
    square = (gap.square().sum(1) - (through @ gap[..., None]).square().sum((1, 2))) / (noise * signal)
    divergence = (trace + square - k + logs) / (2 * k)
    error = (mean - case.truth).square().mean(1).sqrt()
    return torch.stack([squared_errors(test, exact.gram), divergence, error], 1)


def _log_det(factor: Tensor) -> Tensor:  # (..., F, F)
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
