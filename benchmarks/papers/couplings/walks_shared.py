"""Common parts of the figures on graphs: graphs, walkers as in the paper, and claims without numbers.

The figures of the paper's half on graphs are plots. The claims of its text, mostly that sigma is nowhere worse, are
tested here. The tests use the mean over cases, and the worst case as a normal variable (`record.everywhere`).
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy import stats

import graphs
from benchmarks.protocol import geometric, ratio_of_means
from benchmarks.record import Value, everywhere
from rfgp import datasets

Floats = NDArray[np.float64]

GRAPHS = {
    "karate": "karate",
    "dolphins": "dolphins",
    "polbooks": "polbooks",
    "football": "football",
    "news_2cl1_0.1": "news",
    "eu-core": "eu-core",
    "arenas-email": "email",
    "eurosis": "eurosis",
    "citeseer": "citeseer",
    "cora": "cora",
}
"""By their names in `rfgp.datasets`: those whose numbers of nodes App. E.3 lists, in its order."""

PAPER: dict[str, dict[str, Any]] = {
    name: {"lengths": lengths, "step_coupling": "independent", "exact_hops": 0, "transitions": "uniform"}
    for name, lengths in (("i.i.d.", "iid"), ("antithetic", "antithetic"), ("sigma", "sigma"))
}
"""The paper's walkers: sec. 4 has them choose neighbors alike."""
OURS: dict[str, dict[str, Any]] = {
    "stratified": {"lengths": "systematic", "step_coupling": "stratified", "exact_hops": 0, "transitions": "uniform"}
}
RANDOM_GRAPH = "an Erdos-Renyi graph of 100 nodes, edges with probability 0.1 (not stated in the paper)"


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings of walks with a large variance, which the paper also uses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", graphs.GraphWarning)
        yield


def load(name: str) -> graphs.Graph:
    """Return the largest connected part of a graph, of the faces of a mesh, or of roads."""
    found = datasets.load(name)
    if isinstance(found, graphs.Roads):
        edges, fractions, _ = found.sensor_positions()
        return graphs.Graph.from_roads(found.lines, edges, fractions).largest_component()
    graph = found if isinstance(found, graphs.Graph) else graphs.Graph.from_mesh(found)
    return graph.largest_component()


@cache
def random_graph() -> graphs.Graph:
    """Return the graph on which permutations are learned."""
    return graphs.Graph.from_networkx(nx.gnp_random_graph(100, 0.1, seed=0))


def draw(graph: graphs.Graph, walkers: int, p_halt: float, seed: int, **options: Any) -> graphs.Walks:
    """Return walks of all nodes."""
    return graphs.sample_walks(
        graph, num_walkers=walkers, p_halt=p_halt, seed=seed, num_threads=1, progress=False, **options
    )


def behind(first: Floats, second: Floats) -> float:
    """Return the support for a smaller mean of the first of paired samples (r,), by Student's t.

    It is the normal variable of the same probability, or 0 if all are equal.
    """
    difference = second - first
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    if not error > 0:
        return 0.0
    t = difference.mean() / error
    size = stats.norm.isf(max(float(stats.t.sf(abs(t), len(difference) - 1)), 1e-300))
    return float(np.copysign(size, t))


def nowhere_worse(name: str, cases: Sequence[Mapping[str, Floats]]) -> list[Value]:
    """Return the claim that sigma's mean is in no case above the means of i.i.d. and antithetic walkers.

    Our value is the ratio in the case with the most evidence against the claim. A tie is undecided for any number of
    draws.
    """
    values = []
    for other in ("i.i.d.", "antithetic"):
        supports = [behind(case["sigma"], case[other]) for case in cases]
        case = cases[int(np.argmin(supports))]
        good = sum(case["sigma"].mean() <= case[other].mean() for case in cases)
        values.append(
            Value(
                f"{name}: sigma / {other}, the worst of {len(cases)} cases",
                *ratio_of_means(case["sigma"], case[other], paired=True),
                "< 1",
                why=f"no larger in {good} of {len(cases)}",
                together=everywhere(supports),
            )
        )
    return values


def mean_ratio(name: str, cases: Sequence[Mapping[str, Floats]], method: str, base: str = "i.i.d.") -> Value:
    """Return the geometric mean over cases of the ratio of two mean errors, with its standard error over draws.

    Draws with the same index have the same seed in all cases and for both methods. The claim is that the ratio of sigma
    is below 1.
    """
    pairs = [(case[method], case[base]) for case in cases]
    ratio = geometric(a.mean() / b.mean() for a, b in pairs)
    moved = np.mean([a / a.mean() - b / b.mean() for a, b in pairs], axis=0)
    error = ratio * float(moved.std(ddof=1) / np.sqrt(len(moved)))
    return Value(f"{name}: {method} / {base}", ratio, error, "< 1" if method == "sigma" else "")


def mean_ratios(name: str, cases: Sequence[Mapping[str, Floats]]) -> list[Value]:
    """Return the mean ratios of all methods to i.i.d. walkers, and of sigma to antithetic ones."""
    others = [method for method in cases[0] if method != "i.i.d."]
    return [*(mean_ratio(name, cases, method) for method in others), mean_ratio(name, cases, "sigma", "antithetic")]


def curve(values: Sequence[float]) -> str:
    """Return numbers in a row."""
    return " ".join(f"{value:.3g}" for value in values)
