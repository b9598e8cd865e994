"""Data sets by name: downloads from a local server, local folders, the catalog and its splits."""

import contextlib
import hashlib
import http.server
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import graphs
from rfgp import datasets
from rfgp.errors import DataError, InvalidArgumentError

BODY = np.random.default_rng(0).bytes(300_000)
WRONG = BODY[:-1] + bytes([BODY[-1] ^ 1])
SHA = hashlib.sha256(BODY).hexdigest()
ENTRY = datasets.Entry(
    "thing", "table", "uci/thing.txt", "owner/name", "c" * 40, "data/thing.txt", len(BODY), SHA, 1, ""
)


class Server:
    """A local server whose answers are a list of functions of the handler; the last one repeats."""

    def __init__(self):
        self.answers = []
        self.paths = []  # of every request
        self.stopped = threading.Event()
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.http.daemon_threads = True
        self.http.block_on_close = False
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def handler(self):
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                answer = outer.answers[min(len(outer.paths), len(outer.answers) - 1)]
                outer.paths.append(self.path)
                self.stopped = outer.stopped
                with contextlib.suppress(OSError):
                    answer(self)

            def log_message(self, *_):
                pass

        return Handler

    def close(self):
        self.stopped.set()
        self.http.shutdown()
        self.http.server_close()


def whole(handler, body=BODY):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(BODY)))
    handler.end_headers()
    handler.wfile.write(body)


def short(handler):
    whole(handler, BODY[:100_000])


def lies(handler):
    whole(handler, WRONG)


def hangs(handler):
    short(handler)
    handler.stopped.wait(60)


def endless(handler):
    handler.send_response(200)
    handler.end_headers()
    while not handler.stopped.is_set():
        handler.wfile.write(b"x" * 65536)


def closes(handler):
    handler.connection.shutdown(socket.SHUT_RDWR)


def status(code):
    def answer(handler):
        handler.send_response(code)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


@pytest.fixture
def server():
    made = Server()
    yield made
    made.close()


@pytest.fixture
def cache(tmp_path, monkeypatch, server):
    """The empty cache folder, with one entry in the catalog that the local server offers."""
    monkeypatch.setenv("RFGP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("RFGP_DATA_URL", server.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("RFGP_DATA_DIR", raising=False)
    monkeypatch.setattr("pooch.core.time.sleep", lambda _: None)  # between attempts
    monkeypatch.setitem(datasets.CATALOG, "thing", ENTRY)
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
    path = datasets.fetch("thing", progress=lambda *call: calls.append(call))
    assert path.read_bytes() == BODY
    check(cache)
    assert server.paths == [f"/owner/name/{'c' * 40}/data/thing.txt"]
    assert {(what, total) for what, _, total in calls} == {("thing", len(BODY))}
    done = [done for _, done, _ in calls]
    assert done == sorted(done)
    assert done[-1] == len(BODY)
    assert datasets.fetch("thing", download=False) == path


@pytest.mark.parametrize("answer", [lies, short, closes, endless, status(500)])
def test_a_failure_is_mended_by_asking_again(server, cache, answer):
    server.answers = [answer, whole]
    check(cache)
    assert len(server.paths) == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lies, f"sent a wrong file: .*{hashlib.sha256(WRONG).hexdigest()}"),
        (endless, "sent a wrong file: More than its 300,000 bytes arrived"),
        (short, "could not be downloaded: .*100000 bytes read"),
        (closes, "could not be downloaded: .*closed connection"),
        (status(404), "could not be downloaded: 404"),
        (status(503), "could not be downloaded: 503"),
    ],
)
def test_a_failure_that_lasts_is_named_and_leaves_nothing(server, cache, answer, words):
    server.answers = [answer]
    with pytest.raises(DataError, match=words) as caught:
        datasets.fetch("thing")
    message = str(caught.value)
    assert message.startswith(f"thing: {server.url}/owner/name/{'c' * 40}/data/thing.txt ")
    assert "RFGP_DATA_URL" in message
    assert message.endswith(
        f"save {server.url}/owner/name/{'c' * 40}/data/thing.txt as uci/thing.txt in a folder and name it in "
        "RFGP_DATA_DIR."
    )
    assert files(cache) == []
    server.answers = [whole]
    check(cache)


def test_a_refused_connection_is_an_error(cache, monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RFGP_DATA_URL", f"http://127.0.0.1:{unused.getsockname()[1]}")
        with pytest.raises(DataError, match=r"could not be downloaded: .*Connection refused.* Check the connection"):
            datasets.fetch("thing")
    assert files(cache) == []


@pytest.mark.parametrize("address", ["ftp://host", "host/path"])
def test_a_mirror_needs_an_address(cache, monkeypatch, address):
    monkeypatch.setenv("RFGP_DATA_URL", address)
    with pytest.raises(InvalidArgumentError, match=f"RFGP_DATA_URL is '{address}', but it must begin with http://"):
        datasets.fetch("thing")


def test_an_impossible_address_is_an_error(cache, monkeypatch):
    monkeypatch.setenv("RFGP_DATA_URL", "http://")
    with pytest.raises(DataError, match=r"could not be downloaded: "):
        datasets.fetch("thing")


def test_a_slash_after_the_mirror_is_harmless(monkeypatch):
    monkeypatch.setenv("RFGP_DATA_URL", "https://mirror/data/")
    assert datasets.describe("torus").url.startswith("https://mirror/data/mikedh/trimesh/a513c0e2cfa6dfbd")
    monkeypatch.delenv("RFGP_DATA_URL")
    assert datasets.describe("torus").url.startswith("https://raw.githubusercontent.com/mikedh/trimesh/a513")


def test_a_damaged_cache_is_mended(server, cache):
    server.answers = [whole]
    check(cache)
    (cache / "uci" / "thing.txt").write_bytes(WRONG)
    with pytest.raises(DataError, match=r"thing\.txt is damaged and downloads are switched off\. Allow them, or save"):
        datasets.fetch("thing", download=False)
    check(cache)
    assert len(server.paths) == 2


def test_without_downloads_a_missing_file_is_an_error(server, cache):
    with pytest.raises(DataError) as caught:
        datasets.load("thing", download=False)
    assert f"{cache / 'uci' / 'thing.txt'} is missing and downloads are switched off" in str(caught.value)
    assert f"save {server.url}/owner/name/{'c' * 40}/data/thing.txt as uci/thing.txt in a folder" in str(caught.value)
    assert server.paths == []


@pytest.mark.parametrize("place", ["uci/thing.txt", "thing.txt"])
@pytest.mark.parametrize("named", ["argument", "variable"])
def test_a_local_folder_comes_first_and_stays(server, cache, tmp_path, monkeypatch, place, named):
    path = tmp_path / "own" / place
    path.parent.mkdir(parents=True)
    path.write_bytes(BODY)
    folder = tmp_path / "own" if named == "argument" else None
    monkeypatch.setenv("RFGP_DATA_DIR", str(tmp_path if folder else tmp_path / "own"))
    assert datasets.fetch("thing", folder) == path
    path.write_bytes(WRONG)
    with pytest.raises(DataError) as caught:
        datasets.fetch("thing", folder)
    assert f"{path} is not the file of the catalog: expected sha256 {SHA}, found " in str(caught.value)
    assert hashlib.sha256(WRONG).hexdigest() in str(caught.value)
    assert "or remove it so that it is downloaded" in str(caught.value)
    assert path.read_bytes() == WRONG
    path.unlink()
    server.answers = [whole]
    assert datasets.fetch("thing", folder) == cache / "uci" / "thing.txt"


def test_a_missing_local_folder_is_an_error(cache, tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"thing: folder is .*nowhere', and there is no such folder\. Correct it"):
        datasets.fetch("thing", tmp_path / "nowhere")
    monkeypatch.setenv("RFGP_DATA_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="thing: RFGP_DATA_DIR is "):
        datasets.fetch("thing")


def test_a_cache_that_cannot_be_written_is_an_error(server, cache):
    server.answers = [whole]
    cache.write_text("a file, not a folder")
    with pytest.raises(DataError, match=r"thing\.txt cannot be read or written: .*RFGP_CACHE_DIR"):
        datasets.fetch("thing")


def test_a_full_disk_is_an_error(server, cache, monkeypatch):
    server.answers = [whole]
    with monkeypatch.context() as full:
        full.setattr("shutil.move", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(DataError, match=r"written: No space left on device\. Make room or give access there"):
            datasets.fetch("thing")
    assert files(cache) == []
    check(cache)


CHILD = """
import sys
from rfgp import datasets
datasets.CATALOG["thing"] = datasets.Entry(
    "thing", "table", "uci/thing.txt", "owner/name", "c" * 40, "data/thing.txt", int(sys.argv[1]), sys.argv[2], 1, "")
datasets.fetch("thing", progress=lambda *_: print("begun", flush=True))
"""


@pytest.mark.slow
def test_a_second_process_may_download_too_and_be_killed(server, cache):
    server.answers = [hangs, whole]
    command = [sys.executable, "-c", CHILD, str(len(BODY)), SHA]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "begun\n"
        assert not (cache / "uci" / "thing.txt").exists()
        path = datasets.fetch("thing")
        assert path.read_bytes() == BODY
        process.kill()
    assert datasets.fetch("thing", download=False).read_bytes() == BODY


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


def test_unknown_names_are_answered_with_similar_ones():
    with pytest.raises(
        InvalidArgumentError, match=r"no data set 'Air-foil'\. Did you mean airfoil\? rfgp\.datasets\.na"
    ):
        datasets.fetch("Air-foil")
    with pytest.raises(InvalidArgumentError, match=r"no data set 'xyzzy'\. rfgp\.datasets\.names\(\) lists all 35"):
        datasets.load("xyzzy")
    with pytest.raises(InvalidArgumentError, match="no data set None"):
        datasets.split(None)
    with pytest.raises(InvalidArgumentError, match="kind must be one of table, class"):
        datasets.names("tables")


def test_the_catalog_is_complete():
    assert len(datasets.names()) == len(datasets.CATALOG) == 35
    assert [len(datasets.names(kind)) for kind in ("table", "classification", "mesh", "graph", "roads")] == [
        10,
        8,
        6,
        10,
        1,
    ]
    for name, entry in datasets.CATALOG.items():
        assert name == entry.name
        assert re.fullmatch("[0-9a-f]{40}" if entry.packaged is None else "", entry.commit)
        assert re.fullmatch("[0-9a-f]{64}", entry.sha256)
        assert entry.note.endswith(".")
    assert datasets.describe("power-plant").columns == ("AT", "V", "AP", "RH", "PE")


@pytest.mark.parametrize(
    ("name", "test"), [("airfoil", 150), ("car", 86), ("torus", 435), ("pems", 75), ("machine", 21)]
)
def test_splits_have_the_stated_sizes(name, test):
    rows, seen = datasets.describe(name).rows, set()
    for index in range(10):
        train, held = datasets.split(name, index)
        assert (len(train), len(held)) == (rows - test, test)
        assert train.dtype == held.dtype == np.int64
        np.testing.assert_array_equal(np.sort(np.concatenate([train, held])), np.arange(rows))
        np.testing.assert_array_equal(datasets.split(name, index).test, held)
        seen.add(held.tobytes())
    assert len(seen) == 10


def test_splits_never_change():
    assert datasets.split("pems").test[:5].tolist() == [3, 4, 12, 13, 15]
    assert datasets.split("airfoil", 9).test[:5].tolist() == [4, 20, 21, 33, 41]


def test_splits_that_do_not_exist():
    for index in (-1, 10, 1.0, True, "0"):
        with pytest.raises(InvalidArgumentError, match="index must be an integer from 0 to 9, got"):
            datasets.split("airfoil", index)
    with pytest.raises(InvalidArgumentError, match=r"karate is a graph without values .* from the nodes 0\.\.33\."):
        datasets.split("karate")


def data_folder():
    """The folder with the real files: RFGP_DATA_DIR, or shared/data beside the repository."""
    named = os.environ.get("RFGP_DATA_DIR")
    return Path(named) if named else Path(__file__).parents[4] / "shared" / "data"


needs_data = pytest.mark.skipif(not data_folder().is_dir(), reason="no folder with the data: set RFGP_DATA_DIR")


@pytest.mark.skipif(not (data_folder() / "SOURCES.md").is_file(), reason="no SOURCES.md: set RFGP_DATA_DIR")
def test_the_catalog_is_the_list_of_sources():
    text = (data_folder() / "SOURCES.md").read_text(encoding="utf-8")
    lines = [line.strip("|").split("|") for line in text.splitlines() if re.match(r"\| \w+/", line)]
    listed = {tuple(cell.strip() for cell in line) for line in lines}
    downloads = [entry for entry in datasets.CATALOG.values() if entry.packaged is None]
    ours = {(e.file, e.repository, e.commit[:12], e.path, str(e.size), e.sha256) for e in downloads}
    assert ours <= listed  # the folder may have more
    for entry in downloads:
        assert f"{entry.repository} {entry.commit}" in text


def load(name):
    if datasets.describe(name).packaged is None and not (data_folder() / datasets.describe(name).file).is_file():
        pytest.skip(f"{name} is not in the folder with the data")
    return datasets.load(name, data_folder(), download=False)


@needs_data
@pytest.mark.parametrize("name", [*datasets.names("table"), *datasets.names("classification")])
def test_tables_have_the_stated_rows_and_columns(name):
    table, entry = load(name), datasets.describe(name)
    assert len(table.X) == len(table.y) == entry.rows
    assert np.isfinite(table.X).all()
    assert np.isfinite(table.y).all()
    if entry.columns is not None and entry.categories == "error":
        assert (*table.columns, table.target) == tuple(name for name in entry.columns if name not in entry.drop)


def test_machine_comes_with_the_package(monkeypatch, tmp_path):
    """No download and no folder: the table is read where it is installed, whatever a local file of this name holds."""
    (tmp_path / "machine.csv").write_bytes(b"wrong")
    monkeypatch.setenv("RFGP_DATA_URL", "http://127.0.0.1:9")
    path, entry = datasets.fetch("machine", tmp_path, download=False), datasets.describe("machine")
    assert path.read_bytes() != b"wrong"
    assert (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()) == (entry.size, entry.sha256)
    assert entry.url.startswith("https://archive.ics.uci.edu/")
    table = datasets.load("machine")
    assert table.columns == ("MYCT", "MMIN", "MMAX", "CACH", "CHMIN", "CHMAX", "ERP")
    assert (table.X.min(0) >= [17, 64, 64, 0, 0, 0, 15]).all()
    assert (table.X.max(0) <= [1500, 32000, 64000, 256, 52, 176, 1238]).all()
    assert (table.y.min(), table.y.max()) == (6, 1150)


EQUAL_COLUMNS = {"bike": {("year", "yr"), ("month", "mnth")}, "nursery": {("finance=convenient", "finance=inconv")}}
NEARLY_EQUAL = {"elevators": {("10", "11"), ("12", "17")}}


@needs_data
@pytest.mark.parametrize("name", [*datasets.names("table"), *datasets.names("classification")])
def test_tables_have_no_damaged_columns(name):
    """No constant or repeated column but the known ones, and no few values that lie far beyond all others."""
    table = load(name)
    X = np.asarray(table.X, dtype=np.float64)
    assert (X.std(0) > 0).all()
    close = np.argwhere(np.triu(np.abs(np.corrcoef(X.T)) > 0.9999, 1))
    found = {(table.columns[i], table.columns[j]) for i, j in close}
    assert found == EQUAL_COLUMNS.get(name, set()) | NEARLY_EQUAL.get(name, set())
    low, high = np.quantile(X, [0.01, 0.99], axis=0)
    beyond = np.maximum(X.max(0) - high, low - X.min(0)) / np.where(high > low, high - low, 1)
    assert beyond.max() < 20, table.columns[int(beyond.argmax())]


@needs_data
def test_the_target_of_bike_is_the_log_of_two_inputs():
    table = load("bike")
    counts = np.round(table.X[:, -2] - table.X[:, -2].min()) + np.round(table.X[:, -1] - table.X[:, -1].min())
    logs = np.log(counts)
    assert abs((table.y - table.y.mean()) - (logs - logs.mean())).max() < 1e-4
    without = load("bike-without-counts")
    np.testing.assert_array_equal(without.y, table.y)
    assert without.X.shape == (17379, 13)
    assert not {"casual", "registered", "yr", "mnth"} & set(without.columns)
    assert datasets.split("bike-without-counts", 3).test.tolist() == datasets.split("bike", 3).test.tolist()


@needs_data
@pytest.mark.parametrize(
    ("name", "columns", "classes"),
    [
        ("car", 21, 4),
        ("nursery", 27, 5),
        ("chess", 23, 18),
        ("yeast", 8, 10),
        ("abalone", 10, 28),
        ("airfoil", 5, None),
    ],
)
def test_text_becomes_numbers(name, columns, classes):
    table = load(name)
    assert table.X.shape[1] == columns
    if classes is not None:
        assert len(np.unique(table.y)) == classes


@needs_data
@pytest.mark.parametrize("name", datasets.names("mesh"))
def test_meshes_have_the_stated_faces(name):
    assert len(load(name).faces) == datasets.describe(name).rows


@needs_data
@pytest.mark.parametrize("name", datasets.names("graph"))
def test_graphs_have_the_stated_nodes(name):
    loops = {"citeseer": 52, "eu-core": 623}.get(name)
    warned = contextlib.nullcontext()
    if loops:
        warned = pytest.warns(graphs.SelfLoopsDroppedWarning, match=f" {loops} self-loops dropped")
    with warned:
        assert load(name).num_nodes == datasets.describe(name).rows


@needs_data
def test_roads_have_the_stated_sensors():
    roads = load("pems")
    assert len(roads.values) == datasets.describe("pems").rows
    assert len(roads.lines) == 848
