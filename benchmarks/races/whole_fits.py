"""Exact processes on large graphs or meshes: analysis, fit of all hyperparameters, means and deviations.

There are 10,000 random positions. The values are sin(x / 30) + cos(y / 47) of the coordinates in steps (of the sphere
of radius 100), with noise of deviation 0.1. The grids use the sparse precisions of `RegularizedLaplacian` of orders 1
and 2, from its own start. The sphere uses linear finite elements with alpha = 2, and three starts are compared. The
last case is a million pieces of road, alpha = 1, at the middle of each, and three starts are compared. Each case is one
process. Figures are processor seconds, evaluations of the likelihood, seconds of a factor and of a likelihood with its
gradient, and the peak memory.

    python -m benchmarks.races.whole_fits [grid smooth-grid sphere roads]
"""

import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import graphs
import rfgp
from rfgp.rows import gathered

SEEN = 10_000


def grid(order: int = 1) -> tuple[Any, Any, Any]:
    """Return a process on a grid of 10^6 nodes, its nodes, and their coordinates (N, 2)."""
    side = 1000
    graph = graphs.Graph.from_grid((side, side))
    nodes = np.arange(side * side)
    kernel = graphs.kernels.RegularizedLaplacian(order, 5.0)
    return rfgp.GraphGP(graph, kernel, seed=0), nodes, np.stack(np.divmod(nodes, side), axis=1)


def sphere() -> tuple[Any, Any, Any]:
    """Return a process on a sphere of 163,842 vertices, the vertices, and their coordinates (N, 3)."""
    import trimesh

    mesh = trimesh.creation.icosphere(7, radius=100.0)
    return rfgp.MeshGP(graphs.MeshField(mesh, 2), seed=0), mesh.vertices, mesh.vertices


def roads() -> tuple[Any, Any, Any]:
    """Return a process on a million pieces of road, their middles, and coordinates (N, 2) of these in hundreds."""
    side, rng = 710, np.random.default_rng(0)
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), axis=-1)
    points = 100.0 * grid + rng.uniform(-30, 30, grid.shape)
    ends = [(points[:-1], points[1:]), (points[:, :-1], points[:, 1:])]
    lines = np.concatenate([np.stack(pair, axis=2).reshape(-1, 2, 2) for pair in ends])[:1_000_000]
    network = graphs.RoadNetwork.from_lines(list(lines), metric="euclidean")
    middles = np.stack([np.arange(len(lines)), np.full(len(lines), 0.5)], axis=1)
    return rfgp.RoadGP(network, 1, seed=0), middles, lines.mean(axis=1) / 100


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.process_time()
    out = call()
    return time.process_time() - begin, out


def measure(name: str) -> None:
    """Print the time and memory of the process of a name."""
    warnings.simplefilter("ignore")
    gp, inputs, places = {"grid": grid, "smooth-grid": lambda: grid(2), "sphere": sphere, "roads": roads}[name]()
    rng = np.random.default_rng(0)
    seen = rng.permutation(len(places))[:SEEN]
    y = np.sin(places[seen, 0] / 30) + np.cos(places[seen, 1] / 47) + 0.1 * rng.standard_normal(SEEN)
    first, _ = timed(lambda: gp.condition(inputs[seen], y).predict(inputs[:1]).mean)
    fit, _ = timed(lambda: gp.fit(inputs[seen], y))
    predict, law = timed(lambda: gp.predict(inputs))
    everywhere, _ = timed(lambda: (law.mean, law.std))
    (block,) = gp.state.prior().precisions
    block = block.refined(gathered(gp.state.require_rows(purpose="a factor")).inputs)
    field = block.field
    data = field.entries(block.values.detach().numpy())
    factor = min(timed(lambda: field.factor(data))[0] for _ in range(3))

    def gradient() -> None:
        gp.hyperparameters.zero_grad()
        gp.log_marginal_likelihood().backward()

    likelihood = min(timed(gradient)[0] for _ in range(3))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{name}, {len(places):,} places: analysis and the first factor {first:.1f} s, fit {fit:.1f} s "
        f"({gp.fit_report.evaluations} evaluations), means and deviations everywhere {predict + everywhere:.1f} s, "
        f"peak {peak:.1f} GB; a factor {factor:.2f} s, a likelihood with gradient {likelihood:.2f} s "
        f"({likelihood / factor:.1f} factors); {gp.hyperparameters}",
        flush=True,
    )


def main() -> None:
    names = sys.argv[1:] or ["grid", "smooth-grid", "sphere", "roads"]
    if len(names) == 1:
        measure(names[0])
        return
    for name in names:
        subprocess.run([sys.executable, "-m", "benchmarks.races.whole_fits", name], check=True)


if __name__ == "__main__":
    main()
