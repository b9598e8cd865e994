"""Several outputs over one factorisation, functions drawn from the posterior, densities of what was observed."""

from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import pytest
import torch
from checks import assert_mean
from scipy import stats

import graphs
import rfgp

GRAPH = graphs.Graph.from_networkx(nx.convert_node_labels_to_integers(nx.grid_2d_graph(6, 6)))
MODELS = {
    "primal": lambda **o: rfgp.SparseSpectrumGP(num_frequencies=10, seed=0, **o),
    "rows": lambda **o: rfgp.SparseSpectrumGP(num_frequencies=40, seed=0, **o),
    "exact": lambda **o: rfgp.ExactGP(**o),
    "graph": lambda: rfgp.GraphGP(GRAPH, features="walks", num_walkers=8, seed=0),
}


class Data(NamedTuple):
    """Rows of a table or nodes, three outputs of very different units, and new rows or nodes."""

    X: Any
    Y: np.ndarray
    new: Any


def data(name="primal", seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 2))
    Y = np.c_[np.sin(X[:, 0]), 100 + 50 * X[:, 1], 1e-3 * X[:, 0] * X[:, 1]]
    Y = Y + [0.1, 5.0, 1e-4] * rng.standard_normal((30, 3))
    if name == "graph":
        return Data([int(i) for i in rng.permutation(36)[:30]], Y, [0, 7, 30])
    return Data(X, Y, rng.standard_normal((5, 2)))


@pytest.fixture(params=MODELS)
def parts(request):
    """A model of three outputs, and a model of each at the same standardised hyperparameters."""
    make, (inputs, Y, new) = MODELS[request.param], data(request.param)
    gp = make().condition(inputs, Y)
    gp.hyperparameters.raw["noise"].data.fill_(-2.0)
    gp.hyperparameters.raw["mean"].data.copy_(torch.tensor([0.1, -0.2, 0.3]))
    single = []
    for j in range(3):
        one = make().condition(inputs, Y[:, j])
        for name, raw in one.hyperparameters.raw.items():
            value = gp.hyperparameters.raw[name].data
            raw.data.copy_(value[j] if name == "mean" else value)
        single.append(one)
    return gp, single, new


def test_each_output_is_a_process_of_its_own(parts):
    gp, single, new = parts
    p, laws = gp.predict(new), [one.predict(new) for one in single]
    for name in ("mean", "variance", "covariance"):
        expected = np.stack([getattr(law, name) for law in laws], axis=-1)
        np.testing.assert_allclose(getattr(p, name), expected, rtol=1e-8, atol=1e-8 * abs(expected).max())
        expected = np.stack([getattr(law.observed(), name) for law in laws], axis=-1)
        np.testing.assert_allclose(getattr(p.observed(), name), expected, rtol=1e-8, atol=1e-8 * abs(expected).max())
    total = sum(one.log_marginal_likelihood() for one in single)
    assert gp.log_marginal_likelihood().item() == pytest.approx(total.item(), rel=1e-10)
    for name in ("mean", "variance", "log_density"):
        expected = np.stack([getattr(one.leave_one_out(), name) for one in single], axis=-1)
        np.testing.assert_allclose(getattr(gp.leave_one_out(), name), expected, rtol=1e-7)


def test_gradients_add_up(parts):
    gp, single, _ = parts
    ours = torch.autograd.grad(gp.log_marginal_likelihood(), list(gp.hyperparameters.parameters()))
    theirs = [torch.autograd.grad(o.log_marginal_likelihood(), list(o.hyperparameters.parameters())) for o in single]
    names = [name for name, _ in gp.hyperparameters.named_parameters()]
    for name, gradient, each in zip(names, ours, zip(*theirs, strict=True), strict=True):
        expected = torch.stack(each) if name.endswith("mean") else sum(each)
        torch.testing.assert_close(gradient, expected, rtol=1e-7, atol=1e-8)


def test_samples_of_several_outputs_have_their_law():
    X, Y, new = data()
    p = MODELS["primal"]().condition(X, Y).predict(new).observed()
    samples = p.sample(5000, generator=torch.Generator().manual_seed(0))
    assert samples.shape == (5000, 5, 3)
    scale = Y.std(0)
    centred = (samples - p.mean) / scale
    assert_mean(samples / scale, p.mean / scale)
    expected = np.zeros((5, 3, 5, 3))
    for j in range(3):
        expected[:, j, :, j] = p.covariance[:, :, j] / scale[j] ** 2
    assert_mean(centred[:, :, :, None, None] * centred[:, None, None], expected)


def test_units_are_those_of_each_output():
    X, Y, _ = data()
    gp = MODELS["primal"]().fit(X, Y)
    hyperparameters = gp.hyperparameters
    assert hyperparameters.noise.shape == hyperparameters.outputscale.shape == hyperparameters.mean.shape == (3,)
    np.testing.assert_allclose(
        hyperparameters.noise.detach().numpy() / Y.var(0, ddof=1), np.full(3, hyperparameters.raw["noise"].exp().item())
    )
    hyperparameters.noise = 0.5
    np.testing.assert_allclose(hyperparameters.noise.detach(), 0.5 * Y.var(0, ddof=1))
    hyperparameters.set(mean=[1.0, 2.0, 3.0])
    np.testing.assert_allclose(hyperparameters.mean.detach(), [1.0, 2.0, 3.0])
    with pytest.raises(rfgp.InvalidArgumentError, match="mean must be 3 finite numbers, or one for all"):
        hyperparameters.set(mean=[1.0, 2.0])


def test_a_single_column_keeps_its_axis():
    X, Y, new = data()
    gp = MODELS["primal"]().fit(X, Y[:, :1])
    flat = MODELS["primal"]().fit(X, Y[:, 0])
    assert gp.predict(new).mean.shape == gp.predict(new).variance.shape == (5, 1)
    np.testing.assert_allclose(gp.predict(new).mean[:, 0], flat.predict(new).mean, rtol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_files_copies_updates_and_twins_keep_the_outputs(name, tmp_path):
    make, (inputs, Y, new) = MODELS[name], data(name)
    gp = make().condition(inputs[:25], Y[:25])
    gp.save(tmp_path / "m.safetensors", data=True)
    again = rfgp.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict(new).mean, gp.predict(new).mean)
    whole = make().condition(inputs[:25], Y[:25])
    whole.condition(inputs, Y)
    for model in (gp, again):
        model.update(inputs[25:], Y[25:])
        np.testing.assert_allclose(model.predict(new).mean, whole.predict(new).mean, rtol=1e-6)
    if name != "exact":
        assert gp.exact().predict(new).mean.shape == (len(new), 3)
        assert gp.redraw(seed=3).predict(new).variance.shape == (len(new), 3)


def test_another_number_of_outputs_is_named():
    X, Y, _ = data()
    gp = MODELS["primal"]().condition(X, Y)
    for call in (gp.condition, gp.update):
        with pytest.raises(rfgp.DataError, match="y has 2 outputs, the training data 3"):
            call(X, Y[:, :2])
        with pytest.raises(rfgp.DataError, match="y has one output, the training data 3"):
            call(X, Y[:, 0])
    bad = Y.copy()
    bad[4, 1] = np.inf
    with pytest.raises(rfgp.DataError, match=r"the first \(inf\) in row 4, column 1"):
        gp.fit(X, bad)
    with pytest.raises(rfgp.DataError, match="Output 2 is constant"):
        gp.fit(X, Y * [1, 1, 0])


def test_fixed_noise_needs_one_scale():
    X, Y, new = data()
    make = MODELS["primal"]
    with pytest.raises(rfgp.DataError, match="standardised by different scales"):
        make().fit(X, Y, noise=np.full(30, 0.1))
    gp = make(standardize=False).condition(X, Y, noise=np.full(30, 0.1), sample_weight=np.full(30, 2.0))
    one = make(standardize=False).condition(X, Y[:, 1], noise=np.full(30, 0.1), sample_weight=np.full(30, 2.0))
    for name in ("noise", "outputscale"):
        one.hyperparameters.raw[name].data.copy_(gp.hyperparameters.raw[name].data)
    np.testing.assert_allclose(gp.predict(new).mean[:, 1], one.predict(new).mean, rtol=1e-8)


class TestFunctions:
    @pytest.mark.parametrize("name", ["primal", "rows"])
    @pytest.mark.parametrize("outputs", [1, 3])
    def test_their_values_have_the_joint_law(self, name, outputs):
        X, Y, new = data()
        gp = MODELS[name]().condition(X, Y[:, 0] if outputs == 1 else Y[:, [0, 1, 2]])
        p = gp.predict(new)
        values = gp.sample_functions(4000, seed=1)(new)
        assert values.shape == (4000, 5) if outputs == 1 else (4000, 5, 3)
        first = values if outputs == 1 else values[..., 0]
        mean, covariance = (v if outputs == 1 else v[..., 0] for v in (p.mean, p.covariance))
        centred = first - mean
        assert_mean(first, mean)
        assert_mean(centred[:, :, None] * centred[:, None], covariance)
        if outputs == 3:  # and outputs are independent
            other = (values - p.mean)[..., 1]
            assert_mean(centred[:, :, None] * other[:, None], np.zeros((5, 5)))

    def test_they_are_functions(self):
        """The same values wherever they are asked for, together or alone; smooth, and reproducible."""
        X, Y, new = data()
        gp = MODELS["primal"]().condition(X, Y[:, 0])
        f = gp.sample_functions(3, seed=0)
        np.testing.assert_allclose(f(new)[:, 2:3], f(new[2:3]), rtol=1e-10)
        np.testing.assert_array_equal(f(new), gp.sample_functions(3, seed=0)(new))
        assert not np.array_equal(f(new), gp.sample_functions(3, seed=1)(new))
        x = torch.as_tensor(new).requires_grad_()
        assert torch.autograd.gradcheck(f, (x,))

    def test_they_are_a_snapshot(self):
        X, Y, new = data()
        gp = MODELS["primal"]().condition(X, Y[:, 0])
        f = gp.sample_functions(2, seed=0)
        before = f(new)
        gp.hyperparameters.noise = 7.0
        gp.hyperparameters.lengthscale = 0.1
        gp.condition(X, -Y[:, 0])
        np.testing.assert_array_equal(f(new), before)

    @pytest.mark.parametrize("count", [0, -1, 1.5, True, "a"])
    def test_bad_counts_are_named(self, count):
        X, Y, _ = data()
        with pytest.raises(rfgp.InvalidArgumentError, match="num_samples must be a positive integer"):
            MODELS["primal"]().condition(X, Y[:, 0]).sample_functions(count)

    def test_columns_are_checked(self):
        X, Y, new = data()
        f = MODELS["primal"]().condition(X, Y[:, 0]).sample_functions(1)
        with pytest.raises(rfgp.DataError, match="X has 1 column"):
            f(new[:, :1])


class TestDensities:
    def test_they_are_those_of_the_marginal_law(self):
        X, Y, new = data()
        p = MODELS["primal"]().condition(X, Y[:, 0]).predict(new).observed()
        y = np.random.default_rng(1).standard_normal(5)
        np.testing.assert_allclose(p.log_density(y), stats.norm(p.mean, p.variance**0.5).logpdf(y), rtol=1e-10)
        assert -p.log_density(y).mean() == pytest.approx(rfgp.metrics.nlpd(y, p), rel=1e-12)

    def test_of_several_outputs(self):
        X, Y, new = data()
        p = MODELS["primal"]().condition(X, Y).predict(new).observed()
        y = Y[:5]
        np.testing.assert_allclose(p.log_density(y), stats.norm(p.mean, p.variance**0.5).logpdf(y), rtol=1e-10)
        with pytest.raises(rfgp.InvalidArgumentError, match=r"y has shape \(5,\), the mean \(5, 3\)"):
            p.log_density(y[:, 0])


@pytest.mark.parametrize("name", MODELS)
def test_chunks_change_nothing(name, monkeypatch):
    make, (inputs, Y, new) = MODELS[name], data(name)
    gp = make().condition(inputs, Y[:, 0])
    whole = gp.predict(new)
    mean, variance = whole.mean, whole.variance
    monkeypatch.setattr("rfgp.inference.distributions.ENTRIES", 80)
    parts = gp.predict(new)
    np.testing.assert_allclose(parts.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(parts.variance, variance, rtol=1e-9)
    np.testing.assert_allclose(np.diag(parts.covariance), variance, rtol=1e-9)


def test_a_prediction_holds_no_features_of_many_points(monkeypatch):
    X, Y, new = data()
    monkeypatch.setattr("rfgp.inference.distributions.ENTRIES", 1000)
    gp, sizes = MODELS["primal"]().condition(X, Y[:, 0]), []
    gp.predict(new).mean.sum()
    gp.feature_map.register_forward_pre_hook(lambda module, arguments: sizes.append(len(arguments[0])))
    gp.predict(np.random.default_rng(1).standard_normal((500, 2))).variance.sum()
    assert sum(sizes) >= 500
    assert len(sizes) >= 10
    assert max(sizes) <= 50


def test_integers_that_single_precision_cannot_tell_apart_are_refused():
    X = np.random.default_rng(0).standard_normal((30, 2))
    y = 20_000_000 + np.arange(30)
    gp = rfgp.SparseSpectrumGP(num_frequencies=4, seed=0)
    with pytest.raises(rfgp.DataError, match=r"integers up to 20000029, and torch.float32"):
        gp.condition(X.astype(np.float32), y)
    np.testing.assert_allclose(gp.condition(X, y).hyperparameters.mean.item(), y.mean(), rtol=1e-9)
    small = rfgp.SparseSpectrumGP(num_frequencies=4, seed=0)
    assert small.condition(X.astype(np.float32), np.arange(30)).predict(X.astype(np.float32)).mean.dtype == np.float32
