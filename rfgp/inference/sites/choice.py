"""The choice of an approximation for a likelihood that is not Gaussian."""

from collections.abc import Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from rfgp import solvers
from rfgp.blocks import Prior
from rfgp.errors import InvalidArgumentError
from rfgp.inference.mixture import NOISE_PREFIX, IndependentFunctions, tensors_by_prefix
from rfgp.inference.sites.newton import Laplace
from rfgp.inference.sites.variational import Variational
from rfgp.inference.sites.weights import (
    CoupledCovariance,
    CoupledLowRankLaplace,
    CoupledLowRankPosterior,
    LatticeLaplace,
    LowRankLaplace,
)
from rfgp.likelihoods import Likelihood
from rfgp.limits import limits
from rfgp.rows import Block, Rows, gathered
from rfgp.solvers import Inference, Posterior, Solver, WarmStart
from rfgp.solvers.bordered import bordered_latent
from rfgp.solvers.choice import is_low_rank, solver_in_memory, uses_cg
from rfgp.solvers.lowrank import LinearModel
from rfgp.solvers.onepass import has_lattices


def infer(
    priors: Sequence[Prior],
    rows: Rows,
    mean: Tensor,
    likelihood: Likelihood,
    learned: Mapping[str, Tensor],
    approximation: str,
    warm_start: WarmStart = (),
) -> Inference:
    """Return the inference from rows under a likelihood that is not Gaussian.

    Nearest neighbors are latent. If their sparse factor is too large, Laplace's approximation uses the gradient for
    neighbors as responses, which is approximate (`rfgp.solvers.iterative.LatentSolver`). Variational inference then
    raises.

    Args:
        priors: The prior of the latent function or functions, and that of the log noise if the likelihood has one.
        rows: The data, with one target a row.
        mean: The prior mean of the latent function, (1,), or of the functions of C classes, (C,). The log noise has
            mean 0.
        likelihood: The likelihood, with its given parameters.
        learned: The learned parameters of the likelihood, 0-d each.
        approximation: "laplace" or "variational".
        warm_start: The warm start of inference on the same rows at similar hyperparameters. The default is none.

    Raises:
        InvalidArgumentError: If the approximation does not support the prior or the number of rows.

    Examples:
        >>> import torch
        >>> from rfgp.blocks import Prior, WeightBlock
        >>> from rfgp.inference.sites import infer
        >>> from rfgp.likelihoods import Bernoulli
        >>> from rfgp.rows import Block
        >>> x = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]], dtype=torch.float64)
        >>> rows = Block(x, (x > 0).double())
        >>> line = Prior(weights=(WeightBlock(lambda x: x, num_features=1),))
        >>> found = infer([line], rows, torch.zeros(1, dtype=torch.float64), Bernoulli(), {}, "laplace")
        >>> bool(found.posterior().mean(x)[3] > 0)
        True
    """
    for prior in priors:
        neighbors = prior.neighbors
        if prior.dense.has_residual or (neighbors is not None and neighbors.condition_on == "responses"):
            raise InvalidArgumentError(
                "Neighbors that are responses, and residuals of inducing points without neighbors, require a Gaussian "
                f"likelihood, got {likelihood!r}. Use latent neighbors, features without a residual, or exact kernels."
            )
    noise = torch.ones_like(mean[0])  # a placeholder, which all approximations replace or ignore
    if approximation == "variational":
        block = gathered(rows)
        solvers = [_without_draws(prior, block, mean[:1], noise) for prior in priors] * likelihood.num_latents
        laplace = partial(infer, priors, block, mean.detach(), likelihood, learned, "laplace")
        means = torch.cat([mean, mean.new_zeros(len(priors) - 1)])
        start = laplace if "laplace" in likelihood.approximations else None
        return Variational(solvers, block, means, likelihood, learned, start, warm_start)
    prior, arguments = priors[0], (likelihood, learned, warm_start)
    if likelihood.num_latents > 1:
        if not prior.has_weights_only:
            raise InvalidArgumentError(
                "Several classes by Laplace's approximation require features for all terms, got an exact kernel, a "
                'field or neighbors. Use inference="variational", or approximation=rfgp.RandomFeatures(512).'
            )
        return CoupledLowRankLaplace(LinearModel(prior.dense, rows, mean, noise), *arguments)
    if not is_low_rank(prior, rows):
        block = gathered(rows)
        return Laplace(solver_in_memory(prior, block, mean, noise), block, mean, *arguments)
    model = LinearModel(prior.dense, rows, mean, noise)
    return (LatticeLaplace if has_lattices(prior) else LowRankLaplace)(model, *arguments)


def restore(priors: Sequence[Prior], tensors: Mapping[str, Tensor], num_latents: int) -> Posterior:
    """Return the approximate posterior with saved tensors.

    Args:
        priors: The prior of the latent function or functions, and that of the log noise if it is a function.
        tensors: The tensors (...) of `Posterior.tensors`, by name.
        num_latents: The number of latent functions.
    """
    parts = tensors_by_prefix(tensors)
    if len(priors) > 1:
        function, noise = map(solvers.restore, priors, (parts[""], parts[NOISE_PREFIX]))
        return function.with_noise_process(noise)
    prior = priors[0]
    if "" not in parts:
        return IndependentFunctions(tuple(solvers.restore(prior, parts[str(c)]) for c in range(num_latents)))
    if num_latents == 1:
        return solvers.restore(prior, tensors)
    return CoupledLowRankPosterior(prior, tensors["weights"], CoupledCovariance(tensors["factor"], num_latents))


def _without_draws(prior: Prior, block: Block, mean: Tensor, noise: Tensor) -> Solver:
    """Return a solver with exact variances at rows.

    A search with estimated variances would not converge.

    Raises:
        InvalidArgumentError: If the prior and the number of rows require conjugate gradients.
    """
    if uses_cg(prior, block):
        is_large = len(block) > limits().max_dense
        limit = f"at most {limits().max_dense:,} observations" if is_large else "a model without fields or groups"
        count = f", got {len(block):,}" if is_large else ""
        raise InvalidArgumentError(
            f'Variational inference through sparse features requires {limit}{count}. Use inference="laplace".'
        )
    if prior.neighbors is None or prior.graph_features:
        return solver_in_memory(prior, block, mean, noise)
    solver = bordered_latent(prior, block, mean, noise)
    if solver is None:
        raise InvalidArgumentError(
            f"The sparse factor of latent neighbors must be small and precise for variational inference, got one of "
            f'{len(block):,} observations that is not. Use inference="laplace", or fewer neighbors.'
        )
    return solver
