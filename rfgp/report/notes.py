"""What a reader of a study should know besides its figures, in sentences for the page and the terminal."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from graphs.builders.files import printable
from rfgp.counts import counted
from rfgp.models import Process
from rfgp.report.baselines import Baseline

_NEAR = 0.01
_WORTH = 0.99  # of the model's error: what a simple rule has to stay below to be spoken of
_NAMED = 3
_SPANNED, _SKEWED = 100.0, 1.0  # of a target: the ratio of its ends, and its skewness

_SIDES = {
    (
        "noise",
        "lower",
    ): "the fit takes the observations as exact, as values that are computed, or copied, or too few for "
    "the model; error bars are those of the function alone",
    ("noise", "upper"): "the fit explains nothing of the observations",
    ("outputscale", "lower"): "the fit explains nothing of the observations",
    (
        "outputscale",
        "upper",
    ): "the data do not bound how far the function swings, and predictions far from them are wild",
    ("local.outputscale", "lower"): "nothing is local, and the process beside the features is as good as off",
}


def of_rules(rules: Sequence[Baseline], rmse: float) -> tuple[str, ...]:
    """Say that a simple rule predicts better than a model with this error, where one does."""
    best = min(rules, key=lambda rule: rule.rmse)
    if best.rmse >= _WORTH * rmse:
        return ()
    return (f"A simple rule predicts the held-out part better: the {best.name} has an RMSE of {best.rmse:.4g}.",)


def of_choice(model: Process[Any]) -> tuple[str, ...]:
    """Say which candidate was taken, and first where none is clearly better than a simple rule."""
    choice = None if model.fit_report is None else model.fit_report.selection
    if choice is None:
        return ()
    rule = choice.unbeaten_baseline
    poor = () if rule is None else (f"Nothing that was tried is better than {rule}.",)
    return (*poor, f"Chosen: {choice.reason}")


def of_scale(y: NDArray[np.float64], name: str) -> tuple[str, ...]:
    """Say that the logarithm of targets (n,) may serve better: they span a factor of 100, and it is far less skewed."""
    if y.min() <= 0 or y.max() < _SPANNED * y.min():
        return ()
    skewness, of_logarithm = float(stats.skew(y)), abs(float(stats.skew(np.log(y))))
    if skewness < _SKEWED or of_logarithm > skewness / 2:
        return ()
    return (
        f"{printable(name)[:40]} is positive, from {y.min():.3g} to {y.max():.3g}, and skewed ({skewness:.1f}; its "
        f"logarithm {of_logarithm:.1f}): fitting its logarithm may serve better (--log).",
    )


def of_bounds(model: Process[Any], columns: Sequence[str]) -> tuple[str, ...]:
    """Say in words which hyperparameters ended at a bound, and what that means; columns (d,) name lengthscales."""
    report = model.fit_report
    return tuple(
        text for name in (() if report is None else report.at_bounds) for text in _of_bound(model, name, columns)
    )


def _of_bound(model: Process[Any], name: str, columns: Sequence[str]) -> Iterator[str]:
    found, (term, _, own) = model.hyperparameters.values, name.rpartition(".")
    is_alone = not term or sum(other.endswith(f".{own}") for other in found.space.names) == 1
    path, what = (own, "function") if is_alone else (f"{own} of the term {term}", f"term {term}")
    raw = found.raw[name].detach().double().cpu().reshape(-1).tolist()
    for side, place in (("lower", 0), ("upper", 1)):
        limits = [pair[place] for pair in found.space.bounds(name)]
        at = [
            i
            for i, (value, limit) in enumerate(zip(raw, limits, strict=True))
            if limit is not None and abs(value - limit) < _NEAR
        ]
        if at and own == "lengthscale" and len(raw) == len(columns):
            yield _of_lengthscales([columns[i] for i in at], "" if is_alone else f" in the {what}", side, what)
        elif at:
            value = float(model.hyperparameters.value(name).detach().reshape(-1)[at[0]])
            shown = f"{math.sqrt(value):.3g} as a standard deviation" if name == "noise" else f"{value:.3g}"
            known = _SIDES.get((name, side), _SIDES.get((own, side)))
            meaning = known or "the search could not go on, so doubt it, or let it begin elsewhere"
            yield f"The {path} is at its {side} bound, {shown}: {meaning}."


def _of_lengthscales(columns: list[str], where: str, side: str, what: str) -> str:
    names = ", ".join(printable(name)[:40] for name in columns[:_NAMED])
    more = f" and {counted(len(columns) - _NAMED, 'other')}" if len(columns) > _NAMED else ""
    of = f"The lengthscale of {names}{where} is at its"
    if len(columns) > 1:
        of = f"The lengthscales of {names}{more}{where} are at their"
    if side == "upper":
        return f"{of} upper bound: the {what} is flat that way, or a straight line."
    return f"{of} lower bound: the {what} changes from row to row that way, which no other row can predict."
