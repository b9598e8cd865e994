"""The family of the nodes of a graph in files: CSR arrays, labels, and how the walks were drawn."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

import graphs
from graphs.builders.lattices import GridLabels
from graphs.checks import is_count
from graphs.couplings import Sigma, Tuples
from graphs.kernels import GraphKernel
from graphs.random import GENERATOR_VERSION
from graphs.walks import HopRule
from rfgp.errors import InvalidArgumentError
from rfgp.regression.graph import WALK_OPTIONS, GraphOptions, NodeFamily, SpectrumFeatures
from rfgp.saving import plain
from rfgp.saving.models import Codec, Tensors, part
from rfgp.scaling import Scaling

_MOST_QUANTILES, _ROUNDING = 10_000, 1e-6


def _encode(family: NodeFamily) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the options as JSON, and the graph as tensors: CSR of (N, N), coordinates (N, d).

    Raises:
        InvalidArgumentError: labels, a kernel or an option that JSON cannot hold.
    """
    graph, options = family.graph, family.options
    settings = None if family.walks is None else family.walks.settings
    coupling, hops = (None, None) if settings is None else (settings.coupling, settings.exact_hops)
    walks = {**options.walks, "exact_hops": "rule"} if isinstance(options.exact_hops, HopRule) else options.walks
    assert family.features is not None
    described = {
        "kernel": _encode_kernel(options.kernel),
        "features": family.features.name,
        "series": plain.plain_values({**options.series, **family.feature_size}),
        "compares_starts": options.compares_starts,
        "seed": options.seed,
        "walks": plain.plain_values(walks),
        "permutation": coupling.permutation.tolist() if isinstance(coupling, Sigma) else None,
        "tuples": coupling.tuples.tolist() if isinstance(coupling, Tuples) else None,
        "hop_limits": hops.limits.tolist() if isinstance(hops, HopRule) else None,
        "generator": GENERATOR_VERSION,
        "priors": plain.encode_priors(options.priors),
        "likelihood": plain.encode_likelihood(options.likelihood),
        "approximation": options.approximation,
        "outputscale": plain.plain(options.outputscale),
        "noise": plain.plain(options.noise),
        **_encode_labels(graph.labels),
        "num_self_loops_dropped": graph.num_self_loops_dropped,
        "laplacian": graph.laplacian,
    }
    matrix = graph.adjacency
    arrays = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    if graph.coordinates is not None:
        arrays["coordinates"] = graph.coordinates
    if isinstance(family.features, SpectrumFeatures):  # another machine would turn or reflect them
        draw = family.features.draw
        arrays |= {"eigenvalues": draw.eigenvalues, "eigenvectors": draw.eigenvectors}
    return described, {f"graph.{name}": torch.as_tensor(np.array(array)) for name, array in arrays.items()}


def _decode(described: Mapping[str, Any], tensors: Tensors, scaling: Scaling) -> NodeFamily:
    """Return the family.

    Raises:
        InvalidArgumentError: the walks are of another generator.
    """
    if described["generator"] != GENERATOR_VERSION and described["features"] == "walks":
        raise InvalidArgumentError(
            f"the walks are of generator {described['generator']}, this version draws others ({GENERATOR_VERSION})"
        )
    arrays = {name: tensor.numpy() for name, tensor in part(tensors, "graph.").items()}
    graph, options, drawn = _build_graph(described, arrays), _decode_options(described), _decode_draw(described)
    if options.features != "spectrum":
        is_tuned = options.features == "walks" and options.exact_hops == "auto"
        return replace(NodeFamily.of(graph, options, **drawn), is_tuned=is_tuned)
    return NodeFamily(graph, options, SpectrumFeatures(_eigenpairs(graph, arrays), options.kernel))


def _decode_options(described: Mapping[str, Any]) -> GraphOptions:
    walks, priors = dict(described["walks"]), described["priors"]
    main = {name: walks.pop(name) for name in WALK_OPTIONS}
    limits, asked = described["hop_limits"], main["exact_hops"]
    if (limits is not None and asked not in ("auto", "rule")) or (limits is None and asked == "rule"):
        raise InvalidArgumentError('a rule for exact hops comes with exact_hops="auto" or "rule"')
    if asked == "rule":
        main["exact_hops"] = HopRule(np.array(limits))
    return GraphOptions(
        kernel=_decode_kernel(described["kernel"]),
        compares_starts=bool(described.get("compares_starts", False)),
        **{name: described[name] for name in ("features", "seed", "outputscale", "noise")},
        **main,
        priors=None if priors is None else plain.decode_priors(priors),
        **{"degree": None, "rank": None, **described.get("series", {})},
        walk_options=walks,
        likelihood=plain.decode_likelihood(described.get("likelihood")),
        approximation=described.get("approximation"),
    )


def _decode_draw(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return what walks were drawn with; a redraw matches its permutation and chooses its hops anew."""
    lengths, is_walks = described["walks"]["lengths"], described["features"] == "walks"
    permutation, tuples, limits = (described[name] for name in ("permutation", "tuples", "hop_limits"))
    matched = is_walks and lengths == "sigma"
    if (permutation is not None) != matched or (matched and not 2 <= len(permutation) <= _MOST_QUANTILES):
        raise InvalidArgumentError(f"sigma walks have a permutation of 2 to {_MOST_QUANTILES} quantiles, others none")
    if (tuples is not None) != (is_walks and lengths == "learned"):
        raise InvalidArgumentError("learned walks have a table of tuples, others none")
    hops = None if limits is None else HopRule(np.array(limits))
    drawn = {"permutation": permutation, "tuples": tuples, "exact_hops": hops}
    return {name: value for name, value in drawn.items() if value is not None}


def _eigenpairs(graph: graphs.Graph, arrays: Mapping[str, Any]) -> graphs.SpectralFeatures:
    values, vectors = (arrays[name] for name in ("eigenvalues", "eigenvectors"))
    is_float = values.dtype == vectors.dtype == np.float64
    if not is_float or values.ndim != 1 or len(values) == 0 or vectors.shape != (graph.num_nodes, len(values)):
        raise InvalidArgumentError(f"{graph.num_nodes} nodes have no eigenvectors of shape {vectors.shape}")
    if np.abs(values).max() > 1 or np.abs(vectors).max() > 1 + _ROUNDING:
        raise InvalidArgumentError("the eigenvalues or the eigenvectors are larger than 1")
    return graphs.SpectralFeatures(graph, np.zeros(0, dtype=np.int64), values, vectors)


def _build_graph(described: Mapping[str, Any], arrays: Mapping[str, Any]) -> graphs.Graph:
    _check_sparse(arrays)
    size = len(arrays["indptr"]) - 1
    matrix = sp.csr_array((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(size, size))
    matrix.check_format(full_check=True)
    graph = graphs.Graph.from_scipy(matrix, _decode_labels(described), self_loops="keep")
    coordinates = arrays.get("coordinates")
    if coordinates is not None and (coordinates.shape not in ((size, 2), (size, 3)) or coordinates.dtype.kind != "f"):
        raise InvalidArgumentError(f"{size} nodes have coordinates of shape {coordinates.shape}")
    dropped = int(described["num_self_loops_dropped"])
    graph = graph.with_laplacian(described["laplacian"])
    graph = replace(graph, coordinates=coordinates, num_self_loops_dropped=dropped)
    computed = _computed_labels(described)
    if computed is not None and (graph.labels is not None or len(computed) != size):
        raise InvalidArgumentError(f"the labels of the grid or mesh are not those of {size} nodes")
    return graph if computed is None else replace(graph, labels=computed)


def _check_sparse(arrays: Mapping[str, Any]) -> None:
    """Refuse arrays that are no CSR matrix: scipy believes an `indptr` that ends with 0, and writes out of bounds."""
    for name, kind in {"data": "f", "indices": "i", "indptr": "i"}.items():
        if arrays[name].ndim != 1 or arrays[name].dtype.kind != kind:
            raise InvalidArgumentError(f"{name} of the graph is {arrays[name].dtype} of shape {arrays[name].shape}")
    ends, entries = arrays["indptr"], len(arrays["indices"])
    if len(ends) < 2 or ends[0] != 0 or ends[-1] != entries or (ends[1:] < ends[:-1]).any():
        raise InvalidArgumentError("the rows of the graph's adjacency do not follow each other")
    if len(arrays["data"]) != entries:
        raise InvalidArgumentError("the graph has not as many weights as edges")


def _encode_kernel(kernel: GraphKernel) -> dict[str, Any]:
    """Return a kernel as its name and its fields; a field that is a kernel becomes the same."""
    values = {entry.name: getattr(kernel, entry.name) for entry in fields(kernel)}
    content = {
        name: _encode_kernel(value) if isinstance(value, GraphKernel) else plain.plain(value)
        for name, value in values.items()
    }
    return {"name": graphs.kernels.name_of(kernel), **content}


def _decode_kernel(described: Mapping[str, Any]) -> GraphKernel:
    """Return the kernel; one level of kernels inside, since a base has none of its own."""
    inner = {name: graphs.kernels.by_name(**value) for name, value in described.items() if isinstance(value, dict)}
    return graphs.kernels.by_name(**{**described, **inner})


def _encode_labels(labels: Sequence[Hashable] | None) -> dict[str, Any]:
    """Return labels as JSON; those that follow from the positions as a grid's shape, or as numbers."""
    computed = isinstance(labels, range | GridLabels)
    kind = {"grid": list(labels.shape)} if isinstance(labels, GridLabels) else {"numbers": len(labels or ())}
    listed = None if labels is None or computed else [_encode_label(label) for label in labels]
    return {"labels": listed, "has_labels": listed is not None, **(kind if computed else {})}


def _decode_labels(described: Mapping[str, Any]) -> list[Hashable] | None:
    labels = described["labels"]
    if described.get("has_labels", labels is not None) != (labels is not None):
        raise InvalidArgumentError("the labels of the graph's nodes are lost")
    return None if labels is None else [_decode_label(label) for label in labels]


def _computed_labels(described: Mapping[str, Any]) -> range | GridLabels | None:
    """Return the labels of a grid or a mesh; older files have neither, and positions are the labels there."""
    if "grid" in described:
        shape = described["grid"]
        if not isinstance(shape, list) or not shape or not all(is_count(size) and size > 0 for size in shape):
            raise InvalidArgumentError("the shape of the grid is not one of positive integers")
        return GridLabels(tuple(shape))
    return range(described["numbers"]) if "numbers" in described else None


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


NODES = Codec("GraphGP", _encode, _decode)
