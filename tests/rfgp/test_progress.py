import io
import sys
import time

import numba
import pytest

from rfgp import progress
from rfgp.progress import Bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """The seconds that the clock shows, in a list of one."""
    seconds = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: seconds[0])
    return seconds


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


def test_seconds_grow_over_short_stages(clock):
    stream = io.StringIO()
    with Bar(stream=stream) as tell:
        for stage in range(20):
            tell(f"stage {stage}", 1, 200)
            clock[0] += 9.5
    seconds = [int(line.split(", ")[1].removesuffix(" s")) for line in stream.getvalue().splitlines()[1:]]
    assert seconds == [round(9.5 * stage) for stage in range(1, 20)]


@pytest.mark.parametrize(("done", "left"), [(0, False), (99, False), (100, False), (90, True)])
def test_seconds_left_are_known_and_one_or_more(done, left, clock):
    stream = io.StringIO()
    with Bar(stream=stream) as tell:
        tell("fit", 0, 100)
        clock[0] += 30
        tell("fit", done, 100)
    assert (" left" in stream.getvalue()) == left
    assert "0 s" not in stream.getvalue().replace("30 s", "")


def test_a_terminal_counts_seconds_without_calls(clock, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with Bar(stream=stream) as tell:
        tell("predict", 0, 0)
        clock[0] += 7
        time.sleep(0.5)
    assert "predict, no end known yet, 7 s" in stream.getvalue()


def test_a_terminal_has_a_bar_which_goes(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with Bar(stream=stream) as tell:
        assert stream.getvalue() == ""
        tell("[bold]fit", 1, 10)
        tell("fit", 2, 0, "no end in sight")
    assert "no end in sight" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[2K")  # the line is erased
    before = stream.getvalue()
    tell.close()
    assert stream.getvalue() == before


@pytest.mark.parametrize(("done", "words"), [(0, "count, no end known yet"), (3, "count: 3 so far")])
def test_terminal_shows_that_the_total_is_unknown(done, words, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with Bar(stream=stream) as tell:
        tell("count", done, 0)
    assert words in stream.getvalue()


def test_marks_of_markup_are_shown_as_they_are(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with Bar(stream=stream) as tell:
        tell("[bold]fit", 1, 10)
    assert "[bold]fit: 1 of 10" in stream.getvalue()


@pytest.mark.parametrize(("wanted", "lines"), [(False, True), (True, False)])
def test_nothing_is_shown_where_it_is_not_wanted(wanted, lines):
    stream = io.StringIO()
    with Bar(wanted, lines=lines, stream=stream) as tell:
        tell("fit", 1, 10)
    assert stream.getvalue() == ""


def test_the_standard_error_is_the_stream_unless_one_is_given(capsys):
    with Bar() as tell:
        tell("fit", 1, 10)
    out, err = capsys.readouterr()
    assert (out, err) == ("", "fit: 1 of 10\n")


def test_terminal_has_lines_without_rich(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    stream = Terminal()
    with Bar(stream=stream) as tell:
        tell("fit", 1, 20)
    assert stream.getvalue() == "fit: 1 of 20\n"


@pytest.mark.parametrize("terminal", [False, True])
def test_first_compilation_of_loops_is_shown(terminal, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal() if terminal else io.StringIO()
    with Bar(stream=stream) as tell:
        tell("fit", 0, 0)
        assert "compiling" not in stream.getvalue()
        assert numba.njit(lambda x: x + 1)(1) == 2
    assert "fit: compiling loops" in stream.getvalue()
    shown = stream.getvalue()
    numba.njit(lambda x: x + 2)(1)  # the bar no longer listens
    assert stream.getvalue() == shown
