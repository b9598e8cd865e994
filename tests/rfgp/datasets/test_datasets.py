"""Data sets by name: downloads from a local server, local folders, the catalog, splits and generators."""

import contextlib
import dataclasses
import hashlib
import os
import re
import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import served
from refusals import refused
from served import BODY, PLACE, SHA

import graphs
import rfgp
from rfgp import datasets

COMMITTED = Path(__file__).parents[3] / "data"
WRONG = BODY[:-1] + bytes([BODY[-1] ^ 1])
SHA_OF_WRONG = hashlib.sha256(WRONG).hexdigest()


def sends(body):
    def answer(handler):
        served.begin(handler)
        handler.wfile.write(body)

    return answer


def endless(handler):
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"x" * 65536)


def closes(handler):
    handler.connection.shutdown(socket.SHUT_RDWR)


def missing(handler):
    handler.send_error(404)


whole = sends(BODY)


@pytest.fixture
def server(monkeypatch):
    """A server whose answers are a list, of which the last one repeats; it keeps the paths of requests."""
    made = SimpleNamespace(answers=[], paths=[])

    def answer(handler):
        made.paths.append(handler.path)
        made.answers[min(len(made.paths), len(made.answers)) - 1](handler)

    http = served.offer(monkeypatch, answer)
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    made.url = f"http://127.0.0.1:{http.server_port}"
    yield made
    http.shutdown()
    http.server_close()


@pytest.fixture
def cache(tmp_path, monkeypatch, server):
    """The empty cache folder, with one entry in the catalog that the local server offers."""
    monkeypatch.setenv("RFGP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("RFGP_DATA_DIR", raising=False)
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: None)  # between attempts
    return tmp_path / "cache"


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def check(cache):
    path = datasets.fetch("thing")
    assert path == cache / "uci" / "thing.txt"
    assert path.read_bytes() == BODY
    assert files(cache) == ["thing.txt"]


def test_an_honest_server_is_asked_once(server, cache):
    server.answers, calls = [whole], []
    datasets.fetch("thing", progress=lambda *call: calls.append(call))
    check(cache)
    assert server.paths == [f"/{PLACE}"]
    done = [done for name, done, total in calls if (name, total) == ("thing", len(BODY))]
    assert (done, done[-1]) == (sorted(done), len(BODY))
    (cache / "uci" / "thing.txt").write_bytes(WRONG)
    with pytest.raises(rfgp.DataError, match=r"thing\.txt is damaged and downloads are switched off"):
        datasets.fetch("thing", download=False)
    check(cache)
    assert len(server.paths) == 2


FAILURES = [
    (sends(WRONG), f"sent a wrong file: .*{SHA_OF_WRONG}"),
    (endless, "More than its 300,000 bytes"),
    (sends(BODY[:100_000]), "100000 bytes read"),
    (closes, "closed connection"),
    (missing, "404"),
]


@pytest.mark.parametrize(("answer", "words"), FAILURES)
def test_a_failure_is_mended_by_asking_again_or_named(server, cache, answer, words):
    server.answers = [answer]
    with pytest.raises(rfgp.DataError, match=words) as caught:
        datasets.fetch("thing")
    assert str(caught.value).startswith(f"thing: {server.url}/{PLACE} ")
    assert f"save {server.url}/{PLACE} as uci/thing.txt in a folder" in str(caught.value)
    assert files(cache) == []
    if answer is not missing:
        server.answers, server.paths = [answer, whole], []
        check(cache)
        assert len(server.paths) == 2


def test_addresses_without_a_server_are_errors(cache, monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{unused.getsockname()[1]}"
        for address, error, words in (
            (nowhere, rfgp.DataError, "Connection refused"),
            ("http://", rfgp.DataError, "could not be downloaded"),
            ("ftp://host", rfgp.InvalidArgumentError, "http://"),
            ("host/path", rfgp.InvalidArgumentError, "http://"),
        ):
            monkeypatch.setenv("RFGP_DATA_URL", address)
            refused(lambda: datasets.fetch("thing"), error, words)
        monkeypatch.setenv("RFGP_DATA_URL", nowhere)
        with pytest.raises(rfgp.DataError, match="Check the connection") as caught:
            datasets.fetch("thing")
        assert "HTTPConnection" not in str(caught.value)
        assert caught.value.__cause__ is None  # no tracebacks of the packages that download
    assert files(cache) == []
    monkeypatch.setenv("RFGP_DATA_URL", "https://mirror/data/")
    assert datasets.describe("torus").url.startswith("https://mirror/data/mikedh/trimesh/a513c0e2cfa6dfbd")
    monkeypatch.delenv("RFGP_DATA_URL")
    assert datasets.describe("torus").url.startswith("https://raw.githubusercontent.com/mikedh/trimesh/a513")


def test_without_downloads_nothing_is_asked(server, cache):
    refused(lambda: datasets.load("thing", download=False), rfgp.DataError, "is missing and downloads are switched off")
    assert server.paths == []


@pytest.mark.parametrize(("place", "named"), [("uci/thing.txt", "argument"), ("thing.txt", "variable")])
def test_a_local_folder_comes_first_and_stays(server, cache, tmp_path, monkeypatch, place, named):
    path = tmp_path / "own" / place
    path.parent.mkdir(parents=True)
    path.write_bytes(BODY)
    folder = tmp_path / "own" if named == "argument" else None
    monkeypatch.setenv("RFGP_DATA_DIR", str(tmp_path if folder else tmp_path / "own"))
    assert datasets.fetch("thing", folder) == path
    path.write_bytes(WRONG)
    refused(lambda: datasets.fetch("thing", folder), rfgp.DataError, f"expected sha256 {SHA}, found {SHA_OF_WRONG}")
    assert path.read_bytes() == WRONG
    path.unlink()
    server.answers = [whole]
    assert datasets.fetch("thing", folder) == cache / "uci" / "thing.txt"
    monkeypatch.setenv("RFGP_DATA_DIR", str(tmp_path / "nowhere"))
    refused(lambda: datasets.fetch("thing"), rfgp.DataError, "no such folder")


def test_a_cache_that_cannot_be_written_is_an_error(server, cache, monkeypatch):
    server.answers = [whole]
    check(cache)
    monkeypatch.setenv("RFGP_CACHE_DIR", str(cache / "uci" / "thing.txt"))
    refused(lambda: datasets.fetch("thing"), rfgp.DataError, "RFGP_CACHE_DIR")


def test_threads_at_once_all_succeed(server, cache):
    together, found = threading.Barrier(4), []

    def answer(handler):
        together.wait(10)  # each waits until the others, too, have asked
        whole(handler)

    server.answers = [answer]
    threads = [threading.Thread(target=lambda: found.append(datasets.fetch("thing"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [cache / "uci" / "thing.txt"] * 4
    check(cache)


CALLS = [
    (lambda: datasets.fetch("Air-foil"), "Did you mean airfoil"),
    (lambda: datasets.load("xyzzy"), "lists all 42"),
    (lambda: datasets.split(None), "no data set None"),
    (lambda: datasets.names("tables"), "kind must be one of"),
    (lambda: datasets.split("karate"), "without a standard split"),
    (lambda: datasets.load_classes("airfoil"), "must be a graph"),
    *((lambda index=index: datasets.split("airfoil", index), "0 to 9") for index in (-1, 10, True)),
]


@pytest.mark.parametrize(("call", "word"), CALLS)
def test_bad_calls_are_refused(call, word):
    refused(call, rfgp.InvalidArgumentError, word)


# --- the catalog --------------------------------------------------------------------------------------


def data_folder():
    """The folder with the real files: RFGP_DATA_DIR, or shared/data beside the repository."""
    named = os.environ.get("RFGP_DATA_DIR")
    return Path(named) if named else Path(__file__).parents[4] / "shared" / "data"


def test_the_catalog_is_the_list_of_sources():
    assert len(datasets.names()) == len(datasets.CATALOG) == 42
    for name, entry in datasets.CATALOG.items():
        assert name == entry.name
        assert re.fullmatch("[0-9a-f]{40}" if entry.packaged is None else "", entry.commit)


def loaded(name):
    if datasets.describe(name).packaged is None and not (data_folder() / datasets.describe(name).file).is_file():
        pytest.skip(f"{name} is not in the folder with the data: set RFGP_DATA_DIR")
    return datasets.load(name, data_folder(), download=False)


SHAPES = {"car": (21, 4), "nursery": (27, 5), "chess": (23, 18), "yeast": (8, 10), "abalone": (10, 28)}
TABLES = [*datasets.names("table"), *datasets.names("classification")]


@pytest.mark.parametrize("name", TABLES)
def test_tables_have_the_stated_rows_and_columns(name):
    table, entry = loaded(name), datasets.describe(name)
    assert len(table.X) == len(table.y) == entry.rows
    assert np.isfinite(table.X).all()
    assert np.isfinite(table.y).all()
    if entry.columns is not None and entry.categories == "error":
        assert (*table.columns, table.target) == tuple(name for name in entry.columns if name not in entry.drop)
    if name in SHAPES:
        assert (table.X.shape[1], len(np.unique(table.y))) == SHAPES[name]


SLOW = ("citeseer", "eu-core", "eurosis", "pems")
OTHERS = [*datasets.names("mesh"), *datasets.names("graph"), *datasets.names("roads")]


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in OTHERS])
def test_meshes_graphs_and_roads_have_the_stated_sizes(name):
    loops = {"citeseer": 52, "eu-core": 623}.get(name)
    warned = pytest.warns(graphs.SelfLoopsDroppedWarning, match=f" {loops} ") if loops else contextlib.nullcontext()
    with warned:
        found = loaded(name)
    size = getattr(found, "num_nodes", None) or len(found.faces if hasattr(found, "faces") else found.values)
    assert size == datasets.describe(name).rows


@pytest.mark.parametrize("name", datasets.names("frame"))
def test_frames_of_the_package_have_dates_and_missing_cells(name):
    entry, frame = datasets.describe(name), datasets.load(name, download=False)
    assert len(frame) == entry.rows
    assert all(frame[column].dtype.kind == "M" for column in entry.dates)
    assert len(entry.license) > 2
    assert frame.isna().any().any() == (name in ("co2", "penguins"))


def test_the_rentals_are_those_of_the_source():
    days, hours = datasets.load("bikes"), datasets.load("bikes-hourly")
    assert days["rentals"].sum() == hours["rentals"].sum() == 3_292_679
    assert (hours.groupby(hours["time"].dt.floor("D"))["rentals"].sum().to_numpy() == days["rentals"]).all()


def test_a_packaged_table_needs_no_folder(monkeypatch, tmp_path):
    (tmp_path / "machine.csv").write_bytes(b"wrong")
    monkeypatch.setenv("RFGP_DATA_URL", "http://127.0.0.1:9")
    path, entry = datasets.fetch("machine", tmp_path, download=False), datasets.describe("machine")
    assert (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()) == (entry.size, entry.sha256)
    table = datasets.load("machine")
    assert table.columns == ("MYCT", "MMIN", "MMAX", "CACH", "CHMIN", "CHMAX", "ERP")
    assert (table.X.min(0).tolist(), table.y.max()) == ([17, 64, 64, 0, 0, 0, 15], 1150)


@pytest.mark.parametrize(("name", "test"), [("airfoil", 150), ("torus", 435), ("pems", 75)])
def test_splits_have_the_stated_sizes(name, test):
    rows, parts = datasets.describe(name).rows, [datasets.split(name, index) for index in range(10)]
    for train, held in parts:
        assert len(held) == test
        np.testing.assert_array_equal(np.sort(np.concatenate([train, held])), np.arange(rows))
    assert len({held.tobytes() for _, held in parts}) == 10


def test_splits_never_change():
    assert datasets.split("pems").test[:5].tolist() == [3, 4, 12, 13, 15]
    assert datasets.split("airfoil", 9).test[:5].tolist() == [4, 20, 21, 33, 41]
    np.testing.assert_array_equal(datasets.split("bike-without-counts", 3).test, datasets.split("bike", 3).test)


# --- generators and classes ---------------------------------------------------------------------------


def test_committed_files_match_the_generators(tmp_path):
    written = datasets.write_all(tmp_path)
    real = {"README.md", "LICENSE-matplotlib.txt", "LICENSE-trimesh.txt", "idler_riser.STL", "jacksboro.nc", "pems.rda"}
    assert {path.name for path in written} | real == {path.name for path in COMMITTED.iterdir()}
    for path in written:
        assert path.read_bytes() == (COMMITTED / path.name).read_bytes(), f"{path.name}: run `make data`"
    np.testing.assert_array_equal(rfgp.tables.read_csv(COMMITTED / "table.csv", "yield").X, datasets.make_table().X)
    assert graphs.Graph.from_mesh(graphs.load_mesh(COMMITTED / "mesh.ply")).num_nodes == 1280
    roads = graphs.read_roads(COMMITTED / "roads.geojson")
    np.testing.assert_array_equal(roads.values, datasets.make_roads().values)
    assert abs(datasets.make_table(1).y - datasets.make_table(0).y).max() > 0
    graph = graphs.Graph.from_roads(*roads[:3])
    assert graph.largest_component().num_nodes == graph.num_nodes


NODES = 'node [ id 0 label "35" gt "Theory" ] node [ id 1 label "40" gt "Rules" ] node [ id 2 label "50" ]'


def test_classes_of_nodes(tmp_path, monkeypatch):
    path = tmp_path / Path(datasets.describe("cora").file).name
    for text in (f"graph [ {NODES} edge [ source 0 target 1 ] ]", f"graph [ {NODES.replace('gt', 'kind')} ]"):
        path.write_text(text)
        known = {"size": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}
        monkeypatch.setitem(datasets.CATALOG, "cora", dataclasses.replace(datasets.CATALOG["cora"], **known))
        if "gt" in text:
            assert datasets.load_classes("cora", tmp_path) == {"35": "Theory", "40": "Rules"}
    refused(lambda: datasets.load_classes("cora", tmp_path), rfgp.DataError, "no classes")
