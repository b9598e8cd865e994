"""Laplace's approximation for several classes.

With the probabilities p at f and the count w of a row, the curvature of its log density is W = w (diag(p) - p p^T).

The latent values are f_i (C,) = m + W^T Phi_i, with standard normal weights W (F, C). Classes follow by a softmax. With
the probabilities p_i, counts w_i and G_c = Phi^T diag(w p_c) Phi, the precision of all C F weights is

    A = I + blockdiag(G_c) - sum_i w_i (p_i x Phi_i) (p_i x Phi_i)^T.

It is at most the block-diagonal matrix B without the last term. Conjugate gradients solve for Newton's steps, with C
matrices of F x F a step and products in O(n F C), while A itself takes O(n F^2 C^2). The preconditioner is the sum of
B^-1 and Z Z^T, the mean over classes. A common change of all classes does not change the labels, so that A is 1 there
and B is far from it. A is formed and factorized once, at the mode, for the posterior, the evidence and its gradient.
Let s be that of -log|A| / 2 in f, b = A^-1 Phi^T s and u = s - W Phi b. The gradient of the log evidence is (the
weight-space form of Rasmussen and Williams 2006, Section 3.5)

    d/dPhi = sum_c (g_c + u_c) w_c^T + g_c b_c^T - sum_d W_cd Phi (A^-1)_cd,    d/dm_c = sum_i g_ic + u_ic,
    d/ds_t^2 = (tr W_t^T W_t / 2 + tr b_t^T W_t - (F_t C - tr (A^-1)_tt) / 2) / s_t^2.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from rfgp.autograd import Needs
from rfgp.errors import InvalidArgumentError
from rfgp.inference.mixture import block_diagonal
from rfgp.inference.sites.newton import ModeProblem, RowLikelihood, State, Step, find_mode
from rfgp.inference.sites.weights import WeightLaplace, WeightMode, WeightSums, search_tolerances, weight_state
from rfgp.likelihoods import Likelihood
from rfgp.linalg import cholesky
from rfgp.rows import Block
from rfgp.solvers import WarmStart
from rfgp.solvers.iterative.operator import conjugate_gradients
from rfgp.solvers.lowrank import (
    FactorCovariance,
    LinearModel,
    LowRankPosterior,
    add_symmetric_product,
    gradient_sums,
    symmetrized,
)
from rfgp.solvers.role import Shape

# --- Derivatives of the softmax likelihood of C latent functions -----------------------------------------------------


def curvature(
    f: Tensor,  # (n, C)
    counts: Tensor,  # (n, 1)
) -> Tensor:  # (n, C, C)
    """Return the curvature W of the log density, (n, C, C).

    Args:
        f: The latent values, (n, C).
        counts: The number of observations of each row, (n, 1).
    """
    p = torch.softmax(f, dim=1)
    return counts[:, :, None] * (torch.diag_embed(p) - p[:, :, None] * p[:, None])


def curvature_product(
    f: Tensor,  # (n, C)
    counts: Tensor,  # (n, 1)
    v: Tensor,  # (n, C)
) -> Tensor:  # (n, C)
    """Return the product W v with the curvature.

    Args:
        f: The latent values.
        counts: The number of observations of each row.
        v: The vectors.
    """
    p = torch.softmax(f, dim=1)
    return counts * p * (v - (p * v).sum(1, keepdim=True))


def log_prob_gradient(
    likelihood: Likelihood,
    rows: Block,
    f: Tensor,  # (n, C)
) -> Tensor:  # (n, C)
    """Return the gradient g of the log density of all rows in f.

    Args:
        likelihood: The likelihood.
        rows: The rows.
        f: The latent values, (n, C).
    """
    return rows.counts()[:, None] * likelihood.slopes(rows.targets[:, 0], f).first


def softmax_cavity(
    likelihood: Likelihood,
    rows: Block,
    f: Tensor,  # (n, C)
    covariance: Tensor,  # (n, C, C)
) -> tuple[Tensor, Tensor]:
    """Return the mean (n, C) and covariance (n, C, C) of f at each row without its own site.

    The mode of the other rows is not searched again (Laplace's cavity).

    Args:
        likelihood: The likelihood.
        rows: The rows.
        f: The mode, (n, C).
        covariance: The posterior covariances of the functions at each row.
    """
    gradient, weight = log_prob_gradient(likelihood, rows, f), curvature(f, rows.counts()[:, None])
    without = torch.linalg.solve(torch.eye(f.shape[1], dtype=f.dtype) - covariance @ weight, covariance)
    without = (without + without.mT) / 2
    return f - (without @ gradient[:, :, None])[:, :, 0], without


# --- Posteriors of C dependent latent functions, such as those of several classes ------------------------------------


@dataclass(frozen=True, eq=False)
class CoupledCovariance(FactorCovariance):
    """The covariance A^-1 of the weights of C functions, through a factor (C F, C F), function by function.

    Attributes:
        num_functions: The number C of functions.
    """

    num_functions: int

    def variance(self, scaled_phi: Tensor) -> Tensor:
        """Return the variances of each function at n points, (n, C)."""
        blocks = self._of_functions
        return torch.stack([(scaled_phi @ block * scaled_phi).sum(1) for block in blocks], dim=1).clamp_min(0)

    def between(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the covariances of each function between two sets of points, (a, b, C)."""
        return torch.stack([left @ block @ right.mT for block in self._of_functions], dim=-1)

    def root(self, scaled_phi: Tensor) -> Tensor:
        """Return a matrix R (C n, C F) such that R R^T is the covariance of all values, function by function."""
        return super().root(block_diagonal([scaled_phi] * self.num_functions))

    def sample(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Draw weights with mean 0, (count, F, C)."""
        count, F, C = shape
        return super().sample(C * F, count, generator=generator).mT.reshape(count, C, F).mT

    def shapes(self, n: int, num_features: int) -> dict[str, Shape]:
        """Return the shape of the factor by name."""
        return super().shapes(n, num_features * self.num_functions)

    @cached_property
    def inverse(self) -> Tensor:
        """The blocks of A^-1, (C, F, C F)."""
        size = len(self.factor)
        return torch.cholesky_inverse(self.factor).reshape(self.num_functions, -1, size)

    @property
    def _of_functions(self) -> Iterator[Tensor]:
        """The diagonal blocks (F, F) of A^-1, one for each function."""
        F = self.inverse.shape[1]
        return (row[:, c * F : (c + 1) * F] for c, row in enumerate(self.inverse))


@dataclass(frozen=True, eq=False)
class CoupledLowRankPosterior(LowRankPosterior):
    """The posterior of C functions through the weights (F, C) of features."""

    uncertainty: CoupledCovariance

    @property
    def width(self) -> int:
        """The number of entries of one point in memory: F for each pair of classes."""
        return self.weights.numel() * self.num_functions

    @property
    def num_functions(self) -> int:
        """The number C of functions."""
        return self.uncertainty.num_functions

    def function_covariance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the covariances of the functions at each point, (n, C, C)."""
        return function_covariance(projected, self.uncertainty.inverse)[1]


def function_covariance(
    phi: Tensor,  # (n, F)
    inverse: Tensor,  # (C, F, C F)
) -> tuple[Tensor, Tensor]:
    """Return Phi (A^-1)_cd (n, C, C, F) and the covariances of functions (n, C, C).

    Args:
        phi: The features at n points, (n, F).
        inverse: The blocks of A^-1, (C, F, C F).
    """
    C, F = inverse.shape[:2]
    products = torch.einsum("bf,cfg->bcg", phi, inverse).reshape(len(phi), C, C, F)
    return products, torch.einsum("bcdf,bf->bcd", products, phi)


# --- Laplace's approximation for several classes through features, in blocks of rows ---------------------------------

MAX_CACHED_ENTRIES = 2**26
"""The maximum number of entries of the features of all rows that are cached for a search."""


def transposed_product(
    phi: Tensor,  # (b, F)
    v: Tensor,  # (b, C)
) -> Tensor:  # (F, C)
    """Return phi^T v, float64.

    It is computed as (v^T phi)^T. With few columns, BLAS is several times faster if it reads the features row by row.

    Args:
        phi: The features, (b, F).
        v: The columns, (b, C).
    """
    return (v.to(phi).mT @ phi).mT.double()


MAX_WEIGHTS = 24_000
"""The maximum number C F of weights, for which A takes 4.6 GB."""
MAX_CG_ITERATIONS = 300
"""The maximum number of iterations of conjugate gradients for a step."""
CG_TOLERANCES = (1e-9, 1e-2)
"""The relative residuals of conjugate gradients at and far from the mode."""


class ClassWeightProblem(ModeProblem):
    """The posterior of the weights of C functions given rows in blocks.

    Args:
        model: The rows and their features, without gradients. Its mean is (C,).
        likelihood: The likelihood of C classes.
        warm_start: Weights (F, C) at hyperparameters close by, or nothing.
    """

    def __init__(self, model: LinearModel, likelihood: Likelihood, warm_start: WarmStart = ()) -> None:
        self.tolerance, self.stall_decrement = search_tolerances(model)
        self._model, self._likelihood, self._warm_start = model, likelihood, warm_start
        is_small = len(model.rows) * model.num_features <= MAX_CACHED_ENTRIES
        self._cached = [(block, model.phi(block)) for block in model.blocks()] if is_small else None

    def initial_positions(self) -> list[Tensor]:
        """Return zeros and the warm start, (F, C) each."""
        return [self._model.mean.new_zeros(self._model.num_features, len(self._model.mean)), *self._warm_start]

    def objective(self, position: Tensor) -> float:
        """Return psi at weights (F, C)."""
        rows = ((RowLikelihood(self._likelihood, block), self._f(phi, position)) for block, phi in self._features())
        return float(sum(likelihood.log_prob(f) for likelihood, f in rows) - 0.5 * position.square().sum())

    def evaluate(self, position: Tensor) -> State:
        """Return the state at weights (F, C)."""
        F, C = position.shape
        value, gradient = position.new_zeros(()), torch.zeros_like(position)
        grams = position.new_zeros(C, F, F)
        for block, phi in self._features():
            f, counts = self._f(phi, position), block.counts()[:, None]
            derivatives = self._likelihood.slopes(block.targets[:, 0], f)
            value += (derivatives.value * counts[:, 0]).sum()
            gradient += transposed_product(phi, derivatives.first * counts)
            roots = (torch.softmax(f, dim=1) * counts).sqrt().to(phi)
            for c in range(C):
                add_symmetric_product(grams[c], phi * roots[:, c, None])
        scale = self._model.scale
        scaled = torch.stack([symmetrized(gram) for gram in grams]).mul_(scale[:, None] * scale)
        return weight_state(position, WeightSums(value, scale[:, None] * gradient, scaled))

    def step(self, state: State, last_decrement: float) -> Step:
        """Return Newton's step, solved to a residual that decreases with the decrement."""
        precisions = state.results.gram.clone()
        precisions.diagonal(dim1=1, dim2=2).add_(1)
        factors = torch.stack([cholesky(matrix, "The precision of the weights of a class") for matrix in precisions])
        shape = state.position.shape

        def precondition(residual: Tensor) -> Tensor:
            v = residual.reshape(shape)
            separate = torch.cholesky_solve(v.mT[:, :, None], factors)[:, :, 0].mT
            return (separate + v.mean(1, keepdim=True)).reshape(-1, 1)

        ascent = state.results.gradient - state.position
        tolerance = min(max(0.1 * last_decrement, CG_TOLERANCES[0]), CG_TOLERANCES[1])
        product = self._precision_product(state.position)
        solved = conjugate_gradients(product, ascent.reshape(-1, 1), tolerance, MAX_CG_ITERATIONS, precondition)
        change = solved.solution.reshape(shape)
        return Step(change, float((change * ascent).sum()))

    def _precision_product(self, position: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the map of v (F C, 1) to A v at weights (F, C)."""
        scale = self._model.scale[:, None]
        values = [self._f(phi, position) for _, phi in self._features()]

        def product(v: Tensor) -> Tensor:
            weights = v.reshape(position.shape)
            out = weights.clone()
            for f, (block, phi) in zip(values, self._features(), strict=True):
                turned = curvature_product(f, block.counts()[:, None], self._model.fitted(phi, weights))
                out += scale * transposed_product(phi, turned)
            return out.reshape(-1, 1)

        return product

    def _features(self) -> Iterable[tuple[Block, Tensor]]:
        """Return the blocks of rows with their features, (b, F)."""
        return self._cached or ((block, self._model.phi(block)) for block in self._model.blocks())

    def _f(self, phi: Tensor, position: Tensor) -> Tensor:
        """Return f (b, C) at weights (F, C), for features (b, F) without scales."""
        return self._model.mean + self._model.fitted(phi, position)


class CoupledLowRankLaplace(WeightLaplace):
    """Laplace's approximation to the posterior of the weights of C functions.

    The mean of the model is (C,).

    Raises:
        InvalidArgumentError: If the precision of all weights would not fit in memory.
    """

    def __post_init__(self) -> None:
        size = self.model.num_features * len(self.model.mean)
        if size > MAX_WEIGHTS:
            raise InvalidArgumentError(
                f"The number of weights must be at most {MAX_WEIGHTS:,}, got {size:,}: {self.model.num_features:,} "
                f"features for each of {len(self.model.mean)} classes. Lower num_frequencies or num_points."
            )

    @cached_property
    def mode(self) -> WeightMode:
        """The mode of the weights (F, C), with the factor of A, (C F, C F), class by class."""
        with torch.no_grad():
            state, _ = find_mode(ClassWeightProblem(self.detached, self.likelihood, self.start))
            return WeightMode(state.position, self._factor(state), state.results.value)

    def _factor(self, state: State) -> Tensor:
        """Return the lower Cholesky factor of A at the mode."""
        model, C = self.detached, len(self.model.mean)
        F = model.num_features
        matrix = model.mean.new_zeros(C * F, C * F)
        for block in model.blocks():
            phi = model.phi(block)
            f = model.mean + model.fitted(phi, state.position)
            p = torch.softmax(f, dim=1) * block.counts().sqrt()[:, None]
            add_symmetric_product(matrix, (phi[:, None] * p[:, :, None].to(phi)).reshape(len(phi), C * F))
        scale = model.scale.repeat(C)
        matrix = symmetrized(matrix.mul_(-scale[:, None]).mul_(scale))
        for c, gram in enumerate(state.results.gram):
            of_class = slice(c * F, (c + 1) * F)
            matrix[of_class, of_class] += gram
        matrix.diagonal().add_(1)
        return cholesky(matrix, "The precision of the weights of all classes")

    @cached_property
    def _covariance(self) -> CoupledCovariance:
        return CoupledCovariance(self.mode.factor, len(self.model.mean))

    def posterior(self) -> CoupledLowRankPosterior:
        """Return the weights and the factor of their precision."""
        return CoupledLowRankPosterior(self.prior, self.mode.weights, self._covariance)

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the means (n, C) and covariances (n, C, C) of f at each row given all others."""
        inverse = self._covariance.inverse
        with torch.no_grad():
            parts = [
                softmax_cavity(self.likelihood, block, f, function_covariance(phi, inverse)[1])
                for block, phi, f in self._at_mode()
            ]
        means, covariances = zip(*parts, strict=True)
        return torch.cat(means), torch.cat(covariances)

    def gradients(self, needs: Needs) -> list[Tensor | None]:
        """Return the gradients in the tensors of the model."""
        model, W, inverse = self.detached, self.mode.weights, self._covariance.inverse
        (C, F, size), pulled = inverse.shape, torch.zeros_like(W)  # Phi^T s
        for block, phi, f in self._at_mode():
            covariance = function_covariance(phi, inverse)[1]
            with torch.enable_grad():
                f = f.requires_grad_()
                determinant = -0.5 * (curvature(f, block.counts()[:, None]) * covariance).sum()
            pulled += transposed_product(phi, *torch.autograd.grad(determinant, f))
        b = (inverse.reshape(size, size) @ pulled.mT.reshape(-1)).reshape(C, F).mT
        _, *gradients = gradient_sums(partial(_objective, self.likelihood, W, b, inverse), needs, model)
        diagonal = inverse.reshape(size, size).diagonal().reshape(C, F).mT
        gradients[2] = model.weights.by_block((0.5 * (W.square() - 1 + diagonal) + b * W).sum(1)) / model.variances
        return [g.to(t) if need else None for g, t, need in zip(gradients, model.tensors, needs, strict=True)]

    def _at_mode(self) -> Iterator[tuple[Block, Tensor, Tensor]]:
        """Yield blocks of b rows, with their features times scales (b, F) and f (b, C) at the mode, float64."""
        model = self.detached
        for block in model.blocks():
            phi = model.phi(block).double()
            yield block, model.scale * phi, model.mean + model.fitted(phi, self.mode.weights)


def _objective(
    likelihood: Likelihood,
    weights: Tensor,  # (F, C)
    b: Tensor,  # (F, C)
    inverse: Tensor,  # (C, F, C F)
    model: LinearModel,
    block: Block,
) -> tuple[Tensor, Tensor]:
    """Return a scalar of a block, twice, whose gradient is that of the evidence, 0-d.

    It is the sum of log p + (Phi b)^T g - tr(V W) / 2 over the rows, with the posterior covariances V of the functions.
    """
    phi, counts = model.scale.detach() * model.phi(block).double(), block.counts()[:, None]
    f, change = model.mean + phi @ weights, phi @ b
    with torch.no_grad():
        pushed, covariance = function_covariance(phi, inverse)
    moving = 2 * torch.einsum("bcdf,bf->bcd", pushed, phi) - covariance  # V, with the gradient of a quadratic form
    gradient = log_prob_gradient(likelihood, block, f)
    scalar = RowLikelihood(likelihood, block).log_prob(f) + (gradient * change).sum()
    scalar = scalar - 0.5 * (curvature(f, counts) * moving).sum()
    return scalar, scalar
