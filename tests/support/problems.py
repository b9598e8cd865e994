"""Tables that fits are tested on."""

import numpy as np


def table(n, d=3, seed=0, noise=0.1):
    """Return inputs (n, d) and a smooth function of them with noise, (n,)."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2 % d] + noise * rng.standard_normal(n)


def exhausted(n=1500, seed=0):
    """Return a function of far more waves than 8 frequencies can follow."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    omega, a = rng.standard_normal((60, 4)) * 1.2, rng.standard_normal(60) / np.sqrt(30)
    return X, np.sin(X @ omega.T + rng.uniform(0, 6, 60)) @ a + 0.1 * rng.standard_normal(n)
