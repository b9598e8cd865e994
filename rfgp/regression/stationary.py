"""Options of models with one or two stationary kernels over all columns."""

from collections.abc import Mapping
from typing import Any

import torch

from rfgp import spectra
from rfgp.approximations import Approximation
from rfgp.errors import InvalidArgumentError
from rfgp.kernels import RBF, Kernel, Matern, RationalQuadratic, Stationary
from rfgp.local import KINDS
from rfgp.local.kinds import read_spectrum, spectrum_of
from rfgp.parameters import Hyperprior
from rfgp.regression.spec import ModelOptions

LOCAL = "local"
"""The name of the second term."""


def kernel_of(spectrum: spectra.Spectrum, *, ard: bool, lengthscale: Any, name: str | None = None) -> Kernel:
    """Return the stationary kernel with a spectrum over all columns.

    Args:
        spectrum: The spectrum.
        ard: Whether each column has its own lengthscale.
        lengthscale: The starting lengthscale. If None, it comes from the data.
        name: The name of the term. If None, that of its class.
    """
    known: dict[str, Any] = {"ard": ard, "lengthscale": lengthscale}
    if isinstance(spectrum, spectra.Gaussian):
        kernel: Kernel = RBF(**known)
    elif isinstance(spectrum, spectra.Matern):
        kernel = Matern(nu=spectrum.nu, **known)
    elif isinstance(spectrum, spectra.RationalQuadratic):
        kernel = RationalQuadratic(alpha=spectrum.alpha, **known)
    else:
        kernel = Stationary(spectrum=spectrum, **known)
    return kernel.named(name or type(kernel).__name__.lower())


def stationary_model(
    spectrum: str | spectra.Spectrum,
    approximation: Approximation,
    local: str | None = None,
    local_approximation: Approximation | None = None,
    *,
    ard: bool = True,
    standardize: bool = True,
    lengthscale: Any = None,
    outputscale: float | None = None,
    noise: float | None = None,
    local_lengthscale: Any = None,
    local_outputscale: float | None = None,
    likelihood: Any = "gaussian",
    inference: str | None = None,
    priors: Mapping[str, Hyperprior | None] | None = None,
    seed: Any = None,
    dtype: torch.dtype | None = None,
) -> ModelOptions:
    """Return the options of a model with a stationary kernel, or a sum of two.

    The kernels are over all columns.

    Args:
        spectrum: The spectrum of the first kernel, or its name.
        approximation: The approximation of the first term.
        local: The second kernel by name. If None, there is one term.
        local_approximation: The approximation of the second term. If None, that of the first.
        ard: Whether each column has its own lengthscale. The default is True.
        standardize: Whether inputs and targets are mapped to mean 0 and standard deviation 1. The default is True.
        lengthscale: Starting lengthscale of the first term. If None, it comes from the data.
        outputscale: Starting output scale of the first term. If None, it comes from the data.
        noise: Starting noise variance. If None, it comes from the data.
        local_lengthscale: Starting lengthscale of the second term. If None, it comes from the data.
        local_outputscale: Starting output scale of the second term. If None, it comes from the data.
        likelihood: The likelihood, or its name.
        inference: "laplace" or "variational". If None, the default of the likelihood.
        priors: Log densities by dotted name or unique suffix. Names without a term are those of the first.
        seed: The random seed. If None, the system's entropy is used.
        dtype: The dtype of the rows. If None, that of the data.

    Raises:
        InvalidArgumentError: If a name is unknown, or a starting value is for a second term that does not exist.
    """
    main = kernel_of(read_spectrum(spectrum), ard=ard, lengthscale=lengthscale)
    name = str(main.terms()[0].name)
    kernel, approximations = main, {name: approximation}
    starts = {f"{name}.outputscale": outputscale, "noise": noise}
    if local is not None and local not in KINDS:
        raise InvalidArgumentError(f"local must be None or one of {', '.join(KINDS)}, got {local!r}.")
    if local is None and not (local_lengthscale is None and local_outputscale is None):
        raise InvalidArgumentError("local_lengthscale and local_outputscale require a second term, got local=None.")
    if local is not None:
        kernel = main + kernel_of(spectrum_of(local), ard=ard, lengthscale=local_lengthscale, name=LOCAL)
        approximations[LOCAL] = approximation if local_approximation is None else local_approximation
        starts[f"{LOCAL}.outputscale"] = local_outputscale
    of_first = () if local is None else ("lengthscale", "outputscale")
    return ModelOptions(
        kernel,
        likelihood,
        approximations,
        inference,
        standardize=standardize,
        start={path: value for path, value in starts.items() if value is not None},
        priors={f"{name}.{path}" if path in of_first else path: prior for path, prior in (priors or {}).items()},
        seed=seed,
        dtype=dtype,
    )
