"""What a classifier's kernel is made of, by name: the exact kernel, or features."""

from collections.abc import Mapping
from typing import Any

import graphs
from graphs.kernels import GraphKernel
from rfgp.approximations.measured import MOST_EXACT_NODES
from rfgp.approximations.node_features import FEATURES, DrawnFeatures, SpectrumFeatures, make_features
from rfgp.errors import InvalidArgumentError
from rfgp.gpytorch.graph import GraphFeatureKernel
from rfgp.gpytorch.graph_exact import GraphExactKernel


def choose(features: str, graph: graphs.Graph) -> str:
    """Return the features that a name stands for: "auto" is exact up to 2,000 nodes, walks beyond.

    Raises:
        InvalidArgumentError: an unknown name.
    """
    if features not in FEATURES:
        raise InvalidArgumentError(f"features must be one of {', '.join(map(repr, FEATURES))}, got {features!r}.")
    if features == "auto":
        return "exact" if graph.num_nodes <= MOST_EXACT_NODES else "walks"
    return features


def make_kernel(
    graph: graphs.Graph, kernel: GraphKernel, features: str, seed: int, options: Mapping[str, Any]
) -> GraphExactKernel | GraphFeatureKernel:
    """Return the kernel that a name stands for, of no nodes yet where it has features: `.at` gives it some.

    Args:
        graph: The graph.
        kernel: The graph kernel, at its starting values; the walks are tuned to it.
        features: One of `FEATURES`, but "auto".
        seed: Of the walks.
        options: `degree` and `rank` of the features without randomness; the others are those of `graphs.sample_walks`.
    """
    made = _make(graph, kernel, features, seed, dict(options)).double()
    for name, value in zip(kernel.parameters, kernel.values, strict=True):
        setattr(made, name, float(value))  # parameters are made in single precision
    return made


def _make(
    graph: graphs.Graph, kernel: GraphKernel, features: str, seed: int, options: dict[str, Any]
) -> GraphExactKernel | GraphFeatureKernel:
    if features == "exact":
        return GraphExactKernel(graph, kernel)
    if options.get("rank") is not None:
        options["rank"] = min(options["rank"], graph.num_nodes)
    made = make_features(features, graph, kernel, seed, options)
    assert isinstance(made, DrawnFeatures | SpectrumFeatures)
    return GraphFeatureKernel(made.draw, kernel)
