"""Fits of tables whose options are open: a candidate is chosen by measuring, and fitted to all rows."""

import time
from dataclasses import replace

import torch
from torch import Tensor

from rfgp.choosing.averages import mean_and_error, mixture_density
from rfgp.choosing.entries import Entry, entries_of
from rfgp.choosing.grounds import Grounds, has_optima, is_told_all, start_of
from rfgp.choosing.rounds import Rounds
from rfgp.counts import counted
from rfgp.fitting import Plan, fit_terms
from rfgp.regression import Choice, FitReport, Measurement, OpenOptions, Regression
from rfgp.regression.record import RATE
from rfgp.regression.spec import ModelSpec, averaged
from rfgp.regression.table.offers import FEW_ROWS, in_words
from rfgp.rows import Rows, SourceRows, pool_of


def fit_open(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
    """Fit a regression of a table, with the best of the candidates where its options are open.

    Return the regression found, and the report, which has the choice.
    """
    if candidates_of(regression) is None:
        return fit_terms(regression, plan)
    rounds = rounds_of(regression, plan)
    begun = time.monotonic()
    entry = rounds.entries[0] if len(rounds.entries) == 1 else rounds.run()
    measured = time.monotonic()
    found, report = _fitted(regression, entry, rounds.grounds)
    others = [(share, each.found) for share, each in rounds.parts if each is not entry]
    if others:
        found = averaged(
            found, rounds.share_of(entry), [(share, one.regression) for share, one in others if one is not None]
        )
    choice = record(rounds, entry)
    choice = replace(choice, seconds=measured - begun, fit_seconds=time.monotonic() - measured)
    return found, replace(report, choice=choice)


def advised(regression: Regression, plan: Plan) -> Choice:
    """Return what would be chosen, and what each candidate would cost, without the fit to all rows."""
    rounds, begun = rounds_of(regression, plan), time.monotonic()
    entry = rounds.entries[0] if len(rounds.entries) == 1 else rounds.run()
    return replace(record(rounds, entry), seconds=time.monotonic() - begun)


def candidates_of(regression: Regression) -> OpenOptions | None:
    """Return what is left open of a model of a table. None if nothing is."""
    assert isinstance(regression.family, ModelSpec)
    found: OpenOptions | None = regression.family.options.candidates
    return found


def rounds_of(regression: Regression, plan: Plan) -> Rounds:
    """Return the rounds of a regression whose options are open, before anything is measured."""
    candidates, rows = candidates_of(regression), regression.needed_rows("a fit")
    assert candidates is not None
    pool, count = pool_of(rows), len(rows)
    offers = candidates.menu(count, isinstance(rows, SourceRows))
    entries = entries_of(offers, count, pool.inputs.shape[1], pool.num_outputs)
    frequencies = {getattr(entry.offer.options, "frequencies", "none") for entry in entries}
    keeps_out = len(pool) > FEW_ROWS or "learned" in frequencies
    plan = replace(plan, has_rivals="fixed" in frequencies)
    are_exact = len(entries) > 1 and all(entry.offer.options.features == "exact" for entry in entries)
    return Rounds(Grounds.of(regression, plan, keeps_out, are_exact), entries, candidates.limits)


def _fitted(regression: Regression, entry: Entry, grounds: Grounds) -> tuple[Regression, FitReport]:
    """Return the candidate fitted to all rows, from what was found of it; as it is, where that is all rows."""
    found, options = entry.found, entry.offer.options
    if found is not None and found.is_whole:
        return found.regression, found.report
    rows = regression.needed_rows("a fit")
    if found is not None and is_told_all(options, found.searched, len(rows)):
        return _told_all(regression, entry, rows)
    found = None if has_optima(options) else found
    begun = start_of(regression, options, rows, found)
    return fit_terms(begun, grounds.plan_of(options, found))


def _told_all(regression: Regression, entry: Entry, rows: Rows) -> tuple[Regression, FitReport]:
    """Return a candidate with the frequencies and hyperparameters that were measured, given all rows.

    What its report says of searches, and of rows left out, is of the rows that it was measured on.
    """
    assert entry.found is not None
    found, report = entry.found.regression, entry.found.report
    told = start_of(regression, entry.offer.options, rows, None)
    told = told.replace(family=found.family, hyperparameters=found.hyperparameters)
    with torch.no_grad():
        inference = told.infer(rows)
        total = float(inference.log_marginal_likelihood()) + told.scaling.targets.log_jacobian(rows.count)
    words = f"{report.message}; found on {counted(entry.found.searched, 'row')} of {len(rows):,}, then told all"
    report = replace(
        report, log_marginal_likelihood=total, message=words, weights_used=inference.effective_dof_fraction
    )
    return told.replace(given=inference.posterior()), report


def record(rounds: Rounds, entry: Entry) -> Choice:
    """Return the record of what was measured and taken."""
    entries = sorted(rounds.entries, key=lambda each: each.cost.seconds)
    options, grounds = _open(rounds).limits, rounds.grounds
    judged = len(grounds.told) if entry.measured else 0
    way = "each left out in turn" if grounds.judged is None else "kept out, given all others"
    return Choice(
        best=entries.index(entry),
        shares=tuple(rounds.share_of(each) for each in entries) if rounds.parts else (),
        trials=tuple(each.as_trial() for each in entries),
        reason=_reason(rounds, entry),
        judged=judged,
        way=way if judged else "",
        budget=options.seconds(rounds.num_rows),
        memory=options.memory,
        rate=RATE,
        predicted=rounds.predicted,
        rules=_rules(rounds, entry) if judged else {},
    )


def _open(rounds: Rounds) -> OpenOptions:
    options = candidates_of(rounds.grounds.begun)
    assert options is not None
    return options


def _rules(rounds: Rounds, entry: Entry) -> dict[str, Measurement]:
    """Return what simple rules come to beside the candidate that was taken."""
    if entry.found is None:
        return {}
    weight, rules, taken = rounds.grounds.told.counts(), {}, _density(rounds, entry)
    for name, densities in rounds.grounds.rules.items():
        told = (*mean_and_error(densities, weight), *mean_and_error(taken - densities, weight))
        rules[name] = Measurement(len(rounds.grounds.rows), *told)
    return rules


def _density(rounds: Rounds, entry: Entry) -> Tensor:
    """Return the log densities (n,) of the rows that judge, by what was taken."""
    known = [(part.found.density, share) for share, part in rounds.parts if part.found is not None]
    if known:
        return mixture_density(*zip(*known, strict=True))
    assert entry.found is not None
    return entry.found.density


def _reason(rounds: Rounds, entry: Entry) -> str:
    """Return why a candidate was taken, in words."""
    name, last = in_words(entry.offer.options), entry.measured[-1] if entry.measured else None
    if len(rounds.entries) == 1:
        return f"{name}: the only candidate, so nothing was measured."
    if last is None:
        return f"{name}: nothing could be measured, and it is the cheapest."
    rows = f"{counted(len(rounds.grounds.told), 'row')} {'' if rounds.grounds.judged is None else 'kept out '}"
    if rounds.parts:
        parts = [f"{share:.2f} of {in_words(part.offer.options)}" for share, part in rounds.parts]
        value, error = mean_and_error(_density(rounds, entry), rounds.grounds.told.counts())
        return f"The average of {', '.join(parts)}: log density {value:.3f} of {rows}(standard error {error:.2g})."
    told = f"log density {last.value:.3f} of {rows}(standard error {last.error:.2g}), hyperparameters of {last.rows:,}"
    if last.behind <= 0:
        return f"{name}: the best, {told}."
    best = f"{last.behind:.2g} (standard error {last.behind_error:.2g}) behind the best, which costs more"
    return f"{name}: {told}; {best}."
