"""Variograms of rows and of the model.

The semivariance of two rows is half the squared difference of their values. Over pairs at distance h its mean is
gamma(h) = nugget + sum_k s_k^2 (1 - rho_k(h)): the noise variance, and the terms with variances s_k^2 and correlations
rho_k. Source: Chiles and Delfiner (2012), Geostatistics, second edition, Sections 2.2 and 2.5.

Lengthscales differ by direction. A pair belongs to the axis that is nearest to it in lengthscales. If r is the distance
of its rows in lengthscales and l that of the axis, r l is the distance along the axis at which the model has the same
semivariance, so that no tolerance of angles biases the mean.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from torch import Tensor

from rfgp import random
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.grams import rotated
from rfgp.kernels.role import BoundTerm, of_prefix
from rfgp.messages import check_count, counted, positive
from rfgp.models.state import GPState, largest, predicted
from rfgp.rows import gathered
from rfgp.rows.sources import OutputFormat

Floats = NDArray[np.float64]

REACHED = 0.95
"""The share of the variance of the terms that the model reaches at the practical range."""
MODEL_POINTS = 200
"""The number of distances of the model in a direction."""


@dataclass(frozen=True, eq=False)
class Variogram:
    """The variogram of rows by bins of distance, and that of the model, in the user's units.

    Attributes:
        directions: The names of the k directions: columns, or angles in degrees. One, "distance", if all are alike.
        distances: The mean distance of the pairs of each bin, (k, b). NaN without pairs.
        semivariances: The mean semivariance of the pairs of each bin, (k, b). NaN without pairs.
        counts: The number of pairs of each bin, (k, b).
        model_distances: The distances at which the model was evaluated, (k, m), from 0 on.
        model_semivariances: The semivariance of the model, (k, m): the nugget at 0, by its limit.
        nugget: The noise variance of a row, of the mean row if they differ.
        sill: The nugget and the variances of the terms.
        practical_ranges: The distance at which the model reaches 95 % of the way from the nugget to the sill, (k,).
        terms: The names of the terms of the model.
        removed: The names of other terms. Their posterior means are subtracted from the rows, as the mean is.
        num_rows: The number of rows.
        num_pairs: The number of pairs, before those beyond the largest distance are left out.

    Examples:
        >>> import numpy as np
        >>> import rfgp
        >>> x = np.linspace(0, 50, 200)
        >>> y = np.sin(x) + 0.1 * np.random.default_rng(0).standard_normal(200)
        >>> variogram = rfgp.GP(rfgp.kernels.Matern("x"), seed=0).fit({"x": x}, y).variogram(num_bins=3)
        >>> variogram.directions, variogram.counts.shape, variogram.num_pairs
        (('distance',), (1, 3), 19900)
    """

    directions: tuple[str, ...]
    distances: Floats
    semivariances: Floats
    counts: NDArray[np.int64]
    model_distances: Floats
    model_semivariances: Floats
    nugget: float
    sill: float
    practical_ranges: Floats
    terms: tuple[str, ...]
    removed: tuple[str, ...]
    num_rows: int
    num_pairs: int

    def __str__(self) -> str:
        ranges = ", ".join(f"{r:.4g} ({d})" for r, d in zip(self.practical_ranges, self.directions, strict=True))
        lines = [
            f"Variogram of {counted(self.num_pairs, 'pair')} of {counted(self.num_rows, 'row')}, less the mean"
            + "".join(f" and {name}" for name in self.removed),
            f"nugget {self.nugget:.4g}, sill {self.sill:.4g}, practical range {ranges}",
            "direction   distance  semivariance      model      pairs",
        ]
        for k, direction in enumerate(self.directions):
            model = np.interp(self.distances[k], self.model_distances[k], self.model_semivariances[k])
            rows = zip(self.distances[k], self.semivariances[k], model, self.counts[k], strict=True)
            lines += [f"{direction[:10]:10} {h:9.4g} {g:13.4g} {m:10.4g} {n:10,}" for h, g, m, n in rows if n]
        return "\n".join(lines)


def variogram(
    state: GPState,
    term: str | None,
    max_distance: float | None,
    num_bins: int,
    num_pairs: int,
    seed: int | None,
) -> Variogram:
    """Return the variogram of the rows and of the model, as `rfgp.GP.variogram`.

    Args:
        state: The state of the model. Of an average, the model with the largest weight.
        term: The name of the term whose columns are the positions. If None, the first stationary one.
        max_distance: The largest distance. If None, it depends on the rows and the model.
        num_bins: The number of bins of a direction.
        num_pairs: The number of pairs of rows that are drawn, if there are more.
        seed: The seed of the draw. If None, that of the model.

    Raises:
        NotFittedError: If the rows are not known.
        InvalidArgumentError: If there is no stationary term, or the noise has not one variance.
        DataError: If all rows are at one position.
    """
    num_bins, num_pairs = check_count("num_bins", num_bins), check_count("num_pairs", num_pairs)
    state = largest(state)
    block = gathered(state.require_rows(purpose="a variogram")).standardized_block
    model = _Model.of(state, term)
    if block.num_outputs > 1:
        raise InvalidArgumentError(f"A variogram requires one target, got {block.num_outputs}. Fit one model for each.")
    with torch.no_grad():
        residual = _residual(state, block.inputs, block.targets[:, 0], model.removed)
        noise = block.noise_diag(state.hyperparameters.standardized("noise").double()).mean()
    along = model.along(block.inputs)
    extents = np.ptp(along, axis=0) * model.lengths
    if not extents.any():
        raise DataError("A variogram requires rows at different positions, got one position.")
    unit = float(state.scaling.targets.scale) ** 2
    shape = (1, num_bins) if model.is_isotropic else (len(extents), num_bins)
    ranges = np.array([model.practical_range(axis) for axis in range(shape[0])])
    cutoffs = np.minimum((extents.max(keepdims=True) if model.is_isotropic else extents) / 2, 2 * ranges)
    if max_distance is not None:
        cutoffs = np.full_like(cutoffs, positive("max_distance", max_distance))

    first, second = _pairs(len(residual), num_pairs, state.spec.options.seed if seed is None else seed)
    apart = along[first] - along[second]
    axis = np.zeros(len(apart), dtype=np.int64) if model.is_isotropic else np.abs(apart).argmax(1)
    distance = np.linalg.norm(apart, axis=1) * model.lengths[axis]
    bins = np.minimum(distance / cutoffs[axis] * num_bins, num_bins - 1e-9).astype(np.int64) + num_bins * axis
    inside = distance <= cutoffs[axis]
    squares = 0.5 * (residual[first] - residual[second]) ** 2
    counts, *sums = (
        np.bincount(bins[inside], weights, math.prod(shape)).reshape(shape)
        for weights in (None, distance[inside], squares[inside])
    )
    with np.errstate(invalid="ignore"):
        distances, semivariances = (total / counts for total in sums)
    grid = np.linspace(0, cutoffs, MODEL_POINTS, axis=1)
    nugget, partial = unit * float(noise), unit * model.variance
    curves = [nugget + partial - unit * model.covariance(k, distances) for k, distances in enumerate(grid)]
    names = ("distance",) if model.is_isotropic else model.directions
    return Variogram(
        *(names, distances, semivariances, counts, grid, np.stack(curves), nugget, nugget + partial, ranges),
        *(tuple(t.name for t in model.terms), model.removed, len(residual), len(first)),
    )


def _residual(state: GPState, inputs: Tensor, targets: Tensor, removed: Sequence[str]) -> Floats:
    """Return targets (n,) less the mean and the posterior means of some terms, in the user's units."""
    scale, mean = float(state.scaling.targets.scale), state.hyperparameters.standardized("mean").reshape(())
    residual = scale * (targets - mean).double().cpu().numpy()
    if removed:
        residual = residual - predicted(state, inputs, OutputFormat(True, targets)).of(*removed).mean
    return np.asarray(residual)


def _pairs(count: int, most: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all pairs of different rows, or some that are drawn with replacement."""
    if count * (count - 1) // 2 <= most:
        first, second = np.triu_indices(count, 1)
        return first, second
    generator = random.numpy_generator(seed, random.Role.SAMPLE)
    first = generator.integers(count, size=most)
    return first, (first + generator.integers(1, count, size=most)) % count


@dataclass(frozen=True, eq=False)
class _Model:
    """The stationary terms of positions.

    Attributes:
        terms: The terms. The axes are those of the first.
        removed: The names of all other terms.
        values: The hyperparameters by path.
        axes: The directions of the axes in standardized inputs, a unit vector of the user's space in each row, (c, D).
        lengths: The lengthscales of the axes, (c,), in the user's units.
        directions: Their names.
        is_isotropic: Whether the first term is the same function of distance in all directions.
    """

    terms: tuple[BoundTerm, ...]
    removed: tuple[str, ...]
    values: dict[str, Tensor]
    axes: Tensor
    lengths: Floats
    directions: tuple[str, ...]
    is_isotropic: bool

    @classmethod
    def of(cls, state: GPState, name: str | None) -> "_Model":
        """Return the terms on the columns of a named term, or of the first stationary one."""
        spec, parameters = state.spec, state.hyperparameters
        if not spec.is_gaussian or state.scale_model is not None:
            raise InvalidArgumentError(
                "A variogram requires a Gaussian likelihood with one noise variance, because that is the nugget. Use "
                'likelihood="gaussian".'
            )
        stationary = [term for term in spec.terms if all(f.measure is not None for f in term.term.factors)]
        found = next((term for term in stationary if name in (None, term.name)), None)
        if found is None:
            raise InvalidArgumentError(
                f"A variogram requires a stationary term of positions, such as k.Matern(('x', 'y')), got "
                f"{', '.join(repr(t.name) for t in spec.terms) if name is None else repr(name)}."
            )
        others = [term for term in stationary if term is not found and set(term.columns) <= set(found.columns)]
        terms = (found, *others)
        values = {path: parameters.standardized(path).detach().double() for path in parameters.space.quantities}
        scale, keys = state.scaling.inputs.scale.double(), spec.schema.keys
        rows, lengths, names = list[Tensor](), list[Tensor](), list[str]()
        for _, indices, prefix in found.parts():
            own = of_prefix(values, prefix)
            turned = rotated(torch.eye(len(indices), dtype=torch.float64), own.get("rotation")).mT
            names += [str(keys[i]) for i in indices]
            if "rotation" in own:
                angle = math.degrees(own["rotation"]) % 180
                names[-2:] = [f"{a:.0f} degrees" for a in (angle, (angle + 90) % 180)]
            rows.append(torch.zeros(len(indices), len(scale), dtype=torch.float64))
            rows[-1][:, indices] = turned / scale[indices]
            lengths.append(own["lengthscale"].expand(len(indices)) * scale[indices])
        length = torch.cat(lengths).numpy()
        alone = len(found.parts()) == 1 and found.term.factors[0].measure.is_isotropic
        return cls(
            terms,
            tuple(term.name for term in spec.terms if term not in terms),
            values,
            torch.cat(rows),
            length,
            tuple(names),
            alone and bool(np.allclose(length, length[0])),
        )

    def along(self, inputs: Tensor) -> Floats:
        """Return the coordinates of standardized inputs (n, D) along the axes, in lengthscales, (n, c)."""
        inverse = self.axes / self.axes.square().sum(1, keepdim=True)
        return np.asarray((inputs.detach().double() @ inverse.mT).numpy() / self.lengths)

    @property
    def variance(self) -> float:
        """The sum of the variances of the terms, standardized."""
        return float(self.covariance(0, np.zeros(1))[0])

    def covariance(self, axis: int, distances: Floats) -> Floats:
        """Return the covariance of the terms at distances (m,) along an axis, (m,), standardized."""
        points = torch.from_numpy(distances)[:, None] * self.axes[axis]
        zero = torch.zeros_like(points[:1])
        return np.asarray(sum(term.covariance(zero, points, self.values)[0] for term in self.terms))

    def practical_range(self, axis: int) -> float:
        """Return the distance along an axis at which the covariance is 5 % of the variance, in the user's units."""
        left, far = (1 - REACHED) * self.variance, float(self.lengths[axis])

        def excess(distance: float) -> float:
            return float(self.covariance(axis, np.array([distance]))[0]) - left

        while excess(far) > 0 and math.isfinite(far):
            far *= 2
        return float(brentq(excess, 0.0, far)) if math.isfinite(far) else far
