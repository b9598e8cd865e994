"""What every model does: hold data and hyperparameters, fit, condition, predict."""

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from rfgp.errors import ConvergenceWarning, DataError, NotFittedError
from rfgp.inference import FeaturePrior, KernelPrior, LeaveOneOut, Posterior, Prediction, Predictor, posterior
from rfgp.models.data import copy_inputs, join, join_per_row, read_per_row, read_targets, read_vector
from rfgp.models.fitting import Callback, FitReport, maximize
from rfgp.models.inputs import Inputs
from rfgp.models.state import Data, State, starting_values
from rfgp.parameters import Hyperparameters, Prior


class Kept:
    """The tensors of the last predictor, and the state and raw hyperparameters (p,) that they belong to.

    The predictor itself holds functions of its model, so a copied or unpickled one is restored from them.
    """

    def __init__(
        self, state: State, raw: Tensor, tensors: dict[str, Tensor], predictor: Predictor | None = None
    ) -> None:
        self.state, self.raw, self.tensors, self.predictor = state, raw, tensors, predictor

    def fits(self, state: State, raw: Tensor) -> bool:
        """Whether they are of this state and these hyperparameters (p,)."""
        return self.state is state and torch.equal(self.raw, raw)

    def __reduce__(self) -> tuple[type["Kept"], tuple[State, Tensor, dict[str, Tensor]]]:
        return Kept, (self.state, self.raw, self.tensors)


class Process(ABC):
    """A Gaussian process with a Gaussian likelihood and a constant mean.

    Laws: `fit` and `condition` replace the data, `update` adds to them, and only these three change a
    model; `predict` is the latent law in the user's units; `log_marginal_likelihood` is differentiable
    in `hyperparameters`, and predictions follow when those are changed. `metadata` is the user's own:
    anything that JSON can hold, saved with the model.
    """

    _options: dict[str, Any]  # what the constructor was given

    def __init__(
        self, inputs: Inputs, outputscale: float | None, noise: float | None, priors: Mapping[str, Prior] | None
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
    def _prior(self, hyperparameters: Hyperparameters, draw: Any) -> FeaturePrior | KernelPrior:
        """Return the prior of the standardised function over standardised inputs."""

    def _draw(self, inputs: Tensor) -> Any:
        """Draw what depends on the shape of the inputs."""

    def _check_fit(self) -> None:
        """Warn where the fitted hyperparameters do not suit the features."""

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
        y: Any,
        *,
        noise: Any = None,  # (n,)
        sample_weight: Any = None,  # (n,)
        fixed: Iterable[str] = (),
        max_iterations: int = 200,
        callback: Callback | None = None,
    ) -> Self:
        """Learn the hyperparameters by their marginal likelihood and condition on the data, in place.

        Args:
            X: Inputs; (n, d) for tables, n labels for graphs.
            y: Targets (n,).
            noise: Known variances of the rows' errors (n,), in the user's units squared, added to the learned noise.
            sample_weight: How often each row counts (n,), positive: as that many repetitions of the observation.
            fixed: Names of hyperparameters that keep their starting values.
            max_iterations: Of L-BFGS.
            callback: Called after every iteration with (iterations done, log marginal likelihood).

        Returns:
            The model; `fit_report` says how it went.

        Raises:
            DataError: the data cannot be used; the message names the place.

        Warns:
            ConvergenceWarning: the optimiser stopped early.
        """
        before = self._state
        try:
            self._state = self._read_state(X, y, None, noise, sample_weight)
            report = maximize(
                self.log_marginal_likelihood,
                self._state.hyperparameters,
                (fixed,) if isinstance(fixed, str) else tuple(fixed),
                max_iterations,
                self._state.num_observations,
                callback,
            )
        except BaseException:
            self._state = before
            raise
        self.fit_report = report
        if not report.converged:
            message = (
                f"The fit stopped after {report.iterations} iterations without converging: {report.message}. "
                "Raise max_iterations if they ran out; otherwise fix a hyperparameter or give it a prior."
            )
            warnings.warn(ConvergenceWarning(message), stacklevel=2)
        self._check_fit()
        return self

    def condition(self, X: Any, y: Any, *, noise: Any = None, sample_weight: Any = None) -> Self:
        """Replace the data, hyperparameters as they are (starting values where there are none yet).

        Args:
            X: Inputs; (n, d) for tables, n labels for graphs.
            y: Targets (n,).
            noise: As for `fit`, (n,).
            sample_weight: As for `fit`, (n,).

        Raises:
            DataError: the data cannot be used; the message names the place.
        """
        self._state = self._read_state(X, y, self._state, noise, sample_weight)
        self._check_fit()
        return self

    def update(self, X: Any, y: Any, *, noise: Any = None, sample_weight: Any = None) -> Self:
        """Add data, hyperparameters as they are; arguments as for `condition`.

        Rows without `noise` have none but the learned one, rows without `sample_weight` count once.
        """
        data = self._known().known_data("update")
        inputs, _ = self._known().read_new(self._inputs, X)
        new = read_vector(y)
        if len(inputs) != len(new):
            raise DataError(f"X has {len(inputs)} rows and y has {len(new)}.")
        targets = torch.cat([data.raw_targets, new.to(data.raw_targets)])
        counts, added = (len(data.raw_targets), len(new)), data.raw_targets
        variances = read_per_row(noise, "noise", len(new), added, positive=False)
        weights = read_per_row(sample_weight, "sample_weight", len(new), added, positive=True)
        return self.condition(
            join(data.raw, X),
            targets if isinstance(X, Tensor) else targets.cpu().numpy(),
            noise=join_per_row(data.known_noise, variances, counts, 0.0),
            sample_weight=join_per_row(data.weight, weights, counts, 1.0),
        )

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log density of the targets in their own units, 0-d, constants included.

        Differentiable in `hyperparameters`.
        """
        state = self._known()
        data = state.known_data("the marginal likelihood")
        learned, targets = state.hyperparameters.standardized("noise"), state.scaling.targets
        repeated = data.repetitions(data.noise(learned, targets.scale))
        return self._posterior().log_marginal_likelihood() + repeated + targets.log_jacobian(data.count)

    def leave_one_out(self) -> LeaveOneOut:
        """Return the law of each training observation given all the others, in closed form, in the user's units.

        A row that counts several times is left out as a whole.

        Source: Rasmussen and Williams (2006), Eqs. 5.10-5.12.
        """
        state = self._known()
        data, scaling = state.known_data("leave_one_out"), state.scaling.targets
        with torch.no_grad():
            mean, variance = self._posterior().leave_one_out()
            noise = data.noise(state.hyperparameters.standardized("noise"), scaling.scale)
            variance = variance - data.spread(noise) + noise
            location, scale = state.hyperparameters.mean.double(), scaling.scale.double()
        as_numpy = not isinstance(data.raw, Tensor)
        return LeaveOneOut.of(location + scale * mean, scale**2 * variance, data.raw_targets, as_numpy)

    def predict(self, X: Any) -> Prediction:
        """Return the law of the latent function at new inputs, in the user's units.

        Args:
            X: Inputs (n, d), or n labels. Numpy in, numpy out; tensors stay tensors.

        Raises:
            NotFittedError: there are no data yet.
            DataError: the inputs do not fit the data.
        """
        scaling, hyperparameters = self._known().scaling, self.hyperparameters
        inputs, source = self._known().read_new(self._inputs, X)
        gradients = torch.is_grad_enabled() and not source.is_numpy and inputs.requires_grad
        with torch.set_grad_enabled(gradients):
            law = self._predictor().law(inputs)
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
        """Return the prior covariance (n, n) of the latent function at inputs, in the user's units, float64.

        Through the features where the model has features: this is the matrix that they approximate.
        """
        state = self._known()
        inputs, _ = self._known().read_new(self._inputs, X)
        prior = self._prior(state.hyperparameters, state.draw)
        return state.scaling.targets.scale.double() ** 2 * prior.kernel(inputs, inputs).double()

    def _known(self) -> State:
        if self._state is None:
            raise NotFittedError("The model has no data yet. Call fit(X, y), or condition(X, y), first.")
        return self._state

    def _read_state(self, X: Any, y: Any, kept: State | None, noise: Any = None, weight: Any = None) -> State:
        """Check data and return the state with them; scaling, hyperparameters and draw of `kept`, or new."""
        inputs, source = self._inputs.read(X)
        targets = read_targets(y, len(inputs), source.template, self._inputs.dtype)
        if kept is None:
            scaling, draw = self._inputs.fit_scaling(inputs, targets), self._draw(inputs)
            starts = {**self._inputs.starts(), **self._starts}
            hyperparameters = starting_values(self._inputs, inputs, targets, scaling, starts, self._priors)
        else:
            scaling, draw, hyperparameters = kept.scaling, kept.draw, kept.hyperparameters
            scaling.check_columns(inputs)
        standardized = scaling.inputs.forward(inputs) if scaling.inputs else inputs
        variances = read_per_row(noise, "noise", len(targets), targets, positive=False)
        weights = read_per_row(weight, "sample_weight", len(targets), targets, positive=True)
        forward = scaling.targets.forward(targets)
        data = Data(copy_inputs(X), targets.clone(), standardized, forward, variances, weights)
        return State(data, len(targets), scaling, hyperparameters, draw)

    def _posterior(self) -> Posterior:
        state, hyperparameters = self._known(), self.hyperparameters
        data = state.known_data("the marginal likelihood, or predictions with other hyperparameters,")
        residual = data.targets - hyperparameters.standardized("mean")
        prior = self._prior(hyperparameters, state.draw)
        noise = data.noise(hyperparameters.standardized("noise"), state.scaling.targets.scale)
        return posterior(prior, data.inputs, residual, data.spread(noise))

    def _predictor(self) -> Predictor:
        """Return the predictor, computed again when a hyperparameter has changed."""
        with torch.no_grad():
            state = self._known()
            now = state.hyperparameters.flat()
            if self._kept is None or not self._kept.fits(state, now):
                predictor = self._posterior().predictor()
                self._kept = Kept(state, now, predictor.tensors(), predictor)
            if self._kept.predictor is None:
                self._kept.predictor = self._prior(state.hyperparameters, state.draw).restore(self._kept.tensors)
            return self._kept.predictor


def snapshot(model: Process, other: Process) -> None:
    """Give another model a copy of the hyperparameters, the same data and scaling, and its own draw."""
    state = model._known()
    data = state.known_data("exact and redraw")
    copied = copy.deepcopy(state.hyperparameters)
    other._state = replace(state, hyperparameters=copied, draw=other._draw(data.inputs))
