"""Candidates of a selection: a kernel with an approximation of each of its terms."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from rfgp.approximations import Approximation, EquispacedFourier, Exact, InducingPoints, RandomFeatures, Vecchia
from rfgp.kernels.terms import Term
from rfgp.regression.spec import ModelOptions

EXACT, FREQUENCIES, POINTS, NEIGHBORS, LATTICE = "exact", "frequencies", "points", "neighbors", "lattice"
"""How the first term of a candidate is computed."""
SCORED_FEATURES = 1500
"""The most features of a term on a lattice when a candidate is scored."""
_KINDS: dict[type[Approximation], str] = {
    Exact: EXACT,
    RandomFeatures: FREQUENCIES,
    InducingPoints: POINTS,
    Vecchia: NEIGHBORS,
    EquispacedFourier: LATTICE,
}


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model that a selection may take: one or two stationary kernels over all columns, with their approximations.

    Attributes:
        model: The options of the model, whose approximations are a dict by the names of the terms.
        head: The place of the candidate of which this one is a variant, among all candidates. A variant is scored only
            if its head goes on. If None, it is a variant of none.
    """

    model: ModelOptions
    head: int | None = None

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of the kernel."""
        return self.model.kernel.terms()

    @property
    def approximations(self) -> dict[str, Approximation]:
        """The approximation of each term by its name."""
        found: dict[str, Approximation] = self.model.approximations
        return found

    @property
    def first(self) -> Any:
        """The approximation of the first term."""
        return self.approximations[str(self.terms[0].name)]

    @property
    def kind(self) -> str:
        """How the first term is computed."""
        return _KINDS[type(self.first)]

    @property
    def is_sum(self) -> bool:
        """Whether there are two terms."""
        return len(self.terms) > 1

    @property
    def is_exact(self) -> bool:
        """Whether covariance matrices of all rows are formed."""
        return self.kind == EXACT

    @property
    def is_ard(self) -> bool:
        """Whether each column has a lengthscale of its own."""
        return bool(self.terms[0].factors[0].ard)

    @property
    def learns_frequencies(self) -> bool:
        """Whether a fit changes the frequencies."""
        return self.kind == FREQUENCIES and self.first.learn_frequencies

    @property
    def is_lattice(self) -> bool:
        """Whether all terms have frequencies on a lattice."""
        return all(isinstance(one, EquispacedFourier) for one in self.approximations.values())

    def with_few_features(self) -> "Candidate":
        """Return the candidate with at most `SCORED_FEATURES` on each lattice, for scores."""
        few = {
            name: replace(one, max_features=min(one.max_features, SCORED_FEATURES))
            if isinstance(one, EquispacedFourier)
            else one
            for name, one in self.approximations.items()
        }
        return replace(self, model=self.model.changed(approximations=few)) if self.is_lattice else self

    @property
    def num_frequencies(self) -> int:
        """The number of frequencies, 0 without any."""
        return self.first.num_frequencies if self.kind == FREQUENCIES else 0

    @property
    def num_points(self) -> int:
        """The number of inducing points, 0 without any."""
        return self.first.num_points if self.kind == POINTS else 0

    @property
    def num_features(self) -> int:
        """The number of dense features."""
        return 2 * self.num_frequencies + self.num_points

    @property
    def has_residual(self) -> bool:
        """Whether nearest neighbours approximate the residual of inducing points."""
        return self.kind == POINTS and self.first.residual is not None

    @property
    def neighbors(self) -> Vecchia | None:
        """The nearest neighbours of a term, or of the residual of inducing points. None if there are none."""
        if self.has_residual:
            residual: Vecchia = self.first.residual
            return residual
        return next((one for one in self.approximations.values() if isinstance(one, Vecchia)), None)

    @property
    def kernel_of_neighbors(self) -> str:
        """The kernel of the term with nearest neighbours, in words. Empty if there is none."""
        known = self.approximations
        return next((_words(term) for term in self.terms if isinstance(known[str(term.name)], Vecchia)), "")

    @property
    def name(self) -> str:
        """The kernels and their approximations, in a few words."""
        if self.is_exact:
            return f"exact {' + '.join(map(_words, self.terms))}"
        parts = [", ".join([_words(term), *_sizes(self.approximations[str(term.name)])]) for term in self.terms]
        return " + ".join(parts)

    @property
    def values(self) -> dict[str, str]:
        """The kernel and the approximations as one writes them, for `rfgp.GP`."""
        return {"kernel": repr(self.model.kernel), "approximation": repr(self.approximations)}


def _words(term: Term) -> str:
    """Return the name of a stationary kernel, such as "Matern 3/2"."""
    kernel = term.factors[0]
    nu = getattr(kernel, "nu", None)
    return type(kernel).__name__ + ("" if nu is None else f" {Fraction(nu).limit_denominator(100)}")


def _sizes(approximation: Any) -> Iterator[str]:
    """Yield the sizes of an approximation in words."""
    if isinstance(approximation, RandomFeatures):
        kind = "" if approximation.kind == "fourier" else f"{approximation.kind} "
        yield f"{approximation.num_frequencies} {'learned ' * approximation.learn_frequencies}{kind}frequencies"
    elif isinstance(approximation, InducingPoints):
        method = approximation.method
        yield f"{approximation.num_points} inducing points" + ("" if method in (None, "sor") else f" ({method})")
        yield from () if approximation.residual is None else _sizes(approximation.residual)
    elif isinstance(approximation, EquispacedFourier):
        yield "equispaced frequencies"
    elif isinstance(approximation, Vecchia):
        yield f"{approximation.num_neighbors} neighbors"
