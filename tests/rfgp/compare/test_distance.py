"""The divergence from the exact process given all rows, against dense matrices."""

import numpy as np
import pytest

import rfgp
from rfgp import kernels as k
from rfgp.compare import distance_from_exact

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")


def table(n=150, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, 3 + 2 * np.sin(3 * X[:, 0]) * X[:, 1] + 0.2 * rng.standard_normal(n)


def model(kind="fourier", **options):
    kernel, approximation = {
        "fourier": (k.RBF(name="rbf"), {"rbf": rfgp.RandomFeatures(6)}),
        "local": (k.Matern(name="local"), {"local": rfgp.Vecchia(5)}),
        "both": (k.RBF(name="rbf") + k.Matern(name="local"), {"rbf": rfgp.RandomFeatures(6), "local": rfgp.Vecchia(5)}),
        "points": (k.RBF(name="rbf"), {"rbf": rfgp.InducingPoints(10, method="fitc")}),
        "linear": (k.RBF(0, name="rbf") + k.Linear(1), {"rbf": rfgp.RandomFeatures(6)}),
        "exact": (k.RBF(), rfgp.Exact()),
        "learned": (k.RBF(), rfgp.RandomFeatures(6, learn_frequencies=True)),
    }[kind]
    return rfgp.GP(kernel, approximation=approximation, seed=0, **options)


@pytest.mark.parametrize("kind", ["fourier", "local", "both", "points", "linear"])
def test_distance_matches_dense_matrices(kind):
    X, y = table()
    new, _ = table(20, seed=1)
    gp = model(kind).fit(X, y, max_iterations=5)
    found = distance_from_exact(gp, new, num_points=20)
    p, q = gp.exact().predict(new).observed(), gp.predict(new).observed()
    apart = 0.5 * (p.variance / q.variance - 1 - np.log(p.variance / q.variance) + (p.mean - q.mean) ** 2 / q.variance)
    assert found.kl == pytest.approx(apart.mean(), rel=5e-3)
    assert found.error == pytest.approx(apart.std(ddof=1) / 20**0.5, rel=5e-3)
    assert found.mean == pytest.approx(np.sqrt(np.mean((p.mean - q.mean) ** 2)), rel=5e-3)
    assert (found.points, found.rows) == (20, 150)
    assert found.residual <= 1e-4
    assert found.steps > 0


def test_weights_and_noise_of_rows_count():
    X, y = table()
    gp = model().condition(X, y, noise=np.linspace(0.01, 1, 150), sample_weight=np.arange(1.0, 151.0))
    p, q = gp.exact().predict(X), gp.predict(X)
    found = distance_from_exact(gp, X, num_points=150)
    assert found.mean == pytest.approx(np.sqrt(np.mean((p.mean - q.mean) ** 2)), rel=2e-3)


@pytest.mark.parametrize(
    ("kind", "outputs", "options", "word"),
    [
        ("fourier", 1, {"budget": 1e-9}, "predicted to take"),
        ("exact", 1, {}, "exact"),
        ("learned", 1, {}, "Learned frequencies"),
        ("fourier", 2, {}, "one output"),
    ],
)
def test_unsupported_models_are_refused(kind, outputs, options, word):
    X, y = table(40)
    gp = model(kind).condition(X, y if outputs == 1 else np.stack([y, y + 1], 1))
    with pytest.raises(rfgp.InvalidArgumentError, match=word):
        distance_from_exact(gp, X, **options)
