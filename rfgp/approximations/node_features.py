"""Features of nodes with one interface: exact kernels, walks, series, spectra and precisions."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

import graphs
from graphs.couplings import Sigma, Tuples
from graphs.kernels import GraphKernel
from graphs.kernels.kernel import precision_order
from graphs.precisions import RationalField, default_num_terms, resolvent_field
from rfgp import features as feature_maps
from rfgp.blocks import KernelBlock, PrecisionBlock, Prior, SparseWeightBlock, WeightBlock
from rfgp.features.walks import function_of_kernel, resolvent_values, spectral_values
from rfgp.sparse import SparseValues

FEATURES = ("auto", "walks", "chebyshev", "taylor", "spectrum", "rational", "precision", "exact")
"""The kinds of features. "auto" selects one by a rule or by its measured error."""
NONZEROS_PER_WALKER = 4
"""The default number of non-zeros a row for each walker: the ratio of the defaults of `graphs.sample_walks`."""

_RECENT = 2
"""The number of sets of positions whose features are cached."""


class NodeFeatures(ABC):
    """Interface: features of nodes for a family of graph kernels.

    Attributes:
        name: "exact", "precision", "rational", "walks", "chebyshev", "taylor" or "spectrum".
    """

    name: str
    is_sparse = False
    """Whether features are sparse: walks or a series."""

    @property
    def is_exact(self) -> bool:
        """Whether the prior is that of the kernel itself."""
        return self.name in ("exact", "precision")

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
    def prior(self, theta: Tensor, outputscale: Tensor) -> Prior:
        """Return the prior at kernel parameters theta (p,) and an output scale, 0-d.

        Args:
            theta: The parameters of the graph kernel, (p,).
            outputscale: The output scale, 0-d.
        """

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

    def prior(self, theta: Tensor, outputscale: Tensor) -> Prior:
        """Return the prior of outputscale V k(eigenvalues) V^T at theta (p,)."""
        eigenvalues, eigenvectors = self._graph.spectrum
        vectors = torch.from_numpy(eigenvectors)
        values = outputscale * spectral_values(theta, self._kernel, eigenvalues)
        covariance, variances = partial(_spectral_covariance, vectors), partial(_spectral_variances, vectors)
        functions = _SpectralFunctions(vectors, values.detach().clamp_min(0))
        return Prior(kernels=(KernelBlock(covariance, variances, (values,), functions),))


def _spectral_covariance(vectors: Tensor, a: Tensor, b: Tensor, values: Tensor) -> Tensor:
    """Return the covariance (n_a, n_b) of a kernel from its eigendecomposition.

    The eigenvectors are (N, N) and the eigenvalues (N,).
    """
    return (vectors[a] * values) @ vectors[b].mT


def _spectral_variances(vectors: Tensor, a: Tensor, values: Tensor) -> Tensor:
    """Return the variances (n_a,) of a kernel from its eigendecomposition.

    The eigenvectors are (N, N) and the eigenvalues (N,).
    """
    return vectors[a].square() @ values


class PrecisionFeatures(NodeFeatures):
    """The exact kernel, by its sparse precision."""

    name = "precision"

    def __init__(self, graph: graphs.Graph, kernel: GraphKernel) -> None:
        self._graph, self._kernel = graph, kernel
        self._field = resolvent_field(graph, precision_order(kernel))

    def prior(self, theta: Tensor, outputscale: Tensor) -> Prior:
        """Return the prior of outputscale amplitude (shift + L)^-order at theta (p,)."""
        shift, amplitude = resolvent_values(theta, self._kernel)
        projector = partial(_selection, self._graph.num_nodes)
        return Prior(precisions=(PrecisionBlock(self._field, shift, outputscale * amplitude, projector),))

    def __reduce__(self) -> tuple[Any, ...]:
        return PrecisionFeatures, (self._graph, self._kernel)


def _selection(num_nodes: int, positions: Tensor) -> sp.csr_array:
    """Return the matrix (n, N) that selects the values at positions (n,)."""
    count = len(positions)
    return sp.csr_array((np.ones(count), positions.numpy(), np.arange(count + 1)), shape=(count, num_nodes))


class RationalFeatures(NodeFeatures):
    """A kernel of fractional order as a sum of fields with sparse precisions.

    Args:
        graph: The graph.
        kernel: The family.
        terms: The number of fields. If None, `graphs.precisions.default_num_terms` for this kernel.
    """

    name = "rational"

    def __init__(self, graph: graphs.Graph, kernel: GraphKernel, terms: int | None) -> None:
        self._graph, self._kernel = graph, kernel
        order, shift, *_ = kernel.resolvent()
        self.field = RationalField(graph, order, default_num_terms(order, shift) if terms is None else terms)

    def prior(self, theta: Tensor, outputscale: Tensor) -> Prior:
        """Return the prior of the sum at theta (p,)."""
        shift, amplitude = resolvent_values(theta, self._kernel)
        projector = partial(_sum_of_fields, self.field)
        return Prior(precisions=(PrecisionBlock(self.field, shift, outputscale * amplitude, projector),))

    @property
    def terms(self) -> int:
        """The number of fields."""
        return self.field.terms

    @property
    def size_options(self) -> dict[str, int]:
        """{"degree": number of fields}, as in `rfgp.RationalPrecision`."""
        return {"degree": self.terms}

    def spectral_error(self, kernel: GraphKernel) -> float:
        """Return the largest relative error of the spectrum, |k_hat / k - 1|."""
        return self.field.error(kernel.resolvent().shift)

    def __reduce__(self) -> tuple[Any, ...]:
        return RationalFeatures, (self._graph, self._kernel, self.terms)


def _sum_of_fields(field: RationalField, positions: Tensor) -> sp.csr_array:
    """Return the matrix that sums the values of all fields at positions (n,)."""
    return field.projector(positions.numpy())


class _SpectralFunctions(NamedTuple):
    """Functions drawn from the prior V values V^T."""

    vectors: Tensor  # (N, N)
    values: Tensor  # (N,)

    def draw(self, count: int, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
        """Draw functions of n positions, (n, count)."""
        weights = torch.randn(len(self.values), count, generator=generator, dtype=torch.float64)
        weights *= self.values.sqrt()[:, None]
        return lambda x: self.vectors[x] @ weights

    def kernel_expansion(self, inputs: Tensor, coefficients: Tensor) -> Callable[[Tensor], Tensor]:
        """Return x -> k(x, inputs) @ coefficients.

        The inputs are positions (n,), and the coefficients (n, p).
        """
        weights = self.values[:, None] * (self.vectors[inputs].mT @ coefficients)
        return lambda x: self.vectors[x] @ weights


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
        self._recent: tuple[
            tuple[bytes, feature_maps.WalkFeatures], ...
        ] = ()  # replaced, never changed: threads may share it

    def prior(self, theta: Tensor, outputscale: Tensor) -> Prior:
        """Return the prior of the sparse features at theta (p,)."""
        times = None
        if isinstance(self.draw, graphs.SeriesFeatures):
            times = partial(_series_times, self.draw, self._kernel, theta.detach().numpy())
        size = self.draw.graph.num_nodes, self._seed
        return Prior(graph_features=(SparseWeightBlock(self._values, outputscale, *size, (theta,), times),))

    @property
    def size_options(self) -> dict[str, int]:
        """{"degree": degree of the series}, or an empty dict for walks."""
        return {"degree": self.draw.max_length} if isinstance(self.draw, graphs.SeriesFeatures) else {}

    @property
    def walks(self) -> graphs.Walks | None:
        """The walks of the features, without nodes, or None."""
        return self.draw if isinstance(self.draw, graphs.Walks) else None

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
        key = positions.numpy().tobytes()
        for other, features in self._recent:
            if other == key:
                return features
        features = self._map.at(self.draw.graph.as_nodes(positions.numpy()))
        if keep:
            self._recent = (*self._recent[1 - _RECENT :], (key, features))
        return features

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_recent": ()}


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

    def prior(self, theta: Tensor, outputscale: Tensor) -> Prior:
        """Return the prior of V root(eigenvalues) at theta (p,)."""
        return Prior(weights=(WeightBlock(self._features, self._vectors.shape[1], (theta,), outputscale),))

    @property
    def size_options(self) -> dict[str, int]:
        """{"rank": number of eigenvectors}."""
        return {"rank": len(self.draw.eigenvalues)}

    def _features(self, positions: Tensor, theta: Tensor) -> Tensor:
        root = function_of_kernel(theta, self._kernel, self.draw.weights, self.draw.weights_jacobian)
        return self._vectors[positions] * root


def make_features(
    name: str, graph: graphs.Graph, kernel: GraphKernel, seed: int, options: Mapping[str, Any]
) -> NodeFeatures:
    """Return features of one kind. `graphs` raises errors about their options.

    Args:
        name: "exact", "precision", "rational", "walks", "chebyshev", "taylor" or "spectrum".
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
    if name == "exact":
        return ExactFeatures(graph, kernel)
    if name == "precision":
        return PrecisionFeatures(graph, kernel)
    if name == "rational":
        return RationalFeatures(graph, kernel, degree)
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


def same_hops(features: NodeFeatures, walks: graphs.Walks) -> bool:
    """Return whether exact hops of features and of walks follow the same rule.

    Args:
        features: The features. Only walks have a rule.
        walks: The walks.
    """
    if features.walks is None:
        return False
    hops = (features.walks.settings.exact_hops, walks.settings.exact_hops)
    first, second = (h.limits.tolist() if isinstance(h, graphs.HopRule) else h for h in hops)
    return bool(first == second)
