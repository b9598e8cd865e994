"""The outcome of learning frequencies."""

import math
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from rfgp.fitting.context import Split
from rfgp.parameters import ParameterValues
from rfgp.regression import FitReport

NO_SEARCH = FitReport(True, 0, 0, math.nan, "")
"""The report of a fit in which only frequencies are learned."""


class Outcome(NamedTuple):
    """The outcome of learning frequencies."""

    frequencies: dict[str, Tensor] | None  # by dotted name; None if fixed frequencies are as good
    values: ParameterValues  # the other hyperparameters of the selected step
    report: FitReport  # of the steps
    gain: float  # over fixed frequencies, in nats a test row; 0 if these are as good
    test_log_prob: Tensor  # the log densities (b,) of the test rows
    initial_report: FitReport  # of the search for hyperparameters before learning
    split: Split

    def with_message(self, message: str) -> "Outcome":
        """Return the outcome with another message.

        Args:
            message: The message.
        """
        return self._replace(report=replace(self.report, message=message))

    def rejected(self, reason: str) -> "Outcome":
        """Return the outcome with fixed frequencies instead, for a reason.

        Args:
            reason: The reason, which is appended to the message.
        """
        return self._replace(frequencies=None).with_message(f"{self.report.message}; {reason}")


def mean_and_standard_error(values: Tensor) -> tuple[float, float]:
    """Return the mean of independent values (n,) and its standard error.

    Args:
        values: The values, (n,). For one value the error is infinite.
    """
    error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return float(values.mean()), error
