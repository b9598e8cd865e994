"""Walks on graphs: couplings at equal walkers, exact hops and deterministic features at equal non-zeros.

Protocol, fixed before the results were seen. Largest connected parts; K_hat = Phi Phi^T of one draw; error: relative
Frobenius norm against the exact kernel; means and standard errors over draws. "sigma" has the permutation, "learned"
the tuples for all walkers, learned on an Erdos-Renyi graph (100, 0.1) with 30 quantiles.
- Couplings (couplings paper, Fig. 10, and the goals for stratified walkers): kernel (I + L)^-2, halt 0.1 to 0.5 with
  m = 2, 8 draws, and 0.1 with m = 16, 20 draws.
- Equal non-zeros: diffusion kernels exp(-gamma L); for each budget of mean non-zeros a row, the largest degree of the
  cut power series and the Chebyshev series, the truncated spectrum, i.i.d. walkers, stratified ones without and with
  exact hops (each number of hops with the most walkers that fit, of 4, 8, 16, 32, 64; the best is shown), and hops
  chosen for each node by the package, 16 walkers; 10 draws.

    python -m benchmarks.papers.walks [OUT]
"""

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import graphs
from graphs import kernels
from rfgp import datasets
from rfgp.compare.protocol import WALKS

COUPLINGS: dict[str, dict[str, Any]] = {
    **{name: WALKS[name] for name in ("iid", "antithetic", "sigma", "systematic")},
    "learned": {"lengths": "learned", "directions": "independent", "exact_hops": 0},
    "sigma, stratified": {"lengths": "sigma", "directions": "stratified", "exact_hops": 0},
    "learned, stratified": {"lengths": "learned", "directions": "stratified", "exact_hops": 0},
    "systematic, repelling": {"lengths": "systematic", "directions": "repelling", "exact_hops": 0},
    "systematic, stratified": WALKS["stratified"],
}
GRAPHS = ("karate", "dolphins", "football", "polbooks", "cora", "eurosis", "citeseer")
BUDGETS = (("idler_riser", 4.77, 64), ("idler_riser", 4.77, 150), ("teapot", 4.77, 64), ("unit_sphere", 50.0, 64))
BUDGETS += (("cora", 1.0, 64), ("cora", 6.0, 180), ("eurosis", 1.0, 100), ("eurosis", 6.0, 300), ("citeseer", 6.0, 64))


def load(name: str) -> graphs.Graph:
    found = datasets.load(name)
    if isinstance(found, graphs.Roads):
        edges, fractions, _ = found.places()
        return graphs.Graph.from_roads(found.lines, edges, fractions).largest_component()
    graph = found if isinstance(found, graphs.Graph) else graphs.Graph.from_mesh(found)
    return graph.largest_component()


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
def learned(halt: float, walkers: int) -> dict[str, np.ndarray]:
    """The permutation and the tuples, learned once on a small random graph."""
    import networkx as nx

    learned_on = graphs.Graph.from_networkx(nx.gnp_random_graph(100, 0.1, seed=0))
    kernel = kernels.RegularizedLaplacian(2, 1.0)
    return {
        "permutation": graphs.match_quantiles(learned_on, kernel, halt, 30),
        "tuples": graphs.couple_quantiles(learned_on, kernel, halt, walkers, 30),
    }


def couplings(console: Console, axes: np.ndarray) -> None:
    kernel = kernels.RegularizedLaplacian(2, 1.0)
    table = Table(title="Relative Frobenius error, (I + L)^-2, m = 16, halt 0.1, and ratios to sigma")
    for column in ("graph", "N", *COUPLINGS):
        table.add_column(column)
    for axis, name in zip(axes, GRAPHS, strict=True):
        graph = load(name)
        weighted = len(np.unique(graph.adjacency.data)) > 1
        K = kernel.exact(graph)
        used = {k: v for k, v in COUPLINGS.items() if not (weighted and "repelling" in k)}
        found = {
            method: errors(graph, kernel, K, 20, num_walkers=16, halt=0.1, **learned(0.1, 16), **options)[:, 0]
            for method, options in used.items()
        }
        base = found["sigma"].mean()
        cells = [f"{shown(found[m])} ({found[m].mean() / base:.2f})" if m in found else "" for m in COUPLINGS]
        table.add_row(name, str(graph.num_nodes), *cells)
        halts = (0.1, 0.2, 0.3, 0.4, 0.5)
        for method, options in used.items():
            curve = [
                errors(graph, kernel, K, 8, num_walkers=2, halt=h, **learned(h, 2), **options)[:, 0] for h in halts
            ]
            bars = [values.std(ddof=1) / np.sqrt(len(values)) for values in curve]
            axis.errorbar(halts, [values.mean() for values in curve], bars, marker="o", capsize=2, label=method)
        axis.set(title=f"{name}, N = {graph.num_nodes}", xlabel="halt")
    axes[0].set_ylabel("relative error, m = 2")
    axes[0].legend(fontsize=7)
    console.print(table)


def best_walks(graph: graphs.Graph, kernel: kernels.GraphKernel, K: np.ndarray, budget: int, most_hops: int) -> str:
    best = None
    for hops in range(1, most_hops + 1):
        for walkers in (64, 32, 16, 8, 4):
            options = {"num_walkers": walkers, "halt": 0.1, "exact_hops": hops}
            pilot = graphs.sample_walks(graph, seed=99, **options)
            if len(pilot.pattern.indices) <= budget * graph.num_nodes:
                found = errors(graph, kernel, K, 10, **options)
                if best is None or found[:, 0].mean() < best[0][:, 0].mean():
                    best = found, hops, walkers
                break
    if best is None:
        return "none fits"
    found, hops, walkers = best
    return f"{shown(found[:, 0])} @ {found[:, 1].mean():.0f} (h = {hops}, m = {walkers})"


def budgets(console: Console) -> None:
    columns = ("taylor", "chebyshev", "spectrum", "16 iid walkers", "16 stratified", "hops and walkers", "chosen hops")
    table = Table(title="Relative Frobenius error @ mean non-zeros a row, diffusion kernel exp(-gamma L)")
    for column in ("graph", "gamma", "budget", *columns):
        table.add_column(column)
    for name, gamma, budget in BUDGETS:
        graph, kernel = load(name), kernels.Diffusion(float(np.sqrt(2 * gamma)))
        K = kernel.exact(graph)
        degree = 0
        while len(graphs.taylor_features(graph, degree=degree + 1).pattern.indices) <= budget * graph.num_nodes:
            degree += 1
        cells = []
        for made in (
            graphs.taylor_features(graph, degree=degree),
            graphs.chebyshev_features(graph, degree=degree),
            graphs.spectral_features(graph, rank=budget),
        ):
            phi = made.features(kernel)
            error = np.linalg.norm((phi @ phi.T).toarray() - K) / np.linalg.norm(K)
            cells.append(f"{error:.3g} @ {phi.nnz / graph.num_nodes:.0f}")
        for options in (COUPLINGS["iid"], COUPLINGS["systematic, stratified"]):
            found = errors(graph, kernel, K, 10, num_walkers=16, halt=0.1, **options)
            cells.append(f"{shown(found[:, 0])} @ {found[:, 1].mean():.0f}")
        cells.append(best_walks(graph, kernel, K, budget, degree))
        rule = graphs.sample_walks(graph, num_walkers=16, max_nonzeros=budget, kernel=kernel, seed=99)
        found = errors(graph, kernel, K, 10, num_walkers=16, halt=0.1, exact_hops=rule.settings.exact_hops)
        cells.append(f"{shown(found[:, 0])} @ {found[:, 1].mean():.0f}")
        table.add_row(name, f"{gamma:g}", f"{budget} ({degree} hops)", *cells)
        console.print(f"{name} {gamma:g} done")
    console.print(table)


def main() -> None:
    import warnings

    import matplotlib as mpl

    warnings.simplefilter("ignore", graphs.GraphWarning)
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    out = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    console = Console(width=200)
    figure, axes = plt.subplots(1, len(GRAPHS), figsize=(4 * len(GRAPHS), 4))
    couplings(console, axes)
    figure.tight_layout()
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        figure.savefig(out / "walks.png", dpi=80)
    budgets(console)


if __name__ == "__main__":
    main()
