"""The dense twin: a Gaussian process by n x n matrices and an inverse, in numpy; it shares no code with the package."""

import numpy as np


def fourier(x, omega, weights):
    """Cosines, then sines, of inputs (n, d) and frequencies (m, d): (n, 2m)."""
    angles, size = x @ omega.T, np.sqrt(weights / len(omega))
    return np.hstack([np.cos(angles) * size, np.sin(angles) * size])


def laplace(x, omega, weights):
    """Positive features of inputs (n, d) and frequencies (m, d): (n, m)."""
    return np.exp(x @ omega.T - (x**2).sum(1)[:, None]) * np.sqrt(weights / len(omega))


def stationary(name, a, b):
    """A stationary kernel at unit scale between inputs (n, d) and (p, d)."""
    r = np.sqrt(((a[:, None] - b[None]) ** 2).sum(-1))
    return {
        "gaussian": lambda: np.exp(-(r**2) / 2),
        "matern": lambda: (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
        "rational-quadratic": lambda: 1 / (1 + r**2 / 2),
    }[name]()


def laplacian(adjacency):
    """The normalised Laplacian (N, N) of a dense adjacency; a node without edges has a row of zeros."""
    degrees = adjacency.sum(1)
    root = np.divide(1, np.sqrt(degrees), out=np.zeros(len(degrees)), where=degrees > 0)
    return np.diag((degrees > 0).astype(float)) - root[:, None] * adjacency * root


def posterior(K, cross, prior, y, noise, mean):
    """Mean and covariance at new points: K (n, n), cross (p, n), prior (p, p), targets (n,), noise (n,)."""
    inverse = np.linalg.inv(K + np.diag(noise))
    return mean + cross @ inverse @ (y - mean), prior - cross @ inverse @ cross.T


def log_prob(K, y, noise, mean):
    """Log density of targets (n,) with K (n, n) and noise (n,)."""
    total, r = K + np.diag(noise), y - mean
    return -0.5 * (r @ np.linalg.solve(total, r) + np.linalg.slogdet(2 * np.pi * total)[1])


def leave_one_out(K, y, noise, mean, group):
    """Mean and variance of each group's observation given all rows of other groups, each by a solve of its own."""
    out = []
    for one in dict.fromkeys(group.tolist()):
        left, here = group != one, int(np.argmax(group == one))
        m, v = posterior(K[left][:, left], K[here][None, left], K[here, here][None, None], y[left], noise[left], mean)
        out.append((m[0], v[0, 0] + noise[here]))
    return np.array(out).T
