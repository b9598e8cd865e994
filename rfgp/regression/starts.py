"""Starting values of kernels, and the bases of all terms, each with its own seed."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rfgp import random
from rfgp.approximations.equispaced_fourier import with_shared_lattices
from rfgp.approximations.role import Approximation, TermData, TermPrior
from rfgp.blocks import Prior
from rfgp.columns import Schema
from rfgp.errors import InvalidArgumentError
from rfgp.kernels.role import BoundTerm, ColumnSummary
from rfgp.lattices.design import LatticeDesign
from rfgp.likelihoods import Likelihood
from rfgp.parameters import Hyperprior, ParameterValues
from rfgp.priors import HalfNormalDeviation
from rfgp.rows import Block, Rows, rows_in_memory, typical_noise
from rfgp.scaling import Affine, moments

# --- Starting values of kernels, and samples of rows for their computation -------------------------------------------

MAX_SAMPLED = 10_000
"""The maximum number of rows whose columns are summarised for starting values and random draws."""
FREEDOM = 0.5
"""The prior standard deviation of the logarithm of a factor of a free modulation."""


def kernel_starts(terms: Sequence[BoundTerm]) -> Iterator[tuple[str, Any]]:
    """Yield the starting values of kernels by dotted name, in the user's units.

    Args:
        terms: The terms.

    Raises:
        InvalidArgumentError: If a term has a starting variance but no output scale.
    """
    for term in terms:
        for factor, _, prefix in term.parts():
            for name, value in factor.starts.items():
                if value is not None:
                    yield f"{prefix}{name}", value
        if term.term.variance is not None:
            if term.outputscale is None:
                raise InvalidArgumentError(
                    f"The term {term.name!r} has no output scale to start at {term.term.variance:g}. Give start= for "
                    "its variance."
                )
            yield term.outputscale, term.term.variance


NARROWER, WEAKER = 0.5, 0.25
"""The factors of the starting lengthscale and variance for each earlier term on the same columns.

Equal starts ended 20 to 110 nats lower for a sum of a Gaussian and a Matern kernel on 927 rows of concrete."""


def repetitions(terms: Sequence[BoundTerm]) -> dict[str, int]:
    """Return the number of earlier stationary terms on the same columns by term name.

    Args:
        terms: The terms.
    """
    counts, seen = dict[str, int](), list[tuple[int, ...]]()
    for term in terms:
        is_stationary = len(term.column_indices) == 1 and term.term.factors[0].measure is not None
        indices = tuple(sorted(term.column_indices[0])) if is_stationary else ()
        counts[term.name] = seen.count(indices) if indices else 0
        seen += [indices] if indices else []
    return counts


def shares_of(terms: Sequence[BoundTerm]) -> dict[str, float]:
    """Return the starting variances of terms by name, in variances of the target.

    Args:
        terms: The terms.
    """
    earlier = repetitions(terms)
    first = sum(count == 0 for count in earlier.values())
    return {name: WEAKER**count / first for name, count in earlier.items()}


def sampled(rows: Rows, seed: int) -> Block:
    """Return all rows, or a random sample of them.

    Args:
        rows: The rows.
        seed: The seed of the sample.
    """
    block = rows_in_memory(rows)
    if len(block) <= MAX_SAMPLED:
        return block
    order = torch.randperm(len(block), generator=random.generator(seed, random.Role.SAMPLE))
    return block.take(order[:MAX_SAMPLED])


def summary_of(schema: Schema, rows: Rows, seed: int, maps: Affine) -> ColumnSummary:
    """Return the weighted summary of columns from a sample of standardized rows.

    Args:
        schema: The columns.
        rows: All rows.
        seed: The seed of the sample.
        maps: The map to standardized units.
    """
    sample, sizes = sampled(rows, seed), tuple(column.num_levels for column in schema.columns)
    columns = ColumnSummary.of(sample.inputs.detach(), sizes, sample.weight)
    low, high = rows.ends
    return replace(columns, location=maps.location, scale=maps.scale, low=low, high=high, row_noise=typical_noise(rows))


def with_mean_variances(
    prior: Prior,
    terms: Sequence[BoundTerm],
    given: Collection[str],
    values: ParameterValues,
    rows: Block,
    *,
    is_gaussian: bool,
) -> ParameterValues:
    """Return values with output scales divided by the mean variances of kernels.

    Args:
        prior: The prior at the values.
        terms: The terms.
        given: The dotted names of the user's values.
        values: The hyperparameters.
        rows: The rows over which variances are averaged.
        is_gaussian: Whether the likelihood is Gaussian. If not, the bounds of terms on nodes are of mean variances.
    """
    changed, relative = {}, () if is_gaussian else parameters_of_nodes(terms)
    for term in terms:
        path = term.outputscale
        is_stationary = all(factor.measure is not None for factor in term.term.factors)
        if path is None or is_stationary or path in given:
            continue
        size = mean_variance(prior, term, values, rows)
        if size > 0 and math.isfinite(size):
            low, high = (bound.double() for bound in values.space.quantities[path].bounds)
            scale, unit = values.standardized(path).double(), size if path in relative else 1.0
            changed[path] = (scale / size).clamp(low / unit, high / unit).log()
    return values.replaced(changed)


def mean_variance(prior: Prior, term: BoundTerm, values: ParameterValues, rows: Block) -> Tensor:
    """Return the mean prior variance of a term over rows at an output scale of 1, 0-d.

    Args:
        prior: The prior at the values.
        term: The term.
        values: The hyperparameters.
        rows: The rows.
    """
    assert term.outputscale is not None
    total = moments(prior.of([term.name]).diagonal(rows.inputs), rows.weight)[0]
    return total / values.standardized(term.outputscale).double()


def parameters_of_nodes(terms: Sequence[BoundTerm]) -> dict[str, tuple[str, ...]]:
    """Return dotted names of graph-kernel parameters by that of their output scale.

    Args:
        terms: The terms.
    """
    paths = dict[str, tuple[str, ...]]()
    for term in terms:
        names = [
            f"{prefix}{name}"
            for factor, _, prefix in term.parts()
            if factor.nodes is not None
            for name in factor.starts
        ]
        if term.outputscale is not None and names:
            paths[term.outputscale] = tuple(names)
    return paths


def prior_of_factor() -> Hyperprior:
    """Return the log-normal prior, with mode 1, of a factor of a free modulation."""
    unit = torch.ones((), dtype=torch.float64)
    return torch.distributions.LogNormal(FREEDOM**2 * unit, FREEDOM * unit)


def latent_priors(terms: Sequence[BoundTerm], likelihood: Likelihood) -> dict[str, Hyperprior]:
    """Return the default priors of output scales under a likelihood, by dotted name.

    Args:
        terms: The terms.
        likelihood: The likelihood.
    """
    scale, paths = likelihood.latent_deviation, [term.outputscale for term in terms if term.outputscale]
    return {} if scale is None else {path: HalfNormalDeviation(scale) for path in paths}


def plain_value(value: Tensor) -> Any:
    """Return a value (...) as a float or a tuple of floats.

    Args:
        value: The value, of any shape.
    """
    numbers = value.detach().tolist()
    return numbers if isinstance(numbers, float) else tuple(numbers)


def variance_of(values: ParameterValues, path: str) -> float:
    """Return an output scale in the user's units.

    Several outputs share it in standardized units.

    Args:
        values: The hyperparameters.
        path: The dotted name of the output scale.
    """
    value = values.value(path)
    return float(values.standardized(path) if value.ndim else value)


# --- The bases of all terms of a model, each with its own seed -------------------------------------------------------


def priors_with_basis(
    data: Sequence[TermData], chosen: Mapping[str, Approximation], seed: int
) -> tuple[TermPrior, ...]:
    """Return the priors of terms, each with the basis of its approximation.

    Args:
        data: The terms and the rows.
        chosen: The approximations by the names of terms.
        seed: The seed of the model.
    """
    priors = [
        chosen[term_data.term.name].build(term_data, _seed(seed, number)) for number, term_data in enumerate(data)
    ]
    return with_shared_lattices(priors, data, chosen)


def renewed_priors(
    priors: Sequence[TermPrior], data: Sequence[TermData], chosen: Mapping[str, Approximation], seed: int
) -> tuple[TermPrior, ...]:
    """Return priors with the bases for the current hyperparameters.

    Args:
        priors: The terms with their bases.
        data: The terms and the rows, at these hyperparameters.
        chosen: The approximations by the names of terms.
        seed: The seed of the model.
    """
    renewed = [
        chosen[term_data.term.name].rebuild(term_data, _seed(seed, number), prior)
        for number, (term_data, prior) in enumerate(zip(data, priors, strict=True))
    ]
    return with_shared_lattices(renewed, data, chosen)


def columns_of_lattices(columns: ColumnSummary, priors: Sequence[TermPrior], rows: Rows) -> ColumnSummary | None:
    """Return the summary of columns for lattices, or None if no term has a lattice.

    Args:
        columns: The summary of the columns.
        priors: The terms with their bases.
        rows: The rows, whose range and noise the summary gets.
    """
    if not any(isinstance(prior.basis, LatticeDesign) for prior in priors):
        return None
    low, high = rows.ends
    return replace(columns, low=low, high=high, row_noise=typical_noise(rows))


def priors_on_new_lattices(
    priors: Sequence[TermPrior], data: Sequence[TermData], chosen: Mapping[str, Approximation], seed: int
) -> tuple[TermPrior, ...]:
    """Return priors with lattices for the current range and number of rows.

    Other bases are kept.

    Args:
        priors: The terms with their bases.
        data: The terms and the rows, at the current hyperparameters.
        chosen: The approximations by the names of terms.
        seed: The seed of the model.

    Raises:
        InvalidArgumentError: If a lattice would have too many features.
    """
    relaid = list(priors)
    for number, (term_data, prior) in enumerate(zip(data, priors, strict=True)):
        if isinstance(prior.basis, LatticeDesign):
            relaid[number] = chosen[term_data.term.name].rebuild(term_data, _seed(seed, number), prior)
            if relaid[number] is not prior:
                chosen[term_data.term.name].check(term_data)
    return with_shared_lattices(relaid, data, chosen)


def _seed(seed: int, number: int) -> int:
    """Return the seed of the term with an index."""
    return random.child_seed(seed, random.Role.TERMS, number)
