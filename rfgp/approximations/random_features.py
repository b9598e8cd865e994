"""Random features of stationary terms and of their products with finite ones."""

from dataclasses import dataclass
from typing import Any

import torch

from rfgp import couplings, random, spectra
from rfgp import features as feature_maps
from rfgp.approximations.parts import FinitePart, SpectralPart
from rfgp.approximations.role import Approximation, Cost, TermData, TermPrior
from rfgp.approximations.weights import WeightTerm
from rfgp.counts import check_count
from rfgp.couplings import Frequencies
from rfgp.errors import InvalidArgumentError
from rfgp.kernels.role import Factor
from rfgp.kernels.terms import label_of

KINDS = ("fourier", "laplace")
"""The kinds of random features."""


@dataclass(frozen=True, repr=False)
class RandomFeatures(Approximation):
    """Random features with coupled frequencies.

    Of a product of stationary kernels the frequencies are stacked. Other factors of a product have finitely many
    functions, with which the features are multiplied.

    Source: Rahimi and Recht (2007), Random features for large-scale kernel machines, Algorithm 1; Reid, Choromanski and
    Weller (2024), the couplings.

    Attributes:
        num_frequencies: The number m of frequencies; there are 2 m Fourier features.
        kind: "fourier", or "laplace" for positive features of the Gaussian kernel.
        coupling: How the frequencies depend on each other, a name or object of `rfgp.couplings`.
        learn_frequencies: Whether a fit changes the frequencies.
        seed: The seed of the frequencies. If None, that of the model.

    Raises:
        InvalidArgumentError: there is no such kind or coupling, or m is not a positive integer.

    Examples:
        >>> import rfgp
        >>> rfgp.RandomFeatures(256, coupling="orthogonal")
        RandomFeatures(num_frequencies=256, coupling='orthogonal')
    """

    num_frequencies: int = 512
    kind: str = "fourier"
    coupling: Any = "energy"
    learn_frequencies: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "num_frequencies", check_count("num_frequencies", self.num_frequencies))
        if self.kind not in KINDS:
            raise InvalidArgumentError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}.")
        couplings.for_features(self.coupling, self.kind)
        if self.learn_frequencies and self.kind != "fourier":
            raise InvalidArgumentError("learn_frequencies must be False for Laplace features. Use kind='fourier'.")

    def refusal(self, data: TermData) -> str | None:
        """Return why a term has no random features."""
        others = [factor for factor, places, _ in data.term.parts() if not _serves(data, factor, places)]
        if others:
            return f"{label_of(others[0])} has no spectral measure. Use InducingPoints() or Exact()."
        if not any(factor.measure is not None for factor in data.term.term.factors):
            return "it has no stationary factor. Use Exact(), which computes it by finitely many functions."
        if self.kind == "laplace" and any(not _is_gaussian(f) for f in data.term.term.factors if f.measure is not None):
            return "Laplace features exist for the Gaussian kernel only. Use kind='fourier'."
        return None

    def cost(self, data: TermData) -> Cost:
        """Return the cost of the features."""
        size = 2 * self.num_frequencies if self.kind == "fourier" else self.num_frequencies
        for factor, places, _ in data.term.parts():
            size *= factor.num_functions(data.columns.select(places)) or 1
        return Cost(size, 8.0 * size * data.num_rows, f"{self.num_frequencies} random frequencies, {size} features")

    def draw(self, data: TermData, seed: int) -> TermPrior:
        """Return the term with frequencies drawn for its columns."""
        spectral = [(factor, places, prefix) for factor, places, prefix in data.term.parts() if factor.measure]
        generator = random.generator(seed if self.seed is None else self.seed, random.Role.FREQUENCIES)
        frequencies = self._frequencies([(f, len(places)) for f, places, _ in spectral], generator)
        feature_map = feature_maps.by_name(self.kind)(frequencies)
        places, prefixes = tuple(p for _, p, _ in spectral), tuple(p for *_, p in spectral)
        others = [FinitePart(*factor) for factor in data.term.parts() if factor[0].measure is None]
        return WeightTerm.of(data, [SpectralPart(places, prefixes, feature_map, feature_map.num_features), *others])

    def _frequencies(self, factors: list[tuple[Factor, int]], generator: torch.Generator) -> Frequencies:
        """Return frequencies (m, d) over the columns of all stationary factors, given their numbers of columns."""
        coupling = couplings.for_features(self.coupling, self.kind)
        if len(factors) == 1 or all(_is_gaussian(factor) for factor, _ in factors):
            total = sum(count for _, count in factors)
            return coupling.sample(self.num_frequencies, total, spectrum=factors[0][0].measure, generator=generator)
        drawn = [
            coupling.sample(self.num_frequencies, count, spectrum=factor.measure, generator=generator)
            for factor, count in factors
        ]
        order = [torch.randperm(self.num_frequencies, generator=generator) for _ in drawn]
        pairs = list(zip(drawn, order, strict=True))
        weights = torch.stack([f.weights[places] for f, places in pairs]).prod(0)
        return Frequencies(torch.cat([f.dense()[places] for f, places in pairs], dim=1), weights / weights.mean())


def _is_gaussian(factor: Factor) -> bool:
    return isinstance(factor.measure, spectra.Gaussian)


def _serves(data: TermData, factor: Factor, places: list[int]) -> bool:
    return factor.measure is not None or factor.num_functions(data.columns.select(places)) is not None
