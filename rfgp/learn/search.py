"""The search for the parameters of a coupling, by Adam with new draws in each step."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rfgp import random
from rfgp.couplings import Frequencies
from rfgp.couplings.coupling import Coupling
from rfgp.errors import InvalidArgumentError
from rfgp.learn.objectives import Objective
from rfgp.messages import check_counts
from rfgp.progress import Bar
from rfgp.spectra import Spectrum

_CHECK_EVERY = 10


@dataclass(frozen=True, eq=False)
class Learned:
    """The result of learning a coupling.

    Attributes:
        coupling: The coupling.
        trace: The objective over the validation draws, at the start and after every ten steps.
        best: The objective of the coupling over these draws.
        num_steps: The number of steps of Adam.
        message: The reason why the search ended.

    Examples:
        >>> from rfgp import couplings, learn
        >>> learn.Learned(couplings.by_name("pairwise"), (0.2, 0.1), 0.1, 10, "All steps were taken.").best
        0.1
    """

    coupling: Coupling
    trace: tuple[float, ...]
    best: float
    num_steps: int
    message: str


@dataclass
class Search:
    """A search by Adam.

    Attributes:
        objective: The function that is minimized.
        draw: Draws frequencies with the current parameters.
        parameters: Tensors with gradients, changed in place.
        num_steps: The largest number of steps.
        num_draws: The number of draws of m frequencies per step. The validation set has four times as many.
        learning_rate: The first rate. It decays along a cosine.
        patience: The search ends after ten times as many steps without improvement.
        seed: The seed of all draws.

    Raises:
        InvalidArgumentError: If counts or the rate are not positive.

    Examples:
        >>> scale = torch.ones(1, requires_grad=True)
        >>> draw = lambda generator: Frequencies(scale * torch.ones(1, 1))
        >>> search = Search(lambda f: f.dense().square().sum(), draw, [scale], 20, 1, 0.1, 10, 0)
        >>> trace, steps, message = search.run(progress=False)
        >>> trace[-1] < trace[0], steps
        (True, 20)
    """

    objective: Objective
    draw: Callable[[torch.Generator], Frequencies]
    parameters: list[Tensor]
    num_steps: int
    num_draws: int
    learning_rate: float
    patience: int
    seed: int

    def __post_init__(self) -> None:
        check_search(self.num_steps, self.num_draws, self.patience, self.learning_rate)

    def run(self, progress: bool) -> tuple[tuple[float, ...], int, str]:
        """Set the parameters to the best ones.

        Args:
            progress: Whether to show a progress bar on a terminal.

        Returns:
            The trace, the number of steps, and the reason why the search ended.

        Raises:
            InvalidArgumentError: If the objective is not a finite 0-d tensor that is differentiable in the frequencies.
        """
        adam = torch.optim.Adam(self.parameters, lr=self.learning_rate)
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(adam, self.num_steps)
        generator = random.generator(random.resolve_seed(self.seed), random.Role.FREQUENCIES, 0)
        trace, best, message = [self.validate(self.draw)], self._copy(), "All steps were taken."
        with Bar(progress, lines=False) as show:
            for step in range(1, self.num_steps + 1):
                adam.zero_grad()
                loss = self._mean(self.draw, generator, self.num_draws)
                if not loss.requires_grad:
                    raise InvalidArgumentError(
                        "The objective must be differentiable in the frequencies, got a value without gradient."
                    )
                loss.backward()
                adam.step()
                falling.step()
                if step % _CHECK_EVERY and step < self.num_steps:
                    continue
                trace.append(self.validate(self.draw))
                show("learning", step, self.num_steps, f"objective {trace[-1]:.4g}")
                if trace[-1] == min(trace):
                    best = self._copy()
                if len(trace) - 1 - int(np.argmin(trace)) >= self.patience:
                    message = f"No improvement in {self.patience * _CHECK_EVERY} steps."
                    break
        with torch.no_grad():
            for parameter, value in zip(self.parameters, best, strict=True):
                parameter.copy_(value)
        return tuple(trace), step, message

    def validate(self, draw: Callable[[torch.Generator], Frequencies]) -> float:
        """Return the mean objective over the validation draws.

        These draws always have the same random numbers.

        Args:
            draw: Draws frequencies with a generator.
        """
        with torch.no_grad():
            generator = random.generator(random.resolve_seed(self.seed), random.Role.FREQUENCIES, 1)
            return float(self._mean(draw, generator, 4 * self.num_draws))

    def best_of(
        self, couplings: Sequence[Coupling], num_frequencies: int, num_dims: int, spectrum: Spectrum
    ) -> tuple[Coupling, float]:
        """Return the coupling of the least objective over the validation draws, and this objective.

        Args:
            couplings: The couplings.
            num_frequencies: The number of frequencies.
            num_dims: The number of dimensions.
            spectrum: The spectrum.
        """

        def score(coupling: Coupling) -> float:
            return self.validate(lambda g: coupling.sample(num_frequencies, num_dims, spectrum=spectrum, generator=g))

        values = [score(coupling) for coupling in couplings]
        best = int(np.argmin(values))
        return couplings[best], values[best]

    def _mean(self, draw: Callable[[torch.Generator], Frequencies], generator: torch.Generator, count: int) -> Tensor:
        values = [self.objective(draw(generator)) for _ in range(count)]
        for value in values:
            if not isinstance(value, Tensor) or value.ndim != 0 or not bool(torch.isfinite(value)):
                raise InvalidArgumentError(f"The objective must return a finite 0-d tensor, got {value!r}.")
        return torch.stack(values).mean()

    def _copy(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.parameters]


def check_search(num_steps: int, num_draws: int, patience: int, learning_rate: float) -> None:
    """Refuse invalid options of a search.

    Args:
        num_steps: The largest number of steps.
        num_draws: The number of draws per step.
        patience: The number of validations without improvement.
        learning_rate: The first learning rate.

    Raises:
        InvalidArgumentError: If counts or the rate are not positive.

    Examples:
        >>> check_search(num_steps=10, num_draws=2, patience=3, learning_rate=0.1)
    """
    check_counts(num_steps=num_steps, num_draws=num_draws, patience=patience)
    if not 0 < learning_rate < math.inf:
        raise InvalidArgumentError(f"learning_rate must be positive, got {learning_rate!r}.")
