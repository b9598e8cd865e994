"""Draws of frequencies, and whether they have the distribution of a spectrum."""

import itertools

import numpy as np
import torch
from checks import assert_mean

from rfgp import couplings, random, spectra

REPEATS = 1000


def draws(name, m, d, repeats=REPEATS, spectrum=None):
    """Return repeated draws, (repeats, m, d), and their weights (repeats, m)."""
    coupling, generator = couplings.by_name(name), random.generator(0, 99)
    drawn = [coupling.sample(m, d, spectrum=spectrum, generator=generator) for _ in range(repeats)]
    return torch.stack([f.dense() for f in drawn]).numpy(), torch.stack([f.weights for f in drawn]).numpy()


def sample(name, m, d, repeats=REPEATS, spectrum=None):
    return draws(name, m, d, repeats, spectrum)[0]


def check_distribution(omega, spectrum, weights=1.0):
    """The first row, any half of the rows and all of them estimate the kernel; sines have mean 0."""
    d = omega.shape[2]
    rng = np.random.default_rng(1)
    v = rng.standard_normal((5, d)) / np.sqrt(d) * np.array([0.3, 1, 1, 2, 3])[:, None]
    kernel = spectrum.kernel(torch.as_tensor(np.linalg.norm(v, axis=1))).numpy()
    angles = omega @ v.T
    half = slice(0, (omega.shape[1] + 1) // 2)
    w = np.broadcast_to(weights, omega.shape[:2])[:, :, None]
    for part in (slice(0, 1), half, slice(None)):
        assert_mean((w * np.cos(angles))[:, part].mean(1), kernel)
        assert_mean((w * np.sin(angles))[:, part].mean(1), 0 * kernel)


def check_order(made, kind, x, m, repeats, deviations):
    """Check that each coupling has a smaller squared error of the kernel matrix of rows (n, d) than the one before."""
    exact, found = spectra.Gaussian().kernel_between(x, x), []
    for coupling in made:
        generator = random.generator(1)
        maps = [kind(coupling.sample(m, x.shape[1], generator=generator)) for _ in range(repeats)]
        squares = [float((phi(x) @ phi(x).T - exact).square().mean()) for phi in maps]
        found.append((np.mean(squares), np.std(squares, ddof=1) / np.sqrt(repeats)))
    for (worse, a), (better, b) in itertools.pairwise(found):
        assert (worse - better) / np.hypot(a, b) > deviations
