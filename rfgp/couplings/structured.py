"""Structured directions in time m log d: products of sign flips and Hadamard matrices."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from rfgp.couplings.coupling import Coupling, Frequencies, WeightedDraws, check_gaussian, random_signs, uniform
from rfgp.couplings.orthogonal import check_simplex_dims
from rfgp.errors import InvalidArgumentError
from rfgp.spectra import Spectrum

# --- The Hadamard transform by two small matrix products --------------------------------------------------------------
#
# H of size D = p q, both powers of two, is the Kronecker product of H of size p and H of size q. So for x as a matrix X
# (p, q) the product is H_p X H_q. It takes 2 D (p + q) flops in two matrix products, which run at full speed. A
# butterfly has fewer flops, but each of its log D passes reads and writes all of x.

ENTRIES = 2**19
"""The number of entries of a block of rows, chosen so that it stays in the cache."""


def hadamard(size: int) -> Tensor:
    """Return the normalized Hadamard matrix (size, size), float64.

    It is formed by Sylvester's construction.

    Args:
        size: A power of two.

    Examples:
        >>> (hadamard(2) * 2**0.5).round().tolist()
        [[1.0, 1.0], [1.0, -1.0]]
    """
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / math.sqrt(size)


def flip_and_transform(
    x: Tensor,  # (n, D)
    flips: Tensor,  # (k, D)
) -> Tensor:  # (n, D)
    """Return H D_k ... H D_1 x for each row x, D_i = diag(flips_i).

    It is differentiable in x any number of times.

    Args:
        x: The rows, (n, D), D a power of two.
        flips: The signs of the k products, (k, D).

    Returns:
        The transformed rows, (n, D).

    Examples:
        >>> x = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
        >>> flip_and_transform(x, torch.ones(1, 4))
        tensor([[0.5000, 0.5000, 0.5000, 0.5000]])
    """
    out: Tensor = _Transform.apply(x, flips, False)
    return out


class _Transform(torch.autograd.Function):
    """The transform, or its transpose D_1 H ... D_k H.

    Each of them is the derivative of the other.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, flips: Tensor, transposed: bool) -> Tensor:
        ctx.flips, ctx.transposed = flips.to(x), transposed
        size = x.shape[1]
        half = (size.bit_length() - 1) // 2
        inner, outer = (hadamard(part).to(x) for part in (size >> half, 1 << half))
        out, rows = torch.empty_like(x, memory_format=torch.contiguous_format), max(1, ENTRIES // size)
        for start in range(0, len(x), rows):
            _block(x[start : start + rows], ctx.flips, inner, outer, out[start : start + rows], transposed)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return _Transform.apply(grads[0], ctx.flips, not ctx.transposed), None, None


def _block(x: Tensor, flips: Tensor, inner: Tensor, outer: Tensor, out: Tensor, transposed: bool) -> None:
    """Transform rows (r, D) into `out`. They stay in the cache."""
    shape = (len(x), len(outer), len(inner))
    left, right, many = torch.empty_like(out), torch.empty_like(out), outer.expand(shape[0], -1, -1)
    for k, flip in enumerate(flips.flip(0) if transposed else flips):
        source = x if k == 0 else left
        if not transposed:
            source = torch.mul(source, flip, out=left)
        torch.mm(source.reshape(-1, shape[2]), inner, out=right.view(-1, shape[2]))
        torch.bmm(many, right.view(shape), out=left.view(shape))
        if transposed:
            left.mul_(flip)
    out.copy_(left)


def next_power_of_two(d: int) -> int:
    """Return the smallest power of two that is at least d.

    Args:
        d: A positive integer.

    Examples:
        >>> next_power_of_two(5), next_power_of_two(8)
        (8, 8)
    """
    return 1 << (d - 1).bit_length()


# --- Structured frequencies: products of sign flips and Hadamard matrices, which are not formed -----------------------


class StructuredFrequencies(Frequencies):
    """m frequencies in blocks of D rows of S H D_k ... H D_1.

    D is the smallest power of two with D >= d. Inputs are padded by zeros. S is the identity or the simplex matrix.
    Each row has a length of its own.

    Args:
        signs: (blocks, k, D), +-1, int8.
        lengths: (m,).
        num_dims: d.
        simplex: Whether S is the simplex matrix. The default is False.

    Examples:
        >>> from rfgp import couplings
        >>> draw = couplings.StructuredFrequencies(torch.ones(1, 1, 2, dtype=torch.int8), torch.ones(2), 2)
        >>> (draw.dense() * 2**0.5).round().tolist()
        [[1.0, 1.0], [1.0, -1.0]]
    """

    def __init__(self, signs: Tensor, lengths: Tensor, num_dims: int, simplex: bool = False) -> None:
        self.signs, self.lengths, self.num_dims, self.simplex = signs, lengths, num_dims, simplex
        self._weights, self._antithetic = torch.ones_like(lengths), False

    @property
    def requires_grad(self) -> bool:
        """Always False, as signs are not learned."""
        return False

    @property
    def shape(self) -> tuple[int, int]:
        """(m, d)."""
        return len(self.lengths), self.num_dims

    def project(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, m)
        """Return x . omega_i, in the dtype and on the device of x.

        It takes time n m (p + q), with p q = D.

        Args:
            x: Inputs, (..., n, d).

        Returns:
            The inner products, (..., n, m).

        Raises:
            InvalidArgumentError: If x does not have d columns.
        """
        self.check_inputs(x)
        size, rows = self.signs.shape[2], x.reshape(-1, self.num_dims)
        padded = torch.nn.functional.pad(rows, (0, size - self.num_dims)) if size > self.num_dims else rows
        flips, constant = self.signs.to(x), not self.simplex and bool((self.lengths == self.lengths[0]).all())
        if constant:  # the first signs include the length, which saves a pass
            flips = torch.cat([flips[:, :1] * self.lengths[0].to(x), flips[:, 1:]], dim=1)
        blocks = [flip_and_transform(padded, flip) for flip in flips]
        if self.simplex:
            blocks = [times_simplex(block) for block in blocks]
        out = (blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1))[:, : len(self.lengths)]
        if not constant:
            out = out * self.lengths.to(x)
        return out.reshape(*x.shape[:-1], len(self.lengths))

    def adjoint(
        self,
        values: Tensor,  # (n, m)
    ) -> Tensor:  # (n, d)
        """Return sum_i values_i omega_i for each row, by the derivative of `project`.

        It is differentiable in the values.

        Args:
            values: The factors of the frequencies, (n, m).

        Returns:
            The sums, (n, d).
        """
        with torch.enable_grad():
            x = values.new_zeros(len(values), self.num_dims, requires_grad=True)
            (out,) = torch.autograd.grad(self.project(x), x, values, create_graph=values.requires_grad)
        return out

    def dense(self) -> Tensor:
        """Return the matrix (m, d), float64: the projections of the axes."""
        return self.project(torch.eye(self.num_dims, dtype=torch.float64)).mT.contiguous()


class _FastProducts:
    """The part of a coupling that draws blocks of rows of products H D_k ... H D_1, of independent lengths."""

    has_simplex: ClassVar[bool] = False
    """Whether the rows are multiplied by the simplex matrix."""

    def __init__(self, num_products: int = 3) -> None:
        if not isinstance(num_products, int) or isinstance(num_products, bool) or num_products not in (1, 2, 3):
            raise InvalidArgumentError(f"num_products must be 1, 2 or 3, got {num_products!r}.")
        self.num_products = num_products

    @property
    def is_biased(self) -> bool:
        """Always True."""
        return True

    def _draw(self: Any, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        check_gaussian(self, spectrum)
        size = next_power_of_two(d)
        bits = torch.randint(0, 2, (-(-m // size), self.num_products, size), generator=generator, dtype=torch.int8)
        lengths = self._lengths(m, size, spectrum, generator)
        return StructuredFrequencies(2 * bits - 1, lengths, d, self.has_simplex)

    def _lengths(self, m: int, size: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        """Draw the lengths of rows (m,) in D dimensions."""
        return spectrum.radial_quantile(uniform(m, generator), size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(num_products={self.num_products})"


class Structured(_FastProducts, WeightedDraws, Coupling):
    """Structured orthogonal random features (SORF): sqrt(D) H D_1 H D_2 H D_3.

    Source: Yu et al. (2016, Eq. 5).

    With D = p q, a row takes time m (p + q) instead of m d. The memory is a few m bytes instead of 8 m d. All norms are
    sqrt(D) before the padding is cut off, so the estimate of the Gaussian kernel is biased. At distance z the bias is
    at most 6 z / sqrt(D) for three products (Theorem 3 there), and far smaller in practice.

    Args:
        num_products: The number of products H D, 1, 2 or 3. Fewer are faster and more biased.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.Structured().sample(8, 3, seed=0)
        StructuredFrequencies(m=8, d=3)
    """

    def _lengths(self, m: int, size: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        return torch.full((m,), math.sqrt(size), dtype=torch.float64)


class FastOrthogonal(_FastProducts, WeightedDraws, Coupling):
    """Orthogonal features by fast products H D_3 H D_2 H D_1, with chi norms.

    Source: Reid et al. (2023, Table 3 and App. B.2.2).

    It differs from `Structured` by independent norms, chi with D degrees of freedom. They remove the leading term of
    the bias. For a row u and three products E (sqrt(D) u . z)^4 is

        3 z^4 (1 - 2 / D + 4 / D^2) - 8 sum_k z_k^4 / D^2.

    It is 3 z^4 (1 - 2 / D + 4 / D^2 - ...) for a uniform direction.

    With norms sqrt(D) the term -2 / D makes the bias about -z^4 / (4 D) exp(-z^2 / 2), as for ORF'. With chi norms it
    is -sum_k z_k^4 / (3 D^2) at small z.

    Args:
        num_products: The number of products H D, 1, 2 or 3. Fewer are faster and more biased.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.FastOrthogonal().sample(8, 3, seed=0)
        StructuredFrequencies(m=8, d=3)
    """


class FastSimplex(_FastProducts, WeightedDraws, Coupling):
    """Simplex features by fast products: the simplex matrix after products H D.

    Source: Reid et al. (2023, Section 4.2).

    The off-diagonal entries of the simplex matrix are equal, so its product takes time D. Norms are independent, chi
    with D degrees of freedom. The rotation is not Haar, so the kernel estimate is biased, by the order of SORF, 6 z /
    sqrt(D).

    Args:
        num_products: The number of products H D, 1, 2 or 3. Fewer are faster and more biased.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.FastSimplex().sample(8, 3, seed=0)
        StructuredFrequencies(m=8, d=3)
    """

    has_simplex: ClassVar[bool] = True

    def _draw(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        check_simplex_dims(d)
        return super()._draw(m, d, spectrum, generator)


def times_simplex(
    y: Tensor,  # (n, D)
) -> Tensor:  # (n, D)
    """Return S y for each row y, in time n D.

    S is the simplex matrix of `rfgp.couplings.orthogonal`.

    Args:
        y: The rows, (n, D).

    Returns:
        The products, (n, D).

    Examples:
        >>> from rfgp.couplings.orthogonal import simplex
        >>> bool(torch.allclose(times_simplex(torch.eye(4).double()), simplex(4).mT))
        True
    """
    d = y.shape[1]
    total = y[:, : d - 1].sum(1, keepdim=True)
    first = math.sqrt(d / (d - 1)) * y[:, : d - 1] - (math.sqrt(d) + 1) / (d - 1) ** 1.5 * total
    return torch.cat([first, total / math.sqrt(d - 1)], dim=1)


# --- Fastfood, a baseline whose frequencies are functions of few random numbers ---------------------------------------
#
# Products with its matrices take time m log d if they are not formed. Here they are formed, to compare accuracy.


class Fastfood(Coupling):
    """Fastfood (Le et al., 2013): blocks S H G P H B of D frequencies.

    D is the smallest power of two with D >= d. B has random signs, P is a permutation and G has normal entries. S gives
    each row a chi-distributed length with D degrees of freedom. For given B and P each row of H G P H B is an
    orthogonal transform of the diagonal of G. So its direction is uniform, and the estimate is unbiased. The rows of a
    block share that diagonal, which raises the variance above that of independent frequencies.

    Examples:
        >>> from rfgp import couplings
        >>> couplings.Fastfood().sample(8, 3, seed=0).shape
        (8, 3)
    """

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        check_gaussian(self, spectrum)
        size = next_power_of_two(d)
        blocks = torch.cat([self._directions(size, generator) for _ in range(-(-m // size))])[:m, :d]
        return blocks * spectrum.radial_quantile(uniform(m, generator), size)[:, None]

    @staticmethod
    def _directions(size: int, generator: torch.Generator) -> Tensor:
        """Return the unit rows (D, D) of a block."""
        h = hadamard(size)
        signs = random_signs(size, generator)[:, 0]
        order = torch.randperm(size, generator=generator)
        normal = torch.randn(size, generator=generator, dtype=torch.float64)
        rows: Tensor = math.sqrt(size) * ((h * normal) @ (h * signs)[order]) / normal.norm()
        return rows
