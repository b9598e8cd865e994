"""What the regressors have in common: a process that is fitted, and predictions as scikit-learn shapes them."""

import warnings
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from rfgp.counts import check_count
from rfgp.errors import ConstantTargetWarning, InvalidArgumentError, called
from rfgp.models.process import Process
from rfgp.sklearn.checks import resolve_seed
from rfgp.sklearn.targets import Targets


class ProcessRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator, ABC):
    """A regressor around a process `gp_`; a subclass says how it is made, and how inputs are read."""

    gp_: Process[Any] | None
    fixed: Any
    max_iter: int | None

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """Return the mean of the latent function, and how sure it is.

        The deviation and the covariance are those of the latent function, without the noise of an observation. For the
        law of an observation there is `gp_.predict(X).observed()`.

        Args:
            X: Rows (n, d), or n labels of nodes.
            return_std: Return the standard deviation too.
            return_cov: Return the covariance too; not both.

        Returns:
            The mean (n,), or (n, k) for k outputs; or a pair, the mean and the standard deviation, shaped as the mean,
            or the covariance (n, n), or (n, n, k).

        Raises:
            NotFittedError: scikit-learn's, before `fit`.
            InvalidArgumentError: both are asked for.
            ValueError: X cannot be used.
        """
        if return_std and return_cov:
            raise InvalidArgumentError("Ask for return_std or for return_cov, not for both.")
        check_is_fitted(self)
        inputs, whole = self._read_new(X), self._targets.whole
        n, law = len(inputs), None if self.gp_ is None else self.gp_.predict(inputs)
        mean = whole(None if law is None else law.mean, (n,), self._targets.means)
        if return_std:
            return mean, whole(None if law is None else np.sqrt(law.variance), (n,), 0.0)
        if return_cov:
            return mean, whole(None if law is None else law.covariance, (n, n), 0.0)
        return mean

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Any:
        """Draw from the joint law of the latent function at some points.

        Args:
            X: Rows (n, d), or n labels of nodes.
            n_samples: s.
            random_state: An integer, a `numpy.random.RandomState`, or None for a seed from the system.

        Returns:
            (n, s), or (n, k, s) for k outputs.

        Raises:
            NotFittedError: scikit-learn's, before `fit`.
            InvalidArgumentError: s is not a positive integer, or `random_state` is none.
            ValueError: X cannot be used.
        """
        check_is_fitted(self)
        inputs, count, seed = self._read_new(X), check_count("n_samples", n_samples), resolve_seed(random_state)
        learned = None if self.gp_ is None else self._sample(inputs, count, seed)
        return np.moveaxis(self._targets.whole(learned, (count, len(inputs)), self._targets.means), 0, -1)

    @abstractmethod
    def _read_new(self, X: Any) -> Any:
        """Return checked inputs for the process, (n, d) or n labels."""

    @abstractmethod
    def _sample(self, inputs: Any, count: int, seed: int) -> Any:
        """Return draws at n checked inputs, (s, n) or (s, n, k)."""

    def _learn(
        self,
        gp: Process[Any],
        X: Any,
        y: Any,  # (n,) or (n, k)
        weight: Any,  # (n,)
    ) -> Self:
        """Fit the process to the outputs that are not constant."""
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
    "num_frequencies": "n_frequencies",
    "num_walkers": "n_walkers",
    "degree": None,
    "rank": None,
}
"""What the arguments of the models are called here; None: they cannot be given."""


def learn(estimator: Any, gp: Process[Any], X: Any, y: Any, **given: Any) -> None:
    """Fit the process of an estimator, and set down what that came to.

    Args:
        estimator: With `fixed` and `max_iter`; gets `gp_`, `log_marginal_likelihood_value_` and `n_iter_`.
        gp: Its process.
        X: Inputs, (n, d) or n labels.
        y: Targets, (n,) or (n, k).
        given: Else for `Process.fit`.
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
    what = "The target is" if targets.is_vector else f"Outputs {', '.join(map(str, constant))} of y are"
    message = (
        f"{what} constant ({', '.join(f'{value:g}' for value in targets.means[constant])}), so how far it can stray is "
        "unknown. This constant is predicted everywhere, with standard deviation 0, which is too sure."
    )
    warnings.warn(ConstantTargetWarning(message), stacklevel=4)
