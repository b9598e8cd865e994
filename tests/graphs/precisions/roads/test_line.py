"""Energies of the ends of one segment, against the inverse covariance in two hundred digits."""

import mpmath as mp
import numpy as np
import pytest

from graphs.precisions.roads import line

PLACES = {1: ((0, 0), (0, 1)), 2: ((0, 0), (0, 1), (1, 1), (0, 2), (0, 3), (1, 3))}
"""Where the rows of `blocks` are in the energy of (u_0, w_0, u_1, w_1)."""
LENGTHS = (1e-12, 1e-9, 1e-4, 0.03, 0.5, 0.999, 1.0, 1.001, 1.7, 3.0, 10.0, 60.0)


@pytest.fixture(autouse=True)
def digits():
    with mp.workdps(200):
        yield


def covariance(alpha, x):
    """Return that of the values and scaled derivatives, along the line, at 0 and x."""
    e = mp.exp(-x)
    if alpha == 1:
        return mp.matrix([[1, e], [e, 1]])
    uu, uv, vv = (1 + x) * e, x * e, (1 - x) * e
    return mp.matrix([[1, 0, uu, -uv], [0, 1, uv, vv], [uu, uv, 1, 0], [-uv, vv, 0, 1]])


def energy(alpha, x):
    into = mp.diag([1, 1] if alpha == 1 else [1, 1, 1, -1])
    return into * covariance(alpha, x) ** -1 * into - mp.eye(2 * alpha) / 2


@pytest.mark.parametrize("x", LENGTHS)
@pytest.mark.parametrize("alpha", [1, 2])
def test_blocks_and_slopes_match_mpmath(alpha, x):
    found = line.blocks(alpha, np.array([x]))
    slope = line.slopes(found)
    exact, step = energy(alpha, mp.mpf(x)), mp.mpf(x) * mp.mpf(10) ** -20
    ahead, back = energy(alpha, mp.mpf(x) + step), energy(alpha, mp.mpf(x) - step)
    for (i, j), value, rate in zip(PLACES[alpha], found.ravel(), slope.ravel(), strict=True):
        assert abs(value / exact[i, j] - 1) < 2e-15
        assert abs(rate / ((ahead[i, j] - back[i, j]) / (2 * step)) - 1) < 1e-14


@pytest.mark.parametrize("alpha", [1, 2])
def test_ends_of_long_segments_are_independent(alpha):
    with np.errstate(all="raise", under="ignore"):
        own, cross = line.blocks(alpha, np.array([745.0, 1e3, 1e4, 1e300]))
        slope = line.slopes(np.stack([own, cross]))
    half = [0.5] if alpha == 1 else [0.5, 0.0, 0.5]
    np.testing.assert_allclose(own, np.repeat(np.array(half)[:, None], 4, axis=1), atol=1e-15)
    assert np.abs(cross).max() < 1e-300
    assert np.abs(slope).max() < 1e-300


@pytest.mark.parametrize(("x", "y"), [(0.3, 1.1), (1e-7, 2.0), (2.0, 1e-7), (1e-9, 1e-9), (30.0, 40.0), (1e-14, 5.0)])
@pytest.mark.parametrize("alpha", [1, 2])
def test_bridges_match_conditional_distributions(alpha, x, y):
    """The twin: the covariance of three points of the line, conditioned in two hundred digits."""
    a, b = mp.mpf(x), mp.mpf(y)
    ends = covariance(alpha, a + b)
    left, right = covariance(alpha, a), covariance(alpha, b)
    to_ends = [left[k, alpha] for k in range(alpha)] + [right[0, alpha + k] for k in range(alpha)]
    weights = mp.matrix([to_ends]) * ends**-1
    variance = 1 - (weights * mp.matrix(to_ends))[0]
    found = line.bridge(alpha, np.array([x]), np.array([y]))
    into = [1, 1] if alpha == 1 else [1, 1, 1, -1]
    for value, weight, sign in zip(np.concatenate([found.start, found.end])[:, 0], weights, into, strict=True):
        assert abs(value - sign * weight) <= 4e-15 * max(abs(weight), mp.mpf(10) ** -2)
    assert abs(found.variance[0] / variance - 1) < 1e-13


@pytest.mark.parametrize("name", ["sine_gap", "cosine_gap"])
def test_series_match_functions_at_the_switch(name):
    exact = {"sine_gap": lambda x: mp.sinh(x) - x, "cosine_gap": lambda x: x * mp.cosh(x) - mp.sinh(x)}[name]
    for x in (1e-24, 1e-5, 0.2, np.nextafter(1.0, 0.0), 1.0, 1.3, 5.0):
        value = getattr(line, name)(np.array([x]))[0]
        assert abs(value / (2 * mp.exp(-mp.mpf(x)) * exact(mp.mpf(x))) - 1) < 2e-15
    assert getattr(line, name)(np.array([0.0]))[0] == 0


def test_planted_sign_of_cross_term_is_found(monkeypatch):
    right = line.blocks
    monkeypatch.setattr(line, "blocks", lambda alpha, x: right(alpha, x) * np.array([1.0, -1.0])[:, None, None])
    with pytest.raises(AssertionError):
        test_blocks_and_slopes_match_mpmath(2, 0.5)
