"""Integrals of the latent function over boxes, by products of Gauss-Legendre rules.

The integral over a box is the sum over nodes x_q of v_q f(x_q). It is Gaussian with the mean sum_q v_q m(x_q) and the
variance v^T C v, with C the covariance of the nodes. The residual variance of features is independent between points.
It does not contribute to an integral, because sum_q v_q^2 vanishes as the nodes become dense.

A rule is used if the prior variances of integrals change little from a rule with fewer nodes to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from scipy import special
from torch import Tensor

from rfgp.blocks import Prior
from rfgp.errors import InvalidArgumentError
from rfgp.inference.distributions import (
    Distribution,
    InputBlocks,
    LinearFunctionals,
    blocks_with_new_levels,
    in_memory,
)
from rfgp.inference.mixture import (
    ConditionedGP,
    MixtureDistribution,
    MixturePosterior,
    Terms,
    block_diagonal,
)

RULES = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""The numbers of nodes of a box, in the order in which they are tried."""
ERRORS = ((256, 1e-7), (1024, 1e-5), (4096, 1e-3))
"""The largest relative errors of prior variances, with the largest numbers of nodes for which they hold."""
MIN_VARIANCE_FRACTION = 1e-6
"""The smallest variance to which an error is relative, as a fraction of the upper bound of the variance."""
MAX_JOINT = 2**13
"""The maximum number of nodes of all boxes in total for which a joint covariance is formed."""


@dataclass(frozen=True, eq=False)
class BoxRule:
    """A product of Gauss-Legendre rules in the columns in which boxes extend.

    Two corners (2, D) define a box. They agree in all other columns.

    Attributes:
        columns: The indices of the columns.
        count: The number of nodes in each of them.
        unit: The volume, in the user's units, of a box with standardized volume 1.

    Examples:
        >>> rule = BoxRule((0,), 4)
        >>> nodes, weights = rule.of(torch.tensor([[[0.0], [2.0]]]))
        >>> round(float((weights * nodes[..., 0] ** 2).sum()), 4)  # the integral of x^2 over [0, 2]
        2.6667
    """

    columns: tuple[int, ...]
    count: int
    unit: float = 1.0

    def of(self, corners: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nodes (m, Q, D) and their weights (m, Q), float64, of boxes.

        Args:
            corners: The corners of the boxes, (m, 2, D).
        """
        columns, low, sides = list(self.columns), corners[:, :1], corners[:, 1:] - corners[:, :1]
        points, weights = (
            torch.stack(torch.meshgrid(*[torch.from_numpy(part / 2)] * len(columns), indexing="ij"), dim=-1)
            for part in special.roots_legendre(self.count)
        )
        fractions = points.new_zeros(self.count ** len(columns), corners.shape[2])
        fractions[:, columns] = points.flatten(0, -2) + 0.5
        volumes = self.unit * sides[:, 0, columns].double().prod(1)
        return low + fractions.to(corners) * sides, volumes[:, None] * weights.prod(-1).flatten().to(corners.device)


def rule_for(priors: Sequence[Prior], corners: Tensor, columns: tuple[int, ...], unit: float) -> BoxRule:
    """Return the quadrature for boxes.

    The error is that of the prior variance of the integral of each term, over the widest box of each column. It does
    not depend on the targets.

    Args:
        priors: The priors of the members of a mixture, or one prior.
        corners: The corners of the boxes, (m, 2, D), standardized.
        columns: The indices of the columns in which boxes extend.
        unit: The volume, in the user's units, of a box with standardized volume 1.

    Raises:
        InvalidArgumentError: If a box needs too many nodes.
    """
    corners = corners.detach().double()
    sides = (corners[:, 1] - corners[:, 0])[:, list(columns)]
    widest = corners[sorted(set(sides.argmax(0).tolist()))] if len(corners) else corners
    parts = [part for prior in priors for name in prior.names if (part := prior.of((name,))).blocks]
    before = None
    for size in RULES:
        rule = BoxRule(columns, round(size ** (1 / len(columns))), unit)
        boxes = list(zip(*rule.of(widest), strict=True))
        with torch.no_grad():
            moments = [_variance_of(part, *box) for part in parts for box in boxes] or [corners.new_ones(2)]
        variances, bounds = torch.stack(moments).mT
        if before is not None:
            scale = torch.maximum(variances, MIN_VARIANCE_FRACTION * bounds)
            error = float(((variances - before).abs() / scale.clamp_min(torch.finfo(scale.dtype).tiny)).max())
            if error <= next(largest for most, largest in ERRORS if size <= most):
                return rule
        before = variances
    raise InvalidArgumentError(
        f"A box must extend over few lengthscales, got one that needs more than {RULES[-1]:,} nodes. Divide it and add "
        "up the parts: gp.integrate(lows, highs).linear(np.ones(len(lows)))."
    )


def _variance_of(prior: Prior, nodes: Tensor, weights: Tensor) -> Tensor:
    """Return the prior variance of an integral and its upper bound, (2,)."""
    again = nodes.clone()  # a copy: residuals that are independent between points do not contribute
    new = (block.new_covariance(nodes, again) for block in blocks_with_new_levels(prior, None))
    kernel = sum(new, start=prior.kernel(nodes, again).double())
    return torch.stack([weights @ kernel @ weights, (weights @ kernel.diagonal().clamp_min(0).sqrt()).square()])


@dataclass(frozen=True, eq=False)
class BoxIntegrals(Distribution):
    """The joint distribution of integrals over m boxes.

    Attributes:
        process: The process of the function.
        nodes: The nodes of the boxes, (m, Q, D).
        weights: Their weights, (m, Q).
        shift: A constant that is added to the function, (k,) or ().
    """

    process: ConditionedGP
    nodes: Tensor
    weights: Tensor
    shift: Tensor

    @property
    def requires_grad(self) -> bool:
        """Whether the corners or parameters of the prior require a gradient."""
        return self._values.requires_grad

    def function_covariance(self) -> Tensor:
        """Return the covariances of C functions at each box, (m, C, C)."""
        return torch.cat([box.function_covariance() for box in self._boxes()])

    def _mean(self) -> Tensor:
        values = (self._values.mean() + self.shift).reshape(*self.weights.shape, -1)
        mean: Tensor = (self.weights[..., None] * values).sum(1)
        return mean

    def _variance(self) -> Tensor:
        variance, residual = torch.cat([box.variance() for box in self._boxes()]), self._independent_variance()
        return (variance - (residual[:, None] if variance.ndim > 1 else residual)).clamp_min(0)

    def _covariance(self) -> Tensor:
        covariance, residual = self._jointly().covariance(), self._independent_variance().diag()
        return covariance - (residual[..., None] if covariance.ndim > 2 else residual)

    def _root(self) -> Tensor:
        return self._jointly().root()

    @property
    def _values(self) -> Distribution:
        """The distribution of the function at all nodes."""
        return self.process.at(self.nodes.flatten(0, 1))

    def _boxes(self) -> list[LinearFunctionals]:
        """Return the integral over each box."""
        pairs = zip(self.nodes, self.weights, strict=True)
        return [LinearFunctionals(self.process.at(nodes), weights[None], self.shift) for nodes, weights in pairs]

    def _jointly(self) -> LinearFunctionals:
        """Return the integrals over all boxes as functionals of all nodes.

        Raises:
            InvalidArgumentError: If there are too many nodes.
        """
        return LinearFunctionals(self._values, joint_weights(self.weights), self.shift)

    def _independent_variance(self) -> Tensor:
        """Return the variances (m,) of weighted sums of residuals that are independent between nodes."""
        posterior, names, points = self.process.posterior, self.process.names, self.nodes.flatten(0, 1)
        blocks = [b for b in posterior.prior.weights if b.residual is not None and b.residual.is_noise]
        total = torch.zeros_like(self.weights)
        for block in blocks:
            if names is None or block.name in names:
                total = total + block.residual_variance(points, block.scaled(points)).reshape(total.shape)
        return (self.weights.square() * total).sum(1)


def joint_weights(weights: Tensor) -> Tensor:
    """Return the matrix of weights of all nodes of m boxes, (m, m Q).

    Args:
        weights: The weights of the nodes, (m, Q).

    Raises:
        InvalidArgumentError: If the boxes have more than `MAX_JOINT` nodes in total.
    """
    if weights.numel() > MAX_JOINT:
        raise InvalidArgumentError(
            f"The boxes of a covariance of integrals must have at most {MAX_JOINT:,} nodes in total, got "
            f"{len(weights):,} boxes with {weights.shape[1]:,} each. Use mean and std, or fewer boxes."
        )
    return block_diagonal(weights[:, None])


@dataclass(frozen=True, eq=False)
class IntegratedGP(ConditionedGP):
    """The process of integrals over boxes.

    Attributes:
        rule: The quadrature.
        shift: A constant that is added to the function, (k,) or ().
    """

    rule: BoxRule = field(kw_only=True)
    shift: Tensor = field(kw_only=True)

    def at(self, inputs: Tensor | InputBlocks) -> Distribution:
        """Return the joint distribution of integrals over boxes.

        Args:
            inputs: The corners of the boxes, (m, 2, D).
        """
        (nodes, weights), posterior = self.rule.of(in_memory(inputs)), self.posterior
        process = ConditionedGP(posterior, self.names, memory=self.memory)
        if not isinstance(posterior, MixturePosterior):
            return BoxIntegrals(process, nodes, weights, self.shift)
        members = [
            BoxIntegrals(replace(process, posterior=member), nodes, weights, self.shift + shift)
            for member, shift in zip(posterior.members, posterior.shifts, strict=True)
        ]
        zeros = [torch.zeros_like(shift) for shift in posterior.shifts]  # the integrals include them
        return MixtureDistribution(members, posterior.weights, zeros, posterior.noises)

    def of(self, *terms: str) -> "IntegratedGP":
        """Return the process of the sum of some terms, without the constant."""
        return replace(self, posterior=super().of(*terms).posterior, names=terms, shift=0 * self.shift)

    def cross_covariance(self, inputs: Tensor, first: Terms, second: Terms) -> Tensor:
        """Return the posterior covariance (m, m) or (m, m, C) between integrated sums of terms over m boxes."""
        nodes, weights = self.rule.of(inputs)
        joint = joint_weights(weights)
        base = super().cross_covariance(nodes.flatten(0, 1), first, second)
        if base.ndim == 2:
            return joint @ base @ joint.mT
        return (joint @ base.movedim(-1, 0) @ joint.mT).movedim(0, -1)
