"""The sparse-spectrum Gaussian process of counts as a scikit-learn regressor."""

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import d2_tweedie_score
from sklearn.utils.validation import check_is_fitted, column_or_1d

from rfgp.couplings import Coupling
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.likelihoods import Likelihood, NegativeBinomial, Poisson, by_name
from rfgp.models import SparseSpectrumGP
from rfgp.parameters import Hyperprior
from rfgp.sklearn.checks import read_new, read_rows
from rfgp.sklearn.regressor import learn
from rfgp.sklearn.table import of_likelihood
from rfgp.spectra import Spectrum


class RandomFeatureGPCountRegressor(RegressorMixin, BaseEstimator):
    """Gaussian process regression of counts 0, 1, 2, ... whose kernel is estimated by coupled random features.

    An adapter of `rfgp.SparseSpectrumGP` with a likelihood of counts: with the same seed and data both give the same
    numbers. The logarithm of the mean is the process. scikit-learn's `PoissonRegressor` has a straight line in its
    place. Hyperparameters, the dispersion among them, are learned by the approximate marginal likelihood, up to 10,000
    rows with 128 frequencies at most. A weight is a number of repetitions.

    Args:
        n_frequencies: m; Fourier features number 2m.
        coupling: The frequencies' coupling, one of `rfgp.couplings.names()` or a `rfgp.couplings.Coupling`.
        random_state: An integer, which is the seed of the process; a `numpy.random.RandomState`, of which each fit
            draws one; or None for one from the system. numpy's global state is never used.
        likelihood: "negative-binomial", whose dispersion is learned, "poisson", or such an object of
            `rfgp.likelihoods`.
        approximation: "laplace" or "variational", as for `rfgp.TableGP`; None: the former.
        spectrum: The kernel's spectrum, by name or as a `rfgp.spectra.Spectrum`.
        features: "fourier", or "laplace" (positive; Gaussian spectrum only).
        ard: One lengthscale per column, or one for all.
        standardize: Whether inputs are standardised inside.
        lengthscale: Starting value in the units of X, () or (d,); None: from the data.
        outputscale: Starting value of the latent variance; None: from the logarithms of the counts.
        priors: Log densities (objects with `log_prob`) of named hyperparameters.
        fixed: Names of hyperparameters that keep their starting values.
        max_iter: Of the optimiser; None: 500.

    Attributes:
        gp_: The fitted `rfgp.SparseSpectrumGP`; `gp_.predict(X).observed()` is the law of counts.
        log_marginal_likelihood_value_: The approximate log probability of the counts, total nats.
        n_iter_: Iterations of the optimiser.
        n_features_in_: d.
        feature_names_in_: The columns' names, where X had some.
        used_columns_: Positions of the columns that are used if an index of pandas is left out, else None.
    """

    gp_: SparseSpectrumGP

    def __init__(
        self,
        n_frequencies: int = 512,
        coupling: str | Coupling = "energy",
        random_state: Any = None,
        *,
        likelihood: str | Likelihood = "negative-binomial",
        spectrum: str | Spectrum = "gaussian",
        features: str = "fourier",
        ard: bool = True,
        standardize: bool = True,
        lengthscale: Any = None,
        outputscale: float | None = None,
        priors: Mapping[str, Hyperprior] | None = None,
        fixed: Iterable[str] = (),
        max_iter: int | None = None,
        approximation: str | None = None,
    ) -> None:
        self.n_frequencies = n_frequencies
        self.coupling = coupling
        self.random_state = random_state
        self.likelihood = likelihood
        self.approximation = approximation
        self.spectrum = spectrum
        self.features = features
        self.ard = ard
        self.standardize = standardize
        self.lengthscale = lengthscale
        self.outputscale = outputscale
        self.priors = priors
        self.fixed = fixed
        self.max_iter = max_iter

    def fit(self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None) -> Self:
        """Learn the hyperparameters and condition on the data.

        Args:
            X: Rows (n, d), n at least 2.
            y: Counts (n,).
            sample_weight: How often each row counts (n,), not negative; None: once.
            exposure: What the means are in proportion to (n,), positive: times, areas, populations; None: ones.

        Returns:
            The estimator.

        Raises:
            InvalidArgumentError: an option that there is not, or a likelihood that is not of counts.
            ValueError: the data cannot be used, such as targets that are no counts.

        Warns:
            RfgpWarning: as `rfgp.SparseSpectrumGP.fit`.
        """
        likelihood = by_name(self.likelihood)
        if not isinstance(likelihood, Poisson | NegativeBinomial):
            raise InvalidArgumentError(f"likelihood must be of counts, got {self.likelihood!r}.")
        gp = of_likelihood(self, likelihood)
        counts = column_or_1d(y, warn=True)
        if np.ndim(exposure) and np.shape(exposure) != counts.shape:
            raise DataError(
                f"exposure must be one number or {len(counts)}, a row each, got shape {np.shape(exposure)}."
            )
        X, rows, weight, times = read_rows(self, X, counts, sample_weight, exposure)
        learn(self, gp, X, rows, sample_weight=weight, exposure=times)
        return self

    def predict(self, X: Any, exposure: Any = None) -> Any:
        """Return the means of counts, (n,), over the posterior of the process, not at its mean.

        Args:
            X: Rows (n, d).
            exposure: Of these rows, () or (n,), positive; None: ones.

        Raises:
            NotFittedError: scikit-learn's, before `fit`.
            ValueError: X or the exposures cannot be used.
        """
        check_is_fitted(self)
        law = self.gp_.predict(read_new(self, X))
        return (law.observed() if exposure is None else law.observed(exposure)).mean

    def score(self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None) -> float:
        """Return the share of Poisson's deviance that is explained, D^2, at most 1; of a constant it is 0.

        Args:
            X: Rows (n, d).
            y: Counts (n,).
            sample_weight: How often each row counts (n,); None: once.
            exposure: As for `predict`.
        """
        return float(d2_tweedie_score(y, self.predict(X, exposure), sample_weight=sample_weight, power=1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags
