"""Models of several classes, at every front door."""

import networkx as nx
import numpy as np
import pytest
import torch
from model_checks import assert_update_is_condition

import graphs
import rfgp
from rfgp.likelihoods import Categorical

ROWS, CLASSES = 260, 3


def table():
    rng = np.random.default_rng(6)
    x = rng.standard_normal((2 * ROWS, 2))
    f = 3 * np.stack([np.sin(2 * x[:, 0]), x[:, 1], -x[:, 0]], 1)
    y = (f + rng.gumbel(size=f.shape)).argmax(1).astype(float)
    return x[:ROWS], y[:ROWS], x[ROWS:], y[ROWS:]


def model(**options):
    return rfgp.SparseSpectrumGP(**{"num_frequencies": 30, "likelihood": "categorical", "seed": 0, **options})


@pytest.fixture(scope="module")
def fitted():
    x, y, _, _ = table()
    return {
        name: make.fit(x, y)
        for name, make in {
            "features": model(),
            "exact": rfgp.ExactGP(likelihood="categorical"),
            "joint features": model(inference="laplace"),
            "joint exact": rfgp.ExactGP(likelihood="categorical", inference="laplace"),
        }.items()
    }


@pytest.mark.parametrize("name", ["features", "exact", "joint features", "joint exact"])
class TestEvery:
    def test_it_predicts_classes(self, fitted, name):
        _, y, new, observed = table()
        gp = fitted[name]
        law = gp.predict(new).observed()
        assert gp.fit_report.converged
        assert law.probabilities.shape == law.mean.shape == law.variance.shape == (ROWS, CLASSES)
        np.testing.assert_allclose(law.probabilities.sum(1), 1)
        shares = np.bincount(y.astype(int)) / len(y)
        assert law.log_prob(observed).mean() > np.log(shares[observed.astype(int)]).mean() + 0.3
        assert (law.labels == law.probabilities.argmax(1)).all()
        assert (law.labels == observed).mean() > 0.7
        assert gp.leave_one_out().log_prob.mean() == pytest.approx(law.log_prob(observed).mean(), abs=0.15)
        p = gp.predict(new[:4])
        assert p.mean.shape == p.variance.shape == (4, CLASSES)
        assert p.covariance.shape == (4, 4, CLASSES)
        np.testing.assert_allclose(np.einsum("iic->ic", p.covariance), p.variance, rtol=1e-6, atol=1e-10)

    def test_draws_have_the_stated_distributions(self, fitted, name):
        p = fitted[name].predict(table()[2][:5])
        draws = p.sample(20_000, seed=1)
        assert draws.shape == (20_000, 5, CLASSES)
        assert (np.abs(draws.mean(0) - p.mean) < 6 * p.std / np.sqrt(20_000)).all()
        np.testing.assert_allclose(draws.var(0), p.variance, rtol=0.1)
        law = p.observed()
        labels = law.sample(20_000, seed=2)
        for c in range(CLASSES):
            np.testing.assert_allclose((labels == c).mean(0), law.probabilities[:, c], atol=0.03)
            np.testing.assert_allclose(law.cdf(c), law.probabilities[:, : c + 1].sum(1))
        median = law.quantile(0.5)
        assert (law.cdf(median) >= 0.5 - 1e-9).all()
        assert law.quantile([0.1, 0.9]).shape == (2, 5)

    def test_an_update_is_a_condition_on_all_rows(self, fitted, name):
        x, y, new, _ = table()
        error = {"rtol": 1e-5, "atol": 1e-6} if "joint" in name else {"rtol": 1e-2, "atol": 1e-2}
        assert_update_is_condition(fitted[name], x, y, new, 100, **error)


def test_weights_of_many_rows_and_the_kernel_of_few_agree():
    x, y, new, _ = table()
    given = {"lengthscale": 1.0, "outputscale": 2.0, "inference": "laplace"}
    few = model(num_frequencies=100, **given).condition(x, y)  # 260 rows of 200 features
    many = model(num_frequencies=80, **given).condition(x, y)  # 260 rows of 160
    np.testing.assert_allclose(few.predict(new).observed().mean, many.predict(new).observed().mean, atol=0.2)
    drawn = many.sample_functions(3, seed=0)(new)
    assert drawn.shape == (3, ROWS, CLASSES)
    with pytest.raises(rfgp.InvalidArgumentError, match="cannot draw functions"):
        few.sample_functions(3)


@pytest.mark.slow
def test_nodes_have_classes():
    graph = graphs.Graph.from_networkx(nx.grid_2d_graph(8, 9))
    labels = list(graph.labels)
    y = np.array([(i >= 4) + (j >= 5) for i, j in labels], dtype=float)
    order = np.random.default_rng(0).permutation(72)
    seen, hidden = order[:50], order[50:]
    gp = rfgp.GraphGP(graph, likelihood="categorical", seed=0).fit([labels[i] for i in seen], y[seen])
    assert (gp.predict([labels[i] for i in hidden]).observed().labels == y[hidden]).mean() > 0.8
    options = {"features": "precision", "likelihood": "categorical", "seed": 0}
    precise = rfgp.GraphGP(graph, graphs.kernels.Matern(2.0, 1.0), **options).fit([labels[i] for i in seen], y[seen])
    exact = precise.exact().predict(labels).observed().mean
    np.testing.assert_allclose(precise.predict(labels).observed().mean, exact, atol=1e-3)
    with pytest.raises(rfgp.InvalidArgumentError, match="dense covariance"):
        rfgp.GraphGP(graph, graphs.kernels.Matern(2.0, 1.0), inference="laplace", **options).fit(
            [labels[i] for i in seen], y[seen]
        )


def test_labels_are_checked():
    x, y, _, _ = table()
    with pytest.raises(rfgp.DataError, match="labels 0, 1"):
        model().fit(x, y - 1)
    with pytest.raises(rfgp.DataError, match="at most 1, got 2 in row 1"):
        model(likelihood=Categorical(2)).fit(x, y)
    gp = model(lengthscale=1.0, outputscale=1.0).condition(x, y)
    with pytest.raises(rfgp.DataError, match="labels"):
        gp.condition(x, y + 1)
    for wrong in (1, 0, 2.5, 10_000):
        with pytest.raises(rfgp.InvalidArgumentError, match="num_classes"):
            Categorical(wrong)
    more = model(likelihood=Categorical(5), lengthscale=1.0, outputscale=1.0).condition(x, y)
    assert more.predict(torch.zeros(1, 2)).observed().probabilities.shape == (1, 5)
