"""The visits of walks, merged, in a few bytes each."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs.walks.drawing import Columns
from graphs.walks.moves import Floats
from graphs.walks.settings import WalkSettings

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Visits:
    """Loads by start, node and hop, beside the pattern of the features (indptr, indices).

    Where the load of one visit is sqrt(d_i / d_a) / (m P(length >= hop)), as for moves in proportion to weight,
    only their number is held, an integer of one or two bytes.

    Attributes:
        indptr: (n + 1,) where each start's visits begin.
        hop_counts: (nnz,) how many hops each entry of the pattern has.
        hops: (V,) ascending in each entry.
        loads: (V,) sums of loads, or numbers of visits.
        shares: (L + 1,) what one visit counts, where these are numbers; else (0,).
        roots: (N,) sqrt(d), where these are numbers; else (0,).
    """

    indptr: NDArray[np.int64]
    hop_counts: Array
    hops: Array
    loads: Array
    shares: Floats
    roots: Floats

    @classmethod
    def of(
        cls,
        columns: Columns,
        settings: WalkSettings,
        roots: Floats,  # (N,)
    ) -> "Visits":
        """Return the visits that were drawn, read-only; `roots` are those of the moves."""
        shares, loads = np.zeros(0), columns.loads
        if loads.dtype == np.float64:
            roots = np.zeros(0)
        else:
            shares = 1 / (settings.num_walkers * settings.halting.survival(int(columns.hops.max(initial=0))))
            shares[0] = 1.0
        arrays = (pointers(columns.visit_counts), columns.hop_counts, columns.hops, loads, shares, roots)
        for array in arrays:
            array.flags.writeable = False
        return cls(*arrays)

    @property
    def max_length(self) -> int:
        """The last hop."""
        return int(self.hops.max(initial=0))

    def values(
        self,
        f: Floats,  # (>= L + 1,)
        starts: NDArray[np.int64],  # (n,)
        indptr: NDArray[np.int64],  # (n + 1,)
        indices: NDArray[np.int32],  # (nnz,)
    ) -> Floats:  # (nnz,)
        """Return sum_l f_l times the load at hop l, of each entry."""
        from graphs.walks.compiled import gather

        weights = f[: len(self.shares)] * self.shares if len(self.shares) else f
        return np.asarray(gather(*self._arrays(indptr, indices), weights, *self._factors(starts)))

    def adjoint(
        self,
        v: Floats,  # (nnz,)
        starts: NDArray[np.int64],  # (n,)
        indptr: NDArray[np.int64],  # (n + 1,)
        indices: NDArray[np.int32],  # (nnz,)
    ) -> Floats:  # (L + 1,)
        """Return the adjoint of `values` at v."""
        from graphs.walks.compiled import scatter

        out = scatter(*self._arrays(indptr, indices), v, *self._factors(starts), self.max_length)
        return np.asarray(out * self.shares if len(self.shares) else out)

    def table(self, starts: NDArray[np.int64], indptr: NDArray[np.int64], indices: NDArray[np.int32]) -> sp.csr_array:
        """Return the loads as a `csr_array` (nnz, L + 1)."""
        loads = self.loads.astype(np.float64)
        if len(self.shares):
            left, right = self._factors(starts)
            factors = np.repeat(left, np.diff(indptr)) * right[indices]
            loads *= np.repeat(factors, self.hop_counts) * self.shares[self.hops]
        return sp.csr_array(
            (loads, self.hops.astype(np.int32), pointers(self.hop_counts)), shape=(len(indices), self.max_length + 1)
        )

    def _arrays(self, indptr: Array, indices: Array) -> tuple[Array, ...]:
        return self.indptr, indptr, indices, self.hop_counts, self.hops, self.loads

    def _factors(self, starts: NDArray[np.int64]) -> tuple[Floats, Floats]:
        return (self.roots[starts], 1 / self.roots) if len(self.roots) else (np.zeros(0), np.zeros(0))


def pointers(
    counts: Array,  # (n,)
) -> NDArray[np.int64]:  # (n + 1,)
    """Return where the entries of each row begin and end, (n + 1,), for the numbers of them, (n,)."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
