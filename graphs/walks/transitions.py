"""Transitions of a walk: their probabilities, and the factors by which they change the load."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs.graph import Graph

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TransitionModel:
    """Transition probabilities of walks, and the importance weights of steps.

    The load of a walk is its importance weight, the product of U_ab / p_ab over its steps. With transitions in
    proportion to weight, p_ab = U_ab r_b / r_a, and a step multiplies the load by U_ab / p_ab = r_a / r_b. The load of
    a walk from i to a is then r_i / r_a on any path. For the normalized Laplacian r_a = sqrt(d_a), so p_ab = W_ab /
    d_a. For the combinatorial Laplacian r_a = 1, and walks stay at a node with probability U_aa.

    U = I - L is the shift operator: D^(-1/2) W D^(-1/2) for the normalized Laplacian L, and I - (D - W) / max_a d_a for
    the combinatorial one.

    Attributes:
        graph: The graph.
        transitions: "weights" or "uniform".

    Examples:
        >>> import graphs
        >>> from graphs.walks.transitions import TransitionModel
        >>> model = TransitionModel(graphs.Graph.from_edges([(0, 1), (1, 2)], [1.0, 3.0]), "weights")
        >>> model.probabilities.round(6).tolist(), model.load_is_path_independent
        ([1.0, 0.25, 0.75, 1.0], True)
    """

    graph: Graph
    transitions: str

    @property
    def matrix(self) -> sp.csr_array:
        """The shift operator U, (N, N)."""
        return self.graph.shift_operator

    @cached_property
    def sqrt_degrees(self) -> Floats:  # (N,)
        """Square roots r (N,) of the degrees for the normalized Laplacian, 1 at isolated nodes.

        For the combinatorial Laplacian, r is 1 at all nodes.
        """
        if self.graph.laplacian == "combinatorial":
            return np.ones(self.graph.num_nodes)
        return np.sqrt(np.where(self.graph.degrees > 0, self.graph.degrees, 1.0))

    @cached_property
    def probabilities(self) -> Floats:  # (nnz,)
        """Transition probabilities p_ab in proportion to weight, (0,) if they are uniform."""
        matrix, counts = self.matrix, np.diff(self.matrix.indptr)
        weights = self.graph.adjacency.data
        if self.graph.laplacian == "normalized" and (len(weights) == 0 or weights.min() == weights.max()):
            return np.zeros(0)
        p = matrix.data * self.sqrt_degrees[matrix.indices] / np.repeat(self.sqrt_degrees, counts)
        return np.zeros(0) if np.allclose(p, 1 / np.repeat(counts, counts), rtol=1e-12, atol=0) else p

    @property
    def load_is_path_independent(self) -> bool:
        """Whether the load of a walk depends only on its first and last node."""
        return self.transitions == "weights" or len(self.probabilities) == 0

    @cached_property
    def cumulative(self) -> Floats:  # (nnz,)
        """Cumulative transition probabilities of each row, (0,) if uniform."""
        if self.transitions == "uniform" or len(self.probabilities) == 0:
            return np.zeros(0)
        from graphs.walks.compiled import cumulate

        return np.asarray(cumulate(self.matrix.indptr, self.probabilities))

    @cached_property
    def load_factors(self) -> Floats:  # (nnz,)
        """Factors U_ab / p_ab by which steps multiply the load."""
        matrix, counts = self.matrix, np.diff(self.matrix.indptr)
        if self.load_is_path_independent:
            return np.asarray(np.repeat(self.sqrt_degrees, counts) / self.sqrt_degrees[matrix.indices])
        return np.asarray(matrix.data * np.repeat(counts, counts))
