"""Random features of vectors. The scale is the caller's: pass x / lengthscale."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from rfgp.couplings import Frequencies, as_frequencies
from rfgp.errors import InvalidArgumentError

_ENTRIES = 2**19
"""Of a block of projections."""


class _FeatureMap(nn.Module):
    """A feature map of frequencies (m, d), with as many features unless it says otherwise."""

    def __init__(self, frequencies: Frequencies | Tensor) -> None:
        super().__init__()
        self.frequencies = as_frequencies(frequencies)

    @property
    def num_features(self) -> int:
        """The number m of features."""
        return self.frequencies.shape[0]

    @property
    def is_trigonometric(self) -> bool:
        """Whether they are cosines of all frequencies, followed by sines."""
        return False


class Fourier(_FeatureMap):
    """Random Fourier features (Rahimi and Recht 2007), m cosines, then m sines.

    phi(x) . phi(z) = sum_i w_i / m cos(omega_i . (x - z)), unbiased for the kernel of the spectrum.

    Args:
        frequencies: `Frequencies` or a plain (m, d) tensor.
    """

    def __init__(self, frequencies: Frequencies | Tensor) -> None:
        super().__init__(frequencies)
        if self.frequencies.antithetic:
            raise InvalidArgumentError(
                "Fourier features of antithetic frequencies repeat each other: cos and sin of -omega . x add nothing. "
                "Use the coupling without -antithetic, or Laplace features."
            )

    @property
    def num_features(self) -> int:
        """The number 2m of features."""
        return 2 * self.frequencies.shape[0]

    @property
    def is_trigonometric(self) -> bool:
        """They are cosines of all frequencies, followed by sines."""
        return True

    def forward(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, 2m)
        """Return the features of x, in its dtype and on its device."""
        self.frequencies.check_inputs(x)
        amplitude = self.frequencies.amplitudes.to(x)
        if bool((self.frequencies.weights == 1).all()):
            amplitude = amplitude[0]
        if self.frequencies.weights.requires_grad:
            angles = self.frequencies.project(x)
            return torch.cat([amplitude * angles.cos(), amplitude * angles.sin()], dim=-1)
        flat = x.reshape(-1, x.shape[-1]) if x.ndim > 1 else x[None]
        learned = self.frequencies.dense().to(x) if self.frequencies.requires_grad else None
        out: Tensor = _CosineSine.apply(flat, learned, self.frequencies, amplitude)
        return out.reshape(*x.shape[:-1], self.num_features)


class _CosineSine(torch.autograd.Function):
    """a cos(x . omega) beside a sin(x . omega), (n, d) -> (n, 2m); differentiable any number of times.

    The frequencies are given again as a matrix (m, d) where gradients in them are wanted. Blocks of rows are projected,
    and their cosines and sines written where they belong, while they are in the cache.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor | None, frequencies: Frequencies, amplitude: Tensor) -> Tensor:
        m = frequencies.shape[0]
        out, rows = x.new_empty(len(x), 2 * m), max(1, _ENTRIES // m)
        for start in range(0, len(x), rows):
            angles, block = frequencies.project(x[start : start + rows]), out[start : start + rows]
            torch.cos(angles, out=block[:, :m])
            torch.sin(angles, out=block[:, m:])
            block.mul_(amplitude) if amplitude.ndim == 0 else block.view(-1, 2, m).mul_(amplitude)
        ctx.frequencies = frequencies
        ctx.save_for_backward(out, x, matrix)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        out, x, matrix = ctx.saved_tensors
        m = out.shape[-1] // 2
        in_angles = out[:, :m] * grads[0][:, m:] - out[:, m:] * grads[0][:, :m]
        in_x = in_matrix = None
        if ctx.needs_input_grad[0]:
            in_x = ctx.frequencies.adjoint(in_angles) if matrix is None else in_angles @ matrix
        if ctx.needs_input_grad[1]:
            in_matrix = in_angles.mT @ x
        return in_x, in_matrix, None, None


class RandomPhase(_FeatureMap):
    """Random Fourier features with a phase, sqrt(2 w_i / m) cos(omega_i . x + b_i) (Rahimi and Recht 2007, Eq. 3).

    Half as many features as `Fourier` for the same m, and for the Gaussian kernel noisier for the same number of
    features: phi(x) . phi(z) carries cos(omega . (x + z) + 2 b) besides, which averages out over the phases only.
    phi(x) . phi(x) is 1 only on average.

    Args:
        frequencies: `Frequencies` or a plain (m, d) tensor.
        generator: A CPU generator for the phases b, uniform in [0, 2 pi).
    """

    def __init__(self, frequencies: Frequencies | Tensor, *, generator: torch.Generator) -> None:
        super().__init__(frequencies)
        self.phases = 2 * math.pi * torch.rand(self.num_features, generator=generator, dtype=torch.float64)

    def forward(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, m)
        """Return the features of x, in its dtype and on its device."""
        angles = self.frequencies.project(x) + self.phases.to(x)
        return math.sqrt(2) * self.frequencies.amplitudes.to(x) * angles.cos()


class Laplace(_FeatureMap):
    """Positive features sqrt(w_i / m) exp(-|x|^2 + omega_i . x), for the Gaussian spectrum only.

    Unbiased for exp(-|x - z|^2 / 2), since E exp(omega . (x + z)) = exp(|x + z|^2 / 2)
    (Choromanski et al. 2021, Lemma 1; Reid et al. 2024, Eq. 4). The second moment of one term of
    the estimate is exp(4 x . z): center the inputs, and keep them within a few lengthscales.

    Args:
        frequencies: `Frequencies` or a plain (m, d) tensor.
    """

    def forward(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, m)
        """Return the features of x, in its dtype and on its device."""
        exponent = self.frequencies.project(x) - (x**2).sum(-1, keepdim=True)
        return self.frequencies.amplitudes.to(x) * exponent.exp()


_REGISTRY: dict[str, type[Fourier] | type[Laplace]] = {"fourier": Fourier, "laplace": Laplace}


def by_name(name: str) -> type[Fourier] | type[Laplace]:
    """Return a feature map's class by its name, "fourier" or "laplace".

    Raises:
        InvalidArgumentError: there is no feature map of that name.
    """
    if name not in _REGISTRY:
        raise InvalidArgumentError(f"There are no features {name!r}; known are {', '.join(_REGISTRY)}.")
    return _REGISTRY[name]


def names() -> tuple[str, ...]:
    """Return the names that `by_name` knows."""
    return tuple(_REGISTRY)
