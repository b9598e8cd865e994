"""The Gaussian processes on a table: through features, and the exact twin that every approximation is compared with."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, ClassVar, cast

import torch

from rfgp import couplings, random, spectra
from rfgp import features as feature_maps
from rfgp.counts import check_count
from rfgp.errors import InvalidArgumentError
from rfgp.fitting import Plan, fit_features, fit_whole
from rfgp.models.process import Fitted, Process
from rfgp.parameters import Hyperprior
from rfgp.regression import FeatureFamily, FeatureOptions, FitReport, KernelFamily, KernelOptions, Regression
from rfgp.regression.table import FeatureMap
from rfgp.saving import FEATURES, KERNELS, Codec

_REDRAWN = {"coupling", "num_frequencies", "features", "seed"}


class SparseSpectrumGP(Process):
    """A Gaussian process whose kernel is estimated by coupled random features.

    Args:
        spectrum: The kernel's spectrum, by name or as a `Spectrum`.
        features: "fourier", or "laplace" (positive; Gaussian spectrum only).
        num_frequencies: m; Fourier features number 2m.
        coupling: The frequencies' coupling, by name or as a `Coupling`; "energy" is tuned to the features.
        frequencies: "fixed": drawn once, never learned. "learned": `fit` learns them with the other hyperparameters,
            starting from the draw (Lazaro-Gredilla et al. 2010): far more accurate where m is small for the
            lengthscale, but no longer an estimate of the spectrum's kernel. Fourier features only. Of rows that are
            read in blocks a random sample of 32,768 is learned from.
        ard: One lengthscale per column, or one for all (of the standardised columns).
        standardize: Whether inputs and targets are standardised inside.
        lengthscale: Starting value in the user's units, () or (d,); with ard=False and
            standardize=True a single number is in standard deviations. None: sqrt(d) of them.
        outputscale: Starting value; None: the targets' variance.
        noise: Starting value of the noise variance; None: a tenth of the targets' variance.
        priors: Log densities (objects with `log_prob`) of named hyperparameters, in the user's units; a
            lengthscale shared by standardised columns counts in standard deviations.
        seed: An integer, or None for one from the system, kept as `.seed`.
        dtype: Of the features; None: the data's. Sums and factorisations are float64 always, products of features
            where the noise is small (`rfgp.inference.linear`). With noise down to a thousandth of the target's
            variance, means from float32 features are within .002 of its deviation of those from float64, deviations
            within 2 %.

    Sources: sparse spectrum processes, Lazaro-Gredilla et al. (2010); couplings as named there.

    Raises:
        InvalidArgumentError: an unknown name, or m not a positive integer.
    """

    codec: ClassVar[Codec] = FEATURES

    def __init__(
        self,
        spectrum: str | spectra.Spectrum = "gaussian",
        features: str = "fourier",
        num_frequencies: int = 512,
        coupling: str | couplings.Coupling = "energy",
        frequencies: str = "fixed",
        ard: bool = True,
        standardize: bool = True,
        lengthscale: Any = None,
        outputscale: float | None = None,
        noise: float | None = None,
        priors: Mapping[str, Hyperprior | None] | None = None,
        seed: int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        common = KernelOptions(
            spectra.by_name(spectrum), ard, standardize, lengthscale, outputscale, noise, priors, dtype
        )
        super().__init__(
            FeatureFamily(_feature_options(common, features, num_frequencies, coupling, frequencies, seed))
        )

    @staticmethod
    def strategy(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
        """Fit a regression of this kind of model; return the one found, and how it went."""
        return fit_features(regression, plan)

    @property
    def family(self) -> FeatureFamily:
        """The options, and once there are data, the draw."""
        return cast(FeatureFamily, super().family)

    @property
    def options(self) -> FeatureOptions:
        """What the constructor was given."""
        return self.family.options

    @property
    def spectrum(self) -> spectra.Spectrum:
        """The kernel's spectrum."""
        return self.options.spectrum

    @property
    def features(self) -> str:
        """The kind of features."""
        return self.options.features

    @property
    def coupling(self) -> couplings.Coupling:
        """The frequencies' coupling."""
        return self.options.coupling

    @property
    def seed(self) -> int:
        """What everything random follows from."""
        return self.options.seed

    @property
    def feature_map(self) -> FeatureMap:
        """The feature map with its draw, for standardised inputs divided by the lengthscale.

        Raises:
            NotFittedError: nothing is drawn before the first data.
        """
        self._needed()
        return self.family.drawn_map

    def sample_functions(self, num_samples: int, *, seed: int | None = None) -> Callable[[Any], Any]:
        """Draw functions from the posterior: one draw of the weights, evaluated wherever it is asked for.

        Exact for this model, whose functions are the finite sums phi(x) . w, so the values at any points have the joint
        law of `predict`.

        Args:
            num_samples: s.
            seed: An integer, or None for one from the system.

        Returns:
            A function that maps X (n, d) to values (s, n), or (s, n, k) for k outputs: arrays to arrays, tensors to
            tensors, differentiable in X.

        Raises:
            NotFittedError: there are no data yet.
            InvalidArgumentError: s is not a positive integer.
        """
        return self.regression.sample_functions(num_samples, seed)

    def redraw(self, **changes: Any) -> "SparseSpectrumGP":
        """Return a new model with a new draw; what is not named stays, data and hyperparameters too.

        Args:
            changes: Any of `coupling`, `num_frequencies`, `features`, `seed`. Where only the features change, an
                energy coupling is tuned to them. Learned frequencies are not kept: `fit` learns from the new draw.

        Raises:
            InvalidArgumentError: another name.
            NotFittedError: there are no data yet.
        """
        family = FeatureFamily(_changed(self.options, changes)).drawn(self.regression.scaling)
        return SparseSpectrumGP.of(family, Fitted.of(self.regression.under(family)))

    def exact(self) -> "ExactGP":
        """Return the exact process with a copy of the hyperparameters and the same data."""
        family = KernelFamily(KernelOptions(**{name: getattr(self.options, name) for name in _COMMON}))
        return ExactGP.of(family, Fitted.of(self.regression.under(family)))


class ExactGP(Process):
    """A Gaussian process with the exact stationary kernel; O(n^3) time, O(n^2) memory.

    Args are those of `SparseSpectrumGP` without the features.
    """

    codec: ClassVar[Codec] = KERNELS

    def __init__(
        self,
        spectrum: str | spectra.Spectrum = "gaussian",
        ard: bool = True,
        standardize: bool = True,
        lengthscale: Any = None,
        outputscale: float | None = None,
        noise: float | None = None,
        priors: Mapping[str, Hyperprior | None] | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        spectrum = spectra.by_name(spectrum)
        options = KernelOptions(spectrum, ard, standardize, lengthscale, outputscale, noise, priors, dtype)
        super().__init__(KernelFamily(options))

    @staticmethod
    def strategy(regression: Regression, plan: Plan) -> tuple[Regression, FitReport]:
        """Fit a regression of this kind of model; return the one found, and how it went."""
        return fit_whole(regression, plan)

    @property
    def family(self) -> KernelFamily:
        """The options."""
        return cast(KernelFamily, super().family)

    @property
    def options(self) -> KernelOptions:
        """What the constructor was given."""
        return self.family.options

    @property
    def spectrum(self) -> spectra.Spectrum:
        """The kernel's spectrum."""
        return self.options.spectrum

    def approximate(self, **options: Any) -> SparseSpectrumGP:
        """Return a `SparseSpectrumGP` with a copy of these hyperparameters and the same data.

        Args:
            options: Any of `coupling`, `num_frequencies`, `features`, `seed`.

        Raises:
            InvalidArgumentError: another name.
            NotFittedError: there are no data yet.
        """
        model = SparseSpectrumGP(**{name: getattr(self.options, name) for name in _COMMON})
        family = FeatureFamily(_changed(model.options, options)).drawn(self.regression.scaling)
        return SparseSpectrumGP.of(family, Fitted.of(self.regression.under(family)))


_COMMON = tuple(field.name for field in fields(KernelOptions) if field.name != "seed")


def _feature_options(
    common: KernelOptions,
    features: str,
    num_frequencies: int,
    coupling: str | couplings.Coupling,
    frequencies: str,
    seed: int | None,
) -> FeatureOptions:
    """Return checked options.

    Raises:
        InvalidArgumentError: an unknown name, or m not a positive integer.
    """
    if frequencies not in ("fixed", "learned"):
        raise InvalidArgumentError(f'frequencies must be "fixed" or "learned", got {frequencies!r}.')
    if frequencies == "learned" and features != "fourier":
        raise InvalidArgumentError("Frequencies of Fourier features can be learned, of others not.")
    check_count("num_frequencies", num_frequencies)
    feature_maps.by_name(features)
    coupling = couplings.for_features(coupling, features)
    if features == "laplace" and not isinstance(common.spectrum, spectra.Gaussian):
        raise InvalidArgumentError("Laplace features exist for the Gaussian spectrum only.")
    return FeatureOptions(
        **{name: getattr(common, name) for name in _COMMON},
        features=features,
        num_frequencies=int(num_frequencies),
        coupling=coupling,
        frequencies=frequencies,
        seed=random.resolve_seed(seed),
    )


def _changed(options: FeatureOptions, changes: Mapping[str, Any]) -> FeatureOptions:
    """Return options with some changed; where only the features change, an energy coupling is tuned to them.

    Raises:
        InvalidArgumentError: another name than those of a redraw, or an option that cannot be.
    """
    if set(changes) - _REDRAWN:
        unknown = ", ".join(sorted(set(changes) - _REDRAWN))
        raise InvalidArgumentError(f"redraw does not know {unknown}; it takes {', '.join(sorted(_REDRAWN))}.")
    names = ("features", "num_frequencies", "coupling", "frequencies", "seed")
    new = {**{name: getattr(options, name) for name in names}, **changes}
    if isinstance(options.coupling, couplings.Energy) and "features" in changes and "coupling" not in changes:
        new["coupling"] = options.coupling.tuned_to(changes["features"])
    return _feature_options(options, **new)
