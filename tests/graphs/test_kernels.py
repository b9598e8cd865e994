"""Kernels of graphs: functions of the Laplacian, and the power series of their roots, in fifty digits."""

import dataclasses
import inspect
import pickle

import mpmath
import networkx as nx
import numpy as np
import pytest
from refusals import refused

import graphs
from graphs import Graph, kernels

KARATE = Graph.from_networkx(nx.karate_club_graph())
MANY = tuple(np.linspace(0.2, 3.0, 25))


def exp(x):
    return mpmath.exp(x) if isinstance(x, mpmath.mpf | mpmath.mpc) else np.exp(x)


def taylor(spectral, length):
    """Return the Taylor coefficients of sqrt(k) in U = 1 - x, from derivatives that mpmath takes at 50 digits."""
    with mpmath.workdps(50):
        return [float(c) for c in mpmath.taylor(lambda u: mpmath.sqrt(spectral(1 - u)), 0, length)]


def free(base, factors):
    """Return the spectral function with each of the first Taylor coefficients of the root of another times a factor."""
    added = [(factor - 1) * f for factor, f in zip(factors, taylor(base, len(factors) - 1), strict=True)][::-1]
    return lambda x: (base(x) ** 0.5 + np.polyval(added, 1 - x)) ** 2


SPECTRA = {
    kernels.Diffusion(0.3): lambda x: exp(-0.045 * x),
    kernels.Diffusion(np.sqrt(60.0)): lambda x: exp(-30 * x),
    kernels.RegularizedLaplacian(2, 1.0): lambda x: (1 + x) ** -2.0,
    kernels.RegularizedLaplacian(1.5, 10.0): lambda x: (1 + 100 * x) ** -1.5,
    kernels.Matern(0.5, 0.3): lambda x: (1 / 0.09 + x) ** -0.5,
    kernels.Matern(2.5, 12.0): lambda x: (5 / 144 + x) ** -2.5,
    kernels.RandomWalk(2, 2.0): lambda x: (2 - x) ** 2,
    kernels.RandomWalk(5, 4.0): lambda x: (4 - x) ** 5,
    kernels.InverseCosine(): lambda x: exp(np.pi / 4 * x * 1j).real,
    kernels.Modulated([0.5, 0.3, 0.0, -0.1]): lambda x: np.polyval([-0.1, 0, 0.3, 0.5], 1 - x) ** 2,
    kernels.PowerSeries([1.0]): lambda x: 1 + 0 * x,
    kernels.PowerSeries([2.0, 0.5, 0.3, 0.0, 0.1]): lambda x: np.polyval([0.1, 0, 0.3, 0.5, 2], 1 - x),
    kernels.Spectral(lambda x: np.exp(-2 * x) + 0.1): lambda x: exp(-2 * x) + 0.1,
    kernels.FreeModulation(): lambda x: exp(-2 * x),
    kernels.FreeModulation(kernels.Diffusion(3.0), (0.5, 2.0, 0.7, 1.5)): free(
        lambda x: exp(-4.5 * x), (0.5, 2.0, 0.7, 1.5)
    ),
    kernels.FreeModulation(kernels.Matern(1.5, 2.0), MANY): free(lambda x: (0.75 + x) ** -1.5, MANY),
}
EACH = pytest.mark.parametrize("kernel", SPECTRA, ids=str)


def test_each_kernel_is_tested_and_registered():
    classes = {c for _, c in inspect.getmembers(kernels, inspect.isclass) if issubclass(c, kernels.GraphKernel)}
    classes = {c for c in classes if not inspect.isabstract(c) and not c.__name__.startswith("_")}
    assert classes == {type(kernel) for kernel in SPECTRA}
    assert classes == {type(kernels.by_name(name)) for name in kernels.names()}


@pytest.mark.parametrize(("kernel", "spectral"), SPECTRA.items(), ids=map(str, SPECTRA))
def test_kernel_is_a_function_of_the_laplacian(kernel, spectral):
    W = KARATE.adjacency.toarray()
    roots = np.sqrt(W.sum(1))
    eigenvalues, vectors = np.linalg.eigh(np.eye(len(W)) - W / roots / roots[:, None])
    expected = (vectors * spectral(np.clip(eigenvalues, 0, 2))) @ vectors.T
    scale = np.abs(expected).max()
    np.testing.assert_allclose(kernel.exact(KARATE), expected, atol=1e-12 * scale)
    f = kernel.modulation(200 if isinstance(kernel, kernels.PowerSeries) else 4000)
    x = np.linspace(0, 1.98, 30)
    slow = isinstance(kernel, kernels.InverseCosine)  # f_l falls like l^(-3/2)
    found = np.polynomial.polynomial.polyval(1 - x, f) ** 2
    np.testing.assert_allclose(found, spectral(x), rtol=1e-8, atol=3e-6 if slow else 1e-13 * scale)


@EACH
def test_modulation_matches_fifty_digits(kernel):
    np.testing.assert_allclose(kernel.modulation(20), taylor(SPECTRA[kernel], 20), rtol=1e-10, atol=1e-30)


@EACH
def test_jacobians_match_differences(kernel):
    x, step = np.linspace(0, 2, 7), 1e-6
    for i, value in enumerate(kernel.values):
        shift = step * value * (np.arange(len(kernel.parameters)) == i)
        up, down = kernel.with_values(kernel.values + shift), kernel.with_values(kernel.values - shift)
        for jacobian, difference in (
            (kernel.modulation_jacobian(30), up.modulation(30) - down.modulation(30)),
            (kernel.spectral_jacobian(x), up.spectral(x) - down.spectral(x)),
            (kernel.root_jacobian(x), up.root(x) - down.root(x)),
        ):
            assert jacobian.shape == (len(difference), len(kernel.parameters))
            np.testing.assert_allclose(jacobian[:, i], difference / (2 * shift[i]), rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("kernel", [kernels.RegularizedLaplacian(1.5, 3.0), kernels.Matern(2.5, 1.7)], ids=str)
def test_jacobians_of_resolvents_match_differences(kernel):
    """Of the shift and the amplitude, which are rational functions of one parameter."""
    (value,), step = kernel.values, 1e-6
    up, down = (np.array(kernel.with_values([value + h]).resolvent()[1:3]) for h in (step, -step))
    np.testing.assert_allclose(kernel.resolvent().jacobian[:, 0], (up - down) / (2 * step), rtol=1e-7)


def test_radius_is_where_the_series_stops_converging():
    kernel = kernels.RegularizedLaplacian(2, 2.0)
    f = kernel.modulation(2000)
    assert f[2000] / f[1999] == pytest.approx(1 / kernel.radius, rel=1e-3)
    assert kernels.RegularizedLaplacian(2, np.int16(300)).radius == kernels.RegularizedLaplacian(2, 300).radius


@pytest.mark.parametrize("power", [1, 3, 8])
def test_series_with_multiple_zeros_on_the_circle(power):
    series = kernels.PowerSeries(np.polynomial.polynomial.polypow([1, 1], power))
    np.testing.assert_allclose(series.modulation(30), kernels.RandomWalk(power, 2.0).modulation(30), atol=1e-9)


def test_derivatives_are_finite_on_underflow():
    for kernel in (kernels.Diffusion(30.0), kernels.RegularizedLaplacian(200, 1e3)):
        for made in (graphs.chebyshev_features(KARATE, degree=6), graphs.spectral_features(KARATE, rank=30)):
            assert np.isfinite(made.weights_jacobian(kernel)).all()


def test_free_modulations_are_values():
    free = kernels.FreeModulation(kernels.RegularizedLaplacian(3, 2.0), [0.5, 2.0])
    assert free.parameters == ("sigma", "factor_0", "factor_1")
    other = free.with_values([4.0, 5.0, 6.0])
    assert other == kernels.FreeModulation(kernels.RegularizedLaplacian(3, 4.0), (5.0, 6.0))
    assert len({free, kernels.FreeModulation(kernels.RegularizedLaplacian(3, 2.0), np.array([0.5, 2])), other}) == 2
    assert pickle.loads(pickle.dumps(free)) == free
    assert free.radius == free.base.radius


def test_root_of_a_free_modulation_may_change_its_sign():
    """f(U) f(U)^T is the kernel still, and walks estimate it: the root is not sqrt(k) there."""
    free, ring = kernels.FreeModulation(kernels.Diffusion(2.0), (0.1, 3.0)), Graph.from_networkx(nx.cycle_graph(6))
    assert free.root(np.array([2.0]))[0] < 0
    for made in (graphs.sample_walks(ring, exact_hops=40, seed=0), graphs.spectral_features(ring, rank=6)):
        phi = made.features(free)
        np.testing.assert_allclose((phi @ phi.T).toarray(), free.exact(ring), atol=1e-9)


@pytest.mark.parametrize("kernel", list(SPECTRA)[1:8:2], ids=str)
def test_spectral_function_has_the_modulation_of_its_family(kernel):
    alone, f = kernels.Spectral(SPECTRA[kernel]), kernel.modulation(80)
    np.testing.assert_allclose(alone.modulation(80), f, rtol=0, atol=1e-14 * np.abs(f).max())
    assert 1 <= alone.radius <= kernel.radius


@pytest.mark.parametrize(
    "function",
    [lambda x: np.abs(x - 0.5) + 0.1, lambda x: (x - 0.5) ** 2 + 0.01],
    ids=["abs", "zeros inside"],
)
def test_function_without_power_series_has_polynomials_only(function):
    kernel = kernels.Spectral(function)
    refused(lambda: graphs.sample_walks(KARATE, seed=0).features(kernel), graphs.InvalidArgumentError, "converges")
    phi, exact = graphs.chebyshev_features(KARATE, degree=60).features(kernel), kernel.exact(KARATE)
    assert np.linalg.norm((phi @ phi.T).toarray() - exact) < 0.05 * np.linalg.norm(exact)


@dataclasses.dataclass(frozen=True)
class ByItsSpectrum(kernels.GraphKernel):
    """The Matern kernel with both parameters learned, by `spectral` alone."""

    nu: float = 1.5
    kappa: float = 1.0

    def spectral(self, eigenvalues):
        return (2 * self.nu / self.kappa**2 + eigenvalues) ** -self.nu


def test_subclass_needs_only_its_spectrum():
    alone, kernel, x = ByItsSpectrum(1.5, 2.0), kernels.Matern(1.5, 2.0), np.linspace(0, 2, 9)
    assert alone.parameters == ("nu", "kappa")
    np.testing.assert_allclose(alone.modulation(50), kernel.modulation(50), atol=1e-14)
    for name, argument in (("spectral_jacobian", x), ("root_jacobian", x), ("modulation_jacobian", 50)):
        slopes, expected = getattr(alone, name)(argument)[:, 1:], getattr(kernel, name)(argument)
        np.testing.assert_allclose(slopes, expected, rtol=0, atol=1e-8 * np.abs(expected).max())
    refused(lambda: kernels.name_of(alone), graphs.InvalidArgumentError, "of another class")
