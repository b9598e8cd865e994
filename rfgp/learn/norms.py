"""Laws of norms that are learned: their copula, and the radial law with its weights."""

import math

import torch
from torch import Tensor

from rfgp.counts import check_counts
from rfgp.couplings import Copula, Energy, Frequencies, norms
from rfgp.couplings.orthogonal import haar_blocks, haar_rows
from rfgp.couplings.radial import BROADENINGS, histogram_quantile
from rfgp.learn.objectives import Objective
from rfgp.learn.pieces import LogDensity, Radial, factor, to_normal
from rfgp.learn.search import Learned, Search, check_search
from rfgp.spectra import Gaussian, Spectrum


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
    """Learn the correlation matrix of a Gaussian copula of the norms (couplings paper, Eqs. 34 and 35).

    Row i of its Cholesky factor is (theta_i1, ..., theta_i(i-1), 1) over its length, which reaches every
    positive definite correlation matrix and no other (Eq. 34, where the paper prints i <= j for j <= i, and positive
    theta, with which no two norms could be correlated negatively).

    Args:
        objective: Of frequencies; smaller is better. `kernel_error`, `posterior_divergence`, or any of your own.
        num_frequencies: m.
        num_dims: d.
        spectrum: Isotropic; None: Gaussian.
        size: k, the number of consecutive norms that are coupled; None: d, as in the paper.
        num_steps: The most steps of Adam.
        num_draws: Ensembles per step, and in the fixed set four times as many.
        learning_rate: Of Adam; it falls along a cosine.
        patience: The search ends after ten times as many steps without improvement.
        seed: Of everything random.
        progress: Whether to show a progress bar on a terminal.

    Returns:
        With a `Copula`.

    Raises:
        InvalidArgumentError: counts or a rate that are not positive, or an objective that is not a finite 0-d tensor.
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
    """Learn the radial law of an energy coupling, whose weights make up for it: the broadening and a histogram.

    The start is `Energy(features, weighted=True)`, its directions and its broadening; the law is learned for those. The
    coupling that is returned has directions solved again for the law that was found, unless the start is better still.

    Args:
        objective: Of frequencies and weights; smaller is better.
        num_frequencies: m.
        num_dims: d.
        spectrum: Isotropic; None: Gaussian.
        features: "fourier", or "laplace" (pairs).
        num_bins: Of the histogram.
        num_steps: The most steps of Adam.
        num_draws: Ensembles per step, and in the fixed set four times as many.
        learning_rate: Of Adam; it falls along a cosine.
        patience: The search ends after ten times as many steps without improvement.
        seed: Of everything random.
        progress: Whether to show a progress bar on a terminal.

    Returns:
        With an `Energy`.

    Raises:
        InvalidArgumentError: as `learn_copula`.
    """
    measure, base = spectrum or Gaussian(), Energy(features, weighted=True)
    check_counts(num_frequencies=num_frequencies, num_dims=num_dims, num_bins=num_bins)
    check_search(num_steps, num_draws, patience, learning_rate)  # before directions are solved for
    start = base.solution(num_frequencies, num_dims, spectrum=measure)
    solved = start.unit()
    logits = torch.zeros(num_bins, dtype=torch.float64, requires_grad=True)
    log_b = torch.tensor(math.log(start.broadening), dtype=torch.float64, requires_grad=True)
    bounds = math.log(BROADENINGS[0]), math.log(BROADENINGS[1])

    def draw(generator: torch.Generator) -> Frequencies:
        n = len(solved)
        u = norms.stratified(n, generator, mirrored=True)
        inner, weights = histogram_quantile(torch.softmax(logits, 0) * num_bins, u)
        radius: Tensor = Radial.apply(to_normal(inner), measure, num_dims)
        inside = log_b.clamp(*bounds)
        wide = radius * inside.exp()
        weights = weights * torch.exp(
            inside + LogDensity.apply(wide, measure, num_dims) - LogDensity.apply(radius, measure, num_dims)
        )
        rows = (solved @ haar_rows(1, num_dims, num_dims, generator)) * wide[:, None]
        return Frequencies(rows, weights) if features == "fourier" else Frequencies.paired(rows, weights)

    search = Search(objective, draw, [logits, log_b], num_steps, num_draws, learning_rate, patience, seed)
    trace, steps, message = search.run(progress)
    broadening = min(max(math.exp(float(log_b.detach())), BROADENINGS[0]), BROADENINGS[1])
    heights = torch.softmax(logits.detach(), 0) * num_bins
    learned = Energy(features, tilt=heights.tolist(), broadening=broadening)

    def judged(coupling: Energy) -> float:
        return search.judge(lambda g: coupling.sample(num_frequencies, num_dims, spectrum=measure, generator=g))

    values = {coupling: judged(coupling) for coupling in (base, learned)}
    best = min(values, key=values.__getitem__)
    return Learned(best, trace, values[best], steps, message)
