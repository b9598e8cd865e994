"""The sparse-spectrum Gaussian process on a table."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp import couplings, random, spectra
from rfgp import features as feature_maps
from rfgp.errors import InvalidArgumentError
from rfgp.inference import FeaturePrior
from rfgp.models.exact import ExactGP
from rfgp.models.inputs import TableInputs
from rfgp.models.process import Process, snapshot
from rfgp.parameters import Hyperparameters, Prior


class SparseSpectrumGP(Process):
    """A Gaussian process whose kernel is estimated by coupled random features.

    Args:
        spectrum: The kernel's spectrum, by name or as a `Spectrum`.
        features: "fourier", or "laplace" (positive; Gaussian spectrum only).
        num_frequencies: m; Fourier features number 2m.
        coupling: The frequencies' coupling, by name or as a `Coupling`; "energy" is tuned to the features.
        frequencies: "fixed": drawn once, never learned.
        ard: One lengthscale per column, or one for all (of the standardised columns).
        standardize: Whether inputs and targets are standardised inside.
        lengthscale: Starting value in the user's units, () or (d,); with ard=False and
            standardize=True a single number is in standard deviations. None: sqrt(d) of them.
        outputscale: Starting value; None: the targets' variance.
        noise: Starting value of the noise variance; None: a tenth of the targets' variance.
        priors: Log densities (objects with `log_prob`) of named hyperparameters, in the user's units; a
            lengthscale shared by standardised columns counts in standard deviations.
        seed: An integer, or None for one from the system, kept as `.seed`.
        dtype: Of the features; None: the data's. Factorisations are float64 always.

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
        if frequencies != "fixed":
            raise InvalidArgumentError(f'frequencies must be "fixed" in this version, got {frequencies!r}.')
        if (
            isinstance(num_frequencies, bool)
            or not isinstance(num_frequencies, int | np.integer)
            or num_frequencies < 1
        ):
            raise InvalidArgumentError(f"num_frequencies must be a positive integer, got {num_frequencies!r}.")
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

    def redraw(self, **changes: Any) -> "SparseSpectrumGP":
        """Return a new model with a new draw; what is not named stays, data and hyperparameters too.

        Args:
            changes: Any of `coupling`, `num_frequencies`, `features`, `seed`. Where only the features change, an
                energy coupling is tuned to them.

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

    def _draw(self, inputs: Tensor) -> feature_maps.Fourier | feature_maps.Laplace:
        generator = random.generator(self.seed, random.Role.FREQUENCIES)
        draw = self.coupling.sample(
            self._options["num_frequencies"], inputs.shape[1], spectrum=self.spectrum, generator=generator
        )
        return self._map_class(draw)

    def _prior(self, hyperparameters: Hyperparameters, draw: Any) -> FeaturePrior:
        lengthscale = hyperparameters.standardized("lengthscale")
        variance = hyperparameters.standardized("outputscale")
        return FeaturePrior(lambda x, scale: draw(x / scale), draw.num_features, (lengthscale,), variance)
