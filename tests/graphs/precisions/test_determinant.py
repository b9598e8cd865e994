"""The interpolant of log |L + x|."""

import numpy as np
import pytest

from graphs.precisions.determinant import POINTS, LogDeterminant


@pytest.fixture(params=["even", "few", "near zero"])
def eigenvalues(request):
    rng = np.random.default_rng(0)
    return {
        "even": np.linspace(0, 2, 5000),
        "few": np.array([0.0, 2.0]),
        "near zero": np.r_[0.0, 10 ** rng.uniform(-12, 0, 2000)],
    }[request.param]


def test_interpolant_matches_function_and_derivative(eigenvalues):
    calls = []

    def exact(x):
        calls.append(x)
        return float(np.log(eigenvalues + x).sum())

    interpolant = LogDeterminant(exact)
    for x in np.geomspace(1e-6, 1e4, 83):
        value, slope = interpolant(x)
        assert value == pytest.approx(exact(x), abs=1e-11 * len(eigenvalues) + 1e-13 * abs(value))
        assert x * slope == pytest.approx((x / (eigenvalues + x)).sum(), abs=1e-9 * len(eigenvalues))
    assert len(calls) - 83 <= 7 * POINTS


def test_panels_are_computed_once():
    calls = []
    interpolant = LogDeterminant(lambda x: calls.append(x) or float(np.log(x)))
    for x in (2.0, 3.0, 50.0):
        interpolant(x)
    assert len(calls) == POINTS
    assert interpolant(0.5)[0] == pytest.approx(np.log(0.5), abs=1e-12)
    assert len(calls) == 2 * POINTS
