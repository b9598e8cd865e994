"""The terms of a prior given rows, and their moments at points.

Conjugate gradients compute a = C^-1 (y - mean) and m draws w_j ~ N(0, C^-1), with C = H H^T + D. At x, the functions
h_x (u_j - H^T w_j) and h_x H^T w_j are independent draws with the variances v and e. v is the posterior variance, and e
the part of the prior variance k = |h_x|^2 that the data explain. Because k = e + v is known, the mean squares of both
estimate v: A from the first with the variance 2 v^2 / m, and k - B from the second with 2 e^2 / m. Their best
combination has the weights e^2 and v^2, and the relative standard error sqrt(2 / m) e / sqrt(e^2 + v^2). That is the
error of m draws if the data explain all, and far less if they explain little.
"""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from rfgp.solvers.iterative.operator import CGOperator, total
from rfgp.solvers.iterative.role import Term, TermProjection, times

ENTRIES = 2**22
"""The number of entries of the projections of a chunk of points, and of coordinates in one solve."""
MIN_SOLVED = 32
"""The minimum number of points in one solve."""


class ConditionedTerms:
    """All terms at rows, with the coordinates of their coefficients and draws.

    Args:
        terms: The terms.
        operator: The covariance C of the rows.
        coefficients: The coefficients a, (rows, k).
        draws: The draws w, (rows, m).
    """

    def __init__(self, terms: Sequence[Term], operator: CGOperator, coefficients: Tensor, draws: Tensor) -> None:
        self.terms, self.operator = terms, operator
        self._coefficients, self._draws = coefficients, draws

    @cached_property
    def mean_coordinates(self) -> dict[Term, Tensor]:
        """The coordinates (N, k) of the mean of each term.

        Two terms may have the same name.
        """
        return {term: term.coordinates(self._coefficients) for term in self.terms}

    @cached_property
    def sample_coordinates(self) -> dict[Term, Tensor]:
        """The coordinates (N, 2 m) of both parts of draws of each term.

        The parts are the unexplained and the explained one.
        """
        u, _ = self.operator.prior_weights(self._draws.shape[1])
        out = {}
        for term, part in zip(self.terms, self.operator.split(u), strict=True):
            explained = term.coordinates(self._draws.to(term.dtype))
            prior = term.sample_coordinates(part.to(term.dtype), self.operator.seed)
            out[term] = torch.cat([prior - explained, explained], dim=1)
        return out

    def solve(self, right: Tensor, tolerance: float) -> Tensor:
        """Return C^-1 right, (rows, p).

        Args:
            right: The right-hand sides, (rows, p).
            tolerance: The relative residual of the solves.
        """
        width = max(MIN_SOLVED, ENTRIES // max(self.operator.num_columns, 1))
        return torch.cat([self.operator.solve(part, tolerance) for part in torch.split(right, width, dim=1)], dim=1)


class MarginalMoments:
    """The sum of some terms at n single points.

    Args:
        conditioned: All terms given the rows.
        terms: The predicted terms.
        inputs: The inputs of the points, (n, D), or positions (n,).
        tolerance: The relative residual of solves.
    """

    def __init__(self, conditioned: ConditionedTerms, terms: Sequence[Term], inputs: Tensor, tolerance: float) -> None:
        self.conditioned, self.terms, self.inputs, self.tolerance = conditioned, terms, inputs, tolerance
        self._pairs: list[tuple[Term, TermProjection]] = [(term, term.project(inputs)) for term in terms]

    def mean(self) -> Tensor:
        """Return the mean (n, k)."""
        coordinates = self.conditioned.mean_coordinates
        return total([times(projection.matrix, coordinates[term]) for term, projection in self._pairs])

    def estimated_variance(self) -> Tensor:
        """Return the marginal posterior variances, estimated from draws, (n,)."""
        coordinates = self.conditioned.sample_coordinates
        sums = total([times(projection.matrix, coordinates[term]).double() for term, projection in self._pairs])
        unexplained, explained = (part.square().mean(1) for part in torch.chunk(sums, 2, dim=1))
        prior = total([term.variance(self.inputs, projection) for term, projection in self._pairs])
        return total([combined(unexplained, explained, prior), *self._conditional_variances])

    def solved_variance(self) -> Tensor:
        """Return the marginal posterior variances by a solve for each point, (n,)."""
        cross = total([term.cross(projection.matrix) for term, projection in self._pairs])
        prior = [term.covariance(projection.matrix).diagonal() for term, projection in self._pairs]
        explained = (cross * self.conditioned.solve(cross, self.tolerance)).sum(0)
        return total([*prior, *self._conditional_variances]) - explained

    @property
    def _conditional_variances(self) -> list[Tensor]:
        """The conditional variances (n,) given the coordinates, of the terms that have some."""
        variances = (projection.conditional_variance for _, projection in self._pairs)
        return [variance for variance in variances if variance is not None]

    @cached_property
    def covariance(self) -> Tensor:
        """The posterior covariance (n, n) of points that may be neighbors of each other.

        The correlations are those of the joint distribution, and the variances those of single points.
        """
        joint = JointMoments(self)
        return joint.covariance * joint.scales[:, None] * joint.scales


class JointMoments:
    """The sum of some terms at n points that may be neighbors of each other.

    Args:
        single: The same points as single points.

    Attributes:
        cross: The prior covariance (rows, n) of rows and points.
        prior: The prior covariance (n, n), or zeros that broadcast to it.
    """

    def __init__(self, single: MarginalMoments) -> None:
        joint = [(term, *term.project_jointly(single.inputs)) for term in single.terms]
        zeros = torch.zeros(len(single.conditioned.operator), len(single.inputs)).double()
        self.cross = total([zeros, *(term.cross(matrix) for term, matrix, _ in joint)])
        conditional = [covariance for *_, covariance in joint if covariance is not None]
        self.prior = total([zeros.new_zeros(1), *(term.covariance(matrix) for term, matrix, _ in joint), *conditional])
        self._single = single

    @cached_property
    def solved(self) -> Tensor:
        """C^-1 of the covariance of rows and points, (rows, n)."""
        return self._single.conditioned.solve(self.cross, self._single.tolerance)

    @cached_property
    def covariance(self) -> Tensor:
        """The posterior covariance (n, n) of the joint distribution."""
        out = self.prior - self.cross.mT @ self.solved
        return (out + out.mT) / 2

    @cached_property
    def scales(self) -> Tensor:
        """The ratios (n,) of the single to the joint standard deviations of points.

        The numerator is the standard deviation of a single point, and the denominator that in the joint distribution.
        """
        if not any(term.depends_on_other_points for term in self._single.terms):
            return self.cross.new_ones(self.cross.shape[1])
        variance = self._single.solved_variance().clamp_min(0)
        return (variance / self.covariance.diagonal().clamp_min(torch.finfo(variance.dtype).tiny)).sqrt()


def combined(unexplained: Tensor, explained: Tensor, prior: Tensor) -> Tensor:
    """Return the best combination of two estimates of variances, (n,).

    The estimates are `unexplained` and prior - `explained`. The result is at least a tenth of `unexplained`.

    Args:
        unexplained: The mean squares of the unexplained parts of draws, (n,).
        explained: The mean squares of the explained parts, (n,).
        prior: The prior variances, (n,).
    """
    tiny = torch.finfo(unexplained.dtype).tiny
    weight = explained.square() / (unexplained.square() + explained.square()).clamp_min(tiny)
    return torch.maximum(weight * unexplained + (1 - weight) * (prior - explained), 0.1 * unexplained)
