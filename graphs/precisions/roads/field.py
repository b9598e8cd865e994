"""Whittle-Matern fields on road networks: Gaussian vectors with a sparse precision, without approximation."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from graphs.checks import as_numbers, check_choice, counted, is_count, is_number, shown
from graphs.errors import InvalidArgumentError
from graphs.precisions.base import MarkovField, Pattern
from graphs.precisions.roads.layout import BOUNDARIES, KINDS, SIGNS, Layout, lay_out
from graphs.precisions.roads.line import KAPPA, LONGEST, SHORTEST, blocks, bridge, slopes
from graphs.precisions.roads.pieces import Pieces, cut, locate
from graphs.roads import RoadNetwork

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RoadField(MarkovField):
    """The field with (kappa^2 - Laplace)^(alpha / 2) (tau u) = white noise on a road network, at vertices and cuts.

    On roads u is continuous, and its derivatives into the roads at a crossing sum to 0 (Kirchhoff's condition). On an
    infinite road it has variance 1 and the correlation exp(-d / lengthscale) for alpha = 1, and that of the Matern
    kernel with nu = 3/2, (1 + r) exp(-r) with r = sqrt(3) d / lengthscale, for alpha = 2, d along the road. So kappa is
    1 / lengthscale and sqrt(3) / lengthscale; what is called the practical range, sqrt(8 nu) / kappa, is 2 lengthscales
    for both. A field of another standard deviation s on an infinite road has the precision Q / s^2.

    Near crossings and ends the variance is another: a crossing of d long roads has 2 / d, a free end with u' = 0 has 2.

    Source: Bolin, Simas and Wallin (2024), "Gaussian Whittle-Matern fields on metric graphs", Bernoulli 30(2); the
    formulas, with their derivation, are in `graphs.precisions.roads.line`, the latent values in `layout`.

    Numerics: alpha = 2 is for pieces down to 1e-3 lengthscales. The entries of Q grow as (lengthscale / piece)^3, which
    double precision cannot hold beside those of long pieces. Pieces of less than 1.7e-4 lengthscales count as that
    long. Covariances are then right to about 1e-4, as long as these are few: what they gain adds up along a road. Where
    many positions crowd, `refine` has `within`. For alpha = 1 the bound is 1e-8 lengthscales, and so is its cost.

    Attributes:
        roads: The network.
        alpha: 1, for paths as rough as those of a diffusion, or 2, for paths with a derivative.
        boundary: What holds at free ends. "neumann": u' = 0. "stationary": roads go on for ever, unobserved, so that
            the field on a single road is the stationary process. "open": nothing is asked of u' (alpha = 2), as in
            MetricGraph without its correction of the boundary; for alpha = 1 the same as "neumann".
        cuts: (c, 2) positions whose values of u are latent values, beside those of vertices; see `refine`.
        parameters: ("lengthscale",), in the units of the roads' lengths.
        coordinates: (N, 2) places of the latent values: first u at the V vertices, network's and cuts; for alpha = 2
            then derivatives at them.
    """

    roads: RoadNetwork
    alpha: int = 1
    boundary: str = "neumann"
    cuts: ArrayLike = ()
    coordinates: Floats = field(init=False, repr=False)

    parameters = ("lengthscale",)

    def __post_init__(self) -> None:
        if not isinstance(self.roads, RoadNetwork):
            raise InvalidArgumentError(f"A graphs.RoadNetwork is needed, got {shown(self.roads)}.")
        if not is_count(self.alpha) or self.alpha not in KAPPA:
            raise InvalidArgumentError(f"alpha must be 1 or 2, got {shown(self.alpha)}.")
        check_choice("boundary", self.boundary, BOUNDARIES)
        road, fraction = self.roads.read_positions(self.cuts)
        object.__setattr__(self, "cuts", np.stack([road.astype(np.float64), fraction], axis=1))
        object.__setattr__(self, "coordinates", self.pieces.coordinates[self.layout.owner])

    @cached_property
    def pieces(self) -> Pieces:
        """The pieces of road between vertices and cuts."""
        return cut(self.roads, *self.roads.read_positions(self.cuts))

    @cached_property
    def layout(self) -> Layout:
        """Where the pieces' ends are among the latent values, and their energies in the precision."""
        return lay_out(self.pieces, self.alpha, self.boundary)

    @property
    def pattern(self) -> Pattern:
        """Where Q has entries, for any lengthscale."""
        return self.layout.pattern

    def entries(
        self,
        values: Floats,  # (1,)
    ) -> Floats:  # (nnz,)
        """Return the entries (nnz,) of Q on the pattern at a lengthscale.

        Raises:
            InvalidArgumentError: no one positive number.
        """
        found = blocks(self.alpha, self._scaled(values)[0])
        return np.asarray(self.layout.spread @ found.ravel()) + self.layout.fixed

    def pull_back(
        self,
        values: Floats,  # (1,)
        weights: Floats,  # (nnz,)
    ) -> Floats:  # (1,)
        """Return sum_e weights_e dQ_e / d lengthscale, (1,).

        Raises:
            InvalidArgumentError: no one positive number, or other than one weight for each entry.
        """
        x, slope = self._scaled(values)
        given = np.asarray(weights, dtype=np.float64)
        if given.shape != self.layout.fixed.shape:
            raise InvalidArgumentError(f"weights must have shape {self.layout.fixed.shape}, got {given.shape}.")
        pulled = (self.layout.spread.T @ given).reshape(-1, len(x))
        return np.array([(pulled.reshape(2, -1, len(x)) * slopes(blocks(self.alpha, x)) * slope).sum()])

    def refine(
        self,
        positions: ArrayLike,  # (n, 2)
        *,
        within: float = 0.0,
    ) -> tuple["RoadField", Integers]:  # (n,)
        """Return the same field with n positions among its latent values, and which of these each position is, (n,).

        Nothing changes in the law of what was there before. Positions at a vertex, and at each other, share its value.

        Args:
            positions: (n, 2) of (road, fraction).
            within: Move positions along their roads by less than this, in the units of lengths, onto places in equal
                steps, so that those that crowd share their values.

        Raises:
            InvalidArgumentError: positions that there are not on these roads, or a tolerance that is no number of at
                least 0.
        """
        if not is_number(within) or not 0 <= within < np.inf:
            raise InvalidArgumentError(f"within must be a number of at least 0, got {shown(within)}.")
        road, fraction = self.roads.read_positions(positions)
        if within > 0:
            steps = np.maximum(1.0, np.floor(self.roads.lengths[road] / within))
            fraction = np.round(fraction * steps) / steps
        cuts = np.concatenate([np.asarray(self.cuts), np.stack([road.astype(np.float64), fraction], axis=1)])
        finer = replace(self, cuts=cuts)
        return finer, finer.pieces.vertex[len(cuts) - len(road) :]

    def conditional(
        self,
        values: Floats,  # (1,)
        positions: ArrayLike,  # (n, 2)
    ) -> tuple[sp.csr_array, Floats]:  # (n, N), (n,)
        """Return u at n positions, given the latent values: the mean is A (n, N) times these, the variance (n,).

        Errors of positions in different pieces are independent; for their covariance in one piece use `refine`.

        Args:
            values: The lengthscale, (1,).
            positions: (n, 2) of (road, fraction).

        Raises:
            InvalidArgumentError: no one positive number, or positions that there are not on these roads.
        """
        spots = locate(self.roads, self.pieces, self._begins, *self.roads.read_positions(positions))
        x = np.maximum(self._free(values, self.pieces.length[spots.piece]), SHORTEST[self.alpha])
        found = bridge(self.alpha, x * spots.share, x * (1 - spots.share))
        inside = spots.vertex < 0
        kinds, signs = np.array(KINDS[self.alpha]), np.array(SIGNS[self.alpha])[:, None]
        weights = np.concatenate([signs * found.start[kinds], signs * found.end[kinds], np.ones((1, len(inside)))])
        slots = np.concatenate(self.layout.slots[:, :, spots.piece])
        columns = np.concatenate([np.where(inside, slots, -1), spots.vertex[None]])
        row = np.broadcast_to(np.arange(len(inside)), columns.shape)
        there = columns >= 0
        shape = (len(inside), len(self.layout.owner))
        matrix = sp.csr_array((weights[there], (row[there], columns[there])), shape=shape)
        matrix.sort_indices()
        return matrix, np.where(inside, found.variance, 0.0)

    def __repr__(self) -> str:
        return (
            f"RoadField(alpha={self.alpha}, {self.boundary}, {counted(len(self.coordinates), 'latent value')}, "
            f"{self.roads})"
        )

    @cached_property
    def _begins(self) -> NDArray[np.complex128]:
        """Where the pieces begin, (P,)."""
        return self.pieces.begins

    def _scaled(self, values: Floats) -> tuple[Floats, Floats]:
        """Return kappa times the lengths of pieces (P,), clipped to a safe range, and its slope in the lengthscale."""
        free = self._free(values, self.pieces.length)
        with np.errstate(over="ignore", under="ignore"):
            slope = -free / float(as_numbers(values)[0])
        x = np.clip(free, SHORTEST[self.alpha], LONGEST)
        return x, np.where(x == free, slope, 0.0)

    def _free(self, values: Floats, lengths: Floats) -> Floats:
        """Return kappa times lengths, (p,)."""
        given = as_numbers(values)
        if given.shape != (1,) or not 0 < given[0] < np.inf:
            raise InvalidArgumentError(f"The lengthscale must be one positive number, (1,), got {shown(values)}.")
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(lengths / given[0] * KAPPA[self.alpha])
