"""Models in files: safetensors with a JSON header. Nothing in a file is ever executed.

The metadata of the safetensors file has one entry, `rfgp`: JSON with the format's `version`, the `header`
(the class, its options, and what else is no array), and the `sha256` of the header and the tensors, which
finds damage (it is no signature: whoever can write the file can write the checksum). Tensors are named
`draw.*`, `hyperparameters.*`, `scaling.*`, `predictor.*`, for graph models `graph.*`, and with
data=True `data.*`.

Without data is not without what the data say: the file holds the posterior. With fewer features than rows
that is the F x F statistics of a linear regression. With fewer rows than features, and for graph models (which
predict from their observed nodes), the targets, and on tables the inputs, can be computed from it: treat such a
file as you treat the data. `ExactGP` predicts from its training inputs and is refused without data.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rfgp.couplings import FastSimplex, Frequencies, StructuredFrequencies
from rfgp.couplings.hadamard import next_power_of_two
from rfgp.errors import InvalidArgumentError, ModelFileError
from rfgp.files import write_atomically
from rfgp.inference import FeaturePrior
from rfgp.models import options
from rfgp.models.data import read_per_row
from rfgp.models.exact import ExactGP
from rfgp.models.fitting import FitReport, Stage
from rfgp.models.process import Process, predictor_of
from rfgp.models.reading import Arrays
from rfgp.models.state import Data, Kept, State
from rfgp.models.table import SparseSpectrumGP
from rfgp.parameters import Hyperparameters, Quantity
from rfgp.scaling import Affine, Scaling

FORMAT = 2
"""Raised when older readers could not read what newer ones write. 2: graph models of all kinds of features."""

_TABLES: dict[str, Any] = {"SparseSpectrumGP": SparseSpectrumGP, "ExactGP": ExactGP}
_GRAPHS = ("GraphGP",)


def save(model: Process, path: Path, *, data: bool) -> None:
    """Write a model, whole or not at all; the arguments are those of `Process.save`."""
    from safetensors.torch import save as to_bytes

    header, tensors = _describe(model, data)
    try:
        text = json.dumps(header, allow_nan=False, sort_keys=True)
    except ValueError as error:
        raise InvalidArgumentError(f"The model has an option that JSON cannot hold: {error}.") from error
    entry = {"version": FORMAT, "header": text, "sha256": _digest(text, tensors)}
    write_atomically(path, to_bytes(tensors, {"rfgp": json.dumps(entry)}))


def load(path: str | Path) -> Any:
    """Load a model that `save` wrote: the same draw and numbers, bit for bit, on the CPU.

    Returns:
        A `SparseSpectrumGP`, `ExactGP` or `GraphGP`. Without data it predicts; `exact`, `redraw` and
        `update` ask to `condition` first.

    Raises:
        ModelFileError: the file is missing, truncated, damaged, not ours, or of a newer version.
    """
    file = Path(path)
    header, tensors = _read(file)
    try:
        return _build(header, tensors)
    except Exception as error:  # a well-formed file with a wrong content may break anything here
        raise ModelFileError(f"{file} does not hold a model that fits together: {repr(error)[:200]}") from error


def _describe(model: Process, data: bool) -> tuple[dict[str, Any], dict[str, Tensor]]:
    state = model._known()
    if isinstance(model, ExactGP) and not data:
        raise InvalidArgumentError("An exact process predicts from its training data, so save it with data=True.")
    known = state.known_data("a file with data=True").in_memory("a file with data=True") if data else None
    kind = type(model).__name__
    tensors: dict[str, Tensor] = {}
    if kind in _TABLES:
        described = options.encode(model._options)
    elif kind in _GRAPHS:
        from rfgp.models import graph_file

        described, tensors = graph_file.describe(model)
    else:
        raise InvalidArgumentError(f"A {kind} cannot be saved; {', '.join((*_TABLES, *_GRAPHS))} can.")
    header = {
        "class": kind,
        "options": described,
        "hyperparameters": list(state.hyperparameters.quantities),
        "num_observations": state.num_observations,
        "columns": state.scaling.columns,
        "fit_report": None if model.fit_report is None else asdict(model.fit_report),
        "metadata": _checked_metadata(model.metadata),
        "data": None if known is None else ("tensor" if isinstance(known.raw, Tensor) else "numpy"),
    }
    if isinstance(model, SparseSpectrumGP):
        tensors |= _draw_tensors(state.draw.frequencies)
    tensors |= _parameter_tensors(state)
    tensors |= {f"predictor.{name}": value for name, value in predictor_of(model).tensors().items()}
    if known is not None:
        tensors |= {"data.inputs": model._inputs.read(known.raw)[0], "data.targets": known.raw_targets}
        extra = {"data.noise": known.known, "data.weight": known.rows.weight}
        tensors |= {name: tensor for name, tensor in extra.items() if tensor is not None}
    return header, {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}


def _checked_metadata(metadata: Any) -> Any:
    try:
        return json.loads(json.dumps(metadata, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"The model's metadata cannot be written as JSON: {error}.") from error


def _parameter_tensors(state: State) -> dict[str, Tensor]:
    found = state.hyperparameters
    out = {"hyperparameters.center": found.mean_map.location, "hyperparameters.spread": found.mean_map.scale}
    out["hyperparameters.mean.raw"] = found.raw["mean"]
    for name, quantity in found.quantities.items():
        parts = (found.raw[name], quantity.start, quantity.unit, *quantity.bounds)
        out |= {f"hyperparameters.{name}.{part}": t for part, t in zip(_PARTS, parts, strict=True)}
    maps = {"targets": state.scaling.targets, "inputs": state.scaling.inputs}
    for name, affine in maps.items():
        if affine is not None:
            out |= {f"scaling.{name}.location": affine.location, f"scaling.{name}.scale": affine.scale}
    return out


_PARTS = ("raw", "start", "unit", "low", "high")


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _read(file: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the header and tensors of a file whose checksum is right."""
    from safetensors import SafetensorError
    from safetensors.torch import load as from_bytes

    if not file.is_file():
        raise ModelFileError(f"There is no file {file}.")
    content = file.read_bytes()
    try:
        tensors = {name: tensor.clone() for name, tensor in from_bytes(content).items()}  # aligned, as torch's own are
        size = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + size]).get("__metadata__") or {}
    except (SafetensorError, ValueError, RuntimeError, KeyError, RecursionError) as error:
        raise ModelFileError(f"{file} is {_guess(content)}: {str(error)[:120]}.") from error
    if "rfgp" not in metadata:
        raise ModelFileError(f"{file} is a safetensors file, but not a model of rfgp.")
    try:
        entry = json.loads(metadata["rfgp"])
        _check_version(file, entry["version"])
        if _digest(entry["header"], tensors) != entry["sha256"]:
            raise ModelFileError(f"{file} is damaged: its checksum is not that of its content. Save the model again.")
        header: dict[str, Any] = json.loads(entry["header"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{file} has a header that cannot be read: {repr(error)[:120]}.") from error
    return header, tensors


def _guess(content: bytes) -> str:
    if content[:2] == b"PK" or content[:1] == b"\x80":
        return "a pickle or an archive of pickles, which rfgp never opens, and not a saved model"
    size = int.from_bytes(content[:8], "little")
    looks_ours = content[8:9] == b"{" and b"__metadata__" in content[: min(8 + size, 2**20)]
    return "truncated or damaged" if looks_ours else "not a saved model"


def _check_version(file: Path, version: Any) -> None:
    if not isinstance(version, int) or not 1 <= version <= 10**6:
        raise ModelFileError(f"{file} has format version {repr(version)[:20]}, which is no version of rfgp.")
    if version > FORMAT:
        raise ModelFileError(
            f"{file} has format version {version}; this rfgp reads versions up to {FORMAT}. Install a newer rfgp."
        )


def _build(header: Mapping[str, Any], tensors: dict[str, Tensor]) -> Process:
    kind, described = header["class"], header["options"]
    if kind in _TABLES:
        model: Process = _TABLES[kind](**options.decode(described))
    elif kind in _GRAPHS:
        from rfgp.models import graph_file

        model = graph_file.build(described, _part(tensors, "graph."))
    else:
        raise ValueError(f"there is no model class {kind!r}")
    _check_values(tensors)
    if not isinstance(header["metadata"], dict):
        raise ValueError("the metadata are no JSON object")
    model.fit_report = _fit_report(header["fit_report"])
    model.metadata = header["metadata"]
    state = _read_state(model, header, tensors)
    model._state = state
    found = _part(tensors, "predictor.")
    prior = model._prior(state.hyperparameters, state.draw)
    prior.restore(found)
    _check_shapes(found, state, prior.num_features if isinstance(prior, FeaturePrior) else 0)
    if "inputs" in found:
        model._inputs.restore(found["inputs"], True)  # checks the positions
    model._kept = Kept(state, state.hyperparameters.flat(), found)
    return model


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _check_values(tensors: Mapping[str, Tensor]) -> None:
    for name, value in tensors.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise ValueError(f"{name} holds a value that is not finite")
        if name.endswith((".scale", ".start", ".unit", ".low", ".high", ".spread")) and not bool((value > 0).all()):
            raise ValueError(f"{name} holds a value that is not positive")
        if name == "predictor.factor" and not bool((value.diagonal() > 0).all()):
            raise ValueError(f"{name} is no Cholesky factor")


def _fit_report(content: dict[str, Any] | None) -> FitReport | None:
    if content is None:
        return None
    tuples: dict[str, Any] = {name: tuple(content[name]) for name in ("at_bounds", "trace")}
    tuples["stages"] = tuple(Stage(**stage) for stage in content["stages"])
    report = FitReport(**{**content, **tuples})
    kinds = {"converged": bool, "iterations": int, "evaluations": int, "log_marginal_likelihood": float, "message": str}
    kinds |= {"frequencies": str, "likelihood_error": float}
    if report.frequencies not in ("fixed", "learned", "fell back"):
        raise ValueError("the fit's report holds a value that no fit gives")
    wrong = [name for name, kind in kinds.items() if not isinstance(getattr(report, name), kind)]
    wrong += [name for name in _FIGURES if not isinstance(getattr(report, name), float | None)]
    for stage in report.stages:
        wrong += [name for name, kind in _STAGE.items() if not isinstance(getattr(stage, name), kind)]
    if (
        wrong
        or not all(isinstance(value, float) for value in report.trace)
        or not all(isinstance(name, str) for name in report.at_bounds)
    ):
        raise ValueError("the fit's report holds values of other kinds")
    return report


_FIGURES = ("calibration", "leave_one_out", "weights_used")
_STAGE = {"name": str, "rows": int, "iterations": int, "evaluations": int, "gain": float}


def _read_state(model: Process, header: Mapping[str, Any], tensors: dict[str, Tensor]) -> State:
    maps = {
        name: Affine(tensors[f"scaling.{name}.location"], tensors[f"scaling.{name}.scale"])
        for name in ("targets", "inputs")
        if f"scaling.{name}.scale" in tensors
    }
    columns = header["columns"]
    if columns is not None and not (isinstance(columns, list) and all(isinstance(name, str) for name in columns)):
        raise ValueError("the columns are no names")
    scaling = Scaling(maps["targets"], maps.get("inputs"), None if columns is None else tuple(columns))
    hyperparameters = _read_hyperparameters(header["hyperparameters"], tensors, scaling, model._priors)
    draw = None
    if isinstance(model, SparseSpectrumGP):
        assert scaling.inputs is not None
        frequencies = _read_draw(model, tensors, len(scaling.inputs.scale))
        if frequencies.shape != (model._options["num_frequencies"], len(scaling.inputs.scale)):
            raise ValueError(f"frequencies of shape {frequencies.shape} do not fit the options or the columns")
        draw = model._map_class(frequencies)
    data = None
    if header["data"] is not None:
        known, targets = tensors["data.inputs"], tensors["data.targets"]
        raw = model._inputs.restore(known, header["data"] == "numpy")
        variances, weights = (
            read_per_row(tensors.get(f"data.{name}"), name, len(targets), targets, positive=name == "weight")
            for name in ("noise", "weight")
        )
        data = Data((Arrays(raw, known, targets, variances, weights).part(scaling),))
    count = header["num_observations"]
    if not isinstance(count, int) or (data is not None and {len(targets), len(known)} != {count}):
        raise ValueError("the number of observations is not that of the data")
    return State(data, count, scaling, hyperparameters, draw)


def _draw_tensors(frequencies: Frequencies) -> dict[str, Tensor]:
    if isinstance(frequencies, StructuredFrequencies):
        return {"draw.signs": frequencies.signs, "draw.lengths": frequencies.lengths}
    return {"draw.frequencies": frequencies.dense(), "draw.weights": frequencies.weights}


def _read_draw(model: SparseSpectrumGP, tensors: Mapping[str, Tensor], d: int) -> Frequencies:
    if "draw.signs" not in tensors:
        return Frequencies(tensors["draw.frequencies"], tensors["draw.weights"], model.coupling.is_antithetic)
    signs, lengths = tensors["draw.signs"], tensors["draw.lengths"]
    size = next_power_of_two(d)
    blocks = -(-len(lengths) // size)
    whole = signs.dtype == torch.int8 and signs.ndim == 3 and signs.shape[::2] == (blocks, size) and lengths.ndim == 1
    if not whole or not bool((signs.abs() == 1).all()):
        raise ValueError("the signs of structured frequencies do not fit the options or the columns")
    return StructuredFrequencies(signs, lengths, d, isinstance(model.coupling, FastSimplex))


def _check_shapes(tensors: Mapping[str, Tensor], state: State, F: int) -> None:
    n = state.num_observations
    k = 1 if state.scaling.targets.scale.ndim == 0 else len(state.scaling.targets.scale)
    expected: dict[str, tuple[int, ...]] = {
        "weights": (F, k),
        "rows": (n, F),
        "coefficients": (n, k),
        "factor": (n, n) if F == 0 else (F, F),
    }
    expected |= {"spread": (n,), "draws": (n, tensors["draws"].shape[-1] if "draws" in tensors else 0)}
    for name, shape in expected.items():
        if name in tensors and (tuple(tensors[name].shape) != shape or tensors[name].dtype != torch.float64):
            raise ValueError(f"predictor.{name} has shape {tuple(tensors[name].shape)}, not {shape}, or is no float64")
    if "inputs" in tensors and len(tensors["inputs"]) != n:
        raise ValueError("the number of observations is not that of the predictor")


def _read_hyperparameters(
    names: list[str], tensors: Mapping[str, Tensor], scaling: Scaling, priors: Any
) -> Hyperparameters:
    found = _part(tensors, "hyperparameters.")
    quantities = {
        name: Quantity(found[f"{name}.start"], found[f"{name}.unit"], (found[f"{name}.low"], found[f"{name}.high"]))
        for name in names
    }
    out = Hyperparameters(quantities, found["center"], found["spread"], scaling.targets, priors)
    with torch.no_grad():
        for name in out.names:
            raw = found[f"{name}.raw"]
            if raw.shape != out.raw[name].shape:
                raise ValueError(f"{name} has shape {tuple(raw.shape)}")
            out.raw[name].copy_(raw)
    return out
