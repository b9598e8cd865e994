"""The graph: an immutable weighted adjacency with node labels, and its Laplacian."""

import warnings
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh
from scipy.sparse.csgraph import connected_components

from graphs import builders
from graphs.builders.edges import Duplicates, EdgeArrays, SelfLoops
from graphs.errors import InvalidArgumentError, SelfLoopsDroppedWarning, UnknownNodeError
from graphs.laplacians import LAPLACIANS

_MOST_DENSE = 20_000


class Spectrum(NamedTuple):
    """The eigendecomposition of the graph's Laplacian L."""

    eigenvalues: NDArray[np.float64]  # (N,) in [0, 2], ascending
    eigenvectors: NDArray[np.float64]  # (N, N), columns


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected weighted graph. Build it with one of the `from_...` class methods.

    Inside, nodes are positions 0..N-1; outside, they are labels. Two graphs are equal only if they
    are the same object.

    Attributes:
        adjacency: Symmetric `scipy.sparse.csr_array` (N, N), float64, 32-bit indices, sorted,
            read-only, without explicit zeros.
        labels: N distinct hashable labels, or None where the positions are the labels.
        coordinates: (N, 2) or (N, 3) places of the nodes for plots, or None.
        num_self_loops_dropped: How many self-loops `self_loops="drop"` left out.
        laplacian: Which L kernels are functions of, see `with_laplacian`.
    """

    adjacency: sp.csr_array
    labels: tuple[Hashable, ...] | None = None
    coordinates: NDArray[np.float64] | None = None
    num_self_loops_dropped: int = field(default=0, compare=False)
    laplacian: str = "normalized"

    def __post_init__(self) -> None:
        if not isinstance(self.laplacian, str) or self.laplacian not in LAPLACIANS:
            raise InvalidArgumentError(
                f"laplacian must be one of {', '.join(map(repr, LAPLACIANS))}, got {self.laplacian!r}."
            )

    # --- ways in -------------------------------------------------------------------------------

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        weight: str | None = "weight",
        *,
        self_loops: SelfLoops = "error",
        duplicates: Duplicates = "error",
    ) -> "Graph":
        """Build from an undirected networkx graph; its nodes become the labels.

        Args:
            graph: A `networkx.Graph` or `MultiGraph`.
            weight: The edge attribute to read; an edge without it weighs 1. None: every edge weighs 1.
            self_loops: "error", "drop", or "keep" (a self-loop counts once in its node's degree).
            duplicates: "error", or "sum" to add up the weights of parallel edges.

        Raises:
            InvalidGraphError: directed, empty, with negative or non-finite weights, or with
                self-loops or parallel edges that were not allowed.
        """
        return _assemble(builders.from_networkx(graph, weight), self_loops, duplicates)

    @classmethod
    def from_scipy(
        cls,
        adjacency: Any,  # (N, N)
        labels: Sequence[Hashable] | None = None,
        *,
        self_loops: SelfLoops = "error",
    ) -> "Graph":
        """Build from a symmetric (N, N) adjacency, scipy sparse or dense; entries are weights.

        Raises:
            InvalidGraphError: not square, not symmetric, negative, NaN or infinite entries, or a
                diagonal that was not allowed.
        """
        return _assemble(builders.from_scipy(adjacency, labels), self_loops, "error")

    @classmethod
    def from_edges(
        cls,
        pairs: Iterable[tuple[Hashable, Hashable]],  # (E, 2)
        weights: ArrayLike | None = None,  # (E,)
        *,
        nodes: Iterable[Hashable] | None = None,
        self_loops: SelfLoops = "error",
        duplicates: Duplicates = "error",
    ) -> "Graph":
        """Build from E pairs of labels, each undirected edge listed once.

        Args:
            pairs: (E, 2) labels.
            weights: (E,) weights, or None for 1.
            nodes: Labels that come first, in this order; the way to name isolated nodes.
            self_loops: "error", "drop" or "keep".
            duplicates: "error", or "sum" to add up the weights of parallel edges.

        Raises:
            InvalidGraphError: as for `from_networkx`.
        """
        return _assemble(builders.from_pairs(pairs, weights, nodes), self_loops, duplicates)

    @classmethod
    def from_mesh(cls, mesh: Any, nodes: str = "faces") -> "Graph":
        """Build from a `trimesh.Trimesh`: adjacent faces, or vertices sharing an edge, weight 1.

        `coordinates` (N, 3) are the face centroids or the vertices, in the units of the mesh.

        Raises:
            InvalidGraphError: the mesh has no faces.
            InvalidArgumentError: `nodes` is neither "faces" nor "vertices".
        """
        return _assemble(builders.from_mesh(mesh, nodes), "error", "error")

    @classmethod
    def from_roads(
        cls,
        lines: Sequence[ArrayLike],  # each (points, 2)
        sensor_edges: ArrayLike = (),  # (S,)
        sensor_fractions: ArrayLike = (),  # (S,)
        *,
        metric: str = "haversine",
        min_length: float = 0.0,
    ) -> "Graph":
        """Build from road geometry: nodes are the lines' ends ("crossing-i") and sensors ("sensor-i").

        Args:
            lines: Line strings, each (points, 2) as longitude and latitude in degrees. Lines that
                share an end point exactly meet there.
            sensor_edges: (S,) the line that each sensor lies on, from 0.
            sensor_fractions: (S,) where on it, as a fraction of its length, inside (0, 1).
            metric: "haversine" (degrees to metres) or "euclidean" (plane coordinates).
            min_length: Shorter edges count as this long, in mean edge lengths. Two nodes a few metres apart
                otherwise have degrees far above the others', hence, with kernels of the normalised
                Laplacian, a larger prior variance.

        An edge weighs (mean edge length) / (its length), after Borovitskiy et al. (2021), "Matern
        Gaussian processes on graphs"; parallel roads add up.

        Raises:
            InvalidGraphError: a road without length, or a sensor outside its road or on another sensor.
        """
        return _assemble(builders.from_roads(lines, sensor_edges, sensor_fractions, metric, min_length), "drop", "sum")

    @classmethod
    def from_gml(cls, path: str | Path, weight: str | None = "weight", *, self_loops: SelfLoops = "drop") -> "Graph":
        """Read a GML file; labels are the file's. Dropped self-loops are counted in a warning.

        Raises:
            FileFormatError: missing, empty or not GML.
            InvalidGraphError: as for `from_networkx`.
        """
        graph = cls.from_networkx(builders.read_gml(path), weight, self_loops=self_loops)
        if graph.num_self_loops_dropped:
            message = f"{path}: {graph.num_self_loops_dropped} self-loops dropped."
            warnings.warn(SelfLoopsDroppedWarning(message), stacklevel=2)
        return graph

    # --- what it is ----------------------------------------------------------------------------

    @property
    def num_nodes(self) -> int:
        """The number N of nodes."""
        return int(self.adjacency.shape[0])

    @property
    def num_edges(self) -> int:
        """The number of undirected edges, self-loops included."""
        loops = int(np.count_nonzero(self.adjacency.diagonal()))
        return (int(self.adjacency.nnz) + loops) // 2

    @cached_property
    def degrees(self) -> NDArray[np.float64]:
        """Weighted degrees (N,): row sums of the adjacency."""
        return np.asarray(self.adjacency.sum(axis=1), dtype=np.float64)

    def with_laplacian(self, laplacian: str) -> "Graph":
        """Return the same graph with another Laplacian, of which kernels are functions.

        Args:
            laplacian: "normalized": L = I - D^(-1/2) W D^(-1/2). "combinatorial": L = (D - W) / max_a d_a. That is
                D - W divided by `laplacian_scale`, the largest degree, so that its eigenvalues lie in [0, 2] as well
                and every power series in U = I - L converges where it does for the other. To have exp(-t (D - W)), take
                Diffusion(lengthscale=sqrt(2 t s)), s the scale; to have (2 nu / kappa^2 + D - W)^-nu, take
                Matern(nu, kappa sqrt(s)) divided by s^nu.

        Raises:
            InvalidArgumentError: another name.
        """
        return self if laplacian == self.laplacian else replace(self, laplacian=laplacian)

    @property
    def laplacian_scale(self) -> float:
        """What the Laplacian was divided by: the largest degree for "combinatorial" (1 without edges), else 1."""
        largest = float(self.degrees.max()) if self.laplacian == "combinatorial" else 1.0
        return largest if largest > 0 else 1.0

    @cached_property
    def shift_operator(self) -> sp.csr_array:
        """U = I - L, `csr_array` (N, N), non-negative and symmetric, with eigenvalues in [-1, 1].

        For the normalised Laplacian U_ab = W_ab / sqrt(d_a d_b) between neighbours; for the combinatorial one U_ab =
        W_ab / s, and the diagonal has what its row lacks to 1. L has entry 0 at an isolated node, so U has 1
        there: every power series f(U) has sum_l f_l at an isolated node, hence K_ii = k(0).
        """
        return _freeze(LAPLACIANS[self.laplacian](self.adjacency, self.degrees))

    @cached_property
    def spectrum(self) -> Spectrum:
        """Eigenvalues (N,) and eigenvectors (N, N) of the Laplacian L; O(N^3), kept.

        Raises:
            InvalidArgumentError: more than 20,000 nodes, beyond what dense algebra is for.
        """
        if self.num_nodes > _MOST_DENSE:
            raise InvalidArgumentError(
                f"An exact kernel on {self.num_nodes} nodes needs a dense eigendecomposition "
                f"({self.num_nodes**2 * 24 / 2**30:.0f} GiB); at most {_MOST_DENSE} nodes are allowed. Use walks."
            )
        eigenvalues, eigenvectors = eigh(self.shift_operator.toarray())
        return Spectrum(np.clip(1 - eigenvalues[::-1], 0.0, 2.0), eigenvectors[:, ::-1])

    def index(
        self,
        labels: Iterable[Hashable],  # (n,)
    ) -> NDArray[np.int64]:  # (n,)
        """Return the positions (n,) of n labels.

        Raises:
            UnknownNodeError: a label names no node; where positions are the labels, also a
                non-integer or a number outside 0..N-1.
        """
        if self.labels is None:
            return _check_positions(
                np.asarray(labels if isinstance(labels, np.ndarray) else list(labels)), self.num_nodes
            )
        table = self._positions
        if isinstance(labels, np.ndarray) and labels.dtype == bool:
            raise UnknownNodeError("Labels are asked for, not a mask: pass the labels where the mask is true.")
        listed = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
        plain = [tuple(label) if isinstance(label, list) else label for label in listed]
        for label in plain:
            if not isinstance(label, Hashable) or label not in table:
                raise UnknownNodeError(f"There is no node {label!r}; labels look like {self.labels[0]!r}.")
        return np.array([table[label] for label in plain], dtype=np.int64)

    def largest_component(self) -> "Graph":
        """Return the subgraph of the largest connected part; its nodes keep their labels.

        Where positions were the labels, the old positions become the labels.
        """
        _, part = connected_components(self.adjacency, directed=False)
        return self.subgraph(np.flatnonzero(part == np.bincount(part).argmax()))

    def subgraph(
        self,
        positions: NDArray[np.integer[Any]],  # (n,)
    ) -> "Graph":
        """Return the subgraph induced by n distinct positions, in that order, labels kept.

        Raises:
            InvalidArgumentError: a position appears twice.
            UnknownNodeError: a position is outside 0..N-1.
        """
        chosen = _check_positions(np.asarray(positions), self.num_nodes)
        if len(np.unique(chosen)) != len(chosen):
            raise InvalidArgumentError("A subgraph names each position once.")
        adjacency = sp.csr_array(self.adjacency[chosen][:, chosen])
        adjacency.sort_indices()
        labels = tuple(int(i) if self.labels is None else self.labels[i] for i in chosen)
        coordinates = None if self.coordinates is None else self.coordinates[chosen]
        return Graph(_freeze(adjacency), labels, coordinates, laplacian=self.laplacian)

    @cached_property
    def _positions(self) -> dict[Hashable, int]:
        return {label: i for i, label in enumerate(self.labels or ())}

    def __repr__(self) -> str:
        return f"Graph({self.num_nodes} nodes, {self.num_edges} edges)"


def _freeze(matrix: sp.csr_array) -> sp.csr_array:
    for array in (matrix.data, matrix.indices, matrix.indptr):
        array.flags.writeable = False
    return matrix


def _assemble(edges: EdgeArrays, self_loops: SelfLoops, duplicates: Duplicates) -> Graph:
    edges, dropped = builders.clean(edges, self_loops, duplicates)
    apart = edges.sources != edges.targets
    rows = np.concatenate([edges.sources, edges.targets[apart]])
    columns = np.concatenate([edges.targets, edges.sources[apart]])
    values = np.concatenate([edges.weights, edges.weights[apart]])
    shape = (edges.num_nodes, edges.num_nodes)
    adjacency = sp.coo_array((values, (rows.astype(np.int32), columns.astype(np.int32))), shape=shape).tocsr()
    adjacency.sort_indices()
    return Graph(_freeze(adjacency), edges.labels, edges.coordinates, dropped)


def _check_positions(positions: NDArray[Any], num_nodes: int) -> NDArray[np.int64]:
    if positions.size == 0:
        return np.zeros(0, dtype=np.int64)
    if positions.ndim != 1 or not np.issubdtype(positions.dtype, np.integer):
        raise UnknownNodeError(
            f"Nodes are integers 0..{num_nodes - 1} in one dimension, got {positions.dtype} of shape {positions.shape}."
        )
    outside = (positions < 0) | (positions >= num_nodes)
    if outside.any():
        raise UnknownNodeError(f"There is no node {positions[outside][0]}; nodes are 0..{num_nodes - 1}.")
    return positions.astype(np.int64)
