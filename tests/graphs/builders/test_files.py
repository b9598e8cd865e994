"""Files that are not what their names say: a named error, at once, and nothing done."""

import gzip
import json
import struct

import networkx as nx
import pytest
from refusals import refused

import graphs
from graphs import Graph


def ply(body="0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n", vertices=3, faces=1, form="ascii"):
    head = f"ply\nformat {form} 1.0\nelement vertex {vertices}\nproperty float x\nproperty float y\nproperty float z\n"
    return f"{head}element face {faces}\nproperty list uchar int vertex_indices\nend_header\n{body}".encode()


def stl(claimed, *numbers):
    return bytes(80) + struct.pack("<I", claimed) + (struct.pack("<12f", *numbers) + bytes(2) if numbers else b"")


def glb(content):
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return b"glTF" + struct.pack("<II", 2, 20 + len(text)) + struct.pack("<I", len(text)) + b"JSON" + text


PNG = b"\x89PNG\r\n\x1a\n" + bytes(200)
FAR = {"asset": {"version": "2.0"}, "buffers": [{"uri": "http://127.0.0.1:9/x", "byteLength": 9}], "meshes": []}
A = 'node [ id 0 label "a" ] '
UNREAD = "could not be read as a mesh"

FILES = {
    "empty.stl": (b"", "is empty"),
    "png.stl": (PNG, "PNG picture"),
    "nested.ply": (gzip.compress(gzip.compress(ply())), "gzip data"),
    "page.off": (b"<!DOCTYPE html><html>", "web page"),
    "lfs.ply": (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    "nan.stl": (stl(1, *[float("nan")] * 12), "finite"),
    "nan.obj": (b"v 0 0 0\nv 1 0 0\nv 0 nan 0\nv 1 1 0\nf 1 2 4\nf 1 2 3\n", "1 of 2 faces"),
    "claims.ply": (ply(faces=10**12), "1000000000000 faces"),
    "binary.ply": (ply(vertices=4 * 10**9, form="binary_little_endian"), UNREAD),
    "outside.ply": (ply("0 0 0\n1 0 0\n0 1 0\n3 0 1 99\n"), "out of bounds"),
    "bytes.ply": (ply().replace(b"float x", b"fl\xffat x"), "0xff"),
    "outside.off": (b"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 7\n", UNREAD),
    "negative.obj": (b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf -1 -2 -9\n", "out of bounds"),
    "far.glb": (glb(FAR), UNREAD),
    "deep.glb": (glb(b"[" * 100_000), "recursion"),
    "what.xyz": (b"1 2 3\n", "got what.xyz"),
    "deep.gml": (b"graph [ " * 20_000, "GML graph"),
    "twice.gml": (f"graph [ {A}{A.replace('id 0', 'id 1')}]".encode(), "duplicated"),
    "edge.gml": (f"graph [ {A}edge [ source 0 target 5 ] ]".encode(), "undefined target 5"),
    "latin.gml": (b'graph [ node [ id 0 label "\xff" ] ]', "not ASCII"),
    "escape.gml": (b"graph [ \x1b[31m ]", "cannot tokenize ?[31m"),
    "id.gml": (f"graph [ {A.replace('id 0', 'id 1 id 2')}]".encode(), "GML graph"),
    "gzip.rda": (gzip.compress(b"not R"), "road network"),
    "cut.rda": (gzip.compress(bytes(range(256)) * 100)[:-20], "truncated or damaged"),
    "claims.rda": (b"RDX2\nX\n" + struct.pack(">iiiii", 2, 0, 0, 0x13, 2**31 - 1), "road network"),
    "text.rda": (b"RDA2\nA\n2\n197888\n131840\n1026\n1\n", "road network"),
    "latin.geojson": (b'{"type": "\xff"}', "UTF-8"),
    "list.geojson": (b"[]", "FeatureCollection"),
    "nothing.geojson": (b'{"type": "FeatureCollection"}', "FeatureCollection"),
    "deep.geojson": (b"[" * 100_000, "that can be read"),
    "cut.geojson": (b'{"type": "Feat', "must be JSON"),
}
INVALID = {
    "claims.stl": (stl(4_000_000_000, *range(12)), "no faces"),
    "points.ply": (ply(vertices=10**12), "no faces"),
    "directed.gml": (f"graph [ directed 1 {A}]".encode(), "undirected"),
    "weight.gml": (f'graph [ {A}edge [ source 0 target 0 weight "x" ] ]'.encode(), "'weight'"),
}
READERS = {"gml": Graph.from_gml, "rda": graphs.read_roads, "geojson": graphs.read_roads}


@pytest.mark.parametrize("name", [*FILES, *INVALID])
def test_bad_files_raise_named_errors(name, tmp_path):
    content, word = {**FILES, **INVALID}[name]
    (tmp_path / name).write_bytes(content)
    reader = READERS.get(name.split(".")[1], graphs.load_mesh)
    error = graphs.InvalidGraphError if name in INVALID else graphs.FileFormatError
    message = refused(lambda: reader(tmp_path / name), error, word)
    assert len(message) < 400 + len(str(tmp_path))
    assert message.isprintable()
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", ["a.stl", "a.gml", "a.rda", "a.geojson"])
def test_folders_and_missing_files_are_refused(name, tmp_path):
    def read():
        READERS.get(name.split(".")[1], graphs.load_mesh)(tmp_path / name)

    refused(read, graphs.FileFormatError, "There is no file")
    (tmp_path / name).mkdir()
    refused(read, graphs.FileFormatError, "folder")
    refused(lambda: Graph.from_gml(None), graphs.FileFormatError, "path")


@pytest.mark.slow
def test_files_that_unpack_to_more_than_a_gigabyte_are_refused(tmp_path):
    with gzip.open(tmp_path / "bomb.rda", "wb", compresslevel=1) as stream:
        for _ in range(2**6 + 1):
            stream.write(bytes(2**24))
    with pytest.raises(graphs.FileFormatError, match="1,073,741,824 bytes"):
        graphs.read_roads(tmp_path / "bomb.rda")


def test_self_loops_of_gml_are_dropped_with_a_warning(tmp_path):
    nx.write_gml(nx.Graph([("a", "b"), ("a", "a")]), tmp_path / "g.gml")
    with pytest.warns(graphs.SelfLoopsDroppedWarning, match="1 self-loop dropped"):
        g = Graph.from_gml(tmp_path / "g.gml")
    assert (g.labels, g.num_edges) == (("a", "b"), 1)
    with pytest.raises(graphs.InvalidGraphError, match="self-loop"):
        Graph.from_gml(tmp_path / "g.gml", self_loops="error")
