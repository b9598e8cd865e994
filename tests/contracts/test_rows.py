"""Rows with names, noise and weights of their own, replicates, and rows that are standardized as they are read."""

import copy
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from scipy import stats

import graphs
import rfgp
from rfgp import kernels as k
from rfgp import rows
from rfgp.tables import CSV, Batches, Parquet

GRAPH = graphs.Graph.from_networkx(nx.convert_node_labels_to_integers(nx.grid_2d_graph(6, 6)))
START = {"outputscale": 1.3, "noise": 0.1}
TABLE = {"seed": 0, "lengthscale": 1.2, **START}
ARD = k.RBF(lengthscale=1.2)
MODELS = {
    "few features": lambda: rfgp.SparseSpectrumGP(num_frequencies=8, standardize=False, **TABLE),
    "many features": lambda: rfgp.SparseSpectrumGP(num_frequencies=50, standardize=False, **TABLE),
    "standardized": lambda: rfgp.SparseSpectrumGP(num_frequencies=8, **TABLE),
    "exact": lambda: rfgp.ExactGP(standardize=False, lengthscale=1.2, **START),
    "graph": lambda: rfgp.GraphGP(GRAPH, features="walks", num_walkers=8, seed=0, **START),
    "neighbors": lambda: rfgp.GP(ARD, approximation=rfgp.Vecchia(23), start=START, seed=0),
    "lattice": lambda: rfgp.GP(ARD, approximation=rfgp.EquispacedFourier(tolerance=1e-8), start=START, seed=0),
}


def data(name="few features", seed=0):
    """Return 24 rows of a table or nodes with y, noise and weight, and new ones."""
    rng = np.random.default_rng(seed)
    X, noise, weight = rng.standard_normal((24, 2)), rng.uniform(0.05, 0.5, 24), rng.integers(1, 5, 24)
    y, new = np.sin(X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(24), rng.standard_normal((5, 2))
    if name == "graph":
        X, new = [int(i) for i in rng.permutation(36)[:24]], [0, 7, 30]
    return SimpleNamespace(X=X, y=y, noise=noise, weight=weight, new=new)


def take(inputs, chosen):
    return inputs[chosen] if isinstance(inputs, np.ndarray) else [inputs[i] for i in chosen]


EXTRAS = {"plain": (), "noise": ("noise",), "weights": ("sample_weight",), "both": ("noise", "sample_weight")}
HOW = ("at once", "read", "update")
CASES = [
    *((name, extra, "at once") for name in ("few features", "exact", "graph") for extra in EXTRAS),
    *((name, "both", how) for name in MODELS for how in HOW),
]


@pytest.mark.parametrize(("name", "extra", "how"), CASES)
def test_density_posterior_and_leave_one_out_match_dense_algebra(limits, name, extra, how):
    """A row of weight w has the noise D = s / w, with the variance s of one observation.

    A repeated value is N(y; f, s)^w = N(y; f, s / w) (2 pi s)^(-(w - 1) / 2) w^(-1 / 2), so the likelihood of the
    repetitions is that of D with the factors after it, which the function does not enter.
    """
    limits(max_copied=10 if how == "read" else 10**6)
    d, gp = data(name), MODELS[name]()
    given = {key: {"noise": d.noise, "sample_weight": 0.37 * d.weight}[key] for key in EXTRAS[extra]}
    if how == "update":
        first = list(range(20))
        gp.condition(take(d.X, first), d.y[:20], **{key: value[:20] for key, value in given.items()})
        gp.predict(d.new).mean.sum()
        gp.update(take(d.X, range(20, 24)), d.y[20:], **{key: value[20:] for key, value in given.items()})
    else:
        gp.condition(d.X, d.y, **given)
    weight, noise = given.get("sample_weight", np.ones(24)), gp.hyperparameters.noise.item() + given.get("noise", 0.0)
    both = np.concatenate([d.X, d.new]) if name != "graph" else [*d.X, *d.new]
    K, prior_mean = gp.prior_covariance(both).detach().numpy(), gp.hyperparameters.mean.item()
    noise = noise + np.zeros(24)
    residual, A = d.y - prior_mean, K[:24, :24] + np.diag(noise / weight)
    p, out = gp.predict(d.new), gp.leave_one_out()
    tolerance = 1e-4 if name in ("neighbors", "lattice") else 1e-8
    np.testing.assert_allclose(p.mean, prior_mean + K[24:, :24] @ np.linalg.solve(A, residual), tolerance, tolerance)
    variance = np.diag(K[24:, 24:] - K[24:, :24] @ np.linalg.solve(A, K[:24, 24:]))
    np.testing.assert_allclose(p.variance, variance, 100 * tolerance, tolerance)
    factors = -0.5 * ((weight - 1) * np.log(2 * np.pi * noise) + np.log(weight)).sum()
    density = stats.multivariate_normal(np.zeros(24), A).logpdf(residual) + factors
    assert gp.log_marginal_likelihood().item() == pytest.approx(density, rel=10 * tolerance)
    inverse = np.linalg.inv(A)
    mean = d.y - inverse @ residual / np.diag(inverse)
    variance = 1 / np.diag(inverse) - noise / weight + noise
    np.testing.assert_allclose(out.mean, mean, 100 * tolerance, 10 * tolerance)
    np.testing.assert_allclose(out.variance, variance, 100 * tolerance)
    np.testing.assert_allclose(out.log_prob, stats.norm(mean, variance**0.5).logpdf(d.y), 1e-3, 1e-3)


@pytest.mark.parametrize("name", ["blocks", "arrays", "raw", "graph"])
def test_a_weight_repeats_its_row_from_the_units_on(name):
    """Means, deviations, starting values, the likelihood and predictions are those of the repeated rows."""
    options = {"num_frequencies": 6, "seed": 0, "standardize": name != "raw"}
    make = (lambda: rfgp.GraphGP(GRAPH, seed=0)) if name == "graph" else lambda: rfgp.SparseSpectrumGP(**options)
    d, repeated = data(name), np.repeat(np.arange(24), data(name).weight)
    several = make().condition(take(d.X, repeated), d.y[repeated])
    if name == "blocks":
        table = pd.DataFrame(d.X).assign(y=d.y, w=d.weight)
        once = make().condition(Batches([table[:9], table[9:]], "y", sample_weight="w"))
    else:
        once = make().condition(d.X, d.y, sample_weight=d.weight)
    for quantity in once.hyperparameters.names:
        ours, expected = (getattr(gp.hyperparameters, quantity).detach() for gp in (once, several))
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-13)
    a, b = (gp.log_marginal_likelihood().item() for gp in (once, several))
    assert a == pytest.approx(b, rel=1e-11)
    np.testing.assert_allclose(once.predict(d.new).mean, several.predict(d.new).mean, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", ["few features", "exact", "graph"])
def test_tiny_weights_leave_a_row_out_or_are_refused(name):
    d, make = data(name), MODELS[name]
    gp, less = make().condition(d.X, d.y, sample_weight=np.r_[np.ones(23), 1e-140]), make()
    less.condition(take(d.X, range(23)), d.y[:23])
    less.hyperparameters.load_state_dict(gp.hyperparameters.state_dict())
    np.testing.assert_allclose(gp.predict(d.new).mean, less.predict(d.new).mean, rtol=1e-7)
    for weight in (5e-324, 1e-200, 1e200):
        with pytest.raises(rfgp.DataError, match=r"1e-150.*in row 23"):
            make().condition(d.X, d.y, sample_weight=np.r_[np.ones(23), weight])


def test_a_fit_uses_noise_and_weights_and_a_file_keeps_them(tmp_path):
    d, make = data(), MODELS["few features"]
    gp = make().fit(torch.as_tensor(d.X), torch.as_tensor(d.y), noise=d.noise, sample_weight=d.weight)
    gp.save(tmp_path / "m.safetensors", data=True)
    again = rfgp.load(tmp_path / "m.safetensors")
    assert again.log_marginal_likelihood().item() == gp.log_marginal_likelihood().item()
    assert isinstance(again.leave_one_out().mean, torch.Tensor)
    plain = make().fit(d.X, d.y)
    assert plain.hyperparameters.noise.item() != pytest.approx(gp.hyperparameters.noise.item(), rel=0.01)


REFUSED = {
    "length": ({"noise": np.full(3, 0.1)}, r"24 rows, got shape \(3,\)"),
    "negative": ({"noise": np.full(24, -0.1)}, "not negative, got -"),
    "nan": ({"noise": np.full(24, np.nan)}, "got nan in row 0"),
    "a number": ({"noise": 0.3}, "one value for each"),
    "zero": ({"sample_weight": np.zeros(24)}, "positive, got 0 in row 0"),
    "text": ({"sample_weight": ["a"] * 24}, "sample_weight"),
}


@pytest.mark.parametrize(("extra", "words"), REFUSED.values(), ids=REFUSED)
def test_bad_noise_and_weights_are_named_and_nothing_is_lost(extra, words):
    d = data()
    gp = MODELS["few features"]().condition(d.X, d.y)
    before = gp.predict(d.new).mean
    for call in (gp.condition, gp.fit, gp.update):
        with pytest.raises(rfgp.DataError, match=words):
            call(d.X, d.y, **extra)
    np.testing.assert_array_equal(gp.predict(d.new).mean, before)


@pytest.mark.parametrize("weighted", [False, True])
def test_merged_replicates_have_the_density_of_all_rows(weighted):
    """By sufficient statistics: N(mean of w rows; f, s / w), and factors of w and their sum of squares."""
    rng = np.random.default_rng(0)
    places, y = rng.integers(15, size=60), rng.normal(size=60)
    x, weight = rng.normal(size=(15, 2))[places], rng.integers(1, 4, 60).astype(float)
    block = rows.Block(torch.tensor(x), torch.tensor(y)[:, None], None, torch.tensor(weight) if weighted else None)
    merged = rows.merge_replicates(block)
    for one in (merged, rows.merge_replicates(rows.merge_replicates(block, 2))):
        assert len(one) == len({*places})
        mean, count, squares = (
            one.targets[:, 0].numpy(),
            one.counts().numpy(),
            one.replicate_sum_of_squares.sum().item(),
        )

        def density(x, y, count, squares):
            K, s = np.exp(-((x[:, None] - x) ** 2).sum(2) / 2), 0.3
            value = stats.multivariate_normal(np.zeros(len(x)), K + np.diag(s / count)).logpdf(y)
            return value - 0.5 * (((count - 1) * np.log(2 * np.pi * s) + np.log(count)).sum() + squares / s)

        whole = density(x, y, weight if weighted else np.ones(60), 0.0)
        assert density(one.inputs.numpy(), mean, count, squares) == pytest.approx(whole, rel=1e-10)
    assert rows.merge_replicates(merged) is merged


@pytest.mark.parametrize(("dtype", "weighted"), [(np.float64, True), (np.float32, False)])
def test_units_of_many_rows_are_their_moments(dtype, weighted):
    """Sums over blocks of rows: a shared lengthscale is in deviations of each column, and the mean is that of y."""
    rng = np.random.default_rng(0)
    X, weight = (rng.uniform(5, 9, (70_000, 2)) * [1e3, 1e-3]).astype(dtype), rng.integers(1, 4, 70_000)
    y = X[:, 0].astype(np.float64) / 1e3
    w = weight if weighted else np.ones(70_000)
    gp = rfgp.GP(k.RBF(ard=False), approximation=rfgp.Vecchia(3), seed=0)
    gp.condition(X, y.astype(dtype), **({"sample_weight": weight} if weighted else {}))
    mean = (w[:, None] * X).sum(0) / w.sum()
    deviation = ((w[:, None] * (X - mean) ** 2).sum(0) / (w.sum() - 1)) ** 0.5
    tolerance = 1e-9 if dtype == np.float64 else 1e-4
    assert gp.hyperparameters["mean"].item() == pytest.approx((w * y).sum() / w.sum(), rel=tolerance)
    gp.hyperparameters.set(lengthscale=1.0, outputscale=1.0)
    points = np.stack([mean, mean + deviation * [1, 0], mean + deviation * [1, 2]]).astype(dtype)
    distances = np.array([[0, 1, 5], [1, 0, 4], [5, 4, 0]])
    np.testing.assert_allclose(gp.prior_covariance(points).detach(), np.exp(-distances / 2), rtol=tolerance)


def test_values_out_of_range_are_refused_with_their_row(limits):
    limits(max_copied=10)
    X = np.random.default_rng(0).uniform(0, 1e-30, (30, 1)).astype(np.float32)
    gp = rfgp.GP(k.RBF(), seed=0).condition(X, X[:, 0] * 1e30)
    X[17] = 3e38
    with pytest.raises(rfgp.DataError, match="row 17"):
        gp.condition(X, np.zeros(30, dtype=np.float32))


# --- names of columns ---------------------------------------------------------------------------------

NAMED = {
    "features": lambda: rfgp.SparseSpectrumGP(num_frequencies=6, seed=0),
    "exact": rfgp.ExactGP,
    "raw": lambda: rfgp.SparseSpectrumGP(num_frequencies=6, standardize=False, seed=0),
}
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
        close(copy.deepcopy(again).condition(Parquet(tmp_path / "rows.parquet", "y")).predict(NEW).mean, expected)
        again.update(Batches([(turned(FRAME[30:40]), Y[30:40]), (FRAME[40:], Y[40:])]))
        close(again.predict(turned(NEW)).mean, expected)


def test_names_stay_with_the_model(tmp_path):
    gp = NAMED["features"]().condition(FRAME, Y)
    gp.save(tmp_path / "m.safetensors", data=True)
    loaded, other = rfgp.load(tmp_path / "m.safetensors"), gp.with_approximation(rfgp.RandomFeatures(6, seed=1))
    for model in (gp, loaded, other, gp.exact(), loaded.exact()):
        before = model.predict(NEW.to_numpy()).mean
        close(model.predict(turned(NEW)).mean, before)
        for change, words in (
            (NEW.rename(columns={"a": "q"}), "no column 'a', .*Its columns are: q, b, c"),
            (NEW[["a", "a", "b", "c"]], "unique"),
            (NEW.assign(b="red"), "'b' holds text"),
        ):
            with pytest.raises(rfgp.DataError, match=words):
                model.predict(change)
        np.testing.assert_array_equal(model.predict(NEW.to_numpy()).mean, before)


def test_a_model_without_names_goes_by_position(tmp_path):
    gp = NAMED["features"]().condition(FRAME.to_numpy(), Y)
    close(gp.predict(NEW[["c", "b", "a"]]).mean, gp.predict(NEW[["c", "b", "a"]].to_numpy()).mean)
    with pytest.raises(rfgp.DataError, match="3 columns"):
        gp.predict(np.zeros((2, 4)))
    numbered = FRAME.set_axis([0, 1, 2], axis=1)
    gp = NAMED["features"]().condition(numbered, Y)
    close(gp.predict(numbered[[2, 0, 1]]).mean, gp.predict(FRAME.to_numpy()).mean)
    FRAME.to_csv(tmp_path / "bare.csv", header=False, index=False)
    close(gp.predict(CSV(tmp_path / "bare.csv")).mean, gp.predict(numbered).mean)
    renamed = FRAME.set_axis(["column_names", "columns", "select"], axis=1)  # as attributes of dataframes
    gp = NAMED["features"]().condition(renamed, Y)
    close(gp.predict(renamed[["select", "column_names", "columns"]]).mean, gp.predict(renamed.to_numpy()).mean)
