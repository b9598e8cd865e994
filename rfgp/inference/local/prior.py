"""Features and a local process beside them, as a prior."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rfgp import random
from rfgp.inference.priors import FeaturePrior
from rfgp.local import KINDS, LatentRoot, as_places, conditionals, inverse_factor, nearest_predecessors
from rfgp.local.kinds import spectrum_of
from rfgp.local.neighbors import Floats, Indices
from rfgp.sparse import SparsityPattern


@dataclass(frozen=True, eq=False)
class LocalPrior:
    """f = s phi w + g, with g of a kernel of its own, or what the features leave of one kernel k (`is_residual`).

    Then g has the covariance s^2 (k - phi phi^T), so that f has s^2 k, whatever the features are; these must be such
    that something positive semidefinite is left. Source: Gyger, Furrer and Sigrist (2025), Vecchia-inducing-points
    full-scale approximations, with neighbours near in the scaled inputs.

    Attributes:
        features: The first part; None: there is none.
        name: Of the kernel of g, or of f, one of `rfgp.local.KINDS`.
        lengthscale: Of that kernel, (d,) or ().
        variance: Its value at distance 0, ().
        num_neighbors: The most of a row.
        seed: Of the order of the rows.
        conditioning: On "observations", on the function ("latent"), or "auto".
    """

    features: FeaturePrior | None
    name: str
    lengthscale: Tensor
    variance: Tensor
    num_neighbors: int
    seed: int
    conditioning: str = "auto"
    is_residual: bool = False

    @property
    def num_features(self) -> int:
        """F."""
        return 0 if self.features is None else self.features.num_features

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The tensors, (d,) or 0-d, that it depends on, and those of its features."""
        own = (self.lengthscale, self.variance)
        if self.features is None:
            return own
        scale = self.features.variance
        return (*own, *self.features.parameters, *(() if scale is None else (scale,)))

    @property
    def wants_gradients(self) -> bool:
        """Whether gradients are to flow into what it depends on."""
        return torch.is_grad_enabled() and any(parameter.requires_grad for parameter in self.parameters)

    def order(self, count: int) -> Tensor:
        """Return the order of so many rows, (n,): a random one."""
        generator = random.numpy_generator(self.seed, random.Role.ORDER)
        return torch.from_numpy(generator.permutation(count))

    def neighbors(
        self,
        x: Tensor,  # (n, d)
        rows: Tensor | None = None,  # (r,)
    ) -> SparsityPattern:
        """Return the nearest predecessors of rows in order, or of some of them, at this lengthscale."""
        return nearest_predecessors(self.scaled(x), self.num_neighbors, None if rows is None else rows.numpy())

    def scaled(self, x: Tensor) -> Floats:
        """Return inputs (n, d) in lengthscales."""
        return as_places(x.detach(), self.lengthscale.detach())

    def latent_root(
        self,
        x: Tensor,  # (n, d)
        pattern: SparsityPattern,  # (r, n)
        phi: Tensor | None = None,  # (n, F)
    ) -> LatentRoot:
        """Return the root of the covariance of g at rows in order, given their neighbours, or at some of them.

        Args:
            x: The rows.
            pattern: Of their neighbours.
            phi: Their features s phi, if they are known already.
        """
        lengthscale, variance, known = self.lengthscale.detach(), self.variance.detach(), None
        if self.is_residual:
            known = self.phi(x) if phi is None else phi
        return LatentRoot.of(x, lengthscale, variance, KINDS[self.name], pattern, known)

    def inverse_factor(
        self,
        x: Tensor,  # (n, d)
        noise: Tensor,  # (n,)
        pattern: SparsityPattern,  # (r, n)
        phi: Tensor,  # (n, F)
    ) -> Tensor:  # (nnz,)
        """Return the entries of the sparse inverse factor of g + noise, at rows with features s phi."""
        lengthscale, variance = self.lengthscale.double(), self.variance.double()
        known = phi if self.is_residual else None
        return inverse_factor(x, lengthscale, variance, noise, KINDS[self.name], pattern, known)

    def conditionals(
        self,
        points: Tensor,  # (q, d)
        x: Tensor,  # (n, d)
        noise: Tensor,  # (n,)
        near: Indices,  # (q, k)
    ) -> tuple[Tensor, Tensor]:
        """Return the weights (q, k) of rows `near` points (-1: none), and what they leave of g, (q,)."""
        known = (self.phi(x), self.phi(points)) if self.is_residual else None
        return conditionals(points, x, noise, near, self.lengthscale, self.variance, KINDS[self.name], known)

    def phi(
        self,
        x: Tensor,  # (n, d)
    ) -> Tensor:  # (n, F)
        """Return s phi; no columns where there are no features. Float64 where something is subtracted from."""
        if self.features is None:
            return x.new_zeros(len(x), 0)
        return self.features.scaled(x.double() if self.is_residual else x)

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the covariance of the two parts together, (n_a, n_b), float64, without neighbours."""
        of = spectrum_of(self.name).kernel_between(a.double() / self.lengthscale, b.double() / self.lengthscale)
        near = self.variance.double() * of
        return near if self.features is None or self.is_residual else near + self.features.kernel(a, b)

    def diagonal(self, a: Tensor) -> Tensor:
        """Return the variances of the two parts together, (n_a,)."""
        near = self.variance.double().expand(len(a))
        return near if self.features is None or self.is_residual else near + self.features.diagonal(a)

    def detached(self) -> "LocalPrior":
        """Return the prior without gradients."""
        features = None if self.features is None else self.features.detached()
        return replace(self, features=features, lengthscale=self.lengthscale.detach(), variance=self.variance.detach())
