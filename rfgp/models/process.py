"""What every model does: hold a regression and swap it whole; fit, condition, predict, save."""

import warnings
from abc import ABC
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from torch import Tensor

from rfgp.ambient import hides, plain
from rfgp.counts import counted
from rfgp.errors import (
    ConvergenceWarning,
    NotFittedError,
    arguments,
)
from rfgp.fitting import Callback, Plan, Progress, Reporter, fingerprint, open_journal
from rfgp.hyperparameters import Hyperparameters
from rfgp.inference.observed import LeaveOneOut
from rfgp.inference.prediction import Prediction
from rfgp.models.fitted import Fitted, overfitting_warnings, selection_warnings
from rfgp.models.given import given, warn_of_targets
from rfgp.regression import (
    Family,
    FitReport,
    Regression,
    begin,
    conditioned,
    extended,
    integrated,
    reduced,
    solved_if_read,
)
from rfgp.saving import Codec, Saved, write

F = TypeVar("F", bound=Family)

_SHOWN = 60  # characters of an option


@hides("codec", "strategy", "of", "family", "regression", "diagnosed")
class Process(ABC, Generic[F]):
    """A Gaussian process with a Gaussian likelihood and a constant mean.

    Laws: `fit` and `condition` replace the data, `update` adds to them, and only these three change a
    model, each whole or not at all; threads may share one. `predict` is the latent law in the user's units;
    `log_marginal_likelihood` is differentiable in `hyperparameters`, and predictions follow when those are
    changed. `metadata` is the user's own: anything that JSON can hold, saved with the model.

    Columns that have names, as those of dataframes, Parquet and CSV files, go by them ever after, whatever their order:
    a missing one is an error, others are ignored, and arrays go by position. The names are saved with the model. If the
    first rows have no names, all columns go by position ever after.
    """

    codec: ClassVar[Codec]
    strategy: "ClassVar[staticmethod[[Regression, Plan], tuple[Regression, FitReport]]]"

    def __init__(self, family: F) -> None:
        self._family = family
        self._fitted: Fitted | None = None
        self.metadata: dict[str, Any] = {}

    @classmethod
    def of(cls, family: F, fitted: Fitted | None = None) -> Self:
        """Return the model of a family as it is."""
        model = cls.__new__(cls)
        Process.__init__(model, family)
        model._fitted = fitted
        return model

    # --- what is known of it ---------------------------------------------------------------------

    @property
    def family(self) -> F:
        """Which prior the inputs have: the options, and once there are data, what was drawn for them."""
        return self._family if self._fitted is None else cast(F, self._fitted.regression.family)

    @property
    def seed(self) -> int:
        """What everything random follows from; 0 where nothing is."""
        return int(self.family.options.seed)

    @property
    def fit_report(self) -> FitReport | None:
        """How the fit went; None before one. It may be set, to that of a model that this one was made of."""
        return None if self._fitted is None else self._fitted.report

    @fit_report.setter
    def fit_report(self, report: FitReport | None) -> None:
        self._fitted = replace(self._needed(), report=report)

    @property
    def hyperparameters(self) -> Hyperparameters:
        """The hyperparameters, in the user's units.

        Raises:
            NotFittedError: there are none before `fit` or `condition`.
        """
        return self._needed().live

    @property
    def num_observations(self) -> int:
        """The number n of observations.

        Raises:
            NotFittedError: there are none before `fit` or `condition`.
        """
        return self._needed().regression.num_observations

    @property
    @plain()
    def regression(self) -> Regression:
        """The value behind the model, at the hyperparameters as they are now.

        Raises:
            NotFittedError: there is none before `fit` or `condition`.
        """
        return self._needed().now()

    # --- what changes it -------------------------------------------------------------------------

    @plain()
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
        """Learn the hyperparameters by their marginal likelihood and condition on the data, in place.

        Args:
            X: Inputs; (n, d) for tables, n labels for graphs. Or, for tables, rows with their targets that are read in
                blocks: `rfgp.tables.Parquet`, `CSV` or `Batches`. A `numpy.memmap` is read in blocks as well. A `GP`
                reads blocks if all terms are dense weights, as those of random features and inducing points are.
            y: Targets (n,), or (n, k) for k outputs that share one kernel and, standardised, one noise.
            noise: Known variances of the rows' errors (n,), in the user's units squared, added to the learned noise.
            sample_weight: How often each row counts (n,), positive: as that many repetitions of the observation.
            exposure: Of counts, what their means are in proportion to (n,), positive: times, areas, populations. The
                latent function is then the logarithm of the mean of one unit of it.
            fixed: Names of hyperparameters that keep their starting values.
            max_iterations: Of L-BFGS on any subset of the rows, 500 where None; with learned frequencies also of their
                steps, 300 where None.
            callback: Called after every iteration with (iterations done, log marginal likelihood of the rows in use);
                the model is as it was until the fit has ended.
            progress: True to write the stage, the likelihood and the time left to the standard error; or a function
                that takes a `Progress`.
            checkpoint: A file that keeps what has been computed. A fit that was killed and is started again with the
                same arguments goes on from there, to the same result. It may be deleted after the fit.

        Returns:
            The model; `fit_report` says how it went.

        Raises:
            DataError: the data cannot be used; the message names the place.
            CheckpointError: the checkpoint is of another fit, or no checkpoint.

        Warns:
            ConvergenceWarning: the optimiser stopped early.
        """
        names = (fixed,) if isinstance(fixed, str) else tuple(fixed)
        warn_of_targets(self._family, y)
        begun = begin(self._family, given(self._family, X, y, noise, sample_weight, exposure))
        journaled = open_journal(checkpoint, lambda: fingerprint(begun, names, max_iterations))
        with journaled as journal, Reporter(callback, progress) as reporter:
            regression, report = self.strategy(begun, Plan(names, max_iterations, reporter, journal))
        self._fitted = Fitted.of(solved_if_read(regression), report)
        for warning in selection_warnings(report):
            warnings.warn(warning, stacklevel=3)
        if not report.converged:
            message = (
                f"The fit stopped after {counted(report.iterations, 'iteration')} without converging: "
                f"{report.message}. Raise {arguments('max_iterations')} if they ran out; otherwise fix a "
                "hyperparameter or give it a prior."
            )
            warnings.warn(ConvergenceWarning(message), stacklevel=3)
        for warning in (*overfitting_warnings(regression, names), *self.diagnosed(report)):
            warnings.warn(warning, stacklevel=3)
        return self

    @plain()
    def condition(
        self, X: Any, y: Any = None, *, noise: Any = None, sample_weight: Any = None, exposure: Any = None
    ) -> Self:
        """Replace the data, hyperparameters as they are (starting values where there are none yet).

        Args:
            X: As for `fit`.
            y: Targets, (n,) or (n, k).
            noise: As for `fit`, (n,).
            sample_weight: As for `fit`, (n,).
            exposure: As for `fit`, (n,).

        Raises:
            DataError: the data cannot be used; the message names the place.
        """
        warn_of_targets(self._family, y)
        data, fitted = given(self._family, X, y, noise, sample_weight, exposure), self._fitted
        if fitted is None:
            self._fitted = Fitted.of(solved_if_read(begin(self._family, data)))
        else:
            self._fitted = replace(fitted, regression=conditioned(fitted.now(), data))
        for warning in self.diagnosed():
            warnings.warn(warning, stacklevel=3)
        return self

    @plain()
    def update(
        self, X: Any, y: Any = None, *, noise: Any = None, sample_weight: Any = None, exposure: Any = None
    ) -> Self:
        """Add data, hyperparameters as they are; arguments as for `condition`.

        Where there are fewer features than data and the posterior is known, only the new rows are read. Rows without
        `noise` have none but the learned one, rows without `sample_weight` count once.
        """
        fitted = self._needed()
        more = given(self._family, X, y, noise, sample_weight, exposure)
        self._fitted = replace(fitted, regression=extended(fitted.now(), more))
        return self

    def forget(
        self, X: Any, y: Any = None, *, noise: Any = None, sample_weight: Any = None, exposure: Any = None
    ) -> Self:
        """Take data away by subtracting sums over them; arguments as for `condition`. No rows are kept afterwards.

        Raises:
            InvalidArgumentError: the terms are not all of fixed features, one of them by `EquispacedFourier`.
            DataError: the data cannot be used, or are as many as all rows.
        """
        fitted = self._needed()
        data = given(self._family, X, y, noise, sample_weight, exposure)
        self._fitted = replace(fitted, regression=reduced(fitted.now(), data))
        return self

    # --- what it answers -------------------------------------------------------------------------

    @plain()
    def log_marginal_likelihood(self) -> Tensor:
        """Return the log density of the targets in their own units, 0-d, constants included.

        Differentiable in `hyperparameters`.
        """
        fitted = self._needed()
        return fitted.regression.replace(hyperparameters=fitted.live.values).log_marginal_likelihood()

    @plain()
    def leave_one_out(self) -> LeaveOneOut:
        """Return the law of each training observation given all the others, in closed form, in the user's units.

        A row that counts several times is left out as a whole. Of an average it is the normal law with its moments.

        Source: Rasmussen and Williams (2006), Eqs. 5.10-5.12.
        """
        return self.regression.leave_one_out()

    @plain()
    def predict(self, X: Any, *, derivative: Any = None) -> Prediction:
        """Return the posterior distribution of the latent function at new inputs, in the user's units.

        Args:
            X: Inputs (n, d), or n labels. Numpy in, numpy out; tensors stay tensors. Or rows that are read in blocks
                when the mean (n,) or the variance (n,) is asked for.
            derivative: The key of a column of numbers, for the derivative of the function in it, in units of the target
                over those of the column. It requires features. If None, the function itself.

        Raises:
            NotFittedError: there are no data yet.
            DataError: the inputs do not fit the data.
            InvalidArgumentError: there is no such column, or the derivative is not known.
        """
        return self.regression.predict(X, derivative)

    @plain()
    def integrate(self, low: Any, high: Any, columns: Any = None) -> Prediction:
        """Return the joint posterior distribution of integrals of the latent function over boxes.

        They are in units of the target times those of the columns. They come from Gauss-Legendre quadrature. Its error
        in the prior variance of a term's integral is at most 1e-5 of it, mostly 1e-7, and of rough kernels in several
        columns at most 1e-3.

        Args:
            low: The lower corners of m boxes, inputs as for `predict`.
            high: The upper corners, likewise. Corners agree in columns that are not integrated over, where the function
                is taken at their value.
            columns: The key of a column of numbers, or several, to integrate over. If None, those in which the corners
                of some box differ.

        Returns:
            The distribution of the m integrals, with terms, covariance and draws as that of m points.

        Raises:
            NotFittedError: there are no data yet.
            DataError: the corners do not fit the data, or each other.
            InvalidArgumentError: a lower corner is above the upper one, there is no such column of numbers, or a box is
                too many lengthscales wide.

        Examples:
            >>> import numpy as np
            >>> import rfgp
            >>> t = np.linspace(0, 10, 200)[:, None]
            >>> gp = rfgp.GP(rfgp.kernels.RBF(0, lengthscale=1.0), start={"noise": 1e-4}).condition(t, np.sin(t[:, 0]))
            >>> gp.integrate([[0.0], [0.0]], [[np.pi], [2 * np.pi]]).mean.round(2) + 0.0
            array([2., 0.])
        """
        return integrated(self.regression, low, high, columns)

    @plain()
    def sample_functions(self, num_samples: int, *, seed: int | None = None) -> Callable[[Any], Any]:
        """Draw functions from the posterior: one draw of the weights, evaluated wherever it is asked for.

        The values at any points have the joint law of `predict`. Through features they are finite sums phi(x) . w;
        exact processes of graphs condition pathwise, and memory does not grow with how many nodes are asked for.

        Args:
            num_samples: s.
            seed: An integer, or None for one from the system.

        Returns:
            A function that maps X, (n, d) or n labels, to values (s, n), or (s, n, k) for k outputs: arrays to arrays,
            tensors to tensors, on tables differentiable in X.

        Raises:
            NotFittedError: there are no data yet.
            InvalidArgumentError: s is not a positive integer, or the process has no functions to draw: an exact one
                on a table, one with a local process, or one of inducing points with a diagonal.
        """
        return self.regression.sample_functions(num_samples, seed)

    @plain()
    def prior_covariance(self, X: Any) -> Tensor:
        """Return the prior covariance of the latent function at inputs, in the user's units, float64.

        (n, n), or (n, n, k) for k outputs.

        Through the features where the model has features: this is the matrix that they approximate.
        """
        return self.regression.prior_covariance(X)

    @plain()
    def save(self, path: str | Path, data: bool = False) -> None:
        """Write the model to a file that `rfgp.load` reads; see `rfgp.saving`.

        Args:
            path: Where; by custom it ends in .safetensors. Written whole or not at all.
            data: Whether the training data go with it. Without them a loaded model predicts, but
                `update`, `exact` and `with_approximation` ask to `condition` first. The posterior still
                tells about the data, and with fewer rows than features it determines them.

        Raises:
            NotFittedError: there is nothing to save yet.
            InvalidArgumentError: a part that cannot be written as numbers and JSON, by name.
        """
        saved = Saved(type(self).__name__, self.regression, self.fit_report, self.metadata)
        write(Path(path), saved, self.codec, data=data)

    def __repr__(self) -> str:
        if self._fitted is None:
            return f"{type(self).__name__}({', '.join([*_shown_arguments(self), 'not fitted'])})"
        return f"{type(self).__name__}({counted(self.num_observations, 'observation')}, {self.hyperparameters})"

    def diagnosed(self, report: FitReport | None = None) -> Iterator[Warning]:
        """Yield warnings about the model and its rows, after a fit if there is a report of one."""
        now = self.regression
        yield from now.family.diagnosed(now.hyperparameters, now.rows, now.scaling, report)

    # --- for models ------------------------------------------------------------------------------

    def argument(self, name: str, default: Any) -> Any:
        """Return an argument with which the model was made, or the default if it is not known."""
        return getattr(self._family.options, name, default)

    def _needed(self) -> Fitted:
        if self._fitted is None:
            raise NotFittedError("The model has no data yet. Call fit(X, y), or condition(X, y), first.")
        return self._fitted


def _shown_arguments(model: Process[Any]) -> Iterator[str]:
    """Yield the arguments that are not the defaults, as one writes them."""
    for name, parameter in signature(type(model)).parameters.items():
        shown = " ".join(repr(model.argument(name, parameter.default)).split())
        if shown not in (repr(parameter.default), f"{str(parameter.default).capitalize()}()", "{}"):
            yield f"{name}={shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + '...'}"
