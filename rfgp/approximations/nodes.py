"""Approximations of kernels on the nodes of a graph: walks, series, truncated spectra and rational precisions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

import graphs
from graphs.advice import Advice
from rfgp import random
from rfgp.approximations.node_features import NodeFeatures, make_features, same_hops
from rfgp.approximations.role import Approximation, Cost, TermData, TermPrior, scale_name
from rfgp.blocks import KernelBlock, Prior
from rfgp.columns import Kind
from rfgp.counts import check_count
from rfgp.kernels.role import Factor, Values
from rfgp.kernels.summary import ColumnSummary
from rfgp.kernels.terms import BoundTerm, label_of

Part = tuple[Factor, list[int], str]


class NodeApproximation(Approximation):
    """An approximation of a kernel on the nodes of a graph.

    Attributes:
        kind: The kind of features, of `rfgp.approximations.node_features`.
        count: The name of the option that is a positive integer.
    """

    kind: ClassVar[str]
    count: ClassVar[str] = "degree"

    def __post_init__(self) -> None:
        super().__post_init__()
        value = getattr(self, self.count)
        if value is not getattr(type(self), self.count):
            object.__setattr__(self, self.count, check_count(self.count, value))

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the features: all but the seed."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "seed"}

    def refusal(self, data: TermData) -> str | None:
        """Return why the approximation cannot serve a term."""
        nodes = [part for part in data.term.parts() if part[0].kind is Kind.NODE]
        if len(nodes) != 1:
            return "it has no kernel on the nodes of one graph."
        others = [part for part in data.term.parts() if part[0].kind is not Kind.NODE]
        if others:
            return f"it is multiplied by {label_of(others[0][0])}. Use SparsePrecision() or Exact()."
        return None

    def cost(self, data: TermData) -> Cost:
        """Return the cost of the features."""
        size = self.options.get("max_nonzeros") or self.options.get("rank") or 64
        return Cost(data.num_rows, 12.0 * int(size) * data.num_rows, f"{self.kind} of the nodes")

    def draw(self, data: TermData, seed: int) -> TermPrior:
        """Return the term with features drawn for the graph, tuned to the kernel at its hyperparameters."""
        return node_term(data, self.make(data, self.kind, seed, self.options))

    def make(self, data: TermData, kind: str, seed: int, options: Mapping[str, Any]) -> NodeFeatures:
        """Return features of a kind for the graph and the kernel of a term.

        Args:
            data: The term.
            kind: The kind of features.
            seed: The seed for the term, unless the approximation has its own.
            options: The options of the features.
        """
        graph, kernel, _ = nodes_of(data)
        own = seed if self.seed is None else random.resolve_seed(self.seed)
        return make_features(kind, graph, kernel, own, options)


def nodes_of(data: TermData) -> tuple[Any, Any, tuple[str, ...]]:
    """Return the graph of a term, its kernel at the hyperparameters, and the paths of the kernel's parameters."""
    factor, _, prefix = next(part for part in data.term.parts() if part[0].kind is Kind.NODE)
    paths = tuple(f"{prefix}{name}" for name in factor.graph_kernel.parameters)
    return factor.nodes, factor.graph_kernel.with_values([float(data.values[path]) for path in paths]), paths


def node_term(data: TermData, features: NodeFeatures, advice: Advice | None = None) -> "NodeTerm":
    """Return a term through features, with the measurements by which they were selected, if they were."""
    return NodeTerm(data.term, features, nodes_of(data)[2], scale_name(data.term, data.values), advice)


@dataclass(frozen=True, eq=False)
class NodeTerm(TermPrior):
    """A kernel on nodes through features.

    Attributes:
        term: The term.
        features: The features.
        paths: The paths of the parameters of the graph kernel, in its order.
        scale: The path of the variance. If None, it is 1.
        advice: The measured errors by which the features were selected. If None, they were not.
    """

    term: BoundTerm
    features: NodeFeatures
    paths: tuple[str, ...]
    scale: str | None
    advice: Advice | None = None

    def at(self, values: Values, columns: ColumnSummary) -> Prior:
        """Return the prior at hyperparameters by path, whatever the columns."""
        theta = self.theta(values)
        scale = torch.ones((), dtype=torch.float64) if self.scale is None else values[self.scale].double().reshape(())
        prior = self.features.prior(theta, scale)
        ((_, (place,), _),) = self.term.parts()
        name = self.term.name
        return Prior(
            tuple(replace(b, features=partial(_at_nodes, b.features, place), name=name) for b in prior.weights),
            tuple(_kernel_at(b, place, name) for b in prior.kernels),
            tuple(
                replace(b, at=partial(_at_nodes, b.at, place), name=name, position=partial(_position, place))
                for b in prior.walks
            ),
            tuple(replace(b, projector=partial(_at_nodes, b.projector, place), name=name) for b in prior.precisions),
        )

    def has_draws_of(self, other: TermPrior) -> bool:
        """Return whether another prior of the same term has the same features."""
        return isinstance(other, NodeTerm) and other.features is self.features

    def theta(self, values: Values) -> Tensor:
        """Return the parameters of the graph kernel (p,) among hyperparameters by path."""
        found = [values[path].double() for path in self.paths]
        return torch.stack(found) if found else torch.zeros(0, dtype=torch.float64)


def _kernel_at(block: KernelBlock, place: int, name: str) -> KernelBlock:
    """Return the block of a covariance of positions as that of the nodes of rows, under the name of a term."""
    functions = block.functions
    return replace(
        block,
        covariance=partial(_between_nodes, block.covariance, place),
        variances=partial(_at_nodes, block.variances, place),
        functions=None if functions is None else NodeFunctions(functions, place),
        name=name,
    )


def _between_nodes(function: Callable[..., Tensor], place: int, a: Tensor, b: Tensor, *parameters: Tensor) -> Tensor:
    """Return a covariance of positions at the nodes of rows a (n, D) and b (m, D)."""
    return function(_position(place, a), _position(place, b), *parameters)


@dataclass(frozen=True, eq=False)
class NodeFunctions:
    """Functions drawn from a prior over positions, as functions of rows.

    Attributes:
        functions: The functions of positions.
        place: The column of the nodes.
    """

    functions: Any
    place: int

    def draw(self, count: int, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
        """Draw functions of rows (n, D), (n, count)."""
        return partial(_at_nodes, self.functions.draw(count, generator), self.place)

    def through(self, inputs: Tensor, coefficients: Tensor) -> Callable[[Tensor], Tensor]:
        """Return x -> k(x, inputs) @ coefficients, for rows (n, D) and coefficients (n, p)."""
        return partial(_at_nodes, self.functions.through(_position(self.place, inputs), coefficients), self.place)


def _position(place: int, inputs: Tensor) -> Tensor:
    """Return the positions (n,) of the nodes of rows (n, D)."""
    return inputs[:, place].long()


def _at_nodes(function: Callable[..., Any], place: int, inputs: Tensor, *rest: Any, **options: Any) -> Any:
    """Return a function of positions (n,) at the nodes of rows (n, D)."""
    return function(_position(place, inputs), *rest, **options)


_OF_COUPLINGS = ("permutation", "num_quantiles", "tuples")
"""The options of walks that belong to single couplings of their lengths."""


def retuned(prior: NodeTerm, features: NodeFeatures) -> NodeTerm:
    """Return a term with other walks, or the same one if their exact hops follow the same rule."""
    walks = prior.features.walks
    return prior if walks is None or same_hops(features, walks) else replace(prior, features=features)


def with_more_fields(prior: NodeTerm, features: NodeFeatures) -> NodeTerm:
    """Return a term with other fields of a rational precision, or the same one if these are not more."""
    is_enough = features.size["degree"] <= prior.features.size["degree"]
    return prior if is_enough else replace(prior, features=features)


@dataclass(frozen=True, repr=False)
class RandomWalks(NodeApproximation):
    """Sparse features of random walks (general graph random features).

    Source: Reid et al. (2024), General graph random features, Algorithm 1.

    Attributes:
        num_walkers: The number of walks from each node.
        halt: The probability to halt at each step, survival probabilities, or "auto".
        lengths: The coupling of the lengths of a node's walks.
        directions: The coupling of their directions.
        exact_hops: The number of first steps that are computed exactly, "auto", or a rule.
        max_nonzeros: The number of non-zero features of a node that "auto" fills. If None, 4 for each walker.
        transitions: "weights" or "uniform".
        permutation: The permutation of quantiles of the lengths "sigma", (n,). If None, the one that suits the kernel.
        num_quantiles: The number of quantiles that are permuted. If None, as for `graphs.sample_walks`.
        tuples: The table of quantiles of the lengths "learned".
        seed: The seed of the walks. If None, that of the model.

    `graphs.sample_walks` describes the options, and raises errors about them.

    Examples:
        >>> import rfgp
        >>> rfgp.RandomWalks(32, directions="repelling")
        RandomWalks(num_walkers=32, directions='repelling')
    """

    num_walkers: int = 64
    halt: Any = field(default=0.1, kw_only=True)
    lengths: str = field(default="systematic", kw_only=True)
    directions: str = field(default="stratified", kw_only=True)
    exact_hops: Any = field(default="auto", kw_only=True)
    max_nonzeros: int | None = field(default=None, kw_only=True)
    transitions: str = field(default="weights", kw_only=True)
    permutation: Any = field(default=None, kw_only=True)
    num_quantiles: int | None = field(default=None, kw_only=True)
    tuples: Any = field(default=None, kw_only=True)
    kind: ClassVar[str] = "walks"
    count: ClassVar[str] = "num_walkers"

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the features: all but the seed, and those of single couplings if they are given."""
        known = dict(super().options)
        return {name: value for name, value in known.items() if value is not None or name not in _OF_COUPLINGS}

    def redraw(self, data: TermData, seed: int, prior: TermPrior) -> TermPrior:
        """Return the term with exact hops tuned to other hyperparameters, or the same one if they stay."""
        if self.exact_hops != "auto" or not nodes_of(data)[2]:
            return prior
        assert isinstance(prior, NodeTerm)
        return retuned(prior, self.make(data, self.kind, seed, self.options))


@dataclass(frozen=True, repr=False)
class Chebyshev(NodeApproximation):
    """The square root of the kernel as a Chebyshev series of the Laplacian.

    Source: Hammond, Vandergheynst and Gribonval (2011), Wavelets on graphs via spectral graph theory, Section 6.

    Attributes:
        degree: The degree. If None, the largest one with at most 64 non-zero features of a node on average.
        seed: It has no effect.

    Examples:
        >>> import rfgp
        >>> rfgp.Chebyshev(5)
        Chebyshev(degree=5)
    """

    degree: int | None = None
    kind: ClassVar[str] = "chebyshev"


@dataclass(frozen=True, repr=False)
class Taylor(NodeApproximation):
    """The square root of the kernel as a power series of the adjacency matrix, cut off at a degree.

    Attributes:
        degree: The degree. If None, the largest one with at most 64 non-zero features of a node on average.
        seed: It has no effect.

    Examples:
        >>> import rfgp
        >>> rfgp.Taylor(5)
        Taylor(degree=5)
    """

    degree: int | None = None
    kind: ClassVar[str] = "taylor"


@dataclass(frozen=True, repr=False)
class TruncatedSpectrum(NodeApproximation):
    """The kernel on the eigenvectors of the r smallest eigenvalues of the Laplacian.

    Attributes:
        rank: The number r of eigenvectors. If None, 64, or all nodes if they are fewer.
        seed: It has no effect.

    Examples:
        >>> import rfgp
        >>> rfgp.TruncatedSpectrum(20)
        TruncatedSpectrum(rank=20)
    """

    rank: int | None = None
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

    def refusal(self, data: TermData) -> str | None:
        """Return why the approximation cannot serve a term."""
        why = super().refusal(data)
        if why is not None:
            return why
        kernel = next(f for f in data.term.term.factors if f.kind is Kind.NODE).graph_kernel
        try:
            order = kernel.resolvent().order
        except graphs.GraphError:
            return "its kernel is no power of the resolvent of the Laplacian. Use RandomWalks() or Chebyshev()."
        if order == int(order):
            return "its kernel has an integer order. Use SparsePrecision(), which is exact."
        return None

    def redraw(self, data: TermData, seed: int, prior: TermPrior) -> TermPrior:
        """Return the term with the fields that other hyperparameters need, if they are more and `degree` is None."""
        if self.degree is not None:
            return prior
        assert isinstance(prior, NodeTerm)
        return with_more_fields(prior, self.make(data, self.kind, seed, self.options))
