"""Selections of `rfgp.GP(kernel="auto")`, as users see them."""

import warnings

import numpy as np
import pytest
import torch
from selection_cases import among, candidate, counts, favored, table

import rfgp
from rfgp import kernels as k
from rfgp.selection import successive_halving, validation
from rfgp.selection.groups import dominant_period
from rfgp.tables import Batches

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
FEATURES = rfgp.RandomFeatures(8)


def rebuilt(trial, **options):
    """Return the model of a trial, from its options as one writes them."""
    scope = {**vars(k), **vars(rfgp.approximations)}
    return rfgp.GP(**{name: eval(value, scope) for name, value in trial.options.items()}, **options)


def statuses(selection):
    return {trial.name: trial.status for trial in selection.trials}


def has_sum(trial):
    return "+" in trial.name


# --- scores ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("approximation", ["auto", rfgp.Vecchia(8)])
def test_scores_are_leave_one_out_densities_of_fits_alone(approximation):
    X, y = table(150)
    selection = rfgp.GP(approximation=approximation, seed=0).fit(X, y).selection
    assert (selection.validation, selection.num_validation) == ("leave-one-out", 150)
    assert selection.baselines.keys() == {"a constant"} | ({"a linear model"} if approximation == "auto" else set())
    for trial in (selection.chosen, next(trial for trial in selection.trials if "Matern 3/2" in trial.name)):
        alone = rebuilt(trial, seed=0).fit(X, y)
        assert trial.last.value == pytest.approx(alone.leave_one_out().log_prob.mean(), abs=2e-3)
        assert alone.selection is None


def test_equal_seeds_select_the_same_others_hold_out_others():
    X, y = table(120)
    learned = rfgp.RandomFeatures(8, learn_frequencies=True)
    candidates = [candidate(k.RBF(), approximation) for approximation in (FEATURES, learned)]
    one, two, other = (among(*candidates, seed=seed).fit(X, y, max_iterations=4) for seed in (0, 0, 1))
    assert one.selection == two.selection
    assert (one.selection.validation, one.selection.num_validation) == ("held out", 24)
    np.testing.assert_array_equal(one.predict(X).mean, two.predict(X).mean)
    assert other.selection.baselines != one.selection.baselines


def test_planted_densities_change_the_selection(monkeypatch):
    X, y = table()
    other = "exact Matern 1/2"
    assert rfgp.GP(seed=0).fit(X, y).selection.chosen.name != other
    favored(monkeypatch, lambda one: one.name == other)
    assert rfgp.GP(seed=0).fit(X, y).selection.chosen.name == other


def test_neighbors_are_selected_where_rows_have_near_twins():
    rng = np.random.default_rng(0)
    which = np.arange(240) % 120
    X = rng.uniform(-1, 1, (120, 2))[which] + 1e-3 * rng.standard_normal((240, 2))
    y = np.sin(2 * X[:, 0]) + rng.standard_normal(120)[which] + 0.05 * rng.standard_normal(240)
    smooth = candidate(k.RBF(), FEATURES)
    both = candidate(k.RBF(name="rbf") + k.Matern(nu=1.5, name="local"), FEATURES, rfgp.Vecchia(8))
    selection = among(smooth, both).fit(X, y, max_iterations=20).selection
    assert has_sum(selection.chosen)
    assert selection.chosen.last.value > min(trial.last.value for trial in selection.trials) + 0.3


@pytest.mark.parametrize("approximation", [rfgp.Exact(), FEATURES, rfgp.InducingPoints(7, method="fitc")])
def test_copies_of_rows_do_not_improve_scores(approximation):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (150, 2)), rng.standard_normal(150)
    gp = rfgp.GP(approximation=approximation, seed=0).fit(np.tile(X, (2, 1)), np.tile(y, 2), max_iterations=5)
    assert gp.num_observations == 300
    assert gp.selection.num_validation == 150
    assert all(trial.last.value < -1.2 for trial in gp.selection.trials if trial.scores)


LEVELS = np.repeat(np.arange(3), 20)
DESIGNS = {
    "categories": {"a": np.array(["lo", "mid", "hi"])[LEVELS]},
    "few numbers": {"a": LEVELS / 2},
    "booleans": {"a": LEVELS > 0},
    "categories and numbers": {"a": np.repeat(list("abcdefghijklmno"), 4), "size": np.repeat(np.arange(15) % 4, 4)},
    "two columns": {"a": np.array(["lo", "mid", "hi"])[LEVELS], "b": np.tile([0.0, 1.0], 30)},
}


@pytest.mark.filterwarnings("error::rfgp.BaselineNotBeatenWarning")
@pytest.mark.parametrize("design", DESIGNS)
def test_scores_of_designs_are_those_of_new_repeats(design):
    """Each level was predicted without any row of it, and the table called uninformative."""
    X, rng = DESIGNS[design], np.random.default_rng(0)
    f = 3 * np.sin(7.0 * np.unique(X["a"], return_inverse=True)[1])
    y, again = (f + 0.1 * rng.standard_normal(60) for _ in range(2))
    gp = among(*(candidate(kernel, rfgp.Exact()) for kernel in (k.RBF(), k.Matern()))).fit(X, y)
    assert gp.selection.chosen.last.value == pytest.approx(gp.predict(X).observed().log_prob(again).mean(), abs=0.3)


# --- candidates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("approximation", [FEATURES, rfgp.Vecchia(5), rfgp.InducingPoints(7, method="fitc")])
def test_a_given_approximation_is_that_of_all_candidates(approximation):
    gp = rfgp.GP(approximation=approximation, seed=0).fit(*table(60), max_iterations=2)
    assert len(gp.selection.trials) == 4
    assert all(repr(approximation) in trial.options["approximation"] for trial in gp.selection.trials)
    assert [term.approximation for term in gp.terms.values()] == [approximation]


def test_rows_in_blocks_are_kept_by_no_candidate():
    X, y = table(300)
    blocks = Batches([(X[:150], y[:150]), (X[150:], y[150:])])
    gp = rfgp.GP(seed=0).fit(blocks, max_iterations=1)
    assert all("frequencies" in name or name == "exact Linear" for name in statuses(gp.selection))
    assert gp.num_observations == 300


def test_a_single_candidate_is_not_scored():
    selection = among(candidate(k.RBF(), rfgp.Exact())).fit(*table(), max_iterations=1).selection
    assert selection.num_validation == 0
    assert "only candidate" in selection.reason


def test_candidates_that_fail_go_no_further(monkeypatch, tmp_path):
    original = validation.fit_terms

    def failing(state, plan):
        kernel = repr(state.spec.options.kernel)
        if "nu=0.5" in kernel and "+" not in kernel:
            raise rfgp.SolverError("planted")
        found, report = original(state, plan)
        if "+" in kernel:
            noise = {"noise": torch.tensor(float("nan"), dtype=torch.float64)}
            found = found.replace(hyperparameters=found.hyperparameters.replaced(noise))
        return found, report

    monkeypatch.setattr(validation, "fit_terms", failing)
    gp = rfgp.GP(seed=0).fit(*table(), max_iterations=3)
    status = statuses(gp.selection)
    assert status["exact Matern 1/2"] == "planted"
    assert "not positive definite" in status["exact RBF + Matern 3/2"]
    assert gp.selection.chosen.name in ("exact RBF", "exact Matern 3/2")
    gp.save(tmp_path / "model", data=True)


def test_errors_of_all_candidates_are_raised(limits):
    limits(first_rows=20)
    with pytest.raises(rfgp.InvalidArgumentError, match="nois"):
        rfgp.GP(seed=0).fit(*table(60), fixed="nois")


@pytest.mark.parametrize(
    "options",
    [{}, {"likelihood": "poisson", "n": 120}, {"approximation": rfgp.RandomFeatures(32)}],
)
def test_a_weekly_effect_is_found_by_every_selection(limits, options):
    """Beyond 2,000 rows (here 150) of more than three columns, and under counts, it was noise."""
    limits(few_rows=150)
    rng, n = np.random.default_rng(0), options.pop("n", 300)
    X = {"day": np.datetime64("2024-01-01") + np.arange(n)} | {name: rng.standard_normal(n) for name in "abc"}
    f = 1 + np.array([1.0, -1.0, 0.4, -1.0, 1.0, 0.5, -0.9])[np.arange(n) % 7] + 0.2 * X["a"]
    y = rng.poisson(np.exp(f)).astype(float) if "likelihood" in options else f + 0.3 * rng.standard_normal(n)
    fitted = rfgp.GP(seed=0, **options).fit(X, y, max_iterations=15)
    assert "Periodic 7" in fitted.selection.chosen.name
    assert np.std(fitted.predict(X).mean - f) < 0.25 * np.std(f)


# --- models and options ---------------------------------------------------------------------------------


def test_select_is_the_selection_of_fit_and_keeps_the_model():
    X, y = counts()
    times = np.random.default_rng(1).uniform(0.5, 2, len(y))
    gp = rfgp.GP(likelihood="poisson", seed=0)
    selection = gp.select(X, y, exposure=times)
    assert repr(gp) == "GP(likelihood=Poisson(), seed=0, not fitted)"
    assert gp.selection is None
    assert gp.fit(X, y, exposure=times).selection == selection
    with pytest.raises(rfgp.InvalidArgumentError, match="nothing to select"):
        rfgp.GP(k.RBF()).select(X, y)


def test_conditioning_takes_one_kernel_whatever_the_rows():
    X = np.random.default_rng(0).standard_normal((2001, 2))
    few, many = (rfgp.GP(seed=0).condition(X[:n], np.sin(X[:n, 0])) for n in (2000, 2001))
    assert list(few.terms) == list(many.terms) == ["rbf"]
    assert few.selection is None
    assert isinstance(many.terms["rbf"].approximation, rfgp.EquispacedFourier)
    assert few.log_marginal_likelihood().item() == pytest.approx(few.exact().log_marginal_likelihood().item(), abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_limit": "soon"}, "time_limit"),
        ({"time_limit": -1}, "time_limit"),
        ({"memory": "4 boxes"}, "memory"),
        ({"kernel": k.RBF(), "time_limit": "soon"}, "time_limit"),
        ({"approximation": {"rbf": rfgp.Exact()}}, "names of terms"),
        ({"kernel": "automatic"}, "kernel"),
        ({"approximation": "fourier"}, "approximation"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        rfgp.GP(**options)


# --- limits ---------------------------------------------------------------------------------------------


def test_limits_leave_out_costly_candidates_but_not_all():
    X, y = table()
    least = min(trial.seconds for trial in rfgp.GP(seed=0).select(X, y).trials)
    low = 1.01 * least / successive_halving.MAX_FRACTION
    for options, word in (({"time_limit": low}, "predicted time"), ({"memory": "300kb"}, "predicted memory")):
        trials = rfgp.GP(seed=0, **options).fit(X, y, max_iterations=2).selection.trials
        assert {word in trial.status for trial in trials} == {True, False}
        assert all(trial.scores for trial in trials if not trial.status)
    assert rfgp.GP(seed=0, time_limit=1e-9).fit(X, y, max_iterations=2).selection.chosen.seconds == least


def test_progress_names_candidates_with_seconds():
    stages = []
    rfgp.GP(seed=0).fit(*table(), max_iterations=2, progress=lambda now: stages.append(now.stage))
    assert any(stage.startswith("selection, 1 of 10, exact") and " about " in stage for stage in stages)


# --- baselines ------------------------------------------------------------------------------------------


def test_noise_does_not_beat_a_constant():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((100, 2)), rng.standard_normal(100)
    with pytest.warns(rfgp.BaselineNotBeatenWarning, match="a constant"):
        gp = rfgp.GP(seed=0).fit(X, y)
    assert gp.selection.unbeaten_baseline == "a constant"
    with warnings.catch_warnings():
        warnings.simplefilter("error", rfgp.BaselineNotBeatenWarning)
        assert rfgp.GP(seed=0).fit(*table()).selection.unbeaten_baseline is None


@pytest.mark.parametrize("n", [10, 60])
def test_a_line_is_found(n):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, 1))
    gp = rfgp.GP(seed=0).fit(X, -50_000 * X[:, 0])
    assert "Linear" in gp.selection.chosen.name
    assert gp.predict([[3.0]]).mean[0] == pytest.approx(-150_000, rel=1e-3)


@pytest.mark.parametrize(
    ("target", "proposal"),
    [
        (lambda y: np.round(np.exp(y / 5)) * (y > 5), "poisson"),
        (lambda y: np.where(y > 5, "yes", "no") == "yes", "bernoulli"),
        (lambda y: np.round(y) + 20, None),
        (lambda y: y, None),
    ],
)
def test_other_likelihoods_are_proposed_and_not_taken(target, proposal):
    X, y = table(60)
    reason = rfgp.GP(seed=0).select(X, target(y).astype(float)).reason
    assert [word for word in ("poisson", "bernoulli") if word in reason] == ([proposal] if proposal else [])


def test_few_of_many_columns_are_found():
    rng = np.random.default_rng(3)
    X, new = rng.standard_normal((60, 80)), rng.standard_normal((500, 80))
    gp = rfgp.GP(seed=0).fit(X, 2 * X[:, 4] - X[:, 9] + 0.3 * rng.standard_normal(60))
    assert gp.selection.chosen.name.endswith("few columns")
    assert gp.selection.validation == "5 folds"
    observed, y = gp.predict(new).observed(), 2 * new[:, 4] - new[:, 9] + 0.3 * rng.standard_normal(500)
    assert np.mean((observed.mean - y) ** 2) < 0.3 * 0.5
    printed = gp.selection.chosen.last
    assert abs(printed.value - observed.log_prob(y).mean()) < 3 * printed.error


def test_seasons_of_dates_are_candidates():
    """Ten years of months with a trend and a season; the last two are predicted."""
    months = np.arange("2010-01", "2020-01", dtype="datetime64[M]").astype("datetime64[D]")
    t = np.arange(120)
    y = 0.2 * t + 3 * np.sin(2 * np.pi * t / 12) + 0.2 * np.random.default_rng(0).standard_normal(120)
    gp = rfgp.GP(seed=0, validate="forward").fit({"month": months[:96]}, y[:96])
    assert gp.selection.validation == "the last rows"
    assert "Periodic" in gp.selection.chosen.name
    assert np.sqrt(np.mean((gp.predict({"month": months[96:]}).mean - y[96:]) ** 2)) < 0.6


@pytest.mark.parametrize("spacing", ["regular", "irregular"])
def test_season_of_a_numeric_column_is_found(spacing):
    """Fifteen years; the following three are predicted. Without the season the error is that of its amplitude, 2."""
    rng = np.random.default_rng(4)
    t = np.arange(180) / 12 if spacing == "regular" else np.sort(rng.uniform(0, 15, 180))
    y = 0.3 * t + 3 * np.sin(2 * np.pi * t) + 0.3 * rng.standard_normal(180)
    gp, new = rfgp.GP(seed=0).fit(t[:, None], y), np.linspace(15, 18, 37)
    assert "Periodic" in gp.selection.chosen.name
    error = np.asarray(gp.predict(new[:, None]).mean) - 0.3 * new - 3 * np.sin(2 * np.pi * new)
    assert np.sqrt(np.mean(error**2)) < 0.4


@pytest.mark.parametrize("series", ["noise", "line", "constant", "one place", "wide gaps"])
def test_no_period_is_found_without_a_wave(series):
    x, rng = np.arange(200.0), np.random.default_rng(2)
    y = {"noise": rng.standard_normal(200), "line": 3 * x, "constant": np.ones(200)}.get(series, np.sin(x))
    if series == "one place":
        x = np.ones(200)
    if series == "wide gaps":
        x, y = np.r_[np.linspace(0, 1e-3, 5), 1:8], y[:12]
    assert dominant_period(x, y) is None


def test_period_of_a_grid_is_a_multiple_of_its_gap():
    x = np.delete(np.arange(120.0), [4, 50, 51])
    assert dominant_period(x, 0.1 * x + np.sin(2 * np.pi * x / 12)) == 12.0
    assert dominant_period(x, np.sin(2 * np.pi * x / 12.5)) == pytest.approx(12.5, rel=2e-3)


# --- tables of all kinds --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["outputs", "float32", "weights", "noise", "poisson", "tensor", "heteroscedastic"])
def test_tables_of_all_kinds_are_selected_on(kind):
    X, y = counts(50) if kind == "poisson" else table(50, outputs=2 if kind == "outputs" else 1)
    options = {"likelihood": kind} if kind in ("poisson", "heteroscedastic") else {}
    more = {"weights": {"sample_weight": np.arange(1.0, 51.0)}, "noise": {"noise": np.full(50, 0.01)}}.get(kind, {})
    if kind == "float32":
        X, y = X.astype(np.float32), y.astype(np.float32)
    if kind == "tensor":
        X, y = torch.from_numpy(X), torch.from_numpy(y)
    gp = rfgp.GP(seed=0, **options).fit(X, y, max_iterations=5, **more)
    scores = [trial.last.value for trial in gp.selection.trials if trial.scores]
    assert len(scores) > 1
    assert np.isfinite(scores).all()
    assert np.isfinite(np.asarray(gp.predict(X).mean)).all()
    assert (gp.selection.baselines == {}) == bool(options)
