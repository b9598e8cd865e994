"""Couplings that are learned: a copula of norms, a radial distribution, and both for softmax attention.

The chapter has, in this order: differentiable functions for draws; learned distributions of norms; and a coupling for
attention.
"""

import math
from typing import Any

import torch
from torch import Tensor

from rfgp.couplings import Copula, Energy, Frequencies, SharedNorms, by_name
from rfgp.couplings.coupling import Antithetic
from rfgp.couplings.orthogonal import haar_blocks, haar_rows, stratified
from rfgp.couplings.radial import PROPOSAL_SCALES, histogram_quantile
from rfgp.errors import InvalidArgumentError
from rfgp.learn.search import Learned, Objective, Search, check_search
from rfgp.messages import check_counts
from rfgp.spectra import Gaussian, Spectrum

# --- Differentiable functions for draws -------------------------------------------------------------------------------


_MAX_NORMAL = 8.0


def factor(
    theta: Tensor,  # (k, k)
) -> Tensor:  # (k, k)
    """Return the Cholesky factor (k, k) of a correlation matrix.

    Its rows (theta_i1, ..., theta_i(i-1), 1, 0, ...) are normalized.

    Args:
        theta: The parameters, (k, k). Only entries below the diagonal are used.

    Examples:
        >>> factor(torch.zeros(2, 2)).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """
    rows = theta.tril(-1) + torch.eye(len(theta), dtype=theta.dtype)
    factor: Tensor = rows / rows.norm(dim=1, keepdim=True)
    return factor


def to_normal(
    u: Tensor,  # (k,)
) -> Tensor:  # (k,)
    """Return standard normal quantiles (k,) of uniforms.

    Args:
        u: The uniforms, (k,).

    Examples:
        >>> to_normal(torch.tensor([0.5])).tolist()
        [0.0]
    """
    normal: Tensor = torch.special.ndtri(u.clamp(1e-15, 1 - 1e-15))
    return normal


class Radial(torch.autograd.Function):
    """The norms r = F^{-1}(Phi(z)) of normals z, with dr/dz = phi(z) / f(r).

    Examples:
        >>> from rfgp import spectra
        >>> Radial.apply(torch.zeros(1).double(), spectra.Gaussian(), 2).round(decimals=4).tolist()  # the median
        [1.1774]
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, spectrum: Spectrum, num_dims: int) -> Tensor:
        """Return norms (k,) at normals (k,)."""
        inside = z.clamp(-_MAX_NORMAL, _MAX_NORMAL)
        r = spectrum.radial_quantile(torch.special.ndtr(inside).clamp(2.0**-53, 1 - 2.0**-53), num_dims)
        log_slope = -(inside**2) / 2 - 0.5 * math.log(2 * math.pi) - spectrum.radial_log_density(r, num_dims)
        ctx.save_for_backward(log_slope.exp())
        return r

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient (k,)."""
        (slope,) = ctx.saved_tensors
        return grads[0] * slope, None, None


class LogDensity(torch.autograd.Function):
    """The log density log f(r) of norms. Its derivative is by central differences in log r.

    Examples:
        >>> from rfgp import spectra
        >>> LogDensity.apply(torch.ones(1).double(), spectra.Gaussian(), 2).round(decimals=4).tolist()
        [-0.5]
    """

    @staticmethod
    def forward(ctx: Any, r: Tensor, spectrum: Spectrum, num_dims: int) -> Tensor:
        """Return log densities (k,) at norms (k,)."""
        step = 1e-5
        up, down = (spectrum.radial_log_density(r * math.exp(sign * step), num_dims) for sign in (1, -1))
        ctx.save_for_backward((up - down) / (2 * step * r))
        return spectrum.radial_log_density(r, num_dims)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient (k,)."""
        (slope,) = ctx.saved_tensors
        return grads[0] * slope, None, None


def proposed_norms(
    heights: Tensor,  # (K,), mean 1
    log_b: Tensor,  # ()
    u: Tensor,  # (k,)
    spectrum: Spectrum,
    num_dims: int,
) -> tuple[Tensor, Tensor]:  # (k,), (k,)
    """Return norms and their importance weights, differentiable in the heights and in log b.

    Args:
        heights: The heights of the proposal histogram, (K,), with mean 1.
        log_b: The logarithm of the proposal scale, 0-d. It is clamped to the range that is solved for.
        u: Uniforms, (k,).
        spectrum: The spectrum of the norms.
        num_dims: The number of dimensions.

    Examples:
        >>> from rfgp import spectra
        >>> u, log_b = torch.tensor([0.3, 0.6]).double(), torch.zeros(()).double()
        >>> proposed_norms(torch.ones(4).double(), log_b, u, spectra.Gaussian(), 2)[1].tolist()
        [1.0, 1.0]
    """
    inner, weights = histogram_quantile(heights, u)
    radius: Tensor = Radial.apply(to_normal(inner), spectrum, num_dims)
    inside = log_b.clamp(*(math.log(b) for b in PROPOSAL_SCALES))
    wide = radius * inside.exp()
    log_ratio = LogDensity.apply(wide, spectrum, num_dims) - LogDensity.apply(radius, spectrum, num_dims)
    return wide, weights * (inside + log_ratio).exp()


def proposal_scale_of(log_b: Tensor) -> float:
    """Return the proposal scale b of `proposed_norms`.

    Args:
        log_b: Its logarithm, 0-d.

    Examples:
        >>> proposal_scale_of(torch.tensor(9.0))
        1.6
    """
    return min(max(math.exp(float(log_b.detach())), PROPOSAL_SCALES[0]), PROPOSAL_SCALES[1])


# --- Learned distributions of norms: their copula, and their radial distribution with importance weights --------------


def learn_copula(
    objective: Objective,
    num_frequencies: int,
    num_dims: int,
    *,
    spectrum: Spectrum | None = None,
    size: int | None = None,
    num_steps: int = 500,
    num_draws: int = 8,
    learning_rate: float = 0.05,
    patience: int = 10,
    seed: int = 0,
    progress: bool = True,
) -> Learned:
    """Learn the correlation matrix of a Gaussian copula of the norms (Reid et al., 2024, Eqs. 34, 35).

    Row i of its Cholesky factor is (theta_i1, ..., theta_i(i-1), 1), normalized. This parametrizes exactly the positive
    definite correlation matrices (Eq. 34). The paper prints i <= j for j <= i, and positive theta, which would exclude
    negative correlations.

    Args:
        objective: A function of frequencies to be minimized: `kernel_error`, `posterior_divergence` or your own.
        num_frequencies: m.
        num_dims: d.
        spectrum: An isotropic spectrum. If None, the Gaussian one.
        size: k, the number of consecutive norms that are coupled. If None, d, as in the paper.
        num_steps: The largest number of steps of Adam.
        num_draws: The number of draws of m frequencies per step. The validation set has four times as many.
        learning_rate: The first rate of Adam. It decays along a cosine.
        patience: The search ends after ten times as many steps without improvement.
        seed: The seed of all draws.
        progress: Whether to show a progress bar on a terminal.

    Returns:
        The result with a `Copula`.

    Raises:
        InvalidArgumentError: If counts or the rate are not positive, or the objective is not a finite 0-d tensor.

    Examples:
        >>> from rfgp import learn
        >>> objective = learn.kernel_error([[0.0, 0.0], [0.5, 0.5], [1.0, 0.0]])
        >>> found = learn.learn_copula(objective, 4, 2, num_steps=2, num_draws=2, progress=False)
        >>> found.coupling, found.num_steps
        (Copula(correlation=...), 2)
    """
    measure, k = spectrum or Gaussian(), num_dims if size is None else size
    check_counts(num_frequencies=num_frequencies, num_dims=num_dims, size=k)
    theta = torch.zeros(k, k, dtype=torch.float64, requires_grad=True)

    def draw(generator: torch.Generator) -> Frequencies:
        normal = torch.randn(-(-num_frequencies // k), k, generator=generator, dtype=torch.float64)
        coupled = (normal @ factor(theta).mT).reshape(-1)[:num_frequencies]
        directions = haar_blocks(num_frequencies, num_dims, generator)
        lengths: Tensor = Radial.apply(coupled, measure, num_dims)
        return Frequencies(directions * lengths[:, None])

    search = Search(objective, draw, [theta], num_steps, num_draws, learning_rate, patience, seed)
    trace, steps, message = search.run(progress)
    rows = factor(theta).detach()
    return Learned(Copula((rows @ rows.mT).tolist()), trace, min(trace), steps, message)


def learn_radial_distribution(
    objective: Objective,
    num_frequencies: int,
    num_dims: int,
    *,
    spectrum: Spectrum | None = None,
    features: str = "fourier",
    num_bins: int = 16,
    num_steps: int = 200,
    num_draws: int = 4,
    learning_rate: float = 0.03,
    patience: int = 10,
    seed: int = 0,
    progress: bool = True,
) -> Learned:
    """Learn the radial distribution of an energy coupling with importance weights.

    Its parameters are the proposal scale and the proposal histogram. The search starts from
    `Energy(features, weighted=True)`. The distribution is learned for its directions. The directions of the result are
    solved again for the new distribution. The start is returned if it is better.

    Args:
        objective: A function of frequencies and weights to be minimized.
        num_frequencies: m.
        num_dims: d.
        spectrum: An isotropic spectrum. If None, the Gaussian one.
        features: "fourier", or "laplace" (pairs).
        num_bins: The number of bins of the histogram.
        num_steps: The largest number of steps of Adam.
        num_draws: The number of draws of m frequencies per step. The validation set has four times as many.
        learning_rate: The first rate of Adam. It decays along a cosine.
        patience: The search ends after ten times as many steps without improvement.
        seed: The seed of all draws.
        progress: Whether to show a progress bar on a terminal.

    Returns:
        The result with an `Energy`.

    Raises:
        InvalidArgumentError: For the reasons of `learn_copula`.

    Examples:
        >>> from rfgp import learn
        >>> objective = learn.kernel_error([[0.0, 0.0], [0.5, 0.5], [1.0, 0.0]])
        >>> found = learn.learn_radial_distribution(objective, 4, 2, num_steps=2, num_draws=2, progress=False)
        >>> found.best <= found.trace[0] + 1e-9
        True
    """
    measure, base = spectrum or Gaussian(), Energy(features, weighted=True)
    check_counts(num_frequencies=num_frequencies, num_dims=num_dims, num_bins=num_bins)
    check_search(num_steps, num_draws, patience, learning_rate)  # before directions are solved for
    start = base.solution(num_frequencies, num_dims, spectrum=measure)
    solved = start.unit()
    logits = torch.zeros(num_bins, dtype=torch.float64, requires_grad=True)
    log_b = torch.tensor(math.log(start.proposal_scale), dtype=torch.float64, requires_grad=True)

    def draw(generator: torch.Generator) -> Frequencies:
        u = stratified(len(solved), generator, mirrored=True)
        lengths, weights = proposed_norms(torch.softmax(logits, 0) * num_bins, log_b, u, measure, num_dims)
        rows = (solved @ haar_rows(1, num_dims, num_dims, generator)) * lengths[:, None]
        return Frequencies(rows, weights) if features == "fourier" else Frequencies.paired(rows, weights)

    search = Search(objective, draw, [logits, log_b], num_steps, num_draws, learning_rate, patience, seed)
    trace, steps, message = search.run(progress)
    heights = torch.softmax(logits.detach(), 0) * num_bins
    learned = Energy(features, proposal_histogram=heights.tolist(), proposal_scale=proposal_scale_of(log_b))
    best, value = search.best_of((base, learned), num_frequencies, num_dims, measure)
    return Learned(best, trace, value, steps, message)


# --- Couplings learned for attention ----------------------------------------------------------------------------------


_MAX_LOGIT = 4.0
"""The bound of the logits. exp(2 * 4) is within the range of heights that a histogram allows."""


def learn_attention(
    objective: Objective,
    num_frequencies: int,
    num_dims: int,
    *,
    num_bins: int = 8,
    num_steps: int = 200,
    num_draws: int = 8,
    learning_rate: float = 0.1,
    patience: int = 10,
    seed: int = 0,
    progress: bool = True,
) -> Learned:
    """Learn a coupling for softmax attention: the correlation of the blocks' norms, and their distribution.

    The coupling has pairs omega, -omega of `SharedNorms`. Its correlation, histogram and scale are learned from a start
    at "monotone-antithetic", which is returned if nothing better is found. Numerator and normalizer stay unbiased. The
    objective is the error of their ratio for this m and these inputs.

    Args:
        objective: A function of frequencies and weights, `attention_error` or your own, to be minimized.
        num_frequencies: m, even.
        num_dims: d.
        num_bins: The number of bins of the proposal histogram.
        num_steps: The largest number of steps of Adam.
        num_draws: The number of draws of m frequencies per step. The validation set has four times as many.
        learning_rate: The first rate of Adam. It decays along a cosine.
        patience: The search ends after ten times as many steps without improvement.
        seed: The seed of all draws.
        progress: Whether to show a progress bar on a terminal.

    Returns:
        The result, whose coupling has pairs of `SharedNorms` or `Monotone`.

    Raises:
        InvalidArgumentError: If m is odd, counts or the rate are not positive, or the objective is not a finite 0-d
            tensor.

    Examples:
        >>> from rfgp import learn
        >>> queries = torch.randn(6, 2, generator=torch.Generator().manual_seed(0))
        >>> objective = learn.attention_error(queries, queries)
        >>> found = learn.learn_attention(objective, 8, 2, num_steps=2, num_draws=2, progress=False)
        >>> found.coupling.is_antithetic
        True
    """
    check_counts(num_frequencies=num_frequencies, num_dims=num_dims, num_bins=num_bins)
    if num_frequencies % 2:
        raise InvalidArgumentError(
            f"num_frequencies must be even, got {num_frequencies}. Frequencies come in pairs omega, -omega."
        )
    shared = SharedNormDistribution(num_frequencies // 2, num_dims, num_bins)
    search = Search(objective, shared.draw, shared.parameters, num_steps, num_draws, learning_rate, patience, seed)
    trace, steps, message = search.run(progress)
    candidates = (by_name("monotone-antithetic"), shared.coupling())
    best, value = search.best_of(candidates, num_frequencies, num_dims, shared.measure)
    return Learned(best, trace, value, steps, message)


class SharedNormDistribution:
    """`SharedNorms` as a differentiable function of its options.

    Args:
        half: The number m / 2 of pairs.
        num_dims: d.
        num_bins: The number of bins of the proposal histogram.

    Examples:
        >>> shared = SharedNormDistribution(half=4, num_dims=2, num_bins=3)
        >>> shared.draw(torch.Generator().manual_seed(0))
        Frequencies(m=8, d=2)
    """

    def __init__(self, half: int, num_dims: int, num_bins: int) -> None:
        self.half, self.num_dims, self.measure = half, num_dims, Gaussian()
        self.angle = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
        self.log_b = torch.zeros((), dtype=torch.float64, requires_grad=True)
        self.logits = torch.zeros(num_bins, dtype=torch.float64, requires_grad=True)
        self.parameters = [self.angle, self.log_b, self.logits]

    def heights(self) -> torch.Tensor:
        """Return the heights (num_bins,) of the histogram, with mean 1 and bounded away from 0."""
        bounded = _MAX_LOGIT * (self.logits / _MAX_LOGIT).tanh()
        return bounded.softmax(0) * len(bounded)

    def draw(self, generator: torch.Generator) -> Frequencies:
        """Draw frequencies.

        The correlation is sin^2 of an angle, so that its root and that of its complement are smooth.

        Args:
            generator: A CPU generator.

        Returns:
            The frequencies (2 half, d) in pairs omega, -omega, differentiable in the parameters.
        """
        directions = haar_blocks(self.half, self.num_dims, generator)
        blocks = -(-self.half // self.num_dims)
        drawn = torch.randn(1 + blocks, generator=generator, dtype=torch.float64)
        u = torch.special.ndtr(self.angle.sin() * drawn[0] + self.angle.cos() * drawn[1:])
        drawn_norms = proposed_norms(self.heights(), self.log_b, u, self.measure, self.num_dims)
        lengths, weights = (x.repeat_interleave(self.num_dims)[: self.half] for x in drawn_norms)
        return Frequencies.paired(directions * lengths[:, None], weights)

    def coupling(self) -> Antithetic:
        """Return the coupling with the current options."""
        correlation = math.sin(float(self.angle.detach())) ** 2
        return Antithetic(SharedNorms(correlation, self.heights().detach().tolist(), proposal_scale_of(self.log_b)))
