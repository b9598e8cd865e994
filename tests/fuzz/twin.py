"""Features, kernels and the Laplacian of the dense reference, in numpy; they share no code with the package."""

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
