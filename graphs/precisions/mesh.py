"""Whittle-Matern fields on triangle meshes."""

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from graphs.builders.nearest import DEFAULT_LIMIT_SHARE, MAX_COORDINATE, check_limit
from graphs.checks import as_numbers, check_count, counted, shown
from graphs.errors import InvalidArgumentError
from graphs.precisions.base import Floats, MarkovField, Pattern
from graphs.precisions.determinant import LogDeterminant
from graphs.precisions.elements import in_space, read_mesh
from graphs.precisions.location import Location, Locator
from graphs.precisions.whittle import WhittleField, unit_norm

_HIGHEST = 6
_SUM = 1e-6
_LISTED = 8
"""Vertices that a message lists."""


class MeshField(MarkovField):
    """A Whittle-Matern field on a triangle mesh: a Gaussian value at each vertex, linear on every face.

    The field has no value of its own at a vertex that is on no face with an area, as the corners of slivers where two
    faces meet a long side. Such a vertex keeps its number, and the field there is that at the nearest point of the
    surface.

    The field solves (kappa^2 - Laplacian)^(alpha/2) x = white noise / tau in linear finite elements (Lindgren, Rue and
    Lindstrom, 2011, "An explicit link between Gaussian fields and Gaussian Markov random fields: the stochastic partial
    differential equation approach"). With C the lumped mass matrix, a third of the areas of a vertex's faces, G the
    stiffness matrix of cotangents, obtuse angles' negative ones included, and K = kappa^2 C + G, its precision is

        Q = K (alpha = 1),   tau^2 K C^-1 K (alpha = 2),   tau^2 C (C^-1 K)^alpha,

    with entries for vertices within alpha edges of each other. Errors of covariances fall as h^2, h the longest side,
    once it is well below the lengthscale; those of variances for alpha = 2 as h^2 log(1 / h).

    The lengthscale is that of Matern kernels, in the mesh's unit: on the plane the process is the Matern one with
    nu = alpha - 1, kappa = sqrt(2 nu) / lengthscale. (The practical range of INLA, where the correlation is about .14,
    is sqrt(8 nu) / kappa = 2 lengthscale.) tau^2 = 1 / (4 pi nu kappa^(2 nu)) gives the process variance 1 on the
    infinite plane; Q / s^2 is the precision for variance s^2. Elsewhere the variance is not 1. Where the mesh is open
    Neumann's condition holds (the derivative across the rim is 0): on a flat mesh the variance is two at an edge and
    four at a right corner, which fades within some lengthscales. And the constant has the variance
    2 pi lengthscale^2 / A in a part of the mesh of area A, so that small surfaces vary by more than 1.

    alpha = 1 is the exception: nu = 0 is a process whose variance is infinite, and only the elements have one, which
    grows as the mesh is refined: on a grid of squares of side h it is log(lengthscale / h) / (2 pi) + .28. There
    kappa = 1 / lengthscale and tau = 1; covariances are near K_0(r / lengthscale) / (2 pi) at distances r of several h.

    Digits are lost where lengthscales are long beside h: Q is a sum of matrices in which the constant all but cancels,
    so that its variance, and what depends on it, has a relative error of up to about eps `condition(values)`, of the
    order of (lengthscale / h)^(2 alpha). On a grid it was 2e-9 for alpha = 2 at a lengthscale of 50 h, and 2e-6, 4e-4
    and 4e-2 for alpha = 4, 5 and 6 at 20 h; where it nears 1, Q need not be positive definite any more. The determinant
    does not suffer so, see `log_determinant_from`.

    Args:
        mesh: A `trimesh.Trimesh`, or anything with `vertices` (V, 3) or (V, 2) and `faces` (F, 3), or the pair; a
            `trimesh.Scene`, whose meshes are put together by its `to_mesh()`; or the path of a file, which
            `graphs.load_mesh` reads. The order of a face's corners does not matter; more than two faces may share an
            edge.
        alpha: An integer from 1 to 6.

    Attributes:
        parameters: ("lengthscale",).
        alpha: The order.
        vertices: As given, (V, 3) or (V, 2).
        faces: As given, (F, 3).
        covered: The numbers (N,) of the vertices on a face with an area, ascending: all of them as a rule.
        coordinates: The places of these vertices, (N, 3) or (N, 2): the field is a vector of N values.
        areas: (N,), the diagonal of C.
        max_distance: A tenth of the diagonal of their box: how far from the surface points may lie unless `within` says so.

    Raises:
        InvalidGraphError: there are no faces, or no triangles; coordinates that are not finite; vertices at the same
            place as another.
        InvalidArgumentError: another alpha.

    Warns:
        DegenerateFacesWarning: faces have no area, and are left out.
        DuplicateFacesWarning: faces have the same corners as another, and are left out.
        UnreferencedVerticesWarning: vertices are on no face with an area, and are left out.
        DisconnectedWarning: the mesh falls into parts, between which there is no correlation.
    """

    parameters = ("lengthscale",)

    def __init__(self, mesh: Any, alpha: int = 2) -> None:
        self.alpha = check_count("alpha", alpha, 1, _HIGHEST)
        read = read_mesh(mesh)
        self.faces: NDArray[np.int64] = _frozen(read.faces)
        self.vertices: Floats = _frozen(read.vertices)
        self.covered: NDArray[np.int64] = _frozen(read.covered)
        self.coordinates: Floats = _frozen(read.vertices[read.covered])
        self.areas: Floats = _frozen(read.elements.masses * read.elements.unit**2)
        self.max_distance = DEFAULT_LIMIT_SHARE * float(np.linalg.norm(np.ptp(self.coordinates, axis=0)))
        self._mesh, self._whole = read, read.whole
        self._columns = np.full(self.num_vertices, -1, dtype=np.int64)  # of each vertex among the values; -1: none
        self._columns[self.covered] = np.arange(len(self.covered))
        ratio = 2.0 * (self.alpha - 1) if self.alpha > 1 else 1.0
        self._whittle = WhittleField(read.elements, self.alpha, ratio, unit_norm(self.alpha), self.coordinates)

    @property
    def num_vertices(self) -> int:
        """The number V of vertices that were given."""
        return len(self.vertices)

    @property
    def pattern(self) -> Pattern:
        """Vertices within alpha edges of each other."""
        return self._whittle.pattern

    def entries(
        self,
        values: Floats,  # (1,)
    ) -> Floats:  # (nnz,)
        """Return the entries of Q on the pattern, for a lengthscale.

        Raises:
            InvalidArgumentError: it is not positive, or out of range for the mesh; also from what follows.
        """
        return self._whittle.entries(values)

    def pull_back(
        self,
        values: Floats,  # (1,)
        weights: Floats,  # (nnz,)
    ) -> Floats:  # (1,)
        """Return sum_e weights_e dQ_e / d lengthscale, over all entries e of the pattern."""
        return self._whittle.pull_back(values, weights)

    @cached_property
    def root(self) -> MarkovField:
        """The field whose precision is K = kappa^2 C + G (of one hop), for the same lengthscale: for determinants."""
        if self.alpha == 1:
            return self._whittle
        return WhittleField(self._mesh.elements, 1, self._whittle.ratio, 1.0, self.coordinates)

    def log_determinant(
        self,
        values: Floats,  # (1,)
    ) -> tuple[float, Floats]:
        """Return log |Q| and its derivative (1,), through that of K, which is interpolated once for a mesh."""
        shift = self._whittle.shift(values)
        value, slope = self._determinants(shift)
        return self.log_determinant_from(values, (value, np.array([-2 * shift * slope / float(values[0])])))

    def log_determinant_from(
        self,
        values: Floats,  # (1,)
        root: tuple[float, Floats],  # log |K|, (1,)
    ) -> tuple[float, Floats]:
        """Return log |Q| = alpha log |K| - (alpha - 1) sum_i log(kappa^2 C_ii) - V log(4 pi nu), and its derivative.

        The last term is 0 for alpha = 1. A factor of K is cheaper than one of Q, and keeps the constant's digits.

        Args:
            values: The lengthscale.
            root: log |K| and its derivative (1,), which is `root.pull_back(values, inverse)`, `inverse` being the
                entries of K^-1 on the pattern of `root`.
        """
        return self._whittle.log_determinant_from(values, root)

    def condition(
        self,
        values: Floats,  # (1,)
    ) -> float:
        """Return a bound of the condition of C^(-1/2) Q C^(-1/2): where eps times it is not small, digits are lost."""
        return self._whittle.condition(values)

    def locate(
        self,
        points: ArrayLike,  # (n, 3), or (n, 2) on a mesh of the plane
        *,
        within: float | None = None,
    ) -> Location:
        """Return the nearest points of the mesh: faces (n,), barycentric weights (n, 3), and distances (n,).

        Points near the surface take time log(F) each; where many faces are about equally far, as from the center of a
        sphere, each of them is looked at.

        Args:
            points: (n, 3), or (n, 2) on a mesh of the plane.
            within: The largest distance of a point from the mesh, in its units. If None, any distance is allowed.

        Raises:
            InvalidArgumentError: points of another dimension, that are not finite, or farther away than `within`.
        """
        if within is not None:
            check_limit(within)
        found = self._locator.nearest(in_space(self.read_points(points)))
        if within is not None and (found.distances > within).any():
            row = int(found.distances.argmax())
            raise InvalidArgumentError(too_far_message(row, float(found.distances[row]), within))
        return found._replace(faces=self._whole[found.faces])

    def read_points(
        self,
        points: ArrayLike,  # (n, 3), or (n, 2) on a mesh of the plane
    ) -> Floats:
        """Return points as an array (n, 3), or (n, 2) on a mesh of the plane.

        Raises:
            InvalidArgumentError: points of another dimension, or that are not finite.
        """
        places, dimension = as_numbers(points), self.vertices.shape[1]
        if isinstance(points, list | tuple) and not points:
            places = places.reshape(0, dimension)
        if places.ndim != 2 or places.shape[1] != dimension:
            raise InvalidArgumentError(
                f"Points are (n, {dimension}), real numbers as the vertices, got {shown(points)}."
            )
        wrong = ~(np.abs(places) < MAX_COORDINATE * self._mesh.elements.unit).all(axis=1)
        if wrong.any():
            row = int(wrong.argmax())
            raise InvalidArgumentError(f"Point {row} is not finite, or out of range: {places[row].tolist()}.")
        return places

    def projector(
        self,
        faces: ArrayLike,  # (n,)
        barycentric: ArrayLike | None = None,  # (n, 3)
    ) -> sp.csr_array:
        """Return the rows A (n, N) with which the field is A x at points of faces; None: at their centroids.

        Rows sum to 1, and weights of 0 are no entries: a point that is a vertex has one. What `locate` returns is fit
        for this. Points of faces without area are read at the nearest point of the surface.

        Raises:
            InvalidArgumentError: no faces of the mesh; weights of another shape, negative, or that do not sum to 1;
                points of faces without area that lie far from the surface.
        """
        numbers = _numbers("faces", faces, len(self.faces))
        shares = np.full((len(numbers), 3), 1 / 3) if barycentric is None else as_numbers(barycentric)
        if shares.shape != (len(numbers), 3):
            raise InvalidArgumentError(f"Barycentric weights are ({len(numbers)}, 3), got {shown(barycentric)}.")
        sums = shares.sum(axis=1)
        wrong = ~((shares >= 0).all(axis=1) & (np.abs(sums - 1) < _SUM))
        if wrong.any():
            row = int(wrong.argmax())
            raise InvalidArgumentError(
                f"Barycentric weights are not negative and sum to 1; those of row {row} are {shares[row].tolist()}."
            )
        return self._rows(self.faces[numbers], shares / sums[:, None])

    def projector_at_vertices(
        self,
        vertices: ArrayLike,  # (n,)
    ) -> sp.csr_array:
        """Return the rows A (n, N) with which the field is A x at n vertices.

        Vertices on no face with an area are read at the nearest point of the surface.

        Raises:
            InvalidArgumentError: no vertices of the mesh; vertices on no face with an area that lie farther from the
                surface than a tenth of the diagonal of its box.
        """
        numbers = _numbers("vertices", vertices, self.num_vertices)
        shares = np.zeros((len(numbers), 3))
        shares[:, 0] = 1.0
        return self._rows(np.repeat(numbers[:, None], 3, axis=1), shares)

    def __repr__(self) -> str:
        return (
            f"MeshField({counted(self.num_vertices, 'vertex', 'vertices')}, {counted(len(self.faces), 'face')}, "
            f"alpha={self.alpha})"
        )

    def _rows(self, corners: NDArray[np.int64], shares: Floats) -> sp.csr_array:
        """Return the rows (n, N) of points, which are sums of shares (n, 3) of vertices (n, 3)."""
        lost = np.flatnonzero(((self._columns[corners] < 0) & (shares > 0)).any(axis=1))
        if len(lost):
            corners, shares = corners.copy(), shares.copy()
            corners[lost], shares[lost] = self._nearest(corners[lost], shares[lost])
        columns = np.where(shares > 0, self._columns[corners], 0)
        starts = np.arange(len(columns) + 1) * columns.shape[1]
        rows = sp.csr_array((shares.ravel(), columns.ravel(), starts), shape=(len(columns), len(self.coordinates)))
        rows.eliminate_zeros()
        rows.sort_indices()
        return rows

    def _nearest(self, corners: NDArray[np.int64], shares: Floats) -> tuple[NDArray[np.int64], Floats]:
        """Return corners and shares (m, 3) of the nearest points of the surface to sums of shares of vertices."""
        found = self.locate(np.einsum("mk,mkd->md", shares, self.vertices[corners]))
        far = found.distances > self.max_distance
        if far.any():
            named = np.unique(corners[far][shares[far] > 0])
            named = named[self._columns[named] < 0]
            listed = ", ".join(map(str, named[:_LISTED])) + (", ..." if len(named) > _LISTED else "")
            raise InvalidArgumentError(
                f"Vertices must lie on the surface, got {len(named)} on no face that has an area and farther from the "
                f"surface than {self.max_distance:.3g}: {listed}. Ask for other vertices."
            )
        return self.faces[found.faces], found.barycentric

    @cached_property
    def _determinants(self) -> LogDeterminant:
        """Log |x C + G| of x = kappa^2 in the unit of the elements."""
        return LogDeterminant(self._log_determinant_at)

    def _log_determinant_at(self, shift: float) -> float:
        lengthscale = self._mesh.elements.unit * np.sqrt(self._whittle.ratio / shift)
        return self.root.factor(self.root.entries(np.array([lengthscale]))).log_determinant

    @cached_property
    def _locator(self) -> Locator:
        return Locator(self._mesh.places, self.faces[self._whole])


def too_far_message(row: int, distance: float, within: float) -> str:
    """Return the message for a row of points that lies farther from a surface than is allowed."""
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
        raise InvalidArgumentError(f"{name} are integers (n,) from 0 to {count - 1}, got {shown(given)}.")
    return numbers.astype(np.int64)


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
