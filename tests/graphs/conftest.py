"""The graph of several rooms."""

import networkx as nx
import numpy as np
import pytest

from graphs import Graph


@pytest.fixture(scope="module")
def g():
    G = nx.gnm_random_graph(60, 130, seed=0)
    weights = np.random.default_rng(0).uniform(0.2, 3, 130)
    return Graph.from_edges([(f"n{a}", f"n{b}") for a, b in G.edges], weights, nodes=[f"n{k}" for k in range(60)])
