"""Models in files: specification, hyperparameters, posterior, and data if requested.

The header has the class of the model, its specification, the report of the last fit and the user's metadata. Tensors
are named `draw.*`, `hyperparameters.*`, `scaling.*`, `scales.*`, `columns.*`, `object.*` and `predictor.*` (the
posterior). Those of the kernel of the noise begin with `noise.`, those of other models of an average with `members.`
and a number, and those of the training data with `data.`.

A file without data still contains the posterior. With fewer features than rows, it is the F x F statistics of a linear
state. Graph models predict from their observed nodes. For them, and with fewer rows than features, the targets can be
computed from the posterior, and on tables the inputs too. Treat such a file like the data. `ExactGP`, processes with
neighbors, and terms of `rfgp.GP` that are exact covariance matrices or have neighbors are saved only with their
training data.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rfgp import random
from rfgp.approximations import Approximation, TermData
from rfgp.areas import Areas
from rfgp.columns import ColumnKind, InputSchema
from rfgp.columns.rules import AREA_KEY
from rfgp.errors import InvalidArgumentError
from rfgp.inference.mixture import prefixed, saved_shapes, saved_tensors
from rfgp.inference.scales import NODES, ScaleBasis, ScaleModel
from rfgp.kernels import Additive, ColumnSummary, Kernel
from rfgp.kernels.role import constants_of, of_prefix
from rfgp.messages import check_count, check_flag
from rfgp.models import FitReport, GPState, Member, ModelSpec
from rfgp.models.report import ERROR, LOG_DENSITY, SelectionReport
from rfgp.models.spec import ModelOptions, restored_spec
from rfgp.models.state import check_rows, restored_posterior, space_of
from rfgp.parameters import ParameterSpace, ParameterValues
from rfgp.rows import Chunk, DataSummary, Rows, TrainingData, in_memory
from rfgp.rows.sources import read_per_row
from rfgp.saving.container import Json, Tensors, check, part, read_file, write_file
from rfgp.saving.draws import SavedTerm, decode_draw, encode_draw, needs_data
from rfgp.saving.values import Decoder, Encoder, as_type, naming
from rfgp.scaling import Affine, Scaling

KINDS = ("GP", "ExactGP", "GraphGP", "MeshGP", "RoadGP", "SparseSpectrumGP")
"""The names of the classes of models."""
_NOT_SAVED = ("time_limit", "search_space", "starts", "hyperpriors")
"""The options that belong to one fit, or follow from the others and the data. All other fields of `ModelOptions` are in
the file."""
_OPTIONS = [field.name for field in fields(ModelOptions) if field.name not in _NOT_SAVED]
_NOISE, _MEMBERS = "noise.", "members."
"""The prefixes of the tensors of the kernel of the noise, and of other models in an average, before their number."""
_PARTS = ("raw", "start", "unit", "low", "high")
_LARGEST, _MAX_LOG, _MIN_PIVOT, _ROUNDING = 1e100, 300.0, 1e-100, 1e-6
"""The largest hyperparameter, the largest logarithm of a positive one, the smallest pivot of a factor, and the rounding
error of a variance and of a sum of weights."""
_BASIS = tuple(field.name for field in fields(ScaleBasis))
_SCALES = ("weights", "covariance", "row_weights", "row_nodes")
"""The tensors of the features of the scales of residuals, and the other tensors of the model of scales."""


class Saved(NamedTuple):
    """The saved parts of a model.

    Attributes:
        kind: The name of the class of the model.
        state: The state of the model.
        report: The report of the last fit. If None, there was no fit.
        metadata: The user's metadata, as JSON values.
    """

    kind: str
    state: GPState
    report: FitReport | None
    metadata: Json


def row_terms(spec: ModelSpec) -> list[str]:
    """Return the names of all terms that predict from the training rows.

    Args:
        spec: The specification.
    """
    names = [term.name for term, prior in zip(spec.terms, spec.term_priors, strict=True) if needs_data(prior)]
    more = [] if spec.noise_process is None else [spec.noise_process]
    more += [member.spec for member in spec.other_members]
    return list(dict.fromkeys([*names, *(name for other in more for name in row_terms(other))]))


# --- Writing ---------------------------------------------------------------------------------------------------------


def write(path: Path, saved: Saved, *, data: bool) -> None:
    """Write a model atomically.

    Args:
        path: The file.
        saved: The model.
        data: Whether to write the training data.

    Raises:
        InvalidArgumentError: If a part cannot be written as numbers and JSON. The message names it.
        NotFittedError: If data are requested, and there are none.
    """
    state, scales = saved.state, saved.state.scale_model
    if saved.kind not in KINDS:
        known = " or ".join(KINDS)
        raise InvalidArgumentError(f"A saved model must have one of the classes {known}, got {saved.kind}.")
    if row_terms(state.spec) and not data:
        raise InvalidArgumentError(
            "data must be True for a model that predicts from its training data, got False. Use data=True."
        )
    try:
        metadata = json.loads(json.dumps(saved.metadata, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"The model's metadata must be JSON, got other objects: {error}.") from error
    purpose = "a file with data=True"
    given = in_memory(state.require_rows(purpose=purpose), purpose) if data else None
    options, tensors = _encode_spec(state.spec)
    header = {
        "class": saved.kind,
        "options": options,
        "num_observations": state.num_observations,
        "has_exposures": state.has_exposures,
        "scales": None if scales is None else {"df": Encoder().encode(scales.df), "floor": scales.floor},
        "fit_report": None if saved.report is None else _written(saved.report),
        "metadata": metadata,
        "data": None if given is None else ("numpy" if given.as_numpy else "tensor"),
    }
    for name, affine in (("targets", state.scaling.targets), ("inputs", state.scaling.inputs)):
        tensors |= prefixed(f"scaling.{name}", vars(affine))
    tensors |= prefixed("hyperparameters", _tensors_of(state.hyperparameters))
    tensors |= prefixed("predictor", saved_tensors(state.posterior))
    if given is None and not any(name.startswith("predictor.") and name.endswith("inputs") for name in tensors):
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("areas.")}
    more = dict[str, Tensor | None]()
    if scales is not None:
        held = {**vars(scales.basis), **vars(scales)}
        more |= {f"scales.{name}": held[name] for name in (*_BASIS, *_SCALES)}
    if given is not None:
        inputs, targets, noise, weight, *_ = given.chunk
        more |= {"data.inputs": inputs, "data.targets": targets, "data.noise": noise, "data.weight": weight}
    write_file(path, header, tensors | {name: tensor for name, tensor in more.items() if tensor is not None})


def _encode_spec(spec: ModelSpec) -> tuple[Json, dict[str, Tensor]]:
    """Return a specification and the other models of an average as JSON, and tensors (...)."""
    assert spec.schema is not None
    assert spec.columns is not None
    encoder = Encoder()
    described, tensors = _encode_model(spec, encoder)
    if spec.other_members:
        members = []
        for number, member in enumerate(spec.other_members):
            options, drawn = _encode_model(member.spec, encoder)
            drawn |= prefixed("hyperparameters", _tensors_of(member.values))
            members.append({"weight": member.weight, "options": options})
            tensors |= prefixed(f"{_MEMBERS}{number}", drawn)
        described["average"] = {"weight": spec.weight, "members": members}
    described["schema"] = spec.schema.to_dict()
    nodes = [column.nodes for column in spec.schema.columns if column.kind is ColumnKind.NODE]
    described["nodes"] = [encoder.place(graph) for graph in nodes]
    described["objects"], arrays = encoder.objects()
    if spec.areas is not None:
        known = {name: value for name, value in vars(spec.areas).items() if name != "column"}
        arrays = {**arrays, **prefixed("areas", known)}
    return described, {**tensors, **arrays, "columns.spread": spec.columns.spread}


def _encode_model(spec: ModelSpec, encoder: Encoder) -> tuple[Json, dict[str, Tensor]]:
    """Return one model as JSON without its columns, and the tensors (...) of its draws."""
    resolved, tensors = _encode_terms(spec, encoder)
    if spec.noise_process is not None:
        resolved["noise"], draws = _encode_terms(spec.noise_process, encoder)
        tensors |= {f"{_NOISE}{name}": tensor for name, tensor in draws.items()}
    options = {}
    for name in _OPTIONS:
        with naming(f"The option {name} of the model"):
            options[name] = encoder.encode(getattr(spec.options, name))
    return {**options, **resolved}, tensors


def _encode_terms(spec: ModelSpec, encoder: Encoder) -> tuple[Json, dict[str, Tensor]]:
    """Return a resolved kernel, its approximations and draws as JSON, and tensors (...)."""
    assert spec.kernel is not None
    with naming("The kernel of the model"):
        described: Json = {"resolved": encoder.encode(spec.kernel), "term_approximations": [], "draws": []}
    tensors = dict[str, Tensor]()
    for index, (term, prior) in enumerate(zip(spec.terms, spec.term_priors, strict=True)):
        with naming(f"The term {term.name!r}"):
            approximation = encoder.encode(spec.approximations[term.name])
            draw, drawn = encode_draw(prior, term, encoder)
        described["term_approximations"].append(approximation)
        described["draws"].append(draw)
        tensors |= prefixed(f"draw.{index}", drawn)
    return described, tensors


def _tensors_of(values: ParameterValues) -> dict[str, Tensor]:
    """Return the tensors (...) of hyperparameters by name."""
    out = {"center": values.space.mean.location, "spread": values.space.mean.scale, "mean.raw": values.raw["mean"]}
    for name, known in values.space.quantities.items():
        parts = (values.raw[name], known.start, known.unit, *known.bounds)
        out |= prefixed(name, dict(zip(_PARTS, parts, strict=True)))
    return out


# --- Reading ---------------------------------------------------------------------------------------------------------


class _Columns(NamedTuple):
    """The parts of a file that all models of an average share.

    Attributes:
        schema: The columns.
        summary: The summary of the columns.
        scaling: The maps to standardized units.
        decoder: The decoder of values.
    """

    schema: InputSchema
    summary: ColumnSummary
    scaling: Scaling
    decoder: Decoder


def read(file: Path) -> Saved:
    """Return the model that `write` wrote.

    Args:
        file: The file.

    Raises:
        ModelFileError: If the file is missing, truncated, damaged, foreign, or of another version.
        Exception: If the parts of the content are inconsistent.
    """
    header, tensors = read_file(file)
    _check_values(tensors)
    targets, inputs = (
        Affine(tensors[f"scaling.{name}.location"], tensors[f"scaling.{name}.scale"]) for name in ("targets", "inputs")
    )
    _check_affine(targets)
    _check_affine(inputs, least=0)
    scaling, count = Scaling(targets, inputs), header["num_observations"]
    spec = _decode_spec(header["options"], tensors, scaling)
    values = _values_of(part(tensors, "hyperparameters."), scaling, spec)
    rows = None if header["data"] is None else _rows(part(tensors, "data."), scaling, spec, header["data"])
    check(check_count("num_observations", count) == count, "the number of observations must be an integer")
    check(rows is None or len(rows) == count, "the number of observations must match the data")
    check_flag("has_exposures", header["has_exposures"])
    scales = None if header["scales"] is None else _scales(header["scales"], part(tensors, "scales."), count, inputs)
    exposed = header["has_exposures"]
    state = GPState(spec, scaling, values, count, rows, has_exposures=exposed, scale_model=scales)
    known = part(tensors, "predictor.")
    posterior = restored_posterior(spec, values, known)
    num_outputs = spec.options.likelihood.num_latents if targets.scale.ndim == 0 else len(targets.scale)
    shapes, found = saved_shapes(posterior, count, num_outputs), saved_tensors(posterior)
    check(set(known) == set(found), f"the tensors of the posterior must be {sorted(found)}, got {sorted(known)}")
    for name, tensor in found.items():
        if name.rpartition(".")[2] == "inputs":
            _check_inputs(tensor, count, scaling, spec)
        else:
            fits = tuple(tensor.shape) == shapes[name] and tensor.dtype == torch.float64
            check(fits, f"predictor.{name} must be {shapes[name]}, got {tensor.dtype} of shape {tuple(tensor.shape)}")
    check(isinstance(header["metadata"], dict), "the metadata must be a JSON object")
    return Saved(header["class"], state.replace(given=posterior), _report(header["fit_report"]), header["metadata"])


def _check_values(tensors: Tensors) -> None:
    for name, value in tensors.items():
        check(not value.is_complex(), f"{name} must be real")
        check(not value.is_floating_point() or bool(torch.isfinite(value).all()), f"{name} must be finite")
        is_scale = name.endswith((".scale", ".unit", ".spread"))
        check(not is_scale or bool((value > 0).all()), f"{name} must be positive")
        is_factor = name.startswith("predictor.") and name.endswith("factor") and value.ndim == 2
        check(not is_factor or bool((value.diagonal() > _MIN_PIVOT).all()), f"{name} must be a Cholesky factor")
    if "predictor.rows" in tensors:
        is_small = (tensors["predictor.rows"].double().square().sum(0) < 1 + _ROUNDING).all()
        check(bool(is_small), "predictor.rows must not exceed the prior variance")


def _check_affine(affine: Affine, other: Affine | None = None, *, least: int = 1) -> None:
    """Check that the parts of a map, and those of another one, agree and have at least a number of columns."""
    maps = [affine] if other is None else [affine, other]
    (shape, dtype), *others = {(tensor.shape, tensor.dtype) for part in maps for tensor in vars(part).values()}
    agree = not others and len(shape) <= 1 and min(shape, default=1) >= least and dtype.is_floating_point
    check(agree, "the parts of the scaling must agree in shape and dtype")
    in_range = torch.isfinite(affine.scale.double().square()).all()
    check(bool(in_range), "the scaling must be in the range of double precision")


def _rows(tensors: Tensors, scaling: Scaling, spec: ModelSpec, kind: str) -> Rows:
    inputs, targets = tensors["inputs"], tensors["targets"]
    _check_inputs(inputs, len(targets), scaling, spec)
    fits = targets.shape[1:] == scaling.targets.scale.shape and targets.is_floating_point()
    check(fits, "the data must have the outputs of the model")
    noise, weight = (
        read_per_row(tensors.get(name), argument, len(targets), targets, positive=name == "weight")
        for name, argument in (("noise", spec.row_argument), ("weight", "weight"))
    )
    rows = TrainingData(Chunk(inputs, targets, noise, weight), kind == "numpy").rows(scaling)
    check_rows(spec, rows)
    return rows


def _check_inputs(inputs: Tensor, n: int, scaling: Scaling, spec: ModelSpec) -> None:
    """Check that inputs are rows (n, d) of the model."""
    fits = tuple(inputs.shape) == (n, *scaling.inputs.scale.shape)
    check(fits, f"inputs must match the targets and the columns, got shape {tuple(inputs.shape)}")
    spec.check(inputs)
    if ColumnKind.AREA in spec.schema.kinds:
        numbers = inputs[:, spec.schema.column_of(AREA_KEY, ColumnKind.AREA)]
        known = 0 if spec.areas is None else len(spec.areas.sizes)
        is_number = (numbers == numbers.round()) & (numbers >= -1) & (numbers < known)
        check(bool(is_number.all()), "rows must have known areas")


def _areas(tensors: Tensors, spec: ModelSpec) -> Areas | None:
    """Return the areas of rows, or None if rows are points."""
    if not tensors:
        return None
    check(set(tensors) == {"points", "weights", "sizes"}, "areas must be points, weights and sizes")
    points, weights, sizes = (tensors[name] for name in ("points", "weights", "sizes"))
    count = len(points)
    is_count = sizes.ndim == 1 and sizes.dtype == torch.int64 and bool(((sizes > 0) & (sizes <= count)).all())
    check(is_count, "areas must have points")
    check(int(sizes.sum()) == count and tuple(weights.shape) == (count,), "areas must have all points and weights")
    check(weights.dtype == torch.float64 and bool((weights > 0).all()), "weights of points must be positive")
    owner = torch.repeat_interleave(sizes)
    sums = torch.zeros(len(sizes), dtype=torch.float64).index_add(0, owner, weights)
    check(bool(((sums - 1).abs() < _ROUNDING).all()), "weights of the points of an area must sum to one")
    spec.check(points)
    return Areas(points, weights, sizes, spec.schema.column_of(AREA_KEY, ColumnKind.AREA))


def _decode_spec(described: Mapping[str, Any], tensors: Tensors, scaling: Scaling) -> ModelSpec:
    """Return the specification, with the other models of its average."""
    decoder = Decoder(described["objects"], tensors)
    nodes = [decoder.graph(number) for number in described["nodes"]]
    schema = InputSchema.from_dict(described["schema"], nodes)
    columns = _Columns(schema, _summary(schema, tensors["columns.spread"], scaling.inputs), scaling, decoder)
    spec, average = _model(described, tensors, columns), described.get("average")
    spec = replace(spec, areas=_areas(part(tensors, "areas."), spec))
    if average is None:
        return spec
    others = list[Member]()
    for number, entry in enumerate(average["members"]):
        drawn = part(tensors, f"{_MEMBERS}{number}.")
        member = replace(_model(entry["options"], drawn, columns), areas=spec.areas)
        others.append(Member(entry["weight"], member, _values_of(part(drawn, "hyperparameters."), scaling, member)))
    weights = [average["weight"], *(member.weight for member in others)]
    are_positive = len(weights) > 1 and all(isinstance(weight, float) and weight > 0 for weight in weights)
    sums = are_positive and abs(math.fsum(weights) - 1) <= _ROUNDING
    check(sums, f"the weights of an average must be positive and sum to one, got {weights}")
    is_gaussian = spec.is_gaussian and all(member.spec.is_gaussian for member in others)
    is_single = is_gaussian and scaling.targets.scale.numel() == 1
    check(is_single, "averages must have a Gaussian likelihood and one output")
    return replace(spec, weight=average["weight"], other_members=tuple(others))


def _summary(schema: InputSchema, spread: Tensor, maps: Affine) -> ColumnSummary:
    """Return the summary of the columns without rows, given their standard deviations (D,)."""
    fits = maps.scale.shape == spread.shape == (len(schema.columns),) and spread.dtype == maps.scale.dtype
    check(fits, "the scaling must have the columns of the kernel")
    kept = ~torch.tensor(schema.is_standardizable, dtype=torch.bool)
    is_plain = bool((maps.location[kept] == 0).all()) and bool((maps.scale[kept] == 1).all())
    check(is_plain, "a column that keeps its units must not be standardized")
    sizes = tuple(column.num_levels for column in schema.columns)
    return ColumnSummary(spread.new_zeros(0, len(spread)), maps.location, maps.scale, spread, sizes)


def _model(described: Mapping[str, Any], tensors: Tensors, columns: _Columns) -> ModelSpec:
    """Return one model, without the others of its average."""
    decoder, of_noise = columns.decoder, described.get("noise")
    options = ModelOptions(**{name: decoder.decode(described[name]) for name in _OPTIONS if name in described})
    is_typed = type(options.standardize) is bool and isinstance(options.dtype, torch.dtype | None)
    check(is_typed and type(described["seed"]) is int, "all options must have valid types")
    levels = [value for key, values in options.indicators.items() for value in (key, *values)]
    check(all(type(value) in (str, int, bool) for value in levels), "the levels of a column must have valid types")
    are_kernels = all("=" in name and isinstance(kernel, Kernel) for name, kernel in options.alternatives.items())
    check(are_kernels, "alternatives must be kernels by an option and its value, such as alpha=2")
    kernel = _resolved(described, columns)
    noise = None if of_noise is None else _resolved(of_noise, columns)
    spec = restored_spec(options, columns.schema, kernel, columns.summary, noise)
    noise_terms = [] if noise is None else noise.terms()
    is_own = noise is None or options.likelihood.noise_kernel is not None
    is_named = all(str(term.name).startswith(_NOISE) for term in noise_terms)
    check(is_own and is_named, "the kernel of the noise must be a kernel")
    spec = _with_draws(spec, described, tensors, decoder)
    if spec.noise_process is None or of_noise is None:
        return spec
    return replace(spec, noise_process=_with_draws(spec.noise_process, of_noise, part(tensors, _NOISE), decoder))


def _resolved(described: Mapping[str, Any], columns: _Columns) -> Kernel:
    """Return a kernel that was resolved on rows: its leaves have columns, and the graphs of these."""
    kernel: Kernel = columns.decoder.typed(described["resolved"], Kernel)
    for factor in (factor for term in kernel.terms() for factor in term.factors):
        has_columns = factor.columns is not None and not isinstance(factor, Additive)
        check(has_columns, "all leaves of the kernel must have columns")
        is_known = factor.nodes is None or any(factor.nodes is column.nodes for column in columns.schema.columns)
        check(is_known, "a kernel must have the graph of its column")
    return kernel


def _with_draws(spec: ModelSpec, described: Mapping[str, Any], tensors: Tensors, decoder: Decoder) -> ModelSpec:
    """Return the specification with its approximations and draws."""
    assert spec.columns is not None
    constants_of(spec.terms, spec.columns)  # checks origins and levels
    values = {name: quantity.start for name, quantity in spec.quantities().items()}
    values |= {variance.name: torch.ones((), dtype=torch.float64) for variance in spec.variances}
    chosen, priors = [decoder.typed(content, Approximation) for content in described["term_approximations"]], []
    for index, (term, approximation, content) in enumerate(zip(spec.terms, chosen, described["draws"], strict=True)):
        data = TermData(term, spec.columns, 1, values, spec.is_gaussian)
        seed = random.child_seed(spec.options.seed, random.Role.TERMS, index)
        drawn = part(tensors, f"draw.{index}.")
        priors.append(decode_draw(SavedTerm(data, approximation, seed, content, drawn, decoder)))
    names = [term.name for term in spec.terms]
    return replace(spec, approximations=dict(zip(names, chosen, strict=True)), term_priors=tuple(priors))


def _values_of(tensors: Tensors, scaling: Scaling, spec: ModelSpec) -> ParameterValues:
    """Return hyperparameters (...), which must have the shapes, dtypes and signs of those of the specification."""
    mean = Affine(tensors["center"], tensors["spread"])
    _check_affine(mean, scaling.targets if spec.options.likelihood.num_latents == 1 else None)
    summary = DataSummary(scaling, mean.location, mean.scale, mean.scale, mean.location)
    quantities = dict(space_of(spec, summary, None).quantities)
    names = {"center", "spread", "mean.raw", *(f"{name}.{key}" for name in quantities for key in _PARTS)}
    check(set(tensors) == names, f"the hyperparameters must be {', '.join(quantities)}")
    for name, known in quantities.items():
        start, unit, low, high = saved = [tensors[f"{name}.{key}"] for key in _PARTS[1:]]
        fits = start.shape == known.start.shape and unit.shape == known.unit.shape
        fits = fits and all(tensor.dtype == known.start.dtype for tensor in saved)
        check(fits and all(bound.shape in ((), start.shape) for bound in (low, high)), f"{name} must match the columns")
        is_signed = not known.is_positive or all(bool((tensor > 0).all()) for tensor in (start, low, high))
        check(is_signed, f"{name} must be positive")
        quantities[name] = replace(known, start=start, unit=unit, bounds=(low, high))
    values = ParameterSpace.of(quantities, mean, scaling.targets, spec.options.hyperpriors).start
    raw = {name: tensors[f"{name}.raw"] for name in values.space.names}
    for name, value in raw.items():
        fits = value.shape == values.raw[name].shape and value.dtype == values.raw[name].dtype
        check(fits, f"{name} must match the model, got shape {tuple(value.shape)} and {value.dtype}")
        largest = _MAX_LOG if name in quantities and quantities[name].is_positive else _LARGEST
        in_range = name == "mean" or bool((value.double().abs() < largest).all())
        check(in_range, f"{name} must be in the range of double precision")
    values = values.replaced(raw)
    _check_levels(spec, values)
    return values


def _check_levels(spec: ModelSpec, values: ParameterValues) -> None:
    """Check that levels have a covariance, which excludes a correlation above 1."""
    assert spec.columns is not None
    known = {name: values.standardized(name) for name in values.space.quantities}
    known |= constants_of(spec.terms_with_noise, spec.columns)
    for factor, indices, prefix in (entry for term in spec.terms_with_noise for entry in term.parts()):
        functions = factor.functions(spec.columns.select(indices)) if factor.kind is ColumnKind.LEVEL else None
        if functions is not None:
            features = functions.features(torch.zeros(1, len(indices), dtype=torch.float64), of_prefix(known, prefix))
            is_finite = bool(torch.isfinite(features).all())
            check(is_finite, f"the levels of {prefix} must have a positive definite covariance")


def _scales(described: Mapping[str, Any], tensors: Tensors, num_rows: int, inputs: Affine) -> ScaleModel:
    """Return the model of the scales of residuals."""
    basis = ScaleBasis(**{name: tensors[name] for name in _BASIS})
    d, size = len(basis.columns), len(basis.phases)
    num_blocks = len(basis.blocks)
    shapes = {"columns": (d,), "column_ranges": (4, d), "mean_range": (4,), "variance_range": (4,)}
    shapes |= {"frequencies": (d, size), "phases": (size,), "weights": (num_blocks,)}
    shapes |= {"covariance": (num_blocks, num_blocks), "row_weights": (num_rows,), "row_nodes": (len(NODES), num_rows)}
    for name, tensor in tensors.items():
        dtype = torch.int64 if name == "columns" else torch.float64
        fits = tuple(tensor.shape) == shapes[name] and tensor.dtype == dtype
        check(fits, f"{name} of the scales must match the other tensors, the rows and the columns")
    known = bool(((basis.columns >= 0) & (basis.columns < len(inputs.scale))).all())
    check(known, "the scales must read columns of the model")
    df, floor = Decoder([], {}).decode(described["df"]), described["floor"]
    is_right = isinstance(df, float) and df > 2 and isinstance(floor, float) and floor >= 0
    check(is_right, "the degrees of freedom and the floor of the scales must be valid")
    weights, covariance, row_weights, row_nodes = (tensors.get(name) for name in _SCALES)
    check(row_weights is None or bool((row_weights > 0).all()), "the weights of rows must be positive")
    assert weights is not None
    assert covariance is not None
    return ScaleModel(basis, weights, covariance, df, floor, row_weights, row_nodes)


def _written(report: FitReport) -> dict[str, Any]:
    """Return the fields of a report. Those that few fits have are left out at their defaults."""
    content = asdict(report)
    return {name: value for name, value in content.items() if value or name not in ("fixed", "by")}


def _report(content: Any) -> FitReport | None:
    """Return the report of a fit, with that of its selection."""
    report: FitReport | None = as_type(FitReport | None, content)
    if report is None:
        return None
    check(report.frequencies in ("fixed", "learned", "rejected"), "the report of the fit must have valid values")
    posterior, selection = report.hyperparameter_posterior, report.selection
    is_consistent = posterior is None or posterior.is_consistent
    check(is_consistent, "the posterior of the hyperparameters must have a value for each name")
    if selection is not None:
        in_trials = 0 <= selection.best < len(selection.trials) and selection.measure in (LOG_DENSITY, ERROR)
        check(in_trials and _are_weights(selection), "the report of the selection must have valid values")
    return report


def _are_weights(selection: SelectionReport) -> bool:
    """Return whether the weights of an average, if any, are those of its trials."""
    weights: Sequence[float] = selection.weights
    known = len(weights) == len(selection.trials) and all(0 <= weight <= 1 for weight in weights)
    return not weights or (known and abs(sum(weights) - 1) < _ROUNDING and 0 < weights[selection.best] == max(weights))
