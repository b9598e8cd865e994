"""Files of earlier versions in the present form: fields on meshes and roads were models of their own class."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

Json = dict[str, Any]
Tensors = Mapping[str, Tensor]

KERNELS = {"MeshGP": ("Mesh", "mesh", ("within",)), "RoadGP": ("Roads", "network", ("alpha", "boundary"))}
"""By the class of a model the kernel, its argument for the mesh or the roads, and further arguments."""
OBJECTS = {"MeshGP": "mesh", "RoadGP": "roads"}
"""By the class of a model the kind of the object in the file."""
OWN = ("lengthscale", "outputscale")
"""The hyperparameters of the term."""


def upgraded(header: Json, tensors: Tensors) -> tuple[Json, Tensors]:
    """Return the header and the tensors (...) of a file of any version in the form of the present one."""
    if header["class"] not in KERNELS or "resolved" in header["options"]:
        return header, tensors
    old, kind = header["options"], header["class"]
    term = KERNELS[kind][0].lower()
    maps = [tensors[f"scaling.inputs.{part}"] for part in ("location", "scale")]
    changed = {_renamed(name, term): tensor for name, tensor in tensors.items()}
    for name in (name for name in tensors if name.startswith("predictor.") and name.endswith("inputs")):
        changed[name] = tensors[name] * maps[1] + maps[0]
    changed |= {"columns.spread": maps[1], "scaling.inputs.location": torch.zeros_like(maps[0])}
    changed["scaling.inputs.scale"] = torch.ones_like(maps[1])
    names = [_renamed(f"hyperparameters.{name}", term).partition(".")[2] for name in header["hyperparameters"]]
    return {**header, "hyperparameters": names, "options": _options(old, kind, len(maps[0]))}, changed


def _renamed(name: str, term: str) -> str:
    """Return the present name of a tensor, those of hyperparameters by the path in a term."""
    room, _, rest = name.partition(".")
    if room == "field":
        return f"object.0.{rest}"
    noise, own = ("noise.", rest.removeprefix("noise_")) if rest.startswith("noise_") else ("", rest)
    is_own = room == "hyperparameters" and own.startswith(OWN)
    return f"{room}.{noise}{term}.{own}" if is_own else name


def _options(old: Mapping[str, Any], kind: str, width: int) -> Json:
    """Return the options of a model with one field, for so many columns."""
    name, place, others = KERNELS[kind]
    arguments = {place: {"object": 0}} | {key: _number(old[key]) for key in others if key in old}
    leaf, term = {"role": "kernel", "name": name, "arguments": arguments}, name.lower()
    resolved = {**leaf, "arguments": {**arguments, "columns": list(range(width))}}
    column = {"is_date": False, "kind": "coordinate", "levels": [], "terms": [term]}
    used = {"role": "approximation", "name": "SparsePrecision", "arguments": {}}
    starts = {key: old.get(key) for key in (*OWN, "noise")}
    own = {key: value for key, value in old.items() if key in ("alpha", "metric")}
    return {
        "kernel": {"leaves": [leaf], "terms": None},
        "resolved": {
            "leaves": [resolved],
            "terms": [{"factors": [0], "given": [], "name": term, "variance": None}],
        },
        "objects": [{"kind": OBJECTS[kind], **own}],
        "likelihood": old.get("likelihood"),
        "approximation": "auto",
        "approximations": [used],
        "draws": [{"form": "precision"}],
        "inference": old.get("approximation"),
        "start": {key: value for key, value in starts.items() if value is not None},
        "priors": old["priors"] or {},
        "schema": {"version": 1, "columns": [{"key": key, **column} for key in range(width)]},
        "nodes": [],
        "mean": "constant",
        "standardize": True,
        "seed": old["seed"],
        "dtype": None,
    }


def _number(value: Any) -> Any:
    """Return an argument in the present form, in which infinity is not a text."""
    return {"number": value} if value == "inf" else value
