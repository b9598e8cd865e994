"""Parsers of tables, graphs, roads and meshes: files that are made wrong, and what a reader may say of them."""

import csv
import gzip
import io
import json
import re
import struct
import tempfile
from functools import lru_cache
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

import graphs
from rfgp import tables
from tests.fuzz.mutations import ODD_TEXTS, as_json, json_mutated, mutated
from tests.fuzz.rules import FoundError, is_error, outcome
from tests.fuzz.targets import Target, on_file

# --- tables ------------------------------------------------------------------------------------------

_CELLS = st.one_of(
    st.integers(-1000, 1000).map(str),
    st.floats(-1e6, 1e6).map(lambda v: f"{v:.4g}"),
    st.sampled_from(
        ["red", "blue", "2020-01-02", "2020-13-40", "1,5", "1.000,5", "NA", "?", "True", '"a""b"', '"x', "'"]
    ),
    st.sampled_from(ODD_TEXTS),
)
_PLAIN = re.compile(r"-?[0-9]{1,6}(\.[0-9]{1,6})?")


@st.composite
def texts(draw):
    """Text tables by a grammar: header or none, separators, ends of lines, rows of other lengths, encodings."""
    separator, end = draw(st.sampled_from([",", ";", "\t", " ", "|"])), draw(st.sampled_from(["\n", "\r\n", "\r"]))
    width, plain = draw(st.integers(1, 4)), draw(st.booleans())
    cell = st.integers(-500, 500).map(lambda v: f"{v / 4:g}") if plain else _CELLS
    rows = draw(st.lists(st.lists(cell, min_size=width, max_size=width), min_size=1, max_size=6))
    if not plain and draw(st.booleans()):
        rows[draw(st.integers(0, len(rows) - 1))].append("7")
    if draw(st.booleans()):
        rows.insert(0, [f"c{k}" for k in range(width)])
    text = end.join(separator.join(row) for row in rows) + (end if draw(st.booleans()) else "")
    coding = "utf-8" if plain else draw(st.sampled_from(["utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1"]))
    return text.encode(coding, errors="replace")


_TEXT_SEEDS = [
    b"a,b,c\n1,2,3\n4,5,6\n7.5,-8e3,9\n",
    b"1 2 3\n4 5 6\n",
    b"x;color;y\n1;red;2\n2;blue;3\n3;red;4\n",
    b"day\tv\n2020-01-01\t1\n2021-02-03T04:05:06\t2\n",
    b'"a ""quoted"" name",b\n1,"2"\n"3",4\n',
    b"a,b\n1,\n,2\nNA,3\n",
]
_LENIENT = {"categories": "one-hot", "dates": "days", "missing": "mean"}


def _check_table(table):
    for values in (table.X, table.y):
        if values.dtype != np.float64 or not np.isfinite(values).all():
            raise FoundError("a table holds values that are not finite numbers")
    if table.X.shape != (len(table.y), len(table.columns)) or len(table.rows) != len(table.y):
        raise FoundError(f"a table of shape {table.X.shape} has {len(table.y)} targets and {len(table.columns)} names")


def _read_both_ways(read, path):
    """Return a file as a table; also read leniently it holds finite numbers, and is the same by its own schema."""
    found, lenient = outcome(lambda: read(path)), outcome(lambda: read(path, **_LENIENT))
    for table in (found, lenient):
        if not is_error(table):
            _check_table(table)
    if not is_error(lenient):
        _check_same(outcome(lambda: tables.read_inputs(path, lenient.schema)), lenient)
    return found


def _read_text(path):
    found = _read_both_ways(tables.read_csv, path)
    expected = _plain_table(path.read_bytes())
    if expected is not None:
        if is_error(found):
            raise FoundError(f"a plain table is refused: {type(found).__name__}: {found}")
        if not np.array_equal(np.column_stack([found.X, found.y]), expected):
            raise FoundError("a plain table is read as other numbers")
    levels = outcome(lambda: tables.read_csv(path, **{**_LENIENT, "categories": "levels"}))
    if not is_error(levels):
        _check_table(levels)
        _check_same(outcome(lambda: tables.read_inputs(path, levels.schema)), levels)
        if len(levels.frame()) != len(levels.y):
            raise FoundError("a dataframe of levels has other rows than its table")
    if not is_error(found) and found.classes is None and path.read_bytes()[:1].isalpha():
        _check_blocks(lambda: tables.CSV(path, target=found.target), found)


def _check_same(inputs, table):
    """A file's own inputs, read again by its schema, are the same; also of rows without a target."""
    if is_error(inputs) or not np.array_equal(inputs.X[np.isin(inputs.rows, table.rows)], table.X):
        raise FoundError(f"a file is read otherwise by its own schema: {str(inputs)[:100]}")


def _check_blocks(make, table):
    """Rows in blocks are the same rows, or an error where a whole file can guess more."""
    source = outcome(make)
    if is_error(source):
        return
    chunks = outcome(lambda: list(source.chunks()))
    if is_error(chunks):
        return
    X, y = (np.concatenate([np.asarray(getattr(chunk, name), dtype=float) for chunk in chunks]) for name in ("X", "y"))
    names = list(chunks[0].names or ())
    if sorted(names) == sorted(table.columns):
        X = X[:, [names.index(name) for name in table.columns]]
        same = X.shape == table.X.shape and np.array_equal(X, table.X) and np.array_equal(y, table.y)
        if not same:
            raise FoundError("rows in blocks are other rows than the whole file's")


def _plain_table(content):
    """Comma-separated plain numbers as Python's own reader has them; None for anything else."""
    try:
        rows = list(csv.reader(io.StringIO(content.decode("ascii"), newline=None)))
    except (ValueError, csv.Error):
        return None
    if rows and rows[0] and all(re.fullmatch(r"[a-z][a-z0-9]*", cell) for cell in rows[0]):
        names, rows = rows[0], rows[1:]
        if len(set(names)) < len(names) or any(len(row) != len(names) for row in rows):
            return None
    if b'"' in content or not rows or len(rows[0]) < 2 or len({len(row) for row in rows}) != 1:
        return None
    if not all(_PLAIN.fullmatch(cell) for row in rows for cell in row):
        return None
    return np.array(rows, dtype=float)


# --- Parquet -----------------------------------------------------------------------------------------


@st.composite
def _arrow_columns(draw, n):
    import pyarrow as pa

    kinds = {
        "int": lambda: pa.array(
            draw(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=n, max_size=n)),
            draw(st.sampled_from([pa.int64(), pa.int32()])),
        ),
        "large": lambda: pa.array([2**63 + k for k in range(n)], pa.uint64()),
        "float": lambda: pa.array(
            draw(st.lists(st.floats(allow_subnormal=True), min_size=n, max_size=n)), pa.float64()
        ),
        "plain": lambda: pa.array(
            [k / 4 for k in range(n)], draw(st.sampled_from([pa.float64(), pa.float32(), pa.float16()]))
        ),
        "null": lambda: pa.array([None] * n, draw(st.sampled_from([pa.float64(), pa.null(), pa.string()]))),
        "holes": lambda: pa.array([None if k % 2 else 1.5 for k in range(n)]),
        "text": lambda: pa.array(
            [draw(st.sampled_from(["a", "b", *ODD_TEXTS])) for _ in range(n)],
            draw(st.sampled_from([pa.string(), pa.large_string()])),
        ),
        "bytes": lambda: pa.array([b"\xff\x00"] * n, pa.binary()),
        "bool": lambda: pa.array([k % 3 == 0 for k in range(n)]),
        "dictionary": lambda: pa.array(["u", "v"] * n).slice(0, n).dictionary_encode(),
        "list": lambda: pa.array([[1.0, 2.0]] * n),
        "struct": lambda: pa.array([{"a": 1}] * n),
        "decimal": lambda: pa.array(list(range(n))).cast(pa.decimal128(30, 2)),
        "date": lambda: pa.array(draw(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=n, max_size=n)), pa.date32()),
        "stamp": lambda: pa.array(
            draw(st.lists(st.integers(-(2**62), 2**62), min_size=n, max_size=n)),
            pa.timestamp(
                draw(st.sampled_from(["s", "ms", "us", "ns"])), draw(st.sampled_from([None, "UTC", "+05:30"]))
            ),
        ),
        "time": lambda: pa.array([5] * n, pa.time64("us")),
        "duration": lambda: pa.array([5] * n, pa.duration("s")),
    }
    return kinds[draw(st.sampled_from(sorted(kinds)))]()


@st.composite
def _parquet_made(draw):
    """Parquet files by a grammar: columns of every type, names of every kind, groups, compression, versions."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    n = draw(st.integers(0, 5))
    names = draw(
        st.lists(st.sampled_from(["a", "b", " a", "", "é", "target", "x" * 50, "a.b"]), min_size=0, max_size=4)
    )
    columns = [draw(_arrow_columns(n)) for _ in names]
    buffer = io.BytesIO()
    options = {
        "compression": draw(st.sampled_from(["snappy", "none", "gzip", "zstd"])),
        "use_dictionary": draw(st.booleans()),
    }
    options |= {
        "version": draw(st.sampled_from(["1.0", "2.6"])),
        "data_page_version": draw(st.sampled_from(["1.0", "2.0"])),
    }
    try:
        pq.write_table(
            pa.Table.from_arrays(columns, names=names), buffer, row_group_size=draw(st.integers(1, 5)), **options
        )
    except (pa.ArrowException, ValueError, OSError):
        return b"PAR1"
    return buffer.getvalue()


@lru_cache
def _parquet_seeds():
    import pyarrow as pa
    import pyarrow.parquet as pq

    seeds = []
    for compression in ("none", "snappy"):
        columns = {"a": [1.5, 2.5, 3.5], "b": [1, 2, 3], "c": ["u", "v", "u"], "y": [0.5, 1.0, 2.0]}
        buffer = io.BytesIO()
        pq.write_table(pa.table(columns), buffer, compression=compression, store_schema=compression == "none")
        seeds.append(buffer.getvalue())
    return seeds


def _read_parquet(path):
    found = _read_both_ways(tables.read_parquet, path)
    if not is_error(found) and found.classes is None:
        _check_blocks(lambda: tables.Parquet(path, target=found.target), found)


# --- graphs, roads, meshes ---------------------------------------------------------------------------

_GML = [
    b'graph [\n  node [ id 0 label "a" ]\n  node [ id 1 label "b" ]\n  node [ id 2 label "c" ]\n'
    b"  edge [ source 0 target 1 weight 2.5 ]\n  edge [ source 1 target 2 ]\n]\n",
    b'graph [ directed 0 multigraph 1 node [ id 5 label "x" gt 1 ] edge [ source 5 target 5 key 0 ] ]',
]


def check_graph(graph):
    """A graph is symmetric, with positive finite weights, and as many labels as nodes."""
    A = graph.adjacency
    if A.shape != (graph.num_nodes,) * 2 or (graph.labels is not None and len(graph.labels) != graph.num_nodes):
        raise FoundError("a graph has not as many nodes as labels")
    if not np.isfinite(A.data).all() or (A.data < 0).any() or (abs(A - A.T)).nnz:
        raise FoundError("a graph is not symmetric, or has weights that are no positive numbers")
    if not np.isfinite(graph.shift_operator.data).all():
        raise FoundError("a graph's Laplacian is not finite")


def _read_gml(path):
    graph = outcome(lambda: graphs.Graph.from_gml(path))
    if not is_error(graph):
        check_graph(graph)


_GEOJSON = [
    {
        "type": "FeatureCollection",
        "features": [
            {
                "type": "Feature",
                "geometry": {"type": "LineString", "coordinates": [[0.0, 0.0], [0.001, 0.0], [0.002, 0.001]]},
                "properties": {},
            },
            {
                "type": "Feature",
                "geometry": {"type": "MultiLineString", "coordinates": [[[0.001, 0.0], [0.001, 0.001]]]},
                "properties": None,
            },
            {
                "type": "Feature",
                "geometry": {"type": "Point", "coordinates": [0.0005, 0.0001]},
                "properties": {"value": 3.5},
            },
            {
                "type": "Feature",
                "geometry": {"type": "Point", "coordinates": [0.001, 0.0005]},
                "properties": {"value": None, "edge": 1, "fraction": 0.5},
            },
        ],
    }
]


def check_roads(roads):
    """Roads and sensors are numbers, and become a graph or a named error."""
    places = (roads.sensor_edges, roads.sensor_fractions, *roads.lines)
    if not all(np.isfinite(np.asarray(part, dtype=float)).all() for part in places):
        raise FoundError("roads hold numbers that are not finite")
    if np.isinf(np.asarray(roads.values, dtype=float)).any():
        raise FoundError("a sensor's value is infinite")
    graph = outcome(
        lambda: graphs.Graph.from_roads(roads.lines, roads.sensor_edges, roads.sensor_fractions, metric=roads.metric)
    )
    if not is_error(graph):
        check_graph(graph)


def _read_roads(path):
    roads = outcome(lambda: graphs.read_roads(path))
    if not is_error(roads):
        check_roads(roads)


@lru_cache
def _rda_seeds():
    """R data files of a small road network, not packed, so that changes of a byte reach what it says."""
    import pandas as pd
    import rdata

    lines = [np.array([[0.0, 0.0], [0.001, 0.0]]), np.array([[0.001, 0.0], [0.001, 0.001], [0.002, 0.001]])]
    data = {".edge_number": np.array([1.0, 2.0]), ".distance_on_edge": np.array([0.5, 0.25]), "y": np.array([1.5, 2.0])}
    variants = [
        {"edges": {"geometry": lines}, "data": data},
        {"edges": {"geometry": lines}, "data": pd.DataFrame(data)},
    ]
    seeds = []
    with tempfile.TemporaryDirectory() as folder:
        for content in variants:
            for form in ("xdr", "ascii"):
                path = Path(folder) / "roads.rda"
                rdata.write_rda(path, {"roads": content}, file_format=form)
                seeds.append(gzip.decompress(path.read_bytes()))
    return seeds


@lru_cache
def mesh_seeds(kind):
    """Small meshes in a format, in its text and binary forms."""
    import trimesh

    box = trimesh.creation.box()
    flat = trimesh.Trimesh([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]], [[0, 1, 2], [1, 3, 2]], process=False)
    options = {"ply": [{"encoding": "ascii"}, {"encoding": "binary"}]}.get(kind, [{}])
    out = [mesh.export(file_type=kind, **option) for mesh in (box, flat) for option in options]
    if kind == "stl":
        out += [mesh.export(file_type="stl_ascii") for mesh in (box, flat)]
    return [content.encode() if isinstance(content, str) else content for content in out]


@st.composite
def _glb_mutated(draw):
    """GLB files whose JSON or whose lengths are wrong, put together again as a whole."""
    content = draw(st.sampled_from(mesh_seeds("glb")))
    size = struct.unpack_from("<I", content, 12)[0]
    document = draw(json_mutated([json.loads(content[20 : 20 + size])]))
    text = as_json(document).encode()
    text += b" " * (-len(text) % 4)
    rest = draw(mutated([content[20 + size :]], most=2))
    whole = struct.pack("<II", len(text), 0x4E4F534A) + text + rest
    return struct.pack("<4sII", b"glTF", 2, 12 + len(whole)) + whole


def _read_mesh(path):
    mesh = outcome(lambda: graphs.load_mesh(path))
    if is_error(mesh):
        return
    for nodes, weights in (("faces", "unit"), ("vertices", "cotangent"), ("vertices", "edge-length")):
        graph = outcome(lambda nodes=nodes, weights=weights: graphs.Graph.from_mesh(mesh, nodes, weights=weights))
        if not is_error(graph):
            check_graph(graph)


def _meshes(kind):
    changed = mutated(mesh_seeds(kind))
    return st.one_of(changed, _glb_mutated()) if kind == "glb" else changed


def _geojsons():
    text = as_json(_GEOJSON[0]).encode()
    return st.one_of(json_mutated(_GEOJSON).map(lambda v: as_json(v).encode()), mutated([text]))


TARGETS = [
    Target("csv", on_file(".csv", _read_text), lambda: st.one_of(texts(), mutated(_TEXT_SEEDS))),
    Target(
        "parquet", on_file(".parquet", _read_parquet), lambda: st.one_of(_parquet_made(), mutated(_parquet_seeds()))
    ),
    Target("gml", on_file(".gml", _read_gml), lambda: mutated(_GML)),
    Target("geojson", on_file(".geojson", _read_roads), _geojsons),
    Target("rda", on_file(".rda", _read_roads), lambda: mutated(_rda_seeds())),
    *(
        Target(kind, on_file(f".{kind}", _read_mesh), lambda kind=kind: _meshes(kind))
        for kind in ("ply", "obj", "stl", "off", "glb")
    ),
]
