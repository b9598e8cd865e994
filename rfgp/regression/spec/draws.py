"""The random draws of all terms of a model, each with a seed of its own."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rfgp import random
from rfgp.approximations.equispaced_fourier import LatticeTerm, with_shared_lattices
from rfgp.approximations.role import Approximation, TermData, TermPrior
from rfgp.rows import Rows, ends_of


def drawn_priors(data: Sequence[TermData], chosen: Mapping[str, Approximation], seed: int) -> tuple[TermPrior, ...]:
    """Return the priors of terms with their draws made.

    Args:
        data: The terms and the rows.
        chosen: The approximations by the names of terms.
        seed: The seed of the model.
    """
    priors = [chosen[one.term.name].draw(one, _seed(seed, place)) for place, one in enumerate(data)]
    return with_shared_lattices(priors, data, chosen)


def redrawn_priors(
    priors: Sequence[TermPrior], data: Sequence[TermData], chosen: Mapping[str, Approximation], seed: int
) -> tuple[TermPrior, ...]:
    """Return priors whose draws that depend on hyperparameters are those for the present ones.

    Args:
        priors: The terms as they were drawn.
        data: The terms and the rows, at these hyperparameters.
        chosen: The approximations by the names of terms.
        seed: The seed of the model.
    """
    found = [
        chosen[one.term.name].redraw(one, _seed(seed, place), prior)
        for place, (one, prior) in enumerate(zip(data, priors, strict=True))
    ]
    return with_shared_lattices(found, data, chosen)


def ends_outside(priors: Sequence[TermPrior], rows: Rows) -> tuple[Tensor, Tensor] | None:
    """Return the ends of rows (D,) each, if some lie outside the box of the lattice of a term. Otherwise None."""
    lattices = [prior.design.lattice for prior in priors if isinstance(prior, LatticeTerm)]
    if not lattices:
        return None
    low, high = ends_of(rows)
    ends = torch.stack([low, high])
    is_outside = any(not bool(lattice.contains(lattice.columns(ends)).all()) for lattice in lattices)
    return (low, high) if is_outside else None


def relaid_priors(
    priors: Sequence[TermPrior], data: Sequence[TermData], chosen: Mapping[str, Approximation], seed: int
) -> tuple[TermPrior, ...]:
    """Return priors whose lattices are those for the present range of the rows. Other draws are kept."""
    found = [
        chosen[one.term.name].draw(one, _seed(seed, place)) if isinstance(prior, LatticeTerm) else prior
        for place, (one, prior) in enumerate(zip(data, priors, strict=True))
    ]
    return with_shared_lattices(found, data, chosen)


def _seed(seed: int, place: int) -> int:
    """Return the seed of the term at a place."""
    return random.child_seed(seed, random.Role.TERMS, place)
