"""Graph kernels: functions of a graph's Laplacian L = I - U, normalised or combinatorial, and their modulations.

A kernel k(L) = sum_l alpha_l U^l is estimated by walks through a modulation f with f * f = alpha
(discrete convolution), because then f(U) f(U)^T = k(L): f is the series of sqrt(k) in u = 1 - lambda.

- Diffusion, t = lengthscale^2 / 2: sqrt(k) = exp(-(t/2) (1 - u)), the generating function of a
  Poisson law with mean t/2: f_l = exp(-t/2) (t/2)^l / l!.
- Regularised Laplacian, s = sigma, p = order: k = (1 + s^2 (1 - u))^-p, so with c = s^2 / (1 + s^2),
  sqrt(k) = ((1 - c) / (1 - c u))^(p/2), the generating function of a negative binomial law:
  f_l = Gamma(l + p/2) / (Gamma(p/2) l!) (1 - c)^(p/2) c^l.
- Matern, a = 2 nu / kappa^2: k = (a + 1 - u)^-nu, that law with p = nu, c = 1 / (1 + a), times a^(-nu/2).
- p-step random walk: k = (alpha - 1 + u)^p, f_l = binom(p/2, l) (alpha - 1)^(p/2 - l).
- Free modulation of a base kernel, factors c_0..c_{m-1} > 0: f_l = c_l f_l^base for l < m and f_l^base beyond, so
  f(U) = f^base(U) + sum_{l<m} (c_l - 1) f_l^base U^l, and k = f^2 in closed form, with as many degrees of freedom as
  hops. f may change its sign at negative u.
- Inverse cosine and power series by `graphs.series.root_coefficients`.

The laws are evaluated by scipy.stats, which keeps its relative accuracy for every parameter, where a recursion or a
convolution would not.
"""

from typing import Any

from graphs.errors import InvalidArgumentError
from graphs.kernels.families import Diffusion as Diffusion
from graphs.kernels.families import Matern as Matern
from graphs.kernels.families import RegularizedLaplacian as RegularizedLaplacian
from graphs.kernels.fixed import InverseCosine as InverseCosine
from graphs.kernels.fixed import Modulated as Modulated
from graphs.kernels.fixed import PowerSeries as PowerSeries
from graphs.kernels.fixed import RandomWalk as RandomWalk
from graphs.kernels.fixed import Spectral as Spectral
from graphs.kernels.free import FreeModulation as FreeModulation
from graphs.kernels.kernel import GraphKernel as GraphKernel

_REGISTRY: dict[str, type[GraphKernel]] = {
    "diffusion": Diffusion,
    "regularized-laplacian": RegularizedLaplacian,
    "matern": Matern,
    "random-walk": RandomWalk,
    "inverse-cosine": InverseCosine,
    "modulated": Modulated,
    "power-series": PowerSeries,
    "spectral": Spectral,
    "free": FreeModulation,
}


def by_name(name: str, **options: Any) -> GraphKernel:
    """Return a kernel by its name, one of `names()`; options are its fields.

    Raises:
        InvalidArgumentError: an unknown name, or an option that the kernel does not have.
    """
    if not isinstance(name, str) or name not in _REGISTRY:
        raise InvalidArgumentError(f"There is no graph kernel {name!r}; known are {', '.join(_REGISTRY)}.")
    try:
        return _REGISTRY[name](**options)
    except TypeError as error:
        raise InvalidArgumentError(f"Graph kernel {name!r}: {error}.") from error


def name_of(kernel: GraphKernel) -> str:
    """Return the name under which `by_name` knows a kernel's class.

    Raises:
        InvalidArgumentError: it is not one of this package.
    """
    for name, kind in _REGISTRY.items():
        if type(kernel) is kind:
            return name
    raise InvalidArgumentError(f"{kernel!r} is not a kernel of this package; known are {', '.join(_REGISTRY)}.")


def names() -> tuple[str, ...]:
    """Return the names that `by_name` knows."""
    return tuple(_REGISTRY)
