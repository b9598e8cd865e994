"""GML files."""

import networkx as nx
import pytest

import graphs
from graphs import Graph


def test_gml_drops_self_loops_with_a_warning(tmp_path):
    path = tmp_path / "g.gml"
    nx.write_gml(nx.Graph([("a", "b"), ("a", "a")]), path)
    with pytest.warns(graphs.SelfLoopsDroppedWarning, match="1 self-loop dropped"):
        g = Graph.from_gml(path)
    assert g.labels == ("a", "b")
    with pytest.raises(graphs.InvalidGraphError, match="self-loop"):
        Graph.from_gml(path, self_loops="error")
    (tmp_path / "bad.gml").write_text("not gml [")
    for name in ("bad.gml", "missing.gml"):
        with pytest.raises(graphs.FileFormatError, match=name):
            Graph.from_gml(tmp_path / name)


NODE = 'graph [ node [ id {} label "a" ] node [ id 3 label "b" ] edge [ source 3 target 3 weight {} ] ]'


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (NODE.format("1 id 2", 1), graphs.FileFormatError, "GML graph"),
        (NODE.format(1, 10**400), graphs.InvalidGraphError, "a number in the range of a float"),
        (NODE.format(1, '"x"'), graphs.InvalidGraphError, "'weight' of edge .*'x'"),
    ],
)
def test_invalid_gml_is_refused(text, error, message, tmp_path):
    (tmp_path / "g.gml").write_text(text)
    with pytest.raises(error, match=message):
        Graph.from_gml(tmp_path / "g.gml")


@pytest.mark.parametrize("path", [None, 5])
def test_non_path_is_refused(path):
    with pytest.raises(graphs.FileFormatError, match=f"path of a GML graph, got {path}"):
        Graph.from_gml(path)
