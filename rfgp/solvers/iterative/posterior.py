"""Posteriors by conjugate gradients and draws, whatever the terms.

With C = H H^T + D, a = C^-1 (y - mean) and m draws w_j ~ N(0, C^-1), which conjugate gradients give, the function at x,
h_x (u_j - H^T w_j) and h_x H^T w_j are independent draws from distributions of the variances v and e: what the data
leave of the prior variance k = |h_x|^2, and what they explain. Since k = e + v is known, the mean squares of both
estimate v: A from the first with the variance 2 v^2 / m, k - B from the second with 2 e^2 / m. Their best combination
has the weights e^2 and v^2, hence the relative standard error sqrt(2 / m) e / sqrt(e^2 + v^2): that of m draws if the
data explain all, and far less if they explain little.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from rfgp.blocks import Prior
from rfgp.solvers.iterative.covariance import PosteriorOperator
from rfgp.solvers.iterative.operator import CGOperator
from rfgp.solvers.iterative.role import Reads, Term, times
from rfgp.solvers.iterative.solutions import PATH_TOLERANCE, TOLERANCE
from rfgp.solvers.iterative.terms import operator_of, terms_of
from rfgp.solvers.nearby import no_functions
from rfgp.solvers.operators import LatentOperator
from rfgp.solvers.role import Functions, Posterior, Shape
from rfgp.solvers.terms import MOST_JOINT, check_joint, known_terms, make_contiguous

MOST_SOLVED = 256
"""The most points whose variances are computed to the tolerance of the solver, a solve each."""
ENTRIES = 2**22
"""The number of entries that readings of a chunk of points take, and coordinates of points that are solved at once."""
MOST_NUMBERS = 2**27
"""The most entries of a covariance of rows and points (a gigabyte), of which a joint posterior takes several."""
LEAST_SOLVED = 32
"""The number of points that are solved at once, however many coordinates there are."""
_TENSORS = ("inputs", "noise_diag", "coefficients", "draws")


class Jointly(NamedTuple):
    """What n points read of some terms."""

    cross: Tensor  # the prior covariance (rows, n)
    prior: Tensor  # the prior covariance (n, n)


class Projected:
    """What n points read; its covariance is solved for once.

    Args:
        posterior: The posterior.
        inputs: The points.
    """

    def __init__(self, posterior: "IterativePosterior", inputs: Tensor) -> None:
        self._posterior, self._inputs = posterior, inputs
        self.reads: list[tuple[Term, Reads]] = [(term, term.read(inputs)) for term in posterior.predicted]

    @property
    def left(self) -> list[Tensor]:
        """The variances (n,) that coordinates leave, of the terms that have some."""
        return [reads.left for _, reads in self.reads if reads.left is not None]

    @cached_property
    def covariance(self) -> Tensor:
        """The posterior covariance (n, n)."""
        return self._posterior.solved_covariance(self._inputs)


@dataclass(frozen=True, eq=False)
class IterativePosterior(Posterior):
    """Coefficients of the rows and draws, which are contiguous, as they come back from a file.

    Up to 256 points at once variances come from a solve for each. Beyond they are estimated from draws, with the
    relative standard error sqrt(2 / m) e / sqrt(e^2 + v^2) (half of that for the deviation). That holds for terms too.

    Attributes:
        prior: Features, walks, sparse precisions and neighbours.
        inputs: The inputs of the rows, positions (n,) or (n, d); in order if there are neighbours.
        noise_diag: D (n,).
        coefficients: a (n, k).
        draws: w (n, m), of N(0, C^-1).
        known: The terms at the rows. If None, they are made when they are needed.
        terms: The names of the terms whose sum is predicted. If None, all.
    """

    prior: Prior
    inputs: Tensor
    noise_diag: Tensor
    coefficients: Tensor
    draws: Tensor
    known: Sequence[Term] | None = None
    terms: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        make_contiguous(self, *_TENSORS)

    @property
    def width(self) -> int:
        """The number of entries that a point takes: those of draws, features and neighbours."""
        return 2 * self.draws.shape[1] + sum(term.width for term in self.at_rows)

    @cached_property
    def at_rows(self) -> Sequence[Term]:
        """All terms at the rows."""
        return terms_of(self.prior, self.inputs) if self.known is None else self.known

    @property
    def predicted(self) -> list[Term]:
        """The terms that are predicted."""
        return [term for term in self.at_rows if self.terms is None or term.name in self.terms]

    def project(self, inputs: Tensor) -> Projected:
        """Return what n inputs, positions (n,) or rows (n, d), read."""
        return Projected(self, inputs)

    def mean(self, projected: Projected) -> Tensor:
        """Return the mean (n, k)."""
        return _total([times(reads.matrix, self._means[term.name]) for term, reads in projected.reads])

    def variance(self, inputs: Tensor, projected: Projected) -> Tensor:
        """Return the marginal variances (n,), by solves for at most 256 points and by draws for more."""
        if len(inputs) <= MOST_SOLVED:
            return projected.covariance.diagonal().clamp_min(0)
        return self.estimated_variance(inputs, projected)

    def estimated_variance(self, inputs: Tensor, projected: Projected) -> Tensor:
        """Return the marginal variances (n,) by draws."""
        sums = _total([times(reads.matrix, self._paths[term.name]).double() for term, reads in projected.reads])
        left, explained = (part.square().mean(1) for part in torch.chunk(sums, 2, dim=1))
        prior = _total([term.variance(inputs, reads) for term, reads in projected.reads])
        return _total([combined(left, explained, prior), *projected.left])

    def covariance(self, inputs: Tensor, projected: Projected) -> Tensor:
        """Return the covariance (n, n) of at most 2,000 points, of which each may be another's neighbour.

        The correlations are those of the joint distribution, and the variances those of one point each.
        """
        return projected.covariance

    def operator(self, inputs: Tensor) -> LatentOperator | None:
        """Return the covariance (n, n) as products and solves. None if a term has to form it."""
        if self.terms is not None:
            return None
        parts = [term.joined(inputs) for term in self.at_rows]
        joined = [part for part in parts if part is not None]
        return PosteriorOperator(self._operator, joined, len(inputs)) if len(joined) == len(parts) else None

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions of n inputs, (count, n, k), by pathwise conditioning (Wilson et al. 2020).

        Raises:
            InvalidArgumentError: a term is known at given points only.
        """
        if self.prior.neighbors is not None:
            raise no_functions()
        k = self.coefficients.shape[1]
        operator = self._operator.replaced(seed=int(torch.randint(2**62, (), generator=generator)))
        w, (u, _) = operator.draws(count * k, PATH_TOLERANCE).solved, operator.prior_weights(count * k)
        functions = []
        for term, own in zip(self.at_rows, operator.split(u), strict=True):
            if self.terms is None or term.name in self.terms:
                weights = (term.lifted(own, operator.seed) - term.weights(w)).reshape(-1, count, k)
                weights = weights + self._means[term.name][:, None]
                functions.append(term.functions(weights.reshape(len(weights), -1)))

        def values(inputs: Tensor) -> Tensor:
            total = _total([function(inputs) for function in functions])
            out: Tensor = total.reshape(len(inputs), count, k).movedim(0, 1)
            return out

        return values

    def tensors(self) -> dict[str, Tensor]:
        """Return inputs (n,) or (n, d), noise_diag (n,), coefficients (n, k) and draws (n, m)."""
        return {name: getattr(self, name) for name in _TENSORS}

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of noise_diag, coefficients and draws, for n rows and k outputs."""
        return {"noise_diag": (n,), "coefficients": (n, k), "draws": (n, self.draws.shape[-1])}

    def of(self, names: Sequence[str]) -> "IterativePosterior":
        """Return the posterior of the sum of some terms.

        Raises:
            InvalidArgumentError: there is no such term.
        """
        return replace(self, known=self.at_rows, terms=known_terms(self.prior, names))

    def cross_covariance(self, inputs: Tensor, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the posterior covariance (n, n) between the sums of some terms and of others, at n inputs.

        Raises:
            InvalidArgumentError: there is no such term.
        """
        rows, columns = self.of(first), self.of(second)
        prior = self.of([name for name in first if name in second]).jointly(inputs).prior
        found = prior - rows.jointly(inputs).cross.mT @ self.solved(columns.jointly(inputs).cross)
        return found * rows.scales(inputs)[:, None] * columns.scales(inputs)

    # --- by solves -------------------------------------------------------------------------------

    def solved_covariance(self, inputs: Tensor) -> Tensor:
        """Return the posterior covariance (n, n) of what n inputs read."""
        advice = "" if self.prior.neighbors is not None else ", or draw functions: sample_functions"
        check_joint(len(inputs), "points", advice, self._most_joint)
        scales = self.scales(inputs)
        return self._unscaled(inputs) * scales[:, None] * scales

    def jointly(self, inputs: Tensor) -> Jointly:
        """Return what n inputs read if they may be each other's neighbours."""
        found = [(term, *term.read_jointly(inputs)) for term in self.predicted]
        crosses = [term.cross(matrix) for term, matrix, _ in found]
        covariances = [term.covariance(matrix) for term, matrix, _ in found]
        none = self.coefficients.new_zeros(1)
        return Jointly(_total([none, *crosses]), _total([none, *covariances, *(c for *_, c in found if c is not None)]))

    def scales(self, inputs: Tensor) -> Tensor:
        """Return the ratios (n,) of the deviations of points each by itself and of their joint distribution."""
        if not self._has_neighbors:
            return self.coefficients.new_ones(len(inputs))
        projected = Projected(self, inputs)
        cross = _total([term.cross(reads.matrix) for term, reads in projected.reads])
        prior = [term.covariance(reads.matrix).diagonal() for term, reads in projected.reads]
        variance = _total([*prior, *projected.left]) - (cross * self.solved(cross)).sum(0)
        least = torch.finfo(variance.dtype).tiny
        return (variance.clamp_min(0) / self._unscaled(inputs).diagonal().clamp_min(least)).sqrt()

    def _unscaled(self, inputs: Tensor) -> Tensor:
        """Return the posterior covariance (n, n) of points of which each may be another's neighbour."""
        cross, prior = self.jointly(inputs)
        out = prior - cross.mT @ self.solved(cross)
        return (out + out.mT) / 2

    def solved(self, right: Tensor) -> Tensor:
        """Return C^-1 right, (n, p)."""
        if self.prior.neighbors is not None:
            return self._operator.solve(right, TOLERANCE)
        width = max(LEAST_SOLVED, ENTRIES // max(self._operator.num_columns, 1))
        return torch.cat([self._operator.solve(part, PATH_TOLERANCE) for part in torch.split(right, width, dim=1)], 1)

    @property
    def _has_neighbors(self) -> bool:
        near = self.prior.neighbors
        return near is not None and (self.terms is None or near.name in self.terms)

    @property
    def _most_joint(self) -> int:
        if self.prior.neighbors is None:
            return MOST_JOINT
        return max(MOST_SOLVED, min(MOST_JOINT, MOST_NUMBERS // len(self.inputs)))

    # --- by draws --------------------------------------------------------------------------------

    @cached_property
    def _operator(self) -> CGOperator:
        return operator_of(self.at_rows, self.noise_diag)

    @cached_property
    def _means(self) -> dict[str, Tensor]:
        """The coordinates (N, k) of the mean of each term."""
        return {term.name: term.weights(self.coefficients) for term in self.at_rows}

    @cached_property
    def _paths(self) -> dict[str, Tensor]:
        """The coordinates (N, 2 m) of what draws leave of each term, and of what they explain."""
        operator, out = self._operator, {}
        u, _ = operator.prior_weights(self.draws.shape[1])
        for term, own in zip(self.at_rows, operator.split(u), strict=True):
            explained = term.weights(self.draws.to(term.dtype))
            prior = term.lifted(own.to(term.dtype), operator.seed)
            out[term.name] = torch.cat([prior - explained, explained], dim=1)
        return out


def combined(left: Tensor, explained: Tensor, prior: Tensor) -> Tensor:
    """Return the best estimate (n,) of variances that are estimated by `left` and by prior - `explained`, (n,) each."""
    share = explained.square() / (left.square() + explained.square()).clamp_min(torch.finfo(left.dtype).tiny)
    return torch.maximum(share * left + (1 - share) * (prior - explained), 0.1 * left)


def _total(parts: Sequence[Tensor]) -> Tensor:
    return sum(parts[1:], start=parts[0])
