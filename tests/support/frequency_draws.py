"""Draws of frequencies, and whether they have the distribution of a spectrum."""

import numpy as np
import torch
from checks import assert_mean

from rfgp import couplings


def draws(name, m, d, repeats=1000, spectrum=None):
    """Return repeated draws of a coupling, (repeats, m, d), and their weights (repeats, m)."""
    coupling, generator = couplings.by_name(name), torch.Generator().manual_seed(99)
    drawn = [coupling.sample(m, d, spectrum=spectrum, generator=generator) for _ in range(repeats)]
    return torch.stack([f.dense() for f in drawn]).numpy(), torch.stack([f.weights for f in drawn]).numpy()


def sample(name, m, d, repeats=1000, spectrum=None):
    return draws(name, m, d, repeats, spectrum)[0]


def check_distribution(omega, spectrum, weights=1.0):
    """The first row, any half of the rows and all of them estimate the kernel; sines have mean 0."""
    d = omega.shape[2]
    v = np.random.default_rng(1).standard_normal((6, d)) / np.sqrt(d) * np.array([0, 0.3, 1, 1, 2, 3])[:, None]
    kernel = spectrum.kernel_between(torch.zeros(1, d, dtype=torch.float64), torch.as_tensor(v))[0].numpy()
    angles = omega @ v.T
    half = slice(0, (omega.shape[1] + 1) // 2)
    w = np.broadcast_to(weights, omega.shape[:2])[:, :, None]
    for part in (slice(0, 1), half, slice(None)):
        assert_mean((w * np.cos(angles))[:, part].mean(1), kernel)
        assert_mean((w * np.sin(angles))[:, part].mean(1), 0 * kernel)
