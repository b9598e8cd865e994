"""Numbers in messages agree with their nouns."""

import pytest

import graphs
from graphs.checks import counted as counted_in_graphs
from rfgp.counts import counted


@pytest.mark.parametrize("word", [counted, counted_in_graphs])
def test_one_thing_is_no_plural(word):
    assert [word(number, "edge") for number in (0, 1, 2, 1000)] == ["0 edges", "1 edge", "2 edges", "1,000 edges"]
    assert [word(number, "vertex", "vertices") for number in (1, 2)] == ["1 vertex", "2 vertices"]


def test_one_self_loop_is_named_as_one():
    with pytest.raises(graphs.InvalidGraphError, match="1 self-loop, the first"):
        graphs.Graph.from_edges([(0, 1), (1, 1)])


def test_one_duplicate_edge_is_named_as_one():
    with pytest.raises(graphs.InvalidGraphError, match=r"1 duplicate edge;.*2 times"):
        graphs.Graph.from_edges([(0, 1), (1, 2), (0, 1)])


def test_a_network_of_one_road_says_so():
    network = graphs.RoadNetwork.from_lines([[(0, 0), (1, 1)]], metric="euclidean")
    assert repr(network).startswith("RoadNetwork(1 road, ")
