"""The two basic estimators of the softmax kernel: trigonometric and positive."""

import torch
from torch import Tensor

from rfgp.couplings import Frequencies, as_frequencies
from rfgp.errors import InvalidArgumentError
from rfgp.features.softmax.pair import FeaturePair, SideMap


class _TrigonometricMap(SideMap):
    def __init__(self, frequencies: Frequencies, kernel: str) -> None:
        super().__init__(kernel)
        self.frequencies = frequencies

    @property
    def num_features(self) -> int:
        return 2 * self.frequencies.shape[0]

    def forward(self, x: Tensor) -> Tensor:
        angles = self.frequencies.project(x)
        size = self.shift(x) + 0.5 * x.square().sum(-1, keepdim=True)
        amplitude = size.exp() * self.frequencies.amplitudes.to(x)
        return torch.cat([amplitude * angles.cos(), amplitude * angles.sin()], dim=-1)


class ExponentialMap(SideMap):
    """Features exp(omega . x - |x|^2 / 2) of the softmax kernel.

    Args:
        frequencies: Of m features.
        kernel: "softmax" or "gaussian".
    """

    def __init__(self, frequencies: Frequencies, kernel: str) -> None:
        super().__init__(kernel)
        self.frequencies = frequencies

    @property
    def num_features(self) -> int:
        """The number m of features."""
        return self.frequencies.shape[0]

    def forward(self, x: Tensor) -> Tensor:
        """Return the features of x, (..., n, d) -> (..., n, m)."""
        return self.log_values(x).exp()

    def log_values(self, x: Tensor) -> Tensor:
        """Return the logarithms of the features of x, (..., n, d) -> (..., n, m)."""
        projected = self.frequencies.project(x)
        amplitude = self.frequencies.amplitudes.log().to(x)
        return projected - 0.5 * x.square().sum(-1, keepdim=True) + self.shift(x) + amplitude


class Trigonometric(FeaturePair):
    """The trigonometric estimator: features exp(|x|^2 / 2) (cos(omega . x), sin(omega . x)) of the softmax kernel.

    Accurate for small x - y, exact where they are equal. Of the Gaussian kernel these are `rfgp.features.Fourier`.

    Source: Rahimi and Recht (2007); Choromanski et al. (2022), Eq. 2.

    Args:
        frequencies: Gaussian `Frequencies`, or a plain (m, d) tensor.
        kernel: "softmax" or "gaussian".

    Raises:
        InvalidArgumentError: another kernel, or antithetic frequencies, whose features repeat each other.
    """

    def __init__(self, frequencies: Frequencies | Tensor, kernel: str = "softmax") -> None:
        drawn = as_frequencies(frequencies)
        if drawn.antithetic:
            raise InvalidArgumentError(
                "Trigonometric features of antithetic frequencies repeat each other. Use the coupling without "
                "-antithetic, or positive features."
            )
        side = _TrigonometricMap(drawn, kernel)
        super().__init__(side, side)


class Positive(FeaturePair):
    """The positive estimator (FAVOR+): features exp(omega . x - |x|^2 / 2) of the softmax kernel.

    Accurate for small x + y, exact where it is 0. Of the Gaussian kernel these are `rfgp.features.Laplace`.

    Source: Choromanski et al. (2021), Lemma 1; Choromanski et al. (2022), Eq. 3.

    Args:
        frequencies: Gaussian `Frequencies`, or a plain (m, d) tensor.
        kernel: "softmax" or "gaussian".

    Raises:
        InvalidArgumentError: another kernel.
    """

    def __init__(self, frequencies: Frequencies | Tensor, kernel: str = "softmax") -> None:
        side = ExponentialMap(as_frequencies(frequencies), kernel)
        super().__init__(side, side)
