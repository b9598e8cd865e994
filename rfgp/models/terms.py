"""Reports of the terms of a fitted model."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp import random
from rfgp.approximations import Approximation, TermCost
from rfgp.errors import InvalidArgumentError
from rfgp.kernels import Kernel, Sum
from rfgp.regression import GPState
from rfgp.regression.spec import ModelSpec, degrees_of_freedom, spec_of, with_rows
from rfgp.rows import Rows, rows_in_memory

MAX_POINTS = 500
"""The maximum number of rows at which shares and degrees of freedom of terms are computed."""


@dataclass(frozen=True)
class TermReport:
    """A term of a fitted model.

    Attributes:
        kernel: The kernel of the term, with the current hyperparameters as starting values.
        approximation: The approximation of the term.
        cost: The number of features and the memory of the approximation.
        share: The variance over rows of the term's posterior mean, divided by the sum over all terms. None without
            rows, for terms of the noise, and if the posterior is not known by terms.
        degrees_of_freedom: The effective degrees of freedom tr K_t (K + D)^-1 of the term. K_t is its prior covariance,
            K that of the sum and D that of the noise. None without rows, and if the likelihood is not Gaussian.

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
    cost: TermCost
    share: float | None
    degrees_of_freedom: float | None


def term_reports(state: GPState) -> dict[str, TermReport]:
    """Return the reports of the terms of a model by name, the noise included.

    Args:
        state: The state of the model.
    """
    spec = spec_of(state)
    shares, freedom = dict[str, float](), dict[str, float]()
    if state.rows is not None:
        spec, points = with_rows(spec, state.rows), _some_points(state.rows, spec.options.seed)
        with suppress(InvalidArgumentError):  # if the posterior is not divided into terms
            shares = _shares(state, points)
            freedom = degrees_of_freedom(state, points) if spec.is_gaussian else {}
    reports = {}
    for part in (spec, spec.noise_process):
        for name, term, chosen, cost in () if part is None else _parts(part, state):
            reports[name] = TermReport(term, chosen, cost, shares.get(name), freedom.get(name))
    return reports


def _parts(spec: ModelSpec, state: GPState) -> Iterator[tuple[str, Kernel, Approximation, TermCost]]:
    """Yield the name of each term, its kernel, approximation and cost."""
    values = state.hyperparameters
    data, kernel = spec.term_data(values, state.num_observations), spec.fitted_kernel(values)
    for data_of_term, term, prior in zip(data, kernel.terms(), spec.term_priors, strict=True):
        chosen = spec.approximations[data_of_term.term.name]
        yield data_of_term.term.name, Sum((term,)), chosen, chosen.cost_of(data_of_term, prior)


def _some_points(rows: Rows, seed: int) -> Tensor:
    """Return the inputs (n, D) of all rows, or of a random sample of them."""
    pool = rows_in_memory(rows)
    order = torch.randperm(len(pool), generator=random.generator(seed, random.Role.SAMPLE))
    return pool.take(order[:MAX_POINTS]).inputs.detach()


def _shares(state: GPState, points: Tensor) -> dict[str, float]:
    """Return the share of each term's mean in the variance over rows (n, D)."""
    process = state.process
    with torch.no_grad():
        sizes = {name: float(process.of(name).at(points).mean().var(0).mean()) for name in process.terms}
    total = sum(sizes.values()) or 1.0
    return {name: size / total for name, size in sizes.items()}
