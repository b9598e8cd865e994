"""No approximation: the exact covariance, or the weights of finitely many functions."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from rfgp.approximations.nodes import ExactFeatures, node_term, nodes_of
from rfgp.approximations.role import (
    MIN_NOISE_OF_MATRICES,
    Approximation,
    Given,
    TermCost,
    TermCovariance,
    TermData,
    TermGram,
    TermPrior,
    parameter_names,
    weights_memory,
    weights_term,
)
from rfgp.blocks import KernelBlock, Prior
from rfgp.blocks.role import MAX_CELLS, Side
from rfgp.columns import ColumnKind
from rfgp.grams import stationary_gram
from rfgp.kernels.role import OUTPUTSCALE, BoundTerm, ColumnSummary, Term, Values, constants_of
from rfgp.limits import limits
from rfgp.messages import counted

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
    if measure is None or not measure.has_slope or scale is None:
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
