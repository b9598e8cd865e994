"""Features of stationary terms: random ones, also of products with finite terms, and equispaced ones of few columns."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

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
    parameter_names,
    scale_name,
    variance_at,
    weights_memory,
    weights_term,
)
from rfgp.blocks import NewLevels, Prior, Residual, WeightBlock
from rfgp.columns import ColumnKind
from rfgp.couplings import Frequencies
from rfgp.errors import InvalidArgumentError
from rfgp.kernels.role import BoundFactor, BoundTerm, ColumnSummary, Values, label_of, of_prefix
from rfgp.lattices import Lattice, LatticePlan, Modes, SpectralProduct, plan_lattice
from rfgp.lattices.design import CUT_PER_TOLERANCE, Floats, LatticeDesign, active_modes, supports
from rfgp.messages import check_count, check_flag, short_repr
from rfgp.spectra import Gaussian, Matern, RationalQuadratic, Spectrum

# --- Random features of stationary terms, and of their products with finite terms ------------------------------------

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


# --- Equispaced Fourier features of stationary terms of one to three columns -----------------------------------------

MAX_COLUMNS = 3
"""The maximum number of columns of an equispaced Fourier grid."""
MAX_RESIDUAL_VARIANCE = 0.3
"""The maximum variance, in units of the noise, of the modes that exceed the maximum number of features."""
NON_GAUSSIAN_TOLERANCE_FACTOR = 0.1
"""The factor of the tolerance if the likelihood is not Gaussian. The residual variance is then not added to a noise."""


@dataclass(frozen=True, repr=False)
class EquispacedFourier(Approximation):
    """Fourier features on an equispaced grid of frequencies, for one to three columns.

    The equispaced Fourier grid is a `rfgp.lattices.Lattice`.

    A fit needs only sums over the rows that do not depend on hyperparameters. One pass of non-uniform fast Fourier
    transforms computes them, so that a fit costs hardly more for more rows. The number of features is larger for rough
    kernels, short lengthscales and several columns. `Vecchia` is faster for short lengthscales in two or three columns.

    If rows have noise variances (`fit(X, y, noise=...)`), each evaluation of the likelihood and its gradient takes two
    passes. If the likelihood is not Gaussian, each Newton step of the Laplace approximation takes one pass.

    The variance of omitted modes is added to the noise in the likelihood, and to the variance of predictions. Outside
    the bounding box of the rows, f is conditioned on its values near the edge of the box.

    Source: Greengard, Rachh and Barnett (2022), Equispaced Fourier representations for efficient Gaussian process
    regression from a billion data points.

    Attributes:
        tolerance: A mode is omitted if its prior variance times the number of rows is below 100 tolerance times the
            noise. The correlation of a Gaussian kernel with its nearest periodic image is at most the tolerance. For
            Matern and rational quadratic kernels it is at most 100 times the tolerance.
        max_features: The maximum number of features. If more are needed, those of the largest variance are kept.
        seed: It has no effect.

    Raises:
        InvalidArgumentError: If the tolerance is not in (0, 0.01], or `max_features` is not a positive integer.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> from rfgp import kernels as k
        >>> t = np.linspace(0, 10, 500)[:, None]
        >>> gp = rfgp.GP(k.RBF(0, lengthscale=1.0), approximation=rfgp.EquispacedFourier())
        >>> gp.condition(t, np.sin(t[:, 0])).predict([[5.0]]).mean.round(2)
        array([-0.96])
    """

    tolerance: float = field(default=1e-3, kw_only=True)
    max_features: int = field(default=4000, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        number = self.tolerance
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 < number <= 0.01:
            raise InvalidArgumentError(f"tolerance must be a number in (0, 0.01], got {short_repr(number)}.")
        object.__setattr__(self, "max_features", check_count("max_features", self.max_features))

    def unsupported_reason(self, data: TermData) -> str | None:
        """Return why a term has no equispaced Fourier features, or None."""
        return self._unsupported_kernel_reason(data) or self._unsupported_size_reason(data)

    def is_truncated(self, data: TermData) -> bool:
        """Return whether the features of a term omit too much of its variance.

        It is false if the term has no spectral density.

        Args:
            data: The term and the rows.
        """
        return self._unsupported_kernel_reason(data) is None and self._unsupported_size_reason(data) is not None

    def _unsupported_kernel_reason(self, data: TermData) -> str | None:
        """Return why no lattice supports the kernel of a term, or None."""
        factors = data.term.term.factors
        others = [factor for factor in factors if factor.measure is None]
        if others:
            return f"{label_of(others[0])} is not stationary. Use InducingPoints() or Exact()."
        indices = column_indices_of(data.term)
        if len(indices) != len(set(indices)):
            return "two factors read one column. Use RandomFeatures() or Exact()."
        if (count := len(indices)) > MAX_COLUMNS:
            return f"it has {count} columns, a lattice at most {MAX_COLUMNS}. Use RandomFeatures() or Vecchia()."
        if any(factor.kind not in (ColumnKind.NUMBER, ColumnKind.SPHERE) for factor in factors):
            return "its columns are not numbers. Use SparsePrecision() or Exact()."
        for factor, group, _ in data.term.parts():
            reason = _unsupported_spectrum_reason(factor.measure, len(group))
            if reason is not None:
                return f"{label_of(factor)} {reason}"
        return None

    def _unsupported_size_reason(self, data: TermData) -> str | None:
        """Return why a lattice would have too many features, or None.

        Without rows, it has few.
        """
        if not len(data.columns.sample):
            return None
        plan = self._plan(data)
        omitted = plan.residual_variance * self._signal(data)
        if omitted <= MAX_RESIDUAL_VARIANCE:
            return None
        if plan.num_wanted <= self.max_features:
            return (
                f"its lengthscales are short for the range of the rows, and {plan.modes.num_features:,} features omit "
                f"{omitted:.2g} times the noise. Use Vecchia(), or remove rows that lie far from the others."
            )
        return (
            f"it needs {plan.num_wanted:,} features at these lengthscales and {data.num_rows:,} rows, and "
            f"{self.max_features:,} would omit {omitted:.2g} times the noise. Use Vecchia(), or a larger max_features."
        )

    def cost(self, data: TermData, prior: TermPrior | None = None) -> TermCost:
        """Return the cost of the features and of their sums over the rows, with the variance that they omit."""
        plan = self._plan(data) if prior is None else self._active(data, prior.basis.lattice)
        modes, omitted = plan.modes, plan.residual_variance
        if prior is not None:
            design = prior.basis
            modes, omitted = design.modes, design.residual_variance(*(data.values[name] for name in design.names))
        size = modes.num_features
        note = f"{size:,} equispaced Fourier features, which omit {float(omitted):.1g} of the variance"
        if plan.num_wanted > size:
            note += f" ({plan.num_wanted:,} reach the tolerance)"
        return TermCost(size, 16.0 * size**2 + 16.0 * float(np.prod(modes.lattice.doubled_shape)), note)

    def build(self, data: TermData, seed: int) -> TermPrior:
        """Return the term on a lattice for its hyperparameters."""
        return self.with_modes(data, self._plan(data).modes)

    def rebuild(self, data: TermData, seed: int, prior: TermPrior) -> TermPrior:
        """Return the term with modes for other hyperparameters.

        The modes are on the same lattice if possible.
        """
        if not isinstance(prior.basis, LatticeDesign):
            return self.build(data, seed)
        product, lattice, level = prior.basis.product, prior.basis.lattice, self._min_mode_variance(data)
        low, high = self._box(data)
        is_inside = bool((low >= lattice.low).all() and (high <= lattice.high).all())
        if not is_inside or not supports(product, data.values, lattice, level, self.tolerance):
            return self.build(data, seed)
        redrawn = self.on_lattice(data, lattice)
        return prior if np.array_equal(redrawn.basis.modes.indices, prior.basis.modes.indices) else redrawn

    def on_lattice(self, data: TermData, lattice: Lattice) -> TermPrior:
        """Return the term with the modes of a lattice that its hyperparameters need.

        Args:
            data: The term and the rows.
            lattice: The lattice.
        """
        return self.with_modes(data, self._active(data, lattice).modes)

    def _active(self, data: TermData, lattice: Lattice) -> LatticePlan:
        """Return the modes of a lattice that a term needs."""
        product, level = spectral_product(data.term), self._min_mode_variance(data)
        return active_modes(product, data.values, lattice, level, self.max_features)

    def with_modes(self, data: TermData, modes: Modes) -> TermPrior:
        """Return the term with the modes of a lattice.

        Args:
            data: The term and the rows.
            modes: The modes.
        """
        product = spectral_product(data.term)
        design = LatticeDesign(modes, product, parameter_names(data, with_scale=False))
        scale = scale_name(data.term, data.values)
        return TermPrior("lattice", partial(_lattice_prior, data.term, scale, data.is_gaussian), design)

    def _plan(self, data: TermData) -> LatticePlan:
        """Return the plan of a term, before its features are allocated."""
        product, indices = spectral_product(data.term), column_indices_of(data.term)
        level, box = self._min_mode_variance(data), self._box(data)
        return plan_lattice(product, data.values, indices, box, level, self.tolerance, self.max_features)

    def _box(self, data: TermData) -> tuple[Floats, Floats]:
        """Return the smallest and the largest values of the columns of a term, (d,) each."""
        low, high = (end[list(column_indices_of(data.term))].double().numpy() for end in data.columns.ends)
        return low, high

    def _min_mode_variance(self, data: TermData) -> float:
        """Return the prior variance, for a term of variance 1, below which a mode is omitted."""
        cut = CUT_PER_TOLERANCE * self.tolerance * (1.0 if data.is_gaussian else NON_GAUSSIAN_TOLERANCE_FACTOR)
        return cut / (max(data.num_rows, 2) * self._signal(data))

    def _signal(self, data: TermData) -> float:
        """Return the variance of the term in units of the noise."""
        scale = scale_name(data.term, data.values)
        variance = 1.0 if scale is None else float(data.values[scale])
        noise = 1.0
        if "noise" in data.values and data.is_gaussian:
            noise = float(data.values["noise"]) + data.columns.row_noise
        return min(max(variance / noise, 1e-6), 1e12)


def _lattice_prior(
    term: BoundTerm,
    scale: str | None,
    has_residual: bool,
    design: LatticeDesign,
    values: Values,
    columns: ColumnSummary,
) -> Prior:
    """Return the prior of the weights, with the variance of omitted modes as a noise if it has a residual."""
    block = WeightBlock(
        design.features,
        design.num_features,
        tuple(values[name] for name in design.names),
        variance_at(scale, values),
        Residual(True, design.kernel, design.total) if has_residual else None,
        name=term.name,
        new_levels=NewLevels(design.is_outside, design.between, design.variances),
        design=design,
    )
    return Prior(weights=(block,))


def with_shared_lattices(
    priors: Sequence[TermPrior], data: Sequence[TermData], approximations: Mapping[str, Approximation]
) -> tuple[TermPrior, ...]:
    """Return priors whose terms on the same columns share a lattice.

    Args:
        priors: The priors of all terms.
        data: The terms and the rows.
        approximations: The approximations of the terms by name.
    """
    shared, joined = list(priors), dict[tuple[int, ...], Lattice]()
    on_lattices = [(i, prior) for i, prior in enumerate(priors) if isinstance(prior.basis, LatticeDesign)]
    for _, prior in on_lattices:
        lattice = prior.basis.lattice
        present = joined.get(lattice.column_indices)
        joined[lattice.column_indices] = (
            lattice if present is None or present.same_as(lattice) else present.joined(lattice)
        )
    for i, prior in on_lattices:
        lattice, approximation = joined[prior.basis.lattice.column_indices], approximations[data[i].term.name]
        if not lattice.same_as(prior.basis.lattice) and isinstance(approximation, EquispacedFourier):
            shared[i] = approximation.on_lattice(data[i], lattice)
    return tuple(shared)


def spectral_product(term: BoundTerm) -> SpectralProduct:
    """Return the spectral density of a term of stationary factors.

    Args:
        term: The term. Each of its factors has a spectral measure.
    """
    measures, positions, prefixes, first = list[Spectrum](), list[tuple[int, ...]](), list[str](), 0
    for factor, indices, prefix in term.parts():
        assert factor.measure is not None
        measures.append(factor.measure)
        positions.append(tuple(range(first, first + len(indices))))
        prefixes.append(prefix)
        first += len(indices)
    return SpectralProduct(tuple(measures), tuple(positions), tuple(prefixes))


def column_indices_of(term: BoundTerm) -> tuple[int, ...]:
    """Return the indices of the columns of a term, factor by factor.

    Args:
        term: The term.
    """
    return tuple(index for _, indices, _ in term.parts() for index in indices)


def _unsupported_spectrum_reason(measure: Any, num_columns: int) -> str | None:
    """Return why a spectrum has no lattice, or None."""
    if isinstance(measure, RationalQuadratic) and measure.alpha <= num_columns / 2:
        return f"has an infinite spectral density at 0. Use alpha above {num_columns / 2:g}, or RandomFeatures()."
    if not isinstance(measure, Gaussian | Matern | RationalQuadratic):
        return "has no spectral density in closed form. Use RandomFeatures()."
    return None
