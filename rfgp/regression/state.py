"""The immutable state of a model: rows under a prior at given hyperparameters."""

import dataclasses
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from rfgp import solvers
from rfgp.blocks import Prior
from rfgp.columns import ColumnKind
from rfgp.counts import counted
from rfgp.errors import (
    ConstantTargetWarning,
    DataError,
    InvalidArgumentError,
    NotFittedError,
    OutlierWarning,
    arguments,
)
from rfgp.inference import sites
from rfgp.inference.distributions import MarginalDistribution, ResultCache
from rfgp.inference.mixture import (
    ConditionedGP,
    MixtureDistribution,
    MixtureInference,
    MixturePosterior,
    MixturePrediction,
    saved_tensors,
    tensors_by_prefix,
)
from rfgp.inference.observed import LeaveOneOut, observations
from rfgp.inference.prediction import NO_OBSERVED_DERIVATIVE, Prediction
from rfgp.inference.scales import PointScales, ScaleModel
from rfgp.likelihoods import Likelihood
from rfgp.likelihoods.role import learned_parameters, refuse, standardized
from rfgp.limits import limits
from rfgp.messages import listed
from rfgp.parameters import Hyperparameter, ParameterSpace, ParameterValues
from rfgp.regression.spec import ModelSpec, inference_of, priors_of
from rfgp.rows import (
    ArrayRows,
    Chunk,
    DataSummary,
    Rows,
    SourceInputs,
    TrainingArrays,
    TrainingSource,
    gathered,
    in_memory,
    inputs_source,
    is_numpy_input,
    is_read_in_blocks,
    read_training,
)
from rfgp.rows.arrays import OutputFormat, arranged, constant_message
from rfgp.scaling import MAX_RATIO, Affine, Scaling
from rfgp.solvers import Inference, Posterior, WarmStart, solver_for

# --- Non-Gaussian likelihoods: starting values, parameters, inference and left-out rows ------------------------------


NOISE_START, NOISE_BOUNDS = 0.5, (1e-4, 1e2)
"""The start and the bounds of the output scale of the logarithm of the noise."""


def summary_of(spec: ModelSpec, given: TrainingArrays | TrainingSource) -> tuple[ModelSpec, DataSummary]:
    """Return the specification with the data's likelihood, and a summary of the data.

    Args:
        spec: The specification.
        given: The training data as read, not standardized.

    Raises:
        DataError: If there are several outputs, or a target is not a valid observation.
    """
    summary, likelihood = spec.in_own_units(given.summary(spec.standardize)), spec.options.likelihood
    if spec.is_gaussian:
        return spec, summary
    targets = summary.targets
    if targets.ndim > 1 and targets.shape[1] > 1:
        raise DataError(f"{likelihood!r} requires one output, got {targets.shape[1]}. Fit a model for each.")
    if not likelihood.is_standardized:
        like = summary.center.reshape(-1)[:1]
        maps = Affine.identity(like if summary.center.ndim == 0 else like[None])
        summary = dataclasses.replace(summary, scaling=dataclasses.replace(summary.scaling, targets=maps))
    units = summary.scaling.targets
    y = units.forward(targets).reshape(-1).double()
    informed = likelihood.with_targets(y)
    if informed is not likelihood:
        options = dataclasses.replace(spec.options, likelihood=informed)
        spec, likelihood = dataclasses.replace(spec, options=options), informed
    refuse(likelihood, y)
    weight = torch.ones_like(y) if summary.weight is None else summary.weight.double()
    exposure = given.chunk.noise if isinstance(given, TrainingArrays) and likelihood.takes_exposure else None
    start = likelihood.begin(y, weight) if exposure is None else likelihood.begin(y / exposure, weight * exposure)
    center = (units.location + units.scale * start.center).to(summary.center)
    deviation = (start.variance.sqrt() * units.scale).to(center).expand(center.shape).clone()
    return spec, dataclasses.replace(summary, center=center, deviation=deviation, narrow=deviation)


def outlier_warnings(spec: ModelSpec, summary: DataSummary) -> Iterator[Warning]:
    """Yield a warning for each column whose units come from its robust scale.

    Args:
        spec: The specification.
        summary: The summary of the data.
    """
    likelihood, keys = spec.options.likelihood, spec.numeric_columns
    has_units = spec.is_gaussian or likelihood.is_standardized
    for outliers in summary.outliers:
        if outliers.column not in keys if outliers.column is not None else not has_units:
            continue
        what = "y" if outliers.column is None else f"column {keys[outliers.column]!r}"
        robust = " or use likelihood='student-t'" if outliers.column is None and spec.is_gaussian else ""
        rows = [str(row) for row in outliers.rows]
        yield OutlierWarning(
            f"The standard deviation of {what} should be at most {MAX_RATIO:g} robust scales (interquartile range / "
            f"1.35), got {outliers.deviation:.3g} with a robust scale of {outliers.scale:.3g}. Units and bounds come "
            f"from the robust scale. {counted(len(rows), 'row')} ({listed(rows)}; such as {outliers.extreme:.6g}) may "
            f"have errors or codes of missing values: correct or drop them. If they are right, take logarithms of "
            f"{what}{robust}."
        )


def constant_targets(spec: ModelSpec, given: TrainingArrays | TrainingSource) -> str | None:
    """Return a message about a target that is constant, relative to its exposures if there are any, or None.

    Args:
        spec: The specification.
        given: The training data as read, not standardized.
    """
    low, high, count = given.target_range
    if isinstance(given, TrainingArrays) and given.chunk.noise is not None and spec.options.likelihood.takes_exposure:
        low, high = torch.aminmax(given.chunk.y / given.chunk.noise.to(given.chunk.y), dim=0)
    return constant_message(low, high, count)


def constant_warnings(spec: ModelSpec, rows: Rows) -> Iterator[Warning]:
    """Yield a warning if counts or labels are constant, so that a fit keeps the starting values.

    Args:
        spec: The specification.
        rows: The standardized rows.
    """
    if spec.options.likelihood.is_discrete and not is_read_in_blocks(rows):
        message = constant_targets(spec, TrainingArrays(*in_memory(rows, "a fit")))
        if message is not None:
            yield ConstantTargetWarning(
                f"{message}, so that hyperparameters cannot be learned and keep their starting values. Check the "
                f"column, or give other values by {arguments('start')}."
            )


def has_exposures(spec: ModelSpec, rows: Rows) -> bool:
    """Return whether rows have exposures, which are stored as known noise.

    Args:
        spec: The specification.
        rows: The standardized rows.
    """
    return spec.options.likelihood.takes_exposure and rows.has_fixed_noise


def check_rows(spec: ModelSpec, rows: Rows) -> None:
    """Check that rows are valid observations under a non-Gaussian likelihood.

    Args:
        spec: The specification.
        rows: The standardized rows.

    Raises:
        DataError: If a row is invalid. The message names the first.
    """
    if spec.is_gaussian:
        return
    likelihood = spec.options.likelihood
    if rows.has_fixed_noise and not (likelihood.takes_exposure and isinstance(rows, ArrayRows)):
        raise DataError(f"noise requires a Gaussian likelihood, got {likelihood!r}. Use sample_weight to repeat rows.")
    if isinstance(rows, ArrayRows):
        refuse(likelihood, rows.targets[:, 0])


def likelihood_quantities(spec: ModelSpec, summary: DataSummary) -> dict[str, Hyperparameter]:
    """Return the learned parameters of the likelihood.

    Args:
        spec: The specification.
        summary: The summary of the data.

    Returns:
        Hyperparameters with units and bounds by dotted name. Empty under a Gaussian likelihood.
    """
    if spec.is_gaussian:
        return {}
    unit_value = torch.ones_like(summary.center).reshape(-1)[0]
    unit = summary.scaling.targets.scale.reshape(-1)[0]
    of_noise = {}
    noise_spec = spec.noise_process or spec
    if spec.options.likelihood.has_noise_process:
        of_noise = dict(noise_spec.quantities())
        bounds = (NOISE_BOUNDS[0] * unit_value, NOISE_BOUNDS[1] * unit_value)
        scales = [v for v in noise_spec.variances if v.name == "outputscale" or v.name.endswith(".outputscale")]
        of_noise |= {v.name: Hyperparameter(NOISE_START * v.start * unit_value, unit_value, bounds) for v in scales}
    prefix = spec.noise_prefix if noise_spec is spec else ""
    return {f"{prefix}{name}": quantity for name, quantity in of_noise.items()} | {
        p.name: Hyperparameter(
            p.start * unit_value, unit**p.power, (p.bounds[0] * unit_value, p.bounds[1] * unit_value)
        )
        for p in learned_parameters(spec.options.likelihood)
    }


def latent_mean_and_likelihood(state: "GPState") -> tuple[Tensor, Likelihood, dict[str, Tensor]]:
    """Return the latent mean (1,), the likelihood and its 0-d learned parameters.

    They have gradients if the hyperparameters do.

    Args:
        state: The state of the model.
    """
    values, likelihood = state.hyperparameters, state.spec.options.likelihood
    learned = {p.name: values.standardized(p.name).double() for p in learned_parameters(likelihood)}
    unit = float(state.scaling.targets.scale.reshape(-1)[0])
    return values.standardized("mean").reshape(-1).double(), standardized(likelihood, unit), learned


def restored(spec: ModelSpec, values: ParameterValues, tensors: Mapping[str, Tensor]) -> Posterior:
    """Return the posterior with saved tensors.

    Args:
        spec: The specification.
        values: The hyperparameters.
        tensors: The tensors (...) of the posterior by name.
    """
    with torch.no_grad():
        if not spec.is_gaussian:
            return sites.restore(priors_of(spec, values), tensors, spec.options.likelihood.num_latents)
        members, parts = spec.members(values), tensors_by_prefix(tensors)
        if len(members) == 1:
            return solvers.restore(members[0].prior, tensors)
        posteriors = [solvers.restore(member.prior, parts[str(i)]) for i, member in enumerate(members)]
        return MixturePosterior.from_members(members, posteriors)


def bound_likelihood(state: "GPState") -> Likelihood:
    """Return the likelihood of standardized observations, with all its parameters.

    Args:
        state: The state of the model.
    """
    with torch.no_grad():
        _, likelihood, learned = latent_mean_and_likelihood(state)
        return likelihood.at(learned)


def left_out_prediction(
    state: "GPState", rows: Rows, inference: Inference | None = None
) -> tuple[Prediction, Tensor]:  # y (n,) or (n, k)
    """Return the prediction of each observation given all other rows, and the observations in user units.

    Args:
        state: The state of the model.
        rows: The data.
        inference: The inference from these rows under a likelihood that is not Gaussian. If None, it is computed.
    """
    units = state.scaling.targets
    location, scale = units.location.double(), units.scale.double()
    zero = scale.new_zeros(())
    columns = [(block.targets, block.log_exposure()) for block in rows.blocks(2**16)]
    targets, offset = (torch.cat(column) for column in zip(*columns, strict=True))
    y = units.inverse(targets if scale.ndim else targets[:, 0])
    last = zero, units.scale.new_empty(0), is_numpy_input(rows)
    if not state.spec.is_gaussian:
        latent = _marginals(*(inference or state.infer(rows)).leave_one_out())
        prediction = Prediction(latent, location.reshape(-1)[0], scale.reshape(-1)[0], *last)
        return observations(prediction, bound_likelihood(state), offset if rows.has_fixed_noise else None), y
    members, latents, rows = state.spec.members(state.hyperparameters), [], state.weighted(rows)
    for member in members:
        mean, variance = solvers.solver_for(member.prior, rows, member.mean, member.noise).leave_one_out()
        repeated = [  # a row is the mean of its repetitions
            (b.observation_noise(member.noise) - b.noise_diag(member.noise)).expand(len(b)) for b in rows.blocks(2**16)
        ]
        latents.append(MarginalDistribution(mean, variance + torch.cat(repeated)))
    prediction = Prediction(latents[0], location, scale, *last)
    if len(members) > 1:
        zeros, weights = [zero] * len(members), [member.weight for member in members]
        mixture = MixtureDistribution(latents, weights, [zero[None]] * len(members), zeros)
        prediction = MixturePrediction(mixture, location, scale, *last)
    if state.scale_model is None:
        return prediction, y
    model = state.scale_model
    scales = PointScales(model, prediction.latent, gathered(rows).inputs, zero, zero, model.row_nodes)
    return dataclasses.replace(prediction, scales=scales).observed(), y


def _marginals(mean: Tensor, variance: Tensor) -> MarginalDistribution:
    """Return distributions with means (n, 1) and variances (n,), or (n, 2) with noise."""
    if variance.ndim != 2:
        return MarginalDistribution(mean, variance)
    function, noise = (MarginalDistribution(mean[:, i : i + 1], variance[:, i]) for i in range(2))
    return dataclasses.replace(function, noise=noise)


# --- The hyperparameters of a specification, with starting values and bounds from the data ---------------------------

_LEAST = 1e-290
"""The smallest bound of a hyperparameter, so that products and quotients with observations are finite."""


def space_of(spec: ModelSpec, summary: DataSummary, approximation: str | None) -> ParameterSpace:
    """Return the hyperparameters of a specification, with starts and bounds.

    Args:
        spec: The specification.
        summary: The summary of the data.
        approximation: The approximation of the posterior, for the bounds of the noise.

    Raises:
        DataError: If the scale of the data is out of range.
        InvalidArgumentError: If the name of a hyperprior is unknown.
    """
    widest = spec.options.likelihood.widest_by_laplace if approximation == "laplace" else math.inf
    unit = summary.scaling.targets.scale**2
    quantities = dict(spec.quantities())
    variance, narrow = ((deviation**2 / unit).mean() for deviation in (summary.deviation, summary.narrow))
    for name, quantity in quantities.items():
        if quantity.is_variance:
            low, high = quantity.bounds[0] * narrow, quantity.bounds[1] * variance
            own_unit = quantity.unit * unit if unit.ndim == 0 else quantity.unit  # each output has its own unit
            quantities[name] = replace(quantity, start=quantity.start * variance, unit=own_unit, bounds=(low, high))
    for name, start, bounds in spec.variances:
        quantities[name] = Hyperparameter(
            start * variance, unit, (bounds[0] * narrow, min(bounds[1], widest) * variance)
        )
    quantities |= likelihood_quantities(spec, summary)
    of_targets = {variance.name for variance in spec.variances}
    for name, quantity in quantities.items():
        low, high = (end.double() for end in quantity.bounds)
        if quantity.is_positive and not bool((low > _LEAST).all() and (high < 1 / _LEAST).all()):
            what = "targets" if name in of_targets else "inputs"
            raise DataError(
                f"The scale of the {what} must be in the range of double precision, got bounds of {name} from "
                f"{float(low.min()):.3g} to {float(high.max()):.3g}. Scale them, or use standardize=True."
            )
    mean = Affine(summary.center, summary.deviation)
    return ParameterSpace.of(quantities, mean, summary.scaling.targets, spec.options.hyperpriors)


# --- The immutable state of a model: rows under a prior at given hyperparameters -------------------------------------


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

    spec: ModelSpec
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
            priors, inference = priors_of(self.spec, self.hyperparameters), inference_of(self.spec, rows) or ""
            return sites.infer(priors, rows, *latent_mean_and_likelihood(self), inference, warm_start)
        members = self.spec.members(self.hyperparameters)
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

    def leave_one_out(self, rows: Rows | None = None, inference: Inference | None = None) -> LeaveOneOut:
        """Return the leave-one-out distributions of observations, in the user's units.

        They are approximate unless the likelihood is Gaussian.

        Args:
            rows: The data. If None, those of the state.
            inference: The inference from these rows under a likelihood that is not Gaussian. If None, it is computed.

        Raises:
            NotFittedError: If there are no rows.
        """
        rows = self.require_rows(purpose="leave_one_out") if rows is None else rows
        with torch.no_grad():
            observed, y = left_out_prediction(self, rows, inference)
            # an average of models has the density of the normal distribution with its moments
            is_normal = self.spec.is_gaussian and observed.scales is None
            log_prob = Prediction.log_prob(observed, y) if is_normal else observed.log_prob(y)
            return LeaveOneOut(observed.mean, observed.variance, log_prob)

    # --- predictions -----------------------------------------------------------------------------

    def points(self, X: Any) -> tuple[Tensor, OutputFormat]:
        """Return standardized inputs (n, d), or positions (n,), and their output format.

        Args:
            X: The inputs in the user's units.

        Raises:
            DataError: If the inputs do not match the training data.
        """
        inputs, output_format = self.spec.read(arranged(X, self.scaling.columns))
        self.scaling.check_columns(inputs)
        return self.scaling.standardize(inputs), output_format

    def points_or_blocks(self, X: Any) -> tuple[Tensor | SourceInputs, OutputFormat]:
        """Return standardized inputs (n, d), in blocks if X is a source, and their output format.

        Args:
            X: The inputs in the user's units.
        """
        source = inputs_source(self.spec, X)
        if source is None:
            return self.points(X)
        like = self.scaling.targets.scale.new_empty(0)
        inputs = SourceInputs(source, self.scaling, self.spec.dtype)
        return inputs, OutputFormat(not isinstance(X, Tensor), like)

    def __repr__(self) -> str:
        return f"GPState({counted(self.num_observations, 'observation')}, {self.hyperparameters})"

    def __deepcopy__(self, memo: Any) -> "GPState":
        return self  # it never changes

    def __getstate__(self) -> dict[str, Any]:
        state = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**state, "given": None if self.given is None else saved_tensors(self.given)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)
        if self.given is not None:
            object.__setattr__(self, "given", restored(self.spec, self.hyperparameters, state["given"]))


def begin(spec: ModelSpec, data: Chunk, *, is_fit: bool = False) -> GPState:
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
    given = read_training(spec, data, spec.options.seed)
    del data  # its columns are copies
    constant, likelihood = constant_targets(spec, given), spec.options.likelihood
    has_posterior = likelihood.is_discrete and isinstance(given, TrainingArrays)  # at the starting values
    if is_fit and constant is not None and not has_posterior:
        raise DataError(
            f"{constant}; there is nothing to learn. Check the column, or call condition(X, y) for the posterior at "
            "given hyperparameters."
        )
    spec, summary = summary_of(spec, given)
    for warning in outlier_warnings(spec, summary):
        warnings.warn(warning, stacklevel=4)
    rows = given.rows(summary.scaling)
    check_rows(spec, rows)
    state = initial_state(spec, summary, rows)
    if constant is not None and (spec.is_gaussian or likelihood.is_standardized):
        unknown = [variance.name for variance in state.spec.variances if variance.name not in state.spec.options.starts]
        if unknown:
            message = f"{constant}, so that its scale is unknown. Give {arguments('start')} for {', '.join(unknown)}."
            warnings.warn(ConstantTargetWarning(message), stacklevel=4)
    return state


def initial_state(spec: ModelSpec, summary: DataSummary, rows: Rows) -> GPState:
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


def at_starting_values(state: GPState, spec: ModelSpec) -> GPState:
    """Return the state of another specification at its starts, for the same rows.

    Args:
        state: The state of a model.
        spec: The other specification.

    Raises:
        DataError: If some of the rows are read in blocks.
    """
    given = TrainingArrays(*in_memory(state.require_rows(purpose="a fit"), "another kernel or likelihood"))
    spec, summary = summary_of(spec, given)
    return initial_state(spec, summary, given.rows(summary.scaling))


def predicted(state: GPState, inputs: Any, output_format: OutputFormat, derivative: Any = None) -> Prediction:
    """Return the posterior of the latent function, or of its derivative in a column, at standardized inputs.

    Args:
        state: The model state.
        inputs: The standardized inputs, (n, d) or in blocks.
        output_format: The type of the results.
        derivative: The key of a column of numbers. If None, the function itself.

    Raises:
        InvalidArgumentError: If there is no such column, or no derivative in it.
    """
    spec, values = state.spec, state.hyperparameters
    with torch.no_grad():
        mean, scale = values.value("mean").double(), state.scaling.targets.scale.double()
        noise = spec.observation_noise(values) if spec.is_gaussian else mean.new_zeros(())
    process, scales = state.process, None
    latent = process.at(inputs)
    is_small = isinstance(inputs, Tensor) and max(state.num_observations, len(inputs)) <= limits().small_rows
    more: dict[str, Any] = {"inputs": inputs, "is_small": is_small}
    if not spec.is_gaussian:
        options: dict[str, Any] = {"likelihood": bound_likelihood(state), "is_per_unit": state.has_exposures}
        more["of_observations"] = partial(observations, **options)
    if state.scale_model is not None:
        with torch.no_grad():
            center = values.standardized("mean").reshape(-1)[0].double()
            own_noise = values.standardized("noise").double()
        more["scales"] = scales = PointScales(state.scale_model, latent, inputs, center, own_noise)
        latent = scales.scaled()
    parts = latent, mean, scale, noise, output_format.like, output_format.is_numpy
    if isinstance(latent, MixtureDistribution):
        prediction: Prediction = MixturePrediction(*parts, **more)
    else:
        prediction = Prediction(*parts, process=process, **more)
    return prediction if derivative is None else _differentiated(prediction, state, derivative)


def _differentiated(prediction: Prediction, state: GPState, key: Any) -> Prediction:
    """Return the posterior of the derivative of the latent function in a column of numbers.

    Raises:
        InvalidArgumentError: If there is no such column, there are several processes, or the function has no
            derivative.
    """
    column, maps = state.spec.schema.column_of(key, ColumnKind.NUMBER), state.scaling.inputs
    if prediction.process is None or maps is None:
        raise InvalidArgumentError(
            "derivative requires a single model, got an average of models. Use one of gp.members."
        )
    process = prediction.process.differentiated(column)
    changes: dict[str, Any] = {"latent": process.at(prediction.inputs), "process": process, "scales": None}
    changes |= {
        "location": torch.zeros_like(prediction.location),
        "scale": prediction.scale / maps.scale[column].double(),
    }
    return dataclasses.replace(prediction, **changes, of_observations=NO_OBSERVED_DERIVATIVE)
