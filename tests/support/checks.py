"""Statistical checks with a stated false-alarm rate.

Each call of `assert_mean` compares k means with their expectations by z-scores with estimated standard
errors over independent samples. For bounded statistics, or entries reached at least 1000 times, z is
close to normal far enough out; a call fails by chance with probability about ALARM (Bonferroni over
its k entries), and the suite makes fewer than 4,000 calls (`tests/conftest.py` counts them), so a run's
false-alarm rate is below 1e-6. Seeds are fixed: a check that passes once passes always.
"""

import numpy as np
from scipy import stats

ALARM = 2.5e-10


def z_scores(samples, expected):
    """Return (mean - expected) / standard error of samples (R, ...); an entry that never varies gives 0 or inf."""
    samples = np.asarray(samples, dtype=np.float64)
    error = samples.std(0, ddof=1) / np.sqrt(len(samples))
    difference = samples.mean(0) - expected
    exact = np.isclose(difference, 0, atol=1e-9)
    return np.where(exact, 0.0, difference / np.where(error > 0, error, 1e-300))


def threshold(count):
    return stats.norm.isf(ALARM / (2 * count))


calls = 0


def assert_mean(samples, expected):
    global calls
    calls += 1
    z = np.abs(z_scores(samples, expected))
    assert len(samples) >= 1000, "too few repeats for a normal law of z"
    assert z.max() < threshold(z.size), f"largest |z| = {z.max():.1f} at {np.unravel_index(z.argmax(), z.shape)}"


def assert_mean_of_normals(samples, expected):
    """The same for samples that are themselves close to normal, such as averages: by Student's law, however few."""
    global calls
    calls += 1
    z = np.abs(z_scores(samples, expected))
    most = stats.t.isf(ALARM / (2 * z.size), len(samples) - 1)
    assert z.max() < most, f"largest |t| = {z.max():.1f} of {most:.1f} at {np.unravel_index(z.argmax(), z.shape)}"
