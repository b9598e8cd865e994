"""Learning the frequencies themselves (Lazaro-Gredilla et al. 2010), without over-fitting unseen.

They start from the model's own draw, at the hyperparameters that a short climb from each of a few prefers (a search
with fixed frequencies gives up columns that these are too few for, and learned ones would not be); and, with all other
hyperparameters, climb the marginal likelihood of random batches of rows by Adam (Kingma and Ba 2015), under a normal
prior around that draw. A tenth of the rows is kept out of all this, at most 2,000. Their leave-one-out density, given
each other and up to 6,000 of the rows that were learned from, decides: that of one half, where to start, which step to
keep, and how large the noise is in the end; that of the other half, whether learning was worth it at all. If it is not
above that of the fixed frequencies by more than a standard error, these are taken. The other half also gives the
reported calibration, and nothing but learned or fixed was chosen by it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import torch
from torch import Tensor

from rfgp import random
from rfgp.couplings import Frequencies
from rfgp.errors import InvalidArgumentError
from rfgp.fitting.checkpoint import Journal
from rfgp.fitting.context import FeatureFit, HeldOut, leave_one_out_densities, solve_scales
from rfgp.fitting.progress import Reporter
from rfgp.inference import Evidence, FeatureEvidence, LinearModel, evidence
from rfgp.parameters import Values
from rfgp.regression import FitReport, Stage, mean_and_noise
from rfgp.rows import Block, JoinedRows, gathered

BATCH_ROWS = 6000
RATE = 0.1
"""Of Adam, at its highest."""
PRIOR_SCALE = 1.0
"""Standard deviation of a frequency's coordinate around its draw, at unit lengthscale."""
MOST_SCALE = 4.0
"""The output scale on the way, in variances of the targets, where nothing else is said: with a larger one features
cancel each other where there are rows, and swing where there are few. On all rows it is solved for in the end."""
LEAST_LEARNED = 200
"""Fewer rows are not learned from: the tenth that is kept out could not tell whether it paid."""
SETTLED = 0.01
"""Nats a row: what the last tenth of the steps may gain in likelihood before more steps are asked for."""
_MOST_ROUNDING = 3.0
"""Of products of features in a step: its noise is that of the batches anyway (see `rfgp.inference.linear`)."""
TRIAL_ROWS, TRIAL_STEPS = 2000, 20
"""Of the climb by which a start is judged."""
_SEGMENT = 10
"""Steps between two looks at the kept-out rows."""
_BETAS, _EPSILON = (0.9, 0.999), 1e-8

NOTHING_BEFORE = FitReport(True, 0, 0, math.nan, "")
"""Of a fit in which nothing but frequencies is learned."""


class Outcome(NamedTuple):
    """What learning came to."""

    frequencies: Frequencies | None  # None: the fixed ones are as good
    values: Values  # where the chosen step has the other hyperparameters
    stage: Stage
    gain: float  # nats a row that nothing was chosen by, on fixed frequencies; 0 where these are as good
    judged: Tensor  # the log densities (b,) of the rows that nothing was chosen by
    trace: tuple[float, ...]  # the likelihood of all rows that were learned from before each step, of its batch
    last_gain: float  # of the likelihood of a row, in the last tenth of the steps
    begun: FitReport  # of the other hyperparameters, before
    held_out: HeldOut
    words: str

    @property
    def has_settled(self) -> bool:
        """Whether the last tenth of the steps gained little."""
        return self.last_gain < SETTLED

    def refused(self, why: str) -> "Outcome":
        """Return the outcome where the fixed ones are taken after all."""
        return self._replace(frequencies=None, words=f"{self.words}; {why}")

    @property
    def others(self) -> Block:
        """All rows but those that nothing was chosen by."""
        return gathered(JoinedRows([self.held_out.chosen_by, self.held_out.learned_from]))


def refusal(fit: FeatureFit, held_out: HeldOut) -> Outcome:
    """Return the outcome where nothing can be learned."""
    rows = len(fit.pool)
    words = f"{rows} rows are too few to learn frequencies from" if rows < LEAST_LEARNED else "no steps were allowed"
    stage = Stage("learning frequencies", rows, 0, 0, 0.0)
    return Outcome(
        None, fit.regression.hyperparameters, stage, 0.0, torch.zeros(0), (), 0.0, NOTHING_BEFORE, held_out, words
    )


def best_start(fit: FeatureFit, held_out: HeldOut, starts: Sequence[Values]) -> Values:
    """Return the start from which a short climb on few rows gives those rows the best density that choose."""
    starts = [start for number, start in enumerate(starts) if number == 0 or has_prior(start)]
    if len(starts) == 1:
        return starts[0]
    few = held_out._replace(
        learned_from=held_out.learned_from.take(torch.arange(len(held_out.learned_from))[:TRIAL_ROWS])
    )
    plan = replace(fit.plan, given_iterations=min(TRIAL_STEPS, fit.plan.steps), reporter=Reporter(), journal=Journal())
    trial, half = replace(fit, plan=plan), len(held_out.chosen_by)

    def density(start: Values) -> float:
        means = [float(step.density[:half].mean()) for step in Learning(trial, few, start).climb().segments]
        return max((mean for mean in means if math.isfinite(mean)), default=-math.inf)

    def compute() -> dict[str, Tensor]:
        return {"values": torch.tensor([density(start) for start in starts], dtype=torch.float64)}

    return starts[int(fit.plan.journal.remember("trials", compute)["values"].argmax())]


def has_prior(values: Values) -> bool:
    """Return whether the hyperpriors have a density at a start that nobody gave."""
    try:
        return bool(torch.isfinite(values.log_hyperprior()))
    except InvalidArgumentError:
        return False


def judged(fit: FeatureFit, held_out: HeldOut, values: Values) -> Tensor:
    """Return the log densities (b,), with fixed frequencies, of the rows that nothing is chosen by."""
    return Learning(fit, held_out, values).best_fixed.density[len(held_out.chosen_by) :]


def learn(fit: FeatureFit, held_out: HeldOut, values: Values, start: Values, begun: FitReport) -> Outcome:
    """Learn, and return the best step if it is better than none by more than a standard error.

    Args:
        fit: The fit.
        held_out: Which rows are learned from, and which are not.
        values: The hyperparameters that fixed frequencies have.
        start: Those to start from.
        begun: How the first were found.
    """
    run, fixed = Learning(fit, held_out, start), Learning(fit, held_out, values).best_fixed
    steps, best, chosen, half = run.climb(), -math.inf, fixed, len(held_out.chosen_by)
    for step in steps.segments:
        if float(step.density[:half].mean()) > best:
            best, chosen = float(step.density[:half].mean()), step
    gain, error = mean_and_error((chosen.density - fixed.density)[half:])
    tenth, likelihoods = max(1, fit.plan.steps // 10), steps.likelihoods
    ends = [sum(part) / len(part) for part in (likelihoods[-tenth:], likelihoods[-2 * tenth : -tenth] or [math.inf])]
    stage = Stage("learning frequencies", len(run.pool), fit.plan.steps, fit.plan.steps, ends[0] - likelihoods[0])
    trace = tuple(run.in_units(value) for value in likelihoods)
    words = f"learned frequencies gained {gain:.2g} (standard error {error:.1g}) nats a kept-out row"
    if not gain > error:
        words = f"{words}, so the fixed ones were taken"
        return Outcome(None, values, stage, 0.0, fixed.density[half:], trace, ends[0] - ends[1], begun, held_out, words)
    if fit.plan.steps >= 20:
        words = f"{words}; the last tenth of the steps gained {ends[0] - ends[1]:.1g} nats a row"
    learned = Frequencies(chosen.parameters["frequencies"], run.start.weights)
    parameters = run.values(chosen.parameters)
    return Outcome(
        learned, parameters, stage, gain, chosen.density[half:], trace, ends[0] - ends[1], begun, held_out, words
    )


class _Candidate(NamedTuple):
    """Parameters, and the leave-one-out log densities of the kept-out rows with them."""

    parameters: dict[str, Tensor]
    density: Tensor


class _Climb(NamedTuple):
    """What a climb passed through: candidates at the ends of its segments, and the likelihoods per row of its steps."""

    segments: list[_Candidate]
    likelihoods: list[float]


@dataclass(frozen=True, eq=False)
class _Moment:
    """The parameters, Adam's two moments and the step."""

    parameters: dict[str, Tensor]
    first: dict[str, Tensor]
    second: dict[str, Tensor]

    @classmethod
    def at(cls, parameters: dict[str, Tensor]) -> "_Moment":
        zeros = [{name: torch.zeros_like(value) for name, value in parameters.items()} for _ in range(2)]
        return cls(parameters, *zeros)

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors by name, for a checkpoint."""
        parts = {"parameters": self.parameters, "first": self.first, "second": self.second}
        return {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}

    @classmethod
    def of(cls, tensors: dict[str, Tensor]) -> "_Moment":
        """Return what `tensors` returned."""
        parts: dict[str, dict[str, Tensor]] = {"parameters": {}, "first": {}, "second": {}}
        for name, value in tensors.items():
            part, _, rest = name.partition(".")
            if part in parts:
                parts[part][rest] = value
        return cls(**parts)


class Learning:
    """One run over the frequencies of a fit.

    Args:
        fit: The fit.
        held_out: Which rows are learned from, and which are not.
        values: The hyperparameters to start from.
    """

    def __init__(self, fit: FeatureFit, held_out: HeldOut, values: Values) -> None:
        self._fit, self._values, self._names = fit, values, fit.free
        self.pool, self.start = held_out.learned_from, fit.drawn.drawn_map.frequencies
        self._kept_out = held_out.kept_out
        some = self.pool.take(torch.arange(len(self.pool))[:BATCH_ROWS])
        self._beside = gathered(JoinedRows([self._kept_out, some]))
        raw = {name: values.raw[name].detach().clone().double() for name in self._names}
        self._begun = {**raw, "frequencies": self.start.dense().clone()}
        self._batches: tuple[int, Tensor] | None = None
        self._moment = _Moment.at(self._inside(self._begun))

    def values(self, parameters: dict[str, Tensor]) -> Values:
        """Return the hyperparameters among the parameters, each 0-d or (d,)."""
        return self._values.replaced({name: parameters[name] for name in self._names})

    def climb(self) -> _Climb:
        """Take all steps."""
        plan, moment, likelihoods, segments = self._fit.plan, self._moment, [], []
        plan.reporter.begin("learning frequencies", len(self.pool), plan.steps)
        for first in range(0, plan.steps, _SEGMENT):
            last = min(first + _SEGMENT, plan.steps)
            tensors = plan.journal.remember(f"frequencies {last}", partial(self._segment, moment, first, last))
            moment = _Moment.of(tensors)
            self._tell(first, tensors["likelihoods"].tolist())
            likelihoods += tensors["likelihoods"].tolist()
            segments.append(_Candidate(moment.parameters, tensors["density"]))
        return _Climb(segments, likelihoods)

    def _tell(self, first: int, likelihoods: list[float]) -> None:
        """Tell the reporter of steps, in the user's units."""
        for done, value in enumerate(likelihoods, first + 1):
            self._fit.plan.reporter.iteration(done, self.in_units(value))

    def in_units(self, likelihood: float) -> float:
        """Return what the likelihood of a standardised row makes for all rows, in the user's units."""
        count = self.pool.count
        return likelihood * count + self._fit.regression.scaling.targets.log_jacobian(count)

    @cached_property
    def best_fixed(self) -> _Candidate:
        """Return the fixed frequencies, with noise and scale solved on the kept-out rows and those beside them."""
        values, rows = self.values(self._begun), self._beside
        if self._fit.solves_scales and len(rows) > self._fit.family.num_features:
            values = solve_scales(self._linear(values, self._begun["frequencies"], rows), values, rows.count)
        solved = {name: values.raw[name].detach().clone().double() for name in self._names}
        parameters = {**self._begun, **solved}
        return _Candidate(parameters, self._kept_out_density(parameters))

    # --- steps -----------------------------------------------------------------------------------

    def _segment(self, moment: _Moment, first: int, last: int) -> dict[str, Tensor]:
        """Return the state after steps `first` to `last`, their likelihoods per row, and the kept-out densities."""
        likelihoods = []
        for step in range(first, last):
            value, gradients = self.gradient(moment.parameters, self._batch(step))
            moment = _adam(moment, gradients, step, self._fit.plan.steps)
            moment = replace(moment, parameters=self._inside(moment.parameters))
            likelihoods.append(value)
        density = self._kept_out_density(moment.parameters)
        values = torch.tensor(likelihoods, dtype=torch.float64)
        return {**moment.tensors(), "likelihoods": values, "density": density}

    def _batch(self, step: int) -> Block:
        """Return the batch of a step: parts of one random order of all rows after another."""
        n, size = len(self.pool), min(BATCH_ROWS, len(self.pool))
        if size == n:
            return self.pool
        epoch, place = divmod(step, n // size)
        if self._batches is None or self._batches[0] != epoch:
            generator = random.generator(self._fit.family.options.seed, random.Role.BATCHES, epoch)
            self._batches = epoch, torch.randperm(n, generator=generator)
        return self.pool.take(self._batches[1][place * size : (place + 1) * size])

    def gradient(self, parameters: dict[str, Tensor], rows: Block) -> tuple[float, dict[str, Tensor]]:
        """Return the log density of a row in standardised units, and the gradient of the objective per row.

        Parameters are the free hyperparameters, 0-d or (d,), and "frequencies" (m, d).
        """
        with torch.enable_grad():
            omega = parameters["frequencies"].clone().requires_grad_()
            values = self.values(parameters).leaves(self._names)
            density = self._evidence(values, omega, rows).log_marginal_likelihood() / rows.count
            moved = (omega - self.start.dense()).square().sum() / PRIOR_SCALE**2
            objective = density + (values.log_hyperprior() - 0.5 * moved) / self.pool.count
            gradients = torch.autograd.grad(objective, [*(values.raw[name] for name in self._names), omega])
        names = [*self._names, "frequencies"]
        return float(density.detach()), {name: g.double() for name, g in zip(names, gradients, strict=True)}

    def _evidence(self, values: Values, omega: Tensor, rows: Block) -> Evidence:
        if self._fit.family.num_features > len(rows):
            return evidence(self._fit.drawn.prior_of(omega, values), rows, *mean_and_noise(values))
        return FeatureEvidence(self._linear(values, omega, rows))

    def _linear(self, values: Values, omega: Tensor, rows: Block) -> LinearModel:
        prior, (mean, noise) = self._fit.drawn.prior_of(omega, values), mean_and_noise(values)
        return LinearModel(prior, rows, mean.double(), noise.double(), _MOST_ROUNDING)

    def _inside(self, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the parameters moved into their bounds; the output scale has a lower one where it is solved for."""
        inside = dict(parameters)
        for name in self._names:
            limits = self._values.space.bounds(name)
            if limits[0][0] is not None:
                value = inside[name]
                low, high = (value.new_tensor(side).reshape(value.shape) for side in zip(*limits, strict=True))
                inside[name] = value.clamp(low, high)
        if self._fit.solves_scales:
            inside["outputscale"] = inside["outputscale"].clamp(max=math.log(MOST_SCALE))
        return inside

    def _kept_out_density(self, parameters: dict[str, Tensor]) -> Tensor:
        """Return the leave-one-out log densities of the kept-out rows, standardised, summed over outputs."""
        values = self.values(parameters)
        with torch.no_grad():
            told = self._evidence(values, parameters["frequencies"], self._beside)
            return leave_one_out_densities(told, self._kept_out, values.standardized("noise").double())


def mean_and_error(values: Tensor) -> tuple[float, float]:
    """Return the mean of independent values (n,) and its standard error; infinite for a single one."""
    error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return float(values.mean()), error


def _adam(moment: _Moment, gradients: dict[str, Tensor], step: int, steps: int) -> _Moment:
    """Return the state after one step uphill; the rate falls to zero with a half cosine."""
    rate = RATE * 0.5 * (1 + math.cos(math.pi * step / steps))
    first, second, parameters = {}, {}, {}
    for name, g in gradients.items():
        first[name] = _BETAS[0] * moment.first[name] + (1 - _BETAS[0]) * g
        second[name] = _BETAS[1] * moment.second[name] + (1 - _BETAS[1]) * g.square()
        m = first[name] / (1 - _BETAS[0] ** (step + 1))
        v = second[name] / (1 - _BETAS[1] ** (step + 1))
        parameters[name] = moment.parameters[name] + rate * m / (v.sqrt() + _EPSILON)
    return _Moment(parameters, first, second)
