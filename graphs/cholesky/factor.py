"""The Cholesky factor of a sparse symmetric positive definite matrix."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from graphs.cholesky.analysis import Analysis
from graphs.compiled import single_threaded_blas
from graphs.errors import InvalidArgumentError, NotPositiveDefiniteError

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Factor:
    """The factor P A P^T = L L^T of a matrix A (N, N) on the pattern of an analysis.

    Attributes:
        analysis: The analysis of the pattern.
        entries: The entries of the panels of L.

    Examples:
        >>> import numpy as np
        >>> import scipy.sparse as sp
        >>> from graphs.cholesky import Factor, analyze
        >>> A = sp.csr_array(sp.diags_array([1.0, 4.0, 1.0], offsets=[-1, 0, 1], shape=(3, 3)))
        >>> factor = Factor.of(analyze(A.indptr, A.indices), A.data)
        >>> np.allclose(factor.solve(A @ np.arange(3.0)), np.arange(3.0))
        True
        >>> round(factor.log_determinant, 6) == round(float(np.linalg.slogdet(A.toarray())[1]), 6)
        True
    """

    analysis: Analysis
    entries: Floats

    @classmethod
    def of(
        cls,
        analysis: Analysis,
        data: Floats,  # (nnz,)
    ) -> "Factor":
        """Factorize a matrix on the pattern.

        Args:
            analysis: The analysis of the pattern.
            data: The entries (nnz,) of the matrix on the pattern; only one triangle is used.

        Raises:
            NotPositiveDefiniteError: If the matrix is not positive definite. `node` is the row of the failing pivot.
            MemoryBudgetError: If the factor does not fit into the memory of this machine.
            InvalidArgumentError: If data have another shape, or an entry is not finite.
        """
        from graphs.cholesky import compiled

        if data.shape != analysis.indices.shape:
            raise InvalidArgumentError(
                f"data must hold {len(analysis.indices)} entries on the pattern, got shape {data.shape}."
            )
        if wrong := int((~np.isfinite(data)).sum()):
            raise InvalidArgumentError(f"data must be finite, got {wrong:,} entries that are NaN or infinite.")
        analysis.check_fits()
        s = analysis.supernodes
        source, target, _ = analysis.scatter_indices
        entries = np.zeros(s.panel_pointers[-1])
        entries[target] = data[source]
        stack, update, _, _ = analysis.peaks
        workspaces = (
            np.empty(stack),
            np.empty(update),
            np.empty((2, len(s.starts)), dtype=np.int64),
            np.zeros(2, np.int64),
        )
        with single_threaded_blas():
            for first, last in analysis.chunks:
                wrong = compiled.factorize(compiled.ADDRESSES, first, last, s, entries, *workspaces)
                if wrong >= 0:
                    raise NotPositiveDefiniteError.at(int(analysis.order[wrong]))
        return cls(analysis, entries)

    @cached_property
    def log_determinant(self) -> float:
        """The logarithm of the determinant of A."""
        from graphs.cholesky import compiled

        return 2 * float(compiled.sum_of_logarithms(self.analysis.supernodes, self.entries))

    def solve(
        self,
        b: Floats,  # (N,) or (N, k)
    ) -> Floats:
        """Return A^-1 b, of the shape of b.

        Args:
            b: Right-hand sides (N,) or (N, k).
        """
        x = np.ascontiguousarray(b.reshape(self.analysis.size, -1)[self.analysis.order])
        self.solve_in_place(x)
        return self._unordered(x).reshape(b.shape)

    def solve_in_place(
        self,
        x: Floats,  # (N, k)
    ) -> None:
        """Overwrite x with A^-1 x.

        Args:
            x: Right-hand sides (N, k) with contiguous rows, in the order `analysis.order`.
        """
        self._run(x, "forward", "backward")

    def half_solve(
        self,
        b: Floats,  # (N, k)
    ) -> Floats:  # (N, k)
        """Return L^-1 P b.

        The inner products of its columns are b^T A^-1 b.

        Args:
            b: Vectors (N, k).
        """
        x = np.ascontiguousarray(b[self.analysis.order])
        self._run(x, "forward")
        return x

    def sample(
        self,
        standard: Floats,  # (N, k)
    ) -> Floats:  # (N, k)
        """Return P^T L^-T z, which are draws of N(0, A^-1) if z is standard normal.

        Args:
            standard: The vectors z, (N, k).
        """
        x = np.array(standard, order="C")
        self._run(x, "backward")
        return self._unordered(x)

    @property
    def variances(self) -> Floats:
        """The diagonal of A^-1, (N,)."""
        return self._inverse[1]

    @property
    def inverse(self) -> Floats:
        """The entries of A^-1 on the pattern, (nnz,)."""
        return self._inverse[0]

    @cached_property
    def _inverse(self) -> tuple[Floats, Floats]:
        from graphs.cholesky import compiled

        a, s = self.analysis, self.analysis.supernodes
        _, target, first_entries = a.scatter_indices
        _, _, path, front = a.peaks
        inverse_entries, diagonal = np.empty(len(target)), np.empty((a.size, 1))
        workspaces = np.empty(path), np.empty(front), np.empty(front)
        state = np.empty((2, len(s.starts)), dtype=np.int64), np.zeros(2, dtype=np.int64)
        wanted = target, first_entries, inverse_entries, diagonal[:, 0]
        with single_threaded_blas():
            for first, last in reversed(a.chunks):
                compiled.invert(compiled.ADDRESSES, first, last, s, self.entries, *wanted, *workspaces, *state)
        return a.mirrored(inverse_entries), self._unordered(diagonal)[:, 0]

    def _run(self, x: Floats, *names: str) -> None:
        from graphs.cholesky import compiled

        s = self.analysis.supernodes
        workspace = np.empty(int(np.diff(s.row_pointers).max(initial=0)) * x.shape[1])
        with single_threaded_blas():
            for name in names:
                getattr(compiled, name)(compiled.ADDRESSES, s, self.entries, x, workspace)

    def _unordered(self, x: Floats) -> Floats:
        out = np.empty_like(x)
        out[self.analysis.order] = x
        return out
