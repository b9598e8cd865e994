"""Checks of memory, and warnings about terms that the data do not determine."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from graphs.checks import machine_memory
from rfgp.approximations import Approximation
from rfgp.approximations.role import TermData
from rfgp.columns import ColumnKind
from rfgp.errors import InvalidArgumentError, TermWarning
from rfgp.kernels.summary import ColumnSummary
from rfgp.kernels.terms import BoundTerm, Term, label_of
from rfgp.regression.components import pattern_links, warnings_of_components
from rfgp.rows import Rows, gathered

LONG = 1.5
"""The ratio of a period to the extent of its column above which a model warns. Hours of a day exceed 1 slightly."""
SHARE = 0.8
"""The default memory limit of a model, as a fraction of the machine's memory."""


def check_memory(chosen: Mapping[str, Approximation], terms: Sequence[TermData], limit: float | None) -> None:
    """Check that terms fit into memory, before anything is allocated.

    Args:
        chosen: The approximations of all terms by name.
        terms: The terms.
        limit: The memory limit in bytes. If None, a fixed fraction of the machine's memory.

    Raises:
        InvalidArgumentError: If they do not. The message names the largest term, its memory and a remedy.
    """
    allowed = SHARE * machine_memory() if limit is None else limit
    costs = {data.term.name: chosen[data.term.name].cost(data) for data in terms}
    total = sum(cost.memory for cost in costs.values())
    if total > allowed:
        name = max(costs, key=lambda term: costs[term].memory)
        raise InvalidArgumentError(
            f"The model must fit into {allowed / 2**30:,.3g} GiB, got {total / 2**30:,.3g} GiB. The term {name!r} "
            f"takes {costs[name].memory / 2**30:,.3g} GiB by {costs[name].note}. Give it another approximation, such "
            "as rfgp.RandomFeatures() or rfgp.InducingPoints() with fewer features."
        )


def term_warnings(
    terms: Sequence[BoundTerm], columns: ColumnSummary, values: Mapping[str, Tensor]
) -> Iterator[Warning]:
    """Yield a warning for each term that the rows cannot determine.

    Args:
        terms: The terms.
        columns: The summary of the rows.
        values: The hyperparameters (...) in standardized units, by dotted name.
    """
    if not len(columns.sample):
        return
    for term in terms:
        for factor, indices, prefix in term.parts():
            selected, label = columns.select(indices), label_of(factor)
            period = values.get(f"{prefix}period")
            if period is not None and bool(period > LONG * selected.extent.max()):
                yield TermWarning(
                    f"The period of {label} in the term {term.name!r} is longer than the data, so that a season cannot "
                    "be separated from a trend. Use a shorter period, or k.RBF."
                )
            if factor.kind is ColumnKind.LEVEL and _is_seen_once(selected.sample):
                yield TermWarning(
                    f"Every level of {label} in the term {term.name!r} has one row, so that its effects cannot be "
                    "separated from noise. Leave the term out, or fix its variance."
                )


def _is_seen_once(sample: Tensor) -> bool:
    """Return whether at least two rows (r, c) all have different levels."""
    return len(sample) > 1 and len(torch.unique(sample, dim=0)) == len(sample)


def warnings_of_places(terms: Sequence[BoundTerm], columns: ColumnSummary, rows: Rows) -> Iterator[Warning]:
    """Yield a warning for each domain that has a connected component without rows.

    Args:
        terms: The terms, of which those on surfaces, networks and graphs are checked.
        columns: The summary of the columns.
        rows: The rows.
    """
    for term in terms:
        for factor, indices, _ in term.parts():
            if factor.kind not in (ColumnKind.NODE, ColumnKind.COORDINATE):
                continue
            x, latent = gathered(rows).inputs, factor.latent_field(columns.select(indices))
            if factor.nodes is not None:
                positions = x[:, indices[0]].long().numpy()
                yield from warnings_of_components(factor.nodes.adjacency, positions, *_WORDS)
            elif latent is not None:
                field, projector = latent.refine(x[:, indices])
                words = _WORDS if factor.domain is None else (factor.domain.subject, factor.domain.joining)
                links = pattern_links(field.pattern)
                yield from warnings_of_components(links, projector(x[:, indices]).indices, *words)


_WORDS = "The graph has", ""


def identity_of(terms: Sequence[Term]) -> Iterator[str | Tensor]:
    """Yield the graphs, meshes and roads of terms as texts and tensors (...).

    Args:
        terms: The terms.
    """
    for factor in (factor for term in terms for factor in term.factors):
        if factor.domain is not None:
            yield from factor.domain.identity()
        if factor.nodes is not None:
            matrix = factor.nodes.adjacency
            yield factor.nodes.laplacian
            yield from (torch.from_numpy(np.array(part)) for part in (matrix.indptr, matrix.indices, matrix.data))
