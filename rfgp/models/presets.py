"""Gaussian processes on tables with one stationary kernel: `GP` through random features, and exact."""

from collections.abc import Mapping
from typing import Any

import torch

from rfgp import couplings, random, spectra
from rfgp.ambient import plain
from rfgp.approximations import Exact, RandomFeatures, Vecchia
from rfgp.approximations.parts import FeatureMap, SpectralPart
from rfgp.approximations.weights import WeightTerm
from rfgp.likelihoods import Likelihood
from rfgp.local.kinds import kind_of
from rfgp.models.gp import GP
from rfgp.models.process import Process
from rfgp.parameters import Hyperprior
from rfgp.regression.spec import ModelSpec
from rfgp.regression.stationary import stationary_model

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
    """Return an argument with which a model was made, from its kernel and approximations."""
    options = model.family.options
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
    """A Gaussian process with a stationary kernel over all columns, by random features.

    It is `GP` of a kernel named after its class, "rbf" for the Gaussian one, with `rfgp.RandomFeatures`. With `local` a
    second term of that name with nearest neighbours takes up what is local, `rfgp.Vecchia`.

    Args:
        spectrum: The kernel's spectrum, by name ("gaussian", "matern12" to "matern52", those of `rfgp.spectra`) or as
            an object.
        num_frequencies: The number m of frequencies; there are 2 m Fourier features.
        kind: "fourier", or "laplace" for positive features of the Gaussian kernel.
        coupling: How the frequencies depend on each other, as for `rfgp.RandomFeatures`.
        learn_frequencies: Whether a fit changes the frequencies.
        ard: Whether each column has a lengthscale of its own.
        standardize: Whether inputs and targets are mapped to mean 0 and standard deviation 1.
        lengthscale: Starting value in the columns' units, () or (d,); with ard=False and standardize=True a number
            counts in standard deviations. If None, several are compared.
        outputscale: Starting value of the variance. If None, the data decide.
        noise: Starting value of the noise variance. If None, the data decide.
        priors: Log densities (objects with `log_prob`) by path or unique suffix.
        seed: The seed of everything random. If None, one from the system.
        dtype: The type of the rows. If None, that of the data.
        local: The kernel of the second term: "matern12", "matern32", "matern52", "gaussian", or None for none.
        num_neighbors: The most neighbours of a row, for `rfgp.Vecchia`.
        condition_on: What they are: "responses", "latent" values or "auto".
        local_lengthscale: Starting value of the second term.
        local_outputscale: Starting value of the second term.
        likelihood: As for `rfgp.GP`.
        inference: As for `rfgp.GP`.

    Sources: sparse spectrum processes, Lazaro-Gredilla et al. (2010); couplings as named there.

    Raises:
        InvalidArgumentError: an unknown name, or m not a positive integer.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> X = np.linspace(0, 10, 200)[:, None]
        >>> gp = rfgp.SparseSpectrumGP(num_frequencies=32, seed=0).fit(X, np.sin(X[:, 0]))
        >>> gp.hyperparameters.names
        ('rbf.lengthscale', 'rbf.outputscale', 'noise', 'mean')
    """

    approximation_class = RandomFeatures

    @plain()
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
        Process.__init__(self, ModelSpec(stationary_model(spectrum, first, local, second, **shared)))

    def argument(self, name: str, default: Any) -> Any:
        """Return an argument with which the model was made."""
        return _argument(self, name, default)

    @property
    def feature_map(self) -> FeatureMap:
        """The feature map with its draw, for standardised inputs divided by the lengthscale.

        Raises:
            NotFittedError: nothing is drawn before the first data.
        """
        self._needed()
        term = self.family.priors[0]
        assert isinstance(term, WeightTerm)
        part = term.parts[0]
        assert isinstance(part, SpectralPart)
        return part.feature_map


class ExactGP(GP):
    """A Gaussian process with a stationary kernel over all columns, exactly: O(n^3) time, O(n^2) memory.

    It is `GP` of a kernel named after its class, "rbf" for the Gaussian one, with `rfgp.Exact`.

    Args:
        spectrum: As for `SparseSpectrumGP`, like the other options but for `local`.
        ard: Whether each column has a lengthscale of its own.
        standardize: Whether inputs and targets are mapped to mean 0 and standard deviation 1.
        lengthscale: Starting value. If None, several are compared.
        outputscale: Starting value of the variance.
        noise: Starting value of the noise variance.
        priors: Log densities (objects with `log_prob`) by path or unique suffix.
        dtype: The type of the rows. If None, that of the data.
        local: The kernel of a second term, named "local", or None for none.
        local_lengthscale: Starting value of the second term.
        local_outputscale: Starting value of the second term.
        likelihood: As for `rfgp.GP`.
        inference: As for `rfgp.GP`.

    Raises:
        InvalidArgumentError: an unknown name.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> X = np.linspace(0, 10, 50)[:, None]
        >>> gp = rfgp.ExactGP("matern32").fit(X, np.sin(X[:, 0]))
        >>> [type(term.approximation).__name__ for term in gp.terms.values()]
        ['Exact']
    """

    approximation_class = Exact

    @plain()
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
        Process.__init__(self, ModelSpec(stationary_model(spectrum, Exact(), local, seed=0, **shared)))

    def argument(self, name: str, default: Any) -> Any:
        """Return an argument with which the model was made."""
        return _argument(self, name, default)
