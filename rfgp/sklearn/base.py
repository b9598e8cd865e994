"""The base of the estimators: checked data, and fitted models of numbers and of labels, as in scikit-learn.

For scikit-learn 1.4 and later. The chapter has, in this order: seeds, weights and rows; the outputs of an estimator;
and the base classes of all estimators, of regressors and of classifiers.
"""

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from inspect import signature
from typing import Any, Self

import narwhals as nw
import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MultiOutputMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from graphs.checks import is_number
from rfgp import random
from rfgp.columns.table import names_of
from rfgp.errors import ConstantTargetWarning, DataError, InvalidArgumentError, called
from rfgp.gp import GP
from rfgp.likelihoods import Likelihood
from rfgp.messages import check_count, counted
from rfgp.number_texts import is_identifier
from rfgp.rows import merge_repeats
from rfgp.rows.sources import constant_message, read_per_row

# --- Seeds, weights and rows ------------------------------------------------------------------------------------------

try:
    from sklearn.utils.validation import validate_data as validate_data
except ImportError:  # before scikit-learn 1.6 a method of the estimator

    def validate_data(estimator: Any, *data: Any, **checks: Any) -> Any:
        """Check X (n, d), and y if it is given, and keep or compare the number and names of the columns."""
        if checks.pop("skip_check_array", False):
            checks["cast_to_ndarray"] = False
        return estimator._validate_data(*data, **checks)


FLOATS = (np.float64, np.float32)
"""The types that are kept; others become the first."""


def resolve_seed(random_state: Any) -> int:
    """Return the seed of a `random_state`.

    numpy's global state is neither read nor changed.

    Args:
        random_state: An integer, which is the seed, or a `numpy.random.RandomState`, which draws one. If None, the seed
            is from the system.

    Raises:
        InvalidArgumentError: If the value is not such an integer, or has another type.

    Examples:
        >>> resolve_seed(7)
        7
    """
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    try:
        return random.resolve_seed(random_state)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            "random_state must be an integer from 0 to 2**63 - 1, a numpy.random.RandomState, or None, "
            f"got {random_state!r}."
        ) from error


def merge_rows(sample_weight: Any, *data: Any) -> tuple[Any, Any]:
    """Return the positions (m,) of distinct rows, and their weights (m,).

    The weights are None if all are 1.

    A fit stops near an optimum, not at it. Data that differ only in the order of their sums could therefore lead to
    different results on different processors. Rows with weights and written-out repetitions give the same numbers in
    the same order (`rfgp.rows.merge_repeats`).

    Args:
        sample_weight: The weights (n,). If None, ones.
        data: All inputs and targets, arrays (n,) or (n, k).

    Raises:
        DataError: If the weights cannot be used.

    Examples:
        >>> rows, weight = merge_rows(None, np.array([3.0, 1.0, 3.0]))
        >>> rows.tolist(), weight.tolist()
        ([0, 1], [2.0, 1.0])
    """
    weight, counts = _read_weights(sample_weight, len(data[0]))
    kept = np.flatnonzero(counts)
    columns = [_comparable(column) for part in data for column in part[kept].reshape(len(kept), -1).T]
    rows, weight = merge_repeats(columns, weight)
    return kept[rows], weight


def _comparable(
    column: Any,  # (n,)
) -> Any:
    """Return a column whose cells have an order: objects of several types as text."""
    return column if column.dtype.kind != "O" else np.array([repr(cell) for cell in column])


def _read_weights(sample_weight: Any, n: int) -> Any:
    """Return the positive weights (m,), and the mask (n,) of their rows. Without weights, the first result is None."""
    if sample_weight is None:
        return None, np.ones(n, dtype=bool)
    given = np.full(n, sample_weight) if is_number(sample_weight) else sample_weight
    numbers = read_per_row(given, "sample_weight", n, torch.zeros(()), positive=False)
    weight = np.asarray(numbers)
    if np.count_nonzero(weight) < 2:
        raise DataError("At least two weights of sample_weight must be positive. Rows of weight zero are left out.")
    return weight[weight > 0], weight > 0


def take_rows(data: Any, rows: NDArray[np.int64]) -> Any:
    """Return some rows of an array, a list, or a dataframe of pandas, polars or Arrow.

    Args:
        data: The array, list or dataframe.
        rows: The positions (m,) of the rows.

    Examples:
        >>> take_rows(["a", "b", "c"], np.array([2, 0]))
        ['c', 'a']
    """
    if isinstance(data, list):
        return [data[row] for row in rows]
    return data[rows] if names_of(data) is None else nw.from_native(data, eager_only=True)[rows].to_native()


# --- The outputs of an estimator, split into learned and constant ones ------------------------------------------------


@dataclass(frozen=True, eq=False)
class Targets:
    """The outputs of training targets (n,) or (n, k).

    A single column counts as a vector.

    Attributes:
        means: The means (k,) of the outputs.
        varies: Whether each output is not constant, (k,).
        is_vector: Whether there is one output. Results then have no axis of outputs.

    Examples:
        >>> targets = Targets.of(np.array([[1.0, 2.0], [3.0, 2.0]]))
        >>> targets.means.tolist(), targets.varies.tolist()
        ([2.0, 2.0], [True, False])
    """

    means: NDArray[Any]
    varies: NDArray[np.bool_]
    is_vector: bool

    @classmethod
    def of(
        cls,
        y: NDArray[Any],  # (n,) or (n, k)
    ) -> "Targets":
        """Return the outputs of floating targets.

        Args:
            y: Targets (n,) or (n, k).
        """
        table = y.reshape(len(y), -1)
        return cls(table.mean(0), np.array([_varies(column) for column in table.T]), table.shape[1] == 1)

    def learned(
        self,
        y: NDArray[Any],  # (n,) or (n, k)
    ) -> NDArray[Any]:  # (n,) or (n, j)
        """Return the j outputs that are not constant.

        Args:
            y: Targets (n,) or (n, k).
        """
        return y.reshape(-1) if self.is_vector else y[:, self.varies]

    def whole(
        self,
        learned: NDArray[Any] | None,  # (...) or (..., j)
        lead: tuple[int, ...],
        constant: Any,
    ) -> NDArray[Any]:  # (...) or (..., k)
        """Return values of all outputs from values of the learned outputs.

        Args:
            learned: Values of shape `lead` for one output, or (*lead, j). None if no output was learned.
            lead: The shape without the axis of outputs.
            constant: The values of constant outputs, () or (k,).
        """
        if learned is not None and bool(self.varies.all()):
            return learned
        like = self.means if learned is None else learned
        out = np.full((*lead, len(self.varies)), constant, dtype=like.dtype)
        if learned is not None:
            out[..., self.varies] = learned
        return out[..., 0] if self.is_vector else out


def _varies(column: NDArray[Any]) -> bool:
    low, high = torch.as_tensor(column.min()), torch.as_tensor(column.max())
    return constant_message(low, high, len(column)) is None


# --- The base class of the regressors: a fitted model, with predictions in the shapes of scikit-learn -----------------

NAMES: dict[str, str | None] = {
    "max_iterations": "max_iter",
    "num_walkers": "n_walkers",
    "degree": None,
    "rank": None,
}
"""The names of the models' arguments in these estimators. None if they cannot be given."""


def options_of(estimator: Any, model: type[GP]) -> dict[str, Any]:
    """Return the options of an estimator that a model has by the same names.

    Args:
        estimator: The estimator, a dataclass of options.
        model: The class of the model.

    Examples:
        >>> from rfgp.sklearn import GPRegressor
        >>> options_of(GPRegressor(mean="zero"), GP)["mean"]
        'zero'
    """
    known = signature(model).parameters
    return {option.name: getattr(estimator, option.name) for option in fields(estimator) if option.name in known}


class ProcessEstimator(BaseEstimator, ABC):
    """An estimator with a model `gp_`, whose options are set whole.

    Attributes:
        gp_: The fitted model. None if all outputs are constant.
        log_marginal_likelihood_value_: The log density of the targets in total nats.
        n_iter_: The number of iterations of the optimizer.

    Examples:
        >>> from rfgp.sklearn import GPRegressor
        >>> GPRegressor().set_params(max_iter=20).max_iter
        20
    """

    gp_: Any
    fixed: Any
    max_iter: int | None

    def set_params(self, **params: Any) -> Self:
        """Set options by name.

        Args:
            params: The options. A part of one, such as kernel__lengthscale, is an error.

        Raises:
            InvalidArgumentError: If an option is a part of another.
        """
        for name in params:
            option, _, part = name.partition("__")
            if part:
                raise InvalidArgumentError(
                    f"Options must be set whole, got {name!r}. Set {option!r} instead, for example in a grid "
                    "{'kernel': [k.RBF(lengthscale=0.5), k.RBF(lengthscale=2.0)]}."
                )
        super().set_params(**params)
        return self

    @abstractmethod
    def _read_new(self, X: Any) -> Any:
        """Return checked inputs for the model, (n, d) or n labels."""

    def _fit_model(self, gp: GP, X: Any, y: Any, **given: Any) -> Self:
        """Fit a model to inputs (n, d) or n labels and targets (n,) or (n, k), and keep its results."""
        most = None if self.max_iter is None else check_count("max_iter", self.max_iter, least=0)
        with called(**NAMES):
            gp.fit(X, y, fixed=self.fixed, max_iterations=most, **given)
        report = gp.fit_report
        assert report is not None
        self.gp_ = gp
        self.log_marginal_likelihood_value_, self.n_iter_ = report.log_marginal_likelihood, report.iterations
        return self


class ProcessRegressor(MultiOutputMixin, RegressorMixin, ProcessEstimator):
    """A regressor with a model `gp_`.

    A subclass makes the model and reads inputs.

    Examples:
        >>> from rfgp.sklearn import GPRegressor, GraphGPRegressor
        >>> issubclass(GPRegressor, ProcessRegressor), issubclass(GraphGPRegressor, ProcessRegressor)
        (True, True)
    """

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
        **numbers: Any,  # (n,) each
    ) -> Self:
        """Fit the model to the outputs that are not constant."""
        targets = Targets.of(y)
        if not bool(targets.varies.all()):
            _warn_of_constants(targets)
        if bool(targets.varies.any()):
            self._fit_model(gp, X, targets.learned(y), sample_weight=weight, **numbers)
        else:
            self.gp_, self.log_marginal_likelihood_value_, self.n_iter_ = None, float("nan"), 0
        self._targets = targets
        return self


def _warn_of_constants(targets: Targets) -> None:
    constant = np.flatnonzero(~targets.varies)
    subject = "The target is" if targets.is_vector else f"Outputs {', '.join(map(str, constant))} of y are"
    values = ", ".join(f"{value:g}" for value in targets.means[constant])
    message = (
        f"{subject} constant ({values}), so the variance is unknown. The constant is predicted everywhere, with "
        "standard deviation 0, which is too small."
    )
    warnings.warn(ConstantTargetWarning(message), stacklevel=4)


# --- The base class of the classifiers: a fitted model of labels, with predictions in the shapes of scikit-learn ------


class ProcessClassifier(ClassifierMixin, ProcessEstimator):
    """A classifier with a model `gp_`.

    A subclass makes the model and reads inputs.

    Examples:
        >>> from rfgp.sklearn import GPClassifier, GraphGPClassifier
        >>> issubclass(GPClassifier, ProcessClassifier), issubclass(GraphGPClassifier, ProcessClassifier)
        (True, True)
    """

    classes_: Any

    def predict_proba(self, X: Any) -> Any:
        """Return the probabilities of the classes, (n, C), in the order of `classes_`.

        They are averages over the posterior of the latent functions.

        Args:
            X: Rows (n, d), or n labels of nodes.

        Raises:
            NotFittedError: If the estimator is not fitted (raised by scikit-learn).
            ValueError: If X cannot be used.
        """
        check_is_fitted(self)
        mean = self.gp_.predict(self._read_new(X)).observed().mean
        return mean if mean.ndim == 2 else np.column_stack([1 - mean, mean])

    def predict(self, X: Any) -> Any:
        """Return the most probable classes, (n,).

        Args:
            X: Rows (n, d), or n labels of nodes.

        Raises:
            NotFittedError: If the estimator is not fitted (raised by scikit-learn).
            ValueError: If X cannot be used.
        """
        shares = self.predict_proba(X)
        return self.classes_[shares.argmax(1)]

    @abstractmethod
    def _process(self, likelihood: Likelihood) -> GP:
        """Return the model, before a fit."""

    @abstractmethod
    def _likelihood_of(self, num_classes: int) -> Likelihood:
        """Return the likelihood of labels 0 to C - 1."""

    def _learn(
        self,
        X: Any,
        y: Any,  # (n,)
        weight: Any,  # (n,)
    ) -> Self:
        """Fit the model to labels."""
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise DataError(f"y must have at least two classes, got only one: {classes[0]!r}.")
        self.classes_ = classes
        gp = self._process(self._likelihood_of(len(classes)))
        dtype = getattr(X, "dtype", np.dtype(np.float64))
        codes = codes.astype(dtype if dtype in (np.float32, np.float64) else np.float64)
        return self._fit_model(gp, X, codes, sample_weight=weight)


def read_classes(y: Any) -> Any:
    """Return checked labels (n,).

    Args:
        y: Labels (n,), numbers or texts.

    Raises:
        DataError: If there are too many different texts for classes.
        ValueError: If the labels are not classes.

    Examples:
        >>> read_classes(["a", "b", "a"]).tolist()
        ['a', 'b', 'a']
    """
    y = column_or_1d(y, warn=True)
    num_texts = len({label for label in y.tolist() if isinstance(label, str)}) if y.dtype.kind in "OU" else 0
    if is_identifier(num_texts, len(y)):
        raise DataError(
            f"y must have classes, got {num_texts:,} different texts in {counted(len(y), 'row')}. If they are numbers, "
            "convert them with rfgp.tables.read_numbers and use a GPRegressor."
        )
    check_classification_targets(y)
    return y
