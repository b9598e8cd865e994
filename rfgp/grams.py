"""Exact covariance matrices and their gradients, with few passes over the matrix."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rfgp.spectra import Spectrum

MIN_DISTANCE = 1e-4
"""The distance below which pairs are summed separately if the slope at 0 is infinite, in standard deviations."""
MAX_DISTANCE = 1e5
"""The largest distance from the mean, in lengthscales, without cancellation in matrix products."""

PullBack = Callable[[Tensor], Sequence[Tensor | None]]
"""Maps the symmetric gradient (n, n) of a scalar in a covariance to those in several tensors, in their shapes."""


@dataclass(frozen=True, eq=False)
class Gram:
    """A covariance matrix of points, and its gradient in closed form.

    Attributes:
        covariance: The covariance (n, n), without gradients.
        tensors: The tensors (...) that it depends on, with gradients.
        pull_back: Maps the symmetric gradient (n, n) of a scalar in the covariance to those in the tensors.

    Examples:
        >>> Gram.of_features(torch.ones(2, 3)).covariance.tolist()
        [[3.0, 3.0], [3.0, 3.0]]
    """

    covariance: Tensor
    tensors: tuple[Tensor, ...]
    pull_back: PullBack

    @classmethod
    def of(cls, covariance: Tensor) -> Self:
        """Return a covariance (n, n) whose gradient is left to autograd."""
        return cls(covariance.detach(), (covariance,), lambda gradient: (gradient,))

    @classmethod
    def of_features(cls, phi: Tensor) -> Self:
        """Return Phi Phi^T of features (n, F). Its gradient in Phi is 2 G Phi."""
        known = phi.detach()
        return cls(known @ known.mT, (phi,), lambda gradient: (2 * (gradient @ known),))

    @classmethod
    def of_design(cls, design: Tensor, scale: Tensor, variance: Tensor) -> Self:
        """Return v D S^2 D^T, with gradients in S and v.

        Args:
            design: The design D, (n, F), without gradients.
            scale: The diagonal of S, (F,).
            variance: The variance v, 0-d.
        """
        known, unit = scale.detach(), variance.detach()

        def pull_back(gradient: Tensor) -> tuple[Tensor, Tensor]:
            squares = (design * (gradient @ design)).sum(0)
            return 2 * unit * squares * known, squares @ known.square()

        return cls((design * (unit * known.square())) @ design.mT, (scale, variance), pull_back)

    @classmethod
    def total(cls, parts: "Sequence[Gram]") -> "Gram":
        """Return the sum of covariances of the same points, at least one."""
        if len(parts) == 1:
            return parts[0]
        covariance = parts[0].covariance + parts[1].covariance
        for part in parts[2:]:
            covariance.add_(part.covariance)
        tensors = tuple(tensor for part in parts for tensor in part.tensors)
        return cls(covariance, tensors, lambda gradient: [g for part in parts for g in part.pull_back(gradient)])

    def double(self) -> "Gram":
        """Return the gram in float64."""
        dtype = self.covariance.dtype
        if dtype == torch.float64:
            return self
        return Gram(self.covariance.double(), self.tensors, lambda gradient: self.pull_back(gradient.to(dtype)))


class _Covariance(torch.autograd.Function):
    """The covariance of a `Gram` as a function of its tensors."""

    @staticmethod
    def forward(ctx: Any, gram: Gram, *tensors: Tensor) -> Tensor:
        ctx.pull_back = gram.pull_back
        ctx.save_for_backward(gram.covariance)
        return gram.covariance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors  # raises an error if the covariance was changed in place
        return None, *ctx.pull_back(0.5 * (grads[0] + grads[0].mT))


# --- Geometric anisotropy: the axes of the lengthscales are rotated against two columns -------------------------------

THREE_DIRECTIONS = [[1.0, -0.5, -0.5], [0.0, math.sqrt(0.75), -math.sqrt(0.75)]]
"""Three unit vectors u_k of the plane, in columns, with sum_k u_k u_k^T = 3 / 2 I."""


def rotated(
    x: Tensor,  # (..., 2)
    angle: Tensor | None = None,  # ()
) -> Tensor:  # (..., 2)
    """Return the coordinates of points along axes that are rotated counterclockwise.

    Args:
        x: The points.
        angle: The angle of the first axis, in radians. If None, the points are returned.

    Examples:
        >>> (rotated(torch.tensor([[0.0, 2.0]]), torch.tensor(math.pi / 2)).round() + 0.0).tolist()
        [[2.0, 0.0]]
    """
    return x if angle is None else x @ _axes(angle).to(x).mT


def _axes(angle: Tensor) -> Tensor:
    """Return the unit vectors of rotated axes in rows, (2, 2)."""
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([cos, sin, -sin, cos]).reshape(2, 2)


def in_frame(
    x: Tensor,  # (n, 2)
    lengthscale: Tensor,  # (2,)
    angle: Tensor | None = None,  # ()
) -> tuple[Tensor, Tensor]:
    """Return points whose distance in lengthscales is that of x in rotated ones, with gradients in lengthscales.

    Let z be the rows along the axes in lengthscales, at the present parameters, and t_k = sqrt(2 / 3) u_k the three
    directions. For other parameters the squared length of z is z^T B z = sum_k w_k (t_k . z)^2, with B = I and w = 1 at
    the present ones and w_k = 2 u_k^T B u_k - tr(B) / 2, which is linear in B. So the result is t_k . z in the
    lengthscales w_k^(-1/2): code with a gradient for each lengthscale has one in the angle, too.

    Args:
        x: The points.
        lengthscale: The lengthscales along the two axes.
        angle: The angle of the first axis, in radians. If None, the arguments are returned.

    Returns:
        The points (n, 3), without gradients in parameters, and lengthscales (3,) of 1.

    Examples:
        >>> x, lengthscale = torch.tensor([[0.0, 0.0], [1.0, 1.0]]), torch.tensor([2.0, 0.5])
        >>> points, ones = in_frame(x, lengthscale, torch.tensor(math.pi / 4))
        >>> round((points[1] / ones).norm().item(), 4)  # sqrt(2) / 2
        0.7071
    """
    if angle is None:
        return x, lengthscale
    metric = _axes(angle).to(lengthscale) / lengthscale[:, None]
    known = metric.detach()
    ratio, directions = metric @ known.inverse(), lengthscale.new_tensor(THREE_DIRECTIONS)
    weights = 2 * (ratio @ directions).square().sum(0) - ratio.square().sum() / 2
    return x @ (math.sqrt(2 / 3) * known.mT @ directions).to(x), weights.rsqrt()


# --- Gram matrices of stationary kernels ------------------------------------------------------------------------------


def stationary_gram(
    spectrum: Spectrum,
    x: Tensor,  # (n, d)
    lengthscale: Tensor,  # () or (d,)
    variance: Tensor,  # ()
) -> Gram | None:
    """Return v times the exact kernel of points x / lengthscale.

    The result is None if there is no closed form.

    Let z = x / l, and W the gradient in the kernel times its derivative in |z_i - z_j|^2. The gradient in l_c is

        -(2 / l_c) sum_ij W_ij (z_ic - z_jc)^2 = -(4 / l_c) (sum_i z_ic^2 (W 1)_i - sum_i z_ic (W z)_ic).

    This is one product of (n, n) by (n, d + 1). Autograd takes twenty passes over (n, n). If the slope at 0 is
    infinite, the difference would cancel for close pairs, which are summed separately. There is no closed form for
    spectra without a slope, and for rows very far from the mean.

    Args:
        spectrum: The spectrum of the kernel at unit scale.
        x: The points.
        lengthscale: The lengthscale of each coordinate, or of all.
        variance: The kernel v > 0 at distance 0.

    Examples:
        >>> from rfgp.spectra import Gaussian
        >>> x, one = torch.zeros(2, 1), torch.ones(())
        >>> stationary_gram(Gaussian(), x, one, 3 * one).covariance.tolist()
        [[3.0, 3.0], [3.0, 3.0]]
    """
    z = (x / lengthscale).detach()
    z = z - z.mean(0)
    if not spectrum.has_slope or not float(z.abs().amax()) <= MAX_DISTANCE:  # also true for NaN
        return None
    kernel, slope = spectrum.gram_and_slope(z)
    scale = float(variance.detach())
    kernel.mul_(scale)
    slope.fill_diagonal_(0)  # the distance of a row to itself is exactly 0

    def pull_back(gradient: Tensor) -> tuple[Tensor, Tensor]:
        gradient = gradient if gradient.is_contiguous() else gradient.mT  # use row-major layout everywhere
        pull = gradient * slope
        apart = _of_near_pairs(z, slope, pull) if spectrum.is_steep else 0.0
        product = pull @ torch.cat([z, torch.ones_like(z[:, :1])], dim=1)
        around = (z.square() * product[:, -1:] - z * product[:, :-1]).sum(0)
        total = -2 * scale * (2 * around + apart) / lengthscale.detach()
        in_variance = torch.vdot(gradient.reshape(-1), kernel.reshape(-1)) / scale
        return total if lengthscale.ndim else total.sum(), in_variance

    return Gram(kernel, (lengthscale, variance), pull_back)


def _of_near_pairs(z: Tensor, slope: Tensor, pull: Tensor) -> Tensor:
    """Return sum_ij W_ij (z_i - z_j)^2 (d,) over close pairs, where -slope is large, and set their W to 0."""
    spread = (z - z.mean(0)).square().sum(1).mean().sqrt()
    i, j = (slope < -0.5 / (MIN_DISTANCE * spread)).nonzero(as_tuple=True)
    if not len(i):
        return torch.zeros_like(z[0])
    weights = pull[i, j]
    pull[i, j] = 0
    return torch.stack([weights @ (column[i] - column[j]).square() for column in z.unbind(1)])


def scaled_gram(
    spectrum: Spectrum,
    x: Tensor,  # (n, d)
    lengthscale: Tensor,  # () or (d,)
    variance: Tensor,  # ()
) -> Tensor:  # (n, n)
    """Return the covariance of `stationary_gram`, differentiable once.

    Args:
        spectrum: The spectrum of the kernel at unit scale.
        x: The points, (n, d).
        lengthscale: The lengthscale of each coordinate, (d,), or of all, 0-d.
        variance: The kernel at distance 0, 0-d.

    Examples:
        >>> from rfgp.spectra import Gaussian
        >>> scaled_gram(Gaussian(), torch.zeros(1, 1), torch.ones(()), torch.tensor(2.0)).item()
        2.0
    """
    gram = stationary_gram(spectrum, x, lengthscale, variance) if lengthscale.requires_grad else None
    if gram is None:
        scaled = x / lengthscale
        return variance * spectrum.kernel_between(scaled, scaled)
    out: Tensor = _Covariance.apply(gram, *gram.tensors)
    return out
