"""The bases of all terms of a model, each with its own seed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rfgp import random
from rfgp.approximations.equispaced_fourier import LatticeTerm, with_shared_lattices
from rfgp.approximations.role import Approximation, TermData, TermPrior
from rfgp.kernels.summary import ColumnSummary
from rfgp.rows import Rows, ends_of, typical_noise


def priors_with_basis(
    data: Sequence[TermData], chosen: Mapping[str, Approximation], seed: int
) -> tuple[TermPrior, ...]:
    """Return the priors of terms, each with the basis of its approximation.

    Args:
        data: The terms and the rows.
        chosen: The approximations by the names of terms.
        seed: The seed of the model.
    """
    priors = [
        chosen[term_data.term.name].build(term_data, _seed(seed, number)) for number, term_data in enumerate(data)
    ]
    return with_shared_lattices(priors, data, chosen)


def renewed_priors(
    priors: Sequence[TermPrior], data: Sequence[TermData], chosen: Mapping[str, Approximation], seed: int
) -> tuple[TermPrior, ...]:
    """Return priors with the bases for the current hyperparameters.

    Args:
        priors: The terms with their bases.
        data: The terms and the rows, at these hyperparameters.
        chosen: The approximations by the names of terms.
        seed: The seed of the model.
    """
    renewed = [
        chosen[term_data.term.name].rebuild(term_data, _seed(seed, number), prior)
        for number, (term_data, prior) in enumerate(zip(data, priors, strict=True))
    ]
    return with_shared_lattices(renewed, data, chosen)


def columns_of_lattices(columns: ColumnSummary, priors: Sequence[TermPrior], rows: Rows) -> ColumnSummary | None:
    """Return the summary of columns for lattices, or None if no term has a lattice.

    Args:
        columns: The summary of the columns.
        priors: The terms with their bases.
        rows: The rows, whose range and noise the summary gets.
    """
    if not any(isinstance(prior, LatticeTerm) for prior in priors):
        return None
    return replace(columns.between(*ends_of(rows)), row_noise=typical_noise(rows))


def priors_on_new_lattices(
    priors: Sequence[TermPrior], data: Sequence[TermData], chosen: Mapping[str, Approximation], seed: int
) -> tuple[TermPrior, ...]:
    """Return priors with lattices for the current range and number of rows.

    Other bases are kept.

    Args:
        priors: The terms with their bases.
        data: The terms and the rows, at the current hyperparameters.
        chosen: The approximations by the names of terms.
        seed: The seed of the model.

    Raises:
        InvalidArgumentError: If a lattice would have too many features.
    """
    relaid = list(priors)
    for number, (term_data, prior) in enumerate(zip(data, priors, strict=True)):
        if isinstance(prior, LatticeTerm):
            relaid[number] = chosen[term_data.term.name].rebuild(term_data, _seed(seed, number), prior)
            if relaid[number] is not prior:
                chosen[term_data.term.name].check(term_data)
    return with_shared_lattices(relaid, data, chosen)


def _seed(seed: int, number: int) -> int:
    """Return the seed of the term with an index."""
    return random.child_seed(seed, random.Role.TERMS, number)
