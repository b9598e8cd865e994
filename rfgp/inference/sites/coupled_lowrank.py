"""Laplace's approximation for several classes through features, in blocks of rows.

The latent values are f_i (C,) = m + W^T Phi_i, with standard normal weights W (F, C). Classes follow by a softmax. With
the probabilities p_i, counts w_i and G_c = Phi^T diag(w p_c) Phi, the precision of all C F weights is

    A = I + blockdiag(G_c) - sum_i w_i (p_i x Phi_i) (p_i x Phi_i)^T.

It is at most the block-diagonal matrix B without the last term. Conjugate gradients solve for Newton's steps, with C
matrices of F x F a step and products in O(n F C), while A itself takes O(n F^2 C^2). The preconditioner is the sum of
B^-1 and Z Z^T, the mean over classes. A common change of all classes does not change the labels, so that A is 1 there
and B is far from it. A is formed and factorized once, at the mode, for the posterior, the evidence and its gradient. In
the notation of `rfgp.inference.sites.coupled_dense`, with b = A^-1 Phi^T s and u = s - W Phi b, the gradient is

    d/dPhi = sum_c (g_c + u_c) w_c^T + g_c b_c^T - sum_d W_cd Phi (A^-1)_cd,    d/dm_c = sum_i g_ic + u_ic,
    d/ds_t^2 = (tr W_t^T W_t / 2 + tr b_t^T W_t - (F_t C - tr (A^-1)_tt) / 2) / s_t^2.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from rfgp.autograd import Gradients, Needs, with_gradient
from rfgp.blocks import Prior
from rfgp.errors import InvalidArgumentError
from rfgp.inference.sites import softmax
from rfgp.inference.sites.coupled import CoupledLowRankPosterior, function_covariance, inverse_blocks
from rfgp.inference.sites.newton import LENGTHS, ModeProblem, Step, find_mode
from rfgp.inference.sites.terms import RowLikelihood
from rfgp.inference.sites.weights import WeightMode, WeightState, search_tolerances
from rfgp.likelihoods import Likelihood
from rfgp.linalg import cholesky
from rfgp.rows import Block
from rfgp.solvers import Inference
from rfgp.solvers.conjugate_gradients import conjugate_gradients
from rfgp.solvers.lowrank import LinearModel, ParameterGradients, add_symmetric_product, symmetrized

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


class FeatureBlocks:
    """Blocks of rows with their features, which are cached unless they are too many.

    Args:
        model: The rows and their features.
    """

    def __init__(self, model: LinearModel) -> None:
        self._model = model
        self.is_cached = len(model.rows) * model.num_features <= MAX_CACHED_ENTRIES
        self._cached = list(self._computed()) if self.is_cached else []

    def __iter__(self) -> Iterator[tuple[Block, Tensor]]:
        return iter(self._cached) if self.is_cached else self._computed()

    def _computed(self) -> Iterator[tuple[Block, Tensor]]:
        return ((block, self._model.phi(block)) for block in self._model.blocks())


MAX_WEIGHTS = 24_000
"""The maximum number C F of weights, for which A takes 4.6 GB."""
MAX_CG_ITERATIONS = 300
"""The maximum number of iterations of conjugate gradients for a step."""
CG_TOLERANCES = (1e-9, 1e-2)
"""The relative residuals of conjugate gradients at and far from the mode."""


class ClassWeightProblem(ModeProblem[WeightState]):
    """The posterior of the weights of C functions given rows in blocks.

    Args:
        model: The rows and their features, without gradients. Its mean is (C,).
        likelihood: The likelihood of C classes.
    """

    def __init__(self, model: LinearModel, likelihood: Likelihood) -> None:
        self.tolerance, self.stall_decrement = search_tolerances(model)
        self._model, self._likelihood, self._features = model, likelihood, FeatureBlocks(model)

    def initial_positions(self) -> list[Tensor]:
        """Return zeros (F, C)."""
        return [self._model.mean.new_zeros(self._model.num_features, len(self._model.mean))]

    def objective(self, position: Tensor) -> float:
        """Return psi at weights (F, C)."""
        rows = ((RowLikelihood(self._likelihood, block), self._f(phi, position)) for block, phi in self._features)
        return float(sum(likelihood.log_prob(f) for likelihood, f in rows) - 0.5 * position.square().sum())

    def evaluate(self, position: Tensor) -> WeightState:
        """Return the state at weights (F, C)."""
        F, C = position.shape
        value, gradient = position.new_zeros(()), torch.zeros_like(position)
        grams = position.new_zeros(C, F, F)
        for block, phi in self._features:
            f, counts = self._f(phi, position), block.counts()[:, None]
            derivatives = self._likelihood.slopes(block.targets[:, 0], f)
            value += (derivatives.value * counts[:, 0]).sum()
            gradient += transposed_product(phi, derivatives.first * counts)
            roots = (torch.softmax(f, dim=1) * counts).sqrt().to(phi)
            for c in range(C):
                add_symmetric_product(grams[c], phi * roots[:, c, None])
        scale = self._model.scale
        scaled = torch.stack([symmetrized(gram) for gram in grams]).mul_(scale[:, None] * scale)
        return WeightState(position, value, scale[:, None] * gradient, scaled)

    def step(self, state: WeightState, last_decrement: float) -> Step:
        """Return Newton's step, solved to a residual that decreases with the decrement."""
        precisions = state.gram.clone()
        precisions.diagonal(dim1=1, dim2=2).add_(1)
        factors = torch.stack([cholesky(matrix, "The precision of the weights of a class") for matrix in precisions])
        shape = state.position.shape

        def precondition(residual: Tensor) -> Tensor:
            v = residual.reshape(shape)
            separate = torch.cholesky_solve(v.mT[:, :, None], factors)[:, :, 0].mT
            return (separate + v.mean(1, keepdim=True)).reshape(-1, 1)

        ascent = state.gradient - state.position
        tolerance = min(max(0.1 * last_decrement, CG_TOLERANCES[0]), CG_TOLERANCES[1])
        product = self._precision_product(state.position)
        solved = conjugate_gradients(product, ascent.reshape(-1, 1), tolerance, MAX_CG_ITERATIONS, precondition)
        change = solved.solution.reshape(shape)
        return Step(change, float((change * ascent).sum()))

    def move(self, state: WeightState, step: Step, min_objective: float) -> WeightState | None:
        """Return the state after the longest step that reaches `min_objective`, or None if there is none."""
        along = [
            (block, self._f(phi, state.position), self._model.fitted(phi, step.change)) for block, phi in self._features
        ]
        for length in LENGTHS:
            position = state.position + length * step.change
            values = (RowLikelihood(self._likelihood, block).log_prob(f + length * slope) for block, f, slope in along)
            if float(sum(values) - 0.5 * position.square().sum()) >= min_objective:
                return self.evaluate(position)
        return None

    def _precision_product(self, position: Tensor) -> Callable[[Tensor], Tensor]:
        """Return the map of v (F C, 1) to A v at weights (F, C)."""
        scale = self._model.scale[:, None]
        values = [self._f(phi, position) for _, phi in self._features]

        def product(v: Tensor) -> Tensor:
            weights = v.reshape(position.shape)
            out = weights.clone()
            for f, (block, phi) in zip(values, self._features, strict=True):
                turned = softmax.curvature_product(f, block.counts()[:, None], self._model.fitted(phi, weights))
                out += scale * transposed_product(phi, turned)
            return out.reshape(-1, 1)

        return product

    def _f(self, phi: Tensor, position: Tensor) -> Tensor:
        """Return f (b, C) at weights (F, C), for features (b, F) without scales."""
        return self._model.mean + self._model.fitted(phi, position)


@dataclass(frozen=True, eq=False)
class CoupledLowRankLaplace(Inference):
    """Laplace's approximation to the posterior of the weights of C functions.

    Attributes:
        model: The rows, with labels as targets, and their features. Its mean is (C,).
        likelihood: The likelihood of C classes.

    Raises:
        InvalidArgumentError: If the precision of all weights would not fit in memory.
    """

    model: LinearModel
    likelihood: Likelihood

    def __post_init__(self) -> None:
        size = self.model.num_features * len(self.model.mean)
        if size > MAX_WEIGHTS:
            raise InvalidArgumentError(
                f"The number of weights must be at most {MAX_WEIGHTS:,}, got {size:,}: {self.model.num_features:,} "
                f"features for each of {len(self.model.mean)} classes. Lower num_frequencies or num_points."
            )

    @cached_property
    def mode(self) -> WeightState:
        """The mode of the weights."""
        with torch.no_grad():
            return find_mode(ClassWeightProblem(self._detached, self.likelihood)).state

    @cached_property
    def factor(self) -> Tensor:
        """The lower Cholesky factor of A, (C F, C F), class by class."""
        with torch.no_grad():
            model, mode, C = self._detached, self.mode, len(self.model.mean)
            F = model.num_features
            matrix = model.mean.new_zeros(C * F, C * F)
            for block in model.blocks():
                phi = model.phi(block)
                p = torch.softmax(self._f(phi), dim=1) * block.counts().sqrt()[:, None]
                add_symmetric_product(matrix, (phi[:, None] * p[:, :, None].to(phi)).reshape(len(phi), C * F))
            scale = model.scale.repeat(C)
            matrix = symmetrized(matrix.mul_(-scale[:, None]).mul_(scale))
            for c in range(C):
                of_class = slice(c * F, (c + 1) * F)
                matrix[of_class, of_class] += mode.gram[c]
            matrix.diagonal().add_(1)
            return cholesky(matrix, "The precision of the weights of all classes")

    def log_marginal_likelihood(self) -> Tensor:
        """Return the approximate log evidence, 0-d."""
        return with_gradient(self._evidence, self.model.mean, self.model.variances, *self.model.parameters)

    @cached_property
    def effective_dof_fraction(self) -> float:
        """The fraction of the weights that the rows determine, (C F - tr A^-1) / (C F)."""
        return 1 - float(torch.cholesky_inverse(self.factor).diagonal().mean())

    def posterior(self) -> CoupledLowRankPosterior:
        """Return the weights and the factor of their precision."""
        return CoupledLowRankPosterior(Prior(weights=self.model.weights.blocks), self.mode.position, self.factor)

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return the means (n, C) and covariances (n, C, C) of f at each row given all others."""
        model, parts = self._detached, []
        inverse = inverse_blocks(self.factor, self.mode.position)
        with torch.no_grad():
            for block in model.blocks():
                phi = model.phi(block)
                _, covariance = function_covariance(model.scale * phi, inverse)
                parts.append(softmax.softmax_cavity(self.likelihood, block, self._f(phi), covariance))
        means, covariances = zip(*parts, strict=True)
        return torch.cat(means), torch.cat(covariances)

    @cached_property
    def _detached(self) -> LinearModel:
        return self.model.detached()

    def _f(self, phi: Tensor) -> Tensor:
        """Return f (b, C) at the mode, for features (b, F) without scales."""
        return self._detached.mean + self._detached.fitted(phi, self.mode.position)

    def _evidence(self, needs: Needs) -> tuple[Tensor, Gradients]:
        mode = WeightMode(self.mode.position, self.factor, self.mode.value)
        return mode.evidence, partial(self._gradients, needs)

    def _gradients(self, needs: Needs) -> list[Tensor | None]:
        """Return the gradients in the means (C,), the variances (T,) and the parameters of the features."""
        model, W = self._detached, self.mode.position
        inverse = inverse_blocks(self.factor, W)
        b = self._implicit_weights(inverse)
        in_mean, in_features = torch.zeros_like(model.mean), ParameterGradients(model, needs[2:])
        ends = model.scale[:, None] * torch.cat([W, b], dim=1)
        for block in model.blocks():
            unit = in_features.features(block).double()
            phi, f, counts = model.scale * unit, self._f(unit), block.counts()[:, None]
            pushed, covariance = function_covariance(phi, inverse)
            gradient = softmax.log_prob_gradient(self.likelihood, block, f)
            u = softmax.determinant_gradient(f, counts, covariance) - softmax.curvature_product(f, counts, phi @ b)
            in_mean += (gradient + u).sum(0)
            if in_features.is_needed:
                outer = torch.cat([gradient + u, gradient], dim=1) @ ends.mT
                coupling = torch.einsum("bcd,bcdf->bf", softmax.curvature(f, counts), pushed)
                in_features.add(outer - model.scale * coupling)
        diagonal = inverse.reshape(-1, inverse.shape[2]).diagonal().reshape(W.mT.shape).mT  # of A^-1, (F, C)
        in_variances = model.weights.by_block((0.5 * (W.square() - 1 + diagonal) + b * W).sum(1)) / model.variances
        in_parameters = [
            t.to(p) if need else None for t, p, need in zip(in_features.sums, model.parameters, needs[2:], strict=True)
        ]
        return [in_mean, in_variances, *in_parameters]

    def _implicit_weights(self, inverse: Tensor) -> Tensor:
        """Return b = A^-1 Phi^T s, (F, C), for the blocks of A^-1."""
        model, W = self._detached, self.mode.position
        right = torch.zeros_like(W)
        for block in model.blocks():
            unit = model.phi(block).double()
            phi = model.scale * unit
            _, covariance = function_covariance(phi, inverse)
            right += transposed_product(
                phi, softmax.determinant_gradient(self._f(unit), block.counts()[:, None], covariance)
            )
        C, F, _ = inverse.shape
        return (inverse.reshape(C * F, C * F) @ right.mT.reshape(-1)).reshape(C, F).mT
