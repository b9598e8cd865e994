"""Kernels of the nodes of a graph."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import scipy.sparse as sp
import torch
from torch import Tensor

import graphs
from graphs.kernels import GraphKernel
from graphs.kernels.kernel import precision_order
from graphs.precisions import resolvent_field
from rfgp.columns import ColumnKind
from rfgp.errors import InvalidArgumentError
from rfgp.features.walks import resolvent_values, spectral_values
from rfgp.kernels.kernel import Kernel
from rfgp.kernels.role import ColumnSummary, Key, LatentField, Values, bounds_in
from rfgp.parameters import Hyperparameter
from rfgp.sparse import selection

NODE = "node"
"""The column of labels, unless it is named."""
PARAMETER_BOUNDS = (1e-2, 1e3)
"""The bounds of the parameters of a graph kernel."""


@dataclass(frozen=True, eq=False, repr=False)
class Nodes(Kernel):
    """A kernel k(L) on the nodes of a graph, a function of its Laplacian L.

    Attributes:
        graph: The graph, a `graphs.Graph`.
        kernel: A kernel of `graphs.kernels` with its starting values, or the name of one. For a name, fits compare
            several starting values.
        column: The key of the node labels. If None, "node", or the first column of an array. Inputs may also be
            labels (n,).
        name: The name of the term. If None, the class and the column.

    Raises:
        InvalidArgumentError: If there is no graph, or no such kernel.

    Examples:
        >>> import graphs
        >>> from rfgp import kernels as k
        >>> line = graphs.Graph.from_edges([("a", "b"), ("b", "c")])
        >>> k.Nodes(line, "diffusion").matrix(["a", "c"]).shape
        torch.Size([2, 2])
    """

    columns: Any = field(default=None, init=False)
    graph: Any
    kernel: Any = "diffusion"
    column: Key | None = None
    kind: ClassVar[ColumnKind] = ColumnKind.NODE

    def __post_init__(self) -> None:
        if not isinstance(self.graph, graphs.Graph):
            raise InvalidArgumentError(f"graph must be a graphs.Graph, got {type(self.graph).__name__}.")
        kernel = self.kernel if isinstance(self.kernel, GraphKernel) else graphs.kernels.by_name(self.kernel)
        object.__setattr__(self, "columns", self.column)
        object.__setattr__(self, "nodes", self.graph)
        object.__setattr__(self, "graph_kernel", kernel)
        super().__post_init__()

    @property
    def starts(self) -> Mapping[str, Any]:
        """The starting parameters of the graph kernel. None if given by name."""
        kernel = self.graph_kernel
        is_named = not isinstance(self.kernel, GraphKernel)
        values = [None] * len(kernel.parameters) if is_named else kernel.values.tolist()
        return dict(zip(kernel.parameters, values, strict=True))

    def latent_field(self, columns: ColumnSummary) -> LatentField | None:
        """Return the values at all nodes as a field, if the kernel has a sparse precision."""
        try:
            return NodeField(self.graph, self.graph_kernel, precision_order(self.graph_kernel))
        except graphs.GraphError:
            return None

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of the positions a (n, 1) and b (m, 1) of nodes."""
        vectors, size = self._spectrum(values)
        return (vectors[a[:, 0].long()] * size) @ vectors[b[:, 0].long()].mT

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return the variances (n,) of the positions a (n, 1) of nodes."""
        vectors, size = self._spectrum(values)
        return vectors[a[:, 0].long()].square() @ size

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Hyperparameter]:
        """Return the parameters of the graph kernel."""
        unit = torch.ones((), dtype=torch.float64)
        bounds = bounds_in(unit, PARAMETER_BOUNDS)
        pairs = zip(self.graph_kernel.parameters, self.graph_kernel.values, strict=True)
        return {name: Hyperparameter(unit * value, unit, bounds) for name, value in pairs}

    def resolved(self, columns: ColumnSummary, starts: Mapping[str, Any]) -> Kernel:
        """Return the kernel with starting values."""
        if not starts:
            return self
        kernel = self.graph_kernel
        known = {**dict(zip(kernel.parameters, kernel.values, strict=True)), **starts}
        return replace(self, kernel=kernel.with_values([known[name] for name in kernel.parameters]))

    def expanded(self, keys: Sequence[Key]) -> Kernel:
        """Return the kernel with an explicit column.

        Args:
            keys: All columns but the target.

        Raises:
            InvalidArgumentError: If the table is not an array and has no column "node".
        """
        if self.column is not None:
            return self
        if NODE in keys or 0 in keys:
            return replace(self, column=NODE if NODE in keys else 0)
        raise InvalidArgumentError(
            f"X must have the column {NODE!r} that Nodes reads, got a table without it. Give column=."
        )

    def _spectrum(self, values: Values) -> tuple[Tensor, Tensor]:
        """Return the eigenvectors (N, N) of the Laplacian and the kernel's eigenvalues (N,)."""
        eigenvalues, eigenvectors = self.graph.spectrum
        theta = torch.stack([values[name].double() for name in self.graph_kernel.parameters])
        return torch.from_numpy(eigenvectors), spectral_values(theta, self.graph_kernel, eigenvalues)


@dataclass(frozen=True, eq=False)
class NodeField(LatentField):
    """The values at all nodes, with covariance amplitude (shift + L)^-order.

    The order is an integer.

    Attributes:
        graph: The graph.
        kernel: The kernel.
        order: The order.
    """

    graph: Any
    kernel: Any
    order: int

    @property
    def field(self) -> Any:
        """The precision (shift + L)^order as a function of the shift."""
        return resolvent_field(self.graph, self.order)

    def parameters(self, values: Values) -> tuple[Tensor, Tensor]:
        """Return the shift (1,) and the amplitude, 0-d."""
        theta = torch.stack([values[name].double() for name in self.kernel.parameters])
        return resolvent_values(theta, self.kernel)

    def projector(self, a: Tensor) -> sp.csr_array:
        """Return the matrix (n, N) that selects the values at positions a (n, 1)."""
        return selection(a[:, 0].long(), self.graph.num_nodes)
