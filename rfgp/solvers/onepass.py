"""Weights with a design without hyperparameters, whose statistics of one pass over the rows suffice for all of a fit.

Rows with their own noise need other statistics for each noise, in two passes for each evaluation.

The model is y = mean + phi diag(s) w + e. The weights are w ~ N(0, I), with prior standard deviations s. The variance
of e is v + noise_n for row n with noise_n of its own. v = noise + delta includes the variance delta that the designs
miss. The row represents w_n observations and has the weights

    P_n = w_n v / (v + noise_n),   Q_n = w_n (v / (v + noise_n))^2,   T_n = w_n (v / (v + noise_n))^3.

With R = diag(s) / sqrt(v), G = phi^T P phi, M = R phi^T Q phi R, the residuals r and the sums N_P and N_Q of P_n and
Q_n,

    A = I + R G R,   c = R phi^T P (y - mean),   u = A^-1 c,
    -2 log p = ((y - mean)^T P (y - mean) - c^T u) / v + log|A| + sum_n w_n log(2 pi (v + noise_n))
    d log p / d log s_j = u_j^2 / v + (A^-1)_jj - 1
    d log p / d log v   = (r^T Q r / v + tr(A^-1 M) - N_P) / 2
    d log p / d mean    = (1^T P (y - mean) - (R phi^T P 1)^T u) / v

Let H = I - A^-1 and o = R phi^T P 1. The Fisher information is

    H_ij^2 / 2                                                    of log s_i^2 and log s_j^2,
    (A^-1 M A^-1)_jj / 2                                          of log s_j^2 and log v,
    (N_Q - 2 tr(A^-1 R phi^T T phi R) + tr((A^-1 M)^2)) / 2       of log v,
    (N_P - o^T A^-1 o) / v                                        of the mean.

P, Q and T depend on v, so that the sums do not hold for other hyperparameters. Without noise of the rows all three are
w_n, the sums hold for any hyperparameters, and A^-1 M = H.

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
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.autograd import Gradients, Needs, input_derivatives, with_gradient
from rfgp.blocks import ENTRIES, Design, Prior, WeightBlock
from rfgp.errors import DataError
from rfgp.lattices import Lattice, Modes
from rfgp.lattices.design import Complex, Floats, Integers, LatticeDesign, series_at_points, sums_at_frequencies
from rfgp.rows import Block, Rows
from rfgp.rows.blocks import Sums, sums_over_parts
from rfgp.solvers.lowrank import (
    FactorCovariance,
    LinearModel,
    LowRankPosterior,
    RowMoments,
    WeightSolution,
    differentiable_solution,
    left_out,
    quadratic_form,
    solve,
)
from rfgp.solvers.lowrank import Statistics as WeightStatistics
from rfgp.solvers.role import Functions, Inference, Joint, OnDemand, Shape
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


# --- The posterior of weights on fixed designs -----------------------------------------------------------------------

FEW_POINTS = 64
"""The maximum number of points for which features are used instead of transforms.

Transforms first need A^-1 and its series, which take F^3 operations. Features take F^2 of them for each point."""


class RowSumsForUpdates(NamedTuple):
    """The sums of the rows of a Gaussian posterior, for adding and removing rows.

    Attributes:
        sums: The sums over the rows, weighted by their precision relative to that of rows without noise of their own.
            See `rfgp.solvers.onepass`.
        mean: The mean of the rows, (k,).
        noise: The variance of one observation, 0-d.
    """

    sums: RowSums
    mean: Tensor
    noise: Tensor


@dataclass(frozen=True, eq=False)
class SeriesPosterior(LowRankPosterior):
    """The posterior of f = phi diag(s) w plus the variance that designs miss.

    Moments at points within the box of the rows are Fourier series. Elsewhere they are computed by features, as those
    of other weights. Methods have the arguments of those of `Posterior`.

    Attributes:
        row_sums: The sums over the rows. If None, as under a likelihood that is not Gaussian, no rows can be added.
    """

    row_sums: RowSumsForUpdates | None = None

    @property
    def width(self) -> int:
        """The number of entries of a point in memory: its columns and its dense features."""
        return 8 + 4 * self._layout.num_dense

    def project(self, inputs: Tensor) -> Tensor:
        """Return the points (n, D) themselves, because moments need no features."""
        return inputs

    def mean(self, projected: Tensor) -> Tensor:
        """Return the posterior mean at points (n, D), (n, k)."""
        return self._over(projected, self.mean_within, lambda phi: phi @ self.weights)

    def variance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the marginal posterior variances, (n,)."""
        known = self._over(inputs, self.known_variance, self.uncertainty.variance)
        return known + self.residual_variance(inputs, projected)

    def residual_variance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the variances (n,) that the modes miss. They are 0 outside the box of a lattice."""
        if self.derivative_column is not None:
            return self.missing_derivative_variances(inputs)
        total = torch.zeros(len(inputs), dtype=torch.float64)
        for block in self.predicted:
            if block.residual is not None and isinstance(block.design, LatticeDesign):
                variance = block.prior_variance * block.design.residual_variance(*block.parameters)
                total = total + torch.where(block.design.is_outside(inputs), 0.0, variance)
        return total

    def joints(
        self, inputs: Tensor, parts: Sequence[LowRankPosterior], projected: Sequence[OnDemand]
    ) -> Sequence[Joint]:
        """Return the features of points for sums of terms."""
        return [Joint(part.features(inputs)) for part in parts]

    def root(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return a matrix R (n, r) such that R R^T is the covariance."""
        return super().root(inputs, self.features(inputs))

    def _functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw the sums of the features, a map of inputs to (count, n, k)."""
        drawn = self._sample_weights(count, generator)  # (count, F, k)
        draws = replace(self, weights=drawn.movedim(0, 1).flatten(1))
        return lambda inputs: draws.mean(inputs).reshape(len(inputs), count, -1).movedim(0, 1)

    # --- rows ------------------------------------------------------------------------------------

    @property
    def can_update(self) -> bool:
        """Whether there are sums over the rows, to which rows can be added."""
        return self.row_sums is not None

    def with_rows(self, rows: Rows, sign: int = 1) -> "SeriesPosterior":
        """Return the posterior with more rows, or without some of its rows.

        Only these rows are read. They may have noise of their own.

        Args:
            rows: The rows to add or to remove.
            sign: 1 to add the rows, which is the default, or -1 to remove them.

        Raises:
            DataError: If rows are outside the box of the lattice, or all rows would be removed.
        """
        assert self.row_sums is not None
        sums, mean, noise = self.row_sums
        variance = (noise + residual_variance_of(self.prior.weights)).detach()
        (change,), _ = weighted_sums(self._layout, rows, partial(weighted_by_precision, variance, (1,)), num_values=2)
        n, m = sums.num_rows, change.num_rows
        if sign < 0 and m >= n:
            raise DataError(f"The number of rows to remove must be below {n:,}, got {m:,}. Remove fewer rows.")
        return posterior_of(self.prior, sums.plus(change, sign), mean, noise)

    # --- files -----------------------------------------------------------------------------------

    def tensors(self) -> dict[str, Tensor]:
        """Return the sums over the rows (...), the mean (k,) and the noise, 0-d.

        If there are no sums, the weights and the factor are returned.
        """
        if self.row_sums is None:
            return super().tensors()
        sums, mean, noise = self.row_sums
        return {**sums.tensors(), "mean": mean.contiguous(), "noise": noise.contiguous()}

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of these tensors for k outputs."""
        if self.row_sums is None:
            return super().shapes(n, k)
        shapes: dict[str, Shape] = {
            name: tuple(sum_.shape) for name, sum_ in no_sums(self._layout, k).tensors().items()
        }
        return {**shapes, "mean": (k,), "noise": ()}

    # --- series ----------------------------------------------------------------------------------

    @cached_property
    def _layout(self) -> Layout:
        return Layout.of(self.prior.weights)

    def _over(
        self, inputs: Tensor, by_series: Callable[[Tensor], Tensor], by_features: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Return a moment (n, ...) at points (n, D), by series within the box and by features elsewhere.

        Features (n, F) are also used for few points and for gradients.
        """
        is_few = len(inputs) <= FEW_POINTS and self.derivative_column is None
        if is_few or inputs.requires_grad or self.weights.requires_grad:
            is_out = torch.ones(len(inputs), dtype=torch.bool)
        else:
            is_out = self.is_outside(inputs)
        size = max(1, ENTRIES // max(len(self.weights), 1))
        parts = [by_features(self.features(chunk)) for chunk in torch.split(inputs[is_out], size)]
        if bool(is_out.all()):
            return torch.cat(parts)
        inside = by_series(inputs[~is_out])
        out = inside.new_zeros(len(inputs), *inside.shape[1:])
        out[is_out], out[~is_out] = torch.cat(parts), inside
        return out

    def is_outside(self, inputs: Tensor) -> Tensor:
        """Return whether points are outside the box of a lattice, (n,).

        Args:
            inputs: The inputs of the points, (n, D).
        """
        out = torch.zeros(len(inputs), dtype=torch.bool)
        for _, design, _ in self._on_lattices:
            out |= design.is_outside(inputs)
        return out

    @cached_property
    def _parts(self) -> list[tuple[int, WeightBlock, slice]]:
        """The number of each predicted block, the block, and the positions of its weights."""
        ends, blocks = np.cumsum([0, *self.prior.dense.sizes]).tolist(), self.prior.weights
        every = ((i, block, slice(ends[i], ends[i + 1])) for i, block in enumerate(blocks))
        return [part for part in every if part[1] in self.predicted]

    @property
    def _on_lattices(self) -> list[tuple[int, LatticeDesign, slice]]:
        """The number of the lattice of each predicted block, its design, and the positions of its weights."""
        lattices, parts = self._layout.lattice_of, self._parts
        return [(lattices[i], b.design, part) for i, b, part in parts if isinstance(b.design, LatticeDesign)]

    @cached_property
    def _dense_weights(self) -> Tensor:
        """The positions (F_d,) of the weights of predicted blocks that are not on a lattice."""
        positions, lattices = torch.arange(self.prior.num_features), self._layout.lattice_of
        return torch.cat([positions[:0], *(positions[part] for i, _, part in self._parts if lattices[i] < 0)])

    def _dense_features(self, inputs: Tensor) -> Tensor:
        """Return the features (n, F_d) of these weights at points (n, D), or their derivatives, float64."""
        found, column = [torch.zeros(len(inputs), 0, dtype=torch.float64)], self.derivative_column
        for i, block, _ in self._parts:
            if block.design is not None and self._layout.lattice_of[i] < 0:
                features = block.design.fixed_features
                found.append(
                    features(inputs).double() if column is None else input_derivatives(features, inputs, column)
                )
        return torch.cat(found, dim=1)

    def mean_within(self, inputs: Tensor) -> Tensor:
        """Return the posterior mean at points in the box of the rows, (n, k).

        It is a Fourier series on each lattice.

        Args:
            inputs: The inputs of the points, (n, D).
        """
        weights = self._as_slopes(scale_of(self.prior.weights)[:, None] * self.weights)
        out = self._dense_features(inputs) @ weights[self._dense_weights]
        for _, design, part in self._on_lattices:
            out += values_on_lattice(design, inputs, weights[part])
        return out

    def known_variance(self, inputs: Tensor) -> Tensor:
        """Return the posterior variances of the sums of features at points in the box, (n,).

        Those of missing modes are excluded. They are a series on each doubled lattice and on the product of each two
        lattices. Its coefficients are sums along the diagonals of the covariance of the weights.

        Args:
            inputs: The inputs of the points, (n, D).
        """
        (series, covariance), features = self._series, self._dense_features(inputs)
        total = ((features @ covariance[self._dense_weights]) * features).sum(1)
        if features.shape[1]:
            for _, design, part in self._on_lattices:
                total += 2 * (values_on_lattice(design, inputs, covariance[part]) * features).sum(1)
        for numbers, coefficients in series.items():
            lattices = [self._layout.lattices[number] for number in dict.fromkeys(numbers)]
            angles = np.hstack([lattice.angles(lattice.columns(inputs)) for lattice in lattices])
            total += torch.as_tensor(series_at_points(angles, coefficients).real)
        return total.clamp_min(0)

    @cached_property
    def _series(self) -> tuple[dict[tuple[int, int], Complex], Tensor]:
        """The series of covariances on each pair of lattices, and the covariances (F, F_d) with other weights."""
        scale, series = scale_of(self.prior.weights), dict[tuple[int, int], Complex]()
        covariance = self._as_slopes(self._as_slopes(scale[:, None] * self.inverse * scale).mT)
        lattices = self._on_lattices
        for count, (i, first, rows) in enumerate(lattices, 1):
            for j, second, columns in lattices[:count]:
                found = quadratic_series(covariance[rows, columns].numpy(), first.modes, second.modes)
                times = 1 if rows == columns else 2
                series[i, j] = series.get((i, j), 0) + times * found
        return series, covariance[:, self._dense_weights]

    def _as_slopes(self, weights: Tensor) -> Tensor:
        """Return the weights (F, m) of the derivative of a function, or the weights if there is no derivative."""
        column = self.derivative_column
        if column is None:
            return weights
        designs, parts = self._layout.designs, torch.split(weights, self.prior.dense.sizes)
        pairs = zip(designs, parts, strict=True)
        return torch.cat([d.modes.slopes(part, column) if isinstance(d, LatticeDesign) else part for d, part in pairs])

    @cached_property
    def inverse(self) -> Tensor:
        """A^-1, (F, F)."""
        assert self.factor is not None
        return torch.cholesky_inverse(self.factor)


def posterior_of(prior: Prior, sums: RowSums, mean: Tensor, noise: Tensor) -> SeriesPosterior:
    """Return the posterior given sums over the rows.

    Args:
        prior: The prior.
        sums: The sums over the rows.
        mean: The prior mean, (k,).
        noise: The variance of one observation, 0-d.
    """
    with torch.no_grad():
        blocks = prior.weights
        statistics = Statistics(Layout.of(blocks), sums).centered(mean)
        solution = solve(statistics, scale_of(blocks), noise + residual_variance_of(blocks))
        return _posterior(prior, solution, RowSumsForUpdates(sums, mean, noise))


def _posterior(prior: Prior, solution: WeightSolution, row_sums: RowSumsForUpdates) -> SeriesPosterior:
    return SeriesPosterior(prior, solution.weights, FactorCovariance(solution.factor), row_sums=row_sums)


def restored_series(prior: Prior, tensors: Mapping[str, Tensor]) -> SeriesPosterior:
    """Return the posterior with saved sums.

    Args:
        prior: The prior.
        tensors: The tensors (...) of `SeriesPosterior.tensors`, by name.
    """
    empty = no_sums(Layout.of(prior.weights), len(tensors["mean"]))
    sums = empty.of_tensors([tensors[name] for name in empty.arrays])
    return posterior_of(prior, sums, tensors["mean"], tensors["noise"])


def has_lattices(prior: Prior) -> bool:
    """Return whether all blocks are fixed designs with transforms, one on a lattice.

    Args:
        prior: The prior.
    """
    if not prior.has_weights_only or any(block.design is None for block in prior.weights):
        return False
    layout = Layout.of(prior.weights)
    return bool(layout.lattices) and layout.is_joint


def scale_of(blocks: Sequence[WeightBlock]) -> Tensor:
    """Return the prior standard deviations of all weights, (F,), float64.

    Args:
        blocks: The blocks of weights. All have designs.
    """
    return torch.cat([b.prior_variance.sqrt() * b.design.scale(*b.parameters) for b in blocks if b.design])


def residual_variance_of(blocks: Sequence[WeightBlock]) -> Tensor:
    """Return the sum of the variances that the designs miss, 0-d, float64.

    Args:
        blocks: The blocks of weights. All have designs.
    """
    zero = torch.zeros((), dtype=torch.float64)
    return sum((b.prior_variance * b.design.residual_variance(*b.parameters) for b in blocks if b.design), start=zero)


# --- Gaussian regression on fixed designs from sufficient statistics -------------------------------------------------


def supports(prior: Prior, rows: Rows) -> bool:
    """Return whether sums by transforms apply.

    Args:
        prior: The prior. All its blocks must be fixed designs.
        rows: The rows, without signs of outputs.
    """
    return has_lattices(prior) and not (isinstance(rows, Block) and rows.given_output_weights is not None)


class OnePassSolver(Inference):
    """Inference of rows under weights with fixed designs.

    It uses statistics of one pass over the rows. Noise of the rows themselves takes another pass for derivatives.

    Args:
        prior: The prior, with gradients.
        rows: The data.
        mean: The prior mean, (k,), float64.
        noise: The variance of one observation, 0-d, float64.
    """

    without_gradients: ClassVar[tuple[str, ...]] = ("solution", "inverse")
    """The names of the results that solvers at equal hyperparameters may share."""

    def __init__(self, prior: Prior, rows: Rows, mean: Tensor, noise: Tensor) -> None:
        self.prior, self.rows, self.mean, self.noise = prior, rows, mean, noise

    @cached_property
    def scale(self) -> Tensor:
        """The prior standard deviations of the weights, (F,)."""
        return scale_of(self.prior.weights)

    @cached_property
    def variance(self) -> Tensor:
        """The variance of the noise plus that missed by the designs, 0-d."""
        return self.noise + residual_variance_of(self.prior.weights)

    @cached_property
    def statistics(self) -> Statistics:
        """The statistics of the rows with weights P."""
        with torch.no_grad():
            return statistics_of(self.prior.weights, self.rows, self.variance.detach())

    @cached_property
    def _higher(self) -> tuple[Statistics, Statistics]:
        """The statistics with weights Q and T."""
        if not self.rows.has_fixed_noise:
            return self.statistics, self.statistics
        layout, weigh = self.statistics.layout, partial(weighted_by_precision, self.variance.detach(), (2, 3))
        (second, third), _ = weighted_sums(layout, self.rows, weigh, count=2, num_values=2)
        return Statistics(layout, second), Statistics(layout, third)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood, 0-d, from the statistics alone."""
        return with_gradient(self._value, self.mean, self.variance, self.scale)

    @cached_property
    def _centered(self) -> WeightStatistics:
        """The statistics of the rows about the mean."""
        return self.statistics.centered(self.mean)

    @cached_property
    def solution(self) -> WeightSolution:
        """The posterior of the weights."""
        with torch.no_grad():
            return solve(self._centered, self.scale, self.variance)

    @cached_property
    def inverse(self) -> Tensor:
        """A^-1, (F, F)."""
        return torch.cholesky_inverse(self.solution.factor)

    def _spread(self, statistics: Statistics) -> Tensor:
        """Return R phi^T W phi R, (F, F), for the weights W of statistics."""
        root = self.scale.detach() / self.variance.detach().sqrt()
        return root[:, None] * statistics.gram * root

    def _value(self, needs: Needs) -> tuple[Tensor, Gradients]:
        (factor, weights), k, statistics = self.solution, len(self.mean), self.statistics
        scale, variance, mean = self.scale.detach(), self.variance.detach(), self.mean.detach()
        square = quadratic_form(statistics.centered(mean), self.solution, scale, variance)
        count, logs = statistics.values
        logs = logs + count * (math.log(2 * math.pi) + variance.log())
        value = -0.5 * (square + k * (2 * factor.diagonal().log().sum() + logs))

        def gradients() -> Sequence[Tensor | None]:
            inverse, (second, _), residual = self.inverse.diagonal(), self._higher, square
            used = len(inverse) - inverse.sum()  # tr A^-1 M
            if self.rows.has_fixed_noise:
                residual = quadratic_form(second.centered(mean), self.solution, scale, variance)
                used = (self.inverse * self._spread(second)).sum()
            in_log_scale = weights.square().sum(1) + k * (inverse - 1)
            in_log_variance = residual - weights.square().sum() + k * (used - statistics.observations)
            totals = statistics.totals - statistics.observations * mean
            in_mean = (totals - (scale * statistics.ones) @ weights) / variance
            in_scale = torch.where(scale > 0, in_log_scale / scale, 0.0)
            found = in_mean, 0.5 * in_log_variance / variance, in_scale
            return [gradient if need else None for gradient, need in zip(found, needs, strict=True)]

        return value, gradients

    def score(self) -> Tensor:
        """Return a 0-d tensor whose gradient is that of the log marginal likelihood."""
        return self.log_marginal_likelihood()

    def information(self, in_mean: Tensor, in_variance: Tensor, in_scale: Tensor) -> Tensor:
        """Return the Fisher information (p, p) of p parameters.

        Args:
            in_mean: The derivatives of the mean in the parameters, (k, p).
            in_variance: The derivatives of log v, (p,).
            in_scale: The derivatives of log s^2, (F, p).
        """
        with torch.no_grad():
            inverse, k, (second, third) = self.inverse, len(self.mean), self._higher
            diagonal, squared = inverse.diagonal(), inverse.square()
            if self.rows.has_fixed_noise:
                product = inverse @ self._spread(second)  # A^-1 M
                in_both, used = (product * inverse).sum(1), (inverse * self._spread(third)).sum()
                of_variance = second.observations - 2 * used + (product * product.mT).sum()
            else:
                in_both = diagonal - squared.sum(1)
                of_variance = second.observations - len(diagonal) + squared.sum()
            weights = squared @ in_scale + (1 - 2 * diagonal)[:, None] * in_scale  # H o H = A^-1 o A^-1 + diag(1 - 2 d)
            cross = in_scale.mT @ in_both
            total = in_scale.mT @ weights + of_variance * torch.outer(in_variance, in_variance)
            total = 0.5 * k * (total + torch.outer(cross, in_variance) + torch.outer(in_variance, cross))
            ones = self.scale / self.variance.sqrt() * self.statistics.ones
            solved = torch.cholesky_solve(ones[:, None], self.solution.factor)[:, 0]
            of_mean = (self.statistics.observations - ones @ solved) / self.variance
            return total + of_mean * (in_mean.mT @ in_mean)

    @cached_property
    def effective_dof_fraction(self) -> float:
        """The effective degrees of freedom of the weights divided by F, (F - tr A^-1) / F."""
        return 1 - float(self.inverse.diagonal().mean())

    def posterior(self) -> SeriesPosterior:
        """Return the posterior of the weights, with the sums over the rows for updates."""
        sums = self.statistics.sums
        if not (torch.is_grad_enabled() and (self.scale.requires_grad or self.variance.requires_grad)):
            row_sums = RowSumsForUpdates(sums, self.mean.detach(), self.noise.detach())
            return _posterior(self.prior.detached(), self.solution, row_sums)
        if self.rows.has_fixed_noise:  # sums depend on the noise, and have no gradient in it
            solution = differentiable_solution(LinearModel(self.prior.dense, self.rows, self.mean, self.noise))
        else:
            solution = solve(self._centered, self.scale, self.variance)
        return _posterior(self.prior, solution, RowSumsForUpdates(sums, self.mean, self.noise))

    def leave_one_out(self, rows: Rows | None = None) -> tuple[Tensor, Tensor]:
        """Return the mean (n, k) and variance (n,) of each row given all others.

        Args:
            rows: The rows whose moments are returned, in a second pass. If None, all.
        """
        with torch.no_grad():
            return left_out(self._moments(self.rows if rows is None else rows))

    def _moments(self, rows: Rows) -> Iterator[RowMoments]:
        """Yield the moments of blocks of rows."""
        posterior, missing = self.posterior(), residual_variance_of(self.prior.weights)
        for block in row_blocks(self.statistics.layout, rows):
            residual = block.targets - self.mean - posterior.mean_within(block.inputs)
            known, noise_diag = posterior.known_variance(block.inputs), block.noise_diag(self.variance)
            once = 1 - 1 / block.counts()  # the variance missed by designs is in D once for each repetition
            yield RowMoments(block.targets, residual, known, noise_diag, once * missing)
