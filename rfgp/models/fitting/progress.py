"""What a fit says while it runs."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

Callback = Callable[[int, float], None]
_SECONDS_BETWEEN_LINES = 10.0


@dataclass(frozen=True)
class Progress:
    """Where a fit is.

    Attributes:
        stage: What is done, in words.
        rows: On how many rows.
        iteration: How many iterations of this stage are done.
        iterations: The most that it may take.
        log_marginal_likelihood: Now, of the rows in use, total nats in the user's units.
        seconds: Since the fit began.
        seconds_left: Of this stage at its present pace; an upper bound, for most stages end before their last
            iteration.
    """

    stage: str
    rows: int
    iteration: int
    iterations: int
    log_marginal_likelihood: float
    seconds: float
    seconds_left: float

    def __str__(self) -> str:
        density = self.log_marginal_likelihood / max(self.rows, 1)
        return (
            f"{self.stage}, {self.rows:,} rows: {self.iteration} of at most {self.iterations} iterations, "
            f"log density {density:.4f} a row, {self.seconds:.0f} s, at most {self.seconds_left:.0f} s left"
        )


class Reporter:
    """Tells a callback and a progress function of each iteration.

    Args:
        callback: Takes (iterations done in all, log marginal likelihood).
        progress: True: writes to the standard error; or a function of a `Progress`.
    """

    def __init__(self, callback: Callback | None = None, progress: bool | Callable[[Progress], None] = False) -> None:
        self._callback = callback
        self._progress = progress if callable(progress) else (_Printer(sys.stderr) if progress else None)
        self._begun = self._stage_begun = time.monotonic()
        self._stage, self._rows, self._iterations, self._total = "", 0, 1, 0

    def begin(self, stage: str, rows: int, iterations: int) -> None:
        """Begin a stage that takes at most so many iterations."""
        self._stage, self._rows, self._iterations = stage, rows, max(iterations, 1)
        self._stage_begun = time.monotonic()

    def iteration(self, done: int, value: float) -> None:
        """Tell that an iteration is done, `done` of this stage, with the likelihood reached."""
        self._total += 1
        if self._callback is not None:
            self._callback(self._total, value)
        if self._progress is None:
            return
        now = time.monotonic()
        left = (now - self._stage_begun) / max(done, 1) * max(self._iterations - done, 0)
        found = Progress(self._stage, self._rows, done, self._iterations, value, now - self._begun, left)
        self._progress(found)


class _Printer:
    """Writes over one line of a terminal; elsewhere a line for each stage and every ten seconds."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._stage, self._last, self._width = stream, ("", 0), -_SECONDS_BETWEEN_LINES, 0

    def __call__(self, progress: Progress) -> None:
        stage, text = (progress.stage, progress.rows), str(progress)
        if self._stream.isatty():
            start = "\r" if stage == self._stage else ("\n" if self._stage[0] else "")
            padding = " " * max(0, self._width - len(text)) if stage == self._stage else ""
            self._stream.write(start + text + padding)
            self._width = len(text)
        elif stage != self._stage or progress.seconds - self._last >= _SECONDS_BETWEEN_LINES:
            self._stream.write(text + "\n")
            self._last = progress.seconds
        self._stage = stage
        self._stream.flush()
