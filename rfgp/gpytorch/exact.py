"""Exact stationary kernels: those of GPyTorch, or evaluated through a spectrum."""

from typing import Any

import gpytorch
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from rfgp import spectra

_MATERN = (0.5, 1.5, 2.5)
"""The values of nu of GPyTorch's Matern kernel."""


class SpectrumKernel(Kernel):
    """The stationary kernel of a spectrum, exactly.

    Use GPyTorch's own kernels, which are faster, for the Gaussian, Matern (nu in {1/2, 3/2, 5/2}) and rational
    quadratic kernels. This class evaluates the others.

    Args:
        spectrum: A spectrum, by name or as an object.
        kernel_kwargs: Options of `gpytorch.kernels.Kernel`.

    Raises:
        InvalidArgumentError: If the name is unknown.

    Examples:
        >>> import torch
        >>> from rfgp.gpytorch import SpectrumKernel
        >>> SpectrumKernel("gaussian")(torch.rand(5, 2)).shape
        torch.Size([5, 5])
    """

    has_lengthscale = True

    def __init__(self, spectrum: str | spectra.Spectrum, **kernel_kwargs: Any) -> None:
        super().__init__(**kernel_kwargs)
        self.spectrum = spectra.by_name(spectrum)

    def forward(
        self,
        x1: Tensor,  # (..., n, d)
        x2: Tensor,  # (..., k, d)
        diag: bool = False,
        last_dim_is_batch: bool = False,
        **params: Any,
    ) -> Tensor:  # (..., n, k), or (..., n)
        """Return the covariance (..., n, k), or its diagonal (..., n).

        Args:
            x1: Inputs (..., n, d).
            x2: Inputs (..., k, d).
            diag: Whether to return the diagonal.
            last_dim_is_batch: Whether each column is an input of its own. The covariance then has the batch (..., d).
            params: Not used.
        """
        x1, x2, scale = with_columns_as_batch(self, x1, x2, last_dim_is_batch)
        x1, x2 = x1 / scale, x2 / scale
        if diag:
            pairs: Tensor = self.spectrum.kernel_between(x1.unsqueeze(-2), x2.unsqueeze(-2))
            return pairs.squeeze(-1).squeeze(-1)
        out: Tensor = self.spectrum.kernel_between(x1, x2)
        return out


def with_columns_as_batch(
    kernel: Kernel,
    x1: Tensor,  # (..., n, d)
    x2: Tensor,  # (..., k, d)
    last_dim_is_batch: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return two inputs and the lengthscale, with each column as an input of its own if this is wanted.

    Args:
        kernel: The kernel with the lengthscale.
        x1: The first inputs, (..., n, d).
        x2: The second inputs, (..., k, d).
        last_dim_is_batch: Whether each column is an input of its own, (..., d, n, 1).

    Examples:
        >>> x = torch.zeros(5, 2)
        >>> [one.shape[:-1] for one in with_columns_as_batch(gpytorch.kernels.RBFKernel(), x, x, True)]
        [torch.Size([2, 5]), torch.Size([2, 5]), torch.Size([1, 1])]
    """
    if not last_dim_is_batch:
        return x1, x2, kernel.lengthscale
    first, second = (x.transpose(-1, -2).unsqueeze(-1) for x in (x1, x2))
    return first, second, kernel.lengthscale.unsqueeze(-3)


def exact_kernel(spectrum: spectra.Spectrum, like: Kernel) -> Kernel:
    """Return the exact kernel of a spectrum, with lengthscale, prior and constraint copied from a kernel.

    Args:
        spectrum: The spectrum of the new kernel.
        like: A kernel with a lengthscale. The new kernel shares no parameters with it.

    Examples:
        >>> import gpytorch
        >>> from rfgp import spectra
        >>> like = gpytorch.kernels.RBFKernel()
        >>> like.lengthscale = 0.5
        >>> round(exact_kernel(spectra.Matern(1.5), like).lengthscale.item(), 3)
        0.5
    """
    options: dict[str, Any] = {"ard_num_dims": like.ard_num_dims, "batch_shape": like.batch_shape}
    options["lengthscale_constraint"] = like.raw_lengthscale_constraint
    options["lengthscale_prior"] = getattr(like, "lengthscale_prior", None)
    options["active_dims"] = None if like.active_dims is None else tuple(like.active_dims.tolist())
    kernel = _exact(spectrum, options).to(like.raw_lengthscale)
    with torch.no_grad():
        kernel.raw_lengthscale.copy_(like.raw_lengthscale)
    return kernel


def _exact(spectrum: spectra.Spectrum, options: dict[str, Any]) -> Kernel:
    if isinstance(spectrum, spectra.Gaussian):
        return gpytorch.kernels.RBFKernel(**options)
    if isinstance(spectrum, spectra.Matern) and spectrum.nu in _MATERN:
        return gpytorch.kernels.MaternKernel(nu=spectrum.nu, **options)
    if isinstance(spectrum, spectra.RationalQuadratic):
        kernel = gpytorch.kernels.RQKernel(**options)
        kernel.alpha = spectrum.alpha
        kernel.raw_alpha.requires_grad_(False)  # a fixed number of the spectrum
        return kernel
    return SpectrumKernel(spectrum, **options)
