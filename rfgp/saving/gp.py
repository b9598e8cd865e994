"""The specification of `rfgp.GP` in files: the options, the user's and the resolved kernel, and random draws.

Other models of an average have these and their hyperparameters, and share the columns and objects.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

import graphs
from rfgp import random
from rfgp.approximations import TermData
from rfgp.columns import ColumnKind, Schema
from rfgp.kernels import Additive, ColumnSummary, Kernel
from rfgp.kernels.role import constants_of, of_prefix
from rfgp.models import Member
from rfgp.models.spec import ModelSpec, restored_spec
from rfgp.parameters import ParameterValues
from rfgp.saving.container import Json, Tensors, part
from rfgp.saving.draws import SavedTerm, decode_draw, encode_draw, needs_data
from rfgp.saving.hyperparameters import tensors_of, values_of
from rfgp.saving.kernels import approximation_of, decode_kernel, encode_approximations, encode_kernel, naming
from rfgp.saving.options import decode_options, encode_options
from rfgp.saving.values import Decoder, Encoder
from rfgp.scaling import Scaling

NOISE = "noise."
"""The prefix of the tensors of the noise, if it has its own kernel."""
ROUNDING = 1e-9
"""The tolerance for the sum of the weights of an average."""
MEMBERS = "members."
"""The prefix of the tensors of other models in an average, before their number."""


class _Columns(NamedTuple):
    """The parts of a file that all models of an average share.

    Attributes:
        schema: The columns.
        summary: The summary of the columns.
        scaling: The maps to standardized units.
        decoder: The decoder of values.
    """

    schema: Schema
    summary: ColumnSummary
    scaling: Scaling
    decoder: Decoder


def row_terms(spec: ModelSpec) -> list[str]:
    """Return the names of all terms that predict from the training rows.

    Args:
        spec: The specification.
    """
    names = [term.name for term, prior in zip(spec.terms, spec.term_priors, strict=True) if needs_data(prior)]
    more = [] if spec.noise_process is None else [spec.noise_process]
    more += [member.spec for member in spec.other_members]
    return list(dict.fromkeys([*names, *(name for other in more for name in row_terms(other))]))


# --- writing ---------------------------------------------------------------------------------------


def encode_spec(spec: ModelSpec) -> tuple[Json, dict[str, Tensor]]:
    """Return a specification as JSON, and tensors (...).

    Args:
        spec: The specification.

    Raises:
        InvalidArgumentError: If the class of a part cannot be saved. The message names the term.
    """
    assert spec.schema is not None
    assert spec.columns is not None
    encoder = Encoder()
    described, tensors = _encode_model(spec, encoder)
    if spec.other_members:
        described["average"], member_tensors = _encode_others(spec, encoder)
        tensors |= member_tensors
    described["schema"] = spec.schema.to_dict()
    described["nodes"] = [
        encoder.place(column.nodes) for column in spec.schema.columns if column.kind is ColumnKind.NODE
    ]
    described["objects"], arrays = encoder.objects()
    return described, {**tensors, **arrays, "columns.spread": spec.columns.spread}


def _encode_others(spec: ModelSpec, encoder: Encoder) -> tuple[Json, dict[str, Tensor]]:
    """Return the weights and other models of an average as JSON, and their tensors (...)."""
    members, tensors = [], dict[str, Tensor]()
    for number, member in enumerate(spec.other_members):
        described, drawn = _encode_model(member.spec, encoder)
        hyperparameters = {f"hyperparameters.{name}": tensor for name, tensor in tensors_of(member.values).items()}
        names = list(member.values.space.quantities)
        members.append({"weight": member.weight, "hyperparameters": names, "options": described})
        tensors |= {f"{MEMBERS}{number}.{name}": tensor for name, tensor in {**drawn, **hyperparameters}.items()}
    return {"weight": spec.weight, "members": members}, tensors


def _encode_model(spec: ModelSpec, encoder: Encoder) -> tuple[Json, dict[str, Tensor]]:
    """Return one model as JSON without its columns, and the tensors (...) of its draws."""
    resolved, tensors = _encode_terms(spec, encoder, "")
    if spec.noise_process is not None:
        resolved["noise"], draws = _encode_terms(spec.noise_process, encoder, NOISE)
        tensors |= draws
    return {**encode_options(spec.options, encoder), **resolved}, tensors


def _encode_terms(spec: ModelSpec, encoder: Encoder, prefix: str) -> tuple[Json, dict[str, Tensor]]:
    """Return a resolved kernel, its approximations and draws as JSON, and tensors (...) with a prefix."""
    assert spec.kernel is not None
    kernel = encode_kernel(spec.kernel, encoder)
    used = encode_approximations(spec.approximations, encoder)["terms"]
    draws, tensors = _encode_draws(spec, encoder)
    described = {"resolved": kernel, "approximations": [used[term.name] for term in spec.terms], "draws": draws}
    return described, {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def _encode_draws(spec: ModelSpec, encoder: Encoder) -> tuple[list[Json], dict[str, Tensor]]:
    """Return the draws of the terms in order as JSON, and tensors (...)."""
    draws, tensors = [], dict[str, Tensor]()
    for index, (term, prior) in enumerate(zip(spec.terms, spec.term_priors, strict=True)):
        with naming(f"The term {term.name!r}"):
            content, drawn = encode_draw(prior, term, encoder)
        draws.append(content)
        tensors |= {f"draw.{index}.{name}": tensor for name, tensor in drawn.items()}
    return draws, tensors


# --- reading ---------------------------------------------------------------------------------------


def decode_spec(described: Mapping[str, Any], tensors: Tensors, scaling: Scaling) -> ModelSpec:
    """Return the specification that `encode_spec` wrote.

    Args:
        described: The JSON.
        tensors: The tensors (...) of the file by name.
        scaling: The maps to standardized units.

    Raises:
        InvalidArgumentError: If a class is unknown, or an option is invalid.
        ValueError: If the parts are inconsistent.
    """
    decoder = Decoder(described["objects"], tensors)
    nodes = [decoder.object_at(number, graphs.Graph) for number in described["nodes"]]
    schema = Schema.from_dict(described["schema"], nodes)
    columns = _Columns(schema, _summary(schema, tensors["columns.spread"], scaling), scaling, decoder)
    spec, average = _model(described, tensors, columns), described.get("average")
    return spec if average is None else _averaged(spec, average, tensors, columns)


def _averaged(spec: ModelSpec, average: Mapping[str, Any], tensors: Tensors, columns: _Columns) -> ModelSpec:
    """Return the specification averaged with others.

    Raises:
        InvalidArgumentError: If the weights are invalid, or a model cannot be in an average.
    """
    others = list[Member]()
    for number, entry in enumerate(average["members"]):
        member_tensors = part(tensors, f"{MEMBERS}{number}.")
        member_spec = _model(entry["options"], member_tensors, columns)
        known = part(member_tensors, "hyperparameters.")
        values = values_of(entry["hyperparameters"], known, columns.scaling, member_spec)
        check_levels(member_spec, values)
        others.append(Member(entry["weight"], member_spec, values))
    _check_average(
        [spec, *(member.spec for member in others)], [average["weight"], *(m.weight for m in others)], columns
    )
    return replace(spec, weight=average["weight"], other_members=tuple(others))


def _check_average(specs: Sequence[ModelSpec], weights: Sequence[Any], columns: _Columns) -> None:
    """Check the models of an average, and that their weights are positive and sum to one."""
    are_positive = all(isinstance(weight, float) and weight > 0 for weight in weights)
    if len(weights) < 2 or not are_positive or not abs(math.fsum(weights) - 1) <= ROUNDING:
        raise ValueError(f"the weights of an average must be positive and sum to one, got {weights}")
    if not all(spec.is_gaussian for spec in specs) or columns.scaling.targets.scale.numel() > 1:
        raise ValueError("averages must have a Gaussian likelihood and one output")


def _model(described: Mapping[str, Any], tensors: Tensors, columns: _Columns) -> ModelSpec:
    """Return one model, without the others of its average."""
    decoder = columns.decoder
    kernel, of_noise = _resolved(described, decoder), described.get("noise")
    noise = None if of_noise is None else _resolved(of_noise, decoder)
    _check_graphs([kernel] if noise is None else [kernel, noise], columns.schema)
    spec = restored_spec(decode_options(described, decoder), columns.schema, kernel, columns.summary, noise)
    noise_terms = [] if noise is None else noise.terms()
    is_own = noise is None or spec.options.likelihood.noise_kernel is not None
    if not is_own or not all(str(term.name).startswith(NOISE) for term in noise_terms):
        raise ValueError("the kernel of the noise must be a kernel")
    spec = _with_draws(spec, described, tensors, decoder)
    if spec.noise_process is None or of_noise is None:
        return spec
    drawn = _with_draws(spec.noise_process, of_noise, part(tensors, NOISE), decoder)
    return replace(spec, noise_process=drawn)


def _check_graphs(kernels: Sequence[Kernel], schema: Schema) -> None:
    """Check that columns have the graphs of all kernels."""
    graphs = [factor.nodes for kernel in kernels for term in kernel.terms() for factor in term.factors]
    if any(nodes is not None and not any(nodes is column.nodes for column in schema.columns) for nodes in graphs):
        raise ValueError("a kernel must have the graph of its column")


def _resolved(described: Mapping[str, Any], decoder: Decoder) -> Kernel:
    """Return a kernel that was resolved on rows.

    Raises:
        ValueError: If a leaf has no columns.
    """
    kernel = decode_kernel(described["resolved"], decoder)
    factors = [factor for term in kernel.terms() for factor in term.factors]
    if any(factor.columns is None or isinstance(factor, Additive) for factor in factors):
        raise ValueError("all leaves of the kernel must have columns")
    return kernel


def _summary(schema: Schema, spread: Tensor, scaling: Scaling) -> ColumnSummary:
    """Return the summary of the columns without rows, given their standard deviations (D,)."""
    maps = scaling.inputs
    if maps is None or maps.scale.shape != (len(schema.columns),):
        raise ValueError("the scaling must have the columns of the kernel")
    kept = ~torch.tensor(schema.is_standardizable, dtype=torch.bool)
    if bool((maps.location[kept] != 0).any()) or bool((maps.scale[kept] != 1).any()):
        raise ValueError("a column that keeps its units must not be standardized")
    if spread.shape != maps.scale.shape or spread.dtype != maps.scale.dtype:
        raise ValueError("the standard deviations must match the columns")
    sizes = tuple(column.num_levels for column in schema.columns)
    return ColumnSummary(spread.new_zeros(0, len(spread)), maps.location, maps.scale, spread, sizes)


def _with_draws(spec: ModelSpec, described: Mapping[str, Any], tensors: Tensors, decoder: Decoder) -> ModelSpec:
    """Return the specification with its approximations and draws."""
    assert spec.columns is not None
    constants_of(spec.terms, spec.columns)  # checks origins and levels
    quantities = spec.quantities()
    values = {name: quantity.start for name, quantity in quantities.items()}
    values |= {variance.name: torch.ones((), dtype=torch.float64) for variance in spec.variances}
    chosen = [approximation_of(content, decoder) for content in described["approximations"]]
    priors = []
    for index, (term, approximation, content) in enumerate(zip(spec.terms, chosen, described["draws"], strict=True)):
        data = TermData(term, spec.columns, 1, values, spec.is_gaussian)
        seed = random.child_seed(spec.options.seed, random.Role.TERMS, index)
        drawn = part(tensors, f"draw.{index}.")
        priors.append(decode_draw(SavedTerm(data, approximation, seed, content, drawn, decoder)))
    names = [term.name for term in spec.terms]
    return replace(spec, approximations=dict(zip(names, chosen, strict=True)), term_priors=tuple(priors))


def check_levels(spec: ModelSpec, values: ParameterValues) -> None:
    """Check that levels have a covariance, which excludes a correlation above 1.

    Args:
        spec: The specification.
        values: The hyperparameters.

    Raises:
        ValueError: If the levels of a term have none.
    """
    assert spec.columns is not None
    terms = spec.terms_with_noise
    known = {name: values.standardized(name) for name in values.space.quantities}
    known |= constants_of(terms, spec.columns)
    for term in terms:
        for factor, indices, prefix in term.parts():
            functions = factor.functions(spec.columns.select(indices)) if factor.kind is ColumnKind.LEVEL else None
            if functions is None:
                continue
            first = torch.zeros(1, len(indices), dtype=torch.float64)
            if not bool(torch.isfinite(functions.features(first, of_prefix(known, prefix))).all()):
                raise ValueError(f"the levels of {term.name} must have a positive definite covariance")
