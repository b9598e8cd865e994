"""The two basic estimators of the softmax kernel: trigonometric and positive."""

import torch
from torch import Tensor

from rfgp.couplings import Frequencies, as_frequencies
from rfgp.couplings.frequencies import check_unpaired
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
        frequencies: The m frequencies.
        kernel: "softmax" or "gaussian".

    Examples:
        >>> from rfgp import couplings
        >>> side = ExponentialMap(couplings.as_frequencies(torch.eye(2)), "softmax")
        >>> side(torch.zeros(1, 2)).square().round(decimals=3)
        tensor([[0.5000, 0.5000]])
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
    """The trigonometric estimator of the softmax kernel.

    Its features are exp(|x|^2 / 2) (cos(omega . x), sin(omega . x)). It is accurate for small x - y and exact for x =
    y. For the Gaussian kernel it is `rfgp.features.Fourier`.

    Source: Rahimi and Recht (2007); Choromanski et al. (2022), Eq. 2.

    Args:
        frequencies: Gaussian `Frequencies`, or a plain (m, d) tensor.
        kernel: "softmax" or "gaussian".

    Raises:
        InvalidArgumentError: If the kernel is unknown, or the frequencies are antithetic.

    Examples:
        >>> from rfgp import couplings
        >>> pair = Trigonometric(couplings.by_name("orthogonal").sample(8, 2, seed=0), "gaussian")
        >>> x = torch.ones(1, 2)
        >>> round(float(pair(x, x)), 6)
        1.0
    """

    def __init__(self, frequencies: Frequencies | Tensor, kernel: str = "softmax") -> None:
        drawn = as_frequencies(frequencies)
        check_unpaired(drawn, "for trigonometric features", ", or positive features")
        side = _TrigonometricMap(drawn, kernel)
        super().__init__(side, side)


class Positive(FeaturePair):
    """The positive estimator (FAVOR+) of the softmax kernel.

    Its features are exp(omega . x - |x|^2 / 2). It is accurate for small x + y and exact for x = -y. For the Gaussian
    kernel it is `rfgp.features.Laplace`.

    Source: Choromanski et al. (2021), Lemma 1; Choromanski et al. (2022), Eq. 3.

    Args:
        frequencies: Gaussian `Frequencies`, or a plain (m, d) tensor.
        kernel: "softmax" or "gaussian".

    Raises:
        InvalidArgumentError: If the kernel is unknown.

    Examples:
        >>> from rfgp import couplings
        >>> pair = Positive(couplings.by_name("orthogonal").sample(8, 2, seed=0))
        >>> x = torch.ones(1, 2)
        >>> round(float(pair(x, -x)), 4), pair.is_positive  # exp(-2)
        (0.1353, True)
    """

    def __init__(self, frequencies: Frequencies | Tensor, kernel: str = "softmax") -> None:
        side = ExponentialMap(as_frequencies(frequencies), kernel)
        super().__init__(side, side)
