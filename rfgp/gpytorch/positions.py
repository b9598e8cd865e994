"""The base class of kernels of graph nodes, with positions as inputs and parameters of GPyTorch."""

from typing import Any

import gpytorch
import torch
from torch import Tensor

from graphs.kernels import GraphKernel
from rfgp.errors import InvalidArgumentError


class PositionKernel(gpytorch.kernels.Kernel):
    """A kernel of nodes' positions (..., n, 1) with the parameters of a graph kernel.

    The parameters are GPyTorch parameters `raw_<name>` with a positive constraint, one for each element of a batch.
    `kernel.<name>` has their values.

    Args:
        kernel: The graph kernel at its starting values.
        kernel_kwargs: Options of `gpytorch.kernels.Kernel`.

    Examples:
        >>> import graphs
        >>> kernel = PositionKernel(graphs.kernels.Diffusion(2.0))
        >>> kernel.parameter_names, round(kernel.lengthscale.item(), 3)
        (('lengthscale',), 2.0)
    """

    def __init__(self, kernel: GraphKernel, **kernel_kwargs: Any) -> None:
        super().__init__(**kernel_kwargs)
        self._names = kernel.parameters
        for name, value in zip(kernel.parameters, kernel.values, strict=True):
            constraint = gpytorch.constraints.Positive()
            start = constraint.inverse_transform(torch.full(self.batch_shape, float(value)))
            self.register_parameter(f"raw_{name}", torch.nn.Parameter(start))
            self.register_constraint(f"raw_{name}", constraint)

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_names", ()):
            raw = f"raw_{name}"
            return getattr(self, f"{raw}_constraint").transform(getattr(self, raw))
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("_names", ()):
            raw = getattr(self, f"raw_{name}")
            value = torch.as_tensor(value, dtype=raw.dtype, device=raw.device).expand(raw.shape)
            self.initialize(**{f"raw_{name}": getattr(self, f"raw_{name}_constraint").inverse_transform(value)})
        else:
            super().__setattr__(name, value)

    @property
    def lengthscale(self) -> Tensor | None:
        """The lengthscale of the graph kernel, of the shape of the batch, or None if it has none."""
        return self.__getattr__("lengthscale") if "lengthscale" in self._names else None

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The names of the graph kernel's p parameters."""
        return tuple(self._names)

    def _theta(self) -> Tensor:
        """Return the graph kernel's parameters for each element of the batch, flattened, (b, p)."""
        theta = [getattr(self, name).reshape(-1) for name in self._names]
        return torch.stack(theta, dim=-1) if theta else torch.zeros(max(1, self.batch_shape.numel()), 0)


def whole(
    positions: Tensor,  # (...)
) -> Tensor:
    """Return positions as integers.

    Args:
        positions: Positions (...).

    Raises:
        InvalidArgumentError: If a position is not an integer.

    Examples:
        >>> whole(torch.tensor([0.0, 2.0])).tolist()
        [0, 2]
    """
    integers = positions.long()
    if positions.is_floating_point() and not bool((integers == positions).all()):
        raise InvalidArgumentError(f"Positions of nodes are whole numbers, got {positions[integers != positions][0]}.")
    return integers
