"""Families of tables: by random features, and by the exact kernel."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from rfgp import couplings, random, spectra
from rfgp import features as feature_maps
from rfgp.counts import check_count
from rfgp.couplings import Frequencies
from rfgp.errors import (
    InvalidArgumentError,
    OverfittingWarning,
    UnderfittingWarning,
    VarianceStarvationWarning,
    arguments,
)
from rfgp.inference import FeaturePrior, KernelPrior
from rfgp.parameters import Hyperprior, Quantity, Values
from rfgp.regression.family import Family
from rfgp.regression.report import FitReport
from rfgp.rows import Chunk, Rows
from rfgp.rows.arrays import Origin, read_matrix
from rfgp.scaling import Scaling
from rfgp.spectra import Spectrum, scaled_gram

LENGTHSCALE_BOUNDS = (1e-3, 1e4)  # in standard deviations of a column
MISCALIBRATED = 4.0
"""The mean square of standardised leave-one-out errors from which on a fit warns."""
EXHAUSTED = 0.9
"""The share of the weights that the data determine from which on a fit warns of variance starvation.

Over 28 fits (`benchmarks/papers/own/starvation.py`, the exact process with the same hyperparameters beside) the median
variance of the latent function at test points was .22 to .46 of the exact one in all 8 with a larger share, and .005 to
.09 at points three times as far out; with shares below a half .63 and .52 at the least.
"""

STRUCTURED = 0.3
"""The correlation of the errors of neighbours from which on a fit warns; of 200 rows its standard error is .09."""
NEGLIGIBLE = 1e-4
"""Noise in which no structure is looked for, of the largest, which is a hundred variances of the targets."""
GIVEN_UP = 0.01
"""Of the largest lengthscale: from there on a column as good as does not matter."""

FeatureMap = feature_maps.Fourier | feature_maps.Laplace


@dataclass(frozen=True)
class KernelOptions:
    """What a user chooses of a process on a table; see `rfgp.ExactGP`.

    Raises:
        InvalidArgumentError: an unknown spectrum.
    """

    spectrum: Any = "gaussian"
    ard: bool = True
    standardize: bool = True
    lengthscale: Any = None
    outputscale: float | None = None
    noise: float | None = None
    priors: Mapping[str, Hyperprior | None] | None = None
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "spectrum", spectra.by_name(self.spectrum))

    @property
    def seed(self) -> int:
        """Nothing is drawn here but a sample of rows that are read in blocks."""
        return 0

    @property
    def starts(self) -> Mapping[str, Any]:
        """The user's starting values."""
        return {name: getattr(self, name) for name in ("lengthscale", "outputscale", "noise")}

    @property
    def hyperpriors(self) -> Mapping[str, Hyperprior | None] | None:
        """The user's log densities."""
        return self.priors

    def without_features(self) -> "KernelOptions":
        """Return those of the exact process."""
        return KernelOptions(**{field.name: getattr(self, field.name) for field in fields(KernelOptions)})


@dataclass(frozen=True)
class FeatureOptions(KernelOptions):
    """What he chooses beside that of one through features; see `rfgp.SparseSpectrumGP`.

    Raises:
        InvalidArgumentError: an unknown name, or m not a positive integer.
    """

    features: str = "fourier"
    num_frequencies: int = 512
    coupling: Any = "energy"
    frequencies: str = "fixed"
    seed: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.frequencies not in ("fixed", "learned"):
            raise InvalidArgumentError(f'frequencies must be "fixed" or "learned", got {self.frequencies!r}.')
        if self.frequencies == "learned" and self.features != "fourier":
            raise InvalidArgumentError("Frequencies of Fourier features can be learned, of others not.")
        feature_maps.by_name(self.features)
        if self.features == "laplace" and not isinstance(self.spectrum, spectra.Gaussian):
            raise InvalidArgumentError("Laplace features exist for the Gaussian spectrum only.")
        object.__setattr__(self, "num_frequencies", check_count("num_frequencies", self.num_frequencies))
        object.__setattr__(self, "coupling", couplings.for_features(self.coupling, self.features))
        object.__setattr__(self, "seed", random.resolve_seed(self.seed))

    def changed(self, **changes: Any) -> "FeatureOptions":
        """Return the options with others; where only the features change, an energy coupling is tuned to them."""
        if isinstance(self.coupling, couplings.Energy) and "features" in changes and "coupling" not in changes:
            changes["coupling"] = self.coupling.tuned_to(changes["features"])
        return replace(self, **changes)


@dataclass(frozen=True, eq=False)
class TableInputs:
    """Numeric tables (n, d) with one lengthscale per column or one for all.

    Attributes:
        options: The user's choices.
    """

    options: KernelOptions
    reads_blocks = True

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype that the user chose; None: that of the data."""
        return self.options.dtype

    @property
    def standardize(self) -> bool:
        """Whether inputs and targets are mapped to mean 0 and standard deviation 1."""
        return self.options.standardize

    def read(self, inputs: Any) -> tuple[Tensor, Origin]:
        """Return a checked table (n, d)."""
        return read_matrix(inputs, self.dtype)

    def complete(self, given: Chunk) -> Chunk:
        """Return the rows as they are: tables have no missing values."""
        return given

    def check(self, inputs: Tensor) -> None:
        """Take any table (n, d)."""

    def quantities(self, spread: Tensor, scaling: Scaling) -> dict[str, Quantity]:
        """Return a lengthscale for columns of these standard deviations, (d,); it starts at sqrt(d) of them.

        That is the order of the distance of two rows. A shared lengthscale of standardised columns has one standardised
        value, and one value per column in the user's units.
        """
        assert scaling.inputs is not None
        unit = scaling.inputs.scale
        deviation = spread / unit
        deviation = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
        if not self.options.ard:
            deviation, unit = deviation.mean(), unit if self.standardize else torch.ones_like(unit[0])
        bounds = (LENGTHSCALE_BOUNDS[0] * deviation, LENGTHSCALE_BOUNDS[1] * deviation)
        return {"lengthscale": Quantity(math.sqrt(len(spread)) * deviation, unit, bounds, fades=True)}


@dataclass(frozen=True, eq=False)
class KernelFamily(Family):
    """The exact stationary kernel.

    Attributes:
        options: The user's choices.
    """

    options: KernelOptions

    @property
    def inputs(self) -> TableInputs:
        """Tables."""
        return TableInputs(self.options)

    def prior(self, values: Values) -> KernelPrior:
        """Return the prior of the kernel."""
        lengthscale = values.standardized("lengthscale").double()
        outputscale = values.standardized("outputscale").double()
        return KernelPrior(
            partial(_kernel, self.options.spectrum, lengthscale, outputscale), partial(_diagonal, outputscale)
        )

    def identity(self) -> Iterator[str | Tensor]:
        """Yield the options (no tensors)."""
        yield from texts_of(self.options)


def _kernel(spectrum: Spectrum, lengthscale: Tensor, outputscale: Tensor, a: Tensor, b: Tensor) -> Tensor:
    if a is b and not a.requires_grad:
        return outputscale * scaled_gram(spectrum, a.double(), lengthscale)
    return outputscale * spectrum.kernel_between(a.double() / lengthscale, b.double() / lengthscale)


def _diagonal(outputscale: Tensor, a: Tensor) -> Tensor:
    return outputscale.expand(len(a))


@dataclass(frozen=True, eq=False)
class FeatureFamily(Family):
    """A kernel estimated by coupled random features.

    Attributes:
        options: The user's choices.
        feature_map: The draw with its map; None before the number of columns is known.
    """

    options: FeatureOptions
    feature_map: FeatureMap | None = None

    @property
    def inputs(self) -> TableInputs:
        """Tables."""
        return TableInputs(self.options)

    @property
    def num_features(self) -> int:
        """F."""
        return self.drawn_map.num_features

    @property
    def drawn_map(self) -> FeatureMap:
        """The draw with its map, once there is one."""
        assert self.feature_map is not None
        return self.feature_map

    def drawn(self, scaling: Scaling) -> Self:
        """Return the family with frequencies for these columns."""
        assert scaling.inputs is not None
        generator, options = random.generator(self.options.seed, random.Role.FREQUENCIES), self.options
        size = (options.num_frequencies, len(scaling.inputs.scale))
        return self.with_frequencies(options.coupling.sample(*size, spectrum=options.spectrum, generator=generator))

    def exact(self) -> KernelFamily:
        """Return the family of the kernel that is estimated."""
        return KernelFamily(self.options.without_features())

    def with_frequencies(self, frequencies: Frequencies) -> Self:
        """Return the family with these."""
        return replace(self, feature_map=feature_maps.by_name(self.options.features)(frequencies))

    def prior(self, values: Values) -> FeaturePrior:
        """Return the prior of the features."""
        lengthscale, variance = values.standardized("lengthscale"), values.standardized("outputscale")
        return FeaturePrior(partial(_scaled_map, self.drawn_map), self.num_features, (lengthscale,), variance)

    def prior_of(self, frequencies: Tensor, values: Values) -> FeaturePrior:
        """Return the prior with other frequencies (m, d), in which gradients are wanted."""
        make, weights = feature_maps.by_name(self.options.features), self.drawn_map.frequencies.weights
        parameters = (values.standardized("lengthscale"), frequencies)
        variance = values.standardized("outputscale")
        return FeaturePrior(partial(_map_of, make, weights), self.num_features, parameters, variance)

    def checked(
        self, values: Values, rows: Rows | None, scaling: Scaling, report: FitReport | None
    ) -> Iterator[Warning]:
        """Yield what the report of a fit should not be the only place to say."""
        if report is not None:
            yield from _warnings(report, values, scaling.columns)

    def identity(self) -> Iterator[str | Tensor]:
        """Yield the options, and the draw (m, d) with its weights (m,)."""
        yield from texts_of(self.options)
        frequencies = self.drawn_map.frequencies
        yield from (frequencies.dense(), frequencies.weights)


def _scaled_map(feature_map: FeatureMap, x: Tensor, lengthscale: Tensor) -> Tensor:
    phi: Tensor = feature_map(x / lengthscale)
    return phi


def _map_of(make: type[FeatureMap], weights: Tensor, x: Tensor, lengthscale: Tensor, frequencies: Tensor) -> Tensor:
    phi: Tensor = make(Frequencies(frequencies, weights))(x / lengthscale)
    return phi


def texts_of(options: KernelOptions) -> Iterator[str]:
    """Yield the options but for the hyperpriors, which have no bytes of their own."""
    yield type(options).__name__
    yield from (f"{name}={value!r}" for name, value in sorted(vars(options).items()) if name != "priors")


def _given_up(values: Values, columns: tuple[str, ...] | None) -> str:
    """Say which of several columns do not matter, by their lengthscales; by name where they have names."""
    lengthscale, (_, largest) = (
        values.standardized("lengthscale").detach(),
        values.space.quantities["lengthscale"].bounds,
    )
    numbers = (lengthscale > GIVEN_UP * largest).reshape(-1).nonzero()[:, 0].tolist()
    if lengthscale.ndim == 0 or not numbers:
        return ""
    called = [str(n) if columns is None else repr(columns[n]) for n in numbers[:8]]
    some = ", ".join(called) + ", ..." * (len(numbers) > 8)
    which = f"column {some} does" if len(numbers) == 1 else f"columns {some} do"
    return f"By the lengthscales found {which} not matter, which may be wrong: the search may have missed the optimum. "


def _has_noise(values: Values) -> bool:
    _, largest = values.space.quantities["noise"].bounds
    return bool(values.standardized("noise") > NEGLIGIBLE * largest)


def _warnings(report: FitReport, values: Values, columns: tuple[str, ...] | None) -> Iterator[Warning]:
    used = report.weights_used
    is_fixed = report.frequencies == "fixed"
    if report.frequencies != "learned" and used is not None and used > EXHAUSTED:
        yield VarianceStarvationWarning(
            f"The data determine {used:.0%} of the weights, so the features are exhausted: the variance of the latent "
            "function is too small between the data and far from them (variance starvation; the noise has taken over "
            f"what the features miss). Raise {arguments('num_frequencies')}"
            + (', or use frequencies="learned" for accuracy.' if is_fixed else ".")
        )
    elif (report.neighbors or 0) > STRUCTURED and _has_noise(values):
        learned = ' use frequencies="learned",' if is_fixed else ""
        yield UnderfittingWarning(
            f"The leave-one-out errors of neighbouring rows have a correlation of {report.neighbors:.2f}: what the fit "
            f"took for noise has structure that the model misses. {_given_up(values, columns)}Raise "
            f"{arguments('num_frequencies')},{learned} or try another {arguments('seed')} or a shorter starting "
            f"{arguments('lengthscale')}."
        )
    if report.calibration is not None and report.calibration > MISCALIBRATED:
        yield OverfittingWarning(
            f"Squared leave-one-out errors are {report.calibration:.1f} times what the model expects: its error bars "
            "are too short. The hyperparameters may be over-fitted to few rows (try ard=False, or priors), or the "
            "target has outliers."
        )
    if report.frequencies == "fell back":
        yield OverfittingWarning(
            f"Fixed frequencies were taken in the place of learned ones ({report.message.rpartition('; ')[2]}). There "
            "may be too few rows to learn from, or enough frequencies already."
        )
