"""Approximations of kernels on the nodes of a graph."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, TypeVar

import graphs
from rfgp import random
from rfgp.approximations.node_features import NodeFeatures, make_features, same_hops
from rfgp.approximations.node_products import (
    NodeProductTerm,
    build_product,
    columns_of,
    cost_of_product,
    unsupported_columns_reason,
)
from rfgp.approximations.node_terms import NodeTerm as NodeTerm
from rfgp.approximations.node_terms import node_term as node_term
from rfgp.approximations.node_terms import nodes_of as nodes_of
from rfgp.approximations.random_features import RandomFeatures
from rfgp.approximations.role import Approximation, TermCost, TermData, TermPrior
from rfgp.columns import ColumnKind
from rfgp.counts import check_count
from rfgp.errors import InvalidArgumentError
from rfgp.kernels.terms import label_of

_NO_OPTIONS = ("seed", "columns")
"""The fields that are not options of the features of nodes."""


COLUMNS = RandomFeatures(32)
"""The default random features of columns.

On 400 nodes and 50 times, 32 frequencies give a KL of 1e-4 to 3e-3 a point."""


class NodeApproximation(Approximation):
    """An approximation of a kernel on nodes, alone or times kernels on columns.

    Attributes:
        kind: The kind of features, of `rfgp.approximations.node_features`.
        count: The name of the option that is a positive integer.
        columns: The random features of stationary kernels on columns that multiply the kernel on nodes. Kernels of
            finitely many functions use these, and periodic kernels their harmonics. If None, products raise.
    """

    kind: ClassVar[str]
    count: ClassVar[str] = "degree"
    columns: RandomFeatures | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        value, columns = getattr(self, self.count), self.columns
        if value is not getattr(type(self), self.count):
            object.__setattr__(self, self.count, check_count(self.count, value))
        has_columns = any(entry.name == "columns" for entry in fields(self))
        if has_columns and (not isinstance(columns, RandomFeatures) or columns.learn_frequencies):
            raise InvalidArgumentError(
                f"columns must be rfgp.RandomFeatures whose frequencies are not learned, got {columns!r}."
            )

    @property
    def budget(self) -> int:
        """The maximum number of features per node."""
        return int(self.options.get("max_nonzeros") or self.options.get("rank") or 64)

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the features of nodes: all except the seed and those of columns."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name not in _NO_OPTIONS}

    def unsupported_reason(self, data: TermData) -> str | None:
        """Return why the approximation does not support a term, or None."""
        nodes = [part for part in data.term.parts() if part[0].kind is ColumnKind.NODE]
        if len(nodes) != 1:
            return "it has no factor on the nodes of exactly one graph."
        others = [part for part in data.term.parts() if part[0].kind is not ColumnKind.NODE]
        return self.unsupported_product_reason(data) if others else None

    def unsupported_product_reason(self, data: TermData) -> str | None:
        """Return why kernels on nodes times kernels on columns are not supported, or None.

        Args:
            data: The term and the rows.
        """
        others = columns_of(data)
        if self.columns is not None:
            return unsupported_columns_reason(self.columns, others)
        label = label_of(others.term.term.factors[0])
        return f"it is multiplied by {label}. Use RandomWalks(), SparsePrecision() or Exact()."

    def cost(self, data: TermData) -> TermCost:
        """Return the cost of the features, or of their products."""
        if self.columns is not None and len(data.term.column_indices) > 1:
            return cost_of_product(self.columns, data, self.kind, self.budget)
        return TermCost(data.num_rows, 12.0 * self.budget * data.num_rows, f"{self.kind} of the nodes")

    def build(self, data: TermData, seed: int) -> TermPrior:
        """Return the term with features for the graph and the kernel."""
        features = self.make(data, self.kind, seed, self.options)
        if self.columns is None or len(data.term.column_indices) == 1:
            return node_term(data, features)
        return build_product(data, features, self.columns, self.seed_of(seed))

    def rebuild(self, data: TermData, seed: int, prior: TermPrior) -> TermPrior:
        """Return the term with as many harmonics as other hyperparameters need."""
        if isinstance(prior, NodeProductTerm) and self.columns is not None:
            return prior.with_columns(data, self.columns, self.seed_of(seed))
        return prior

    def make(self, data: TermData, kind: str, seed: int, options: Mapping[str, Any]) -> NodeFeatures:
        """Return features of a kind for the graph and the kernel of a term.

        Args:
            data: The term.
            kind: The kind of features.
            seed: The seed for the term, unless the approximation has its own.
            options: The options of the features.
        """
        graph, kernel, _ = nodes_of(data)
        return make_features(kind, graph, kernel, self.seed_of(seed), options)

    def seed_of(self, seed: int) -> int:
        """Return the seed of the features, given that of the term.

        Args:
            seed: The seed for the term.
        """
        return seed if self.seed is None else random.resolve_seed(self.seed)


_OF_COUPLINGS = ("permutation", "num_quantiles", "tuples")
"""The options of walks that only some couplings of their lengths have."""


WalkTermT = TypeVar("WalkTermT", NodeTerm, NodeProductTerm)


def with_exact_hops_of(prior: WalkTermT, features: NodeFeatures) -> WalkTermT:
    """Return the term with the new walks if their rule for exact hops differs.

    Args:
        prior: The term.
        features: Features of walks for the new hyperparameters.
    """
    walks = prior.features.walks
    return prior if walks is None or same_hops(features, walks) else replace(prior, features=features)


def with_more_fields(prior: NodeTerm, features: NodeFeatures) -> NodeTerm:
    """Return the term with the new features if they have more fields.

    Args:
        prior: The term.
        features: Features of a rational precision for the new hyperparameters.
    """
    is_enough = features.size_options["degree"] <= prior.features.size_options["degree"]
    return prior if is_enough else replace(prior, features=features)


@dataclass(frozen=True, repr=False)
class RandomWalks(NodeApproximation):
    """Sparse features of random walks (general graph random features).

    Source: Reid et al. (2024), General graph random features, Algorithm 1.

    Attributes:
        num_walkers: The number of walks from each node.
        p_halt: The probability to halt at each step, survival probabilities, or "auto".
        lengths: The coupling of the lengths of a node's walks.
        step_coupling: The coupling of the steps of a node's walkers.
        exact_hops: The number of hops that are computed exactly, "auto", or a `graphs.HopRule`.
        max_nonzeros: The number of non-zero features of a node that "auto" fills. If None, 4 for each walker.
        transitions: "weights" or "uniform".
        permutation: The permutation of quantiles of the lengths "sigma", (n,). If None, it is chosen for the kernel.
        num_quantiles: The number of permuted quantiles. If None, the default of `graphs.sample_walks`.
        tuples: The table of quantiles of the lengths "learned".
        columns: The random features of stationary kernels that multiply the kernel on nodes.
        seed: The seed of the walks. If None, that of the model.

    Raises:
        GraphError: If an option is invalid. See `graphs.sample_walks`.

    Examples:
        >>> import rfgp
        >>> rfgp.RandomWalks(32, step_coupling="repelling")
        RandomWalks(num_walkers=32, step_coupling='repelling')
    """

    num_walkers: int = 64
    p_halt: Any = field(default=0.1, kw_only=True)
    lengths: str = field(default="systematic", kw_only=True)
    step_coupling: str = field(default="stratified", kw_only=True)
    exact_hops: Any = field(default="auto", kw_only=True)
    max_nonzeros: int | None = field(default=None, kw_only=True)
    transitions: str = field(default="weights", kw_only=True)
    permutation: Any = field(default=None, kw_only=True)
    num_quantiles: int | None = field(default=None, kw_only=True)
    tuples: Any = field(default=None, kw_only=True)
    columns: RandomFeatures = field(default=COLUMNS, kw_only=True)
    kind: ClassVar[str] = "walks"
    count: ClassVar[str] = "num_walkers"

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the features.

        Options of some couplings are included only if given.
        """
        options_by_name = dict(super().options)
        return {
            name: value for name, value in options_by_name.items() if value is not None or name not in _OF_COUPLINGS
        }

    def rebuild(self, data: TermData, seed: int, prior: TermPrior) -> TermPrior:
        """Return the term with exact hops and harmonics for other hyperparameters."""
        prior = super().rebuild(data, seed, prior)
        if self.exact_hops != "auto" or not nodes_of(data)[2]:
            return prior
        features = self.make(data, self.kind, seed, self.options)
        if isinstance(prior, NodeProductTerm):
            return with_exact_hops_of(prior, features)
        assert isinstance(prior, NodeTerm)
        return with_exact_hops_of(prior, features)


@dataclass(frozen=True, repr=False)
class Chebyshev(NodeApproximation):
    """The square root of the kernel as a Chebyshev series of the Laplacian.

    Source: Hammond, Vandergheynst and Gribonval (2011), Wavelets on graphs via spectral graph theory, Section 6.

    Attributes:
        degree: The degree. If None, the largest one with at most 64 non-zero features of a node on average.
        columns: The random features of stationary kernels that multiply the kernel on nodes.
        seed: It has no effect.

    Examples:
        >>> import rfgp
        >>> rfgp.Chebyshev(5)
        Chebyshev(degree=5)
    """

    degree: int | None = None
    columns: RandomFeatures = field(default=COLUMNS, kw_only=True)
    kind: ClassVar[str] = "chebyshev"


@dataclass(frozen=True, repr=False)
class Taylor(NodeApproximation):
    """A truncated power series of the adjacency matrix for the kernel's square root.

    Attributes:
        degree: The degree. If None, the largest one with at most 64 non-zero features of a node on average.
        columns: The random features of stationary kernels that multiply the kernel on nodes.
        seed: It has no effect.

    Examples:
        >>> import rfgp
        >>> rfgp.Taylor(5)
        Taylor(degree=5)
    """

    degree: int | None = None
    columns: RandomFeatures = field(default=COLUMNS, kw_only=True)
    kind: ClassVar[str] = "taylor"


@dataclass(frozen=True, repr=False)
class TruncatedSpectrum(NodeApproximation):
    """The kernel on the eigenvectors of the r smallest eigenvalues of the Laplacian.

    Attributes:
        rank: The number r of eigenvectors. If None, 64, or all nodes if they are fewer.
        columns: The random features of stationary kernels that multiply the kernel on nodes.
        seed: It has no effect.

    Examples:
        >>> import rfgp
        >>> rfgp.TruncatedSpectrum(20)
        TruncatedSpectrum(rank=20)
    """

    rank: int | None = None
    columns: RandomFeatures = field(default=COLUMNS, kw_only=True)
    kind: ClassVar[str] = "spectrum"
    count: ClassVar[str] = "rank"


@dataclass(frozen=True, repr=False)
class RationalPrecision(NodeApproximation):
    """A kernel of a fractional order as a sum of fields with sparse precisions.

    Source: Bolin, Simas and Xiong (2024), Covariance-based rational approximations of fractional SPDEs.

    Attributes:
        degree: The number of fields. If None, the fewest with a relative error of at most 1e-3.
        seed: It has no effect.

    Examples:
        >>> import rfgp
        >>> rfgp.RationalPrecision(3)
        RationalPrecision(degree=3)
    """

    degree: int | None = None
    kind: ClassVar[str] = "rational"

    def unsupported_reason(self, data: TermData) -> str | None:
        """Return why the approximation does not support a term, or None."""
        reason = super().unsupported_reason(data)
        if reason is not None:
            return reason
        kernel = next(f for f in data.term.term.factors if f.kind is ColumnKind.NODE).graph_kernel
        try:
            order = kernel.resolvent().order
        except graphs.GraphError:
            return "its kernel is not a power of the resolvent of the Laplacian. Use RandomWalks() or Chebyshev()."
        if order == int(order):
            return "its kernel has an integer order. Use SparsePrecision(), which is exact."
        return None

    def rebuild(self, data: TermData, seed: int, prior: TermPrior) -> TermPrior:
        """Return the term with more fields if other hyperparameters need them."""
        if self.degree is not None:
            return prior
        assert isinstance(prior, NodeTerm)
        return with_more_fields(prior, self.make(data, self.kind, seed, self.options))
