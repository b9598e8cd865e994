"""The sections of reports: data, selection, noise, terms, the fit, the exact process, costs and settings."""

import datetime
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from rfgp import curves, metrics
from rfgp.compare import Comparison
from rfgp.compare.results import format_estimate
from rfgp.effects.effects import LEVELS, Effect, effect_sizes, effects_of, scale_of
from rfgp.effects.variables import (
    CATEGORY,
    DATE,
    NUMBER,
    Variable,
    as_dates,
    columns_of_hyperparameter,
    in_own_units,
    is_of_logarithms,
)
from rfgp.gp import GP
from rfgp.graph_gp import GraphGP, MeshGP, RoadGP
from rfgp.likelihoods import Bernoulli
from rfgp.messages import counted, plain
from rfgp.models.report import LOG_DENSITY, MAX_LEFT_OUT, Trial
from rfgp.models.state import predicted
from rfgp.report.page import Block, Grid, Plot, Section, Text, number, sentence
from rfgp.report.study import Study
from rfgp.rows import gathered, is_read_in_blocks
from rfgp.rows.sources import OutputFormat
from rfgp.tables import Table

FEW = 20
"""The fewest held-out points whose coverage of 95 % intervals is assessed."""
MAX_COLUMNS, _MAX_PLOTS = 60, 9
"""The maximum number of columns whose statistics are listed, and against which the target is drawn."""
_POINTS, _NUM_COLUMNS, _MIN_SHARE = 800, 3, 0.1
"""The maximum number of rows of a picture of the noise and of columns against which it is drawn, and the share of the
variance of log scales that each must explain."""
_MAX_ENTRIES = 60
"""The maximum number of entries of a hyperparameter that are listed."""
_ROUNDING = 1e-9  # nats
_MISSING = "-"


# --- Cards -----------------------------------------------------------------------------------------------------------


def cards(study: Study, noun: str) -> list[tuple[str, str, str]]:
    """Return the names, values and remarks of the cards of a report.

    Args:
        study: The study.
        noun: The noun of observations, such as "rows".
    """
    count, covered = len(study.test), round(study.coverage * len(study.test))
    explained = f"{100 * study.r_squared:.1f} %" if math.isfinite(study.r_squared) else "not defined"
    best = min(study.baselines, key=lambda baseline: baseline.rmse, default=None)
    percent = 100 * math.expm1(study.rmse) if study.is_log else 0.0
    density, its_error = study.log_density
    out = [
        (
            "Error on held-out data (RMSE)",
            number(study.rmse),
            sentence("error_card", study=study, best=best, percent=percent),
        ),
        ("Variance explained (R²)", explained, f"of {count:,} held-out {noun}{in_groups(study)}"),
        (
            "Coverage of 95 % intervals",
            f"{100 * study.coverage:.1f} %",
            f"{covered:,} of {count:,}: {verdict(study, noun)}",
        ),
        ("Log density", f"{density:.3f}", sentence("density_card", study=study, error=its_error)),
    ]
    if study.comparison is not None and study.method_and_size is not None:
        (method, size), points = study.method_and_size, len(study.comparison.example.observed)
        kl = study.comparison.estimate("kl", method, size)
        total = format_estimate(kl) if abs(kl.mean) > _ROUNDING else "0 up to rounding"
        remark = sentence("kl_card", method=method, size=size, total=total, points=points, noun=noun)
        out.append(("KL from the exact process", f"{kl.mean / points if abs(kl.mean) > _ROUNDING else 0:.2g}", remark))
    return out


def verdict(study: Study, noun: str) -> str:
    """Return an assessment of the coverage of 95 % intervals and of the calibration curve.

    The levels of the tests are 5 % and 1 %. Standard errors are for the effective number of groups.

    Args:
        study: The study.
        noun: The noun of observations, such as "rows".
    """
    if few := too_few(study, noun):
        return few
    count = int(study.num_independent)
    low, high = stats.binom.ppf([0.025, 0.975], count, 0.95)
    scores = metrics.standardized_residuals(study.observed, study.prediction).abs().cpu().numpy()
    far = stats.kstwo.sf(stats.kstest(scores, stats.halfnorm.cdf).statistic, count) < 0.01
    given = {"low": low, "high": high, "number": count, "covered": study.coverage * count, "far": far}
    return sentence("coverage_card", groups=in_groups(study), **given)


def too_few(study: Study, noun: str) -> str:
    """Return a remark if too few groups are held out to assess the coverage, or ""."""
    if study.num_independent >= FEW:
        return ""
    largest = 0 if study.groups is None else int(np.unique(study.groups, return_counts=True)[1].max())
    groups = study.num_groups if in_groups(study) else 0
    return sentence("too_few", noun=noun, groups=groups, largest=largest, count=len(study.test))


def in_groups(study: Study) -> str:
    """Return a phrase with the number of held-out groups, or "" if each observation is a group."""
    return "" if study.num_groups == len(study.test) else f" in {counted(study.num_groups, 'group')}"


def repeats(study: Study) -> str:
    """Return a sentence with the number of repeated rows, or nodes of observations, or ""."""
    if not study.num_repeated:
        return ""
    of_nodes = isinstance(study.model, GraphGP | MeshGP | RoadGP)
    return sentence("repeats", count=study.num_repeated, of_nodes=of_nodes, is_apart=study.holdout == "random")


# --- The data of a table ---------------------------------------------------------------------------------------------


def glance(table: Table, model: GP, variables: Sequence[Variable], frame: Any) -> Section:
    """Return the section on the data of a table: the target, statistics of columns, and the target against columns.

    Args:
        table: The table.
        model: The fitted model, whose effects order the columns.
        variables: The variables of the table.
        frame: The dataframe of the variables.
    """
    sizes = effect_sizes(model, table)
    table, is_log = in_own_units(table), is_of_logarithms(table)
    order, num_rows = sorted(variables, key=lambda variable: -sizes[variable.name]), len(table.y)
    count = min(_MAX_PLOTS, len(order))
    rows = [statistics_row(each.name, each.values(frame), each.role) for each in order[:MAX_COLUMNS]]
    rows.append(statistics_row(table.target, table.y, NUMBER))
    has_levels = any(variable.role == CATEGORY for variable in order[:MAX_COLUMNS])
    caption = f"{counted(num_rows, 'row')}." + " The median of a category is its most frequent level." * has_levels
    given = {"num_columns": count, "count": num_rows, "most": curves.MAX_POINTS, "is_log": is_log}
    blocks: list[Block] = [
        Plot(curves.histogram(table.y, table.target), f"The target, {table.target}."),
        Grid(STATISTICS, rows, caption, wide=len(rows) > 12 or has_levels),
        Plot(
            curves.small_multiples(table, order[:count], frame, is_log=is_log),
            sentence("against_columns", **given),
            height=120 + 190 * -(-count // 3),
            wide=True,
        ),
    ]
    if table.num_rows > num_rows:
        blocks.append(Text(sentence("left_out", count=num_rows, num_rows=table.num_rows)))
    if table.schema.missing == "mean":
        blocks.append(Text(sentence("filled")))
    if len(order) > MAX_COLUMNS:
        blocks.append(Text(sentence("unlisted", count=len(order) - MAX_COLUMNS)))
    return Section("The data at a glance", blocks)


STATISTICS = ("column", "mean", "sd", "min", "median", "max", "distinct")
"""The header of statistics of columns."""


def statistics(names: Sequence[str], columns: NDArray[np.float64], noun: str) -> Grid:  # columns (n, k)
    """Return a table of the statistics of columns (n, k)."""
    rows = [statistics_row(name, column) for name, column in zip(names, columns.T, strict=True)]
    return Grid(STATISTICS, rows, f"{counted(len(columns), noun)}.")


def statistics_row(name: str, values: NDArray[Any], role: str = NUMBER) -> list[str]:
    """Return the statistics of the values (n,) of a variable.

    Examples:
        >>> statistics_row("size", np.array([1.0, 2.0, 3.0]))
        ['size', '2', '1', '1', '2', '3', '3']
    """
    distinct_values, counts = np.unique(values, return_counts=True)
    shown, distinct = plain(name), f"{len(distinct_values):,}"
    if role == CATEGORY:
        return [shown, "-", "-", "-", plain(distinct_values[counts.argmax()], 24), "-", distinct]
    statistics = [values.mean(), values.min(), np.median(values), values.max()]
    mean, low, middle, high = (
        as_dates(np.floor(statistics)) if role == DATE else [number(float(value)) for value in statistics]
    )
    deviation = number(float(values.std(ddof=1))) + " days" * (role == DATE)
    return [shown, mean, deviation, low, middle, high, distinct]


# --- The selection and the noise -------------------------------------------------------------------------------------


def selections(model: GP) -> Iterator[Section]:
    """Yield the section on a selection, if there was one: candidates with their scores, baselines, and the reason."""
    selection = model.selection
    if selection is None:
        return
    blocks: list[Block] = [Text(plain(selection.reason, 1200))]
    if selection.num_validation:
        is_log_density = selection.measure == LOG_DENSITY
        caption = sentence("candidates", selection=selection, is_log_density=is_log_density)
        height = 140 + 26 * sum(trial.last is not None for trial in selection.trials)
        blocks.append(Plot(curves.candidates(selection), caption, height=height, wide=True))
    header = ["candidate", "score", "standard error", "rows", "difference", "predicted seconds", "MiB", "status"]
    rows = [_trial_row(trial, selection.weight(i)) for i, trial in enumerate(selection.trials)]
    blocks.append(Grid(header, rows, sentence("selection_costs", selection=selection), texts=(7,)))
    yield Section("Model selection", blocks)


def _trial_row(trial: Trial, weight: float) -> list[str]:
    last, cells = trial.last, [_MISSING] * 4
    if last is not None:
        cells = [f"{last.value:.4g}", f"{last.error:.2g}", f"{last.rows:,}", f"{last.difference:.2g}"]
    name = plain(trial.name, 80) + " (selected)" * (weight == 1)
    status = f"{weight:.2f} of the average" if 0 < weight < 1 else plain(trial.status, 160)
    return [name, *cells, f"{trial.seconds:.3g}", f"{trial.memory / 2**20:,.0f}", status]


def noises(model: GP) -> Iterator[Section]:
    """Yield the section on the choice of the noise, if there was one: its scores, and the scale of an observation."""
    if model.selection is None or model.selection.noise is None:
        return
    noise = model.selection.noise
    rows = [
        [trial.name, f"{last.value:.4g}", f"{last.error:.2g}", f"{last.difference:.2g}", f"{last.difference_error:.2g}"]
        for trial in noise.trials
        if (last := trial.last) is not None
    ]
    header = ["noise", "score", "standard error", "difference", "its standard error"]
    grid = Grid(header, rows, sentence("noises", noise=noise))
    yield Section("Noise", [Text(plain(noise.reason, 600)), *_noise_plots(model), grid])


def _noise_plots(model: GP) -> Iterator[Block]:
    """Yield the standard deviation of an observation against the mean and the columns that matter."""
    state = model.state
    if state.scale_model is None or state.rows is None or is_read_in_blocks(state.rows):
        return
    inputs = gathered(state.rows).inputs
    inputs = inputs[torch.from_numpy(curves.thin(len(inputs), _POINTS))]
    observed: Any = predicted(state, inputs, OutputFormat(True, torch.empty(0, dtype=torch.float64))).observed()
    deviations, maps = np.asarray(observed.std), state.scaling.inputs
    known: dict[str, NDArray[np.float64]] = {}
    if maps is not None:
        columns = maps.inverse(inputs.detach()).double().cpu().numpy()
        known = {str(key): columns[:, index] for index, key in state.spec.numeric_columns.items()}
    shares = {name: explained(values, np.log(deviations)) for name, values in known.items()}
    largest = sorted((name for name in known if shares[name] >= _MIN_SHARE), key=lambda name: -shares[name])
    drawn = {"the predicted mean": np.asarray(observed.mean)} | {name: known[name] for name in largest[:_NUM_COLUMNS]}
    for name, values in drawn.items():
        yield Plot(curves.deviations(values, deviations, name), sentence("deviations", name=name))


def explained(
    values: NDArray[np.float64],  # (n,)
    logs: NDArray[np.float64],  # (n,)
    bins: int = 10,
) -> float:
    """Return the share of the variance of log scales that means in bins of equal size explain (correlation ratio).

    Args:
        values: The values that divide the rows into bins.
        logs: The log scales.
        bins: The number of bins.

    Examples:
        >>> x = np.linspace(0, 1, 1000)
        >>> explained(x, x) > 0.98, explained(x, np.tile([0.0, 1.0], 500)) < 0.01
        (True, True)
    """
    parts = np.array_split(logs[np.argsort(values, kind="stable")], bins)
    within = sum(float(((part - part.mean()) ** 2).sum()) for part in parts if len(part))
    total = float(((logs - logs.mean()) ** 2).sum())
    return 1 - within / total if total > 0 else 0.0


# --- Terms and effects -----------------------------------------------------------------------------------------------


def terms(model: GP, table: Table) -> Section:
    """Return the section on the terms of a fitted model of a table: their kernels, approximations and effects."""
    effects, scale = effects_of(model, table), scale_of(model.spec.options.likelihood, table.target)
    blocks: list[Block] = [terms_grid(model)]
    if effects:
        weight = model.members[0][0] if model.members else None
        is_partial = any(effect.is_partial for effect in effects)
        blocks.append(Text(sentence("effects", is_partial=is_partial, weight=weight, scale=scale)))
    for effect in effects:
        height = max(120 + 24 * len(effect.mean), 300) if effect.shape == LEVELS else 360
        drawn = curves.effect_figures(effect, scale)
        captions = _captions(effect, scale.is_factor)
        for i, (figure, caption) in enumerate(zip(drawn, captions, strict=False)):
            blocks.append(Plot(figure, caption, height, starts_row=len(drawn) > 1 and i == 0))
    return Section("Terms and effects", blocks)


def terms_grid(model: GP) -> Grid:
    """Return the table of the terms of a fitted model."""
    rows = []
    for name, term in model.terms.items():
        share = _MISSING if term.share is None else f"{100 * term.share:.1f} %"
        freedom = _MISSING if term.degrees_of_freedom is None else number(term.degrees_of_freedom)
        shown = [plain(text, 200) for text in (repr(term.kernel), repr(term.approximation), term.cost.note)]
        rows.append([plain(name, 60), share, freedom, *shown])
    shares = [term.share for term in model.terms.values() if term.share is not None]
    if len(shares) > 1:
        rows.append(["covariance between terms", f"{100 * (1 - sum(shares)):.1f} %", *[_MISSING] * 4])
    header = ["term", "share of variance", "degrees of freedom", "kernel", "approximation", "computed with"]
    return Grid(header, rows, sentence("terms"), texts=(3, 4, 5))


def _captions(effect: Effect, is_factor: bool) -> Iterator[str]:
    """Yield the captions of an effect, and of the standard deviation of a map."""
    names = [plain(name, 60) for name in effect.terms]
    yield sentence("effect", names=names, columns=[plain(each.name) for each in effect.variables], effect=effect)
    yield sentence("effect_deviation", names=names, is_factor=is_factor)


# --- The fit ---------------------------------------------------------------------------------------------------------


def fit(study: Study) -> Section:
    """Return the section on the fit: its notes, the baselines, and diagnostic plots."""
    y, prediction, likelihood = study.observed, study.prediction, study.model.spec.options.likelihood
    groups, few = study.num_groups if in_groups(study) else 0, too_few(study, "observations")
    blocks: list[Block] = [Text(note) for note in (repeats(study), *study.notes) if note not in ("", study.remark)]
    if study.baselines:
        blocks.append(_errors(study))
    if isinstance(likelihood, Bernoulli):
        blocks += _classes(study)
    elif likelihood.is_discrete:
        blocks.append(Plot(curves.rootogram(y, prediction.observed()), sentence("rootogram")))
    if not isinstance(likelihood, Bernoulli):
        caption = sentence("predicted", count=len(y), most=curves.MAX_BARS)
        blocks.append(Plot(curves.predicted(y, prediction, is_log=study.is_log), caption))
    left_out = study.model.calibration() if study.model.num_observations <= MAX_LEFT_OUT else None
    shown = [curves.coverage("held-out data", y, prediction)]
    shown += [] if left_out is None else [("left-out training rows", left_out.levels, left_out.coverage)]
    figure = curves.calibration(shown, max(1, int(study.num_independent)))
    blocks.append(Plot(figure, sentence("calibration", has_left_out=left_out is not None, groups=groups, few=few)))
    caption = sentence("residuals", count=len(y), most=curves.MAX_POINTS, is_vague=groups and few)
    blocks.append(Plot(curves.residuals(y, prediction), caption))
    found = study.model.fit_report
    if found is not None and len(found.trace) > 1:
        blocks.append(Plot(curves.convergence(found), sentence("trace", fit=found)))
    return Section("The fit", blocks)


def _classes(study: Study) -> list[Block]:
    """Return the reliability and the counts of two classes."""
    y, shares = study.observed, np.asarray(study.prediction.observed().mean)
    right = int(((shares > 0.5) == (y > 0.5)).sum())
    cells = [[int(((y == t) & ((shares > 0.5) == p)).sum()) for p in (0, 1)] for t in (0, 1)]
    rows = [[f"observed {t}", *(f"{cell:,}" for cell in row)] for t, row in enumerate(cells)]
    plot = curves.reliability(y, shares, design_effect=len(y) / study.num_independent)
    caption = sentence("right_classes", right=right, count=len(y))
    grid = Grid(["", "predicted 0", "predicted 1"], rows, caption, wide=False)
    return [Plot(plot, sentence("reliability")), grid]


def _errors(study: Study) -> Grid:
    """Return the errors of the model and of the baselines, as a table."""
    total = float(np.mean((study.observed - study.observed.mean()) ** 2))
    rows = [
        [name, number(rmse), f"{100 * (1 - rmse**2 / total):.1f} %" if total > 0 else "not defined"]
        for name, rmse in (("this model", study.rmse), *study.alternatives, *study.baselines)
    ]
    return Grid(["prediction", "RMSE", "R²"], rows, sentence("errors"), wide=False)


# --- The exact process -----------------------------------------------------------------------------------------------


def accuracy(study: Study) -> Section:
    """Return the section on the approximation against the exact process."""
    blocks = [] if study.comparison is None else distances(study.comparison)
    return Section("Against the exact process", [Text(study.remark), *blocks])


def distances(comparison: Comparison) -> list[Block]:
    """Return the plots and the table of a comparison with the exact process."""
    noun = comparison.size_name
    kind = "coupling" if noun == "frequencies" else "features"
    header = [kind, "m", "kernel error", "KL, nats", "RMSE", "NLPD", "seconds"]
    kernel_error = "Relative error of the kernel matrix in the Frobenius norm; 0.1 is 10 %."
    return [
        Plot(curves.by_size(comparison, "kl"), sentence("kl_by_size", noun=noun)),
        Plot(curves.by_size(comparison, "kernel_error"), kernel_error),
        Plot(curves.against_exact(comparison), sentence("against_exact", example=comparison.example)),
        Grid(header, [row[:-1] for row in comparison.cells()], sentence("scores")),
    ]


# --- Costs and settings ----------------------------------------------------------------------------------------------


def cost(study: Study) -> Section:
    """Return the section on costs."""
    rows = [[f"seconds to {step}", f"{seconds:.2f}"] for step, seconds in study.seconds.items()]
    if study.comparison is not None:
        rows.append(["seconds of the exact process, without a fit", f"{study.comparison.exact[0].seconds:.2f}"])
    for name, term in study.model.terms.items():
        rows.append([f"term {plain(name)}", f"{term.cost.note}; {term.cost.memory / 2**20:,.1f} MiB"])
    caption = "Seconds were measured while this report was made. Memory is predicted from the sizes."
    return Section("Cost", [Grid(["item", "cost"], rows, caption)])


def making(study: Study, settings: Mapping[str, object], command: str | None) -> Section:
    """Return the section on how the report was made.

    Args:
        study: The study.
        settings: The settings by name.
        command: The command that made the report. If None, none is listed.
    """
    report, how = study.model.fit_report, "at random"
    if study.holdout == "last":
        how = "the last in their order"
    elif study.split_by:
        how = f"at random, by {plain(study.split_by)}"
    rows = [[name, plain(value, 300)] for name, value in {**settings, **study.reproduction_settings}.items()]
    rows += [
        ["training part", f"{len(study.train):,}"],
        [f"held-out part, {how}", f"{len(study.test):,}{in_groups(study)}"],
        ["fit", "none" if report is None else sentence("convergence", fit=report)],
    ]
    if study.num_repeated:
        rows.append(["copies", repeats(study)])
    return made_by(study.model, rows, command)


def made_by(model: GP, rows: list[list[str]], command: str | None) -> Section:
    """Return the section on how a report was made, with the versions and the date.

    Args:
        model: The fitted model.
        rows: The settings: names and values.
        command: The command that made the report. If None, none is listed.
    """
    rows = [
        *rows,
        ["rfgp", version("rfgp")],
        ["Python", platform.python_version()],
        ["date", datetime.date.today().isoformat()],
        *([] if command is None else [["command", plain(command, 2000)]]),
    ]
    grid = Grid(["setting", "value"], rows, "The settings with which the report can be made again.", texts=(1,))
    return Section("How it was made", [hyperparameters(model), grid])


def hyperparameters(model: GP, *, wide: bool = True) -> Grid:
    """Return the hyperparameters as a table, in the user's units.

    Args:
        model: The fitted model.
        wide: Whether the table has the full width of the page.
    """
    rows = [row for name in model.hyperparameters.names for row in _entries(model, name)]
    if model.spec.is_gaussian:
        noise = float(model.hyperparameters.noise.detach().reshape(-1)[0])
        rows.append(["noise, as a standard deviation", number(math.sqrt(noise))])
    else:
        rows.insert(0, ["likelihood", plain(repr(model.spec.options.likelihood), 300)])
    caption = sentence("hyperparameters", is_gaussian=model.spec.is_gaussian, members=len(model.members))
    return Grid(["hyperparameter", "value"], rows, caption, wide)


def _entries(model: GP, name: str) -> Iterator[list[str]]:
    """Yield the rows of a hyperparameter, one for each of its columns."""
    value, columns = model.hyperparameters.value(name).detach().double().cpu(), columns_of_hyperparameter(model, name)
    shown = plain(name, 60)
    if value.ndim == 0:
        yield [shown, number(float(value))]
    elif value.numel() != len(columns):
        yield [shown, counted(value.numel(), "value")]
    else:
        for column, entry in list(zip(columns, value.reshape(-1).tolist(), strict=True))[:_MAX_ENTRIES]:
            yield [f"{shown}, {plain(column)}" if len(columns) > 1 else shown, number(entry)]
        if len(columns) > _MAX_ENTRIES:
            yield [shown, counted(len(columns) - _MAX_ENTRIES, "further value")]
