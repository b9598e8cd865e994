"""The command line within the process of a test."""

import contextlib
import io
import json
import shlex
from importlib.metadata import entry_points
from pathlib import Path
from typing import NamedTuple

import pytest

(_ENTRY,) = entry_points(group="console_scripts", name="rfgp")


class Answer(NamedTuple):
    """What a command has printed; its errors are on one line."""

    out: str
    err: str
    code: int


def calls(name):
    """Return the rows (exit code, line, a part of the message) of a file of `tests/rfgp/cli/calls`."""
    text = (Path(__file__).parents[1] / "rfgp" / "cli" / "calls" / name).read_text(encoding="utf-8")
    return [[part.strip() for part in row.split(" | ")] for row in text.splitlines()]


def command(line, folder, code=0):
    """Run a line as a shell does in a folder, and return what it printed; its exit code must be as given, if any."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(folder):
        patch.setattr("sys.argv", shlex.split(f"rfgp {line}"))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                found = _ENTRY.load()()
            except SystemExit as stop:
                found = stop.code
    said = " ".join(err.getvalue().replace("│", " ").split())
    assert code is None or (found or 0) == code, said
    assert "Traceback" not in said
    return Answer(out.getvalue(), said, found or 0)


def figures(line, folder):
    """Run a line with --json, and return what it prints."""
    return json.loads(command(f"{line} --json", folder).out)
