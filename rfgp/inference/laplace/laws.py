"""Posteriors of C functions of one kernel, for several classes, and their laws: the functions are not independent."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from rfgp.errors import InvalidArgumentError
from rfgp.inference.laws import ENTRIES, Functions, InputBlocks, chunks_of, in_memory, root_of
from rfgp.inference.posteriors import make_contiguous
from rfgp.inference.priors import FeaturePrior


class ClassPosteriors(Protocol):
    """The role: posteriors of C functions, by what is prepared for points."""

    @property
    def width(self) -> int:
        """The number of entries for a point."""

    def prepare(self, inputs: Tensor) -> Tensor:
        """Return what ties n inputs to the data, (n, ...)."""

    def mean(self, prepared: Tensor) -> Tensor:
        """Return the means (n, C)."""

    def variance(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the marginal variances (n, C)."""

    def spread(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the covariances of the functions at each point, (n, C, C)."""

    def joint(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the covariance of all functions at all points, (C n, C n), class by class."""


@dataclass(frozen=True, eq=False)
class ClassLaw:
    """The laws of C functions at n points.

    Attributes:
        posterior: What the data say.
        inputs: The points.
    """

    posterior: ClassPosteriors
    inputs: Tensor | InputBlocks

    def mean(self) -> Tensor:
        """Return the means (n, C)."""
        return torch.cat([self.posterior.mean(prepared) for _, prepared in self._chunks()])

    def variance(self) -> Tensor:
        """Return the marginal variances (n, C)."""
        return torch.cat([self.posterior.variance(*chunk) for chunk in self._chunks()])

    def spread(self) -> Tensor:
        """Return the covariances of the functions at each point, (n, C, C)."""
        return torch.cat([self.posterior.spread(*chunk) for chunk in self._chunks()])

    def covariance(self) -> Tensor:
        """Return the covariances between points, (n, n, C), of each function."""
        mean = self.mean()
        n, count = mean.shape
        joint = self._joint()
        return torch.stack([joint[c * n : (c + 1) * n, c * n : (c + 1) * n] for c in range(count)], dim=-1)

    def root(self) -> Tensor:
        """Return a matrix R (C n, C n) with R R^T the covariance of all functions at all points, class by class."""
        return root_of(self._joint())

    def _joint(self) -> Tensor:
        inputs = in_memory(self.inputs)
        return self.posterior.joint(inputs, self.posterior.prepare(inputs).double())

    def _chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        for x in chunks_of(self.inputs, max(1, ENTRIES // max(self.posterior.width, 1))):
            yield x, self.posterior.prepare(x).double()


@dataclass(frozen=True, eq=False)
class ClassPosterior:
    """Of C functions, through the covariances with the training rows.

    Attributes:
        prior: Of each function.
        inputs: Of the training rows.
        coefficients: a (n, C).
        blocks: E (C, n, n).
        shared: The inverse of the factor of S times E, (C, n, n).
    """

    prior: Any
    inputs: Tensor
    coefficients: Tensor
    blocks: Tensor
    shared: Tensor

    def __post_init__(self) -> None:
        make_contiguous(self, "inputs", "coefficients", "blocks", "shared")

    @property
    def width(self) -> int:
        """The number of covariances of a point with the rows, for each class."""
        return 2 * self.coefficients.numel()

    def prepare(self, inputs: Tensor) -> Tensor:
        """Return the covariances of n inputs with the training inputs, (n, n_train)."""
        kernel: Tensor = self.prior.kernel(inputs, self.inputs)
        return kernel

    def law(self, inputs: Tensor | InputBlocks) -> ClassLaw:
        """Return the latent laws at n inputs, (n, d) or (n,)."""
        return ClassLaw(self, inputs)

    def mean(self, prepared: Tensor) -> Tensor:
        """Return the means (n, C)."""
        return prepared @ self.coefficients

    def spread(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the covariances of the functions at each point, (n, C, C)."""
        pulled, shared = self.blocks @ prepared.mT, self.shared @ prepared.mT
        out: Tensor = torch.einsum("cki,dki->icd", shared, shared)
        own = self.prior.diagonal(inputs).double() - (pulled * prepared.mT).sum(1)
        out.diagonal(dim1=1, dim2=2).add_(own.mT)
        return out

    def variance(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the marginal variances (n, C)."""
        pulled, shared = self.blocks @ prepared.mT, self.shared @ prepared.mT
        own: Tensor = self.prior.diagonal(inputs).double() - (pulled * prepared.mT).sum(1) + shared.square().sum(1)
        return own.mT.clamp_min(0)

    def joint(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the covariance of all functions at all points, (C n, C n), class by class."""
        n, count = len(prepared), len(self.blocks)
        shared = (self.shared @ prepared.mT).movedim(0, 1).reshape(-1, count * n)
        out: Tensor = shared.mT @ shared
        own = self.prior.kernel(inputs, inputs).double() - prepared @ (self.blocks @ prepared.mT)
        return out + block_diagonal(own)

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Refuse: functions (count, n, C) of several classes are drawn at given points.

        Raises:
            InvalidArgumentError: always.
        """
        raise InvalidArgumentError("Functions of several classes are drawn at given points: predict(X).sample(...).")

    def tensors(self) -> dict[str, Tensor]:
        """Return inputs, coefficients (n, C), blocks and shared (C, n, n)."""
        return {name: getattr(self, name) for name in ("inputs", "coefficients", "blocks", "shared")}


@dataclass(frozen=True, eq=False)
class SharedPosterior:
    """Of C functions, through the weights of features.

    Attributes:
        prior: Its features make Phi (n, F).
        weights: Their posterior mean (F, C).
        factor: The lower Cholesky factor of their precision, (C F, C F).
    """

    prior: FeaturePrior
    weights: Tensor
    factor: Tensor

    def __post_init__(self) -> None:
        make_contiguous(self, "weights", "factor")

    @property
    def width(self) -> int:
        """The number of entries of a point's features, for all pairs of classes."""
        return self.weights.numel() * self.weights.shape[1]

    def prepare(self, inputs: Tensor) -> Tensor:
        """Return the features (n, F)."""
        return self.prior.scaled(inputs)

    def law(self, inputs: Tensor | InputBlocks) -> ClassLaw:
        """Return the latent laws at n inputs, (n, d) or (n,)."""
        return ClassLaw(self, inputs)

    def mean(self, prepared: Tensor) -> Tensor:
        """Return the means (n, C)."""
        return prepared @ self.weights

    @cached_property
    def _inverse(self) -> Tensor:
        """A^-1 as (C, F, C F)."""
        F, C = self.weights.shape
        return torch.cholesky_inverse(self.factor).reshape(C, F, C * F)

    def spread_of(self, prepared: Tensor) -> Tensor:
        """Return the covariances of the functions at each point, (n, C, C), for features (n, F)."""
        return pushed_through(prepared, self._inverse, prepared.new_ones(()))[1]

    def spread(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the covariances of the functions at each point, (n, C, C)."""
        return self.spread_of(prepared)

    def variance(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the marginal variances (n, C)."""
        F, C = self.weights.shape
        own = torch.stack([self._inverse[c, :, c * F : (c + 1) * F] for c in range(C)])
        return torch.einsum("bf,cfg,bg->bc", prepared, own, prepared).clamp_min(0)

    def joint(self, inputs: Tensor, prepared: Tensor) -> Tensor:
        """Return the covariance of all functions at all points, (C n, C n), class by class."""
        C = self.weights.shape[1]
        root: Tensor = torch.linalg.solve_triangular(self.factor, block_diagonal([prepared.mT] * C), upper=False)
        return root.mT @ root

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions of n inputs, (count, n, C)."""
        F, C = self.weights.shape
        standard = torch.randn(C * F, count, generator=generator, dtype=torch.float64)
        drawn = torch.linalg.solve_triangular(self.factor.mT, standard, upper=True)
        w = self.weights + drawn.mT.reshape(count, C, F).mT
        return lambda inputs: self.prepare(inputs).double() @ w

    def tensors(self) -> dict[str, Tensor]:
        """Return weights (F, C) and factor (C F, C F)."""
        return {"weights": self.weights, "factor": self.factor}


def pushed_through(phi: Tensor, blocks: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Return phi A_cd (b, C, C, F) and s^2 phi A_cd phi^T (b, C, C), for the blocks of A^-1 as (C, F, C F)."""
    C, F = blocks.shape[:2]
    pushed = torch.einsum("bf,cfg->bcg", phi, blocks).reshape(len(phi), C, C, F)
    return pushed, variance * torch.einsum("bcdf,bf->bcd", pushed, phi)


def block_diagonal(blocks: Iterable[Tensor]) -> Tensor:
    """Return the matrix with these, (n, n) each, along its diagonal."""
    out: Tensor = torch.block_diag(*blocks)
    return out
