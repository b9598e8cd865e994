"""What the report of a fit through features should not be the only place to say."""

from collections.abc import Iterator
from typing import NamedTuple

from rfgp.errors import OverfittingWarning, UnderfittingWarning, VarianceStarvationWarning, arguments
from rfgp.parameters import Values
from rfgp.regression.report import FitReport

MISCALIBRATED = 4.0
"""The mean square of standardised leave-one-out errors from which on a fit warns."""
EXHAUSTED = 0.9
"""The share of the weights that the data determine from which on a fit warns of variance starvation.

Over 28 fits (`benchmarks/papers/own/starvation.py`, the exact process with the same hyperparameters beside) the median
variance of the latent function at test points was .22 to .46 of the exact one in all 8 with a larger share, and .005 to
.09 at points three times as far out; with shares below a half .63 and .52 at the least.
"""

STRUCTURED = 0.3
"""The correlation of the errors of neighbours from which on a fit warns; of 200 rows its standard error is .09."""
NEGLIGIBLE = 1e-4
"""Noise in which no structure is looked for, of the largest, which is a hundred variances of the targets."""
GIVEN_UP = 0.01
"""Of the largest lengthscale: from there on a column as good as does not matter."""


def _given_up(values: Values, columns: tuple[str, ...] | None) -> str:
    """Say which of several columns do not matter, by their lengthscales; by name where they have names."""
    lengthscale, (_, largest) = (
        values.standardized("lengthscale").detach(),
        values.space.quantities["lengthscale"].bounds,
    )
    numbers = (lengthscale > GIVEN_UP * largest).reshape(-1).nonzero()[:, 0].tolist()
    if lengthscale.ndim == 0 or not numbers:
        return ""
    called = [str(n) if columns is None else repr(columns[n]) for n in numbers[:8]]
    some = ", ".join(called) + ", ..." * (len(numbers) > 8)
    which = f"column {some} does" if len(numbers) == 1 else f"columns {some} do"
    return f"By the lengthscales found {which} not matter, which may be wrong: the search may have missed the optimum. "


def _has_noise(values: Values) -> bool:
    _, largest = values.space.quantities["noise"].bounds
    return bool(values.standardized("noise") > NEGLIGIBLE * largest)


class Remedies(NamedTuple):
    """What a user may do about features that miss something."""

    size: str = "num_frequencies"
    accurate: str = ', or use frequencies="learned" for accuracy'
    learned: str = ' use frequencies="learned",'
    beside: str = ' add a local process (local="matern32"),'


def warnings_of(
    report: FitReport, values: Values, columns: tuple[str, ...] | None, remedies: Remedies | None = None
) -> Iterator[Warning]:
    """Yield what a fit's report should not be the only place to say, for columns of these names."""
    used, remedies = report.weights_used, remedies or Remedies()
    is_fixed = report.frequencies == "fixed"
    if report.frequencies != "learned" and used is not None and used > EXHAUSTED:
        yield VarianceStarvationWarning(
            f"The data determine {used:.0%} of the weights, so the features are exhausted: the variance of the latent "
            "function is too small between the data and far from them (variance starvation; the noise has taken over "
            f"what the features miss). Raise {arguments(remedies.size)}"
            f"{remedies.accurate if is_fixed else ''}."
        )
    elif (report.neighbors or 0) > STRUCTURED and _has_noise(values):
        learned = remedies.learned if is_fixed else ""
        yield UnderfittingWarning(
            f"The leave-one-out errors of neighbouring rows have a correlation of {report.neighbors:.2f}: what the fit "
            f"took for noise has structure that the model misses. {_given_up(values, columns)}Raise "
            f"{arguments(remedies.size)},{learned}{remedies.beside} or try another "
            f"{arguments('seed')} or a shorter starting {arguments('lengthscale')}."
        )
    if report.calibration is not None and report.calibration > MISCALIBRATED:
        yield OverfittingWarning(
            f"Squared leave-one-out errors are {report.calibration:.1f} times what the model expects: its error bars "
            "are too short. The hyperparameters may be over-fitted to few rows (try ard=False, or priors), or the "
            "target has outliers."
        )
    if report.frequencies == "fell back":
        yield OverfittingWarning(
            f"Fixed frequencies were taken in the place of learned ones ({report.message.rpartition('; ')[2]}). There "
            "may be too few rows to learn from, or enough frequencies already."
        )
