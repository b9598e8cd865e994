"""The terms of a prior at rows, a block each, and the operator that they make."""

from collections.abc import Sequence

from torch import Tensor

from rfgp.blocks import Prior
from rfgp.errors import InvalidArgumentError
from rfgp.solvers.iterative.fields import PrecisionTerm
from rfgp.solvers.iterative.neighbors import NeighborsTerm
from rfgp.solvers.iterative.operator import CGOperator
from rfgp.solvers.iterative.role import Term
from rfgp.solvers.iterative.walks import WalkTerm
from rfgp.solvers.iterative.weights import WeightTerm


def terms_of(prior: Prior, inputs: Tensor) -> list[Term]:
    """Return the terms of a prior at rows (n, ...): weights, precisions, walks, and neighbours of rows in order.

    Raises:
        InvalidArgumentError: a block that no part is known for.
    """
    if prior.kernels or prior.moves:
        raise InvalidArgumentError(
            "Exact kernels and fields with values at the points cannot be added to many walks, nor to neighbours that "
            "are latent. Use an approximation of the kernel, or a field whose values stay where they are."
        )
    terms: list[Term] = [WeightTerm(prior, block, inputs) for block in prior.weights]
    terms += [PrecisionTerm(block, inputs) for block in prior.precisions]
    terms += [WalkTerm(block, inputs) for block in prior.walks]
    return terms if prior.neighbors is None else [*terms, NeighborsTerm(prior, inputs)]


def operator_of(terms: Sequence[Term], noise_diag: Tensor) -> CGOperator:
    """Return C = sum_t H_t H_t^T + D of terms at rows, at least one, for D (n,). The last term preconditions it."""
    last = terms[-1]
    return CGOperator([term.part for term in terms], noise_diag, last.seed, last.precondition, last.advice)
