"""The state of each candidate in a selection: its predicted cost, its last fit and its scores."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from rfgp.regression import Score, Trial
from rfgp.regression.selection_report import RATE
from rfgp.selection.candidates import Candidate
from rfgp.selection.costs import Cost, fit_cost, posterior_operations
from rfgp.selection.validation import FittedCandidate, is_conditioned_only


@dataclass(eq=False)
class CandidateState:
    """A candidate in a selection.

    Attributes:
        candidate: The candidate.
        cost: The predicted cost of a fit to all rows.
        conditioning: The predicted seconds of the posterior given all rows, without a search.
        fitted: The last fit. If None, there is none yet.
        scores: The scores of the rounds, in order.
        status: Why it goes no further. Empty while it does.
    """

    candidate: Candidate
    cost: Cost
    conditioning: float
    fitted: FittedCandidate | None = None
    scores: list[Score] = field(default_factory=list)
    status: str = ""

    @property
    def score(self) -> float:
        """The last mean log density of validation rows, -inf without a score."""
        return self.scores[-1].value if self.scores else -math.inf

    @property
    def densities(self) -> Tensor | None:
        """The log densities of validation rows (b,), on the processor. None without a score."""
        return None if self.fitted is None else self.fitted.density.double().cpu()

    @property
    def noise(self) -> float:
        """The fitted noise, in variances of the target."""
        assert self.fitted is not None
        return float(self.fitted.regression.hyperparameters.standardized("noise"))

    def is_scored(self, rows: int) -> bool:
        """Return whether it has a score of a fit to at least so many rows."""
        return bool(self.scores) and self.scores[-1].rows >= rows

    def remaining(self, count: int, searched: int | None = None) -> float:
        """Return the predicted seconds after the selection if the candidate is taken.

        Args:
            count: The number of all rows.
            searched: The number of rows that it would be fitted to. If None, that of its last fit.
        """
        searched = searched or (0 if self.fitted is None else self.fitted.searched)
        only = is_conditioned_only(self.candidate, searched, count)
        return self.conditioning if only else self.cost.seconds

    def num_of_sum(self, columns: int) -> int:
        """Return the number of hyperparameters of a sum of two exact kernels, 0 for other candidates."""
        one = self.candidate
        return (2 * columns + 3 if one.is_ard else 5) if one.is_exact and one.is_sum else 0

    def fitted_of(self, head: "CandidateState | None") -> FittedCandidate | None:
        """Return the fit of a head with other neighbours, at which a search starts (bike: 70 evaluations, not 149).

        Args:
            head: The state of the candidate of which this is a variant.
        """
        if head is None or self.candidate.neighbors is None or self.candidate.kind != head.candidate.kind:
            return None
        return head.fitted

    def as_trial(self) -> Trial:
        """Return the record of the candidate."""
        one = self.candidate
        return Trial(one.name, one.values, self.cost.seconds, self.cost.memory, tuple(self.scores), self.status)


def states_of(candidates: Sequence[Candidate], rows: int, columns: int, outputs: int) -> list[CandidateState]:
    """Return candidates with the predicted costs of fits to so many rows."""
    return [
        CandidateState(one, fit_cost(one, rows, columns, outputs), posterior_operations(one, rows, columns) / RATE)
        for one in candidates
    ]
