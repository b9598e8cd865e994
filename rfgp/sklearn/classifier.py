"""The base class of the classifiers: a fitted model of labels, with predictions in the shapes of scikit-learn."""

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from rfgp.errors import DataError
from rfgp.gp import GP
from rfgp.likelihoods import Likelihood
from rfgp.messages import counted
from rfgp.number_texts import is_identifier
from rfgp.sklearn.regressor import learn


class ProcessClassifier(ClassifierMixin, BaseEstimator, ABC):
    """A classifier with a model `gp_`.

    A subclass makes the model and reads inputs.

    Examples:
        >>> from rfgp.sklearn import GPClassifier, GraphGPClassifier
        >>> issubclass(GPClassifier, ProcessClassifier), issubclass(GraphGPClassifier, ProcessClassifier)
        (True, True)
    """

    gp_: GP
    classes_: Any
    fixed: Any
    max_iter: int | None

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
    def _read_new(self, X: Any) -> Any:
        """Return checked inputs for the model, (n, d) or n labels."""

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
        gp = self._process(self._likelihood_of(len(classes)))
        dtype = getattr(X, "dtype", np.dtype(np.float64))
        codes = codes.astype(dtype if dtype in (np.float32, np.float64) else np.float64)
        learn(self, gp, X, codes, sample_weight=weight)
        self.classes_ = classes
        return self


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
