"""The family of a table whose options are still open: what data say of it before one of the candidates is taken."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from rfgp.inference import Prior
from rfgp.parameters import Values
from rfgp.regression.family import Family
from rfgp.regression.table.choice import TableFamily, family_of
from rfgp.regression.table.inputs import TableInputs
from rfgp.regression.table.offers import FEW_ROWS, OpenOptions
from rfgp.rows import DataSummary


@dataclass(frozen=True, eq=False)
class OpenFamily(Family):
    """Candidates of which a fit takes one.

    Attributes:
        options: What the user chose, and what he left open.
        summary: What the data decide; None before there are some.
    """

    options: OpenOptions
    summary: DataSummary | None = None

    @property
    def inputs(self) -> TableInputs:
        """Tables."""
        return TableInputs(self.options)

    def seeing(self, summary: DataSummary) -> Self:
        """Return the family with what the data decide."""
        return replace(self, summary=summary)

    def closed(self, rows: int) -> TableFamily:
        """Return the family that serves so many rows where nothing is to be measured."""
        return family_of(self.options.menu(rows)[0].options)

    def prior(self, values: Values) -> Prior:
        """Return that of the family that is taken where nothing is measured."""
        raise AssertionError("a family that is open has no prior")

    def identity(self) -> Iterator[str | Tensor]:
        """Yield the options (no tensors)."""
        yield "open"
        yield from (f"{name}={value!r}" for name, value in sorted(vars(self.options).items()) if name != "priors")


def family_for(options: OpenOptions) -> TableFamily | OpenFamily:
    """Return the family of options; where one candidate is left whatever the rows, that one's."""
    menus = [options.menu(rows, streamed) for rows in (2, FEW_ROWS + 1) for streamed in (False, True)]
    only = {len(menu) for menu in menus} == {1} and len({repr(menu) for menu in menus}) == 1
    return family_of(menus[0][0].options) if only else OpenFamily(options)
