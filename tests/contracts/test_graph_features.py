"""The contract of features of nodes: walks, polynomials and eigenvectors, against dense matrices and slow walks.

Walks are unbiased by z-scores over thousands of independent draws (`checks.py`), and equal to walks in plain Python
with their own random generator. Couplings of lengths have the marginal distribution of one length.
"""

from functools import lru_cache, partial
from itertools import permutations

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from checks import assert_mean, assert_mean_of_normals
from scipy.optimize import linear_sum_assignment

import graphs
from graphs import Graph, HopRule, kernels
from graphs import lengths as walk_lengths

KERNEL = kernels.RegularizedLaplacian(2, 0.7)
PERMUTATION = [4, 2, 0, 3, 1]
TUPLES = [[0, 2, 1, 3], [3, 0, 2, 1], [1, 1, 3, 0], [2, 3, 0, 2]]
STEPS = ("independent", "stratified", "repelling")
REPEATS = 6000

sample_walks = partial(graphs.sample_walks, exact_hops=0)  # walkers alone


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


def moving(name, steps):
    """Repelling walkers move uniformly."""
    is_uniform = steps == "repelling" and name in ("weighted", "self-loop", "combinatorial")
    return "uniform" if is_uniform else "weights"


def shift_of(g):
    """Return the dense shift operator U = I - L."""
    W = g.adjacency.toarray()
    degrees = W.sum(axis=1)
    if g.laplacian == "combinatorial":
        return np.eye(len(W)) - (np.diag(degrees) - W) / degrees.max()
    roots = np.sqrt(np.where(degrees > 0, degrees, 1.0))
    return W / roots / roots[:, None] + np.diag(1.0 * (degrees == 0))


def root_of(g, kernel=KERNEL):
    """Return f(U), the symmetric root of the kernel, by the eigendecomposition."""
    u, vectors = np.linalg.eigh(shift_of(g))
    return (vectors * np.sqrt(kernel.spectral(np.clip(1 - u, 0, 2)))) @ vectors.T


@lru_cache
def copies(g, count):
    """Return disjoint copies of g: one draw over them holds as many independent draws over g."""
    many = Graph.from_scipy(sp.block_diag([g.adjacency] * count), self_loops="keep")
    return many.with_laplacian(g.laplacian)


def draws(g, repeats=REPEATS, kernel=KERNEL, **options):
    """Return Phi of independent draws, (repeats, N, N)."""
    size, options = g.num_nodes, {"num_walkers": 4, "p_halt": 0.3, "seed": 0, **options}
    phi = sample_walks(copies(g, repeats), **options).features(kernel).tocoo()
    out = np.zeros((repeats, size, size))
    out[phi.row // size, phi.row % size, phi.col % size] = phi.data
    return out


def check_unbiased(g, phi):
    """E[Phi] = f(U), and Phi Phi^T is unbiased off the diagonal, on entries reached often enough."""
    root = root_of(g)
    often = (phi != 0).sum(0) >= 1000
    assert often.sum() > g.num_nodes
    assert_mean(phi[:, often], root[often])
    products = np.einsum("rij,rkj->rik", phi, phi)
    often = ~np.eye(g.num_nodes, dtype=bool) & ((products != 0).sum(0) >= 1000)
    assert_mean(products[:, often], (root @ root)[often])


UNBIASED = [
    ("star", "independent", "iid", 0),
    ("path", "stratified", "antithetic", 1),
    ("bipartite", "repelling", "sigma", 2),
    ("weighted", "independent", "systematic", 1),
    ("disconnected", "stratified", "learned", 0),
    ("self-loop", "repelling", "iid", 1),
    ("combinatorial", "stratified", "sigma", 0),
    ("weighted", "repelling", "antithetic", 0),
    ("star", "stratified", "systematic", 2),
    ("path", "repelling", "learned", 1),
    ("bipartite", "independent", "antithetic", 2),
    ("disconnected", "repelling", "systematic", 0),
    ("combinatorial", "independent", "learned", 2),
    ("self-loop", "independent", "sigma", 1),
    ("bipartite", "stratified", "iid", 1),
]
"""Each coupling of lengths with each of steps, and each graph and number of exact hops several times."""


def test_each_coupling_is_among_the_cases():
    assert {(steps, lengths) for _, steps, lengths, _ in UNBIASED} == {
        (steps, lengths) for steps in walk_lengths.STEP_COUPLINGS for lengths in walk_lengths.LENGTHS
    }
    assert {name for name, *_ in UNBIASED} == set(GRAPHS)


@pytest.mark.parametrize(
    ("name", "steps", "lengths", "exact_hops"),
    [*UNBIASED[:9], *(pytest.param(*case, marks=pytest.mark.slow) for case in UNBIASED[9:])],
)
def test_walks_are_unbiased(name, steps, lengths, exact_hops):
    options = {"lengths": lengths, "permutation": PERMUTATION, "tuples": TUPLES, "transitions": moving(name, steps)}
    check_unbiased(GRAPHS[name], draws(GRAPHS[name], step_coupling=steps, exact_hops=exact_hops, **options))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("disconnected", {"exact_hops": HopRule([1, 2, 4])}),
        ("self-loop", {"exact_hops": HopRule([1, 2, 4])}),
        ("weighted", {"transitions": "uniform", "step_coupling": "stratified"}),
        ("star", {"p_halt": np.concatenate([np.ones(3), 0.5 ** np.arange(1, 60)])}),
        ("star", {"p_halt": graphs.optimal_survival(KERNEL, 3.0)}),
    ],
)
def test_rules_transitions_and_survival_are_unbiased(name, options):
    check_unbiased(GRAPHS[name], draws(GRAPHS[name], **options))


# --- the same walks in plain Python --------------------------------------------------------------

MASK = 2**64 - 1


def mixed(state):
    """Return the output of splitmix64 for a state."""
    state = (state + 0x9E3779B97F4A7C15) & MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def derived(key, *path):
    for index in path:
        key = mixed(key ^ mixed(index))
    return key


def unit(bits):
    return ((bits >> 12) + 0.5) * 2.0**-52


def slow_walks(g, node, settings, transitions):
    """Return the walks of one start node: dict (position, hop) -> load."""
    lengths_key, key = (derived(settings.seed, role, node) for role in (1, 2))
    keys, m = np.array([[lengths_key]], dtype=np.uint64), settings.num_walkers
    lengths = settings.length_coupling.draw(keys, m, settings.halting)[0]
    U, W = shift_of(g), g.adjacency.toarray()
    rows = {a: np.flatnonzero(U[a]).tolist() for a in range(g.num_nodes)}

    def uniform(*path):
        return unit(derived(key, *path))

    def stream(walker, step):
        return unit(mixed((derived(key, walker) + step * 0x9E3779B97F4A7C15) & MASK))

    def probability(a, b):
        return W[a, b] / W[a].sum() if W[a].any() else 1.0

    def choose(a, x, turn=0.0):
        if transitions == "uniform" or np.ptp(W[W > 0]) == 0:
            place = min(int(x * len(rows[a])), len(rows[a]) - 1)
            return rows[a][(place + int(turn * len(rows[a]))) % len(rows[a])]
        running, x = 0.0, (x + turn) % 1.0
        for b in rows[a]:
            running += probability(a, b)
            if x < running:
                return b
        return rows[a][-1]

    def repel(a, count, step):
        drawn, out = count, []
        for block in range(0, count, len(rows[a])):
            size, taken = min(len(rows[a]), count - block), []
            for j in range(len(rows[a]) - size, len(rows[a])):
                place = int(uniform(step, a, drawn) * (j + 1))
                taken.append(j if place in taken else place)
                drawn += 1
            out += [rows[a][place] for place in taken]
        return out

    position, load, visits = [node] * m, [1 / m] * m, {(node, 0): 1.0}
    for step in range(max(lengths)):
        alive = [w for w in range(m) if lengths[w] > step]
        moves = {}
        for a in sorted({position[w] for w in alive}):
            group = [w for w in alive if position[w] == a]
            if settings.step_coupling == "independent":
                moves |= {w: choose(a, stream(w, step)) for w in group}
                continue
            first = 2 if settings.step_coupling == "stratified" else 0
            for q in range(len(group) - 1, 0, -1):
                other = int(uniform(step, a, first + q) * (q + 1))
                group[q], group[other] = group[other], group[q]
            if settings.step_coupling == "repelling":
                moves.update(zip(group, repel(a, len(group), step), strict=True))
                continue
            for q, w in enumerate(group):
                moves[w] = choose(a, (q + uniform(step, a, 0)) / len(group), uniform(step, a, 1))
        for w in alive:
            a, b = position[w], moves[w]
            load[w] *= U[a, b] / (1 / len(rows[a]) if transitions == "uniform" else probability(a, b))
            position[w] = b
            visits[b, step + 1] = visits.get((b, step + 1), 0.0) + load[w] / settings.halting.survival(step + 1)[-1]
    return visits


@pytest.mark.parametrize("name", ["star", "bipartite", "weighted", "disconnected"])
@pytest.mark.parametrize("steps", STEPS)
def test_walks_match_walks_in_plain_python(name, steps):
    assert mixed(0) == 0xE220A8397B1DCDAF  # the known first output of the generator
    g, transitions = GRAPHS[name], moving(name, steps)
    drawn = sample_walks(g, num_walkers=6, p_halt=0.2, step_coupling=steps, seed=11, transitions=transitions)
    table, (indptr, indices, _) = drawn.loads.toarray(), drawn.pattern
    for row in range(g.num_nodes):
        visits = slow_walks(g, row, drawn.settings, transitions)
        entries = range(indptr[row], indptr[row + 1])
        ours = {(int(indices[e]), hop): table[e, hop] for e in entries for hop in np.flatnonzero(table[e])}
        assert ours.keys() == visits.keys()
        for place, load in visits.items():
            assert ours[place] == pytest.approx(load, rel=1e-12)


@pytest.mark.parametrize(
    ("steps", "exact_hops"), [("stratified", 0), ("repelling", 2), ("independent", HopRule([1, 6, 30]))]
)
def test_threads_chunks_and_subsets_do_not_change_walks(steps, exact_hops):
    """One thread takes chunks of 500 start nodes, eight take chunks of 64."""
    g = weighted(nx.gnm_random_graph(2000, 6000, seed=0), 1)
    options = {"step_coupling": steps, "exact_hops": exact_hops, "transitions": moving("weighted", steps)}
    full, other = (sample_walks(g, seed=5, num_threads=count, **options) for count in (1, 8))
    for name in ("indptr", "indices", "data"):  # bit for bit
        np.testing.assert_array_equal(getattr(full.loads, name), getattr(other.loads, name))
    np.testing.assert_array_equal(full.pattern.indices, other.pattern.indices)
    assert full.seed == 5
    assert not np.array_equal(full.loads.data[:99], sample_walks(g, seed=6, **options).loads.data[:99])
    rows = full.features(KERNEL)[[7, 3, 1999, 3]].toarray()
    for part in (full.at([7, 3, 1999, 3]), sample_walks(g, [7, 3, 1999, 3], seed=5, **options)):
        np.testing.assert_array_equal(part.features(KERNEL).toarray(), rows)


def test_long_walks_use_wider_integers():
    """Hops beyond 255 in some chunks, and more than 255 visits of one node."""
    survival = np.concatenate([np.ones(3), np.full(400, 1e-3)])
    some = sample_walks(Graph.from_networkx(nx.cycle_graph(4000)), num_walkers=2, p_halt=survival, seed=0)
    assert some.max_length == 402
    drawn = sample_walks(Graph.from_edges([(0, 1)]), num_walkers=600, p_halt=survival, lengths="systematic", seed=0)
    assert drawn.loads.toarray()[:, 1].max() == pytest.approx(1.0)


@pytest.mark.parametrize("options", [{}, {"exact_hops": 2}, {"transitions": "uniform"}])
def test_memory_of_walks_is_foreseen(options):
    g = weighted(nx.random_regular_graph(3, 2000, seed=0), 0)
    drawn = sample_walks(g, seed=0, **options)
    held = (drawn.pattern.indices, drawn.visits.hop_counts, drawn.visits.hops, drawn.visits.loads)
    taken = sum(array.nbytes for array in held)
    sample_walks(g, seed=0, max_memory=3 * taken, **options)
    with pytest.raises(MemoryError, match="max_memory allows"):
        sample_walks(g, seed=0, max_memory=0.9 * taken, **options)


# --- exact hops ----------------------------------------------------------------------------------

GRID, HUBS = Graph.from_grid((15, 15)), Graph.from_networkx(nx.barabasi_albert_graph(300, 2, seed=0))
SMOOTH = kernels.Diffusion(2.0)


def test_rule_takes_the_most_allowed_hops():
    rule = HopRule(np.array([1, 3, -1, 9]))
    for G, expected in (
        (nx.path_graph(20), [3] * 20),  # at most 7 nodes lie within three hops
        (nx.star_graph(5), [3] * 6),
        (nx.star_graph(12), [0] + [1] * 12),
    ):
        assert graphs.sample_walks(Graph.from_networkx(G), exact_hops=rule, seed=0).exact_hops.tolist() == expected
    distances = dict(nx.all_pairs_shortest_path_length(nx.from_scipy_sparse_array(HUBS.adjacency)))
    within = np.array([[sum(d <= h for d in distances[i].values()) for h in range(4)] for i in range(300)])
    limits = [1, 8, 16, 30]
    drawn = graphs.sample_walks(HUBS, exact_hops=HopRule(np.array(limits)), seed=3)
    fits = within <= limits
    fits[:, 0] = True
    np.testing.assert_array_equal(drawn.exact_hops, 3 - fits[:, ::-1].argmax(1))


@pytest.mark.parametrize("max_nonzeros", [20, pytest.param(90, marks=pytest.mark.slow)])
@pytest.mark.parametrize("g", [GRID, HUBS], ids=["grid", "hubs"])
def test_chosen_hops_keep_the_budget_and_lower_the_variance(g, max_nonzeros):
    def measured(rule):
        phis = [graphs.sample_walks(g, num_walkers=4, seed=s, exact_hops=rule).features(SMOOTH) for s in range(30)]
        dense = np.stack([phi.toarray() for phi in phis])
        return dense.var(0, ddof=1).sum(), np.mean([phi.nnz for phi in phis]) / g.num_nodes

    options = {"num_walkers": 4, "max_nonzeros": max_nonzeros, "kernel": SMOOTH}
    rule = graphs.sample_walks(g, [], seed=0, **options).settings.exact_hops
    (none, before), (auto, after) = measured(0), measured(rule)
    assert before <= after <= max_nonzeros or (before > max_nonzeros and after == before)
    assert after == before or auto < 0.95 * none
    assert max_nonzeros == 20 or after > before
    part = graphs.sample_walks(g, [5, 17], seed=0, **options)
    full = graphs.sample_walks(g, seed=0, **options)
    np.testing.assert_array_equal(part.exact_hops, full.exact_hops[[5, 17]])


@pytest.mark.slow
def test_useless_and_expensive_hops_are_not_taken():
    """On a cycle visits, not non-zeros, grow with the hops; in small components a few hops know everything."""
    drawn = graphs.sample_walks(Graph.from_networkx(nx.cycle_graph(2000)), seed=0)
    assert len(drawn.visits.hops) / 2000 <= 3 * 16 * 9
    parts = Graph.from_networkx(nx.disjoint_union_all([nx.gnm_random_graph(30, 60, seed=s) for s in range(20)]))
    assert 0 < graphs.sample_walks(parts, seed=0).exact_hops.max() < 12


def test_no_hops_are_taken_beyond_the_budget():
    over = graphs.sample_walks(HUBS, num_walkers=64, max_nonzeros=10, seed=0)
    assert over.settings.exact_hops == 0


def test_large_hubs_are_pushed():
    """The order [1, ..., n, 0] of a hub's neighbors made a quadratic sort."""
    star = Graph.from_networkx(nx.star_graph(20_000)).with_laplacian("combinatorial")
    drawn = sample_walks(star, [10_000], num_walkers=1, exact_hops=2, seed=0)
    np.testing.assert_array_equal(drawn.pattern.indices, np.arange(20_001))


# --- lengths of walks ----------------------------------------------------------------------------

LENGTHS = {
    "iid": walk_lengths.IID(),
    "antithetic": walk_lengths.Antithetic(),
    "sigma": walk_lengths.Sigma(np.array(PERMUTATION)),
    "systematic": walk_lengths.Systematic(),
    "learned": walk_lengths.Tuples(np.array(TUPLES)),
}


def reached(name, halting, walkers=4, depth=8, count=8000):
    """Return 1[length >= l] for each start node and walker, (count, walkers, depth)."""
    keys = np.random.default_rng(3).integers(0, 2**63, count).astype(np.uint64)[:, None]
    return LENGTHS[name].draw(keys, walkers, halting)[:, :, None] >= np.arange(1, depth + 1)


@pytest.mark.parametrize("survival", [0.1, 0.5, 0.8, [1.0, 0.9, 0.9, 0.3, 0.05]], ids=str)
@pytest.mark.parametrize("name", walk_lengths.LENGTHS)
def test_each_length_has_the_halting_distribution(name, survival):
    expected = np.append(survival[1:], np.zeros(4)) if isinstance(survival, list) else (1 - survival) ** np.arange(1, 9)
    often = (expected == 0) | (expected * 8000 > 1000)  # rarer events are not normal
    assert type(LENGTHS[name]) is walk_lengths.LENGTHS[name]
    assert_mean(reached(name, walk_lengths.HaltingDistribution(survival))[:, :, often], expected[often])


def test_couplings_keep_their_promises():
    halting = walk_lengths.HaltingDistribution(0.3)
    independent = 0.7 ** (2 * np.arange(1, 5))
    assert_mean(reached("iid", halting)[:, 0, :4] * reached("iid", halting)[:, 1, :4], independent)
    for name, partner in (("antithetic", 1), ("systematic", 2)):
        assert reached(name, halting)[:, [0, partner], 1].all(axis=1).mean() < independent[1] - 0.03
    lengths = reached("antithetic", halting, depth=60).sum(2)
    assert (lengths[:, 0] != lengths[:, 1]).all()
    keys = np.random.default_rng(4).integers(0, 2**63, 500).astype(np.uint64)[:, None]
    for name, count in (("sigma", 5), ("learned", 4)):  # with long walks, lengths tell the quantiles
        long = LENGTHS[name].draw(keys, 4, walk_lengths.HaltingDistribution(1e-5))
        bins = np.floor(count * (1 - (1 - 1e-5) ** (long + 0.5))).astype(int)
        if name == "sigma":
            assert np.mean(bins[:, 1::2] == np.array(PERMUTATION)[bins[:, 0::2]]) > 0.99
        else:
            assert np.mean([row in TUPLES for row in bins.tolist()]) > 0.99
    starts = reached("systematic", halting)[:, 0, :4]
    assert_mean(starts[0::2] * starts[1::2], independent)
    spread = np.sort(reached("systematic", halting, walkers=16, depth=200).sum(2), axis=1)
    edges = np.floor(np.log(1 - np.arange(16) / 16 + 1e-12) / np.log(0.7))
    assert (spread >= edges).all()
    assert (spread[:, :-1] <= edges[1:]).all()


def test_infinite_and_large_variances_warn():
    kernel, g = kernels.RegularizedLaplacian(2, np.sqrt(10)), GRAPHS["star"]
    assert graphs.max_p_halt(g, kernel) == pytest.approx(1 - (10 / 11) ** 2)
    assert graphs.max_p_halt(g, kernels.Diffusion(9.0)) == 1.0
    with pytest.warns(graphs.InfiniteVarianceWarning, match="p_halt below 0.174"):
        sample_walks(g, p_halt=0.3, seed=0).features(kernel)
    with pytest.warns(graphs.LargeVarianceWarning, match="relative variance"):
        sample_walks(g, p_halt=0.17, num_walkers=2, seed=0).features(kernel)
    sample_walks(g, p_halt=0.05, seed=0).features(kernel)  # a warning would be an error here
    with pytest.warns(graphs.LargeVarianceWarning, match="variance of inf"):
        sample_walks(g, seed=0).features(kernels.Diffusion(600.0))
    sample_walks(g, p_halt=[1, 0.9, 0.8, 0.7], num_walkers=64, seed=0).features(kernels.InverseCosine())


def test_relative_variance_matches_simulated_walks():
    kernel = kernels.Diffusion(5.0)
    lengths = np.random.default_rng(0).geometric(0.1, 200_000) - 1
    totals = np.cumsum(kernel.modulation(600) / 0.9 ** np.arange(601))[np.minimum(lengths, 600)]
    assert_mean(totals, 1.0)
    assert_mean((totals - 1) ** 2, graphs.relative_variance(kernel, 0.1))


def test_uniform_moves_grow_with_the_spectral_radius():
    """Squared loads of uniform moves grow by the radius of k_a U_ab^2, and f_l^2 like the radius of the series."""
    g, kernel = weighted(nx.gnm_random_graph(30, 120, seed=2), 0), kernels.RegularizedLaplacian(2, 2.0)
    U = shift_of(g)
    growth = np.abs(np.linalg.eigvals((U > 0).sum(1)[:, None] * U**2)).max()
    expected = 1 - growth * 0.8**2  # the series of (1 + 4 (1 - u))^-1 converges for |u| < 5 / 4
    assert graphs.max_p_halt(g, kernel, transitions="uniform") == pytest.approx(expected, rel=1e-6)


def test_auto_takes_the_largest_halting_probability():
    g, kernel = GRAPHS["star"], kernels.RegularizedLaplacian(2, 3.0)
    chosen = graphs.choose_p_halt(g, kernel, 16)
    assert 1e-3 < chosen <= graphs.max_p_halt(g, kernel) / 2
    assert graphs.relative_variance(kernel, chosen) <= 1.6
    assert chosen > graphs.max_p_halt(g, kernel) / 2.01 or graphs.relative_variance(kernel, 1.01 * chosen) > 1.6
    assert graphs.choose_p_halt(g, kernels.Diffusion(0.1)) == 0.5
    assert sample_walks(g, p_halt="auto", kernel=kernel, seed=0).settings.halting.p_halt == chosen
    long = kernels.Diffusion(12.0)
    assert graphs.choose_p_halt(g, long, 64, exact_hops=40) > 2 * graphs.choose_p_halt(g, long, 64)


@pytest.mark.parametrize("kernel", [KERNEL, kernels.Diffusion(4.0), kernels.Matern(1.5, 2.0)], ids=str)
def test_optimal_survival_has_the_least_variance(kernel):
    survival = graphs.optimal_survival(kernel, 4.0)
    assert survival[1:].sum() == pytest.approx(4.0, rel=1e-6)
    best, rng = graphs.relative_variance(kernel, survival), np.random.default_rng(0)
    assert best < 0.95 * graphs.relative_variance(kernel, 0.2)
    for _ in range(100):  # no other distribution of that mean length is better
        other = np.minimum.accumulate(survival[1:] * np.exp(0.3 * rng.standard_normal(len(survival) - 1)))
        other *= 4.0 / other.sum()
        if other[0] <= 1:
            assert graphs.relative_variance(kernel, np.append(1.0, other)) > best - 1e-6


# --- all kinds of features -----------------------------------------------------------------------

THREE = [kernels.Diffusion(2.5), kernels.RegularizedLaplacian(2, 0.8), kernels.Matern(1.5, 2.0)]
LABELED = weighted(nx.relabel_nodes(nx.gnm_random_graph(60, 130, seed=0), "n{}".format), 0)  # three components
MAKERS = {
    "taylor": partial(graphs.taylor_features, degree=4),
    "chebyshev": partial(graphs.chebyshev_features, degree=4),
    "spectrum": partial(graphs.spectral_features, rank=8),
    "walks": partial(graphs.sample_walks, seed=0),
}
EACH = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def test_each_kind_of_features_is_tested():
    (role,) = graphs.Walks.__bases__
    assert {type(make(LABELED)) for make in MAKERS.values()} == set(role.__subclasses__())


@EACH
def test_values_have_an_adjoint_and_kernels_weights(make):
    made, rng = make(LABELED), np.random.default_rng(0)
    w, v = rng.standard_normal(made.max_length + 1), rng.standard_normal(len(made.pattern.indices))
    assert made.values(w) @ v == pytest.approx(made.values_adjoint(v) @ w)
    assert made.at([]).features(THREE[0]).shape[0] == 0
    for kernel in THREE:
        np.testing.assert_array_equal(made.features(kernel).data, made.values(made.weights(kernel)))
        up, down = (kernel.with_values(kernel.values * (1 + h)) for h in (1e-6, -1e-6))
        numeric = (made.weights(up) - made.weights(down)) / (2e-6 * kernel.values[0])
        np.testing.assert_allclose(made.weights_jacobian(kernel)[:, 0], numeric, rtol=1e-5, atol=1e-9)
    labels = ["n7", "n59", "n0", "n7"]
    rows = made.features(THREE[0]).toarray()[LABELED.index(labels)]
    for part in (made.at(labels), make(LABELED, labels)):
        np.testing.assert_allclose(part.features(THREE[0]).toarray(), rows, atol=1e-13)


@pytest.mark.parametrize("kernel", THREE, ids=str)
def test_series_are_polynomials_within_their_error_bound(kernel):
    U, exact = shift_of(LABELED), root_of(LABELED, kernel)
    bounds = {}
    for name, make in {"taylor": graphs.taylor_features, "chebyshev": graphs.chebyshev_features}.items():
        for degree in (0, 1, 6, 30):
            made = make(LABELED, degree=degree)
            phi, powers = made.features(kernel).toarray(), [np.eye(60), U]
            while len(powers) <= degree:
                powers.append(U @ powers[-1] if name == "taylor" else 2 * U @ powers[-1] - powers[-2])
            weights = made.weights(kernel)
            expected = sum(w * power for w, power in zip(weights, powers, strict=False))
            np.testing.assert_allclose(phi, expected, atol=1e-12)
            bounds[name, degree], error = made.error_bound(kernel), np.linalg.norm(phi - exact, 2)
            assert 1e-4 * bounds[name, degree] < error <= bounds[name, degree] + 1e-12
            right = np.random.default_rng(0).standard_normal((60, 3))
            np.testing.assert_allclose(make(LABELED, [], degree).matmul(kernel, right), phi @ right, atol=1e-12)
    assert bounds["chebyshev", 30] < 1e-6
    assert bounds["chebyshev", 6] < 0.5 * bounds["taylor", 6]


def test_cancelled_terms_are_not_stored():
    """On a ring T_l(U) has the entry 1/2 at the two nodes l steps away, and rounding errors between them."""
    ring = Graph.from_networkx(nx.cycle_graph(300))
    made = graphs.chebyshev_features(ring, degree=100)
    assert made.table.nnz == 300 * 201
    np.testing.assert_allclose(made.table.data, np.where(made.table.indices == 0, 1.0, 0.5), atol=1e-12)
    assert [graphs.max_series_degree(ring, most) for most in (21, 20, 1)] == [10, 9, 1]
    signed = kernels.Modulated((1.0, -2.0))
    for make in (graphs.taylor_features, graphs.chebyshev_features):
        made = make(GRAPHS["weighted"], degree=1)
        expected = np.eye(4) - 2 * shift_of(GRAPHS["weighted"])
        np.testing.assert_allclose(made.features(signed).toarray(), expected, atol=1e-12)
        assert made.error_bound(signed) < 1e-12


@pytest.mark.parametrize("rank", [5, 12, 60])
def test_spectral_features_have_the_largest_eigenvalues(rank):
    u, vectors = np.linalg.eigh(shift_of(LABELED))
    u, vectors = u[::-1][:rank], vectors[:, ::-1][:, :rank]
    made = graphs.spectral_features(LABELED, rank=rank)
    np.testing.assert_allclose(made.eigenvalues, u, atol=1e-10)
    for kernel in THREE:
        phi, exact = made.features(kernel), root_of(LABELED, kernel)
        best = (vectors * kernel.spectral(np.maximum(1 - u, 0))) @ vectors.T
        np.testing.assert_allclose((phi @ phi.T).toarray(), best, atol=1e-9)
        assert np.linalg.norm(exact @ exact - best, 2) <= made.error_bound(kernel) ** 2 + 1e-9


@pytest.mark.parametrize(
    ("G", "rank"),
    [
        (nx.grid_2d_graph(20, 20), 30),
        pytest.param(nx.kneser_graph(10, 3), 20, marks=pytest.mark.slow),  # one Lanczos run misses repeated eigenvalues
        (nx.hypercube_graph(9), 60),
        (nx.disjoint_union_all([nx.path_graph(4)] * 80), 70),  # more components than the rank
    ],
    ids=["grid", "kneser", "hypercube", "paths"],
)
def test_repeated_eigenvalues_are_found(G, rank):
    g = Graph.from_networkx(G)
    made = graphs.spectral_features(g, rank=rank)
    U, vectors = shift_of(g), made.eigenvectors
    np.testing.assert_allclose(made.eigenvalues, np.linalg.eigvalsh(U)[::-1][:rank], atol=1e-8)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(rank), atol=1e-9)
    np.testing.assert_allclose(U @ vectors, vectors * made.eigenvalues, atol=1e-7)


def test_close_eigenvalues_of_a_ring_are_found():
    """Pairs 1e-5 apart; the analytic ones are cos(2 pi k / N), each but the first twice."""
    g = Graph.from_grid((3000,), periodic=True)
    exact = np.sort(np.cos(2 * np.pi * np.arange(3000) / 3000))[::-1][:41]
    np.testing.assert_allclose(graphs.spectral_features(g, [], 41).eigenvalues, exact, atol=1e-13)


def test_spectral_density_matches_eigenvalues():
    g = Graph.from_grid((30, 40))
    eigenvalues, at = 1 - np.linalg.eigvalsh(shift_of(g)), (np.arange(20_000) + 0.5) / 10_000
    density = graphs.spectral_density(g, at, num_probes=64)
    assert density.mean() * 2 == pytest.approx(1, abs=0.002)
    for limit in (0.3, 0.7, 1.05, 1.6):
        assert density[at <= limit].sum() / 10_000 == pytest.approx((eigenvalues <= limit).mean(), abs=0.015)


# --- couplings of quantiles ----------------------------------------------------------------------

SMALL = Graph.from_networkx(nx.gnp_random_graph(24, 0.2, seed=1)).largest_component()
LONG, ALTERNATING = kernels.Diffusion(3.0), kernels.RandomWalk(3, 2.0)
BOTH = pytest.mark.parametrize("kernel", [LONG, ALTERNATING], ids=["diffusion", "alternating"])


def averaged(kernel, count, p_halt=0.1):
    """Return g_q(U), (n, N, N): a length reaches l if its uniform in (q / n, (q + 1) / n) exceeds 1 - S_l."""
    U, f = shift_of(SMALL), kernel.modulation(400)
    survival = (1 - p_halt) ** np.arange(401)
    upper = np.arange(1, count + 1)[:, None] / count
    shares = count * np.clip(upper - (1 - survival), 0, 1 / count) / survival * f
    out, power = np.zeros((count, *U.shape)), np.eye(len(U))
    for column in shares.T:
        out += column[:, None, None] * power
        power = power @ U
    return out


def pair_variance(G, K, sigma):
    """Return the relative variance by its definition, a double sum over quantiles of both nodes."""
    v = (G + G[list(sigma)]) / 2
    square = sum(np.sum((v[q] @ v[r]) ** 2) for q in range(len(v)) for r in range(len(v))) / len(v) ** 2
    return square / np.sum(K**2) - 1


@BOTH
def test_costs_and_matchings_match_their_definitions(kernel):
    G, root, size = averaged(kernel, 5), root_of(SMALL, kernel), SMALL.num_nodes
    K, every = root @ root, list(permutations(range(5)))
    costs = np.array([[np.trace(a @ K @ b) for b in G] for a in G]) / size
    np.testing.assert_allclose(graphs.quantile_costs(SMALL, kernel, 0.1, 5), costs, rtol=1e-5)
    quartic = np.array([[np.mean(((a + b) @ (a + b)) ** 2) for b in G] for a in G])
    np.testing.assert_allclose(graphs.quartic_costs(SMALL, kernel, 0.1, 5), quartic, rtol=1e-5)
    variances = {sigma: pair_variance(G, K, sigma) for sigma in every}
    assert graphs.matching_variance(SMALL, kernel, every[13]) == pytest.approx(variances[every[13]], rel=1e-5)
    for objective, values in (
        ("linear", {sigma: costs[np.arange(5), list(sigma)].sum() for sigma in every}),
        ("quartic", {sigma: quartic[np.arange(5), list(sigma)].sum() for sigma in every}),
        ("quadratic", variances),
    ):
        found = graphs.match_quantiles(SMALL, kernel, 0.1, 5, objective=objective)
        least, most = min(values.values()), max(values.values())
        assert values[tuple(found.tolist())] <= least + 1e-6 * (most - least)
    for kind in ("positive", "gaussian", None):
        near = graphs.match_quantiles(SMALL, kernel, 0.1, 5, objective="diagonal", projections=kind)
        best, worst = min(variances.values()), variances[0, 1, 2, 3, 4]
        assert variances[tuple(near.tolist())] < best + 0.1 * (worst - best)


@pytest.mark.slow
def test_solvers_of_assignments_agree():
    costs = graphs.quantile_costs(SMALL, ALTERNATING, 0.1, 12)
    one, other = (graphs.match_quantiles(SMALL, ALTERNATING, 0.1, 12, solver=s) for s in ("hungarian", "pot"))
    assert costs[np.arange(12), other].sum() == pytest.approx(costs[np.arange(12), one].sum(), rel=1e-9)


@pytest.mark.parametrize("num_walkers", [2, 3, 8])
def test_tuples_have_uniform_columns_and_a_cost_near_the_bound(num_walkers):
    """sum_(a != b) <z_a, z_b> = |sum z|^2 - sum |z|^2, and |sum z|^2 is at least that of the means."""
    n, m = 16, num_walkers
    table = graphs.couple_quantiles(SMALL, LONG, 0.1, m, n)
    assert table.shape == (64, m)
    for column in table.T:
        np.testing.assert_array_equal(np.bincount(column), [4] * n)
    costs = graphs.quantile_costs(SMALL, LONG, 0.1, n)
    learned = np.mean([costs[row[a], row[b]] for row in table for a in range(m) for b in range(a)])
    bound = (m * costs.mean() - np.trace(costs) / n) / (m - 1)
    assert bound <= learned + 1e-12
    if m == 2:
        assert learned == pytest.approx(costs[np.arange(n), np.arange(n)[::-1]].mean(), rel=2e-3)
    else:
        assert learned < bound + 0.15 * (costs.mean() - bound)


@pytest.mark.slow
def test_costs_of_large_graphs_are_estimated():
    """Copies of a graph beyond 1,500 nodes have its spectral measure, which Lanczos' method estimates."""
    exact = graphs.quantile_costs(SMALL, LONG, 0.3, 4)
    many = copies(SMALL, 1500 // SMALL.num_nodes + 1)
    np.testing.assert_allclose(graphs.quantile_costs(many, LONG, 0.3, 4), exact, rtol=0.08)
    np.testing.assert_allclose(graphs.walk_costs(many, LONG, 0.3, 4, seed=0), exact, rtol=0.2)


@pytest.mark.slow
def test_costs_by_walks_are_unbiased():
    options = {"num_nodes": SMALL.num_nodes, "num_walkers": 4, "exact_hops": 0}
    drawn = np.stack([graphs.walk_costs(SMALL, LONG, 0.3, 4, seed=s, **options) for s in range(200)])
    assert_mean_of_normals(drawn, graphs.quantile_costs(SMALL, LONG, 0.3, 4))


# --- PageRank ------------------------------------------------------------------------------------

HALT = 0.2


@lru_cache
def ranked(is_weighted):
    """Return a graph with two nodes without neighbors, and its ranks by networkx."""
    G, rng = nx.gnm_random_graph(12, 20, seed=1), np.random.default_rng(0)
    G.add_nodes_from([12, 13])
    for a, b in G.edges:
        G[a][b]["weight"] = rng.uniform(0.3, 3) if is_weighted else 1.0
    ranks = nx.pagerank(G, alpha=1 - HALT, tol=1e-14, max_iter=1000)
    return Graph.from_networkx(G), np.array([ranks[k] for k in G])


@pytest.mark.parametrize(
    ("is_weighted", "steps", "lengths"),
    [
        (True, "independent", "iid"),
        (False, "repelling", "antithetic"),
        (True, "stratified", "sigma"),
        (False, "stratified", "systematic"),
    ],
)
def test_pagerank_matches_networkx(is_weighted, steps, lengths):
    g, exact = ranked(is_weighted)
    permutation = graphs.match_pagerank_quantiles(g, HALT, 10)
    options = {"num_walkers": 4, "step_coupling": steps, "lengths": lengths, "permutation": permutation, "seed": 0}
    ranks = 1000 * graphs.pagerank(copies(g, 1000), HALT, **options).reshape(1000, -1)
    np.testing.assert_allclose(ranks.sum(1), 1)
    np.testing.assert_allclose(ranks[:, 12:], np.tile(exact[12:], (1000, 1)))
    assert_mean(ranks[:, :12], exact[:12])


def test_pagerank_costs_match_dense_matrices():
    g, _ = ranked(True)
    W = g.adjacency.toarray()
    P = np.where(W.sum(1, keepdims=True) > 0, W / np.maximum(W.sum(1, keepdims=True), 1e-300), 1 / 14)
    u = (np.arange(8 * 4000) + 0.5) / (8 * 4000)
    drawn = (np.log(1 - u) / np.log(1 - HALT)).astype(int).reshape(8, -1)
    powers = [np.linalg.matrix_power(P, k) for k in range(121)]
    parts = [sum(np.mean(row == k) * powers[k] for k in range(121)) for row in drawn]
    cost = np.array([[np.trace(a @ b.T) for b in parts] for a in parts])
    best = cost[linear_sum_assignment(cost)].sum()
    for many, most in ((g, 1.001), (copies(g, 110), 1.1)):  # of 1,540 nodes: estimated by random vectors
        assert cost[np.arange(8), graphs.match_pagerank_quantiles(many, HALT, 8)].sum() <= most * best
    np.testing.assert_allclose(graphs.pagerank(Graph.from_edges([], nodes=[0, 1, 2]), seed=0), 1 / 3)


def test_pagerank_is_repeatable_with_any_threads():
    g, options = Graph.from_grid((130, 130)), {"lengths": "antithetic", "seed": 3}  # several chunks
    one = graphs.pagerank(g, num_threads=1, **options)
    np.testing.assert_array_equal(one, graphs.pagerank(g, num_threads=8, **options))


@pytest.mark.slow
def test_large_budgets_are_accepted():
    ring = Graph.from_networkx(nx.cycle_graph(16))
    assert graphs.max_series_degree(ring, 10**12) == 8
    assert graphs.advise(ring, KERNEL, 10**6, num_nodes=10**12).best.error < 1e-6
    assert graphs.sample_walks(ring, num_walkers=2, max_nonzeros=10**15, seed=0).pattern.shape == (16, 16)
