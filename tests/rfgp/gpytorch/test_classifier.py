"""Classification of nodes: next to samplers and quadrature written here, and what it promises about labels and seeds.

The twins are plain numpy: K from `graphs`, the latent functions by draws with weights.
"""

import copy
import types

import gpytorch
import networkx as nx
import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import logsumexp, softmax

import graphs
import rfgp
from rfgp.gpytorch import GraphClassifier, GraphExactKernel, GraphFeatureKernel, classifier, latent, training
from rfgp.gpytorch.labels import encode

RING = graphs.Graph.from_networkx(nx.cycle_graph(12))
KERNEL = graphs.kernels.Diffusion(2.0)
SCALE, MEAN = 9.0, 0.3
FIXED = ("lengthscale", "outputscale", "mean")
SEEN = np.array([0, 1, 4, 4, 4, 7, 9])
LABELS = np.array([1, 1, 0, 0, 1, 0, 1])


def blocks(sizes=(40, 40, 40), inside=0.2, across=0.005, seed=0):
    """Return a graph of planted clusters, the clusters and some nodes, as many of each."""
    probabilities = np.full((len(sizes), len(sizes)), across) + (inside - across) * np.eye(len(sizes))
    G = nx.stochastic_block_model(sizes, probabilities.tolist(), seed=seed)
    g = graphs.Graph.from_edges(list(G.edges), nodes=list(G.nodes))
    truth = np.repeat(np.arange(len(sizes)), sizes)
    seen = np.concatenate([np.flatnonzero(truth == c)[:6] for c in range(len(sizes))])
    return g, truth, seen


BLOCKS = blocks()


def bernoulli(**options):
    made = GraphClassifier(RING, KERNEL, outputscale=SCALE, mean=MEAN, seed=0, **options)
    return made.fit(SEEN, LABELS, fixed=FIXED)


def probit(f, places=SEEN, labels=LABELS):
    return stats.norm.logcdf((2 * labels - 1) * f[..., places]).sum(-1)


def test_probabilities_are_those_of_weighted_draws():
    """Some thousands of effective draws: errors near .01; a Gaussian for a skewed posterior may be off by .03."""
    root = np.linalg.cholesky(SCALE * KERNEL.exact(RING) + 1e-9 * np.eye(12))
    f = MEAN + np.random.default_rng(0).standard_normal((200_000, 12)) @ root.T
    weights = np.exp(probit(f))
    assert weights.sum() ** 2 / (weights**2).sum() > 3000
    found = bernoulli().predict_proba(np.arange(12))[:, 1]
    np.testing.assert_allclose(found, weights @ stats.norm.cdf(f) / weights.sum(), atol=0.04)
    assert np.ptp(found) > 0.3  # else the comparison says little


def evidence(kernel, places, labels, scale, mean, draws=400_000):
    """Return log p(labels) by draws of the prior, and its standard error."""
    root = np.linalg.cholesky(scale * kernel.exact(RING) + 1e-9 * np.eye(12))
    f = mean + np.random.default_rng(1).standard_normal((draws, 12)) @ root.T
    values = np.exp(probit(f, places, labels))
    return np.log(values.mean()), values.std() / draws**0.5 / values.mean()


def test_the_bound_is_below_the_evidence_and_close():
    """Three observations: the Gaussian family costs a few hundredths of a nat, never less than nothing."""
    places, labels = np.array([0, 1, 6]), np.array([1, 1, 0])
    made = GraphClassifier(RING, KERNEL, outputscale=SCALE, mean=MEAN, seed=0).fit(places, labels, fixed=FIXED)
    exact, error = evidence(KERNEL, places, labels, SCALE, MEAN)
    assert exact - 0.1 < made.fit_report.elbo < exact + 3 * error
    assert made.fit_report.elbo == pytest.approx(made.fit_report.trace[-1])


def softmax_evidence(places, codes, scale, draws=200_000):
    root = np.linalg.cholesky(scale * KERNEL.exact(RING) + 1e-9 * np.eye(12))[places]
    f = np.einsum("nk,dkc->dnc", root, np.random.default_rng(2).standard_normal((draws, 12, 3)))
    logs = np.take_along_axis(f, codes[None, :, None], 2)[..., 0] - logsumexp(f, axis=2)
    weights = np.exp(logs.sum(1))
    error = weights.std() / draws**0.5 / weights.mean()
    chances = (softmax(f, axis=2) * weights[:, None, None]).mean(0) / weights.mean()
    return np.log(weights.mean()), error, chances


def test_three_observations_of_three_classes():
    """As many observations as classes, where gpytorch's own class mistakes the axes. 64 Sobol points: errors of .02."""
    places, codes = np.array([0, 1, 6]), np.array([2, 0, 1])
    made = GraphClassifier(RING, KERNEL, outputscale=SCALE, seed=0).fit(places, codes, fixed=FIXED)
    exact, error, chances = softmax_evidence(places, codes, SCALE)
    assert exact - 0.25 < made.fit_report.elbo < exact + 3 * error + 0.05
    np.testing.assert_allclose(made.predict_proba(places), chances, atol=0.04)


def test_expectations_of_the_softmax_are_those_of_many_draws():
    likelihood = latent.SoftmaxLikelihood(4, seed=0)
    generator = np.random.default_rng(0)
    mean, variance = generator.normal(size=(6, 4)), generator.uniform(0.2, 4, (6, 4))
    law = classifier.Moments(torch.as_tensor(mean), torch.as_tensor(variance))
    y = np.array([0, 1, 2, 3, 0, 1])
    f = mean + np.sqrt(variance) * generator.standard_normal((40_000, 6, 4))
    np.testing.assert_allclose(likelihood.marginal(law).probs, softmax(f, axis=-1).mean(0), atol=0.01)
    expected = (f[:, np.arange(6), y] - logsumexp(f, axis=-1)).mean(0)
    rotations, found = torch.Generator().manual_seed(0), []
    for _ in range(100):
        likelihood.redraw(6, rotations)
        found.append(likelihood.expected_log_prob(torch.as_tensor(y), law).numpy())
    found = np.array(found)
    errors = np.sqrt(found.var(0) / 100 + f.var(0).sum(-1) / 40_000)
    assert (abs(found.mean(0) - expected) < 4 * errors).all()
    assert found.std(0).max() < 0.2  # plain draws: about the standard deviation of f over 8
    assert found.std(0).min() > 1e-4  # they are redrawn


@pytest.mark.parametrize(
    ("features", "two"),
    [("exact", True), ("walks", False), ("chebyshev", True), ("taylor", True), ("spectrum", False)],
)
@pytest.mark.slow
def test_planted_clusters_are_found(features, two):
    g, truth, seen = BLOCKS
    labels = truth == 1 if two else np.array(["a", "b", "c"])[truth]
    made = GraphClassifier(g, features=features, seed=0).fit(seen, labels[seen])
    assert (made.predict(np.arange(120)) == labels).mean() > 0.95
    chances = made.predict_proba(np.arange(120))
    np.testing.assert_allclose(chances.sum(1), 1, rtol=1e-12)
    assert chances.min() >= 0
    report = made.fit_report
    assert report.converged
    assert report.elbo > report.trace[0] + 1
    assert report.constant == pytest.approx(18 * np.log(1 / 3) if not two else 6 * np.log(1 / 3) + 12 * np.log(2 / 3))
    assert report.elbo > report.constant + 1
    assert report.num_inducing == 18


@pytest.mark.parametrize(("features", "two"), [("exact", False), ("walks", True), ("walks", False), ("spectrum", True)])
def test_predictions_are_those_of_gpytorch(features, two):
    """Its own path, with the features of all nodes at once; its variances have its jitter of 1e-6 more."""
    g, truth, seen = BLOCKS
    labels = truth == 1 if two else truth
    made = GraphClassifier(g, KERNEL, features, seed=0, outputscale=9.0)
    made.fit(np.tile(seen, 2), np.tile(labels[seen], 2), fixed=FIXED)
    made.model.covar_module.base_kernel = made.model.covar_module.base_kernel.at(np.arange(120))
    with torch.no_grad():
        law = made.model(torch.arange(120.0).double()[:, None])
    found = made.predict_latent(np.arange(120))
    np.testing.assert_allclose(found.mean, law.mean, atol=1e-7)
    np.testing.assert_allclose(found.variance, law.variance - 1e-6, atol=1e-6)
    assert found.mean.shape == ((120,) if two else (120, 3))


def test_chunks_and_neighbors_change_nothing(monkeypatch):
    g, truth, seen = BLOCKS
    made = GraphClassifier(g, KERNEL, "walks", seed=0, outputscale=9.0).fit(seen, truth[seen], fixed=FIXED)
    whole = made.predict_proba(np.arange(120))
    monkeypatch.setattr(classifier, "CHUNK", 7)
    np.testing.assert_allclose(made.predict_proba(np.arange(120)), whole, atol=1e-12)
    np.testing.assert_allclose(made.predict_proba([5, 5, 80]), whole[[5, 5, 80]], atol=1e-12)
    assert made.predict_proba([]).shape == (0, 3)
    assert made.predict([]).shape == (0,)
    assert made.predict_latent([]).mean.shape == (0, 3)


@pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")
@pytest.mark.parametrize("limit", [512, 9])
def test_the_seed_says_it_all_and_the_global_state_is_left_alone(limit):
    g, truth, seen = BLOCKS

    def run(seed):
        made = GraphClassifier(g, features="walks", num_walkers=8, max_inducing=limit, batch_size=9, seed=seed)
        return made.fit(seen, truth[seen], max_iterations=15).predict_proba(np.arange(120))

    first = run(3)
    torch.rand(5)
    before = torch.random.get_rng_state()
    np.testing.assert_array_equal(run(3), first)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert abs(run(4) - first).max() > 1e-6


def test_mini_batches_come_near_the_whole(monkeypatch):
    """18 observations in two batches, all nodes inducing but one: nearly the same bound and probabilities."""
    g, truth, seen = BLOCKS
    monkeypatch.setattr(training, "WINDOW", 25)
    options = {"fixed": FIXED}
    whole = GraphClassifier(g, outputscale=20.0, seed=0).fit(seen, truth[seen], **options)
    parts = GraphClassifier(g, outputscale=20.0, seed=0, max_inducing=17, batch_size=9).fit(
        seen, truth[seen], **options
    )
    assert parts.fit_report.batches == 2
    assert parts.fit_report.num_inducing == 17
    assert parts.fit_report.elbo == pytest.approx(whole.fit_report.elbo, abs=0.7)
    nodes = np.arange(120)
    assert abs(parts.predict_proba(nodes) - whole.predict_proba(nodes)).mean() < 0.03


CLASSES = [
    (["no", "yes"], "<U3"),
    ([3, 7], "int64"),
    ([False, True], "bool"),
    ([0.5, 1.5], "float64"),
    ([(0, 1), (1, 0)], "object"),
    (["a", 1], "object"),
]


@pytest.mark.parametrize(("classes", "dtype"), CLASSES)
def test_labels_come_back_as_they_went_in(classes, dtype):
    made = GraphClassifier(RING, seed=0).fit(range(6), [classes[i] for i in (0, 0, 0, 1, 1, 1)], fixed=FIXED)
    assert made.classes.dtype == dtype
    assert list(made.classes) == classes
    found = made.predict([1, 4])
    assert list(found) == classes
    assert found.dtype == made.classes.dtype


def test_labels_of_arrays_tensors_and_series():
    import pandas as pd

    codes = np.array([0, 0, 1, 1], dtype=np.int8)
    days = np.array(["2020-01-01", "2020-01-01", "2021-01-01", "2021-01-01"], dtype="datetime64[ns]")
    nodes = np.array([0, 1, 6, 7])
    made = GraphClassifier(RING, seed=0)
    assert made.fit(nodes, codes, fixed=FIXED).predict([0]).dtype == np.int8
    assert made.fit(nodes, days, fixed=FIXED).predict([0])[0] == days[0]
    assert made.fit(torch.as_tensor(nodes), torch.as_tensor(codes), fixed=FIXED).predict([7])[0] == 1
    assert made.fit(pd.Series(nodes), pd.Series(list("aabb")), fixed=FIXED).predict([7])[0] == "b"


def test_nodes_are_labels():
    G = nx.relabel_nodes(nx.cycle_graph(8), dict(enumerate("hgfedcba")))
    made = GraphClassifier(graphs.Graph.from_networkx(G), seed=0).fit(["a", "b", "e", "f"], [0, 0, 1, 1], fixed=FIXED)
    assert list(made.predict(["b", "e"])) == [0, 1]
    with pytest.raises(graphs.UnknownNodeError, match="'z'"):
        made.predict(["z"])


@pytest.mark.parametrize("features", ["exact", "walks", "chebyshev"])
@pytest.mark.parametrize("classes", [2, 3])
def test_parts_without_labels_get_the_prior(features, classes):
    """Two rings and an isolated node: where nothing was observed the latent law is the prior's."""
    G = nx.disjoint_union(nx.cycle_graph(10), nx.cycle_graph(10))
    G.add_node(20)
    g = graphs.Graph.from_networkx(G)
    nodes, labels = [0, 1, 2, 4, 5, 6], [0, 0, 0, 1, 1, 2 % classes]
    made = GraphClassifier(g, KERNEL, features, seed=0, outputscale=6.0, mean=0.2).fit(nodes, labels, fixed=FIXED)
    law = made.predict_latent([13, 20])
    np.testing.assert_allclose(law.mean, 0.2, atol=1e-9)
    if features == "exact":
        prior = 6 * KERNEL.exact(g)[[13, 20], [13, 20]]
        np.testing.assert_allclose(law.variance.reshape(2, -1), np.repeat(prior[:, None], law.variance[0].size, 1))
    chances = made.predict_proba([13, 20])
    expected = stats.norm.cdf(0.2 / np.sqrt(1 + law.variance)) if classes == 2 else np.full(2, 1 / 3)
    np.testing.assert_allclose(chances[:, 1], expected, atol=1e-9 if classes == 2 else 0.01)
    again = made.fit([*nodes, 20], [*labels, 1], fixed=FIXED)  # isolated and observed
    assert again.predict([20])[0] == 1


def test_a_node_of_several_classes_gets_their_frequencies():
    nodes = [0] * 40 + [6] * 40
    labels = ["a"] * 30 + ["b"] * 10 + ["b"] * 40
    chances = GraphClassifier(RING, seed=0).fit(nodes, labels).predict_proba([0, 6])
    assert chances[0, 0] == pytest.approx(0.75, abs=0.07)
    assert chances[1, 0] < 0.1


def test_the_prior_variance_starts_at_one():
    g, truth, seen = BLOCKS
    made = GraphClassifier(g, KERNEL, seed=0).fit(seen, truth[seen], fixed=FIXED)
    scale = made.hyperparameters["outputscale"]
    assert scale * KERNEL.exact(g)[seen, seen].mean() == pytest.approx(1)
    assert scale > 2


def test_hyperparameters_are_learned_and_read():
    g, truth, seen = BLOCKS
    made = GraphClassifier(g, KERNEL, seed=0).fit(seen, truth[seen], fixed="mean")
    found = made.hyperparameters
    assert list(found) == ["lengthscale", "outputscale", "mean"]
    assert found["lengthscale"] != pytest.approx(2.0, abs=0.1)
    np.testing.assert_array_equal(found["mean"], np.zeros(3))
    assert made.fitted_kernel.lengthscale == found["lengthscale"]
    bare = GraphClassifier(RING, graphs.kernels.InverseCosine(), seed=0).fit([0, 1, 6], [0, 0, 1])
    assert list(bare.hyperparameters) == ["outputscale", "mean"]


def test_a_failed_fit_changes_nothing():
    made = bernoulli()
    before = made.predict_proba(np.arange(12))
    with pytest.raises(rfgp.DataError):
        made.fit([0, 1], ["a", "a"])
    np.testing.assert_array_equal(made.predict_proba(np.arange(12)), before)


@pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")
def test_fits_do_not_build_on_each_other():
    g, truth, seen = BLOCKS

    def fitted(made, count):
        return made.fit(seen[:count], truth[seen[:count]], max_iterations=20)

    made = fitted(GraphClassifier(g, seed=0), 18)
    model, found = made.model, made.hyperparameters
    again = fitted(made, 12).predict_proba([3, 70])
    np.testing.assert_array_equal(fitted(GraphClassifier(g, seed=0), 12).predict_proba([3, 70]), again)
    assert float(model.covar_module.base_kernel.lengthscale.detach()) == found["lengthscale"]


def test_a_fit_that_stops_early_says_so():
    with pytest.warns(rfgp.ConvergenceWarning, match="Raise max_iterations"):
        GraphClassifier(RING, seed=0).fit(SEEN, LABELS, max_iterations=1)
    seen = []
    GraphClassifier(RING, seed=0).fit(SEEN, LABELS, callback=lambda *state: seen.append(state))
    assert [step for step, _ in seen] == list(range(1, len(seen) + 1))


BAD = [
    ([0, 1], ["a", "a"], rfgp.DataError, "at least two classes"),
    ([0, 1, 2], ["a", "b"], rfgp.DataError, "3 nodes, but 2"),
    ([0], ["a", "b"], rfgp.DataError, "1 nodes, but 2"),
    ([0, 1], [0.0, np.nan], rfgp.DataError, "at place 1"),
    ([0, 1], ["a", None], rfgp.DataError, "at place 1"),
    ([0, 1], [["a"], ["b"]], rfgp.DataError, "at place 0"),
    ([0, 1], np.array([[0], [1]]), rfgp.DataError, "at place 0"),
    ([0, 1], [(0, []), (1, [])], rfgp.DataError, "at place 0"),
    ([], [], rfgp.DataError, "no labels"),
    ([0, 12], [0, 1], graphs.UnknownNodeError, "got 12"),
    (0, [0, 1], rfgp.DataError, "Nodes must be a sequence"),
    ("ab", [0, 1], rfgp.DataError, "Nodes must be a sequence"),
    ([0, 1], "ab", rfgp.DataError, "Labels of classes must be a sequence"),
    ([0, 1], np.array(3), rfgp.DataError, "must be a sequence"),
]


@pytest.mark.parametrize(("nodes", "labels", "error", "message"), BAD)
def test_bad_data_are_named(nodes, labels, error, message):
    with pytest.raises(error, match=message):
        GraphClassifier(RING, seed=0).fit(nodes, labels)


def test_missing_values_of_pandas_are_named():
    import pandas as pd

    with pytest.raises(rfgp.DataError, match=r"must not be missing, got .* at place 1"):
        GraphClassifier(RING, seed=0).fit([0, 1, 2], pd.Series(["a", pd.NA, "b"]))


WRONG = [
    ({"features": "magic"}, "features must be one of"),
    ({"outputscale": -1.0}, "outputscale must be a positive"),
    ({"max_inducing": 0}, "max_inducing must be a positive integer"),
    ({"batch_size": True}, "batch_size must be a positive integer"),
    ({"seed": -1}, "seed must be"),
    ({"mean": np.inf}, "mean must be a finite"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        GraphClassifier(RING, **options)


def test_more_bad_arguments():
    with pytest.raises(rfgp.InvalidArgumentError, match="got Graph of networkx"):
        GraphClassifier(nx.cycle_graph(3))
    with pytest.raises(graphs.GraphError, match="degree"):
        GraphClassifier(RING, features="chebyshev", degree=-1)
    with pytest.raises(rfgp.InvalidArgumentError, match="got 'noise'"):
        GraphClassifier(RING).fit([0, 1], [0, 1], fixed="noise")


@pytest.mark.parametrize("name", ["classes", "hyperparameters", "fit_report", "model", "fitted_kernel"])
def test_nothing_is_known_before_a_fit(name):
    with pytest.raises(rfgp.NotFittedError, match="Call fit"):
        getattr(GraphClassifier(RING), name)
    for ask in ("predict", "predict_proba", "predict_latent"):
        with pytest.raises(rfgp.NotFittedError, match="Call fit"):
            getattr(GraphClassifier(RING), ask)([0])


def test_auto_is_exact_on_small_graphs():
    assert GraphClassifier(RING).features == "exact"
    assert GraphClassifier(graphs.Graph.from_networkx(nx.path_graph(2001))).features == "walks"


# --- the kernels -----------------------------------------------------------------------------------


def in_double(kernel):
    kernel = kernel.double()
    kernel.lengthscale = 2.0  # the start was one of single precision
    return kernel


@pytest.mark.parametrize("make", [graphs.chebyshev_features, graphs.taylor_features, graphs.spectral_features])
def test_features_without_randomness_make_kernels(make):
    draw = make(RING, None, 5)
    kernel = in_double(GraphFeatureKernel(draw, KERNEL))
    x, z = torch.tensor([[3], [3], [11]]), torch.tensor([[0], [5]])
    phi = draw.features(KERNEL).toarray()
    np.testing.assert_allclose(kernel(x).to_dense().detach(), phi[[3, 3, 11]] @ phi[[3, 3, 11]].T, atol=1e-12)
    np.testing.assert_allclose(kernel(x, z).to_dense().detach(), phi[[3, 3, 11]] @ phi[[0, 5]].T, atol=1e-12)


def value_at(kernel, raw, x, diag):
    del kernel.raw_lengthscale
    object.__setattr__(kernel, "raw_lengthscale", raw)
    return kernel(x, diag=True) if diag else kernel(x).to_dense()


@pytest.mark.parametrize("diag", [True, False])
@pytest.mark.parametrize("features", ["exact", "chebyshev", "spectrum"])
def test_gradients(features, diag):
    makers = {
        "exact": lambda: GraphExactKernel(RING, KERNEL),
        "chebyshev": lambda: GraphFeatureKernel(graphs.chebyshev_features(RING, None, 4), KERNEL),
        "spectrum": lambda: GraphFeatureKernel(graphs.spectral_features(RING, None, 7), KERNEL),
    }
    raw, x = torch.tensor(0.7, dtype=torch.float64, requires_grad=True), torch.tensor([[3], [8], [3]])
    assert torch.autograd.gradcheck(lambda r: value_at(makers[features]().double(), r, x, diag), (raw,))


def test_the_exact_kernel_is_exact():
    K = KERNEL.exact(RING)
    kernel = in_double(GraphExactKernel(RING, KERNEL))
    x, z = torch.tensor([[3.0], [3], [11]]).double(), torch.tensor([[0.0], [5]]).double()
    np.testing.assert_allclose(kernel(x, z).to_dense().detach(), K[[3, 3, 11]][:, [0, 5]], atol=1e-12)
    np.testing.assert_allclose(kernel(x, diag=True).detach(), K[[3, 3, 11], [3, 3, 11]], atol=1e-12)
    several = GraphExactKernel(RING, KERNEL, batch_shape=torch.Size([2])).double()
    several.lengthscale = torch.tensor([1.0, 2.0])
    np.testing.assert_allclose(several(x, z).to_dense()[1].detach(), K[[3, 3, 11]][:, [0, 5]], atol=1e-12)
    for bad in (12, -1):
        with pytest.raises(rfgp.InvalidArgumentError, match=f"got {bad}"):
            kernel(torch.tensor([[bad]])).to_dense()


def test_a_kernel_at_other_nodes_shares_only_parameters():
    kernel = GraphFeatureKernel(graphs.sample_walks(RING, [0, 1], seed=0), KERNEL)
    other = kernel.at([5])
    other.lengthscale = 1.25
    assert kernel.lengthscale.item() == pytest.approx(1.25)
    kernel(torch.tensor([[0], [1]])).to_dense()
    with pytest.raises(rfgp.InvalidArgumentError, match="do not start at position 5"):
        kernel(torch.tensor([[5]])).to_dense()


def test_a_trace_has_settled_when_it_no_longer_climbs():
    noise = np.random.default_rng(0).normal(size=200)
    assert training.has_settled(noise)
    assert not training.has_settled(noise + np.linspace(0, 2, 200))


# --- planted errors --------------------------------------------------------------------------------


def own_expectation(monkeypatch):
    """GPyTorch's, with as many observations as classes."""
    parent = gpytorch.likelihoods.SoftmaxLikelihood.expected_log_prob
    monkeypatch.setattr(latent.SoftmaxLikelihood, "expected_log_prob", parent)


def shared_dictionaries(monkeypatch):
    def at(self, nodes):
        other = copy.copy(self)
        vars(other).update(vars(plain(self, nodes)))
        return other

    plain = GraphFeatureKernel.at
    monkeypatch.setattr(GraphFeatureKernel, "at", at)


def noisy_start(monkeypatch):
    class Noisy(latent.LatentFunctions):
        def __init__(self, *args):
            super().__init__(*args)
            self.strategy.variational_params_initialized.fill_(0)

    monkeypatch.setattr(classifier, "LatentFunctions", Noisy)


def no_variance(monkeypatch):
    plain = classifier.latent_moments
    monkeypatch.setattr(classifier, "latent_moments", lambda *of: plain(*of)._replace(variance=0 * plain(*of).mean))


def forgotten_mean(monkeypatch):
    def moments(fitted, *of):
        found, mean = plain(fitted, *of), fitted.model.mean_module.constant.detach()
        return found._replace(mean=found.mean - mean)

    plain = classifier.latent_moments
    monkeypatch.setattr(classifier, "latent_moments", moments)


def no_divergence(monkeypatch):
    class Bare(gpytorch.mlls.VariationalELBO):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, beta=1e-3, **kwargs)

    monkeypatch.setattr(training, "VariationalELBO", Bare)


def other_walks(monkeypatch):
    def at(self, nodes):
        other = GraphFeatureKernel(graphs.sample_walks(BLOCKS[0], nodes, seed=len(nodes)), KERNEL).double()
        other.load_state_dict(self.state_dict())
        return other

    monkeypatch.setattr(GraphFeatureKernel, "at", at)


def common_parameters(monkeypatch):
    monkeypatch.setattr(classifier, "copy", types.SimpleNamespace(deepcopy=lambda thing: thing))


def raw_scale(monkeypatch):
    monkeypatch.setattr(classifier, "prior_variance", lambda batches: 1.0)


def turned_classes(monkeypatch):
    monkeypatch.setattr(
        classifier, "encode", lambda labels: (encode(labels)[0], encode(labels)[1].max() - encode(labels)[1])
    )


def lost_repeats(monkeypatch):
    def fit(self, nodes, labels, **options):
        places = np.unique(nodes, return_index=True)[1]
        return plain(self, np.asarray(nodes)[places], np.asarray(labels)[places], **options)

    plain = GraphClassifier.fit
    monkeypatch.setattr(GraphClassifier, "fit", fit)


def one_rotation(monkeypatch):
    monkeypatch.setattr(latent.SoftmaxLikelihood, "redraw", lambda self, count, generator: None)


PLANTED = [
    (own_expectation, test_three_observations_of_three_classes, ()),
    (shared_dictionaries, test_a_kernel_at_other_nodes_shares_only_parameters, ()),
    (noisy_start, test_the_seed_says_it_all_and_the_global_state_is_left_alone, (512,)),
    (no_variance, test_predictions_are_those_of_gpytorch, ("exact", False)),
    (forgotten_mean, test_parts_without_labels_get_the_prior, ("exact", 2)),
    (no_divergence, test_the_bound_is_below_the_evidence_and_close, ()),
    (other_walks, test_predictions_are_those_of_gpytorch, ("walks", True)),
    (common_parameters, test_fits_do_not_build_on_each_other, ()),
    (raw_scale, test_the_prior_variance_starts_at_one, ()),
    (turned_classes, test_labels_come_back_as_they_went_in, (["no", "yes"], "<U3")),
    (lost_repeats, test_a_node_of_several_classes_gets_their_frequencies, ()),
    (one_rotation, test_expectations_of_the_softmax_are_those_of_many_draws, ()),
]


@pytest.mark.filterwarnings("ignore::rfgp.ConvergenceWarning")
@pytest.mark.parametrize(("plant", "check", "arguments"), PLANTED, ids=lambda thing: getattr(thing, "__name__", None))
def test_planted_errors_are_found(plant, check, arguments, monkeypatch):
    plant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception, graphs.GraphError, rfgp.RfgpError)):
        check(*arguments)
