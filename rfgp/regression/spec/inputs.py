"""Mixed columns as the inputs of a model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rfgp.columns import Kind, Schema, Table
from rfgp.errors import DataError
from rfgp.kernels.summary import ColumnSummary
from rfgp.kernels.terms import BoundTerm, check_points, hyperparameters_of
from rfgp.parameters import Quantity
from rfgp.regression.spec.sources import coded
from rfgp.rows import Chunk, RowSource
from rfgp.rows.arrays import Origin
from rfgp.scaling import Scaling


@dataclass(frozen=True, eq=False)
class ModelInputs:
    """The columns of a kernel, read as one matrix (n, D).

    Attributes:
        schema: The columns. If None, there are no data yet.
        terms: The terms, which know the places of their columns.
        columns: The summary of the training rows. If None, there are none yet.
        dtype: The type that the user chose. If None, that of the data.
        standardize: Whether numbers and targets are standardised.
    """

    schema: Schema | None
    terms: Sequence[BoundTerm]
    columns: ColumnSummary | None
    dtype: torch.dtype | None
    standardize: bool
    reads_blocks = True

    def read(self, inputs: Any) -> tuple[Tensor, Origin]:
        """Return the columns of a table as a matrix (n, D), and the origin of the table."""
        assert self.schema is not None
        table = Table.of(inputs)
        found = self.schema.read(table)
        found = found if self.dtype is None else found.to(self.dtype)
        check_points(self.terms, found)
        return found, Origin(table.origin.is_numpy, found.new_empty(0))

    def coded(self, source: RowSource) -> RowSource:
        """Return a source whose blocks are matrices (b, D)."""
        assert self.schema is not None
        return coded(source, self, tuple(column.key for column in self.schema.columns))

    def complete(self, given: Chunk) -> Chunk:
        """Return the rows as they are: missing cells are errors."""
        return given

    def quantities(self, spread: Tensor, scaling: Scaling) -> dict[str, Quantity]:
        """Return the hyperparameters of the kernel by path, whatever the standard deviations (D,).

        Variances of slopes share the variance of the target with the other terms.
        """
        assert self.columns is not None
        found = hyperparameters_of(self.terms, self.columns)
        share = 1 / len(self.terms)
        return {path: replace(one, start=share * one.start) if one.is_variance else one for path, one in found.items()}

    def check(self, inputs: Tensor) -> None:
        """Refuse rows that are not (n, D), and cells that `read` never returns for training rows.

        Raises:
            DataError: they have another shape, or there is no such level, node or point.
        """
        assert self.schema is not None
        assert self.columns is not None
        if inputs.ndim != 2 or inputs.shape[1] != len(self.schema.columns):
            raise DataError(f"The rows must have shape (n, {len(self.schema.columns)}), got {tuple(inputs.shape)}.")
        check_columns(self.terms, self.columns, inputs)


def check_columns(terms: Sequence[BoundTerm], columns: ColumnSummary, inputs: Tensor) -> None:
    """Refuse rows (n, D) with levels, nodes or points that terms do not have.

    Raises:
        DataError: with the name of the term.
    """
    for term in terms:
        for factor, places, _ in term.parts():
            for place in places if factor.kind in (Kind.LEVEL, Kind.NODE) else []:
                size = columns.num_levels[place] if factor.nodes is None else int(factor.nodes.num_nodes)
                cells = inputs[:, place]
                if not bool(((cells >= 0) & (cells < size) & (cells == cells.floor())).all()):
                    raise DataError(f"The term {term.name!r} has {size} {factor.kind.value}s, and a row has another.")
    check_points(terms, inputs)
