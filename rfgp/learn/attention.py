"""Couplings learned for attention."""

import math

import torch

from rfgp.counts import check_counts
from rfgp.couplings import Frequencies, SharedNorms, by_name
from rfgp.couplings.antithetic import Antithetic
from rfgp.couplings.coupling import Coupling
from rfgp.couplings.orthogonal import haar_blocks
from rfgp.couplings.radial import BROADENINGS, histogram_quantile
from rfgp.errors import InvalidArgumentError
from rfgp.learn.objectives import Objective
from rfgp.learn.pieces import LogDensity, Radial, to_normal
from rfgp.learn.search import Learned, Search
from rfgp.spectra import Gaussian

_LARGEST_LOGIT = 4.0
"""exp(2 x 4) is within what a histogram may span."""


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
    """Learn a coupling for the row-normalised scores: how much blocks share their norms, and the law of these.

    Pairs omega, -omega of `SharedNorms`, its correlation, tilt and broadening learned from "monotone-antithetic" on,
    which is returned if nothing better is found. Numerator and normaliser stay unbiased; the error of their ratio is
    what is learned, for this m and these inputs.

    Args:
        objective: Of frequencies and weights, `attention_error` or your own; smaller is better.
        num_frequencies: m, even.
        num_dims: d.
        num_bins: Of the histogram of the tilt.
        num_steps: The most steps of Adam.
        num_draws: Ensembles per step, and in the fixed set four times as many.
        learning_rate: Of Adam; it falls along a cosine.
        patience: The search ends after ten times as many steps without improvement.
        seed: Of everything random.
        progress: Whether to show a progress bar on a terminal.

    Returns:
        With pairs of a `SharedNorms` or of a `Monotone`.

    Raises:
        InvalidArgumentError: an odd m, counts or a rate that are not positive, or an objective that is not a finite 0-d
            tensor.
    """
    check_counts(num_frequencies=num_frequencies, num_dims=num_dims, num_bins=num_bins)
    if num_frequencies % 2:
        raise InvalidArgumentError(
            f"Frequencies come in pairs here, so their number must be even, got {num_frequencies}."
        )
    shared = SharedNormDistribution(num_frequencies // 2, num_dims, num_bins)
    search = Search(objective, shared.draw, shared.parameters, num_steps, num_draws, learning_rate, patience, seed)
    trace, steps, message = search.run(progress)

    def judged(coupling: Coupling) -> float:
        return search.judge(lambda g: coupling.sample(num_frequencies, num_dims, generator=g))

    values = {coupling: judged(coupling) for coupling in (by_name("monotone-antithetic"), shared.coupling())}
    best = min(values, key=values.__getitem__)
    return Learned(best, trace, values[best], steps, message)


class SharedNormDistribution:
    """`SharedNorms` as a differentiable function of its options."""

    def __init__(self, half: int, num_dims: int, num_bins: int) -> None:
        self.half, self.num_dims, self.measure = half, num_dims, Gaussian()
        self.angle = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
        self.log_b = torch.zeros((), dtype=torch.float64, requires_grad=True)
        self.logits = torch.zeros(num_bins, dtype=torch.float64, requires_grad=True)
        self.parameters = [self.angle, self.log_b, self.logits]

    def heights(self) -> torch.Tensor:
        """Return the heights (num_bins,) of the histogram, of mean 1, bounded so that none vanishes."""
        bounded = _LARGEST_LOGIT * (self.logits / _LARGEST_LOGIT).tanh()
        return bounded.softmax(0) * len(bounded)

    def draw(self, generator: torch.Generator) -> Frequencies:
        """Correlation sin^2 of the angle: its root and that of its complement are smooth."""
        directions = haar_blocks(self.half, self.num_dims, generator)
        blocks = -(-self.half // self.num_dims)
        drawn = torch.randn(1 + blocks, generator=generator, dtype=torch.float64)
        u = torch.special.ndtr(self.angle.sin() * drawn[0] + self.angle.cos() * drawn[1:])
        inner, weights = histogram_quantile(self.heights(), u)
        radius: torch.Tensor = Radial.apply(to_normal(inner), self.measure, self.num_dims)
        log_b = self.log_b.clamp(*(math.log(b) for b in BROADENINGS))
        wide = radius * log_b.exp()
        ratio = LogDensity.apply(wide, self.measure, self.num_dims) - LogDensity.apply(
            radius, self.measure, self.num_dims
        )
        lengths, weights = (
            x.repeat_interleave(self.num_dims)[: self.half] for x in (wide, weights * (log_b + ratio).exp())
        )
        return Frequencies.paired(directions * lengths[:, None], weights)

    def coupling(self) -> Antithetic:
        """Return the coupling of the options as they are now."""
        broadening = min(max(math.exp(float(self.log_b.detach())), BROADENINGS[0]), BROADENINGS[1])
        correlation = math.sin(float(self.angle.detach())) ** 2
        return Antithetic(SharedNorms(correlation, self.heights().detach().tolist(), broadening))
