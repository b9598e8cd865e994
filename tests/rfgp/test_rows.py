"""Rows with their own noise, rows that count several times, and rows left out."""

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import stats

import graphs
import rfgp

RNG = np.random.default_rng(0)
X = RNG.standard_normal((24, 2))
Y = np.sin(X[:, 0]) + X[:, 1] + 0.2 * RNG.standard_normal(24)
NOISE = RNG.uniform(0.05, 0.5, 24)
WEIGHT = RNG.integers(1, 5, 24)
NEW = RNG.standard_normal((5, 2))
GRAPH = graphs.Graph.from_networkx(nx.convert_node_labels_to_integers(nx.grid_2d_graph(6, 6)))
NODES = [int(i) for i in RNG.permutation(36)[:24]]
START = {"outputscale": 1.3, "noise": 0.1}

MODELS = {
    "primal": (
        lambda: rfgp.SparseSpectrumGP(num_frequencies=8, standardize=False, seed=0, lengthscale=1.2, **START),
        X,
    ),
    "rows": (lambda: rfgp.SparseSpectrumGP(num_frequencies=50, standardize=False, seed=0, lengthscale=1.2, **START), X),
    "standardized": (lambda: rfgp.SparseSpectrumGP(num_frequencies=8, seed=0, lengthscale=1.2, **START), X),
    "exact": (lambda: rfgp.ExactGP(standardize=False, lengthscale=1.2, **START), X),
    "graph": (lambda: rfgp.GraphGP(GRAPH, features="walks", num_walkers=8, seed=0, **START), NODES),
}


def points(inputs):
    return NEW if isinstance(inputs, np.ndarray) else [0, 7, 30]


def take(inputs, rows):
    return inputs[rows] if isinstance(inputs, np.ndarray) else [inputs[i] for i in rows]


@pytest.mark.parametrize("name", MODELS)
def test_the_likelihood_is_that_of_the_dense_covariance(name):
    make, inputs = MODELS[name]
    gp = make().condition(inputs, Y, noise=NOISE)
    covariance = gp.prior_covariance(inputs).detach().numpy() + np.diag(gp.hyperparameters.noise.item() + NOISE)
    expected = stats.multivariate_normal(np.full(24, gp.hyperparameters.mean.item()), covariance).logpdf(Y)
    assert gp.log_marginal_likelihood().item() == pytest.approx(expected, rel=1e-8)
    assert abs(make().condition(inputs, Y).log_marginal_likelihood().item() - expected) > 0.1


@pytest.mark.parametrize("noise", [None, NOISE], ids=["learned", "known"])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "standardized"])
def test_a_weight_is_a_number_of_repetitions(name, noise):
    make, inputs = MODELS[name]
    rows = np.repeat(np.arange(24), WEIGHT)
    once = make().condition(inputs, Y, noise=noise, sample_weight=WEIGHT)
    several = make().condition(inputs, Y)  # the same scaling and hyperparameters
    several.condition(take(inputs, rows), Y[rows], noise=None if noise is None else noise[rows])
    once.hyperparameters.set(noise=0.07, mean=0.3)
    several.hyperparameters.set(**{q: getattr(once.hyperparameters, q).detach() for q in once.hyperparameters.names})
    a, b = once.log_marginal_likelihood(), several.log_marginal_likelihood()
    assert a.item() == pytest.approx(b.item(), rel=1e-8)
    for one, other in zip(
        torch.autograd.grad(a, list(once.hyperparameters.parameters())),
        torch.autograd.grad(b, list(several.hyperparameters.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-8)
    p, q = once.predict(points(inputs)), several.predict(points(inputs))
    np.testing.assert_allclose(p.mean, q.mean, atol=1e-8)
    np.testing.assert_allclose(p.variance, q.variance, atol=1e-8)


@pytest.mark.parametrize("extra", [{}, {"noise": NOISE}, {"noise": NOISE, "sample_weight": WEIGHT}], ids=len)
@pytest.mark.parametrize("name", MODELS)
def test_leaving_one_out_is_leaving_one_out(name, extra):
    make, inputs = MODELS[name]
    gp = make().condition(inputs, Y, **extra)
    found, noise = gp.leave_one_out(), extra.get("noise", np.zeros(24))
    for i in (0, 11, 23):
        others = [k for k in range(24) if k != i]
        left = make().condition(inputs, Y)
        left.hyperparameters.load_state_dict(gp.hyperparameters.state_dict())
        left.condition(take(inputs, others), Y[others], **{key: value[others] for key, value in extra.items()})
        p = left.predict(take(inputs, [i]))
        variance = p.variance[0] + left.hyperparameters.noise.item() + noise[i]
        assert found.mean[i] == pytest.approx(p.mean[0], abs=1e-8)
        assert found.variance[i] == pytest.approx(variance, rel=1e-7)
        density = stats.norm(p.mean[0], variance**0.5).logpdf(Y[i])
        assert found.log_density[i] == pytest.approx(density, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_an_update_is_one_condition(name):
    make, inputs = MODELS[name]
    whole = make().condition(inputs, Y)
    whole.condition(
        inputs, Y, noise=np.append(np.zeros(20), NOISE[20:]), sample_weight=np.append(WEIGHT[:20], np.ones(4))
    )
    parts = make().condition(inputs, Y)
    first, last = list(range(20)), list(range(20, 24))
    parts.condition(take(inputs, first), Y[:20], sample_weight=WEIGHT[:20]).update(
        take(inputs, last), Y[20:], noise=NOISE[20:]
    )
    np.testing.assert_allclose(parts.predict(points(inputs)).mean, whole.predict(points(inputs)).mean, rtol=1e-9)


def test_a_fit_uses_them_and_a_file_keeps_them(tmp_path):
    gp = MODELS["primal"][0]().fit(X, Y, noise=NOISE, sample_weight=WEIGHT)
    again = rfgp.load(gp.save(tmp_path / "m.safetensors", data=True) or tmp_path / "m.safetensors")
    assert again.log_marginal_likelihood().item() == gp.log_marginal_likelihood().item()
    np.testing.assert_array_equal(again.leave_one_out().mean, gp.leave_one_out().mean)
    exact = gp.exact()
    assert abs(exact.log_marginal_likelihood().item() - gp.log_marginal_likelihood().item()) > 1e-6
    plain = MODELS["primal"][0]().fit(X, Y)
    assert plain.hyperparameters.noise.item() != pytest.approx(gp.hyperparameters.noise.item(), rel=0.01)


def test_tensors_stay_tensors():
    gp = MODELS["primal"][0]().condition(torch.as_tensor(X), torch.as_tensor(Y), noise=torch.as_tensor(NOISE))
    assert isinstance(gp.leave_one_out().mean, torch.Tensor)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"noise": NOISE[:3]}, r"noise must have one value for each of the 24 rows, got shape \(3,\)"),
        ({"noise": -NOISE}, "noise must be finite and not negative, but is -"),
        ({"noise": 0.3}, "one value for each"),
        ({"sample_weight": np.zeros(24)}, "sample_weight must be finite and positive, but is 0 in row 0"),
        ({"sample_weight": np.full(24, np.nan)}, "sample_weight must be finite and positive, but is nan in row 0"),
        ({"sample_weight": ["a"] * 24}, "sample_weight"),
    ],
)
def test_bad_rows_are_named_and_nothing_is_lost(extra, message):
    gp = MODELS["primal"][0]().condition(X, Y)
    before = gp.predict(NEW).mean
    for call in (gp.condition, gp.fit, gp.update):
        with pytest.raises(rfgp.DataError, match=message):
            call(X, Y, **extra)
    np.testing.assert_array_equal(gp.predict(NEW).mean, before)
