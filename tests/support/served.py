"""A data set "thing" of the catalog on a local server, whose answers a test chooses."""

import contextlib
import hashlib
import http.server

import numpy as np

from rfgp import datasets

BODY = np.random.default_rng(0).bytes(300_000)
SHA = hashlib.sha256(BODY).hexdigest()
PLACE = f"owner/name/{'c' * 40}/data/thing.txt"
ENTRY = datasets.Entry(
    "thing", "table", "uci/thing.txt", "owner/name", "c" * 40, "data/thing.txt", len(BODY), SHA, 1, ""
)


def offer(monkeypatch, answer):
    """Put the data set into the catalog, and return a server that answers by a function of the handler of a request."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            with contextlib.suppress(OSError):
                answer(self)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads, server.block_on_close = True, False
    monkeypatch.setenv("RFGP_DATA_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setitem(datasets.CATALOG, "thing", ENTRY)
    return server


def begin(handler):
    """Send what comes before the body."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(BODY)))
    handler.end_headers()
