"""Progress reports of a fit while it runs."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from rfgp.messages import counted
from rfgp.progress import Bar, seconds_in_words

Callback = Callable[[int, float], None]


@dataclass(frozen=True)
class Progress:
    """The progress of a fit.

    Attributes:
        stage: The name of the stage.
        rows: The number of rows of the stage.
        iteration: The number of completed iterations of the stage, or blocks of rows of a pass.
        iterations: The maximum number of iterations or blocks of the stage.
        log_marginal_likelihood: The last value, in nats and the user's units, of the rows used at that time. NaN before
            the first.
        seconds: The seconds since the start of the fit.
        seconds_left: The seconds left in this stage at its present pace. This is an upper bound, because most stages
            converge before their last iteration.
        unit: The unit of `iteration`, "iterations" or "blocks".

    Examples:
        >>> print(Progress("all rows", 100, 3, 50, -20.0, seconds=1.0, seconds_left=16.0))
        all rows, 100 rows: 3 of at most 50 iterations, log density -0.2000 a row, 1 s, at most 16 s left
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
        most, score = "", ""
        if self.unit == "iterations":
            most, score = "at most ", f", log density {self.log_marginal_likelihood / max(self.rows, 1):.4f} a row"
        return (
            f"{self.stage}, {counted(self.rows, 'row')}: {self.iteration} of {most}"
            f"{counted(self.iterations, self.unit.removesuffix('s'))}{score}"
            f"{seconds_in_words(self.seconds, self.seconds_left, most)}"
        )


class Reporter:
    """Calls a callback and a progress function after each iteration.

    Args:
        callback: A function of the total number of iterations and the log marginal likelihood. If None, none is called.
        progress: A function of a `Progress`. If True, progress is written to the standard error. If False, it is not
            reported.

    Examples:
        >>> values = []
        >>> reporter = Reporter(lambda iterations, value: values.append((iterations, value)))
        >>> reporter.begin("all rows", rows=100, iterations=50)
        >>> reporter.iteration(1, -20.0)
        >>> values
        [(1, -20.0)]
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
        if self._bar is not None:
            self._bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    @contextmanager
    def about(self, task: str) -> Iterator[None]:
        """Prefix the names of stages with a task as long as the context lasts.

        Args:
            task: The prefix, which is followed by a colon.
        """
        self._about, before = f"{task}: ", self._about
        try:
            yield
        finally:
            self._about = before

    def begin(self, stage: str, rows: int, iterations: int) -> None:
        """Begin a stage.

        Args:
            stage: The name of the stage.
            rows: The number of its rows.
            iterations: The maximum number of iterations, or the number of blocks of a pass.
        """
        stage = self._about + stage
        self._stage, self._rows, self._iterations = stage, rows, max(iterations, 1)
        self._stage_start = time.monotonic()

    def iteration(self, done: int, value: float) -> None:
        """Report an iteration and its log marginal likelihood.

        Args:
            done: The number of completed iterations of this stage.
            value: The log marginal likelihood, in nats and the user's units.
        """
        self._total, self._value = self._total + 1, value
        if self._callback is not None:
            self._callback(self._total, value)
        self._notify(done, value, "iterations")

    def block(self, done: int) -> None:
        """Report a completed block of a pass.

        Args:
            done: The number of completed blocks of this stage.
        """
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
