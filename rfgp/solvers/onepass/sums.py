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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.blocks import WeightBlock
from rfgp.blocks.role import ENTRIES, Design
from rfgp.errors import DataError
from rfgp.lattices import Lattice, Modes
from rfgp.lattices.design import Complex, Floats, Integers, LatticeDesign, series_at_points, sums_at_frequencies
from rfgp.rows import Block, Rows
from rfgp.rows.blocks import Sums, sums_over_parts
from rfgp.solvers.lowrank import Statistics as WeightStatistics
from rfgp.torch_context import Recent

# --- Products of real features on lattices, and series of such products ----------------------------------------------

_ENTRIES = 2**20
"""The maximum number of entries of a covariance whose products are in memory at once, about 100 MB."""


def real_projections(sums: Complex, modes: Modes) -> Floats:
    """Return the sums of features times columns, (2 p + 1, q).

    Args:
        sums: The sums of exponentials times columns at all integers of the lattice, (2 K_1 + 1, ..., 2 K_d + 1, q).
        modes: The modes.
    """
    scaled = modes.amplitudes[:, None] * sums[modes.places]
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
    scale = 0.5 * first.amplitudes[:, None] * second.amplitudes
    minus, plus = scale * flat[zero + a[:, None] - b], scale * flat[zero + a[:, None] + b]
    cosines = np.hstack([plus.real + minus.real, (plus.imag - minus.imag)[:, 1:]])
    sines = np.hstack([plus.imag + minus.imag, (minus.real - plus.real)[:, 1:]])
    return np.vstack([cosines, sines[1:]])


def _offsets(first: Modes, second: Modes) -> tuple[tuple[int, ...], Integers, Integers]:
    """Return the shape of sums of products of exponentials of two sets of modes, and the offsets of both.

    Offsets (p + 1,) and (q + 1,) are from the middle of the flattened sums.
    """
    if first.lattice.same_as(second.lattice):
        shape = first.lattice.doubled_shape
        return shape, _flat_indices(first, shape), _flat_indices(second, shape)
    shapes = first.lattice.shape, second.lattice.shape
    outer = _flat_indices(first, shapes[0]) * math.prod(shapes[1])
    return (*shapes[0], *shapes[1]), outer, _flat_indices(second, shapes[1])


def _flat_indices(modes: Modes, shape: tuple[int, ...]) -> Integers:
    """Return the offsets (p + 1,) of modes from the middle of a flattened array, odd in each axis."""
    strides = np.cumprod((1, *shape[:0:-1]))[::-1]
    return np.asarray(modes.with_zero @ strides, dtype=np.int64)


def real_series(coefficients: Floats, modes: Modes) -> Complex:
    """Return C with sum_k C_k exp(i theta_k) = sum_j w_j phi_j.

    The shape is (2 K_1 + 1, ..., 2 K_d + 1).

    Args:
        coefficients: The coefficients w, (2 p + 1,).
        modes: The modes.
    """
    p = len(modes.indices)
    series = np.zeros(modes.lattice.shape, dtype=np.complex128)
    real, imaginary = coefficients[: p + 1], np.concatenate([[0.0], coefficients[p + 1 :]])
    series[modes.places] = modes.amplitudes * (real - 1j * imaginary)
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
        scale = 0.5 * first.amplitudes[rows, None] * second.amplitudes
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


# --- Sums over rows for designs without hyperparameters, in one pass -------------------------------------------------

BLOCK_ROWS = 2**18
"""The number of rows of a block, if all designs are lattices, so that the strengths of a transform take 4 MB."""
MAX_JOINT = 3
"""The maximum number of columns of two lattices together, because finufft transforms at most three."""
Weighing = Callable[[Block], tuple[Sequence[Block], Sequence[Tensor]]]
"""Maps rows to the same rows with other weights P (b,) and targets, and to further values to sum, 0-d each.

It is pickled if rows are on other machines."""


@dataclass(frozen=True, eq=False)
class Layout:
    """Designs grouped by the kind of their sums.

    Attributes:
        designs: All designs, in order.
        lattices: The distinct lattices.
        lattice_of: The index of the lattice of each design, or -1 for a dense one.
        dense: The indices of the dense designs.
    """

    designs: tuple[Design, ...]
    lattices: tuple[Lattice, ...]
    lattice_of: tuple[int, ...]
    dense: tuple[int, ...]

    @classmethod
    def of(cls, blocks: Sequence[WeightBlock]) -> "Layout":
        """Return the layout of the designs of blocks.

        Args:
            blocks: The blocks. All have designs.
        """
        designs = [block.design for block in blocks if block.design is not None]
        lattices, lattice_of = list[Lattice](), [-1] * len(designs)
        for index, design in enumerate(designs):
            if not isinstance(design, LatticeDesign):
                continue
            same = (i for i, lattice in enumerate(lattices) if lattice.same_as(design.lattice))
            lattice_of[index] = next(same, len(lattices))
            if lattice_of[index] == len(lattices):
                lattices.append(design.lattice)
        dense = tuple(i for i, index in enumerate(lattice_of) if index < 0)
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
        arrays: The sums by name. For lattice i these are the sums v, (4 K_1 + 1, ..., 4 K_d + 1), as "generator_i", and
            the sums b, (2 K_1 + 1, ..., 2 K_d + 1, q) for the q columns of Z, as "projection_i". For each pair of
            lattices they are the sums in the shapes of both, as "cross_i". "gram" is Z^T P Z, (q, q), and "num_rows"
            the number of rows, 0-d.
        num_outputs: The number k of targets.
    """

    arrays: Mapping[str, NDArray[Any]]
    num_outputs: int

    @property
    def gram(self) -> Floats:
        """The matrix Z^T P Z, (q, q)."""
        return self.arrays["gram"]

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return round(float(self.arrays["num_rows"]))

    @property
    def observations(self) -> float:
        """The sum of P, the number of observations unless rows have noise of their own."""
        return float(self.gram[0, 0])

    def plus(self, other: "RowSums", sign: int = 1) -> "RowSums":
        """Return the sums of these rows with or without others.

        Args:
            other: The sums over the other rows, of the same layout.
            sign: 1 to add the other rows, which is the default, or -1 to remove them.
        """
        return replace(self, arrays={name: array + sign * other.arrays[name] for name, array in self.arrays.items()})

    def tensors(self) -> dict[str, Tensor]:
        """Return the sums as real tensors (...) by name."""
        pairs = self.arrays.items()
        return {name: torch.as_tensor(a.view(np.float64) if np.iscomplexobj(a) else a) for name, a in pairs}

    def of_tensors(self, tensors: Sequence[Tensor]) -> "RowSums":
        """Return sums of the same layout from their tensors.

        Args:
            tensors: The tensors (...), in the order of `tensors`.
        """
        pairs = zip(self.arrays.items(), tensors, strict=True)
        arrays = {name: t.numpy().view(np.complex128) if np.iscomplexobj(a) else t.numpy() for (name, a), t in pairs}
        return replace(self, arrays=arrays)


def no_sums(layout: Layout, num_outputs: int) -> RowSums:
    """Return the sums over no rows.

    Args:
        layout: The layout of the designs.
        num_outputs: The number of targets of a row.
    """
    q, arrays = 1 + num_outputs + layout.num_dense, dict[str, NDArray[Any]]()
    for i, lattice in enumerate(layout.lattices):
        arrays[f"generator_{i}"] = np.zeros(lattice.doubled_shape, dtype=np.complex128)
        arrays[f"projection_{i}"] = np.zeros((*lattice.shape, q), dtype=np.complex128)
    for i, (a, b) in enumerate(layout.pairs):
        shape = (*layout.lattices[a].shape, *layout.lattices[b].shape)
        arrays[f"cross_{i}"] = np.zeros(shape, dtype=np.complex128)
    return RowSums({**arrays, "gram": np.zeros((q, q)), "num_rows": np.zeros(())}, num_outputs)


def weighted_sums(
    layout: Layout, rows: Rows, weigh: Weighing, count: int = 1, num_values: int = 0
) -> tuple[list[RowSums], list[Tensor]]:
    """Return the sums over rows for several weights, and sums of further values.

    All sums take one pass over the rows. Rows on other machines are summed there.

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
    return [empty.of_tensors(sums[i * size : (i + 1) * size]) for i in range(count)], list(sums[count * size :])


def row_blocks(layout: Layout, rows: Rows) -> Iterator[Block]:
    """Yield rows in blocks whose dense features are small.

    Args:
        layout: The layout of the designs.
        rows: The rows.
    """
    yield from rows.blocks(max(256, min(BLOCK_ROWS, ENTRIES // max(layout.num_dense, 1))))


def _flat_sums(layout: Layout, weigh: Weighing, count: int, num_values: int, rows: Rows) -> Sums:
    totals = [no_sums(layout, rows.num_outputs)] * count
    values = torch.zeros(num_values, dtype=torch.float64)
    for block in row_blocks(layout, rows):
        weighted, more = weigh(block)
        pairs = zip(totals, weighted, strict=True)
        totals = [total.plus(sums_of_block(layout, weighted_block)) for total, weighted_block in pairs]
        values = values + torch.stack(list(more)) if num_values else values
    return (*(tensor for total in totals for tensor in total.tensors().values()), *values.unbind())


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
        angles = [lattice.angles(_points_inside(lattice, block.inputs)) for lattice in layout.lattices]
    ones = np.ones(len(block)) if block.weight is None else block.weight.numpy()
    weighted, arrays = columns if block.weight is None else columns * ones[:, None], dict[str, NDArray[Any]]()
    for i, lattice in enumerate(layout.lattices):
        arrays[f"generator_{i}"], arrays[f"projection_{i}"] = _transforms(angles[i], ones, weighted, lattice)
    for i, (a, b) in enumerate(layout.pairs):
        shape = (*layout.lattices[a].shape, *layout.lattices[b].shape)
        both = np.hstack([angles[a], angles[b]])
        arrays[f"cross_{i}"] = sums_at_frequencies(both, ones.astype(np.complex128), shape)
    arrays["gram"] = np.hstack([ones[:, None], weighted]).T @ np.hstack([np.ones((len(block), 1)), columns])
    return RowSums({**arrays, "num_rows": np.array(float(len(block)))}, block.num_outputs)


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


def _points_inside(lattice: Lattice, inputs: Tensor) -> Tensor:
    """Return the columns (n, d) of a lattice of rows (n, D).

    Raises:
        DataError: If rows are outside the box of the lattice.
    """
    points = lattice.columns(inputs)
    outside = int((~lattice.contains(points)).sum())
    if outside:
        raise DataError(
            f"Rows must be within the range of the training rows for EquispacedFourier, got {outside:,} outside. Fit "
            "or condition on all rows again."
        )
    return points


# --- Sufficient statistics of Gaussian regression on fixed designs ---------------------------------------------------

MAX_CACHED = 3
"""The maximum number of cached results of each set of rows: sums on two lattices, and statistics of their modes."""
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sums over rows of products of features phi and of targets.

    The features do not include prior standard deviations.

    Attributes:
        layout: The layout of the designs.
        sums: The sums over the rows.
        values: The sums of w_n and of w_n log(1 + noise_n / v), 0-d each. The default is none.
    """

    layout: Layout
    sums: RowSums
    values: Sequence[Tensor] = ()

    @property
    def observations(self) -> float:
        """The sum of P, the number of observations without noise of the rows themselves."""
        return self.sums.observations

    @cached_property
    def gram(self) -> Tensor:
        """The matrix phi^T P phi, (F, F)."""
        ends = np.cumsum([0, *(design.num_features for design in self.layout.designs)])
        gram = np.empty((ends[-1], ends[-1]))
        for a in range(len(self.layout.designs)):
            for b in range(a + 1):
                block = self._products(a, b)
                gram[ends[a] : ends[a + 1], ends[b] : ends[b + 1]] = block
                gram[ends[b] : ends[b + 1], ends[a] : ends[a + 1]] = block.T
        return torch.as_tensor(gram)

    @property
    def ones(self) -> Tensor:
        """The products phi^T P 1, (F,)."""
        return self._with_columns[:, 0]

    @property
    def target(self) -> Tensor:
        """The products phi^T P y, (F, k)."""
        return self._with_columns[:, 1 : 1 + self.sums.num_outputs]

    @property
    def totals(self) -> Tensor:
        """The sums 1^T P y of each output, (k,)."""
        return torch.as_tensor(self.sums.gram[0, 1 : 1 + self.sums.num_outputs])

    def centered(self, mean: Tensor) -> WeightStatistics:
        """Return the statistics of features and of targets minus a mean.

        Args:
            mean: The mean, (k,).
        """
        observations = torch.tensor(self.observations, dtype=torch.float64)
        target = self.target - self.ones[:, None] * mean
        squares = torch.as_tensor(self.sums.gram).diagonal()[1 : 1 + len(mean)]
        squares = squares - 2 * mean * self.totals + mean.square() * observations
        return WeightStatistics(self.gram, target, squares.sum(), observations, observations)

    @cached_property
    def _dense_columns(self) -> dict[int, slice]:
        """The positions of the features of each dense design among the columns Z."""
        sizes, dense = [design.num_features for design in self.layout.designs], self.layout.dense
        ends = np.cumsum([1 + self.sums.num_outputs, *(sizes[index] for index in dense)])
        return {index: slice(int(a), int(b)) for index, a, b in zip(dense, ends[:-1], ends[1:], strict=True)}

    @cached_property
    def _by_design(self) -> list[Floats]:
        """The products of the features of each design with all columns Z, (F, q)."""
        parts = list[Floats]()
        for index, (design, lattice) in enumerate(zip(self.layout.designs, self.layout.lattice_of, strict=True)):
            if isinstance(design, LatticeDesign):
                parts.append(real_projections(self.sums.arrays[f"projection_{lattice}"], design.modes))
            else:
                parts.append(self.sums.gram[self._dense_columns[index]])
        return parts

    @cached_property
    def _with_columns(self) -> Tensor:
        """The products phi^T P Z of all features with all columns, (F, q)."""
        return torch.as_tensor(np.concatenate(self._by_design))

    def _products(self, a: int, b: int) -> Floats:
        """Return the products of the features of two designs, (F_a, F_b)."""
        first, second = self.layout.designs[a], self.layout.designs[b]
        i, j = self.layout.lattice_of[a], self.layout.lattice_of[b]
        if not isinstance(second, LatticeDesign):
            return self._by_design[a][:, self._dense_columns[b]]
        if not isinstance(first, LatticeDesign) or i > j:
            return self._products(b, a).T
        name = f"generator_{i}" if i == j else f"cross_{self.layout.pairs.index((i, j))}"
        return sums_of_products(self.sums.arrays[name], first.modes, second.modes)


_CACHE: weakref.WeakKeyDictionary[Rows, Recent[Any]] = weakref.WeakKeyDictionary()
"""The last sums and statistics of each set of rows, with their keys."""


def statistics_of(blocks: Sequence[WeightBlock], rows: Rows, variance: Tensor) -> Statistics:
    """Return the statistics of rows with weights P.

    The rows are read unless statistics on the same lattices are cached. Without noise of the rows themselves these hold
    for any variance.

    Args:
        blocks: The blocks of weights. All have designs.
        rows: The rows.
        variance: The variance v, 0-d, without gradients.
    """
    layout, weigh = Layout.of(blocks), partial(weighted_by_precision, variance, (1,))
    at = (float(variance),) if rows.has_fixed_noise else ()

    def compute() -> Statistics:
        (sums,), values = _cached(rows, (*layout.key, *at), lambda: weighted_sums(layout, rows, weigh, num_values=2))
        return Statistics(layout, sums, values)

    return _cached(rows, ("statistics", *layout.designs, *at), compute)


def _cached(rows: Rows, key: tuple[Any, ...], compute: Callable[[], T]) -> T:
    """Return the result of a function of rows, or one of the last results with the same key."""
    found: T = _CACHE.setdefault(rows, Recent(MAX_CACHED)).find(key, compute)
    return found


def weighted_by_precision(
    variance: Tensor, powers: Sequence[int], block: Block
) -> tuple[Sequence[Block], Sequence[Tensor]]:
    """Return rows with weights w_n (v / (v + noise_n))^power, and the sums of w_n and of w_n log(1 + noise_n / v).

    noise_n is the noise of the rows themselves.

    Args:
        variance: The variance v, 0-d.
        powers: The powers. Power 1 gives precisions relative to those of rows without noise of their own.
        block: The rows.
    """
    count = variance.new_tensor(block.count)
    if block.fixed_noise is None:
        return (block,) * len(powers), (count, torch.zeros_like(count))
    counts, without_noise = block.counts(), replace(block, fixed_noise=None)
    ratio = variance / (variance + block.fixed_noise)
    weighted = [replace(without_noise, weight=counts * ratio**power) for power in powers]
    return weighted, (count, -(counts * ratio.log()).sum())


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
