"""Exact products of kernels at rows on a grid: conjugate gradients against dense algebra, and the plan."""

import copy
import pickle

import numpy as np
import pytest
import torch
from checks import fails
from dense_terms import DenseTerms
from field_cases import ring
from planting import planted
from scipy import stats
from twins import covariance_of, leaves_of

import graphs
import rfgp
from rfgp import kernels as k
from rfgp.approximations import exact, planning
from rfgp.solvers.iterative import IterativeSolver, kronecker
from rfgp.sparse import kronecker as cells

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


def twin(case, y=Y):
    """Return the same sum by dense algebra, with hyperparameters as they start."""
    return DenseTerms(
        covariance_of(kernel_of(case), ROWS, NEW, START), ["f", "slope"], y, START["mean"], START["noise"]
    )


def check_predictions(gp, case="space and time"):
    """Means, variances and covariances of the sum and of each term are those of dense algebra."""
    assert isinstance(gp.state.infer(gp.state.require_rows(purpose="a test")), IterativeSolver)
    dense, found = twin(case), gp.predict(NEW)
    for name in ("f", "slope"):
        one = found.terms[name]
        np.testing.assert_allclose(one.mean, dense.mean(name), atol=1e-8)
        expected = dense.cross_covariance(name, name)
        np.testing.assert_allclose(one.covariance, expected, atol=1e-5)
        np.testing.assert_allclose(one.std**2, np.diag(expected), atol=1e-5)
    np.testing.assert_allclose(found.cross_covariance("f", "slope"), dense.cross_covariance("f", "slope"), atol=1e-5)
    np.testing.assert_allclose(found.mean, dense.mean("f") + dense.mean("slope") + START["mean"], atol=1e-8)


@pytest.mark.parametrize("case", KERNELS)
def test_grid_matches_dense_algebra(case):
    check_predictions(model(case), case)


@pytest.mark.parametrize("case", KERNELS)
def test_density_matches_dense_algebra_within_its_error(case):
    gp = model(case)
    found = gp.state.infer(gp.state.require_rows(purpose="a test"))
    scale = float(gp.state.scaling.targets.scale)
    expected = twin(case).log_marginal_likelihood() + N * np.log(scale)
    score = (found.log_marginal_likelihood().item() - expected) / found.likelihood_error
    assert abs(score) < stats.t.isf(FALSE_ALARMS / len(KERNELS) / 2, 15)


def check_score(gp):
    """The gradient that draws are read for is that of dense algebra in all hyperparameters."""
    rows, rng = gp.state.require_rows(purpose="a test"), np.random.default_rng(3)
    left, signs = torch.from_numpy(rng.normal(size=(N, 3))), torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)
    state, leaves = leaves_of(gp)
    first, second = (state.prior().kernels[0] for _ in range(2))
    expected = 0.5 * ((left * signs) * (first.kernel(rows.inputs, rows.inputs) @ left)).sum()
    found = kronecker.KroneckerTerm(second, rows.inputs).score(left, signs)
    options = {"materialize_grads": True, "allow_unused": True}
    pairs = [torch.autograd.grad(value, list(leaves.values()), **options) for value in (found, expected)]
    assert sum(bool(other.any()) for other in pairs[1]) >= 3
    for one, other in zip(*pairs, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8 * max(1.0, float(other.abs().max())))


@pytest.mark.parametrize("case", [case for case in KERNELS if case != "time alone"])
def test_score_of_draws_matches_dense_gradient(case):
    check_score(model(case))


def check_estimates(gp):
    """z-scores of variances by 64 draws, whose relative standard error is at most sqrt(2 / 64)."""
    many = {key: np.concatenate([values] * 50) for key, values in NEW.items()}
    drawn, dense = gp.predict(many).terms["f"].std[: len(NEW["t"])] ** 2, twin("space and time")
    exact_variance = np.diag(dense.cross_covariance("f", "f"))
    assert not np.allclose(drawn, exact_variance, rtol=1e-6)
    scores = (drawn / exact_variance - 1) / (2 / 64) ** 0.5
    assert np.abs(scores).max() < stats.norm.isf(FALSE_ALARMS / len(scores) / 2)


def test_estimated_variances_match_dense_algebra():
    check_estimates(model())


FAULTS = {
    "sums of both sides": (cells, "[:, self.rows] * right", "[:, self.rows] + right", check_predictions),
    "the variance of points": (kronecker, "- matrix.squares()", "- 0.5 * matrix.squares()", check_estimates),
    "covariances of points": (
        kronecker,
        "- self.covariance(matrix)",
        "- 0.9 * self.covariance(matrix)",
        check_predictions,
    ),
    "the gradient of one side": (kronecker, "((first * in_first).sum()", "(-(first * in_first).sum()", check_score),
    "the signs of draws": (kronecker, "signed = cells * signs", "signed = cells", check_score),
}


@pytest.mark.parametrize(("module", "right", "wrong", "check"), FAULTS.values(), ids=FAULTS)
def test_planted_errors_are_seen(module, right, wrong, check):
    with planted(module, right, wrong):
        assert fails(check, model())


@pytest.mark.parametrize("full", [0, 4])
def test_rows_of_a_product_match_a_formed_one(full, monkeypatch):
    monkeypatch.setattr(cells, "FULL", full)
    monkeypatch.setattr(cells, "ENTRIES", 40)
    rng = np.random.default_rng(5)
    first, second, w = (torch.from_numpy(rng.normal(size=shape)) for shape in ((4, 3), (5, 2), (6, 2)))
    rows, columns = torch.tensor([0, 3, 3, 1]), torch.tensor([4, 0, 4, 2])
    found = cells.KroneckerRows(first, second, rows, columns)
    formed = torch.stack([torch.kron(first[i], second[j]) for i, j in zip(rows, columns, strict=True)])
    np.testing.assert_allclose(found.times(w), formed @ w, atol=1e-12)
    np.testing.assert_allclose(found.squares(), formed.square().sum(1), atol=1e-12)
    np.testing.assert_allclose(found.between(*found), formed @ formed.mT, atol=1e-12)


def test_saved_copied_and_pickled_models_predict_alike(tmp_path):
    gp = model("three factors")
    gp.save(tmp_path / "grid.safetensors", data=True)
    for other in (rfgp.load(tmp_path / "grid.safetensors"), copy.deepcopy(gp), pickle.loads(pickle.dumps(gp))):
        check_predictions(other, "three factors")


def test_fit_finds_planted_lengthscales():
    rows = grid(30, 20, 0.8, 7)
    truth = rfgp.GP(kernel_of("space and time"), approximation=rfgp.Exact(), start=START, seed=0, standardize=False)
    rng, n = np.random.default_rng(8), len(rows["t"])
    matrix = sum(
        k.Sum((term,)).matrix(rows, values={p: v for p, v in START.items() if p.startswith(f"{term.name}.")}).numpy()
        for term in truth.kernel.terms()
    )
    y = 3.2 + np.linalg.cholesky(matrix + 0.05 * np.eye(n)) @ rng.normal(size=n)
    free = k.Matern(("x", "y"), nu=1.5) * k.RBF("t")
    gp = rfgp.GP(free.named("f") + k.Linear("slope", name="slope"), approximation=rfgp.Exact(), seed=0).fit(rows, y)
    assert isinstance(gp.state.infer(gp.state.require_rows(purpose="a test")), IterativeSolver)
    assert 0.03 < gp.hyperparameters["noise"].item() < 0.08
    assert 1.0 < gp.hyperparameters["f.rbf.lengthscale"].item() < 2.0
    assert (gp.hyperparameters["f.matern.lengthscale"] / torch.tensor([0.6, 0.4])).log().abs().max() < 0.7


def test_outputs_likelihoods_and_fields_go_with_grids():
    both = model(y=np.column_stack([Y, 6 - Y]), start={"noise": [0.05, 0.05]})
    np.testing.assert_allclose(both.predict(NEW).mean.sum(1), 6.0, atol=1e-6)
    counts = model(y=np.round(np.exp(Y / 2)), likelihood="poisson", start={})
    assert np.isfinite(counts.predict(NEW).std).all()
    kernel = (SPACE * TIME).named("f") + k.Nodes(GRAPH, graphs.kernels.Matern(nu=2, kappa=1.5), name="field")
    chosen = {"f": rfgp.Exact(), "field": rfgp.SparsePrecision()}
    gp = rfgp.GP(kernel, approximation=chosen, start={"noise": 0.05}, seed=0).condition(ROWS, Y)
    dense = rfgp.GP(kernel, approximation=rfgp.RandomFeatures(4), start={"noise": 0.05}, seed=0).condition(ROWS, Y)
    assert dense.terms["field"].approximation == rfgp.SparsePrecision()
    assert isinstance(gp.state.infer(gp.state.require_rows(purpose="a test")), IterativeSolver)
    assert gp.predict(NEW).terms["f"].std.max() < 1


def test_new_rows_extend_the_grid():
    gp = model()
    more = gp.update(NEW, 0.5 * np.ones(6) + 3)
    assert np.all(more.predict(NEW).std < gp.predict(NEW).std + 1e-6)
    with pytest.raises(rfgp.InvalidArgumentError, match="no functions to draw"):
        gp.sample_functions(2, seed=0)(NEW)


def test_plan_names_the_grid_and_its_cost(monkeypatch):
    gp = model("nodes and time")
    assert "covariance matrices of 9 and of 8 positions" in gp.terms["f"].cost.note
    monkeypatch.setattr(exact, "MAX_POSITIONS", 8)
    gp = rfgp.GP(kernel_of("nodes and time"), approximation=rfgp.Exact(), start=START, seed=0).condition(ROWS, Y)
    assert "a covariance matrix of" in gp.terms["f"].cost.note


@pytest.mark.parametrize("needs_weights", [True, False])
def test_auto_takes_a_grid_before_inducing_points(needs_weights, limits):
    limits(max_exact_rows=45)
    kernel = (k.Nodes(GRAPH, "diffusion") * TIME).named("f")
    gp = rfgp.GP(kernel, start={"noise": 0.05}, seed=0).condition(ROWS, Y)
    data = gp.spec.term_data(gp.state.hyperparameters, N)[0]
    found = planning.default_approximation(data, needs_weights=needs_weights)
    assert found == (rfgp.InducingPoints() if needs_weights else rfgp.Exact())


def test_too_many_positions_are_named(monkeypatch):
    monkeypatch.setattr(kronecker, "MAX_CELLS", 20)
    with pytest.raises(rfgp.InvalidArgumentError, match="Round its columns"):
        model().predict(NEW)


def test_neighbors_with_grids_are_refused():
    kernel = kernel_of("space and time") + k.Matern("t", nu=1.5, name="near")
    chosen = {"f": rfgp.Exact(), "near": rfgp.Vecchia(5)}
    with pytest.raises(rfgp.InvalidArgumentError, match="on a grid"):
        rfgp.GP(kernel, approximation=chosen, seed=0).fit(ROWS, Y)
