"""Equispaced Fourier features in models: against dense algebra, rows that are added and taken away, files and reads."""

import numpy as np
import pytest
import torch
from dense import DenseGP
from numpy.testing import assert_allclose
from refusals import refused

import rfgp
from rfgp import kernels as k

N, NEW = 300, 90


def table():
    """Return rows and new points, among which the ends of each column are rows, and targets of the rows."""
    rng = np.random.default_rng(0)
    numbers = {"t": rng.uniform(0, 4, N + NEW), "u": rng.uniform(0, 1, N + NEW), "v": rng.uniform(-1, 1, N + NEW)}
    for values in numbers.values():
        ends = values.argmin(), values.argmax()
        values[[0, 1]], values[list(ends)] = values[list(ends)], values[[0, 1]]
    whole = {**numbers, "z": rng.normal(size=N + NEW), "g": rng.choice(list("abc"), N + NEW)}
    smooth = 3 + np.sin(2 * whole["t"]) + whole["u"] * whole["v"] + 0.3 * (whole["g"] == "a")
    return whole, (smooth + 0.1 * rng.normal(size=N + NEW))[:N]


WHOLE, Y = table()
ROWS, LATER = ({key: values[part] for key, values in WHOLE.items()} for part in (slice(0, N), slice(N, None)))
TIGHT = rfgp.EquispacedFourier(tolerance=1e-9)
T, U = k.RBF("t", lengthscale=0.7), k.RBF("u", lengthscale=0.4)
KERNELS = {
    "gaussian": T.named("f"),
    "matern 5/2": k.Matern("t", nu=2.5, lengthscale=0.9).named("f"),
    "rational quadratic": k.RationalQuadratic("t", alpha=5.0, lengthscale=0.7).named("f"),
    "map": k.RBF(("t", "u"), lengthscale=(0.7, 0.4)).named("f"),
    "isotropic": k.RBF(("u", "v"), ard=False, lengthscale=0.6).named("f"),
    "product": (k.RBF("t", lengthscale=5.0) * k.RBF(("u", "v"), lengthscale=(2.5, 4.5))).named("f"),
    "two columns": T.named("f") + U.named("g"),
    "line and plane": T.named("f") + k.RBF(("u", "v"), lengthscale=(0.6, 1.2)).named("g"),
    "same columns": T.named("f") + k.RBF("t", lengthscale=0.3).named("g"),
    "with others": T.named("f") + k.Periodic("t", 1.0, name="g") + k.Linear(("z", "v"), name="h") + k.Group("g"),
}
START = {"mean": 3.1, "noise": 0.02}


def model(case="gaussian", y=Y, rows=ROWS, approximation=TIGHT, **options):
    gp = rfgp.GP(KERNELS[case], approximation=approximation, start=START, seed=0, **options)
    return gp.condition(rows, y)


def dense(gp, names):
    """Return the same sum by dense algebra, at the hyperparameters of a model."""
    priors = {}
    for name, term in zip(names, gp.kernel.terms(), strict=True):
        start = {
            path: gp.hyperparameters[path].detach() for path in gp.hyperparameters.names if path.startswith(f"{name}.")
        }
        alone = rfgp.GP(k.Sum((term,)), approximation=rfgp.Exact(), start=start).condition(ROWS, Y)
        priors[name] = alone.prior_covariance(WHOLE).detach().numpy()
    return DenseGP(priors, Y, np.full(N, START["noise"]), START["mean"])


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=[pytest.mark.slow] * (name == "product")) for name in KERNELS]
)
def test_posterior_and_density_match_dense_algebra(case):
    # the series of a season misses 1e-6 of its variance, and a tighter lattice of three columns takes longer
    atol = 1e-5 if case in ("with others", "product") else 1e-6
    gp = model(case)
    found, expected = gp.predict(LATER), dense(gp, list(gp.terms))
    assert_allclose(found.mean, expected.mean_at(), atol=atol)
    assert_allclose(found.covariance, expected.covariance(), atol=atol)
    for name, term in found.terms.items():
        assert_allclose(term.mean, expected.mean_at([name]), atol=10 * atol)
        assert_allclose(term.variance, np.diag(expected.covariance([name])), atol=10 * atol)
    assert_allclose(gp.log_marginal_likelihood().item(), expected.log_marginal_likelihood(), atol=1e-3)


@pytest.mark.parametrize("given", ["plain", "noise"])
def test_fisher_information_matches_dense_algebra(given):
    """The information of log s^2, log v and the mean."""
    fixed = np.random.default_rng(1).uniform(0.01, 0.05, N) if given == "noise" else np.zeros(N)
    gp = rfgp.GP(KERNELS["two columns"], approximation=TIGHT, start=START, standardize=False)
    gp.condition(ROWS, Y, **({"noise": fixed} if given == "noise" else {}))
    found, prior = gp.state.infer(gp.state.rows), gp.state.prior()
    phi = prior.dense.scaled(gp.state.rows.take(torch.arange(N)).inputs).double().detach().numpy()
    variance, size = START["noise"], phi.shape[1]
    inverse = np.linalg.inv(phi @ phi.T + np.diag(variance + fixed))
    projected = phi.T @ inverse @ phi  # the derivatives of C are phi_j phi_j^T and v I
    cross = np.einsum("ij,ij->j", phi, inverse @ inverse @ phi) * variance
    expected = 0.5 * np.block([[projected**2, cross[:, None]], [cross, variance**2 * np.sum(inverse**2)]])
    eye = torch.eye(size + 2, dtype=torch.float64)
    information = found.information(eye[size + 1 :], eye[size], eye[:size])
    assert_allclose(information[:-1, :-1], expected, atol=1e-6 * expected.max())
    assert_allclose(information[-1, -1], inverse.sum(), rtol=1e-7)
    assert not information[-1, :-1].any()


# --- rows ------------------------------------------------------------------------------------------

FIRST, REST = ({key: values[part] for key, values in ROWS.items()} for part in (slice(0, 200), slice(200, None)))


def test_rows_that_forgetting_drops_are_asked_for():
    gp = model()
    gp.forget(REST, Y[200:])
    refused(gp.leave_one_out, rfgp.NotFittedError, "forget")
    assert gp.terms["f"].degrees_of_freedom is None
    gp.condition(ROWS, Y).leave_one_out()
    refused(lambda: gp.forget(ROWS, Y), rfgp.DataError, "must be below")
    refused(lambda: gp.exact().forget(FIRST, Y[:200]), rfgp.InvalidArgumentError, "EquispacedFourier")


def test_update_outside_the_range_rebuilds_the_lattice():
    new = {**{key: ROWS[key][:1] for key in ROWS}, "t": np.array([9.0])}
    gp, more = model().update(new, [5.0]), {key: np.concatenate([ROWS[key], new[key]]) for key in ROWS}
    exact = rfgp.GP(gp.kernel, approximation=rfgp.Exact(), start=START, standardize=False)
    there = {key: more[key][-2:] for key in more}
    expected = exact.condition(more, np.append(Y, 5.0)).predict(there).mean
    assert_allclose(gp.predict(there).mean, expected, atol=1e-5)


def waves_model(X, y, kernel, lengthscale):
    start = {"lengthscale": lengthscale, "noise": 0.0025, "outputscale": 1.0, "mean": 0.0}
    return rfgp.GP(kernel, approximation=rfgp.EquispacedFourier(), start=start, seed=0).condition(X, y)


def test_rows_far_apart_in_lengthscales_are_refused():
    x = np.sort(np.random.default_rng(6).uniform(0, 1, (300, 1)), axis=0)
    y, kernel = np.sin(6 * x[:, 0]), k.RBF(0)
    far = lambda: waves_model(np.r_[x, [[1e6]]], np.r_[y, 0.0], kernel, 0.3)  # noqa: E731
    with pytest.warns(rfgp.OutlierWarning):
        refused(far, rfgp.InvalidArgumentError, "range")
    for change in (lambda gp: gp.update([[1e4]], [0.0]), lambda gp: gp.condition(1e5 * x, y)):
        gp = waves_model(x, y, kernel, 0.3)
        before = gp.predict(x).mean
        refused(lambda change=change, gp=gp: change(gp), rfgp.InvalidArgumentError, "times the noise")
        np.testing.assert_array_equal(gp.predict(x).mean, before)


@pytest.mark.parametrize("change", ["condition", "update"])
def test_many_more_rows_rebuild_the_lattice(change):
    rng = np.random.default_rng(7)
    X = np.r_[[[0.0, 0.0], [1.0, 1.0]], rng.uniform(0, 1, (1500, 2))]
    y = np.sin(3 * X[:, 0]) * np.cos(4 * X[:, 1]) + 0.05 * rng.normal(size=len(X))
    kernel = k.Matern((0, 1), nu=2.5)
    fresh, gp = (waves_model(X[:count], y[:count], kernel, (0.5, 0.5)) for count in (1502, 32))
    few = gp.terms["matern(0, 1)"].cost.num_features
    gp = gp.condition(X, y) if change == "condition" else gp.update(X[32:], y[32:])
    assert gp.terms["matern(0, 1)"].cost.num_features > 1.5 * few
    scale = np.std(y) / np.std(y[:32]) if change == "update" else 1.0
    assert_allclose(gp.predict(X).mean, fresh.predict(X).mean, atol=0.01 * max(1, scale))


@pytest.mark.slow
def test_fit_of_a_source_makes_one_pass_after_the_survey():
    rng, reads = np.random.default_rng(2), []
    X = rng.uniform(0, 1, (20_000, 2))
    y = np.sin(7 * X[:, 0]) * np.cos(5 * X[:, 1]) + 0.1 * rng.normal(size=len(X))

    def blocks():
        reads.append(len(reads))
        return ((X[first : first + 1000], y[first : first + 1000]) for first in range(0, len(X), 1000))

    gp = rfgp.GP(k.RBF((0, 1)), approximation=rfgp.EquispacedFourier(), seed=0).fit(rfgp.tables.Batches(blocks))
    before = len(reads)
    assert before <= 3  # the schema, the survey and the sums
    gp.log_marginal_likelihood()
    assert gp.predict(X[:100]).std.shape == (100,)
    assert len(reads) == before


# --- points ----------------------------------------------------------------------------------------


def test_far_points_have_the_prior():
    gp = model("map")
    far = {**{key: LATER[key][:3] for key in LATER}, "t": [60.0, -40.0, 60.0], "u": [0.5, 0.5, 30.0]}
    found = gp.predict(far)
    assert_allclose(found.mean, START["mean"], atol=1e-6)
    assert_allclose(found.covariance, gp.prior_covariance(far), atol=1e-6)


def test_points_at_the_edge_match_the_exact_process():
    """Just outside the range, with little noise, in dense algebra."""
    rng, noise = np.random.default_rng(4), 1e-6
    x, new = np.concatenate([[0.0, 4.0], rng.uniform(0, 4, 298)]), 4 + np.array([0.003, 0.01, 0.03, 0.1, 0.3, 0.8, 1.5])
    tight = rfgp.EquispacedFourier(tolerance=1e-10, max_features=6000)
    start = {"noise": noise, "mean": 0.0, "outputscale": 1.0}
    gp = rfgp.GP(k.RBF(0, lengthscale=1.0), approximation=tight, start=start, standardize=False)
    both = np.r_[x, new]
    prior = {"f": np.exp(-(np.subtract.outer(both, both) ** 2) / 2)}
    expected = DenseGP(prior, np.sin(x), np.full(300, noise))
    found = gp.condition(x[:, None], np.sin(x)).predict(new[:, None])
    assert_allclose(found.variance, np.diag(expected.covariance()), rtol=0.06)
    assert (np.abs(found.mean - expected.mean_at()) < 0.15 * found.std).all()


# --- options and files -----------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "word"), [
    (k.RBF(("t", "u", "v", "z")), "4 columns"),
    (k.Stationary("t", spectrum="product-laplace"), "closed form"),
    (k.RationalQuadratic("t", alpha=0.4), "infinite"),
    (k.RBF("t") * k.Group("g"), "not stationary"),
    (k.RBF("t") * k.Matern("t"), "one column"),
    (k.Matern(("t", "u", "v"), nu=0.5, lengthscale=0.02), "features"),
])  # fmt: skip
def test_terms_without_a_lattice_are_refused_by_name(kernel, word):
    gp = rfgp.GP(kernel, approximation=rfgp.EquispacedFourier(), start={"noise": 1e-4})
    refused(lambda: gp.condition(ROWS, Y), rfgp.InvalidArgumentError, word)
