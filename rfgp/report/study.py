"""What a report is about: a model fitted on one part of the data and judged on the other."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rfgp import metrics, random
from rfgp.compare import Comparison, Exact, Plan
from rfgp.compare.protocol import Case, Report, node_case, row_case, run_comparison
from rfgp.couplings import name_of
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.fields import Field
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
    """

    title: str
    model: Process
    train: NDArray[np.int64]
    test: NDArray[np.int64]
    observed: NDArray[np.float64]
    prediction: Prediction
    spread: float
    seconds: dict[str, float]
    comparison: Comparison | None
    remark: str

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
            "rmse": self.rmse,
            "target_sd": self.spread,
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

    Args:
        table: The table.
        model: A model that has not been fitted yet.
        title: What the table is called.
        test_share: The share of rows to hold out, at random.
        fit_rows: Hyperparameters are learned on at most so many training rows, at random; the model is
            then conditioned on all of them.
        compare: Whether to compare with the exact process, on at most `EXACT_ROWS` training rows.
        seed: Of the split and the draws.
        report: Called with (what is done, steps done, steps in all).

    Raises:
        DataError: too few rows, or rows that cannot be used.
        InvalidArgumentError: a share outside (0, 1), or fit_rows below 2.
    """
    tell = report or (lambda what, done, total: None)
    table.check_numeric_target()
    if fit_rows < 2:
        raise InvalidArgumentError(f"fit_rows must be at least 2, got {fit_rows}.")
    train, test = split(len(table.y), test_share, seed)
    seconds = {}
    start = time.perf_counter()
    rows = train[:fit_rows]
    total = 200
    model.fit(
        table.X[rows],
        table.y[rows],
        max_iterations=total,
        callback=lambda done, value: tell(f"Fitting {len(rows)} rows, log likelihood {value:.6g}", done, total),
    )
    seconds["fit the hyperparameters"] = time.perf_counter() - start
    start = time.perf_counter()
    if len(rows) < len(train):
        model.condition(table.X[train], table.y[train])
    seconds["condition on the training rows"] = time.perf_counter() - start
    start = time.perf_counter()
    prediction = model.predict(table.X[test])
    observed = table.y[test]
    metrics.nlpd(observed, prediction)
    seconds["predict the held-out rows"] = time.perf_counter() - start
    comparison, remark = None, "The comparison with the exact process was not asked for."
    if compare:
        comparison, remark = _compare_rows(table, model, train, test, title, seed, tell)
    spread = float(table.y[train].std(ddof=1))
    return Study(title, model, train, test, observed, prediction, spread, seconds, comparison, remark)


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
    train, test = split(len(field.values), test_share, seed)
    seen, hidden = field.nodes[train], field.nodes[test]
    start = time.perf_counter()
    total = 200
    model.fit(
        list(seen),
        field.values[train],
        max_iterations=total,
        callback=lambda done, value: tell(f"Fitting {len(train)} nodes, log likelihood {value:.6g}", done, total),
    )
    seconds = {"fit the hyperparameters": time.perf_counter() - start}
    start = time.perf_counter()
    prediction, observed = model.predict(list(hidden)), field.values[test]
    metrics.nlpd(observed, prediction)
    seconds["predict the held-out nodes"] = time.perf_counter() - start
    comparison, remark = None, "The comparison with the exact process was not asked for."
    if compare and field.graph.num_nodes > EXACT_NODES:
        remark = f"The exact process was not computed: {field.graph.num_nodes} nodes are more than {EXACT_NODES}."
    elif compare:
        comparison, remark = _compare_walks(field, model, train, test, title, seed, tell)
    spread = float(field.values[train].std(ddof=1))
    return Study(title, model, train, test, observed, prediction, spread, seconds, comparison, remark)


def split(count: int, share: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return random positions (n,) to train on and (k,) to hold out, k = share * count, at least 2.

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
    return order[held:], order[:held]


def _compare_rows(
    table: Table,
    model: SparseSpectrumGP,
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    title: str,
    seed: int,
    tell: Report,
) -> tuple[Comparison, str]:
    rows, points = train[:EXACT_ROWS], test[:_TEST_POINTS]
    X, y = table.X[points], table.y[points]
    small = model.redraw(seed=model.seed).condition(table.X[rows], table.y[rows])
    both = np.concatenate([table.X[rows], X])
    m = small.feature_map.frequencies.shape[0]
    methods = list(dict.fromkeys(("iid", "orthogonal", name_of(model.coupling))))
    sizes = sorted({max(1, m // 4), max(1, m // 2), m})

    def run(_: int) -> tuple[Case, Exact]:
        start = time.perf_counter()
        return row_case(small.exact(), X, y, both, small._options["features"], start)

    remark = (
        f"The exact process and the features condition on the same {len(rows)} training rows and predict the same "
        f"{len(points)} held-out rows, with the hyperparameters fitted above; {_DRAWS} draws each."
    )
    return run_comparison(title, remark, "frequencies", methods, sizes, Plan(1, _DRAWS, seed), run, tell), remark


def _compare_walks(
    field: Field,
    model: GraphGP,
    train: NDArray[np.int64],
    test: NDArray[np.int64],
    title: str,
    seed: int,
    tell: Report,
) -> tuple[Comparison, str]:
    hidden, y = list(field.nodes[test[:_TEST_POINTS]]), field.values[test[:_TEST_POINTS]]

    def run(_: int) -> tuple[Case, Exact]:
        start = time.perf_counter()
        return node_case(model.exact(), hidden, y, model._walk_options["halt"], start)

    remark = (
        f"The exact process and the walks condition on the same {len(train)} nodes and predict the same {len(hidden)} "
        f"held-out nodes, with the hyperparameters fitted above; {_DRAWS} draws each."
    )
    methods, sizes = ["iid", "systematic", "stratified"], [16, 64]
    return run_comparison(title, remark, "walkers", methods, sizes, Plan(1, _DRAWS, seed), run, tell), remark
