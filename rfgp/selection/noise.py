"""The choice of the noise after a fit: one variance, or scales of residuals that depend on the inputs.

1. Take the predictive moments of rows that were left out, as the selection scored them.
2. Fit a `ScaleModel` to their residuals, for normal and Student-t tails: damped Fisher scoring of the weights, with
   prior variances of blocks of features by updates of the evidence.
3. Score each in five folds of these rows. Take the best if it gains more than its standard error over one variance.
4. With leave-one-out, condition once on rows whose noise is scaled. Outliers then have little weight (the E step of
   Student's t). Keep it if the score gains and the errors do not grow.

The updates are EM steps for the evidence, with the fixed points of MacKay (1992), "Bayesian interpolation", Neural
Computation 4(3), Section 3.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import iqr
from torch import Tensor

from rfgp import random
from rfgp.errors import RfgpError
from rfgp.fitting import Plan, fit_terms
from rfgp.inference.distributions import MarginalMixture
from rfgp.inference.scales import MAX_LOG_SCALE, NODES, Members, ScaleBasis, ScaleModel, members_of, scaled_mixture
from rfgp.limits import limits
from rfgp.models import FitReport, GPState, Score, SelectionReport, Trial
from rfgp.models.spec import ModelSpec
from rfgp.models.state import at_starting_values, largest, left_out_prediction, parts_of_average
from rfgp.rows import ArrayRows, Block, gathered, is_read_in_blocks
from rfgp.selection.groups import NUM_FOLDS
from rfgp.selection.successive_halving import CandidateState
from rfgp.selection.validation import (
    HELD_OUT_FRACTION,
    LEAVE_ONE_OUT,
    Validation,
    conditioned,
    optimism_of,
    score_of,
    take_rows,
)
from rfgp.solvers.onepass import SeriesPosterior

GAUSSIAN = "Gaussian noise of one variance"
"""The name of the noise without scales."""
DEGREES_OF_FREEDOM = (math.inf, 8.0, 4.0, 2.5)
"""The degrees of freedom that are compared."""
MIN_ROWS = 20
"""The minimum number of left-out rows from which scales are learned."""
NUM_RANDOM = {True: 32, False: 48}
"""The number of random features of all columns, by whether there are fewer than 400 rows."""
MAX_FLOOR = 0.01
"""The maximum floor of squared scales, in predictive variances. The floor is the variance of rounding to the grid of
the targets, which keeps densities at atoms bounded. It must not widen fits that are more precise than the grid."""
MIN_GAIN = 0.01
"""The gain in nats a row that scales need, plus four parameters: 4 / n. Conditioning with scales needs half of it."""
SECONDS = (1.0, 1e-3)
"""The seconds that a choice takes at most, and those for each of at most 4,000 left-out rows."""
MAX_PROPOSAL_ROWS = 300
"""The maximum number of rows that other likelihoods are fitted to."""
PROPOSAL_ITERATIONS = 8
"""The maximum number of iterations of these fits."""
MIN_CORRELATION = -0.2
"""The smallest correlation of left-out means with their residuals with which scales depend on the mean. The mean of all
other rows would reveal the residual of the row."""
_START_VARIANCE, _VARIANCE_BOUNDS = 0.1, (1e-4, 4.0)
"""The start and bounds of the prior variances of blocks. That of the constant is the upper bound."""
_ROUNDS, _FOLD_ROUNDS, _FEW = 30, 5, 400
"""The maximum numbers of rounds of a fit, and without a fold from the start of all rows. The folds of fewer rows start
anew, because the start would reveal the fold."""
_ATOMS = 0.01
"""The fraction of equal targets from which they count as atoms, and their resolution in robust scales."""


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Rows that were left out, and their predictive moments by each member of an average.

    Attributes:
        inputs: The standardized inputs, (n, D).
        observed: The standardized targets, (n,).
        counts: The number of observations of each row, (n,).
        members: Their weights (c,), predicted means (c, n) and predictive variances of an observation (c, n).
        inflation: The factor of residuals, which are too small if hyperparameters were fitted to these rows.
    """

    inputs: Tensor
    observed: Tensor
    counts: Tensor
    members: Members
    inflation: float = 1.0

    @classmethod
    def of(cls, rows: Block, members: Members) -> "LeftOut":
        """Return rows with their moments.

        Args:
            rows: The rows.
            members: Weights (c,), means (c, n) and variances (c, n) of the members.
        """
        return cls(rows.inputs.detach().double().cpu(), rows.targets[:, 0].double().cpu(), rows.counts().cpu(), members)

    def take(self, indices: Tensor) -> "LeftOut":
        """Return some of the rows."""
        weights, means, variances = self.members
        members = weights, means[:, indices], variances[:, indices]
        return LeftOut(self.inputs[indices], self.observed[indices], self.counts[indices], members, self.inflation)

    @property
    def targets(self) -> Tensor:
        """The targets whose residuals are those of new rows, (n,)."""
        return self.mean + self.inflation * (self.observed - self.mean)

    @property
    def mean(self) -> Tensor:
        """The predicted means of the average, (n,)."""
        return self.members[0] @ self.members[1]

    @property
    def variance(self) -> Tensor:
        """The mean predictive variances T of the members, (n,)."""
        return self.members[0] @ self.members[2]

    @property
    def between(self) -> Tensor:
        """The variances B of the members' means, (n,)."""
        return self.members[0] @ (self.members[1] - self.mean).square()

    def log_prob(self, nodes: Tensor, df: float, floor: float, resolution: float) -> Tensor:
        """Return log densities (n,) of the rows.

        Args:
            nodes: The nodes of the log scales, (q, n).
            df: The degrees of freedom.
            floor: The smallest squared scale.
            resolution: The resolution of the targets. If 0, densities, otherwise probabilities of intervals.
        """
        return _score(scaled_mixture(self.members, nodes, df, floor), self.targets, resolution)


class ScaleFit(NamedTuple):
    """Weights of features, their covariance, and the prior variances of blocks."""

    weights: Tensor  # (F,)
    covariance: Tensor  # (F, F)
    prior: Tensor  # (B,)


def fit_scales(
    features: Tensor,  # (n, F)
    blocks: Tensor,  # (F,)
    rows: LeftOut,
    df: float,
    floor: float,
    start: ScaleFit | None = None,
    rounds: int = _ROUNDS,
) -> ScaleFit:
    """Return the posterior mode of the weights of log scales, by Fisher scoring and evidence updates.

    Residuals have squared scales tau = B + floor + T e^g. With kappa = T e^g / tau and q = r^2 / tau, the slope of a
    row's log density in g is kappa / 2 ((df + 1) q / (df + q) - 1), and its Fisher information
    kappa^2 df / (2 (df + 3)).

    Args:
        features: The features at the rows.
        blocks: The block of each feature. The first is the constant.
        rows: The left-out rows.
        df: The degrees of freedom, or inf.
        floor: The smallest squared scale.
        start: The fit at which to start. If None, a constant.
        rounds: The maximum number of rounds.
    """
    x, block, counts = features.numpy(), blocks.numpy(), rows.counts.numpy()
    square, total = (rows.targets - rows.mean).square().numpy(), rows.variance.numpy()
    base, is_normal = rows.between.numpy() + floor, math.isinf(df)
    share = 0.5 if is_normal else 0.5 * df / (df + 3)
    sizes = np.maximum(np.bincount(block), 1)  # a block may be empty
    prior = np.full(len(sizes), _START_VARIANCE)
    prior[0], w = _VARIANCE_BOUNDS[1], np.zeros(len(block))
    w[0] = np.log(max(np.mean(np.minimum(square, 9 * square.mean()) - base) / total.mean(), 0.05))
    if start is not None:
        w, prior = start.weights.numpy().copy(), start.prior.numpy().copy()

    def at(w: NDArray[np.float64]) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        """Return the objective up to a constant, and kappa and q (n,)."""
        e = total * np.exp(np.clip(x @ w, -MAX_LOG_SCALE, MAX_LOG_SCALE))
        tau = base + e
        q = square / tau
        tails = q if is_normal else (df + 1) * np.log1p(q / df)
        return -0.5 * float(counts @ (np.log(tau) + tails) + (w**2 / prior[block]).sum()), e / tau, q

    covariance = np.empty((0, 0))
    for number in range(rounds):
        old, kappa, q = at(w)
        surplus = q - 1 if is_normal else (df + 1) * q / (df + q) - 1
        slope = counts * kappa / 2 * surplus
        precision = x.T @ (x * (counts * share * kappa**2)[:, None])
        precision[np.diag_indices_from(precision)] += 1 / prior[block]
        covariance = cho_solve(cho_factor(precision, check_finite=False), np.eye(len(w)), check_finite=False)
        step, length = covariance @ (x.T @ slope - w / prior[block]), 1.0
        while length > 1e-3 and at(w + length * step)[0] < old:
            length /= 2
        w = w + length * step
        if number > 2:
            expected = w**2 + np.diagonal(covariance)
            new = np.clip(np.bincount(block, expected) / sizes, *_VARIANCE_BOUNDS)
            new[0] = prior[0]
            has_converged = np.abs(np.log(new / prior)).max() < 0.02
            if has_converged and np.abs(length * step).max() < 0.01:
                break
            prior = new
    return ScaleFit(*map(torch.from_numpy, (w, covariance, prior)))


def _depends_on_mean(rows: LeftOut) -> bool:
    """Return whether scales may depend on the left-out mean, which must not reveal the residual of its row.

    Args:
        rows: The left-out rows.
    """
    mean, residual = rows.mean, rows.targets - rows.mean
    covariance = ((mean - mean.mean()) * (residual - residual.mean())).mean()
    return bool(covariance > MIN_CORRELATION * mean.std() * residual.std())


@dataclass(frozen=True, eq=False)
class NoiseChoice:
    """Scale models that were fitted to left-out rows, and their scores in folds of these.

    Attributes:
        rows: The rows.
        resolution: The resolution of the targets, standardized. If 0, densities are compared.
        models: The model for each number of degrees of freedom, with the nodes of g at the rows without their fold.
        log_probs: The log densities of the rows by one variance, and by each model in folds, (n,) each.
    """

    rows: LeftOut
    resolution: float
    models: tuple[ScaleModel, ...]
    log_probs: tuple[Tensor, ...]

    @classmethod
    def of(cls, rows: LeftOut, spec: ModelSpec) -> "NoiseChoice":
        """Fit and score scale models.

        Args:
            rows: The left-out rows.
            spec: The specification, with the columns of numbers and the seed of random features and folds.
        """
        n, mean, variance, resolution = len(rows.observed), rows.mean, rows.variance, resolution_of(rows.observed)
        floor, has_few = min(resolution**2 / 12, MAX_FLOOR * float(variance.median())), n < _FEW
        seed = random.child_seed(spec.options.seed, random.Role.CHOICE, 1)
        columns, of_mean = list(spec.numeric_columns), _depends_on_mean(rows)
        basis = ScaleBasis.of(rows.inputs, columns, mean, variance, NUM_RANDOM[has_few], seed, of_mean)
        features, blocks = basis(rows.inputs, mean, variance), basis.blocks
        folds = torch.from_numpy(np.random.default_rng(seed).permutation(n) % NUM_FOLDS)
        models, fit, without = list[ScaleModel](), None, dict[int, ScaleFit]()
        log_probs = [rows.log_prob(torch.zeros(1, n).double(), math.inf, 0.0, resolution)]
        for df in DEGREES_OF_FREEDOM:
            fit = fit_scales(features, blocks, rows, df, floor, fit)
            nodes = rows.observed.new_empty(len(NODES), n)
            for fold in range(NUM_FOLDS):
                is_out = folds == fold
                start, rounds = (without.get(fold), _ROUNDS) if has_few else (fit, _FOLD_ROUNDS)
                kept = rows.take(~is_out)
                own = without[fold] = fit_scales(features[~is_out], blocks, kept, df, floor, start, rounds)
                nodes[:, is_out] = ScaleModel(basis, *own[:2], df, floor).nodes_of(features[is_out])
            models.append(ScaleModel(basis, *fit[:2], df, floor, row_nodes=nodes))
            log_probs.append(rows.log_prob(nodes, df, floor, resolution))
        return cls(rows, resolution, tuple(models), tuple(log_probs))

    @property
    def best(self) -> int:
        """The number of the best score of a model in `log_probs`, from 1 on."""
        return max(range(1, len(self.log_probs)), key=lambda number: float(self.rows.counts @ self.log_probs[number]))

    @property
    def model(self) -> ScaleModel:
        """The model with the best score."""
        return self.models[self.best - 1]

    @property
    def score(self) -> Score:
        """The score of the best model, with the difference of one variance from it."""
        return score_of(len(self.rows.observed), self.log_probs[self.best], self.log_probs[0], self.rows.counts)

    @property
    def least_gain(self) -> float:
        """The log density, nats a row, that the best model must gain to replace one variance."""
        return max(MIN_GAIN + 4 / float(self.rows.counts.sum()), self.score.difference_error)

    @property
    def is_accepted(self) -> bool:
        """Whether the best model replaces one variance."""
        return -self.score.difference > self.least_gain

    def report(
        self, validation: str, jacobian: float, optimism: float, accepted: str, proposals: Sequence[Trial]
    ) -> SelectionReport:
        """Return the trials.

        Args:
            validation: The name of the validation method.
            jacobian: The log Jacobian of the standardization of a target.
            optimism: The nats a row by which residuals are too small.
            accepted: A sentence on conditioning with scales, or an empty text.
            proposals: The trials of other likelihoods.
        """
        names, number = [GAUSSIAN, *map(_name, DEGREES_OF_FREEDOM)], self.best if self.is_accepted else 0
        n, counts, best = len(self.rows.observed), self.rows.counts, self.log_probs[number] + jacobian
        scores = [score_of(n, log_prob + jacobian, best, counts, optimism) for log_prob in self.log_probs]
        trials = [Trial(name, {}, 0.0, 0.0, (score,)) for name, score in zip(names, scores, strict=True)]
        text = _difference(self.score)
        reason = f"Noise: {names[number]}: {text} {GAUSSIAN}.{accepted}"
        if not number:
            reason = f"Noise: {GAUSSIAN}. The best alternative, {names[self.best]}, has a {text} this."
            reason += f" It would have to gain {self.least_gain:.2g}."
        for trial in proposals:
            reason += f" {trial.name} has a {_difference(trial.scores[-1])} this."
        return SelectionReport(number, (*trials, *proposals), reason, num_validation=n, validation=validation)


def _difference(score: Score) -> str:
    """Return words for the difference of a score from another one."""
    size, error = f"{abs(score.difference):.3f}", f"{score.difference_error:.2g}"
    return f"log density {size} (standard error {error}) {'above' if score.difference <= 0 else 'below'}"


def _name(df: float) -> str:
    """Return the name of noise with scales."""
    return f"scales with {'normal tails' if math.isinf(df) else f'Student-t tails ({df:g} degrees of freedom)'}"


def _score(mixture: MarginalMixture, targets: Tensor, resolution: float) -> Tensor:
    """Return log densities, or log probabilities of intervals over their width, (n,)."""
    return mixture.interval_log_prob(targets, resolution) if resolution else mixture.log_prob(targets)


def resolution_of(
    targets: Tensor,  # (n,)
) -> float:
    """Return the resolution of targets: the step of an even grid, with atoms at least 1 % of the robust scale, or 0.

    Scores are then probabilities of intervals, because a density at values that repeat has no bound.

    Args:
        targets: The targets, in any unit.

    Examples:
        >>> (
        ...     resolution_of(torch.tensor([0.0, 0.5, 1.5, 4.0, 4.5])),
        ...     resolution_of(torch.linspace(0, 2, 50).double().exp()),
        ... )
        (0.5, 0.0)
    """
    y = targets.numpy()
    values, counts = np.unique(y, return_counts=True)
    rounding = 2 * float(np.finfo(np.float32).eps * np.abs(values).max())  # targets may be in single precision
    steps, step, least = np.diff(values), math.inf, 100 * rounding
    while len(steps) and step > least:  # Euclid's algorithm
        step = float(steps.min())
        rest = np.abs(steps - step * np.round(steps / step))
        steps = rest[rest > rounding]
    grid = step if least < step < math.inf else 0.0
    if counts.max() <= max(1, _ATOMS * len(y)):
        return grid
    return max(grid, _ATOMS * float(iqr(y, scale="normal") or np.std(y)))


def selects_noise(state: GPState, plan: Plan) -> bool:
    """Return whether the noise is chosen after the fit, if the time limit leaves enough for it.

    Args:
        state: The model before the fit.
        plan: The options of the fit.
    """
    needed = SECONDS[0] + SECONDS[1] * min(state.num_observations, limits().max_held_out)
    return state.spec.options.selects_noise and state.spec.areas is None and plan.deadline.seconds_left > needed


def with_noise(
    state: GPState,
    report: FitReport,
    plan: Plan,
    chosen: Sequence[CandidateState] = (),
    validation: Validation | None = None,
) -> tuple[GPState, FitReport]:
    """Return a fitted model with scales of residuals if they gain, and the report of the choice.

    Args:
        state: The fitted model.
        report: The report of the fit.
        plan: The options of the fit.
        chosen: The candidates of the model, in the order of its members. Empty if the kernel was given.
        validation: The rows on which they were scored. If None, rows are left out, beyond 2,000 held out.
    """
    rows, spec = state.require_rows(purpose="a choice of the noise"), state.spec
    if rows.has_fixed_noise or state.scaling.targets.scale.ndim:
        return state, report
    start_time, scored = time.monotonic(), _scored_rows(state, chosen, validation)
    if scored is None or len(scored[0].observed) < MIN_ROWS:
        if report.selection is not None:
            why = "no single rows were left out" if scored is None else f"fewer than {MIN_ROWS} rows were left out"
            reason = f"{report.selection.reason} Noise: {GAUSSIAN}, because {why}."
            report = replace(report, selection=replace(report.selection, reason=reason))
        return state, report
    left_out, name = scored
    is_left_out = name == LEAVE_ONE_OUT
    members = parts_of_average(state) if is_left_out else ()
    optimism = sum(weight * optimism_of(member, plan.fixed, rows.count) for weight, member in members)
    left_out = replace(left_out, inflation=math.sqrt(1 + 2 * optimism))  # normal squares larger by 2 e cost e nats
    choice, sentence = NoiseChoice.of(left_out, spec), ""
    if choice.is_accepted:
        model = choice.model if is_left_out else replace(choice.model, row_nodes=None)
        state = state.replace(scale_model=model, given=state.present_posterior)
        again = _reconditioned(state, choice) if is_left_out else None
        if again is not None:
            state, choice, sentence = *again, " Rows are weighted by their scales."
    jacobian = state.scaling.targets.log_jacobian(1)
    proposals = list(_proposals(state, plan, choice.resolution, jacobian))
    noise = choice.report(name, jacobian, optimism, sentence, proposals)
    noise = replace(noise, seconds=time.monotonic() - start_time)
    selection = report.selection
    if selection is None:
        kernel = repr(spec.options.kernel)
        trial = Trial(kernel, {}, 0.0, 0.0)
        selection = SelectionReport(0, (trial,), f"{kernel} was given, so no kernels were compared.")
    selection = replace(selection, reason=f"{selection.reason} {noise.reason}", noise=noise)
    return state, replace(report, selection=selection)


def _scored_rows(
    state: GPState, chosen: Sequence[CandidateState], validation: Validation | None
) -> tuple[LeftOut, str] | None:
    """Return the left-out rows and the name of the validation, or None if there are none in memory."""
    rows = state.require_rows(purpose="a fit")
    if validation is not None and validation.name != LEAVE_ONE_OUT:
        moments = [one.fitted.moments for one in chosen if one.fitted is not None and one.fitted.moments is not None]
        is_merged = validation.rows.replicate_sum_of_squares is not None and validation.held_out is None
        if len(moments) == len(chosen) and not is_merged:
            means, variances = (torch.stack(part).double().cpu() for part in zip(*moments, strict=True))
            weights = torch.tensor([one.weight for one in chosen], dtype=torch.float64)
            return LeftOut.of(validation.validation_rows, (weights, means, variances)), validation.name
        if validation.groups is not None:
            return None
    if is_read_in_blocks(rows):
        return None
    block = gathered(rows)
    if len(block) <= limits().few_rows:
        return LeftOut.of(block, _left_out_members(state)), LEAVE_ONE_OUT
    generator = random.generator(state.spec.options.seed, random.Role.CHOICE)
    order = torch.randperm(len(block), generator=generator)
    num = min(math.ceil(HELD_OUT_FRACTION * len(block)), limits().max_held_out)
    held_out, others = take_rows(block, order[:num]), take_rows(block, order[num:])
    without = conditioned(state, others)
    with torch.no_grad():
        latent = without.latent(held_out.inputs)
        center = state.hyperparameters.standardized("mean").reshape(-1)[0].double()
        noise = state.hyperparameters.standardized("noise").double()
        return LeftOut.of(held_out, members_of(latent, center, noise)), "held out"


def _left_out_members(state: GPState) -> Members:
    """Return weights (c,), and means and variances (c, n) of each observation given all others, by each member."""
    with torch.no_grad():
        prediction, _ = left_out_prediction(state, state.require_rows(purpose="a choice of the noise"))
        latent = prediction.latent if prediction.scales is None else prediction.scales.latent
        return members_of(latent, prediction.noise, prediction.noise)


def _reconditioned(state: GPState, choice: NoiseChoice) -> tuple[GPState, NoiseChoice] | None:
    """Return the model conditioned on rows with scaled noise, and its choice, or None if it does not gain."""
    rows, model = choice.rows, choice.model
    is_weighted = gathered(state.require_rows(purpose="a fit")).weight is not None
    if is_weighted or isinstance(state.posterior, SeriesPosterior):  # could not forget rows
        return None
    row_weights = model.weights_of(rows.targets, rows.inputs, rows.mean, rows.variance)
    weighted = state.replace(scale_model=replace(model, row_weights=row_weights))
    left_out = replace(rows, members=_left_out_members(weighted))
    new = NoiseChoice.of(left_out, state.spec)
    errors = [float((one.targets - one.mean).square().mean()) for one in (rows, left_out)]
    if new.score.value < choice.score.value + MIN_GAIN / 2 or errors[1] > errors[0]:  # outliers could move the mean
        return None
    return state.replace(scale_model=replace(new.model, row_weights=row_weights)), new


def _proposals(state: GPState, plan: Plan, resolution: float, jacobian: float) -> Iterator[Trial]:
    """Yield the scores of likelihoods of counts or two classes, which are proposed and never chosen.

    They have the kernel of the model, and are fitted to at most `MAX_PROPOSAL_ROWS` rows. Each of these is left out, as
    by the model with its hyperparameters given the same rows.
    """
    rows, spec = state.require_rows(purpose="a fit"), largest(state).spec
    if not isinstance(rows, ArrayRows) or plan.is_over():
        return
    generator = random.generator(spec.options.seed, random.Role.CHOICE)
    some = torch.randperm(len(rows), generator=generator)[:MAX_PROPOSAL_ROWS]
    rows = take_rows(rows, some)
    names = likelihoods_for(state, rows)
    if not names:
        return
    model = state.scale_model
    if model is not None:
        row_weights = None if model.row_weights is None else model.row_weights[some]
        model = replace(model, row_weights=row_weights, row_nodes=None)
    alone = state.replace(rows=rows, scale_model=model)
    block, left_out = gathered(rows), LeftOut.of(gathered(rows), _left_out_members(alone))
    mixture = MarginalMixture(*left_out.members, math.inf)
    if model is not None:
        mixture = model.mixture(left_out.members, model.nodes(left_out.inputs, left_out.mean, left_out.variance))
    ours = _score(mixture, left_out.targets, resolution) + jacobian
    kernel = spec.fitted_kernel(largest(state).hyperparameters)
    options = spec.options.changed(kernel=kernel, approximations="auto", start={}, priors={}, selects_noise=False)
    for name in names:
        try:
            initial = at_starting_values(alone, spec.with_options(options.changed(likelihood=name)))
            fitted, _ = fit_terms(initial, replace(plan, fixed=(), iteration_limit=PROPOSAL_ITERATIONS))
            log_prob = torch.as_tensor(fitted.leave_one_out().log_prob).double().cpu().reshape(-1)
        except RfgpError:
            continue
        if bool(torch.isfinite(log_prob).all()):
            score = score_of(len(block), log_prob, ours, block.counts())
            yield Trial(f"likelihood={name!r}", {"likelihood": name}, 0.0, 0.0, (score,), "proposed, never chosen")


def likelihoods_for(state: GPState, rows: Block) -> tuple[str, ...]:
    """Return the names of likelihoods of counts or two classes that the targets suit.

    Args:
        state: The model.
        rows: Its rows, or some of them.
    """
    values = np.unique(state.scaling.targets.inverse(rows.targets).double().cpu().numpy())
    if len(values) == 2:
        return ("bernoulli",)
    are_integers = bool(np.all(np.abs(values - values.round()) <= 1e-6 * np.abs(values).max()))
    are_counts = are_integers and len(values) > 2 and values[0].round() == 0
    return ("poisson", "negative-binomial") if are_counts else ()
