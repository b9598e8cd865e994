"""`rfgp.GP` as a scikit-learn regressor of numbers, classifier, and regressor of counts."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Self

import narwhals as nw
import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score
from sklearn.utils import check_consistent_length
from sklearn.utils.validation import check_is_fitted, column_or_1d

from rfgp.columns import InputTable
from rfgp.columns.table import names_of, without_index
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.gp import GP
from rfgp.kernels import Kernel
from rfgp.likelihoods import Bernoulli, Categorical, Likelihood, Ordinal, by_name
from rfgp.messages import counted
from rfgp.models import SelectionReport
from rfgp.parameters import Hyperprior
from rfgp.rows.sources import warn_of_booleans
from rfgp.sklearn.base import (
    FLOATS,
    ProcessClassifier,
    ProcessEstimator,
    ProcessRegressor,
    merge_rows,
    options_of,
    read_classes,
    resolve_seed,
    take_rows,
    validate_data,
)

# --- The options that all estimators of tables share: those of `rfgp.GP` ----------------------------------------------


@dataclass(eq=False, repr=False)
class GPOptions:
    """The options of `rfgp.GP` as stored by scikit-learn, documented in `GPRegressor`.

    Examples:
        >>> from rfgp.sklearn import GPRegressor
        >>> GPRegressor("auto", max_iter=20).get_params()["max_iter"]
        20
    """

    kernel: str | Kernel = "auto"
    approximation: Any = "auto"
    _: KW_ONLY
    likelihood: str | Likelihood | None = None
    inference: str | None = None
    mean: str = "constant"
    standardize: bool = True
    start: Mapping[str, Any] | None = None
    priors: Mapping[str, Hyperprior | None] | None = None
    fixed: Iterable[str] = ()
    max_iter: int | None = None
    time_limit: str | float | None = None
    validate: str | int | None = None
    memory: str | float | None = None
    hyperparameter_posterior: str = "point"
    random_state: Any = None

    gp_: Any = field(init=False)
    usual_likelihood: ClassVar[str] = "gaussian"
    """The likelihood if that is None or "auto"."""

    @property
    def selection_(self) -> SelectionReport | None:
        """The candidates that the fit compared, with their scores. None if the kernel is given."""
        return None if self.gp_ is None else self.gp_.selection

    @property
    def _likelihood(self) -> Likelihood:
        """The likelihood of an observation."""
        return by_name(self.usual_likelihood if self.likelihood in (None, "auto") else self.likelihood)

    def _process(self, likelihood: str | Likelihood | None) -> GP:
        """Return the model, before a fit."""
        own = {"likelihood": likelihood, "seed": resolve_seed(self.random_state)}
        return GP(**{**options_of(self, GP), **own})

    def _read(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        *,
        read_targets: Callable[[Any], Any] | None = None,
        **numbers: Any,
    ) -> tuple[Any, Any, Any, dict[str, Any]]:
        """Return checked rows (m, d), their targets, weights, and other numbers by name.

        Rows of weight zero are left out, and equal rows are merged (`merge_rows`). The model reads the columns of a
        dataframe by itself.

        Args:
            X: Rows (n, d), an array or a dataframe.
            y: Targets.
            sample_weight: The weights (n,). If None, ones.
            read_targets: The reader of targets that are not numbers. If None, they are numbers.
            **numbers: Other numbers of the rows by the argument of `GP.fit`, () or (n,), or None.

        Raises:
            ValueError: If the data cannot be used.
        """
        options = {"multi_output": True, "y_numeric": True} if read_targets is None else {}
        self._used_columns: list[int] | None = None
        names = names_of(X)
        if names is None:
            X, y = validate_data(self, X, y, dtype=FLOATS, ensure_min_samples=2, **options)
            columns = [*X.T]
        else:
            y = validate_data(self, y=y, **options)
            X = validate_data(self, X, skip_check_array=True)
            check_consistent_length(X, y)
            if len(y) < 2:
                raise DataError(f"X must have at least two rows, got {counted(len(y), 'sample')}.")
            X = self._without_index(X, names)
            columns = [np.asarray(column) for column in InputTable.of(X).columns.values()]
        if read_targets is None:
            y = y.astype(_common_float(X, y), copy=False)
            X = X.astype(y.dtype, copy=False) if names is None else X
        else:
            y = read_targets(y)
        given = {name: values for name, values in numbers.items() if values is not None}
        for name, values in given.items():
            if np.ndim(values) and np.shape(values) != (len(y),):
                raise DataError(f"{name} must be one number or {len(y)}, one a row, got shape {np.shape(values)}.")
        each = {name: np.asarray(values) for name, values in given.items() if np.ndim(values)}
        rows, weight = merge_rows(sample_weight, *columns, y, *each.values())
        X = X if len(rows) == len(y) and weight is None else take_rows(X, rows)
        return X, y[rows], weight, given | {name: values[rows] for name, values in each.items()}

    def _without_index(self, X: Any, names: tuple[str, ...]) -> Any:
        """Return a dataframe without columns that are an index of pandas, with a warning.

        They are found before the merge of equal rows, since they do not count the remaining rows. The model itself
        warns of other columns that may be an index.
        """
        factors = () if isinstance(self.kernel, str) else [one for t in self.kernel.terms() for one in t.factors]
        if factors and all(factor.columns is not None for factor in factors):
            return X
        kept = without_index(names, InputTable.of(X).column, warns_of_inputs=False)
        if len(kept) == len(names):
            return X
        self._used_columns = [names.index(name) for name in kept]
        return nw.from_native(X, eager_only=True).select(list(kept)).to_native()

    def _read_new(self, X: Any) -> Any:
        """Return checked new rows, without the columns that the fit left out."""
        if hasattr(self, "feature_names_in_") and names_of(X) is not None:
            return validate_data(self, X, reset=False, skip_check_array=True)
        X = validate_data(self, X, dtype=FLOATS, reset=False)
        return X if self._used_columns is None else X[:, self._used_columns]


def _common_float(X: Any, y: Any) -> Any:
    """Return the floating dtype that represents X and y without loss, float32 or float64: that of y for a dataframe."""
    if y.dtype.kind not in "fiub":
        raise DataError(f"y must be numeric, got {y.dtype}. Encode text and dates as numbers first.")
    common = np.result_type(getattr(X, "dtype", y.dtype), y.dtype)
    return common if common in FLOATS else np.dtype(np.float64)


# --- `rfgp.GP` as a scikit-learn regressor and classifier -------------------------------------------------------------


class GPRegressor(GPOptions, ProcessRegressor):
    """Gaussian process regression on a table, by `rfgp.GP`.

    With the same seed and data `rfgp.GP` gives the same numbers. By default a fit selects the kernel and its
    approximations by held-out scores, and `selection_` reports the scores. A kernel of `rfgp.kernels` is fitted without
    a selection.

    X is an array of numbers or a dataframe. A dataframe may have text, booleans, categories and dates. Kernels refer to
    its columns by name: `k.RBF("t") + k.Group("store")`.

    `predict` returns the posterior mean of the mean of an observation. That is the latent function f, or exp(f) for
    Poisson, negative binomial and gamma likelihoods, and a multiple of exp(f) for Weibull and log-normal ones. Standard
    deviations and covariances refer to this mean, without the noise of an observation. Those of "beta" are of an
    observation. `gp_.predict(X).observed()` is the distribution of an observation. scikit-learn's
    `GaussianProcessRegressor` with a `WhiteKernel` includes the noise in its standard deviations.

    A constant output is predicted exactly, with standard deviation 0 and a `rfgp.ConstantTargetWarning`.

    Args:
        kernel: The kernel, of `rfgp.kernels`. If "auto", a fit selects one over all columns.
        approximation: One approximation for all terms that it supports, such as `rfgp.RandomFeatures(256)`, or a dict
            of approximations by the names of terms. If "auto", they are automatic, or selected with the kernel.
        likelihood: The distribution of an observation given the latent function: "gaussian", "student-t",
            "heteroscedastic", "gamma", "beta", "tobit", "lognormal", "weibull", or an object of `rfgp.likelihoods`.
            "auto" and None are as for `rfgp.GP`.
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

    def fit(self, X: Any, y: Any, sample_weight: Any = None, censored: Any = None) -> Self:
        """Select automatic options, learn the hyperparameters, and condition on the data.

        Equal rows are merged into one with a weight. Rows with weights and written-out repetitions therefore give the
        same numbers. float32 is kept if X and y have it. Other data are computed in float64.

        Args:
            X: Rows (n, d), n at least 2: an array of numbers, or a dataframe.
            y: Targets (n,), or (n, k) for k outputs that share one kernel; (n, 1) is the same as (n,).
            sample_weight: Non-negative weights (n,). A weight w counts a row w times. If None, ones. Divide relative
                weights by their mean, because repeated equal targets imply little noise.
            censored: Codes (n,) for "tobit", "lognormal" and "weibull": -1 left-censored, 0 observed, 1 right-censored.
                If None, zeros.

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
        if likelihood.is_discrete and likelihood.row_argument is None:
            raise InvalidArgumentError(
                f"likelihood must be of numbers, got {self.likelihood!r}. Use GPClassifier for classes."
            )
        gp = self._process(self.likelihood)
        warn_of_booleans(y)
        X, y, weight, numbers = self._read(X, y, sample_weight, censored=censored)
        return self._learn(gp, X, y, weight, **numbers)

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
        likelihood = getattr(latent.observed(), "likelihood", None)
        if likelihood is None or likelihood.is_standardized:
            return latent
        if not likelihood.has_log_link:
            return latent.observed()
        shift = likelihood.mean(torch.zeros_like(latent.location, device="cpu")).log()
        return replace(latent, location=latent.location + shift.to(latent.location)).exp()


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

    def _likelihood_of(self, num_classes: int) -> Likelihood:
        usual = Bernoulli() if num_classes == 2 else Categorical(num_classes)
        found = usual if self.likelihood in (None, "auto") else by_name(self.likelihood)
        is_sorted = not isinstance(found, Ordinal) or self.classes_.dtype.kind in "iuf"
        if not (isinstance(found, Categorical) and is_sorted) and not (
            isinstance(found, Bernoulli) and num_classes == 2
        ):
            raise InvalidArgumentError(
                f'likelihood must be one of {num_classes} classes, got {found!r}. Use "auto" for one that fits them, '
                "and numbers for ordered classes."
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
        X, y, weight, _ = self._read(X, y, sample_weight, read_targets=read_classes)
        return self._learn(X, y, weight)


# --- Counts as observations of `rfgp.GP`, as a scikit-learn regressor -------------------------------------------------


class GPCountRegressor(GPOptions, RegressorMixin, ProcessEstimator):
    """Gaussian process regression of counts 0, 1, 2, ..., by `rfgp.GP`.

    The logarithm of the mean count is a Gaussian process, where scikit-learn's `PoissonRegressor` has a linear
    function. With the same seed and data `rfgp.GP` gives the same numbers. By default a fit selects the kernel, as for
    `GPClassifier`.

    Args:
        kernel: As for `GPRegressor`, like the other options that are not listed here.
        approximation: As for `GPRegressor`.
        likelihood: "negative-binomial" with a learned dispersion, "poisson", "binomial", or another likelihood of
            counts. If None or "auto", "negative-binomial".
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

    usual_likelihood = "negative-binomial"

    def fit(self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None, trials: Any = None) -> Self:
        """Select automatic options, learn the hyperparameters, and condition on the data.

        Args:
            X: Rows (n, d), n at least 2: an array of numbers, or a dataframe.
            y: Counts (n,).
            sample_weight: Non-negative weights (n,). A weight w counts a row w times. If None, ones.
            exposure: Positive times, areas or populations (n,), to which the means are proportional. If None, ones.
            trials: The numbers of trials (n,), or one number, for "binomial".

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
        X, rows, weight, numbers = self._read(X, counts, sample_weight, exposure=exposure, trials=trials)
        return self._fit_model(gp, X, rows, sample_weight=weight, **numbers)

    def predict(self, X: Any, exposure: Any = None, trials: Any = None) -> Any:
        """Return the mean counts (n,), averaged over the posterior of the latent function.

        Args:
            X: Rows (n, d).
            exposure: The exposures of these rows, () or (n,), positive. If None, ones.
            trials: The numbers of trials of these rows, () or (n,). If None, ones.

        Raises:
            NotFittedError: If the estimator is not fitted (raised by scikit-learn).
            ValueError: If X or the exposures cannot be used.
        """
        check_is_fitted(self)
        latent = self.gp_.predict(self._read_new(X))
        return latent.observed(exposure, trials).mean

    def score(self, X: Any, y: Any, sample_weight: Any = None, exposure: Any = None, trials: Any = None) -> float:
        """Return D^2, the explained fraction of the Poisson deviance.

        It is at most 1, and 0 for the mean of y.

        Args:
            X: Rows (n, d).
            y: Counts (n,).
            sample_weight: The weights (n,). If None, ones.
            exposure: As for `predict`. It must be given if the estimator was fitted with exposures.
            trials: As for `predict`. It must be given if the estimator was fitted with trials.

        Raises:
            InvalidArgumentError: If the estimator was fitted with exposures or trials, and none are given.
        """
        check_is_fitted(self)
        if exposure is trials is None and self.gp_.state.has_exposures:
            name = self._likelihood.row_argument
            raise InvalidArgumentError(
                f"{name} must be given to score an estimator that was fitted with it, got None. Pass the numbers of "
                f"these rows, or {name}=1."
            )
        mean = self.predict(X, exposure, trials)
        return float(d2_tweedie_score(y, mean, sample_weight=sample_weight, power=1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags


def _of_counts(found: Likelihood) -> Likelihood:
    """Return a likelihood whose observations are counts.

    Raises:
        InvalidArgumentError: If the observations are not counts.
    """
    if not (found.row_argument in ("exposure", "trials") and found.is_discrete):
        raise InvalidArgumentError(
            f'likelihood must be of counts, got {found!r}. Use "negative-binomial" or "poisson", or for other '
            "numbers GPRegressor."
        )
    return found
