"""Posteriors of latent functions by long Markov chains: an oracle for their approximations on small problems."""

import numpy as np


def elliptical_slices(
    covariance,  # (n, n)
    mean,
    log_likelihood,  # of functions (chains, n), (chains,)
    steps,
    rng,
    chains=64,
):
    """Return draws (steps, chains, n) of f - mean ~ N(0, covariance) times a likelihood of f, the first tenth left out.

    Murray, Adams and MacKay (2010), "Elliptical slice sampling": exact in the limit, without a step size; chains run
    side by side and are independent of each other.
    """
    factor = np.linalg.cholesky(covariance + 1e-10 * np.eye(len(covariance)))
    f = rng.standard_normal((chains, len(covariance))) @ factor.T
    out, now = [], log_likelihood(mean + f)
    for _ in range(steps):
        other = rng.standard_normal(f.shape) @ factor.T
        level = now + np.log(rng.uniform(size=chains))
        angle = rng.uniform(0, 2 * np.pi, chains)
        low, high = angle - 2 * np.pi, angle.copy()
        moving = np.ones(chains, dtype=bool)
        new, reached = f.copy(), now.copy()
        while moving.any():
            tried = np.cos(angle)[:, None] * f + np.sin(angle)[:, None] * other
            found = log_likelihood(mean + tried)
            taken = moving & (found > level)
            new[taken], reached[taken] = tried[taken], found[taken]
            moving &= ~taken
            low = np.where(moving & (angle < 0), angle, low)
            high = np.where(moving & (angle >= 0), angle, high)
            angle = np.where(moving, rng.uniform(low, high), angle)
        f, now = new, reached
        out.append(mean + f)
    return np.stack(out[len(out) // 10 :])
