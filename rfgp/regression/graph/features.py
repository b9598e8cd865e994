"""Features of nodes behind one role: exact, sparse (walks and series), and those of a truncated spectrum."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

import graphs
from graphs.couplings import Sigma, Tuples
from graphs.kernels import GraphKernel
from graphs.kernels.kernel import precision_order
from graphs.precisions import RationalField, resolvent_field, usual_terms
from rfgp import features as feature_maps
from rfgp.features import kernel_function
from rfgp.inference import FeaturePrior, KernelPrior, MarkovPrior, Prior, SparsePrior
from rfgp.sparse import SparseValues

NONZEROS_PER_WALKER = 4
"""A row's budget of non-zeros, where the user names none: the ratio of the defaults of `graphs.sample_walks`."""

_RECENT = 2


class NodeFeatures(ABC):
    """The role: a family of graph kernels through features of nodes.

    Attributes:
        name: "exact", "precision", "rational", "walks", "chebyshev", "taylor" or "spectrum".
    """

    name: str

    @property
    def is_exact(self) -> bool:
        """Whether these are the kernel itself."""
        return self.name in ("exact", "precision")

    @abstractmethod
    def prior(self, theta: Tensor, outputscale: Tensor) -> Prior:
        """Return the prior at kernel parameters theta (p,) and an output scale, 0-d."""

    def check(self, kernel: GraphKernel) -> None:
        """Warn where these features are known to be poor for a kernel."""

    def forget(self) -> None:
        """Drop what was drawn for rows and can be drawn again: these features make way for others."""


class ExactFeatures(NodeFeatures):
    """None: the kernel itself, by the eigenvectors of the Laplacian."""

    name = "exact"

    def __init__(self, graph: graphs.Graph, kernel: GraphKernel) -> None:
        self._graph, self._kernel = graph, kernel

    def prior(self, theta: Tensor, outputscale: Tensor) -> KernelPrior:
        """Return the prior of outputscale V k(eigenvalues) V^T at theta (p,)."""
        eigenvalues, eigenvectors = self._graph.spectrum
        vectors = torch.from_numpy(eigenvectors)
        values = outputscale * kernel_function(
            theta,
            lambda point: self._kernel.with_values(point).spectral(eigenvalues),
            lambda point: self._kernel.with_values(point).spectral_jacobian(eigenvalues),
        )

        def kernel(a: Tensor, b: Tensor) -> Tensor:
            return (vectors[a] * values) @ vectors[b].mT

        functions = _SpectralFunctions(vectors, values.detach().clamp_min(0))
        return KernelPrior(kernel, lambda a: vectors[a].square() @ values, functions)


class PrecisionFeatures(NodeFeatures):
    """None: the kernel itself, by its sparse precision."""

    name = "precision"

    def __init__(self, graph: graphs.Graph, kernel: GraphKernel) -> None:
        self._graph, self._kernel, self._nodes = graph, kernel, graph.num_nodes
        self._field = resolvent_field(graph, precision_order(kernel))

    def prior(self, theta: Tensor, outputscale: Tensor) -> MarkovPrior:
        """Return the prior of outputscale amplitude (shift + L)^-order at theta (p,)."""
        shift, amplitude = _resolvent(self._kernel, theta)
        return MarkovPrior(self._field, shift, outputscale * amplitude, self._selection)

    def __reduce__(self) -> tuple[Any, ...]:
        return PrecisionFeatures, (self._graph, self._kernel)

    def _selection(self, positions: Tensor) -> sp.csr_array:
        count = len(positions)
        entries = np.ones(count), positions.numpy(), np.arange(count + 1)
        return sp.csr_array(entries, shape=(count, self._nodes))


class RationalFeatures(NodeFeatures):
    """A kernel of fractional order as a sum of fields with sparse precisions.

    Args:
        graph: The graph.
        kernel: The family.
        terms: The number of fields; None: the usual ones for this kernel.
    """

    name = "rational"

    def __init__(self, graph: graphs.Graph, kernel: GraphKernel, terms: int | None) -> None:
        self._graph, self._kernel = graph, kernel
        order, shift, *_ = kernel.resolvent()
        self.field = RationalField(graph, order, usual_terms(order, shift) if terms is None else terms)

    def prior(self, theta: Tensor, outputscale: Tensor) -> MarkovPrior:
        """Return the prior of the sum at theta (p,)."""
        shift, amplitude = _resolvent(self._kernel, theta)
        field = self.field
        return MarkovPrior(field, shift, outputscale * amplitude, lambda positions: field.select(positions.numpy()))

    @property
    def terms(self) -> int:
        """The number of fields."""
        return self.field.terms

    def error(self, kernel: GraphKernel) -> float:
        """Return the largest relative error of the spectrum, |k_hat / k - 1|, at a kernel of the family."""
        return self.field.error(kernel.resolvent().shift)

    def __reduce__(self) -> tuple[Any, ...]:
        return RationalFeatures, (self._graph, self._kernel, self.terms)


def _resolvent(kernel: GraphKernel, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Return shift (1,) and amplitude, 0-d, at kernel parameters theta (p,)."""

    def value(point: Any) -> Any:
        found = kernel.with_values(point).resolvent()
        return np.array([found.shift, found.amplitude])

    shift, amplitude = kernel_function(theta, value, lambda point: kernel.with_values(point).resolvent().jacobian)
    return shift[None], amplitude


class _SpectralFunctions(NamedTuple):
    """Functions of the prior V values V^T."""

    vectors: Tensor  # (N, N)
    values: Tensor  # (N,)

    def draw(self, count: int, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
        """Draw functions of n positions, (n, count)."""
        weights = torch.randn(len(self.values), count, generator=generator, dtype=torch.float64)
        weights *= self.values.sqrt()[:, None]
        return lambda x: self.vectors[x] @ weights

    def through(self, inputs: Tensor, coefficients: Tensor) -> Callable[[Tensor], Tensor]:
        """Return x -> k(x, inputs) @ coefficients, for positions (n,) and coefficients (n, p)."""
        weights = self.values[:, None] * (self.vectors[inputs].mT @ coefficients)
        return lambda x: self.vectors[x] @ weights


class DrawnFeatures(NodeFeatures):
    """Sparse features: a draw of walks, or a series.

    Args:
        name: "walks", "chebyshev" or "taylor".
        draw: `graphs.Walks` or `graphs.SeriesFeatures`, of any nodes.
        kernel: The family.
        seed: Of what inference draws.
    """

    def __init__(self, name: str, draw: graphs.Walks | graphs.SeriesFeatures, kernel: GraphKernel, seed: int) -> None:
        self.name, self.draw, self._kernel = name, draw, kernel
        self._map, self._seed = feature_maps.WalkFeatures(draw, kernel), seed
        self._recent: tuple[tuple[bytes, feature_maps.WalkFeatures], ...] = ()  # swapped whole: threads may share it

    def prior(self, theta: Tensor, outputscale: Tensor) -> SparsePrior:
        """Return the prior of the sparse features at theta (p,)."""

        def at(positions: Tensor, keep: bool) -> SparseValues:
            features = self._at(positions, keep)
            return SparseValues(features(theta), features.walks.pattern)

        draw, point = self.draw, theta.detach().numpy()

        def times(right: Any) -> Any:
            assert isinstance(draw, graphs.SeriesFeatures)
            return draw.times(self._kernel.with_values(point), right)

        whole = times if isinstance(draw, graphs.SeriesFeatures) else None
        return SparsePrior(at, outputscale, draw.graph.num_nodes, self._seed, whole)

    def check(self, kernel: GraphKernel) -> None:
        """Warn where walks have a large or infinite variance for a kernel."""
        if isinstance(self.draw, graphs.Walks):
            self.draw.check_second_moment(kernel)

    def _at(self, positions: Tensor, keep: bool) -> feature_maps.WalkFeatures:
        """Return the features of these positions; what was drawn for the training data is kept."""
        key = positions.numpy().tobytes()
        for other, features in self._recent:
            if other == key:
                return features
        features = self._map.at(self.draw.graph.named(positions.numpy()))
        if keep:
            self._recent = (*self._recent[1 - _RECENT :], (key, features))
        return features

    def forget(self) -> None:
        """Drop what was drawn for rows."""
        self._recent = ()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_recent": ()}


class SpectrumFeatures(NodeFeatures):
    """Dense features on the eigenvectors of the r smallest eigenvalues of the Laplacian.

    Args:
        draw: `graphs.SpectralFeatures`.
        kernel: The family.
    """

    name = "spectrum"

    def __init__(self, draw: graphs.SpectralFeatures, kernel: GraphKernel) -> None:
        self.draw, self._kernel = draw, kernel
        self._vectors = torch.as_tensor(draw.eigenvectors)

    def prior(self, theta: Tensor, outputscale: Tensor) -> FeaturePrior:
        """Return the prior of V root(eigenvalues) at theta (p,)."""

        def features(positions: Tensor, theta: Tensor) -> Tensor:
            root = kernel_function(
                theta,
                lambda point: self.draw.weights(self._kernel.with_values(point)),
                lambda point: self.draw.weights_jacobian(self._kernel.with_values(point)),
            )
            return self._vectors[positions] * root

        return FeaturePrior(features, self._vectors.shape[1], (theta,), outputscale)


def make_features(
    name: str, graph: graphs.Graph, kernel: GraphKernel, seed: int, options: Mapping[str, Any]
) -> NodeFeatures:
    """Return features of one kind; what is wrong with an option is said here.

    Args:
        name: "exact", "precision", "rational", "walks", "chebyshev", "taylor" or "spectrum".
        graph: The graph.
        kernel: What the walks are tuned to, and the family.
        seed: Of the walks.
        options: Of `graphs.sample_walks`; `degree` and `rank`, None: as much as `max_nonzeros` a row holds.
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
    chosen = graphs.largest_degree(graph, budget) if degree is None else degree
    return DrawnFeatures(name, make(graph, [], chosen), kernel, seed)


def drawn_with(walks: graphs.Walks) -> dict[str, Any]:
    """Return what was chosen for these walks: with it another seed draws walks of the same law."""
    settings = walks.settings
    chosen: dict[str, Any] = {"exact_hops": settings.exact_hops}
    if isinstance(settings.coupling, Sigma):
        chosen["permutation"] = settings.coupling.permutation
    if isinstance(settings.coupling, Tuples):
        chosen["tuples"] = settings.coupling.tuples
    return chosen


def same_hops(features: NodeFeatures, walks: graphs.Walks) -> bool:
    """Whether features come from walks whose exact hops follow the same rule."""
    draw = getattr(features, "draw", None)
    if not isinstance(draw, graphs.Walks):
        return False
    hops = (draw.settings.exact_hops, walks.settings.exact_hops)
    first, second = (h.limits.tolist() if isinstance(h, graphs.HopRule) else h for h in hops)
    return bool(first == second)


def chosen_size(features: NodeFeatures | None) -> dict[str, int]:
    """Return the degree of a series or a number of fields, or the rank of a spectrum, by its name; or nothing."""
    if isinstance(features, RationalFeatures):
        return {"degree": features.terms}
    draw = getattr(features, "draw", None)
    if isinstance(draw, graphs.SeriesFeatures):
        return {"degree": draw.max_length}
    return {"rank": len(draw.eigenvalues)} if isinstance(draw, graphs.SpectralFeatures) else {}
