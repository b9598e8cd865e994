"""Posteriors by conjugate gradients and draws, for all terms."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from rfgp.autograd import is_differentiated
from rfgp.blocks import Prior
from rfgp.errors import NotDifferentiableError
from rfgp.limits import limits
from rfgp.solvers.iterative.conditioned import ConditionedTerms, JointMoments, MarginalMoments
from rfgp.solvers.iterative.operator import CGOperator, total
from rfgp.solvers.iterative.parts import Part
from rfgp.solvers.iterative.role import Term
from rfgp.solvers.iterative.terms import operator_of, terms_of
from rfgp.solvers.kriging import no_functions
from rfgp.solvers.operators import LatentOperator
from rfgp.solvers.role import Functions, Posterior, Shape
from rfgp.solvers.terms import MAX_JOINT, check_divided, check_joint, known_terms

TOLERANCE = 1e-9
"""The relative residual of the solve for the mean."""
PATH_TOLERANCE = 1e-5
"""The relative residual of the solves for draws."""


@dataclass(frozen=True, eq=False)
class IterativePosterior(Posterior):
    """The posterior by conjugate gradients: coefficients of the rows, and draws.

    Variances of up to 256 points are computed by a solve for each. Those of more points are estimated from draws. The
    relative standard error of a variance is then sqrt(2 / m) e / sqrt(e^2 + v^2). That of a standard deviation is half
    of it. This holds for single terms too. See `rfgp.solvers.iterative.conditioned`.

    Methods have the arguments of those of `Posterior`.

    Attributes:
        prior: The prior of features, walks, sparse precisions and neighbors.
        inputs: The inputs of the rows, positions (n,) or (n, d). They are ordered if there are neighbors.
        noise_diag: The noise D, (n,).
        coefficients: The coefficients a, (n, k).
        draws: The draws w of N(0, C^-1), (n, m).
        known: The computed terms given the rows. If None, they are computed on demand.
        terms: The names of the terms whose sum is predicted. If None, all.
    """

    prior: Prior
    inputs: Tensor
    noise_diag: Tensor
    coefficients: Tensor
    draws: Tensor
    known: ConditionedTerms | None = None
    terms: tuple[str, ...] | None = None

    serialized_fields = ("inputs", "noise_diag", "coefficients", "draws")

    @property
    def width(self) -> int:
        """The number of entries of a point: those of draws, features and neighbors."""
        return 2 * self.draws.shape[1] + sum(term.width for term in self._conditioned.terms)

    def project(self, inputs: Tensor) -> MarginalMoments:
        """Return the projections of n single points, (n, d) or positions (n,).

        Raises:
            NotDifferentiableError: If the inputs require gradients.
        """
        if is_differentiated(inputs):
            raise NotDifferentiableError(
                "X must not require gradients for predictions by conjugate gradients, got X that does. Use "
                "predict(X.detach()), or Exact()."
            )
        tolerance = PATH_TOLERANCE if self.prior.neighbors is None else TOLERANCE
        return MarginalMoments(self._conditioned, self._predicted, inputs, tolerance)

    def mean(self, projected: MarginalMoments) -> Tensor:
        """Return the posterior mean, (n, k)."""
        return projected.mean()

    def variance(self, inputs: Tensor, projected: MarginalMoments) -> Tensor:
        """Return the marginal posterior variances, (n,).

        They are computed by solves for at most 256 points, and by draws for more.
        """
        if len(inputs) <= limits().max_solved:
            return projected.covariance.diagonal().clamp_min(0)
        return projected.estimated_variance()

    def covariance(self, inputs: Tensor, projected: MarginalMoments) -> Tensor:
        """Return the posterior covariance (n, n) of points.

        The points may be neighbors of each other. The correlations are those of the joint distribution, and the
        variances those of single points. There may be at most 2,000 points, or fewer if nearest neighbors of many rows
        need more memory.

        Raises:
            InvalidArgumentError: If there are more points.
        """
        self._check(inputs)
        return projected.covariance

    def cross_covariance(self, inputs: Tensor, first: Sequence[str], second: Sequence[str]) -> Tensor:
        """Return the posterior covariance (n, n) between sums of terms.

        Raises:
            InvalidArgumentError: If a term is unknown, none is named, or there are too many points.
        """
        self._check(inputs)
        shared = replace(self, known=self._conditioned, terms=tuple(name for name in first if name in second))
        parts = self.of(first), self.of(second), shared
        rows, columns, both = (JointMoments(part.project(inputs)) for part in parts)
        return (both.prior - rows.cross.mT @ columns.solved) * rows.scales[:, None] * columns.scales

    def operator(self, inputs: Tensor) -> LatentOperator | None:
        """Return the posterior covariance (n, n) as products and solves, or None.

        The result is None if the covariance must be formed. It must be formed for sums of only some terms, and for
        terms with conditional variances of points.
        """
        if self.terms is not None:
            return None
        parts = [term.joined(inputs) for term in self._conditioned.terms]
        joined = [part for part in parts if part is not None]
        return PosteriorOperator(self._conditioned.operator, joined, len(inputs)) if len(joined) == len(parts) else None

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions by pathwise conditioning (Wilson et al. 2020).

        Returns:
            A map of the inputs of n points to (count, n, k).

        Raises:
            InvalidArgumentError: If a term is defined at given points only.
        """
        if self.prior.neighbors is not None:
            raise no_functions()
        terms, k = self._conditioned, self.coefficients.shape[1]
        operator = terms.operator.replaced(seed=int(torch.randint(2**62, (), generator=generator)))
        w, (u, _) = operator.draws(count * k, PATH_TOLERANCE).solved, operator.prior_weights(count * k)
        functions = []
        for term, part in zip(terms.terms, operator.split(u), strict=True):
            if self.terms is None or term.name in self.terms:
                z = (term.sample_coordinates(part, operator.seed) - term.coordinates(w)).reshape(-1, count, k)
                z = z + terms.mean_coordinates[term][:, None]
                functions.append(term.functions(z.reshape(len(z), -1)))

        def values(inputs: Tensor) -> Tensor:
            values = total([function(inputs) for function in functions])
            return values.reshape(len(inputs), count, k).movedim(0, 1)

        return values

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of noise_diag, coefficients and draws by name."""
        return {"noise_diag": (n,), "coefficients": (n, k), "draws": (n, self.draws.shape[-1])}

    def of(self, names: Sequence[str]) -> "IterativePosterior":
        """Return the posterior of the sum of some terms.

        Raises:
            InvalidArgumentError: If a term is unknown, none is named, or some are not divided from others.
        """
        block, terms = self.prior.neighbors, known_terms(self.prior, names)
        if block is not None and bool(block.flags(terms).any()):
            check_divided(self.prior, terms, block.names)
            terms = *terms, block.name
        return replace(self, known=self._conditioned, terms=terms)

    @cached_property
    def _conditioned(self) -> ConditionedTerms:
        """All terms given the rows."""
        if self.known is not None:
            return self.known
        terms = terms_of(self.prior, self.inputs)
        return ConditionedTerms(terms, operator_of(terms, self.noise_diag), self.coefficients, self.draws)

    @property
    def _predicted(self) -> list[Term]:
        """The predicted terms."""
        return [term for term in self._conditioned.terms if self.terms is None or term.name in self.terms]

    def _check(self, inputs: Tensor) -> None:
        """Raise if there are too many points for a joint covariance."""
        if self.prior.neighbors is None:
            check_joint(len(inputs), "points", ", or sample_functions()")
        else:
            max_points = max(limits().max_solved, min(MAX_JOINT, limits().max_joint_numbers // len(self.inputs)))
            check_joint(len(inputs), "points", max_points=max_points)


PRODUCT_TOLERANCE = 1e-8
"""The relative residual of the solves in products with a covariance."""


class PosteriorOperator:
    """The covariance S = h h^T - h H^T C^-1 H h^T, C = H H^T + D, without forming it.

    Methods have the arguments of those of `LatentOperator`.

    Args:
        rows: The covariance C of the rows.
        parts: The parts of [H; h], of the rows followed by m points.
        size: The number m of points.
    """

    def __init__(self, rows: CGOperator, parts: Sequence[Part], size: int) -> None:
        self._rows, self._size = rows, size
        self._joined = rows.replaced(parts=parts)

    def __len__(self) -> int:
        return self._size

    def times(self, v: Tensor) -> Tensor:
        """Return S v, (m, p)."""
        return self._conditional(self._joined.transposed_root_times(self._at_points(v)))

    def solve(self, v: Tensor, noise: Tensor) -> Tensor:
        """Return (S + E)^-1 v, (m, p).

        These are the coefficients of v at the points, for zeros at the rows.
        """
        both = self._joined.replaced(noise_diag=torch.cat([self._rows.noise_diag, noise]))
        return both.solve(self._at_points(v), PRODUCT_TOLERANCE)[len(self._rows) :]

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw from N(0, S) by pathwise conditioning.

        Returns:
            The draws, (m, count).
        """
        sizes = self._joined.num_columns, len(self._rows)
        u, e = (torch.randn(size, count, generator=generator, dtype=torch.float64) for size in sizes)
        return self._conditional(u, self._rows.deviation[:, None] * e)

    def _conditional(self, u: Tensor, noise: Tensor | float = 0.0) -> Tensor:
        """Return h (u - H^T C^-1 (H u + noise)), (m, p)."""
        explained = self._rows.solve(self._joined.root_times(u)[: len(self._rows)] + noise, PRODUCT_TOLERANCE)
        at_rows = pad(explained, (0, 0, 0, self._size))
        return self._joined.root_times(u - self._joined.transposed_root_times(at_rows))[len(self._rows) :]

    def _at_points(self, v: Tensor) -> Tensor:
        """Return values of rows and points (n + m, p) with zeros at rows."""
        return pad(v, (0, 0, len(self._rows), 0))
