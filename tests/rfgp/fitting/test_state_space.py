"""Fits of a Matern process of one column by scoring steps, against L-BFGS with sparse factors."""

import numpy as np
import pytest
import torch
from checks import fails

import rfgp
from rfgp import kernels as k
from rfgp.fitting.state_space import StateSpaceScoring
from rfgp.solvers import chain

N = 2400
NUS = (0.5, 1.5, 2.5)
NEW = np.linspace(0.5, 19.5, 40)[:, None]
KINDS = ("plain", "ties", "noise of rows", "weights", "outputs", "fixed", "priors")


@pytest.fixture(autouse=True)
def begins_with_a_subset(limits):
    limits(subset_rows=800)


def table(kind, n=N):
    """Return X, y and the options of a fit."""
    rng = np.random.default_rng(4)
    x = rng.uniform(0, 20, n)
    x = x.round(1) if kind == "ties" else x
    f = np.sin(x) + 0.5 * np.sin(5 * x) + 0.2 * np.sin(23 * x)
    noise = rng.uniform(0.01, 0.5, n) if kind == "noise of rows" else None
    y = 3 + f + np.sqrt(0.1 if noise is None else 0.05 + noise) * rng.standard_normal(n)
    options = {} if noise is None else {"noise": noise}
    if kind == "weights":
        options = {"sample_weight": rng.integers(1, 5, n), "fixed": "noise"}  # copies have no noise of their own
    if kind == "fixed":
        options = {"fixed": ("lengthscale", "mean")}
    return x[:, None], np.stack([y, f[::-1] + y], axis=1) if kind == "outputs" else y, options


def fitted(kind, nu):
    """Return a fitted model and its log density, including that of the hyperpriors."""
    X, y, options = table(kind)
    priors = {"priors": {"lengthscale": torch.distributions.LogNormal(0.5, 0.05)}} if kind == "priors" else {}
    start = {"start": {"lengthscale": 2.0, "noise": 0.1}} if kind in ("fixed", "weights") else {}
    gp = rfgp.GP(k.Matern(0, nu=nu), approximation=rfgp.SparsePrecision(), seed=0, **priors, **start)
    gp.fit(X, y, **options)
    assert gp.fit_report.converged
    return gp, gp.fit_report.log_marginal_likelihood + float(gp.state.hyperparameters.log_hyperprior())


def check_fit(kind, nu):
    """Compare the likelihood with that of L-BFGS and sparse factors."""
    gp, found = fitted(kind, nu)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "supports", lambda prior: False)
        other, expected = fitted(kind, nu)
    assert abs(found - expected) < 0.05, found - expected
    np.testing.assert_allclose(gp.predict(NEW).mean, other.predict(NEW).mean, rtol=0.01)
    np.testing.assert_allclose(gp.predict(NEW).std, other.predict(NEW).std, rtol=0.05)


@pytest.mark.parametrize(("kind", "nu"), [("plain", nu) for nu in NUS] + [(kind, 1.5) for kind in KINDS[1:]])
def test_fit_is_as_likely_as_by_sparse_factors(kind, nu):
    check_fit(kind, nu)


def test_fixed_hyperparameters_stay():
    gp, _ = fitted("fixed", 1.5)
    assert gp.hyperparameters["lengthscale"].item() == pytest.approx(2.0)


def test_fit_takes_few_passes_over_all_rows():
    gp, _ = fitted("plain", 1.5)
    *_, last = gp.fit_report.stages
    assert (last.name, last.rows) == ("all rows", N)
    assert last.evaluations <= 12


def test_few_rows_are_all_searched_at_once():
    X, y, _ = table("plain", 300)
    gp = rfgp.GP(k.Matern(0, nu=1.5), approximation=rfgp.SparsePrecision(), seed=0).fit(X, y)
    assert [stage.name for stage in gp.fit_report.stages] == ["all rows"]


def test_planted_early_end_is_seen(monkeypatch):
    monkeypatch.setattr(StateSpaceScoring, "done", 1e6)
    assert fails(check_fit, "plain", 1.5)
