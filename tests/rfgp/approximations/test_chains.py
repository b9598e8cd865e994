"""Models of one Matern process of one column through public names, against exact covariances and sparse factors."""

import numpy as np
import pytest
from scipy.signal import lfilter

import rfgp
from rfgp import kernels as k
from rfgp.approximations.planning import MAX_ALONE, MAX_IN_MEMORY, MAX_MARKOV, assign
from rfgp.solvers import chain
from rfgp.solvers.bordered import BorderedPosterior
from rfgp.solvers.chain import ChainPosterior

MAX_EXACT = rfgp.testing.Limits().max_exact_rows

NUS = (0.5, 1.5, 2.5)


def rows(n=400):
    """Return crowded rows, some of them tied, with a column that the process does not read, and targets."""
    rng = np.random.default_rng(6)
    x = np.sort(rng.uniform(0, 1, n))
    x[10:20], x[40] = x[10], x[39] + 1e-12
    x = rng.permutation(x)
    return np.column_stack([rng.normal(size=n), x]), np.sin(9 * x) + 0.1 * rng.normal(size=n)


NEW = np.column_stack([np.zeros(9), [-0.5, 0.0, 0.31, 0.3, 0.3, 0.999, 1.0, 1.2, 40.0]])


def model(nu, likelihood="gaussian", **options):
    start = {"noise": 0.02} if likelihood == "gaussian" else {}
    kernel = 0.8 * k.Matern(1, nu=nu, lengthscale=0.4)
    return rfgp.GP(kernel, likelihood, rfgp.SparsePrecision(), start=start, seed=0, **options)


@pytest.mark.thinned(2, slow=2)
@pytest.mark.parametrize(
    "given", [{}, {"noise": np.linspace(0.01, 0.5, 400)}, {"sample_weight": 1 + np.arange(400) % 3}]
)
@pytest.mark.parametrize("nu", NUS)
def test_a_model_matches_exact_covariances(nu, given):
    gp = model(nu).condition(*rows(), **given)
    exact = gp.exact()
    assert isinstance(gp.state.posterior, ChainPosterior)
    values = [float(one.log_marginal_likelihood().detach()) for one in (gp, exact)]
    assert values[0] == pytest.approx(values[1], rel=1e-8)
    found, expected = gp.predict(NEW), exact.predict(NEW)
    np.testing.assert_allclose(found.mean, expected.mean, atol=1e-8)
    np.testing.assert_allclose(found.std, expected.std, atol=1e-8)
    np.testing.assert_allclose(found.covariance, expected.covariance, atol=1e-8)
    one, other = gp.leave_one_out(), exact.leave_one_out()
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-8)
    np.testing.assert_allclose(one.variance, other.variance, atol=1e-8)


@pytest.mark.parametrize(("likelihood", "inference"), [("poisson", "laplace"), ("bernoulli", "variational")])
def test_other_likelihoods_match_sparse_factors(likelihood, inference, monkeypatch):
    X, y = rows()
    counts = (y > 0.2).astype(float)
    found = model(0.5, likelihood, inference=inference).condition(X, counts)
    means = found.predict(NEW).mean, found.predict(NEW).std, found.log_marginal_likelihood().detach()
    monkeypatch.setattr(chain, "supports", lambda prior: False)
    other = model(0.5, likelihood, inference=inference).condition(X, counts)
    for one, expected in zip(
        means, (other.predict(NEW).mean, other.predict(NEW).std, other.log_marginal_likelihood().detach()), strict=True
    ):
        np.testing.assert_allclose(one, expected, rtol=1e-4)


def test_draws_have_the_covariance_of_the_posterior():
    gp = model(1.5).condition(*rows())
    p = gp.predict(NEW[:4])
    draws = np.asarray(p.sample(20_000, seed=0))
    np.testing.assert_allclose(np.cov(draws.T), p.covariance, atol=4 * float(p.variance.max()) / 20_000**0.5)


def test_a_saved_model_predicts_the_same(tmp_path):
    gp = model(2.5).condition(*rows())
    gp.save(tmp_path / "chain.rfgp")
    found, expected = rfgp.load(tmp_path / "chain.rfgp").predict(NEW), gp.predict(NEW)
    np.testing.assert_array_equal(found.mean, expected.mean)
    np.testing.assert_array_equal(found.std, expected.std)
    np.testing.assert_array_equal(found.covariance, expected.covariance)


@pytest.mark.parametrize("nu", NUS)
def test_nanoseconds_of_a_clock_predict_as_seconds(nu):
    """A column at 1.7e18 nanoseconds, whose values differ by whole microseconds, is standardized before it is read."""
    rng = np.random.default_rng(7)
    seconds = np.sort(rng.integers(0, 10**7, 500)) * 1e-6
    y, at = np.sin(seconds) + 0.1 * rng.normal(size=500), np.array([0.5, 3.25, 9.0])
    clock = np.int64(1_700_000_000_000_000_000)
    found = rfgp.GP(k.Matern("t", nu=nu), approximation=rfgp.SparsePrecision(), seed=0)
    found.fit({"t": clock + (seconds * 1e9).round().astype(np.int64)}, y)
    expected = rfgp.GP(k.Matern("t", nu=nu), approximation=rfgp.SparsePrecision(), seed=0).fit({"t": seconds}, y)
    one = found.predict({"t": clock + (at * 1e9).astype(np.int64)})
    np.testing.assert_allclose(one.mean, expected.predict({"t": at}).mean, atol=1e-3)
    np.testing.assert_allclose(one.std, expected.predict({"t": at}).std, rtol=1e-2)


def test_a_process_with_other_terms_keeps_its_sparse_factor():
    X, y = rows()
    gp = rfgp.GP(k.Matern(1, nu=1.5) + k.Linear(0), approximation={"matern(1)": rfgp.SparsePrecision()}, seed=0)
    assert type(gp.condition(X, y).state.posterior) is BorderedPosterior


def planned(kernel, num_rows, likelihood="gaussian"):
    """Return the names of the classes of the planned approximations of a kernel for so many rows."""
    X, y = rows()
    state = rfgp.GP(kernel, likelihood, seed=0).condition(X, np.abs(y.round())).state
    terms = list(state.spec.term_data(state.hyperparameters, num_rows))
    return [type(one).__name__ for one in assign("auto", terms).values()]


@pytest.mark.parametrize(
    ("num_rows", "expected"),
    [(MAX_EXACT, "Exact"), (MAX_EXACT + 1, "SparsePrecision"), (MAX_ALONE, "SparsePrecision")],
)
@pytest.mark.parametrize("nu", NUS)
def test_a_process_alone_is_planned_for_many_rows(nu, num_rows, expected):
    assert planned(k.Matern(1, nu=nu), num_rows) == [expected]


def test_others_are_planned_as_chains_for_fewer_rows():
    many, short = MAX_IN_MEMORY, k.Matern(1, nu=0.5, lengthscale=1e-9) + k.Linear(0)
    assert planned(short, many)[0] == "SparsePrecision"
    assert planned(short, many + 1)[0] != "SparsePrecision"
    assert planned(k.Matern(1, nu=0.5), many + 1, "poisson") != ["SparsePrecision"]
    assert planned(k.Matern(1, nu=0.5) * k.Linear(0), many + 1) != ["SparsePrecision"]
    assert planned(k.Matern(1, nu=0.5), MAX_ALONE + 1) != ["SparsePrecision"]


@pytest.mark.parametrize(("num_rows", "expected"), [(MAX_IN_MEMORY, "Vecchia"), (MAX_IN_MEMORY + 1, "RandomFeatures")])
def test_neighbors_are_planned_for_rows_that_memory_holds(num_rows, expected):
    assert planned(k.Matern((0, 1), nu=0.5, lengthscale=1e-6), num_rows) == [expected]


@pytest.mark.parametrize("num_rows", [MAX_EXACT + 1, MAX_MARKOV, MAX_MARKOV + 1])
@pytest.mark.parametrize(
    ("kernel", "likelihood", "expected"),
    [
        (k.Matern(1, nu=0.5) + k.Linear(0), "gaussian", True),
        (k.Matern(0, nu=0.5) + k.Matern(1, nu=1.5), "gaussian", True),
        (k.Matern(0, nu=0.5) + k.Matern(1, nu=1.5), "poisson", False),
        (k.Matern(1, nu=0.5, lengthscale=1e-6) + k.Linear(0), "gaussian", False),
    ],
    ids=["and-weights", "two", "poisson", "short"],
)
def test_processes_of_sums_get_grids_for_many_rows(kernel, likelihood, expected, num_rows):
    used = planned(kernel, num_rows, likelihood)
    assert used[0] == ("EquispacedFourier" if expected and num_rows > MAX_MARKOV else "SparsePrecision")


def test_a_short_process_of_a_sum_is_a_markov_process_again(monkeypatch):
    """Its lengthscale is found during the fit: its frequencies would be too many."""
    monkeypatch.setattr("rfgp.approximations.planning.MAX_MARKOV", 3000)
    rng, n = np.random.default_rng(0), 3001
    y = lfilter([1.0], [1.0, -0.8], rng.standard_normal(n)) + 0.1 * rng.standard_normal(n)
    table = {"t": np.arange(n), "x": rng.standard_normal(n)}
    gp = rfgp.GP(k.Matern("t", nu=0.5) + k.Linear("x"), seed=0).fit(table, y)
    assert [type(term.approximation).__name__ for term in gp.terms.values()] == ["SparsePrecision", "Exact"]
