"""Standardized rows in blocks, in memory or of a source; repeated rows and equal inputs merged.

Row i represents w_i observations with the value y_i and the noise variance noise + fixed noise_i each. Up to a factor
independent of the function, this is one observation with noise variance D_i = (noise + fixed noise_i) / w_i.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.errors import DataError
from rfgp.rows.sources import (
    Chunk,
    DistributedSource,
    Layout,
    RowSource,
    checked,
    joined_column,
    numbered_rows,
    rebatched,
    row_hashes,
)
from rfgp.scaling import Scaling

# --- Standardized rows in blocks, which can be read repeatedly in the same order -------------------------------------


@dataclass(frozen=True, eq=False)
class Block:
    """A block of rows in memory, in standardized units.

    Attributes:
        inputs: The inputs (b, d), or positions (b,).
        targets: The targets (b, k), float64.
        fixed_noise: The numbers of rows that the likelihood takes (b,), float64 (`Likelihood.row_argument`). With a
            Gaussian likelihood they are noise variances, which are added to the learned noise. If None, they are zeros.
            With other likelihoods they are exposures, numbers of trials, or codes of censoring.
        weight: The numbers of observations (b,), float64. If None, ones.
        given_output_weights: The weights (k,) of the outputs in the sum of log densities. If None, ones.
        replicate_sum_of_squares: The sums of squares of a row's observations about their mean, the target, (b, k). If
            None, the observations of a row are equal.

    Examples:
        >>> rows = Block(torch.zeros(3, 1), torch.zeros(3, 1).double(), weight=torch.tensor([1.0, 2.0, 1.0]).double())
        >>> len(rows), rows.count
        (3, 4.0)
    """

    inputs: Tensor
    targets: Tensor
    fixed_noise: Tensor | None = None
    weight: Tensor | None = None
    given_output_weights: Tensor | None = None
    replicate_sum_of_squares: Tensor | None = None

    @property
    def standardized_block(self) -> "Block":
        """The block itself, which is standardized."""
        return self

    @property
    def num_outputs(self) -> int:
        """The number k of targets of a row."""
        return self.targets.shape[1]

    @property
    def output_weights(self) -> Tensor:
        """The weights of the outputs in a sum of log densities, (k,) float64."""
        return (
            self.targets.new_ones(self.num_outputs) if self.given_output_weights is None else self.given_output_weights
        )

    @property
    def is_homoscedastic(self) -> bool:
        """Whether no row has a weight or known noise."""
        return self.fixed_noise is None and self.weight is None

    @property
    def has_fixed_noise(self) -> bool:
        """Whether the rows have known noise."""
        return self.fixed_noise is not None

    @property
    def count(self) -> float:
        """The number of observations, including repetitions."""
        return len(self) if self.weight is None else float(self.weight.sum())

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest inputs, (d,) each."""
        low, high = torch.aminmax(self.inputs.detach(), dim=0)
        return low, high

    def __len__(self) -> int:
        return len(self.targets)

    def observation_noise(self, noise: Tensor) -> Tensor:  # 0-d -> () or (b,)
        """Return the noise variance of one observation of each row.

        It is the sum of the learned and the known variance.

        Args:
            noise: The learned variance, 0-d.
        """
        return noise if self.fixed_noise is None else noise + self.fixed_noise

    def noise_diag(self, noise: Tensor) -> Tensor:  # 0-d -> () or (b,)
        """Return the noise variance of the mean of the observations of each row.

        Args:
            noise: The learned variance, 0-d.
        """
        variance = self.observation_noise(noise)
        return variance if self.weight is None else variance / self.weight

    def with_more_noise(self, noise: Tensor) -> "Block":  # (b,)
        """Return the rows with more known noise.

        Args:
            noise: The variances that are added to the known noise, (b,).
        """
        return replace(self.standardized_block, fixed_noise=self.observation_noise(noise))

    def replicate_log_prob(self, noise: Tensor) -> Tensor:  # 0-d -> 0-d
        """Return the log density of observations given their mean, or 0 without weights.

        Let w observations of variance D have the mean y and the sum of squares S about it. Their density is N(y; f, D /
        w) (2 pi D)^(-(w - 1) / 2) w^(-1/2) exp(-S / (2 D)). The result is the sum of the logarithms of the factors
        after the first, weighted by `output_weights`.

        Args:
            noise: The learned variance, 0-d.
        """
        if self.weight is None:
            return torch.zeros_like(noise)
        variance = self.observation_noise(noise)
        logs = (self.weight - 1) * (2 * torch.pi * variance).log() + self.weight.log()
        return -0.5 * (self.output_weights.sum() * logs.sum() + self.weighted_replicate_squares(noise).sum())

    def weighted_replicate_squares(self, noise: Tensor) -> Tensor:  # 0-d -> (b,)
        """Return the squares about the mean of each row, divided by the noise variance.

        Args:
            noise: The learned variance, 0-d.
        """
        if self.replicate_sum_of_squares is None:
            return torch.zeros_like(self.targets[:, 0])
        return (self.replicate_sum_of_squares @ self.output_weights) / self.observation_noise(noise)

    def counts(self) -> Tensor:
        """Return the number of observations of each row, (b,) float64."""
        return torch.ones_like(self.targets[:, 0]) if self.weight is None else self.weight

    def blocks(self, size: int) -> "Iterator[Block]":
        """Yield all rows in blocks of `size`.

        Args:
            size: The number of rows of a block. The last one may be smaller.
        """
        for first in range(0, len(self), size):
            yield self.take(slice(first, first + size))

    def take(self, rows: slice | Tensor) -> "Block":  # (b,)
        """Return some rows.

        Args:
            rows: A slice, indices (b,) or a mask.
        """
        arrays = self.fixed_noise, self.weight, self.replicate_sum_of_squares
        noise, weight, squares = (None if value is None else value[rows] for value in arrays)
        return Block(self.inputs[rows], self.targets[rows], noise, weight, self.given_output_weights, squares)


def standardized(chunk: Chunk, scaling: Scaling) -> Block:
    """Return checked rows in standardized units."""
    inputs = scaling.standardize(chunk.X)
    targets = scaling.targets.forward(chunk.y.to(scaling.targets.scale)).double()
    targets = targets if targets.ndim > 1 else targets[:, None]
    return Block(inputs, targets, standardized_noise(chunk, scaling), chunk.sample_weight)


def standardized_noise(chunk: Chunk, scaling: Scaling) -> Tensor | None:
    """Return the known noise variances (b,) of rows in standardized units, or None."""
    return None if chunk.noise is None else chunk.noise / scaling.targets.common_scale().double() ** 2


@dataclass(frozen=True, eq=False)
class SourceRows:
    """The rows of a source, standardized while they are read. See `rfgp.rows.Rows`.

    Attributes:
        source: The source.
        scaling: The map to standardized units.
        layout: The targets, noise and weights that all rows have.
        num_rows: The number n of rows.
        count: The number of observations, including repetitions.
        as_numpy: Whether the rows are arrays and not tensors.
        sample: A standardized random sample of the rows.
        digest: The digest of all values.
        ends: The smallest and the largest standardized inputs, (d,) each.
    """

    source: RowSource
    scaling: Scaling
    layout: Layout
    num_rows: int
    count: float
    as_numpy: bool
    sample: Block
    digest: str
    ends: tuple[Tensor, Tensor]

    @property
    def num_outputs(self) -> int:
        """The number k of targets of a row."""
        return self.sample.num_outputs

    @property
    def is_homoscedastic(self) -> bool:
        """Whether no row has a weight or known noise."""
        return self.sample.is_homoscedastic

    @property
    def has_fixed_noise(self) -> bool:
        """Whether rows have known noise."""
        return self.sample.has_fixed_noise

    def __len__(self) -> int:
        return self.num_rows

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield all rows in blocks of `size`.

        Raises:
            DataError: If the number of rows, or their columns, have changed since the first pass.
        """
        count = 0
        for chunk in rebatched(checked(self.source, self.layout), size):
            count += len(chunk.X)
            yield standardized(chunk, self.scaling)
        if count != self.num_rows:
            raise DataError(f"A source must not change, got {count:,} rows after {self.num_rows:,}. Read a copy.")


Sums = tuple[Tensor, ...]


class DistributedRows(SourceRows):
    """The rows of a `DistributedSource`, summed on the workers."""

    def total(self, function: "Callable[[Rows], Sums]", combine: Callable[[Sums, Sums], Sums]) -> Sums:
        """Return the combined values function(part) of the parts. Each part must fit into memory.

        Args:
            function: A function from rows to tensors.
            combine: A function of the tensors of two neighboring parts.

        Raises:
            DataError: If values are invalid, or have changed since the first pass.
        """
        assert isinstance(self.source, DistributedSource)
        of_part = partial(_total_of_part, self.scaling, self.layout, function)
        return self.source.reduce(of_part, combine)


def _total_of_part(
    scaling: Scaling,
    layout: Layout,
    function: "Callable[[Rows], Sums]",
    part: RowSource,
    first: int,
) -> Sums:
    chunks = list(checked(part, layout, first))
    if not chunks:
        X, y = scaling.inputs.scale[None, :][:0], scaling.targets.scale.new_zeros(0, *layout[0])
        chunks = [Chunk(X, y)]
    return function(standardized(Chunk.joined(chunks), scaling))


@dataclass(frozen=True, eq=False)
class SourceInputs:
    """The inputs of a source, standardized block by block.

    Attributes:
        source: The source.
        scaling: The map to standardized units.
    """

    source: RowSource
    scaling: Scaling

    def blocks(self, size: int) -> Iterator[Tensor]:
        """Yield all inputs in blocks (b, d) of `size`.

        Raises:
            DataError: If there are no rows.
        """
        has_rows = False
        for chunk in rebatched((Chunk(torch.as_tensor(chunk.X)) for chunk in self.source.chunks()), size):
            has_rows = True
            yield self.scaling.standardize(chunk.X)
        if not has_rows:
            raise DataError("A source must yield its rows at each pass, got none. Restart at each call of chunks().")


@dataclass(frozen=True, eq=False)
class JoinedRows:
    """Concatenated rows of several parts.

    Attributes:
        parts: The parts, at least one.
    """

    parts: "Sequence[Rows]"

    @property
    def num_outputs(self) -> int:
        """The number k of targets of a row."""
        return self.parts[0].num_outputs

    @property
    def is_homoscedastic(self) -> bool:
        """Whether no row of any part has a weight or known noise."""
        return all(part.is_homoscedastic for part in self.parts)

    @property
    def has_fixed_noise(self) -> bool:
        """Whether a row of any part has known noise."""
        return any(part.has_fixed_noise for part in self.parts)

    @property
    def count(self) -> float:
        """The number of observations, including repetitions."""
        return sum(part.count for part in self.parts)

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest inputs, (d,) each."""
        lows, highs = zip(*(part.ends for part in self.parts), strict=True)
        return torch.stack(lows).amin(0), torch.stack(highs).amax(0)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield the blocks of all parts in order.

        Args:
            size: The approximate number of rows of a block.
        """
        for part in self.parts:
            yield from part.blocks(size)


Rows = Block | SourceRows | JoinedRows
"""Standardized rows, which `blocks(size)` yields in blocks that callers must not change, at each call in one order."""


def added(a: Sums, b: Sums) -> Sums:
    """Return the sums of tensors."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def sums_over_parts(
    rows: Rows, function: Callable[[Rows], Sums], combine: Callable[[Sums, Sums], Sums] = added
) -> Sums:
    """Return the sums of a function over rows.

    Rows on other machines are summed there.

    Args:
        rows: The rows.
        function: Maps rows to sums over them. It is pickled if rows are on other machines.
        combine: A function of the sums over two neighboring parts. The default adds them.
    """
    parts = parts_of(rows)
    values = (part.total(function, combine) if isinstance(part, DistributedRows) else function(part) for part in parts)
    return reduce(combine, values)


def parts_of(rows: Rows) -> list[Rows]:
    """Return the parts of joined rows, or other rows as the only part.

    Args:
        rows: The rows.
    """
    return list(rows.parts) if isinstance(rows, JoinedRows) else [rows]


def gathered(rows: Rows) -> Block:
    """Return all rows in memory.

    Args:
        rows: The rows.
    """
    if isinstance(rows, Block):
        return rows
    blocks = list(rows.blocks(2**16))
    if len(blocks) == 1:
        return blocks[0]
    sizes, inputs, targets = list(map(len, blocks)), [b.inputs for b in blocks], [b.targets for b in blocks]
    noise = joined_column([block.fixed_noise for block in blocks], sizes, 0.0)
    weight = joined_column([block.weight for block in blocks], sizes, 1.0)
    return Block(torch.cat(inputs), torch.cat(targets), noise, weight)


def rows_in_memory(rows: Rows) -> Block:
    """Return all rows, or the sample of rows that are read in blocks.

    Args:
        rows: The rows.
    """
    return rows.sample if isinstance(rows, SourceRows) else gathered(rows)


def is_read_in_blocks(rows: Rows) -> bool:
    """Return whether at least one part of the rows is read in blocks.

    Args:
        rows: The rows.
    """
    return any(isinstance(part, SourceRows) for part in parts_of(rows))


def typical_noise(rows: Rows) -> float:
    """Return the harmonic mean of known noise variances, or 0 if the noise of some rows is not known.

    Args:
        rows: The rows.
    """
    noises = [rows_in_memory(part).fixed_noise for part in parts_of(rows)]
    known = [noise for noise in noises if noise is not None]
    return 1 / float((1 / torch.cat(known)).mean()) if len(known) == len(noises) else 0.0


# --- Repeated rows: found by hashes, and merged into one row with a weight -------------------------------------------

MAX_MEAN_REPEATS = 5
"""The maximum mean number of rows with the same inputs for which equal rows count as copies."""


def repeat_groups(
    X: NDArray[np.floating[Any]],  # (n, d)
    y: NDArray[np.floating[Any]],  # (n,) or (n, k)
) -> NDArray[np.int64] | None:  # (n,)
    """Return a number for each row, shared by equal rows, or None if there are no copies.

    If the same inputs are repeated often, the inputs are considered coarse, and equal rows are not copies. The result
    is then None.

    Args:
        X: The inputs (n, d).
        y: The targets (n,) or (n, k).

    Examples:
        >>> groups = repeat_groups(np.array([[1.0], [2.0], [1.0]]), np.array([3.0, 3.0, 3.0]))
        >>> bool(groups[0] == groups[2]), bool(groups[0] == groups[1])
        (True, False)
    """
    inputs, groups = (numbered_rows(matrix.T) for matrix in (X, np.column_stack([X, y])))
    is_coarse = MAX_MEAN_REPEATS * (inputs.max() + 1) < len(y)
    return None if is_coarse or groups.max() + 1 == len(y) else groups


def merge_repeats(
    columns: Sequence[Any],  # each (n,)
    weight: NDArray[np.float64] | None,  # (n,)
) -> tuple[NDArray[np.int64], NDArray[np.float64] | None]:  # (m,), (m,)
    """Return the indices of distinct rows, and their weights.

    Equal rows become one with the sum of their weights. The order of the remaining rows depends only on their values.
    Data sets with weights and with written-out repetitions therefore give identical numbers in the same order. Without
    weights and repetitions all rows remain unchanged.

    Args:
        columns: All inputs and targets, numbers or texts.
        weight: The weight of each row. If None, 1.

    Examples:
        >>> rows, weight = merge_repeats([np.array([1.0, 2.0, 1.0])], np.array([1.0, 1.0, 4.0]))
        >>> sorted(zip(rows.tolist(), weight.tolist()))
        [(0, 5.0), (1, 1.0)]
    """
    cells = [np.asarray(column) for column in columns]
    numbers = [c if c.dtype.kind in "fiub" else np.unique(c, return_inverse=True)[1].reshape(-1) for c in cells]
    _, first, member = np.unique(row_hashes(numbers), return_index=True, return_inverse=True)
    member = member.reshape(-1)  # numpy 2.0 returns another shape
    is_weighted = weight is not None and not bool((weight == 1).all())
    is_repeated = len(first) < len(member)
    if not (is_weighted or is_repeated):
        return np.arange(len(member)), None
    if is_repeated and not all(np.array_equal(column, column[first][member]) for column in numbers):
        return np.arange(len(member)), weight  # two different rows have equal hashes
    return first, np.bincount(member, weight, minlength=len(first)).astype(np.float64)


# --- Rows with equal inputs, merged into one row each ----------------------------------------------------------------


def input_groups(inputs: Tensor, spacing: float = 0.0) -> NDArray[np.int64]:  # (n, d) -> (n,)
    """Return a number for each row, shared by rows with equal inputs.

    Args:
        inputs: The inputs.
        spacing: The spacing of a grid to which inputs are rounded. If 0, they are not rounded.

    Examples:
        >>> groups = input_groups(torch.tensor([[1.0], [2.0], [1.0]]))
        >>> bool(groups[0] == groups[2]), bool(groups[0] == groups[1])
        (True, False)
    """
    x = inputs.detach().cpu().double().numpy()
    return numbered_rows((np.round(x / spacing) if spacing else x).T)


def merge_replicates(rows: Block, num_parts: int = 1) -> Block:
    """Return one row for each distinct input, with mean, count and sum of squares.

    The Gaussian likelihood and its gradient are those of all rows, from the factor of a smaller matrix.

    Args:
        rows: The rows, without known noise.
        num_parts: The maximum number of rows for each distinct input, among which its replicates are divided.

    Examples:
        >>> import torch
        >>> from rfgp.rows.blocks import merge_replicates
        >>> x, y = torch.tensor([[1.0], [2.0], [1.0]]), torch.tensor([[3.0], [0.0], [5.0]])
        >>> merged = merge_replicates(Block(x, y))
        >>> columns = merged.targets, merged.counts()[:, None], merged.replicate_sum_of_squares
        >>> sorted(torch.cat(columns, dim=1).tolist())
        [[0.0, 1.0, 0.0], [4.0, 2.0, 2.0]]
    """
    groups = torch.from_numpy(_divided(input_groups(rows.inputs), num_parts))
    first = torch.from_numpy(np.unique(groups.numpy(), return_index=True)[1])
    if len(first) == len(rows):
        return rows
    counts, zeros = rows.counts(), rows.targets.new_zeros(len(first))
    weight = zeros.index_add(0, groups, counts)
    weighted = rows.targets.new_zeros(len(first), rows.num_outputs).index_add(0, groups, counts[:, None] * rows.targets)
    means = weighted / weight[:, None]
    squares = counts[:, None] * (rows.targets - means[groups]).square()
    if rows.replicate_sum_of_squares is not None:
        squares = squares + rows.replicate_sum_of_squares
    merged_squares = torch.zeros_like(means).index_add(0, groups, squares)
    return Block(rows.inputs[first], means, None, weight, rows.given_output_weights, merged_squares)


def _divided(groups: NDArray[np.int64], num_parts: int) -> NDArray[np.int64]:  # (n,) -> (n,)
    """Return the numbers of parts of groups, whose sizes differ by at most 1."""
    order = np.argsort(groups, kind="stable")
    rank = np.empty_like(groups)
    rank[order] = np.arange(len(groups)) - np.searchsorted(groups[order], groups[order])
    parts: NDArray[np.int64] = np.unique(num_parts * groups + rank % num_parts, return_inverse=True)[1].reshape(-1)
    return parts
