"""Couplings learned for attention."""

import math

import torch

from rfgp.couplings import Frequencies, SharedNorms, by_name
from rfgp.couplings.coupling import Antithetic
from rfgp.couplings.orthogonal import haar_blocks
from rfgp.errors import InvalidArgumentError
from rfgp.learn.objectives import Objective
from rfgp.learn.pieces import proposal_scale_of, proposed_norms
from rfgp.learn.search import Learned, Search
from rfgp.messages import check_counts
from rfgp.spectra import Gaussian

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
