"""Fitting through features: a subset of the rows that grows until the optimum stops moving, then all of them.

1. Starts: a few common lengthscales, compared on the first subset by their likelihood.
2. Subsets: L-BFGS on n_1, 4 n_1, ... rows, until a larger subset gains less than a thousandth of a nat a row on what
   the last one found. The output scale is solved for at each evaluation.
3. Frequencies, where they are learned (`rfgp.models.fitting.learning`).
4. All rows, in one pass: noise and output scale solved through the features, because a subset knows less of what the
   features miss; then the density, in another.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rfgp import random
from rfgp.inference import ArrayRows, FeaturePrior, LinearModel, Posterior, PrimalPosterior, Rows, gathered, posterior
from rfgp.inference.primal import Statistics, gather, solve
from rfgp.inference.scales import best_common_scale
from rfgp.models.fitting.lbfgs import Plan, maximize
from rfgp.models.fitting.learning import Learning, Outcome
from rfgp.models.fitting.report import FitReport
from rfgp.models.fitting.scales import calibrate_noise, leave_one_out, solve_scales
from rfgp.models.state import ArrayPart, Kept

if TYPE_CHECKING:
    from rfgp.models.table import SparseSpectrumGP

LEAST_ROWS = 2000
"""Of the first subset."""
GROWTH = 4
SETTLED = 1e-3
"""Nats a row: what a larger subset may gain before the optimum counts as settled."""
STARTS = (1 / 32, 1 / 16, 1 / 8, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Multiples of the starting lengthscale."""
BEGINNING = 30
"""Iterations on the first subset before frequencies are learned."""
CHECKED_ROWS = 2000
"""Rows whose leave-one-out predictions are reported."""
_LOG_RATIO = (-27.0, 9.0)
"""Bounds of log(noise / output scale) while the scale is solved for."""


class Fit:
    """A fit of a model through features, in place.

    Args:
        model: With the data and starting values in its state.
        plan: What the user asked for.
    """

    def __init__(self, model: "SparseSpectrumGP", plan: Plan) -> None:
        self.model, self.plan = model, plan
        self.state = model._known()
        self.known, data = self.state.hyperparameters, self.state.known_data("a fit")
        self.rows, self.count, part = data.rows, data.count, data.parts[0]
        self.pool = part.rows if isinstance(part, ArrayPart) else part.sample
        self._order = torch.randperm(len(self.pool), generator=random.generator(model.seed, random.Role.SAMPLE))
        self._reference = self.known.raw["outputscale"].detach().clone()
        tied = {"noise", "outputscale"} & {*plan.fixed, *(model._priors or {})}
        self.solves_scales = not tied and not self.rows.knows_noise

    def run(self) -> FitReport:
        """Fit, and return how it went."""
        with torch.no_grad():
            if not self.known.free(self.plan.fixed):
                return self._finish([], "every hyperparameter is fixed", True)
            sizes = self._sizes()
            self._choose_start(sizes[0])
            reports, outcome = [], None
            if self.model._options["frequencies"] == "learned":
                begun = self._optimize(sizes[0], BEGINNING)
                outcome = self._learn()
                if outcome.frequencies is not None:
                    reports.append(replace(begun, converged=True))
                    return self._finish(reports, f"begun on {sizes[0]:,} rows", False, outcome)
            words = self._grow(reports, sizes)
            return self._finish(
                reports, words, len(self.subset(reports[-1].stages[-1].rows)) == len(self.rows), outcome
            )

    def subset(self, size: int) -> ArrayRows:
        """Return so many rows of the pool in random order: those of a smaller subset and more, or all as they are."""
        return self.pool if size >= len(self.pool) else self.pool.take(self._order[:size])

    def prior(self) -> FeaturePrior:
        """Return the prior at the present hyperparameters."""
        return self.model._prior(self.known, self.model._known().draw)

    def linear(self, rows: Rows) -> LinearModel:
        """Return the linear model of rows at the present hyperparameters."""
        mean, noise = self.known.standardized("mean").reshape(-1), self.known.standardized("noise")
        return self.prior().model(rows, mean, noise)

    def posterior(self, rows: Rows) -> Posterior:
        """Return the posterior given rows at the present hyperparameters."""
        mean, noise = self.known.standardized("mean").reshape(-1), self.known.standardized("noise")
        return posterior(self.prior(), rows, mean, noise)

    def _solves(self, rows: Rows) -> bool:
        return self.solves_scales and self.prior().num_features <= len(rows)

    def _density(self, rows: ArrayRows) -> Tensor:
        """Return the log density of rows, 0-d, with the output scale solved for where that can be done."""
        if not self._solves(rows):
            return self.posterior(rows).log_marginal_likelihood()
        raw = self.known.raw
        with torch.no_grad():
            raw["outputscale"].copy_(self._reference)
            c, solved = best_common_scale(self.linear(rows).detached(), rows.count)
            for name in ("outputscale", "noise"):
                raw[name].add_(c.log().to(raw[name]))
        return PrimalPosterior(self.linear(rows), solved).log_marginal_likelihood()

    # --- subsets ---------------------------------------------------------------------------------

    def _grow(self, reports: list[FitReport], sizes: list[int]) -> str:
        """Optimise on larger subsets, adding to the reports; return how it ended, in words."""
        for size in sizes:
            reports.append(self._optimize(size))
            if len(reports) > 1 and reports[-1].stages[0].gain < SETTLED:
                break
        last = reports[-1].stages[0]
        if last.rows == round(self.count):
            return f"on all {last.rows:,} rows ({reports[-1].message})"
        gain = f"{last.rows:,} rows gained {last.gain:.1g} nats a row on the subset before"
        return gain if last.gain < SETTLED else f"{gain}, and the sample has no more"

    def _sizes(self) -> list[int]:
        n, size, found = len(self.pool), max(LEAST_ROWS, 2 * self.prior().num_features), []
        while size * 2 < n:
            found.append(size)
            size *= GROWTH
        return [*found, n]

    def _searched(self, size: int) -> ArrayRows:
        """Return a subset to search on; a small one in double precision, whose line searches rounding would end."""
        rows = self.subset(size)
        return replace(rows, inputs=rows.inputs.double()) if len(rows) <= LEAST_ROWS else rows

    def _optimize(self, size: int, most: int | None = None) -> FitReport:
        rows = self._searched(size)
        self._reference = self.known.raw["outputscale"].detach().clone()
        solves = self._solves(rows)
        return maximize(
            lambda: self._density(rows),
            self.state,
            self.plan if most is None else replace(self.plan, max_iterations=min(most, self.plan.max_iterations)),
            stage="all rows" if len(rows) == len(self.rows) else f"subset of {len(rows)}",
            held=("outputscale",) if solves else (),
            count=rows.count,
            bounds={"noise": _LOG_RATIO} if solves else {},
            tolerance=1e-10 if len(rows) <= LEAST_ROWS else 1e-7,
        )

    def _choose_start(self, size: int) -> None:
        """Take the best of a few lengthscales, by the likelihood of a subset."""
        if self.model._options["lengthscale"] is not None or "lengthscale" in self.plan.fixed:
            return
        rows, kept = self._searched(size), {name: raw.detach().clone() for name, raw in self.known.raw.items()}

        def begin(factor: float) -> None:
            for name, raw in kept.items():
                self.known.raw[name].copy_(raw)
            self.known.raw["lengthscale"].add_(torch.tensor(factor).log().to(raw))

        def values() -> dict[str, Tensor]:
            found = []
            for factor in STARTS:
                begin(factor)
                found.append(float(self._density(rows)))
            return {"values": torch.tensor(found, dtype=torch.float64)}

        found = self.plan.journal.remember("starts", values)["values"]
        begin(STARTS[int(found.argmax())])

    def _learn(self) -> Outcome:
        """Learn the frequencies; the model has them then, if they are worth it."""
        outcome = Learning(self.model, self.pool.take(self._order), self.plan, self.solves_scales).run()
        if outcome.frequencies is not None:
            draw = self.model._map_class(outcome.frequencies)
            self.model._state = self.state = replace(self.state, draw=draw)
        return outcome

    # --- all rows --------------------------------------------------------------------------------

    def _finish(self, reports: list[FitReport], words: str, is_done: bool, outcome: Outcome | None = None) -> FitReport:
        """Solve noise and scale on all rows where a subset was optimised, keep the posterior, and report."""
        is_learned = outcome is not None and outcome.frequencies is not None
        found = self._whole(reports, is_done, outcome.kept_out if outcome is not None and is_learned else None)
        total = float(found.log_marginal_likelihood()) + self.state.scaling.targets.log_jacobian(self.count)
        predictor, state = found.predictor(), self.model._known()
        self.model._kept = Kept(state, self.known.flat(), predictor.tensors(), predictor)
        calibration, density = self._check(found, self.subset(CHECKED_ROWS) if outcome is None else outcome.kept_out)
        converged = all(report.converged for report in reports)
        stages = tuple(stage for report in reports for stage in report.stages)
        if outcome is not None:
            stages, words = (*stages, outcome.stage), f"{words}; {outcome.words}"
        return FitReport(
            converged=converged,
            iterations=sum(stage.iterations for stage in stages),
            evaluations=sum(stage.evaluations for stage in stages),
            log_marginal_likelihood=total,
            message=f"{'converged' if converged else 'stopped'}: {words}" if reports else words,
            at_bounds=self._at_bounds(),
            trace=reports[-1].trace if reports else (),
            stages=stages,
            frequencies=_kind(outcome),
            calibration=calibration,
            leave_one_out=density,
            weights_used=found.weights_used if isinstance(found, PrimalPosterior) else None,
        )

    def _whole(self, reports: list[FitReport], is_done: bool, kept_out: ArrayRows | None) -> Posterior:
        """Return the posterior given all rows."""
        if self.prior().num_features > len(self.rows):
            return self.posterior(self.rows)
        free = {name for name, _, _ in self.known.free(self.plan.fixed)} & {"noise", "outputscale"}
        if not is_done and not self.solves_scales and free:
            held = set(self.known.names) - free
            stage, whole = "noise and scale on all rows", self.rows
            reports.append(
                maximize(
                    lambda: self.posterior(whole).log_marginal_likelihood(),
                    self.state,
                    self.plan,
                    stage=stage,
                    held=tuple(held),
                    tolerance=1e-7,
                )
            )
        model = self.linear(self.rows)
        statistics = Statistics(**self.plan.journal.remember("a pass over all rows", lambda: gather(model)._asdict()))
        if not is_done and self.solves_scales:
            solve_scales(model, self.known, self.count, statistics)
            model = self.linear(self.rows)
            if kept_out is not None:
                calibrate_noise(model, self.known, statistics, kept_out)
                model = self.linear(self.rows)
        return PrimalPosterior(model, solve(statistics, model.variance, model.noise))

    def _at_bounds(self) -> tuple[str, ...]:
        found = []
        for name, raw, limits in self.known.free(self.plan.fixed):
            low, high = zip(*limits, strict=True)
            if low[0] is None:
                continue
            values = raw.detach().reshape(-1).double()
            bounds = (torch.tensor(side, dtype=torch.float64) for side in (low, high))
            if any(bool(((values - bound).abs() < 1e-6).any()) for bound in bounds):
                found.append(name)
        return tuple(found)

    def _check(self, found: Posterior, rows: ArrayRows) -> tuple[float, float]:
        """Return the mean square of standardised leave-one-out residuals, and the mean log density of a value."""
        if not isinstance(found, PrimalPosterior):
            rows = gathered(self.rows)
        mean, variance = leave_one_out(found, rows, self.known.standardized("noise").double())
        squares = (rows.targets - mean).square() / variance
        density = -0.5 * (squares + (2 * torch.pi * variance).log()).mean()
        jacobian = self.state.scaling.targets.log_jacobian(1) / rows.num_outputs
        return float(squares.mean()), float(density) + jacobian


def _kind(outcome: Outcome | None) -> str:
    if outcome is None:
        return "fixed"
    return "fell back" if outcome.frequencies is None else "learned"
