"""The field with precision (L + x)^p on a graph, for kernels that are powers of the resolvent.

Forming the power loses digits if x is small: the constant vector has the eigenvalue x^p among entries of size 1. Its
relative error, and that of results that depend on it, is about eps (1 + 2 / x)^p. The determinant keeps its digits,
since log |(L + x)^p| = p log |L + x|.
"""

from functools import cached_property
from math import comb
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs.checks import check_count
from graphs.cholesky import Factor
from graphs.graph import Graph
from graphs.precisions.base import Floats, MarkovField, Pattern
from graphs.precisions.determinant import LogDeterminant
from graphs.precisions.powers import entry_indices, reached_within, symmetric_powers

MAX_POWERS = 16
"""The largest order."""


class ResolventField(MarkovField):
    """The field with precision (L + x)^p on the nodes of a graph, with shift x.

    Args:
        laplacian: L, symmetric with eigenvalues in [0, 2], (N, N).
        order: The power p, a positive integer.
        coordinates: Coordinates (N, 2) or (N, 3) of the nodes for orderings, or None.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from graphs.precisions import resolvent_field
        >>> field = resolvent_field(graphs.Graph.from_grid((3, 3)), order=2)
        >>> field.parameters, field.entries(np.array([0.5])).shape
        (('shift',), (61,))
    """

    parameters = ("shift",)

    def __init__(self, laplacian: sp.csr_array, order: int, coordinates: Floats | None = None) -> None:
        self.order, self.coordinates = check_count("order", order, 1, MAX_POWERS), coordinates
        self._laplacian = laplacian
        self.log_determinants = LogDeterminant(self._log_determinant_at)

    @cached_property
    def pattern(self) -> Pattern:
        """Pairs of nodes within p edges."""
        nodes, remedy = f"{self._laplacian.shape[0]:,} nodes", "Hubs make it dense: use walks or a series."
        return reached_within(self._laplacian, self.order, nodes, remedy)

    def entries(
        self,
        values: Floats,  # (1,)
    ) -> Floats:  # (nnz,)
        """Return (L + x)^p = sum_j binom(p, j) x^(p - j) L^j on the pattern.

        Args:
            values: The shift x, (1,).
        """
        p, x = self.order, float(values[0])
        return np.asarray(sum(comb(p, j) * x ** (p - j) * self.powers[j] for j in range(p + 1)))

    def pull_back(
        self,
        values: Floats,  # (1,)
        weights: Floats,  # (nnz,)
    ) -> Floats:  # (1,)
        """Return sum_e weights_e d (L + x)^p_e / dx.

        Args:
            values: The shift x, (1,).
            weights: The derivative (nnz,) of a scalar in each entry of Q.
        """
        p, x = self.order, float(values[0])
        slopes = (comb(p, j) * (p - j) * x ** (p - j - 1) * float(weights @ self.powers[j]) for j in range(p))
        return np.array([sum(slopes)])

    def log_determinant(
        self,
        values: Floats,  # (1,)
    ) -> tuple[float, Floats]:
        """Return p log |L + x| and its derivative (1,), to about 1e-12 N.

        Args:
            values: The shift x, (1,).
        """
        value, slope = self.log_determinants(float(values[0]))
        return self.order * value, np.array([self.order * slope])

    @cached_property
    def powers(self) -> NDArray[np.float64]:
        """The entries of I, L, ..., L^p on the pattern, (p + 1, nnz)."""
        identity = sp.csr_array(sp.eye_array(self._laplacian.shape[0]))
        out = np.zeros((self.order + 1, len(self.pattern.indices)))
        for row, power in zip(out, symmetric_powers(identity, self._laplacian, self.order), strict=True):
            row[entry_indices(power, self.pattern)] = power.data
        return out

    @cached_property
    def _first(self) -> "ResolventField":
        """The field with precision L + x."""
        return self if self.order == 1 else ResolventField(self._laplacian, 1, self.coordinates)

    def _log_determinant_at(self, shift: float) -> float:
        return Factor.of(self._first.analysis, self._first.entries(np.array([shift]))).log_determinant


_CACHE: "WeakKeyDictionary[Graph, dict[int, ResolventField]]" = WeakKeyDictionary()
"""The fields of each graph by their order."""


def resolvent_field(graph: Graph, order: int) -> ResolventField:
    """Return the field with precision (L + x)^p on a graph, cached with the graph.

    Args:
        graph: The graph.
        order: The power p, a positive integer.

    Raises:
        InvalidArgumentError: If the order is out of range.

    Examples:
        >>> import graphs
        >>> from graphs.precisions import resolvent_field
        >>> g = graphs.Graph.from_grid((3, 3))
        >>> resolvent_field(g, 2) is resolvent_field(g, 2)
        True
    """
    fields = _CACHE.setdefault(graph, {})
    order = check_count("order", order, 1, MAX_POWERS)
    if order not in fields:
        identity = sp.eye_array(graph.num_nodes, format="csr")
        fields[order] = ResolventField(sp.csr_array(identity - graph.shift_operator), order, graph.coordinates)
    return fields[order]
