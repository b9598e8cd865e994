"""Checkpoints: a killed fit resumes to the same bits, and foreign files raise and are unchanged."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from problems import table

import graphs
import rfgp
from rfgp.fitting import fingerprint, open_checkpoint_log
from rfgp.fitting.checkpoint import FileCheckpointLog
from rfgp.regression import begin
from rfgp.rows import Chunk

pytestmark = pytest.mark.filterwarnings("ignore::rfgp.VarianceStarvationWarning")  # most have few features, to be fast

SCRIPT = """
import os, signal, sys, warnings
import numpy as np, rfgp
from rfgp.fitting import checkpoint
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X = rng.standard_normal((1300, 3))
y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(1300)
remember = checkpoint.FileCheckpointLog.memoize
count = 0
def counted(self, name, compute):
    global count
    before = self.path.stat().st_size
    tensors = remember(self, name, compute)
    count += self.path.stat().st_size > before
    if count == stop:
        with self.path.open("ab") as file:
            file.write(b"half a record")
        os.kill(os.getpid(), signal.SIGKILL)
    return tensors
checkpoint.FileCheckpointLog.memoize = counted
for stop, path, out in ((1, "c", "killed"), (7, "c", "killed"), (-1, "c", "resumed"), (-1, "whole.c", "whole")):
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        continue
    gp = rfgp.SparseSpectrumGP(num_frequencies=8, seed=0, learn_frequencies=sys.argv[1] == "learned")
    gp.fit(rfgp.tables.Batches([(X, y)]), max_iterations=12, checkpoint=path)
    p = gp.predict(X[:50])
    np.save(out, np.concatenate([p.mean, p.variance, [gp.fit_report.log_marginal_likelihood, count]]))
    os._exit(0)
"""


@pytest.mark.parametrize("kind", ["fixed", "learned"])
@pytest.mark.slow
def test_resumed_fit_equals_an_uninterrupted_one(kind, tmp_path):
    """SIGKILL ends a process after step k, while it writes the next step, several times."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, kind]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert ran.stdout.split() == [str(-signal.SIGKILL)] * 2 + ["0"] * 2, ran.stderr
    assert not (tmp_path / "killed.npy").exists()
    *resumed, steps = np.load(tmp_path / "resumed.npy")
    *whole, all_steps = np.load(tmp_path / "whole.npy")
    assert all_steps == steps + 8
    np.testing.assert_array_equal(resumed, whole)


def test_finished_fit_is_read_from_its_checkpoint(tmp_path, monkeypatch):
    X, y = table(300)
    gp = rfgp.SparseSpectrumGP(num_frequencies=8, seed=0).fit(X, y, checkpoint=tmp_path / "c")
    before, computed, remember = (tmp_path / "c").read_bytes(), [], FileCheckpointLog.memoize

    def watched(self, name, compute):
        return remember(self, name, lambda: computed.append(name) or compute())

    monkeypatch.setattr(FileCheckpointLog, "memoize", watched)
    again = rfgp.SparseSpectrumGP(num_frequencies=8, seed=0).fit(X, y, checkpoint=tmp_path / "c")
    np.testing.assert_array_equal(again.predict(X).variance, gp.predict(X).variance)
    assert again.fit_report == gp.fit_report
    assert computed == ["starts"]  # the first step only, which is compared
    assert (tmp_path / "c").read_bytes() == before


def test_exact_models_have_checkpoints(tmp_path):
    X, y = table(60)
    gp = rfgp.ExactGP().fit(X, y, checkpoint=tmp_path / "c")
    again = rfgp.ExactGP().fit(X, y, checkpoint=tmp_path / "c")
    np.testing.assert_array_equal(again.predict(X).mean, gp.predict(X).mean)


@pytest.mark.filterwarnings("ignore::graphs.GraphWarning")
@pytest.mark.parametrize("kind", ["table", "graph"])
def test_first_step_detects_another_hyperprior(kind, tmp_path):
    def make(changed):
        prior = torch.distributions.LogNormal(-8.0 if changed else 0.0, 0.5)
        if kind == "table":
            return rfgp.SparseSpectrumGP(num_frequencies=8, seed=0, priors={"noise": prior}), table(100)
        graph = graphs.Graph.from_networkx(nx.gnm_random_graph(30, 80, seed=0))
        gp = rfgp.GraphGP(graph, features="walks", num_walkers=4, seed=0, priors={"noise": prior})
        return gp, (list(range(20)), np.sin(np.arange(20.0)))

    gp, data = make(False)
    gp.fit(*data, checkpoint=tmp_path / "c")
    again, data = make(False)
    again.fit(*data, checkpoint=tmp_path / "c")
    assert again.fit_report == gp.fit_report
    other, data = make(True)
    with pytest.raises(rfgp.CheckpointError, match=r"another fit|next step"):
        other.fit(*data, checkpoint=tmp_path / "c")


@pytest.mark.parametrize("change", ["graph", "weights", "seed", "features", "kernel", "walkers"])
def test_checkpoint_of_another_fit_on_nodes_raises(change, tmp_path):
    """Given starting values are equal for all graphs. The sources of the features distinguish the fits."""
    nodes, y = list(range(20)), np.sin(np.arange(20.0))

    def make(change):
        edges = np.array(nx.gnm_random_graph(30, 80, seed=int(change == "graph")).edges)
        graph = graphs.Graph.from_edges(edges, np.where(np.arange(80) == 3, 1.0 + (change == "weights"), 1.0))
        options = {"seed": int(change == "seed"), "num_walkers": 8 if change == "walkers" else 4, "exact_hops": 2}
        options["features"] = "exact" if change == "features" else "walks"
        kernel = "regularized-laplacian" if change == "kernel" else "diffusion"
        return rfgp.GraphGP(graph, kernel, outputscale=1.0, noise=0.1, **options)

    same, again, other = (fingerprint(begin(make(c).spec, Chunk(nodes, y)), (), None) for c in (None, None, change))
    assert same == again != other
    make(None).fit(nodes, y, checkpoint=tmp_path / "c")
    before = (tmp_path / "c").read_bytes()
    again = make(None).fit(nodes, y, checkpoint=tmp_path / "c")
    assert np.isfinite(again.fit_report.log_marginal_likelihood)
    with pytest.raises(rfgp.CheckpointError, match="is the checkpoint of another fit"):
        make(change).fit(nodes, y, checkpoint=tmp_path / "c")
    assert (tmp_path / "c").read_bytes() == before


@pytest.mark.parametrize("change", ["data", "targets", "options", "seed", "fixed", "iterations", "noise"])
def test_checkpoint_of_another_fit_raises(change, tmp_path):
    X, y = table(100)
    options, fit = {"num_frequencies": 8, "seed": 0}, {}
    rfgp.SparseSpectrumGP(**options).fit(X, y, checkpoint=tmp_path / "c")
    X, y = (X + 1e-9 if change == "data" else X), (y * (1 + 1e-12) if change == "targets" else y)
    options |= {"options": {"ard": False}, "seed": {"seed": 1}}.get(change, {})
    fit |= {"fixed": {"fixed": "noise"}, "iterations": {"max_iterations": 7}, "noise": {"noise": 0 * y}}.get(change, {})
    gp = rfgp.SparseSpectrumGP(**options)
    before = (tmp_path / "c").read_bytes()
    with pytest.raises(rfgp.CheckpointError, match="is the checkpoint of another fit"):
        gp.fit(X, y, checkpoint=tmp_path / "c", **fit)
    assert (tmp_path / "c").read_bytes() == before
    with pytest.raises(rfgp.NotFittedError):
        gp.predict(X)


@pytest.mark.parametrize("content", [b"", b"x", b"PK\x03\x04" * 99, "its first line", "its first line, and more"])
def test_other_files_raise_and_are_unchanged(content, tmp_path):
    X, y = table(50)
    if isinstance(content, str):
        rfgp.SparseSpectrumGP(num_frequencies=4, seed=0).fit(X, y, checkpoint=tmp_path / "c")
        first = (tmp_path / "c").read_bytes().split(b"\n")[0] + b"\n"
        content = first + b"short\n" * content.endswith("more")
    (tmp_path / "c").write_bytes(content)
    with pytest.raises(rfgp.CheckpointError, match=r"is not a checkpoint|of another fit"):
        rfgp.SparseSpectrumGP(num_frequencies=4, seed=0).fit(X, y, checkpoint=tmp_path / "c")
    assert (tmp_path / "c").read_bytes() == content


@pytest.mark.parametrize("cut", [0.3, 0.6, 0.99])
@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_damaged_end_is_computed_again(cut, damage, tmp_path):
    X, y = table(200)
    gp = rfgp.SparseSpectrumGP(num_frequencies=8, seed=0).fit(X, y, checkpoint=tmp_path / "c")
    whole = (tmp_path / "c").read_bytes()
    place = int(cut * len(whole))
    changed = whole[:place] + (b"" if damage == "cut" else bytes([whole[place] ^ 1]) + whole[place + 1 :])
    (tmp_path / "c").write_bytes(changed)
    again = rfgp.SparseSpectrumGP(num_frequencies=8, seed=0).fit(X, y, checkpoint=tmp_path / "c")
    np.testing.assert_array_equal(again.predict(X).mean, gp.predict(X).mean)
    assert (tmp_path / "c").read_bytes() == whole


def test_full_disk_does_not_stop_the_fit(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    X, y = table(100)
    gp = rfgp.SparseSpectrumGP(num_frequencies=8, seed=0)
    with pytest.warns(rfgp.CheckpointWarning, match="No space left on device.*continues without a checkpoint"):
        gp.fit(X, y, checkpoint=tmp_path / "c")
    plain = rfgp.SparseSpectrumGP(num_frequencies=8, seed=0).fit(X, y)
    np.testing.assert_array_equal(gp.predict(X).mean, plain.predict(X).mean)


def test_error_names_a_missing_folder(tmp_path):
    X, y = table(50)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        rfgp.SparseSpectrumGP(num_frequencies=4, seed=0).fit(X, y, checkpoint=tmp_path / "nowhere" / "c")


def test_error_names_an_impossible_checkpoint(tmp_path, monkeypatch):
    X, y = table(50)
    gp = rfgp.SparseSpectrumGP(num_frequencies=4, seed=0)
    os.mkfifo(tmp_path / "pipe")
    for path, message in ((tmp_path, "the folder"), (tmp_path / "pipe", "regular file")):
        with pytest.raises(rfgp.CheckpointError, match=message):
            gp.fit(X, y, checkpoint=path)

    original = Path.open

    def refuse(path, mode="r", *arguments, **options):
        if mode == "r+b":
            raise PermissionError(13, "Permission denied")
        return original(path, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(rfgp.CheckpointError, match=r"c cannot be opened: Permission denied\. Choose another name"):
        gp.fit(X, y, checkpoint=tmp_path / "c")


def test_journal_without_a_path_computes_each_step():
    with open_checkpoint_log(None, lambda: "x") as checkpoint_log:
        assert checkpoint_log.memoize("a", lambda: {"v": torch.ones(1)})["v"].item() == 1
        assert checkpoint_log.memoize("a", lambda: {"v": torch.zeros(1)})["v"].item() == 0


def test_record_without_a_tensor_raises(tmp_path):
    def step():
        return {"value": torch.ones(()), "gradient": torch.ones(2)}

    with open_checkpoint_log(tmp_path / "c", lambda: "x") as checkpoint_log:
        checkpoint_log.memoize("a", lambda: {"value": torch.ones(())})
        checkpoint_log.memoize("b", lambda: {"value": torch.ones(())})
    with open_checkpoint_log(tmp_path / "c", lambda: "x") as checkpoint_log:
        assert checkpoint_log.memoize("a", step)["value"].item() == 1
        with pytest.raises(rfgp.CheckpointError, match="c has a record without 'gradient'"):
            checkpoint_log.memoize("b", step)["gradient"]
