"""Learning frequencies together with a nearest-neighbour process.

Frequencies that are learned alone explain structure that neighbours would explain better, and with neighbours they
over-fit few rows. So a tenth of the rows is held out, at most 2,000, and scores candidates by their density given the
rest:

1. fixed frequencies and neighbours, fitted by their likelihood;
2. learned frequencies alone (`rfgp.fitting.frequencies`), with neighbours switched off;
3. everything by one likelihood, frequencies too, from the better of the two. After every 25 iterations the neighbours
   are found again and the held-out rows scored; the best of these steps is kept.

One half of the held-out rows selects steps and candidates. The other half tests whether the selected one is better than
the first candidate by more than a standard error; otherwise the first is taken. There are at most n / (10 d)
frequencies: neighbours replace many of them.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Normal

from rfgp.counts import counted
from rfgp.couplings import Frequencies
from rfgp.fitting.context import KEPT_OUT
from rfgp.fitting.finish import if_finite
from rfgp.fitting.frequencies import LEAST_LEARNED, PRIOR_SCALE, mean_and_error
from rfgp.fitting.maximize import Plan
from rfgp.fitting.neighbors import EACH, FREQUENCIES, SETTLED, NeighborFit, finalize, fit_neighbors, search_all
from rfgp.fitting.subsets import fit_features
from rfgp.inference.distributions import normal_log_density
from rfgp.parameters import Values
from rfgp.regression import FeatureFamily, FeatureOptions, FitReport, LocalFamily, Regression, mean_and_noise
from rfgp.regression.table.options import LOCAL_STARTS
from rfgp.rows import Block

FEWEST, A_ROW = 4, 0.1
"""The fewest frequencies, and the most of their entries for each row."""
PATIENCE = 2
"""The number of searches of 25 iterations in a row without a better validation score after which learning ends."""


class Candidate(NamedTuple):
    """A regression of the training rows, and its predictions of held-out rows."""

    regression: Regression
    name: str
    errors: Tensor  # (b, k), each over its standard deviation
    density: Tensor  # (b,)

    @classmethod
    def of(cls, regression: Regression, name: str, kept_out: Block) -> "Candidate":
        """Return the candidate of a regression at its rows."""
        mean, noise = mean_and_noise(regression.hyperparameters.detached())
        with torch.no_grad():
            latent = regression.process.at(kept_out.inputs)
            means = latent.mean() + mean
            variance = (latent.variance() + kept_out.observation_noise(noise))[:, None]
            density = normal_log_density(kept_out.targets, means, variance).sum(1)
            return cls(regression, name, (kept_out.targets - means) / variance.sqrt(), density)

    @property
    def half(self) -> int:
        """The number of validation rows; the others test."""
        return (len(self.density) + 1) // 2

    @property
    def score(self) -> float:
        """The mean density of the validation rows."""
        score = float(self.density[: self.half].mean())
        return score if math.isfinite(score) else -math.inf


def fit_learned_with_neighbors(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit features, frequencies too, with neighbours; return the regression and the report."""
    whole = NeighborFit.of(regression, plan)
    if len(whole.rows) < LEAST_LEARNED or plan.steps == 0:
        why = f"{counted(len(whole.rows), 'row')} are too few to learn frequencies from" if plan.steps else "no steps"
        found, report = fit_neighbors(regression, plan)
        return found, replace(report, frequencies="fell back", message=f"{report.message}; {why}")
    out = min(KEPT_OUT[1], math.ceil(KEPT_OUT[0] * len(whole.rows)))
    parts = (torch.arange(len(whole.rows) - out), torch.arange(len(whole.rows) - out, len(whole.rows)))
    learned_from, kept_out = (whole.rows.take(part) for part in parts)
    part = regression.replace(rows=learned_from, num_observations=len(learned_from))
    candidates, reports = _candidates(part, plan, kept_out)
    best, gain, error = best_of(candidates)
    first = candidates[0]
    words = f"{best.name}: nothing learned was ahead on kept-out rows by more than a standard error"
    if best is not first:
        words = f"{best.name}, {gain:.2g} (standard error {error:.1g}) nats a kept-out row ahead of {first.name}"
    changed = {"rows": regression.rows, "num_observations": regression.num_observations}
    found, report = finalize(best.regression.replace(**changed), plan, reports, words)
    errors = best.errors[best.half :]
    return found, replace(
        report,
        frequencies="fell back" if best is first else "learned",
        calibration=if_finite(float(errors.square().mean())),
    )


def best_of(candidates: Sequence[Candidate]) -> tuple[Candidate, float, float]:
    """Return the best by the validation rows, or the first if the gain on test rows is at most its standard error.

    Also return that gain and its standard error.
    """
    first, best = candidates[0], max(candidates, key=lambda each: each.score)
    gain, error = mean_and_error((best.density - first.density)[best.half :])
    return (best if gain > error else first), gain, error


def _candidates(regression: Regression, plan: Plan, kept_out: Block) -> tuple[list[Candidate], list[FitReport]]:
    """Return the candidates, the one with fixed frequencies first, and the reports of all searches."""
    few = _with_fewer(regression)
    _, fixed, reports = search_all(NeighborFit.of(few, plan))
    candidates = [Candidate.of(few.replace(hyperparameters=fixed), "fixed frequencies and a local process", kept_out)]
    alone, report = fit_features(_without_local(regression), plan)
    alone = _with_local(regression, alone)
    reports.append(report)
    candidates.append(Candidate.of(alone, "learned frequencies alone", kept_out))
    best = max(candidates, key=lambda each: each.score).regression
    start = _halved(alone) if best is alone else best
    together, more = _climb(start, plan, kept_out)
    return [*candidates, *together], [*reports, *more]


def _climb(start: Regression, plan: Plan, kept_out: Block) -> tuple[list[Candidate], list[FitReport]]:
    """Return candidates from searches for everything by one likelihood, each with new neighbours."""
    fit, family = NeighborFit.of(start, plan), start.family
    assert isinstance(family, LocalFamily)
    omega = family.drawn_map.frequencies
    hyperprior = Normal(omega.dense(), torch.full_like(omega.dense(), PRIOR_SCALE), validate_args=False)
    values = start.hyperparameters.beside({FREQUENCIES: omega.dense().clone()}, {FREQUENCIES: hyperprior})
    steps, reports, best = list[Candidate](), list[FitReport](), 0
    for number in range(-(-plan.steps // EACH)):
        values, report = fit.search(values, f", frequencies too, neighbours {number + 1}")
        reports.append(report)
        learned = Frequencies(values.raw[FREQUENCIES], omega.weights)
        hyperparameters = start.hyperparameters.replaced({name: values.raw[name] for name in start.hyperparameters.raw})
        found = start.replace(family=family.with_frequencies(learned), hyperparameters=hyperparameters)
        steps.append(Candidate.of(found, "everything by one likelihood", kept_out))
        best = max(range(len(steps)), key=lambda i: steps[i].score)
        if number - best >= PATIENCE or report.stages[0].gain < SETTLED:
            break
    return steps, reports


# --- other families of the same table --------------------------------------------------------------


def _with_fewer(regression: Regression) -> Regression:
    """Return a regression with no more frequencies than are learned with neighbours of so many rows."""
    options = _options(regression)
    few = max(FEWEST, int(A_ROW * regression.num_observations / _columns(regression)))
    if few >= options.num_frequencies:
        return regression
    return regression.replace(family=_family(options.changed(num_frequencies=few)).with_sample(regression.scaling))


def _without_local(regression: Regression) -> Regression:
    """Return a regression with the features only, whose noise has a higher bound."""
    options, values = _options(regression), regression.hyperparameters
    quantities = {name: q for name, q in values.space.quantities.items() if name not in LOCAL_STARTS}
    hyperpriors = {name: prior for name, prior in values.space.hyperpriors.items() if name not in LOCAL_STARTS}
    family = FeatureFamily(options.changed(local=None, priors=hyperpriors, **dict.fromkeys(LOCAL_STARTS)))
    noise, (least, most) = quantities["noise"], next(v.bounds for v in family.variances if v.name == "noise")
    quantities["noise"] = replace(noise, bounds=(noise.bounds[1] * (least / most), noise.bounds[1]))
    space = replace(values.space, quantities=quantities, hyperpriors=hyperpriors)
    raw = {name: values.raw[name] for name in space.names}
    raw["noise"] = raw["noise"].clamp_min(float(quantities["noise"].bounds[0].log()))
    return regression.replace(family=family.with_sample(regression.scaling), hyperparameters=Values(space, raw))


def _with_local(regression: Regression, alone: Regression) -> Regression:
    """Return a regression with the features of another and neighbours of the least variance."""
    values, family = regression.hyperparameters, _family(_options(regression))
    least = values.space.quantities["local_outputscale"].bounds[0].log()
    assert isinstance(alone.family, FeatureFamily)
    family = family.with_frequencies(alone.family.drawn_map.frequencies)
    raw = {**alone.hyperparameters.raw, "local_outputscale": least}
    return regression.replace(family=family, hyperparameters=values.replaced(raw))


def _halved(alone: Regression) -> Regression:
    """Return a regression that gives half of its noise to neighbours, at half the features' lengthscales."""
    values, half = alone.hyperparameters, math.log(0.5)
    local = {"local_outputscale": values.raw["noise"] + half, "local_lengthscale": values.raw["lengthscale"] + half}
    return alone.replace(hyperparameters=values.shifted(noise=half).replaced(local))


def _options(regression: Regression) -> FeatureOptions:
    options = regression.family.options
    assert isinstance(options, FeatureOptions)
    return options


def _family(options: FeatureOptions) -> LocalFamily:
    return LocalFamily(options, FeatureFamily(options))


def _columns(regression: Regression) -> int:
    assert regression.scaling.inputs is not None
    return len(regression.scaling.inputs.scale)
