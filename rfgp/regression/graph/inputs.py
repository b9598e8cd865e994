"""Labels of nodes at the door, values that are missing, and the hyperparameters of a graph kernel."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import graphs
from graphs.kernels import GraphKernel
from rfgp.errors import DataError
from rfgp.parameters import BoundaryAvoiding, Hyperprior, Quantity
from rfgp.rows import Chunk
from rfgp.rows.arrays import Origin
from rfgp.scaling import Scaling

PARAMETER_BOUNDS = (1e-2, 1e3)


@dataclass(frozen=True, eq=False)
class NodeInputs:
    """Labels of a graph's nodes, and the parameters of a graph kernel.

    Attributes:
        graph: The graph.
        kernel: The kernel at its starting values.
        dtype: float64, always.
    """

    graph: graphs.Graph
    kernel: GraphKernel
    dtype: torch.dtype = torch.float64
    standardize = True
    reads_blocks = False

    def read(self, inputs: Any) -> tuple[Tensor, Origin]:
        """Return the positions (n,) of n labels."""
        labels = inputs.tolist() if isinstance(inputs, Tensor) and not self.graph.reads_positions else inputs
        labels = labels.cpu().numpy() if isinstance(labels, Tensor) else labels
        if isinstance(labels, str) or not hasattr(labels, "__iter__"):
            raise DataError(f"Nodes must be a sequence of labels, got {labels!r}.")
        positions = torch.as_tensor(self.graph.index(labels))
        return positions, Origin(not isinstance(inputs, Tensor), torch.empty(0, dtype=torch.float64))

    def quantities(self, spread: Tensor, scaling: Scaling) -> dict[str, Quantity]:
        """Return the kernel's parameters, whatever the positions and their spread ()."""
        one = torch.ones((), dtype=self.dtype)
        pairs = zip(self.kernel.parameters, self.kernel.values, strict=True)
        bounds = (PARAMETER_BOUNDS[0] * one, PARAMETER_BOUNDS[1] * one)
        return {name: Quantity(one * value, one, bounds) for name, value in pairs}

    def complete(self, given: Chunk) -> Chunk:
        """Return the rows whose value is not missing (NaN); the labels of all of them name nodes."""
        present = without_missing(given)
        if present is not given:
            self.read(given.X)
        return present

    def check(self, inputs: Tensor) -> None:
        """Refuse what are no positions (n,).

        Raises:
            DataError: a position is outside 0..N-1.
        """
        if inputs.dtype != torch.int64 or bool(((inputs < 0) | (inputs >= self.graph.num_nodes)).any()):
            raise DataError(f"Positions must be integers 0..{self.graph.num_nodes - 1}.")


FREEDOM = 0.5
"""Standard deviation of the logarithm of a factor of a free modulation, under its prior."""


def with_default_priors(
    kernel: GraphKernel, priors: Mapping[str, Hyperprior | None] | None, has_noise: bool = True
) -> dict[str, Hyperprior | None]:
    """Return the hyperpriors, with default ones where none is given: of the noise, and of a free modulation's factors.

    Args:
        kernel: Its parameters "factor_..." have log-normal priors of mode 1.
        priors: Those given; None for a name that is to have none.
        has_noise: Whether there is a noise.
    """
    one = torch.ones((), dtype=torch.float64)
    factors = [name for name in kernel.parameters if name.startswith("factor_")]
    free = {name: torch.distributions.LogNormal(FREEDOM**2 * one, FREEDOM * one) for name in factors}
    return {**({"noise": BoundaryAvoiding()} if has_noise else {}), **free, **(priors or {})}


def without_missing(given: Chunk) -> Chunk:
    """Leave out the rows whose value is missing: NaN in y, (n,) or in all k outputs of (n, k).

    Raises:
        DataError: some outputs of a row are missing and others not; or every row is.
    """
    y = given.y
    try:
        values = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y if y is not None else 0.0)
    except ValueError:  # ragged: whoever reads the targets says so
        return given
    if values.dtype.kind != "f" or values.ndim not in (1, 2) or not np.isnan(values).any():
        return given
    missing = np.isnan(values).reshape(len(values), -1)
    partly = missing.any(1) & ~missing.all(1)
    if partly.any():
        raise DataError(
            f"Row {int(partly.argmax())} has a value for some outputs and none for others, {int(partly.sum())} rows in "
            "all. Outputs share one posterior covariance, so fit a model for each output."
        )
    if missing.all():
        raise DataError(f"All {len(values)} values are missing (NaN).")
    present = np.flatnonzero(~missing.all(1))
    return Chunk(*(_take(column, present, len(values)) for column in given[:4]))


def _take(column: Any, rows: Any, count: int) -> Any:
    if column is None or not hasattr(column, "__len__") or len(column) != count:
        return column  # of a wrong length: said where it is read
    if isinstance(column, Tensor):
        return column[torch.from_numpy(rows)]
    if isinstance(column, list | tuple):
        return [column[i] for i in rows]
    return np.asarray(column)[rows]
