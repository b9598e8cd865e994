"""The candidates of `rfgp.TableGP`, within the options that are named."""

from dataclasses import dataclass

from rfgp.regression import Limits, OpenOptions
from rfgp.regression.table import model_options
from rfgp.selection.candidates import Candidate


@dataclass(frozen=True)
class TableSpace:
    """The candidates within options of a table.

    Attributes:
        options: The options.
    """

    options: OpenOptions

    @property
    def limits(self) -> Limits:
        """The limits of the selection and the fit."""
        return self.options.limits

    def candidates(self, num_rows: int, *, in_blocks: bool = False) -> tuple[Candidate, ...]:
        """Return the candidates for a number of rows, variants after their heads."""
        offers = self.options.menu(num_rows, in_blocks)
        return tuple(Candidate(model_options(offer.options), offer.head) for offer in offers)
