"""Several outputs of a model, functions drawn from it, and its answers in chunks."""

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
    "features": lambda **o: rfgp.SparseSpectrumGP(num_frequencies=10, seed=0, **o),
    "rows": lambda **o: rfgp.SparseSpectrumGP(num_frequencies=40, seed=0, **o),
    "exact": lambda **o: rfgp.ExactGP(**o),
    "graph": lambda: rfgp.GraphGP(GRAPH, features="walks", num_walkers=8, seed=0),
}
features = MODELS["features"]


def data(name="features", seed=0):
    """Return rows of a table or nodes, three outputs of very different units, and new rows or nodes."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((30, 2))
    Y = np.c_[np.sin(X[:, 0]), 100 + 50 * X[:, 1], 1e-3 * X[:, 0] * X[:, 1]]
    Y = Y + [0.1, 5.0, 1e-4] * rng.standard_normal((30, 3))
    if name == "graph":
        return [int(i) for i in rng.permutation(36)[:30]], Y, [0, 7, 30]
    return X, Y, rng.standard_normal((5, 2))


@pytest.mark.parametrize("name", ["features", "graph"])
def test_each_output_is_a_process_of_its_own(name):
    """Values, predictions, gradients and rows left out: those of a model of each at the same hyperparameters."""
    make, (inputs, Y, new) = MODELS[name], data(name)
    gp, single = make().condition(inputs, Y), []
    gp.hyperparameters.raw["noise"].data.fill_(-2.0)
    gp.hyperparameters.raw["mean"].data.copy_(torch.tensor([0.1, -0.2, 0.3]))
    for j in range(3):
        single.append(make().condition(inputs, Y[:, j]))
        for key, raw in single[j].hyperparameters.raw.items():
            value = gp.hyperparameters.raw[key].data
            raw.data.copy_(value[j] if key == "mean" else value)
    p, each = gp.predict(new), [one.predict(new) for one in single]
    for one, others in ((p, each), (p.observed(), [other.observed() for other in each])):
        for key in ("mean", "variance", "covariance"):
            expected = np.stack([getattr(other, key) for other in others], axis=-1)
            np.testing.assert_allclose(getattr(one, key), expected, rtol=1e-8, atol=1e-8 * abs(expected).max())
    for key in ("mean", "variance", "log_prob"):
        expected = np.stack([getattr(one.leave_one_out(), key) for one in single], axis=-1)
        np.testing.assert_allclose(getattr(gp.leave_one_out(), key), expected, rtol=1e-7)
    value, values = gp.log_marginal_likelihood(), [one.log_marginal_likelihood() for one in single]
    assert value.item() == pytest.approx(sum(values).item(), rel=1e-10)
    slopes = torch.autograd.grad(value, list(gp.hyperparameters.parameters()))
    pairs = zip(values, single, strict=True)
    parts = [torch.autograd.grad(value, list(one.hyperparameters.parameters())) for value, one in pairs]
    names = [key for key, _ in gp.hyperparameters.named_parameters()]
    for key, slope, own in zip(names, slopes, zip(*parts, strict=True), strict=True):
        expected = torch.stack(own) if key.endswith("mean") else sum(own)
        torch.testing.assert_close(slope, expected, rtol=1e-7, atol=1e-8)


def check_moments(values, mean, covariance, scale):
    """Check samples (count, n, 3) of independent outputs."""
    centred, expected = (values - mean) / scale, np.zeros((len(mean), 3, len(mean), 3))
    for j in range(3):
        expected[:, j, :, j] = covariance[:, :, j] / scale[j] ** 2
    assert_mean(centred, 0)
    assert_mean(centred[:, :, :, None, None] * centred[:, None, None], expected)


def test_samples_and_functions_have_predicted_moments():
    X, Y, new = data()
    gp = features().condition(X, Y)
    p, observed = gp.predict(new), gp.predict(new).observed()
    samples = observed.sample(5000, generator=torch.Generator().manual_seed(0))
    check_moments(samples, observed.mean, observed.covariance, Y.std(0))
    check_moments(gp.sample_functions(4000, seed=1)(new), p.mean, p.covariance, Y.std(0))


def test_units_are_those_of_each_output():
    X, Y, _ = data()
    hyperparameters = features().fit(X, Y).hyperparameters
    assert hyperparameters.noise.shape == hyperparameters.outputscale.shape == hyperparameters.mean.shape == (3,)
    noise = np.full(3, hyperparameters.raw["noise"].exp().item())
    np.testing.assert_allclose(hyperparameters.noise.detach().numpy() / Y.var(0, ddof=1), noise)
    hyperparameters.noise = 0.5
    np.testing.assert_allclose(hyperparameters.noise.detach(), 0.5 * Y.var(0, ddof=1))
    hyperparameters.set(mean=[1.0, 2.0, 3.0])
    np.testing.assert_allclose(hyperparameters.mean.detach(), [1.0, 2.0, 3.0])
    with pytest.raises(rfgp.InvalidArgumentError, match="mean must be 3 finite numbers"):
        hyperparameters.set(mean=[1.0, 2.0])


def test_a_single_column_keeps_its_axis():
    X, Y, new = data()
    gp, flat = features().fit(X, Y[:, :1]), features().fit(X, Y[:, 0])
    assert gp.predict(new).mean.shape == gp.predict(new).variance.shape == (5, 1)
    np.testing.assert_allclose(gp.predict(new).mean[:, 0], flat.predict(new).mean, rtol=1e-6)


@pytest.mark.parametrize("name", ["rows", "graph"])
def test_files_updates_and_twins_keep_the_outputs(name, tmp_path):
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
    assert gp.exact().predict(new).mean.shape == (len(new), 3)
    other = gp.with_approximation(rfgp.RandomWalks(8, seed=3) if name == "graph" else rfgp.RandomFeatures(8, seed=3))
    assert other.predict(new).variance.shape == (len(new), 3)


def test_another_number_of_outputs_is_named():
    X, Y, _ = data()
    gp = features().condition(X, Y)
    for call in (gp.condition, gp.update):
        with pytest.raises(rfgp.DataError, match=r"got shape \(n, 2\)"):
            call(X, Y[:, :2])
        with pytest.raises(rfgp.DataError, match=r"got shape \(n,\)"):
            call(X, Y[:, 0])
    bad = Y.copy()
    bad[4, 1] = np.inf
    with pytest.raises(rfgp.DataError, match=r"\(inf\) in row 4, column 1"):
        gp.fit(X, bad)
    with pytest.raises(rfgp.DataError, match="Output 2 is constant"):
        gp.fit(X, Y * [1, 1, 0])


def test_fixed_noise_needs_one_scale():
    X, Y, new = data()
    with pytest.raises(rfgp.DataError, match="different scales"):
        features().fit(X, Y, noise=np.full(30, 0.1))
    own = {"noise": np.full(30, 0.1), "sample_weight": np.full(30, 2.0)}
    gp, one = (features(standardize=False).condition(X, y, **own) for y in (Y, Y[:, 1]))
    for name in ("noise", "rbf/outputscale"):
        one.hyperparameters.raw[name].data.copy_(gp.hyperparameters.raw[name].data)
    np.testing.assert_allclose(gp.predict(new).mean[:, 1], one.predict(new).mean, rtol=1e-8)


def test_log_densities_are_those_of_the_marginals():
    X, Y, new = data()
    for y in (Y[:5, 0], Y[:5]):
        p = features().condition(X, Y if y.ndim > 1 else Y[:, 0]).predict(new).observed()
        np.testing.assert_allclose(p.log_prob(y), stats.norm(p.mean, p.variance**0.5).logpdf(y), rtol=1e-10)
    with pytest.raises(rfgp.InvalidArgumentError, match=r"shape of the mean, \(5, 3\)"):
        p.log_prob(Y[:5, 0])


class TestFunctions:
    def test_they_are_functions(self):
        """The same values together or alone, by seed; differentiable; a snapshot of the model."""
        X, Y, new = data()
        gp = features().condition(X, Y[:, 0])
        f = gp.sample_functions(3, seed=0)
        before = f(new)
        np.testing.assert_allclose(before[:, 2:3], f(new[2:3]), rtol=1e-10)
        np.testing.assert_array_equal(before, gp.sample_functions(3, seed=0)(new))
        assert not np.array_equal(before, gp.sample_functions(3, seed=1)(new))
        assert torch.autograd.gradcheck(f, (torch.as_tensor(new).requires_grad_(),))
        gp.hyperparameters.noise = 7.0
        gp.hyperparameters.lengthscale = 0.1
        gp.condition(X, -Y[:, 0])
        np.testing.assert_array_equal(f(new), before)

    def test_bad_arguments_are_named(self):
        X, Y, new = data()
        gp = features().condition(X, Y[:, 0])
        for count in (0, -1, 1.5, True, "a"):
            with pytest.raises(rfgp.InvalidArgumentError, match="num_samples must be a positive integer"):
                gp.sample_functions(count)
        with pytest.raises(rfgp.DataError, match="X must have 2 columns"):
            gp.sample_functions(1)(new[:, :1])


@pytest.mark.parametrize("name", ["rows", "graph"])
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
    gp, sizes = features().condition(X, Y[:, 0]), []
    gp.predict(new).mean.sum()
    gp.feature_map.register_forward_pre_hook(lambda module, arguments: sizes.append(len(arguments[0])))
    gp.predict(np.random.default_rng(1).standard_normal((500, 2))).variance.sum()
    assert sum(sizes) >= 500
    assert len(sizes) >= 10
    assert max(sizes) <= 50


def test_integers_beyond_single_precision_are_refused():
    X = np.random.default_rng(0).standard_normal((30, 2))
    y = 20_000_000 + np.arange(30)
    gp = rfgp.SparseSpectrumGP(num_frequencies=4, seed=0)
    with pytest.raises(rfgp.DataError, match=r"torch.float32.* got 20000029"):
        gp.condition(X.astype(np.float32), y)
    np.testing.assert_allclose(gp.condition(X, y).hyperparameters.mean.item(), y.mean(), rtol=1e-9)
    small = rfgp.SparseSpectrumGP(num_frequencies=4, seed=0)
    assert small.condition(X.astype(np.float32), np.arange(30)).predict(X.astype(np.float32)).mean.dtype == np.float32
