import networkx as nx
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import cross_val_score

import graphs
import rfgp
from rfgp import kernels as k
from rfgp.sklearn import GPClassifier, GraphGPClassifier

RNG_ROWS = 150


def small(num_frequencies=16, **options):
    return GPClassifier(k.RBF(), rfgp.RandomFeatures(num_frequencies), random_state=0, **options)


def drawn(classes=2):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(2 * RNG_ROWS, 2))
    f = 4 * np.stack([np.sin(3 * X[:, 0]), X[:, 1], -X[:, 0]], 1)[:, :classes]
    y = np.array(["first", "second", "third"])[(f + rng.gumbel(size=f.shape)).argmax(1)]
    return X[:RNG_ROWS], y[:RNG_ROWS], X[RNG_ROWS:], y[RNG_ROWS:]


@pytest.mark.parametrize("classes", [2, 3])
def test_labels_and_probabilities_are_those_of_the_model(classes):
    X, y, new, observed = drawn(classes)
    found = small(32).fit(X, y)
    shares = found.predict_proba(new)
    assert shares.shape == (RNG_ROWS, classes)
    np.testing.assert_allclose(shares.sum(1), 1)
    assert list(found.classes_) == sorted(set(y))
    assert (found.predict(new) == found.classes_[shares.argmax(1)]).all()
    assert found.score(new, observed) > 0.75
    codes = np.searchsorted(found.classes_, y).astype(float)
    name = "bernoulli" if classes == 2 else "categorical"
    twin = rfgp.GP(k.RBF(), name, rfgp.RandomFeatures(32), seed=0).fit(X, codes)
    mean = twin.predict(new).observed().mean
    np.testing.assert_array_equal(shares[:, 1] if classes == 2 else shares, mean)
    assert found.log_marginal_likelihood_value_ == twin.fit_report.log_marginal_likelihood


def test_two_classes_are_near_scikit_learns():
    """Laplace's approximation by another package: the same kernel and hyperparameters, a logit, exactly."""
    X, y, new, _ = drawn()
    own = GPClassifier(k.RBF(ard=False), rfgp.Exact(), mean="zero", standardize=False, inference="laplace").fit(X, y)
    gp = own.gp_
    kernel = ConstantKernel(float(gp.hyperparameters.outputscale)) * RBF(float(gp.hyperparameters.lengthscale[0]))
    theirs = GaussianProcessClassifier(kernel, optimizer=None).fit(X, y)
    np.testing.assert_allclose(gp.predict(new).observed().mean, theirs.predict_proba(new)[:, 1], atol=2e-3)
    value = float(gp.log_marginal_likelihood())
    assert value == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-4)


def test_it_works_in_cross_validation_and_with_weights():
    X, y, new, _ = drawn()
    assert cross_val_score(small(), X, y, cv=3).mean() > 0.7
    weights = np.ones(len(y))
    weights[y == "first"] = 0
    with pytest.raises(ValueError, match="only one"):
        small(8).fit(X, y, sample_weight=weights)
    for other in ("gaussian", "poisson"):
        with pytest.raises(rfgp.InvalidArgumentError, match="likelihood must be one of 2 classes"):
            small(8, likelihood=other).fit(X, y)
    with pytest.raises(rfgp.InvalidArgumentError, match="likelihood must be one of 3 classes"):
        small(8, likelihood="bernoulli").fit(X, np.arange(len(y)) % 3)
    probit = small(likelihood=rfgp.likelihoods.Bernoulli(link="probit")).fit(X, y)
    logit = small().fit(X, y)
    apart = np.abs(probit.predict_proba(new) - logit.predict_proba(new))  # the lengthscales found differ by two
    assert 1e-3 < apart.mean() < 0.05


@pytest.mark.parametrize("classes", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_nodes_are_classified(classes):
    graph = graphs.Graph.from_networkx(nx.grid_2d_graph(8, 9))
    labels = list(graph.labels)
    y = np.array(["abc"[min((i >= 4) + (j >= 5), classes - 1)] for i, j in labels])
    order = np.random.default_rng(0).permutation(72)
    seen, hidden = order[:50], order[50:]
    gp = GraphGPClassifier(graph, random_state=0).fit([labels[i] for i in seen], y[seen])
    assert gp.score([labels[i] for i in hidden], y[hidden]) > 0.8
    assert gp.predict_proba([labels[0]]).shape == (1, classes)
    assert clone(gp).graph is graph
    with pytest.raises(rfgp.DataError, match="the target y is None"):
        GraphGPClassifier(graph).fit(labels[:2], None)
    with pytest.raises(rfgp.DataError, match="only one"):
        GraphGPClassifier(graph).fit(labels[:2], ["a", "a"])
    with pytest.raises(rfgp.InvalidArgumentError, match="graph is missing"):
        GraphGPClassifier().fit(["a", "b"], ["x", "y"])


def test_two_classes_may_be_approximated_variationally():
    rng = np.random.default_rng(11)
    X = rng.standard_normal((60, 2))
    y = np.where(X[:, 0] + 0.5 * rng.standard_normal(60) > 0, "yes", "no")
    found = {way: small(20, inference=way, max_iter=20).fit(X, y) for way in ("laplace", "variational")}
    shares = [each.predict_proba(X)[:, 1] for each in found.values()]
    assert 1e-4 < np.abs(shares[0] - shares[1]).max() < 0.1
    assert found["variational"].gp_.state.inference == "variational"


@pytest.mark.filterwarnings("ignore::rfgp.RfgpWarning")
@pytest.mark.parametrize("classes", [2, 3])
def test_selection_is_that_of_the_model(classes):
    X, y, new, _ = drawn(classes)
    found = GPClassifier(random_state=0, max_iter=2).fit(X[:50], y[:50])
    codes, name = np.unique(y[:50], return_inverse=True)[1], "bernoulli" if classes == 2 else "categorical"
    gp = rfgp.GP(likelihood=name, seed=0).fit(X[:50], codes.astype(float), max_iterations=2)
    assert found.selection_.trials[found.selection_.best].name == gp.selection.trials[gp.selection.best].name
    mean = gp.predict(new).observed().mean
    np.testing.assert_array_equal(found.predict_proba(new)[:, 1], mean if classes == 2 else mean[:, 1])
    assert found.selection_.num_validation == 50
