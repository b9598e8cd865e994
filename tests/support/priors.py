"""Rows under a sum of terms, for solvers and for dense algebra."""

from copy import copy
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from dense_twin import DenseTwin
from terms import F64, SHARED, STIFF, TERMS, normal, table

from rfgp.blocks import (
    KernelBlock,
    NeighborBlock,
    PrecisionBlock,
    Prior,
    SparseProductBlock,
    SparseWeightBlock,
    WeightBlock,
)
from rfgp.blocks.neighbors import joined_neighbors
from rfgp.rows import Block

ROWS = ("plain", "uneven", "outputs", "signs")


def rows(kind="plain", n=24, seed=0):
    """Return rows: one output; with weights and noise of their own; two outputs; two that count 1 and -0.5 times."""
    rng = np.random.default_rng([seed, 1])
    outputs = 2 if kind in ("outputs", "signs") else 1
    noise, weight = torch.from_numpy(rng.uniform(0, 0.2, n)), torch.from_numpy(rng.integers(1, 4, n).astype(float))
    own = (noise, weight) if kind in ("uneven", "signs") else (None, None)
    signs = torch.tensor([1.0, -0.5], dtype=F64) if kind == "signs" else None
    return Block(table(n, seed), normal(n, outputs, seed=seed), *own, signs)


KINDS = {
    WeightBlock: "weights",
    KernelBlock: "kernels",
    SparseWeightBlock: "graph_features",
    SparseProductBlock: "graph_features",
    PrecisionBlock: "precisions",
}
"""Where a prior has a block."""


class Problem:
    """Rows under a sum of terms, for solvers and for dense algebra.

    Args:
        names: Those of some terms.
        kind: One of ROWS.
        count: The number of rows.
        near: Options of the block of nearest neighbors, in place of its own.
    """

    def __init__(self, names, kind="plain", count=24, **near):
        self.names, self.rows, self.options = names, rows(kind, count), near
        own = [name for name in names if name not in SHARED]
        numbers = {f"{name} {key}": value for name in own for key, value in TERMS[name].start.items()}
        numbers |= {"noise": 0.15, "mean": [0.3, -0.2][: self.rows.num_outputs]}
        self.theta = {key: torch.tensor(value, dtype=F64, requires_grad=True) for key, value in numbers.items()}

    def of(self, name):
        """Return the hyperparameters of a term."""
        return {key: self.theta[f"{SHARED.get(name, name)} {key}"] for key in TERMS[name].start}

    @property
    def mean(self):
        return self.theta["mean"]

    @property
    def noise(self):
        return self.theta["noise"]

    @cached_property
    def digits(self):
        """The relative error that is allowed: 1e-8, or ten times the error that forming a stiff precision makes."""
        return 10 * 2.2e-16 * (1 + 2 / STIFF) ** 2 if "stiff field" in self.names else 1e-8

    @property
    def prior(self):
        parts = {"weights": (), "kernels": (), "graph_features": (), "precisions": ()}
        near = []
        for name in self.names:
            block = replace(TERMS[name].block(**self.of(name)), name=name)
            if isinstance(block, NeighborBlock):
                near.append(block)
            else:
                parts[KINDS[type(block)]] += (block,)
        neighbors = joined_neighbors(near)
        return Prior(**parts, neighbors=replace(neighbors, **self.options) if self.options else neighbors)

    @property
    def given(self):
        """The arguments of a solver."""
        return self.prior, self.rows, self.mean, self.noise

    @property
    def weight_names(self):
        """The names of the terms of dense weights: features, and exact kernels that are weights at the rows."""
        return [
            name for name in self.names if isinstance(TERMS[name].block(**self.of(name)), WeightBlock | KernelBlock)
        ]

    def at(self, rows, noise, mean):
        """Return the same terms and hyperparameters with other rows, noise and mean."""
        other = copy(self)
        other.rows, other.theta = rows, {**self.theta, "noise": noise, "mean": mean}
        vars(other).pop("twin", None)
        return other

    @cached_property
    def twin(self):
        terms = {name: TERMS[name].plain.at(self.of(name)) for name in self.names}
        return DenseTwin(terms, self.rows, self.mean, self.noise)
