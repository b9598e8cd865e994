"""Starting values of kernels, and the bases of all terms, each with its own seed."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from rfgp import random
from rfgp.blocks import Prior
from rfgp.errors import InvalidArgumentError
from rfgp.kernels.role import BoundTerm
from rfgp.parameters import ParameterValues
from rfgp.rows import Block, Rows, rows_in_memory
from rfgp.scaling import moments

# --- Starting values of kernels, and samples of rows for their computation -------------------------------------------

MAX_SAMPLED = 10_000
"""The maximum number of rows whose columns are summarised for starting values and random draws."""
FREEDOM = 0.5
"""The prior standard deviation of the logarithm of a factor of a free modulation."""


def kernel_starts(terms: Sequence[BoundTerm]) -> Iterator[tuple[str, Any]]:
    """Yield the starting values of kernels by dotted name, in the user's units.

    Args:
        terms: The terms.

    Raises:
        InvalidArgumentError: If a term has a starting variance but no output scale.
    """
    for term in terms:
        for factor, _, prefix in term.parts():
            for name, value in factor.starts.items():
                if value is not None:
                    yield f"{prefix}{name}", value
        if term.term.variance is not None:
            if term.outputscale is None:
                raise InvalidArgumentError(
                    f"The term {term.name!r} has no output scale to start at {term.term.variance:g}. Give start= for "
                    "its variance."
                )
            yield term.outputscale, term.term.variance


NARROWER, WEAKER = 0.5, 0.25
"""The factors of the starting lengthscale and variance for each earlier term on the same columns.

Equal starts ended 20 to 110 nats lower for a sum of a Gaussian and a Matern kernel on 927 rows of concrete."""


def repetitions(terms: Sequence[BoundTerm]) -> dict[str, int]:
    """Return the number of earlier stationary terms on the same columns by term name.

    Args:
        terms: The terms.
    """
    counts, seen = dict[str, int](), list[tuple[int, ...]]()
    for term in terms:
        is_stationary = len(term.column_indices) == 1 and term.term.factors[0].measure is not None
        indices = tuple(sorted(term.column_indices[0])) if is_stationary else ()
        counts[term.name] = seen.count(indices) if indices else 0
        seen += [indices] if indices else []
    return counts


def shares_of(terms: Sequence[BoundTerm]) -> dict[str, float]:
    """Return the starting variances of terms by name, in variances of the target.

    Args:
        terms: The terms.
    """
    earlier = repetitions(terms)
    first = sum(count == 0 for count in earlier.values())
    return {name: WEAKER**count / first for name, count in earlier.items()}


def sampled(rows: Rows, seed: int) -> Block:
    """Return all rows, or a random sample of them.

    Args:
        rows: The rows.
        seed: The seed of the sample.
    """
    block = rows_in_memory(rows)
    if len(block) <= MAX_SAMPLED:
        return block
    order = torch.randperm(len(block), generator=random.generator(seed, random.Role.SAMPLE))
    return block.take(order[:MAX_SAMPLED])


def mean_variance(prior: Prior, term: BoundTerm, values: ParameterValues, rows: Block) -> Tensor:
    """Return the mean prior variance of a term over rows at an output scale of 1, 0-d.

    Args:
        prior: The prior at the values.
        term: The term.
        values: The hyperparameters.
        rows: The rows.
    """
    assert term.outputscale is not None
    total = moments(prior.of([term.name]).diagonal(rows.inputs), rows.weight)[0]
    return total / values.standardized(term.outputscale).double()


def parameters_of_nodes(terms: Sequence[BoundTerm]) -> dict[str, tuple[str, ...]]:
    """Return dotted names of graph-kernel parameters by that of their output scale.

    Args:
        terms: The terms.
    """
    paths = dict[str, tuple[str, ...]]()
    for term in terms:
        names = [
            f"{prefix}{name}"
            for factor, _, prefix in term.parts()
            if factor.nodes is not None
            for name in factor.starts
        ]
        if term.outputscale is not None and names:
            paths[term.outputscale] = tuple(names)
    return paths
