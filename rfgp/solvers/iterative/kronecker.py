"""Products of two kernels at rows on a grid, by products with two small matrices.

Let the columns of the kernels have N_1 and N_2 distinct positions. Then K = R (K_1 kron K_2) R^T, where R selects the
cells of the grid with rows. With K_s = L_s L_s^T it is H H^T, H = R (L_1 kron L_2). A product takes
O(N_1 N_2 (N_1 + N_2)) operations. Cells may be missing or have several rows.

The preconditioner combines the noise with the largest eigenvalues of K_1 kron K_2 and their eigenvectors at the rows.

The coordinates w ~ N(0, I) of f on the grid are projected to a point x by the Kronecker product of k_1(x, U_1) L_1^-T
and k_2(x, U_2) L_2^-T. Points off the grid have a conditional variance.

Source: "latent Kronecker" structure, Lin et al. (2024), "Scalable Gaussian processes with latent Kronecker structure".
"""

from collections.abc import Callable, Sequence
from functools import cached_property

import torch
from torch import Tensor

from rfgp.blocks import KernelBlock
from rfgp.blocks.kernel import JITTER, MAX_CELLS
from rfgp.counts import counted
from rfgp.errors import InvalidArgumentError
from rfgp.linalg import cholesky, half_solve
from rfgp.solvers.iterative.operator import CGOperator, Preconditioner, dense_columns_except
from rfgp.solvers.iterative.parts import Part
from rfgp.solvers.iterative.preconditioners import LowRankPreconditioner, nystrom
from rfgp.solvers.iterative.role import Matrix, Term, TermProjection
from rfgp.sparse import KroneckerRows, on_grid

MAX_RANK = 512
"""The maximum number of eigenvectors of a preconditioner."""
MIN_SIGNAL = 0.5
"""The minimum eigenvalue, relative to the noise, whose eigenvector is in a preconditioner."""
MAX_DECOMPOSED = 2048
"""The maximum number of positions of one side whose eigenvectors are computed."""


class KroneckerPart(Part):
    """H = R (L_1 kron L_2).

    Methods have the arguments of those of `Part`.

    Args:
        roots: The roots L_1 (N_1, N_1) and L_2 (N_2, N_2).
        codes: The index of the position of each row on both sides, (n,) each.

    Examples:
        >>> roots, codes = [torch.eye(1).double(), torch.eye(2).double()], [torch.tensor([0]), torch.tensor([1])]
        >>> KroneckerPart(roots, codes).root_times(torch.tensor([[3.0], [4.0]]).double()).tolist()
        [[4.0]]
    """

    def __init__(self, roots: Sequence[Tensor], codes: Sequence[Tensor]) -> None:
        (self._first, self._second), (self._rows, self._columns) = roots, codes
        self._shape = len(self._first), len(self._second)
        self.num_columns = self._shape[0] * self._shape[1]

    @cached_property
    def _grams(self) -> tuple[Tensor, Tensor]:
        """K_1 (N_1, N_1) and K_2 (N_2, N_2)."""
        return self._first @ self._first.mT, self._second @ self._second.mT

    def root_times(self, u: Tensor) -> Tensor:
        """Return H u, (n, p)."""
        cells = on_grid(self._first.to(u), self._second.to(u), u.reshape(*self._shape, -1))
        return cells[self._rows, self._columns]

    def transposed_root_times(self, v: Tensor) -> Tensor:
        """Return H^T v, (N_1 N_2, p)."""
        cells = on_grid(self._first.mT.to(v), self._second.mT.to(v), self.scattered(v))
        return cells.reshape(self.num_columns, -1)

    def times(self, v: Tensor) -> Tensor:
        """Return H H^T v, (n, p), through K_1 and K_2."""
        return on_grid(*self._grams, self.scattered(v))[self._rows, self._columns]

    def scattered(self, v: Tensor) -> Tensor:
        """Return R^T v on the grid, (N_1, N_2, p).

        Args:
            v: The vectors v, (n, p).
        """
        cells = v.new_zeros(self.num_columns, v.shape[1])
        cells.index_add_(0, self._rows * self._shape[1] + self._columns, v)
        return cells.reshape(*self._shape, -1)


class KroneckerTerm(Term):
    """A product of two covariances at rows on a grid.

    Its coordinates are w, (N_1 N_2,). Methods have the arguments of those of `Term`.

    Args:
        block: The block, with gradients.
        inputs: The inputs of the rows, (n, D).

    Raises:
        InvalidArgumentError: If the grid has too many cells.
    """

    dtype = torch.float32

    def __init__(self, block: KernelBlock, inputs: Tensor) -> None:
        assert block.sides is not None
        self.name, self._block, self._sides = block.name, block, block.sides
        pairs = [side.distinct(inputs) for side in block.sides]
        self._positions, self._codes = [x for x, _ in pairs], [codes for _, codes in pairs]
        sizes = [len(x) for x in self._positions]
        if sizes[0] * sizes[1] > MAX_CELLS:
            raise InvalidArgumentError(
                f"The term {block.name!r} must have at most {MAX_CELLS:,} pairs of distinct positions with Exact(), "
                f"got {sizes[0]:,} x {sizes[1]:,} at {counted(len(inputs), 'row')}. Round its columns to fewer "
                "distinct values, or use InducingPoints()."
            )
        self.width = sum(sizes)
        self._kernels = [
            side.covariance(x, x, *block.parameters).double()
            for side, x in zip(self._sides, self._positions, strict=True)
        ]

    @cached_property
    def _roots(self) -> list[Tensor]:
        """L_1 (N_1, N_1) and L_2 (N_2, N_2)."""
        return [cholesky(k.detach(), "The kernel matrix of positions", expected=JITTER) for k in self._kernels]

    @cached_property
    def part(self) -> KroneckerPart:
        """H of the rows."""
        return KroneckerPart(self._roots, self._codes)

    def precondition(self, operator: CGOperator) -> Preconditioner:
        """Return a preconditioner of the noise and the largest eigenvectors of the grid.

        Other terms of few columns are included. Sides of more than 2,048 positions have a Nystrom preconditioner
        instead.
        """
        if max(map(len, self._kernels)) > MAX_DECOMPOSED:
            return nystrom(operator)
        columns = torch.cat([self._eigenvectors(operator), dense_columns_except(operator, self.part)], dim=1)
        return LowRankPreconditioner.of_features(columns / operator.deviation[:, None])

    def _eigenvectors(self, operator: CGOperator) -> Tensor:
        """Return eigenvectors of the grid at the rows times the roots of their eigenvalues, (n, r)."""
        (first, left), (second, right) = (torch.linalg.eigh(kernel.detach()) for kernel in self._kernels)
        values = (first[:, None] * second).flatten()
        occupied_fraction = len(operator) / len(values)
        count = int((occupied_fraction * values > MIN_SIGNAL * operator.noise_diag.median()).sum())
        rank = min(MAX_RANK, len(operator) // 4, count)
        indices = torch.topk(values, rank).indices
        rows, columns = indices // len(second), indices % len(second)
        vectors: Tensor = left[:, rows][self._codes[0]] * right[:, columns][self._codes[1]]
        return torch.mul(vectors, values[indices].sqrt())

    def project(self, inputs: Tensor) -> TermProjection:
        """Return X of n points, and the conditional variances (n,) given the coordinates."""
        with torch.no_grad():
            matrix = self._project(inputs)
            return TermProjection(matrix, (self._block.diagonal(inputs) - matrix.squares()).clamp_min(0))

    def _project(self, inputs: Tensor) -> KroneckerRows:
        factors, codes = [], []
        for side, grid, root in zip(self._sides, self._positions, self._roots, strict=True):
            positions, indices = side.distinct(inputs)
            cross = side.covariance(grid, positions, *self._block.parameters).double()
            factors.append(half_solve(root, cross).mT)
            codes.append(indices)
        return KroneckerRows(*factors, *codes)

    def project_jointly(self, inputs: Tensor) -> tuple[Matrix, Tensor]:
        """Return X of n points, and the covariance (n, n) given the coordinates."""
        with torch.no_grad():
            matrix = self._project(inputs)
            return matrix, self._block.kernel(inputs, inputs) - self.covariance(matrix)

    def cross(self, matrix: Matrix) -> Tensor:
        """Return H X^T, (rows, n)."""
        out: Tensor = matrix.between(*self._roots, *self._codes)
        return out

    def covariance(self, matrix: Matrix) -> Tensor:
        """Return X X^T, (n, n)."""
        out: Tensor = matrix.between(*matrix)
        return out

    def variance(self, inputs: Tensor, projection: TermProjection) -> Tensor:
        """Return the prior variances (n,) of the projections of n points."""
        variance: Tensor = projection.matrix.squares()
        return variance

    def coordinates(self, coefficients: Tensor) -> Tensor:
        """Return H^T a, (N_1 N_2, p), in the precision of a."""
        return self.part.transposed_root_times(coefficients)

    def score(self, vectors: Tensor, signs: Tensor) -> Tensor:
        """Return a 0-d tensor with the gradient in K_1 and K_2.

        With V_j = R^T v_j on the grid it is sum_j signs_j tr(V_j^T dK_1 V_j K_2) / 2, and the same form for dK_2.
        """
        first, second = self._kernels
        cells = self.part.scattered(vectors)
        signed = cells * signs
        in_first = torch.einsum("ajp,bjp->ab", signed, second.detach() @ cells)
        by_first = (first.detach() @ cells.reshape(len(first), -1)).reshape(cells.shape)
        in_second = torch.einsum("iap,ibp->ab", signed, by_first)
        return 0.5 * ((first * in_first).sum() + (second * in_second).sum())

    def functions(self, coordinates: Tensor) -> Callable[[Tensor], Tensor]:
        """Raise an error, because there are no functions off the grid.

        Coordinates (N_1 N_2, p) do not define them.

        Raises:
            InvalidArgumentError: Always.
        """
        raise InvalidArgumentError(
            f"The term {self.name!r} is exact and has no functions to draw, because it is defined at given "
            "points only. Use predict(X).sample() instead."
        )
