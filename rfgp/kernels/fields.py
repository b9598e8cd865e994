"""Kernels of fields on roads, on surfaces and on the nodes of a graph, and their domains."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree
from torch import Tensor

import graphs
from graphs.builders.lines import DEFAULT_LIMIT_FRACTION
from graphs.checks import is_number, short_repr
from graphs.kernels import GraphKernel
from graphs.kernels.kernel import precision_order
from graphs.precisions import MarkovField, resolvent_field
from graphs.precisions.mesh import too_far_message
from rfgp.autograd import Array, as_array, is_differentiated, numpy_function
from rfgp.columns import ColumnKind
from rfgp.columns.rules import Key
from rfgp.errors import DataError, InvalidArgumentError, NotDifferentiableError
from rfgp.features.walks import resolvent_values, spectral_values
from rfgp.kernels.kernel import Kernel
from rfgp.kernels.role import ColumnSummary, Functions, LatentField, Projector, Values, bounds_in
from rfgp.messages import positive
from rfgp.parameters import Hyperparameter
from rfgp.sparse import selection
from rfgp.torch_context import Recent

# --- Domains of fields, surfaces or roads, and the matrices that read a field at inputs ------------------------------

ROAD_COLUMNS = ("road", "fraction")
"""The columns of positions on roads."""
POINT_COLUMNS = ("x", "y", "z")
"""The columns of points."""
_STEPS = 2.0**40
"""The number of distinct positions on a road. Rounding in standardization moves a position by less than one step."""

EDGE = 1e-9
"""The barycentric weight below which a point is on an edge. It exceeds the rounding errors of points on one."""


class Domain(LatentField):
    """A Whittle-Matern field on a domain, and the meaning of its inputs (n, d)."""

    subject: str
    """The first words of a message about its connected components."""
    joining: str
    """A sentence for messages about how to join components."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The usual names of the d columns of inputs."""

    @property
    @abstractmethod
    def extent(self) -> float:
        """About the distance from one end to the other, in the units of the lengthscale."""

    @abstractmethod
    def check(self, points: Array) -> None:
        """Check that inputs (n, d) lie in the domain.

        Raises:
            DataError: If an input lies outside. The message names the first and the reason.
        """

    @abstractmethod
    def description(self) -> str:
        """Return the field in words."""

    @abstractmethod
    def identity(self) -> Iterator[str | Tensor]:
        """Yield the domain as texts and tensors (...)."""


@dataclass(frozen=True, eq=False)
class MeshDomain(Domain):
    """Points (n, 3) near a surface or (n, 2) in a plane, projected to a mesh.

    Attributes:
        mesh: The field.
        within: The largest distance of a point from the surface, in the mesh's units. If None, a tenth of the diagonal
            of its box.
        is_smooth: Whether the kernel is the heat kernel, whatever the order of the field.

    Raises:
        InvalidArgumentError: If `within` is not a positive number.
    """

    mesh: graphs.MeshField
    within: float | None = None
    is_smooth: bool = False
    _recent: Recent[sp.csr_array] = field(default_factory=Recent, init=False, repr=False)
    subject = "The mesh has"
    joining = " If parts should be one, merge their vertices where they touch."

    def __post_init__(self) -> None:
        if self.within is not None and not (is_number(self.within) and self.within > 0):
            raise InvalidArgumentError(
                f"within must be a positive number or None, got {short_repr(self.within)}. math.inf allows any "
                "distance."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of coordinates: three, or two on a mesh of the plane."""
        return POINT_COLUMNS[: self.mesh.vertices.shape[1]]

    @property
    def extent(self) -> float:
        """The diagonal of the mesh's box."""
        return self.mesh.max_distance / DEFAULT_LIMIT_FRACTION

    @property
    def field(self) -> graphs.MeshField:
        """The field."""
        return self.mesh

    @property
    def limit(self) -> float:
        """The largest distance of a point from the surface."""
        return self.mesh.max_distance if self.within is None else float(self.within)

    def check(self, points: Array) -> None:
        """Check that points (n, d) are finite and close to the surface.

        Points close to a vertex pass. The others are projected, the farthest first.

        Args:
            points: The points, (n, d).

        Raises:
            DataError: If a point is not finite, or farther from the surface than the limit.
        """
        _named(lambda: self.mesh.read_points(points))
        distances, _ = self._vertices.query(points, distance_upper_bound=self.limit)
        doubtful = np.flatnonzero(np.isinf(distances) & np.isfinite(self.limit))
        if len(doubtful):
            distances, _ = self._vertices.query(points[doubtful])
            worst = doubtful[[int(distances.argmax())]]
            for rows in (worst, doubtful):
                exact_distances = self.mesh.locate(points[rows]).distances
                if exact_distances.max() > self.limit:
                    raise DataError(
                        too_far_message(int(rows[exact_distances.argmax()]), float(exact_distances.max()), self.limit)
                    )

    def projector(self, a: Tensor) -> sp.csr_array:
        """Return the barycentric weights (n, V) of the points of the mesh that are nearest to points a (n, d)."""
        points = as_points(a)

        def located() -> sp.csr_array:
            location = self.mesh.locate(points)
            return self.mesh.projector(location.faces, location.barycentric)

        return self._recent.find(points.tobytes(), located)

    def slopes(self, field: Any, values: Array, a: Tensor) -> list[tuple[sp.csr_array, Array]]:
        """Return the derivatives (n, V) of barycentric weights in each coordinate of points (n, d), within faces.

        With the edges E (d, 2) from the first corner of a face, E^+ (p - corner) are the weights of the other two.

        Raises:
            NotDifferentiableError: If a nearest point is on an edge or a vertex, where the derivative has a jump.
        """
        points = as_points(a)
        location = self.mesh.locate(points)
        at_edge = location.barycentric.min(axis=1, initial=1.0) < EDGE
        if at_edge.any():
            raise NotDifferentiableError(
                f"X must not require gradients on the edges of a mesh, got row {int(at_edge.argmax())} on one (rows "
                "count from 0). Use points within faces, or predict(X.detach())."
            )
        corners = self.mesh.faces[location.faces]
        edges = self.mesh.vertices[corners[:, 1:]] - self.mesh.vertices[corners[:, :1]]  # (n, 2, d)
        others = np.linalg.pinv(edges).swapaxes(1, 2)  # (n, 2, d)
        of_corners = np.concatenate([-others.sum(axis=1, keepdims=True), others], axis=1)
        readers = [self.mesh.projector_at_vertices(corners[:, corner]) for corner in range(3)]
        slopes = [
            sum(sp.diags_array(of_corners[:, corner, column]) @ readers[corner] for corner in range(3))
            for column in range(points.shape[1])
        ]
        return [(slope, np.zeros(len(points))) for slope in slopes]

    @cached_property
    def _vertices(self) -> KDTree:
        return KDTree(self.mesh.coordinates)

    def description(self) -> str:
        """Return the field in words."""
        if self.is_smooth:
            return "the field of the heat kernel on the surface (by eigenfunctions of its Laplacian)"
        return (
            f"the Whittle-Matern field of alpha {self.mesh.alpha} on the surface (by linear finite elements, with a "
            "derivative of zero across boundaries), exactly"
        )

    def identity(self) -> Iterator[str | Tensor]:
        """Yield alpha, a limit if one was given, vertices (V, d) and faces (F, 3)."""
        yield f"mesh alpha={math.inf if self.is_smooth else self.mesh.alpha}" + (
            "" if self.within is None else f" within={self.within}"
        )
        yield from (torch.from_numpy(np.array(part)) for part in (self.mesh.vertices, self.mesh.faces))


@dataclass(frozen=True, eq=False)
class RoadDomain(Domain):
    """Positions (n, 2) on roads: the number of a road, and the fraction of its length.

    Attributes:
        roads: The field, at its vertices.
    """

    roads: graphs.RoadField
    _recent: Recent[tuple[MarkovField, Projector]] = field(default_factory=Recent, init=False, repr=False)
    _recent_positions: Recent[tuple[MarkovField, Projector]] = field(default_factory=Recent, init=False, repr=False)
    subject = "The roads have"
    joining = " Roads meet where they share points; snap= joins points that nearly meet."
    is_refined = True
    names = ROAD_COLUMNS

    @cached_property
    def extent(self) -> float:
        """The diagonal of the box around all roads, or their total length if that is less."""
        return min(self.roads.roads.lines.diagonal, self.roads.roads.total_length)

    @property
    def field(self) -> graphs.RoadField:
        """The field at vertices."""
        return self.roads

    def check(self, points: Array) -> None:
        """Check that positions (n, 2) are on the roads."""
        _named(lambda: self.roads.roads.read_positions(points))

    def refine(self, a: Tensor) -> tuple[MarkovField, Projector]:
        """Return the field refined at positions a (n, 2), and its projector. Both are cached for the same positions."""
        points = as_points(a)

        def refined() -> tuple[MarkovField, Projector]:
            distinct = np.unique(_rounded(points), axis=0)
            return self._recent_positions.find(distinct.tobytes(), lambda: at_positions(distinct))

        def at_positions(distinct: Array) -> tuple[MarkovField, Projector]:
            field, index = self.roads.refine(distinct)
            return field, partial(_selected, distinct, index, len(field.coordinates))

        return self._recent.find(points.tobytes(), refined)

    def between(self, field: Any, values: Array, a: Tensor) -> tuple[sp.csr_array, Array]:
        """Return the projection (n, N) of positions to segment ends, and variances (n,)."""
        reads, left = field.conditional(values, _rounded(as_points(a)))
        return reads, left

    def slopes(self, field: Any, values: Array, a: Tensor) -> list[tuple[sp.csr_array, Array]]:
        """Raise an error for positions (n, 2).

        Raises:
            NotDifferentiableError: Always.
        """
        raise NotDifferentiableError(
            "X must not require gradients for fields on roads, got X that does. Use predict(X.detach())."
        )

    def description(self) -> str:
        """Return the field in words."""
        known = {"neumann": "a derivative of zero", "stationary": "stationary", "open": "no condition"}
        ends = known[self.roads.boundary]
        return f"the Whittle-Matern field of alpha {self.roads.alpha} along the roads ({ends} at free ends), exactly"

    def identity(self) -> Iterator[str | Tensor]:
        """Yield alpha, the boundary, edges (S,) and vertices (V, 2)."""
        yield f"roads alpha={self.roads.alpha} boundary={self.roads.boundary}"
        network = self.roads.roads
        parts = (*network.edges, network.edge_lengths, network.coordinates)
        yield from (torch.from_numpy(np.array(part)) for part in parts)


def _selected(
    positions: Array,  # (p, 2)
    columns: NDArray[np.integer[Any]],  # (p,)
    size: int,
    a: Tensor,  # (n, 2)
) -> sp.csr_array:  # (n, N)
    """Return the matrix that selects the values of a field at positions a.

    The positions are among the distinct ones of the field, whose values have the numbers `columns` of `size`.
    """
    points = as_points(a)
    _, group = np.unique(np.concatenate([positions, _rounded(points)]), axis=0, return_inverse=True)
    group = group.reshape(-1)
    column_of = np.empty(group.max() + 1, dtype=np.int64)
    column_of[group[: len(positions)]] = columns
    entries = np.ones(len(points)), column_of[group[len(positions) :]], np.arange(len(points) + 1)
    return sp.csr_array(entries, shape=(len(points), size))


def _rounded(points: Array) -> Array:
    """Return positions (n, 2) as they were before they were standardized."""
    road, fraction = np.round(points[:, 0]), np.round(points[:, 1] * _STEPS) / _STEPS
    return np.stack([road, np.clip(fraction, 0.0, 1.0)], axis=1)


def _named(call: Callable[[], Any]) -> None:
    try:
        call()
    except graphs.GraphError as error:
        raise DataError(str(error)) from error


def as_points(inputs: Tensor) -> Array:
    """Return inputs (n, d) as float64."""
    return np.ascontiguousarray(as_array(inputs))


# --- Kernels of Whittle-Matern fields on roads and on surfaces -------------------------------------------------------

START, BOUNDS = 0.05, (1e-4, 1e2)
"""The start and the bounds of the lengthscale, in extents of the roads or the surface."""
POINTS = 256
"""The number of points whose covariance is computed at once for their variances."""


def field_covariance(latent: LatentField, values: Values, a: Tensor, b: Tensor) -> Tensor:
    """Return the covariance (n, m) of a field at points a (n, d) and b (m, d).

    It is A Q^-1 B^T times the factor of the field.
    Let Z = Q^-1 A^T and G be the gradient in the covariance. The gradient in the entries of Q is -Z_a G Z_b^T, since
    d Q^-1 = -Q^-1 dQ Q^-1.

    Args:
        latent: The field.
        values: The hyperparameters by name. The covariance is differentiable in them.
        a: The points, (n, d).
        b: The points, (m, d).

    Raises:
        NotDifferentiableError: If points require gradients.
    """
    if is_differentiated(a, b):
        raise NotDifferentiableError(
            "X must not require gradients for the exact covariance of a field on a mesh or roads, got X that does. Use "
            "predict(X.detach()), or SparsePrecision()."
        )
    theta, factor = latent.parameters(values)
    field, read = latent.refine(torch.cat([a, b]))
    left, right = read(a), read(b)
    rows = np.repeat(np.arange(len(field.pattern.indptr) - 1), np.diff(field.pattern.indptr))

    def solved(point: Array) -> tuple[Array, Array]:
        factorized = field.factor_at(point)
        return factorized.solve(left.T.toarray()), factorized.solve(right.T.toarray())

    def value(point: Array) -> Array:
        return np.asarray(left @ solved(point)[1]).reshape(-1)

    def pull_back(point: Array, gradient: Array) -> Array:
        z, w = solved(point)
        pushed = z @ gradient.reshape(left.shape[0], right.shape[0])
        columns = field.pattern.indices
        weights = (pushed[rows] * w[columns]).sum(1) + (w[rows] * pushed[columns]).sum(1)
        return np.asarray(field.pull_back(point, -0.5 * weights))

    return factor * numpy_function(theta, value, pull_back).reshape(left.shape[0], right.shape[0])


@dataclass(frozen=True, eq=False, repr=False, init=False)
class _OnDomain(Kernel):
    """A field on a domain, which subclasses make.

    Attributes:
        lengthscale: The starting lengthscale, in the domain's units. If None, the domain decides.
    """

    kind: ClassVar[ColumnKind] = ColumnKind.COORDINATE
    lengthscale: float | None = field(default=None, kw_only=True)

    def _set(self, columns: Any, lengthscale: float | None, name: str | None, **values: Any) -> None:
        """Set the attributes, and check them."""
        values |= {"columns": columns, "name": name}
        values["lengthscale"] = None if lengthscale is None else positive("lengthscale", lengthscale)
        for attribute, value in values.items():
            object.__setattr__(self, attribute, value)
        self.__post_init__()
        known, names = self.columns, self.domain.names
        if known is not None and len(known) != len(names):
            raise InvalidArgumentError(f"{type(self).__name__} must have {len(names)} columns, got {known!r}.")

    def expanded(self, keys: Sequence[Key]) -> Kernel:
        """Return the kernel with the usual columns, or the leading ones of an array, unless it has columns.

        Args:
            keys: All columns but the target.

        Raises:
            DataError: If an array has fewer columns.
            InvalidArgumentError: If the table has other names.
        """
        names = self.domain.names
        if self.columns is not None:
            return self
        if all(name in keys for name in names):
            return replace(self, columns=names)
        reads = f"{type(self).__name__} reads the columns {', '.join(names)}"
        is_array = all(isinstance(key, int) for key in keys)
        if is_array and len(keys) >= len(names):
            return replace(self, columns=tuple(keys[: len(names)]))
        if is_array:
            raise DataError(f"{reads}, and X has shape (n, {len(keys)}).")
        raise InvalidArgumentError(f"{reads}, which X does not have. Give columns=.")

    def latent_field(self, columns: ColumnSummary) -> LatentField | None:
        """Return the field with its sparse precision, whatever the columns."""
        latent: LatentField = self.domain
        return latent

    @property
    def starts(self) -> Mapping[str, Any]:
        """The starting lengthscale, if it was given."""
        return {"lengthscale": self.lengthscale}

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of points a (n, d) and b (m, d)."""
        return field_covariance(self.domain, values, a, b)

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return the variances (n,) of points a (n, d)."""
        parts = torch.split(a, POINTS)
        variances = [field_covariance(self.domain, values, part, part).diagonal() for part in parts]
        return torch.cat(variances) if variances else a.new_zeros(0)

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Hyperparameter]:
        """Return the lengthscale, in the domain's units."""
        unit = torch.ones((), dtype=torch.float64)
        extent = self.domain.extent * unit
        return {"lengthscale": Hyperparameter(START * extent, unit, bounds_in(extent, BOUNDS))}


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Roads(_OnDomain):
    """A Whittle-Matern field on a road network, continuous over crossings.

    On a long road the kernel is exp(-d / lengthscale) for alpha = 1, and Matern 3/2 for alpha = 2.

    Source: Bolin, Simas and Wallin (2024), Gaussian Whittle-Matern fields on metric graphs, Section 2.

    Attributes:
        network: The roads, a `graphs.RoadNetwork`.
        alpha: 1, or 2 for paths with a derivative.
        columns: The keys of the number of a road and of the fraction of its length. If None, "road" and "fraction", or
            the first two columns of an array.
        boundary: The condition at free ends of roads: "neumann", "stationary" or "open". See `graphs.RoadField`.
        lengthscale: The starting lengthscale, in the units of the roads' lengths. If None, 5 % of their extent.
        name: The name of the term. If None, the class and the columns.

    Raises:
        InvalidArgumentError: If there are no roads, or alpha, the boundary or a number is invalid.

    Examples:
        >>> import graphs
        >>> from rfgp import kernels as k
        >>> net = graphs.RoadNetwork.from_lines([[(0.0, 0.0), (1.0, 0.0)]])
        >>> kernel = k.Roads(net, boundary="stationary", lengthscale=1.0)
        >>> kernel.matrix({"road": [0, 0], "fraction": [0.0, 1.0]}).shape
        torch.Size([2, 2])
    """

    network: Any = None
    alpha: int = 1
    boundary: str = field(default="neumann", kw_only=True)

    def __init__(
        self,
        network: Any,
        alpha: int = 1,
        columns: Any = None,
        *,
        boundary: str = "neumann",
        lengthscale: float | None = None,
        name: str | None = None,
    ) -> None:
        domain = RoadDomain(graphs.RoadField(network, alpha, boundary))
        self._set(columns, lengthscale, name, domain=domain, network=network, alpha=alpha, boundary=boundary)


RANK = 256
"""The number of eigenfunctions of the heat kernel on a surface."""
OMITTED = 1e-3
"""The largest share of the variance of a heat kernel that further eigenfunctions would have."""


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Mesh(_OnDomain):
    """A Whittle-Matern field of linear finite elements on a triangle mesh.

    Points are projected to the nearest point of the mesh. With alpha = math.inf the kernel is the limit of smooth
    fields, the heat kernel sum_j exp(-lengthscale^2 lambda_j / 2) phi_j(x) phi_j(z), divided by the standard
    deviations of x and z. It has the variance 1 everywhere, and is near the RBF kernel at distances that are short
    compared to the curvature. The sum is over the 256 smallest eigenvalues of the Laplacian and their eigenfunctions,
    of `graphs.MeshField.spectrum`. By Weyl's law the others have a share of exp(-lengthscale^2 lambda_256 / 2) of the
    variance. Lengthscales for which it exceeds 0.001 are out of bounds.

    Source: Lindgren, Rue and Lindstrom (2011), An explicit link between Gaussian fields and Gaussian Markov random
    fields, Section 2.3. Borovitskiy et al. (2020), Matern Gaussian processes on Riemannian manifolds, Eq. 10, for
    alpha = math.inf.

    Attributes:
        mesh: A `graphs.MeshField`, a mesh of trimesh, or the path of a file.
        alpha: The smoothness, from 1 to 6, or math.inf. A `graphs.MeshField` has its own, unless this is math.inf.
        columns: The keys of the coordinates. If None, "x", "y" and "z", or the leading columns of an array.
        within: The largest distance of a point from the surface. If None, a tenth of the diagonal of its box.
        lengthscale: The starting lengthscale, in the mesh's units. If None, 5 % of its diagonal.
        name: The name of the term. If None, the class and the columns.

    Raises:
        InvalidArgumentError: If there is no mesh, or alpha or a number is invalid.

    Examples:
        >>> import math
        >>> import trimesh
        >>> from rfgp import kernels as k
        >>> ball = trimesh.creation.icosphere(2)
        >>> k.Mesh(ball, lengthscale=1.0).matrix(ball.vertices[:5]).shape
        torch.Size([5, 5])
        >>> k.Mesh(ball, math.inf, lengthscale=1.0).matrix(ball.vertices[:5]).shape
        torch.Size([5, 5])
    """

    mesh: Any = None
    alpha: float = 2
    within: float | None = field(default=None, kw_only=True)

    def __init__(
        self,
        mesh: Any,
        alpha: float = 2,
        columns: Any = None,
        *,
        within: float | None = None,
        lengthscale: float | None = None,
        name: str | None = None,
    ) -> None:
        if isinstance(mesh, graphs.Graph):
            raise InvalidArgumentError("Mesh needs a graphs.MeshField or a mesh, got a graph. Use k.Nodes for graphs.")
        is_smooth = isinstance(alpha, float) and alpha == math.inf
        given: Any = 2 if is_smooth else alpha
        field = mesh if isinstance(mesh, graphs.MeshField) else graphs.MeshField(mesh, given)
        domain = MeshDomain(field, within, is_smooth)
        order = alpha if is_smooth else field.alpha
        self._set(columns, lengthscale, name, domain=domain, mesh=field, alpha=order, within=within)

    @property
    def rank(self) -> int:
        """The number r of eigenfunctions of the heat kernel."""
        return min(RANK, len(self.mesh.areas))

    def latent_field(self, columns: ColumnSummary) -> LatentField | None:
        """Return the field with its sparse precision, or None for the heat kernel."""
        return None if self.alpha == math.inf else super().latent_field(columns)

    def functions(self, columns: ColumnSummary) -> Functions | None:
        """Return the functions of the heat kernel, or None for a field with a sparse precision."""
        return Functions(self.rank, self._features) if self.alpha == math.inf else None

    def covariance(self, a: Tensor, b: Tensor, values: Values) -> Tensor:
        """Return the covariance (n, m) of points a (n, d) and b (m, d)."""
        if self.alpha != math.inf:
            return super().covariance(a, b, values)
        return self._features(a, values) @ self._features(b, values).mT

    def variances(self, a: Tensor, values: Values) -> Tensor:
        """Return the variances (n,) of points a (n, d)."""
        return super().variances(a, values) if self.alpha != math.inf else torch.ones(len(a), dtype=torch.float64)

    def hyperparameters(self, columns: ColumnSummary) -> dict[str, Hyperparameter]:
        """Return the lengthscale, in the domain's units."""
        known = super().hyperparameters(columns)
        if self.alpha == math.inf and self.rank < len(self.mesh.areas):
            found = known["lengthscale"]
            least = math.sqrt(-2 * math.log(OMITTED) / self.mesh.spectrum(self.rank)[0][-1])
            low, high = (bound.clamp_min(least) for bound in found.bounds)
            known["lengthscale"] = replace(found, start=found.start.clamp_min(least), bounds=(low, high))
        return known

    def _features(self, a: Tensor, values: Values) -> Tensor:
        """Return the functions (n, r) at points a (n, d), whose squares have the sum 1.

        Raises:
            NotDifferentiableError: If points require gradients.
        """
        if is_differentiated(a):
            raise NotDifferentiableError(
                "X must not require gradients for the heat kernel on a mesh, got X that does. Use predict(X.detach()), "
                "or a finite alpha."
            )
        eigenvalues, eigenfunctions = self.mesh.spectrum(self.rank)
        exponents = -0.25 * values["lengthscale"].double().square() * torch.from_numpy(eigenvalues)
        features = torch.from_numpy(self.domain.projector(a) @ eigenfunctions) * exponents.exp()
        return torch.nn.functional.normalize(features, dim=1)


# --- Kernels of the nodes of a graph ---------------------------------------------------------------------------------

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
        theta = _parameters(self.graph_kernel, values)
        return torch.from_numpy(eigenvectors), spectral_values(theta, self.graph_kernel, eigenvalues)


def _parameters(kernel: GraphKernel, values: Values) -> Tensor:
    """Return the parameters (p,) of a graph kernel in their order, float64."""
    return torch.stack([values[name].double() for name in kernel.parameters])


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
        return resolvent_values(_parameters(self.kernel, values), self.kernel)

    def projector(self, a: Tensor) -> sp.csr_array:
        """Return the matrix (n, N) that selects the values at positions a (n, 1)."""
        return selection(a[:, 0].long(), self.graph.num_nodes)
