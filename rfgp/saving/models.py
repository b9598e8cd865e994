"""Models in files: specification, hyperparameters, posterior, and data if requested.

Tensors are named `draw.*`, `hyperparameters.*`, `scaling.*` and `predictor.*` (the posterior). Graph models have
`graph.*`, models of terms `columns.*` and `object.*`, other models of an average `members.*`, and files with data=True
`data.*`.

A file without data still contains the posterior. With fewer features than rows, it is the F x F statistics of a linear
state. Graph models predict from their observed nodes. For them, and with fewer rows than features, the targets can be
computed from the posterior, and on tables the inputs too. Treat such a file like the data. `ExactGP`, processes with
neighbors, and terms of `rfgp.GP` that are exact covariance matrices or have neighbors are saved only with their
training data.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rfgp.errors import InvalidArgumentError
from rfgp.inference.mixture import saved_shapes, saved_tensors
from rfgp.messages import check_count
from rfgp.models import FitReport, GPState, ModelSpec
from rfgp.models.state import restored_posterior
from rfgp.rows import Chunk, Rows, TrainingData, in_memory
from rfgp.rows.sources import read_per_row
from rfgp.saving.container import Json, Tensors, part, read_file, write_file
from rfgp.saving.gp import check_levels, decode_spec, encode_spec, row_terms
from rfgp.saving.hyperparameters import check_affine, tensors_of, values_of
from rfgp.saving.json_values import decode_report, decode_selection, encode_report, encode_selection
from rfgp.saving.scales import decode_scales, encode_scales
from rfgp.scaling import Affine, Scaling
from rfgp.solvers import Posterior

KINDS = ("GP", "ExactGP", "GraphGP", "MeshGP", "RoadGP", "SparseSpectrumGP")
"""The names of the classes of models."""


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
    state, spec = saved.state, saved.state.spec
    if saved.kind not in KINDS:
        known = " or ".join(KINDS)
        raise InvalidArgumentError(f"A saved model must have one of the classes {known}, got {saved.kind}.")
    if row_terms(spec) and not data:
        raise InvalidArgumentError(
            "data must be True for a model that predicts from its training data, got False. Use data=True."
        )
    given, purpose = None, "a file with data=True"
    if data:
        given = in_memory(state.require_rows(purpose=purpose), purpose)
    options, tensors = encode_spec(spec)
    header = {
        "class": saved.kind,
        "options": options,
        "hyperparameters": list(state.hyperparameters.space.quantities),
        "num_observations": state.num_observations,
        "has_exposures": state.has_exposures,
        "columns": None,  # their names are in the schema
        "fit_report": encode_report(saved.report),
        "selection": encode_selection(saved.report),
        "metadata": _checked_metadata(saved.metadata),
        "data": None if given is None else ("numpy" if given.as_numpy else "tensor"),
    }
    if state.scale_model is not None:
        header["scales"], scale_tensors = encode_scales(state.scale_model)
        tensors |= {f"scales.{name}": tensor for name, tensor in scale_tensors.items()}
    tensors |= _scaling_tensors(state.scaling)
    tensors |= {f"hyperparameters.{name}": tensor for name, tensor in tensors_of(state.hyperparameters).items()}
    tensors |= {f"predictor.{name}": t for name, t in saved_tensors(state.posterior).items()}
    if given is not None:
        names = ("inputs", "targets", "noise", "weight")
        pairs = zip(names, given.chunk, strict=False)
        tensors |= {f"data.{name}": tensor for name, tensor in pairs if tensor is not None}
    write_file(path, header, tensors)


def read(file: Path) -> Saved:
    """Return the model that `write` wrote.

    Args:
        file: The file.

    Raises:
        ModelFileError: If the file is missing, truncated, damaged, foreign, or of a newer version.
        Exception: If the parts of the content are inconsistent.
    """
    header, tensors = read_file(file)
    _check_values(tensors)
    if not isinstance(header["metadata"], dict):
        raise ValueError("the metadata must be a JSON object")
    report = decode_report(header["fit_report"])
    if report is not None:
        report = replace(report, selection=decode_selection(header["selection"]))
    state = _regression(header, tensors)
    return Saved(header["class"], state, report, header["metadata"])


# --- writing ---------------------------------------------------------------------------------------


def _checked_metadata(metadata: Any) -> Any:
    try:
        return json.loads(json.dumps(metadata, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"The model's metadata must be JSON, got other objects: {error}.") from error


def _scaling_tensors(scaling: Scaling) -> dict[str, Tensor]:
    maps = {"targets": scaling.targets, "inputs": scaling.inputs}.items()
    return {f"scaling.{name}.{key}": getattr(affine, key) for name, affine in maps for key in ("location", "scale")}


# --- reading ---------------------------------------------------------------------------------------


def _regression(header: Json, tensors: Tensors) -> GPState:
    scaling = _scaling(tensors)
    check_affine(scaling.targets)
    check_affine(scaling.inputs, least=0)
    spec = decode_spec(header["options"], tensors, scaling)
    if header["columns"] is not None and (spec.schema is None or header["columns"] != spec.schema.keys):
        raise ValueError("the names of the columns must be those of the schema")
    values = values_of(header["hyperparameters"], part(tensors, "hyperparameters."), scaling, spec)
    check_levels(spec, values)
    rows = None if header["data"] is None else _rows(part(tensors, "data."), scaling, spec, header["data"])
    count = header["num_observations"]
    if check_count("num_observations", count) != count or (rows is not None and len(rows) != count):
        raise ValueError("the number of observations must match the data")
    exposed = header["has_exposures"]
    if not isinstance(exposed, bool):
        raise ValueError("has_exposures must be true or false")
    scales = header.get("scales")
    if scales is not None:
        scales = decode_scales(scales, part(tensors, "scales."), count, len(scaling.inputs.scale))
    state = GPState(spec, scaling, values, count, rows, has_exposures=exposed, scale_model=scales)
    known = part(tensors, "predictor.")
    posterior = restored_posterior(spec, values, known)
    _check_posterior(posterior, known, state)
    return state.replace(given=posterior)


def _scaling(tensors: Tensors) -> Scaling:
    names = ("targets", "inputs")
    return Scaling(*(Affine(*(tensors[f"scaling.{name}.{key}"] for key in ("location", "scale"))) for name in names))


def _rows(tensors: Tensors, scaling: Scaling, spec: ModelSpec, kind: str) -> Rows:
    inputs, targets = tensors["inputs"], tensors["targets"]
    _check_inputs(inputs, targets, scaling)
    if targets.shape[1:] != scaling.targets.scale.shape or not targets.is_floating_point():
        raise ValueError("the data must have the outputs of the model")
    spec.check(inputs)
    noise, weight = (
        read_per_row(tensors.get(name), name, len(targets), targets, positive=name == "weight")
        for name in ("noise", "weight")
    )
    return TrainingData(Chunk(inputs, targets, noise, weight), kind == "numpy").rows(scaling)


def _check_inputs(inputs: Tensor, targets: Tensor | range, scaling: Scaling) -> None:
    """Check that inputs for n targets are (n, d), or (n,) on graphs."""
    columns = torch.Size() if scaling.inputs is None else scaling.inputs.scale.shape
    if inputs.ndim == 0 or len(inputs) != len(targets) or inputs.shape[1:] != columns:
        raise ValueError(f"inputs must match the targets and the columns, got shape {tuple(inputs.shape)}")


def _check_posterior(posterior: Posterior, given: Tensors, state: GPState) -> None:
    """Check that tensors of a posterior match the rows, the outputs and the prior."""
    scale, likelihood = state.scaling.targets.scale, state.spec.options.likelihood
    k = likelihood.num_latents if scale.ndim == 0 else len(scale)
    expected, tensors = saved_shapes(posterior, state.num_observations, k), saved_tensors(posterior)
    if set(given) != set(tensors):
        raise ValueError(f"the tensors of the posterior must be {sorted(tensors)}, got {sorted(given)}")
    for name, tensor in tensors.items():
        if name.rpartition(".")[2] == "inputs":
            _check_inputs(tensor, range(state.num_observations), state.scaling)
            state.spec.check(tensor)
        elif tuple(tensor.shape) != expected[name] or tensor.dtype != torch.float64:
            raise ValueError(
                f"predictor.{name} must be {expected[name]}, got {tensor.dtype} of shape {tuple(tensor.shape)}"
            )


def _check_values(tensors: Tensors) -> None:
    for name, value in tensors.items():
        if value.is_complex():
            raise ValueError(f"{name} must be real")
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise ValueError(f"{name} must be finite")
        if name.endswith((".scale", ".unit", ".spread")) and not bool((value > 0).all()):
            raise ValueError(f"{name} must be positive")
        if (
            name.startswith("predictor.")
            and name.endswith("factor")
            and value.ndim == 2
            and not bool((value.diagonal() > _MIN_PIVOT).all())
        ):
            raise ValueError(f"{name} must be a Cholesky factor")
        if name == "predictor.rows" and not bool((value.double().square().sum(0) < 1 + _ROUNDING).all()):
            raise ValueError(f"{name} must not exceed the prior variance")


_MIN_PIVOT, _ROUNDING = 1e-100, 1e-6
"""The smallest pivot of a factor, and the rounding error of a variance."""
