"""Selection of features for a kernel on a graph, by their error on a sample of nodes."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from graphs import random
from graphs.checks import check_counts, check_fits, machine_memory, resolve_seed
from graphs.errors import InvalidArgumentError, MemoryBudgetError
from graphs.features import (
    NodeFeatures,
    chebyshev_features,
    chebyshev_interpolation,
    max_series_degree,
    sample_walks,
    spectral_features,
    taylor_features,
)
from graphs.features import feature_matrix as feature_matrix
from graphs.graph import Graph
from graphs.kernels import GraphKernel
from graphs.kernels.kernel import check_graph_and_kernel, precision_order
from graphs.lengths import as_halting_distribution
from graphs.precisions import RationalField, default_num_terms, resolvent_field
from graphs.walks import max_p_halt

Floats = NDArray[np.float64]

_NUM_CENTERS = 4
"""The number of random nodes whose neighborhoods are the sample."""
_NUM_DRAWS = 4
"""The number of draws over which the error of walks is averaged."""
_WALKERS = (64, 32, 16, 8, 4)
"""The numbers of walkers that are tried until the walks are within the budget."""
MAX_FLOPS = 2e11
"""The largest number of operations of a Cholesky factor, about 20 seconds."""
MAX_FLOPS_PER_NODE = 4e6
"""The largest number of operations per node of a rational approximation."""
_MAX_SPECTRAL_ERROR = 0.01
"""The largest relative error of the spectrum of a rational approximation."""
_TOLERANCE = 1e-10
"""The size, relative to the largest, below which Chebyshev coefficients are dropped."""
_MAX_TERMS = 2000
"""The largest number of terms of a Chebyshev series."""
MAX_EIGENVECTOR_ENTRIES = 2_500_000
"""The largest number of entries of measured eigenvectors. Above it, Lanczos takes more than a minute."""
_MAX_EIGENVECTORS = 2000
"""The largest number of nodes for which all eigenvectors replace the series."""
_MAX_SPARSE_DENSITY = 0.1
"""The largest density of vectors that are stored as a sparse matrix."""


@dataclass(frozen=True)
class Candidate:
    """Features of one kind with their measured error.

    Attributes:
        features: "precision", "rational", "walks", "chebyshev", "taylor" or "spectrum".
        options: Options of the function that computes the features.
        error: The relative error |Phi Phi^T - K| / |K| in the Frobenius norm, over the sampled nodes. For walks it is
            the root mean square over several draws (four in `advise`). It is 0 for "precision", and the largest
            relative error of the spectrum for "rational".
        nonzeros: The mean number of non-zeros per row, of the Cholesky factor for "precision" and "rational".

    Examples:
        >>> import graphs
        >>> print(graphs.Candidate("taylor", {"degree": 6}, 0.03, 25.0))
        taylor(degree=6): error 0.03, 25 non-zeros per row
    """

    features: str
    options: dict[str, Any]
    error: float
    nonzeros: float

    def __str__(self) -> str:
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.features}({options}): error {self.error:.2g}, {self.nonzeros:.0f} non-zeros per row"


@dataclass(frozen=True)
class Advice:
    """The result of `advise`.

    Attributes:
        best: The exact or rational precision if its factor is small, otherwise the candidate with the smallest error
            within the budget. If no candidate is within the budget, it is the one with the fewest non-zeros.
        candidates: All candidates by error; a precision comes first.
        reason: The reason for the choice, as text.

    Examples:
        >>> import graphs
        >>> advice = graphs.advise(graphs.Graph.from_grid((9, 9)), graphs.kernels.Diffusion(1.0))
        >>> advice.best.features in {candidate.features for candidate in advice.candidates}
        True
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
    """Recommend features for a kernel by their error on a sample of nodes.

    An exact sparse precision with a small factor is recommended first, then a rational approximation of one. Otherwise
    deterministic features and walks are compared within a budget of non-zeros. The sample consists of neighborhoods of
    four random nodes, since distant nodes have little covariance. The exact kernel there is a Chebyshev series of k
    applied to vectors. A truncated spectrum is compared if its eigenvectors have at most 2,500,000 entries.

    Args:
        graph: The graph.
        kernel: The kernel.
        max_nonzeros: The budget of non-zeros per row of Phi, on average over the sample.
        num_nodes: The number of nodes in the sample.
        p_halt: The halting probability of the walks. A smaller one is used if the second moment would be infinite.
        seed: The seed of the sample and of the walks.

    Returns:
        The recommended features, and all candidates with their errors.

    Raises:
        InvalidArgumentError: If an argument is out of range. Also if the graph has more than 2,000 nodes and no
            Chebyshev series of 2,000 terms resolves the kernel.
        MemoryBudgetError: If the kernel on the sample does not fit into memory.

    Examples:
        >>> import graphs
        >>> advice = graphs.advise(graphs.Graph.from_grid((9, 9)), graphs.kernels.Matern(nu=2))
        >>> advice.best.features, advice.best.error
        ('precision', 0.0)
    """
    check_graph_and_kernel(graph, kernel)
    check_counts(max_nonzeros=max_nonzeros, num_nodes=num_nodes)
    halting = as_halting_distribution(p_halt)
    if not halting.is_geometric:
        raise InvalidArgumentError(f"p_halt must be a probability, got {p_halt!r}.")
    seed = resolve_seed(seed)
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
    """Return the exact sparse precision, or None if its factor is too large.

    The cost of a factor follows from the pattern. At most 2e11 operations, about 20 seconds, and half of the memory of
    this machine are allowed.

    Args:
        graph: The graph.
        kernel: The kernel.

    Examples:
        >>> import graphs
        >>> from graphs.advice import precision_candidate
        >>> g = graphs.Graph.from_grid((9, 9))
        >>> precision_candidate(g, graphs.kernels.Matern(nu=2)).options
        {'order': 2}
        >>> precision_candidate(g, graphs.kernels.Diffusion()) is None
        True
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
    """Return the rational approximation, or None if it is too expensive.

    m fields need m^3 times the operations and m^2 times the memory of one. Since the result is approximate, at most 4e6
    operations per node are allowed, about two seconds for 10,000 nodes.

    Args:
        graph: The graph.
        kernel: The kernel.

    Examples:
        >>> import graphs
        >>> from graphs.advice import rational_candidate
        >>> rational_candidate(graphs.Graph.from_grid((9, 9)), graphs.kernels.Matern(nu=1.5)).error < 1e-3
        True
    """
    try:
        order, shift, *_ = kernel.resolvent()
        terms = default_num_terms(order, shift)
        analysis = resolvent_field(graph, int(order) + 1).analysis
    except (InvalidArgumentError, MemoryBudgetError):
        return None
    max_flops = min(MAX_FLOPS, MAX_FLOPS_PER_NODE * graph.num_nodes)
    if terms**3 * analysis.flops > max_flops or terms**2 * analysis.num_bytes > machine_memory() / 2:
        return None
    error = RationalField(graph, order, terms).error(shift)
    if error > _MAX_SPECTRAL_ERROR:
        return None
    return Candidate("rational", {"degree": terms}, error, terms**2 * analysis.num_nonzeros / graph.num_nodes)


def sparse_factor_candidate(graph: Graph, kernel: GraphKernel) -> Candidate | None:
    """Return the candidate with a sparse Cholesky factor, exact or rational, or None.

    Args:
        graph: The graph.
        kernel: The kernel.

    Examples:
        >>> import graphs
        >>> from graphs.advice import sparse_factor_candidate
        >>> sparse_factor_candidate(graphs.Graph.from_grid((9, 9)), graphs.kernels.Matern(nu=2)).features
        'precision'
    """
    return precision_candidate(graph, kernel) or rational_candidate(graph, kernel)


def exact_block(graph: Graph, kernel: GraphKernel, positions: NDArray[np.int64]) -> Floats:
    """Return the exact kernel (n, n) between n positions of a graph of any size.

    A Chebyshev series of k(1 - u) is applied to n vectors, which are sparse until a tenth of their entries is filled.
    Its terms decay geometrically for smooth kernels. If 2,000 terms are not enough, all eigenvectors are used, on up to
    2,000 nodes.

    Args:
        graph: The graph.
        kernel: The kernel.
        positions: Positions (n,) of the nodes.

    Raises:
        InvalidArgumentError: If 2,000 terms are not enough on more nodes.

    Examples:
        >>> import numpy as np
        >>> import graphs
        >>> from graphs.advice import exact_block
        >>> g, kernel = graphs.Graph.from_grid((5, 5)), graphs.kernels.Diffusion(1.0)
        >>> np.allclose(exact_block(g, kernel, np.arange(4)), kernel.exact(g)[:4, :4])
        True
    """
    series, U, n = _series_of(kernel), graph.shift_operator, len(positions)
    if series is None:
        if graph.num_nodes > _MAX_EIGENVECTORS:
            raise InvalidArgumentError(
                f"kernel must have a Chebyshev series of at most {_MAX_TERMS} terms, got {kernel}. Use a smoother one."
            )
        return kernel.exact(graph)[np.ix_(positions, positions)]
    columns = np.arange(n)
    before: Any = sp.csr_array((np.ones(n), (positions, columns)), shape=(graph.num_nodes, n))
    now: Any = U @ before
    total = series[0] * before[positions].toarray() + series[1] * now[positions].toarray()
    for coefficient in series[2:]:
        if sp.issparse(now) and now.nnz > _MAX_SPARSE_DENSITY * graph.num_nodes * n:
            before, now = before.toarray(), now.toarray()
        before, now = now, 2 * (U @ now) - before
        rows = now[positions]
        total += coefficient * (rows.toarray() if sp.issparse(rows) else rows)
    return np.asarray(total)


def _series_of(kernel: GraphKernel) -> Floats | None:
    """Return the Chebyshev coefficients of k(1 - u), or None if too many."""
    count = 64
    while count <= _MAX_TERMS:
        points, transform = chebyshev_interpolation(count)
        values = kernel.spectral(1 - points)
        if not np.isfinite(values).all() or not values.any():
            raise InvalidArgumentError(
                f"kernel must stay in the range of double precision, got {kernel}. Use less extreme parameters."
            )
        series = transform @ values
        sizes = np.abs(series)
        if sizes[-4:].max() < _TOLERANCE * sizes.max():
            tail = np.cumsum(sizes[::-1])[::-1]
            return series[: max(2, int((tail > _TOLERANCE * sizes.max()).sum()))]
        count *= 2
    return None


def node_sample(graph: Graph, num_nodes: int, seed: int) -> NDArray[np.int64]:
    """Return ascending positions (n,): the nodes reached first from four random nodes.

    Args:
        graph: The graph.
        num_nodes: The largest number of positions.
        seed: The seed of the random nodes.

    Examples:
        >>> import graphs
        >>> from graphs.advice import node_sample
        >>> len(node_sample(graphs.Graph.from_grid((9, 9)), 16, seed=0))
        16
    """
    keys = random.derive(np.array([seed], np.uint64), np.arange(_NUM_CENTERS))
    wanted, chosen = min(num_nodes, graph.num_nodes), dict[int, None]()
    indptr, indices = graph.adjacency.indptr, graph.adjacency.indices
    for k, key in enumerate(keys):
        target = -(-wanted * (k + 1) // _NUM_CENTERS)
        ring = [int(key % np.uint64(graph.num_nodes))]
        seen = set(ring)
        while ring and len(chosen) < target:
            for node in ring:
                if len(chosen) < target:
                    chosen[node] = None
            following = [int(b) for a in ring for b in indices[indptr[a] : indptr[a + 1]]]
            ring = [b for b in dict.fromkeys(following) if b not in seen]
            seen.update(ring)
    return np.array(sorted(chosen), dtype=np.int64)


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

    degree = _largest_degree(graph, labels, budget)
    for tried in sorted({degree, max_series_degree(graph, budget)} - {0}):  # the sample may be denser than the graph
        yield measured("chebyshev", {"degree": tried}, [chebyshev_features(graph, labels, tried)])
        yield measured("taylor", {"degree": tried}, [taylor_features(graph, labels, tried)])
    rank = min(budget, graph.num_nodes)
    if degree == 0 or rank * graph.num_nodes <= MAX_EIGENVECTOR_ENTRIES:
        yield measured("spectrum", {"rank": rank}, [spectral_features(graph, labels, rank)])
    limit = max_p_halt(graph, kernel)
    if limit <= 0:
        return
    chosen = p_halt if p_halt < limit else limit / 2
    for hops in sorted({0, degree // 2, max(degree - 1, 0), degree}):
        for walkers in _WALKERS:
            options: dict[str, Any] = {"num_walkers": walkers, "p_halt": chosen, "exact_hops": hops}
            draws = [sample_walks(graph, labels, seed=seed + k, **options) for k in range(_NUM_DRAWS)]
            if np.mean([len(draw.pattern.indices) for draw in draws]) <= budget * len(sample):
                yield measured("walks", options, draws)
                break


def _largest_degree(graph: Graph, labels: Any, budget: int) -> int:
    """Return the largest degree of a series on n nodes within a budget of non-zeros per row, at most the budget."""
    most, limit = min(budget, graph.num_nodes), budget * len(labels)

    def num_nonzeros(degree: int) -> int:
        return len(chebyshev_features(graph, labels, degree).pattern.indices)

    too_large = 1
    while too_large <= most and num_nonzeros(too_large) <= limit:
        too_large *= 2
    fits = too_large // 2
    return fits + bisect_right(range(fits + 1, min(too_large - 1, most) + 1), limit, key=num_nonzeros)


def _reason(best: Candidate, measured: list[Candidate], graph: Graph, kernel: GraphKernel, budget: int) -> str:
    others = [candidate for candidate in measured if candidate.features != best.features]
    rival = f", against {others[0].error:.2g} of the next kind ({others[0].features})" if others else ""
    head = f"{best.features} for {kernel} on {graph.num_nodes} nodes: error {best.error:.2g}{rival}."
    degrees = [c.options["degree"] for c in measured if c.features == "chebyshev"]
    reach = f"{min(degrees)} hop{'s' if min(degrees) > 1 else ''}" if degrees else "no hop"
    why = {
        "chebyshev": f"A polynomial is accurate within the budget of {budget} non-zeros ({reach}).",
        "taylor": f"A truncated power series is accurate within the budget of {budget} non-zeros ({reach}).",
        "spectrum": f"{budget} eigenvectors have most of the kernel's variance.",
        "rational": f"The relative error of its spectrum is {best.error:.1g}, and its Cholesky factor has "
        f"{best.nonzeros:.0f} non-zeros per row.",
        "precision": f"It is exact, and its Cholesky factor has {best.nonzeros:.0f} non-zeros per row.",
        "walks": f"The kernel reaches beyond the budget of {budget} non-zeros ({reach}); walks sample the rest.",
    }
    return f"{head} {why[best.features]}"
