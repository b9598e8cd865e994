"""Spectra: the spectral measures of stationary kernels at unit scale."""

from typing import Any

from graphs.checks import Registry
from rfgp.spectra.spectrum import Gaussian as Gaussian
from rfgp.spectra.spectrum import Matern as Matern
from rfgp.spectra.spectrum import ProductCauchy as ProductCauchy
from rfgp.spectra.spectrum import ProductLaplace as ProductLaplace
from rfgp.spectra.spectrum import RationalQuadratic as RationalQuadratic
from rfgp.spectra.spectrum import Spectrum as Spectrum
from rfgp.torch_context import own_names

_REGISTRY: Registry[Spectrum] = Registry(
    "spectrum",
    {
        "gaussian": Gaussian,
        "matern": Matern,
        "rational-quadratic": RationalQuadratic,
        "product-laplace": ProductLaplace,
        "product-cauchy": ProductCauchy,
    },
)


def by_name(name: str | Spectrum, **options: Any) -> Spectrum:
    """Return a spectrum by its name, such as "matern".

    Args:
        name: A name, or a spectrum, which is returned unchanged.
        options: Arguments of the class by name, such as nu=1.5.

    Raises:
        InvalidArgumentError: If the name or an option is unknown.

    Examples:
        >>> from rfgp import spectra
        >>> spectra.by_name("matern", nu=2.5)
        Matern(nu=2.5)
    """
    return name if isinstance(name, Spectrum) else _REGISTRY.make(name, **options)


def name_of(spectrum: Spectrum) -> str:
    """Return the name by which `by_name` finds the class of a spectrum.

    Args:
        spectrum: The spectrum.

    Raises:
        InvalidArgumentError: If the class is not registered.

    Examples:
        >>> from rfgp import spectra
        >>> spectra.name_of(spectra.Gaussian())
        'gaussian'
    """
    return _REGISTRY.name_of(spectrum)


def names() -> tuple[str, ...]:
    """Return the names that `by_name` accepts.

    Examples:
        >>> from rfgp import spectra
        >>> "matern" in spectra.names()
        True
    """
    return _REGISTRY.names


def __dir__() -> list[str]:
    return own_names(globals())
