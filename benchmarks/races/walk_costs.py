"""Walks and deterministic features at the same cost, on every graph and mesh at hand: non-zeros, then steps.

Protocol, fixed before the results were seen. The graphs are the largest connected parts of all 6 meshes (faces) and 10
graphs, and the roads of pems. The diffusion kernels are exp(-gamma L), gamma = 1 and 20. The error is the relative
Frobenius norm of Phi Phi^T minus the exact kernel. Random methods have 10 draws (mean, standard error in the last
digits shown).
- Equal non-zeros: at most B = min(64, N / 2) a row on average. Methods are the largest degrees of the cut power series
  and the Chebyshev series, and B eigenvectors. There are independent and stratified walkers without exact hops (halt
  0.1, the most of 2, 4, 8, ..., 64 that fit). The last method is the package's choice of hops for 16 and 4 walkers,
  with its error even if they exceed B.
- Equal steps: 144 a row, those of 16 walkers with halt 0.1. A step is one edge looked at: by a walker, or by the sparse
  products of a series or of exact hops (every edge of every node reached so far). Eigenvectors: 2 products of a vector
  for each, at least. Exact hops: the most for which at least 4 walkers can be paid, with as many as can be paid.

    python -m benchmarks.races.walk_costs [NAME ...]
"""

import sys
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import graphs
from benchmarks.papers.couplings.walks_shared import load
from benchmarks.races.walk_couplings import errors, shown
from graphs import kernels
from rfgp.compare.protocol import WALKS

NAMES = (
    "karate",
    "dolphins",
    "polbooks",
    "football",
    "news_2cl1_0.1",
    "eu-core",
    "arenas-email",
    "eurosis",
    "citeseer",
)
NAMES += ("cora", "teapot", "fuze", "unit_sphere", "idler_riser", "busted", "pems", "torus")
GAMMAS = (1.0, 20.0)
STEPS, HALT, DRAWS = 144, 0.1, 10
MANY = (64, 32, 16, 8, 4, 2)


def fixed(made: Any, kernel: kernels.GraphKernel, K: np.ndarray) -> str:
    phi = made.features(kernel)
    error = np.linalg.norm((phi @ phi.T).toarray() - K) / np.linalg.norm(K)
    return f"{error:.2g} @ {phi.nnz / made.graph.num_nodes:.0f}"


def drawn(graph: graphs.Graph, kernel: kernels.GraphKernel, K: np.ndarray, **options: Any) -> str:
    found = errors(graph, kernel, K, DRAWS, p_halt=HALT, **options)
    return f"{shown(found[:, 0])} @ {found[:, 1].mean():.0f}"


def edges_looked_at(graph: graphs.Graph, most: int) -> np.ndarray:
    """Return the mean steps of a row for 0, 1, ... hops, (most + 1,)."""
    U = graph.shift_operator
    degrees = np.diff(U.indptr)
    steps = [0.0]
    step = (U != 0).astype(np.float32)
    front = np.eye(graph.num_nodes, dtype=np.float32)
    for _ in range(most):
        steps.append(steps[-1] + float((front @ degrees).mean()))
        front = ((step @ front) > 0).astype(np.float32)
        if steps[-1] > STEPS:
            break
    return np.array(steps)


def at_equal_nonzeros(graph: graphs.Graph, kernel: kernels.GraphKernel, K: np.ndarray) -> list[str]:
    size = graph.num_nodes
    budget = min(64, size // 2)
    degree = 0
    while len(graphs.taylor_features(graph, degree=degree + 1).pattern.indices) <= budget * size:
        degree += 1
    cells = [
        fixed(graphs.taylor_features(graph, degree=degree), kernel, K),
        fixed(graphs.chebyshev_features(graph, degree=degree), kernel, K),
        fixed(graphs.spectral_features(graph, rank=budget), kernel, K),
    ]
    for options in (WALKS["iid"], WALKS["stratified"]):
        for walkers in MANY:
            pilot = graphs.sample_walks(graph, num_walkers=walkers, p_halt=HALT, seed=99, **options)
            if len(pilot.pattern.indices) <= budget * size:
                cells.append(drawn(graph, kernel, K, num_walkers=walkers, **options) + f", m = {walkers}")
                break
        else:
            cells.append("none fits")
    for walkers in (16, 4):
        pilot = graphs.sample_walks(graph, [], walkers, HALT, kernel=kernel, max_nonzeros=budget, seed=0)
        cells.append(drawn(graph, kernel, K, num_walkers=walkers, exact_hops=pilot.settings.exact_hops))
    return [f"{budget} ({degree} hops)", *cells]


def at_equal_steps(graph: graphs.Graph, kernel: kernels.GraphKernel, K: np.ndarray) -> list[str]:
    steps = edges_looked_at(graph, 60)
    degree = int(np.flatnonzero(steps <= STEPS).max())
    rank = max(1, int(STEPS * graph.num_nodes / (2 * graph.shift_operator.nnz)))
    walkers = ((STEPS - steps) * HALT / (1 - HALT)).astype(int)
    hops = int(np.flatnonzero(walkers >= 4).max())
    cells = [
        fixed(graphs.taylor_features(graph, degree=degree), kernel, K),
        fixed(graphs.chebyshev_features(graph, degree=degree), kernel, K),
        fixed(graphs.spectral_features(graph, rank=min(rank, graph.num_nodes)), kernel, K),
        drawn(graph, kernel, K, num_walkers=16, **WALKS["iid"]),
        drawn(graph, kernel, K, num_walkers=16, **WALKS["stratified"]),
        drawn(graph, kernel, K, num_walkers=int(walkers[hops]), exact_hops=hops) + f", h = {hops}, m = {walkers[hops]}",
    ]
    return [f"{degree} hops", *cells]


def main() -> None:
    import warnings

    warnings.simplefilter("ignore", graphs.GraphWarning)
    console = Console(width=220)
    chosen = sys.argv[1:] or NAMES
    shared = ("taylor", "chebyshev", "spectrum", "iid walkers", "stratified walkers")
    nonzeros, steps = Table(title="Equal non-zeros: error @ non-zeros a row"), Table(title="Equal steps, 144 a row")
    for table, last in ((nonzeros, ("chosen hops, m = 16", "chosen hops, m = 4")), (steps, ("hops and walkers",))):
        for column in ("graph", "N", "gamma", "limit", *shared, *last):
            table.add_column(column)
    for name in chosen:
        graph = load(name)
        for gamma in GAMMAS:
            kernel = kernels.Diffusion(float(np.sqrt(2 * gamma)))
            K = kernel.exact(graph)
            head = (name, str(graph.num_nodes), f"{gamma:g}")
            nonzeros.add_row(*head, *at_equal_nonzeros(graph, kernel, K))
            steps.add_row(*head, *at_equal_steps(graph, kernel, K))
            print(name, gamma, "done", flush=True)
    console.print(nonzeros)
    console.print(steps)


if __name__ == "__main__":
    main()
