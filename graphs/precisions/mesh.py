"""Whittle-Matern precisions of integer order from a lumped mass matrix C and a stiffness matrix G.

The field x = sum_i x_i h_i of finite elements solves (kappa^2 - Laplacian)^(alpha/2) x = white noise / tau. Let K =
kappa^2 C + G. Section 2.3 of Lindgren, Rue and Lindstrom (2011), "An explicit link between Gaussian fields and Gaussian
Markov random fields", derives the precisions. They are Q_1 = K, Q_2 = K C^-1 K and Q_a = K C^-1 Q_(a-2) C^-1 K, times
tau^2. All of them are

    Q = tau^2 C (C^-1 K)^a = tau^2 sum_j binom(a, j) kappa^(2 (a - j)) G_j,      G_0 = C,   G_j = G (C^-1 G)^(j - 1),

fixed matrices with coefficients. On the infinite plane the variance of the process is

    integral of (kappa^2 + |w|^2)^-alpha d^2 w / (2 pi)^2 / tau^2 = 1 / (4 pi nu kappa^(2 nu) tau^2),   nu = alpha - 1,

so it is 1 for tau^2 = 1 / (4 pi nu kappa^(2 nu)). Then Q = sum_j binom(a, j) x^(1 - j) G_j / (4 pi nu) with x = kappa^2
is invariant under a common scaling of the mesh and the lengthscale. For a = 1 the sum is K itself.

Determinants need factors of K alone: log |Q| = a log |K| - (a - 1) sum_i log(kappa^2 C_ii) - N log(4 pi nu).
"""

from functools import cached_property
from math import comb, log, pi
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from graphs.arrays import as_numbers
from graphs.builders.lines import DEFAULT_LIMIT_FRACTION, MAX_COORDINATE, check_limit
from graphs.checks import check_count, counted, short_repr
from graphs.errors import InvalidArgumentError
from graphs.precisions.elements import Elements, Location, Locator, in_space, read_mesh
from graphs.precisions.fields import (
    Floats,
    LogDeterminant,
    MarkovField,
    Pattern,
    entry_indices,
    reached_within,
    read_lengthscale,
    symmetric_powers,
)

_WIDEST = 500.0
"""The largest absolute logarithm of dimensionless numbers, so that products of a few stay finite."""


class Term(NamedTuple):
    """A matrix G_j: its entries and their indices on a pattern.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.mesh import Term
        >>> Term(np.array([0, 3]), np.array([1.0, 2.0])).entries.sum().item()
        3.0
    """

    entry_indices: NDArray[np.int64]  # (m,)
    entries: Floats  # (m,)


class WhittleField(MarkovField):
    """The precision of order alpha, with kappa^2 = ratio / lengthscale^2.

    Args:
        elements: The matrices C and G.
        order: The order alpha, a positive integer.
        ratio: kappa^2 lengthscale^2.
        norm: The divisor of the sum, 4 pi nu for variance 1 on the plane.
        coordinates: Coordinates (N, 2) or (N, 3) of the vertices for orderings. If None, they are unknown.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.elements import read_mesh
        >>> from graphs.precisions.mesh import WhittleField, unit_norm
        >>> mesh = read_mesh(([(0, 0), (1, 0), (0, 1)], [(0, 1, 2)]))
        >>> WhittleField(mesh.elements, 2, 2.0, unit_norm(2)).entries(np.array([1.0])).shape
        (9,)
    """

    parameters = ("lengthscale",)

    def __init__(
        self, elements: Elements, order: int, ratio: float, norm: float, coordinates: Floats | None = None
    ) -> None:
        self.order, self.ratio, self.norm, self.coordinates = order, ratio, norm, coordinates
        self._elements = elements
        self._pattern = reached_within(
            elements.stiffness, order, f"{len(elements.masses):,} vertices", "Take a smaller alpha, or a coarser mesh."
        )
        step = sp.csr_array(sp.diags_array(1 / elements.masses) @ elements.stiffness)
        powers = symmetric_powers(sp.csr_array(sp.diags_array(elements.masses)), step, order)
        self._terms = [Term(entry_indices(matrix, self._pattern), matrix.data) for matrix in powers]

    @property
    def pattern(self) -> Pattern:
        """Vertices within alpha edges of each other."""
        return self._pattern

    @np.errstate(under="ignore")
    def entries(
        self,
        values: Floats,  # (1,)
    ) -> Floats:  # (nnz,)
        """Return the entries of Q on the pattern for a lengthscale.

        Args:
            values: The lengthscale (1,).

        Raises:
            InvalidArgumentError: If the lengthscale is not positive, or out of range for the mesh. Other methods raise
                it too.
        """
        out = np.zeros(len(self._pattern.indices))
        for term, coefficient in zip(self._terms, self._coefficients(values), strict=True):
            out[term.entry_indices] += coefficient * term.entries
        return out

    @np.errstate(under="ignore")
    def pull_back(
        self,
        values: Floats,  # (1,)
        weights: Floats,  # (nnz,)
    ) -> Floats:  # (1,)
        """Return sum_e weights_e dQ_e / d lengthscale.

        Args:
            values: The lengthscale (1,).
            weights: The derivative (nnz,) of a scalar in each entry of Q.
        """
        slopes = 2 * (np.arange(self.order + 1) - 1) * self._coefficients(values) / float(values[0])
        inner = [float(weights[term.entry_indices] @ term.entries) for term in self._terms]
        return np.array([slopes @ inner])

    def log_determinant_from(
        self,
        values: Floats,  # (1,)
        root: tuple[float, Floats],  # log |K|, (1,)
    ) -> tuple[float, Floats]:
        """Return log |Q| and its derivative (1,), given those of K.

        log |Q| = alpha log |K| - (alpha - 1) sum_i log(kappa^2 C_ii) - N log(norm).

        A factor of K is cheaper than one of Q and keeps the digits of the constant.

        Args:
            values: The lengthscale (1,).
            root: log |K| and its derivative (1,), which is `root.pull_back(values, inverse)` with `inverse` the entries
                of K^-1 on the pattern of `root`.
        """
        masses, times = self._elements.masses, self.order - 1
        constant = times * float(np.log(self.shift(values) * masses).sum()) + len(masses) * log(self.norm)
        slope = self.order * root[1] + 2 * times * len(masses) / float(values[0])
        return self.order * root[0] - constant, slope

    def condition(
        self,
        values: Floats,  # (1,)
    ) -> float:
        """Return a bound of the condition number of C^(-1/2) Q C^(-1/2).

        Digits are lost if eps times it is not small.

        Args:
            values: The lengthscale (1,).
        """
        with np.errstate(over="ignore"):
            return float(np.power(1 + self._steepest / self.shift(values), float(self.order)))

    def shift(
        self,
        values: Floats,  # (1,)
    ) -> float:
        """Return kappa^2 in the unit of the elements.

        Args:
            values: The lengthscale (1,).

        Raises:
            InvalidArgumentError: If the lengthscale is not a positive number, or out of range for the mesh.
        """
        lengthscale = read_lengthscale(values)
        with np.errstate(all="ignore"):
            shift = float(self.ratio * np.square(self._elements.unit / lengthscale))
            largest = np.log(shift) + self.order * np.log1p(np.divide(self._steepest, shift))  # of C^-1 Q
        if not abs(largest) < _WIDEST:
            raise InvalidArgumentError(
                f"The lengthscale must be in the range of a mesh with coordinates up to {self._elements.unit:.3g}, got "
                f"{lengthscale:.3g}. Use the same unit for both; other lengthscales are out of range."
            )
        return shift

    @cached_property
    def _steepest(self) -> float:
        """The largest row sum of |C^-1 G|, a bound of its largest eigenvalue."""
        return float((np.asarray(abs(self._elements.stiffness).sum(axis=1)) / self._elements.masses).max())

    def _coefficients(self, values: Floats) -> Floats:
        """Return binom(a, j) x^(1 - j) / norm, (a + 1,)."""
        shift, a = self.shift(values), self.order
        return np.array([comb(a, j) * shift ** (1 - j) for j in range(a + 1)]) / self.norm


def unit_norm(order: int) -> float:
    """Return 4 pi nu with nu = order - 1, or 1 for order 1 (infinite variance).

    Args:
        order: The order alpha.

    Examples:
        >>> from graphs.precisions.mesh import unit_norm
        >>> round(unit_norm(2), 4), unit_norm(1)
        (12.5664, 1.0)
    """
    return 4 * pi * (order - 1) if order > 1 else 1.0


# --- Whittle-Matern fields on triangle meshes ------------------------------------------------------------------------


_MAX_ALPHA = 6
"""The largest order alpha."""
_SUM_TOLERANCE = 1e-6
"""The largest deviation of a sum of barycentric weights from 1."""
_MAX_LISTED = 8
"""The number of vertices that a message lists."""


class MeshField(WhittleField):
    """A Whittle-Matern field on a triangle mesh: a latent value at each vertex.

    Faces that are too thin for double precision are left out, with a warning: a short side is contracted, so that
    nearly coincident vertices share a value, and otherwise the faces beyond the longest side are divided at the vertex
    on it. Too thin is a height below (eps 30^(alpha - 1))^(1 / (alpha + 1)) of the longest side: 1e-8, 2e-5, 7e-4 for
    alpha = 1, 2, 3, and 5e-3 for higher ones. A vertex that is then on no face has no value of its own. It keeps its
    number, and the field there is that at the nearest point of the surface. Faces keep their numbers too.

    The field solves (kappa^2 - Laplacian)^(alpha/2) x = white noise / tau in linear finite elements. Source: Lindgren,
    Rue and Lindstrom (2011), "An explicit link between Gaussian fields and Gaussian Markov random fields". Let C be the
    lumped mass matrix, a third of the areas of the faces of a vertex. G is the stiffness matrix of cotangents,
    including the negative ones of obtuse angles. With K = kappa^2 C + G the precision is

        Q = K (alpha = 1),   tau^2 K C^-1 K (alpha = 2),   tau^2 C (C^-1 K)^alpha,

    with entries for vertices within alpha edges of each other. Errors of covariances fall like h^2, h the longest side,
    once h is well below the lengthscale. Errors of variances for alpha = 2 fall like h^2 log(1 / h).

    The lengthscale is that of Matern kernels, in the unit of the mesh. On the plane the process is the Matern process
    with nu = alpha - 1 and kappa = sqrt(2 nu) / lengthscale. The practical range of INLA, with a correlation of about
    0.14, is sqrt(8 nu) / kappa = 2 lengthscale. The variance on the infinite plane is 1 for tau^2 = 1 / (4 pi nu
    kappa^(2 nu)). Q / s^2 is the precision for variance s^2. Elsewhere the variance is not 1. At the boundary of an
    open mesh the normal derivative is 0 (Neumann). On a flat mesh the variance is therefore 2 at an edge and 4 at a
    right corner. It decays to 1 within a few lengthscales of the boundary. On a component of area A, the constant
    function adds the variance 2 pi lengthscale^2 / A, which exceeds 1 on small surfaces.

    alpha = 1 is an exception. For nu = 0 the process has infinite variance. The variance of its elements is finite, but
    grows as the mesh is refined. On a grid of squares of side h it is log(lengthscale / h) / (2 pi) + 0.28. There kappa
    = 1 / lengthscale and tau = 1, and covariances are near K_0(r / lengthscale) / (2 pi) at distances r of several h.

    Digits are lost if lengthscales are long compared to h: Q is a sum of matrices in which the constant nearly cancels.
    Its variance has a relative error of up to about eps `condition(values)`, of the order (lengthscale / h)^(2 alpha).
    On a grid the error was 2e-9 for alpha = 2 at a lengthscale of 50 h. At 20 h it was 2e-6, 4e-4 and 4e-2 for alpha =
    4, 5 and 6. If it nears 1, Q may not be positive definite. The determinant keeps its digits, see
    `log_determinant_from`.

    Args:
        mesh: A `trimesh.Trimesh`, an object with `vertices` (V, 3) or (V, 2) and `faces` (F, 3), or the pair of them. A
            `trimesh.Scene` is concatenated by its `to_mesh()`. A path is read by `graphs.load_mesh`. The order of the
            corners of a face does not matter, and more than two faces may share an edge.
        alpha: An integer from 1 to 6.

    Attributes:
        parameters: ("lengthscale",).
        alpha: The order.
        vertices: The given vertices, (V, 3) or (V, 2).
        faces: The given faces, (F, 3).
        vertices_on_faces: The numbers (N,) of the vertices with a value of their own, ascending, usually all of them.
        coordinates: The coordinates of these vertices, (N, 3) or (N, 2). The field is a vector of N values.
        areas: The diagonal of C, (N,).
        max_distance: The largest distance of points from the surface if `within` is not given, a tenth of the diagonal
            of the bounding box.

    Raises:
        InvalidGraphError: If there are no faces, faces are not triangles, coordinates are not finite, or vertices
            without a common face coincide.
        InvalidArgumentError: If alpha is out of range.

    Warns:
        DegenerateFacesWarning: If faces are too thin for double precision. The message names vertices that are joined.
        DuplicateFacesWarning: If faces have the same corners as another. They are dropped.
        UnreferencedVerticesWarning: If vertices are on no face with an area. They are dropped.
        DisconnectedWarning: If the mesh is not connected. Its components are independent. Also if vertices of the
            boundary nearly coincide without a common face.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> square = ([(0, 0), (1, 0), (1, 1), (0, 1)], [(0, 1, 2), (0, 2, 3)])
        >>> field = graphs.MeshField(square, alpha=2)
        >>> factor = field.factor_at(np.array([0.5]))
        >>> A = field.projector([0], [(0.5, 0.5, 0.0)])  # a point on face 0
        >>> factor.variances.shape, A.toarray().tolist()
        ((4,), [[0.5, 0.5, 0.0, 0.0]])
        >>> field.num_vertices, field.locate([(0.5, 0.1)]).distances.tolist(), field.read_points([(1, 0)]).tolist()
        (4, [0.0], [[1.0, 0.0]])
        >>> field.projector_at_vertices([2]).toarray().tolist(), len(field.pattern.indices)
        ([[0.0, 0.0, 1.0, 0.0]], 16)
        >>> field.entries(np.array([0.5])).shape, field.condition(np.array([0.5])) > 1
        ((16,), True)
    """

    def __init__(self, mesh: Any, alpha: int = 2) -> None:
        self.alpha = check_count("alpha", alpha, 1, _MAX_ALPHA)
        read = read_mesh(mesh, self.alpha)
        self.faces: NDArray[np.int64] = _frozen(read.faces)
        self.vertices: Floats = _frozen(read.vertices)
        self.vertices_on_faces: NDArray[np.int64] = _frozen(read.vertices_on_faces)
        coordinates = read.vertices[read.vertices_on_faces]
        self.areas: Floats = _frozen(read.elements.masses * read.elements.unit**2)
        self.max_distance = DEFAULT_LIMIT_FRACTION * float(np.linalg.norm(np.ptp(coordinates, axis=0)))
        self._mesh = read
        self._columns = np.full(self.num_vertices, -1, dtype=np.int64)  # of each vertex among the values; -1: none
        self._columns[self.vertices_on_faces] = np.arange(len(self.vertices_on_faces))
        ratio = 2.0 * (self.alpha - 1) if self.alpha > 1 else 1.0
        super().__init__(read.elements, self.alpha, ratio, unit_norm(self.alpha), _frozen(coordinates))

    @property
    def num_vertices(self) -> int:
        """The number V of given vertices."""
        return len(self.vertices)

    @cached_property
    def root(self) -> MarkovField:
        """The field with precision K = kappa^2 C + G, for determinants."""
        return self if self.alpha == 1 else WhittleField(self._mesh.elements, 1, self.ratio, 1.0, self.coordinates)

    def log_determinant(
        self,
        values: Floats,  # (1,)
    ) -> tuple[float, Floats]:
        """Return log |Q| and its derivative (1,).

        Both follow from log |K|, which is interpolated once per mesh.

        Args:
            values: The lengthscale (1,).
        """
        shift = self.shift(values)
        value, slope = self._determinants(shift)
        return self.log_determinant_from(values, (value, np.array([-2 * shift * slope / float(values[0])])))

    def locate(
        self,
        points: ArrayLike,  # (n, 3), or (n, 2) on a mesh of the plane
        *,
        within: float | None = None,
    ) -> Location:
        """Return the nearest points of the mesh.

        Points near the surface take time log(F) each. If many faces are about equally far, as from the center of a
        sphere, all of them are compared.

        Args:
            points: Points (n, 3), or (n, 2) on a mesh of the plane.
            within: The largest distance of a point from the mesh, in its unit. If None, any distance is allowed.

        Returns:
            Faces (n,), barycentric weights (n, 3), and distances (n,) in the units of the vertices.

        Raises:
            InvalidArgumentError: If points have another dimension, are not finite, or are farther away than `within`.
        """
        if within is not None:
            check_limit(within)
        location = self._locators[0].nearest(in_space(self.read_points(points)))
        if within is not None and (location.distances > within).any():
            row = int(location.distances.argmax())
            raise InvalidArgumentError(too_far_message(row, float(location.distances[row]), within))
        return location._replace(faces=self._mesh.faces_with_area[location.faces])

    def read_points(
        self,
        points: ArrayLike,  # (n, 3), or (n, 2) on a mesh of the plane
    ) -> Floats:
        """Return points as an array (n, 3), or (n, 2) on a mesh of the plane.

        Args:
            points: Points (n, 3), or (n, 2) on a mesh of the plane.

        Raises:
            InvalidArgumentError: If points have another dimension or are not finite.
        """
        coordinates, dimension = as_numbers(points), self.vertices.shape[1]
        if isinstance(points, list | tuple) and not points:
            coordinates = coordinates.reshape(0, dimension)
        if coordinates.ndim != 2 or coordinates.shape[1] != dimension:
            raise InvalidArgumentError(
                f"Points must be real numbers (n, {dimension}) like the vertices, got {short_repr(points)}."
            )
        wrong = ~(np.abs(coordinates) < MAX_COORDINATE * self._mesh.elements.unit).all(axis=1)
        if wrong.any():
            row = int(wrong.argmax())
            raise InvalidArgumentError(f"Point {row} must be finite and in range, got {coordinates[row].tolist()}.")
        return coordinates

    def projector(
        self,
        faces: ArrayLike,  # (n,)
        barycentric: ArrayLike | None = None,  # (n, 3)
    ) -> sp.csr_array:
        """Return the matrix A (n, N) such that the field is A x at points on faces.

        Rows sum to 1. Weights of 0 are not stored, so a point at a vertex has one entry. The results of `locate` can be
        passed. Points of faces without area are moved to the nearest point of the surface.

        Args:
            faces: Faces (n,).
            barycentric: Barycentric weights (n, 3). If None, the centroids of the faces.

        Raises:
            InvalidArgumentError: If faces are not in the mesh, weights are not non-negative with sum 1, or points of
                faces without area are far from the surface.
        """
        numbers = _numbers("faces", faces, len(self.faces))
        weights = np.full((len(numbers), 3), 1 / 3) if barycentric is None else as_numbers(barycentric)
        if weights.shape != (len(numbers), 3):
            raise InvalidArgumentError(
                f"barycentric must have shape ({len(numbers)}, 3), got {short_repr(barycentric)}."
            )
        sums = weights.sum(axis=1)
        wrong = ~((weights >= 0).all(axis=1) & (np.abs(sums - 1) < _SUM_TOLERANCE))
        if wrong.any():
            row = int(wrong.argmax())
            raise InvalidArgumentError(
                f"Barycentric weights must be non-negative with sum 1, got {weights[row].tolist()} in row {row}."
            )
        return self._rows(self.faces[numbers], weights / sums[:, None], ~self._mesh.is_cell[numbers])

    def projector_at_vertices(
        self,
        vertices: ArrayLike,  # (n,)
    ) -> sp.csr_array:
        """Return the matrix A (n, N) such that the field is A x at n vertices.

        Vertices on no face with an area are moved to the nearest point of the surface.

        Args:
            vertices: The vertices (n,), integers from 0.

        Raises:
            InvalidArgumentError: If vertices are not in the mesh, or on no face with an area and farther from the
                surface than `max_distance`.
        """
        numbers = _numbers("vertices", vertices, self.num_vertices)
        weights = np.zeros((len(numbers), 3))
        weights[:, 0] = 1.0
        return self._rows(np.repeat(numbers[:, None], 3, axis=1), weights, self._columns[numbers] < 0)

    def __repr__(self) -> str:
        return (
            f"MeshField({counted(self.num_vertices, 'vertex', 'vertices')}, {counted(len(self.faces), 'face')}, "
            f"alpha={self.alpha})"
        )

    def _rows(self, corners: NDArray[np.int64], weights: Floats, is_off: NDArray[np.bool_]) -> sp.csr_array:
        """Return rows (n, N) of points with barycentric weights (n, 3), of which some are off the elements."""
        off = np.flatnonzero(is_off)
        if len(off):
            corners, weights = corners.copy(), weights.copy()
            corners[off], weights[off] = self._nearest(corners[off], weights[off])
        columns = np.where(weights > 0, self._columns[corners], 0)
        starts = np.arange(len(columns) + 1) * columns.shape[1]
        rows = sp.csr_array((weights.ravel(), columns.ravel(), starts), shape=(len(columns), len(self.areas)))
        rows.eliminate_zeros()
        rows.sort_indices()
        return rows

    def _nearest(self, corners: NDArray[np.int64], weights: Floats) -> tuple[NDArray[np.int64], Floats]:
        """Return corners and weights (m, 3) of the nearest points of the elements."""
        location = self._locators[1].nearest(np.einsum("mk,mkd->md", weights, self._mesh.points[corners]))
        far = location.distances > self.max_distance
        if far.any():
            named = np.unique(corners[far][weights[far] > 0])
            named = named[self._columns[named] < 0]
            listed = ", ".join(map(str, named[:_MAX_LISTED])) + (", ..." if len(named) > _MAX_LISTED else "")
            raise InvalidArgumentError(
                f"Vertices must lie on the surface, got {len(named)} on no face that has an area and farther from the "
                f"surface than {self.max_distance:.3g}: {listed}. Pass other vertices."
            )
        return self._mesh.cells[location.faces], location.barycentric

    @cached_property
    def _determinants(self) -> LogDeterminant:
        """The interpolant of log |x C + G| in x = kappa^2, in the unit of the elements."""
        return LogDeterminant(self._log_determinant_at)

    def _log_determinant_at(self, shift: float) -> float:
        lengthscale = self._mesh.elements.unit * np.sqrt(self.ratio / shift)
        return self.root.factor(self.root.entries(np.array([lengthscale]))).log_determinant

    @cached_property
    def _locators(self) -> tuple[Locator, Locator]:
        """The given faces with an area, and the faces of the elements, usually the same."""
        points, cells = self._mesh.points, Locator(self._mesh.points, self._mesh.cells)
        given = self.faces[self._mesh.faces_with_area]
        return cells if self._mesh.is_cell.all() else Locator(points, given), cells


def too_far_message(row: int, distance: float, within: float) -> str:
    """Return an error message for a point that is too far from a surface.

    Examples:
        >>> from graphs.precisions.mesh import too_far_message
        >>> too_far_message(3, 2.5, 1.0)[:65]
        'Points must lie within 1 of the surface, got row 3 at a distance '
    """
    return (
        f"Points must lie within {within:.4g} of the surface, got row {row} at a distance of {distance:.4g} (rows "
        "count from 0). Are both in the same units and the same frame? Raise within= to allow more."
    )


def _numbers(name: str, given: ArrayLike, count: int) -> NDArray[np.int64]:
    """Return integers (n,) in 0..count - 1."""
    try:
        numbers = np.asarray(given)
    except ValueError:  # ragged
        numbers = np.array([np.nan])
    if numbers.size == 0:
        return np.zeros(0, dtype=np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or ((numbers < 0) | (numbers >= count)).any():
        raise InvalidArgumentError(f"{name} must be integers (n,) from 0 to {count - 1}, got {short_repr(given)}.")
    return numbers.astype(np.int64)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
