"""Rows of a local process, its parameters, and its inverse factor by dense algebra."""

import numpy as np
import torch

from rfgp.local import kinds


def rows(n=40, d=3, seed=0):
    """Return rows (n, d), one of which is a copy, and the noise of each."""
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(rng.standard_normal((n, d)) * [1.0, 0.5, 2.0][:d])
    x[7] = x[3]  # a copy
    return x, torch.from_numpy(rng.uniform(0.02, 0.3, n))


def parameters(d=3, shared=False):
    """Return lengthscales and a variance, with gradients."""
    lengthscale = torch.tensor(0.9 if shared else [0.7, 1.1, 1.9][:d], dtype=torch.float64)
    return [lengthscale.requires_grad_(), torch.tensor(1.3, dtype=torch.float64).requires_grad_()]


def known_features(x, name):
    """Return those of five points, of a part of the process."""
    lengthscale, variance = (p.detach() for p in parameters())
    kernel = kinds.spectrum_of(name).kernel_between
    z, x = x[5:10] / lengthscale, x / lengthscale
    factor = torch.linalg.cholesky(kernel(z, z) + 1e-8 * torch.eye(5))
    return (variance.sqrt() * torch.linalg.solve_triangular(factor, kernel(z, x), upper=False).mT).requires_grad_()


def dense_factor(x, lengthscale, variance, noise, name, known=None):
    """Return the inverse of the Cholesky factor of the covariance of rows with noise."""
    kernel = variance * kinds.spectrum_of(name).kernel_between(x / lengthscale, x / lengthscale)
    left = kernel if known is None else kernel - known @ known.mT
    return torch.linalg.inv(torch.linalg.cholesky(left + noise.diag()))


def as_dense(entries, pattern):
    """Return a sparse matrix densely."""
    places = torch.as_tensor(pattern.rows), torch.as_tensor(pattern.indices)
    return torch.zeros(pattern.shape, dtype=torch.float64).index_put(places, entries)


def slopes_agree(found, exact, theta, upstream=1.0, **tolerances):
    """Return whether two values have the same gradients in parameters, given the gradient in these values."""
    slopes = [torch.autograd.grad((upstream * v).sum(), theta, retain_graph=True) for v in (found, exact)]
    return all(torch.allclose(one, other, **tolerances) for one, other in zip(*slopes, strict=True))
