"""Studies: models that are fitted to a training set and evaluated on a held-out set."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from rfgp import metrics
from rfgp.approximations import Approximation, Vecchia
from rfgp.compare import Comparison
from rfgp.effects.variables import columns_of_hyperparameter, input_frame, is_of_logarithms
from rfgp.errors import InvalidArgumentError
from rfgp.fields import Field, observed_inputs
from rfgp.fields.field import check_field
from rfgp.fitting import Progress
from rfgp.gp import GP
from rfgp.graph_gp import GraphGP
from rfgp.inference.prediction import Prediction
from rfgp.likelihoods import Bernoulli
from rfgp.messages import check_count, counted, plain
from rfgp.progress import Report
from rfgp.report.comparing import Compared, compare_nodes, compare_rows, without_comparison
from rfgp.report.holdout import (
    MAX_WALKED,
    Baseline,
    baselines_of_nodes,
    baselines_of_rows,
    group_numbers,
    independent_groups,
    joined_groups,
    random_walks,
    split,
)
from rfgp.report.page import sentence
from rfgp.rows import repeat_groups
from rfgp.tables import Table

FIT_ROWS = 4000
"""The maximum number of rows to which hyperparameters are fitted, unless the model takes a number of its own."""
_NEAR = 0.01
"""The difference of logarithms up to which a hyperparameter is at a bound."""
_BETTER = 0.99
"""The share of the model's error below which a baseline is mentioned."""
_NAMED = 3
"""The maximum number of columns that a note names."""
_SPANNED, _SKEWED = 10.0, 1.0
"""The ratio of the largest to the least target, and the skewness, above which logarithms are suggested."""


@dataclass(frozen=True, eq=False)
class Study:
    """A model that is fitted to a training set, with predictions of a held-out set.

    Attributes:
        title: The name of the data.
        model: The model, fitted to the training set.
        train: The positions (n,) of the training set among the observations.
        test: The positions (k,) of the held-out set.
        observed: The targets (k,) of the held-out set.
        prediction: The prediction of the held-out set.
        target_std: The standard deviation of the training targets.
        seconds: The time of each step in seconds, by name.
        comparison: The comparison with the exact process at the fitted hyperparameters, or None.
        remark: The reason why there is no comparison, or the rows of the comparison.
        method_and_size: The method and size of the model in the comparison. None if the model is not part of it.
        num_repeated: The number of rows that equal another row, or of observations at the node of another. Copies are
            in the same set.
        baselines: The errors of baselines that were fitted to the training set.
        alternatives: The errors of other processes that were fitted to the training set.
        reproduction_settings: The settings that reproduce the study, by name.
        notes: Notes for the report.
        groups: The group (k,) of each held-out observation: copies, observations of one node, or given groups. The
            errors in a group are not independent. If None, each observation is a group.
        holdout: The kind of the split, "random" or "last".
        split_by: The name of the given groups, such as that of a column. If "", none were given.
        is_log: Whether the targets are logarithms.

    Examples:
        >>> import rfgp
        >>> from rfgp import kernels as k
        >>> from rfgp.report import study_table
        >>> table = Table(np.arange(40.0)[:, None], np.sin(np.arange(40.0) / 9), ("t",), "y")
        >>> study = study_table(table, rfgp.GP(k.RBF("t"), seed=0), compare=False)
        >>> len(study.train), len(study.test), study.r_squared > 0.9
        (36, 4, True)
    """

    title: str
    model: GP
    train: NDArray[np.int64]
    test: NDArray[np.int64]
    observed: NDArray[np.float64]
    prediction: Prediction
    target_std: float
    seconds: dict[str, float]
    comparison: Comparison | None = None
    remark: str = ""
    method_and_size: tuple[str, int] | None = None
    num_repeated: int = 0
    baselines: tuple[Baseline, ...] = ()
    alternatives: tuple[Baseline, ...] = ()
    reproduction_settings: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    groups: NDArray[np.int64] | None = None
    holdout: str = "random"
    split_by: str = ""
    is_log: bool = False

    @property
    def num_groups(self) -> int:
        """The number of groups of the held-out observations."""
        return len(self.test) if self.groups is None else len(np.unique(self.groups))

    @property
    def num_independent(self) -> float:
        """The effective number of independent held-out observations."""
        return float(len(self.test)) if self.groups is None else independent_groups(self.groups)

    @property
    def r_squared(self) -> float:
        """The fraction of the variance of the held-out targets that the prediction explains (R^2)."""
        total = np.mean((self.observed - self.observed.mean()) ** 2)
        return float(1 - self.rmse**2 / total) if total > 0 else float("nan")

    @property
    def rmse(self) -> float:
        """The root mean squared error of the held-out targets, in their units."""
        return metrics.rmse(self.observed, self.prediction)

    @property
    def nlpd(self) -> float:
        """The mean negative log predictive density, in nats per held-out point."""
        return -self.log_density[0]

    @property
    def log_density(self) -> tuple[float, float]:
        """The mean log density of a held-out target in nats, and its standard error."""
        values = np.asarray(self.prediction.observed().log_prob(self.observed))
        return float(values.mean()), float(values.std() / math.sqrt(self.num_independent))

    @property
    def coverage(self) -> float:
        """The fraction of held-out targets inside their central 95 % interval."""
        return float(metrics.interval_coverage(self.observed, self.prediction, [0.95])[0])

    def summary(self) -> dict[str, Any]:
        """Return the scores for JSON."""
        return {
            "title": self.title,
            "train": len(self.train),
            "test": len(self.test),
            "test_groups": self.num_groups,
            "repeated": self.num_repeated,
            "rmse": self.rmse,
            "target_sd": self.target_std,
            "r2": self.r_squared if np.isfinite(self.r_squared) else None,
            "nlpd": self.nlpd,
            "coverage_95": self.coverage,
            "baselines": {baseline.name: baseline.rmse for baseline in self.baselines},
            "others": {other.name: other.rmse for other in self.alternatives},
            "hyperparameters": {
                name: self.model.hyperparameters.value(name).tolist() for name in self.model.hyperparameters.names
            },
            "converged": None if self.model.fit_report is None else self.model.fit_report.converged,
            "selection": _selected(self.model),
            "notes": list(self.notes),
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
        }


def _selected(model: GP) -> dict[str, Any] | None:
    """Return the selected options, the reason and the weights for JSON, or None."""
    selection = None if model.fit_report is None else model.fit_report.selection
    if selection is None:
        return None
    return {"options": dict(selection.chosen.options), "reason": selection.reason, "weights": selection.parts}


def study_table(
    table: Table,
    model: GP,
    *,
    title: str = "table",
    test_share: float = 0.1,
    fit_rows: int = FIT_ROWS,
    compare: bool = True,
    seed: int = 0,
    holdout: str = "random",
    groups: ArrayLike | None = None,  # (n,)
    split_by: str = "groups",
    row_options: Mapping[str, NDArray[np.float64]] | None = None,
    report: Report | None = None,
) -> Study:
    """Fit a model to a part of a table, and evaluate it on the rest.

    The model is also compared with the exact process. Equal rows are in the same set of a random split. The model reads
    the dataframe of `rfgp.report.input_frame`, in which a category that its kernel names is a column of texts.

    Args:
        table: The table.
        model: A model that has not been fitted yet.
        title: The name of the table.
        test_share: The fraction of rows to hold out.
        fit_rows: The largest number of random training rows to which hyperparameters are fitted. The model is then
            conditioned on all of them. If the kernel is selected, approximations are automatic, or terms have nearest
            neighbors, the fit receives all rows.
        compare: Whether to compare with the exact process, on some of the training rows.
        seed: The seed of the split and the draws.
        holdout: "random", or "last" for the last rows in the order of the table, for example of time series.
        groups: Numbers or texts (n,), such as stations or patients. Rows of one group are in the same set, and standard
            errors count groups. If None, copies of a row are a group.
        split_by: The name of the groups, for the report.
        row_options: The arguments `noise`, `sample_weight`, `exposure`, `trials` and `censored` (n,) of `GP.fit` by
            name. Held-out rows have their own, but count once each. If None, there are none.
        report: A function of the step as text, the steps done, and their total or 0 if unknown. If None, there is no
            report.

    Returns:
        The fitted model with its predictions and scores.

    Raises:
        DataError: If there are too few rows or groups, or rows cannot be used.
        InvalidArgumentError: If the fraction is outside (0, 1), fit_rows is below 2, the holdout is unknown, or groups
            are combined with holdout="last".

    Examples:
        >>> import numpy as np
        >>> from rfgp import SparseSpectrumGP
        >>> from rfgp.report import study_table
        >>> from rfgp.tables import Table
        >>> rows, stations = np.arange(40.0), np.arange(40) // 4
        >>> table = Table(rows[:, None], np.sin(rows / 5) + stations % 3, ("time",), "level")
        >>> gp = SparseSpectrumGP(num_frequencies=8, seed=0)
        >>> study = study_table(table, gp, groups=stations, split_by="station", test_share=0.2, compare=False)
        >>> len(study.test), study.num_groups
        (8, 2)
    """
    show = report or (lambda step, done, total: None)
    table.check_numeric_target(2 if isinstance(model.spec.options.likelihood, Bernoulli) else 0)
    check_count("fit_rows", fit_rows, 2)
    if groups is not None and holdout == "last":
        raise InvalidArgumentError('groups need holdout="random", got holdout="last", which takes rows by order alone.')
    grouped = None if groups is None else group_numbers(groups, len(table.y))
    copies = repeat_groups(table.X, table.y)
    kinds = copies if grouped is None else grouped
    train, test = split(len(table.y), test_share, seed, kinds, holdout)
    fit_rows = len(train) if _takes_all_rows(model) else fit_rows
    given = row_options or {}
    frame = input_frame(table, model)
    study = _fit_and_predict(title, model, frame, table.y, train, test, fit_rows, show, given)
    assert model.fit_report is not None
    searched = min(fit_rows, model.fit_report.stages[-1].rows)
    if compare and not given:
        compared = compare_rows(table, model, train, test, title, seed, show)
    else:
        reason = sentence("not_compared", reason="rows" if compare else "off")
        compared = Compared(None, (without_comparison(model) if compare else None) or reason)
    making = {
        "share of the held-out part": test_share,
        "seed of the split": seed,
        "rows of the fit of the hyperparameters": f"{searched:,}",
    }
    baselines = baselines_of_rows(table, train, test, given.get("exposure", given.get("trials")))
    notes = [
        *_seen(copies, train, test, "order" if grouped is None else "groups"),
        *_of_selection(model),
        *_of_fit(study, baselines, compared.remark if compare and compared.comparison is None else ""),
    ]
    return replace(
        study,
        **compared._asdict(),
        num_repeated=0 if copies is None else len(copies) - int(copies.max()) - 1,
        baselines=baselines,
        reproduction_settings=making,
        notes=tuple(notes),
        groups=None if kinds is None else kinds[test],
        holdout=holdout,
        split_by="" if grouped is None else split_by,
        is_log=is_of_logarithms(table),
    )


def study_field(
    field: Field,
    model: GP,
    *,
    title: str = "field",
    test_share: float = 0.1,
    compare: bool = True,
    seed: int = 0,
    holdout: str = "random",
    report: Report | None = None,
) -> Study:
    """Fit a model to a part of the observations of a field, and evaluate it on the rest.

    The model is also compared with the exact process. Observations of one node, and of one group of the field, are in
    the same set. With holdout="last" the last observations are held out, even if this splits a node. Except for the
    model, other arguments and errors are those of `study_table`.

    The features of a `GraphGP` are compared with the exact process of the same kernel, if that can be computed. A
    `MeshGP` or `RoadGP` is exact, and is compared with a fit of random walks.

    Returns:
        The fitted model with its predictions and scores.

    Examples:
        >>> import graphs
        >>> from rfgp import datasets
        >>> from rfgp.report import study_field
        >>> mesh = datasets.make_mesh(subdivisions=1)
        >>> graph = graphs.Graph.from_mesh(mesh, nodes="vertices")
        >>> field = Field(graph, np.arange(42), graph.coordinates[:, 2], "height", mesh=mesh)
        >>> study = study_field(field, GraphGP(graph, features="exact", seed=0), compare=False)
        >>> len(study.train), len(study.test)
        (38, 4)
    """
    show = report or (lambda step, done, total: None)
    at_nodes = check_field(field).graph.index(field.nodes)
    groups, by = at_nodes, ""
    if field.groups is not None:
        if holdout == "last":
            raise InvalidArgumentError('groups need holdout="random", got holdout="last", which goes by order alone.')
        groups = joined_groups(at_nodes, group_numbers(field.groups, len(at_nodes)))
        by = field.group_name
    train, test = split(len(field.values), test_share, seed, groups, holdout)
    inputs = observed_inputs(model, field)
    study = _fit_and_predict(title, model, inputs, field.values, train, test, len(train), show)
    alternatives: tuple[Baseline, ...] = ()
    if isinstance(model, GraphGP):
        off = Compared(None, sentence("not_compared", reason="off"))
        compared = compare_nodes(field, model, train, test, title, seed, show) if compare else off
    else:
        if compare and field.graph.num_nodes <= MAX_WALKED:
            show("Fitting random walks for comparison", 0, 0)
            alternatives = random_walks(field, train, test, seed)
        text = "".join(f" For comparison, {other.name}: RMSE {other.rmse:.4g}." for other in alternatives)
        compared = Compared(None, f"{without_comparison(model) or sentence('not_compared', reason='off')}{text}")
    baselines = baselines_of_nodes(field, train, test)
    remark = compared.remark if compare and compared.comparison is None else ""
    return replace(
        study,
        **compared._asdict(),
        num_repeated=len(at_nodes) - len(np.unique(at_nodes)),
        baselines=baselines,
        alternatives=alternatives,
        reproduction_settings={"share of the held-out part": test_share, "seed of the split": seed},
        notes=(*_seen(groups, train, test), *_of_fit(study, baselines, remark)),
        groups=groups[test],
        holdout=holdout,
        split_by=by,
    )


# --- Notes, for the page and the terminal ----------------------------------------------------------------------------


def _seen(
    groups: NDArray[np.int64] | None,  # (count,)
    train: NDArray[np.int64],  # (n,)
    test: NDArray[np.int64],  # (k,)
    reason: str = "order",
) -> Iterator[str]:
    """Yield a note if held-out observations have the rows or nodes of training observations."""
    seen = 0 if groups is None else int(np.isin(groups[test], groups[train]).sum())
    if seen:
        yield sentence("seen", count=seen, reason=reason)


def _of_selection(model: GP) -> Iterator[str]:
    """Yield notes on an unbeaten baseline and on the selected candidate."""
    if model.selection is not None:
        if (baseline := model.selection.unbeaten_baseline) is not None:
            yield sentence("unbeaten", baseline=baseline)
        yield f"Selected: {model.selection.reason}"


def _of_fit(study: Study, baselines: Sequence[Baseline], remark: str) -> Iterator[str]:
    """Yield notes on a better baseline, on a missing comparison, and on hyperparameters at a bound."""
    best = min(baselines, key=lambda baseline: baseline.rmse)
    if best.rmse < _BETTER * study.rmse:
        yield sentence("better_baseline", name=best.name, rmse=best.rmse)
    if remark:
        yield remark
    report = study.model.fit_report
    for name in () if report is None else report.at_bounds:
        yield from _of_bound(study.model, name)


def _of_bound(model: GP, path: str) -> Iterator[str]:
    """Yield notes on a hyperparameter at a bound after the fit, with its meaning."""
    values, (term, _, name) = model.hyperparameters.values, path.rpartition(".")
    if sum(other.endswith(f".{name}") for other in values.space.names) == 1:
        term = ""  # the only one of its name
    raw, columns = values.raw[path].detach().double().cpu().reshape(-1).tolist(), columns_of_hyperparameter(model, path)
    levels = model.spec.options.indicators.items()
    indicators = {f"{key}={level}" for key, known in levels for level in known}
    for side, end in (("lower", 0), ("upper", 1)):
        limits = [pair[end] for pair in values.space.bounds(path)]
        pairs = zip(raw, limits, strict=True)
        at = [i for i, (value, limit) in enumerate(pairs) if limit is not None and abs(value - limit) < _NEAR]
        if at and name == "lengthscale" and len(raw) == len(columns):
            names = [plain(columns[i]) for i in at if columns[i] not in indicators]
            others = max(len(names) - _NAMED, 0)
            if names:
                yield sentence("lengthscales_at_bound", names=names[:_NAMED], others=others, side=side, term=term)
        elif at:
            value = float(model.hyperparameters.value(path).detach().reshape(-1)[at[0]])
            shown = f"{math.sqrt(value):.3g} as a standard deviation" if path == "noise" else f"{value:.3g}"
            yield sentence("at_bound", kind=f"{name} {side}", path=name, side=side, value=shown, term=term)


def scale_notes(y: NDArray[np.float64], name: str) -> tuple[str, ...]:
    """Return a note if the logarithm of targets (n,) may be fitted better.

    This is the case if targets are positive and span a factor of 10. Their skewness must also be above 1, and at least
    twice that of their logarithms.

    Args:
        y: The targets (n,).
        name: The name of the target.

    Examples:
        >>> len(scale_notes(np.exp(np.linspace(0, 8, 50)), "price"))
        1
    """
    if y.min() <= 0 or y.max() < _SPANNED * y.min():
        return ()
    skewness, of_logarithm = float(stats.skew(y)), abs(float(stats.skew(np.log(y))))
    if skewness < _SKEWED or of_logarithm > skewness / 2:
        return ()
    given = {"name": name, "low": y.min(), "high": y.max(), "skewness": skewness, "of_logarithm": of_logarithm}
    return (sentence("skewed", **given),)


# --- The fit ---------------------------------------------------------------------------------------------------------


def _takes_all_rows(model: GP) -> bool:
    """Return whether a fit receives all rows, as selections and neighbors require."""
    given = model.spec.options.approximations
    known = [given] if isinstance(given, Approximation) else list(given.values()) if isinstance(given, Mapping) else []
    is_automatic = not known or model.spec.options.search_space is not None
    return is_automatic or any(isinstance(entry, Vecchia) for entry in known)


def _fit_and_predict(
    title: str,
    model: GP,
    inputs: Any,  # a frame (count, d), or (count,) labels
    targets: NDArray[np.float64],  # (count,)
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    most: int,
    show: Report,
    row_options: Mapping[str, NDArray[np.float64]] | None = None,
) -> Study:
    """Fit the model to some training items, condition it on all of them, and predict the others."""
    seconds, start = {}, time.perf_counter()
    rows, first = getattr(inputs, "iloc", inputs), train[:most]

    def progress(now: Progress) -> None:
        most = counted(now.iterations, now.unit.removesuffix("s"))
        early = ", fewer if it converges" * (now.unit == "iterations")
        stage = f"Fitting {counted(now.rows, 'observation')} ({now.stage}; at most {most}{early})"
        show(stage, now.iteration, now.iterations)

    show(f"Fitting {len(first):,} observations", 0, 0)
    given = row_options or {}
    some: dict[str, Any] = {name: values[first] for name, values in given.items()}
    model.fit(rows[first], targets[first], max_iterations=200, progress=progress, **some)
    seconds["fit the hyperparameters"], start = time.perf_counter() - start, time.perf_counter()
    if len(first) < len(train):
        model.condition(rows[train], targets[train], **{name: values[train] for name, values in given.items()})
    model.predict(rows[:1])  # factorizes
    seconds["condition on the training part"], start = time.perf_counter() - start, time.perf_counter()
    prediction: Prediction = model.predict(rows[test])
    spread = float(targets[train].std(ddof=1))
    if numbers := {name: given[name][test] for name in ("exposure", "trials", "censored") if name in given}:
        prediction = prediction.observed(**numbers)
    if "noise" in given:
        known = torch.as_tensor(given["noise"][test]) / prediction.scale.double() ** 2
        prediction = replace(prediction, noise=prediction.noise + known, has_noise=True)
    metrics.nlpd(targets[test], prediction)  # predictions are lazy
    seconds["predict the held-out part"] = time.perf_counter() - start
    return Study(title, model, train, test, targets[test], prediction, spread, seconds)
