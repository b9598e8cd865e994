"""Merged visits of walks, with a few bytes each.

The modulation of a kernel K is the sequence of coefficients f_l of K^(1/2) = sum_l f_l U^l, with the shift operator
U = I - L.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs.arrays import pointers
from graphs.walks.drawing import VisitArrays
from graphs.walks.settings import WalkSettings
from graphs.walks.transitions import Floats

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Visits:
    """Loads by start, node and hop: the linear map from a modulation to features.

    The load of a visit is its importance weight. It is the product of U_ab / p_ab over the steps of the walk, over the
    number of walkers m times P(length >= hop). A feature is the sum over visits of modulation[hop] times load. For
    moves in proportion to weight the load of a visit of node a from node i is sqrt(d_i / d_a) / (m P(length >= hop)).
    Then only the number of visits is stored, an integer of one or two bytes.

    Attributes:
        starts: Positions (n,) of the start nodes.
        indptr: The first entry (n + 1,) of each start in the pattern of the features.
        indices: The nodes (nnz,) of the entries.
        visit_indptr: The first visit (n + 1,) of each start.
        hop_counts: The number of hops (nnz,) of each entry of the pattern.
        hops: Hops (V,), ascending in each entry.
        loads: Sums of loads (V,), or numbers of visits.
        load_per_visit: The load (L + 1,) of one visit if `loads` are numbers of visits, otherwise (0,).
        sqrt_degrees: sqrt(d) (N,) if `loads` are numbers of visits, otherwise (0,). All 1 for the combinatorial
            Laplacian.

    Examples:
        >>> import graphs
        >>> visits = graphs.sample_walks(graphs.Graph.from_grid((3, 3)), num_walkers=2, seed=0).visits
        >>> len(visits.loads) == int(visits.hop_counts.sum())
        True
    """

    starts: NDArray[np.int64]
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    visit_indptr: NDArray[np.int64]
    hop_counts: Array
    hops: Array
    loads: Array
    load_per_visit: Floats
    sqrt_degrees: Floats

    @classmethod
    def of(
        cls,
        starts: NDArray[np.int64],  # (n,)
        settings: WalkSettings,
        columns: VisitArrays,
        sqrt_degrees: Floats,  # (N,)
    ) -> "Visits":
        """Return drawn visits, with read-only arrays.

        Args:
            starts: Positions (n,) of the start nodes.
            settings: The settings of the walks.
            columns: The arrays of the visits, from `graphs.walks.draw`.
            sqrt_degrees: The square roots (N,) of the degrees of the transition model.
        """
        node_counts, visit_counts, indices, hop_counts, hops, loads = columns
        load_per_visit = np.zeros(0)
        if loads.dtype == np.float64:
            sqrt_degrees = np.zeros(0)
        else:
            load_per_visit = 1 / (settings.num_walkers * settings.halting.survival(int(hops.max(initial=0))))
            load_per_visit[0] = 1.0
        arrays = (
            pointers(node_counts),
            indices,
            pointers(visit_counts),
            hop_counts,
            hops,
            loads,
            load_per_visit,
            sqrt_degrees,
        )
        for array in arrays:
            array.flags.writeable = False
        return cls(starts, *arrays)

    @property
    def max_length(self) -> int:
        """The last hop."""
        return int(self.hops.max(initial=0))

    def values(
        self,
        f: Floats,  # (>= L + 1,)
    ) -> Floats:  # (nnz,)
        """Return sum_l f_l times the load at hop l, of each entry.

        Args:
            f: The modulation (L + 1,). Further terms are ignored.
        """
        from graphs.walks.compiled import gather

        weights = f[: len(self.load_per_visit)] * self.load_per_visit if len(self.load_per_visit) else f
        return np.asarray(gather(*self._arrays, weights, *self._factors))

    def adjoint(
        self,
        v: Floats,  # (nnz,)
    ) -> Floats:  # (L + 1,)
        """Return the adjoint of `values`: the gradient (L + 1,) in the modulation.

        Args:
            v: The gradient (nnz,) in the values.
        """
        from graphs.walks.compiled import scatter

        out = scatter(*self._arrays, v, *self._factors, self.max_length)
        return np.asarray(out * self.load_per_visit if len(self.load_per_visit) else out)

    def to_csr(self) -> sp.csr_array:
        """Return the loads as a `csr_array` (nnz, L + 1)."""
        loads, shape = self.loads.astype(np.float64), (len(self.indices), self.max_length + 1)
        if len(self.load_per_visit):
            left, right = self._factors
            factors = np.repeat(left, np.diff(self.indptr)) * right[self.indices]
            loads *= np.repeat(factors, self.hop_counts) * self.load_per_visit[self.hops]
        return sp.csr_array((loads, self.hops.astype(np.int32), pointers(self.hop_counts)), shape=shape)

    @property
    def _arrays(self) -> tuple[Array, ...]:
        return self.visit_indptr, self.indptr, self.indices, self.hop_counts, self.hops, self.loads

    @property
    def _factors(self) -> tuple[Floats, Floats]:
        return (
            (self.sqrt_degrees[self.starts], 1 / self.sqrt_degrees)
            if len(self.sqrt_degrees)
            else (np.zeros(0), np.zeros(0))
        )
