"""Fits on lattices of frequencies: plans, results, and the case of too many modes."""

import numpy as np
import pytest

import rfgp
from rfgp import kernels as k
from rfgp.fitting import lattices
from rfgp.solvers.onepass import SeriesPosterior


def waves(n, d, length, seed=0, noise=0.1):
    """Return rows in the unit cube, values of a sum of waves of about a length, and noisy targets."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, d))
    omega, phase = rng.normal(size=(40, d)) / length, rng.uniform(0, 2 * np.pi, 40)
    values = np.cos(X @ omega.T + phase) @ rng.normal(size=40) / np.sqrt(20)
    return X, values, values + noise * rng.normal(size=n)


@pytest.mark.parametrize(("kernel", "planned"), [
    (k.RBF((0, 1)), True),
    (k.RBF((0, 1)) + k.Linear(0), True),
    (k.RBF(0) + k.RBF(1) + k.Periodic(0, 0.3), True),
    (k.RBF((0, 1)) + k.RBF((2, 3)), False),
    (k.RBF((0, 1, 2, 3)), False),
])  # fmt: skip
def test_stationary_terms_of_few_columns_are_planned_on_lattices(kernel, planned):
    X, _, y = waves(2500, 4, 0.5)
    gp = rfgp.GP(kernel, seed=0).condition(X, y)
    found = {isinstance(report.approximation, rfgp.EquispacedFourier) for report in gp.terms.values()}
    assert (True in found) == planned
    assert isinstance(gp.state.posterior, SeriesPosterior) == planned


@pytest.mark.parametrize("in_blocks", [False, True])
def test_rough_terms_of_few_columns_are_planned_with_neighbors(in_blocks):
    """A lattice would omit too many modes at the starting lengthscale. Rows in blocks cannot have neighbors."""
    X, _, y = waves(2500, 3, 0.5)
    gp = rfgp.GP(k.Matern(nu=0.5, lengthscale=0.05), seed=0)
    gp.condition(rfgp.tables.Batches(lambda: iter([(X, y)]))) if in_blocks else gp.condition(X, y)
    planned = rfgp.RandomFeatures if in_blocks else rfgp.Vecchia
    assert isinstance(gp.terms["matern"].approximation, planned)


@pytest.mark.parametrize(("kernel", "num_rows", "most"), [
    (k.RBF(), 2500, 1500),
    (k.RBF() + k.Linear(), 20_000, 2000),
    (k.RBF(0) + k.RBF(1), 2500, 4000),
])  # fmt: skip
def test_planned_lattice_has_few_features_for_few_rows(kernel, num_rows, most):
    X, _, y = waves(num_rows, 2, 0.5)
    gp = rfgp.GP(kernel, seed=0).condition(X, y)
    used = [term.approximation for term in gp.terms.values()]
    assert {one.max_features for one in used if isinstance(one, rfgp.EquispacedFourier)} == {most}


def test_search_on_truncated_lattices_ends_after_one_round():
    """The features suffice for the starting lengthscale, and not for the one of the rows."""
    X, _, y = waves(3000, 2, 0.02)
    report = rfgp.GP(k.Matern(nu=1.5), seed=0).fit(X, y).fit_report
    on_lattices = [stage.rows for stage in report.stages if stage.name == "all rows" and stage.rows == 3000]
    assert len(on_lattices) == 2  # one round on the lattice, and the last search with neighbors
    assert report.evaluations == sum(stage.evaluations for stage in report.stages)


@pytest.mark.parametrize(("d", "length"), [(1, 0.05), (2, 0.2)])
def test_fit_of_many_rows_is_close_to_the_truth(d, length):
    X, values, y = waves(50_000, d, length)
    gp = rfgp.GP(k.RBF(), approximation=rfgp.EquispacedFourier(), seed=0).fit(X, y)
    found = gp.predict(X[:2000])
    assert np.sqrt(np.mean((found.mean - values[:2000]) ** 2)) < 0.02
    assert 0.7 < np.sqrt(np.mean(((found.mean - values[:2000]) / found.std) ** 2)) < 1.3
    assert gp.fit_report.converged
    assert gp.hyperparameters.noise.item() == pytest.approx(0.01, rel=0.03)


@pytest.mark.parametrize("likelihood", ["poisson", pytest.param("student-t", marks=pytest.mark.slow)])
def test_subset_fit_of_other_likelihoods_is_that_of_all_rows(likelihood, limits):
    """Counts use scoring. Student's t uses L-BFGS, because it has free parameters."""
    X, values, y = waves(2200, 1, 0.1)
    y = np.random.default_rng(1).poisson(np.exp(values)) if likelihood == "poisson" else y
    options = {"likelihood": likelihood, "approximation": rfgp.EquispacedFourier(), "seed": 0}
    whole = rfgp.GP(k.RBF(), **options).fit(X, y).fit_report
    limits(lattice_rows=1000)
    found = rfgp.GP(k.RBF(), **options).fit(X, y).fit_report
    assert {1000, 2200} <= {stage.rows for stage in found.stages}
    assert abs(whole.log_marginal_likelihood - found.log_marginal_likelihood) < 0.1


def check_start_of_counts():
    """The short search from the usual start ends at lengthscales whose modes it lacks, but is the most likely."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, [2, 1], (1500, 2))
    y = rng.poisson(np.exp(1 + np.sin(4 * X[:, 0]) * np.cos(6 * X[:, 1])))
    gp = rfgp.GP(k.RBF(), likelihood="poisson", approximation=rfgp.EquispacedFourier(), seed=0).condition(X, y)
    begun = lattices.with_best_start(lattices.TermFit.of(gp.state, lattices.Plan()))
    name = next(path for path in begun.values.space.names if path.endswith("lengthscale"))
    assert bool((begun.values.value(name) > 0.1).all())


def test_starts_for_counts_do_not_lack_modes(monkeypatch):
    check_start_of_counts()
    monkeypatch.setattr(lattices, "lacks_modes", lambda fit: False)
    with pytest.raises(AssertionError):
        check_start_of_counts()


def test_fit_corrects_the_noise_of_few_modes():
    """A search with few modes counts omitted variance as noise. The next search, with more modes, does not."""
    X, _, y = waves(3000, 2, 0.05)
    gp = rfgp.GP(k.RBF(), approximation=rfgp.EquispacedFourier(), seed=0).condition(X, y)
    fit = lattices.TermFit.of(gp.state, lattices.Plan())
    few, many = lattices.with_lattices(fit, 3000, 31), lattices.with_lattices(fit, 3000)
    total = [
        float(one.values.standardized("noise")) + float(lattices.residual_variance_of(one.spec.prior(one.values)))
        for one in (few, lattices.with_lattices(few, 3000))
    ]
    assert total[0] == pytest.approx(total[1], rel=1e-6)
    assert few.num_features < many.num_features


@pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")
def test_planned_lattices_with_too_many_modes_become_neighbors(monkeypatch):
    X, _, y = waves(3000, 2, 0.1)
    monkeypatch.setattr(lattices, "SUBSET_FEATURES", 200)
    small = rfgp.EquispacedFourier(max_features=300)
    monkeypatch.setattr("rfgp.approximations.planning.EquispacedFourier", lambda: small)
    gp = rfgp.GP(k.Matern(nu=1.5), seed=0).fit(X, y, max_iterations=3)
    assert isinstance(next(iter(gp.terms.values())).approximation, rfgp.Vecchia)


def test_given_lattices_with_too_many_modes_warn():
    X, _, y = waves(3000, 2, 0.03, noise=0.01)
    gp = rfgp.GP(k.Matern(nu=1.5), approximation=rfgp.EquispacedFourier(max_features=150), seed=0)
    with pytest.warns(rfgp.PoorFeaturesWarning, match="too few"):
        gp.fit(X, y)


def test_lattices_are_selected_for_a_map():
    X, values, y = waves(5000, 2, 0.2)
    gp = rfgp.GP(seed=0).fit(X, y)
    assert {type(term.approximation) for term in gp.terms.values()} == {rfgp.EquispacedFourier}
    assert np.sqrt(np.mean((gp.predict(X[:500]).mean - values[:500]) ** 2)) < 0.03


def test_fit_of_noise_converges():
    """Lengthscales grow until the variance of most modes is 0 in float64."""
    rng = np.random.default_rng(3)
    X, y = rng.uniform(0, 1, (3000, 3)), rng.normal(size=3000)
    gp = rfgp.GP(k.RBF(0) + k.RBF(1) + k.RBF(2), approximation=rfgp.EquispacedFourier(), seed=0).fit(X, y)
    assert gp.hyperparameters.noise.item() == pytest.approx(1.0, abs=0.1)


# --- derivatives -----------------------------------------------------------------------------------


@pytest.mark.parametrize("approximation", [rfgp.EquispacedFourier(tolerance=1e-8), rfgp.RandomFeatures(64)])
@pytest.mark.parametrize("count", [20, 200])
def test_derivatives_match_differences(approximation, count):
    rng = np.random.default_rng(1)
    table = {"t": rng.uniform(0, 5, 400), "u": rng.uniform(0, 1, 400), "z": rng.normal(size=400)}
    y = 2 * np.sin(table["t"]) + table["u"] + 0.5 * table["z"] + 0.1 * rng.normal(size=400)
    kernel = k.RBF("t", lengthscale=1.0) + k.RBF("u", lengthscale=0.7) + k.Linear("z") + k.Periodic("t", 2.0)
    gp = rfgp.GP(kernel, approximation=approximation, start={"noise": 0.01}, seed=0)
    gp.condition(table, y)
    inner = np.argsort(table["t"])[50:350][:count]
    points = {key: values[inner] for key, values in table.items()}
    for column, step in (("t", 1e-3), ("z", 0.5)):
        found = gp.predict(points, derivative=column)
        shifted = [{**points, column: points[column] + sign * step} for sign in (1, -1)]
        both = {key: np.concatenate([one[key] for one in shifted]) for key in points}
        weights = np.hstack([np.eye(len(inner)), -np.eye(len(inner))]) / (2 * step)
        expected = gp.predict(both).linear(weights)
        np.testing.assert_allclose(found.mean, expected.mean, atol=1e-4 * np.abs(expected.mean).max())
        np.testing.assert_allclose(found.std, expected.std, rtol=0.01)
        np.testing.assert_allclose(np.sqrt(np.diag(found.covariance)), found.std, rtol=1e-6)
    terms = gp.predict(points, derivative="t").terms
    np.testing.assert_allclose(sum(terms[name].mean for name in gp.terms), gp.predict(points, derivative="t").mean)


def test_unknown_derivatives_raise():
    X, _, y = waves(300, 1, 0.2)
    smooth = rfgp.GP(k.RBF(0), approximation=rfgp.EquispacedFourier(), seed=0).condition(X, y)
    with pytest.raises(rfgp.InvalidArgumentError, match="column"):
        smooth.predict([[0.5]], derivative=4)
    with pytest.raises(rfgp.InvalidArgumentError, match="observations"):
        smooth.predict([[0.5]], derivative=0).observed()
    rough = rfgp.GP(k.Matern(0, nu=0.7, lengthscale=2.0), approximation=rfgp.EquispacedFourier(), seed=0)
    with pytest.raises(rfgp.InvalidArgumentError, match="derivative"):
        rough.condition(X, y).predict([[0.5]], derivative=0)
    near = rfgp.GP(k.RBF(0), approximation=rfgp.Vecchia(10), seed=0).condition(X, y)
    with pytest.raises(rfgp.InvalidArgumentError, match="features"):
        near.predict([[0.5]], derivative=0)
