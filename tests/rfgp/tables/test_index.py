"""The index of a dataframe, which pandas writes to files without a name, is no input."""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import rfgp
from rfgp import kernels as k
from rfgp.tables import CSV, Batches, Parquet, read_inputs, read_table

N = 60
NAMES = ["Unnamed: 0", "Unnamed: 0.1", "__index_level_0__", ""]


def frame(sort=False):
    """Return two inputs that say nothing about the target."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.standard_normal(N), "b": rng.standard_normal(N), "y": rng.standard_normal(N)})
    return table.assign(y=np.sort(table["y"])) if sort else table


def warned(call, match):
    """Return the result of a call that warns of an index."""
    with pytest.warns(rfgp.IndexColumnWarning, match=match) as found:
        result = call()
    assert len(found) == 1
    assert found[0].filename == __file__
    return result


def silent(call):
    """Return the result of a call that warns of nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return call()


def process():
    """Return a model that takes rows in memory and in blocks."""
    return rfgp.SparseSpectrumGP(num_frequencies=4, seed=0)


class TestFiles:
    def test_an_index_is_left_out_with_a_warning(self, tmp_path):
        frame().to_csv(tmp_path / "t.csv")
        table = warned(lambda: read_table(tmp_path / "t.csv"), "'Unnamed: 0' is left out")
        np.testing.assert_array_equal(table.X, frame()[["a", "b"]])
        assert (table.columns, table.schema.dropped) == (("a", "b"), ("Unnamed: 0",))

    def test_a_sorted_target_is_not_predicted_by_the_index(self, tmp_path):
        frame(sort=True).to_csv(tmp_path / "t.csv")
        table = warned(lambda: read_table(tmp_path / "t.csv"), "left out")
        test = np.arange(N) % 4 == 0
        gp = rfgp.ExactGP()
        found = gp.fit(table.X[~test], table.y[~test]).predict(table.X[test]).mean
        assert np.mean((found - table.y[test]) ** 2) > 0.5 * np.var(table.y[test])  # by the index it is 0.01

    def test_an_index_of_r_counts_from_one(self, tmp_path):
        frame().set_index(np.arange(1, N + 1)).to_csv(tmp_path / "t.csv")
        assert warned(lambda: read_table(tmp_path / "t.csv"), "left out").columns == ("a", "b")

    def test_an_index_with_gaps_is_named_and_kept(self, tmp_path):
        frame()[::2].to_csv(tmp_path / "t.csv")
        table = warned(lambda: read_table(tmp_path / "t.csv"), "'Unnamed: 0' is an input.*drop='Unnamed: 0'")
        assert table.columns == ("Unnamed: 0", "a", "b")
        assert silent(lambda: read_table(tmp_path / "t.csv", drop="Unnamed: 0")).columns == ("a", "b")

    def test_an_index_written_twice_is_left_out_twice(self, tmp_path):
        frame().to_csv(tmp_path / "t.csv")
        pd.read_csv(tmp_path / "t.csv").to_csv(tmp_path / "t2.csv")
        with pytest.warns(rfgp.IndexColumnWarning) as found:
            assert read_table(tmp_path / "t2.csv").columns == ("a", "b")
        assert len(found) == 2

    def test_the_index_of_parquet_is_never_the_target(self, tmp_path):
        order = np.random.default_rng(1).permutation(N)
        frame().iloc[order].to_parquet(tmp_path / "t.parquet")
        table = warned(lambda: read_table(tmp_path / "t.parquet"), "'__index_level_0__' is an input")
        assert table.target == "y"
        pa_table = pa.table({**frame().to_dict("list"), "__index_level_0__": range(N)})
        pa.parquet.write_table(pa_table, tmp_path / "t.parquet")
        assert warned(lambda: read_table(tmp_path / "t.parquet"), "left out").columns == ("a", "b")

    def test_a_column_that_is_wanted_is_kept(self, tmp_path):
        frame().to_csv(tmp_path / "t.csv")
        assert silent(lambda: read_table(tmp_path / "t.csv", "Unnamed: 0")).target == "Unnamed: 0"
        named = frame().rename_axis("time").reset_index()
        named.to_csv(tmp_path / "n.csv", index=False)
        assert silent(lambda: read_table(tmp_path / "n.csv")).columns == ("time", "a", "b")

    @pytest.mark.parametrize("fitted", [True, False])
    @pytest.mark.parametrize("new", [True, False])
    def test_files_to_predict_may_have_the_index_or_not(self, fitted, new, tmp_path):
        frame().to_csv(tmp_path / "t.csv", index=fitted)
        frame()[7:20].to_csv(tmp_path / "new.csv", index=new)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", rfgp.IndexColumnWarning)
            table = read_table(tmp_path / "t.csv")
        inputs = silent(lambda: read_inputs(tmp_path / "new.csv", table.schema))
        np.testing.assert_array_equal(inputs.X, frame()[["a", "b"]][7:20])


SOURCES = {
    "CSV": lambda table, path: (table.to_csv(path, index=False), CSV(path, "y"))[1],
    "Parquet": lambda table, path: (table.to_parquet(path, index=False), Parquet(path, "y"))[1],
    "blocks": lambda table, path: Batches([table[:40], table[40:]], "y"),
    "frame": lambda table, path: table,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
class TestModels:
    def fitted(self, make, path, table, y):
        source = make(table, path)
        given = (source,) if source is not table else (table.drop(columns="y"), y)
        return process().condition(*given)

    def test_rows_are_read_without_the_index(self, make, name, tmp_path):
        table = frame()
        table.insert(0, name, np.arange(N))
        with pytest.warns(rfgp.IndexColumnWarning, match="left out"):
            gp = self.fitted(make, tmp_path / "t", table, table["y"])
        expected = process().condition(table[["a", "b"]], table["y"])
        np.testing.assert_allclose(gp.predict(table[7:9]).mean, expected.predict(table[["a", "b"]][7:9]).mean)

    def test_an_index_with_gaps_is_kept_and_named(self, make, name, tmp_path):
        table = frame()
        table.insert(0, name, 3 * np.arange(N))
        with pytest.warns(rfgp.IndexColumnWarning, match="is an input"):
            gp = self.fitted(make, tmp_path / "t", table, table["y"])
        assert gp.predict(np.zeros((1, 3))).mean.shape == (1,)


def test_estimators_leave_the_index_out():
    from rfgp.sklearn import GPRegressor

    table = frame()
    table.insert(0, "Unnamed: 0", np.arange(N))
    X = table.drop(columns="y")
    with pytest.warns(rfgp.IndexColumnWarning, match="left out"):
        found = GPRegressor(k.RBF(), rfgp.RandomFeatures(8), random_state=0).fit(X, table["y"])
    expected = GPRegressor(k.RBF(), rfgp.RandomFeatures(8), random_state=0).fit(X[["a", "b"]], table["y"])
    assert found.n_features_in_ == 3
    np.testing.assert_allclose(found.predict(X[5:9]), expected.predict(X[["a", "b"]][5:9]))
