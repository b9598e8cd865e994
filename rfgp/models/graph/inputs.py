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
from rfgp.models.data import Source
from rfgp.models.inputs import Rows
from rfgp.parameters import BoundaryAvoiding, Prior, Quantity
from rfgp.scaling import Affine, Scaling

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

    def read(self, inputs: Any) -> tuple[Tensor, Source]:
        """Return the positions (n,) of n labels."""
        labels = inputs.tolist() if isinstance(inputs, Tensor) and self.graph.labels is not None else inputs
        labels = labels.cpu().numpy() if isinstance(labels, Tensor) else labels
        if isinstance(labels, str) or not hasattr(labels, "__iter__"):
            raise DataError(f"Nodes must be a sequence of labels, got {labels!r}.")
        positions = torch.as_tensor(self.graph.index(labels))
        return positions, Source(not isinstance(inputs, Tensor), torch.empty(0, dtype=torch.float64))

    def fit_scaling(self, inputs: Tensor, targets: Tensor) -> Scaling:
        """Return the map of targets (n,) to mean 0 and standard deviation 1; nodes have none."""
        return Scaling(Affine.standardizing(targets))

    def quantities(self, inputs: Tensor, scaling: Scaling) -> dict[str, Quantity]:
        """Return the kernel's parameters, whatever the inputs (n,)."""
        one = torch.ones((), dtype=self.dtype)
        pairs = zip(self.kernel.parameters, self.kernel.values, strict=True)
        bounds = (PARAMETER_BOUNDS[0] * one, PARAMETER_BOUNDS[1] * one)
        return {name: Quantity(one * value, one, bounds) for name, value in pairs}

    def starts(self) -> dict[str, Any]:
        """Return nothing: the kernel itself is the start."""
        return {}

    def complete(self, rows: Rows) -> Rows:
        """Return the rows whose value is not missing (NaN)."""
        return without_missing(rows)

    def restore(self, inputs: Tensor, as_numpy: bool) -> Any:
        """Return the labels at positions (n,).

        Raises:
            DataError: a position is outside 0..N-1.
        """
        if inputs.dtype != torch.int64 or bool(((inputs < 0) | (inputs >= self.graph.num_nodes)).any()):
            raise DataError(f"Positions must be integers 0..{self.graph.num_nodes - 1}.")
        if self.graph.labels is None and not as_numpy:
            return inputs
        return self.graph.labels_at(inputs.numpy())


FREEDOM = 0.5
"""Standard deviation of the logarithm of a factor of a free modulation, under its prior."""


def with_default_priors(kernel: GraphKernel, priors: Mapping[str, Prior | None] | None) -> dict[str, Prior | None]:
    """Return the priors, with default ones where none is given: of the noise, and of a free modulation's factors.

    Args:
        kernel: Its parameters "factor_..." have log-normal priors of mode 1.
        priors: Those given; None for a name that is to have none.
    """
    one = torch.ones((), dtype=torch.float64)
    factors = [name for name in kernel.parameters if name.startswith("factor_")]
    free = {name: torch.distributions.LogNormal(FREEDOM**2 * one, FREEDOM * one) for name in factors}
    return {"noise": BoundaryAvoiding(), **free, **(priors or {})}


def without_missing(rows: Rows) -> Rows:
    """Leave out the rows whose value is missing: NaN in y, (n,) or in all k outputs of (n, k).

    Raises:
        DataError: some outputs of a row are missing and others not; or every row is.
    """
    y = rows.y
    values = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y if y is not None else 0.0)
    if values.dtype.kind != "f" or values.ndim not in (1, 2) or not np.isnan(values).any():
        return rows
    missing = np.isnan(values).reshape(len(values), -1)
    partly = missing.any(1) & ~missing.all(1)
    if partly.any():
        raise DataError(
            f"Row {int(partly.argmax())} has a value for some outputs and none for others, {int(partly.sum())} rows in "
            "all. Outputs share one posterior covariance, so fit a model for each output."
        )
    if missing.all():
        raise DataError(f"All {len(values)} values are missing (NaN).")
    kept = np.flatnonzero(~missing.all(1))
    return Rows(*(_take(column, kept, len(values)) for column in rows))


def _take(rows: Any, kept: Any, count: int) -> Any:
    if rows is None or not hasattr(rows, "__len__") or len(rows) != count:
        return rows  # of a wrong length: said where it is read
    if isinstance(rows, Tensor):
        return rows[torch.from_numpy(kept)]
    if isinstance(rows, list | tuple):
        return [rows[i] for i in kept]
    return np.asarray(rows)[kept]
