"""Gradients in the parameters of features, block after block of rows."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rfgp.rows import Block
from rfgp.solvers.lowrank.model import LinearModel


class ParameterGradients:
    """Sums over blocks of rows of a gradient in the parameters of features.

    Args:
        model: The rows and their features.
        needs: Which of the parameters need a gradient.

    Attributes:
        sums: The gradients so far of all parameters, float64, in their shapes. 0 for those that need none.
    """

    def __init__(self, model: LinearModel, needs: Sequence[bool]) -> None:
        self._model, self._needs = model, tuple(needs)
        self.sums = [torch.zeros_like(parameter, dtype=torch.float64) for parameter in model.parameters]

    @property
    def is_needed(self) -> bool:
        """Whether any parameter needs a gradient."""
        return any(self._needs)

    def features(self, block: Block) -> Tensor:
        """Return the features (b, F) of the next block, without scales."""
        with torch.set_grad_enabled(self.is_needed):
            pairs = zip(self._model.parameters, self._needs, strict=True)
            self._leaves = tuple(parameter.detach().requires_grad_(need) for parameter, need in pairs)
            self._phi = self._model.phi(block, *self._leaves)
        return self._phi.detach()

    def add(self, upstream: Tensor) -> None:
        """Add the gradient, for the derivatives (b, F) in the features of the block."""
        wanted = [leaf for leaf in self._leaves if leaf.requires_grad]
        found = iter(torch.autograd.grad(self._phi, wanted, upstream.to(self._phi)))
        for total, need in zip(self.sums, self._needs, strict=True):
            if need:
                total += next(found)
