"""Files that are not what their names say: a named error, at once, and nothing done."""

import gzip
import io
import json
import lzma
import struct
import zipfile

import pytest

import graphs
from graphs.builders import files


def zipped(name, content):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, content)
    return out.getvalue()


def ply(body="0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n", vertices=3, faces=1, form="ascii"):
    head = f"ply\nformat {form} 1.0\nelement vertex {vertices}\nproperty float x\nproperty float y\nproperty float z\n"
    return f"{head}element face {faces}\nproperty list uchar int vertex_indices\nend_header\n{body}".encode()


def stl(claimed, *numbers):
    return bytes(80) + struct.pack("<I", claimed) + (struct.pack("<12f", *numbers) + bytes(2) if numbers else b"")


def glb(content):
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return b"glTF" + struct.pack("<II", 2, 20 + len(text)) + struct.pack("<I", len(text)) + b"JSON" + text


PNG = b"\x89PNG\r\n\x1a\n" + bytes(200)
OUTSIDE = {"asset": {"version": "2.0"}, "buffers": [{"uri": "../../secret", "byteLength": 9}], "meshes": []}
FAR = {"asset": {"version": "2.0"}, "buffers": [{"uri": "http://127.0.0.1:9/x", "byteLength": 9}], "meshes": []}
HUGE = {
    "asset": {"version": "2.0"},
    "buffers": [{"byteLength": 10**12}],
    "bufferViews": [{"buffer": 0, "byteLength": 10**12}],
    "accessors": [{"componentType": 5126, "count": 10**11, "type": "VEC3"}],
    "meshes": [{"primitives": [{"attributes": {"POSITION": 0}}]}],
    "nodes": [{"mesh": 0}],
    "scenes": [{"nodes": [0]}],
    "scene": 0,
}
NODE = 'node [ id 0 label "a" ] '

MESHES = {
    "empty.stl": (b"", "is empty"),
    "png.stl": (PNG, "looks like a PNG picture"),
    "zip.stl": (zipped("a.stl", b"solid"), "looks like a zip archive"),
    "nested.ply": (gzip.compress(gzip.compress(ply())), "looks like gzip data"),
    "xz.obj": (lzma.compress(b"v 0 0 0"), "looks like xz data"),
    "page.off": (b"<!DOCTYPE html><html>", "looks like a web page"),
    "lfs.ply": (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    "claims.stl": (stl(4_000_000_000, *range(12)), "no faces|could not be read as a mesh"),
    "none.stl": (stl(0), "no faces"),
    "text.stl": (b"hello world\n" * 50, "no faces"),
    "nan.stl": (
        stl(1, *[float("nan")] * 12),
        r"must be finite numbers, got a vertex at \[nan, nan, nan\].*1 of 1 faces",
    ),
    "nan.ply": (ply("0 0 0\n1 nan 0\n0 1 0\n3 0 1 2\n"), r"must be finite numbers, got a vertex at \[1.0, nan, 0.0\]"),
    "nan.off": (b"OFF\n3 1 0\n0 0 0\n1 0 0\n0 inf 0\n3 0 1 2\n", "must be finite numbers"),
    "nan.obj": (b"v 0 0 0\nv 1 0 0\nv 0 nan 0\nv 1 1 0\nf 1 2 4\nf 1 2 3\n", "1 of 2 faces .* face 1"),
    "claims.ply": (ply(faces=10**12), "1000000000000 faces"),
    "points.ply": (ply(vertices=10**12), "no faces"),
    "binary.ply": (ply(vertices=4 * 10**9, form="binary_little_endian"), "could not be read as a mesh"),
    "outside.ply": (ply("0 0 0\n1 0 0\n0 1 0\n3 0 1 99\n"), "index 99 is out of bounds"),
    "magic.ply": (b"plx\nformat ascii 1.0\n", "Not a ply file"),
    "bytes.ply": (ply().replace(b"float x", b"fl\xffat x"), "decode byte 0xff"),
    "headless.ply": (b"ply\nformat ascii 1.0\nelement vertex 3\n" * 10, "could not be read as a mesh"),
    "claims.off": (b"OFF\n1000000000000 1 0\n0 0 0\n", "could not be read as a mesh"),
    "outside.off": (b"OFF\n3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 7\n", "could not be read as a mesh"),
    "text.off": (b"OFF\nx y z\n", "could not be read as a mesh"),
    "outside.obj": (b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 9\n", "could not be read as a mesh"),
    "negative.obj": (b"v 0 0 0\nv 1 0 0\nv 0 1 0\nf -1 -2 -9\n", "could not be read as a mesh"),
    "text.obj": (b"v a b c\nf 1 2 3\n", "could not be read as a mesh"),
    "nul.obj": (bytes(1000), "no faces"),
    "magic.glb": (b"glTX" + bytes(100), "could not be read as a mesh"),
    "outside.glb": (glb(OUTSIDE), "could not be read as a mesh"),
    "far.glb": (glb(FAR), "could not be read as a mesh"),
    "claims.glb": (glb(HUGE), "could not be read as a mesh"),
    "deep.glb": (glb(b"[" * 100_000), "recursion"),
    "what.xyz": (b"1 2 3\n", r"\.stl, .*got what\.xyz"),
}
GRAPHS = {
    "empty.gml": (b"", "is empty"),
    "text.gml": (b"hello", "GML graph"),
    "nul.gml": (bytes(1000), "GML graph"),
    "deep.gml": (b"graph [ " * 20_000, "GML graph"),
    "twice.gml": (f"graph [ {NODE}{NODE.replace('id 0', 'id 1')}]".encode(), "'a' is duplicated"),
    "edge.gml": (f"graph [ {NODE}edge [ source 0 target 5 ] ]".encode(), "undefined target 5"),
    "directed.gml": (f"graph [ directed 1 {NODE}]".encode(), "undirected"),
    "latin.gml": (b'graph [ node [ id 0 label "\xff" ] ]', "not ASCII"),
    "png.gml": (PNG, "looks like a PNG picture"),
    "none.gml": (b"graph [ ]", "no nodes"),
    "escape.gml": (b"graph [ \x1b[31m ]", r"GML graph.*: cannot tokenize \?\[31m"),
}
ROADS = {
    "empty.rda": (b"", "is empty"),
    "png.rda": (PNG, "looks like a PNG picture"),
    "zip.rda": (zipped("a.rda", b"RDX2"), "looks like a zip archive"),
    "gzip.rda": (gzip.compress(b"not R"), "road network"),
    "nested.rda": (gzip.compress(gzip.compress(b"RDX2\nX\n")), "road network"),
    "cut.rda": (gzip.compress(bytes(range(256)) * 100)[:-20], "truncated or damaged"),
    "claims.rda": (b"RDX2\nX\n" + struct.pack(">iiiii", 2, 0, 0, 0x13, 2**31 - 1), "road network"),
    "text.rda": (b"RDA2\nA\n2\n197888\n131840\n1026\n1\n", "road network"),
    "gzip.geojson": (gzip.compress(b"{}"), "looks like gzip data"),
    "latin.geojson": (b'{"type": "\xff"}', "must be text in UTF-8"),
}
READERS = {
    **dict.fromkeys(MESHES, lambda path: graphs.Graph.from_mesh(graphs.load_mesh(path))),
    **dict.fromkeys(GRAPHS, graphs.Graph.from_gml),
    **dict.fromkeys(ROADS, graphs.read_roads),
}
CASES = {**MESHES, **GRAPHS, **ROADS}


@pytest.mark.parametrize("name", CASES)
def test_bad_files_raise_named_errors(name, tmp_path):
    content, message = CASES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(graphs.GraphError, match=message) as caught:
        READERS[name](tmp_path / name)
    words = str(caught.value)
    assert len(words) < 200 + len(str(tmp_path)) + 200
    assert words.isprintable()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_folders_and_missing_files_are_refused(tmp_path):
    for name in ("a.stl", "a.gml", "a.rda"):
        reader = {"stl": graphs.load_mesh, "gml": graphs.Graph.from_gml, "rda": graphs.read_roads}[name[2:]]
        with pytest.raises(graphs.FileFormatError, match="There is no file"):
            reader(tmp_path / name)
        (tmp_path / name).mkdir()
        with pytest.raises(graphs.FileFormatError, match="folder"):
            reader(tmp_path / name)


def test_large_unpacked_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_UNPACKED", 2_000_000)
    for pack in (gzip.compress, lzma.compress):
        (tmp_path / "bomb.rda").write_bytes(pack(bytes(3_000_000)))
        with pytest.raises(graphs.FileFormatError, match="2,000,000 bytes"):
            graphs.read_roads(tmp_path / "bomb.rda")
