"""Searches under sparse priors: columns come in one after the other, while the posterior density grows.

From a start at which every column has some effect, a search ends where a few rows are explained by many columns. So all
columns begin without an effect. In each step columns are ranked by polynomials of the leave-one-out errors, a few of
them are tried at the effects of the prior, and a short search over all hyperparameters starts at the best. An effect
that two columns have only together is not seen by the ranking.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp.fitting.context import TermFit
from rfgp.fitting.maximize import Objective
from rfgp.parameters import Values
from rfgp.priors import SparsePrior
from rfgp.regression import FitReport
from rfgp.rows import Block

MOST_COLUMNS, TRIED_COLUMNS, MOST_MISSES = 12, 3, 2
"""The most columns that come in, the columns that are tried in a step, and the steps without a gain that end it."""
STEP_ITERATIONS = 20
"""The most iterations of a search in a step."""
ABSENT = 0.01
"""The effect of an absent column, in scales of its prior."""
_DEGREE = 3
_LEAST_GAIN = 0.1

SearchEnd = tuple[TermFit, FitReport]
Optimize = Callable[..., SearchEnd]


@dataclass(frozen=True)
class Effects:
    """The effects of columns by one hyperparameter with a sparse prior.

    Attributes:
        name: The path of the hyperparameter.
        places: The place of the column of each entry.
        prior: The prior.
    """

    name: str
    places: tuple[int, ...]
    prior: SparsePrior

    def absent(self, values: Values) -> Values:
        """Return values at which no column has an effect."""
        value = self.prior.value(ABSENT * self.prior.tau(len(self.places)))
        return values.replaced({self.name: torch.full_like(values.raw[self.name], math.log(value))})

    def with_effect(self, values: Values, place: int, effect: float) -> Values:
        """Return values at which a column has an effect, at least the one that it has."""
        raw, number = values.raw[self.name].clone(), self.places.index(place)
        value = torch.full_like(raw[number], math.log(self.prior.value(effect)))
        raw[number] = torch.where(self.prior.effect(raw[number].exp()) < effect, value, raw[number])
        return values.replaced({self.name: raw})


def sparse_effects(fit: TermFit) -> list[Effects]:
    """Return the open hyperparameters with sparse priors, under a Gaussian likelihood."""
    if not fit.spec.is_gaussian or fit.plan.is_continued:
        return []
    priors, free, found = fit.values.space.hyperpriors, fit.free, list[Effects]()
    for term in fit.spec.terms:
        for _, places, prefix in term.parts():
            for name in (f"{prefix}lengthscale", f"{prefix}variance"):
                prior = priors.get(name)
                if isinstance(prior, SparsePrior) and name in free and fit.values.raw[name].shape == (len(places),):
                    found.append(Effects(name, tuple(places), prior))
    return found


def search_sparsely(fit: TermFit, rows: Block, optimize: Optimize, tolerance: float | None) -> SearchEnd:
    """Let columns come in one after the other; return the fit at the end of a last search, and the report.

    Args:
        fit: The fit at its start.
        rows: The rows of the search.
        optimize: Searches from a fit on rows, as `rfgp.fitting.subsets.optimize`.
        tolerance: The least gain of an iteration of the last search, in nats a row. If None, the default.
    """
    effects, present, misses = sparse_effects(fit), list[int](), 0
    values, objective = fit.values, Objective.of(fit.regression, rows)
    for one in effects:
        values = one.absent(values)
    best, score = fit.at(values), -math.inf
    errors = rows.targets.double() - rows.targets.double().mean(0)
    while misses < MOST_MISSES and len(present) < MOST_COLUMNS:
        places = [place for place in ranked_columns(rows.inputs, errors, effects) if place not in present][
            :TRIED_COLUMNS
        ]
        if not places:
            break
        start = best.at(_with_noise(best, errors)) if not present else best
        place, start = max(
            _initialized(start, rows, effects, places), key=lambda pair: objective.log_posterior(pair[1].values)
        )
        found, _ = optimize(start, rows, most=STEP_ITERATIONS, again=True)
        present.append(place)
        reached = objective.log_posterior(found.values)
        if reached > score + _LEAST_GAIN:
            best, score, misses = found, reached, 0
            with torch.no_grad():
                errors = rows.targets - best.regression.infer(rows).leave_one_out()[0]
        else:
            misses += 1
    return optimize(best, rows, tolerance=tolerance)


def ranked_columns(inputs: Tensor, errors: Tensor, effects: Sequence[Effects]) -> list[int]:
    """Return columns ranked by the likelihood that cubic polynomials of them gain, with half a log n a coefficient.

    Args:
        inputs: The rows, (n, D).
        errors: What is to be explained, (n, k).
        effects: The hyperparameters whose columns are ranked.
    """
    places = sorted({place for one in effects for place in one.places})
    x, n = inputs[:, places].detach().double(), len(errors)
    x = (x - x.mean(0)) / x.std(0).clamp_min(1e-300)
    powers = torch.stack([x**degree for degree in range(_DEGREE + 1)], dim=2).movedim(1, 0)  # (D, n, 4)
    basis, _ = torch.linalg.qr(powers)
    shares = (basis.mT @ errors.double()).square().sum(2)[:, 1:].cumsum(1) / errors.square().sum()
    penalties = 0.5 * math.log(n) * torch.arange(1, _DEGREE + 1)
    gains = (-0.5 * n * torch.log1p(-shares.clamp(max=1 - 1e-12)) - penalties).amax(1)
    return [places[number] for number in gains.nan_to_num(-math.inf).argsort(descending=True).tolist()]


def _initialized(
    fit: TermFit, rows: Block, effects: Sequence[Effects], places: Sequence[int]
) -> list[tuple[int, TermFit]]:
    """Return the fit with each of some columns at each effect of each prior."""
    return [
        (place, fit.at(one.with_effect(fit.values, place, effect)))
        for place in places
        for one in effects
        if place in one.places
        for effect in one.prior.effects
    ]


def _with_noise(fit: TermFit, errors: Tensor) -> Values:
    """Return values whose noise is the variance of errors (n, k), unless it is fixed."""
    if "noise" not in fit.free:
        return fit.values
    noise = errors.square().mean().log()
    return fit.values.replaced({"noise": noise}).clamped(["noise"])[0]
