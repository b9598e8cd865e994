import networkx as nx
import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence

import graphs
from graphs import Graph, kernels
from graphs.advice import exact_block
from graphs.features import eigenpairs

KERNELS = [kernels.Diffusion(2.5), kernels.RegularizedLaplacian(2, 0.8), kernels.Matern(1.5, 2.0)]


@pytest.fixture(scope="module")
def g():
    G = nx.gnm_random_graph(60, 130, seed=0)
    weights = np.random.default_rng(0).uniform(0.2, 3, 130)
    return Graph.from_edges([(f"n{a}", f"n{b}") for a, b in G.edges], weights, nodes=[f"n{k}" for k in range(60)])


def root(g, kernel):
    """f(U) by the eigendecomposition."""
    values, vectors = g.spectrum
    return (vectors * np.sqrt(kernel.spectral(values))) @ vectors.T


MAKERS = {"taylor": graphs.taylor_features, "chebyshev": graphs.chebyshev_features}


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("degree", [0, 1, 4, 30])
def test_they_are_polynomials_of_the_matrix_within_their_bound(g, kernel, name, degree):
    made = MAKERS[name](g, degree=degree)
    phi = made.features(kernel).toarray()
    U, weights = g.shift_operator.toarray(), made.weights(kernel)
    powers = [np.eye(60), U]
    while len(powers) <= degree:
        powers.append(U @ powers[-1] if name == "taylor" else 2 * U @ powers[-1] - powers[-2])
    expected = sum(w * power for w, power in zip(weights, powers, strict=False))
    np.testing.assert_allclose(phi, expected, atol=1e-12)
    bound, error = made.error_bound(kernel), np.linalg.norm(phi - root(g, kernel), 2)
    assert error <= bound + 1e-12
    if degree == 30 and name == "chebyshev":
        assert bound < 1e-6
    assert error > 1e-4 * bound


def test_terms_that_cancel_leave_nothing():
    """On a ring T_l(U) has the entry 1/2 at the two nodes l steps away, and rounding errors between them."""
    ring = Graph.from_networkx(nx.cycle_graph(300))
    made = graphs.chebyshev_features(ring, degree=100)
    assert made.table.nnz == 300 * 201
    hops, entries = made.table.indices, made.table.data
    np.testing.assert_allclose(entries, np.where(hops == 0, 1.0, 0.5), atol=1e-12)
    kernel = kernels.Diffusion(6.0)
    phi = made.features(kernel)
    np.testing.assert_allclose((phi @ phi.T).toarray(), kernel.exact(ring), atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_chebyshev_bounds_fall_faster_than_those_of_the_power_series(g, kernel):
    for degree in (3, 6, 9):
        chebyshev, taylor = (make(g, degree=degree).error_bound(kernel) for make in MAKERS.values().__reversed__())
        assert chebyshev < 0.5 * taylor


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("rank", [5, 12, 60])
def test_spectral_features_keep_the_largest_eigenvalues(g, kernel, rank):
    assert connected_components(g.adjacency)[0] == 3  # an eigenvalue of multiplicity three
    made = graphs.spectral_features(g, rank=rank)
    values, vectors = g.spectrum
    expected = (vectors[:, :rank] * kernel.spectral(values[:rank])) @ vectors[:, :rank].T
    phi = made.features(kernel)
    assert phi.shape == (60, rank)
    np.testing.assert_allclose((phi @ phi.T).toarray(), expected, atol=1e-10)
    assert np.linalg.norm(kernel.exact(g) - expected, 2) <= made.error_bound(kernel) ** 2 + 1e-10


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize(
    "make",
    [
        lambda g, nodes=None: graphs.taylor_features(g, nodes, 4),
        lambda g, nodes=None: graphs.chebyshev_features(g, nodes, 4),
        lambda g, nodes=None: graphs.spectral_features(g, nodes, 8),
        lambda g, nodes=None: graphs.sample_walks(g, nodes, seed=0),
    ],
    ids=["taylor", "chebyshev", "spectrum", "walks"],
)
class TestInterface:
    def test_values_are_linear_with_an_adjoint(self, g, kernel, make):
        made, rng = make(g), np.random.default_rng(0)
        w, v = rng.standard_normal(made.max_length + 1), rng.standard_normal(len(made.pattern.indices))
        assert made.values(w) @ v == pytest.approx(made.values_adjoint(v) @ w)
        np.testing.assert_array_equal(made.features(kernel).data, made.values(made.weights(kernel)))

    def test_other_nodes_have_the_same_rows(self, g, kernel, make):
        made, labels = make(g), ["n7", "n59", "n0", "n7"]
        rows = made.features(kernel).toarray()[[7, 59, 0, 7]]
        np.testing.assert_allclose(made.at(labels).features(kernel).toarray(), rows, atol=1e-13)
        np.testing.assert_allclose(make(g, labels).features(kernel).toarray(), rows, atol=1e-13)

    def test_weights_have_their_derivative(self, g, kernel, make):
        made, step = make(g), 1e-6
        up, down = (kernel.with_values(kernel.values * (1 + sign * step)) for sign in (1, -1))
        numeric = (made.weights(up) - made.weights(down)) / (2 * step * kernel.values[0])
        np.testing.assert_allclose(made.weights_jacobian(kernel)[:, 0], numeric, rtol=1e-5, atol=1e-9)


def test_large_graphs_by_lanczos():
    g, kernel = Graph.from_networkx(nx.grid_2d_graph(20, 20)), kernels.Diffusion(4.0)
    made = graphs.spectral_features(g, rank=30)
    np.testing.assert_allclose(made.eigenvalues, 1 - g.spectrum.eigenvalues[:30], atol=1e-9)
    assert made.error_bound(kernel) < 0.5
    np.testing.assert_array_equal(made.eigenvectors, graphs.spectral_features(g, rank=30).eigenvectors)


def test_more_parts_than_the_rank():
    g = Graph.from_edges([(4 * k + a, 4 * k + a + 1) for k in range(80) for a in range(3)])
    made = graphs.spectral_features(g, rank=70)
    assert (made.eigenvalues == 1).all()
    assert made.error_bound(KERNELS[0]) == pytest.approx(1)
    more = graphs.spectral_features(g, rank=79)
    np.testing.assert_allclose(more.eigenvectors.T @ more.eigenvectors, np.eye(79), atol=1e-12)


def test_bad_arguments(g):
    for degree in (-1, 2.0, True):
        with pytest.raises(graphs.InvalidArgumentError, match="degree must be an integer from 0 on"):
            graphs.taylor_features(g, degree=degree)
    for rank in (0, 61, 3.0):
        with pytest.raises(graphs.InvalidArgumentError, match="rank must be an integer from 1 to 60"):
            graphs.spectral_features(g, rank=rank)
    with pytest.raises(graphs.MemoryBudgetError, match="Use a lower degree"):
        graphs.chebyshev_features(g, degree=6, max_memory=1000)
    assert graphs.chebyshev_features(g, [], degree=3).features(KERNELS[0]).shape == (0, 60)


class TestAdvice:
    def test_the_exact_block_is_the_exact_kernel(self, g):
        some = np.array([3, 0, 59])
        for kernel in (*KERNELS, kernels.InverseCosine(), kernels.RandomWalk(3, 2.0)):
            np.testing.assert_allclose(exact_block(g, kernel, some), kernel.exact(g)[np.ix_(some, some)], atol=1e-8)

    def test_it_recommends_what_is_best_by_its_own_measurement(self):
        """Where few hops do, where the kernel lives on few eigenvectors, and where neighbourhoods explode."""
        grid = Graph.from_networkx(nx.grid_2d_graph(30, 30))
        near = graphs.advise(grid, kernels.Diffusion(2.0), 64)
        assert near.best.features == "chebyshev"
        far = graphs.advise(grid, kernels.Diffusion(15.0), 64)
        assert far.best.features == "spectrum"
        hubs = Graph.from_networkx(nx.barabasi_albert_graph(3000, 2, seed=0))
        spread = graphs.advise(hubs, kernels.RegularizedLaplacian(2, 2.0), 200)
        assert spread.best.features == "walks"
        for advice in (near, far, spread):
            errors = [candidate.error for candidate in advice.candidates]
            assert errors == sorted(errors)
            budget = 200 if advice is spread else 64
            assert advice.best.nonzeros <= budget
            assert advice.best.error == min(c.error for c in advice.candidates if c.nonzeros <= budget)
            assert advice.best.features in advice.reason
            assert str(advice).count("\n") == len(advice.candidates)

    def test_the_measured_error_is_that_of_the_features(self, g):
        advice = graphs.advise(g, KERNELS[0], 40, num_nodes=60)
        K = KERNELS[0].exact(g)
        for candidate in advice.candidates:
            if candidate.features == "walks":
                continue
            make = {**MAKERS, "spectrum": graphs.spectral_features}[candidate.features]
            phi = make(g, **candidate.options).features(KERNELS[0])
            if len(set(phi.nonzero()[0])) == 60:
                error = np.linalg.norm((phi @ phi.T).toarray() - K) / np.linalg.norm(K)
                assert candidate.error == pytest.approx(error, rel=0.3)

    def test_bad_arguments(self, g):
        with pytest.raises(graphs.InvalidArgumentError, match="max_nonzeros must be a positive integer"):
            graphs.advise(g, KERNELS[0], 0)
        with pytest.raises(graphs.InvalidArgumentError, match="num_nodes must be a positive integer"):
            graphs.advise(g, KERNELS[0], num_nodes=0)

    def test_a_kernel_that_walks_cannot_serve(self, g):
        assert all(c.features != "walks" for c in graphs.advise(g, kernels.InverseCosine()).candidates)


def test_copies_of_an_eigenvalue_are_all_found():
    """Graphs whose spectra one Lanczos run misses parts of."""
    for G, rank in ((nx.kneser_graph(10, 3), 20), (nx.hypercube_graph(9), 60)):
        g = Graph.from_networkx(G)
        made = graphs.spectral_features(g, rank=rank)
        np.testing.assert_allclose(made.eigenvalues, 1 - g.spectrum.eigenvalues[:rank], atol=1e-8)
        phi = made.features(kernels.Diffusion(4.0)).toarray()
        rest = kernels.Diffusion(4.0).exact(g) - phi @ phi.T
        assert np.linalg.norm(rest, 2) <= made.error_bound(kernels.Diffusion(4.0)) ** 2 + 1e-10


def test_eigenvalues_that_do_not_converge_are_named(monkeypatch):
    def stop(matrix, k, **options):
        raise ArpackNoConvergence("No convergence", np.zeros(0), np.zeros((matrix.shape[0], 0)))

    monkeypatch.setattr(eigenpairs, "eigsh", stop)
    with pytest.raises(graphs.GraphError, match="Only 1 of the 5 largest"):
        graphs.spectral_features(Graph.from_networkx(nx.hypercube_graph(9)), rank=5)


@pytest.mark.parametrize("kernel", [kernels.Diffusion(30.0), kernels.RegularizedLaplacian(200, 1e3)], ids=str)
def test_derivatives_where_the_kernel_underflows(g, kernel):
    for made in (graphs.chebyshev_features(g, degree=6), graphs.spectral_features(g, rank=30)):
        assert np.isfinite(made.weights_jacobian(kernel)).all()


def test_a_modulation_that_changes_sign_keeps_it(g):
    kernel = kernels.Modulated((1.0, -2.0))
    for make in MAKERS.values():
        made = make(g, degree=1)
        phi = made.features(kernel)
        np.testing.assert_allclose((phi @ phi.T).toarray(), kernel.exact(g), atol=1e-12)
        assert made.error_bound(kernel) < 1e-12


def test_a_budget_is_checked_before_much_is_done():
    crowd = Graph.from_networkx(nx.complete_graph(600))
    with pytest.raises(graphs.MemoryBudgetError, match="take about"):
        graphs.chebyshev_features(crowd, degree=6, max_memory=1e6)


def test_shapes_are_checked(g):
    for made in (graphs.spectral_features(g, rank=4), graphs.chebyshev_features(g, degree=3)):
        for call in (lambda m: m.values(2.0), lambda m: m.values([1.0]), lambda m: m.values_adjoint([1.0])):
            with pytest.raises(graphs.InvalidArgumentError, match="must have shape"):
                call(made)
    assert graphs.spectral_features(g, [], rank=3).values_adjoint([]).tolist() == [0, 0, 0]
    with pytest.raises(graphs.InvalidArgumentError, match="Graph is needed"):
        graphs.taylor_features("x")
    for options, words in (({"seed": -1}, "seed"), ({"halt": [1, 0.5]}, "probability"), ({"halt": 1.5}, "halt must")):
        with pytest.raises(graphs.InvalidArgumentError, match=words):
            graphs.advise(g, KERNELS[0], **options)
    with pytest.raises(graphs.InvalidArgumentError, match="double precision"):
        exact_block(g, kernels.Matern(100, 3e-3), np.array([0]))


def test_the_density_of_eigenvalues():
    g = Graph.from_networkx(nx.convert_node_labels_to_integers(nx.grid_2d_graph(30, 40)))
    eigenvalues = g.spectrum.eigenvalues
    at = (np.arange(20_000) + 0.5) / 10_000
    density = graphs.spectral_density(g, at, num_probes=64)
    assert density.mean() * 2 == pytest.approx(1, abs=0.002)
    shares = [density[at <= limit].sum() / 10_000 for limit in (0.3, 0.7, 1.05, 1.6)]
    np.testing.assert_allclose(shares, [(eigenvalues <= limit).mean() for limit in (0.3, 0.7, 1.05, 1.6)], atol=0.015)
    for bad in ([-0.1], [2.1], [[1.0]]):
        with pytest.raises(graphs.InvalidArgumentError, match=r"within \[0, 2\]"):
            graphs.spectral_density(g, bad)


def test_the_largest_degree_within_a_budget():
    g = Graph.from_networkx(nx.cycle_graph(500))
    assert graphs.largest_degree(g, 21) == 10
    assert graphs.largest_degree(g, 20) == 9
    assert graphs.largest_degree(g, 1) == 1
    assert len(graphs.chebyshev_features(g, degree=10).pattern.indices) == 21 * 500


@pytest.mark.parametrize("degree", [0, 1, 2, 7])
@pytest.mark.parametrize("make", [graphs.taylor_features, graphs.chebyshev_features])
def test_all_rows_times_a_matrix(make, degree):
    g, kernel = Graph.from_networkx(nx.lollipop_graph(6, 9)), kernels.Diffusion(2.5)
    features = make(g, [], degree)
    right = np.random.default_rng(0).standard_normal((15, 3))
    expected = make(g, None, degree).features(kernel) @ right
    np.testing.assert_allclose(features.times(kernel, right), expected, atol=1e-13)


def test_eigenvalues_of_a_ring_that_are_close_together():
    """Pairs 1e-5 apart, by a factorisation; the analytic ones are cos(2 pi k / N), each but the first twice."""
    g = Graph.from_grid((3000,), periodic=True)
    features = graphs.spectral_features(g, [], 41)
    exact = np.sort(np.cos(2 * np.pi * np.arange(3000) / 3000))[::-1][:41]
    np.testing.assert_allclose(features.eigenvalues, exact, atol=1e-13)
    vectors = features.eigenvectors
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(41), atol=1e-12)
    np.testing.assert_allclose(g.shift_operator @ vectors, vectors * exact, atol=1e-12)
