"""`rfgp.GP` as a scikit-learn regressor and classifier."""

from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from rfgp.errors import InvalidArgumentError
from rfgp.gp import GP
from rfgp.likelihoods import Bernoulli, Categorical, Likelihood, by_name
from rfgp.rows.sources import warn_of_booleans
from rfgp.sklearn.checks import read_rows
from rfgp.sklearn.classifier import ProcessClassifier, read_classes
from rfgp.sklearn.options import GPOptions
from rfgp.sklearn.regressor import ProcessRegressor


class GPRegressor(GPOptions, ProcessRegressor):
    """Gaussian process regression on a table, by `rfgp.GP`.

    With the same seed and data `rfgp.GP` gives the same numbers. By default a fit selects the kernel and its
    approximations by held-out scores, and `selection_` reports the scores. A kernel of `rfgp.kernels` is fitted without
    a selection.

    X is an array of numbers or a dataframe. A dataframe may have text, booleans, categories and dates. Kernels refer to
    its columns by name: `k.RBF("t") + k.Group("store")`.

    `predict` returns the posterior mean of the mean of an observation. That is the latent function f, or exp(f) for
    Poisson, negative binomial and gamma likelihoods. Standard deviations and covariances refer to this mean, without
    the noise of an observation. `gp_.predict(X).observed()` is the distribution of an observation. scikit-learn's
    `GaussianProcessRegressor` with a `WhiteKernel` includes the noise in its standard deviations.

    A constant output is predicted exactly, with standard deviation 0 and a `rfgp.ConstantTargetWarning`.

    Args:
        kernel: The kernel, of `rfgp.kernels`. If "auto", a fit selects one over all columns.
        approximation: One approximation for all terms that it supports, such as `rfgp.RandomFeatures(256)`, or a dict
            of approximations by the names of terms. If "auto", they are automatic, or selected with the kernel.
        likelihood: The distribution of an observation given the latent function: "gaussian", "student-t",
            "heteroscedastic", "gamma", or an object of `rfgp.likelihoods`. "auto" and None are as for `rfgp.GP`.
        inference: "laplace" or "variational", for likelihoods that are not Gaussian. If None, the default of the
            likelihood.
        mean: "constant" or "zero".
        standardize: Whether columns of numbers and the targets are mapped to mean 0 and standard deviation 1.
        start: Starting values by path or unique suffix, in the units of the data, such as {"noise": 0.1}. If None, they
            depend on the data.
        priors: Log densities (objects with `log_prob`) by path or unique suffix.
        fixed: Names of hyperparameters that keep their starting values, such as ("noise",).
        max_iter: The largest number of iterations of the optimizer. If None, 500, or 300 steps for learned frequencies.
        time_limit: The time limit of a fit, with the selection of its kernel: seconds, "30s" or "5min". If None, that
            of `rfgp.GP`.
        validate: The rows that a selection predicts from others: "forward", or the key of a column of groups. If None,
            random ones.
        memory: The memory limit of the largest arrays: bytes, "500MB" or "4GB". If None, most of the memory of the
            machine, and 8 GB for each candidate of a selection.
        hyperparameter_posterior: "point", "integrated" or "auto", as for `rfgp.GP`.
        random_state: The seed, or a `numpy.random.RandomState` from which each fit draws one. If None, the seed is from
            the system. The global state of numpy is never used.

    Attributes:
        gp_: The fitted `rfgp.GP`, with `hyperparameters`, `fit_report`, `terms`, `exact()` and `save(path)`. With
            several outputs, it models those that are not constant. None if all are constant.
        selection_: The candidates that the fit compared, with their scores. None if the kernel is given.
        log_marginal_likelihood_value_: The log density of y in total nats, in the units of y. nan without `gp_`.
        n_iter_: The number of iterations of the optimizer.
        n_features_in_: The number d of columns.
        feature_names_in_: The names of the columns, if X had some.

    Examples:
        >>> import numpy as np
        >>> from rfgp import kernels as k
        >>> from rfgp.sklearn import GPRegressor
        >>> X = np.linspace(0, 10, 80)[:, None]
        >>> model = GPRegressor(k.RBF(), random_state=0).fit(X, np.sin(X[:, 0]))
        >>> mean, std = model.predict([[2.0]], return_std=True)
        >>> bool(abs(mean[0] - np.sin(2.0)) < 0.01)
        True
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Select automatic options, learn the hyperparameters, and condition on the data.

        Equal rows are merged into one with a weight. Rows with weights and written-out repetitions therefore give the
        same numbers. float32 is kept if X and y have it. Other data are computed in float64.

        Args:
            X: Rows (n, d), n at least 2: an array of numbers, or a dataframe.
            y: Targets (n,), or (n, k) for k outputs that share one kernel; (n, 1) is the same as (n,).
            sample_weight: Non-negative weights (n,). A weight w counts a row w times. If None, ones. Divide relative
                weights by their mean, because repeated equal targets imply little noise.

        Returns:
            The estimator.

        Raises:
            InvalidArgumentError: If an option has a wrong value.
            ValueError: If the data cannot be used.

        Warns:
            ConstantTargetWarning: If an output is constant.
            BaselineNotBeatenWarning: If no candidate of a selection beat a constant or a linear model.
            RfgpWarning: As for `rfgp.GP.fit`.

        Examples:
            >>> from rfgp import kernels as k
            >>> from rfgp.sklearn import GPRegressor
            >>> model = GPRegressor(k.RBF(), random_state=0).fit(
            ...     [[0.0], [1.0], [2.0], [4.0], [5.0]], [0.0, 1.0, 1.5, 1.0, 0.0]
            ... )
            >>> model.n_features_in_, model.gp_.num_observations
            (1, 5)
        """
        likelihood = self._likelihood
        if not (likelihood.is_standardized or likelihood.takes_exposure):
            raise InvalidArgumentError(
                f"likelihood must be of numbers, got {self.likelihood!r}. Use GPClassifier for classes."
            )
        gp = self._process(self.likelihood)
        warn_of_booleans(y, stacklevel=3)
        return self._learn(gp, *read_rows(self, X, y, sample_weight)[:3])

    def terms(self, X: Any) -> dict[str, tuple[Any, Any]]:
        """Return the posterior mean and standard deviation of each term of the kernel, by its name.

        Terms are parts of the latent function, without its constant mean.

        Args:
            X: Rows (n, d).

        Returns:
            Pairs of arrays (n,), or (n, k) for k outputs. The terms of constant outputs are 0.

        Raises:
            NotFittedError: If the estimator is not fitted (raised by scikit-learn).
            InvalidArgumentError: If the model is an average of several kernels, which have different terms.
            ValueError: If X cannot be used.

        Examples:
            >>> import numpy as np
            >>> import pandas as pd
            >>> from rfgp import kernels as k
            >>> from rfgp.sklearn import GPRegressor
            >>> X = pd.DataFrame({"t": np.linspace(0, 10, 60), "store": ["north", "south"] * 30})
            >>> y = np.sin(X.t) + (X.store == "north")
            >>> model = GPRegressor(k.RBF("t") + k.Group("store"), random_state=0).fit(X, y)
            >>> list(model.terms(X))
            ['rbf(t)', 'group(store)']
        """
        check_is_fitted(self)
        if self.gp_ is None:
            return {}
        inputs, whole = self._read_new(X), self._targets.whole
        found, lead = self.gp_.predict(inputs).terms, (len(inputs),)
        return {name: (whole(term.mean, lead, 0.0), whole(term.std, lead, 0.0)) for name, term in found.items()}

    def _mean_function(self, inputs: Any) -> Any:
        assert self.gp_ is not None
        latent = self.gp_.predict(inputs)
        return latent.exp() if self._likelihood.takes_exposure else latent


class GPClassifier(GPOptions, ProcessClassifier):
    """Gaussian process classification of the rows of a table, by `rfgp.GP`.

    Two classes have a logit link unless `likelihood` specifies another. More classes have a softmax of one latent
    function for each class, with one kernel. scikit-learn's `GaussianProcessClassifier` fits one class against the
    others. With the same seed and data `rfgp.GP` with the labels 0 to C - 1 gives the same numbers.

    By default a fit selects one kernel. Up to 2,000 rows, exact models are scored by the log probabilities of left-out
    labels. Beyond, models with 128 or 512 random frequencies are scored by those of held-out labels. Give a kernel and
    `rfgp.RandomFeatures()` for a fit in linear time without a selection.

    Args:
        kernel: As for `GPRegressor`, like the other options that are not listed here.
        approximation: The approximation of terms, as for `GPRegressor`. `inference` approximates the posterior.
        likelihood: "bernoulli" or `rfgp.likelihoods.Bernoulli(link="probit")` for two classes, "categorical" for more.
            If None or "auto", the one for the number of classes.
        inference: "laplace" or "variational". If None, variational up to 4,000 rows, or up to 500 rows of several
            classes without features.
        standardize: Whether columns of numbers are mapped to mean 0 and standard deviation 1.

    Attributes:
        gp_: The fitted `rfgp.GP`, of labels 0 to C - 1.
        classes_: The labels, (C,).
        selection_: The candidates that the fit compared, with their scores. None if the kernel is given.
        log_marginal_likelihood_value_: The approximate log probability of the labels in total nats.
        n_iter_: The number of iterations of the optimizer.
        n_features_in_: The number d of columns.
        feature_names_in_: The names of the columns, if X had some.

    Examples:
        >>> import numpy as np
        >>> from rfgp import kernels as k
        >>> from rfgp.sklearn import GPClassifier
        >>> X = np.linspace(0, 10, 80)[:, None]
        >>> y = np.where(np.sin(X[:, 0]) > 0, "up", "down")
        >>> GPClassifier(k.RBF(), random_state=0).fit(X, y).predict([[2.0], [5.0]]).tolist()
        ['up', 'down']
    """

    gp_: GP

    def _likelihood_of(self, num_classes: int) -> Likelihood:
        usual = Bernoulli() if num_classes == 2 else Categorical(num_classes)
        found = usual if self.likelihood in (None, "auto") else by_name(self.likelihood)
        if not isinstance(found, Categorical) and not (isinstance(found, Bernoulli) and num_classes == 2):
            raise InvalidArgumentError(
                f'likelihood must be one of {num_classes} classes, got {found!r}. Use "auto" for one that fits them.'
            )
        return found

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Select automatic options, learn the hyperparameters, and condition on the data.

        Args:
            X: Rows (n, d), n at least 2: an array of numbers, or a dataframe.
            y: Labels (n,), numbers or text, of at least two classes.
            sample_weight: Non-negative weights (n,). A weight w counts a row w times. If None, ones.

        Returns:
            The estimator.

        Raises:
            InvalidArgumentError: If an option has a wrong value.
            ValueError: If the data cannot be used, or are of one class.

        Warns:
            RfgpWarning: As for `rfgp.GP.fit`.

        Examples:
            >>> from rfgp import kernels as k
            >>> from rfgp.sklearn import GPClassifier
            >>> model = GPClassifier(k.RBF(), random_state=0).fit(
            ...     [[0.0], [1.0], [2.0], [5.0], [6.0]], ["a", "a", "a", "b", "b"]
            ... )
            >>> model.classes_.tolist(), model.predict_proba([[1.0]]).shape
            (['a', 'b'], (1, 2))
        """
        X, y, weight, _ = read_rows(self, X, y, sample_weight, read_targets=read_classes)
        return self._learn(X, y, weight)
