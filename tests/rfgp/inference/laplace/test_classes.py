"""Several classes, by both algebras, against dense matrices, differences, quadrature and each other."""

import numpy as np
import pytest
import torch
from posteriors import elliptical_slices
from rfgp.inference.laplace import classes, shared
from rfgp.inference.laplace.classes import ClassEvidence
from rfgp.inference.laplace.shared import SharedEvidence
from rfgp.inference.linear import LinearModel
from scipy.special import log_softmax

import rfgp
from rfgp.inference import FeaturePrior, KernelPrior, laplace_evidence
from rfgp.inference.labels import averaged_softmax
from rfgp.likelihoods import Bernoulli, Categorical
from rfgp.rows import Block, JoinedRows

ROWS, CLASSES = 40, 3
THETA = torch.tensor([0.2, 0.7, 0.1, -0.2, 0.3], dtype=torch.float64)


def rows(weighted=True):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, 2))
    f = np.stack([np.sin(2 * x[:, 0]), x[:, 1], -x[:, 0]], 1)
    y = (f + rng.gumbel(size=f.shape)).argmax(1).astype(float)
    weight = torch.from_numpy(rng.integers(1, 3, ROWS).astype(float)) if weighted else None
    return Block(torch.from_numpy(x), torch.from_numpy(y)[:, None], weight=weight)


def features(x, lengthscale):
    omega = torch.from_numpy(np.random.default_rng(3).standard_normal((8, 2)))
    p = (x / lengthscale) @ omega.T
    return torch.cat([p.cos(), p.sin()], 1) / 8**0.5


def prior(theta):
    return FeaturePrior(features, 16, (theta[:1].exp(),), theta[1].exp())


def kernel_prior(theta):
    ell, variance = theta[:1].exp(), theta[1].exp()

    def kernel(a, b):
        return variance * torch.exp(
            -0.5 * torch.cdist(a / ell, b / ell, compute_mode="donot_use_mm_for_euclid_dist") ** 2
        )

    return KernelPrior(kernel, lambda a: variance.expand(len(a)))


def by_kernel(theta, data=None):
    return ClassEvidence(prior(theta), data or rows(), theta[2:], Categorical(CLASSES))


def by_features(theta, data=None):
    model = LinearModel(prior(theta), data or rows(), theta[2:], torch.ones((), dtype=torch.float64))
    return SharedEvidence(model, Categorical(CLASSES))


@pytest.mark.parametrize("make", [by_kernel, by_features])
def test_the_gradient_is_that_of_the_evidence(make):
    theta = THETA.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(make(theta).log_marginal_likelihood(), theta)
    with torch.no_grad():
        for i in range(len(theta)):
            step = torch.zeros_like(theta)
            step[i] = 1e-4
            ends = [float(make(theta + s * step).log_marginal_likelihood()) for s in (1, -1)]
            assert float(gradient[i]) == pytest.approx((ends[0] - ends[1]) / 2e-4, rel=1e-6, abs=1e-6)


def test_both_algebras_are_the_same():
    theta = THETA.clone().requires_grad_()
    one, other = by_kernel(theta), by_features(theta)
    values = [each.log_marginal_likelihood() for each in (one, other)]
    torch.testing.assert_close(*[v.detach() for v in values], rtol=1e-9, atol=1e-7)
    gradients = [torch.autograd.grad(v, theta, retain_graph=True)[0] for v in values]
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-6)
    with torch.no_grad():
        for a, b in zip(one.leave_one_out(), other.leave_one_out(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)
        new = rows().inputs[:5] + 0.3
        laws = [each.posterior().law(new) for each in (one, other)]
        for name in ("mean", "variance", "spread", "covariance"):
            torch.testing.assert_close(*[getattr(law, name)() for law in laws], rtol=1e-6, atol=1e-7)
        roots = [law.root() for law in laws]
        torch.testing.assert_close(*[root @ root.mT for root in roots], rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(laws[0].spread().diagonal(dim1=1, dim2=2), laws[0].variance(), rtol=1e-9, atol=1e-12)


def test_the_matrices_are_those_of_the_whole_system():
    told = by_kernel(THETA)
    mode, kernel = told.mode, told.kernel
    curvature = classes.weights(mode.f, rows().counts()[:, None])
    whole = torch.zeros(CLASSES * ROWS, CLASSES * ROWS, dtype=torch.float64)
    for c in range(CLASSES):
        for d in range(CLASSES):
            whole[c * ROWS : (c + 1) * ROWS, d * ROWS : (d + 1) * ROWS] = curvature[:, c, d].diag()
    prior_covariance = torch.block_diag(*[kernel] * CLASSES)
    system = torch.eye(CLASSES * ROWS, dtype=torch.float64) + prior_covariance @ whole
    torch.testing.assert_close(mode.algebra.determinant, torch.logdet(system), rtol=1e-10, atol=1e-10)
    posterior = torch.linalg.solve(system, prior_covariance)
    joint = told.posterior().law(rows().inputs).posterior.joint(rows().inputs, kernel)
    torch.testing.assert_close(joint, posterior, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(kernel @ mode.coefficients, mode.f - THETA[2:], rtol=1e-9, atol=1e-9)
    first = rows().counts()[:, None] * Categorical(CLASSES).slopes(rows().targets[:, 0], mode.f).first
    torch.testing.assert_close(mode.coefficients, first, rtol=1e-6, atol=1e-8)


def test_two_classes_are_a_logit_of_twice_the_variance():
    data = rows()
    two = Block(data.inputs, (data.targets > 0).double(), weight=data.weight)
    theta = THETA[:4]
    one = ClassEvidence(kernel_prior(theta), two, theta[2:], Categorical(2))
    twice = theta.clone()
    twice[1] += np.log(2)
    other = laplace_evidence(kernel_prior(twice), two, (theta[3] - theta[2])[None], Bernoulli(), {})
    torch.testing.assert_close(one.log_marginal_likelihood(), other.log_marginal_likelihood(), rtol=1e-9, atol=1e-8)
    mean, spread = one.leave_one_out()
    expected = other.leave_one_out()
    torch.testing.assert_close((mean[:, 1] - mean[:, 0])[:, None], expected[0], rtol=1e-6, atol=1e-7)
    between = spread[:, 0, 0] + spread[:, 1, 1] - 2 * spread[:, 0, 1]
    torch.testing.assert_close(between, expected[1], rtol=1e-6, atol=1e-7)


def test_blocks_and_features_that_are_not_kept_are_the_same(monkeypatch):
    whole = by_features(THETA)
    monkeypatch.setattr(shared, "KEPT", 0)
    data = rows()
    parts = by_features(THETA, JoinedRows([data.take(slice(0, 11)), data.take(slice(11, None))]))
    torch.testing.assert_close(parts.log_marginal_likelihood(), whole.log_marginal_likelihood(), rtol=1e-10, atol=1e-9)
    torch.testing.assert_close(parts.mode.weights, whole.mode.weights, rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_moments_are_near_those_of_a_long_chain():
    """Means by .35 of a posterior deviation at most: the mode of a skewed law is not its mean."""
    data = rows(weighted=False)
    y = data.targets[:, 0].long().numpy()
    told = ClassEvidence(kernel_prior(THETA), data, THETA[2:], Categorical(CLASSES))
    covariance = np.kron(np.eye(CLASSES), told.kernel.numpy())
    mean = np.repeat(THETA[2:].numpy(), ROWS)

    def log_likelihood(f):
        return log_softmax(f.reshape(-1, CLASSES, ROWS), axis=1)[:, y, np.arange(ROWS)].sum(1)

    draws = elliptical_slices(covariance, mean, log_likelihood, 1500, np.random.default_rng(1))
    mean, deviation = (value.reshape(CLASSES, ROWS).T for value in (draws.mean((0, 1)), draws.std((0, 1))))
    assert np.abs((told.mode.f.numpy() - mean) / deviation).max() < 0.35
    assert np.abs(told.variance.diagonal(dim1=1, dim2=2).sqrt().numpy() / deviation - 1).max() < 0.35


def test_shares_are_means_of_softmaxes():
    rng = np.random.default_rng(0)
    mean = rng.standard_normal((4, 5))
    root = rng.standard_normal((4, 5, 5))
    spread = root @ root.transpose(0, 2, 1)
    found = averaged_softmax(torch.from_numpy(mean), torch.from_numpy(spread)).numpy()
    draws = mean + np.einsum("ncd,snd->snc", root, rng.standard_normal((200_000, 4, 5)))
    expected = np.exp(log_softmax(draws, axis=2)).mean(0)
    np.testing.assert_allclose(found, expected, atol=0.006)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-12)


def test_too_many_weights_and_rows_are_named_errors(monkeypatch):
    monkeypatch.setattr(shared, "MOST_WEIGHTS", 40)
    with pytest.raises(rfgp.InvalidArgumentError, match="num_frequencies"):
        by_features(THETA)


@pytest.mark.parametrize("fault", ["pull", "weighted"])
def test_planted_errors_are_found(monkeypatch, fault):
    right = getattr(classes, fault)
    for module in (classes, shared):
        monkeypatch.setattr(module, fault, lambda *given: 1.01 * right(*given))
    with pytest.raises((AssertionError, rfgp.SolverError)):
        test_the_gradient_is_that_of_the_evidence(by_kernel)
