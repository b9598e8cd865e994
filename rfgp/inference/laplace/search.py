"""The mode of the latent function under a likelihood: Newton's method, damped, by Gaussian regressions.

With the derivatives g of the log density and weights W > 0 at f, a step is the posterior mean of a Gaussian regression
on the working observations z = f + g / W of noise 1 / W (Rasmussen and Williams 2006, Algorithm 3.1; reweighted least
squares). Along the way f - mean = K a, so that

    psi(f) = sum_i log p(y_i | f_i) - (f - mean)^T a / 2

costs no algebra, and steps are halved until it rises: for a concave log density that converges from anywhere. Where it
is not concave (Student's t) W is larger than the curvature, such that a step leads uphill (reweighted least squares),
and Newton's is found by conjugate gradients that such a regression preconditions, K^-1 of whose vectors is known as a
is; where the curvature of psi is not negative, the first is taken.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from rfgp.errors import SolverError
from rfgp.likelihoods import Likelihood
from rfgp.likelihoods.role import LEAST_CURVATURE
from rfgp.rows import Block

MOST_STEPS = 300
MOST_HALVINGS = 90
MOST_INNER, SOLVED = 100, 1e-8
"""Conjugate gradients for a step, and the relative residual that ends them."""
TOLERANCE = 1e-14
"""Of the square of Newton's decrement, in nats a thousand rows: what the next step would gain, twice."""
FLOOR = 1e-6
"""Of the decrement: below it one that falls no more, or a step that gains nothing, is rounding. A search that ends here
by its number of steps has found the evidence to that."""
ROUNDED = 1e-11
"""Of |psi|: a gain that may be rounding."""

NOT_FINITE = "The log density of the targets is not finite where the search for their mode starts: at the mean."

Regress = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From z - mean (n,) to f - mean (n,) and a (n,) of a Gaussian regression."""
Solve = Callable[[Tensor], Regress]
"""From W (n,) to the regression."""


class Counted(NamedTuple):
    """Derivatives of the log density of rows that count several times, at f."""

    f: Tensor  # (n,)
    value: Tensor  # 0-d, of all rows
    first: Tensor  # (n,)
    weight: Tensor  # W (n,), of the Laplace approximation
    change: Tensor  # dW / df (n,)
    curvature: Tensor  # (n,), which may be negative
    uphill: Tensor  # (n,), which is not, and at least as large


@dataclass(frozen=True, eq=False)
class Observed:
    """Observations under a likelihood, its parameters included; f is without the rows' exposures.

    Attributes:
        likelihood: The law.
        rows: The data.
    """

    likelihood: Likelihood
    rows: Block

    @property
    def y(self) -> Tensor:
        """The targets (n,)."""
        return self.rows.targets[:, 0]

    def at(self, f: Tensor) -> Counted:
        """Return what is to be known at f (n,)."""
        seen, counts = f + self.rows.offset(), self.rows.counts()
        slopes = self.likelihood.slopes(self.y, seen)
        weight, change = self.likelihood.information(slopes, seen)
        weight = (weight * counts).clamp_min(LEAST_CURVATURE)
        value, curvature = (slopes.value * counts).sum(), -slopes.second * counts
        uphill = (self.likelihood.majorizer(slopes, self.y, seen) * counts).clamp_min(LEAST_CURVATURE)
        return Counted(f, value, slopes.first * counts, weight, change * counts, curvature, uphill)

    def value(self, f: Tensor) -> Tensor:
        """Return the log density of all rows at f (n,), 0-d; -inf where it is no number."""
        total = (self.likelihood.log_density(self.y, f + self.rows.offset()) * self.rows.counts()).sum()
        return torch.where(torch.isfinite(total), total, -torch.inf)


def find_mode(observed: Observed, solve: Solve, mean: Tensor, near: Tensor | None = None) -> Counted:
    """Return the mode, with what is to be known there.

    Args:
        observed: The data.
        solve: The Gaussian regression.
        mean: Of the latent function, 0-d.
        near: Where it may be (n,).

    Raises:
        SolverError: steps lead nowhere: the log density has no finite value, or no mode is reached.
    """
    f, a, value = _begun(observed, solve, mean, near)
    now = observed.at(f)
    tolerance = TOLERANCE * (1 + len(f) / 1000)
    decrement, floor = torch.inf, FLOOR
    for _ in range(MOST_STEPS):
        if not bool(torch.isfinite(value)):
            raise SolverError(NOT_FINITE)
        step, change = _step(now, f - mean, a, solve, is_concave=observed.likelihood.is_concave)
        last, decrement = decrement, float(step @ (now.first - a))
        floor = max(FLOOR, ROUNDED * abs(float(value)))
        length, better = 1.0, None
        for _ in range(MOST_HALVINGS):
            tried = f + length * step
            found = observed.value(tried) - 0.5 * (tried - mean) @ (a + length * change)
            if found >= value - floor * (decrement < floor):
                better = found
                break
            length /= 2
        if better is None:
            if decrement < floor:
                return now
            raise SolverError(lost(decrement))
        f, a, value = f + length * step, a + length * change, better
        now = observed.at(f)
        if decrement <= tolerance or last <= decrement < floor:
            return now
    if decrement < floor:
        return now
    raise SolverError(lost(decrement))


def _begun(observed: Observed, solve: Solve, mean: Tensor, near: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return f, a (n,) each and psi (0-d): a step from `near` if it leads beyond the mean, else the mean."""
    f = mean.expand(len(observed.y)).clone()
    value = observed.value(f)
    if near is None:
        return f, torch.zeros_like(f), value
    at = observed.at(near)
    step, a = solve(at.uphill)(near - mean + at.first / at.uphill)
    other = observed.value(mean + step) - 0.5 * step @ a
    return (mean + step, a, other) if bool(other > value) else (f, torch.zeros_like(f), value)


def _step(now: Counted, left: Tensor, a: Tensor, solve: Solve, *, is_concave: bool) -> tuple[Tensor, Tensor]:
    """Return Newton's step in f and in a, (n,) each, from f - mean and a, or one that leads uphill."""
    weight = now.uphill
    regress = solve(weight)
    fitted, reached = regress(left + now.first / weight)
    step, change = fitted - left, reached - a
    if is_concave:
        return step, change
    right = now.first - a

    def times(v: Tensor, inverse: Tensor) -> Tensor:
        return inverse + now.curvature * v  # (K^-1 + W) v

    residual = right - times(step, change)
    x, y, goal = step, change, SOLVED * float(right.norm())
    if float(residual.norm()) <= goal:
        return step, change
    z, image = regress(residual / weight)
    p, q, rho = z, image, float(residual @ z)
    for _ in range(MOST_INNER):
        product = times(p, q)
        curvature = float(p @ product)
        if curvature <= 0:
            return step, change
        length = rho / curvature
        x, y, residual = x + length * p, y + length * q, residual - length * product
        if float(residual.norm()) <= goal or rho <= 0:
            break
        z, image = regress(residual / weight)
        rho, before = float(residual @ z), rho
        p, q = z + rho / before * p, image + rho / before * q
    return (x, y) if float(x @ right) > 0 else (step, change)


def lost(decrement: float) -> str:
    """Return what is said of a search that ended without a mode."""
    return (
        f"The mode of the latent function was not found: a step promises {decrement:.1e} nats and does not gain them. "
        "Its prior may be too wide for the likelihood: bound outputscale with a prior, or scale the targets."
    )
