"""The energy of a step of a Markov chain, against the inverse covariance in a hundred digits."""

import mpmath as mp
import numpy as np
import pytest

from graphs.precisions.chains import transition

ALPHAS = pytest.mark.parametrize("alpha", [1, 2, 3])
LENGTHS = (1e-3, 0.02, 0.5, 1.999, 2.0, 3.7, 15.0)


def exact(alpha, x):
    """Return A^T R^-1 A, -A^T R^-1, R^-1 and log|R^-1| of the states at two points."""
    with mp.workdps(100):
        stationary = mp.matrix(transition.STATIONARY[alpha].tolist())
        if alpha == 3:
            third = mp.mpf(1) / 3
            stationary = mp.matrix([[1, 0, -third], [0, third, 0], [-third, 0, 1]])
        move = mp.expm(mp.matrix(transition.companion(alpha).tolist()) * mp.mpf(x), method="taylor")
        right = (stationary - move * stationary * move.T) ** -1
        parts = (move.T * right * move, -move.T * right, right)
        return *(np.array(one.tolist(), dtype=float) for one in parts), float(mp.log(mp.det(right)))


@pytest.mark.parametrize("x", LENGTHS)
@ALPHAS
def test_energies_are_accurate_to_their_scale(alpha, x):
    found, _ = transition.steps(alpha, np.array([x]))
    scales = x ** (np.arange(alpha) + 0.5 - alpha) if x < 2 else np.ones(alpha)
    for one, expected in zip(found[:3], exact(alpha, x)[:3], strict=True):
        np.testing.assert_allclose(one[0] / np.outer(scales, scales), expected / np.outer(scales, scales), atol=1e-10)
    assert found.log_determinant[0] == pytest.approx(exact(alpha, x)[3], abs=1e-11)


@pytest.mark.parametrize("x", LENGTHS)
@ALPHAS
def test_slopes_match_derivatives(alpha, x):
    step = 1e-5 * x
    ends = [transition.steps(alpha, np.array([x + change]))[0] for change in (-step, step)]
    for slope, before, after in zip(transition.steps(alpha, np.array([x]))[1], *ends, strict=True):
        np.testing.assert_allclose(slope, (after - before) / (2 * step), atol=1e-6 * np.abs(slope).max() + 1e-9)


@ALPHAS
def test_ends_of_long_steps_are_independent(alpha):
    with np.errstate(all="raise", under="ignore"):
        found, slope = transition.steps(alpha, np.array([700.0, 1e300]))
    np.testing.assert_allclose(found.right, np.linalg.inv(transition.STATIONARY[alpha])[None].repeat(2, 0), atol=1e-12)
    assert np.abs(found.cross).max() < 1e-250
    assert np.abs(slope.right).max() < 1e-250


def test_planted_wrong_intensity_is_found(monkeypatch):
    monkeypatch.setitem(transition.INTENSITY, 3, 5.0)
    with pytest.raises(AssertionError):
        test_energies_are_accurate_to_their_scale(3, 0.5)
