"""Where pairwise norms are worse than independent ones: the closed forms beside draws that share no code with them."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.papers.own import norms


def variance_of_draws(rng, z, d, are_pairwise, count=200_000):
    """Return the variance of the estimates of d orthogonal frequencies at the distance z, and its standard error."""
    q, r = np.linalg.qr(rng.standard_normal((count, d, d)))
    directions = q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None, :]
    u = rng.uniform(size=(count, d))
    if are_pairwise:
        u[:, 1 : d - d % 2 : 2] = 1 - u[:, 0 : d - 1 : 2]
    estimates = np.cos(z * directions[:, 0] * stats.chi(d).ppf(u)).mean(1)
    squares = (estimates - np.exp(-(z**2) / 2)) ** 2
    return squares.mean(), squares.std() / np.sqrt(count)


@pytest.mark.parametrize(("d", "z"), [(2, 1.0), (3, 3.0), (5, 3.0)])
def test_ratios_of_variances_are_those_of_draws(d, z):
    rng = np.random.default_rng(0)
    (one, one_error), (other, other_error) = (variance_of_draws(rng, z, d, pairwise) for pairwise in (True, False))
    error = one / other * np.hypot(one_error / one, other_error / other)
    assert norms.ratio(z, d) == pytest.approx(one / other, abs=4 * error)
    assert error < 0.01


def test_pairwise_norms_are_worse_beyond_the_crossing():
    z = norms.crossing(5)
    assert norms.ratio(z, 5) == pytest.approx(1, abs=1e-6)
    assert norms.ratio(z - 0.1, 5) < 0.99
    assert norms.ratio(z + 0.1, 5) > 1.01
