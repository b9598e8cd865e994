"""The specification of a model: the user's options, and kernel, columns and bases once there are data."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from rfgp import random
from rfgp.approximations import Approximation, Exact
from rfgp.approximations.fourier import with_shared_lattices
from rfgp.approximations.nodes import NodeApproximation
from rfgp.approximations.planning import (
    AUTO,
    advised,
    assign,
    is_advised,
    names_sharing_budget,
    read_approximation,
    with_budget,
)
from rfgp.approximations.role import TermData, TermPrior
from rfgp.areas import AreaRows, Areas, averaged, grouped
from rfgp.blocks import Prior
from rfgp.columns import ColumnKind, ColumnRequest, InputSchema, InputTable
from rfgp.columns.indicators import Indicators, count_levels, keys_of_many_levels, learn_indicators, with_indicators
from rfgp.columns.rules import AREA_KEY, Key, sources_of
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.inference.mixture import Member
from rfgp.inference.prediction import check_numbers
from rfgp.kernels import Group, Kernel, Sphere, Sum
from rfgp.kernels.kernel import transformed
from rfgp.kernels.role import BoundTerm, ColumnSummary, bind, check_points, hyperparameters_of, requests_of
from rfgp.kernels.stationary import angles_among, are_degrees
from rfgp.lattices.design import LatticeDesign
from rfgp.likelihoods import Bernoulli, Gaussian, Likelihood, Ordinal, by_name
from rfgp.limits import limits
from rfgp.messages import check_choice, check_count, counted, positive
from rfgp.models.inputs import (
    FREEDOM,
    MAX_SAMPLED,
    NARROWER,
    CodedPartitions,
    CodedSource,
    check_columns,
    check_memory,
    check_near,
    factors_of,
    first_table,
    graph_of,
    kernel_starts,
    keys_of_levels,
    levels_of_source,
    mean_variance,
    of_grid,
    open_keys,
    parameters_of_nodes,
    repetitions,
    sampled,
    shares_of,
    table_of,
    with_all_levels,
    without_missing,
)
from rfgp.names import POSTERIORS
from rfgp.parameters import BoundaryAvoiding, Hyperparameter, Hyperprior, ParameterValues, find_path
from rfgp.priors import HalfNormalDeviation
from rfgp.rows import (
    Block,
    Chunk,
    DataSummary,
    DistributedSource,
    Rows,
    RowSource,
    as_source,
    is_read_in_blocks,
    parts_of,
    rows_in_memory,
    typical_noise,
)
from rfgp.rows.sources import OutputFormat, check_labels, read_per_row, warn_of_booleans
from rfgp.scaling import Affine, Scaling
from rfgp.torch_context import outside_inference_mode

# --- Options of a model ----------------------------------------------------------------------------------------------

MEANS = ("constant", "zero")
"""Mean functions."""


@dataclass(frozen=True)
class ModelOptions:
    """The options of `rfgp.GP`.

    Attributes:
        kernel: The kernel.
        likelihood: The likelihood, or its name.
        approximations: "auto", an approximation, or a dict by the names of terms.
        inference: "laplace" or "variational". If None, the default of the likelihood.
        mean: "constant", or "zero".
        standardize: Whether numbers and targets are standardized.
        start: Starting values by dotted name or unique suffix, in the user's units.
        priors: Log densities by dotted name or unique suffix.
        seed: The random seed.
        dtype: The dtype of the rows. If None, that of the data.
        budget: The number of features that the terms with random features share, or of a node of a large graph. If
            None, they share none.
        memory: The memory limit in bytes. If None, a fixed fraction of the machine's memory.
        time_limit: The time limit of a fit in seconds. If None, there is none. It is not part of a saved model.
        hyperparameter_posterior: "point", "integrated" or "auto".
        alternatives: A few kernels on the same columns by name. All are fitted, and those with high marginal
            likelihoods are averaged. If empty, the fit keeps `kernel`.
        search_space: The candidates of kernel="auto" with approximations, eliminated in rounds of `rfgp.selection`. If
            None, the fit keeps `kernel`.
        selects_noise: Whether a fit chooses the noise after the kernel, from scales of residuals.
        indicators: The levels of columns that are read as indicators, by key. Known with data if the kernel is
            selected.
        starts: Starting values by dotted name. Known with data.
        hyperpriors: Log densities by dotted name. Known with data.

    Raises:
        InvalidArgumentError: If an option has a wrong type or value.

    Examples:
        >>> from rfgp import kernels as k
        >>> ModelOptions(k.RBF(), seed=3).seed
        3
    """

    kernel: Kernel
    likelihood: Any = "gaussian"
    approximations: Any = "auto"
    inference: str | None = None
    mean: str = "constant"
    standardize: bool = True
    start: Mapping[str, Any] = field(default_factory=dict)
    priors: Mapping[str, Hyperprior | None] = field(default_factory=dict)
    seed: Any = None
    dtype: torch.dtype | None = None
    budget: int | None = None
    memory: float | None = None
    time_limit: float | None = None
    hyperparameter_posterior: str = "point"
    alternatives: Mapping[str, Kernel] = field(default_factory=dict)
    search_space: Any = None
    selects_noise: bool = False
    indicators: Indicators = field(default_factory=dict)
    starts: Mapping[str, Any] = field(default_factory=dict)
    hyperpriors: Mapping[str, Hyperprior | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel):
            raise InvalidArgumentError(f'kernel must be a kernel such as k.RBF(), or "auto", got {self.kernel!r}.')
        object.__setattr__(self, "likelihood", by_name(self.likelihood))
        if isinstance(self.likelihood, Gaussian) and self.likelihood.noise is not None:
            raise InvalidArgumentError(
                f"likelihood must not have a noise, got {self.likelihood!r}. Use noise= of the model."
            )
        noise_kernel, known = self.likelihood.noise_kernel, self.likelihood.approximations
        if noise_kernel is not None and not isinstance(noise_kernel, Kernel):
            raise InvalidArgumentError(
                f"The kernel of the noise must be a kernel such as k.RBF(), got {noise_kernel!r}."
            )
        if self.inference is not None and self.inference not in known:
            ways = " or ".join(map(repr, known)) if known else "None"
            raise InvalidArgumentError(f"inference must be {ways} for {self.likelihood!r}, got {self.inference!r}.")
        object.__setattr__(self, "approximations", read_approximation(self.approximations))
        if self.mean not in MEANS:
            raise InvalidArgumentError(f"mean must be one of {', '.join(MEANS)}, got {self.mean!r}.")
        check_choice("hyperparameter_posterior", self.hyperparameter_posterior, POSTERIORS)
        for name in ("start", "priors"):
            value = getattr(self, name)
            if not isinstance(value, Mapping):
                raise InvalidArgumentError(
                    f"{name} must be a dict by the dotted names of hyperparameters, got {value!r}."
                )
        if self.budget is not None:
            object.__setattr__(self, "budget", check_count("budget", self.budget))
        if self.memory is not None:
            object.__setattr__(self, "memory", positive("memory", self.memory))
        object.__setattr__(self, "seed", random.resolve_seed(self.seed))

    @property
    def has_matrices(self) -> bool:
        """Whether the user requested exact terms only, as `rfgp.ExactGP` does."""
        given = self.approximations
        return all(isinstance(one, Exact) for one in (given.values() if isinstance(given, Mapping) else [given]))

    def changed(self, **changes: Any) -> Self:
        """Return the options with some changed."""
        return replace(self, **changes)


# --- The kernel of the logarithm of the noise, approximations of its terms, and bounds of the noise ------------------

NOISE_BOUNDS = (1e-6, 1e2)
"""The bounds of the noise variance, in variances of the targets."""
PREFIX = "noise."
"""The prefix of the terms of the noise, and of the dotted names of their hyperparameters."""


def noise_kernel(likelihood: Likelihood, kernel: Kernel, keys: Sequence[Key]) -> Kernel | None:
    """Return the kernel of the noise with explicit columns and prefixed names.

    Args:
        likelihood: The likelihood.
        kernel: The kernel of the function.
        keys: All columns but the target.

    Raises:
        InvalidArgumentError: If the name of a term of the function begins with the prefix.
    """
    if likelihood.noise_kernel is None:
        return None
    taken = [term.name for term in kernel.terms() if f"{term.name}.".startswith(PREFIX)]
    if taken:
        raise InvalidArgumentError(
            f"The name of a term must not begin with {PREFIX[:-1]!r} if the noise has a kernel, got {taken[0]!r}. "
            "Give the term another name."
        )
    of_noise = transformed(likelihood.noise_kernel, lambda factor: factor.expanded(keys))
    return Sum(tuple(replace(term, name=f"{PREFIX}{term.name}") for term in of_noise.terms()))


def by_process(approximation: Any, function: Sequence[TermData], noise: Sequence[TermData]) -> tuple[Any, Any]:
    """Return the approximations of the terms of the function, and those of its noise.

    A single approximation applies to both, or only to the one that supports it.

    Args:
        approximation: "auto", an approximation, or a dict by the names of terms.
        function: The terms of the function.
        noise: The terms of the noise, possibly empty.
    """
    if not noise:
        return approximation, AUTO
    if isinstance(approximation, Mapping):
        names = [name for name in approximation if name.startswith(PREFIX)]
        return {n: a for n, a in approximation.items() if n not in names}, {n: approximation[n] for n in names}
    if not isinstance(approximation, Approximation):
        return approximation, approximation
    supports = [any(approximation.unsupported_reason(data) is None for data in terms) for terms in (function, noise)]
    for_function, for_noise = (
        approximation if is_supported or not any(supports) else AUTO for is_supported in supports
    )
    return for_function, for_noise


def with_least_noise(
    values: ParameterValues, approximations: Mapping[str, Approximation], terms: Sequence[TermData], rows: Block
) -> ParameterValues:
    """Return values with the smallest noise that approximations of all terms allow.

    Args:
        values: The hyperparameters.
        approximations: The approximations by the names of terms.
        terms: The terms.
        rows: Some of the rows. In single precision the bound is that of features.
    """
    if "noise" not in values.space.quantities:
        return values
    is_single = torch.float32 in (rows.inputs.dtype, rows.targets.dtype)
    least = NOISE_BOUNDS[0] if is_single else max(approximations[data.term.name].least_noise(data) for data in terms)
    noise = values.space.quantities["noise"]
    noise = replace(noise, bounds=(noise.bounds[0] * (least / NOISE_BOUNDS[0]), noise.bounds[1]))
    return replace(values, space=replace(values.space, quantities={**values.space.quantities, "noise": noise}))


# --- The specification of a model, resolved on data ------------------------------------------------------------------

OUTPUTSCALE_BOUNDS = (1e-6, 1e8)
"""The bounds of the output scale, in variances of the targets."""
MIN_LATENT = 1e-4
"""The smallest output scale under a non-Gaussian likelihood, in starting values. The largest is
`Likelihood.widest`."""
NORMALIZED_ROWS = 2000
"""The number of rows over which prior variances of terms are averaged for starting output scales."""
NOISE_START = 0.1
"""The starting noise, in variances of the target."""
_UNKNOWN: Any = None
"""The schema, kernel and columns before there are data."""


class Variance(NamedTuple):
    """A variance among the hyperparameters, in variances of the targets.

    Attributes:
        name: The dotted name.
        start: The starting value.
        bounds: The lower and the upper bound.
    """

    name: str
    start: float
    bounds: tuple[float, float]


@dataclass(frozen=True, eq=False)
class ModelSpec:
    """A kernel, approximations of its terms and a likelihood, as an immutable value.

    It also reads the columns of the kernel as one matrix (n, D).

    Attributes:
        options: The user's options.
        schema: The columns that the kernel reads. None before there are data.
        kernel: The kernel, resolved once there are data.
        terms: Its terms, with the indices of their columns.
        columns: The summary of the training rows.
        approximations: The approximation of each term by name.
        term_priors: The priors of the terms, with their bases.
        noise_process: The specification of the logarithm of the noise on the same columns, if it has a kernel.
        weight: The weight of the model in an average of posteriors.
        other_members: The other models of the average on the same columns, at their hyperparameters.
        areas: The areas of rows that are means over points, in the user's units. If None, rows are points.
    """

    options: ModelOptions
    schema: InputSchema = _UNKNOWN
    kernel: Kernel = _UNKNOWN
    terms: tuple[BoundTerm, ...] = ()
    columns: ColumnSummary = _UNKNOWN
    approximations: Mapping[str, Approximation] = field(default_factory=dict)
    term_priors: tuple[TermPrior, ...] = ()
    noise_process: "ModelSpec | None" = None
    weight: float = 1.0
    other_members: tuple[Member, ...] = ()
    areas: Areas | None = None

    noise_prefix: ClassVar[str] = "noise."
    """The prefix of the hyperparameters of a noise that depends on the inputs."""

    @property
    def is_gaussian(self) -> bool:
        """Whether observations are Gaussian given the latent function."""
        return isinstance(self.options.likelihood, Gaussian)

    @property
    def terms_with_noise(self) -> tuple[BoundTerm, ...]:
        """The terms of the function and of its noise."""
        return self.terms if self.noise_process is None else (*self.terms, *self.noise_process.terms)

    @property
    def variances(self) -> tuple[Variance, ...]:
        """The output scales of terms, which share the target's variance, and the noise."""
        bounds = OUTPUTSCALE_BOUNDS if self.is_gaussian else (MIN_LATENT, self.options.likelihood.widest)
        shares = shares_of(self.terms)
        scales = [Variance(term.outputscale, shares[term.name], bounds) for term in self.terms if term.outputscale]
        return (*scales, *((Variance("noise", NOISE_START, NOISE_BOUNDS),) if self.is_gaussian else ()))

    def quantities(self) -> dict[str, Hyperparameter]:
        """Return the hyperparameters of the kernel by dotted name.

        Variances of slopes share the variance of the target with the other terms. Several terms on the same columns
        start at different lengthscales.
        """
        share = max(shares_of(self.terms).values(), default=1.0)
        parameters = {
            path: replace(parameter, start=share * parameter.start) if parameter.is_variance else parameter
            for path, parameter in hyperparameters_of(self.terms, self.columns).items()
        }
        for name, count in repetitions(self.terms).items():
            path = f"{name}.lengthscale"
            if count and path in parameters:
                parameters[path] = replace(parameters[path], start=NARROWER**count * parameters[path].start)
        return parameters

    def prior(self, values: ParameterValues) -> Prior:
        """Return the prior of all terms, of the standardized function over standardized inputs.

        Args:
            values: The hyperparameters.
        """
        known = {name: values.standardized(name) for name in values.space.names if name != "mean"}
        prior = Prior.of_terms([term.at(known, self.columns) for term in self.term_priors])
        if self.areas is None:
            return prior
        return averaged(prior, replace(self.areas, points=self.columns.standardized(self.areas.points)))

    def members(self, values: ParameterValues) -> tuple[Member, ...]:
        """Return the models whose posteriors are averaged, first this one.

        Args:
            values: The hyperparameters of the first.
        """
        alone = replace(self, weight=1.0, other_members=()) if self.other_members else self
        return Member(self.weight, alone, values), *self.other_members

    def observation_noise(self, values: ParameterValues) -> Tensor:
        """Return the standardized noise variance of a Gaussian likelihood, 0-d.

        Args:
            values: The hyperparameters.
        """
        first, *others = (member.weight * member.noise for member in self.members(values))
        return sum(others, start=first)

    def with_options(self, options: ModelOptions) -> Self:
        """Return the specification with other options for the same schema, without rows."""
        every = self.schema.columns
        expanded = transformed(
            options.kernel, lambda own: own.expanded(sources_of(c.key for c in every if c.kind is own.kind))
        )
        terms = bind(expanded.terms(), self.schema.column_of)
        return type(self)(options, self.schema, expanded, terms, noise_process=self.noise_process, areas=self.areas)

    def identity(self) -> Iterator[str | Tensor]:
        """Yield option texts and tensors (...) of graphs, meshes and roads of all models."""
        yield repr(self.options.kernel)
        options = sorted(vars(self.options).items())
        yield from (f"{name}={value!r}" for name, value in options if name not in ("priors", "time_limit"))
        for factor in factors_of(self.options.kernel):
            if factor.domain is not None:
                yield from factor.domain.identity()
            if factor.nodes is not None:
                matrix = factor.nodes.adjacency
                yield factor.nodes.laplacian
                yield from (torch.from_numpy(np.array(part)) for part in (matrix.indptr, matrix.indices, matrix.data))
        if self.areas is not None:
            yield from (self.areas.points, self.areas.weights, self.areas.sizes)
        for member in self.other_members:
            yield repr(member.weight)
            yield from member.spec.identity()
            yield member.values.flat()

    # --- the columns, as one matrix ---------------------------------------------------------------

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of the rows. If None, that of the data."""
        return self.options.dtype

    @property
    def numeric_columns(self) -> dict[int, Any]:
        """The keys of the columns of numbers by index."""
        return {i: column.key for i, column in enumerate(self.schema.columns) if column.kind is ColumnKind.NUMBER}

    @property
    def _read_terms(self) -> list[BoundTerm]:
        """The terms of the function, its noise, and the other models of an average."""
        return [*self.terms_with_noise, *(term for member in self.other_members for term in member.spec.terms)]

    def read(self, inputs: Any) -> tuple[Tensor, OutputFormat]:
        """Return the columns of a table as a matrix (n, D), and the table's output format.

        Args:
            inputs: A table in any supported format.
        """
        table = self.named(self._table(inputs))
        cells = self.schema.read(table)
        cells = cells if self.dtype is None else cells.to(self.dtype)
        check_points(self._read_terms, cells)
        if self.columns is not None:
            check_near(self.schema, self.columns, cells.detach())
        return cells, OutputFormat(table.output_format.is_numpy, cells.new_empty(0))

    def _table(self, inputs: Any) -> InputTable:
        """Return inputs as a table, with indicators of levels."""
        return with_indicators(table_of(inputs, graph_of(self.options.kernel)), self.options.indicators)

    def named(self, table: InputTable) -> InputTable:
        """Return a table with the training column names if one of the two has no names.

        That is only possible if the first term reads all columns in order.

        Args:
            table: The table.

        Raises:
            DataError: If the first term reads all columns, and an array has another number of columns.
        """
        names = () if self.schema is None else tuple(self.schema.sources)
        first = self.options.kernel.terms()[0].factors[0]
        if not names or first.columns is not None or first.kind is not ColumnKind.NUMBER:
            return table
        is_array, has_names = table.source == "array", all(isinstance(name, str) for name in names)
        is_numbered = names == tuple(range(len(names)))
        if is_array and len(table.keys) != len(names) and (has_names or is_numbered):
            raise DataError(
                f"X must have {counted(len(names), 'column')}, as the training data have, got {len(table.keys)}."
            )
        is_renamed = has_names if is_array else is_numbered and all(isinstance(key, str) for key in table.keys)
        if len(table.keys) != len(names) or not is_renamed:
            return table
        columns = {name: table.columns[key] for name, key in zip(names, table.keys, strict=True)}
        return replace(table, keys=names, columns=columns)

    def coded(self, source: RowSource) -> RowSource:
        """Return a source whose blocks are matrices (b, D).

        Args:
            source: The source of the user's rows.
        """
        origin = {f"{key}={level}": key for key, levels in self.options.indicators.items() for level in levels}
        keys = dict.fromkeys(origin.get(str(key), key) for key in self.schema.sources)
        return (CodedPartitions if isinstance(source, DistributedSource) else CodedSource)(source, self, tuple(keys))

    def check(self, inputs: Tensor) -> None:
        """Check rows in the format of `read` for training rows.

        Args:
            inputs: The rows, (n, D).

        Raises:
            DataError: If the shape is wrong, or a level, node or point is unknown.
        """
        if inputs.ndim != 2 or inputs.shape[1] != len(self.schema.columns):
            raise DataError(f"The rows must have shape (n, {len(self.schema.columns)}), got {tuple(inputs.shape)}.")
        check_columns(self._read_terms, self.columns, inputs)

    # --- data -------------------------------------------------------------------------------------

    def chunk(
        self,
        X: Any,
        y: Any,  # (n,) or (n, k)
        noise: Any,  # (n,)
        sample_weight: Any,  # (n,)
        areas: tuple[Any, Any] = (None, None),  # (n,) each
        **numbers: Any,  # (n,) each
    ) -> Chunk:
        """Return the user's data as a chunk.

        The numbers that the likelihood takes are in the field of the noise, and areas in that of inputs.

        Args:
            X: The inputs, in any supported format.
            y: The targets, or the name of their column.
            noise: Known noise variances of the rows. If None, there are none.
            sample_weight: The numbers of repetitions of the rows. If None, ones.
            areas: The areas of the rows, and their weights in the areas, or the keys of their columns. If None, rows
                are points, and weights are ones.
            **numbers: The exposures, trials and codes of censoring of the rows, or None.

        Raises:
            DataError: If noise is given with a likelihood that is not Gaussian, or the order of row labels differs.
            InvalidArgumentError: If the likelihood takes no such numbers, or needs some.
        """
        likelihood = self.options.likelihood
        average_over, weights = areas
        columns = {"y": y, "noise": noise, "sample_weight": sample_weight, **numbers}
        check_labels(X, average_over=average_over, weights=weights, **columns)
        if not isinstance(likelihood, Bernoulli):
            warn_of_booleans(y)
        if noise is not None and not self.is_gaussian:
            raise DataError(
                f"noise requires a Gaussian likelihood, got {likelihood!r}. Use sample_weight to repeat rows."
            )
        check_numbers(likelihood, **{name: None if values is None else 1 for name, values in numbers.items()})
        noise = noise if likelihood.row_argument is None else numbers.get(likelihood.row_argument)
        if noise is None and likelihood.row_argument == "trials":
            raise InvalidArgumentError(
                f"trials must be given for {likelihood!r}, got None. Pass the number of trials of each row, "
                'trials=1 for one each, or use likelihood="bernoulli".'
            )
        given = Chunk(*map(outside_inference_mode, (X, y, noise, sample_weight)))
        data = of_grid(given, is_averaged=average_over is not None)
        if weights is not None and average_over is None:
            raise InvalidArgumentError("weights require average_over. Use sample_weight to repeat rows.")
        return data if average_over is None else data._replace(X=AreaRows(data.X, average_over, weights))

    def with_data(self, data: Chunk) -> tuple[Self, Chunk]:
        """Return the specification with the schema of the data, and the data.

        The data are a table or a source of matrices. A specification that has a schema keeps it and adds new levels.

        Raises:
            DataError: If columns are missing or cannot be read.
            InvalidArgumentError: If there are new levels, and a term has hyperparameters for each level.
        """
        if isinstance(data.X, AreaRows):
            return self._with_areas(data.X, data)
        source = as_source(*data[:4])
        if source is not None:
            table = first_table(source)
            spec = self._with_indicators_of(table, source)
            spec = spec._with_columns(with_indicators(table, spec.options.indicators), source)
            return spec, Chunk(spec.coded(source))
        data = without_missing(data, self.options.kernel)
        table, y, noise, weight = self._columns_of_rows(data.X, data)
        if noise is not None and not self.is_gaussian:
            noise = check_numbers(self.options.likelihood, **{self.row_argument: noise})
            noise = np.full(table.num_rows, noise) if np.ndim(noise) == 0 else noise
        likelihood, spec = self.options.likelihood, self
        if isinstance(likelihood, Ordinal):
            informed, y = likelihood.read(y)
            if informed is not likelihood:
                spec = replace(self, options=self.options.changed(likelihood=informed))
        spec = spec._with_indicators_of(table)
        table = spec.named(with_indicators(table, spec.options.indicators))
        return spec._with_columns(table), Chunk(table, y, noise, weight)

    def _columns_of_rows(self, X: Any, data: Chunk) -> tuple[InputTable, Any, Any, Any]:
        """Return inputs as a table without the columns that other arguments name, targets, noise and weights (n,)."""
        table, y = table_of(X, graph_of(self.options.kernel)).split(data.y)
        each = data.noise, data.sample_weight
        noise, weight = (table.column(one) if isinstance(one, str) else one for one in each)
        table = reduce(InputTable.without, dict.fromkeys(one for one in each if isinstance(one, str)), table)
        return table, y, noise, weight

    @property
    def row_argument(self) -> str:
        """The argument of `fit` whose numbers are in the field of the noise."""
        return self.options.likelihood.row_argument or "noise"

    def _with_areas(self, given: AreaRows, data: Chunk) -> tuple[Self, Chunk]:
        """Return the specification with areas, and one row for each of them: that with the target.

        Raises:
            DataError: If the rows are not in memory, or areas, weights or targets cannot be used.
            InvalidArgumentError: If the likelihood is not Gaussian, or the model was fitted to points alone.
        """
        if not self.is_gaussian:
            raise InvalidArgumentError(
                f"average_over requires a Gaussian likelihood, got {self.options.likelihood!r}. Means of other "
                "observations do not have the same distribution."
            )
        if self.schema is not None and ColumnKind.AREA not in self.schema.kinds:
            raise InvalidArgumentError("average_over requires a model that was fitted with it. Fit the model again.")
        if as_source(given.X, data.y) is not None:
            raise DataError("Rows must be in memory for average_over, got a source. Pass a dataframe or arrays.")
        table, y, *each = self._columns_of_rows(given.X, data)
        named = {key for factor in factors_of(self.options.kernel) for key in factor.columns or ()}
        groups = grouped(table, y, given, named)
        spec = self._with_indicators_of(groups.table)
        table = spec.named(with_indicators(groups.table, spec.options.indicators))
        spec = spec._with_columns(table, is_averaged=True)
        points = spec.schema.read(table)[torch.from_numpy(groups.order)].detach()
        sizes, weights = torch.from_numpy(groups.sizes), torch.from_numpy(groups.weights)
        areas = Areas(points, weights, sizes, spec.schema.column_of(AREA_KEY, ColumnKind.AREA))
        first = 0 if self.areas is None else len(self.areas.sizes)
        rows = table.take(groups.targets, {AREA_KEY: first + np.arange(len(groups.sizes), dtype=np.float64)})
        areas = areas if self.areas is None else self.areas.joined(areas)
        size, with_target = table.num_rows, torch.from_numpy(groups.targets)
        noise = read_per_row(each[0], "noise", size, points, positive=False)
        weight = read_per_row(each[1], "sample_weight", size, points, positive=True)
        noise, weight = (None if one is None else one[with_target] for one in (noise, weight))
        return spec._over(areas), Chunk(rows, groups.y, noise, weight)

    def _over(self, areas: Areas) -> Self:
        """Return the specification of all models of the average with other areas."""
        others = tuple(replace(member, spec=replace(member.spec, areas=areas)) for member in self.other_members)
        return replace(self, areas=areas, other_members=others)

    def _with_indicators_of(self, table: InputTable, source: RowSource | None = None) -> Self:
        """Return the specification of a model that reads levels as indicators, learned from the first data.

        It does so if its kernel reads all columns. If the kernel is selected, it has a `Group` for each column with too
        many levels for indicators, and a `Sphere` if columns of degrees have the names of longitude and latitude.
        """
        options, kernel = self.options, self.options.kernel
        reads_all = any(factor.columns is None and factor.kind is ColumnKind.NUMBER for factor in factors_of(kernel))
        if self.schema is not None or not reads_all:
            return self
        counts = count_levels(table) if source is None else levels_of_source(source, table, keys_of_levels(kernel))
        if options.search_space is not None:
            angles = angles_among(table.keys)
            is_globe = source is None and angles is not None and are_degrees(table, angles)
            globe = [Sphere(angles)] if is_globe else []
            options = options.changed(kernel=reduce(add, [*map(Group, keys_of_many_levels(counts)), *globe], kernel))
        indicators = learn_indicators(table, counts, keys_of_levels(options.kernel))
        return replace(self, options=options.changed(indicators=indicators))

    def _with_columns(self, table: InputTable, source: RowSource | None = None, *, is_averaged: bool = False) -> Self:
        """Return the specification with the schema of a table, or of the first one of a source, or with new levels."""
        known, levels = self.schema, self.options.indicators
        if known is not None:
            new = known.extended(table) if source is None else with_all_levels(known, source, levels, is_new=False)
            return self._with_levels(new)
        keys = open_keys(table, self.options.kernel)
        kernel = transformed(self.options.kernel, lambda factor: factor.expanded(keys))
        of_noise = noise_kernel(self.options.likelihood, kernel, keys)
        terms = kernel.terms() if of_noise is None else (*kernel.terms(), *of_noise.terms())
        of_areas = [ColumnRequest(AREA_KEY, ColumnKind.AREA, "average_over")] if is_averaged else []
        schema = InputSchema.fit([*requests_of(terms), *of_areas], table)
        if source is not None:
            schema = with_all_levels(schema, source, levels, is_new=True)
        spec = replace(self, schema=schema, kernel=kernel, terms=bind(kernel.terms(), schema.column_of))
        return replace(spec, noise_process=_noise_spec(spec, of_noise))

    def _with_levels(self, schema: InputSchema) -> Self:
        """Return the specification with more levels.

        Raises:
            InvalidArgumentError: If a term has hyperparameters for each level.
        """
        sizes = tuple(column.num_levels for column in schema.columns)
        if sizes == self.columns.num_levels:
            return self
        columns = replace(self.columns, num_levels=sizes)
        before, after = (hyperparameters_of(self.terms, c) for c in (self.columns, columns))
        grown = next(
            (path for path, quantity in after.items() if quantity.start.shape != before[path].start.shape), None
        )
        if grown is not None:
            raise InvalidArgumentError(
                f"Levels must be known if {grown} has a value for each, got new ones. Fit again."
            )
        noise = None if self.noise_process is None else self.noise_process._with_levels(schema)
        others = tuple(replace(member, spec=member.spec._with_levels(schema)) for member in self.other_members)
        return replace(self, schema=schema, columns=columns, noise_process=noise, other_members=others)

    def in_own_units(self, summary: DataSummary) -> DataSummary:
        """Return a summary of data whose maps do not standardize levels, nodes and coordinates.

        The columns of kernels with a rotation get one scale, so that angles are those of the user's units.

        Args:
            summary: The summary, with a map of all columns.
        """
        inputs: Any = summary.scaling.inputs
        if self.areas is not None and self.options.standardize:
            inputs = Affine.standardizing(self.areas.points).robust(self.areas.points)
        keep = torch.tensor(self.schema.is_standardizable, dtype=torch.bool, device=inputs.scale.device)
        scale = torch.where(keep, inputs.scale, 1.0)
        parts = [part for term in self._read_terms for part in term.parts()]
        turned = sorted({index for part in parts if part.factor.is_rotated for index in part.indices})
        scale[turned] = scale[turned].square().mean().sqrt()
        maps = Affine(torch.where(keep, inputs.location, 0.0), scale)
        return replace(summary, scaling=replace(summary.scaling, inputs=maps))

    def with_sample(self, scaling: Scaling, rows: Rows) -> Self:
        """Return the specification alone, with its kernel resolved on a sample of standardized rows."""
        maps: Any = scaling.inputs
        sample, sizes = sampled(rows, self.options.seed), tuple(column.num_levels for column in self.schema.columns)
        columns = ColumnSummary.of(sample.inputs.detach(), sizes, sample.weight)
        if self.areas is not None:
            points = maps.forward(self.areas.points)
            columns = ColumnSummary.of(points[:: 1 + len(points) // MAX_SAMPLED], sizes)
        columns = self._over_rows(replace(columns, location=maps.location, scale=maps.scale), rows)
        noise = None if self.noise_process is None else self.noise_process._resolved(columns, {})
        return replace(self._resolved(columns, {}), noise_process=noise, weight=1.0, other_members=()).with_paths()

    def _resolved(self, columns: ColumnSummary, starts: Mapping[str, Any]) -> Self:
        """Return the specification with the kernel resolved on rows, and with starting values by dotted name."""
        parts = {id(factor): (indices, prefix) for term in self.terms for factor, indices, prefix in term.parts()}

        def change(factor: Kernel) -> Kernel:
            indices, prefix = parts[id(factor)]
            given = {name: starts[prefix + name] for name in factor.starts if prefix + name in starts}
            return factor.resolved(columns.select(indices), given)

        kernel = transformed(self.kernel, change)
        return replace(self, kernel=kernel, terms=bind(kernel.terms(), self.schema.column_of), columns=columns)

    def _paths(self) -> list[str]:
        """Return the dotted names of the hyperparameters of the terms, and of the noise if it is one number."""
        return [*self.quantities(), *(variance.name for variance in self.variances)]

    def with_paths(self) -> Self:
        """Return the specification with full dotted names of starting values and priors."""
        likelihood, paths = self.options.likelihood, self._paths()
        if self.noise_process is not None:
            paths += self.noise_process._paths()
        elif likelihood.has_noise_process:
            paths += [f"{self.noise_prefix}{path}" for path in paths]
        paths += ["mean", *(parameter.name for parameter in likelihood.parameters)]
        starts = dict(kernel_starts(self.terms_with_noise))
        starts |= {find_path(name, paths, "start"): value for name, value in self.options.start.items()}
        if self.options.mean == "zero":
            starts["mean"] = 0.0
        kinds = {factor.kind for term in self.terms for factor in term.term.factors}
        has_locations = self.is_gaussian and kinds & {ColumnKind.NODE, ColumnKind.COORDINATE}
        priors: dict[str, Hyperprior | None] = {"noise": BoundaryAvoiding()} if has_locations else {}
        if likelihood.latent_deviation is not None:
            scales = [term.outputscale for term in self.terms if term.outputscale]
            priors |= {scale: HalfNormalDeviation(likelihood.latent_deviation) for scale in scales}
        unit = torch.ones((), dtype=torch.float64)
        of_factor = torch.distributions.LogNormal(FREEDOM**2 * unit, FREEDOM * unit)  # its mode is 1
        priors |= {path: of_factor for path in paths if path.rpartition(".")[2].startswith("factor_")}
        priors |= {find_path(name, paths, "priors"): prior for name, prior in self.options.priors.items()}
        return replace(self, options=self.options.changed(starts=starts, hyperpriors=priors))

    # --- approximations and their bases -----------------------------------------------------------

    def initialized(self, values: ParameterValues, rows: Rows) -> tuple[Self, ParameterValues]:
        """Return the specification with approximations, and starting output scales.

        The approximations have their bases. The prior variance of a term, averaged over some rows, is then its share of
        the target's variance.
        """
        chosen, in_blocks = self.options.approximations, is_read_in_blocks(rows)
        spec = self.with_approximations(chosen, values, len(rows), in_blocks=in_blocks)
        check_blocks(spec, values, rows)
        data, some = spec.term_data(values, len(rows)), rows_in_memory(rows).take(slice(NORMALIZED_ROWS))
        return spec, spec.normalized(with_least_noise(values, spec.approximations, data, some), some)

    def normalized(self, values: ParameterValues, rows: Block) -> ParameterValues:
        """Divide output scales by the mean variances of non-stationary kernels.

        Args:
            values: The hyperparameters.
            rows: The rows over which variances are averaged.
        """
        changed, on_nodes = {}, () if self.is_gaussian else parameters_of_nodes(self.terms)
        with torch.no_grad():
            prior = self.prior(values)
            for term in self.terms:
                path = term.outputscale
                is_stationary = all(factor.measure is not None for factor in term.term.factors)
                if path is None or is_stationary or path in self.options.starts:
                    continue
                size = mean_variance(prior, term, values, rows)
                if size > 0 and torch.isfinite(size):
                    low, high = (bound.double() for bound in values.space.quantities[path].bounds)
                    unit = size if path in on_nodes else 1.0  # their bounds are of mean variances
                    scale = values.standardized(path).double() / size
                    changed[path] = scale.clamp(low / unit, high / unit).log()
        return values.replaced(changed)

    def with_approximations(
        self,
        approximations: Any,
        values: ParameterValues,
        num_rows: int,
        shares: Mapping[str, float] | None = None,
        *,
        in_blocks: bool = False,
    ) -> Self:
        """Return the specification with approximations of all terms and their bases.

        Args:
            approximations: "auto", an approximation, or a dict by the names of terms.
            values: The hyperparameters.
            num_rows: The number of rows.
            shares: The effective degrees of freedom of terms that share the budget of features. If None, they are
                equal.
            in_blocks: Whether the rows are read in blocks.

        Raises:
            InvalidArgumentError: If a term does not support an approximation, or the terms take too much memory.
        """
        data, noise = self.term_data(values, num_rows), self.noise_process
        others = [] if noise is None else noise.term_data(values, num_rows)
        approximations, of_noise = by_process(approximations, data, others)
        chosen = assign(approximations, data, in_blocks=in_blocks, max_nonzeros=self.options.budget)
        if self.options.budget is not None:
            shares = shares or dict.fromkeys(names_sharing_budget(self.options.approximations, chosen), 1.0)
            chosen = with_budget(self.options.budget, chosen, data, shares) if shares else chosen
        noise = None if noise is None else noise.with_approximations(of_noise, values, num_rows, in_blocks=in_blocks)
        check_memory({**chosen, **(noise.approximations if noise else {})}, [*data, *others], self.options.memory)
        priors = [chosen[one.term.name].build(one, self._seed(number)) for number, one in enumerate(data)]
        priors_with_lattices = with_shared_lattices(priors, data, chosen)
        return replace(self, approximations=chosen, term_priors=priors_with_lattices, noise_process=noise)

    def with_new_basis(self, values: ParameterValues, num_rows: int) -> Self:
        """Return the specification with bases for new hyperparameters, or itself.

        Args:
            values: The hyperparameters.
            num_rows: The number of rows.
        """
        spec, noise = self._advised_again(values, num_rows), self.noise_process
        priors = spec._rebuilt(values, num_rows)
        noise = None if noise is None else noise.with_new_basis(values, num_rows)
        is_same = noise is self.noise_process and all(a is b for a, b in zip(priors, self.term_priors, strict=True))
        return self if is_same else replace(spec, term_priors=priors, noise_process=noise)

    def _advised_again(self, values: ParameterValues, num_rows: int) -> Self:
        """Return the specification with the features of nodes that are best for new hyperparameters, or itself."""
        data = self.term_data(values, num_rows)
        if self.options.approximations != AUTO or not is_advised(data):
            return self
        ((name, present),) = self.approximations.items()
        best = advised(data[0], self.options.budget, present) if isinstance(present, NodeApproximation) else present
        if best == present:
            return self
        return replace(self, approximations={name: best}, term_priors=(best.build(data[0], self._seed(0)),))

    def extended_to_range(self, values: ParameterValues, rows: Rows) -> Self:
        """Return the specification with lattices over the range of all rows.

        Args:
            values: The hyperparameters.
            rows: All standardized rows.

        Raises:
            InvalidArgumentError: If a lattice would have too many features.
        """
        if not any(isinstance(prior.basis, LatticeDesign) for prior in self.term_priors):
            return self
        spec = replace(self, columns=self._over_rows(self.columns, rows))
        priors = spec._rebuilt(values, len(rows), only_lattices=True)
        return self if priors == self.term_priors else replace(spec, term_priors=priors)

    def _rebuilt(self, values: ParameterValues, num_rows: int, *, only_lattices: bool = False) -> tuple[TermPrior, ...]:
        """Return the priors with bases for hyperparameters and a number of rows."""
        data, priors = self.term_data(values, num_rows), list(self.term_priors)
        for number, (term_data, prior) in enumerate(zip(data, self.term_priors, strict=True)):
            if not only_lattices or isinstance(prior.basis, LatticeDesign):
                chosen = self.approximations[term_data.term.name]
                priors[number] = chosen.rebuild(term_data, self._seed(number), prior)
                if only_lattices and priors[number] is not prior:
                    chosen.check(term_data)
        return with_shared_lattices(priors, data, self.approximations)

    def _seed(self, number: int) -> int:
        """Return the seed of the term with an index."""
        return random.child_seed(self.options.seed, random.Role.TERMS, number)

    def fitted_kernel(self, values: ParameterValues) -> Kernel:
        """Return the kernel with given hyperparameters as starting values.

        Several outputs share output scales in standardized units.
        """
        numbers = {path: values.value(path).detach().tolist() for path in values.space.names}
        starts = {path: tuple(number) if isinstance(number, list) else number for path, number in numbers.items()}
        summands = []
        for own, term in zip(self.terms, self._resolved(self.columns, starts).kernel.terms(), strict=True):
            path, variance = own.outputscale, None
            if path is not None:
                variance = float(values.standardized(path) if values.value(path).ndim else values.value(path))
            summands.append(replace(term, variance=variance))
        return Sum(tuple(summands))

    def term_data(self, values: ParameterValues, num_rows: int) -> list[TermData]:
        """Return data of each term for its approximation, at values and a number of rows."""
        known = {name: values.standardized(name).detach() for name in values.space.quantities}
        count = num_rows if self.areas is None else max(num_rows, len(self.areas.points))
        rest = (known, self.is_gaussian, self.areas is not None)
        return [TermData(term, self.columns, count, *rest) for term in self.terms]

    def _over_rows(self, columns: ColumnSummary, rows: Rows) -> ColumnSummary:
        """Return a summary with the range and the noise of rows, and of the points of their areas."""
        low, high = rows.ends
        if self.areas is not None:
            points = torch.cat([columns.standardized(self.areas.points), low[None], high[None]])
            low, high = torch.aminmax(points, dim=0)
        return replace(columns, low=low, high=high, row_noise=typical_noise(rows))


def _noise_spec(spec: ModelSpec, kernel: Kernel | None) -> ModelSpec | None:
    """Return the specification of the logarithm of the noise, or None.

    It is on the columns of the function. Its bases have the seeds of a single kernel for the function and the noise.
    """
    if kernel is None:
        return None
    terms = bind(kernel.terms(), spec.schema.column_of)
    return ModelSpec(spec.options.changed(kernel=kernel), spec.schema, kernel, terms, spec.columns)


def restored_spec(
    options: ModelOptions, schema: InputSchema, kernel: Kernel, columns: ColumnSummary, noise: Kernel | None = None
) -> ModelSpec:
    """Return the specification of a resolved kernel, for a file.

    Args:
        options: The user's options.
        schema: The columns of these rows.
        kernel: The kernel.
        columns: The summary of the columns.
        noise: The resolved kernel of the noise, if any.
    """
    terms = bind(kernel.terms(), schema.column_of)
    spec = ModelSpec(options, schema, kernel, terms, columns)
    return replace(spec, noise_process=_noise_spec(spec, noise)).with_paths()


def mean_and_noise(values: ParameterValues) -> tuple[Tensor, Tensor]:
    """Return the standardized mean (k,) and noise, 0-d, float64.

    Args:
        values: The hyperparameters.
    """
    return values.standardized("mean").reshape(-1).double(), values.standardized("noise").double()


def check_blocks(spec: ModelSpec, values: ParameterValues, rows: Rows) -> None:
    """Check that terms and inference support rows that are read in blocks.

    Args:
        spec: The specification.
        values: The hyperparameters.
        rows: The rows.

    Raises:
        InvalidArgumentError: If a term or inference needs all rows in memory. The message names it and a remedy.
    """
    if not is_read_in_blocks(rows):
        return
    prior, remedy = spec.prior(values), "or pass the rows as a dataframe or arrays."
    for name in prior.names:
        if not prior.of([name]).has_weights_only:
            raise InvalidArgumentError(
                f"The approximation of the term {name!r} needs all rows in memory, but they are read in blocks. Use "
                f"rfgp.RandomFeatures() or rfgp.InducingPoints(), for groups and linear terms rfgp.Exact(), {remedy}"
            )
    if inference_of(spec, rows) == "variational":
        raise InvalidArgumentError(
            f"Variational inference needs all rows in memory, but they are read in blocks. Use inference='laplace' if "
            f"the likelihood has it, {remedy}"
        )


def priors_of(spec: ModelSpec, values: ParameterValues) -> list[Prior]:
    """Return the prior of the latent function, and that of the log noise if it varies.

    Args:
        spec: The specification.
        values: The hyperparameters.
    """
    if not spec.options.likelihood.has_noise_process:
        return [spec.prior(values)]
    if spec.noise_process is not None:
        return [spec.prior(values), spec.noise_process.prior(values)]
    of_noise = {name: values.raw.get(f"{spec.noise_prefix}{name}", raw) for name, raw in values.raw.items()}
    return [spec.prior(values), spec.prior(ParameterValues(values.space, of_noise))]


def inference_of(spec: ModelSpec, rows: Rows) -> str | None:
    """Return the approximation of the posterior given rows, or None if it is exact.

    The default is that of the likelihood. For classes it is variational up to 4,000 rows in memory, and for several
    classes with exact terms only at any number.

    Args:
        spec: The specification.
        rows: The rows.

    Returns:
        "laplace", "variational", or None if the posterior is exact.
    """
    likelihood, chosen = spec.options.likelihood, spec.options.inference
    if chosen is not None or not likelihood.approximations:
        return chosen
    is_kept = all(isinstance(part, Block) for part in parts_of(rows))
    is_small = is_kept and len(rows) <= limits().max_dense
    is_exact = likelihood.num_latents > 1 and spec.options.has_matrices
    is_variational = likelihood.is_far_from_normal and (is_small or is_exact)
    return "variational" if is_variational else likelihood.approximations[0]
