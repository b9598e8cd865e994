"""Counts as observations of `rfgp.GP`, as a scikit-learn regressor."""

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import d2_tweedie_score
from sklearn.utils.validation import check_is_fitted, column_or_1d

from rfgp.errors import DataError, InvalidArgumentError
from rfgp.gp import GP
from rfgp.likelihoods import Likelihood
from rfgp.sklearn.checks import read_rows
from rfgp.sklearn.options import GPOptions
from rfgp.sklearn.regressor import learn


class GPCountRegressor(GPOptions, RegressorMixin, BaseEstimator):
    """Gaussian process regression of counts 0, 1, 2, ..., by `rfgp.GP`.

    The logarithm of the mean count is a Gaussian process, where scikit-learn's `PoissonRegressor` has a linear
    function. With the same seed and data `rfgp.GP` gives the same numbers. By default a fit selects the kernel, as for
    `GPClassifier`.

    Args:
        kernel: As for `GPRegressor`, like the other options that are not listed here.
        approximation: As for `GPRegressor`.
        likelihood: "negative-binomial" with a learned dispersion, "poisson", or another likelihood of counts. If
            None or "auto", "negative-binomial".
        inference: "laplace" or "variational". If None, "laplace".
        standardize: Whether columns of numbers are mapped to mean 0 and standard deviation 1.

    Attributes:
        gp_: The fitted `rfgp.GP`. `gp_.predict(X).observed()` is the distribution of counts.
        selection_: The candidates that the fit compared, with their scores. None if the kernel is given.
        log_marginal_likelihood_value_: The approximate log probability of the counts in total nats.
        n_iter_: The number of iterations of the optimizer.
        n_features_in_: The number d of columns.
        feature_names_in_: The names of the columns, if X had some.

    Examples:
        >>> import numpy as np
        >>> from rfgp import kernels as k
        >>> from rfgp.sklearn import GPCountRegressor
        >>> X = np.linspace(0, 6, 80)[:, None]
        >>> y = np.random.default_rng(0).poisson(np.exp(2 + np.sin(X[:, 0])))
        >>> model = GPCountRegressor(k.RBF(), likelihood="poisson", random_state=0).fit(X, y)
        >>> bool(model.score(X, y) > 0.6)
        True
        >>> model.predict([[1.0]]).shape
        (1,)
    """

    gp_: GP
    usual_likelihood = "negative-binomial"

    def fit(self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None) -> Self:
        """Select automatic options, learn the hyperparameters, and condition on the data.

        Args:
            X: Rows (n, d), n at least 2: an array of numbers, or a dataframe.
            y: Counts (n,).
            sample_weight: Non-negative weights (n,). A weight w counts a row w times. If None, ones.
            exposure: Positive times, areas or populations (n,), to which the means are proportional. If None, ones.

        Returns:
            The estimator.

        Raises:
            InvalidArgumentError: If an option has a wrong value, such as a likelihood that is not of counts.
            ValueError: If the data cannot be used, such as targets that are not counts.

        Warns:
            RfgpWarning: As for `rfgp.GP.fit`.
        """
        gp = self._process(_of_counts(self._likelihood))
        counts = column_or_1d(y, warn=True)
        if np.ndim(exposure) and np.shape(exposure) != counts.shape:
            raise DataError(f"exposure must be one number or {len(counts)}, one a row, got shape {np.shape(exposure)}.")
        X, rows, weight, times = read_rows(self, X, counts, sample_weight, exposure)
        learn(self, gp, X, rows, sample_weight=weight, exposure=times)
        return self

    def predict(self, X: Any, exposure: Any = None) -> Any:
        """Return the mean counts (n,), averaged over the posterior of the latent function.

        Args:
            X: Rows (n, d).
            exposure: The exposures of these rows, () or (n,), positive. If None, ones.

        Raises:
            NotFittedError: If the estimator is not fitted (raised by scikit-learn).
            ValueError: If X or the exposures cannot be used.
        """
        check_is_fitted(self)
        latent = self.gp_.predict(self._read_new(X))
        return (latent.observed() if exposure is None else latent.observed(exposure)).mean

    def score(self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None) -> float:
        """Return D^2, the explained fraction of the Poisson deviance.

        It is at most 1, and 0 for the mean of y.

        Args:
            X: Rows (n, d).
            y: Counts (n,).
            sample_weight: The weights (n,). If None, ones.
            exposure: As for `predict`. It must be given if the estimator was fitted with exposures.

        Raises:
            InvalidArgumentError: If the estimator was fitted with exposures, and none are given.
        """
        check_is_fitted(self)
        if exposure is None and self.gp_.state.has_exposures:
            raise InvalidArgumentError(
                "exposure must be given to score an estimator that was fitted with exposures, got None. Pass those of "
                "these rows, or exposure=1.0."
            )
        return float(d2_tweedie_score(y, self.predict(X, exposure), sample_weight=sample_weight, power=1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


def _of_counts(found: Likelihood) -> Likelihood:
    """Return a likelihood whose observations are counts.

    Raises:
        InvalidArgumentError: If the observations are not counts.
    """
    if not (found.takes_exposure and found.is_discrete):
        raise InvalidArgumentError(
            f'likelihood must be of counts, got {found!r}. Use "negative-binomial" or "poisson", or for other '
            "numbers GPRegressor."
        )
    return found
