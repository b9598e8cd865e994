"""The outcome of learning frequencies."""

import math
from typing import NamedTuple

from torch import Tensor

from rfgp.fitting.context import Split
from rfgp.parameters import ParameterValues
from rfgp.regression import FitReport, Stage
from rfgp.rows import Block, JoinedRows, gathered

SETTLED = 0.01
"""The largest gain of the last tenth of the steps, in nats a row, at which learning has converged."""

NO_SEARCH = FitReport(True, 0, 0, math.nan, "")
"""The report of a fit in which only frequencies are learned."""


class Outcome(NamedTuple):
    """The outcome of learning frequencies."""

    frequencies: dict[str, Tensor] | None  # by dotted name; None if fixed frequencies are as good
    values: ParameterValues  # the other hyperparameters of the selected step
    stage: Stage
    gain: float  # over fixed frequencies, in nats a test row; 0 if these are as good
    test_log_prob: Tensor  # the log densities (b,) of the test rows
    trace: tuple[float, ...]  # the likelihood of all training rows before each step, estimated from its batch
    last_gain: float  # of the likelihood of a row, in the last tenth of the steps
    initial_report: FitReport  # of the search for hyperparameters before learning
    split: Split
    message: str

    @property
    def has_converged(self) -> bool:
        """Whether the last tenth of the steps gained little."""
        return self.last_gain < SETTLED

    def rejected(self, reason: str) -> "Outcome":
        """Return the outcome with fixed frequencies instead, for a reason.

        Args:
            reason: The reason, which is appended to the message.
        """
        return self._replace(frequencies=None, message=f"{self.message}; {reason}")

    @property
    def rows_except_test(self) -> Block:
        """All rows except the test rows."""
        return gathered(JoinedRows([self.split.validation, self.split.training]))


def mean_and_standard_error(values: Tensor) -> tuple[float, float]:
    """Return the mean of independent values (n,) and its standard error.

    Args:
        values: The values, (n,). For one value the error is infinite.
    """
    error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return float(values.mean()), error
