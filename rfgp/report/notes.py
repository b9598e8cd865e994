"""Notes on a study, in sentences for the page and the terminal."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from graphs.checks import printable
from rfgp.effects.variables import columns_of
from rfgp.gp import GP
from rfgp.messages import counted
from rfgp.report.baselines import Baseline

_NEAR = 0.01
"""The difference of logarithms up to which a hyperparameter is at a bound."""
_BETTER = 0.99
"""The share of the model's error below which a baseline is mentioned."""
_NAMED = 3
"""The maximum number of columns that a note names."""
_SPANNED, _SKEWED = 10.0, 1.0
"""The ratio of the largest to the least target, and the skewness, above which logarithms are suggested."""

_MEANINGS = {
    ("noise", "lower"): "the fit takes the observations as exact, which suits computed or copied values, or there are "
    "too few rows for the model. Intervals are then those of the latent function alone",
    ("noise", "upper"): "the fit explains nothing of the observations",
    ("outputscale", "lower"): "the {subject} is as good as zero",
    ("outputscale", "upper"): "the data do not bound the variance of the {subject}, and predictions far from them are "
    "unreliable",
}
"""The meaning of a hyperparameter at a bound."""


def of_baselines(baselines: Sequence[Baseline], rmse: float) -> tuple[str, ...]:
    """Return a note if a baseline has a smaller error than the model.

    Args:
        baselines: The baselines with their errors.
        rmse: The root mean squared error of the model.

    Examples:
        >>> of_baselines([Baseline("mean", 1.0)], rmse=2.0)
        ('A baseline predicts the held-out part better: the RMSE of the mean is 1.',)
    """
    best = min(baselines, key=lambda baseline: baseline.rmse)
    if best.rmse >= _BETTER * rmse:
        return ()
    return (f"A baseline predicts the held-out part better: the RMSE of the {best.name} is {best.rmse:.4g}.",)


def of_selection(model: GP) -> tuple[str, ...]:
    """Return notes on an unbeaten baseline and on the selected candidate.

    Args:
        model: The fitted model.
    """
    selection = model.selection
    if selection is None:
        return ()
    baseline = selection.unbeaten_baseline
    poor = () if baseline is None else (f"No candidate beat {baseline}. The inputs may not be informative.",)
    return (*poor, f"Selected: {selection.reason}")


def of_scale(y: NDArray[np.float64], name: str) -> tuple[str, ...]:
    """Return a note if the logarithm of targets (n,) may be fitted better.

    This is the case if targets are positive and span a factor of 10. Their skewness must also be above 1, and at least
    twice that of their logarithms.

    Args:
        y: The targets (n,).
        name: The name of the target.

    Examples:
        >>> len(of_scale(np.exp(np.linspace(0, 8, 50)), "price"))
        1
    """
    if y.min() <= 0 or y.max() < _SPANNED * y.min():
        return ()
    skewness, of_logarithm = float(stats.skew(y)), abs(float(stats.skew(np.log(y))))
    if skewness < _SKEWED or of_logarithm > skewness / 2:
        return ()
    return (
        f"{printable(name)[:40]} is positive, from {y.min():.3g} to {y.max():.3g}, with a skewness of {skewness:.1f} "
        f"({of_logarithm:.1f} for its logarithm). A model of its logarithm may be better (--log).",
    )


def of_bounds(model: GP) -> tuple[str, ...]:
    """Return notes on hyperparameters at a bound after the fit, with their meaning.

    Args:
        model: The fitted model.
    """
    report = model.fit_report
    return tuple(text for name in (() if report is None else report.at_bounds) for text in _of_bound(model, name))


def _of_bound(model: GP, name: str) -> Iterator[str]:
    values, (term, _, short_name) = model.hyperparameters.values, name.rpartition(".")
    is_alone = not term or sum(other.endswith(f".{short_name}") for other in values.space.names) == 1
    path, subject = (short_name, "function") if is_alone else (f"{short_name} of the term {term}", f"term {term}")
    raw, columns = values.raw[name].detach().double().cpu().reshape(-1).tolist(), columns_of(model, name)
    for side, end in (("lower", 0), ("upper", 1)):
        limits = [pair[end] for pair in values.space.bounds(name)]
        pairs = zip(raw, limits, strict=True)
        at = [i for i, (value, limit) in enumerate(pairs) if limit is not None and abs(value - limit) < _NEAR]
        if at and short_name == "lengthscale" and len(raw) == len(columns):
            where = "" if is_alone else f" in the {subject}"
            if named := _without_indicators([columns[i] for i in at], model):
                yield _of_lengthscales(named, where, side, subject)
        elif at:
            value = float(model.hyperparameters.value(name).detach().reshape(-1)[at[0]])
            shown = f"{math.sqrt(value):.3g} as a standard deviation" if name == "noise" else f"{value:.3g}"
            meaning = _MEANINGS.get(
                (short_name, side), "the search ended there. Check it, or use another starting value"
            )
            yield f"The {path} is at its {side} bound, {shown}: {meaning.format(subject=subject)}."


def _without_indicators(columns: list[str], model: GP) -> list[str]:
    """Return columns without the indicators of levels."""
    indicators_by_column = model.spec.options.indicators if isinstance(model, GP) else {}
    indicators = {f"{key}={level}" for key, levels in indicators_by_column.items() for level in levels}
    return [column for column in columns if column not in indicators]


def _of_lengthscales(columns: list[str], where: str, side: str, subject: str) -> str:
    names = ", ".join(printable(name)[:40] for name in columns[:_NAMED])
    more = f" and {counted(len(columns) - _NAMED, 'other')}" if len(columns) > _NAMED else ""
    begin = f"The lengthscale of {names}{where} is at its"
    if len(columns) > 1:
        begin = f"The lengthscales of {names}{more}{where} are at their"
    if side == "upper":
        return f"{begin} upper bound: the {subject} is constant or linear there."
    return f"{begin} lower bound: the {subject} changes from row to row there, so that no row informs another."
