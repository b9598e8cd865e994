"""The kernels of a classifier by name: exact, or through features."""

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
    """Return the features of a name. "auto" is exact up to 2,000 nodes, and walks beyond.

    Raises:
        InvalidArgumentError: The name is unknown.

    Example:
        >>> choose("walks", graphs.Graph.from_edges([(0, 1)]))
        'walks'
    """
    if features not in FEATURES:
        raise InvalidArgumentError(f"features must be one of {', '.join(map(repr, FEATURES))}, got {features!r}.")
    if features == "auto":
        return "exact" if graph.num_nodes <= MOST_EXACT_NODES else "walks"
    return features


def make_kernel(
    graph: graphs.Graph, kernel: GraphKernel, features: str, seed: int, options: Mapping[str, Any]
) -> GraphExactKernel | GraphFeatureKernel:
    """Return the kernel of a name. With features it has no nodes until `.at` gives it some.

    Args:
        graph: The graph.
        kernel: The graph kernel at its starting values. Walks are tuned to it.
        features: One of `FEATURES` except "auto".
        seed: Seed of the walks.
        options: `degree` and `rank` of the deterministic features, and options of `graphs.sample_walks`.

    Examples:
        >>> line = graphs.Graph.from_edges([("a", "b"), ("b", "c")])
        >>> kernel = make_kernel(line, graphs.kernels.Diffusion(2.0), "exact", 0, {})
        >>> round(kernel.lengthscale.item(), 3)
        2.0
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
