"""Scoring steps, for gradients that are estimated or cost a pass over all rows.

Steps x += A^-1 g find the root of the gradient g with an information A in place of the Hessian. A step maximizes the
quadratic model g^T s - s^T A s / 2 within the bounds and a trust radius in logarithms. Its gain is estimated from the
gradients at its ends, (g_0 + g_1)^T step / 2, as in BOLT-REML (Loh et al. 2015). The search ends when g^T A^-1 g is
small. This is the squared distance to the root in standard errors. There are three kinds of information:

- Conjugate gradients estimate the log determinant, and a line search on such a likelihood may stop anywhere. With fixed
  draws the estimated gradient is a smooth function of the hyperparameters. A is the average information of Gilmour,
  Thompson and Cullis (1995), A_ij = 1/2 (dC_i a)^T C^-1 (dC_j a) with a = C^-1 (y - mean). It costs a solve for each
  hyperparameter and no trace. For the mean it is the Fisher information 1^T C^-1 1. With m draws the variance of the
  estimate is 1 + 1/m times that of the exact maximizer (Loh et al. 2015).
- On equispaced Fourier grids the Fisher information is exact, and costs about as much as the likelihood.
- A half-integer Matern process of one column yields the score and the information in one pass.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import lsq_linear
from torch import Tensor

from rfgp.errors import InvalidArgumentError
from rfgp.fitting.context import TermFit
from rfgp.fitting.maximize import at_bounds, recorded
from rfgp.fitting.progress import Searched
from rfgp.inference.sites.weights import LatticeLaplace
from rfgp.likelihoods.role import learned_parameters
from rfgp.limits import limits
from rfgp.models import FitReport, Stage
from rfgp.models.report import TIME_OVER
from rfgp.parameters import ParameterValues
from rfgp.rows import Block, Rows
from rfgp.solvers import Inference, chain, onepass
from rfgp.solvers.chain import ChainSolver, ascending_rows
from rfgp.solvers.choice import is_low_rank, uses_cg
from rfgp.solvers.iterative import IterativeSolver
from rfgp.solvers.onepass import OnePassSolver, has_lattices, residual_variance_of, scale_of

Floats = NDArray[np.float64]

_FLAT_GAIN, _IN_A_ROW = 0.01, 2
"""The gain in nats of a flat step, and the number of flat steps at convergence."""
_RADIUS, _MAX_RADIUS, _MIN_RADIUS = 1.0, 2.0, 1e-3
"""The first, largest and least trust radius."""
_STEP = 1e-4
"""The step of central differences."""
_RIDGE = 1e-8
"""The least diagonal entry of the information, relative to the largest."""
_ROUNDING = 1e-13
"""The relative distance at which a point is on a bound."""
_MIN_DEVIATION = 1e-150
"""The prior standard deviation below which a weight is treated as constant, so that its logarithm is finite."""


class Scored(Inference, Protocol):
    """Interface: inference whose likelihood has a gradient, exact or estimated."""

    def score(self) -> Tensor:
        """Return a scalar whose gradient is that of the log marginal likelihood, 0-d."""


S = TypeVar("S", bound=Scored)


class Scoring(ABC, Generic[S]):
    """One search by steps A^-1 g within bounds and a trust radius.

    Args:
        fit: The fit at its starting values.
        rows: The rows.
        stage: The name of the stage in the report.
    """

    done: ClassVar[float] = 0.01
    """The g^T A^-1 g at convergence, the squared distance to the maximum in standard errors."""

    def __init__(self, fit: TermFit, rows: Rows, stage: str) -> None:
        self._fit, self._rows, self._start, self._plan = fit, rows, fit.values, fit.plan
        self._stage, self._free, space = stage, fit.free, fit.values.space
        self._names = [name for name in self._free for _ in range(fit.values.raw[name].numel())]
        limits = [entry for name in self._free for entry in space.bounds(name)]
        self._low = np.array([-np.inf if low is None else low for low, _ in limits])
        self._high = np.array([np.inf if high is None else high for _, high in limits])

    def run(self) -> tuple[ParameterValues, FitReport]:
        """Return the hyperparameters at the last accepted step, and the report of the search."""
        size, start = len(self._rows), self._start
        return recorded(start, self._plan, self._stage, size, self._free, self._value, self._searched)

    def _searched(self, begun: Searched | None) -> tuple[ParameterValues, FitReport]:
        """Take steps from the start, or from the last iteration of a search that was recorded."""
        if begun is None:
            point = self._within(self._start.vector(self._free))
            trace, evaluations = [self._reached(self._at(point))[0]], 1
        else:
            point = self._start.replaced(begun.tensors).vector(self._free)
            trace, evaluations = list(begun.report.trace), begun.report.evaluations + 1
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
            if steps >= plan.max_iterations:
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
        trace[-1], reached, error = self._reached(values)  # the sum of estimated gains differs a little
        stage = Stage(self._stage, len(self._rows), steps, evaluations, (trace[-1] - trace[0]) / self._rows.count)
        report = FitReport(converged, steps, evaluations, reached, message, likelihood_error=error)
        bounds = at_bounds(values, self._free)
        return values, replace(report, at_bounds=bounds, trace=tuple(trace), stages=(stage,))

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

    def _infer(self, values: ParameterValues) -> S:
        """Return the inference from the rows at some hyperparameters."""
        return cast(S, self._fit.at(values).state.infer(self._rows))

    def _slopes(self, point: Floats, quantities: Callable[[ParameterValues], Sequence[Tensor]]) -> list[Tensor]:
        """Return the derivatives (..., p) of quantities (...) at a point (p,)."""
        columns = []
        for step in _STEP * np.eye(len(point)):
            with torch.no_grad():
                ends = [quantities(self._at(point + sign * step)) for sign in (1, -1)]
            columns.append([(a - b) / (2 * _STEP) for a, b in zip(*ends, strict=True)])
        return [torch.stack(derivatives, dim=-1) for derivatives in zip(*columns, strict=True)]

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

        ends = [slope(point + sign * _STEP) for sign in (1, -1)]
        return slope(point), (ends[1] - ends[0]) / (2 * _STEP)

    @abstractmethod
    def information(self, point: Floats, inference: S) -> Tensor:
        """Return the information A (p, p) of the likelihood at a point (p,).

        Args:
            point: The raw values of the free hyperparameters, (p,).
            inference: The inference at this point.
        """

    def _reached(self, values: ParameterValues) -> tuple[float, float, float]:
        """Return the log posterior, the log marginal likelihood, and the standard error of both."""
        value, error = self._value(values)
        return value + float(values.log_hyperprior().detach()), value, error

    def _value(self, values: ParameterValues) -> tuple[float, float]:
        """Return the log marginal likelihood, and its standard error."""
        with torch.no_grad():
            inference = self._infer(values)
            jacobian = self._fit.state.scaling.targets.log_jacobian(self._rows.count)
            return float(inference.log_marginal_likelihood() + jacobian), inference.likelihood_error


class AverageInformation(Scoring[IterativeSolver]):
    """A search by the average information, with a gradient estimated from fixed draws."""

    done: ClassVar[float] = 1e-3

    def information(self, point: Floats, inference: IterativeSolver) -> Tensor:
        """Return the average information A (p, p) of the likelihood at a point (p,).

        Args:
            point: The raw values of the free hyperparameters, (p,).
            inference: The solver at this point.
        """
        a = inference.coefficients

        def quantities(values: ParameterValues) -> tuple[Tensor, Tensor]:
            other = self._infer(values)
            return other.residual, other.product(a)

        in_residual, in_product = self._slopes(point, quantities)
        changes = in_residual + in_product  # (n, k, p): one of the two is 0 for each hyperparameter
        solved = inference.solve(changes.reshape(len(a), -1)).reshape(changes.shape)
        products = torch.einsum("nkp,nkq->pq", changes, solved)
        is_mean = torch.tensor([name == "mean" for name in self._names])
        weights = torch.where(is_mean, 1.0, 0.5**0.5)
        return products * weights * weights[:, None] * (is_mean == is_mean[:, None])


class FisherScoring(Scoring[OnePassSolver | LatticeLaplace]):
    """A search by the Fisher information, from sufficient statistics of the rows on equispaced Fourier grids.

    On 10^5 rows of one column it takes 1.6 times the time of L-BFGS, but half of it with 1,000 features and a third of
    it with 4,000, whose factors cost more than the sums.
    """

    _last: tuple[bytes, OnePassSolver | LatticeLaplace] | None = None

    def _infer(self, values: ParameterValues) -> OnePassSolver | LatticeLaplace:
        """Return the inference, with the factors of the last one at equal values, or from its mode."""
        key, start = values.flat().detach().numpy().tobytes(), () if self._last is None else self._last[1].warm_start()
        inference = self._fit.at(values).state.infer(self._rows, start)
        assert isinstance(inference, OnePassSolver | LatticeLaplace)
        if self._last is not None and self._last[0] == key:
            known = vars(self._last[1])
            vars(inference).update({name: known[name] for name in inference.without_gradients if name in known})
        self._last = key, inference
        return inference

    def information(self, point: Floats, inference: OnePassSolver | LatticeLaplace) -> Tensor:
        """Return the Fisher information (p, p) at a point (p,).

        Args:
            point: The raw values of the free hyperparameters, (p,).
            inference: The inference at this point.
        """
        return inference.information(*self._slopes(point, self._quantities))

    def _quantities(self, values: ParameterValues) -> tuple[Tensor, Tensor, Tensor]:
        """Return the mean (k,), log v, 0-d, and log s^2 (F,)."""
        blocks, mean = self._fit.spec.prior(values).weights, values.standardized("mean").reshape(-1).double()
        noise = values.standardized("noise").double() if self._fit.spec.is_gaussian else 1.0  # without effect
        variance = noise + residual_variance_of(blocks)
        return mean, variance.log(), 2 * scale_of(blocks).clamp_min(_MIN_DEVIATION).log()


class StateSpaceScoring(Scoring[ChainSolver]):
    """A search whose score and information come from one pass over the rows of a Matern process of one column.

    60,000 rows on one core, nu 1/2 and 3/2: 9 and 7 evaluations take 0.13 s and 0.14 s. L-BFGS with the gradient of the
    smoother takes 15 to 20, and 0.16 to 0.23 s and 0.29 to 0.35 s. On 10^6 rows of a fast wave, L-BFGS ended two of
    three fits where the subset had left it, with all variance as noise.
    """

    def __init__(self, fit: TermFit, rows: Block, stage: str) -> None:
        super().__init__(fit, ascending_rows(fit.prior, rows), stage)

    def information(self, point: Floats, inference: ChainSolver) -> Tensor:
        """Return the information (p, p) at a point (p,).

        Args:
            point: The raw values of the free hyperparameters, (p,).
            inference: The solver at this point.
        """
        (slopes,) = self._slopes(point, lambda values: [self._infer(values).coordinates])
        return slopes.mT @ inference.information @ slopes


def scoring_for(fit: TermFit, rows: Rows) -> type[Scoring[Any]] | None:
    """Return how scoring steps search on some rows, or None for a search by L-BFGS.

    Args:
        fit: The fit at its starting values.
        rows: The rows.

    Raises:
        InvalidArgumentError: If conjugate gradients are needed under a likelihood that is not Gaussian.
    """
    prior, likelihood, is_gaussian = fit.prior, fit.spec.options.likelihood, fit.spec.is_gaussian
    if uses_cg(prior, rows):
        if not is_gaussian:
            raise InvalidArgumentError(
                f"Hyperparameters of sparse features under {likelihood!r} must be learned from at most "
                f"{limits().max_dense:,} observations, got {len(rows):,}. Fit fewer and condition on all, or use "
                "SparsePrecision() if the kernel has one."
            )
        return AverageInformation
    if has_lattices(prior):
        is_open = any(parameter.name in fit.free for parameter in learned_parameters(likelihood))
        is_many = len(rows) > limits().subset_rows and is_low_rank(prior, rows)  # on few rows it ends 0.05 nats lower
        can_score = onepass.supports(prior, rows) if is_gaussian else is_many and not is_open
        return FisherScoring if can_score else None
    is_long = len(rows) > 2 * limits().subset_rows
    return StateSpaceScoring if is_long and is_gaussian and chain.supports(prior) else None
