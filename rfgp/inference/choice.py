"""Which algebra serves a prior and so many rows."""

from collections.abc import Mapping, Sized

from torch import Tensor

from rfgp.inference.averages import AverageEvidence, AveragePosterior, AveragePrior
from rfgp.inference.dense import KernelEvidence, RowEvidence
from rfgp.inference.evidence import Evidence
from rfgp.inference.iterated.sparse import SparseEvidence, SparsePosterior
from rfgp.inference.laplace.choice import MOST_DENSE
from rfgp.inference.laplace.laws import ClassPosterior, SharedPosterior
from rfgp.inference.laws import Posterior
from rfgp.inference.linear import LinearModel
from rfgp.inference.local import (
    BlockedLocalEvidence,
    LatentEvidence,
    LatentPosterior,
    LocalEvidence,
    LocalPosterior,
    LocalPrior,
    is_large,
    is_loud,
)
from rfgp.inference.markov import MarkovEvidence, MarkovPosterior, MarkovPrior
from rfgp.inference.posteriors import FactorCovariance, KernelPosterior, RowCovariance, WeightPosterior
from rfgp.inference.primal import FeatureEvidence
from rfgp.inference.priors import FeaturePrior, KernelPrior, SparsePrior
from rfgp.rows import Block, Rows, gathered

Prior = FeaturePrior | KernelPrior | SparsePrior | LocalPrior | MarkovPrior
"""A zero-mean prior on functions."""


def iterates(prior: Prior, rows: Sized) -> bool:
    """Return whether the posterior given so many rows is computed by conjugate gradients."""
    return isinstance(prior, SparsePrior) and len(rows) > MOST_DENSE


def evidence(prior: Prior, rows: Rows, mean: Tensor, noise: Tensor) -> Evidence:
    """Return what rows say: through F x F algebra where features are fewer than data, else n x n, all in memory.

    Through sparse features by conjugate gradients beyond 4,000 rows, through a sparse precision by its factor.

    Args:
        prior: The prior.
        rows: The data.
        mean: (k,).
        noise: Learned variance of one observation, 0-d.
    """
    mean, noise = mean.double(), noise.double()
    if isinstance(prior, FeaturePrior) and (prior.num_features <= len(rows) or prior.residual is not None):
        return FeatureEvidence(LinearModel(prior, rows, mean, noise))
    block = gathered(rows)
    if isinstance(prior, AveragePrior):
        return AverageEvidence(prior, block)
    if isinstance(prior, LocalPrior):
        return _local_evidence(prior, block, mean, noise)
    if isinstance(prior, MarkovPrior):
        return MarkovEvidence(prior, block, mean, noise)
    if isinstance(prior, FeaturePrior):
        return RowEvidence(prior, block, mean, noise)
    if isinstance(prior, SparsePrior) and iterates(prior, block):
        return SparseEvidence(prior, block, mean, noise)
    return KernelEvidence(prior, block, mean, noise)


def _local_evidence(prior: LocalPrior, rows: Block, mean: Tensor, noise: Tensor) -> Evidence:
    """Return that of a local process, by values of the function or by observations."""
    is_auto, large = prior.conditioning == "auto", is_large(prior, len(rows))
    if prior.conditioning == "latent" or (is_auto and not large and is_loud(prior, rows, noise)):
        latent = LatentEvidence(prior, rows, mean, noise)
        if not is_auto or latent.is_solved():
            return latent
    return (BlockedLocalEvidence if large else LocalEvidence.of)(prior, rows, mean, noise)


def restore(prior: Prior, tensors: Mapping[str, Tensor]) -> Posterior:
    """Return the posterior whose `tensors` these are.

    Args:
        prior: That of the rows.
        tensors: For features weights (F, k) with factor (F, F) or rows (n, F); for others inputs, coefficients (n, k),
            and a factor (n, n), or for sparse features and values of a local process noise_diag (n,) and draws (n, m);
            by observations of such a process inputs, targets (n, k), noise (n,), weights and factor; for a sparse
            precision inputs, targets (n, k) and noise_diag (n,); of C classes weights (F, C) with factor (C F, C F), or
            inputs, coefficients (n, C), and blocks and shared (C, n, n).
    """
    if isinstance(prior, AveragePrior):
        return AveragePosterior.restored(prior, tensors)
    if "blocks" in tensors:
        return ClassPosterior(prior, **tensors)
    if isinstance(prior, KernelPrior):
        return KernelPosterior(prior, **tensors)
    if isinstance(prior, MarkovPrior):
        return MarkovPosterior(prior, tensors["inputs"], tensors["noise_diag"], tensors["targets"])
    if isinstance(prior, LocalPrior):
        return (LatentPosterior if "draws" in tensors else LocalPosterior)(prior, **tensors)
    if isinstance(prior, SparsePrior):
        return SparsePosterior(prior, **tensors) if "draws" in tensors else KernelPosterior(prior, **tensors)
    weights, others = tensors["weights"], {name: t for name, t in tensors.items() if name != "weights"}
    if "factor" in others and len(others["factor"]) > prior.num_features:
        return SharedPosterior(prior, weights, others["factor"])
    return WeightPosterior(prior, weights, (RowCovariance if "rows" in others else FactorCovariance)(**others))
