"""Products of a field and Matern kernels of one column, and such kernels alone, against exact covariance matrices."""

import field_cases
import numpy as np
import pytest
import trimesh
from twins import check_model

import graphs
import rfgp
from rfgp import kernels as k

ROWS = {**field_cases.ROWS, "day": np.resize([0.0, 2.5, 1.0, 6.0, 3.0, 4.2, 1.0], field_cases.N)}
NEW = {**field_cases.NEW, "day": np.resize([1.0, 2.0, 3.3, 6.0, 7.5], 8)}
Y = field_cases.Y
NUS = (0.5, 1.5, 2.5)


def kernels(nu):
    """Return kernels by the names of their cases."""
    net, ball = field_cases.network(), trimesh.creation.icosphere(1)
    day = k.Matern("day", nu=nu, lengthscale=2.0)
    roads, mesh = k.Roads(net, lengthscale=500.0), k.Mesh(ball, lengthscale=0.5)
    nodes = k.Nodes(field_cases.ring(), graphs.kernels.Matern(nu=2, kappa=1.5))
    return {
        "roads": (roads * day).named("field") + k.Group("sensor", name="group"),
        "roads beside roads": (roads * day).named("field") + k.Roads(net, lengthscale=900.0, name="still"),
        "mesh": (mesh * day).named("field"),
        "nodes": (day * nodes).named("field") + k.Linear("pressure", name="slope"),
        "a series of each sensor": (k.Group("sensor") * day).named("field"),
        "roads of each sensor": (roads * day * k.Group("sensor")).named("field"),
        "a coefficient on a mesh": (mesh * day * k.Linear("pressure")).named("field"),
        "coefficients of sensors": (roads * day * k.Group("sensor") * k.Linear("pressure")).named("field"),
        "a column": k.Matern("hour", nu=nu, lengthscale=5.0, name="field") + k.Linear("pressure", name="slope"),
        "two columns": (day * k.Matern("hour", nu=0.5, lengthscale=5.0)).named("field"),
    }


CASES = tuple(kernels(0.5))
DIGITS = {0.5: 1e-8, 1.5: 1e-6, 2.5: 1e-6}
"""The digits lost where hours are close; without these 1e-10, 1e-9 and 1e-7."""


def models(case, nu):
    names = [term.name for term in kernels(nu)[case].terms()]
    chosen = {name: rfgp.SparsePrecision() for name in names if name != "slope"}
    gp = rfgp.GP(kernels(nu)[case], approximation=chosen, start={"noise": 0.1}, seed=0).condition(ROWS, Y)
    return gp, gp.exact()


@pytest.mark.thinned(3, slow=2)
@pytest.mark.parametrize("nu", NUS)
@pytest.mark.parametrize("case", CASES)
def test_products_agree_with_exact_covariances(case, nu):
    new = {**NEW, "sensor": np.array(list("abzzyabc"))}
    check_model(*models(case, nu), new, DIGITS[nu], 10 * DIGITS[nu])


@pytest.mark.parametrize(("nu", "digits"), [(0.5, 1e-4), (1.5, 1e-3)])
def test_smooth_roads_lose_digits_where_positions_are_close(nu, digits):
    kernel = k.Roads(field_cases.network(), 2, lengthscale=500.0) * k.Matern("day", nu=nu, lengthscale=2.0)
    gp = rfgp.GP(kernel, approximation=rfgp.SparsePrecision(), start={"noise": 0.1}).condition(ROWS, Y)
    one, two = gp.predict(NEW), gp.exact().predict(NEW)
    np.testing.assert_allclose(one.mean, two.mean, atol=digits)
    np.testing.assert_allclose(one.covariance, two.covariance, atol=digits)


@pytest.mark.parametrize("case", ["roads", "a series of each sensor", "a column"])
def test_updates_are_conditions_on_all_rows(case):
    gp, _ = models(case, 1.5)
    both = {key: np.concatenate([ROWS[key], NEW[key]]) for key in ROWS}
    y = np.concatenate([Y, np.arange(8.0)])
    new = gp.update(NEW, y[-8:])
    one, two = new.predict(NEW), gp.condition(both, y).predict(NEW)
    np.testing.assert_allclose(one.mean, two.mean, atol=1e-6)
    np.testing.assert_allclose(one.std, two.std, atol=1e-6)


def test_other_likelihoods_have_products():
    kernel = k.Roads(field_cases.network(), lengthscale=500.0) * k.Matern("day", nu=0.5, lengthscale=2.0)
    gp = rfgp.GP(kernel, likelihood="bernoulli", approximation=rfgp.SparsePrecision(), seed=0)
    gp.condition(ROWS, (np.median(Y) < Y).astype(float))
    np.testing.assert_allclose(gp.predict(NEW).mean, gp.exact().predict(NEW).mean, atol=1e-6)


def test_costs_state_positions_times_values():
    gp, _ = models("roads", 1.5)
    vertices = gp.terms["field"].cost.num_features // 12
    assert f"{12 * vertices} latent values ({vertices} x 12)" in gp.terms["field"].cost.note


def test_products_beyond_the_memory_are_refused(monkeypatch):
    monkeypatch.setattr("rfgp.approximations.sparse_precision.machine_memory", lambda: 2.0**20)
    kernel = kernels(0.5)["mesh"]
    with pytest.raises(rfgp.InvalidArgumentError, match=r"252 latent values \(42 x 6\).*Round the columns"):
        rfgp.GP(kernel, approximation=rfgp.SparsePrecision()).condition(ROWS, Y)
    gp = rfgp.GP(kernel).condition(ROWS, Y)
    assert not isinstance(gp.terms["field"].approximation, rfgp.SparsePrecision)


def test_products_that_lose_their_digits_are_refused():
    kernel = k.Roads(field_cases.network(), 2, lengthscale=500.0) * k.Matern("day", nu=2.5, lengthscale=4.0)
    with pytest.raises(rfgp.InvalidArgumentError, match="rounding error"):
        rfgp.GP(kernel, approximation=rfgp.SparsePrecision()).condition(ROWS, Y)


def test_products_of_fields_are_planned():
    gp = rfgp.GP(kernels(0.5)["roads"], seed=0).condition(ROWS, Y)
    assert isinstance(gp.terms["field"].approximation, rfgp.SparsePrecision)
    small = rfgp.GP(kernels(0.5)["a column"], seed=0).condition(ROWS, Y)
    assert isinstance(small.terms["field"].approximation, rfgp.Exact)
    large = rfgp.GP((k.Roads(field_cases.network()) * k.Matern("hour")).named("field"), seed=0).condition(ROWS, Y)
    assert isinstance(large.terms["field"].approximation, rfgp.Exact)  # 74 x 140 latent values of 70 rows


def test_a_column_of_many_rows_is_planned_and_exact():
    rng = np.random.default_rng(0)
    t = rng.uniform(0, 10, 2500)
    y = np.sin(3 * t) + 0.1 * rng.normal(size=2500)
    gp = rfgp.GP(k.Matern("t", nu=2.5, lengthscale=1.0, name="trend"), start={"noise": 0.01}).condition({"t": t}, y)
    assert isinstance(gp.terms["trend"].approximation, rfgp.SparsePrecision)
    new = {"t": np.linspace(-1, 11, 30)}
    one, two = gp.predict(new), gp.exact().predict(new)
    np.testing.assert_allclose(one.mean, two.mean, atol=1e-5)
    np.testing.assert_allclose(one.std, two.std, atol=1e-5)
    expected = gp.exact().log_marginal_likelihood().item()
    assert gp.log_marginal_likelihood().item() == pytest.approx(expected, abs=1e-2)


def test_fits_recover_lengthscales_of_a_column():
    rng = np.random.default_rng(5)
    t = np.sort(rng.uniform(0, 200, 3000))
    step = np.exp(-np.diff(t) / 2.0)
    f = np.zeros(len(t))
    for i, rho in enumerate(step):
        f[i + 1] = rho * f[i] + np.sqrt(1 - rho**2) * rng.normal()
    gp = rfgp.GP(k.Matern("t", nu=0.5, name="f"), seed=0).fit({"t": t}, f + 0.3 * rng.normal(size=len(t)))
    assert gp.hyperparameters["f.lengthscale"].item() == pytest.approx(2.0, rel=0.3)
    assert gp.hyperparameters.noise.item() == pytest.approx(0.09, rel=0.2)
