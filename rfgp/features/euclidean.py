"""Random features of vectors. The scale is the caller's: pass x / lengthscale."""

import torch
from torch import Tensor, nn

from rfgp.couplings import Frequencies
from rfgp.errors import InvalidArgumentError


class Fourier(nn.Module):
    """Random Fourier features (Rahimi and Recht 2007), m cosines, then m sines.

    phi(x) . phi(z) = sum_i w_i / m cos(omega_i . (x - z)), unbiased for the kernel of the spectrum.

    Args:
        frequencies: `Frequencies` or a plain (m, d) tensor.
    """

    def __init__(self, frequencies: Frequencies | Tensor) -> None:
        super().__init__()
        self.frequencies = _as_frequencies(frequencies)
        if self.frequencies.antithetic:
            raise InvalidArgumentError(
                "Fourier features of antithetic frequencies repeat each other: cos and sin of -omega . x add nothing. "
                "Use the coupling without -antithetic, or Laplace features."
            )

    @property
    def num_features(self) -> int:
        """The number 2m of features."""
        return 2 * self.frequencies.shape[0]

    def forward(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, 2m)
        """Return the features of x, in its dtype and on its device."""
        angles = self.frequencies.project(x)
        amplitude = _amplitude(self.frequencies, x)
        return torch.cat([amplitude * angles.cos(), amplitude * angles.sin()], dim=-1)


class Laplace(nn.Module):
    """Positive features sqrt(w_i / m) exp(-|x|^2 + omega_i . x), for the Gaussian spectrum only.

    Unbiased for exp(-|x - z|^2 / 2), since E exp(omega . (x + z)) = exp(|x + z|^2 / 2)
    (Choromanski et al. 2021, Lemma 1; Reid et al. 2024). The second moment of one term of
    the estimate is exp(4 x . z): center the inputs, and keep them within a few lengthscales.

    Args:
        frequencies: `Frequencies` or a plain (m, d) tensor.
    """

    def __init__(self, frequencies: Frequencies | Tensor) -> None:
        super().__init__()
        self.frequencies = _as_frequencies(frequencies)

    @property
    def num_features(self) -> int:
        """The number m of features."""
        return self.frequencies.shape[0]

    def forward(
        self,
        x: Tensor,  # (..., n, d)
    ) -> Tensor:  # (..., n, m)
        """Return the features of x, in its dtype and on its device."""
        exponent = self.frequencies.project(x) - (x**2).sum(-1, keepdim=True)
        return _amplitude(self.frequencies, x) * exponent.exp()


def _as_frequencies(frequencies: Frequencies | Tensor) -> Frequencies:
    return frequencies if isinstance(frequencies, Frequencies) else Frequencies(frequencies)


def _amplitude(frequencies: Frequencies, x: Tensor) -> Tensor:
    return (frequencies.weights / frequencies.shape[0]).sqrt().to(x)


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
