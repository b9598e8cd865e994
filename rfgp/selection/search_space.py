"""The candidates of `rfgp.GP(kernel="auto")`: kernels times approximations, within what the user gave."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rfgp.approximations import Approximation, EquispacedFourier, Exact, InducingPoints, RandomFeatures, Vecchia
from rfgp.approximations.equispaced_fourier import MOST_COLUMNS
from rfgp.kernels import RBF, Kernel, Matern
from rfgp.likelihoods import Normal
from rfgp.regression import Limits
from rfgp.regression.spec import ModelOptions
from rfgp.selection.candidates import Candidate

FEW_ROWS = 2000
"""The most rows for which the candidates are exact. Beyond, one exact kernel is behind neighbours: by 0.15 nats a row
on 2,700 rows of power-plant."""
LOCAL = "local"
"""The name of the second term of a sum."""


class SearchSpace(Protocol):
    """The role: the candidates of a selection, and what it may cost."""

    @property
    def limits(self) -> Limits:
        """The limits of the selection and the fit."""

    def candidates(
        self, num_rows: int, num_columns: int | None = None, *, in_blocks: bool = False
    ) -> tuple[Candidate, ...]:
        """Return the candidates for a number of rows, variants after their heads.

        Args:
            num_rows: The number of rows.
            num_columns: The number of columns. If None, many.
            in_blocks: Whether the rows are read in blocks, so that no candidate may keep them.
        """


Recipe = tuple[tuple[Kernel, Approximation], ...]
"""The kernel of each term, with its approximation."""


def _rbf() -> Kernel:
    return RBF(name="rbf")


def _matern(nu: float) -> Kernel:
    return Matern(nu=nu, name="matern")


def _alone(kernel: Kernel, approximation: Approximation) -> Recipe:
    return ((kernel, approximation),)


def _sum(approximation: Approximation, nu: float, other: Approximation) -> Recipe:
    return (_rbf(), approximation), (Matern(nu=nu, name=LOCAL), other)


def _frequencies(count: int, *, learned: bool = False) -> RandomFeatures:
    return RandomFeatures(count, learn_frequencies=learned)


_EXACT: tuple[Recipe, ...] = (
    _alone(_rbf(), Exact()),
    _alone(_matern(1.5), Exact()),
    _alone(_matern(0.5), Exact()),
    _sum(Exact(), 1.5, Exact()),
    _sum(Exact(), 0.5, Exact()),
)
"""The candidates for few rows."""
_FREQUENCIES: tuple[tuple[Recipe, int | None], ...] = (
    (_alone(_rbf(), _frequencies(128)), None),
    (_alone(_rbf(), _frequencies(512)), 0),
    (_alone(_rbf(), _frequencies(128, learned=True)), None),
    (_alone(_rbf(), _frequencies(64, learned=True)), 2),
    (_alone(_rbf(), _frequencies(256, learned=True)), 2),
    (_alone(_rbf(), _frequencies(512, learned=True)), 2),
)
"""Those that read rows in passes, with the places of their heads."""
_NEIGHBORS: tuple[tuple[Recipe, int | None], ...] = (
    (_alone(_matern(1.5), Vecchia()), None),
    (_alone(_matern(0.5), Vecchia()), 0),
    (_alone(_matern(2.5), Vecchia()), 0),
)
_SUMS: tuple[tuple[Recipe, int | None], ...] = (
    (_sum(_frequencies(128), 1.5, Vecchia()), None),
    (_sum(_frequencies(128), 0.5, Vecchia()), 0),
    (_sum(_frequencies(128, learned=True), 1.5, Vecchia()), 0),
)


_LATTICES: tuple[tuple[Recipe, int | None], ...] = (
    (_alone(_rbf(), EquispacedFourier()), None),
    (_alone(_matern(2.5), EquispacedFourier()), None),
    (_alone(_matern(1.5), EquispacedFourier()), None),
    (_sum(EquispacedFourier(), 1.5, EquispacedFourier()), None),
)
"""Those that read rows in one pass, for at most three columns; the sum for one column, where it has few features."""


def _many() -> Iterator[tuple[Recipe, int | None]]:
    """Yield the candidates for many rows, with the places of their heads."""
    start = 0
    for group in (_NEIGHBORS, _FREQUENCIES, _SUMS):
        yield from ((recipe, None if head is None else start + head) for recipe, head in group)
        start += len(group)
    yield _alone(_matern(1.5), InducingPoints(method="sor", residual=Vecchia())), 0


@dataclass(frozen=True, eq=False)
class AutoSpace:
    """The candidates of `rfgp.GP(kernel="auto")`.

    Attributes:
        model: The options of the model. Its approximation applies to all candidates, unless it is "auto".
        limits: The limits of the selection and the fit.
    """

    model: ModelOptions
    limits: Limits

    def candidates(
        self, num_rows: int, num_columns: int | None = None, *, in_blocks: bool = False
    ) -> tuple[Candidate, ...]:
        """Return the candidates for a number of rows, variants after their heads.

        Args:
            num_rows: The number of rows.
            num_columns: The number of columns. If None, many.
            in_blocks: Whether the rows are read in blocks.
        """
        is_low = self.is_gaussian and num_columns is not None and num_columns <= MOST_COLUMNS
        lattices = _LATTICES[: None if num_columns == 1 else -1] if is_low else ()
        if self.model.approximations != "auto":
            given = self.model.approximations
            return self._made([(recipe, None) for recipe in _by(given)])
        if in_blocks:
            return self._made((*(_FREQUENCIES if self.is_gaussian else _FREQUENCIES[:2]), *lattices))
        if num_rows <= FEW_ROWS:
            return self._made([(recipe, None) for recipe in _EXACT[: None if self.is_gaussian else 3]])
        return self._made((*_many(), *lattices) if self.is_gaussian else _FREQUENCIES[:2])

    @property
    def is_gaussian(self) -> bool:
        """Whether the likelihood is Gaussian. Under others neither frequencies nor neighbours are compared."""
        return isinstance(self.model.likelihood, Normal)

    def _made(self, recipes: Sequence[tuple[Recipe, int | None]]) -> tuple[Candidate, ...]:
        return tuple(Candidate(self._options(recipe), head) for recipe, head in recipes)

    def _options(self, recipe: Recipe) -> ModelOptions:
        """Return the options of the model of a recipe."""
        kernel, *others = (kernel for kernel, _ in recipe)
        for other in others:
            kernel = kernel + other
        names = [str(term.name) for term in kernel.terms()]
        chosen = {name: approximation for name, (_, approximation) in zip(names, recipe, strict=True)}
        return self.model.changed(kernel=kernel, approximations=chosen, search_space=None)


def _by(approximation: Any) -> list[Recipe]:
    """Return the kernels that are compared if the approximation is given."""
    if isinstance(approximation, Exact):
        return list(_EXACT)
    kernels = [_rbf(), _matern(2.5), _matern(1.5), _matern(0.5)]
    return [_alone(kernel, approximation) for kernel in kernels]
