"""What a precision says of its vector, beside what `test_resolvent` compares with dense formulas."""

import numpy as np
import pytest
from checks import ALARM
from scipy import stats
from sparse_graphs import GRAPHS

import graphs
from graphs import kernels


@pytest.fixture(scope="module")
def precision():
    return kernels.Matern(2, 2.0).precision(GRAPHS["mesh"]())


def test_draws_follow_the_distribution(precision):
    """x^T Q x of a draw x of N values is chi-squared with N degrees of freedom, and so is their sum over draws."""
    draws = precision.sample(50, seed=1)
    assert draws.shape == (50, 162)
    total = np.einsum("ci,ci->", draws, (precision.matrix @ draws.T).T)
    low, high = stats.chi2.isf([1 - ALARM / 2, ALARM / 2], draws.size)
    assert low < total < high
    assert not low < 1.2 * total < high
    np.testing.assert_array_equal(precision.sample(50, seed=1), draws)
    assert not np.array_equal(precision.sample(50, seed=2), draws)


def test_covariances_come_in_blocks(precision):
    places = np.arange(162)[::-1]
    np.testing.assert_allclose(precision.covariance(places).diagonal(), precision.variances[::-1], rtol=1e-12)
    assert precision.covariance(np.zeros(0, dtype=int)).shape == (0, 0)


@pytest.mark.parametrize("positions", [[162], [-1], [0.5], [[0, 1]], ["a"]])
def test_bad_positions_are_refused(precision, positions):
    with pytest.raises(graphs.InvalidArgumentError, match="integers 0"):
        precision.covariance(np.array(positions))


def test_other_bad_arguments_are_refused(precision):
    for b in (np.zeros(3), np.zeros((162, 2, 2)), 1.0):
        with pytest.raises(graphs.InvalidArgumentError, match="b must"):
            precision.solve(b)
    with pytest.raises(graphs.InvalidArgumentError, match="count must be a positive integer"):
        precision.sample(0)
