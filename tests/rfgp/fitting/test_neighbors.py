"""Fits of features and nearest neighbors by one likelihood."""

import dataclasses

import numpy as np
import pytest
import torch
from stationary import spec_of

import rfgp
from rfgp.fitting import Plan, neighbor_fit
from rfgp.fitting import neighbors as fitting
from rfgp.fitting.frequencies import MAX_SCALE
from rfgp.fitting.neighbors import fit_neighbors
from rfgp.fitting.terms import fit_terms
from rfgp.regression import begin
from rfgp.rows import Chunk
from rfgp.solvers.whitened import WhitenedSolver, blocked


def table(n, seed=0):
    """A smooth function of three columns, and one of short range in two of them."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    smooth = 2 * np.sin(2 * X[:, 0]) + X[:, 2]
    return X * [1.0, 5.0, 20.0], 7 + smooth + 0.5 * np.sign(np.sin(9 * X[:, 0]) * np.sin(9 * X[:, 1]))


FEATURES = rfgp.RandomFeatures(20, seed=0)


def near(count=12):
    return rfgp.Vecchia(count, seed=0)


BOTH = spec_of("gaussian", FEATURES, "matern32", near())


def exactly(state):
    """Return a regression with the exact kernels."""
    spec = state.spec
    chosen = dict.fromkeys(spec.approximations, rfgp.Exact())
    return state.replace(spec=spec.with_approximations(chosen, state.hyperparameters, state.num_observations))


def fitted(n, spec=BOTH):
    return fit_neighbors(begin(spec, Chunk(*table(n))), Plan())


def errors(state, n=300):
    X, y = table(n, seed=1)
    return float(np.sqrt(np.mean((state.predict(X).mean - y) ** 2)))


@pytest.mark.slow
def test_neighbors_explain_more_than_features_alone():
    found, report = fitted(1200)
    alone, _ = fit_terms(begin(spec_of("gaussian", FEATURES), Chunk(*table(1200))), Plan())
    alone_near, _ = fitted(1200, spec_of("matern32", near()))
    assert errors(found) < 0.8 * errors(alone)
    assert errors(found) < 1.02 * errors(alone_near)
    assert report.converged
    assert report.log_marginal_likelihood == pytest.approx(found.log_marginal_likelihood().item(), rel=1e-12)
    names = found.hyperparameters.space.names
    assert {"local.lengthscale", "local.outputscale"} <= set(names)
    assert "local.lengthscale" not in alone_near.hyperparameters.space.names


@pytest.mark.slow
def test_first_search_uses_some_rows_and_all_neighbors(monkeypatch, limits):
    seen = []

    class Watched(WhitenedSolver):
        of = WhitenedSolver.of

        def __init__(self, prior, rows, mean, noise, pattern, order=None):
            seen.append((len(rows), pattern))
            super().__init__(prior, rows, mean, noise, pattern, order)

    limits(neighbor_rows=300)
    monkeypatch.setattr(neighbor_fit, "WhitenedSolver", Watched)
    found, report = fitted(1200, spec_of("gaussian", FEATURES, "matern32", rfgp.Vecchia(12, block_size=1, seed=0)))
    assert report.stages[0].rows == 300
    assert report.log_marginal_likelihood == pytest.approx(found.log_marginal_likelihood().item(), rel=1e-9)
    used, pattern = seen[0]
    assert pattern.shape == (300, used)
    assert used > 900  # these rows with their neighbors, which are the nearest of all 1,200
    assert np.diff(pattern.indptr)[4:].min() == 13


@pytest.mark.slow
def test_misleading_rows_lead_to_more_rows(monkeypatch, limits):
    """Only two nearly equal rows with different targets show noise, and they are not among the first rows."""
    limits(neighbor_rows=40)
    X = table(200)[0]
    y = np.sin(2 * X[:, 0]) + X[:, 2] / 20
    X[1], y[1] = X[0] + 1e-7, y[0] + 1
    chosen = spec_of("matern52", rfgp.Vecchia(12, block_size=1, seed=0))
    order = begin(chosen, Chunk(X, y)).prior().neighbors.order(200).tolist()
    told = {order[i] for i in torch.linspace(0, 199, 40).long().tolist()}
    later = max((0, 1), key=order.index)
    if later in told:  # else the pair is not seen at first
        other = next(i for i in range(2, 200) if i not in told and order.index(i) > 100)
        X[[later, other]], y[[later, other]] = X[[other, later]], y[[other, later]]
    found, report = fit_neighbors(begin(chosen, Chunk(X, y)), Plan())
    assert report.stages[0].rows == 40
    assert report.stages[-1].rows > 40
    assert float(found.hyperparameters.standardized("noise")) > 1e-4
    monkeypatch.setattr(fitting.NeighborFit, "needs_more_rows", lambda self, values, report: False)
    found, _ = fit_neighbors(begin(chosen, Chunk(X, y)), Plan())
    assert float(found.hyperparameters.standardized("noise")) < 1e-5


def test_all_neighbors_give_the_exact_likelihood():
    found, report = fit_neighbors(begin(spec_of("matern32", near(80)), Chunk(*table(80))), Plan())
    exact = exactly(found)
    assert found.log_marginal_likelihood().item() == pytest.approx(exact.log_marginal_likelihood().item(), abs=1e-7)
    again, _ = fit_terms(exact, Plan())
    assert again.log_marginal_likelihood().item() < found.log_marginal_likelihood().item() + 0.1
    left = exact.leave_one_out()
    errors = (table(80)[1] - left.mean) / np.sqrt(left.variance)
    assert report.mean_squared_zscore == pytest.approx(np.mean(errors**2), rel=1e-6)


@pytest.mark.parametrize("wanted", [True, False])
def test_neighbors_alone_give_a_second_start(wanted, monkeypatch):
    original, asked = fitting.from_neighbors_alone, []
    monkeypatch.setattr(fitting, "from_neighbors_alone", lambda fit, begin, _: original(fit, begin, -np.inf))
    monkeypatch.setattr(fitting, "is_better", lambda fit, *both: asked.append(both) or wanted)
    monkeypatch.setattr(fitting, "ROUNDS", fitting.FIRST_ROUNDS)
    found, report = fitted(150)
    ((one, _), (other, _)) = asked[0]
    names = [stage.name for stage in report.stages]
    assert names[-1].startswith("all rows, from neighbors alone" if wanted else "all rows, neighbors 2")
    assert sum(", neighbors alone" in name for name in names) in (1, 2)
    assert found.hyperparameters.equals(one if wanted else other)
    assert not one.equals(other)


def test_less_likely_neighbors_give_no_second_start(monkeypatch):
    monkeypatch.setattr(fitting, "is_better", None)
    _, report = fitted(150)
    assert any("alone" in stage.name for stage in report.stages)


def test_leave_one_out_matches_the_exact_process():
    fit = fitting.NeighborFit.of(begin(spec_of("matern32", near(80)), Chunk(*table(80))), Plan())
    exact = exactly(fit.state).leave_one_out()
    z = (table(80)[1] - exact.mean) / np.sqrt(exact.variance)
    expected = np.mean(-0.5 * (z**2 + np.log(2 * np.pi * exact.variance))) + np.log(table(80)[1].std(ddof=1))
    assert fit.left_out_log_prob(fit.state.hyperparameters) == pytest.approx(expected, abs=1e-8)


def test_smooth_functions_switch_neighbors_off():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (800, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(800)
    found, _ = fit_neighbors(begin(BOTH, Chunk(X, y)), Plan())
    with torch.no_grad():
        shares = [float(found.hyperparameters.standardized(name)) for name in ("local.outputscale", "noise")]
    assert shares[0] < 0.3 * shares[1]


@pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")
def test_output_scales_of_features_are_bounded_by_default():
    """A line in columns with little effect. Without a bound the output scale and the lengthscales grow."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 2))
    y = X @ [1.0, 2.0] + 0.1 * np.sign(np.sin(20 * X[:, 0])) + 0.05 * rng.standard_normal(200)

    def scale(**more):
        chosen = spec_of("gaussian", rfgp.RandomFeatures(8, seed=0), "matern32", near(8), **more)
        found, report = fit_neighbors(begin(chosen, Chunk(X, y)), Plan())
        return float(found.hyperparameters.standardized("rbf.outputscale")), report.at_bounds

    value, at_bounds = scale()
    assert value == pytest.approx(MAX_SCALE)
    assert "rbf.outputscale" in at_bounds
    assert scale(outputscale=2 * y.var())[0] > 2 * MAX_SCALE
    assert scale(priors={"outputscale": torch.distributions.LogNormal(5.0, 1.0)})[0] > 2 * MAX_SCALE


@pytest.mark.parametrize(
    ("spec", "most", "is_warm"),
    [
        (spec_of("matern32", near()), 40, True),
        (spec_of("matern32", near()), None, False),
        (spec_of("gaussian", rfgp.RandomFeatures(4), "matern32", near()), 40, False),
    ],
    ids=["neighbors to be scored", "the last fit", "beside features"],
)
def test_more_rows_start_where_fewer_ended(spec, most, is_warm):
    """With features there are several optima, and the last fit does not depend on earlier ones."""
    fit = fitting.NeighborFit.of(begin(spec, Chunk(*table(200))), Plan(most_rows=most))
    start = fit.state.hyperparameters
    ended = start.shifted(noise=1.0)
    wider = fit.with_more(ended)
    assert wider.most == 2 * fit.most
    assert wider.state.hyperparameters is (ended if is_warm else start)


@pytest.mark.parametrize("has_twins", [False, True])
def test_sample_of_many_rows_detects_misleading_rows(monkeypatch, limits, has_twins):
    X = table(1200)[0][:, :2]
    y = np.sin(2 * X[:, 0])
    if has_twins:
        X[1::2] = X[::2] + 1e-7
        y[1::2] += np.random.default_rng(1).standard_normal(600)
    fit = fitting.NeighborFit.of(begin(spec_of("matern52", near(8)), Chunk(X, y)), Plan(most_rows=20))
    least = {"noise": fit.state.hyperparameters.space.quantities["noise"].bounds[0].log()}
    values, report = fit.search(fit.state.hyperparameters.replaced(least), "")
    values = values.replaced(least) if has_twins else values
    by_all = fit.needs_more_rows(values, report)
    monkeypatch.setattr(neighbor_fit, "MAX_CHECKED", 1000)
    limits(neighbor_rows=300)
    assert by_all == fit.needs_more_rows(values, report) == has_twins
    last, sizes = fitting.NeighborFit.of(fit.state, Plan()), []
    monkeypatch.setattr(blocked, "is_large", lambda prior, count: sizes.append(count) or False)
    limits(neighbor_rows=20)
    dataclasses.replace(last, most=20).needs_more_rows(values, report)
    assert sizes == [1200]  # all rows before the last fit
