"""Candidates of `rfgp.GP(kernel="auto")`: kernels with approximations of their terms."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from operator import add
from typing import Any

from rfgp.approximations import Approximation, EquispacedFourier, Exact, InducingPoints, RandomFeatures, Vecchia
from rfgp.approximations.fourier import MAX_COLUMNS
from rfgp.columns.rules import SphereKey
from rfgp.kernels import RBF, Group, Kernel, Linear, Matern, Periodic, Sphere
from rfgp.kernels.role import Term
from rfgp.likelihoods import Gaussian
from rfgp.limits import limits
from rfgp.models import Budget
from rfgp.models.spec import ModelOptions
from rfgp.priors import LogNormalVariance, SparseLengthscales, SparseVariances

MAX_LEVELS = 1000
"""The maximum number of levels whose effects are weights of a dense matrix in all candidates."""
SPARSE_ROWS = 10
"""The rows per column below which sparse priors are tried."""
NUM_FREQUENCIES = 128, 256, 512
"""The numbers of frequencies of candidates. With the second and third, frequencies are learned."""
_RBF, _LINEAR = RBF(name="rbf"), Linear(name="linear")
_ROUGH, _MEDIUM, _SMOOTH = (Matern(nu=nu, name="matern") for nu in (0.5, 1.5, 2.5))
_LOCAL = replace(_MEDIUM, name="local")


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model that a selection may choose.

    Attributes:
        model: The options of the model, whose approximations are a dict by the names of the terms.
        followups: Candidates that are scored only if this one survives a round.
        is_sparse: Whether the priors favor few columns.
        seasonal: The candidate with further terms for seasons. If they improve the cheapest candidate, it replaces this
            one. If None, there are no seasons.
    """

    model: ModelOptions
    followups: tuple["Candidate", ...] = ()
    is_sparse: bool = False
    seasonal: "Candidate | None" = None

    def with_groups(self, num_levels: Mapping[Any, int]) -> "Candidate":
        """Return the candidate with a `Group` effect for each column.

        Args:
            num_levels: The numbers of levels of the columns by key.
        """
        groups = {key: Group(key) for key in num_levels}
        few = [group for key, group in groups.items() if num_levels[key] <= MAX_LEVELS]
        return self.with_terms(list(groups.values()), {str(group.terms()[0].name): Exact() for group in few})

    def with_terms(self, kernels: Sequence[Kernel], used: Mapping[str, Approximation]) -> "Candidate":
        """Return the candidate, its followups and that with seasons, with further terms.

        Args:
            kernels: The kernels of the terms.
            used: Their approximations by name. Those of others are automatic.
        """
        given = {} if self.model.approximations == "auto" else self.model.approximations
        model = self.model.changed(
            kernel=reduce(add, kernels, self.model.kernel), approximations={**given, **used} or "auto"
        )
        followups = tuple(one.with_terms(kernels, used) for one in self.followups)
        return replace(
            self, model=model, followups=followups, seasonal=self.seasonal and self.seasonal.with_terms(kernels, used)
        )

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of the kernel."""
        return self.model.kernel.terms()

    @property
    def approximations(self) -> Mapping[str, Approximation]:
        """The approximation of each term but groups and seasons by its name.

        It is empty if approximations are automatic.
        """
        given = self.model.approximations
        names = [str(term.name) for term in self.terms if not isinstance(term.factors[0], Group | Periodic)]
        return {name: given[name] for name in names if name in given} if isinstance(given, Mapping) else {}

    @property
    def is_exact(self) -> bool:
        """Whether covariance matrices of all rows are formed."""
        return bool(self.approximations) and all(isinstance(used, Exact) for used in self.approximations.values())

    @property
    def is_linear(self) -> bool:
        """Whether all terms but groups are linear, so the candidate is a baseline too."""
        return all(isinstance(factor, Linear | Group) for term in self.terms for factor in term.factors)

    @property
    def is_seasonal(self) -> bool:
        """Whether it has periodic terms."""
        return any(isinstance(factor, Periodic) for term in self.terms for factor in term.factors)

    @property
    def is_equispaced_or_automatic(self) -> bool:
        """Whether all terms have equispaced or automatic approximations."""
        return all(isinstance(used, EquispacedFourier) for used in self.approximations.values())

    @property
    def features(self) -> RandomFeatures | None:
        """The random features of the first term that has some. If none has, None."""
        return next((used for used in self.approximations.values() if isinstance(used, RandomFeatures)), None)

    @property
    def learns_frequencies(self) -> bool:
        """Whether a fit changes the frequencies."""
        return self.features is not None and self.features.learn_frequencies

    @property
    def neighbors(self) -> Vecchia | None:
        """The neighbors of a term or of an inducing-point residual. If none, None."""
        parts = [getattr(used, "residual", None) or used for used in self.approximations.values()]
        return next((part for part in parts if isinstance(part, Vecchia)), None)

    @property
    def num_features(self) -> int:
        """The number of dense features of all terms.

        A frequency has two features if its kind is "fourier", otherwise one.
        """
        approximations = self.approximations.values()
        points = sum(used.num_points for used in approximations if isinstance(used, InducingPoints))
        return points + sum(
            (2 if used.kind == "fourier" else 1) * used.num_frequencies
            for used in approximations
            if isinstance(used, RandomFeatures)
        )

    @property
    def name(self) -> str:
        """The names of the kernels, with the sizes of their approximations."""
        if self.is_exact:
            return f"exact {' + '.join(map(_kernel_name, self.terms))}" + ", few columns" * self.is_sparse
        used = self.approximations
        return " + ".join(
            ", ".join([_kernel_name(term), *_size_phrases(used.get(str(term.name)))]) for term in self.terms
        )

    @property
    def gp_arguments(self) -> dict[str, str]:
        """The arguments of `rfgp.GP` that construct this candidate, as text."""
        arguments, given = {"kernel": repr(self.model.kernel)}, self.model.approximations
        arguments |= {"approximation": repr(dict(given))} if isinstance(given, Mapping) and given else {}
        return arguments | ({"priors": repr(dict(self.model.priors))} if self.is_sparse else {})


def _kernel_name(term: Term) -> str:
    """Return the name of a kernel, such as "Matern 3/2"."""
    return " * ".join(map(_factor_name, term.factors))


def _factor_name(kernel: Any) -> str:
    if isinstance(kernel, Group):
        return f"Group({', '.join(map(str, kernel.columns or ()))})"
    if isinstance(kernel, Periodic):
        return f"Periodic {kernel.period:g}"
    if isinstance(kernel, Sphere):
        return f"{_factor_name(kernel.kernel)} on the globe"
    nu = getattr(kernel, "nu", None)
    isotropic = "" if getattr(kernel, "ard", True) else "isotropic "
    return isotropic + type(kernel).__name__ + ("" if nu is None else f" {Fraction(nu).limit_denominator(100)}")


def _size_phrases(approximation: Any) -> Iterator[str]:
    """Yield phrases for the sizes of an approximation, such as "128 frequencies"."""
    if isinstance(approximation, RandomFeatures):
        kind = "" if approximation.kind == "fourier" else f"{approximation.kind} "
        yield f"{approximation.num_frequencies} {'learned ' * approximation.learn_frequencies}{kind}frequencies"
    elif isinstance(approximation, InducingPoints):
        method = approximation.method
        yield f"{approximation.num_points} inducing points" + ("" if method in (None, "sor") else f" ({method})")
        yield from () if approximation.residual is None else _size_phrases(approximation.residual)
    elif isinstance(approximation, EquispacedFourier):
        yield "equispaced frequencies"
    elif isinstance(approximation, Vecchia):
        yield f"{approximation.num_neighbors} neighbors"


Periods = Sequence[tuple[Any, float]]
"""Pairs of the key of a column and a period in its unit (days for dates)."""


@dataclass(frozen=True, eq=False)
class AutoSpace:
    """The candidates of `rfgp.GP(kernel="auto")`.

    Attributes:
        model: The options of the model. Its approximation applies to all candidates, unless it is "auto".
        limits: The limits of the selection and the fit.
        validate: How rows are held out: None, "forward", or the key of a column of groups.
    """

    model: ModelOptions
    limits: Budget
    validate: Any = None

    def candidates(
        self,
        num_rows: int,
        numbers: Sequence[Any],
        periods: Periods = (),
        groups: Mapping[Any, int] | None = None,
        *,
        globe: SphereKey | None = None,
        in_blocks: bool = False,
    ) -> tuple[Candidate, ...]:
        """Return the candidates.

        Args:
            num_rows: The number of rows with distinct inputs.
            numbers: The keys of the columns of numbers.
            periods: Columns, each with a period in its unit.
            groups: The numbers of levels of some columns by key. Each candidate has an effect of each level.
            globe: The key of a coordinate of points on the globe, if columns are their angles.
            in_blocks: Whether the rows are read in blocks, so that no candidate may hold all of them.
        """
        candidates = self._without_groups(num_rows, len(numbers), periods, in_blocks=in_blocks)
        if globe is not None and not in_blocks:
            candidates += self._on_globe(num_rows, numbers, globe)
        seasons = _seasons(periods)
        if seasons and not any(candidate.is_seasonal for candidate in candidates):
            candidates = tuple(one if one.is_linear else _with_seasons(one, seasons) for one in candidates)
        return tuple(candidate.with_groups(groups or {}) for candidate in candidates)

    def _without_groups(
        self, num_rows: int, num_columns: int, periods: Periods, *, in_blocks: bool
    ) -> tuple[Candidate, ...]:
        """Return the candidates without effects of groups."""
        approximation, is_gaussian = self.model.approximations, isinstance(self.model.likelihood, Gaussian)
        if approximation != "auto" and not isinstance(approximation, Exact):
            return self._each(approximation, _RBF, _SMOOTH, _MEDIUM, _ROUGH)
        if approximation == "auto" and (num_rows > limits().few_rows or in_blocks):
            if not is_gaussian:
                few, _, many = NUM_FREQUENCIES
                return *self._each(RandomFeatures(few), _RBF), *self._each(RandomFeatures(many), _RBF)
            if num_columns <= MAX_COLUMNS:
                return self._on_grids(num_columns, periods)
            neighbors = () if in_blocks else self._with_neighbors()
            return *self._each(Exact(), _LINEAR), *self._with_frequencies(), *neighbors
        if not is_gaussian:
            return self._each(Exact(), _RBF, _MEDIUM, _ROUGH)
        kernels: list[Kernel] = [RBF(name="rbf", ard=False), replace(_MEDIUM, ard=False)] if num_columns > 1 else []
        if num_columns < num_rows:
            kernels += [_LINEAR, _RBF, _MEDIUM, _ROUGH, _RBF + _LOCAL, _LINEAR + _RBF, *_with_periods(periods)]
        sparse = [_LINEAR, _RBF, _LINEAR + _RBF] if num_columns > num_rows / SPARSE_ROWS else []
        return *self._each(Exact(), *kernels), *map(self._sparse, sparse)

    def _on_globe(self, num_rows: int, numbers: Sequence[Any], globe: SphereKey) -> tuple[Candidate, ...]:
        """Return the candidates with distances on the globe, times and plus kernels of the other columns."""
        approximation = self.model.approximations
        if approximation != "auto" and not isinstance(approximation, Exact):
            return ()
        if approximation == "auto" and num_rows <= limits().few_rows:
            approximation = Exact()
        angles = globe.longitude, globe.latitude
        places = [Sphere(angles, base, name="globe") for base in (RBF(), Matern(nu=1.5), Matern(nu=0.5))]
        others = tuple(key for key in numbers if key not in angles)
        if not others:
            return self._each(approximation, *places)
        products = [place * Matern(others, nu=1.5) for place in places]
        return self._each(approximation, *products, places[1] + Linear(others, name="linear"))

    def _sparse(self, kernel: Kernel) -> Candidate:
        """Return the exact candidate of a kernel with priors for few columns."""
        priors: dict[str, Any] = {}
        for term in kernel.terms():
            if term.name == "linear":
                priors["linear.variance"] = SparseVariances()
            else:
                priors |= {"rbf.lengthscale": SparseLengthscales(), "rbf.outputscale": LogNormalVariance()}
        (candidate,) = self._each(Exact(), kernel)
        return replace(candidate, model=candidate.model.changed(priors={**priors, **self.model.priors}), is_sparse=True)

    def _on_grids(self, num_columns: int, periods: Periods) -> tuple[Candidate, ...]:
        """Return the candidates for at most three columns, with automatic approximations."""
        *smooth, medium, rough = self._each("auto", _LINEAR, _RBF, _SMOOTH, *_with_periods(periods), _MEDIUM, _ROUGH)
        if num_columns > 1:
            return *smooth, replace(medium, followups=(rough,))
        return *smooth, medium, rough, *self._each(EquispacedFourier(), _RBF + _LOCAL)

    def _with_frequencies(self) -> tuple[Candidate, ...]:
        """Return the candidates with random features alone."""
        (fixed,) = self._each(RandomFeatures(NUM_FREQUENCIES[0]), _RBF)
        followups: tuple[Candidate, ...] = ()
        for number in reversed(NUM_FREQUENCIES):  # more are a followup of fewer
            (learned,) = self._each(RandomFeatures(number, learn_frequencies=True), _RBF)
            followups = (replace(learned, followups=followups),)
        return fixed, *followups

    def _with_neighbors(self) -> tuple[Candidate, ...]:
        """Return the candidates with neighbors, alone and with a smoother term."""
        alone, *others = self._each(Vecchia(), _MEDIUM, _ROUGH, _SMOOTH)
        approximations = {"rbf": RandomFeatures(NUM_FREQUENCIES[0]), "local": Vecchia()}
        both, rough = self._each(approximations, _RBF + _LOCAL, _RBF + replace(_ROUGH, name="local"))
        return replace(alone, followups=tuple(others)), replace(both, followups=(rough,))

    def _each(self, approximation: Any, *kernels: Kernel) -> tuple[Candidate, ...]:
        """Return a candidate for each kernel, with one approximation, a dict of them, or "auto"."""
        candidates = []
        for kernel in kernels:
            is_one = isinstance(approximation, Approximation)
            used = {str(term.name): approximation for term in kernel.terms()} if is_one else approximation
            candidates.append(Candidate(self.model.changed(kernel=kernel, approximations=used, search_space=None)))
        return tuple(candidates)


def _seasons(periods: Periods) -> list[Kernel]:
    return [Periodic(key, period, name=f"season {period:g}") for key, period in periods]


def _with_seasons(candidate: Candidate, seasons: Sequence[Kernel]) -> Candidate:
    """Return a candidate that has a variant with periodic terms, by their Fourier series."""
    used = Exact() if candidate.is_exact else RandomFeatures()
    return replace(candidate, seasonal=candidate.with_terms(seasons, {str(season.name): used for season in seasons}))


def _with_periods(periods: Periods) -> list[Kernel]:
    """Return sums of linear, RBF and one or all periodic kernels."""
    terms = _seasons(periods)
    combinations = [[term] for term in terms] + ([terms] if len(terms) > 1 else [])
    return [reduce(add, combination, _LINEAR + _RBF) for combination in combinations]
