"""Marginal distributions of observations: mixtures of normal or Student-t distributions."""

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import special
from torch import Tensor
from torch.autograd.function import once_differentiable

from rfgp.inference.arguments import check_probabilities, check_values
from rfgp.inference.distributions import normal_cdf
from rfgp.threads import computed

NODES, NODE_WEIGHTS = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(5))
NODE_WEIGHTS = NODE_WEIGHTS / NODE_WEIGHTS.sum()
_MAX_STEPS = 80
"""The maximum number of steps of a search for a quantile."""


@dataclass(frozen=True, eq=False)
class MarginalMixture:
    """Marginal distributions of observations at n points: mixtures of Student-t or normal distributions.

    Attributes:
        weights: The weights of the members, (c,).
        means: Their means, (c, n).
        variances: Their predictive variances, (c, n).
        nodes: The nodes of g, (q, n). With zeros (1, n), scales are those of the members.
        df: The degrees of freedom, or inf.
        floor: The smallest squared scale.
        ceiling: The largest part of a predictive variance that is scaled. Far from all rows the prior variance is kept.

    Examples:
        >>> one, zero = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
        >>> mixture = MarginalMixture(one[0], zero, one, zero, math.inf)
        >>> round(mixture.quantile(torch.tensor([0.975], dtype=torch.float64)).item(), 3)
        1.96
    """

    weights: Tensor
    means: Tensor
    variances: Tensor
    nodes: Tensor
    df: float
    floor: float = 0.0
    ceiling: float = math.inf

    def log_prob(self, y: Tensor) -> Tensor:
        """Return the log densities at y, (n,)."""
        parts = [w.log() + _t_log_prob(y - mean, square, self.df) for w, mean, square in self._parts()]
        return torch.logsumexp(torch.stack(parts), dim=0)

    def interval_log_prob(self, y: Tensor, width: float) -> Tensor:
        """Return log(P(y - width / 2 < Y < y + width / 2) / width), (n,)."""
        total = torch.zeros_like(y)
        for w, mean, square in self._parts():
            scale, left, half = square.sqrt(), -(y - mean).abs(), 0.5 * width
            mass = (_cdf(left + half, scale, self.df) - _cdf(left - half, scale, self.df)) / width
            density = _t_log_prob(y - mean, square, self.df).exp()
            total = total + w * torch.where(half < 1e-3 * scale, density, mass)
        return total.clamp_min(1e-300).log()

    def cdf(self, y: Tensor) -> Tensor:
        """Return the probabilities of values up to y, (n,)."""
        parts = (w * _cdf(y - mean, square.sqrt(), self.df) for w, mean, square in self._parts())
        return sum(parts, start=torch.zeros_like(y))

    def quantile(self, p: Tensor) -> Tensor:
        """Return the quantiles at probabilities p, (n,), by Newton steps within brackets.

        The last step is differentiable.
        """
        with torch.no_grad():
            standard = torch.special.ndtri(p) if math.isinf(self.df) else _on_numpy(special.stdtrit, self.df, p)
            ends = torch.stack([mean + square.sqrt() * standard for _, mean, square in self._parts()])
            low, high = ends.amin(0), ends.amax(0)
            y, tolerance = (low + high) / 2, 1e-13 * (1 + ends.abs().amax(0))
            for _ in range(_MAX_STEPS):
                excess = self.cdf(y) - p
                low, high = torch.where(excess < 0, y, low), torch.where(excess < 0, high, y)
                newton = y - excess / self.log_prob(y).exp()
                is_inside = (newton > low) & (newton < high)
                new = torch.where(is_inside, newton, (low + high) / 2)
                done, y = bool(((new - y).abs() <= tolerance).all()), new
                if done:
                    break
        if not (self.means.requires_grad or self.variances.requires_grad or self.nodes.requires_grad):
            return y
        return y - (self.cdf(y) - p) / self.log_prob(y).exp().detach()

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return the means and variances, (n,) each."""
        mean = self.weights @ self.means
        spread = self.weights @ (self.means - mean).square()
        return mean, spread + variance_ratio(self.df) * (self.weights @ self.expected_squares())

    def expected_squares(self) -> Tensor:
        """Return the means over g of the squared scales of each member, (c, n)."""
        return self.variances + (factors(self.nodes) - 1) * self.variances.clamp_max(self.ceiling) + self.floor

    def _parts(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield the weight of each part, 0-d, with its means and squared scales (n,)."""
        node_weights = NODE_WEIGHTS if len(self.nodes) > 1 else self.weights.new_ones(1)
        for w, mean, variance in zip(self.weights, self.means, self.variances, strict=True):
            for q, g in zip(node_weights, self.nodes, strict=True):
                yield w * q, mean, variance + g.expm1() * variance.clamp_max(self.ceiling) + self.floor


def factors(nodes: Tensor) -> Tensor:
    """Return the means of e^g (n,), given the nodes of g, (q, n)."""
    return NODE_WEIGHTS @ nodes.exp() if len(nodes) > 1 else nodes[0].exp()


def variance_ratio(df: float) -> float:
    """Return the variance of Student's t relative to its squared scale, for more than two degrees of freedom."""
    return 1.0 if math.isinf(df) else df / (df - 2)


def _t_log_prob(r: Tensor, square: Tensor, df: float) -> Tensor:
    """Return the log densities of Student's t, or a normal distribution, with squared scales (...)."""
    if math.isinf(df):
        return -0.5 * ((2 * math.pi * square).log() + r.square() / square)
    constant = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(math.pi * df)
    return constant - 0.5 * square.log() - (df + 1) / 2 * (r.square() / (df * square)).log1p()


def _on_numpy(function: Any, df: float, values: Tensor) -> Tensor:
    return torch.as_tensor(function(df, values.detach().cpu().numpy())).to(values)


class _StudentCdf(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, df: float) -> Tensor:
        ctx.save_for_backward(z)
        ctx.df = df
        return _on_numpy(special.stdtr, df, z)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (z,) = ctx.saved_tensors
        return grads[0] * _t_log_prob(z, torch.ones_like(z), ctx.df).exp(), None


def _cdf(difference: Tensor, scale: Tensor, df: float) -> Tensor:
    """Return the probabilities (...) of at most `difference` from the mean, with scales that may be 0 if normal."""
    if math.isinf(df):
        return normal_cdf(difference, scale)
    student: Any = _StudentCdf
    out: Tensor = student.apply(difference / scale, df)
    return out


class ByMarginals:
    """Densities, probabilities and quantiles of a `Prediction` by its marginal distributions."""

    @abstractmethod
    def marginals(self) -> MarginalMixture:
        """Return the marginal distributions of the values in the user's units."""

    def cdf(self: Any, y: Any) -> Any:
        """Return the probabilities (n,) that values are at most y, one number or (n,)."""
        mean = self.mean_tensor()
        marginals, values = self.marginals(), check_values(y, mean, may_be_one=True).expand_as(mean)
        return self._out(marginals.cdf(values.to(marginals.means)))

    @computed
    def quantile(self: Any, probability: Any) -> Any:
        """Return the marginal quantiles, (n,), or (q, n) for q probabilities."""
        marginals, mean = self.marginals(), self.mean_tensor()
        p = check_probabilities("probability", probability, mean)
        levels = (level.to(marginals.means).expand_as(mean) for level in p.reshape(-1))
        quantiles = torch.stack([marginals.quantile(level) for level in levels])
        return self._out(quantiles.reshape(*p.shape, *mean.shape))

    def log_prob(self: Any, y: Any) -> Any:
        """Return the log density of each value (n,) under its marginal distribution."""
        marginals = self.marginals()
        return self._out(marginals.log_prob(check_values(y, self.mean_tensor()).to(marginals.means)))
