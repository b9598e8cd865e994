"""Several classes by coupled sites, dense and low-rank, against the matrices of the whole system and each other."""

from functools import partial

import numpy as np
import pytest
import torch
from observed import check_gradient, cosines, field_block, kernel_block, lines, weights
from posteriors import elliptical_slices
from scipy.special import log_softmax

import rfgp
from rfgp.blocks import Prior, Weights
from rfgp.inference.sites import (
    CoupledDenseLaplace,
    CoupledLowRankLaplace,
    coupled_dense,
    coupled_lowrank,
    features,
    infer,
    softmax,
)
from rfgp.likelihoods import Bernoulli, Categorical
from rfgp.rows import Block, JoinedRows
from rfgp.solvers.lowrank import LinearModel

ROWS, CLASSES = 40, 3
THETA = torch.tensor([0.2, 0.7, 0.1, -0.2, 0.3], dtype=torch.float64)


def rows(weighted=True):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, 2))
    f = np.stack([np.sin(2 * x[:, 0]), x[:, 1], -x[:, 0]], 1)
    y = (f + rng.gumbel(size=f.shape)).argmax(1).astype(float)
    weight = torch.from_numpy(rng.integers(1, 3, ROWS).astype(float)) if weighted else None
    return Block(torch.from_numpy(x), torch.from_numpy(y)[:, None], weight=weight)


def prior(theta):
    """Two terms of features, of 15 features together, with scales of their own."""
    few = partial(cosines, count=6)
    return Prior(weights=(weights(few, 12, theta), weights(lines, 3, theta, -2.0, name="lines")))


def by_rows(theta, data=None):
    return CoupledDenseLaplace(prior(theta), data or rows(), theta[2:], Categorical(CLASSES))


def by_weights(theta, data=None):
    model = LinearModel(prior(theta).dense, data or rows(), theta[2:], torch.ones((), dtype=torch.float64))
    return CoupledLowRankLaplace(model, Categorical(CLASSES))


def whole_system(theta, f):
    """Return K and the curvature W (C n, C n) of all functions, and the log density of the labels, at f (n, C)."""
    data = rows()
    K = torch.block_diag(*[prior(theta).kernel(data.inputs, data.inputs)] * CLASSES)
    flat = f.mT.reshape(-1).clone().requires_grad_()
    counts, labels = data.counts(), data.targets[:, 0].long()

    def log_prob(values):
        each = torch.log_softmax(values.reshape(CLASSES, ROWS).mT, 1)
        return (counts * each[torch.arange(ROWS), labels]).sum()

    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(log_prob(flat), flat)
        W = -torch.autograd.functional.hessian(log_prob, flat.detach(), vectorize=True)
    return K, W, gradient, log_prob(flat.detach())


def dense_evidence(theta, start):
    """Return the log evidence and the mode (n, C) by whole matrices, from latent values near the mode."""
    f, mean = start, theta[2:].repeat_interleave(ROWS)
    eye = torch.eye(CLASSES * ROWS, dtype=torch.float64)
    for _ in range(20):
        K, W, gradient, _ = whole_system(theta, f)
        flat = f.mT.reshape(-1)
        step = mean + torch.linalg.solve(eye + K @ W, K @ (W @ (flat - mean) + gradient)) - flat
        f = (flat + step).reshape(CLASSES, ROWS).mT
        if float(step.abs().max()) < 1e-12:
            break
    K, W, gradient, value = whole_system(theta, f)
    square = (f.mT.reshape(-1) - mean) @ gradient
    return float(value - 0.5 * (square + torch.logdet(eye + K @ W))), f


@pytest.mark.parametrize("make", [by_rows, by_weights])
def test_value_and_gradient_match_the_whole_system(make):
    theta = THETA.clone().requires_grad_()
    value = make(theta).log_marginal_likelihood()
    (gradient,) = torch.autograd.grad(value, theta)
    with torch.no_grad():
        expected, f = dense_evidence(theta, by_rows(theta).mode.state.f)
        assert float(value) == pytest.approx(expected, rel=1e-9)
    check_gradient(lambda at: dense_evidence(at, f)[0], theta, gradient)


@pytest.mark.parametrize("make", [by_rows, by_weights])
def test_posterior_matches_the_whole_system(make):
    data, found = rows(), make(THETA)
    _, f = dense_evidence(THETA, by_rows(THETA).mode.state.f)
    K, W, _, _ = whole_system(THETA, f)
    joint = torch.linalg.solve(torch.eye(len(K), dtype=torch.float64) + K @ W, K)
    by_class = joint.reshape(CLASSES, ROWS, CLASSES, ROWS)
    posterior = found.posterior()
    projected = posterior.project(data.inputs)
    torch.testing.assert_close(posterior.mean(projected) + THETA[2:], f, rtol=1e-6, atol=1e-7)
    root = posterior.root(data.inputs, projected)
    torch.testing.assert_close(root @ root.mT, joint, rtol=1e-6, atol=1e-8)
    own = torch.stack([by_class[c, :, c] for c in range(CLASSES)], dim=-1)
    torch.testing.assert_close(posterior.covariance(data.inputs, projected), own, rtol=1e-6, atol=1e-8)
    at_points = torch.stack([by_class[:, i, :, i] for i in range(ROWS)])
    found_at = posterior.function_covariance(data.inputs, projected)
    torch.testing.assert_close(found_at, at_points, rtol=1e-6, atol=1e-8)
    variance = posterior.variance(data.inputs, projected)
    torch.testing.assert_close(variance, at_points.diagonal(dim1=1, dim2=2), rtol=1e-6, atol=1e-8)


def test_leave_one_out_takes_each_site_from_the_posterior():
    """The covariance without a row is (V^-1 - W)^-1, and both forms of the algebra agree on it."""
    data, found = rows(), [make(THETA).leave_one_out() for make in (by_rows, by_weights)]
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)
    laplace = by_rows(THETA)
    W = softmax.curvature(laplace.mode.state.f, data.counts()[:, None])
    expected = torch.linalg.inv(torch.linalg.inv(laplace.covariance) - W)
    torch.testing.assert_close(found[0][1], expected, rtol=1e-6, atol=1e-7)


def test_drawn_functions_have_the_posterior_moments():
    posterior, x = by_weights(THETA).posterior(), rows().inputs[:4]
    draws = posterior.sample_functions(4000, torch.Generator().manual_seed(0))(x)
    projected = posterior.project(x)
    deviation = posterior.variance(x, projected).sqrt()
    assert ((draws.mean(0) - posterior.mean(projected)).abs() < 5 * deviation / 4000**0.5).all()
    torch.testing.assert_close(draws.std(0), deviation, rtol=0.06, atol=0)
    with pytest.raises(rfgp.InvalidArgumentError, match="sample"):
        by_rows(THETA).posterior().sample_functions(1, torch.Generator())


def test_two_classes_are_a_logit_of_twice_the_variance():
    data = rows()
    two = Block(data.inputs, (data.targets > 0).double(), weight=data.weight)
    theta, twice = THETA[:4], THETA[:4].clone()
    twice[1] += np.log(2)
    one, other = (Prior(kernels=(kernel_block(each),)) for each in (theta, twice))
    found = infer([one], two, theta[2:], Categorical(2), {}, "laplace")
    assert isinstance(found, CoupledDenseLaplace)
    logit = infer([other], two, (theta[3] - theta[2])[None], Bernoulli(), {}, "laplace")
    values = [each.log_marginal_likelihood() for each in (found, logit)]
    torch.testing.assert_close(*values, rtol=1e-9, atol=1e-8)
    mean, covariance = found.leave_one_out()
    expected = logit.leave_one_out()
    torch.testing.assert_close((mean[:, 1] - mean[:, 0])[:, None], expected[0], rtol=1e-6, atol=1e-7)
    between = covariance[:, 0, 0] + covariance[:, 1, 1] - 2 * covariance[:, 0, 1]
    torch.testing.assert_close(between, expected[1], rtol=1e-6, atol=1e-7)


def test_blocks_and_features_that_are_not_kept_agree(monkeypatch):
    whole, data = by_weights(THETA), rows()
    assert features.FeatureBlocks(whole.model).is_kept
    monkeypatch.setattr(features, "KEPT", 0)
    parts = by_weights(THETA, JoinedRows([data.take(slice(0, 11)), data.take(slice(11, None))]))
    values = [each.log_marginal_likelihood() for each in (parts, whole)]
    torch.testing.assert_close(*values, rtol=1e-10, atol=1e-9)
    torch.testing.assert_close(parts.mode.position, whole.mode.position, rtol=1e-6, atol=1e-8)


def test_effective_dof_is_a_share_of_all_weights():
    found = by_weights(THETA)
    inverse = torch.linalg.inv(found.factor @ found.factor.mT)
    assert found.effective_dof_fraction == pytest.approx(1 - float(inverse.trace()) / len(inverse))


@pytest.mark.slow
def test_moments_are_near_those_of_a_long_chain():
    """Means by 0.35 of a posterior deviation at most: the mode of a skewed density is not its mean."""
    data, theta = rows(weighted=False), THETA
    y = data.targets[:, 0].long().numpy()
    found = CoupledDenseLaplace(Prior(kernels=(kernel_block(theta),)), data, theta[2:], Categorical(CLASSES))
    covariance = np.kron(np.eye(CLASSES), found.kernel.numpy())

    def log_likelihood(f):
        return log_softmax(f.reshape(-1, CLASSES, ROWS), axis=1)[:, y, np.arange(ROWS)].sum(1)

    mean = np.repeat(theta[2:].numpy(), ROWS)
    draws = elliptical_slices(covariance, mean, log_likelihood, 1500, np.random.default_rng(1))
    mean, deviation = (value.reshape(CLASSES, ROWS).T for value in (draws.mean((0, 1)), draws.std((0, 1))))
    assert np.abs((found.mode.state.f.numpy() - mean) / deviation).max() < 0.35
    assert np.abs(found.covariance.diagonal(dim1=1, dim2=2).sqrt().numpy() / deviation - 1).max() < 0.35


class TestChoice:
    def test_weights_are_shared_if_rows_are_many(self):
        found = infer([prior(THETA)], rows(), THETA[2:], Categorical(CLASSES), {}, "laplace")
        assert isinstance(found, CoupledLowRankLaplace)
        few = infer([prior(THETA)], rows().take(slice(0, 20)), THETA[2:], Categorical(CLASSES), {}, "laplace")
        assert isinstance(few, CoupledDenseLaplace)

    def test_fields_are_refused(self):
        field = Prior(precisions=(field_block(THETA),))
        with pytest.raises(rfgp.InvalidArgumentError, match="variational"):
            infer([field], rows(), THETA[2:], Categorical(CLASSES), {}, "laplace")

    def test_too_many_weights_or_rows_are_refused(self, monkeypatch):
        monkeypatch.setattr(coupled_lowrank, "MOST_WEIGHTS", 40)
        with pytest.raises(rfgp.InvalidArgumentError, match="num_frequencies"):
            by_weights(THETA)
        monkeypatch.setattr("rfgp.inference.sites.choice.MOST_DENSE", 30)
        with pytest.raises(rfgp.InvalidArgumentError, match="at most 30 rows"):
            infer([Prior(kernels=(kernel_block(THETA),))], rows(), THETA[2:], Categorical(CLASSES), {}, "laplace")


class TestPlantedErrors:
    @pytest.mark.parametrize("make", [by_rows, by_weights])
    @pytest.mark.parametrize("fault", ["determinant_gradient", "curvature_product", "log_prob_gradient"])
    def test_wrong_derivatives_are_seen(self, monkeypatch, make, fault):
        right = getattr(softmax, fault)
        monkeypatch.setattr(softmax, fault, lambda *given: 1.01 * right(*given))
        with pytest.raises((AssertionError, rfgp.SolverError)):
            test_value_and_gradient_match_the_whole_system(make)

    def test_dropped_determinant_is_seen(self, monkeypatch):
        precision = coupled_dense.class_precision
        zero = torch.zeros((), dtype=torch.float64)
        monkeypatch.setattr(
            coupled_dense, "class_precision", lambda *given: precision(*given)._replace(log_determinant=zero)
        )
        with pytest.raises(AssertionError):
            test_value_and_gradient_match_the_whole_system(by_rows)

    def test_swapped_scales_are_seen(self, monkeypatch):
        by_block = Weights.by_block
        monkeypatch.setattr(Weights, "by_block", lambda self, values: by_block(self, values).flip(0))
        with pytest.raises(AssertionError):
            test_value_and_gradient_match_the_whole_system(by_weights)
