"""Learning frequencies together with a nearest-neighbor process.

Frequencies that are learned alone explain structure that neighbors would explain better. With neighbors they overfit
few rows. So a tenth of the rows is held out, at most 2,000, and scores these candidates by their log predictive
density:

1. Fixed frequencies and neighbors, fitted by their likelihood.
2. Learned frequencies alone (`rfgp.fitting.frequencies`), with neighbors switched off.
3. Frequencies, neighbors and hyperparameters, fitted by one likelihood from the better of the two. After every 25
   iterations the neighbors are found again and the held-out rows are scored. The best of these steps is kept.

Half of the held-out rows, for validation, selects steps and candidates. The first candidate is kept unless the selected
one is better on the test half by more than a standard error. There are at most n / (10 d) frequencies, because
neighbors replace many of them.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import Normal

from rfgp.approximations import RandomFeatures
from rfgp.fitting.context import HELD_OUT, TermFit
from rfgp.fitting.frequencies import MIN_LEARNED, PRIOR_SCALE, learned_frequencies, mean_and_standard_error
from rfgp.fitting.last_stage import if_finite
from rfgp.fitting.maximize import Plan
from rfgp.fitting.neighbors import (
    ITERATIONS_PER_ROUND,
    MIN_ROUND_GAIN,
    NeighborFit,
    conditioned_on_all_rows,
    fit_neighbors,
    neighbors_of,
    search_all,
)
from rfgp.fitting.subsets import fit_basis_functions
from rfgp.likelihoods.real import normal_log_prob
from rfgp.messages import counted
from rfgp.models import FitReport, GPState, mean_and_noise
from rfgp.models.spec import NOISE_BOUNDS
from rfgp.models.state import some_terms, values_of_terms, with_basis_of, with_learned
from rfgp.parameters import ParameterValues
from rfgp.rows import Block

FEWEST, A_ROW = 4, 0.1
"""The minimum number of frequencies, and the most of their entries for each row."""
PATIENCE = 2
"""The number of consecutive searches without a better validation score after which learning ends."""


class Candidate(NamedTuple):
    """A state of the training rows, and its predictions of held-out rows."""

    state: GPState
    name: str
    errors: Tensor  # (b, k), each over its standard deviation
    log_prob: Tensor  # (b,)

    @classmethod
    def of(cls, state: GPState, name: str, held_out: Block) -> "Candidate":
        """Return the candidate of a state at its rows.

        Args:
            state: The state with a posterior at its rows.
            name: The name of the candidate in the message of the report.
            held_out: The held-out rows, validation rows first.
        """
        mean, noise = mean_and_noise(state.hyperparameters.detached())
        with torch.no_grad():
            latent = state.latent(held_out.inputs)
            means = latent.mean() + mean
            variance = (latent.variance() + held_out.observation_noise(noise))[:, None]
            log_prob = normal_log_prob(held_out.targets, means, variance).sum(1)
            return cls(state, name, (held_out.targets - means) / variance.sqrt(), log_prob)

    @property
    def half(self) -> int:
        """The number of validation rows. The others are test rows."""
        return (len(self.log_prob) + 1) // 2

    @property
    def score(self) -> float:
        """The mean log density of the validation rows."""
        score = float(self.log_prob[: self.half].mean())
        return score if math.isfinite(score) else -math.inf


def fit_learned_with_neighbors(state: GPState, plan: Plan) -> tuple[GPState, FitReport]:
    """Fit features, their frequencies and neighbors.

    Args:
        state: The model state with rows, at its starting values.
        plan: The options of the fit.

    Returns:
        The state with its posterior, and the report.
    """
    fit = NeighborFit.of(state, plan)
    if len(fit.rows) < MIN_LEARNED or plan.steps == 0:
        why = f"{counted(len(fit.rows), 'row')} are too few to learn frequencies from" if plan.steps else "no steps"
        fitted, report = fit_neighbors(state, plan)
        return fitted, replace(report, frequencies="rejected", message=f"{report.message}; {why}")
    out = min(HELD_OUT[1], math.ceil(HELD_OUT[0] * len(fit.rows)))
    parts = (torch.arange(len(fit.rows) - out), torch.arange(len(fit.rows) - out, len(fit.rows)))
    training, held_out = (fit.pool.take(part) for part in parts)
    part = state.replace(rows=training, num_observations=len(training))
    candidates, reports = _candidates(part, plan, held_out)
    best, gain, error = best_of(candidates)
    first = candidates[0]
    message = f"{best.name}: nothing learned was ahead on held-out rows by more than a standard error"
    if best is not first:
        message = f"{best.name}, {gain:.2g} (standard error {error:.1g}) nats a held-out row ahead of {first.name}"
    changed = {"rows": state.rows, "num_observations": state.num_observations}
    fitted, report = conditioned_on_all_rows(best.state.replace(**changed), plan, reports, message)
    errors = best.errors[best.half :]
    return fitted, replace(
        report,
        frequencies="rejected" if best is first else "learned",
        mean_squared_zscore=if_finite(float(errors.square().mean())),
    )


def best_of(candidates: Sequence[Candidate]) -> tuple[Candidate, float, float]:
    """Return the candidate with the best validation score, unless test rows reject it.

    They reject it if its gain over the first candidate is at most the standard error.

    Args:
        candidates: The candidates. The first one, with fixed frequencies, is the fallback.

    Returns:
        The candidate, the gain in nats a test row, and its standard error.
    """
    first, best = candidates[0], max(candidates, key=lambda candidate: candidate.score)
    gain, error = mean_and_standard_error((best.log_prob - first.log_prob)[best.half :])
    return (best if gain > error else first), gain, error


def _candidates(state: GPState, plan: Plan, held_out: Block) -> tuple[list[Candidate], list[FitReport]]:
    """Return the candidates, fixed frequencies first, and the reports of all searches."""
    fit, reports = search_all(NeighborFit.of(_with_fewer(state), plan))
    candidates = [Candidate.of(fit.state, "fixed frequencies and neighbors", held_out)]
    if plan.is_over():
        return candidates, reports
    alone, report = fit_basis_functions(TermFit.of(_without_neighbors(state), plan))
    alone = _with_neighbors(state, alone)
    reports.append(report)
    candidates.append(Candidate.of(alone, "learned frequencies alone", held_out))
    if plan.is_over():
        return candidates, reports
    best = max(candidates, key=lambda candidate: candidate.score).state
    start = _half_noise_to_neighbors(alone) if best is alone else best
    joint, more = _learn_jointly(start, plan, held_out)
    return [*candidates, *joint], [*reports, *more]


def _learn_jointly(start: GPState, plan: Plan, held_out: Block) -> tuple[list[Candidate], list[FitReport]]:
    """Return candidates from joint searches over frequencies and hyperparameters."""
    fit, omega = NeighborFit.of(start, plan), learned_frequencies(TermFit.of(start, plan))
    hyperpriors = {p: Normal(w, torch.full_like(w, PRIOR_SCALE), validate_args=False) for p, w in omega.items()}
    frequencies = {path: drawn.clone() for path, drawn in omega.items()}
    fit = fit.at(start.hyperparameters.with_extra_tensors(frequencies, hyperpriors))
    steps, reports, best = list[Candidate](), list[FitReport](), 0
    for number in range(-(-plan.steps // ITERATIONS_PER_ROUND)):
        fit, report = fit.search(f", frequencies too, neighbors {number + 1}")
        reports.append(report)
        raw = fit.values.raw
        learned = with_learned(start.spec, {path: raw[path] for path in omega})
        hyperparameters = start.hyperparameters.replaced({name: raw[name] for name in start.hyperparameters.raw})
        learned_state = start.replace(spec=learned, hyperparameters=hyperparameters)
        steps.append(Candidate.of(learned_state, "everything by one likelihood", held_out))
        best = max(range(len(steps)), key=lambda i: steps[i].score)
        if number - best >= PATIENCE or report.stages[0].gain < MIN_ROUND_GAIN:
            break
    return steps, reports


# --- models of some of the terms -------------------------------------------------------------------


def _with_fewer(state: GPState) -> GPState:
    """Return a state with at most n / (10 d) learned frequencies."""
    spec, values, count = state.spec, state.hyperparameters, state.num_observations
    changed = dict(spec.approximations)
    for data in spec.term_data(values, count):
        name, approximation = data.term.name, changed[data.term.name]
        if isinstance(approximation, RandomFeatures) and approximation.learn_frequencies:
            columns = sum(len(indices) for factor, indices, _ in data.term.parts() if factor.measure is not None)
            few = max(FEWEST, int(A_ROW * count / max(columns, 1)))
            changed[name] = replace(approximation, num_frequencies=min(few, approximation.num_frequencies))
    if changed == spec.approximations:
        return state
    return state.replace(spec=spec.with_approximations(changed, values, count))


def _without_neighbors(state: GPState) -> GPState:
    """Return a state of the terms without neighbors, with a larger least noise."""
    spec, near = state.spec, neighbors_of(state.prior()).names
    alone = some_terms(spec, [term.name for term in spec.terms if term.name not in near])
    values = values_of_terms(alone, state.hyperparameters)
    noise, (_, most) = values.space.quantities["noise"], values.space.quantities["noise"].bounds
    noise = replace(noise, bounds=(most * (NOISE_BOUNDS[0] / NOISE_BOUNDS[1]), most))
    space = replace(values.space, quantities={**values.space.quantities, "noise": noise})
    raw = {**values.raw, "noise": values.raw["noise"].clamp_min(float(noise.bounds[0].log()))}
    return state.replace(spec=alone, hyperparameters=ParameterValues(space, raw))


def _with_neighbors(state: GPState, alone: GPState) -> GPState:
    """Return a state with the features of `alone`, and neighbors of least variance."""
    values, spec = state.hyperparameters, state.spec
    near = neighbors_of(state.prior()).names
    scales = [term.outputscale for term in spec.terms if term.name in near and term.outputscale is not None]
    least = {name: values.space.quantities[name].bounds[0].log() for name in scales}
    raw = {name: tensor for name, tensor in alone.hyperparameters.raw.items() if name in values.raw}
    return state.replace(spec=with_basis_of(spec, alone.spec), hyperparameters=values.replaced({**raw, **least}))


def _half_noise_to_neighbors(alone: GPState) -> GPState:
    """Return a state with half of the noise moved to neighbors."""
    values, half = alone.hyperparameters, math.log(0.5)
    near, terms = neighbors_of(alone.prior()).names, alone.spec.terms
    of_features = [prefix for term in terms if term.name not in near for prefix in term.prefixes]
    longest = next(values.raw[name] for prefix in of_features if (name := f"{prefix}lengthscale") in values.raw)
    neighbor_terms = [term for term in terms if term.name in near]
    share = half - math.log(len(neighbor_terms))
    changed = {term.outputscale: values.raw["noise"] + share for term in neighbor_terms if term.outputscale is not None}
    for name in (f"{prefix}lengthscale" for term in neighbor_terms for prefix in term.prefixes):
        if name in values.raw and values.raw[name].shape == longest.shape:
            changed[name] = longest + half
    return alone.replace(hyperparameters=values.shifted(noise=half).replaced(changed))
