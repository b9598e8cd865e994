"""A first pass over rows that are read in blocks: their number, their moments, and a random sample of them."""

import hashlib
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rfgp import random
from rfgp.errors import DataError
from rfgp.models.data import check_not_constant
from rfgp.models.sources import Read, RowSource, read_chunks
from rfgp.scaling import Affine

SAMPLE_ROWS = 2**15


class Moments:
    """Mean, deviation and range of the columns of a matrix that comes in parts.

    Parts are combined as by Chan, Golub and LeVeque (1983), in float64.
    """

    def __init__(self) -> None:
        self.count = 0
        self.mean = self._squares = self.low = self.high = torch.zeros(0, dtype=torch.float64)

    def add(
        self,
        x: Tensor,  # (b, d)
    ) -> None:
        """Add rows, (b, d)."""
        x = x.detach().double().cpu()
        mean, count = x.mean(0), len(x)
        squares, low, high = (x - mean).square().sum(0), x.amin(0), x.amax(0)
        if self.count == 0:
            self.count, self.mean, self._squares, self.low, self.high = count, mean, squares, low, high
            return
        total, shift = self.count + count, mean - self.mean
        self._squares = self._squares + squares + shift.square() * (self.count * count / total)
        self.mean = self.mean + shift * (count / total)
        self.low, self.high, self.count = torch.minimum(self.low, low), torch.maximum(self.high, high), total

    @property
    def deviation(self) -> Tensor:
        """The standard deviations (d,)."""
        return (self._squares / max(self.count - 1, 1)).sqrt()

    def standardizing(self, like: Tensor) -> Affine:
        """Return the map to mean 0 and standard deviation 1, in the dtype and on the device of `like` (0,)."""
        largest = torch.maximum(self.low.abs(), self.high.abs())
        return Affine.of_moments(*(value.to(like) for value in (self.mean, self.deviation, largest)))


class Survey(NamedTuple):
    """What a first pass found."""

    inputs: Moments
    targets: Moments
    num_rows: int
    observations: float  # the sum of the weights
    is_uniform: bool
    is_vector: bool  # targets (n,) rather than (n, k)
    is_numpy: bool
    sample: Read  # in random order
    names: tuple[str, ...] | None  # of the columns
    digest: str  # of all values, whatever the blocks


def survey(source: RowSource, dtype: torch.dtype | None, seed: int) -> Survey:
    """Read all rows once.

    Args:
        source: The rows.
        dtype: Of the inputs; None: the source's.
        seed: Of the sample, which depends on the rows and their order alone, not on the blocks.

    Raises:
        DataError: values that cannot be used, fewer than two rows, or a constant target.
    """
    inputs, targets, sample = Moments(), Moments(), _Sample(seed)
    observations, is_uniform, digests = 0.0, True, [hashlib.sha256() for _ in range(4)]
    chunks = iter(source.chunks())
    first = next(chunks, None)
    if first is None:
        raise DataError("The source has no rows.")
    for read in read_chunks(chain([first], chunks), dtype, True):
        assert read.targets is not None
        inputs.add(read.inputs)
        targets.add(read.targets)
        sample.add(read)
        for digest, tensor in zip(digests, read, strict=True):
            if tensor is not None:
                digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
        observations += len(read.inputs) if read.weight is None else float(read.weight.sum())
        is_uniform = is_uniform and read.known is None and read.weight is None
    if targets.count < 2:
        raise DataError(f"A process needs at least two observations, got {targets.count}.")
    is_vector = np.ndim(first.y) == 1
    low, high = (v[0] if is_vector else v for v in (targets.low, targets.high))
    found = sample.rows()
    check_not_constant(low.to(found.inputs.dtype), high.to(found.inputs.dtype), targets.count)
    is_numpy = not isinstance(first.X, Tensor)
    _check_range(inputs, "a column of X")
    _check_range(targets, "y")
    kind = (observations, is_uniform, is_vector, is_numpy)
    return Survey(inputs, targets, targets.count, *kind, found, first.names, " ".join(d.hexdigest() for d in digests))


def _check_range(moments: Moments, name: str) -> None:
    """Refuse values whose squares leave the range of float64.

    Raises:
        DataError: with the largest value.
    """
    deviation = moments.standardizing(torch.empty(0, dtype=torch.float64)).scale
    lost = ~torch.isfinite(deviation) | ((moments.low < moments.high) & (moments.deviation == 0))
    if bool(lost.any()):
        largest = torch.maximum(moments.low.abs(), moments.high.abs())[lost][0].item()
        raise DataError(f"The squares of {name} with values up to {largest:g} are out of float64. Rescale it.")


class _Sample:
    """The rows with the smallest of independent uniform keys: a random sample without replacement."""

    def __init__(self, seed: int) -> None:
        self._random = random.numpy_generator(seed, random.Role.SAMPLE)
        self._keys = np.empty(0)
        self._kept: list[Read] = []

    def add(self, read: Read) -> None:
        """Offer rows to the sample."""
        keys = self._random.random(len(read.inputs))
        if len(self._keys) >= SAMPLE_ROWS:
            chosen = np.flatnonzero(keys < self._keys.max())
            if len(chosen) == 0:
                return
            read, keys = read.take(torch.as_tensor(chosen)), keys[chosen]
        self._keys = np.concatenate([self._keys, keys])
        self._kept.append(read)
        if len(self._keys) >= 2 * SAMPLE_ROWS:
            self._shrink()

    def rows(self) -> Read:
        """Return the sample in random order."""
        self._shrink()
        return self._kept[0]

    def _shrink(self) -> None:
        order = np.argsort(self._keys, kind="stable")[:SAMPLE_ROWS]
        whole = Read.joined(self._kept)
        self._kept, self._keys = [whole.take(torch.as_tensor(order))], self._keys[order]
