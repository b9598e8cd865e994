"""Selection among kernels by leave-one-out: fit each to all rows and keep the one with the best score."""

import time
from dataclasses import replace
from typing import Any, cast

import torch

from rfgp.fitting import Plan, fit_terms
from rfgp.regression import FitReport, GPState, SelectionReport, Trial
from rfgp.regression.graph import selection_of_features
from rfgp.regression.selection_report import RATE
from rfgp.regression.spec import ModelSpec
from rfgp.regression.state import restarted
from rfgp.rows import gathered
from rfgp.selection.successive_halving import scores_of

EVALUATIONS = 40.0
"""The number of likelihoods of a fit, for its predicted cost."""


def fit_kernels(state: GPState, plan: Plan) -> tuple[GPState, FitReport]:
    """Fit a model; of several kernels keep the best by leave-one-out."""
    spec = state.spec
    assert isinstance(spec, ModelSpec)
    if not spec.options.alternatives:
        fitted, report = fit_terms(state, plan)
        assert isinstance(fitted.spec, ModelSpec)
        return fitted, replace(report, selection=selection_of_features(fitted.spec))
    start_time, found = time.monotonic(), []
    for name, kernel in spec.options.alternatives.items():
        other = restarted(state, spec.with_options(spec.options.changed(kernel=kernel, alternatives={})))
        with plan.reporter.about(f"selection, {name}"):
            found.append((name, *fit_terms(other, plan)))
    weight = gathered(state.needed_rows("a fit")).counts()
    log_probs = [_left_out(each).to(weight) for _, each, _ in found]
    scores = scores_of(log_probs, weight, [len(weight)] * len(found))
    best = max(range(len(found)), key=lambda number: scores[number].value)
    trials = [
        Trial(name, _options(name), *_cost(each), (one,)) for (name, each, _), one in zip(found, scores, strict=True)
    ]
    (name, chosen, report), last = found[best], scores[best]
    score = f"log density {last.value:.3f} of {len(weight):,} rows (standard error {last.error:.2g})"
    about = {"num_validation": len(weight), "validation": "leave-one-out", "rate": RATE}
    selection = SelectionReport(best, tuple(trials), f"{name}: the best, {score}.", **cast(Any, about))
    return chosen, replace(report, selection=replace(selection, seconds=time.monotonic() - start_time))


def _options(name: str) -> dict[str, Any]:
    """Return the option in a name such as "alpha=1"."""
    option, _, value = name.partition("=")
    return {option: value}


def _left_out(found: GPState) -> torch.Tensor:
    """Return the log densities of observations given all others (n,)."""
    log_prob = torch.as_tensor(found.leave_one_out().log_prob).double()
    return log_prob.reshape(len(log_prob), -1).mean(1)


def _cost(found: GPState) -> tuple[float, float]:
    """Return the predicted seconds and bytes of a fit, from the factors of the precisions."""
    inputs = gathered(found.needed_rows("a fit")).inputs
    factors = [block.refined(inputs).field.analysis for block in found.prior().precisions]
    seconds = EVALUATIONS * 3.0 * sum(float(factor.flops) for factor in factors) / RATE
    return seconds, float(sum(factor.num_bytes for factor in factors))
