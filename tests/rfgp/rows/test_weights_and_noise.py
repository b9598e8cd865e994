"""Rows with their own noise, rows that count several times, and rows left out."""

import re
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import stats

import graphs
import rfgp
from rfgp.rows import Chunk
from rfgp.tables import Batches

GRAPH = graphs.Graph.from_networkx(nx.convert_node_labels_to_integers(nx.grid_2d_graph(6, 6)))
START = {"outputscale": 1.3, "noise": 0.1}
TABLE = {"seed": 0, "lengthscale": 1.2, **START}
MODELS = {
    "primal": lambda: rfgp.SparseSpectrumGP(num_frequencies=8, standardize=False, **TABLE),
    "rows": lambda: rfgp.SparseSpectrumGP(num_frequencies=50, standardize=False, **TABLE),
    "standardized": lambda: rfgp.SparseSpectrumGP(num_frequencies=8, **TABLE),
    "exact": lambda: rfgp.ExactGP(standardize=False, lengthscale=1.2, **START),
    "graph": lambda: rfgp.GraphGP(GRAPH, features="walks", num_walkers=8, seed=0, **START),
}


def data(name="primal", seed=0):
    """Return 24 rows of a table or nodes with y, noise and weight, and new ones."""
    rng = np.random.default_rng(seed)
    X, noise, weight = rng.standard_normal((24, 2)), rng.uniform(0.05, 0.5, 24), rng.integers(1, 5, 24)
    y, new = np.sin(X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(24), rng.standard_normal((5, 2))
    if name == "graph":
        X, new = [int(i) for i in rng.permutation(36)[:24]], [0, 7, 30]
    return SimpleNamespace(X=X, y=y, noise=noise, weight=weight, new=new)


def take(inputs, rows):
    return inputs[rows] if isinstance(inputs, np.ndarray) else [inputs[i] for i in rows]


EXTRAS = {"plain": (), "noise": ("noise",), "weights": ("sample_weight",), "both": ("noise", "sample_weight")}
"""The values of rows that are given with X and y."""


def per_row(d, extra, rows=slice(None)):
    """Return arguments with values of some rows. Weights are no integers."""
    values = {"noise": d.noise, "sample_weight": 0.37 * d.weight}
    return {key: values[key][rows] for key in EXTRAS[extra]}


@pytest.mark.parametrize("extra", EXTRAS)
@pytest.mark.parametrize("name", MODELS)
def test_density_and_posterior_match_dense_algebra(name, extra):
    """A row of weight w has the noise D = s / w, with the variance s of one observation.

    A repeated value is N(y; f, s)^w = N(y; f, s / w) (2 pi s)^(-(w - 1) / 2) w^(-1 / 2), so the likelihood of the
    repetitions is that of D with the factors after it, which the function does not enter.
    """
    d = data(name)
    gp, given = MODELS[name]().condition(d.X, d.y, **per_row(d, extra)), per_row(d, extra)
    weight = given.get("sample_weight", np.ones(24))
    noise = gp.hyperparameters.noise.item() + given.get("noise", np.zeros(24))
    K, prior_mean = gp.prior_covariance([*d.X, *d.new]).detach().numpy(), gp.hyperparameters.mean.item()
    residual, A = d.y - prior_mean, K[:24, :24] + np.diag(noise / weight)
    mean = prior_mean + K[24:, :24] @ np.linalg.solve(A, residual)
    np.testing.assert_allclose(gp.predict(d.new).mean, mean, rtol=1e-8, atol=1e-9)
    covariance = K[24:, 24:] - K[24:, :24] @ np.linalg.solve(A, K[:24, 24:])
    np.testing.assert_allclose(gp.predict(d.new).covariance, covariance, rtol=1e-6, atol=1e-9)
    factors = -0.5 * ((weight - 1) * np.log(2 * np.pi * noise) + np.log(weight)).sum()
    expected = stats.multivariate_normal(np.zeros(24), A).logpdf(residual) + factors
    assert gp.log_marginal_likelihood().item() == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("weight", [5e-324, 1e-310, 1e-200, 1e200])
@pytest.mark.parametrize("name", ["primal", "rows", "exact", "graph"])
def test_a_weight_whose_square_is_no_number_is_refused(name, weight):
    make, d = MODELS[name], data(name)
    weights, shown = np.r_[np.ones(23), weight], re.escape(f"{weight:g}")
    with pytest.raises(rfgp.DataError, match=rf"between 1e-150 and 1e\+150.*got {shown} in row 23"):
        make().condition(d.X, d.y, sample_weight=weights)


@pytest.mark.parametrize("name", MODELS)
def test_a_weight_of_nearly_nothing_is_a_row_left_out(name):
    make, d = MODELS[name], data(name)
    gp = make().condition(d.X, d.y, sample_weight=np.r_[np.ones(23), 1e-140])
    assert np.isfinite(gp.log_marginal_likelihood().item())
    if name != "standardized":
        less = make().condition(d.X[:23], d.y[:23])
        less.hyperparameters.set(**{q: getattr(gp.hyperparameters, q).detach() for q in gp.hyperparameters.names})
        np.testing.assert_allclose(gp.predict(d.new).mean, less.predict(d.new).mean, rtol=1e-7)


@pytest.mark.parametrize("name", ["blocks", "arrays", "raw", "graph"])
def test_a_weight_repeats_its_row_from_the_units_on(name):
    """Means, deviations, starting values, the likelihood and predictions are those of the repeated rows."""
    options = {"num_frequencies": 6, "seed": 0, "standardize": name != "raw"}
    make = (lambda: rfgp.GraphGP(GRAPH, seed=0)) if name == "graph" else lambda: rfgp.SparseSpectrumGP(**options)
    d, rows = data(name), np.repeat(np.arange(24), data(name).weight)
    several = make().condition(take(d.X, rows), d.y[rows])
    if name == "blocks":
        parts = [Chunk(d.X[part], d.y[part], None, d.weight[part]) for part in (slice(0, 9), slice(9, 24))]
        once = make().condition(Batches(parts))
    else:
        once = make().condition(d.X, d.y, sample_weight=d.weight)
    for quantity in once.hyperparameters.names:
        ours, expected = (getattr(m.hyperparameters, quantity).detach() for m in (once, several))
        torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-13)
    a, b = (m.log_marginal_likelihood().item() for m in (once, several))
    assert a == pytest.approx(b, rel=1e-11)
    np.testing.assert_allclose(once.predict(d.new).mean, several.predict(d.new).mean, rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(once.predict(d.new).variance, several.predict(d.new).variance, rtol=1e-9)


@pytest.mark.parametrize("extra", ["plain", "noise", "both"])
@pytest.mark.parametrize("name", MODELS)
def test_leaving_one_out_is_leaving_one_out(name, extra):
    d = data(name)
    gp = MODELS[name]().condition(d.X, d.y, **per_row(d, extra))
    out, noise = gp.leave_one_out(), per_row(d, extra).get("noise", np.zeros(24))
    for i in (0, 11, 23):
        others = [k for k in range(24) if k != i]
        left = MODELS[name]().condition(d.X, d.y, **per_row(d, extra))
        left.hyperparameters.load_state_dict(gp.hyperparameters.state_dict())
        left.condition(take(d.X, others), d.y[others], **per_row(d, extra, others))
        p = left.predict(take(d.X, [i]))
        variance = p.variance[0] + left.hyperparameters.noise.item() + noise[i]
        assert out.mean[i] == pytest.approx(p.mean[0], abs=1e-8)
        assert out.variance[i] == pytest.approx(variance, rel=1e-7)
        density = stats.norm(p.mean[0], variance**0.5).logpdf(d.y[i])
        assert out.log_prob[i] == pytest.approx(density, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_an_update_is_one_condition(name):
    make, d = MODELS[name], data(name)
    whole = make().condition(d.X, d.y)
    noise, weight = np.append(np.zeros(20), d.noise[20:]), np.append(d.weight[:20], np.ones(4))
    whole.condition(d.X, d.y, noise=noise, sample_weight=weight)
    parts = make().condition(d.X, d.y)
    first, last = list(range(20)), list(range(20, 24))
    parts.condition(take(d.X, first), d.y[:20], sample_weight=d.weight[:20])
    parts.update(take(d.X, last), d.y[20:], noise=d.noise[20:])
    np.testing.assert_allclose(parts.predict(d.new).mean, whole.predict(d.new).mean, rtol=1e-9)


def test_a_fit_uses_them_and_a_file_keeps_them(tmp_path):
    make, d = MODELS["primal"], data()
    gp = make().fit(d.X, d.y, noise=d.noise, sample_weight=d.weight)
    gp.save(tmp_path / "m.safetensors", data=True)
    again = rfgp.load(tmp_path / "m.safetensors")
    assert again.log_marginal_likelihood().item() == gp.log_marginal_likelihood().item()
    np.testing.assert_array_equal(again.leave_one_out().mean, gp.leave_one_out().mean)
    exact = gp.exact()
    assert abs(exact.log_marginal_likelihood().item() - gp.log_marginal_likelihood().item()) > 1e-6
    plain = make().fit(d.X, d.y)
    assert plain.hyperparameters.noise.item() != pytest.approx(gp.hyperparameters.noise.item(), rel=0.01)


def test_tensors_stay_tensors():
    d = data()
    gp = MODELS["primal"]().condition(torch.as_tensor(d.X), torch.as_tensor(d.y), noise=torch.as_tensor(d.noise))
    assert isinstance(gp.leave_one_out().mean, torch.Tensor)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"noise": np.full(3, 0.1)}, r"noise must have one value for each of the 24 rows, got shape \(3,\)"),
        ({"noise": np.full(24, -0.1)}, "noise must be finite and not negative, got -"),
        ({"noise": np.full(24, np.nan)}, "noise must be finite and not negative, got nan in row 0"),
        ({"noise": 0.3}, "one value for each"),
        ({"sample_weight": np.zeros(24)}, "sample_weight must be finite and positive, got 0 in row 0"),
        ({"sample_weight": np.full(24, np.nan)}, "sample_weight must be finite and positive, got nan in row 0"),
        ({"sample_weight": ["a"] * 24}, "sample_weight"),
    ],
)
def test_bad_rows_are_named_and_nothing_is_lost(extra, message):
    d = data()
    gp = MODELS["primal"]().condition(d.X, d.y)
    before = gp.predict(d.new).mean
    for call in (gp.condition, gp.fit, gp.update):
        with pytest.raises(rfgp.DataError, match=message):
            call(d.X, d.y, **extra)
    np.testing.assert_array_equal(gp.predict(d.new).mean, before)
