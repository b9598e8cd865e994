"""Errors and warnings that `graphs` and `rfgp` share, and those of `graphs`, without numpy.

Each message says what is wrong, where, and what to do.
"""

import contextlib
import functools
import inspect
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

_OURS = (
    *(str(Path(__file__).parents[1] / name) + os.sep for name in ("graphs", "rfgp")),
    functools.__file__,
    contextlib.__file__,
)


class RfgpError(Exception):
    """The base class of all errors of `rfgp` and `graphs`.

    Examples:
        >>> import rfgp
        >>> try:
        ...     rfgp.GP().predict([[0.0]])
        ... except rfgp.RfgpError as error:
        ...     print(type(error).__name__)
        NotFittedError
    """


class GraphError(RfgpError):
    """Base class of all errors of `graphs`.

    Examples:
        >>> import graphs
        >>> try:
        ...     graphs.Graph.from_edges([(0, 0)])
        ... except graphs.GraphError as error:
        ...     print(type(error).__name__)
        InvalidGraphError
    """


class InvalidGraphError(GraphError, ValueError):
    """Nodes, edges or weights do not describe an undirected weighted graph. Correct the named edges.

    Examples:
        >>> import graphs
        >>> try:  # doctest: +ELLIPSIS
        ...     graphs.Graph.from_edges([("a", "b"), ("b", "c")], weights=[1.0, -1.0])
        ... except graphs.InvalidGraphError as error:
        ...     print(error)
        The weight of edge ('b', 'c') must be finite and at least 0, got -1.0. Weights are similarities, for...
    """


class InvalidArgumentError(GraphError, ValueError):
    """An argument has an invalid value. The message says what it must be.

    Examples:
        >>> import graphs
        >>> try:
        ...     graphs.kernels.Diffusion(lengthscale=-1.0)
        ... except graphs.InvalidArgumentError as error:
        ...     print(error)
        Diffusion: lengthscale must be a positive number, got -1.0.
    """


class MemoryBudgetError(GraphError, MemoryError):
    """A result would exceed the available or allowed memory. Nothing was computed. Use fewer nodes or walkers.

    Examples:
        >>> import graphs
        >>> graph = graphs.Graph.from_grid((30, 30))
        >>> try:  # doctest: +ELLIPSIS
        ...     graphs.sample_walks(graph, seed=0, max_memory=1e5)
        ... except graphs.MemoryBudgetError as error:
        ...     print(error)
        These walks take up to 2.711 MiB, more than max_memory allows (0.09537 MiB). Use fewer walkers or...
    """


class NotPositiveDefiniteError(GraphError, ArithmeticError):
    """A covariance stayed singular after the largest jitter, or a sparse matrix is not positive definite.

    Raise the noise, or use a shorter lengthscale.

    Attributes:
        node: The row of a sparse matrix whose pivot is not positive, or None.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> square = ([(0, 0), (1, 0), (1, 1), (0, 1)], [(0, 1, 2), (0, 2, 3)])
        >>> try:  # the remedy is a shorter lengthscale
        ...     graphs.MeshField(square).factor_at(np.array([1e12]))
        ... except graphs.NotPositiveDefiniteError as error:
        ...     print(error)
        The matrix must be positive definite in double precision, got a non-positive pivot at node 2.
    """

    node: int | None = None

    @classmethod
    def at(cls, node: int) -> "NotPositiveDefiniteError":
        """Return the error of a row of a sparse matrix.

        Args:
            node: The row whose pivot is not positive.
        """
        error = cls(
            f"The matrix must be positive definite in double precision, got a non-positive pivot at node {node}."
        )
        error.node = node
        return error


class UnknownNodeError(GraphError, KeyError):
    """A label is not a node of the graph. Pass labels from `graph.labels`.

    Examples:
        >>> import graphs
        >>> graph = graphs.Graph.from_edges([("a", "b"), ("b", "c")])
        >>> try:
        ...     graph.index(["a", "z"])
        ... except graphs.UnknownNodeError as error:
        ...     print(error)
        Nodes must be labels of the graph, such as 'a', got 'z'.
    """

    def __str__(self) -> str:  # KeyError would print the message in quotes
        return str(self.args[0]) if self.args else ""


class FileFormatError(GraphError, ValueError):
    """A file is missing, empty or not in the expected format. Check the path and the format.

    Examples:
        >>> import graphs
        >>> try:
        ...     graphs.Graph.from_gml("no-such-file.gml")
        ... except graphs.FileFormatError as error:
        ...     print(error)
        There is no file no-such-file.gml.
    """


class MissingDependencyError(GraphError, ImportError):
    """An optional package is not installed. The message names the command that installs it.

    Examples:
        >>> import graphs
        >>> try:
        ...     with graphs.errors.requires_extra("mesh"):
        ...         import a_mesh_package_that_is_missing
        ... except graphs.MissingDependencyError as error:
        ...     print(error)
        a_mesh_package_that_is_missing must be installed. Try: pip install 'rfgp[mesh]'
    """


@contextlib.contextmanager
def requires_extra(extra: str) -> Iterator[None]:
    """Raise an error that names an extra if an import in the body finds no package.

    Args:
        extra: The extra of `rfgp` that installs the packages imported in the body.

    Raises:
        MissingDependencyError: If a package is not installed.

    Examples:
        >>> from graphs.errors import MissingDependencyError, requires_extra
        >>> try:
        ...     with requires_extra("plot"):
        ...         import a_package_that_is_not_installed
        ... except MissingDependencyError as error:
        ...     print(error)
        a_package_that_is_not_installed must be installed. Try: pip install 'rfgp[plot]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("graphs", "rfgp"):
            raise
        raise MissingDependencyError(
            f"{package} must be installed. Try: pip install 'rfgp[{extra}]'", name=package
        ) from error


class RfgpWarning(UserWarning):
    """The base class of all warnings of `rfgp` and `graphs`.

    Examples:
        >>> import rfgp, torch, warnings
        >>> with warnings.catch_warnings(action="ignore", category=rfgp.RfgpWarning):
        ...     factor = rfgp.linalg.cholesky(torch.ones(2, 2), "K")
    """


class GraphWarning(RfgpWarning):
    """Base class of all warnings of `graphs`.

    Examples:
        >>> import warnings
        >>> import graphs
        >>> with warnings.catch_warnings():
        ...     warnings.simplefilter("ignore", graphs.GraphWarning)
        ...     graphs.MeshField(([(0, 0), (1, 0), (0, 1), (5, 5)], [(0, 1, 2)]))
        MeshField(4 vertices, 1 face, alpha=2)
    """


class SelfLoopsDroppedWarning(GraphWarning):
    """A loader dropped the self-loops of its file. The message says how many. Clean the file if they have a meaning.

    Examples:
        >>> import tempfile, warnings
        >>> from pathlib import Path
        >>> import graphs
        >>> path = Path(tempfile.mkdtemp()) / "loop.gml"
        >>> _ = path.write_text("graph [ node [ id 0 label 0 ] edge [ source 0 target 0 ] ]")
        >>> with warnings.catch_warnings(action="ignore", category=graphs.SelfLoopsDroppedWarning):
        ...     graphs.Graph.from_gml(path).num_self_loops_dropped
        1
    """


class DegenerateFacesWarning(GraphWarning):
    """A mesh has faces without area, or too thin for double precision. The message says how they are left out.

    Examples:
        >>> import warnings
        >>> import graphs
        >>> close = ([(0, 0), (1, 0), (0, 1), (0, 1e-9)], [(0, 1, 3), (1, 2, 3)])
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     field = graphs.MeshField(close)
        >>> print(caught[0].message)  # doctest: +ELLIPSIS
        1 of 2 faces have no area, or a height below 2e-05 of the longest side, too thin for alpha = 2 in...
    """


class DuplicateFacesWarning(GraphWarning):
    """A mesh has faces with the same corners. The message says how many. Remove the copies.

    Examples:
        >>> import warnings
        >>> import graphs
        >>> twice = ([(0, 0), (1, 0), (0, 1)], [(0, 1, 2), (1, 2, 0)])
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     field = graphs.MeshField(twice)
        >>> print(caught[0].message)
        1 of 2 faces have the same corners as another (first 1 and 0) and are dropped from the field.
    """


class UnreferencedVerticesWarning(GraphWarning):
    """A mesh has vertices on no face with an area. The message says how many. Drop them to silence it.

    Examples:
        >>> import warnings
        >>> import graphs
        >>> loose = ([(0, 0), (1, 0), (0, 1), (5, 5)], [(0, 1, 2)])
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     field = graphs.MeshField(loose)
        >>> print(caught[0].message)  # doctest: +ELLIPSIS
        1 of 4 vertices are on no face that has an area and are dropped from the field. The field at such a...
    """


class SkippedFeaturesWarning(GraphWarning):
    """A file has features that were skipped, not observed, or used in part. The message says how many.

    Examples:
        >>> import json, tempfile, warnings
        >>> from pathlib import Path
        >>> import graphs
        >>> places = {"LineString": [[0, 0], [1, 0]], "MultiPoint": [[0, 0]]}
        >>> shapes = [{"type": kind, "coordinates": place} for kind, place in places.items()]
        >>> features = [{"type": "Feature", "geometry": shape} for shape in shapes]
        >>> path = Path(tempfile.mkdtemp()) / "roads.geojson"
        >>> _ = path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        >>> with warnings.catch_warnings(action="ignore", category=graphs.SkippedFeaturesWarning):
        ...     graphs.RoadNetwork.from_geojson(path, metric="euclidean", skip=True)
        RoadNetwork(1 road, 2 vertices, length 1)
    """


class DuplicateRoadsWarning(GraphWarning):
    """A road network has parallel copies of the same line. The message says how many. `duplicates="merge"` merges them.

    Examples:
        >>> import warnings
        >>> import graphs
        >>> lines = [[(0, 0), (100, 0)], [(0, 0), (100, 0)]]
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     network = graphs.RoadNetwork.from_lines(lines, metric="euclidean")
        >>> print(caught[0].message)  # doctest: +ELLIPSIS
        1 edge repeats another, on road 1. Copies count as parallel roads. Pass duplicates="merge" to...
        >>> network = graphs.RoadNetwork.from_lines(lines, metric="euclidean", duplicates="merge")
    """


class WideCrossingWarning(GraphWarning):
    """Snapping joins points in a chain that is wider than three tolerances. The message has the largest width.

    Use a smaller tolerance.

    Examples:
        >>> import warnings
        >>> import graphs
        >>> spokes = [[(0.9 * k, 0), (0.9 * k, 10 + 2 * k)] for k in range(6)]
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     network = graphs.RoadNetwork.from_lines(spokes, metric="euclidean", snap=1.0)
        >>> print(caught[0].message)  # doctest: +ELLIPSIS
        snap must be well below the distance of neighboring crossings, got one that joins a chain of points up to 4.5...
    """


class DisconnectedWarning(GraphWarning):
    """The domain of a field is not connected. The message says how many components it has. Connect them, if possible.

    Examples:
        >>> import warnings
        >>> import graphs
        >>> corners = [(0, 0), (1, 0), (0, 1), (5, 5), (6, 5), (5, 6)]
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     field = graphs.MeshField((corners, [(0, 1, 2), (3, 4, 5)]))
        >>> print(caught[0].message)  # doctest: +ELLIPSIS
        The mesh has 2 connected components, on which the field is independent. Merge vertices that...
    """


class NegativeCotangentsWarning(GraphWarning):
    """A mesh has negative cotangent weights, which are dropped. The message says how many. Use a Delaunay mesh.

    Examples:
        >>> import warnings
        >>> import graphs
        >>> obtuse = ([(0, 0, 0), (4, 0, 0), (2, 0.5, 0), (2, -0.5, 0)], [(0, 1, 2), (0, 3, 1)])
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     graph = graphs.Graph.from_mesh(obtuse, "vertices", weights="cotangent")
        >>> print(caught[0].message)  # doctest: +ELLIPSIS
        1 of 5 edges have negative cotangent weights (the lowest is -1.88, the highest of all 2) and are...
    """


class LargeVarianceWarning(GraphWarning):
    """Random-walk features of a kernel have a large, but finite, variance.

    The warning is raised if the total weight of a row has a relative variance above 1 for independent walk lengths. Use
    more walkers, a smaller `p_halt`, or features without walks.

    Examples:
        >>> import warnings
        >>> import graphs
        >>> walks = graphs.sample_walks(graphs.Graph.from_grid((5, 5)), exact_hops=0, seed=0)
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     features = walks.features(graphs.kernels.Diffusion(20.0))
        >>> print(caught[0].message)  # doctest: +ELLIPSIS
        The features of Diffusion(lengthscale=20.0) need longer walks: with 16 independent lengths the total...
    """


class InfiniteVarianceWarning(GraphWarning):
    """Random-walk features of a kernel have an infinite variance for a halting probability.

    Use a smaller `p_halt`.

    Examples:
        >>> import warnings
        >>> import graphs
        >>> walks = graphs.sample_walks(graphs.Graph.from_grid((5, 5)), p_halt=0.5, seed=0)
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     features = walks.features(graphs.kernels.RegularizedLaplacian(2, 3.0))
        >>> print(caught[0].message)  # doctest: +ELLIPSIS
        The features of RegularizedLaplacian(order=2, sigma=3.0) have no finite second moment with p_halt =...
    """


def warn(warning: Warning) -> None:
    """Issue a warning at the first line of the stack outside `graphs` and `rfgp`.

    Args:
        warning: The warning.
    """
    level, frame = 1, inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        level, frame = level + 1, frame.f_back
    warnings.warn(warning, stacklevel=level)
