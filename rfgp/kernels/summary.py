"""Summaries of the columns of a kernel."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rfgp.scaling import Affine, moments
from rfgp.torch_context import CachedWithoutLock


@dataclass(frozen=True, eq=False)
class ColumnSummary:
    """The training rows in the c columns of a kernel, in standardized units.

    A value in the user's units is location + scale * standardized value.

    Attributes:
        sample: Rows, all or a sample of them, (r, c).
        location: The location of the map to standardized units, (c,).
        scale: Its scale, (c,).
        spread: The standard deviations of the columns, (c,), 1 for constant columns, and the robust scale of columns
            with outliers (see `rfgp.scaling.Affine.robust`).
        num_levels: The number of levels of each column, c of them. 0 for numbers.
        low: The smallest values of all rows, (c,). If None, those of the sample.
        high: The largest values of all rows, (c,). If None, those of the sample.
        row_noise: The harmonic mean of the given noise variances of rows, standardized.

    Examples:
        >>> import torch
        >>> from rfgp.kernels import ColumnSummary
        >>> summary = ColumnSummary.of(torch.tensor([[0.0], [2.0], [4.0]]))
        >>> summary.num_columns, summary.center.item(), summary.extent.item()
        (1, 2.0, 4.0)
    """

    sample: Tensor
    location: Tensor
    scale: Tensor
    spread: Tensor
    num_levels: tuple[int, ...]
    low: Tensor | None = None
    high: Tensor | None = None
    row_noise: float = 0.0

    @classmethod
    def of(cls, sample: Tensor, num_levels: tuple[int, ...] = (), weight: Tensor | None = None) -> "ColumnSummary":
        """Return the summary of rows (r, c) in the user's units.

        Args:
            sample: The rows.
            num_levels: The number of levels of each column. If empty, all columns are numbers.
            weight: The weight of each row, (r,). If None, 1.
        """
        has_spread = len(sample) > 1 and sample.shape[1]
        spread = moments(sample, weight)[1] if has_spread else torch.zeros_like(sample[0])
        spread = torch.where(spread > 0, spread, torch.ones_like(spread))
        spread = Affine(torch.zeros_like(spread), spread).robust(sample, weight).scale
        return cls(
            sample, torch.zeros_like(spread), torch.ones_like(spread), spread, num_levels or (0,) * sample.shape[1]
        )

    @property
    def num_columns(self) -> int:
        """The number c of columns."""
        return len(self.scale)

    @property
    def center(self) -> Tensor:
        """The means of the columns in the sample, or medians of columns with outliers, (c,)."""
        mean = self.sample.mean(0)
        return Affine(mean, moments(self.sample)[1]).robust(self.sample).location if len(self.sample) > 1 else mean

    @property
    def extent(self) -> Tensor:
        """The ranges of the columns in the sample, (c,)."""
        return self.sample.amax(0) - self.sample.amin(0)

    @property
    def ends(self) -> tuple[Tensor, Tensor]:
        """The smallest and the largest values of all rows, (c,) each."""
        if self.low is not None and self.high is not None:
            return self.low, self.high
        low, high = torch.aminmax(self.sample, dim=0)
        return low, high

    def between(self, low: Tensor, high: Tensor) -> "ColumnSummary":
        """Return the summary with other ends.

        Args:
            low: The smallest values (c,) of all rows, in standardized units.
            high: The largest values (c,).
        """
        return replace(self, low=low, high=high)

    def standardized(self, values: Tensor) -> Tensor:
        """Return standardized values (..., c).

        Args:
            values: The values (..., c) in the user's units.
        """
        return (values - self.location) / self.scale

    def select(self, indices: list[int]) -> "ColumnSummary":
        """Return the summary of some columns, from a cache.

        Args:
            indices: The indices of k of the c columns.
        """
        key = tuple(indices)
        if key not in self._selected:
            self._selected[key] = self._select(indices)
        return self._selected[key]

    @CachedWithoutLock
    def _selected(self) -> "dict[tuple[int, ...], ColumnSummary]":
        """The summaries of some of the columns, by their indices."""
        return {}

    def _select(self, indices: list[int]) -> "ColumnSummary":
        return replace(
            self,
            sample=self.sample[:, indices],
            location=self.location[indices],
            scale=self.scale[indices],
            spread=self.spread[indices],
            num_levels=tuple(self.num_levels[index] for index in indices),
            low=None if self.low is None else self.low[indices],
            high=None if self.high is None else self.high[indices],
        )
