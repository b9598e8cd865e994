"""What a report is about: a model fitted on one part of the data and judged on the other."""

import time
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import graphs
from rfgp import metrics, random
from rfgp.compare import WALKS, Comparison, Exact, Plan
from rfgp.compare.protocol import Case, Report, node_case, row_case, run_comparison
from rfgp.couplings import Coupling, by_name, name_of
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.fields import Field
from rfgp.fitting import Progress
from rfgp.inference import Prediction
from rfgp.models import Process, SparseSpectrumGP
from rfgp.models.graph import GraphGP
from rfgp.tables import Table

EXACT_ROWS = 800
"""Training rows, at random, on which an approximation on a table is compared with the exact process."""

EXACT_NODES = 5000
"""The largest graph on which walks are compared with the exact process."""

FIT_ROWS = 4000
_TEST_POINTS = 300
_DRAWS = 5
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
        repeated: Rows that repeat another exactly, which are on one side of the split.
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
            "hyperparameters": {
                name: self.model.hyperparameters.value(name).tolist() for name in self.model.hyperparameters.names
            },
            "converged": None if self.model.fit_report is None else self.model.fit_report.converged,
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
        }


def study_table(
    table: Table,
    model: SparseSpectrumGP,
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
            then conditioned on all of them.
        compare: Whether to compare with the exact process, on at most `EXACT_ROWS` training rows.
        seed: Of the split and the draws.
        report: Called with (what is done, steps done, steps in all or 0 where that is not known).

    Raises:
        DataError: too few rows, or rows that cannot be used.
        InvalidArgumentError: a share outside (0, 1), or fit_rows below 2.
    """
    tell = report or (lambda what, done, total: None)
    table.check_numeric_target()
    if fit_rows < 2:
        raise InvalidArgumentError(f"fit_rows must be at least 2, got {fit_rows}.")
    groups, repeated = copies(table)
    train, test = split(len(table.y), test_share, seed, groups)
    prediction, seconds = _fit_and_predict(model, table.X, table.y, train, test, fit_rows, tell)
    compared = _Compared(None, _NOT_ASKED)
    if compare:
        compared = _compare_rows(table, model, train, test, title, seed, tell)
    spread = float(table.y[train].std(ddof=1))
    return Study(title, model, train, test, table.y[test], prediction, spread, seconds, *compared, repeated)


def study_field(
    field: Field,
    model: GraphGP,
    *,
    title: str = "field",
    test_share: float = 0.1,
    compare: bool = True,
    seed: int = 0,
    report: Report | None = None,
) -> Study:
    """Fit a model on a part of a field's observed nodes, judge it on the rest, and compare with the exact process.

    Arguments and errors are those of `study_table`; graphs of more than `EXACT_NODES` nodes are not compared.
    """
    tell = report or (lambda what, done, total: None)
    train, test = split(len(field.values), test_share, seed, field.graph.index(field.nodes))
    nodes, values = field.nodes, field.values
    prediction, seconds = _fit_and_predict(model, nodes, values, train, test, len(train), tell)
    compared = _Compared(None, _NOT_ASKED)
    if compare and field.graph.num_nodes > EXACT_NODES:
        remark = f"The exact process was not computed: {field.graph.num_nodes} nodes are more than {EXACT_NODES}."
        compared = _Compared(None, remark)
    elif compare:
        compared = _compare_walks(field, model, train, test, title, seed, tell)
    spread = float(values[train].std(ddof=1))
    return Study(title, model, train, test, values[test], prediction, spread, seconds, *compared)


class _Compared(NamedTuple):
    """The last three fields of a `Study`."""

    comparison: Comparison | None
    remark: str
    own: tuple[str, int] | None = None


_NOT_ASKED = "The comparison with the exact process was not asked for."


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
        stage = f"Fitting {now.rows:,} observations ({now.stage}, up to {now.iterations} {now.unit})"
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
        raise InvalidArgumentError(f"The held-out share must lie strictly between 0 and 1, got {share}.")
    if count < 8:
        raise DataError(f"There are {count} observations; at least 8 are needed to hold some out.")
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
    rows = np.column_stack([table.X, table.y]) + 0.0  # no negative zero
    distinct, groups = (len(np.unique(_as_bytes(table.X + 0.0))), np.unique(_as_bytes(rows), return_inverse=True)[1])
    repeated = len(rows) - int(groups.max()) - 1
    return (groups, repeated) if repeated and _MOST_OFTEN * distinct >= len(rows) else (None, 0)


def _as_bytes(rows: NDArray[np.float64]) -> NDArray[np.void]:
    """Return each row of an array (n, k) as one value (n,) that can be compared."""
    return np.ascontiguousarray(rows).view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).reshape(-1)


def coupling_label(coupling: Coupling) -> str:
    """Return a coupling's name, or its description where it has options or is the user's own."""
    try:
        name = name_of(coupling)
    except InvalidArgumentError:
        return repr(coupling)
    return name if repr(by_name(name)) == repr(coupling) else repr(coupling)


def _compare_rows(
    table: Table,
    model: SparseSpectrumGP,
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    title: str,
    seed: int,
    tell: Report,
) -> _Compared:
    rows, points = train[:EXACT_ROWS], test[:_TEST_POINTS]
    X, y = table.X[points], table.y[points]
    small = model.redraw(seed=model.seed).condition(table.X[rows], table.y[rows])
    both = np.concatenate([table.X[rows], X])
    m, own = small.feature_map.frequencies.shape[0], coupling_label(model.coupling)
    methods = [*(name for name in ("iid", "orthogonal") if name != own), own]
    sizes = sorted({max(2, size - size % 2) for size in (m // 4, m // 2)} | {m})  # even, for antithetic pairs

    def run(_: int) -> tuple[Case, Exact]:
        start = time.perf_counter()
        return row_case(small.exact(), X, y, both, small.features, start, {own: model.coupling})

    remark = (
        f"The exact process and the features condition on the same {len(rows)} training rows and predict the same "
        f"{len(points)} held-out rows, with the hyperparameters fitted above; {_DRAWS} draws each."
    )
    comparison = run_comparison(title, remark, "frequencies", methods, sizes, Plan(1, _DRAWS, seed), run, tell)
    return _Compared(comparison, remark, (own, m))


def _compare_walks(
    field: Field,
    model: GraphGP,
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    title: str,
    seed: int,
    tell: Report,
) -> _Compared:
    hidden, y = list(field.nodes[test[:_TEST_POINTS]]), field.values[test[:_TEST_POINTS]]
    options = model.walk_options

    def run(_: int) -> tuple[Case, Exact]:
        start = time.perf_counter()
        return node_case(model.exact(), hidden, y, options["halt"], start)

    remark = (
        f"The exact process and the walks condition on the same {len(train)} observations and predict the same "
        f"{len(hidden)} held-out ones, with the hyperparameters fitted above; {_DRAWS} draws each."
    )
    if model.features == "exact":
        remark += " The model itself is exact; walks would do as shown."
    own = _own_walks(model)
    most = options["num_walkers"] if own else 64
    methods = [*(name for name in ("iid", "systematic", "stratified") if name != own), *([own] if own else [])]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        comparison = run_comparison(
            title, remark, "walkers", methods, sorted({max(2, most // 4), most}), Plan(1, _DRAWS, seed), run, tell
        )
    walks = next((str(w.message) for w in caught if issubclass(w.category, graphs.GraphWarning)), None)
    for entry in caught:
        if not issubclass(entry.category, graphs.GraphWarning):
            warnings.warn(entry.message, stacklevel=3)
    remark += "" if walks is None else f" About the walks of this comparison: {walks}"
    return _Compared(comparison, remark, (own, most) if own else None)


def _own_walks(model: GraphGP) -> str | None:
    """Return the method that a model's walks are drawn by, None for an exact model or another combination."""
    options = model.walk_options
    name = next((name for name, entry in WALKS.items() if entry.items() <= options.items()), None)
    if set(options) - {"num_walkers", "halt", *WALKS["iid"]}:
        return None
    return None if name == "sigma" or model.features != "walks" else name
