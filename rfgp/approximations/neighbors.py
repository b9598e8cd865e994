"""Nearest neighbours: each row conditioned on those before it that are nearest (Vecchia)."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from rfgp import spectra
from rfgp.approximations.role import Approximation, Cost, TermData, TermPrior
from rfgp.blocks import Prior, VecchiaBlock
from rfgp.counts import check_count
from rfgp.errors import InvalidArgumentError
from rfgp.kernels.role import Values
from rfgp.kernels.summary import ColumnSummary
from rfgp.kernels.terms import BoundTerm
from rfgp.local.kinds import kind_of

CONDITIONS = ("auto", "responses", "latent")
"""What rows are conditioned on."""


@dataclass(frozen=True, repr=False)
class Vecchia(Approximation):
    """Each row conditioned on its nearest predecessors in a random order.

    It serves one term of a model: a Gaussian kernel, a product of Gaussian kernels, or a Matern kernel with nu 1/2, 3/2
    or 5/2.

    Source: Vecchia (1988), Estimation and model identification for continuous spatial processes; Katzfuss and
    Guinness (2021), A general framework for Vecchia approximations of Gaussian processes.

    Attributes:
        num_neighbors: The most neighbours of a row.
        condition_on: "responses" or "latent" values of the neighbours. If "auto", the noise decides.
        seed: The seed of the order of the rows. If None, that of the model.

    Raises:
        InvalidArgumentError: the number of neighbours is not a positive integer, or there is no such condition.

    Examples:
        >>> import rfgp
        >>> rfgp.Vecchia(20)
        Vecchia(num_neighbors=20)
    """

    num_neighbors: int = 30
    condition_on: str = field(default="auto", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "num_neighbors", check_count("num_neighbors", self.num_neighbors))
        if self.condition_on not in CONDITIONS:
            raise InvalidArgumentError(
                f"condition_on must be one of {', '.join(CONDITIONS)}, got {self.condition_on!r}."
            )

    def refusal(self, data: TermData) -> str | None:
        """Return why the approximation cannot serve a term."""
        if _kind_of(data.term) is None:
            return "its kernel is neither Gaussian nor Matern with nu 0.5, 1.5 or 2.5. Use InducingPoints() or Exact()."
        if self.condition_on == "responses" and not data.is_gaussian:
            return "condition_on='responses' requires a Gaussian likelihood. Use condition_on='latent'."
        return None

    def cost(self, data: TermData) -> Cost:
        """Return the cost of the neighbours."""
        size = min(self.num_neighbors, data.num_rows)
        return Cost(data.num_rows, 16.0 * (size + 1) * data.num_rows, f"{size} neighbours of each row")

    def draw(self, data: TermData, seed: int) -> TermPrior:
        """Return the term with the seed of the order of its rows."""
        kind = _kind_of(data.term)
        assert kind is not None
        return NeighborTerm(
            data.term, kind, self.num_neighbors, seed if self.seed is None else self.seed, self.condition_on
        )


def _kind_of(term: BoundTerm) -> str | None:
    """Return the name of the kernel of a term. None if there are no loops for it."""
    measures = [factor.measure for factor in term.term.factors]
    if len(measures) == 1:
        return None if measures[0] is None else kind_of(measures[0])
    return "gaussian" if all(isinstance(measure, spectra.Gaussian) for measure in measures) else None


@dataclass(frozen=True, eq=False)
class NeighborTerm(TermPrior):
    """A term with nearest neighbours.

    Attributes:
        term: The term. The columns and the lengthscales of several Gaussian factors are stacked.
        kind: The name of the kernel.
        num_neighbors: The most neighbours of a row.
        seed: The seed of the order of the rows.
        condition_on: What rows are conditioned on.
    """

    term: BoundTerm
    kind: str
    num_neighbors: int
    seed: int
    condition_on: str

    def at(self, values: Values, columns: ColumnSummary) -> Prior:
        """Return the prior at hyperparameters by path, given all columns."""
        places = [place for _, own, _ in self.term.parts() for place in own]
        lengthscales = [_expanded(values[f"{prefix}lengthscale"], own) for _, own, prefix in self.term.parts()]
        assert self.term.outputscale is not None
        block = VecchiaBlock(
            self.kind,
            torch.cat(lengthscales),
            values[self.term.outputscale],
            self.num_neighbors,
            self.seed,
            self.condition_on,
            name=self.term.name,
            columns=tuple(places),
        )
        return Prior(neighbors=block)


def _expanded(lengthscale: Tensor, places: list[int]) -> Tensor:
    """Return the lengthscale of each column, (d,)."""
    return lengthscale.expand(len(places))
