"""Permutations of length quantiles where the modulation f takes both signs: the reversal need not be the best."""

from itertools import permutations

import networkx as nx
import numpy as np
from numpy.typing import NDArray

import graphs
from benchmarks.record import Entries, Figure, Scale, Value, figure
from graphs import Graph, kernels
from graphs.lengths import HaltingDistribution
from graphs.matching import diagonal_objective, reduced_vectors

QUANTILES, HALTS = 6, (0.1, 0.3)
KERNELS = {"inverse cosine": kernels.InverseCosine(), "random walk, p = 3": kernels.RandomWalk(3, 2.0)}
GRAPHS = {
    "random": nx.gnp_random_graph(24, 0.2, seed=1),
    "star": nx.star_graph(6),
    "path": nx.path_graph(10),
    "cycle": nx.cycle_graph(9),
    "grid": nx.grid_2d_graph(5, 5),
    "complete": nx.complete_graph(6),
    "karate": nx.Graph(nx.karate_club_graph().edges),
}
REVERSAL = np.arange(QUANTILES)[::-1]
PROJECTIONS = {"positive": "positive", "gaussian": "gaussian", "the better of both": None}
OBJECTIVES = ("linear", "quartic")


def equal_nodes(graph: Graph, kernel: kernels.GraphKernel, p_halt: float) -> dict[str, float]:
    """Return distances of permutations from the best over pairs i = j, relative to the range of all permutations."""
    whole = reduced_vectors(graph, kernel, HaltingDistribution(p_halt), QUANTILES, graph.num_nodes)
    grams = np.einsum("qid,rid->iqr", whole, whole)

    def value(permutation: NDArray[np.int64]) -> float:
        return diagonal_objective(grams, permutation)

    values = [value(np.array(sigma)) for sigma in permutations(range(QUANTILES))]
    chosen = {"the reversal": REVERSAL}
    for name, projections in PROJECTIONS.items():
        options = {"objective": "diagonal", "projections": projections, "dimension": graph.num_nodes}
        chosen[name] = graphs.match_quantiles(graph, kernel, p_halt, QUANTILES, **options)
    return {name: (value(sigma) - min(values)) / np.ptp(values) for name, sigma in chosen.items()}


def all_pairs(graph: Graph, kernel: kernels.GraphKernel, p_halt: float) -> dict[str, float]:
    """Return the same over all pairs of nodes, where the range is that from the best to the identity."""
    chosen = {"the reversal": REVERSAL, "the identity": np.arange(QUANTILES)}
    for objective in (*OBJECTIVES, "quadratic"):
        chosen[objective] = graphs.match_quantiles(graph, kernel, p_halt, QUANTILES, objective=objective)
    values = {name: graphs.matching_variance(graph, kernel, sigma, p_halt) for name, sigma in chosen.items()}
    best, spread = values["quadratic"], values["the identity"] - values["quadratic"]
    return {name: (values[name] - best) / spread for name in ("the reversal", *OBJECTIVES)}


@figure("walk lengths coupled by a permutation, where f takes both signs")
def matching(scale: Scale) -> Entries:
    """Return the largest distances from the best permutation, over graphs and halting probabilities.

    {QUANTILES} quantiles, seven graphs of 6 to 34 nodes, halting probabilities {HALTS}; the best by search over all
    permutations. Distances from it are shares of the range of all permutations (i = j), or of the way from the best to
    the identity (all pairs). Projections as `graphs.match_quantiles` has them, 32 of each kind.
    """
    values = []
    for label, kernel in KERNELS.items():
        for measure, words in ((equal_nodes, "pairs i = j"), (all_pairs, "all pairs")):
            found = [
                measure(Graph.from_networkx(graph), kernel, p_halt)
                for graph in list(GRAPHS.values())[: 2 if scale.quick else None]
                for p_halt in HALTS
            ]
            for name in found[0]:
                worst = max(one[name] for one in found)
                missed = sum(one[name] > 1e-9 for one in found)
                values.append(Value(f"{label}, {words}, {name}: largest distance from the best", worst))
                values.append(Value(f"{label}, {words}, {name}: cases of {len(found)} that are not the best", missed))
    return values


FIGURES: dict[str, Figure] = {"matching": matching}
