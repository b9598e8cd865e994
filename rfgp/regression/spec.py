"""The specification of a model: kernel, approximations, likelihood, and hyperparameters before data."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, cast

import torch
from torch import Tensor

from rfgp.approximations.planning import assign, names_sharing_budget, with_budget
from rfgp.approximations.role import Approximation, TermData, TermPrior
from rfgp.blocks import Prior
from rfgp.columns import ColumnKind, Schema, Table
from rfgp.columns.indicators import with_indicators
from rfgp.errors import InvalidArgumentError
from rfgp.inference.mixture import Member
from rfgp.kernels import Kernel, Sum
from rfgp.kernels.kernel import transformed
from rfgp.kernels.role import BoundTerm, ColumnSummary, bind, hyperparameters_of, requests_of
from rfgp.likelihoods import Gaussian
from rfgp.limits import limits
from rfgp.parameters import BoundaryAvoiding, Hyperprior, ParameterValues
from rfgp.paths import find_path
from rfgp.regression.diagnostics import (
    check_memory,
    fit_warnings,
    identity_of,
    latent_warnings,
    lattice_warnings,
    misfit_warnings,
    term_warnings,
    warnings_of_places,
)
from rfgp.regression.inputs import (
    ModelInputs,
    first_table,
    graph_of,
    open_keys,
    table_of,
    with_all_levels,
    with_levels_of,
    without_missing,
)
from rfgp.regression.options import NOISE_BOUNDS, ModelOptions, by_process, noise_kernel, with_least_noise
from rfgp.regression.report import FitReport
from rfgp.regression.starts import (
    columns_of_lattices,
    kernel_starts,
    latent_priors,
    plain_value,
    prior_of_factor,
    priors_on_new_lattices,
    priors_with_basis,
    renewed_priors,
    shares_of,
    summary_of,
    variance_of,
    with_mean_variances,
)
from rfgp.rows import Block, Chunk, DataSummary, Rows, RowSource, as_source, is_read_in_blocks, parts_of, rows_in_memory
from rfgp.scaling import Affine, Scaling
from rfgp.torch_context import CachedWithoutLock

# --- The base class of specifications: prior, likelihood and hyperparameters of a model before data ------------------

OUTPUTSCALE_BOUNDS = (1e-6, 1e8)
"""The bounds of the output scale, in variances of the targets."""
MIN_LATENT = 1e-4
"""The smallest output scale under a non-Gaussian likelihood, in starting values. The largest is
`Likelihood.widest`."""


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


# --- The specification of a model, resolved on data ------------------------------------------------------------------

S = TypeVar("S", bound="ModelSpec")

NORMALIZED_ROWS = 2000
"""The number of rows over which prior variances of terms are averaged for starting output scales."""
NOISE_START = 0.1
"""The starting noise, in variances of the target."""


@dataclass(frozen=True, eq=False)
class ModelSpec:
    """A kernel, approximations of its terms and a likelihood, as an immutable value.

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
    """

    options: ModelOptions
    schema: Schema | None = None
    kernel: Kernel | None = None
    terms: tuple[BoundTerm, ...] = ()
    columns: ColumnSummary | None = None
    approximations: Mapping[str, Approximation] = field(default_factory=dict)
    term_priors: tuple[TermPrior, ...] = ()
    noise_process: "ModelSpec | None" = None
    weight: float = 1.0
    other_members: tuple[Member, ...] = ()

    noise_prefix: ClassVar[str] = "noise."
    """The prefix of the hyperparameters of a noise that depends on the inputs."""

    @CachedWithoutLock
    def inputs(self) -> ModelInputs:
        """The columns of the kernel."""
        options, of_noise = self.options, () if self.noise_process is None else self.noise_process.terms
        others = [term for member in self.other_members for term in member.spec.terms]
        arguments = self.schema, self.terms, self.columns, options.dtype, options.standardize
        first = self.options.kernel.terms()[0].factors[0]
        reads_all = first.columns is None and first.kind is ColumnKind.NUMBER
        return ModelInputs(*arguments, of_noise, others, reads_all, options.indicators)

    @property
    def variances(self) -> tuple[Variance, ...]:
        """The output scales of terms, which share the target's variance, and the noise."""
        bounds = OUTPUTSCALE_BOUNDS if self.is_gaussian else (MIN_LATENT, self.options.likelihood.widest)
        shares = shares_of(self.terms)
        scales = [Variance(term.outputscale, shares[term.name], bounds) for term in self.terms if term.outputscale]
        return (*scales, *((Variance("noise", NOISE_START, NOISE_BOUNDS),) if self.is_gaussian else ()))

    @property
    def is_gaussian(self) -> bool:
        """Whether observations are Gaussian given the latent function."""
        return isinstance(self.options.likelihood, Gaussian)

    def prior(self, values: ParameterValues) -> Prior:
        """Return the prior of all terms, of the standardized function over standardized inputs.

        Args:
            values: The hyperparameters.
        """
        known = {name: values.standardized(name) for name in values.space.names if name != "mean"}
        assert self.columns is not None
        return Prior.of_terms([term.at(known, self.columns) for term in self.term_priors])

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
        assert self.schema is not None
        every = self.schema.columns
        expanded = transformed(options.kernel, lambda own: own.expanded([c.key for c in every if c.kind is own.kind]))
        terms = bind(expanded.terms(), self.schema.column_of)
        return type(self)(options, self.schema, expanded, terms, noise_process=self.noise_process)

    # --- data -------------------------------------------------------------------------------------

    def with_data(self, data: Chunk) -> tuple[Self, Chunk]:
        """Return the specification with the schema of the data, and the data.

        The data are a table or a source of matrices. A specification that has a schema keeps it and adds new levels.

        Raises:
            DataError: If columns are missing or cannot be read.
            InvalidArgumentError: If there are new levels, and a term has hyperparameters for each level.
        """
        source = as_source(*data[:4])
        if source is not None:
            table = first_table(source)
            spec = replace(self, options=with_levels_of(self.options, table, source)) if self.schema is None else self
            spec = _with_columns(spec, with_indicators(table, spec.options.indicators), source)
            return spec, Chunk(spec.inputs.coded(source))
        data = without_missing(data, self.options.kernel)
        table, y = table_of(data.X, graph_of(self.options.kernel)).split(data.y)
        spec = self
        if self.schema is None:
            spec = replace(self, options=with_levels_of(self.options, table))
        table = spec.inputs.named(with_indicators(table, spec.options.indicators))
        return _with_columns(spec, table), data._replace(X=table, y=y)

    def with_data_summary(self, summary: DataSummary) -> tuple[Self, DataSummary]:
        """Return the specification, and the summary with the maps that it uses.

        The summary does not standardize levels, nodes and coordinates.
        """
        inputs, schema = summary.scaling.inputs, self.schema
        assert inputs is not None
        assert schema is not None
        keep = torch.tensor(schema.is_standardizable, dtype=torch.bool, device=inputs.scale.device)
        maps = Affine(torch.where(keep, inputs.location, 0.0), torch.where(keep, inputs.scale, 1.0))
        return self, replace(summary, scaling=replace(summary.scaling, inputs=maps))

    def with_sample(self, scaling: Scaling, rows: Rows) -> Self:
        """Return the specification alone, with its kernel resolved on standardized rows."""
        assert self.schema is not None
        assert self.kernel is not None
        assert scaling.inputs is not None
        summary = summary_of(self.schema, rows, self.options.seed, scaling.inputs)
        noise = None if self.noise_process is None else self.noise_process._resolved(summary, {})
        return replace(self._resolved(summary, {}), noise_process=noise, weight=1.0, other_members=())._with_paths()

    def _resolved(self, columns: ColumnSummary, starts: Mapping[str, Any]) -> Self:
        """Return the specification with the kernel resolved on rows, and with starting values by dotted name."""
        assert self.schema is not None
        assert self.kernel is not None
        parts = {id(factor): (indices, prefix) for term in self.terms for factor, indices, prefix in term.parts()}

        def change(factor: Kernel) -> Kernel:
            indices, prefix = parts[id(factor)]
            given = {name: starts[prefix + name] for name in factor.starts if prefix + name in starts}
            return factor.resolved(columns.select(indices), given)

        kernel = transformed(self.kernel, change)
        return replace(self, kernel=kernel, terms=bind(kernel.terms(), self.schema.column_of), columns=columns)

    def _with_paths(self) -> Self:
        """Return the specification with full dotted names of starting values and priors."""
        assert self.columns is not None
        noise, paths = self.noise_process, _paths_of(self)
        if noise is not None:
            paths += _paths_of(noise)
        elif self.options.likelihood.has_noise_process:
            paths += [f"{self.noise_prefix}{path}" for path in paths]
        paths += ["mean", *(parameter.name for parameter in self.options.likelihood.parameters)]
        starts = dict(kernel_starts(self.terms if noise is None else (*self.terms, *noise.terms)))
        starts |= {find_path(name, paths, "start"): value for name, value in self.options.start.items()}
        if self.options.mean == "zero":
            starts["mean"] = 0.0
        kinds = {factor.kind for term in self.terms for factor in term.term.factors}
        has_locations = self.is_gaussian and kinds & {ColumnKind.NODE, ColumnKind.COORDINATE}
        hyperpriors: dict[str, Hyperprior | None] = {"noise": BoundaryAvoiding()} if has_locations else {}
        hyperpriors |= latent_priors(self.terms, self.options.likelihood)
        hyperpriors |= {path: prior_of_factor() for path in paths if path.rpartition(".")[2].startswith("factor_")}
        hyperpriors |= {find_path(name, paths, "priors"): prior for name, prior in self.options.priors.items()}
        return replace(self, options=self.options.changed(starts=starts, hyperpriors=hyperpriors))

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
        with torch.no_grad():
            fixed = self.prior(values), self.terms, self.options.starts
            return with_mean_variances(*fixed, values, rows, is_gaussian=self.is_gaussian)

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
        chosen = assign(approximations, data, in_blocks=in_blocks)
        if self.options.budget is not None and not shares:
            shares = dict.fromkeys(names_sharing_budget(self.options.approximations, chosen), 1.0)
        chosen = with_budget(self.options.budget, chosen, data, shares) if self.options.budget and shares else chosen
        noise = None if noise is None else noise.with_approximations(of_noise, values, num_rows, in_blocks=in_blocks)
        check_memory({**chosen, **(noise.approximations if noise else {})}, [*data, *others], self.options.memory)
        priors = priors_with_basis(data, chosen, self.options.seed)
        return replace(self, approximations=chosen, term_priors=priors, noise_process=noise)

    def with_new_basis(self, values: ParameterValues, num_rows: int) -> Self:
        """Return the specification with bases for new hyperparameters, or itself.

        Args:
            values: The hyperparameters.
            num_rows: The number of rows.
        """
        noise, data = self.noise_process, self.term_data(values, num_rows)
        priors = renewed_priors(self.term_priors, data, self.approximations, self.options.seed)
        noise = None if noise is None else noise.with_new_basis(values, num_rows)
        is_same = noise is self.noise_process and all(a is b for a, b in zip(priors, self.term_priors, strict=True))
        return self if is_same else replace(self, term_priors=priors, noise_process=noise)

    def extended_to_range(self, values: ParameterValues, rows: Rows) -> Self:
        """Return the specification with lattices over the range of all rows.

        Args:
            values: The hyperparameters.
            rows: All standardized rows.
        """
        columns = None if self.columns is None else columns_of_lattices(self.columns, self.term_priors, rows)
        if columns is None:
            return self
        spec = replace(self, columns=columns)
        data, fixed = spec.term_data(values, len(rows)), (self.approximations, self.options.seed)
        priors = priors_on_new_lattices(self.term_priors, data, *fixed)
        return self if priors == self.term_priors else replace(spec, term_priors=priors)

    def fitted_kernel(self, values: ParameterValues) -> Kernel:
        """Return the kernel with given hyperparameters as starting values."""
        starts = {path: plain_value(values.value(path)) for path in values.space.names}
        assert self.columns is not None
        kernel = self._resolved(self.columns, starts).kernel
        assert kernel is not None
        variances = (None if term.outputscale is None else variance_of(values, term.outputscale) for term in self.terms)
        pairs = zip(kernel.terms(), variances, strict=True)
        return Sum(tuple(replace(term, variance=variance) for term, variance in pairs))

    def diagnosed(self, values: ParameterValues, rows: Rows | None, report: FitReport | None) -> Iterator[Warning]:
        """Yield warnings about undetermined terms, and domains with parts without rows."""
        assert self.columns is not None
        known = {name: values.standardized(name).detach() for name in values.space.quantities}
        terms = (*self.terms, *self.inputs.noise_terms)
        yield from term_warnings(terms, self.columns, known)
        if rows is not None and not is_read_in_blocks(rows):
            yield from warnings_of_places(terms, self.columns, rows)
        if report is not None and rows is not None:
            yield from lattice_warnings(self.term_data(values, len(rows)), self.approximations)
        if report is not None:
            yield from latent_warnings(values, self.terms, self.options.likelihood)
            yield from misfit_warnings(report)
        if report is not None and rows is not None and self.is_gaussian and self.schema is not None:
            yield from fit_warnings(report, values, self.terms, self.approximations, self.schema.keys, len(rows))

    def identity(self) -> Iterator[str | Tensor]:
        """Yield option texts and tensors (...) of graphs, meshes and roads of all models."""
        yield repr(self.options.kernel)
        options = sorted(vars(self.options).items())
        yield from (f"{name}={value!r}" for name, value in options if name not in ("priors", "time_limit"))
        yield from identity_of(self.options.kernel.terms())
        for member in self.other_members:
            yield repr(member.weight)
            yield from member.spec.identity()
            yield member.values.flat()

    def term_data(self, values: ParameterValues, num_rows: int) -> list[TermData]:
        """Return data of each term for its approximation, at values and a number of rows."""
        assert self.columns is not None
        known = {name: values.standardized(name).detach() for name in values.space.quantities}
        return [TermData(term, self.columns, num_rows, known, self.is_gaussian) for term in self.terms]


def noise_spec(spec: ModelSpec, kernel: Kernel | None) -> ModelSpec | None:
    """Return the specification of the logarithm of the noise, or None.

    It is on the columns of the function. Its bases have the seeds of a single kernel for the function and the noise.
    """
    if kernel is None:
        return None
    assert spec.schema is not None
    terms = bind(kernel.terms(), spec.schema.column_of)
    return ModelSpec(spec.options.changed(kernel=kernel), spec.schema, kernel, terms, spec.columns)


def _with_columns(spec: S, table: Table, source: RowSource | None = None) -> S:
    """Return a specification with the schema of a table, or of the first one of a source, or with new levels."""
    known, levels = spec.schema, spec.options.indicators
    if known is not None:
        schema = known.extended(table) if source is None else with_all_levels(known, source, levels, is_new=False)
        return _with_levels(spec, schema)
    keys = open_keys(table, spec.options.kernel)
    kernel = transformed(spec.options.kernel, lambda factor: factor.expanded(keys))
    of_noise = noise_kernel(spec.options.likelihood, kernel, keys)
    terms = kernel.terms() if of_noise is None else (*kernel.terms(), *of_noise.terms())
    schema = Schema.fit(requests_of(terms), table)
    if source is not None:
        schema = with_all_levels(schema, source, levels, is_new=True)
    spec = replace(spec, schema=schema, kernel=kernel, terms=bind(kernel.terms(), schema.column_of))
    return replace(spec, noise_process=noise_spec(spec, of_noise))


def _with_levels(spec: S, schema: Schema) -> S:
    """Return a specification with more levels.

    Raises:
        InvalidArgumentError: If a term has hyperparameters for each level.
    """
    assert spec.columns is not None
    sizes = tuple(column.num_levels for column in schema.columns)
    if sizes == spec.columns.num_levels:
        return spec
    columns = replace(spec.columns, num_levels=sizes)
    before, after = (hyperparameters_of(spec.terms, c) for c in (spec.columns, columns))
    grown = next((path for path, parameter in after.items() if parameter.start.shape != before[path].start.shape), None)
    if grown is not None:
        raise InvalidArgumentError(f"Levels must be known if {grown} has a value for each, got new ones. Fit again.")
    noise = None if spec.noise_process is None else _with_levels(spec.noise_process, schema)
    others = tuple(replace(member, spec=_with_levels(cast(S, member.spec), schema)) for member in spec.other_members)
    return replace(spec, schema=schema, columns=columns, noise_process=noise, other_members=others)


def restored(
    options: ModelOptions, schema: Schema, kernel: Kernel, columns: ColumnSummary, noise: Kernel | None = None
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
    return replace(spec, noise_process=noise_spec(spec, noise))._with_paths()


def _paths_of(spec: ModelSpec) -> list[str]:
    """Return the dotted names of the hyperparameters of the terms, and of the noise if it is one number."""
    return [*spec.inputs.quantities(), *(variance.name for variance in spec.variances)]


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
