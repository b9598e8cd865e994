import dataclasses
import inspect
import pickle
from functools import lru_cache

import mpmath
import networkx as nx
import numpy as np
import pytest
from scipy import stats
from scipy.linalg import cosm, expm

import graphs
from graphs import Graph, kernels
from graphs.series import root_coefficients

KERNELS = [
    kernels.Diffusion(0.3),
    kernels.Diffusion(2.0),
    kernels.Diffusion(np.sqrt(60.0)),  # t = 30
    kernels.RegularizedLaplacian(1, 0.5),
    kernels.RegularizedLaplacian(2, 1.0),
    kernels.RegularizedLaplacian(3, 4.0),
    kernels.RegularizedLaplacian(1.5, 10.0),
    kernels.Matern(0.5, 0.3),
    kernels.Matern(1.5, 1.0),
    kernels.Matern(2.5, 12.0),
    kernels.RandomWalk(1, 2.5),
    kernels.RandomWalk(2, 2.0),
    kernels.RandomWalk(5, 4.0),
    kernels.RandomWalk(6, 3.0),
    kernels.InverseCosine(),
    kernels.Modulated([0.5, 0.3, 0.0, -0.1]),
    kernels.PowerSeries([1.0]),
    kernels.PowerSeries([2.0, 0.5, 0.3, 0.0, 0.1]),
    kernels.Spectral(lambda x: np.exp(-2 * x) + 0.1),
    kernels.FreeModulation(),
    kernels.FreeModulation(kernels.Diffusion(3.0), (0.5, 2.0, 0.7, 1.5)),
    kernels.FreeModulation(kernels.RegularizedLaplacian(3, 2.0), (1.3,)),
    kernels.FreeModulation(kernels.Matern(1.5, 2.0), tuple(np.linspace(0.2, 3.0, 25))),
]


@pytest.fixture(scope="module")
def g():
    return Graph.from_networkx(nx.karate_club_graph())


def test_all_kernels_are_tested_and_registered():
    classes = {c for _, c in inspect.getmembers(kernels, inspect.isclass) if issubclass(c, kernels.GraphKernel)}
    classes = {c for c in classes if not inspect.isabstract(c) and not c.__name__.startswith("_")}
    assert classes == {type(kernel) for kernel in KERNELS}
    assert classes == {type(kernels.by_name(name)) for name in kernels.names()}


def test_exact_matches_dense_algebra(g):
    L = np.eye(g.num_nodes) - g.shift_operator.toarray()
    np.testing.assert_allclose(kernels.Diffusion(1.7).exact(g), expm(-(1.7**2) / 2 * L), atol=1e-13)
    inverse = np.linalg.inv(np.eye(g.num_nodes) + 2.25 * L)
    np.testing.assert_allclose(kernels.RegularizedLaplacian(2, 1.5).exact(g), inverse @ inverse, atol=1e-13)
    inverse = np.linalg.inv(4 / 2.25 * np.eye(g.num_nodes) + L)
    np.testing.assert_allclose(kernels.Matern(2, 1.5).exact(g), inverse @ inverse, atol=1e-13)
    np.testing.assert_allclose(
        kernels.RandomWalk(3, 2.2).exact(g), np.linalg.matrix_power(2.2 * np.eye(len(L)) - L, 3), atol=1e-13
    )
    np.testing.assert_allclose(kernels.InverseCosine().exact(g), cosm(np.pi / 4 * L), atol=1e-13)
    U = np.eye(len(L)) - L
    f = 0.5 * np.eye(len(L)) + 0.3 * U - 0.1 * U @ U
    np.testing.assert_allclose(kernels.Modulated([0.5, 0.3, -0.1]).exact(g), f @ f, atol=1e-13)
    np.testing.assert_allclose(
        kernels.PowerSeries([2, 0.5, 0.3]).exact(g), 2 * np.eye(len(L)) + 0.5 * U + 0.3 * U @ U, atol=1e-13
    )
    first = np.exp(-(1.7**2) / 4)  # Poisson probabilities of 0 and 1 with mean 1.7^2 / 4
    f = expm(-(1.7**2) / 4 * L) - 0.5 * first * np.eye(len(L)) + 2.0 * first * 1.7**2 / 4 * U
    free = kernels.FreeModulation(kernels.Diffusion(1.7), (0.5, 3.0))
    np.testing.assert_allclose(free.exact(g), f @ f, atol=1e-13)


def root_of_kernel(kernel, u):
    """Return sqrt(k) as a function of u in mpmath's arithmetic."""
    if isinstance(kernel, kernels.FreeModulation):
        return root_of_kernel(kernel.base, u) + mpmath.polyval(excess(kernel), u)
    if isinstance(kernel, kernels.Diffusion):
        return mpmath.exp(-(mpmath.mpf(kernel.lengthscale) ** 2) / 4 * (1 - u))
    if isinstance(kernel, kernels.RegularizedLaplacian):
        return (1 + mpmath.mpf(kernel.sigma) ** 2 * (1 - u)) ** (-mpmath.mpf(kernel.order) / 2)
    if isinstance(kernel, kernels.Matern):
        return (2 * mpmath.mpf(kernel.nu) / mpmath.mpf(kernel.kappa) ** 2 + 1 - u) ** (-mpmath.mpf(kernel.nu) / 2)
    if isinstance(kernel, kernels.RandomWalk):
        return (mpmath.mpf(kernel.alpha) - 1 + u) ** (mpmath.mpf(kernel.p) / 2)
    if isinstance(kernel, kernels.InverseCosine):
        return mpmath.sqrt(mpmath.cos(mpmath.pi / 4 * (1 - u)))
    if isinstance(kernel, kernels.Spectral):
        return mpmath.sqrt(mpmath.exp(-2 * (1 - u)) + mpmath.mpf(0.1))
    value = mpmath.polyval([mpmath.mpf(c) for c in kernel.coefficients[::-1]], u)
    return value if isinstance(kernel, kernels.Modulated) else mpmath.sqrt(value)


@lru_cache
def excess(kernel):
    """(c_l - 1) f_l of a free modulation, the last first."""
    base = mpmath.taylor(lambda u: root_of_kernel(kernel.base, u), 0, len(kernel.factors) - 1)
    return [(mpmath.mpf(c) - 1) * f for c, f in zip(kernel.factors, base, strict=True)][::-1]


def mpmath_modulation(kernel, length):
    """The Taylor coefficients of sqrt(k) in U at 50 digits, from derivatives that mpmath takes itself."""
    with mpmath.workdps(50):
        return np.array([float(c) for c in mpmath.taylor(lambda u: root_of_kernel(kernel, u), 0, length)])


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_modulation_matches_mpmath(kernel):
    np.testing.assert_allclose(kernel.modulation(20), mpmath_modulation(kernel, 20), rtol=1e-10, atol=1e-30)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_modulation_squared_is_the_kernel(g, kernel):
    u = 1 - g.spectrum.eigenvalues
    f, slow = kernel.modulation(4000), isinstance(kernel, kernels.InverseCosine)  # f_l falls like l^(-3/2)
    np.testing.assert_allclose(
        np.polynomial.polynomial.polyval(u, f) ** 2, kernel.spectral(1 - u), rtol=1e-8, atol=3e-6 if slow else 1e-15
    )


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_jacobians_match_differences(kernel):
    eigenvalues = np.linspace(0, 2, 7)
    step = 1e-6
    for i in range(len(kernel.parameters)):
        shift = np.zeros(len(kernel.parameters))
        shift[i] = step * kernel.values[i]
        up, down = kernel.with_values(kernel.values + shift), kernel.with_values(kernel.values - shift)
        for jacobian, difference in (
            (kernel.modulation_jacobian(30), up.modulation(30) - down.modulation(30)),
            (kernel.spectral_jacobian(eigenvalues), up.spectral(eigenvalues) - down.spectral(eigenvalues)),
            (kernel.root_jacobian(eigenvalues), up.root(eigenvalues) - down.root(eigenvalues)),
        ):
            assert jacobian.shape == (len(difference), len(kernel.parameters))
            np.testing.assert_allclose(jacobian[:, i], difference / (2 * shift[i]), rtol=1e-6, atol=1e-10)


def test_radius_is_where_the_series_stops_converging():
    kernel = kernels.RegularizedLaplacian(2, 2.0)
    f = kernel.modulation(2000)
    assert f[2000] / f[1999] == pytest.approx(1 / kernel.radius, rel=1e-3)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, "1", None, True])
def test_parameters_must_be_positive_numbers(value):
    with pytest.raises(graphs.InvalidArgumentError, match="lengthscale must"):
        kernels.Diffusion(value)


class TestRootOfSeries:
    @pytest.mark.parametrize("t", [0.1, 1, 30, 200])
    def test_entire_functions_have_relative_accuracy(self, t):
        """Against the Poisson law, over the whole range of double precision, far beyond where f * f loses f."""
        f, law = root_coefficients(lambda u: -t * (1 - u), 400, np.inf), stats.poisson.pmf(np.arange(401), t / 2)
        normal = law > 1e-290
        np.testing.assert_allclose(f[normal], law[normal], rtol=2e-12)

    @pytest.mark.parametrize(("sigma", "order"), [(0.5, 1), (4, 3), (10, 1.5)])
    def test_finite_radii_have_relative_accuracy(self, sigma, order):
        c = sigma**2 / (1 + sigma**2)
        f = root_coefficients(lambda u: -order * np.log(1 + sigma**2 * (1 - u)), 400, 1 / c)
        law = stats.nbinom.pmf(np.arange(401), order / 2, 1 - c)
        np.testing.assert_allclose(f, law, rtol=2e-12, atol=1e-290)

    def test_planted_recursion_loses_all_digits(self):
        """Why: at t = 30 the recursion has no digit of f_60 right, and f * f agrees with the kernel all the same."""
        kernel = kernels.Diffusion(np.sqrt(60.0))
        alpha, f = stats.poisson.pmf(np.arange(61), 30), np.zeros(61)
        f[0] = np.sqrt(alpha[0])
        for n in range(1, 61):
            f[n] = (alpha[n] - f[1:n] @ f[n - 1 : 0 : -1]) / (2 * f[0])
        np.testing.assert_allclose(np.convolve(f, f)[:61], alpha, atol=1e-12)
        assert abs(f[60] / kernel.modulation(60)[60] - 1) > 0.5

    def test_circles_around_two_zeros_are_skipped(self):
        """Beyond both the root is continuous again, and a power series no more."""
        f = root_coefficients(lambda u: np.log((1 - u / 0.3) * (1 - u / 0.4)), 12, 1.0)
        with mpmath.workdps(40):
            exact = mpmath.taylor(lambda u: mpmath.sqrt((1 - u / mpmath.mpf(0.3)) * (1 - u / mpmath.mpf(0.4))), 0, 12)
        np.testing.assert_allclose(f, [float(c) for c in exact], rtol=1e-9)

    def test_zero_near_the_origin_is_refused(self):
        with pytest.raises(graphs.InvalidArgumentError, match="zeros near"):
            root_coefficients(lambda u: np.log(u - 1e-12), 10, 1.0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: kernels.by_name("heat"), "got 'heat'"),
        (lambda: kernels.by_name([2]), r"got \[2\]"),
        (lambda: kernels.by_name("diffusion", nu=1), "nu"),
        (lambda: kernels.Diffusion(1.0).with_values([1.0, 2.0]), "parameters"),
        (lambda: kernels.RandomWalk(1.5), "p must be an integer"),
        (lambda: kernels.RandomWalk(2, 1.9), "alpha at least 2"),
        (lambda: kernels.PowerSeries([1.0, 2.0]), "zero .* 0.5"),
        (lambda: kernels.PowerSeries([]), "finite numbers"),
        (lambda: kernels.Modulated([0.0, 1.0]), "the first positive"),
        (lambda: kernels.Modulated([1.0, np.nan]), "finite numbers"),
        (lambda: kernels.Modulated("ab"), "finite numbers"),
        (lambda: kernels.Modulated(3.0), "finite numbers"),
        (lambda: kernels.Modulated((1.0, 1e308)), "double precision"),
        (lambda: kernels.Diffusion(1e200), "double precision"),
        (lambda: kernels.FreeModulation(kernels.InverseCosine()), "base must be a kernel with a positive modulation"),
        (lambda: kernels.FreeModulation(kernels.RandomWalk(2, 2.0)), "base must be"),
        (lambda: kernels.FreeModulation(kernels.FreeModulation()), "base must be"),
        (lambda: kernels.FreeModulation("diffusion"), "base must be"),
        (lambda: kernels.FreeModulation(factors=()), "at least one"),
        (lambda: kernels.FreeModulation(factors=(1.0, 0.0)), "factors must be positive"),
        (lambda: kernels.FreeModulation(factors=(1.0, np.inf)), "factors must be positive"),
        (lambda: kernels.FreeModulation(factors="12"), "factors must be positive|at least one"),
        (lambda: kernels.FreeModulation(factors=3.0), "factors must be positive"),
        (lambda: kernels.FreeModulation(factors=[[1.0]]), "factors must be positive"),
        (lambda: kernels.FreeModulation(factors=(1e300,)), "double precision"),
        (lambda: kernels.FreeModulation().with_values([1.0, 2.0]), "parameters .'lengthscale', 'factor_0'"),
        (lambda: kernels.FreeModulation().with_values(-np.ones(9)), "lengthscale must"),
        (lambda: kernels.Matern(1.5, 1e200), "double precision"),
        (lambda: kernels.RandomWalk(301, 1e10), "double precision"),
    ],
)
def test_invalid_kernels_are_refused(make, words):
    with pytest.raises(graphs.InvalidArgumentError, match=words):
        make()


def test_numbers_of_few_bits_do_not_overflow():
    assert kernels.Diffusion(np.int8(20)) == kernels.Diffusion(20)
    assert kernels.RegularizedLaplacian(2, np.int16(300)).radius == kernels.RegularizedLaplacian(2, 300).radius
    assert type(kernels.Diffusion(np.int8(20)).lengthscale) is int


@pytest.mark.parametrize("power", [1, 2, 3, 4, 8])
def test_series_with_multiple_zeros_on_the_circle(power):
    series = kernels.PowerSeries(np.polynomial.polynomial.polypow([1, 1], power))
    walk = kernels.RandomWalk(power, 2.0)
    np.testing.assert_allclose(series.modulation(30), walk.modulation(30), atol=1e-9)


class TestFreeModulation:
    def test_factors_of_one_are_the_base(self, g):
        for base in (kernels.Diffusion(3.0), kernels.RegularizedLaplacian(2, 2.0), kernels.Matern(1.5, 2.0)):
            free = kernels.FreeModulation(base)
            np.testing.assert_array_equal(free.modulation(20), base.modulation(20))
            np.testing.assert_allclose(free.exact(g), base.exact(g), rtol=1e-12)
            assert free.radius == base.radius

    def test_parameters_round_trip(self):
        free = kernels.FreeModulation(kernels.RegularizedLaplacian(3, 2.0), [0.5, 2.0])
        assert free.parameters == ("sigma", "factor_0", "factor_1")
        np.testing.assert_array_equal(free.values, [2.0, 0.5, 2.0])
        other = free.with_values([4.0, 5.0, 6.0])
        assert other == kernels.FreeModulation(kernels.RegularizedLaplacian(3, 4.0), (5.0, 6.0))
        np.testing.assert_array_equal(other.modulation(1), other.base.modulation(1) * [5.0, 6.0])

    def test_kernel_is_hashable_and_picklable(self):
        free = kernels.FreeModulation(kernels.Diffusion(3.0), np.array([0.5, 2.0]))
        same = kernels.FreeModulation(kernels.Diffusion(3.0), [0.5, 2])
        assert free == same
        assert len({free, same, kernels.FreeModulation(kernels.Diffusion(3.1), (0.5, 2.0))}) == 2
        assert dataclasses.asdict(free) == {"base": {"lengthscale": 3.0}, "factors": (0.5, 2.0)}
        assert repr(free) == "FreeModulation(base=Diffusion(lengthscale=3.0), factors=(0.5, 2.0))"
        assert pickle.loads(pickle.dumps(free)) == free

    def test_root_may_change_its_sign(self):
        """f(U) f(U)^T is the kernel still, and walks estimate it: the root is not sqrt(k) there."""
        free = kernels.FreeModulation(kernels.Diffusion(2.0), (0.1, 3.0))
        bipartite = Graph.from_networkx(nx.cycle_graph(6))
        assert free.root(np.array([2.0]))[0] < 0
        phi = graphs.sample_walks(bipartite, exact_hops=40, seed=0).features(free)
        np.testing.assert_allclose((phi @ phi.T).toarray(), free.exact(bipartite), atol=1e-9)
        phi = graphs.spectral_features(bipartite, rank=6).features(free)
        np.testing.assert_allclose((phi @ phi.T).toarray(), free.exact(bipartite), atol=1e-9)


ALONE = [
    (kernels.Diffusion(2.0), lambda x: np.exp(-2 * x)),
    (kernels.Diffusion(8.0), lambda x: np.exp(-32 * x)),
    (kernels.Matern(1.5, 12.0), lambda x: (3 / 144 + x) ** -1.5),
    (kernels.RegularizedLaplacian(2, 1.0), lambda x: (1 + x) ** -2.0),
    (kernels.RandomWalk(3, 2.5), lambda x: (2.5 - x) ** 3),
    (kernels.PowerSeries([2.0, 0.5, 0.3, 0.0, 0.1]), lambda x: np.polyval([0.1, 0, 0.3, 0.5, 2], 1 - x)),
]


@pytest.mark.parametrize(("kernel", "function"), ALONE, ids=lambda one: getattr(type(one), "__name__", ""))
def test_spectral_function_has_the_modulation_of_its_family(kernel, function, g):
    alone, f = kernels.Spectral(function), kernel.modulation(80)
    np.testing.assert_allclose(alone.modulation(80), f, rtol=0, atol=1e-14 * np.abs(f).max())
    assert 1 <= alone.radius <= kernel.radius
    np.testing.assert_allclose(alone.exact(g), kernel.exact(g), rtol=1e-13)
    for features in (graphs.taylor_features(g, degree=6), graphs.sample_walks(g, num_walkers=4, seed=0)):
        expected = graphs.features.feature_matrix(features, kernel).toarray()
        found = graphs.features.feature_matrix(features, alone).toarray()
        np.testing.assert_allclose(found, expected, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize(
    "function",
    [lambda x: np.maximum(1 - x, 0) + 0.1, lambda x: np.abs(x - 0.5) + 0.1, lambda x: (x - 0.5) ** 2 + 0.01],
    ids=["max", "abs", "zeros inside"],
)
def test_function_without_power_series_has_no_modulation(function, g):
    kernel = kernels.Spectral(function)
    for ask in (lambda: kernel.modulation(5), lambda: graphs.sample_walks(g, seed=0).features(kernel)):
        with pytest.raises(graphs.InvalidArgumentError, match=r"converges for \|u\| <= 1"):
            ask()
    phi = graphs.chebyshev_features(g, degree=60).features(kernel)
    assert np.linalg.norm((phi @ phi.T).toarray() - kernel.exact(g)) < 0.05 * np.linalg.norm(kernel.exact(g))


@pytest.mark.parametrize("function", [None, lambda x: -x, lambda x: x, lambda x: 1.0, lambda x: 1 / (x - 2)])
def test_invalid_spectral_functions_are_refused(function):
    with np.errstate(all="ignore"), pytest.raises(graphs.InvalidArgumentError, match="Spectral: function must map"):
        kernels.Spectral(function)


@dataclasses.dataclass(frozen=True)
class ByItsSpectrum(kernels.GraphKernel):
    """The Matern kernel with both parameters learned, by `spectral` alone."""

    nu: float = 1.5
    kappa: float = 1.0

    def spectral(self, eigenvalues):
        return (2 * self.nu / self.kappa**2 + eigenvalues) ** -self.nu


def test_subclass_needs_only_spectral(g):
    alone, kernel = ByItsSpectrum(1.5, 2.0), kernels.Matern(1.5, 2.0)
    assert alone.parameters == ("nu", "kappa")
    np.testing.assert_allclose(alone.modulation(50), kernel.modulation(50), atol=1e-14)
    eigenvalues = np.linspace(0, 2, 9)
    for name, argument in (
        ("spectral_jacobian", eigenvalues),
        ("root_jacobian", eigenvalues),
        ("modulation_jacobian", 50),
    ):
        slopes, expected = getattr(alone, name)(argument)[:, 1:], getattr(kernel, name)(argument)
        np.testing.assert_allclose(slopes, expected, rtol=0, atol=1e-8 * np.abs(expected).max())
    with pytest.raises(graphs.InvalidArgumentError, match="of another class"):
        kernels.name_of(alone)
