"""Fits and predictions of table models, and walks on a graph, computed by the workers of a cluster."""

import math
from collections.abc import Hashable, Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import dask
import dask.array as da
import numpy as np
from distributed import Client
from numpy.typing import NDArray

import graphs
from graphs.graph import check_graph
from graphs.walks import VisitArrays, WalkSettings, check_memory, concatenate_visits, draw
from rfgp.dask.partitions import Partitions, blocks_of, client_of, computed, known_lengths, shipped
from rfgp.gp import GP
from rfgp.messages import check_count
from rfgp.models import GPState
from rfgp.models.state import predicted

M = TypeVar("M", bound=GP)
_PARTS_PER_THREAD = 4


class Predicted(NamedTuple):
    """Moments of the latent function, or of an observation, at each row, as lazy arrays.

    Attributes:
        mean: A Dask array (n,), or (n, k) for k outputs or classes.
        variance: A Dask array of the same shape.

    Examples:
        >>> moments = Predicted(da.zeros(4), da.ones(4))
        >>> moments.variance.sum().compute().item()
        4.0
    """

    mean: da.Array
    variance: da.Array


def fit(
    gp: M,
    X: Any,
    y: Any,
    *,
    noise: Any = None,  # (n,)
    sample_weight: Any = None,  # (n,)
    client: Client | None = None,
    **options: Any,
) -> M:
    """Fit a model in place to rows on a cluster.

    The call is equivalent to `gp.fit(Partitions(X, y, ...))`.

    Hyperparameters and learned frequencies are fitted on the client, to a random sample of 32,768 rows. The noise, the
    output scale, the posterior and the likelihood use all rows, on the workers. The result is that of `gp.fit` on the
    same rows in batches (`rfgp.tables.Batches`), up to the rounding of sums. It does not depend on the workers and
    partitions. A fit of rows in memory may use more rows for the hyperparameters.

    Args:
        gp: The model, a `SparseSpectrumGP` or a `GP` of dense weights.
        X: A Dask array (n, d) or dataframe.
        y: Targets (n,) or (n, k), or names of columns, as for `Partitions`.
        noise: Known noise variances, as for `Partitions`.
        sample_weight: Numbers of observations, as for `Partitions`.
        client: The client of the cluster. If None, the current one.
        options: Options of the model's `fit`.

    Returns:
        The model. It predicts on the client, or by `rfgp.dask.predict` on the cluster.

    Raises:
        DataError: If the data cannot be used.

    Examples:
        >>> import dask.array as da
        >>> from distributed import Client
        >>> import rfgp
        >>> X = da.linspace(0, 5, 40, chunks=20)[:, None]
        >>> with Client(processes=False, dashboard_address=None):
        ...     gp = rfgp.dask.fit(rfgp.SparseSpectrumGP(num_frequencies=32, seed=0), X, da.sin(X[:, 0]))
        >>> gp.num_observations
        40
    """
    return gp.fit(Partitions(X, y, noise, sample_weight, client=client), **options)


def predict(gp: GP, X: Any, *, observed: bool = False) -> Predicted:
    """Return means and variances at the rows of a Dask collection, computed on the workers on demand.

    They are those of the model at the time of the call. The mean and the variance are computed separately, so the mean
    alone is cheap.

    Args:
        gp: A fitted model. It is sent to each worker once, without the training data.
        X: A Dask array (n, d), or a dataframe with the columns of the training data.
        observed: Whether to return the moments of an observation, with the noise, instead of those of the latent
            function.

    Raises:
        NotFittedError: If the model has no data.
        InvalidArgumentError: If X is not a Dask collection.

    Examples:
        >>> import dask.array as da
        >>> import rfgp
        >>> gp = rfgp.SparseSpectrumGP(num_frequencies=16, seed=0).condition([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
        >>> rfgp.dask.predict(gp, da.ones((6, 1), chunks=(3, 1))).mean.compute().shape
        (6,)
    """
    state = gp.state
    tail = _tail(state)
    parts, lengths = blocks_of(X, "X"), known_lengths(X)
    light = state.replace(rows=None, given=state.posterior)  # what predicts, without the training data
    sent = dask.delayed(light, pure=False, traverse=False)
    rows = [math.nan] * len(parts) if lengths is None else lengths
    columns = []
    for name in Predicted._fields:
        moment = dask.delayed(partial(_moment, name, observed), pure=False)
        values = [moment(sent, part) for part in parts]
        blocks = [da.from_delayed(each, (n, *tail), dtype=float) for each, n in zip(values, rows, strict=True)]
        columns.append(da.concatenate(blocks, allow_unknown_chunksizes=True))
    return Predicted(*columns)


def _tail(state: GPState) -> tuple[int, ...]:
    """Return the shape of the moments of one row: (), or (k,) for k outputs or classes."""
    num_latents = state.spec.options.likelihood.num_latents
    return (num_latents,) if num_latents > 1 else tuple(state.scaling.targets.scale.shape)


def _moment(name: str, observed: bool, state: GPState, X: Any) -> Any:
    """Return the mean or the variance at the rows of one partition."""
    if not len(X):
        return np.empty((0, *_tail(state)))
    p = predicted(state, *state.points_or_blocks(X))
    p = p.observed() if observed else p
    return np.asarray(getattr(p, name), dtype=float)


def sample_walks(
    graph: graphs.Graph,
    nodes: Iterable[Hashable] | None = None,  # (n,) labels
    *,
    client: Client | None = None,
    num_parts: int | None = None,
    **options: Any,
) -> graphs.Walks:
    """Draw random walks on the workers.

    The walks are identical to those of `graphs.sample_walks` with the same seed. The graph is sent to each worker once,
    and the loads of the walks are returned. The client chooses couplings and exact hops.

    Args:
        graph: The graph.
        nodes: Labels of the start nodes (n,). If None, every node.
        client: The client of the cluster. If None, the current one.
        num_parts: The number of parts of the nodes. If None, four for each thread of the cluster.
        options: Options of `graphs.sample_walks` except `num_threads` and `progress`.

    Returns:
        The walks of the start nodes.

    Raises:
        MemoryBudgetError: If the result would take more than `max_memory`.
        InvalidArgumentError: If there is no client, the number of parts is not positive, or an option of
            `graphs.sample_walks` is wrong.

    Examples:
        >>> from distributed import Client
        >>> import graphs
        >>> import rfgp
        >>> with Client(processes=False, dashboard_address=None):
        ...     walks = rfgp.dask.sample_walks(graphs.Graph.from_grid((4, 4)), num_walkers=4, seed=0)
        >>> walks.features(graphs.kernels.Diffusion(1.0)).shape
        (16, 16)
    """
    client = client_of(client)
    check_graph(graph)
    labels = None if nodes is None else list(nodes)
    starts = np.arange(graph.num_nodes) if labels is None else graph.index(labels)
    few = graph.as_nodes(starts[:1])
    max_memory = options.pop("max_memory", None)
    settings = graphs.sample_walks(graph, few, **options).settings
    check_memory(graph, starts, settings, max_memory)
    if num_parts is None:
        num_parts = _PARTS_PER_THREAD * max(1, sum(client.nthreads().values()))
    pieces = [part for part in np.array_split(starts, check_count("num_parts", num_parts)) if len(part)] or [starts]
    there, step = [shipped(value) for value in (graph, settings)], dask.delayed(_columns, pure=False)
    parts = computed(client, [step(*there, piece) for piece in pieces])
    return graphs.Walks.of(graph, starts, settings, concatenate_visits(parts))


def _columns(graph: graphs.Graph, settings: WalkSettings, starts: NDArray[np.int64]) -> VisitArrays:
    return draw(graph, starts, settings, num_threads=1)
