"""A Gaussian process on graphs of up to a million nodes: time, memory, and errors of the standard deviations.

Protocol, fixed before the results were seen. Random graphs of mean degree 10 and square grids. The field is white noise
smoothed by exp(-t L / 2), t = 4.5 and 12 (lengthscales 3 and 4.9), with variance 1. It is observed with noise of
deviation 0.3 at random nodes. `GraphGP(features="walks", num_walkers=16)` fits all hyperparameters and predicts mean
and standard deviation at every node. Each case runs in a process of its own, for its peak memory, and compiles before
its clock starts.
- The goal for 10^6 nodes, 10^4 observed, is ten minutes and 8 GB on two cores. Standard deviations at 1,000 random
  nodes should be within 5 % (median) of those by a factor of the matrix of all observations over the same features.

    python -m benchmarks.races.graph_gp [KIND NODES OBSERVATIONS WALKERS]
"""

import json
import resource
import sys
import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp

import graphs
import rfgp
from benchmarks.race import apart
from graphs.kernels import Diffusion

TIMES = {"random": 4.5, "grid": 12.0}
GOAL = [("random", 10**6, 10**4, 16), ("grid", 10**6, 10**4, 16), ("grid", 10**6, 10**4, 64)]


def make_graph(kind: str, count: int) -> graphs.Graph:
    if kind == "grid":
        return graphs.Graph.from_grid((round(count**0.5), round(count**0.5)))
    pairs = np.sort(np.random.default_rng(0).integers(0, count, (5 * count, 2)), axis=1)
    pairs = np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0)
    upper = sp.coo_array((np.ones(len(pairs)), tuple(pairs.T)), shape=(count, count))
    return graphs.Graph.from_scipy((upper + upper.T).tocsr())


def make_field(graph: graphs.Graph, t: float) -> np.ndarray:
    f = Diffusion((2 * t) ** 0.5).modulation(80)
    term = np.random.default_rng(1).standard_normal(graph.num_nodes)
    total = f[0] * term
    for coefficient in f[1:]:
        term = graph.shift_operator @ term
        total += coefficient * term
    return total / total.std()


def run(kind: str, count: int, observed: int, walkers: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    small = make_graph("grid", 10_000)
    warm = rfgp.GraphGP(small, Diffusion(2.0), features="walks", num_walkers=4, seed=0)
    warm.fit(np.arange(4100), make_field(small, 4.0)[:4100], max_iterations=1).predict(np.arange(5000)).variance.sum()
    graph = make_graph(kind, count)
    field, rng = make_field(graph, TIMES[kind]), np.random.default_rng(2)
    nodes = rng.permutation(graph.num_nodes)[:observed]
    y = field[nodes] + 0.3 * rng.standard_normal(observed)
    start = time.perf_counter()
    gp = rfgp.GraphGP(graph, features="walks", num_walkers=walkers, seed=0).fit(nodes, y)
    fitted = time.perf_counter()
    p = gp.predict(np.arange(graph.num_nodes))
    mean, deviation = p.mean, np.sqrt(p.variance)
    done = time.perf_counter()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    others = np.setdiff1d(np.arange(graph.num_nodes), nodes)
    z = ((mean - field) / deviation)[others if len(others) else nodes]
    return {
        "case": [kind, graph.num_nodes, observed, walkers],
        "fit_s": fitted - start,
        "predict_s": done - fitted,
        "memory_gib": memory,
        "rmse": float(np.sqrt(np.mean((mean - field) ** 2))),
        "calibration_elsewhere": float(np.mean(z**2)),
        "hyperparameters": repr(gp.hyperparameters),
        "check": str(gp.diagnose()),
        "converged": gp.fit_report.converged,
        **(compare(gp.condition(nodes, y), deviation) if observed <= 10**4 else {}),
    }


def compare(gp: rfgp.GraphGP, deviation: np.ndarray) -> dict[str, float]:
    """Return the relative errors of deviations at 1,000 nodes, against factorization; `gp` has no posterior yet."""
    sample = np.random.default_rng(3).permutation(len(deviation))[:1000]
    with rfgp.testing.limits(max_dense=10**9):
        exact = np.sqrt(gp.predict(sample).variance)
    errors = np.abs(deviation[sample] / exact - 1)
    told = exact < 0.95 * np.quantile(exact, 0.99)  # nodes about which the data say something
    return {
        "median_error": float(np.median(errors)),
        "largest_decile": float(np.quantile(errors, 0.9)),
        "median_error_where_told": float(np.median(errors[told])) if told.any() else float("nan"),
        "share_told": float(told.mean()),
    }


def main() -> None:
    for case in GOAL:
        print(json.dumps(apart("benchmarks.races.graph_gp", None, *case)), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(json.dumps(run(sys.argv[1], *map(int, sys.argv[2:]))))
    else:
        main()
