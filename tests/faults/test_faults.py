"""Faults around the package: kills, full disks, folders that cannot be written, several processes and threads.

Processes are forks of this one, which has imported everything, so a kill meets the act and not an import. What a kill
of the whole machine leaves (pages that were not yet on the disk) is not seen here.
"""

import os
import random
import re
import resource
import signal
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pooch
import pytest
import requests
import safetensors.torch
import served
from served import BODY

import graphs
import rfgp
from rfgp import datasets

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")]
LOADED = (pooch, requests, safetensors.torch)
"""What the acts import on first use."""
KILLS, LONGEST = 6, 120.0


def forked(act):
    """Run an act in a child and return its process number. Its status is 0 unless the act raises."""
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


def ended(pid, seconds=LONGEST):
    """Return a child's status when it ends, or None if it has not after some seconds."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return status
        time.sleep(min(0.001, max(until - time.monotonic(), 0)))
    return None


def killed(act, seconds):
    """Kill an act after some seconds, and return whether it had not yet ended."""
    pid = forked(act)
    status = ended(pid, seconds)
    if status is None:
        os.kill(pid, signal.SIGKILL)
        return os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    assert status == 0, "an act failed that was not killed"
    return False


def seconds_of(act):
    begun = time.monotonic()
    act()
    return time.monotonic() - begun


def table(seed=0, n=120):
    X = np.random.default_rng(seed).standard_normal((n, 3))
    return X, np.sin(X[:, 0]) + X[:, 1] + 0.1 * np.random.default_rng(seed + 1).standard_normal(n)


# --- kills -------------------------------------------------------------------------------------------


def test_a_killed_save_leaves_the_old_file_or_the_new_one(tmp_path):
    """Two files of 4 MB are written in turn until the kill comes, so that it always hits one."""
    X, y = table(n=700)
    path, models = tmp_path / "m", [rfgp.ExactGP(lengthscale=scale).condition(X, y) for scale in (1.0, 2.0)]
    seconds, whole = 0.0, set()
    for gp in models:
        seconds += seconds_of(lambda gp=gp: gp.save(path, data=True))
        whole.add(path.read_bytes())

    def write():
        while True:
            for gp in models:
                gp.save(path, data=True)

    for place in range(KILLS):
        assert killed(write, random.Random(place).uniform(0, 2 * seconds) + 0.002)
        assert path.read_bytes() in whole
    assert len(whole) == 2
    assert rfgp.load(path).predict(X).mean.shape == y.shape


def test_a_killed_fit_ends_at_the_same_likelihood(tmp_path):
    X, y = table()
    whole, path, resumed = tmp_path / "whole", tmp_path / "checkpoint", tmp_path / "resumed"

    def fit(checkpoint=path, out=resumed):
        warnings.simplefilter("ignore")
        gp = rfgp.SparseSpectrumGP(num_frequencies=32, learn_frequencies=True, seed=0)
        gp.fit(X, y, max_iterations=15, checkpoint=checkpoint).save(out)

    fit(tmp_path / "first", whole)  # what is compiled and solved once
    seconds, hits, place = seconds_of(lambda: fit(tmp_path / "second", whole)), 0, 0
    while hits < KILLS:
        place += 1
        hits += killed(fit, random.Random(place).uniform(0, seconds))
        assert ended(forked(fit)) == 0
        reports = [rfgp.load(file).fit_report for file in (resumed, whole)]
        assert reports[0].log_marginal_likelihood == pytest.approx(reports[1].log_marginal_likelihood, abs=0.5)
        path.unlink()


def slowly(handler):
    """Send the body in pieces, for some thirty milliseconds."""
    served.begin(handler)
    for first in range(0, len(BODY), 15_000):
        handler.wfile.write(BODY[first : first + 15_000])
        time.sleep(0.0015)


@pytest.fixture
def offered(monkeypatch, tmp_path):
    """A data set "thing" on a server in a process of its own, and an empty cache."""
    server = served.offer(monkeypatch, slowly)
    pid = forked(server.serve_forever)
    monkeypatch.setenv("RFGP_CACHE_DIR", str(tmp_path))
    yield
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    server.server_close()


def test_a_killed_download_leaves_no_half_file(offered, tmp_path):
    path, hits, place = tmp_path / "uci" / "thing.txt", 0, 0
    seconds = seconds_of(lambda: datasets.fetch("thing"))
    while hits < KILLS:
        path.unlink()
        place += 1
        hits += killed(lambda: datasets.fetch("thing"), random.Random(place).uniform(0, seconds))
        assert not path.exists() or path.read_bytes() == BODY
        assert ended(forked(lambda: datasets.fetch("thing"))) == 0
        assert path.read_bytes() == BODY
    for file in path.parent.iterdir():
        os.utime(file, (0, 0))
    path.unlink()
    datasets.fetch("thing")
    assert list(path.parent.iterdir()) == [path], "strays of long ago are not removed"


# --- disks -------------------------------------------------------------------------------------------


def in_child(act):
    """Return what an act in a forked child returns as a text, and its warnings, within a minute."""
    receiver, sender = os.pipe()

    def told():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                said = str(act())
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
        os.write(sender, "\n".join([said, *(f"{w.category.__name__}: {w.message}" for w in caught)]).encode()[:4000])

    pid = forked(told)
    os.close(sender)
    status = ended(pid, 60)
    with os.fdopen(receiver, "rb") as pipe:
        assert status == 0, "the child hangs" if status is None else "the child fails"
        return pipe.read().decode()


def full(size=4096):
    """Let no file of this process grow beyond so many bytes, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_full_disk_leaves_the_old_file_and_a_fit_goes_on(tmp_path, monkeypatch):
    (X, y), path = table(), tmp_path / "model"
    rfgp.SparseSpectrumGP(num_frequencies=64, seed=0).condition(X, y).save(path)
    before = path.read_bytes()

    def save():
        full()
        rfgp.SparseSpectrumGP(num_frequencies=80, coupling="iid", seed=1).condition(X, y).save(path)

    def fit():
        full(300)
        warnings.simplefilter("ignore", rfgp.ConvergenceWarning)
        gp = rfgp.SparseSpectrumGP(num_frequencies=16, coupling="iid", seed=0)
        return gp.fit(X, y, max_iterations=3, checkpoint=tmp_path / "checkpoint").predict(X).mean.shape

    said = in_child(save)
    assert re.match("FileWriteError: .*File too large", said), said
    assert path.read_bytes() == before
    said = in_child(fit)
    assert said.startswith("(120,)"), said
    assert re.search("CheckpointWarning: .*continues without a checkpoint", said), said
    assert {file.name for file in tmp_path.iterdir()} == {"model"}


def test_a_download_on_a_full_disk_is_a_named_error(offered, tmp_path):

    def fetch():
        full()
        datasets.fetch("thing")

    said = in_child(fetch)
    assert re.match("DataError: thing: .*File too large. Make room", said), said
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_cache_folder_is_that_of_the_system(offered, tmp_path, monkeypatch):
    monkeypatch.delenv("RFGP_CACHE_DIR")
    for platform, variable, folder in (
        ("win32", "LOCALAPPDATA", "rfgp/rfgp/Cache"),
        ("darwin", "HOME", "Library/Caches/rfgp"),
        ("linux", "XDG_CACHE_HOME", "rfgp"),
    ):
        monkeypatch.setenv(variable, str(tmp_path / platform))
        monkeypatch.setattr(sys, "platform", platform)
        assert datasets.fetch("thing") == tmp_path / platform / folder / "uci" / "thing.txt"


# --- processes and threads ---------------------------------------------------------------------------


def test_processes_share_a_cache(offered, tmp_path):
    """They may download the same twice, and all have it whole."""

    def fetch():
        assert datasets.fetch("thing").read_bytes() == BODY

    pids = [forked(fetch) for _ in range(3)]
    assert [ended(pid) for pid in pids] == [0, 0, 0]
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert names == ["uci/thing.txt"]


def models():
    X, y = table(n=200)
    graph = graphs.Graph.from_edges([(i, i + 1) for i in range(200)])
    nodes = list(range(0, 200, 3))
    yield rfgp.SparseSpectrumGP(num_frequencies=32, seed=0).condition(X, y), X
    yield rfgp.ExactGP().condition(X, y), X
    for features in ("walks", "chebyshev", "exact"):
        gp = rfgp.GraphGP(graph, features=features, num_walkers=8, seed=0)
        yield gp.condition(nodes, np.sin(np.array(nodes) / 30)), list(range(200))


def test_eight_threads_predict_with_one_model():
    """The same bits as one thread, also where all of them ask first for what is computed once."""
    for (alone, X), (shared, _) in zip(models(), models(), strict=True):
        expected = [alone.predict(X).mean, alone.predict(X).variance]
        barrier = threading.Barrier(8)

        def ask(_, gp=shared, X=X, barrier=barrier):
            barrier.wait()
            return [(gp.predict(X).mean, gp.predict(X).variance) for _ in range(3)]

        with ThreadPoolExecutor(8) as pool:
            answers = [answer for answers in pool.map(ask, range(8)) for answer in answers]
        for pair in answers:
            np.testing.assert_array_equal(pair, expected)
