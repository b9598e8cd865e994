"""The kernels of a local process, by their names."""

from rfgp import spectra

KINDS = {"matern12": 0, "matern32": 1, "matern52": 2, "gaussian": 3}
"""Numbers by which `rfgp.local.loops` knows them."""


def spectrum_of(name: str) -> spectra.Spectrum:
    """Return the spectrum of a kernel."""
    return spectra.Gaussian() if name == "gaussian" else spectra.Matern(int(name[-2]) / 2)
