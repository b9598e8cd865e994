"""Learning the hyperparameters of a process on nodes: starts that are compared, then one search."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from rfgp import random
from rfgp.errors import NotPositiveDefiniteError, SolverError
from rfgp.inference import ArrayRows, SparsePosterior, gathered, iterates, posterior
from rfgp.models.fitting import FitReport, Plan, ascend, maximize
from rfgp.models.fitting.values import RawValues, restore, values_of
from rfgp.models.process import Process
from rfgp.parameters import Hyperparameters

FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Of the kernel's parameters, for starts to compare."""
NOISES, SOLVED_NOISES = (0.1, 0.01, 1e-4), (0.1, 0.01)
"""Noise variances of starts, of the targets' variance; and where conjugate gradients solve, slowly for little noise."""
TOLERANCE = 1e-8
"""Of the relative change of the likelihood of a row in one iteration."""
COMPARED_ROWS, MOST_COMPARED = 1000, 10_000
"""Rows on which starts are compared: where matrices are factorised, and where they are not."""


def normalize_scale(prior: Callable[[], Any], hyperparameters: Hyperparameters, rows: ArrayRows) -> None:
    """Multiply the output scale so that the prior variance is, on average over some rows, what the scale was, in place.

    Graph kernels are not 1 on the diagonal: exp(-t L) is small there for long lengthscales.
    """
    with torch.no_grad():
        size = float(prior().diagonal(rows.inputs[: 2 * COMPARED_ROWS]).mean())
        outputscale = hyperparameters.raw["outputscale"]
        if size > 0 and math.isfinite(size):
            low, high = (float(b.log()) for b in hyperparameters.quantities["outputscale"].bounds)
            start = float(hyperparameters.standardized("outputscale"))
            outputscale.fill_(min(max(math.log(start * start / size), low), high))


def train(model: Process, plan: Plan, open_names: frozenset[str], kernel_names: tuple[str, ...]) -> FitReport:
    """Learn the hyperparameters of a process on nodes, in place.

    Args:
        model: With its state.
        plan: What the user asked for.
        open_names: Hyperparameters whose starts may be chosen: "outputscale", "noise", and "kernel" for its parameters.
        kernel_names: The kernel's parameters.
    """
    state = model._known()
    rows = gathered(state.known_data("a fit").rows)
    if "kernel" in open_names and kernel_names and not set(kernel_names) & set(plan.fixed):
        _choose_start(model, plan, open_names - set(plan.fixed), kernel_names, rows)
    prior = model._prior(state.hyperparameters, state.draw)
    if iterates(prior, rows):
        return ascend(lambda: cast(SparsePosterior, model._posterior(rows)), state, plan)
    return maximize(lambda: model._posterior(rows).log_marginal_likelihood(), state, plan, tolerance=TOLERANCE)


def _choose_start(
    model: Process, plan: Plan, open_names: frozenset[str], kernel_names: tuple[str, ...], rows: ArrayRows
) -> None:
    """Set the hyperparameters to the start of the highest likelihood of some rows, in place."""
    state = model._known()
    known = state.hyperparameters

    def prior() -> Any:
        return model._prior(known, state.draw)

    is_solved = iterates(prior(), rows)
    size = min(len(rows), MOST_COMPARED if is_solved else COMPARED_ROWS)
    noises = SOLVED_NOISES if is_solved else NOISES
    order = torch.randperm(len(rows), generator=random.generator(0, random.Role.SAMPLE))
    some = rows.take(order[:size].sort().values) if size < len(rows) else rows
    begin = values_of(known)
    starts: list[RawValues] = []

    def compute() -> dict[str, Tensor]:
        found = []
        for values in starts:
            restore(known, values)
            mean, noise = known.standardized("mean").reshape(-1), known.standardized("noise")
            try:
                with torch.no_grad():
                    total = posterior(prior(), some, mean, noise).log_marginal_likelihood() + known.log_prior()
            except (SolverError, NotPositiveDefiniteError):  # a start that cannot be evaluated is none
                total = torch.full((), -torch.inf, dtype=torch.float64)
            found.append(total)
        return {"likelihoods": torch.stack(found)}

    for factor in FACTORS:
        for share in noises if "noise" in open_names else (None,):
            restore(known, begin)
            with torch.no_grad():
                for name in kernel_names:
                    known.raw[name].add_(math.log(factor) if not name.startswith("factor_") else 0.0)
                if share is not None:
                    known.raw["noise"].fill_(math.log(share))
                if "outputscale" in open_names:
                    known.raw["outputscale"].fill_(0.0)
            if "outputscale" in open_names:
                normalize_scale(prior, known, some)
            starts.append(values_of(known))
    likelihoods = plan.journal.remember("starts", compute)["likelihoods"]
    usable = torch.where(torch.isfinite(likelihoods), likelihoods, -torch.inf)
    restore(known, starts[int(usable.argmax())] if bool(torch.isfinite(usable).any()) else begin)


def continued(first: FitReport, second: FitReport) -> FitReport:
    """Return the report of a fit that went on with other features."""
    return replace(
        second,
        iterations=first.iterations + second.iterations,
        evaluations=first.evaluations + second.evaluations,
        stages=(*first.stages, *second.stages),
    )
