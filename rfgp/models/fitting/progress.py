"""What a fit says while it runs."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TextIO

from rfgp.inference import Block, DistributedRows, Rows

Callback = Callable[[int, float], None]
_SECONDS_BETWEEN_LINES = 10.0


@dataclass(frozen=True)
class Progress:
    """Where a fit is.

    Attributes:
        stage: What is done, in words.
        rows: On how many rows.
        iteration: How many iterations of this stage are done; of a pass, how many blocks of rows.
        iterations: The most that it may take.
        log_marginal_likelihood: The last known one, of the rows in use when it was computed, total nats in the user's
            units; nan before the first.
        seconds: Since the fit began.
        seconds_left: Of this stage at its present pace; an upper bound, for most stages end before their last
            iteration.
        unit: What is counted, "iterations" or "blocks".
    """

    stage: str
    rows: int
    iteration: int
    iterations: int
    log_marginal_likelihood: float
    seconds: float
    seconds_left: float
    unit: str = "iterations"

    def __str__(self) -> str:
        most, density = "", ""
        if self.unit == "iterations":
            most, density = "at most ", f"log density {self.log_marginal_likelihood / max(self.rows, 1):.4f} a row, "
        return (
            f"{self.stage}, {self.rows:,} rows: {self.iteration} of {most}{self.iterations} {self.unit}, {density}"
            f"{self.seconds:.0f} s, {most}{self.seconds_left:.0f} s left"
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
        self._value = math.nan

    def begin(self, stage: str, rows: int, iterations: int) -> None:
        """Begin a stage that takes at most so many iterations."""
        self._stage, self._rows, self._iterations = stage, rows, max(iterations, 1)
        self._stage_begun = time.monotonic()

    def iteration(self, done: int, value: float) -> None:
        """Tell that an iteration is done, `done` of this stage, with the likelihood reached."""
        self._total, self._value = self._total + 1, value
        if self._callback is not None:
            self._callback(self._total, value)
        self._tell(done, value, "iterations")

    def block(self, done: int) -> None:
        """Tell that a block of a pass is done, `done` of this stage."""
        self._tell(done, self._value, "blocks")

    def _tell(self, done: int, value: float, unit: str) -> None:
        if self._progress is None:
            return
        now = time.monotonic()
        left = (now - self._stage_begun) / max(done, 1) * max(self._iterations - done, 0)
        found = Progress(self._stage, self._rows, done, self._iterations, value, now - self._begun, left, unit)
        self._progress(found)


@dataclass(frozen=True, eq=False)
class ReportedRows:
    """Rows that tell a reporter when a block of them has been read; see `rfgp.inference.Rows`.

    Attributes:
        rows: What they are.
        reporter: Told.
        stage: What the pass is called.
    """

    rows: Rows
    reporter: Reporter
    stage: str

    @property
    def num_outputs(self) -> int:
        """The number k of targets of a row."""
        return self.rows.num_outputs

    @property
    def is_uniform(self) -> bool:
        """Whether no row has a weight or a noise of its own."""
        return self.rows.is_uniform

    @property
    def knows_noise(self) -> bool:
        """Whether some row has a noise of its own."""
        return self.rows.knows_noise

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield all rows in blocks of `size`, telling of each that is done with."""
        self.reporter.begin(self.stage, len(self.rows), max(1, -(-len(self.rows) // size)))
        for done, block in enumerate(self.rows.blocks(size), 1):
            yield block
            self.reporter.block(done)


def reported(rows: Rows, reporter: Reporter, stage: str) -> Rows:
    """Return the same rows, telling of each block of them; not where they are read elsewhere."""
    return rows if isinstance(rows, DistributedRows) else ReportedRows(rows, reporter, stage)


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
