"""The family of the nodes of a graph in files: CSR arrays, labels, and how the walks were drawn."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

import graphs
from graphs.kernels import GraphKernel
from graphs.random import GENERATOR_VERSION
from graphs.walks import HopRule
from rfgp.errors import InvalidArgumentError
from rfgp.regression.graph import WALK_OPTIONS, GraphOptions, NodeFamily, SpectrumFeatures
from rfgp.saving import plain
from rfgp.saving.models import Codec, Tensors, part
from rfgp.saving.node_draws import decode_walks, eigenpairs, encode_walks
from rfgp.saving.objects import decode_graph, encode_graph
from rfgp.scaling import Scaling


def _encode(family: NodeFamily) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the options as JSON, and the graph as tensors: CSR of (N, N), coordinates (N, d).

    Raises:
        InvalidArgumentError: labels, a kernel or an option that JSON cannot hold.
    """
    options = family.options
    of_graph, arrays = encode_graph(family.graph)
    walks = {**options.walks, "exact_hops": "rule"} if isinstance(options.exact_hops, HopRule) else options.walks
    assert family.features is not None
    described = {
        "kernel": _encode_kernel(options.kernel),
        "features": family.features.name,
        "series": plain.plain_values({**options.series, **family.feature_size}),
        "compares_starts": options.compares_starts,
        "seed": options.seed,
        "walks": plain.plain_values(walks),
        **encode_walks(family.walks),
        "generator": GENERATOR_VERSION,
        "priors": plain.encode_priors(options.priors),
        "likelihood": plain.encode_likelihood(options.likelihood),
        "approximation": options.approximation,
        "outputscale": plain.plain(options.outputscale),
        "noise": plain.plain(options.noise),
        **of_graph,
    }
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
    graph, options = decode_graph(described, arrays), _decode_options(described)
    drawn = decode_walks(described, described["walks"]["lengths"] if described["features"] == "walks" else None)
    if options.features != "spectrum":
        is_tuned = options.features == "walks" and options.exact_hops == "auto"
        return replace(NodeFamily.of(graph, options, **drawn), is_tuned=is_tuned)
    return NodeFamily(graph, options, SpectrumFeatures(eigenpairs(graph, arrays), options.kernel))


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


NODES = Codec(("GraphGP",), _encode, _decode)
