"""The fit of a half-integer Matern process of one column as a state-space model, by scoring steps.

The first searches are on subsets, as for other terms. On all rows only a few steps remain. Each step takes one pass,
which yields both the score and the information.

60,000 rows on one core, nu 1/2 and 3/2: 9 and 7 evaluations take 0.13 s and 0.14 s. L-BFGS with the gradient of the
smoother takes 15 to 20, and 0.16 to 0.23 s and 0.29 to 0.35 s. On 10^6 rows of a fast wave, L-BFGS ended two of three
fits where the subset had left it, with all variance as noise.
"""

from typing import ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from rfgp.fitting.average_information import STEP, Floats, Scoring
from rfgp.fitting.context import TermFit
from rfgp.fitting.starts import screened
from rfgp.fitting.subsets import SearchStage, search_in_stages
from rfgp.limits import limits
from rfgp.models import FitReport, GPState
from rfgp.parameters import ParameterValues
from rfgp.rows import Block, gathered
from rfgp.solvers.chain import ChainSolver, ascending_rows

MIDDLE_ROWS = 50_000
"""The number of rows of an intermediate search. It is skipped for fewer than four times as many rows."""


def fit_state_space(fit: TermFit) -> tuple[GPState, FitReport]:
    """Fit a Matern process of one column.

    Args:
        fit: The fit at its starting values.

    Returns:
        The state at the hyperparameters found, and the report.
    """
    fit, rows, most = fit.at(screened(fit)), gathered(fit.rows), limits().subset_rows
    stages = [SearchStage(rows if len(rows) <= 2 * most else fit.subset(most))]
    if len(rows) >= 4 * MIDDLE_ROWS:
        stages.append(SearchStage(fit.subset(MIDDLE_ROWS), _search))
    if len(rows) > 2 * most:
        stages.append(SearchStage(rows, _search))
    fit, reports = search_in_stages(fit, stages)
    return fit.state, reports[-1].merged_with(reports)


def _search(fit: TermFit, rows: Block) -> tuple[TermFit, FitReport]:
    """Take scoring steps on rows; return the fit at the values found, and the report."""
    some = ascending_rows(fit.prior, rows)
    jacobian = fit.state.scaling.targets.log_jacobian(rows.count)

    def infer(values: ParameterValues) -> ChainSolver:
        return cast(ChainSolver, fit.state.replace(hyperparameters=values).infer(some))

    stage = "all rows" if len(rows) == len(fit.rows) else f"subset of {len(rows)}"
    values, report = StateSpaceScoring(infer, some, jacobian, fit.values, fit.plan, stage).run()
    return fit.at(values), report


class StateSpaceScoring(Scoring[ChainSolver]):
    """A search whose score and information come from one pass over the rows."""

    done: ClassVar[float] = 0.01

    def information(self, point: Floats, inference: ChainSolver) -> Tensor:
        """Return the information (p, p) at a point (p,).

        Args:
            point: The raw values of the free hyperparameters, (p,).
            inference: The solver at this point.
        """
        columns = []
        for j in range(len(point)):
            ends = [self._coordinates(point + sign * STEP * (np.arange(len(point)) == j)) for sign in (1, -1)]
            columns.append((ends[0] - ends[1]) / (2 * STEP))
        slopes = torch.stack(columns, dim=1)
        return slopes.mT @ inference.information @ slopes

    def _coordinates(self, point: Floats) -> Tensor:
        """Return the solver's coordinates at a point (p,) without a pass over the rows."""
        with torch.no_grad():
            return self._infer(self._at(point)).coordinates
