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
from hypothesis import given, settings
from hypothesis import strategies as st
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


def chain(alpha, unit=1.0):
    return Case(
        lambda: precisions.ChainField(KNOTS, alpha, unit),
        (1.1,),
        lambda: matern(alpha - 0.5, KNOTS[:, None] - KNOTS, 1.1),
        lambda field: field.projector(KNOTS).toarray(),
        {1: 1e-13, 2: 1e-10, 3: 1e-9}[alpha],
    )


CASES = {
    "independent": Case(lambda: precisions.IndependentField(5), (), lambda: np.eye(5)),
    "mesh": Case(
        lambda: MeshField(BALL, 2),
        (0.7,),
        lambda: np.linalg.inv(mesh_precision((BALL.vertices, BALL.faces), 2, 0.7)),
    ),
    "root of a mesh": Case(
        lambda: MeshField(BALL, 3).root,
        (0.7,),
        lambda: np.linalg.inv(mesh_precision((BALL.vertices, BALL.faces), 1, 0.7 / 2)),
    ),
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
        lambda: precisions.ReplicatedField(precisions.ChainField(KNOTS, 2), 3),
        (1.1,),
        lambda: np.kron(np.eye(3), matern(1.5, KNOTS[:, None] - KNOTS, 1.1)),
        lambda field: np.kron(np.eye(3), field.base.projector(KNOTS).toarray()),
    ),
    "chain of order 1": chain(1),
    "chain of order 2": chain(2, 0.3),
    "chain of order 3": chain(3, 0.3),
    "product": Case(
        lambda: precisions.KroneckerField(RoadField(ROADS).refine(PLACES)[0], precisions.ChainField(KNOTS, 2)),
        (1.3, 0.8),
        lambda: np.kron(images(0.5, ALONG, 5.0, 1.3), matern(1.5, KNOTS[:, None] - KNOTS, 0.8)),
        lambda field: np.kron(at_places(field.first), field.second.projector(KNOTS).toarray()),
    ),
    "product of three": Case(
        lambda: precisions.KroneckerField(
            precisions.KroneckerField(precisions.ChainField(KNOTS), precisions.IndependentField(2)),
            precisions.ChainField([0.0, 2.0]),
        ),
        (1.3, 0.8),
        lambda: np.kron(
            np.kron(matern(0.5, KNOTS[:, None] - KNOTS, 1.3), np.eye(2)),
            matern(0.5, np.array([[0.0, 2.0], [2.0, 0.0]]), 0.8),
        ),
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
    assert len(field.parameters) == len(case.values)
    rows = np.repeat(np.arange(size), np.diff(indptr))
    assert (np.diff(rows * size + indices) > 0).all()
    dense = sp.csr_array((np.ones(len(indices)), indices, indptr), shape=(size, size)).toarray()
    np.testing.assert_array_equal(dense, dense.T)
    assert dense.diagonal().all()
    assert field.coordinates is None or len(field.coordinates) == size


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
    b = np.random.default_rng(0).standard_normal((size, 2))
    for kernel, spectral in RESOLVENTS.items():
        precision, exact = kernel.precision(graph), function_of(dense, spectral)
        np.testing.assert_allclose(precision.matrix @ exact, np.eye(size), atol=1e-9)
        np.testing.assert_allclose(precision.variances, exact.diagonal(), rtol=1e-9)
        np.testing.assert_allclose(precision.covariance(some), exact[np.ix_(some, some)], atol=1e-9)
        assert precision.log_determinant == pytest.approx(-np.linalg.slogdet(exact)[1], abs=1e-7)
        for right in (b, b[:, 0]):
            np.testing.assert_allclose(precision.solve(right), exact @ right, atol=1e-9 * size)


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
        (1.5, 2.0),
        (2.3, 0.07),
        *(pytest.param(*c, marks=pytest.mark.slow) for c in ((0.01, 1e-4), (0.9, 1e-6))),
    ],
)
def test_fractional_spectrum_is_within_the_stated_error(order, shift):
    """Errors fall with the number of fractions, and slopes are those of differences."""
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
            weights = np.random.default_rng(0).standard_normal(len(field.pattern.indices))
            slope = differences(lambda x, f=field, w=weights: w @ f.entries(x), np.array([shift]), 1e-4)[0]
            scale = np.abs(weights) @ np.abs(field.entries([shift])) / shift
            assert field.pull_back([shift], weights)[0] == pytest.approx(slope, abs=1e-6 * scale)
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
    assert not np.array_equal(precision.sample(50, seed=2), draws)


def test_indefinite_matrices_name_a_node():
    for field, row, node in (
        (precisions.resolvent_field(GRAPHS["grid"](), 1), 7, 7),
        (precisions.RationalField(GRAPHS["grid"](), 0.5, 3), 3 * 7 + 2, 7),
    ):
        data = np.zeros(len(field.pattern.indices))
        rows = np.repeat(np.arange(len(field.pattern.indptr) - 1), np.diff(field.pattern.indptr))
        data[rows == field.pattern.indices] = 1.0
        data[(rows == row) & (field.pattern.indices == row)] = -1.0
        with pytest.raises(graphs.NotPositiveDefiniteError) as caught:
            field.factor(data)
        assert caught.value.node == node


# --- columns -------------------------------------------------------------------------------------


@pytest.mark.parametrize("gap", [1e-3, 0.02, 0.5, 2.0, 3.7, 15.0])
@pytest.mark.parametrize("alpha", [1, 2, 3])
def test_chain_of_two_knots_matches_the_inverse_in_a_hundred_digits(alpha, gap):
    """The states f, f' / kappa, ... of a process, whose covariance P exp(F^T x) follows from its equation."""
    kappa, unit = np.sqrt(2 * alpha - 1), 1 / np.sqrt(2 * alpha - 1)

    def joint_precision(lengthscale):
        scale = mp.sqrt(2 * alpha - 1) / lengthscale
        drift = mp.matrix(alpha, alpha)
        for i in range(alpha):
            drift[alpha - 1, i] = -mp.binomial(alpha, i)
            if i < alpha - 1:
                drift[i, i + 1] = 1
        third = mp.mpf(1) / 3
        P = mp.matrix([[1, 0, -third], [0, third, 0], [-third, 0, 1]]) if alpha == 3 else mp.eye(alpha)
        A = mp.expm(drift * scale * mp.mpf(gap / kappa), method="taylor")
        joint = mp.matrix(2 * alpha, 2 * alpha)
        for i, j in itertools.product(range(alpha), repeat=2):
            joint[i, j] = joint[alpha + i, alpha + j] = P[i, j]
            joint[alpha + i, j] = joint[j, alpha + i] = (A * P)[i, j]
        powers = mp.diag([(scale * mp.mpf(unit)) ** -j for _ in range(2) for j in range(alpha)])
        return powers * joint**-1 * powers

    with mp.workdps(100):
        step = mp.mpf(10) ** -30
        exact, ahead, back = (joint_precision(1 + h) for h in (0, step, -step))
        expected, slopes = (np.array(one.tolist(), dtype=float) for one in (exact, (ahead - back) / (2 * step)))
        log_determinant = float(mp.log(mp.det(exact)))
    field, one = precisions.ChainField([0.0, gap / kappa], alpha, unit), np.ones(1)
    sizes = np.tile(gap ** (np.arange(alpha) + 0.5 - alpha) if gap < 2 else np.ones(alpha), 2)
    scales = np.outer(sizes, sizes)
    np.testing.assert_allclose(matrix(field, 1.0) / scales, expected / scales, atol=1e-10)
    assert field.log_determinant(one)[0] == pytest.approx(log_determinant, abs=1e-11)
    pulled = np.zeros(expected.shape)
    for entry, unit_weight in zip(np.ndindex(pulled.shape), np.eye(pulled.size), strict=True):
        pulled[entry] = field.pull_back(one, unit_weight)[0]
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
    own, own_change = field.conditional_slopes(values, knots)
    sides = [field.conditional_slopes(values, knots + h) for h in (1e-7, -1e-7)]
    np.testing.assert_allclose(own.toarray(), sum(one.toarray() for one, _ in sides) / 2, atol=2e-5)
    np.testing.assert_allclose(own_change, sum(one for _, one in sides) / 2, atol=2e-5)


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


@ALPHAS
def test_circle_has_the_periodic_sum(alpha):
    turn = np.linspace(0, 2 * np.pi, 200)[:-1]
    circle = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    roads = RoadNetwork.from_lines([np.concatenate([circle, circle[:1]])], metric="euclidean")
    x = roads.total_length * FRACTIONS
    turns = [matern(alpha - 0.5, x[:, None] - x + roads.total_length * k, 1.5) for k in range(-20, 21)]
    np.testing.assert_allclose(fields.law(roads, ON_LINE, alpha, 1.5), np.sum(turns, axis=0), atol=1e-10)


@ALPHAS
@pytest.mark.parametrize("legs", [3, 7])
def test_crossing_of_long_roads_has_variance_two_over_their_number(alpha, legs):
    """Even and odd parts: the sum over d half-lines is one half-line with u' = 0, of variance 2, divided by d."""
    roads = fields.network([(0, k, 200.0) for k in range(1, legs + 1)])
    found = fields.law(roads, [(0, 0.0), (0, 0.01), (1, 0.01)], alpha, 1.5)
    at = matern(alpha - 0.5, np.array([0, 2.0, 4.0]), 1.5)
    share = 2 / legs
    expected = [share, share * at[1], 1 + (share - 1) * at[2], share * at[2]]
    np.testing.assert_allclose(found[[0, 0, 1, 1], [0, 1, 1, 2]], expected, atol=1e-12)


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


@pytest.mark.parametrize("x", [1e-3, 0.03, 0.5, 0.999, 1.001, 3.0, 60.0])
@ALPHAS
def test_entries_of_segments_match_two_hundred_digits(alpha, x):
    """The precision of (u, u' / kappa) at two cuts of a road: three segments of the length x / kappa."""

    def inverse(length):
        e = mp.exp(-length)
        if alpha == 1:
            return mp.matrix([[1, e], [e, 1]]) ** -1
        uu, uv, vv = (1 + length) * e, length * e, (1 - length) * e
        return mp.matrix([[1, 0, uu, -uv], [0, 1, uv, vv], [uu, uv, 1, 0], [-uv, vv, 0, 1]]) ** -1

    def expected(length):
        whole = np.array(inverse(length).tolist()).reshape(2 * alpha, 2 * alpha)
        own = whole[:alpha, :alpha] + whole[alpha:, alpha:] - np.eye(alpha, dtype=int)
        return own, whole[:alpha, alpha:]

    roads = fields.network([(0, 1, 3 * x / np.sqrt(2 * alpha - 1))])
    field, index = RoadField(roads, alpha).refine([(0, 1 / 3), (0, 2 / 3)])
    first, second = ([i, *range(4 + k, 4 + k + alpha - 1)] for k, i in enumerate(index))
    found, (indptr, indices) = matrix(field, 1.0), field.pattern
    with mp.workdps(200):
        step = mp.mpf(x) * mp.mpf(10) ** -20
        for block, at in enumerate(((first, first), (first, second))):
            exact, ahead, back = (expected(mp.mpf(x) + h)[block] for h in (0, step, -step))
            slope = np.array(-mp.mpf(x) * (ahead - back) / (2 * step), dtype=float)  # in the lengthscale
            exact = np.array(exact, dtype=float)
            np.testing.assert_allclose(found[np.ix_(*at)], exact, rtol=1e-12, atol=1e-13 * np.abs(exact).max())
            pulled = np.zeros((alpha, alpha))
            for i, j in np.ndindex(alpha, alpha):
                weights = np.zeros(len(indices))
                row = at[0][i]
                weights[indptr[row] + np.flatnonzero(indices[indptr[row] : indptr[row + 1]] == at[1][j])] = 1.0
                pulled[i, j] = field.pull_back([1.0], weights)[0]
            np.testing.assert_allclose(pulled, slope, rtol=1e-11, atol=1e-12 * np.abs(slope).max())


@ALPHAS
@pytest.mark.parametrize("boundary", ["neumann", "stationary", "open"])
def test_conditional_matches_the_refined_field(alpha, boundary):
    edges = NETWORKS["two loops"] + [(1, 2, 1.0)]
    field = RoadField(fields.network(edges), alpha, boundary, cuts=[(0, 0.2), (3, 0.6)])
    positions = [(0, 0.1), (0, 0.2), (0, 0.55), (1, 0.0), (1, 1.0), (2, 0.5), (2, 0.4), (3, 0.6), (3, 0.59), (3, 1.0)]
    A, variance = field.conditional([0.8], positions)
    own = fields.covariance(field, 0.8)
    finer, index = field.refine(positions)
    full = fields.covariance(finer, 0.8)
    np.testing.assert_allclose(((A @ own) @ A.T).diagonal() + variance, full[index, index], atol=1e-8)
    np.testing.assert_allclose((A @ own)[:, :3], full[index][:, :3], atol=1e-8)
    at_cuts = full[np.ix_(index, finer.segments.vertex[:2])]
    np.testing.assert_allclose((A @ own)[:, field.segments.vertex], at_cuts, atol=1e-8)
    at_vertices = [1, 3, 4, 5, 7, 9]  # one is where a loop was cut
    assert (variance[at_vertices] == 0).all()
    assert (A[at_vertices].sum(axis=1) == 1).all()
    assert (variance[[0, 2, 6, 8]] > 0).all()


@ALPHAS
def test_conditional_within_a_very_long_road(alpha):
    field = RoadField(fields.network([(0, 1, 1e5)]), alpha, "stationary")
    x = np.array([1.0, 3.0, 5e4, 1e5 - 2])
    A, variance = field.conditional([1.0], np.stack([np.zeros(4), x / 1e5], axis=1))
    own = fields.covariance(field, 1.0)
    expected = matern(alpha - 0.5, np.stack([x, 1e5 - x], axis=1), 1.0)
    np.testing.assert_allclose(A @ own[:, :2], expected, atol=1e-10)
    np.testing.assert_allclose(((A @ own) @ A.T).diagonal() + variance, 1.0, atol=1e-10)


EIGHTHS = st.integers(0, 8).map(lambda k: k / 8)
LENGTHS = st.integers(5, 30).map(lambda k: k / 10)


@st.composite
def cut_networks(draw):
    """Return roads (vertex, vertex, length), positions on them, and more positions."""
    edges = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), LENGTHS), min_size=1, max_size=6))
    names = sorted({vertex for edge in edges for vertex in edge[:2]})
    edges = [(names.index(a), names.index(b), length) for a, b, length in edges]
    place = st.tuples(st.integers(0, len(edges) - 1), EIGHTHS)
    return edges, draw(st.lists(place, min_size=1, max_size=5)), draw(st.lists(place, max_size=5))


@pytest.mark.slow
@given(
    cut_networks(), st.sampled_from([1, 2]), st.sampled_from(["neumann", "stationary"]), st.floats(0.5, 2), st.randoms()
)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_distribution_is_invariant_to_cuts_and_directions(case, alpha, boundary, lengthscale, random):
    edges, positions, more = case
    roads = fields.network(edges)
    expected = fields.law(roads, positions, alpha, lengthscale, boundary)
    cut = RoadField(roads, alpha, boundary).refine(more)[0]
    both, index = cut.refine(positions)
    np.testing.assert_allclose(fields.covariance(both, lengthscale)[np.ix_(index, index)], expected, atol=1e-8)
    A, variance = cut.conditional([lengthscale], positions)
    found = (A @ fields.covariance(cut, lengthscale) @ A.T.toarray()).diagonal() + variance
    np.testing.assert_allclose(found, expected.diagonal(), atol=1e-8)
    order = random.sample(range(len(edges)), len(edges))
    turned = [random.random() < 0.5 for _ in edges]
    other = fields.network([edges[i][:2][:: -1 if turned[i] else 1] + edges[i][2:] for i in order])
    moved = [(order.index(road), 1 - at if turned[road] else at) for road, at in positions]
    np.testing.assert_allclose(fields.law(other, moved, alpha, lengthscale, boundary), expected, atol=1e-8)


def test_equal_positions_share_a_value():
    roads = fields.network([(0, 1, 1.0), (1, 2, 2.0), (2, 2, 1.0)])
    field, index = RoadField(roads).refine([(1, 0.3), (0, 1.0), (1, 0.1 + 0.2), (1, 0.0), (2, 0.0), (2, 1.0), (2, 0.5)])
    assert index.tolist() == [3, 1, 3, 1, 2, 2, 4]
    np.testing.assert_allclose(field.coordinates[3], roads.point([(1, 0.3)])[0])
    again, other = field.refine([(1, 0.3), (1, 0.2)])
    assert (other.tolist(), len(again.coordinates)) == ([4, 3], len(field.coordinates) + 1)
    A, variance = RoadField(roads, 2, cuts=[(1, 0.4)]).conditional(
        [1.0], [(1, 0.4 - 1e-14), (1, 0.4 + 1e-14), (0, 1e-14)]
    )
    assert (variance.tolist(), A.indices.tolist()) == ([0.0] * 3, [3, 3, 0])
    nothing, none = field.conditional([1.0], np.zeros((0, 2)))
    assert (nothing.shape, none.shape, field.refine([])[1].shape) == ((0, len(field.coordinates)), (0,), (0,))


@pytest.mark.parametrize("within", [0.07, 0.5, 5.0])
def test_close_positions_share_values_within_a_tolerance(within):
    roads, rng = fields.network([(0, 1, 1.0), (1, 2, 3.0)]), np.random.default_rng(0)
    positions = np.stack([rng.integers(0, 2, 200), rng.uniform(size=200)], axis=1)
    field, index = RoadField(roads).refine(positions, within=within)
    assert len(field.coordinates) <= 4 / within + 3
    assert (field.segments.length >= min(within, 1.0) * (1 - 1e-9)).all()
    assert (np.abs(field.cuts[:, 1] - positions[:, 1]) * roads.lengths[positions[:, 0].astype(int)] < within).all()
    assert len(index) == 200


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
    scaled = replace(plain, lengths=1000 * plain.lengths)
    np.testing.assert_allclose(RoadField(scaled, 2).entries([700.0]), RoadField(plain, 2).entries([0.7]), rtol=1e-13)


def test_many_roads_at_one_crossing_stay_sparse():
    lines = [[(0, 0), (np.cos(k), np.sin(k))] for k in range(2000)]
    field = RoadField(RoadNetwork.from_lines(lines, metric="euclidean"), alpha=2)
    assert len(field.coordinates) == 2001 + 1999
    assert len(field.pattern.indices) < 8 * len(field.coordinates)


# --- refusals ------------------------------------------------------------------------------------

Y = fields.network(NETWORKS["Y"])
PATH, STAR = GRAPHS["path"](), GRAPHS["star"]()
PRECISION = kernels.Matern(2, 2.0).precision(PATH)
REFUSED = {
    "a network of lists": (lambda: RoadField([(0, 0), (1, 1)]), "RoadNetwork"),
    "roads of order 3": (lambda: RoadField(Y, 3), "alpha"),
    "a boundary": (lambda: RoadField(Y, 1, "dirichlet"), "'open'"),
    "a negative lengthscale": (lambda: RoadField(Y).entries([-1.0]), "one positive number"),
    "weights": (lambda: RoadField(Y).pull_back([1.0], [1.0]), "weights"),
    "an unknown road": (lambda: RoadField(Y).refine([(5, 0.5)]), "Position 0"),
    "a fraction": (lambda: RoadField(Y).conditional([1.0], [(0, 1.5)]), "Position 0"),
    "a tolerance": (lambda: RoadField(Y).refine([(0, 0.5)], within=-1), "within"),
    "knots that fall": (lambda: precisions.ChainField([1.0, 0.0]), "knots"),
    "a chain of order 4": (lambda: precisions.ChainField([0.0], 4), "alpha"),
    "a unit of nothing": (lambda: precisions.ChainField([0.0], 1, 0.0), "unit"),
    "a point outside": (lambda: precisions.ChainField([0.0, 1.0]).projector([1.5]), "0 and 1"),
    "an order of 17": (lambda: precisions.resolvent_field(PATH, 17), "order"),
    "an integer fraction": (lambda: precisions.RationalField(PATH, 2.0, 3), "power"),
    "a fractional kernel": (lambda: kernels.Matern(1.5, 2.0).precision(PATH), "fractional"),
    "a polynomial kernel": (lambda: kernels.RandomWalk().precision(PATH), "polynomial"),
    "no graph": (lambda: kernels.Matern(1).precision(3), "Graph"),
    "a broken position": (lambda: PRECISION.covariance(np.array([0.5])), "integers"),
    "a right side": (lambda: PRECISION.solve(np.zeros(3)), "b must"),
    "no draws": (lambda: PRECISION.sample(0), "count"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore::graphs.DisconnectedWarning")
def test_bad_arguments_are_refused(name):
    call, word = REFUSED[name]
    with pytest.raises((graphs.InvalidArgumentError, graphs.InvalidGraphError), match=word):
        call()


def test_patterns_too_large_for_memory_are_refused():
    """A hub of 300,000 nodes has a dense square, and so has the product of two long chains."""
    rays = sp.coo_array((np.ones(299_999), (np.zeros(299_999, int), np.arange(1, 300_000))), shape=(300_000, 300_000))
    hub = graphs.Graph.from_scipy(rays + rays.T)
    with pytest.raises(graphs.MemoryBudgetError, match="Hubs"):
        kernels.Matern(2, 1.0).precision(hub)
    long = precisions.ChainField(np.arange(60_000.0))
    with pytest.raises(graphs.MemoryBudgetError, match="60,000"):
        precisions.KroneckerField(long, long).entries(np.ones(2))
