"""Random draws for the nodes of a graph in files: settings of walks, and eigenvectors."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import graphs
from graphs.lengths import Sigma, Tuples
from graphs.walks import HopRule
from rfgp.errors import InvalidArgumentError

_MAX_QUANTILES, _ROUNDING = 10_000, 1e-6


def encode_walks(walks: graphs.Walks | None) -> dict[str, Any]:
    """Return the tuned settings of walks as JSON.

    Args:
        walks: The walks. If None, all settings are None.
    """
    settings = None if walks is None else walks.settings
    coupling, hops = (None, None) if settings is None else (settings.length_coupling, settings.exact_hops)
    return {
        "permutation": coupling.permutation.tolist() if isinstance(coupling, Sigma) else None,
        "tuples": coupling.tuples.tolist() if isinstance(coupling, Tuples) else None,
        "hop_limits": hops.limits.tolist() if isinstance(hops, HopRule) else hops,
    }


def decode_walks(described: Mapping[str, Any], lengths: str | None) -> dict[str, Any]:
    """Return the options of `graphs.sample_walks` that `encode_walks` wrote.

    Args:
        described: The JSON.
        lengths: The coupling of the lengths of walks. If None, there are no walks.

    Raises:
        InvalidArgumentError: If they do not match the coupling.
    """
    permutation, tuples, limits = (described[name] for name in ("permutation", "tuples", "hop_limits"))
    matched = lengths == "sigma"
    if (permutation is not None) != matched or (matched and not 2 <= len(permutation) <= _MAX_QUANTILES):
        raise InvalidArgumentError(f"only sigma walks must have a permutation of 2 to {_MAX_QUANTILES} quantiles")
    if (tuples is not None) != (lengths == "learned"):
        raise InvalidArgumentError("only learned walks must have a table of tuples")
    if not isinstance(limits, list | int | None):
        raise InvalidArgumentError("the hops of walks must be a number, or a list of limits")
    hops = HopRule(np.array(limits)) if isinstance(limits, list) else limits
    drawn = {"permutation": permutation, "tuples": tuples, "exact_hops": hops}
    return {name: value for name, value in drawn.items() if value is not None}


def eigenpairs(graph: graphs.Graph, arrays: Mapping[str, NDArray[Any]]) -> graphs.SpectralFeatures:
    """Return spectral features from eigenvalues and eigenvectors.

    Args:
        graph: The graph, with N nodes.
        arrays: The arrays "eigenvalues" (r,) and "eigenvectors" (N, r).

    Raises:
        InvalidArgumentError: If they do not match the graph.
    """
    values, vectors = (arrays[name] for name in ("eigenvalues", "eigenvectors"))
    is_float = values.dtype == vectors.dtype == np.float64
    if not is_float or values.ndim != 1 or len(values) == 0 or vectors.shape != (graph.num_nodes, len(values)):
        raise InvalidArgumentError(f"eigenvectors must match {graph.num_nodes} nodes, got shape {vectors.shape}")
    if np.abs(values).max() > 1 or np.abs(vectors).max() > 1 + _ROUNDING:
        raise InvalidArgumentError("the eigenvalues and the eigenvectors must be at most 1")
    return graphs.SpectralFeatures(graph, np.zeros(0, dtype=np.int64), values, vectors)
