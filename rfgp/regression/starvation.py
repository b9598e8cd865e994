"""Effective degrees of freedom, and comparison of the exact kernel with the random features of a fit."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from rfgp import random
from rfgp.approximations import Exact, RandomFeatures
from rfgp.errors import PoorFeaturesWarning, arguments
from rfgp.likelihoods.real import normal_log_prob
from rfgp.parameters import ParameterValues
from rfgp.regression.diagnostics import EXHAUSTED
from rfgp.regression.report import FitReport
from rfgp.regression.spec import ModelSpec
from rfgp.regression.state import GPState
from rfgp.rows import Block, gathered, is_read_in_blocks

# --- Effective degrees of freedom of the terms of a Gaussian regression ----------------------------------------------


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
    latent, prior = state.latent(points), state.prior()
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
            name: ((latent.cross_covariance([name], latent.terms).diagonal() - residuals.get(name, 0)) / noise).sum()
            for name in latent.terms
        }
    scale = state.num_observations / len(points)
    return {name: max(0.0, float(value) * scale) for name, value in traces.items()}


# --- Comparison of the exact kernel with the random features of a fit ------------------------------------------------

MAX_ROWS = 500
"""The largest number of rows whose covariance is factorized for the comparison."""
FACTORS = (0.5, 1.0, 2.0)
"""The factors of the fitted lengthscales at which the exact kernel is evaluated. Few frequencies favor longer ones."""
WARNING_MARGIN = 0.2
"""The margin of the exact kernel, in nats per row, above which a warning is issued."""
STANDARD_ERRORS = 2.0
"""The same margin in standard errors."""
_RATIOS = -12.0, 2.0, 43
"""The grid of noises: decimal logarithms of its ends relative to the largest eigenvalue, and its size."""


class LeftOut(NamedTuple):
    """Leave-one-out scores of rows at the most likely noise and variance.

    Attributes:
        likelihood: The log marginal likelihood of all rows and outputs, in nats.
        log_prob: The leave-one-out log density of each value, (n, k).
    """

    likelihood: float
    log_prob: Tensor  # (n, k)


def exact_left_out(covariance: Tensor, y: Tensor) -> LeftOut:
    """Return the likelihood and leave-one-out log densities.

    They are at the most likely noise and variance. With K = V diag(l) V^T, the diagonal of (K + r I)^-1 is
    sum_j V_ij^2 / (l_j + r). See Rasmussen and Williams (2006), Equations 5.10 to 5.12.

    Args:
        covariance: K (n, n), float64.
        y: Centered targets (n, k), float64.
    """
    eigenvalues, vectors = torch.linalg.eigh(covariance)
    projected = vectors.mT @ y
    likelihood, common, ratio = best_noise(eigenvalues, projected.square(), _RATIOS)
    spectrum = eigenvalues.clamp_min(0) + ratio
    precisions = (vectors.square() / spectrum).sum(1, keepdim=True)
    errors = vectors @ (projected / spectrum[:, None]) / precisions
    log_prob = normal_log_prob(errors, torch.zeros_like(errors), common / precisions)
    return LeftOut(float(likelihood), log_prob)


def best_noise(
    eigenvalues: Tensor,  # (n,)
    squares: Tensor,  # (n, k)
    grid: tuple[float, float, int],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the highest log likelihood over a grid of noises.

    The common factor c of noise and kernel is the best one. Let the kernel K have eigenvalues l, and the noise be r c.
    With q(r) = y^T (K + r)^-1 y, the best factor is c = q(r) / (n k). Then -2 log likelihood is n k log q(r) +
    k sum log(l + r) plus a constant.

    Args:
        eigenvalues: The eigenvalues l.
        squares: The squared coefficients of the targets in the eigenvectors.
        grid: The decimal logarithms of the ends of the grid of r, relative to the largest eigenvalue, and its size.

    Returns:
        The log likelihood, c and r, 0-d each.
    """
    n, k = squares.shape
    ratios = eigenvalues.max() * torch.logspace(*grid, dtype=eigenvalues.dtype)
    spectra = eigenvalues.clamp_min(0) + ratios[:, None]
    factors = (squares.sum(1) / spectra).sum(1) / (n * k)
    likelihoods = -0.5 * (n * k * (factors.log() + 1 + math.log(2 * math.pi)) + k * spectra.log().sum(1))
    best = likelihoods.argmax()
    return likelihoods[best], factors[best], ratios[best]


def starvation_warnings(state: GPState, report: FitReport) -> Iterator[Warning]:
    """Yield a warning if the exact kernel predicts left-out rows clearly better.

    The exact kernel uses at most 500 rows, and the features use all. The comparison is skipped if the search did not
    converge, if there are priors, or if too few features have raised another warning.

    Args:
        state: The state after a fit. Without rows in memory the comparison is skipped.
        report: The report of the fit.
    """
    spec, values, rows = state.spec, state.hyperparameters.detached(), state.rows
    used = spec.approximations.values()
    has_features = any(isinstance(approximation, RandomFeatures) for approximation in used)
    is_known = (
        all(isinstance(approximation, RandomFeatures | Exact) for approximation in used) and not spec.other_members
    )
    is_searched = (
        report.converged and report.iterations > 0 and report.frequencies != "learned" and not values.space.hyperpriors
    )
    is_named = (report.effective_dof_fraction or 0.0) > EXHAUSTED
    is_compared = has_features and is_known and spec.is_gaussian and is_searched and not is_named
    if not is_compared or report.leave_one_out is None or rows is None or is_read_in_blocks(rows):
        return
    order = torch.randperm(len(rows), generator=random.generator(spec.options.seed, random.Role.SAMPLE))
    some = gathered(rows).take(order[:MAX_ROWS])
    if not some.is_homoscedastic:
        return
    with torch.no_grad():
        best = max((_left_out(spec, moved, some) for moved in _nearby(spec, values)), key=lambda result: result[0])
    log_prob = best.log_prob + state.scaling.targets.log_jacobian(1) / some.num_outputs
    gain, error = float(log_prob.mean()) - report.leave_one_out, float(log_prob.std()) / math.sqrt(len(some))
    if gain > max(WARNING_MARGIN, STANDARD_ERRORS * error):
        yield PoorFeaturesWarning(
            f"The exact kernel predicts left-out rows better than the random features, by {gain:.2g} nats per row. "
            f"There are too few features for the function, so that part of it was fitted as noise. Raise "
            f"{arguments('num_frequencies')}, learn the frequencies, or use Exact() or Vecchia()."
        )


def _nearby(spec: ModelSpec, values: ParameterValues) -> Iterator[ParameterValues]:
    """Yield values with all lengthscales of random features multiplied by each factor."""
    paths = [f"{prefix}lengthscale" for term in spec.terms for _, _, prefix in term.parts()]
    known = [path for path in paths if path in values.space.quantities]
    for factor in FACTORS:
        yield values.shifted(**dict.fromkeys(known, math.log(factor)))


def _left_out(spec: ModelSpec, values: ParameterValues, some: Block) -> LeftOut:
    """Return leave-one-out log densities of rows under the exact kernel."""
    inputs = some.inputs.double()
    covariance = spec.with_approximations(Exact(), values, len(some)).prior(values).kernel(inputs, inputs)
    mean = values.standardized("mean").reshape(-1).double()
    return exact_left_out(covariance.double(), some.targets.double() - mean)
