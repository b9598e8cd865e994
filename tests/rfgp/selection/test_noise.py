"""The choice of the noise after a fit."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

import rfgp
from rfgp import kernels as k
from rfgp.inference.scales import ScaleBasis
from rfgp.selection.noise import LeftOut, NoiseChoice, fit_scales, resolution_of


def table(kind, n=300, seed=0):
    """Return training rows and 1,000 test rows of a smooth function with some noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n + 1000, 2))
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2
    normal, tails = rng.standard_normal(len(f)), rng.standard_t(2.5, len(f))
    noise = {"even": 0.3 * normal, "inputs": 0.3 * np.exp(X[:, 0]) * normal, "mean": 0.1 * np.exp(f) * normal}
    noise["tails"] = 0.2 * tails
    noise["outliers"] = 0.1 * normal + 4 * (rng.random(len(f)) < 0.05) * normal
    y = f + noise[kind]
    return X[:n], y[:n], X[n:], y[n:]


@pytest.mark.parametrize(("kind", "least"), [("inputs", 0.5), ("mean", 0.2), ("tails", 0.1), ("outliers", 0.4)])
@pytest.mark.filterwarnings("ignore::rfgp.BaselineNotBeatenWarning")
def test_uneven_noise_gets_scales(kind, least):
    X, y, X_new, y_new = table(kind)
    gp = rfgp.GP(k.RBF(), "auto", seed=0).fit(X, y)
    p = gp.predict(X_new)
    assert rfgp.metrics.nlpd(y_new, p) < rfgp.metrics.nlpd(y_new, p.unscaled) - least
    assert rfgp.metrics.interval_coverage(y_new, p, [0.95]).item() == pytest.approx(0.95, abs=0.035)
    noise = gp.selection.noise
    assert noise.chosen.name in gp.selection.reason
    assert noise.chosen.last.value == max(trial.last.value for trial in noise.trials)
    assert noise.trials[0].last.difference > noise.trials[0].last.difference_error > 0


@pytest.mark.parametrize("n", [60, 300])
def test_even_noise_stays_gaussian(n):
    X, y, X_new, _ = table("even", n)
    auto, plain = (rfgp.GP(seed=0, likelihood=likelihood).fit(X, y) for likelihood in (None, "gaussian"))
    assert auto.selection.noise.best == 0
    assert plain.selection.noise is None
    assert np.array_equal(auto.predict(X_new).observed().std, plain.predict(X_new).observed().std)


@pytest.mark.filterwarnings("ignore::rfgp.OutlierWarning", "ignore::rfgp.BaselineNotBeatenWarning")
def test_defaults_and_other_noises_have_no_scales():
    X, y, *_ = table("inputs", 120)
    assert rfgp.GP(seed=0).fit(X, y).selection.noise is not None
    plain = rfgp.GP(k.RBF(), seed=0).fit(X, y)
    assert plain.selection is None
    known = rfgp.GP(k.RBF(), "auto", seed=0).fit(X, y, noise=np.full(len(y), 0.01))
    several = rfgp.GP(k.RBF(), "auto", seed=0).fit(X, np.stack([y, y**2], axis=1))
    for gp in (known, several):
        assert gp.selection is None
        assert gp.predict(X[:3]).scales is None
    assert repr(rfgp.GP(k.RBF(), "auto")).startswith("GP(kernel=RBF(), likelihood='auto', seed=")


@pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")
@pytest.mark.parametrize(
    "approximation",
    [rfgp.RandomFeatures(64), rfgp.Vecchia(10), rfgp.InducingPoints(64)],
    ids=lambda a: type(a).__name__,
)
def test_many_rows_are_held_out(approximation):
    X, y, X_new, y_new = table("inputs", 2100)
    gp = rfgp.GP(k.RBF(), "auto", approximation, seed=0).fit(X, y, max_iterations=15)
    assert gp.selection.noise.num_validation == 420
    p = gp.predict(X_new)
    assert rfgp.metrics.nlpd(y_new, p) < rfgp.metrics.nlpd(y_new, p.unscaled) - 0.5


def test_approximations_keep_scales():
    X, y, X_new, _ = table("inputs")
    gp = rfgp.GP(k.RBF(), "auto", rfgp.RandomFeatures(128), seed=0).fit(X, y)
    for other in (gp.exact(), gp.with_approximation(rfgp.InducingPoints(100))):
        assert other.predict(X_new).observed().std == pytest.approx(gp.predict(X_new).observed().std, rel=0.2)
        assert other.leave_one_out().log_prob.mean() == pytest.approx(gp.leave_one_out().log_prob.mean(), abs=0.05)


def test_conditioning_on_other_rows_keeps_scales():
    X, y, X_new, y_new = table("inputs")
    gp = rfgp.GP(k.RBF(), "auto", seed=0).fit(X, y)
    before = gp.predict(X_new).observed().std
    gp.condition(X_new, y_new)
    after = gp.predict(X_new).observed().std
    assert np.corrcoef(np.log(before), np.log(after))[0, 1] > 0.95
    assert rfgp.metrics.nlpd(y, gp.predict(X)) < rfgp.metrics.nlpd(y, gp.predict(X).unscaled) - 0.5


@pytest.mark.filterwarnings("ignore::rfgp.OutlierWarning")
def test_likelihood_and_terms_are_those_without_scales():
    X, y, *_ = table("inputs")
    scaled, plain = (rfgp.GP(k.RBF(), likelihood, seed=0).fit(X, y) for likelihood in ("auto", "gaussian"))
    assert scaled.log_marginal_likelihood() == plain.log_marginal_likelihood()
    assert scaled.hyperparameters.noise == plain.hyperparameters.noise


def test_fit_is_the_mode_of_the_posterior():
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.standard_normal((200, 2)))
    variance = torch.from_numpy(rng.uniform(0.5, 2, (1, 200)))
    mean = torch.from_numpy(rng.standard_normal((2, 200)))
    y = torch.from_numpy(rng.standard_t(4, 200)) * (0.5 * x[:, 0]).exp() + mean.mean(0)
    rows = LeftOut(x, y, torch.ones(200).double(), torch.tensor([0.5, 0.5]).double(), mean, variance.expand(2, 200))
    basis = ScaleBasis.of(x, [0, 1], rows.mean, rows.variance, 8, 0)
    features = basis(x, rows.mean, rows.variance)
    for df in (4.0, math.inf):
        found = fit_scales(features, basis.blocks, rows, df, 0.01, rounds=200)
        w, prior = found.weights.numpy(), found.prior[basis.blocks].numpy()

        def log_posterior(w, df=df, prior=prior):
            square = rows.between.numpy() + 0.01 + rows.variance.numpy() * np.exp(features.numpy() @ w)
            law = stats.norm if math.isinf(df) else stats.t(df)
            density = law.logpdf((y - rows.mean).numpy() / np.sqrt(square)) - 0.5 * np.log(square)
            return density.sum() - 0.5 * (w**2 / prior).sum()

        for direction in np.eye(len(w))[:: len(w) // 6]:
            slope = (log_posterior(w + 1e-5 * direction) - log_posterior(w - 1e-5 * direction)) / 2e-5
            deviation = float(found.covariance.diagonal()[direction.argmax()]) ** 0.5
            assert abs(slope) * deviation < 0.02


@pytest.mark.parametrize(("deviation", "floor"), [(1.0, 0.1**2 / 12), (1e-4, 0.01 * 1e-8)])
def test_floor_does_not_widen_predictions_more_precise_than_the_grid(deviation, floor):
    rng = np.random.default_rng(2)
    y = torch.from_numpy(0.1 * rng.integers(0, 20, 100).astype(float))
    mean = y + deviation * torch.from_numpy(rng.standard_normal(100))
    moments = torch.ones(1).double(), mean[None], torch.full((1, 100), deviation**2).double()
    rows = LeftOut(torch.from_numpy(rng.standard_normal((100, 1))), y, torch.ones(100).double(), *moments)
    choice = NoiseChoice.of(rows, [0], 0, resolution_of(y))
    assert choice.best.floor == pytest.approx(floor, rel=1e-6)


@pytest.mark.parametrize(
    ("targets", "resolution"),
    [
        ([3.0, 5.0, 9.0, 5.0], 2.0),
        ([0.25, 0.5, 1.25], 0.25),
        ([0.1, 0.3, 0.35, 0.9], 0.05),
        ([0.0, 0.0, 0.0, 0.1234567, math.pi, math.e], 0.01 * 2.0695756 / 1.349),
    ],
)
def test_resolution_is_a_step_or_follows_atoms(targets, resolution):
    assert resolution_of(torch.tensor(targets, dtype=torch.float64)) == pytest.approx(resolution, rel=1e-2)


@pytest.mark.filterwarnings("ignore::rfgp.BaselineNotBeatenWarning")
def test_atoms_do_not_win_by_their_density():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (300, 2))
    y = np.where(rng.random(300) < 0.6, 0.0, np.exp(X[:, 0] + 0.5 * rng.standard_normal(300)))
    gp = rfgp.GP(k.RBF(), "auto", seed=0).fit(X, y)
    y_new = np.zeros(300)
    scale = stats.iqr(y) / 1.349 or y.std()
    assert np.exp(gp.predict(X).observed().log_prob(y_new)).max() < 1.5 * math.sqrt(12) / (0.01 * scale)


@pytest.mark.parametrize("kind", ["counts", "classes"])
@pytest.mark.filterwarnings("ignore::rfgp.BaselineNotBeatenWarning", "ignore::rfgp.OutlierWarning")
def test_likelihoods_of_counts_and_classes_are_proposed(kind):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (200, 1))
    rate = np.exp(1.5 * np.sin(2 * X[:, 0]))
    y = rng.poisson(rate) if kind == "counts" else rng.random(200) < rate / (1 + rate)
    names = ["poisson", "negative-binomial"] if kind == "counts" else ["bernoulli"]
    gp = rfgp.GP(k.RBF(), "auto", seed=0).fit(X, y.astype(float))
    trials = {trial.options.get("likelihood"): trial for trial in gp.selection.noise.trials}
    assert gp.spec.is_gaussian
    for name in names:
        assert name in gp.selection.reason
        own = rfgp.GP(k.RBF(), name, seed=0).fit(X, y.astype(float)).leave_one_out().log_prob.mean()
        assert trials[name].last.value == pytest.approx(own, abs=0.02)
        assert trials[name].last.difference < 0  # ahead of the normal and Student-t noises


@pytest.mark.parametrize("kernel", [k.RBF(), k.Group("g")], ids=["columns", "groups"])
def test_scales_do_not_learn_from_the_mean_of_the_other_rows(kernel):
    """The mean of all other rows determines the target of a row if there is nothing but noise."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = {"g": rng.integers(0, 24, 120).astype(str)} if isinstance(kernel, k.Group) else rng.uniform(0, 6, (120, 1))
        gp = rfgp.GP(kernel, "auto", seed=0).fit(X, rng.standard_normal(120))
        assert gp.selection.noise.best == 0


def one_column(n=150, seed=0, outliers=0):
    """Return rows of a sine whose noise grows, or with some outliers."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 6, (n, 1))
    noise = 0.05 if outliers else 0.02 * np.exp(X[:, 0] / 2)
    y = np.sin(X[:, 0]) + noise * rng.standard_normal(n)
    y[:outliers] += 4 * rng.choice([-1, 1], outliers)
    return X, y


def test_latent_bands_hold_and_prior_variances_stay():
    X_new = np.array([0.3, 0.9, 1.5, 2.1, 4.0, 5.5])[:, None]
    z = []
    for seed in range(5):
        gp = rfgp.GP(k.RBF(), "auto", seed=0).fit(*one_column(seed=seed))
        p = gp.predict(X_new)
        z.append((p.mean - np.sin(X_new[:, 0])) / p.std)
    assert 0.4 < np.mean(np.square(z)) < 2.5
    far = gp.predict([[-1e6], [1e6]])
    assert far.std == pytest.approx(far.unscaled.std, rel=0.1)


@pytest.mark.filterwarnings("ignore::rfgp.OutlierWarning")
def test_outliers_keep_little_weight_after_condition_and_update():
    X, y = one_column(200, outliers=12)
    gp = rfgp.GP(k.RBF(), "auto", seed=0).fit(X, y)
    X_new = np.linspace(0, 6, 100)[:, None]

    def error():
        return np.sqrt(np.mean((gp.predict(X_new).mean - np.sin(X_new[:, 0])) ** 2))

    assert error() < 0.05
    gp.condition(X, y)
    assert error() < 0.05
    gp.update([[3.0], [3.0]], [9.0, 9.0])
    assert error() < 0.05
    before = gp.predict([[3.0]]).mean[0]
    gp.update([[3.0]], [9.0], sample_weight=[1e4])
    assert gp.predict([[3.0]]).mean[0] > before + 0.1  # 1e4 rows of the smallest weight


def test_left_out_coverage_does_not_flatter():
    said, reached = [], []
    for seed in range(6):
        gp = rfgp.GP(k.RBF(), "auto", seed=0).fit(*one_column(60, seed))
        X_new, y_new = one_column(500, 100 + seed)
        said.append(gp.calibration([0.9]).coverage[0])
        reached.append(rfgp.metrics.interval_coverage(y_new, gp.predict(X_new), [0.9]).item())
    assert np.mean(said) == pytest.approx(np.mean(reached), abs=0.1)


def test_one_column_of_targets_has_no_scales():
    X, y = one_column()
    gp = rfgp.GP(k.RBF(), "auto", seed=0).fit(X, y[:, None])
    assert gp.predict(X[:4]).observed().log_prob(y[:4, None]).shape == (4, 1)
