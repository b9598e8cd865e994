"""The kernels of a local process, by their names."""

from rfgp import spectra

KINDS = {"matern12": 0, "matern32": 1, "matern52": 2, "gaussian": 3}
"""Numbers by which `rfgp.local.loops` knows them."""


def spectrum_of(name: str) -> spectra.Spectrum:
    """Return the spectrum of a kernel."""
    return spectra.Gaussian() if name == "gaussian" else spectra.Matern(int(name[-2]) / 2)


def kind_of(spectrum: spectra.Spectrum) -> str | None:
    """Return the name of a spectrum's kernel, if it is one of these."""
    return next((name for name in KINDS if spectrum_of(name) == spectrum), None)


def read_spectrum(spectrum: str | spectra.Spectrum) -> spectra.Spectrum:
    """Return a spectrum by one of these names or one that `rfgp.spectra` knows; a spectrum passes through.

    Raises:
        InvalidArgumentError: there is no spectrum of that name.
    """
    if isinstance(spectrum, str) and spectrum in KINDS:
        return spectrum_of(spectrum)
    return spectra.by_name(spectrum)
