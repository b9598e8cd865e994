"""Posteriors of a function whose observations have noise that varies."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp.inference.laws import Functions, InputBlocks, Law, Posterior

OF_NOISE = "noise"
"""Before the names of tensors of the posterior of g, and a point."""


@dataclass(frozen=True, eq=False)
class NoisyLaw:
    """The law of the function at n points, beside that of the logarithm of the noise, independent of it.

    Attributes:
        function: Of f.
        noise: Of g, by whose exponential the noise varies.
    """

    function: Law
    noise: Law

    def mean(self) -> Tensor:
        """Return the mean (n, 1)."""
        return self.function.mean()

    def variance(self) -> Tensor:
        """Return the marginal variances (n,)."""
        return self.function.variance()

    def covariance(self) -> Tensor:
        """Return the covariance (n, n)."""
        return self.function.covariance()

    def root(self) -> Tensor:
        """Return a matrix R (n, r) with R R^T the covariance."""
        return self.function.root()


@dataclass(frozen=True, eq=False)
class NoisyPosterior:
    """Of the function, beside that of the logarithm of the noise.

    Attributes:
        function: Of f.
        noise: Of g.
    """

    function: Posterior
    noise: Posterior

    def law(self, inputs: Tensor | InputBlocks) -> NoisyLaw:
        """Return the latent laws at n inputs, (n, d) or (n,)."""
        return NoisyLaw(self.function.law(inputs), self.noise.law(inputs))

    def sample_functions(self, count: int, generator: torch.Generator) -> Functions:
        """Draw functions f of n inputs, (count, n, 1)."""
        return self.function.sample_functions(count, generator)

    def tensors(self) -> dict[str, Tensor]:
        """Return those of both by name, (...), "noise." before those of g."""
        return self.function.tensors() | {f"{OF_NOISE}.{name}": one for name, one in self.noise.tensors().items()}
