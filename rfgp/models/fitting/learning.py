"""Learning the frequencies themselves (Lazaro-Gredilla et al. 2010), without over-fitting unseen.

They start from the model's own draw and, with all other hyperparameters, climb the marginal likelihood of random
batches of rows by Adam (Kingma and Ba 2015), under a normal prior around that draw. A tenth of the rows is kept out.
Their leave-one-out density, given each other and rows that were learned from, says which step to keep, and whether
learning was worth it at all: if it is not clearly above that of the fixed frequencies, these are taken.
"""

import math
from dataclasses import dataclass
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
    gathered,
    posterior,
)
from rfgp.models.fitting.lbfgs import Plan
from rfgp.models.fitting.report import Stage
from rfgp.models.fitting.scales import leave_one_out_densities, solve_scales
from rfgp.parameters import Hyperparameters

if TYPE_CHECKING:
    from rfgp.models.table import SparseSpectrumGP

BATCH_ROWS = 6000
RATE = 0.1
"""Of Adam, at its highest."""
PRIOR_SCALE = 1.0
"""Standard deviation of a frequency's coordinate around its draw, at unit lengthscale."""
KEPT_OUT = (0.1, 2000)
"""The share of the rows that is kept out, and at most how many."""
LEAST_ROWS = 20
"""Fewer rows are not learned from."""
_SEGMENT = 10
"""Steps between two looks at the kept-out rows."""
_BETAS, _EPSILON = (0.9, 0.999), 1e-8


class Outcome(NamedTuple):
    """What learning came to."""

    frequencies: Frequencies | None  # None: the fixed ones are as good
    stage: Stage
    gain: float  # of the leave-one-out density of a kept-out row, over the fixed frequencies, in nats
    error: float  # its standard error
    kept_out: ArrayRows

    @property
    def words(self) -> str:
        """How it went."""
        if self.stage.iterations == 0:
            return f"{self.stage.rows} rows are too few to learn frequencies from"
        gain = f"{self.gain:.2g} (standard error {self.error:.1g}) nats a kept-out row"
        if self.frequencies is None:
            return f"learned frequencies gained only {gain}, so the fixed ones were taken"
        return f"learned frequencies gained {gain}"


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
        model: With hyperparameters that suit its fixed frequencies.
        pool: The rows to learn from, in random order.
        plan: What the user asked for.
        solves_scales: Whether noise and output scale may be solved for.
    """

    def __init__(self, model: "SparseSpectrumGP", pool: ArrayRows, plan: Plan, solves_scales: bool) -> None:
        self.model, self.plan, self._solves = model, plan, solves_scales
        self.known: Hyperparameters = model._known().hyperparameters
        self.start: Frequencies = model.feature_map.frequencies
        out = min(KEPT_OUT[1], max(2, math.ceil(KEPT_OUT[0] * len(pool))))
        index = torch.arange(len(pool))
        self.kept_out, self.pool = pool.take(index[:out]), pool.take(index[out:])
        self._beside = gathered(JoinedRows([self.kept_out, self.pool.take(index[: min(len(self.pool), BATCH_ROWS)])]))
        self._names = [name for name, _, _ in self.known.free(plan.fixed)]

    def run(self) -> Outcome:
        """Learn, and return the best step if it is better than none by more than a standard error."""
        if len(self.pool) + len(self.kept_out) < LEAST_ROWS:
            rows = len(self.pool) + len(self.kept_out)
            return Outcome(None, Stage("learning frequencies", rows, 0, 0, 0.0), 0.0, 0.0, self.kept_out)
        steps, reporter = self.plan.max_iterations, self.plan.reporter
        reporter.begin("learning frequencies", len(self.pool), steps)
        moment = _Moment.at(self._parameters())
        fixed = best = self._fixed_density()
        chosen, likelihoods = moment.parameters, []
        for first in range(0, steps, _SEGMENT):
            last = min(first + _SEGMENT, steps)
            found = self.plan.journal.remember(f"frequencies {last}", partial(self._segment, moment, first, last))
            moment = _Moment.of(found)
            likelihoods += found["likelihoods"].tolist()
            for done, value in enumerate(found["likelihoods"].tolist(), first + 1):
                reporter.iteration(done, value * len(self.pool))
            if found["density"].mean() > best.mean():
                best, chosen = found["density"], moment.parameters
        difference = best - fixed
        error = float(difference.std() / math.sqrt(len(difference)))
        gain = float(difference.mean())
        tail = likelihoods[-_SEGMENT:]
        stage = Stage("learning frequencies", len(self.pool), steps, steps, sum(tail) / len(tail) - likelihoods[0])
        self._write(chosen if gain > error else self._begun)
        learned = Frequencies(chosen["frequencies"], self.start.weights) if gain > error else None
        return Outcome(learned, stage, gain, error, self.kept_out)

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
            moment = _adam(moment, gradients, step, self.plan.max_iterations)
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
        order = torch.randperm(n, generator=random.generator(self.model.seed, random.Role.BATCHES, epoch))
        return self.pool.take(order[place * size : (place + 1) * size])

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
        mean, noise = self.known.standardized("mean").reshape(-1), self.known.standardized("noise")
        return posterior(learned_prior(self.model, omega), rows, mean, noise)

    def _linear(self, omega: Tensor, rows: ArrayRows) -> LinearModel:
        mean, noise = self.known.standardized("mean").reshape(-1), self.known.standardized("noise")
        return learned_prior(self.model, omega).model(rows, mean, noise)

    def _write(self, parameters: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, _, limits in self.known.free(self.plan.fixed):
                raw, value = self.known.raw[name], parameters[name]
                if limits[0][0] is not None:
                    low, high = (value.new_tensor(side).reshape(value.shape) for side in zip(*limits, strict=True))
                    value = value.clamp(low, high)
                raw.copy_(value)

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
