"""On a cluster of processes of their own: the model of rows in memory, whatever the partitions, also when one dies."""

import pytest

pytest.importorskip("distributed", reason="the extra rfgp[dask] is not installed")

import copy
import os
import signal
import threading
import time

import cloudpickle
import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import torch
from distributed import Client, LocalCluster

import graphs
import rfgp
import rfgp.dask
from rfgp import kernels as k
from rfgp.dask import Partitions
from rfgp.rows import source_summary
from rfgp.tables import Batches


def drawn(n, seed=0):
    """Inputs of three scales, targets, variances and weights of n rows."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3)) * [1.0, 10.0, 0.1] + [0.0, 5.0, -3.0]
    y = 3 + 2 * np.sin(X[:, 0]) + 0.1 * X[:, 1] + 0.1 * rng.standard_normal(n)
    return X, y, rng.uniform(0.01, 0.2, n), rng.integers(1, 4, n).astype(float)


X, Y, NOISE, WEIGHT = drawn(600)
NEW = X[:7] + 0.1
pytestmark = pytest.mark.filterwarnings("ignore::rfgp.VarianceStarvationWarning")


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as one,
    ):
        yield one


@pytest.fixture
def small_sample(limits):
    """The client samples 300 rows; workers, which are other processes, more, of which 300 remain."""
    limits(sample_rows=300)


def model(**options):
    return rfgp.SparseSpectrumGP(num_frequencies=16, seed=0, **options)


def arrays(rows=110):
    return da.from_array(X, chunks=(rows, 2)), da.from_array(Y, chunks=rows)


def frame(partitions=4):
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y, "c": X[:, 2], "noise": NOISE, "weight": WEIGHT})
    return dd.from_pandas(table, npartitions=partitions)


def assert_same(one, other, tolerance=1e-8):
    """Two models predict alike."""
    a, b = one.predict(NEW), other.predict(NEW)
    np.testing.assert_allclose(a.mean, b.mean, rtol=tolerance)
    np.testing.assert_allclose(a.variance, b.variance, rtol=100 * tolerance)


MAKERS = {
    "arrays": lambda: Partitions(*arrays()),
    "one partition": lambda: Partitions(*arrays(600)),
    "other chunks": lambda: Partitions(arrays(110)[0], arrays(90)[1]),
    "unknown lengths": lambda: Partitions(arrays()[0][arrays()[0][:, 0] > -9], arrays()[1][arrays()[0][:, 0] > -9]),
    "empty partition": lambda: Partitions(
        da.concatenate([da.zeros((0, 3)), arrays()[0]]), da.concatenate([da.zeros(0), arrays()[1]])
    ),
    "dataframe": lambda: Partitions(frame()[["a", "b", "y", "c"]], "y"),
    "dataframe and series": lambda: Partitions(frame()[["a", "b", "c"]], frame()["y"]),
    "two frames": lambda: Partitions(frame()[["a", "b", "c"]], frame()[["y"]]),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.slow
def test_conditioning_is_that_of_rows_in_memory(client, name):
    gp = model().condition(MAKERS[name]())
    expected = model().condition(X, Y)
    a, b = gp.predict(NEW), expected.predict(NEW)
    np.testing.assert_allclose(np.reshape(a.mean, -1), b.mean, rtol=1e-9)
    np.testing.assert_allclose(np.reshape(a.variance, -1), b.variance, rtol=1e-7)
    assert gp.num_observations == 600
    likelihoods = [each.log_marginal_likelihood().item() for each in (gp, expected)]
    assert likelihoods[0] == pytest.approx(likelihoods[1], rel=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("is_learned", [False, True])
def test_a_fit_is_that_of_the_same_rows_in_blocks(client, is_learned):
    options = {"max_iterations": 30} if is_learned else {}
    gp = rfgp.dask.fit(model(learn_frequencies=is_learned), *arrays(), **options)
    expected = model(learn_frequencies=is_learned).fit(rfgp.tables.Batches([(X, Y)]), **options)
    assert_same(gp, expected, 1e-3 if is_learned else 1e-6)  # steps in float32 grow apart where sums have another order
    found, wanted = gp.fit_report, expected.fit_report
    assert found.log_marginal_likelihood == pytest.approx(
        wanted.log_marginal_likelihood, rel=1e-4 if is_learned else 1e-8
    )
    assert found.frequencies == wanted.frequencies


@pytest.mark.slow
@pytest.mark.parametrize("method", ["sor", "fitc", "vfe"])
def test_inducing_points_are_those_of_the_same_rows_in_blocks(client, method):
    def points():
        return rfgp.GP(rfgp.kernels.RBF(), approximation=rfgp.InducingPoints(16, method=method, seed=0))

    gp = rfgp.dask.fit(points(), *arrays())
    expected = points().fit(rfgp.tables.Batches([(X, Y)]))
    assert_same(gp, expected, 1e-6)
    assert gp.evidence_bounds().lower == pytest.approx(expected.evidence_bounds().lower, rel=1e-6)


@pytest.mark.slow
def test_noise_and_weights_of_rows(client):
    found = Partitions(frame(), "y", "noise", "weight")
    gp = model().condition(found)
    assert_same(gp, model().condition(X, Y, noise=NOISE, sample_weight=WEIGHT))
    arrays_too = [da.from_array(a, chunks=(200, *a.shape[1:])) for a in (X, Y, NOISE, WEIGHT)]
    assert_same(model().condition(Partitions(*arrays_too)), gp)


def test_features_there_are_factorized_if_the_noise_is_small(client):
    options = {"start": {"noise": 1e-11}, "standardize": False, "seed": 0}
    y = np.sin(X[:, 0]) + 0.1 * X[:, 1]
    parts = Partitions(da.from_array(X, chunks=(110, 2)), da.from_array(y, chunks=110))
    gp, expected = (
        rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(64), **options).condition(*rows)
        for rows in ((parts,), (X, y))
    )
    assert_same(gp, expected, 1e-12)
    likelihoods = [float(each.log_marginal_likelihood().detach()) for each in (gp, expected)]
    assert likelihoods[0] == pytest.approx(likelihoods[1], rel=1e-11)


@pytest.mark.slow
def test_gradients_are_summed_there(client):
    gradients = []
    for gp in (model().condition(Partitions(*arrays())), model().condition(X, Y)):
        raw = gp.hyperparameters.raw
        gradients.append(torch.autograd.grad(gp.log_marginal_likelihood(), list(raw.values())))
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"noise": NOISE}, {}),
        ({}, {"sample_weight": WEIGHT}),
        ({"noise": NOISE, "sample_weight": WEIGHT}, {"noise": NOISE}),
        ({}, {}),
    ],
)
@pytest.mark.parametrize("there_first", [False, True])
def test_gradients_of_rows_of_two_kinds(client, before, after, there_first):
    """Some rows here and others there, or all there; some with a noise or weight of their own."""

    def there(options):
        extra = {name: da.from_array(value, chunks=200) for name, value in options.items()}
        return Partitions(da.from_array(X, chunks=(200, 3)), da.from_array(Y, chunks=200), **extra)

    mixed = model().condition(there(before)) if there_first else model().condition(X, Y, **before)
    mixed.update(there(after))
    here = model().condition(X, Y, **before).update(X, Y, **after)
    found = []
    for gp in (mixed, here):
        gp.hyperparameters.set(lengthscale=[1.0, 10.0, 0.1], outputscale=1.0, noise=0.02, mean=3.0)
        found.append(torch.autograd.grad(gp.log_marginal_likelihood(), list(gp.hyperparameters.raw.values())))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-7)


def test_sums_hold_no_unneeded_arrays(client, monkeypatch):
    """The factor of A, F x F, stays here; its inverse goes only where gradients in the features are wanted."""
    sizes, reduce = [], Partitions.reduce

    def spy(self, function, combine):
        sizes.append(len(cloudpickle.dumps(function)))
        return reduce(self, function, combine)

    monkeypatch.setattr(Partitions, "reduce", spy)
    gp = rfgp.SparseSpectrumGP(num_frequencies=128, seed=0).condition(Partitions(*arrays()))
    gp.log_marginal_likelihood()
    matrix = 8 * 256**2
    with torch.no_grad():
        sizes.clear()
        gp.log_marginal_likelihood()
    assert max(sizes) < 0.2 * matrix
    sizes.clear()
    gp.log_marginal_likelihood()
    assert matrix < max(sizes) < 1.5 * matrix


def test_rows_stay_where_they_are(client, monkeypatch):
    def refuse(self):
        raise AssertionError("rows came here")

    monkeypatch.setattr(Partitions, "chunks", refuse)
    gp = rfgp.dask.fit(model(), *arrays())
    gp.update(Partitions(*arrays(300)))
    assert gp.num_observations == 1200
    assert np.isfinite(rfgp.dask.predict(gp, arrays()[0]).mean.compute()).all()


@pytest.mark.parametrize("rows", [600, 2])
def test_updates(client, rows):
    gp = model().condition(*arrays_in_memory())
    gp.predict(NEW)
    added = Partitions(da.from_array(X[:rows], chunks=(100, 3)), da.from_array(Y[:rows], chunks=100))
    assert_same(gp.update(added), model().condition(*arrays_in_memory()).update(X[:rows], Y[:rows]))


def arrays_in_memory():
    return X[:400], Y[:400]


def test_one_more_row(client):
    gp = model().condition(X, Y)
    one = Partitions(da.from_array(X[:1], chunks=(1, 3)), da.from_array(Y[:1], chunks=1))
    assert_same(gp.update(one), model().condition(X, Y).update(X[:1], Y[:1]))


@pytest.mark.slow
def test_the_survey_does_not_depend_on_the_partitions(client, monkeypatch):
    whole = source_summary.summarize_source(rfgp.tables.Batches([(X, Y)]), None, 3)
    for rows in (600, 110, 7):
        found = source_summary.summarize_source(Partitions(*arrays(rows)), None, 3)
        assert torch.equal(found.sample.X, whole.sample.X)
        torch.testing.assert_close(found.inputs.mean, whole.inputs.mean)
        torch.testing.assert_close(found.inputs.deviation, whole.inputs.deviation)
        assert (found.num_rows, found.names) == (600, None)


@pytest.mark.parametrize("observed", [False, True])
def test_predictions_there_are_those_here(client, observed):
    gp = model().condition(pd.DataFrame(X, columns=["a", "b", "c"]), Y)
    expected = gp.predict(X).observed() if observed else gp.predict(X)
    for new in (arrays()[0], frame()[["a", "b", "c"]]):
        found = rfgp.dask.predict(gp, new, observed=observed)
        np.testing.assert_allclose(found.mean.compute(), expected.mean, rtol=1e-12)
        np.testing.assert_allclose(found.variance.compute(), expected.variance, rtol=1e-12)


@pytest.mark.parametrize("observed", [False, True])
def test_predictions_of_several_classes_have_a_column_each(observed):
    gp = model(likelihood=rfgp.likelihoods.Categorical(3)).condition(X, np.arange(600.0) % 3)
    expected = gp.predict(X).observed() if observed else gp.predict(X)
    with dask.config.set(scheduler="synchronous"):
        found = rfgp.dask.predict(gp, arrays()[0], observed=observed)
        assert found.mean.shape == (600, 3)
        np.testing.assert_allclose(found.mean.compute(), expected.mean, rtol=1e-12)
        np.testing.assert_allclose(found.variance.compute(), expected.variance, rtol=1e-12)
        empty = rfgp.dask.predict(gp, dd.from_pandas(pd.DataFrame(X[:0]), npartitions=1), observed=observed)
        assert empty.mean.compute().shape == (0, 3)


def test_predictions_go_by_the_names_of_columns(client):
    gp = model().condition(Partitions(frame()[["a", "b", "y", "c"]], "y"))
    turned = rfgp.dask.predict(gp, frame()[["c", "y", "b", "a"]]).mean.compute()
    np.testing.assert_allclose(turned, gp.predict(X).mean, rtol=1e-12)
    with pytest.raises(rfgp.DataError, match="no column 'b'"):
        rfgp.dask.predict(gp, frame()[["a", "c"]]).mean.compute()


def test_columns_named_by_numbers(client):
    numbered = dd.from_pandas(pd.DataFrame(X), npartitions=3)
    gp = model().condition(Partitions(numbered, dd.from_pandas(pd.Series(Y), npartitions=3)))
    found = rfgp.dask.predict(gp, numbered).mean.compute()
    np.testing.assert_allclose(found, gp.predict(X).mean, rtol=1e-12)


def test_predictions_are_those_of_the_moment(client):
    gp = model().condition(X, Y)
    expected = gp.predict(X).mean
    lazy = rfgp.dask.predict(gp, arrays()[0])
    gp.hyperparameters.set(noise=5.0)
    np.testing.assert_allclose(lazy.mean.compute(), expected, rtol=1e-12)


def test_models_of_rows_elsewhere_are_copied(client):
    gp = model().condition(Partitions(*arrays()))
    assert_same(copy.deepcopy(gp), gp)


def test_several_outputs(client):
    both = np.stack([Y, -2 * Y + X[:, 0]], axis=1)
    gp = model().condition(Partitions(arrays()[0], da.from_array(both, chunks=(110, 1))))
    assert_same(gp, model().condition(X, both))
    assert rfgp.dask.predict(gp, arrays()[0]).variance.compute().shape == (600, 2)


def test_saved_models_need_no_cluster(client, tmp_path):
    gp = rfgp.dask.fit(model(), *arrays())
    gp.save(tmp_path / "model.safetensors")
    assert_same(rfgp.load(tmp_path / "model.safetensors"), gp)


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_of_a_fit(client, tmp_path):
    """Another takes over its partitions: the result is that of a fit in which none died, to rounding."""
    marks = tmp_path / "marks"
    marks.mkdir()

    def slow(block):
        (marks / f"{os.getpid()}-{time.monotonic_ns()}").touch()
        time.sleep(0.05)
        return block

    rows, targets = arrays(60)
    undisturbed = rfgp.dask.fit(model(), *arrays(60))
    pids = set(client.run(os.getpid).values())
    killed = []

    def kill():
        deadline = time.monotonic() + 120
        while len(list(marks.iterdir())) < 12:  # ten partitions a pass: the second pass has begun
            assert time.monotonic() < deadline
            time.sleep(0.005)
        killed.append(int(sorted(marks.iterdir(), key=lambda p: p.name.split("-")[1])[-1].name.split("-")[0]))
        os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    gp = rfgp.dask.fit(model(), rows.map_blocks(slow, dtype=float, meta=np.empty((0, 0))), targets)
    thread.join()
    assert killed[0] in pids
    assert killed[0] not in client.run(os.getpid).values()
    assert_same(gp, undisturbed)
    assert gp.log_marginal_likelihood().item() == pytest.approx(undisturbed.log_marginal_likelihood().item(), rel=1e-10)


class TestErrors:
    def test_rows_are_named_as_a_whole(self, client):
        broken = X.copy()
        broken[437, 1] = np.nan
        with pytest.raises(rfgp.DataError, match="437"):
            rfgp.dask.fit(model(), da.from_array(broken, chunks=(100, 3)), arrays()[1])

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Partitions(X, Y), "must be a Dask array or dataframe, got ndarray"),
            (lambda: Partitions(arrays()[0], Y), "y must be a Dask array"),
            (lambda: Partitions(arrays()[0], "y"), "X must be a Dask dataframe"),
            (lambda: Partitions(arrays()[0], arrays()[1][:90]), "X has 600 rows and y has 90"),
            (lambda: Partitions(frame(4)[["a"]], frame(3)["y"]), "must have 4 partitions"),
        ],
    )
    def test_mismatched_tables_are_refused(self, client, make, message):
        with pytest.raises((rfgp.DataError, rfgp.InvalidArgumentError), match=message):
            make()

    def test_missing_columns_are_named(self, client):
        with pytest.raises(rfgp.DataError, match="no column 'price'"):
            model().fit(Partitions(frame(), "price"))

    @pytest.mark.parametrize(
        ("table", "message"),
        [
            (pd.DataFrame({"a": X[:, 0], "b": [f"x{i}" for i in range(600)]}), "identifier"),
            (pd.DataFrame(X[:, :2], columns=["a", "a"]), "unique names, got 'a'"),
        ],
    )
    def test_columns_that_cannot_be_used(self, client, table, message):
        targets = dd.from_pandas(pd.Series(Y), npartitions=2)
        with pytest.raises(rfgp.DataError, match=message):
            model().condition(Partitions(dd.from_pandas(table, npartitions=2), targets))

    def test_no_targets(self, client):
        with pytest.raises(rfgp.DataError, match="must have targets"):
            model().fit(Partitions(arrays()[0]))

    def test_constant_targets(self, client):
        with pytest.raises(rfgp.DataError, match="constant"):
            rfgp.dask.fit(model(), arrays()[0], da.zeros(600, chunks=110))

    def test_no_client(self, monkeypatch):
        def none():
            raise ValueError

        monkeypatch.setattr(rfgp.dask.cluster, "get_client", none)
        with pytest.raises(rfgp.InvalidArgumentError, match="no Dask client"):
            rfgp.dask.cluster.client_of(None)


class TestWalks:
    GRAPH = graphs.Graph.from_edges([(i, (i + k) % 60) for i in range(60) for k in (1, 7)])

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"lengths": "iid", "step_coupling": "independent", "exact_hops": 0},
            {"lengths": "sigma", "num_walkers": 8},
            {"exact_hops": 2, "num_walkers": 4},
        ],
    )
    @pytest.mark.parametrize("nodes", [None, [3, 59, 3, 8]])
    def test_they_are_those_drawn_here(self, client, nodes, options):
        found = rfgp.dask.sample_walks(self.GRAPH, nodes, seed=5, num_parts=7, **options)
        expected = graphs.sample_walks(self.GRAPH, nodes, seed=5, **options)
        kernel = graphs.kernels.Diffusion(1.5)
        assert (found.features(kernel) != expected.features(kernel)).nnz == 0
        np.testing.assert_array_equal(found.nodes, expected.nodes)
        other = found.at([0, 1]).features(kernel)
        assert (other != expected.at([0, 1]).features(kernel)).nnz == 0

    def test_memory_is_checked_beforehand(self, client):
        with pytest.raises(graphs.MemoryBudgetError):
            rfgp.dask.sample_walks(self.GRAPH, seed=0, max_memory=1000)

    def test_numbers_of_parts_are_checked(self, client):
        with pytest.raises(rfgp.InvalidArgumentError, match="num_parts"):
            rfgp.dask.sample_walks(self.GRAPH, num_parts=0)


@pytest.mark.slow
def test_terms_read_columns_of_any_type(client):
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 99, 600), "D")
    table = pd.DataFrame({"a": X[:, 0], "day": days})
    table["store"], table["open"], table["y"] = rng.choice(["w", "n", "s"], 600), Y > 3, Y
    kernel = k.RBF("a") + k.RBF("day") + k.Group("store") + k.Group("open")
    gp, kept, *others = (rfgp.GP(kernel, approximation=rfgp.RandomFeatures(12), seed=0) for _ in range(4))
    frame, inputs = dd.from_pandas(table, npartitions=4), table.drop(columns="y")
    gp.condition(Partitions(frame, "y", client=client))
    kept.condition(inputs, Y)
    new = inputs[:300].assign(store="new")
    gp.update(Partitions(dd.from_pandas(new.assign(y=Y[:300]), npartitions=2), "y", client=client))
    kept.update(new, Y[:300])
    fitted = rfgp.dask.fit(others[0], frame, "y"), others[1].fit(Batches([table], "y"))
    for found, wanted in ((gp, kept), fitted):
        there, here = rfgp.dask.predict(found, dd.from_pandas(new, npartitions=2)), wanted.predict(new)
        np.testing.assert_allclose(there.mean.compute(), here.mean, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(there.variance.compute(), here.variance, rtol=1e-5, atol=1e-12)
    gap = table.assign(store=table["store"].where(table.index != 431))
    with pytest.raises(rfgp.DataError, match="'store' has 1 missing value, the first in row 431"):
        gp.condition(Partitions(dd.from_pandas(gap, npartitions=4), "y"))
    with pytest.raises(rfgp.InvalidArgumentError, match="needs all rows in memory"):
        rfgp.dask.fit(rfgp.GP(kernel, approximation=rfgp.Vecchia(5)), frame, "y")


def test_columns_that_a_model_does_not_know_may_hold_text(client):
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": Y})
    gp = model().condition(table[["a", "b", "c"]], Y)
    more = dd.from_pandas(table.assign(color="red", flag=Y > 3), npartitions=3)
    other = copy.deepcopy(gp).condition(Partitions(more.drop(columns="flag"), "y", client=client))
    assert_same(gp, other)
    for target in ("flag", more["flag"]):
        with pytest.warns(rfgp.BooleanTargetWarning) as caught:
            Partitions(more, target, client=client)
        assert [entry.filename for entry in caught] == [__file__]


def test_numbers_as_text_on_a_cluster_are_refused(client):
    table = pd.DataFrame({"a": X[:, 0], "price": [f"{value:.4f} EUR" for value in X[:, 1]], "y": Y})
    rows = Partitions(dd.from_pandas(table, npartitions=3), "y", client=client)
    with pytest.raises(rfgp.DataError, match="read_numbers"):
        rfgp.GP(seed=0).fit(rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["poisson", "student-t"])
def test_likelihoods_are_summed_there(client, name):
    """The mode, the evidence and its gradient, from sums on the workers, are those of rows in memory."""
    y = np.random.default_rng(1).poisson(np.exp(1 + np.sin(X[:, 0]))).astype(float) if name == "poisson" else Y
    options = {"lengthscale": np.array([1.0, 10.0, 0.1]), "outputscale": 1.0, "likelihood": name}
    there = model(**options).condition(Partitions(da.from_array(X, chunks=(110, 2)), da.from_array(y, chunks=110)))
    here = model(**options).condition(X, y)
    there.hyperparameters.mean = here.hyperparameters.mean.item()
    assert_same(there, here, 1e-6)
    values, slopes = [], []
    for gp in (there, here):
        gp.hyperparameters.requires_grad_(True)
        value = gp.log_marginal_likelihood()
        value.backward()
        values.append(value.item())
        slopes.append(torch.cat([p.grad.reshape(-1) for p in gp.hyperparameters.parameters()]))
    assert values[0] == pytest.approx(values[1], rel=1e-8)
    torch.testing.assert_close(*slopes, rtol=1e-5, atol=1e-5)
    law = rfgp.dask.predict(here, da.from_array(X, chunks=(110, 2)), observed=True)
    np.testing.assert_allclose(law.mean.compute(), here.predict(X).observed().mean, rtol=1e-9)


def test_sums_on_lattices_are_those_of_one_process(client):
    kernel = k.RBF("a", lengthscale=1.0) + k.Linear("b") + k.Matern("c", nu=2.5, lengthscale=0.2)
    names = ("rbf(a)", "matern(c)")
    options = {"approximation": dict.fromkeys(names, rfgp.EquispacedFourier()), "start": {"noise": 0.01}, "seed": 0}
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": Y})
    parts = Partitions(dd.from_pandas(table, npartitions=4), "y", client=client)
    one, other = rfgp.GP(kernel, **options).condition(parts), rfgp.GP(kernel, **options).condition(table, "y")
    points = table.drop(columns="y")[:7]
    for name in ("mean", "variance"):
        np.testing.assert_allclose(getattr(one.predict(points), name), getattr(other.predict(points), name), rtol=1e-7)
    fitted = [
        rfgp.GP(k.RBF("a"), approximation=rfgp.EquispacedFourier(), seed=0).fit(*d) for d in ((parts,), (table, "y"))
    ]
    found = [gp.fit_report.log_marginal_likelihood for gp in fitted]
    assert found[0] == pytest.approx(found[1], rel=1e-4)
