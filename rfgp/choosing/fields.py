"""Selection of a field: each candidate is fitted to all observations and scored by leave-one-out."""

import time
from dataclasses import replace
from typing import Any, cast

import torch

from rfgp.choosing.averages import mean_and_error
from rfgp.fitting import Plan, fit_nodes
from rfgp.regression import Choice, FitReport, Measurement, Regression, Trial
from rfgp.regression.limits import RATE
from rfgp.rows import gathered

_EVALUATIONS = 40.0


def fit_field(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression on a surface or on roads, with the best of its candidates if there are some."""
    family = cast(Any, regression.family)
    if not family.candidates:
        return fit_nodes(regression, plan)
    begun, found = time.monotonic(), []
    for name, domain in family.candidates.items():
        other = regression.replace(family=replace(family, domain=domain, candidates={}))
        with plan.reporter.about(f"choosing, {name}"):
            found.append((name, *fit_nodes(other, plan)))
    weight = gathered(regression.needed_rows("a fit")).counts()
    densities = [_left_out(each).to(weight) for _, each, _ in found]
    means = [mean_and_error(density, weight) for density in densities]
    best = max(range(len(found)), key=lambda number: means[number][0])
    trials = []
    for (name, each, _), density, mean in zip(found, densities, means, strict=True):
        behind = mean_and_error(densities[best] - density, weight)
        measured = Measurement(len(weight), *mean, *behind)
        trials.append(Trial(name, {"alpha": name.rpartition("=")[2]}, *_cost(each), (measured,)))
    name, chosen, report = found[best]
    told = f"log density {means[best][0]:.3f} of {len(weight):,} rows (standard error {means[best][1]:.2g})"
    about = {"judged": len(weight), "way": "each left out in turn", "rate": RATE}
    choice = Choice(best, tuple(trials), f"{name}: the best, {told}.", **cast(Any, about))
    return chosen, replace(report, choice=replace(choice, seconds=time.monotonic() - begun))


def _left_out(found: Regression) -> torch.Tensor:
    """Return the log densities of observations given all others (n,)."""
    density = torch.as_tensor(found.leave_one_out().log_density).double()
    return density.reshape(len(density), -1).mean(1)


def _cost(found: Regression) -> tuple[float, float]:
    """Return the predicted seconds and bytes of a fit, from the factor of its precision."""
    (block,) = found.prior().precisions
    analysis = block.refined(gathered(found.needed_rows("a fit")).inputs).field.analysis
    return _EVALUATIONS * 3.0 * float(analysis.flops) / RATE, float(analysis.num_bytes)
