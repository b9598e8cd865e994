"""The model: a kernel, approximations of its terms and a likelihood."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import torch
from torch import Tensor

from rfgp import forecasts, random
from rfgp.approximations import Approximation, Exact
from rfgp.approximations.planning import AUTO, read_approximation
from rfgp.columns.table import is_grid
from rfgp.errors import DataSavedWarning, InvalidArgumentError, NotFittedError
from rfgp.fitting import Callback, Deadline, Plan, Progress, Reporter, fingerprint, open_checkpoint
from rfgp.fitting.integrated import log_density
from rfgp.fitting.progress import Checkpoint
from rfgp.forecasts import Backtest
from rfgp.hyperparameters import Hyperparameters
from rfgp.inference.distributions import prior_kernel
from rfgp.inference.observed import LeaveOneOut
from rfgp.inference.prediction import Prediction
from rfgp.kernels import RBF, Group, Kernel
from rfgp.likelihoods import Likelihood
from rfgp.limits import limits
from rfgp.messages import check_count, counted, read_bytes, read_seconds
from rfgp.models.diagnostics import TermReport, forecast_warnings, term_reports, warnings_of
from rfgp.models.report import Budget, Calibration, FitReport, SelectionReport, calibrated_ends, calibration
from rfgp.models.spec import ModelOptions, ModelSpec
from rfgp.models.state import (
    GPState,
    approximated,
    averaged,
    begin,
    conditioned,
    constant_warnings,
    exact_evidence_bounds,
    extended,
    input_variances,
    integrated,
    largest,
    parts_of_average,
    predicted,
    reduced,
    solved_if_read,
    with_noise_of_inputs,
)
from rfgp.models.variogram import Variogram, variogram
from rfgp.parameters import Hyperprior
from rfgp.saving import Saved, row_terms, write
from rfgp.selection import AutoSpace, fit_model, run_selection
from rfgp.solvers.lowrank import EvidenceBounds
from rfgp.threads import computed, in_one_thread
from rfgp.torch_context import unlisted, with_torch_defaults

_SHOWN = 60
"""The maximum number of characters of one argument in the repr of a model."""


@dataclass(frozen=True, eq=False)
class _Fitted:
    """The state of a model with data. The model replaces it as one object.

    Attributes:
        state: The state that computes results.
        live: Its hyperparameters, which users may change.
        report: The report of the fit. If None, there was no fit.
    """

    state: GPState
    live: Hyperparameters
    report: FitReport | None = None

    def now(self) -> GPState:
        """Return the state at the live hyperparameters, which is cached until they change."""
        recent: GPState = vars(self).get("_recent", self.state)
        now = recent.at(self.live.values)
        if now is not recent and now.rows is not None:
            object.__setattr__(self, "_recent", now)
        return now


@unlisted("of", "spec", "state", "diagnosed", "is_small")
class GP:
    """A Gaussian process with a sum of terms, each with its own approximation.

    `fit` and `condition` replace the data, `update` adds rows and `forget` removes them. If one of them fails, the
    model is unchanged. Threads can share a model. Predictions are in the user's units and follow changes of
    `hyperparameters`.

    If the training columns have names, later columns are matched by name, in any order. A missing column is an error,
    and additional ones are ignored. If the training columns have no names, columns are matched by position.

    Args:
        kernel: A kernel of `rfgp.kernels`, or "auto". With "auto" a fit selects a kernel over all columns and the
            approximations of its terms. Candidates are compared by their scores on left-out or held-out rows (see
            `selection`). Up to 2,000 rows they are exact GPs, and those with close scores are averaged (see `members`).
        likelihood: The distribution of an observation given the latent function: a name or an object of
            `rfgp.likelihoods`. `Heteroscedastic(kernel=...)` adds terms "noise.<term>" for the log noise variance.
            With "auto" a fit chooses the noise by left-out rows: Gaussian of one variance, or normal or Student-t
            residuals whose scale depends on the columns and the mean (see `selection`). If None, "auto" if the kernel
            is, else "gaussian".
        approximation: One approximation for every term that supports it, a dict of approximations by term name, or
            "auto". Other terms get a default that suits the kernel and the number of rows.
        inference: "laplace" or "variational", for likelihoods that are not Gaussian. If None, the default of the
            likelihood.
        mean: "constant" for a learned constant mean, or "zero".
        standardize: Whether columns of numbers and targets are scaled to mean 0 and standard deviation 1.
        start: Starting values of hyperparameters by path or unique suffix, in the user's units, such as
            {"trend.lengthscale": 2.0}. If None, they depend on the data.
        priors: Priors of hyperparameters by path or unique suffix: objects with `log_prob`, such as those of
            `rfgp.priors`, or None to remove a default prior.
        seed: The seed of all random numbers. If None, one from the system.
        dtype: The dtype of the rows. If None, that of the data.
        budget: The total number of features of all terms with random features. A fit divides it in proportion to the
            effective degrees of freedom of the terms. Terms that a dict of approximations names are excluded. Terms of
            the noise have a budget of the same size. For one kernel on the nodes of a large graph it is the number of
            features of a node that `graphs.advise` may propose. If None, each approximation sets its own number.
        memory: The memory limit of the largest arrays: bytes, "500MB" or "4GB". A model that needs more raises an error
            before it allocates. If None, most of the machine's memory, and 8 GB for each candidate of a selection.
        time_limit: The time limit of a fit, with the selection of its kernel: seconds, "30s", "5min" or "2h". When it
            has passed, a search ends after the evaluation of the likelihood that is under way. The model is conditioned
            on all rows at the best hyperparameters so far. A selection skips candidates whose predicted time exceeds
            the limit. If None, there is no limit for a given kernel, and a selection limits the predicted time to 60 s
            plus 8 ms a row, at most 30 min. The result is then reproducible.
        validate: The validation rows of a selection. "forward" holds out the last rows by the column of dates, or by
            the only column. The key of a column keeps rows with equal values together. If None, rows are chosen at
            random, and rows with equal inputs stay together, except for replicates of categories and of few inputs.
        hyperparameter_posterior: "point" for one value of each hyperparameter. "integrated" averages over their
            posterior, at up to 60 points (see `members` and `hyperparameters.posterior()`), which widens error bars on
            few rows. "auto" integrates below 10 rows a hyperparameter if the model allows it. Integration requires a
            Gaussian likelihood and one output. Hyperparameters without a prior then get a weak one.

    Attributes:
        metadata: A dict of your own, saved with the model. Values must be representable in JSON.

    Raises:
        InvalidArgumentError: If an option has a wrong type or value, or does not match the kernel.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> from rfgp import kernels as k
        >>> X = {"t": np.linspace(0, 10, 50), "store": ["a", "b"] * 25}
        >>> gp = rfgp.GP(k.RBF("t", name="trend") + k.Group("store"), seed=0).fit(X, np.sin(X["t"]))
        >>> list(gp.predict(X).terms)
        ['trend', 'group(store)']

        Select the kernel:

        >>> gp = rfgp.GP(seed=0).fit(X, np.sin(X["t"]))
        >>> len(gp.selection.trials), gp.selection.noise.num_validation
        (8, 50)
        >>> t = {"t": np.linspace(0, 10, 30)}
        >>> gp = rfgp.GP(k.RBF("t"), approximation=rfgp.EquispacedFourier(), seed=0).condition(t, np.sin(t["t"]))
        >>> type(gp.kernel).__name__, list(gp.terms), gp.members, gp.selection
        ('Sum', ['rbf(t)'], (), None)
        >>> gp.log_marginal_likelihood().shape, gp.leave_one_out().mean.shape
        (torch.Size([]), (30,))
        >>> gp.update({"t": [11.0]}, [0.5]).num_observations, gp.forget({"t": [11.0]}, [0.5]).num_observations
        (31, 30)
        >>> gp.prior_covariance({"t": [1.0, 2.0]}).shape, gp.sample_functions(3, seed=0)({"t": [1.0, 2.0]}).shape
        (torch.Size([2, 2]), (3, 2))
    """

    leaf: ClassVar[Any] = Kernel
    """The class of the kernel. Presets fix it."""
    approximation_class: ClassVar[type] = Approximation
    """The class of the approximation of the first term. Presets fix it."""

    @with_torch_defaults()
    def __init__(
        self,
        kernel: Kernel | str = "auto",
        likelihood: str | Likelihood | None = None,
        approximation: Any = "auto",
        *,
        inference: str | None = None,
        mean: str = "constant",
        standardize: bool = True,
        start: Mapping[str, Any] | None = None,
        priors: Mapping[str, Hyperprior | None] | None = None,
        seed: int | None = None,
        dtype: torch.dtype | None = None,
        budget: int | None = None,
        memory: str | float | None = None,
        time_limit: str | float | None = None,
        validate: str | int | None = None,
        hyperparameter_posterior: str = "point",
    ) -> None:
        is_auto = isinstance(kernel, str) and kernel == AUTO
        selects_noise = is_auto if likelihood is None else isinstance(likelihood, str) and likelihood == AUTO
        options = ModelOptions(
            cast(Kernel, RBF(name="rbf") if is_auto else kernel),
            "gaussian" if likelihood is None or selects_noise else likelihood,
            approximation,
            inference,
            mean,
            standardize,
            start or {},
            priors or {},
            seed,
            dtype,
            budget,
            None if memory is None else read_bytes("memory", memory),
            selects_noise=selects_noise,
            hyperparameter_posterior=hyperparameter_posterior,
        )
        if is_auto:
            if isinstance(options.approximations, Mapping):
                raise InvalidArgumentError(
                    'approximation must be one value or "auto" if the kernel is selected, got a dict by the names of '
                    "terms. Give the kernel too."
                )
            space = AutoSpace(options, Budget.of(time_limit, options.memory), validate)
            options = options.changed(search_space=space)
        elif validate is not None:
            raise InvalidArgumentError('validate requires kernel="auto", whose candidates it scores.')
        seconds = None if time_limit is None else read_seconds("time_limit", time_limit)
        self._begin(ModelSpec(options.changed(time_limit=seconds)))

    @classmethod
    def of(cls, state: GPState, report: FitReport | None = None) -> Self:
        """Return a model that holds a state, without calling `__init__`.

        Args:
            state: The state.
            report: The report of the fit. If None, there was no fit.
        """
        model = cls.__new__(cls)
        model._begin(state.spec)
        model._hold(state, report)
        return model

    def _begin(self, spec: ModelSpec) -> None:
        self._spec, self._fitted = spec, cast(_Fitted | None, None)
        self.metadata: dict[str, Any] = {}

    def _hold(self, state: GPState, report: FitReport | None = None) -> None:
        """Replace the state, with its posterior if its rows cannot be read again."""
        state = state if state.given is not None else solved_if_read(state)
        posterior = None if report is None else report.hyperparameter_posterior
        self._fitted = _Fitted(state, Hyperparameters(state.hyperparameters, posterior), report)

    # --- properties -------------------------------------------------------------------------------

    @property
    def spec(self) -> ModelSpec:
        """The options of the model and, after the first data, its random draws."""
        return self._spec if self._fitted is None else self._fitted.state.spec

    @property
    def seed(self) -> int:
        """The seed of all random numbers, or 0 if the model uses none."""
        return int(self.spec.options.seed)

    @property
    def fit_report(self) -> FitReport | None:
        """The report of the last fit, or None before a fit."""
        return None if self._fitted is None else self._fitted.report

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

    @property
    def kernel(self) -> Kernel:
        """The kernel, with the current hyperparameters as starting values.

        Options that depend on the data, such as columns, origins and levels, are then resolved.
        """
        spec = self.spec
        return spec.options.kernel if self._fitted is None else spec.fitted_kernel(self.state.hyperparameters)

    @property
    def selection(self) -> SelectionReport | None:
        """The candidates of the last fit with scores and costs, or None."""
        return None if self.fit_report is None else self.fit_report.selection

    @property
    def terms(self) -> dict[str, TermReport]:
        """Reports of the terms by name, those of the noise last.

        For an average of models they are the terms of the model with the largest weight. Reports are computed at each
        access. Shares and degrees of freedom use at most 500 random training rows. They are None if the model was saved
        without its data. Terms of a heteroscedastic noise are named "noise.<term>".

        Raises:
            NotFittedError: If the model has not been fitted or conditioned.
        """
        return term_reports(largest(self.state))

    @property
    def members(self) -> tuple[tuple[float, Self], ...]:
        """The averaged models with weights, the largest first, or () for a single model."""
        if not self.spec.other_members:
            return ()
        parts = sorted(parts_of_average(self.state), key=lambda part: -part[0])
        return tuple((share, self._with(member)) for share, member in parts)

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
        trials: Any = None,  # (n,)
        censored: Any = None,  # (n,)
        average_over: Any = None,  # (n,)
        weights: Any = None,  # (n,)
        input_noise: Mapping[Any, Any] | None = None,
        horizon: int | None = None,
        by: Any = None,
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
                graph. A Dataset or DataArray of xarray is a table of cells, with coordinates and variables as columns.
                Cells without a target are left out. `rfgp.tables.Parquet`, `CSV` and `Batches`, and a `numpy.memmap`,
                are read in blocks. Blocks require that all terms have dense weights, such as random features or
                inducing points.
            y: Targets (n,), or (n, k) for k outputs with one kernel and, if standardized, one noise variance. If X
                holds the targets, the name of their column or k names, or None for sources that are read in blocks.
            noise: Known noise variances (n,), in squared units of the targets. They are added to the learned noise. If
                None, zeros.
            sample_weight: Positive numbers (n,). A row of weight w counts as w repeated observations. If None, ones.
            exposure: Positive numbers (n,) that multiply the mean e^f, such as times, areas or populations. They
                require a likelihood of counts or positive values. If None, ones.
            trials: The number of trials of each row (n,), or one for all, for likelihood="binomial", which needs them.
            censored: Codes (n,): -1 if the true target is at most y (left-censored), 0 if it is y, and 1 if it is at
                least y (right-censored). They require a likelihood of censored values: "tobit", "lognormal" or
                "weibull". If None, zeros. These five arguments may each be the name of a column of X, which is then no
                input.
            average_over: The areas (n,) of the rows, or the name of their column. Rows that share an area are the
                points of one observed mean of the function, whose target stands in one of them (NaN in the others) or
                in all. Noise is of the mean, and leave-one-out is by area. Exact kernels, features and inducing points
                with a Gaussian likelihood support it. If None, each row is a point.
            weights: Positive weights (n,) of the rows in their area, or the name of their column, such as populations.
                They are scaled to a sum of 1 in each area. If None, all points count alike.
            input_noise: Variances of errors in columns of numbers, by the name of the column: a number, or one for each
                row, in squared units of the column. A first fit gives the slope of the mean at each row. Its square
                times the variance is added to the noise of the row for a second fit. This is a correction of first
                order (McHutchon and Rasmussen 2011, Gaussian process training with input noise, Equation 4), for
                errors that are small against the lengthscale. Rows of `update` have no such errors. If None, inputs
                are exact.
            horizon: The number of steps that will be forecast, for kernel="auto" and a column of times. Candidates are
                then levels, slopes and seasons in time, and are scored by forecasts of so many steps. If None, they are
                so if dates are the only input or there is one row a step, or with validate="forward", and a tenth of
                the steps is forecast.
            by: The key of a column that names the series of each row, for kernel="auto" and a column of times.
                Candidates then have a level and seasons that all series share, and a level of each. If None, there is
                one series.
            fixed: Names of hyperparameters that keep their starting values.
            max_iterations: The maximum number of iterations of L-BFGS on each subset of rows, and of steps of learned
                frequencies. If None, 500 and 300.
            callback: A function of the number of iterations and the log marginal likelihood of the rows in use, with
                the hyperpriors. It is called after each iteration. The model does not change until the fit has ended.
            progress: If True, the stage, the likelihood and the remaining time are written to the standard error. Or a
                function that takes a `Progress`.
            checkpoint: A file for the hyperparameters after each iteration. An interrupted fit that is repeated with
                the same arguments resumes from them, and ends at the same likelihood within the tolerance of a search.
                If None, nothing is stored.

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
        spec = self._spec if horizon is None and by is None else _of_series(self._spec, horizon, by)
        numbers = {"exposure": exposure, "trials": trials, "censored": censored}
        data = self._spec.chunk(X, y, noise, sample_weight, (average_over, weights), **numbers)
        begun = begin(spec, data, is_fit=True)
        errors_of_inputs = input_variances(begun, input_noise) if input_noise else {}
        constant = tuple(constant_warnings(begun.spec, begun.require_rows(purpose="a fit")))
        names = ("*",) if constant else names
        record = open_checkpoint(checkpoint, lambda: fingerprint(begun, names, max_iterations, horizon, by))
        with in_one_thread(begun.num_observations <= limits().small_rows):
            with Reporter(callback, progress) as reporter:
                plan = Plan(names, max_iterations, reporter, record, horizon=horizon, by=by, deadline=deadline)
                state, report = fit_model(begun, plan)
                if errors_of_inputs:
                    begun = with_noise_of_inputs(begun, state, errors_of_inputs)
                    state, report = fit_model(begun, replace(plan, checkpoint=Checkpoint()))
            report = replace(report, fixed=tuple(dict.fromkeys([*names, *report.fixed])), by=by)
            self._hold(state, report)
            found = (*constant, *self.diagnosed(report, names))
        for warning in found:
            warnings.warn(warning, stacklevel=3)
        return self

    @with_torch_defaults()
    def condition(
        self,
        X: Any,
        y: Any = None,
        *,
        noise: Any = None,  # (n,)
        sample_weight: Any = None,  # (n,)
        exposure: Any = None,  # (n,)
        trials: Any = None,  # (n,)
        censored: Any = None,  # (n,)
        average_over: Any = None,  # (n,)
        weights: Any = None,  # (n,)
    ) -> Self:
        """Condition on data without a fit. Earlier data are replaced.

        Hyperparameters keep their values. If there were no data before, they have their starting values.

        Args:
            X: As for `fit`.
            y: Targets, (n,) or (n, k).
            noise: As for `fit`, (n,).
            sample_weight: As for `fit`, (n,).
            exposure: As for `fit`, (n,).
            trials: As for `fit`, (n,).
            censored: As for `fit`, (n,).
            average_over: As for `fit`, (n,).
            weights: As for `fit`, (n,).

        Raises:
            DataError: If the data cannot be used. The message names the place.
        """
        numbers = {"exposure": exposure, "trials": trials, "censored": censored}
        data = self._spec.chunk(X, y, noise, sample_weight, (average_over, weights), **numbers)
        fitted = self._fitted
        if fitted is None:
            self._hold(begin(self._spec, data))
        else:
            self._fitted = replace(fitted, state=conditioned(fitted.now(), data))
        with in_one_thread(self.is_small):
            found = tuple(self.diagnosed())
        for warning in found:
            warnings.warn(warning, stacklevel=3)
        return self

    @computed
    def update(
        self,
        X: Any,
        y: Any = None,
        *,
        noise: Any = None,  # (n,)
        sample_weight: Any = None,  # (n,)
        exposure: Any = None,  # (n,)
        trials: Any = None,  # (n,)
        censored: Any = None,  # (n,)
        average_over: Any = None,  # (n,)
        weights: Any = None,  # (n,)
    ) -> Self:
        """Add rows to the data, with the hyperparameters unchanged.

        Arguments are those of `condition`. If there are fewer features than rows and the posterior is known, only the
        new rows are read.

        Raises:
            NotFittedError: If there are no data yet.
            DataError: If the rows do not fit the earlier ones, or cannot be used.
        """
        fitted = _needed(self)
        numbers = {"exposure": exposure, "trials": trials, "censored": censored}
        more = self._spec.chunk(X, y, noise, sample_weight, (average_over, weights), **numbers)
        self._fitted = replace(fitted, state=extended(fitted.now(), more))
        return self

    def forget(
        self,
        X: Any,
        y: Any = None,
        *,
        noise: Any = None,
        sample_weight: Any = None,
        exposure: Any = None,
        trials: Any = None,
        censored: Any = None,
    ) -> Self:
        """Remove rows by subtracting their sums. Arguments are those of `condition`.

        Raises:
            NotFittedError: If there are no data yet.
            InvalidArgumentError: If a term has no fixed features, or no term is approximated by `EquispacedFourier`.
            DataError: If the data cannot be used, or no row would remain.
        """
        fitted = _needed(self)
        data = self._spec.chunk(X, y, noise, sample_weight, exposure=exposure, trials=trials, censored=censored)
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
    def log_density(self, values: Any, fixed: Iterable[str] = ()) -> Tensor:
        """Return the log joint density of the targets and the hyperparameters, 0-d, for samplers of other packages.

        The density is that of unconstrained coordinates: logarithms of standardized values, and the mean in standard
        deviations of the target. It contains the priors with their Jacobians. Hyperparameters without a proper prior
        have the one of hyperparameter_posterior="integrated". It is differentiable in the values, and -inf if the
        covariance of the rows has no Cholesky factor. For an average of models it is that of the first member.

        Args:
            values: The coordinates, (p,), as `hyperparameters.unconstrained(fixed)` returns them.
            fixed: Names of hyperparameters that keep their current values.

        Raises:
            NotFittedError: If there are no data, or the model was loaded without them.
            InvalidArgumentError: If the shape of the values is wrong, or there is no such hyperparameter.

        Examples:
            >>> import numpy as np
            >>> import rfgp
            >>> X = np.linspace(0, 10, 20)[:, None]
            >>> gp = rfgp.GP(rfgp.kernels.RBF(), seed=0).condition(X, np.sin(X[:, 0]))
            >>> x = gp.hyperparameters.unconstrained().requires_grad_()
            >>> gp.log_density(x).backward()
            >>> x.grad.shape
            torch.Size([4])
        """
        return log_density(largest(self.state), values, fixed)

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
    def variogram(
        self,
        term: str | None = None,
        *,
        max_distance: float | None = None,
        num_bins: int = 15,
        num_pairs: int = 1_000_000,
        seed: int | None = None,
    ) -> Variogram:
        """Return the variogram of the rows and of the model: nugget, sill and practical range.

        The values of rows are targets less the mean and the posterior means of all other terms, such as a `Linear`
        trend. With an estimated trend they vary somewhat less at long distances than the model says. If lengthscales
        differ, there is one variogram for each of their axes, and a pair belongs to the axis that is nearest to it in
        lengthscales. Its distance is that along the axis with the same semivariance in the model.

        Args:
            term: The name of the term whose columns are positions. Other stationary terms of these columns are added.
                If None, the first stationary one.
            max_distance: The largest distance, in the columns' units. If None, half of the extent of the rows or two
                practical ranges in each direction, whichever is smaller.
            num_bins: The number of bins of equal width in each direction.
            num_pairs: The number of pairs that are drawn at random if there are more.
            seed: The seed of the draw. If None, that of the model.

        Returns:
            The variogram. `str` gives a table, and `rfgp.plotting.plot_variogram` a picture.

        Raises:
            NotFittedError: If the rows are not known.
            InvalidArgumentError: If no term is stationary, or the noise has not one variance.
            DataError: If all rows are at one position.

        Examples:
            >>> import numpy as np
            >>> import rfgp
            >>> from rfgp import kernels as k
            >>> rng = np.random.default_rng(0)
            >>> X, noise = rng.uniform(0, 10, (200, 2)), 0.1 * rng.standard_normal(200)
            >>> gp = rfgp.GP(k.Matern((0, 1)), seed=0).fit(X, np.sin(X[:, 0]) + np.cos(X[:, 1]) + noise)
            >>> variogram = gp.variogram()
            >>> variogram.directions, bool(abs(variogram.nugget - 0.01) < 0.004)
            (('0', '1'), True)
        """
        return variogram(self.state, term, max_distance, num_bins, num_pairs, seed)

    @computed
    def predict(self, X: Any, *, derivative: Any = None) -> Prediction:
        """Return the posterior of the latent function in the user's units.

        Args:
            X: Inputs (n, d), or n node labels. Results are arrays, or tensors if X is a tensor. Sources that are read
                in blocks are read when the mean (n,) or the variance (n,) is computed. The cells of a Dataset or
                DataArray of xarray are points, and `to_xarray()` of the prediction has its coordinates.
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
        prediction = predicted(state, inputs, output_format, derivative)
        if is_grid(X):
            prediction = replace(prediction, grid=(X.coords.to_dataset(), dict(X.sizes)))
        if derivative is not None:
            return prediction
        return replace(prediction, calibrated_ends=partial(calibrated_ends, state, self.fit_report, inputs))

    @computed
    def forecast(
        self,
        steps: int | None = None,
        *,
        until: Any = None,
        level: float = 0.95,
        future: Any = None,
        frequency: Any = None,
        backtest: Backtest | None = None,
        by: Any = None,
        log: bool | None = None,
    ) -> Any:
        """Return a forecast of the observations that follow the last row.

        The column of times is that of dates, of a Wiener process or a season, or the only column.

        Args:
            steps: The number h of steps.
            until: In place of `steps`, the last time.
            level: The level of the bands.
            future: A table with the other columns of the model for each step. With the column of times too, its rows
                are forecast, and `steps` and `until` must be None.
            frequency: The step between rows: for dates a text as in pandas, such as "h", "15min", "D", "W", "B", "MS"
                or "YS", or a `timedelta`; otherwise a number in the unit of the column. If None, it is inferred from
                the rows, of which some may be missing.
            backtest: A backtest of at least ten origins. Bands become wider where its bands were too narrow (see
                `rfgp.forecasts`). If None, bands are those of the model.
            by: The key of the column of the series, of which each is forecast. If None, that of `fit`.
            log: Whether the targets are logarithms. The mean and the ends of bands are then in the unit of the target
                itself, and terms are factors. If None, as `metadata["log"]` says, which `rfgp fit --log` sets.

        Returns:
            A pandas frame of h rows, or h of each series: the times and other columns, "mean", "lower" and "upper" of
            an observation, and the mean of each term by its name. `frame.attrs["frequency"]` is the step.

        Raises:
            NotFittedError: If there are no data yet.
            InvalidArgumentError: If there is no column of times, or arguments contradict each other.
            DataError: If future values of a column are missing.

        Warns:
            ForecastWarning: If the kernel was not selected by forecasts.

        Examples:
            >>> import numpy as np
            >>> import rfgp
            >>> from rfgp import kernels as k
            >>> day = np.arange("2024-01-01", "2024-03-01", dtype="datetime64[D]")
            >>> kernel = k.Wiener("day", name="level") + k.Harmonics("day", 7, num_harmonics=3, name="week")
            >>> gp = rfgp.GP(kernel, seed=0).fit(
            ...     {"day": day}, np.arange(60) + 3 * np.sin(np.arange(60) / 7 * 2 * np.pi)
            ... )
            >>> forecast = gp.forecast(14)
            >>> list(forecast), forecast.attrs["frequency"]
            (['day', 'mean', 'lower', 'upper', 'level', 'week'], '1 day')
        """
        by = self.fit_report.by if by is None and self.fit_report is not None else by
        log = bool(self.metadata.get("log")) if log is None else log
        given = steps, until, level, future, frequency, backtest, by
        return forecasts.forecast(self.state, *given, log=log, report=self.fit_report)

    @computed
    def backtest(
        self,
        horizon: int,
        folds: int = 10,
        *,
        level: float = 0.95,
        refit: bool = True,
        frequency: Any = None,
        by: Any = None,
        log: bool | None = None,
    ) -> Backtest:
        """Return forecasts from several origins in the past, compared with the rows that followed.

        Origins are `horizon` steps apart, or less if the second half of the times has too few. A selected kernel and
        the weights of an average are kept. They were chosen by all rows, so scores are a little optimistic.

        Args:
            horizon: The number of steps of each forecast.
            folds: The number of origins.
            level: The level of the bands.
            refit: Whether hyperparameters are searched again at each origin, from their values, without later rows.
                Those that the fit kept fixed, or integrated over, keep their values. If not, all keep their values,
                which is faster, and optimistic since they are those of all rows.
            frequency: The step between rows, as for `forecast`.
            by: The key of the column of the series, as for `forecast`. Origins are times of all series. Series that
                begin after an origin are left out there.
            log: As for `forecast`.

        Returns:
            The forecasts with scores and coverage by lead time, beside those of the seasonal naive forecast. `str`
            gives a table.

        Raises:
            NotFittedError: If there are no data yet.
            InvalidArgumentError: If there is no column of times, or an argument is out of range.
            DataError: If the horizon is more than half of the times.

        Examples:
            >>> import numpy as np
            >>> import rfgp
            >>> t = np.arange(60.0)
            >>> gp = rfgp.GP(rfgp.kernels.Wiener("t"), seed=0).fit({"t": t}, np.cumsum(np.cos(t)))
            >>> gp.backtest(horizon=6, folds=4)
            Backtest(4 origins, 6 steps of 1)
        """
        by = self.fit_report.by if by is None and self.fit_report is not None else by
        options = {"by": by, "log": bool(self.metadata.get("log")) if log is None else log}
        return forecasts.backtest(
            self.state, horizon, folds, level, self.fit_report, refit=refit, frequency=frequency, **options
        )

    @computed
    def integrate(self, low: Any, high: Any, columns: Any = None) -> Prediction:
        """Return the joint posterior of integrals of the function over boxes.

        Integrals are in units of the target times those of the columns, and computed by Gauss-Legendre quadrature with
        about 16, 64, 1,024 or 4,096 nodes a box: the fewest for which the relative error of the prior variance of each
        term's integral is at most 1e-7. With 1,024 or more it is at most 1e-3, for smooth kernels much
        smaller.

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
        state, num_samples = self.state, check_count("num_samples", num_samples)
        generator = random.generator(random.resolve_seed(seed), random.Role.FUNCTIONS)
        with torch.no_grad():
            mean, scale = state.hyperparameters.value("mean").double(), state.scaling.targets.scale.double()
            drawn = state.posterior.sample_functions(num_samples, generator)

        @with_torch_defaults()
        def functions(X: Any) -> Any:
            inputs, output_format = state.points(X)
            with torch.set_grad_enabled(torch.is_grad_enabled() and inputs.requires_grad):
                values = mean + scale * drawn(inputs)
            values = (values if mean.ndim else values[..., 0]).to(output_format.like)
            return values.cpu().numpy() if output_format.is_numpy else values

        return functions

    @computed
    def prior_covariance(self, X: Any) -> Tensor:
        """Return the prior covariance of the function in the user's units.

        It is computed by the approximations of the terms: with features it is phi phi^T, not the exact kernel.

        Args:
            X: As for `predict`.

        Returns:
            The covariance (n, n), or (n, n, k) for k outputs, float64.
        """
        state = self.state
        inputs, _ = state.points(X)
        members, scale = state.spec.members(state.hyperparameters), state.scaling.targets.scale.double()
        memory = state.spec.options.memory
        first, *others = (member.weight * prior_kernel(member.prior, inputs, memory) for member in members)
        kernel: Tensor = sum(others, start=first)
        return scale**2 * (kernel[..., None] if scale.ndim else kernel)

    @with_torch_defaults()
    def select(
        self,
        X: Any,
        y: Any = None,
        *,
        noise: Any = None,  # (n,)
        sample_weight: Any = None,  # (n,)
        exposure: Any = None,  # (n,)
        trials: Any = None,  # (n,)
        censored: Any = None,  # (n,)
        average_over: Any = None,  # (n,)
        weights: Any = None,  # (n,)
        horizon: int | None = None,
        by: Any = None,
        progress: bool | Callable[[Progress], None] = False,
    ) -> SelectionReport:
        """Select a kernel and approximations as `fit` does, without changing the model.

        Args:
            X: As for `fit`.
            y: Targets, (n,) or (n, k), or the name of their column.
            noise: As for `fit`, (n,).
            sample_weight: As for `fit`, (n,).
            exposure: As for `fit`, (n,).
            trials: As for `fit`, (n,).
            censored: As for `fit`, (n,).
            average_over: As for `fit`, (n,).
            weights: As for `fit`, (n,).
            horizon: As for `fit`.
            by: As for `fit`.
            progress: As for `fit`.

        Returns:
            The report of all candidates, with scores and predicted costs.

        Raises:
            InvalidArgumentError: If the kernel is not "auto".
            DataError: If the data cannot be used. The message names the place.

        Examples:
            >>> import numpy as np
            >>> import rfgp
            >>> X = np.linspace(0, 10, 60)[:, None]
            >>> report = rfgp.GP(seed=0).select(X, np.sin(X[:, 0]))
            >>> report.num_validation
            60
        """
        if self._spec.options.search_space is None:
            raise InvalidArgumentError('There is nothing to select, since the kernel is given. Use kernel="auto".')
        deadline = Deadline(self._spec.options.time_limit)
        spec = self._spec if horizon is None and by is None else _of_series(self._spec, horizon, by)
        numbers = {"exposure": exposure, "trials": trials, "censored": censored}
        data = self._spec.chunk(X, y, noise, sample_weight, (average_over, weights), **numbers)
        begun = begin(spec, data, is_fit=True)
        with in_one_thread(begun.num_observations <= limits().small_rows), Reporter(progress=progress) as reporter:
            return run_selection(begun, Plan(reporter=reporter, horizon=horizon, by=by, deadline=deadline))

    @computed
    def with_approximation(self, approximation: Any) -> Self:
        """Return a copy of the model with other approximations.

        It has the same data and hyperparameters. For an average of models it is a copy of the model with the largest
        share.

        Args:
            approximation: One approximation for every term that supports it, or a dict of approximations by term name.
                Other terms keep theirs.

        Raises:
            NotFittedError: If there are no data, or the model was loaded without them.
            InvalidArgumentError: If a name is unknown, or a term does not support its approximation.

        Examples:
            >>> import numpy as np
            >>> import rfgp
            >>> X = np.linspace(0, 10, 200)[:, None]
            >>> gp = rfgp.GP(rfgp.kernels.RBF(), seed=0).condition(X, np.sin(X[:, 0]))
            >>> gp.with_approximation(rfgp.RandomFeatures(16)).terms["rbf"].approximation.num_frequencies
            16
        """
        return self._with(approximated(self.state, read_approximation(approximation)))

    @computed
    def exact(self) -> Self:
        """Return a copy of the model without approximations.

        It has the same data and hyperparameters.

        Raises:
            NotFittedError: If there are no data, or the model was loaded without them.

        Examples:
            >>> import numpy as np
            >>> import rfgp
            >>> X = np.linspace(0, 10, 200)[:, None]
            >>> gp = rfgp.GP(rfgp.kernels.RBF(), approximation=rfgp.RandomFeatures(16), seed=0)
            >>> gp.condition(X, np.sin(X[:, 0])).exact().terms["rbf"].approximation
            Exact()
        """
        members = [(share, approximated(member, Exact())) for share, member in parts_of_average(self.state)]
        (weight, first), *others = members
        return self._with(averaged(first, weight, others) if others else first)

    @computed
    def evidence_bounds(self) -> EvidenceBounds:
        """Return bounds of the exact log marginal likelihood at current hyperparameters.

        Every term must have inducing points, or be an exact sum of finitely many functions, such as a linear term or a
        group. The cost is O(n F^2) for F weights.

        Sources: Titsias (2009), Equation 9, and Titsias (2014), Section 2. See `rfgp.solvers.lowrank`.

        Raises:
            InvalidArgumentError: If the likelihood is not Gaussian, or a term has another approximation. Random
                features give no bounds, because their kernel may exceed the exact one.
            NotFittedError: If there are no data, or the model was loaded without them.

        Examples:
            >>> import numpy as np
            >>> import rfgp
            >>> from rfgp import kernels as k
            >>> X = np.linspace(0, 10, 200)[:, None]
            >>> gp = rfgp.GP(k.RBF(), approximation=rfgp.InducingPoints(20), seed=0).condition(X, np.sin(X[:, 0]))
            >>> bounds, exact = gp.evidence_bounds(), gp.exact().log_marginal_likelihood().item()
            >>> bounds.lower <= exact <= bounds.upper
            True
        """
        return exact_evidence_bounds(self.state)

    @with_torch_defaults()
    def save(self, path: str | Path, data: bool | None = None) -> None:
        """Write the model to a file that `rfgp.load` reads.

        Args:
            path: The file. By convention its name ends in .safetensors. It is written atomically.
            data: Whether the training rows are written. Without them a loaded model predicts, but `update`, `exact` and
                `with_approximation` need `condition` first. The posterior still reveals information about the rows, and
                with fewer rows than features it determines them. If None, rows are written if predictions need them, as
                those of covariance matrices and nearest neighbors do.

        Raises:
            NotFittedError: If there are no data yet.
            InvalidArgumentError: If a part cannot be written as numbers and JSON, such as a kernel of a class of your
                own. The message names it.

        Warns:
            DataSavedWarning: If data is None, and the rows are written.

        Examples:
            >>> import os, tempfile
            >>> import numpy as np
            >>> import rfgp
            >>> from rfgp import kernels as k
            >>> X = np.linspace(0, 10, 200)[:, None]
            >>> gp = rfgp.GP(k.RBF(), approximation=rfgp.RandomFeatures(16), seed=0).condition(X, np.sin(X[:, 0]))
            >>> file = os.path.join(tempfile.mkdtemp(), "model.safetensors")
            >>> gp.save(file)
            >>> np.array_equal(rfgp.load(file).predict(X).mean, gp.predict(X).mean)
            True
        """
        from_rows = row_terms(self.spec) if data is None and self._fitted is not None else []
        saved = Saved(type(self).__name__, self.state, self.fit_report, self.metadata)
        write(Path(path), saved, data=bool(from_rows) if data is None else data)
        if from_rows:
            names = ", ".join(map(repr, from_rows))
            message = (
                f"The file holds the training rows, from which the terms {names} predict. Use data=True to save them "
                "without this warning, or RandomFeatures() or InducingPoints() to predict without rows."
            )
            warnings.warn(DataSavedWarning(message), stacklevel=3)

    def diagnosed(self, report: FitReport | None = None, fixed: tuple[str, ...] = ()) -> Iterator[Warning]:
        """Yield warnings about the model, its rows and a fit.

        Args:
            report: The report of a fit. If None, there was none.
            fixed: The names of the hyperparameters that the fit did not change.
        """
        return warnings_of(self.state, report, fixed)

    def argument(self, name: str, default: Any) -> Any:
        """Return an argument of the constructor, or the default if it is not known.

        Args:
            name: The name of the argument.
            default: The default.
        """
        options = self._spec.options
        if name == "approximation":
            return options.approximations
        space = options.search_space
        if name == "likelihood" and options.selects_noise:
            return AUTO if space is None else None
        if name == "likelihood" and self.spec.is_gaussian and space is None:
            return default
        if space is not None and name in ("kernel", "validate"):
            return {"kernel": AUTO, "validate": space.validate}[name]
        return getattr(options, name, default)

    def _shown_arguments(self) -> Iterator[str]:
        """Yield the arguments of the constructor that are not its defaults, as Python source."""
        for name, parameter in signature(type(self)).parameters.items():
            shown = " ".join(repr(self.argument(name, parameter.default)).split())
            if shown not in (repr(parameter.default), f"{str(parameter.default).capitalize()}()", "{}"):
                yield f"{name}={shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + '...'}"

    def __repr__(self) -> str:
        name = type(self).__name__
        if self._fitted is None:
            return f"{name}({', '.join([*self._shown_arguments(), 'not fitted'])})"
        others = len(self.spec.other_members)
        averaged = f", averaged with {counted(others, 'other')}" if others else ""
        return f"{name}({counted(self.num_observations, 'observation')}, {self.hyperparameters}{averaged})"

    def _with(self, state: GPState) -> Self:
        """Return a model that holds another state of the same rows."""
        kind: Any = type(self) if self.approximation_class is Approximation else GP
        model: Self = kind.of(state)
        return model


def _needed(model: GP) -> _Fitted:
    if model._fitted is None:
        raise NotFittedError("The model has no data yet. Call fit(X, y), or condition(X, y), first.")
    return model._fitted


def _of_series(spec: ModelSpec, horizon: int | None, by: Any) -> ModelSpec:
    """Return the specification of a selection for series, which reads the column of the series as levels.

    Raises:
        InvalidArgumentError: If the kernel is given, or the horizon is not a positive integer.
    """
    if horizon is not None:
        check_count("horizon", horizon)
    if spec.options.search_space is None:
        name = "by" if horizon is None else "horizon"
        raise InvalidArgumentError(f'{name} requires kernel="auto", whose candidates are those of series.')
    if by is None:
        return spec
    return replace(spec, options=spec.options.changed(kernel=spec.options.kernel + Group(by)))
