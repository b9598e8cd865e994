"""Gaussian processes with one stationary kernel: by random features, and exact."""

from collections.abc import Mapping
from typing import Any

import torch

from rfgp import couplings, random, spectra
from rfgp.approximations import Approximation, Exact, RandomFeatures, Vecchia
from rfgp.approximations.role import FeatureMap
from rfgp.errors import InvalidArgumentError
from rfgp.gp import GP
from rfgp.kernels import RBF, Kernel, Matern, RationalQuadratic, Stationary
from rfgp.likelihoods import Likelihood
from rfgp.local.kinds import KINDS, kind_of, read_spectrum, spectrum_of
from rfgp.parameters import Hyperprior
from rfgp.torch_context import with_torch_defaults

LOCAL = "local"
"""The name of the second term."""


class _StationaryGP(GP):
    """A Gaussian process with one stationary kernel over all columns, or a sum of two."""

    def _set_terms(
        self,
        spectrum: str | spectra.Spectrum,
        approximations: tuple[Approximation, Approximation],
        starts: tuple[Any, float | None, float | None],
        local: tuple[str | None, Any, float | None],
        ard: bool,
        priors: Mapping[str, Hyperprior | None] | None,
        likelihood: str | Likelihood,
        **options: Any,
    ) -> None:
        """Set the terms and the other options.

        Args:
            spectrum: The spectrum of the first kernel, or its name.
            approximations: The approximations of both terms.
            starts: The starting lengthscale and variance of the first term, and the starting noise. Those that are None
                come from the data.
            local: The second kernel by name, or None, and its starting lengthscale and variance.
            ard: Whether each column has its own lengthscale.
            priors: Log densities by dotted name or unique suffix. Names without a term are those of the first.
            likelihood: The likelihood, or its name.
            **options: Other options of `rfgp.GP`.

        Raises:
            InvalidArgumentError: If a name is unknown, or a starting value is for a second term that does not exist.
        """
        (lengthscale, outputscale, noise), (kind, local_lengthscale, local_outputscale) = starts, local
        kernel = _kernel_of(read_spectrum(spectrum), ard, lengthscale)
        name = str(kernel.terms()[0].name)
        if kind is not None and kind not in KINDS:
            raise InvalidArgumentError(f"local must be None or one of {', '.join(KINDS)}, got {kind!r}.")
        if kind is None and not (local_lengthscale is None and local_outputscale is None):
            raise InvalidArgumentError("local_lengthscale and local_outputscale require a second term, got local=None.")
        of_first: tuple[str, ...] = ()
        if kind is not None:
            kernel += _kernel_of(spectrum_of(kind), ard, local_lengthscale, LOCAL)
            of_first = "lengthscale", "outputscale"
        given = {f"{name}.outputscale": outputscale, "noise": noise, f"{LOCAL}.outputscale": local_outputscale}
        super().__init__(
            kernel,
            likelihood,
            dict(zip((term.name for term in kernel.terms()), approximations, strict=False)),
            start={path: value for path, value in given.items() if value is not None},
            priors={f"{name}.{path}" if path in of_first else path: prior for path, prior in (priors or {}).items()},
            **options,
        )

    def argument(self, name: str, default: Any) -> Any:
        """Return an argument of the constructor, or the default if it is not known.

        Args:
            name: The name of the argument.
            default: The default.
        """
        options = self.spec.options
        first, *others = options.kernel.terms()
        factor, used = first.factors[0], options.approximations
        known = {
            **{own: getattr(factor, own) for own in ("ard", "lengthscale")},
            "spectrum": factor.measure,
            "outputscale": options.start.get(f"{first.name}.outputscale"),
            "noise": options.start.get("noise"),
            "local": next((kind_of(term.factors[0].measure) for term in others), None),
        }
        own = getattr(used.get(str(first.name)), name, default) if isinstance(used, Mapping) else default
        return known.get(name, getattr(options, name, own))


def _kernel_of(spectrum: spectra.Spectrum, ard: bool, lengthscale: Any, name: str | None = None) -> Kernel:
    """Return the stationary kernel with a spectrum over all columns, by default with the name of its class."""
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


class SparseSpectrumGP(_StationaryGP):
    """A Gaussian process with a stationary kernel by random features.

    It is `GP` with `rfgp.RandomFeatures` for one term, named after its kernel, such as "rbf". With `local` there is a
    second term named "local" by nearest neighbors, `rfgp.Vecchia`.

    Args:
        spectrum: The spectrum of the kernel: a name such as "gaussian" or "matern32", or an object of `rfgp.spectra`.
        num_frequencies: The number m of frequencies, which give 2 m Fourier features. The default is 512.
        kind: "fourier", or "laplace" for positive features of the Gaussian kernel.
        coupling: The joint distribution of the frequencies, as for `rfgp.RandomFeatures`.
        learn_frequencies: Whether a fit changes the frequencies.
        ard: Whether each column has a lengthscale of its own.
        standardize: Whether inputs and targets are scaled to mean 0 and standard deviation 1.
        lengthscale: Starting value in the columns' units, () or (d,). With ard=False and standardize=True it is in
            standard deviations. If None, several are compared.
        outputscale: Starting value of the variance. If None, it depends on the data.
        noise: Starting value of the noise variance. If None, it depends on the data.
        priors: As for `rfgp.GP`.
        seed: The seed of all random numbers. If None, one from the system.
        dtype: The dtype of the rows. If None, that of the data.
        local: The kernel of the second term: "matern12", "matern32", "matern52" or "gaussian". If None, there is none.
        num_neighbors: The number of neighbors of a row, as for `rfgp.Vecchia`.
        condition_on: "responses", "latent" or "auto", as for `rfgp.Vecchia`.
        local_lengthscale: Starting lengthscale of the second term. If None, it depends on the data.
        local_outputscale: Starting variance of the second term. If None, it depends on the data.
        likelihood: As for `rfgp.GP`.
        inference: As for `rfgp.GP`.
        hyperparameter_posterior: As for `rfgp.GP`.

    Source: Lazaro-Gredilla et al. (2010), Sparse spectrum Gaussian process regression.

    Raises:
        InvalidArgumentError: If a name is unknown, or m is not a positive integer.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> X = np.linspace(0, 10, 200)[:, None]
        >>> gp = rfgp.SparseSpectrumGP(num_frequencies=32, seed=0).condition(X, np.sin(X[:, 0]))
        >>> gp.hyperparameters.names
        ('rbf.lengthscale', 'rbf.outputscale', 'noise', 'mean')
    """

    approximation_class = RandomFeatures

    @with_torch_defaults()
    def __init__(
        self,
        spectrum: str | spectra.Spectrum = "gaussian",
        num_frequencies: int = 512,
        kind: str = "fourier",
        coupling: str | couplings.Coupling = "energy",
        learn_frequencies: bool = False,
        ard: bool = True,
        standardize: bool = True,
        lengthscale: Any = None,
        outputscale: float | None = None,
        noise: float | None = None,
        priors: Mapping[str, Hyperprior | None] | None = None,
        seed: int | None = None,
        dtype: torch.dtype | None = None,
        *,
        local: str | None = None,
        num_neighbors: int = 30,
        condition_on: str = "auto",
        local_lengthscale: Any = None,
        local_outputscale: float | None = None,
        likelihood: str | Likelihood = "gaussian",
        inference: str | None = None,
        hyperparameter_posterior: str = "point",
    ) -> None:
        seed = random.resolve_seed(seed)
        first = RandomFeatures(
            num_frequencies, kind=kind, coupling=coupling, learn_frequencies=learn_frequencies, seed=seed
        )
        approximations = first, Vecchia(num_neighbors, condition_on=condition_on, seed=seed)
        starts, second = (lengthscale, outputscale, noise), (local, local_lengthscale, local_outputscale)
        options: dict[str, Any] = {"inference": inference, "standardize": standardize, "seed": seed, "dtype": dtype}
        options["hyperparameter_posterior"] = hyperparameter_posterior
        self._set_terms(spectrum, approximations, starts, second, ard, priors, likelihood, **options)

    @property
    def feature_map(self) -> FeatureMap:
        """The feature map, for standardized inputs over the lengthscale.

        Raises:
            NotFittedError: If there are no data yet.
        """
        feature_map: FeatureMap = self.state.spec.term_priors[0].basis.spectral.feature_map
        return feature_map


class ExactGP(_StationaryGP):
    """An exact Gaussian process with a stationary kernel over all columns.

    It is `GP` with `rfgp.Exact` for one term, named after its kernel, such as "rbf". It takes O(n^3) time and O(n^2)
    memory for n rows.

    Args:
        spectrum: As for `SparseSpectrumGP`.
        ard: Whether each column has a lengthscale of its own.
        standardize: Whether inputs and targets are scaled to mean 0 and standard deviation 1.
        lengthscale: As for `SparseSpectrumGP`.
        outputscale: As for `SparseSpectrumGP`.
        noise: As for `SparseSpectrumGP`.
        priors: As for `rfgp.GP`.
        dtype: The dtype of the rows. If None, that of the data.
        local: The kernel of a second exact term named "local". If None, there is none.
        local_lengthscale: Starting lengthscale of the second term. If None, it depends on the data.
        local_outputscale: Starting variance of the second term. If None, it depends on the data.
        likelihood: As for `rfgp.GP`.
        inference: As for `rfgp.GP`.
        hyperparameter_posterior: As for `rfgp.GP`.

    Raises:
        InvalidArgumentError: If a name is unknown.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> X = np.linspace(0, 10, 50)[:, None]
        >>> gp = rfgp.ExactGP("matern32").fit(X, np.sin(X[:, 0]))
        >>> [type(term.approximation).__name__ for term in gp.terms.values()]
        ['Exact']
    """

    approximation_class = Exact

    @with_torch_defaults()
    def __init__(
        self,
        spectrum: str | spectra.Spectrum = "gaussian",
        ard: bool = True,
        standardize: bool = True,
        lengthscale: Any = None,
        outputscale: float | None = None,
        noise: float | None = None,
        priors: Mapping[str, Hyperprior | None] | None = None,
        dtype: torch.dtype | None = None,
        *,
        local: str | None = None,
        local_lengthscale: Any = None,
        local_outputscale: float | None = None,
        likelihood: str | Likelihood = "gaussian",
        inference: str | None = None,
        hyperparameter_posterior: str = "point",
    ) -> None:
        starts, second = (lengthscale, outputscale, noise), (local, local_lengthscale, local_outputscale)
        options: dict[str, Any] = {"inference": inference, "standardize": standardize, "seed": 0, "dtype": dtype}
        options["hyperparameter_posterior"] = hyperparameter_posterior
        self._set_terms(spectrum, (Exact(), Exact()), starts, second, ard, priors, likelihood, **options)
