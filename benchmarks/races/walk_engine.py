"""Steps per second of `graphs.sample_walks` as called, output included; time and memory against N.

Protocol: 16 walkers a node, halt 0.1. (1) A random graph of a million nodes with mean degree 10, all nodes, medians of
five runs after one that compiles, independent and stratified walkers interleaved. (2) Square grids of 10^4 to 10^6
nodes, features of the diffusion kernel for all nodes, without exact hops and with those chosen for 64 non-zeros.
Figures are seconds and peak resident memory beyond that of the graph, each in its own process.

    python -m benchmarks.races.walk_engine
"""

import argparse
import json
import statistics
import time

import numpy as np
import scipy.sparse as sp

from benchmarks.race import apart, status

WALKERS, HALT, LONGEST = 16, 0.1, 63
MODES = {
    "independent": {"lengths": "iid", "step_coupling": "independent", "exact_hops": 0},
    "stratified": {"lengths": "systematic", "step_coupling": "stratified", "exact_hops": 0},
}
SIZES = (10_000, 40_000, 160_000, 490_000, 1_000_000)


def random_adjacency(nodes: int, degree: int = 10) -> sp.csr_array:
    ends = np.random.default_rng(0).integers(0, nodes, (2, nodes * degree // 2))
    matrix = sp.coo_array((np.ones(ends.shape[1]), ends), shape=(nodes, nodes)).tocsr()
    matrix = ((matrix + matrix.T) > 0).astype(np.float64)
    matrix.setdiag(0)
    matrix.eliminate_zeros()
    return sp.csr_array(matrix)


def grid_adjacency(nodes: int) -> sp.csr_array:
    side = round(nodes**0.5)
    path = sp.diags_array([np.ones(side - 1), np.ones(side - 1)], offsets=[-1, 1])
    return sp.csr_array(sp.kronsum(path, path))


def rates() -> None:
    import graphs

    graph = graphs.Graph.from_scipy(random_adjacency(10**6))
    steps = graph.num_nodes * WALKERS * (1 - HALT) / HALT
    found: dict[str, list[float]] = {name: [] for name in MODES}
    for repeat in range(6):
        for name, mode in MODES.items():
            begin = time.perf_counter()
            graphs.sample_walks(graph, None, WALKERS, HALT, seed=repeat, **mode)
            if repeat:
                found[name].append(steps / (time.perf_counter() - begin) / 1e6)
    for name, values in found.items():
        spread = f"{min(values):.1f} to {max(values):.1f}"
        print(f"random graph of 10^6 nodes, {name}: {statistics.median(values):.1f} million steps/s ({spread})")


def one_grid(nodes: int, hops: str) -> None:
    """Print seconds and bytes of the features of all nodes."""
    import graphs

    graph, kernel = graphs.Graph.from_scipy(grid_adjacency(nodes)), graphs.kernels.Diffusion(2.0)
    options = {"exact_hops": hops if hops == "auto" else int(hops), "kernel": kernel, "seed": 0}
    graphs.sample_walks(graph, [0], **options).features(kernel)  # compiles
    before = status("VmHWM")
    begin = time.perf_counter()
    phi = graphs.sample_walks(graph, None, WALKERS, HALT, **options).features(kernel)
    taken = time.perf_counter() - begin
    print(json.dumps([graph.num_nodes, taken, status("VmHWM") - before, status("VmHWM"), phi.nnz]))


def grids(hops: str) -> None:
    rows = []
    for nodes in SIZES:
        rows.append(apart("benchmarks.races.walk_engine", None, "--grid", nodes, "--hops", hops))
        size, seconds, more, peak, nonzeros = rows[-1]
        print(
            f"grid of {size} nodes, exact hops {hops}: {seconds:.2f} s, {more / 2**30:.3f} GiB more than the graph, "
            f"peak {peak / 2**30:.2f} GiB, {nonzeros / size:.1f} non-zeros a row"
        )
    sizes, times, memory = np.array(rows, dtype=float).T[:3]
    slopes = [np.polyfit(np.log(sizes), np.log(values), 1)[0] for values in (times, memory)]
    print(f"slopes on logarithmic scales: time {slopes[0]:.2f}, memory {slopes[1]:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--grid", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--hops", default="0", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.grid:
        one_grid(options.grid, options.hops)
        return
    rates()
    for hops in ("0", "auto"):
        grids(hops)


if __name__ == "__main__":
    main()
