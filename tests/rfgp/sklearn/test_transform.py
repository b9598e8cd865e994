"""The transformer, and the pipelines that use it."""

import numpy as np
import pytest
import torch
from named_options import named
from refusals import refused
from sklearn.kernel_ridge import KernelRidge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import rfgp
from rfgp.sklearn import RandomFeatures, make_kernel_ridge, make_kernel_svc


def drawn():
    """80 rows of three columns, 15 new rows, and the targets of the first."""
    rng = np.random.default_rng(0)
    X, new = rng.standard_normal((80, 3)), rng.standard_normal((15, 3))
    return X, new, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(80)


X, NEW, Y = drawn()
CLASSES = np.where(Y > 0, "up", "down")


@pytest.mark.parametrize("kind", ["fourier", "laplace"])
@pytest.mark.parametrize("lengthscale", [1.7, [1.0, 2.0, 3.0]])
def test_features_are_those_of_the_draw(kind, lengthscale):
    features = RandomFeatures(16, "orthogonal", lengthscale, 5, features=kind).fit(X)
    generator = rfgp.random.generator(5, rfgp.random.Role.FREQUENCIES)
    omega = rfgp.couplings.by_name("orthogonal").sample(16, 3, generator=generator)
    expected = rfgp.features.by_name(kind)(omega)(torch.as_tensor(NEW / lengthscale)).numpy()
    np.testing.assert_allclose(features.transform(NEW), expected, rtol=1e-12)


def test_the_energy_coupling_is_tuned_to_the_features():
    positive = RandomFeatures(32, random_state=0, features="laplace", lengthscale=5.0).fit(X)
    generator = rfgp.random.generator(0, rfgp.random.Role.FREQUENCIES)
    omega = rfgp.couplings.Energy(features="laplace").sample(32, 3, generator=generator)
    torch.testing.assert_close(positive.feature_map_.frequencies.dense(), omega.dense())


def test_scale_is_the_gamma_of_support_vector_machines():
    features = RandomFeatures(8, lengthscale="scale", random_state=0).fit(3 * X)
    assert 1 / (2 * features.lengthscale_**2) == pytest.approx(1 / (3 * (3 * X).var()), rel=1e-12)
    assert RandomFeatures(8, lengthscale="scale").fit(np.ones((4, 2))).lengthscale_ == 1.0


def test_only_the_fitted_draw_matters():
    features = RandomFeatures(8, random_state=0).fit(X)
    expected = features.transform(NEW)
    features.set_params(n_frequencies=4, lengthscale=9.0, random_state=1)
    again = RandomFeatures(8, random_state=0).fit(10 * X[:5])
    for one in (features, again):
        np.testing.assert_array_equal(one.transform(NEW), expected)


BAD = {
    "coupling": "sorf",
    "n_frequencies": 0,
    "lengthscale": "wide",
    "spectrum": "green",
    "features": "sine",
    "random_state": "one",
}


@pytest.mark.parametrize(
    ("call", "word"), named(lambda **bad: RandomFeatures(**{"n_frequencies": 8, **bad}).fit(X), **BAD)
)
def test_bad_options_are_named(call, word):
    refused(call, rfgp.InvalidArgumentError, word)


def test_lengthscales_fit_the_columns():
    columns = RandomFeatures(8, lengthscale=[1.0, 2.0])
    refused(lambda: columns.fit(X), rfgp.InvalidArgumentError, "one for each of the 3 columns")


# --- pipelines ---------------------------------------------------------------------------------------------


def test_the_ridge_approximates_kernel_ridge():
    ours = make_kernel_ridge(0.5, n_frequencies=4096, coupling="sobol", lengthscale=1.5, random_state=0)
    exact = make_pipeline(StandardScaler(), KernelRidge(alpha=0.5, kernel="rbf", gamma=1 / (2 * 1.5**2)))
    found, expected = ours.fit(X, Y).predict(NEW), exact.fit(X, Y).predict(NEW)
    assert np.abs(found - expected).max() < 0.02 < np.std(expected) / 5


@pytest.mark.slow
def test_the_machine_approximates_a_support_vector_machine():
    ours = make_kernel_svc(n_frequencies=4096, coupling="sobol", lengthscale=1.5, random_state=0)
    exact = make_pipeline(StandardScaler(), SVC(C=1.0, kernel="rbf", gamma=1 / (2 * 1.5**2)))
    found, expected = (model.fit(X, CLASSES).decision_function(NEW) for model in (ours, exact))
    assert np.abs(found - expected).max() < 0.02 < np.std(expected) / 5
    assert set(ours.predict(NEW)) == {"up", "down"}
