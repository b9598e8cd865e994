"""Zero-mean Gaussian priors on functions, given by features or by a kernel."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from rfgp.sparse import SparseValues, gram, multiply, row_blocks

Functions = Callable[[Tensor], Tensor]
"""Functions of the inputs of n points, (n, p)."""

_CHUNK, _MANY = 2**15, 8


class PriorFunctions(Protocol):
    """The role: functions of a prior, for pathwise conditioning."""

    def draw(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions of the inputs of n points, (n, count)."""

    def through(self, inputs: Tensor, coefficients: Tensor) -> Functions:
        """Return x -> k(x, inputs) @ coefficients, for the inputs of n points and coefficients (n, p)."""


@dataclass(frozen=True, eq=False)
class Residual:
    """What features miss of a kernel k with k(x, x) = 1, where k - phi phi^T is positive semidefinite.

    Attributes:
        is_noise: Whether it is independent from observation to observation, as noise is (FITC); else it is what the
            process leaves once the features are known, of which the rows are taken to say nothing (VFE).
        kernel: k of (a, b) and of the prior's parameters, (n_a, n_b).
    """

    is_noise: bool
    kernel: Callable[..., Tensor]

    def missing(self, phi: Tensor) -> Tensor:
        """Return 1 - |phi_i|^2 for features (n, F), (n,), float64."""
        return (1 - phi.double().square().sum(-1)).clamp_min(0)


@dataclass(frozen=True, eq=False)
class FeaturePrior:
    """f = s phi w, w ~ N(0, I), and s times a residual where there is one.

    Attributes:
        features: Maps inputs, and `parameters` after them, to phi (n, F).
        num_features: F.
        parameters: Tensors that the features depend on.
        variance: s^2, 0-d; None: 1.
        residual: What the features miss; None: nothing, or it is left out.
        rounding: Returns, for `parameters`, the mean of |phi_32(x) - phi(x)|^2 that float32 arithmetic adds. If None,
            it is that of rounding phi, which is negligible.
    """

    features: Callable[..., Tensor]
    num_features: int
    parameters: tuple[Tensor, ...] = ()
    variance: Tensor | None = None
    residual: Residual | None = None
    rounding: Callable[..., float] | None = None

    def scaled(self, inputs: Tensor) -> Tensor:
        """Return Phi = s phi, (n, F), float64 where float32 arithmetic does not suffice."""
        phi: Tensor = self.features(inputs if self.rounding is None else inputs.double(), *self.parameters)
        return phi if self.variance is None else self.variance.double().sqrt() * phi

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the covariance (n_a, n_b), float64; noise-like residuals are those of points with themselves."""
        left = self.scaled(a).double()
        if a is b:
            return left @ left.mT + self.left_over(a, left)
        if self.residual is None or self.residual.is_noise:
            return left @ self.scaled(b).double().mT
        return self._unit * self.residual.kernel(a, b, *self.parameters).double()

    def diagonal(self, a: Tensor) -> Tensor:
        """Return the variances (n_a,)."""
        phi = self.scaled(a).double()
        return phi.square().sum(-1) + self.missing(phi)

    def missing(self, scaled: Tensor) -> Tensor:
        """Return the residual's variances (n,) at points of these features Phi (n, F), float64; zeros without one."""
        if self.residual is None:
            return scaled.new_zeros(len(scaled), dtype=torch.float64)
        return self._unit * self.residual.missing(scaled / self._unit.sqrt())

    def left_over(self, a: Tensor, scaled: Tensor) -> Tensor:
        """Return the residual's covariance (n, n) of points whose features are Phi (n, F), float64."""
        if self.residual is None or self.residual.is_noise:
            return self.missing(scaled).diag()
        estimate = scaled.double() @ scaled.double().mT
        return self._unit * self.residual.kernel(a, a, *self.parameters).double() - estimate

    @property
    def _unit(self) -> Tensor:
        return torch.ones((), dtype=torch.float64) if self.variance is None else self.variance.double()

    def detached(self) -> "FeaturePrior":
        """Return the prior without gradients."""
        variance = None if self.variance is None else self.variance.detach()
        return replace(self, parameters=tuple(p.detach() for p in self.parameters), variance=variance)


@dataclass(frozen=True, eq=False)
class KernelPrior:
    """f with a covariance function.

    Attributes:
        kernel: (a, b) -> (n_a, n_b).
        diagonal: a -> (n_a,).
        functions: Of the prior, where it has some.
    """

    kernel: Callable[[Tensor, Tensor], Tensor]
    diagonal: Callable[[Tensor], Tensor]
    functions: PriorFunctions | None = None


@dataclass(frozen=True, eq=False)
class SparsePrior:
    """f(x) = s phi_x w, w ~ N(0, I), with sparse phi of positions x.

    Attributes:
        at: (positions (n,), whether to keep what is drawn) -> phi (n, N).
        variance: s^2, 0-d.
        num_columns: N.
        seed: Of probes and paths.
        times: Phi of all N positions times a matrix (N, p), where that is cheaper than their rows; or None.
    """

    at: Callable[[Tensor, bool], SparseValues]
    variance: Tensor
    num_columns: int
    seed: int
    times: Callable[[Any], Any] | None = None

    @property
    def functions(self) -> PriorFunctions:
        """The prior itself: it has functions."""
        return self

    def kernel(self, a: Tensor, b: Tensor) -> Tensor:
        """Return s^2 Phi(a) Phi(b)^T, (n_a, n_b), dense; what is drawn for b is kept."""
        right = self.at(b, True)
        left = right if a is b else self.at(a, False)
        return self.variance * gram(left.values, left.pattern, right.values, right.pattern)

    def diagonal(self, a: Tensor) -> Tensor:
        """Return s^2 |phi(a_i)|^2, (n_a,)."""
        values, pattern = self.at(a, False)
        rows = torch.from_numpy(np.repeat(np.arange(len(a)), np.diff(pattern.indptr)))
        return self.variance * values.new_zeros(len(a)).index_add(0, rows, values.square())

    def draw(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions of n positions, (n, count)."""
        weights = torch.randn(self.num_columns, count, generator=generator, dtype=torch.float64)
        return self.of_weights(float(self.variance) ** 0.5 * weights)

    def through(self, inputs: Tensor, coefficients: Tensor) -> Functions:
        """Return x -> s^2 phi_x Phi^T coefficients, for positions (n,) and coefficients (n, p)."""
        weights = self.at(inputs, True).matrix().T @ coefficients.numpy()
        return self.of_weights(float(self.variance) * torch.from_numpy(weights))

    def of_weights(self, weights: Tensor) -> Functions:
        """Return x -> phi_x @ weights, (n,) -> (n, p), for weights (N, p)."""
        array = np.ascontiguousarray(weights.numpy())
        everywhere: list[Tensor] = []

        def values(inputs: Tensor) -> Tensor:
            if self.times is not None and _MANY * len(inputs) > self.num_columns:
                if not everywhere:
                    everywhere.append(torch.from_numpy(self.times(array)))
                return everywhere[0][inputs]
            parts = [multiply(row_blocks(self.at(part, False).matrix()), array) for part in torch.split(inputs, _CHUNK)]
            return torch.from_numpy(np.concatenate(parts)) if len(inputs) else torch.zeros(0, array.shape[1])

        return values
