"""Which algebra serves a prior and so many rows in variational inference."""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from rfgp.errors import InvalidArgumentError
from rfgp.inference.choice import Prior, evidence
from rfgp.inference.evidence import Evidence, Guess
from rfgp.inference.laplace import LaplaceEvidence, LaplaceFeatureEvidence
from rfgp.inference.laplace.choice import MOST_DENSE, laplace_evidence
from rfgp.inference.local import LocalPrior
from rfgp.inference.markov import MarkovPrior
from rfgp.inference.priors import FeaturePrior, KernelPrior, SparsePrior
from rfgp.inference.variational.evidence import Function, VariationalEvidence
from rfgp.inference.variational.sites import Smooth
from rfgp.inference.variational.smoothers import dense_smooth, feature_smooth, markov_smooth
from rfgp.likelihoods import Likelihood
from rfgp.rows import Block, Rows, gathered


def variational_evidence(
    priors: Sequence[Prior],
    rows: Rows,
    mean: Tensor,
    likelihood: Likelihood,
    learned: Mapping[str, Tensor],
    near: Guess = (),
) -> Evidence:
    """Return what rows, all in memory, say by variational inference.

    Args:
        priors: Of the latent function, and of that of the noise where the likelihood has one.
        rows: The data, one target each.
        mean: Of the latent function, (1,), or of those of C classes, (C,); that of the noise has mean 0.
        likelihood: With its given parameters.
        learned: Its others, 0-d each.
        near: Of evidence of the same rows at hyperparameters close by.

    Raises:
        InvalidArgumentError: a prior with a local part, or whose features leave something over; or many rows through
            sparse features.
    """
    block = gathered(rows)
    means = torch.cat([mean, mean.new_zeros(len(priors) - 1)])
    functions = [_function(prior, block) for prior in priors] * likelihood.num_latents
    if len(functions) > 1:
        return VariationalEvidence(functions, block, means, likelihood, learned, None, near)

    def mode() -> Tensor:
        found = laplace_evidence(priors[0], block, mean, likelihood, learned)
        assert isinstance(found, LaplaceEvidence | LaplaceFeatureEvidence)
        return found.at_rows()

    return VariationalEvidence(functions, block, means, likelihood, learned, mode, near)


def _function(prior: Prior, rows: Block) -> Function:
    """Return the Gaussian regression under a prior, and the law at the rows."""
    if isinstance(prior, LocalPrior) or (isinstance(prior, FeaturePrior) and prior.residual is not None):
        raise InvalidArgumentError("A local process, or what features leave, is for a normal likelihood only.")
    if isinstance(prior, SparsePrior) and len(rows) > MOST_DENSE:
        raise InvalidArgumentError(
            f"Variational inference through sparse features takes at most {MOST_DENSE:,} observations, got "
            f'{len(rows):,}: approximation="laplace".'
        )
    return Function(partial(evidence, prior), _smooth(prior, rows))


def _smooth(prior: FeaturePrior | KernelPrior | SparsePrior | MarkovPrior, rows: Block) -> Smooth:
    with torch.no_grad():
        if isinstance(prior, MarkovPrior):
            return markov_smooth(prior, rows.inputs)
        if isinstance(prior, FeaturePrior) and prior.num_features <= len(rows):
            return feature_smooth(prior, rows)
        return dense_smooth(prior.kernel(rows.inputs, rows.inputs).double())
