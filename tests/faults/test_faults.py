"""Faults around the package: kills, full disks, folders that cannot be written, several processes and threads.

docs/faults.md has the table of a hundred kills each.
"""

import os
import random
import re
import resource
import signal
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import kills
import numpy as np
import pytest

import graphs
import rfgp
from rfgp import datasets
from rfgp.couplings.energy import store
from rfgp.errors import DataError

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")]

GOOD = {"none", "whole", "same fit", "same fit from nothing"}


@pytest.mark.parametrize("act", kills.ACTS)
def test_a_kill_leaves_a_whole_file_and_a_fit_that_goes_on(tmp_path, act):
    found = kills.run(act, tmp_path, 6)
    assert found.kills == 6
    assert set(found.found) <= GOOD, found


def test_planted_a_file_that_is_written_in_place_is_found(tmp_path):
    def in_place(path, content):
        with path.open("wb") as file:
            for first in range(0, len(content), 100_000):
                file.write(content[first : first + 100_000])

    found = kills.files(tmp_path, 20, random.Random(0), in_place)
    assert found.found["half"] > 0


def in_child(act):
    """Return what an act in a forked child returns as a text, within a minute."""
    receiver, sender = os.pipe()

    def told():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                said = str(act())
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
        os.write(sender, "\n".join([said, *(f"{w.category.__name__}: {w.message}" for w in caught)]).encode()[:4000])

    pid = kills.forked(told)
    os.close(sender)
    status = kills.ended(pid, 60)
    if status is None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    with os.fdopen(receiver, "rb") as pipe:
        assert status == 0, "the child hangs" if status is None else "the child fails"
        return pipe.read().decode()


def full(size=4096):
    """Let no file of this process grow beyond so many bytes, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_full_disk_leaves_the_old_file_and_a_fit_goes_on(tmp_path, monkeypatch):
    X, y = kills.table()
    gp = rfgp.SparseSpectrumGP(num_frequencies=64, seed=0).condition(X, y)
    path, cache = tmp_path / "model", tmp_path / "cache"
    gp.save(path)
    before = path.read_bytes()
    monkeypatch.setenv("RFGP_CACHE_DIR", str(cache))

    def save():
        full()
        rfgp.SparseSpectrumGP(num_frequencies=80, seed=1).condition(X, y).save(path)

    def fit():
        full(300)
        warnings.simplefilter("ignore", rfgp.ConvergenceWarning)
        gp = rfgp.SparseSpectrumGP(num_frequencies=16, seed=0)
        return gp.fit(X, y, max_iterations=3, checkpoint=tmp_path / "ckpt").predict(X).mean.shape

    def keep():
        full()
        store.write("key", store.Solution(np.ones((4096, 16), np.float16), 1.0, 3, 1))

    said = in_child(save)
    assert "File too large" in said, said
    assert path.read_bytes() == before
    said = in_child(fit)
    assert said.startswith("(120,)"), said
    assert re.search("CheckpointWarning: .*continues without a checkpoint", said), said
    assert "CacheWarning: Solved directions could not be kept" in in_child(keep)
    assert not [file.name for file in (cache / "energy").iterdir() if file.name[0] == "." or file.name == "key.npz"]
    assert {file.name for file in tmp_path.iterdir()} == {"model", "cache", "ckpt"}


def test_a_download_on_a_full_disk_is_a_named_error(tmp_path):
    def fetch():
        full()
        datasets.fetch("thing")

    with kills.server() as url, kills.surrounded(RFGP_CACHE_DIR=str(tmp_path), RFGP_DATA_URL=url):
        said = in_child(fetch)
    assert re.match("DataError: thing: .*File too large. Make room", said), said
    assert list(tmp_path.iterdir()) == []


def test_a_cache_folder_that_cannot_be_written(tmp_path, monkeypatch):
    """Root may write anywhere, so a file stands in the folder's place."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RFGP_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(rfgp.CacheWarning, match="RFGP_CACHE_DIR"):
        store.write("key", store.Solution(np.ones((8, 2), np.float16), 1.0, 3, 1))
    with kills.server() as url, kills.surrounded(RFGP_DATA_URL=url), pytest.raises(DataError, match="RFGP_CACHE_DIR"):
        datasets.fetch("thing")


def test_two_processes_on_one_cache(tmp_path):
    """They may solve and download the same twice; both have it whole."""
    with kills.server() as url, kills.surrounded(RFGP_CACHE_DIR=str(tmp_path), RFGP_DATA_URL=url):

        def both():
            assert datasets.fetch("thing").read_bytes() == kills.BODY
            coupling, generator = rfgp.couplings.Energy(distances=[[0.4, 1.0], [1.1, 1.0]]), rfgp.random.generator(0)
            assert coupling.sample(24, 3, generator=generator).shape == (24, 3)

        pids = [kills.forked(both) for _ in range(3)]
        assert [kills.ended(pid) for pid in pids] == [0, 0, 0]
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert re.fullmatch(r"energy/\w+\.npz thing\.txt", " ".join(names)), names


def models():
    X, y = kills.table(n=200)
    graph = graphs.Graph.from_edges([(i, i + 1) for i in range(200)])
    nodes = list(range(0, 200, 3))
    yield rfgp.SparseSpectrumGP(num_frequencies=32, seed=0).condition(X, y), X
    yield rfgp.ExactGP().condition(X, y), X
    for features in ("walks", "chebyshev", "exact"):
        gp = rfgp.GraphGP(graph, features=features, num_walkers=8, seed=0)
        yield gp.condition(nodes, np.sin(np.array(nodes) / 30)), list(range(200))


def test_eight_threads_that_predict_with_one_model():
    """The same bits as one thread, also where all of them ask first for what is computed once."""
    for first, second in zip(models(), models(), strict=True):
        (alone, X), (shared, _) = first, second
        expected = [alone.predict(X).mean, alone.predict(X).variance]
        barrier = threading.Barrier(8)

        def ask(_, gp=shared, X=X, barrier=barrier):
            barrier.wait()
            return [(gp.predict(X).mean, gp.predict(X).variance) for _ in range(3)]

        with ThreadPoolExecutor(8) as pool:
            answers = [answer for answers in pool.map(ask, range(8)) for answer in answers]
        assert all(
            np.array_equal(found, value) for pair in answers for found, value in zip(pair, expected, strict=True)
        )
