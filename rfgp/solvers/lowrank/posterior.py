"""The posterior of the weights of features, and its projection to points.

Outside, f = W f(U) + r (`rfgp.lattices.design`), and r = g - W g(U) for a draw g of the kernel (Matheron's rule). Each
draw is one function, for any number of evaluations. g is a sum of cosines with its own random frequencies.

Source: Wilson et al. (2020), Efficiently sampling functions from Gaussian process posteriors, Equation 9.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rfgp.blocks import WeightBlock, Weights
from rfgp.blocks.role import Design
from rfgp.errors import InvalidArgumentError
from rfgp.lattices.design import LatticeDesign
from rfgp.linalg import covariance_root, half_solve
from rfgp.solvers.role import Functions, Shape, TermwisePosterior, make_contiguous

# --- Draws of functions outside the box of a lattice -----------------------------------------------------------------

NUM_COSINES = 256
"""The number of cosines of a draw. Over draws the covariance is exact for any number."""


def kernel_draws(
    design: LatticeDesign, parameters: Sequence[Tensor], count: int, k: int, generator: torch.Generator
) -> Callable[[Tensor], Tensor]:
    """Draw functions g of the stationary kernel of a design.

    They are g = sum_j a_j sqrt(2 / J) cos(omega_j . x / l + b_j), with random frequencies omega, phases b and standard
    normal amplitudes a of each draw, and the lengthscales l.

    Args:
        design: The design on a lattice, with its kernel.
        parameters: The hyperparameters of the kernel, () or (d,) each, in the order of the design's names.
        count: The number of draws.
        k: The number of outputs of a draw.
        generator: A generator on the CPU.

    Returns:
        A map of points in the columns of the lattice, (n, d), to the values draw by draw, (n, count k).
    """
    frequencies = design.product.sample(count * NUM_COSINES, generator).reshape(count, NUM_COSINES, -1)
    phases = 2 * math.pi * torch.rand(count, NUM_COSINES, generator=generator, dtype=torch.float64)
    amplitudes = torch.randn(count, NUM_COSINES, k, generator=generator, dtype=torch.float64)
    lengthscales = design.product.lengthscales(dict(zip(design.names, parameters, strict=True)))

    def values(points: Tensor) -> Tensor:
        scaled, draws = points / lengthscales, zip(frequencies, phases, amplitudes, strict=True)
        parts = [(scaled @ omega.mT + phase).cos() @ amplitude for omega, phase, amplitude in draws]
        return math.sqrt(2 / NUM_COSINES) * torch.cat(parts, dim=1)

    return values


def extensions(blocks: Iterable[WeightBlock], count: int, k: int, generator: torch.Generator) -> Functions:
    """Draw r, the part of the sum of terms outside the boxes of lattices, independent of the values within.

    Args:
        blocks: The blocks. Those that are not on a lattice have no extension.
        count: The number of draws.
        k: The number of outputs of a draw.
        generator: A generator on the CPU.

    Returns:
        A map of the inputs of n points to (count, n, k).
    """
    parts = [
        (block, block.design, kernel_draws(block.design, block.parameters, count, k, generator))
        for block in blocks
        if isinstance(block.design, LatticeDesign)
    ]

    def values(inputs: Tensor) -> Tensor:
        total = torch.zeros(len(inputs), count * k, dtype=torch.float64)
        for block, design, draws in parts:
            total = total + block.prior_variance.sqrt() * design.extend(inputs, draws, *block.parameters)
        return total.reshape(len(inputs), count, k).movedim(0, 1)

    return values


# --- The posterior of the weights of features, and its projection to points ------------------------------------------


@dataclass(frozen=True, eq=False)
class FactorCovariance:
    """The covariance A^-1, through the factor of the weights' precision.

    Attributes:
        factor: The lower Cholesky factor of A, (F, F).

    Examples:
        >>> FactorCovariance(torch.tensor([[2.0]]).double()).variance(torch.tensor([[1.0]]).double()).tolist()
        [0.25]
    """

    factor: Tensor

    def __post_init__(self) -> None:
        make_contiguous(self, "factor")

    def variance(self, scaled_phi: Tensor) -> Tensor:
        """Return the variances of functions at n points, (n,).

        Args:
            scaled_phi: The scaled features, (n, F).
        """
        return self.root(scaled_phi).square().sum(1)

    def between(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the covariance of functions between two sets of points, (a, b).

        Args:
            left: The scaled features of the first points, (a, F).
            right: The scaled features of the second points, (b, F).
        """
        root = self.root(left)
        return root @ (root if left is right else self.root(right)).mT

    def root(self, scaled_phi: Tensor) -> Tensor:
        """Return a matrix R (n, F) such that R R^T is the covariance of functions.

        The functions are those at n points.

        Args:
            scaled_phi: The scaled features, (n, F).
        """
        return half_solve(self.factor, scaled_phi.mT).mT

    def sample(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Draw weights with mean 0, (count, F, k).

        Args:
            *shape: The shape of the draws: count, F and k.
            generator: A generator on the CPU.
        """
        standard = torch.randn(*shape, generator=generator, dtype=torch.float64).to(self.factor)
        out: Tensor = torch.linalg.solve_triangular(self.factor.mT, standard, upper=True)
        return out

    def draws_weights(self, num_points: int, count: int) -> bool:
        """Return whether draws of weights cost less than a root at n points.

        Args:
            num_points: The number n of points.
            count: The number of draws.
        """
        return count < num_points

    def tensors(self) -> dict[str, Tensor]:
        """Return the factor (F, F) by name."""
        return {"factor": self.factor}

    def shapes(self, n: int, num_features: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of the factor by name.

        Args:
            n: The number of rows.
            num_features: The number F of features.
        """
        return {"factor": (num_features, num_features)}


@dataclass(frozen=True, eq=False)
class RowCovariance:
    """The covariance I - S^T S, for more features than rows.

    Attributes:
        rows: S = L^-1 Phi (n, F), with the Cholesky factor L of Phi Phi^T + D.

    Examples:
        >>> covariance = RowCovariance(torch.tensor([[0.6, 0.0]]).double())  # I - S^T S
        >>> covariance.variance(torch.eye(2).double()).round(decimals=4).tolist()
        [0.64, 1.0]
    """

    rows: Tensor

    def __post_init__(self) -> None:
        make_contiguous(self, "rows")

    def variance(self, scaled_phi: Tensor) -> Tensor:
        """Return the variances of functions at n points, (n,).

        Args:
            scaled_phi: The scaled features, (n, F).
        """
        explained = (scaled_phi @ self.rows.mT).square().sum(1)
        return (scaled_phi.square().sum(1) - explained).clamp_min(0)

    def between(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the covariance of functions between two sets of points, (a, b).

        Args:
            left: The scaled features of the first points, (a, F).
            right: The scaled features of the second points, (b, F).
        """
        return left @ right.mT - (left @ self.rows.mT) @ (right @ self.rows.mT).mT

    def root(self, scaled_phi: Tensor) -> Tensor:
        """Return a matrix R (n, r) such that R R^T is the covariance of functions.

        The functions are those at n points.

        Args:
            scaled_phi: The scaled features, (n, F).
        """
        return covariance_root(self.between(scaled_phi, scaled_phi))

    def sample(self, *shape: int, generator: torch.Generator) -> Tensor:
        """Draw weights with mean 0, (count, F, k).

        z - S^T (S z + e) with z ~ N(0, I) and e ~ N(0, I - S S^T) is pathwise conditioning (Wilson et al. 2020) with
        whitened noise. Its covariance is (I - S^T S)^2 + S^T (I - S S^T) S = I - S^T S.

        Args:
            *shape: The shape of the draws: count, F and k.
            generator: A generator on the CPU.
        """
        count, _, k = shape
        z = torch.randn(*shape, generator=generator, dtype=torch.float64).to(self.rows)
        covariance = torch.eye(len(self.rows), dtype=z.dtype, device=z.device) - self.rows @ self.rows.mT
        root = covariance_root(covariance)
        e = root @ torch.randn(count, root.shape[1], k, generator=generator, dtype=torch.float64).to(self.rows)
        return z - self.rows.mT @ (self.rows @ z + e)

    def draws_weights(self, num_points: int, count: int) -> bool:
        """Return whether draws of weights cost less than a root at n points.

        Args:
            num_points: The number n of points.
            count: The number of draws.
        """
        return max(count, len(self.rows)) < num_points

    def tensors(self) -> dict[str, Tensor]:
        """Return S (n, F) by name."""
        return {"rows": self.rows}

    def shapes(self, n: int, num_features: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of S by name.

        Args:
            n: The number of rows.
            num_features: The number F of features.
        """
        return {"rows": (n, num_features)}


WeightCovariance = FactorCovariance | RowCovariance
"""The posterior covariance of weights (F,)."""


def with_noise(values: Tensor, variance: Tensor, generator: torch.Generator) -> Tensor:
    """Return values (count, n, k) plus independent noise.

    Args:
        values: The values.
        variance: The variances of the noise, (n,) or ().
        generator: A generator on the CPU.
    """
    if not bool((variance > 0).any()):
        return values
    standard = torch.randn(*values.shape, generator=generator, dtype=torch.float64).to(values)
    deviation = variance.clamp_min(1e-300).sqrt()  # the root has no gradient at 0
    return values + deviation.expand(values.shape[1])[:, None] * standard


@dataclass(frozen=True, eq=False)
class LowRankPosterior(TermwisePosterior):
    """The process f = Phi w with the posterior of w, without the rows.

    Methods have the arguments of those of `Posterior`.

    Attributes:
        prior: The prior with the scaled features Phi (n, F).
        weights: The posterior mean of the weights, (F, k).
        uncertainty: The posterior covariance of the weights.
        derivative_column: The index of the column of the derivative. If None, the function is not differentiated.

    Examples:
        >>> from rfgp.blocks import Prior, WeightBlock
        >>> prior = Prior(weights=(WeightBlock(lambda x: x, num_features=1),))
        >>> two = torch.full((1, 1), 2.0).double()
        >>> posterior = LowRankPosterior(prior, weights=3 * two, uncertainty=FactorCovariance(two))
        >>> scaled_phi = posterior.project(two)
        >>> posterior.mean(scaled_phi).tolist(), posterior.variance(two, scaled_phi).tolist()  # 2 * 6 and 2^2 / 2^2
        ([[12.0]], [1.0])
    """

    weights: Tensor
    uncertainty: WeightCovariance
    derivative_column: int | None = None

    serialized_fields = ("weights",)

    @property
    def width(self) -> int:
        """The number F of features."""
        return len(self.weights)

    @property
    def factor(self) -> Tensor | None:
        """The Cholesky factor (F, F) of the precision of the weights.

        New rows are added to it. It is None if there are more features than rows.
        """
        return self.uncertainty.tensors().get("factor")

    def project(self, inputs: Tensor) -> Tensor:
        """Return the scaled features of n points, (n, F)."""
        return self.features(inputs)

    def features(self, inputs: Tensor) -> Tensor:
        """Return the scaled features of n points, (n, F).

        They are 0 for terms that are not predicted.

        Args:
            inputs: The inputs of the points, (n, D).
        """
        blocks, column = self.prior.weights, self.derivative_column
        if column is None:
            scaled_phi = self.prior.dense.scaled(inputs).double()
        else:
            scaled_phi = torch.cat([block.input_derivatives(inputs, column) for block in blocks], dim=1)
        return scaled_phi if self.terms is None else scaled_phi * self.prior.dense.of(self.terms).to(scaled_phi)

    def mean(self, projected: Tensor) -> Tensor:
        """Return the posterior mean, (n, k)."""
        return projected @ self.weights

    def variance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the marginal posterior variances, (n,), or (n, C) of C functions."""
        variance, missing = self.uncertainty.variance(projected), self.residual_variance(inputs, projected)
        return variance + (missing if variance.ndim == 1 else missing[..., None])

    def residual_variance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the variances (n,) or () that the features miss."""
        if self.derivative_column is not None:
            return self.missing_derivative_variances(inputs)
        return self._residual.residual_variance(inputs, projected)

    def between(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the covariance (n, n) of functions with features (n, F)."""
        return self.uncertainty.between(left, right)

    def residual_covariance(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return the covariance (n, n) that the features miss, or 0."""
        if self.derivative_column is not None:
            return self._missing_derivative_covariance(inputs)
        return self._residual.residual_covariance(inputs, projected)

    def root(self, inputs: Tensor, projected: Tensor) -> Tensor:
        """Return a matrix R (n, r) such that R R^T is the covariance."""
        if self._residual.has_residual or self.derivative_column is not None:
            return super().root(inputs, projected)
        return self.uncertainty.root(projected)

    def tensors(self) -> dict[str, Tensor]:
        """Return weights (F, k), and factor (F, F) or rows (n, F), by name."""
        return super().tensors() | self.uncertainty.tensors()

    def shapes(self, n: int, k: int) -> dict[str, Shape]:
        """Return the shapes of weights, and factor or rows, by name."""
        return {"weights": (self.prior.num_features, k), **self.uncertainty.shapes(n, self.prior.num_features)}

    @property
    def can_update(self) -> bool:
        """Whether rows can be added without the old ones, because the factor is known."""
        return self.factor is not None

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions by weights from their posterior, and by the kernel outside the box of a lattice.

        The variance that the modes of a lattice miss is excluded.

        Returns:
            A map of the inputs of n points to (count, n, k).

        Raises:
            InvalidArgumentError: If other features miss a part of the function.
        """
        if any(block.residual is not None and block.design is None for block in self.prior.weights):
            raise InvalidArgumentError(
                "This process has no functions to draw, because its residual is defined at given points only. Use "
                "predict(X).sample(), or InducingPoints(method='sor')."
            )
        functions = self._functions(count, generator)
        if not any(isinstance(block.design, LatticeDesign) for block in self.predicted):
            return functions
        outside = extensions(self.predicted, count, self.weights.shape[1], generator)
        return lambda inputs: functions(inputs) + outside(inputs)

    def sample_values(self, num_points: int, count: int, generator: torch.Generator) -> Functions | None:
        """Draw weights for values at n points, (count, b, k) at b of them.

        The result is None if a root costs less, or if features miss a part of the function that points share.
        """
        is_slope = self.derivative_column is not None  # beyond the rows, points share a part of it
        shares_residual = is_slope or any(
            b.residual is not None and not b.residual.is_noise for b in self._residual.blocks
        )
        if shares_residual or not self.uncertainty.draws_weights(num_points, count):
            return None
        functions = self._functions(count, generator)
        if not self._residual.has_residual:
            return functions
        return lambda x: with_noise(functions(x), self.residual_variance(x, self.project(x)), generator)

    def _sample_weights(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw weights from their posterior, (count, F, k)."""
        return self.weights + self.uncertainty.sample(count, *self.weights.shape, generator=generator)

    def _functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw the sums of the features, a map of inputs to (count, n, k)."""
        weights = self._sample_weights(count, generator)
        return lambda inputs: self.features(inputs) @ weights

    def differentiated(self, column: int) -> "LowRankPosterior":
        """Return the posterior of the derivative of the function in one column.

        Raises:
            InvalidArgumentError: If a term has no derivative, or its features miss a part of it.
        """
        for block in self.prior.weights:
            if block.design is not None:
                block.design.residual_derivative_variance(column, *block.parameters)
            elif block.residual is not None:
                raise InvalidArgumentError(
                    f"The features of the term {block.name!r} must not miss a part of its derivative, got some that "
                    "do. Use RandomFeatures(), EquispacedFourier() or InducingPoints(method='sor')."
                )
        return replace(self, derivative_column=column)

    def missing_derivative_variances(self, inputs: Tensor) -> Tensor:
        """Return the variances (n,) that features miss of the derivative of the predicted terms.

        Args:
            inputs: The inputs of n points, (n, D).
        """
        assert self.derivative_column is not None
        total = torch.zeros(len(inputs), dtype=torch.float64)
        for block, design in self._with_missing_parts:
            missing = design.residual_derivative_variance(self.derivative_column, *block.parameters, inputs=inputs)
            total = total + block.prior_variance * missing
        return total

    def _missing_derivative_covariance(self, inputs: Tensor) -> Tensor:
        """Return the covariance (n, n) that features miss of the derivative of the predicted terms.

        Missing modes are independent between points. Outside the box of the rows, residuals of points are correlated.
        """
        column, total = self.derivative_column, self.missing_derivative_variances(inputs).diag()
        assert column is not None
        for block, design in self._with_missing_parts:
            between = block.prior_variance * design.residual_derivative_covariance(inputs, column, *block.parameters)
            total = total + between - between.diagonal().diag()
        return total

    @property
    def _with_missing_parts(self) -> list[tuple[WeightBlock, Design]]:
        """The predicted terms on designs whose features miss a part, and these designs."""
        return [(b, b.design) for b in self.predicted if b.residual is not None and b.design is not None]

    @property
    def predicted(self) -> list[WeightBlock]:
        """The blocks of the predicted terms."""
        return [block for block in self.prior.weights if self.terms is None or block.name in self.terms]

    @property
    def _residual(self) -> Weights:
        """The weights with the residuals of the predicted terms."""
        return self.prior.dense.with_residuals_of(self.terms)
