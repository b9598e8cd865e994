"""The Gaussian process on the nodes of a graph."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

import graphs
from graphs.kernels import GraphKernel
from rfgp import features as feature_maps
from rfgp import random
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.features import kernel_function
from rfgp.inference import KernelPrior
from rfgp.models.data import Source
from rfgp.models.fitting import FitReport
from rfgp.models.process import Process, snapshot
from rfgp.parameters import Hyperparameters, Prior, Quantity
from rfgp.scaling import Affine, Scaling

_KernelAndDiagonal = tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], Tensor]]

PARAMETER_BOUNDS = (1e-2, 1e3)
EXACT_LIMIT = 2000
NONZEROS_PER_WALKER = 4
"""A row's budget for exact hops, where the user names none: the ratio of the defaults of `graphs.sample_walks`."""


@dataclass(frozen=True, eq=False)
class NodeInputs:
    """Labels of a graph's nodes, and the parameters of a graph kernel.

    Attributes:
        graph: The graph.
        kernel: The kernel at its starting values.
        dtype: float64, always.
    """

    graph: graphs.Graph
    kernel: GraphKernel
    dtype: torch.dtype = torch.float64

    def read(self, inputs: Any) -> tuple[Tensor, Source]:
        """Return the positions (n,) of n labels."""
        labels = inputs.tolist() if isinstance(inputs, Tensor) else inputs
        if isinstance(labels, str) or not hasattr(labels, "__iter__"):
            raise DataError(f"Nodes must be a sequence of labels, got {labels!r}.")
        positions = torch.as_tensor(self.graph.index(labels))
        return positions, Source(not isinstance(inputs, Tensor), torch.empty(0, dtype=torch.float64))

    def fit_scaling(self, inputs: Tensor, targets: Tensor) -> Scaling:
        """Return the map of targets (n,) to mean 0 and standard deviation 1; nodes have none."""
        return Scaling(Affine.standardizing(targets))

    def quantities(self, inputs: Tensor, scaling: Scaling) -> dict[str, Quantity]:
        """Return the kernel's parameters, whatever the inputs (n,)."""
        one = torch.ones((), dtype=self.dtype)
        pairs = zip(self.kernel.parameters, self.kernel.values, strict=True)
        bounds = (PARAMETER_BOUNDS[0] * one, PARAMETER_BOUNDS[1] * one)
        return {name: Quantity(one * value, one, bounds) for name, value in pairs}

    def starts(self) -> dict[str, Any]:
        """Return nothing: the kernel itself is the start."""
        return {}

    def restore(self, inputs: Tensor, as_numpy: bool) -> Any:
        """Return the labels at positions (n,).

        Raises:
            DataError: a position is outside 0..N-1.
        """
        if inputs.dtype != torch.int64 or bool(((inputs < 0) | (inputs >= self.graph.num_nodes)).any()):
            raise DataError(f"Positions must be integers 0..{self.graph.num_nodes - 1}.")
        labels = self.graph.labels
        if labels is not None:
            return [labels[i] for i in inputs.tolist()]
        return inputs.numpy() if as_numpy else inputs


class GraphGP(Process):
    """A Gaussian process on graph nodes, through walks or the exact kernel.

    Inputs are node labels; the same node may be observed more than once.

    Args:
        graph: The graph.
        kernel: "diffusion", "regularized-laplacian", or a kernel whose parameters are the start.
        features: "walks", "exact", or "auto": exact up to 2,000 nodes, walks beyond. What it chose
            is readable in `.features`.
        num_walkers: Walkers per node, as the next seven for `graphs.sample_walks`.
        halt: The halting probability.
        lengths: The coupling of a node's lengths.
        directions: The coupling of a node's directions.
        exact_hops: An integer, a `graphs.HopRule`, or "auto", tuned to `kernel`, with at most four non-zeros a row for
            each walker.
        outputscale: Starting value; None: the targets' variance.
        noise: Starting value of the noise variance; None: a tenth of the targets' variance.
        priors: Log densities (objects with `log_prob`) of named hyperparameters, in the user's units.
        seed: An integer, or None for one from the system, kept as `.seed`.
        walk_options: Further options of `graphs.sample_walks`, such as `permutation` or `max_nonzeros`.

    Hyperparameters: the kernel's parameters by their names, outputscale, noise, mean.

    Raises:
        InvalidArgumentError: an unknown name; `graphs` raises its own for the walks.
    """

    def __init__(
        self,
        graph: graphs.Graph,
        kernel: str | GraphKernel = "diffusion",
        features: str = "auto",
        num_walkers: int = 64,
        halt: Any = 0.1,
        lengths: str = "systematic",
        directions: str = "stratified",
        exact_hops: int | str | graphs.HopRule = "auto",
        outputscale: float | None = None,
        noise: float | None = None,
        priors: Mapping[str, Prior] | None = None,
        seed: int | None = None,
        *,
        walk_options: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(graph, graphs.Graph):
            raise InvalidArgumentError(f"A graphs.Graph is needed, got {type(graph).__name__}; build one first.")
        kernel = kernel if isinstance(kernel, GraphKernel) else graphs.kernels.by_name(kernel)
        super().__init__(NodeInputs(graph, kernel), outputscale, noise, priors)
        if features not in ("auto", "walks", "exact"):
            raise InvalidArgumentError(f'features must be "walks", "exact" or "auto", got {features!r}.')
        self.graph = graph
        self.kernel = kernel
        self.seed = random.resolve_seed(seed)
        self.features = features
        if features == "auto":
            self.features = "exact" if graph.num_nodes <= EXACT_LIMIT else "walks"
        self._walk_options: dict[str, Any] = {
            "num_walkers": num_walkers,
            "halt": halt,
            "lengths": lengths,
            "directions": directions,
            "exact_hops": exact_hops,
            **(walk_options or {}),
        }
        self._options: dict[str, Any] = {"outputscale": outputscale, "noise": noise, "priors": priors}
        self._draws: dict[bytes, feature_maps.WalkFeatures] = {}
        self._walks: feature_maps.WalkFeatures | None = None
        if self.features == "walks":  # fails now, not at fit, where an option is wrong
            options = dict(self._walk_options)
            if isinstance(num_walkers, int | np.integer):
                options.setdefault("max_nonzeros", NONZEROS_PER_WALKER * num_walkers)
            walks = graphs.sample_walks(graph, [], seed=self.seed, kernel=self.kernel, **options)
            self._walks = feature_maps.WalkFeatures(walks, self.kernel)

    def redraw(self, **changes: Any) -> "GraphGP":
        """Return a new model with new features; what is not named stays, data and hyperparameters too.

        Exact hops that were chosen stay as they are unless an option of the walks is named; then they are chosen anew,
        for the fitted kernel.

        Args:
            changes: `features`, `seed`, or any option of the walks.

        Raises:
            InvalidArgumentError: another name.
            NotFittedError: there are no data yet.
        """
        unknown = set(changes) - {
            "features",
            "seed",
            "transitions",
            "permutation",
            "num_quantiles",
            "max_nonzeros",
            "tuples",
            *self._walk_options,
        }
        if unknown:
            raise InvalidArgumentError(f"redraw does not know {', '.join(sorted(unknown))}.")
        named: dict[str, Any] = {"features": self.features, "seed": self.seed}
        named.update({name: changes.pop(name) for name in tuple(named) if name in changes})
        kept = None if changes or self._walks is None else cast(graphs.Walks, self._walks.walks).settings.exact_hops
        if changes:
            named["features"] = named["features"] if self.features == "walks" else "walks"
        options = {**self._walk_options, **changes}
        main = {name: options.pop(name) for name in ("num_walkers", "halt", "lengths", "directions", "exact_hops")}
        hops = main["exact_hops"] if kept is None else kept  # tuned anew with other walks only
        given = {**main, "exact_hops": hops}
        other = GraphGP(self.graph, self.fitted_kernel, **named, **given, **self._options, walk_options=options)
        other._walk_options = {**main, **options}
        snapshot(self, other)
        other._check_fit()
        return other

    def exact(self) -> "GraphGP":
        """Return the exact process with a copy of the hyperparameters and the same data."""
        return self.redraw(features="exact")

    @property
    def walk_options(self) -> dict[str, Any]:
        """The options of `graphs.sample_walks` that the features are drawn with; a copy."""
        return dict(self._walk_options)

    @property
    def fitted_kernel(self) -> GraphKernel:
        """The graph kernel at the present hyperparameters, without the output scale."""
        return self.kernel.with_values(self._theta(self.hyperparameters).detach().numpy())

    def _prior(self, hyperparameters: Hyperparameters, draw: Any) -> KernelPrior:
        theta = self._theta(hyperparameters)
        kernel, diagonal = self._exact_kernel(theta) if self.features == "exact" else self._walk_kernel(theta)
        outputscale = hyperparameters.standardized("outputscale")
        return KernelPrior(lambda a, b: outputscale * kernel(a, b), lambda a: outputscale * diagonal(a))

    def _check_fit(self, report: FitReport | None = None) -> None:
        if self._walks is not None:
            walks = cast(graphs.Walks, self._walks.walks)
            walks.check_second_moment(self.fitted_kernel)

    def _theta(self, hyperparameters: Hyperparameters) -> Tensor:
        values = [hyperparameters.standardized(name) for name in self.kernel.parameters]
        return torch.stack(values) if values else torch.zeros(0, dtype=torch.float64)

    def _exact_kernel(self, theta: Tensor) -> _KernelAndDiagonal:
        eigenvalues, eigenvectors = self.graph.spectrum
        vectors = torch.as_tensor(np.ascontiguousarray(eigenvectors))
        values = kernel_function(
            theta,
            lambda point: self.kernel.with_values(point).spectral(eigenvalues),
            lambda point: self.kernel.with_values(point).spectral_jacobian(eigenvalues),
        )
        return lambda a, b: (vectors[a] * values) @ vectors[b].mT, lambda a: vectors[a].square() @ values

    def _walk_kernel(self, theta: Tensor) -> _KernelAndDiagonal:
        def kernel(a: Tensor, b: Tensor) -> Tensor:
            phi_a, phi_b = self._features_at(a), self._features_at(b)
            values_a = phi_a(theta)
            values_b = values_a if phi_b is phi_a else phi_b(theta)
            return feature_maps.gram(values_a, phi_a.walks.pattern, values_b, phi_b.walks.pattern)

        def diagonal(a: Tensor) -> Tensor:
            phi = self._features_at(a)
            rows = np.repeat(np.arange(len(a)), np.diff(phi.walks.pattern.indptr))
            return torch.zeros(len(a), dtype=theta.dtype).index_add(0, torch.as_tensor(rows), phi(theta).square())

        return kernel, diagonal

    def _features_at(self, positions: Tensor) -> feature_maps.WalkFeatures:
        """Return the walks from these positions, kept while they are those of the training data."""
        assert self._walks is not None
        key = positions.numpy().tobytes()
        if key not in self._draws:
            labels = self.graph.labels
            nodes = positions.numpy() if labels is None else [labels[i] for i in positions.tolist()]
            if len(self._draws) >= 4:
                self._draws.pop(next(iter(self._draws)))
            self._draws[key] = self._walks.at(nodes)
        return self._draws[key]
