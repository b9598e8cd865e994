"""Integration over the posterior of the hyperparameters: a mixture of models at the points of a design.

A point fit keeps one value of each hyperparameter. With few rows, many values explain the data, and predictions should
average over them:

    p(f | y) = integral of p(f | y, x) p(x | y) dx  ~  sum_k w_k p(f | y, x_k).

The coordinates x are the raw ones of `rfgp.parameters`: logarithms of standardized values, and the mean in deviations
of the target. The density p(x | y) is that of x. A prior of a value has the Jacobian dv / dx = v of the logarithm.

1. The mode x* of p(x | y) under proper priors, from the end of the point fit and from the starting values.
2. Its Hessian -H by central differences of the gradient. With the eigenvectors V and eigenvalues L of H, the
   standardized coordinates z of x = x* + V L^(-1/2) z have the density of N(0, I) if the posterior is normal.
3. Scales s_i^+ and s_i^- of the two sides of each axis, so that at z_i = +-DEPTH the log density has fallen by
   DEPTH^2 / 2: x = x* + V L^(-1/2) (s_i^(sign z_i) z_i)_i. It is a product of two-piece normal distributions.
4. A central composite design of at most 60 points z_k with weights a_k, and w_k in proportion to

       a_k p(x_k | y) J(z_k) / N(z_k; 0, I),   J(z) = product of s_i^(sign z_i), or the mean of both if z_i = 0.

   J is the Jacobian of step 3, so that this is a quadrature rule for the integral over x in each orthant.

Design. The n directions are the 2 m axes and a two-level fractional factorial +-(1, ..., 1) / sqrt(m). Its columns are
balanced and orthogonal, so that the mean of u is 0 and that of u u^T is I / m over the directions u. Points are the
center and spheres of radii r_j with the total weights b_j, so that a_k = b_j / n. Then sum a_k z_k = 0, and

    sum a_k = 1,  sum a_k z_k z_k^T = (sum b_j r_j^2 / m) I = I

if the b_j with the center sum to 1, and sum b_j r_j^2 = m.

- Up to 5 directions there are two spheres. r^2 of a standard normal vector has a chi-square distribution with m degrees
  of freedom. Its Gauss-Radau rule with a node at 0 has the nodes r^2 = 2 s, with s = m / 2 + 2 -+ sqrt(m / 2 + 2) the
  zeros of the Laguerre polynomial L_2^(m/2), and weights by the moments m and m (m + 2). It is exact up to r^8. In one
  direction this is the Gauss-Hermite rule of 5 points.
- More directions have one sphere, of radius f sqrt(m), with b = 1 / f^2.

The rule is exact for polynomials of degree 2 under N(0, I), and of degree 3 up to 16 directions, where each point has
its opposite. With one sphere, posteriors with long tails get widths that are up to a tenth too small. Beyond 13
directions the axes are left out, and beyond 31 the directions with the most curvature stay at the mode.

Sources: Rue, Martino and Chopin (2009), Approximate Bayesian inference for latent Gaussian models by using integrated
nested Laplace approximations, JRSS B 71(2), Section 6.5 (one sphere, and f = 1.1). Genz and Monahan (1999), A
stochastic algorithm for high-dimensional integrals over unbounded regions with Gaussian weight, J. Comput. Appl. Math.
112 (products of radial and spherical rules). Martins, Simpson, Lindgren and Rue
(2013), Bayesian computing with INLA: new features, Section 3.2 (two-piece normal marginals). Box and Wilson (1951), On
the experimental attainment of optimum conditions.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rfgp.errors import InvalidArgumentError, NotPositiveDefiniteError, RfgpError, SolverError
from rfgp.fitting.maximize import Objective, Plan, maximize
from rfgp.hyperparameters import LEVELS, HyperparameterPosterior
from rfgp.lattices.design import LatticeDesign
from rfgp.models import FitReport, GPState, ModelSpec
from rfgp.models.state import Share, averaged, parts_of_average
from rfgp.parameters import BoundaryAvoiding, ParameterSpace, ParameterValues
from rfgp.rows import is_read_in_blocks
from rfgp.solvers import uses_cg

Floats = NDArray[np.float64]

# --- The posterior density of the hyperparameters, in unconstrained coordinates --------------------------------------

DEVIATION = 1.5
"""The prior standard deviation of the logarithm of a hyperparameter without a prior, around its starting value."""
NOISE_DEVIATION = 2.0
"""The same of the noise, which varies more between tables."""


@dataclass(frozen=True)
class NormalOfRaw:
    """The default prior: a normal distribution of the raw value, which is a logarithm if the value is positive.

    Attributes:
        center: The mean, () or (d,).
        deviation: The standard deviation.
        is_log: Whether the raw value is a logarithm.
    """

    center: Tensor
    deviation: Tensor | float
    is_log: bool
    is_standardized = True

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density of the raw value of each entry, () or (d,)."""
        z = ((value.log() if self.is_log else value) - self.center) / self.deviation
        return -0.5 * z.square() - 0.5 * math.log(2 * math.pi) - torch.as_tensor(self.deviation).log()


@dataclass(frozen=True)
class OfRaw:
    """A prior of a value as a density of its raw value.

    Attributes:
        prior: The user's prior, or a default one of the model.
        is_log: Whether the raw value is a logarithm.
    """

    prior: Any
    is_log: bool

    @property
    def is_standardized(self) -> bool:
        """Whether values are in standardized units."""
        return bool(getattr(self.prior, "is_standardized", False))

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density of the raw value of each entry, () or (d,)."""
        if self.is_log and hasattr(self.prior, "log_prob_of_logarithm"):
            density: Tensor = self.prior.log_prob_of_logarithm(value)
        else:
            density = self.prior.log_prob(value) + (value.log() if self.is_log else 0.0)
        return density


def with_proper_priors(space: ParameterSpace) -> ParameterSpace:
    """Return a space whose hyperpriors are proper densities of raw values.

    Args:
        space: The space of a model. Its own priors get the Jacobian of the logarithm. Hyperparameters without one, or
            with the improper `BoundaryAvoiding`, get a normal distribution around their start. The mean has that of the
            target.
    """
    center, deviation = space.targets.forward(space.mean.location), space.mean.scale / space.targets.scale
    default: dict[str, Any] = {"mean": NormalOfRaw(center, deviation, is_log=False)}
    for name, quantity in space.quantities.items():
        scale = NOISE_DEVIATION if name == "noise" else DEVIATION if quantity.is_positive else 1.0
        default[name] = NormalOfRaw(quantity.to_raw(quantity.start), scale, quantity.is_positive)
    for name, prior in space.hyperpriors.items():
        if not isinstance(prior, BoundaryAvoiding):
            default[name] = OfRaw(prior, name != "mean" and space.quantities[name].is_positive)
    return replace(space, hyperpriors=default)


def log_density(state: GPState, values: Any, fixed: Iterable[str]) -> Tensor:
    """Return the log joint density of the targets and the raw hyperparameters, 0-d and differentiable.

    Args:
        state: The state of a single model, with rows.
        values: The raw values of the free hyperparameters, (p,).
        fixed: The names of other hyperparameters that stay, besides those that no fit changes.

    Raises:
        InvalidArgumentError: If the values have a wrong shape.
        NotFittedError: If there are no rows.
    """
    now = state.hyperparameters.detached()
    free, vector = now.space.free(fixed), torch.as_tensor(values, dtype=torch.float64)
    sizes = [now.raw[name].numel() for name in free]
    if vector.shape != (sum(sizes),):
        raise InvalidArgumentError(
            f"values must have shape ({sum(sizes)},), for {', '.join(free)}, got {tuple(vector.shape)}. Start from "
            "gp.hyperparameters.unconstrained(fixed)."
        )
    state.require_rows(purpose="the density of hyperparameters")
    parts = zip(free, torch.split(vector, sizes), strict=True)
    raw = {**now.raw, **{name: part.reshape(now.raw[name].shape).to(now.raw[name]) for name, part in parts}}
    space = with_proper_priors(now.space)
    space = replace(space, hyperpriors={name: prior for name, prior in space.hyperpriors.items() if name in free})
    proper = ParameterValues(space, raw)
    try:
        total: Tensor = state.replace(hyperparameters=proper).log_marginal_likelihood() + proper.log_hyperprior()
    except (NotPositiveDefiniteError, SolverError, InvalidArgumentError):  # a sampler rejects the point
        return (0.0 * vector).nan_to_num().sum() - math.inf
    return total


class _TimeOverError(Exception):
    """Ends an integration, so that the point fit stays."""


class _Density:
    """The log posterior density of the free raw values and its gradient, as functions of a vector (p,)."""

    def __init__(self, objective: Objective, values: ParameterValues, free: Sequence[str], plan: Plan) -> None:
        self._objective, self._values, self._free, self._plan = objective, values, list(free), plan
        self.evaluations = 0

    def __call__(self, x: Floats) -> tuple[float, Floats]:
        """Return the log density, -inf where the model has none, and its gradient (p,)."""
        if self._plan.is_over():
            raise _TimeOverError
        self.evaluations += 1
        try:
            found = self._objective.evaluated(self._values.moved(self._free, x), self._free)
        except (RfgpError, ValueError):
            return -math.inf, np.full(len(x), math.nan)
        value, count = -found.value * self._objective.count, self._objective.count
        return (value if math.isfinite(value) else -math.inf), -found.gradient * count

    def of_prior(self, x: Floats) -> tuple[float, Floats]:
        """Return the log density of the prior and its gradient (p,)."""
        leaves = self._values.moved(self._free, x).leaves(self._free)
        value = leaves.log_hyperprior()
        raw = [leaves.raw[name] for name in self._free]
        found = torch.autograd.grad(value, raw, allow_unused=True)  # a uniform prior has no gradient
        parts = [torch.zeros_like(one) if g is None else g for g, one in zip(found, raw, strict=True)]
        return float(value.detach()), torch.cat([part.reshape(-1) for part in parts]).double().cpu().numpy()


# --- The design -------------------------------------------------------------------------------------------------------

RADIUS = 1.1
"""The radius f of a single sphere over the square root of the number of directions (Rue, Martino and Chopin 2009)."""
MAX_POINTS = 60
"""The maximum number of points of a design."""
MAX_DIRECTIONS = 31
"""The maximum number of directions: the columns of a factorial of 32 points."""


def design(m: int) -> tuple[Floats, Floats]:
    """Return the points (n, m) and weights (n,) of a rule for N(0, I) in m directions, the center first.

    Args:
        m: The number of directions, from 1 to 31.

    Examples:
        >>> points, weights = design(4)
        >>> points.shape, np.allclose(weights @ points**2, 1), np.allclose((points.T * weights) @ points, np.eye(4))
        ((49, 4), True, True)
    """
    base = min(m, 4 if m <= 5 else 5)
    words = [word for size in range(1, base + 1) for word in combinations(range(base), size)]
    words.sort(key=lambda word: (len(word) > 1, len(word) < base, len(word) % 2 == 0))  # of several, odd lengths first
    runs = np.array(list(product((-1.0, 1.0), repeat=base)))
    axes = np.concatenate([np.eye(m), -np.eye(m)])
    factorial = np.stack([runs[:, word].prod(1) for word in words[:m]], axis=1) / math.sqrt(m)
    directions = axes if m == 1 else np.concatenate([axes, factorial])
    if 1 + len(directions) > MAX_POINTS:
        directions = factorial
    squares, totals = np.array([RADIUS**2 * m]), np.array([1 / RADIUS**2])
    if 1 + 2 * len(directions) <= MAX_POINTS:
        squares = m + 4 + 2 * math.sqrt(m / 2 + 2) * np.array([-1.0, 1.0])
        totals = np.linalg.solve(np.stack([squares, squares**2]), [m, m * (m + 2)])
    points = np.concatenate([np.zeros((1, m)), *(math.sqrt(square) * directions for square in squares)])
    return points, np.append(1 - totals.sum(), np.repeat(totals / len(directions), len(directions)))


# --- Laplace's approximation, and the two sides of its axes -----------------------------------------------------------

STEP, LARGEST_STEP = 1e-2, 0.1
"""The first step of central differences, and the largest in posterior standard deviations."""
DEPTH = 2.0
"""The distance on an axis, in standard deviations, at which the fall of the log density gives the scale of its side.

Against chains on two other problems, widths were 0.96 to 0.99 of the chain's with 1, and 0.97 to 1.00 with 2."""
SIDES = 0.25, 4.0
"""The smallest and the largest scale of a side."""
NEGLIGIBLE = 1e-4
"""The weight below which a point is dropped."""
ROUNDING, LEAST_CURVATURE = 1e-4, 1e-2
"""The relative rounding error of curvatures, also the distance from a bound, and the least curvature of a direction."""
GAIN = 0.1
"""The log density by which a point of the design may exceed the mode before the search starts again from it."""


def hessian(density: Any, x: Floats, indices: Sequence[int]) -> Floats:
    """Return the negative Hessian (k, k) of a log density in some coordinates, by central differences of its gradient.

    Args:
        density: A function that returns a log density and its gradient (p,).
        x: The point, (p,).
        indices: The indices of the k coordinates.
    """
    rows = []
    for index in indices:
        step = STEP
        for _ in range(6):
            move = np.zeros_like(x)
            move[index] = step
            slope = (density(x - move)[1] - density(x + move)[1]) / (2 * step)
            size = step**2 * abs(slope[index])
            if size <= LARGEST_STEP**2 or not math.isfinite(size):
                break
            step *= 0.5 * LARGEST_STEP / math.sqrt(size)
        rows.append(slope[list(indices)])
    curvature = np.array(rows).reshape(len(rows), len(rows))
    return np.asarray((curvature + curvature.T) / 2)


def side(density: Any, x: Floats, top: float, axis: Floats) -> float:
    """Return the scale s with which the log density falls by DEPTH^2 / 2 at x + s DEPTH axis.

    Args:
        density: A function that returns a log density and its gradient (p,).
        x: The mode, (p,).
        top: Its log density.
        axis: The direction, (p,), one standard deviation long.
    """
    scale = 1.0
    for _ in range(4):
        fall = top - density(x + scale * DEPTH * axis)[0]
        ratio = DEPTH / math.sqrt(2 * fall) if 0 < fall < math.inf else (0.5 if fall == math.inf else 2.0)
        new = float(np.clip(scale * np.clip(ratio, 0.5, 2.0), *SIDES))
        if abs(new - scale) <= 0.02 * scale:
            return new
        scale = new
    return scale


@dataclass(frozen=True, eq=False)
class Laplace:
    """A two-piece normal approximation of a posterior density.

    Attributes:
        mode: The mode, (p,).
        axes: The axes in the coordinates, one standard deviation long, (m, p).
        sides: The scales of the negative and of the positive side of each axis, (m, 2).
    """

    mode: Floats
    axes: Floats
    sides: Floats

    def scales(self, z: Floats) -> Floats:
        """Return the scales (n, m) of points (n, m), the mean of both sides at 0."""
        low, high = self.sides.T
        return np.asarray(np.where(z < 0, low, np.where(z > 0, high, (low + high) / 2)))

    def at(self, z: Floats) -> Floats:
        """Return the raw values (n, p) of points (n, m)."""
        return np.asarray(self.mode + (self.scales(z) * z) @ self.axes)

    def log_weights(self, z: Floats, weights: Floats, logs: Floats) -> Floats:
        """Return log a + log p - log N(z) + log J of the points of a design, up to a constant, (n,).

        Args:
            z: The points, (n, m).
            weights: Their weights under N(0, I), (n,).
            logs: Their log posterior densities, (n,).
        """
        return np.asarray(np.log(weights) + logs + 0.5 * (z**2).sum(1) + np.log(self.scales(z)).sum(1))


def approximate(density: _Density, x: Floats, indices: Sequence[int]) -> tuple[Laplace, list[int]]:
    """Return the approximation at a mode, and the indices of the coordinates that it integrates.

    Args:
        density: The log posterior density.
        x: The mode, (p,).
        indices: The indices of the coordinates that may be integrated.
    """
    curvature, of_prior = hessian(density, x, indices), hessian(density.of_prior, x, indices)
    has_more = curvature.diagonal() > (1 - ROUNDING) * of_prior.diagonal()  # not NaN
    kept = [index for index, keeps in zip(indices, has_more, strict=True) if keeps]
    curvature, of_prior = (matrix[np.ix_(has_more, has_more)] for matrix in (curvature, of_prior))
    values, vectors = np.linalg.eigh(curvature)
    floor = np.einsum("ij,ik,kj->j", vectors, of_prior, vectors)
    values = np.maximum(values, np.maximum(floor, LEAST_CURVATURE))
    chosen = np.argsort(values, kind="stable")[:MAX_DIRECTIONS]
    axes = np.zeros((len(chosen), len(x)))
    axes[:, kept] = (vectors / np.sqrt(values)).T[chosen]
    top = density(x)[0]
    sides = np.array([[side(density, x, top, sign * axis) for sign in (-1, 1)] for axis in axes]).reshape(-1, 2)
    return Laplace(x, axes, sides), kept


# --- The integrated model ---------------------------------------------------------------------------------------------

INTEGRATED, AUTO = "integrated", "auto"
ROWS_PER_HYPERPARAMETER = 10
"""The number of rows a hyperparameter below which "auto" integrates."""
SEARCHES = 3
"""The maximum number of searches for the mode, after which a design may still exceed it."""
STAGE = "mode of the hyperparameters' posterior"
DRAWS, TINY = 4000, 1e-30
"""The number of draws from the approximation for quantiles, and the least variance of a raw value."""


def unsupported(state: GPState) -> str | None:
    """Return a message if the hyperparameters of a model cannot be integrated, or None.

    Args:
        state: The state of a single model, with rows.
    """
    remedy = "Use hyperparameter_posterior='point', or a sampler of another package with gp.log_density."
    begin = "hyperparameter_posterior='integrated' requires"
    if not state.spec.is_gaussian:
        return f"{begin} a Gaussian likelihood, got {state.spec.options.likelihood!r}. {remedy}"
    if state.scaling.targets.scale.ndim:
        return f"{begin} one output, got {len(state.scaling.targets.scale)}. Fit a model for each output."
    rows = state.require_rows(purpose="a fit")
    if is_read_in_blocks(rows):
        return f"{begin} rows in memory, got rows that are read in blocks. {remedy}"
    if uses_cg(state.prior(), rows):
        return f"{begin} a log likelihood without random errors, got one by conjugate gradients. {remedy}"
    return None


def check_integrated(state: GPState) -> None:
    """Check that the hyperparameters of a model can be integrated if that was requested.

    Args:
        state: The state of a model before or after the point fit.

    Raises:
        InvalidArgumentError: If they cannot.
    """
    if state.spec.options.hyperparameter_posterior == INTEGRATED:
        message = unsupported(state)
        if message is not None:
            raise InvalidArgumentError(message)


def with_integrated(state: GPState, report: FitReport, plan: Plan) -> tuple[GPState, FitReport]:
    """Return a fitted model with integrated hyperparameters if its options say so, and the report.

    The model is then an average over the points of a design, the mode first. Of an average the model with the largest
    weight is integrated.

    Args:
        state: The state of a fitted model.
        report: The report of the fit.
        plan: The options of the fit. Fixed hyperparameters stay.

    Raises:
        InvalidArgumentError: If the hyperparameters cannot be integrated, and this was requested.
    """
    (share, first), *others = parts_of_average(state)
    chosen, values = state.spec.options.hyperparameter_posterior, first.hyperparameters
    free = values.space.free(plan.fixed)
    count = len(values.vector(free))
    is_auto = chosen == AUTO and len(first.require_rows(purpose="a fit")) < ROWS_PER_HYPERPARAMETER * count
    if not count or not (chosen == INTEGRATED or (is_auto and unsupported(first) is None)):
        return state, report
    check_integrated(first)
    try:
        shares, record = _integrated(first, free, plan)
    except (_TimeOverError, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt):
            plan.deadline.interrupt()
        note = f"hyperparameters are not integrated, because {plan.deadline.reason}"
        return state, replace(report, message=f"{report.message}; {note}", converged=False)
    members = [(share * weight, member) for weight, member in shares]
    report, everyone = replace(report, hyperparameter_posterior=record), [*members, *others]
    (weight, mode), *rest = everyone
    return (averaged(mode, weight, rest) if rest else mode), report


def _integrated(state: GPState, free: Sequence[str], plan: Plan) -> tuple[list[Share], HyperparameterPosterior]:
    """Return the models at the points of the design with their weights, the mode first, and the record."""
    own = state.hyperparameters
    values = ParameterValues(with_proper_priors(own.space), own.detached().raw)
    objective = Objective.of(state.replace(hyperparameters=values), state.require_rows(purpose="a fit"))
    density = _Density(objective, values, free, plan)

    def mode_from(start: ParameterValues) -> Floats:
        return maximize(objective, start, plan, stage=STAGE)[0].vector(free)

    begin = values.space.start.raw
    ends = [mode_from(values), mode_from(values.replaced({name: begin[name] for name in free}))]
    x = max(ends, key=lambda end: density(end)[0])
    for search in range(SEARCHES):
        inside = [i for i, is_at in enumerate(_at_bounds(values.space, free, x)) if not is_at]
        laplace, kept = approximate(density, x, inside)
        z, weights = design(len(laplace.axes)) if len(laplace.axes) else (np.zeros((1, 0)), np.ones(1))
        points = laplace.at(z)
        logs = np.array([density(point)[0] for point in points])
        if logs.max() <= logs[0] + GAIN or search == SEARCHES - 1:
            break
        x = mode_from(values.moved(free, points[logs.argmax()]))
    states = [state.replace(hyperparameters=own.moved(free, point)) for point in points]
    states, logs = _with_lattices(state.spec, states, logs)
    log_weights = laplace.log_weights(z, weights, logs)
    shares = np.exp(log_weights - log_weights.max())
    shares /= shares.sum()
    shares[0] = max(shares[0], NEGLIGIBLE)
    used = shares >= NEGLIGIBLE
    shares, members = (
        shares[used] / shares[used].sum(),
        [one for one, is_used in zip(states, used, strict=True) if is_used],
    )
    record = _record(state, free, laplace, kept, (shares, points[used]), (len(z), density.evaluations))
    return list(zip(shares.tolist(), members, strict=True)), record


def _with_lattices(spec: ModelSpec, states: Sequence[GPState], logs: Floats) -> tuple[list[GPState], Floats]:
    """Return models at other hyperparameters with lattices for these, and their log posterior densities.

    Args:
        spec: The specification of the point fit, with the lattice of its hyperparameters.
        states: The models, with this specification.
        logs: Their log posterior densities, (n,).
    """
    if not any(isinstance(prior.basis, LatticeDesign) for prior in spec.term_priors):
        return list(states), logs
    new, changes = list(states), np.zeros_like(logs)
    for number, one in enumerate(states):
        try:
            renewed = one.replace(spec=spec.with_new_basis(one.hyperparameters, one.num_observations))
            with torch.no_grad():
                changes[number] = float(renewed.log_marginal_likelihood() - one.log_marginal_likelihood())
        except RfgpError:  # too many modes
            changes[number] = -math.inf
            continue
        new[number] = renewed
    return new, logs + changes


def _at_bounds(space: ParameterSpace, free: Sequence[str], x: Floats) -> list[bool]:
    """Return whether each entry of a vector (p,) is at a bound."""
    bounds = [limits for name in free for limits in space.bounds(name)]
    return [
        any(end is not None and abs(v - end) < ROUNDING for end in limits) for v, limits in zip(x, bounds, strict=True)
    ]


def _record(
    state: GPState,
    free: Sequence[str],
    laplace: Laplace,
    kept: Sequence[int],
    mixture: tuple[Floats, Floats],
    counts: tuple[int, int],
) -> HyperparameterPosterior:
    """Return the marginal posteriors of the integrated hyperparameters.

    Means and covariances are those of the design. Quantiles are those of the two-piece normal distribution, shifted and
    scaled to them.

    Args:
        state: The state.
        free: The names of the free hyperparameters.
        laplace: The approximation.
        kept: The indices of the integrated entries.
        mixture: The weights (n,) and points (n, p) of the mixture.
        counts: The numbers of points of the design and of evaluations.
    """
    values, (weights, points) = state.hyperparameters, mixture
    entries = [(name, index) for name in free for index in range(values.raw[name].numel())]
    names = [f"{name}[{index}]" if values.raw[name].ndim else name for name, index in entries]
    z = np.random.default_rng(state.spec.options.seed).standard_normal((DRAWS, len(laplace.axes)))
    sizes = laplace.scales(z).prod(1) / laplace.scales(z).prod(1).sum()
    draws, raw = laplace.at(z)[:, kept], points[:, kept]
    mean, center = weights @ raw, sizes @ draws
    covariance, own = (raw - mean).T * weights @ (raw - mean), sizes @ (draws - center) ** 2
    deviations = np.sqrt(np.maximum(covariance.diagonal(), TINY))
    draws = mean + (draws - center) * deviations / np.sqrt(own)
    natural = [_natural(values.space, *entries[i], draws[:, j]) for j, i in enumerate(kept)]
    means = [float(sizes @ v) for v in natural]
    return HyperparameterPosterior(
        names=tuple(names[i] for i in kept),
        at_mode=tuple(name for i, name in enumerate(names) if i not in kept),
        means=tuple(means),
        deviations=tuple(math.sqrt(sizes @ (v - m) ** 2) for v, m in zip(natural, means, strict=True)),
        quantiles=tuple(tuple(_quantiles(v, sizes)) for v in natural),
        raw_means=tuple(mean.tolist()),
        raw_deviations=tuple(deviations.tolist()),
        correlations=tuple(map(tuple, (covariance / np.outer(deviations, deviations)).tolist())),
        weights=tuple(weights.tolist()),
        num_points=counts[0],
        evaluations=counts[1],
    )


def _natural(space: ParameterSpace, name: str, index: int, raw: Floats) -> Floats:
    """Return raw values (n,) of an entry in the user's units. One number for all columns stays standardized."""
    if name == "mean":
        return np.asarray(
            float(space.mean.location.reshape(-1)[index]) + float(space.mean.scale.reshape(-1)[index]) * raw
        )
    quantity = space.quantities[name]
    unit = 1.0 if quantity.is_shared else float(quantity.unit.expand(quantity.start.shape).reshape(-1)[index])
    return np.asarray(unit * (np.exp(raw) if quantity.is_positive else raw))


def _quantiles(values: Floats, weights: Floats) -> list[float]:
    """Return the weighted quantiles of draws (n,)."""
    order = values.argsort()
    levels: list[float] = np.interp(LEVELS, weights[order].cumsum(), values[order]).tolist()
    return levels
