"""Classes of the nodes of a citation graph from twenty labels of each: Gaussian processes with a diffusion kernel.

Protocol. cora of the community graphs (its classes are those of `rfgp.datasets.load_classes`), the largest component,
edges without direction or loops. At each seed twenty random nodes of each class are learned from, the others are
predicted. Scores: accuracy, NLPD of the true class, calibration error.

- rfgp: `rfgp.sklearn.GraphGPClassifier` with its defaults. rfgp-exact: with the exact kernel.

    python -m benchmarks.races.node_labels [--splits N] [--out FILE]
"""

import argparse
from typing import Any

import networkx as nx
import numpy as np

import graphs
import rfgp
from benchmarks import models, scores
from benchmarks.race import Model, Race, Split

EACH = 20


def load(name: str) -> tuple[graphs.Graph, Any, Any]:
    """Return the largest component, its nodes, and the codes of their classes (n,)."""
    read = nx.Graph(nx.read_gml(rfgp.datasets.fetch(name), label="id"))
    read.remove_edges_from(nx.selfloop_edges(read))
    largest = sorted(nx.connected_components(read), key=lambda part: len(part))[-1]
    part = read.subgraph(sorted(largest))
    plain = nx.Graph()
    plain.add_nodes_from(sorted(part))
    plain.add_edges_from(part.edges)
    classes = np.array([str(read.nodes[node]["gt"]) for node in plain])
    return graphs.Graph.from_networkx(plain), np.array(list(plain)), np.unique(classes, return_inverse=True)[1]


def split(name: str, seed: int, options: argparse.Namespace) -> Split:
    """Return twenty nodes of each class, and the others."""
    _, nodes, y = load(name)
    rng = np.random.default_rng(seed)
    seen = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:EACH] for c in np.unique(y)])
    rest = np.setdiff1d(np.arange(len(y)), seen)
    return Split(nodes[seen], y[seen], nodes[rest], y[rest])


def ours(**options: Any) -> Model:
    """Return the classifier of this package."""

    def fit(nodes: Any, y: Any, seed: int = 0) -> models.Predict:
        from rfgp.sklearn import GraphGPClassifier

        model = GraphGPClassifier(load("cora")[0], random_state=seed, **options).fit(list(nodes), y)
        return lambda new: models.spread(model, list(new), y.max() + 1)

    return Model("rfgp.sklearn", fit)


RACE = Race(
    "benchmarks.races.node_labels",
    ("cora",),
    split,
    {"rfgp": ours(), "rfgp-exact": ours(features="exact")},
    lambda found, rows: scores.of_classes(found, rows.w),
    splits=5,
)


def main() -> None:
    """Run the race."""
    RACE.main(__doc__)


if __name__ == "__main__":
    main()
