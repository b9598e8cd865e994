"""The role of a coupling."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from rfgp import random
from rfgp.ambient import plain
from rfgp.counts import check_counts, counted
from rfgp.couplings.frequencies import Frequencies
from rfgp.errors import InvalidArgumentError
from rfgp.spectra import Gaussian, Spectrum

_MOST_ENTRIES = 2**30


class Coupling(ABC):
    """A joint law of m frequencies.

    Laws: each frequency, with its weight, follows the spectral law; the rows are shuffled, so any
    slice of a draw is unbiased as well; the same generator state gives the same draw.
    """

    needs_isotropy: ClassVar[bool] = True
    """Whether only spectra that are a uniform direction times a norm will do."""

    @property
    def is_biased(self) -> bool:
        """Whether each frequency follows the spectral law only nearly; the class says how nearly."""
        return False

    @property
    def is_antithetic(self) -> bool:
        """Whether frequencies come in pairs omega, -omega, for positive features only."""
        return False

    @plain()
    def sample(
        self,
        num_frequencies: int,
        num_dims: int,
        *,
        spectrum: Spectrum | None = None,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Frequencies:
        """Draw frequencies at unit lengthscale.

        Args:
            num_frequencies: m, at least 1.
            num_dims: d, at least 1.
            spectrum: The spectral law; None: Gaussian.
            seed: An integer, with which models draw the same frequencies; None: one from the system.
            generator: A CPU generator in place of a seed, advanced by the draw.

        Returns:
            Frequencies (m, d).

        Raises:
            InvalidArgumentError: m or d is not a positive integer, the spectrum is not one that the coupling can serve,
                or both a seed and a generator are given.
        """
        law = self._check(num_frequencies, num_dims, spectrum or Gaussian())
        drawn_by = random.chosen(seed, generator, random.Role.FREQUENCIES)
        return self._draw(int(num_frequencies), int(num_dims), law, drawn_by)

    def _check(self, num_frequencies: int, num_dims: int, law: Spectrum) -> Spectrum:
        """Return the law of a draw that can be made."""
        check_counts(num_frequencies=num_frequencies, num_dims=num_dims)
        if num_frequencies * num_dims > _MOST_ENTRIES:
            raise InvalidArgumentError(
                f"{counted(num_frequencies, 'frequency', 'frequencies')} in {counted(num_dims, 'dimension')} "
                "would take "
                f"{num_frequencies * num_dims / 2**27:.0f} GiB; at most {_MOST_ENTRIES / 2**27:.0f} are drawn."
            )
        if not isinstance(law, Spectrum):
            raise InvalidArgumentError(f"spectrum must be one of rfgp.spectra, got {law!r}.")
        if self.needs_isotropy and not law.is_isotropic:
            raise InvalidArgumentError(f"{self!r} needs an isotropic spectrum, and {law!r} is a product; use 'iid'.")
        return law

    def _draw(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        """Draw the rows and shuffle them."""
        matrix = self._rows(m, d, spectrum, generator)
        return Frequencies(matrix[torch.randperm(m, generator=generator)])

    @abstractmethod
    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        """Draw the rows (m, d), in any order."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def uniform(count: int, generator: torch.Generator) -> Tensor:
    """Return `count` uniforms strictly inside (0, 1), float64, so that u and 1 - u have quantiles."""
    u = torch.rand(count, generator=generator, dtype=torch.float64)
    return u.clamp_min(2.0**-53)
