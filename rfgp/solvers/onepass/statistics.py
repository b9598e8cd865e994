"""Sufficient statistics of Gaussian regression on fixed designs."""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rfgp.blocks.weights import Design
from rfgp.lattices.design import LatticeDesign
from rfgp.lattices.transforms import Floats
from rfgp.rows import Rows
from rfgp.solvers.onepass.products import at_modes, between_lattices, real_projections, within_lattice
from rfgp.solvers.onepass.sums import Layout, RowSums, sums_over

MAX_CACHED_SUMS = 2
"""The maximum number of cached sums of each set of rows, such as those on two lattices."""


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sums over rows of products of features phi and of targets.

    The features do not include prior standard deviations.

    Attributes:
        gram: The matrix phi^T P phi, (F, F).
        target: The products phi^T P y, (F, k).
        ones: The products phi^T P 1, (F,).
        squares: The squares y^T P y of each output, (k,).
        totals: The sums 1^T P y of each output, (k,).
        observations: The number of observations, including repetitions.
        sums: The sums from which the statistics are computed.
    """

    gram: Tensor
    target: Tensor
    ones: Tensor
    squares: Tensor
    totals: Tensor
    observations: float
    sums: RowSums


_Cache = weakref.WeakKeyDictionary[Rows, list[tuple[tuple[Any, ...], Any]]]
_SUMS_CACHE: _Cache = weakref.WeakKeyDictionary()
"""The last sums over each set of rows, with their layouts."""
_STATISTICS_CACHE: _Cache = weakref.WeakKeyDictionary()
"""The last statistics of each set of rows, with their designs."""


def statistics_of(designs: Sequence[Design], rows: Rows) -> Statistics:
    """Return the statistics of rows.

    The rows are read unless statistics on the same lattices are cached.

    Args:
        designs: The designs of all blocks.
        rows: The rows.
    """
    layout = Layout.of(designs)
    statistics: Statistics = _cached(
        _STATISTICS_CACHE, 1, rows, layout.designs, lambda: assemble(layout, row_sums(layout, rows))
    )
    return statistics


def row_sums(layout: Layout, rows: Rows) -> RowSums:
    """Return the sums over rows, which are read unless sums are cached.

    Args:
        layout: The layout of the designs.
        rows: The rows.
    """
    sums: RowSums = _cached(_SUMS_CACHE, MAX_CACHED_SUMS, rows, layout.key, lambda: sums_over(layout, rows))
    return sums


def _cached(cache: _Cache, max_results: int, rows: Rows, key: tuple[Any, ...], compute: Any) -> Any:
    """Return the result for a key and rows. The last `max_results` results are cached."""
    results = cache.setdefault(rows, [])
    for known_key, result in results:
        if len(known_key) == len(key) and all(a is b or a == b for a, b in zip(known_key, key, strict=True)):
            return result
    result = compute()
    results.append((key, result))
    del results[:-max_results]
    return result


def assemble(layout: Layout, sums: RowSums) -> Statistics:
    """Return the statistics for the modes of all designs.

    Args:
        layout: The layout of the designs.
        sums: The sums over the rows.
    """
    k, designs, columns = sums.num_outputs, layout.designs, _dense_columns(layout, sums)
    projections = [_projections(layout, sums, index, columns) for index in range(len(designs))]
    ends = np.cumsum([0, *(design.num_features for design in designs)])
    gram = np.empty((ends[-1], ends[-1]))
    for a in range(len(designs)):
        for b in range(a + 1):
            block = _products(layout, sums, projections, columns, a, b)
            gram[ends[a] : ends[a + 1], ends[b] : ends[b + 1]] = block
            gram[ends[b] : ends[b + 1], ends[a] : ends[a + 1]] = block.T
    products = torch.as_tensor(np.concatenate(projections))
    dense = torch.as_tensor(sums.gram)
    squares, totals = dense.diagonal()[1 : 1 + k].clone(), dense[0, 1 : 1 + k].clone()
    target, ones = products[:, 1 : 1 + k].contiguous(), products[:, 0].contiguous()
    return Statistics(torch.as_tensor(gram), target, ones, squares, totals, sums.observations, sums)


def projected(layout: Layout, sums: RowSums) -> Tensor:
    """Return the products phi^T P Z of all features with columns Z of rows, (F, q).

    Args:
        layout: The layout of the designs.
        sums: The sums over the rows.
    """
    columns = _dense_columns(layout, sums)
    return torch.as_tensor(np.concatenate([_projections(layout, sums, i, columns) for i in range(len(layout.designs))]))


def _dense_columns(layout: Layout, sums: RowSums) -> dict[int, slice]:
    """Return the positions of the features of each dense design among the columns Z."""
    first = np.cumsum([0, *(layout.designs[index].num_features for index in layout.dense)]) + 1 + sums.num_outputs
    return {index: slice(int(a), int(b)) for index, a, b in zip(layout.dense, first[:-1], first[1:], strict=True)}


def _projections(layout: Layout, sums: RowSums, index: int, columns: dict[int, slice]) -> Floats:
    """Return the products of the features of a design with all columns Z, (F, q)."""
    lattice, design = layout.lattice_of[index], layout.designs[index]
    if lattice is None:
        return sums.gram[columns[index]]
    assert isinstance(design, LatticeDesign)
    return real_projections(at_modes(sums.projections[lattice], design.modes), design.modes)


def _products(
    layout: Layout, sums: RowSums, projections: Sequence[Floats], columns: dict[int, slice], a: int, b: int
) -> Floats:
    """Return the products of the features of two designs, (F_a, F_b)."""
    lattices, designs = (layout.lattice_of[a], layout.lattice_of[b]), (layout.designs[a], layout.designs[b])
    if lattices[1] is None:
        return projections[a][:, columns[b]]
    if lattices[0] is None:
        return projections[b][:, columns[a]].T
    first, second = designs
    assert isinstance(first, LatticeDesign)
    assert isinstance(second, LatticeDesign)
    if lattices[0] == lattices[1]:
        return within_lattice(sums.generators[lattices[0]], first.modes, second.modes)
    low, high = sorted((lattices[0], lattices[1]))
    cross = sums.crosses[layout.pairs.index((low, high))]
    if lattices[0] == low:
        return between_lattices(cross, first.modes, second.modes)
    return between_lattices(cross, second.modes, first.modes).T
