"""Whittle-Matern fields on road networks: exact Gaussian vectors with a sparse precision."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from graphs.arrays import pointers, ranks
from graphs.builders.roads import RoadNetwork, Segments
from graphs.checks import check_choice, counted, is_count, non_negative, short_repr
from graphs.errors import InvalidArgumentError
from graphs.precisions.fields import MarkovField, SymmetricPattern, read_lengthscale

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# --- Whittle-Matern fields on one road segment: the energy of its ends in closed form --------------------------------
#
# u solves (kappa^2 - Laplace)^(alpha / 2) (tau u) = white noise, with tau such that the variance is 1 on the infinite
# line: 2 kappa tau^2 = 1 for alpha = 1 (covariance exp(-x), x = kappa distance) and 4 kappa^3 tau^2 = 1 for alpha = 2
# (covariance (1 + x) exp(-x)). Its density is proportional to exp(-E / 2). The energy E is tau^2 int kappa^2 u^2 + u'^2
# for alpha = 1, and tau^2 int kappa^4 u^2 + 2 kappa^2 u'^2 + u''^2 for alpha = 2. It is a sum over the segments of a
# network. With its inside integrated out, one segment of length x / kappa adds z_0^T O z_0 + z_1^T O z_1 + 2 z_0^T C
# z_1 for its ends. Here z holds u at an end and, for alpha = 2, also the derivative w in the direction into the
# segment. At the two ends w_0 = u' / kappa and w_1 = -u' / kappa. O ("own") and C ("cross") are symmetric.
#
# alpha = 1. The least energy with given ends is that of the solution of u'' = kappa^2 u:
#
#     O = coth(x) / 2,    C = -1 / (2 sinh x).
#
# alpha = 2. Let R be the covariance (4, 4) of both ends of the segment within an infinite line. (u, w) has covariance I
# at a point of the line. The point is shared by the two sides, so each side has half of its precision: [[O, C], [C, O]]
# = R^-1 - I / 2. Bolin, Simas and Wallin (2024), "Gaussian Whittle-Matern fields on metric graphs", derive the same by
# conditioning independent segments on the conditions at vertices. The result differs from the energy above by a
# multiple of u w at each end, and these cancel at a vertex, where the w sum to 0. Sums and differences of the two ends
# are independent on the line, so R has two blocks of size two,
#
#     var (u_0 +- u_1, w_0 +- w_1) / sqrt(2) = [[1 +- (1 + x) e, +- x e], [+- x e, 1 -+ (1 - x) e]],    e = exp(-x),
#
# with determinants 2 e (sinh x +- x). With s = sinh x, c = cosh x and D = s^2 - x^2 the inverses give
#
#     O = [[s c + x, x^2], [x^2, s c - x]] / (2 D),    C = -[[s + x c, x s], [x s, x c - s]] / (2 D).
#
# Derivatives follow from O and C. With k = 1 + 4 O_uw, differentiating in x:
#
#     alpha = 1:  O' = -2 C^2,                            C' = -2 O C;
#     alpha = 2:  O' = -4 (C_uw, C_ww) (C_uw, C_ww)^T,    C_uu' = -k C_uw,  C_uw' = -k C_ww, C_ww' = C_uw - 4 O_ww C_ww.
#
# sinh x - x and x cosh x - sinh x cancel in short segments, where their series have positive terms. In long segments s
# and c overflow, so numerators and denominators are multiplied by 2 exp(-x) for each of them.


KAPPA = {1: 1.0, 2: float(np.sqrt(3.0))}
"""kappa times the lengthscale, by alpha. Correlations are exp(-d / l), and Matern with nu = 3/2."""

MIN_LENGTH = {1: 1e-8, 2: 3e-4}
"""The length, in 1 / kappa, to which shorter segments are raised. Entries grow like 1 / (2 x) and 3 / x^3, and their
sums with entries of order one are rounded. At these lengths rounding and the longer segment cause equal errors."""
MAX_LENGTH = 1e3
"""The length, in 1 / kappa, at which longer segments are truncated. Their ends are independent beyond 750."""

_MAX_SERIES_LENGTH = 1.0
"""The length, in 1 / kappa, up to which series are used."""
_NUM_TERMS = 9
"""The number of terms of the series. The next one is below 1e-18 of the first."""


class Bridge(NamedTuple):
    """u at a point between two ends: weights of the ends, and an independent error.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.roads import bridge
        >>> found = bridge(1, np.array([0.5]), np.array([0.5]))
        >>> found.start.round(4).tolist(), found.variance.round(4).tolist()
        ([[0.4434]], [0.4621])
    """

    start: Floats  # (alpha, n) weights of u and w at the first end
    end: Floats  # (alpha, n)
    variance: Floats  # (n,)


def blocks(
    alpha: int,
    x: Floats,  # (n,)
) -> Floats:  # (2, k, n)
    """Return O and C as k rows each: one entry, or uu, uw and ww for alpha = 2.

    Args:
        alpha: 1 or 2.
        x: Lengths (n,), positive, times kappa. They are truncated at 1,000.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.roads import blocks
        >>> blocks(1, np.array([1.0])).round(4).ravel().tolist()  # coth(1) / 2, -1 / (2 sinh(1))
        [0.6565, -0.4255]
    """
    x = np.minimum(x, MAX_LENGTH)
    with np.errstate(under="ignore"):
        e = np.exp(-x)
        s, c = -np.expm1(-2 * x), 1 + e * e  # 2 e sinh x, 2 e cosh x
        if alpha == 1:
            return np.stack([c / (2 * s), -e / s])[:, None]
        y, gap = 2 * e * x, cosine_gap(x)
        double = 2 * (s + y) * sine_gap(x)  # 8 e^2 D
        diagonal = np.stack([s * c + 2 * e * y, y * y, sine_gap(2 * x)])
        cross = -np.stack([2 * e * (s + x * c), y * s, 2 * e * gap])
        return np.stack([diagonal, cross]) / double


def slopes(
    segment_blocks: Floats,  # (2, k, n)
) -> Floats:  # (2, k, n)
    """Return the derivatives in x of the results of `blocks`.

    Args:
        segment_blocks: The result (2, k, n) of `blocks`.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.roads import blocks, slopes
        >>> slopes(blocks(1, np.array([1.0]))).round(4).ravel().tolist()
        [-0.362, 0.5586]
    """
    with np.errstate(under="ignore"):
        if segment_blocks.shape[1] == 1:
            diagonal, cross = segment_blocks[:, 0]
            return np.stack([-2 * cross**2, -2 * diagonal * cross])[:, None]
        (_, own_uw, own_ww), (_, uw, ww) = segment_blocks
        k = 1 + 4 * own_uw
        diagonal = -4 * np.stack([uw**2, uw * ww, ww**2])
        return np.stack([diagonal, np.stack([-k * uw, -k * ww, uw - 4 * own_ww * ww])])


def bridge(
    alpha: int,
    x: Floats,  # (n,)
    y: Floats,  # (n,)
) -> Bridge:
    """Return u at distances x and y from the ends of segments, given the ends.

    The point divides its segment in two, and the energies of the two are added. Their sum for (u, u' / kappa) at the
    point is K, the precision given the ends. The derivative points into the second segment and out of the first.

    Args:
        alpha: 1 or 2.
        x: Distances (n,) from the first ends, positive, times kappa.
        y: Distances (n,) from the last ends, positive, times kappa.

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.roads import bridge
        >>> bridge(2, np.array([0.5]), np.array([0.5])).start.shape
        (2, 1)
    """
    (before_own, before_cross), (after_own, after_cross) = blocks(alpha, x), blocks(alpha, y)
    with np.errstate(under="ignore"):
        if alpha == 1:
            total = before_own[0] + after_own[0]
            return Bridge(-before_cross / total, -after_cross / total, 1 / total)
        uu, uw, ww = before_own[0] + after_own[0], after_own[1] - before_own[1], before_own[2] + after_own[2]
        determinant = uu * ww - uw * uw
        a, b = ww / determinant, -uw / determinant  # the first row of the inverse of K
        start = np.stack([b * before_cross[1] - a * before_cross[0], b * before_cross[2] - a * before_cross[1]])
        end = -np.stack([a * after_cross[0] + b * after_cross[1], a * after_cross[1] + b * after_cross[2]])
        return Bridge(start, end, a)


def sine_gap(
    x: Floats,  # (n,)
) -> Floats:  # (n,)
    """Return 2 exp(-x) (sinh x - x), by a series for small x.

    Args:
        x: Positive numbers (n,).

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.roads import sine_gap
        >>> sine_gap(np.array([2.0])).round(4).tolist()  # 1 - exp(-4) - 4 exp(-2)
        [0.4403]
    """
    ratios = [1 / ((2 * k + 2) * (2 * k + 3)) for k in range(1, _NUM_TERMS)]
    e = np.exp(-x)
    return np.where(x < _MAX_SERIES_LENGTH, e * _nested(x, 3.0, ratios), -np.expm1(-2 * x) - 2 * e * x)


def cosine_gap(
    x: Floats,  # (n,)
) -> Floats:  # (n,)
    """Return 2 exp(-x) (x cosh x - sinh x), by a series for small x.

    Args:
        x: Positive numbers (n,).

    Examples:
        >>> import numpy as np
        >>> from graphs.precisions.roads import cosine_gap
        >>> cosine_gap(np.array([2.0])).round(4).tolist()  # 2 (1 + exp(-4)) - (1 - exp(-4))
        [1.0549]
    """
    ratios = [1 / (2 * k * (2 * k + 3)) for k in range(1, _NUM_TERMS)]
    e = np.exp(-x)
    return np.where(x < _MAX_SERIES_LENGTH, e * _nested(x, 1.5, ratios), x * (1 + e * e) + np.expm1(-2 * x))


def _nested(x: Floats, divisor: float, ratios: list[float]) -> Floats:
    """Return x^3 / divisor (1 + r_1 x^2 (1 + r_2 x^2 (...))) for small x."""
    small = np.minimum(x, _MAX_SERIES_LENGTH)
    total = np.ones_like(small)
    for ratio in reversed(ratios):
        total = 1 + ratio * small**2 * total
    return small**3 / divisor * total


# --- The latent values of a field on road segments, and the entries of the precision from each segment ---------------
#
# The first V latent values are u at the vertices. For alpha = 2 each end of a segment also has u', into the segment,
# and by Kirchhoff's condition these sum to 0 at a vertex with d ends. The remaining d - 1 dimensions have the partial
# sums S_1, ..., S_(d - 1) over the ends, in any order, as coordinates: the k-th derivative is S_k - S_(k - 1), with S_0
# = S_d = 0. Each derivative then involves at most two latent values, however many roads meet, and the precision stays
# sparse. Eliminating one derivative would couple all others. Derivatives are in units of kappa, as in `line`, so the
# condition does not depend on kappa. A free end, d = 1, has no latent derivative: u' = 0. An end that continues to
# infinity keeps its own, S_1.


SIGNS = {1: (1,), 2: (1, 1, -1)}
"""The signs of the slots of an end: u, and for alpha = 2 S_k and S_(k - 1), whose difference is the derivative."""
KINDS = {1: (0,), 2: (0, 1, 1)}
"""The kind of each slot: 0 for u, 1 for its derivative."""
BOUNDARIES = ("neumann", "stationary", "open")
"""The conditions at free ends; see `RoadField`."""


class Layout(NamedTuple):
    """N latent values, their pattern, and the map from blocks of segments to entries.

    Examples:
        >>> import graphs
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (1, 0)], [(1, 0), (1, 2)]], metric="euclidean")
        >>> graphs.RoadField(roads, alpha=2).layout.owner.tolist()  # u at 3 vertices, a derivative at the middle one
        [0, 1, 2, 1]
    """

    slots: Integers  # (2, c, P) the latent values at the two ends of each segment, -1 for none
    owner: Integers  # (N,) the vertex of each latent value
    pattern: SymmetricPattern
    assembly: sp.csr_array  # (nnz, 2 k P) from O and C of the segments (`line.blocks`) to entries of the pattern
    fixed: Floats  # (nnz,) entries that do not depend on the lengthscale


def lay_out(
    segments: Segments,
    alpha: int,
    boundary: str,
) -> Layout:
    """Return the layout of a field.

    Args:
        segments: The segments.
        alpha: 1 or 2.
        boundary: One of `BOUNDARIES`. If free ends continue to infinity, the missing side adds half of the precision I
            of (u, u' / kappa) at a point of the line. See `line`.

    Examples:
        >>> import graphs
        >>> from graphs.precisions.roads import lay_out
        >>> roads = graphs.RoadNetwork.from_lines([[(0, 0), (1, 0)], [(1, 0), (1, 2)]], metric="euclidean")
        >>> len(lay_out(graphs.RoadField(roads).segments, 1, "neumann").owner)
        3
    """
    num_vertices, num_segments = len(segments.coordinates), len(segments.length)
    ends = np.concatenate([segments.edges.source, segments.edges.target])
    degree = np.bincount(ends, minlength=num_vertices)
    free = (boundary != "neumann") & (degree == 1)
    sums = np.where(free, 1, degree - 1) if alpha == 2 else np.zeros(num_vertices, dtype=np.int64)
    slots = _slots(ends, degree, sums, alpha).reshape(-1, 2, num_segments).swapaxes(0, 1)
    owner = np.concatenate([np.arange(num_vertices), np.repeat(np.arange(num_vertices), sums)])
    own_half = np.flatnonzero(free[owner]) if boundary == "stationary" else np.zeros(0, dtype=np.int64)
    return _assemble(slots, owner, own_half, alpha)


def _slots(ends: Integers, degree: Integers, sums: Integers, alpha: int) -> Integers:
    """Return latent values (c, 2 P) at the ends of segments: u, S_k and S_(k - 1)."""
    if alpha == 1:
        return ends[None]
    order = np.argsort(ends, kind="stable")
    rank = np.empty(len(ends), dtype=np.int64)
    rank[order] = ranks(degree)
    first = len(degree) + pointers(sums)[ends]
    return np.stack([ends, np.where(rank < sums[ends], first + rank, -1), np.where(rank > 0, first + rank - 1, -1)])


def _assemble(slots: Integers, owner: Integers, own_half: Integers, alpha: int) -> Layout:
    """Return the layout, whose pattern has all pairs of latent values of each segment."""
    size, (_, width, num_segments) = len(owner), slots.shape
    num_kinds = 1 if alpha == 1 else 3
    keys, features, signs = [], [], []
    for a, i, b, j in np.ndindex(2, width, 2, width):
        row, column = slots[a, i], slots[b, j]
        present = np.flatnonzero((row >= 0) & (column >= 0))
        kind = KINDS[alpha][i] + KINDS[alpha][j] + (num_kinds if a != b else 0)
        keys.append(row[present] * size + column[present])
        features.append((kind * num_segments + present).astype(np.int32))
        signs.append(np.full(len(present), SIGNS[alpha][i] * SIGNS[alpha][j], dtype=np.int8))
    entry_keys, entry = np.unique(np.concatenate(keys), return_inverse=True)
    shape = (len(entry_keys), 2 * num_kinds * num_segments)
    positions = (entry.reshape(-1).astype(np.int32), np.concatenate(features))
    assembly = sp.csr_array((np.concatenate(signs), positions), shape).astype(np.float64)
    indptr = np.searchsorted(entry_keys, np.arange(size + 1) * size)
    fixed = np.zeros(len(entry_keys))
    fixed[np.searchsorted(entry_keys, own_half * (size + 1))] = 0.5
    return Layout(slots, owner, SymmetricPattern(indptr, (entry_keys % size).astype(np.int32)), assembly, fixed)


# --- Whittle-Matern fields on road networks: exact Gaussian vectors with a sparse precision --------------------------


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
    formulas, with their derivation, are in `graphs.precisions.roads`, the latent values in `layout`.

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
    def segments(self) -> Segments:
        """The road segments between vertices and cuts.

        A segment that returned to its own vertex is also divided in the middle.
        """
        road, fraction = self.roads.read_positions(self.cuts)
        segments = self.roads.split(road, fraction)
        source, target, start, end = (getattr(segments.edges, name) for name in ("source", "target", "start", "end"))
        loops = source == target
        roads = np.concatenate([road, segments.edges.road[loops]])
        found = (
            self.roads.split(roads, np.concatenate([fraction, (start + end)[loops] / 2])) if loops.any() else segments
        )
        return found._replace(vertex=found.vertex[: len(road)])

    @cached_property
    def layout(self) -> Layout:
        """Latent values at the ends of segments, and their energies in the precision."""
        return lay_out(self.segments, self.alpha, self.boundary)

    @property
    def pattern(self) -> SymmetricPattern:
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
        non_negative("within", within)
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
        vertex, segment, fraction = self._locate(*self.roads.read_positions(positions))
        x = np.maximum(self._free(values, self.segments.length[segment]), MIN_LENGTH[self.alpha])
        interpolation = bridge(self.alpha, x * fraction, x * (1 - fraction))
        inside = vertex < 0
        kinds, signs = np.array(KINDS[self.alpha]), np.array(SIGNS[self.alpha])[:, None]
        weights = np.concatenate(
            [signs * interpolation.start[kinds], signs * interpolation.end[kinds], np.ones((1, len(inside)))]
        )
        slots = np.concatenate(self.layout.slots[:, :, segment])
        columns = np.concatenate([np.where(inside, slots, -1), vertex[None]])
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

    def _locate(self, road: Integers, fraction: Floats) -> tuple[Integers, Integers, Floats]:
        """Return the vertex (n,) of each position, -1 inside a segment, that segment, and the fraction (n,) of it."""
        roads, pieces = self.roads, self.segments.edges
        edge, fraction, vertex = roads.edges.locate(road, fraction, roads.lengths)
        segment, along = np.zeros(len(edge), dtype=np.int64), np.full(len(edge), 0.5)
        inside = np.flatnonzero(vertex < 0)
        found = pieces.locate(roads.edges.road[edge[inside]], fraction[inside], roads.lengths)
        vertex[inside] = found.vertex
        is_free = found.vertex < 0
        free, piece = inside[is_free], found.edge[is_free]
        segment[free] = piece
        along[free] = (fraction[free] - pieces.start[piece]) / (pieces.end[piece] - pieces.start[piece])
        return vertex, segment, along

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
