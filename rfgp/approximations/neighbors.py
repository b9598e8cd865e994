"""Vecchia approximations: each row is conditioned on its nearest predecessors."""

from dataclasses import dataclass, field

import torch

from rfgp import spectra
from rfgp.approximations.parts import TermCovariance, TermEmbedding
from rfgp.approximations.role import (
    MIN_NOISE_OF_LATENT_NEIGHBORS,
    MIN_NOISE_OF_MATRICES,
    Approximation,
    TermCost,
    TermData,
    TermPrior,
    parameter_names,
)
from rfgp.blocks import KernelBlock, KernelVecchiaBlock, Prior, VecchiaBlock
from rfgp.columns import ColumnKind
from rfgp.counts import check_count
from rfgp.errors import InvalidArgumentError
from rfgp.kernels.role import Values
from rfgp.kernels.summary import ColumnSummary
from rfgp.kernels.terms import BoundTerm, constants_of
from rfgp.local.kinds import kind_of

CONDITIONS = ("auto", "responses", "latent")
"""The options of `condition_on`."""


@dataclass(frozen=True, repr=False)
class Vecchia(Approximation):
    """A Vecchia approximation: each row is conditioned on its nearest predecessors.

    It supports any term with a covariance function. If several terms of a model use it, their sum is approximated as
    one process.

    Compiled loops exist for one term with a Gaussian kernel, a product of Gaussian kernels, or a Matern kernel with nu
    1/2, 3/2 or 5/2. Other kernels, and sums, take 4 to 25 times as long (`benchmarks/races/any_kernel.py`). Latent
    neighbors then take about three times longer still.

    If rows are conditioned on responses, the compiled loops process blocks of nearby rows. A block shares twice
    `num_neighbors` neighbors and one factorization. The accuracy is that of `num_neighbors` neighbors for each row, in
    less than half of the time.

    Distances are in units of the lengthscales, on a circle for periodic columns. Rows of different levels are far
    apart. Columns of coordinates, such as those of roads, are not scaled.

    Sources: Vecchia (1988), Estimation and model identification for continuous spatial processes. Katzfuss and Guinness
    (2021), A general framework for Vecchia approximations of Gaussian processes. Guinness (2018), Permutation and
    grouping methods for sharpening Gaussian process approximations.

    Attributes:
        num_neighbors: The maximum number of neighbors of a row. The rows of a block share twice as many.
        condition_on: "responses" to condition on observations of the neighbors, "latent" for values of the process, or
            "auto" to choose by the noise. Latent values are more accurate if the noise is large.
        block_size: The maximum number of rows of a block, at most `num_neighbors` / 2 + 1. If 1, each row has its own
            neighbors.
        seed: The seed of the order of the rows. If None, that of the model.

    Raises:
        InvalidArgumentError: If the number of neighbors or rows of a block is not a positive integer, or `condition_on`
            is unknown.

    Examples:
        >>> import rfgp
        >>> rfgp.Vecchia(20)
        Vecchia(num_neighbors=20)
    """

    num_neighbors: int = 30
    condition_on: str = field(default="auto", kw_only=True)
    block_size: int = field(default=16, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "num_neighbors", check_count("num_neighbors", self.num_neighbors))
        object.__setattr__(self, "block_size", check_count("block_size", self.block_size))
        if self.condition_on not in CONDITIONS:
            raise InvalidArgumentError(
                f"condition_on must be one of {', '.join(CONDITIONS)}, got {self.condition_on!r}."
            )

    def unsupported_reason(self, data: TermData) -> str | None:
        """Return why the approximation does not support a term, or None."""
        factors = data.term.term.factors
        if any(factor.kind is ColumnKind.NODE for factor in factors):
            return "nodes of a graph have no coordinates. Use RandomWalks() or SparsePrecision()."
        if not any(factor.columns for factor in factors):
            return "it reads no column. Use Exact()."
        if self.condition_on == "responses" and not data.is_gaussian:
            return "condition_on='responses' requires a Gaussian likelihood. Use condition_on='latent'."
        return None

    def cost(self, data: TermData) -> TermCost:
        """Return the cost of the neighbors."""
        count = min(self.num_neighbors, data.num_rows)
        is_blocked = self.condition_on != "latent" and self.block_size > 1 and data.is_gaussian
        entries = min(2 * count + (self.block_size + 1) / 2 if is_blocked else count + 1, data.num_rows)
        return TermCost(data.num_rows, 16.0 * entries * data.num_rows, f"{count} neighbors of each row")

    def least_noise(self, data: TermData) -> float:
        """Return the smallest noise variance that factors of neighbors can resolve."""
        return MIN_NOISE_OF_LATENT_NEIGHBORS if self.condition_on == "latent" else MIN_NOISE_OF_MATRICES

    def build(self, data: TermData, seed: int) -> TermPrior:
        """Return the term with the seed of the order of its rows."""
        kind, row_seed = loops_of(data.term), seed if self.seed is None else self.seed
        if kind is not None:
            return NeighborTerm(data.term, kind, self.num_neighbors, row_seed, self.condition_on, self.block_size)
        names = parameter_names(data, with_scale=True)
        return KernelNeighborTerm(data.term, names, self.num_neighbors, row_seed, self.condition_on)


def loops_of(term: BoundTerm) -> str | None:
    """Return the name of the kernel of a term with compiled loops, or None.

    Args:
        term: The term.
    """
    measures = [factor.measure for factor in term.term.factors]
    if len(measures) == 1:
        return None if measures[0] is None else kind_of(measures[0])
    return "gaussian" if all(isinstance(measure, spectra.Gaussian) for measure in measures) else None


@dataclass(frozen=True, eq=False)
class NeighborTerm(TermPrior):
    """A term with nearest neighbors.

    Attributes:
        term: The term. The columns and the lengthscales of several Gaussian factors are stacked.
        kind: The name of the kernel.
        num_neighbors: The maximum number of neighbors of a row.
        seed: The seed of the order of the rows.
        condition_on: The option of `Vecchia`.
        block_size: The maximum number of rows of a block that shares its neighbors.
    """

    term: BoundTerm
    kind: str
    num_neighbors: int
    seed: int
    condition_on: str
    block_size: int

    def at(self, values: Values, columns: ColumnSummary) -> Prior:
        """Return the prior at hyperparameters by path, given all columns."""
        indices = [index for _, group, _ in self.term.parts() for index in group]
        lengthscales = [values[f"{prefix}lengthscale"].expand(len(group)) for _, group, prefix in self.term.parts()]
        assert self.term.outputscale is not None
        block = VecchiaBlock(
            self.kind,
            torch.cat(lengthscales),
            values[self.term.outputscale],
            self.num_neighbors,
            self.seed,
            self.condition_on,
            name=self.term.name,
            columns=tuple(indices),
            block_size=min(self.block_size, self.num_neighbors // 2 + 1),  # few are not shared by many
        )
        return Prior(neighbors=block)


@dataclass(frozen=True, eq=False)
class KernelNeighborTerm(TermPrior):
    """A term with nearest neighbors and any covariance function.

    Attributes:
        term: The term.
        names: The paths of its hyperparameters.
        num_neighbors: The maximum number of neighbors of a row.
        seed: The seed of the order of the rows.
        condition_on: The option of `Vecchia`.
    """

    term: BoundTerm
    names: tuple[str, ...]
    num_neighbors: int
    seed: int
    condition_on: str

    def at(self, values: Values, columns: ColumnSummary) -> Prior:
        """Return the prior at hyperparameters by path, given all columns."""
        constants = constants_of([self.term], columns)
        function = TermCovariance(self.term, self.names, constants)
        parameters = tuple(values[name] for name in self.names)
        kernel = KernelBlock(function, function.variances, parameters, name=self.term.name)
        embedding = TermEmbedding(self.term, self.names, constants, columns.spread)
        indices = tuple(sorted({index for _, group, _ in self.term.parts() for index in group}))
        options = self.num_neighbors, self.seed, self.condition_on, indices, self.term.name
        return Prior(neighbors=KernelVecchiaBlock((kernel,), (embedding,), *options))
