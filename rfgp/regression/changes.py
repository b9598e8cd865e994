"""States with other rows, approximations, bases or averaged members."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rfgp.approximations.planning import assign
from rfgp.blocks import Prior
from rfgp.errors import InvalidArgumentError
from rfgp.inference.mixture import Member, MixturePosterior
from rfgp.inference.scales import ScaleModel
from rfgp.kernels import Sum
from rfgp.kernels.role import hyperparameters_of
from rfgp.parameters import ParameterValues
from rfgp.regression.spec import ModelSpec, by_process, check_blocks, mean_and_noise
from rfgp.regression.starts import sampled
from rfgp.regression.state import GPState, check_rows, has_exposures, predicted
from rfgp.rows import (
    ArrayRows,
    Chunk,
    DataSummary,
    JoinedRows,
    Rows,
    SourceRows,
    gathered,
    is_read_in_blocks,
    parts_of,
    read_additional_rows,
    read_training,
)
from rfgp.rows.arrays import OutputFormat
from rfgp.solvers import Posterior
from rfgp.solvers.lowrank import EvidenceBounds, LinearModel, LowRankPosterior, evidence_bounds, update_gram
from rfgp.solvers.onepass import SeriesPosterior

# --- States with other rows: new ones, additional ones, or fewer -----------------------------------------------------


def conditioned(state: GPState, data: Chunk) -> GPState:
    """Return a state with other data.

    Rows of a source are processed immediately, because the source may be unavailable later.

    Args:
        state: The state of the model.
        data: The data that replace the present ones.

    Raises:
        DataError: If the data cannot be used. The message names the row and the column.
    """
    (spec, data), scaling = state.spec.with_data(data), state.scaling
    given = read_training(spec, data, spec.options.seed, 1, scaling.columns)
    scaling = scaling if scaling.columns is not None else dataclasses.replace(scaling, columns=given.names)
    rows = given.rows(scaling)
    check_rows(spec, rows)
    spec = spec.extended_to_range(state.hyperparameters, rows)
    changes = {"spec": spec, "rows": rows, "scaling": scaling, "num_observations": len(rows)}
    scales = _with_weights(state, rows)
    return solved_if_read(
        state.replace(**changes, scale_model=scales, has_forgotten=False, has_exposures=has_exposures(spec, rows))
    )


def extended(state: GPState, data: Chunk) -> GPState:
    """Return a state with additional data.

    If the present posterior can be updated without the old rows, only the new rows are read.

    Args:
        state: The state of the model.
        data: The additional data.

    Raises:
        DataError: If the data cannot be used. The message names the row and the column.
        NotFittedError: If the old rows are needed but not known.
    """
    posterior = state.present_posterior if state.spec.is_gaussian else None
    posterior = posterior if posterior is not None and posterior.can_update else None
    weights = None if state.scale_model is None else state.scale_model.row_weights
    posterior = posterior if weights is None else None
    spec, data = state.spec.with_data(data)
    posterior = posterior if spec is state.spec else None  # new levels add weights
    if posterior is None:
        state.require_rows(purpose="update")
    more = read_additional_rows(spec, data, spec.options.seed, state.scaling)
    check_rows(spec, more)
    if posterior is not None and _needs_all(state, posterior, more):
        posterior, _ = None, state.require_rows(purpose="new rows outside the range of the old ones")
    grown = None
    if posterior is not None:
        grown, more = _updated(state, posterior, more)
    elif isinstance(more, SourceRows) and more.num_rows is None:
        more = more.read_once()
    rows = None if state.rows is None else JoinedRows([*parts_of(state.rows), more])
    count = state.num_observations + len(more)
    spec = spec if rows is None or grown is not None else spec.extended_to_range(state.hyperparameters, rows)
    exposed = state.has_exposures or has_exposures(spec, more)
    scales = _with_weights(state, more)
    if scales is not None and scales.row_weights is not None and weights is not None:
        scales = dataclasses.replace(scales, row_weights=torch.cat([weights, scales.row_weights]))
    changes = {"spec": spec, "rows": rows, "given": grown, "num_observations": count, "scale_model": scales}
    new = state.replace(**changes, has_exposures=exposed)
    return new if isinstance(more, ArrayRows) else solved_if_read(new)


def reduced(state: GPState, data: Chunk) -> GPState:
    """Return a state without some of its rows, by subtraction of sums over them.

    The new state stores no rows.

    Args:
        state: The state of the model.
        data: The rows to remove.

    Raises:
        DataError: If the data cannot be used, or no rows would remain.
        InvalidArgumentError: If the posterior has no sums over rows.
    """
    posterior = state.posterior if state.spec.is_gaussian else None
    if not (isinstance(posterior, SeriesPosterior) and posterior.can_update):
        raise InvalidArgumentError(
            "forget requires a Gaussian likelihood and fixed features in all terms, some by EquispacedFourier(), got "
            "another model. Call condition(X, y) with the remaining rows."
        )
    spec, data = state.spec.with_data(data)
    rows = read_additional_rows(spec, data, spec.options.seed, state.scaling)
    check_rows(spec, rows)
    if isinstance(rows, SourceRows) and rows.num_rows is None:
        rows = rows.read_once()
    count = state.num_observations - len(rows)
    left = posterior.with_rows(rows, sign=-1)
    return state.replace(rows=None, given=left, num_observations=count, has_forgotten=True)


def _with_weights(state: GPState, rows: Rows) -> ScaleModel | None:
    """Return the model of scales, with weights of new rows by the present prediction if the old ones have weights."""
    model = state.scale_model
    if model is None or model.row_weights is None or is_read_in_blocks(rows):
        return None if model is None else dataclasses.replace(model, row_weights=None, row_nodes=None)
    block = gathered(rows)
    with torch.no_grad():
        mixture = predicted(state, block.inputs, OutputFormat(False, block.targets.new_empty(0))).scales.mixture()
        mean, variance = (mixture.weights @ values for values in (mixture.means, mixture.variances))
        weights = model.weights_of(block.targets[:, 0].double().cpu(), block.inputs.cpu(), mean, variance)
        return dataclasses.replace(model, row_weights=weights, row_nodes=None)


MANY = 4
"""The growth factor of the number of rows after which an update recomputes lattices, if the old rows are known."""


def _needs_all(state: GPState, posterior: Posterior, rows: ArrayRows | SourceRows) -> bool:
    """Return whether lattices do not cover the new rows, so that all are needed."""
    if not isinstance(posterior, SeriesPosterior):
        return False
    if isinstance(rows, ArrayRows) and bool(posterior.is_outside(rows.inputs).any()):
        return True
    before = state.num_observations
    return state.rows is not None and before + len(rows) > MANY * before


def solved_if_read(state: GPState) -> GPState:
    """Return a state, with its posterior if rows are read in blocks.

    Args:
        state: The state of the model. The source of its rows may disappear.

    Raises:
        InvalidArgumentError: If rows are read in blocks, and a term needs them in memory.
    """
    if state.rows is None or not is_read_in_blocks(state.rows):
        return state
    check_blocks(state.spec, state.hyperparameters, state.rows)
    return state.replace(given=state.posterior)


def _updated(
    state: GPState, posterior: Posterior, more: ArrayRows | SourceRows
) -> tuple[Posterior, ArrayRows | SourceRows]:
    """Return the posterior with additional rows, and these rows with their count."""
    if isinstance(posterior, SeriesPosterior):
        more = more.read_once() if isinstance(more, SourceRows) and more.num_rows is None else more
        return posterior.with_rows(more), more
    assert isinstance(posterior, LowRankPosterior)
    with torch.no_grad():
        model = LinearModel(state.prior().dense, more, *mean_and_noise(state.hyperparameters))
        grown, statistics = update_gram(model, posterior)
    if isinstance(more, SourceRows) and more.num_rows is None:
        more = more.counted(int(statistics.rows), float(statistics.observations))
    return grown, more


# --- Specifications with other approximations or bases ---------------------------------------------------------------


def learnable_basis(spec: ModelSpec) -> dict[str, Tensor]:
    """Return the parts of bases that a fit may learn, by dotted name.

    Args:
        spec: The specification.

    Returns:
        Frequencies (m, d) and inducing points (m, d) by dotted name.
    """
    learnable = {path: tensor for term in spec.term_priors for path, tensor in term.learnable.items()}
    return learnable if spec.noise_process is None else learnable | learnable_basis(spec.noise_process)


def with_learned(spec: ModelSpec, basis: Mapping[str, Tensor]) -> ModelSpec:
    """Return the specification with other parts (...) of bases, by dotted name.

    Args:
        spec: The specification.
        basis: The parts (...) that change, as `learnable_basis` returns them.
    """
    noise = None if spec.noise_process is None else with_learned(spec.noise_process, basis)
    return replace(spec, term_priors=tuple(term.with_learned(basis) for term in spec.term_priors), noise_process=noise)


def variance_paths(spec: ModelSpec) -> tuple[str, ...]:
    """Return dotted names of variances that together scale the whole prior, or none.

    Args:
        spec: The specification.
    """
    paths: list[str] = []
    for term in spec.terms:
        prefixes = [prefix for factor, _, prefix in term.parts() if factor.has_own_variance]
        if term.outputscale is None and len(prefixes) != 1:
            return ()
        paths.append(f"{prefixes[0]}variance" if term.outputscale is None else term.outputscale)
    return tuple(dict.fromkeys(paths))


def block_scales(spec: ModelSpec, prior: Prior) -> list[str]:
    """Return the dotted name of the variance of each weight block of a prior.

    Names are in the order of blocks. There are none if blocks share a variance.

    Args:
        spec: The specification.
        prior: The prior.
    """
    paths = dict(zip((term.name for term in spec.terms), variance_paths(spec), strict=False))
    names = [block.name for block in prior.weights]
    is_own = len(set(paths.values())) == len(spec.terms) == len(set(names)) == len(names)
    has_all = is_own and all(block.variance is not None for block in prior.weights)
    return [paths[name] for name in names] if has_all else []


def some_terms(spec: ModelSpec, names: Sequence[str]) -> ModelSpec:
    """Return the specification of some terms, with their approximations and bases.

    Args:
        spec: The specification.
        names: The names of the terms.
    """
    pairs = [pair for pair in zip(spec.terms, spec.term_priors, strict=True) if pair[0].name in names]
    terms, priors = tuple(term for term, _ in pairs), tuple(prior for _, prior in pairs)
    used = {term.name: spec.approximations[term.name] for term in terms}
    kernel = Sum(tuple(term.term for term in terms))
    return replace(spec, kernel=kernel, terms=terms, term_priors=priors, approximations=used)


def with_basis_of(spec: ModelSpec, other: ModelSpec) -> ModelSpec:
    """Return the specification with the bases of another one, by the names of terms.

    Args:
        spec: The specification.
        other: The specification whose bases are used.
    """
    priors = {term.name: prior for term, prior in zip(other.terms, other.term_priors, strict=True)}
    pairs = zip(spec.terms, spec.term_priors, strict=True)
    return replace(spec, term_priors=tuple(priors.get(term.name, prior) for term, prior in pairs))


def values_of_terms(spec: ModelSpec, values: ParameterValues) -> ParameterValues:
    """Return those hyperparameters that belong to the terms of a specification.

    Args:
        spec: The specification.
        values: The hyperparameters, of more terms.
    """
    kept = {*hyperparameters_of(spec.terms, spec.columns), *(term.outputscale for term in spec.terms)}
    kept |= {name for name in values.space.quantities if "." not in name}
    quantities = {name: quantity for name, quantity in values.space.quantities.items() if name in kept}
    hyperpriors = {name: prior for name, prior in values.space.hyperpriors.items() if name in kept or name == "mean"}
    space = replace(values.space, quantities=quantities, hyperpriors=hyperpriors)
    return ParameterValues(space, {name: values.raw[name] for name in space.names})


def data_summary(state: GPState) -> DataSummary:
    """Return the data summary of a state without the targets, for another model.

    Args:
        state: The state of the model.
    """
    mean = state.hyperparameters.space.mean
    return DataSummary(state.scaling, mean.location, mean.scale, mean.scale, mean.location)


# --- Averages of the posteriors of several models of the same rows ---------------------------------------------------

Share = tuple[float, GPState]
"""The weight of a model in an average, and the model."""


def averaged(state: GPState, weight: float, others: Sequence[Share]) -> GPState:
    """Return the average of models, all conditioned on the rows of the first one.

    Args:
        state: The model with the largest weight.
        weight: Its weight. All weights sum to one.
        others: Weights and other models with the same columns and scaling, fitted to some of these rows.
    """
    shared: dict[str, Any] = {"schema": state.spec.schema, "columns": state.spec.columns}
    members = tuple(
        Member(
            share,
            replace(member.spec, **shared, weight=1.0, other_members=()),
            member.hyperparameters.detached(),
        )
        for share, member in others
    )
    return state.replace(spec=replace(state.spec, weight=weight, other_members=members))


def parts_of_average(state: GPState) -> list[Share]:
    """Return the models of an average, each with its weight and posterior.

    Args:
        state: The state of an average, or of a single model.
    """
    members = state.spec.members(state.hyperparameters)
    if len(members) == 1:
        return [(1.0, state)]
    posterior, shares = state.present_posterior, list[Share]()
    for number, member in enumerate(members):
        given = posterior.members[number] if isinstance(posterior, MixturePosterior) else None
        changes = {"spec": member.spec, "hyperparameters": member.values, "given": given}
        shares.append((member.weight, state.replace(**changes)))
    return shares


def largest(state: GPState) -> GPState:
    """Return the model with the largest weight in an average, or a single model.

    Args:
        state: The state of an average, or of a single model.
    """
    return parts_of_average(state)[0][1]


def each_changed(state: GPState, change: Callable[[GPState], GPState]) -> GPState:
    """Return the average of changed models, or a changed single model.

    Args:
        state: The state of an average, or of a single model.
        change: Returns a changed state of a single model.
    """
    (weight, first), *others = [(share, change(one)) for share, one in parts_of_average(state)]
    return averaged(first, weight, others) if others else first


def approximated(state: GPState, approximation: Any) -> GPState:
    """Return a state with other approximations.

    Only the model with the largest weight of an average remains.

    Args:
        state: The state, with its rows.
        approximation: An approximation, or a dict by the names of terms.

    Raises:
        NotFittedError: If there are no rows.
        InvalidArgumentError: If the name of a term is unknown, or a term does not support an approximation.
    """
    rows, first = state.require_rows(purpose="with_approximation"), largest(state)
    spec, values = with_rows(first.spec, rows), first.hyperparameters
    data, noise = spec.term_data(values, len(rows)), spec.noise_process
    of_noise = noise.term_data(values, len(rows)) if noise else []
    for_function, for_noise = by_process(approximation, data, of_noise)
    chosen = assign(for_function, data, spec.approximations)
    chosen |= assign(for_noise, of_noise, noise.approximations) if noise else {}
    spec = spec.with_approximations(chosen, values, len(rows))
    return first.replace(spec=replace(spec, options=spec.options.changed(approximations=chosen)))  # a fit keeps them


def with_rows(spec: ModelSpec, rows: Rows) -> ModelSpec:
    """Return a specification with a sample of rows, which a loaded one lacks.

    Args:
        spec: The specification.
        rows: The rows.
    """
    if len(spec.columns.sample):
        return spec
    noise = None if spec.noise_process is None else with_rows(spec.noise_process, rows)
    columns = replace(spec.columns, sample=sampled(rows, spec.options.seed).inputs.detach())
    return replace(spec, columns=columns, noise_process=noise)


# --- Bounds on the log marginal likelihood of the exact kernel -------------------------------------------------------


def exact_evidence_bounds(state: GPState) -> EvidenceBounds:
    """Return bounds on the log marginal likelihood of the exact kernel, in user units.

    Args:
        state: The state of the model, with rows.

    Raises:
        NotFittedError: If there are no rows.
        InvalidArgumentError: If the likelihood is not Gaussian, or a term has no bounds.
    """
    spec, rows = state.spec, state.require_rows(purpose="evidence_bounds")
    if not spec.is_gaussian:
        raise InvalidArgumentError(
            f"evidence_bounds requires a Gaussian likelihood, got {spec.options.likelihood!r}. Compare "
            "log_marginal_likelihood() with that of exact() on some of the rows."
        )
    pairs = zip(spec.terms, spec.term_priors, strict=True)
    bounding = {term.name: spec.approximations[term.name].vfe_counterpart(prior) for term, prior in pairs}
    kept = tuple(prior for prior in bounding.values() if prior is not None)
    values = state.hyperparameters.detached()
    prior = replace(spec, term_priors=kept).prior(values)
    wrong = [name for name, prior in bounding.items() if prior is None]
    wrong += [name for block in prior.blocks if block not in prior.weights for name in block.names]
    if wrong:
        raise InvalidArgumentError(
            "evidence_bounds requires inducing points, or exact terms of finitely many functions, got "
            f"{spec.approximations[wrong[0]]!r} for the term {wrong[0]!r}. Use "
            "with_approximation(rfgp.InducingPoints())."
        )
    model = LinearModel(prior.dense, rows, *mean_and_noise(values))
    return evidence_bounds(model, state.scaling.targets.log_jacobian(rows.count))
