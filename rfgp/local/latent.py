"""The root of the covariance of a nearest-neighbor process without noise, and its products.

Let b_i be the weights of the neighbors N of row i and d_i its variance given them (`rfgp.local.loops`). For
independent standard normal u, g_i = b_i^T g_N + sqrt(d_i) u_i is g = L u, and L L^T is the covariance of g. Products
with L take the rows in order, and products with its transpose in reverse order.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp.autograd import Array, as_array
from rfgp.local.factor import IN_THREADS, as_rows, in_blocks, no_features, scaled_positions
from rfgp.sparse import SparsityPattern
from rfgp.threads import num_threads

JITTER = 1e-11
"""The noise of neighbors relative to the variance. It bounds the weights of smooth kernels for rows that are close."""


@dataclass(frozen=True, eq=False)
class LatentRoot:
    """The root L = (I - B)^-1 D^1/2, (n, n), in the form of B and D^1/2.

    L itself is dense.

    Attributes:
        entries: For each row, the weights of its neighbors (a row of B), then its conditional standard deviation (an
            entry of D^1/2), (nnz,).
        pattern: The pattern of B, with the diagonal as the last entry of each row, (n, n).

    Examples:
        >>> from rfgp.local import KINDS, nearest_predecessors
        >>> x, one = torch.tensor([[0.0], [1.0], [3.0]]).double(), torch.tensor(1.0)
        >>> root = LatentRoot.of(x, one, one, KINDS["matern12"], nearest_predecessors(x.numpy(), 2))
        >>> L = root.root_times(torch.eye(3).double())
        >>> torch.allclose(L @ L.mT, torch.exp(-torch.cdist(x, x)))
        True
    """

    entries: Array
    pattern: SparsityPattern

    @classmethod
    def of(
        cls,
        x: Tensor,
        lengthscale: Tensor,
        variance: Tensor,
        kind: int,
        pattern: SparsityPattern,
        features: Tensor | None = None,
    ) -> "LatentRoot":
        """Return the root for ordered rows and a stationary kernel.

        Args:
            x: The ordered rows.
            lengthscale: The lengthscale of the kernel.
            variance: The value of the kernel at distance 0.
            kind: A kernel of `rfgp.local.KINDS`.
            pattern: The neighbors of each row, then the row itself, for all rows (n, n) or some (r, n).
            features: The features phi (n, F) of a part that is subtracted. The covariance is then v K - phi phi^T. If
                None, there are none.
        """
        from rfgp.local import loops

        z, phi = scaled_positions(x, lengthscale), as_rows(no_features(x) if features is None else features)
        noise = np.full(len(z), JITTER * float(variance))
        fixed = (kind, z, phi, noise, float(variance), pattern.indices, pattern.indptr)
        entries = np.empty(len(pattern.indices))
        in_blocks(pattern.indptr, lambda a, b: loops.conditional_rows(a, b, *fixed, 0.0, entries))
        return cls(entries, pattern)

    @property
    def deviations(self) -> Array:
        """The conditional standard deviations sqrt(d) of the rows, (r,)."""
        return self.entries[self.pattern.indptr[1:] - 1]

    def root_times(self, u: Tensor) -> Tensor:
        """Return L u, (n, c).

        Args:
            u: The right factor, (n, c).
        """
        from rfgp.local import products

        return self._through(products.multiply_root, u)

    def transposed_root_times(self, v: Tensor) -> Tensor:
        """Return L^T v, (n, c).

        Args:
            v: The right factor, (n, c).
        """
        from rfgp.local import products

        return self._through(products.multiply_transposed_root, v)

    def _through(self, loop: Callable[..., Any], x: Tensor) -> Tensor:
        array = as_array(x)
        count = num_threads() if len(self.entries) * array.shape[1] > IN_THREADS else 1
        parts = [
            np.array(part, order="C") for part in np.array_split(array, min(count, max(array.shape[1], 1)), axis=1)
        ]
        fixed = (self.entries, self.pattern.indices, self.pattern.indptr)
        if len(parts) == 1:
            loop(*fixed, parts[0])
        else:
            with ThreadPoolExecutor(len(parts)) as pool:
                list(pool.map(lambda part: loop(*fixed, part), parts))
        return torch.from_numpy(np.concatenate(parts, axis=1))
