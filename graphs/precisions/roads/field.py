"""Whittle-Matern fields on road networks: exact Gaussian vectors with a sparse precision."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from graphs.checks import check_choice, counted, is_count, is_number, short_repr
from graphs.errors import InvalidArgumentError
from graphs.precisions.base import MarkovField, Pattern, read_lengthscale
from graphs.precisions.roads.layout import BOUNDARIES, KINDS, SIGNS, Layout, lay_out
from graphs.precisions.roads.line import KAPPA, MAX_LENGTH, MIN_LENGTH, blocks, bridge, slopes
from graphs.precisions.roads.segments import FieldSegments, locate, split
from graphs.roads import RoadNetwork

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RoadField(MarkovField):
    """The field (kappa^2 - Laplace)^(alpha / 2) (tau u) = white noise on roads.

    Latent values are u at vertices and cuts. On roads u is continuous, and its derivatives into the roads at a crossing
    sum to 0 (Kirchhoff's condition). On an infinite road the field has variance 1. For alpha = 1 its correlation at a
    distance d along the road is exp(-d / lengthscale), with kappa = 1 / lengthscale. For alpha = 2 it is the Matern
    kernel with nu = 3/2, (1 + r) exp(-r) with r = kappa d and kappa = sqrt(3) / lengthscale. The practical range sqrt(8
    nu) / kappa is 2 lengthscales for both. A field of standard deviation s on an infinite road has the precision Q /
    s^2.

    Near crossings and ends the variance differs: a crossing of d long roads has 2 / d, and a free end with u' = 0 has
    2.

    Source: Bolin, Simas and Wallin (2024), "Gaussian Whittle-Matern fields on metric graphs", Bernoulli 30(2). The
    formulas, with their derivation, are in `graphs.precisions.roads.line`, the latent values in `layout`.

    Numerics: alpha = 2 is for segments down to 1e-3 lengthscales. The entries of Q grow like (lengthscale / length)^3,
    which double precision cannot represent together with those of long segments. Segments shorter than 1.7e-4
    lengthscales are treated as having this length. Covariances are then accurate to about 1e-4 if such segments are
    few, since the added lengths accumulate along a road. If many positions are close, use `within` of `refine`. For
    alpha = 1 the bound and the error are 1e-8 lengthscales.

    Attributes:
        roads: The network.
        alpha: 1 for paths as rough as those of a diffusion, or 2 for differentiable paths.
        boundary: The condition at free ends. "neumann": u' = 0. "stationary": roads continue to infinity, unobserved,
            so the field on a single road is stationary. "open": no condition on u' (alpha = 2), as in MetricGraph
            without its boundary correction; for alpha = 1 the same as "neumann".
        cuts: Positions (c, 2) whose values of u are latent values, in addition to those of vertices; see `refine`.
        parameters: ("lengthscale",), in the units of the lengths of roads.
        coordinates: Coordinates (N, 2) of the latent values: first u at the V vertices, of the network and cuts, and
            for alpha = 2 then derivatives.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (1, 0)], [(1, 0), (1, 2)]], metric="euclidean")
        >>> field, index = graphs.RoadField(roads).refine([(1, 0.5)])
        >>> field.factor_at(np.array([1.0])).variances.round(3).tolist()
        [2.01, 1.159, 2.01, 1.159]
        >>> index.tolist()
        [3]
    """

    roads: RoadNetwork
    alpha: int = 1
    boundary: str = "neumann"
    cuts: ArrayLike = ()
    coordinates: Floats = field(init=False, repr=False)

    parameters = ("lengthscale",)

    def __post_init__(self) -> None:
        if not isinstance(self.roads, RoadNetwork):
            raise InvalidArgumentError(f"roads must be a graphs.RoadNetwork, got {short_repr(self.roads)}.")
        if not is_count(self.alpha) or self.alpha not in KAPPA:
            raise InvalidArgumentError(f"alpha must be 1 or 2, got {short_repr(self.alpha)}.")
        check_choice("boundary", self.boundary, BOUNDARIES)
        road, fraction = self.roads.read_positions(self.cuts)
        object.__setattr__(self, "cuts", np.stack([road.astype(np.float64), fraction], axis=1))
        object.__setattr__(self, "coordinates", self.segments.coordinates[self.layout.owner])

    @cached_property
    def segments(self) -> FieldSegments:
        """The road segments between vertices and cuts."""
        return split(self.roads, *self.roads.read_positions(self.cuts))

    @cached_property
    def layout(self) -> Layout:
        """Latent values at the ends of segments, and their energies in the precision."""
        return lay_out(self.segments, self.alpha, self.boundary)

    @property
    def pattern(self) -> Pattern:
        """The pattern of Q for every lengthscale."""
        return self.layout.pattern

    def entries(
        self,
        values: Floats,  # (1,)
    ) -> Floats:  # (nnz,)
        """Return the entries (nnz,) of Q on the pattern for a lengthscale.

        Args:
            values: The lengthscale (1,).

        Raises:
            InvalidArgumentError: If the lengthscale is not one positive number.
        """
        segment_blocks = blocks(self.alpha, self._scaled(values)[0])
        return np.asarray(self.layout.assembly @ segment_blocks.ravel()) + self.layout.fixed

    def pull_back(
        self,
        values: Floats,  # (1,)
        weights: Floats,  # (nnz,)
    ) -> Floats:  # (1,)
        """Return sum_e weights_e dQ_e / d lengthscale, (1,).

        Args:
            values: The lengthscale (1,).
            weights: The derivative (nnz,) of a scalar in each entry of Q.

        Raises:
            InvalidArgumentError: If the lengthscale is not one positive number, or weights do not match the entries.
        """
        x, slope = self._scaled(values)
        given = np.asarray(weights, dtype=np.float64)
        if given.shape != self.layout.fixed.shape:
            raise InvalidArgumentError(f"weights must have shape {self.layout.fixed.shape}, got {given.shape}.")
        pulled = (self.layout.assembly.T @ given).reshape(-1, len(x))
        return np.array([(pulled.reshape(2, -1, len(x)) * slopes(blocks(self.alpha, x)) * slope).sum()])

    def refine(
        self,
        positions: ArrayLike,  # (n, 2)
        *,
        within: float = 0.0,
    ) -> tuple["RoadField", Integers]:  # (n,)
        """Return the field with n more positions among its latent values.

        The distribution of the previous values does not change. Positions at a vertex, or equal ones, share a value.

        Args:
            positions: Positions (n, 2), pairs of (road, fraction).
            within: If positive, move positions along their roads by less than this length onto an equidistant grid, so
                that close positions share values.

        Returns:
            The field, and the indices (n,) of the positions among its latent values.

        Raises:
            InvalidArgumentError: If positions are not on these roads, or the tolerance is not a number of at least 0.
        """
        if not is_number(within) or not 0 <= within < np.inf:
            raise InvalidArgumentError(f"within must be a number of at least 0, got {short_repr(within)}.")
        road, fraction = self.roads.read_positions(positions)
        if within > 0:
            steps = np.maximum(1.0, np.floor(self.roads.lengths[road] / within))
            fraction = np.round(fraction * steps) / steps
        cuts = np.concatenate([np.asarray(self.cuts), np.stack([road.astype(np.float64), fraction], axis=1)])
        refined = replace(self, cuts=cuts)
        return refined, refined.segments.vertex[len(cuts) - len(road) :]

    def conditional(
        self,
        values: Floats,  # (1,)
        positions: ArrayLike,  # (n, 2)
    ) -> tuple[sp.csr_array, Floats]:  # (n, N), (n,)
        """Return the mean and variance of u at n positions given the latent values.

        Errors of positions in different segments are independent. Use `refine` for covariances within one segment.

        Args:
            values: The lengthscale, (1,).
            positions: Positions (n, 2), pairs of (road, fraction).

        Returns:
            A matrix A (n, N), which maps latent values to means, and variances (n,).

        Raises:
            InvalidArgumentError: If the lengthscale is not one positive number, or positions are not on these roads.
        """
        locations = locate(self.roads, self.segments, self._start_keys, *self.roads.read_positions(positions))
        x = np.maximum(self._free(values, self.segments.length[locations.segment]), MIN_LENGTH[self.alpha])
        interpolation = bridge(self.alpha, x * locations.fraction, x * (1 - locations.fraction))
        inside = locations.vertex < 0
        kinds, signs = np.array(KINDS[self.alpha]), np.array(SIGNS[self.alpha])[:, None]
        weights = np.concatenate(
            [signs * interpolation.start[kinds], signs * interpolation.end[kinds], np.ones((1, len(inside)))]
        )
        slots = np.concatenate(self.layout.slots[:, :, locations.segment])
        columns = np.concatenate([np.where(inside, slots, -1), locations.vertex[None]])
        row = np.broadcast_to(np.arange(len(inside)), columns.shape)
        is_latent = columns >= 0
        shape = (len(inside), len(self.layout.owner))
        matrix = sp.csr_array((weights[is_latent], (row[is_latent], columns[is_latent])), shape=shape)
        matrix.sort_indices()
        return matrix, np.where(inside, interpolation.variance, 0.0)

    def __repr__(self) -> str:
        return (
            f"RoadField(alpha={self.alpha}, {self.boundary}, {counted(len(self.coordinates), 'latent value')}, "
            f"{self.roads})"
        )

    @cached_property
    def _start_keys(self) -> NDArray[np.complex128]:
        """`segments.start_keys`, cached."""
        return self.segments.start_keys

    def _scaled(self, values: Floats) -> tuple[Floats, Floats]:
        """Return kappa times the lengths (P,) of segments, clipped, and the derivative."""
        free = self._free(values, self.segments.length)
        with np.errstate(over="ignore", under="ignore"):
            slope = -free / read_lengthscale(values)
        x = np.clip(free, MIN_LENGTH[self.alpha], MAX_LENGTH)
        return x, np.where(x == free, slope, 0.0)

    def _free(self, values: Floats, lengths: Floats) -> Floats:
        """Return kappa times lengths, (p,)."""
        lengthscale = read_lengthscale(values)
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(lengths / lengthscale * KAPPA[self.alpha])
