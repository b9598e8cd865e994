"""The Gaussian process on the nodes of a graph as a scikit-learn regressor and classifier."""

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array, check_consistent_length

import graphs
from graphs.kernels import GraphKernel
from rfgp.errors import DataError, InvalidArgumentError
from rfgp.graph_gp import GraphGP
from rfgp.likelihoods import Bernoulli, Categorical, Likelihood
from rfgp.messages import check_count
from rfgp.parameters import Hyperprior
from rfgp.rows.sources import warn_of_booleans
from rfgp.sklearn.base import (
    ProcessClassifier,
    ProcessRegressor,
    merge_rows,
    options_of,
    read_classes,
    resolve_seed,
    take_rows,
)


@dataclass(eq=False, repr=False)
class GraphOptions:
    """The options that the estimators of nodes share, documented in `GraphGPRegressor`.

    Examples:
        >>> from rfgp.sklearn import GraphGPRegressor
        >>> GraphGPRegressor(features="exact").get_params()["features"]
        'exact'
    """

    graph: graphs.Graph | None = None
    kernel: str | GraphKernel = "diffusion"
    n_walkers: int = 64
    random_state: Any = None
    _: KW_ONLY
    features: str = "auto"
    outputscale: float | None = None
    priors: Mapping[str, Hyperprior | None] | None = None
    fixed: Iterable[str] = ()
    max_iter: int | None = None
    walk_options: Mapping[str, Any] | None = None

    gp_: Any = field(init=False)

    def _graph_gp(self, **options: Any) -> GraphGP:
        """Return the model, before a fit."""
        own = {"graph": self._given_graph, "seed": resolve_seed(self.random_state)}
        own["num_walkers"] = check_count("n_walkers", self.n_walkers)
        return GraphGP(**{**options_of(self, GraphGP), **own, **options})

    @property
    def _given_graph(self) -> graphs.Graph:
        """The graph.

        Raises:
            InvalidArgumentError: If there is no graph.
        """
        if self.graph is None:
            raise InvalidArgumentError(
                "graph is missing: build one, such as graphs.Graph.from_networkx(G), for "
                f"{type(self).__name__}(graph=...)."
            )
        return self.graph

    def _read(self, X: Any, y: Any, sample_weight: Any, read_targets: Callable[[Any], Any]) -> tuple[Any, Any, Any]:
        """Return labels, targets and weights (n,) of the different observations.

        Raises:
            ValueError: If the data cannot be used.
        """
        if y is None:
            raise DataError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        labels, y = _read_labels(X), read_targets(y)
        check_consistent_length(labels, y)
        if len(labels) < 2:
            raise DataError(f"{type(self).__name__} needs at least two observations, got one sample.")
        rows, weight = merge_rows(sample_weight, self._given_graph.index(labels), y)
        return take_rows(labels, rows), y[rows], weight

    def _read_new(self, X: Any) -> Any:
        return _read_labels(X)

    def __sklearn_clone__(self) -> Self:
        bare = copy.copy(self)
        bare.graph = None
        parent: Any = super(GraphOptions, bare)
        other: Self = parent.__sklearn_clone__()
        other.graph = self.graph
        return other

    def __sklearn_tags__(self) -> Any:
        parent: Any = super()
        tags = parent.__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    def _more_tags(self) -> dict[str, Any]:
        """Return the same to scikit-learn before 1.6."""
        return {"X_types": ["1darray", "categorical", "string"]}


@dataclass(eq=False, repr=False)
class GraphGPRegressor(GraphOptions, ProcessRegressor):
    """Gaussian process regression on the nodes of a graph, through random walks or the exact kernel.

    An adapter of `rfgp.GraphGP`. X has labels of nodes instead of columns of numbers: n labels in a list, an array or a
    Series. Arrays (n, 1), as from tools of scikit-learn, are accepted. Rows of wider arrays are labels that are tuples,
    and so are the entries of a list of tuples. There is no `n_features_in_`.

    The standard deviations of `predict` refer to the latent function. `gp_.predict(X).observed()` is the distribution
    of an observation. A constant output is predicted exactly, as by `GPRegressor`.

    Copies by `sklearn.base.clone` share the graph, which never changes.

    Args:
        graph: The `graphs.Graph`.
        kernel: One of `graphs.kernels.names()` that needs no options, or a kernel whose parameters are the start.
        n_walkers: The number of walkers per node, as for `graphs.sample_walks`.
        random_state: The seed, or a `numpy.random.RandomState` from which each fit draws one. If None, the seed is from
            the system. The global state of numpy is never used.
        features: "walks", "chebyshev", "taylor", "spectrum", "precision", "rational", "exact", or "auto", as
            for `rfgp.GraphGP`.
        p_halt: The halting probability.
        lengths: The coupling of the lengths of the walks of a node.
        step_coupling: The coupling of the steps of a node's walkers.
        exact_hops: An integer, a `graphs.HopRule`, or "auto".
        outputscale: The starting value of the latent variance. If None, the variance of the targets.
        noise: The starting value of the noise variance. If None, a tenth of the variance of the targets.
        priors: Log densities of named hyperparameters (objects with `log_prob`), as for `rfgp.GraphGP`.
        fixed: Names of hyperparameters that keep their starting values.
        max_iter: The largest number of iterations of the optimizer. If None, 500.
        walk_options: Further options of `graphs.sample_walks`.

    Attributes:
        gp_: The fitted `rfgp.GraphGP`. None if every output is constant.
        log_marginal_likelihood_value_: The log density of y in total nats, in its units. nan if `gp_` is None.
        n_iter_: The number of iterations of the optimizer.

    Examples:
        >>> import networkx as nx
        >>> from graphs import Graph
        >>> from rfgp.sklearn import GraphGPRegressor
        >>> graph = Graph.from_networkx(nx.path_graph(20))
        >>> model = GraphGPRegressor(graph, features="exact", random_state=0).fit([0, 5, 10, 15], [0.0, 0.5, 1.0, 0.5])
        >>> model.predict([1, 2]).shape
        (2,)
    """

    _: KW_ONLY
    p_halt: Any = 0.1
    lengths: str = "systematic"
    step_coupling: str = "stratified"
    exact_hops: int | str | graphs.HopRule = "auto"
    noise: float | None = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the hyperparameters and condition on the data.

        Args:
            X: Labels (n,), at least 2. A node may occur more than once.
            y: Targets (n,) or (n, 1), or (n, k) for k outputs that share one kernel.
            sample_weight: Nonnegative weights (n,). A weight w counts an observation w times. If None, once.

        Returns:
            The estimator.

        Raises:
            InvalidArgumentError: If there is no graph, or an option is unknown.
            graphs.UnknownNodeError: If a label is not a node.
            ValueError: If the data cannot be used.

        Warns:
            ConstantTargetWarning: If an output is constant.
            RfgpWarning: The warnings of `rfgp.GraphGP.fit`, and those of `graphs`.

        Examples:
            >>> from graphs import Graph
            >>> from rfgp.sklearn import GraphGPRegressor
            >>> model = GraphGPRegressor(Graph.from_grid((4, 4)), features="exact")
            >>> model.fit([(0, 0), (0, 3), (2, 1), (3, 3)], [0.0, 1.0, 0.5, 2.0]).gp_.num_observations
            4
        """
        gp = self._graph_gp()
        if y is not None:
            warn_of_booleans(y)
        return self._learn(gp, *self._read(X, y, sample_weight, _read_numbers))


@dataclass(eq=False, repr=False)
class GraphGPClassifier(GraphOptions, ProcessClassifier):
    """Gaussian process classification of the nodes of a graph.

    An adapter of `rfgp.GraphGP`, as `GraphGPRegressor` is. Two classes have a logit or probit link. More classes have a
    softmax of one process for each class, with one kernel. In n x n algebra, more than two classes have at most 4,000
    observations. With `features="spectrum"` there may be more.

    Args:
        graph: The graph. Options that are not listed here are as for `GraphGPRegressor`.
        n_walkers: The number of walkers per node, if features are walks.
        link: The link of two classes, "logit" or "probit".
        inference: "laplace" or "variational". If None, variational up to 4,000 observations of two classes, and 500 of
            several.
        features: As for `rfgp.GraphGP`. With "precision", several classes need variational inference.
        outputscale: The starting value of the latent variance. If None, 2 on average over the nodes.

    Attributes:
        gp_: The fitted `rfgp.GraphGP`, of labels 0 to C - 1.
        classes_: The labels of the classes, (C,).
        log_marginal_likelihood_value_: The approximate log probability of the classes in total nats.
        n_iter_: The number of iterations of the optimizer.

    Examples:
        >>> import networkx as nx
        >>> from graphs import Graph
        >>> from rfgp.sklearn import GraphGPClassifier
        >>> graph = Graph.from_networkx(nx.path_graph(20))
        >>> model = GraphGPClassifier(graph, features="exact", random_state=0).fit([0, 5, 14, 19], ["a", "a", "b", "b"])
        >>> model.predict([2, 17]).tolist()
        ['a', 'b']
    """

    _: KW_ONLY
    link: str = "logit"
    inference: str | None = None

    def _likelihood_of(self, num_classes: int) -> Likelihood:
        return Bernoulli(self.link) if num_classes == 2 else Categorical(num_classes)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the hyperparameters and condition on the data.

        Args:
            X: Labels (n,), at least 2. A node may occur more than once.
            y: Classes (n,), numbers or texts, with at least two different ones.
            sample_weight: Nonnegative weights (n,). A weight w counts an observation w times. If None, once.

        Returns:
            The estimator.

        Raises:
            InvalidArgumentError: If there is no graph, or an option is unknown.
            graphs.UnknownNodeError: If a label is not a node.
            ValueError: If the data cannot be used, or are of one class.

        Warns:
            RfgpWarning: As for `rfgp.GraphGP.fit`; and those of `graphs`.

        Examples:
            >>> from graphs import Graph
            >>> from rfgp.sklearn import GraphGPClassifier
            >>> model = GraphGPClassifier(Graph.from_grid((4, 4)), features="exact")
            >>> model.fit([(0, 0), (0, 3), (2, 1), (3, 3)], ["a", "a", "b", "b"]).classes_.tolist()
            ['a', 'b']
        """
        return self._learn(*self._read(X, y, sample_weight, read_classes))

    def _process(self, likelihood: Likelihood) -> GraphGP:
        return self._graph_gp(likelihood=likelihood)


def _read_numbers(y: Any) -> Any:
    return check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")


def _read_labels(X: Any) -> Any:
    """Return n labels in a list or an array; rows of two and more columns are labels that are tuples."""
    if sp.issparse(X):
        raise DataError("X must be labels of nodes, got a sparse matrix.")
    values = X.to_numpy() if hasattr(X, "to_numpy") else X
    if isinstance(values, np.ndarray):
        if values.ndim not in (1, 2):
            raise DataError(f"X must be n labels, (n,) or (n, 1), got shape {values.shape}.")
        return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        raise DataError(f"X must be n labels of nodes, got {values!r}.")
    labels = list(values)
    rows = all(isinstance(label, list | np.ndarray) and len(label) == 1 for label in labels)
    return [label[0] for label in labels] if rows else labels
