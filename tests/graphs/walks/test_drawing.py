"""Draws against a slow twin, whatever the threads, the chunks, and the nodes that are asked for."""

import networkx as nx
import numpy as np
import pytest
from checks import fails
from walking import (
    GRAPHS,
    KERNEL,
    assert_same,
    moving,
    sample_walks,
    weighted,
)

import graphs
from graphs import Graph, HopRule, random
from graphs.couplings import STEP_COUPLINGS
from graphs.walks import drawing


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
        if settings.step_coupling == "independent":
            moves = {w: choose(position[w], stream(w, step)) for w in alive}
        else:
            for a in sorted({position[w] for w in alive}):
                group = [w for w in alive if position[w] == a]
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
            place = (b, step + 1)
            visits[place] = visits.get(place, 0.0) + load[w] / settings.halting.survival(step + 1)[step + 1]
    return visits


@pytest.mark.parametrize("name", ["star", "bipartite", "weighted", "disconnected"])
@pytest.mark.parametrize("step_coupling", STEP_COUPLINGS)
def test_walks_match_a_slow_reference(name, step_coupling):
    g = GRAPHS[name]
    transitions = moving(name, step_coupling)
    drawn = sample_walks(g, num_walkers=6, p_halt=0.2, step_coupling=step_coupling, seed=11, transitions=transitions)
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


@pytest.mark.parametrize("step_coupling", STEP_COUPLINGS)
@pytest.mark.parametrize("exact_hops", [0, 2, HopRule([1, 6, 30])], ids=["0", "2", "rule"])
def test_threads_chunks_and_subsets_do_not_change_walks(step_coupling, exact_hops, monkeypatch):
    g = weighted(nx.gnm_random_graph(200, 600, seed=0), 1)
    options = {
        "step_coupling": step_coupling,
        "exact_hops": exact_hops,
        "transitions": moving("weighted", step_coupling),
    }
    full = sample_walks(g, seed=5, num_threads=1, **options)
    assert_same(full, sample_walks(g, seed=5, num_threads=4, **options))
    monkeypatch.setattr("graphs.walks.drawing.CHUNK_WALKERS", 50)
    assert_same(full, sample_walks(g, seed=5, **options))
    some = full.at([7, 3, 199, 3])
    phi, part = full.features(KERNEL), some.features(KERNEL)
    np.testing.assert_array_equal(part.toarray(), phi[[7, 3, 199, 3]].toarray())
    assert fails(assert_same, full, sample_walks(g, seed=6, **options))


def test_stratified_walkers_take_different_neighbors():
    g = Graph.from_networkx(nx.star_graph(8))
    drawn = sample_walks(g, [0], num_walkers=8, p_halt=np.array([1.0, 1.0]), seed=0)
    assert drawn.max_length == 1
    assert np.diff(drawn.pattern.indptr).tolist() == [9]  # the centre and each of its 8 leaves once


def test_repelling_walkers_share_no_neighbor_in_a_block():
    g = Graph.from_networkx(nx.star_graph(8))
    drawn = sample_walks(g, [0], num_walkers=20, p_halt=np.array([1.0, 1.0]), step_coupling="repelling", seed=0)
    counts = drawn.loads.toarray()[1:, 1] * 20
    np.testing.assert_allclose(np.sort(counts) / np.sqrt(8), [2] * 4 + [3] * 4)


def test_coupled_walkers_have_smaller_errors():
    g = Graph.from_networkx(nx.karate_club_graph(), weight=None)
    K = KERNEL.exact(g)

    def error(**options):
        phis = [sample_walks(g, seed=s, **options).features(KERNEL) for s in range(100)]
        errors = [np.linalg.norm((phi @ phi.T).toarray() - K) for phi in phis]
        return np.mean(errors), np.std(errors, ddof=1) / 10

    (plain, s0), (ours, s1) = error(lengths="iid", step_coupling="independent"), error()
    assert (0.7 * plain - ours) / np.hypot(0.7 * s0, s1) > 6


class TestBudget:
    def test_too_large_draws_are_refused_first(self, monkeypatch):
        monkeypatch.setattr(drawing, "walk_chunk", lambda *a: pytest.fail("it was begun"))
        g = Graph.from_networkx(nx.cycle_graph(1000))
        for options in ({}, {"exact_hops": 4}):
            with pytest.raises(graphs.MemoryBudgetError, match=r"up to .* MiB, more than max_memory allows"):
                sample_walks(g, seed=0, max_memory=1e5, **options)

    @pytest.mark.parametrize("options", [{}, {"exact_hops": 2}, {"transitions": "uniform"}, {"lengths": "iid"}])
    def test_expected_memory_holds(self, options):
        g = weighted(nx.random_regular_graph(3, 2000, seed=0), 0)
        drawn = sample_walks(g, seed=0, **options)
        held = (drawn.pattern.indices, drawn.visits.hop_counts, drawn.visits.hops, drawn.visits.loads)
        taken = sum(array.nbytes for array in held)
        sample_walks(g, seed=0, max_memory=3 * taken, **options)
        with pytest.raises(MemoryError):
            sample_walks(g, seed=0, max_memory=0.9 * taken, **options)

    def test_draw_can_be_interrupted(self, monkeypatch):
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

    def test_long_walks_use_wider_integers(self):
        """Hops beyond 255 in some chunks, and more than 255 visits of one node."""
        g = Graph.from_edges([(0, 1)])
        survival = np.concatenate([np.ones(3), np.full(400, 1e-3)])
        some = sample_walks(Graph.from_networkx(nx.cycle_graph(4000)), num_walkers=2, p_halt=survival, seed=0)
        assert some.max_length == 402
        drawn = sample_walks(g, num_walkers=600, p_halt=survival, lengths="systematic", seed=0)
        assert drawn.loads.toarray()[:, 1].max() == pytest.approx(1.0)
        assert drawn.visits.loads.dtype == np.uint16
