"""Features of blocks of rows, kept during a search."""

from collections.abc import Iterator

from torch import Tensor

from rfgp.rows import Block
from rfgp.solvers.lowrank import LinearModel

KEPT = 2**26
"""The most entries of the features of all rows that are kept for a search."""


def transposed_product(
    phi: Tensor,  # (b, F)
    v: Tensor,  # (b, C)
) -> Tensor:  # (F, C)
    """Return phi^T v, float64.

    It is formed as (v^T phi)^T: for few columns BLAS is several times faster if it reads the features row by row.
    """
    return (v.to(phi).mT @ phi).mT.double()


class FeatureBlocks:
    """Blocks of rows with their features, which are kept if they are not too many.

    Args:
        model: The rows and their features.
    """

    def __init__(self, model: LinearModel) -> None:
        self._model = model
        self.is_kept = len(model.rows) * model.num_features <= KEPT
        self._kept = list(self._computed()) if self.is_kept else []

    def __iter__(self) -> Iterator[tuple[Block, Tensor]]:
        return iter(self._kept) if self.is_kept else self._computed()

    def _computed(self) -> Iterator[tuple[Block, Tensor]]:
        return ((block, self._model.phi(block)) for block in self._model.blocks())
