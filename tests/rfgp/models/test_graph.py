"""Models on the nodes of graphs against dense algebra: exact, by walks, series and eigenvectors, and in products."""

import networkx as nx
import numpy as np
import pytest
import torch
from checks import assert_mean, assert_mean_of_normals
from field_cases import NEW, ROWS, Y, network, ring
from hypothesis import given, settings
from hypothesis import strategies as st
from model_checks import assert_gradients

import graphs
import rfgp
from rfgp import GraphGP, metrics
from rfgp import kernels as k

GRAPH, RING = graphs.Graph.from_grid((9, 8)), ring()
TRAIN, TEST = np.split(np.random.default_rng(0).permutation(72), [50])


def laplacian(graph):
    W = graph.adjacency.toarray()
    degrees = W.sum(axis=1)
    roots = np.sqrt(np.where(degrees > 0, degrees, np.inf))
    return np.diag(1.0 * (degrees > 0)) - W / roots / roots[:, None]


def function_of(graph, spectral):
    eigenvalues, vectors = np.linalg.eigh(laplacian(graph))
    return (vectors * spectral(np.clip(eigenvalues, 0, 2))) @ vectors.T


FIELD = function_of(GRAPH, lambda x: 30 * np.exp(-2 * x)) @ np.random.default_rng(1).standard_normal(72) + 100
OBSERVED = FIELD[TRAIN] + 0.3 * np.random.default_rng(2).standard_normal(50)


def dense(K, y, noise, mean):
    """Return the log density, and the means and covariances at all points given the first rows."""
    n = len(y)
    inverse = np.linalg.inv(K[:n, :n] + noise * np.eye(n))
    density = -0.5 * ((y - mean) @ inverse @ (y - mean) - np.linalg.slogdet(inverse)[1] + n * np.log(2 * np.pi))
    return density, mean + K[:, :n] @ inverse @ (y - mean), K - K[:, :n] @ inverse @ K[:n]


def check(gp, nodes, y, new, kernel, digits=1e-7):
    """Compare a model with dense formulas, given the kernel matrix of all nodes."""
    h, order = gp.hyperparameters, np.concatenate([nodes, new])
    K = h.outputscale.item() * kernel[np.ix_(order, order)]
    density, mean, covariance = dense(K, y, h.noise.item(), h.mean.item())
    found, n, scale = gp.predict(list(new)), len(nodes), max(1.0, np.var(y))
    assert gp.log_marginal_likelihood().item() == pytest.approx(density, rel=1e-8, abs=1e-6)
    np.testing.assert_allclose(found.mean, mean[n:], atol=digits * np.abs(mean).max())
    np.testing.assert_allclose(found.covariance, covariance[n:, n:], atol=digits * scale)
    np.testing.assert_allclose(found.variance, covariance.diagonal()[n:], atol=digits * scale)


FEATURES = {
    "exact": lambda kernel: None,
    "walks": lambda kernel: graphs.sample_walks(
        GRAPH, num_walkers=8, max_nonzeros=32, kernel=graphs.kernels.Diffusion(2.0), seed=1
    ).features(kernel),
    "chebyshev": lambda kernel: graphs.chebyshev_features(GRAPH, degree=4).features(kernel),
    "taylor": lambda kernel: graphs.taylor_features(GRAPH, degree=4).features(kernel),
    "spectrum": lambda kernel: graphs.spectral_features(GRAPH, rank=20).features(kernel),
}


@pytest.mark.parametrize("features", FEATURES)
def test_model_matches_dense_algebra(features):
    gp = GraphGP(GRAPH, features=features, num_walkers=8, degree=4, rank=20, seed=1).condition(TRAIN, OBSERVED)
    gp.hyperparameters.set(lengthscale=1.3, noise=2.0)
    phi = FEATURES[features](graphs.kernels.Diffusion(1.3))
    K = function_of(GRAPH, lambda x: np.exp(-0.845 * x)) if phi is None else (phi @ phi.T).toarray()
    check(gp, TRAIN, OBSERVED, TEST, K)
    assert_gradients(gp, rel=1e-4, abs=1e-6)
    values, p = gp.sample_functions(3000, seed=0)(TEST), gp.predict(TEST)
    free = graphs.kernels.FreeModulation(graphs.kernels.Diffusion(1.3), (1.0, 0.5, 2.0))
    learned = GraphGP(GRAPH, free, features=features, num_walkers=8, degree=4, rank=20, seed=1)
    assert_gradients(learned.condition(TRAIN, OBSERVED), rel=1e-4, abs=1e-6)
    if features != "walks":  # whose functions are of the features, too
        deviations = values - p.mean
        assert_mean(deviations, 0.0)
        assert_mean((deviations[:, :, None] * deviations[:, None]).reshape(3000, -1), p.covariance.ravel())


@st.composite
def problems(draw):
    """Return a small graph, weighted, perhaps in parts and with isolated nodes, and observations, perhaps repeated."""
    count = draw(st.integers(3, 14))
    pairs = [(a, b) for a in range(count) for b in range(a)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=30))
    weights = draw(st.lists(st.floats(0.05, 20), min_size=len(edges), max_size=len(edges)))
    nodes = draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=20))
    y = draw(st.lists(st.floats(-10, 10), min_size=len(nodes), max_size=len(nodes)))
    return graphs.Graph.from_edges(edges, weights, nodes=range(count)), nodes, np.array(y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@settings(max_examples=40, deadline=None, derandomize=True)
@given(problem=problems(), features=st.sampled_from(["exact", "chebyshev", "spectrum"]))
def test_any_graph_and_any_observations_match_dense_algebra(problem, features):
    graph, nodes, y = problem
    y = y + np.arange(len(y)) if np.ptp(y) < 1e-6 else y
    gp = GraphGP(graph, features=features, degree=3, rank=2, seed=0).condition(nodes, y)
    kernel = gp.fitted_kernel
    made = {
        "chebyshev": lambda: graphs.chebyshev_features(graph, degree=3),
        "spectrum": lambda: graphs.spectral_features(graph, rank=2),
    }
    if features == "exact":
        K = function_of(graph, kernel.spectral)
    else:
        phi = made[features]().features(kernel)
        K = (phi @ phi.T).toarray()
    check(gp, nodes, y, range(graph.num_nodes), K)


# --- fits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("features", ["exact", pytest.param("walks", marks=pytest.mark.slow)])
def test_fitting_finds_the_field(features):
    gp = GraphGP(GRAPH, features=features, num_walkers=64, seed=0).fit(TRAIN, OBSERVED)
    assert gp.fit_report.converged
    assert metrics.rmse(FIELD[TEST], gp.predict(TEST)) < 0.5 * FIELD[TEST].std()
    assert (
        gp.log_marginal_likelihood()
        > GraphGP(GRAPH, features="exact").condition(TRAIN, OBSERVED).log_marginal_likelihood() - 5
    )
    assert gp.exact().hyperparameters.lengthscale.item() == gp.hyperparameters.lengthscale.item()
    assert gp.exact().features == "exact"


@pytest.mark.slow
def test_automatic_features_are_those_of_the_advice(limits):
    assert GraphGP(GRAPH).features == "exact"
    limits(max_exact_nodes=10)
    gp = GraphGP(GRAPH, num_walkers=16, seed=0).fit(TRAIN, OBSERVED)
    assert gp.features == gp.advice.best.features
    assert {candidate.features for candidate in gp.advice.candidates} == {"walks", "chebyshev", "spectrum"}
    mean, advice = gp.predict(TEST).mean, gp.advice
    with pytest.raises(KeyboardInterrupt):  # a fit that fails leaves the features as they were
        gp.fit(TRAIN[:20], OBSERVED[:20], callback=lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    assert gp.advice is advice
    np.testing.assert_array_equal(gp.predict(TEST).mean, mean)
    long = function_of(GRAPH, lambda x: np.exp(-72 * x))  # another kernel needs other features
    y = 5 * np.linalg.cholesky(long + 1e-9 * np.eye(72)) @ np.random.default_rng(1).standard_normal(72)
    gp = GraphGP(GRAPH, num_walkers=4, seed=0).fit(
        TRAIN, y[TRAIN] + 0.01 * np.random.default_rng(2).standard_normal(50)
    )
    assert gp.features == "spectrum"
    assert [stage.name for stage in gp.fit_report.stages].count("all rows") == 2


@pytest.mark.slow
def test_noise_has_a_prior_and_infinite_variances_are_named():
    alone = np.arange(0, 72, 3)  # without neighbors among them: noise and kernel can hardly be told apart
    y = np.random.default_rng(1).standard_normal(24)
    free, kept = (GraphGP(GRAPH, priors=priors).fit(alone, y) for priors in ({"noise": None}, {}))
    assert free.hyperparameters.noise.item() < 1e-3 * np.var(y) < 10 * kept.hyperparameters.noise.item()
    own = GraphGP(GRAPH, priors={"noise": torch.distributions.LogNormal(-5.0, 0.01)}).fit(alone, y)
    assert own.hyperparameters.noise.item() == pytest.approx(np.exp(-5), rel=0.1)
    kernel = graphs.kernels.RegularizedLaplacian(2, 5.0)
    with pytest.warns(graphs.InfiniteVarianceWarning, match="p_halt = 0.3"):
        GraphGP(GRAPH, kernel, features="walks", p_halt=0.3, seed=0).condition(TRAIN, OBSERVED)


# --- observations --------------------------------------------------------------------------------


def test_missing_values_are_left_out():
    y, noise = OBSERVED.copy(), np.linspace(0.1, 1, 50)
    y[[3, 17]] = np.nan
    kept = np.setdiff1d(np.arange(50), [3, 17])
    gp = GraphGP(GRAPH).condition(TRAIN, y, noise=noise)
    same = GraphGP(GRAPH).condition(TRAIN[kept], OBSERVED[kept], noise=noise[kept])
    np.testing.assert_array_equal(gp.predict(TEST).mean, same.predict(TEST).mean)
    assert gp.update(list(TEST[:2]), [1.0, np.nan]).num_observations == 49
    both = np.stack([y, y], axis=1)
    assert GraphGP(GRAPH).condition(TRAIN, both).num_observations == 48
    both[7, 0] = np.nan
    with pytest.raises(rfgp.DataError, match=r"all outputs or none.*row 7"):
        GraphGP(GRAPH).condition(TRAIN, both)


def test_labels_isolated_nodes_and_single_observations():
    g = graphs.Graph.from_edges([("a", "b"), ("b", "c"), ("c", "d")], nodes=["alone", *"abcd"])
    with pytest.warns(graphs.DisconnectedWarning, match="2 connected components, 1 of them without"):
        gp = GraphGP(g, features="exact").condition(["a", "c", "a"], [1.0, 2.0, 1.1])  # a node may be observed twice
    p = gp.predict(["d", "alone"])
    np.testing.assert_allclose(p.mean[1], gp.hyperparameters.mean.item())
    np.testing.assert_allclose(p.variance[1], gp.hyperparameters.outputscale.item())
    assert isinstance(
        GraphGP(GRAPH).condition(torch.as_tensor(TRAIN), OBSERVED).predict(torch.as_tensor(TEST)).mean, torch.Tensor
    )
    known = GraphGP(GRAPH, features="exact").condition(TRAIN, OBSERVED)
    noise = known.hyperparameters.noise.item()
    assert known.condition([0], [90.0]).hyperparameters.noise.item() == noise


@pytest.mark.parametrize("features", ["exact", pytest.param("walks", marks=pytest.mark.slow), "precision"])
def test_nodes_of_grids_are_tuples_or_positions(features):
    grid, kernel = graphs.Graph.from_grid((6, 7)), graphs.kernels.RegularizedLaplacian(2, 1.0)
    positions, y = np.arange(0, 42, 3), np.sin(np.arange(14.0))
    tuples = [grid.labels[i] for i in positions]
    expected = np.asarray(
        GraphGP(grid, kernel, features=features, seed=0).condition(positions, y).predict(range(42)).mean
    )
    for nodes in (tuples, np.array(tuples), torch.tensor(tuples), torch.as_tensor(positions)):
        gp = GraphGP(grid, kernel, features=features, seed=0).condition(nodes, y)
        np.testing.assert_array_equal(gp.predict(list(grid.labels)).mean, expected)
    first, second = (
        GraphGP(grid, kernel, features=features, seed=0).condition(nodes[:9], y[:9]).update(nodes[9:], y[9:])
        for nodes in (tuples, positions)
    )
    np.testing.assert_array_equal(first.predict([(5, 6), (0, 1)]).mean, second.predict([41, 1]).mean)


# --- diagnoses -----------------------------------------------------------------------------------

LONG_GRID = graphs.Graph.from_grid((25, 25))
WAVE, SEEN = (
    np.sin(np.arange(625) // 25 / 8) + np.cos(np.arange(625) % 25 / 9),
    np.random.default_rng(3).permutation(625)[:500],
)


@pytest.mark.slow
def test_poor_walks_are_named_with_the_remedy():
    """A smooth field with little noise."""
    gp, rng = GraphGP(LONG_GRID, features="walks", num_walkers=16, seed=0), np.random.default_rng(0)
    with pytest.warns(rfgp.PoorFeaturesWarning, match=r"differ by .* nats per node .*features='auto'"):
        gp.fit(SEEN, WAVE[SEEN] + 1e-3 * rng.standard_normal(500))
    found = gp.diagnose()
    assert (found.is_poor, found.num_held_out) == (True, 64)
    assert found.divergence > 0.1
    assert found.walk_variance > 1


@pytest.mark.slow
def test_automatic_features_are_good(limits):
    limits(max_exact_nodes=10)
    y = WAVE[SEEN] + 0.05 * np.random.default_rng(0).standard_normal(500)
    gp = GraphGP(LONG_GRID, num_walkers=32, seed=0).fit(SEEN, y)  # a warning would be an error
    assert gp.features != "walks"
    assert gp.diagnose().kernel_error < 0.1
    some = np.arange(0, 625, 5)
    assert metrics.kl_divergence(gp.exact().predict(some), gp.predict(some)) < 1


@pytest.mark.slow
def test_walk_variance_is_that_of_other_draws():
    kernel = graphs.kernels.Diffusion(3.0)
    gp = GraphGP(LONG_GRID, kernel, features="walks", num_walkers=4, exact_hops=0, seed=0).condition(
        SEEN[:100], WAVE[SEEN[:100]]
    )
    phis = [graphs.sample_walks(LONG_GRID, num_walkers=4, exact_hops=0, seed=s).features(kernel) for s in range(40)]
    second = sum(phi.power(2).sum(1) for phi in phis) / 40
    variance = (second - (sum(phis) / 40).power(2).sum(1)).mean() * 40 / 39
    expected = variance * gp.hyperparameters.outputscale.item() / gp.hyperparameters.noise.item()
    assert gp.diagnose().walk_variance == pytest.approx(expected, rel=0.3)
    exact = GraphGP(GRAPH, features="exact").condition(TRAIN, OBSERVED).diagnose()
    assert (exact.is_poor, exact.divergence, exact.kernel_error) == (False, None, None)
    assert 0.05 < exact.calibration < 20


# --- terms on nodes beside others, and products ---------------------------------------------------

FEW = rfgp.RandomFeatures(8)
SLOPE = k.Linear("pressure", origin=2.0, name="slope")
ALONE = {
    "chebyshev": ("diffusion", rfgp.Chebyshev(30), 1e-6),
    "taylor": ("diffusion", rfgp.Taylor(40), 1e-6),
    "spectrum": ("diffusion", rfgp.TruncatedSpectrum(40), 1e-6),
    "rational": (graphs.kernels.Matern(nu=1.5, kappa=1.5), rfgp.RationalPrecision(6), 1e-2),
    "precision": (graphs.kernels.Matern(nu=2, kappa=1.5), rfgp.SparsePrecision(), 1e-6),
    "walks": ("diffusion", rfgp.RandomWalks(500, exact_hops=6), 0.1),
}


@pytest.mark.parametrize("name", ALONE)
def test_terms_on_nodes_are_near_the_exact_kernel(name):
    kernel, approximation, atol = ALONE[name]
    exact = (
        rfgp.GP(k.Nodes(RING, kernel, name="nodes") + SLOPE, start={"noise": 0.1}, seed=0).condition(ROWS, Y).exact()
    )
    gp = exact.with_approximation({"nodes": approximation})
    found, expected = gp.predict(NEW), exact.predict(NEW)
    assert gp.log_marginal_likelihood().item() == pytest.approx(exact.log_marginal_likelihood().item(), abs=10 * atol)
    for one, other in [(found, expected), *((found.terms[name], expected.terms[name]) for name in ("nodes", "slope"))]:
        np.testing.assert_allclose(one.mean, other.mean, atol=atol)
        np.testing.assert_allclose(one.std, other.std, atol=atol)
    if name != "walks":
        assert_gradients(gp, rel=1e-4, abs=1e-4)


OTHERS = {
    "rbf": lambda: k.RBF("hour", lengthscale=5.0),
    "periodic": lambda: k.Periodic("hour", 24.0),
    "linear": lambda: k.Linear("pressure"),
    "group": lambda: k.Group("sensor"),
    "matern of each group": lambda: k.Matern(("hour", "pressure"), nu=1.5) * k.Group("sensor"),
}
WAYS = {
    "walks": rfgp.RandomWalks(4, columns=FEW),
    "chebyshev": rfgp.Chebyshev(4, columns=FEW),
    "taylor": rfgp.Taylor(3, columns=FEW),
    "spectrum": rfgp.TruncatedSpectrum(6, columns=rfgp.RandomFeatures(4, coupling="iid")),
}
PAIRS = [("rbf", "walks"), ("periodic", "chebyshev"), ("linear", "taylor"), ("group", "spectrum")]
PAIRS += [
    ("matern of each group", "walks"),
    ("rbf", "spectrum"),
    ("group", "walks"),
    ("matern of each group", "chebyshev"),
]
BOTH = {key: np.concatenate([ROWS[key], NEW[key]]) for key in ROWS}
N = len(Y)


def product(other="rbf", way="walks", y=Y, slope=True, seed=0, **options):
    """Return a conditioned model of a product on nodes, and a linear term."""
    kernel = (k.Nodes(RING, "diffusion") * OTHERS[other]()).named("product")
    chosen = {"product": WAYS.get(way, way)} | ({"slope": rfgp.Exact()} if slope else {})
    start = {} if "likelihood" in options else {"noise": 0.2}
    gp = rfgp.GP(kernel + SLOPE if slope else kernel, approximation=chosen, start=start, seed=seed, **options)
    return gp.condition(ROWS, y)


def check_product(gp, digits=1e-6):
    """The posterior is that of dense algebra with the prior covariance of the features."""
    h = gp.hyperparameters
    with torch.no_grad():
        K = gp.prior_covariance(BOTH).numpy()
    density, mean, covariance = dense(K, Y, h.noise.item(), h.mean.item())
    found = gp.predict(NEW)
    np.testing.assert_allclose(found.mean, mean[N:], atol=digits)
    np.testing.assert_allclose(found.variance, covariance.diagonal()[N:], atol=10 * digits)
    if digits <= 1e-6:
        assert gp.log_marginal_likelihood().item() == pytest.approx(density, abs=1e-5)
        np.testing.assert_allclose(sum(found.terms[name].mean for name in found.terms) + h.mean.item(), found.mean)


@pytest.mark.parametrize(
    ("other", "way"),
    [pytest.param(*pair, marks=[pytest.mark.slow] * (pair[1] == "walks" and pair[0] != "group")) for pair in PAIRS],
)
def test_products_on_nodes_match_dense_algebra(other, way):
    gp = product(other, way)
    check_product(gp)
    assert_gradients(gp, rel=1e-3, abs=1e-4)


def test_products_by_conjugate_gradients(limits):
    limits(max_dense=10)
    for way in ("walks", "chebyshev"):
        check_product(product("matern of each group", way), 1e-5)


@pytest.mark.slow
def test_prior_of_products_is_unbiased():
    """Over draws of walks and frequencies, between different nodes."""
    gp, near = product(way=rfgp.Exact(), slope=False), {key: value[:8] for key, value in ROWS.items()}
    near |= {"node": np.array(["n0", "n1", "n2", "n3"] * 2), "hour": np.arange(8) / 4}
    way, samples = rfgp.RandomWalks(2, exact_hops=0, columns=rfgp.RandomFeatures(2, coupling="iid")), []
    with torch.no_grad():
        exact = gp.prior_covariance(near).numpy()
        for seed in range(200):
            samples.append(product(way=way, slope=False, seed=seed).prior_covariance(near).numpy())
    apart = (near["node"][:, None] != near["node"]) & np.triu(np.ones((8, 8), bool), 1)
    assert_mean_of_normals(np.array(samples)[:, apart], exact[apart])


@pytest.mark.parametrize("most", [10, 4000])
def test_drawn_functions_of_products_have_the_moments_of_the_posterior(most, limits):
    limits(max_dense=most)
    gp = product(slope=False)
    drawn, found = gp.sample_functions(2000, seed=1)(NEW), gp.predict(NEW)
    assert_mean(drawn, found.mean)
    assert_mean((drawn - found.mean) ** 2, found.variance)


def test_draws_are_keyed_by_seeds_and_kept_by_updates():
    def prior(gp):
        with torch.no_grad():
            return gp.prior_covariance(ROWS).numpy()

    walks = {seed: rfgp.RandomWalks(4, seed=seed, exact_hops=0, columns=FEW) for seed in (1, 2)}
    other = rfgp.RandomWalks(4, seed=1, exact_hops=0, columns=rfgp.RandomFeatures(8, seed=5))
    first, second, third = (product(way=way) for way in (walks[1], walks[2], other))
    for same in (product(way=walks[1]), first.update(NEW, np.zeros(8))):
        np.testing.assert_array_equal(prior(same), prior(first))
    assert np.abs(prior(first) - prior(second)).max() > 0.01
    assert np.abs(prior(first) - prior(third)).max() > 0.01


def test_new_levels_nodes_and_outputs_of_products():
    gp, new = (
        product("matern of each group", "spectrum"),
        {**NEW, "sensor": np.array(["z"] * 4 + ["y"] * 2 + ["a", "b"])},
    )
    h, nodes = gp.hyperparameters, RING.index(list(new["node"]))
    kernel = graphs.kernels.Diffusion(h["product.nodes.lengthscale"].item())
    phi = graphs.spectral_features(RING, rank=6).features(kernel).toarray()[nodes]
    matern = k.Matern(("hour", "pressure"), nu=1.5, lengthscale=h["product.matern.lengthscale"].tolist()).matrix(new)
    same = new["sensor"][:, None] == new["sensor"]
    expected = h["product.outputscale"].item() * (phi @ phi.T) * matern.numpy() * same
    found = gp.predict(new).terms["product"].covariance
    np.testing.assert_allclose(found[:6, :6], expected[:6, :6], atol=1e-6)  # the prior: these levels are new
    outputs = product(y=np.column_stack([Y, -2 * Y[::-1]]))
    assert outputs.predict(NEW).mean.shape == (8, 2)
    counts = product(y=np.round(np.exp(Y / 3)), likelihood="poisson")
    assert np.isfinite(counts.predict({**NEW, "node": [f"n{i}" for i in range(25, 33)]}).mean).all()


@pytest.mark.slow
def test_large_graphs_are_planned_with_walks_or_a_precision():
    graph, rng = ring(2500), np.random.default_rng(0)
    rows = {"node": [f"n{i}" for i in rng.integers(0, 2500, 60)], "t": rng.normal(size=60)}
    smooth = graphs.kernels.Matern(nu=2, kappa=1.5)
    for kernel, expected in (
        (k.Nodes(graph, "diffusion"), rfgp.RandomWalks()),
        (k.Nodes(graph, "diffusion") * k.RBF("t"), rfgp.RandomWalks()),
        (k.Nodes(graph, smooth) * k.Linear("t"), rfgp.SparsePrecision()),
    ):
        gp = rfgp.GP(kernel.named("f"), seed=0).condition(rows, rng.normal(size=60))
        assert type(gp.terms["f"].approximation) is type(expected)


# --- refusals ------------------------------------------------------------------------------------


def fit(kernel, approximation):
    return lambda: rfgp.GP(kernel, approximation=approximation, seed=0).condition(ROWS, Y)


REFUSED = {
    "features": (lambda: GraphGP(GRAPH, features="fourier"), "features"),
    "a degree": (lambda: GraphGP(GRAPH, features="chebyshev", degree=-1), "degree"),
    "a kernel": (lambda: GraphGP(GRAPH, "heat"), "heat"),
    "no walkers": (lambda: GraphGP(GRAPH, features="walks", num_walkers=0), "num_walkers"),
    "a halting probability": (lambda: GraphGP(GRAPH, features="walks", p_halt=2.0), "halt"),
    "a graph of networkx": (lambda: GraphGP(nx.path_graph(3)), "from_networkx"),
    "an unknown node": (
        lambda: GraphGP(graphs.Graph.from_edges([("n1", "n2")])).condition(["n1", "x"], [1.0, 2.0]),
        "'x'",
    ),
    "a node off the grid": (lambda: GraphGP(GRAPH).condition(TRAIN, OBSERVED).predict([(9, 0)]), "node"),
    "constants": (lambda: GraphGP(GRAPH).fit(TRAIN, np.ones(50)), "constant"),
    "infinite targets": (lambda: GraphGP(GRAPH).fit(TRAIN, OBSERVED * np.inf), "finite"),
    "missing targets": (lambda: GraphGP(GRAPH).fit(TRAIN, OBSERVED * np.nan), "50 missing"),
    "one row": (lambda: GraphGP(GRAPH).condition([0], [1.0]), "at least two"),
    "no data": (lambda: GraphGP(GRAPH).exact(), "fit"),
    "walks without nodes": (fit(k.RBF("hour"), rfgp.RandomWalks(4)), "nodes"),
    "poles of a diffusion": (fit(k.Nodes(RING), rfgp.RationalPrecision()), "resolvent"),
    "a precision of a diffusion": (fit(k.Nodes(RING), rfgp.SparsePrecision()), "sparse precision"),
    "frequencies of nodes": (fit(k.Nodes(RING), rfgp.RandomFeatures(4)), "spectral measure"),
    "poles of a product": (fit(k.Nodes(RING) * k.RBF("hour"), rfgp.RationalPrecision(2)), "multiplied"),
    "nodes times roads": (fit(k.Nodes(RING) * k.Roads(network()), rfgp.RandomWalks()), "spectral measure"),
    "too many functions": (
        fit(k.Nodes(RING) * k.RBF("hour") * k.Group("sensor"), rfgp.RandomWalks(columns=rfgp.RandomFeatures(400))),
        "functions",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_arguments_are_refused(name):
    call, word = REFUSED[name]
    with pytest.raises((rfgp.RfgpError, graphs.GraphError), match=word):
        call()
