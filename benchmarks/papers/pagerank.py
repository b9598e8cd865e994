"""PageRank by walks (couplings paper, App. E and Fig. 9): couplings of lengths and directions.

Protocol, fixed before the results were seen. The graphs of the couplings paper that are at hand, largest connected
parts; m = 2 walkers a node with halt 0.1 to 0.5, and m = 16 with halt 0.2; error: |estimate - exact| / |exact| in the
Euclidean norm, exact from networkx (tolerance 1e-12); 100 draws, means, standard errors and ratios to independent
walkers. "sigma" has the permutation matched for PageRank on an Erdos-Renyi graph (100, 0.1) with 50 quantiles.

    python -m benchmarks.papers.pagerank [OUT]
"""

import sys
from functools import cache
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from rich.console import Console
from rich.table import Table

import graphs
from benchmarks.papers.walks import GRAPHS, load, shown

METHODS: dict[str, dict[str, str]] = {
    "iid": {"lengths": "iid", "directions": "independent"},
    "antithetic": {"lengths": "antithetic", "directions": "independent"},
    "sigma": {"lengths": "sigma", "directions": "independent"},
    "systematic": {"lengths": "systematic", "directions": "independent"},
    "systematic, stratified": {"lengths": "systematic", "directions": "stratified"},
}
HALTS = (0.1, 0.2, 0.3, 0.4, 0.5)
DRAWS = 100


@cache
def permutation(halt: float) -> Any:
    learned_on = graphs.Graph.from_networkx(nx.gnp_random_graph(100, 0.1, seed=0))
    return graphs.match_pagerank_quantiles(learned_on, halt, 50)


def errors(graph: graphs.Graph, halt: float, walkers: int, options: dict[str, str]) -> np.ndarray:
    G = nx.from_scipy_sparse_array(graph.adjacency)
    ranks = nx.pagerank(G, alpha=1 - halt, tol=1e-12, max_iter=10_000)
    exact = np.array([ranks[k] for k in range(graph.num_nodes)])
    draws = [
        graphs.pagerank(graph, halt, walkers, seed=seed, permutation=permutation(halt), **options)
        for seed in range(DRAWS)
    ]
    return np.linalg.norm(np.array(draws) - exact, axis=1) / np.linalg.norm(exact)


def main() -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    console, out = Console(width=200), Path(sys.argv[1]) if len(sys.argv) > 1 else None
    figure, axes = plt.subplots(1, len(GRAPHS), figsize=(3.2 * len(GRAPHS), 3.2))
    for walkers, halts in ((2, HALTS), (16, (0.2,))):
        table = Table(title=f"Relative error of PageRank, m = {walkers}, and ratios to independent walkers")
        for column in ("graph", "halt", *METHODS):
            table.add_column(column)
        for axis, name in zip(axes, GRAPHS, strict=True):
            graph = load(name)
            found = {(m, h): errors(graph, h, walkers, o) for m, o in METHODS.items() for h in halts}
            for h in halts:
                base = found["iid", h].mean()
                table.add_row(
                    name, f"{h}", *(f"{shown(found[m, h])} ({found[m, h].mean() / base:.2f})" for m in METHODS)
                )
            if walkers == 2:
                for m in METHODS:
                    bars = [found[m, h].std(ddof=1) / DRAWS**0.5 for h in halts]
                    axis.errorbar(halts, [found[m, h].mean() for h in halts], bars, marker="o", capsize=2, label=m)
                axis.set(title=f"{name}, N = {graph.num_nodes}", xlabel="halt")
        console.print(table)
    axes[0].set_ylabel("relative error of PageRank, m = 2")
    axes[0].legend(fontsize=7)
    figure.tight_layout()
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        figure.savefig(out / "pagerank.png", dpi=80)


if __name__ == "__main__":
    main()
