"""Learning the frequencies themselves (Lazaro-Gredilla et al. 2010), without over-fitting unseen.

They start from the model's own draw and, with all other hyperparameters, climb the marginal likelihood of random
batches of rows by Adam (Kingma and Ba 2015), under a normal prior around that draw. A tenth of the rows is kept out of
all this, at most 2,000. Their leave-one-out density, given each other and up to 6,000 of the rows that were learned
from, decides: that of one half, which step to keep, and how large the noise is in the end; that of the other half,
whether learning was worth it at all. If it is not above that of the fixed frequencies by more than a standard error,
these are taken. The other half also gives the reported calibration, so nothing was chosen by what is reported.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from rfgp import random
from rfgp.couplings import Frequencies
from rfgp.inference import (
    ArrayRows,
    FeaturePrior,
    JoinedRows,
    LinearModel,
    Posterior,
    PrimalPosterior,
    gathered,
    posterior,
)
from rfgp.models.fitting.lbfgs import Plan
from rfgp.models.fitting.report import FitReport, Stage
from rfgp.models.fitting.scales import leave_one_out_densities, solve_scales
from rfgp.parameters import Hyperparameters

if TYPE_CHECKING:
    from rfgp.models.table import SparseSpectrumGP

BATCH_ROWS = 6000
RATE = 0.1
"""Of Adam, at its highest."""
PRIOR_SCALE = 1.0
"""Standard deviation of a frequency's coordinate around its draw, at unit lengthscale."""
MOST_SCALE = 4.0
"""The output scale on the way, in variances of the targets, where nothing else is said: with a larger one features
cancel each other where there are rows, and swing where there are few. On all rows it is solved for in the end."""
KEPT_OUT = (0.1, 2000)
"""The share of the rows that is kept out, and at most how many."""
LEAST_ROWS = 200
"""Fewer rows are not learned from: the tenth that is kept out could not tell whether it paid."""
SETTLED = 0.01
"""Nats a row: what the last tenth of the steps may gain in likelihood before more steps are asked for."""
_MOST_ROUNDING = 3.0
"""Of products of features in a step: its noise is that of the batches anyway (see `rfgp.inference.linear`)."""
_SEGMENT = 10
"""Steps between two looks at the kept-out rows."""
_BETAS, _EPSILON = (0.9, 0.999), 1e-8


class Outcome(NamedTuple):
    """What learning came to."""

    frequencies: Frequencies | None  # None: the fixed ones are as good
    stage: Stage
    gain: float  # of the leave-one-out density of a kept-out row, over the fixed frequencies, in nats
    error: float  # its standard error
    last_gain: float  # of the likelihood of a row, in the last tenth of the steps
    begun: FitReport  # of the other hyperparameters, before
    chosen_by: ArrayRows  # kept-out rows that chose the step
    judged_by: ArrayRows  # kept-out rows that nothing was chosen by
    others: ArrayRows  # all rows but these
    words: str

    @property
    def has_settled(self) -> bool:
        """Whether the last tenth of the steps gained little."""
        return self.last_gain < SETTLED


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
    """One run over the frequencies of a model; its hyperparameters end where the kept step has them.

    Args:
        model: At its starting values.
        pool: The rows to learn from.
        order: A random order of them (n,); the last are kept out.
        plan: What the user asked for.
        solves_scales: Whether noise and output scale may be solved for.
    """

    def __init__(
        self, model: "SparseSpectrumGP", pool: ArrayRows, order: Tensor, plan: Plan, solves_scales: bool
    ) -> None:
        self.model, self.plan, self._solves = model, plan, solves_scales
        self.known: Hyperparameters = model._known().hyperparameters
        self.start: Frequencies = model.feature_map.frequencies
        out = min(KEPT_OUT[1], math.ceil(KEPT_OUT[0] * len(pool)))
        kept, half = order[len(order) - out :], (out + 1) // 2
        self.pool, self.kept_out = pool.take(order[: len(order) - out]), pool.take(kept)
        self.chosen_by, self.judged_by = pool.take(kept[:half]), pool.take(kept[half:])
        self._beside = gathered(JoinedRows([self.kept_out, self.pool.take(torch.arange(len(self.pool))[:BATCH_ROWS])]))
        self._names = [name for name, _, _ in self.known.free(plan.fixed)]
        self.begun = FitReport(True, 0, 0, math.nan, "")
        self._batches: tuple[int, Tensor] | None = None

    @property
    def is_possible(self) -> bool:
        """Whether there are rows enough, and steps."""
        return len(self.pool) + len(self.kept_out) >= LEAST_ROWS and self.plan.steps > 0

    def refusal(self) -> Outcome:
        """Return the outcome where nothing can be learned."""
        rows = len(self.pool) + len(self.kept_out)
        words = f"{rows} rows are too few to learn frequencies from" if rows < LEAST_ROWS else "no steps were allowed"
        return self._outcome(None, Stage("learning frequencies", rows, 0, 0, 0.0), (0.0, 0.0, 0.0), words)

    def run(self) -> Outcome:
        """Learn, and return the best step if it is better than none by more than a standard error."""
        moment = _Moment.at(self._inside(self._parameters()))
        fixed, best = self._fixed_density(), -math.inf
        chosen, density, likelihoods = moment.parameters, fixed, []
        half, steps = len(self.chosen_by), self.plan.steps
        self.plan.reporter.begin("learning frequencies", len(self.pool), steps)
        for first in range(0, steps, _SEGMENT):
            last = min(first + _SEGMENT, steps)
            found = self.plan.journal.remember(f"frequencies {last}", partial(self._segment, moment, first, last))
            moment = _Moment.of(found)
            self._tell(first, found["likelihoods"].tolist())
            likelihoods += found["likelihoods"].tolist()
            if float(found["density"][:half].mean()) > best:
                best, density, chosen = float(found["density"][:half].mean()), found["density"], moment.parameters
        gain, error = _mean_and_error((density - fixed)[half:])
        tenth = max(1, steps // 10)
        ends = [
            sum(part) / len(part) for part in (likelihoods[-tenth:], likelihoods[-2 * tenth : -tenth] or [math.inf])
        ]
        stage = Stage("learning frequencies", len(self.pool), steps, steps, ends[0] - likelihoods[0])
        is_better = gain > error
        self._write(chosen if is_better else self._begun)
        learned = Frequencies(chosen["frequencies"], self.start.weights) if is_better else None
        words = f"learned frequencies gained {gain:.2g} (standard error {error:.1g}) nats a kept-out row"
        if not is_better:
            words = f"{words}, so the fixed ones were taken"
        elif steps >= 20:
            words = f"{words}; the last tenth of the steps gained {ends[0] - ends[1]:.1g} nats a row"
        return self._outcome(learned, stage, (gain, error, ends[0] - ends[1]), words)

    def _outcome(
        self, learned: Frequencies | None, stage: Stage, gains: tuple[float, float, float], words: str
    ) -> Outcome:
        others = gathered(JoinedRows([self.chosen_by, self.pool]))
        return Outcome(learned, stage, *gains, self.begun, self.chosen_by, self.judged_by, others, words)

    def _tell(self, first: int, likelihoods: list[float]) -> None:
        """Tell the reporter of steps, in the user's units."""
        rows, targets = self.pool, self.model._known().scaling.targets
        for done, value in enumerate(likelihoods, first + 1):
            self.plan.reporter.iteration(done, value * rows.count + targets.log_jacobian(rows.count))

    def _fixed_density(self) -> Tensor:
        """Return the densities of the kept-out rows with the fixed frequencies, noise and scale solved beside them."""
        self._write(self._begun)
        if self._solves and len(self._beside) > self.model.feature_map.num_features:
            solve_scales(self._linear(self._begun["frequencies"], self._beside), self.known, self._beside.count)
        solved = {name: self.known.raw[name].detach().clone().double() for name in self._names}
        return self._kept_out_density({**self._begun, **solved})

    # --- steps -----------------------------------------------------------------------------------

    def _parameters(self) -> dict[str, Tensor]:
        raw = {name: self.known.raw[name].detach().clone().double() for name in self._names}
        self._begun = {**raw, "frequencies": self.start.dense().clone()}
        return self._begun

    def _segment(self, moment: _Moment, first: int, last: int) -> dict[str, Tensor]:
        """Return the state after steps `first` to `last`, their likelihoods per row, and the kept-out densities."""
        likelihoods = []
        for step in range(first, last):
            value, gradients = self._gradient(moment.parameters, self._batch(step))
            moment = _adam(moment, gradients, step, self.plan.steps)
            moment = replace(moment, parameters=self._inside(moment.parameters))
            likelihoods.append(value)
        density = self._kept_out_density(moment.parameters)
        values = torch.tensor(likelihoods, dtype=torch.float64)
        return {**moment.tensors(), "likelihoods": values, "density": density}

    def _batch(self, step: int) -> ArrayRows:
        """Return the batch of a step: parts of one random order of all rows after another."""
        n, size = len(self.pool), min(BATCH_ROWS, len(self.pool))
        if size == n:
            return self.pool
        epoch, place = divmod(step, n // size)
        if self._batches is None or self._batches[0] != epoch:
            generator = random.generator(self.model.seed, random.Role.BATCHES, epoch)
            self._batches = epoch, torch.randperm(n, generator=generator)
        return self.pool.take(self._batches[1][place * size : (place + 1) * size])

    def _gradient(self, parameters: dict[str, Tensor], rows: ArrayRows) -> tuple[float, dict[str, Tensor]]:
        """Return the log density of a row in standardised units, and the gradient of the objective per row."""
        self._write(parameters)
        with torch.enable_grad():
            omega = parameters["frequencies"].clone().requires_grad_()
            leaves = [self.known.raw[name] for name in self._names]
            density = self._posterior(omega, rows).log_marginal_likelihood() / rows.count
            moved = (omega - self.start.dense()).square().sum() / PRIOR_SCALE**2
            objective = density + (self.known.log_prior() - 0.5 * moved) / self.pool.count
            found = torch.autograd.grad(objective, [*leaves, omega])
        names = [*self._names, "frequencies"]
        return float(density.detach()), {name: g.double() for name, g in zip(names, found, strict=True)}

    def _posterior(self, omega: Tensor, rows: ArrayRows) -> Posterior:
        prior = learned_prior(self.model, omega)
        if prior.num_features > len(rows):
            mean, noise = self.known.standardized("mean").reshape(-1), self.known.standardized("noise")
            return posterior(prior, rows, mean, noise)
        return PrimalPosterior(self._linear(omega, rows))

    def _linear(self, omega: Tensor, rows: ArrayRows) -> LinearModel:
        mean, noise = self.known.standardized("mean").reshape(-1), self.known.standardized("noise")
        model = learned_prior(self.model, omega).model(rows, mean, noise)
        return replace(model, most_rounding=_MOST_ROUNDING)

    def _inside(self, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the parameters moved into their bounds; the output scale has a lower one where it is solved for."""
        found = dict(parameters)
        for name, _, limits in self.known.free(self.plan.fixed):
            if limits[0][0] is not None:
                value = found[name]
                low, high = (value.new_tensor(side).reshape(value.shape) for side in zip(*limits, strict=True))
                found[name] = value.clamp(low, high)
        if self._solves:
            found["outputscale"] = found["outputscale"].clamp(max=math.log(MOST_SCALE))
        return found

    def _write(self, parameters: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name in self._names:
                self.known.raw[name].copy_(parameters[name])

    def _kept_out_density(self, parameters: dict[str, Tensor]) -> Tensor:
        """Return the leave-one-out log densities of the kept-out rows, standardised, summed over outputs."""
        self._write(parameters)
        rows, noise = self.kept_out, self.known.standardized("noise").double()
        with torch.no_grad():
            found = self._posterior(parameters["frequencies"], self._beside)
            return leave_one_out_densities(found, rows, noise)


def learned_prior(model: "SparseSpectrumGP", omega: Tensor) -> FeaturePrior:
    """Return the prior with frequencies (m, d) that gradients are wanted in."""
    known, weights = model._known().hyperparameters, model.feature_map.frequencies.weights
    scales = known.standardized("lengthscale"), known.standardized("outputscale")

    def features(x: Tensor, lengthscale: Tensor, frequencies: Tensor) -> Tensor:
        phi: Tensor = model._map_class(Frequencies(frequencies, weights))(x / lengthscale)
        return phi

    return FeaturePrior(features, model.feature_map.num_features, (scales[0], omega), scales[1])


def _mean_and_error(values: Tensor) -> tuple[float, float]:
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
