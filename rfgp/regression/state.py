"""The immutable state of a model: rows under a prior at given hyperparameters."""

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from rfgp import random
from rfgp.blocks import Prior
from rfgp.counts import check_count, counted
from rfgp.errors import ConstantTargetWarning, InvalidArgumentError, NotFittedError, arguments
from rfgp.inference import unsupported
from rfgp.inference.caching import ResultCache
from rfgp.inference.conditioned import ConditionedGP
from rfgp.inference.mixture import MixtureDistribution, MixtureInference, MixturePrediction
from rfgp.inference.new_levels import prior_kernel
from rfgp.inference.observed import LeaveOneOut, observations
from rfgp.inference.prediction import Prediction
from rfgp.inference.scales import PointScales, ScaleModel
from rfgp.inference.term_prediction import TermPrediction
from rfgp.limits import limits
from rfgp.parameters import ParameterValues
from rfgp.regression.base_spec import BaseSpec
from rfgp.regression.observing import (
    bound_likelihood,
    check_rows,
    check_targets_vary,
    constant_targets,
    has_exposures,
    inference_of,
    left_out_observations,
    mixture_members,
    observed_inference,
    outlier_warnings,
    restored,
    summary_of,
)
from rfgp.regression.space import space_of
from rfgp.rows import (
    Chunk,
    DataSummary,
    Rows,
    SourceInputs,
    TrainingArrays,
    gathered,
    in_memory,
    inputs_source,
    read_training,
)
from rfgp.rows.arrays import OutputFormat
from rfgp.rows.names import arranged
from rfgp.scaling import Scaling
from rfgp.solvers import Inference, Posterior, WarmStart, solver_for
from rfgp.torch_context import with_torch_defaults


@dataclass(frozen=True, eq=False, repr=False)
class GPState:
    """Rows under a prior at given hyperparameters, a posterior, or both.

    The state stores no gradients. Likelihoods are computed at each call, and the posterior once, at detached
    hyperparameters.

    Attributes:
        spec: The prior and the likelihood, with bases for the columns of the inputs.
        scaling: The maps between the user's units and standardized ones.
        hyperparameters: The hyperparameters.
        num_observations: The number of rows of the posterior.
        rows: The standardized rows, in blocks. If None, only a posterior is known.
        given: A posterior at these hyperparameters that was loaded, updated or found by a fit. If None, it is computed
            on first use.
        has_forgotten: Whether `reduced` removed rows, after which no rows are stored.
        has_exposures: Whether rows have exposures.
        scale_model: The model of the scales of residuals. If None, the noise has one variance.

    Examples:
        >>> import rfgp
        >>> gp = rfgp.GP(rfgp.kernels.RBF(lengthscale=1.0), seed=0).condition([[0.0], [1.0]], [0.0, 1.0])
        >>> state = gp.state
        >>> state.num_observations, state.at(state.hyperparameters) is state
        (2, True)
    """

    spec: BaseSpec
    scaling: Scaling
    hyperparameters: ParameterValues
    num_observations: int
    rows: Rows | None = None
    given: Posterior | None = None
    has_forgotten: bool = False
    has_exposures: bool = False
    scale_model: ScaleModel | None = None

    # --- other states ----------------------------------------------------------------------------

    def replace(self, **changes: Any) -> "GPState":
        """Return the state with changes, and without a posterior unless it is one of them."""
        return dataclasses.replace(self, **{"given": None, **changes})

    def at(self, values: ParameterValues) -> "GPState":
        """Return the state at other hyperparameters, or itself if they are the same."""
        return self if self.hyperparameters.equals(values) else self.replace(hyperparameters=values.detached())

    # --- inference -------------------------------------------------------------------------------

    def require_rows(self, *, purpose: str) -> Rows:
        """Return the rows.

        Args:
            purpose: The computation that needs the rows, as a noun for the message.

        Raises:
            NotFittedError: If the state has only a posterior, from a file or after rows were removed.
        """
        if self.rows is not None:
            return self.rows
        if self.has_forgotten:
            raise NotFittedError(
                f"The rows must be known for {purpose}, got a model after forget(X, y). Call condition(X, y) with the "
                "remaining rows."
            )
        raise NotFittedError(
            f"The rows must be known for {purpose}, got a model saved without data. Call condition(X, y) first, or "
            "save it with data=True."
        )

    @property
    def inference(self) -> str | None:
        """The posterior approximation, "laplace" or "variational", or None if it is exact."""
        return None if self.rows is None else inference_of(self.spec, self.rows)

    def prior(self) -> Prior:
        """Return the prior at these hyperparameters, with their gradients."""
        return self.spec.prior(self.hyperparameters)

    def infer(self, rows: Rows, warm_start: WarmStart = ()) -> Inference:
        """Return the inference from standardized rows, with gradients of hyperparameters.

        Args:
            rows: The data.
            warm_start: The warm start of the same rows at similar hyperparameters. The default is empty.
        """
        if not self.spec.is_gaussian:
            return observed_inference(self, rows, warm_start)
        members = mixture_members(self.spec, self.hyperparameters)
        if len(members) > 1:
            return MixtureInference(members, lambda member: solver_for(member.prior, rows, member.mean, member.noise))
        return solver_for(members[0].prior, rows, members[0].mean, members[0].noise)

    def log_marginal_likelihood(self) -> Tensor:
        """Return the log marginal likelihood of the targets in user units, 0-d.

        Raises:
            NotFittedError: If there are no rows.
        """
        rows = self.require_rows(purpose="the marginal likelihood")
        return self.infer(rows).log_marginal_likelihood() + self.scaling.targets.log_jacobian(rows.count)

    @cached_property
    def posterior(self) -> Posterior:
        """The posterior for predictions: the given one, or one that is computed once.

        Raises:
            NotFittedError: If there are neither rows nor a posterior.
        """
        if self.given is not None:
            return self.given
        rows = self.weighted(self.require_rows(purpose="predictions with other hyperparameters"))
        with torch.no_grad():
            return self.replace(hyperparameters=self.hyperparameters.detached()).infer(rows).posterior()

    def weighted(self, rows: Rows) -> Rows:
        """Return the rows, weighted by their scales if the model has such weights.

        Args:
            rows: The rows of the state.
        """
        weight = None if self.scale_model is None else self.scale_model.row_weights
        if weight is None:
            return rows
        block = gathered(rows).standardized_block
        return dataclasses.replace(block, weight=weight if block.weight is None else weight * block.weight)

    @cached_property
    def results(self) -> ResultCache:
        """The results of other modules for this state, by name."""
        return ResultCache()

    @property
    def present_posterior(self) -> Posterior | None:
        """The posterior, or None if it has not been computed yet."""
        return vars(self).get("posterior", self.given)

    @property
    def process(self) -> ConditionedGP:
        """The standardized latent function given the rows.

        Raises:
            NotFittedError: If there are neither rows nor a posterior.
        """
        return ConditionedGP(self.posterior, memory=self.spec.options.memory)

    def leave_one_out(self) -> LeaveOneOut:
        """Return the leave-one-out distributions of observations, in the user's units.

        Raises:
            NotFittedError: If there are no rows.
        """
        return left_out_observations(self, self.require_rows(purpose="leave_one_out"))

    # --- predictions -----------------------------------------------------------------------------

    def points(self, X: Any) -> tuple[Tensor, OutputFormat]:
        """Return standardized inputs (n, d), or positions (n,), and their output format.

        Args:
            X: The inputs in the user's units.

        Raises:
            DataError: If the inputs do not match the training data.
        """
        inputs, output_format = self.spec.inputs.read(arranged(X, self.scaling.columns))
        self.scaling.check_columns(inputs)
        return self.scaling.standardize(inputs), output_format

    def predict(self, X: Any, derivative: Any = None) -> Prediction:
        """Return the posterior of the latent function at inputs.

        Args:
            X: The inputs.
            derivative: The key of a column. If given, the posterior of the derivative in this column is returned.
        """
        return self.predict_at(*self.points_or_blocks(X), derivative)

    def points_or_blocks(self, X: Any) -> tuple[Tensor | SourceInputs, OutputFormat]:
        """Return standardized inputs (n, d), in blocks if X is a source, and their output format.

        Args:
            X: The inputs in the user's units.
        """
        source = inputs_source(self.spec.inputs, X)
        if source is None:
            return self.points(X)
        like = self.scaling.targets.scale.new_empty(0)
        inputs = SourceInputs(source, self.scaling, self.spec.inputs.dtype)
        return inputs, OutputFormat(not isinstance(X, Tensor), like)

    def predict_at(self, inputs: Any, output_format: OutputFormat, derivative: Any = None) -> Prediction:
        """Return the posterior of the latent function at standardized inputs.

        Args:
            inputs: The standardized inputs, (n, d) or in blocks.
            output_format: The type of the results.
            derivative: As for `predict`.
        """
        prediction = predicted(self, inputs, output_format)
        return prediction if derivative is None else differentiated(prediction, *_column(self, derivative))

    def sample_functions(self, num_samples: int, seed: int | None) -> Callable[[Any], Any]:
        """Draw s posterior functions, which map inputs to values (s, n) or (s, n, k).

        Args:
            num_samples: The number s of draws.
            seed: The random seed. If None, the system's entropy is used.

        Raises:
            InvalidArgumentError: If `num_samples` is not a positive integer, or the posterior cannot draw functions.
        """
        num_samples = check_count("num_samples", num_samples)
        generator = random.generator(random.resolve_seed(seed), random.Role.FUNCTIONS)
        mean, scale, _ = _units(self)
        with torch.no_grad():
            drawn = self.posterior.sample_functions(num_samples, generator)

        @with_torch_defaults()
        def functions(X: Any) -> Any:
            inputs, output_format = self.points(X)
            with torch.set_grad_enabled(torch.is_grad_enabled() and inputs.requires_grad):
                values = mean + scale * drawn(inputs)
            values = (values if mean.ndim else values[..., 0]).to(output_format.like)
            return values.cpu().numpy() if output_format.is_numpy else values

        return functions

    def prior_covariance(self, X: Any) -> Tensor:
        """Return the prior covariance at X in the user's units, (n, n) or (n, n, k)."""
        inputs, _ = self.points(X)
        members, scale = self.spec.members(self.hyperparameters), self.scaling.targets.scale.double()
        memory = self.spec.options.memory
        first, *others = (member.weight * prior_kernel(member.prior, inputs, memory) for member in members)
        kernel: Tensor = sum(others, start=first)
        return scale**2 * (kernel[..., None] if scale.ndim else kernel)

    def __repr__(self) -> str:
        return f"GPState({counted(self.num_observations, 'observation')}, {self.hyperparameters})"

    def __deepcopy__(self, memo: Any) -> "GPState":
        return self  # it never changes

    def __getstate__(self) -> dict[str, Any]:
        state = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**state, "given": None if self.given is None else self.given.tensors()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)
        if self.given is not None:
            object.__setattr__(self, "given", restored(self.spec, self.hyperparameters, state["given"]))


def begin(spec: BaseSpec, data: Chunk, *, is_fit: bool = False) -> GPState:
    """Return a state at starting values from the user or from the data.

    Args:
        spec: The specification of the user's options.
        data: The user's data, at least two rows.
        is_fit: Whether hyperparameters are learned, so that targets must vary. The default is False.

    Raises:
        DataError: If the data cannot be used. The message names the row and the column.

    Warns:
        ConstantTargetWarning: If the scale of the targets is needed but not known.
        OutlierWarning: If the unit of a column or of the targets comes from its robust scale.
    """
    spec, data = spec.with_data(data)
    given = read_training(spec.inputs, data, spec.options.seed)
    del data  # its columns are copies
    if is_fit:
        check_targets_vary(spec, given)
    spec, summary = summary_of(spec, given)
    for warning in outlier_warnings(spec, summary):
        warnings.warn(warning, stacklevel=4)
    spec, summary = spec.with_data_summary(summary)
    rows = given.rows(summary.scaling)
    check_rows(spec, rows)
    state, constant = initial_state(spec, summary, rows), constant_targets(spec, given)
    if constant is not None and (spec.is_gaussian or spec.options.likelihood.is_standardized):
        unknown = [variance.name for variance in state.spec.variances if variance.name not in state.spec.options.starts]
        if unknown:
            message = f"{constant}, so that its scale is unknown. Give {arguments('start')} for {', '.join(unknown)}."
            warnings.warn(ConstantTargetWarning(message), stacklevel=4)
    return state


def initial_state(spec: BaseSpec, summary: DataSummary, rows: Rows) -> GPState:
    """Return the state of standardized rows at the starting values of a specification.

    Args:
        spec: The specification.
        summary: The summary of the data.
        rows: The standardized rows.

    Raises:
        DataError: If the scale of the data is out of range.
        InvalidArgumentError: If the name of a starting value or a hyperprior is unknown.
    """
    resolved = spec.with_sample(summary.scaling, rows)
    values = space_of(resolved, summary, inference_of(resolved, rows)).start
    values = values.with_values(**{name: value for name, value in resolved.options.starts.items() if value is not None})
    resolved, values = resolved.initialized(values, rows)
    return GPState(resolved, summary.scaling, values, len(rows), rows, has_exposures=has_exposures(resolved, rows))


def at_starting_values(state: GPState, spec: BaseSpec) -> GPState:
    """Return the state of another specification at its starts, for the same rows.

    Args:
        state: The state of a model.
        spec: The other specification.

    Raises:
        DataError: If some of the rows are read in blocks.
    """
    given = TrainingArrays(*in_memory(state.require_rows(purpose="a fit"), "another kernel or likelihood"))
    spec, summary = summary_of(spec, given)
    spec, summary = spec.with_data_summary(summary)
    return initial_state(spec, summary, given.rows(summary.scaling))


def predicted(state: GPState, inputs: Any, output_format: OutputFormat) -> Prediction:
    """Return the posterior of the latent function at standardized inputs.

    Args:
        state: The model state.
        inputs: The standardized inputs.
        output_format: The type of the results.
    """
    mean, scale, noise = _units(state)
    process = state.process
    latent = process.at(inputs)
    likelihood = None if state.spec.is_gaussian else bound_likelihood(state)
    of_observations = (
        None if likelihood is None else partial(observations, likelihood=likelihood, is_per_unit=state.has_exposures)
    )
    scales = None
    if state.scale_model is not None:
        with torch.no_grad():
            center = state.hyperparameters.standardized("mean").reshape(-1)[0].double()
            own_noise = state.hyperparameters.standardized("noise").double()
        scales = PointScales(state.scale_model, latent, inputs, center, own_noise)
        latent = scales.scaled()
    parts = latent, mean, scale, noise, output_format.like, output_format.is_numpy
    is_small = isinstance(inputs, Tensor) and max(state.num_observations, len(inputs)) <= limits().small_rows
    if isinstance(latent, MixtureDistribution):
        return MixturePrediction(*parts, of_observations=of_observations, is_small=is_small, scales=scales)
    more: dict[str, Any] = {"process": process, "inputs": inputs, "is_small": is_small, "scales": scales}
    return TermPrediction(*parts, of_observations=of_observations, **more)


def _column(state: GPState, key: Any) -> tuple[int, Tensor]:
    """Return the index of a column of numbers, and its unit, 0-d.

    Raises:
        InvalidArgumentError: If there is no such column of numbers.
    """
    maps = state.scaling.inputs
    assert maps is not None
    index = state.spec.inputs.column_index(key)
    return index, maps.scale[index]


def differentiated(prediction: Prediction, column: int, unit: Tensor) -> Prediction:
    """Return the posterior of the derivative of the latent function in a column.

    Args:
        prediction: The posterior of the function.
        column: The index of the column.
        unit: The standardized unit of the column in the user's units, 0-d.

    Raises:
        InvalidArgumentError: If there are several processes, or the function has no derivative.
    """
    if not isinstance(prediction, TermPrediction) or prediction.process is None:
        raise InvalidArgumentError(
            "derivative requires a single model, got an average of models. Use one of gp.members."
        )
    process = prediction.process.differentiated(column)
    latent, zero = process.at(prediction.inputs), torch.zeros_like(prediction.location)
    changes: dict[str, Any] = {
        "latent": latent,
        "process": process,
        "location": zero,
        "scale": prediction.scale / unit.double(),
    }
    return dataclasses.replace(
        prediction, **changes, of_observations=unsupported.raise_unsupported_derivative, scales=None
    )


def _units(state: GPState) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean and scale of the targets, and the standardized noise."""
    with torch.no_grad():
        mean = state.hyperparameters.value("mean").double()
        normal = state.spec.is_gaussian
        noise = state.spec.observation_noise(state.hyperparameters) if normal else mean.new_zeros(())
    return mean, state.scaling.targets.scale.double(), noise
