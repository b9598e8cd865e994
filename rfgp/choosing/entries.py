"""Candidates in the rounds: what they are, what is predicted of them, and what has been found."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from rfgp.choosing.costs import Cost, fit_cost, posterior_operations
from rfgp.choosing.grounds import Found, is_near, is_told_all
from rfgp.regression import Measurement, Offer, Trial
from rfgp.regression.record import RATE
from rfgp.regression.table.offers import as_given, in_words


@dataclass(eq=False)
class Entry:
    """A candidate in the rounds.

    Attributes:
        offer: The candidate.
        cost: Of a fit to all rows.
        telling: Predicted seconds of its posterior given all rows, where nothing is searched.
        found: The last fit; None: none yet.
        measured: By rounds.
        remark: Why it goes no further.
    """

    offer: Offer
    cost: Cost
    telling: float
    found: Found | None = None
    measured: list[Measurement] = field(default_factory=list)
    remark: str = ""

    @property
    def density(self) -> float:
        """Of judged rows, on average."""
        return self.measured[-1].value if self.measured else -math.inf

    @property
    def densities(self) -> Tensor | None:
        """Of each judged row (b,), on the processor; None: it is not measured."""
        return None if self.found is None else self.found.density.double().cpu()

    @property
    def noise(self) -> float:
        """The variance of the noise that was found, in that of the targets."""
        assert self.found is not None
        return float(self.found.regression.hyperparameters.standardized("noise"))

    def is_known(self, rows: int) -> bool:
        """Return whether it has been measured on so many rows."""
        return bool(self.measured) and self.measured[-1].rows >= rows

    def left(self, count: int, searched: int | None = None) -> float:
        """Return the predicted seconds that follow the measuring, if it is taken.

        Args:
            count: All rows.
            searched: Those that it would be measured on; None: those that it was.
        """
        searched = searched or (0 if self.found is None else self.found.searched)
        return self.telling if is_told_all(self.offer.options, searched, count) else self.cost.seconds

    def num_of_sum(self, columns: int) -> int:
        """Return the number of hyperparameters of a sum of two exact kernels; 0 of others."""
        options = self.offer.options
        return (2 * columns + 3 if options.ard else 5) if options.features == "exact" and options.has_both else 0

    def found_of(self, head: "Entry | None") -> Found | None:
        """Return what was found with another local process, where the way is short (bike: 70 evaluations, not 149).

        Args:
            head: That of which this is a variant.
        """
        options = self.offer.options
        if head is None or not is_near(options) or options.features != head.offer.options.features:
            return None
        return head.found

    def as_trial(self) -> Trial:
        """Return its record."""
        options = self.offer.options
        about = in_words(options), as_given(options), self.cost.seconds, self.cost.memory
        return Trial(*about, tuple(self.measured), self.remark)


def entries_of(offers: Sequence[Offer], rows: int, columns: int, outputs: int) -> list[Entry]:
    """Return candidates with what is predicted of fits to so many rows."""
    return [
        Entry(
            offer,
            fit_cost(offer.options, rows, columns, outputs),
            posterior_operations(offer.options, rows, columns) / RATE,
        )
        for offer in offers
    ]
