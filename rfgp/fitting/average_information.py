"""Scoring steps with the average information, for estimated gradients.

Conjugate gradients estimate the log determinant. A line search on such a likelihood may stop anywhere. With fixed draws
the estimated gradient is a smooth function of the hyperparameters. Steps x += A^-1 g find its root. A is the average
information of Gilmour, Thompson and Cullis (1995):

    A_ij = 1/2 (dC_i a)^T C^-1 (dC_j a),    a = C^-1 (y - mean).

It costs a solve for each hyperparameter and no trace. A central difference of C a gives dC_i a without a solve. For the
mean it is the Fisher information 1^T C^-1 1. A step maximizes the quadratic model g^T s - s^T A s / 2 within the bounds
and a trust radius in logarithms. Its gain is estimated from the gradients at its ends, (g_0 + g_1)^T step / 2, as in
BOLT-REML (Loh et al. 2015). With m draws the variance of the estimate is 1 + 1/m times that of the exact maximizer
(ibid.). The search ends when g^T A^-1 g is small. This is the squared distance to the root in standard errors.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import lsq_linear
from torch import Tensor

from rfgp.fitting.maximize import Plan, not_searched
from rfgp.models import FitReport, Stage
from rfgp.models.report import TIME_OVER
from rfgp.parameters import ParameterValues
from rfgp.rows import Rows
from rfgp.solvers import Inference
from rfgp.solvers.iterative import IterativeSolver

Floats = NDArray[np.float64]

_MAX_STEPS = 50
"""The maximum number of steps of a search."""
_FLAT_GAIN, _IN_A_ROW = 0.01, 2
"""The gain in nats of a flat step, and the number of flat steps at convergence."""
_RADIUS, _MAX_RADIUS, _MIN_RADIUS = 1.0, 2.0, 1e-3
"""The first, largest and least trust radius."""
STEP = 1e-4
"""The step of central differences."""
_RIDGE = 1e-8
"""The least diagonal entry of the information, relative to the largest."""
_ROUNDING = 1e-13
"""The relative distance at which a point is on a bound."""


class Scored(Inference, Protocol):
    """Interface: inference whose likelihood has a gradient, exact or estimated."""

    def score(self) -> Tensor:
        """Return a scalar whose gradient is that of the log marginal likelihood, 0-d."""


S = TypeVar("S", bound=Scored)
Infer = Callable[[ParameterValues], S]
"""Returns the inference from some rows at hyperparameters."""


class Scoring(ABC, Generic[S]):
    """One search by steps A^-1 g within bounds and a trust radius.

    Args:
        infer: Returns the inference from the rows.
        rows: The rows.
        jacobian: The log Jacobian that takes their likelihood to the user's units.
        values: The starting values.
        plan: The options of the fit.
        stage: The name of the stage in the report.
    """

    done: ClassVar[float] = 1e-3
    """The g^T A^-1 g at convergence, the squared distance to the maximum in standard errors."""

    def __init__(
        self, infer: Infer[S], rows: Rows, jacobian: float, values: ParameterValues, plan: Plan, stage: str = "all rows"
    ) -> None:
        self._infer, self._start, self._plan, self._stage = infer, values, plan, stage
        self._free = values.space.free(plan.fixed)
        self._names = [name for name in self._free for _ in range(values.raw[name].numel())]
        limits = [entry for name in self._free for entry in values.space.bounds(name)]
        self._low = np.array([-np.inf if low is None else low for low, _ in limits])
        self._high = np.array([np.inf if high is None else high for _, high in limits])
        self._rows, self._count, self._jacobian = len(rows), rows.count, jacobian

    def run(self) -> tuple[ParameterValues, FitReport]:
        """Return the hyperparameters found, and the report.

        Returns:
            The hyperparameters at the last accepted step, and the report. The likelihood of the report is in the user's
            units.
        """
        plan = self._plan
        most = min(_MAX_STEPS, plan.max_iterations)
        plan.reporter.begin(self._stage, self._rows, most)
        if not self._free:
            value, error = self._value(self._start)
            fixed = FitReport(True, 0, 0, value, "every hyperparameter is fixed", likelihood_error=error)
            return self._start, fixed
        if plan.is_over():
            return self._start, not_searched(self._stage, self._rows)
        begun = plan.checkpoint.begin(self._stage, self._start.raw)
        if begun is not None and begun.has_ended:
            return self._start.replaced(begun.tensors), begun.report
        if begun is None:
            point = self._within(self._start.vector(self._free))
            trace, evaluations = [self._value(self._at(point))[0]], 1
        else:
            point = self._start.replaced(begun.tensors).vector(self._free)
            trace, evaluations = list(begun.report.trace), begun.report.evaluations + 1
        values, report = self._search(point, trace, evaluations, most)
        plan.checkpoint.record(values.raw, report, has_ended=True)
        return values, report

    def _search(
        self, point: Floats, trace: list[float], evaluations: int, most: int
    ) -> tuple[ParameterValues, FitReport]:
        """Take steps from a point (p,), after those of a trace of likelihoods."""
        plan, radius, steps, flat = self._plan, _RADIUS, len(trace) - 1, 0
        gradient, information = self._evaluate(point)
        message, converged = "the steps ran out", False
        while True:
            step, decrement = self.step(point, gradient, information, radius)
            if decrement < self.done:
                message, converged = "the gradient is within a small part of its standard error of 0", True
                break
            if flat >= _IN_A_ROW:
                message, converged = f"steps gain less than {_FLAT_GAIN:g} nats", True
                break
            if steps >= most:
                break
            if plan.is_over():
                message = TIME_OVER
                break
            there, before = self._evaluate(self._within(point + step)), float(gradient @ step)
            evaluations += 1
            gain = 0.5 * (before + float(there[0] @ step))
            expected = before - 0.5 * float(step @ information @ step)
            if gain < 0.1 * expected:
                radius = 0.25 * float(np.abs(step).max())
                if radius < _MIN_RADIUS:
                    message, converged = "no further progress at this precision", True
                    break
                continue
            radius = min(2 * radius, _MAX_RADIUS) if gain > 0.75 * expected else radius
            point, (gradient, information), steps = self._within(point + step), there, steps + 1
            trace.append(trace[-1] + gain)
            flat = flat + 1 if gain < _FLAT_GAIN else 0
            done = FitReport(False, steps, evaluations, math.nan, "interrupted", trace=tuple(trace))
            plan.checkpoint.record(self._at(point).raw, done, has_ended=False)
            plan.reporter.iteration(steps, trace[-1])
        values = self._at(point)
        reached, error = self._value(values)
        at_bounds = tuple(
            dict.fromkeys(
                n for n, x, a, b in zip(self._names, point, self._low, self._high, strict=True) if x in (a, b)
            )
        )
        stage = Stage(self._stage, self._rows, steps, evaluations, (reached - trace[0]) / self._count)
        figures = (converged, steps, evaluations, reached, message, at_bounds, tuple(trace), (stage,))
        return values, FitReport(*figures, likelihood_error=error)

    def step(self, point: Floats, gradient: Floats, information: Floats, radius: float) -> tuple[Floats, float]:
        """Return the best step within bounds and radius, and twice its unrestricted gain.

        The expected gain is g^T s - s^T A s / 2, with eigenvalues of the scaled A of at least 1e-4. If the radius
        limits one entry, the others are optimized again: a shorter step along the same line would leave a narrow
        ridge, such as that of noise and lengthscale.

        Args:
            point: The raw values of the free hyperparameters, (p,).
            gradient: The gradient g of the log posterior, (p,).
            information: The information A, (p, p).
            radius: The largest absolute entry of the step.

        Returns:
            The step s, (p,), and g^T A^-1 g within the bounds, but without the radius.
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

        full = best(np.inf)
        expected = 2 * float(gradient @ full) - float(np.square(matrix @ (full * scale)).sum())
        return best(radius), expected

    def _within(self, point: Floats) -> Floats:
        """Return the point within the bounds, and on a bound that it misses by rounding."""
        for bound in (self._low, self._high):
            point = np.where(np.isclose(point, bound, rtol=_ROUNDING, atol=_ROUNDING), bound, point)
        return np.clip(point, self._low, self._high)

    def _at(self, point: Floats) -> ParameterValues:
        return self._start.moved(self._free, point)

    def _evaluate(self, point: Floats) -> tuple[Floats, Floats]:
        """Return the gradient (p,) and information (p, p), hyperpriors included."""
        with torch.enable_grad():
            values = self._at(point).leaves(self._free)
            inference = self._infer(values)
            gradient = self._flat_gradient(inference.score(), values)
        in_prior, curvature = self._prior(point)
        information = self.information(point, inference) + torch.diag(curvature.clamp_min(0))
        return (gradient + in_prior).double().numpy(), information.numpy()

    def _flat_gradient(self, total: Tensor, values: ParameterValues) -> Tensor:
        leaves = [values.raw[name] for name in self._free]
        if not total.requires_grad:
            return torch.zeros(sum(leaf.numel() for leaf in leaves), dtype=torch.float64)
        gradients = torch.autograd.grad(total, leaves, allow_unused=True)
        pairs = zip(leaves, gradients, strict=True)
        return torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1) for p, g in pairs]).double()

    def _prior(self, point: Floats) -> tuple[Tensor, Tensor]:
        """Return the gradient and negative second derivatives (p,) of the log hyperpriors."""

        def slope(at: Floats) -> Tensor:
            with torch.enable_grad():
                values = self._at(at).leaves(self._free)
                return self._flat_gradient(values.log_hyperprior(), values)

        ends = [slope(point + sign * STEP) for sign in (1, -1)]
        return slope(point), (ends[1] - ends[0]) / (2 * STEP)

    @abstractmethod
    def information(self, point: Floats, inference: S) -> Tensor:
        """Return the information A (p, p) of the likelihood at a point (p,).

        Args:
            point: The raw values of the free hyperparameters, (p,).
            inference: The inference at this point.
        """

    def _value(self, values: ParameterValues) -> tuple[float, float]:
        """Return the log marginal likelihood, and its standard error."""
        with torch.no_grad():
            inference = self._infer(values)
            return float(inference.log_marginal_likelihood() + self._jacobian), inference.likelihood_error


class AverageInformation(Scoring[IterativeSolver]):
    """A search by the average information, with a gradient estimated from fixed draws."""

    def information(self, point: Floats, inference: IterativeSolver) -> Tensor:
        """Return the average information A (p, p) of the likelihood at a point (p,).

        Args:
            point: The raw values of the free hyperparameters, (p,).
            inference: The solver at this point.
        """
        a = inference.coefficients
        k, columns = a.shape[1], []
        for j, name in enumerate(self._names):
            ends = []
            for sign in (1, -1):
                with torch.no_grad():
                    other = self._infer(self._at(point + sign * STEP * (np.arange(len(point)) == j)))
                ends.append(other.residual if name == "mean" else other.product(a))
            columns.append((ends[0] - ends[1]) / (2 * STEP))
        changes = torch.stack(columns)  # (p, n, k)
        solved = inference.solve(changes.movedim(1, 0).reshape(len(a), -1))
        products = torch.einsum("pnk,nqk->pq", changes, solved.reshape(len(a), len(columns), k))
        is_mean = torch.tensor([name == "mean" for name in self._names])
        weights = torch.where(is_mean, 1.0, 0.5**0.5)
        return products * weights * weights[:, None] * (is_mean == is_mean[:, None])
