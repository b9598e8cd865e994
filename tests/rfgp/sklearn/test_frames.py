"""Dataframes with columns of any kind, which kernels name."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler

import rfgp
from rfgp import kernels as k
from rfgp.sklearn import GPClassifier, GPCountRegressor, GPRegressor

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")  # searches are short

KERNEL = k.RBF("t") + k.Group("store") + k.Group("open") + k.Group("kind") + k.Linear("day")


def drawn(n=60):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "t": np.linspace(0, 10, n),
            "store": rng.choice(["north", "south", "east"], n),
            "day": pd.date_range("2024-01-01", periods=n),
            "open": rng.random(n) > 0.5,
            "kind": pd.Categorical(rng.choice(["a", "b"], n)),
        }
    )
    return frame, np.sin(frame.t) + (frame.store == "north") + frame.open + 0.1 * rng.standard_normal(n)


FRAME, Y = drawn()


def test_columns_of_all_kinds_reach_the_model():
    model = GPRegressor(KERNEL, random_state=0).fit(FRAME, Y)
    gp = rfgp.GP(KERNEL, seed=0).fit(FRAME, Y)
    np.testing.assert_array_equal(model.predict(FRAME), gp.predict(FRAME).mean)
    assert list(model.feature_names_in_) == list(FRAME)
    assert list(model.terms(FRAME)) == ["rbf(t)", "group(store)", "group(open)", "group(kind)", "linear(day)"]
    assert model.score(FRAME, Y) > 0.9
    other = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(other.predict(FRAME), model.predict(FRAME))


@pytest.mark.parametrize("make", [GPRegressor, GPClassifier, GPCountRegressor])
def test_weights_repeat_rows_of_frames(make):
    weight = np.random.default_rng(1).integers(0, 3, 60)
    y = np.round(2 * Y.clip(0)).astype(int).clip(0, 2).to_numpy()
    written = make(KERNEL, max_iter=2, random_state=0).fit(FRAME.loc[FRAME.index.repeat(weight)], y.repeat(weight))
    weighted = make(KERNEL, max_iter=2, random_state=0).fit(FRAME, y, sample_weight=weight)
    # dates count from the first row, which differs if its weight is zero, and sums are rounded differently
    np.testing.assert_allclose(written.predict(FRAME), weighted.predict(FRAME), rtol=1e-12)
    assert written.gp_.num_observations == np.count_nonzero(weight)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_frames_of_other_libraries(library):
    module = pytest.importorskip(library)
    columns = {name: FRAME[name].to_numpy() for name in ("t", "open")} | {"store": FRAME.store.to_list()}
    frame = module.DataFrame(columns) if library == "polars" else module.table(columns)
    model = GPRegressor(k.RBF("t") + k.Group("store"), random_state=0, max_iter=5)
    weight = np.arange(60) % 3
    expected = model.fit(FRAME[["t", "open", "store"]], Y, weight).predict(FRAME[["t", "open", "store"]])
    np.testing.assert_allclose(model.fit(frame, Y.to_numpy(), weight).predict(frame), expected, rtol=1e-9)


@pytest.mark.parametrize("output", ["pandas", "default"])
def test_columns_of_a_transformer(output):
    columns = make_column_transformer(
        (OrdinalEncoder(), ["store"]), (StandardScaler(), ["t"]), verbose_feature_names_out=False
    ).set_output(transform=output)
    kernel = k.RBF("t") + k.Group("store") if output == "pandas" else k.RBF(1) + k.Group(0)
    model = make_pipeline(columns, GPRegressor(kernel, random_state=0)).fit(FRAME, Y)
    assert model.score(FRAME, Y) > 0.6


def test_a_grid_of_kernels_and_approximations():
    grid = {
        "kernel": [k.RBF("t"), k.RBF("t") + k.Group("store") + k.Group("open")],
        "approximation": ["auto", rfgp.RandomFeatures(8)],
    }
    rows = np.random.default_rng(2).permutation(60)
    search = GridSearchCV(GPRegressor(random_state=0, max_iter=20), grid, cv=3, error_score="raise")
    search.fit(FRAME.iloc[rows], Y.iloc[rows])
    assert search.best_params_["kernel"] == grid["kernel"][1]
    assert search.best_score_ > 0.8


def test_dates_without_a_kernel_go_to_the_model():
    frame = FRAME[["t", "day"]]
    model = GPRegressor(random_state=0, max_iter=3).fit(frame, Y)
    gp = rfgp.GP(seed=0).fit(frame, Y, max_iterations=3)
    np.testing.assert_array_equal(model.predict(frame), gp.predict(frame).mean)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"t": np.where(FRAME.t > 9, np.inf, FRAME.t)}, "'t' has .* not finite"),
        ({"t": np.where(FRAME.t > 9, np.nan, FRAME.t)}, "'t' has .* missing"),
        ({"store": [None, *FRAME.store[1:]]}, "'store' has 1 missing"),
        ({"t": FRAME.store}, "'t' holds text"),
        ({"store": [1, "1"] * 30}, "'store' holds"),
    ],
)
def test_bad_columns_are_named(change, message):
    with pytest.raises(rfgp.DataError, match=message):
        GPRegressor(KERNEL).fit(FRAME.assign(**change), Y)


def test_bad_frames_are_named():
    with pytest.raises(rfgp.DataError, match="no column 't'"):
        GPRegressor(KERNEL).fit(FRAME.drop(columns="t"), Y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        GPRegressor(KERNEL).fit(FRAME, Y[:-1])
    with pytest.raises(ValueError, match="at least two rows"):
        GPRegressor(KERNEL).fit(FRAME[:1], Y[:1])
    model = GPRegressor(KERNEL, max_iter=1, random_state=0).fit(FRAME, Y)
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(FRAME.drop(columns="t"))
    with pytest.raises(ValueError, match="could not convert string to float"):
        model.predict(FRAME.to_numpy())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", ["auto", k.RBF()], ids=["auto", "given"])
def test_an_index_of_pandas_is_left_out(kernel, weighted):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"Unnamed: 0": np.arange(30.0), "a": rng.normal(size=30)})
    weight = rng.integers(1, 4, 30).astype(float) if weighted else None
    model = GPRegressor(kernel, random_state=0, max_iter=3)
    with pytest.warns(rfgp.IndexColumnWarning, match="left out"):
        found = model.fit(X, np.sin(X.a), weight).predict(X)
    expected = model.fit(X[["a"]], np.sin(X.a), weight).predict(X[["a"]])
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    model.set_params(kernel=k.RBF("Unnamed: 0")).fit(X, np.sin(X.a), weight)
    assert model.gp_.kernel.terms()[0].factors[0].columns == ("Unnamed: 0",)
