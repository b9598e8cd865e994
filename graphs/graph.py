"""The graph: an immutable weighted adjacency matrix with node labels, and its Laplacian."""

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
from graphs.checks import check_choice, check_fits, is_hashable, short_repr
from graphs.errors import InvalidArgumentError, UnknownNodeError
from graphs.laplacians import LAPLACIANS
from graphs.sources import GraphConstructors, freeze

_MAX_DENSE = 20_000
"""The largest number of nodes for dense linear algebra."""


class Spectrum(NamedTuple):
    """The eigendecomposition of the graph's Laplacian L.

    Examples:
        >>> import graphs
        >>> graphs.Graph.from_edges([(0, 1)]).spectrum.eigenvalues.round(12).tolist()
        [0.0, 2.0]
    """

    eigenvalues: NDArray[np.float64]  # (N,) in [0, 2], ascending
    eigenvectors: NDArray[np.float64]  # (N, N), columns


@dataclass(frozen=True, eq=False)
class Graph(GraphConstructors):
    """An undirected weighted graph.

    Build it with one of the `from_...` class methods, which `graphs.sources` defines. Two graphs are equal only if they
    are the same object.

    Attributes:
        adjacency: Symmetric `scipy.sparse.csr_array` (N, N) of float64 with 32-bit sorted indices. It is read-only and
            has no explicit zeros.
        labels: N distinct hashable labels. The labels of a grid are tuples and those of a mesh `range(N)`, both
            computed on demand. None if positions are the labels.
        coordinates: Coordinates (N, 2) or (N, 3) of the nodes, or None.
        num_self_loops_dropped: The number of self-loops that `self_loops="drop"` removed.
        laplacian: The Laplacian that kernels are functions of, see `with_laplacian`.

    Examples:
        >>> import graphs
        >>> g = graphs.Graph.from_edges([("a", "b"), ("b", "c")], weights=[1.0, 2.0])
        >>> g
        Graph(3 nodes, 2 edges)
        >>> g.degrees.tolist(), g.index(["c", "a"]).tolist()
        ([1.0, 3.0, 2.0], [2, 0])
        >>> g.spectrum.eigenvalues.round(3).tolist()
        [0.0, 1.0, 2.0]
        >>> g.num_nodes, g.num_edges, g.laplacian_scale, g.accepts_positions
        (3, 2, 1.0, False)
        >>> import numpy as np
        >>> g.labels_at(np.array([2, 0])), g.as_nodes(np.array([1])), g.subgraph(np.array([0, 1]))
        (['c', 'a'], ['b'], Graph(2 nodes, 1 edge))
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
        """Return the same graph with another Laplacian L.

        The combinatorial Laplacian D - W is divided by the largest degree, `laplacian_scale`. Its eigenvalues then lie
        in [0, 2] as well, and power series in U = I - L converge for both Laplacians. Let s be the scale. Then exp(-t
        (D - W)) is Diffusion(lengthscale=sqrt(2 t s)). Likewise (2 nu / kappa^2 + D - W)^-nu is Matern(nu, kappa
        sqrt(s)) divided by s^nu.

        Args:
            laplacian: "normalized" for L = I - D^(-1/2) W D^(-1/2), or "combinatorial" for L = (D - W) / max_a d_a.

        Raises:
            InvalidArgumentError: If the name is unknown.

        Examples:
            >>> import graphs
            >>> star = graphs.Graph.from_edges([(0, 1), (0, 2), (0, 3)]).with_laplacian("combinatorial")
            >>> star.laplacian_scale
            3.0
        """
        return self if laplacian == self.laplacian else replace(self, laplacian=laplacian)

    @property
    def laplacian_scale(self) -> float:
        """The divisor of D - W: the largest degree for "combinatorial", otherwise 1."""
        largest = float(self.degrees.max()) if self.laplacian == "combinatorial" else 1.0
        return largest if largest > 0 else 1.0

    @cached_property
    def shift_operator(self) -> sp.csr_array:
        """U = I - L, `csr_array` (N, N), symmetric with eigenvalues in [-1, 1].

        For the normalized Laplacian U_ab = W_ab / sqrt(d_a d_b) for neighbors a and b. For the combinatorial one U_ab =
        W_ab / s, and the diagonal makes each row sum to 1. At an isolated node L is 0 and U is 1, hence K_ii = k(0).
        """
        return freeze(LAPLACIANS[self.laplacian](self.adjacency, self.degrees))

    @cached_property
    def spectrum(self) -> Spectrum:
        """Eigenvalues (N,) and eigenvectors (N, N) of the Laplacian L, cached; O(N^3).

        Raises:
            InvalidArgumentError: If the graph has more than 20,000 nodes.
        """
        if self.num_nodes > _MAX_DENSE:
            raise InvalidArgumentError(
                f"An exact kernel takes at most {_MAX_DENSE} nodes, got {self.num_nodes}, whose eigendecomposition "
                f"needs {self.num_nodes**2 * 24 / 2**30:.0f} GiB. Use walks or a series instead."
            )
        check_fits(f"The eigenvectors of {self.num_nodes} nodes", 24.0 * self.num_nodes**2, "Use walks or a series.")
        eigenvalues, eigenvectors = eigh(self.shift_operator.toarray())
        return Spectrum(np.clip(1 - eigenvalues[::-1], 0.0, 2.0), eigenvectors[:, ::-1].copy())

    def index(
        self,
        labels: Iterable[Hashable],  # (n,)
    ) -> NDArray[np.int64]:  # (n,)
        """Return the positions (n,) of n labels.

        Grids also accept positions, since an integer is not a label there.

        Args:
            labels: Labels of n nodes, or their positions if `accepts_positions`.

        Raises:
            UnknownNodeError: If a label is not a node. If positions are the labels, also for non-integers and numbers
                outside 0..N-1.
        """
        if isinstance(self.labels, GridLabels):
            return _check_tuples(labels, self.labels)
        if self.accepts_positions:
            return _check_positions(labels, self.num_nodes)
        assert self.labels is not None
        if isinstance(labels, np.ndarray) and labels.dtype == bool:
            raise UnknownNodeError("Nodes must be labels, got a boolean mask. Pass the labels where the mask is true.")
        listed = labels.tolist() if isinstance(labels, np.ndarray) else _listed(labels)
        plain = [_lists_to_tuples(label) for label in listed]
        table = self._positions
        for label in plain:
            known = is_hashable(label) and label in table
            if not known or (_is_boolean(label) and not _is_boolean(self.labels[table[label]])):
                example = short_repr(self.labels[0])
                raise UnknownNodeError(
                    f"Nodes must be labels of the graph, such as {example}, got {short_repr(label)}."
                )
        return np.array([table[label] for label in plain], dtype=np.int64)

    def labels_at(
        self,
        positions: NDArray[np.integer[Any]],  # (n,)
    ) -> NDArray[np.int64] | list[Hashable]:
        """Return the labels of n positions.

        Args:
            positions: Positions (n,) of nodes, integers from 0.

        Returns:
            A list of labels, or the positions (n,) if they are the labels.

        Raises:
            UnknownNodeError: If a position is outside 0..N-1.
        """
        checked = _check_positions(positions, self.num_nodes)
        if isinstance(self.labels, GridLabels):
            return list(self.labels.at(checked))
        return checked if self.labels is None or self.accepts_positions else [self.labels[i] for i in checked]

    @property
    def accepts_positions(self) -> bool:
        """Whether `index` accepts positions: without labels, on meshes and on grids."""
        return self.labels is None or isinstance(self.labels, range | GridLabels)

    def as_nodes(
        self,
        positions: NDArray[np.int64],  # (n,)
    ) -> NDArray[np.int64] | list[Hashable]:
        """Return n positions in the cheapest form that `index` accepts.

        These are the positions (n,) if `index` accepts positions, otherwise labels.

        Args:
            positions: Positions (n,) of nodes, integers from 0.

        Raises:
            UnknownNodeError: If a position is outside 0..N-1.
        """
        return _check_positions(positions, self.num_nodes) if self.accepts_positions else self.labels_at(positions)

    def largest_component(self) -> "Graph":
        """Return the subgraph of the largest connected component.

        Nodes keep their labels. If positions were the labels, the old positions become the labels.

        Examples:
            >>> import graphs
            >>> g = graphs.Graph.from_edges([("a", "b"), ("c", "d"), ("d", "e")])
            >>> g.largest_component().labels
            ('c', 'd', 'e')
        """
        _, part = connected_components(self.adjacency, directed=False)
        return self.subgraph(np.flatnonzero(part == np.bincount(part).argmax()))

    def subgraph(
        self,
        positions: NDArray[np.integer[Any]],  # (n,)
    ) -> "Graph":
        """Return the subgraph induced by n distinct positions, in their order.

        Args:
            positions: Distinct positions (n,) of the nodes to keep.

        Raises:
            InvalidArgumentError: If there is no position, or one appears twice.
            UnknownNodeError: If a position is outside 0..N-1.
        """
        chosen = _check_positions(positions, self.num_nodes)
        if len(chosen) == 0:
            raise InvalidArgumentError("positions must hold at least one node, got none. Pass the nodes to keep.")
        if len(np.unique(chosen)) != len(chosen):
            raise InvalidArgumentError("positions must be distinct, got one twice. Pass np.unique(positions).")
        adjacency = sp.csr_array(self.adjacency[chosen][:, chosen])
        adjacency.sort_indices()
        chosen_labels = self.labels_at(chosen)
        labels = tuple(chosen_labels.tolist() if isinstance(chosen_labels, np.ndarray) else chosen_labels)
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
"""The class method of `Graph` for objects with an attribute."""


def not_a_graph_message(value: Any) -> str | None:
    """Return an error message if a value is not a graph, otherwise None.

    Args:
        value: The value.

    Examples:
        >>> from graphs.graph import not_a_graph_message
        >>> not_a_graph_message([1, 2])
        'graph must be a graphs.Graph, got list. Build one, for example with graphs.Graph.from_edges.'
    """
    if isinstance(value, Graph):
        return None
    kind = type(value)
    source = kind.__module__.split(".")[0]
    named = kind.__name__ if source == "builtins" else f"{kind.__name__} of {source}"
    constructor = next((constructor for attribute, constructor in _WAYS_IN.items() if hasattr(value, attribute)), None)
    remedy = (
        f"Convert it with graphs.Graph.{constructor}"
        if constructor
        else "Build one, for example with graphs.Graph.from_edges"
    )
    return f"graph must be a graphs.Graph, got {named}. {remedy}."


def check_graph(value: Any) -> None:
    """Check that a value is a graph.

    Args:
        value: The value.

    Raises:
        InvalidArgumentError: If it is not. The message names the class method of `Graph` that converts it.

    Examples:
        >>> import graphs
        >>> from graphs.graph import check_graph
        >>> check_graph(graphs.Graph.from_grid((2, 2)))
    """
    wrong = not_a_graph_message(value)
    if wrong is not None:
        raise InvalidArgumentError(wrong)


def _listed(labels: Any) -> list[Any]:
    if isinstance(labels, str | bytes) or not isinstance(labels, Iterable):
        raise UnknownNodeError(f"Nodes must be a sequence of labels, got {short_repr(labels)}. Pass a list.")
    return list(labels)


def _lists_to_tuples(label: Any) -> Any:
    """Return a label with lists as tuples."""
    return tuple(_lists_to_tuples(part) for part in label) if isinstance(label, list) else label


def _is_boolean(label: Any) -> bool:
    """Return whether a label is True or False, which Python counts as numbers."""
    return isinstance(label, bool | np.bool_)


def _check_tuples(given: Any, labels: GridLabels) -> NDArray[np.int64]:
    """Return the positions (n,) of grid labels. Integers (n,) are positions."""
    listed = given if isinstance(given, np.ndarray) and given.dtype != object else _listed(given)
    try:
        rows = np.asarray(listed)
    except ValueError as error:  # tuples of several lengths, or tuples and integers
        raise UnknownNodeError(
            f"Nodes of a grid must be tuples of {len(labels.shape)} integers, or all of them positions, got "
            f"{short_repr(given)}."
        ) from error
    if rows.ndim != 2 or not np.issubdtype(rows.dtype, np.integer):
        return _check_positions(given, len(labels))
    if listed is not given and any(_is_boolean(part) for label in listed for part in label):
        raise UnknownNodeError(f"Labels of a grid must be tuples of integers, not booleans, got {short_repr(given)}.")
    return labels.positions(rows.astype(np.int64))


def _check_positions(given: Any, num_nodes: int) -> NDArray[np.int64]:
    listed = given if isinstance(given, np.ndarray) else _listed(given)
    try:
        positions = np.asarray(listed)
    except ValueError as error:
        raise UnknownNodeError(f"Nodes must be integers 0..{num_nodes - 1}, got {short_repr(given)}.") from error
    if positions.size == 0:
        return np.zeros(0, dtype=np.int64)
    if positions.ndim != 1 or not np.issubdtype(positions.dtype, np.integer):
        raise UnknownNodeError(
            f"Nodes must be integers 0..{num_nodes - 1} of shape (n,), got {positions.dtype} of shape "
            f"{positions.shape}."
        )
    if listed is not given and any(map(_is_boolean, listed)):
        raise UnknownNodeError(f"Nodes must be integers 0..{num_nodes - 1}, not booleans, got {short_repr(given)}.")
    outside = (positions < 0) | (positions >= num_nodes)
    if outside.any():
        raise UnknownNodeError(f"Nodes must be 0..{num_nodes - 1}, got {positions[outside][0]}.")
    return positions.astype(np.int64)
