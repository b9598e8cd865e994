"""Chains of one column against the dense Matern kernel."""

import numpy as np
import pytest

import graphs
from graphs.precisions import ChainField
from graphs.precisions.chains import place_knots
from graphs.precisions.chains.knots import SPACING

ALPHAS = pytest.mark.parametrize("alpha", [1, 2, 3])


def matern(alpha, difference, lengthscale):
    r = np.sqrt(2 * alpha - 1) * np.abs(difference) / lengthscale
    return {1: 1.0, 2: 1 + r, 3: 1 + r + r**2 / 3}[alpha] * np.exp(-r)


def error(alpha, values, lengthscale):
    """Return the largest error of the covariance at values through knots, and the number of knots."""
    spacing = SPACING[alpha] * lengthscale / np.sqrt(2 * alpha - 1)
    field = ChainField(place_knots(np.unique(values), spacing), alpha, spacing)
    reads = field.projector(values)
    found = reads @ field.factor_at(np.array([lengthscale])).solve(reads.T.toarray())
    return np.abs(found - matern(alpha, values[:, None] - values, lengthscale)).max(), len(field.knots)


@ALPHAS
@pytest.mark.parametrize("lengthscale", [0.2, 1.0, 8.0])
def test_covariances_match_the_kernel(alpha, lengthscale):
    found, knots = error(alpha, np.array([3.0, -1.0, 0.5, 0.8, 2.0, 5.0]), lengthscale)
    assert found < {1: 1e-14, 2: 1e-9, 3: 2e-8}[alpha]
    assert knots == 6


@ALPHAS
def test_close_values_are_interpolated_between_knots(alpha):
    values = np.sort(np.random.default_rng(0).uniform(0, 4, 1500))
    found, knots = error(alpha, values, 1.3)
    assert found < {1: 1e-9, 2: 2e-7, 3: 2e-7}[alpha]
    assert knots <= {1: 1500, 2: 600, 3: 70}[alpha]


@ALPHAS
def test_values_equal_up_to_rounding_share_a_knot(alpha):
    values = np.array([0.0, 1.0, 1.0 + 4e-16, 2.0])
    found, knots = error(alpha, values, 1.0)
    assert (found < 1e-8, knots) == (True, 3)


def test_knots_keep_spacing_and_cover_values():
    values = np.unique(np.random.default_rng(1).uniform(0, 1, 200) ** 3)
    knots = place_knots(values, 0.01)
    assert np.diff(knots).min() >= 0.01 - 1e-15
    assert knots[0] == values[0]
    assert knots[-1] >= values[-1]
    far = values[np.abs(values[:, None] - knots).min(1) > 1e-12]
    after = np.searchsorted(knots, far)
    np.testing.assert_allclose(knots[after] - knots[after - 1], 0.01)


@ALPHAS
def test_interpolation_reproduces_polynomials(alpha):
    knots, unit, points = np.array([0.0, 0.3, 1.0]), 0.7, np.array([0.0, 0.11, 0.3, 0.77, 1.0])
    polynomial = np.polynomial.Polynomial(np.arange(1.0, 2 * alpha + 1))
    values = np.stack([unit**j * (polynomial.deriv(j) if j else polynomial)(knots) for j in range(alpha)], 1)
    np.testing.assert_allclose(ChainField(knots, alpha, unit).projector(points) @ values.ravel(), polynomial(points))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 0.0],), "knots"),
        (([],), "knots"),
        (([0.0], 4), "alpha"),
        (([0.0], 1, 0.0), "unit"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(graphs.InvalidArgumentError, match=message):
        ChainField(*arguments)


def test_values_out_of_range_are_refused():
    field = ChainField([0.0, 1.0])
    with pytest.raises(graphs.InvalidArgumentError, match="0 and 1"):
        field.projector([1.5])
    with pytest.raises(graphs.InvalidArgumentError, match="lengthscale"):
        field.entries(np.array([-1.0]))


@ALPHAS
@pytest.mark.parametrize("lengthscale", [0.3, 2.0])
def test_conditional_matches_dense_algebra(alpha, lengthscale):
    knots, points = np.array([0.0, 0.3, 1.0, 1.4]), np.array([-3.0, -0.1, 0.0, 0.01, 0.3, 0.9999, 1.2, 1.4, 1.5, 9.0])
    field, values = ChainField(knots, alpha, 0.2), np.array([lengthscale])
    reads, left = field.conditional(values, points)
    found = reads @ field.factor_at(values).solve(reads.T.toarray())
    np.testing.assert_allclose(found.diagonal() + left, 1.0, atol=1e-8)
    at_knots = reads @ field.factor_at(values).solve(field.projector(knots).T.toarray())
    np.testing.assert_allclose(at_knots, matern(alpha, points[:, None] - knots, lengthscale), atol=1e-8)
    assert (left[[2, 4, 7]] == 0).all()


@ALPHAS
@pytest.mark.parametrize("lengthscale", [0.3, 2.0])
def test_conditional_slopes_match_differences(alpha, lengthscale):
    knots, points = np.array([0.0, 0.3, 1.0, 1.4]), np.array([-3.0, -0.1, 0.01, 0.15, 0.9999, 1.2, 1.5, 9.0])
    field, values, step = ChainField(knots, alpha, 0.2), np.array([lengthscale]), 1e-5
    reads, left = field.conditional_slopes(values, points)
    (after, more), (before, less) = (field.conditional(values, points + move) for move in (step, -step))
    np.testing.assert_allclose(reads.toarray(), (after - before).toarray() / (2 * step), atol=1e-7)
    np.testing.assert_allclose(left, (more - less) / (2 * step), atol=1e-7)


@ALPHAS
def test_slopes_at_knots_are_means_of_both_sides(alpha):
    knots, values, step = np.array([0.0, 0.3, 1.0, 1.4]), np.array([0.8]), 1e-7
    field = ChainField(knots, alpha, 0.2)
    reads, left = field.conditional_slopes(values, knots)
    sides = [field.conditional_slopes(values, knots + move) for move in (step, -step)]
    np.testing.assert_allclose(reads.toarray(), sum(own.toarray() for own, _ in sides) / 2, atol=1e-5)
    np.testing.assert_allclose(left, sum(own for _, own in sides) / 2, atol=1e-5)
    if alpha > 1:  # the second latent value at a knot is the derivative there
        expected = np.zeros((4, alpha * 4))
        expected[range(4), alpha * np.arange(4) + 1] = 1 / 0.2
        np.testing.assert_allclose(reads.toarray(), expected, atol=1e-8)
