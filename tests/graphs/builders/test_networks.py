"""GML files."""

import networkx as nx
import pytest

import graphs
from graphs import Graph


def test_gml_drops_self_loops_with_a_count(tmp_path):
    path = tmp_path / "g.gml"
    nx.write_gml(nx.Graph([("a", "b"), ("a", "a")]), path)
    with pytest.warns(graphs.SelfLoopsDroppedWarning, match="1 self-loops dropped"):
        g = Graph.from_gml(path)
    assert g.labels == ("a", "b")
    with pytest.raises(graphs.InvalidGraphError, match="self-loops"):
        Graph.from_gml(path, self_loops="error")
    (tmp_path / "bad.gml").write_text("not gml [")
    for name in ("bad.gml", "missing.gml"):
        with pytest.raises(graphs.FileFormatError, match=name):
            Graph.from_gml(tmp_path / name)
