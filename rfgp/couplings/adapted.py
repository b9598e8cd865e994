"""Frequencies and weights optimized for given rows."""

from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from rfgp.couplings.coupling import Coupling, Frequencies, WeightedDraws
from rfgp.couplings.energy import Energy
from rfgp.errors import InvalidArgumentError
from rfgp.linalg import cholesky, finite_rows
from rfgp.messages import counted
from rfgp.spectra import Gaussian, Spectrum

MAX_ROWS = 512
"""The largest number of rows whose pairs determine the weights. More rows are thinned evenly."""
MAX_OPTIMIZED = 512
"""The largest number m of frequencies that are optimized. A step takes time m^2."""
STEPS, RATE = 200, 0.05
"""The steps of Adam on the closed form, and its first rate, which decays along a cosine."""
SCALES = (0.1, 0.3, 1.0)
"""The factors t of the covariance of row differences. Small ones emphasize near pairs."""
_SUM_WEIGHT = 100.0
"""The weight, in the least squares, of the condition that weights add up to one."""
_RIDGE = 1e-10
"""The ridge that is added to the normal equations."""
_MIN_WEIGHT = 1e-6
"""The smallest first weight relative to 1 / m, so that its logarithm is finite."""
MIN_SQUARED_DISTANCE = 1e-3
"""The least mean squared distance of two rows, in squared lengthscales, at which frequencies are optimized."""


class DataAdapted(WeightedDraws, Coupling):
    """The weighted energy coupling, optimized for given rows.

    First the frequencies omega_i and weights a_i minimize an expected squared error of the kernel. Its expectation is
    over differences x - z ~ N(0, t S), with S twice the covariance of the rows. It has a closed form for the Gaussian
    kernel. It is divided by the variance of one cosine and averaged over t = 0.1, 0.3 and 1. Then the weights are
    fitted to the pairs of rows. Subject to a >= 0 and sum a = 1 they minimize

        mean over (x, z) of (sum_i a_i cos(omega_i . (x - z)) - k(x, z))^2,

    which is a quadratic program in m unknowns. The kernel estimate depends on the rows, so it is biased.
    `rfgp.theory.pairs_error` measures the bias. Far from the rows the error is not controlled.

    Args:
        rows: (n, d), divided by the lengthscale. If there are more than 512 rows, 512 evenly spaced ones are used. If
            None, the coupling is `Energy(weighted=True)`.
        optimize_frequencies: Whether frequencies are optimized, the default. This takes 200 steps, about 5 s for 512
            frequencies on one core. Otherwise, and for more frequencies or other spectra than the Gaussian one, only
            the weights are.

    Source: ours. Kernel quadrature with optimized weights is due to Bach (2017) and Belhadji et al. (2019). Here it is
    used for the pairs of given rows.

    Raises:
        InvalidArgumentError: If the rows are not a finite matrix.

    Examples:
        >>> import numpy as np
        >>> from rfgp import couplings
        >>> rows = np.linspace(-1, 1, 20)[:, None]
        >>> draw = couplings.DataAdapted(rows).sample(8, 1, seed=0)
        >>> draw, round(float(draw.weights.mean()), 6)
        (Frequencies(m=8, d=1), 1.0)
    """

    def __init__(self, rows: Any = None, optimize_frequencies: bool = True) -> None:
        self.rows = None if rows is None else _thinned(finite_rows(rows)).tolist()
        self.optimize_frequencies = bool(optimize_frequencies)

    @property
    def is_biased(self) -> bool:
        """Whether the coupling is optimized for rows."""
        return self.rows is not None

    def _draw(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        base = Energy(weighted=True).sample(m, d, spectrum=spectrum, generator=generator)
        if self.rows is None:
            return base
        x = torch.tensor(self.rows, dtype=torch.float64)
        if x.shape[1] != d:
            raise InvalidArgumentError(
                f"num_dims must be the {counted(x.shape[1], 'column')} of the rows of DataAdapted, got {d}."
            )
        omega = base.dense()
        if self.optimize_frequencies and m <= MAX_OPTIMIZED and isinstance(spectrum, Gaussian):
            omega = optimized_frequencies(omega, base.weights / m, x)
        return Frequencies(omega, m * fitted_weights(omega, x, spectrum))

    def __repr__(self) -> str:
        shown = ["rows=..."] * (self.rows is not None) + ["optimize_frequencies=False"] * (
            not self.optimize_frequencies
        )
        return f"DataAdapted({', '.join(shown)})"


def fitted_weights(
    omega: Tensor,  # (m, d)
    x: Tensor,  # (n, d)
    spectrum: Spectrum,
) -> Tensor:  # (m,)
    """Fit nonnegative weights with sum 1 to the kernel over all pairs of rows.

    Let c_i and s_i be the cosines and sines of omega_i at the rows. The normal equations have the matrix G and the
    right side b.

        G_ij = [(c_i.c_j)^2 + (s_i.s_j)^2 + (c_i.s_j)^2 + (s_i.c_j)^2] / n^2,
        b_i = (c_i^T K c_i + s_i^T K s_i) / n^2.

    G_ij is the mean over pairs of cos(omega_i . (x - z)) cos(omega_j . (x - z)), and b_i that of cos(omega_i . (x - z))
    k.

    Args:
        omega: The frequencies, (m, d).
        x: The rows, (n, d).
        spectrum: The spectrum of the kernel.

    Returns:
        The weights, (m,).

    Examples:
        >>> from rfgp import spectra
        >>> omega, x = torch.tensor([[0.5], [1.0], [1.5]]).double(), torch.linspace(0, 1, 9)[:, None].double()
        >>> weights = fitted_weights(omega, x, spectra.Gaussian())
        >>> bool((weights >= 0).all()), round(float(weights.sum()), 6)
        (True, 1.0)
    """
    angles = x @ omega.mT
    c, s = angles.cos(), angles.sin()
    across = (c.mT @ s).square()
    squares = ((c.mT @ c).square() + (s.mT @ s).square() + across + across.mT) / len(x) ** 2
    kernel = spectrum.kernel_between(x, x)
    sums = ((kernel @ c) * c + (kernel @ s) * s).sum(0) / len(x) ** 2
    ridge = _RIDGE * torch.eye(len(omega), dtype=torch.float64)
    factor = cholesky(squares + ridge, "The products of cosines over pairs of rows")
    right = torch.linalg.solve_triangular(factor, sums[:, None], upper=False)[:, 0]
    left = np.vstack([factor.mT.numpy(), np.full((1, len(omega)), _SUM_WEIGHT)])
    weights, _ = nnls(left, np.append(right.numpy(), _SUM_WEIGHT), maxiter=30 * len(omega))
    return torch.from_numpy(weights / weights.sum())


def normal_error(
    omega: Tensor,  # (m, d)
    weights: Tensor,  # (m,)
    difference_covariance: Tensor,  # (d, d)
) -> Tensor:  # ()
    """Return the mean squared kernel error over differences ~ N(0, t S).

    It is that of the Gaussian kernel.

    Args:
        omega: The frequencies w_i, (m, d).
        weights: Their weights, (m,), with sum 1.
        difference_covariance: S, (d, d), twice the covariance of the rows.

    With q^+- = (w_i +- w_j)^T t S (w_i +- w_j),

        E cos(w_i . d) cos(w_j . d) = (exp(-q^+ / 2) + exp(-q^- / 2)) / 2,
        E cos(w . d) k(d) = |I + t S|^(-1/2) exp(-w^T (I + t S)^-1 t S w / 2),      E k^2 = |I + 2 t S|^(-1/2).

    The error is divided by the variance of one cosine, 1/2 + |I + 4 t S|^(-1/2) / 2 - |I + 2 t S|^(-1/2), and averaged
    over `SCALES`.

    Examples:
        >>> difference_covariance, weights = torch.eye(1).double(), torch.ones(1).double()
        >>> at_zero, at_one = (
        ...     float(normal_error(torch.tensor([[w]]).double(), weights, difference_covariance)) for w in (0.0, 1.0)
        ... )
        >>> at_zero > at_one
        True
    """
    products = omega @ difference_covariance @ omega.mT
    squares = products.diagonal()[:, None] + products.diagonal()
    values, vectors = torch.linalg.eigh(difference_covariance)
    rotated, total = omega @ vectors, omega.new_zeros(())
    for t in SCALES:
        scaled = t * values
        both = (torch.exp(-t * (squares / 2 + products)) + torch.exp(-t * (squares / 2 - products))) / 2
        across = torch.exp(-0.5 * (rotated.square() @ (scaled / (1 + scaled)) + torch.log1p(scaled).sum()))
        kernel = torch.exp(-0.5 * torch.log1p(2 * scaled).sum())
        variance = 0.5 + 0.5 * torch.exp(-0.5 * torch.log1p(4 * scaled).sum()) - kernel
        total = total + (weights @ both @ weights - 2 * weights @ across + kernel) / variance
    return total / len(SCALES)


def optimized_frequencies(
    omega: Tensor,  # (m, d)
    weights: Tensor,  # (m,)
    x: Tensor,  # (n, d)
) -> Tensor:  # (m, d)
    """Return frequencies that minimize `normal_error` together with their weights.

    The initial ones are returned if the rows are too close together, or too far apart for finite squares.

    Args:
        omega: The initial frequencies, (m, d).
        weights: Their initial weights, (m,), with sum 1.
        x: The rows, (n, d).

    Examples:
        >>> omega, x = torch.tensor([[0.5], [0.6]]).double(), torch.linspace(-2, 2, 9)[:, None].double()
        >>> omega = optimized_frequencies(omega, torch.tensor([0.5, 0.5]).double(), x)
        >>> bool((omega[1] - omega[0]).abs() > 0.1)  # they were too close together
        True
    """
    difference_covariance = 2 * torch.cov(x.mT, correction=0).reshape(x.shape[1], -1)
    if not MIN_SQUARED_DISTANCE < float(difference_covariance.diagonal().sum()) < float("inf"):
        return omega
    with torch.enable_grad():
        moving = omega.clone().requires_grad_()
        logits = weights.clamp_min(_MIN_WEIGHT / len(omega)).log().requires_grad_()
        steps = torch.optim.Adam([moving, logits], lr=RATE)
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(steps, STEPS)
        for _ in range(STEPS):
            steps.zero_grad()
            torch.autograd.backward(normal_error(moving, logits.softmax(0), difference_covariance))
            steps.step()
            falling.step()
    return moving.detach()


def _thinned(rows: Tensor) -> Tensor:
    indices = torch.linspace(0, len(rows) - 1, MAX_ROWS).long() if len(rows) > MAX_ROWS else torch.arange(len(rows))
    return rows[indices]
