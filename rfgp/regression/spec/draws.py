"""The random draws of all terms of a model, each with its own seed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rfgp import random
from rfgp.approximations.equispaced_fourier import LatticeTerm, with_shared_lattices
from rfgp.approximations.role import Approximation, TermData, TermPrior
from rfgp.kernels.summary import ColumnSummary
from rfgp.rows import Rows, ends_of, typical_noise


def drawn_priors(data: Sequence[TermData], chosen: Mapping[str, Approximation], seed: int) -> tuple[TermPrior, ...]:
    """Return the priors of terms with their random draws.

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
    """Return priors with hyperparameter-dependent draws updated to the current hyperparameters.

    Args:
        priors: The terms with their draws.
        data: The terms and the rows, at these hyperparameters.
        chosen: The approximations by the names of terms.
        seed: The seed of the model.
    """
    found = [
        chosen[one.term.name].redraw(one, _seed(seed, place), prior)
        for place, (one, prior) in enumerate(zip(data, priors, strict=True))
    ]
    return with_shared_lattices(found, data, chosen)


def columns_of_lattices(columns: ColumnSummary, priors: Sequence[TermPrior], rows: Rows) -> ColumnSummary | None:
    """Return the summary of columns with the range and noise of rows if a term has a lattice, or None."""
    if not any(isinstance(prior, LatticeTerm) for prior in priors):
        return None
    return replace(columns.between(*ends_of(rows)), row_noise=typical_noise(rows))


def relaid_priors(
    priors: Sequence[TermPrior], data: Sequence[TermData], chosen: Mapping[str, Approximation], seed: int
) -> tuple[TermPrior, ...]:
    """Return priors with lattices for the current range and number of rows. Other draws are kept.

    Raises:
        InvalidArgumentError: A lattice would have too many features.
    """
    found = list(priors)
    for place, (one, prior) in enumerate(zip(data, priors, strict=True)):
        if isinstance(prior, LatticeTerm):
            found[place] = chosen[one.term.name].redraw(one, _seed(seed, place), prior)
            if found[place] is not prior:
                chosen[one.term.name].check(one)
    return with_shared_lattices(found, data, chosen)


def _seed(seed: int, place: int) -> int:
    """Return the seed of the term with an index."""
    return random.child_seed(seed, random.Role.TERMS, place)
