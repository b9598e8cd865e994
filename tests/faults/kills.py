"""Processes that are killed (SIGKILL) at random moments, and what is left of their files.

`python tests/faults/kills.py 100` kills each act so often and prints the table of docs/faults.md. This process imports
everything once and computes in one thread; each victim is a fork of it, so a kill costs no import. What a kill
of the whole machine leaves (pages that were not yet on the disk) is not seen here.
"""

import contextlib
import hashlib
import http.server
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pooch
import requests
import safetensors.torch
import torch

import rfgp
from rfgp import datasets
from rfgp.couplings.energy import store
from rfgp.datasets import catalog
from rfgp.files import write_atomically
from rfgp.report import study_table, table_report

LONGEST = 120.0  # seconds, for what is not killed
LOADED = (pooch, requests, safetensors.torch)
"""What the acts import on first use: loaded here, so that kills meet the acts and not the imports."""


@dataclass
class Outcome:
    """What was found after kills.

    Attributes:
        what: The act.
        kills: How many reached it before it ended.
        found: How often each state was found.
        stray: Temporary files that were left.
    """

    what: str
    kills: int = 0
    found: Counter = field(default_factory=Counter)
    stray: int = 0

    def row(self):
        states = ", ".join(f"{name} {count}" for name, count in sorted(self.found.items()))
        return f"| {self.what} | {self.kills} | {states} | {self.stray} |"


def forked(act: Callable[[], object]) -> int:
    """Run an act in a child; return its process number. Its status is 0 unless the act raises."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            act()
            status = 0
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
        finally:
            os._exit(status)
    return pid


def ended(pid: int, seconds: float = LONGEST) -> int | None:
    """Return a child's status when it ends, None where it has not after so many seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
        time.sleep(min(0.001, max(until - time.monotonic(), 0)))
    return None


def killed(act: Callable[[], object], seconds: float) -> bool:
    """Kill an act after so many seconds; return whether it had not yet ended."""
    pid = forked(act)
    status = ended(pid, seconds)
    if status is None:
        os.kill(pid, signal.SIGKILL)
        return os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    assert status == 0, "an act failed that was not killed"
    return False


def again_and_again(*acts: Callable[[], object]) -> None:
    """Do acts in turn until the kill comes, so that it always hits one."""
    until = time.monotonic() + LONGEST
    while time.monotonic() < until:
        for act in acts:
            act()


def written_over(what: str, path: Path, acts: list[Callable[[], object]], kills: int, rng: random.Random) -> Outcome:
    """Kill a process that writes one file in turn by several acts; it must be that of one of them, to the byte."""
    whole = []
    for act in acts:
        act()
        whole.append(path.read_bytes())
    assert len(set(whole)) == len(acts)
    out = Outcome(what)
    begun = time.monotonic()
    for act in acts:
        act()
    both = time.monotonic() - begun
    while out.kills < kills:
        out.kills += killed(lambda: again_and_again(*acts), rng.uniform(0, 2 * both) + 0.002)
        out.found["whole" if path.read_bytes() in whole else "half"] += 1
    out.stray = sum(1 for file in path.parent.iterdir() if file != path)
    return out


def table(seed=0, n=120, d=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n)


def saves(folder: Path, kills: int, rng: random.Random) -> Outcome:
    X, y = table()
    path = folder / "model.safetensors"
    models = [rfgp.SparseSpectrumGP(num_frequencies=128, seed=seed).condition(X, y) for seed in (0, 1)]
    acts = [lambda gp=gp: gp.save(path, data=True) for gp in models]
    out = written_over("`gp.save` over an older model", path, acts, kills, rng)
    assert rfgp.load(path).predict(X).mean.shape == y.shape
    return out


def files(folder: Path, kills: int, rng: random.Random, write: Callable = write_atomically) -> Outcome:
    """Kill a process that does nothing but write; `write` takes a path and bytes."""
    bodies = [np.random.default_rng(seed).bytes(8_000_000) for seed in (0, 1)]
    path = folder / "large"
    acts = [lambda body=body: write(path, body) for body in bodies]
    return written_over("a file of 8 MB over another", path, acts, kills, rng)


def reports(folder: Path, kills: int, rng: random.Random) -> Outcome:
    path, data = folder / "report.html", datasets.make_table(seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = study_table(data, rfgp.SparseSpectrumGP(num_frequencies=16, seed=0), compare=False)
    acts = [lambda k=k: write_atomically(path, table_report(study, data, command=f"run {k}").encode()) for k in (0, 1)]
    return written_over("a report over an older one", path, acts, kills, rng)


def fits(folder: Path, kills: int, rng: random.Random) -> Outcome:
    """Kill a fit with a checkpoint, let it go on, and compare every number with those of a fit that nobody killed."""
    X, y = table()
    options = {"num_frequencies": 32, "learn_frequencies": True, "seed": 0}

    def fit(path=None, out=None):
        warnings.simplefilter("ignore")
        gp = rfgp.SparseSpectrumGP(**options).fit(X, y, max_iterations=15, checkpoint=path)
        if out is not None:
            gp.save(out)

    whole, path, resumed = folder / "whole", folder / "fit.ckpt", folder / "resumed"
    fit(folder / "first.ckpt")  # what is compiled and solved once
    begun = time.monotonic()
    fit(folder / "second.ckpt", whole)
    seconds = time.monotonic() - begun
    expected, out = whole.read_bytes(), Outcome("`fit` with a checkpoint, then started again")
    for file in folder.glob("*.ckpt"):
        file.unlink()
    while out.kills < kills:
        was_hit = killed(lambda: fit(path), rng.uniform(0, seconds))
        out.kills += was_hit
        left = path.stat().st_size if path.exists() else 0
        assert ended(forked(lambda: fit(path, resumed))) == 0
        same = resumed.read_bytes() == expected
        out.found["same fit from nothing" if same and not left else "same fit" if same else "another fit"] += 1
        path.unlink()
    out.stray = len(list(folder.iterdir())) - 2
    return out


BODY = np.random.default_rng(0).bytes(400_000)
ENTRY = datasets.Entry(
    "thing",
    "table",
    "thing.txt",
    "owner/name",
    "c" * 40,
    "thing.txt",
    len(BODY),
    hashlib.sha256(BODY).hexdigest(),
    1,
    "",
)


class Handler(http.server.BaseHTTPRequestHandler):
    """Sends the body in pieces, for some thirty milliseconds."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        with contextlib.suppress(OSError):
            for first in range(0, len(BODY), 20_000):
                self.wfile.write(BODY[first : first + 20_000])
                time.sleep(0.0015)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def server() -> Iterator[str]:
    """A server in a process of its own; its address."""
    http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    pid = forked(http_server.serve_forever)
    try:
        yield f"http://127.0.0.1:{http_server.server_port}"
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        http_server.server_close()


@contextlib.contextmanager
def surrounded(**variables: str) -> Iterator[None]:
    """Environment variables, and the data set of the local server."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    catalog.CATALOG["thing"] = ENTRY
    try:
        yield
    finally:
        del catalog.CATALOG["thing"]
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def downloads(folder: Path, kills: int, rng: random.Random) -> Outcome:
    out, path = Outcome("a download into the cache"), folder / "thing.txt"
    with server() as url, surrounded(RFGP_CACHE_DIR=str(folder), RFGP_DATA_URL=url):
        begun = time.monotonic()
        assert ended(forked(lambda: datasets.fetch("thing"))) == 0
        seconds = time.monotonic() - begun
        while out.kills < kills:
            path.unlink()
            out.kills += killed(lambda: datasets.fetch("thing"), rng.uniform(0, seconds))
            found = path.read_bytes() if path.exists() else None
            out.found["none" if found is None else "whole" if found == BODY else "half"] += 1
            assert ended(forked(lambda: datasets.fetch("thing"))) == 0
            assert path.read_bytes() == BODY
        out.stray = sum(1 for file in folder.iterdir() if file != path)
        for file in folder.iterdir():
            os.utime(file, (0, 0))
        path.unlink()
        datasets.fetch("thing")
        assert [file.name for file in folder.iterdir()] == ["thing.txt"], "strays of long ago are not removed"
    return out


def solutions(folder: Path, kills: int, rng: random.Random) -> Outcome:
    """Kill a process that keeps solved directions in the cache folder."""
    draws = [np.random.default_rng(seed).standard_normal((4096, 16)).astype(np.float16) for seed in (0, 1)]
    with surrounded(RFGP_CACHE_DIR=str(folder)):
        acts = [lambda d=d: store.write("key", store.Solution(d, 1.0, 3, 1)) for d in draws]
        out = written_over("solved directions in the cache", folder / "energy" / "key.npz", acts, kills, rng)
        assert store.read("key", 4096, 16) is not None
        for file in (folder / "energy").iterdir():
            os.utime(file, (0, 0))
        acts[0]()
        assert [file.name for file in (folder / "energy").iterdir()] == ["key.npz"], "strays are not removed"
    return out


ACTS = {"fit": fits, "save": saves, "file": files, "report": reports, "download": downloads, "solutions": solutions}


def run(name: str, folder: Path, kills: int, seed: int = 0) -> Outcome:
    """Return what is left after kills of one act, at moments that follow a seed."""
    return ACTS[name](folder, kills, random.Random(f"{name} {seed}"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    pooch.get_logger().setLevel("WARNING")
    print("| what | kills before it ended | found afterwards | stray files |\n|---|---|---|---|")
    for act in sys.argv[2:] or ACTS:
        with tempfile.TemporaryDirectory() as place:
            print(run(act, Path(place), int(sys.argv[1])).row(), flush=True)
