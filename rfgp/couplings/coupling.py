"""Frequencies with their weights, the interface of couplings, and the couplings that it takes to compare.

The chapter has, in this order: frequencies; the interface; independent frequencies; pairs omega, -omega; and points of
low discrepancy.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.stats import qmc
from torch import Tensor

from rfgp import random
from rfgp.errors import InvalidArgumentError
from rfgp.messages import check_counts, counted
from rfgp.spectra import Gaussian, Spectrum
from rfgp.torch_context import with_torch_defaults

# --- Frequencies: a fixed draw at unit lengthscale --------------------------------------------------------------------


class Frequencies:
    """m frequencies in d dimensions and their weights, drawn on the CPU in float64.

    The kernel estimate is k_hat(x, z) = sum_i w_i / m cos(omega_i . (x - z)).

    Args:
        matrix: (m, d), one frequency per row.
        weights: (m,), nonnegative, with mean 1. If None, all are 1.
        antithetic: Whether the frequencies come in pairs omega, -omega. Only positive (Laplace) features can use such
            pairs.

    Raises:
        InvalidArgumentError: If an argument is not a real tensor, the shapes do not match, or a weight is negative or
            not finite.

    Examples:
        >>> from rfgp import couplings
        >>> frequencies = couplings.Frequencies(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
        >>> frequencies.project(torch.tensor([[3.0, 4.0]]))
        tensor([[3., 8.]])
    """

    def __init__(self, matrix: Tensor, weights: Tensor | None = None, antithetic: bool = False) -> None:
        for tensor in (matrix,) if weights is None else (matrix, weights):
            if not isinstance(tensor, Tensor) or tensor.is_complex():
                kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
                raise InvalidArgumentError(
                    "Frequencies must be a real tensor (m, d) or a draw of a coupling, and weights a real tensor (m,), "
                    f"got {kind}. Use torch.as_tensor for an array."
                )
        if matrix.ndim != 2 or 0 in matrix.shape:
            raise InvalidArgumentError(f"Frequencies must be a matrix (m, d), got shape {tuple(matrix.shape)}.")
        w = torch.ones_like(matrix[:, 0]) if weights is None else weights
        if w.shape != matrix.shape[:1]:
            raise InvalidArgumentError(f"weights must have shape ({len(matrix)},), got {tuple(w.shape)}.")
        if not bool(((w >= 0) & torch.isfinite(w)).all()):
            raise InvalidArgumentError("weights must be finite and nonnegative, got others.")
        self._matrix, self._weights, self._antithetic = matrix, w, antithetic

    @property
    def weights(self) -> Tensor:
        """The weights (m,)."""
        return self._weights

    @property
    def amplitudes(self) -> Tensor:
        """The factors sqrt(w_i / m) of the features, in the shape of the weights."""
        return (self.weights / self.shape[0]).sqrt()

    @property
    def antithetic(self) -> bool:
        """Whether the frequencies come in pairs omega, -omega."""
        return self._antithetic

    @staticmethod
    def paired(
        rows: Tensor,  # (m / 2, d)
        weights: Tensor,  # (m / 2,)
    ) -> "Frequencies":
        """Return m frequencies: each row, then its negative with the same weight.

        Args:
            rows: The first frequency of each pair, (m / 2, d).
            weights: Their weights, (m / 2,).

        Raises:
            InvalidArgumentError: If the rows are not a matrix, or for the reasons of the constructor.
        """
        if rows.ndim != 2:
            raise InvalidArgumentError(f"Frequencies must be a matrix (m, d), got shape {tuple(rows.shape)}.")
        pairs = torch.stack([rows, -rows], dim=1).reshape(-1, rows.shape[1])
        return Frequencies(pairs, weights.repeat_interleave(2), antithetic=True)

    def with_negatives(self) -> "Frequencies":
        """Return 2 m frequencies: each one, then its negative with the same weight.

        Raises:
            InvalidArgumentError: If the frequencies come in pairs already.
        """
        if self.antithetic:
            raise InvalidArgumentError("Frequencies must not be antithetic, got pairs omega, -omega.")
        return self._paired()

    def _paired(self) -> "Frequencies":
        return Frequencies.paired(self.dense(), self.weights)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, d)."""
        return self._matrix.shape[0], self._matrix.shape[1]

    @property
    def requires_grad(self) -> bool:
        """Whether gradients in the frequencies or the weights are required."""
        return self._matrix.requires_grad or self._weights.requires_grad

    def project(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, m)
        """Return x . omega_i, in the dtype and on the device of x.

        Args:
            x: Inputs, (..., n, d).

        Returns:
            The inner products, (..., n, m).

        Raises:
            InvalidArgumentError: If x does not have d columns.
        """
        self.check_inputs(x)
        return x @ self._matrix.to(x).mT

    def adjoint(
        self,
        values: Tensor,  # (n, m)
    ) -> Tensor:  # (n, d)
        """Return sum_i values_i omega_i for each row, the transpose of `project`.

        It is differentiable in the values.

        Args:
            values: The factors of the frequencies, (n, m).

        Returns:
            The sums, (n, d).
        """
        return values @ self._matrix.to(values)

    def dense(self) -> Tensor:
        """Return the matrix (m, d)."""
        return self._matrix

    def __repr__(self) -> str:
        m, d = self.shape
        return f"{type(self).__name__}({m=}, {d=})"

    def check_inputs(
        self,
        x: Tensor,  # (..., n, d)
    ) -> None:
        """Refuse inputs that cannot be projected.

        Args:
            x: The inputs, (..., n, d).

        Raises:
            InvalidArgumentError: If x is not a floating-point tensor with d columns.
        """
        if not isinstance(x, Tensor) or not x.is_floating_point():
            kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise InvalidArgumentError(f"Inputs must be a floating-point tensor, got {kind}.")
        if x.ndim < 1 or x.shape[-1] != self.shape[1]:
            raise InvalidArgumentError(
                f"Inputs must have {counted(self.shape[1], 'column')}, got shape {tuple(x.shape)}."
            )


def check_unpaired(frequencies: Frequencies, purpose: str, remedy: str = "") -> None:
    """Refuse antithetic frequencies.

    Args:
        frequencies: The frequencies.
        purpose: The features or the matrix that need others, or "".
        remedy: What else can be done, after the advice of another coupling.

    Raises:
        InvalidArgumentError: If the frequencies are antithetic.

    Examples:
        >>> check_unpaired(Frequencies(torch.ones(2, 3)), "for sign features")
    """
    if frequencies.antithetic:
        needed = f"frequencies must not be antithetic {purpose}".rstrip()
        raise InvalidArgumentError(f"{needed}, got pairs omega, -omega. Use the coupling without -antithetic{remedy}.")


def as_frequencies(frequencies: Frequencies | Tensor) -> Frequencies:
    """Return `Frequencies`, given as such or as a plain tensor.

    Args:
        frequencies: The frequencies, or a tensor (m, d).

    Examples:
        >>> from rfgp import couplings
        >>> couplings.as_frequencies(torch.eye(3))
        Frequencies(m=3, d=3)
    """
    return frequencies if isinstance(frequencies, Frequencies) else Frequencies(frequencies)


# --- The interface of couplings ---------------------------------------------------------------------------------------

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


# --- Independent frequencies ------------------------------------------------------------------------------------------


class IID(Coupling):
    """Independent frequencies (Rahimi and Recht, 2007).

    They are the baseline of every comparison.

    Examples:
        >>> from rfgp import couplings, spectra
        >>> couplings.IID().sample(5, 2, spectrum=spectra.ProductLaplace(), seed=0)
        Frequencies(m=5, d=2)
    """

    needs_isotropy: ClassVar[bool] = False

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        if not spectrum.is_isotropic:
            return spectrum.coordinate_quantile(uniform(m * d, generator)).reshape(m, d)
        gaussian = torch.randn(m, d, generator=generator, dtype=torch.float64)
        directions: Tensor = gaussian / gaussian.norm(dim=1, keepdim=True)
        return directions * spectrum.radial_quantile(uniform(m, generator), d)[:, None]


# --- Antithetic pairs of frequencies, for positive (Laplace) features -------------------------------------------------


class Antithetic(WeightedDraws, Coupling):
    """Pairs omega, -omega of the frequencies of another coupling, in random order.

    For positive (Laplace) features exp(omega . x - |x|^2) the two signs are negatively correlated. Fourier features
    refuse such a draw, because the cosine and the sine of -omega . x repeat those of omega . x. The number m of
    frequencies must be even.

    Args:
        base: The coupling of the m / 2 frequencies omega.

    Raises:
        InvalidArgumentError: If the frequencies of the base come in pairs already.

    Examples:
        >>> from rfgp import couplings
        >>> draw = couplings.Antithetic(couplings.Orthogonal()).sample(6, 3, seed=0)
        >>> draw.antithetic, float(draw.dense().sum().abs().round())
        (True, 0.0)
    """

    needs_isotropy: ClassVar[bool] = False  # the base refuses what it cannot serve

    def __init__(self, base: Coupling) -> None:
        if base.is_antithetic:
            raise InvalidArgumentError(f"base must be a coupling without pairs omega, -omega, got {base!r}.")
        self.base = base

    @property
    def is_biased(self) -> bool:
        """Whether the base is biased."""
        return self.base.is_biased

    @property
    def is_antithetic(self) -> bool:
        """Always True."""
        return True

    def _draw(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        if m % 2:
            raise InvalidArgumentError(f"num_frequencies must be even, got {m}. Antithetic frequencies come in pairs.")
        half = self.base.sample(m // 2, d, spectrum=spectrum, generator=generator)
        return half.with_negatives()

    def __repr__(self) -> str:
        return f"Antithetic({self.base!r})"


# --- Points of low discrepancy, mapped to frequencies by quantiles ----------------------------------------------------


RANDOMIZATIONS = ("scrambled", "shifted", "none")


class Halton(Coupling):
    """Halton points (scipy), mapped to frequencies.

    Scrambled points are uniform in the cube and cover it evenly.

    Args:
        randomization: "scrambled", the default, permutes the digits at random. "shifted" moves points 1 to m of the
            sequence by one uniform vector modulo 1. Each is then uniform, but the first points are correlated in
            dimensions of large bases. "none" takes the sequence itself, in random order. These points are not random,
            so the estimate is biased. The baseline of Reid et al. (2024) has shifted points, whose frequencies are
            rotated.

    Raises:
        InvalidArgumentError: If the randomization is unknown.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.Halton("shifted").sample(8, 3, seed=0)
        Frequencies(m=8, d=3)
    """

    needs_isotropy: ClassVar[bool] = False

    def __init__(self, randomization: str = "scrambled") -> None:
        if randomization not in RANDOMIZATIONS:
            raise InvalidArgumentError(
                f"randomization must be one of {', '.join(RANDOMIZATIONS)}, got {randomization!r}."
            )
        self.randomization = randomization

    @property
    def is_biased(self) -> bool:
        """Whether the points are not randomized."""
        return self.randomization == "none"

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        dims = _dims(d, spectrum)
        if self.randomization == "scrambled":
            return _to_frequencies(qmc.Halton(dims, scramble=True, seed=_seed(generator)).random(m), d, spectrum)
        points = qmc.Halton(dims, scramble=False).random(m + 1)[1:]  # the first is 0, which has no quantile
        if self.randomization == "shifted":
            points = (points + _seed(generator).random(dims)) % 1
        return _to_frequencies(points, d, spectrum)

    def __repr__(self) -> str:
        return f"Halton({'' if self.randomization == 'scrambled' else repr(self.randomization)})"


class Sobol(Coupling):
    """Scrambled Sobol points (scipy). They are most even if m is a power of two.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.Sobol().sample(8, 3, seed=0)
        Frequencies(m=8, d=3)
    """

    needs_isotropy: ClassVar[bool] = False

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        return _to_frequencies(_sobol(m, _dims(d, spectrum), _seed(generator)), d, spectrum)


class DigitalNet(Coupling):
    """A digital net in base 2 of scrambled Sobol points (scipy).

    The first coordinate of point i is (i / m + U) mod 1, with one uniform U for all points. It is a baseline of Yu et
    al. (2016, Section 5), the best of the sequences of Yang et al. (2014). They take the matrices of Niederreiter and
    Xing instead of those of Sobol. It is a net if m is a power of two. Each point is uniform for any m.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.DigitalNet().sample(8, 3, seed=0)
        Frequencies(m=8, d=3)
    """

    needs_isotropy: ClassVar[bool] = False

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        seed, others = _seed(generator), _dims(d, spectrum) - 1
        first = (np.arange(m) / m + seed.random()) % 1.0
        points = first[:, None] if others == 0 else np.column_stack([first, _sobol(m, others, seed)])
        return _to_frequencies(points, d, spectrum)


def _sobol(m: int, dims: int, seed: np.random.Generator) -> np.ndarray:  # (m, dims)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # scipy warns if m is not a power of two
        points: np.ndarray = qmc.Sobol(dims, scramble=True, seed=seed).random(m)
    return points


def sobol_points(m: int, dims: int, generator: torch.Generator) -> np.ndarray:  # (m, dims)
    """Return the first m scrambled Sobol points, each of them uniform in the cube.

    Args:
        m: The number of points.
        dims: The dimension of the cube.
        generator: A CPU generator, which seeds the scrambling.

    Returns:
        The points, (m, dims).

    Examples:
        >>> sobol_points(4, 2, torch.Generator().manual_seed(0)).shape
        (4, 2)
    """
    return _sobol(m, dims, _seed(generator))


def _seed(generator: torch.Generator) -> np.random.Generator:
    return np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator)))


def _by_coordinates(spectrum: Spectrum) -> bool:
    return isinstance(spectrum, Gaussian) or not spectrum.is_isotropic


def _dims(d: int, spectrum: Spectrum) -> int:
    """Return the dimension of the cube.

    It is d for coordinates, or d + 1 for a direction and a norm.
    """
    return d if _by_coordinates(spectrum) else d + 1


def _to_frequencies(
    points: np.ndarray,  # (m, _dims)
    d: int,
    spectrum: Spectrum,
) -> Tensor:  # (m, d)
    """Map points of the cube to frequencies."""
    u = torch.as_tensor(points).clamp(2.0**-53, 1 - 2.0**-53)
    if _by_coordinates(spectrum):
        return spectrum.coordinate_quantile(u)
    normal = Gaussian().coordinate_quantile(u[:, :d])
    rows: Tensor = normal / normal.norm(dim=1, keepdim=True) * spectrum.radial_quantile(u[:, d], d)[:, None]
    return rows
