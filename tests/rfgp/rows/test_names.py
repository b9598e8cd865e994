"""Columns with names mean the same in any order, for every model and every way in."""

import copy
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rfgp
from rfgp import kernels as k
from rfgp.saving.container import read_file, write_file
from rfgp.tables import CSV, Batches, Parquet

MODELS = {
    "features": lambda: rfgp.SparseSpectrumGP(num_frequencies=6, seed=0),
    "exact": rfgp.ExactGP,
    "raw": lambda: rfgp.SparseSpectrumGP(num_frequencies=6, standardize=False, seed=0),
}


def data(n=60):
    """Return a frame of three scales, its targets, what is expected of new rows, and these rows."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((n, 3)) * [1.0, 10.0, 0.1], columns=["a", "b", "c"])
    return SimpleNamespace(table=table, y=np.sin(table["a"]).to_numpy() + 0.1 * table["b"].to_numpy(), new=table[:7])


def turned(table):
    """Return the columns in another order, one of texts among them."""
    return table[["c", "b", "a"]].assign(place="here")[["place", "c", "b", "a"]]


class Polars:
    """What is used of a dataframe of polars, which need not be installed."""

    def __init__(self, table):
        self.table = table

    @property
    def columns(self):
        return list(self.table.columns)

    def __getitem__(self, name):
        return self.table[name]

    def __array__(self, dtype=None, copy=None):
        return self.table.to_numpy(dtype)


ORDERS = {
    "same": lambda table: table,
    "reversed": lambda table: table[["c", "b", "a"]],
    "more": turned,
    "arrow": lambda table: pa.Table.from_pandas(turned(table)),
    "polars": lambda table: Polars(turned(table)),
    "array": lambda table: table.to_numpy(),
    "blocks": lambda table: Batches([turned(table)[:3].drop(columns="place"), table[3:]]),
    "pairs": lambda table: Batches([(turned(table), None)]),
}


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", MODELS)
def test_new_rows_go_by_the_names_of_their_columns(name, order):
    d = data()
    gp, plain = MODELS[name]().condition(d.table, d.y), MODELS[name]().condition(d.table.to_numpy(), d.y)
    new, there = ORDERS[order](d.new), d.new.to_numpy()
    close(gp.predict(new).mean, plain.predict(there).mean)
    close(gp.predict(new).variance, plain.predict(there).variance)
    if not isinstance(new, Batches):
        close(gp.prior_covariance(new), plain.prior_covariance(there))
        if name != "exact":
            close(gp.sample_functions(2, seed=0)(new), plain.sample_functions(2, seed=0)(there))


@pytest.mark.parametrize("name", MODELS)
def test_more_rows_go_by_the_names_of_their_columns(name, tmp_path):
    d = data()
    pq.write_table(pa.Table.from_pandas(d.table[["b", "c", "a"]].assign(y=d.y)), tmp_path / "rows.parquet")
    first = MODELS[name]().condition(d.table[:30], d.y[:30])
    first.predict(d.new).mean.sum()  # the posterior is there, and can take rows up
    expected = MODELS[name]().condition(d.table[:30], d.y[:30]).condition(d.table, d.y).predict(d.new).mean
    close(first.update(turned(d.table[30:]), d.y[30:]).predict(d.new).mean, expected)
    again = MODELS[name]().condition(d.table[:30], d.y[:30])
    close(copy.deepcopy(again).condition(turned(d.table), d.y).predict(d.new).mean, expected)
    if name == "exact":
        return  # an exact kernel needs its rows in memory
    source = Parquet(tmp_path / "rows.parquet", "y")
    close(copy.deepcopy(again).condition(source).predict(d.new).mean, expected)
    again.update(Batches([(turned(d.table[30:40]), d.y[30:40]), (d.table[40:], d.y[40:])]))
    close(again.predict(turned(d.new)).mean, expected)


def test_names_stay_with_the_model(tmp_path):
    d = data()
    gp = MODELS["features"]().condition(d.table, d.y)
    gp.save(tmp_path / "m.safetensors", data=True)
    loaded = rfgp.load(tmp_path / "m.safetensors")
    other = gp.with_approximation(rfgp.RandomFeatures(6, seed=1))
    for model in (gp, loaded, other, gp.exact(), loaded.exact(), other.exact()):
        close(model.predict(turned(d.new)).mean, model.predict(d.new.to_numpy()).mean)
        with pytest.raises(rfgp.DataError, match="X has no column 'b', which rbf reads"):
            model.predict(d.new[["a", "c"]])


def test_a_model_without_names_goes_by_position():
    d = data()
    gp = MODELS["features"]().condition(d.table.to_numpy(), d.y)
    turned_around = d.new[["c", "b", "a"]]
    close(gp.predict(turned_around).mean, gp.predict(turned_around.to_numpy()).mean)
    with pytest.raises(rfgp.DataError, match="X must have 3 columns"):
        gp.predict(np.zeros((2, 4)))
    close(MODELS["features"]().condition(d.table, d.y).predict(turned_around).mean, gp.predict(d.new).mean)


def test_numbers_are_names_and_a_file_without_a_header_has_none(tmp_path):
    d = data()
    numbered = d.table.set_axis([0, 1, 2], axis=1)
    gp = MODELS["features"]().condition(numbered, d.y)
    close(gp.predict(numbered[[2, 0, 1]]).mean, gp.predict(d.table.to_numpy()).mean)
    close(gp.predict(d.new).mean, gp.predict(d.new.to_numpy()).mean)  # by position
    d.table.to_csv(tmp_path / "bare.csv", header=False, index=False)
    close(gp.predict(CSV(tmp_path / "bare.csv")).mean, gp.predict(numbered).mean)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.rename(columns={"a": "q"}), "X has no column 'a', .*Its columns are: q, b, c"),
        (lambda t: t[["a", "a", "b", "c"]], "unique names, got 'a'"),
        (lambda t: t.assign(b="red"), r"Column 'b' holds text \('red' in row 0, 60 such cells\).*read_table"),
        (lambda t: t.assign(b=np.nan), r"Column 'b' has 60 missing values, the first in row 0.*Leave such rows out"),
    ],
)
def test_unusable_frames_are_named_and_nothing_is_lost(change, message):
    d = data()
    gp = MODELS["features"]().condition(d.table, d.y)
    before = gp.predict(d.new).mean
    for ask in (gp.predict, lambda X: gp.condition(X, d.y), lambda X: gp.update(X, d.y), gp.sample_functions(1)):
        with pytest.raises(rfgp.DataError, match=message):
            ask(change(d.table))
    np.testing.assert_array_equal(gp.predict(d.new).mean, before)


def test_columns_may_be_named_as_attributes_are():
    d = data()
    table = d.table.set_axis(["column_names", "columns", "select"], axis=1)
    gp = MODELS["features"]().condition(table, d.y)
    close(gp.predict(table[["select", "column_names", "columns"]]).mean, gp.predict(table.to_numpy()).mean)


@pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::rfgp.PoorFeaturesWarning")
def test_the_process_of_an_estimator_knows_them_too():
    d = data()
    estimator = rfgp.sklearn.GPRegressor(k.RBF(), rfgp.RandomFeatures(6), random_state=0, max_iter=2).fit(d.table, d.y)
    close(estimator.gp_.predict(turned(d.new)).mean, estimator.predict(d.new))


@pytest.mark.parametrize("names", [["a", "b"], ["a", "b", "b"], "abc", [1, 2, 3]])
def test_a_file_with_other_names_than_columns_is_refused(names, tmp_path):
    d = data()
    MODELS["features"]().condition(d.table, d.y).save(tmp_path / "m.safetensors")
    header, tensors = read_file(tmp_path / "m.safetensors")
    write_file(tmp_path / "m.safetensors", json.loads(json.dumps({**header, "columns": names})), dict(tensors))
    with pytest.raises(rfgp.ModelFileError):
        rfgp.load(tmp_path / "m.safetensors")
