"""What is known of the terms of a fitted model."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp.approximations import Approximation, Cost
from rfgp.kernels import Kernel, Sum
from rfgp.regression import Regression
from rfgp.regression.spec import ModelSpec, degrees_of_freedom, with_rows

MOST_POINTS = 500
"""The most rows at which shares and degrees of freedom of terms are computed."""


@dataclass(frozen=True)
class TermReport:
    """A term of a fitted model.

    Attributes:
        kernel: The term, with the hyperparameters as starting values.
        approximation: How it is computed.
        cost: What that costs.
        share: The variance over rows of the term's posterior mean, as a share of the sum over all terms. None without
            rows.
        degrees_of_freedom: The effective degrees of freedom tr K_t (K + D)^-1 of the term, K_t and K its prior
            covariance and that of the sum, D that of the errors. None without rows, and for likelihoods that are not
            Gaussian.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> from rfgp import kernels as k
        >>> X = {"t": np.linspace(0, 10, 40), "p": np.cos(np.arange(40.0))}
        >>> gp = rfgp.GP(k.RBF("t", name="trend") + k.Linear("p"), seed=0).fit(X, np.sin(X["t"]))
        >>> gp.terms["trend"].share > 0.9
        True
    """

    kernel: Kernel
    approximation: Approximation
    cost: Cost
    share: float | None
    degrees_of_freedom: float | None


def term_reports(regression: Regression) -> dict[str, TermReport]:
    """Return the terms of a regression by name."""
    spec = regression.family
    assert isinstance(spec, ModelSpec)
    spec = spec if regression.rows is None else with_rows(spec, regression.rows)
    assert spec.columns is not None
    values, count = regression.hyperparameters, regression.num_observations
    points, chosen = spec.columns.sample[:MOST_POINTS], spec.approximations
    data, kernel = spec.term_data(values, count), spec.fitted_kernel(values)
    names = [one.term.name for one in data]
    shares: dict[str, float | None] = dict.fromkeys(names)
    freedom: dict[str, float | None] = dict.fromkeys(names)
    if len(points):
        shares |= _shares(regression, points)
        freedom |= degrees_of_freedom(regression, points) if spec.is_normal else {}
    found = {}
    for name, one, term in zip(names, data, kernel.terms(), strict=True):
        found[name] = TermReport(Sum((term,)), chosen[name], chosen[name].cost(one), shares[name], freedom[name])
    return found


def _shares(regression: Regression, points: Tensor) -> dict[str, float]:
    """Return the variance of each term's mean over some rows (n, D), as a share of their sum."""
    process = regression.process
    with torch.no_grad():
        sizes = {name: float(process.of(name).at(points).mean().var(0).mean()) for name in process.terms}
    total = sum(sizes.values()) or 1.0
    return {name: size / total for name, size in sizes.items()}
