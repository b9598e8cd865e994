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
from math import pi
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh

from graphs.arrays import as_numbers
from graphs.builders.lines import DEFAULT_LIMIT_FRACTION, MAX_COORDINATE, check_limit, read_points
from graphs.builders.mesh_files import Angles
from graphs.checks import check_count, check_fits, counted, short_repr
from graphs.errors import InvalidArgumentError
from graphs.precisions.elements import Location, Locator, assemble, in_space, read_mesh
from graphs.precisions.fields import Floats, ResolventField, read_indices, read_lengthscale

_WIDEST = 500.0
"""The largest absolute logarithm of dimensionless numbers, so that products of a few stay finite."""


_MAX_ALPHA = 6
"""The largest order alpha."""
_SHIFT = 1e-3
"""The shift of the inverse of the Laplacian, in units of its mean eigenvalue over N, near its smallest positive one."""
_BLOCK, _BLOCKS = 16, 16
"""The number of vectors of a block, and of blocks beyond those for three times the number of eigenvalues.

With these the largest of 256 eigenvalues has 11 digits, and 20 times as many for smaller ones."""
_SUM_TOLERANCE = 1e-6
"""The largest deviation of a sum of barycentric weights from 1."""
_MAX_LISTED = 8
"""The number of vertices that a message lists."""


class MeshField(ResolventField):
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
    4, 5 and 6. If it nears 1, Q may not be positive definite. The determinant keeps its digits.

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
        >>> eigenvalues, eigenfunctions = field.spectrum(3)
        >>> eigenvalues.round(6).tolist(), eigenfunctions.shape
        ([0.0, 3.0, 6.0], (4, 3))
    """

    parameters = ("lengthscale",)
    subject, remedy = "vertices", "Take a smaller alpha, or a coarser mesh."

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
        elements, nu = read.elements, self.alpha - 1
        self._steepest = float((np.asarray(abs(elements.stiffness).sum(axis=1)) / elements.masses).max())
        super().__init__(
            elements.stiffness,
            self.alpha,
            _frozen(coordinates),
            masses=elements.masses,
            exponent=-nu,
            norm=4 * pi * nu if nu else 1.0,
        )
        _ = self.pattern  # refused here if it is dense

    @property
    def num_vertices(self) -> int:
        """The number V of given vertices."""
        return len(self.vertices)

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
            return float(np.power(1 + self._steepest / self._shift(values)[0], float(self.order)))

    def spectrum(self, rank: int) -> tuple[Floats, Floats]:
        """Return the smallest eigenvalues of the Laplacian of the surface, ascending, and eigenfunctions (N, r).

        They are in the unit of the vertices, whatever alpha: G phi = lambda C phi with phi^T C phi = I. The elements
        are those of the intrinsic Delaunay triangulation, on which cotangents of long thin faces are not negative. C
        therefore differs from `areas` if faces are not Delaunay. The result is cached. On large meshes it is computed
        by the block Lanczos method for the inverse, by a sparse factor, and on small ones by a dense decomposition.

        Args:
            rank: The number r of eigenvalues, at most N.

        Raises:
            InvalidArgumentError: If the rank is out of range.
            MemoryBudgetError: If the vectors do not fit into memory.
        """
        from graphs.precisions.delaunay import delaunay

        size, unit = len(self.areas), self._mesh.elements.unit
        check_count("rank", rank, most=size)
        needed = 8.0 * (5 * rank + _BLOCKS * _BLOCK) * size
        check_fits(f"{rank} eigenvectors of {size} vertices", needed, "Use a lower rank.")
        if rank not in self._spectra:
            corners, cotangents, areas = delaunay(self._mesh.points / unit, self._mesh.cells)
            halves = Angles(cotangents / 2, areas / 2, areas <= 0, unit)  # of both sides of the surface
            elements = assemble(self._columns[corners], halves, size)
            root = np.sqrt(elements.masses)
            scaled = sp.csc_array(elements.stiffness / root[:, None] / root)
            shifted = ResolventField(elements.stiffness, 1, self.coordinates, masses=elements.masses)
            values, vectors = _smallest_eigenpairs(scaled, rank, shifted, root)
            self._spectra.clear()
            self._spectra[rank] = values / unit**2, vectors / (root[:, None] * unit)
        return self._spectra[rank]

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
        return read_points(points, self.vertices.shape[1], MAX_COORDINATE * self._mesh.elements.unit, "vertices")

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
        numbers = read_indices("faces", faces, len(self.faces))
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
        numbers = read_indices("vertices", vertices, self.num_vertices)
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

    def _shift(self, values: Floats) -> tuple[float, float]:
        """Return kappa^2 in the unit of the elements and its derivative.

        Raises:
            InvalidArgumentError: If the lengthscale is not a positive number, or out of range for the mesh.
        """
        lengthscale, unit = read_lengthscale(values), self._mesh.elements.unit
        with np.errstate(all="ignore"):
            shift = float(max(2.0 * (self.alpha - 1), 1.0) * np.square(unit / lengthscale))
            largest = np.log(shift) + self.order * np.log1p(np.divide(self._steepest, shift))  # of C^-1 Q
        if not abs(largest) < _WIDEST:
            raise InvalidArgumentError(
                f"The lengthscale must be in the range of a mesh with coordinates up to {unit:.3g}, got "
                f"{lengthscale:.3g}. Use the same unit for both; other lengthscales are out of range."
            )
        return shift, -2 * shift / lengthscale

    @cached_property
    def _spectra(self) -> dict[int, tuple[Floats, Floats]]:
        """The last eigenvalues and vectors, by their number."""
        return {}

    @cached_property
    def _locators(self) -> tuple[Locator, Locator]:
        """The given faces with an area, and the faces of the elements, usually the same."""
        points, cells = self._mesh.points, Locator(self._mesh.points, self._mesh.cells)
        given = self.faces[self._mesh.faces_with_area]
        return cells if self._mesh.is_cell.all() else Locator(points, given), cells


def _smallest_eigenpairs(
    matrix: sp.csc_array, rank: int, shifted: ResolventField, root: Floats
) -> tuple[Floats, Floats]:
    """Return the smallest eigenvalues (r,) of C^-1/2 G C^-1/2, and orthonormal vectors (N, r).

    Blocks of vectors find the copies of an eigenvalue, of which a symmetric surface has several (Golub and Underwood
    1977, "The block Lanczos method for computing eigenvalues").
    """
    size, count = matrix.shape[0], 3 * rank + _BLOCKS * _BLOCK
    if 2 * count > size:
        values, vectors = eigh(matrix.toarray(), subset_by_index=[0, rank - 1])
        return np.maximum(values, 0.0), vectors
    shift = _SHIFT * matrix.diagonal().mean() / size
    factor = shifted.factor_at(np.array([shift]))  # of shift C + G
    block = np.linalg.qr(np.random.default_rng(0).standard_normal((size, _BLOCK)))[0]
    basis = np.empty((size, count), order="F")
    for start in range(0, count, _BLOCK):
        basis[:, start : start + _BLOCK] = block[:, : count - start]
        block, known = root[:, None] * factor.solve(root[:, None] * block), basis[:, : start + _BLOCK]
        for _twice in range(2):
            block -= known @ (known.T @ block)
        block = np.linalg.qr(block)[0]
    values, weights = eigh(basis.T @ (matrix @ basis), subset_by_index=[0, rank - 1])
    return np.maximum(values, 0.0), basis @ weights


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


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
