"""Frequencies moved, and weights fitted, for the rows at hand."""

from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from rfgp.counts import counted
from rfgp.couplings.coupling import Coupling
from rfgp.couplings.energy import Energy
from rfgp.couplings.frequencies import Frequencies
from rfgp.errors import InvalidArgumentError
from rfgp.linalg import cholesky, finite_rows
from rfgp.spectra import Gaussian, Spectrum

MOST_ROWS = 512
"""Rows whose pairs the weights are fitted to."""
MOST_MOVED = 512
"""Frequencies up to which they are moved: a step costs m^2."""
STEPS, RATE = 200, 0.05
"""Of Adam, on the closed form; the rate falls like a cosine."""
SCALES = (0.1, 0.3, 1.0)
"""Of the covariance of differences of rows: the law of these is not normal, and near ones count."""
_ONE = 100.0
"""Weight of the condition that weights add to one."""
_RIDGE = 1e-10
_LEAST = 1e-6
LEAST_SPREAD = 1e-3
"""Squares of lengthscales between two rows, on average: nearer ones, or such as are no numbers, move nothing."""


class DataAdapted(Coupling):
    """Weighted energy, then frequencies that are moved and weights that are fitted for given rows.

    The weights a >= 0, sum a = 1, are those of least squares over the pairs of rows,

        mean over (x, z) of (sum_i a_i cos(omega_i . (x - z)) - k(x, z))^2,

    a quadratic programme in m unknowns. Before, frequencies and weights minimise its expectation for differences
    x - z ~ N(0, t S), S twice the rows' covariance, which has a closed form for the Gaussian kernel, relative to the
    kernel's variance there and on average over t = .1, .3, 1. What comes out knows the rows, so the estimate of the
    kernel is biased: `rfgp.theory.pairs_error` says by how much. Far from the rows nothing is promised.

    Args:
        rows: (n, d), divided by the lengthscale; of more than 512, so many evenly spaced ones. None: none, which is
            weighted energy.
        moves: Whether frequencies are moved; of the Gaussian spectrum, and up to 512 (200 steps; 5 s for 512 on one
            core).

    Source: ours; kernel quadrature with weights of its own, as in Bach (2017) and Belhadji et al. (2019), for the pairs
    of given rows.

    Raises:
        InvalidArgumentError: rows that are no finite matrix.
    """

    def __init__(self, rows: Any = None, moves: bool = True) -> None:
        self.rows = None if rows is None else _some(finite_rows(rows)).tolist()
        self.moves = bool(moves)

    @property
    def is_biased(self) -> bool:
        """Whether there are rows."""
        return self.rows is not None

    def _draw(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        base = Energy(weighted=True).sample(m, d, spectrum=spectrum, generator=generator)
        if self.rows is None:
            return base
        x = torch.tensor(self.rows, dtype=torch.float64)
        if x.shape[1] != d:
            raise InvalidArgumentError(
                f"The rows of DataAdapted have {counted(x.shape[1], 'column')}, and {d} are asked for."
            )
        omega = base.dense()
        if self.moves and m <= MOST_MOVED and isinstance(spectrum, Gaussian):
            omega = moved(omega, base.weights / m, x)
        return Frequencies(omega, m * fitted_weights(omega, x, spectrum))

    def _rows(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        return self._draw(m, d, spectrum, generator).dense()

    def __repr__(self) -> str:
        shown = ["rows=..."] * (self.rows is not None) + ["moves=False"] * (not self.moves)
        return f"DataAdapted({', '.join(shown)})"


def fitted_weights(
    omega: Tensor,  # (m, d)
    x: Tensor,  # (n, d)
    spectrum: Spectrum,
) -> Tensor:  # (m,)
    """Return weights, none negative and 1 in sum, of least squares of the kernel over all pairs of rows.

    With c_i, s_i the cosines and sines of omega_i at the rows, the mean of cos(omega_i . (x - z)) cos(omega_j . (x -
    z)) is G_ij = [(c_i.c_j)^2 + (s_i.s_j)^2 + (c_i.s_j)^2 + (s_i.c_j)^2] / n^2, and that of cos(omega_i . (x - z)) k is
    b_i = (c_i^T K c_i + s_i^T K s_i) / n^2.
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
    left = np.vstack([factor.mT.numpy(), np.full((1, len(omega)), _ONE)])
    found, _ = nnls(left, np.append(right.numpy(), _ONE), maxiter=30 * len(omega))
    return torch.from_numpy(found / found.sum())


def normal_error(
    omega: Tensor,  # (m, d)
    weights: Tensor,  # (m,)
    spread: Tensor,  # (d, d)
) -> Tensor:  # ()
    """Return the mean squared error of the Gaussian kernel over differences ~ N(0, t S); see `DataAdapted`.

    With q^+- = (w_i +- w_j)^T t S (w_i +- w_j),

        E cos(w_i . d) cos(w_j . d) = (exp(-q^+ / 2) + exp(-q^- / 2)) / 2,
        E cos(w . d) k(d) = |I + t S|^(-1/2) exp(-w^T (I + t S)^-1 t S w / 2),      E k^2 = |I + 2 t S|^(-1/2),

    divided by 1/2 + |I + 4 t S|^(-1/2) / 2 - |I + 2 t S|^(-1/2), the variance of one cosine around k, and averaged over
    `SCALES`.
    """
    products = omega @ spread @ omega.mT
    squares = products.diagonal()[:, None] + products.diagonal()
    values, vectors = torch.linalg.eigh(spread)
    turned, total = omega @ vectors, omega.new_zeros(())
    for t in SCALES:
        own = t * values
        both = (torch.exp(-t * (squares / 2 + products)) + torch.exp(-t * (squares / 2 - products))) / 2
        across = torch.exp(-0.5 * (turned.square() @ (own / (1 + own)) + torch.log1p(own).sum()))
        kernel = torch.exp(-0.5 * torch.log1p(2 * own).sum())
        one = 0.5 + 0.5 * torch.exp(-0.5 * torch.log1p(4 * own).sum()) - kernel
        total = total + (weights @ both @ weights - 2 * weights @ across + kernel) / one
    return total / len(SCALES)


def moved(
    omega: Tensor,  # (m, d)
    weights: Tensor,  # (m,)
    x: Tensor,  # (n, d)
) -> Tensor:  # (m, d)
    """Return frequencies moved, with weights of their own, to where `normal_error` is least; see there."""
    spread = 2 * torch.cov(x.mT, correction=0).reshape(x.shape[1], -1)
    if not LEAST_SPREAD < float(spread.diagonal().sum()) < float("inf"):
        return omega
    with torch.enable_grad():
        places = omega.clone().requires_grad_()
        logits = weights.clamp_min(_LEAST / len(omega)).log().requires_grad_()
        steps = torch.optim.Adam([places, logits], lr=RATE)
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(steps, STEPS)
        for _ in range(STEPS):
            steps.zero_grad()
            torch.autograd.backward(normal_error(places, logits.softmax(0), spread))
            steps.step()
            falling.step()
    return places.detach()


def _some(rows: Tensor) -> Tensor:
    every = torch.linspace(0, len(rows) - 1, MOST_ROWS).long() if len(rows) > MOST_ROWS else torch.arange(len(rows))
    return rows[every]
