from pathlib import Path

import numpy as np
import pytest

import graphs
import rfgp
from rfgp import datasets
from rfgp.files import write_atomically
from rfgp.tables import read_csv

DATA = Path(__file__).parents[3] / "data"


def test_committed_files_match_the_generators(tmp_path):
    written = datasets.write_all(tmp_path)
    assert sorted(p.name for p in written) == sorted(p.name for p in DATA.iterdir())
    for path in written:
        assert path.read_bytes() == (DATA / path.name).read_bytes(), f"{path.name}: run `make data`"


def test_seeds_matter():
    assert abs(datasets.make_table(1).y - datasets.make_table(0).y).max() > 0
    assert abs(datasets.make_roads(1).values - datasets.make_roads(0).values).max() > 0
    assert abs(datasets.make_mesh(1).vertices - datasets.make_mesh(0).vertices).max() > 0


def test_files_read_back():
    table = read_csv(DATA / "table.csv", "yield")
    np.testing.assert_array_equal(table.X, datasets.make_table().X)
    mesh = graphs.Graph.from_mesh(graphs.load_mesh(DATA / "mesh.ply"))
    assert mesh.num_nodes == 1280
    roads, made = graphs.read_roads(DATA / "roads.geojson"), datasets.make_roads()
    np.testing.assert_array_equal(roads.values, made.values)
    g = graphs.Graph.from_roads(*roads[:3])
    assert g.largest_component().num_nodes == g.num_nodes


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


GML = """graph [
  node [ id 0 label "35" gt "Theory" ]
  node [ id 1 label "40" gt "Rules" ]
  node [ id 2 label "50" ]
  edge [ source 0 target 1 ]
]
"""


def test_classes_of_nodes(tmp_path, monkeypatch):
    path = tmp_path / "cora.gml"
    path.write_text(GML)
    monkeypatch.setattr(datasets.loading, "fetch", lambda name, folder, **options: path)
    assert datasets.load_classes("cora") == {"35": "Theory", "40": "Rules"}
    path.write_text(GML.replace("gt", "kind"))
    with pytest.raises(rfgp.DataError, match="cora have no classes"):
        datasets.load_classes("cora")
    with pytest.raises(rfgp.InvalidArgumentError, match="must be a graph, got airfoil"):
        datasets.load_classes("airfoil")
