"""Laplace's approximation for several classes through features, in blocks of rows.

f_i (C,) = m + W^T Phi_i, the weights W (F, C) standard normal, classes by a softmax. With the probabilities p_i, counts
w_i and G_c = Phi^T diag(w p_c) Phi, the precision of all C F weights is

    A = I + blockdiag(G_c) - sum_i w_i (p_i x Phi_i) (p_i x Phi_i)^T,

below the block-diagonal matrix B without its last term. Newton's steps to the mode are solved by conjugate gradients:
C matrices of F x F a step and products in O(n F C), where A itself would take O(n F^2 C^2). The preconditioner is
B^-1 + Z Z^T, with Z Z^T the mean over classes: where all classes move together labels say nothing, A is 1, and B is far
from it. A is formed and factorised once, at the mode, for the evidence, its gradient (in the notation of
`rfgp.inference.laplace.classes`, with b = A^-1 Phi^T s, u = s - W Phi b and A_cd the blocks of A^-1)

    d/dPhi = sum_c (g_c + u_c) w_c^T + g_c b_c^T - sum_d W_cd Phi A_cd,    d/dm_c = sum_i g_ic + u_ic,
    d/ds^2 = (tr W^T W / 2 + tr b^T W - (F C - tr A^-1) / 2) / s^2,

and the posterior.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rfgp.errors import InvalidArgumentError, SolverError
from rfgp.inference.evidence import Evidence
from rfgp.inference.laplace.classes import cavity, pull, weighted, weights
from rfgp.inference.laplace.laws import SharedPosterior, pushed_through
from rfgp.inference.laplace.search import FLOOR, MOST_STEPS, NOT_FINITE, ROUNDED, lost
from rfgp.inference.laplace.weights import ROUNDED_FLOOR
from rfgp.inference.linear import LinearModel, add_symmetric_product, symmetrized
from rfgp.likelihoods import Categorical
from rfgp.linalg import cholesky
from rfgp.rows import Block

MOST_WEIGHTS = 24_000
"""C F, for which a matrix of all pairs takes 4.6 GB."""
KEPT = 2**26
"""Entries of features of all rows up to which they are kept for one search."""
TOLERANCE, ROUNDED_TOLERANCE = 1e-14, 1e-7
"""Of the square of Newton's decrement, in nats a thousand rows, for features of double and of single precision."""
MOST_INNER, SOLVED = 300, (1e-9, 1e-2)
"""Conjugate gradients for a step, and the relative residuals that end them, near the mode and far from it."""
_LENGTHS = tuple(0.5**i for i in range(25))


class SharedMode(NamedTuple):
    """The mode of the weights."""

    weights: Tensor  # (F, C)
    grams: Tensor  # G (C, F, F), lower triangles left out
    value: Tensor  # 0-d


class _Rows:
    """Blocks of rows with their features, which are kept where they are not too many."""

    def __init__(self, model: LinearModel) -> None:
        self._model = model
        self._kept: list[tuple[Block, Tensor]] | None = None
        if len(model.rows) * model.num_features <= KEPT:
            self._kept = [(block, model.phi(block)) for block in model.blocks()]

    def __iter__(self) -> Iterator[tuple[Block, Tensor]]:
        if self._kept is not None:
            yield from self._kept
            return
        for block in self._model.blocks():
            yield block, self._model.phi(block)

    @property
    def is_kept(self) -> bool:
        """Whether the features are kept."""
        return self._kept is not None

    @property
    def is_double(self) -> bool:
        """Whether features are of double precision."""
        return next(iter(self))[1].dtype == torch.float64


@dataclass(frozen=True, eq=False)
class SharedEvidence(Evidence):
    """What labels say of the weights of features.

    Attributes:
        model: The data and the features; its mean is (C,).
        likelihood: With C known.

    Raises:
        InvalidArgumentError: features of so many classes that their matrix of all pairs would not fit in memory.
    """

    model: LinearModel
    likelihood: Categorical

    def __post_init__(self) -> None:
        size = self.model.num_features * len(self.model.mean)
        if size > MOST_WEIGHTS:
            raise InvalidArgumentError(
                f"{self.model.num_features:,} features of {len(self.model.mean)} classes have {size:,} weights; at "
                f"most {MOST_WEIGHTS:,} are solved for. Take fewer features: num_frequencies, or num_inducing."
            )

    @cached_property
    def mode(self) -> SharedMode:
        """The mode."""
        with torch.no_grad():
            return find_mode(self._detached, self.likelihood)

    @cached_property
    def factor(self) -> Tensor:
        """The lower Cholesky factor of A, (C F, C F), class by class."""
        with torch.no_grad():
            model, mode, C = self._detached, self.mode, len(self.model.mean)
            F = model.num_features
            matrix = model.mean.new_zeros(C * F, C * F)
            for block in model.blocks():
                phi = model.phi(block)
                p = torch.softmax(_at(model, phi, mode.weights), dim=1) * block.counts().sqrt()[:, None]
                crossed = (phi[:, None] * p[:, :, None].to(phi)).reshape(len(phi), C * F)
                add_symmetric_product(matrix, crossed)
            matrix = symmetrized(matrix.mul_(-model.variance))
            for c in range(C):
                own = slice(c * F, (c + 1) * F)
                matrix[own, own] += model.variance * mode.grams[c]
            matrix.diagonal().add_(1)
            return cholesky(matrix, "The precision of the weights of all classes")

    def log_marginal_likelihood(self) -> Tensor:
        """Return the approximate log evidence, 0-d."""
        out: Tensor = _LogEvidence.apply(self, self.model.mean, self.model.variance, *self.model.parameters)
        return out

    @property
    def weights_used(self) -> float:
        """The share of the weights that the data determine, (C F - tr A^-1) / (C F)."""
        return 1 - float(torch.cholesky_inverse(self.factor).diagonal().sum()) / len(self.factor)

    def posterior(self) -> SharedPosterior:
        """Return the weights and the factor of their precision."""
        return SharedPosterior(self.model.prior, self.mode.weights, self.factor)

    def leave_one_out(self) -> tuple[Tensor, Tensor]:
        """Return means (n, C) and covariances (n, C, C) of the functions at each row given all others, approximately.

        By Laplace's cavity, as `LaplaceEvidence.leave_one_out`.
        """
        parts, model, posterior = [], self._detached, self.posterior()
        with torch.no_grad():
            for block in model.blocks():
                phi = model.phi(block)
                f = _at(model, phi, self.mode.weights)
                spread = posterior.spread_of(model.variance.sqrt() * phi.double())
                parts.append(cavity(f, spread, self.likelihood, block))
        means, variances = zip(*parts, strict=True)
        return torch.cat(means), torch.cat(variances)

    @cached_property
    def _detached(self) -> LinearModel:
        return self.model.detached()


def _at(model: LinearModel, phi: Tensor, w: Tensor) -> Tensor:
    """Return f (b, C) at weights (F, C)."""
    return model.mean + (phi @ (model.variance.sqrt() * w).to(phi)).double()


def find_mode(model: LinearModel, likelihood: Categorical) -> SharedMode:
    """Return the mode of the weights, by Newton's method, damped.

    Args:
        model: Without gradients.
        likelihood: With C known.

    Raises:
        SolverError: steps lead nowhere.
    """
    rows = _Rows(model)
    w = model.mean.new_zeros(model.num_features, len(model.mean))
    tolerance = (TOLERANCE if rows.is_double else ROUNDED_TOLERANCE) * (1 + len(model.rows) / 1000)
    least = FLOOR if rows.is_double else ROUNDED_FLOOR * math.sqrt(len(model.rows))
    decrement = torch.inf
    for _ in range(MOST_STEPS):
        likely, gradient, grams = _told(model, likelihood, rows, w)
        if not bool(torch.isfinite(likely)):
            raise SolverError(NOT_FINITE)
        value, ascent = float(likely - 0.5 * w.square().sum()), gradient - w
        floor = max(least, ROUNDED * abs(value))
        step = _solved(model, rows, w, grams, ascent, min(max(0.1 * decrement, SOLVED[0]), SOLVED[1]))
        last, decrement = decrement, float((step * ascent).sum())
        if decrement <= tolerance or last <= decrement < floor:
            return SharedMode(w, grams, likely)
        w = _moved(model, likelihood, rows, (w, step), value - (floor if decrement < floor else 0.0))
    raise SolverError(lost(decrement))


def _told(model: LinearModel, likelihood: Categorical, rows: _Rows, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the value (0-d), Phi^T g (F, C) and the matrices phi^T diag(w p_c) phi (C, F, F) at weights (F, C)."""
    F, C = w.shape
    value, gradient, grams = w.new_zeros(()), torch.zeros_like(w), w.new_zeros(C, F, F)
    for block, phi in rows:
        f, counts = _at(model, phi, w), block.counts()
        slopes = likelihood.slopes(block.targets[:, 0], f)
        value += (slopes.value * counts).sum()
        gradient += (phi.mT @ (slopes.first * counts[:, None]).to(phi)).double()
        roots = (torch.softmax(f, dim=1) * counts[:, None]).sqrt().to(phi)
        for c in range(C):
            add_symmetric_product(grams[c], phi * roots[:, c, None])
    return value, model.variance.sqrt() * gradient, torch.stack([symmetrized(gram) for gram in grams])


def _solved(model: LinearModel, rows: _Rows, w: Tensor, grams: Tensor, right: Tensor, tolerance: float) -> Tensor:
    """Return A^-1 right, (F, C), by conjugate gradients to a relative residual."""
    inside = model.variance * grams
    inside.diagonal(dim1=1, dim2=2).add_(1)
    factors = torch.stack([cholesky(each, "The precision of the weights of a class") for each in inside])
    near = [(_at(model, phi, w), block.counts()[:, None], phi) for block, phi in rows] if rows.is_kept else None

    def times(v: Tensor) -> Tensor:
        out = v.clone()
        for f, counts, phi in near or ((_at(model, phi, w), b.counts()[:, None], phi) for b, phi in rows):
            turned = weighted(f, counts, (phi @ v.to(phi)).double())
            out += model.variance * (phi.mT @ turned.to(phi)).double()
        return out

    def halved(v: Tensor) -> Tensor:
        return torch.cholesky_solve(v.mT[:, :, None], factors)[:, :, 0].mT + v.mean(1, keepdim=True)

    x, residual, z = torch.zeros_like(right), right.clone(), halved(right)
    p, rho, goal = z, (right * z).sum(), tolerance * float(right.norm())
    for _ in range(MOST_INNER):
        image = times(p)
        length = rho / (p * image).sum()
        x, residual = x + length * p, residual - length * image
        if float(residual.norm()) <= goal:
            break
        z = halved(residual)
        rho, before = (residual * z).sum(), rho
        p = z + rho / before * p
    return x


def _moved(
    model: LinearModel, likelihood: Categorical, rows: _Rows, along: tuple[Tensor, Tensor], least: float
) -> Tensor:
    """Return the first weights (F, C) of a step's halvings whose value is at least so much.

    Raises:
        SolverError: there are none.
    """
    w, step = along
    places = [(_at(model, phi, w), (phi @ (model.variance.sqrt() * step).to(phi)).double(), b) for b, phi in rows]
    for length in _LENGTHS:
        ends = w + length * step
        total = -0.5 * ends.square().sum()
        for f, change, block in places:
            total += (likelihood.slopes(block.targets[:, 0], f + length * change).value * block.counts()).sum()
        if float(total) >= least:
            return ends
    raise SolverError(lost(float(step.square().sum())))


class _LogEvidence(torch.autograd.Function):
    """The log evidence as a function of the means (C,), s^2 and the parameters of the features."""

    @staticmethod
    def forward(ctx: Any, evidence: SharedEvidence, mean: Tensor, variance: Tensor, *parameters: Tensor) -> Tensor:
        ctx.evidence = evidence
        mode = evidence.mode
        return mode.value - 0.5 * mode.weights.square().sum() - evidence.factor.diagonal().log().sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        found = _gradients(ctx.evidence, ctx.needs_input_grad[3:])
        return (None, *(None if gradient is None else grads[0] * gradient for gradient in found))


def _gradients(evidence: SharedEvidence, wanted: tuple[bool, ...]) -> list[Tensor | None]:
    """Return the gradients in the means (C,), s^2 and the features' parameters, where they are wanted."""
    model, mode = evidence.model.detached(), evidence.mode
    F, C = mode.weights.shape
    scale, inverse = model.variance.sqrt(), torch.cholesky_inverse(evidence.factor)
    blocks = inverse.reshape(C, F, C * F)
    right = torch.zeros_like(mode.weights)
    for block in model.blocks():
        phi = model.phi(block).double()
        f = _at(model, phi, mode.weights)
        s = pull(f, block.counts()[:, None], pushed_through(phi, blocks, model.variance)[1])
        right += scale * phi.mT @ s
    b = (inverse @ right.mT.reshape(-1)).reshape(C, F).mT
    in_mean = torch.zeros_like(model.mean)
    totals = [
        torch.zeros_like(p, dtype=torch.float64) if w else None for p, w in zip(model.parameters, wanted, strict=True)
    ]
    for block in model.blocks():
        with torch.enable_grad():
            leaves = tuple(p.detach().requires_grad_(w) for p, w in zip(model.parameters, wanted, strict=True))
            phi = model.phi(block, *leaves)
        own, counts = phi.detach().double(), block.counts()[:, None]
        f = _at(model, own, mode.weights)
        pushed, spread = pushed_through(own, blocks, model.variance)
        first = counts * evidence.likelihood.slopes(block.targets[:, 0], f).first
        u = pull(f, counts, spread) - weighted(f, counts, scale * own @ b)
        in_mean += (first + u).sum(0)
        if any(wanted):
            upstream = scale * ((first + u) @ mode.weights.mT + first @ b.mT)
            upstream -= model.variance * torch.einsum("bcd,bcdf->bf", weights(f, counts), pushed)
            asked = [leaf for leaf in leaves if leaf.requires_grad]
            found = iter(torch.autograd.grad(phi, asked, upstream.to(phi)))
            for total, leaf in zip(totals, leaves, strict=True):
                if total is not None and leaf.requires_grad:
                    total += next(found)
    spent = 0.5 * (mode.weights.square().sum() - C * F + inverse.diagonal().sum())
    in_variance = (spent + (b * mode.weights).sum()) / model.variance
    return [
        in_mean,
        in_variance,
        *(None if t is None else t.to(p) for t, p in zip(totals, model.parameters, strict=True)),
    ]
