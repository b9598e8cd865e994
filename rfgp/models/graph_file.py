"""The part of a saved model that is a graph: CSR arrays, labels, and how the walks were drawn."""

from collections.abc import Hashable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

import graphs
from graphs.couplings import Sigma, Tuples
from graphs.kernels import GraphKernel
from graphs.random import GENERATOR_VERSION
from graphs.walks import HopRule
from rfgp.errors import InvalidArgumentError
from rfgp.models import options
from rfgp.models.graph import GraphGP
from rfgp.models.graph.features import SpectrumFeatures, chosen_size

_MOST_QUANTILES = 10_000


def describe(model: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the options of a `GraphGP` as JSON, and its graph as tensors: CSR of (N, N), coordinates (N, d).

    Raises:
        InvalidArgumentError: labels, a kernel or an option that JSON cannot hold.
    """
    graph, walks = model.graph, model._walk_options
    settings = None if model._walks is None else model._walks.settings
    coupling, hops = (None, None) if settings is None else (settings.coupling, settings.exact_hops)
    walks = {**walks, "exact_hops": "rule"} if isinstance(walks["exact_hops"], HopRule) else walks
    described = {
        "kernel": _encode_kernel(model.kernel),
        "features": model.features,
        "series": options.plain_values({**model._series_options, **chosen_size(model._node_features)}),
        "compares_starts": model._compares_starts,
        "seed": model.seed,
        "walks": options.plain_values(walks),
        "permutation": coupling.permutation.tolist() if isinstance(coupling, Sigma) else None,
        "tuples": coupling.tuples.tolist() if isinstance(coupling, Tuples) else None,
        "hop_limits": hops.limits.tolist() if isinstance(hops, HopRule) else None,
        "generator": GENERATOR_VERSION,
        "priors": options.encode_priors(model._options["priors"]),
        "outputscale": options.plain(model._options["outputscale"]),
        "noise": options.plain(model._options["noise"]),
        "labels": None if graph.labels is None else [_encode_label(label) for label in graph.labels],
        "num_self_loops_dropped": graph.num_self_loops_dropped,
        "laplacian": graph.laplacian,
    }
    matrix = graph.adjacency
    arrays = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    if graph.coordinates is not None:
        arrays["coordinates"] = graph.coordinates
    if isinstance(model._node_features, SpectrumFeatures):  # another machine would turn or reflect them
        draw = model._node_features.draw
        arrays |= {"eigenvalues": draw.eigenvalues, "eigenvectors": draw.eigenvectors}
    return described, {f"graph.{name}": torch.as_tensor(np.array(array)) for name, array in arrays.items()}


def build(
    described: Mapping[str, Any],
    tensors: Mapping[str, Tensor],  # CSR of (N, N), coordinates (N, d)
) -> GraphGP:
    """Return the model without its state.

    Raises:
        InvalidArgumentError: the walks are of another generator.
    """
    if described["generator"] != GENERATOR_VERSION and described["features"] == "walks":
        raise InvalidArgumentError(
            f"the walks are of generator {described['generator']}, this version draws others ({GENERATOR_VERSION})"
        )
    graph = _build_graph(described, {name: tensor.numpy() for name, tensor in tensors.items()})
    walks, permutation = dict(described["walks"]), described["permutation"]
    matched = described["features"] == "walks" and walks["lengths"] == "sigma"
    if (permutation is not None) != matched or (matched and not 2 <= len(permutation) <= _MOST_QUANTILES):
        raise InvalidArgumentError(f"sigma walks have a permutation of 2 to {_MOST_QUANTILES} quantiles, others none")
    tuples = described["tuples"]
    if (tuples is not None) != (described["features"] == "walks" and walks["lengths"] == "learned"):
        raise InvalidArgumentError("learned walks have a table of tuples, others none")
    tables = {name: table for name, table in (("permutation", permutation), ("tuples", tuples)) if table is not None}
    main = {name: walks.pop(name) for name in ("num_walkers", "halt", "lengths", "directions", "exact_hops")}
    limits, asked = described["hop_limits"], main["exact_hops"]
    if (limits is not None and asked not in ("auto", "rule")) or (limits is None and asked == "rule"):
        raise InvalidArgumentError('a rule for exact hops comes with exact_hops="auto" or "rule"')
    rule = None if limits is None else HopRule(np.array(limits))
    main["exact_hops"] = rule if asked == "rule" else asked
    priors, kernel, features = described["priors"], _decode_kernel(described["kernel"]), described["features"]
    eigenpairs = _eigenpairs(graph, tensors) if features == "spectrum" else None
    model = GraphGP(
        graph,
        kernel,
        "exact" if eigenpairs else features,
        **{**main, "exact_hops": asked if rule is None else rule},
        outputscale=described["outputscale"],
        noise=described["noise"],
        priors=None if priors is None else options.decode_priors(priors),
        seed=described["seed"],
        walk_options={**walks, **tables},
        **described.get("series", {}),
    )
    if eigenpairs is not None:
        model._node_features = SpectrumFeatures(eigenpairs, kernel)
    model._compares_starts = bool(described.get("compares_starts", False))
    model._walk_options = {**main, **walks}  # a redraw matches its permutation and chooses its hops anew
    return model


def _eigenpairs(graph: graphs.Graph, tensors: Mapping[str, Tensor]) -> graphs.SpectralFeatures:
    values, vectors = (tensors[name].numpy() for name in ("eigenvalues", "eigenvectors"))
    if values.ndim != 1 or vectors.shape != (graph.num_nodes, len(values)) or np.abs(values).max(initial=0) > 1:
        raise InvalidArgumentError(f"{graph.num_nodes} nodes have no eigenvectors of shape {vectors.shape}")
    return graphs.SpectralFeatures(graph, np.zeros(0, dtype=np.int64), values, vectors)


def _build_graph(described: Mapping[str, Any], arrays: Mapping[str, Any]) -> graphs.Graph:
    size = len(arrays["indptr"]) - 1
    matrix = sp.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(size, size))
    matrix.check_format(full_check=True)
    labels = described["labels"]
    graph = graphs.Graph.from_scipy(
        matrix, None if labels is None else [_decode_label(label) for label in labels], self_loops="keep"
    )
    coordinates = arrays.get("coordinates")
    if coordinates is not None and (coordinates.ndim != 2 or len(coordinates) != size):
        raise InvalidArgumentError(f"{size} nodes have coordinates of shape {coordinates.shape}")
    dropped = int(described["num_self_loops_dropped"])
    graph = graph.with_laplacian(described["laplacian"])
    return replace(graph, coordinates=coordinates, num_self_loops_dropped=dropped)


def _encode_kernel(kernel: GraphKernel) -> dict[str, Any]:
    """Return a kernel as its name and its fields; a field that is a kernel becomes the same."""
    values = {entry.name: getattr(kernel, entry.name) for entry in fields(kernel)}
    plain = {
        name: _encode_kernel(value) if isinstance(value, GraphKernel) else options.plain(value)
        for name, value in values.items()
    }
    return {"name": graphs.kernels.name_of(kernel), **plain}


def _decode_kernel(described: Mapping[str, Any]) -> GraphKernel:
    """Return the kernel; one level of kernels inside, since a base has none of its own."""
    inner = {name: graphs.kernels.by_name(**value) for name, value in described.items() if isinstance(value, dict)}
    return graphs.kernels.by_name(**{**described, **inner})


def _encode_label(label: Hashable) -> Any:
    """Return a label as JSON; tuples become lists, which no label can be."""
    if isinstance(label, tuple):
        return [_encode_label(part) for part in label]
    if isinstance(label, np.generic):
        label = label.item()
    if label is None or isinstance(label, bool | int | str) or (isinstance(label, float) and np.isfinite(label)):
        return label
    raise InvalidArgumentError(
        f"The node label {label!r} ({type(label).__name__}) cannot be saved; texts, numbers, None and tuples of them "
        "can."
    )


def _decode_label(label: Any) -> Hashable:
    return tuple(_decode_label(part) for part in label) if isinstance(label, list) else label
