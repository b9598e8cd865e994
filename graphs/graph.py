"""Shift operators U = I - L of the Laplacians L."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh
from scipy.sparse.csgraph import connected_components

from graphs import builders
from graphs.builders.edges import Duplicates, EdgeArrays, SelfLoops
from graphs.builders.points import GridLabels
from graphs.checks import check_choice, check_fits, counted, is_hashable, short_repr
from graphs.errors import InvalidArgumentError, SelfLoopsDroppedWarning, UnknownNodeError, warn

Floats = NDArray[np.float64]

_ROUNDING = 1e-14
"""Diagonal entries below this value are rounding errors of 0."""


def normalized_shift(
    W: sp.csr_array,  # (N, N)
    degrees: Floats,  # (N,)
) -> sp.csr_array:  # (N, N)
    """Return D^(-1/2) W D^(-1/2), with 1 on the diagonal of isolated nodes.

    Powers of two are factored out of the degrees first, so that products of very small numbers keep their digits.

    Args:
        W: The weights (N, N), symmetric.
        degrees: The row sums (N,) of W.

    Examples:
        >>> import scipy.sparse as sp
        >>> from graphs.graph import normalized_shift
        >>> W = sp.csr_array([[0, 4.0], [4.0, 0]])
        >>> normalized_shift(W, W.sum(axis=1)).toarray().tolist()
        [[0.0, 1.0], [1.0, 0.0]]
    """
    isolated = degrees == 0
    degrees = np.where(isolated, 1.0, degrees)
    power = np.frexp(degrees)[1] // 2
    root = np.sqrt(np.ldexp(degrees, -2 * power))
    rows = np.repeat(np.arange(len(degrees)), np.diff(W.indptr))
    weights = np.ldexp(W.data, -(power[rows] + power[W.indices]))
    values = weights / (root[rows] * root[W.indices])  # the same product for (a, b) and (b, a)
    matrix = sp.csr_array((values, W.indices, W.indptr), shape=W.shape)
    return _canonical(matrix + sp.diags_array(isolated.astype(np.float64))) if isolated.any() else matrix


def combinatorial_shift(
    W: sp.csr_array,  # (N, N)
    degrees: Floats,  # (N,)
) -> sp.csr_array:  # (N, N)
    """Return I - (D - W) / max D.

    Its rows sum to 1. It is I if there are no edges.

    Args:
        W: The weights (N, N), symmetric.
        degrees: The row sums (N,) of W.

    Examples:
        >>> import scipy.sparse as sp
        >>> from graphs.graph import combinatorial_shift
        >>> W = sp.csr_array([[0, 1.0, 1.0], [1.0, 0, 0], [1.0, 0, 0]])
        >>> combinatorial_shift(W, W.sum(axis=1)).diagonal().tolist()
        [0.0, 0.5, 0.5]
    """
    largest = degrees.max()
    if largest == 0:
        return sp.csr_array(sp.eye_array(len(degrees)))
    rest = (largest - degrees) / largest
    rest[rest < _ROUNDING] = 0.0
    moves = sp.csr_array((W.data / largest, W.indices, W.indptr), shape=W.shape)
    return _canonical(moves + sp.diags_array(rest))


def _canonical(matrix: sp.sparray) -> sp.csr_array:
    matrix = sp.csr_array(matrix)
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return matrix


LAPLACIANS: dict[str, Callable[[sp.csr_array, Floats], sp.csr_array]] = {
    "normalized": normalized_shift,
    "combinatorial": combinatorial_shift,
}


def freeze(
    matrix: sp.csr_array,  # (N, N)
) -> sp.csr_array:
    """Make the arrays of a matrix (N, N) read-only and return it.

    Args:
        matrix: The matrix.

    Examples:
        >>> import scipy.sparse as sp
        >>> from graphs.graph import freeze
        >>> freeze(sp.csr_array([[1.0]])).data.flags.writeable
        False
    """
    for array in (matrix.data, matrix.indices, matrix.indptr):
        array.flags.writeable = False
    return matrix


# --- The graph: an immutable weighted adjacency matrix with node labels, and its Laplacian ---------------------------


_MAX_DENSE = 20_000
"""The largest number of nodes for dense linear algebra."""


class Spectrum(NamedTuple):
    """The eigendecomposition of the graph's Laplacian L.

    Examples:
        >>> import graphs
        >>> graphs.Graph.from_edges([(0, 1)]).spectrum.eigenvalues.round(12).tolist()
        [0.0, 2.0]
    """

    eigenvalues: NDArray[np.float64]  # (N,) in [0, 2], ascending
    eigenvectors: NDArray[np.float64]  # (N, N), columns


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected weighted graph.

    Build it with one of the `from_...` class methods. Two graphs are equal only if they
    are the same object.

    Attributes:
        adjacency: Symmetric `scipy.sparse.csr_array` (N, N) of float64 with 32-bit sorted indices. It is read-only and
            has no explicit zeros.
        labels: N distinct hashable labels. The labels of a grid are tuples and those of a mesh `range(N)`, both
            computed on demand. None if positions are the labels.
        coordinates: Coordinates (N, 2) or (N, 3) of the nodes, or None.
        num_self_loops_dropped: The number of self-loops that `self_loops="drop"` removed.
        laplacian: The Laplacian that kernels are functions of, see `with_laplacian`.

    Examples:
        >>> import graphs
        >>> g = graphs.Graph.from_edges([("a", "b"), ("b", "c")], weights=[1.0, 2.0])
        >>> g
        Graph(3 nodes, 2 edges)
        >>> g.degrees.tolist(), g.index(["c", "a"]).tolist()
        ([1.0, 3.0, 2.0], [2, 0])
        >>> g.spectrum.eigenvalues.round(3).tolist()
        [0.0, 1.0, 2.0]
        >>> g.num_nodes, g.num_edges, g.laplacian_scale, g.accepts_positions
        (3, 2, 1.0, False)
        >>> import numpy as np
        >>> g.labels_at(np.array([2, 0])), g.as_nodes(np.array([1])), g.subgraph(np.array([0, 1]))
        (['c', 'a'], ['b'], Graph(2 nodes, 1 edge))
    """

    adjacency: sp.csr_array  # (N, N)
    labels: Sequence[Hashable] | None = None  # N of them
    coordinates: NDArray[np.float64] | None = None  # (N, 2) or (N, 3)
    num_self_loops_dropped: int = field(default=0, compare=False)
    laplacian: str = "normalized"

    def __post_init__(self) -> None:
        check_choice("laplacian", self.laplacian, LAPLACIANS)

    @classmethod
    def from_networkx(
        cls,
        graph: Any,
        weight: str | None = "weight",
        *,
        self_loops: SelfLoops = "error",
        duplicates: Duplicates = "error",
    ) -> Self:
        """Build a graph from an undirected networkx graph; its nodes become the labels.

        Args:
            graph: A `networkx.Graph` or `MultiGraph`.
            weight: The edge attribute with the weights. Edges without it have weight 1. If None, all weights are 1.
            self_loops: "error", "drop" or "keep". A kept self-loop counts once in the degree of its node.
            duplicates: "error", or "sum" to add the weights of parallel edges.

        Raises:
            InvalidGraphError: If the graph is directed or empty, a weight is negative or not finite, or there are
                self-loops or parallel edges that are not allowed.

        Examples:
            >>> import graphs
            >>> import networkx as nx
            >>> graphs.Graph.from_networkx(nx.path_graph(4))
            Graph(4 nodes, 3 edges)
        """
        return cls._assemble(builders.from_networkx(graph, weight), self_loops, duplicates)

    @classmethod
    def from_scipy(
        cls,
        adjacency: Any,  # (N, N)
        labels: Sequence[Hashable] | None = None,
        *,
        self_loops: SelfLoops = "error",
    ) -> Self:
        """Build a graph from a symmetric adjacency matrix (N, N), sparse or dense.

        Args:
            adjacency: The matrix.
            labels: N labels. If None, positions are the labels.
            self_loops: "error", "drop" or "keep".

        Raises:
            InvalidGraphError: If the matrix is not square or symmetric, has negative or non-finite entries, or a
                diagonal that is not allowed.

        Examples:
            >>> import graphs
            >>> graphs.Graph.from_scipy([[0, 2.0], [2.0, 0]], labels=["a", "b"])
            Graph(2 nodes, 1 edge)
        """
        return cls._assemble(builders.from_scipy(adjacency, labels), self_loops, "error")

    @classmethod
    def from_edges(
        cls,
        pairs: Iterable[tuple[Hashable, Hashable]],  # (E, 2)
        weights: ArrayLike | None = None,  # (E,)
        *,
        nodes: Iterable[Hashable] | None = None,
        self_loops: SelfLoops = "error",
        duplicates: Duplicates = "error",
    ) -> Self:
        """Build a graph from E pairs of labels; list each undirected edge once.

        Args:
            pairs: Pairs (E, 2) of labels.
            weights: Weights (E,). If None, all are 1.
            nodes: Labels that come first, in this order. They may include isolated nodes.
            self_loops: "error", "drop" or "keep".
            duplicates: "error", or "sum" to add the weights of parallel edges.

        Raises:
            InvalidGraphError: As for `from_networkx`.

        Examples:
            >>> import graphs
            >>> graphs.Graph.from_edges([("a", "b")], nodes=["a", "b", "alone"])
            Graph(3 nodes, 1 edge)
        """
        return cls._assemble(builders.from_pairs(pairs, weights, nodes), self_loops, duplicates)

    @classmethod
    def from_mesh(cls, mesh: Any, nodes: str = "faces", *, weights: str = "unit") -> Self:
        """Build a graph from a triangle mesh: adjacent faces, or vertices with an edge.

        `coordinates` (N, 3) are the face centroids or the vertices, in the units of the mesh. Labels are the numbers
        0..N-1 of the faces or vertices. Faces are adjacent if they share an edge, also if more than two faces share it
        (`trimesh.Trimesh.face_adjacency` omits such edges). Vertices are not merged: for meshes that repeat them use
        `load_mesh` or `mesh.merge_vertices(merge_tex=True, merge_norm=True)`. Vertices of no face are isolated nodes.

        Lengths between faces are those of the path from centroid to centroid through the middle of the shared edge, the
        shortest if several are shared. The path lies in both faces, so folding the mesh along the edge does not change
        it. With cotangent weights D - W is the piecewise linear finite element Laplacian (Pinkall and Polthier 1993,
        "Computing Discrete Minimal Surfaces and Their Conjugates"). Edges with a weight of 0 up to rounding are
        omitted.

        Args:
            mesh: A `trimesh.Trimesh`, or any object with `vertices` (V, 3) and `faces` (F, 3). A `trimesh.Scene` is
                concatenated by its `to_mesh()`. A path is read by `graphs.load_mesh`.
            nodes: "faces" or "vertices".
            weights: "unit" for weight 1. "edge-length" for (mean length) / (length), as for roads. "cotangent", for
                vertices, for half the sum of the cotangents of the angles opposite to the edge.

        Raises:
            InvalidGraphError: If there are no faces, or faces are not triangles of vertices. For "edge-length" and
                "cotangent" also if coordinates are not finite, and for "edge-length" if nodes coincide.
            InvalidArgumentError: If a name is unknown, or "cotangent" is combined with faces.

        Warns:
            NegativeCotangentsWarning: If opposite angles add up to more than pi (at a boundary: exceed pi / 2), so that
                weights are negative. These edges are dropped, which changes the Laplacian.
            DegenerateFacesWarning: If faces without area add nothing to cotangent weights, or vertices nearly coincide,
                so that their "edge-length" or "cotangent" weight nearly cuts them off from others.
            DisconnectedWarning: If vertices of faces coincide with others, so that the surface is cut there.

        Examples:
            >>> import graphs
            >>> square = ([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)], [(0, 1, 2), (0, 2, 3)])
            >>> graphs.Graph.from_mesh(square)
            Graph(2 nodes, 1 edge)
            >>> graphs.Graph.from_mesh(square, nodes="vertices")
            Graph(4 nodes, 5 edges)
        """
        return cls._assemble(builders.from_mesh(mesh, nodes, weights), "error", "error")

    @classmethod
    def from_grid(
        cls,
        shape: Sequence[int],  # (d,)
        *,
        periodic: bool | Sequence[bool] = False,
        diagonals: bool = False,
        spacing: ArrayLike | None = None,  # (d,)
    ) -> Self:
        """Build the grid graph of a d-dimensional array.

        The label of a node is its index (i, j, ...), a tuple also for d = 1. Its position follows C order, as in
        `np.ravel_multi_index(label, shape)`, so `values.ravel()` of an array follows the nodes. Functions accept
        labels, an integer array (n, d) of labels, or positions (n,). For d of 2 and 3 `coordinates` (N, d) are indices
        times spacing.

        Args:
            shape: The number of nodes along each axis, at least one axis.
            periodic: Whether the last node of an axis is a neighbor of the first: one bool, or one per axis. This has
                no effect on axes of length 1 or 2.
            diagonals: Whether nodes that differ by one along several axes are neighbors (8 in 2D, 26 in 3D).
            spacing: Positive lengths (d,) of a step along each axis. Weights are then (mean length) / (length). If
                None, weights are 1 along an axis and 1 / sqrt(k) along a diagonal through k axes.

        Raises:
            InvalidArgumentError: If the shape is not a tuple of positive integers, a list has not one entry per axis,
                or the spacing is not positive and finite.
            InvalidGraphError: If there are more nodes or edges than 32-bit positions allow.

        Examples:
            >>> import graphs
            >>> g = graphs.Graph.from_grid((20, 30), periodic=(True, False))
            >>> g, g.index([(1, 2), (0, 0)]).tolist()
            (Graph(600 nodes, 1180 edges), [32, 0])
        """
        return cls._assemble(builders.from_grid(shape, periodic, diagonals, spacing), "error", "error")

    @classmethod
    def from_points(
        cls,
        points: ArrayLike,  # (n, d)
        k: int = 10,
        *,
        weights: str = "gaussian",
        bandwidth: float | None = None,
    ) -> Self:
        """Build the symmetrized k-nearest-neighbor graph of a point cloud.

        Two points are joined if either is among the k nearest neighbors of the other. Ties are broken arbitrarily. The
        search uses `scipy.spatial.KDTree`, which is fast up to about 20 dimensions. `coordinates` are the points if d
        is 2 or 3.

        Args:
            points: Points (n, d), finite numbers with n > k.
            k: The number of neighbors, at least 1. Nodes have at least k edges.
            weights: "gaussian" for exp(-r^2 / (2 bandwidth^2)) at distance r, "length" for (mean length) / (length), as
                for roads, or "unit" for 1. Gaussian weights that underflow to 0 are omitted.
            bandwidth: The bandwidth of "gaussian", in the units of the points. If None, the median distance to the k-th
                neighbor.

        Raises:
            InvalidGraphError: If the points are not finite numbers (n, d). For "length" also if two points coincide,
                and for "gaussian" if the median distance is 0.
            InvalidArgumentError: If k is outside 1..n-1, the weights are unknown, or the bandwidth is not positive or
                not used by the weights.

        Examples:
            >>> import graphs
            >>> graphs.Graph.from_points([[0.0], [1.0], [3.0]], k=1, weights="unit")
            Graph(3 nodes, 2 edges)
        """
        return cls._assemble(builders.from_points(points, k, weights, bandwidth), "error", "error")

    @classmethod
    def from_roads(
        cls,
        lines: Sequence[ArrayLike],  # each (points, 2), or (points, 3)
        sensor_edges: ArrayLike = (),  # (S,)
        sensor_fractions: ArrayLike = (),  # (S,)
        *,
        metric: str = "haversine",
        min_length: float = 0.0,
        snap: float = 0.0,
        duplicates: str = "parallel",
    ) -> Self:
        """Build a graph from road geometry; nodes are crossings, free ends and sensors.

        Labels are "crossing-i" and "sensor-i". Lines meet at points that they share, ends or not, as in
        `graphs.RoadNetwork.from_lines`. A sensor at a crossing replaces its node. Roads have no direction. The weight
        of an edge is (mean edge length) / (its length), after Borovitskiy et al. (2021), "Matern Gaussian processes on
        graphs". The weights of parallel roads are added.

        Args:
            lines: Line strings, each (points, 2) as longitude and latitude in degrees, or all (points, 3) with heights,
                as for `graphs.RoadNetwork.from_lines`.
            sensor_edges: The line (S,) of each sensor, from 0.
            sensor_fractions: The position (S,) of each sensor as a fraction of the length of its line.
            metric: "haversine" (degrees to meters) or "euclidean" (plane coordinates).
            min_length: Shorter edges count as this long, in mean edge lengths. Very short edges otherwise give their
                nodes large degrees and, with kernels of the normalized Laplacian, a larger prior variance.
            snap: Points of lines within this distance meet, in meters or the units of the plane. A line that this
                closes is omitted, unless there is a sensor on it. For rounded or hand-digitized files, try 1 meter.
            duplicates: Treatment of lines, or of edges between vertices, with the same points: "parallel" roads, or
                "merge".

        Raises:
            InvalidGraphError: If a road without length meets no other, or a sensor is outside its road or on another
                sensor.
            InvalidArgumentError: If the metric or `duplicates` is unknown, or a length or tolerance is not a number of
                at least 0.

        Warns:
            DuplicateRoadsWarning: If there are parallel edges with the same points.
            WideCrossingWarning: If the tolerance joins points that are far apart.
            DisconnectedWarning: If there are sensors, and a component of the roads has none.

        Examples:
            >>> import graphs
            >>> lines = [[(0, 0), (2, 0)], [(2, 0), (2, 1)]]
            >>> graphs.Graph.from_roads(lines, [0], [0.5], metric="euclidean").labels
            ('crossing-0', 'crossing-1', 'crossing-2', 'sensor-0')
        """
        edges = builders.from_roads(lines, sensor_edges, sensor_fractions, metric, min_length, snap, duplicates)
        return cls._assemble(edges, "drop", "sum")

    @classmethod
    def from_gml(cls, path: str | Path, weight: str | None = "weight", *, self_loops: SelfLoops = "drop") -> Self:
        """Build a graph from a GML file; its labels become the nodes.

        Args:
            path: The file.
            weight: The edge attribute with the weights, as for `from_networkx`.
            self_loops: "error", "drop" or "keep".

        Raises:
            FileFormatError: If the file is missing, empty or not GML.
            InvalidGraphError: As for `from_networkx`.

        Warns:
            SelfLoopsDroppedWarning: If self-loops were dropped.
        """
        graph = cls.from_networkx(builders.read_gml(path), weight, self_loops=self_loops)
        if graph.num_self_loops_dropped:
            message = f"{path}: {counted(graph.num_self_loops_dropped, 'self-loop')} dropped."
            warn(SelfLoopsDroppedWarning(message))
        return graph

    @classmethod
    def _assemble(cls, edges: EdgeArrays, self_loops: SelfLoops, duplicates: Duplicates) -> Self:
        edges, dropped = builders.clean(edges, self_loops, duplicates)
        apart = edges.sources != edges.targets
        rows = np.concatenate([edges.sources, edges.targets[apart]])
        columns = np.concatenate([edges.targets, edges.sources[apart]])
        values = np.concatenate([edges.weights, edges.weights[apart]])
        shape = (edges.num_nodes, edges.num_nodes)
        adjacency = sp.coo_array((values, (rows.astype(np.int32), columns.astype(np.int32))), shape=shape).tocsr()
        adjacency.sort_indices()
        labels = edges.labels if edges.computed is None else edges.computed
        return cls(freeze(adjacency), labels, edges.coordinates, dropped)

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
        """Return the same graph with another Laplacian L.

        The combinatorial Laplacian D - W is divided by the largest degree, `laplacian_scale`. Its eigenvalues then lie
        in [0, 2] as well, and power series in U = I - L converge for both Laplacians. Let s be the scale. Then exp(-t
        (D - W)) is Diffusion(lengthscale=sqrt(2 t s)). Likewise (2 nu / kappa^2 + D - W)^-nu is Matern(nu, kappa
        sqrt(s)) divided by s^nu.

        Args:
            laplacian: "normalized" for L = I - D^(-1/2) W D^(-1/2), or "combinatorial" for L = (D - W) / max_a d_a.

        Raises:
            InvalidArgumentError: If the name is unknown.

        Examples:
            >>> import graphs
            >>> star = graphs.Graph.from_edges([(0, 1), (0, 2), (0, 3)]).with_laplacian("combinatorial")
            >>> star.laplacian_scale
            3.0
        """
        return self if laplacian == self.laplacian else replace(self, laplacian=laplacian)

    @property
    def laplacian_scale(self) -> float:
        """The divisor of D - W: the largest degree for "combinatorial", otherwise 1."""
        largest = float(self.degrees.max()) if self.laplacian == "combinatorial" else 1.0
        return largest if largest > 0 else 1.0

    @cached_property
    def shift_operator(self) -> sp.csr_array:
        """U = I - L, `csr_array` (N, N), symmetric with eigenvalues in [-1, 1].

        For the normalized Laplacian U_ab = W_ab / sqrt(d_a d_b) for neighbors a and b. For the combinatorial one U_ab =
        W_ab / s, and the diagonal makes each row sum to 1. At an isolated node L is 0 and U is 1, hence K_ii = k(0).
        """
        return freeze(LAPLACIANS[self.laplacian](self.adjacency, self.degrees))

    @cached_property
    def spectrum(self) -> Spectrum:
        """Eigenvalues (N,) and eigenvectors (N, N) of the Laplacian L, cached; O(N^3).

        Raises:
            InvalidArgumentError: If the graph has more than 20,000 nodes.
        """
        if self.num_nodes > _MAX_DENSE:
            raise InvalidArgumentError(
                f"An exact kernel takes at most {_MAX_DENSE} nodes, got {self.num_nodes}, whose eigendecomposition "
                f"needs {self.num_nodes**2 * 24 / 2**30:.0f} GiB. Use walks or a series instead."
            )
        check_fits(f"The eigenvectors of {self.num_nodes} nodes", 24.0 * self.num_nodes**2, "Use walks or a series.")
        eigenvalues, eigenvectors = eigh(self.shift_operator.toarray())
        return Spectrum(np.clip(1 - eigenvalues[::-1], 0.0, 2.0), eigenvectors[:, ::-1].copy())

    def index(
        self,
        labels: Iterable[Hashable],  # (n,)
    ) -> NDArray[np.int64]:  # (n,)
        """Return the positions (n,) of n labels.

        Grids also accept positions, since an integer is not a label there.

        Args:
            labels: Labels of n nodes, or their positions if `accepts_positions`.

        Raises:
            UnknownNodeError: If a label is not a node. If positions are the labels, also for non-integers and numbers
                outside 0..N-1.
        """
        if isinstance(self.labels, GridLabels):
            return _check_tuples(labels, self.labels)
        if self.accepts_positions:
            return _check_positions(labels, self.num_nodes)
        assert self.labels is not None
        if isinstance(labels, np.ndarray) and labels.dtype == bool:
            raise UnknownNodeError("Nodes must be labels, got a boolean mask. Pass the labels where the mask is true.")
        listed = labels.tolist() if isinstance(labels, np.ndarray) else _listed(labels)
        plain = [_lists_to_tuples(label) for label in listed]
        table = self._positions
        for label in plain:
            known = is_hashable(label) and label in table
            if not known or (_is_boolean(label) and not _is_boolean(self.labels[table[label]])):
                example = short_repr(self.labels[0])
                raise UnknownNodeError(
                    f"Nodes must be labels of the graph, such as {example}, got {short_repr(label)}."
                )
        return np.array([table[label] for label in plain], dtype=np.int64)

    def labels_at(
        self,
        positions: NDArray[np.integer[Any]],  # (n,)
    ) -> NDArray[np.int64] | list[Hashable]:
        """Return the labels of n positions.

        Args:
            positions: Positions (n,) of nodes, integers from 0.

        Returns:
            A list of labels, or the positions (n,) if they are the labels.

        Raises:
            UnknownNodeError: If a position is outside 0..N-1.
        """
        checked = _check_positions(positions, self.num_nodes)
        if isinstance(self.labels, GridLabels):
            return list(self.labels.at(checked))
        return checked if self.labels is None or self.accepts_positions else [self.labels[i] for i in checked]

    @property
    def accepts_positions(self) -> bool:
        """Whether `index` accepts positions: without labels, on meshes and on grids."""
        return self.labels is None or isinstance(self.labels, range | GridLabels)

    def as_nodes(
        self,
        positions: NDArray[np.int64],  # (n,)
    ) -> NDArray[np.int64] | list[Hashable]:
        """Return n positions in the cheapest form that `index` accepts.

        These are the positions (n,) if `index` accepts positions, otherwise labels.

        Args:
            positions: Positions (n,) of nodes, integers from 0.

        Raises:
            UnknownNodeError: If a position is outside 0..N-1.
        """
        return _check_positions(positions, self.num_nodes) if self.accepts_positions else self.labels_at(positions)

    def largest_component(self) -> "Graph":
        """Return the subgraph of the largest connected component.

        Nodes keep their labels. If positions were the labels, the old positions become the labels.

        Examples:
            >>> import graphs
            >>> g = graphs.Graph.from_edges([("a", "b"), ("c", "d"), ("d", "e")])
            >>> g.largest_component().labels
            ('c', 'd', 'e')
        """
        _, part = connected_components(self.adjacency, directed=False)
        return self.subgraph(np.flatnonzero(part == np.bincount(part).argmax()))

    def subgraph(
        self,
        positions: NDArray[np.integer[Any]],  # (n,)
    ) -> "Graph":
        """Return the subgraph induced by n distinct positions, in their order.

        Args:
            positions: Distinct positions (n,) of the nodes to keep.

        Raises:
            InvalidArgumentError: If there is no position, or one appears twice.
            UnknownNodeError: If a position is outside 0..N-1.
        """
        chosen = _check_positions(positions, self.num_nodes)
        if len(chosen) == 0:
            raise InvalidArgumentError("positions must hold at least one node, got none. Pass the nodes to keep.")
        if len(np.unique(chosen)) != len(chosen):
            raise InvalidArgumentError("positions must be distinct, got one twice. Pass np.unique(positions).")
        adjacency = sp.csr_array(self.adjacency[chosen][:, chosen])
        adjacency.sort_indices()
        chosen_labels = self.labels_at(chosen)
        labels = tuple(chosen_labels.tolist() if isinstance(chosen_labels, np.ndarray) else chosen_labels)
        coordinates = None if self.coordinates is None else self.coordinates[chosen]
        return Graph(freeze(adjacency), labels, coordinates, laplacian=self.laplacian)

    @cached_property
    def _positions(self) -> dict[Hashable, int]:
        return {label: i for i, label in enumerate(self.labels or ())}

    def __repr__(self) -> str:
        nodes, edges = (
            f"{n} {what}{'s' * (n != 1)}" for n, what in ((self.num_nodes, "node"), (self.num_edges, "edge"))
        )
        return f"Graph({nodes}, {edges})"


_WAYS_IN = {"is_directed": "from_networkx", "toarray": "from_scipy", "faces": "from_mesh", "__array__": "from_scipy"}
"""The class method of `Graph` for objects with an attribute."""


def check_graph(value: Any) -> None:
    """Check that a value is a graph.

    Args:
        value: The value.

    Raises:
        InvalidArgumentError: If it is not. The message names the class method of `Graph` that converts it.

    Examples:
        >>> from graphs.graph import check_graph
        >>> check_graph([1, 2])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        graphs.errors.InvalidArgumentError: graph must be a graphs.Graph, got list. Build one, for example with...
    """
    if isinstance(value, Graph):
        return
    kind = type(value)
    source = kind.__module__.split(".")[0]
    named = kind.__name__ if source == "builtins" else f"{kind.__name__} of {source}"
    constructor = next((constructor for attribute, constructor in _WAYS_IN.items() if hasattr(value, attribute)), None)
    remedy = f"Convert it with graphs.Graph.{constructor}"
    if constructor is None:
        remedy = "Build one, for example with graphs.Graph.from_edges"
    raise InvalidArgumentError(f"graph must be a graphs.Graph, got {named}. {remedy}.")


def _listed(labels: Any) -> list[Any]:
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise UnknownNodeError(f"Nodes must be a sequence of labels, got {short_repr(labels)}. Pass a list.")
    return list(labels)


def _lists_to_tuples(label: Any) -> Any:
    """Return a label with lists as tuples."""
    return tuple(_lists_to_tuples(part) for part in label) if isinstance(label, list) else label


def _is_boolean(label: Any) -> bool:
    """Return whether a label is True or False, which Python counts as numbers."""
    return isinstance(label, bool | np.bool_)


def _check_tuples(given: Any, labels: GridLabels) -> NDArray[np.int64]:
    """Return the positions (n,) of grid labels. Integers (n,) are positions."""
    listed = given if isinstance(given, np.ndarray) and given.dtype != object else _listed(given)
    try:
        rows = np.asarray(listed)
    except ValueError as error:  # tuples of several lengths, or tuples and integers
        raise UnknownNodeError(
            f"Nodes of a grid must be tuples of {len(labels.shape)} integers, or all of them positions, got "
            f"{short_repr(given)}."
        ) from error
    if rows.ndim != 2 or not np.issubdtype(rows.dtype, np.integer):
        return _check_positions(given, len(labels))
    if listed is not given and any(_is_boolean(part) for label in listed for part in label):
        raise UnknownNodeError(f"Labels of a grid must be tuples of integers, not booleans, got {short_repr(given)}.")
    return labels.positions(rows.astype(np.int64))


def _check_positions(given: Any, num_nodes: int) -> NDArray[np.int64]:
    listed = given if isinstance(given, np.ndarray) else _listed(given)
    try:
        positions = np.asarray(listed)
    except ValueError as error:
        raise UnknownNodeError(f"Nodes must be integers 0..{num_nodes - 1}, got {short_repr(given)}.") from error
    if positions.size == 0:
        return np.zeros(0, dtype=np.int64)
    if positions.ndim != 1 or not np.issubdtype(positions.dtype, np.integer):
        raise UnknownNodeError(
            f"Nodes must be integers 0..{num_nodes - 1} of shape (n,), got {positions.dtype} of shape "
            f"{positions.shape}."
        )
    if listed is not given and any(map(_is_boolean, listed)):
        raise UnknownNodeError(f"Nodes must be integers 0..{num_nodes - 1}, not booleans, got {short_repr(given)}.")
    outside = (positions < 0) | (positions >= num_nodes)
    if outside.any():
        raise UnknownNodeError(f"Nodes must be 0..{num_nodes - 1}, got {positions[outside][0]}.")
    return positions.astype(np.int64)
