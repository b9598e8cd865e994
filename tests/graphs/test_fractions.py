import itertools

import numpy as np
import pytest

import graphs
from graphs.fractions import FractionalPower, fractional_power


def worst(power, found, width):
    """The largest relative error over [1, R] on a grid of its own."""
    t = np.geomspace(1.0, np.exp(width), 20_011)
    return np.abs(t**power * (found.weights / (t[:, None] + found.poles)).sum(1) - 1).max()


@pytest.mark.parametrize("power", [0.01, 0.5, 0.9, 0.99])
def test_errors_fall_with_the_number_of_fractions(power):
    for width in (1.0, np.log(51.0), np.log(1e4), np.log(1e8)):
        errors = []
        for terms in range(1, 9):
            fractions = fractional_power(power, terms)
            found = fractions.at(width)
            assert (found.poles > 0).all()
            assert (found.weights > 0).all()
            errors.append(fractions.error(width))
            assert errors[-1] == pytest.approx(worst(power, found, width), rel=0.1, abs=1e-12)
        assert all(b < 0.8 * a for a, b in itertools.pairwise(errors) if a > 1e-5)
        assert errors[-1] < 5e-3
    assert fractional_power(power, 4).error(np.log(1001)) < 2e-3
    assert fractional_power(power, 6).error(np.log(51)) < 1e-6


@pytest.mark.parametrize("power", [0.01, 0.2, 0.49])
def test_complementary_power_has_mirrored_fractions(power):
    """With t for R / t; a fit that ended early, as some did by rounding alone, differs."""
    for terms in (3, 8):
        found, other = fractional_power(power, terms), fractional_power(1 - power, terms)
        for width in (np.log(1e4), np.log(1e8)):
            assert other.error(width) == pytest.approx(found.error(width), rel=1e-3)
            np.testing.assert_allclose(other.at(width).poles * found.at(width).poles, np.exp(width), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("terms", [2, 8])
def test_errors_grow_smoothly_with_the_power(terms):
    powers = np.geomspace(0.01, 0.5, 12)
    errors = np.array([fractional_power(power, terms).error(np.log(1e8)) for power in powers])
    assert (np.diff(errors) > 0).all()
    logs = np.log(errors / np.sin(np.pi * powers))
    assert np.abs(np.diff(logs, 2)).max() < 0.03


def test_least_squares_is_near_the_best_approximation():
    """The best for t^-1/2 are Zolotarev's, whose error alternates 2 m + 1 times; these alternate as often, unevenly."""
    fractions, width = fractional_power(0.5, 3), np.log(100.0)
    t = np.geomspace(1.0, 100.0, 5001)
    found = fractions.at(width)
    error = t**0.5 * (found.weights / (t[:, None] + found.poles)).sum(1) - 1
    ends = np.flatnonzero(np.diff(np.sign(np.diff(error)))) + 1
    peaks = np.abs(np.concatenate([error[:1], error[ends], error[-1:]]))
    assert len(peaks) == 7
    assert peaks.max() < 3 * peaks.min()


def test_fractions_change_smoothly_with_the_range():
    fractions, width, step = fractional_power(0.3, 4), np.log(700.0), 1e-4
    low, found, high = (fractions.at(width + change) for change in (-step, 0.0, step))
    np.testing.assert_allclose((high.poles - low.poles) / (2 * step), found.pole_slopes, rtol=1e-6)
    np.testing.assert_allclose((high.weights - low.weights) / (2 * step), found.weight_slopes, rtol=1e-6)
    narrow = fractions.at(0.01)
    assert not narrow.pole_slopes.any()
    assert fractions.error(0.01) < 1e-5


@pytest.mark.parametrize(
    ("power", "terms"),
    [(0.0, 3), (1.0, 3), (-0.5, 3), (0.005, 3), (1 - 1e-9, 1), (np.nan, 3), (0.5, 0), (0.5, 9), (0.5, 2.5)],
)
def test_bad_powers_and_numbers_are_refused(power, terms):
    with pytest.raises(graphs.InvalidArgumentError):
        FractionalPower(power, terms)
