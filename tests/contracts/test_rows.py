"""Rows with names, noise and weights of their own, replicates, and rows that are standardized as they are read."""

import copy
from decimal import Decimal
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import graphs
import rfgp
from rfgp import kernels as k
from rfgp import rows
from rfgp.tables import CSV, Batches, Parquet
from tests.support.refusals import refused

GRAPH = graphs.Graph.from_networkx(nx.convert_node_labels_to_integers(nx.grid_2d_graph(6, 6)))


def features(**options):
    return rfgp.SparseSpectrumGP(num_frequencies=8, seed=0, **options)


MODELS = {
    "features": lambda: features(standardize=False),
    "exact": lambda: rfgp.ExactGP(standardize=False, lengthscale=1.2),
    "graph": lambda: rfgp.GraphGP(GRAPH, features="walks", num_walkers=8, seed=0),
}


def data(name="table", seed=0):
    """Return 24 rows of a table or nodes with y, noise and weight, and new ones."""
    rng = np.random.default_rng(seed)
    X, noise, weight = rng.standard_normal((24, 2)), rng.uniform(0.05, 0.5, 24), rng.integers(1, 5, 24)
    y, new = np.sin(X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(24), rng.standard_normal((5, 2))
    if name == "graph":
        X, new = [int(i) for i in rng.permutation(36)[:24]], [0, 7, 30]
    return SimpleNamespace(X=X, y=y, noise=noise, weight=weight, new=new)


def take(inputs, chosen):
    return inputs[chosen] if isinstance(inputs, np.ndarray) else [inputs[i] for i in chosen]


@pytest.mark.parametrize("name", ["blocks", "arrays", "raw", "read", "graph"])
def test_a_weight_repeats_its_row_from_the_units_on(name, limits):
    """Means, deviations, starting values, the likelihood and predictions are those of the repeated rows."""
    make = MODELS["graph"] if name == "graph" else lambda: features(standardize=name != "raw")
    d, repeated = data(name), np.repeat(np.arange(24), data(name).weight)
    several = make().condition(take(d.X, repeated), d.y[repeated], noise=d.noise[repeated])
    before = several.predict(d.new).mean
    limits(max_copied=10 if name == "read" else 10**6)
    if name == "blocks":
        table = pd.DataFrame(d.X).assign(y=d.y, w=d.weight, s=d.noise)
        once = make().condition(Batches([table[:9], table[9:]], "y", sample_weight="w", noise="s"))
    else:
        once = make().condition(d.X, d.y, sample_weight=d.weight, noise=d.noise)
    for quantity in once.hyperparameters.names:
        ours, expected = (getattr(gp.hyperparameters, quantity).detach() for gp in (once, several))
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-13)
    a, b = (gp.log_marginal_likelihood().item() for gp in (once, several))
    assert a == pytest.approx(b, rel=1e-11)
    np.testing.assert_allclose(once.predict(d.new).mean, before, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", MODELS)
def test_tiny_weights_leave_a_row_out_or_are_refused(name):
    d, make = data(name), MODELS[name]
    gp, less = make().condition(d.X, d.y, sample_weight=np.r_[np.ones(23), 1e-140]), make()
    less.condition(take(d.X, range(23)), d.y[:23])
    less.hyperparameters.load_state_dict(gp.hyperparameters.state_dict())
    np.testing.assert_allclose(gp.predict(d.new).mean, less.predict(d.new).mean, rtol=1e-7)
    for weight in (5e-324, 1e-200, 1e200):
        with pytest.raises(rfgp.DataError, match=r"1e-150.*in row 23"):
            make().condition(d.X, d.y, sample_weight=np.r_[np.ones(23), weight])


REFUSED = {
    "length": ({"noise": np.full(3, 0.1)}, "24 rows, got shape (3,)"),
    "negative": ({"noise": np.full(24, -0.1)}, "not negative, got -"),
    "nan": ({"noise": np.full(24, np.nan)}, "got nan in row 0"),
    "a number": ({"noise": 0.3}, "one value for each"),
    "zero": ({"sample_weight": np.zeros(24)}, "positive, got 0 in row 0"),
    "text": ({"sample_weight": ["a"] * 24}, "sample_weight"),
    "one text": ({"sample_weight": "w"}, "no column 'w'"),
}


@pytest.mark.parametrize(("extra", "word"), REFUSED.values(), ids=REFUSED)
def test_bad_noise_and_weights_are_named_and_nothing_is_lost(extra, word):
    d, gp = data(), features()
    before = gp.condition(data().X, data().y).predict(d.new).mean
    for call in (gp.condition, gp.fit, gp.update):
        refused(lambda call=call: call(d.X, d.y, **extra), rfgp.DataError, word)
    np.testing.assert_array_equal(gp.predict(d.new).mean, before)


def test_targets_may_be_decimals_and_texts_of_numbers():
    numbers, objects = np.array([1.5, 2.0, 3.25]), np.array([Decimal("1.5"), "2", 3.25], dtype=object)
    found, expected = (rfgp.ExactGP().condition(np.eye(3), y).predict(np.eye(3)).mean for y in (objects, numbers))
    np.testing.assert_array_equal(found, expected)


def test_merged_replicates_keep_sums_of_weights_values_and_squares():
    rng = np.random.default_rng(0)
    place, y, weight = rng.integers(15, size=60), rng.normal(size=60), rng.integers(1, 4, 60).astype(float)
    block = rows.Block(torch.tensor(place)[:, None].double(), torch.tensor(y)[:, None], None, torch.tensor(weight))
    sums = pd.DataFrame({"w": weight, "y": weight * y, "yy": weight * y**2}).groupby(place).sum()
    merged = rows.merge_replicates(block)
    for one in (merged, rows.merge_replicates(rows.merge_replicates(block, 2))):
        order = one.inputs[:, 0].argsort()
        np.testing.assert_allclose(one.counts()[order], sums.w)
        np.testing.assert_allclose(one.targets[order, 0], sums.y / sums.w)
        np.testing.assert_allclose(one.replicate_sum_of_squares[order, 0], sums.yy - sums.y**2 / sums.w, atol=1e-12)
    assert rows.merge_replicates(merged) is merged


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_units_of_many_rows_are_their_moments(dtype):
    """Sums over blocks of rows, weighted in double precision. A shared lengthscale is in deviations of each column."""
    rng, is_double = np.random.default_rng(0), dtype == np.float64
    X = (rng.uniform(5, 9, (70_000, 2)) * [1e3, 1e-3]).astype(dtype)
    weight = rng.integers(1, 4, 70_000) if is_double else np.ones(70_000)
    gp = rfgp.GP(k.RBF(ard=False), approximation=rfgp.Vecchia(3), seed=0)
    gp.condition(X, X[:, 0], **({"sample_weight": weight} if is_double else {}))
    mean = np.average(X, axis=0, weights=weight)
    deviation = np.sqrt((weight @ (X - mean) ** 2) / (weight.sum() - 1))
    assert gp.hyperparameters["mean"].item() == pytest.approx(mean[0], rel=1e-9 if is_double else 1e-4)
    gp.hyperparameters.set(lengthscale=1.0, outputscale=1.0)
    K = gp.prior_covariance((mean + deviation * [[0, 0], [1, 0], [1, 2]]).astype(dtype)).detach()
    expected = np.exp(-np.array([[0, 1, 5], [1, 0, 4], [5, 4, 0]]) / 2)
    np.testing.assert_allclose(K, expected, rtol=1e-9 if is_double else 1e-4)


def test_values_out_of_range_are_refused_with_their_row(limits):
    limits(max_copied=10)
    X = np.random.default_rng(0).uniform(0, 1e-30, (30, 1)).astype(np.float32)
    gp = rfgp.GP(k.RBF(), seed=0).condition(X, X[:, 0] * 1e30)
    X[17] = 3e38
    refused(lambda: gp.condition(X, np.zeros(30, dtype=np.float32)), rfgp.DataError, "row 17")


# --- names of columns ---------------------------------------------------------------------------------

NAMED = {"features": features, "exact": rfgp.ExactGP}
FRAME = pd.DataFrame(np.random.default_rng(0).standard_normal((60, 3)) * [1.0, 10.0, 0.1], columns=["a", "b", "c"])
Y = np.sin(FRAME["a"]).to_numpy() + 0.1 * FRAME["b"].to_numpy()
NEW = FRAME[:7]


def turned(table):
    """Return the columns in another order, one of texts among them."""
    return table[["c", "b", "a"]].assign(place="here")[["place", "c", "b", "a"]]


ORDERS = {
    "more": turned,
    "Arrow": lambda table: pa.Table.from_pandas(turned(table)),
    "array": lambda table: table.to_numpy(),
    "blocks": lambda table: Batches([turned(table)[:3].drop(columns="place"), table[3:]]),
    "pairs": lambda table: Batches([(turned(table), None)]),
}


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "order"), [(name, order) for name in ("features", "exact") for order in ORDERS])
def test_new_rows_go_by_the_names_of_their_columns(name, order):
    gp, plain = NAMED[name]().condition(FRAME, Y), NAMED[name]().condition(FRAME.to_numpy(), Y)
    new, there = ORDERS[order](NEW), NEW.to_numpy()
    close(gp.predict(new).mean, plain.predict(there).mean)
    close(gp.predict(new).variance, plain.predict(there).variance)
    if not isinstance(new, Batches):
        close(gp.prior_covariance(new), plain.prior_covariance(there))
        if name != "exact":
            close(gp.sample_functions(2, seed=0)(new), plain.sample_functions(2, seed=0)(there))


@pytest.mark.parametrize("name", NAMED)
def test_more_rows_go_by_the_names_of_their_columns(name, tmp_path):
    first = NAMED[name]().condition(FRAME[:30], Y[:30])
    again, expected = copy.deepcopy(first), copy.deepcopy(first).condition(FRAME.to_numpy(), Y).predict(NEW).mean
    first.predict(NEW).mean.sum()  # the posterior is there, and can take rows up
    close(first.update(turned(FRAME[30:]), Y[30:]).predict(NEW).mean, expected)
    close(copy.deepcopy(again).condition(turned(FRAME), Y).predict(NEW).mean, expected)
    if name != "exact":  # an exact kernel needs its rows in memory
        pq.write_table(pa.Table.from_pandas(FRAME[["b", "c", "a"]].assign(y=Y)), tmp_path / "rows.parquet")
        there = copy.deepcopy(again).condition(Parquet(tmp_path / "rows.parquet", "y"))
        close(there.predict(NEW).mean, expected)
        refused(lambda: there.save(tmp_path / "m", data=True), rfgp.DataError, "in memory")
        again.update(Batches([(turned(FRAME[30:40]), Y[30:40]), (FRAME[40:], Y[40:])]))
        close(again.predict(turned(NEW)).mean, expected)


def test_names_stay_with_the_model(tmp_path):
    gp = NAMED["features"]().condition(FRAME, Y)
    gp.save(tmp_path / "m.safetensors", data=True)
    loaded, other = rfgp.load(tmp_path / "m.safetensors"), gp.with_approximation(rfgp.RandomFeatures(6, seed=1))
    for model in (gp, loaded, other, gp.exact(), loaded.exact()):
        before = model.predict(NEW.to_numpy()).mean
        close(model.predict(turned(NEW)).mean, before)
        for change, word in (
            (NEW.rename(columns={"a": "q"}), "Its columns are: q, b, c"),
            (NEW[["a", "a", "b", "c"]], "unique"),
            (NEW.assign(b="red"), "'b' holds text"),
        ):
            refused(lambda model=model, change=change: model.predict(change), rfgp.DataError, word)
        np.testing.assert_array_equal(model.predict(NEW.to_numpy()).mean, before)


def test_a_model_without_names_goes_by_position(tmp_path):
    gp, numbered = features().condition(FRAME.to_numpy(), Y), FRAME.set_axis([0, 1, 2], axis=1)
    close(gp.predict(NEW[["c", "b", "a"]]).mean, gp.predict(NEW[["c", "b", "a"]].to_numpy()).mean)
    refused(lambda: gp.predict(np.zeros((2, 4))), rfgp.DataError, "3 columns")
    numbered.assign(y=Y).to_csv(tmp_path / "bare.csv", header=False, index=False)
    there, by_number = features().condition(CSV(tmp_path / "bare.csv", "3")), features().condition(numbered, Y)
    close(there.predict(FRAME.to_numpy()).mean, gp.predict(FRAME.to_numpy()).mean)
    for new in (numbered[[2, 0, 1]], CSV(tmp_path / "bare.csv", columns=["0", "1", "2"])):
        close(by_number.predict(new).mean, gp.predict(FRAME.to_numpy()).mean)
    renamed = FRAME.set_axis(["column_names", "columns", "select"], axis=1)  # as attributes of dataframes
    gp = features().condition(renamed, Y)
    close(gp.predict(renamed[["select", "column_names", "columns"]]).mean, gp.predict(renamed.to_numpy()).mean)
