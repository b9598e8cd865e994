"""Warnings about features after a fit."""

from collections.abc import Iterator
from typing import NamedTuple

from rfgp.errors import OverfittingWarning, UnderfittingWarning, VarianceStarvationWarning, arguments
from rfgp.parameters import Values
from rfgp.regression.report import FitReport

MISCALIBRATED = 4.0
"""The mean squared leave-one-out z-score above which a fit warns."""
EXHAUSTED = 0.9
"""The share of the weights that the data determine above which a fit warns of variance starvation.

Measured in `benchmarks/papers/own/starvation.py`: in all 8 of 28 fits with a larger share, the median variance at test
points was 0.22 to 0.46 of that of the exact process with the same hyperparameters.
"""

STRUCTURED = 0.3
"""The correlation of the errors of neighbours above which a fit warns; for 200 rows its standard error is 0.09."""
NEGLIGIBLE = 1e-4
"""The noise below which no structure is looked for, as a share of the noise's upper bound."""
GIVEN_UP = 0.01
"""The lengthscale above which a column hardly matters, as a share of the upper bound."""


def _given_up(values: Values, columns: tuple[str, ...] | None) -> str:
    """Return a sentence that names the columns that do not matter by their lengthscales, or nothing."""
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
    """Remedies for features that miss structure, as parts of a sentence."""

    size: str = "num_frequencies"
    accurate: str = ', or use frequencies="learned" for accuracy'
    learned: str = ' use frequencies="learned",'
    beside: str = ' add a local process (local="matern32"),'


def warnings_of(
    report: FitReport, values: Values, columns: tuple[str, ...] | None, remedies: Remedies | None = None
) -> Iterator[Warning]:
    """Yield warnings about a fit, for columns of these names."""
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
