"""What a report is about: a model fitted on one part of the data and judged on the other."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp import metrics, random
from rfgp.compare import Comparison
from rfgp.compare.protocol import Report
from rfgp.counts import counted
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.fields import Field, observed_inputs
from rfgp.fitting import Progress
from rfgp.inference import Prediction
from rfgp.likelihoods import Bernoulli
from rfgp.models import Process
from rfgp.models.graph import GraphGP
from rfgp.regression import OpenOptions
from rfgp.report.baselines import MOST_WALKED, Baseline, baselines_of_nodes, baselines_of_rows, walks_beside
from rfgp.report.comparing import NOT_ASKED, Compared, TableModel, compare_nodes, compare_rows
from rfgp.report.notes import of_bounds, of_choice, of_rules
from rfgp.rows import row_hashes
from rfgp.tables import Table

FIT_ROWS = 4000
_MOST_OFTEN = 5  # times that inputs occur on average where equal rows still are copies


@dataclass(frozen=True, eq=False)
class Study:
    """A model, what it was fitted on, and how it did on what was held out.

    Attributes:
        title: What was studied.
        model: The model, fitted on the training part.
        train: The training part, positions (n,) among the observations.
        test: The held-out part (k,).
        observed: Targets of the held-out part (k,).
        prediction: The model's law there.
        spread: Standard deviation of the training targets.
        seconds: What took how long.
        comparison: Against the exact process at the fitted hyperparameters, or None.
        remark: Why there is no comparison, or over what it was made.
        own: The model's own method and size in the comparison; None: it is not in there.
        repeated: Rows that repeat another exactly, or observations at the node of another; they are on one side of the
            split.
        baselines: Simple rules, learned from the same training part and judged on the same held-out part.
        others: Other processes, fitted to the same training part and judged on the same held-out part.
        making: What it takes to make it again, by name.
        notes: What a reader should know besides, in sentences.
    """

    title: str
    model: Process[Any]
    train: NDArray[np.int64]
    test: NDArray[np.int64]
    observed: NDArray[np.float64]
    prediction: Prediction
    spread: float
    seconds: dict[str, float]
    comparison: Comparison | None
    remark: str
    own: tuple[str, int] | None = None
    repeated: int = 0
    baselines: tuple[Baseline, ...] = ()
    others: tuple[Baseline, ...] = ()
    making: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def explained(self) -> float:
        """The share of the held-out targets' variance that the prediction explains (R^2); below 0 where it harms."""
        total = np.mean((self.observed - self.observed.mean()) ** 2)
        return float(1 - self.rmse**2 / total) if total > 0 else float("nan")

    @property
    def rmse(self) -> float:
        """Root mean squared error of the held-out targets, in their units."""
        return metrics.rmse(self.observed, self.prediction)

    @property
    def nlpd(self) -> float:
        """Mean negative log predictive density, nats per held-out point."""
        return metrics.nlpd(self.observed, self.prediction)

    @property
    def coverage(self) -> float:
        """The share of held-out targets inside their central 95 % interval."""
        return float(metrics.interval_coverage(self.observed, self.prediction, [0.95])[0])

    def summary(self) -> dict[str, Any]:
        """Return the figures as JSON has them."""
        return {
            "title": self.title,
            "train": len(self.train),
            "test": len(self.test),
            "repeated": self.repeated,
            "rmse": self.rmse,
            "target_sd": self.spread,
            "r2": self.explained if np.isfinite(self.explained) else None,
            "nlpd": self.nlpd,
            "coverage_95": self.coverage,
            "baselines": {baseline.name: baseline.rmse for baseline in self.baselines},
            "others": {other.name: other.rmse for other in self.others},
            "hyperparameters": {
                name: self.model.hyperparameters.value(name).tolist() for name in self.model.hyperparameters.names
            },
            "converged": None if self.model.fit_report is None else self.model.fit_report.converged,
            "choice": _chosen(self.model),
            "notes": list(self.notes),
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
        }


def _chosen(model: Process[Any]) -> dict[str, Any] | None:
    """Return what a model chose, as JSON has it; None where nothing was open."""
    choice = None if model.fit_report is None else model.fit_report.choice
    return (
        None
        if choice is None
        else {"options": dict(choice.chosen.options), "reason": choice.reason, "shares": choice.parts}
    )


def study_table(
    table: Table,
    model: TableModel,
    *,
    title: str = "table",
    test_share: float = 0.1,
    fit_rows: int = FIT_ROWS,
    compare: bool = True,
    seed: int = 0,
    report: Report | None = None,
) -> Study:
    """Fit a model on a part of a table, judge it on the rest, and compare it with the exact process.

    Rows that repeat each other exactly are on one side of the split.

    Args:
        table: The table.
        model: A model that has not been fitted yet.
        title: What the table is called.
        test_share: The share of rows to hold out, at random.
        fit_rows: Hyperparameters are learned on at most so many training rows, at random; the model is
            then conditioned on all of them. With a local process, and where something is chosen, the fit is given all
            (`rfgp.TableGP`).
        compare: Whether to compare with the exact process, on some of the training rows.
        seed: Of the split and the draws.
        report: Called with (what is done, steps done, steps in all or 0 where that is not known).

    Raises:
        DataError: too few rows, or rows that cannot be used.
        InvalidArgumentError: a share outside (0, 1), or fit_rows below 2.
    """
    tell = report or (lambda what, done, total: None)
    table.check_numeric_target(2 if isinstance(model.options.likelihood, Bernoulli) else 0)
    if fit_rows < 2:
        raise InvalidArgumentError(f"fit_rows must be at least 2, got {fit_rows}.")
    groups, repeated = copies(table)
    train, test = split(len(table.y), test_share, seed, groups)
    if model.options.local is not None or isinstance(model.options, OpenOptions):
        fit_rows = len(train)  # what is local depends on how densely rows lie, and a choice takes its own number
    prediction, seconds = _fit_and_predict(model, table.X, table.y, train, test, fit_rows, tell)
    assert model.fit_report is not None
    searched = min(fit_rows, model.fit_report.stages[-1].rows)
    compared = compare_rows(table, model, train, test, title, seed, tell) if compare else NOT_ASKED
    spread = float(table.y[train].std(ddof=1))
    making = {
        "share of the test": test_share,
        "seed of the split": seed,
        "rows of the fit of the hyperparameters": f"{searched:,}",
    }
    rules = baselines_of_rows(table, train, test)
    better = of_rules(rules, metrics.rmse(table.y[test], prediction))
    notes = (*of_choice(model), *better, *_left_out(compared, compare), *of_bounds(model, table.columns))
    about = (*compared, repeated, rules, (), making, notes)
    return Study(title, model, train, test, table.y[test], prediction, spread, seconds, *about)


def study_field(
    field: Field,
    model: Process[Any],
    *,
    title: str = "field",
    test_share: float = 0.1,
    compare: bool = True,
    seed: int = 0,
    report: Report | None = None,
) -> Study:
    """Fit a model on a part of a field's observations, judge it on the rest, and compare with the exact process.

    Arguments and errors are those of `study_table`, but for the model: a `GraphGP`, whose features are compared with
    the exact process of the same kernel where that can be had (`rfgp.report.comparing.compare_nodes`), or a
    `MeshGP` or `RoadGP`, which is exact and is shown beside walks with a likelihood of their own.
    """
    tell = report or (lambda what, done, total: None)
    groups = field.graph.index(field.nodes)
    train, test = split(len(field.values), test_share, seed, groups)
    inputs, values = observed_inputs(model, field), field.values
    prediction, seconds = _fit_and_predict(model, inputs, values, train, test, len(train), tell)
    compared: Compared = NOT_ASKED
    others: tuple[Baseline, ...] = ()
    if compare and isinstance(model, GraphGP):
        compared = compare_nodes(field, model, train, test, title, seed, tell)
    elif compare:
        if field.graph.num_nodes <= MOST_WALKED:
            tell("Walks beside it", 0, 0)
            others = walks_beside(field, train, test, seed)
        beside = "".join(f" Beside it, {other.name}: RMSE {other.rmse:.4g}." for other in others)
        compared = Compared(None, f"The process is exact: nothing of it is approximated.{beside}")
    spread = float(values[train].std(ddof=1))
    making = {"share of the test": test_share, "seed of the split": seed}
    rules = baselines_of_nodes(field, train, test)
    better = of_rules(rules, metrics.rmse(values[test], prediction))
    notes = (*better, *_left_out(compared, compare), *of_bounds(model, ()))
    about = (*compared, len(groups) - len(np.unique(groups)), rules, others, making, notes)
    return Study(title, model, train, test, values[test], prediction, spread, seconds, *about)


def _left_out(compared: Compared, wanted: bool) -> tuple[str, ...]:
    """Say why there is no comparison, where one was wanted."""
    return (compared.remark,) if wanted and compared.comparison is None else ()


def _fit_and_predict(
    model: Process[Any],
    inputs: NDArray[Any],  # (count, d), or (count,) labels
    targets: NDArray[np.float64],  # (count,)
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    most: int,
    tell: Report,
) -> tuple[Prediction, dict[str, float]]:
    """Fit on at most so many training items, condition on all of them, predict the others; and the seconds of each."""
    seconds, start = {}, time.perf_counter()
    first = train[:most]

    def show(now: Progress) -> None:
        most = counted(now.iterations, now.unit.removesuffix("s"))
        stage = f"Fitting {counted(now.rows, 'observation')} ({now.stage}, up to {most})"
        tell(stage, now.iteration, now.iterations)

    tell(f"Fitting {len(first):,} observations", 0, 0)
    model.fit(inputs[first], targets[first], max_iterations=200, progress=show)
    seconds["fit the hyperparameters"], start = time.perf_counter() - start, time.perf_counter()
    if len(first) < len(train):
        model.condition(inputs[train], targets[train])
    model.predict(inputs[:1])  # factorises
    seconds["condition on the training part"], start = time.perf_counter() - start, time.perf_counter()
    prediction = model.predict(inputs[test])
    metrics.nlpd(targets[test], prediction)  # predictions are lazy
    seconds["predict the held-out part"] = time.perf_counter() - start
    return prediction, seconds


def split(
    count: int,
    share: float,
    seed: int,
    groups: NDArray[np.int64] | None = None,  # (count,)
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return random positions (n,) to train on and (k,) to hold out, k about share * count, at least 2.

    Observations of one group, such as those of one node, stay together: else a model would be judged on
    what it has seen. Groups are held out until there are k observations, so that there may be some more.

    Raises:
        InvalidArgumentError: the share is not inside (0, 1).
        DataError: fewer than 8 observations.
    """
    if not 0 < share < 1:
        raise InvalidArgumentError(f"test_share must lie strictly between 0 and 1, got {share}.")
    if count < 8:
        raise DataError(f"{counted(count, 'observation')}: at least 8 are needed to hold some out.")
    order = random.numpy_generator(seed, random.Role.SPLIT, 0).permutation(count)
    held = min(max(2, round(share * count)), count - 4)
    if groups is None:
        return order[held:], order[:held]
    _, first, member, sizes = np.unique(groups[order], return_index=True, return_inverse=True, return_counts=True)
    turns = np.argsort(first)  # groups in the order in which they come up
    count_hidden = int(np.searchsorted(np.cumsum(sizes[turns]), held)) + 1
    if len(turns) - count_hidden < 2:
        raise DataError("The observations are at too few different nodes to hold some out.")
    hidden = np.isin(member, turns[:count_hidden])
    return order[~hidden], order[hidden]


def copies(table: Table) -> tuple[NDArray[np.int64] | None, int]:
    """Return a number for each row (n,), the same for rows that are equal, and how many repeat another; or None, 0.

    Where most inputs occur often, as in tables of few levels, equal rows are no copies but what such tables consist of.
    """
    inputs = row_hashes(table.X.T, np.zeros(len(table.y), dtype=np.uint64))
    distinct = len(np.unique(inputs))
    groups = np.unique(row_hashes([table.y], inputs), return_inverse=True)[1].reshape(-1)
    repeated = len(groups) - int(groups.max()) - 1
    return (groups, repeated) if repeated and _MOST_OFTEN * distinct >= len(groups) else (None, 0)
