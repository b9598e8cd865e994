"""Cutting roads does not change the distribution."""

from dataclasses import replace

import fields
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs import RoadField
from graphs.precisions.roads import segments

EIGHTHS = st.integers(0, 8).map(lambda k: k / 8)
LENGTHS = st.integers(5, 30).map(lambda k: k / 10)


@st.composite
def cases(draw):
    """Return roads (vertex, vertex, length), positions on them, and more positions."""
    edges = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), LENGTHS), min_size=1, max_size=6))
    names = sorted({vertex for edge in edges for vertex in edge[:2]})
    edges = [(names.index(a), names.index(b), length) for a, b, length in edges]
    place = st.tuples(st.integers(0, len(edges) - 1), EIGHTHS)
    return edges, draw(st.lists(place, min_size=1, max_size=5)), draw(st.lists(place, max_size=5))


@pytest.mark.slow
@given(cases(), st.sampled_from([1, 2]), st.sampled_from(["neumann", "stationary"]), st.floats(0.5, 2.0), st.randoms())
@settings(max_examples=150, deadline=None)
def test_distribution_is_invariant_to_cuts_and_directions(case, alpha, boundary, lengthscale, random):
    edges, positions, more = case
    roads = fields.network(edges)
    expected = fields.law(roads, positions, alpha, lengthscale, boundary)
    cut = RoadField(roads, alpha, boundary).refine(more)[0]
    both, index = cut.refine(positions)
    np.testing.assert_allclose(fields.covariance(both, lengthscale)[np.ix_(index, index)], expected, atol=1e-8)
    order = random.sample(range(len(edges)), len(edges))
    turned = [random.random() < 0.5 for _ in edges]
    other = fields.network([edges[i][:2][:: -1 if turned[i] else 1] + edges[i][2:] for i in order])
    moved = [(order.index(road), 1 - at if turned[road] else at) for road, at in positions]
    np.testing.assert_allclose(fields.law(other, moved, alpha, lengthscale, boundary), expected, atol=1e-8)


@given(cases(), st.sampled_from([1, 2]), st.floats(0.5, 2.0))
@settings(max_examples=50, deadline=None)
def test_conditional_matches_cuts(case, alpha, lengthscale):
    edges, positions, more = case
    field = RoadField(fields.network(edges), alpha).refine(more)[0]
    A, variance = field.conditional([lengthscale], positions)
    given_ends = A @ fields.covariance(field, lengthscale) @ A.T.toarray()
    finer, index = field.refine(positions)
    expected = fields.covariance(finer, lengthscale)[index, index]
    np.testing.assert_allclose(given_ends.diagonal() + variance, expected, atol=1e-8)


def test_equal_positions_share_a_value():
    roads = fields.network([(0, 1, 1.0), (1, 2, 2.0), (2, 2, 1.0)])
    field, index = RoadField(roads).refine([(1, 0.3), (0, 1.0), (1, 0.1 + 0.2), (1, 0.0), (2, 0.0), (2, 1.0), (2, 0.5)])
    assert index.tolist() == [3, 1, 3, 1, 2, 2, 4]
    np.testing.assert_allclose(field.coordinates[3], roads.point([(1, 0.3)])[0])
    again, other = field.refine([(1, 0.3), (1, 0.2)])
    assert other.tolist() == [4, 3]
    assert len(again.coordinates) == len(field.coordinates) + 1


def test_positions_near_a_cut_by_rounding_are_at_it():
    roads = fields.network([(0, 1, 1.0), (1, 2, 2.0)])
    field = RoadField(roads, 2, cuts=[(1, 0.4)])
    A, variance = field.conditional([1.0], [(1, 0.4 - 1e-14), (1, 0.4), (1, 0.4 + 1e-14), (0, 1e-14), (0, 1 - 1e-14)])
    assert variance.tolist() == [0.0] * 5
    np.testing.assert_array_equal(A.indices, [3, 3, 3, 0, 1])


def test_segments_of_each_road_add_up():
    roads = fields.network([(0, 1, 1.0), (1, 2, 2.0), (2, 2, 1.0), (0, 2, 3.0)])
    found = segments.split(roads, np.array([1, 3, 1, 3]), np.array([0.5, 0.9, 0.25, 0.1]))
    assert found.road.tolist() == [0, 1, 1, 1, 2, 2, 3, 3, 3]
    np.testing.assert_allclose(found.length, [1, 0.5, 0.5, 1, 0.5, 0.5, 0.3, 2.4, 0.3])
    assert (found.source != found.target).all()
    locations = segments.locate(
        roads, found, found.start_keys, np.array([1, 1, 2, 3, 3]), np.array([0.4, 0.5, 0.75, 0.0, 1.0])
    )
    assert locations.segment.tolist() == [2, 0, 5, 0, 0]
    assert locations.vertex.tolist() == [-1, found.vertex[0], -1, 0, 2]
    np.testing.assert_allclose(locations.fraction[[0, 2]], [0.6, 0.5])


def test_road_without_length_is_a_vertex():
    plain = fields.network([(0, 1, 1.0), (1, 2, 2.0)])
    roads = fields.network([(0, 1, 1.0), (1, 1, 1.0), (1, 2, 2.0)])
    roads = replace(roads, lengths=np.array([1.0, 0.0, 2.0]))
    field, index = RoadField(roads, 2).refine([(1, 0.3), (0, 1.0), (1, 1.0)])
    assert len(set(index.tolist())) == 1
    np.testing.assert_allclose(field.entries([1.0]), RoadField(plain, 2).entries([1.0]))


@pytest.mark.parametrize(("alpha", "cost"), [(1, 1e-7), (2, 1e-4)])
def test_close_positions_keep_covariances_accurate(alpha, cost):
    """Against the stationary covariance on a road of 20 lengthscales; some positions are 1e-4 apart."""
    roads = fields.network([(0, 1, 20.0)])
    at = np.random.default_rng(0).uniform(size=300)
    found = fields.law(roads, np.stack([np.zeros(300), at], axis=1), alpha, 1.0, "stationary")
    expected = fields.correlation(alpha, 20 * (at[:, None] - at[None]), 1.0)
    np.testing.assert_allclose(found, expected, atol=cost)


@pytest.mark.parametrize("within", [0.07, 0.5, 5.0])
def test_close_positions_share_values_within_tolerance(within):
    roads = fields.network([(0, 1, 1.0), (1, 2, 3.0)])
    rng = np.random.default_rng(0)
    positions = np.stack([rng.integers(0, 2, 200), rng.uniform(size=200)], axis=1)
    field, index = RoadField(roads).refine(positions, within=within)
    assert len(field.coordinates) <= 4 / within + 3
    assert (field.segments.length >= min(within, 1.0) * (1 - 1e-9)).all()
    assert (np.abs(field.cuts[:, 1] - positions[:, 1]) * roads.lengths[positions[:, 0].astype(int)] < within).all()
    assert len(index) == 200
