"""Inducing points whose residual has nearest neighbors (VIF): dense algebra, other terms, redraws and refusals."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from dense_terms import DenseTerms
from gp_cases import NEW, ROWS, SEASON, SLOPE, SPACE, STORE, TREND, Y
from twins import check_slopes, check_terms, covariance_of

import rfgp
from rfgp import kernels as k
from rfgp.approximations.inducing_points import PointTerm
from rfgp.blocks import predecessors_in_blocks
from rfgp.blocks.neighbors import VecchiaBlock
from rfgp.regression.spec import with_rows

ALL = 59
"""All other rows are neighbors."""
BOTH = (k.RBF("t", lengthscale=1.7) * k.RBF(("t", "p"), lengthscale=(3.0, 2.0))).named("both")
KERNELS = {
    "one": TREND,
    "beside weights": TREND + SLOPE + STORE,
    "of two columns": SPACE + SLOPE + STORE,
    "product": BOTH + STORE,
}
START = {"mean": 4.5, "noise": 0.07}
OWN = {
    "trend.outputscale": 0.7,
    "space.outputscale": 0.9,
    "both.outputscale": 1.3,
    "store.outputscale": 1.0,
    "slope.variance": [0.1, 0.4],
}


def of_names(kernel, start):
    return {path: value for path, value in start.items() if path.split(".")[0] in [t.name for t in kernel.terms()]}


def near(count=ALL, points=10, condition_on="responses", **options):
    return rfgp.InducingPoints(points, residual=rfgp.Vecchia(count, condition_on=condition_on), **options)


def model(kernel, approximation, **options):
    """Return a conditioned model whose first term has an approximation."""
    first = kernel.terms()[0].name
    start = {**START, **of_names(kernel, OWN)}
    chosen = {first: approximation} if isinstance(approximation, rfgp.InducingPoints) else approximation
    return rfgp.GP(kernel, approximation=chosen, start=start, seed=0, **options).condition(ROWS, Y)


def twin(kernel):
    return DenseTerms(covariance_of(kernel, ROWS, NEW, OWN), [term.name for term in kernel.terms()], Y, 4.5, 0.07)


def check_exact(gp, kernel, atol, within):
    """Compare the density, and all predictions in all their parts, with dense algebra."""
    exact = twin(kernel)
    assert gp.log_marginal_likelihood().item() == pytest.approx(exact.log_marginal_likelihood(), abs=within)
    check_terms(gp.predict(NEW), exact, 4.5, atol)


@pytest.mark.parametrize("case", KERNELS)
def test_all_neighbors_are_exact(case):
    kernel = KERNELS[case]
    gp = model(kernel, near())
    check_exact(gp, kernel, 1e-8, 1e-8)
    check_slopes(gp, model(kernel, rfgp.Exact()), rtol=1e-8, atol=1e-7)
    precision = np.linalg.inv(twin(kernel).total)
    left, coefficients = 1 / np.diag(precision), precision @ (Y - 4.5)
    np.testing.assert_allclose(gp.leave_one_out().mean, Y - coefficients * left, atol=1e-8)
    np.testing.assert_allclose(gp.leave_one_out().variance, left, atol=1e-8)


@pytest.mark.parametrize("nu", [0.5, 1.5, 2.5])
@pytest.mark.parametrize("condition_on", ["responses", "latent"])
def test_kernels_of_one_lengthscale_are_exact(nu, condition_on):
    kernel = k.Matern(("p", "q"), nu=nu, ard=False, lengthscale=0.8, name="space") + STORE
    gp, exact = model(kernel, near(condition_on=condition_on)), model(kernel, rfgp.Exact())
    assert gp.log_marginal_likelihood().item() == pytest.approx(exact.log_marginal_likelihood().item(), abs=1e-6)
    np.testing.assert_allclose(gp.predict(NEW).covariance, exact.predict(NEW).covariance, atol=1e-8)
    check_slopes(gp, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_factorized", [True, False])
@pytest.mark.parametrize("case", KERNELS)
def test_all_latent_neighbors_are_exact(case, is_factorized, limits):
    if not is_factorized:
        limits(max_elimination_flops=0)
    gp = model(KERNELS[case], near(condition_on="latent"))
    check_exact(gp, KERNELS[case], 1e-5, 1e-3)


def test_prior_is_that_of_the_terms():
    """The covariance of a term has its low-rank part and its residual, and each is counted once."""
    kernel = KERNELS["beside weights"]
    gp, exact = model(kernel, near(4)), twin(kernel).covariance
    prior, (x, _) = gp.state.prior(), gp.state.points(ROWS)
    scale = float(gp.state.scaling.targets.scale) ** 2
    for names in (["trend"], ["slope"], ["trend", "store"], ["trend", "slope", "store"]):
        expected, own = sum(exact(name, "rows", "rows") for name in names), prior.of(names)
        np.testing.assert_allclose(scale * own.kernel(x, x).detach(), expected, atol=1e-10)
        np.testing.assert_allclose(scale * own.kernel(x, x[:5]).detach(), expected[:, :5], atol=1e-10)
        np.testing.assert_allclose(scale * own.diagonal(x).detach(), np.diag(expected), atol=1e-10)
    assert prior.names == ("trend", "slope", "store")
    assert [block.name for block in prior.explained] == ["trend"]


def dense_vecchia(covariance, noise, near):
    """Return the covariance of rows in order, each given those of its neighbors (n, k) that are before it."""
    n = len(covariance)
    whole, root = covariance + noise * np.eye(n), np.zeros((n, n))
    for i in range(n):
        before = [j for j in near[i] if j != i]
        weights = np.linalg.solve(whole[np.ix_(before, before)], whole[before, i])
        left = whole[i, i] - weights @ whole[before, i]
        root[i, before], root[i, i] = -weights / left**0.5, left**-0.5
    return np.linalg.inv(root.T @ root)


@pytest.mark.parametrize("case", ["one", "beside weights", "of two columns", "product"])
def test_few_neighbors_are_those_of_the_residual_alone(case):
    kernel, name = KERNELS[case], KERNELS[case].terms()[0].name
    gp, exact = model(kernel, near(5)), twin(kernel)
    prior, (x, _) = gp.state.prior(), gp.state.points(ROWS)
    scale = float(gp.state.scaling.targets.scale) ** 2
    with torch.no_grad():
        phi = prior.explained[0].scaled(x).numpy()
        order = prior.neighbors.order(60)
        pattern = predecessors_in_blocks(prior.neighbors, x[order])
    order = order.numpy()
    parts = [pattern.indices[a:b] for a, b in zip(pattern.indptr[:-1], pattern.indptr[1:], strict=True)]
    neighbors = {part[-1]: part for part in parts}
    assert max(map(len, parts)) < 20
    residual = (exact.covariance(name, "rows", "rows") - scale * phi @ phi.T)[np.ix_(order, order)]
    own = np.empty((60, 60))
    own[np.ix_(order, order)] = dense_vecchia(residual, 0.07, neighbors)
    others = [term.name for term in kernel.terms()[1:]]
    exact.total = own + scale * phi @ phi.T + sum(exact.covariance(one, "rows", "rows") for one in others)
    assert gp.log_marginal_likelihood().item() == pytest.approx(exact.log_marginal_likelihood(), abs=1e-8)
    assert abs(exact.log_marginal_likelihood() - twin(kernel).log_marginal_likelihood()) > 1e-6
    prediction = gp.predict(NEW)
    for one in others:
        np.testing.assert_allclose(prediction.terms[one].mean, exact.mean(one), atol=1e-8)
        np.testing.assert_allclose(prediction.terms[one].covariance, exact.cross_covariance(one, one), atol=1e-8)
    total = sum(prediction.terms[term.name].mean for term in kernel.terms())
    np.testing.assert_allclose(4.5 + total, prediction.mean, atol=1e-10)


def test_residuals_bring_points_closer_to_the_exact_process():
    exact = model(KERNELS["of two columns"], rfgp.Exact())
    truth = exact.predict(NEW)
    divergences = [
        rfgp.metrics.kl_divergence(truth, exact.with_approximation({"space": chosen}).predict(NEW))
        for chosen in (rfgp.InducingPoints(10), rfgp.Vecchia(8), near(8), near(16))
    ]
    assert divergences[2] < min(divergences[:2])
    assert divergences[3] < divergences[2]


@pytest.mark.parametrize("condition_on", ["responses", "latent"])
def test_other_neighbors_and_new_rows_keep_the_points(condition_on):
    gp = model(KERNELS["beside weights"], near(8, condition_on=condition_on))
    grown = gp.with_approximation({"trend": near(ALL, condition_on=condition_on)})
    more = {key: np.concatenate([value, value[:5]]) for key, value in ROWS.items()}
    both = rfgp.GP(gp.kernel, approximation=gp.spec.approximations, seed=0).condition(more, np.append(Y, Y[:5]))
    (before,), (after,) = ([one for one in each.spec.term_priors if isinstance(one, PointTerm)] for each in (gp, grown))
    torch.testing.assert_close(before.points, after.points, rtol=0, atol=0)
    assert both.num_observations == 65
    updated = gp.update({key: value[:5] for key, value in ROWS.items()}, Y[:5])
    assert np.all(updated.predict(NEW).std > 0)


def test_dtype_of_rows_changes_little():
    double, single = (
        rfgp.GP(SPACE + STORE, approximation={"space": near(10)}, start=START, seed=0, dtype=dtype).condition(ROWS, Y)
        for dtype in (torch.float64, torch.float32)
    )
    np.testing.assert_allclose(double.predict(NEW).mean, single.predict(NEW).mean, atol=1e-4)
    np.testing.assert_allclose(double.predict(NEW).std, single.predict(NEW).std, atol=1e-4)


def test_terms_are_reported():
    gp = model(KERNELS["beside weights"], near(8))
    report = gp.terms["trend"]
    assert report.approximation == near(8)
    assert report.cost.note == "10 inducing points, and 8 neighbors of each row for their residual"
    assert report.cost.num_features == 70
    assert 0 < report.share < 1
    exact = model(KERNELS["beside weights"], rfgp.Exact()).terms["trend"]
    assert report.degrees_of_freedom == pytest.approx(exact.degrees_of_freedom, rel=0.05)


def test_bounds_are_those_of_the_points():
    gp = model(KERNELS["beside weights"], near(8))
    other = gp.with_approximation({"trend": rfgp.InducingPoints(10, method="vfe")})
    assert gp.evidence_bounds() == other.evidence_bounds()


# --- points that are chosen again, and learned --------------------------------------------------------


def redrawn(gp, **changes):
    """Return the term of points before and after a redraw at changed hyperparameters."""
    values = gp.hyperparameters.values.with_values(**changes)
    return gp.spec.term_priors[0], gp.spec.with_new_basis(values, 60).term_priors[0]


@pytest.mark.parametrize("residual", [None, rfgp.Vecchia(5)])
@pytest.mark.parametrize("init", ["kmeans", "pivoted-cholesky"])
def test_points_stay_unless_lengthscales_moved(init, residual):
    approximation = rfgp.InducingPoints(10, init=init, residual=residual)
    gp = rfgp.GP(SPACE, approximation=approximation, start=START, seed=0).condition(ROWS, Y)
    changes = {
        (2.0, 0.6): False,
        (3.5, 0.6): False,
        (8.0, 2.4): False,
        (2.0, 2.0): True,
        (0.9, 0.27): init == "pivoted-cholesky",
    }
    for lengthscale, moves in changes.items():
        before, after = redrawn(gp, **{"space.lengthscale": lengthscale, "noise": 0.5})
        assert (after is not before) is moves, lengthscale
        assert torch.equal(after.points, before.points) is not moves
        assert (after.neighbors is None) is (residual is None)


def test_columns_of_other_terms_do_not_move_points():
    gp = rfgp.GP(TREND + SPACE, approximation={"trend": near(5)}, start=START, seed=0).condition(ROWS, Y)
    before, after = redrawn(gp, **{"trend.lengthscale": 17.0, "space.lengthscale": (20.0, 0.1)})
    assert after is before


def test_points_of_other_kernels_are_always_chosen_again():
    gp = rfgp.GP(SEASON, approximation=rfgp.InducingPoints(10), start=START, seed=0).condition(ROWS, Y)
    before, after = redrawn(gp)
    assert after is not before


def test_points_of_a_file_are_chosen_again(tmp_path):
    gp = rfgp.GP(SPACE, approximation=near(5), start=START, seed=0).condition(ROWS, Y)
    with pytest.warns(rfgp.DataSavedWarning):
        gp.save(tmp_path / "m")
    again = rfgp.load(tmp_path / "m")
    assert again.spec.term_priors[0].lengthscales is None
    np.testing.assert_array_equal(again.predict(NEW).mean, gp.predict(NEW).mean)
    spec = with_rows(again.spec, again.state.rows)
    after = spec.with_new_basis(again.hyperparameters.values, 60).term_priors[0]
    assert after is not again.spec.term_priors[0]
    torch.testing.assert_close(after.points, gp.spec.term_priors[0].points)


@pytest.mark.parametrize("condition_on", ["responses", "latent"])
def test_gradient_in_points_is_that_of_differences(condition_on):
    """The features of the residual follow the points."""
    approximation = near(6, points=5, condition_on=condition_on, learn_locations=True)
    gp = model(KERNELS["of two columns"], approximation)
    state = gp.state
    (draw,) = state.spec.term_priors[0].learnable.values()

    def density(points):
        values = state.hyperparameters.with_extra_tensors({"space.points": points}, {})
        return state.replace(hyperparameters=values).log_marginal_likelihood()

    points = draw.clone().requires_grad_()
    (slope,) = torch.autograd.grad(density(points), points)
    steps = [density(draw + sign * 1e-4 * (torch.arange(5) == 2)[:, None] * (draw != 0)) for sign in (1, -1)]
    expected = float(steps[0] - steps[1]) / 2e-4
    assert abs(expected) > 1e-3
    assert slope[2].sum().item() == pytest.approx(expected, rel=1e-3)


def test_points_are_learned():
    rng = np.random.default_rng(7)
    rows = {"t": rng.uniform(0, 6, 150), "p": rng.normal(size=150)}
    y = np.sin(2 * rows["t"]) + rows["p"] * np.cos(rows["t"]) + 0.1 * rng.normal(size=150)
    before, gp = (
        rfgp.GP(k.RBF(), approximation=near(3, points=8, learn_locations=learns), seed=0).fit(rows, y)
        for learns in (False, True)
    )
    assert gp.log_marginal_likelihood() > before.log_marginal_likelihood() + 1
    assert gp.fit_report.stages[-1].name.endswith("basis too")
    again = pickle.loads(pickle.dumps(gp)).predict(rows)
    np.testing.assert_array_equal(gp.predict(rows).mean, again.mean)


# --- the value ----------------------------------------------------------------------------------------


def test_value_is_shown_compared_and_copied():
    value = rfgp.InducingPoints(64, residual=rfgp.Vecchia(10))
    assert repr(value) == "InducingPoints(num_points=64, residual=Vecchia(num_neighbors=10))"
    assert value != rfgp.InducingPoints(64, residual=rfgp.Vecchia(11))
    assert len({value, copy.deepcopy(value), pickle.loads(pickle.dumps(value)), replace(value, num_points=64)}) == 1


def test_seed_of_the_residual_is_that_of_its_order():
    def order(**seeds):
        residual = rfgp.Vecchia(5, seed=seeds.get("own"))
        approximation = rfgp.InducingPoints(10, residual=residual, seed=seeds.get("points"))
        gp = rfgp.GP(SPACE, approximation=approximation, seed=seeds["model"]).condition(ROWS, Y)
        return gp.state.prior().neighbors.seed

    assert order(model=1) != order(model=2)
    assert order(model=1, points=7) == order(model=2, points=7) == 7
    assert order(model=1, points=7, own=3) == 3


def test_models_are_copied_and_pickled():
    gp = model(KERNELS["beside weights"], near(8))
    for other in (copy.deepcopy(gp), pickle.loads(pickle.dumps(gp))):
        np.testing.assert_array_equal(other.predict(NEW).std, gp.predict(NEW).std)
        np.testing.assert_array_equal(other.predict(NEW).terms["trend"].mean, gp.predict(NEW).terms["trend"].mean)


def test_residual_is_a_block_of_its_term():
    gp = model(KERNELS["beside weights"], near(8, condition_on="latent"))
    block = gp.state.prior().neighbors
    assert isinstance(block, VecchiaBlock)
    assert (block.name, block.is_residual, block.residual_of) == ("trend", True, "trend")
    assert (block.num_neighbors, block.condition_on, block.columns) == (8, "latent", (0,))


def test_second_residual_is_refused_when_approximations_change():
    gp = rfgp.GP(TREND + SPACE, approximation={"trend": near(5)}, seed=0).condition(ROWS, Y)
    with pytest.raises(rfgp.InvalidArgumentError, match="one term may have neighbors"):
        gp.with_approximation({"space": rfgp.Vecchia(5)})
    moved = gp.with_approximation({"trend": rfgp.InducingPoints(10), "space": near(5)})
    assert moved.state.prior().neighbors.residual_of == "space"


def test_responses_require_a_gaussian_likelihood():
    with pytest.raises(rfgp.InvalidArgumentError, match="requires a Gaussian likelihood"):
        rfgp.GP(TREND, "bernoulli", near(5)).condition(ROWS, (Y > 6).astype(float))


def test_functions_are_refused():
    gp = model(TREND, near(5))
    with pytest.raises(rfgp.InvalidArgumentError, match="no functions to draw"):
        gp.sample_functions(2, seed=0)
