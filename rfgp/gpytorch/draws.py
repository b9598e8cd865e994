"""What a classifier's kernel is made of, by name: the exact kernel, or features."""

from collections.abc import Mapping
from typing import Any

import numpy as np

import graphs
from graphs.kernels import GraphKernel
from rfgp.errors import InvalidArgumentError
from rfgp.gpytorch.graph import GraphFeatureKernel
from rfgp.gpytorch.graph_exact import GraphExactKernel

FEATURES = ("auto", "exact", "walks", "chebyshev", "taylor", "spectrum")
EXACT_LIMIT = 2000
NONZEROS_PER_WALKER = 4


def choose(features: str, graph: graphs.Graph) -> str:
    """Return the features that a name stands for: "auto" is exact up to 2,000 nodes, walks beyond.

    Raises:
        InvalidArgumentError: an unknown name.
    """
    if features not in FEATURES:
        raise InvalidArgumentError(f"features must be one of {', '.join(map(repr, FEATURES))}, got {features!r}.")
    if features == "auto":
        return "exact" if graph.num_nodes <= EXACT_LIMIT else "walks"
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
    graph: graphs.Graph, kernel: GraphKernel, features: str, seed: int, walk: dict[str, Any]
) -> GraphExactKernel | GraphFeatureKernel:
    degree, rank = walk.pop("degree"), walk.pop("rank")
    if features == "exact":
        return GraphExactKernel(graph, kernel)
    if features == "spectrum":
        return GraphFeatureKernel(graphs.spectral_features(graph, [], min(rank, graph.num_nodes)), kernel)
    if features in ("chebyshev", "taylor"):
        make = graphs.chebyshev_features if features == "chebyshev" else graphs.taylor_features
        return GraphFeatureKernel(make(graph, [], degree), kernel)
    if isinstance(walk["num_walkers"], int | np.integer):
        walk.setdefault("max_nonzeros", NONZEROS_PER_WALKER * walk["num_walkers"])
    return GraphFeatureKernel(graphs.sample_walks(graph, [], seed=seed, kernel=kernel, **walk), kernel)
