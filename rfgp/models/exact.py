"""The exact Gaussian process on a table: the twin that every approximation is compared with."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from rfgp import spectra
from rfgp.inference import KernelPrior
from rfgp.models.inputs import TableInputs
from rfgp.models.process import Process, snapshot
from rfgp.parameters import Hyperparameters, Prior

if TYPE_CHECKING:
    from rfgp.models.table import SparseSpectrumGP


class ExactGP(Process):
    """A Gaussian process with the exact stationary kernel; O(n^3) time, O(n^2) memory.

    Args are those of `SparseSpectrumGP` without the features.
    """

    def __init__(
        self,
        spectrum: str | spectra.Spectrum = "gaussian",
        ard: bool = True,
        standardize: bool = True,
        lengthscale: Any = None,
        outputscale: float | None = None,
        noise: float | None = None,
        priors: Mapping[str, Prior] | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(TableInputs(ard, standardize, lengthscale, dtype), outputscale, noise, priors)
        self.spectrum = spectra.by_name(spectrum)
        self._options: dict[str, Any] = {
            "spectrum": self.spectrum,
            "ard": ard,
            "standardize": standardize,
            "lengthscale": lengthscale,
            "outputscale": outputscale,
            "noise": noise,
            "priors": priors,
            "dtype": dtype,
        }

    def approximate(self, **options: Any) -> "SparseSpectrumGP":
        """Return a `SparseSpectrumGP` with a copy of these hyperparameters and the same data.

        Args:
            options: Any of `coupling`, `num_frequencies`, `features`, `seed`.

        Raises:
            InvalidArgumentError: another name.
            NotFittedError: there are no data yet.
        """
        from rfgp.models.table import SparseSpectrumGP

        other = SparseSpectrumGP(**self._options)
        snapshot(self, other)
        return other.redraw(**{"seed": None, **options})

    def _prior(self, hyperparameters: Hyperparameters, draw: Any) -> KernelPrior:
        lengthscale = hyperparameters.standardized("lengthscale").double()
        outputscale = hyperparameters.standardized("outputscale").double()
        return KernelPrior(
            lambda a, b: outputscale * self.spectrum.kernel_between(a.double() / lengthscale, b.double() / lengthscale),
            lambda a: outputscale.expand(len(a)),
        )
