"""Draws of functions outside the box of a lattice.

Outside, f = W f(U) + r (`rfgp.lattices.design`), and r = g - W g(U) for a draw g of the kernel (Matheron's rule). Each
draw is one function, for any number of evaluations. g is a sum of cosines with its own random frequencies.

Source: Wilson et al. (2020), Efficiently sampling functions from Gaussian process posteriors, Equation 9.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rfgp.blocks import Prior, WeightBlock
from rfgp.lattices.design import LatticeDesign

NUM_COSINES = 256
"""The number of cosines of a draw. Over draws the covariance is exact for any number."""


@dataclass(frozen=True, eq=False)
class KernelDraws:
    """Draws g of a stationary kernel.

    They are g = sum_j a_j sqrt(2 / J) cos(omega_j . x / l + b_j).

    Attributes:
        frequencies: The frequencies omega, (count, J, d).
        phases: The phases b, (count, J).
        amplitudes: The standard normal amplitudes a, (count, J, k).
        lengthscales: The lengthscales l, (d,).
    """

    frequencies: Tensor
    phases: Tensor
    amplitudes: Tensor
    lengthscales: Tensor

    @classmethod
    def of(
        cls, design: LatticeDesign, parameters: Sequence[Tensor], count: int, k: int, generator: torch.Generator
    ) -> "KernelDraws":
        """Draw functions of the kernel of a design.

        Args:
            design: The design on a lattice, with its kernel.
            parameters: The hyperparameters of the kernel, () or (d,) each, in the order of the design's names.
            count: The number of draws.
            k: The number of outputs of a draw.
            generator: A generator on the CPU.
        """
        size, values = count * NUM_COSINES, dict(zip(design.names, parameters, strict=True))
        frequencies = design.product.sample(size, generator)
        phases = 2 * math.pi * torch.rand(count, NUM_COSINES, generator=generator, dtype=torch.float64)
        amplitudes = torch.randn(count, NUM_COSINES, k, generator=generator, dtype=torch.float64)
        lengthscales = design.product.lengthscales(values)
        return cls(frequencies.reshape(count, NUM_COSINES, -1), phases, amplitudes, lengthscales)

    def evaluate(self, points: Tensor) -> Tensor:
        """Return the values at points, draw by draw, (n, count k).

        Args:
            points: The points in the columns of the lattice, (n, d).
        """
        scaled, parts = points / self.lengthscales, []
        for omega, phases, amplitudes in zip(self.frequencies, self.phases, self.amplitudes, strict=True):
            parts.append((scaled @ omega.mT + phases).cos() @ amplitudes)
        return math.sqrt(2 / NUM_COSINES) * torch.cat(parts, dim=1)


@dataclass(frozen=True, eq=False)
class Extensions:
    """Draws of r, the part of f outside the box of lattices.

    It is independent of the values within the box.

    Attributes:
        parts: Each term on a lattice, with draws of its kernel for a variance of 1.
        count: The number of draws.
        num_outputs: The number k of outputs.
    """

    parts: tuple[tuple[WeightBlock, LatticeDesign, KernelDraws], ...]
    count: int
    num_outputs: int

    @classmethod
    def of(
        cls, prior: Prior, names: Sequence[str] | None, count: int, k: int, generator: torch.Generator
    ) -> "Extensions":
        """Draw the extensions of terms.

        Args:
            prior: The prior.
            names: The names of the terms. If None, all.
            count: The number of draws.
            k: The number of outputs of a draw.
            generator: A generator on the CPU.
        """
        return cls.of_blocks([b for b in prior.weights if names is None or b.name in names], count, k, generator)

    @classmethod
    def of_blocks(cls, blocks: Iterable[WeightBlock], count: int, k: int, generator: torch.Generator) -> "Extensions":
        """Draw the extensions of blocks.

        Args:
            blocks: The blocks. Those that are not on a lattice have no extension.
            count: The number of draws.
            k: The number of outputs of a draw.
            generator: A generator on the CPU.
        """
        parts = [
            (block, block.new_levels, KernelDraws.of(block.new_levels, block.parameters, count, k, generator))
            for block in blocks
            if isinstance(block.new_levels, LatticeDesign)
        ]
        return cls(tuple(parts), count, k)

    def evaluate(self, inputs: Tensor) -> Tensor:
        """Return the sums of the draws over all terms, (count, n, k).

        Args:
            inputs: The inputs of n points, (n, D).
        """
        total = torch.zeros(len(inputs), self.count * self.num_outputs, dtype=torch.float64)
        for block, design, draws in self.parts:
            total = total + block.prior_variance.sqrt() * design.extend(inputs, draws.evaluate, *block.parameters)
        return total.reshape(len(inputs), self.count, self.num_outputs).movedim(0, 1)
