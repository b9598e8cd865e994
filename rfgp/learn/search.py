"""Objectives for learning a coupling, and the search for its parameters by Adam with new draws in each step."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp import features as feature_maps
from rfgp import metrics, random
from rfgp.couplings import Frequencies
from rfgp.couplings.coupling import Coupling
from rfgp.errors import InvalidArgumentError
from rfgp.features import softmax
from rfgp.linalg import finite_rows, real_array
from rfgp.messages import check_counts
from rfgp.progress import Bar
from rfgp.spectra import Gaussian, Spectrum

Objective = Callable[[Frequencies], Tensor]
"""A function of frequencies (m, d) and their weights, differentiable in both. Its value, a 0-d tensor, is minimized."""


def kernel_error(
    x: Any,  # (n, d)
    *,
    spectrum: Spectrum | None = None,
    features: str = "fourier",
) -> Objective:
    """Return the objective of Eq. 35 of Reid et al. (2024), the root mean squared kernel error over pairs of inputs.

    Args:
        x: Inputs divided by the lengthscale, (n, d).
        spectrum: The spectrum. If None, the Gaussian one.
        features: "fourier" or "laplace".

    Returns:
        A function of frequencies (m, d) whose value is a 0-d tensor.

    Examples:
        >>> from rfgp import couplings, learn
        >>> objective = learn.kernel_error([[0.0], [1.0]])
        >>> 0 <= float(objective(couplings.by_name("iid").sample(16, 1, seed=0))) < 0.5
        True
    """

    def error(exact: Tensor, estimate: Tensor) -> Tensor:
        return (estimate - exact).square().mean().sqrt()

    return _of_kernels(error, x, spectrum, features)


def posterior_divergence(
    x: Any,  # (n, d)
    num_train: int,
    noise: float,
    *,
    spectrum: Spectrum | None = None,
    features: str = "fourier",
) -> Objective:
    """Return the objective of the expected KL divergence between posteriors, in nats per test point.

    It compares the exact posterior with that of the features.

    Args:
        x: Inputs divided by the lengthscale, (n, d), training rows first.
        num_train: The number of training rows.
        noise: The noise variance divided by the outputscale.
        spectrum: The spectrum. If None, the Gaussian one.
        features: "fourier" or "laplace".

    Returns:
        A function of frequencies (m, d) whose value is a 0-d tensor.

    Examples:
        >>> from rfgp import couplings, learn
        >>> objective = learn.posterior_divergence([[0.0], [1.0], [0.5]], num_train=2, noise=0.1)
        >>> float(objective(couplings.by_name("iid").sample(16, 1, seed=0))) > 0
        True
    """
    divergence = partial(metrics.expected_posterior_kl, num_train=num_train, noise=noise)
    return _of_kernels(divergence, x, spectrum, features)


def _of_kernels(
    compare: Callable[[Tensor, Tensor], Tensor], x: Any, spectrum: Spectrum | None, features: str
) -> Objective:
    """Return a function of frequencies that compares the exact kernel of inputs (n, d) with its estimate."""
    rows, kind = finite_rows(x, least=2), feature_maps.by_name(features)
    exact = (spectrum or Gaussian()).kernel_between(rows, rows)

    def objective(frequencies: Frequencies) -> Tensor:
        phi = kind(frequencies)(rows)
        return compare(exact, phi @ phi.mT)

    return objective


def attention_error(
    queries: Any,  # (..., n, d)
    keys: Any,  # (..., k, d)
    *,
    scale: float | None = None,
) -> Objective:
    """Return the objective of softmax attention, for positive features.

    It is the mean squared error of the normalized scores. A common factor of all scores of a row cancels. So other
    couplings are optimal for this error than for the kernel.

    Source: Reid et al. (2024), section 5, where couplings for it are an open question.

    Args:
        queries: Typical queries, (..., n, d).
        keys: Typical keys, (..., k, d).
        scale: The factor of their products. If None, 1 / sqrt(d).

    Returns:
        A function of frequencies (m, d) whose value is a 0-d tensor.

    Raises:
        InvalidArgumentError: If inputs are not finite, have no rows, or differ in d.

    Examples:
        >>> from rfgp import couplings, learn
        >>> objective = learn.attention_error(torch.eye(2), torch.eye(2))
        >>> 0 < float(objective(couplings.by_name("iid").sample(16, 2, seed=0))) < 1
        True
    """
    q, k = (torch.tensor(real_array(*pair)) for pair in (("Queries", queries), ("Keys", keys)))
    if min(q.ndim, k.ndim) < 2 or q.shape[-1] != k.shape[-1] or q.numel() * k.numel() == 0:
        raise InvalidArgumentError(
            f"Queries (..., n, d) and keys (..., k, d) must share d and have rows, got {tuple(q.shape)} and "
            f"{tuple(k.shape)}."
        )
    if not bool(torch.isfinite(q).all() and torch.isfinite(k).all()):
        raise InvalidArgumentError("Queries and keys must be finite, got entries that are not.")
    root = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    q, k = root * q, root * k
    exact = (q @ k.mT).softmax(-1)

    def objective(frequencies: Frequencies) -> Tensor:
        error: Tensor = (_row_normalised(frequencies, q, k) - exact).square().mean()
        return error

    return objective


def _row_normalised(frequencies: Frequencies, q: Tensor, k: Tensor) -> Tensor:
    """Return the estimated scores (..., n, k) over their row sums, stabilized for each feature."""
    side = softmax.Positive(frequencies).left
    assert isinstance(side, softmax.PositiveMap)
    left, right = side.log_values(q), side.log_values(k)
    peak = right.detach().amax(-2, keepdim=True)
    rows = left + peak
    scores = (rows - rows.detach().amax(-1, keepdim=True)).exp() @ (right - peak).exp().mT
    normalised: Tensor = scores / scores.sum(-1, keepdim=True)
    return normalised


# --- The search for the parameters of a coupling ----------------------------------------------------------------------


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
