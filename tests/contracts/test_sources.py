"""A model of rows in blocks, whatever they come from, is that of the same rows in memory."""

import copy
import gzip
import os
import signal
import threading
import time
import weakref
from contextlib import contextmanager
from functools import partial
from itertools import chain, cycle, repeat

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from checks import assert_mean

import graphs
import rfgp
from rfgp import kernels as k
from rfgp.rows.sources import summarize_source
from rfgp.tables import CSV, Batches, Parquet
from tests.support.refusals import refused

da, dd = pytest.importorskip("dask.array"), pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed", reason="the extra rfgp[dask] is not installed")
import rfgp.dask  # noqa: E402
from rfgp.dask import Partitions  # noqa: E402

ROWS = 240
INPUTS = ["t", "day", "store", "zip", "open"]
KERNEL = (
    k.RBF("t", name="trend")
    + k.Matern("day", nu=1.5, name="season")
    + k.Group("store")
    + k.Categorical("zip", correlation=0.3)
    + k.RBF("t") * k.Group("open")
)
pytestmark = pytest.mark.filterwarnings(
    "ignore::rfgp.ConvergenceWarning", "ignore::rfgp.VarianceStarvationWarning", "ignore::rfgp.OverfittingWarning"
)


def drawn():
    """Return a table of numbers, dates, text, integers and booleans, with targets, weights and noise."""
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, ROWS), "D")
    frame = pd.DataFrame({"t": rng.uniform(0, 10, ROWS), "day": days})
    frame["store"], frame["zip"] = rng.choice(["west", "north", "south"], ROWS), rng.integers(100, 104, ROWS)
    frame["open"] = rng.random(ROWS) < 0.5
    frame["y"] = 3 + np.sin(frame.t) + 0.5 * (frame.store == "north") + 0.1 * rng.standard_normal(ROWS)
    frame["z"] = 0.1 * frame.t - 2 * frame.y
    frame["count"] = rng.poisson(np.exp(frame.y - 2)).astype(float)
    frame["label"] = (frame.y > 3).astype(float)
    frame["positive"] = rng.gamma(2.0, np.exp(frame.y - 3))
    frame["class"] = frame.zip % 4.0
    frame["weight"], frame["noise"] = rng.integers(1, 4, ROWS).astype(float), rng.uniform(0.01, 0.1, ROWS)
    return frame


FRAME = drawn()
X, Y = FRAME[INPUTS], FRAME.y.to_numpy()
VALUES = np.c_[FRAME.t, 10 * FRAME.zip, FRAME.noise]
"""A matrix of three scales for models that read columns by number."""


def blocks(frame, size=50):
    """Return a function that yields the rows of a frame in blocks, as from a database."""
    return lambda: (frame.iloc[first : first + size] for first in range(0, len(frame), size))


def model(approximation=None, kernel=KERNEL, **options):
    return rfgp.GP(kernel, approximation=approximation or rfgp.RandomFeatures(6), seed=0, **options)


def spectrum(**options):
    return rfgp.SparseSpectrumGP(num_frequencies=12, seed=0, **options)


def assert_same(one, other, points, tolerance=1e-8):
    a, b = one.predict(points), other.predict(points)
    np.testing.assert_allclose(a.mean, b.mean, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(a.variance, b.variance, rtol=100 * tolerance, atol=tolerance)


@pytest.fixture(autouse=True)
def small_blocks(limits):
    """Read files and arrays in blocks of fewer rows than there are."""
    limits(chunk_rows=64, chunk_bytes=2**11, min_blocked_bytes=0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows")
    FRAME.to_parquet(path / "rows.parquet", row_group_size=70)
    text = FRAME.to_csv(index=False)
    (path / "rows.csv").write_text(text)
    (path / "rows.csv.gz").write_bytes(gzip.compress(text.encode()))
    (path / "bare.csv").write_text(text.split("\n", 1)[1])
    FRAME.to_csv(path / "marked.csv", index=False, sep=";", decimal=",")
    np.save(path / "X.npy", VALUES)
    (path / "parts").mkdir()
    for number in range(3):
        FRAME[number * 80 : (number + 1) * 80].to_parquet(path / "parts" / f"{number}.parquet")
    return path


@contextmanager
def cluster(processes):
    """Start a cluster of two workers, in threads or in processes of their own."""
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": processes, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as workers, distributed.Client(workers) as client:
        yield client


@pytest.fixture(scope="module")
def client():
    with cluster(processes=False) as one:
        yield one


def on_cluster(frame, y, parts=3, **roles):
    return Partitions(dd.from_pandas(frame, npartitions=parts), y, **roles)


KINDS = ("Parquet", "files", "CSV", "gzip", "no header", "decimal comma", "frames", "dicts", "polars", "Arrow", "Dask")


def source(kind, folder, y, **roles):
    """Return a source of the table of all types of cells."""
    if kind == "Dask":
        return on_cluster(FRAME[[*INPUTS, *np.atleast_1d(y), *roles.values()]], y, **roles)
    make = {
        "Parquet": partial(Parquet, folder / "rows.parquet"),
        "files": partial(Parquet, folder / "parts"),
        "CSV": partial(CSV, folder / "rows.csv"),
        "gzip": partial(CSV, folder / "rows.csv.gz"),
        "no header": partial(CSV, folder / "bare.csv", names=list(FRAME)),
        "decimal comma": partial(CSV, folder / "marked.csv", decimal=","),
        "frames": partial(Batches, blocks(FRAME)),
        "dicts": partial(Batches, lambda: map(dict, blocks(FRAME)())),
        "polars": partial(Batches, lambda: map(pl.DataFrame, blocks(FRAME)())),
        "Arrow": partial(Batches, lambda: map(pa.Table.from_pandas, blocks(FRAME)())),
    }[kind]
    return make(y, columns=INPUTS, **roles)


LIKELIHOODS = {
    "noise and weights": ("gaussian", "y", {"noise": "noise", "sample_weight": "weight"}),
    "outputs": ("gaussian", ["y", "z"], {"sample_weight": "weight"}),
    "bernoulli": ("bernoulli", "label", {}),
    "poisson": ("poisson", "count", {"sample_weight": "weight"}),
    "negative-binomial": ("negative-binomial", "count", {}),
    "student-t": ("student-t", "y", {}),
    "gamma": ("gamma", "positive", {}),
    "categorical": (rfgp.likelihoods.Categorical(4), "class", {}),
    "hurdle-poisson": ("hurdle-poisson", "count", {}),
    "ordinal": (rfgp.likelihoods.Ordinal(4), "class", {}),
    "weibull": ("weibull", "positive", {}),
    "tobit": ("tobit", "y", {}),
    "lognormal": ("lognormal", "positive", {}),
}
"""A likelihood, its target, and the columns of noise and weights."""


def slow_there(kind, *others):
    """Return a case that is slow if its rows are on a cluster."""
    return pytest.param(kind, *others, marks=[pytest.mark.slow] if kind == "Dask" else [])


PAIRS = [(kind, ("gaussian", "y", {})) for kind in KINDS]
PAIRS += map(
    slow_there,
    ("Parquet", "Dask", "frames", "Dask", "CSV", "Dask", "decimal comma", "dicts", *["Dask"] * 5),
    LIKELIHOODS.values(),
)


def both(kind, likelihood, folder, **options):
    """Return a model of the rows of a source, and one of the rows in memory."""
    name, target, roles = likelihood
    options |= {"likelihood": name} | ({} if name == "gaussian" else {"inference": "laplace"})
    there = model(**options).condition(source(kind, folder, target, **roles))
    columns = {role: FRAME[column].to_numpy() for role, column in roles.items()}
    return there, model(**options).condition(X, FRAME[target].to_numpy(), **columns)


@pytest.mark.parametrize(("kind", "likelihood"), PAIRS)
def test_a_model_of_a_source_is_that_of_its_rows(client, folder, kind, likelihood):
    there, here = both(kind, likelihood, folder)
    is_gaussian = likelihood[0] == "gaussian"
    assert there.num_observations == here.num_observations
    assert_same(there, here, X[:40], 1e-8 if is_gaussian else 1e-6)
    values = [gp.log_marginal_likelihood() for gp in (there, here)]
    assert values[0].item() == pytest.approx(values[1].item(), rel=1e-9)
    slopes = [
        torch.autograd.grad(value, list(gp.hyperparameters.raw.values()))
        for gp, value in zip((there, here), values, strict=True)
    ]
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    if is_gaussian:
        np.testing.assert_allclose(there.leave_one_out().variance, here.leave_one_out().variance, rtol=1e-7)


def test_every_likelihood_is_in_the_table_or_refused(folder):
    zero_inflated = ("zero-inflated-poisson", "zero-inflated-negative-binomial")
    in_memory = {"heteroscedastic": "y", "beta": "noise", "binomial": "count", **dict.fromkeys(zero_inflated, "count")}
    assert {*rfgp.likelihoods.names()} == {"gaussian", *LIKELIHOODS, *in_memory} - {"noise and weights", "outputs"}
    for name, target in in_memory.items():
        gp, rows = model(likelihood=name), source("Parquet", folder, target)
        word = "trials" if name == "binomial" else "all rows"
        refused(lambda gp=gp, rows=rows: gp.condition(rows), rfgp.InvalidArgumentError, word)


APPROXIMATIONS = {
    "fitc": rfgp.InducingPoints(20),
    "vfe": rfgp.InducingPoints(20, method="vfe"),
    "pivots": rfgp.InducingPoints(20, init="pivoted-cholesky", method="sor"),
    "laplace": rfgp.RandomFeatures(10, kind="laplace", coupling="iid"),
    "lattice": rfgp.EquispacedFourier(),
    "small noise": rfgp.RandomFeatures(64),
}


@pytest.mark.parametrize(("kind", "name"), [*map(slow_there, cycle(("Parquet", "Dask")), APPROXIMATIONS)])
def test_weights_of_every_kind_are_read_in_blocks(client, folder, kind, name):
    kernel = k.RBF("t", name="trend") + k.Polynomial(["t"], degree=2) + k.Group("store") + k.Constant()
    start = {"noise": 1e-11 if name == "small noise" else 0.05}
    options = {"kernel": kernel, "approximation": {"trend": APPROXIMATIONS[name]}, "start": start}
    there, here = both(kind, ("gaussian", "y", {}), folder, **options)
    there.condition(X, Y).condition(source(kind, folder, "y"))  # the draws and points of the rows in memory
    assert_same(there, here, X[:40], 1e-6)
    assert there.log_marginal_likelihood().item() == pytest.approx(here.log_marginal_likelihood().item(), rel=1e-6)


@pytest.mark.parametrize("kind", ["Parquet", "no header", "dicts"])
def test_predictions_at_a_source_are_those_in_memory(folder, kind):
    gp = model().condition(X, Y)
    new = FRAME.assign(store=FRAME.store.where(FRAME.t < 5, "unseen"))
    found, here = gp.predict(source(kind, folder, None)), gp.predict(X)
    pairs = [(found, here), (found.observed(), here.observed()), (found.terms["season"], here.terms["season"])]
    pairs += [(gp.predict(Batches(blocks(new))), gp.predict(new[INPUTS]))]
    for one, other in pairs:
        np.testing.assert_allclose(one.mean, other.mean, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(one.variance, other.variance, rtol=1e-7, atol=1e-10)
    assert isinstance(found.mean, np.ndarray)
    for ask in (lambda: found.covariance, lambda: found.sample(2)):
        refused(ask, rfgp.InvalidArgumentError, "rows in memory")


def pairs(*ends):
    """Return blocks of the matrix and its targets that end at these rows."""
    return [(VALUES[a:b], Y[a:b]) for a, b in zip((0, *ends), (*ends, ROWS), strict=True)]


def lazy(rows=90):
    return da.from_array(VALUES, chunks=(rows, 2)), da.from_array(Y, chunks=rows)


def with_empty(array):
    return da.concatenate([array[:0], array])


def numbered():
    return dd.from_pandas(pd.DataFrame(VALUES), npartitions=3), dd.from_pandas(pd.Series(Y), npartitions=3)


class Chunked(np.ndarray):
    """An array such as those of HDF5, whose `chunks` are numbers."""

    chunks = (100, 2)


ARRAYS = {
    "chunked": lambda folder: (VALUES.view(Chunked), Y),
    "memmap": lambda folder: (np.load(folder / "X.npy", mmap_mode="r"), Y),
    "pairs": lambda folder: (Batches(pairs(100, 101)),),
    "empty blocks": lambda folder: (Batches(pairs(0, 150, 150)),),
    "tensors": lambda folder: (Batches([tuple(map(torch.as_tensor, pair)) for pair in pairs(100)]),),
    "matrix": lambda folder: (Batches([np.c_[VALUES, Y]], target=-1),),
    "Dask": lambda folder: (Partitions(*lazy()),),
    "other chunks": lambda folder: (Partitions(lazy(90)[0], lazy(70)[1]),),
    "unknown lengths": lambda folder: (Partitions(*(part[lazy()[0][:, 0] > -9] for part in lazy())),),
    "empty partition": lambda folder: (Partitions(*map(with_empty, lazy())),),
    "Dask frames": lambda folder: (Partitions(*numbered()),),
}
"""Sources of a matrix, whose columns have numbers."""
MODELS = {"GP": lambda: model(kernel=k.RBF([0, 2]) + k.Linear(1)), "SparseSpectrumGP": spectrum}


@pytest.mark.parametrize(("kind", "make"), [*zip(ARRAYS, cycle(MODELS), strict=False)])
def test_columns_of_arrays_are_read_by_number(client, folder, kind, make):
    there, here = MODELS[make]().condition(*ARRAYS[kind](folder)), MODELS[make]().condition(VALUES, Y)
    assert_same(there, here, VALUES)
    assert there.log_marginal_likelihood().item() == pytest.approx(here.log_marginal_likelihood().item(), rel=1e-9)
    on_disk = np.load(folder / "X.npy", mmap_mode="r")
    np.testing.assert_allclose(there.predict(on_disk).mean, here.predict(VALUES).mean, rtol=1e-8)


def test_float32_columns_stay_float32(tmp_path):
    single, other = FRAME[["t", "y"]].astype(np.float32), FRAME.assign(t=FRAME.t.astype(np.float32))
    single.to_parquet(tmp_path / "single.parquet")
    there, mixed, here = (model(kernel=k.RBF("t")) for _ in range(3))
    there.condition(Parquet(tmp_path / "single.parquet", "y"))
    assert there.predict(single).mean.dtype == np.float32
    assert_same(there, here.condition(X, Y), single, 1e-4)
    assert mixed.condition(Batches([other], "y")).predict(X).mean.dtype == np.float64


# --- fits and updates ---------------------------------------------------------------------------------


FITS = {
    "Gaussian": (spectrum, {}),
    "learned": (lambda: spectrum(learn_frequencies=True), {"max_iterations": 20}),
    "points": (lambda: rfgp.GP(k.RBF(), approximation=rfgp.InducingPoints(16, method="vfe", seed=0)), {}),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in FITS])
def test_a_fit_does_not_depend_on_the_source(client, name):
    make, options = FITS[name]
    rows = (Batches([(VALUES, Y)]),) if name == "learned" else (VALUES, Y)  # in memory it takes other steps
    here = make().fit(*rows, **options)
    for source in (Batches(pairs(33, 90)), Partitions(*lazy())):
        there = make().fit(source, **options)
        assert there.fit_report.log_marginal_likelihood == pytest.approx(
            there.log_marginal_likelihood().item(), rel=1e-8
        )
        assert there.fit_report.log_marginal_likelihood == pytest.approx(
            here.fit_report.log_marginal_likelihood, abs=0.2 if name == "learned" else 1e-3
        )
        assert there.fit_report.frequencies == pytest.approx(here.fit_report.frequencies)


@pytest.mark.slow
def test_a_fit_to_a_sample_reports_the_likelihood_of_all_rows(limits):
    limits(sample_rows=120)
    here = spectrum().fit(VALUES, Y)
    found = [spectrum().fit(Batches(pairs(*range(size, ROWS, size)))) for size in (ROWS, 7)]
    for there in found:
        assert there.fit_report.stages[0].rows == 120
        report = there.fit_report.log_marginal_likelihood
        assert report == pytest.approx(there.log_marginal_likelihood().item(), rel=1e-8)
        assert 0 < here.fit_report.log_marginal_likelihood - report < 20
    assert_same(*found, VALUES, 1e-5)


@pytest.mark.slow
def test_the_sample_of_a_source_is_uniform(limits):
    """Each of 400 rows is in a sample of 40 with probability 1/10, at places that are independent of its rank."""
    limits(sample_rows=40)
    ranks, repeats = np.arange(400.0), 1000
    source = Batches([(ranks[i : i + 134, None], ranks[i : i + 134]) for i in range(0, 400, 134)])
    taken, places = np.zeros((repeats, 400)), np.zeros((repeats, 2))
    for seed in range(repeats):
        rows = summarize_source(source, None, seed).sample.X[:, 0].numpy().astype(int)
        assert len(set(rows)) == 40
        taken[seed, rows] = 1
        places[seed] = rows[0], rows[:20].mean()
    assert_mean(taken.reshape(repeats, 20, 20).sum(2), np.full(20, 2.0))
    assert_mean(places, np.full(2, 199.5))


def test_a_digest_is_of_the_rows_in_order():
    whole, parts, turned = Batches(pairs()), Batches(pairs(33, 90)), Batches([(VALUES[::-1].copy(), Y[::-1].copy())])
    digests = [summarize_source(source, None, 0).digest for source in (whole, parts, turned)]
    assert digests[0] == digests[1] != digests[2]


def test_units_are_the_moments_of_all_weighted_rows():
    """The units show in the prior: the mean of y, and lengthscales of sqrt(d) standard deviations of a column."""
    frame = FRAME[["t", "y", "weight"]].assign(t=FRAME.t + 1e6, weight=1e-3 * FRAME.weight)
    gp = model(kernel=k.RBF("t")).condition(Batches(blocks(frame, 37), "y", sample_weight="weight"))
    repeats = np.repeat(np.arange(ROWS), FRAME.weight.astype(int))
    deviation = FRAME.t[repeats].std(ddof=0) * (ROWS / (ROWS - 1)) ** 0.5
    assert gp.hyperparameters["mean"].item() == pytest.approx(Y[repeats].mean(), rel=1e-10)
    assert gp.hyperparameters["lengthscale"].item() == pytest.approx(deviation, rel=1e-9)


@pytest.mark.parametrize("kind", ["rows", "blocks", "Dask"])
def test_an_update_adds_rows_and_levels(client, kind, tmp_path):
    def added(rows):
        return {"rows": (rows, "y"), "blocks": (Batches(blocks(rows, 30), "y"),), "Dask": (on_cluster(rows, "y"),)}[
            kind
        ]

    def first():
        reads.append(1)
        return blocks(FRAME[:160])()

    reads, known = [], FRAME[160:][[*INPUTS, "y"]]
    there, here = model().condition(Batches(first, "y")), model().condition(X[:160], Y[:160])
    before = len(reads)
    assert_same(copy.deepcopy(there).update(*added(known)), copy.deepcopy(here).update(known, "y"), X)
    assert len(reads) == before  # an update without new levels reads only the new rows
    more = known.assign(store=known.store.where(known.t > 3, "new"))
    there.update(*added(more)).save(tmp_path / "m.safetensors")
    here.update(more, "y")
    assert there.num_observations == ROWS
    for one in (there, rfgp.load(tmp_path / "m.safetensors")):
        assert_same(one, here, more[INPUTS])


def test_an_update_from_a_source_widens_a_lattice():
    make = partial(rfgp.GP, k.RBF(), approximation=rfgp.EquispacedFourier(), likelihood="poisson", seed=0)
    t, count = FRAME[["t"]].to_numpy(), FRAME["count"].to_numpy()
    here, there = (make().condition(t[:100], count[:100]) for _ in range(2))
    here.update(t[100:] + 20, count[100:])
    assert_same(there.update(Batches([(t[100:] + 20, count[100:])])), here, t + 20)


def slopes_after(gp, *rows, **columns):
    """Return the gradient of the likelihood, at given hyperparameters, of a model with more rows."""
    gp.update(*rows, **columns)
    gp.hyperparameters.set(lengthscale=[1.0, 10.0, 0.1], outputscale=1.0, noise=0.02, mean=3.0)
    return torch.autograd.grad(gp.log_marginal_likelihood(), list(gp.hyperparameters.raw.values()))


@pytest.mark.parametrize("there_first", [False, True])
def test_rows_here_and_there_may_differ_in_noise_and_weights(client, there_first):
    noise, weight = FRAME.noise.to_numpy(), FRAME.weight.to_numpy()
    noise_there, weight_there = (da.from_array(column, chunks=90) for column in (noise, weight))
    here, gp = (spectrum().condition(VALUES, Y, noise=noise, sample_weight=weight) for _ in range(2))
    if there_first:
        gp = spectrum().condition(Partitions(*lazy(), noise_there, weight_there))
    wanted, found = slopes_after(here, VALUES, Y, noise=noise), slopes_after(gp, Partitions(*lazy(), noise_there))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7)


class Counting:
    """Rows that are made on demand, and the largest number of blocks that were alive at once."""

    alive = most = 0

    def read(self):
        for seed in range(30):
            rng = np.random.default_rng(seed)
            t = rng.uniform(0, 10, 200)
            self.alive += 1
            self.most = max(self.most, self.alive)
            weakref.finalize(t, self._drop)
            yield {"t": t, "store": rng.choice(["a", "b"], 200), "y": np.sin(t) + rng.normal(size=200)}
            del t

    def _drop(self):
        self.alive -= 1


@pytest.mark.slow
def test_rows_in_memory_are_bounded_by_blocks(limits):
    limits(sample_rows=300, subset_rows=200)
    rows, make = Counting(), lambda: Batches(rows.read, "y")
    gp = model(kernel=k.RBF("t") + k.Group("store")).fit(make(), max_iterations=4)
    gp.condition(make()).update(make())
    assert gp.num_observations == 2 * 6000
    assert len(gp.predict(Batches(rows.read)).variance) == 6000
    assert rows.most <= 3


# --- clusters -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("observed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_predictions_on_a_cluster_are_those_here(client, tmp_path, observed):
    gp = model().condition(on_cluster(FRAME[[*INPUTS, "y"]], "y"))
    gp.save(tmp_path / "m.safetensors")
    classes = spectrum(likelihood=rfgp.likelihoods.Categorical(3)).condition(VALUES, np.arange(ROWS) % 3.0)
    loaded, turned = rfgp.load(tmp_path / "m.safetensors"), FRAME[[*INPUTS[::-1], "y"]]
    numbers, table = spectrum().condition(Partitions(*numbered())), pd.DataFrame(VALUES)
    cases = [(gp, X, X), (gp, turned, X), (loaded, X, X), (classes, table, VALUES), (numbers, table, VALUES)]
    for one, new, rows in cases:
        found = rfgp.dask.predict(one, dd.from_pandas(new, npartitions=2), observed=observed)
        wanted = one.predict(rows).observed() if observed else one.predict(rows)
        for name in ("mean", "variance"):
            np.testing.assert_allclose(getattr(found, name).compute(), getattr(wanted, name), rtol=1e-9)
    empty = rfgp.dask.predict(classes, dd.from_pandas(table[:0], npartitions=1))
    assert empty.mean.compute().shape == (0, 3)


def test_lazy_predictions_are_those_of_the_time_of_the_call(client):
    gp = spectrum().condition(VALUES, Y)
    expected, later = gp.predict(VALUES).mean, rfgp.dask.predict(gp, lazy()[0])
    gp.hyperparameters.set(noise=5.0)
    np.testing.assert_allclose(later.mean.compute(), expected, rtol=1e-10)


class Elsewhere(Partitions):
    """Rows that must not come here, and the sizes of what is sent to them."""

    sent: list = []  # noqa: RUF012

    def chunks(self):
        raise AssertionError("rows came here")

    def reduce(self, function, combine):
        import cloudpickle

        self.sent.append(len(cloudpickle.dumps(function)))
        return super().reduce(function, combine)


def test_rows_and_large_matrices_stay_where_they_are(client):
    """The inverse of A, F x F, is sent only if gradients in the features are wanted."""
    gp = rfgp.SparseSpectrumGP(num_frequencies=64, seed=0).condition(Elsewhere(*lazy()))
    gp.log_marginal_likelihood()
    Elsewhere.sent.clear()
    with torch.no_grad():
        gp.log_marginal_likelihood()
    assert max(Elsewhere.sent) < 0.2 * 8 * 128**2
    Elsewhere.sent.clear()
    gp.log_marginal_likelihood()
    assert 8 * 128**2 < max(Elsewhere.sent) < 1.5 * 8 * 128**2


@pytest.mark.slow
def test_a_fit_survives_a_killed_worker(tmp_path):
    """On workers in processes of their own, the result is that of a fit of the rows in blocks, to rounding."""

    def slow(block):
        (tmp_path / f"{os.getpid()}-{time.monotonic_ns()}").touch()
        time.sleep(0.05)
        return block

    def kill():
        deadline = time.monotonic() + 120
        while len(list(tmp_path.iterdir())) < 12:  # eight partitions a pass: the second pass has begun
            assert time.monotonic() < deadline
            time.sleep(0.005)
        last = max(tmp_path.iterdir(), key=lambda path: int(path.name.split("-")[1]))
        killed.append(int(last.name.split("-")[0]))
        os.kill(killed[0], signal.SIGKILL)

    killed, (rows, targets) = [], lazy(30)
    with cluster(processes=True) as client:
        pids = {*client.run(os.getpid).values()}
        thread = threading.Thread(target=kill)
        thread.start()
        gp = rfgp.dask.fit(spectrum(), rows.map_blocks(slow, dtype=float, meta=np.empty((0, 0))), targets)
        thread.join()
        assert killed[0] in pids - {*client.run(os.getpid).values()}
        np.testing.assert_allclose(rfgp.dask.predict(gp, rows).mean.compute(), gp.predict(VALUES).mean, rtol=1e-9)
    assert_same(gp, spectrum().fit(Batches(pairs(90))), VALUES, 1e-5)


RING = graphs.Graph.from_edges([(i, (i + step) % 60) for i in range(60) for step in (1, 7)])
WALKS = [
    (None, {"lengths": "iid", "step_coupling": "independent", "exact_hops": 0}),
    ([3, 59, 3, 8], {"lengths": "sigma", "num_walkers": 8}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "options"), WALKS)
def test_walks_on_a_cluster_are_those_drawn_here(client, nodes, options):
    found = rfgp.dask.sample_walks(RING, nodes, seed=5, num_parts=7, **options)
    expected, kernel = graphs.sample_walks(RING, nodes, seed=5, **options), graphs.kernels.Diffusion(1.5)
    np.testing.assert_array_equal(found.nodes, expected.nodes)
    for one, other in ((found, expected), (found.at([0, 1]), expected.at([0, 1]))):
        assert (one.features(kernel) != other.features(kernel)).nnz == 0


# --- nodes and planned approximations -----------------------------------------------------------------


@pytest.mark.slow
def test_features_of_nodes_are_read_in_blocks():
    graph = graphs.Graph.from_edges([(number, (number + 1) % 30) for number in range(30)])
    frame = FRAME[["y"]].assign(node=(3 * FRAME.t).astype(int))
    gp, kept = (model(rfgp.TruncatedSpectrum(10), k.Nodes(graph)) for _ in range(2))
    assert_same(gp.fit(Batches(blocks(frame), "y")), kept.fit(frame[["node"]], Y), frame, 1e-5)


@pytest.mark.slow
def test_other_approximations_of_rows_in_blocks(folder):
    rows = source("Parquet", folder, "y")
    there, here = model().condition(rows), model().condition(X, Y)
    points, kept = (one.with_approximation({"trend": rfgp.InducingPoints(20)}) for one in (there, here))
    assert np.abs(points.predict(X).mean - kept.predict(X).mean).max() < 0.05
    planned = rfgp.GP(KERNEL, seed=0).condition(rows)
    assert {type(term.approximation) for term in planned.terms.values()} == {rfgp.Exact, rfgp.RandomFeatures}


# --- refusals -----------------------------------------------------------------------------------------


CELLS = [
    ("Parquet", "t", 131, None, "'t' has 1 missing value, the first in row 131"),
    ("CSV", "store", 77, None, "'store' has 1 missing value, the first in row 77"),
    ("frames", "day", 200, None, "'day' has 1 missing value, the first in row 200"),
    ("Dask", "zip", 77, None, "'zip' has 1 missing value, the first in row 77"),
    ("Parquet", "t", 98, np.inf, "'t' has 1 value that is not finite, the first (inf) in row 98"),
    ("CSV", "t", 130, "high", "Column 't' "),
    ("frames", "zip", 155, "x", "Column 'zip' "),
    ("Parquet", "y", 97, np.nan, "row 97"),
    ("Dask", "y", 97, np.nan, "row 97"),
]
READERS = {
    "Parquet": lambda frame, path: (frame.convert_dtypes().to_parquet(path), Parquet(path, "y"))[1],
    "CSV": lambda frame, path: (frame.to_csv(path, index=False), CSV(path, "y"))[1],
    "frames": lambda frame, path: Batches(blocks(frame), "y"),
    "Dask": lambda frame, path: on_cluster(frame.convert_dtypes(), "y"),
}


@pytest.mark.parametrize(("reader", "column", "row", "value", "words"), [slow_there(*case) for case in CELLS])
def test_bad_cells_are_named_by_column_and_row(client, tmp_path, reader, column, row, value, words):
    frame, gp = FRAME[[*INPUTS, "y"]].astype({column: object}), model().condition(X, Y)
    frame.loc[row, column] = value
    before, rows = gp.predict(X[:9]).mean, READERS[reader](frame, tmp_path / "bad")
    for call in (gp.condition, gp.update, gp.fit, model().condition):
        refused(lambda call=call: call(rows), rfgp.DataError, words)
    np.testing.assert_array_equal(gp.predict(X[:9]).mean, before)


class Uneven:
    """A source with noise in its first block only."""

    def chunks(self):
        first, *others = Batches(pairs(90)).chunks()
        yield from (first._replace(noise=FRAME.noise[:90].to_numpy()), *others)


CHANGING = chain([ROWS] * 3, repeat(100))
TABLE = pd.DataFrame(VALUES, columns=["a", "b", "c"]).assign(y=Y, w=FRAME.weight)
REFUSED = {
    "no target": (lambda f: Parquet(f / "rows.parquet", columns=["t"]), "must have targets"),
    "unknown target": (lambda f: Parquet(f / "rows.parquet", "q"), "no column 'q'"),
    "no file of a folder": (lambda f: Parquet(f.parent, "y"), "no file"),
    "widths": (lambda f: Batches([(VALUES[:90], Y[:90]), (VALUES[90:, :2], Y[90:])]), "3 columns"),
    "lengths": (lambda f: Batches([(VALUES[:90], Y[:80])]), "90 rows"),
    "dtypes": (lambda f: Batches([(VALUES.astype(np.float32), Y)]), "one dtype"),
    "weights of some": (lambda f: Batches([TABLE[:9], TABLE[9:].drop(columns="w")], "y", sample_weight="w"), "'w'"),
    "noise of some": (lambda f: Uneven(), "the same targets, noise and sample_weight"),
    "nothing": (lambda f: Batches([]), "must have rows"),
    "one row": (lambda f: Batches([(VALUES[:1], Y[:1])]), "two observations"),
    "constant": (lambda f: Batches([(VALUES, 0 * Y)]), "constant"),
    "changing": (lambda f: Batches(lambda: ((VALUES[:n], Y[:n]) for n in [next(CHANGING)])), "change"),
    "iterator": (lambda f: Batches(iter([(VALUES, Y)])), "more than once"),
    "in memory": (lambda f: Partitions(VALUES, Y), "Dask"),
    "names of an array": (lambda f: Partitions(lazy()[0], "y"), "dataframe"),
    "rows on a cluster": (lambda f: Partitions(lazy()[0], lazy()[1][:90]), "rows"),
    "partitions": (lambda f: Partitions(numbered()[0], dd.from_pandas(pd.Series(Y), npartitions=2)), "3 partitions"),
    "unknown there": (lambda f: on_cluster(TABLE, "price"), "'price'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_sources_are_refused_and_nothing_is_lost(client, folder, name):
    make, words = REFUSED[name]
    gp = spectrum().condition(VALUES, Y)
    before = gp.predict(VALUES).mean
    with pytest.raises((rfgp.DataError, rfgp.InvalidArgumentError), match=words):
        gp.fit(make(folder))
    on_disk = np.load(folder / "X.npy", mmap_mode="r")
    for X, y, word in (
        (Batches(pairs(9)), Y, "part of a source"),
        (VALUES, None, "targets"),
        (on_disk, Y[:9], "240 rows"),
    ):
        with pytest.raises((rfgp.DataError, rfgp.InvalidArgumentError), match=word):
            gp.fit(X, y)
    np.testing.assert_array_equal(gp.predict(VALUES).mean, before)


NEED_MEMORY = {
    "covariance": (k.RBF("t", name="trend"), rfgp.Exact()),
    "neighbors": (k.RBF("t", name="trend"), rfgp.Vecchia(5)),
    "residual": (k.RBF("t", name="trend"), rfgp.InducingPoints(5, residual=rfgp.Vecchia(5))),
    "precision": (k.Group("store") + k.Matern("t", nu=1.5, name="trend"), {"trend": rfgp.SparsePrecision()}),
}


@pytest.mark.parametrize("name", NEED_MEMORY)
def test_terms_that_need_rows_in_memory_are_named(client, name):
    kernel, approximation = NEED_MEMORY[name]
    frame = FRAME[["t", "store", "y"]]
    gp = model(approximation, kernel).condition(frame, "y")
    for source in (Batches(blocks(frame), "y"), on_cluster(frame, "y")):
        for call in (gp.fit, gp.condition, gp.update):
            refused(lambda a=call, b=source: a(b), rfgp.InvalidArgumentError, "'trend' needs all rows in memory")
    assert gp.num_observations == ROWS


def test_graph_models_need_rows_in_memory():
    rows = Batches([{"node": np.arange(ROWS) % 3, "y": Y}], "y")
    refused(lambda: rfgp.GraphGP(RING).fit(rows), rfgp.InvalidArgumentError, "rows in memory")


def test_arguments_of_clusters_are_checked(client):
    sample = rfgp.dask.sample_walks
    refused(lambda: sample(RING, seed=0, max_memory=1000), graphs.MemoryBudgetError, "memory")
    refused(lambda: sample(RING, num_parts=0), rfgp.InvalidArgumentError, "num_parts")
    table = FRAME[["t", "label"]].assign(label=FRAME.label > 0)
    with pytest.warns(rfgp.BooleanTargetWarning):
        on_cluster(table, "label")
    with pytest.warns(rfgp.IndexColumnWarning):
        on_cluster(FRAME[["t", "y"]].rename(columns={"t": "Unnamed: 0"}), "y")
