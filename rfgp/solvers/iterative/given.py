"""The terms of a prior given rows, and their projections to points.

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
from rfgp.solvers.iterative.role import Reads, Term, times

ENTRIES = 2**22
"""The number of entries of the projections of a chunk of points, and of coordinates in one solve."""
MIN_SOLVED = 32
"""The minimum number of points in one solve."""


class GivenTerms:
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
    def means(self) -> dict[Term, Tensor]:
        """The coordinates (N, k) of the mean of each term.

        Two terms may have the same name.
        """
        return {term: term.weights(self._coefficients) for term in self.terms}

    @cached_property
    def paths(self) -> dict[Term, Tensor]:
        """The coordinates (N, 2 m) of the unexplained and the explained part of draws of each term."""
        u, _ = self.operator.prior_weights(self._draws.shape[1])
        out = {}
        for term, part in zip(self.terms, self.operator.split(u), strict=True):
            explained = term.weights(self._draws.to(term.dtype))
            prior = term.lifted(part.to(term.dtype), self.operator.seed)
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


class Projected:
    """The sum of some terms at n single points.

    Args:
        given: All terms given the rows.
        terms: The predicted terms.
        inputs: The inputs of the points, (n, D), or positions (n,).
        tolerance: The relative residual of solves.
    """

    def __init__(self, given: GivenTerms, terms: Sequence[Term], inputs: Tensor, tolerance: float) -> None:
        self.given, self.terms, self.inputs, self.tolerance = given, terms, inputs, tolerance
        self._pairs: list[tuple[Term, Reads]] = [(term, term.read(inputs)) for term in terms]

    def mean(self) -> Tensor:
        """Return the mean (n, k)."""
        means = self.given.means
        return total([times(reads.matrix, means[term]) for term, reads in self._pairs])

    def estimated_variance(self) -> Tensor:
        """Return the marginal posterior variances, estimated from draws, (n,)."""
        paths = self.given.paths
        sums = total([times(reads.matrix, paths[term]).double() for term, reads in self._pairs])
        left, explained = (part.square().mean(1) for part in torch.chunk(sums, 2, dim=1))
        prior = total([term.variance(self.inputs, reads) for term, reads in self._pairs])
        return total([combined(left, explained, prior), *self._left])

    def solved_variance(self) -> Tensor:
        """Return the marginal posterior variances by a solve for each point, (n,)."""
        cross = total([term.cross(reads.matrix) for term, reads in self._pairs])
        prior = [term.covariance(reads.matrix).diagonal() for term, reads in self._pairs]
        return total([*prior, *self._left]) - (cross * self.given.solve(cross, self.tolerance)).sum(0)

    @property
    def _left(self) -> list[Tensor]:
        """The conditional variances (n,) given the coordinates, of the terms that have some."""
        return [reads.left for _, reads in self._pairs if reads.left is not None]

    @cached_property
    def covariance(self) -> Tensor:
        """The posterior covariance (n, n) of points that may be neighbors of each other.

        The correlations are those of the joint distribution, and the variances those of single points.
        """
        joint = Joint(self)
        return joint.covariance * joint.scales[:, None] * joint.scales


class Joint:
    """The sum of some terms at n points that may be neighbors of each other.

    Args:
        single: The same points as single points.

    Attributes:
        cross: The prior covariance (rows, n) of rows and points.
        prior: The prior covariance (n, n), or zeros that broadcast to it.
    """

    def __init__(self, single: Projected) -> None:
        reads = [(term, *term.read_jointly(single.inputs)) for term in single.terms]
        none = torch.zeros(len(single.given.operator), len(single.inputs)).double()
        self.cross = total([none, *(term.cross(matrix) for term, matrix, _ in reads)])
        left = [covariance for *_, covariance in reads if covariance is not None]
        self.prior = total([none.new_zeros(1), *(term.covariance(matrix) for term, matrix, _ in reads), *left])
        self._single = single

    @cached_property
    def solved(self) -> Tensor:
        """C^-1 of the covariance of rows and points, (rows, n)."""
        return self._single.given.solve(self.cross, self._single.tolerance)

    @cached_property
    def covariance(self) -> Tensor:
        """The posterior covariance (n, n) of the joint distribution."""
        out = self.prior - self.cross.mT @ self.solved
        return (out + out.mT) / 2

    @cached_property
    def scales(self) -> Tensor:
        """The ratios (n,) of the standard deviations of single points to those in the joint distribution."""
        if not any(term.reads_points for term in self._single.terms):
            return self.cross.new_ones(self.cross.shape[1])
        variance = self._single.solved_variance().clamp_min(0)
        return (variance / self.covariance.diagonal().clamp_min(torch.finfo(variance.dtype).tiny)).sqrt()


def combined(left: Tensor, explained: Tensor, prior: Tensor) -> Tensor:
    """Return the best combination of two estimates of variances, (n,).

    The estimates are `left` and prior - `explained`. The result is at least a tenth of `left`.

    Args:
        left: The mean squares of the unexplained parts of draws, (n,).
        explained: The mean squares of the explained parts, (n,).
        prior: The prior variances, (n,).
    """
    share = explained.square() / (left.square() + explained.square()).clamp_min(torch.finfo(left.dtype).tiny)
    return torch.maximum(share * left + (1 - share) * (prior - explained), 0.1 * left)
