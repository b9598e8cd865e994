"""Fitted models against each other, by scores of the same rows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from rfgp import metrics
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.gp import GP
from rfgp.messages import counted, plain, quoted
from rfgp.models import GPState
from rfgp.models.state import left_out_prediction
from rfgp.rows.sources import check_labels


class ModelScore(NamedTuple):
    """The scores of one model.

    Attributes:
        log_density: The mean log predictive density of a row, in nats. Larger is better.
        difference: The log density of the best model minus this one, 0 for the best.
        difference_error: The standard error of the difference over the rows, 0 for the best.
        coverage: The fraction of rows inside their 95 % intervals. NaN for several classes.
        rmse: The root mean squared error, in the unit of the target. NaN for several classes.

    Examples:
        >>> from rfgp.compare import ModelScore
        >>> ModelScore(-1.2, difference=0.1, difference_error=0.02, coverage=0.94, rmse=0.7).coverage
        0.94
    """

    log_density: float
    difference: float
    difference_error: float
    coverage: float
    rmse: float


@dataclass(frozen=True)
class ModelComparison:
    """The scores of several models on the same rows. `str` gives a table.

    Attributes:
        scores: The scores of each model, the best first.
        num_rows: The number of rows.
        rows: "left out one at a time", or "held out" for new rows.

    Examples:
        >>> from rfgp.compare import ModelComparison, ModelScore
        >>> scores = {"a": ModelScore(-1.2, 0, 0, 0.95, 0.7), "b": ModelScore(-1.3, 0.1, 0.02, 0.94, 0.8)}
        >>> print(ModelComparison(scores, num_rows=50, rows="held out"))
        50 rows, held out
        model  log density  below the best  standard error  95 % coverage     RMSE
        a             -1.2               0               0          0.950      0.7
        b             -1.3             0.1            0.02          0.940      0.8
    """

    scores: Mapping[str, ModelScore]
    num_rows: int
    rows: str

    def __str__(self) -> str:
        names = ["model", *(plain(name, 30) for name in self.scores)]
        lines = ["  log density  below the best  standard error  95 % coverage     RMSE"]
        lines += ["{:13.4g}{:16.2g}{:16.2g}{:15.3f}{:9.3g}".format(*score) for score in self.scores.values()]
        table = [name.ljust(max(map(len, names))) + line for name, line in zip(names, lines, strict=True)]
        return "\n".join([f"{counted(self.num_rows, 'row')}, {self.rows}", *table])


def compare_models(
    models: Mapping[str, GP],
    X: Any = None,
    y: Any = None,
    *,
    exposure: Any = None,
    trials: Any = None,
    censored: Any = None,
) -> ModelComparison:
    """Compare fitted models by the log density of held-out rows, or of left-out training rows.

    Differences are paired: hard rows are hard for all models. Their standard error is too small for dependent rows,
    such as those of a series.

    Left-out rows took part in the choice of the hyperparameters. With few rows for each, pass held-out rows instead.
    Held-out rows have no known noise: compare models that need it by left-out rows.

    Args:
        models: At least two fitted models of one target, by name. Their columns may differ.
        X: Held-out inputs of all models, such as a dataframe. If None, training rows are left out one at a time.
        y: Held-out targets (n,).
        exposure: The exposures of held-out rows, (n,) or one number, if the models take them.
        trials: Their numbers of trials, likewise.
        censored: Their codes of censoring, likewise.

    Raises:
        InvalidArgumentError: If there is one model only, X or y is missing, their lengths differ, or a model takes no
            exposures, trials or censoring.
        NotFittedError: If a model has no data yet, or no rows to leave out.
        DataError: If models were fitted to other rows or targets, a row has no finite density, or row labels of pandas
            differ in order.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> from rfgp import kernels as k
        >>> x = np.linspace(0, 10, 60)[:, None]
        >>> fits = {"smooth": rfgp.GP(k.RBF(), seed=0), "line": rfgp.GP(k.Linear(), seed=0)}
        >>> fits = {name: gp.fit(x, np.sin(x[:, 0])) for name, gp in fits.items()}
        >>> list(rfgp.compare.compare_models(fits).scores)
        ['smooth', 'line']
    """
    if not isinstance(models, Mapping) or len(models) < 2 or not all(isinstance(gp, GP) for gp in models.values()):
        raise InvalidArgumentError("models must be a dict of at least two fitted GPs by name. Fit a second one.")
    if (X is None) != (y is None):
        raise InvalidArgumentError("X and y must be given together. Omit both to leave out training rows.")
    numbers = {"exposure": exposure, "trials": trials, "censored": censored}
    if X is None and any(values is not None for values in numbers.values()):
        raise InvalidArgumentError("exposure, trials and censored are of held-out rows. Pass X and y as well.")
    check_labels(X, y=y, **numbers)
    names, rows = list(models), [(gp.predict(X), y) if X is not None else _left_out(gp.state) for gp in models.values()]
    for name, (_, targets) in zip(names, rows, strict=True):
        first = rows[0][1]
        if X is None and not (targets.shape == first.shape and torch.allclose(targets, first, rtol=1e-6)):
            sizes = "other values" if len(first) == len(targets) else f"{len(first):,} and {len(targets):,} rows"
            raise DataError(
                f"Models {quoted(names[0])} and {quoted(name)} must have the same training targets, got {sizes}. Fit "
                "both to the same rows and unit, or pass held-out X and y."
            )
    found = [
        _scores(name, prediction.observed(**numbers), y) for name, (prediction, y) in zip(names, rows, strict=True)
    ]
    best = max(found, key=lambda scores: float(scores[0].mean()))[0]
    table = {}
    for name, (log_density, *others) in zip(names, found, strict=True):
        apart = best - log_density
        error = float(apart.std()) / math.sqrt(len(apart)) if len(apart) > 1 else math.nan
        table[name] = ModelScore(float(log_density.mean()), float(apart.mean()), error, *others)
    ranked = dict(sorted(table.items(), key=lambda item: item[1].difference))
    return ModelComparison(ranked, len(best), "held out" if X is not None else "left out one at a time")


@torch.no_grad()
def _left_out(state: GPState) -> tuple[Any, Any]:
    return left_out_prediction(state, state.require_rows(purpose="a comparison without X and y"))


def _scores(name: str, observed: Any, y: Any) -> tuple[torch.Tensor, float, float]:
    """Return the log densities (n,) of rows, the coverage of 95 % intervals and the RMSE."""
    if np.shape(y) != (len(observed.mean),):
        raise InvalidArgumentError(
            f"y must have shape ({len(observed.mean)},), got {np.shape(y)}. Compare several outputs one at a time."
        )
    log_density = torch.as_tensor(observed.log_prob(y)).double()
    if not bool(log_density.isfinite().all()):
        row = int((~log_density.isfinite()).nonzero()[0])
        raise DataError(f"Row {row} has no finite log density under {quoted(name)}. Check its target, or drop the row.")
    if getattr(getattr(observed, "likelihood", None), "has_classes", False):
        return log_density, math.nan, math.nan
    return log_density, float(metrics.interval_coverage(y, observed, [0.95])), metrics.rmse(y, observed)
