"""The contract of fields, Gaussian vectors with a sparse precision, on graphs, meshes, roads and columns.

The covariances are those of formulas and of dense matrices that share nothing with the package: Laplacians from
adjacency matrices, finite elements, Matern kernels, sums over images, and inverses in two hundred digits.
"""

import itertools
from dataclasses import replace
from typing import NamedTuple

import fields
import mpmath as mp
import numpy as np
import pytest
import scipy.sparse as sp
import trimesh
from checks import ALARM
from fields import matern, matrix, mesh_precision
from scipy import stats
from sparse_graphs import GRAPHS

import graphs
from graphs import MeshField, RoadField, RoadNetwork, kernels, precisions

# --- formulas ------------------------------------------------------------------------------------


def images(nu, x, length, lengthscale):
    """Return the covariance at x of a process on [0, length] with reflecting ends."""
    centers = [(sign, 2 * length * k) for k in range(-30, 31) for sign in (1, -1)]
    return sum(matern(nu, x[:, None] - sign * x - shift, lengthscale) for sign, shift in centers)


def laplacian(graph):
    W = graph.adjacency.toarray()
    degrees = W.sum(axis=1)
    if graph.laplacian == "combinatorial":
        return (np.diag(degrees) - W) / degrees.max()
    roots = np.sqrt(np.where(degrees > 0, degrees, np.inf))
    return np.diag(1.0 * (degrees > 0)) - W / roots / roots[:, None]


def function_of(L, spectral):
    eigenvalues, vectors = np.linalg.eigh(L)
    return (vectors * spectral(np.maximum(eigenvalues, 0))) @ vectors.T


# --- the contract --------------------------------------------------------------------------------


class Case(NamedTuple):
    """A field, its parameters, the covariance of what is read from its latent values, and how it is read."""

    make: object
    values: tuple
    covariance: object
    read: object = lambda field: np.eye(len(field.pattern.indptr) - 1)
    error: float = 1e-9


ROADS = RoadNetwork.from_lines([[(0.0, 0.0), (3.0, 0.0)], [(3.0, 0.0), (3.0, 2.0)]], metric="euclidean")
PLACES, ALONG = [(0, 0.0), (0, 0.3), (0, 1.0), (1, 0.5), (1, 1.0)], np.array([0.0, 0.9, 3.0, 4.0, 5.0])
KNOTS = np.array([0.0, 0.4, 1.5, 1.7, 4.0])
BALL = trimesh.creation.icosphere(1)
L = laplacian(GRAPHS["grid"]())


def at_places(field):
    return np.eye(len(field.coordinates))[field.refine(PLACES)[1]]


def chain(alpha, unit):
    return Case(
        lambda: precisions.ChainField(KNOTS, alpha, unit),
        (1.1,),
        lambda: matern(alpha - 0.5, KNOTS[:, None] - KNOTS, 1.1),
        lambda field: field.projector(KNOTS).toarray(),
        {1: 1e-13, 2: 1e-10, 3: 1e-9}[alpha],
    )


def on_ball(make, alpha, lengthscale):
    return Case(make, (0.7,), lambda: np.linalg.inv(mesh_precision((BALL.vertices, BALL.faces), alpha, lengthscale)))


CASES = {
    "independent": Case(lambda: precisions.IndependentField(5), (), lambda: np.eye(5)),
    "mesh": on_ball(lambda: MeshField(BALL, 2), 2, 0.7),
    "rough mesh": on_ball(lambda: MeshField(BALL, 1), 1, 0.7),
    "roads": Case(
        lambda: RoadField(ROADS, 1).refine(PLACES)[0], (1.3,), lambda: images(0.5, ALONG, 5.0, 1.3), at_places
    ),
    "smooth roads": Case(
        lambda: RoadField(ROADS, 2).refine(PLACES)[0], (1.3,), lambda: images(1.5, ALONG, 5.0, 1.3), at_places
    ),
    "nodes": Case(
        lambda: precisions.resolvent_field(GRAPHS["grid"](), 2),
        (0.3,),
        lambda: function_of(L, lambda x: (x + 0.3) ** -2),
    ),
    "fraction": Case(
        lambda: precisions.RationalField(GRAPHS["grid"](), 1.5, 3),
        (0.3,),
        lambda: function_of(L, lambda x: (x + 0.3) ** -1.5),
        lambda field: field.projector(np.arange(110)).toarray(),
        2e-3,
    ),
    "copies": Case(
        lambda: precisions.KroneckerField(precisions.IndependentField(3), precisions.ChainField(KNOTS, 2)),
        (1.1,),
        lambda: np.kron(np.eye(3), matern(1.5, KNOTS[:, None] - KNOTS, 1.1)),
        lambda field: np.kron(np.eye(3), field.second.projector(KNOTS).toarray()),
    ),
    **{f"chain of order {alpha}": chain(alpha, unit) for alpha, unit in ((1, 1.0), (2, 0.3), (3, 0.3))},
    "product": Case(
        lambda: precisions.KroneckerField(RoadField(ROADS).refine(PLACES)[0], precisions.ChainField(KNOTS, 2)),
        (1.3, 0.8),
        lambda: np.kron(images(0.5, ALONG, 5.0, 1.3), matern(1.5, KNOTS[:, None] - KNOTS, 0.8)),
        lambda field: np.kron(at_places(field.first), field.second.projector(KNOTS).toarray()),
    ),
}
CASE = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def differences(function, values, step=1e-5):
    steps = step * np.diag(values)
    return np.array([(function(values + h) - function(values - h)) / (2 * h.sum()) for h in steps])


def implementations(role):
    for one in role.__subclasses__():
        yield from (one, *implementations(one))


def test_each_implementation_has_a_case():
    known = {type(case.make()) for case in CASES.values()}
    assert {one for one in implementations(precisions.MarkovField) if one.__module__.startswith("graphs.")} <= known


@CASE
def test_pattern_is_sorted_and_symmetric_with_its_diagonal(case):
    field = case.make()
    indptr, indices = field.pattern
    size = len(indptr) - 1
    assert (indptr.dtype, indices.dtype) == (np.int64, np.int32)
    rows = np.repeat(np.arange(size), np.diff(indptr))
    assert (np.diff(rows * size + indices) > 0).all()
    dense = sp.csr_array((np.ones(len(indices)), indices, indptr), shape=(size, size)).toarray()
    np.testing.assert_array_equal(dense, dense.T)
    assert dense.diagonal().all()


@CASE
def test_covariance_matches_the_formula(case):
    field, expected = case.make(), case.covariance()
    Q, read = matrix(field, *case.values), case.read(field)
    np.testing.assert_allclose(Q, Q.T, atol=1e-12 * np.abs(Q).max())
    assert np.linalg.eigvalsh(Q).min() > 0
    scale = np.abs(expected).max()
    np.testing.assert_allclose(read @ np.linalg.solve(Q, read.T), expected, atol=case.error * scale)
    factor = field.factor_at(np.array(case.values))
    np.testing.assert_allclose(read @ factor.solve(read.T), expected, atol=max(case.error, 1e-8) * scale)
    assert field.factor_at(np.array(case.values)) is factor


@CASE
def test_pull_back_is_the_adjoint_derivative(case):
    field, values = case.make(), np.array(case.values)
    weights = np.random.default_rng(1).standard_normal(len(field.pattern.indices))
    scale = np.abs(weights) @ np.abs(field.entries(values))
    expected = differences(lambda point: weights @ field.entries(point), values)
    np.testing.assert_allclose(field.pull_back(values, weights), expected.reshape(-1), atol=1e-8 * scale)


@CASE
def test_log_determinant_and_its_slopes_match_the_matrix(case):
    field, values = case.make(), np.array(case.values)
    value, slopes = field.log_determinant(values)
    assert value == pytest.approx(np.linalg.slogdet(matrix(field, *values))[1], abs=1e-7)
    expected = differences(lambda point: np.linalg.slogdet(matrix(field, *point))[1], values)
    np.testing.assert_allclose(slopes, expected.reshape(-1), rtol=1e-5, atol=1e-6)


# --- graphs --------------------------------------------------------------------------------------

RESOLVENTS = {
    kernels.RegularizedLaplacian(1, 2.0): lambda x: 1 / (1 + 4 * x),
    kernels.RegularizedLaplacian(3, 0.7): lambda x: (1 + 0.49 * x) ** -3,
    kernels.Matern(1, 3.0): lambda x: 1 / (2 / 9 + x),
    kernels.Matern(2, 1.5): lambda x: (4 / 2.25 + x) ** -2,
}


@pytest.mark.parametrize("laplacian_name", ["normalized", "combinatorial"])
@pytest.mark.parametrize("name", ["mesh", "roads", "star", "parts", "eight decades"])
def test_precision_of_a_kernel_matches_dense_matrices(name, laplacian_name):
    graph = GRAPHS[name]().with_laplacian(laplacian_name)
    some, size, dense = np.arange(graph.num_nodes)[::-7], graph.num_nodes, laplacian(graph)
    b = np.random.default_rng(0).standard_normal(size)
    for kernel, spectral in RESOLVENTS.items():
        precision, exact = kernel.precision(graph), function_of(dense, spectral)
        np.testing.assert_allclose(precision.matrix @ exact, np.eye(size), atol=1e-9)
        np.testing.assert_allclose(precision.variances, exact.diagonal(), rtol=1e-9)
        np.testing.assert_allclose(precision.covariance(some), exact[np.ix_(some, some)], atol=1e-9)
        assert precision.log_determinant == pytest.approx(-np.linalg.slogdet(exact)[1], abs=1e-7)
        np.testing.assert_allclose(precision.solve(b), exact @ b, atol=1e-9 * size)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_determinants_match_eigenvalues_for_all_shifts(order):
    graph = GRAPHS["roads"]()
    field, eigenvalues = precisions.resolvent_field(graph, order), np.linalg.eigvalsh(laplacian(graph))
    eigenvalues[0] = 0
    for shift in (1e-5, 0.03, 1.0, 70.0):
        value, slope = field.log_determinant(np.array([shift]))
        assert value == pytest.approx(order * np.log(eigenvalues + shift).sum(), abs=1e-8)
        assert slope[0] == pytest.approx(order * (1 / (eigenvalues + shift)).sum(), rel=1e-7)


@pytest.mark.parametrize(
    ("order", "shift"),
    [
        (0.5, 0.07),
        (2.3, 0.07),
        *(pytest.param(*c, marks=pytest.mark.slow) for c in ((0.01, 1e-4), (0.9, 1e-6))),
    ],
)
def test_fractional_spectrum_is_within_the_stated_error(order, shift):
    """Errors fall with the number of fractions."""
    for name in ("mesh", "star"):
        graph, errors = GRAPHS[name](), []
        eigenvalues, vectors = np.linalg.eigh(laplacian(graph))
        for terms in (1, 2, 4, 8):
            field = precisions.RationalField(graph, order, terms)
            read, Q = field.projector(np.arange(graph.num_nodes)).toarray(), matrix(field, shift)
            spectrum = np.einsum("nk,nk->k", vectors, read @ np.linalg.solve(Q, read.T @ vectors))
            errors.append(np.abs(spectrum * (np.maximum(eigenvalues, 0) + shift) ** order - 1).max())
            assert errors[-1] < 1.01 * field.error(shift) + 1e-6
            assert errors[-1] > 0.3 * field.error(shift) or terms > 4 or shift < 1e-3
        assert errors[-1] < 5e-3
        assert all(b < 0.8 * a for a, b in itertools.pairwise(errors) if a > 1e-5)


def test_draws_have_the_distribution_of_the_precision():
    """x^T Q x of a draw x of N values is chi-squared with N degrees of freedom, and so is their sum over draws."""
    graph = GRAPHS["mesh"]()
    precision, Q = kernels.Matern(2, 2.0).precision(graph), np.linalg.matrix_power(laplacian(graph) + np.eye(162), 2)
    draws = precision.sample(50, seed=1)
    low, high = stats.chi2.isf([1 - ALARM / 2, ALARM / 2], draws.size)
    assert low < np.einsum("ci,ij,cj->", draws, Q, draws) < high
    np.testing.assert_array_equal(precision.sample(50, seed=1), draws)


def test_indefinite_matrices_name_a_node():
    for field, row, node in (
        (precisions.resolvent_field(GRAPHS["grid"](), 1), 7, 7),
        (precisions.RationalField(GRAPHS["grid"](), 0.5, 3), 3 * 7 + 2, 7),
    ):
        indptr, indices = field.pattern
        rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        data = np.where(rows == indices, np.where(rows == row, -1.0, 1.0), 0.0)
        with pytest.raises(graphs.NotPositiveDefiniteError) as caught:
            field.factor(data)
        assert caught.value.node == node


# --- columns -------------------------------------------------------------------------------------


def joint_precision(alpha, gap, lengthscale, unit):
    """Return the precision of f, unit f', ... at 0 and at a gap, from the derivatives of a Matern kernel."""
    scale, third = mp.sqrt(2 * alpha - 1) / lengthscale, mp.mpf(1) / 3
    polynomial = [third, 1, 1] if alpha == 3 else [1] * alpha

    def slopes(x):
        return [
            mp.diff(lambda t: mp.polyval(polynomial, scale * t) * mp.exp(-scale * t), x, n) for n in range(2 * alpha)
        ]

    near, far, K = slopes(0), slopes(gap), mp.matrix(2 * alpha, 2 * alpha)
    for i, j in itertools.product(range(alpha), repeat=2):
        size = (-1) ** i * mp.mpf(unit) ** (i + j)
        K[i, j] = K[alpha + i, alpha + j] = size * near[i + j]
        K[i, alpha + j] = K[alpha + j, i] = size * far[i + j]
    return np.array((K**-1).tolist())


@pytest.mark.parametrize("gap", [1e-3, 0.02, 0.5, 2.0, 3.7, 15.0])
@pytest.mark.parametrize("alpha", [1, 2, 3])
def test_chain_of_two_knots_matches_the_inverse_in_a_hundred_digits(alpha, gap):
    kappa, one = np.sqrt(2 * alpha - 1), np.ones(1)
    field = precisions.ChainField([0.0, gap / kappa], alpha, 1 / kappa)
    with mp.workdps(100):
        step = mp.mpf(10) ** -30
        exact, ahead, back = (joint_precision(alpha, gap / kappa, 1 + h, 1 / kappa) for h in (0, step, -step))
        expected, slopes = (array.astype(float) for array in (exact, (ahead - back) / (2 * step)))
        log_determinant = float(mp.log(mp.det(mp.matrix(exact))))
    sizes = np.tile(gap ** (np.arange(alpha) + 0.5 - alpha) if gap < 2 else np.ones(alpha), 2)
    scales = np.outer(sizes, sizes)
    np.testing.assert_allclose(matrix(field, 1.0) / scales, expected / scales, atol=1e-10)
    assert field.log_determinant(one)[0] == pytest.approx(log_determinant, abs=1e-11)
    pulled = np.reshape([field.pull_back(one, weights) for weights in np.eye(slopes.size)], slopes.shape)
    np.testing.assert_allclose(pulled / scales, slopes / scales, atol=1e-8 * np.abs(slopes / scales).max())


@pytest.mark.parametrize("lengthscale", [0.3, 2.0])
@pytest.mark.parametrize("alpha", [1, 2, 3])
def test_chain_conditional_and_its_slopes(alpha, lengthscale):
    knots, values = np.array([0.0, 0.3, 1.0, 1.4]), np.array([lengthscale])
    points = np.array([-3.0, -0.1, 0.0, 0.01, 0.15, 0.3, 0.9999, 1.2, 1.4, 1.5, 9.0])
    field = precisions.ChainField(knots, alpha, 0.2)
    covariance = np.linalg.inv(matrix(field, lengthscale))
    reads, left = field.conditional(values, points)
    np.testing.assert_allclose((reads @ covariance @ reads.T.toarray()).diagonal() + left, 1.0, atol=1e-8)
    at_knots = reads @ covariance[:, ::alpha]
    np.testing.assert_allclose(at_knots, matern(alpha - 0.5, points[:, None] - knots, lengthscale), atol=1e-8)
    assert (left[[2, 5, 8]] == 0).all()
    step, apart = 1e-5, np.delete(points, [2, 5, 8])
    slopes, change = field.conditional_slopes(values, apart)
    (after, more), (before, less) = (field.conditional(values, apart + h) for h in (step, -step))
    np.testing.assert_allclose(slopes.toarray(), (after - before).toarray() / (2 * step), atol=1e-7)
    np.testing.assert_allclose(change, (more - less) / (2 * step), atol=1e-7)
    own, *sides = (field.conditional_slopes(values, knots + h)[0].toarray() for h in (0, 1e-7, -1e-7))
    np.testing.assert_allclose(own, sum(sides) / 2, atol=2e-5)


@pytest.mark.parametrize("alpha", [1, 2, 3])
def test_chain_interpolation_reproduces_polynomials(alpha):
    knots, unit, points = np.array([0.0, 0.3, 1.0]), 0.7, np.array([0.0, 0.11, 0.3, 0.77, 1.0])
    polynomial = np.polynomial.Polynomial(np.arange(1.0, 2 * alpha + 1))
    values = np.stack([unit**j * (polynomial.deriv(j) if j else polynomial)(knots) for j in range(alpha)], 1)
    found = precisions.ChainField(knots, alpha, unit).projector(points) @ values.ravel()
    np.testing.assert_allclose(found, polynomial(points))


# --- roads ---------------------------------------------------------------------------------------

ALPHAS = pytest.mark.parametrize("alpha", [1, 2])
FRACTIONS = np.array([0.0, 0.05, 0.3, 0.31, 0.7, 0.95, 1.0])
ON_LINE = np.stack([np.zeros(7), FRACTIONS], axis=1)
LINE = RoadNetwork.from_lines([[(0, 0), (10, 0)]], metric="euclidean")
X = 10 * FRACTIONS


@ALPHAS
@pytest.mark.parametrize("lengthscale", [0.4, 3.0, 80.0])
def test_stationary_road_has_the_matern_kernel(alpha, lengthscale):
    found = fields.law(LINE, ON_LINE, alpha, lengthscale, "stationary")
    expected = matern(alpha - 0.5, X[:, None] - X, lengthscale)
    np.testing.assert_allclose(found, expected, atol=1e-12 if alpha == 1 else 1e-6)  # of segments of 1e-3


@ALPHAS
@pytest.mark.parametrize("lengthscale", [1.0, 4.0])
def test_open_road_lacks_the_energy_beyond_its_ends(alpha, lengthscale):
    """Half of the precision I of (u, u' / kappa) at each end, taken from the line's Matern process by dense algebra."""
    kappa, ends = np.sqrt(2 * alpha - 1) / lengthscale, np.array([0.0, 10.0])
    K = matern(alpha - 0.5, X[:, None] - X, lengthscale)
    if alpha == 2:
        r, q = kappa * (X[:, None] - ends), kappa * (ends[:, None] - ends)
        beside = r * np.exp(-np.abs(r))  # of u and u' / kappa
        K = np.block([[K, beside], [beside.T, (1 - np.abs(q)) * np.exp(-np.abs(q))]])
    precision = np.linalg.inv(K)
    at = [0, 6, *range(7, len(K))]
    precision[at, at] -= 0.5
    found = fields.law(LINE, ON_LINE, alpha, lengthscale, "open")
    np.testing.assert_allclose(found, np.linalg.inv(precision)[:7, :7], rtol=1e-6)


NETWORKS = {
    "Y": [(0, 1, 1.0), (2, 1, 1.7), (1, 3, 0.6)],
    "two loops": [(0, 0, 2.0), (1, 0, 0.7), (1, 1, 0.9)],
    "parallel roads": [(0, 1, 1.0), (1, 0, 1.4), (0, 1, 0.5), (1, 2, 1.0)],
    "a loop, and parts": [(0, 0, 2.0), (2, 3, 2.0), (3, 1, 0.8)],
    "a square with a diagonal": [(0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0), (3, 0, 1.0), (0, 2, 1.5)],
}
"""Roads as (vertex, vertex, length)."""


@ALPHAS
@pytest.mark.parametrize("name", NETWORKS)
def test_network_covariance_matches_finite_elements(name, alpha):
    edges = NETWORKS[name]
    roads = fields.network(edges)
    positions = [(road, fraction) for road in range(len(edges)) for fraction in (0.0, 1 / 3, 0.5, 1.0)]
    expected = fields.by_elements(roads, positions, alpha, 1.3)
    np.testing.assert_allclose(fields.law(roads, positions, alpha, 1.3), expected, atol=1e-6)
    cut = RoadField(roads, alpha).refine([(road, 0.4) for road in range(0, len(edges), 2)])[0]
    both, index = cut.refine(positions)
    np.testing.assert_allclose(fields.covariance(both, 1.3)[np.ix_(index, index)], expected, atol=1e-6)
    A, variance = cut.conditional([1.3], positions)
    found = (A @ fields.covariance(cut, 1.3) @ A.T.toarray()).diagonal() + variance
    np.testing.assert_allclose(found, expected.diagonal(), atol=1e-6)
    assert ((variance == 0).reshape(-1, 4) == [True, False, False, True]).all()


@pytest.mark.parametrize("x", [1e-3, 0.03, 0.5, 0.999, 1.001, 3.0, 60.0])
@ALPHAS
def test_entries_of_segments_match_a_hundred_digits(alpha, x):
    """The precision of (u, u' / kappa) at two cuts of a road: three segments of the length x / kappa."""
    kappa = np.sqrt(2 * alpha - 1)
    field, index = RoadField(fields.network([(0, 1, 3 * x / kappa)]), alpha).refine([(0, 1 / 3), (0, 2 / 3)])
    first, second = ([i, *range(4 + k, 3 + k + alpha)] for k, i in enumerate(index))
    found, (indptr, indices) = matrix(field, 1.0), field.pattern
    pulled = [field.pull_back([1.0], weights)[0] for weights in np.eye(len(indices))]
    slopes = sp.csr_array((pulled, indices, indptr)).toarray()

    def blocks(h):
        whole = joint_precision(alpha, x / kappa, 1 + h, (1 + h) / kappa)
        return whole[:alpha, :alpha] + whole[alpha:, alpha:] - np.eye(alpha, dtype=int), whole[:alpha, alpha:]

    with mp.workdps(100):
        step = mp.mpf(10) ** -30
        for to, exact, ahead, back in zip((first, second), *map(blocks, (0, step, -step)), strict=True):
            exact, slope = exact.astype(float), ((ahead - back) / (2 * step)).astype(float)
            np.testing.assert_allclose(found[np.ix_(first, to)], exact, rtol=1e-12, atol=1e-13 * np.abs(exact).max())
            np.testing.assert_allclose(slopes[np.ix_(first, to)], slope, rtol=1e-11, atol=1e-12 * np.abs(slope).max())


def test_equal_positions_share_a_value():
    roads = fields.network([(0, 1, 1.0), (1, 2, 2.0), (2, 2, 1.0)])
    field, index = RoadField(roads).refine([(1, 0.3), (0, 1.0), (1, 0.1 + 0.2), (1, 0.0), (2, 0.0), (2, 1.0), (2, 0.5)])
    assert index.tolist() == [3, 1, 3, 1, 2, 2, 4]
    assert field.refine([(1, 0.3), (1, 0.2)])[1].tolist() == [4, 3]
    A, variance = RoadField(roads, 2, cuts=[(1, 0.4)]).conditional(
        [1.0], [(1, 0.4 - 1e-14), (1, 0.4 + 1e-14), (0, 1e-14)]
    )
    assert (variance.tolist(), A.indices.tolist()) == ([0.0] * 3, [3, 3, 0])


@pytest.mark.parametrize("within", [0.07, 5.0])
def test_close_positions_share_values_within_a_tolerance(within):
    roads, fractions = fields.network([(0, 1, 3.0)]), np.random.default_rng(0).uniform(size=200)
    field, _ = RoadField(roads).refine(np.stack([np.zeros(200), fractions], axis=1), within=within)
    assert len(field.coordinates) <= 3 / within + 2
    assert (field.segments.length >= min(within, 3.0) * (1 - 1e-9)).all()
    assert (np.abs(field.cuts[:, 1] - fractions) * 3 < within).all()


@pytest.mark.parametrize(("alpha", "error"), [(1, 1e-7), (2, 1e-3)])
def test_extreme_lengths_are_finite_and_accurate(alpha, error):
    """Segments of 1e-9 lengthscales next to some of 1,000; short ones count as a little longer."""
    lengths = np.array([1000.0, 1e-9, 0.5, 1e-9, 1e-12, 0.7, 1e-6, 1000.0])
    field = RoadField(fields.network([(k, k + 1, length) for k, length in enumerate(lengths)]), alpha, "stationary")
    with np.errstate(all="raise", under="ignore"):
        for lengthscale in (1e-300, 1e-9, 1.0, 1e9, 1e300):
            entries = field.entries([lengthscale])
            assert np.isfinite(entries).all()
            assert np.isfinite(field.pull_back([lengthscale], np.ones(len(entries)))).all()
            A, variance = field.conditional([lengthscale], [(0, 0.3), (2, 1e-11), (7, 1 - 1e-11)])
            assert np.isfinite(A.data).all()
            assert (variance > 0).all()
    x = np.concatenate(([0.0], np.cumsum(lengths)))
    found = fields.covariance(field, 1.0)[: len(x), : len(x)]
    np.testing.assert_allclose(found, matern(alpha - 0.5, x[:, None] - x, 1.0), atol=error)


def test_road_without_length_is_a_vertex():
    plain, roads = fields.network([(0, 1, 1.0), (1, 2, 2.0)]), fields.network([(0, 1, 1.0), (1, 1, 1.0), (1, 2, 2.0)])
    field, index = RoadField(replace(roads, lengths=np.array([1.0, 0.0, 2.0])), 2).refine(
        [(1, 0.3), (0, 1.0), (1, 1.0)]
    )
    assert len(set(index.tolist())) == 1
    np.testing.assert_allclose(field.entries([1.0]), RoadField(plain, 2).entries([1.0]))


def test_many_roads_at_one_crossing_stay_sparse():
    lines = [[(0, 0), (np.cos(k), np.sin(k))] for k in range(2000)]
    field = RoadField(RoadNetwork.from_lines(lines, metric="euclidean"), alpha=2)
    assert len(field.coordinates) == 2001 + 1999
    assert len(field.pattern.indices) < 8 * len(field.coordinates)
