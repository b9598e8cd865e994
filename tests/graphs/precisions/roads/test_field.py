"""Fields on networks, against closed forms on lines and circles, and finite elements elsewhere."""

import fields
import numpy as np
import pytest

import graphs
from graphs import RoadField, RoadNetwork
from graphs.precisions.roads import field as roads_field
from graphs.precisions.roads import layout, line

ALPHAS = pytest.mark.parametrize("alpha", [1, 2])
LINE = [(0, 0), (10, 0)]


def on_line(fractions):
    return np.stack([np.zeros(len(fractions)), fractions], axis=1)


FRACTIONS = np.array([0.0, 0.05, 0.3, 0.31, 0.7, 0.95, 1.0])


@ALPHAS
@pytest.mark.parametrize("lengthscale", [0.4, 3.0, 80.0])
def test_stationary_road_matches_the_line(alpha, lengthscale):
    roads = RoadNetwork.from_lines([LINE], metric="euclidean")
    found = fields.law(roads, on_line(FRACTIONS), alpha, lengthscale, "stationary")
    x = 10 * FRACTIONS
    expected = fields.correlation(alpha, x[:, None] - x[None], lengthscale)
    np.testing.assert_allclose(found, expected, atol=1e-12 if alpha == 1 else 1e-6)  # of segments of 1e-3


@ALPHAS
def test_neumann_road_matches_images(alpha):
    roads = RoadNetwork.from_lines([LINE], metric="euclidean")
    found = fields.law(roads, on_line(FRACTIONS), alpha, 2.5)
    x = 10 * FRACTIONS
    images = [fields.correlation(alpha, x[:, None] - s * x[None] + 20 * k, 2.5) for k in range(-9, 10) for s in (1, -1)]
    np.testing.assert_allclose(found, np.sum(images, axis=0), atol=1e-11)
    assert found[0, 0] == pytest.approx(2, abs=0.01)


@ALPHAS
@pytest.mark.parametrize("lengthscale", [1.0, 4.0])
def test_open_road_lacks_the_energy_beyond_its_ends(alpha, lengthscale):
    """Half of the precision I of (u, u' / kappa) at each end, taken from the line's Matern process by dense algebra."""
    x = 10 * FRACTIONS
    kappa = 1 / lengthscale if alpha == 1 else np.sqrt(3) / lengthscale
    ends = np.array([0.0, 10.0])
    K = fields.correlation(alpha, x[:, None] - x[None], lengthscale)
    if alpha == 2:
        r, q = kappa * (x[:, None] - ends), kappa * (ends[:, None] - ends)
        beside = r * np.exp(-np.abs(r))  # of u and u' / kappa
        K = np.block([[K, beside], [beside.T, (1 - np.abs(q)) * np.exp(-np.abs(q))]])
    precision = np.linalg.inv(K)
    at = [0, len(x) - 1, *range(len(x), len(K))]
    precision[at, at] -= 0.5
    expected = np.linalg.inv(precision)[: len(x), : len(x)]
    roads = RoadNetwork.from_lines([LINE], metric="euclidean")
    found = fields.law(roads, on_line(FRACTIONS), alpha, lengthscale, "open")
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    neumann = fields.law(roads, on_line(FRACTIONS), alpha, lengthscale)
    assert np.allclose(found, neumann, rtol=1e-6) == (alpha == 1)


@ALPHAS
def test_circle_matches_the_periodic_sum(alpha):
    turn = np.linspace(0, 2 * np.pi, 200)[:-1]
    circle = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    roads = RoadNetwork.from_lines([np.concatenate([circle, circle[:1]])], metric="euclidean")
    x = roads.total_length * FRACTIONS
    turns = [fields.correlation(alpha, x[:, None] - x[None] + roads.total_length * k, 1.5) for k in range(-20, 21)]
    np.testing.assert_allclose(fields.law(roads, on_line(FRACTIONS), alpha, 1.5), np.sum(turns, axis=0), atol=1e-10)


@ALPHAS
@pytest.mark.parametrize("legs", [3, 4, 7])
def test_crossing_of_d_long_roads_has_variance_2_over_d(alpha, legs):
    """Even and odd parts: the sum over d half-lines is one half-line with u' = 0, of variance 2, divided by d."""
    roads = fields.network([(0, k, 200.0) for k in range(1, legs + 1)])
    found = fields.law(roads, [(0, 0.0), (0, 0.01), (1, 0.01)], alpha, 1.5)
    k = fields.correlation(alpha, np.array([0, 2.0, 4.0]), 1.5)
    assert found[0, 0] == pytest.approx(2 / legs, abs=1e-12)
    assert found[0, 1] == pytest.approx(2 / legs * k[1], abs=1e-12)
    assert found[1, 1] == pytest.approx(1 + (2 / legs - 1) * k[2], abs=1e-12)
    assert found[1, 2] == pytest.approx(2 / legs * k[2], abs=1e-12)


NETWORKS = {
    "Y": [(0, 1, 1.0), (2, 1, 1.7), (1, 3, 0.6)],
    "loop with a tail": [(0, 0, 2.3), (0, 1, 1.1)],
    "a loop alone": [(0, 0, 2.0)],
    "two loops": [(0, 0, 2.0), (1, 0, 0.7), (1, 1, 0.9)],
    "parallel roads": [(0, 1, 1.0), (1, 0, 1.4), (0, 1, 0.5), (1, 2, 1.0)],
    "parts": [(0, 1, 1.0), (2, 3, 2.0), (3, 4, 0.8)],
    "a square with a diagonal": [(0, 1, 1.0), (1, 2, 1.0), (2, 3, 1.0), (3, 0, 1.0), (0, 2, 1.5)],
}
"""Roads as (vertex, vertex, length)."""


def misfit(edges, alpha, lengthscale=1.3):
    """Return how far the law of ends, a third and a half of each road is from that of finite elements."""
    roads = fields.network(edges)
    positions = [(road, fraction) for road in range(len(edges)) for fraction in (0.0, 1 / 3, 0.5, 1.0)]
    twin = fields.by_elements(roads, positions, alpha, lengthscale)
    return np.abs(fields.law(roads, positions, alpha, lengthscale) - twin).max()


@ALPHAS
@pytest.mark.parametrize("name", NETWORKS)
def test_covariance_matches_finite_elements(name, alpha):
    assert misfit(NETWORKS[name], alpha) < 1e-6


def test_planted_sign_of_vertex_condition_is_found(monkeypatch):
    monkeypatch.setitem(layout.SIGNS, 2, (1, 1, 1))
    assert misfit(NETWORKS["Y"], 2) > 1e-2


def test_planted_derivative_directions_are_found(monkeypatch):
    signs = np.array([[1, 1, 1], [1, -1, -1]])[:, :, None]
    monkeypatch.setattr(roads_field, "blocks", lambda alpha, x: line.blocks(alpha, x) * signs)
    with pytest.raises(np.linalg.LinAlgError):
        misfit(NETWORKS["Y"], 2)


@ALPHAS
def test_planted_factor_at_free_ends_is_found(alpha):
    roads = RoadNetwork.from_lines([LINE], metric="euclidean")
    field = RoadField(roads, alpha, "stationary")
    assert fields.covariance(field, 3.0)[0, 0] == pytest.approx(1, abs=1e-12)
    vars(field)["layout"] = field.layout._replace(fixed=2 * field.layout.fixed)
    assert abs(fields.covariance(field, 3.0)[0, 0] - 1) > 1e-2


@ALPHAS
@pytest.mark.parametrize("boundary", ["neumann", "stationary", "open"])
@pytest.mark.parametrize("name", ["Y", "two loops", "parallel roads"])
def test_pull_back_is_the_adjoint_of_the_derivative(name, alpha, boundary):
    rng = np.random.default_rng(0)
    field = RoadField(fields.network(NETWORKS[name]), alpha, boundary)
    weights = rng.normal(size=len(field.pattern.indices))
    for lengthscale in (1e-3, 0.2, 1.0, 30.0):
        h = 1e-4 * lengthscale
        ahead, back, far, farther = (field.entries([lengthscale + k * h]) for k in (1, -1, 2, -2))
        slope = weights @ (8 * (ahead - back) - (far - farther)) / (12 * h)
        assert field.pull_back([lengthscale], weights) == pytest.approx(slope, rel=1e-8, abs=1e-12)


@ALPHAS
def test_pattern_is_symmetric_sorted_and_constant(alpha):
    field = RoadField(fields.network(NETWORKS["parallel roads"]), alpha)
    indptr, indices = field.pattern
    assert (indptr.dtype, indices.dtype) == (np.int64, np.int32)
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    pairs = set(zip(rows.tolist(), indices.tolist(), strict=True))
    assert len(pairs) == len(indices) == len(field.entries([1.0])) == len(field.entries([1e-9]))
    assert {(b, a) for a, b in pairs} == pairs
    assert {(i, i) for i in range(len(indptr) - 1)} <= pairs
    assert (np.diff(indices)[np.diff(rows) == 0] > 0).all()
    assert field.coordinates.shape == (len(indptr) - 1, 2)


def test_many_roads_at_one_crossing_stay_sparse():
    lines = [[(0, 0), (np.cos(k), np.sin(k))] for k in range(2000)]
    field = RoadField(RoadNetwork.from_lines(lines, metric="euclidean"), alpha=2)
    assert len(field.coordinates) == 2001 + 1999
    assert len(field.pattern.indices) < 8 * len(field.coordinates)


@ALPHAS
@pytest.mark.parametrize("boundary", ["neumann", "stationary", "open"])
def test_conditional_matches_refined_field(alpha, boundary):
    edges = NETWORKS["two loops"] + [(1, 2, 1.0)]
    field = RoadField(fields.network(edges), alpha, boundary, cuts=[(0, 0.2), (3, 0.6)])
    positions = [(0, 0.1), (0, 0.2), (0, 0.55), (1, 0.0), (1, 1.0), (2, 0.5), (2, 0.4), (3, 0.6), (3, 0.59), (3, 1.0)]
    A, variance = field.conditional([0.8], positions)
    given = fields.covariance(field, 0.8)
    finer, index = field.refine(positions)
    full = fields.covariance(finer, 0.8)
    np.testing.assert_allclose(((A @ given) @ A.T).diagonal() + variance, full[index, index], atol=1e-8)
    own = (A @ given)[:, : field.roads.num_vertices]
    np.testing.assert_allclose(own, full[index][:, : field.roads.num_vertices], atol=1e-8)
    at_cuts = (A @ given)[:, field.segments.vertex]
    np.testing.assert_allclose(at_cuts, full[np.ix_(index, finer.segments.vertex[:2])], atol=1e-8)
    at_vertices = [1, 3, 4, 5, 7, 9]  # one is where a loop was cut
    assert (variance[at_vertices] == 0).all()
    assert (A[at_vertices].sum(axis=1) == 1).all()
    assert A.shape == (len(positions), len(field.coordinates))
    assert (variance[[0, 2, 6, 8]] > 0).all()


@ALPHAS
def test_conditional_within_a_very_long_piece(alpha):
    """Positions a few lengthscales from the end of a road of 1e5, of which kappa times the length is clipped."""
    field = RoadField(fields.network([(0, 1, 1e5)]), alpha, "stationary")
    positions = on_line([1e-5, 3e-5, 0.5, 1 - 2e-5])
    A, variance = field.conditional([1.0], positions)
    finer, index = field.refine(positions)
    full = fields.covariance(finer, 1.0)
    own = A @ fields.covariance(field, 1.0)[:, :2]
    np.testing.assert_allclose(own, full[index][:, :2], atol=1e-10)
    np.testing.assert_allclose(own[:, 0], fields.correlation(alpha, 1e5 * positions[:, 1], 1.0), atol=1e-10)
    np.testing.assert_allclose(own[:, 1], fields.correlation(alpha, 1e5 * (1 - positions[:, 1]), 1.0), atol=1e-10)
    np.testing.assert_allclose(((A @ fields.covariance(field, 1.0)) @ A.T).diagonal() + variance, 1.0, atol=1e-10)


@ALPHAS
def test_lengthscale_has_the_unit_of_lengths(alpha):
    one, other = (fields.network([(a, b, scale * c) for a, b, c in NETWORKS["Y"]]) for scale in (1.0, 1000.0))
    np.testing.assert_allclose(
        RoadField(one, alpha).entries([0.7]), RoadField(other, alpha).entries([700.0]), rtol=1e-13
    )


@pytest.mark.parametrize(("alpha", "cost"), [(1, 1e-7), (2, 1e-3)])
def test_extreme_lengths_have_finite_entries(alpha, cost):
    """Segments of 1e-9 lengthscales next to some of 1,000; short ones count as a little longer."""
    lengths = np.array([1000.0, 1e-9, 0.5, 1e-9, 1e-12, 0.7, 1e-6, 1000.0])
    roads = fields.network([(k, k + 1, length) for k, length in enumerate(lengths)])
    field = RoadField(roads, alpha, "stationary")
    with np.errstate(all="raise", under="ignore"):
        entries = field.entries([1.0])
        slope = field.pull_back([1.0], np.ones(len(entries)))
    assert np.isfinite(entries).all()
    assert np.isfinite(slope).all()
    x = np.concatenate(([0.0], np.cumsum(lengths)))
    found = fields.covariance(field, 1.0)[: len(x), : len(x)]
    np.testing.assert_allclose(found, fields.correlation(alpha, x[:, None] - x[None], 1.0), atol=cost)


@ALPHAS
@pytest.mark.parametrize("lengthscale", [1e-300, 1e-9, 1e9, 1e300])
def test_entries_are_finite_for_extreme_lengthscales(alpha, lengthscale):
    field = RoadField(fields.network(NETWORKS["Y"]), alpha)
    with np.errstate(all="raise", under="ignore"):
        entries = field.entries([lengthscale])
        assert np.isfinite(field.pull_back([lengthscale], np.ones(len(entries)))).all()
        A, variance = field.conditional([lengthscale], [(0, 0.3), (1, 1e-11), (2, 1 - 1e-11)])
    assert np.isfinite(entries).all()
    assert np.isfinite(A.data).all()
    assert (variance > 0).all()


WRONG = {
    "no network": (lambda roads: RoadField([(0, 0), (1, 1)]), "graphs.RoadNetwork"),
    "alpha": (lambda roads: RoadField(roads, 3), "alpha must be 1 or 2, got 3"),
    "truth": (lambda roads: RoadField(roads, True), "alpha must be 1 or 2, got True"),
    "boundary": (lambda roads: RoadField(roads, 1, "dirichlet"), "'neumann', 'stationary', 'open', got 'dirichlet'"),
    "no lengthscale": (lambda roads: RoadField(roads).entries([]), "one positive number"),
    "negative": (lambda roads: RoadField(roads).entries([-1.0]), "one positive number"),
    "nan": (lambda roads: RoadField(roads).conditional([np.nan], [(0, 0.5)]), "one positive number"),
    "weights": (lambda roads: RoadField(roads).pull_back([1.0], [1.0]), r"weights must have shape \(10,\)"),
    "no road": (lambda roads: RoadField(roads).refine([(5, 0.5)]), r"Position 0 .*0\.\.2, got 5"),
    "outside": (lambda roads: RoadField(roads).conditional([1.0], [(0, 1.5)]), r"Position 0 .*1\.5"),
    "within": (lambda roads: RoadField(roads).refine([(0, 0.5)], within=-1), "within must be a number"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_arguments_are_refused(name):
    call, message = WRONG[name]
    with pytest.raises(graphs.InvalidArgumentError, match=message):
        call(fields.network(NETWORKS["Y"]))


def test_repr_is_one_line():
    field = RoadField(fields.network(NETWORKS["Y"]), 2, cuts=[(0, 0.5)])
    assert repr(field) == "RoadField(alpha=2, neumann, 8 latent values, RoadNetwork(3 roads, 4 vertices, length 3.3))"


def test_empty_positions():
    field = RoadField(fields.network(NETWORKS["Y"]))
    finer, index = field.refine([])
    assert index.shape == (0,)
    np.testing.assert_array_equal(finer.entries([1.0]), field.entries([1.0]))
    A, variance = field.conditional([1.0], np.zeros((0, 2)))
    assert (A.shape, variance.shape) == ((0, 4), (0,))
