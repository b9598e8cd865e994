"""Specifications with other approximations or bases."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from rfgp.approximations import Approximation
from rfgp.approximations.planning import assign
from rfgp.blocks import Prior
from rfgp.kernels import Sum
from rfgp.kernels.terms import hyperparameters_of
from rfgp.parameters import ParameterValues
from rfgp.regression.spec.noise import by_process
from rfgp.regression.spec.spec import ModelSpec
from rfgp.regression.state import GPState
from rfgp.rows import DataSummary


def spec_of(state: GPState) -> ModelSpec:
    """Return the specification of a model of terms.

    Args:
        state: The state of a model of terms.
    """
    assert isinstance(state.spec, ModelSpec)
    return state.spec


def reassigned(spec: ModelSpec, approximation: Any, values: ParameterValues, num_rows: int) -> dict[str, Approximation]:
    """Return the approximations of all terms by name, some of them changed.

    Args:
        spec: The specification.
        approximation: An approximation, or a dict by the names of terms.
        values: The hyperparameters.
        num_rows: The number of rows.

    Raises:
        InvalidArgumentError: If the name of a term is unknown, or a term does not support an approximation.
    """
    data, noise = spec.term_data(values, num_rows), spec.noise_process
    of_noise = noise.term_data(values, num_rows) if noise else []
    for_function, for_noise = by_process(approximation, data, of_noise)
    assigned = assign(for_function, data, spec.approximations)
    return assigned if noise is None else assigned | assign(for_noise, of_noise, noise.approximations)


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
    assert spec.columns is not None
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
    columns = spec.columns
    assert columns is not None
    kept = {*hyperparameters_of(spec.terms, columns), *(term.outputscale for term in spec.terms)}
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
