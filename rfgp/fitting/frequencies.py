"""Learning of frequencies, with held-out rows against overfitting.

Frequencies start from the model's draw. Short runs from a few candidates select the starting hyperparameters. Adam
(Kingma and Ba 2015) maximizes the marginal likelihood of random batches of rows over frequencies and hyperparameters.
The frequencies have a Gaussian prior around their draw. A tenth of the rows is held out, at most 2,000. The score of a
held-out row is its leave-one-out log density, given the others and up to 6,000 training rows.

- The first half, the validation rows, selects the start, the step and the final noise.
- The second half, the test rows, decides whether learning paid. Fixed frequencies are kept unless learned ones gain
  more than a standard error. The test rows also give the reported calibration.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp import random
from rfgp.approximations import RandomFeatures
from rfgp.descent import adam
from rfgp.fitting.context import Split, TermFit, left_out_log_prob, solve_scales
from rfgp.fitting.progress import Checkpoint, Reporter
from rfgp.fitting.starts import has_prior
from rfgp.models import FitReport, Stage
from rfgp.models.report import TIME_OVER
from rfgp.models.state import block_scales, learnable_basis
from rfgp.parameters import ParameterValues
from rfgp.rows import Block, JoinedRows, gathered
from rfgp.solvers.lowrank import LowRankSolver, accumulate_gram, fourier_log_likelihood, has_fourier_features

Floats = NDArray[np.float64]

BATCH_ROWS = 6000
"""The maximum number of rows of a batch."""
RATE = 0.1
"""The highest learning rate of Adam."""
PRIOR_SCALE = 1.0
"""The prior standard deviation of a frequency coordinate around its draw, at unit lengthscale."""
MAX_SCALE = 4.0
"""The largest output scale during learning, in variances of the targets.

With a larger output scale, features cancel each other at the rows and oscillate between them. At the end it is solved
for on all rows."""
MIN_LEARNED = 200
"""The minimum number of rows to learn from. A tenth of fewer rows could not decide whether learning paid."""
_MAX_ROUNDING = 3.0
"""The `LinearModel.max_float32_error` of a step. It may be large because the gradient is noisy."""
TRIAL_ROWS, TRIAL_STEPS = 2000, 20
"""The rows and steps of a run that scores a start."""
_SEGMENT, _MIN_SEGMENTS = 10, 4
"""The number of steps between two scores of the held-out rows, and the fewest scores of a learning curve."""
MARGIN = 0.005
"""The nats a row by which the extrapolated learning curve must exceed the needed score."""
SETTLED = 0.01
"""The largest gain of the last tenth of the steps, in nats a row, at which learning has converged."""
TRACE_DIVISOR = 8
"""The ratio of the rows of a batch to those that estimate the derivative of the log determinant in a step."""
NO_SEARCH = FitReport(True, 0, 0, math.nan, "")
"""The report of a fit in which only frequencies are learned."""


class Outcome(NamedTuple):
    """The outcome of learning frequencies."""

    frequencies: dict[str, Tensor] | None  # by dotted name; None if fixed frequencies are as good
    values: ParameterValues  # the other hyperparameters of the selected step
    report: FitReport  # of the steps
    initial_report: FitReport  # of the search for hyperparameters before learning
    split: Split


def mean_and_standard_error(values: Tensor, weight: Tensor | None = None) -> tuple[float, float]:
    """Return the weighted mean of independent values (n,) and its standard error.

    Args:
        values: The values, (n,). For one value the error is infinite.
        weight: The weights, (n,), which need not sum to 1. If None, they are equal.
    """
    weight = torch.ones_like(values) if weight is None else weight
    weight, count = weight / weight.sum(), len(values)
    mean = float((weight * values).sum())
    error = math.sqrt(float((weight.square() * (values - mean).square()).sum()))
    return mean, error * math.sqrt(count / (count - 1)) if count > 1 else math.inf


def learned_frequencies(fit: TermFit) -> dict[str, Tensor]:
    """Return the frequencies (m, d) that a fit may change, by dotted name.

    Args:
        fit: The fit.
    """
    chosen = fit.spec.approximations.items()
    names = [name for name, used in chosen if isinstance(used, RandomFeatures) and used.learn_frequencies]
    paths = {path: tensor for path, tensor in learnable_basis(fit.spec).items() if path.rpartition(".")[0] in names}
    return {path: tensor.detach().double() for path, tensor in paths.items()}


def nothing_learned(fit: TermFit, split: Split) -> Outcome:
    """Return the outcome if nothing can be learned.

    Args:
        fit: The fit.
        split: The training, validation and test rows.
    """
    rows = len(fit.pool)
    why = TIME_OVER if fit.plan.is_over() else "no steps were allowed"
    words = f"{rows} rows are too few to learn frequencies from" if rows < MIN_LEARNED else why
    report = replace(NO_SEARCH, message=words)
    return Outcome(None, fit.values, report, NO_SEARCH, split)


def best_start(fit: TermFit, split: Split, starts: Sequence[ParameterValues]) -> ParameterValues:
    """Return the start whose short run on few rows has the best validation score.

    Args:
        fit: The fit.
        split: The training, validation and test rows.
        starts: The candidate starting values. Starts without prior density are left out, except the first one.
    """
    starts = [start for number, start in enumerate(starts) if number == 0 or has_prior(start)]
    if len(starts) == 1:
        return starts[0]
    few = split._replace(training=split.training.take(torch.arange(len(split.training))[:TRIAL_ROWS]))
    steps = min(TRIAL_STEPS, fit.plan.steps)
    plan = replace(fit.plan, iteration_limit=steps, reporter=Reporter(), checkpoint=Checkpoint())
    trial, half = replace(fit, plan=plan), len(split.validation)

    def score(start: ParameterValues) -> float:
        if fit.plan.is_over():
            return -math.inf
        means = [float(step.log_prob[:half].mean()) for step in Learning(trial, few, start).run()[0]]
        return max((mean for mean in means if math.isfinite(mean)), default=-math.inf)

    return max(starts, key=score)


def learn(fit: TermFit, split: Split, start: ParameterValues, initial: FitReport) -> Outcome:
    """Learn frequencies, and select the best step if it gains significantly.

    Args:
        fit: The fit at hyperparameters found with fixed frequencies.
        split: The training, validation and test rows.
        start: The starting hyperparameters of learning.
        initial: The report of the search that found the fit's hyperparameters.

    Returns:
        The outcome. It has no frequencies if the gain on the test rows is at most its standard error.
    """
    learning, fixed = Learning(fit, split, start), Learning(fit, split, fit.values).best_fixed
    (segments, likelihoods), best, chosen, half = learning.run(), -math.inf, fixed, len(split.validation)
    for step in segments:
        if float(step.log_prob[:half].mean()) > best:
            best, chosen = float(step.log_prob[:half].mean()), step
    gain, error = mean_and_standard_error((chosen.log_prob - fixed.log_prob)[half:])
    taken = len(likelihoods)
    tenth = max(1, taken // 10)
    ends = [sum(part) / len(part) for part in (likelihoods[-tenth:], likelihoods[-2 * tenth : -tenth] or [-math.inf])]
    stage = Stage("learning frequencies", len(learning.pool), taken, taken, ends[0] - likelihoods[0])
    trace = tuple(learning.in_units(value) for value in likelihoods)
    message = f"learned frequencies gained {gain:.2g} (standard error {error:.1g}) nats a held-out row"
    learned: dict[str, Tensor] | None = {path: chosen.values.raw[path] for path in learning.start}
    values = start.replaced({name: chosen.values.raw[name] for name in start.raw})
    if not gain > error:
        learned, values = None, fit.values
        message = f"{message}, so the fixed ones were taken"
    has_converged = ends[0] - ends[1] < SETTLED
    report = FitReport(has_converged, taken, taken, math.nan, message, trace=trace, stages=(stage,))
    return Outcome(learned, values, report, initial, split)


class _Candidate(NamedTuple):
    """Hyperparameters and frequencies, and the leave-one-out log densities (b,) of held-out rows."""

    values: ParameterValues
    log_prob: Tensor


class Learning:
    """One run of learning frequencies.

    Args:
        fit: The fit.
        split: The training, validation and test rows.
        values: The starting hyperparameters.
    """

    def __init__(self, fit: TermFit, split: Split, values: ParameterValues) -> None:
        self._fit, self.pool, self.start = fit, split.training, learned_frequencies(fit)
        frequencies = {path: drawn.clone() for path, drawn in self.start.items()}
        self._values, self._free = values.with_extra_tensors(frequencies, {}), [*fit.free, *frequencies]
        self._held_out, self._half = split.held_out, len(split.validation)
        some = self.pool.take(torch.arange(len(self.pool))[:BATCH_ROWS])
        self._scored = gathered(JoinedRows([self._held_out, some]))
        limits = [(name, limit) for name in self._free for limit in self._values.space.bounds(name)]
        most = {name: math.log(MAX_SCALE) for name in fit.scales}
        self._low = np.array([-math.inf if low is None else low for _, (low, _) in limits])
        self._high = np.array(
            [min(math.inf if high is None else high, most.get(name, math.inf)) for name, (_, high) in limits]
        )
        self._batches: tuple[int, Tensor] | None = None

    def run(self) -> tuple[list[_Candidate], list[float]]:
        """Take all steps, or stop early if the learning curve is too flat.

        Returns:
            The candidates at the ends of segments, and the log likelihood of a row before each step.
        """
        plan, likelihoods, segments = self._fit.plan, list[float](), list[_Candidate]()
        plan.reporter.begin("learning frequencies", len(self.pool), plan.steps)
        begin = self._values.vector(self._free)
        state = np.stack([np.clip(begin, self._low, self._high), np.zeros_like(begin), np.zeros_like(begin)])
        for first in range(0, plan.steps, _SEGMENT):
            last = min(first + _SEGMENT, plan.steps)
            name, log_prob = f"frequencies {last}", torch.zeros(len(self._held_out), dtype=torch.float64)
            begun = plan.checkpoint.begin(name, {"adam": torch.from_numpy(state), "log_prob": log_prob})
            if begun is None:
                state, log_prob, values = self._segment(state, first, last)
                taken = len(values)
                stage = Stage(name, len(self.pool), taken, taken, values[-1] - values[0])
                report = FitReport(False, taken, taken, math.nan, "", trace=tuple(values), stages=(stage,))
                tensors = {"adam": torch.from_numpy(state), "log_prob": log_prob}
                plan.checkpoint.record(tensors, report, has_ended=True)
                for done, value in enumerate(values, first + 1):
                    plan.reporter.iteration(done, self.in_units(value))
            else:
                state, log_prob = begun.tensors["adam"].numpy(), begun.tensors["log_prob"]
                values = begun.report.trace
            likelihoods += values
            segments.append(_Candidate(self._at(state[0]), log_prob))
            scores = [float(segment.log_prob[self._half :].mean()) for segment in segments]
            if plan.is_over() or self._cannot_catch_up(scores, last):
                break
        return segments, likelihoods

    def _cannot_catch_up(self, scores: Sequence[float], done: int) -> bool:
        """Return whether the learning curve cannot reach the needed gain.

        Each further doubling of the steps is assumed to gain no more than the last one.

        Args:
            scores: The scores of the test rows after each segment.
            done: The number of steps so far.
        """
        plan, outputs = self._fit.plan, self.pool.num_outputs
        if max(plan.needed_gain, plan.needed_score) == -math.inf or len(scores) < _MIN_SEGMENTS:
            return False
        fixed = float(self.best_fixed.log_prob[self._half :].mean())
        now, before = max(scores), max(scores[: len(scores) // 2])
        reached = now + (now - before) * math.log2(plan.steps / done)
        return reached < max(fixed + outputs * plan.needed_gain, outputs * plan.needed_score) + outputs * MARGIN

    def in_units(self, likelihood: float) -> float:
        """Return the likelihood of all rows in the user's units.

        Args:
            likelihood: The mean log likelihood of a row, of standardized targets.
        """
        count = self.pool.count
        return likelihood * count + self._fit.state.scaling.targets.log_jacobian(count)

    @cached_property
    def best_fixed(self) -> _Candidate:
        """The fixed frequencies, with noise and scale solved for."""
        values, rows, fit = self._values, self._scored, self._fit
        has_more_rows = fit.scales and len(rows) > fit.num_features
        if has_more_rows and block_scales(fit.spec, fit.prior):
            with torch.no_grad():
                model = fit.linear(values, rows)
                values = solve_scales(fit.at(values), model, accumulate_gram(model))
        return _Candidate(values, self._held_out_log_prob(values))

    # --- steps -----------------------------------------------------------------------------------

    def _segment(
        self,
        state: Floats,  # (3, p)
        first: int,
        last: int,
    ) -> tuple[Floats, Tensor, Sequence[float]]:
        """Take steps `first` to `last` of Adam from its parameters and two moments (3, p).

        Returns:
            The state, the log densities (b,) of the held-out rows there, and the likelihood of a row before each step.
        """
        likelihoods = []
        for step in range(first, last):
            value, gradient = self._gradient(self._at(state[0]), self._batch(step), step)
            rate = RATE * 0.5 * (1 + math.cos(math.pi * step / self._fit.plan.steps))
            change, moments = adam(gradient, (state[1], state[2]), step + 1, rate, epsilon=1e-8)
            state = np.stack([np.clip(state[0] + change, self._low, self._high), *moments])
            likelihoods.append(value)
            if self._fit.plan.is_over():
                break
        return state, self._held_out_log_prob(self._at(state[0])), likelihoods

    def _at(self, point: Floats) -> ParameterValues:
        """Return the hyperparameters and frequencies at a point (p,)."""
        return self._values.moved(self._free, point)

    def _batch(self, step: int) -> Block:
        """Return the batch of a step. Each epoch visits all rows in a new random order."""
        n, size = len(self.pool), min(BATCH_ROWS, len(self.pool))
        if size == n:
            return self.pool
        epoch, index = divmod(step, n // size)
        if self._batches is None or self._batches[0] != epoch:
            generator = random.generator(self._fit.spec.options.seed, random.Role.BATCHES, epoch)
            self._batches = epoch, torch.randperm(n, generator=generator)
        return self.pool.take(self._batches[1][index * size : (index + 1) * size])

    def _gradient(self, values: ParameterValues, rows: Block, step: int) -> tuple[float, Floats]:
        """Return the standardized log density of a row, and the gradient (p,) of the objective.

        Args:
            values: The hyperparameters and frequencies.
            rows: The rows.
            step: The number of the step, whose gradient may be an estimate.
        """
        with torch.enable_grad():
            values = values.leaves(self._free)
            log_likelihood = self._likelihood(values, rows, step) / rows.count
            moved = (
                sum((values.raw[path] - drawn).square().sum() for path, drawn in self.start.items()) / PRIOR_SCALE**2
            )
            objective = log_likelihood + (values.log_hyperprior() - 0.5 * moved) / self.pool.count
            gradients = torch.autograd.grad(objective, [values.raw[name] for name in self._free])
        gradient = torch.cat([g.reshape(-1).double() for g in gradients])
        return float(log_likelihood.detach()), gradient.cpu().numpy()

    def _likelihood(self, values: ParameterValues, rows: Block, step: int) -> Tensor:
        """Return the log marginal likelihood of rows, 0-d, in float32 if that is precise."""
        if self._fit.is_primal(rows):
            model = self._fit.linear(values, rows, _MAX_ROUNDING)
            single = replace(model, rows=replace(rows, inputs=rows.inputs.float()))
            model = model if single.needs_float64 else single
            if not has_fourier_features(model):
                return LowRankSolver(model).log_marginal_likelihood()
            size = max(len(rows) // TRACE_DIVISOR, 1)
            first = step * size % (len(rows) - size + 1)
            return fourier_log_likelihood(model, slice(first, first + size))
        return self._fit.state.replace(hyperparameters=values).infer(rows).log_marginal_likelihood()

    def _held_out_log_prob(self, values: ParameterValues) -> Tensor:
        """Return the standardized leave-one-out log densities of the held-out rows."""
        rows = self._scored
        with torch.no_grad():
            if self._fit.is_primal(rows):
                solver = LowRankSolver(self._fit.linear(values, rows, _MAX_ROUNDING))
                moments = solver.leave_one_out(self._held_out)
            else:
                of_all = self._fit.state.replace(hyperparameters=values).infer(rows).leave_one_out()
                moments = of_all[0][: len(self._held_out)], of_all[1][: len(self._held_out)]
            return left_out_log_prob(moments, self._held_out, values.standardized("noise").double())
