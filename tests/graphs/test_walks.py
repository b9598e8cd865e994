from functools import partial

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from checks import assert_mean, fails

import graphs
from graphs import Graph, HopRule, kernels, random
from graphs.couplings import DIRECTIONS, LENGTHS
from graphs.walks import compiled, drawing, moves

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


def moving(name, directions):
    """Repelling walkers move uniformly."""
    return "uniform" if directions == "repelling" and name in ("weighted", "self-loop", "combinatorial") else "weights"


def exact_features(g, kernel):
    """f(U) through the eigendecomposition, which shares nothing with the walks."""
    u = 1 - g.spectrum.eigenvalues
    root = np.sqrt(kernel.spectral(1 - u))
    return (g.spectrum.eigenvectors * root) @ g.spectrum.eigenvectors.T


def copies(g, count):
    """Return `count` disjoint copies of g: one draw over them holds as many independent draws over g."""
    many = Graph.from_scipy(sp.block_diag([g.adjacency] * count), self_loops="keep")
    return many.with_laplacian(g.laplacian)


def draws(g, walkers=4, halt=0.3, **options):
    """Return Phi of REPEATS independent draws, (REPEATS, N, N)."""
    many, size = copies(g, REPEATS), g.num_nodes
    phi = sample_walks(many, num_walkers=walkers, halt=halt, seed=0, **options).features(KERNEL).tocoo()
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


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("directions", DIRECTIONS)
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("exact_hops", [0, 1, 2])
def test_every_combination_is_unbiased(name, directions, lengths, exact_hops):
    options = {"directions": directions, "lengths": lengths, "permutation": PERMUTATION, "tuples": TUPLES}
    phi = draws(GRAPHS[name], exact_hops=exact_hops, **options, transitions=moving(name, directions))
    check_unbiased(GRAPHS[name], phi)


@pytest.mark.parametrize("name", GRAPHS)
def test_hops_by_a_rule_are_unbiased(name):
    check_unbiased(GRAPHS[name], draws(GRAPHS[name], exact_hops=HopRule([1, 2, 4])))


@pytest.mark.parametrize("directions", DIRECTIONS)
def test_uniform_moves_on_a_weighted_graph_are_unbiased(directions):
    g = GRAPHS["weighted"]
    check_unbiased(g, draws(g, directions=directions, transitions="uniform"))


def test_a_survival_array_long_enough_is_unbiased():
    survival = np.concatenate([np.ones(3), 0.5 ** np.arange(1, 60)])
    g = GRAPHS["star"]
    check_unbiased(g, draws(g, halt=survival))


class TestPlantedErrors:
    """Faults of the engine's kind, each found by `check_unbiased`."""

    def test_a_forgotten_division_by_the_survival(self, monkeypatch):
        monkeypatch.setattr("graphs.couplings.Halting.survival", lambda self, length: np.ones(length + 1))
        assert fails(check_unbiased, GRAPHS["star"], draws(GRAPHS["star"], lengths="iid"))

    def test_loads_without_the_move_probability(self, monkeypatch):
        monkeypatch.setattr(moves.Moves, "roots", property(lambda self: np.ones(self.graph.num_nodes)))
        assert fails(check_unbiased, GRAPHS["star"], draws(GRAPHS["star"]))
        monkeypatch.undo()
        monkeypatch.setattr(moves.Moves, "factors", property(lambda self: self.matrix.data))
        g = GRAPHS["weighted"]
        assert fails(check_unbiased, g, draws(g, transitions="uniform"))

    def test_moves_biased_by_the_adjacency_order(self, monkeypatch):
        def planted(self):
            return np.concatenate([(np.arange(1, c + 1) / c) ** 1.3 for c in np.diff(self.matrix.indptr)])

        monkeypatch.setattr(moves.Moves, "cumulative", property(planted))
        assert fails(check_unbiased, GRAPHS["star"], draws(GRAPHS["star"]))

    def test_start_nodes_that_share_a_stream(self, monkeypatch):
        original = drawing.node_draws
        monkeypatch.setattr(drawing, "node_draws", lambda nodes, settings: original(nodes // 5 * 5, settings))
        assert fails(check_unbiased, GRAPHS["bipartite"], draws(GRAPHS["bipartite"], walkers=2))

    def test_a_hop_counted_twice(self, monkeypatch):
        original = compiled.walk
        monkeypatch.setattr(compiled, "walk", lambda *a: original(*a[:6], a[6] - 1, *a[7:]))
        assert fails(check_unbiased, GRAPHS["star"], draws(GRAPHS["star"], exact_hops=1))

    def test_walkers_that_begin_on_the_wrong_nodes(self, monkeypatch):
        original = compiled.begin_after
        monkeypatch.setattr(compiled, "begin_after", lambda *a: np.sort(original(*a))[:, :1].repeat(a[4], axis=1))
        assert fails(check_unbiased, GRAPHS["path"], draws(GRAPHS["path"], exact_hops=2))


def reference_walks(g, node, settings, transitions="weights"):
    """The walks of one start node in plain Python: dict (position, hop) -> load."""
    keys, lengths = drawing.node_draws(np.array([node]), settings)
    m, key, lengths = settings.num_walkers, keys[0], lengths[0]
    U, W = g.shift_operator, g.adjacency
    rows = {a: U.indices[U.indptr[a] : U.indptr[a + 1]].tolist() for a in range(g.num_nodes)}

    def uniform(*path):
        state = np.array([key], dtype=np.uint64)
        for step in path:
            state = random.derive(state, np.array([step]))
        return float(random.to_unit(state)[0])

    def stream(walker, step):
        state = random.derive(np.array([key], dtype=np.uint64), np.array([walker]))
        with np.errstate(over="ignore"):
            return float(random.to_unit(random.mix(state + np.uint64(step) * random.GOLDEN))[0])

    def probability(a, b):
        if g.laplacian == "combinatorial":
            return U[a, b]
        return W[a, b] / g.degrees[a] if g.degrees[a] else 1.0

    def choose(a, x, turn=None):
        if transitions == "uniform" or (g.laplacian == "normalized" and np.ptp(W.data) == 0):
            place = min(int(x * len(rows[a])), len(rows[a]) - 1)
            return rows[a][(place + (0 if turn is None else int(turn * len(rows[a])))) % len(rows[a])]
        x = x if turn is None else (x + turn) % 1.0
        running = 0.0
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
        if settings.directions == "independent":
            moves = {w: choose(position[w], stream(w, step)) for w in alive}
        else:
            for a in sorted({position[w] for w in alive}):
                group = [w for w in alive if position[w] == a]
                first = 2 if settings.directions == "stratified" else 0
                for q in range(len(group) - 1, 0, -1):
                    other = int(uniform(step, a, first + q) * (q + 1))
                    group[q], group[other] = group[other], group[q]
                if settings.directions == "repelling":
                    moves.update(zip(group, repel(a, len(group), step), strict=True))
                    continue
                for q, w in enumerate(group):
                    moves[w] = choose(a, (q + uniform(step, a, 0)) / len(group), uniform(step, a, 1))
        for w in alive:
            a, b = position[w], moves[w]
            load[w] *= U[a, b] / (1 / len(rows[a]) if transitions == "uniform" else probability(a, b))
            position[w] = b
            place = (b, step + 1)
            visits[place] = visits.get(place, 0.0) + load[w] / settings.halting.survival(step + 1)[step + 1]
    return visits


@pytest.mark.parametrize("name", ["star", "bipartite", "weighted", "disconnected"])
@pytest.mark.parametrize("directions", DIRECTIONS)
def test_the_engine_equals_its_slow_twin(name, directions):
    g = GRAPHS[name]
    transitions = moving(name, directions)
    drawn = sample_walks(g, num_walkers=6, halt=0.2, directions=directions, seed=11, transitions=transitions)
    table = drawn.loads.toarray()
    for row in range(g.num_nodes):
        visits = reference_walks(g, row, drawn.settings, transitions)
        entries = range(drawn.pattern.indptr[row], drawn.pattern.indptr[row + 1])
        ours = {
            (int(drawn.pattern.indices[e]), hop): table[e, hop] for e in entries for hop in np.flatnonzero(table[e])
        }
        assert ours.keys() == visits.keys()
        for place, load in visits.items():
            assert ours[place] == pytest.approx(load, rel=1e-12)


def assert_same(a, b):
    for left, right in ((a.pattern.indptr, b.pattern.indptr), (a.pattern.indices, b.pattern.indices)):
        np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(a.loads.data, b.loads.data)  # bit for bit
    np.testing.assert_array_equal(a.loads.indices, b.loads.indices)


@pytest.mark.parametrize("directions", DIRECTIONS)
@pytest.mark.parametrize("exact_hops", [0, 2, HopRule([1, 6, 30])], ids=["0", "2", "rule"])
def test_threads_chunks_and_subsets_change_nothing(directions, exact_hops, monkeypatch):
    g = weighted(nx.gnm_random_graph(200, 600, seed=0), 1)
    options = {"directions": directions, "exact_hops": exact_hops, "transitions": moving("weighted", directions)}
    full = sample_walks(g, seed=5, num_threads=1, **options)
    assert_same(full, sample_walks(g, seed=5, num_threads=4, **options))
    monkeypatch.setattr("graphs.walks.drawing.CHUNK_WALKERS", 50)
    assert_same(full, sample_walks(g, seed=5, **options))
    some = full.at([7, 3, 199, 3])
    phi, part = full.features(KERNEL), some.features(KERNEL)
    np.testing.assert_array_equal(part.toarray(), phi[[7, 3, 199, 3]].toarray())
    assert fails(assert_same, full, sample_walks(g, seed=6, **options))


def test_stratified_walkers_on_one_node_take_different_neighbours():
    g = Graph.from_networkx(nx.star_graph(8))
    drawn = sample_walks(g, [0], num_walkers=8, halt=np.array([1.0, 1.0]), seed=0)
    assert drawn.max_length == 1
    assert np.diff(drawn.pattern.indptr).tolist() == [9]  # the centre and each of its 8 leaves once


def test_values_and_adjoint_are_a_linear_map_and_its_transpose():
    drawn = sample_walks(GRAPHS["weighted"], seed=2)
    rng = np.random.default_rng(0)
    f, v = rng.standard_normal(drawn.max_length + 1), rng.standard_normal(len(drawn.pattern.indices))
    assert drawn.values(f) @ v == pytest.approx(drawn.values_adjoint(v) @ f, rel=1e-12)
    np.testing.assert_array_equal(drawn.values(np.append(f, 7.0)), drawn.values(f))
    with pytest.raises(graphs.InvalidArgumentError, match="f needs shape"):
        drawn.values(f[:-1])
    with pytest.raises(graphs.InvalidArgumentError, match="v must have shape"):
        drawn.values_adjoint(v[:-1])


def test_features_are_indexed_by_labels_and_positions():
    g = Graph.from_edges([("a", "b"), ("b", "c")])
    phi = sample_walks(g, ["c", "a"], seed=0).features(KERNEL)
    assert phi.shape == (2, 3)
    assert phi[0, 2] >= KERNEL.modulation(0)[0]
    assert (np.diff(phi.indptr) > 0).all()
    assert phi.has_sorted_indices


def test_no_nodes_gives_no_rows():
    drawn = sample_walks(GRAPHS["star"], [], seed=0)
    assert drawn.features(KERNEL).shape == (0, 5)


def test_a_kernel_without_second_moment_is_named():
    kernel = kernels.RegularizedLaplacian(2, np.sqrt(10))
    g = GRAPHS["star"]
    limit = graphs.largest_halt(g, kernel)
    assert limit == pytest.approx(1 - (10 / 11) ** 2)
    with pytest.warns(graphs.InfiniteVarianceWarning, match=r"halt below 0.174"):
        sample_walks(g, halt=0.3, seed=0).features(kernel)
    with pytest.warns(graphs.LargeVarianceWarning, match="relative variance of"):
        sample_walks(g, halt=0.17, num_walkers=2, seed=0).features(kernel)
    sample_walks(g, halt=0.05, seed=0).features(kernel)  # a warning would be an error here
    assert graphs.largest_halt(g, kernels.Diffusion(9.0)) == 1.0


def test_relative_variance_is_that_of_a_rows_total_weight():
    kernel, halting = kernels.Diffusion(5.0), graphs.couplings.Halting(0.1)
    f = kernel.modulation(600)
    lengths = halting.quantile(np.random.default_rng(0).uniform(size=400_000))
    totals = np.cumsum(f / halting.survival(600))[lengths]
    assert_mean(totals, 1.0)
    assert_mean((totals - 1) ** 2, graphs.relative_variance(kernel, 0.1))
    long = graphs.relative_variance(kernels.Diffusion(20.0), 0.1)
    assert long > 1e4
    with pytest.warns(graphs.LargeVarianceWarning, match="smaller halt or more walkers"):
        sample_walks(GRAPHS["star"], seed=0).features(kernels.Diffusion(20.0))


def second_moment_ratio(g, kernel, halt, length):
    """E of the squared feature of one walker cut at `length`, relative to the cut at length / 2."""
    f = kernel.modulation(length)
    growth = 1 / (1 - halt)
    terms = f**2 * growth ** np.arange(length + 1)
    return terms.sum() / terms[: length // 2].sum()


def test_the_largest_halt_is_where_the_second_moment_diverges():
    g, kernel = GRAPHS["star"], kernels.RegularizedLaplacian(2, np.sqrt(10))
    limit = graphs.largest_halt(g, kernel)
    assert second_moment_ratio(g, kernel, limit - 0.02, 1500) == pytest.approx(1)
    assert second_moment_ratio(g, kernel, limit + 0.02, 1500) > 1e3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_walkers": 0}, "num_walkers must be a positive integer"),
        ({"num_walkers": 2.0}, "num_walkers must be a positive integer"),
        ({"num_walkers": 3, "lengths": "sigma"}, "must be even"),
        ({"num_walkers": 3, "lengths": "antithetic"}, "must be even"),
        ({"halt": 0.0}, "halt must lie strictly between 0 and 1"),
        ({"halt": 1.5}, "halt must lie strictly between 0 and 1"),
        ({"halt": 1}, "halt must lie strictly between 0 and 1"),
        ({"lengths": "geometric"}, "lengths must be one of 'iid'"),
        ({"directions": "repulsive"}, "directions must be one of"),
        ({"transitions": "lazy"}, "transitions must be one of"),
        ({"exact_hops": -1}, "exact_hops must be an integer from 0 to"),
        ({"exact_hops": True}, "exact_hops must be an integer from 0 to"),
        ({"exact_hops": "all"}, "exact_hops must be an integer from 0 to"),
        ({"exact_hops": 2**40}, "exact_hops must be an integer from 0 to"),
        ({"exact_hops": np.zeros(3)}, "exact_hops must be an integer from 0 to"),
        ({"num_threads": -1}, "num_threads must be a positive integer"),
        ({"max_memory": float("nan")}, "max_memory must be a positive number"),
        ({"max_memory": "1"}, "max_memory must be a positive number"),
        ({"lengths": ["iid"]}, "lengths must be one of"),
        ({"kernel": "diffusion"}, "kernel must be one of graphs.kernels"),
        ({"lengths": "sigma", "num_quantiles": 10**6}, "num_quantiles must be an integer from 1 to"),
        ({"max_nonzeros": 0}, "max_nonzeros must be"),
        ({"seed": -1}, "seed must be"),
        ({"halt": 1e-9}, "steps per node"),
        ({"halt": "0.1x"}, "halt must be a number"),
        ({"num_walkers": 10**9}, "steps per node"),
        ({"lengths": "sigma", "permutation": [0, 0]}, "each once"),
        ({"lengths": "sigma", "num_quantiles": 1}, "an integer from 2 on"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(graphs.InvalidArgumentError, match=message):
        sample_walks(GRAPHS["star"], **{"seed": 0, **options})


class TestExactHops:
    def test_first_hops_are_powers_of_the_matrix(self):
        g = weighted(nx.gnm_random_graph(30, 60, seed=0), 1)
        U = g.shift_operator.toarray()
        drawn = sample_walks(g, exact_hops=3, seed=0)
        assert (drawn.exact_hops == 3).all()
        for hop in range(4):
            f = np.zeros(drawn.max_length + 1)
            f[hop] = 1.0
            exact = np.zeros((30, 30))
            indptr, indices, _ = drawn.pattern
            exact[np.repeat(np.arange(30), np.diff(indptr)), indices] = drawn.values(f)
            np.testing.assert_allclose(exact, np.linalg.matrix_power(U, hop), atol=1e-14)

    def test_walkers_carry_the_tail_only(self):
        g, kernel = Graph.from_networkx(nx.grid_2d_graph(12, 12)), kernels.Diffusion(2.0)
        K = kernel.exact(g)

        def error(hops):
            phis = [sample_walks(g, seed=s, exact_hops=hops).features(kernel) for s in range(20)]
            errors = [np.linalg.norm((phi @ phi.T).toarray() - K) for phi in phis]
            return np.mean(errors), np.std(errors, ddof=1) / np.sqrt(20)

        (none, a), (five, b) = error(0), error(5)
        assert (0.2 * none - five) / np.hypot(0.2 * a, b) > 6


class TestBudget:
    def test_what_is_too_large_is_refused_before_it_is_begun(self, monkeypatch):
        monkeypatch.setattr(drawing, "walk_chunk", lambda *a: pytest.fail("it was begun"))
        g = Graph.from_networkx(nx.cycle_graph(1000))
        for options in ({}, {"exact_hops": 4}):
            with pytest.raises(graphs.MemoryBudgetError, match=r"up to .* MiB, more than max_memory allows"):
                sample_walks(g, seed=0, max_memory=1e5, **options)

    @pytest.mark.parametrize("options", [{}, {"exact_hops": 2}, {"transitions": "uniform"}, {"lengths": "iid"}])
    def test_what_is_foreseen_holds(self, options):
        g = weighted(nx.random_regular_graph(3, 2000, seed=0), 0)
        drawn = sample_walks(g, seed=0, **options)
        held = (drawn.pattern.indices, drawn.visits.hop_counts, drawn.visits.hops, drawn.visits.loads)
        taken = sum(array.nbytes for array in held)
        sample_walks(g, seed=0, max_memory=3 * taken, **options)
        with pytest.raises(MemoryError):
            sample_walks(g, seed=0, max_memory=0.9 * taken, **options)

    def test_an_interrupt_ends_it(self, monkeypatch):
        begun, original = [], drawing.walk_chunk

        def interrupted(*arguments):
            begun.append(1)
            if len(begun) == 3:
                raise KeyboardInterrupt
            return original(*arguments)

        monkeypatch.setattr(drawing, "walk_chunk", interrupted)
        monkeypatch.setattr(drawing, "CHUNK_WALKERS", 16)
        with pytest.raises(KeyboardInterrupt):
            sample_walks(Graph.from_networkx(nx.cycle_graph(3000)), seed=0, num_threads=1)
        assert len(begun) < 1500  # of 3,000: what a thread does until it hears of it

    def test_long_walks_need_wider_numbers(self):
        """Hops beyond 255 in some chunks, and more than 255 visits of one node."""
        g = Graph.from_edges([(0, 1)])
        survival = np.concatenate([np.ones(3), np.full(400, 1e-3)])
        some = sample_walks(Graph.from_networkx(nx.cycle_graph(4000)), num_walkers=2, halt=survival, seed=0)
        assert some.max_length == 402
        drawn = sample_walks(g, num_walkers=600, halt=survival, lengths="systematic", seed=0)
        assert drawn.loads.toarray()[:, 1].max() == pytest.approx(1.0)
        assert drawn.visits.loads.dtype == np.uint16


def test_repelling_walkers_want_uniform_moves():
    with pytest.raises(graphs.InvalidArgumentError, match=r"repelling.*uniform moves"):
        sample_walks(GRAPHS["weighted"], directions="repelling", seed=0)


def test_repelling_walkers_share_no_neighbour_within_a_block():
    g = Graph.from_networkx(nx.star_graph(8))
    drawn = sample_walks(g, [0], num_walkers=20, halt=np.array([1.0, 1.0]), directions="repelling", seed=0)
    counts = drawn.loads.toarray()[1:, 1] * 20
    np.testing.assert_allclose(np.sort(counts) / np.sqrt(8), [2] * 4 + [3] * 4)


def test_the_seed_is_kept():
    drawn = sample_walks(GRAPHS["star"])
    assert_same(drawn, sample_walks(GRAPHS["star"], seed=drawn.seed))
    assert not drawn.exact_hops.any()


def test_coupled_walkers_have_smaller_errors():
    g = Graph.from_networkx(nx.karate_club_graph(), weight=None)
    K = KERNEL.exact(g)

    def error(**options):
        phis = [sample_walks(g, seed=s, **options).features(KERNEL) for s in range(100)]
        errors = [np.linalg.norm((phi @ phi.T).toarray() - K) for phi in phis]
        return np.mean(errors), np.std(errors, ddof=1) / 10

    (plain, s0), (ours, s1) = error(lengths="iid", directions="independent"), error()
    assert (0.7 * plain - ours) / np.hypot(0.7 * s0, s1) > 6


class TestHalting:
    def test_auto_takes_the_largest_that_is_good(self):
        g, kernel = GRAPHS["star"], kernels.RegularizedLaplacian(2, 3.0)
        chosen = graphs.choose_halt(g, kernel, 16)
        assert 1e-3 < chosen <= graphs.largest_halt(g, kernel) / 2
        assert graphs.relative_variance(kernel, chosen) <= 1.6
        if chosen < graphs.largest_halt(g, kernel) / 2 - 1e-3:
            assert graphs.relative_variance(kernel, 1.01 * chosen) > 1.6
        assert graphs.choose_halt(g, kernels.Diffusion(0.1)) == 0.5
        drawn = sample_walks(g, halt="auto", kernel=kernel, seed=0)
        assert drawn.settings.halting.halt == chosen
        long = kernels.Diffusion(12.0)
        assert graphs.choose_halt(g, long, 64, exact_hops=40) > 2 * graphs.choose_halt(g, long, 64)
        with pytest.raises(graphs.InvalidArgumentError, match="No halting probability"):
            graphs.choose_halt(g, kernels.Diffusion(100.0), 2)
        with pytest.raises(graphs.InvalidArgumentError, match="No halting probability"):
            graphs.choose_halt(g, kernels.InverseCosine())

    @pytest.mark.parametrize("kernel", [KERNEL, kernels.Diffusion(4.0), kernels.Matern(1.5, 2.0)], ids=str)
    def test_lengths_made_for_the_kernel_vary_less(self, kernel):
        geometric = graphs.couplings.Halting(0.2)
        survival = graphs.survival_for(kernel, geometric.mean())
        made = graphs.couplings.Halting(survival)
        assert made.mean() == pytest.approx(4.0, rel=1e-6)
        best = graphs.relative_variance(kernel, made)
        assert best < 0.95 * graphs.relative_variance(kernel, geometric)
        rng = np.random.default_rng(0)
        for _ in range(200):  # no other law of that mean length is better
            other = np.minimum.accumulate(np.clip(survival * np.exp(0.3 * rng.standard_normal(len(survival))), 0, 1))
            other[0] = 1.0
            shift = np.clip(other[1:] * 4.0 / other[1:].sum(), 0, 1)
            if abs(shift.sum() - 4.0) < 1e-9:
                other[1:] = shift
                assert graphs.relative_variance(kernel, other) > best - 1e-6

    def test_they_leave_nothing_out(self):
        g = GRAPHS["star"]
        check_unbiased(g, draws(g, halt=graphs.survival_for(KERNEL, 3.0)))

    def test_bad_arguments(self):
        with pytest.raises(graphs.InvalidArgumentError, match="mean_length must lie between"):
            graphs.survival_for(KERNEL, 0.0)
        with pytest.raises(graphs.InvalidArgumentError, match="negative terms"):
            graphs.survival_for(kernels.InverseCosine())


class TestExtremes:
    def test_kernels_without_a_total_weight(self):
        drawn, kernel = sample_walks(GRAPHS["path"], seed=0), kernels.Modulated((1.0, -1.0))
        assert np.isfinite(drawn.features(kernel).data).all()
        with pytest.warns(graphs.LargeVarianceWarning, match="variance of inf"):
            drawn.features(kernels.Diffusion(600.0))
        with pytest.raises(graphs.InvalidArgumentError, match="exact_hops"):
            graphs.relative_variance(kernel, 0.1, -3)

    def test_slow_series_with_short_walks(self):
        halting = [1, 0.9, 0.8, 0.7]
        assert np.isfinite(graphs.relative_variance(kernels.InverseCosine(), halting))
        sample_walks(GRAPHS["path"], halt=halting, num_walkers=64, seed=0).features(kernels.InverseCosine())

    def test_weights_that_underflow_are_pushed_once(self):
        pairs = [(i, i + k) for i in range(40) for k in (1, 2, 3, 4) if i + k < 40]
        g = Graph.from_edges(pairs, [1.0 if b == a + 1 else 1e-200 for a, b in pairs])
        drawn = sample_walks(g, [0], num_walkers=1, exact_hops=8, seed=0)
        assert len(drawn.pattern.indices) <= 40
