"""Couplings learned for an objective: the copula of the norms, and the radial law with its weights.

Frequencies are a differentiable function of the parameters and of random numbers that do not depend on them, so the
gradient of the mean objective is the mean of gradients (couplings paper, section 3.3). Each step draws new ensembles;
what counts is the objective over a fixed set of others, by which the best parameters are kept and the search ends.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp import features as feature_maps
from rfgp import metrics, random
from rfgp.couplings import Copula, Energy, Frequencies, norms
from rfgp.couplings.coupling import Coupling
from rfgp.couplings.orthogonal import haar_blocks, haar_rows
from rfgp.couplings.radial import BROADENINGS, histogram_quantile
from rfgp.errors import InvalidArgumentError
from rfgp.linalg import finite_rows
from rfgp.spectra import Gaussian, Spectrum

Objective = Callable[[Frequencies], Tensor]
"""From frequencies (m, d) and weights, differentiable in both, to what is minimised, 0-d."""

_CHECK_EVERY = 10
_LARGEST_NORMAL = 8.0


@dataclass(frozen=True, eq=False)
class Learned:
    """What was learned.

    Attributes:
        coupling: To sample from.
        trace: The objective over the fixed draws, at the start and after every ten steps.
        best: The coupling's own value over these draws.
        num_steps: Steps that were taken.
        message: Why they ended.
    """

    coupling: Coupling
    trace: tuple[float, ...]
    best: float
    num_steps: int
    message: str


# --- objectives ------------------------------------------------------------------------------------------------


def kernel_error(
    x: Any,  # (n, d)
    *,
    spectrum: Spectrum | None = None,
    features: str = "fourier",
) -> Objective:
    """Return the objective of the couplings paper's Eq. 35, the root mean squared kernel error over pairs of inputs.

    Args:
        x: Inputs divided by the lengthscale, (n, d).
        spectrum: None: Gaussian.
        features: "fourier" or "laplace".
    """
    rows, kind = finite_rows(x, least=2), feature_maps.by_name(features)
    exact = (spectrum or Gaussian()).kernel_between(rows, rows)

    def objective(frequencies: Frequencies) -> Tensor:
        phi = kind(frequencies)(rows)
        error: Tensor = (phi @ phi.mT - exact).square().mean().sqrt()
        return error

    return objective


def posterior_divergence(
    x: Any,  # (n, d)
    num_train: int,
    noise: float,
    *,
    spectrum: Spectrum | None = None,
    features: str = "fourier",
) -> Objective:
    """Return the objective of the expected KL between exact and approximate posteriors, in nats per test point.

    Args:
        x: Inputs divided by the lengthscale, (n, d), training rows first.
        num_train: The number of training rows.
        noise: The noise variance divided by the outputscale.
        spectrum: None: Gaussian.
        features: "fourier" or "laplace".
    """
    rows, kind = finite_rows(x, least=2), feature_maps.by_name(features)
    exact = (spectrum or Gaussian()).kernel_between(rows, rows)

    def objective(frequencies: Frequencies) -> Tensor:
        phi = kind(frequencies)(rows)
        return metrics.expected_posterior_kl(exact, phi @ phi.mT, num_train, noise)

    return objective


# --- what can be learned -----------------------------------------------------------------------------------------


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
    positive definite correlation matrix and no other (Eq. 34).

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
    law, k = spectrum or Gaussian(), num_dims if size is None else size
    _check_counts(num_frequencies=num_frequencies, num_dims=num_dims, size=k, num_steps=num_steps, num_draws=num_draws)
    _check_counts(patience=patience)
    _check_rate(learning_rate)
    theta = torch.zeros(k, k, dtype=torch.float64, requires_grad=True)

    def draw(generator: torch.Generator) -> Frequencies:
        normal = torch.randn(-(-num_frequencies // k), k, generator=generator, dtype=torch.float64)
        coupled = (normal @ _factor(theta).mT).reshape(-1)[:num_frequencies]
        directions = haar_blocks(num_frequencies, num_dims, generator)
        lengths: Tensor = _Radial.apply(coupled, law, num_dims)
        return Frequencies(directions * lengths[:, None])

    search = _Search(objective, draw, [theta], num_steps, num_draws, learning_rate, patience, seed)
    trace, steps, message = search.run(progress)
    factor = _factor(theta).detach()
    return Learned(Copula((factor @ factor.mT).tolist()), trace, min(trace), steps, message)


def learn_radial_law(
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
    law, base = spectrum or Gaussian(), Energy(features, weighted=True)
    counts = {"num_frequencies": num_frequencies, "num_dims": num_dims, "num_bins": num_bins}
    _check_counts(**counts, num_steps=num_steps, num_draws=num_draws, patience=patience)
    _check_rate(learning_rate)
    start = base.solution(num_frequencies, num_dims, spectrum=law)
    solved = start.unit()
    logits = torch.zeros(num_bins, dtype=torch.float64, requires_grad=True)
    log_b = torch.tensor(math.log(start.broadening), dtype=torch.float64, requires_grad=True)
    bounds = math.log(BROADENINGS[0]), math.log(BROADENINGS[1])

    def draw(generator: torch.Generator) -> Frequencies:
        n = len(solved)
        u = norms.stratified(n, generator, mirrored=True)
        inner, weights = histogram_quantile(torch.softmax(logits, 0) * num_bins, u)
        radius: Tensor = _Radial.apply(_to_normal(inner), law, num_dims)
        inside = log_b.clamp(*bounds)
        wide = radius * inside.exp()
        weights = weights * torch.exp(
            inside + _LogDensity.apply(wide, law, num_dims) - _LogDensity.apply(radius, law, num_dims)
        )
        rows = (solved @ haar_rows(1, num_dims, num_dims, generator)) * wide[:, None]
        return Frequencies(rows, weights) if features == "fourier" else Frequencies.paired(rows, weights)

    search = _Search(objective, draw, [logits, log_b], num_steps, num_draws, learning_rate, patience, seed)
    trace, steps, message = search.run(progress)
    broadening = min(max(math.exp(float(log_b.detach())), BROADENINGS[0]), BROADENINGS[1])
    heights = torch.softmax(logits.detach(), 0) * num_bins
    learned = Energy(features, tilt=heights.tolist(), broadening=broadening)

    def judged(coupling: Energy) -> float:
        return search.judge(lambda g: coupling.sample(num_frequencies, num_dims, spectrum=law, generator=g))

    values = {coupling: judged(coupling) for coupling in (base, learned)}
    best = min(values, key=values.__getitem__)
    return Learned(best, trace, values[best], steps, message)


# --- the search ----------------------------------------------------------------------------------------------------


@dataclass
class _Search:
    objective: Objective
    draw: Callable[[torch.Generator], Frequencies]
    parameters: list[Tensor]
    num_steps: int
    num_draws: int
    learning_rate: float
    patience: int
    seed: int

    def run(self, progress: bool) -> tuple[tuple[float, ...], int, str]:
        """Leave the best parameters in place; return the trace, the steps taken, and why they ended."""
        adam = torch.optim.Adam(self.parameters, lr=self.learning_rate)
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(adam, self.num_steps)
        generator = random.generator(random.resolve_seed(self.seed), random.Role.FREQUENCIES, 0)
        trace, best, message = [self.judge(self.draw)], self._copy(), "All steps were taken."
        with _Bar(self.num_steps, progress) as show:
            for step in range(1, self.num_steps + 1):
                adam.zero_grad()
                loss = self._mean(self.draw, generator, self.num_draws)
                if not loss.requires_grad:
                    raise InvalidArgumentError("The objective must be differentiable in the frequencies.")
                loss.backward()
                adam.step()
                falling.step()
                if step % _CHECK_EVERY and step < self.num_steps:
                    continue
                trace.append(self.judge(self.draw))
                show(step, trace[-1])
                if trace[-1] == min(trace):
                    best = self._copy()
                if len(trace) - 1 - int(np.argmin(trace)) >= self.patience:
                    message = f"No improvement in {self.patience * _CHECK_EVERY} steps."
                    break
        with torch.no_grad():
            for parameter, value in zip(self.parameters, best, strict=True):
                parameter.copy_(value)
        return tuple(trace), step, message

    def judge(self, draw: Callable[[torch.Generator], Frequencies]) -> float:
        """The objective over the draws that judge, which always have the same random numbers."""
        with torch.no_grad():
            generator = random.generator(random.resolve_seed(self.seed), random.Role.FREQUENCIES, 1)
            return float(self._mean(draw, generator, 4 * self.num_draws))

    def _mean(self, draw: Callable[[torch.Generator], Frequencies], generator: torch.Generator, count: int) -> Tensor:
        values = [self.objective(draw(generator)) for _ in range(count)]
        for value in values:
            if not isinstance(value, Tensor) or value.ndim != 0 or not bool(torch.isfinite(value)):
                raise InvalidArgumentError(f"The objective must return a finite 0-d tensor, got {value!r}.")
        return torch.stack(values).mean()

    def _copy(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.parameters]


class _Bar:
    """A progress bar with the present objective, on a terminal that is wanted."""

    def __init__(self, total: int, wanted: bool) -> None:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        self._progress = Progress(console=console, transient=True, disable=not (wanted and console.is_terminal))
        self._task = self._progress.add_task("learning", total=total)

    def __enter__(self) -> Callable[[int, float], None]:
        self._progress.start()
        return lambda step, value: self._progress.update(
            self._task, completed=step, description=f"objective {value:.4g}"
        )

    def __exit__(self, *error: Any) -> None:
        self._progress.stop()


# --- differentiable pieces -----------------------------------------------------------------------------------------


def _factor(theta: Tensor) -> Tensor:
    """Rows (theta_i1, ..., theta_i(i-1), 1, 0, ...) of unit length: a Cholesky factor of a correlation matrix."""
    rows = theta.tril(-1) + torch.eye(len(theta), dtype=theta.dtype)
    factor: Tensor = rows / rows.norm(dim=1, keepdim=True)
    return factor


def _to_normal(u: Tensor) -> Tensor:
    normal: Tensor = torch.special.ndtri(u.clamp(1e-15, 1 - 1e-15))
    return normal


class _Radial(torch.autograd.Function):
    """r = F^{-1}(Phi(z)), dr/dz = phi(z) / f(r)."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, law: Spectrum, num_dims: int) -> Tensor:
        inside = z.clamp(-_LARGEST_NORMAL, _LARGEST_NORMAL)
        r = law.radial_quantile(torch.special.ndtr(inside).clamp(2.0**-53, 1 - 2.0**-53), num_dims)
        log_slope = -(inside**2) / 2 - 0.5 * math.log(2 * math.pi) - law.radial_log_density(r, num_dims)
        ctx.save_for_backward(log_slope.exp())
        return r

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return grads[0] * slope, None, None


class _LogDensity(torch.autograd.Function):
    """log f(r), its derivative by central differences in log r."""

    @staticmethod
    def forward(ctx: Any, r: Tensor, law: Spectrum, num_dims: int) -> Tensor:
        step = 1e-5
        up, down = (law.radial_log_density(r * math.exp(sign * step), num_dims) for sign in (1, -1))
        ctx.save_for_backward((up - down) / (2 * step * r))
        return law.radial_log_density(r, num_dims)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return grads[0] * slope, None, None


def _check_counts(**counts: int) -> None:
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise InvalidArgumentError(f"{name} must be a positive integer, got {value!r}.")


def _check_rate(learning_rate: float) -> None:
    if not 0 < learning_rate < math.inf:
        raise InvalidArgumentError(f"learning_rate must be positive, got {learning_rate!r}.")
