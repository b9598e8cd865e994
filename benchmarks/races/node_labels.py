"""Classes of the nodes of a citation graph from twenty labels of each: Gaussian processes with a diffusion kernel.

Protocol. cora of the community graphs (gml, the class of a node is its "gt"; their citeseer has none), the largest
component, edges without direction or loops. At each seed twenty random nodes of each class are learned from, the others
are judged. Figures: accuracy, the mean log density of the true class, seconds of the fit. One thread.

- rfgp: `rfgp.sklearn.GraphGPClassifier` with its defaults. rfgp-exact: with the exact kernel.

    python -m benchmarks.races.node_labels FOLDER [SEEDS]
"""

import sys
import time
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import torch
from numpy.typing import NDArray

import graphs
from rfgp.sklearn import GraphGPClassifier

GRAPHS, EACH, FLOOR = ("cora",), 20, 1e-12


def load(file: Path) -> tuple[graphs.Graph, list[Any], NDArray[np.str_]]:
    """Return the largest component, its nodes, and their classes (n,)."""
    read = nx.Graph(nx.read_gml(file, label="id"))
    read.remove_edges_from(nx.selfloop_edges(read))
    largest = sorted(nx.connected_components(read), key=lambda part: len(part))[-1]
    part = read.subgraph(sorted(largest))
    plain = nx.Graph()
    plain.add_nodes_from(sorted(part))
    plain.add_edges_from(part.edges)
    nodes = list(plain)
    return graphs.Graph.from_networkx(plain), nodes, np.array([str(read.nodes[node]["gt"]) for node in nodes])


def racers(graph: graphs.Graph, seed: int) -> dict[str, Any]:
    return {
        "rfgp": GraphGPClassifier(graph, random_state=seed),
        "rfgp-exact": GraphGPClassifier(graph, random_state=seed, features="exact"),
    }


def main() -> None:
    torch.set_num_threads(1)
    for name in GRAPHS:
        graph, nodes, y = load(Path(sys.argv[1]) / f"{name}.gml")
        for seed in range(int(sys.argv[2]) if len(sys.argv) > 2 else 10):
            rng = np.random.default_rng(seed)
            seen = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:EACH] for c in np.unique(y)])
            rest = np.setdiff1d(np.arange(len(y)), seen)
            for racer, model in racers(graph, seed).items():
                begun = time.perf_counter()
                model.fit([nodes[i] for i in seen], y[seen])
                seconds = time.perf_counter() - begun
                chances = np.asarray(model.predict_proba([nodes[i] for i in rest]))
                right = np.searchsorted(np.unique(y[seen]), y[rest])
                density = np.log(np.maximum(chances[np.arange(len(rest)), right], FLOOR)).mean()
                accuracy = (chances.argmax(1) == right).mean()
                print(f"{name} {seed} {racer:13s} {accuracy:.3f} {density:.4f} {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
