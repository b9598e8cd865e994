"""Which features serve a kernel on a graph: measured on some nodes, at a budget of non-zeros."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs import random
from graphs.checks import check_counts, check_fits, machine_memory
from graphs.couplings import as_halting_distribution
from graphs.errors import InvalidArgumentError, MemoryBudgetError
from graphs.features import (
    NodeFeatures,
    chebyshev_features,
    chebyshev_interpolation,
    sample_walks,
    spectral_features,
    taylor_features,
)
from graphs.features import feature_matrix as feature_matrix
from graphs.graph import Graph
from graphs.kernels import GraphKernel
from graphs.kernels.kernel import check_graph_and_kernel, precision_order
from graphs.precisions import RationalField, default_num_terms, resolvent_field
from graphs.walks import max_p_halt

Floats = NDArray[np.float64]

_SEEDS, _DRAWS = 4, 4
_WALKERS = (64, 32, 16, 8, 4)
MAX_FLOPS, MAX_FLOPS_PER_NODE = 2e11, 4e6
_MAX_SPECTRAL_ERROR = 0.01
_TOLERANCE, _MAX_TERMS, _MAX_EIGENVECTORS, _SPARSE = 1e-10, 2000, 2000, 0.1


@dataclass(frozen=True)
class Candidate:
    """Features that were measured.

    Attributes:
        features: "precision", "rational", "walks", "chebyshev", "taylor" or "spectrum".
        options: Of `sample_walks`, `chebyshev_features`, `taylor_features` or `spectral_features`.
        error: |Phi Phi^T - K| / |K| in the Frobenius norm, over the nodes of the sample; for walks the root mean square
            of four draws; of a precision 0, of "rational" the largest relative error of its spectrum.
        nonzeros: Per row, on average; of a precision, and of "rational", those of its Cholesky factor.
    """

    features: str
    options: dict[str, Any]
    error: float
    nonzeros: float

    def __str__(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.features}({options}): error {self.error:.2g}, {self.nonzeros:.0f} non-zeros a row"


@dataclass(frozen=True)
class Advice:
    """What `advise` found.

    Attributes:
        best: The precision where it serves, or the candidate of least error within the budget.
        candidates: All that were measured, by error.
        reason: Why it is the best, in words.
    """

    best: Candidate
    candidates: tuple[Candidate, ...]
    reason: str

    def __str__(self) -> str:
        return "\n".join([self.reason, *(f"  {candidate}" for candidate in self.candidates)])


@np.errstate(under="ignore")
def advise(
    graph: Graph,
    kernel: GraphKernel,
    max_nonzeros: int = 64,
    *,
    num_nodes: int = 128,
    p_halt: float = 0.1,
    seed: int = 0,
) -> Advice:
    """Measure deterministic features and walks on a sample of nodes, and recommend those of least error.

    Where the kernel has a sparse precision and its factor is small, that is exact, and recommended before all others;
    likewise a sum of fields with sparse precisions for a kernel of fractional order.

    The sample is made of neighbourhoods of four random nodes, since far nodes have no covariance to get wrong; the
    exact kernel there comes from a Chebyshev series of k itself, applied to vectors.

    Args:
        graph: The graph.
        kernel: The kernel.
        max_nonzeros: The budget of non-zeros in a row of Phi, on average over the sample.
        num_nodes: Nodes of the sample.
        p_halt: The halting probability of the walks; a smaller one is taken where their second moment would be infinite.
        seed: Of the sample and of the walks.

    Raises:
        InvalidArgumentError: counts that are not positive, a bad halt or seed; or a kernel that no Chebyshev series of
            2,000 terms resolves, on more than 2,000 nodes.
    """
    check_graph_and_kernel(graph, kernel)
    check_counts(max_nonzeros=max_nonzeros, num_nodes=num_nodes)
    halting = as_halting_distribution(p_halt)
    if not halting.is_geometric:
        raise InvalidArgumentError(f"halt must be a probability, got {p_halt!r}.")
    seed = random.resolve_seed(seed)
    count = min(int(num_nodes), graph.num_nodes)
    check_fits(f"The kernel on {count} nodes of a sample", 48.0 * count * graph.num_nodes, "Use a smaller num_nodes.")
    sample = node_sample(graph, count, seed)
    exact = exact_block(graph, kernel, sample)
    measured = list(_candidates(graph, kernel, sample, exact, int(max_nonzeros), p_halt, seed))
    measured.sort(key=lambda candidate: (max(candidate.error, 1e-12), candidate.features == "walks"))
    solved = sparse_factor_candidate(graph, kernel)
    if solved is not None:
        measured.insert(0, solved)
        return Advice(solved, tuple(measured), _reason(solved, measured, graph, kernel, max_nonzeros))
    within = [candidate for candidate in measured if candidate.nonzeros <= max_nonzeros]
    best = within[0] if within else min(measured, key=lambda candidate: candidate.nonzeros)
    return Advice(best, tuple(measured), _reason(best, measured, graph, kernel, max_nonzeros))


def precision_candidate(graph: Graph, kernel: GraphKernel) -> Candidate | None:
    """Return the exact process through a sparse precision; None where the kernel has none, or its factor is too dear.

    What a factor costs is known from the pattern: at most 2 10^11 operations, some 20 seconds, and half of this
    machine's memory are allowed.
    """
    try:
        order = precision_order(kernel)
        analysis = resolvent_field(graph, order).analysis
    except (InvalidArgumentError, MemoryBudgetError):
        return None
    if analysis.flops > MAX_FLOPS or analysis.num_bytes > machine_memory() / 2:
        return None
    return Candidate("precision", {"order": order}, 0.0, analysis.num_nonzeros / graph.num_nodes)


def rational_candidate(graph: Graph, kernel: GraphKernel) -> Candidate | None:
    """Return the sum of fields that serves a kernel of fractional order; None where there is none, or it is too dear.

    m fields have m^3 times the operations and m^2 times the memory of one, whose pattern tells these. As it is not
    exact, it may take 4 10^6 operations a node at most, some two seconds for 10,000 nodes.
    """
    try:
        order, shift, *_ = kernel.resolvent()
        terms = default_num_terms(order, shift)
        analysis = resolvent_field(graph, int(order) + 1).analysis
    except (InvalidArgumentError, MemoryBudgetError):
        return None
    most = min(MAX_FLOPS, MAX_FLOPS_PER_NODE * graph.num_nodes)
    if terms**3 * analysis.flops > most or terms**2 * analysis.num_bytes > machine_memory() / 2:
        return None
    error = RationalField(graph, order, terms).error(shift)
    if error > _MAX_SPECTRAL_ERROR:
        return None
    return Candidate("rational", {"degree": terms}, error, terms**2 * analysis.num_nonzeros / graph.num_nodes)


def sparse_factor_candidate(graph: Graph, kernel: GraphKernel) -> Candidate | None:
    """Return what goes through a sparse Cholesky factor: exactly for an integer order, else nearly so; or None."""
    return precision_candidate(graph, kernel) or rational_candidate(graph, kernel)


def exact_block(graph: Graph, kernel: GraphKernel, positions: NDArray[np.int64]) -> Floats:
    """Return the exact kernel (n, n) between some positions (n,) of a graph of any size.

    A Chebyshev series of k(1 - u), whose terms fall geometrically for smooth kernels, on n vectors, which are sparse
    until a tenth of their entries is filled. Where 2,000 terms are not enough, all eigenvectors, on up to 2,000 nodes.

    Raises:
        InvalidArgumentError: 2,000 terms are not enough, on more nodes.
    """
    series, U, n = _series_of(kernel), graph.shift_operator, len(positions)
    if series is None:
        if graph.num_nodes > _MAX_EIGENVECTORS:
            raise InvalidArgumentError(f"{kernel} needs more than {_MAX_TERMS} terms of a Chebyshev series.")
        return kernel.exact(graph)[np.ix_(positions, positions)]
    columns = np.arange(n)
    before: Any = sp.csr_array((np.ones(n), (positions, columns)), shape=(graph.num_nodes, n))
    now: Any = U @ before
    total = series[0] * before[positions].toarray() + series[1] * now[positions].toarray()
    for coefficient in series[2:]:
        if sp.issparse(now) and now.nnz > _SPARSE * graph.num_nodes * n:
            before, now = before.toarray(), now.toarray()
        before, now = now, 2 * (U @ now) - before
        rows = now[positions]
        total += coefficient * (rows.toarray() if sp.issparse(rows) else rows)
    return np.asarray(total)


def _series_of(kernel: GraphKernel) -> Floats | None:
    """Return the Chebyshev coefficients of k(1 - u), at least two, without those that are rounding; None: too many."""
    count = 64
    while count <= _MAX_TERMS:
        points, transform = chebyshev_interpolation(count)
        values = kernel.spectral(1 - points)
        if not np.isfinite(values).all() or not values.any():
            raise InvalidArgumentError(f"{kernel} is out of the range of double precision.")
        series = transform @ values
        sizes = np.abs(series)
        if sizes[-4:].max() < _TOLERANCE * sizes.max():
            tail = np.cumsum(sizes[::-1])[::-1]
            return series[: max(2, int((tail > _TOLERANCE * sizes.max()).sum()))]
        count *= 2
    return None


def node_sample(graph: Graph, num_nodes: int, seed: int) -> NDArray[np.int64]:
    """Return positions (n,), ascending: the nodes first reached from each of four random nodes.

    Args:
        graph: The graph.
        num_nodes: At most how many.
        seed: Of the random nodes.
    """
    keys = random.derive(np.array([seed], np.uint64), np.arange(_SEEDS))
    wanted, taken = min(num_nodes, graph.num_nodes), dict[int, None]()
    indptr, indices = graph.adjacency.indptr, graph.adjacency.indices
    for k, key in enumerate(keys):
        share = -(-wanted * (k + 1) // _SEEDS)
        ring = [int(key % np.uint64(graph.num_nodes))]
        seen = set(ring)
        while ring and len(taken) < share:
            for node in ring:
                if len(taken) < share:
                    taken[node] = None
            following = [int(b) for a in ring for b in indices[indptr[a] : indptr[a + 1]]]
            ring = [b for b in dict.fromkeys(following) if b not in seen]
            seen.update(ring)
    return np.array(sorted(taken), dtype=np.int64)


def _candidates(
    graph: Graph,
    kernel: GraphKernel,
    sample: NDArray[np.int64],
    exact: Floats,
    budget: int,
    p_halt: float,
    seed: int,
) -> Iterator[Candidate]:
    labels = graph.as_nodes(sample)

    def measured(name: str, options: dict[str, Any], draws: Iterable[NodeFeatures]) -> Candidate:
        phis = [feature_matrix(draw, kernel) for draw in draws]
        squares = [np.linalg.norm((phi @ phi.T).toarray() - exact) ** 2 for phi in phis]
        error = float(np.sqrt(np.mean(squares)) / np.linalg.norm(exact))
        return Candidate(name, options, error, float(np.mean([phi.nnz for phi in phis]) / len(sample)))

    degree = 0
    for degree in range(1, graph.num_nodes + 1):
        series = chebyshev_features(graph, labels, degree)
        if len(series.pattern.indices) > budget * len(sample) or degree > budget:
            degree -= 1
            break
    if degree > 0:
        yield measured("chebyshev", {"degree": degree}, [chebyshev_features(graph, labels, degree)])
        yield measured("taylor", {"degree": degree}, [taylor_features(graph, labels, degree)])
    rank = min(budget, graph.num_nodes)
    yield measured("spectrum", {"rank": rank}, [spectral_features(graph, labels, rank)])
    limit = max_p_halt(graph, kernel)
    if limit <= 0:
        return
    chosen = p_halt if p_halt < limit else limit / 2
    for hops in sorted({0, degree // 2, max(degree - 1, 0), degree}):
        for walkers in _WALKERS:
            options: dict[str, Any] = {"num_walkers": walkers, "p_halt": chosen, "exact_hops": hops}
            draws = [sample_walks(graph, labels, seed=seed + k, **options) for k in range(_DRAWS)]
            if np.mean([len(draw.pattern.indices) for draw in draws]) <= budget * len(sample):
                yield measured("walks", options, draws)
                break


def _reason(best: Candidate, measured: list[Candidate], graph: Graph, kernel: GraphKernel, budget: int) -> str:
    others = [candidate for candidate in measured if candidate.features != best.features]
    beside = f", against {others[0].error:.2g} of the next kind ({others[0].features})" if others else ""
    head = f"{best.features} for {kernel} on {graph.num_nodes} nodes: error {best.error:.2g}{beside}."
    degrees = [c.options["degree"] for c in measured if c.features == "chebyshev"]
    reach = f"{degrees[0]} hop{'s' if degrees[0] > 1 else ''}" if degrees else "no hop"
    why = {
        "chebyshev": f"Within the budget of {budget} non-zeros ({reach}) a polynomial is enough.",
        "taylor": f"Within the budget of {budget} non-zeros ({reach}) the power series may be cut.",
        "spectrum": f"The kernel lives on few eigenvectors; {budget} of them leave little out.",
        "rational": f"Its spectrum is the kernel's to a relative error of {best.error:.1g}, and its Cholesky factor "
        f"has {best.nonzeros:.0f} non-zeros a row.",
        "precision": f"Its Cholesky factor has {best.nonzeros:.0f} non-zeros a row; the process through it is exact.",
        "walks": f"The budget of {budget} non-zeros ({reach}) ends before the kernel does: walkers spread it over what "
        "is left out.",
    }
    return f"{head} {why[best.features]}"
