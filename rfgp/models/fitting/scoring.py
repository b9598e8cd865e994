"""Maximising a marginal likelihood whose gradient is estimated: scoring steps with the average information.

Where conjugate gradients take the place of factorisations, the likelihood has the error of its log determinant, and
a line search on it stops anywhere. Its gradient with fixed draws is a smooth function of the hyperparameters, so a
root of it is sought: x += A^-1 g, with the average information of Gilmour, Thompson and Cullis (1995),

    A_ij = 1/2 (dC_i a)^T C^-1 (dC_j a),    a = C^-1 (y - mean),

which costs a solve for each hyperparameter and no trace; dC_i a is a central difference of C a, which needs no solve.
For the mean it is the Fisher information 1^T C^-1 1. Steps are the best of the quadratic model g^T s - s^T A s / 2 with
each entry within bounds and a trust radius in logarithms; how much a step gained is told from the gradients at its
ends, (g_0 + g_1)^T step / 2, as in BOLT-REML (Loh et al. 2015). With m draws the estimate has 1 + 1/m of the variance
of the maximum of the likelihood itself (ibid.), and the search ends where g^T A^-1 g is small (in bounds: twice what
the model expects): the squared distance to the root in standard errors.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import lsq_linear
from torch import Tensor

from rfgp.inference import ArrayRows, SparsePosterior
from rfgp.models.fitting.lbfgs import Plan
from rfgp.models.fitting.report import FitReport, Stage
from rfgp.models.state import State

Floats = NDArray[np.float64]

_MOST_STEPS = 50
_DONE, _NOTHING, _IN_A_ROW = 1e-3, 0.01, 2
"""Of g^T A^-1 g; and nats that steps in a row gain where the likelihood is flat, in all."""
_RADIUS, _LARGEST_RADIUS, _LEAST_RADIUS = 1.0, 2.0, 1e-3
_STEP = 1e-4
_RIDGE = 1e-8
_ROUNDING = 1e-13


def ascend(
    make: Callable[[ArrayRows], SparsePosterior], rows: ArrayRows, state: State, plan: Plan, stage: str = "all rows"
) -> FitReport:
    """Maximise the likelihood and the log prior over the hyperparameters that are not fixed, in place.

    Args:
        make: Returns the posterior of rows at the present hyperparameters.
        rows: Those to fit.
        state: Its hyperparameters are changed in place.
        plan: What the user asked for.
        stage: What this is called.
    """
    return _Scoring(lambda: make(rows), rows, state, plan, stage).run()


class _Scoring:
    """One search."""

    def __init__(
        self, make: Callable[[], SparsePosterior], rows: ArrayRows, state: State, plan: Plan, stage: str
    ) -> None:
        self._make, self._known, self._plan, self._stage = make, state.hyperparameters, plan, stage
        self._free = state.hyperparameters.free(plan.fixed)
        self._parameters = [parameter for _, parameter, _ in self._free]
        self._names = [name for name, parameter, _ in self._free for _ in range(parameter.numel())]
        limits = [entry for _, _, entries in self._free for entry in entries]
        self._low = np.array([-np.inf if low is None else low for low, _ in limits])
        self._high = np.array([np.inf if high is None else high for _, high in limits])
        self._rows, self._count = len(rows), rows.count
        self._jacobian = state.scaling.targets.log_jacobian(rows.count)

    def run(self) -> FitReport:
        """Return the report; the hyperparameters are those found."""
        plan = self._plan
        most = min(_MOST_STEPS, plan.max_iterations)
        plan.reporter.begin(self._stage, self._rows, most)
        if not self._free:
            value = self._value()
            return FitReport(True, 0, 0, value, "every hyperparameter is fixed", likelihood_error=self._error)
        point, radius, steps, flat = self._within(self._point()), _RADIUS, 0, 0
        self._write(point)
        trace, evaluations = [self._value()], 1
        gradient, information = self._evaluate(point)
        message, converged = "the steps ran out", False
        while True:
            step, decrement = self._step(point, gradient, information, radius)
            if decrement < _DONE:
                message, converged = "the gradient is within a small part of its standard error of 0", True
                break
            if flat >= _IN_A_ROW:
                message, converged = f"steps gain less than {_NOTHING:g} nats", True
                break
            if steps >= most:
                break
            there, before = self._evaluate(self._within(point + step)), float(gradient @ step)
            evaluations += 1
            gain = 0.5 * (before + float(there[0] @ step))
            expected = before - 0.5 * float(step @ information @ step)
            if gain < 0.1 * expected:
                radius = 0.25 * float(np.abs(step).max())
                if radius < _LEAST_RADIUS:
                    message, converged = "no further progress at this precision", True
                    break
                continue
            radius = min(2 * radius, _LARGEST_RADIUS) if gain > 0.75 * expected else radius
            point, (gradient, information), steps = self._within(point + step), there, steps + 1
            trace.append(trace[-1] + gain)
            flat = flat + 1 if gain < _NOTHING else 0
            plan.reporter.iteration(steps, trace[-1])
        self._write(point)
        reached = self._value()
        at_bounds = tuple(
            dict.fromkeys(
                n for n, x, a, b in zip(self._names, point, self._low, self._high, strict=True) if x in (a, b)
            )
        )
        done = Stage(self._stage, self._rows, steps, evaluations, (reached - trace[0]) / self._count)
        return FitReport(
            converged,
            steps,
            evaluations,
            reached,
            message,
            at_bounds,
            tuple(trace),
            (done,),
            likelihood_error=self._error,
        )

    def _step(self, point: Floats, gradient: Floats, information: Floats, radius: float) -> tuple[Floats, float]:
        """Return the best step within bounds and radius, and twice the gain expected without the radius.

        What is expected is g^T s - s^T A s / 2, with eigenvalues of the scaled A from 1e-4 on. A radius that holds one
        entry back leaves the others their own best: a shorter step along the same line would leave a narrow ridge,
        such as that of noise and lengthscale.
        """
        scale = np.sqrt(np.maximum(np.diag(information), _RIDGE * max(1.0, np.diag(information).max())))
        values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
        root = np.sqrt(np.maximum(values, _RIDGE**0.5))
        matrix, target = root[:, None] * vectors.T, (vectors.T @ (gradient / scale)) / root

        def best(most: float) -> Floats:
            low, high = np.maximum(self._low - point, -most), np.minimum(self._high - point, most)
            step, free = np.zeros_like(point), high > low
            if free.any():
                limits = ((low * scale)[free], (high * scale)[free])
                step[free] = lsq_linear(matrix[:, free], target, limits, method="bvls", max_iter=100).x / scale[free]
            return np.asarray(np.clip(step, low, high))

        whole = best(np.inf)
        expected = 2 * float(gradient @ whole) - float(np.square(matrix @ (whole * scale)).sum())
        return best(radius), expected

    def _within(self, point: Floats) -> Floats:
        """Return the point within the bounds, and on those that it misses by rounding."""
        for bound in (self._low, self._high):
            point = np.where(np.isclose(point, bound, rtol=_ROUNDING, atol=_ROUNDING), bound, point)
        return np.clip(point, self._low, self._high)

    def _evaluate(self, point: Floats) -> tuple[Floats, Floats]:
        """Return gradient (p,) and information (p, p), those of the priors included."""
        self._write(point)
        found = self._plan.journal.remember(self._stage, self._compute)
        return found["gradient"].numpy(), found["information"].numpy()

    def _compute(self) -> dict[str, Tensor]:
        with torch.enable_grad():
            posterior = self._make()
            gradient = torch.cat([g.reshape(-1) for g in self._gradients(posterior.score())])
            in_prior, curvature = self._prior()
        information = self._information(posterior) + torch.diag(curvature.clamp_min(0))
        return {"gradient": (gradient + in_prior).double(), "information": information}

    def _gradients(self, total: Tensor) -> list[Tensor]:
        found = torch.autograd.grad(total, self._parameters, allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for p, g in zip(self._parameters, found, strict=True)]

    def _prior(self) -> tuple[Tensor, Tensor]:
        """Return gradient and negative second derivatives (p,) of the log priors, by differences of the gradient."""
        point = self._point()

        def slope() -> Tensor:
            total = self._known.log_prior()
            zeros = [torch.zeros(p.numel(), dtype=torch.float64) for p in self._parameters]
            found = [g.reshape(-1).double() for g in self._gradients(total)] if total.requires_grad else zeros
            return torch.cat(found)

        ends = []
        for sign in (1, -1):
            self._write(point + sign * _STEP)  # priors are of one entry each
            ends.append(slope())
        self._write(point)
        return slope(), (ends[1] - ends[0]) / (2 * _STEP)

    @torch.no_grad()
    def _information(self, posterior: SparsePosterior) -> Tensor:
        """Return A (p, p) of the likelihood."""
        point, a = self._point(), posterior.coefficients
        k, columns = a.shape[1], []
        for j, name in enumerate(self._names):
            ends = []
            for sign in (1, -1):
                self._write(point + sign * _STEP * (np.arange(len(point)) == j))
                other = self._make()
                ends.append(other.residual if name == "mean" else other.product(a))
            columns.append((ends[0] - ends[1]) / (2 * _STEP))
        self._write(point)
        changes = torch.stack(columns)  # (p, n, k)
        solved = posterior.solve(changes.movedim(1, 0).reshape(len(a), -1))
        products = torch.einsum("pnk,nqk->pq", changes, solved.reshape(len(a), len(columns), k))
        is_mean = torch.tensor([name == "mean" for name in self._names])
        weights = torch.where(is_mean, 1.0, 0.5**0.5)
        return products * weights * weights[:, None] * (is_mean == is_mean[:, None])

    def _value(self) -> float:
        """Return the log marginal likelihood with the priors, and remember its standard error."""

        def compute() -> dict[str, Tensor]:
            with torch.no_grad():
                posterior = self._make()
                value = posterior.log_marginal_likelihood() + self._jacobian
            return {"value": value, "error": torch.tensor(posterior.likelihood_error, dtype=torch.float64)}

        found = self._plan.journal.remember(f"{self._stage}: value", compute)
        self._error = float(found["error"])
        return float(found["value"])

    def _point(self) -> Floats:
        parts: list[Any] = [p.detach().reshape(-1).double().numpy() for p in self._parameters]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _write(self, point: Floats) -> None:
        first = 0
        with torch.no_grad():
            for parameter in self._parameters:
                part = torch.as_tensor(point[first : first + parameter.numel()])
                parameter.copy_(part.reshape(parameter.shape))
                first += parameter.numel()
