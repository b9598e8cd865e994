"""Frequencies learned together with nearest neighbors."""

import numpy as np
import pytest
import torch

import rfgp
from rfgp.fitting import Plan, fit_terms, learn_frequencies
from rfgp.regression import begin
from rfgp.rows import Chunk

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")


def table(n, seed=0):
    """An oblique wave, which few frequencies represent, and pairs of near rows with a common effect."""
    places, rng = np.random.default_rng(0), np.random.default_rng(seed)
    centers, effects = places.uniform(-1, 1, (150, 4)), 0.5 * places.standard_normal(150)
    which = rng.integers(0, 150, n)
    X = centers[which] + 0.02 * rng.standard_normal((n, 4))
    y = np.sin(4 * X @ [1.0, 0.7, -0.4, 0.2]) + effects[which] + 0.02 * rng.standard_normal(n)
    return X * [1.0, 5.0, 20.0, 1.0], y


def model(**more):
    chosen = {"num_frequencies": 16, "learn_frequencies": True, "local": "matern32", "num_neighbors": 10, "seed": 0}
    return rfgp.SparseSpectrumGP(**chosen | more)


def density(gp):
    X, y = table(300, seed=1)
    p = gp.predict(X).observed()
    return np.mean(-0.5 * np.log(2 * np.pi * p.variance) - 0.5 * (y - p.mean) ** 2 / p.variance)


@pytest.mark.slow
def test_joint_model_is_better_than_either_part():
    data = table(800)
    both, features = (one.fit(*data, max_iterations=100) for one in (model(), model(local=None)))
    for alone in (
        rfgp.GP(rfgp.kernels.Matern(nu=1.5), approximation=rfgp.Vecchia(10), seed=0),
        model(learn_frequencies=False, coupling=rfgp.couplings.Energy()),
    ):
        assert density(both) > density(alone.fit(*data, max_iterations=100)) - 0.01
    assert density(both) > density(features) + 0.3


def test_few_rows_have_few_frequencies():
    gp = model().fit(*table(240), max_iterations=2)
    frequencies = gp.spec.term_priors[0].parts[0].feature_map.frequencies
    is_alone = gp.fit_report.message.startswith("learned frequencies alone")
    assert frequencies.shape == ((16, 4) if is_alone else (5, 4))
    assert gp.num_observations == 240


def test_features_alone_are_learned_as_without_neighbors(monkeypatch):
    """The bound of the noise too. With neighbors it is a hundredth of the usual one."""
    asked, original = [], learn_frequencies.fit_basis_functions
    monkeypatch.setattr(learn_frequencies, "fit_basis_functions", lambda fit: asked.append(fit) or original(fit))
    options = {"max_iterations": 2, "fixed": ["noise"]}
    model(noise=1e-9).fit(*table(240), **options)
    alone = model(local=None, num_frequencies=5).fit(*table(240), max_iterations=1)
    values, wanted = asked[0].values, alone.hyperparameters
    assert set(values.space.names) == set(wanted.space.names)
    assert "local.lengthscale" not in values.space.names
    for name, quantity in values.space.quantities.items():
        for a, b in zip(quantity.bounds, wanted.space.quantities[name].bounds, strict=True):
            assert torch.allclose(a, b, rtol=1e-12)
    assert values.standardized("noise").item() == pytest.approx(1e-6)


@pytest.mark.slow
def test_noise_and_few_rows_keep_fixed_frequencies():
    X, _ = table(300)
    gp = model(num_frequencies=64).fit(X, np.random.default_rng(2).standard_normal(300), max_iterations=20)
    assert gp.predict(X).variance.mean() < 0.3
    few = model(num_frequencies=64).fit(*table(150), max_iterations=2)
    assert "150 rows are too few to learn frequencies from" in few.fit_report.message


def test_held_out_rows_reject_an_overfitted_candidate():
    """One of two candidates overfits. Its likelihood would select it, but held-out rows reject it."""
    held_out = [torch.zeros(20, dtype=torch.float64), torch.full((20,), -1.0, dtype=torch.float64)]
    candidates = [
        learn_frequencies.Candidate(None, name, None, density) for name, density in zip("ab", held_out, strict=True)
    ]
    assert learn_frequencies.best_of(candidates)[0].name == "a"
    better = candidates[1]._replace(log_prob=torch.linspace(0.1, 0.2, 20, dtype=torch.float64))
    assert learn_frequencies.best_of([candidates[0], better])[0].name == "b"
    unsure = candidates[1]._replace(log_prob=torch.tensor([0.1, -0.09] * 10, dtype=torch.float64))
    assert learn_frequencies.best_of([candidates[0], unsure])[0].name == "a"
    broken = candidates[1]._replace(log_prob=torch.full((20,), torch.nan, dtype=torch.float64))
    assert learn_frequencies.best_of([candidates[0], broken])[0].name == "a"


def test_checkpoints_lead_to_the_same_model(tmp_path):
    (X, y), new = table(220), table(20, seed=1)[0]
    fits = [model().fit(X, y, max_iterations=3, checkpoint=tmp_path / "c") for _ in range(2)]
    assert np.allclose(fits[1].predict(new).mean, fits[0].predict(new).mean, rtol=1e-9)
    assert fits[1].fit_report.frequencies == fits[0].fit_report.frequencies
    with pytest.raises(rfgp.CheckpointError, match="another fit"):
        model(num_neighbors=11).fit(X, y, max_iterations=3, checkpoint=tmp_path / "c")


@pytest.mark.parametrize("has_wave", [False, True])
@pytest.mark.parametrize("fixed_also_compared", [False, True])
def test_fixed_frequencies_of_rivals_are_not_searched(fixed_also_compared, has_wave):
    """Without a wave there is nothing to learn; with it, there are more learned numbers than rows."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 30 if has_wave else 3))
    y = has_wave * (np.sin(2 * X[:, 0]) + X[:, 1]) + (0.1 if has_wave else 1.0) * rng.standard_normal(600)
    gp = rfgp.SparseSpectrumGP(num_frequencies=24, seed=0, learn_frequencies=True)
    plan = Plan(iteration_limit=20, fixed_also_compared=fixed_also_compared)
    _, report = fit_terms(begin(gp.spec, Chunk(X, y)), plan)
    assert report.learned_frequencies_rejected or has_wave
    assert any(stage.name.startswith("all rows") for stage in report.stages) != fixed_also_compared
