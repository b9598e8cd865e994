"""The kernels of local processes by name."""

from rfgp import spectra

KINDS = {"matern12": 0, "matern32": 1, "matern52": 2, "gaussian": 3}
"""The numbers of the kernels in `rfgp.local.loops`."""
MIN_PIVOT_RATIO = 1e-13
"""The smallest pivot of neighbors, relative to variance plus noise. A neighbor with a smaller one is omitted."""


def spectrum_of(name: str) -> spectra.Spectrum:
    """Return the spectrum of a kernel of `KINDS`.

    Args:
        name: The name.
    """
    return spectra.Gaussian() if name == "gaussian" else spectra.Matern(int(name[-2]) / 2)


def kind_of(spectrum: spectra.Spectrum) -> str | None:
    """Return the name of the kernel of a spectrum, or None if `KINDS` lacks it.

    Args:
        spectrum: The spectrum.
    """
    return next((name for name in KINDS if spectrum_of(name) == spectrum), None)


def read_spectrum(spectrum: str | spectra.Spectrum) -> spectra.Spectrum:
    """Return a spectrum by a name of `KINDS` or of `rfgp.spectra`.

    A spectrum is returned unchanged.

    Args:
        spectrum: The name, or a spectrum.

    Raises:
        InvalidArgumentError: If there is no spectrum of that name.
    """
    if isinstance(spectrum, str) and spectrum in KINDS:
        return spectrum_of(spectrum)
    return spectra.by_name(spectrum)
