"""What every model does: hold data and hyperparameters, fit, condition, predict."""

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import Tensor

from rfgp.errors import ConvergenceWarning, NotFittedError
from rfgp.inference import FeaturePrior, LeaveOneOut, Posterior, Prediction, Predictor, Rows, posterior
from rfgp.inference import Prior as FunctionPrior
from rfgp.inference.primal import ABSORBING, absorb
from rfgp.models.fitting import Callback, FitReport, Plan, Progress, Reporter, fingerprint, maximize, open_journal
from rfgp.models.inputs import Inputs
from rfgp.models.reading import Arrays, Streamed, Unread, begin, read_new_rows, read_training
from rfgp.models.sources import CountedRows
from rfgp.models.state import Data, Kept, SourcePart, State
from rfgp.parameters import Hyperparameters, Prior
from rfgp.scaling import Scaling


class Process(ABC):
    """A Gaussian process with a Gaussian likelihood and a constant mean.

    Laws: `fit` and `condition` replace the data, `update` adds to them, and only these three change a
    model; `predict` is the latent law in the user's units; `log_marginal_likelihood` is differentiable
    in `hyperparameters`, and predictions follow when those are changed. `metadata` is the user's own:
    anything that JSON can hold, saved with the model.
    """

    _options: dict[str, Any]  # what the constructor was given

    def __init__(
        self, inputs: Inputs, outputscale: float | None, noise: float | None, priors: Mapping[str, Prior | None] | None
    ) -> None:
        self._inputs = inputs
        self._starts = {"outputscale": outputscale, "noise": noise}
        self._priors = priors
        self._state: State | None = None
        self._kept: Kept | None = None
        self.fit_report: FitReport | None = None
        self.metadata: dict[str, Any] = {}

    # --- what a model supplies -----------------------------------------------------------------

    @abstractmethod
    def _prior(self, hyperparameters: Hyperparameters, draw: Any) -> FunctionPrior:
        """Return the prior of the standardised function over standardised inputs."""

    def _draw(self, scaling: Scaling) -> Any:
        """Draw what depends on the number of columns of the inputs."""

    def _set_starts(self, hyperparameters: Hyperparameters, rows: Rows) -> None:
        """Change starting values that the user left open, in place, for the standardised rows."""

    def _check_fit(self, report: FitReport | None = None) -> None:
        """Warn where the hyperparameters, or the report of a fit, tell that the features do not suit."""

    # --- what every model does -----------------------------------------------------------------

    @property
    def hyperparameters(self) -> Hyperparameters:
        """The hyperparameters, in the user's units.

        Raises:
            NotFittedError: there are none before `fit` or `condition`.
        """
        return self._known().hyperparameters

    @property
    def num_observations(self) -> int:
        """The number n of observations.

        Raises:
            NotFittedError: there are none before `fit` or `condition`.
        """
        return self._known().num_observations

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        noise: Any = None,  # (n,)
        sample_weight: Any = None,  # (n,)
        fixed: Iterable[str] = (),
        max_iterations: int | None = None,
        callback: Callback | None = None,
        progress: bool | Callable[[Progress], None] = False,
        checkpoint: str | Path | None = None,
    ) -> Self:
        """Learn the hyperparameters by their marginal likelihood and condition on the data, in place.

        Args:
            X: Inputs; (n, d) for tables, n labels for graphs. Or, for tables, rows with their targets that are read in
                blocks: `rfgp.tables.Parquet`, `CSV` or `Blocks`. A `numpy.memmap` is read in blocks as well.
            y: Targets (n,), or (n, k) for k outputs that share one kernel and, standardised, one noise.
            noise: Known variances of the rows' errors (n,), in the user's units squared, added to the learned noise.
            sample_weight: How often each row counts (n,), positive: as that many repetitions of the observation.
            fixed: Names of hyperparameters that keep their starting values.
            max_iterations: Of L-BFGS on any subset of the rows, 500 where None; with learned frequencies also of their
                steps, 300 where None.
            callback: Called after every iteration with (iterations done, log marginal likelihood of the rows in use).
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
        before = dict(vars(self))
        names = (fixed,) if isinstance(fixed, str) else tuple(fixed)
        try:
            self._state = new_state(self, read_training(self._inputs, X, y, noise, sample_weight, seed_of(self)), None)
            with open_journal(checkpoint, lambda: fingerprint(self, names, max_iterations)) as journal:
                report = self._train(Plan(names, max_iterations, Reporter(callback, progress), journal))
        except BaseException:
            vars(self).update(before)
            raise
        self.fit_report = report
        if not report.converged:
            message = (
                f"The fit stopped after {report.iterations} iterations without converging: {report.message}. "
                "Raise max_iterations if they ran out; otherwise fix a hyperparameter or give it a prior."
            )
            warnings.warn(ConvergenceWarning(message), stacklevel=2)
        self._check_fit(report)
        return self

    def condition(self, X: Any, y: Any = None, *, noise: Any = None, sample_weight: Any = None) -> Self:
        """Replace the data, hyperparameters as they are (starting values where there are none yet).

        Args:
            X: As for `fit`.
            y: Targets, (n,) or (n, k).
            noise: As for `fit`, (n,).
            sample_weight: As for `fit`, (n,).

        Raises:
            DataError: the data cannot be used; the message names the place.
        """
        before, least = dict(vars(self)), 2 if self._state is None else 1
        read = read_training(self._inputs, X, y, noise, sample_weight, seed_of(self), least)
        try:
            self._state = new_state(self, read, self._state)
            if isinstance(read, Streamed):
                predictor_of(self)  # now, while the rows can be read
        except BaseException:
            vars(self).update(before)
            raise
        self._check_fit()
        return self

    def update(self, X: Any, y: Any = None, *, noise: Any = None, sample_weight: Any = None) -> Self:
        """Add data, hyperparameters as they are; arguments as for `condition`.

        Where there are fewer features than data and the posterior is known, only the new rows are read. Rows without
        `noise` have none but the learned one, rows without `sample_weight` count once.
        """
        state = self._known()
        if state.data is None and not absorbs(self):
            state.known_data("update")
        before = dict(vars(self))
        read = read_new_rows(self._inputs, X, y, noise, sample_weight, seed_of(self))
        try:
            self._state, self._kept = updated(self, read)
            if self._kept is None and not isinstance(read, Arrays):
                predictor_of(self)  # now, while the rows can be read
        except BaseException:
            vars(self).update(before)
            raise
        return self

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log density of the targets in their own units, 0-d, constants included.

        Differentiable in `hyperparameters`.
        """
        state = self._known()
        data = state.known_data("the marginal likelihood")
        return self._posterior(data.rows).log_marginal_likelihood() + state.scaling.targets.log_jacobian(data.count)

    def leave_one_out(self) -> LeaveOneOut:
        """Return the law of each training observation given all the others, in closed form, in the user's units.

        A row that counts several times is left out as a whole.

        Source: Rasmussen and Williams (2006), Eqs. 5.10-5.12.
        """
        state = self._known()
        data, targets = state.known_data("leave_one_out"), state.scaling.targets
        with torch.no_grad():
            mean, variance = self._posterior(data.rows).leave_one_out()
            noise = state.hyperparameters.standardized("noise").double()
            found = [
                (b.targets, (b.noise(noise) - b.spread(noise)).expand(len(b.targets))) for b in data.rows.blocks(2**16)
            ]
            y, more = (torch.cat(column) for column in zip(*found, strict=True))
        return LeaveOneOut.of(mean, variance + more, y, targets, data.is_numpy)

    def predict(self, X: Any) -> Prediction:
        """Return the law of the latent function at new inputs, in the user's units.

        Args:
            X: Inputs (n, d), or n labels. Numpy in, numpy out; tensors stay tensors. Or rows that are read in blocks
                when the mean (n,) or the variance (n,) is asked for.

        Raises:
            NotFittedError: there are no data yet.
            DataError: the inputs do not fit the data.
        """
        scaling, hyperparameters = self._known().scaling, self.hyperparameters
        inputs, source = self._known().read_points(self._inputs, X)
        gradients = torch.is_grad_enabled() and isinstance(inputs, Tensor) and inputs.requires_grad
        with torch.set_grad_enabled(gradients):
            law = predictor_of(self).law(inputs)
            mean, scale = hyperparameters.mean.double(), scaling.targets.scale.double()
            noise = hyperparameters.standardized("noise")
        return Prediction(law, mean.detach(), scale, noise.detach(), source.template, source.is_numpy)

    def save(self, path: str | Path, data: bool = False) -> None:
        """Write the model to a file that `rfgp.load` reads; see `rfgp.models.io`.

        Args:
            path: Where; by custom it ends in .safetensors. Written whole or not at all.
            data: Whether the training data go with it. Without them a loaded model predicts, but
                `update`, `exact` and `redraw` ask to `condition` first. The posterior that predicts still
                tells about the data, and with fewer rows than features it determines them.

        Raises:
            NotFittedError: there is nothing to save yet.
            InvalidArgumentError: a part that cannot be written as numbers and JSON, by name.
        """
        from rfgp.models import io

        io.save(self, Path(path), data=data)

    def __repr__(self) -> str:
        fitted = (
            "not fitted" if self._state is None else f"{self.num_observations} observations, {self.hyperparameters}"
        )
        return f"{type(self).__name__}({fitted})"

    def prior_covariance(self, X: Any) -> Tensor:
        """Return the prior covariance of the latent function at inputs, in the user's units, float64.

        (n, n), or (n, n, k) for k outputs.

        Through the features where the model has features: this is the matrix that they approximate.
        """
        state = self._known()
        inputs, _ = self._known().read_new(self._inputs, X)
        prior = self._prior(state.hyperparameters, state.draw)
        scale, kernel = state.scaling.targets.scale.double(), prior.kernel(inputs, inputs).double()
        return scale**2 * (kernel[..., None] if scale.ndim else kernel)

    def _known(self) -> State:
        if self._state is None:
            raise NotFittedError("The model has no data yet. Call fit(X, y), or condition(X, y), first.")
        return self._state

    def _posterior(self, rows: Rows) -> Posterior:
        """Return the posterior given standardised rows, at the present hyperparameters."""
        state, hyperparameters = self._known(), self.hyperparameters
        mean, noise = hyperparameters.standardized("mean").reshape(-1), hyperparameters.standardized("noise")
        return posterior(self._prior(hyperparameters, state.draw), rows, mean, noise)

    def _train(self, plan: Plan) -> FitReport:
        """Learn the hyperparameters, in place, from the data of the present state."""
        state = self._known()
        rows = state.known_data("a fit").rows
        return maximize(lambda: self._posterior(rows).log_marginal_likelihood(), state, plan)


def new_state(model: Process, read: Arrays | Streamed, kept: State | None) -> State:
    """Return the state with new data; scaling, hyperparameters and draw of `kept`, or new."""
    if kept is None:
        starts = {**model._inputs.starts(), **model._starts}
        scaling, hyperparameters = begin(model._inputs, read, starts, model._priors)
        draw = model._draw(scaling)
    else:
        scaling, hyperparameters, draw = kept.scaling, kept.hyperparameters, kept.draw
    part = read.part(scaling)
    if kept is None:
        model._set_starts(hyperparameters, part.rows)
    return State(Data((part,)), len(part.rows), scaling, hyperparameters, draw)


def predictor_of(model: Process) -> Predictor:
    """Return a model's predictor, computed again when a hyperparameter has changed."""
    with torch.no_grad():
        state, kept = model._known(), model._kept
        now = state.hyperparameters.flat()
        if kept is None or not kept.fits(state, now):
            data = state.known_data("predictions with other hyperparameters")
            predictor = model._posterior(data.rows).predictor()
            model._kept = kept = Kept(state, now, predictor.tensors(), predictor)
        if kept.predictor is None:
            kept.predictor = model._prior(state.hyperparameters, state.draw).restore(kept.tensors)
        return kept.predictor


def absorbs(model: Process) -> bool:
    """Whether the posterior that is known takes new rows without the old ones."""
    kept, state = model._kept, model._known()
    return kept is not None and kept.fits(state, state.hyperparameters.flat()) and set(kept.tensors) == ABSORBING


def updated(model: Process, read: Arrays | Unread | Streamed) -> tuple[State, Kept | None]:
    """Return the model's state with further data, and its posterior where that is known without the old data."""
    state, predictor = model._known(), None
    part = None if isinstance(read, Unread) else read.part(state.scaling)
    rows = part.rows if part is not None else cast(Unread, read).counted(state.scaling)
    if absorbs(model):
        assert model._kept is not None
        with torch.no_grad():
            known = state.hyperparameters
            prior = model._prior(known, state.draw)
            assert isinstance(prior, FeaturePrior)
            mean, noise = known.standardized("mean").reshape(-1), known.standardized("noise")
            predictor = absorb(prior.model(rows, mean, noise), **model._kept.tensors)
    elif isinstance(rows, CountedRows):
        for _ in rows.blocks(2**16):
            pass  # counted, and checked
    added = SourcePart(rows.counted(), None, rows.count, True) if isinstance(rows, CountedRows) else part
    assert added is not None
    data = None if state.data is None else Data((*state.data.parts, added))
    new = replace(state, data=data, num_observations=state.num_observations + len(added.rows))
    return new, None if predictor is None else Kept(new, state.hyperparameters.flat(), predictor.tensors(), predictor)


def seed_of(model: Process) -> int:
    """Return the model's seed; the exact process has none, and nothing that depends on it but the order of a sample."""
    return int(getattr(model, "seed", 0))


def snapshot(model: Process, other: Process) -> None:
    """Give another model a copy of the hyperparameters, the same data and scaling, and its own draw."""
    state = model._known()
    state.known_data("exact and redraw")
    copied = copy.deepcopy(state.hyperparameters)
    other._state = replace(state, hyperparameters=copied, draw=other._draw(state.scaling))
