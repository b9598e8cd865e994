"""The posterior covariance of weights, in two forms."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp.linalg import covariance_root, half_solve
from rfgp.solvers.terms import make_contiguous


@dataclass(frozen=True, eq=False)
class FactorCovariance:
    """A^-1, through the factor of the weights' precision.

    Attributes:
        factor: (F, F), the lower Cholesky factor of A.
    """

    factor: Tensor

    def __post_init__(self) -> None:
        make_contiguous(self, "factor")

    def variance(self, phi: Tensor) -> Tensor:
        """Return the variances (n,) at features (n, F)."""
        return self.root(phi).square().sum(1)

    def between(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the covariance (a, b) between features (a, F) and (b, F)."""
        root = self.root(left)
        return root @ (root if left is right else self.root(right)).mT

    def root(self, phi: Tensor) -> Tensor:
        """Return a matrix R (n, F) with R R^T the covariance at features (n, F)."""
        return half_solve(self.factor, phi.mT).mT

    def sample(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Draw weights of mean 0, (count, F, k)."""
        standard = torch.randn(*shape, generator=generator, dtype=torch.float64).to(self.factor)
        out: Tensor = torch.linalg.solve_triangular(self.factor.mT, standard, upper=True)
        return out

    def tensors(self) -> dict[str, Tensor]:
        """Return the factor (F, F)."""
        return {"factor": self.factor}

    def shapes(self, n: int, num_features: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of the factor for F features."""
        return {"factor": (num_features, num_features)}


@dataclass(frozen=True, eq=False)
class RowCovariance:
    """I - S^T S, for more features than rows.

    Attributes:
        rows: S = L^-1 Phi (n, F), with L the Cholesky factor of Phi Phi^T + D.
    """

    rows: Tensor

    def __post_init__(self) -> None:
        make_contiguous(self, "rows")

    def variance(self, phi: Tensor) -> Tensor:
        """Return the variances (n,) at features (n, F)."""
        explained = (phi @ self.rows.mT).square().sum(1)
        return (phi.square().sum(1) - explained).clamp_min(0)

    def between(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the covariance (a, b) between features (a, F) and (b, F)."""
        return left @ right.mT - (left @ self.rows.mT) @ (right @ self.rows.mT).mT

    def root(self, phi: Tensor) -> Tensor:
        """Return a matrix R (n, r) with R R^T the covariance at features (n, F)."""
        return covariance_root(self.between(phi, phi))

    def sample(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Draw weights of mean 0, (count, F, k).

        z - S^T (S z + e) with z ~ N(0, I) and e ~ N(0, I - S S^T): pathwise conditioning (Wilson et al. 2020), the
        noise seen through L^-1. Its covariance is (I - S^T S)^2 + S^T (I - S S^T) S = I - S^T S.
        """
        count, _, k = shape
        z = torch.randn(*shape, generator=generator, dtype=torch.float64).to(self.rows)
        left = torch.eye(len(self.rows), dtype=z.dtype, device=z.device) - self.rows @ self.rows.mT
        root = covariance_root(left)
        e = root @ torch.randn(count, root.shape[1], k, generator=generator, dtype=torch.float64).to(self.rows)
        return z - self.rows.mT @ (self.rows @ z + e)

    def tensors(self) -> dict[str, Tensor]:
        """Return the rows (n, F)."""
        return {"rows": self.rows}

    def shapes(self, n: int, num_features: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of S for n rows and F features."""
        return {"rows": (n, num_features)}


WeightCovariance = FactorCovariance | RowCovariance
"""The posterior covariance of weights (F,)."""
