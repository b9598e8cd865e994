"""Precisions of graph kernels against dense formulas."""

import gc
import weakref

import numpy as np
import pytest
from sparse_graphs import GRAPHS

import graphs
from graphs import kernels
from graphs.precisions import resolvent_field

KERNELS = [
    kernels.RegularizedLaplacian(1, 2.0),
    kernels.RegularizedLaplacian(3, 0.7),
    kernels.Matern(1, 3.0),
    kernels.Matern(2, 1.5),
]


@pytest.mark.parametrize("laplacian", ["normalized", "combinatorial"])
@pytest.mark.parametrize("name", GRAPHS)
def test_precision_is_the_inverse_of_the_kernel(name, laplacian):
    graph = GRAPHS[name]().with_laplacian(laplacian)
    some = np.arange(0, graph.num_nodes, 7)
    for kernel in KERNELS:
        precision, exact = kernel.precision(graph), kernel.exact(graph)
        size, scale = graph.num_nodes, np.abs(exact).max()
        np.testing.assert_allclose(precision.matrix @ exact, np.eye(size), atol=1e-9)
        np.testing.assert_allclose(precision.variances, exact.diagonal(), rtol=1e-9)
        np.testing.assert_allclose(precision.covariance(some), exact[np.ix_(some, some)], atol=1e-9 * scale)
        assert precision.log_determinant == pytest.approx(-np.linalg.slogdet(exact)[1], abs=1e-7)
        b = np.random.default_rng(0).standard_normal(size)
        np.testing.assert_allclose(precision.solve(b), exact @ b, atol=1e-9 * scale * size)


@pytest.mark.parametrize("order", [1, 2, 4])
def test_determinants_and_derivatives_match_the_matrix(order):
    graph, rng = GRAPHS["roads"](), np.random.default_rng(0)
    field, eigenvalues = resolvent_field(graph, order), graph.spectrum.eigenvalues
    weights = rng.standard_normal(len(field.pattern.indices))
    for shift in (1e-5, 0.03, 1.0, 70.0):
        at = np.array([shift])
        value, slope = field.log_determinant(at)
        assert value == pytest.approx(order * np.log(eigenvalues + shift).sum(), abs=1e-8)
        assert slope[0] == pytest.approx(order * (1 / (eigenvalues + shift)).sum(), rel=1e-7)
        step = 1e-5 * shift
        ends = [field.entries(at + sign * step) @ weights for sign in (-1, 1)]
        expected = (ends[1] - ends[0]) / (2 * step)
        size = np.abs(weights) @ np.abs(field.entries(at)) / shift
        assert field.pull_back(at, weights)[0] == pytest.approx(expected, rel=1e-5, abs=1e-10 * size)


def test_interpolated_determinant_matches_factor():
    """What a field without an interpolant has, and the interpolant's twin."""
    field = resolvent_field(GRAPHS["mesh"](), 2)
    found, by_factor = (
        field.log_determinant(np.array([0.2])),
        super(type(field), field).log_determinant(np.array([0.2])),
    )
    assert found[0] == pytest.approx(by_factor[0], abs=1e-8)
    assert found[1] == pytest.approx(by_factor[1], rel=1e-8)


def test_loss_of_digits_is_as_documented():
    """The constant's eigenvalue x^p is a difference of numbers of size 1; the determinant does not suffer."""
    graph = GRAPHS["path"]()
    eigenvalues = graph.spectrum.eigenvalues
    for order, sigma in ((1, 1000.0), (2, 100.0), (3, 20.0)):
        kernel = kernels.RegularizedLaplacian(order, sigma)
        found = kernel.resolvent()
        bound = np.finfo(float).eps * (1 + 2 / found.shift) ** order
        exact = kernel.exact(graph).diagonal()
        error = np.abs(kernel.precision(graph).variances / exact - 1).max()
        assert error < 10 * bound < 1e-3
        value, _ = resolvent_field(graph, order).log_determinant(np.array([found.shift]))
        assert value == pytest.approx(order * np.log(eigenvalues + found.shift).sum(), abs=1e-7)


def test_kernels_return_their_resolvent():
    for kernel in KERNELS:
        found = kernel.resolvent()
        x = np.linspace(0, 2, 7)
        np.testing.assert_allclose(found.amplitude * (found.shift + x) ** -found.order, kernel.spectral(x), rtol=1e-13)
        step = 1e-6 * kernel.values
        ends = [kernel.with_values(kernel.values + sign * step).resolvent() for sign in (-1, 1)]
        slopes = [(getattr(ends[1], n) - getattr(ends[0], n)) / (2 * step) for n in ("shift", "amplitude")]
        np.testing.assert_allclose(found.jacobian, slopes, rtol=1e-7, atol=1e-12)


def test_other_kernels_have_no_precision():
    graph = GRAPHS["path"]()
    with pytest.raises(
        graphs.InvalidArgumentError, match=r"no sparse precision: its order 1.5 is fractional. Use order 1 or 2"
    ):
        kernels.Matern(1.5, 2.0).precision(graph)
    with pytest.raises(graphs.InvalidArgumentError, match=r"order 0\.5 is fractional"):
        kernels.RegularizedLaplacian(0.5).precision(graph)
    for kernel in (kernels.Diffusion(), kernels.InverseCosine(), kernels.RandomWalk()):
        with pytest.raises(graphs.InvalidArgumentError, match="polynomial of the Laplacian"):
            kernel.precision(graph)
    with pytest.raises(graphs.InvalidArgumentError, match=r"graphs\.Graph"):
        kernels.Matern(1).precision(3)
    with pytest.raises(graphs.InvalidArgumentError, match="order must be"):
        resolvent_field(graph, 17)


def test_fields_are_cached_with_the_graph():
    graph = GRAPHS["path"]()
    field = resolvent_field(graph, 2)
    assert resolvent_field(graph, 2) is field
    assert resolvent_field(graph.with_laplacian("combinatorial"), 2) is not field
    alive = weakref.ref(field)
    del field, graph
    gc.collect()
    assert alive() is None


def test_dense_pattern_of_hubs_is_refused(monkeypatch):
    graph = GRAPHS["star"]()
    monkeypatch.setattr("graphs.checks.machine_memory", lambda: 1e4)
    with pytest.raises(graphs.MemoryBudgetError, match="Hubs make it dense"):
        kernels.Matern(2, 1.0).precision(graph)


def test_planted_errors_are_found(monkeypatch):
    monkeypatch.setattr("graphs.precisions.resolvent.comb", lambda n, k: 1)
    with pytest.raises(AssertionError):
        test_precision_is_the_inverse_of_the_kernel("grid", "normalized")
