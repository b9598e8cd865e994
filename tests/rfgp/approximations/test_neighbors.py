"""Nearest neighbors of any kernel and of sums of terms: exact if all rows are neighbors, and near if some are."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from gp_cases import KERNELS, NAMES, NEW, ROWS, Y, model, start_of, table, twin
from twins import check_differences, check_slopes, check_terms

import rfgp
from rfgp import kernels as k
from rfgp.blocks import KernelVecchiaBlock
from rfgp.parameters import Hyperparameter

ALL = 100
"""More neighbors than rows."""


def near_of(condition_on="responses", count=ALL):
    return rfgp.Vecchia(count, condition_on=condition_on)


@pytest.mark.parametrize("case", KERNELS)
def test_all_neighbors_of_sums_are_exact(case):
    gp, exact, names = model(case, near_of()).condition(ROWS, Y), twin(case), NAMES[case]
    assert gp.log_marginal_likelihood().item() == pytest.approx(exact.log_marginal_likelihood(), rel=1e-9)
    prediction = gp.predict(NEW)
    assert list(prediction.terms) == names
    check_terms(prediction, exact, 4.5, 1e-7)
    if len(names) > 2:
        whole = exact.cross_covariance(names[0], names[0]) + exact.cross_covariance(names[0], names[1])
        found = prediction.cross_covariance(names[0], names[:2])
        np.testing.assert_allclose(found, whole, atol=1e-7)
        np.testing.assert_allclose(prediction.cross_covariance(names[:2], names[0]), whole.T, atol=1e-7)


@pytest.mark.parametrize("case", KERNELS)
def test_gradients_are_those_of_differences(case):
    gp, exact = (model(case, *near).condition(ROWS, Y) for near in ([near_of()], []))
    check_slopes(gp, exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [1, 5])
def test_gradients_of_few_neighbors_are_those_of_differences(count):
    gp = model("every kind", near_of(count=count), standardize=False).condition(ROWS, Y)
    check_differences(gp, 1e-6, 1e-4)


@pytest.mark.parametrize("case", ["a season that changes", "two smooth", "season and groups", "every kind"])
def test_all_latent_neighbors_are_exact(case):
    gp, exact, names = model(case, near_of("latent")).condition(ROWS, Y), twin(case), NAMES[case]
    assert gp.log_marginal_likelihood().item() == pytest.approx(exact.log_marginal_likelihood(), rel=1e-5)
    prediction = gp.predict(NEW)
    check_terms(prediction, exact, 4.5, 1e-5, "covariance")
    check_slopes(gp, model(case).condition(ROWS, Y), rtol=1e-3, atol=1e-3)
    if len(names) > 1:
        with pytest.raises(rfgp.InvalidArgumentError, match="not divided"):
            prediction.cross_covariance(names[0], names[1])


def test_terms_without_neighbors_are_added():
    case = "every kind"
    near = {"trend": near_of(), "season": near_of(), "own": near_of()}
    chosen = {name: near.get(name, rfgp.Exact()) for name in NAMES[case]}
    gp = model(case, chosen).condition(ROWS, Y)
    assert gp.state.prior().neighbors.names == ("trend", "season")
    check_terms(gp.predict(NEW), twin(case), 4.5, 1e-7)


@pytest.mark.parametrize("case", ["a season that changes", "two smooth", "every kind"])
def test_more_neighbors_come_closer(case):
    errors, exact = [], model(case).condition(ROWS, Y).predict(NEW)
    for count in (2, 8, 30):
        prediction = model(case, near_of(count=count)).condition(ROWS, Y).predict(NEW)
        errors.append(np.abs(prediction.mean - exact.mean).max())
        for name, term in prediction.terms.items():
            assert np.linalg.eigvalsh(term.covariance).min() > -1e-10
            np.testing.assert_allclose(np.diag(term.covariance), term.variance, rtol=1e-8, err_msg=name)
    assert errors[0] > errors[2]
    assert errors[2] < 0.05


@pytest.mark.parametrize("condition_on", ["responses", "latent"])
@pytest.mark.parametrize("case", ["season and groups", "a trend of each store", "categories"])
def test_new_levels_have_their_prior(case, condition_on):
    gp = model(case, near_of(condition_on)).condition(ROWS, Y)
    points = {key: np.repeat(NEW[key][:1], 4) for key in NEW} | {"store": np.array(["x", "x", "y", "a"])}
    (name,) = [n for n in NAMES[case] if n in ("store", "own", "category")]
    term, scale = gp.predict(points).terms[name], start_of(case)[f"{name}.outputscale"]
    exact = model(case, rfgp.Exact()).condition(ROWS, Y).predict(points).terms[name]
    np.testing.assert_allclose(term.variance, exact.variance, atol=1e-5)
    if name != "category":
        np.testing.assert_allclose(term.variance[:3], scale, rtol=1e-8)
        np.testing.assert_allclose(term.mean[:3], 0, atol=1e-8)


def test_copies_of_rows_without_noise_say_nothing_new():
    rows = {key: np.concatenate([values[:30], values[:30]]) for key, values in ROWS.items()}
    y = np.concatenate([Y[:30], Y[:30]])
    for case in ("a season that changes", "two smooth"):
        start = start_of(case) | {"noise": 1e-12}
        gp = rfgp.GP(KERNELS[case], approximation=near_of(), start=start, seed=0).condition(rows, y)
        once = rfgp.GP(KERNELS[case], approximation=near_of(), start=start, seed=0, standardize=False)
        mean = gp.predict(NEW).mean
        assert np.isfinite(mean).all()
        np.testing.assert_allclose(
            mean, once.condition({n: v[:30] for n, v in rows.items()}, Y[:30]).predict(NEW).mean, atol=1e-2
        )


def test_neighbors_of_a_season_are_in_other_periods():
    t = np.concatenate([np.arange(0, 10, 0.5), [0.25]])
    gp = rfgp.GP(k.Periodic("t", 2.5), approximation=near_of(count=3), seed=0).condition({"t": t}, np.sin(t))
    block, rows = gp.state.prior().neighbors, gp.state.points({"t": t})[0]
    distance = np.linalg.norm(block.scaled(rows) - block.scaled(rows)[0], axis=1)
    assert set(np.argsort(distance)[:4]) == {0, 5, 10, 15}


def test_blocks_of_rows_do_not_change_results(monkeypatch):
    expected = model("every kind", near_of(count=6)).condition(ROWS, Y)
    value = expected.log_marginal_likelihood().item()
    for name, size in (("BLOCK", 7), ("MAX_BLOCK_ROWS", 20), ("MAX_BLOCK_ROWS", 1)):
        monkeypatch.setattr(f"rfgp.local.covariances.{name}", size)
        gp = model("every kind", near_of(count=6)).condition(ROWS, Y)
        assert gp.log_marginal_likelihood().item() == pytest.approx(value, rel=1e-12)
        np.testing.assert_allclose(gp.predict(NEW).std, expected.predict(NEW).std, rtol=1e-9)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
def test_sums_with_neighbors_have_other_likelihoods(likelihood):
    y = (np.median(Y) < Y).astype(float)
    start = {name: value for name, value in start_of("season and groups").items() if name not in ("noise", "mean")}
    exact = rfgp.GP(KERNELS["season and groups"], likelihood, start=start, seed=0).condition(ROWS, y)
    near = exact.with_approximation(rfgp.Vecchia(ALL))
    assert near.log_marginal_likelihood().item() == pytest.approx(exact.log_marginal_likelihood().item(), abs=1e-3)
    np.testing.assert_allclose(near.predict(NEW).mean, exact.predict(NEW).mean, rtol=2e-3, atol=1e-3)
    for name in NAMES["season and groups"]:
        expected = exact.predict(NEW).terms[name].mean
        np.testing.assert_allclose(near.predict(NEW).terms[name].mean, expected, rtol=2e-3, atol=1e-3)
    with pytest.raises(rfgp.InvalidArgumentError, match="requires a Gaussian likelihood"):
        exact.with_approximation(near_of("responses"))


def test_latent_sums_by_conjugate_gradients_are_not_divided(limits):
    limits(max_elimination_flops=0)
    gp = model("season and groups", near_of("latent")).condition(ROWS, Y)
    exact = model("season and groups", rfgp.Exact()).condition(ROWS, Y)
    np.testing.assert_allclose(gp.predict(NEW).mean, exact.predict(NEW).mean, atol=1e-3)
    np.testing.assert_allclose(gp.predict(NEW).of(*NAMES["season and groups"]).mean + 4.5, gp.predict(NEW).mean)
    assert gp.terms["trend"].share is None
    with pytest.raises(rfgp.InvalidArgumentError, match="not divided"):
        gp.predict(NEW).of("trend")
    auto = model("season and groups", near_of("auto")).condition(ROWS, Y)
    np.testing.assert_allclose(auto.predict(NEW).terms["trend"].std, exact.predict(NEW).terms["trend"].std, rtol=1e-6)


def test_float32_rows_match_float64():
    expected = model("every kind", near_of(count=10)).condition(ROWS, Y)
    found = model("every kind", near_of(count=10), dtype=torch.float32).condition(ROWS, Y)
    value = expected.log_marginal_likelihood().item()
    assert found.log_marginal_likelihood().item() == pytest.approx(value, rel=1e-3)
    np.testing.assert_allclose(found.predict(NEW).mean, expected.predict(NEW).mean, atol=1e-3)


# --- a kernel of a user ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Wendland(k.Kernel):
    """(1 - r)^4 (1 + 4 r) up to a distance r of one lengthscale, and 0 beyond."""

    def hyperparameters(self, columns):
        spread = columns.spread.mean()
        return {"lengthscale": Hyperparameter(2 * spread, columns.scale.mean(), (0.01 * spread, 100 * spread))}

    def covariance(self, a, b, values):
        square = ((a[:, None] - b[None]) / values["lengthscale"]).square().sum(-1)
        r = square.clamp_min(1e-24).sqrt().clamp_max(1.0)
        return (1 - r) ** 4 * (1 + 4 * r)


@pytest.mark.parametrize(
    "approximation", [rfgp.Exact(), rfgp.InducingPoints(40), rfgp.Vecchia(15), rfgp.Vecchia(15, condition_on="latent")]
)
def test_a_kernel_with_covariance_alone_is_fitted(approximation):
    rng = np.random.default_rng(3)
    rows, new = table(150, 3), table(50, 4)
    truth = [np.sin(2 * source["t"]) for source in (rows, new)]
    kernel = Wendland("t", name="own") + k.Group("store", name="store")
    gp = rfgp.GP(kernel, approximation=approximation, seed=0).fit(rows, truth[0] + 0.1 * rng.normal(size=150))
    assert type(gp.terms["own"].approximation) is type(approximation)
    assert gp.hyperparameters.noise.item() == pytest.approx(0.01, rel=0.5)
    prediction = gp.predict(new)
    assert np.sqrt(np.mean((prediction.mean - truth[1]) ** 2)) < 0.1
    z = (prediction.mean - truth[1]) / prediction.std
    assert np.abs(z).max() < 6


def test_all_neighbors_of_a_users_kernel_are_exact():
    start = {"own.lengthscale": 3.0, "own.outputscale": 1.3, "noise": 0.1}
    gp = rfgp.GP(Wendland("t", name="own"), approximation=rfgp.Exact(), start=start, seed=0).condition(ROWS, Y)
    near = gp.with_approximation(near_of())
    assert isinstance(near.state.prior().neighbors, KernelVecchiaBlock)
    assert near.log_marginal_likelihood().item() == pytest.approx(gp.log_marginal_likelihood().item(), rel=1e-9)
    np.testing.assert_allclose(near.predict(NEW).covariance, gp.predict(NEW).covariance, atol=1e-8)


def test_loops_and_batches_agree(monkeypatch):
    kernel = k.Matern(("t", "p"), nu=1.5, lengthscale=(2.0, 1.0), name="near")
    found = []
    for kind in (lambda term: "matern32", lambda term: None):
        monkeypatch.setattr("rfgp.approximations.neighbors.loops_of", kind)
        near = rfgp.Vecchia(7, condition_on="responses", block_size=1)
        gp = rfgp.GP(kernel, approximation=near, start={"noise": 0.1}, seed=0).condition(ROWS, Y)
        gp.log_marginal_likelihood().backward()
        slope = gp.hyperparameters.raw["near/lengthscale"].grad
        found.append((gp.log_marginal_likelihood().item(), slope, gp.predict(NEW)))
    (value, slope, prediction), (other, slope_there, there) = found
    assert value == pytest.approx(other, rel=1e-12)
    np.testing.assert_allclose(slope, slope_there, rtol=1e-8)
    np.testing.assert_allclose(prediction.mean, there.mean, rtol=1e-9)
    np.testing.assert_allclose(prediction.std, there.std, rtol=1e-8)
