"""The Gaussian processes on a table: through features, and the exact twin that every approximation is compared with."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from rfgp import couplings, spectra
from rfgp.ambient import plain
from rfgp.errors import InvalidArgumentError
from rfgp.fitting import fit_features, fit_whole
from rfgp.models.process import Fitted, Process
from rfgp.parameters import Hyperprior
from rfgp.regression import FeatureFamily, FeatureOptions, KernelFamily, KernelOptions, Regression
from rfgp.regression.table import FeatureMap
from rfgp.saving import FEATURES, KERNELS

_REDRAWN = {"coupling", "num_frequencies", "features", "seed"}


class SparseSpectrumGP(Process[FeatureFamily]):
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

    codec = FEATURES
    strategy = staticmethod(fit_features)

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
        common = (spectrum, ard, standardize, lengthscale, outputscale, noise, priors, dtype)
        options = FeatureOptions(*common, features, num_frequencies, coupling, frequencies, seed)
        super().__init__(FeatureFamily(options))

    @property
    def options(self) -> FeatureOptions:
        """What the constructor was given."""
        return self.family.options

    @property
    def spectrum(self) -> spectra.Spectrum:
        """The kernel's spectrum."""
        spectrum: spectra.Spectrum = self.options.spectrum
        return spectrum

    @property
    def features(self) -> str:
        """The kind of features."""
        return self.options.features

    @property
    def coupling(self) -> couplings.Coupling:
        """The frequencies' coupling."""
        coupling: couplings.Coupling = self.options.coupling
        return coupling

    @property
    def seed(self) -> int:
        """What everything random follows from."""
        return int(self.options.seed)

    @property
    def feature_map(self) -> FeatureMap:
        """The feature map with its draw, for standardised inputs divided by the lengthscale.

        Raises:
            NotFittedError: nothing is drawn before the first data.
        """
        self._needed()
        return self.family.drawn_map

    @plain()
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

    @plain()
    def redraw(self, **changes: Any) -> "SparseSpectrumGP":
        """Return a new model with a new draw; what is not named stays, data and hyperparameters too.

        Args:
            changes: Any of `coupling`, `num_frequencies`, `features`, `seed`. Where only the features change, an
                energy coupling is tuned to them. Learned frequencies are not kept: `fit` learns from the new draw.

        Raises:
            InvalidArgumentError: another name.
            NotFittedError: there are no data yet.
        """
        return _drawn(_changed(self.options, changes), self._with_rows())

    @plain()
    def exact(self) -> "ExactGP":
        """Return the exact process with a copy of the hyperparameters and the same data."""
        family = self.family.exact()
        return ExactGP.of(family, Fitted.of(self._with_rows().replace(family=family)))


class ExactGP(Process[KernelFamily]):
    """A Gaussian process with the exact stationary kernel; O(n^3) time, O(n^2) memory.

    Args are those of `SparseSpectrumGP` without the features.
    """

    codec = KERNELS
    strategy = staticmethod(fit_whole)

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
        options = KernelOptions(spectrum, ard, standardize, lengthscale, outputscale, noise, priors, dtype)
        super().__init__(KernelFamily(options))

    @property
    def options(self) -> KernelOptions:
        """What the constructor was given."""
        return self.family.options

    @property
    def spectrum(self) -> spectra.Spectrum:
        """The kernel's spectrum."""
        spectrum: spectra.Spectrum = self.options.spectrum
        return spectrum

    @plain()
    def approximate(self, **options: Any) -> SparseSpectrumGP:
        """Return a `SparseSpectrumGP` with a copy of these hyperparameters and the same data.

        Args:
            options: Any of `coupling`, `num_frequencies`, `features`, `seed`.

        Raises:
            InvalidArgumentError: another name.
            NotFittedError: there are no data yet.
        """
        return _drawn(_changed(FeatureOptions(**vars(self.options)), options), self._with_rows())


def _changed(options: FeatureOptions, changes: Mapping[str, Any]) -> FeatureOptions:
    """Return options with some changed.

    Raises:
        InvalidArgumentError: another name than those of a redraw, or an option that cannot be.
    """
    if set(changes) - _REDRAWN:
        unknown = ", ".join(sorted(set(changes) - _REDRAWN))
        raise InvalidArgumentError(f"redraw does not know {unknown}; it takes {', '.join(sorted(_REDRAWN))}.")
    return options.changed(**changes)


def _drawn(options: FeatureOptions, regression: Regression) -> SparseSpectrumGP:
    """Return the model of a regression's rows with features of a new draw."""
    family = FeatureFamily(options).drawn(regression.scaling)
    return SparseSpectrumGP.of(family, Fitted.of(regression.replace(family=family)))
