"""Products of a kernel on the nodes of a graph and kernels on columns, by features of both."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rfgp import random
from rfgp.approximations.node_features import NodeFeatures
from rfgp.approximations.node_terms import at_nodes, kernel_parameters, nodes_of, position_of
from rfgp.approximations.random_features import RandomFeatures
from rfgp.approximations.role import TermCost, TermData, TermPrior, weights_memory
from rfgp.approximations.weights import WeightTermPrior
from rfgp.blocks import Prior, SparseProductBlock, SparseWeightBlock, WeightBlock
from rfgp.blocks.role import NewLevels
from rfgp.columns import ColumnKind
from rfgp.kernels.role import Values
from rfgp.kernels.summary import ColumnSummary
from rfgp.kernels.terms import BoundTerm, Term
from rfgp.limits import limits
from rfgp.sparse import gram

MAX_FUNCTIONS = 4096
"""The maximum number of functions of columns that are multiplied by features of nodes. Their matrix is dense."""
BYTES_OF_DRAWS = 512.0
"""The memory of the draws in bytes per weight: 128 numbers in single precision, for variances of more rows."""


def columns_of(data: TermData) -> TermData:
    """Return the product of the factors of a term that are on columns.

    Factors on nodes are omitted.

    Args:
        data: The term and the rows.
    """
    parts = [part for part in data.term.parts() if part[0].kind is not ColumnKind.NODE]
    term = Term(tuple(part[0] for part in parts), data.term.name, data.term.term.variance)
    return replace(data, term=BoundTerm(term, tuple(part[1] for part in parts), tuple(part[2] for part in parts)))


def unsupported_columns_reason(columns: RandomFeatures, data: TermData) -> str | None:
    """Return why a product of kernels on columns has no features, or None.

    The result is a clause after "because".

    Args:
        columns: The random features of stationary kernels.
        data: The product.
    """
    all_functions = [factor.functions(data.columns.select(indices)) for factor, indices, _ in data.term.parts()]
    reason = None if all(functions is not None for functions in all_functions) else columns.unsupported_reason(data)
    if reason is not None:
        return reason
    size = columns.cost(data).num_features
    if size > MAX_FUNCTIONS:
        return (
            f"its kernels on columns have {size:,} functions, and at most {MAX_FUNCTIONS:,} are multiplied by "
            "features of nodes. Use SparsePrecision(), InducingPoints() or Exact()."
        )
    return None


def build_product(data: TermData, features: NodeFeatures, columns: RandomFeatures, seed: int) -> "NodeProductTerm":
    """Return a product with features of nodes and of columns.

    Args:
        data: The term.
        features: The features of nodes.
        columns: The random features of stationary kernels on columns.
        seed: The seed of the features of nodes. The seed of the columns is derived from it.
    """
    columns_term = columns.build(columns_of(data), random.child_seed(seed, random.Role.FREQUENCIES))
    assert isinstance(columns_term, WeightTermPrior)
    return NodeProductTerm(data.term, features, nodes_of(data)[2], columns_term)


@dataclass(frozen=True, eq=False)
class NodeProductTerm(TermPrior):
    """A product of a kernel on nodes and kernels on columns.

    It has the products of their features.

    Attributes:
        term: The term.
        features: The features of nodes.
        paths: The paths of the parameters of the graph kernel, in its order.
        columns: The product of the kernels on columns with their features, and with the variance of the term.
    """

    term: BoundTerm
    features: NodeFeatures
    paths: tuple[str, ...]
    columns: WeightTermPrior

    def at(self, values: Values, columns: ColumnSummary) -> Prior:
        """Return the prior at hyperparameters by path, given all columns."""
        theta = kernel_parameters(self.paths, values)
        nodes = self.features.prior(theta, torch.ones((), dtype=torch.float64))
        (dense,) = self.columns.at(values, columns).weights
        column = next(indices[0] for factor, indices, _ in self.term.parts() if factor.kind is ColumnKind.NODE)
        block = nodes.graph_features[0] if nodes.graph_features else nodes.weights[0]
        assert not isinstance(block, SparseProductBlock)
        new_levels = None if dense.new_levels is None else NodeLevels(block, column, dense.new_levels)
        if isinstance(block, WeightBlock):
            features = ProductFeatures(partial(at_nodes, block.features, column), dense.features)
            size, parameters = block.num_features * dense.num_features, (theta, *dense.parameters)
            product = replace(dense, features=features, num_features=size, parameters=parameters, new_levels=new_levels)
            return Prior(weights=(product,))
        at, position = partial(at_nodes, block.at, column), partial(position_of, column)
        block = replace(block, at=at, times=None, position=position, variance=dense.prior_variance)
        rest = dense.parameters, new_levels, self.term.name
        sparse = SparseProductBlock(block, dense.features, dense.num_features, *rest)
        return Prior(graph_features=(sparse,))

    def has_basis_of(self, other: TermPrior) -> bool:
        """Return whether another prior of the same term has the same features."""
        if not isinstance(other, NodeProductTerm) or other.features is not self.features:
            return False
        return other.columns is self.columns

    def with_columns(self, data: TermData, columns: RandomFeatures, seed: int) -> "NodeProductTerm":
        """Return the term with the harmonics that other hyperparameters need.

        Args:
            data: The term, at the other hyperparameters.
            columns: The random features of stationary kernels on columns.
            seed: The seed of the features of nodes.
        """
        column_data = columns_of(data)
        if not columns.depends_on_hyperparameters(column_data):
            return self
        redrawn = build_product(data, self.features, columns, seed)
        sizes = [[part.functions(data.columns).size for part in term.columns.parts] for term in (self, redrawn)]
        return self if sizes[0] == sizes[1] else redrawn


@dataclass(frozen=True, eq=False)
class ProductFeatures:
    """Products of dense features of nodes and of columns.

    Attributes:
        nodes: Maps rows (n, D), and the parameters of the graph kernel, to the features (n, r) of their nodes.
        columns: Maps rows, and all other parameters, to the features (n, F) of their columns.
    """

    nodes: Callable[..., Tensor]
    columns: Callable[..., Tensor]

    def __call__(self, x: Tensor, theta: Tensor, *parameters: Tensor) -> Tensor:
        """Return the products (n, r F) for rows (n, D), parameters theta (p,) and others."""
        left, right = self.nodes(x, theta), self.columns(x, *parameters)
        return (left[:, :, None] * right[:, None, :]).flatten(1)


@dataclass(frozen=True, eq=False)
class NodeLevels:
    """The covariance of a product between rows with new levels.

    The kernel on nodes is approximated by its features.

    Attributes:
        nodes: The features of positions, without a variance.
        column: The index of the column of the nodes.
        others: The covariance of new levels of the product of the kernels on columns.
    """

    nodes: SparseWeightBlock | WeightBlock
    column: int
    others: NewLevels

    def covariance(self, a: Tensor, b: Tensor, *parameters: Tensor) -> Tensor:
        """Return the covariance (n, m) of rows a (n, D) and b (m, D), for a variance of 1.

        Args:
            a: The rows, (n, D).
            b: The rows, (m, D).
            parameters: The parameters of the graph kernel (p,), then those of the features of the columns.
        """
        out = self.others.covariance(a, b, *parameters[1:])
        rows, columns = out.any(1).nonzero()[:, 0], out.any(0).nonzero()[:, 0]
        if not len(rows):
            return out
        node_covariance = self._between(a[rows], b[columns], parameters[0])
        return out.index_put((rows[:, None], columns), out[rows][:, columns] * node_covariance)

    def variances(self, a: Tensor, *parameters: Tensor) -> Tensor:
        """Return the variances (n,) of rows a (n, D), for a variance of 1.

        Args:
            a: The rows, (n, D).
            parameters: The parameters of the graph kernel (p,), then those of the features of the columns.
        """
        out = self.others.variances(a, *parameters[1:])
        rows = out.nonzero()[:, 0]
        if not len(rows):
            return out
        nodes = replace(self.nodes, parameters=parameters[:1]).diagonal(position_of(self.column, a[rows]))
        return out.index_put((rows,), out[rows] * nodes)

    def _between(self, a: Tensor, b: Tensor, theta: Tensor) -> Tensor:
        """Return the covariance (n, m) of the nodes of rows."""
        left, right = (position_of(self.column, x) for x in (a, b))
        block: Any = self.nodes
        if isinstance(block, WeightBlock):
            node_covariance: Tensor = block.features(left, theta) @ block.features(right, theta).mT
            return node_covariance
        left_features, right_features = (block.at(x, False, theta) for x in (left, right))
        return gram(left_features.values, left_features.pattern, right_features.values, right_features.pattern)


def cost_of_product(columns: RandomFeatures, data: TermData, kind: str, budget: int) -> TermCost:
    """Return the cost of the products of features of nodes and of columns.

    Args:
        columns: The random features of stationary kernels on columns.
        data: The term.
        kind: The kind of features of nodes.
        budget: The number of features of a node.
    """
    size, n = columns.cost(columns_of(data)).num_features, data.num_rows
    nodes = nodes_of(data)[0].num_nodes
    if kind == "spectrum":
        rank = min(budget, nodes)
        return TermCost(rank * size, weights_memory(rank * size, n), f"{rank} eigenvectors times {size} functions")
    memory = 12.0 * budget * min(n, nodes) + 8.0 * size * n
    memory += BYTES_OF_DRAWS * size * nodes if n > limits().max_dense else 8.0 * n**2
    note = f"{kind} of the nodes times {size} functions, about {budget * size:,} implicit non-zeros of a row"
    return TermCost(n, memory, note)
