"""Constructors of graphs: one class method for each source."""

import warnings
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from graphs import builders
from graphs.builders.edges import Duplicates, EdgeArrays, SelfLoops
from graphs.checks import counted
from graphs.errors import SelfLoopsDroppedWarning


@dataclass(frozen=True, eq=False)
class GraphConstructors:
    """The data of a graph, with one class method for each source; use `graphs.Graph`.

    Attributes:
        adjacency: The weights, `csr_array` (N, N).
        labels: N labels, or None.
        coordinates: Coordinates (N, 2) or (N, 3), or None.
        num_self_loops_dropped: The number of dropped self-loops.

    Examples:
        >>> import graphs
        >>> graphs.Graph.from_grid((2, 3)).coordinates.tolist()[:2]
        [[0.0, 0.0], [0.0, 1.0]]
    """

    adjacency: sp.csr_array  # (N, N)
    labels: Sequence[Hashable] | None = None  # N of them
    coordinates: NDArray[np.float64] | None = None  # (N, 2) or (N, 3)
    num_self_loops_dropped: int = field(default=0, compare=False)

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
            InvalidGraphError: If a road without length meets no other, a sensor is outside its road or on another
                sensor, or the tolerance would join points that are far apart.
            InvalidArgumentError: If the metric or `duplicates` is unknown, or a length or tolerance is not a number of
                at least 0.

        Warns:
            DuplicateRoadsWarning: If there are parallel edges with the same points.
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
            warnings.warn(SelfLoopsDroppedWarning(message), stacklevel=2)
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


def freeze(
    matrix: sp.csr_array,  # (N, N)
) -> sp.csr_array:
    """Make the arrays of a matrix (N, N) read-only and return it.

    Args:
        matrix: The matrix.

    Examples:
        >>> import scipy.sparse as sp
        >>> from graphs.sources import freeze
        >>> freeze(sp.csr_array([[1.0]])).data.flags.writeable
        False
    """
    for array in (matrix.data, matrix.indices, matrix.indptr):
        array.flags.writeable = False
    return matrix
