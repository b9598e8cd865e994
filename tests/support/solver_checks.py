"""What every solver and its posterior must return, compared with dense algebra."""

import numpy as np
import pytest
import torch
from checks import assert_mean
from terms import F64, normal

from rfgp.solvers import restore
from rfgp.solvers.iterative.draws import Draws


def same(found, expected, digits=1e-8):
    """Assert that numbers are the expected float64 tensor up to a part of its largest entry, or of 1."""
    found, expected = torch.as_tensor(found, dtype=getattr(found, "dtype", F64)).detach(), expected.detach()
    assert (found.shape, found.dtype) == (expected.shape, F64)
    error, scale = (found - expected).abs().max(), expected.abs().max().clamp_min(1)
    assert float(error) <= digits * float(scale), f"off by {float(error):.1e} beside {float(scale):.1e}"


def gradients(value, theta):
    return torch.autograd.grad(value, list(theta.values()), materialize_grads=True, allow_unused=True)


def check_value(found, problem, deviations=6):
    """The log marginal likelihood, within so many of its stated standard errors: 6 are 2e-9 of false alarms."""
    error = found.log_marginal_likelihood() - problem.twin.log_marginal_likelihood()
    scale = problem.twin.log_marginal_likelihood().abs().clamp_min(1)
    assert abs(error.item()) <= deviations * found.likelihood_error + problem.digits * scale.item()


def check_likelihood(found, problem):
    """The log marginal likelihood, and its gradient in every hyperparameter."""
    check_value(found, problem)
    if found.likelihood_error > problem.digits:
        check_estimated_gradient(found, problem)
        return
    value, expected = found.log_marginal_likelihood(), problem.twin.log_marginal_likelihood()
    pairs = zip(gradients(value, problem.theta), gradients(expected, problem.theta), strict=True)
    for name, (slope, twin) in zip(problem.theta, pairs, strict=True):
        assert torch.isfinite(slope).all(), name
        same(slope, twin, problem.digits)
    with torch.no_grad():
        assert float(found.log_marginal_likelihood()) == pytest.approx(float(value), rel=1e-12)  # another pass may sum


def check_estimated_gradient(found, problem):
    """The gradient by draws, if these are a root of C^-1: then it has no error."""
    root = len(problem.rows) ** 0.5 * torch.linalg.cholesky(problem.twin.inverse).detach()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Draws, "normalized", property(lambda self: root))
        slopes = gradients(found.log_marginal_likelihood(), problem.theta)
    for slope, twin in zip(slopes, gradients(problem.twin.log_marginal_likelihood(), problem.theta), strict=True):
        same(slope, twin, problem.digits)


def check_rows(found, problem):
    """What the sites of other likelihoods read of the rows."""
    for name in ("coefficients", "fitted", "latent_variances"):
        same(getattr(found, name), getattr(problem.twin, name), problem.digits)
    error, expected = 2 * found.likelihood_error / problem.rows.output_weights.sum().abs(), problem.twin.log_determinant
    assert abs(found.log_determinant - expected) <= 6 * error + problem.digits * expected.abs().clamp_min(1)


def check_leave_one_out(found, problem):
    """Each row given all others, and how many weights the rows determine."""
    for value, expected in zip(found.leave_one_out(), problem.twin.leave_one_out(), strict=True):
        same(value, expected, problem.digits)
    fraction, prior = found.effective_dof_fraction, problem.prior
    if fraction is not None:
        count = prior.num_features + len(problem.rows) * len(prior.kernels)
        same(fraction, problem.twin.dof_fraction(problem.weight_names, count), problem.digits)


def check_predictions(found, problem, new, posterior=None):
    """Means, variances, covariances and their root at new points."""
    with torch.no_grad():
        posterior = posterior or found.posterior()
        read, covariance = posterior.project(new), problem.twin.predicted_covariance(new)
        same(posterior.mean(read), problem.twin.predicted_mean(new), problem.digits)
        same(posterior.variance(new, read), covariance.diagonal(), problem.digits)
        same(posterior.covariance(new, read), covariance, problem.digits)
        root = posterior.root(new, read)
        same(root @ root.mT, covariance, problem.digits)
        for one, other in zip(
            posterior.moments(new, read), (posterior.mean(read), posterior.variance(new, read)), strict=True
        ):
            assert torch.equal(one, other)
        assert posterior.width > 0


def check_restored(found, problem, new):
    """The same predictions from the tensors that a file keeps."""
    with torch.no_grad():
        posterior = found.posterior()
        restored = restore(problem.prior.detached(), posterior.tensors())
        assert type(restored) is type(posterior)
        shapes = {name: tuple(tensor.shape) for name, tensor in posterior.tensors().items() if name != "inputs"}
        assert posterior.shapes(*problem.rows.targets.shape) == shapes
        check_predictions(found, problem, new, restored)
        assert torch.equal(posterior.mean(posterior.project(new)), restored.mean(restored.project(new)))


def check_terms(found, problem, new):
    """Each term and each pair of terms at new points."""
    with torch.no_grad():
        posterior = found.posterior()
        for name in problem.names:
            part = posterior.of([name])
            read = part.project(new)
            same(part.mean(read), problem.twin.predicted_mean(new, [name]), problem.digits)
            covariance = problem.twin.predicted_covariance(new, [name], [name])
            same(part.variance(new, read), covariance.diagonal(), problem.digits)
            same(part.covariance(new, read), covariance, problem.digits)
            for other in problem.names:
                cross = posterior.cross_covariance(new, [name], [other])
                same(cross, problem.twin.predicted_covariance(new, [name], [other]), problem.digits)
        first, others = problem.names[:1], problem.names
        same(
            posterior.cross_covariance(new, first, others),
            problem.twin.predicted_covariance(new, first, others),
            problem.digits,
        )


def check_other_targets(found, problem):
    """The solver at other targets, noise, weights and signs of the same inputs, and unchanged itself."""
    before, n = found.log_marginal_likelihood().detach(), len(problem.rows)
    rng = np.random.default_rng(11)
    block = type(problem.rows)(
        problem.rows.inputs,
        normal(n, 3, seed=12),
        fixed_noise=torch.from_numpy(rng.uniform(0.1, 0.9, n)),
        given_output_weights=torch.tensor([1.0, -1.0, 1.0]).double(),
    )
    noise, mean = torch.zeros(()).double(), torch.tensor([0.1, 0.0, 0.2]).double().requires_grad_()
    moved, other = found.with_data(block, mean, noise), problem.at(block, noise.requires_grad_(), mean)
    check_rows(moved, other)
    check_likelihood(found.with_data(block, mean, noise), other)
    check_predictions(moved, other, block.inputs[:4] + 0.0)
    same(found.log_marginal_likelihood(), before, 1e-14)


def check_draws(posterior, problem, new, names=None, count=4000):
    """Functions drawn from a posterior have its mean and covariance, and are functions."""
    functions = posterior.sample_functions(count, torch.Generator().manual_seed(0))
    with torch.no_grad():
        values = functions(new)
        same(functions(new[2:4])[:3], values[:3, 2:4], 1e-12)
        mean, covariance = problem.twin.predicted_mean(new, names), problem.twin.predicted_covariance(new, names, names)
    n, k = mean.shape
    assert values.shape == (count, n, k)
    deviations = (values - mean).mT.reshape(count, n * k)
    expected = torch.block_diag(*[covariance] * k)  # outputs are independent
    assert_mean(deviations, 0)
    assert_mean(deviations[:, :, None] * deviations[:, None], expected.numpy())


def check_derivatives(posterior, problem, new, theta):
    """Predictions are differentiable in the numbers of the inputs, and in hyperparameters."""
    points = new.clone().requires_grad_()
    weights = normal(len(new), problem.rows.num_outputs, seed=13)

    def slopes(mean, variance, covariance):
        return gradients((mean * weights).sum() + variance.sum() + covariance[0].sum(), {**theta, "points": points})

    read = posterior.project(points)
    found = slopes(posterior.mean(read), posterior.variance(points, read), posterior.covariance(points, read))
    covariance = problem.twin.predicted_covariance(points)
    expected = slopes(problem.twin.predicted_mean(points), covariance.diagonal(), covariance)
    for one, other in zip(found, expected, strict=True):
        same(one, other)


def check_operator(posterior, problem, new):
    """The covariance as products, solves and draws."""
    operator, covariance = posterior.operator(new), problem.twin.predicted_covariance(new).detach()
    v, noise = normal(len(new), 3, seed=14), torch.linspace(0.1, 0.5, len(new), dtype=F64)
    assert len(operator) == len(new)
    same(operator.times(v), covariance @ v, problem.digits)
    same(operator.solve(v, noise), torch.linalg.inv(covariance + noise.diag()) @ v, problem.digits)
    same(operator.solve(v, 2 * noise), torch.linalg.inv(covariance + 2 * noise.diag()) @ v, problem.digits)
    draws = operator.draw(4000, torch.Generator().manual_seed(0)).mT
    assert_mean(draws, 0)
    assert_mean(draws[:, :, None] * draws[:, None], covariance.numpy())
