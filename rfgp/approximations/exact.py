"""No approximation: the exact covariance, or the weights of finitely many functions."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp.approximations.nodes import ExactFeatures, node_term, nodes_of
from rfgp.approximations.role import (
    MIN_NOISE_OF_MATRICES,
    Approximation,
    FinitePart,
    TermCost,
    TermCovariance,
    TermData,
    TermGram,
    TermPrior,
    WeightTermPrior,
    parameter_names,
    weights_memory,
)
from rfgp.blocks import KernelBlock, Prior
from rfgp.blocks.role import MAX_CELLS, Side
from rfgp.columns import ColumnKind
from rfgp.counts import counted
from rfgp.grams import stationary_gram
from rfgp.kernels.role import OUTPUTSCALE, BoundTerm, ColumnSummary, Term, Values, constants_of
from rfgp.limits import limits

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

    def cost(self, data: TermData) -> TermCost:
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
            return KernelTerm(data.term, parameter_names(data, with_scale=True), grid[0] if grid else None)
        return WeightTermPrior.of(data, [FinitePart(*factor) for factor in data.term.parts()])

    def vfe_counterpart(self, term: TermPrior) -> TermPrior:
        """Return the term itself, because its residual is 0."""
        return term


def _num_functions(data: TermData) -> int | None:
    """Return the number of functions of a term.

    The result is None if the number is infinite or too large.
    """
    product = 1
    for factor, indices, _ in data.term.parts():
        functions = factor.functions(data.columns.select(indices))
        if functions is None or product * functions.size > MAX_FUNCTIONS:
            return None
        product *= functions.size
    return product


@dataclass(frozen=True, eq=False)
class KernelTerm(TermPrior):
    """A term with its covariance.

    Attributes:
        term: The term.
        names: The paths of its hyperparameters.
        split: The factors on both sides of the grid of the rows, by their positions. If None, there is no grid.
    """

    term: BoundTerm
    names: tuple[str, ...]
    split: Split | None = None

    def at(self, values: Values, columns: ColumnSummary) -> Prior:
        """Return the prior at hyperparameters by path, given all columns."""
        constants = constants_of([self.term], columns)
        function = TermCovariance(self.term, self.names, constants)
        parameters = tuple(values[name] for name in self.names)
        sides = None if self.split is None else _sides(self.term, self.names, constants, self.split)
        kernel = KernelBlock(
            function, function.variances, parameters, name=self.term.name, sides=sides, own_gram=function.gram
        )
        return Prior(kernels=(kernel,))

    def gram(self, inputs: Tensor, columns: ColumnSummary) -> TermGram | None:
        """Return the covariance of rows (n, D) of one stationary factor, or None."""
        measure, scale = self.term.measure, self.term.outputscale
        if measure is None or not measure.has_slope or scale is None:
            return None
        x, lengthscale = inputs[:, self.term.column_indices[0]], f"{self.term.prefixes[0]}lengthscale"
        names = (lengthscale, scale)
        return TermGram(names, lambda values: stationary_gram(measure, x, values[lengthscale], values[scale]))


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
    return len(torch.unique(data.columns.sample[:, _column_indices(data.term, side)], dim=0)) if side else 1


def _column_indices(term: BoundTerm, side: tuple[int, ...]) -> list[int]:
    """Return the columns that some factors read."""
    return sorted({index for number in side for index in term.column_indices[number]})


def _sides(term: BoundTerm, names: tuple[str, ...], constants: Values, split: Split) -> tuple[Side, Side]:
    """Return the kernels of both sides. The first has the variance of the term."""
    pairs = zip(split, (term.name, ""), strict=True)
    first, second = (_side(term, names, constants, factors, name) for factors, name in pairs)
    return first, second


def _side(term: BoundTerm, names: tuple[str, ...], constants: Values, factors: tuple[int, ...], name: str) -> Side:
    """Return the product of some factors, with the variance of the term `name`."""
    if not factors:
        return Side(_ones, ())
    product = Term(tuple(term.term.factors[i] for i in factors), name)
    bound = BoundTerm(product, tuple(term.column_indices[i] for i in factors), tuple(term.prefixes[i] for i in factors))
    unit_variance = torch.ones((), dtype=torch.float64)
    function = TermCovariance(bound, names, {**constants, f"{name}.{OUTPUTSCALE}": unit_variance})
    return Side(function, tuple(_column_indices(term, factors)))


def _ones(a: Tensor, b: Tensor, *parameters: Tensor) -> Tensor:
    """Return ones (n, m) for rows a (n, D) and b (m, D)."""
    return torch.ones(len(a), len(b), dtype=torch.float64)
