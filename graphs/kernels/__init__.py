"""Graph kernels: functions of the graph Laplacian L = I - U, and their modulations.

Walks estimate a kernel k(L) = sum_l alpha_l U^l through a modulation f with f * f = alpha (discrete convolution). Then
f(U) f(U)^T = k(L), so f is the power series of sqrt(k) in u = 1 - lambda.

- Diffusion, t = lengthscale^2 / 2: sqrt(k) = exp(-(t/2) (1 - u)) is the generating function of the Poisson
  distribution with mean t/2, f_l = exp(-t/2) (t/2)^l / l!.
- Regularized Laplacian, s = sigma, p = order: k = (1 + s^2 (1 - u))^-p. Let c = s^2 / (1 + s^2). Then
  sqrt(k) = ((1 - c) / (1 - c u))^(p/2) is the generating function of a negative binomial distribution. Its terms are
  f_l = Gamma(l + p/2) / (Gamma(p/2) l!) (1 - c)^(p/2) c^l.
- Matern, a = 2 nu / kappa^2: k = (a + 1 - u)^-nu. The modulation is the same distribution with p = nu and
  c = 1 / (1 + a), times a^(-nu/2).
- p-step random walk: k = (alpha - 1 + u)^p, f_l = binom(p/2, l) (alpha - 1)^(p/2 - l).
- Free modulation of a base kernel, factors c_0..c_{m-1} > 0: f_l = c_l f_l^base for l < m and f_l^base for l >= m.
  Hence f(U) = f^base(U) + sum_{l<m} (c_l - 1) f_l^base U^l, and k = f^2 in closed form. f may change its sign at
  negative u.
- Inverse cosine and power series by `graphs.kernels.kernel.root_coefficients`.

Probability mass functions come from scipy.stats, which keeps its relative accuracy for all parameters. A recursion or a
convolution would not.
"""

from typing import Any

from graphs.checks import Registry
from graphs.kernels.families import Diffusion as Diffusion
from graphs.kernels.families import FreeModulation as FreeModulation
from graphs.kernels.families import InverseCosine as InverseCosine
from graphs.kernels.families import Matern as Matern
from graphs.kernels.families import Modulated as Modulated
from graphs.kernels.families import PowerSeries as PowerSeries
from graphs.kernels.families import RandomWalk as RandomWalk
from graphs.kernels.families import RegularizedLaplacian as RegularizedLaplacian
from graphs.kernels.families import Spectral as Spectral
from graphs.kernels.kernel import GraphKernel as GraphKernel

_REGISTRY: Registry[GraphKernel] = Registry(
    "graph kernel",
    {
        "diffusion": Diffusion,
        "regularized-laplacian": RegularizedLaplacian,
        "matern": Matern,
        "random-walk": RandomWalk,
        "inverse-cosine": InverseCosine,
        "modulated": Modulated,
        "power-series": PowerSeries,
        "spectral": Spectral,
        "free": FreeModulation,
    },
)


def by_name(name: str, **options: Any) -> GraphKernel:
    """Return a kernel by its name, with its fields as options.

    Args:
        name: One of `names()`.
        **options: The fields of the kernel.

    Raises:
        InvalidArgumentError: If the name is unknown, or the kernel has no such field.

    Examples:
        >>> from graphs import kernels
        >>> kernels.by_name("diffusion", lengthscale=3.0)
        Diffusion(lengthscale=3.0)
    """
    return _REGISTRY.make(name, **options)


def name_of(kernel: GraphKernel) -> str:
    """Return the name of the class of a kernel, as `by_name` takes it.

    Args:
        kernel: The kernel.

    Raises:
        InvalidArgumentError: If the class is not from this package.

    Examples:
        >>> from graphs import kernels
        >>> kernels.name_of(kernels.Matern())
        'matern'
    """
    return _REGISTRY.name_of(kernel)


def names() -> tuple[str, ...]:
    """Return the names that `by_name` accepts.

    Examples:
        >>> from graphs import kernels
        >>> kernels.names()[:3]
        ('diffusion', 'regularized-laplacian', 'matern')
    """
    return _REGISTRY.names
