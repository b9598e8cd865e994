"""Non-Gaussian likelihoods: starting values, parameters, inference and left-out rows."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import Tensor

from rfgp import solvers
from rfgp.blocks import Prior
from rfgp.counts import counted
from rfgp.errors import ConstantTargetWarning, DataError, InvalidArgumentError, OutlierWarning, arguments
from rfgp.inference import sites
from rfgp.inference.composite import tensors_by_prefix
from rfgp.inference.distributions import MarginalDistribution
from rfgp.inference.mixture import MixtureDistribution, MixtureMember, MixturePosterior, MixturePrediction
from rfgp.inference.observed import LeaveOneOut, observations
from rfgp.inference.prediction import Prediction
from rfgp.inference.scales import PointScales, ScaleModel
from rfgp.likelihoods import Likelihood
from rfgp.likelihoods.role import learned_parameters, refuse, standardized
from rfgp.limits import limits
from rfgp.messages import listed
from rfgp.parameters import Hyperparameter, ParameterValues
from rfgp.regression.base_spec import BaseSpec, mean_and_noise
from rfgp.rows import (
    ArrayRows,
    Block,
    DataSummary,
    Rows,
    TrainingArrays,
    TrainingSource,
    gathered,
    in_memory,
    is_numpy_input,
    is_read_in_blocks,
    parts_of,
)
from rfgp.rows.arrays import constant_message
from rfgp.scaling import MAX_RATIO, Affine, Scaling
from rfgp.solvers import Inference, Posterior, WarmStart

F = TypeVar("F", bound=BaseSpec)

MAX_OF_CLASSES = 500
"""The maximum number of rows for variational inference of several classes without features. A step costs n^3 for each
class."""
NOISE_START, NOISE_BOUNDS = 0.5, (1e-4, 1e2)
"""The start and the bounds of the output scale of the logarithm of the noise."""


class StateLike(Protocol):
    """The interface of a state for the functions of this module."""

    @property
    def spec(self) -> BaseSpec:
        """The prior and the likelihood."""

    @property
    def scaling(self) -> Scaling:
        """The maps between the user's units and standardized ones."""

    @property
    def hyperparameters(self) -> ParameterValues:
        """The hyperparameters."""

    @property
    def scale_model(self) -> ScaleModel | None:
        """The model of the scales of residuals, or None."""

    def weighted(self, rows: Rows) -> Rows:
        """Return the rows, weighted by their scales if the model has such weights.

        Args:
            rows: The rows of the state.
        """

    def infer(self, rows: Rows) -> Inference:
        """Return the inference from standardized rows.

        Args:
            rows: The data.
        """


def summary_of(spec: F, given: TrainingArrays | TrainingSource) -> tuple[F, DataSummary]:
    """Return the specification with the data's likelihood, and a summary of the data.

    Args:
        spec: The specification.
        given: The training data as read, not standardized.

    Raises:
        DataError: If there are several outputs, or a target is not a valid observation.
    """
    summary, likelihood = given.summary(spec.inputs.standardize), spec.options.likelihood
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
        options = dataclasses.replace(cast(Any, spec.options), likelihood=informed)
        spec, likelihood = dataclasses.replace(cast(Any, spec), options=options), informed
    refuse(likelihood, y)
    weight = torch.ones_like(y) if summary.weight is None else summary.weight.double()
    exposure = given.chunk.noise if isinstance(given, TrainingArrays) and likelihood.takes_exposure else None
    start = likelihood.begin(y, weight) if exposure is None else likelihood.begin(y / exposure, weight * exposure)
    center = (units.location + units.scale * start.center).to(summary.center)
    deviation = (start.variance.sqrt() * units.scale).to(center).expand(center.shape).clone()
    return spec, dataclasses.replace(summary, center=center, deviation=deviation, narrow=deviation)


def outlier_warnings(spec: BaseSpec, summary: DataSummary) -> Iterator[Warning]:
    """Yield a warning for each column whose units come from its robust scale.

    Args:
        spec: The specification.
        summary: The summary of the data.
    """
    likelihood, keys = spec.options.likelihood, spec.inputs.numeric_columns
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


def constant_targets(spec: BaseSpec, given: TrainingArrays | TrainingSource) -> str | None:
    """Return a message about a target that is constant, relative to its exposures if there are any, or None.

    Args:
        spec: The specification.
        given: The training data as read, not standardized.
    """
    low, high, count = given.target_range
    if isinstance(given, TrainingArrays) and given.chunk.noise is not None and spec.options.likelihood.takes_exposure:
        low, high = torch.aminmax(given.chunk.y / given.chunk.noise.to(given.chunk.y), dim=0)
    return constant_message(low, high, count)


def check_targets_vary(spec: BaseSpec, given: TrainingArrays | TrainingSource) -> None:
    """Check that a fit knows the scale of its targets.

    Counts and labels in memory may be constant, because they have a posterior at the starting values.

    Args:
        spec: The specification.
        given: The training data as read, not standardized.

    Raises:
        DataError: If a target is constant. The message names its value, and its output if there are several.
    """
    message = constant_targets(spec, given)
    if message is not None and not (spec.options.likelihood.is_discrete and isinstance(given, TrainingArrays)):
        raise DataError(
            f"{message}; there is nothing to learn. Check the column, or call condition(X, y) for the posterior at "
            "given hyperparameters."
        )


def constant_warnings(spec: BaseSpec, rows: Rows) -> Iterator[Warning]:
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


def has_exposures(spec: BaseSpec, rows: Rows) -> bool:
    """Return whether rows have exposures, which are stored as known noise.

    Args:
        spec: The specification.
        rows: The standardized rows.
    """
    return spec.options.likelihood.takes_exposure and rows.has_fixed_noise


def check_rows(spec: BaseSpec, rows: Rows) -> None:
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


def check_blocks(spec: BaseSpec, values: ParameterValues, rows: Rows) -> None:
    """Check that terms and inference support rows that are read in blocks.

    Args:
        spec: The specification.
        values: The hyperparameters.
        rows: The rows.

    Raises:
        InvalidArgumentError: If a term or inference needs all rows in memory. The message names it and a remedy.
    """
    if not is_read_in_blocks(rows):
        return
    prior, remedy = spec.prior(values), "or pass the rows as a dataframe or arrays."
    for name in prior.names:
        if not prior.of([name]).has_weights_only:
            raise InvalidArgumentError(
                f"The approximation of the term {name!r} needs all rows in memory, but they are read in blocks. Use "
                f"rfgp.RandomFeatures() or rfgp.InducingPoints(), for groups and linear terms rfgp.Exact(), {remedy}"
            )
    if inference_of(spec, rows) == "variational":
        raise InvalidArgumentError(
            f"Variational inference needs all rows in memory, but they are read in blocks. Use inference='laplace' if "
            f"the likelihood has it, {remedy}"
        )


def likelihood_quantities(spec: BaseSpec, summary: DataSummary) -> dict[str, Hyperparameter]:
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
        of_noise = dict(noise_spec.inputs.quantities())
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


def latent_mean_and_likelihood(state: StateLike) -> tuple[Tensor, Likelihood, dict[str, Tensor]]:
    """Return the latent mean (1,), the likelihood and its 0-d learned parameters.

    They have gradients if the hyperparameters do.

    Args:
        state: The state of the model.
    """
    values, likelihood = state.hyperparameters, state.spec.options.likelihood
    learned = {p.name: values.standardized(p.name).double() for p in learned_parameters(likelihood)}
    unit = float(state.scaling.targets.scale.reshape(-1)[0])
    return values.standardized("mean").reshape(-1).double(), standardized(likelihood, unit), learned


def priors_of(spec: BaseSpec, values: ParameterValues) -> list[Prior]:
    """Return the prior of the latent function, and that of the log noise if it varies.

    Args:
        spec: The specification.
        values: The hyperparameters.
    """
    if not spec.options.likelihood.has_noise_process:
        return [spec.prior(values)]
    if spec.noise_process is not None:
        return [spec.prior(values), spec.noise_process.prior(values)]
    of_noise = {name: values.raw.get(f"{spec.noise_prefix}{name}", raw) for name, raw in values.raw.items()}
    return [spec.prior(values), spec.prior(ParameterValues(values.space, of_noise))]


def inference_of(spec: BaseSpec, rows: Rows) -> str | None:
    """Return the approximation of the posterior given rows, or None if it is exact.

    The default is that of the likelihood. For classes it is variational up to 4,000 rows in memory, or 500 rows of
    several classes without features.

    Args:
        spec: The specification.
        rows: The rows.

    Returns:
        "laplace", "variational", or None if the posterior is exact.
    """
    likelihood, chosen = spec.options.likelihood, spec.options.inference
    most = limits().max_dense if likelihood.num_latents == 1 or not spec.options.has_matrices else MAX_OF_CLASSES
    if chosen is not None or not likelihood.approximations:
        return chosen
    is_kept = all(isinstance(part, Block) for part in parts_of(rows))
    is_variational = likelihood.is_far_from_normal and is_kept and len(rows) <= most
    return "variational" if is_variational else likelihood.approximations[0]


def observed_inference(state: StateLike, rows: Rows, warm_start: WarmStart = ()) -> Inference:
    """Return the approximate inference from rows, with gradients if required.

    Args:
        state: The state of the model.
        rows: The standardized rows.
        warm_start: The start of the search for the posterior, from `Inference.warm_start`.
    """
    spec = state.spec
    inference = inference_of(spec, rows)
    assert inference is not None
    priors = priors_of(spec, state.hyperparameters)
    return sites.infer(priors, rows, *latent_mean_and_likelihood(state), inference, warm_start)


def mixture_members(spec: BaseSpec, values: ParameterValues) -> list[MixtureMember]:
    """Return the processes whose posteriors are averaged, under a Gaussian likelihood.

    Args:
        spec: The specification.
        values: The hyperparameters.
    """
    return [MixtureMember(m.weight, m.prior, *mean_and_noise(m.values)) for m in spec.members(values)]


def restored(spec: BaseSpec, values: ParameterValues, tensors: Mapping[str, Tensor]) -> Posterior:
    """Return the posterior with saved tensors.

    Args:
        spec: The specification.
        values: The hyperparameters.
        tensors: The tensors (...) of the posterior by name.
    """
    with torch.no_grad():
        if not spec.is_gaussian:
            return sites.restore(priors_of(spec, values), tensors, spec.options.likelihood.num_latents)
        members, parts = mixture_members(spec, values), tensors_by_prefix(tensors)
        if len(members) == 1:
            return solvers.restore(members[0].prior, tensors)
        posteriors = [solvers.restore(member.prior, parts[str(i)]) for i, member in enumerate(members)]
        return MixturePosterior.from_members(members, posteriors)


def bound_likelihood(state: StateLike) -> Likelihood:
    """Return the likelihood of standardized observations, with all its parameters.

    Args:
        state: The state of the model.
    """
    with torch.no_grad():
        _, likelihood, learned = latent_mean_and_likelihood(state)
        return likelihood.at(learned)


def left_out_observations(state: StateLike, rows: Rows, inference: Inference | None = None) -> LeaveOneOut:
    """Return leave-one-out distributions of observations, in user units. They are approximate unless Gaussian.

    Args:
        state: The state of the model.
        rows: The data.
        inference: The inference from these rows under a likelihood that is not Gaussian. If None, it is computed.
    """
    with torch.no_grad():
        observed, y = left_out_prediction(state, rows, inference)
        # an average of models has the density of the normal distribution with its moments
        is_normal = state.spec.is_gaussian and observed.scales is None
        log_prob = Prediction.log_prob(observed, y) if is_normal else observed.log_prob(y)
        return LeaveOneOut(observed.mean, observed.variance, log_prob)


def left_out_prediction(
    state: StateLike, rows: Rows, inference: Inference | None = None
) -> tuple[Prediction, Tensor]:  # y (n,) or (n, k)
    """Return the prediction of each observation given all other rows, and the observations in user units.

    Args:
        state: The state of the model.
        rows: The data.
        inference: The inference from these rows under a likelihood that is not Gaussian. If None, it is computed.
    """
    units = state.scaling.targets
    location, scale, zero = (
        units.location.double(),
        units.scale.double(),
        units.scale.new_zeros((), dtype=torch.float64),
    )
    columns = [(block.targets, block.log_exposure()) for block in rows.blocks(2**16)]
    targets, offset = (torch.cat(column) for column in zip(*columns, strict=True))
    y = units.inverse(targets if scale.ndim else targets[:, 0])
    last = zero, units.scale.new_empty(0), is_numpy_input(rows)
    if not state.spec.is_gaussian:
        latent = _marginals(*(inference or state.infer(rows)).leave_one_out())
        prediction = Prediction(latent, location.reshape(-1)[0], scale.reshape(-1)[0], *last)
        return observations(prediction, bound_likelihood(state), offset if rows.has_fixed_noise else None), y
    members, latents, rows = mixture_members(state.spec, state.hyperparameters), [], state.weighted(rows)
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
