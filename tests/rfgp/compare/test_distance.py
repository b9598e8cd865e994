"""The distance from the exact process given all rows, beside the matrices that it does without."""

import numpy as np
import pytest
import torch

import rfgp
from rfgp.compare import distance_from_exact
from rfgp.solvers import sampled

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")


def table(n=150, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, 3 + 2 * np.sin(3 * X[:, 0]) * X[:, 1] + 0.2 * rng.standard_normal(n)


MODELS = {
    "fourier": {"num_frequencies": 6, "frequencies": "fixed", "local": None},
    "local": {"features": None, "local": "matern32", "num_neighbors": 5},
    "both": {"num_frequencies": 6, "frequencies": "fixed", "local": "matern32", "num_neighbors": 5},
    "nystrom": {"features": "nystrom", "spectrum": "gaussian", "num_inducing": 10, "diagonal": "fitc"},
}


@pytest.mark.parametrize("kind", MODELS)
def test_it_is_that_of_dense_matrices(kind):
    X, y = table()
    new, _ = table(20, seed=1)
    gp = rfgp.TableGP(seed=0, **MODELS[kind]).fit(X, y, max_iterations=5)
    found = distance_from_exact(gp, new, num_points=20)
    p, q = gp.exact().predict(new).observed(), gp.predict(new).observed()
    apart = 0.5 * (p.variance / q.variance - 1 - np.log(p.variance / q.variance) + (p.mean - q.mean) ** 2 / q.variance)
    assert found.kl == pytest.approx(apart.mean(), rel=2e-3)
    assert found.error == pytest.approx(apart.std(ddof=1) / 20**0.5, rel=2e-3)
    assert found.mean == pytest.approx(np.sqrt(np.mean((p.mean - q.mean) ** 2)), rel=2e-3)
    assert (found.points, found.rows) == (20, 150)
    assert found.residual <= 1e-4
    assert found.steps > 0


def test_planted_a_preconditioner_changes_the_steps_and_not_the_answer(monkeypatch):
    X, y = table()
    gp = rfgp.TableGP(seed=0, **MODELS["fourier"]).fit(X, y, max_iterations=5)
    with_it = distance_from_exact(gp, X, num_points=8)
    monkeypatch.setattr(sampled, "MOST_POINTS", 1)
    without = distance_from_exact(gp, X, num_points=8)
    assert without.steps > with_it.steps
    assert without.kl == pytest.approx(with_it.kl, rel=1e-3)


def test_blocks_of_the_matrix_change_nothing(monkeypatch):
    X, y = table()
    gp = rfgp.TableGP(seed=0, **MODELS["fourier"]).condition(X, y)
    whole = distance_from_exact(gp, X, num_points=8)
    monkeypatch.setattr(sampled, "ENTRIES", 450)
    assert distance_from_exact(gp, X, num_points=8).kl == pytest.approx(whole.kl, rel=1e-9)


def test_where_it_ends_is_said():
    X, y = table()
    gp = rfgp.TableGP(seed=0, **MODELS["fourier"]).condition(X, y)
    with pytest.raises(rfgp.InvalidArgumentError, match="given 150 rows is predicted to take"):
        distance_from_exact(gp, X, budget=1e-9)
    exact = rfgp.TableGP("exact", "gaussian", local=None).condition(X, y)
    with pytest.raises(rfgp.InvalidArgumentError, match="The process is exact"):
        distance_from_exact(exact, X)
    learned = rfgp.TableGP(num_frequencies=6, frequencies="learned", local=None, seed=0).condition(X, y)
    with pytest.raises(rfgp.InvalidArgumentError, match="a kernel of their own"):
        distance_from_exact(learned, X)
    two = rfgp.TableGP(seed=0, **MODELS["fourier"]).condition(X, np.stack([y, y + 1], 1))
    with pytest.raises(rfgp.InvalidArgumentError, match="of one output"):
        distance_from_exact(two, X)


def test_weights_and_noise_of_rows_count():
    X, y = table()
    gp = rfgp.TableGP(seed=0, **MODELS["fourier"])
    gp.condition(X, y, noise=np.linspace(0.01, 1, 150), sample_weight=np.arange(1.0, 151.0))
    found = distance_from_exact(gp, X, num_points=150)
    with torch.no_grad():
        p, q = gp.exact().predict(X), gp.predict(X)
        assert found.mean == pytest.approx(np.sqrt(np.mean((p.mean - q.mean) ** 2)), rel=2e-3)
