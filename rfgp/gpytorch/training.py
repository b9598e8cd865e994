"""Maximising a variational bound: L-BFGS over all observations, Adam over mini-batches."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gpytorch.mlls import VariationalELBO
from numpy.typing import NDArray
from torch import Tensor

from rfgp.counts import counted
from rfgp.descent import Descent, descend
from rfgp.gpytorch.latent import LatentFunctions, SoftmaxLikelihood

Floats = NDArray[np.float64]

RATES = (0.03, 0.01, 0.003)
"""Adam's step sizes, one after the other."""

WARM_UP = 20
"""Iterations of L-BFGS over the posterior alone, before hyperparameters move.
The posterior starts at the prior, which may be worse than no latent function. Hyperparameters could then move to values
without an effect of the kernel, and stay there."""

WINDOW = 100
"""Steps of Adam over which the bound is averaged before two averages are compared."""

_ROUNDING = 1e-6
"""Nats per observation that a second start after a failed line search must gain to be worth more."""

_HISTORY = ((200_000, 10), (np.inf, 4))
"""L-BFGS remembers so many steps for up to so many numbers."""


@dataclass(frozen=True)
class ClassifierReport:
    """The report of the fit of a `GraphClassifier`.

    Attributes:
        converged: Whether the convergence test of the optimiser was met.
        iterations: The number of iterations of L-BFGS, or of steps of Adam.
        evaluations: The number of evaluations of the bound and its gradient.
        elbo: The final evidence lower bound of log p(labels) over all observations, in total nats.
        constant: The log probability of the labels by class frequencies alone, in total nats. If `elbo` is not above
            it, the kernel has no effect, or its starting values were poor.
        message: The message of the optimiser.
        trace: The bound at the start and after each iteration, in total nats. With minibatches it is an estimate.
        num_inducing: The number M of inducing nodes.
        batches: The number of minibatches. 1 if each step uses all observations.
    """

    converged: bool
    iterations: int
    evaluations: int
    elbo: float
    constant: float
    message: str
    trace: tuple[float, ...]
    num_inducing: int
    batches: int


@dataclass(frozen=True, eq=False)
class Batch:
    """Some observations.

    Attributes:
        x: Positions (n, 1).
        y: Classes (n,): 0 and 1 as numbers for Bernoulli, else integers.
        kernel: The kernel, without the output scale, of these nodes and the inducing ones.
    """

    x: Tensor
    y: Tensor
    kernel: Any


class Objective:
    """The evidence lower bound of a model over batches of observations, total nats.

    Args:
        model: The latent functions.
        likelihood: Bernoulli or softmax.
        batches: All observations.
        generator: The generator of draws for the softmax likelihood and of the order of batches.
        bounds: The lower and upper bounds of the learned raw hyperparameters, by name.
    """

    def __init__(
        self,
        model: LatentFunctions,
        likelihood: Any,
        batches: Sequence[Batch],
        generator: torch.Generator,
        bounds: dict[str, tuple[float, float]],
    ) -> None:
        self.model, self.likelihood, self.batches, self.generator = model, likelihood, batches, generator
        self.count = sum(len(batch.y) for batch in batches)
        self.bounds = bounds
        self._elbo = VariationalELBO(likelihood, model, num_data=self.count)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in bounds or any(parameter is part for part in model.variational_parameters))

    def __call__(self, batch: Batch) -> Tensor:
        """Return the bound, total nats, 0-d, estimated from a batch."""
        self.model.covar_module.base_kernel = batch.kernel
        return self._elbo(self.model(batch.x), batch.y) * self.count

    def redraw(self, batch: Batch) -> None:
        """Take new draws for a batch, where the likelihood needs any."""
        if isinstance(self.likelihood, SoftmaxLikelihood):
            self.likelihood.redraw(len(batch.y), self.generator)

    def total(self) -> float:
        """Return the bound over all observations."""
        total = 0.0
        with torch.no_grad():
            for batch in self.batches:
                self.redraw(batch)
                weight = len(batch.y) / self.count
                total += weight * float(self(batch))
        return total

    def learned(self) -> list[tuple[str, Tensor]]:
        """Return the parameters (...) that are learned, with their names."""
        return [(name, p) for name, p in self.model.named_parameters() if p.requires_grad]


class Vector:
    """The learned parameters as one vector, without the upper triangles that count for nothing.

    Args:
        objective: Whose model.
        posterior_only: Without the hyperparameters.
    """

    def __init__(self, objective: Objective, posterior_only: bool = False) -> None:
        factor = objective.model.variational_parameters[1]
        self.parts = []
        low: list[Floats] = []
        high: list[Floats] = []
        for name, parameter in objective.learned():
            if posterior_only and name in objective.bounds:
                continue
            mask = torch.ones_like(parameter, dtype=torch.bool)
            self.parts.append((parameter, mask.tril() if parameter is factor else mask))
            size = int(self.parts[-1][1].sum())
            bounds = objective.bounds.get(name, (-np.inf, np.inf))
            low.append(np.full(size, bounds[0]))
            high.append(np.full(size, bounds[1]))
        self.low, self.high = np.concatenate(low), np.concatenate(high)

    def get(self, gradient: bool = False) -> Floats:
        """Return the parameters, or their gradients, (p,)."""
        pieces = [parameter.grad if gradient else parameter.detach() for parameter, _ in self.parts]
        masked = zip(pieces, self.parts, strict=True)
        return np.concatenate(
            [p[mask].numpy() if p is not None else np.zeros(int(mask.sum())) for p, (_, mask) in masked]
        )

    def set(
        self,
        values: Floats,  # (p,)
    ) -> None:
        """Set the parameters to values (p,)."""
        start = 0
        for parameter, mask in self.parts:
            size = int(mask.sum())
            with torch.no_grad():
                parameter[mask] = torch.as_tensor(values[start : start + size])
            start += size


def train(objective: Objective, max_iterations: int | None, callback: Callable[[int, float], object] | None) -> Any:
    """Maximise the bound over the learned parameters, in place, and return the `ClassifierReport`.

    The posterior alone is learned first, and then the hyperparameters as well. One batch uses L-BFGS with bounds and
    fixed draws of the softmax, so that the bound is a smooth function. Several batches use Adam with new draws at each
    step, at three step sizes. A step size ends if the mean of the bound over 100 steps exceeds that of the 100 steps
    before by less than two standard errors.
    """
    objective.model.train()
    objective.likelihood.train()
    tell = callback or (lambda iteration, elbo: None)
    if len(objective.batches) == 1:
        return _lbfgs(objective, 500 if max_iterations is None else max_iterations, tell)
    return _adam(objective, 3000 if max_iterations is None else max_iterations, tell)


class _Search:
    """L-BFGS over all observations, with fixed draws."""

    def __init__(self, objective: Objective, tell: Callable[[int, float], object]) -> None:
        self.objective, self.tell = objective, tell
        (self.batch,) = objective.batches
        objective.redraw(self.batch)
        self.vector = Vector(objective, posterior_only=True)
        self.trace = [-self.evaluate(self.vector.get())[0]]
        self.evaluations = 1

    def evaluate(self, values: Floats) -> tuple[float, Floats]:
        self.vector.set(values)
        self.objective.model.zero_grad()
        loss = -self.objective(self.batch)
        loss.backward()
        return float(loss.detach()), self.vector.get(gradient=True)

    def after(self, loss: float) -> None:
        self.trace.append(-loss)
        self.tell(len(self.trace) - 1, self.trace[-1])

    def run(self, most: int) -> tuple[bool, str]:
        """Learn for so many iterations; return whether it converged, and how it ended."""
        warm_up = min(WARM_UP, most // 2)
        left = most - (self._search(warm_up, restarts=0).iterations if warm_up else 0)
        self.vector = Vector(self.objective)
        found = self._search(left, restarts=math.inf)
        return found.converged, found.message

    def _search(self, most: int, restarts: float) -> Descent:
        """Search for so many iterations from where the vector stands."""
        size = len(self.vector.low)
        remembered = next(steps for limit, steps in _HISTORY if size <= limit)
        found = descend(
            self.evaluate,
            self.vector.get(),
            list(zip(self.vector.low, self.vector.high, strict=True)),
            most=most,
            tolerance=1e-9,
            gradient_tolerance=1e-4,
            restarts=restarts,
            rounding=_ROUNDING * len(self.batch.y),
            after=self.after,
            maxfun=4 * most + 10,
            maxcor=remembered,
        )
        self.vector.set(found.point)
        self.evaluations += found.evaluations
        return found


def _lbfgs(objective: Objective, most: int, tell: Callable[[int, float], object]) -> ClassifierReport:
    search = _Search(objective, tell)
    converged, message = search.run(most) if most > 0 else (False, "no iterations were allowed")
    trace = tuple(search.trace)
    return report_on(objective, converged, message, trace, trace[-1], len(trace) - 1, search.evaluations)


def _adam(objective: Objective, most: int, tell: Callable[[int, float], object]) -> ClassifierReport:
    trace: list[float] = []
    optimizer = torch.optim.Adam([p for _, p in objective.learned()], lr=RATES[0])
    settled = 0
    begun = 0
    queue: list[int] = []
    while len(trace) < most and settled < len(RATES):
        queue = queue or torch.randperm(len(objective.batches), generator=objective.generator).tolist()
        trace.append(_step(objective, objective.batches[queue.pop()], optimizer, posterior_only=len(trace) < WINDOW))
        tell(len(trace), trace[-1])
        if len(trace) - begun >= 2 * WINDOW and len(trace) % WINDOW == 0 and has_settled(trace[-2 * WINDOW :]):
            settled, begun = settled + 1, len(trace)
            for group in optimizer.param_groups:
                group["lr"] = RATES[min(settled, len(RATES) - 1)]
    converged = settled == len(RATES)
    message = "the bound settled" if converged else f"stopped after {counted(len(trace), 'step')}"
    return report_on(objective, converged, message, tuple(trace), objective.total(), len(trace), len(trace))


def report_on(
    objective: Objective,
    converged: bool,
    message: str,
    trace: tuple[float, ...],
    elbo: float,
    iterations: int,
    evaluations: int,
) -> ClassifierReport:
    """Return the report of a fit."""
    counts = torch.cat([batch.y for batch in objective.batches]).long().bincount().double()
    return ClassifierReport(
        converged=converged,
        iterations=iterations,
        evaluations=evaluations,
        elbo=elbo,
        constant=float((counts * (counts / counts.sum()).log()).sum()),
        message=message,
        trace=trace,
        num_inducing=len(objective.model.inducing),
        batches=len(objective.batches),
    )


def _step(objective: Objective, batch: Batch, optimizer: Any, posterior_only: bool) -> float:
    objective.redraw(batch)
    optimizer.zero_grad()
    bound = objective(batch)
    (-bound / objective.count).backward()
    for name, parameter in objective.learned():
        if posterior_only and name in objective.bounds:
            parameter.grad = None
    optimizer.step()
    with torch.no_grad():
        for name, parameter in objective.learned():
            if name in objective.bounds:
                parameter.clamp_(*objective.bounds[name])
    return float(bound.detach())


def has_settled(
    trace: Sequence[float],  # (2 w,)
) -> bool:
    """Return whether the later half (w,) of a trace (2 w,) is no more than two standard errors above the earlier.

    Examples:
        >>> has_settled([1.0, 1.1, 1.0, 1.1]), has_settled([1.0, 1.1, 5.0, 5.1])
        (True, False)
    """
    half = len(trace) // 2
    early, late = np.array(trace[:half]), np.array(trace[half:])
    error = math.sqrt((early.var(ddof=1) + late.var(ddof=1)) / half)
    return bool(late.mean() - early.mean() <= 2 * error)
