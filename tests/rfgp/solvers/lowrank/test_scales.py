"""Noise and prior scales that maximize the likelihood, and bounds of the evidence."""

import numpy as np
import pytest
import torch
from dense_twin import DenseTwin, PlainTerm
from priors import Problem
from solver_checks import gradients, same
from terms import F64, TERMS

from rfgp.solvers.lowrank import (
    LinearModel,
    LowRankSolver,
    accumulate_gram,
    best_common_scale,
    best_ratios,
    best_scales,
    evidence_bounds,
    solve,
)
from rfgp.solvers.lowrank.statistics import quadratic_form


def weighted(terms, weights, outputs):
    """Return a problem without noise of the rows."""
    problem = Problem(terms, "outputs" if outputs == 2 else "plain")
    if weights:
        counts = np.random.default_rng(0).integers(1, 4, len(problem.rows)).astype(float)
        object.__setattr__(problem.rows, "weight", torch.from_numpy(counts))
    return problem


def model_of(problem):
    return LinearModel(problem.prior.dense, problem.rows, problem.mean, problem.noise)


def at(problem, **values):
    """Return the problem at other hyperparameters."""
    other = Problem(problem.names)
    other.rows = problem.rows
    given = {name: torch.as_tensor(value, dtype=F64) for name, value in values.items()}
    other.theta = {name: value.detach().requires_grad_() for name, value in {**problem.theta, **given}.items()}
    return other


def log_slopes(problem, names):
    """Return the derivatives of the dense log density in the logarithms of some hyperparameters."""
    found = dict(zip(problem.theta, gradients(problem.twin.log_marginal_likelihood(), problem.theta), strict=True))
    return {name: float(found[name] * problem.theta[name].detach()) for name in names}


both_kinds = pytest.mark.parametrize(("weights", "outputs"), [(False, 2), (True, 1)])


@both_kinds
def test_common_scale_maximizes_likelihood(weights, outputs):
    names = ["smooth variance", "linear variance", "noise"]
    problem = weighted(["smooth", "linear"], weights, outputs)
    model = model_of(problem).detached()
    statistics = accumulate_gram(model)
    form = quadratic_form(statistics, solve(statistics, model.scale, model.noise), model.scale, model.noise)
    same(form, (problem.twin.residual * problem.twin.coefficients).sum())
    c, solution = best_common_scale(model_of(problem), problem.rows.count)
    best = at(problem, **{name: c * problem.theta[name].detach() for name in names})
    assert abs(sum(log_slopes(best, names).values())) < 1e-9
    assert abs(sum(log_slopes(problem, names).values())) > 0.1
    value = LowRankSolver(model_of(best), solution).log_marginal_likelihood()
    same(value, best.twin.log_marginal_likelihood())


@both_kinds
def test_noise_and_variance_maximize_likelihood(weights, outputs):
    names = ["smooth variance", "noise"]
    problem = weighted(["smooth"], weights, outputs)
    statistics = accumulate_gram(model_of(problem).detached())
    for ratio in (1e-4, 1e3):  # starts on both sides
        best = best_scales(statistics, problem.rows.count, ratio, (1e-6, 1e8), (1e-6, 1e2))
        found = at(problem, **{"smooth variance": best.variance, "noise": best.noise})
        slopes = log_slopes(found, names)
        assert abs(sum(slopes.values())) < 1e-9
        assert abs(slopes["noise"]) < 1e-3
        with torch.no_grad():
            same(best.solution.weights, LowRankSolver(model_of(found)).solution.weights)


@pytest.mark.parametrize("outputs", [1, 2])
def test_likelihood_is_stationary_at_the_best_ratios(outputs):
    """At the maximum the derivatives of the likelihood in log variances are 0."""
    problem = weighted(["smooth", "rough"], True, outputs)
    model = model_of(problem).detached()
    ratios, noise = best_ratios(accumulate_gram(model), model.weights, problem.rows.count, model.variances / 0.3)
    found = at(problem, **{"smooth variance": noise * ratios[0], "rough variance": noise * ratios[1], "noise": noise})
    slopes = log_slopes(found, ["smooth variance", "rough variance", "noise"])
    assert max(map(abs, slopes.values())) < 1e-3 * problem.rows.count


@pytest.mark.parametrize("bounds", [
    ((1e-6, 1e8), (2.0, 1e2)), ((1e-6, 1e8), (1e-6, 1e-3)), ((3.0, 9.0), (1e-6, 1e2)), ((1e-6, 1e-2), (1e-6, 1e2))
])  # fmt: skip
def test_scales_at_a_bound_maximize_the_likelihood(bounds):
    """The bound of one is active, and the other is the best given it, found over grids of dense algebra."""
    problem = Problem(["smooth"])
    statistics = accumulate_gram(model_of(problem).detached())
    best = best_scales(statistics, 24, 1.0, *bounds)

    def value(variance, noise):
        with torch.no_grad():
            return float(at(problem, **{"smooth variance": variance, "noise": noise}).twin.log_marginal_likelihood())

    factors = 10 ** torch.linspace(-2, 2, 161, dtype=F64) ** 3  # dense near 1
    grids = [(factors * x).clamp(*pair) for pair, x in zip(bounds, (best.variance, best.noise), strict=True)]
    if float(best.noise) in (pytest.approx(bounds[1][0]), pytest.approx(bounds[1][1])):
        most = max(value(variance, best.noise) for variance in grids[0])
    else:
        assert float(best.variance) in (pytest.approx(bounds[0][0]), pytest.approx(bounds[0][1]))
        most = max(value(best.variance, noise) for noise in grids[1])
    assert value(best.variance, best.noise) > most - 1e-6


@pytest.mark.parametrize(("name", "kind"), [("fitc", "uneven"), ("vfe", "outputs")])
def test_bounds_match_dense_algebra(name, kind):
    """The lower bound is Titsias's. The upper one is log N + (a(1) - a(1 + t)) / 2 with the missing trace t."""
    problem = Problem([name], kind)
    plain = TERMS[name].plain.at(problem.of(name))

    def twin(**changes):
        return DenseTwin({name: plain._replace(**changes)}, problem.rows, problem.mean, problem.noise)

    found = evidence_bounds(model_of(problem), log_jacobian=0.7)
    low, nothing = twin(is_noise=False), twin(whole=None)
    trace = (low.as_bound / low.noise_diag).sum()
    more = torch.linalg.inv(nothing.prior + (1 + trace) * nothing.noise_diag.diag())
    gain = 0.5 * (nothing.residual * ((nothing.inverse - more) @ nothing.residual)).sum()
    assert found.lower == pytest.approx(low.log_marginal_likelihood().item() + 0.7, rel=1e-9)
    assert found.upper == pytest.approx((nothing.log_marginal_likelihood() + gain).item() + 0.7, rel=1e-9)
    exact = DenseTwin({name: PlainTerm(plain.whole)}, problem.rows, problem.mean, problem.noise)
    assert found.lower < exact.log_marginal_likelihood().item() + 0.7 < found.upper
    assert found.divergence == found.upper - found.lower
    assert found.count == problem.rows.count
