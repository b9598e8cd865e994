"""The family of a table whose options are still open, before one of the candidates is selected."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from rfgp.blocks import Prior
from rfgp.parameters import Values
from rfgp.regression.family import Family
from rfgp.regression.table.choice import TableFamily, family_of
from rfgp.regression.table.inputs import TableInputs
from rfgp.regression.table.offers import FEW_ROWS, OpenOptions
from rfgp.rows import DataSummary


@dataclass(frozen=True, eq=False)
class OpenFamily(Family):
    """Candidates of which a fit selects one.

    Attributes:
        options: The options that the user gave, and those left open.
        summary: The summary of the data. If None, there are no data yet.
    """

    options: OpenOptions
    summary: DataSummary | None = None

    @property
    def inputs(self) -> TableInputs:
        """Tables."""
        return TableInputs(self.options)

    def with_data_summary(self, summary: DataSummary) -> tuple[Self, DataSummary]:
        """Return the family with the summary of the data, and the summary."""
        return replace(self, summary=summary), summary

    def resolved(self, rows: int) -> TableFamily:
        """Return the family of the first candidate for so many rows."""
        return family_of(self.options.menu(rows)[0].options)

    def prior(self, values: Values) -> Prior:
        """Fail: an open family has no prior."""
        raise AssertionError("a family that is open has no prior")

    def identity(self) -> Iterator[str | Tensor]:
        """Yield the options (no tensors)."""
        yield "open"
        yield from (f"{name}={value!r}" for name, value in sorted(vars(self.options).items()) if name != "priors")


def family_for(options: OpenOptions) -> TableFamily | OpenFamily:
    """Return the family of options, that of the only candidate if there is one for any number of rows."""
    menus = [options.menu(rows, streamed) for rows in (2, FEW_ROWS + 1) for streamed in (False, True)]
    only = {len(menu) for menu in menus} == {1} and len({repr(menu) for menu in menus}) == 1
    return family_of(menus[0][0].options) if only else OpenFamily(options)
