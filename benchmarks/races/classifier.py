"""Classes of the nodes of a grid of 100,000 nodes from 300 labels: seconds, memory and accuracy by kinds of features.

The classes are tiles of 60 by 60 nodes, three in turn; the labeled nodes are drawn at random; the diffusion kernel
starts at a lengthscale of 8. Memory is the peak of the process over all that ran so far.

    python -m benchmarks.races.classifier [SIDE OF THE GRID]
"""

import resource
import sys
import time

import networkx as nx
import numpy as np
from rich.console import Console
from rich.table import Table

import graphs
import rfgp

LABELS, TILE = 300, 60


def main() -> None:
    side = int(sys.argv[1]) if len(sys.argv) > 1 else 316
    graph = graphs.Graph.from_networkx(nx.grid_2d_graph(side, side))
    nodes = list(graph.labels)
    truth = (np.array(nodes) // TILE).sum(1) % 3
    seen = np.random.default_rng(0).choice(len(nodes), LABELS, replace=False)
    table = Table(title=f"{len(nodes)} nodes, {LABELS} labels, 3 classes")
    for column in ("features", "fit, s", "iterations", "predict all, s", "accuracy", "negative log prob.", "peak, GiB"):
        table.add_column(column)
    for features in ("chebyshev", "walks"):
        begun = time.perf_counter()
        gp = rfgp.GraphGP(graph, graphs.kernels.Diffusion(8.0), features, likelihood="categorical", seed=0)
        gp.fit([nodes[i] for i in seen], truth[seen])
        fitted = time.perf_counter()
        chances = np.asarray(gp.predict(nodes).observed().probabilities)
        done = time.perf_counter()
        density = -np.log(chances[np.arange(len(nodes)), truth]).mean()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        row = (fitted - begun, gp.fit_report.iterations, done - fitted, (chances.argmax(1) == truth).mean())
        table.add_row(features, *(f"{value:.3g}" for value in row), f"{density:.3f}", f"{peak:.2f}")
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
