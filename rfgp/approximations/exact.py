"""Exact terms: by their covariance, by weights of finitely many functions, or by the sparse precision of a field."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial, reduce
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from graphs.checks import check_fits, machine_memory
from graphs.precisions import ChainField, IndependentField, KroneckerField
from rfgp import chains
from rfgp.approximations.nodes import ExactFeatures, node_term, nodes_of
from rfgp.approximations.role import (
    MIN_NOISE_OF_MATRICES,
    OF_AREAS,
    Approximation,
    Given,
    TermCost,
    TermCovariance,
    TermData,
    TermFeatures,
    TermGram,
    TermPrior,
    new_levels,
    parameter_names,
    scale_name,
    unit_constants,
    variance_at,
    weights_memory,
    weights_term,
)
from rfgp.autograd import Array, as_array
from rfgp.blocks import MAX_CELLS, ChainBlock, KernelBlock, MaternColumn, PrecisionBlock, Prior, Side, Slope
from rfgp.columns import ColumnKind
from rfgp.errors import NotPositiveDefiniteError
from rfgp.grams import stationary_gram
from rfgp.kernels.role import (
    OUTPUTSCALE,
    BoundFactor,
    BoundTerm,
    ColumnSummary,
    LatentField,
    Projector,
    Term,
    Values,
    constants_of,
    label_of,
    of_prefix,
)
from rfgp.kernels.wandering import Wiener
from rfgp.limits import limits
from rfgp.messages import counted
from rfgp.sparse import quadratic_forms

# --- The exact covariance, or the weights of finitely many functions -------------------------------------------------

MAX_FUNCTIONS = 1000
"""The maximum number of functions of a term that is computed by weights. Other terms use their covariance matrix."""
MAX_POSITIONS = 4096
"""The maximum number of positions of one side of a grid, whose covariance matrix is factorized."""
MAX_CELLS_PER_ROW = 16
"""The maximum number of cells of a grid per row."""
BYTES_PER_CELL = 1024.0
"""The memory of the draws in bytes per cell of a grid: 256 numbers in single precision."""

Split = tuple[tuple[int, ...], tuple[int, ...]]
"""The factors of a product on both sides of a grid, by their positions in the term."""


@dataclass(frozen=True, repr=False)
class Exact(Approximation):
    """The exact covariance of a term.

    Terms of finitely many functions, such as linear terms and groups, are computed by the weights of these functions.
    Other terms take O(n^3) time and O(n^2) memory for n rows.

    More than 4,000 rows with repeated positions are computed on a grid. Measurements of the same sensors over time are
    an example. The grid has N_1 distinct positions in some columns and N_2 in the others. Conjugate gradients take
    O(N_1 N_2 (N_1 + N_2)) operations a step, even if cells are missing. The gradient of the likelihood and variances
    are estimated from random draws, with a stated error.

    Source: Lin et al. (2024), "Scalable Gaussian processes with latent Kronecker structure".

    Attributes:
        seed: It has no effect.

    Examples:
        >>> import rfgp
        >>> rfgp.Exact()
        Exact()
    """

    def unsupported_reason(self, data: TermData) -> str | None:
        """Return None: all terms have a covariance."""
        return None

    def cost(self, data: TermData, prior: TermPrior | None = None) -> TermCost:
        """Return the cost of a covariance matrix, or of weights."""
        size = _num_functions(data)
        if size is not None:
            return TermCost(size, weights_memory(size, data.num_rows), f"{counted(size, 'function')}, exactly")
        grid = _grid_of(data)
        if grid is not None:
            first, second = grid[1]
            note = f"covariance matrices of {first:,} and of {second:,} positions, by conjugate gradients"
            return TermCost(
                first * second, BYTES_PER_CELL * first * second + 32.0 * (first**2 + second**2), note, False
            )
        return TermCost(data.num_rows, 16.0 * data.num_rows**2, f"a covariance matrix of {data.num_rows} rows", False)

    def least_noise(self, data: TermData) -> float:
        """Return the smallest noise variance that the solvers can resolve.

        The solvers are Cholesky factors or conjugate gradients.
        """
        return super().least_noise(data) if self.has_grid(data) else MIN_NOISE_OF_MATRICES

    def has_grid(self, data: TermData) -> bool:
        """Return whether the rows are on a grid, so that no covariance is formed.

        Args:
            data: The term and the rows.
        """
        return _num_functions(data) is None and _grid_of(data) is not None

    def build(self, data: TermData, seed: int) -> TermPrior:
        """Return the term. The seed is not used."""
        if [factor.kind for factor in data.term.term.factors] == [ColumnKind.NODE]:
            graph, kernel, _ = nodes_of(data)
            return node_term(data, ExactFeatures(graph, kernel))
        if _num_functions(data) is None:
            grid = _grid_of(data)
            return kernel_term(data, grid[0] if grid else None)
        return weights_term(data, finite=data.term.parts())

    def vfe_counterpart(self, term: TermPrior) -> TermPrior:
        """Return the term itself, because its residual is 0."""
        return term


def _num_functions(data: TermData) -> int | None:
    """Return the number of functions of a term.

    The result is None if the number is infinite or too large.
    """
    product = 1
    for part in data.term.parts():
        functions = part.functions(data.columns)
        if functions is None or product * functions.size > MAX_FUNCTIONS:
            return None
        product *= functions.size
    return product


def kernel_term(data: TermData, split: Split | None = None) -> TermPrior:
    """Return a term with its covariance.

    Args:
        data: The term.
        split: The factors on both sides of the grid of the rows, by their positions. If None, there is no grid.
    """
    prior = partial(_kernel_prior, data.term, parameter_names(data, with_scale=True))
    return TermPrior("kernel", prior, split, partial(_stationary_gram, data.term))


def _kernel_prior(
    term: BoundTerm, names: tuple[str, ...], split: Split | None, values: Values, columns: ColumnSummary
) -> Prior:
    """Return the prior at hyperparameters by path, given all columns."""
    function = TermCovariance(term, Given(names, constants_of([term], columns)))
    kernel = KernelBlock(
        function,
        function.variances,
        tuple(values[name] for name in names),
        name=term.name,
        sides=None if split is None else (_side(function, split[0], term.name), _side(function, split[1], "")),
        own_gram=function.gram,
    )
    return Prior(kernels=(kernel,))


def _stationary_gram(term: BoundTerm, split: Split | None, inputs: Tensor, columns: ColumnSummary) -> TermGram | None:
    """Return the covariance of rows (n, D) of one stationary factor, or None."""
    measure, scale = term.measure, term.outputscale
    if measure is None or not measure.has_slope or scale is None or term.term.factors[0].is_rotated:
        return None
    x, lengthscale = inputs[:, term.column_indices[0]], f"{term.prefixes[0]}lengthscale"
    return TermGram(
        (lengthscale, scale), lambda values: stationary_gram(measure, x, values[lengthscale], values[scale])
    )


# --- rows on a grid --------------------------------------------------------------------------------


def _grid_of(data: TermData) -> tuple[Split, tuple[int, int]] | None:
    """Return the cheapest grid of the rows.

    The result has the factors on both sides and the number of positions in a sample. The result is None if the rows are
    few, or do not lie on a grid with few cells.
    """
    if data.num_rows <= limits().max_dense or not len(data.columns.sample):
        return None
    grids, max_cells = list[tuple[float, Split, tuple[int, int]]](), min(MAX_CELLS, MAX_CELLS_PER_ROW * data.num_rows)
    for split in splits_of(data.term):
        first, second = (_num_positions(data, side) for side in split)
        if max(first, second) <= MAX_POSITIONS and first * second <= max_cells:
            grids.append((first * second * (first + second), split, (first, second)))
    return min(grids)[1:] if grids else None


def splits_of(term: BoundTerm) -> Iterator[Split]:
    """Yield the splits of the factors of a term into two sides without common columns.

    Args:
        term: The term.

    Yields:
        The positions of the factors on both sides. The first side has the first factor.
    """
    groups = list[tuple[set[int], list[int]]]()  # columns, and factors that read them
    for number, indices in enumerate(term.column_indices):
        near = [group for group in groups if group[0] & set(indices)]
        joined = set(indices).union(*(group[0] for group in near)), sorted([number, *(i for g in near for i in g[1])])
        groups = [*(group for group in groups if group not in near), joined]
    for chosen in itertools.product([True, False], repeat=len(groups) - 1):
        flags = (True, *chosen)
        pairs = list(zip(flags, groups, strict=True))
        sides = ([i for flag, (_, factors) in pairs if flag is side for i in factors] for side in (True, False))
        first, second = (tuple(sorted(side)) for side in sides)
        yield first, second


def _num_positions(data: TermData, side: tuple[int, ...]) -> int:
    """Return the number of distinct positions of rows in the columns of factors, or 1."""
    columns = sorted({index for number in side for index in data.term.column_indices[number]})
    return len(torch.unique(data.columns.sample[:, columns], dim=0)) if side else 1


def _side(function: TermCovariance, factors: tuple[int, ...], name: str) -> Side:
    """Return the product of some factors of a term, with the variance of the term `name`."""
    if not factors:
        return Side(_ones, ())
    parts = [function.term.parts()[i] for i in factors]
    product = Term(tuple(part.factor for part in parts), name)
    bound = BoundTerm(product, tuple(part.indices for part in parts), tuple(part.prefix for part in parts))
    constants = {**function.given.constants, f"{name}.{OUTPUTSCALE}": torch.ones((), dtype=torch.float64)}
    return Side(TermCovariance(bound, replace(function.given, constants=constants)), tuple(bound.columns))


def _ones(a: Tensor, b: Tensor, *parameters: Tensor) -> Tensor:
    """Return ones (n, m) for rows a (n, D) and b (m, D)."""
    return torch.ones(len(a), len(b), dtype=torch.float64)


# --- Projections of rows to fields and to Kronecker products of fields -----------------------------------------------

BYTES_PER_VALUE = 12_000.0
"""The memory in bytes per latent value of a product of fields, including the factor and its inverse.

It is measured in `benchmarks/races/separable.py`."""


@dataclass(frozen=True, eq=False)
class FieldReader:
    """The projection of rows (n, D) to a product of fields.

    There may be several copies of the product, multiplied by functions.

    Attributes:
        latents: The fields, at least one.
        indices: The indices of the columns of each field.
        features: The functions (n, F) that multiply the copies of the product. If None, there are none.
        projectors: The maps of the columns of each field to A (n, N_i).
    """

    latents: tuple[LatentField, ...]
    indices: tuple[list[int], ...]
    features: TermFeatures | None
    projectors: tuple[Projector, ...]

    @property
    def copies(self) -> int:
        """The number F of independent copies of the product."""
        return 1 if self.features is None else self.features.size

    @property
    def is_refined(self) -> bool:
        """Whether a field has values at some positions only."""
        return any(latent.is_refined for latent in self.latents)

    @property
    def field(self) -> Any:
        """The copies, without rows among their values."""
        return product_of(tuple(latent.field for latent in self.latents), self.copies)

    def __call__(self, inputs: Tensor) -> sp.csr_array:
        """Return A (n, F N_1 N_2 ...) of rows (n, D)."""
        pairs = zip(self.projectors, self.indices, strict=True)
        projection = reduce(row_products, (projector(inputs[:, indices]) for projector, indices in pairs))
        return projection if self.features is None else row_products(self._functions(self.features, inputs), projection)

    def refine(self, inputs: Tensor) -> "tuple[Any, FieldReader]":
        """Return the fields with further latent values at n inputs, and their reader.

        Args:
            inputs: The inputs, (n, D).

        Returns:
            The field whose latent values include those at the inputs, and a reader whose A projects them to inputs.

        Raises:
            MemoryBudgetError: If a product of two or more fields is estimated to exceed the memory.
        """
        pairs = zip(self.latents, self.indices, strict=True)
        refined = [latent.refine(inputs[:, indices]) for latent, indices in pairs]
        fields, projectors = zip(*refined, strict=True)
        sizes = [len(field.pattern.indptr) - 1 for field in fields]
        if len(sizes) > 1:
            check_fits(
                f"{' x '.join(f'{size:,}' for size in sizes)} latent values",
                BYTES_PER_VALUE * self.copies * math.prod(sizes),
                "Use fewer points at once, or round the columns to fewer distinct values.",
            )
        return product_of(fields, self.copies), replace(self, projectors=projectors)

    def between(self, field: Any, values: Array, inputs: Tensor) -> tuple[sp.csr_array, Array]:
        """Return the projection of single rows to refined copies.

        Let v_i + r_i be the variances of the fields at a row, with residual variances r_i given their values. The
        product has the variance prod_i (v_i + r_i), and its values explain prod_i v_i.

        Args:
            field: The copies, from `refine`.
            values: The parameters of the fields, (p,).
            inputs: The rows, (n, D).

        Returns:
            The projection A (n, F N) and the residual variances (n,).
        """
        projection, residual = _product(self._parts(field, values, inputs))
        if self.features is None:
            return projection, residual
        functions = self._functions(self.features, inputs)
        return row_products(functions, projection), np.square(functions).sum(axis=1) * residual

    def slopes(self, field: Any, values: Array, inputs: Tensor) -> Iterator[Slope]:
        """Yield the derivatives of the results of `between` in columns of the rows.

        Columns of labels are omitted. With the variances v_i of projections and T_i = v_i + r_i, the residual variance
        prod T_i - prod v_i of a product has the derivative dT_i prod_j T_j - dv_i prod_j v_j over the others j.

        Args:
            field: The copies, from `refine`.
            values: The parameters of the fields, (p,).
            inputs: The rows, (n, D).

        Yields:
            The derivatives in one column of the rows.
        """
        parts = self._parts(field, values, inputs)
        functions = np.ones((len(inputs), 1)) if self.features is None else self._functions(self.features, inputs)
        for number, (part, indices) in enumerate(zip(parts, self.indices, strict=True)):
            if part.latent.slopes is None:
                continue
            slopes = part.latent.slopes(part.field, part.values, part.rows)
            others = [one for i, one in enumerate(parts) if i != number]
            for column, (derivative, slope) in zip(indices, slopes, strict=True):
                projection = reduce(
                    row_products, [derivative if i == number else one.between[0] for i, one in enumerate(parts)]
                )
                if others:
                    change, explained = part.explained_slope(derivative), [one.explained for one in others]
                    totals = [one.explained + one.between[1] for one in others]
                    slope = (change + slope) * np.prod(totals, axis=0) - change * np.prod(explained, axis=0)
                yield Slope(column, row_products(functions, projection), np.square(functions).sum(axis=1) * slope)
        if self.features is not None:
            projection, residual = _product(parts)
            for column, slopes in enumerate(_jacobian(self.features, inputs)):
                if slopes.any():
                    yield Slope(
                        column, row_products(slopes, projection), 2 * (functions * slopes).sum(axis=1) * residual
                    )

    def _parts(self, field: Any, values: Array, inputs: Tensor) -> "list[_Part]":
        """Return the fields of refined copies.

        Each has its parameters and its columns of the rows (n, D).
        """
        fields = factors_of(field if self.copies == 1 else field.second, len(self.latents))
        counts = np.cumsum([len(field.parameters) for field in fields])[:-1]
        rows = [inputs[:, indices] for indices in self.indices]
        return [_Part(*part) for part in zip(self.latents, fields, np.split(values, counts), rows, strict=True)]

    def _functions(self, features: TermFeatures, inputs: Tensor) -> Array:
        """Return the functions (n, F) at rows (n, D)."""
        return as_array(features(inputs.double()))


@dataclass(frozen=True, eq=False)
class _Part:
    """A refined field of a product, with its parameters (p,) and rows (n, c)."""

    latent: LatentField
    field: Any
    values: Array
    rows: Tensor

    @cached_property
    def between(self) -> tuple[sp.csr_array, Array]:
        """The projection A (n, N) of the rows, and residual variances (n,)."""
        return self.latent.between(self.field, self.values, self.rows)

    @cached_property
    def explained(self) -> Array:
        """The variances (n,) of the projections."""
        return self._variances(self.between[0])

    def explained_slope(self, derivative: sp.csr_array) -> Array:
        """Return the derivatives (n,) of the variances of the projections A along A' (n, N).

        They are 2 a^T Q^-1 a' = (v(a + a') - v(a - a')) / 2.
        """
        ends = [self._variances(sp.csr_array(self.between[0] + sign * derivative)) for sign in (1.0, -1.0)]
        return np.asarray((ends[0] - ends[1]) / 2)

    def _variances(self, reads: sp.csr_array) -> Array:
        """Return the variances (n,) of projections (n, N)."""
        return quadratic_forms(reads, self.field.pattern, self.field.factor_at(self.values).inverse)[0]


def _product(parts: Sequence[_Part]) -> tuple[sp.csr_array, Array]:
    """Return the projection of rows to a product of fields.

    The second result has the residual variances (n,).
    """
    projections, residuals = zip(*(part.between for part in parts), strict=True)
    projection = reduce(row_products, projections)
    if len(parts) == 1:
        return projection, residuals[0]
    explained = [part.explained for part in parts]
    total = np.prod([one + residual for one, residual in zip(explained, residuals, strict=True)], axis=0)
    return projection, np.maximum(total - np.prod(explained, axis=0), 0.0)


def _jacobian(features: TermFeatures, inputs: Tensor) -> Array:
    """Return the derivatives of functions of rows (n, D) in each column, (D, n, F)."""
    with torch.enable_grad():
        rows = inputs.detach().double().requires_grad_()
        functions = features(rows)
        if not functions.requires_grad:
            return np.zeros((rows.shape[1], *functions.shape))
        slopes = [torch.autograd.grad(function.sum(), rows, retain_graph=True)[0] for function in functions.mT]
    return as_array(torch.stack(slopes, dim=2).movedim(1, 0))


def condition_of(field: Any, values: Array) -> float:
    """Return the largest product of a diagonal entry of Q and of Q^-1.

    Rounding errors are proportional to it.

    Args:
        field: The field.
        values: Its parameters, (p,).
    """
    indptr, indices = field.pattern
    diagonal = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr)) == indices
    try:
        inverse = field.factor_at(values).inverse[diagonal]
    except NotPositiveDefiniteError:
        return math.inf
    return float((field.entries(values)[diagonal] * inverse).max())


@lru_cache(maxsize=8)
def product_of(fields: tuple[Any, ...], copies: int) -> Any:
    """Return independent copies of the Kronecker product of fields, from a cache with the analyses of their patterns.

    Args:
        fields: At least one field.
        copies: The number of copies.
    """
    product = reduce(KroneckerField, fields)
    return product if copies == 1 else KroneckerField(IndependentField(copies), product)


def factors_of(product: Any, count: int) -> list[Any]:
    """Return the fields of a product from `product_of`.

    Args:
        product: The product, without copies.
        count: The number of fields.
    """
    return [product] if count == 1 else [*factors_of(product.first, count - 1), product.second]


def row_products(
    left: Any,  # (n, F)
    right: sp.csr_array,  # (n, N)
) -> sp.csr_array:  # (n, F N)
    """Return the row-wise Kronecker product of two matrices.

    Args:
        left: A dense or sparse matrix, (n, F).
        right: A sparse matrix, (n, N).

    Returns:
        The product, (n, F N).
    """
    left = sp.csr_array(left)
    left.eliminate_zeros()
    size = right.shape[1]
    left_counts, right_counts = np.diff(left.indptr), np.diff(right.indptr)
    counts = left_counts * right_counts
    starts = np.concatenate([[0], np.cumsum(counts)])
    row = np.repeat(np.arange(len(left_counts)), counts)
    offset = np.arange(starts[-1]) - starts[row]
    first = left.indptr[row] + offset // right_counts[row]
    second = right.indptr[row] + offset % right_counts[row]
    columns = left.indices[first].astype(np.int64) * size + right.indices[second]
    product = sp.csr_array(
        (left.data[first] * right.data[second], columns, starts), shape=(len(left_counts), left.shape[1] * size)
    )
    product.sort_indices()
    return product


# --- Exact terms by the sparse precision of a field ------------------------------------------------------------------

EPS = torch.finfo(torch.float64).eps
"""Machine epsilon."""
MAX_ROUNDING_ERROR = 1e-3
"""The maximum relative rounding error of the covariance of a product of fields at the starting values."""


@dataclass(frozen=True, repr=False)
class SparsePrecision(Approximation):
    """The exact field with a sparse precision matrix, by sparse Cholesky factors.

    It supports groups, and fields on roads, surfaces and graphs (kernels of an integer order). It also supports Matern
    kernels of one column with nu = 1/2, 3/2 or 5/2. The precision of a product of these is a Kronecker product, with
    latent values at each pair of distinct positions. Other factors must be functions without hyperparameters: groups
    replicate the field, and one column of a linear kernel multiplies it.

    Wiener processes, and seasons of a few harmonics alone or times Matern kernels of the same column, are Markov
    processes of that column without a sparse matrix. Sums of such terms, and of Matern kernels of the same column, are
    computed by Kalman filtering, together with terms of at most 2,048 weights. Time and memory are then linear in the
    number of rows.

    Source: Rue and Held (2005), Gaussian Markov random fields, Section 2.4.

    Attributes:
        seed: It has no effect.

    Examples:
        >>> import rfgp
        >>> rfgp.SparsePrecision()
        SparsePrecision()
    """

    def unsupported_reason(self, data: TermData) -> str | None:
        """Return why a term has no sparse precision that fits in memory, or None."""
        if data.is_averaged:
            return OF_AREAS
        if is_markov(data.term, data.columns):
            return None
        chosen = fields_of(data.term, data.columns)
        if not chosen:
            return "no factor has a sparse precision. Use InducingPoints() or Exact()."
        scale = scale_name(data.term, data.values)
        if any(isinstance(factor, Wiener) for factor, _, _ in data.term.parts()):
            return "products with a Wiener process are not stationary. Use Exact() or InducingPoints()."
        for factor, indices, prefix in _others(data.term, chosen):
            if factor.functions(data.columns.select(indices)) is None:
                return f"{label_of(factor)}, which multiplies the field, has infinitely many functions. Use Exact()."
            paths = [f"{prefix}{name}" for name in factor.hyperparameters(data.columns.select(indices))]
            free = [path for path in paths if path not in (scale, data.term.outputscale)]
            if free:
                return (
                    f"{label_of(factor)}, which multiplies the field, has the hyperparameter {free[0]}. Use one term "
                    "for each of its columns, or Exact()."
                )
        is_known = bool(len(data.columns.sample))  # a model from a file has no rows
        return self._unsupported_product_reason(data, chosen) if len(chosen) > 1 and is_known else None

    def _unsupported_product_reason(self, data: TermData, chosen: tuple[BoundFactor, ...]) -> str | None:
        """Return why a product of fields exceeds the memory, or has large rounding errors."""
        if self.cost(data).num_features * BYTES_PER_VALUE > machine_memory():
            return (
                f"it would have {self.cost(data).note}, which exceed the memory. Round the columns to fewer distinct "
                "values, or use InducingPoints()."
            )
        error = EPS * math.prod(condition_of(*_field_at(part, data)) for part in chosen)
        if not error <= MAX_ROUNDING_ERROR:
            return (
                "positions or values are so close, in lengthscales, that the relative rounding error of its covariance "
                f"would be {error:.0e}. Round the columns, use a shorter lengthscale=, InducingPoints() or Exact()."
            )
        return None

    def least_noise(self, data: TermData) -> float:
        """Return the smallest noise variance of a filter or of a sparse factor."""
        return MIN_NOISE_OF_MATRICES if is_markov(data.term, data.columns) else super().least_noise(data)

    def cost(self, data: TermData, prior: TermPrior | None = None) -> TermCost:
        """Return the cost of the latent values, from a sample of the rows."""
        if is_markov(data.term, data.columns):
            size = sum(_chain_model(data.term, Given((), _all_values(data)), data.columns).sizes)
            memory = 8.0 * size**2 * data.num_rows / 256
            return TermCost(size, memory, f"a Markov process with {counted(size, 'state')}")
        chosen = fields_of(data.term, data.columns)
        if not len(data.columns.sample) and any(factor.kind is ColumnKind.NUMBER for factor, _, _ in chosen):
            return TermCost(0, 0.0, "latent values with a sparse precision, whose number is unknown without rows")
        sizes = [len(_field_at(part, data)[0].pattern.indptr) - 1 for part in chosen]
        features = _features(data.term, chosen, data.columns, {})
        copies = 1 if features is None else features.size
        size = math.prod(sizes) * copies
        is_refined = any(_latent(part, data.columns, {**data.constants, **data.values}).is_refined for part in chosen)
        at_least = "at least " if is_refined and len(data.columns.sample) < data.num_rows else ""
        product = f" ({' x '.join(f'{one:,}' for one in (*sizes, *[copies] * (copies > 1)))})" if len(sizes) > 1 else ""
        bytes_of_value = BYTES_PER_VALUE if len(sizes) > 1 else 8.0 * 20
        return TermCost(
            size, bytes_of_value * size, f"{at_least}{size:,} latent values{product} with a sparse precision"
        )

    def build(self, data: TermData, seed: int) -> TermPrior:
        """Return the term. The seed is not used."""
        if is_markov(data.term, data.columns):
            return TermPrior("precision", partial(_chain_prior, data.term, parameter_names(data, with_scale=True)))
        return TermPrior("precision", partial(_precision_prior, data.term, scale_name(data.term, data.values)))


MAX_FEATURES = 2048
"""The maximum number of dense weights beside a filter, whose columns are all in memory."""


def is_markov(term: BoundTerm, columns: ColumnSummary) -> bool:
    """Return whether a term is a Markov process of one column that has no sparse precision of its own.

    Factors of a product are stationary.

    Args:
        term: The term.
        columns: The summary of all columns.
    """
    parts = term.parts()
    if any(part.factor.kind is not ColumnKind.NUMBER or part.chain(columns) is None for part in parts):
        return False
    is_single = len(parts) == 1
    are_stationary = is_single or not any(isinstance(part.factor, Wiener) for part in parts)
    return are_stationary and len(term.columns) == 1 and not (is_single and parts[0].latent_field(columns) is not None)


def is_matern_chain(term: BoundTerm, columns: ColumnSummary) -> bool:
    """Return whether a term is a Matern process of one column, which has a sparse precision and can be filtered.

    Args:
        term: The term.
        columns: The summary of all columns.
    """
    return _column_of(term, columns) is not None


def _all_values(data: TermData) -> Values:
    """Return the hyperparameters and constants of a term by path."""
    return {**data.constants, **data.values}


def _chain_model(term: BoundTerm, given: Given, columns: ColumnSummary, *parameters: Tensor) -> chains.StateModel:
    """Return the process of a term at hyperparameters."""
    values = given.at(parameters)
    makers = [maker for part in term.parts() if (maker := part.chain(columns)) is not None]
    model = chains.product_of([maker(values) for maker in makers])
    return model if term.outputscale is None else model.scaled(values[term.outputscale].double())


def _chain_prior(term: BoundTerm, names: tuple[str, ...], basis: None, values: Values, columns: ColumnSummary) -> Prior:
    """Return the prior of a Markov process at hyperparameters by path, given all columns."""
    given, parameters = Given(names, constants_of([term], columns)), tuple(values[name] for name in names)
    covariance, model = TermCovariance(term, given), partial(_chain_model, term, given, columns)
    block = ChainBlock(term.columns[0], model, covariance, covariance.variances, parameters, term.name)
    return Prior(chains=(block,))


def fields_of(term: BoundTerm, columns: ColumnSummary) -> tuple[BoundFactor, ...]:
    """Return the factors of a term that have latent fields.

    Args:
        term: The term.
        columns: The summary of all columns.

    Returns:
        The factors, with the indices of their columns and their prefixes.
    """
    parts = [part for part in term.parts() if part.latent_field(columns) is not None]
    fields = [part for part in parts if part.factor.kind is not ColumnKind.LEVEL]
    fields.sort(key=lambda part: part.factor.kind is ColumnKind.NUMBER)
    return tuple(fields or parts[:1])


def _others(term: BoundTerm, chosen: tuple[BoundFactor, ...]) -> list[BoundFactor]:
    """Return the factors that multiply the fields."""
    with_fields = {(id(part.factor), part.prefix) for part in chosen}
    return [part for part in term.parts() if (id(part.factor), part.prefix) not in with_fields]


def _latent(part: BoundFactor, columns: ColumnSummary, values: Values) -> LatentField:
    """Return the field of a factor, given hyperparameters and constants by path."""
    latent = part.latent_field(columns)
    assert latent is not None
    return latent.at(of_prefix(values, part.prefix))


def _field_at(part: BoundFactor, data: TermData) -> tuple[Any, Array]:
    """Return the field of a factor on the sample of rows, and its parameters (p,)."""
    values = {**data.constants, **data.values}
    latent = _latent(part, data.columns, values)
    field, _ = latent.refine(data.columns.sample[:, part.indices])
    return field, as_array(latent.parameters(of_prefix(values, part.prefix))[0])


def _features(
    term: BoundTerm, chosen: tuple[BoundFactor, ...], columns: ColumnSummary, constants: Values
) -> TermFeatures | None:
    """Return the functions of the factors that multiply the fields, or None."""
    functions = [part.functions(columns) for part in _others(term, chosen)]
    known = tuple(part for part in functions if part is not None)
    return TermFeatures(known, Given((), constants)) if known else None


def _precision_prior(term: BoundTerm, scale: str | None, basis: None, values: Values, columns: ColumnSummary) -> Prior:
    """Return the prior of the latent values at hyperparameters by path, given all columns."""
    chosen, constants = fields_of(term, columns), constants_of([term], columns)
    all_values = {**constants, **values}
    latents = tuple(_latent(part, columns, all_values) for part in chosen)
    pairs = zip(latents, chosen, strict=True)
    parameters, amplitudes = zip(
        *(latent.parameters(of_prefix(all_values, part.prefix)) for latent, part in pairs), strict=True
    )
    features = _features(term, chosen, columns, unit_constants(term, scale, columns))
    projectors = tuple(latent.projector for latent in latents)
    reader = FieldReader(latents, tuple(part.indices for part in chosen), features, projectors)
    combines_copies = any(part.factor.kind is not ColumnKind.LEVEL for part in _others(term, chosen))
    variance, own = torch.stack(amplitudes).prod(), variance_at(scale, values)
    block = PrecisionBlock(
        reader.field,
        torch.cat(parameters),
        variance if own is None else variance * own.double(),
        reader,
        reader.refine if reader.is_refined else None,
        term.name,
        combines_non_neighbors=reader.copies > 1 and combines_copies,
        new_levels=new_levels(term, columns, Given((), {path: value.detach() for path, value in all_values.items()})),
        between=reader.between if reader.is_refined else None,
        slopes=reader.slopes if combines_copies or any(latent.slopes is not None for latent in latents) else None,
        column=_column_of(term, columns),
    )
    return Prior(precisions=(block,))


def _column_of(term: BoundTerm, columns: ColumnSummary) -> MaternColumn | None:
    """Return the column of a Matern process of one column, or None."""
    part, *others = term.parts()
    latent = part.latent_field(columns)
    if others or part.factor.measure is None or latent is None or not isinstance(latent.field, ChainField):
        return None
    return MaternColumn(part.indices[0], latent.field.alpha)
