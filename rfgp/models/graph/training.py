"""Learning the hyperparameters of a process on nodes: starts that are compared, then searches from the best of them."""

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
OPTIMISED, MOST_OPTIMISED = 3, 1500
"""Starts, with different kernels, that are all optimised, and up to how many rows."""


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


def train(
    model: Process,
    plan: Plan,
    open_names: frozenset[str],
    kernel_names: tuple[str, ...],
    *,
    is_continued: bool = False,
) -> FitReport:
    """Learn the hyperparameters of a process on nodes, in place.

    Args:
        model: With its state.
        plan: What the user asked for.
        open_names: Hyperparameters whose starts may be chosen: "outputscale", "noise", and "kernel" for its parameters.
        kernel_names: The kernel's parameters.
        is_continued: Whether the hyperparameters are from a fit to the same data with other features.
    """
    state = model._known()
    rows = gathered(state.known_data("a fit").rows)
    is_solved = iterates(model._prior(state.hyperparameters, state.draw), rows)
    starts = [values_of(state.hyperparameters)]
    if "kernel" in open_names and kernel_names and not set(kernel_names) & set(plan.fixed):
        starts = _ranked_starts(model, plan, open_names - set(plan.fixed), kernel_names, rows)
    restore(state.hyperparameters, starts[0])
    if is_solved:
        return _ascend(model, rows, plan, has_subset=not is_continued and len(rows) >= 2 * MOST_COMPARED)
    return _best_of(starts[: OPTIMISED if len(rows) <= MOST_OPTIMISED else 1], model, rows, plan)


def _ascend(model: Process, rows: ArrayRows, plan: Plan, *, has_subset: bool) -> FitReport:
    """Take scoring steps, in place, where wanted first on a subset: steps on all rows then begin close by."""
    state, report = model._known(), None

    def make(some: ArrayRows) -> SparsePosterior:
        return cast(SparsePosterior, model._posterior(some))

    if has_subset:
        report = ascend(make, _subset(rows, MOST_COMPARED), state, plan, f"subset of {MOST_COMPARED}")
    whole = ascend(make, rows, state, plan)
    return whole if report is None else continued(report, whole)


def _subset(rows: ArrayRows, size: int) -> ArrayRows:
    """Return so many random rows in their order, or all."""
    order = torch.randperm(len(rows), generator=random.generator(0, random.Role.SAMPLE))
    return rows.take(order[:size].sort().values) if size < len(rows) else rows


def _best_of(starts: list[RawValues], model: Process, rows: ArrayRows, plan: Plan) -> FitReport:
    """Optimise from each start, in place: the likelihood of a smooth kernel has several maxima; keep the best."""
    state = model._known()
    known, best = state.hyperparameters, None
    reports: list[FitReport] = []
    for number, start in enumerate(starts):
        restore(known, start)
        name = f"all rows, start {number + 1}" if number else "all rows"
        report = maximize(
            lambda: model._posterior(rows).log_marginal_likelihood(), state, plan, stage=name, tolerance=TOLERANCE
        )
        total = report.log_marginal_likelihood + float(known.log_prior().detach())
        reports.append(report)
        if best is None or total > best[0]:
            best = total, report, values_of(known)
    assert best is not None
    restore(known, best[2])
    return replace(
        best[1],
        iterations=sum(report.iterations for report in reports),
        evaluations=sum(report.evaluations for report in reports),
        stages=tuple(stage for report in reports for stage in report.stages),
    )


def _ranked_starts(
    model: Process, plan: Plan, open_names: frozenset[str], kernel_names: tuple[str, ...], rows: ArrayRows
) -> list[RawValues]:
    """Return starts, at least one, the best for each factor of the kernel's parameters, by likelihood of some rows."""
    state = model._known()
    known = state.hyperparameters

    def prior() -> Any:
        return model._prior(known, state.draw)

    is_solved = iterates(prior(), rows)
    some = _subset(rows, MOST_COMPARED if is_solved else COMPARED_ROWS)
    noises = SOLVED_NOISES if is_solved else NOISES
    begin = values_of(known)
    starts: list[list[RawValues]] = []

    def compute() -> dict[str, Tensor]:
        found = []
        for values in (values for same_factor in starts for values in same_factor):
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
        starts.append([])
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
            starts[-1].append(values_of(known))
    likelihoods = plan.journal.remember("starts", compute)["likelihoods"].reshape(len(FACTORS), -1)
    best, which = torch.where(torch.isfinite(likelihoods), likelihoods, -torch.inf).max(1)
    usable = [i for i in best.argsort(descending=True, stable=True).tolist() if math.isfinite(best[i])]
    return [starts[i][int(which[i])] for i in usable] or [begin]


def continued(first: FitReport, second: FitReport) -> FitReport:
    """Return the report of a fit that went on with other features or rows."""
    return replace(
        second,
        iterations=first.iterations + second.iterations,
        evaluations=first.evaluations + second.evaluations,
        stages=(*first.stages, *second.stages),
    )
