"""The model of terms against dense algebra, and what it does with tables, terms and approximations."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from gp_cases import KERNELS, NAMES, NEW, ROWS, SLOPE, SPACE, TREND, Y, model, start_of, table, twin
from model_checks import assert_gradients

import rfgp
from rfgp import kernels as k
from rfgp.inference.conditioned import ConditionedGP


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("case", KERNELS)
def test_models_agree_with_dense_algebra(case, standardize):
    gp, exact = model(case, standardize=standardize).condition(ROWS, Y), twin(case)
    assert gp.log_marginal_likelihood().item() == pytest.approx(exact.log_marginal_likelihood(), rel=1e-9)
    prediction = gp.predict(NEW)
    assert list(prediction.terms) == NAMES[case]
    total = 4.5 + sum(exact.mean(name) for name in NAMES[case])
    np.testing.assert_allclose(prediction.mean, total, rtol=1e-8)
    covariance = sum(exact.cross_covariance(a, b) for a in NAMES[case] for b in NAMES[case])
    np.testing.assert_allclose(prediction.covariance, covariance, atol=1e-8)
    np.testing.assert_allclose(prediction.variance, np.diag(covariance), atol=1e-8)
    for name, term in prediction.terms.items():
        np.testing.assert_allclose(term.mean, exact.mean(name), atol=1e-8)
        np.testing.assert_allclose(term.covariance, exact.cross_covariance(name, name), atol=1e-8)
        np.testing.assert_allclose(term.variance, np.diag(exact.cross_covariance(name, name)), atol=1e-8)
        for other in NAMES[case]:
            found = prediction.cross_covariance(name, other)
            np.testing.assert_allclose(found, exact.cross_covariance(name, other), atol=1e-8)


@pytest.mark.parametrize("case", KERNELS)
def test_gradients_are_those_of_differences(case):
    assert_gradients(model(case).condition(ROWS, Y))


@pytest.mark.parametrize("case", ["two smooth", "season and groups", "every kind"])
def test_containers_give_the_same_model(case):
    expected = model(case).condition(ROWS, Y).predict(NEW)
    frame = pd.DataFrame(ROWS).assign(store=lambda f: f.store.astype("category"))
    for rows, new in ((frame, pd.DataFrame(NEW)), (frame[[*reversed(frame.columns)]], NEW)):
        found = model(case).condition(rows, Y).predict(new)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
        np.testing.assert_allclose(found.std, expected.std, rtol=1e-10)
    by_name = model(case).condition(frame.assign(units=Y), "units").predict(NEW)
    np.testing.assert_allclose(by_name.mean, expected.mean, rtol=1e-12)


def test_arrays_are_read_by_number():
    rows, new = (np.column_stack([source["t"], source["p"]]) for source in (ROWS, NEW))
    named = rfgp.GP(k.RBF("t") + k.Linear("p"), seed=0).condition({"t": rows[:, 0], "p": rows[:, 1]}, Y)
    gp = rfgp.GP(k.RBF(0) + k.Linear(1), seed=0).condition(rows, Y)
    expected = named.predict({"t": new[:, 0], "p": new[:, 1]}).mean
    np.testing.assert_allclose(gp.predict(new).mean, expected, rtol=1e-12)
    tensor = gp.predict(torch.tensor(new)).mean
    assert isinstance(tensor, torch.Tensor)
    np.testing.assert_allclose(tensor, expected, rtol=1e-12)


def test_kernels_without_columns_read_all_but_the_target():
    frame = pd.DataFrame({name: ROWS[name] for name in ("t", "p")}).assign(units=Y)
    gp = rfgp.GP(k.RBF(), seed=0).condition(frame, "units")
    assert gp.kernel.terms()[0].factors[0].columns == ("t", "p")
    assert gp.hyperparameters.lengthscale.shape == (2,)


def test_predictions_are_differentiable_in_numbers():
    gp = model("two smooth").condition(ROWS, Y)
    x = {name: torch.tensor(NEW[name]).requires_grad_() for name in ("t", "p", "q")}
    gp.predict(x).mean.sum().backward()
    step = 1e-6
    ends = [
        gp.predict({**{n: v.detach() for n, v in x.items()}, "t": x["t"].detach() + s * step}).mean for s in (1, -1)
    ]
    np.testing.assert_allclose(x["t"].grad, (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-7)


# --- levels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("approximation", [rfgp.Exact(), rfgp.RandomFeatures(16)])
@pytest.mark.parametrize("case", ["season and groups", "a trend of each store", "categories", "every kind"])
def test_new_levels_have_their_prior_and_share_it(case, approximation):
    gp = model(case, approximation).condition(ROWS, Y)
    points = {key: np.repeat(NEW[key][:1], 4) for key in NEW} | {"store": np.array(["x", "x", "y", "a"])}
    prediction = gp.predict(points)
    (name,) = [n for n in NAMES[case] if n in ("store", "own", "category")]
    found, prior = prediction.terms[name].covariance, gp.prior_covariance(points) * 0
    scale = start_of(case)[f"{name}.outputscale"]
    assert prior.shape == (4, 4)
    if name == "category":
        shared = gp.predict({**points, "store": np.array(["z"] * 4)}).terms[name].covariance[0, 1]
        assert shared == pytest.approx(found[0, 0])
        assert found[0, 1] == pytest.approx(found[0, 0])
        assert found[0, 2] < found[0, 0] - 0.6 * scale
    elif name == "store":
        np.testing.assert_allclose(found[:2, :2], scale, rtol=1e-10)
        np.testing.assert_allclose(found[0, 2:], 0, atol=1e-12)
    else:
        np.testing.assert_allclose(found[:2, :2], scale, rtol=0.5)
        np.testing.assert_allclose(found[0, 2:], 0, atol=1e-10)
        assert prediction.terms[name].mean[0] == pytest.approx(0, abs=1e-12)
    draws = prediction.terms[name].sample(2000, seed=0)
    np.testing.assert_allclose(draws[:, 0], draws[:, 1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("step", ["condition", "update"])
@pytest.mark.parametrize("predicts_before", [True, False])
def test_rows_with_new_levels_are_learned_from(step, predicts_before):
    more = {key: np.concatenate([ROWS[key], NEW[key]]) for key in ROWS}
    new = {**NEW, "store": np.array(["z"] * 5 + ["a"] * 4)}
    more["store"] = np.concatenate([ROWS["store"], new["store"]])
    y = np.concatenate([Y, np.full(9, 12.0)])
    expected = model("season and groups").condition(more, y).predict(new)
    gp = model("season and groups", standardize=False).condition(ROWS, Y)
    if predicts_before:
        assert len(gp.predict(NEW).mean) == 9
    gp = gp.condition(more, y) if step == "condition" else gp.update(new, y[60:])
    found = gp.predict(new)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-8)
    np.testing.assert_allclose(found.std, expected.std, rtol=1e-8)
    assert gp.num_observations == 69


def test_new_levels_of_a_term_with_a_value_for_each_need_a_fit():
    gp = model("coregionalization").condition(ROWS, Y)
    before = gp.predict(NEW).mean
    with pytest.raises(rfgp.InvalidArgumentError, match=r"loadings.*new ones.*Fit again"):
        gp.update({**NEW, "store": ["z"] * 9}, Y[:9])
    np.testing.assert_array_equal(gp.predict(NEW).mean, before)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")
def test_covariances_of_levels_are_fitted(rank):
    gp = rfgp.GP(k.Coregionalization("store", rank=rank) * k.RBF("t"), seed=0).fit(ROWS, Y, max_iterations=5)
    assert gp.hyperparameters.loadings.shape == (3, rank)


def test_terms_of_several_outputs_have_one_variance():
    gp = rfgp.GP(KERNELS["season and groups"], seed=0).condition(ROWS, np.column_stack([Y, 3 * Y[::-1]]))
    expected = [gp.hyperparameters.standardized(f"{name}.outputscale").item() for name in NAMES["season and groups"]]
    assert [term.variance for term in gp.kernel.terms()] == pytest.approx(expected)


# --- what was learned ------------------------------------------------------------------------------


def test_a_fit_finds_planted_terms():
    rng = np.random.default_rng(11)
    rows = table(400, 11)
    effects = {"a": 1.0, "b": -1.0, "c": 0.3}
    true = np.sin(rows["t"]) + 0.4 * (rows["p"] - 3) + np.vectorize(effects.get)(rows["store"])
    y = 2 + true + 0.1 * rng.normal(size=400)
    kernel = k.RBF("t", name="trend") + k.Linear("p", name="slope") + k.Group("store", name="store")
    for approximation in ("auto", rfgp.RandomFeatures(32)):
        gp = rfgp.GP(kernel, approximation=approximation, seed=0).fit(rows, y)
        assert gp.fit_report.converged
        assert gp.hyperparameters.noise.item() == pytest.approx(0.01, rel=0.4)
        terms = gp.predict(rows).terms
        for name, truth in (("trend", np.sin(rows["t"])), ("slope", 0.4 * (rows["p"] - 3))):
            found = terms[name].centered()
            z = (found.mean - (truth - truth.mean())) / found.std
            assert np.abs(z).max() < 6  # 400 strongly dependent values with 4 digits of false alarm each
            assert found.std.max() < 0.1
        share = {name: term.share for name, term in gp.terms.items()}
        assert sum(share.values()) == pytest.approx(1)
        assert min(share.values()) > 0.1


def test_hyperparameters_are_read_and_set_by_path():
    gp = model("two smooth").condition(ROWS, Y)
    assert gp.hyperparameters["trend.lengthscale"].item() == pytest.approx(1.7)
    np.testing.assert_allclose(gp.hyperparameters["space.lengthscale"].detach(), (2.0, 0.6))
    assert gp.hyperparameters.noise.item() == pytest.approx(0.07)
    before = gp.predict(NEW).mean
    gp.hyperparameters["trend.lengthscale"] = 0.5
    assert not np.allclose(gp.predict(NEW).mean, before)
    other = rfgp.GP(KERNELS["two smooth"], start=start_of("two smooth") | {"trend.lengthscale": 0.5}, seed=0)
    np.testing.assert_allclose(gp.predict(NEW).mean, other.condition(ROWS, Y).predict(NEW).mean, rtol=1e-10)


def test_fixed_names_and_patterns_keep_their_starts():
    gp = model("two smooth").fit(ROWS, Y, fixed=("*.lengthscale", "noise"))
    assert gp.hyperparameters["trend.lengthscale"].item() == pytest.approx(1.7)
    np.testing.assert_allclose(gp.hyperparameters["space.lengthscale"].detach(), (2.0, 0.6))
    assert gp.hyperparameters.noise.item() == pytest.approx(0.07)
    assert gp.hyperparameters["trend.outputscale"].item() != pytest.approx(0.4, rel=1e-3)
    with pytest.raises(rfgp.InvalidArgumentError, match="hyperparameter"):
        model("two smooth").fit(ROWS, Y, fixed=("nu",))


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize("kernel", [k.RBF(), "auto"], ids=["given", "auto"])
@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
def test_a_zero_mean_is_not_learned(kernel, likelihood):
    X = np.linspace(0, 1, 30)[:, None]
    y = np.round(8 + 3 * np.sin(9 * X[:, 0]))
    gp = rfgp.GP(kernel, likelihood, mean="zero", seed=0).fit(X, y, max_iterations=5)
    assert gp.hyperparameters.mean.item() == pytest.approx(0, abs=1e-12)


def test_priors_are_set_by_path():
    tight = torch.distributions.LogNormal(torch.tensor(0.0), torch.tensor(0.01))
    kernel = k.RBF("t", name="trend") + k.RBF("p", name="other")
    gp = rfgp.GP(kernel, priors={"trend.lengthscale": tight}, seed=0).fit(ROWS, Y)
    assert gp.hyperparameters["trend.lengthscale"].item() == pytest.approx(1.0, rel=0.05)


def test_the_kernel_of_a_model_is_resolved_on_its_data():
    gp = model("every kind").condition(ROWS, Y)
    kernel = gp.kernel
    assert [term.name for term in kernel.terms()] == NAMES["every kind"]
    prior = gp.prior_covariance(NEW)
    scales = {path: value for path, value in start_of("every kind").items() if "scale" in path or "variance" in path}
    np.testing.assert_allclose(kernel.matrix(ROWS, NEW, values=scales).shape, (60, 9))
    np.testing.assert_allclose(kernel.matrix(NEW, values=scales), prior, rtol=1e-9)
    refit = rfgp.GP(kernel, start=start_of("every kind"), seed=0).condition(ROWS, Y)
    assert refit.log_marginal_likelihood().item() == pytest.approx(gp.log_marginal_likelihood().item(), rel=1e-10)


def test_approximations_are_exchanged_on_the_same_data():
    exact = model("every kind", rfgp.Exact()).condition(ROWS, Y)
    near = exact.with_approximation({"space": rfgp.RandomFeatures(512)})
    assert near.terms["space"].approximation == rfgp.RandomFeatures(512)
    assert near.terms["trend"].approximation == rfgp.Exact()
    np.testing.assert_allclose(near.predict(NEW).mean, exact.predict(NEW).mean, atol=0.05)
    np.testing.assert_array_equal(near.exact().predict(NEW).mean, exact.predict(NEW).mean)
    kl = rfgp.metrics.kl_divergence(exact.predict(NEW), near.predict(NEW))
    rough = exact.with_approximation({"space": rfgp.RandomFeatures(8)})
    assert 0 < kl < 0.3 * rfgp.metrics.kl_divergence(exact.predict(NEW), rough.predict(NEW))
    of_term = [
        rfgp.metrics.kl_divergence(*(gp.predict(NEW).terms["space"].observed() for gp in (exact, other)))
        for other in (near, rough)
    ]
    assert 0 < of_term[0] < 0.3 * of_term[1]
    with pytest.raises(rfgp.InvalidArgumentError, match=r"'store'.*finitely many functions"):
        exact.with_approximation({"store": rfgp.RandomFeatures(8)})
    with pytest.raises(rfgp.InvalidArgumentError, match="no term 'spacy'"):
        exact.with_approximation({"spacy": rfgp.Exact()})


def test_copies_and_pickles_are_whole():
    gp = model("every kind").condition(ROWS, Y)
    prediction = gp.predict(NEW)
    for other in (copy.copy(gp), copy.deepcopy(gp), pickle.loads(pickle.dumps(gp))):
        np.testing.assert_array_equal(other.predict(NEW).mean, prediction.mean)
    again = pickle.loads(pickle.dumps(prediction))
    np.testing.assert_array_equal(again.terms["store"].std, prediction.terms["store"].std)


def test_several_outputs_share_the_kernel():
    y = np.column_stack([Y, 3 * Y[::-1]])
    gp = rfgp.GP(KERNELS["season and groups"], seed=0).fit(ROWS, y)
    prediction = gp.predict(NEW)
    assert prediction.mean.shape == (9, 2)
    assert prediction.terms["store"].mean.shape == (9, 2)
    total = sum(term.mean for term in prediction.terms.values())
    np.testing.assert_allclose(prediction.mean - total, np.broadcast_to(prediction.mean[:1] - total[:1], (9, 2)))
    assert prediction.cross_covariance("trend", "store").shape == (9, 9, 2)


# --- what cannot be --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "rbf"}, "kernel must be a kernel"),
        ({"kernel": TREND, "likelihood": "cauchy"}, "cauchy"),
        ({"kernel": TREND, "approximation": "nystrom"}, "approximation must be"),
        ({"kernel": TREND, "approximation": {"trend": "exact"}}, "approximation of 'trend'"),
        ({"kernel": TREND, "mean": "linear"}, "mean must be one of"),
        ({"kernel": TREND, "start": [1.0]}, "start must be a dict"),
        ({"kernel": TREND, "inference": "laplace"}, "laplace"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        rfgp.GP(**options)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: rfgp.GP(k.RBF("x")), rfgp.DataError, "no column 'x'"),
        (lambda: rfgp.GP(k.RBF("store")), rfgp.DataError, "'store'"),
        (lambda: rfgp.GP(k.Group("p")), rfgp.DataError, "'p'"),
        (lambda: rfgp.GP(TREND, start={"nu": 1.0}), rfgp.InvalidArgumentError, "nu"),
        (lambda: rfgp.GP(TREND + SPACE, start={"lengthscale": 1.0}), rfgp.InvalidArgumentError, "lengthscale"),
        (lambda: rfgp.GP(TREND, start={"lengthscale": -1.0}), rfgp.InvalidArgumentError, "positive"),
        (lambda: rfgp.GP(TREND, priors={"nu": None}), rfgp.InvalidArgumentError, "nu"),
        (lambda: rfgp.GP(2.0 * SLOPE), rfgp.InvalidArgumentError, "no output scale"),
        (lambda: rfgp.GP(TREND, approximation={"season": rfgp.Exact()}), rfgp.InvalidArgumentError, "no term 'season'"),
        (lambda: rfgp.GP(SLOPE, approximation=rfgp.RandomFeatures(8)), rfgp.InvalidArgumentError, "finitely many"),
    ],
)
def test_impossible_models_are_refused_and_stay_unchanged(make, error, message):
    gp = make()
    with pytest.raises(error, match=message):
        gp.fit(ROWS, Y)
    assert "not fitted" in repr(gp)


def test_predictions_at_bad_points_are_named():
    gp = model("season and groups").condition(ROWS, Y)
    with pytest.raises(rfgp.DataError, match="store"):
        gp.predict({"t": [1.0]})
    with pytest.raises(rfgp.DataError, match="'t'"):
        gp.predict({"t": [np.nan], "store": ["a"]})
    with pytest.raises(rfgp.InvalidArgumentError, match="trend"):
        gp.predict(NEW).of("trendy")
    with pytest.raises(rfgp.InvalidArgumentError):
        gp.predict(NEW).of()


@pytest.mark.parametrize("approximation", [rfgp.Exact(), rfgp.RandomFeatures(6), rfgp.Vecchia(5)], ids=repr)
@pytest.mark.parametrize(("dtype", "far"), [(np.float64, 1e200), (np.float32, 1e30)])
def test_rows_too_far_for_squares_are_refused(approximation, dtype, far):
    """Such rows had predictions of NaN, or errors of other packages."""
    rows = np.column_stack([ROWS["t"], ROWS["p"]]).astype(dtype)
    kernel = k.Periodic(0, period=2.0) + k.RBF(1)
    gp = rfgp.GP(kernel, approximation=approximation, seed=0).condition(rows, Y.astype(dtype))
    new = rows[:3].copy()
    new[1, 0] = far
    with pytest.raises(rfgp.DataError, match=r"row 1\. Check its unit"):
        gp.predict(new)
    new[1, 0] = 1e4
    assert np.isfinite(gp.predict(new).mean).all()


@pytest.mark.parametrize("case", ["season and groups", "every kind"])
def test_terms_report_their_effective_degrees_of_freedom(case):
    gp, exact = model(case, rfgp.Exact()).condition(ROWS, Y), twin(case)
    for name, term in gp.terms.items():
        expected = np.trace(np.linalg.solve(exact.total, exact.covariance(name, "rows", "rows")))
        assert term.degrees_of_freedom == pytest.approx(expected, rel=1e-6)
    total = sum(term.degrees_of_freedom for term in gp.terms.values())
    assert total == pytest.approx(60 - 0.07 * np.trace(np.linalg.inv(exact.total)), rel=1e-6)


@pytest.mark.parametrize("approximation", [
    rfgp.Exact(), rfgp.RandomFeatures(256), rfgp.EquispacedFourier(tolerance=1e-8), rfgp.Vecchia(30),
], ids=lambda one: type(one).__name__)  # fmt: skip
@pytest.mark.parametrize("count", [80, 600])
def test_degrees_of_freedom_are_those_of_the_present_rows(approximation, count):
    rng = np.random.default_rng(0)
    first, later = np.sort(rng.uniform(0, 2, count)), np.sort(rng.uniform(5, 25, count))
    gp = rfgp.GP(k.RBF(0, lengthscale=1.0), approximation=approximation, start={"noise": 0.1}, seed=0)
    gp.condition(first[:, None], np.sin(first)).condition(later[:, None], np.sin(later))
    variance, noise = (getattr(gp.hyperparameters, name).item() for name in ("outputscale", "noise"))
    K = variance * np.exp(-((later[:, None] - later) ** 2) / 2)
    expected = np.trace(np.linalg.solve(K + noise * np.eye(count), K))
    assert gp.terms["rbf(0)"].degrees_of_freedom == pytest.approx(expected, rel=0.02 if count == 80 else 0.1)


def test_degrees_of_freedom_are_not_negative(monkeypatch):
    """A sum over a sample of rows may be below 0."""
    x = np.linspace(0, 1, 20)
    gp = rfgp.GP(k.RBF(), approximation=rfgp.Exact()).condition(x[:, None], x)
    monkeypatch.setattr(ConditionedGP, "cross_covariance", lambda self, x, *names: -torch.eye(len(x)).double())
    assert [term.degrees_of_freedom for term in gp.terms.values()] == [0.0]


@pytest.mark.parametrize("method", ["sor", "fitc", "vfe"])
def test_degrees_of_freedom_of_inducing_points_are_bounded(method):
    """Planted: with the residual variance of 300 rows there would be more than the exact process has."""
    x = np.sort(np.random.default_rng(0).uniform(0, 20, 300))[:, None]
    start = {"noise": 0.1, "outputscale": 1.0, "lengthscale": 1.0}
    exact = rfgp.GP(k.RBF(), approximation=rfgp.Exact(), start=start, seed=0).condition(x, np.sin(x[:, 0]))
    few, many = (
        exact.with_approximation(rfgp.InducingPoints(m, method=method)).terms["rbf"].degrees_of_freedom for m in (6, 60)
    )
    assert 4 < few < 6
    assert many == pytest.approx(exact.terms["rbf"].degrees_of_freedom, rel=0.02)


@pytest.mark.parametrize("approximation", [
    rfgp.RandomFeatures(32), rfgp.InducingPoints(40), rfgp.EquispacedFourier(),
], ids=lambda one: type(one).__name__)  # fmt: skip
def test_costs_are_of_the_features_that_terms_have(approximation):
    rng = np.random.default_rng(0)
    t = rng.uniform(0, 9, 3000)
    kernel = k.RBF(0, lengthscale=0.2, name="f") + k.Periodic(0, 2.0, name="g")
    gp = rfgp.GP(kernel, approximation=approximation, start={"noise": 0.1}, seed=0).condition(t[:, None], np.sin(t))
    gp.hyperparameters["f.lengthscale"] = 1.0
    for rows in (3000, 30):
        if rows < 3000:
            gp.condition(t[:rows, None], np.sin(t[:rows]))
        for block in gp.state.prior().weights:
            cost = gp.terms[block.name].cost
            assert cost.num_features == block.num_features
            assert f"{block.num_features} " in cost.note


def test_a_budget_of_features_is_divided_by_degrees_of_freedom():
    rng = np.random.default_rng(3)
    rows = {"a": rng.uniform(0, 1, 500), "b": rng.uniform(0, 1, 500)}
    y = np.sin(40 * rows["a"]) + 0.5 * rows["b"] + 0.05 * rng.normal(size=500)
    kernel = k.RBF("a", name="rough") + k.RBF("b", name="smooth")
    gp = rfgp.GP(kernel, approximation=rfgp.RandomFeatures(), budget=200, seed=0).fit(rows, y)
    rough, smooth = (gp.terms[name] for name in ("rough", "smooth"))
    counts = [term.approximation.num_frequencies for term in (rough, smooth)]
    assert sum(counts) == pytest.approx(100, abs=2)
    ratio = rough.degrees_of_freedom / smooth.degrees_of_freedom
    assert ratio > 3
    assert counts[0] / counts[1] == pytest.approx(ratio, rel=0.35)
    own = {"smooth": rfgp.RandomFeatures(7), "rough": rfgp.RandomFeatures(9)}
    kept = rfgp.GP(kernel, approximation=own, budget=200, seed=0).condition(rows, y)
    assert kept.terms["smooth"].approximation == rfgp.RandomFeatures(7)
    with pytest.raises(rfgp.InvalidArgumentError, match="budget"):
        rfgp.GP(kernel, budget=0)


def test_terms_that_the_data_do_not_determine_are_warned_of():
    X = {"t": np.linspace(0, 5, 40), "id": [f"row {i}" for i in range(40)]}
    y = np.sin(X["t"])
    with pytest.warns(rfgp.TermWarning, match=r"period of periodic\(t\) in the term 'season' is longer than the data"):
        rfgp.GP(k.Periodic("t", 12.0, name="season"), seed=0).condition(X, y)
    with pytest.warns(rfgp.TermWarning, match=r"Every level of group\(id\) in the term 'own' has one row"):
        rfgp.GP(k.RBF("t") + k.Group("id", name="own"), seed=0).condition(X, y)


def test_models_beyond_memory_are_refused_before_allocation():
    rows = {"t": np.linspace(0, 1, 3000)}
    gp = rfgp.GP(k.RBF("t", name="trend"), approximation=rfgp.Exact(), memory=1e8, seed=0)
    with pytest.raises(rfgp.InvalidArgumentError, match=r"'trend' takes 0.134 GiB by a covariance matrix of 3000 rows"):
        gp.fit(rows, rows["t"])
    huge = rfgp.GP(k.RBF("t"), approximation=rfgp.RandomFeatures(10**7), seed=0)
    with pytest.raises(rfgp.InvalidArgumentError, match=r"must fit into .* GiB"):
        huge.condition(rows, rows["t"])
    with pytest.raises(rfgp.InvalidArgumentError, match="memory must be"):
        rfgp.GP(k.RBF("t"), memory=-1)


@pytest.mark.parametrize("outputs", [2, 3])
def test_slopes_of_several_outputs(outputs):
    y = np.column_stack([(i + 1) * (Y - 5) for i in range(outputs)])
    kernel = k.Linear(("p", "q"), name="slope") + k.RBF("t", name="trend")
    gp = rfgp.GP(kernel, seed=0).fit(ROWS, y)
    assert gp.hyperparameters["slope.variance"].shape == (2,)
    slope = gp.predict(NEW).terms["slope"].mean
    np.testing.assert_allclose(slope[:, 1], 2 * slope[:, 0], rtol=1e-6)


@pytest.mark.filterwarnings("ignore::rfgp.PoorFeaturesWarning")
def test_a_fit_keeps_other_approximations():
    X = np.linspace(0, 1, 30)[:, None]
    gp = rfgp.GP(k.RBF(name="f"), approximation=rfgp.RandomFeatures(8), seed=0).fit(X, np.sin(9 * X[:, 0]))
    exact = gp.exact().fit(X, np.sin(9 * X[:, 0]))
    assert exact.terms["f"].approximation == rfgp.Exact()
    assert gp.fit(X, np.sin(9 * X[:, 0])).terms["f"].approximation == rfgp.RandomFeatures(8)
