"""The sparse-spectrum Gaussian process on a table."""

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch

from rfgp import couplings, random, spectra
from rfgp import features as feature_maps
from rfgp.counts import check_count
from rfgp.errors import InvalidArgumentError, OverfittingWarning, VarianceStarvationWarning
from rfgp.inference import FeaturePrior
from rfgp.models.exact import ExactGP
from rfgp.models.fitting import FitReport, Plan
from rfgp.models.fitting.sparse import Fit
from rfgp.models.functions import draw_functions
from rfgp.models.inputs import TableInputs
from rfgp.models.process import Process, snapshot
from rfgp.parameters import Hyperparameters, Prior
from rfgp.scaling import Scaling

MISCALIBRATED = 4.0
"""The mean square of standardised leave-one-out errors from which on a fit warns."""
EXHAUSTED = 0.9
"""The share of the weights that the data determine from which on a fit warns of variance starvation.

Over 28 fits (`benchmarks/starvation.py`, the exact process with the same hyperparameters beside) the median variance of
the latent function at test points was .22 to .45 of the exact one in all 8 with a larger share, and .005 to .09 at
points three times as far out; with shares below a half .63 and .52 at the least.
"""


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
        priors: Mapping[str, Prior] | None = None,
        seed: int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(TableInputs(ard, standardize, lengthscale, dtype), outputscale, noise, priors)
        if frequencies not in ("fixed", "learned"):
            raise InvalidArgumentError(f'frequencies must be "fixed" or "learned", got {frequencies!r}.')
        if frequencies == "learned" and features != "fourier":
            raise InvalidArgumentError("Frequencies of Fourier features can be learned, of others not.")
        num_frequencies = check_count("num_frequencies", num_frequencies)
        self.spectrum = spectra.by_name(spectrum)
        self.features = features
        self._map_class = feature_maps.by_name(features)
        self.coupling = couplings.for_features(coupling, features)
        if features == "laplace" and not isinstance(self.spectrum, spectra.Gaussian):
            raise InvalidArgumentError("Laplace features exist for the Gaussian spectrum only.")
        self.seed = random.resolve_seed(seed)
        self._options: dict[str, Any] = {
            "spectrum": self.spectrum,
            "features": features,
            "num_frequencies": int(num_frequencies),
            "coupling": self.coupling,
            "frequencies": frequencies,
            "ard": ard,
            "standardize": standardize,
            "lengthscale": lengthscale,
            "outputscale": outputscale,
            "noise": noise,
            "priors": priors,
            "seed": self.seed,
            "dtype": dtype,
        }

    @property
    def feature_map(self) -> feature_maps.Fourier | feature_maps.Laplace:
        """The feature map with its draw, for standardised inputs divided by the lengthscale.

        Raises:
            NotFittedError: nothing is drawn before the first data.
        """
        feature_map: feature_maps.Fourier | feature_maps.Laplace = self._known().draw
        return feature_map

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
        return draw_functions(self, num_samples, seed)

    def redraw(self, **changes: Any) -> "SparseSpectrumGP":
        """Return a new model with a new draw; what is not named stays, data and hyperparameters too.

        Args:
            changes: Any of `coupling`, `num_frequencies`, `features`, `seed`. Where only the features change, an
                energy coupling is tuned to them. Learned frequencies are not kept: `fit` learns from the new draw.

        Raises:
            InvalidArgumentError: another name.
            NotFittedError: there are no data yet.
        """
        allowed = {"coupling", "num_frequencies", "features", "seed"}
        if set(changes) - allowed:
            unknown = ", ".join(sorted(set(changes) - allowed))
            raise InvalidArgumentError(f"redraw does not know {unknown}; it takes {', '.join(sorted(allowed))}.")
        if isinstance(self.coupling, couplings.Energy) and "features" in changes and "coupling" not in changes:
            changes["coupling"] = self.coupling.tuned_to(changes["features"])
        other = SparseSpectrumGP(**{**self._options, **changes})
        snapshot(self, other)
        return other

    def exact(self) -> ExactGP:
        """Return the exact process with a copy of the hyperparameters and the same data."""
        names = ("spectrum", "ard", "standardize", "lengthscale", "outputscale", "noise", "priors", "dtype")
        other = ExactGP(**{name: self._options[name] for name in names})
        snapshot(self, other)
        return other

    def _train(self, plan: Plan) -> FitReport:
        return Fit(self, plan).run()

    def _check_fit(self, report: FitReport | None = None) -> None:
        if report is not None:
            _warn(report)

    def _draw(self, scaling: Scaling) -> feature_maps.Fourier | feature_maps.Laplace:
        assert scaling.inputs is not None
        generator = random.generator(self.seed, random.Role.FREQUENCIES)
        draw = self.coupling.sample(
            self._options["num_frequencies"], len(scaling.inputs.scale), spectrum=self.spectrum, generator=generator
        )
        return self._map_class(draw)

    def _prior(self, hyperparameters: Hyperparameters, draw: Any) -> FeaturePrior:
        lengthscale = hyperparameters.standardized("lengthscale")
        variance = hyperparameters.standardized("outputscale")
        return FeaturePrior(lambda x, scale: draw(x / scale), draw.num_features, (lengthscale,), variance)


def _warn(report: FitReport) -> None:
    """Say what the report of a fit should not be the only place to say."""
    used = report.weights_used
    if report.frequencies != "learned" and used is not None and used > EXHAUSTED:
        message = (
            f"The data determine {used:.0%} of the weights, so the features are exhausted: the variance of the latent "
            "function is too small between the data and far from them (variance starvation; the noise has taken over "
            'what the features miss). Raise num_frequencies, or use frequencies="learned" for accuracy.'
        )
        warnings.warn(VarianceStarvationWarning(message), stacklevel=4)
    if report.calibration is not None and report.calibration > MISCALIBRATED:
        message = (
            f"Squared leave-one-out errors are {report.calibration:.1f} times what the model expects: its error bars "
            "are too short. The hyperparameters may be over-fitted to few rows (try ard=False, or priors), or the "
            "target has outliers."
        )
        warnings.warn(OverfittingWarning(message), stacklevel=4)
    if report.frequencies == "fell back":
        message = (
            "Learned frequencies predict kept-out rows no better than fixed ones, which were taken instead. There may "
            "be too few rows to learn from, or enough frequencies already."
        )
        warnings.warn(OverfittingWarning(message), stacklevel=4)
