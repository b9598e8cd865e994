"""Random features of vectors. The caller scales the inputs: pass x / lengthscale."""

from typing import Any

import torch
from torch import Tensor, nn

from rfgp.couplings import Frequencies, as_frequencies
from rfgp.couplings.coupling import check_unpaired
from rfgp.errors import InvalidArgumentError

_ENTRIES = 2**19
"""The number of projections in a block of rows, chosen so that it stays in the cache."""


class _FeatureMap(nn.Module):
    """A feature map of frequencies (m, d), with m features by default."""

    def __init__(self, frequencies: Frequencies | Tensor) -> None:
        super().__init__()
        self.frequencies = as_frequencies(frequencies)

    @property
    def num_features(self) -> int:
        """The number m of features."""
        return self.frequencies.shape[0]

    @property
    def is_trigonometric(self) -> bool:
        """Whether the features are cosines of all frequencies, followed by sines."""
        return False


class Fourier(_FeatureMap):
    """Random Fourier features (Rahimi and Recht 2007): m cosines, then m sines.

    phi(x) . phi(z) = sum_i w_i / m cos(omega_i . (x - z)) is unbiased for the kernel of the spectrum.

    Args:
        frequencies: `Frequencies` or a plain (m, d) tensor.

    Raises:
        InvalidArgumentError: If the frequencies are antithetic.

    Examples:
        >>> from rfgp import couplings, features
        >>> phi = features.Fourier(couplings.by_name("energy").sample(64, 2, seed=0))
        >>> z = phi(torch.zeros(1, 2))
        >>> z.shape, round(float(z @ z.mT), 6)
        (torch.Size([1, 128]), 1.0)
    """

    def __init__(self, frequencies: Frequencies | Tensor) -> None:
        super().__init__(frequencies)
        check_unpaired(self.frequencies, "for Fourier features", ", or Laplace features")

    @property
    def num_features(self) -> int:
        """The number 2m of features."""
        return 2 * self.frequencies.shape[0]

    @property
    def is_trigonometric(self) -> bool:
        """Always True."""
        return True

    def forward(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, 2m)
        """Return the features of x, in its dtype and on its device.

        Args:
            x: The inputs divided by the lengthscale, (..., n, d).

        Returns:
            The cosines, then the sines, (..., n, 2m).
        """
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
    """The features [a cos(x . omega), a sin(x . omega)], (n, d) -> (n, 2m).

    They are differentiable any number of times.

    For gradients in the frequencies they are also given as a matrix (m, d). Blocks of rows are projected, and their
    cosines and sines are written to the result while the block is in the cache.
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
        grad_angles = out[:, :m] * grads[0][:, m:] - out[:, m:] * grads[0][:, :m]
        grad_x = grad_matrix = None
        if ctx.needs_input_grad[0]:
            grad_x = ctx.frequencies.adjoint(grad_angles) if matrix is None else grad_angles @ matrix
        if ctx.needs_input_grad[1]:
            grad_matrix = grad_angles.mT @ x
        return grad_x, grad_matrix, None, None


class Laplace(_FeatureMap):
    """Positive features sqrt(w_i / m) exp(-|x|^2 + omega_i . x).

    The spectrum must be Gaussian. They are unbiased for exp(-|x - z|^2 / 2), since E exp(omega . (x + z)) = exp(|x +
    z|^2 / 2) (Choromanski et al. 2021, Lemma 1; Reid et al. 2024, Eq. 4). The second moment of one term of the estimate
    is exp(4 x . z). So center the inputs, and keep them within a few lengthscales.

    Args:
        frequencies: `Frequencies` or a plain (m, d) tensor.

    Examples:
        >>> from rfgp import couplings, features
        >>> phi = features.Laplace(couplings.by_name("energy-antithetic").sample(64, 2, seed=0))
        >>> bool((phi(torch.randn(3, 2)) > 0).all())
        True
    """

    def forward(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, m)
        """Return the features of x, in its dtype and on its device.

        Args:
            x: The inputs divided by the lengthscale, (..., n, d).

        Returns:
            The features, (..., n, m).
        """
        exponent = self.frequencies.project(x) - (x**2).sum(-1, keepdim=True)
        return self.frequencies.amplitudes.to(x) * exponent.exp()


_REGISTRY: dict[str, type[Fourier] | type[Laplace]] = {"fourier": Fourier, "laplace": Laplace}


def by_name(name: str) -> type[Fourier] | type[Laplace]:
    """Return the class of a feature map by its name, "fourier" or "laplace".

    Args:
        name: The name.

    Raises:
        InvalidArgumentError: If the name is unknown.

    Examples:
        >>> from rfgp import features
        >>> features.by_name("laplace").__name__
        'Laplace'
    """
    if name not in _REGISTRY:
        raise InvalidArgumentError(f"features must be one of {', '.join(_REGISTRY)}, got {name!r}.")
    return _REGISTRY[name]


def names() -> tuple[str, ...]:
    """Return the names that `by_name` accepts.

    Examples:
        >>> from rfgp import features
        >>> features.names()
        ('fourier', 'laplace')
    """
    return tuple(_REGISTRY)
