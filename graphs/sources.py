"""The ways into a graph: one class method for each source."""

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
class Sources:
    """What a source tells of a graph, with one class method for each; `graphs.Graph` is the class to use."""

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
        return cls._assemble(builders.from_networkx(graph, weight), self_loops, duplicates)

    @classmethod
    def from_scipy(
        cls,
        adjacency: Any,  # (N, N)
        labels: Sequence[Hashable] | None = None,
        *,
        self_loops: SelfLoops = "error",
    ) -> Self:
        """Build from a symmetric (N, N) adjacency, scipy sparse or dense; entries are weights.

        Raises:
            InvalidGraphError: not square, not symmetric, negative, NaN or infinite entries, or a
                diagonal that was not allowed.
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
        return cls._assemble(builders.from_pairs(pairs, weights, nodes), self_loops, duplicates)

    @classmethod
    def from_mesh(cls, mesh: Any, nodes: str = "faces", *, weights: str = "unit") -> Self:
        """Build from a triangle mesh: adjacent faces, or vertices that share an edge.

        `coordinates` (N, 3) are the face centroids or the vertices, in the units of the mesh. Faces are adjacent where
        they share an edge, all pairs of them where more than two do (`trimesh.Trimesh.face_adjacency` leaves such
        edges out). Vertices are those of the mesh as it is: without `mesh.merge_vertices()`, or `load_mesh`, faces
        that repeat their corners share no edge, of which a warning tells. Vertices of no face are isolated nodes.
        Labels are the numbers 0..N-1 of the faces or vertices.

        Args:
            mesh: A `trimesh.Trimesh`, or anything with `vertices` (V, 3) and `faces` (F, 3); a `trimesh.Scene`, whose
                meshes are put together by its `to_mesh()`; or the path of a file, which `graphs.load_mesh` reads.
            nodes: "faces" or "vertices".
            weights: "unit": every edge weighs 1. "edge-length": (mean length) / (length), as for roads; between
                vertices the length of the edge, between faces that of the way from centroid to centroid through the
                middle of the shared edge. It lies in the two faces, so that folding the mesh along the edge does not
                change it, and the straight line would be shorter across sharp folds; of several shared edges
                the shortest way counts. "cotangent", for vertices: half the sum of the cotangents of the angles
                opposite to the edge, one for each of its faces (one term at a boundary), Pinkall and Polthier (1993),
                "Computing Discrete Minimal Surfaces and Their Conjugates": D - W is then the piecewise linear finite
                element Laplacian. Edges within rounding of 0, as the diagonals of rectangles, are none.

        Raises:
            InvalidGraphError: no faces, faces that are no triangles of vertices; for "edge-length" and "cotangent" also
                coordinates that are not finite, and for "edge-length" nodes at the same place.
            InvalidArgumentError: another name, or "cotangent" with faces.

        Warns:
            NegativeCotangentsWarning: weights are negative, where opposite angles add up to more than pi (at a
                boundary: exceed pi / 2); these edges are left out, which changes the Laplacian, and counted.
            DegenerateFacesWarning: faces without area add nothing to cotangent weights.
            DisconnectedWarning: vertices of faces are at the same place as others, so that the surface is cut there.
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
        """Build the grid of a d-dimensional array; a node's label is its index, and its position follows C order.

        Labels are tuples (i, j, ...), also for d of 1. A node's position is `np.ravel_multi_index(label, shape)`, so
        `values.ravel()` of an array of this shape follows the nodes. Where nodes are asked for, labels, an array of
        integers (n, d) and positions (n,) are all understood, since an integer is no label. For d of 2 and 3
        `coordinates` (N, d) are the indices times the spacing, in the order of the axes.

        Args:
            shape: The number of nodes along each axis, at least one axis.
            periodic: Whether the last node of an axis is the first one's neighbor; one bool, or one per axis. On an
                axis of length 1 or 2 that changes nothing: it would be a loop, or the edge that there is already.
            diagonals: Whether nodes that differ by one in several axes are neighbors, too (8 in a picture, 26 in a
                volume).
            spacing: (d,) positive lengths of a step along each axis. Edges then weigh (mean length) / (length). None:
                they weigh 1 along an axis and 1 / sqrt(k) along a diagonal through k axes, which are the same up to a
                factor that no normalised kernel sees.

        Raises:
            InvalidArgumentError: a shape that is not one of positive integers, lists that do not have one entry per
                axis, a spacing that is not positive and finite, or ratios of spacings beyond double precision.
            InvalidGraphError: more nodes or edges than 32-bit positions can name.
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
        """Build from a point cloud: an edge where one point is among the k nearest neighbors of the other.

        Among neighbors at equal distances the search tree chooses. It is `scipy.spatial.KDTree`, fast up to some 20
        dimensions. `coordinates` are the points where d is 2 or 3.

        Args:
            points: (n, d) finite numbers, n > k.
            k: The number of neighbors, at least 1. A node has at least k edges, since the relation is made symmetric
                by union.
            weights: "gaussian": exp(-r^2 / (2 bandwidth^2)) at distance r; weights that underflow to 0 are no edges.
                "length": (mean length) / (length), as for roads. "unit": 1.
            bandwidth: For "gaussian", in the units of the points. None: the median over points of the distance to
                the k-th neighbor.

        Raises:
            InvalidGraphError: points that are not (n, d) finite numbers; for "length" two points at the same place; for
                "gaussian" without a bandwidth, a median of 0.
            InvalidArgumentError: k outside 1..n-1, another name of weights, a bandwidth that is not positive or that
                the weights do not use.
        """
        return cls._assemble(builders.from_points(points, k, weights, bandwidth), "error", "error")

    @classmethod
    def from_roads(
        cls,
        lines: Sequence[ArrayLike],  # each (points, 2)
        sensor_edges: ArrayLike = (),  # (S,)
        sensor_fractions: ArrayLike = (),  # (S,)
        *,
        metric: str = "haversine",
        min_length: float = 0.0,
        snap: float = 0.0,
        duplicates: str = "parallel",
    ) -> Self:
        """Build from road geometry: nodes are crossings and free ends ("crossing-i"), and sensors ("sensor-i").

        Lines meet at the points that they share, ends or not, as in `graphs.RoadNetwork.from_lines`. A sensor at a
        crossing takes the place of its node. Roads have no direction.

        An edge weighs (mean edge length) / (its length), after Borovitskiy et al. (2021), "Matern
        Gaussian processes on graphs"; parallel roads add up.

        Args:
            lines: Line strings, each (points, 2) as longitude and latitude in degrees.
            sensor_edges: (S,) the line that each sensor lies on, from 0.
            sensor_fractions: (S,) where on it, as a fraction of its length, in [0, 1].
            metric: "haversine" (degrees to metres) or "euclidean" (plane coordinates).
            min_length: Shorter edges count as this long, in mean edge lengths. Two nodes a few metres apart
                otherwise have degrees far above the others', hence, with kernels of the normalised
                Laplacian, a larger prior variance.
            snap: Points of lines that are at most this far apart meet as well: in metres, or in the plane's units. A
                line that this closes joins nothing and is left out, unless there is a sensor on it. A file that is
                rounded or digitised by hand needs one; 1 is a good beginning for metres.
            duplicates: Lines, or stretches of them, with the same points as another: "parallel" roads, or "merge".

        Raises:
            InvalidGraphError: a road without length that meets no other, a sensor outside its road or on another
                sensor, or a tolerance that would join points that are far apart.
            InvalidArgumentError: another metric or value of `duplicates`, or a length or a tolerance that is negative
                or not a number.

        Warns:
            DuplicateRoadsWarning: parallel stretches with the same points.
            DisconnectedWarning: there are sensors, and a part of the roads without one.
        """
        edges = builders.from_roads(lines, sensor_edges, sensor_fractions, metric, min_length, snap, duplicates)
        return cls._assemble(edges, "drop", "sum")

    @classmethod
    def from_gml(cls, path: str | Path, weight: str | None = "weight", *, self_loops: SelfLoops = "drop") -> Self:
        """Read a GML file; labels are the file's. Dropped self-loops are counted in a warning.

        Raises:
            FileFormatError: missing, empty or not GML.
            InvalidGraphError: as for `from_networkx`.
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
    """Return the same matrix (N, N), its arrays read-only from now on."""
    for array in (matrix.data, matrix.indices, matrix.indptr):
        array.flags.writeable = False
    return matrix
