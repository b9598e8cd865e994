"""The families of fields in files: the mesh or the roads, and what the user chose."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import graphs
from graphs.builders.junctions import Stretches
from graphs.builders.lines import Lines
from rfgp.errors import InvalidArgumentError
from rfgp.regression.fields import Domain, FieldFamily, FieldOptions, MeshDomain, RoadDomain
from rfgp.saving import plain
from rfgp.saving.models import Codec, Tensors, part
from rfgp.scaling import Scaling

_LINES = {"coordinates": "f", "lengths": "f", "points": "f", "first": "i", "reached": "f"}
_STRETCHES = {
    "road": "i",
    "begin": "f",
    "end": "f",
    "source": "i",
    "target": "i",
    "representative": "i",
    "is_reversed": "b",
}
_ENDS = {"starts": "i", "ends": "i"}
"""The kinds of the arrays of roads in files; formats 1 and 2 have the ends of roads in place of stretches."""


def _encode_options(family: FieldFamily) -> dict[str, Any]:
    options = family.options
    numbers = {name: plain.plain(value) for name, value in options.starts.items()}
    priors, law = plain.encode_priors(options.priors), plain.encode_likelihood(options.likelihood)
    beside = {"priors": priors, "likelihood": law, "approximation": options.approximation}
    return {"seed": options.seed, **numbers, **beside}


def _family(described: Mapping[str, Any], domain: Domain, scaling: Scaling) -> FieldFamily:
    priors, law = described["priors"], plain.decode_likelihood(described.get("likelihood"))
    starts = {name: described.get(name) for name in ("lengthscale", "outputscale", "noise")}
    priors = None if priors is None else plain.decode_priors(priors)
    options = FieldOptions(
        described["seed"], **starts, priors=priors, likelihood=law, approximation=described.get("approximation")
    )
    return FieldFamily(domain, options, scaling.inputs)


def _tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    return {f"field.{name}": torch.from_numpy(np.array(array)) for name, array in arrays.items()}


def _encode_mesh(family: FieldFamily) -> tuple[dict[str, Any], dict[str, Tensor]]:
    assert isinstance(family.domain, MeshDomain)
    mesh, within = family.domain.mesh, family.domain.within
    limit = {} if within is None else {"within": float(within) if np.isfinite(within) else "inf"}
    described = {**_encode_options(family), "alpha": mesh.alpha, **limit}
    return described, _tensors({"vertices": mesh.vertices, "faces": mesh.faces})


def _decode_mesh(described: Mapping[str, Any], tensors: Tensors, scaling: Scaling) -> FieldFamily:
    arrays = part(tensors, "field.")
    mesh = graphs.MeshField((arrays["vertices"].numpy(), arrays["faces"].numpy()), described["alpha"])
    within = described.get("within")
    return _family(described, MeshDomain(mesh, float(within) if within == "inf" else within), scaling)


def _encode_roads(family: FieldFamily) -> tuple[dict[str, Any], dict[str, Tensor]]:
    assert isinstance(family.domain, RoadDomain)
    field = family.domain.roads
    network, lines = field.roads, field.roads.lines
    held = {**vars(network), **lines._asdict(), **network.stretches._asdict()}
    named = {"alpha": field.alpha, "boundary": field.boundary, "metric": lines.metric}
    return {**_encode_options(family), **named}, _tensors({name: held[name] for name in (*_LINES, *_STRETCHES)})


def _decode_roads(described: Mapping[str, Any], tensors: Tensors, scaling: Scaling) -> FieldFamily:
    arrays = {name: tensor.numpy() for name, tensor in part(tensors, "field.").items()}
    ends = _ENDS if "starts" in arrays else _STRETCHES
    for name, kind in (_LINES | ends).items():
        if arrays[name].dtype.kind != kind or arrays[name].ndim != (2 if name in ("coordinates", "points") else 1):
            raise InvalidArgumentError(f"{name} of the roads is {arrays[name].dtype} of shape {arrays[name].shape}")
    vertices, first = len(arrays["coordinates"]), arrays["first"]
    is_chain = len(first) > 1 and first[0] == 0 and (np.diff(first) >= 2).all()
    if not is_chain or first[-1] != len(arrays["points"]) or len(arrays["reached"]) != len(arrays["points"]):
        raise InvalidArgumentError("the lines of the roads do not follow each other")
    reached = np.diff(arrays["reached"])
    reached[first[1:-1] - 1] = 0.0  # from one line to the next
    if (arrays["reached"][first[:-1]] != 0).any() or not (reached >= 0).all() or not np.isfinite(reached).all():
        raise InvalidArgumentError("the lines of the roads do not get longer from point to point")
    if described["metric"] not in ("haversine", "euclidean"):
        raise InvalidArgumentError(f"the metric of the roads is {str(described['metric'])[:20]!r}")
    if arrays["points"].shape[1:] != (2,) or arrays["coordinates"].shape[1:] != (2,):
        raise InvalidArgumentError("the roads have coordinates that are not pairs")
    given = [arrays[name] for name in ends]
    stretches = Stretches.of_ends(*given) if ends is _ENDS else Stretches(*given)
    stretches.check(len(first) - 1, vertices)
    lines = Lines(arrays["points"], first, arrays["reached"], described["metric"])
    network = graphs.RoadNetwork(arrays["coordinates"], stretches, arrays["lengths"], lines)
    domain = RoadDomain(graphs.RoadField(network, described["alpha"], described["boundary"]))
    return _family(described, domain, scaling)


MESHES = Codec("MeshGP", _encode_mesh, _decode_mesh)
ROADS = Codec("RoadGP", _encode_roads, _decode_roads)
