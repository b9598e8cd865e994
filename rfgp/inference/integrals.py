"""Integrals of the latent function over boxes, by Gauss-Legendre quadrature.

The integral over a box is the sum over nodes x_q of v_q f(x_q). It is Gaussian with the mean sum_q v_q m(x_q) and the
variance v^T C v, with C the covariance of the nodes. The residual variance of features is independent between points.
It does not contribute to an integral, because sum_q v_q^2 vanishes as the nodes become dense.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp.blocks import Prior
from rfgp.errors import InvalidArgumentError
from rfgp.inference.distributions import (
    Distribution,
    InputBlocks,
    LatentDistribution,
    LinearFunctionals,
    check_joint_fits,
    in_memory,
)
from rfgp.inference.mixture import (
    ConditionedGP,
    LevelBlock,
    MixtureDistribution,
    MixturePosterior,
    Terms,
    WithNewLevels,
    blocks_with_new_levels,
)
from rfgp.solvers import Posterior

MAX_JOINT = 2**13
"""The maximum number of nodes of all boxes in total for which a joint covariance is formed."""
PANEL = 16
"""The maximum number of nodes of one Gauss-Legendre rule. More nodes form panels of this size."""


@dataclass(frozen=True, eq=False)
class BoxRule:
    """A product of Gauss-Legendre rules in the columns in which boxes extend.

    Two corners (2, D) define a box. They agree in all other columns.

    Attributes:
        columns: The indices of the columns.
        counts: The number of nodes in each of them, at most `PANEL` or a multiple of it.
        unit: The volume, in the user's units, of a box with standardized volume 1.

    Examples:
        >>> rule = BoxRule((0,), (4,))
        >>> box = torch.tensor([[[0.0], [2.0]]])
        >>> nodes, weights = rule.nodes(box), rule.weights(box)
        >>> round(float((weights * nodes[..., 0] ** 2).sum()), 4)  # the integral of x^2 over [0, 2]
        2.6667
    """

    columns: tuple[int, ...]
    counts: tuple[int, ...]
    unit: float = 1.0

    @property
    def size(self) -> int:
        """The number Q of nodes of a box."""
        return math.prod(self.counts)

    def nodes(self, corners: Tensor) -> Tensor:
        """Return the nodes of boxes, (m, Q, D).

        Args:
            corners: The corners of the boxes, (m, 2, D).
        """
        axes = torch.meshgrid(*(torch.as_tensor(gauss_legendre(count)[0]) for count in self.counts), indexing="ij")
        fractions = torch.zeros(self.size, corners.shape[2], dtype=torch.float64)
        for column, axis in zip(self.columns, axes, strict=True):
            fractions[:, column] = axis.flatten()
        low, high = corners[:, :1], corners[:, 1:]
        return low + fractions.to(corners) * (high - low)

    def weights(self, corners: Tensor) -> Tensor:
        """Return the weights of the nodes of boxes, (m, Q), float64.

        Args:
            corners: The corners of the boxes, (m, 2, D).
        """
        axes = torch.meshgrid(*(torch.as_tensor(gauss_legendre(count)[1]) for count in self.counts), indexing="ij")
        unit_weights = math.prod(axes[1:], start=axes[0]).flatten().to(corners.device)
        sides = (corners[:, 1] - corners[:, 0]).double()[:, list(self.columns)]
        return self.unit * sides.prod(1)[:, None] * unit_weights

    def matrix(self, corners: Tensor) -> Tensor:
        """Return the matrix of weights of all nodes of boxes, (m, m Q).

        Args:
            corners: The corners of the boxes, (m, 2, D).
        """
        weights = self.weights(corners)
        identity = torch.eye(len(weights), dtype=weights.dtype, device=weights.device)
        return (identity[:, :, None] * weights).flatten(1)

    def functionals(self, at: Callable[[Tensor], Distribution], corners: Tensor, shift: Tensor) -> LinearFunctionals:
        """Return the joint distribution of integrals over boxes from that of all nodes.

        Args:
            at: A function that returns the distribution of the latent values at points (n, D).
            corners: The corners of the boxes, (m, 2, D).
            shift: A constant that is added to the function, (k,) or ().
        """
        return LinearFunctionals(at(self.nodes(corners).flatten(0, 1)), self.matrix(corners), shift)


@lru_cache(maxsize=64)
def gauss_legendre(count: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the Gauss-Legendre nodes and weights (count,) on [0, 1].

    Args:
        count: The number of nodes. Panels have at most `PANEL` of them.
    """
    panels = max(1, count // PANEL)
    points, weights = np.polynomial.legendre.leggauss(count // panels)
    starts = np.arange(panels)[:, None]
    return ((starts + (points + 1) / 2) / panels).ravel(), np.tile(weights / (2 * panels), panels)


@dataclass(frozen=True, eq=False)
class BoxIntegrals(Distribution):
    """The joint distribution of integrals over m boxes, without new levels.

    Attributes:
        posterior: The posterior.
        rule: The quadrature.
        corners: The corners of the boxes, standardized, (m, 2, D).
        shift: A constant that is added to the function, (k,) or ().
        names: The names of the terms of the sum. If None, all terms.
        memory: The memory limit of joint distributions in bytes. If None, the memory of this machine.
    """

    posterior: Posterior
    rule: BoxRule
    corners: Tensor
    shift: Tensor
    names: tuple[str, ...] | None = None
    memory: float | None = None

    @property
    def num_points(self) -> int:
        """The number m of boxes."""
        return len(self.corners)

    @property
    def requires_grad(self) -> bool:
        """Whether the corners or parameters of the prior require a gradient."""
        return self._at(self.corners[:, 0]).requires_grad

    def function_covariance(self) -> Tensor:
        """Return the covariances of C functions at each box, (m, C, C)."""
        return torch.cat([self._functionals(box).function_covariance() for box in torch.split(self.corners, 1)])

    def _mean(self) -> Tensor:
        chunk_size = max(1, MAX_JOINT // self.rule.size)
        return torch.cat([self._functionals(boxes).mean() for boxes in torch.split(self.corners, chunk_size)])

    def _variance(self) -> Tensor:
        root = self._feature_root
        if root is not None:
            return root.square().sum(1)
        variance = torch.cat([self._functionals(box).variance() for box in torch.split(self.corners, 1)])
        residual = self._independent_residual_variance(self.corners)
        return (variance - (residual[:, None] if variance.ndim > 1 else residual)).clamp_min(0)

    def _covariance(self) -> Tensor:
        root = self._feature_root
        if root is not None:
            check_joint_fits(self.num_points, self.memory)
            return root @ root.mT
        covariance, residual = self._jointly().covariance(), self._independent_residual_variance(self.corners).diag()
        return covariance - (residual[..., None] if covariance.ndim > 2 else residual)

    def _root(self) -> Tensor:
        root = self._feature_root
        return self._jointly().root() if root is None else root

    @property
    def _feature_root(self) -> Tensor | None:
        """R (m, r) with R R^T the covariance, from integrals of features, or None."""
        return self._cached("features", lambda: self.posterior.root_of_sums(*self._nodes(self.corners)))

    def _nodes(self, corners: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nodes (m, Q, D) and weights (m, Q) of boxes."""
        return self.rule.nodes(corners), self.rule.weights(corners)

    def _at(self, inputs: Tensor) -> LatentDistribution:
        return LatentDistribution(self.posterior, inputs, self.memory)

    def _functionals(self, corners: Tensor) -> LinearFunctionals:
        return self.rule.functionals(self._at, corners, self.shift)

    def _jointly(self) -> LinearFunctionals:
        """Return the functionals of all nodes.

        Raises:
            InvalidArgumentError: If there are too many nodes.
        """
        check_joint(self.num_points, self.rule)
        return self._functionals(self.corners)

    def _independent_residual_variance(self, corners: Tensor) -> Tensor:
        """Return the variances (m,) of weighted sums of residuals that are independent between nodes."""
        blocks = [b for b in self.posterior.prior.weights if b.residual is not None and b.residual.is_noise]
        blocks = [b for b in blocks if self.names is None or b.name in self.names]
        nodes, weights = self._nodes(corners)
        points, total = nodes.flatten(0, 1), torch.zeros_like(weights)
        for block in blocks:
            total = total + block.residual_variance(points, block.scaled(points)).reshape(weights.shape)
        return (weights.square() * total).sum(1)


def check_joint(num_boxes: int, rule: BoxRule) -> None:
    """Raise if a joint distribution of boxes has too many nodes.

    Args:
        num_boxes: The number of boxes.
        rule: The quadrature.

    Raises:
        InvalidArgumentError: If the boxes have more than `MAX_JOINT` nodes in total.
    """
    if num_boxes * rule.size > MAX_JOINT:
        raise InvalidArgumentError(
            f"The boxes of a covariance of integrals must have at most {MAX_JOINT:,} nodes in total, got "
            f"{num_boxes:,} boxes with {rule.size:,} each. Use mean and std, fewer boxes, or a model of features, such "
            "as gp.with_approximation(rfgp.EquispacedFourier())."
        )


@dataclass(frozen=True, eq=False)
class IntegratedLevels:
    """A block whose new levels are integrated over boxes.

    Attributes:
        block: The block.
        rule: The quadrature.
    """

    block: LevelBlock
    rule: BoxRule

    def new_variance(self, corners: Tensor) -> Tensor:
        """Return the variances (m,) of boxes with corners (m, 2, D)."""
        return torch.cat([self._between(box, box)[0] for box in torch.split(corners, 1)])

    def new_covariance(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the covariance (m, p) of boxes with corners (m, 2, D) and (p, 2, D)."""
        chunk_size = max(1, NEW_LEVEL_NODES // self.rule.size)
        chunks_a, chunks_b = (torch.split(corners, chunk_size) for corners in (a, b))
        return torch.cat([torch.cat([self._between(x, z) for z in chunks_b], 1) for x in chunks_a])

    def _between(self, a: Tensor, b: Tensor) -> Tensor:
        left, right = self.rule.matrix(a), self.rule.matrix(b)
        covariance = self.block.new_covariance(*(self.rule.nodes(corners).flatten(0, 1) for corners in (a, b)))
        return left @ covariance.to(left) @ right.mT


NEW_LEVEL_NODES = 2**11
"""The number of nodes between which covariances of new levels are computed at once."""


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
        corners, posterior = in_memory(inputs), self.posterior
        if not isinstance(posterior, MixturePosterior):
            return self._of(posterior, self.shift, corners)
        members = [
            self._of(member, self.shift + member_shift, corners)
            for member, member_shift in zip(posterior.members, posterior.shifts, strict=True)
        ]
        zeros = [torch.zeros_like(member_shift) for member_shift in posterior.shifts]  # the integrals include them
        return MixtureDistribution(members, posterior.weights, zeros, posterior.noises)

    def of(self, *terms: str) -> "IntegratedGP":
        """Return the process of the sum of some terms, without the constant.

        Raises:
            InvalidArgumentError: If no term or an unknown term is named, or the posterior is not divided into terms.
        """
        names = self._checked(terms)
        return replace(self, posterior=self.posterior.of(names), names=tuple(names), shift=0 * self.shift)

    def cross_covariance(self, inputs: Tensor, first: Terms, second: Terms) -> Tensor:
        """Return the posterior covariance (m, m) or (m, m, C) between integrated sums of terms over m boxes.

        Raises:
            InvalidArgumentError: If no term or an unknown term is named, or the boxes have too many nodes.
        """
        check_joint(len(inputs), self.rule)
        base = super().cross_covariance(self.rule.nodes(inputs).flatten(0, 1), first, second)
        weights = self.rule.matrix(inputs)
        if base.ndim == 2:
            return weights @ base @ weights.mT
        return (weights @ base.movedim(-1, 0) @ weights.mT).movedim(0, -1)

    def _of(self, posterior: Posterior, shift: Tensor, corners: Tensor) -> Distribution:
        base = BoxIntegrals(posterior, self.rule, corners, shift, self.names, self.memory)
        blocks = blocks_with_new_levels(posterior.prior, self.names)
        effects = tuple(IntegratedLevels(block, self.rule) for block in blocks)
        return WithNewLevels(base, effects, corners, memory=self.memory) if effects else base


# --- the number of nodes ---------------------------------------------------------------------------

NODE_COUNTS = (4, 6, 8, 12, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
"""The numbers of nodes in a column, in the order in which they are tried."""
TARGET_ERROR = 1e-7
"""The relative error at which the number of nodes stops growing, as a fraction of the prior variance."""
ERROR_LIMITS = ((TARGET_ERROR, 1024), (1e-6, 1024), (1e-5, 1024), (TARGET_ERROR, 4096), (1e-5, 4096), (1e-3, 4096))
"""Pairs of a relative error and a maximum number of nodes. The first pair that can be met is used."""


def rule_for(priors: Sequence[Prior], corners: Tensor, columns: tuple[int, ...], unit: float) -> BoxRule:
    """Return the quadrature for boxes.

    The number of nodes in a column is increased until the prior variance of the integral of each term over the widest
    box changes little. It depends on the prior only, not on the targets.

    Args:
        priors: The priors of the members of a mixture, or one prior.
        corners: The corners of the boxes, (m, 2, D), standardized.
        columns: The indices of the columns in which boxes extend.
        unit: The volume, in the user's units, of a box with standardized volume 1.

    Raises:
        InvalidArgumentError: If a box needs too many nodes.
    """
    if not columns or not len(corners):
        return BoxRule(columns, (1,) * len(columns), unit)
    errors = [list(_errors(priors, _slice(corners.detach().double(), columns, column), column)) for column in columns]
    for max_error, max_nodes in ERROR_LIMITS:
        indices = [
            next((i for i, error in enumerate(column_errors) if error <= max_error), None) for column_errors in errors
        ]
        counts = tuple(NODE_COUNTS[i + 1] for i in indices if i is not None)
        if len(counts) == len(columns) and math.prod(counts) <= max_nodes:
            return BoxRule(columns, counts, unit)
    raise InvalidArgumentError(
        f"A box must extend over few lengthscales, got one that needs more than {ERROR_LIMITS[-1][1]:,} nodes. Divide "
        "it and add up the parts: gp.integrate(lows, highs).linear(np.ones(len(lows)))."
    )


def _slice(corners: Tensor, columns: tuple[int, ...], column: int) -> Tensor:
    """Return the line (1, 2, D) along a column through the box that is widest in it."""
    widest = corners[int((corners[:, 1, column] - corners[:, 0, column]).argmax())]
    line = widest.clone()
    line[:, list(columns)] = widest.mean(0)[list(columns)]
    line[:, column] = widest[:, column]
    return line[None]


def _errors(priors: Sequence[Prior], line: Tensor, column: int) -> Iterator[float]:
    """Yield the largest relative change of a term's variance for each number of nodes.

    It ends once an error is at most `TARGET_ERROR`.
    """
    parts = [part for prior in priors for name in prior.names if (part := prior.of((name,))).blocks]
    previous: Tensor | None = None
    for count in NODE_COUNTS:
        rule = BoxRule((column,), (count,))
        nodes, weights = rule.nodes(line)[0], rule.weights(line)[0]
        with torch.no_grad():
            variances = torch.stack([_variance_of(part, nodes, weights) for part in parts])  # (T, 2)
        if previous is not None:
            smallest = torch.finfo(variances.dtype).tiny
            scale = torch.maximum(variances[:, 0], MIN_VARIANCE_FRACTION * variances[:, 1]).clamp_min(smallest)
            error = float(((variances[:, 0] - previous[:, 0]).abs() / scale).max())
            yield error
            if error <= TARGET_ERROR:
                return
        previous = variances


MIN_VARIANCE_FRACTION = 1e-6
"""The smallest variance to which an error is relative, as a fraction of the upper bound of the variance."""


def _variance_of(prior: Prior, nodes: Tensor, weights: Tensor) -> Tensor:
    """Return the prior variance of an integral and its upper bound, (2,)."""
    again = nodes.clone()  # a copy: residuals that are independent between points do not contribute
    new = (block.new_covariance(nodes, again) for block in blocks_with_new_levels(prior, None))
    kernel = sum(new, start=prior.kernel(nodes, again).double())
    return torch.stack([weights @ kernel @ weights, (weights @ kernel.diagonal().clamp_min(0).sqrt()).square()])
