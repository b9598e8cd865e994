"""The messages of a fit while it runs."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from rfgp.counts import counted
from rfgp.progress import Bar, seconds_in_words

Callback = Callable[[int, float], None]


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
            most, density = "at most ", f", log density {self.log_marginal_likelihood / max(self.rows, 1):.4f} a row"
        return (
            f"{self.stage}, {counted(self.rows, 'row')}: {self.iteration} of {most}"
            f"{counted(self.iterations, self.unit.removesuffix('s'))}{density}"
            f"{seconds_in_words(self.seconds, self.seconds_left, most)}"
        )


class Reporter:
    """Tells a callback and a progress function of each iteration.

    Args:
        callback: Takes (iterations done in all, log marginal likelihood).
        progress: True: writes to the standard error; or a function of a `Progress`.
    """

    def __init__(self, callback: Callback | None = None, progress: bool | Callable[[Progress], None] = False) -> None:
        self._callback = callback
        self._bar = Bar() if progress is True else None
        self._progress = progress if callable(progress) else (self._show if progress else None)
        self._start = self._stage_start = time.monotonic()
        self._stage, self._rows, self._iterations, self._total = "", 0, 1, 0
        self._about = ""
        self._value = math.nan

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    @contextmanager
    def about(self, what: str) -> Iterator[None]:
        """Say before each stage, as long as this lasts, what it belongs to; and that it begins."""
        self._about, before = f"{what}: ", self._about
        try:
            yield
        finally:
            self._about = before

    def begin(self, stage: str, rows: int, iterations: int) -> None:
        """Begin a stage that takes at most so many iterations."""
        stage = self._about + stage
        self._stage, self._rows, self._iterations = stage, rows, max(iterations, 1)
        self._stage_start = time.monotonic()

    def iteration(self, done: int, value: float) -> None:
        """Tell that an iteration is done, `done` of this stage, with the likelihood reached."""
        self._total, self._value = self._total + 1, value
        if self._callback is not None:
            self._callback(self._total, value)
        self._notify(done, value, "iterations")

    def block(self, done: int) -> None:
        """Tell that a block of a pass is done, `done` of this stage."""
        self._notify(done, self._value, "blocks")

    def _notify(self, done: int, value: float, unit: str) -> None:
        if self._progress is None:
            return
        now = time.monotonic()
        left = (now - self._stage_start) / max(done, 1) * max(self._iterations - done, 0)
        self._progress(Progress(self._stage, self._rows, done, self._iterations, value, now - self._start, left, unit))

    def _show(self, progress: Progress) -> None:
        assert self._bar is not None
        stage = f"{progress.stage}, {counted(progress.rows, 'row')}"
        self._bar(stage, progress.iteration, progress.iterations, str(progress))
