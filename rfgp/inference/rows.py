"""The data of a regression: rows that are read in blocks, as often as asked, each time the same in the same order.

Row i stands for w_i observations, all of them y_i, with the noise variance (learned + known_i) each. Up to a factor
that does not depend on the function, that is one observation with the noise D_i = (learned + known_i) / w_i.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor


class Block(NamedTuple):
    """Some rows.

    Attributes:
        inputs: (b, d), or positions (b,).
        targets: (b, k), float64.
        known: Variances (b,) beside the learned noise, float64; None: zeros.
        weight: Numbers of observations (b,), float64; None: ones.
    """

    inputs: Tensor
    targets: Tensor
    known: Tensor | None = None
    weight: Tensor | None = None

    def noise(
        self,
        learned: Tensor,  # 0-d
    ) -> Tensor:  # () or (b,)
        """Return the noise variance of one observation."""
        return learned if self.known is None else learned + self.known

    def spread(
        self,
        learned: Tensor,  # 0-d
    ) -> Tensor:  # () or (b,)
        """Return D, the noise variance of the mean of a row's observations."""
        noise = self.noise(learned)
        return noise if self.weight is None else noise / self.weight

    def counts(self) -> Tensor:
        """Return the numbers of observations, (b,) float64."""
        return torch.ones_like(self.targets[:, 0]) if self.weight is None else self.weight


class Rows(Protocol):
    """The role: whatever yields blocks."""

    @property
    def num_outputs(self) -> int:
        """The number k of targets of a row."""

    @property
    def is_uniform(self) -> bool:
        """Whether no row has a weight or a noise of its own."""

    @property
    def knows_noise(self) -> bool:
        """Whether some row has a noise of its own."""

    def __len__(self) -> int:
        """The number n of rows."""

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield all rows in blocks of about `size`; no tensor of a block is to be changed."""


Sums = tuple[Tensor, ...]


@runtime_checkable
class DistributedRows(Rows, Protocol):
    """The role: rows that lie on other machines, where sums over them are better taken."""

    def total(self, function: Callable[[Rows], Sums]) -> Sums:
        """Return the sum of function(part) over parts of the rows, each evaluated where it lies."""


@dataclass(frozen=True, eq=False)
class ArrayRows:
    """Rows in memory.

    Attributes:
        inputs: (n, d), or positions (n,).
        targets: (n, k), float64.
        known: As in `Block`, (n,).
        weight: As in `Block`, (n,).
    """

    inputs: Tensor
    targets: Tensor
    known: Tensor | None = None
    weight: Tensor | None = None

    @property
    def num_outputs(self) -> int:
        """The number k of targets of a row."""
        return self.targets.shape[1]

    @property
    def is_uniform(self) -> bool:
        """Whether no row has a weight or a noise of its own."""
        return self.known is None and self.weight is None

    @property
    def knows_noise(self) -> bool:
        """Whether the rows have a noise of their own."""
        return self.known is not None

    @property
    def count(self) -> float:
        """The number of observations, repetitions included."""
        return len(self) if self.weight is None else float(self.weight.sum())

    def __len__(self) -> int:
        return len(self.targets)

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield all rows in blocks of `size`."""
        for first in range(0, len(self), size):
            part = slice(first, first + size)
            known, weight = (None if value is None else value[part] for value in (self.known, self.weight))
            yield Block(self.inputs[part], self.targets[part], known, weight)

    def take(
        self,
        rows: Tensor,  # (b,)
    ) -> "ArrayRows":
        """Return the rows at these positions."""
        known, weight = (None if value is None else value[rows] for value in (self.known, self.weight))
        return ArrayRows(self.inputs[rows], self.targets[rows], known, weight)


@dataclass(frozen=True, eq=False)
class JoinedRows:
    """Rows of several parts, one after the other.

    Attributes:
        parts: At least one.
    """

    parts: Sequence[Rows]

    @property
    def num_outputs(self) -> int:
        """The number k of targets of a row."""
        return self.parts[0].num_outputs

    @property
    def is_uniform(self) -> bool:
        """Whether no row of any part has a weight or a noise of its own."""
        return all(part.is_uniform for part in self.parts)

    @property
    def knows_noise(self) -> bool:
        """Whether a row of any part has a noise of its own."""
        return any(part.knows_noise for part in self.parts)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def blocks(self, size: int) -> Iterator[Block]:
        """Yield the blocks of one part after the other."""
        for part in self.parts:
            yield from part.blocks(size)


def gathered(rows: Rows) -> ArrayRows:
    """Return all rows in memory."""
    if isinstance(rows, ArrayRows):
        return rows
    found = list(rows.blocks(2**16))
    known = weight = None
    if any(block.known is not None for block in found):
        known = torch.cat([torch.zeros_like(b.counts()) if b.known is None else b.known for b in found])
    if any(block.weight is not None for block in found):
        weight = torch.cat([block.counts() for block in found])
    inputs, targets = (torch.cat([getattr(block, name) for block in found]) for name in ("inputs", "targets"))
    return ArrayRows(inputs, targets, known, weight)
