"""The specification of `rfgp.GP` in files: the options, the kernel as given and as resolved, and random draws."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import graphs
from rfgp import random
from rfgp.approximations import TermData
from rfgp.columns import Kind, Schema
from rfgp.errors import InvalidArgumentError
from rfgp.kernels import Additive, ColumnSummary
from rfgp.kernels.terms import constants_of, of_prefix
from rfgp.parameters import Quantity, Values
from rfgp.regression.space import space_of
from rfgp.regression.spec import ModelOptions, ModelSpec, restored
from rfgp.rows import DataSummary
from rfgp.saving import plain
from rfgp.saving.draws import SavedTerm, decode_draw, encode_draw, needs_data
from rfgp.saving.kernels import (
    approximation_of,
    decode_approximations,
    decode_kernel,
    encode_approximations,
    encode_kernel,
)
from rfgp.saving.legacy import upgraded
from rfgp.saving.models import Codec, Json, Tensors, part
from rfgp.saving.values import Decoder, Encoder
from rfgp.scaling import Affine, Scaling

_CHOICES = ("inference", "mean", "standardize", "seed", "budget", "memory")
"""The options that JSON has as they are."""


def row_terms(spec: ModelSpec) -> list[str]:
    """Return the names of the terms that predict from the training rows."""
    return [term.name for term, prior in zip(spec.terms, spec.priors, strict=True) if needs_data(prior)]


# --- writing ---------------------------------------------------------------------------------------


def _encode(spec: ModelSpec) -> tuple[Json, dict[str, Tensor]]:
    """Return a specification as JSON, and tensors (...).

    Raises:
        InvalidArgumentError: a part is of a class that no file can hold; the message names the term.
    """
    assert spec.schema is not None
    assert spec.kernel is not None
    assert spec.columns is not None
    encoder, options = Encoder(), spec.options
    kernel = encode_kernel(spec.kernel, encoder)
    used = encode_approximations(spec.approximations, encoder)["terms"]
    draws, tensors = _encode_draws(spec, encoder)
    described = {
        **{name: getattr(options, name) for name in _CHOICES},
        "kernel": encode_kernel(options.kernel, encoder),
        "resolved": kernel,
        "likelihood": plain.encode_likelihood(options.likelihood),
        "approximation": encode_approximations(options.approximations, encoder),
        "approximations": [used[term.name] for term in spec.terms],
        "start": {name: _encode_start(name, value, encoder) for name, value in options.start.items()},
        "priors": plain.encode_priors(options.priors),
        "dtype": plain.encode_dtype(options.dtype),
        "schema": spec.schema.to_plain(),
        "nodes": [encoder.place(column.nodes) for column in spec.schema.columns if column.kind is Kind.NODE],
        "draws": draws,
    }
    described["objects"], arrays = encoder.objects()
    return described, {**tensors, **arrays, "columns.spread": spec.columns.spread}


def _encode_draws(spec: ModelSpec, encoder: Encoder) -> tuple[list[Json], dict[str, Tensor]]:
    """Return the draws of the terms in order as JSON, and tensors (...)."""
    draws, tensors = [], dict[str, Tensor]()
    for place, (term, prior) in enumerate(zip(spec.terms, spec.priors, strict=True)):
        try:
            content, own = encode_draw(prior, encoder)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"The term {term.name!r} cannot be saved: {error}") from error
        draws.append(content)
        tensors |= {f"draw.{place}.{name}": tensor for name, tensor in own.items()}
    return draws, tensors


def _encode_start(name: str, value: Any, encoder: Encoder) -> Any:
    try:
        return encoder.encode(value)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"The start of {name!r} cannot be saved: {error}") from error


# --- reading ---------------------------------------------------------------------------------------


def _decode(described: Mapping[str, Any], tensors: Tensors, scaling: Scaling) -> ModelSpec:
    """Return the specification.

    Raises:
        InvalidArgumentError: there is an unknown class, or an option is invalid.
        ValueError: the parts do not fit together.
    """
    decoder = Decoder(described["objects"], tensors)
    nodes = [decoder.object_at(number, graphs.Graph) for number in described["nodes"]]
    schema = Schema.from_plain(described["schema"], nodes)
    kernel = decode_kernel(described["resolved"], decoder)
    factors = [factor for term in kernel.terms() for factor in term.factors]
    if any(factor.columns is None or isinstance(factor, Additive) for factor in factors):
        raise ValueError("a leaf of the kernel has no columns")
    columns = _summary(schema, tensors["columns.spread"], scaling)
    spec = restored(_options(described, decoder), schema, kernel, columns)
    return _with_draws(spec, described, tensors, decoder, scaling)


def _options(described: Mapping[str, Any], decoder: Decoder) -> ModelOptions:
    chosen: dict[str, Any] = {name: described.get(name) for name in _CHOICES}
    if type(chosen["standardize"]) is not bool or type(chosen["seed"]) is not int:
        raise ValueError("an option has a type that none has")
    dtype = described["dtype"]
    return ModelOptions(
        decode_kernel(described["kernel"], decoder),
        plain.decode_likelihood(described["likelihood"]),
        decode_approximations(described["approximation"], decoder),
        start={name: decoder.decode(value) for name, value in described["start"].items()},
        priors=plain.decode_priors(described["priors"]),
        dtype=None if dtype is None else plain.decode_dtype(dtype),
        **chosen,
    )


def _summary(schema: Schema, spread: Tensor, scaling: Scaling) -> ColumnSummary:
    """Return the summary of the columns without rows, given their standard deviations (D,)."""
    maps = scaling.inputs
    if maps is None or maps.scale.shape != (len(schema.columns),):
        raise ValueError("the scaling has other columns than the kernel")
    kept = ~torch.tensor(schema.is_standardizable, dtype=torch.bool)
    if bool((maps.location[kept] != 0).any()) or bool((maps.scale[kept] != 1).any()):
        raise ValueError("a column is standardised that keeps its units")
    if spread.shape != maps.scale.shape or spread.dtype != maps.scale.dtype:
        raise ValueError("the standard deviations do not fit the columns")
    sizes = tuple(column.num_levels for column in schema.columns)
    return ColumnSummary(spread.new_zeros(0, len(spread)), maps.location, maps.scale, spread, sizes)


def _with_draws(
    spec: ModelSpec, described: Mapping[str, Any], tensors: Tensors, decoder: Decoder, scaling: Scaling
) -> ModelSpec:
    """Return the specification with its approximations and draws."""
    assert spec.columns is not None
    constants_of(spec.terms, spec.columns)  # origins and levels that do not fit the columns are errors
    values = {name: one.start for name, one in spec.inputs.quantities(spec.columns.spread, scaling).items()}
    values |= {variance.name: torch.ones((), dtype=torch.float64) for variance in spec.variances}
    chosen = [approximation_of(content, decoder) for content in described["approximations"]]
    priors = []
    for place, (term, one, content) in enumerate(zip(spec.terms, chosen, described["draws"], strict=True)):
        data = TermData(term, spec.columns, 1, values, spec.is_normal)
        seed = random.child_seed(spec.options.seed, random.Role.TERMS, place)
        own = part(tensors, f"draw.{place}.")
        priors.append(decode_draw(SavedTerm(data, one, seed, content, own, decoder)))
    names = [term.name for term in spec.terms]
    return replace(spec, approximations=dict(zip(names, chosen, strict=True)), priors=tuple(priors))


def _quantities(spec: ModelSpec, scaling: Scaling, mean: Affine) -> Mapping[str, Quantity]:
    """Return the hyperparameters of a specification, for their names, shapes and signs."""
    assert spec.columns is not None
    summary = DataSummary(scaling, spec.columns.spread, mean.location, mean.scale, mean.location)
    return space_of(spec, summary, None).quantities


def _check(spec: ModelSpec, values: Values) -> None:
    """Refuse hyperparameters at which levels have no covariance, such as a correlation above 1."""
    assert spec.columns is not None
    known = {name: values.standardized(name) for name in values.space.quantities}
    known |= constants_of(spec.terms, spec.columns)
    for term in spec.terms:
        for factor, places, prefix in term.parts():
            functions = factor.functions(spec.columns.select(places)) if factor.kind is Kind.LEVEL else None
            if functions is None:
                continue
            first = torch.zeros(1, len(places), dtype=torch.float64)
            if not bool(torch.isfinite(functions.features(first, of_prefix(known, prefix))).all()):
                raise ValueError(f"the levels of {term.name} have no covariance")


def _needs_data(spec: ModelSpec) -> bool:
    return bool(row_terms(spec))


MODELS = Codec(("GP", "GraphGP", "MeshGP", "RoadGP"), _encode, _decode, _needs_data, _quantities, _check, upgraded)
