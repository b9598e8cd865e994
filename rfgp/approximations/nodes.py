"""Approximations of kernels on the nodes of a graph."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

import graphs
from graphs.advice import node_sample, precision_candidate
from graphs.kernels import GraphKernel
from graphs.lengths import Sigma, Tuples
from graphs.precisions import RationalField, default_num_terms
from rfgp import features as feature_maps
from rfgp import random
from rfgp.approximations.role import OF_AREAS, Approximation, TermCost, TermData, TermPrior, scale_name, variance_at
from rfgp.blocks import KernelBlock, PrecisionBlock, Prior, SparseWeightBlock, WeightBlock
from rfgp.columns import ColumnKind
from rfgp.features.walks import function_of_kernel, resolvent_values, spectral_values
from rfgp.kernels.role import ColumnSummary, Values, label_of
from rfgp.limits import limits
from rfgp.messages import check_count
from rfgp.sparse import SparseValues
from rfgp.torch_context import Recent

# --- Features of nodes with one interface: exact kernels, walks, series, spectra and precisions ----------------------

NONZEROS_PER_WALKER = 4
"""The default number of non-zeros a row for each walker: the ratio of the defaults of `graphs.sample_walks`."""


class NodeFeatures(ABC):
    """Interface: features of nodes for a family of graph kernels.

    Attributes:
        name: "exact", "rational", "walks", "chebyshev", "taylor" or "spectrum".
    """

    name: str
    is_sparse = False
    """Whether features are sparse: walks or a series."""

    @property
    def is_exact(self) -> bool:
        """Whether the prior is that of the kernel itself."""
        return self.name == "exact"

    @property
    def size_options(self) -> dict[str, int]:
        """The option of the size, as in the approximation: "degree" or "rank".

        If the features have no such option, the dict is empty.
        """
        return {}

    @property
    def walks(self) -> graphs.Walks | None:
        """The walks of the features, without nodes, or None."""
        return None

    @abstractmethod
    def prior(self, theta: Tensor, outputscale: Tensor, column: int, name: str) -> Prior:
        """Return the prior of rows at kernel parameters.

        Args:
            theta: The parameters of the graph kernel, (p,).
            outputscale: The output scale, 0-d.
            column: The index of the column of rows (n, D) that has the positions of nodes.
            name: The name of the term.
        """

    def suffices(self, other: "NodeFeatures") -> bool:
        """Return whether features of the same kind for other hyperparameters need not replace these.

        Args:
            other: The other features.
        """
        return True

    def check(self, kernel: GraphKernel) -> None:
        """Warn if these features are expected to be poor for a kernel."""

    def spectral_error(self, kernel: GraphKernel) -> float | None:
        """Return the largest relative error of the spectrum, |k_hat / k - 1|, or None.

        Args:
            kernel: The graph kernel at its parameters.

        Returns:
            The error, or None if it is not computed for these features.
        """
        return None


class ExactFeatures(NodeFeatures):
    """The exact kernel, by the eigenvectors of the Laplacian."""

    name = "exact"

    def __init__(self, graph: graphs.Graph, kernel: GraphKernel) -> None:
        self._graph, self._kernel = graph, kernel

    def prior(self, theta: Tensor, outputscale: Tensor, column: int, name: str) -> Prior:
        """Return the prior of outputscale V k(eigenvalues) V^T at theta (p,)."""
        eigenvalues, eigenvectors = self._graph.spectrum
        values = outputscale * spectral_values(theta, self._kernel, eigenvalues)
        kernel = _SpectralKernel(torch.from_numpy(eigenvectors), column, values.detach().clamp_min(0))
        return Prior(kernels=(KernelBlock(kernel.covariance, kernel.variances, (values,), kernel, name),))


class _SpectralKernel(NamedTuple):
    """A kernel V values V^T on nodes, and functions drawn from its prior."""

    vectors: Tensor  # (N, N)
    column: int  # of the nodes of rows (n, D)
    values: Tensor  # (N,) of the functions, without gradients

    def covariance(self, a: Tensor, b: Tensor, values: Tensor) -> Tensor:
        """Return the covariance (n_a, n_b) of rows at eigenvalues (N,)."""
        return (self._at(a) * values) @ self._at(b).mT

    def variances(self, a: Tensor, values: Tensor) -> Tensor:
        """Return the variances (n_a,) of rows at eigenvalues (N,)."""
        return self._at(a).square() @ values

    def draw(self, count: int, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
        """Draw functions of n rows, (n, count)."""
        weights = torch.randn(len(self.values), count, generator=generator, dtype=torch.float64)
        weights *= self.values.sqrt()[:, None]
        return lambda x: self._at(x) @ weights

    def kernel_expansion(self, inputs: Tensor, coefficients: Tensor) -> Callable[[Tensor], Tensor]:
        """Return x -> k(x, inputs) @ coefficients, for rows (n, D) and coefficients (n, p)."""
        weights = self.values[:, None] * (self._at(inputs).mT @ coefficients)
        return lambda x: self._at(x) @ weights

    def positions(self, inputs: Tensor) -> Tensor:
        """Return the positions (n,) of the nodes of rows (n, D)."""
        return position_of(self.column, inputs)

    def _at(self, inputs: Tensor) -> Tensor:
        """Return the eigenvectors (n, N) at the nodes of rows (n, D)."""
        return self.vectors[self.positions(inputs)]


class FieldFeatures(NodeFeatures):
    """A kernel of fractional order by a sum of fields with sparse precisions.

    Args:
        graph: The graph.
        kernel: The family.
        terms: The number of fields. If None, `graphs.precisions.default_num_terms` for this kernel.
    """

    name = "rational"

    def __init__(self, graph: graphs.Graph, kernel: GraphKernel, terms: int | None = None) -> None:
        self._graph, self._kernel = graph, kernel
        order, shift, *_ = kernel.resolvent()
        self._field = RationalField(graph, order, default_num_terms(order, shift) if terms is None else terms)

    def prior(self, theta: Tensor, outputscale: Tensor, column: int, name: str) -> Prior:
        """Return the prior of outputscale amplitude (shift + L)^-order at theta (p,)."""
        shift, amplitude = resolvent_values(theta, self._kernel)
        block = PrecisionBlock(self._field, shift, outputscale * amplitude, partial(self._projector, column), name=name)
        return Prior(precisions=(block,))

    def _projector(self, column: int, inputs: Tensor) -> sp.csr_array:
        """Return the matrix (n, N) that reads the nodes of rows (n, D), with the sum of the values of all fields."""
        matrix: sp.csr_array = self._field.projector(position_of(column, inputs).numpy())
        return matrix

    @property
    def size_options(self) -> dict[str, int]:
        """{"degree": number of fields}, as in `rfgp.RationalPrecision`."""
        return {"degree": self._field.terms}

    def suffices(self, other: NodeFeatures) -> bool:
        """Return whether other features have no more fields."""
        return other.size_options.get("degree", 0) <= self.size_options.get("degree", 0)

    def spectral_error(self, kernel: GraphKernel) -> float:
        """Return the largest relative error of the spectrum, |k_hat / k - 1|."""
        return float(self._field.error(kernel.resolvent().shift))

    def __reduce__(self) -> tuple[Any, ...]:
        return FieldFeatures, (self._graph, self._kernel, self._field.terms)


class DrawnFeatures(NodeFeatures):
    """Sparse features: a draw of walks, or a series.

    Args:
        name: "walks", "chebyshev" or "taylor".
        draw: The `graphs.Walks` or `graphs.SeriesFeatures`, for any nodes.
        kernel: The family.
        seed: The seed of probes and of pathwise draws.
    """

    is_sparse = True

    def __init__(self, name: str, draw: graphs.Walks | graphs.SeriesFeatures, kernel: GraphKernel, seed: int) -> None:
        self.name, self.draw, self._kernel = name, draw, kernel
        self._map, self._seed = feature_maps.WalkFeatures(draw, kernel), seed
        self._recent = Recent[feature_maps.WalkFeatures]()

    def prior(self, theta: Tensor, outputscale: Tensor, column: int, name: str) -> Prior:
        """Return the prior of the sparse features at theta (p,)."""
        times = None
        if isinstance(self.draw, graphs.SeriesFeatures):
            times = partial(_series_times, self.draw, self._kernel, theta.detach().numpy())
        size, position = (self.draw.graph.num_nodes, self._seed), partial(position_of, column)
        block = SparseWeightBlock(self._values, outputscale, *size, (theta,), times, name, position)
        return Prior(graph_features=(block,))

    @property
    def size_options(self) -> dict[str, int]:
        """{"degree": degree of the series}, or an empty dict for walks."""
        return {"degree": self.draw.max_length} if isinstance(self.draw, graphs.SeriesFeatures) else {}

    @property
    def walks(self) -> graphs.Walks | None:
        """The walks of the features, without nodes, or None."""
        return self.draw if isinstance(self.draw, graphs.Walks) else None

    def suffices(self, other: NodeFeatures) -> bool:
        """Return whether the exact hops of other walks follow the same rule."""
        hops = [walks.settings.exact_hops for walks in (self.walks, other.walks) if walks is not None]
        rules = [rule.limits.tolist() if isinstance(rule, graphs.HopRule) else rule for rule in hops]
        return rules[:1] == rules[1:]

    def check(self, kernel: GraphKernel) -> None:
        """Warn if walks have a large or infinite variance for a kernel."""
        if self.walks is not None:
            self.walks.check_second_moment(kernel)

    def _values(self, positions: Tensor, keep: bool, theta: Tensor) -> SparseValues:
        """Return the features of positions (n,) at theta (p,).

        If `keep` is True, their draw is cached.
        """
        features = self._at(positions, keep)
        return SparseValues(features(theta), features.walks.pattern)

    def _at(self, positions: Tensor, keep: bool) -> feature_maps.WalkFeatures:
        def draw() -> feature_maps.WalkFeatures:
            return self._map.at(self.draw.graph.as_nodes(positions.numpy()))

        return self._recent.find(positions.numpy().tobytes(), draw, keep=keep)


def _series_times(draw: graphs.SeriesFeatures, kernel: GraphKernel, theta: Any, right: Any) -> Any:
    """Return Phi of all nodes times a matrix (N, p), at kernel parameters theta (p,)."""
    return draw.matmul(kernel.with_values(theta), right)


class SpectrumFeatures(NodeFeatures):
    """Dense features on the leading eigenvectors of the Laplacian.

    They belong to its r smallest eigenvalues.

    Args:
        draw: `graphs.SpectralFeatures`.
        kernel: The family.
    """

    name = "spectrum"

    def __init__(self, draw: graphs.SpectralFeatures, kernel: GraphKernel) -> None:
        self.draw, self._kernel = draw, kernel
        self._vectors = torch.as_tensor(draw.eigenvectors)

    def prior(self, theta: Tensor, outputscale: Tensor, column: int, name: str) -> Prior:
        """Return the prior of V root(eigenvalues) at theta (p,)."""
        features = partial(self._features, column)
        return Prior(weights=(WeightBlock(features, self._vectors.shape[1], (theta,), outputscale, name=name),))

    @property
    def size_options(self) -> dict[str, int]:
        """{"rank": number of eigenvectors}."""
        return {"rank": len(self.draw.eigenvalues)}

    def _features(self, column: int, inputs: Tensor, theta: Tensor) -> Tensor:
        root = function_of_kernel(theta, self._kernel, self.draw.weights, self.draw.weights_jacobian)
        return self._vectors[position_of(column, inputs)] * root


def make_features(
    name: str, graph: graphs.Graph, kernel: GraphKernel, seed: int, options: Mapping[str, Any]
) -> NodeFeatures:
    """Return features of one kind. `graphs` raises errors about their options.

    Args:
        name: "rational", "walks", "chebyshev", "taylor" or "spectrum".
        graph: The graph.
        kernel: The family, and the kernel that walks are tuned to.
        seed: The seed of walks.
        options: Options of `graphs.sample_walks`, and `degree` and `rank`. If None, the latter two follow from
            `max_nonzeros`.
    """
    options = dict(options)
    degree, rank, walkers = options.pop("degree", None), options.pop("rank", None), options.get("num_walkers", 16)
    budget = options.get("max_nonzeros") or (
        NONZEROS_PER_WALKER * walkers if isinstance(walkers, int | np.integer) else 64
    )
    if name == "rational":
        return FieldFeatures(graph, kernel, degree)
    if name == "walks":
        options["max_nonzeros"] = budget
        return DrawnFeatures(name, graphs.sample_walks(graph, [], seed=seed, kernel=kernel, **options), kernel, seed)
    if name == "spectrum":
        chosen = min(budget, graph.num_nodes) if rank is None else rank
        return SpectrumFeatures(graphs.spectral_features(graph, [], chosen), kernel)
    make = {"chebyshev": graphs.chebyshev_features, "taylor": graphs.taylor_features}[name]
    chosen = graphs.max_series_degree(graph, budget) if degree is None else degree
    return DrawnFeatures(name, make(graph, [], chosen), kernel, seed)


def drawn_with(walks: graphs.Walks) -> dict[str, Any]:
    """Return the options with which another seed draws walks of the same distribution.

    Args:
        walks: The walks.

    Returns:
        The exact hops, and the permutation or tuples of the coupling of lengths if it has them.
    """
    settings = walks.settings
    chosen: dict[str, Any] = {"exact_hops": settings.exact_hops}
    if isinstance(settings.length_coupling, Sigma):
        chosen["permutation"] = settings.length_coupling.permutation
    if isinstance(settings.length_coupling, Tuples):
        chosen["tuples"] = settings.length_coupling.tuples
    return chosen


# --- Terms of kernels on the nodes of a graph, by features of nodes --------------------------------------------------


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


def node_term(data: TermData, features: NodeFeatures) -> TermPrior:
    """Return a term with features of nodes.

    Args:
        data: The term.
        features: The features.
    """
    ((_, (column,), _),) = data.term.parts()
    given = data.term.name, column, nodes_of(data)[2], scale_name(data.term, data.values)
    return TermPrior("nodes", partial(_node_prior, *given), features)


def _node_prior(
    name: str,
    column: int,
    paths: tuple[str, ...],
    scale: str | None,
    features: NodeFeatures,
    values: Values,
    columns: ColumnSummary,
) -> Prior:
    """Return the prior at hyperparameters by path, with those of the graph kernel in the order of `paths`."""
    parameters = [values[path].double() for path in paths]
    theta = torch.stack(parameters) if parameters else torch.zeros(0, dtype=torch.float64)
    variance = variance_at(scale, values)
    return features.prior(theta, torch.ones(()).double() if variance is None else variance.double(), column, name)


def position_of(column: int, inputs: Tensor) -> Tensor:
    """Return the positions (n,) of the nodes of rows (n, D).

    Args:
        column: The index of the column of the nodes.
        inputs: The rows, (n, D).
    """
    return inputs[:, column].long()


# --- Approximations of kernels on the nodes of a graph ---------------------------------------------------------------


class NodeApproximation(Approximation):
    """An approximation of a kernel on nodes.

    Attributes:
        kind: The kind of features, of `rfgp.approximations.nodes`.
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
        """The options of the features of nodes: all except the seed."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "seed"}

    def unsupported_reason(self, data: TermData) -> str | None:
        """Return why the approximation does not support a term, or None."""
        if data.is_averaged:
            return OF_AREAS
        nodes = [part for part in data.term.parts() if part[0].kind is ColumnKind.NODE]
        if len(nodes) != 1:
            return "it has no factor on the nodes of exactly one graph."
        others = [factor for factor, _, _ in data.term.parts() if factor.kind is not ColumnKind.NODE]
        return f"it is multiplied by {label_of(others[0])}. Use SparsePrecision() or Exact()." if others else None

    def cost(self, data: TermData, prior: TermPrior | None = None) -> TermCost:
        """Return the cost of the features."""
        most = int(self.options.get("max_nonzeros") or self.options.get("rank") or 64)  # features of a node
        return TermCost(data.num_rows, 12.0 * most * data.num_rows, f"{self.kind} of the nodes")

    def build(self, data: TermData, seed: int) -> TermPrior:
        """Return the term with features for the graph and the kernel."""
        return node_term(data, self.make(data, seed, self.options))

    def make(self, data: TermData, seed: int, options: Mapping[str, Any]) -> NodeFeatures:
        """Return features for the graph and the kernel of a term.

        Args:
            data: The term.
            seed: The seed for the term, unless the approximation has its own.
            options: The options of the features.
        """
        graph, kernel, _ = nodes_of(data)
        own_seed = seed if self.seed is None else random.resolve_seed(self.seed)
        return make_features(self.kind, graph, kernel, own_seed, options)

    def renewed(self, data: TermData, seed: int, prior: TermPrior) -> TermPrior:
        """Return a term with new features for other hyperparameters, or the term if its features suffice.

        Args:
            data: The term, at the other hyperparameters.
            seed: The seed for the term.
            prior: The term.
        """
        features = self.make(data, seed, self.options)
        return prior if prior.basis.suffices(features) else replace(prior, basis=features)


_OF_COUPLINGS = ("permutation", "num_quantiles", "tuples")
"""The options of walks that only some couplings of their lengths have."""


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
    kind: ClassVar[str] = "walks"
    count: ClassVar[str] = "num_walkers"

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the features.

        Options of some couplings are included only if given.
        """
        return {n: value for n, value in super().options.items() if value is not None or n not in _OF_COUPLINGS}

    def rebuild(self, data: TermData, seed: int, prior: TermPrior) -> TermPrior:
        """Return the term with exact hops for other hyperparameters."""
        if self.exact_hops != "auto" or not nodes_of(data)[2]:
            return prior
        return self.renewed(data, seed, prior)


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
    """A truncated power series of the adjacency matrix for the kernel's square root.

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
        return prior if self.degree is not None else self.renewed(data, seed, prior)


# --- Samples of nodes, and precisions ---------------------------------------------------------------------------------

MAX_SAMPLED = 128
"""The maximum number of nodes of the sample."""
MAX_ENTRIES = 2**25
"""The maximum number of entries of the kernel columns of the sampled nodes. At least 16 nodes are sampled."""


def sample_of(graph: graphs.Graph) -> NDArray[np.int64]:
    """Return the positions (n,) over which features are measured.

    Args:
        graph: The graph.
    """
    return node_sample(graph, max(16, min(MAX_SAMPLED, MAX_ENTRIES // graph.num_nodes)), 0)


def has_small_precision(graph: graphs.Graph, kernel: GraphKernel) -> bool:
    """Return whether a kernel of many nodes has a precision with a small factor.

    Args:
        graph: The graph. With at most 2,000 nodes the result is False.
        kernel: The kernel.
    """
    return graph.num_nodes > limits().max_exact_nodes and precision_candidate(graph, kernel) is not None
