"""How the command line starts and stops, in processes of its own."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from commands import calls

pytestmark = pytest.mark.slow

HEAVY = ("torch", "scipy", "numba", "networkx", "numpy", "pandas", "pyarrow", "matplotlib")
MESSAGE = "Interrupted. Files are written whole or not at all.\n"


SCRIPT = f"""
import contextlib, io, json, sys, time
from rfgp.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv, code, said, errors = ["rfgp", *arguments], 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    loaded = [name for name in {HEAVY} if name in sys.modules]
    words = said.getvalue() + errors.getvalue().replace(chr(10), "")
    print(json.dumps([code, words, loaded, time.process_time()]))
"""


def outcomes(lines, folder=None):
    """Return exit code, words on both streams, heavy modules loaded so far and seconds of a core, of calls in turn.

    All calls are made in one process, so that a call is also blamed for modules that an earlier one has loaded.
    """
    command = [sys.executable, "-c", SCRIPT, json.dumps([shlex.split(line) for line in lines])]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_help_and_mistyped_words_load_nothing_heavy():
    rows = calls("light.txt")
    found = outcomes([line for _, line, _ in rows])
    for (code, _, message), (returned, words, loaded, seconds) in zip(rows, found, strict=True):
        assert (returned, loaded) == (int(code), [])
        assert message in words
        assert seconds < 1


def test_wrong_arguments_are_named_before_torch_loads(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,y\n1,2,3\n2,3,4\n")
    (tmp_path / "mesh.stl").write_text("solid")
    (tmp_path / "roads.json").write_text("{}")
    (tmp_path / "notes.md").write_text("a,b,y\n1,2,3\n")
    (tmp_path / "model.safetensors").write_bytes(bytes([2, *[0] * 7]) + b"{}")
    rows = calls("wrong.txt")
    found = outcomes([line for _, line, _ in rows], tmp_path)
    for (expected, line, message), (code, words, loaded, _) in zip(rows, found, strict=True):
        assert (code, loaded in ([], ["numpy"])) == (int(expected), True), line
        assert message in words, line
    assert found[0][-1] < 1


@pytest.fixture(autouse=True)
def _heeding():
    """A shell that runs the tests in the background has them, and so their children, ignore interrupts.

    Not by `preexec_fn`, which runs in a fork of a process with threads and may wait for them forever.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def started(folder, *arguments):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "rfgp", *arguments], cwd=folder, **pipes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interrupts")
    rows = np.random.default_rng(0).standard_normal((3000, 9))
    np.savetxt(folder / "t.csv", rows, delimiter=",", header=",".join("abcdefghi"), comments="")
    return folder


def wait(process, seconds):
    """Wait until a process has used so many seconds of a processor, which a busy machine changes little."""
    used = 0.0
    while used < seconds:
        time.sleep(0.005)
        assert process.poll() is None, "it has ended"
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def interrupted(process):
    """Interrupt a process, and return what it has printed since, and its errors."""
    process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no processor times of other processes")
@pytest.mark.parametrize("seconds", [0.3, 1.2])
def test_an_interrupt_while_modules_load_is_one_line(seconds, folder):
    """Python's own start, in which nobody heeds interrupts, takes .05 s of a processor, a busy one up to .2 s."""
    with started(folder, "fit", "t.csv", "--out", "o") as process:
        wait(process, seconds)
        out, err = interrupted(process)
    assert (process.returncode, out) == (130, "")
    assert err.endswith(MESSAGE)
    assert all(line.split(",")[0].startswith(("Reading", "Fitting")) for line in err.splitlines()[:-1])
    assert os.listdir(folder) == ["t.csv"]


FEATURES = ("--kernel", "RBF()", "--approximation", "RandomFeatures(64)")
"""Nothing is chosen: such a fit is compared with the exact process."""


@pytest.mark.parametrize("stage", ["Reading", "Fitting", "exact process"])
def test_an_interrupt_leaves_no_folder_and_no_file(stage, folder):
    with started(folder, "fit", "t.csv", *FEATURES, "--out", "o") as process:
        while stage not in process.stderr.readline():
            assert process.poll() is None
        _, err = interrupted(process)
    assert process.returncode == 130, err
    assert err.endswith(MESSAGE)
    assert "Traceback" not in err
    assert os.listdir(folder) == ["t.csv"]


LOST = """
import os, signal, sys
from rfgp.cli.interrupts import heeded
class Last:
    def __del__(self): os.kill(os.getpid(), signal.SIGINT); print("on", file=sys.stderr)
def swallowed():
    try: os.kill(os.getpid(), signal.SIGINT)
    except BaseException: raise ValueError("swallowed") from None
def begin():
    with heeded(): {action}
begin()
"""


@pytest.mark.parametrize("action", ["Last()", "swallowed()", "raise KeyboardInterrupt"])
def test_an_interrupt_that_python_would_lose_ends_the_process(action):
    command = [sys.executable, "-c", LOST.format(action=action)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr.removeprefix("on\n")) == (130, MESSAGE)


def test_a_fit_through_a_pipe_says_how_far_it_is(folder, tmp_path):
    command = [sys.executable, "-m", "rfgp", "fit", "t.csv", "--no-compare", *FEATURES]
    run = subprocess.run([*command, "--out", tmp_path], cwd=folder, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "\nFitting 2,700 observations" in run.stderr
    assert "at most 200 iterations, fewer if it converges): 1 of 200" in run.stderr
    assert not re.search(r"\b0 s\b", run.stderr)


def test_a_standard_output_that_is_full_is_named(folder):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "rfgp", "datasets"]
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (run.returncode, run.stderr) == (1, "Error: The standard output: No space left on device.\n")
