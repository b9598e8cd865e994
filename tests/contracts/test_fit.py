"""Fits along each path of a search: their end, report, arguments, checkpoints and time limits.

A new path of a search gets a line in `PATHS`.
"""

import copy
import re
import time
from collections import namedtuple
from functools import cache, partial

import numpy as np
import pytest
import torch
import trimesh

import graphs
import rfgp
from rfgp import kernels as k
from tests.support.refusals import refused

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning", "ignore::graphs.GraphWarning")


# --- data ------------------------------------------------------------------------------------------


def table(count=60, columns=2, noise=0.2, seed=0):
    """Return rows and a smooth function of them with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (count, columns))
    return X, 3 + np.sin(2 * X[:, 0]) + 0.5 * X[:, -1] + noise * rng.standard_normal(count)


def series(count=100, seed=0):
    """Return times and targets of a trend with a season."""
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(0, 20, count))
    return t[:, None], 0.1 * t + np.sin(2 * np.pi * t / 1.7) + 0.2 * rng.standard_normal(count)


def counts(count=60, columns=2):
    """Return rows and counts."""
    X, y = table(count, columns)
    return X, np.random.default_rng(1).poisson(np.exp(y - 2)).astype(float)


def classes(count=60, num_classes=2):
    """Return rows and classes."""
    X, y = table(count)
    return X, np.digitize(y, np.quantile(y, np.arange(1, num_classes) / num_classes)).astype(float)


def nodes(count=36):
    """Return nodes of a grid and targets."""
    seen = np.random.default_rng(6).permutation(64)[:count]
    return seen, np.sin(seen / 5) + 0.1 * np.random.default_rng(7).standard_normal(count)


def vertices(count=50):
    """Return vertices of a ball and targets."""
    X = BALL.vertices[np.random.default_rng(3).choice(len(BALL.vertices), count, replace=False)]
    return X, np.sin(2 * X[:, 0]) + X[:, 2] + 0.1 * np.random.default_rng(5).standard_normal(count)


GRID, BALL = graphs.Graph.from_grid((8, 8)), trimesh.creation.icosphere(2)

# --- paths of a search -----------------------------------------------------------------------------

Path = namedtuple("Path", "make data limits optimal likelihood", defaults=({}, "*", "gaussian"))
"""A model, data, the limits with which few rows take the path, and the hyperparameters that end at an optimum."""


def gp_of(approximation="auto", kernel=None, **options):
    """Return a model of a kernel, an RBF if there is none."""
    return rfgp.GP(kernel or k.RBF(), approximation=approximation, seed=0, **options)


def of(kernel, approximation, data, likelihood="gaussian", limits=None, optimal="*", **options):
    make = partial(rfgp.GP, kernel, likelihood, approximation, **options)
    return Path(make, data, limits or {}, optimal, likelihood)


MATERN, SMOOTH, WITH_ROUGH = k.Matern(nu=1.5), k.RBF(), k.RBF(name="a") + k.Matern(nu=0.5, name="b")
FEATURES, NEAR, LATTICE = rfgp.RandomFeatures(16), rfgp.Vecchia(6, condition_on="responses"), rfgp.EquispacedFourier()
LEARNED, VARIANCES = rfgp.RandomFeatures(6, learn_frequencies=True), "noise outputscale"
PATHS = {
    "exact": of(MATERN, rfgp.Exact(), table),
    "exact sum": of(k.Linear(1, name="line") + k.RBF(0), rfgp.Exact(), table),
    "exact outputs": of(SMOOTH, rfgp.Exact(), lambda: (table()[0], np.stack([table()[1], table(seed=1)[1]], 1))),
    "period": of(
        k.Periodic(0, period=1.5, learn_period=True) + k.Linear(0), rfgp.Exact(), series, optimal="noise lengthscale"
    ),
    "features": of(SMOOTH, FEATURES, partial(table, 200)),
    "more features than rows": of(SMOOTH, rfgp.RandomFeatures(40), table),
    "subsets": of(SMOOTH, FEATURES, partial(table, 900), limits={"subset_rows": 100}, optimal=VARIANCES),
    "learned": of(SMOOTH, LEARNED, partial(table, 220), optimal=""),
    "inducing": of(MATERN, rfgp.InducingPoints(12), partial(table, 100)),
    "residual": of(MATERN, rfgp.InducingPoints(8, residual=rfgp.Vecchia(5)), partial(table, 80), optimal=VARIANCES),
    "neighbors": of(MATERN, NEAR, partial(table, 120), optimal=VARIANCES),
    "some with neighbors": of(MATERN, NEAR, partial(table, 200), limits={"neighbor_rows": 40}, optimal=""),
    "features and neighbors": of(WITH_ROUGH, {"a": FEATURES, "b": NEAR}, partial(table, 120)),
    "learned and neighbors": of(WITH_ROUGH, {"a": LEARNED, "b": NEAR}, partial(table, 220), optimal=""),
    "latent neighbors": of(MATERN, rfgp.Vecchia(6, condition_on="latent"), table, optimal=VARIANCES),
    "lattice": of(SMOOTH, LATTICE, partial(table, 300, 1), limits={"lattice_rows": 100}),
    "sparse sum": of(
        k.Matern(0, nu=1.5) + k.Linear(0), rfgp.SparsePrecision(), partial(series, 200), limits={"subset_rows": 60}
    ),
    "chain": of(k.Matern(0, nu=1.5), rfgp.SparsePrecision(), partial(series, 300), limits={"subset_rows": 80}),
    "poisson": of(SMOOTH, FEATURES, counts, "poisson"),
    "poisson on a lattice": of(SMOOTH, LATTICE, partial(counts, 80, 1), "poisson"),
    "variational": of(SMOOTH, FEATURES, classes, "bernoulli", inference="variational"),
    "student-t": of(SMOOTH, FEATURES, table, "student-t"),
    "noise process": of(SMOOTH, FEATURES, table, "heteroscedastic"),
    "categorical": of(SMOOTH, FEATURES, partial(classes, 60, 3), "categorical", inference="laplace"),
    "nodes": Path(partial(rfgp.GraphGP, GRID, graphs.kernels.Diffusion(1.5), features="exact"), nodes),
    "walks": Path(partial(rfgp.GraphGP, GRID, features="walks", num_walkers=8), nodes, optimal=VARIANCES),
    "mesh": Path(partial(rfgp.MeshGP, BALL, 2), vertices),
}
"""A model for each path of a search."""
SLOW = (
    "learned and neighbors",
    "features and neighbors",
    "learned",
    "residual",
    "noise process",
    "categorical",
    "variational",
    "student-t",
    "latent neighbors",
    "walks",
    "mesh",
    "poisson on a lattice",
    "lattice",
)


def each(paths):
    """Return a mark that runs a test along paths, of which some are slow."""
    cases = [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in paths]
    return pytest.mark.parametrize("path", cases)


each_path = each(PATHS)
with_units = each([name for name in PATHS if PATHS[name].likelihood in ("gaussian", "student-t", "heteroscedastic")])


def make(path, options=None):
    """Return the model of a path with further options."""
    return PATHS[path].make(seed=0, **(options or {}))


def fit(path, X=None, y=None, *, options=None, **arguments):
    """Return a model that was fitted along a path, with changed data and options."""
    case = PATHS[path]
    given = case.data()
    with rfgp.testing.limits(**case.limits):
        return make(path, options).fit(given[0] if X is None else X, given[1] if y is None else y, **arguments)


@cache
def fitted(path):
    """Return a fitted model, which no test may change, and the arguments of its callback."""
    told = []
    return fit(path, callback=lambda *arguments: told.append(arguments)), told


def log_posterior(gp):
    return (gp.log_marginal_likelihood() + gp.hyperparameters.log_prior()).item()


def entries(gp, names="*"):
    """Yield the raw numbers of hyperparameters by name, as one-dimensional tensors that can be changed."""
    for name, raw in gp.hyperparameters.raw.items():
        if names == "*" or name.rpartition("/")[2] in names.split():
            for place in range(raw.numel()):
                yield name.replace("/", "."), raw.data.view(-1)[place : place + 1]


@each_path
def test_no_hyperparameter_can_be_improved(path):
    gp = copy.deepcopy(fitted(path)[0])
    assert gp.fit_report.converged
    with rfgp.testing.limits(**PATHS[path].limits):
        best = log_posterior(gp)
        for name, raw in entries(gp, PATHS[path].optimal):
            for step in (-0.3, 0.3):
                raw += step
                gain = log_posterior(gp) - best
                raw -= step
                assert name in gp.fit_report.at_bounds or name.endswith("period") or gain < 0.2, (name, step)


@each_path
def test_report_is_that_of_the_fit(path):
    gp, told = fitted(path)
    report = gp.fit_report
    assert report.log_marginal_likelihood == pytest.approx(gp.log_marginal_likelihood().item(), rel=1e-6)
    assert report.iterations == sum(stage.iterations for stage in report.stages)
    assert report.evaluations == sum(stage.evaluations for stage in report.stages) >= report.iterations
    assert [call[0] for call in told] == list(range(1, len(told) + 1))
    assert len(told) >= report.iterations - 1
    for stage, part in report.traces():
        assert part[-1] - part[0] == pytest.approx(stage.gain * stage.rows, rel=0.3, abs=1e-6)
    if PATHS[path].optimal == "*" and "neighbors" not in path and len({stage.rows for stage in report.stages}) == 1:
        assert max(report.trace) == pytest.approx(log_posterior(gp), abs=0.1)
    is_checked = path not in ("chain", "sparse sum") and "learned" not in path
    if type(gp) is rfgp.GP and PATHS[path].likelihood == "gaussian" and is_checked:
        left, y = gp.leave_one_out(), PATHS[path].data()[1]
        assert report.mean_squared_zscore == pytest.approx(((y - left.mean) ** 2 / left.variance).mean(), rel=1e-5)
        assert report.leave_one_out == pytest.approx(left.log_prob.mean(), rel=1e-5)


@each_path
def test_killed_fit_resumes_and_ends_at_the_same_likelihood(path, tmp_path):
    gp, told = fitted(path)

    def kill(iteration, value):
        if iteration >= 0.9 * len(told):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(path, callback=kill, checkpoint=tmp_path / "c")
    left, finished = [], []
    again = fit(path, checkpoint=tmp_path / "c", callback=lambda *iteration: left.append(iteration))
    ends = [one.fit_report.log_marginal_likelihood / len(PATHS[path].data()[1]) for one in (again, gp)]
    assert len(left) < len(told) or ends[0] > ends[1]  # a search that begins again may leave a ridge
    assert ends[0] > ends[1] - 0.005  # new neighbors are tried if a search gains 0.002 nats a row
    assert again.fit_report.iterations == sum(stage.iterations for stage in again.fit_report.stages)
    third = fit(path, checkpoint=tmp_path / "c", callback=lambda *iteration: finished.append(iteration))
    assert not finished
    assert third.fit_report == again.fit_report


@each_path
def test_fixed_values_stay_and_priors_are_obeyed(path):
    """A tight log-normal prior has its mode next to e^mu. Nothing is searched if everything is fixed."""
    values = fitted(path)[0].hyperparameters
    length = next(name for name in values.names if name.rpartition(".")[2] not in ("outputscale", "noise", "mean"))
    fixed = next(name for name in values.names if name.endswith("outputscale"))
    wanted, held = 1.3 * values[length].detach(), 0.7 * values[fixed].detach()
    options = {"priors": {length: torch.distributions.LogNormal(wanted.log(), 0.01)}}
    is_general = type(fitted(path)[0]) is rfgp.GP
    options |= {"start": {length: wanted, fixed: held}} if is_general else {"outputscale": held.item()}
    found = fit(path, fixed=fixed, options=options).hyperparameters
    np.testing.assert_allclose(found[length].detach(), wanted, rtol=0.03)
    np.testing.assert_allclose(found[fixed].detach(), held, rtol=1e-6)
    if "learned" not in path:
        gp, alone = fit(path, fixed="*"), make(path).condition(*PATHS[path].data())
        assert gp.fit_report.iterations == 0
        for name in gp.hyperparameters.names:
            np.testing.assert_allclose(gp.hyperparameters[name].detach(), alone.hyperparameters[name].detach())


@each_path
def test_search_ends_when_time_is_over(path):
    """The first iteration takes longer than the limit."""
    told = []

    def wait(*iteration):
        told.append(iteration)
        time.sleep(0.1)

    with pytest.warns(rfgp.ConvergenceWarning, match="time_limit"):
        gp = fit(path, options={"time_limit": 0.1}, callback=wait)
    assert len(told) <= 2  # the second is that of another search
    assert not gp.fit_report.converged
    assert "the time limit passed" in gp.fit_report.message
    X, _ = PATHS[path].data()
    assert np.isfinite(gp.predict(X[:5]).mean).all()
    assert np.isfinite(gp.fit_report.log_marginal_likelihood)


@with_units
def test_units_of_a_target_do_not_matter(path):
    X, y = PATHS[path].data()
    gp, other = fitted(path)[0].predict(X[:20]), fit(path, y=1e6 * y).predict(X[:20])
    np.testing.assert_allclose(other.mean / 1e6, gp.mean, atol=3e-3)
    np.testing.assert_allclose(other.std / 1e6, gp.std, rtol=1e-2)


# --- what fits find --------------------------------------------------------------------------------

EACH = {
    "exact": rfgp.Exact(),
    "features": rfgp.RandomFeatures(64),
    "inducing": rfgp.InducingPoints(60),
    "residual": rfgp.InducingPoints(15, residual=rfgp.Vecchia(8)),
    "neighbors": rfgp.Vecchia(8),
    "chain": rfgp.SparsePrecision(),
}


@pytest.mark.parametrize("name", EACH)
def test_a_fast_function_is_found(name):
    """Nine periods. The usual start, one standard deviation of the column, explains nothing."""
    x = np.linspace(0, 1, 200)[:, None]
    f = np.sin(18 * np.pi * x[:, 0])
    gp = gp_of(EACH[name], k.Matern(nu=2.5)).fit(x[::2], f[::2] + 0.1 * np.random.default_rng(0).standard_normal(100))
    assert rfgp.metrics.rmse(f[1::2], gp.predict(x[1::2])) < 0.12


@pytest.mark.parametrize("name", ["exact", "neighbors"])
def test_noise_is_not_explained_by_short_lengthscales(name):
    rng = np.random.default_rng(1)
    X, y = rng.standard_normal((120, 2)), rng.standard_normal(120)
    gp = gp_of(EACH[name], k.Matern(nu=2.5)).fit(X, y)
    assert gp.hyperparameters.noise > 0.5 * y.var()


def test_few_scoring_steps_find_the_optimum_on_many_rows():
    X, y = series(2400)
    with rfgp.testing.limits(subset_rows=800):
        gp = gp_of(rfgp.SparsePrecision(), k.Matern(0, nu=1.5)).fit(X, y)
    *_, last = gp.fit_report.stages
    assert (last.name, last.rows) == ("all rows", 2400)
    assert last.evaluations <= 12


def test_subsets_grow_until_their_gain_is_small(limits):
    X, y = table(1500)
    for gain, rows in ((10.0, [100, 400]), (-1.0, [100, 400, 1500])):
        limits(subset_rows=100, min_subset_gain=gain)
        gp = gp_of(FEATURES).fit(X, y)
        assert sorted({stage.rows for stage in gp.fit_report.stages}) == rows


@pytest.mark.parametrize("change", ["noise", "sample_weight", "fixed", "prior"])
def test_variances_without_a_closed_form_are_optimal_on_all_rows(change, limits):
    limits(subset_rows=100, min_subset_gain=1.0)
    given = {"noise": np.full(900, 0.05), "sample_weight": np.full(900, 3.0), "fixed": "outputscale"}
    priors = {"noise": torch.distributions.LogNormal(-2.0, 0.1)} if change == "prior" else {}
    gp = rfgp.GP(SMOOTH, approximation=FEATURES, priors=priors, start={"outputscale": 0.8}, seed=0)
    gp.fit(*table(900), **({change: given[change]} if change in given else {}))
    objective = gp.log_marginal_likelihood() + gp.hyperparameters.log_prior()
    (slope,) = torch.autograd.grad(objective, [gp.hyperparameters.raw["noise"]])
    assert abs(slope.item()) < 3
    assert (gp.hyperparameters.outputscale.item() == pytest.approx(0.8, rel=1e-9)) == (change == "fixed")


@pytest.mark.slow
def test_scales_of_all_terms_are_optimal_on_all_rows(limits):
    limits(subset_rows=100, min_subset_gain=1.0)
    X, y = table(900)
    rows = {"a": X[:, 0], "b": X[:, 1], "site": np.random.default_rng(1).choice(list("pqr"), 900)}
    kernel = k.RBF("a", name="a") + k.Linear("b", name="b") + k.Group("site", name="site")
    gp = rfgp.GP(kernel, approximation=FEATURES, seed=0).fit(rows, y + (rows["site"] == "p"))
    for name in ("noise", "a/outputscale", "b/variance", "site/outputscale"):
        (slope,) = torch.autograd.grad(gp.log_marginal_likelihood(), [gp.hyperparameters.raw[name]])
        assert slope.abs().max() < 1, name


@pytest.mark.slow
def test_little_noise_in_single_precision():
    """Products of float32 features alone doubled the noise, with an indefinite matrix."""
    X, y = table(6000, noise=0.003)
    gp = gp_of(rfgp.RandomFeatures(64)).fit(X.astype(np.float32), y.astype(np.float32))
    assert gp.hyperparameters.noise.item() ** 0.5 == pytest.approx(0.003, rel=0.1)
    assert gp.fit_report.mean_squared_zscore == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize("approximation", [rfgp.Exact(), FEATURES], ids=repr)
def test_single_precision_does_not_stop_a_search(approximation):
    X, y = table(120)
    gp, double = (gp_of(approximation).fit(X.astype(kind), y.astype(kind)) for kind in (np.float32, float))
    assert gp.fit_report.converged
    assert gp.fit_report.log_marginal_likelihood == pytest.approx(double.fit_report.log_marginal_likelihood, abs=0.5)


def test_few_rows_start_with_the_exact_kernel_and_end_with_features():
    first, *_, last = fitted("more features than rows")[0].fit_report.stages
    assert first.name == "all rows, exact kernel"
    assert last.name.startswith("all rows")
    assert "exact" not in last.name


def test_a_column_without_a_slope_comes_back():
    """The slope in the log lengthscale there is 10^-8 times that of a relevant column."""
    X, y = table(noise=0.05)
    gp = rfgp.ExactGP(lengthscale=[1.0, 9e3]).fit(X, y)
    assert gp.hyperparameters.lengthscale[1] < 100
    np.testing.assert_allclose(gp.predict(X).mean, y, atol=0.2)


@pytest.mark.parametrize("start", [3.2, 10.0])
@pytest.mark.parametrize("trend", [False, True])
def test_learned_periods_are_found_within_their_bounds(start, trend):
    x = np.linspace(0, 20, 120)
    y = np.sin(x) + 0.3 * np.random.default_rng(0).standard_normal(120) + 0.1 * x * trend
    season = k.Periodic("x", start, learn_period=True, name="season")
    gp = rfgp.GP(season + k.RBF("x") if trend else season, seed=0).fit({"x": x}, y)
    assert gp.hyperparameters["season.period"].item() == pytest.approx(2 * np.pi, abs=0.1)


@pytest.mark.parametrize(("kernel", "approximation", "least"), [
    (SMOOTH, rfgp.Exact(), 1e-10),
    (SMOOTH, rfgp.Vecchia(5, condition_on="latent"), 1e-8),
    (SMOOTH, rfgp.InducingPoints(8, method="vfe"), 1e-6),
    (SMOOTH, LEARNED, 1e-6),
    (WITH_ROUGH, {"a": FEATURES, "b": NEAR}, 1e-10),
])  # fmt: skip
def test_least_noise_is_that_of_the_approximation(kernel, approximation, least):
    X, y = table(32)
    gp = rfgp.GP(kernel, approximation=approximation, seed=0).condition(X, y)
    low, high = gp.hyperparameters.quantities["noise"].bounds
    assert float(low) == pytest.approx(least, rel=1e-5)
    assert float(high) == pytest.approx(100, rel=1e-5)


@pytest.mark.parametrize("kernel", [SMOOTH, k.RationalQuadratic(), k.Linear() + SMOOTH], ids=repr)
@pytest.mark.filterwarnings("error::rfgp.JitterWarning")
def test_exact_models_interpolate_simulators(kernel):
    (X, y), (new, y_new) = table(60, noise=0.0), table(300, noise=0.0, seed=1)
    gp = rfgp.GP(kernel, approximation=rfgp.Exact(), seed=0).fit(X, y)
    assert np.abs(gp.predict(X).mean - y).max() < 1e-4
    assert rfgp.metrics.rmse(y_new, gp.predict(new)) < 2e-3


# --- lattices --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "columns", "planned"), [
    (SMOOTH, 2, "EquispacedFourier"),
    (k.RBF(0) + k.RBF(1) + k.Periodic(0, 0.3), 2, "EquispacedFourier"),
    pytest.param(k.Matern(nu=0.5, lengthscale=0.05), 3, "Vecchia", marks=pytest.mark.slow),
    (SMOOTH, 4, "RandomFeatures"),
])  # fmt: skip
def test_terms_of_few_columns_are_planned_on_lattices(kernel, columns, planned):
    """A lattice would omit too many modes of a rough kernel in three columns."""
    gp = rfgp.GP(kernel, seed=0).condition(*table(2500, columns))
    found = {type(term.approximation).__name__ for term in gp.terms.values()}
    assert planned in found
    assert ("EquispacedFourier" in found) == (planned == "EquispacedFourier")


@pytest.mark.slow
def test_planned_lattices_with_too_many_modes_become_neighbors():
    """The features suffice for the starting lengthscale, and not for that of the rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (3000, 2))
    y = np.sin(X @ rng.normal(size=(2, 40)) / 0.02).sum(1) + rng.normal(size=3000)
    gp = rfgp.GP(k.Matern(nu=1.5), seed=0).fit(X, y)
    assert isinstance(gp.terms["matern"].approximation, rfgp.Vecchia)
    given = gp_of(rfgp.EquispacedFourier(max_features=150), k.Matern(nu=1.5))
    with pytest.warns(rfgp.PoorFeaturesWarning, match="too few"):
        given.fit(X, y)


# --- learned frequencies and points ----------------------------------------------------------------


def hard(count=1500):
    """Return a function of far more waves than 8 frequencies can follow."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((count, 4))
    omega, a = rng.standard_normal((60, 4)) * 1.2, rng.standard_normal(60) / np.sqrt(30)
    return X, np.sin(X @ omega.T + rng.uniform(0, 6, 60)) @ a + 0.1 * rng.standard_normal(count)


@pytest.mark.slow
def test_learned_frequencies_lower_the_error_of_few_features():
    X, y = hard(3000)
    fixed, learned = (
        gp_of(rfgp.RandomFeatures(32, learn_frequencies=is_learned)).fit(X[:2500], y[:2500])
        for is_learned in (False, True)
    )
    a, b = (rfgp.metrics.rmse(y[2500:], model.predict(X[2500:])) for model in (fixed, learned))
    assert b < 0.7 * a
    assert (fixed.fit_report.frequencies, learned.fit_report.frequencies) == ("fixed", "learned")
    stage, trace = learned.fit_report.traces()[-1]
    assert (stage.name, len(trace)) == ("learning frequencies", stage.iterations)


@pytest.mark.parametrize(("make", "steps", "words"), [
    (lambda: (np.random.default_rng(0).standard_normal((250, 4)), np.random.default_rng(1).standard_normal(250)), 40,
     "so the fixed ones were taken"),
    (lambda: table(200), 0, "no steps were allowed"),
    (lambda: table(199), 30, "199 rows are too few"),
])  # fmt: skip
@pytest.mark.slow
def test_fixed_frequencies_are_kept_for_noise_few_rows_and_no_steps(make, steps, words):
    X, y = make()
    model = gp_of(rfgp.RandomFeatures(8, learn_frequencies=True))
    with pytest.warns(rfgp.OverfittingWarning, match="rejected for fixed ones"):
        gp = model.fit(X, y, max_iterations=steps)
    assert gp.fit_report.learned_frequencies_rejected
    assert words in gp.fit_report.message


def test_frequencies_are_learned_at_fixed_hyperparameters():
    X, y = hard(600)
    start = {"lengthscale": 1.0, "noise": 0.3, "outputscale": 1.0, "mean": 0.0}
    model = rfgp.GP(SMOOTH, approximation=rfgp.RandomFeatures(12, learn_frequencies=True), start=start, seed=0)
    gp = model.fit(X, y, fixed="*", max_iterations=60)
    assert gp.fit_report.frequencies == "learned"
    for name, value in start.items():
        np.testing.assert_allclose(gp.hyperparameters[name].detach(), value, rtol=1e-6, atol=1e-12)


@pytest.mark.slow
def test_scales_of_features_beside_neighbors_are_bounded_unless_given():
    """A line in columns with little effect. Without a bound of 4 variances the scale and the lengthscales grow."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 2))
    y = X @ [1.0, 2.0] + 0.1 * np.sign(np.sin(20 * X[:, 0])) + 0.05 * rng.standard_normal(200)
    used = {"a": rfgp.RandomFeatures(8, seed=0), "b": rfgp.Vecchia(8, seed=0)}
    kernel = k.RBF(name="a") + k.Matern(nu=1.5, name="b")
    given = gp_of(used, kernel, start={"a.outputscale": 2 * y.var()}).fit(X, y)
    free = gp_of(used, kernel).fit(X, y)
    assert free.hyperparameters.standardized("a.outputscale").item() == pytest.approx(4.0)
    assert "a.outputscale" in free.fit_report.at_bounds
    assert given.hyperparameters.standardized("a.outputscale").item() > 8.0


@pytest.mark.slow
def test_learned_points_are_better_than_chosen_ones():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (250, 2))
    y = np.sin(5 * X[:, 0]) * np.cos(4 * X[:, 1]) + 0.1 * rng.standard_normal(250)
    chosen, learned = (
        gp_of(rfgp.InducingPoints(15, residual=rfgp.Vecchia(8), learn_locations=is_learned), MATERN).fit(X, y)
        for is_learned in (False, True)
    )
    assert learned.fit_report.log_marginal_likelihood > chosen.fit_report.log_marginal_likelihood


# --- nodes -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_conjugate_gradients_end_near_the_optimum_of_dense_algebra():
    X, y = np.arange(64), np.sin(np.arange(64) / 5) + 0.2 * np.random.default_rng(7).standard_normal(64)
    model = lambda: rfgp.GraphGP(GRID, features="walks", num_walkers=32, seed=0)  # noqa: E731
    dense = model().fit(X, y)
    with rfgp.testing.limits(max_dense=0):
        gp = model().fit(X, y)
    assert gp.fit_report.converged
    assert gp.fit_report.iterations < 30
    assert gp.fit_report.likelihood_error > 0 == dense.fit_report.likelihood_error
    error = abs(gp.fit_report.log_marginal_likelihood - gp.log_marginal_likelihood().item())
    assert error < 6 * gp.fit_report.likelihood_error
    assert abs(dense.log_marginal_likelihood().item() - gp.log_marginal_likelihood().item()) < 1.5


@pytest.mark.parametrize("length", [None, 0.3])
def test_any_start_finds_clusters_of_nodes(length):
    """With constant functions the accuracy is 1/3 and the log marginal likelihood 12 log(1/3) = -13.2."""
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(3), 25)
    links = np.triu(rng.random((75, 75)) < np.where(truth[:, None] == truth, 0.25, 0.01), 1)
    graph = graphs.Graph.from_edges(np.argwhere(links), nodes=range(75))
    seen = np.concatenate([np.flatnonzero(truth == c)[:4] for c in range(3)])
    kernel = "diffusion" if length is None else graphs.kernels.Diffusion(length)
    gp = rfgp.GraphGP(graph, kernel, "exact", likelihood="categorical", seed=0)
    gp.fit(seen, truth[seen])
    assert gp.fit_report.log_marginal_likelihood > -12.5
    found = np.asarray(gp.predict(np.arange(75)).observed().probabilities).argmax(1)
    assert np.mean(found == truth) > 0.85


# --- warnings --------------------------------------------------------------------------------------


def outliers():
    X, y = table(80, noise=0.1)
    y[[7, 20, 50]] += [5.0, -5.0, 8.0]
    return X, y


def dispersed():
    X, f = table(300, 1, 0.0)
    rng = np.random.default_rng(2)
    return X, rng.poisson(np.exp(f - 1.5) * rng.gamma(1.0, 1.0, 300)).astype(float)


def sharp():
    X = np.random.default_rng(0).uniform(size=(200, 3))
    return X, np.tanh(20 * (X[:, 0] - 0.5 + 0.3 * X[:, 1])) + X[:, 2]


def fast():
    x = np.linspace(-3, 3, 400)[:, None]
    return x, np.sin(25 * x[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(400)


def ripple():
    X = np.random.default_rng(0).uniform(size=(220, 1))
    return X, np.sin(5 * X[:, 0]) + 0.006 * np.sin(80 * X[:, 0])


def wave():
    x = np.linspace(0, 20, 120)[:, None]
    return x, np.sin(x[:, 0])


SEASON = k.Periodic(0, 1.0, learn_period=True)
LONG, SHORT = k.RBF(lengthscale=30.0), k.RBF(lengthscale=0.3)
WARNINGS = {
    "few features": (lambda: gp_of(rfgp.RandomFeatures(8)).fit(*hard(600)), "VarianceStarvation", "starvation"),
    "structure in noise": (lambda: gp_of(rfgp.RandomFeatures(64), LONG).fit(*fast()), "Underfitting", "shorter"),
    "a ripple": (lambda: gp_of(rfgp.Exact(), SHORT).fit(*ripple(), fixed="lengthscale"), "Underfitting", "neighboring"),
    "sharp steps": (lambda: gp_of(rfgp.RandomFeatures(200), k.Matern()).fit(*sharp()), "PoorFeatures", "nats"),
    "many columns": (lambda: gp_of(rfgp.Exact()).fit(*table(40, 60)), "Overfitting", "observations"),
    "outliers": (lambda: gp_of(rfgp.Exact()).fit(*outliers()), "Outlier", "50"),
    "dispersed counts": (lambda: gp_of(likelihood="poisson").fit(*dispersed()), "Overdispersion", "negative-binomial"),
    "few iterations": (lambda: gp_of(rfgp.Exact()).fit(*table(), max_iterations=1), "Convergence", "max_iterations"),
    "few scoring steps": (lambda: fit("chain", max_iterations=1), "Convergence", "max_iterations"),
    "a period out of bounds": (lambda: gp_of(kernel=SEASON).fit(*wave()), "Term", "period"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in ("few features", "sharp steps"))) for n in WARNINGS]
)
def test_a_misleading_fit_warns(name):
    make, warning, words = WARNINGS[name]
    with pytest.warns(getattr(rfgp, f"{warning}Warning"), match=words):
        make()


@pytest.mark.filterwarnings("error::rfgp.RfgpWarning")
@pytest.mark.parametrize("approximation", [rfgp.RandomFeatures(128), rfgp.Exact(), rfgp.Vecchia(10)], ids=repr)
def test_a_sound_fit_does_not_warn(approximation):
    gp = gp_of(approximation).fit(*table(250, noise=0.3))
    assert gp.fit_report.outliers == ()
    assert abs(gp.fit_report.residual_autocorrelation) < 0.3


def test_outliers_are_named_by_row_and_saved(tmp_path):
    gp = gp_of(rfgp.InducingPoints(30)).fit(*outliers())
    assert gp.fit_report.outliers[:3] == (50, 20, 7)[: len(gp.fit_report.outliers)]
    gp.save(tmp_path / "model")
    assert rfgp.load(tmp_path / "model").fit_report == gp.fit_report


@pytest.mark.filterwarnings("error::rfgp.OverdispersionWarning")
@pytest.mark.parametrize("rate", [0.1, 1.0, 20.0])
def test_poisson_counts_are_not_called_overdispersed(rate):
    X, f = table(100, 1, 0.0)
    y = np.random.default_rng(5).poisson(rate * np.exp(f - 3))
    assert rfgp.GP(SMOOTH, "poisson", seed=0).fit(X, y).fit_report.dispersion_zscore < 4


# --- constant targets ------------------------------------------------------------------------------

ONE_COLUMN = np.linspace(0, 1, 30)[:, None]


@pytest.mark.parametrize("standardize", [True, False])
def test_condition_on_a_constant_has_the_exact_posterior(standardize):
    start = {"outputscale": 1.0, "noise": 0.01, "mean": 0.0}
    gp = rfgp.GP(k.RBF(lengthscale=0.2), start=start, standardize=standardize).condition(ONE_COLUMN, np.zeros(30))
    K = np.exp(-0.5 * (ONE_COLUMN - ONE_COLUMN.T) ** 2 / 0.04)
    variance = np.diag(K - K @ np.linalg.solve(K + 0.01 * np.eye(30), K))
    np.testing.assert_allclose(gp.predict(ONE_COLUMN).mean, 0, atol=1e-12)
    np.testing.assert_allclose(gp.predict(ONE_COLUMN).variance, variance, rtol=1e-6)
    with pytest.warns(rfgp.ConstantTargetWarning, match="scale"):
        rfgp.GP(SMOOTH, seed=0).condition(ONE_COLUMN, np.zeros(30))


@pytest.mark.parametrize(
    ("likelihood", "value"), [("poisson", 0), ("negative-binomial", 3), ("bernoulli", 1), ("categorical", 0)]
)
@pytest.mark.parametrize("kernel", [SMOOTH, "auto"], ids=["given", "auto"])
def test_constant_counts_and_labels_have_the_posterior_of_the_start(likelihood, value, kernel):
    y = np.full(30, float(value))
    expected = rfgp.GP(SMOOTH, likelihood, seed=0).condition(ONE_COLUMN, y).predict(ONE_COLUMN).observed()
    with pytest.warns(rfgp.ConstantTargetWarning, match="start"):
        gp = rfgp.GP(kernel, likelihood, seed=0).fit(ONE_COLUMN, y)
    np.testing.assert_allclose(gp.predict(ONE_COLUMN).observed().mean, expected.mean)


@pytest.mark.parametrize("likelihood", ["gaussian", "student-t", "heteroscedastic", "gamma"])
def test_a_fit_of_a_constant_names_condition(likelihood):
    refused(lambda: rfgp.GP(SMOOTH, likelihood, seed=0).fit(ONE_COLUMN, np.ones(30)), rfgp.DataError, "condition")


def test_equal_counts_over_different_exposures_are_fitted():
    gp, times = rfgp.GP(SMOOTH, "poisson", seed=0), 1 + 20 * ONE_COLUMN[:, 0]
    first, *_, last = gp.fit(ONE_COLUMN, np.full(30, 3.0), exposure=times).predict(ONE_COLUMN).observed().mean
    assert first > 3 * last


@pytest.mark.slow
def test_dense_kernels_of_graphs_begin_on_few_rows():
    """The search on all rows ends at an optimum all the same, if too many nodes are without a row for their algebra."""
    grid, rng = graphs.Graph.from_grid((40, 40)), np.random.default_rng(0)
    nodes = [(i, j) for i in range(40) for j in range(40) if (i + j) % 3]
    y = np.array([np.sin(i / 4) * np.cos(j / 5) for i, j in nodes]) + 0.1 * rng.standard_normal(len(nodes))
    gp = rfgp.GraphGP(grid, "diffusion", "exact", seed=0).fit(nodes, y)
    assert [stage.rows for stage in gp.fit_report.stages] == [500, len(nodes)]
    known = {name: gp.hyperparameters[name].item() for name in ("outputscale", "noise")}
    for factor in (0.97, 1.03):
        kernel = graphs.kernels.Diffusion(factor * gp.hyperparameters.lengthscale.item())
        other = rfgp.GraphGP(grid, kernel, "exact", seed=0, **known).condition(nodes, y)
        assert other.log_marginal_likelihood() < gp.log_marginal_likelihood() - 1e-3


# --- progress, time and threads --------------------------------------------------------------------


def test_progress_names_stages_and_times(capsys):
    told = []
    X, y = hard(300)
    model = gp_of(rfgp.RandomFeatures(8, learn_frequencies=True))
    model.fit(X, y, progress=told.append, max_iterations=20)
    assert [p.iteration for p in told if p.stage == "learning frequencies"] == list(range(1, 21))
    assert [p.seconds for p in told] == sorted(p.seconds for p in told)
    assert all(p.seconds_left >= 0 and p.rows <= 300 for p in told)
    assert {p.unit for p in told} == {"iterations", "blocks"}
    assert re.match(r"subset of 270, 270 rows: 1 of at most \d+ iterations, log density -\d", str(told[0]))
    rfgp.ExactGP().fit(*table(), progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "60 rows: 1 of at most 500 iterations" in err


@pytest.mark.parametrize("count", [3, 8])
def test_best_hyperparameters_before_the_limit_are_kept(count):
    def wait(iteration, value):
        time.sleep(1.0 * (iteration == count))

    gp = rfgp.GP(MATERN, approximation=rfgp.Exact(), time_limit=1.0, seed=0).fit(*table(), callback=wait)
    trace = gp.fit_report.trace
    assert "the time limit passed" in gp.fit_report.message
    assert gp.fit_report.log_marginal_likelihood == pytest.approx(max(trace), abs=1e-6)
    assert gp.fit_report.iterations <= count + 1


def test_checkpoint_of_a_limited_fit_is_continued(tmp_path):
    X, y = table(200)
    make = partial(rfgp.GP, SMOOTH, approximation=FEATURES, seed=0)
    whole = make().fit(X, y)  # what is compiled and solved once takes no time of the next
    make(time_limit=2.0).fit(X, y, checkpoint=tmp_path / "c", callback=lambda *_: time.sleep(0.5))
    size = (tmp_path / "c").stat().st_size
    again = make(time_limit=4000).fit(X, y, checkpoint=tmp_path / "c")
    assert (tmp_path / "c").stat().st_size > size
    assert again.fit_report.trace[-1] == pytest.approx(whole.fit_report.trace[-1], abs=1e-3)


# --- checkpoints -----------------------------------------------------------------------------------


class Counted:
    """A flat prior that counts its evaluations."""

    def __init__(self):
        self.count = 0

    def __repr__(self):
        return "Counted()"

    def log_prob(self, value):
        self.count += 1
        return 0 * value


def searched(path, kernel=SMOOTH, approximation=FEATURES, seed=0, priors=None, shift=0.0, scale=1.0, **arguments):
    """Return a model that was fitted with a checkpoint."""
    X, y = table(80)
    gp = rfgp.GP(kernel, approximation=approximation, priors=priors, seed=seed)
    return gp.fit(X + shift, y * scale, checkpoint=path, **arguments)


def test_finished_fit_is_read_from_its_checkpoint(tmp_path):
    priors = Counted(), Counted()
    one, two = (searched(tmp_path / "c", priors={"noise": prior}) for prior in priors)
    assert one.fit_report == two.fit_report
    assert priors[1].count < priors[0].count / 2


OTHERS = {
    "data": {"shift": 1e-9},
    "targets": {"scale": 1 + 1e-12},
    "kernel": {"kernel": k.RBF(ard=False)},
    "approximation": {"approximation": rfgp.RandomFeatures(9)},
    "seed": {"seed": 1},
    "prior": {"priors": {"noise": torch.distributions.LogNormal(-8.0, 0.5)}},
    "fixed": {"fixed": "noise"},
    "iterations": {"max_iterations": 7},
    "noise": {"noise": np.zeros(80)},
}


@pytest.mark.parametrize("change", OTHERS)
def test_checkpoint_of_another_fit_raises(change, tmp_path):
    searched(tmp_path / "c", max_iterations=3)
    before = (tmp_path / "c").read_bytes()
    refused(
        lambda: searched(tmp_path / "c", **({"max_iterations": 3} | OTHERS[change])),
        rfgp.CheckpointError,
        "another fit",
    )
    assert (tmp_path / "c").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("change", ["weights", "walkers"])
def test_checkpoint_of_another_graph_raises(change, tmp_path):
    def fit(weight, num_walkers):
        graph = graphs.Graph.from_edges([(i, (i + 1) % 30) for i in range(30)], [weight] * 30)
        gp = rfgp.GraphGP(graph, features="walks", num_walkers=num_walkers, seed=0)
        return gp.fit(np.arange(20), np.sin(np.arange(20.0)), checkpoint=tmp_path / "c", max_iterations=3)

    assert fit(1.0, 4).fit_report == fit(1.0, 4).fit_report
    other = (2.0, 4) if change == "weights" else (1.0, 8)
    refused(lambda: fit(*other), rfgp.CheckpointError, "another fit")


@pytest.mark.parametrize("content", [b"", b"x", b"PK\x03\x04" * 99, "its first line", "a folder", "a missing folder"])
def test_impossible_checkpoints_raise_and_are_unchanged(content, tmp_path):
    path = tmp_path / ("no/c" if content == "a missing folder" else "c")
    if content == "its first line":
        searched(path, max_iterations=1)
        content = path.read_bytes().split(b"\n")[0] + b"\n"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "a folder":
        path.mkdir()
    with pytest.raises(FileNotFoundError if content == "a missing folder" else rfgp.CheckpointError):
        searched(path, max_iterations=1)
    assert not isinstance(content, bytes) or path.read_bytes() == content


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_damaged_checkpoint_is_refused(damage, tmp_path):
    searched(tmp_path / "c")
    whole = (tmp_path / "c").read_bytes()
    for place in (len(whole) // 3, len(whole) - 9):
        end = b"" if damage == "cut" else bytes([whole[place] ^ 1]) + whole[place + 1 :]
        (tmp_path / "c").write_bytes(whole[:place] + end)
        before = (tmp_path / "c").read_bytes()
        refused(lambda: searched(tmp_path / "c"), rfgp.CheckpointError, "Delete it")
        assert (tmp_path / "c").read_bytes() == before


def test_full_disk_does_not_stop_a_fit(tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    plain = searched(tmp_path / "plain")
    monkeypatch.setattr("rfgp.files._replace", full)
    with pytest.warns(rfgp.CheckpointWarning, match="No space left on device.*continues without a checkpoint"):
        gp = searched(tmp_path / "c")
    assert gp.fit_report == plain.fit_report


# --- starts ------------------------------------------------------------------------------------------


def test_searches_do_not_begin_without_noise():
    """Of some hundred rows the likeliest noise may be 1e-8, where its gradient vanishes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    X /= np.linalg.norm(X, axis=1)[:, None]
    r = np.sqrt(3) * np.linalg.norm(X[:, None] - X[None], axis=-1) / 0.314
    y = 2 * np.linalg.cholesky((1 + r) * np.exp(-r) + 1e-9 * np.eye(400)) @ rng.normal(size=400)
    y += 0.3 * rng.normal(size=400)
    kernel = k.Matern(ard=False)
    ends = [rfgp.GP(kernel, approximation=rfgp.Exact(), seed=seed).fit(X, y) for seed in range(5)]
    found = [gp.fit_report.log_marginal_likelihood for gp in ends]
    assert np.ptp(found) < 0.1


# --- errors of inputs --------------------------------------------------------------------------------


def moved(error):
    """Return rows whose times have errors of a standard deviation, and targets with noise 0.1."""
    rng = np.random.default_rng(3)
    t = rng.uniform(0, 10, 150)
    return {"t": t + error * rng.normal(size=150)}, 3 * np.sin(t) + 0.1 * rng.normal(size=150)


@pytest.mark.parametrize(
    "approximation",
    [rfgp.Exact(), rfgp.InducingPoints(25), rfgp.RandomFeatures(40, seed=1)],
    ids=lambda a: type(a).__name__,
)
def test_errors_of_inputs_are_noise_times_squared_slopes(approximation):
    X, y = moved(0.2)
    plain, known, found = (rfgp.GP(k.RBF("t"), approximation=approximation, seed=0) for _ in range(3))
    t = torch.tensor(X["t"], requires_grad=True)
    (slopes,) = torch.autograd.grad(plain.fit(X, y).predict({"t": t}).mean.sum(), t)
    known.fit(X, y, noise=0.04 * slopes.numpy() ** 2)
    found.fit(X, y, input_noise={"t": 0.04})
    np.testing.assert_allclose(found.predict(X).std, known.predict(X).std, rtol=1e-6)
    assert plain.hyperparameters.noise.item() > 0.1
    assert found.hyperparameters.noise.item() < 0.04  # the truth is 0.01
    given = np.full(150, 0.04)
    each = rfgp.GP(k.RBF("t"), approximation=approximation, seed=0).fit(X, y, input_noise={"t": given})
    np.testing.assert_allclose(each.predict(X).mean, found.predict(X).mean, rtol=1e-9)


@pytest.mark.parametrize("bad", [{"t": -1.0}, {"t": np.ones(3)}, {"t": np.nan}, {"z": 1.0}])
def test_wrong_errors_of_inputs_are_refused(bad):
    refused(
        lambda: rfgp.GP(k.RBF("t"), seed=0).fit(*moved(0.1), input_noise=bad),
        rfgp.InvalidArgumentError,
        next(iter(bad)),
    )


def test_errors_of_inputs_need_gaussian_points():
    X, y = moved(0.1)
    for gp, more in (
        (rfgp.GP(k.RBF("t"), likelihood="student-t"), {}),
        (rfgp.GP(k.RBF("t")), {"average_over": np.arange(150)}),
    ):
        refused(
            lambda gp=gp, more=more: gp.fit(X, y, input_noise={"t": 1.0}, **more),
            rfgp.InvalidArgumentError,
            "input_noise",
        )
