"""Sums over rows for designs without hyperparameters, in one pass.

The columns Z of the rows are 1, the targets and the features of dense designs. With theta_k = 2 pi h k (x - center) for
the integers k of a lattice, the sums are Z^T P Z, and for each lattice

    v_k = sum_n P_n exp(i theta_k(x_n))  for |k| <= 2 K,      b_k = sum_n P_n Z_n exp(i theta_k(x_n))  for |k| <= K,

by type-1 non-uniform FFTs. P_n is the number of observations of row n, or another weight that depends on the noise of
the row or on a likelihood. Two real columns are one complex transform. For two lattices there are the sums of
exp(i (theta_k + phi_l)), by a transform in the columns of both. All sums are additive: those of disjoint rows can be
added and subtracted.

Source: Greengard, Rachh and Barnett (2022), Section 3, for v and b of one lattice.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp.blocks.weights import Design
from rfgp.errors import DataError
from rfgp.lattices import Lattice
from rfgp.lattices.design import LatticeDesign
from rfgp.lattices.transforms import Complex, Floats, sums_at_frequencies
from rfgp.rows import Block, Rows
from rfgp.rows.blocks import Sums, sums_over_parts

BLOCK_ROWS = 2**18
"""The number of rows of a block, if all designs are lattices."""
ENTRIES = 2**22
"""The maximum number of entries of dense features of a block."""
MAX_JOINT = 3
"""The maximum number of columns of two lattices together."""
Weighing = Callable[[Block], tuple[Sequence[Block], Sequence[Tensor]]]
"""Maps rows to the same rows with other weights P (b,) and targets, and to further values to sum, 0-d each.

It is pickled if rows are on other machines."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Designs grouped by the kind of their sums.

    Attributes:
        designs: All designs, in order.
        lattices: The distinct lattices.
        lattice_of: The index of the lattice of each design, or None for a dense one.
        dense: The indices of the dense designs.
    """

    designs: tuple[Design, ...]
    lattices: tuple[Lattice, ...]
    lattice_of: tuple[int | None, ...]
    dense: tuple[int, ...]

    @classmethod
    def of(cls, designs: Sequence[Design]) -> "Layout":
        """Return the layout of designs.

        Args:
            designs: The designs of all blocks.
        """
        lattices, lattice_of = list[Lattice](), list[int | None]()
        for design in designs:
            if not isinstance(design, LatticeDesign):
                lattice_of.append(None)
                continue
            known = next((i for i, lattice in enumerate(lattices) if lattice.same_as(design.lattice)), None)
            if known is None:
                known = len(lattices)
                lattices.append(design.lattice)
            lattice_of.append(known)
        dense = tuple(i for i, index in enumerate(lattice_of) if index is None)
        return cls(tuple(designs), tuple(lattices), tuple(lattice_of), dense)

    @property
    def key(self) -> tuple[Any, ...]:
        """The designs and lattices that define the sums."""
        return (*self.lattices, *(self.designs[index] for index in self.dense))

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of distinct lattices."""
        count = len(self.lattices)
        return [(a, b) for a in range(count) for b in range(a + 1, count)]

    @property
    def num_dense(self) -> int:
        """The number of features of the dense designs."""
        return sum(self.designs[index].num_features for index in self.dense)

    def dense_features(self, inputs: Tensor) -> Tensor:
        """Return the features of the dense designs, (n, F), float64.

        Args:
            inputs: The inputs of the rows, (n, D).
        """
        parts = [self.designs[index].fixed_features(inputs).double() for index in self.dense]
        return torch.cat(parts, dim=1) if parts else torch.zeros(len(inputs), 0, dtype=torch.float64)

    @property
    def is_joint(self) -> bool:
        """Whether each pair of lattices has a transform."""
        return all(
            self.lattices[a].num_columns + self.lattices[b].num_columns <= MAX_JOINT
            and not set(self.lattices[a].column_indices) & set(self.lattices[b].column_indices)
            for a, b in self.pairs
        )


@dataclass(frozen=True, eq=False)
class RowSums:
    """The sums over some rows.

    Attributes:
        generators: The sums v of each lattice, (4 K_1 + 1, ..., 4 K_d + 1).
        projections: The sums b of each lattice, (2 K_1 + 1, ..., 2 K_d + 1, q) for the q columns of Z.
        crosses: The sums for each pair of lattices, in the shapes of both.
        gram: The matrix Z^T P Z, (q, q).
        num_rows: The number of rows.
        num_outputs: The number k of targets.
    """

    generators: tuple[Complex, ...]
    projections: tuple[Complex, ...]
    crosses: tuple[Complex, ...]
    gram: Floats
    num_rows: int
    num_outputs: int

    @property
    def observations(self) -> float:
        """The number of observations, repetitions included."""
        return float(self.gram[0, 0])

    def plus(self, other: "RowSums", sign: int = 1) -> "RowSums":
        """Return the sums of these rows with or without others.

        Args:
            other: The sums over the other rows, of the same layout.
            sign: 1 to add the other rows, which is the default, or -1 to remove them.
        """
        mine, theirs = self._arrays(), other._arrays()
        combined = [a + sign * b for a, b in zip(mine, theirs, strict=True)]
        return self._with(combined, self.num_rows + sign * other.num_rows)

    def flat(self) -> tuple[Tensor, ...]:
        """Return the sums as real tensors (...), with the number of rows last."""
        arrays = [torch.as_tensor(a.view(np.float64) if np.iscomplexobj(a) else a) for a in self._arrays()]
        return (*arrays, torch.tensor(float(self.num_rows), dtype=torch.float64))

    def of_flat(self, tensors: Sequence[Tensor]) -> "RowSums":
        """Return sums of the same layout from their tensors.

        Args:
            tensors: The tensors (...) of `flat`.
        """
        arrays = [tensor.numpy() for tensor in tensors[:-1]]
        kinds = self._arrays()
        parts = [a.view(np.complex128) if np.iscomplexobj(b) else a for a, b in zip(arrays, kinds, strict=True)]
        return self._with(parts, round(float(tensors[-1])))

    def _arrays(self) -> list[Any]:
        return [*self.generators, *self.projections, *self.crosses, self.gram]

    def _with(self, arrays: Sequence[Any], num_rows: int) -> "RowSums":
        count = len(self.generators)
        parts = tuple(arrays[:count]), tuple(arrays[count : 2 * count]), tuple(arrays[2 * count : -1])
        return RowSums(*parts, arrays[-1], num_rows, self.num_outputs)


def no_sums(layout: Layout, num_outputs: int) -> RowSums:
    """Return the sums over no rows.

    Args:
        layout: The layout of the designs.
        num_outputs: The number of targets of a row.
    """
    q = 1 + num_outputs + layout.num_dense
    lattices = layout.lattices
    return RowSums(
        tuple(np.zeros(lattice.doubled_shape, dtype=np.complex128) for lattice in lattices),
        tuple(np.zeros((*lattice.shape, q), dtype=np.complex128) for lattice in lattices),
        tuple(np.zeros((*lattices[a].shape, *lattices[b].shape), dtype=np.complex128) for a, b in layout.pairs),
        np.zeros((q, q)),
        0,
        num_outputs,
    )


def sums_over(layout: Layout, rows: Rows) -> RowSums:
    """Return the sums over rows, in one pass.

    Rows on other machines are summed there.

    Args:
        layout: The layout of the designs.
        rows: The rows.
    """
    return weighted_sums(layout, rows, _unchanged)[0][0]


def weighted_sums(
    layout: Layout, rows: Rows, weigh: Weighing, count: int = 1, num_values: int = 0
) -> tuple[list[RowSums], list[Tensor]]:
    """Return the sums over rows for several weights, and sums of further values.

    All sums take one pass over the rows.

    Args:
        layout: The designs.
        rows: The rows.
        weigh: Returns the rows with each of the weights, and the values.
        count: The number of different weights. The default is 1.
        num_values: The number of values. The default is 0.

    Returns:
        The sums for each of the weights, and the sums of the values, 0-d each.
    """
    sums = sums_over_parts(rows, partial(_flat_sums, layout, weigh, count, num_values))
    empty, size = no_sums(layout, rows.num_outputs), (len(sums) - num_values) // count
    return [empty.of_flat(sums[i * size : (i + 1) * size]) for i in range(count)], list(sums[count * size :])


def row_blocks(layout: Layout, rows: Rows) -> Iterator[Block]:
    """Yield rows in blocks whose dense features are small.

    Args:
        layout: The layout of the designs.
        rows: The rows.
    """
    width = layout.num_dense
    yield from rows.blocks(BLOCK_ROWS if not width else max(256, min(BLOCK_ROWS, ENTRIES // width)))


def _unchanged(block: Block) -> tuple[Sequence[Block], Sequence[Tensor]]:
    return (block,), ()


def _flat_sums(layout: Layout, weigh: Weighing, count: int, num_values: int, rows: Rows) -> Sums:
    totals = [no_sums(layout, rows.num_outputs)] * count
    values = torch.zeros(num_values, dtype=torch.float64)
    for block in row_blocks(layout, rows):
        weighted, more = weigh(block)
        totals = [
            total.plus(sums_of_block(layout, weighted_block))
            for total, weighted_block in zip(totals, weighted, strict=True)
        ]
        values = values + torch.stack(list(more)) if num_values else values
    return (*(tensor for total in totals for tensor in total.flat()), *values.unbind())


def sums_of_block(layout: Layout, block: Block) -> RowSums:
    """Return the sums over a block of rows.

    Args:
        layout: The layout of the designs.
        block: The block.

    Raises:
        DataError: If a row is outside the box of a lattice.
    """
    with torch.no_grad():
        dense = layout.dense_features(block.inputs)
        columns = torch.cat([block.targets.double(), dense], dim=1).numpy()
        points = [lattice.columns(block.inputs) for lattice in layout.lattices]
        for lattice, positions in zip(layout.lattices, points, strict=True):
            _check_inside(lattice, positions)
        angles = [lattice.angles(positions) for lattice, positions in zip(layout.lattices, points, strict=True)]
    weight = None if block.weight is None else block.weight.numpy()
    weighted = columns if weight is None else columns * weight[:, None]
    ones = np.ones(len(block)) if weight is None else weight
    transformed = [_transforms(a, ones, weighted, lattice) for a, lattice in zip(angles, layout.lattices, strict=True)]
    crosses = []
    for a, b in layout.pairs:
        shape = (*layout.lattices[a].shape, *layout.lattices[b].shape)
        crosses.append(sums_at_frequencies(np.hstack([angles[a], angles[b]]), ones.astype(np.complex128), shape))
    design = np.hstack([np.ones((len(block), 1)), columns])
    gram = np.hstack([ones[:, None], weighted]).T @ design
    parts = tuple(v for v, _ in transformed), tuple(b for _, b in transformed)
    return RowSums(*parts, tuple(crosses), gram, len(block), block.num_outputs)


def _transforms(angles: Floats, ones: Floats, columns: Floats, lattice: Lattice) -> tuple[Complex, Complex]:
    """Return v and b of a lattice, for weights (n,) and weighted columns (n, q - 1)."""
    first, *others = columns.T
    both = sums_at_frequencies(angles, ones + 1j * first, lattice.doubled_shape)
    generator, projection = _divided(both)
    inner = tuple(slice(int(k), int(3 * k + 1)) for k in lattice.half_widths)
    series = [generator[inner], projection[inner]]
    for index in range(0, len(others), 2):
        pair = others[index] + 1j * (others[index + 1] if index + 1 < len(others) else 0)
        series += _divided(sums_at_frequencies(angles, pair, lattice.shape))
    return generator, np.stack(series[: len(others) + 2], axis=-1)


def _divided(sums: Complex) -> tuple[Complex, Complex]:
    """Return the sums with the real and with the imaginary parts of the strengths."""
    mirrored = np.conj(np.flip(sums))
    return (sums + mirrored) / 2, (sums - mirrored) / 2j


def _check_inside(lattice: Lattice, points: Tensor) -> None:
    """Raise if points (n, d) are outside the box of a lattice.

    Raises:
        DataError: If there are such points.
    """
    outside = int((~lattice.contains(points)).sum())
    if outside:
        raise DataError(
            f"Rows must be within the range of the training rows for EquispacedFourier, got {outside:,} outside. Fit "
            "or condition on all rows again."
        )
