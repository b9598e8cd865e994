"""Lattices of frequencies for rows with noise of their own, against dense algebra and features."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from checks import fails
from dense_terms import DenseTerms
from planting import planted

import rfgp
from rfgp import kernels as k
from rfgp.approximations import equispaced_fourier
from rfgp.regression import mean_and_noise
from rfgp.rows import Block, JoinedRows
from rfgp.solvers.lowrank import LinearModel, LowRankSolver
from rfgp.solvers.onepass import OnePassSolver, SeriesPosterior, noises, posterior, residual_variance_of

N, NEW = 300, 80
KERNELS = {
    "series": k.RBF("t", lengthscale=0.7).named("f"),
    "map": k.RBF(("t", "u"), lengthscale=(0.7, 0.4)).named("f"),
    "two lattices": k.RBF("t", lengthscale=0.7).named("f") + k.RBF("u", lengthscale=0.4).named("g"),
    "with others": k.RBF("t", lengthscale=0.7).named("f") + k.Linear(("z",), name="h") + k.Group("g"),
}
START = {"mean": 3.1, "noise": 0.02}
TIGHT, COARSE = rfgp.EquispacedFourier(tolerance=1e-8), rfgp.EquispacedFourier(tolerance=0.01, max_features=57)


def table():
    """Return rows and new points within their range, targets, noises and weights of the rows."""
    rng = np.random.default_rng(0)
    whole = {"t": rng.uniform(0, 4, N + NEW), "u": rng.uniform(0, 1, N + NEW), "z": rng.normal(size=N + NEW)}
    for name in ("t", "u"):
        whole[name][:2] = whole[name].min(), whole[name].max()
    whole["g"] = rng.choice(list("abc"), N + NEW)
    noise, weight = rng.uniform(0.005, 0.3, N), rng.integers(1, 4, N).astype(float)
    smooth = 3 + np.sin(2 * whole["t"]) + 0.2 * whole["u"] * whole["z"] + 0.3 * (whole["g"] == "a")
    return whole, smooth[:N] + rng.normal(size=N) * np.sqrt(0.02 + noise), noise, weight


WHOLE, Y, NOISE, WEIGHT = table()
ROWS, LATER = ({key: values[part] for key, values in WHOLE.items()} for part in (slice(0, N), slice(N, None)))


def model(case="series", approximation=TIGHT, rows=ROWS, y=Y, noise=NOISE, **given):
    gp = rfgp.GP(KERNELS[case], approximation=approximation, start=START, seed=0)
    return gp.condition(rows, y, noise=noise, **given)


def dense_twin(gp, weight):
    """Return the same sum by dense algebra, with repeated rows."""
    repeated = np.repeat(np.arange(N), np.ones(N, dtype=int) if weight is None else weight.astype(int))
    places = {"rows": repeated, "new": np.arange(N, N + NEW)}
    values, terms = gp.state.hyperparameters, {term.name: term for term in k.Sum(gp.kernel.terms()).terms()}

    def covariance(name, first, second):
        own = {path: values.value(path).detach() for path in values.space.names if path.startswith(f"{name}.")}
        return k.Sum((terms[name],)).matrix(WHOLE, values=own).numpy()[np.ix_(places[first], places[second])]

    return DenseTerms(covariance, list(terms), Y[repeated], START["mean"], START["noise"] + NOISE[repeated])


def check_predictions(case="series", weight=None):
    gp = model(case, sample_weight=weight)
    assert isinstance(gp.state.posterior, SeriesPosterior)
    dense, found = dense_twin(gp, weight), gp.predict(LATER)
    for name in gp.terms:
        one, expected = found.terms[name], dense.cross_covariance(name, name)
        np.testing.assert_allclose(one.mean, dense.mean(name), atol=1e-5)
        np.testing.assert_allclose(one.covariance, expected, atol=1e-5)
        np.testing.assert_allclose(one.std**2, np.diag(expected), atol=1e-5)
    np.testing.assert_allclose(found.mean, sum(map(dense.mean, gp.terms)) + START["mean"], atol=1e-5)
    np.testing.assert_allclose(gp.log_marginal_likelihood().item(), dense.log_marginal_likelihood(), atol=1e-3)


@pytest.mark.parametrize("case", KERNELS)
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["once", "weighted"])
def test_density_and_predictions_match_dense_algebra(case, weight):
    check_predictions(case, weight)


# --- gradient and information ----------------------------------------------------------------------


def solvers_of(case, approximation, weight):
    """Return the solver by transforms and that by features, with leaves."""
    state = model(case, approximation, sample_weight=weight).state
    values = state.hyperparameters
    names = values.space.free(())
    values = values.leaves(names)
    mean, noise = (one.double() for one in mean_and_noise(values))
    fast = state.replace(hyperparameters=values).infer(state.rows)
    assert isinstance(fast.noises, noises.RowNoises)
    prior = state.replace(hyperparameters=values).prior()
    slow = LowRankSolver(LinearModel(prior.dense, state.rows, mean.expand(1), noise))
    return fast, slow, [values.raw[name] for name in names]


def check_gradient(case="map", approximation=TIGHT, weight=WEIGHT):
    """Check value, gradient and leave-one-out moments against those of features."""
    fast, slow, leaves = solvers_of(case, approximation, weight)
    assert (float(residual_variance_of(fast.prior)) > 1e-4) == (approximation is COARSE)
    found, expected = fast.log_marginal_likelihood(), slow.log_marginal_likelihood()
    np.testing.assert_allclose(found.item(), expected.item(), rtol=1e-9)
    pairs = [
        torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True) for value in (found, expected)
    ]
    for one, other in zip(*pairs, strict=True):
        assert bool(other.any())
        np.testing.assert_allclose(one, other, atol=1e-7 * max(1.0, float(other.abs().max())))
    for one, other in zip(fast.leave_one_out(), slow.leave_one_out(), strict=True):
        np.testing.assert_allclose(one.detach(), other.detach(), atol=1e-8)


@pytest.mark.parametrize(("case", "approximation"), [
    ("map", TIGHT), ("map", COARSE), ("two lattices", TIGHT), ("with others", TIGHT)
])  # fmt: skip
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["once", "weighted"])
def test_gradient_and_leave_one_out_match_features(case, approximation, weight):
    check_gradient(case, approximation, weight)


def check_information(weight=None):
    """Check the Fisher information of log s^2, log v and the mean against dense algebra with repeated rows."""
    found, _, _ = solvers_of("two lattices", TIGHT, weight)
    block, prior = found.rows, found.prior.detached()
    repeated = torch.arange(N) if weight is None else torch.arange(N).repeat_interleave(torch.as_tensor(weight).long())
    phi = prior.dense.scaled(block.inputs).double()[repeated]
    size, count, variance = phi.shape[1], len(phi), found.variance.detach()
    noise = variance + block.fixed_noise[repeated]
    inverse = torch.linalg.inv(phi @ phi.mT + noise.diag())
    projected = phi.mT @ inverse @ phi  # the derivatives of C are phi_j phi_j^T and v I
    cross = (phi.mT @ inverse @ inverse @ phi).diagonal() * variance
    trace = (inverse @ inverse).diagonal().sum() * variance**2
    eye, one = torch.eye(size + 2, dtype=torch.float64), torch.ones(count, dtype=torch.float64)
    information = found.information(eye[size + 1 :], eye[size], eye[:size])
    tolerance = 1e-6 * float(projected.square().max())
    np.testing.assert_allclose(information[:size, :size], 0.5 * projected.square(), atol=tolerance)
    np.testing.assert_allclose(information[:size, size], 0.5 * cross, atol=tolerance)
    np.testing.assert_allclose(information[size, size], 0.5 * trace, rtol=1e-7)
    np.testing.assert_allclose(information[-1, -1], one @ inverse @ one, rtol=1e-7)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["once", "weighted"])
def test_fisher_information_matches_dense_algebra(weight):
    check_information(weight)


FAULTS = {
    "precisions": (posterior, "variance / (variance + block", "variance * (variance + block", check_predictions),
    "weights": (posterior, "block.counts() * ratio**power", "ratio**power", check_gradient),
    "the determinant": (noises, "block.counts() * (_LOG_2PI", "(_LOG_2PI", check_gradient),
    "the slope in the noise": (noises, "weights - 2 * target", "weights - target", check_gradient),
    "the trace in the noise": (noises, ".sum() - self.statistics", ".sum() + self.statistics", check_gradient),
    "the squares": (noises, "2 * mean * pass_sums.totals", "mean * pass_sums.totals", check_gradient),
    "cubes": (noises, "2 * cubed", "cubed", check_information),
    "the product": (noises, "(product * inverse).sum(1)", "product.sum(1)", check_information),
}  # fmt: skip


@pytest.mark.parametrize(("module", "right", "wrong", "check"), FAULTS.values(), ids=FAULTS)
def test_planted_errors_are_seen(module, right, wrong, check):
    with planted(module, right, wrong):
        assert fails(check)


def test_predictions_have_gradients_in_hyperparameters():
    """The posterior with gradients is that of features, because P depends on the noise."""
    fast, slow, leaves = solvers_of("series", TIGHT, None)
    x = fast.rows.inputs[:5]
    slopes = []
    for found in (fast.posterior(), slow.posterior()):
        projected = found.project(x)
        total = found.mean(projected).sum() + found.variance(x, projected).sum()
        slopes.append(torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True))
    for one, other in zip(*slopes, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8)
    assert bool(slopes[0][leaves.index(leaves[-1])].any())


# --- rows ------------------------------------------------------------------------------------------


def test_rows_in_parts_have_the_sums_of_all_rows():
    state = model("with others", sample_weight=WEIGHT).state
    rows = state.rows
    parts = JoinedRows([rows.take(slice(0, 70)), replace(rows.take(slice(70, None)), weight=rows.weight[70:])])
    for name in ("log_marginal_likelihood", "leave_one_out"):
        one, other = (getattr(state.infer(some), name)() for some in (rows, parts))
        for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (one, other)), strict=True):
            np.testing.assert_allclose(a.detach(), b.detach(), rtol=1e-10)


def test_updates_add_sums_of_rows_with_and_without_noise(tmp_path):
    first, rest = ({key: values[part] for key, values in ROWS.items()} for part in (slice(0, 200), slice(200, None)))
    model("map", rows=first, y=Y[:200], noise=NOISE[:200]).save(tmp_path / "model.rfgp")
    gp = rfgp.load(tmp_path / "model.rfgp")
    before = gp.predict(LATER)
    gp.update(rest, Y[200:], noise=NOISE[200:])
    whole = rfgp.load(tmp_path / "model.rfgp").condition(ROWS, Y, noise=NOISE)
    for name in ("mean", "std"):  # `condition` plans a new lattice for all rows
        np.testing.assert_allclose(getattr(gp.predict(LATER), name), getattr(whole.predict(LATER), name), atol=1e-6)
    gp.forget(rest, Y[200:], noise=NOISE[200:])
    for name in ("mean", "std"):
        np.testing.assert_allclose(getattr(gp.predict(LATER), name), getattr(before, name), atol=1e-9)


def test_several_outputs_share_the_noise_of_rows():
    state = model("map", sample_weight=WEIGHT).state
    targets = torch.cat([state.rows.targets, state.rows.inputs[:, :1].double()], dim=1)
    rows = Block(state.rows.inputs, targets, state.rows.fixed_noise, state.rows.weight)
    prior = state.prior().detached()
    noise, mean = state.hyperparameters.standardized("noise").double().detach(), torch.tensor([0.2, -0.1]).double()
    slow = LowRankSolver(LinearModel(prior.dense, rows, mean, noise)).log_marginal_likelihood()
    np.testing.assert_allclose(OnePassSolver(prior, rows, mean, noise).log_marginal_likelihood(), slow, rtol=1e-9)


def test_fit_finds_the_optimum_of_the_exact_process():
    kernel, rows, y, noise = k.RBF("t"), {"t": ROWS["t"]}, Y - 0.3 * (ROWS["g"] == "a"), NOISE
    fast = rfgp.GP(kernel, approximation=rfgp.EquispacedFourier(tolerance=1e-6), seed=0).fit(rows, y, noise=noise)
    exact = rfgp.GP(kernel, approximation=rfgp.Exact(), seed=0).fit(rows, y, noise=noise)
    assert fast.fit_report.converged
    gap = exact.fit_report.log_marginal_likelihood - fast.fit_report.log_marginal_likelihood
    assert abs(gap) < 0.05
    np.testing.assert_allclose(fast.predict(rows).mean, exact.predict(rows).mean, atol=0.02)


def test_rows_without_noise_and_weights_are_uniform():
    state = model("map").state
    rows = state.rows
    zero = Block(rows.inputs, rows.targets, fixed_noise=torch.zeros(N, dtype=torch.float64))
    values = [state.infer(some).log_marginal_likelihood().item() for some in (zero, replace(zero, fixed_noise=None))]
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def check_modes():
    """With known noise and a learned one close to 0, modes far below the noise of the rows are omitted."""
    rng = np.random.default_rng(5)
    X, noise = rng.uniform(0, 10, (1000, 2)), rng.uniform(0.02, 0.1, 1000)
    y = np.sin(X[:, 0]) * np.cos(X[:, 1]) + rng.normal(size=1000) * np.sqrt(noise)
    kernel, start = k.Matern((0, 1), nu=2.5, lengthscale=(2.0, 2.0)), {"noise": 1e-6, "mean": 0.0}
    gp = rfgp.GP(kernel, approximation=rfgp.EquispacedFourier(tolerance=1e-4), start=start, seed=0)
    gp.condition(X, y, noise=noise)
    assert gp.state.posterior.prior.num_features < 2000
    exact = rfgp.GP(kernel, approximation=rfgp.Exact(), start=start, seed=0).condition(X, y, noise=noise)
    errors = (gp.predict(X[:200]).mean - exact.predict(X[:200]).mean) / exact.predict(X[:200]).std
    assert np.abs(errors).max() < 0.2


def test_lattices_are_planned_for_the_noise_of_rows():
    check_modes()
    without = planted(equispaced_fourier, " + data.columns.row_noise", "")
    with without, pytest.raises(rfgp.InvalidArgumentError, match="features"):
        check_modes()
