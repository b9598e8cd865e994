"""Laplace's approximation by every solver under every likelihood, against dense matrices, quadrature and chains."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from observed import (
    LIKELIHOODS,
    OF_ONE,
    SUMS,
    Observed,
    SentRows,
    by_rows,
    check_gradient,
    dense_laplace,
    evidence_of_a_row,
    grid,
    observations,
)
from posteriors import elliptical_slices
from reference import ReferenceSolver

from rfgp import InvalidArgumentError, SolverError
from rfgp.blocks import Prior, WeightBlock, Weights
from rfgp.inference.sites import Laplace, LowRankLaplace, infer, laplace
from rfgp.inference.sites import rows as row_sites
from rfgp.inference.sites.terms import RowLikelihood
from rfgp.rows import Block, JoinedRows
from rfgp.solvers.choice import solver_for
from rfgp.solvers.dense import DenseSolver
from rfgp.solvers.iterative import IterativeSolver, LatentSolver

SOLVERS = {
    "as chosen": Observed.infer,
    "by rows": lambda problem: problem.by(by_rows),
    "reference": lambda problem: problem.by(ReferenceSolver),
}
WAYS = [("as chosen", names) for names in SUMS] + [("by rows", ("smooth", "linear")), ("reference", ("exact",))]
ALL = SUMS[-1]


def is_fast(way, name):
    return name in ("poisson", "student-t") or way[1] in (("exact",), ALL)


@pytest.mark.thinned(3, slow=2)
@pytest.mark.parametrize(("way", "name"), grid(WAYS, OF_ONE, is_fast))
def test_value_and_gradient_match_the_dense_twin(way, name):
    problem = Observed(way[1], name)
    found = SOLVERS[way[0]](problem)
    value, f = found.log_marginal_likelihood(), found.fitted.detach()
    expected = dense_laplace(problem, f)
    torch.testing.assert_close(f, expected.f.detach(), rtol=1e-6, atol=1e-7)
    assert value.item() == pytest.approx(expected.value.item(), rel=1e-9)
    check_gradient(problem, value, lambda at: dense_laplace(at, f).value)


@pytest.mark.parametrize("name", ["bernoulli", "student-t"])
@pytest.mark.parametrize("way", WAYS)
def test_moments_match_the_dense_posterior(way, name):
    problem = Observed(way[1], name).moved(0.0)
    found, x = SOLVERS[way[0]](problem), problem.rows.inputs
    expected = dense_laplace(problem, found.fitted)
    posterior = found.posterior()
    projected = posterior.project(x)
    torch.testing.assert_close(posterior.mean(projected)[:, 0] + problem.mean[0], expected.f, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(posterior.covariance(x, projected), expected.covariance, rtol=1e-6, atol=1e-8)
    terms = RowLikelihood(problem.bound, problem.rows).terms(expected.f)
    mean, variance = found.leave_one_out()
    left = expected.without(terms.gradient, terms.weight)
    torch.testing.assert_close(mean[:, 0], left[0], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(variance, left[1], rtol=1e-6, atol=1e-7)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("names", SUMS)
def test_gaussian_likelihood_matches_the_closed_form(names):
    problem = Observed(names, "gaussian")
    found = problem.infer()
    exact = solver_for(problem.prior, problem.rows, problem.mean, problem.theta["noise"])
    values = [each.log_marginal_likelihood() for each in (found, exact)]
    leaves = list(problem.theta.values())
    torch.testing.assert_close(*[value.detach() for value in values], rtol=1e-10, atol=1e-8)
    for one, other in zip(*(torch.autograd.grad(value, leaves) for value in values), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)
    with torch.no_grad():
        (mean, variance), expected = found.leave_one_out(), exact.leave_one_out()
        torch.testing.assert_close(mean, expected[0], rtol=1e-8, atol=1e-8)
        noise = problem.rows.noise_diag(problem.theta["noise"])
        torch.testing.assert_close(variance + noise, expected[1], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["bernoulli", "negative-binomial", "student-t"])
def test_blocks_of_rows_are_summed(name):
    data, results = observations(name), []
    for rows in (data, JoinedRows([data.take(slice(0, 13)), data.take(slice(13, None))])):
        problem = Observed(("smooth", "linear"), name, rows)
        found = problem.infer()
        assert isinstance(found, LowRankLaplace)
        value = found.log_marginal_likelihood()
        gradients = torch.autograd.grad(value, list(problem.theta.values()))
        results.append((value.detach(), found.mode.weights, *gradients))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


def plane(x, lengthscale):
    return x[:, :2] / lengthscale


@pytest.mark.parametrize("name", ["negative-binomial", "student-t"])
def test_rows_elsewhere_are_summed_there(name):
    data, results = observations(name), []
    for rows in (data, JoinedRows([data.take(slice(0, 13)), SentRows(data.take(slice(13, None)))])):
        theta = torch.tensor([0.8, 1.3, 0.4], dtype=torch.float64, requires_grad=True)
        prior = Prior(weights=(WeightBlock(plane, 2, (theta[:1],), theta[1]),))
        given = {key: torch.tensor(value).double() for key, value in LIKELIHOODS[name][1].items()}
        found = infer([prior], rows, theta[2:], LIKELIHOODS[name][0], given, "laplace")
        value = found.log_marginal_likelihood()
        results.append((value.detach(), *torch.autograd.grad(value, theta)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def in_double(x, lengthscale):
    return torch.cat([(x[:, :2] / lengthscale).cos(), (x[:, :2] / lengthscale).sin()], dim=1)


def in_single(x, lengthscale):
    return in_double(x, lengthscale).float()


@pytest.mark.parametrize("name", ["bernoulli", "student-t", "categorical"])
def test_features_of_single_precision_are_near_double(name):
    """Their searches end sooner, because of rounding."""
    likelihood, results = LIKELIHOODS[name][0], []
    given = {key: torch.tensor(value).double() for key, value in LIKELIHOODS[name][1].items()}
    for features in (in_double, in_single):
        theta = torch.tensor([0.8, 1.3, 0.4, 0.1, -0.2], dtype=torch.float64, requires_grad=True)
        prior = Prior(weights=(WeightBlock(features, 4, (theta[:1],), theta[1]),))
        found = infer([prior], observations(name), theta[2 : 2 + likelihood.num_latents], likelihood, given, "laplace")
        assert (found.model.phi(observations(name)).dtype == torch.float32) == (features is in_single)
        value = found.log_marginal_likelihood()
        results.append((value.detach(), *torch.autograd.grad(value, theta)))
    torch.testing.assert_close(results[1][0], results[0][0], rtol=1e-6, atol=0)
    torch.testing.assert_close(results[1][1], results[0][1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["bernoulli", "negative-binomial"])
@pytest.mark.parametrize("names", [("exact",), ("smooth",), ("field",)])
def test_weight_is_a_number_of_repetitions(names, name):
    data = observations(name)
    times = data.weight.long()
    repeated = Block(data.inputs.repeat_interleave(times, 0), data.targets.repeat_interleave(times, 0))
    values = [Observed(names, name, rows).infer().log_marginal_likelihood() for rows in (data, repeated)]
    torch.testing.assert_close(*values, rtol=1e-8, atol=1e-7)


@pytest.mark.parametrize("names", [("exact",), ("smooth",)])
def test_exposure_shifts_the_latent_function(names):
    """A common exposure of all rows equals a mean that is lower by its logarithm."""
    data = observations("poisson")
    exposed = Block(data.inputs, data.targets, torch.full((len(data),), 2.0).double(), data.weight)
    shifted = Observed(names, "poisson").moved(0.0, {"mean": [0.3 + np.log(2.0)]})
    values = [each.infer().log_marginal_likelihood() for each in (Observed(names, "poisson", exposed), shifted)]
    torch.testing.assert_close(*values, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("names", [("exact",), ("smooth",), ("field",)])
@pytest.mark.parametrize("name", ["poisson", "student-t"])
def test_warm_start_finds_the_same_mode(names, name):
    problem = Observed(names, name)
    start = problem.moved(0.05).infer().warm_start()
    values = [problem.infer(warm_start=near).log_marginal_likelihood() for near in ((), start)]
    torch.testing.assert_close(*values, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in OF_ONE if name != "gaussian"])
def test_one_row_is_near_quadrature(name):
    """Laplace's evidence misses the integral by what is stated.

    For Student's t by more: Fisher's information takes an outlier for as sure as any other observation.
    """
    rows = observations(name, weighted=False).take(slice(0, 1))
    problem = Observed(("exact",), name, rows).moved(0.0, {"exact variance": 0.25})
    value = float(problem.infer().log_marginal_likelihood())
    assert value == pytest.approx(evidence_of_a_row(problem), abs=0.3 if name == "student-t" else 0.03)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "error"), [("bernoulli", 0.25), ("poisson", 0.3), ("student-t", 0.35), ("gamma", 0.25)]
)
def test_moments_are_near_those_of_a_long_chain(name, error):
    """Means are within `error` posterior deviations, and deviations within the same ratio."""
    problem = Observed(("exact",), name, observations(name, weighted=False)).moved(0.0, {"exact variance": 1.6})
    y, likelihood = problem.rows.targets[:, 0], problem.bound

    def log_likelihood(f):
        return likelihood.log_prob(y, torch.from_numpy(f)).sum(-1).numpy()

    draws = elliptical_slices(problem.covariance.numpy(), 0.3, log_likelihood, 1200, np.random.default_rng(1))
    mean, deviation = draws.mean((0, 1)), draws.std((0, 1))
    found = problem.infer()
    own = found.fitted.numpy(), found.variance.sqrt().numpy()
    assert np.abs((own[0] - mean) / deviation).max() < error
    assert np.abs(own[1] / deviation - 1).max() < error
    off = np.abs((own[0] + 0.4 * deviation - mean) / deviation).max()
    assert off > error  # what a planted shift would show


@pytest.mark.parametrize("name", ["bernoulli", "poisson", "gamma"])
def test_leave_one_out_is_near_refits(name):
    problem = Observed(("exact",), name, observations(name, weighted=False)).moved(0.0)
    mean, variance = problem.infer().leave_one_out()
    for i in (0, 7, 23):
        others = problem.rows.take(torch.tensor([j for j in range(len(problem.rows)) if j != i]))
        posterior, x = Observed(("exact",), name, others).infer().posterior(), problem.rows.inputs[i : i + 1]
        projected = posterior.project(x)
        deviation = posterior.variance(x, projected).item() ** 0.5
        assert abs(float(mean[i]) - posterior.mean(projected).item() - 0.3) < 0.2 * deviation
        assert variance[i].item() ** 0.5 == pytest.approx(deviation, rel=0.1)


@pytest.mark.parametrize("name", ["poisson", "student-t"])
def test_conjugate_gradients_find_the_mode_and_estimate_the_rest(limits, name):
    problem, gradients = Observed(("walks", "field", "linear"), name), []
    expected = dense_laplace(problem, problem.by(ReferenceSolver).fitted)
    reference = problem.by(ReferenceSolver).log_marginal_likelihood()
    limits(max_dense=10)
    found = problem.infer()
    assert isinstance(found.solver, IterativeSolver)
    value = found.log_marginal_likelihood()
    torch.testing.assert_close(found.fitted, expected.f.detach(), rtol=1e-8, atol=1e-8)
    assert 0 < found.likelihood_error < 1
    assert abs(value.item() - expected.value.item()) < 4 * found.likelihood_error
    for each in (value, reference):
        parts = torch.autograd.grad(each, list(problem.theta.values()))
        gradients.append(torch.cat([part.reshape(-1) for part in parts]))
    assert float((gradients[0] - gradients[1]).norm()) < 0.5 * float(gradients[1].norm())


class TestSearch:
    @pytest.mark.parametrize("names", [("exact",), ("smooth",), ("field",)])
    def test_large_counts_converge(self, names):
        """Newton's first step from a mean of 0 to counts of a million overshoots. Shortened steps do not."""
        data = observations("poisson")
        problem = Observed(names, "poisson", Block(data.inputs, data.targets * 1e5))
        for variance in (1.0, 150.0):
            found = problem.moved(0.0, {f"{names[0]} variance": variance, "mean": [0.0]}).infer()
            assert np.isfinite(float(found.log_marginal_likelihood()))

    @pytest.mark.parametrize("way", [("as chosen", ("exact",)), ("by rows", ("smooth",)), ("as chosen", ALL)])
    def test_mode_is_stationary_with_outliers(self, way):
        data = observations("student-t")
        data.targets[::5] += 8.0
        problem = Observed(way[1], "student-t", data).moved(0.0, {"scale": 0.05})
        found = SOLVERS[way[0]](problem)
        moved = problem.covariance @ found.mode.terms.gradient
        torch.testing.assert_close(moved, found.fitted - 0.3, rtol=1e-5, atol=1e-6)

    @pytest.mark.parametrize("names", [("exact",), ("smooth",), ("field",)])
    def test_density_that_is_not_finite_is_an_error(self, names):
        with pytest.raises(SolverError, match="must be finite"):
            Observed(names, "poisson").moved(0.0, {"mean": [800.0]}).infer().log_marginal_likelihood()


def test_choice_is_by_the_numbers_of_rows_and_features():
    low_rank = {names for names in SUMS if isinstance(Observed(names).infer(), LowRankLaplace)}
    assert low_rank == {("smooth",), ("smooth", "rough", "linear")}
    assert all(isinstance(Observed(names).infer(), Laplace) for names in set(SUMS) - low_rank)


@pytest.mark.parametrize("names", [("fitc",), ("vfe", "field")])
@pytest.mark.parametrize("approximation", ["laplace", "variational"])
def test_residuals_are_refused(names, approximation):
    with pytest.raises(InvalidArgumentError, match="Gaussian likelihood"):
        Observed(names).infer(approximation)


def test_neighbors_that_are_responses_are_refused():
    problem = Observed(("neighbors",))
    given = problem.rows, problem.mean, problem.likelihood, problem.learned, "laplace"
    for changes in ({"condition_on": "responses"}, {"condition_on": "responses", "residual_of": "nothing"}):
        with pytest.raises(InvalidArgumentError, match="Gaussian likelihood"):
            infer([Prior(neighbors=replace(problem.prior.neighbors, **changes))], *given)


def test_neighbors_of_several_classes_are_refused():
    with pytest.raises(InvalidArgumentError, match="fields and neighbors"):
        Observed(("neighbors",), "categorical").infer()


def test_many_neighbors_are_solved_by_conjugate_gradients(limits):
    limits(max_elimination_flops=0)
    problem = Observed(("neighbors",)).moved(0.0)
    found = problem.infer()
    assert isinstance(found.solver, LatentSolver)
    expected = dense_laplace(problem, found.fitted)
    torch.testing.assert_close(found.fitted, expected.f, rtol=1e-6, atol=1e-7)
    assert abs(found.log_marginal_likelihood() - expected.value) <= 6 * found.likelihood_error + 1e-8


@pytest.mark.parametrize(
    ("names", "fewer", "message"), [(("walks", "field"), 0, "fields or groups"), (("walks",), 1, "at most .* got")]
)
def test_variational_inference_states_its_limits_for_walks(limits, names, fewer, message):
    problem = Observed(names)
    limits(max_dense=len(problem.rows) - fewer)
    with pytest.raises(InvalidArgumentError, match=message):
        problem.infer("variational")


def test_variational_inference_needs_a_factor_of_neighbors(limits):
    limits(max_elimination_flops=0)
    with pytest.raises(InvalidArgumentError, match="sparse factor"):
        Observed(("neighbors",)).infer("variational")


class TestPlantedErrors:
    """The comparison with the dense oracle detects each of them."""

    @pytest.mark.parametrize("names", [("exact",), ("smooth",), ("field",)])
    @pytest.mark.parametrize("field", ["weight_slope", "weight", "gradient"])
    def test_wrong_derivatives_are_seen(self, monkeypatch, names, field):
        """No implicit part of the gradient, and a curvature and a gradient that are 1 % too large."""
        terms = RowLikelihood.terms
        factor = {"weight_slope": 0.0, "weight": 1.01, "gradient": 1.01}[field]

        def wrong(self, f):
            found = terms(self, f)
            return found._replace(**{field: factor * getattr(found, field)})

        monkeypatch.setattr(RowLikelihood, "terms", wrong)
        with pytest.raises((AssertionError, SolverError)):
            test_value_and_gradient_match_the_dense_twin(("as chosen", names), "poisson")

    @pytest.mark.parametrize("signs", [[1.0, -1.0, 0.0], [1.0, 1.0, 1.0], [1.0, 0.0, 0.0]])
    def test_wrong_signs_are_seen(self, monkeypatch, signs):
        """No log determinant, the implicit term with the wrong sign, and without its square."""
        regression = row_sites.regression

        def wrong(*given):
            return regression(*given[:5], given[5].new_tensor(signs)) if len(given) > 5 else regression(*given)

        monkeypatch.setattr(laplace, "regression", wrong)
        with pytest.raises(AssertionError):
            test_value_and_gradient_match_the_dense_twin(("as chosen", ("exact",)), "poisson")

    def test_wrong_determinant_is_seen(self, monkeypatch):
        monkeypatch.setattr(DenseSolver, "log_determinant", property(lambda self: 0.0))
        with pytest.raises(AssertionError):
            test_value_and_gradient_match_the_dense_twin(("as chosen", ("exact",)), "poisson")

    def test_swapped_scales_are_seen(self, monkeypatch):
        by_block = Weights.by_block
        monkeypatch.setattr(Weights, "by_block", lambda self, values: by_block(self, values).flip(0))
        with pytest.raises(AssertionError):
            test_value_and_gradient_match_the_dense_twin(("as chosen", SUMS[2]), "poisson")

    def test_step_that_is_too_long_is_seen(self, monkeypatch):
        fitted = DenseSolver.fitted.fget
        monkeypatch.setattr(DenseSolver, "fitted", property(lambda self: 1.001 * fitted(self)))
        with pytest.raises((AssertionError, SolverError)):
            test_value_and_gradient_match_the_dense_twin(("as chosen", ("exact",)), "poisson")
