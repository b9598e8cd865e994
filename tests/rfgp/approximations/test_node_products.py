"""Products of a kernel on nodes and kernels on columns: features against dense algebra, draws, levels and refusals."""

import copy
import pickle
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from checks import fails
from field_cases import NEW, ROWS, Y, network, ring
from planting import planted
from scipy import stats
from twins import leaves_of

import graphs
import rfgp
from rfgp import kernels as k
from rfgp.blocks import SparseProductBlock, sparse_products
from rfgp.solvers.iterative import IterativeSolver, products
from rfgp.sparse import KhatriRao, khatri_rao

GRAPH = ring()
OTHERS = {
    "rbf": lambda: k.RBF("hour", lengthscale=5.0),
    "periodic": lambda: k.Periodic("hour", 24.0),
    "linear": lambda: k.Linear("pressure"),
    "group": lambda: k.Group("sensor"),
    "matern of each group": lambda: k.Matern(("hour", "pressure"), nu=1.5) * k.Group("sensor"),
}
FEW = rfgp.RandomFeatures(8)
WAYS = {
    "walks": rfgp.RandomWalks(4, columns=FEW),
    "chebyshev": rfgp.Chebyshev(4, columns=FEW),
    "taylor": rfgp.Taylor(3, columns=FEW),
    "spectrum": rfgp.TruncatedSpectrum(6, columns=rfgp.RandomFeatures(4, coupling="iid")),
}
BOTH = {key: np.concatenate([ROWS[key], NEW[key]]) for key in ROWS}
N, M = len(Y), len(NEW["node"])
FALSE_ALARMS = 1e-3
"""The rate at which the test of unbiasedness fails without an error, over all entries."""


def product_of(other):
    return (k.Nodes(GRAPH, "diffusion") * OTHERS[other]()).named("product")


def model(other="rbf", way="walks", y=Y, rows=ROWS, **options):
    """Return a conditioned model of a product and a linear term."""
    chosen = {"product": WAYS[way] if isinstance(way, str) else way, "slope": rfgp.Exact()}
    start = {} if "likelihood" in options else {"noise": 0.2}
    kernel = product_of(other) + k.Linear("pressure", name="slope")
    return rfgp.GP(kernel, approximation=chosen, start=start, seed=0, **options).condition(rows, y)


def features_of(state, inputs):
    """Return the features of the two terms at inputs (n, D), products multiplied out row by row, with gradients."""
    spec, values = state.spec, state.hyperparameters
    known = {name: values.standardized(name) for name in values.space.quantities}
    product = spec.term_priors[0]
    theta = torch.stack([known[path].double() for path in product.paths])
    alone, one = product.features.prior(theta, torch.ones((), dtype=torch.float64)), torch.ones(())
    (columns,) = product.columns.at(known, spec.columns).weights
    place = next(places[0] for factor, places, _ in product.term.parts() if factor.nodes is not None)
    positions = inputs[:, place].long()
    if alone.graph_features:
        block = alone.graph_features[0]
        values, pattern = block.at(positions, False, *block.parameters)
        rows = np.repeat(np.arange(len(inputs)), np.diff(pattern.indptr))
        places = torch.from_numpy(rows), torch.from_numpy(np.asarray(pattern.indices).astype(np.int64))
        nodes = torch.zeros(pattern.shape, dtype=torch.float64).index_put(places, values)
    else:
        nodes = alone.weights[0].scaled(positions)
    psi = columns.scaled(inputs.double()) * one
    own = torch.stack([torch.kron(a, b) for a, b in zip(nodes, psi, strict=True)])
    (slope,) = spec.term_priors[1].at(known, spec.columns).weights
    return own, slope.scaled(inputs.double())


def inputs_of(gp, rows):
    return gp.state.points(rows)[0]


def check_density(gp):
    """The density and its gradient in every hyperparameter are those of the multiplied features, to 1e-8."""
    rows, (state, raw) = gp.state.require_rows(purpose="a test"), leaves_of(gp)
    phi, values = torch.cat(features_of(state, rows.inputs), dim=1), state.hyperparameters
    noise, mean = values.standardized("noise").double(), values.standardized("mean").double()
    covariance = phi @ phi.mT + noise * torch.eye(N, dtype=torch.float64)
    dense = torch.distributions.MultivariateNormal(torch.zeros(N, dtype=torch.float64), covariance)
    expected = dense.log_prob((rows.targets - mean)[:, 0])
    found = state.infer(rows).log_marginal_likelihood()
    np.testing.assert_allclose(found.item(), expected.item(), rtol=1e-8)
    assert len(raw) >= 4
    pairs = (torch.autograd.grad(value, list(raw.values()), allow_unused=True) for value in (found, expected))
    for name, one, other in zip(raw, *pairs, strict=True):
        assert (one is None) == (other is None), name
        if one is not None:
            np.testing.assert_allclose(one, other, atol=1e-8 * max(1.0, float(other.abs().max())), err_msg=name)


def check_predictions(gp, mean_digits=1e-8, digits=1e-8):
    """Means and variances of the sum and of each term are those of the multiplied features."""
    inputs, rows = inputs_of(gp, BOTH), gp.state.require_rows(purpose="a test")
    with torch.no_grad():
        parts = [phi.numpy() for phi in features_of(gp.state, inputs)]
    noise, mean = (gp.state.hyperparameters.standardized(name).numpy() for name in ("noise", "mean"))
    kernels = [phi @ phi.T for phi in parts]
    total = sum(kernels)[:N, :N] + noise * np.eye(N)
    solved = np.linalg.solve(total, rows.targets.numpy() - mean)
    found, y = gp.predict(NEW), gp.state.scaling.targets
    scale, shift = np.atleast_1d(y.scale.numpy()), np.atleast_1d(y.location.numpy())
    for name, kernel in zip(("product", "slope", None), (*kernels, sum(kernels)), strict=True):
        one = found if name is None else found.terms[name]
        expected = (kernel[N:, :N] @ solved) * scale
        if name is None:
            expected = expected + mean * scale + shift
        left = kernel[N:, N:] - kernel[N:, :N] @ np.linalg.solve(total, kernel[:N, N:])
        np.testing.assert_allclose(np.asarray(one.mean).reshape(M, -1), expected, atol=mean_digits)
        variance = np.diag(left)[:, None] * scale**2
        np.testing.assert_allclose(one.std.reshape(M, -1) ** 2, variance, atol=digits)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("other", OTHERS)
def test_product_matches_multiplied_features(other, way):
    gp = model(other, way)
    check_density(gp)
    check_predictions(gp)


def test_conjugate_gradients_match_multiplied_features(limits):
    limits(max_dense=10)
    for way in ("walks", "chebyshev"):
        gp = model("matern of each group", way)
        assert isinstance(gp.state.infer(gp.state.require_rows(purpose="a test")), IterativeSolver)
        check_predictions(gp, 1e-7, 1e-5)


def check_score(gp):
    """The gradient that draws are read for is that of dense algebra, in both factors and the variance."""
    rows, rng = gp.state.require_rows(purpose="a test"), np.random.default_rng(3)
    left, signs = torch.from_numpy(rng.normal(size=(N, 3))), torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)
    state, raw = leaves_of(gp)
    phi = features_of(state, rows.inputs)[0]
    expected = 0.5 * ((phi.mT @ left).square() * signs).sum()
    found = products.ProductTerm(state.prior().graph_features[0], rows.inputs).score(left, signs)
    options = {"materialize_grads": True, "allow_unused": True}
    pairs = [torch.autograd.grad(value, list(raw.values()), **options) for value in (found, expected)]
    for one, other in zip(*pairs, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-8 * max(1.0, float(other.abs().max())))


@pytest.mark.parametrize("other", OTHERS)
def test_score_of_draws_matches_dense_gradient(other):
    check_score(model(other))


def test_products_of_matrices_agree_in_all_forms(monkeypatch):
    rng = np.random.default_rng(4)
    block, x = model().state.prior().graph_features[0], inputs_of(model(), ROWS)
    dense = block.features(x, keep=False).matrix().toarray()
    v, u = rng.normal(size=(N, 3)), rng.normal(size=(dense.shape[1], 3))
    for entries, most, speed in ((2**22, 2**13, 4), (60, 0, 1e9), (60, 0, 0)):
        monkeypatch.setattr(khatri_rao, "ENTRIES", entries)
        monkeypatch.setattr(products, "MAX_DENSE_GRAM", most)
        monkeypatch.setattr(products, "DENSE_SPEED", speed)
        with torch.no_grad():
            matrix = block.factors(x, keep=False).matrix()
        part = products.KhatriRaoPart(matrix, 1.5)
        np.testing.assert_allclose(part.root_times(torch.from_numpy(u)), 1.5 * dense @ u, atol=1e-10)
        np.testing.assert_allclose(part.transposed_root_times(torch.from_numpy(v)), 1.5 * dense.T @ v, atol=1e-10)
        np.testing.assert_allclose(part.times(torch.from_numpy(v)), 2.25 * dense @ (dense.T @ v), atol=1e-9)
        np.testing.assert_allclose(matrix.squares(), np.square(dense).sum(1), atol=1e-10)


def test_a_full_gram_of_sparse_rows_is_not_formed():
    """The products of 9,000 rows with 60 entries each have 27 million entries, which are 330 MB."""
    rng, n = np.random.default_rng(0), 9000
    columns = rng.integers(0, n, (n, 60))
    left = sp.csr_array((np.ones(columns.size), columns.ravel(), np.arange(n + 1) * 60), shape=(n, n))
    left.sum_duplicates()
    part = products.KhatriRaoPart(KhatriRao(left, np.arange(n), rng.normal(size=(n, 2))), 1.0)
    v = torch.from_numpy(rng.normal(size=(n, 1)))
    tracemalloc.start()
    found = part.times(v)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1e8
    np.testing.assert_allclose(found, part.root_times(part.transposed_root_times(v)))


FAULTS = {
    "another row's node": (sparse_products, "rows.reshape(-1)", "np.roll(rows.reshape(-1), 1)", check_density),
    "another row's columns": (
        sparse_products,
        "(inputs.double(), *self.others)",
        "(inputs.double().flip(0), *self.others)",
        check_density,
    ),
    "a gram of nodes alone": (
        khatri_rao,
        "small[indices] * (self.right @ other.right.mT)",
        "small[indices]",
        check_density,
    ),
    "the gradient in columns": (products, "self._phi.left @ weighted", "self._phi.left @ -weighted", check_score),
    "the gradient in nodes": (products, "in_values += sampled", "in_values -= sampled", check_score),
}


@pytest.mark.parametrize(("module", "right", "wrong", "check"), FAULTS.values(), ids=FAULTS)
def test_planted_errors_are_seen(module, right, wrong, check):
    with planted(module, right, wrong):
        assert fails(check, model())


def test_product_kernel_is_unbiased():
    """z-scores of entries between different nodes over 300 draws, at a common rate of false alarms of 1e-3."""
    near = {"node": np.array(["n0", "n1", "n2", "n3"] * 2), "hour": np.arange(8) / 4, "pressure": np.arange(8.0)}
    gp = model(way=rfgp.Exact())
    near = {key: near.get(key, value[:8]) for key, value in ROWS.items()}
    spec, values = gp.spec, gp.state.hyperparameters
    data, x = spec.term_data(values, N)[0], inputs_of(gp, near)
    approximation = rfgp.RandomWalks(2, exact_hops=0, columns=rfgp.RandomFeatures(2, coupling="iid"))
    with torch.no_grad():
        exact = gp.prior_covariance(near)
        slope = gp.state.prior().of(["slope"]).kernel(x, x)
        draws = [approximation.build(data, seed).at(data.values, spec.columns).kernel(x, x) for seed in range(300)]
        scale = float(gp.state.scaling.targets.scale) ** 2
    nodes = x[:, gp.spec.terms[0].column_indices[0][0]]
    one, other = ((nodes[:, None] != nodes) & torch.ones(8, 8).triu(1).bool()).nonzero().T
    samples = torch.stack(draws)[:, one, other].numpy()
    expected = (exact / scale - slope)[one, other].numpy()
    scores = (samples.mean(0) - expected) / (samples.std(0, ddof=1) / len(samples) ** 0.5)
    most = stats.t.isf(FALSE_ALARMS / 2 / len(scores), len(samples) - 1)
    assert np.abs(scores).max() < most
    wrong = (samples.mean(0) - 1.5 * expected) / (samples.std(0, ddof=1) / len(samples) ** 0.5)
    assert np.abs(wrong).max() > most


def test_seeds_of_nodes_and_columns_are_independent():
    def drawn(approximation):
        product = model(way=approximation).spec.term_priors[0]
        positions = torch.arange(40)
        walks = (
            product.features.prior(torch.ones(1).double(), torch.ones(()))
            .graph_features[0]
            .features(positions, keep=False)
        )
        return walks.matrix().toarray(), product.columns.parts[0].feature_map.frequencies.dense().numpy()

    options = {"exact_hops": 0, "columns": rfgp.RandomFeatures(8, coupling="iid")}
    first, again, other = (drawn(rfgp.RandomWalks(4, seed=seed, **options)) for seed in (1, 1, 2))
    own = drawn(rfgp.RandomWalks(4, seed=1, exact_hops=0, columns=rfgp.RandomFeatures(8, coupling="iid", seed=5)))
    for one, two, three in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(one, two)
        assert np.abs(one - three).max() > 0.01
    np.testing.assert_array_equal(first[0], own[0])
    assert np.abs(first[1] - own[1]).max() > 0.01


def test_large_graphs_are_planned_with_walks():
    graph, rng = ring(2500), np.random.default_rng(0)
    rows = {"node": [f"n{i}" for i in rng.integers(0, 2500, 60)], "t": rng.normal(size=60)}
    y = rng.normal(size=60)
    gp = rfgp.GP((k.Nodes(graph, "diffusion") * k.RBF("t")).named("f"), seed=0).condition(rows, y)
    assert gp.terms["f"].approximation == rfgp.RandomWalks()
    assert "times 64 functions" in gp.terms["f"].cost.note
    assert "non-zeros" in gp.terms["f"].cost.note
    solved = k.Nodes(graph, graphs.kernels.Matern(nu=2, kappa=1.5)) * k.Linear("t")
    gp = rfgp.GP(solved.named("f"), seed=0).condition(rows, y)
    assert gp.terms["f"].approximation == rfgp.SparsePrecision()


@pytest.mark.parametrize("way", ["walks", "spectrum"])
def test_new_levels_have_the_prior_of_their_features(way):
    gp, new = model("matern of each group", way), {**NEW, "sensor": np.array(["z"] * 4 + ["y"] * 2 + ["a", "b"])}
    found = gp.predict(new).terms["product"]
    x = inputs_of(gp, new)
    place = gp.spec.terms[0].column_indices[0][0]
    with torch.no_grad():
        block = gp.spec.term_priors[0].features.prior(torch.tensor([2.0]).double(), torch.ones(()).double())
        nodes = block.kernel(x[:, place].long(), x[:, place].long()).numpy()
    values, scale = gp.hyperparameters, float(gp.state.scaling.targets.scale)
    matern = k.Matern(("hour", "pressure"), nu=1.5, lengthscale=values["product.matern.lengthscale"].tolist()).matrix(
        new
    )
    same = new["sensor"][:, None] == new["sensor"]
    expected = values["product.outputscale"].item() * nodes * matern.numpy() * same
    np.testing.assert_allclose(found.covariance[:6, :6], expected[:6, :6], atol=1e-8 * scale**2)
    np.testing.assert_allclose(found.std[:6] ** 2, np.diag(expected)[:6], atol=1e-8 * scale**2)


def test_fit_tunes_walks_and_updates_keep_draws():
    gp = rfgp.GP(product_of("periodic") + k.Linear("pressure", name="slope"), approximation=WAYS["walks"], seed=0)
    gp = gp.fit(ROWS, Y)
    assert np.isfinite(gp.predict(NEW).std).all()
    more = gp.update(NEW, np.zeros(M))
    assert more.spec.term_priors[0].has_basis_of(gp.spec.term_priors[0])
    again = gp.with_approximation({"product": rfgp.RandomWalks(4, seed=9, columns=FEW)})
    assert not again.spec.term_priors[0].has_basis_of(gp.spec.term_priors[0])


def test_harmonics_are_redrawn_for_shorter_lengthscales():
    gp = model("periodic")
    data = gp.spec.term_data(gp.state.hyperparameters, N)[0]
    prior, approximation = gp.spec.term_priors[0], WAYS["walks"]
    assert approximation.rebuild(data, 0, prior) is prior
    short = {**data.values, "product.periodic.lengthscale": torch.tensor(0.2).double()}
    changed = approximation.rebuild(type(data)(data.term, data.columns, N, short), 0, prior)
    assert changed.columns.parts[0].factor.num_harmonics > prior.columns.parts[0].factor.num_harmonics
    longer = {**data.values, "product.nodes.lengthscale": torch.tensor(9.0).double()}
    assert approximation.rebuild(type(data)(data.term, data.columns, N, longer), 0, prior) is not None


@pytest.mark.parametrize("most", [10, 4000])
def test_several_outputs_and_other_likelihoods(most, limits):
    limits(max_dense=most)
    gp = model(y=np.column_stack([Y, -2 * Y[::-1]]))
    assert gp.predict(NEW).mean.shape == (M, 2)
    if most > N:  # else the means are those of conjugate gradients
        check_predictions(gp)
    else:
        assert gp.sample_functions(3, seed=1)(NEW).shape == (3, M, 2)
    counts = model(y=np.round(np.exp(Y / 3)), likelihood="poisson")
    assert np.isfinite(counts.predict(NEW).mean).all()


@pytest.mark.parametrize("most", [10, 4000])
def test_drawn_functions_have_the_moments_of_the_posterior(most, limits):
    limits(max_dense=most)
    gp = rfgp.GP(product_of("rbf"), approximation=WAYS["walks"], start={"noise": 0.2}, seed=0).condition(ROWS, Y)
    found, count = gp.predict(NEW), 2000
    drawn = gp.sample_functions(count, seed=1)(NEW).reshape(count, M)
    scores = (drawn.mean(0) - found.mean) / found.std * count**0.5
    ratios = drawn.var(0, ddof=1) / found.std**2 * (count - 1)
    rate = FALSE_ALARMS / 2 / M / 2
    assert np.abs(scores).max() < stats.norm.isf(rate)
    assert stats.chi2(count - 1).ppf(rate) < ratios.min() <= ratios.max() < stats.chi2(count - 1).isf(rate)


def test_new_nodes_and_copies_predict():
    seen = np.isin(ROWS["node"], [f"n{i}" for i in range(20)])
    gp = model(rows={key: value[seen] for key, value in ROWS.items()}, y=Y[seen])
    unseen = {**NEW, "node": np.array([f"n{i}" for i in range(25, 25 + M)])}
    expected = gp.predict(unseen)
    assert np.isfinite(expected.mean).all()
    for other in (copy.deepcopy(gp), pickle.loads(pickle.dumps(gp))):
        np.testing.assert_array_equal(other.predict(unseen).mean, expected.mean)
        np.testing.assert_array_equal(other.predict(unseen).std, expected.std)
    assert isinstance(gp.state.prior().graph_features[0], SparseProductBlock)


@pytest.mark.parametrize(
    ("kernel", "approximation", "message"),
    [
        (k.Nodes(GRAPH) * k.RBF("hour"), rfgp.RationalPrecision(2), r"multiplied by rbf\(hour\)"),
        (k.Nodes(GRAPH) * k.RBF("hour"), rfgp.MeasuredFeatures(), r"multiplied by rbf\(hour\)"),
        (k.Nodes(GRAPH) * k.Roads(network()), rfgp.RandomWalks(), "no spectral measure"),
        (
            k.Nodes(GRAPH) * k.Nodes(GRAPH, "matern"),
            rfgp.RandomWalks(),
            "no factor on the nodes",
        ),
        (k.Nodes(GRAPH) * k.Stationary("hour", spectrum="product-laplace"), rfgp.RandomWalks(), "isotropic"),
        (
            k.Nodes(GRAPH) * k.RBF("hour") * k.Group("sensor"),
            rfgp.RandomWalks(columns=rfgp.RandomFeatures(400)),
            "functions",
        ),
    ],
)
def test_products_that_cannot_be_served_are_named(kernel, approximation, message):
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        rfgp.GP(kernel, approximation=approximation, seed=0).condition(ROWS, Y)
