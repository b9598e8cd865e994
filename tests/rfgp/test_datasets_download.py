import contextlib
import hashlib
import http.server
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import graphs
from rfgp import datasets
from rfgp.datasets import download, transfer
from rfgp.errors import DataError, InvalidArgumentError

BODY = np.random.default_rng(0).bytes(300_000)
WRONG = BODY[:-1] + bytes([BODY[-1] ^ 1])
SHA = hashlib.sha256(BODY).hexdigest()
TINY = transfer.Patience(connect=1.0, read=0.3, total=5.0, attempts=4, backoff=0.01)
ENTRY = datasets.Entry(
    "thing", "table", "uci/thing.txt", "owner/name", "c" * 40, "data/thing.txt", len(BODY), SHA, 1, ""
)


class Server:
    """A local server whose answers are a list of functions of the handler; the last one repeats."""

    def __init__(self):
        self.answers = []
        self.ranges = []  # the Range header of every request
        self.paths = []
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
                answer = outer.answers[min(len(outer.ranges), len(outer.answers) - 1)]
                outer.paths.append(self.path)
                outer.ranges.append(self.headers.get("Range"))
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


def begin(handler, status, length, **headers):
    handler.send_response(status)
    handler.send_header("Content-Length", str(length))
    for key, value in headers.items():
        handler.send_header(key.replace("_", "-"), value)
    handler.end_headers()


def whole(handler, body=BODY):
    begin(handler, 200, len(body))
    handler.wfile.write(body)


def ranged(handler):
    asked = handler.headers.get("Range")
    if asked is None:
        return whole(handler)
    start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1])
    begin(handler, 206, len(BODY) - start, Content_Range=f"bytes {start}-{len(BODY) - 1}/{len(BODY)}")
    return handler.wfile.write(BODY[start:])


def truncated(count=100_000):
    def answer(handler):
        begin(handler, 200, len(BODY))
        handler.wfile.write(BODY[:count])

    return answer


def lies(handler):
    whole(handler, WRONG)


def endless(handler):
    handler.send_response(200)
    handler.end_headers()
    while not handler.stopped.is_set():
        handler.wfile.write(b"x" * 65536)


def stalls(handler):
    begin(handler, 200, len(BODY))
    handler.wfile.write(BODY[:50_000])
    handler.stopped.wait(3)


def drips(handler):
    begin(handler, 200, len(BODY))
    for i in range(len(BODY)):
        handler.wfile.write(BODY[i : i + 1])
        if handler.stopped.wait(0.05):
            return


def status(code):
    return lambda handler: begin(handler, code, 0)


def wrong_range(handler):
    if handler.headers.get("Range") is None:
        return whole(handler)
    begin(handler, 206, len(BODY) - 7, Content_Range=f"bytes 7-{len(BODY) - 1}/{len(BODY)}")
    return handler.wfile.write(BODY[7:])


def closes(handler):
    handler.connection.shutdown(socket.SHUT_RDWR)


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
    monkeypatch.setattr(download, "PATIENCE", TINY)
    monkeypatch.setitem(datasets.CATALOG, "thing", ENTRY)
    return tmp_path / "cache"


def files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def parts(folder):
    """Return the lengths of the kept parts, after a check that nothing else is in the folder."""
    assert all(name.endswith(".part") for name in files(folder)), files(folder)
    return [path.stat().st_size for path in folder.rglob("*.part")]


def fails(server, cache, *answers, kept=0):
    """Fetch from a failing server; check what is left, and that an honest server then mends it."""
    server.answers = list(answers)
    with pytest.raises(DataError) as caught:
        datasets.fetch("thing")
    message, seen = str(caught.value), len(server.ranges)
    assert message.startswith(f"thing: {server.url}/owner/name/{'c' * 40}/data/thing.txt ")
    assert "RFGP_DATA_URL" in message
    assert "as uci/thing.txt in a folder and name it in RFGP_DATA_DIR" in message
    assert parts(cache) == ([kept] if kept else [])
    server.answers = [ranged]
    check(server, cache)
    assert server.ranges[seen:] == [f"bytes={kept}-" if kept else None]
    return message, seen


def check(server, cache):
    path = datasets.fetch("thing")
    assert path == cache / "uci" / "thing.txt"
    assert path.read_bytes() == BODY
    assert files(cache) == ["thing.txt"]


def test_an_honest_server_is_asked_once(server, cache):
    server.answers, calls = [whole], []
    path = datasets.fetch("thing", progress=lambda *call: calls.append(call))
    assert path.read_bytes() == BODY
    check(server, cache)
    assert server.paths == [f"/owner/name/{'c' * 40}/data/thing.txt"]
    assert {(what, total) for what, _, total in calls} == {("thing", len(BODY))}
    done = [done for _, done, _ in calls]
    assert done == sorted(done)
    assert (done[0], done[-1]) == (0, len(BODY))
    assert datasets.fetch("thing", download=False) == path


def test_a_short_body_is_resumed(server, cache):
    server.answers = [truncated(), ranged]
    check(server, cache)
    assert server.ranges == [None, "bytes=100000-"]


def test_a_server_that_knows_no_ranges_starts_anew(server, cache):
    server.answers = [truncated(), whole]
    check(server, cache)
    assert server.ranges == [None, "bytes=100000-"]


def test_a_range_that_was_not_asked_for_is_not_used(server, cache):
    server.answers = [truncated(), wrong_range]
    check(server, cache)
    assert server.ranges == [None, "bytes=100000-", None]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (wrong_range, "the server answered with a range that was not asked for"),
        (status(416), "the server answered that the file ends earlier"),
    ],
)
def test_a_bad_range_at_the_last_attempt_is_named(server, cache, monkeypatch, answer, reason):
    monkeypatch.setattr(download, "PATIENCE", transfer.Patience(1.0, 0.3, 5.0, 2, 0.01))
    message, _ = fails(server, cache, truncated(), answer)
    assert f"could not be downloaded: {reason} (2 attempts). Check" in message


def test_a_refused_range_starts_anew(server, cache):
    server.answers = [truncated(), status(416), whole]
    check(server, cache)
    assert server.ranges == [None, "bytes=100000-", None]


def test_wrong_bytes_once_are_mended(server, cache):
    server.answers = [lies, whole]
    check(server, cache)
    assert server.ranges == [None, None]


def test_wrong_bytes_twice_are_an_error(server, cache):
    message, seen = fails(server, cache, lies)
    assert seen == 2
    found = hashlib.sha256(WRONG).hexdigest()
    assert f"sent a wrong file (expected sha256 {SHA}, found {found}; 2 attempts). It was not kept." in message


def test_wrong_bytes_at_the_last_attempt_are_an_error(server, cache):
    message, seen = fails(server, cache, status(500), status(500), status(500), lies)
    assert seen == 4
    assert "sent a wrong file (expected" in message


def test_an_endless_body_is_cut_off(server, cache):
    start = time.monotonic()
    message, seen = fails(server, cache, endless)
    assert seen == 2
    assert f"sent a wrong file (more than its {len(BODY)} bytes arrived; 2 attempts). It was not kept." in message
    assert time.monotonic() - start < 2


def test_a_stalled_body_is_resumed(server, cache):
    server.answers = [stalls, ranged]
    check(server, cache)
    assert server.ranges == [None, "bytes=50000-"]


def test_a_server_that_always_stalls_is_an_error(server, cache, monkeypatch):
    monkeypatch.setattr(download, "PATIENCE", transfer.Patience(1.0, 0.1, 5.0, 2, 0.01))
    message, seen = fails(server, cache, stalls, kept=50_000)
    assert seen == 2
    assert "could not be downloaded: timed out (2 attempts)." in message
    assert f"50000 of {len(BODY)} bytes are kept; the next call goes on from there." in message


def test_a_dripping_server_is_left_at_the_deadline(server, cache, monkeypatch):
    monkeypatch.setattr(download, "PATIENCE", transfer.Patience(1.0, 0.3, 0.4, 4, 0.01))
    server.answers, start = [drips], time.monotonic()
    with pytest.raises(DataError, match=r"could not be downloaded: it was not complete after 0\.4 s \(1 attempt\)"):
        datasets.fetch("thing")
    assert time.monotonic() - start < 1
    assert 0 < parts(cache)[0] < 20
    server.answers = [ranged]
    check(server, cache)


@pytest.mark.parametrize("code", [403, 404, 204])
def test_a_refusal_is_final(server, cache, code):
    message, seen = fails(server, cache, status(code))
    assert seen == 1
    assert re.search(rf"could not be downloaded: the server answered {code} [A-Z][A-Za-z ]+ \(1 attempt\)\. ", message)


def test_a_server_in_trouble_is_asked_again(server, cache):
    server.answers = [status(500), status(503), whole]
    check(server, cache)
    assert len(server.ranges) == 3


def test_a_server_that_stays_in_trouble_is_an_error(server, cache):
    message, seen = fails(server, cache, status(500))
    assert seen == 4
    assert "the server answered 500 Internal Server Error (4 attempts)" in message


def test_a_body_that_is_always_short_is_an_error(server, cache):
    message, seen = fails(server, cache, lambda h: whole(h, BODY[:9]), kept=9)
    assert seen == 4
    assert f"the connection ended after 9 of {len(BODY)} bytes (4 attempts)" in message


def test_a_closed_connection_is_an_error(server, cache):
    message, seen = fails(server, cache, closes)
    assert seen == 4
    assert "Remote end closed connection without response (4 attempts)" in message


def test_a_refused_connection_is_an_error(server, cache, monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RFGP_DATA_URL", f"http://127.0.0.1:{unused.getsockname()[1]}")
        try:
            raise FileNotFoundError(2, "no such thing")
        except FileNotFoundError:  # what the caller was handling is not the reason
            with pytest.raises(DataError, match=r"Connection refused \(4 attempts\)\. Check the connection"):
                datasets.fetch("thing")
    assert parts(cache) == []


@pytest.mark.parametrize("address", ["ftp://host", "host/path"])
def test_a_mirror_needs_an_address(cache, monkeypatch, address):
    monkeypatch.setenv("RFGP_DATA_URL", address)
    with pytest.raises(InvalidArgumentError, match=f"RFGP_DATA_URL is '{address}', but it must begin with http://"):
        datasets.fetch("thing")


def test_an_impossible_address_is_not_tried_again(cache, monkeypatch):
    monkeypatch.setenv("RFGP_DATA_URL", "http://")
    with pytest.raises(DataError, match=r"could not be downloaded: .*\(1 attempt\)"):
        datasets.fetch("thing")


def test_a_slash_after_the_mirror_is_harmless(monkeypatch):
    monkeypatch.setenv("RFGP_DATA_URL", "https://mirror/data/")
    assert datasets.describe("torus").url.startswith("https://mirror/data/mikedh/trimesh/a513c0e2cfa6dfbd")
    monkeypatch.delenv("RFGP_DATA_URL")
    assert datasets.describe("torus").url.startswith("https://raw.githubusercontent.com/mikedh/trimesh/a513")


def test_a_full_part_needs_no_request_and_a_long_one_is_dropped(server, cache):
    part = cache / "uci" / f".thing.txt.{SHA[:12]}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(BODY)
    check(server, cache)
    assert server.ranges == []
    (cache / "uci" / "thing.txt").unlink()
    part.write_bytes(BODY + b"x")
    server.answers = [ranged]
    check(server, cache)
    (cache / "uci" / "thing.txt").unlink()
    part.write_bytes(WRONG)  # damaged on the disk
    check(server, cache)
    assert server.ranges == [None, None]


def test_a_damaged_cache_is_mended(server, cache):
    server.answers = [whole]
    check(server, cache)
    (cache / "uci" / "thing.txt").write_bytes(WRONG)
    with pytest.raises(DataError, match=r"thing\.txt is damaged and downloads are switched off\. Allow them, or save"):
        datasets.fetch("thing", download=False)
    check(server, cache)
    assert len(server.ranges) == 2


def test_without_downloads_a_missing_file_is_an_error(server, cache):
    with pytest.raises(DataError) as caught:
        datasets.load("thing", download=False)
    assert f"{cache / 'uci' / 'thing.txt'} is missing and downloads are switched off" in str(caught.value)
    assert f"save {server.url}/owner/name/{'c' * 40}/data/thing.txt as uci/thing.txt in a folder" in str(caught.value)
    assert server.ranges == []


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
        full.setattr(Path, "write_bytes", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(DataError, match=r"written: No space left on device\. Make room or give access there"):
            datasets.fetch("thing")
    assert parts(cache) == [len(BODY)]
    check(server, cache)


CHILD = """
import sys
from rfgp import datasets
from rfgp.datasets import download, transfer
size, sha = int(sys.argv[1]), sys.argv[2]
datasets.CATALOG["thing"] = datasets.Entry(
    "thing", "table", "uci/thing.txt", "owner/name", "c" * 40, "data/thing.txt", size, sha, 1, "")
print("ready", flush=True)
sys.stdin.readline()
print(datasets.fetch("thing"), flush=True)
"""


def child():
    """Start a process that fetches when it is told to; its environment names cache and server."""
    command = [sys.executable, "-c", CHILD, str(len(BODY)), SHA]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def go(process):
    assert process.stdout.readline() == "ready\n"
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.mark.skipif(os.name == "nt", reason="no SIGKILL and no kept part there")
def test_a_killed_process_is_resumed(server, cache):
    def slow(handler):
        begin(handler, 200, len(BODY))
        handler.wfile.write(BODY[:120_000])
        handler.stopped.wait(30)

    server.answers = [slow, ranged]
    with child() as process:
        go(process)
        until = time.monotonic() + 10
        while not any(path.stat().st_size == 120_000 for path in cache.rglob("*.part")):
            assert time.monotonic() < until
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert not (cache / "uci" / "thing.txt").exists()
    path = datasets.fetch("thing")
    assert path.read_bytes() == BODY
    assert server.ranges == [None, "bytes=120000-"]


def test_two_processes_at_once_both_succeed(server, cache):
    both = threading.Barrier(2)

    def together(handler):
        begin(handler, 200, len(BODY))
        handler.wfile.write(BODY[:120_000])
        both.wait(10)  # each waits until the other, too, has begun
        handler.wfile.write(BODY[120_000:])

    server.answers = [together]
    with child() as one, child() as two:
        go(one)
        go(two)
        path = str(cache / "uci" / "thing.txt")
        assert [process.stdout.readline().strip() for process in (one, two)] == [path, path]
    assert server.ranges == [None, None]
    check(server, cache)


def test_two_threads_at_once_both_succeed(server, cache):
    server.answers, found = [whole], []
    threads = [threading.Thread(target=lambda: found.append(datasets.fetch("thing"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [cache / "uci" / "thing.txt"] * 4
    check(server, cache)


def test_without_locks_nothing_is_kept_and_the_file_still_comes(server, cache, monkeypatch):
    monkeypatch.setattr(transfer, "_lock", lambda _: False)
    server.answers = [truncated(), ranged]
    datasets.fetch("thing")
    assert server.ranges == [None, "bytes=100000-"]
    assert (cache / "uci" / "thing.txt").read_bytes() == BODY
    (cache / "uci" / "thing.txt").unlink()
    server.answers = [truncated(), lies]
    with pytest.raises(DataError, match="sent a wrong file"):
        datasets.fetch("thing")
    assert sum(parts(cache)) == 0


def test_unknown_names_are_answered_with_similar_ones():
    with pytest.raises(
        InvalidArgumentError, match=r"no data set 'Air-foil'\. Did you mean airfoil\? rfgp\.datasets\.na"
    ):
        datasets.fetch("Air-foil")
    with pytest.raises(InvalidArgumentError, match=r"no data set 'xyzzy'\. rfgp\.datasets\.names\(\) lists all 34"):
        datasets.load("xyzzy")
    with pytest.raises(InvalidArgumentError, match="no data set None"):
        datasets.split(None)
    with pytest.raises(InvalidArgumentError, match="no kind 'tables' of data set; the kinds are table, class"):
        datasets.names("tables")


def test_the_catalog_is_complete():
    assert len(datasets.names()) == len(datasets.CATALOG) == 34
    assert [len(datasets.names(kind)) for kind in ("table", "classification", "mesh", "graph", "roads")] == [
        9,
        8,
        6,
        10,
        1,
    ]
    for name, entry in datasets.CATALOG.items():
        assert name == entry.name
        assert re.fullmatch("[0-9a-f]{40}", entry.commit)
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
    return Path(named) if named else Path(__file__).parents[3] / "shared" / "data"


needs_data = pytest.mark.skipif(not data_folder().is_dir(), reason="no folder with the data: set RFGP_DATA_DIR")


@pytest.mark.skipif(not (data_folder() / "SOURCES.md").is_file(), reason="no SOURCES.md: set RFGP_DATA_DIR")
def test_the_catalog_is_the_list_of_sources():
    text = (data_folder() / "SOURCES.md").read_text(encoding="utf-8")
    lines = [line.strip("|").split("|") for line in text.splitlines() if re.match(r"\| \w+/", line)]
    listed = {tuple(cell.strip() for cell in line) for line in lines}
    assert listed == {
        (e.file, e.repository, e.commit[:12], e.path, str(e.size), e.sha256) for e in datasets.CATALOG.values()
    }
    for entry in datasets.CATALOG.values():
        assert f"{entry.repository} {entry.commit}" in text


def load(name):
    if not (data_folder() / datasets.describe(name).file).is_file():
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
        assert (*entry.drop, *table.columns, table.target) == entry.columns


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
