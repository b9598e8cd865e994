"""Learned distributions of norms: their copula, and their radial distribution with importance weights."""

import math

import torch
from torch import Tensor

from rfgp.couplings import Copula, Energy, Frequencies
from rfgp.couplings.orthogonal import haar_blocks, haar_rows, stratified
from rfgp.learn.objectives import Objective
from rfgp.learn.pieces import Radial, factor, proposal_scale_of, proposed_norms
from rfgp.learn.search import Learned, Search, check_search
from rfgp.messages import check_counts
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
