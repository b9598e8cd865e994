"""Structured frequencies: products of sign flips and Hadamard matrices, never formed."""

import math

import torch
from torch import Tensor

from rfgp.couplings.coupling import Coupling, uniform
from rfgp.couplings.frequencies import Frequencies
from rfgp.couplings.hadamard import flip_and_transform, next_power_of_two
from rfgp.errors import InvalidArgumentError
from rfgp.spectra import Gaussian, Spectrum


class StructuredFrequencies(Frequencies):
    """m frequencies as blocks of rows of S H D_k ... H D_1, D rows each, D the power of two from d on.

    Inputs are padded by zeros. S is the identity or the simplex matrix; each row has its length.

    Args:
        signs: (blocks, k, D), +-1, int8.
        lengths: (m,).
        num_dims: d.
        simplex: Whether S is the simplex matrix.
    """

    def __init__(self, signs: Tensor, lengths: Tensor, num_dims: int, simplex: bool = False) -> None:
        self.signs, self.lengths, self.num_dims, self.simplex = signs, lengths, num_dims, simplex

    @property
    def weights(self) -> Tensor:
        """Ones (m,)."""
        return torch.ones_like(self.lengths)

    @property
    def antithetic(self) -> bool:
        """False."""
        return False

    @property
    def requires_grad(self) -> bool:
        """False: signs are not learned."""
        return False

    @property
    def shape(self) -> tuple[int, int]:
        """(m, d)."""
        return len(self.lengths), self.num_dims

    def project(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, m)
        """Return x . omega_i in time n m (p + q), p q = D, in the dtype and on the device of x.

        Raises:
            InvalidArgumentError: x has another number of columns.
        """
        self.check_inputs(x)
        size, rows = self.signs.shape[2], x.reshape(-1, self.num_dims)
        padded = torch.nn.functional.pad(rows, (0, size - self.num_dims)) if size > self.num_dims else rows
        flips, constant = self.signs.to(x), not self.simplex and bool((self.lengths == self.lengths[0]).all())
        if constant:  # the length goes with the first signs, which saves a pass
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
        """Return sum_i values_i omega_i for each row, by the derivative of `project`; differentiable in the values."""
        with torch.enable_grad():
            x = values.new_zeros(len(values), self.num_dims, requires_grad=True)
            (out,) = torch.autograd.grad(self.project(x), x, values, create_graph=values.requires_grad)
        return out

    def dense(self) -> Tensor:
        """Return the matrix (m, d), float64: the projections of the axes."""
        return self.project(torch.eye(self.num_dims, dtype=torch.float64)).mT.contiguous()


class Structured(Coupling):
    """Structured orthogonal random features, SORF (Yu et al. 2016, Eq. 5): sqrt(D) H D_1 H D_2 H D_3.

    With D = p q, time m (p + q) a row instead of m d, and a few m bytes of memory instead of 8 m d. All norms are
    sqrt(D) (before the padding is cut off), so the Gaussian kernel is estimated with a bias, at most 6 z / sqrt(D) at
    distance z for three products (Theorem 3 there); in practice it is far smaller.

    Args:
        num_products: 1, 2 or 3 products H D; fewer are faster and more biased.
    """

    def __init__(self, num_products: int = 3) -> None:
        self.num_products = _check_products(num_products)

    @property
    def is_biased(self) -> bool:
        """True."""
        return True

    def _draw(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        signs = _signs(self, self.num_products, m, d, spectrum, generator)
        return StructuredFrequencies(signs, torch.full((m,), math.sqrt(signs.shape[2]), dtype=torch.float64), d)

    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        return self._draw(m, d, spectrum, generator).dense()

    def __repr__(self) -> str:
        return f"Structured(num_products={self.num_products})"


class FastOrthogonal(Coupling):
    """Orthogonal features by fast products (Reid et al. 2023, Table 3, App. B.2.2): chi norms, H D_3 H D_2 H D_1.

    As `Structured`, but norms are independent, chi with D degrees. That takes the leading term of the bias away: with
    three products E (sqrt(D) u . z)^4 of a row u is 3 z^4 (1 - 2 / D + 4 / D^2) - 8 sum_k z_k^4 / D^2, that of a
    uniform direction 3 z^4 (1 - 2 / D + 4 / D^2 - ...). With norms sqrt(D) the -2 / D stays and makes the bias about
    -z^4 / (4 D) exp(-z^2 / 2), as for ORF'; chi norms turn it into -sum_k z_k^4 / (3 D^2) at small z.

    Args:
        num_products: 1, 2 or 3 products H D; fewer are faster and more biased.
    """

    def __init__(self, num_products: int = 3) -> None:
        self.num_products = _check_products(num_products)

    @property
    def is_biased(self) -> bool:
        """True."""
        return True

    def _draw(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        signs = _signs(self, self.num_products, m, d, spectrum, generator)
        return StructuredFrequencies(signs, _chi_norms(m, signs, spectrum, generator), d)

    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        return self._draw(m, d, spectrum, generator).dense()

    def __repr__(self) -> str:
        return f"FastOrthogonal(num_products={self.num_products})"


class FastSimplex(Coupling):
    """Simplex features by fast products (Reid et al. 2023, section 4.2): the simplex matrix after products H D.

    The simplex matrix has one number off its diagonal, so its product takes time D. Norms are independent, chi with D
    degrees. The rotation is not Haar, so the kernel is estimated with a bias of the order of that of SORF, 6 z /
    sqrt(D).

    Args:
        num_products: 1, 2 or 3 products H D.
    """

    def __init__(self, num_products: int = 3) -> None:
        self.num_products = _check_products(num_products)

    @property
    def is_biased(self) -> bool:
        """True."""
        return True

    def _draw(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        signs = _signs(self, self.num_products, m, d, spectrum, generator)
        if d < 2:
            raise InvalidArgumentError("A simplex needs at least two dimensions.")
        return StructuredFrequencies(signs, _chi_norms(m, signs, spectrum, generator), d, simplex=True)

    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        return self._draw(m, d, spectrum, generator).dense()

    def __repr__(self) -> str:
        return f"FastSimplex(num_products={self.num_products})"


def times_simplex(
    y: Tensor,  # (n, D)
) -> Tensor:  # (n, D)
    """Return S y for each row, S the simplex matrix of `rfgp.couplings.simplex`, in time n D."""
    d = y.shape[1]
    total = y[:, : d - 1].sum(1, keepdim=True)
    first = math.sqrt(d / (d - 1)) * y[:, : d - 1] - (math.sqrt(d) + 1) / (d - 1) ** 1.5 * total
    return torch.cat([first, total / math.sqrt(d - 1)], dim=1)


def _signs(
    coupling: Coupling, num_products: int, m: int, d: int, spectrum: Spectrum, generator: torch.Generator
) -> Tensor:
    if not isinstance(spectrum, Gaussian):
        raise InvalidArgumentError(f"{coupling!r} is for the Gaussian spectrum only, not {spectrum!r}.")
    size = next_power_of_two(d)
    bits = torch.randint(0, 2, (-(-m // size), num_products, size), generator=generator, dtype=torch.int8)
    return 2 * bits - 1


def _chi_norms(m: int, signs: Tensor, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
    return spectrum.radial_quantile(uniform(m, generator), signs.shape[2])


def _check_products(num_products: int) -> int:
    if not isinstance(num_products, int) or isinstance(num_products, bool) or num_products not in (1, 2, 3):
        raise InvalidArgumentError(f"num_products must be 1, 2 or 3, got {num_products!r}.")
    return num_products
