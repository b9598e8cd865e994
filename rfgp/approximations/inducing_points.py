"""Inducing points with or without a residual, and Vecchia approximations."""

from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from rfgp import random, spectra
from rfgp.approximations.role import (
    MIN_NOISE_OF_LATENT_NEIGHBORS,
    MIN_NOISE_OF_MATRICES,
    OF_AREAS,
    Approximation,
    Given,
    TermCost,
    TermCovariance,
    TermData,
    TermEmbedding,
    TermPrior,
    new_levels,
    num_weights,
    parameter_names,
    scale_name,
    unit_constants,
    variance_at,
    weights_memory,
)
from rfgp.autograd import is_differentiated
from rfgp.blocks import KernelBlock, NewLevels, Prior, Residual, VecchiaBlock, WeightBlock
from rfgp.columns import ColumnKind
from rfgp.errors import InvalidArgumentError
from rfgp.features.inducing import JITTER, MIN_SAMPLE, SAMPLED, by_k_means, by_pivots, mean_square_error, whitening_of
from rfgp.grams import rotated
from rfgp.kernels.role import BoundTerm, ColumnSummary, Values, constants_of
from rfgp.local.kinds import kind_of
from rfgp.messages import check_count, check_flag
from rfgp.torch_context import Recent

# --- Vecchia approximations: each row is conditioned on its nearest predecessors -------------------------------------

CONDITIONS = ("auto", "responses", "latent")
"""The options of `condition_on`."""


@dataclass(frozen=True, repr=False)
class Vecchia(Approximation):
    """A Vecchia approximation: each row is conditioned on its nearest predecessors.

    It supports any term with a covariance function. If several terms of a model use it, their sum is approximated as
    one process.

    Compiled loops exist for one term with a Gaussian kernel, a product of Gaussian kernels, or a Matern kernel with nu
    1/2, 3/2 or 5/2. Other kernels, and sums, take 4 to 25 times as long. Latent
    neighbors then take about three times longer still.

    If rows are conditioned on responses, the compiled loops process blocks of nearby rows. A block shares twice
    `num_neighbors` neighbors and one factorization. The accuracy is that of `num_neighbors` neighbors for each row, in
    less than half of the time.

    Distances are in units of the lengthscales, on a circle for periodic columns. Rows of different levels are far
    apart. Columns of coordinates, such as those of roads, are not scaled.

    Sources: Vecchia (1988), Estimation and model identification for continuous spatial processes. Katzfuss and Guinness
    (2021), A general framework for Vecchia approximations of Gaussian processes. Guinness (2018), Permutation and
    grouping methods for sharpening Gaussian process approximations.

    Attributes:
        num_neighbors: The maximum number of neighbors of a row. The rows of a block share twice as many.
        condition_on: "responses" to condition on observations of the neighbors, "latent" for values of the process, or
            "auto" to choose by the noise. Latent values are more accurate if the noise is large.
        block_size: The maximum number of rows of a block, at most `num_neighbors` / 2 + 1. If 1, each row has its own
            neighbors.
        seed: The seed of the order of the rows. If None, that of the model.

    Raises:
        InvalidArgumentError: If the number of neighbors or rows of a block is not a positive integer, or `condition_on`
            is unknown.

    Examples:
        >>> import rfgp
        >>> rfgp.Vecchia(20)
        Vecchia(num_neighbors=20)
    """

    num_neighbors: int = 30
    condition_on: str = field(default="auto", kw_only=True)
    block_size: int = field(default=16, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "num_neighbors", check_count("num_neighbors", self.num_neighbors))
        object.__setattr__(self, "block_size", check_count("block_size", self.block_size))
        if self.condition_on not in CONDITIONS:
            raise InvalidArgumentError(
                f"condition_on must be one of {', '.join(CONDITIONS)}, got {self.condition_on!r}."
            )

    def unsupported_reason(self, data: TermData) -> str | None:
        """Return why the approximation does not support a term, or None."""
        if data.is_averaged:
            return OF_AREAS
        factors = data.term.term.factors
        if any(factor.kind is ColumnKind.NODE for factor in factors):
            return "nodes of a graph have no coordinates. Use RandomWalks() or SparsePrecision()."
        if not any(factor.columns for factor in factors):
            return "it reads no column. Use Exact()."
        if self.condition_on == "responses" and not data.is_gaussian:
            return "condition_on='responses' requires a Gaussian likelihood. Use condition_on='latent'."
        return None

    def cost(self, data: TermData, prior: TermPrior | None = None) -> TermCost:
        """Return the cost of the neighbors."""
        count = min(self.num_neighbors, data.num_rows)
        is_blocked = self.condition_on != "latent" and self.block_size > 1 and data.is_gaussian
        entries = min(2 * count + (self.block_size + 1) / 2 if is_blocked else count + 1, data.num_rows)
        return TermCost(data.num_rows, 16.0 * entries * data.num_rows, f"{count} neighbors of each row")

    def least_noise(self, data: TermData) -> float:
        """Return the smallest noise variance that factors of neighbors can resolve."""
        return MIN_NOISE_OF_LATENT_NEIGHBORS if self.condition_on == "latent" else MIN_NOISE_OF_MATRICES

    def build(self, data: TermData, seed: int) -> TermPrior:
        """Return the term with the seed of the order of its rows."""
        kind = "neighbors of a kernel" if loops_of(data.term) is None else "neighbors"
        approximation = replace(self, seed=seed if self.seed is None else self.seed)
        return TermPrior(
            kind, partial(_neighbors_prior, data.term, parameter_names(data, with_scale=True), approximation)
        )


def loops_of(term: BoundTerm) -> str | None:
    """Return the name of the kernel of a term with compiled loops, or None.

    Args:
        term: The term.
    """
    measures = [factor.measure for factor in term.term.factors]
    if len(measures) == 1:
        return None if measures[0] is None else kind_of(measures[0])
    if any(factor.is_rotated for factor in term.term.factors):
        return None
    return "gaussian" if all(isinstance(measure, spectra.Gaussian) for measure in measures) else None


def _neighbors_prior(
    term: BoundTerm,
    names: tuple[str, ...],
    approximation: Vecchia,
    basis: None,
    values: Values,
    columns: ColumnSummary,
) -> Prior:
    """Return the prior at hyperparameters by path.

    For compiled loops the columns and the lengthscales of several Gaussian factors are stacked.
    """
    kind, count = loops_of(term), approximation.num_neighbors
    options = count, approximation.seed, approximation.condition_on
    if kind is None:
        given = Given(names, constants_of([term], columns))
        function, embedding = TermCovariance(term, given), TermEmbedding(term, given, columns.spread)
        kernel = KernelBlock(function, function.variances, tuple(values[name] for name in names), name=term.name)
        return Prior(neighbors=VecchiaBlock((kernel,), (embedding,), *options, tuple(term.columns), term.name))
    indices = tuple(index for part in term.parts() for index in part.indices)
    lengthscales = [values[f"{part.prefix}lengthscale"].expand(len(part.indices)) for part in term.parts()]
    assert term.outputscale is not None
    block_size = min(approximation.block_size, count // 2 + 1)  # few neighbors are not shared by many rows
    stationary = kind, torch.cat(lengthscales), values[term.outputscale]
    rotation = values.get(f"{term.prefixes[0]}rotation")
    return Prior(neighbors=VecchiaBlock.stationary(*stationary, *options, indices, term.name, block_size, rotation))


# --- Inducing points of terms, with or without an approximation of the residual --------------------------------------

INITS = ("kmeans", "pivoted-cholesky")
"""The names of methods that select the points."""
METHODS = ("sor", "fitc", "vfe")
"""The names of methods for the residual of the kernel."""
RESELECTION_RATIO = 2.0
"""The ratio of the changes of two lengthscales above which points are selected again.

For pivots it is also the factor by which a lengthscale must be shorter."""


@dataclass(frozen=True, repr=False)
class InducingPoints(Approximation):
    """Inducing points Z: k(x, Z) k(Z, Z)^-1 k(Z, x') replaces the kernel k(x, x').

    They support every kernel. For stationary kernels the points are centers of k-means in units of the lengthscales, or
    rows chosen by randomly pivoted Cholesky. Other kernels always use pivoted Cholesky.

    With `residual=rfgp.Vecchia(30)`, nearest neighbors approximate the residual k(x, x') - k(x, Z) k(Z, Z)^-1 k(Z, x').
    The sum is a Vecchia-inducing-points full-scale approximation (VIF), and exact if all rows are neighbors. One term
    of a model can have a residual, and its kernel must have compiled loops in `rfgp.Vecchia`.

    Sources: Quinonero-Candela and Rasmussen (2005), A unifying view of sparse approximate Gaussian process regression,
    Section 6.2 (FITC). Titsias (2009), Variational learning of inducing variables in sparse Gaussian processes,
    Equation 9 (VFE). Gyger, Furrer and Sigrist (2025), Vecchia-inducing-points full-scale approximations for Gaussian
    processes (VIF).

    Attributes:
        num_points: The number M of points, at most the number of distinct rows.
        init: "kmeans", or "pivoted-cholesky" for randomly pivoted Cholesky.
        method: "sor" ignores the residual of the kernel, "fitc" treats its diagonal as noise, and "vfe" maximizes a
            lower bound of the exact marginal likelihood. If None, "fitc" with a Gaussian likelihood and no `residual`,
            else "sor". With a `residual` it must be None or "sor".
        learn_locations: Whether a fit optimizes the points.
        residual: A `rfgp.Vecchia` that approximates the residual. If None, there is none.
        seed: The seed of the points. If None, that of the model.

    Raises:
        InvalidArgumentError: If the method or init is unknown, M is not a positive integer, or the residual is not a
            `rfgp.Vecchia`. Also if the method is "fitc" or "vfe" with a residual.

    Examples:
        >>> import rfgp
        >>> rfgp.InducingPoints(256, method="vfe")
        InducingPoints(num_points=256, method='vfe')
        >>> rfgp.InducingPoints(256, residual=rfgp.Vecchia(20))
        InducingPoints(num_points=256, residual=Vecchia(num_neighbors=20))
    """

    num_points: int = 512
    init: str = field(default="kmeans", kw_only=True)
    method: str | None = field(default=None, kw_only=True)
    learn_locations: bool = field(default=False, kw_only=True)
    residual: Vecchia | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "num_points", check_count("num_points", self.num_points))
        check_flag("learn_locations", self.learn_locations)
        if self.init not in INITS:
            raise InvalidArgumentError(f"init must be one of {', '.join(INITS)}, got {self.init!r}.")
        if self.method is not None and self.method not in METHODS:
            raise InvalidArgumentError(f"method must be None or one of {', '.join(METHODS)}, got {self.method!r}.")
        if not isinstance(self.residual, Vecchia | None):
            raise InvalidArgumentError(
                f"residual must be None or a value such as rfgp.Vecchia(30), got {self.residual!r}."
            )
        if self.residual is not None and self.method not in (None, "sor"):
            raise InvalidArgumentError(
                f"method must be None or 'sor' with a residual, got {self.method!r}. Use residual=None for that method."
            )

    def method_for(self, data: TermData) -> str:
        """Return the method for a term.

        Args:
            data: The term and the rows.

        Returns:
            "sor", "fitc" or "vfe".
        """
        return self.method or ("fitc" if data.is_gaussian and self.residual is None else "sor")

    def unsupported_reason(self, data: TermData) -> str | None:
        """Return why the approximation does not support a term, or None."""
        if self.method in ("fitc", "vfe") and not data.is_gaussian:
            return f"method={self.method!r} requires a Gaussian likelihood. Use method='sor'."
        if self.learn_locations and any(factor.kind is not ColumnKind.NUMBER for factor in data.term.term.factors):
            return "learn_locations=True requires columns of numbers. Use learn_locations=False."
        return None if self.residual is None else self._unsupported_residual_reason(self.residual, data)

    def least_noise(self, data: TermData) -> float:
        """Return the smallest noise. It is smaller if the residual is part of the process or of the noise."""
        if self.residual is not None:
            return self.residual.least_noise(data)
        return MIN_NOISE_OF_MATRICES if self.method_for(data) == "fitc" else super().least_noise(data)

    def _unsupported_residual_reason(self, residual: Vecchia, data: TermData) -> str | None:
        """Return why nearest neighbors do not support the residual of a term."""
        if data.is_averaged:
            return "a residual requires rows that are points. Use residual=None."
        if any(factor.kind not in (ColumnKind.NUMBER, ColumnKind.SPHERE) for factor in data.term.term.factors):
            return "a residual requires columns of numbers. Use residual=None."
        if loops_of(data.term) is None:
            return (
                "a residual requires a Gaussian kernel, a product of such kernels, or a Matern kernel with nu 0.5, 1.5 "
                "or 2.5. Use residual=None, or Vecchia() for the whole term."
            )
        return residual.unsupported_reason(data)

    def cost(self, data: TermData, prior: TermPrior | None = None) -> TermCost:
        """Return the cost of the features."""
        count = data.num_rows
        size = min(self.num_points, count) if prior is None else num_weights(data, prior)
        if self.residual is None:
            return TermCost(size, weights_memory(size, count), f"{size} inducing points")
        near = self.residual.cost(data)
        memory = max(8.0 * size * (count + size), near.memory)  # features of all rows are in memory
        return TermCost(size + near.num_features, memory, f"{size} inducing points, and {near.note} for their residual")

    def rebuild(self, data: TermData, seed: int, prior: TermPrior) -> TermPrior:
        """Return the term with other points if the lengthscales have changed enough, and not all rows are points.

        A common factor of all lengthscales does not change centers of k-means. Pivots change if lengthscales become
        shorter.
        """
        basis = prior.basis
        if self.num_points >= data.num_rows:
            return prior
        if isinstance(basis, Points) and basis.lengthscales is not None:
            change = (_lengthscales(data, basis.points) / basis.lengthscales)[data.term.columns]
            is_shorter = self.init == "pivoted-cholesky" and float(change.min()) * RESELECTION_RATIO < 1
            if not is_shorter and not bool(change.max() > RESELECTION_RATIO * change.min()):
                return prior
        return self.build(data, seed)

    def build(self, data: TermData, seed: int) -> TermPrior:
        """Return the term with points selected for the hyperparameters.

        They are rows, or centers of rows by k-means.
        """
        generator = random.numpy_generator(seed if self.seed is None else self.seed, random.Role.INDUCING)
        is_stationary = all(factor.measure is not None for factor in data.term.term.factors)
        lengthscales = _lengthscales(data, data.columns.sample.double()) if is_stationary else None
        init = self.init if is_stationary else "pivoted-cholesky"
        max_rows = max(MIN_SAMPLE, SAMPLED[init] * self.num_points)
        sample = data.columns.sample.double()
        rows = torch.zeros_like(sample)
        rows[:, data.term.columns] = sample[:, data.term.columns]
        rows = rows[torch.from_numpy(generator.permutation(len(rows))[:max_rows])]
        if lengthscales is not None and init == "kmeans":
            centers = by_k_means(_turned(data, rows) / lengthscales, self.num_points, generator)
            points = _turned(data, centers * lengthscales, -1.0)
        else:
            constants = unit_constants(data.term, scale_name(data.term, data.values), data.columns)
            covariance = TermCovariance(data.term, Given((), {**data.values, **constants}))
            points = by_pivots(rows, self.num_points, covariance, generator, covariance.variances)
        return self.with_points(data, points, seed, lengthscales)

    def with_points(self, data: TermData, points: Tensor, seed: int, lengthscales: Tensor | None = None) -> TermPrior:
        """Return the term with given points.

        Args:
            data: The term and the rows.
            points: The points (M, D), standardized, 0 in columns that the term does not read.
            seed: The seed for the term.
            lengthscales: The lengthscales (D,) at which they were selected. If None, they were not recorded.
        """
        names, scale = parameter_names(data, with_scale=False), scale_name(data.term, data.values)
        path = f"{data.term.name}.points" if self.learn_locations else None
        near = None if self.residual is None else self.residual.build(data, seed if self.seed is None else self.seed)
        basis = Points(points, self.method_for(data), path, near, lengthscales)
        return TermPrior("points", partial(_points_prior, data.term, names, scale), basis)

    def vfe_counterpart(self, term: TermPrior) -> TermPrior:
        """Return the term with a VFE residual and without neighbors."""
        return replace(term, basis=replace(term.basis, method="vfe", neighbors=None))


def _turned(data: TermData, rows: Tensor, sign: float = 1.0) -> Tensor:
    """Return rows (r, D) along the axes of the lengthscales, or back if the sign is -1."""
    for part in data.term.parts():
        if (angle := data.values.get(f"{part.prefix}rotation")) is not None:
            index = torch.tensor(part.indices)
            rows = rows.index_copy(1, index, rotated(rows[:, index], sign * angle))
    return rows


def _lengthscales(data: TermData, rows: Tensor) -> Tensor:
    """Return the shortest lengthscale of each column of rows (r, D), or 1."""
    shortest = torch.full((rows.shape[1],), torch.inf, dtype=rows.dtype)
    for _, indices, prefix in data.term.parts():
        lengthscale = data.values[f"{prefix}lengthscale"].to(rows)
        shortest[indices] = torch.minimum(shortest[indices], lengthscale.expand(len(indices)))
    return shortest.where(shortest.isfinite(), 1.0)


@dataclass(frozen=True, eq=False)
class Points:
    """The inducing points of a term.

    Attributes:
        points: The points Z, (M, D), standardized, 0 in columns that the term does not read.
        method: "sor", "fitc" or "vfe".
        path: The path of the points. If None, a fit does not change them.
        neighbors: The term whose neighbors approximate the residual. If None, `method` applies.
        lengthscales: The lengthscales (D,) at which the points were selected. If None, they were not recorded, or the
            kernel is not stationary.
    """

    points: Tensor
    method: str
    path: str | None = None
    neighbors: TermPrior | None = None
    lengthscales: Tensor | None = None

    @property
    def learnable(self) -> Values:
        """The points (M, D), if a fit may change them."""
        return {} if self.path is None else {self.path: self.points}

    def with_learned(self, values: Values) -> "Points":
        """Return other points (M, D), if they are among the values."""
        return self if self.path not in values else replace(self, points=values[str(self.path)])


def _points_prior(
    term: BoundTerm, names: tuple[str, ...], scale: str | None, basis: Points, values: Values, columns: ColumnSummary
) -> Prior:
    """Return the prior of the weights at hyperparameters by path, with the neighbors of the residual if it has any."""
    covariance = TermCovariance(term, Given(names, unit_constants(term, scale, columns)))
    features = PointFeatures(covariance, basis.points)
    parts = new_levels(term, columns, covariance.given, features.unexplained)
    residual = _ResidualCovariance(covariance, parts)
    block = WeightBlock(
        features,
        len(basis.points),
        (*(values[name] for name in names), *([values[str(basis.path)]] if basis.path in values else [])),
        variance_at(scale, values),
        None if basis.method == "sor" else Residual(basis.method == "fitc", residual.covariance, residual.variances),
        features.rounding,
        name=term.name,
        new_levels=parts,
    )
    near = None if basis.neighbors is None else basis.neighbors.at(values, columns).neighbors
    return Prior(weights=(block,), neighbors=None if near is None else replace(near, residual_of=term.name))


class PointFeatures:
    """Features phi(x) = L^-1 k(Z, x) with L L^T = k(Z, Z) + jitter I. The jitter is 1e-8 mean variances of the points.

    The last factor is cached.

    They are functions of rows and of the parameters of k. An additional last parameter replaces the points Z.

    Args:
        covariance: The covariance k of rows and hyperparameters, for a variance of 1.
        points: The points Z, (M, D).
    """

    def __init__(self, covariance: TermCovariance, points: Tensor) -> None:
        self.covariance, self.points = covariance, points
        self._recent = Recent[tuple[tuple[Tensor, ...], Tensor]](1)

    def __call__(self, x: Tensor, *parameters: Tensor) -> Tensor:
        """Return the features (n, M) of rows (n, D)."""
        points, parameters_of_k = self._divided(parameters)
        cross = self.covariance(x, points.to(x.device, x.dtype), *parameters_of_k)
        out: Tensor = cross @ self._whitening(parameters).mT.to(cross)
        return out.to(x.dtype)

    def unexplained(self, a: Tensor, b: Tensor, *parameters: Tensor) -> Tensor:
        """Return the covariance (n, m) of rows a (n, D) and b (m, D) given the values at the points."""
        explained = self(a.double(), *parameters) @ self(b.double(), *parameters).mT
        return self.covariance(a, b, *parameters) - explained

    def rounding(self, *parameters: Tensor) -> float:
        """Return the mean of |phi_32(x) - phi(x)|^2 over inducing points x."""
        fixed = [parameter.detach() for parameter in parameters]
        return mean_square_error(lambda x: self(x, *fixed), self.points)

    def _whitening(self, parameters: tuple[Tensor, ...]) -> Tensor:
        """Return L^-1, (M, M), float64."""

        def computed() -> tuple[tuple[Tensor, ...], Tensor]:
            points, parameters_of_k = self._divided(parameters)
            z = points.double()
            kernel = self.covariance(z, z, *(parameter.double() for parameter in parameters_of_k)).double()
            whitening = whitening_of(kernel, JITTER[torch.float64] * kernel.diagonal().mean().detach())
            return parameters, whitening  # the tensors stay alive with their identities

        keep = not is_differentiated(self.points, *parameters)
        return self._recent.find(tuple(map(id, parameters)), computed, keep=keep)[1]

    def _divided(self, parameters: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return the points (M, D) and the parameters of the covariance."""
        count = len(self.covariance.given.names)
        return (parameters[count] if len(parameters) > count else self.points), parameters[:count]


@dataclass(frozen=True, eq=False)
class _ResidualCovariance:
    """The residual of the kernel given its features.

    It excludes the variance of new levels.

    Attributes:
        covariance_of: The covariance for a variance of 1.
        new_levels: The variance of new levels. If None, there is none.
    """

    covariance_of: TermCovariance
    new_levels: NewLevels | None

    def covariance(self, a: Tensor, b: Tensor, *parameters: Tensor) -> Tensor:
        """Return the covariance (n, m) of rows a (n, D) and b (m, D)."""
        total = self.covariance_of(a.double(), b.double(), *parameters[: len(self.covariance_of.given.names)])
        return total if self.new_levels is None else total - self.new_levels.covariance(a, b, *parameters)

    def variances(self, a: Tensor, *parameters: Tensor) -> Tensor:
        """Return the variances (n,) of rows a (n, D)."""
        total = self.covariance_of.variances(a.double(), *parameters[: len(self.covariance_of.given.names)])
        return total if self.new_levels is None else total - self.new_levels.variances(a, *parameters)
