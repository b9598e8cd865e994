"""Fitting features and a local process by one likelihood.

Neighbours are the nearest in the local lengthscales, so they are found again after each search and stay fixed within
one. Of many rows the likelihood is that of 16,384, each beside all its neighbours, whatever rows these are: a table of
these rows alone would be another one, in which less is local. It is that of what they say beside their neighbours,
which with the features marginalised is no sum over rows: of the weights only these rows tell. Frequencies are learned
in `rfgp.fitting.together`.

The likelihood has optima where the features take what the local process would do better, and others. So the local
process is searched alone as well; where that is more likely than both after as many iterations, a search for both
begins from there, with weak features, and of the two the one goes on whose rows are likelier given all the others. (Of
3,000 rows of bike the likelihood is 1.71 nats a row from the usual start and 3.62 from the local process; of elevators
-.470 and -.459, but left out they have -.413 and -.422, and held-out rows -.454 and -.490.)
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rfgp.fitting.finish import if_finite, left_out
from rfgp.fitting.frequencies import MOST_SCALE
from rfgp.fitting.maximize import ENOUGH, Bounds, Objective, Plan, Told, maximize
from rfgp.inference import Evidence, LocalEvidence, LocalPrior
from rfgp.inference.evidence import Guess
from rfgp.inference.laws import normal_log_density
from rfgp.inference.local import BlockedLocalEvidence, is_large
from rfgp.local import used
from rfgp.parameters import Values
from rfgp.regression import FitReport, InducingFamily, LocalFamily, Regression, mean_and_noise
from rfgp.rows import Block, gathered
from rfgp.threads import in_one_thread

MOST_ROWS = 2**14
"""Rows that are searched on where there are twice as many; else all of them.

On 41,000 rows of protein all of them gained .002 nats a row on the optimum of these, in twice the time.
"""
MISSED, CHANCE = 0.1, 2.0
"""Nats by which a row may be less likely than those that were searched on; and so many standard errors, for rows whose
log densities have a deviation of one. Where noise is as good as none two rows near
each other with different targets are all that speaks for some, and a search without them ends at the lower bound: of
4,096 rows of 9,900 of protein at -.86 nats a row, where all have -23,000."""
ROUNDS, SETTLED, ROUGHLY = 6, 2e-3, 2e-2
"""Searches with new neighbours on the same rows, at most; and the nats a row that one must gain for another: where all
rows are fitted, and where some are, to measure a choice by (keggdirected, 1,000 rows: two searches in place of six)."""
AT_FIRST, WEAK = 2, math.log(0.1)
"""Searches before other starts are looked at; and the logarithm of the features' variance beside the local process
that was searched alone, in the targets'."""
ALONE = ("lengthscale", "outputscale")
"""Hyperparameters of the features."""
EACH = 25
"""Iterations of a search before the neighbours are found again."""
NARROW = 512
"""Features up to which a second thread of matrix products gets in the way of the loops (1,216 rows: 16 s and 10)."""
MOST_CHECKED = 2**17
"""Rows up to which their leave-one-out predictions are reported, and rough searches are held against all of them."""
FREQUENCIES, POINTS = "frequencies", "inducing"
"""The names of frequencies (m, d) and of inducing points (M, d) among values that are searched."""


@dataclass(frozen=True, eq=False)
class LocalFit:
    """A regression with a local process that is to be fitted.

    Attributes:
        family: Of the regression.
        regression: At its starting values.
        plan: What the user asked for.
        rows: All that are learned from, in order.
        most: How many of them are searched on where there are twice as many.
    """

    family: LocalFamily | InducingFamily
    regression: Regression
    plan: Plan
    rows: Block
    most: int

    @classmethod
    def of(cls, regression: Regression, plan: Plan) -> "LocalFit":
        """Return the fit of a regression."""
        rows, family = gathered(regression.needed_rows("a fit")), regression.family
        assert isinstance(family, LocalFamily | InducingFamily)
        prior = family.prior(regression.hyperparameters)
        assert isinstance(prior, LocalPrior)
        return cls(family, regression, plan, rows.take(prior.order(len(rows))), plan.most_rows or MOST_ROWS)

    @property
    def pool(self) -> Block:
        """The rows that inducing points are chosen among: all."""
        return self.rows

    def with_more(self, values: Values) -> "LocalFit":
        """Return the fit on twice as many rows, or all; it begins where fewer ended, where nothing is beside it."""
        wider = replace(self, most=2 * self.most)
        if self.plan.most_rows is None or not isinstance(self.family, LocalFamily) or self.family.base is not None:
            return wider
        return replace(wider, regression=self.regression.replace(hyperparameters=values))

    def through(self, family: LocalFamily | InducingFamily) -> "LocalFit":
        """Return the fit through other features."""
        return replace(self, family=family, regression=self.regression.replace(family=family))

    def prior(self, values: Values) -> LocalPrior:
        """Return the prior at values, with the frequencies or points among them where there are some."""
        searched = next((values.raw[name] for name in (FREQUENCIES, POINTS) if name in values.raw), None)
        prior = self.family.prior(values) if searched is None else self.family.prior_of(searched, values)
        assert isinstance(prior, LocalPrior)
        return prior

    @property
    def looks_around(self) -> bool:
        """Whether other starts are looked at."""
        return self.plan.max_iterations > 0 and not self.plan.is_begun

    @property
    def is_narrow(self) -> bool:
        """Whether the features are so few that loops over rows, which have threads of their own, are most of it."""
        return self.prior(self.regression.hyperparameters).num_features <= NARROW

    @property
    def size(self) -> int:
        """The number of rows that are searched on."""
        enough = self.most if self.plan.most_rows else 2 * self.most
        return len(self.rows) if len(self.rows) <= enough else self.most

    @property
    def told(self) -> Tensor | None:
        """The numbers of the rows that are searched on; None: all."""
        return None if self.size == len(self.rows) else torch.linspace(0, len(self.rows) - 1, self.size).long()

    def has_missed(self, values: Values, report: FitReport) -> bool:
        """Return whether all rows are far less likely than those that were searched on, each of them beside its own."""
        if self.told is None or not report.stages:
            return False
        with torch.no_grad():
            every = self._density_of_all(values)
        count = self.rows.take(self.told).count
        searched = report.log_marginal_likelihood - self.regression.scaling.targets.log_jacobian(count)
        by_chance = CHANCE / math.sqrt(count)
        return not every > searched / count - MISSED - by_chance

    def _density_of_all(self, values: Values) -> float:
        """Return the log density of a row, of all, or of 16,384 where the search is a rough one among very many."""
        if self.plan.most_rows is not None and len(self.rows) > MOST_CHECKED:
            wider = replace(self, most=MOST_ROWS)._objective(values, alone=False)
            return float(wider.density(values).value) / wider.count
        prior, (mean, noise) = self.prior(values).detached(), mean_and_noise(values)
        by = BlockedLocalEvidence if is_large(prior, len(self.rows)) else LocalEvidence.of
        every = by(prior, self.rows, mean.double(), noise.double()).log_marginal_likelihood()
        return float(every) / self.rows.count

    def gained(self, report: FitReport) -> bool:
        """Return whether a search gained so much that one with new neighbours may."""
        least = SETTLED if self.plan.most_rows is None else ROUGHLY
        return bool(report.stages) and report.stages[0].gain >= least

    def search(self, values: Values, stage: str, alone: bool = False, last: bool = False) -> tuple[Values, FitReport]:
        """Search with the neighbours that rows have at these values; return the values found and the report.

        Args:
            values: Where to begin.
            stage: What follows the number of rows in its name.
            alone: Whether to leave the features out; of one kernel, neighbours then estimate all of it.
            last: Whether no search with other neighbours follows, so that this one goes to its end.
        """
        size, objective = self.size, self._objective(values, alone)
        plan = self.plan if last else replace(self.plan, given_iterations=min(EACH, self.plan.max_iterations))
        name = f"{size:,} rows{stage}" if size < len(self.rows) else f"all rows{stage}"
        with in_one_thread(self.is_narrow):
            tolerance = max(ENOUGH / objective.count, 1e-7)
            held = ALONE if alone and isinstance(self.family, LocalFamily) else ()
            return maximize(objective, values, plan, stage=name, held=held, bounds=self._bounds(), tolerance=tolerance)

    def _bounds(self) -> Bounds:
        """Return the bound of the output scale of features beside a local process, unless a prior or a start says.

        As on the way to learned frequencies. Of three splits of elevators one had 18,000 without it: .008 nats a row
        likelier, but two rows far from all others gave an RMSE of 1.55, and .35 with it. On 12 tables of 159 to 3,338
        rows, three splits of each, it lowered the NLPD 8 times, raised it 9 times, by .0006 less in all, and was not
        met 19 times.
        """
        begin, starts = self.regression.hyperparameters, self.family.options.starts
        tied = starts["outputscale"] is not None or "outputscale" in begin.space.hyperpriors
        if tied or not isinstance(self.family, LocalFamily) or self.family.base is None:
            return {}
        least, _ = begin.space.quantities["outputscale"].bounds
        return {"outputscale": (float(least.log()), max(math.log(MOST_SCALE), float(begin.raw["outputscale"])))}

    def density_left_out(self, values: Values) -> float:
        """Return the mean log density of a row given all the others, by their observations."""
        prior, (mean, noise) = self.prior(values), mean_and_noise(values)
        with torch.no_grad():
            of = LocalEvidence.of(prior, self.rows, mean.double(), noise.double()).leave_one_out()
        return float(normal_log_density(self.rows.targets, of[0], of[1][:, None]).mean())

    def _objective(self, values: Values, alone: bool) -> Objective:
        some = self.told
        with torch.no_grad():
            pattern, columns = used(self.prior(values).neighbors(self.rows.inputs, some))
        beside = self.rows.take(torch.from_numpy(columns))
        told = self.rows if some is None else self.rows.take(some)

        def density(values: Values, near: Guess = ()) -> Told:
            prior, (mean, noise) = self.prior(values), mean_and_noise(values)
            prior = replace(prior, features=None, is_residual=False) if alone else prior
            found = LocalEvidence(prior, beside, mean.double(), noise.double(), pattern)
            return Told(found.log_marginal_likelihood(), values)

        return Objective(density, len(told), told.count, self.regression.scaling.targets.log_jacobian(told.count))


Found = tuple[LocalFit, Values, list[FitReport]]
"""Of a search: the fit with the features that it chose, the values, and the reports."""
Search = Callable[[LocalFit], Found]


def fit_local(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression with a local process; return the one found, with its posterior, and how it went."""
    _, values, reports = search_all(LocalFit.of(regression, plan))
    return ended(regression.replace(hyperparameters=values), plan, reports)


def _search(fit: LocalFit) -> Found:
    """Search, again and again with new neighbours while these gain."""
    begin = fit.regression.hyperparameters
    values, reports = rounds(fit, begin, AT_FIRST)
    if isinstance(fit.family, LocalFamily) and fit.family.base is not None and fit.looks_around:
        other, more = from_local(fit, begin, reports[-1].log_marginal_likelihood)
        if other is not None and is_better(fit, (other, more[-1]), (values, reports[-1])):
            values, reports = other, [*reports, *more]
        else:
            reports = [*more, *reports]
    return fit, *settled(fit, values, reports)


def search_all(fit: LocalFit, search: Search = _search) -> Found:
    """Search, and on more rows where those searched on mislead; return the fit, the values and all reports.

    Args:
        fit: With the fewest rows.
        search: What searches on the rows of a fit.
    """
    found, values, reports = search(fit)
    while found.has_missed(values, reports[-1]):
        fit = fit.with_more(values)
        found, values, more = search(fit)
        reports = [*reports, *more]
    return found, values, reports


def settled(fit: LocalFit, values: Values, reports: list[FitReport]) -> tuple[Values, list[FitReport]]:
    """Search with new neighbours after the first searches, if the last one gained; return all reports."""
    if not fit.gained(reports[-1]):
        return values, reports
    values, more = rounds(fit, values, ROUNDS - AT_FIRST, AT_FIRST)
    return values, [*reports, *more]


def rounds(
    fit: LocalFit, values: Values, most: int, before: int = 0, name: str = "", alone: bool = False
) -> tuple[Values, list[FitReport]]:
    """Search at most so many times, each with new neighbours, after so many before."""
    reports = list[FitReport]()
    for number in range(before, before + most):
        values, report = fit.search(values, name + f", neighbours {number + 1}" * bool(number), alone)
        reports.append(report)
        if not fit.gained(report):
            break
    return values, reports


def from_local(fit: LocalFit, begin: Values, likelihood: float) -> tuple[Values | None, list[FitReport]]:
    """Search for the local process alone, and from there for both if it is likelier; else there are no values."""
    values, reports = rounds(fit, begin, AT_FIRST, name=", the local process alone", alone=True)
    if not reports[-1].log_marginal_likelihood > likelihood:
        return None, reports
    if "outputscale" not in fit.plan.fixed:
        values = values.replaced({"outputscale": torch.full_like(values.raw["outputscale"], WEAK)})
    values, more = rounds(fit, values, AT_FIRST, name=", from the local process")
    return values, [*reports, *more]


def is_better(fit: LocalFit, one: tuple[Values, FitReport], other: tuple[Values, FitReport]) -> bool:
    """Return whether rows are likelier given all the others; of very many rows, whether these are likelier."""
    if len(fit.rows) <= MOST_CHECKED:
        return fit.density_left_out(one[0]) > fit.density_left_out(other[0])
    return one[1].log_marginal_likelihood > other[1].log_marginal_likelihood


def ended(found: Regression, plan: Plan, reports: list[FitReport], words: str = "") -> tuple[Regression, FitReport]:
    """Return a regression with its posterior, and the report of all searches with what its rows say at the end.

    Where the plan asks for a search on some rows only, the rest is left to whoever asks for it.

    Args:
        found: At the values found.
        plan: What the user asked for.
        reports: Of the searches; the last has converged if it says so, or if its new neighbours brought little.
        words: How it ended, where that was no matter of the likelihood alone.
    """
    last = reports[-1]
    if plan.most_rows is not None:
        return found, last.with_all(reports)
    converged = last.converged or bool(words) or (last.iterations > 0 and last.stages[0].gain < SETTLED)
    message = last.message if last.converged else "new neighbours gained little" if converged else last.message
    rows = gathered(found.needed_rows("a fit"))
    with torch.no_grad():
        told: Evidence = found.evidence(rows)
        total = float(told.log_marginal_likelihood()) + found.scaling.targets.log_jacobian(rows.count)
        left = left_out(found, told, rows) if len(rows) <= MOST_CHECKED else (math.nan,) * 3
        calibration, density, neighbors = map(if_finite, left)
        report = replace(
            last.with_all(reports),
            converged=converged,
            message=words or message,
            log_marginal_likelihood=total,
            likelihood_error=told.likelihood_error,
            calibration=calibration,
            leave_one_out=density,
            neighbors=neighbors,
        )
        return found.replace(given=told.posterior()), report
