"""Sums over the rows of designs without hyperparameters, from one pass.

A design on a lattice has the features c_j Re exp(i theta_j) and c_j Im exp(i theta_j) of the modes j. c_0 is 1, and
c_j = sqrt(2) otherwise. The mode j = 0 has no imaginary part. Products of two features are

    cos a cos b = Re(e^(i(a-b)) + e^(i(a+b))) / 2,     sin a sin b = Re(e^(i(a-b)) - e^(i(a+b))) / 2,
    sin a cos b = Im(e^(i(a+b)) + e^(i(a-b))) / 2,     cos a sin b = Im(e^(i(a+b)) - e^(i(a-b))) / 2.

The columns Z of the rows are 1, the targets and the features of dense designs. With theta_k = 2 pi h k (x - center) for
the integers k of a lattice, the sums are Z^T P Z, and for each lattice

    v_k = sum_n P_n exp(i theta_k(x_n))  for |k| <= 2 K,      b_k = sum_n P_n Z_n exp(i theta_k(x_n))  for |k| <= K,

by type-1 non-uniform FFTs. P_n is the number of observations of row n, or another weight that depends on the noise of
the row or on a likelihood. Two real columns are one complex transform. For two lattices there are the sums of
exp(i (theta_k + phi_l)), by a transform in the columns of both. All sums are additive: those of disjoint rows can be
added and subtracted.

Source: Greengard, Rachh and Barnett (2022), Section 3, for v and b of one lattice.
"""

import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.blocks.role import Design
from rfgp.errors import DataError
from rfgp.lattices import Lattice, Modes
from rfgp.lattices.design import Complex, Floats, LatticeDesign, series_at_points, sums_at_frequencies
from rfgp.rows import Block, Rows
from rfgp.rows.blocks import Sums, sums_over_parts
from rfgp.solvers.lowrank import Statistics as WeightStatistics
from rfgp.torch_context import Recent

# --- Products of real features on lattices, and series of such products ----------------------------------------------

Integers = NDArray[np.int64]
_ENTRIES = 2**20
"""The maximum number of entries of a covariance whose products are in memory at once."""


def amplitudes(modes: Modes) -> Floats:
    """Return the amplitudes c_j, (p + 1,).

    Args:
        modes: The modes j of a lattice.
    """
    out = np.full(len(modes.indices) + 1, math.sqrt(2))
    out[0] = 1
    return out


def indices_of(modes: Modes) -> Integers:
    """Return the integers of the modes, 0 first, (p + 1, d).

    Args:
        modes: The modes j of a lattice.
    """
    return np.concatenate([np.zeros((1, modes.lattice.num_columns), dtype=np.int64), modes.indices])


def at_modes(sums: Complex, modes: Modes) -> Complex:
    """Return the entries of sums at the modes of a lattice, (p + 1, q).

    Args:
        sums: The sums at all integers of the lattice, (2 K_1 + 1, ..., 2 K_d + 1, q).
        modes: The modes.
    """
    indices = indices_of(modes) + modes.lattice.half_widths
    return np.asarray(sums[tuple(indices.T)])


def real_projections(values: Complex, modes: Modes) -> Floats:
    """Return the sums of features times columns, (2 p + 1, q).

    Args:
        values: The sums of exponentials times columns, (p + 1, q).
        modes: The modes.
    """
    scaled = amplitudes(modes)[:, None] * values
    return np.concatenate([scaled.real, scaled.imag[1:]])


def sums_of_products(sums: Complex, first: Modes, second: Modes) -> Floats:
    """Return the sums of products of features of two sets of modes.

    The shape is (2 p + 1, 2 q + 1).

    Args:
        sums: The sums of exponentials on the doubled lattice, (4 K_1 + 1, ..., 4 K_d + 1), for modes of one lattice.
            For modes of two lattices, the sums of products of exponentials, in the shapes of both.
        first: The p modes of the first set.
        second: The q modes of the second set.
    """
    _, a, b = _offsets(first, second)
    zero, flat = sums.size // 2, sums.reshape(-1)
    scale = 0.5 * amplitudes(first)[:, None] * amplitudes(second)
    minus, plus = scale * flat[zero + a[:, None] - b], scale * flat[zero + a[:, None] + b]
    cosines = np.hstack([plus.real + minus.real, (plus.imag - minus.imag)[:, 1:]])
    sines = np.hstack([plus.imag + minus.imag, (minus.real - plus.real)[:, 1:]])
    return np.vstack([cosines, sines[1:]])


def _offsets(first: Modes, second: Modes) -> tuple[tuple[int, ...], Integers, Integers]:
    """Return the shape of sums of products of exponentials of two sets of modes, and the offsets of both.

    Offsets (p + 1,) and (q + 1,) are from the middle of the flattened sums.
    """
    lattices = first.lattice, second.lattice
    if lattices[0] is lattices[1] or lattices[0].same_as(lattices[1]):
        shape = lattices[0].doubled_shape
        return shape, flat_indices(indices_of(first), shape), flat_indices(indices_of(second), shape)
    shapes = lattices[0].shape, lattices[1].shape
    outer = flat_indices(indices_of(first), shapes[0]) * math.prod(shapes[1])
    return (*shapes[0], *shapes[1]), outer, flat_indices(indices_of(second), shapes[1])


def real_series(coefficients: Floats, modes: Modes) -> Complex:
    """Return C with sum_k C_k exp(i theta_k) = sum_j w_j phi_j.

    The shape is (2 K_1 + 1, ..., 2 K_d + 1).

    Args:
        coefficients: The coefficients w, (2 p + 1,).
        modes: The modes.
    """
    lattice, p = modes.lattice, len(modes.indices)
    series = np.zeros(lattice.shape, dtype=np.complex128)
    real, imaginary = coefficients[: p + 1], np.concatenate([[0.0], coefficients[p + 1 :]])
    indices = indices_of(modes) + lattice.half_widths
    series[tuple(indices.T)] = amplitudes(modes) * (real - 1j * imaginary)
    return np.asarray(0.5 * (series + np.conj(np.flip(series))))


def quadratic_series(covariance: Floats, first: Modes, second: Modes) -> Complex:
    """Return C with Re sum_k C_k exp(i theta_k) = phi V psi^T.

    phi and psi are the features of two sets of modes.

    Args:
        covariance: The covariance V, (2 p + 1, 2 q + 1).
        first: The modes of phi.
        second: The modes of psi, on the same lattice or on one of other columns.

    Returns:
        The coefficients on the doubled lattice, or on the product of both lattices.
    """
    p, q = len(first.indices) + 1, len(second.indices) + 1
    shape, a, b = _offsets(first, second)
    size, total = math.prod(shape), np.zeros(math.prod(shape), dtype=np.complex128)
    for rows in np.array_split(np.arange(p), max(1, p * q // _ENTRIES)):
        scale = 0.5 * amplitudes(first)[rows, None] * amplitudes(second)
        cc, sc = covariance[rows, :q], np.zeros((len(rows), q))
        cs, ss, later = np.zeros_like(sc), np.zeros_like(sc), rows[rows > 0]
        cs[:, 1:] = covariance[rows, q:]
        sc[rows > 0], ss[rows > 0, 1:] = covariance[p - 1 + later, :q], covariance[p - 1 + later, q:]
        minus, plus = scale * ((cc + ss) + 1j * (cs - sc)), scale * ((cc - ss) - 1j * (cs + sc))
        starts = size // 2 + a[rows, None]
        indices, values = np.concatenate([starts - b, starts + b]).ravel(), np.concatenate([minus, plus]).ravel()
        total += np.bincount(indices, values.real, minlength=size)
        total += 1j * np.bincount(indices, values.imag, minlength=size)
    return total.reshape(shape)


def flat_indices(indices: Integers, shape: tuple[int, ...]) -> Integers:
    """Return the offsets of integers from the middle of a flattened array, (p,).

    Args:
        indices: The integers, (p, d).
        shape: The shape of the array, odd in each axis.
    """
    strides = np.cumprod((1, *shape[:0:-1]))[::-1]
    return np.asarray(indices @ strides, dtype=np.int64)


# --- Sums over rows for designs without hyperparameters, in one pass -------------------------------------------------

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
        arrays: The sums of `generators`, `projections` and `crosses`, and `gram`.
        num_lattices: The number of lattices.
        num_rows: The number of rows.
        num_outputs: The number k of targets.
    """

    arrays: tuple[Any, ...]
    num_lattices: int
    num_rows: int
    num_outputs: int

    @property
    def generators(self) -> tuple[Complex, ...]:
        """The sums v of each lattice, (4 K_1 + 1, ..., 4 K_d + 1)."""
        return self.arrays[: self.num_lattices]

    @property
    def projections(self) -> tuple[Complex, ...]:
        """The sums b of each lattice, (2 K_1 + 1, ..., 2 K_d + 1, q) for the q columns of Z."""
        return self.arrays[self.num_lattices : 2 * self.num_lattices]

    @property
    def crosses(self) -> tuple[Complex, ...]:
        """The sums for each pair of lattices, in the shapes of both."""
        return self.arrays[2 * self.num_lattices : -1]

    @property
    def gram(self) -> Floats:
        """The matrix Z^T P Z, (q, q)."""
        gram: Floats = self.arrays[-1]
        return gram

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
        arrays = tuple(a + sign * b for a, b in zip(self.arrays, other.arrays, strict=True))
        return replace(self, arrays=arrays, num_rows=self.num_rows + sign * other.num_rows)

    def flat(self) -> tuple[Tensor, ...]:
        """Return the sums as real tensors (...), with the number of rows last."""
        arrays = [torch.as_tensor(a.view(np.float64) if np.iscomplexobj(a) else a) for a in self.arrays]
        return (*arrays, torch.tensor(float(self.num_rows), dtype=torch.float64))

    def of_flat(self, tensors: Sequence[Tensor]) -> "RowSums":
        """Return sums of the same layout from their tensors.

        Args:
            tensors: The tensors (...) of `flat`.
        """
        pairs = zip(tensors[:-1], self.arrays, strict=True)
        arrays = (t.numpy().view(np.complex128) if np.iscomplexobj(a) else t.numpy() for t, a in pairs)
        return replace(self, arrays=tuple(arrays), num_rows=round(float(tensors[-1])))


def no_sums(layout: Layout, num_outputs: int) -> RowSums:
    """Return the sums over no rows.

    Args:
        layout: The layout of the designs.
        num_outputs: The number of targets of a row.
    """
    q = 1 + num_outputs + layout.num_dense
    lattices = layout.lattices
    shapes = [
        *(lattice.doubled_shape for lattice in lattices),
        *((*lattice.shape, q) for lattice in lattices),
        *((*lattices[a].shape, *lattices[b].shape) for a, b in layout.pairs),
    ]
    arrays = (*(np.zeros(shape, dtype=np.complex128) for shape in shapes), np.zeros((q, q)))
    return RowSums(arrays, len(lattices), 0, num_outputs)


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
    arrays = *(v for v, _ in transformed), *(b for _, b in transformed), *crosses, gram
    return RowSums(arrays, len(layout.lattices), len(block), block.num_outputs)


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


# --- Sufficient statistics of Gaussian regression on fixed designs ---------------------------------------------------

MAX_CACHED = 3
"""The maximum number of cached results of each set of rows: sums on two lattices, and statistics of their modes."""
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sums over rows of products of features phi and of targets.

    The features do not include prior standard deviations.

    Attributes:
        gram: The matrix phi^T P phi, (F, F).
        target: The products phi^T P y, (F, k).
        ones: The products phi^T P 1, (F,).
        squares: The squares y^T P y of each output, (k,).
        totals: The sums 1^T P y of each output, (k,).
        observations: The number of observations, including repetitions.
        sums: The sums from which the statistics are computed.
    """

    gram: Tensor
    target: Tensor
    ones: Tensor
    squares: Tensor
    totals: Tensor
    observations: float
    sums: RowSums

    def centered(self, mean: Tensor) -> WeightStatistics:
        """Return the statistics of features and of targets minus a mean.

        Args:
            mean: The mean, (k,).
        """
        target, observations = self.target - self.ones[:, None] * mean, self.squares.new_tensor(self.observations)
        squares = self.squares - 2 * mean * self.totals + mean.square() * observations
        return WeightStatistics(self.gram, target, squares.sum(), observations, observations)


_CACHE: weakref.WeakKeyDictionary[Rows, Recent[Any]] = weakref.WeakKeyDictionary()
"""The last sums and statistics of each set of rows, with their keys."""


def statistics_of(designs: Sequence[Design], rows: Rows) -> Statistics:
    """Return the statistics of rows.

    The rows are read unless statistics on the same lattices are cached.

    Args:
        designs: The designs of all blocks.
        rows: The rows.
    """
    layout = Layout.of(designs)

    def compute() -> Statistics:
        return assemble(layout, cached_sums(rows, layout.key, lambda: sums_over(layout, rows)))

    return cached_sums(rows, ("statistics", *layout.designs), compute)


def cached_sums(rows: Rows, key: tuple[Any, ...], compute: Callable[[], T]) -> T:
    """Return the result of a function of rows, or one of the last results with the same key.

    Args:
        rows: The rows, for whose lifetime results are cached.
        key: What the result depends on, besides the rows.
        compute: Returns the result.
    """
    found: T = _CACHE.setdefault(rows, Recent(MAX_CACHED)).find(key, compute)
    return found


def assemble(layout: Layout, sums: RowSums) -> Statistics:
    """Return the statistics for the modes of all designs.

    Args:
        layout: The layout of the designs.
        sums: The sums over the rows.
    """
    k, designs, columns = sums.num_outputs, layout.designs, _dense_columns(layout, sums)
    projections = [_projections(layout, sums, index, columns) for index in range(len(designs))]
    ends = np.cumsum([0, *(design.num_features for design in designs)])
    gram = np.empty((ends[-1], ends[-1]))
    for a in range(len(designs)):
        for b in range(a + 1):
            block = _sums_of_products(layout, sums, projections, columns, a, b)
            gram[ends[a] : ends[a + 1], ends[b] : ends[b + 1]] = block
            gram[ends[b] : ends[b + 1], ends[a] : ends[a + 1]] = block.T
    products = torch.as_tensor(np.concatenate(projections))
    dense = torch.as_tensor(sums.gram)
    squares, totals = dense.diagonal()[1 : 1 + k].clone(), dense[0, 1 : 1 + k].clone()
    target, ones = products[:, 1 : 1 + k].contiguous(), products[:, 0].contiguous()
    return Statistics(torch.as_tensor(gram), target, ones, squares, totals, sums.observations, sums)


def projected(layout: Layout, sums: RowSums) -> Tensor:
    """Return the products phi^T P Z of all features with columns Z of rows, (F, q).

    Args:
        layout: The layout of the designs.
        sums: The sums over the rows.
    """
    columns = _dense_columns(layout, sums)
    return torch.as_tensor(np.concatenate([_projections(layout, sums, i, columns) for i in range(len(layout.designs))]))


def _dense_columns(layout: Layout, sums: RowSums) -> dict[int, slice]:
    """Return the positions of the features of each dense design among the columns Z."""
    first = np.cumsum([0, *(layout.designs[index].num_features for index in layout.dense)]) + 1 + sums.num_outputs
    return {index: slice(int(a), int(b)) for index, a, b in zip(layout.dense, first[:-1], first[1:], strict=True)}


def _projections(layout: Layout, sums: RowSums, index: int, columns: dict[int, slice]) -> Floats:
    """Return the products of the features of a design with all columns Z, (F, q)."""
    lattice, design = layout.lattice_of[index], layout.designs[index]
    if lattice is None:
        return sums.gram[columns[index]]
    assert isinstance(design, LatticeDesign)
    return real_projections(at_modes(sums.projections[lattice], design.modes), design.modes)


def _sums_of_products(
    layout: Layout, sums: RowSums, projections: Sequence[Floats], columns: dict[int, slice], a: int, b: int
) -> Floats:
    """Return the products of the features of two designs, (F_a, F_b)."""
    lattices, designs = (layout.lattice_of[a], layout.lattice_of[b]), (layout.designs[a], layout.designs[b])
    if lattices[1] is None:
        return projections[a][:, columns[b]]
    if lattices[0] is None:
        return projections[b][:, columns[a]].T
    first, second = designs
    assert isinstance(first, LatticeDesign)
    assert isinstance(second, LatticeDesign)
    if lattices[0] == lattices[1]:
        return sums_of_products(sums.generators[lattices[0]], first.modes, second.modes)
    low, high = sorted((lattices[0], lattices[1]))
    cross = sums.crosses[layout.pairs.index((low, high))]
    if lattices[0] == low:
        return sums_of_products(cross, first.modes, second.modes)
    return sums_of_products(cross, second.modes, first.modes).T


# --- Values of weights on lattices, by fast Fourier transforms --------------------------------------------------------


def values_on_lattice(design: LatticeDesign, inputs: Tensor, coefficients: Tensor) -> Tensor:
    """Return sums of features on a lattice times coefficients, (n, m).

    Two columns of coefficients take one transform.

    Args:
        design: The design on a lattice.
        inputs: The inputs of the points, (n, D).
        coefficients: The coefficients, (F, m).
    """
    angles, values = design.lattice.angles(design.lattice.columns(inputs)), list[Floats]()
    columns = [real_series(column, design.modes) for column in coefficients.detach().numpy().T]
    for index in range(0, len(columns), 2):
        pair = columns[index : index + 2]
        both = series_at_points(angles, pair[0] if len(pair) == 1 else pair[0] + 1j * pair[1])
        values += [both.real, both.imag][: len(pair)]
    return torch.as_tensor(np.stack(values, axis=1))
