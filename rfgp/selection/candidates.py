"""Candidates of `rfgp.GP(kernel="auto")`: kernels with approximations of their terms."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from operator import add
from typing import Any, Protocol

from rfgp.approximations import Approximation, EquispacedFourier, Exact, InducingPoints, RandomFeatures, Vecchia
from rfgp.approximations.equispaced_fourier import MOST_COLUMNS
from rfgp.kernels import RBF, Kernel, Linear, Matern, Periodic
from rfgp.kernels.terms import Term
from rfgp.likelihoods import Gaussian
from rfgp.priors import LogNormalVariance, SparseLengthscales, SparseVariances
from rfgp.regression import Limits
from rfgp.regression.spec import ModelOptions

FEW_ROWS = 2000
"""The largest number of rows with distinct inputs for which the candidates are exact."""
SPARSE_ROWS = 10
"""The rows per column below which sparse priors are tried."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model that a selection may choose.

    Attributes:
        model: The options of the model, whose approximations are a dict by the names of the terms.
        followups: Candidates that are scored only if this one survives a round.
        is_sparse: Whether the priors favor few columns.
    """

    model: ModelOptions
    followups: tuple["Candidate", ...] = ()
    is_sparse: bool = False

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of the kernel."""
        return self.model.kernel.terms()

    @property
    def approximations(self) -> Mapping[str, Approximation]:
        """The approximation of each term by its name. If they are planned, empty."""
        found = self.model.approximations
        return found if isinstance(found, Mapping) else {}

    @property
    def is_exact(self) -> bool:
        """Whether covariance matrices of all rows are formed."""
        return bool(self.approximations) and all(isinstance(one, Exact) for one in self.approximations.values())

    @property
    def is_linear(self) -> bool:
        """Whether the only term is linear, so that the candidate is a baseline too."""
        return all(isinstance(factor, Linear) for term in self.terms for factor in term.factors)

    @property
    def is_equispaced_or_planned(self) -> bool:
        """Whether all terms have equispaced or planned approximations."""
        return all(isinstance(one, EquispacedFourier) for one in self.approximations.values())

    @property
    def features(self) -> RandomFeatures | None:
        """The random features of a term. If there are none, None."""
        return next((one for one in self.approximations.values() if isinstance(one, RandomFeatures)), None)

    @property
    def learns_frequencies(self) -> bool:
        """Whether a fit changes the frequencies."""
        return self.features is not None and self.features.learn_frequencies

    def learns_those_of(self, other: "Candidate") -> bool:
        """Return whether it learns the frequencies that another one keeps fixed."""
        if not self.learns_frequencies or other.features is None or other.learns_frequencies or other.neighbors:
            return False
        return self.num_features == other.num_features

    @property
    def neighbors(self) -> Vecchia | None:
        """The neighbors of a term or of the residual of inducing points. If there are none, None."""
        known = [getattr(one, "residual", None) or one for one in self.approximations.values()]
        return next((one for one in known if isinstance(one, Vecchia)), None)

    @property
    def num_features(self) -> int:
        """The number of dense features."""
        points = sum(one.num_points for one in self.approximations.values() if isinstance(one, InducingPoints))
        return points + (0 if self.features is None else 2 * self.features.num_frequencies)

    @property
    def name(self) -> str:
        """The kernels and their approximations in words."""
        if self.is_exact:
            return f"exact {' + '.join(map(_words, self.terms))}" + ", few columns" * self.is_sparse
        known = self.approximations
        parts = [", ".join([_words(term), *_sizes(known.get(str(term.name)))]) for term in self.terms]
        return " + ".join(parts)

    @property
    def values(self) -> dict[str, str]:
        """The arguments of `rfgp.GP` that give this candidate, as text."""
        given = {"approximation": repr(self.approximations)} if self.approximations else {}
        priors = {"priors": repr(dict(self.model.priors))} if self.is_sparse else {}
        return {"kernel": repr(self.model.kernel), **given, **priors}


def _words(term: Term) -> str:
    """Return the name of a kernel, such as "Matern 3/2"."""
    kernel = term.factors[0]
    nu = getattr(kernel, "nu", None)
    found = type(kernel).__name__ + ("" if nu is None else f" {Fraction(nu).limit_denominator(100)}")
    return found if getattr(kernel, "ard", True) else f"isotropic {found}"


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


Periods = Sequence[tuple[Any, float]]
"""Pairs of the key of a column and a period in its unit, which is days for dates."""


class SearchSpace(Protocol):
    """The role: the candidates of a selection, and its limits."""

    @property
    def limits(self) -> Limits:
        """The limits of the selection and the fit."""

    @property
    def validate(self) -> Any:
        """How rows are held out: None, "forward", or the key of a column of groups."""

    def candidates(
        self, num_rows: int, num_columns: int, periods: Periods = (), *, in_blocks: bool = False
    ) -> tuple[Candidate, ...]:
        """Return the candidates.

        Args:
            num_rows: The number of rows with distinct inputs.
            num_columns: The number of columns.
            periods: Columns, each with a period in its unit.
            in_blocks: Whether the rows are read in blocks, so that no candidate may hold all of them.
        """


@dataclass(frozen=True, eq=False)
class AutoSpace:
    """The candidates of `rfgp.GP(kernel="auto")`.

    Attributes:
        model: The options of the model. Its approximation applies to all candidates, unless it is "auto".
        limits: The limits of the selection and the fit.
        validate: How rows are held out: None, "forward", or the key of a column of groups.
    """

    model: ModelOptions
    limits: Limits
    validate: Any = None

    def candidates(
        self, num_rows: int, num_columns: int, periods: Periods = (), *, in_blocks: bool = False
    ) -> tuple[Candidate, ...]:
        """Return the candidates; see `SearchSpace`."""
        given = self.model.approximations
        if given != "auto" and not isinstance(given, Exact):
            return tuple(self._of(given, one) for one in (_rbf(), _matern(2.5), _matern(1.5), _matern(0.5)))
        if given != "auto" or (num_rows <= FEW_ROWS and not in_blocks):
            return self._exact(num_rows, num_columns, periods)
        if not self._is_gaussian:
            return self._of(RandomFeatures(128), _rbf()), self._of(RandomFeatures(512), _rbf())
        if num_columns <= MOST_COLUMNS:
            return self._with_auto_approximation(num_columns, periods)
        line = self._of(Exact(), _linear())
        return (line, *self._with_frequencies(), *(() if in_blocks else self._with_neighbors()))

    @property
    def _is_gaussian(self) -> bool:
        """Whether the likelihood is Gaussian. Otherwise frequencies and neighbors are not compared."""
        return isinstance(self.model.likelihood, Gaussian)

    def _exact(self, num_rows: int, num_columns: int, periods: Periods) -> tuple[Candidate, ...]:
        """Return the candidates for few rows."""
        alone, isotropic = [_rbf(), _matern(1.5), _matern(0.5)], [_rbf(ard=False), _matern(1.5, ard=False)]
        if not self._is_gaussian:
            return tuple(self._of(Exact(), kernel) for kernel in alone)
        sums = [
            _rbf() + _matern(1.5, "local"),
            _rbf() + _matern(0.5, "local"),
            _linear() + _rbf(),
            _linear() + _matern(1.5),
        ]
        kernels = isotropic
        if num_columns < num_rows:
            kernels += [_linear(), *alone, *sums, *_with_periods(_linear() + _rbf(), periods)]
        found = [self._of(Exact(), kernel) for kernel in kernels]
        if num_columns > num_rows / SPARSE_ROWS:
            found += [self._sparse(kernel) for kernel in (_linear(), _rbf(), _linear() + _rbf())]
        return tuple(found)

    def _sparse(self, kernel: Kernel) -> Candidate:
        """Return the exact candidate of a kernel with priors for few columns."""
        known = {
            "linear.variance": SparseVariances(),
            "rbf.lengthscale": SparseLengthscales(),
            "rbf.outputscale": LogNormalVariance(),
        }
        names = {str(term.name) for term in kernel.terms()}
        own = {path: prior for path, prior in known.items() if path.split(".")[0] in names}
        made = self._of(Exact(), kernel)
        return replace(made, model=made.model.changed(priors={**own, **self.model.priors}), is_sparse=True)

    def _with_auto_approximation(self, num_columns: int, periods: Periods) -> tuple[Candidate, ...]:
        """Return the candidates for at most three columns, with planned approximations."""
        found = [self._of("auto", one) for one in (_linear(), _rbf(), _matern(2.5), _matern(1.5))]
        found += [self._of("auto", one) for one in _with_periods(_linear() + _rbf(), periods)]
        if num_columns == 1:
            found.append(self._of("auto", _matern(0.5)))
            found.append(self._of(EquispacedFourier(), _rbf() + _matern(1.5, "local")))
        return tuple(found)

    def _with_frequencies(self) -> tuple[Candidate, ...]:
        """Return the candidates with random features alone."""
        found: tuple[Candidate, ...] = ()
        for m in (512, 256, 128):  # each is scored if half as many frequencies are the best
            found = (self._of(RandomFeatures(m, learn_frequencies=True), _rbf(), found),)
        return self._of(RandomFeatures(128), _rbf()), *found

    def _with_neighbors(self) -> tuple[Candidate, ...]:
        """Return the candidates with neighbors, alone and with a smoother term."""
        alone = [self._of(Vecchia(), _matern(nu)) for nu in (1.5, 0.5, 2.5)]
        chosen = {"rbf": RandomFeatures(128), "local": Vecchia()}
        both = [self._of(chosen, _rbf() + _matern(nu, "local")) for nu in (1.5, 0.5)]
        return replace(alone[0], followups=tuple(alone[1:])), replace(both[0], followups=tuple(both[1:]))

    def _of(self, approximation: Any, kernel: Kernel, followups: Iterable[Candidate] = ()) -> Candidate:
        """Return the candidate of a kernel with an approximation, a dict or planned ones."""
        names = [str(term.name) for term in kernel.terms()]
        chosen = dict.fromkeys(names, approximation) if isinstance(approximation, Approximation) else approximation
        return Candidate(self.model.changed(kernel=kernel, approximations=chosen, search_space=None), tuple(followups))


def _rbf(ard: bool = True) -> Kernel:
    return RBF(name="rbf", ard=ard)


def _matern(nu: float, name: str = "matern", ard: bool = True) -> Kernel:
    return Matern(nu=nu, name=name, ard=ard)


def _linear() -> Kernel:
    return Linear(name="linear")


def _with_periods(kernel: Kernel, periods: Periods) -> list[Kernel]:
    """Return the sum of a kernel and each season, and with several the sum with all."""
    terms = [Periodic(key, period, name=f"season {period:g}") for key, period in periods]
    found = [kernel + term for term in terms]
    if len(terms) > 1:
        found.append(reduce(add, terms, kernel))
    return found
