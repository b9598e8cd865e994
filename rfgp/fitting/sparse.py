"""Searches under sparse priors, by forward selection of columns.

If every column has an effect at the start, a search may explain a few rows by many columns. So all columns start
without an effect. Each step ranks the columns by polynomial fits to the leave-one-out errors. It tries the first few at
the effects of the prior, and searches briefly over all hyperparameters from the best. The ranking misses interactions
of columns without main effects.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp.fitting.context import SearchEnd, TermFit
from rfgp.fitting.maximize import Objective
from rfgp.parameters import ParameterValues
from rfgp.priors import SparsePrior
from rfgp.rows import Block

MAX_COLUMNS, TRIED_COLUMNS, MAX_MISSES = 12, 3, 2
"""The most added columns, the columns that a step tries, and the number of steps without a gain that end the search."""
STEP_ITERATIONS = 20
"""The maximum number of iterations of a search in a step."""
ABSENT = 0.01
"""The effect of an absent column, in scales of its prior."""
_DEGREE = 3
"""The degree of the polynomials that rank columns."""
_MIN_GAIN = 0.1
"""The smallest gain in nats of the log posterior by which a step counts."""

Search = Callable[..., SearchEnd]
"""The search on some rows, `rfgp.fitting.driver.search`."""


@dataclass(frozen=True)
class Effects:
    """The effects of columns through one hyperparameter with a sparse prior.

    Attributes:
        name: The dotted name of the hyperparameter.
        columns: The index of the column of each entry.
        prior: The prior.
    """

    name: str
    columns: tuple[int, ...]
    prior: SparsePrior

    def absent(self, values: ParameterValues) -> ParameterValues:
        """Return values at which no column has an effect.

        Args:
            values: The hyperparameters.
        """
        value = self.prior.value(ABSENT * self.prior.tau(len(self.columns)))
        return values.replaced({self.name: torch.full_like(values.raw[self.name], math.log(value))})

    def with_effect(self, values: ParameterValues, column: int, effect: float) -> ParameterValues:
        """Return values at which a column has at least a given effect.

        Args:
            values: The hyperparameters.
            column: The index of the column.
            effect: The least effect, on the scale of the prior.
        """
        raw, number = values.raw[self.name].clone(), self.columns.index(column)
        value = torch.full_like(raw[number], math.log(self.prior.value(effect)))
        raw[number] = torch.where(self.prior.effect(raw[number].exp()) < effect, value, raw[number])
        return values.replaced({self.name: raw})


def sparse_effects(fit: TermFit) -> list[Effects]:
    """Return the free hyperparameters with sparse priors, under a Gaussian likelihood.

    Args:
        fit: The fit. It has none if it continues an earlier search.
    """
    if not fit.spec.is_gaussian or fit.plan.is_continued:
        return []
    priors, free, effects = fit.values.space.hyperpriors, fit.free, list[Effects]()
    for term in fit.spec.terms:
        for _, columns, prefix in term.parts():
            for name in (f"{prefix}lengthscale", f"{prefix}variance"):
                prior = priors.get(name)
                if isinstance(prior, SparsePrior) and name in free and fit.values.raw[name].shape == (len(columns),):
                    effects.append(Effects(name, tuple(columns), prior))
    return effects


def search_sparsely(fit: TermFit, rows: Block, search: Search, tolerance: float | None) -> SearchEnd:
    """Add columns one after the other, and search again from the best fit.

    Args:
        fit: The fit at its start.
        rows: The rows of the search.
        search: The search on some rows.
        tolerance: The smallest gain of an iteration of the last search, in nats a row. If None, the default.

    Returns:
        The fit at the values found, and the report of the last search.
    """
    effects, present, misses = sparse_effects(fit), list[int](), 0
    values, objective = fit.values, Objective.of(fit.state, rows)
    for term_effects in effects:
        values = term_effects.absent(values)
    best, score = fit.at(values), -math.inf
    errors = rows.targets.double() - rows.targets.double().mean(0)
    while misses < MAX_MISSES and len(present) < MAX_COLUMNS and not fit.plan.is_over():
        ranked = [column for column in ranked_columns(rows.inputs, errors, effects) if column not in present]
        if not ranked:
            break
        base = best.at(_with_noise(best, errors)) if not present else best
        starts = _starts(base, effects, ranked[:TRIED_COLUMNS])
        column, start = max(starts, key=lambda pair: objective.log_posterior(pair[1].values))
        end, _ = search(start, rows, most=STEP_ITERATIONS, note=", new column")
        present.append(column)
        reached = objective.log_posterior(end.values)
        if reached > score + _MIN_GAIN:
            best, score, misses = end, reached, 0
            with torch.no_grad():
                errors = rows.targets - best.state.infer(rows).leave_one_out()[0]
        else:
            misses += 1
    return search(best, rows, tolerance=tolerance)


def ranked_columns(inputs: Tensor, errors: Tensor, effects: Sequence[Effects]) -> list[int]:
    """Return columns ranked by the BIC of the best polynomial of each.

    Polynomials are up to cubic. With two rows or fewer, columns are unranked.

    Args:
        inputs: The rows, (n, D).
        errors: The errors that the polynomials explain, (n, k).
        effects: The hyperparameters whose columns are ranked.
    """
    columns = sorted({column for term_effects in effects for column in term_effects.columns})
    x, n = inputs[:, columns].detach().double(), len(errors)
    degree = min(_DEGREE, n - 2)
    if degree < 1:
        return columns
    x = (x - x.mean(0)) / x.std(0).clamp_min(1e-300)
    powers = torch.stack([x**power for power in range(degree + 1)], dim=2).movedim(1, 0)  # (D, n, degree + 1)
    basis, _ = torch.linalg.qr(powers)
    shares = (basis.mT @ errors.double()).square().sum(2)[:, 1:].cumsum(1) / errors.square().sum()
    penalties = 0.5 * math.log(n) * torch.arange(1, degree + 1)
    gains = (-0.5 * n * torch.log1p(-shares.clamp(max=1 - 1e-12)) - penalties).amax(1)
    return [columns[number] for number in gains.nan_to_num(-math.inf).argsort(descending=True).tolist()]


def _starts(fit: TermFit, effects: Sequence[Effects], columns: Sequence[int]) -> list[tuple[int, TermFit]]:
    """Return the fit with each of some columns at each effect of each prior."""
    return [
        (column, fit.at(term_effects.with_effect(fit.values, column, effect)))
        for column in columns
        for term_effects in effects
        if column in term_effects.columns
        for effect in term_effects.prior.effects
    ]


def _with_noise(fit: TermFit, errors: Tensor) -> ParameterValues:
    """Return values whose noise is the variance of errors (n, k), unless it is fixed."""
    if "noise" not in fit.free:
        return fit.values
    noise = errors.square().mean().log()
    return fit.values.replaced({"noise": noise}).clamped(["noise"])[0]
