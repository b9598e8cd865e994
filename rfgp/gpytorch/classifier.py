"""Classification of the nodes of a graph through GPyTorch's variational machinery."""

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, cast

import gpytorch
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import graphs
from graphs.graph import not_a_graph_message
from graphs.kernels import GraphKernel
from rfgp import random
from rfgp.counts import check_count
from rfgp.errors import ConvergenceWarning, DataError, InvalidArgumentError, NotFittedError
from rfgp.gpytorch.draws import choose, make_kernel
from rfgp.gpytorch.labels import encode, listed
from rfgp.gpytorch.latent import LatentFunctions, SoftmaxLikelihood
from rfgp.gpytorch.training import Batch, ClassifierReport, Objective, train

PARAMETER_BOUNDS = (1e-2, 1e3)
OUTPUTSCALE_RANGE = 1e4
"""The output scale stays within this factor of its start."""

MEAN_BOUND = 3.0
"""Where few labels are separated without error the bound would send the means to infinity."""
CHUNK, _CHUNK_ENTRIES = 4096, 2**23


class Latent(NamedTuple):
    """Marginal posteriors of the latent functions.

    Attributes:
        mean: Posterior means, (n,) for two classes and (n, C) for more.
        variance: Posterior variances, with the shape of the mean.
    """

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]


class Moments(NamedTuple):
    """The same as tensors, which is the part of a distribution that likelihoods use."""

    mean: Tensor
    variance: Tensor


@dataclass(frozen=True, eq=False)
class _Fitted:
    """The results of a fit."""

    classes: NDArray[np.generic]
    model: LatentFunctions
    likelihood: Any
    kernel: Any
    inducing: NDArray[np.int64]
    report: ClassifierReport
    root: Tensor = field(repr=False)


class GraphClassifier:
    """A Gaussian process classifier of graph nodes.

    Two classes have one latent function with P(second class) = Phi(f) (`gpytorch.likelihoods.BernoulliLikelihood`).
    More classes have a softmax of one latent function for each class. These are independent in the prior and in the
    approximate posterior. They share the kernel, but have constant means of their own.

    The approximate posterior is a Gaussian at the observed nodes with a free mean and covariance
    (`CholeskyVariationalDistribution`). It and the hyperparameters maximise the evidence lower bound (Hensman et al.,
    2015, "Scalable variational Gaussian process classification"). If more than `max_inducing` nodes are observed, a
    random subset of that size is inducing, and Adam uses minibatches of `batch_size` observations.

    A node may be observed more than once, in different classes. A part of the graph without observations has the prior.

    Args:
        graph: The graph.
        kernel: One of `graphs.kernels.names()` that needs no options, or a kernel whose parameters are the start.
        features: "exact", "walks", "chebyshev", "taylor", "spectrum" or "auto". "auto" is exact up to 2,000 nodes, and
            walks beyond. `.features` has the choice.
        num_walkers: Walkers per node.
        degree: The degree of "chebyshev" and "taylor".
        rank: The number of eigenvectors of "spectrum".
        outputscale: Starting value of the output scale. If None, the mean prior variance at the observed nodes is 1,
            although the diagonal of a graph kernel may be far from 1 (0.05 for a diffusion kernel).
        mean: Starting value of the constant means, which stay within -3 and 3 unless fixed.
        max_inducing: The most inducing nodes.
        batch_size: Observations in a minibatch.
        seed: The seed of walks, draws of the softmax, inducing nodes and batches. If None, one from the system. It is
            kept as `.seed`. The global random state is neither used nor changed.
        walk_options: Further options of `graphs.sample_walks`, such as `p_halt` or `lengths`.

    Raises:
        InvalidArgumentError: There is no graph, a name is unknown, or a number is out of range. `graphs` raises its
            own for the walks.

    Examples:
        >>> import graphs
        >>> line = graphs.Graph.from_edges([(i, i + 1) for i in range(9)])
        >>> model = GraphClassifier(line, features="exact", seed=0).fit(
        ...     [0, 1, 8, 9], ["left", "left", "right", "right"]
        ... )
        >>> model.predict([2, 7]).tolist()
        ['left', 'right']
    """

    def __init__(
        self,
        graph: graphs.Graph,
        kernel: str | GraphKernel = "diffusion",
        features: str = "auto",
        num_walkers: int = 64,
        *,
        degree: int = 6,
        rank: int = 64,
        outputscale: float | None = None,
        mean: float = 0.0,
        max_inducing: int = 512,
        batch_size: int = 512,
        seed: int | None = None,
        walk_options: Mapping[str, Any] | None = None,
    ) -> None:
        if (wrong := not_a_graph_message(graph)) is not None:
            raise InvalidArgumentError(wrong)
        self.graph = graph
        self.kernel = kernel if isinstance(kernel, GraphKernel) else graphs.kernels.by_name(kernel)
        self.features = choose(features, graph)
        self.seed = random.resolve_seed(seed)
        self._outputscale = None if outputscale is None else _positive("outputscale", outputscale)
        self._mean = float(mean)
        if not np.isfinite(self._mean):
            raise InvalidArgumentError(f"mean must be a finite number, got {mean!r}.")
        self._max_inducing = check_count("max_inducing", max_inducing)
        self._batch_size = check_count("batch_size", batch_size)
        options = {"num_walkers": num_walkers, "degree": degree, "rank": rank, **(walk_options or {})}
        self._draw = make_kernel(graph, self.kernel, self.features, self.seed, options)  # fails now, not at fit
        self._fitted: _Fitted | None = None

    def __repr__(self) -> str:
        if self._fitted is None:
            return "GraphClassifier(not fitted)"
        values = ", ".join(f"{name}={np.round(value, 4)}" for name, value in self.hyperparameters.items())
        return f"GraphClassifier({len(self.classes)} classes, {values})"

    # --- what was learned --------------------------------------------------------------------

    @property
    def classes(self) -> NDArray[np.generic]:
        """The classes (C,), sorted where they can be; the columns of `predict_proba`."""
        return self._needed().classes

    @property
    def fit_report(self) -> ClassifierReport:
        """How the fit went, with the trace of the bound."""
        return self._needed().report

    @property
    def model(self) -> LatentFunctions:
        """The GPyTorch model; features are there for the last batch and the inducing nodes only."""
        return self._needed().model

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The kernel's parameters by their names, outputscale, and mean: a number, or (C,) for more than 2 classes."""
        model, base = self._needed().model, self._needed().kernel
        out: dict[str, Any] = {name: float(getattr(base, name).detach()) for name in base.parameter_names}
        mean = model.mean_module.constant.detach().numpy().copy()
        out["outputscale"] = float(model.covar_module.outputscale.detach())
        return {**out, "mean": mean if mean.ndim else float(mean)}

    @property
    def fitted_kernel(self) -> GraphKernel:
        """The graph kernel at the learned parameters, without the output scale."""
        return self.kernel.with_values([self.hyperparameters[name] for name in self.kernel.parameters])

    # --- fit and predict ---------------------------------------------------------------------

    def fit(
        self,
        nodes: Any,
        labels: Any,
        *,
        fixed: Iterable[str] = (),
        max_iterations: int | None = None,
        callback: Callable[[int, float], object] | None = None,
    ) -> Self:
        """Learn the hyperparameters and the posterior from labeled nodes, in place.

        Args:
            nodes: Labels of n nodes. A node may occur more than once.
            labels: Their classes (n,), any hashable values.
            fixed: Names of hyperparameters that keep their starting values.
            max_iterations: The most iterations of L-BFGS, or steps of Adam. If None, 500 or 3,000.
            callback: Called after each iteration with (iterations done, the bound in nats).

        Returns:
            The classifier.

        Raises:
            DataError: There are no observations, numbers of nodes and labels differ, labels are missing, or there is
                only one class.
            InvalidArgumentError: `fixed` has an unknown name.
            graphs.UnknownNodeError: A label is not a node.

        Warns:
            ConvergenceWarning: The optimiser stopped early.
            graphs.LargeVarianceWarning, graphs.InfiniteVarianceWarning: The walks estimate the learned kernel poorly.
        """
        names = self._learned(fixed)
        positions = self._positions(nodes)
        classes, codes = encode(labels)
        if len(positions) != len(codes):
            raise DataError(f"There are {len(positions)} nodes, but {len(codes)} labels.")
        inducing = self._inducing(positions)
        draw = copy.deepcopy(self._draw)  # parameters of its own; the random numbers are shared
        batches = self._batches(draw, positions, codes, inducing, len(classes))
        kernel = draw.at(self._labels(inducing))
        count = len(classes) if len(classes) > 2 else 1
        scale = 1 / prior_variance(batches) if self._outputscale is None else self._outputscale
        model = LatentFunctions(_column(inducing), kernel, scale, count)
        model.mean_module.constant.data.fill_(self._mean)
        seed = random.child_seed(self.seed, random.Role.SAMPLE)
        likelihood = gpytorch.likelihoods.BernoulliLikelihood() if count == 1 else SoftmaxLikelihood(count, seed)
        generator = random.generator(self.seed, random.Role.BATCHES, 1)
        objective = Objective(model, likelihood, batches, generator, _bounds(model, names))
        report = train(objective, max_iterations, callback)
        model.eval()
        likelihood.eval()
        model.covar_module.base_kernel = kernel
        root = model.root().detach()
        self._fitted = _Fitted(classes, model, likelihood, kernel, inducing, report, root)
        if not report.converged:
            warnings.warn(
                f"The bound had not settled: {report.message}. Raise max_iterations.", ConvergenceWarning, stacklevel=2
            )
        if self.features == "walks":
            cast(graphs.Walks, draw.feature_map.walks).check_second_moment(self.fitted_kernel)
        return self

    def predict(self, nodes: Any) -> NDArray[np.generic]:
        """Return the most probable class (n,) of n nodes, by their labels; raises as `predict_proba`."""
        return self.classes[self.predict_proba(nodes).argmax(1)]

    def predict_proba(self, nodes: Any) -> NDArray[np.float64]:
        """Return the probabilities (n, C) of the classes of n nodes, by their labels.

        They are averages over the posterior of the latent functions. Two classes have a closed form. More classes use
        512 Sobol points, with errors of about 0.001.

        Raises:
            NotFittedError: The model is not fitted.
            graphs.UnknownNodeError: A label is not a node.
        """
        likelihood, count = self._needed().likelihood, len(self.classes)
        out = [np.zeros((0, count))]
        for part in self._posteriors(nodes):
            probabilities = likelihood.marginal(part).probs
            columns = probabilities if count > 2 else torch.stack([1 - probabilities, probabilities], dim=-1)
            out.append(columns.numpy())
        return np.concatenate(out)

    def predict_latent(self, nodes: Any) -> Latent:
        """Return means and variances of the latent functions at n nodes: (n,) for two classes, (n, C) for more.

        Raises:
            NotFittedError: before `fit`.
            UnknownNodeError: of `graphs`, a label names no node.
        """
        empty = torch.zeros((0, len(self.classes)) if len(self.classes) > 2 else 0, dtype=torch.float64)
        moments = [Moments(empty, empty), *self._posteriors(nodes)]
        return Latent(*(torch.cat([one[part] for one in moments]).numpy() for part in (0, 1)))

    # --- inside ------------------------------------------------------------------------------

    def _needed(self) -> _Fitted:
        if self._fitted is None:
            raise NotFittedError("This GraphClassifier is not fitted. Call fit(nodes, labels) first.")
        return self._fitted

    def _positions(self, nodes: Any) -> NDArray[np.int64]:
        return self.graph.index(listed(nodes, "Nodes"))

    def _labels(self, positions: NDArray[np.int64]) -> Any:
        return self.graph.labels_at(positions)

    def _learned(self, fixed: Iterable[str]) -> list[str]:
        names = [*self.kernel.parameters, "outputscale", "mean"]
        given = (fixed,) if isinstance(fixed, str) else tuple(fixed)
        unknown = sorted(set(given) - set(names))
        if unknown:
            raise InvalidArgumentError(f"Hyperparameters must be among {', '.join(names)}, got {unknown[0]!r}.")
        return [name for name in names if name not in given]

    def _inducing(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the inducing nodes: the observed ones, or a random choice where there are too many."""
        observed = np.unique(positions)
        if len(observed) <= self._max_inducing:
            return observed
        generator = random.numpy_generator(self.seed, random.Role.SPLIT)
        return np.sort(generator.choice(observed, self._max_inducing, replace=False))

    def _batches(
        self,
        draw: Any,
        positions: NDArray[np.int64],  # (n,)
        codes: NDArray[np.int64],  # (n,)
        inducing: NDArray[np.int64],  # (M,)
        count: int,
    ) -> list[Batch]:
        parts = [np.arange(len(positions))]
        if len(np.unique(positions)) > len(inducing):
            order = random.numpy_generator(self.seed, random.Role.BATCHES).permutation(len(positions))
            parts = np.array_split(order, -(-len(positions) // self._batch_size))
        targets = torch.as_tensor(codes).double() if count == 2 else torch.as_tensor(codes)
        return [
            Batch(
                _column(positions[part]),
                targets[torch.as_tensor(part)],
                draw.at(self._labels(np.union1d(positions[part], inducing))),
            )
            for part in parts
        ]

    def _posteriors(self, nodes: Any) -> Iterable[Moments]:
        """Yield the posterior of the latent functions for chunks of nodes, each (b,) or (b, C)."""
        fitted = self._needed()
        positions = self._positions(nodes)
        draws = getattr(fitted.likelihood, "marginal_draws", 1) * len(fitted.classes)
        widest = max(len(fitted.inducing), draws, self.graph.num_nodes if self.features == "exact" else 1)
        size = max(1, min(CHUNK, _CHUNK_ENTRIES // widest))
        for first in range(0, len(positions), size):
            chunk = positions[first : first + size]
            kernel = fitted.kernel.at(self._labels(np.union1d(chunk, fitted.inducing)))
            yield latent_moments(fitted, kernel, chunk)


@torch.no_grad()
def latent_moments(
    fitted: _Fitted,
    kernel: Any,
    positions: NDArray[np.int64],  # (b,)
) -> Moments:  # of (b,) or (b, C)
    """Return means and variances of the latent functions at positions, by a kernel of these and the inducing ones.

    With A = L^-1 K_ZX, L L^T = K_ZZ, and q(v) = N(m, R R^T): mean c + A^T m, variance k - |A|^2 + |R^T A|^2.
    """
    scale, (mean, factor) = fitted.model.covar_module.outputscale, fitted.model.variational_parameters
    cross = scale * kernel(_column(fitted.inducing), _column(positions)).to_dense()
    prior = scale * kernel(_column(positions), diag=True)
    inner = torch.linalg.solve_triangular(fitted.root, cross, upper=False)
    means = fitted.model.mean_module.constant.unsqueeze(-1) + mean @ inner
    variances = prior - inner.square().sum(-2) + (factor.tril().mT @ inner).square().sum(-2)
    variances = variances.clamp_min(0)  # by rounding
    return Moments(means, variances) if means.ndim == 1 else Moments(means.mT, variances.mT)


def prior_variance(batches: list[Batch]) -> float:
    """Return the mean of the kernel's diagonal over the observations."""
    with torch.no_grad():
        return float(torch.cat([batch.kernel(batch.x, diag=True) for batch in batches]).mean())


def _bounds(model: LatentFunctions, names: list[str]) -> dict[str, tuple[float, float]]:
    """Return the bounds of the raw hyperparameters that are learned, by the model's names."""
    raw, reach = float(model.covar_module.raw_outputscale.detach()), float(np.log(OUTPUTSCALE_RANGE))
    bounds = {
        "outputscale": ("covar_module.raw_outputscale", (raw - reach, raw + reach)),
        "mean": (_name(model, model.mean_module.constant), (-MEAN_BOUND, MEAN_BOUND)),
    }
    base = model.covar_module.base_kernel
    for name in base.parameter_names:
        constraint = getattr(base, f"raw_{name}_constraint")
        low, high = (float(constraint.inverse_transform(torch.tensor(b).double())) for b in PARAMETER_BOUNDS)
        bounds[name] = (f"covar_module.base_kernel.raw_{name}", (low, high))
    return dict(bounds[name] for name in names)


def _column(positions: NDArray[np.int64]) -> Tensor:
    return torch.as_tensor(np.ascontiguousarray(positions)).double().unsqueeze(-1)


def _name(model: LatentFunctions, parameter: Tensor) -> str:
    return next(name for name, other in model.named_parameters() if other is parameter)


def _positive(name: str, value: float) -> float:
    if not isinstance(value, int | float | np.number) or isinstance(value, bool) or not 0 < float(value) < np.inf:
        raise InvalidArgumentError(f"{name} must be a positive number, got {value!r}.")
    return float(value)
