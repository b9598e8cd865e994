"""Several classes by coupled sites, dense and low-rank, against full matrices and each other."""

import numpy as np
import pytest
import torch
from observed import Observed, check_gradient, observations
from posteriors import elliptical_slices
from scipy.special import log_softmax

import rfgp
from rfgp.blocks import Weights
from rfgp.inference.sites import (
    CoupledDenseLaplace,
    CoupledLowRankLaplace,
    coupled_dense,
    coupled_lowrank,
    restore,
    softmax,
)
from rfgp.likelihoods import Bernoulli, Categorical
from rfgp.rows import Block, JoinedRows
from rfgp.solvers.lowrank import LinearModel

CLASSES = 3
NAMES = ("smooth", "linear")


def by_rows(problem):
    return CoupledDenseLaplace(problem.prior, problem.rows, problem.mean, problem.likelihood)


def by_weights(problem):
    one = torch.ones((), dtype=torch.float64)
    return CoupledLowRankLaplace(LinearModel(problem.prior.dense, problem.rows, problem.mean, one), problem.likelihood)


def given(names=NAMES, rows=None):
    return Observed(names, "categorical", rows)


def whole_system(problem, f):
    """Return K and the curvature W (C n, C n), the gradient (C n,) and the log density of the labels, at f (C n,)."""
    K = torch.block_diag(*[problem.covariance] * CLASSES)
    counts, labels = problem.rows.counts(), problem.rows.targets[:, 0].long()

    def log_prob(values):
        each = torch.log_softmax(values.reshape(CLASSES, -1).mT, 1)
        return (counts * each[torch.arange(len(labels)), labels]).sum()

    with torch.enable_grad():
        leaf = f.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(log_prob(leaf), leaf)
        W = -torch.autograd.functional.hessian(log_prob, f, vectorize=True)
    return K, W, gradient, log_prob(f)


def dense_evidence(problem, f):
    """Return the log evidence and the mode (C n,) by full matrices, from latent values (n, C) near the mode."""
    f, mean = f.mT.reshape(-1), problem.mean.repeat_interleave(len(problem.rows))
    eye = torch.eye(len(f), dtype=torch.float64)
    for _ in range(20):
        K, W, gradient, value = whole_system(problem, f)
        step = mean + torch.linalg.solve(eye + K @ W, K @ (W @ (f - mean) + gradient)) - f
        if float(step.abs().max()) < 1e-10:
            break
        f = f + step
    return float(value - 0.5 * ((f - mean) @ gradient + torch.logdet(eye + K @ W))), f


@pytest.mark.parametrize("make", [by_rows, by_weights])
def test_value_and_gradient_match_the_full_system(make):
    problem = given()
    value, f = make(problem).log_marginal_likelihood(), by_rows(problem).mode.state.f
    with torch.no_grad():
        assert value.item() == pytest.approx(dense_evidence(problem, f)[0], rel=1e-9)
    check_gradient(problem, value, lambda at: dense_evidence(at, f)[0])


@pytest.mark.parametrize("make", [by_rows, by_weights])
def test_posterior_matches_the_full_system(make):
    problem = given().moved(0.0)
    x, n = problem.rows.inputs, len(problem.rows)
    _, f = dense_evidence(problem, by_rows(problem).mode.state.f)
    K, W, _, _ = whole_system(problem, f)
    joint = torch.linalg.solve(torch.eye(len(K), dtype=torch.float64) + K @ W, K)
    by_class = joint.reshape(CLASSES, n, CLASSES, n)
    posterior = make(problem).posterior()
    projected = posterior.project(x)
    mean = posterior.mean(projected) + problem.mean
    torch.testing.assert_close(mean, f.reshape(CLASSES, n).mT, rtol=1e-6, atol=1e-7)
    root = posterior.root(x, projected)
    torch.testing.assert_close(root @ root.mT, joint, rtol=1e-6, atol=1e-8)
    own = torch.stack([by_class[c, :, c] for c in range(CLASSES)], dim=-1)
    torch.testing.assert_close(posterior.covariance(x, projected), own, rtol=1e-6, atol=1e-8)
    at_points = torch.stack([by_class[:, i, :, i] for i in range(n)])
    torch.testing.assert_close(posterior.function_covariance(x, projected), at_points, rtol=1e-6, atol=1e-8)
    variance = posterior.variance(x, projected)
    torch.testing.assert_close(variance, at_points.diagonal(dim1=1, dim2=2), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("make", [by_rows, by_weights])
def test_posterior_is_restored_from_its_tensors(make):
    problem = given().moved(0.0)
    posterior, x = make(problem).posterior(), problem.rows.inputs[:5]
    tensors = posterior.tensors()
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items() if name != "inputs"}
    assert shapes == posterior.shapes(len(problem.rows), CLASSES)
    other = restore([problem.prior], tensors, CLASSES)
    results = [[p.mean(p.project(x)), p.function_covariance(x, p.project(x))] for p in (posterior, other)]
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0)


def test_leave_one_out_takes_each_site_from_the_posterior():
    """The covariance without a row is (V^-1 - W)^-1, and both forms of the algebra agree on it."""
    problem = given().moved(0.0)
    laplace = by_rows(problem)
    found = [each.leave_one_out() for each in (laplace, by_weights(problem))]
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)
    W = softmax.curvature(laplace.mode.state.f, problem.rows.counts()[:, None])
    expected = torch.linalg.inv(torch.linalg.inv(laplace.covariance) - W)
    torch.testing.assert_close(found[0][1], expected, rtol=1e-6, atol=1e-7)


def test_drawn_functions_have_the_posterior_moments():
    problem = given().moved(0.0)
    posterior, x = by_weights(problem).posterior(), problem.rows.inputs[:4]
    draws = posterior.sample_functions(4000, torch.Generator().manual_seed(0))(x)
    projected = posterior.project(x)
    deviation = posterior.variance(x, projected).sqrt()
    assert ((draws.mean(0) - posterior.mean(projected)).abs() < 5 * deviation / 4000**0.5).all()
    torch.testing.assert_close(draws.std(0), deviation, rtol=0.06, atol=0)
    with pytest.raises(rfgp.InvalidArgumentError, match="sample"):
        by_rows(problem).posterior().sample_functions(1, torch.Generator())


def test_two_classes_are_a_logit_of_twice_the_variance():
    data = observations("categorical")
    two = Block(data.inputs, (data.targets > 0).double(), weight=data.weight)
    softmaxed, logit = Observed(("exact",), "categorical", two), Observed(("exact",), "bernoulli", two)
    softmaxed.likelihood, logit.likelihood = Categorical(2), Bernoulli()
    one = softmaxed.moved(0.0, {"mean": [0.1, 0.3]}).infer()
    other = logit.moved(0.0, {"mean": [0.2], "exact variance": 1.2}).infer()
    assert isinstance(one, CoupledDenseLaplace)
    values = [each.log_marginal_likelihood() for each in (one, other)]
    torch.testing.assert_close(*values, rtol=1e-9, atol=1e-8)
    (mean, covariance), expected = one.leave_one_out(), other.leave_one_out()
    torch.testing.assert_close((mean[:, 1] - mean[:, 0])[:, None], expected[0], rtol=1e-6, atol=1e-7)
    between = covariance[:, 0, 0] + covariance[:, 1, 1] - 2 * covariance[:, 0, 1]
    torch.testing.assert_close(between, expected[1], rtol=1e-6, atol=1e-7)


def test_blocks_and_features_that_are_not_kept_agree(monkeypatch):
    data = observations("categorical")
    full = by_weights(given())
    assert coupled_lowrank.FeatureBlocks(full.model).is_cached
    monkeypatch.setattr(coupled_lowrank, "MAX_CACHED_ENTRIES", 0)
    parts = by_weights(given(rows=JoinedRows([data.take(slice(0, 11)), data.take(slice(11, None))])))
    values = [each.log_marginal_likelihood() for each in (parts, full)]
    torch.testing.assert_close(*values, rtol=1e-10, atol=1e-9)
    torch.testing.assert_close(parts.mode.position, full.mode.position, rtol=1e-6, atol=1e-8)


def test_effective_dof_is_a_share_of_all_weights():
    found = by_weights(given())
    inverse = torch.linalg.inv(found.factor @ found.factor.mT)
    assert found.effective_dof_fraction == pytest.approx(1 - float(inverse.trace()) / len(inverse))


@pytest.mark.slow
def test_moments_are_near_those_of_a_long_chain():
    """Means are within 0.35 posterior deviations, because the mode of a skewed density is not its mean."""
    rows = observations("categorical", weighted=False)
    problem = given(("exact",), rows).moved(0.0, {"exact variance": 2.0})
    found, y, n = by_rows(problem), rows.targets[:, 0].long().numpy(), len(rows)

    def log_likelihood(f):
        return log_softmax(f.reshape(-1, CLASSES, n), axis=1)[:, y, np.arange(n)].sum(1)

    covariance, mean = np.kron(np.eye(CLASSES), problem.covariance.numpy()), np.repeat(problem.mean.numpy(), n)
    draws = elliptical_slices(covariance, mean, log_likelihood, 400, np.random.default_rng(1))
    mean, deviation = (value.reshape(CLASSES, n).T for value in (draws.mean((0, 1)), draws.std((0, 1))))
    assert np.abs((found.mode.state.f.numpy() - mean) / deviation).max() < 0.35
    assert np.abs(found.covariance.diagonal(dim1=1, dim2=2).sqrt().numpy() / deviation - 1).max() < 0.35


class TestChoice:
    def test_weights_are_shared_if_rows_are_many(self):
        assert isinstance(given().infer(), CoupledLowRankLaplace)
        few = observations("categorical").take(slice(0, 14))
        assert isinstance(given(rows=few).infer(), CoupledDenseLaplace)
        assert isinstance(given(("exact", "smooth", "walks")).infer(), CoupledDenseLaplace)

    def test_fields_are_refused(self):
        with pytest.raises(rfgp.InvalidArgumentError, match="variational"):
            given(("field", "smooth")).infer()

    def test_too_many_weights_or_rows_are_refused(self, monkeypatch, limits):
        monkeypatch.setattr(coupled_lowrank, "MAX_WEIGHTS", 29)
        with pytest.raises(rfgp.InvalidArgumentError, match="num_frequencies"):
            given().infer()
        limits(max_dense=30)
        with pytest.raises(rfgp.InvalidArgumentError, match="at most 30 rows"):
            given(("exact",)).infer()


class TestPlantedErrors:
    @pytest.mark.parametrize("make", [by_rows, by_weights])
    @pytest.mark.parametrize("fault", ["determinant_gradient", "curvature_product", "log_prob_gradient"])
    def test_wrong_derivatives_are_seen(self, monkeypatch, make, fault):
        right = getattr(softmax, fault)
        monkeypatch.setattr(softmax, fault, lambda *given: 1.01 * right(*given))
        with pytest.raises((AssertionError, rfgp.SolverError)):
            test_value_and_gradient_match_the_full_system(make)

    def test_dropped_determinant_is_seen(self, monkeypatch):
        precision = coupled_dense.class_precision
        zero = torch.zeros((), dtype=torch.float64)
        monkeypatch.setattr(
            coupled_dense, "class_precision", lambda *given: precision(*given)._replace(log_determinant=zero)
        )
        with pytest.raises(AssertionError):
            test_value_and_gradient_match_the_full_system(by_rows)

    def test_swapped_scales_are_seen(self, monkeypatch):
        by_block = Weights.by_block
        monkeypatch.setattr(Weights, "by_block", lambda self, values: by_block(self, values).flip(0))
        with pytest.raises(AssertionError):
            test_value_and_gradient_match_the_full_system(by_weights)
