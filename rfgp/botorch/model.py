"""Random-feature processes in BoTorch.

Importing this module registers the kernel for BoTorch's pathwise sampling. `draw_matheron_paths` and other users of
`gen_kernel_features` then use the kernel's own features. Prior functions have exactly the distribution of the kernel,
without a second approximation.
"""

import math
from typing import Any

from botorch.models import SingleTaskGP
from botorch.models.transforms.outcome import Standardize
from botorch.sampling.pathwise.features.generators import GenKernelFeatures
from botorch.sampling.pathwise.features.maps import FeatureMap
from gpytorch.constraints import GreaterThan
from gpytorch.priors import LogNormalPrior
from torch import Size, Tensor, nn

from rfgp import couplings, spectra
from rfgp.errors import InvalidArgumentError
from rfgp.gpytorch import RandomFeatureKernel, TermKernel

MIN_LENGTHSCALE = 0.025
"""Bound of `RandomFeatureGP`, as of BoTorch's own model."""


class KernelFeatures(FeatureMap):
    """The features of a `RandomFeatureKernel` or a `TermKernel` as a feature map of BoTorch.

    Their inner products phi(x) . phi(z) are the kernel.

    Args:
        kernel: The kernel. Features are computed at its current hyperparameters.

    Raises:
        InvalidArgumentError: If a term is not a product of dense features.

    Examples:
        >>> import torch
        >>> from rfgp.botorch import KernelFeatures
        >>> from rfgp.gpytorch import RandomFeatureKernel
        >>> KernelFeatures(RandomFeatureKernel(8, num_dims=2, seed=0))(torch.zeros(3, 2)).shape
        torch.Size([3, 16])
    """

    def __init__(self, kernel: RandomFeatureKernel | TermKernel) -> None:
        super().__init__()
        self.kernel = kernel
        self._num_features = kernel.num_features
        self.input_transform = nn.Identity()  # BoTorch puts transforms of kernels around it in front of these
        self.output_transform = nn.Identity()

    @property
    def num_outputs(self) -> int:
        """The number F of features."""
        return self._num_features

    @property
    def batch_shape(self) -> Size:
        """The kernel's batch shape."""
        return self.kernel.batch_shape

    def forward(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, F)
        """Return the features of x.

        Args:
            x: Inputs (..., n, d).
        """
        active = self.kernel.active_dims
        return self.kernel.features(x if active is None else x.index_select(-1, active))


def _kernel_features(kernel: RandomFeatureKernel | TermKernel, *, num_inputs: int, num_outputs: int) -> KernelFeatures:
    """Return the kernel's own features, however many others BoTorch would take."""
    return KernelFeatures(kernel)


GenKernelFeatures.register(RandomFeatureKernel)(_kernel_features)
GenKernelFeatures.register(TermKernel)(_kernel_features)


class RandomFeatureGP(SingleTaskGP):
    """BoTorch's `SingleTaskGP` with a random-feature kernel.

    An evaluation costs O(n F^2) for F < n features. Inputs must lie in the unit cube. As in BoTorch's model, targets
    are standardized and the output scale is 1. The prior of the lengthscales is log-normal with location sqrt(2) +
    log(d) / 2 and scale sqrt(3) (Hvarfner, Hellsten and Nardi, 2024).

    Args:
        train_X: Inputs (n, d).
        train_Y: Targets (n, 1), or (n, o) for o independent outputs.
        train_Yvar: Known noise variances, with the shape of train_Y. If None, the noise is learned.
        num_frequencies: The number m of frequencies, for 2m features.
        spectrum: A spectrum, by name or as an object.
        coupling: A coupling, by name or as an object.
        seed: The seed. If None, one from the system.
        model_kwargs: Options of `SingleTaskGP`.

    Raises:
        InvalidArgumentError: If a name is unknown, a kernel is given, or the data are not matrices.

    Examples:
        >>> import torch
        >>> from rfgp.botorch import RandomFeatureGP
        >>> X = torch.rand(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        >>> RandomFeatureGP(X, X.sum(1, keepdim=True), num_frequencies=16, seed=0).posterior(X[:3]).mean.shape
        torch.Size([3, 1])
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        num_frequencies: int = 256,
        spectrum: str | spectra.Spectrum = "gaussian",
        coupling: str | couplings.Coupling = "energy",
        seed: int | None = None,
        **model_kwargs: Any,
    ) -> None:
        for name, value in (("train_X", train_X), ("train_Y", train_Y)):
            if not isinstance(value, Tensor) or value.ndim < 2 or value.shape[-1] == 0:
                shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise InvalidArgumentError(
                    f"{name} must be a tensor (n, columns) with one column at least, got {shape}."
                )
        if not train_X.is_floating_point() or not train_Y.is_floating_point():
            raise InvalidArgumentError("train_X and train_Y must hold floating-point numbers.")
        if train_X.shape[-2] != train_Y.shape[-2] or train_X.shape[-2] == 0:
            rows = f"{train_X.shape[-2]} and {train_Y.shape[-2]}"
            raise InvalidArgumentError(
                f"train_X and train_Y must have equal numbers of rows, at least one, got {rows}."
            )
        d, outputs = train_X.shape[-1], train_Y.shape[-1]
        batch = Size([*train_X.shape[:-2], *([outputs] if outputs > 1 else [])])
        prior = LogNormalPrior(math.sqrt(2) + 0.5 * math.log(d), math.sqrt(3))
        kernel = RandomFeatureKernel(
            num_frequencies,
            spectrum,
            coupling,
            num_dims=d,
            seed=seed,
            ard_num_dims=d,
            batch_shape=batch,
            lengthscale_prior=prior,
            lengthscale_constraint=GreaterThan(MIN_LENGTHSCALE, transform=None, initial_value=prior.mode),
        )
        if "covar_module" in model_kwargs:
            raise InvalidArgumentError("RandomFeatureGP makes its own kernel. Use SingleTaskGP for another one.")
        model_kwargs.setdefault("outcome_transform", Standardize(outputs, batch_shape=train_X.shape[:-2]))
        super().__init__(train_X, train_Y, train_Yvar, covar_module=kernel.to(train_X), **model_kwargs)
        self._subset_batch_dict = {"mean_module.raw_constant": -1, "covar_module.raw_lengthscale": -3}
        self._num_inputs = d
        if train_Yvar is None:  # what `subset_output` takes apart, and where its outputs are
            self._subset_batch_dict["likelihood.noise_covar.raw_noise"] = -2

    def posterior(self, X: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Return the posterior of BoTorch at points.

        Args:
            X: Points (..., q, d).
            args: Positional arguments of `SingleTaskGP.posterior`.
            kwargs: Keyword arguments of `SingleTaskGP.posterior`.

        Raises:
            InvalidArgumentError: If the points differ from the training inputs in the number of columns.
        """
        if not isinstance(X, Tensor) or X.ndim < 2 or X.shape[-1] != self._num_inputs:
            shape = tuple(X.shape) if isinstance(X, Tensor) else type(X).__name__
            raise InvalidArgumentError(f"X must be a tensor (..., q, {self._num_inputs}), got {shape}.")
        return super().posterior(X, *args, **kwargs)
