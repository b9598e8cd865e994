"""Exact products of kernels at rows on a grid: conjugate gradients against dense algebra, and the plan."""

import numpy as np
import pytest
import torch
from dense import DenseGP
from field_cases import ring
from refusals import refused
from scipy import stats

import rfgp
from rfgp import kernels as k
from rfgp.solvers.iterative.operator import Draws

GRAPH = ring()
FALSE_ALARMS = 1e-3
"""The rate at which each statistical test fails without an error."""


def grid(num_sites, num_times, share, seed):
    """Return a share of the rows of a grid of sites and times in random order, some of them twice."""
    rng = np.random.default_rng(seed)
    site, time = (axis.ravel() for axis in np.meshgrid(np.arange(num_sites), np.arange(num_times), indexing="ij"))
    rows = rng.permutation(len(site))[: int(share * len(site))]
    rows = np.concatenate([rows, rows[:3]])
    places = rng.uniform(0, 1, (num_sites, 2))
    return {
        "x": places[site[rows], 0],
        "y": places[site[rows], 1],
        "node": np.array([f"n{i}" for i in site[rows]]),
        "t": np.linspace(0, 6, num_times)[time[rows]],
        "site": np.array([f"s{i % 4}" for i in site[rows]]),
        "slope": rng.normal(size=len(rows)),
    }


ROWS = grid(9, 8, 0.7, 1)
N = len(ROWS["t"])
NEW = {key: values[:6].copy() for key, values in ROWS.items()}
NEW["t"][3:] += 0.35
NEW["x"][4:] += 0.05
Y = 3 + np.sin(ROWS["t"]) * ROWS["x"] + 0.4 * ROWS["slope"] + 0.1 * np.random.default_rng(2).normal(size=N)
SPACE = k.Matern(("x", "y"), nu=1.5, lengthscale=(0.6, 0.4))
TIME = k.RBF("t", lengthscale=1.4)
KERNELS = {
    "space and time": SPACE * TIME,
    "nodes and time": k.Nodes(GRAPH, "diffusion") * TIME,
    "three factors": SPACE * TIME * k.Categorical("site", correlation=0.4),
    "a season": SPACE * k.Periodic("t", 3.0, lengthscale=0.8),
    "time alone": TIME,
    "two kernels of one column": SPACE * TIME * k.Matern("t", nu=0.5, lengthscale=4.0),
}
START = {"f.outputscale": 0.8, "slope.variance": 0.2, "noise": 0.05, "mean": 3.2}


@pytest.fixture(autouse=True)
def small_limits(limits):
    """Use a grid for any number of rows."""
    limits(max_dense=10)


def kernel_of(case):
    return KERNELS[case].named("f") + k.Linear("slope", origin=0.0, name="slope")


def model(case="space and time", y=Y, start=START, **options):
    gp = rfgp.GP(kernel_of(case), approximation=rfgp.Exact(), start=start, seed=0, **options)
    return gp.condition(ROWS, y)


def dense(case):
    """Return the same sum by dense algebra."""
    priors, both = {}, {key: np.concatenate([ROWS[key], NEW[key]]) for key in ROWS}
    for name, term in (("f", KERNELS[case].named("f")), ("slope", k.Linear("slope", origin=0.0, name="slope"))):
        values = {path: value for path, value in START.items() if path.startswith(f"{name}.")}
        gp = rfgp.GP(term, approximation=rfgp.Exact(), start=values)
        with rfgp.testing.limits(max_dense=10_000):
            priors[name] = gp.condition(ROWS, Y).prior_covariance(both).detach().numpy()
    return DenseGP(priors, Y, np.full(N, START["noise"]), START["mean"])


@pytest.mark.parametrize("case", KERNELS)
def test_grid_matches_dense_algebra(case):
    gp, expected = model(case), dense(case)
    found = gp.predict(NEW)
    for name in ("f", "slope"):
        one = found.terms[name]
        np.testing.assert_allclose(one.mean, expected.mean_at([name]), atol=1e-8)
        np.testing.assert_allclose(one.covariance, expected.covariance([name]), atol=1e-5)
        np.testing.assert_allclose(one.variance, np.diag(expected.covariance([name])), atol=1e-5)
    np.testing.assert_allclose(found.cross_covariance("f", "slope"), expected.covariance(["f"], ["slope"]), atol=1e-5)
    np.testing.assert_allclose(found.mean, expected.mean_at(), atol=1e-8)
    solver = gp.state.infer(gp.state.rows)
    score = (gp.log_marginal_likelihood().item() - expected.log_marginal_likelihood()) / solver.likelihood_error
    assert abs(score) < stats.t.isf(FALSE_ALARMS / len(KERNELS) / 2, 15)


@pytest.mark.parametrize("case", [case for case in KERNELS if case != "time alone"])
def test_gradient_by_a_root_of_the_inverse_matches_differences(case, monkeypatch):
    """The draws are replaced, so that the gradient has no error."""
    gp, own = model(case, standardize=False), dense(case)
    monkeypatch.setattr(Draws, "normalized", torch.from_numpy(N**0.5 * np.linalg.cholesky(own.inverse)))
    parameters = list(gp.hyperparameters.parameters())
    found = torch.autograd.grad(gp.log_marginal_likelihood(), parameters)

    def value():
        with rfgp.testing.limits(max_dense=10_000):
            prior, values = gp.prior_covariance(ROWS).detach().numpy(), gp.hyperparameters
        return DenseGP({"f": prior}, Y, np.full(N, values.noise.item()), values.mean.item()).log_marginal_likelihood()

    for raw, slope in zip(parameters, found, strict=True):
        for place in range(raw.numel()):
            ends = []
            for step in (1e-4, -1e-4):
                with torch.no_grad():
                    raw.view(-1)[place] += step
                    ends.append(value())
                    raw.view(-1)[place] -= step
            assert slope.view(-1)[place].item() == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-4, abs=1e-4)


def test_estimated_variances_match_dense_algebra():
    """z-scores of variances by 64 draws, whose relative standard error is at most sqrt(2 / 64)."""
    many = {key: np.concatenate([values] * 50) for key, values in NEW.items()}
    drawn = model().predict(many).terms["f"].std[: len(NEW["t"])] ** 2
    exact = np.diag(dense("space and time").covariance(["f"]))
    assert not np.allclose(drawn, exact, rtol=1e-6)
    scores = (drawn / exact - 1) / (2 / 64) ** 0.5
    assert np.abs(scores).max() < stats.norm.isf(FALSE_ALARMS / len(scores) / 2)


def test_grids_with_neighbors_are_refused():
    kernel = kernel_of("space and time") + k.Matern("t", nu=1.5, name="near")
    gp = rfgp.GP(kernel, approximation={"f": rfgp.Exact(), "near": rfgp.Vecchia(5)}, seed=0)
    refused(lambda: gp.fit(ROWS, Y), rfgp.InvalidArgumentError, "on a grid")


@pytest.mark.slow
def test_outputs_and_likelihoods_go_with_grids():
    both = model(y=np.column_stack([Y, 6 - Y]), start={"noise": [0.05, 0.05]})
    np.testing.assert_allclose(both.predict(NEW).mean.sum(1), 6.0, atol=1e-6)
    counts = model(y=np.round(np.exp(Y / 2)), likelihood="poisson", start={})
    assert np.isfinite(counts.predict(NEW).std).all()


def test_new_rows_extend_the_grid():
    gp = model()
    before = gp.predict(NEW).std
    assert (gp.update(NEW, np.full(6, 3.5)).predict(NEW).std < before).all()
    refused(lambda: gp.sample_functions(2, seed=0)(NEW), rfgp.InvalidArgumentError, "no functions to draw")


def test_auto_takes_a_grid_and_names_its_cost(limits):
    limits(max_exact_rows=45)
    gp = rfgp.GP((k.Nodes(GRAPH, "diffusion") * TIME).named("f"), start={"noise": 0.05}, seed=0).condition(ROWS, Y)
    assert gp.terms["f"].approximation == rfgp.Exact()
    assert "covariance matrices of 9 and of 8 positions" in gp.terms["f"].cost.note
