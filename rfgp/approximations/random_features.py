"""Random features of stationary terms and of their products with finite terms."""

import math
from dataclasses import dataclass, field
from typing import Any

from rfgp import couplings, random, spectra
from rfgp import features as feature_maps
from rfgp.approximations.role import (
    MIN_NOISE_OF_MATRICES,
    Approximation,
    SpectralPart,
    TermCost,
    TermData,
    TermPrior,
    num_weights,
    weights_memory,
    weights_term,
)
from rfgp.couplings import Frequencies
from rfgp.errors import InvalidArgumentError
from rfgp.kernels.role import BoundFactor, label_of, of_prefix
from rfgp.messages import check_count, check_flag

KINDS = ("fourier", "laplace")
"""The kinds of random features."""


@dataclass(frozen=True, repr=False)
class RandomFeatures(Approximation):
    """Random features of stationary kernels, with coupled frequencies.

    A term is computed in O(n m^2) time for n rows and m frequencies. In a product, the frequencies of all stationary
    factors are drawn jointly, which reduces the error of the kernel (`benchmarks/papers/own/products.py`). Their
    features are multiplied by the functions of the other factors. These must have finitely many functions, or a series
    such as the harmonics of a periodic kernel.

    Sources: Rahimi and Recht (2007), Random features for large-scale kernel machines, Algorithm 1. Reid, Choromanski
    and Weller (2024), for the couplings.

    Attributes:
        num_frequencies: The number m of frequencies. They give 2 m Fourier features.
        kind: "fourier", or "laplace" for the positive (Laplace) features of the Gaussian kernel.
        coupling: The joint distribution of the frequencies: a name or an object of `rfgp.couplings`. For Fourier
            features "energy" is `couplings.Energy(weighted=True)`. Learned frequencies have equal weights.
        learn_frequencies: Whether a fit optimizes the frequencies.
        seed: The seed of the frequencies. If None, that of the model.

    Raises:
        InvalidArgumentError: If the kind or coupling is unknown, m is not a positive integer, or Laplace features are
            to be learned.

    Examples:
        >>> import rfgp
        >>> rfgp.RandomFeatures(256, coupling="orthogonal")
        RandomFeatures(num_frequencies=256, coupling='orthogonal')
    """

    num_frequencies: int = 512
    kind: str = field(default="fourier", kw_only=True)
    coupling: Any = field(default="energy", kw_only=True)
    learn_frequencies: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "num_frequencies", check_count("num_frequencies", self.num_frequencies))
        check_flag("learn_frequencies", self.learn_frequencies)
        if self.kind not in KINDS:
            raise InvalidArgumentError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}.")
        assert self._coupling is not None
        if self.learn_frequencies and self.kind != "fourier":
            raise InvalidArgumentError("learn_frequencies must be False for Laplace features. Use kind='fourier'.")

    def unsupported_reason(self, data: TermData) -> str | None:
        """Return why a term has no random features, or None."""
        measures = [factor.measure for factor in data.term.term.factors if factor.measure is not None]
        others = [part.factor for part in data.term.parts() if part.factor.measure is None and not _finite(data, part)]
        if others:
            return f"{label_of(others[0])} has no spectral measure. Use InducingPoints() or Exact()."
        if all(part.functions(data.columns) for part in data.term.parts()):
            return "it consists of finitely many functions. Use Exact(), which uses their weights."
        if self._coupling.needs_isotropy and not all(measure.is_isotropic for measure in measures):
            return f"the coupling {self.coupling!r} needs isotropic spectra. Use coupling='iid'."
        if self.learn_frequencies and not data.is_gaussian:
            return "learn_frequencies=True requires a Gaussian likelihood. Use learn_frequencies=False."
        if self.kind == "laplace" and not all(isinstance(measure, spectra.Gaussian) for measure in measures):
            return "Laplace features exist for the Gaussian kernel only. Use kind='fourier'."
        return None

    def least_noise(self, data: TermData) -> float:
        """Return the smallest noise. It is larger if frequencies are learned on batches of rows."""
        return super().least_noise(data) if self.learn_frequencies else MIN_NOISE_OF_MATRICES

    def rebuild(self, data: TermData, seed: int, prior: TermPrior) -> TermPrior:
        """Return the term with series of other lengths, if a factor has a series."""
        others = [part for part in data.term.parts() if part.factor.measure is None]
        return self.build(data, seed) if any(part.functions(data.columns) is None for part in others) else prior

    def cost(self, data: TermData, prior: TermPrior | None = None) -> TermCost:
        """Return the cost of the features."""
        others, has_frequencies = self._others(data), any(factor.measure for factor in data.term.term.factors)
        size = (2 if self.kind == "fourier" else 1) * self.num_frequencies if has_frequencies else 1
        functions = [part.functions(data.columns) for part in others]
        size *= math.prod(part.size for part in functions if part is not None)
        size = size if prior is None else num_weights(data, prior)
        kind = "features of random frequencies" if has_frequencies else "functions of a series"
        if has_frequencies and others:
            kind += " times functions of other factors"
        return TermCost(size, weights_memory(size, data.num_rows), f"{size} {kind}")

    def build(self, data: TermData, seed: int) -> TermPrior:
        """Return the term with frequencies drawn for its columns."""
        factors = [(part.factor.measure, len(part.indices)) for part in data.term.parts() if part.factor.measure]
        if not factors:
            return weights_term(data, finite=self._others(data))
        generator = random.generator(seed if self.seed is None else self.seed, random.Role.FREQUENCIES)
        frequencies = self._coupling.sample_product(self.num_frequencies, factors, generator=generator)
        return weights_term(data, self.spectral(data, frequencies), self._others(data))

    def spectral(self, data: TermData, frequencies: Frequencies) -> SpectralPart:
        """Return the features of the stationary factors of a term.

        Args:
            data: The term.
            frequencies: The frequencies of all stationary factors, (m, d).
        """
        factors = tuple(part for part in data.term.parts() if part.factor.measure)
        path = f"{data.term.name}.frequencies" if self.learn_frequencies else None
        return SpectralPart(factors, feature_maps.by_name(self.kind)(frequencies), path)

    def _others(self, data: TermData) -> list[BoundFactor]:
        """Return the factors without a spectral measure, or their series."""
        parts = [_finite(data, part) for part in data.term.parts() if part.factor.measure is None]
        return [part for part in parts if part is not None]

    @property
    def _coupling(self) -> couplings.Coupling:
        """The coupling as an object."""
        if self.coupling == "energy" and self.kind == "fourier" and not self.learn_frequencies:
            return couplings.Energy(weighted=True)
        return couplings.for_features(self.coupling, self.kind)


def _finite(data: TermData, part: BoundFactor) -> BoundFactor | None:
    """Return a factor with finitely many functions, its series, or None."""
    if part.functions(data.columns) is not None:
        return part
    series = part.factor.series(of_prefix(data.values, part.prefix))
    return None if series is None else part._replace(factor=series)
