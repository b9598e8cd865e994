"""Couplings of many walkers, ours and learned ones, on graphs: m = 16, where the papers have 2.

Protocol, fixed before the results were seen. Graphs are largest connected parts. The kernel is (I + L)^-2, with halt
0.1, 16 walkers and 20 draws of K_hat = Phi Phi^T. The error is the relative Frobenius norm of the difference from the
exact kernel: means, standard errors, and ratios to "sigma". "sigma" has the permutation, "learned" the tuples for all
walkers, learned on an Erdos-Renyi graph (100, 0.1) with 30 quantiles.

    python -m benchmarks.races.walk_couplings
"""

import warnings
from functools import cache
from typing import Any

import networkx as nx
import numpy as np
from rich.console import Console
from rich.table import Table

import graphs
from benchmarks.papers.couplings.walks_shared import load
from graphs import kernels
from rfgp.compare.protocol import WALKS

COUPLINGS: dict[str, dict[str, Any]] = {
    **{name: WALKS[name] for name in ("iid", "antithetic", "sigma", "systematic")},
    "learned": {"lengths": "learned", "step_coupling": "independent", "exact_hops": 0},
    "sigma, stratified": {"lengths": "sigma", "step_coupling": "stratified", "exact_hops": 0},
    "learned, stratified": {"lengths": "learned", "step_coupling": "stratified", "exact_hops": 0},
    "systematic, repelling": {"lengths": "systematic", "step_coupling": "repelling", "exact_hops": 0},
    "systematic, stratified": WALKS["stratified"],
}
GRAPHS = ("karate", "dolphins", "football", "polbooks", "cora", "eurosis", "citeseer")


def errors(graph: graphs.Graph, kernel: kernels.GraphKernel, K: np.ndarray, draws: int, **options: Any) -> np.ndarray:
    norm, out = np.linalg.norm(K), []
    for seed in range(draws):
        walks = graphs.sample_walks(graph, seed=seed, **options)
        phi = walks.features(kernel)
        out.append([np.linalg.norm((phi @ phi.T).toarray() - K) / norm, phi.nnz / graph.num_nodes])
    return np.array(out)


def shown(values: np.ndarray) -> str:
    return f"{values.mean():.4g} ± {values.std(ddof=1) / np.sqrt(len(values)):.1g}"


@cache
def learned(p_halt: float, walkers: int) -> dict[str, np.ndarray]:
    """Return the permutation and the tuples, learned once on a small random graph."""
    learned_on = graphs.Graph.from_networkx(nx.gnp_random_graph(100, 0.1, seed=0))
    kernel = kernels.RegularizedLaplacian(2, 1.0)
    return {
        "permutation": graphs.match_quantiles(learned_on, kernel, p_halt, 30),
        "tuples": graphs.couple_quantiles(learned_on, kernel, p_halt, walkers, 30),
    }


def main() -> None:
    warnings.simplefilter("ignore", graphs.GraphWarning)
    kernel = kernels.RegularizedLaplacian(2, 1.0)
    table = Table(title="Relative Frobenius error, (I + L)^-2, m = 16, halt 0.1, and ratios to sigma")
    for column in ("graph", "N", *COUPLINGS):
        table.add_column(column)
    for name in GRAPHS:
        graph = load(name)
        weighted = len(np.unique(graph.adjacency.data)) > 1
        K = kernel.exact(graph)
        used = {k: v for k, v in COUPLINGS.items() if not (weighted and "repelling" in k)}
        found = {
            method: errors(graph, kernel, K, 20, num_walkers=16, p_halt=0.1, **learned(0.1, 16), **options)[:, 0]
            for method, options in used.items()
        }
        base = found["sigma"].mean()
        cells = [f"{shown(found[m])} ({found[m].mean() / base:.2f})" if m in found else "" for m in COUPLINGS]
        table.add_row(name, str(graph.num_nodes), *cells)
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
