"""Fits through features: growing subsets, optimal noise and scales, and reports."""

import numpy as np
import pandas as pd
import pytest
import torch
from problems import exhausted, table

import rfgp
from rfgp import kernels as k
from rfgp.fitting import subsets

pytestmark = [  # most have few features, to be fast
    pytest.mark.filterwarnings("ignore::rfgp.VarianceStarvationWarning"),
    pytest.mark.filterwarnings("ignore::rfgp.UnderfittingWarning"),
]


def assert_all_stages_are_traced(report):
    """Check that a trace has the start and each iteration of every stage, with the gain of the stage."""
    assert [stage for stage, _ in report.traces()] == list(report.stages)
    assert tuple(value for _, part in report.traces() for value in part) == report.trace
    for stage, part in report.traces():
        assert len(part) == stage.iterations + 1
        assert part[-1] - part[0] == pytest.approx(stage.gain * stage.rows)


@pytest.mark.slow
def test_large_tables_are_optimized_on_subsets(limits):
    limits(min_subset_gain=0.02)
    X, y = table(20_000)
    gp = rfgp.SparseSpectrumGP(num_frequencies=32, seed=0).fit(X, y)
    report = gp.fit_report
    assert [stage.rows for stage in report.stages] == [2000, 2000, 8000]  # two starts, then a larger subset
    assert report.stages[-1].gain < 0.02
    assert_all_stages_are_traced(report)
    assert report.message.startswith("converged: 8,000 rows gained")
    best = rfgp.SparseSpectrumGP(num_frequencies=32, seed=0).fit(X[:8000], y[:8000])
    best.condition(X, y)
    assert report.log_marginal_likelihood == pytest.approx(gp.log_marginal_likelihood().item(), rel=1e-9)
    assert report.log_marginal_likelihood > best.log_marginal_likelihood().item()  # noise and scale of 8,000 rows


def test_noise_and_scale_are_optimal_on_all_rows(limits):
    limits(min_subset_gain=1.0, subset_rows=500)
    X, y = table(6000)
    gp = rfgp.SparseSpectrumGP(num_frequencies=32, seed=0).fit(X, y)
    assert gp.fit_report.stages[-1].rows == 2000
    for name in ("noise", "rbf/outputscale"):
        (slope,) = torch.autograd.grad(gp.log_marginal_likelihood(), [gp.hyperparameters.raw[name]])
        assert abs(slope.item()) < 1


def test_scales_of_all_terms_are_optimal_on_all_rows(limits):
    """The statistics of one pass determine the variances of a smooth term, a linear one and a group."""
    limits(min_subset_gain=1.0, subset_rows=500)
    X, y = table(6000)
    rows = {"a": X[:, 0], "b": X[:, 1], "site": np.random.default_rng(1).integers(0, 9, 6000).astype(str)}
    effects = dict(zip("012345678", np.random.default_rng(2).standard_normal(9), strict=True))
    kernel = k.RBF("a") + k.Linear("b") + k.Group("site")
    gp = rfgp.GP(kernel, approximation=rfgp.RandomFeatures(16), seed=0)
    gp.fit(rows, y + np.array([effects[site] for site in rows["site"]]))
    assert gp.fit_report.stages[-1].rows == 2000
    raw = dict(gp.hyperparameters.named_parameters())
    for name in ("raw.noise", "raw.rbf(a)/outputscale", "raw.linear(b)/variance", "raw.group(site)/outputscale"):
        (slope,) = torch.autograd.grad(gp.log_marginal_likelihood(), [raw[name]])
        assert slope.abs().max() < 1, name


@pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")
@pytest.mark.parametrize(("most", "words"), [(3000, "no larger subset is searched"), (900, "on 900 of 6,000 rows")])
def test_subsets_have_at_most_most_rows(monkeypatch, limits, most, words):
    """The message mentions an earlier subset only if there is one."""
    limits(min_subset_gain=-1.0)  # never
    limits(subset_rows=500)
    monkeypatch.setattr(subsets, "MAX_ROWS", most)
    gp = rfgp.SparseSpectrumGP(num_frequencies=32, seed=0).fit(*table(6000), max_iterations=3)
    assert max(stage.rows for stage in gp.fit_report.stages) == most
    assert words in gp.fit_report.message


def test_weighted_subsets_are_not_all_rows(limits):
    """A report that counted observations instead of rows would skip noise and scale on all rows."""
    limits(min_subset_gain=1.0, subset_rows=500)
    rng = np.random.default_rng(1)
    X = rng.standard_normal((8000, 1))
    y = 0.5 * X[:, 0] + rng.standard_normal(8000)
    gp = rfgp.SparseSpectrumGP(num_frequencies=8, seed=0).fit(X, y, sample_weight=np.full(8000, 3.0))
    assert [stage.rows for stage in gp.fit_report.stages][-1] == 2000
    (slope,) = torch.autograd.grad(gp.log_marginal_likelihood(), [gp.hyperparameters.raw["noise"]])
    assert abs(slope.item()) < 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::rfgp.JitterWarning")  # on the way, where there is less noise than the bound
@pytest.mark.filterwarnings("ignore::rfgp.PoorFeaturesWarning")  # the exact kernel interpolates
@pytest.mark.parametrize("n", [300, 3000])
def test_solved_scales_keep_their_bounds(n, limits):
    limits(subset_rows=300)
    X = np.random.default_rng(0).standard_normal((n, 1))
    gp = rfgp.SparseSpectrumGP(num_frequencies=32, seed=0).fit(X, np.sin(X[:, 0]))  # no noise at all
    values = gp.hyperparameters.values
    for name in ("noise", "rbf.outputscale"):
        low, high = values.space.quantities[name].bounds
        assert low.log().item() - 1e-9 <= values.raw[name].item() <= high.log().item() + 1e-9
    assert "noise" in gp.fit_report.at_bounds


@pytest.mark.slow
@pytest.mark.parametrize("sd", [0.03, 0.003])
def test_little_noise_in_single_precision(sd):
    """Products of float32 features alone doubled the noise, with an indefinite matrix."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((6000, 2))
    y = np.sin(X[:, 0]) + np.cos(X[:, 1]) + sd * rng.standard_normal(6000)
    gp = rfgp.SparseSpectrumGP(num_frequencies=64, seed=0).fit(X.astype(np.float32), y.astype(np.float32))
    assert gp.hyperparameters.noise.item() ** 0.5 == pytest.approx(sd, rel=0.1)
    assert gp.fit_report.mean_squared_zscore == pytest.approx(1, abs=0.15)


@pytest.mark.filterwarnings("ignore::rfgp.PoorFeaturesWarning")
@pytest.mark.parametrize("extra", ["noise", "fixed", "prior"])
def test_scales_without_a_closed_form_are_searched(extra, limits):
    limits(subset_rows=300)
    X, y = table(3000)
    fit = {"noise": {"noise": np.full(3000, 0.5)}, "fixed": {"fixed": "outputscale"}}.get(extra, {})
    options = {"priors": {"noise": torch.distributions.LogNormal(0.0, 0.1)}} if extra == "prior" else {}
    gp = rfgp.SparseSpectrumGP(num_frequencies=16, seed=0, **options).fit(X, y, **fit)
    gradient = torch.autograd.grad(
        gp.log_marginal_likelihood() + gp.hyperparameters.log_prior(), [gp.hyperparameters.raw["noise"]]
    )
    assert abs(gradient[0].item()) < 3
    if extra == "fixed":
        assert gp.hyperparameters.outputscale.item() == pytest.approx(y.var(ddof=1), rel=1e-9)


def test_best_of_several_starts_is_taken():
    """A fast function. From the default start, a hundred times too long, noise explains everything."""
    x = np.linspace(-3, 3, 800)[:, None]
    y = np.sin(25 * x[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(800)
    gp = rfgp.SparseSpectrumGP(num_frequencies=64, seed=0).fit(x, y)
    assert gp.hyperparameters.noise.item() < 0.05
    with pytest.warns(
        rfgp.UnderfittingWarning, match=r"correlation of 0\.9.*column 'speed' does not matter.*shorter starting"
    ):
        given = rfgp.SparseSpectrumGP(num_frequencies=64, seed=0, lengthscale=30.0).fit(
            pd.DataFrame(x, columns=["speed"]), y
        )
    assert given.fit_report.residual_autocorrelation > 0.9
    assert gp.fit_report.residual_autocorrelation < 0.2
    assert given.hyperparameters.noise.item() > 0.3


def test_seed_determines_the_fit():
    X, y = table(5000)
    a, b, c = (rfgp.SparseSpectrumGP(num_frequencies=16, seed=s).fit(X, y).predict(X[:9]).mean for s in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_all_hyperparameters_may_be_fixed():
    X, y = table(100)
    gp = rfgp.SparseSpectrumGP(num_frequencies=16, seed=0)
    gp.fit(X, y, fixed=("lengthscale", "outputscale", "noise", "mean"))
    assert gp.fit_report.message == "every hyperparameter is fixed"
    assert gp.fit_report.log_marginal_likelihood == pytest.approx(gp.log_marginal_likelihood().item())


def test_single_precision_does_not_stop_the_search():
    """A line search that fails because of rounding does not fail the fit."""
    X, y = table(300)
    for m in (16, 200):
        gp = rfgp.SparseSpectrumGP(num_frequencies=m, seed=0).fit(X.astype(np.float32), y.astype(np.float32))
        double = rfgp.SparseSpectrumGP(num_frequencies=m, seed=0).fit(X, y)
        assert gp.fit_report.converged
        a, b = (model.fit_report.log_marginal_likelihood for model in (gp, double))
        assert a == pytest.approx(b, abs=0.5)


def test_variance_starvation_warns():
    X, y = exhausted()
    with pytest.warns(rfgp.VarianceStarvationWarning, match=r"determine 9\d% of the weights.*variance starvation"):
        gp = rfgp.SparseSpectrumGP(num_frequencies=8, seed=0).fit(X, y)
    assert gp.fit_report.effective_dof_fraction > 0.9
    ratio = gp.predict(X[:300] * 3).variance / gp.exact().predict(X[:300] * 3).variance
    assert np.median(ratio) < 0.1


@pytest.mark.filterwarnings("error::rfgp.VarianceStarvationWarning")
def test_enough_features_do_not_warn():
    X, y = table(800)
    gp = rfgp.SparseSpectrumGP(num_frequencies=64, seed=0).fit(X, y)
    assert gp.fit_report.effective_dof_fraction < 0.6


def test_report_matches_leave_one_out():
    X, y = table(400)
    gp = rfgp.SparseSpectrumGP(num_frequencies=16, seed=0).fit(X, y)
    left = gp.leave_one_out()
    assert gp.fit_report.mean_squared_zscore == pytest.approx(np.mean((y - left.mean) ** 2 / left.variance), rel=1e-7)
    assert gp.fit_report.leave_one_out == pytest.approx(left.log_prob.mean(), rel=1e-7)


@pytest.mark.filterwarnings("ignore::rfgp.PoorFeaturesWarning")
def test_effective_dof_fraction_of_weights():
    X, y = table(200)
    gp = rfgp.SparseSpectrumGP(num_frequencies=6, seed=0, dtype=torch.float64).fit(X, y)
    with torch.no_grad():
        phi = gp.state.prior().dense.scaled(gp.state.rows.inputs)
        gram = phi.T @ phi / gp.hyperparameters.standardized("noise")
    expected = torch.trace(torch.linalg.solve(gram + torch.eye(12), gram)).item() / 12
    assert gp.fit_report.effective_dof_fraction == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("spectrum", ["gaussian", rfgp.spectra.Matern(0.7)])
def test_few_rows_start_with_the_exact_kernel(spectrum):
    """Kernels with Bessel functions are an exception. The report is that of the features' optimum."""
    X, y = table(90)
    gp = rfgp.SparseSpectrumGP(spectrum, num_frequencies=64, seed=0).fit(X, y)
    names = [stage.name for stage in gp.fit_report.stages]
    assert names[-1] in ("all rows", "all rows, second start")
    assert (names[0] == "all rows, exact kernel") == (spectrum == "gaussian")
    assert gp.fit_report.log_marginal_likelihood == pytest.approx(gp.log_marginal_likelihood().item(), rel=1e-9)
    gradients = torch.autograd.grad(gp.log_marginal_likelihood(), list(gp.hyperparameters.raw.values()))
    assert max(float(gradient.abs().max()) for gradient in gradients) < 2  # the search ends at gains of 0.05


def test_exact_stage_is_independent_of_features(monkeypatch):
    """With 64 features and 90 rows, the output scale is solved for with features and searched for with the kernel."""
    seen, original = [], subsets.maximize

    def maximize(*args, stage, held=(), **options):
        seen.append((stage, held))
        return original(*args, stage=stage, held=held, **options)

    monkeypatch.setattr(subsets, "maximize", maximize)
    X, y = table(90)
    rfgp.SparseSpectrumGP(num_frequencies=32, seed=0).fit(X, y)
    assert seen[0] == ("all rows, exact kernel", ())
    assert seen[-1] == ("all rows", ("rbf.outputscale",))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_noise_is_not_fitted_by_short_lengthscales(seed):
    """The exact kernel also explains noise by short lengthscales, at which random features explain nothing."""
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((150, 5)), rng.standard_normal(150)
    gp = rfgp.SparseSpectrumGP(num_frequencies=128, seed=seed).fit(X, y)
    assert gp.hyperparameters.noise > 0.3
    assert np.var(gp.predict(rng.standard_normal((200, 5))).mean) < 0.3


@pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")
def test_starts_have_a_finite_prior_density():
    """A prior may have no density at some starts, such as a thirtieth of the usual lengthscale."""
    X, y = table(300)
    priors = {"lengthscale": torch.distributions.Uniform(0.5, 10.0)}
    gp = rfgp.SparseSpectrumGP(num_frequencies=32, seed=0, priors=priors).fit(X, y, max_iterations=0)
    assert (gp.hyperparameters.lengthscale > 0.5).all()
    assert gp.fit_report.iterations == 0


@pytest.mark.parametrize("cores", [1, 3])
def test_few_rows_use_one_thread(cores):
    seen, before = [], torch.get_num_threads()
    X, y = table(60)
    try:
        torch.set_num_threads(cores)
        for gp in (rfgp.ExactGP(), rfgp.SparseSpectrumGP(num_frequencies=16, seed=0)):
            gp.fit(X, y, callback=lambda *_: seen.append(torch.get_num_threads()))
            with pytest.raises(ZeroDivisionError):
                gp.fit(X, y, callback=lambda *_: 1 // 0)
            assert torch.get_num_threads() == cores
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}
