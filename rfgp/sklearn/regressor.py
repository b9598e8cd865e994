"""The base class of the regressors: a fitted model, with predictions in the shapes of scikit-learn."""

import warnings
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from rfgp.errors import ConstantTargetWarning, InvalidArgumentError, called
from rfgp.gp import GP
from rfgp.messages import check_count
from rfgp.sklearn.checks import resolve_seed
from rfgp.sklearn.targets import Targets


class ProcessRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator, ABC):
    """A regressor with a model `gp_`.

    A subclass makes the model and reads inputs.

    Examples:
        >>> from rfgp.sklearn import GPRegressor, GraphGPRegressor
        >>> issubclass(GPRegressor, ProcessRegressor), issubclass(GraphGPRegressor, ProcessRegressor)
        (True, True)
    """

    gp_: GP | None
    fixed: Any
    max_iter: int | None

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Return the posterior mean, alone or with the standard deviation or the covariance.

        These do not include the noise of an observation. `gp_.predict(X).observed()` is the distribution of an
        observation.

        Args:
            X: Rows (n, d), or n labels of nodes.
            return_std: Whether to return the standard deviation as well.
            return_cov: Whether to return the covariance as well. Only one of the two can be True.

        Returns:
            The mean (n,), or (n, k) for k outputs. With `return_std` a pair of the mean and the standard deviation of
            the same shape. With `return_cov` a pair of the mean and the covariance (n, n), or (n, n, k).

        Raises:
            sklearn.exceptions.NotFittedError: If the model is not fitted.
            InvalidArgumentError: If both `return_std` and `return_cov` are True.
            ValueError: If X cannot be used.
        """
        if return_std and return_cov:
            raise InvalidArgumentError("Ask for return_std or for return_cov, not for both.")
        check_is_fitted(self)
        inputs, whole = self._read_new(X), self._targets.whole
        n, found = len(inputs), None if self.gp_ is None else self._mean_function(inputs)
        mean = whole(None if found is None else found.mean, (n,), self._targets.means)
        if return_std:
            return mean, whole(None if found is None else found.std, (n,), 0.0)
        if return_cov:
            return mean, whole(None if found is None else found.covariance, (n, n), 0.0)
        return mean

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Any:
        """Return draws of the mean function at points from its joint posterior distribution.

        Args:
            X: Rows (n, d), or n labels of nodes.
            n_samples: The number s of draws.
            random_state: The seed, or a `numpy.random.RandomState` that draws one. If None, the seed is from the
                system.

        Returns:
            Draws (n, s), or (n, k, s) for k outputs.

        Raises:
            NotFittedError: If the estimator is not fitted (raised by scikit-learn).
            InvalidArgumentError: If n_samples is not a positive integer, or `random_state` has a wrong type.
            ValueError: If X cannot be used.
        """
        check_is_fitted(self)
        inputs, count, seed = self._read_new(X), check_count("n_samples", n_samples), resolve_seed(random_state)
        learned = None if self.gp_ is None else self._mean_function(inputs).sample(count, seed=seed)
        return np.moveaxis(self._targets.whole(learned, (count, len(inputs)), self._targets.means), 0, -1)

    @abstractmethod
    def _read_new(self, X: Any) -> Any:
        """Return checked inputs for the process, (n, d) or n labels."""

    def _mean_function(self, inputs: Any) -> Any:
        """Return the distribution of the mean of an observation at checked inputs: that of the latent function."""
        assert self.gp_ is not None
        return self.gp_.predict(inputs)

    def _learn(
        self,
        gp: GP,
        X: Any,
        y: Any,  # (n,) or (n, k)
        weight: Any,  # (n,)
    ) -> Self:
        """Fit the model to the outputs that are not constant."""
        targets = Targets.of(y)
        if not bool(targets.varies.all()):
            _warn_of_constants(targets)
        if bool(targets.varies.any()):
            learn(self, gp, X, targets.learned(y), sample_weight=weight)
        else:
            self.gp_, self.log_marginal_likelihood_value_, self.n_iter_ = None, float("nan"), 0
        self._targets = targets
        return self


NAMES: dict[str, str | None] = {
    "max_iterations": "max_iter",
    "num_walkers": "n_walkers",
    "degree": None,
    "rank": None,
}
"""The names of the models' arguments in these estimators. None if they cannot be given."""


def learn(estimator: Any, gp: GP, X: Any, y: Any, **given: Any) -> None:
    """Fit the model of an estimator, and store the results in the estimator.

    Args:
        estimator: The estimator, with `fixed` and `max_iter`. It gets `gp_`, `log_marginal_likelihood_value_` and
            `n_iter_`.
        gp: The model of the estimator.
        X: Inputs, (n, d) or n labels.
        y: Targets, (n,) or (n, k).
        given: Other arguments of `rfgp.GP.fit`.
    """
    most = None if estimator.max_iter is None else check_count("max_iter", estimator.max_iter, least=0)
    with called(**NAMES):
        gp.fit(X, y, fixed=estimator.fixed, max_iterations=most, **given)
    report = gp.fit_report
    assert report is not None
    estimator.gp_ = gp
    estimator.log_marginal_likelihood_value_, estimator.n_iter_ = report.log_marginal_likelihood, report.iterations


def _warn_of_constants(targets: Targets) -> None:
    constant = np.flatnonzero(~targets.varies)
    subject = "The target is" if targets.is_vector else f"Outputs {', '.join(map(str, constant))} of y are"
    values = ", ".join(f"{value:g}" for value in targets.means[constant])
    message = (
        f"{subject} constant ({values}), so the variance is unknown. The constant is predicted everywhere, with "
        "standard deviation 0, which is too small."
    )
    warnings.warn(ConstantTargetWarning(message), stacklevel=4)
