"""What all features of nodes share."""

import numpy as np
import pytest

import graphs
from graphs import kernels
from graphs.features import NodeFeatures

KERNELS = [kernels.Diffusion(2.5), kernels.RegularizedLaplacian(2, 0.8), kernels.Matern(1.5, 2.0)]
MAKERS = {
    "taylor": lambda g, nodes=None: graphs.taylor_features(g, nodes, 4),
    "chebyshev": lambda g, nodes=None: graphs.chebyshev_features(g, nodes, 4),
    "spectrum": lambda g, nodes=None: graphs.spectral_features(g, nodes, 8),
    "walks": lambda g, nodes=None: graphs.sample_walks(g, nodes, seed=0),
}


def test_all_kinds_of_features_are_tested(g):
    assert {type(make(g)) for make in MAKERS.values()} == set(NodeFeatures.__subclasses__())


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
class TestInterface:
    def test_values_are_linear_with_an_adjoint(self, g, kernel, make):
        made, rng = make(g), np.random.default_rng(0)
        w, v = rng.standard_normal(made.max_length + 1), rng.standard_normal(len(made.pattern.indices))
        assert made.values(w) @ v == pytest.approx(made.values_adjoint(v) @ w)
        np.testing.assert_array_equal(made.features(kernel).data, made.values(made.weights(kernel)))

    def test_at_returns_the_same_rows(self, g, kernel, make):
        made, labels = make(g), ["n7", "n59", "n0", "n7"]
        rows = made.features(kernel).toarray()[[7, 59, 0, 7]]
        np.testing.assert_allclose(made.at(labels).features(kernel).toarray(), rows, atol=1e-13)
        np.testing.assert_allclose(make(g, labels).features(kernel).toarray(), rows, atol=1e-13)

    def test_weights_jacobian_matches_differences(self, g, kernel, make):
        made, step = make(g), 1e-6
        up, down = (kernel.with_values(kernel.values * (1 + sign * step)) for sign in (1, -1))
        numeric = (made.weights(up) - made.weights(down)) / (2 * step * kernel.values[0])
        np.testing.assert_allclose(made.weights_jacobian(kernel)[:, 0], numeric, rtol=1e-5, atol=1e-9)


def test_bad_arguments_are_refused(g):
    for degree in (-1, 2.0, True):
        with pytest.raises(graphs.InvalidArgumentError, match="degree must be an integer from 0 to 10000"):
            graphs.taylor_features(g, degree=degree)
    for rank in (0, 61, 3.0):
        with pytest.raises(graphs.InvalidArgumentError, match="rank must be an integer from 1 to 60"):
            graphs.spectral_features(g, rank=rank)
    with pytest.raises(graphs.MemoryBudgetError, match="Use a lower degree"):
        graphs.chebyshev_features(g, degree=6, max_memory=1000)
    assert graphs.chebyshev_features(g, [], degree=3).features(KERNELS[0]).shape == (0, 60)


def test_shapes_are_checked(g):
    for made in (graphs.spectral_features(g, rank=4), graphs.chebyshev_features(g, degree=3)):
        for call in (lambda m: m.values(2.0), lambda m: m.values([1.0]), lambda m: m.values_adjoint([1.0])):
            with pytest.raises(graphs.InvalidArgumentError, match="must have shape"):
                call(made)
    assert graphs.spectral_features(g, [], rank=3).values_adjoint([]).tolist() == [0, 0, 0]
    with pytest.raises(graphs.InvalidArgumentError, match=r"graphs\.Graph"):
        graphs.taylor_features("x")


@pytest.mark.parametrize("kernel", [kernels.Diffusion(30.0), kernels.RegularizedLaplacian(200, 1e3)], ids=str)
def test_derivatives_are_finite_on_underflow(g, kernel):
    for made in (graphs.chebyshev_features(g, degree=6), graphs.spectral_features(g, rank=30)):
        assert np.isfinite(made.weights_jacobian(kernel)).all()
