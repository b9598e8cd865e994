"""Variograms of rows and of the model.

The semivariance of two rows is half the squared difference of their values. Over pairs at distance h its mean is
gamma(h) = nugget + sum_k s_k^2 (1 - rho_k(h)): the noise variance, and the terms with variances s_k^2 and correlations
rho_k. Source: Chiles and Delfiner (2012), Geostatistics, second edition, Sections 2.2 and 2.5.

Lengthscales differ by direction. A pair belongs to the axis that is nearest to it in lengthscales. If r is the distance
of its rows in lengthscales and l that of the axis, r l is the distance along the axis at which the model has the same
semivariance, so that no tolerance of angles biases the mean.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq

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
    state: GPState, term: str | None, max_distance: float | None, num_bins: int, num_pairs: int, seed: int | None
) -> Variogram:
    """Return the variogram of the rows and of the model, as `rfgp.GP.variogram`.

    Args:
        state: The state of the model. Of an average, the model with the largest weight.
        term: The name of the term whose columns are the positions. If None, the first with a stationary kernel.
        max_distance: The largest distance. If None, it depends on the rows and the model.
        num_bins: The number of bins of a direction.
        num_pairs: The number of pairs of rows that are drawn, if there are more.
        seed: The seed of the draw. If None, that of the model.

    Raises:
        NotFittedError: If the rows are not known.
        InvalidArgumentError: If no term has a stationary kernel, there are several targets, or the noise has not one
            variance.
        DataError: If all rows are at one position.
    """
    num_bins, num_pairs = check_count("num_bins", num_bins), check_count("num_pairs", num_pairs)
    state = largest(state)
    block = gathered(state.require_rows(purpose="a variogram")).standardized_block
    terms = _terms(state, term, block.num_outputs)
    if state.spec.areas is not None:
        raise InvalidArgumentError("A variogram requires rows that are points, got means over areas.")
    columns, parameters = terms[0].column_indices[0], state.hyperparameters
    names = [str(state.spec.schema.keys[i]) for i in columns]
    values = {path: parameters.standardized(path).detach().double() for path in parameters.space.names}
    own, unit = of_prefix(values, terms[0].prefixes[0]), state.scaling.targets.scale.double() ** 2
    if terms[0].term.factors[0].is_rotated:
        angle = math.degrees(own["rotation"])
        names = [f"{turned % 180:.0f} degrees" for turned in (angle, angle + 90)]
    axes = rotated(torch.eye(len(columns), dtype=torch.float64), own.get("rotation")).mT  # a unit vector in each row
    scale = state.scaling.inputs.scale.double()[columns]
    lengths = (own["lengthscale"] * scale).numpy()
    along = ((block.inputs[:, columns].double() * scale) @ axes.mT).numpy() / lengths
    extents = np.ptp(along, axis=0) * lengths
    if not extents.any():
        raise DataError("A variogram requires rows at different positions, got one position.")
    if getattr(terms[0].measure, "is_isotropic", False) and np.allclose(lengths, lengths[0]):
        names, extents = ["distance"], extents.max(keepdims=True)

    def covariance(axis: int, distances: Floats) -> Floats:
        points = torch.zeros(len(distances), block.inputs.shape[1], dtype=torch.float64)
        points[:, columns] = torch.from_numpy(distances)[:, None] * axes[axis] / scale
        zero = torch.zeros_like(points[:1])
        return np.asarray(unit * sum(one.covariance(zero, points, values)[0] for one in terms))

    nugget, variance = float(unit * block.noise_diag(values["noise"]).mean()), float(covariance(0, np.zeros(1))[0])
    reached = [lambda h, k=k: covariance(k, h) - (1 - REACHED) * variance for k in range(len(names))]
    ranges = np.array([_root(function, length) for function, length in zip(reached, lengths, strict=False)])
    cutoffs = np.minimum(extents / 2, 2 * ranges)
    if max_distance is not None:
        cutoffs = np.full_like(cutoffs, positive("max_distance", max_distance))
    grid = np.linspace(0, cutoffs, MODEL_POINTS, axis=1)
    model = np.stack([nugget + variance - covariance(k, distances) for k, distances in enumerate(grid)])

    rows = (block.targets[:, 0] - values["mean"].reshape(())) * unit.sqrt()
    if others := tuple(one.name for one in state.spec.terms if one not in terms):
        rows = rows - predicted(state, block.inputs, OutputFormat(False, rows)).of(*others).mean
    generator = random.numpy_generator(state.spec.options.seed if seed is None else seed, random.Role.SAMPLE)
    pairs = _pairs(len(rows), num_pairs, generator)
    found = _binned(along, rows.numpy(), pairs, lengths[: len(names)], cutoffs, num_bins)
    of_terms = tuple(one.name for one in terms), others
    sill = nugget + variance
    return Variogram(tuple(names), *found, grid, model, nugget, sill, ranges, *of_terms, len(rows), len(pairs[0]))


def _terms(state: GPState, name: str | None, num_outputs: int) -> list[BoundTerm]:
    """Return the term of positions, and other stationary terms on its columns."""
    spec = state.spec
    if not spec.is_gaussian or state.scale_model is not None or num_outputs > 1:
        raise InvalidArgumentError(
            "A variogram requires one target and a Gaussian likelihood with one noise variance, got "
            f"{counted(num_outputs, 'target')} and {spec.options.likelihood!r}. Use likelihood='gaussian'."
        )
    stationary = [term for term in spec.terms if term.measure is not None]
    main = next((term for term in stationary if name in (None, term.name)), None)
    if main is None:
        got = ", ".join(term.name for term in spec.terms) if name is None else name
        raise InvalidArgumentError(
            f"A variogram requires a term with one stationary kernel, such as k.Matern(('x', 'y')), got {got!r}."
        )
    return [main, *(one for one in stationary if one is not main and set(one.columns) <= set(main.columns))]


def _root(function: Callable[[Floats], Floats], length: float) -> float:
    """Return the distance at which a decreasing function is 0, or infinity beyond 1e9 lengths."""
    far = np.asarray(length * 10.0 ** np.arange(10), dtype=np.float64)
    below = far[function(far) <= 0]
    return float(brentq(lambda h: function(np.array([h]))[0], 0.0, below[0])) if len(below) else math.inf


def _pairs(count: int, most: int, generator: np.random.Generator) -> tuple[Any, Any]:
    """Return the rows of all pairs, or of some that are drawn with replacement."""
    if count * (count - 1) // 2 <= most:
        first, second = np.triu_indices(count, 1)
        return first, second
    first = generator.integers(count, size=most)
    return first, (first + generator.integers(1, count, size=most)) % count


def _binned(
    along: Floats, rows: Floats, pairs: tuple[Any, Any], lengths: Floats, cutoffs: Floats, num_bins: int
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return mean distances, mean semivariances and numbers of pairs, (k, b) each."""
    first, second = pairs
    apart = along[first] - along[second]
    axis = np.abs(apart).argmax(1) if len(lengths) > 1 else np.zeros(len(apart), dtype=np.int64)
    distance = np.linalg.norm(apart, axis=1) * lengths[axis]
    inside = distance <= cutoffs[axis]
    distance, axis, squares = distance[inside], axis[inside], (0.5 * (rows[first] - rows[second]) ** 2)[inside]
    bins = np.minimum((distance / cutoffs[axis] * num_bins).astype(np.int64), num_bins - 1) + num_bins * axis
    shape = len(lengths), num_bins
    counts, *sums = (np.bincount(bins, w, math.prod(shape)).reshape(shape) for w in (None, distance, squares))
    with np.errstate(invalid="ignore"):
        return sums[0] / counts, sums[1] / counts, counts
