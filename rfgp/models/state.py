"""The immutable state of a model: rows under a prior at given hyperparameters, and states made from others."""

import dataclasses
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp import errors, solvers
from rfgp.approximations.planning import assign
from rfgp.blocks import Prior
from rfgp.columns import ColumnKind
from rfgp.columns.rules import sources_of
from rfgp.errors import DataError, InvalidArgumentError, NotFittedError, arguments
from rfgp.inference import mixture, sites
from rfgp.inference.distributions import (
    Distribution,
    InputBlocks,
    LatentDistribution,
    MarginalDistribution,
    ResultCache,
)
from rfgp.inference.observed import LeaveOneOut, observations
from rfgp.inference.prediction import NO_OBSERVED_DERIVATIVE, NO_OBSERVED_INTEGRAL, Prediction
from rfgp.inference.scales import PointScales, ScaleModel
from rfgp.kernels import Sum
from rfgp.kernels.role import hyperparameters_of
from rfgp.likelihoods import Likelihood
from rfgp.likelihoods.role import learned_parameters, refuse, standardized
from rfgp.limits import limits
from rfgp.messages import counted, listed
from rfgp.models.inputs import sampled
from rfgp.models.spec import ModelSpec, by_process, check_blocks, inference_of, mean_and_noise, priors_of
from rfgp.parameters import Hyperparameter, ParameterSpace, ParameterValues
from rfgp.rows import (
    ArrayRows,
    Block,
    Chunk,
    DataSummary,
    JoinedRows,
    Rows,
    SourceInputs,
    TrainingData,
    as_source,
    gathered,
    in_memory,
    is_numpy_input,
    is_read_in_blocks,
    parts_of,
    read_training,
)
from rfgp.rows.sources import OutputFormat, constant_message
from rfgp.scaling import MAX_RATIO, Affine, Scaling
from rfgp.solvers import Inference, Posterior, WarmStart, solver_for
from rfgp.solvers.lowrank import EvidenceBounds, LinearModel, LowRankPosterior, evidence_bounds, update_gram
from rfgp.solvers.onepass import SeriesPosterior

# --- Summaries and checks of the data under a likelihood, its parameters, and left-out rows --------------------------

LOG_NOISE_START, LOG_NOISE_BOUNDS = 0.5, (1e-4, 1e2)
"""The start and the bounds of the output scale of the logarithm of the noise."""


def summary_of(spec: ModelSpec, given: TrainingData) -> tuple[ModelSpec, DataSummary]:
    """Return the specification with the data's likelihood, and a summary of the data.

    Args:
        spec: The specification.
        given: The training data as read, not standardized.

    Raises:
        DataError: If there are several outputs, or a target is not a valid observation.
    """
    summary, likelihood = spec.in_own_units(given.summary(spec.options.standardize)), spec.options.likelihood
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
    likelihood = likelihood.at_rows(given.chunk.noise if given.source is None else None)
    refuse(likelihood, y)
    weight = torch.ones_like(y) if summary.weight is None else summary.weight.double()
    times = torch.as_tensor(likelihood.log_exposure, dtype=y.dtype).exp()
    start = likelihood.begin(y / times, weight * times)
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
        yield errors.OutlierWarning(
            f"The standard deviation of {what} should be at most {MAX_RATIO:g} robust scales (interquartile range / "
            f"1.35), got {outliers.deviation:.3g} with a robust scale of {outliers.scale:.3g}. Units and bounds come "
            f"from the robust scale. {counted(len(rows), 'row')} ({listed(rows)}; such as {outliers.extreme:.6g}) may "
            f"have errors or codes of missing values: correct or drop them. If they are right, take logarithms of "
            f"{what}{robust}."
        )


def constant_targets(spec: ModelSpec, given: TrainingData) -> str | None:
    """Return a message about a target that is constant, relative to exposures or trials if there are any, or None.

    Args:
        spec: The specification.
        given: The training data as read, not standardized.
    """
    low, high, count = given.target_range
    is_share = spec.options.likelihood.row_argument in ("exposure", "trials")
    if given.source is None and given.chunk.noise is not None and is_share:
        low, high = torch.aminmax(given.chunk.y / given.chunk.noise.to(given.chunk.y), dim=0)
    return constant_message(low, high, count)


def constant_warnings(spec: ModelSpec, rows: Rows) -> Iterator[Warning]:
    """Yield a warning if counts or labels are constant, so that a fit keeps the starting values.

    Args:
        spec: The specification.
        rows: The standardized rows.
    """
    if spec.options.likelihood.is_discrete and not is_read_in_blocks(rows):
        message = constant_targets(spec, in_memory(rows, "a fit"))
        if message is not None:
            yield errors.ConstantTargetWarning(
                f"{message}, so that hyperparameters cannot be learned and keep their starting values. Check the "
                f"column, or give other values by {arguments('start')}."
            )


def has_exposures(spec: ModelSpec, rows: Rows) -> bool:
    """Return whether rows have exposures, trials or codes of censoring, which are stored as known noise.

    Args:
        spec: The specification.
        rows: The standardized rows.
    """
    return spec.options.likelihood.row_argument is not None and rows.has_fixed_noise


def row_numbers(state: "GPState", rows: Block) -> dict[str, Tensor]:
    """Return the exposures, trials or codes of censoring (n,) of rows, as arguments of `Prediction.observed`.

    Args:
        state: The state of the model.
        rows: The standardized rows.
    """
    argument, numbers = state.spec.options.likelihood.row_argument, rows.fixed_noise
    if argument is None or numbers is None:
        return {}
    return {argument: numbers.sign() if argument == "censored" else numbers}  # codes have no unit


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
    if rows.has_fixed_noise and not (has_exposures(spec, rows) and isinstance(rows, ArrayRows)):
        raise DataError(f"noise requires a Gaussian likelihood, got {likelihood!r}. Use sample_weight to repeat rows.")
    if isinstance(rows, ArrayRows):
        refuse(likelihood.at_rows(rows.fixed_noise), rows.targets[:, 0])


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
        bounds = (LOG_NOISE_BOUNDS[0] * unit_value, LOG_NOISE_BOUNDS[1] * unit_value)
        scales = [v for v in noise_spec.variances if v.name == "outputscale" or v.name.endswith(".outputscale")]
        of_noise |= {v.name: Hyperparameter(LOG_NOISE_START * v.start * unit_value, unit_value, bounds) for v in scales}
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


def restored_posterior(spec: ModelSpec, values: ParameterValues, tensors: Mapping[str, Tensor]) -> Posterior:
    """Return the posterior with saved tensors.

    Args:
        spec: The specification.
        values: The hyperparameters.
        tensors: The tensors (...) of the posterior by name.
    """
    with torch.no_grad():
        if not spec.is_gaussian:
            return sites.restore(priors_of(spec, values), tensors, spec.options.likelihood.num_latents)
        members, parts = spec.members(values), mixture.tensors_by_prefix(tensors)
        if len(members) == 1:
            return solvers.restore(members[0].prior, tensors)
        posteriors = [solvers.restore(member.prior, parts[str(i)]) for i, member in enumerate(members)]
        return mixture.MixturePosterior.from_members(members, posteriors)


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
    targets = torch.cat([block.targets for block in rows.blocks(2**16)])
    y = units.inverse(targets if scale.ndim else targets[:, 0])
    last = zero, units.scale.new_empty(0), is_numpy_input(rows)
    if not state.spec.is_gaussian:
        latent = _marginals(*(inference or state.infer(rows)).leave_one_out())
        prediction = Prediction(latent, location.reshape(-1)[0], scale.reshape(-1)[0], *last)
        numbers = gathered(rows).fixed_noise if rows.has_fixed_noise else None
        return observations(prediction, bound_likelihood(state).at_rows(numbers)), y
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
        average = mixture.MixtureDistribution(latents, weights, [zero[None]] * len(members), zeros)
        prediction = mixture.MixturePrediction(average, location, scale, *last)
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
        has_exposures: Whether rows have exposures, trials or codes of censoring.
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
            return mixture.MixtureInference(
                members, lambda member: solver_for(member.prior, rows, member.mean, member.noise)
            )
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

    def latent(self, inputs: Tensor | InputBlocks) -> LatentDistribution | mixture.MixtureDistribution:
        """Return the distribution of the standardized latent function at points given the rows, without its mean.

        Args:
            inputs: The standardized points, (n, d) or in blocks.

        Raises:
            NotFittedError: If there are neither rows nor a posterior.
        """
        return mixture.latent_distribution(self.posterior, inputs, self.spec.options.memory)

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
        inputs, output_format = self.spec.read(X)
        return self.scaling.standardize(inputs), output_format

    def points_or_blocks(self, X: Any) -> tuple[Tensor | SourceInputs, OutputFormat]:
        """Return standardized inputs (n, d), in blocks if X is a source, and their output format.

        Args:
            X: The inputs in the user's units.
        """
        source = as_source(X)
        if source is None:
            return self.points(X)
        like = self.scaling.targets.scale.new_empty(0)
        inputs = SourceInputs(self.spec.coded(source), self.scaling)
        return inputs, OutputFormat(not isinstance(X, Tensor), like)

    def __repr__(self) -> str:
        return f"GPState({counted(self.num_observations, 'observation')}, {self.hyperparameters})"

    def __deepcopy__(self, memo: Any) -> "GPState":
        return self  # it never changes

    def __getstate__(self) -> dict[str, Any]:
        state = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**state, "given": None if self.given is None else mixture.saved_tensors(self.given)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)
        if self.given is not None:
            object.__setattr__(self, "given", restored_posterior(self.spec, self.hyperparameters, state["given"]))


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
    has_posterior = likelihood.is_discrete and given.source is None  # at the starting values
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
            warnings.warn(errors.ConstantTargetWarning(message), stacklevel=4)
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
    given = in_memory(state.require_rows(purpose="a fit"), "another kernel or likelihood")
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
    latent: Distribution = state.latent(inputs)
    scales = None
    is_small = isinstance(inputs, Tensor) and max(state.num_observations, len(inputs)) <= limits().small_rows
    more: dict[str, Any] = {"is_small": is_small}
    if not spec.is_gaussian:
        likelihood = bound_likelihood(state)
        is_per_unit = state.has_exposures and likelihood.row_argument != "censored"
        options: dict[str, Any] = {"likelihood": likelihood, "is_per_unit": is_per_unit}
        more["of_observations"] = partial(observations, **options)
    if state.scale_model is not None:
        with torch.no_grad():
            center = values.standardized("mean").reshape(-1)[0].double()
            own_noise = values.standardized("noise").double()
        more["scales"] = scales = PointScales(state.scale_model, latent, inputs, center, own_noise)
        latent = scales.scaled()
    parts = latent, mean, scale, noise, output_format.like, output_format.is_numpy
    kind = mixture.MixturePrediction if isinstance(latent, mixture.MixtureDistribution) else Prediction
    prediction = kind(*parts, **more)
    return prediction if derivative is None else _differentiated(prediction, state, derivative)


def _differentiated(prediction: Prediction, state: GPState, key: Any) -> Prediction:
    """Return the posterior of the derivative of the latent function in a column of numbers.

    Raises:
        InvalidArgumentError: If there is no such column, there are several processes, or the function has no
            derivative.
    """
    _check_no_angle(state.spec, [key])
    column, maps = state.spec.schema.column_of(key, ColumnKind.NUMBER), state.scaling.inputs
    latent = prediction.unscaled.latent
    if not isinstance(latent, LatentDistribution) or maps is None:
        raise InvalidArgumentError(
            "derivative requires a single model, got an average of models. Use one of gp.members."
        )
    return replace(
        prediction,
        latent=latent.differentiated(column),
        location=torch.zeros_like(prediction.location),
        scale=prediction.scale / maps.scale[column].double(),
        of_observations=NO_OBSERVED_DERIVATIVE,
        scales=None,
    )


# --- Integrals of the latent function over boxes, in the user's units ------------------------------------------------


def integrated(state: GPState, low: Any, high: Any, columns: Any = None) -> Prediction:
    """Return the joint distribution of integrals of the latent function over m boxes.

    Args:
        state: The state of the model.
        low: The lower corners, (m, d).
        high: The upper corners, (m, d).
        columns: The keys of the columns to integrate over. If None, those in which some corners differ.

    Raises:
        DataError: If the corners do not match the data or each other.
        InvalidArgumentError: If there is no such column of numbers, or a box has too many lengthscales.
    """
    (first, output_format), (last, _) = state.points(low), state.points(high)
    maps = state.scaling.inputs
    if first.shape != last.shape or maps is None:
        raise DataError(
            f"low and high must have one shape, got {tuple(first.shape)} and {tuple(last.shape)}. Give two corners for "
            "each box."
        )
    indices = _places(state.spec, first, last, columns)
    priors = [member.prior for member in state.spec.members(state.hyperparameters)]
    nodes, weights = mixture.box_rule(priors, torch.stack([first, last], dim=1), indices)
    prediction = predicted(state, nodes.flatten(0, 1), output_format).unscaled
    shift, unit = (prediction.location / prediction.scale).reshape(-1), maps.scale.double()[list(indices)].prod()
    return replace(
        prediction,
        latent=mixture.integrals(prediction.latent, unit * weights, shift),
        location=0 * prediction.location,
        of_observations=NO_OBSERVED_INTEGRAL,
    )


def _check_no_angle(spec: ModelSpec, keys: Sequence[Any]) -> None:
    """Check that no term reads columns as angles.

    Args:
        spec: The specification.
        keys: The keys of the columns.

    Raises:
        InvalidArgumentError: If one does.
    """
    factors = [factor for term in spec.terms for factor in term.term.factors if factor.kind is ColumnKind.SPHERE]
    for key in keys:
        if any(key in factor.columns for factor in factors):
            raise InvalidArgumentError(
                f"Derivatives and integrals in {key!r} are not available, because k.Sphere reads it as an angle. "
                "Differentiate the mean of predict(X) for tensors, or sum predict(X).linear(weights) over points."
            )


def _places(spec: ModelSpec, low: Tensor, high: Tensor, columns: Any) -> tuple[int, ...]:
    """Return the indices of the columns over which boxes with corners (m, D) extend.

    Raises:
        DataError: If corners differ in another column, or a lower corner is above the upper one.
        InvalidArgumentError: If there is no such column of numbers.
    """
    numbers, differ = spec.numeric_columns, (low != high).any(0).nonzero()[:, 0].tolist()
    angles = [spec.schema.columns[index] for index in differ if spec.schema.kinds[index] is ColumnKind.SPHERE]
    _check_no_angle(spec, sources_of(column.key for column in angles))
    differ = [index for index in differ if spec.schema.kinds[index] is not ColumnKind.SPHERE]
    if columns is None:
        indices = [index for index in differ if index in numbers] or ([*numbers] if len(numbers) == 1 else [])
    else:
        given = [columns] if isinstance(columns, str | int) else columns
        indices = [*dict.fromkeys(spec.schema.column_of(key, ColumnKind.NUMBER) for key in given)]
    if not indices and not differ:
        raise InvalidArgumentError("low and high must differ in some column, got the same points. Name columns=.")
    other = next((index for index in differ if index not in indices), None)
    if other is not None:
        row, column = int((low[:, other] != high[:, other]).nonzero()[0]), "a column of levels or places"
        raise DataError(
            "low and high must agree in columns that are not integrated over, got two values in "
            f"{repr(numbers[other]) if other in numbers else column} of row {row}. Give one box for each value."
        )
    wrong = (low > high)[:, indices].nonzero()
    if len(wrong):
        row, column = wrong[0].tolist()
        raise InvalidArgumentError(
            f"low must be at most high, got a larger one in the column {numbers[indices[column]]!r} of row {row}. "
            "Exchange the two."
        )
    return tuple(indices)


# --- States with other rows: new ones, additional ones, or fewer -----------------------------------------------------


def conditioned(state: GPState, data: Chunk) -> GPState:
    """Return a state with other data.

    Rows of a source are processed immediately, because the source may be unavailable later.

    Args:
        state: The state of the model.
        data: The data that replace the present ones.

    Raises:
        DataError: If the data cannot be used. The message names the row and the column.
    """
    (spec, data), scaling = replace(state.spec, areas=None).with_data(data), state.scaling
    rows = read_training(spec, data, spec.options.seed, 1).rows(scaling)
    check_rows(spec, rows)
    spec = spec.extended_to_range(state.hyperparameters, rows)
    changes = {"spec": spec, "rows": rows, "scaling": scaling, "num_observations": len(rows)}
    scales = _with_weights(state, rows)
    return solved_if_read(
        state.replace(**changes, scale_model=scales, has_forgotten=False, has_exposures=has_exposures(spec, rows))
    )


def extended(state: GPState, data: Chunk) -> GPState:
    """Return a state with additional data.

    If the present posterior can be updated without the old rows, only the new rows are read.

    Args:
        state: The state of the model.
        data: The additional data.

    Raises:
        DataError: If the data cannot be used. The message names the row and the column.
        NotFittedError: If the old rows are needed but not known.
    """
    posterior = state.present_posterior if state.spec.is_gaussian else None
    posterior = posterior if posterior is not None and posterior.can_update else None
    weights = None if state.scale_model is None else state.scale_model.row_weights
    posterior = posterior if weights is None else None
    spec, data = state.spec.with_data(data)
    posterior = posterior if spec is state.spec else None  # new levels add weights, and areas add points
    if posterior is None:
        state.require_rows(purpose="update")
    more = read_training(spec, data, spec.options.seed, 1).rows(state.scaling)
    check_rows(spec, more)
    if posterior is not None and _needs_all(state, posterior, more):
        posterior, _ = None, state.require_rows(purpose="new rows outside the range of the old ones")
    grown = None if posterior is None else _updated(state, posterior, more)
    rows = None if state.rows is None else JoinedRows([*parts_of(state.rows), more])
    count = state.num_observations + len(more)
    spec = spec if rows is None or grown is not None else spec.extended_to_range(state.hyperparameters, rows)
    exposed = state.has_exposures or has_exposures(spec, more)
    scales = _with_weights(state, more)
    if scales is not None and scales.row_weights is not None and weights is not None:
        scales = dataclasses.replace(scales, row_weights=torch.cat([weights, scales.row_weights]))
    changes = {"spec": spec, "rows": rows, "given": grown, "num_observations": count, "scale_model": scales}
    new = state.replace(**changes, has_exposures=exposed)
    return new if isinstance(more, ArrayRows) else solved_if_read(new)


def reduced(state: GPState, data: Chunk) -> GPState:
    """Return a state without some of its rows, by subtraction of sums over them.

    The new state stores no rows.

    Args:
        state: The state of the model.
        data: The rows to remove.

    Raises:
        DataError: If the data cannot be used, or no rows would remain.
        InvalidArgumentError: If the posterior has no sums over rows.
    """
    posterior = state.posterior if state.spec.is_gaussian else None
    if not (isinstance(posterior, SeriesPosterior) and posterior.can_update):
        raise InvalidArgumentError(
            "forget requires a Gaussian likelihood and fixed features in all terms, some by EquispacedFourier(), got "
            "another model. Call condition(X, y) with the remaining rows."
        )
    spec, data = state.spec.with_data(data)
    rows = read_training(spec, data, spec.options.seed, 1).rows(state.scaling)
    check_rows(spec, rows)
    count = state.num_observations - len(rows)
    left = posterior.with_rows(rows, sign=-1)
    return state.replace(rows=None, given=left, num_observations=count, has_forgotten=True)


SLOPES_AT_ONCE = 2**12
"""The number of rows at which slopes are computed at once."""


def input_variances(state: GPState, variances: Mapping[Any, Any]) -> dict[int, Tensor]:
    """Return the variances of errors of inputs, one or (n,), by the index of the column.

    Args:
        state: The state of a model with rows.
        variances: The variances of columns of numbers by key, in squared units of the column.

    Raises:
        InvalidArgumentError: If the likelihood is not Gaussian, there are several outputs, rows are means over areas, a
            key is no column of numbers, or a variance is negative.
    """
    spec, rows = state.spec, state.require_rows(purpose="a fit")
    if not spec.is_gaussian or rows.num_outputs > 1 or spec.areas is not None or is_read_in_blocks(rows):
        raise InvalidArgumentError(
            "input_noise requires a Gaussian likelihood, one output, and rows in memory that are points."
        )
    if not isinstance(variances, Mapping):
        raise InvalidArgumentError(f"input_noise must be a dict of variances by columns, got {variances!r}.")
    checked = dict[int, Tensor]()
    for key, variance in variances.items():
        try:
            given = torch.from_numpy(np.array(variance, dtype=np.float64))
        except (TypeError, ValueError):
            given = torch.full((), torch.nan)
        if given.shape not in ((), (len(rows),)) or not bool((torch.isfinite(given) & (given >= 0)).all()):
            raise InvalidArgumentError(
                f"The input_noise of {key!r} must be a variance of at least 0, or one for each row, got {variance!r}."
            )
        checked[spec.schema.column_of(key, ColumnKind.NUMBER)] = given
    return checked


def with_noise_of_inputs(begun: GPState, fitted: GPState, variances: Mapping[int, Tensor]) -> GPState:
    """Return a state before a fit with the noise of rows that errors of inputs cause: squared slopes times variances.

    Source: McHutchon and Rasmussen (2011), Gaussian process training with input noise, Equation 4.

    Args:
        begun: The state before the fit.
        fitted: The state after a fit to the same rows, whose mean has the slopes.
        variances: The result of `input_variances`.
    """
    known = begun.require_rows(purpose="a fit")
    for spec in (fitted.spec, *(member.spec for member in fitted.spec.other_members)):
        _check_no_angle(spec, [begun.spec.schema.columns[column].key for column in variances])
    given, inputs = in_memory(known, "input_noise"), gathered(known).inputs.detach()
    output_format, slopes = OutputFormat(False, inputs.new_empty(0)), list[Tensor]()
    for some in torch.split(inputs, SLOPES_AT_ONCE):
        points = some.clone().requires_grad_()
        with torch.enable_grad():
            mean = predicted(fitted, points, output_format).mean
        slopes.append(torch.autograd.grad(mean.sum(), points)[0].double())
    scaled = torch.cat(slopes) / begun.scaling.inputs.scale.double()
    noise = torch.zeros(len(inputs), dtype=torch.float64) if given.chunk.noise is None else given.chunk.noise.double()
    for column, variance in variances.items():
        noise = noise + scaled[:, column].square() * variance
    rows = replace(given, chunk=given.chunk._replace(noise=noise.to(given.chunk.y))).rows(begun.scaling)
    return at_starting_values(begun.replace(rows=rows), begun.spec.with_options(begun.spec.options))


def _with_weights(state: GPState, rows: Rows) -> ScaleModel | None:
    """Return the model of scales, with weights of new rows by the present prediction if the old ones have weights."""
    model = state.scale_model
    if model is None or model.row_weights is None or is_read_in_blocks(rows):
        return None if model is None else dataclasses.replace(model, row_weights=None, row_nodes=None)
    block = gathered(rows)
    with torch.no_grad():
        prediction = predicted(state, block.inputs, OutputFormat(False, block.targets.new_empty(0)))
        shares, means, variances = prediction.scales.members()
        mean, variance = shares @ means, shares @ variances
        weights = model.weights_of(block.targets[:, 0].double().cpu(), block.inputs.cpu(), mean, variance)
        return dataclasses.replace(model, row_weights=weights, row_nodes=None)


MANY = 4
"""The growth factor of the number of rows after which an update recomputes lattices, if the old rows are known."""


def _needs_all(state: GPState, posterior: Posterior, rows: Rows) -> bool:
    """Return whether lattices do not cover the new rows, so that all are needed."""
    if not isinstance(posterior, SeriesPosterior):
        return False
    if isinstance(rows, ArrayRows) and bool(posterior.is_outside(rows.inputs).any()):
        return True
    before = state.num_observations
    return state.rows is not None and before + len(rows) > MANY * before


def solved_if_read(state: GPState) -> GPState:
    """Return a state, with its posterior if rows are read in blocks.

    Args:
        state: The state of the model. The source of its rows may disappear.

    Raises:
        InvalidArgumentError: If rows are read in blocks, and a term needs them in memory.
    """
    if state.rows is None or not is_read_in_blocks(state.rows):
        return state
    check_blocks(state.spec, state.hyperparameters, state.rows)
    return state.replace(given=state.posterior)


def _updated(state: GPState, posterior: Posterior, more: Rows) -> Posterior:
    """Return the posterior with additional rows."""
    if isinstance(posterior, SeriesPosterior):
        return posterior.with_rows(more)
    assert isinstance(posterior, LowRankPosterior)
    with torch.no_grad():
        model = LinearModel(state.prior().dense, more, *mean_and_noise(state.hyperparameters))
        return update_gram(model, posterior)[0]


# --- Specifications with other approximations or bases ---------------------------------------------------------------


def learnable_basis(spec: ModelSpec) -> dict[str, Tensor]:
    """Return the parts of bases that a fit may learn, by dotted name.

    Args:
        spec: The specification.

    Returns:
        Frequencies (m, d) and inducing points (m, d) by dotted name.
    """
    learnable = {path: tensor for term in spec.term_priors for path, tensor in term.learnable.items()}
    return learnable if spec.noise_process is None else learnable | learnable_basis(spec.noise_process)


def with_learned(spec: ModelSpec, basis: Mapping[str, Tensor]) -> ModelSpec:
    """Return the specification with other parts (...) of bases, by dotted name.

    Args:
        spec: The specification.
        basis: The parts (...) that change, as `learnable_basis` returns them.
    """
    noise = None if spec.noise_process is None else with_learned(spec.noise_process, basis)
    return replace(spec, term_priors=tuple(term.with_learned(basis) for term in spec.term_priors), noise_process=noise)


def variance_paths(spec: ModelSpec) -> tuple[str, ...]:
    """Return dotted names of variances that together scale the whole prior, or none.

    Args:
        spec: The specification.
    """
    paths: list[str] = []
    for term in spec.terms:
        prefixes = [prefix for factor, _, prefix in term.parts() if factor.has_own_variance]
        if term.outputscale is None and len(prefixes) != 1:
            return ()
        paths.append(f"{prefixes[0]}variance" if term.outputscale is None else term.outputscale)
    return tuple(dict.fromkeys(paths))


def block_scales(spec: ModelSpec, prior: Prior) -> list[str]:
    """Return the dotted name of the variance of each weight block of a prior.

    Names are in the order of blocks. There are none if blocks share a variance.

    Args:
        spec: The specification.
        prior: The prior.
    """
    paths = dict(zip((term.name for term in spec.terms), variance_paths(spec), strict=False))
    names = [block.name for block in prior.weights]
    is_own = len(set(paths.values())) == len(spec.terms) == len(set(names)) == len(names)
    has_all = is_own and all(block.variance is not None for block in prior.weights)
    return [paths[name] for name in names] if has_all else []


def some_terms(spec: ModelSpec, names: Sequence[str]) -> ModelSpec:
    """Return the specification of some terms, with their approximations and bases.

    Args:
        spec: The specification.
        names: The names of the terms.
    """
    pairs = [pair for pair in zip(spec.terms, spec.term_priors, strict=True) if pair[0].name in names]
    terms, priors = tuple(term for term, _ in pairs), tuple(prior for _, prior in pairs)
    used = {term.name: spec.approximations[term.name] for term in terms}
    kernel = Sum(tuple(term.term for term in terms))
    return replace(spec, kernel=kernel, terms=terms, term_priors=priors, approximations=used)


def with_basis_of(spec: ModelSpec, other: ModelSpec) -> ModelSpec:
    """Return the specification with the bases of another one, by the names of terms.

    Args:
        spec: The specification.
        other: The specification whose bases are used.
    """
    priors = {term.name: prior for term, prior in zip(other.terms, other.term_priors, strict=True)}
    pairs = zip(spec.terms, spec.term_priors, strict=True)
    return replace(spec, term_priors=tuple(priors.get(term.name, prior) for term, prior in pairs))


def values_of_terms(spec: ModelSpec, values: ParameterValues) -> ParameterValues:
    """Return those hyperparameters that belong to the terms of a specification.

    Args:
        spec: The specification.
        values: The hyperparameters, of more terms.
    """
    kept = {*hyperparameters_of(spec.terms, spec.columns), *(term.outputscale for term in spec.terms)}
    kept |= {name for name in values.space.quantities if "." not in name}
    quantities = {name: quantity for name, quantity in values.space.quantities.items() if name in kept}
    hyperpriors = {name: prior for name, prior in values.space.hyperpriors.items() if name in kept or name == "mean"}
    space = replace(values.space, quantities=quantities, hyperpriors=hyperpriors)
    return ParameterValues(space, {name: values.raw[name] for name in space.names})


def data_summary(state: GPState) -> DataSummary:
    """Return the data summary of a state without the targets, for another model.

    Args:
        state: The state of the model.
    """
    mean = state.hyperparameters.space.mean
    return DataSummary(state.scaling, mean.location, mean.scale, mean.scale, mean.location)


# --- Averages of the posteriors of several models of the same rows ---------------------------------------------------

Share = tuple[float, GPState]
"""The weight of a model in an average, and the model."""


def averaged(state: GPState, weight: float, others: Sequence[Share]) -> GPState:
    """Return the average of models, all conditioned on the rows of the first one.

    Args:
        state: The model with the largest weight.
        weight: Its weight. All weights sum to one.
        others: Weights and other models with the same columns and scaling, fitted to some of these rows.
    """
    shared: dict[str, Any] = {"schema": state.spec.schema, "columns": state.spec.columns}
    members = tuple(
        mixture.Member(
            share,
            replace(member.spec, **shared, weight=1.0, other_members=()),
            member.hyperparameters.detached(),
        )
        for share, member in others
    )
    return state.replace(spec=replace(state.spec, weight=weight, other_members=members))


def parts_of_average(state: GPState) -> list[Share]:
    """Return the models of an average, each with its weight and posterior.

    Args:
        state: The state of an average, or of a single model.
    """
    members = state.spec.members(state.hyperparameters)
    if len(members) == 1:
        return [(1.0, state)]
    posterior, shares = state.present_posterior, list[Share]()
    for number, member in enumerate(members):
        given = posterior.members[number] if isinstance(posterior, mixture.MixturePosterior) else None
        changes = {"spec": member.spec, "hyperparameters": member.values, "given": given}
        shares.append((member.weight, state.replace(**changes)))
    return shares


def largest(state: GPState) -> GPState:
    """Return the model with the largest weight in an average, or a single model.

    Args:
        state: The state of an average, or of a single model.
    """
    return parts_of_average(state)[0][1]


def approximated(state: GPState, approximation: Any) -> GPState:
    """Return a state with other approximations.

    Only the model with the largest weight of an average remains.

    Args:
        state: The state, with its rows.
        approximation: An approximation, or a dict by the names of terms.

    Raises:
        NotFittedError: If there are no rows.
        InvalidArgumentError: If the name of a term is unknown, or a term does not support an approximation.
    """
    rows, first = state.require_rows(purpose="with_approximation"), largest(state)
    spec, values = with_rows(first.spec, rows), first.hyperparameters
    data, noise = spec.term_data(values, len(rows)), spec.noise_process
    of_noise = noise.term_data(values, len(rows)) if noise else []
    for_function, for_noise = by_process(approximation, data, of_noise)
    chosen = assign(for_function, data, spec.approximations)
    chosen |= assign(for_noise, of_noise, noise.approximations) if noise else {}
    spec = spec.with_approximations(chosen, values, len(rows))
    return first.replace(spec=replace(spec, options=spec.options.changed(approximations=chosen)))  # a fit keeps them


def with_rows(spec: ModelSpec, rows: Rows) -> ModelSpec:
    """Return a specification with a sample of rows, which a loaded one lacks.

    Args:
        spec: The specification.
        rows: The rows.
    """
    if len(spec.columns.sample):
        return spec
    noise = None if spec.noise_process is None else with_rows(spec.noise_process, rows)
    columns = replace(spec.columns, sample=sampled(rows, spec.options.seed).inputs.detach())
    return replace(spec, columns=columns, noise_process=noise)


# --- Bounds on the log marginal likelihood of the exact kernel -------------------------------------------------------


def exact_evidence_bounds(state: GPState) -> EvidenceBounds:
    """Return bounds on the log marginal likelihood of the exact kernel, in user units.

    Args:
        state: The state of the model, with rows.

    Raises:
        NotFittedError: If there are no rows.
        InvalidArgumentError: If the likelihood is not Gaussian, or a term has no bounds.
    """
    spec, rows = state.spec, state.require_rows(purpose="evidence_bounds")
    if not spec.is_gaussian:
        raise InvalidArgumentError(
            f"evidence_bounds requires a Gaussian likelihood, got {spec.options.likelihood!r}. Compare "
            "log_marginal_likelihood() with that of exact() on some of the rows."
        )
    pairs = zip(spec.terms, spec.term_priors, strict=True)
    bounding = {term.name: spec.approximations[term.name].vfe_counterpart(prior) for term, prior in pairs}
    kept = tuple(prior for prior in bounding.values() if prior is not None)
    values = state.hyperparameters.detached()
    prior = replace(spec, term_priors=kept).prior(values)
    wrong = [name for name, prior in bounding.items() if prior is None]
    wrong += [name for block in prior.blocks if block not in prior.weights for name in block.names]
    if wrong:
        raise InvalidArgumentError(
            "evidence_bounds requires inducing points, or exact terms of finitely many functions, got "
            f"{spec.approximations[wrong[0]]!r} for the term {wrong[0]!r}. Use "
            "with_approximation(rfgp.InducingPoints())."
        )
    model = LinearModel(prior.dense, rows, *mean_and_noise(values))
    return evidence_bounds(model, state.scaling.targets.log_jacobian(rows.count))
