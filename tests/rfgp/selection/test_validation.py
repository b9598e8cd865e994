"""Fits of candidates to some rows, and the densities of the others."""

import numpy as np
import pytest
import torch
from selection_cases import among, candidate, counts, favored, rounds, table, validation_of

import rfgp
from rfgp import kernels as k
from rfgp.selection import select, validation

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
RBF, MATERN, ROUGH = k.RBF(name="rbf"), k.Matern(nu=1.5, name="local"), k.Matern(nu=0.5, name="local")
FIXED, LEARNED = (rfgp.RandomFeatures(4, learn_frequencies=learned) for learned in (False, True))
NEAR = rfgp.Vecchia(8)
ALONE = candidate(RBF, FIXED)


def waves(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, np.sin(6 * X[:, 0]) * np.cos(4 * X[:, 1]) + 0.1 * rng.standard_normal(n)


# --- densities ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", ["normal", "poisson"])
def test_held_out_densities_are_those_of_predictions(likelihood):
    X, y = table(100) if likelihood == "normal" else counts(100)
    rows = validation_of(rfgp.GP(likelihood=likelihood, seed=0), X, y, given_iterations=3)
    found, scaling = rows.fitted(ALONE, 1000, None), rows.begun.scaling
    assert (len(rows.rows), len(rows.held_out)) == (80, 20)
    new = scaling.inputs.inverse(rows.held_out.inputs).numpy()
    targets = scaling.targets.inverse(rows.held_out.targets[:, 0]).numpy()
    expected = found.regression.replace(rows=rows.rows).predict(new).observed().log_density(targets)
    np.testing.assert_allclose(found.density, expected, rtol=1e-6)


def test_exposures_of_held_out_counts_are_used():
    rng = np.random.default_rng(0)
    X, times = rng.uniform(-1, 1, (80, 2)), rng.uniform(0.1, 20, 80)
    y = rng.poisson(times * np.exp(np.sin(3 * X[:, 0]))).astype(float)
    gp = rfgp.GP(likelihood="poisson", seed=0)
    with_times, without = (
        validation_of(gp, X, y, exposure, given_iterations=20).fitted(ALONE, 80, None).density.mean()
        for exposure in (times, None)
    )
    assert with_times > without + 0.5


def test_noise_that_varies_is_scored_on_some_rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 1))
    y = np.sin(3 * X[:, 0]) + np.exp(X[:, 0] - 2) * rng.standard_normal(60)
    rows = validation_of(rfgp.GP(likelihood="heteroscedastic", seed=0), X, y, given_iterations=3)
    density = rows.fitted(candidate(RBF, rfgp.Exact()), 40, None).density
    assert len(density) == 12
    assert np.isfinite(density.numpy()).all()


def test_many_rows_are_predicted_given_those_around_them(monkeypatch):
    """Planted: rows around by columns without meaning, or too few of them, give other densities."""
    X, y = waves(2000)
    X = np.column_stack([X, np.random.default_rng(1).uniform(-1, 1, (2000, 3))])
    monkeypatch.setattr(validation, "HELD_OUT", (0.2, 40))
    rows, near = validation_of(rfgp.GP(seed=0), X, y, given_iterations=8), candidate(MATERN, NEAR)
    whole = rows.fitted(near, 200, None).density
    assert rows.num_given(near, 200) == 1960
    monkeypatch.setattr(validation, "MOST_GIVEN", 1000)
    assert rows.num_given(near, 200) == 2 * 8 * 40
    original = validation.nearest
    planted = {
        "none": original,
        "columns": lambda rows, new, count: original(rows / rows.std(0), new / rows.std(0), count),
        "few": lambda rows, new, count: original(rows, new, 1),
    }
    distance = {}
    for fault, nearest in planted.items():
        monkeypatch.setattr(validation, "nearest", nearest)
        distance[fault] = float((rows.fitted(near, 200, None).density - whole).abs().mean())
    assert distance["none"] < 0.01
    assert min(distance["columns"], distance["few"]) > 0.1


def test_exact_kernels_are_conditioned_on_at_most_so_many_rows(monkeypatch):
    rows, exact = validation_of(rfgp.GP(seed=0), *waves(2100)), candidate(RBF, rfgp.Exact())
    assert rows.num_given(exact, 200) == 1680
    monkeypatch.setattr(validation, "MOST_EXACT", 300)
    assert rows.num_given(exact, 200) == 300


# --- starts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_features", [False, True])
def test_neighbors_start_at_the_optimum_of_another_kernel(with_features):
    """The start has the other candidate's hyperparameters and draw, under its own kernel."""
    rows = validation_of(rfgp.GP(seed=0), *waves(200), given_iterations=8)
    one, other = (
        candidate(RBF + kernel, FIXED, NEAR) if with_features else candidate(kernel, NEAR) for kernel in (MATERN, ROUGH)
    )
    found = rows.fitted(one, 100, None)
    begun = validation.start_of(rows.begun, other, rows.rows, found)
    values = begun.hyperparameters, found.regression.hyperparameters
    assert values[0].equals(values[1])
    assert "nu=0.5" in repr(begun.family.options.kernel)
    if with_features:
        families = begun.family, found.regression.family
        assert torch.equal(*(each.prior(values[1]).dense.scaled(rows.rows.inputs) for each in families))
    assert rows.plan_of(other, found).is_begun


def test_variants_start_at_the_fit_of_their_head(monkeypatch):
    """But learned frequencies start anew, and so do candidates of another kind."""
    starts, original = {}, validation.Validation.fitted

    def fitted(self, one, size, start):
        starts.setdefault(one.name, start if validation.is_warm(one, start) else None)
        return original(self, one, size, start)

    monkeypatch.setattr(validation.Validation, "fitted", fitted)
    gp = among(
        candidate(RBF + MATERN, FIXED, NEAR),
        candidate(RBF + ROUGH, FIXED, NEAR, head=0),
        candidate(RBF + MATERN, LEARNED, NEAR, head=0),
        candidate(k.Matern(nu=1.5), rfgp.InducingPoints(8, method="sor", residual=NEAR), head=0),
    )
    gp.fit(*waves(150), max_iterations=4)
    assert [start is None for start in starts.values()].count(False) == 1
    assert starts["RBF, 4 frequencies + Matern 1/2, 8 neighbors"] is not None
    assert len(starts) == 4


def test_variants_on_all_rows_are_fitted_as_if_alone():
    X, y = waves(100)
    one, other = (candidate(kernel, NEAR) for kernel in (MATERN, ROUGH))
    rows = validation_of(rfgp.GP(seed=0), X, y, holds_out=False)
    found = rows.fitted(other, 100, rows.fitted(one, 100, None))
    assert found.is_whole
    alone = rfgp.GP(ROUGH, approximation=NEAR, seed=0).fit(X, y)
    assert found.report.trace == alone.fit_report.trace


# --- fits to all rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("share", "is_conditioned"), [(0.8, True), (0.81, False)])
def test_frequencies_learned_from_most_rows_are_conditioned(monkeypatch, share, is_conditioned):
    """Four fifths of 300 rows are fitted to; the report is that of all rows."""
    fits, fit = [], select.fit_terms
    monkeypatch.setattr(validation, "MOST", share)
    monkeypatch.setattr(select, "fit_terms", lambda begun, plan: fits.append(plan) or fit(begun, plan))
    favored(monkeypatch, lambda one: one.learns_frequencies)
    X, y = waves(300)
    gp = among(ALONE, candidate(RBF, LEARNED)).fit(X, y, max_iterations=20)
    assert "learned" in gp.selection.chosen.name
    assert [plan.has_rivals for plan in fits] == ([] if is_conditioned else [True])
    assert ("conditioned on 300" in gp.fit_report.message) == is_conditioned
    assert gp.num_observations == 300
    assert gp.fit_report.log_marginal_likelihood == pytest.approx(gp.log_marginal_likelihood().item(), abs=1e-6)
    values = np.linalg.eigvalsh(gp.prior_covariance(X).detach().numpy())
    used = np.sum(values / (values + gp.hyperparameters.noise.item())) / 8  # a cosine and a sine of each frequency
    assert gp.fit_report.weights_used == pytest.approx(used, rel=1e-5)
    before = gp.predict(X[:5]).mean
    np.testing.assert_allclose(gp.condition(X, y).predict(X[:5]).mean, before, atol=1e-8)


def test_only_frequencies_alone_are_conditioned_without_a_fit():
    alone, beside = candidate(RBF, LEARNED), candidate(RBF + MATERN, LEARNED, NEAR)
    assert validation.is_conditioned_only(alone, 240, 300)
    assert not validation.is_conditioned_only(alone, 209, 300)
    assert not validation.is_conditioned_only(beside, 240, 300)


def test_sums_with_several_optima_are_searched_anew(monkeypatch):
    plans, fit = [], select.fit_terms
    monkeypatch.setattr(select, "fit_terms", lambda begun, plan: plans.append(plan) or fit(begun, plan))
    favored(monkeypatch, lambda one: one.is_sum and not one.learns_frequencies)
    gp = among(candidate(RBF + MATERN, FIXED, NEAR), candidate(RBF, LEARNED)).fit(*table(120), max_iterations=3)
    assert "neighbors" in gp.selection.chosen.name
    assert [plan.is_begun for plan in plans] == [False]


def test_heads_lend_their_fit_to_neighbors_of_their_kind():
    made = rounds(rfgp.GP(seed=0), *waves(2100))
    named = {state.candidate.name: state for state in made.states}
    head = named["Matern 3/2, 30 neighbors"]
    head.fitted = "a fit"
    assert named["Matern 1/2, 30 neighbors"].fitted_of(head) == "a fit"
    assert named["Matern 3/2, 512 inducing points, 30 neighbors"].fitted_of(head) is None
