"""The graph: an immutable weighted adjacency with node labels, and its Laplacian."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.csgraph import connected_components

from graphs.builders.lattices import GridLabels
from graphs.checks import check_choice, check_fits, is_hashable, shown
from graphs.errors import InvalidArgumentError, UnknownNodeError
from graphs.laplacians import LAPLACIANS
from graphs.sources import Sources, freeze

_MAX_DENSE = 20_000


class Spectrum(NamedTuple):
    """The eigendecomposition of the graph's Laplacian L."""

    eigenvalues: NDArray[np.float64]  # (N,) in [0, 2], ascending
    eigenvectors: NDArray[np.float64]  # (N, N), columns


@dataclass(frozen=True, eq=False)
class Graph(Sources):
    """An undirected weighted graph. Build it with one of the `from_...` class methods (`graphs.sources`).

    Inside, nodes are positions 0..N-1; outside, they are labels. Two graphs are equal only if they
    are the same object.

    Attributes:
        adjacency: Symmetric `scipy.sparse.csr_array` (N, N), float64, 32-bit indices, sorted,
            read-only, without explicit zeros.
        labels: N distinct hashable labels: of a grid tuples, of a mesh `range(N)`, both computed when they are asked
            for. None where the positions are the labels.
        coordinates: (N, 2) or (N, 3) places of the nodes for plots, or None.
        num_self_loops_dropped: How many self-loops `self_loops="drop"` left out.
        laplacian: Which L kernels are functions of, see `with_laplacian`.
    """

    laplacian: str = "normalized"

    def __post_init__(self) -> None:
        check_choice("laplacian", self.laplacian, LAPLACIANS)

    @property
    def num_nodes(self) -> int:
        """The number N of nodes."""
        return int(self.adjacency.shape[0])

    @property
    def num_edges(self) -> int:
        """The number of undirected edges, self-loops included."""
        loops = int(np.count_nonzero(self.adjacency.diagonal()))
        return (int(self.adjacency.nnz) + loops) // 2

    @cached_property
    def degrees(self) -> NDArray[np.float64]:
        """Weighted degrees (N,): row sums of the adjacency."""
        return np.asarray(self.adjacency.sum(axis=1), dtype=np.float64)

    def with_laplacian(self, laplacian: str) -> "Graph":
        """Return the same graph with another Laplacian, of which kernels are functions.

        Args:
            laplacian: "normalized": L = I - D^(-1/2) W D^(-1/2). "combinatorial": L = (D - W) / max_a d_a. That is
                D - W divided by `laplacian_scale`, the largest degree, so that its eigenvalues lie in [0, 2] as well
                and every power series in U = I - L converges where it does for the other. To have exp(-t (D - W)), take
                Diffusion(lengthscale=sqrt(2 t s)), s the scale; to have (2 nu / kappa^2 + D - W)^-nu, take
                Matern(nu, kappa sqrt(s)) divided by s^nu.

        Raises:
            InvalidArgumentError: another name.
        """
        return self if laplacian == self.laplacian else replace(self, laplacian=laplacian)

    @property
    def laplacian_scale(self) -> float:
        """What the Laplacian was divided by: the largest degree for "combinatorial" (1 without edges), else 1."""
        largest = float(self.degrees.max()) if self.laplacian == "combinatorial" else 1.0
        return largest if largest > 0 else 1.0

    @cached_property
    def shift_operator(self) -> sp.csr_array:
        """U = I - L, `csr_array` (N, N), non-negative and symmetric, with eigenvalues in [-1, 1].

        For the normalised Laplacian U_ab = W_ab / sqrt(d_a d_b) between neighbours; for the combinatorial one U_ab =
        W_ab / s, and the diagonal has what its row lacks to 1. L has entry 0 at an isolated node, so U has 1
        there: every power series f(U) has sum_l f_l at an isolated node, hence K_ii = k(0).
        """
        return freeze(LAPLACIANS[self.laplacian](self.adjacency, self.degrees))

    @cached_property
    def spectrum(self) -> Spectrum:
        """Eigenvalues (N,) and eigenvectors (N, N) of the Laplacian L; O(N^3), kept.

        Raises:
            InvalidArgumentError: more than 20,000 nodes, beyond what dense algebra is for.
        """
        if self.num_nodes > _MAX_DENSE:
            raise InvalidArgumentError(
                f"An exact kernel on {self.num_nodes} nodes needs a dense eigendecomposition "
                f"({self.num_nodes**2 * 24 / 2**30:.0f} GiB); at most {_MAX_DENSE} nodes are allowed. Use walks."
            )
        check_fits(f"The eigenvectors of {self.num_nodes} nodes", 24.0 * self.num_nodes**2, "Use walks.")
        eigenvalues, eigenvectors = eigh(self.shift_operator.toarray())
        return Spectrum(np.clip(1 - eigenvalues[::-1], 0.0, 2.0), eigenvectors[:, ::-1].copy())

    def index(
        self,
        labels: Iterable[Hashable],  # (n,)
    ) -> NDArray[np.int64]:  # (n,)
        """Return the positions (n,) of n labels.

        Of a grid, positions are understood as well: an integer is no label there.

        Raises:
            UnknownNodeError: a label names no node; where positions are the labels, also a
                non-integer or a number outside 0..N-1.
        """
        if isinstance(self.labels, GridLabels):
            return _check_tuples(labels, self.labels)
        if self.accepts_positions:
            return _check_positions(labels, self.num_nodes)
        assert self.labels is not None
        if isinstance(labels, np.ndarray) and labels.dtype == bool:
            raise UnknownNodeError("Labels are asked for, not a mask: pass the labels where the mask is true.")
        listed = labels.tolist() if isinstance(labels, np.ndarray) else _listed(labels)
        plain = [_in_tuples(label) for label in listed]
        table = self._positions
        for label in plain:
            known = is_hashable(label) and label in table
            if not known or (_is_truth(label) and not _is_truth(self.labels[table[label]])):
                raise UnknownNodeError(f"There is no node {shown(label)}; labels look like {shown(self.labels[0])}.")
        return np.array([table[label] for label in plain], dtype=np.int64)

    def labels_at(
        self,
        positions: NDArray[np.integer[Any]],  # (n,)
    ) -> NDArray[np.int64] | list[Hashable]:
        """Return the labels of n positions: a list, or the positions (n,) where they are the labels.

        Raises:
            UnknownNodeError: a position is outside 0..N-1.
        """
        checked = _check_positions(positions, self.num_nodes)
        if isinstance(self.labels, GridLabels):
            return list(self.labels.at(checked))
        return checked if self.labels is None or self.accepts_positions else [self.labels[i] for i in checked]

    @property
    def accepts_positions(self) -> bool:
        """Whether `index` takes integers for positions: without labels, on meshes, and on grids."""
        return self.labels is None or isinstance(self.labels, range | GridLabels)

    def as_nodes(
        self,
        positions: NDArray[np.int64],  # (n,)
    ) -> NDArray[np.int64] | list[Hashable]:
        """Return what `index` reads as n positions, at the least cost: these (n,) where it takes integers, or labels.

        Raises:
            UnknownNodeError: a position is outside 0..N-1.
        """
        return _check_positions(positions, self.num_nodes) if self.accepts_positions else self.labels_at(positions)

    def largest_component(self) -> "Graph":
        """Return the subgraph of the largest connected part; its nodes keep their labels.

        Where positions were the labels, the old positions become the labels; nodes of a grid keep their tuples.
        """
        _, part = connected_components(self.adjacency, directed=False)
        return self.subgraph(np.flatnonzero(part == np.bincount(part).argmax()))

    def subgraph(
        self,
        positions: NDArray[np.integer[Any]],  # (n,)
    ) -> "Graph":
        """Return the subgraph induced by n distinct positions, in that order, labels kept.

        Raises:
            InvalidArgumentError: a position appears twice, or there is none.
            UnknownNodeError: a position is outside 0..N-1.
        """
        chosen = _check_positions(positions, self.num_nodes)
        if len(chosen) == 0:
            raise InvalidArgumentError("A subgraph has at least one node; no position was given.")
        if len(np.unique(chosen)) != len(chosen):
            raise InvalidArgumentError("A subgraph names each position once.")
        adjacency = sp.csr_array(self.adjacency[chosen][:, chosen])
        adjacency.sort_indices()
        found = self.labels_at(chosen)
        labels = tuple(found.tolist() if isinstance(found, np.ndarray) else found)
        coordinates = None if self.coordinates is None else self.coordinates[chosen]
        return Graph(freeze(adjacency), labels, coordinates, laplacian=self.laplacian)

    @cached_property
    def _positions(self) -> dict[Hashable, int]:
        return {label: i for i, label in enumerate(self.labels or ())}

    def __repr__(self) -> str:
        nodes, edges = (
            f"{n} {what}{'s' * (n != 1)}" for n, what in ((self.num_nodes, "node"), (self.num_edges, "edge"))
        )
        return f"Graph({nodes}, {edges})"


_WAYS_IN = {"is_directed": "from_networkx", "toarray": "from_scipy", "faces": "from_mesh", "__array__": "from_scipy"}
"""What tells an object for which there is a class method of `Graph`."""


def not_a_graph_message(value: Any) -> str | None:
    """Return what to say where a graph is needed and this is none; None of a graph."""
    if isinstance(value, Graph):
        return None
    kind = type(value)
    source = kind.__module__.split(".")[0]
    named = kind.__name__ if source == "builtins" else f"{kind.__name__} of {source}"
    way = next((way for attribute, way in _WAYS_IN.items() if hasattr(value, attribute)), None)
    remedy = f"graphs.Graph.{way} makes one of it" if way else "build one, for example with graphs.Graph.from_edges"
    return f"A graphs.Graph is needed, got {named}; {remedy}."


def check_graph(value: Any) -> None:
    """Refuse what is no graph.

    Raises:
        InvalidArgumentError: which class method of `Graph` takes it.
    """
    wrong = not_a_graph_message(value)
    if wrong is not None:
        raise InvalidArgumentError(wrong)


def _listed(labels: Any) -> list[Any]:
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise UnknownNodeError(f"Nodes are a sequence of labels, got {shown(labels)}.")
    return list(labels)


def _in_tuples(label: Any) -> Any:
    """Return a label as it was, where an array or JSON made lists of tuples."""
    return tuple(_in_tuples(part) for part in label) if isinstance(label, list) else label


def _is_truth(label: Any) -> bool:
    """Whether a label is True or False, which Python counts among the numbers."""
    return isinstance(label, bool | np.bool_)


def _check_tuples(given: Any, labels: GridLabels) -> NDArray[np.int64]:
    """Return the positions (n,) of labels of a grid, or of an array (n, d); integers (n,) are positions."""
    listed = given if isinstance(given, np.ndarray) and given.dtype != object else _listed(given)
    try:
        rows = np.asarray(listed)
    except ValueError as error:  # tuples of several lengths, or tuples and integers
        raise UnknownNodeError(
            f"Nodes of a grid must be tuples of one integer for each of its {len(labels.shape)} axes, or all of them "
            f"positions, got {shown(given)}."
        ) from error
    if rows.ndim != 2 or not np.issubdtype(rows.dtype, np.integer):
        return _check_positions(given, len(labels))
    if listed is not given and any(_is_truth(part) for label in listed for part in label):
        raise UnknownNodeError(
            f"Labels of a grid are tuples of integers, and True or False is none, got {shown(given)}."
        )
    return labels.positions(rows.astype(np.int64))


def _check_positions(given: Any, num_nodes: int) -> NDArray[np.int64]:
    listed = given if isinstance(given, np.ndarray) else _listed(given)
    try:
        positions = np.asarray(listed)
    except ValueError as error:
        raise UnknownNodeError(f"Nodes are integers 0..{num_nodes - 1}, got {shown(given)}.") from error
    if positions.size == 0:
        return np.zeros(0, dtype=np.int64)
    if positions.ndim != 1 or not np.issubdtype(positions.dtype, np.integer):
        raise UnknownNodeError(
            f"Nodes are integers 0..{num_nodes - 1} in one dimension, got {positions.dtype} of shape {positions.shape}."
        )
    if listed is not given and any(map(_is_truth, listed)):
        raise UnknownNodeError(f"Nodes are integers 0..{num_nodes - 1}, and True or False is none, got {shown(given)}.")
    outside = (positions < 0) | (positions >= num_nodes)
    if outside.any():
        raise UnknownNodeError(f"There is no node {positions[outside][0]}; nodes are 0..{num_nodes - 1}.")
    return positions.astype(np.int64)
