"""Random walks as a frozen draw: the linear map from a modulation f to sparse features.

A walker that starts at i, stands on a after l steps, and has moved along edges with probabilities
p, adds f(l) prod(U_ab / p_ab) / P(length >= l) to entry (i, a) of Phi, first at l = 0; m walkers are
averaged. The move probabilities cancel in expectation, and so does the halting, so E[Phi] = f(U)
entry by entry (Reid et al. 2024, "General graph random features", Theorem 2.1).

The draw does not contain f: with C_l (rows of start nodes, N) the loads of the visits at step l,
Phi = sum_l f(l) C_l.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from graphs.couplings import Halting, LengthCoupling
from graphs.errors import InvalidArgumentError
from graphs.graph import Graph
from graphs.kernels import GraphKernel
from graphs.walks.hops import HopRule, hops_of
from graphs.walks.moments import check_second_moment
from graphs.walks.moves import Moves
from graphs.walks.visits import Visits


class Pattern(NamedTuple):
    """The sparsity of Phi in CSR form, fixed for a draw."""

    indptr: NDArray[np.int64]  # (n + 1,)
    indices: NDArray[np.int32]  # (nnz,) positions, ascending in each row
    shape: tuple[int, int]  # (n, N)


@dataclass(frozen=True, eq=False)
class WalkSettings:
    """How walks are drawn; with the graph and the start nodes it determines every one of them."""

    num_walkers: int
    halting: Halting
    lengths: str
    directions: str
    transitions: str
    seed: int
    coupling: LengthCoupling
    exact_hops: int | HopRule = 0


@dataclass(frozen=True, eq=False)
class Walks:
    """A frozen draw of random walks from n start nodes; make one with `sample_walks`.

    Attributes:
        graph: The graph they walk on.
        nodes: Positions (n,) of the start nodes, one per row of the features.
        settings: How they were drawn; `walks.seed` repeats the draw.
        pattern: The sparsity of the features, shape (n, N).
        visits: What the walkers leave behind, merged, by entry of the pattern and hop.
    """

    graph: Graph
    nodes: NDArray[np.int64]
    settings: WalkSettings
    pattern: Pattern
    visits: Visits

    @cached_property
    def loads(self) -> sp.csr_array:
        """The loads of each hop, `csr_array` (nnz, L + 1); `values(f)` is its product with f. Formed when asked for."""
        return self.visits.table(self.nodes, self.pattern.indptr, self.pattern.indices)

    @property
    def seed(self) -> int:
        """The seed of the draw."""
        return self.settings.seed

    @cached_property
    def exact_hops(self) -> NDArray[np.int64]:
        """How many first hops of each start node are computed exactly, (n,)."""
        return hops_of(self.settings.exact_hops, Moves(self.graph, self.settings.transitions), self.nodes)

    @cached_property
    def max_length(self) -> int:
        """The number L of steps of the longest walk."""
        return self.visits.max_length

    def weights(self, kernel: GraphKernel) -> NDArray[np.float64]:
        """Return what `values` wants of a kernel: its modulation (L + 1,)."""
        return kernel.modulation(self.max_length)

    def weights_jacobian(self, kernel: GraphKernel) -> NDArray[np.float64]:
        """Return the derivatives of `weights` in the kernel's parameters, (L + 1, p)."""
        return kernel.modulation_jacobian(self.max_length)

    def features(self, kernel: GraphKernel) -> sp.csr_array:
        """Return Phi, `csr_array` (n, N), for a kernel; rows follow `nodes`, columns are positions.

        E[Phi] = f(U) entry by entry. Phi Phi^T is unbiased for the kernel off the diagonal, where it
        multiplies walks of different nodes, which are independent; each diagonal entry is too large
        in expectation by the trace of the covariance of its row. Two independent draws remove that.

        Warns:
            InfiniteVarianceWarning: walks that halt this often have no finite second moment for this
                kernel, so that no number of walkers gives an error bar.
        """
        self.check_second_moment(kernel)
        values = self.values(self.weights(kernel))
        return sp.csr_array((values, self.pattern.indices, self.pattern.indptr), shape=self.pattern.shape)

    def values(
        self,
        f: ArrayLike,  # (>= L + 1,)
    ) -> NDArray[np.float64]:  # (nnz,)
        """Return the values (nnz,) of Phi on `pattern` for a modulation f_0..f_L; more are not used.

        Raises:
            InvalidArgumentError: f is shorter than the longest walk.
        """
        modulation = np.asarray(f, dtype=np.float64)
        if modulation.ndim != 1 or len(modulation) <= self.max_length:
            raise InvalidArgumentError(
                f"The longest walk has {self.max_length} steps, so f needs shape ({self.max_length + 1},), "
                f"got {modulation.shape}. Pad a shorter power series with zeros."
            )
        indptr, indices, _ = self.pattern
        return self.visits.values(modulation[: self.max_length + 1], self.nodes, indptr, indices)

    def values_adjoint(
        self,
        v: ArrayLike,  # (nnz,)
    ) -> NDArray[np.float64]:  # (L + 1,)
        """Return the adjoint of `values` at v (nnz,): the gradient with respect to f, (L + 1,)."""
        vector = np.asarray(v, dtype=np.float64)
        indptr, indices, _ = self.pattern
        if vector.shape != indices.shape:
            raise InvalidArgumentError(f"v must have shape {indices.shape}, got {vector.shape}.")
        return self.visits.adjoint(vector, self.nodes, indptr, indices)

    def at(self, nodes: Iterable[Hashable]) -> "Walks":
        """Return the walks of other start nodes (labels) of the same draw.

        Rows are equal, bit for bit, to those of a draw over all nodes with this seed.

        Raises:
            UnknownNodeError: a label names no node.
        """
        from graphs.walks.drawing import draw

        return draw(self.graph, self.graph.index(nodes), self.settings)

    def check_second_moment(self, kernel: GraphKernel) -> None:
        """Warn where these walks estimate the features of `kernel` with a large or infinite variance.

        Warns:
            InfiniteVarianceWarning: with the largest halting probability that works.
            LargeVarianceWarning: a row's total weight has a relative variance above 1, see
                `relative_variance`.
        """
        s = self.settings
        fewest = int(self.exact_hops.min()) if len(self.nodes) else 0
        check_second_moment(self.graph, kernel, s.halting, s.transitions, s.num_walkers, fewest)
