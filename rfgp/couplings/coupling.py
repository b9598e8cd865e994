"""The interface of couplings."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, ClassVar

import torch
from torch import Tensor

from rfgp import random
from rfgp.couplings.frequencies import Frequencies
from rfgp.errors import InvalidArgumentError
from rfgp.messages import check_counts, counted
from rfgp.spectra import Gaussian, Spectrum
from rfgp.torch_context import with_torch_defaults

_MAX_ENTRIES = 2**30


class Coupling(ABC):
    """A joint distribution of m frequencies.

    Each frequency, with its weight, has the spectral measure as its distribution. The frequencies are shuffled, so that
    any slice of a draw is unbiased too. The same state of a generator gives the same draw.

    Examples:
        >>> from rfgp import couplings
        >>> coupling = couplings.by_name("orthogonal")
        >>> coupling.sample(8, 3, seed=0)
        Frequencies(m=8, d=3)
        >>> coupling.is_biased
        False
    """

    needs_isotropy: ClassVar[bool] = True
    """Whether the spectrum must be isotropic: a uniform direction times a norm."""

    @property
    def is_biased(self) -> bool:
        """Whether frequencies have the spectral measure only approximately.

        The docstring of a class says how closely.
        """
        return False

    @property
    def is_antithetic(self) -> bool:
        """Whether frequencies come in pairs omega, -omega, for positive (Laplace) features only.

        Positive features are exponentials: exp(omega . x - |x|^2) for the Gaussian kernel.
        """
        return False

    @with_torch_defaults()
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
            spectrum: The spectral measure. If None, the Gaussian one.
            seed: An integer. Models with the same seed draw the same frequencies. If None, one from the system.
            generator: A CPU generator instead of a seed. The draw advances it.

        Returns:
            Frequencies (m, d).

        Raises:
            InvalidArgumentError: If m or d is not a positive integer, the coupling does not support the spectrum, or
                both a seed and a generator are given.

        Examples:
            >>> from rfgp import couplings, spectra
            >>> couplings.by_name("energy").sample(16, 2, spectrum=spectra.Matern(1.5), seed=0).shape
            (16, 2)
        """
        measure = self._check(num_frequencies, num_dims, spectrum or Gaussian())
        drawn_by = random.chosen(seed, generator, random.Role.FREQUENCIES)
        drawn, shape = self._draw(int(num_frequencies), int(num_dims), measure, drawn_by), (num_frequencies, num_dims)
        if tuple(drawn.shape) != shape:
            raise InvalidArgumentError(f"{self!r} must draw frequencies of shape {shape}, got {tuple(drawn.shape)}.")
        return drawn

    @with_torch_defaults()
    def sample_product(
        self,
        num_frequencies: int,
        factors: Sequence[tuple[Spectrum, int]],
        *,
        seed: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Frequencies:
        """Draw frequencies of a product of kernels on different columns.

        Lengthscales are 1. A frequency has a block of columns for each factor. The blocks of one frequency are
        independent, so the estimate of the product is unbiased. The frequencies of all Gaussian factors are drawn
        jointly over their columns.

        Args:
            num_frequencies: m, at least 1.
            factors: The spectrum and the number d_a of columns of each factor, at least one.
            seed: An integer. If None, one from the system.
            generator: A CPU generator instead of a seed. The draw advances it.

        Returns:
            Frequencies (m, sum of d_a), the columns in the order of the factors.

        Raises:
            InvalidArgumentError: If there is no factor, or for the reasons of `sample`.

        Examples:
            >>> from rfgp import couplings, spectra
            >>> factors = [(spectra.Gaussian(), 2), (spectra.Matern(1.5), 1)]
            >>> couplings.by_name("energy").sample_product(64, factors, seed=0).shape
            (64, 3)
        """
        if not factors:
            raise InvalidArgumentError("factors must be pairs of a spectrum and its number of columns, got none.")
        for measure, d in factors:
            self._check(num_frequencies, d, measure)
        m, drawn_by = int(num_frequencies), random.chosen(seed, generator, random.Role.FREQUENCIES)
        parts, columns = _merged(factors)
        if len(parts) == 1:
            return self._draw(m, parts[0][1], parts[0][0], drawn_by)
        drawn = self._draw_product(m, parts, drawn_by)
        return Frequencies(drawn.dense()[:, columns], drawn.weights)

    def _draw_product(self, m: int, factors: list[tuple[Spectrum, int]], generator: torch.Generator) -> Frequencies:
        """Draw the frequencies of each factor jointly, and pair them over factors at random.

        Each frequency gets a random sign. Without the signs, the product would be biased for factors of one column
        whose frequencies are all positive.
        """
        if self.is_antithetic:
            raise InvalidArgumentError(
                f"{self!r} draws pairs omega, -omega, which exist for Gaussian factors only. Use another coupling."
            )
        blocks, weights = [], torch.ones(m, dtype=torch.float64)
        for measure, d in factors:
            drawn, order = self._draw(m, d, measure, generator), torch.randperm(m, generator=generator)
            blocks.append(drawn.dense()[order] * random_signs(m, generator))
            weights = weights * drawn.weights[order]
        return Frequencies(torch.cat(blocks, dim=1), weights)

    def _check(self, num_frequencies: int, num_dims: int, measure: Spectrum) -> Spectrum:
        """Return the spectrum of a valid draw."""
        check_counts(num_frequencies=num_frequencies, num_dims=num_dims)
        if num_frequencies * num_dims > _MAX_ENTRIES:
            raise InvalidArgumentError(
                f"A draw must take at most {_MAX_ENTRIES / 2**27:.0f} GiB, got "
                f"{num_frequencies * num_dims / 2**27:.0f} GiB of "
                f"{counted(num_frequencies, 'frequency', 'frequencies')} in {counted(num_dims, 'dimension')}."
            )
        if not isinstance(measure, Spectrum):
            raise InvalidArgumentError(f"spectrum must be one of rfgp.spectra, got {measure!r}.")
        if self.needs_isotropy and not measure.is_isotropic:
            raise InvalidArgumentError(
                f"The spectrum of {self!r} must be isotropic, got the product {measure!r}. Use the coupling 'iid'."
            )
        return measure

    def _draw(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        """Draw the frequencies in random order."""
        matrix = self._frequencies(m, d, spectrum, generator)
        return Frequencies(matrix[torch.randperm(m, generator=generator)])

    @abstractmethod
    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        """Draw the frequencies (m, d), in any order."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class WeightedDraws:
    """The part of a coupling whose `_draw` draws frequencies together with their weights.

    Examples:
        >>> import rfgp
        >>> issubclass(rfgp.couplings.Antithetic, WeightedDraws)
        True
    """

    def _frequencies(self: Any, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        frequencies: Tensor = self._draw(m, d, spectrum, generator).dense()
        return frequencies


def check_gaussian(coupling: Coupling, spectrum: Spectrum) -> None:
    """Refuse other spectra than the Gaussian one.

    Args:
        coupling: The coupling, for the message.
        spectrum: The spectrum.

    Raises:
        InvalidArgumentError: If the spectrum is another.

    Examples:
        >>> from rfgp import couplings, spectra
        >>> check_gaussian(couplings.Fastfood(), spectra.Gaussian())
    """
    if not isinstance(spectrum, Gaussian):
        raise InvalidArgumentError(f"The spectrum of {coupling!r} must be Gaussian, got {spectrum!r}.")


def uniform(count: int, generator: torch.Generator) -> Tensor:
    """Return uniforms strictly inside (0, 1), so that u and 1 - u have quantiles.

    Args:
        count: The number of uniforms.
        generator: A CPU generator.

    Returns:
        The uniforms, (count,), float64.

    Examples:
        >>> u = uniform(5, torch.Generator().manual_seed(0))
        >>> u.shape, bool((u > 0).all())
        (torch.Size([5]), True)
    """
    u = torch.rand(count, generator=generator, dtype=torch.float64)
    return u.clamp_min(2.0**-53)


def random_signs(count: int, generator: torch.Generator) -> Tensor:  # (count, 1)
    """Return random signs, -1 or 1 with equal probability.

    Args:
        count: The number of signs.
        generator: A CPU generator.

    Returns:
        The signs, (count, 1), float64.

    Examples:
        >>> random_signs(3, torch.Generator().manual_seed(0)).abs().tolist()
        [[1.0], [1.0], [1.0]]
    """
    return 2.0 * torch.randint(2, (count, 1), generator=generator).double() - 1.0


def _merged(factors: Sequence[tuple[Spectrum, int]]) -> tuple[list[tuple[Spectrum, int]], list[int]]:
    """Return the factors with all Gaussian ones merged into the first.

    The second result has the new columns of the given factors.
    """
    order = sorted(range(len(factors)), key=lambda i: not isinstance(factors[i][0], Gaussian))
    total = sum(d for measure, d in factors if isinstance(measure, Gaussian))
    parts = [(measure, d) for measure, d in factors if not isinstance(measure, Gaussian)]
    if total:
        parts.insert(0, (Gaussian(), total))
    starts = dict(zip(order, accumulate((factors[i][1] for i in order), initial=0), strict=False))
    return parts, [starts[i] + column for i, (_, d) in enumerate(factors) for column in range(d)]
