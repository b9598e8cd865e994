"""Progress of long commands: lines in files, a bar in a terminal."""

import io
import sys
import time

import numba
import pytest

from rfgp.progress import Bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """The seconds that the clock shows, in a list of one."""
    seconds = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])
    return seconds


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def test_elsewhere_a_line_for_each_stage_and_every_ten_seconds(clock):
    stream = io.StringIO()
    with Bar(stream=stream) as tell:
        for stage, seconds, done in (("read", 0, 0), ("read", 1, 1), ("fit", 2, 0), ("fit", 11, 5), ("fit", 13, 1500)):
            clock[0] = 100.0 + seconds
            tell(stage, done, 2000)
        tell("count", 0, 0)
        tell("save", 1, 1, "saved: all")
    assert stream.getvalue().splitlines() == [
        "read: 0 of 2,000",
        "fit: 0 of 2,000, 2 s",
        "fit: 1,500 of 2,000, 13 s, 4 s left",
        "count, 13 s",
        "saved: all",
    ]


@pytest.mark.parametrize(("done", "left"), [(0, False), (99, False), (100, False), (90, True)])
def test_seconds_left_are_known_and_one_or_more(done, left, clock):
    stream = io.StringIO()
    with Bar(stream=stream) as tell:
        tell("fit", 0, 100)
        clock[0] += 30
        tell("fit", done, 100)
    assert (" left" in stream.getvalue()) == left
    assert "0 s" not in stream.getvalue().replace("30 s", "")


@pytest.mark.parametrize(
    ("stage", "done", "total", "words"),
    [
        ("[bold]fit", 1, 10, "[bold]fit: 1 of 10"),
        ("count", 0, 0, "count, no end known yet"),
        ("count", 3, 0, "count: 3 so far"),
    ],
)
def test_a_terminal_has_a_bar_which_goes(stage, done, total, words, terminal):
    with Bar(stream=terminal) as tell:
        assert terminal.getvalue() == ""
        tell(stage, done, total)
    assert words in terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K")  # the line is erased
    before = terminal.getvalue()
    tell.close()
    assert terminal.getvalue() == before


@pytest.mark.parametrize("is_terminal", [False, True])
def test_first_compilation_of_loops_is_shown(is_terminal, terminal):
    stream = terminal if is_terminal else io.StringIO()
    with Bar(stream=stream) as tell:
        tell("fit", 0, 0)
        assert "compiling" not in stream.getvalue()
        assert numba.njit(lambda x: x + 1)(1) == 2
    assert "fit: compiling loops" in stream.getvalue()


def test_terminal_has_lines_without_rich(monkeypatch, terminal):
    monkeypatch.setitem(sys.modules, "rich", None)
    with Bar(stream=terminal) as tell:
        tell("fit", 1, 20)
    assert terminal.getvalue() == "fit: 1 of 20\n"
