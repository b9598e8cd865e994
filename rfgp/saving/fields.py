"""The families of fields in files: the mesh or the roads, and what the user chose."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import graphs
from rfgp.regression.fields import Domain, FieldFamily, FieldOptions, MeshDomain, RoadDomain
from rfgp.saving import plain
from rfgp.saving.models import Codec, Tensors, part
from rfgp.saving.objects import decode_mesh, decode_roads, encode_mesh, encode_roads
from rfgp.scaling import Scaling


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


def _arrays(tensors: Tensors) -> dict[str, NDArray[Any]]:
    return {name: tensor.numpy() for name, tensor in part(tensors, "field.").items()}


def _encode_mesh(family: FieldFamily) -> tuple[dict[str, Any], dict[str, Tensor]]:
    assert isinstance(family.domain, MeshDomain)
    mesh, within = family.domain.mesh, family.domain.within
    limit = {} if within is None else {"within": float(within) if np.isfinite(within) else "inf"}
    of_mesh, arrays = encode_mesh(mesh)
    return {**_encode_options(family), **of_mesh, **limit}, _tensors(arrays)


def _decode_mesh(described: Mapping[str, Any], tensors: Tensors, scaling: Scaling) -> FieldFamily:
    mesh = decode_mesh(described, _arrays(tensors))
    within = described.get("within")
    return _family(described, MeshDomain(mesh, float(within) if within == "inf" else within), scaling)


def _encode_roads(family: FieldFamily) -> tuple[dict[str, Any], dict[str, Tensor]]:
    assert isinstance(family.domain, RoadDomain)
    field = family.domain.roads
    of_roads, arrays = encode_roads(field.roads)
    return {**_encode_options(family), "alpha": field.alpha, "boundary": field.boundary, **of_roads}, _tensors(arrays)


def _decode_roads(described: Mapping[str, Any], tensors: Tensors, scaling: Scaling) -> FieldFamily:
    network = decode_roads(described, _arrays(tensors))
    domain = RoadDomain(graphs.RoadField(network, described["alpha"], described["boundary"]))
    return _family(described, domain, scaling)


MESHES = Codec("MeshGP", _encode_mesh, _decode_mesh)
ROADS = Codec("RoadGP", _encode_roads, _decode_roads)
