"""What is known of the terms of a fitted model."""

import math
from contextlib import suppress
from dataclasses import dataclass

import torch

from rfgp.approximations import Approximation, Cost
from rfgp.errors import InvalidArgumentError
from rfgp.kernels import Kernel, Sum
from rfgp.regression import Regression
from rfgp.regression.spec import ModelSpec

MOST_POINTS = 1000
"""The most rows at which the share of variance of a term is computed."""


@dataclass(frozen=True)
class TermReport:
    """A term of a fitted model.

    Attributes:
        kernel: The term, with the hyperparameters as starting values.
        approximation: How it is computed.
        cost: What that costs.
        share: The variance over rows of the term's posterior mean, as a share of the sum over all terms. It is NaN if
            the posterior is not divided into terms.

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
    share: float


def term_reports(regression: Regression) -> dict[str, TermReport]:
    """Return the terms of a regression by name."""
    spec = regression.family
    assert isinstance(spec, ModelSpec)
    values, count = regression.hyperparameters, regression.num_observations
    costs, shares = spec.costs(values, count), _shares(regression)
    return {
        str(term.name): TermReport(
            Sum((term,)), spec.approximations[str(term.name)], costs[str(term.name)], shares[str(term.name)]
        )
        for term in spec.fitted_kernel(values).terms()
    }


def _shares(regression: Regression) -> dict[str, float]:
    """Return the variance of each term's mean over rows, as a share of their sum."""
    spec = regression.family
    assert isinstance(spec, ModelSpec)
    assert spec.columns is not None
    inputs, process = spec.columns.sample[:MOST_POINTS], regression.process
    sizes = dict.fromkeys(process.terms, math.nan)
    with torch.no_grad(), suppress(InvalidArgumentError):
        sizes |= {name: float(process.of(name).at(inputs).mean().var(0).mean()) for name in process.terms}
    total = sum(sizes.values()) or 1.0
    return {name: size / total for name, size in sizes.items()}
