"""Priors of hyperparameters: densities, units, files and searches under sparse ones."""

import numpy as np
import pytest
import torch
from refusals import refused
from scipy import stats

import rfgp
from rfgp import kernels as k
from rfgp import lengthscales, priors
from rfgp.parameters import BoundaryAvoiding

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
SPARSE = {
    "variance": priors.SparseVariances(),
    "lengthscale": priors.SparseLengthscales(),
    "outputscale": priors.LogNormalVariance(),
}
EXACT = {"approximation": rfgp.Exact(), "seed": 0}
VALUES = np.array([0.1, 1.0, 30.0])


def half_cauchy(size, scale):
    return stats.halfcauchy(scale=scale / np.sqrt(size))


DENSITIES = {
    "lengthscales": (priors.SparseLengthscales(0.3), lambda v: half_cauchy(3, 0.3).logpdf(1 / v)),
    "variances": (priors.SparseVariances(0.3), lambda v: half_cauchy(3, 0.3).logpdf(np.sqrt(v))),
    "log-normal": (priors.LogNormalVariance(2.0, 0.7), lambda v: stats.norm(np.log(2.0), 0.7).logpdf(np.log(v))),
    "half-normal": (priors.HalfNormalDeviation(2.0), lambda v: stats.halfnorm(scale=2.0).logpdf(np.sqrt(v))),
    "avoiding": (BoundaryAvoiding(), lambda v: np.log(v) / 2),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_density_is_that_of_its_distribution(name):
    prior, expected = DENSITIES[name]
    np.testing.assert_allclose(prior.log_prob(torch.tensor(VALUES)), expected(VALUES))
    if name in ("lengthscales", "variances"):
        grid = np.linspace(-25, 25, 1001)
        density = [float(prior.log_prob_of_logarithm(torch.tensor(prior.value(e))).exp()) for e in np.exp(grid)]
        assert np.trapezoid(density, grid) == pytest.approx(1, abs=1e-6)


FUNCTIONS = {
    "linear": lambda x: 3 * x[:, 0] - 2 * x[:, 1],
    "curved": lambda x: np.sin(6 * x[:, 0]) + 4 * (x[:, 1] - 0.5) ** 2,
}


def wide(kind="linear", count=70, columns=80):
    """Return rows of which two columns matter, targets, new rows and their function."""
    rng = np.random.default_rng(0)
    X, Z = rng.uniform(size=(count, columns)), rng.uniform(size=(500, columns))
    y = FUNCTIONS[kind](X)
    return X, y + 0.3 * y.std() * rng.normal(size=count), Z, FUNCTIONS[kind](Z)


def r2(gp, Z, f):
    return 1 - np.mean((gp.predict(Z).mean - f) ** 2) / f.var()


@pytest.mark.parametrize("kind", ["linear", pytest.param("curved", marks=pytest.mark.slow)])
def test_wide_tables_are_learned_from_few_rows(kind):
    X, y, Z, f = wide(kind)
    gp = rfgp.GP(k.Linear() + k.RBF(), priors=SPARSE, **EXACT).fit(X, y)
    low, high = gp.predict(Z).observed().interval(0.95)
    new = f + 0.3 * f.std() * np.random.default_rng(9).normal(size=len(f))
    assert r2(gp, Z, f) > {"linear": 0.97, "curved": 0.93}[kind]
    assert 0.88 < np.mean((low <= new) & (new <= high)) < 0.995
    inverse = X.std(0) / gp.hyperparameters["rbf.lengthscale"].detach().numpy()
    slopes = X.std(0) * gp.hyperparameters["linear.variance"].detach().sqrt().numpy() / y.std()
    assert max(inverse[2:].max(), slopes[2:].max()) < 0.1


def test_priors_see_the_units_of_the_user_and_are_saved(tmp_path):
    X, y, _, _ = wide("linear", 30, 4)
    prior = torch.distributions.LogNormal(0.0, 1.0)
    gp = rfgp.GP(k.RBF(ard=False), priors={"noise": prior}, start={"noise": 0.4}, **EXACT).condition(X, 10 * y)
    assert gp.hyperparameters.log_prior().item() == pytest.approx(float(prior.log_prob(torch.tensor(0.4))), rel=1e-6)
    shared = rfgp.GP(k.RBF(ard=False), priors={"lengthscale": prior}, **EXACT).condition(X, y)
    one = shared.hyperparameters.standardized("lengthscale")  # one value, not one for each column
    assert shared.hyperparameters.log_prior().item() == pytest.approx(prior.log_prob(one).item(), rel=1e-6)
    sparse = rfgp.GP(k.Linear() + k.RBF(), priors=SPARSE, **EXACT).condition(X, y)
    sparse.save(tmp_path / "gp", data=True)
    loaded = rfgp.load(tmp_path / "gp")
    expected = sparse.hyperparameters.log_prior().item()
    assert loaded.hyperparameters.log_prior().item() == pytest.approx(expected, rel=1e-9)
    assert expected != 0


@pytest.mark.parametrize("approximation", [rfgp.Exact(), rfgp.RandomFeatures(32)], ids=repr)
def test_starts_have_a_finite_prior_density(approximation):
    """A prior may have no density at some starts, such as a thirtieth of the usual lengthscale."""
    X, y, _, _ = wide("linear", 100, 2)
    prior = {"lengthscale": torch.distributions.Uniform(0.2, 10.0)}
    gp = rfgp.GP(k.RBF(), approximation=approximation, priors=prior, seed=0).fit(X, y, max_iterations=0)
    assert (gp.hyperparameters.lengthscale > 0.2).all()
    assert gp.fit_report.iterations == 0


# --- lengthscales of published protocols -----------------------------------------------------------


def test_neighbor_distance_is_the_mean_of_sorted_distances():
    x = np.random.default_rng(0).standard_normal((300, 3))
    distances = np.sort(np.linalg.norm(x[:, None] - x, axis=2), axis=1)
    assert lengthscales.neighbor_distance(x) == pytest.approx(distances[:, 50].mean())
    assert lengthscales.neighbor_distance(torch.as_tensor(x), 3) == pytest.approx(distances[:, 3].mean())
    some = lengthscales.neighbor_distance(x, num_points=100, seed=4)
    assert abs(some - distances[:, 50].mean()) < 4 * distances[:, 50].std() / 10


def two_clusters(count, seed):
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 2, count)
    return rng.standard_normal((count, 3)) + 4 * classes[:, None] - 2, classes


def test_tuned_scale_is_where_most_classes_are_right():
    """The accuracies of many features are those of the kernel."""
    (a, p), (b, q) = two_clusters(60, 0), two_clusters(40, 1)
    found, accuracies = lengthscales.tuned_to_classes(a, p, b, q, scales=[1e-3, 0.5, 8.0], num_draws=3)
    assert found == pytest.approx(2.0)
    assert accuracies[1] == lengthscales.class_accuracies("iid", a / 2, p, b / 2, q, 30, 3).mean() > 0.9
    kernel = np.exp(-0.5 * ((b[:, None] - a) ** 2).sum(2) / 4)
    expected = (np.array([kernel[:, p == c].sum(1) for c in (0, 1)]).argmax(0) == q).mean()
    many = lengthscales.class_accuracies("iid", a / 2, p, b / 2, q, 3000, 3, seed=5)
    np.testing.assert_allclose(many, expected, atol=0.06)


A, P = two_clusters(60, 0)
REFUSED = [
    (lambda: lengthscales.neighbor_distance(A[:50]), "50"),
    (lambda: lengthscales.neighbor_distance(np.ones((60, 2))), "distan"),
    (lambda: lengthscales.neighbor_distance(A, 0), "neighbor"),
    (lambda: lengthscales.tuned_to_classes(A, P[:-1], A, P), "60 integers"),
    (lambda: lengthscales.tuned_to_classes(A, P - 1, A, P), "class"),
    (lambda: lengthscales.tuned_to_classes(A, P + 0.5, A, P), "class"),
    (lambda: lengthscales.tuned_to_classes(A, P, A, P, scales=[]), "scales"),
    (lambda: lengthscales.tuned_to_classes(A, P, A, P, scales=[np.inf]), "scales"),
    (lambda: priors.SparseVariances(0.0), "positive"),
    (lambda: priors.SparseLengthscales("a"), "positive"),
    (lambda: priors.LogNormalVariance(1, -1), "positive"),
    (lambda: priors.HalfNormalDeviation(np.nan), "positive"),
]


@pytest.mark.parametrize(("call", "word"), REFUSED)
def test_bad_points_classes_and_scales_are_refused(call, word):
    refused(call, rfgp.InvalidArgumentError, word)
