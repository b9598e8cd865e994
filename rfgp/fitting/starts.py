"""Starts of a fit of terms: the likelihood of a kernel has several maxima, and a search finds the nearest."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from rfgp.columns import Kind
from rfgp.errors import NotPositiveDefiniteError, SolverError
from rfgp.fitting.maximize import Objective, Plan
from rfgp.parameters import Values
from rfgp.regression import Regression
from rfgp.regression.spec import ModelSpec
from rfgp.rows import Block
from rfgp.solvers.choice import uses_cg

SCREENED_ROWS = 500
"""The number of rows by whose likelihood starting lengthscales of several terms are compared."""
FACTORS = (1.0, 0.3, 0.1)
"""The factors of starting lengthscales that are compared. A search from a long one can end with noise alone."""
COMPARED_ROWS = 1000
"""The number of rows on which the starts of a field are compared."""
FIELD_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""The factors of the parameters of a field on nodes, roads or a mesh that are compared."""
NOISES, NOISES_BY_CG = (0.1, 0.01, 1e-4), (0.1, 0.01)
"""Noise variances that are compared, in variances of the targets. Conjugate gradients are slow for little noise."""


def starts_of(regression: Regression, plan: Plan, rows: Block, order: Tensor) -> list[Values]:
    """Return starting values, the likeliest first, at least one.

    Args:
        regression: The regression at its starting values.
        plan: The options of the fit.
        rows: The rows.
        order: A random order of them, (n,).
    """
    spec = spec_of(regression)
    names = [name for name in open_scales(spec) if name in regression.hyperparameters.space.free(plan.fixed)]
    if not names:
        return [regression.hyperparameters]
    if is_one_field(spec):
        return _ranked(regression, plan, names, first_rows(rows, order, COMPARED_ROWS))
    return [_screened(regression, names, first_rows(rows, order, SCREENED_ROWS))]


def spec_of(regression: Regression) -> ModelSpec:
    """Return the specification of a regression of terms."""
    assert isinstance(regression.family, ModelSpec)
    return regression.family


def redrawn(regression: Regression) -> Regression:
    """Return a regression whose draws that depend on hyperparameters are those for the present ones."""
    spec, values = spec_of(regression), regression.hyperparameters
    return regression.replace(family=spec.redrawn(values, regression.num_observations))


def is_one_field(spec: ModelSpec) -> bool:
    """Return whether a model is one kernel on nodes, roads or a mesh."""
    kinds = [factor.kind for term in spec.terms for factor in term.term.factors]
    return len(kinds) == 1 and kinds[0] in (Kind.NODE, Kind.COORDINATE)


def first_rows(rows: Block, order: Tensor, count: int) -> Block:
    """Return the first rows of a random order (n,), in their own order, or all."""
    return rows if len(rows) <= count else rows.take(order[:count].sort().values)


def open_scales(spec: ModelSpec) -> list[str]:
    """Return the paths of lengthscales, and of parameters of graph kernels, to which nobody gave a start."""
    names = []
    for factor, _, prefix in (part for term in spec.terms for part in term.parts()):
        if factor.nodes is not None:
            names += [f"{prefix}{name}" for name in factor.starts if not name.startswith("factor_")]
        elif factor.measure is not None or factor.domain is not None:
            names.append(f"{prefix}lengthscale")
    return [name for name in dict.fromkeys(names) if name not in spec.options.starts]


def _screened(regression: Regression, names: list[str], rows: Block) -> Values:
    """Return starting values whose lengthscales are, one after the other, the likeliest of a few."""
    values = regression.hyperparameters
    for name in names:
        ends = [values.shifted(**{name: math.log(factor)}) for factor in FACTORS]
        found = [Objective.of(redrawn(regression.replace(hyperparameters=end)), rows).likelihood(end) for end in ends]
        values = ends[found.index(max(found))]
    return values


def _ranked(regression: Regression, plan: Plan, names: list[str], rows: Block) -> list[Values]:
    """Return the likeliest start for each factor of the parameters of one field."""
    is_open = "noise" in regression.hyperparameters.space.free(plan.fixed)
    noises: tuple[float | None, ...] = (None,)
    if is_open and "noise" not in spec_of(regression).options.starts:
        noises = NOISES_BY_CG if uses_cg(regression.prior(), rows) else NOISES
    starts = [list(_starts(regression, names, factor, noises, rows)) for factor in FIELD_FACTORS]

    def compute() -> dict[str, Tensor]:
        totals = [_likelihood(regression, values, rows) for same_factor in starts for values in same_factor]
        return {"likelihoods": torch.stack(totals)}

    likelihoods = plan.journal.memoize("starts", compute)["likelihoods"].reshape(len(FIELD_FACTORS), -1)
    best, which = torch.where(torch.isfinite(likelihoods), likelihoods, -torch.inf).max(1)
    usable = [i for i in best.argsort(descending=True, stable=True).tolist() if math.isfinite(best[i])]
    return [starts[i][int(which[i])] for i in usable] or [regression.hyperparameters]


def _starts(
    regression: Regression, names: list[str], factor: float, noises: tuple[float | None, ...], rows: Block
) -> Iterator[Values]:
    """Yield starts with some parameters times a factor, and with the noises."""
    begun = regression.hyperparameters.shifted(**dict.fromkeys(names, math.log(factor)))
    for noise in noises:
        own = {} if noise is None else {"noise": torch.tensor(math.log(noise), dtype=torch.float64)}
        values = begun.replaced(own)
        yield spec_of(regression).normalized(values, rows)


def _likelihood(regression: Regression, values: Values, rows: Block) -> Tensor:
    """Return the likelihood of rows with the hyperpriors, -inf for a start that cannot be evaluated."""
    try:
        with torch.no_grad():
            likelihood = regression.replace(hyperparameters=values).infer(rows).log_marginal_likelihood()
            return likelihood + values.log_hyperprior()
    except (SolverError, NotPositiveDefiniteError):
        return torch.full((), -torch.inf, dtype=torch.float64)
