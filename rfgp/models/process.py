"""The base class of all models: fit, condition, predict and save."""

import warnings
from abc import ABC
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, Self, TypeVar, cast

from torch import Tensor

from rfgp.counts import counted
from rfgp.errors import NotFittedError, OutlierWarning
from rfgp.fitting import Callback, Deadline, Plan, Progress, Reporter, fingerprint, open_checkpoint_log
from rfgp.hyperparameters import Hyperparameters
from rfgp.inference.observed import LeaveOneOut
from rfgp.inference.prediction import Prediction
from rfgp.limits import limits
from rfgp.models.fitted import Fitted, fit_warnings, forecast_warnings, shown_arguments
from rfgp.models.validation import validate_inputs, warn_of_targets
from rfgp.regression import (
    BaseSpec,
    Calibration,
    FitReport,
    GPState,
    begin,
    calibrated_ends,
    calibration,
    conditioned,
    extended,
    integrated,
    reduced,
    solved_if_read,
)
from rfgp.regression.observing import constant_warnings
from rfgp.saving import Saved, write
from rfgp.selection import fit_model
from rfgp.threads import computed, in_one_thread
from rfgp.torch_context import unlisted, with_torch_defaults

F = TypeVar("F", bound=BaseSpec)


@unlisted("of", "spec", "state", "diagnosed", "is_small")
class Process(ABC, Generic[F]):
    """The base class of Gaussian process models.

    `fit` and `condition` replace the data, `update` adds rows and `forget` removes them. If one of them fails, the
    model is unchanged. Threads can share a model. Predictions are in the user's units and follow changes of
    `hyperparameters`.

    If the training columns have names, later columns are matched by name, in any order. A missing column is an error,
    and additional ones are ignored. If the training columns have no names, columns are matched by position.

    Attributes:
        metadata: A dict of your own, saved with the model. Values must be representable in JSON.
    """

    def __init__(self, spec: F) -> None:
        self._spec = spec
        self._fitted: Fitted | None = None
        self.metadata: dict[str, Any] = {}

    @classmethod
    def of(cls, spec: F, fitted: Fitted | None = None) -> Self:
        """Return a model of a specification, without calling `__init__`."""
        model = cls.__new__(cls)
        Process.__init__(model, spec)
        model._fitted = fitted
        return model

    # --- properties -------------------------------------------------------------------------------

    @property
    def spec(self) -> F:
        """The options of the model and, after the first data, its random draws."""
        return self._spec if self._fitted is None else cast(F, self._fitted.state.spec)

    @property
    def seed(self) -> int:
        """The seed of all random numbers, or 0 if the model uses none."""
        return int(self.spec.options.seed)

    @property
    def fit_report(self) -> FitReport | None:
        """The report of the last fit, or None before a fit."""
        return None if self._fitted is None else self._fitted.report

    @fit_report.setter
    def fit_report(self, report: FitReport | None) -> None:
        self._fitted = replace(_needed(self), report=report)

    @property
    def hyperparameters(self) -> Hyperparameters:
        """The hyperparameters by name, to be read, set and differentiated.

        Raises:
            NotFittedError: If there are no data yet.
        """
        return _needed(self).live

    @property
    def is_small(self) -> bool:
        """Whether one thread computes, because there are few rows."""
        return self._fitted is not None and self.num_observations <= limits().small_rows

    @property
    def num_observations(self) -> int:
        """The number n of observations."""
        return _needed(self).state.num_observations

    @property
    @with_torch_defaults()
    def state(self) -> GPState:
        """The immutable model state at the current hyperparameters.

        Raises:
            NotFittedError: If there are no data yet.
        """
        return _needed(self).now()

    # --- training --------------------------------------------------------------------------------

    @with_torch_defaults()
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        noise: Any = None,  # (n,)
        sample_weight: Any = None,  # (n,)
        exposure: Any = None,  # (n,)
        fixed: Iterable[str] = (),
        max_iterations: int | None = None,
        callback: Callback | None = None,
        progress: bool | Callable[[Progress], None] = False,
        checkpoint: str | Path | None = None,
    ) -> Self:
        """Maximize the log marginal likelihood, and condition on the data.

        Priors of hyperparameters are added to the objective. Earlier data are replaced.

        Args:
            X: Inputs: an array, tensor or list of rows (n, d), a dataframe, a dict of columns, or n node labels of a
                graph. `rfgp.tables.Parquet`, `CSV` and `Batches`, and a `numpy.memmap`, are read in blocks. Blocks
                require that all terms have dense weights, such as random features or inducing points.
            y: Targets (n,), or (n, k) for k outputs with one kernel and, if standardized, one noise variance. If X
                holds the targets, the name of their column or k names, or None for sources that are read in blocks.
            noise: Known noise variances (n,), in squared units of the targets. They are added to the learned noise. If
                None, zeros.
            sample_weight: Positive numbers (n,). A row of weight w counts as w repeated observations. If None, ones.
            exposure: Positive numbers (n,) that multiply the mean e^f, such as times, areas or populations. They
                require a likelihood of counts or positive values. If None, ones.
            fixed: Names of hyperparameters that keep their starting values.
            max_iterations: The maximum number of iterations of L-BFGS on each subset of rows, and of steps of learned
                frequencies. If None, 500 and 300.
            callback: A function of the number of iterations and the log marginal likelihood of the rows in use. It is
                called after each iteration. The model does not change until the fit has ended.
            progress: If True, the stage, the likelihood and the remaining time are written to the standard error. Or a
                function that takes a `Progress`.
            checkpoint: A file for intermediate results. An interrupted fit that is repeated with the same arguments
                resumes from it and gives the same result. If None, nothing is stored.

        Returns:
            The model itself, with a `fit_report`.

        Raises:
            DataError: If the data cannot be used, or a target is constant. The message names the place. Constant counts
                and labels have a posterior at the starting values.
            CheckpointError: If the checkpoint belongs to another fit, or the file is no checkpoint.

        Warns:
            ConstantTargetWarning: If counts or labels are constant, so that nothing is learned.
            ConvergenceWarning: If the optimizer stopped before it converged.
            OverfittingWarning: If there are at least as many free hyperparameters as observations.

        Examples:
            >>> import numpy as np
            >>> import rfgp
            >>> X = np.linspace(0, 10, 40)[:, None]
            >>> gp = rfgp.GP(rfgp.kernels.RBF(), seed=0).fit(X, np.sin(X[:, 0]), fixed="mean")
            >>> gp.fit_report.converged
            True
        """
        deadline = Deadline(self._spec.options.time_limit)
        names = (fixed,) if isinstance(fixed, str) else tuple(fixed)
        warn_of_targets(self._spec, y)
        begun = begin(self._spec, validate_inputs(self._spec, X, y, noise, sample_weight, exposure), is_fit=True)
        constant = tuple(constant_warnings(begun.spec, begun.require_rows(purpose="a fit")))
        names = ("*",) if constant else names
        opened = open_checkpoint_log(checkpoint, lambda: fingerprint(begun, names, max_iterations))
        with in_one_thread(begun.num_observations <= limits().small_rows):
            with opened as checkpoint_log, Reporter(callback, progress) as reporter:
                plan = Plan(names, max_iterations, reporter, checkpoint_log, deadline=deadline)
                state, report = fit_model(begun, plan)
            self._fitted = Fitted.of(solved_if_read(state), report)
            found = (*constant, *fit_warnings(state, report, names), *self.diagnosed(report))
        for warning in found:
            warnings.warn(warning, stacklevel=3)
        return self

    @with_torch_defaults()
    def condition(
        self, X: Any, y: Any = None, *, noise: Any = None, sample_weight: Any = None, exposure: Any = None
    ) -> Self:
        """Condition on data without a fit. Earlier data are replaced.

        Hyperparameters keep their values. If there were no data before, they have their starting values.

        Args:
            X: As for `fit`.
            y: Targets, (n,) or (n, k).
            noise: As for `fit`, (n,).
            sample_weight: As for `fit`, (n,).
            exposure: As for `fit`, (n,).

        Raises:
            DataError: If the data cannot be used. The message names the place.
        """
        warn_of_targets(self._spec, y)
        data, fitted = validate_inputs(self._spec, X, y, noise, sample_weight, exposure), self._fitted
        if fitted is None:
            self._fitted = Fitted.of(solved_if_read(begin(self._spec, data)))
        else:
            self._fitted = replace(fitted, state=conditioned(fitted.now(), data))
        with in_one_thread(self.is_small):
            found = tuple(self.diagnosed())
        for warning in found:
            warnings.warn(warning, stacklevel=3)
        return self

    @computed
    def update(
        self, X: Any, y: Any = None, *, noise: Any = None, sample_weight: Any = None, exposure: Any = None
    ) -> Self:
        """Add rows to the data, with the hyperparameters unchanged.

        Arguments are those of `condition`. If there are fewer features than rows and the posterior is known, only the
        new rows are read.

        Raises:
            NotFittedError: If there are no data yet.
            DataError: If the rows do not fit the earlier ones, or cannot be used.
        """
        fitted = _needed(self)
        more = validate_inputs(self._spec, X, y, noise, sample_weight, exposure)
        self._fitted = replace(fitted, state=extended(fitted.now(), more))
        return self

    def forget(
        self, X: Any, y: Any = None, *, noise: Any = None, sample_weight: Any = None, exposure: Any = None
    ) -> Self:
        """Remove rows by subtracting their sums. Arguments are those of `condition`.

        Raises:
            NotFittedError: If there are no data yet.
            InvalidArgumentError: If a term has no fixed features, or no term is approximated by `EquispacedFourier`.
            DataError: If the data cannot be used, or no row would remain.
        """
        fitted = _needed(self)
        data = validate_inputs(self._spec, X, y, noise, sample_weight, exposure)
        self._fitted = replace(fitted, state=reduced(fitted.now(), data))
        return self

    # --- results ---------------------------------------------------------------------------------

    @computed
    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood in the user's units, 0-d.

        It has all constants, and is differentiable in `hyperparameters`.
        """
        fitted = _needed(self)
        return fitted.state.replace(hyperparameters=fitted.live.values).log_marginal_likelihood()

    @computed
    def leave_one_out(self) -> LeaveOneOut:
        """Return the predictive distribution of each observation given all others.

        It is computed in closed form, in the user's units. A row with a `sample_weight` is left out as a whole. For an
        average of models it is the Gaussian distribution with the moments of the mixture.

        Source: Rasmussen and Williams (2006), Equations 5.10 to 5.12.
        """
        return self.state.leave_one_out()

    @computed
    def calibration(self, levels: Any = None) -> Calibration:
        """Return the coverage of predictive intervals on left-out rows, by level.

        Up to 2,000 rows, each row is predicted given all others. With more rows in memory, a random fifth, at most
        4,000, is predicted given the others. Hyperparameters are kept. Averages of models are mixtures, and counts have
        randomized residuals. Rows are left out at random, so the coverage of forecasts and of new groups may be lower.

        Args:
            levels: The levels of central intervals, (L,). If None, 0.1, 0.2, ..., 0.9, 0.95 and 0.99.

        Returns:
            The coverage with its standard errors. `str` gives a table, and `rfgp.plotting.plot_calibration` a curve.

        Raises:
            NotFittedError: If the rows are not known.
            InvalidArgumentError: If a level is not in (0, 1), or observations are labels without an order.

        Examples:
            >>> import numpy as np
            >>> import rfgp
            >>> X = np.linspace(0, 10, 60)[:, None]
            >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(60)
            >>> rfgp.GP(rfgp.kernels.RBF(), seed=0).fit(X, y).calibration([0.95]).coverage
            array([0.95])
        """
        return calibration(self.state, levels)

    @computed
    def predict(self, X: Any, *, derivative: Any = None) -> Prediction:
        """Return the posterior of the latent function in the user's units.

        Args:
            X: Inputs (n, d), or n node labels. Results are arrays, or tensors if X is a tensor. Sources that are read
                in blocks are read when the mean (n,) or the variance (n,) is computed.
            derivative: The key of a column of numbers. The result is the derivative of the function in this column, in
                units of the target over those of the column. If None, the function itself.

        Returns:
            The posterior. `observed()` returns the posterior predictive distribution of observations.

        Raises:
            NotFittedError: If there are no data yet.
            DataError: If the inputs do not fit the data.
            InvalidArgumentError: If there is no such column, or a term has no derivative in it.

        Warns:
            ForecastWarning: If all rows are later than the training rows, and the kernel was not selected by forecasts.

        Examples:
            >>> import numpy as np
            >>> import rfgp
            >>> X = np.linspace(0, 10, 40)[:, None]
            >>> gp = rfgp.GP(rfgp.kernels.RBF(), seed=0).fit(X, np.sin(X[:, 0]))
            >>> gp.predict([[np.pi / 2]]).mean.round(2)
            array([1.])
        """
        state = self.state
        inputs, output_format = state.points_or_blocks(X)
        for warning in forecast_warnings(state, self.fit_report, inputs):
            warnings.warn(warning, stacklevel=3)
        prediction = state.predict_at(inputs, output_format, derivative)
        if derivative is not None:
            return prediction
        return replace(prediction, calibrated_ends=partial(calibrated_ends, state, self.fit_report, inputs))

    @computed
    def integrate(self, low: Any, high: Any, columns: Any = None) -> Prediction:
        """Return the joint posterior of integrals of the function over boxes.

        Integrals are in units of the target times those of the columns, and computed by Gauss-Legendre quadrature.
        The relative error of the prior variance of a term's integral is at most 1e-5, mostly 1e-7. For rough kernels in
        several columns it is at most 1e-3.

        Args:
            low: The lower corners of m boxes, inputs as for `predict`.
            high: The upper corners. In columns that are not integrated over, both corners must have the same value.
            columns: The key of a column of numbers, or several, to integrate over. If None, the columns in which the
                corners of a box differ.

        Returns:
            The posterior of the m integrals, with the same attributes as the posterior at m points.

        Raises:
            NotFittedError: If there are no data yet.
            DataError: If the corners do not fit the data, or each other.
            InvalidArgumentError: If a lower corner is above the upper one, there is no such column of numbers, or a box
                is too many lengthscales wide.

        Examples:
            >>> import numpy as np
            >>> import rfgp
            >>> t = np.linspace(0, 10, 200)[:, None]
            >>> gp = rfgp.GP(rfgp.kernels.RBF(0, lengthscale=1.0), start={"noise": 1e-4}).condition(t, np.sin(t[:, 0]))
            >>> gp.integrate([[0.0], [0.0]], [[np.pi], [2 * np.pi]]).mean.round(2) + 0.0
            array([2., 0.])
        """
        return integrated(self.state, low, high, columns)

    @computed
    def sample_functions(self, num_samples: int, *, seed: int | None = None) -> Callable[[Any], Any]:
        """Draw functions from the posterior, which can be evaluated at any inputs.

        Their values have the joint distribution of `predict`, except that the effects of levels without training rows
        are 0. With features they are finite sums phi(x) . w. Exact processes on graphs are conditioned pathwise, in
        memory that does not depend on the number of new nodes.

        Args:
            num_samples: The number s of functions.
            seed: The seed of the draw. If None, one from the system.

        Returns:
            A function that maps X, (n, d) or n node labels, to values (s, n), or (s, n, k) for k outputs. Results are
            arrays, or tensors if X is a tensor. On tables they are differentiable in X.

        Raises:
            NotFittedError: If there are no data yet.
            InvalidArgumentError: If s is not a positive integer, the model is an average, or a term cannot draw
                functions: an exact kernel on a table, nearest neighbors, or inducing points with method "fitc"
                (the default if the likelihood is Gaussian) or "vfe".
        """
        return self.state.sample_functions(num_samples, seed)

    @computed
    def prior_covariance(self, X: Any) -> Tensor:
        """Return the prior covariance of the function in the user's units.

        It is computed by the approximations of the terms: with features it is phi phi^T, not the exact kernel.

        Args:
            X: As for `predict`.

        Returns:
            The covariance (n, n), or (n, n, k) for k outputs, float64.
        """
        return self.state.prior_covariance(X)

    @with_torch_defaults()
    def save(self, path: str | Path, data: bool = False) -> None:
        """Write the model to a file that `rfgp.load` reads. See `rfgp.saving`.

        Args:
            path: The file. By convention its name ends in .safetensors. It is written atomically.
            data: Whether the training rows are written. Without them a loaded model predicts.

        Raises:
            NotFittedError: If there are no data yet.
            InvalidArgumentError: If a part cannot be written as numbers and JSON. The message names it.
        """
        saved = Saved(type(self).__name__, self.state, self.fit_report, self.metadata)
        write(Path(path), saved, data=data)

    def __repr__(self) -> str:
        if self._fitted is None:
            return f"{type(self).__name__}({', '.join([*shown_arguments(type(self), self.argument), 'not fitted'])})"
        return f"{type(self).__name__}({counted(self.num_observations, 'observation')}, {self.hyperparameters})"

    def diagnosed(self, report: FitReport | None = None) -> Iterator[Warning]:
        """Yield warnings about the model and its rows, given the report of a fit or None."""
        now = self.state
        for warning in now.spec.diagnosed(now.hyperparameters, now.rows, report):
            if now.scale_model is None or not isinstance(warning, OutlierWarning):  # scales model outliers
                yield warning

    # --- for models ------------------------------------------------------------------------------

    def argument(self, name: str, default: Any) -> Any:
        """Return an argument of the constructor, or the default if it is not known."""
        return getattr(self._spec.options, name, default)


def _needed(model: Process[Any]) -> Fitted:
    if model._fitted is None:
        raise NotFittedError("The model has no data yet. Call fit(X, y), or condition(X, y), first.")
    return model._fitted
