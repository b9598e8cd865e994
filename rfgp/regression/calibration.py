"""Calibrated intervals of observations from left-out rows, and integrals over boxes.

Let mu_-i and v_-i be the mean and the variance given all rows but i, at the hyperparameters of the model. The posterior
mean is linear in the targets, mu(x) = m + a(x)^T (y - m). With the residual r_i = y_i - mu_-i(x_i) and the left-out
variance t_i of y_i, removing row i changes predictions by

    mu_-i(x) = mu(x) - a_i(x) r_i,    v_-i(x) = v(x) + a_i(x)^2 t_i.

The jackknife+ interval lies between order statistics of mu_-i(x) -+ R_i s_-i(x), with scores R_i = |r_i| / s_i and
predictive deviations s. Source: Jaber et al. (2024), Conformal approach to Gaussian process surrogate evaluation with
coverage guarantees (J+GP), after Barber et al. (2021), Predictive inference with the jackknife+.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rfgp import metrics, random
from rfgp.columns import ColumnKind
from rfgp.counts import counted
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.inference.distributions import ENTRIES, check_level, factors, in_memory
from rfgp.inference.mixture import ConditionedGP, IntegratedGP, Member, MixtureDistribution, rule_for
from rfgp.inference.prediction import NO_OBSERVED_INTEGRAL, Prediction
from rfgp.regression.report import FitReport
from rfgp.regression.spec import ModelSpec
from rfgp.regression.state import GPState, left_out_prediction, predicted
from rfgp.rows import Block, Rows, gathered, is_read_in_blocks
from rfgp.rows.arrays import OutputFormat
from rfgp.solvers import solver_for, uses_cg

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
    corners = torch.stack([first, last], dim=1)
    priors = [member.prior for member in state.spec.members(state.hyperparameters)]
    rule = rule_for(priors, corners, indices, float(maps.scale.double()[list(indices)].prod()))
    prediction = predicted(state, first, output_format)
    shift = (prediction.location / prediction.scale).reshape(-1)
    process = IntegratedGP(state.posterior, memory=state.process.memory, rule=rule, shift=shift)
    prediction = replace(
        prediction,
        latent=process.at(corners),
        location=0 * prediction.location,
        of_observations=NO_OBSERVED_INTEGRAL,
    )
    return prediction if prediction.process is None else replace(prediction, process=process, inputs=corners)


def _places(spec: ModelSpec, low: Tensor, high: Tensor, columns: Any) -> tuple[int, ...]:
    """Return the indices of the columns over which boxes with corners (m, D) extend.

    Raises:
        DataError: If corners differ in another column, or a lower corner is above the upper one.
        InvalidArgumentError: If there is no such column of numbers.
    """
    numbers, differ = spec.numeric_columns, (low != high).any(0).nonzero()[:, 0].tolist()
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


# --- Calibrated intervals of observations from left-out rows, and the coverage of a model by level -------------------

Moments = tuple[Tensor, Tensor]
PointMoments = Callable[[Tensor], Moments]
Ends = Callable[[Tensor, float], Moments]
"""A function of standardized points and a level to the ends of intervals in the user's units, (m,) or (m, k) each."""

MAX_LEFT_OUT = 2000
"""The maximum number of rows that are left out one at a time. With more rows, some are held out."""
HELD_OUT_FRACTION, MAX_HELD_OUT = 0.2, 4000
"""The fraction of rows that are held out, and their maximum number."""
LEVELS = (*(round(0.1 * i, 1) for i in range(1, 10)), 0.95, 0.99)
"""The default levels of a calibration."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """The coverage of central intervals by level, on rows that were left out.

    Attributes:
        levels: The levels of the intervals, (L,).
        coverage: The fraction of observations inside their intervals, (L,).
        standard_error: The standard error of the fraction if the model is calibrated and rows are independent, (L,).
        num_rows: The number of rows.
        rows: "left out one at a time", or "held out" for random rows of a large table.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> X = np.linspace(0, 10, 60)[:, None]
        >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(60)
        >>> print(rfgp.GP(rfgp.kernels.RBF(), seed=0).fit(X, y).calibration([0.5, 0.95]))
        Coverage of central intervals for 60 rows, left out one at a time
        level  coverage  standard error
          0.5     0.483           0.065
         0.95     0.950           0.028
    """

    levels: NDArray[np.float64]
    coverage: NDArray[np.float64]
    standard_error: NDArray[np.float64]
    num_rows: int
    rows: str

    def __str__(self) -> str:
        lines = zip(self.levels, self.coverage, self.standard_error, strict=True)
        table = [f"{level:5.4g} {share:9.3f} {error:15.3f}" for level, share, error in lines]
        head = f"Coverage of central intervals for {counted(self.num_rows, 'row')}, {self.rows}"
        return "\n".join([head, "level  coverage  standard error", *table])


def calibration(state: GPState, levels: ArrayLike | None = None) -> Calibration:
    """Return the coverage of predictive intervals on left-out rows, at the hyperparameters of the state.

    Args:
        state: The state of the model.
        levels: The levels of the intervals, (L,). If None, 0.1, 0.2, ..., 0.9, 0.95 and 0.99.

    Raises:
        NotFittedError: If the rows are not known.
        InvalidArgumentError: If a level is not in (0, 1), or observations are labels without an order.
    """
    rows = state.require_rows(purpose="calibration")
    chosen = np.atleast_1d(np.asarray(LEVELS if levels is None else levels, dtype=np.float64))
    with torch.no_grad():
        if len(rows) <= MAX_LEFT_OUT or is_read_in_blocks(rows):
            kind, (prediction, y) = "left out one at a time", left_out_prediction(state, rows)
        else:
            held_out = state.results.get("held out", lambda: _held_out(state, rows))
            kind, (_, prediction, y) = "held out", held_out
        coverage = metrics.interval_coverage(y, prediction, chosen).cpu().numpy()
    return Calibration(chosen, coverage, np.sqrt(chosen * (1 - chosen) / len(y)), len(y), kind)


def calibrated_ends(state: GPState, report: FitReport | None, inputs: Any, level: float) -> Moments:
    """Return the ends, (n,) or (n, k) each, of calibrated intervals of observations in the user's units.

    Args:
        state: The state of the model.
        report: The report of the fit. If None, there was none.
        inputs: The standardized points, (n, d) or (n,).
        level: The level of the intervals.

    Raises:
        NotFittedError: If the rows are not known.
        DataError: If the rows are read in blocks.
        InvalidArgumentError: If rows are not exchangeable, or too few for the level.
    """
    level = check_level(level)
    selection = None if report is None else report.selection
    if selection is not None and not selection.has_random_validation:
        raise InvalidArgumentError(
            f"calibrated=True requires exchangeable rows, got a model that was selected by {selection.validation}. "
            "Use interval(level), or a model without validate=."
        )
    rows = state.require_rows(purpose="calibrated intervals")
    if not rows.is_homoscedastic:
        raise InvalidArgumentError(
            "calibrated=True requires exchangeable rows, got rows with known noise or weights. Use interval(level), or "
            "repeat rows instead of sample_weight=."
        )
    with torch.no_grad():
        ends = state.results.get("calibrated", lambda: conformal_intervals(state, rows))
        return ends(in_memory(inputs).detach(), level)


def conformal_intervals(state: GPState, rows: Rows) -> Ends:
    """Return jackknife+ intervals if left-out predictions have a closed form, and split conformal ones otherwise.

    Args:
        state: The state of the model, with a Gaussian likelihood.
        rows: Its rows, without weights or known noise.

    Raises:
        DataError: If the rows are read in blocks.
    """
    members = state.spec.members(state.hyperparameters)
    has_closed_form = all(member.prior.neighbors is None and not uses_cg(member.prior, rows) for member in members)
    if is_read_in_blocks(rows) or len(rows) > MAX_LEFT_OUT or not has_closed_form:
        return _split_conformal(state, rows)
    return _jackknife_plus(members, gathered(state.weighted(rows)), state)


def _without_each(member: Member, rows: Block, memory: float | None) -> tuple[Moments, PointMoments]:
    """Return means (n, k) and variances (n, 1) of the rows given all others, and a function to those at points."""
    units = replace(rows.standardized_block, targets=torch.eye(len(rows)).to(rows.targets))
    inference = solver_for(member.prior, units, member.mean.new_zeros(len(rows)), member.noise)
    process, centered = ConditionedGP(inference.posterior(), memory=memory), rows.targets - member.mean
    weights, variance = inference.leave_one_out()  # the means of n outputs with unit vectors as targets
    mean, variances = member.mean + weights @ centered, variance[:, None]
    more = rows.observation_noise(member.noise) - rows.noise_diag(member.noise)  # 0 without weights

    def moments(inputs: Tensor) -> Moments:
        latent = process.at(inputs)
        a = latent.mean()[..., None]
        means = (member.mean + a[..., 0] @ centered)[:, None] - a * (rows.targets - mean)
        return means, latent.variance()[:, None, None] + a.square() * variances + member.noise

    return (mean, variances + more.expand(len(rows))[:, None]), moments


def _jackknife_plus(members: Sequence[Member], rows: Block, state: GPState) -> Ends:
    """Return jackknife+ intervals with standardized scores. Scales of the rows come from models without their fold."""
    units, memory, model = state.scaling.targets, state.spec.options.memory, state.scale_model
    left_out, without_each = zip(*(_without_each(member, rows, memory) for member in members), strict=True)

    def combined(inputs: Tensor, moments: Sequence[Moments]) -> Moments:
        """Return the means (m, ..., k) and predictive deviations of the average of all members at m points."""
        pairs = [(member.weight, *each) for member, each in zip(members, moments, strict=True)]
        mean: Any = sum(weight * m for weight, m, _ in pairs)
        variance: Any = sum(weight * (v + (m - mean) ** 2) for weight, m, v in pairs)
        if model is None:
            return mean, variance.sqrt()
        each, flat = inputs.repeat_interleave(mean[:1].numel(), 0), variance.reshape(-1)
        nodes = model.row_nodes if moments is left_out else None
        nodes = model.nodes(each.double().cpu(), mean.reshape(-1), flat) if nodes is None else nodes
        square = flat + (factors(nodes) - 1) * flat.clamp_max(model.ceiling) + model.floor
        return mean, square.sqrt().reshape(mean.shape)

    mean, deviation = combined(rows.inputs, left_out)
    scores = (rows.targets - mean).abs() / deviation

    def ends(inputs: Tensor, level: float) -> Moments:
        rank, found = _rank(level, len(scores)), []
        for x in torch.split(inputs, max(1, ENTRIES // (scores.numel() * len(members)))):
            mean, deviation = combined(x, [moments(x) for moments in without_each])
            low = (mean - scores * deviation).kthvalue(len(scores) + 1 - rank, 1).values
            high = (mean + scores * deviation).kthvalue(rank, 1).values
            found.append(torch.stack([low, high]).sort(0).values)  # they may cross at small levels
        low, high = units.inverse(torch.cat(found, 1))
        return (low, high) if units.scale.ndim else (low[:, 0], high[:, 0])

    return ends


def _split_conformal(state: GPState, rows: Rows) -> Ends:
    """Return intervals whose half-widths are a quantile of the scores of held-out rows times the deviation."""
    rest, prediction, y = state.results.get("held out", lambda: _held_out(state, rows))
    scores = (y - prediction.mean_tensor()).abs() / prediction.variance_tensor().sqrt()

    def ends(inputs: Tensor, level: float) -> Moments:
        observed = predicted(rest, inputs, OutputFormat(False, scores)).observed()
        score = scores.kthvalue(_rank(level, len(scores)), 0).values
        mean, half = observed.mean_tensor(), score * observed.variance_tensor().sqrt()
        return mean - half, mean + half

    return ends


def _held_out(state: GPState, rows: Rows) -> tuple[GPState, Prediction, Tensor]:
    """Return the state without some random rows, its prediction of their observations, and these in user units."""
    if is_read_in_blocks(rows):
        raise DataError("Rows must be in memory to be held out, got rows that are read in blocks. Pass arrays.")
    order = torch.randperm(len(rows), generator=random.generator(state.spec.options.seed, random.Role.CALIBRATION))
    count = min(int(HELD_OUT_FRACTION * len(rows)), MAX_HELD_OUT)
    held_out, others = (gathered(rows).take(part) for part in order.tensor_split([count]))
    scales = state.scale_model
    if scales is not None and scales.row_weights is not None:
        scales = replace(scales, row_weights=scales.row_weights[order[count:]], row_nodes=None)
    rest, units = state.replace(rows=others, num_observations=len(others), scale_model=scales), state.scaling.targets
    prediction = predicted(rest, held_out.inputs, OutputFormat(False, held_out.targets))
    latent = prediction.latent
    if isinstance(latent, MixtureDistribution):
        latent = replace(latent, noises=[held_out.observation_noise(noise) for noise in latent.noises])
    if state.spec.is_gaussian:
        prediction = replace(prediction, latent=latent, noise=held_out.observation_noise(prediction.noise))
    y = units.inverse(held_out.targets if units.scale.ndim else held_out.targets[:, 0])
    return rest, prediction.observed(held_out.fixed_noise if state.has_exposures else None), y


def _rank(level: float, count: int) -> int:
    """Return the rank of the upper end among left-out rows, ceil(level (count + 1)).

    Raises:
        InvalidArgumentError: If there are too few left-out rows for the level.
    """
    rank = math.ceil(level * (count + 1) - 1e-9)
    if rank > count:
        needed = math.ceil(level / (1 - level) - 1e-9)
        raise InvalidArgumentError(
            f"calibrated=True at level {level:g} requires {needed:,} left-out rows, got {count:,}. Use a lower level, "
            "or interval(level)."
        )
    return rank
