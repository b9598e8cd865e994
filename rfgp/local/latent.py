"""The root of the covariance of a nearest-neighbor process without noise, and its products.

With b_i the weights of a row's neighbors and d_i the variance that they leave (`rfgp.local.loops`), g_i = b_i^T g_N +
sqrt(d_i) u_i for independent standard normal u is g = L u, and L L^T the covariance of g. Products with L and its
transpose go through the rows in order, and back.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp.autograd import Array, as_array
from rfgp.local.factor import IN_THREADS, as_places, as_rows, in_blocks, no_features
from rfgp.sparse import SparsityPattern
from rfgp.threads import num_threads

JITTER = 1e-11
"""Noise of neighbors, in the variance: of smooth kernels the weights would grow without bound where rows are near."""


@dataclass(frozen=True, eq=False)
class LatentRoot:
    """L (n, n).

    Attributes:
        entries: The weights of each row's neighbors, and its deviation, (nnz,).
        pattern: Of these, (n, n).
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
        known: Tensor | None = None,
    ) -> "LatentRoot":
        """Return that of rows (n, d) in order, of a kernel with lengthscale (d,) or () and variance ().

        Args:
            x: The rows.
            lengthscale: Of the kernel.
            variance: Its value at distance 0.
            kind: One of `rfgp.local.loops`.
            pattern: Of the rows, or of some of them (r, n): the neighbors of each, and the row itself as the last.
            known: Features (n, F) of a part that is known: the process is what they leave.
        """
        from rfgp.local import loops

        z, phi = as_places(x, lengthscale), as_rows(no_features(x) if known is None else known)
        noise = np.full(len(z), JITTER * float(variance))
        fixed = (kind, z, phi, noise, float(variance), pattern.indices, pattern.indptr)
        entries = np.empty(len(pattern.indices))
        in_blocks(pattern.indptr, lambda a, b: loops.conditional_rows(a, b, *fixed, 0.0, entries))
        return cls(entries, pattern)

    @property
    def deviations(self) -> Array:
        """What the neighbors leave of each row, sqrt(d) (r,)."""
        return self.entries[self.pattern.indptr[1:] - 1]

    def root_times(self, u: Tensor) -> Tensor:
        """Return L u, (n, c)."""
        from rfgp.local import products

        return self._through(products.multiply_root, u)

    def transposed_root_times(self, v: Tensor) -> Tensor:
        """Return L^T v, (n, c)."""
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
