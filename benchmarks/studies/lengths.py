"""Lengths that go together: learned permutations (couplings paper, Fig. 3), how good approximate matching is (Fig. 8).

Protocol, fixed before the results were seen. (1) Permutations of 30 quantiles for four kernels and halt = 0.1, 0.3,
0.5, on an Erdos-Renyi graph (100, 0.1), by the linear objective and by projections over equal nodes. (2) For
n = 3 to 9 quantiles, halt 0.1, on that graph, karate and a mesh: `matching_variance` of exhaustive search, the linear
assignment (costs from the spectrum and from walks), projections over equal nodes (32 of them, in 64 dimensions), the
reversal, and the mean of 50 random permutations. (3) The same ladder for all m walkers at once: the mean cost of a pair
of learned tuples and of systematic lengths between independent ones (1) and the lower bound (0), 32 quantiles.

    python -m benchmarks.studies.lengths [OUT]
"""

import sys
from pathlib import Path

import networkx as nx
import numpy as np
from rich.console import Console
from rich.table import Table

import graphs
from benchmarks.papers.couplings.walks_shared import load
from graphs import kernels
from graphs.matching.tuples import tuple_cost

KERNELS = {
    "(I + L)^-2": kernels.RegularizedLaplacian(2, 1.0),
    "exp(-6 L)": kernels.Diffusion(12**0.5),
    "(2 I - L)^3": kernels.RandomWalk(3, 2.0),
    "cos(pi L / 4)": kernels.InverseCosine(),
}
HALTS = (0.1, 0.3, 0.5)


def random_graph() -> graphs.Graph:
    return graphs.Graph.from_networkx(nx.gnp_random_graph(100, 0.1, seed=0)).largest_component()


def draw_permutations(console: Console, out: Path | None) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    graph = random_graph()
    figure, axes = plt.subplots(2 * len(HALTS), len(KERNELS), figsize=(3 * len(KERNELS), 6 * len(HALTS)))
    for column, (name, kernel) in enumerate(KERNELS.items()):
        for row, halt in enumerate(HALTS):
            for k, objective in enumerate(("linear", "diagonal")):
                sigma = graphs.match_quantiles(graph, kernel, halt, 30, objective=objective)
                axis = axes[2 * row + k, column]
                axis.imshow(np.eye(30)[sigma], cmap="Greys", origin="lower")
                axis.set(xticks=[], yticks=[])
                axis.set_title(f"{name}, halt {halt}, {objective}", fontsize=9)
                reversed_ = np.array_equal(sigma, np.arange(30)[::-1])
                console.print(f"{name}, halt {halt}, {objective}: {'the reversal' if reversed_ else sigma.tolist()}")
    figure.tight_layout()
    if out is not None:
        figure.savefig(out / "permutations.png", dpi=70)


def compare_matching(console: Console) -> None:
    table = Table(title="Relative variance by the quantiles of one pair of walkers, directions averaged out, halt 0.1")
    columns = ("exhaustive", "linear", "linear, walks", "projections", "reversal", "random")
    for column in ("graph", "kernel", "n", *columns):
        table.add_column(column)
    for place, graph in (("random", random_graph()), ("karate", load("karate")), ("teapot", load("teapot"))):
        for name, kernel in KERNELS.items():
            for n in range(3, 10):
                costs = graphs.walk_costs(graph, kernel, 0.1, n, seed=0)
                found = {
                    "exhaustive": graphs.match_quantiles(graph, kernel, 0.1, n, objective="quadratic"),
                    "linear": graphs.match_quantiles(graph, kernel, 0.1, n),
                    "linear, walks": graphs.match_quantiles(graph, kernel, 0.1, n, costs=costs),
                    "projections": graphs.match_quantiles(graph, kernel, 0.1, n, objective="diagonal"),
                    "reversal": np.arange(n)[::-1],
                }
                values = {k: graphs.matching_variance(graph, kernel, sigma, 0.1) for k, sigma in found.items()}
                generator = np.random.default_rng(0)
                others = [graphs.matching_variance(graph, kernel, generator.permutation(n), 0.1) for _ in range(50)]
                values["random"] = float(np.mean(others))
                table.add_row(place, name, f"{n}", *(f"{values[c]:.6g}" for c in columns))
    console.print(table)


def compare_tuples(console: Console) -> None:
    table = Table(title="Mean cost of a pair of lengths: 1 independent, 0 the lower bound; halt 0.1, 32 quantiles")
    for column in ("graph", "kernel", "m", "learned", "systematic"):
        table.add_column(column)
    for place, graph in (("random", random_graph()), ("karate", load("karate"))):
        for name, kernel in KERNELS.items():
            costs = graphs.quantile_costs(graph, kernel, 0.1, 32)
            for m in (3, 4, 8, 16, 32):
                bound = (m * costs.mean() - np.trace(costs) / 32) / (m - 1)
                learned = graphs.couple_quantiles(graph, kernel, 0.1, m, 32)
                fine = (np.arange(3200)[:, None] / 3200 + np.arange(m) / m) % 1.0
                systematic = (fine * 32).astype(np.int64)
                shares = [(tuple_cost(costs, t) - bound) / (costs.mean() - bound) for t in (learned, systematic)]
                table.add_row(place, name, f"{m}", *(f"{share:.4f}" for share in shares))
    console.print(table)


def main() -> None:
    console, out = Console(width=160), Path(sys.argv[1]) if len(sys.argv) > 1 else None
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    draw_permutations(console, out)
    compare_tuples(console)
    compare_matching(console)


if __name__ == "__main__":
    main()
