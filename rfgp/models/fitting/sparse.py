"""Fitting through features: a subset of the rows that grows until the optimum stops moving, then all of them.

1. Starts: common lengthscales, compared on the first subset by their likelihood; the best two that are far apart are
   both optimised there.
2. Subsets: L-BFGS on n_1, 4 n_1, ... rows, until a larger subset gains less than a thousandth of a nat a row on what
   the last one found. The output scale is solved for at each evaluation.
3. Frequencies, where they are learned (`rfgp.models.fitting.learning`), in the place of larger subsets.
4. All rows (`rfgp.models.fitting.finish`): noise and output scale again, because a subset knows less of what the
   features miss; then the density.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rfgp import random
from rfgp.inference import ArrayRows, FeaturePrior, LinearModel, Posterior, PrimalPosterior, Rows, posterior
from rfgp.inference.scales import best_common_scale
from rfgp.models.fitting.finish import finish
from rfgp.models.fitting.lbfgs import Plan, maximize
from rfgp.models.fitting.learning import Learning, Outcome
from rfgp.models.fitting.report import FitReport, Stage
from rfgp.models.fitting.values import RawValues, clamp, restore, values_of
from rfgp.models.state import ArrayPart

if TYPE_CHECKING:
    from rfgp.models.table import SparseSpectrumGP

LEAST_ROWS = 2000
"""Of the first subset."""
GROWTH = 4
SETTLED = 1e-3
"""Nats a row: what a larger subset may gain before the optimum counts as settled."""
STARTS = (1 / 32, 1 / 16, 1 / 8, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Multiples of the starting lengthscale."""
APART = 4.0
"""The factor between the lengthscales of two starts that are both optimised."""
BEGINNING = 10
"""Iterations on the first subset before frequencies are learned: more of them drive columns out of reach of the steps
that follow, and features that are all short or all long swing where rows are few."""
_LOG_RATIO = (-27.0, 9.0)
"""Bounds of log(noise / output scale), while their common scale is solved for."""


class Fit:
    """A fit of a model through features, in place.

    Args:
        model: With the data and starting values in its state.
        plan: What the user asked for.
    """

    def __init__(self, model: "SparseSpectrumGP", plan: Plan) -> None:
        self.model, self.plan = model, plan
        self.hyperparameters, data = model.hyperparameters, model._known().known_data("a fit")
        self.rows, part = data.rows, data.parts[0]
        pool = part.rows if isinstance(part, ArrayPart) else part.sample
        assert pool is not None  # a fit's own data are surveyed
        self.pool: ArrayRows = pool
        self._order = torch.randperm(len(self.pool), generator=random.generator(model.seed, random.Role.SAMPLE))
        self._reference = self.hyperparameters.raw["outputscale"].detach().clone()
        tied = {"noise", "outputscale"} & {*plan.fixed, *(model._priors or {})}
        self.solves_scales = not tied and not self.rows.knows_noise

    def run(self) -> FitReport:
        """Fit, and return how it went."""
        with torch.no_grad():
            outcome = self._learned() if self.model._options["frequencies"] == "learned" else None
            if outcome is not None and outcome.frequencies is not None:
                return finish(self, [outcome.begun], outcome.words, False, outcome)
            if not self.hyperparameters.free(self.plan.fixed):
                return finish(self, [], "every hyperparameter is fixed", True, outcome)
            reports, words = self._grow()
            words = words if outcome is None else f"{words}; {outcome.words}"
            return finish(self, reports, words, reports[-1].stages[-1].rows == len(self.rows), outcome)

    # --- pieces ----------------------------------------------------------------------------------

    def subset(self, size: int) -> ArrayRows:
        """Return so many rows of the pool in random order: those of a smaller subset and more, or all as they are."""
        return self.pool if size >= len(self.pool) else self.pool.take(self._order[:size])

    def prior(self) -> FeaturePrior:
        """Return the prior at the present hyperparameters."""
        return self.model._prior(self.hyperparameters, self.model._known().draw)

    def linear(self, rows: Rows) -> LinearModel:
        """Return the linear model of rows at the present hyperparameters."""
        return self.prior().model(rows, *self._mean_and_noise())

    def posterior(self, rows: Rows) -> Posterior:
        """Return the posterior given rows at the present hyperparameters."""
        return posterior(self.prior(), rows, *self._mean_and_noise())

    def _mean_and_noise(self) -> tuple[Tensor, Tensor]:
        return self.hyperparameters.standardized("mean").reshape(-1), self.hyperparameters.standardized("noise")

    def _solves(self, rows: Rows) -> bool:
        return self.solves_scales and self.prior().num_features <= len(rows)

    def _density(self, rows: ArrayRows) -> Tensor:
        """Return the log density of rows, 0-d, with the output scale solved for where that can be done."""
        if not self._solves(rows):
            return self.posterior(rows).log_marginal_likelihood()
        raw = self.hyperparameters.raw
        with torch.no_grad():
            raw["outputscale"].copy_(self._reference)
            c, solved = best_common_scale(self.linear(rows).detached(), rows.count)
            for name in ("outputscale", "noise"):
                raw[name].add_(c.log().to(raw[name]))
        return PrimalPosterior(self.linear(rows), solved).log_marginal_likelihood()

    # --- searches --------------------------------------------------------------------------------

    def _grow(self) -> tuple[list[FitReport], str]:
        """Optimise on larger and larger subsets; return the reports, and how it ended, in words."""
        sizes = self._sizes()
        reports = [self._best_of_starts(self._searched(self.subset(sizes[0])))]
        for size in sizes[1:]:
            reports.append(self._optimize(self._searched(self.subset(size))))
            if reports[-1].stages[0].gain < SETTLED:
                break
        last = reports[-1].stages[0]
        if last.rows == len(self.rows):
            return reports, f"on all {last.rows:,} rows ({reports[-1].message})"
        gain = f"{last.rows:,} rows gained {last.gain:.1g} nats a row on the subset before"
        return reports, gain if last.gain < SETTLED else f"{gain}, and the sample has no more"

    def _sizes(self) -> list[int]:
        n, size, found = len(self.pool), max(LEAST_ROWS, 2 * self.prior().num_features), []
        while size * 2 < n:
            found.append(size)
            size *= GROWTH
        return [*found, n]

    def _searched(self, rows: ArrayRows) -> ArrayRows:
        """Return rows to search on; few of them in double precision, because rounding would end its line searches."""
        return replace(rows, inputs=rows.inputs.double()) if len(rows) <= LEAST_ROWS else rows

    def _best_of_starts(self, rows: ArrayRows) -> FitReport:
        """Optimise from the best of the starts, and from the best one far from it; keep the better optimum."""
        begun, order = values_of(self.hyperparameters), self._ranked_starts(rows)
        best: tuple[FitReport, RawValues] | None = None
        stages: tuple[Stage, ...] = ()
        others = [factor for factor in order if not 1 / APART < factor / order[0] < APART]
        for number, factor in enumerate(dict.fromkeys([order[0], *others[:1]])):
            restore(self.hyperparameters, begun, factor)
            found = self._optimize(rows, restart=number)
            stages += found.stages
            if best is None or found.log_marginal_likelihood > best[0].log_marginal_likelihood:
                best = found, values_of(self.hyperparameters)
        assert best is not None
        restore(self.hyperparameters, best[1])
        return replace(best[0], stages=stages)

    def _ranked_starts(self, rows: ArrayRows) -> list[float]:
        """Return multiples of the starting lengthscale, the best first by the likelihood of rows."""
        if self.model._options["lengthscale"] is not None or "lengthscale" in self.plan.fixed:
            return [1.0]
        begun = values_of(self.hyperparameters)

        def values() -> dict[str, Tensor]:
            found = []
            for factor in STARTS:
                restore(self.hyperparameters, begun, factor)
                found.append(float(self._density(rows) + self.hyperparameters.log_prior()))
            return {"values": torch.tensor(found, dtype=torch.float64)}

        found = self.plan.journal.remember("starts", values)["values"]
        restore(self.hyperparameters, begun)
        return [STARTS[i] for i in found.argsort(descending=True).tolist()]

    def _optimize(self, rows: ArrayRows, most: int | None = None, restart: int = 0) -> FitReport:
        """Run L-BFGS on rows, with the output scale solved for unless that leads out of the bounds."""
        stage = "all rows" if len(rows) == len(self.rows) else f"subset of {len(rows)}"
        solves = self._solves(rows)
        self._reference = self.hyperparameters.raw["outputscale"].detach().clone()
        report = self._maximize(rows, stage + " again" * restart, most, solves)
        if not solves or not clamp(self.hyperparameters, ("noise", "outputscale")):
            return report
        bounded = self._maximize(rows, f"{stage} within bounds" + " again" * restart, most, False)
        return replace(bounded, stages=(*report.stages, *bounded.stages))

    def _maximize(self, rows: ArrayRows, stage: str, most: int | None, solves: bool) -> FitReport:
        density = self._density if solves else lambda r: self.posterior(r).log_marginal_likelihood()
        return maximize(
            lambda: density(rows),
            self.model._known(),
            self.plan if most is None else replace(self.plan, given_iterations=min(most, self.plan.max_iterations)),
            stage=stage,
            held=("outputscale",) if solves else (),
            rows=rows,
            bounds={"noise": self._ratio_bounds()} if solves else {},
            tolerance=1e-10 if len(rows) <= LEAST_ROWS else 1e-7,
        )

    def _ratio_bounds(self) -> tuple[float, float]:
        """Return bounds of log noise beside the output scale that is held while their common scale is solved for."""
        held = float(self._reference)
        return held + _LOG_RATIO[0], held + _LOG_RATIO[1]

    def _learned(self) -> Outcome:
        """Learn the frequencies; the model has them then, if they are worth it."""
        learning = Learning(self.model, self.pool, self._order, self.plan, self.solves_scales)
        if learning.is_possible:
            begun, values = self.hyperparameters.free(self.plan.fixed), values_of(self.hyperparameters)
            if begun:
                rows = self._searched(learning.pool.take(torch.arange(min(self._sizes()[0], len(learning.pool)))))
                restore(self.hyperparameters, values, self._ranked_starts(rows)[0])
                learning.begun = self._optimize(rows, BEGINNING)
            outcome = learning.run()
            if outcome.frequencies is None:
                restore(self.hyperparameters, values)
        else:
            outcome = learning.refusal()
        if outcome.frequencies is not None:
            draw = self.model._map_class(outcome.frequencies)
            self.model._state = replace(self.model._known(), draw=draw)
        return outcome
