"""Small graphs, many independent draws of walks over them, and the check that they are unbiased."""

from functools import lru_cache, partial

import networkx as nx
import numpy as np
import scipy.sparse as sp
from checks import assert_mean

import graphs
from graphs import Graph, kernels

sample_walks = partial(graphs.sample_walks, exact_hops=0)  # walkers alone, where a test does not say otherwise

KERNEL = kernels.RegularizedLaplacian(2, 0.7)
REPEATS = 10_000
PERMUTATION = [4, 2, 0, 3, 1]
TUPLES = [[0, 2, 1, 3], [3, 0, 2, 1], [1, 1, 3, 0], [2, 3, 0, 2]]


def weighted(G, seed):
    rng = np.random.default_rng(seed)
    return Graph.from_edges(G.edges, rng.uniform(0.2, 3, G.number_of_edges()), nodes=G.nodes)


GRAPHS = {
    "star": Graph.from_networkx(nx.star_graph(4)),
    "path": Graph.from_networkx(nx.path_graph(5)),
    "bipartite": Graph.from_networkx(nx.complete_bipartite_graph(2, 3)),
    "weighted": weighted(nx.complete_graph(4), 0),
    "disconnected": Graph.from_edges([(0, 1), (1, 2), (3, 4)], nodes=[0, 1, 2, 3, 4, 5]),  # 5 is isolated
    "self-loop": Graph.from_edges([(0, 0), (0, 1), (1, 2)], [2.0, 1.0, 1.0], self_loops="keep"),
    "combinatorial": weighted(nx.star_graph(3), 3).with_laplacian("combinatorial"),
}


def moving(name, step_coupling):
    """Repelling walkers move uniformly."""
    return (
        "uniform" if step_coupling == "repelling" and name in ("weighted", "self-loop", "combinatorial") else "weights"
    )


def exact_features(g, kernel):
    """f(U) through the eigendecomposition, which shares nothing with the walks."""
    u = 1 - g.spectrum.eigenvalues
    root = np.sqrt(kernel.spectral(1 - u))
    return (g.spectrum.eigenvectors * root) @ g.spectrum.eigenvectors.T


@lru_cache
def copies(g, count):
    """Return `count` disjoint copies of g: one draw over them holds as many independent draws over g."""
    many = Graph.from_scipy(sp.block_diag([g.adjacency] * count), self_loops="keep")
    return many.with_laplacian(g.laplacian)


def draws(g, walkers=4, p_halt=0.3, **options):
    """Return Phi of REPEATS independent draws, (REPEATS, N, N)."""
    many, size = copies(g, REPEATS), g.num_nodes
    phi = sample_walks(many, num_walkers=walkers, p_halt=p_halt, seed=0, **options).features(KERNEL).tocoo()
    out = np.zeros((REPEATS, size, size))
    out[phi.row // size, phi.row % size, phi.col % size] = phi.data
    return out


def check_unbiased(g, phi):
    """E[Phi] = f(U), and Phi Phi^T is unbiased off the diagonal, on entries reached often enough."""
    expected = exact_features(g, KERNEL)
    often = (phi != 0).sum(0) >= 1000
    assert often.sum() > g.num_nodes
    assert_mean(phi[:, often], expected[often])
    away = ~np.eye(g.num_nodes, dtype=bool)
    products = np.einsum("rij,rkj->rik", phi, phi)
    often = away & ((products != 0).sum(0) >= 1000)
    assert_mean(products[:, often], KERNEL.exact(g)[often])


def assert_same(a, b):
    for left, right in ((a.pattern.indptr, b.pattern.indptr), (a.pattern.indices, b.pattern.indices)):
        np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(a.loads.data, b.loads.data)  # bit for bit
    np.testing.assert_array_equal(a.loads.indices, b.loads.indices)
