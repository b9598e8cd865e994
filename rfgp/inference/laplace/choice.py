"""Which algebra serves a prior and so many rows under a likelihood that is not normal."""

from collections.abc import Mapping

import torch
from torch import Tensor

from rfgp.errors import InvalidArgumentError
from rfgp.inference.dense import KernelEvidence, RowEvidence
from rfgp.inference.evidence import Evidence, Guess
from rfgp.inference.iterated.sparse import SparseEvidence
from rfgp.inference.laplace.classes import ClassEvidence
from rfgp.inference.laplace.evidence import Gaussian, LaplaceEvidence
from rfgp.inference.laplace.primal import LaplaceFeatureEvidence, model_of
from rfgp.inference.laplace.search import Solve
from rfgp.inference.laplace.shared import SharedEvidence
from rfgp.inference.laplace.solvers import dense_solve, markov_solve, sparse_solve
from rfgp.inference.linear import LinearModel
from rfgp.inference.local import LocalPrior
from rfgp.inference.markov import MarkovEvidence, MarkovPrior
from rfgp.inference.priors import FeaturePrior, KernelPrior, SparsePrior
from rfgp.likelihoods import Categorical, Likelihood
from rfgp.rows import Block, Rows, gathered

MOST_DENSE = 4000
"""Rows up to which a matrix of all pairs is factorised where features are sparse."""
SHARED = 1.5
"""Rows of a feature from which on several classes are solved for through the weights of all of them."""
_SOME = 2000
"""Rows whose curvature tells how far features may be rounded."""


def laplace_evidence(
    prior: FeaturePrior | KernelPrior | SparsePrior | LocalPrior | MarkovPrior,
    rows: Rows,
    mean: Tensor,
    likelihood: Likelihood,
    learned: Mapping[str, Tensor],
    near: Guess = (),
) -> Evidence:
    """Return what rows say by Laplace's approximation: through F x F algebra where features are fewer than data.

    Args:
        prior: The prior.
        rows: The data, one target each.
        mean: Of the latent function, (1,).
        likelihood: With its given parameters.
        learned: Its others, 0-d each.
        near: Of evidence of the same rows at hyperparameters close by.

    Raises:
        InvalidArgumentError: a prior with a local part, or whose features leave something over.
    """
    if isinstance(prior, LocalPrior) or (isinstance(prior, FeaturePrior) and prior.residual is not None):
        raise InvalidArgumentError("A local process, or what features leave, is for a normal likelihood only.")
    if isinstance(likelihood, Categorical):
        return _of_classes(prior, rows, mean, likelihood, near)
    if isinstance(prior, FeaturePrior) and prior.num_features <= len(rows):
        law = likelihood.at({name: value.detach() for name, value in learned.items()})
        model = LinearModel(prior, rows, mean, torch.ones_like(mean[0]))
        some = next(iter(rows.blocks(_SOME)))
        return LaplaceFeatureEvidence(model_of(model, law, some), likelihood, learned, near)
    block = gathered(rows)
    gaussian, solve = _algebra(prior, block)
    return LaplaceEvidence(gaussian, solve, block, mean, likelihood, learned, near)


def _of_classes(
    prior: FeaturePrior | KernelPrior | SparsePrior | MarkovPrior,
    rows: Rows,
    mean: Tensor,
    likelihood: Categorical,
    near: Guess,
) -> Evidence:
    """Return what labels say: through the weights of features where rows are many for them, else n x n."""
    if isinstance(prior, FeaturePrior) and len(rows) > SHARED * prior.num_features:
        return SharedEvidence(LinearModel(prior, rows, mean, torch.ones_like(mean[0])), likelihood)
    if isinstance(prior, MarkovPrior):
        raise InvalidArgumentError(
            'Several classes need the covariance of all rows by Laplace: approximation="variational", or '
            'features="exact".'
        )
    block = gathered(rows)
    if len(block) > MOST_DENSE:
        raise InvalidArgumentError(
            f"Several classes without features, or through sparse ones, take at most {MOST_DENSE:,} rows, got "
            f"{len(block):,}."
        )
    return ClassEvidence(prior, block, mean, likelihood, near)


def _algebra(prior: FeaturePrior | KernelPrior | SparsePrior | MarkovPrior, rows: Block) -> tuple[Gaussian, Solve]:
    """Return the Gaussian regression under a prior, and its solution alone."""
    if isinstance(prior, MarkovPrior):
        return (lambda block, mean, noise: MarkovEvidence(prior, block, mean, noise)), markov_solve(prior, rows.inputs)
    if isinstance(prior, SparsePrior) and len(rows) > MOST_DENSE:
        return (lambda block, mean, noise: SparseEvidence(prior, block, mean, noise)), sparse_solve(prior, rows.inputs)
    with torch.no_grad():
        solve = dense_solve(prior.kernel(rows.inputs, rows.inputs))
    if isinstance(prior, FeaturePrior):
        return (lambda block, mean, noise: RowEvidence(prior, block, mean, noise)), solve
    return (lambda block, mean, noise: KernelEvidence(prior, block, mean, noise)), solve
