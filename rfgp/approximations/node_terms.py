"""Terms of kernels on the nodes of a graph, by features of nodes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from graphs.advice import Advice
from rfgp.approximations.node_features import NodeFeatures
from rfgp.approximations.role import TermData, TermPrior, scale_name
from rfgp.blocks import KernelBlock, Prior, SparseWeightBlock
from rfgp.columns import ColumnKind
from rfgp.kernels.role import Values
from rfgp.kernels.summary import ColumnSummary
from rfgp.kernels.terms import BoundTerm


def nodes_of(data: TermData) -> tuple[Any, Any, tuple[str, ...]]:
    """Return the graph of a term, its kernel, and the paths of its parameters.

    Args:
        data: The term and the rows. One factor of the term is on nodes.

    Returns:
        The graph, the kernel at the hyperparameters of the data, and the paths in the order of the kernel.
    """
    factor, _, prefix = next(part for part in data.term.parts() if part[0].kind is ColumnKind.NODE)
    paths = tuple(f"{prefix}{name}" for name in factor.graph_kernel.parameters)
    return factor.nodes, factor.graph_kernel.with_values([float(data.values[path]) for path in paths]), paths


def node_term(data: TermData, features: NodeFeatures, advice: Advice | None = None) -> "NodeTerm":
    """Return a term with features of nodes.

    Args:
        data: The term.
        features: The features.
        advice: The measured errors that selected the features. If None, they were not measured.
    """
    return NodeTerm(data.term, features, nodes_of(data)[2], scale_name(data.term, data.values), advice)


@dataclass(frozen=True, eq=False)
class NodeTerm(TermPrior):
    """A kernel on nodes by features.

    Attributes:
        term: The term.
        features: The features.
        paths: The paths of the parameters of the graph kernel, in its order.
        scale: The path of the variance. If None, it is 1.
        advice: The measured errors that selected the features. If None, they were not measured.
    """

    term: BoundTerm
    features: NodeFeatures
    paths: tuple[str, ...]
    scale: str | None
    advice: Advice | None = None

    def at(self, values: Values, columns: ColumnSummary) -> Prior:
        """Return the prior at hyperparameters by path. It does not depend on the columns."""
        theta = kernel_parameters(self.paths, values)
        scale = torch.ones((), dtype=torch.float64) if self.scale is None else values[self.scale].double().reshape(())
        prior = self.features.prior(theta, scale)
        ((_, (column,), _),) = self.term.parts()
        name = self.term.name
        return Prior(
            tuple(replace(b, features=partial(at_nodes, b.features, column), name=name) for b in prior.weights),
            tuple(_kernel_at(b, column, name) for b in prior.kernels),
            tuple(
                replace(b, at=partial(at_nodes, b.at, column), name=name, position=partial(position_of, column))
                for b in prior.graph_features
                if isinstance(b, SparseWeightBlock)
            ),
            tuple(replace(b, projector=partial(at_nodes, b.projector, column), name=name) for b in prior.precisions),
        )

    def has_basis_of(self, other: TermPrior) -> bool:
        """Return whether another prior of the same term has the same features."""
        return isinstance(other, NodeTerm) and other.features is self.features


def kernel_parameters(paths: tuple[str, ...], values: Values) -> Tensor:
    """Return the parameters of a graph kernel (p,) among hyperparameters by path.

    Args:
        paths: The paths of the parameters, in the order of the kernel.
        values: The hyperparameters by path.
    """
    parameters = [values[path].double() for path in paths]
    return torch.stack(parameters) if parameters else torch.zeros(0, dtype=torch.float64)


def _kernel_at(block: KernelBlock, column: int, name: str) -> KernelBlock:
    """Return a block of a covariance of positions as a block of rows.

    The block gets the name of a term.
    """
    functions = block.functions
    return replace(
        block,
        covariance=partial(_between_nodes, block.covariance, column),
        variances=partial(at_nodes, block.variances, column),
        functions=None if functions is None else NodeFunctions(functions, column),
        name=name,
    )


def _between_nodes(function: Callable[..., Tensor], column: int, a: Tensor, b: Tensor, *parameters: Tensor) -> Tensor:
    """Return a covariance of positions at the nodes of rows a (n, D) and b (m, D)."""
    return function(position_of(column, a), position_of(column, b), *parameters)


@dataclass(frozen=True, eq=False)
class NodeFunctions:
    """Functions drawn from a prior over positions, as functions of rows.

    Attributes:
        functions: The functions of positions.
        column: The column of the nodes.
    """

    functions: Any
    column: int

    def draw(self, count: int, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
        """Draw functions of rows (n, D), (n, count).

        Args:
            count: The number of functions.
            generator: The generator of their weights.
        """
        return partial(at_nodes, self.functions.draw(count, generator), self.column)

    def kernel_expansion(self, inputs: Tensor, coefficients: Tensor) -> Callable[[Tensor], Tensor]:
        """Return x -> k(x, inputs) @ coefficients.

        Args:
            inputs: The rows, (n, D).
            coefficients: The coefficients, (n, p).
        """
        return partial(
            at_nodes, self.functions.kernel_expansion(position_of(self.column, inputs), coefficients), self.column
        )


def position_of(column: int, inputs: Tensor) -> Tensor:
    """Return the positions (n,) of the nodes of rows (n, D).

    Args:
        column: The index of the column of the nodes.
        inputs: The rows, (n, D).
    """
    return inputs[:, column].long()


def at_nodes(function: Callable[..., Any], column: int, inputs: Tensor, *rest: Any, **options: Any) -> Any:
    """Evaluate a function of positions (n,) at the nodes of rows (n, D).

    Args:
        function: The function of positions.
        column: The index of the column of the nodes.
        inputs: The rows, (n, D).
        rest: Further arguments of the function.
        options: Further arguments of the function by name.

    Returns:
        The result of the function.
    """
    return function(position_of(column, inputs), *rest, **options)
