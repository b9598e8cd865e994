"""Progress of long computations: a bar on a terminal, lines otherwise."""

import math
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress

Report = Callable[[str, int, int], object]
"""A callback of (stage, amount done, total amount), such as a `Bar`."""

_SECONDS_BETWEEN_LINES = 10.0


class Bar:
    """Shows the stage of a computation and how much of it is done.

    On a terminal it is a bar, which `close` removes. Otherwise it writes a line for each stage and every ten seconds.
    Nothing is shown before the first call, unless loops are compiled.

    Args:
        wanted: Whether anything is shown.
        lines: Whether to write lines if there is no terminal.
        stream: The output. If None, the standard error.

    Examples:
        >>> import sys
        >>> with Bar(stream=sys.stdout) as bar:
        ...     bar("fit", 1, 4)
        fit: 1 of 4
    """

    def __init__(self, wanted: bool = True, *, lines: bool = True, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty() and find_spec("rich") is not None
        self._wanted = wanted and (lines or self._is_terminal)
        self._begun: float | None = None
        self._stage, self._stage_begun, self._last_line = "", 0.0, 0.0
        self._done, self._total, self._text = 0, 0, ""
        self._bar: Progress | None = None
        self._num_compiling = 0
        self._compiled_stage: str | None = None
        self._stop_listening: Callable[[], None] | None = None

    def __call__(self, stage: str, done: int, total: int, text: str = "") -> None:
        """Show the progress of the computation.

        Args:
            stage: The name of the stage.
            done: The amount of the stage that is done.
            total: The total amount of the stage. 0 if it is unknown.
            text: The text to show. If empty, it is made of the stage, the amounts, the elapsed seconds, and the
                estimated remaining seconds of the stage.
        """
        if not self._wanted:
            return
        self._listen()
        is_new = stage != self._stage
        if is_new:
            self._stage, self._stage_begun = stage, time.monotonic()
        self._done, self._total, self._text = done, total, text
        self._show(is_new)

    def close(self) -> None:
        """Remove the bar from the terminal. A later call shows it again."""
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __enter__(self) -> "Bar":
        self._listen()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _listen(self) -> None:
        """Show compilations of loops from now on, if numba is loaded."""
        if self._wanted and self._stop_listening is None and "numba" in sys.modules:
            self._stop_listening = _listening(self._compile)

    def _compile(self, change: int) -> None:
        """Show that a loop is compiled, given the change of the number of compilations under way."""
        self._num_compiling += change
        if change > 0:
            self._show(self._compiled_stage != self._stage)
            self._compiled_stage = self._stage

    def _show(self, is_new: bool) -> None:
        """Show the words, on a line only if they are new or ten seconds have passed."""
        now = time.monotonic()
        self._begun = now if self._begun is None else self._begun
        if self._is_terminal:
            self._draw()
        elif is_new or now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._stream.write(self._words() + "\n")
            self._stream.flush()

    def _draw(self) -> None:
        if self._bar is None:
            self._bar = _started(self._stream, self._words)
        self._bar.update(self._bar.task_ids[0], completed=self._done, total=self._total or None)
        if self._num_compiling:
            self._bar.refresh()  # before the compiler holds Python's lock

    def _words(self) -> str:
        """Return the text to show now. A terminal asks repeatedly, so that the seconds grow."""
        now = time.monotonic()
        if self._num_compiling:
            task = f"{self._stage}: compiling" if self._stage else "Compiling"
            return f"{task} loops, on their first use{seconds_in_words(now - (self._begun or now), 0.0)}"
        if self._text:
            return self._text
        is_open = self._is_terminal and not (self._done or self._total)
        amount = ", no end known yet" if is_open else _amount(self._done, self._total)
        left = 0.0
        if self._done and self._total:
            left = (now - self._stage_begun) / self._done * max(self._total - self._done, 0)
        return f"{self._stage}{amount}{seconds_in_words(now - (self._begun or now), left)}"


def seconds_in_words(elapsed: float, left: float, bound: str = "") -> str:
    """Return elapsed and remaining seconds as words.

    Args:
        elapsed: Elapsed seconds. They are left out below 0.5.
        left: Remaining seconds. They are left out below 1, and if they are unknown (nan).
        bound: Words before the remaining seconds, such as "at most ".

    Examples:
        >>> seconds_in_words(13.0, 4.0)
        ', 13 s, 4 s left'
    """
    words = f", {elapsed:.0f} s" if elapsed > 0.5 else ""
    return words + (f", {bound}{left:.0f} s left" if 1 <= left < math.inf else "")


def _amount(done: int, total: int) -> str:
    if total:
        return f": {done:,} of {total:,}"
    return f": {done:,} so far" if done else ""


def _listening(changed: Callable[[int], None]) -> Callable[[], None]:
    """Call a function with 1 and -1 around each compilation of a loop; return a function that ends this."""
    from numba.core import event

    calls = {"on_start": lambda self, event: changed(1), "on_end": lambda self, event: changed(-1)}
    listener = type("Compilations", (event.Listener,), calls)()
    event.register("numba:compile", listener)
    return partial(event.unregister, "numba:compile", listener)


def _started(stream: TextIO, words: Callable[[], str]) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task
    from rich.text import Text

    class Words(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(words())

    bar = Progress(BarColumn(), Words(), console=Console(file=stream), transient=True)
    bar.add_task("", total=None)
    bar.start()
    return bar
