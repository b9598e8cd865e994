"""What the figures on graphs have in common: graphs, walkers as the paper has them, and claims without numbers.

The figures of the paper's half on graphs are plots. What its text claims of them, mostly that sigma is nowhere worse,
is counted here, and tested: of k cases the worst, as a normal variable of its own (the largest of k of them).
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
from benchmarks.record import AGREES, Value
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
    name: {"lengths": lengths, "directions": "independent", "exact_hops": 0, "transitions": "uniform"}
    for name, lengths in (("i.i.d.", "iid"), ("antithetic", "antithetic"), ("sigma", "sigma"))
}
"""The paper's walkers: sec. 4 has them choose neighbours alike."""
OURS: dict[str, dict[str, Any]] = {
    "stratified": {"lengths": "systematic", "directions": "stratified", "exact_hops": 0, "transitions": "uniform"}
}
RANDOM_GRAPH = "an Erdos-Renyi graph of 100 nodes, edges with probability .1 (not stated in the paper)"


@contextmanager
def quiet() -> Iterator[None]:
    """No warnings of walks with a large variance: the paper has such walks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", graphs.GraphWarning)
        yield


def load(name: str) -> graphs.Graph:
    """Return the largest connected part of a graph, of the faces of a mesh, or of roads."""
    found = datasets.load(name)
    if isinstance(found, graphs.Roads):
        edges, fractions, _ = found.places()
        return graphs.Graph.from_roads(found.lines, edges, fractions).largest_component()
    graph = found if isinstance(found, graphs.Graph) else graphs.Graph.from_mesh(found)
    return graph.largest_component()


@cache
def random_graph() -> graphs.Graph:
    """Return the graph on which permutations are learned."""
    return graphs.Graph.from_networkx(nx.gnp_random_graph(100, 0.1, seed=0))


def draw(graph: graphs.Graph, walkers: int, halt: float, seed: int, **options: Any) -> graphs.Walks:
    """Return walks of all nodes."""
    return graphs.sample_walks(
        graph, num_walkers=walkers, halt=halt, seed=seed, num_threads=1, progress=False, **options
    )


def worst(z: Sequence[float] | Floats) -> float:
    """Return the largest of some normal variables as a normal variable, or 0 where that is negative."""
    tail = -np.expm1(len(z) * stats.norm.logcdf(np.max(z)))
    return max(0.0, float(stats.norm.isf(max(tail, 1e-300))))


def paired_z(first: Floats, second: Floats) -> float:
    """Return by how many standard errors the mean of the first exceeds that of the second, (r,) each, in pairs."""
    difference = first - second
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return float(difference.mean() / error) if error > 0 else 0.0


def nowhere_worse(name: str, cases: Sequence[Mapping[str, Floats]], why: str = "") -> Value:
    """Return in how many cases sigma's mean is no larger than those of i.i.d. and antithetic walkers, and the worst.

    A case counts where it is larger by no more than two standard errors of the difference.
    """
    z = [paired_z(case["sigma"], case[other]) for case in cases for other in ("i.i.d.", "antithetic")]
    good = sum(max(pair) <= AGREES for pair in zip(z[::2], z[1::2], strict=True))
    far = worst(z)
    label = f"{name}: cases of {len(cases)} in which sigma is no worse than i.i.d. and antithetic walkers"
    return Value(label, good, printed=str(len(cases)), z=far, why=why if far > AGREES else "")


def mean_ratio(name: str, cases: Sequence[Mapping[str, Floats]], method: str, base: str = "i.i.d.") -> Value:
    """Return the geometric mean over cases of the ratio of two mean errors, with its standard error over draws."""
    logs, variances = [], []
    for case in cases:
        a, b = case[method], case[base]
        logs.append(np.log(a.mean() / b.mean()))
        variances.append((a / a.mean() - b / b.mean()).var(ddof=1) / len(a))
    ratio = float(np.exp(np.mean(logs)))
    return Value(f"{name}: {method} / {base}", ratio, ratio * float(np.sqrt(np.sum(variances))) / len(cases))


def curve(values: Sequence[float]) -> str:
    """Return numbers in a row."""
    return " ".join(f"{value:.3g}" for value in values)
