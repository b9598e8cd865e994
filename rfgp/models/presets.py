"""Gaussian processes with one stationary kernel: by random features, and exact."""

from collections.abc import Mapping
from typing import Any

import torch

from rfgp import couplings, random, spectra
from rfgp.approximations import Exact, RandomFeatures, Vecchia
from rfgp.approximations.role import FeatureMap
from rfgp.likelihoods import Likelihood
from rfgp.local.kinds import kind_of
from rfgp.models.gp import GP
from rfgp.parameters import Hyperprior
from rfgp.regression.changes import stationary_model
from rfgp.regression.spec import ModelSpec
from rfgp.torch_context import with_torch_defaults

_SHARED = (
    "ard",
    "standardize",
    "lengthscale",
    "outputscale",
    "noise",
    "local_lengthscale",
    "local_outputscale",
    "likelihood",
    "inference",
    "priors",
    "dtype",
)
"""The arguments that both classes have."""


def _argument(model: GP, name: str, default: Any) -> Any:
    """Return an argument of the constructor, or the default if it is not known.

    Args:
        model: The model.
        name: The name of the argument.
        default: The default.
    """
    options = model.spec.options
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


class SparseSpectrumGP(GP):
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
    argument = _argument

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
    ) -> None:
        seed = random.resolve_seed(seed)
        named = locals()
        first = RandomFeatures(
            num_frequencies, kind=kind, coupling=coupling, learn_frequencies=learn_frequencies, seed=seed
        )
        second = Vecchia(num_neighbors, condition_on=condition_on, seed=seed)
        shared = {name: named[name] for name in (*_SHARED, "seed")}
        self._begin(ModelSpec(stationary_model(spectrum, first, local, second, **shared)))

    @property
    def feature_map(self) -> FeatureMap:
        """The feature map, for standardized inputs over the lengthscale.

        Raises:
            NotFittedError: If there are no data yet.
        """
        feature_map: FeatureMap = self.state.spec.term_priors[0].basis.spectral.feature_map
        return feature_map


class ExactGP(GP):
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
    argument = _argument

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
    ) -> None:
        named = locals()
        shared = {name: named[name] for name in _SHARED}
        self._begin(ModelSpec(stationary_model(spectrum, Exact(), local, seed=0, **shared)))
