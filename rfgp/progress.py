"""How far a long computation is: a bar on a terminal, elsewhere a line now and then."""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress

Report = Callable[[str, int, int], object]
"""Is told (stage, how much of it is done, of how much); a `Bar` is one."""

_SECONDS_BETWEEN_LINES = 10.0


class Bar:
    """Shows the stage of a computation and how much of it is done.

    On a terminal it is a bar, which is gone after `close`; elsewhere a line for each stage and every ten seconds.
    Nothing is shown before the first call.

    Args:
        wanted: False: nothing is ever shown.
        lines: Whether to write lines where there is no terminal.
        stream: Where to write; None: the standard error.
    """

    def __init__(self, wanted: bool = True, *, lines: bool = True, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._wanted = wanted and (lines or self._is_terminal)
        self._stage, self._stage_begun, self._last_line = "", 0.0, 0.0
        self._bar: Progress | None = None

    def __call__(self, stage: str, done: int, total: int, text: str = "") -> None:
        """Tell how far the computation is.

        Args:
            stage: What is done, in words.
            done: How much of this stage is done.
            total: How much of it there is; 0 where that cannot be told.
            text: What is shown; empty: the stage, how much is done, the seconds since it began and those left at its
                pace.
        """
        if not self._wanted:
            return
        now = time.monotonic()
        is_new = stage != self._stage
        if is_new:
            self._stage, self._stage_begun = stage, now
        is_still = self._is_terminal and not (done or total)  # its seconds would stand still on a terminal
        amount = ", no end known yet" if is_still else _amount(done, total, now - self._stage_begun)
        text = text or f"{stage}{amount}"
        if self._is_terminal:
            self._draw(text, done, total)
        elif is_new or now - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = now
            self._stream.write(text + "\n")
            self._stream.flush()

    def close(self) -> None:
        """Remove the bar from the terminal; a later call shows it again."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _draw(self, text: str, done: int, total: int) -> None:
        if self._bar is None:
            self._bar = _started(self._stream)
        self._bar.update(self._bar.task_ids[0], description=text, completed=done, total=total or None)


def _amount(done: int, total: int, seconds: float) -> str:
    if not total:
        return f": {done:,} so far, {seconds:.0f} s" if done else f", {seconds:.0f} s"
    left = f", {seconds / done * max(total - done, 0):.0f} s left" if done else ""
    return f": {done:,} of {total:,}, {seconds:.0f} s{left}"


def _started(stream: TextIO) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (BarColumn(), TextColumn("{task.description}", markup=False))
    bar = Progress(*columns, console=Console(file=stream), transient=True)
    bar.add_task("", total=None)
    bar.start()
    return bar
