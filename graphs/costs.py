"""Monte Carlo estimates of the costs of pairs of length quantiles."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.signal import fftconvolve

from graphs.checks import check_count, check_counts, resolve_seed
from graphs.couplings import as_halting_distribution, quantile_survival
from graphs.features import Walks, sample_walks
from graphs.graph import Graph
from graphs.kernels import GraphKernel, Modulated
from graphs.kernels.kernel import check_graph_and_kernel
from graphs.matching.costs import MAX_QUANTILES, complete_modulation
from graphs.walks import choose_p_halt

Floats = NDArray[np.float64]


@np.errstate(under="ignore")
def walk_costs(
    graph: Graph,
    kernel: GraphKernel,
    p_halt: float | ArrayLike = 0.1,
    num_quantiles: int = 50,
    *,
    num_nodes: int = 256,
    num_walkers: int = 64,
    exact_hops: int | str = "auto",
    seed: int | None = None,
) -> Floats:  # (n, n)
    """Return an unbiased estimate of `quantile_costs`, tr(g_q(U) K g_q'(U)) / N.

    (f g_q)(U) e_i is a feature row of the modulation f * (f ratio_q). The cost is the mean over nodes of the inner
    product of two such rows, from two independent draws. Time and memory do not grow with the graph.

    Args:
        graph: The graph.
        kernel: The kernel.
        p_halt: The halting probability, or survival probabilities, whose quantiles are paired.
        num_quantiles: The number n of quantiles.
        num_nodes: The number of random start nodes.
        num_walkers: The number of walkers per node.
        exact_hops: As for `sample_walks`.
        seed: The seed of nodes and walks. If None, one from the system.

    Raises:
        InvalidArgumentError: If an argument is out of range, or walks have a large second moment for the kernel.

    Examples:
        >>> import graphs
        >>> g = graphs.Graph.from_grid((5, 5))
        >>> graphs.walk_costs(g, graphs.kernels.Diffusion(1.0), num_quantiles=4, seed=0).shape
        (4, 4)
    """
    check_graph_and_kernel(graph, kernel)
    check_count("num_quantiles", num_quantiles, most=MAX_QUANTILES)
    check_counts(num_nodes=num_nodes, num_walkers=num_walkers)
    generator = np.random.default_rng(resolve_seed(seed))
    nodes = generator.permutation(graph.num_nodes)[:num_nodes]
    labels = graph.as_nodes(nodes)
    f = complete_modulation(kernel)
    modulations = fftconvolve(
        quantile_survival(as_halting_distribution(p_halt), num_quantiles, len(f) - 1) * f, f[None, :], axes=1
    )
    halting = choose_p_halt(graph, Modulated(tuple(modulations[-1].tolist())), num_walkers)
    seeds = (int(generator.integers(2**62)) for _ in range(2))
    draws = [
        sample_walks(graph, labels, num_walkers, p_halt=halting, exact_hops=exact_hops, kernel=kernel, seed=walk_seed)
        for walk_seed in seeds
    ]
    (first, a), (second, b) = (_rows(draw, modulations) for draw in draws)
    _, here, there = np.intersect1d(first, second, assume_unique=True, return_indices=True)
    product = a[:, here] @ b[:, there].T / len(nodes)
    return np.asarray((product + product.T) / 2)


def _rows(walks: Walks, modulations: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return the entries (nnz,), row N + column, and values (n, nnz) of modulations."""
    indptr, indices, (_, size) = walks.pattern
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    longest = walks.max_length + 1
    padded = np.zeros((len(modulations), longest))
    padded[:, : min(longest, modulations.shape[1])] = modulations[:, :longest]
    return rows * size + indices, np.stack([walks.values(f) for f in padded])
