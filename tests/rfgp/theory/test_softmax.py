import mpmath
import numpy as np
import pytest
import torch
from checks import assert_mean, fails
from estimators import COMPLEX, MATRICES, REAL, X, Y, draw

import rfgp
from rfgp import random, theory
from rfgp.features import softmax
from rfgp.features.softmax import coefficients
from rfgp.theory import softmax as module

A, B = X[:, None].numpy(), Y[None].numpy()  # every x with every y
KERNELS = ("softmax", "gaussian")
SM = np.exp((A * B).sum(-1))
V, Z = ((A + B) ** 2).sum(-1), ((A - B) ** 2).sum(-1)


def squared_errors(make, kernel="softmax", count=1000):
    """Of estimates of the three x and two y, (count, 3, 2)."""
    generator, exact = random.generator(6), softmax.exact(X, Y, kernel)
    return torch.stack([(make(generator)(X, Y) - exact).square() for _ in range(count)]).numpy()


def one_frequency(make, kernel="softmax", count=40_000):
    """The same of estimates from one independent frequency each, all from one pair of maps."""
    pair, exact = make(draw(count, 3, random.generator(6))), softmax.exact(X, Y, kernel)
    products = pair.left(X)[:, None] * pair.right(Y)[None]  # (3, 2, F): the blocks of a frequency lie count apart
    estimates = count * products.unflatten(-1, (-1, count)).sum(-2)
    return (estimates - exact[..., None]).square().movedim(-1, 0).numpy()


class TestOneEstimator:
    @pytest.mark.parametrize("kernel", KERNELS)
    @pytest.mark.parametrize("kind", ["trigonometric", "positive"])
    def test_variances_are_those_of_draws(self, kind, kernel):
        maker = {"trigonometric": softmax.Trigonometric, "positive": softmax.Positive}[kind]
        samples = one_frequency(lambda omega: maker(omega, kernel), kernel)
        assert_mean(samples, theory.softmax_variance(A, B, 1, estimator=kind, kernel=kernel))

    @pytest.mark.parametrize("kernel", KERNELS)
    @pytest.mark.parametrize("matrix", MATRICES)
    def test_of_the_exponential(self, matrix, kernel):
        a = MATRICES[matrix]
        samples = one_frequency(lambda omega: softmax.Exponential(omega, a, kernel), kernel)
        options = {"estimator": "exponential", "matrix": a.numpy(), "kernel": kernel}
        assert_mean(samples, theory.softmax_variance(A, B, 1, **options))

    @pytest.mark.parametrize("name", ["orthogonal", "iid-antithetic"])
    def test_of_coupled_exponential_features(self, name):
        samples = squared_errors(lambda g: softmax.Exponential(draw(4, 3, g, name), REAL))
        options = {"estimator": "exponential", "matrix": REAL.numpy(), "coupling": name}
        assert_mean(samples, theory.softmax_variance(A, B, 4, **options))

    def test_of_clusters(self):
        """Zero-one coefficients: the variance of the pair of clusters, with the matrix of its centers."""
        diagonals = [[softmax.matching_diagonal(x, 1.2 * y).numpy() for y in Y] for x in 0.8 * X]
        samples = one_frequency(lambda omega: softmax.between_centers(omega, 0.8 * X, 1.2 * Y))
        expected = [
            [float(theory.softmax_variance(A[i, 0], B[0, j], 1, estimator="exponential", matrix=diagonals[i][j]))]
            for i in range(3)
            for j in range(2)
        ]
        assert_mean(samples, np.reshape(expected, (3, 2)))

    @pytest.mark.parametrize(
        ("name", "m"),
        [("orthogonal", 6), ("simplex", 2), ("simplex", 6), ("iid-antithetic", 6), ("pairwise-antithetic", 6)],
    )
    @pytest.mark.slow
    def test_of_coupled_positive_features(self, name, m):
        samples = squared_errors(lambda g: softmax.Positive(draw(m, 3, g, name)))
        assert_mean(samples, theory.softmax_variance(A, B, m, coupling=name))

    @pytest.mark.parametrize("m", [8, 6])
    def test_of_orthogonal_pairs(self, m):
        samples = squared_errors(lambda g: softmax.Positive(draw(m, 3, g, "orthogonal-antithetic")))
        assert_mean(samples, theory.softmax_variance(A, B, m, coupling="orthogonal-antithetic"))

    def test_of_orthogonal_trigonometric_features(self):
        samples = squared_errors(lambda g: softmax.Trigonometric(draw(5, 3, g, "orthogonal")))
        assert_mean(samples, theory.softmax_variance(A, B, 5, estimator="trigonometric", coupling="orthogonal"))

    def test_the_formulas_as_they_are_printed(self):
        trigonometric = np.exp(V) * SM**-2 * (1 - np.exp(-Z)) ** 2 / 10
        positive = np.exp(V) * SM**2 * (1 - np.exp(-V)) / 5
        both_signs = np.exp(V) * SM**2 * (1 - np.exp(-V)) ** 2 / 10  # from 5 frequencies
        found = theory.softmax_variance
        np.testing.assert_allclose(found(A, B, 5, estimator="trigonometric"), trigonometric, rtol=1e-12)
        np.testing.assert_allclose(found(A, B, 5), positive, rtol=1e-12)
        np.testing.assert_allclose(found(A, B, 10, coupling="iid-antithetic"), both_signs, rtol=1e-12)

    def test_all_are_cases_of_the_exponential(self):
        one = np.eye(3)
        for kind, factor in (("positive", 1), ("trigonometric", 1j)):
            for kernel in KERNELS:
                options = {"matrix": factor * one, "kernel": kernel}
                found = theory.softmax_variance(A, B, 4, estimator="exponential", **options)
                expected = theory.softmax_variance(A, B, 4, estimator=kind, kernel=kernel)
                np.testing.assert_allclose(found, expected, rtol=1e-9)

    def test_the_cross_term(self):
        cosine = np.cos((A**2).sum(-1) - (B**2).sum(-1))
        found = theory.exponential_covariance(A, B, np.eye(3), 1j * np.eye(3))
        np.testing.assert_allclose(found, -(SM**2) * (1 - cosine), rtol=1e-9, atol=1e-15)

    def test_covariances_are_those_of_draws(self):
        omega, exact = draw(40_000, 3, random.generator(1)), softmax.exact(X, Y)
        errors = []
        for a in (REAL, COMPLEX):
            pair = softmax.Exponential(omega, a)
            products = pair.left(X)[:, None] * pair.right(Y)[None]
            errors.append(40_000 * products.unflatten(-1, (-1, 40_000)).sum(-2) - exact[..., None])
        samples = (errors[0] * errors[1]).movedim(-1, 0).numpy()
        assert_mean(samples, theory.exponential_covariance(A, B, REAL.numpy(), COMPLEX.numpy()))

    def test_cross_moments_of_orthogonal_pairs_equal_the_series(self):
        """E cosh(omega . v) cosh(omega' . v) for orthogonal omega, omega', in mpmath (simplex paper, Theorem 4.4)."""
        v, d, m = 0.8, 3, 6
        with mpmath.workdps(40):
            series = mpmath.nsum(
                lambda k: (mpmath.mpf(v) ** 2 / 2) ** k * mpmath.rf(d, k) / mpmath.factorial(k) / mpmath.rf(1.5, k),
                [0, mpmath.inf],
            )
            mean = mpmath.exp(mpmath.mpf(v) ** 2 / 2)
            each = (mpmath.exp(2 * mpmath.mpf(v) ** 2) + 1) / 2
            pairs = m // 2
            total = (pairs * each + pairs * (pairs - 1) * series) / pairs**2 - mean**2
        x = np.array([v, 0, 0])
        found = theory.softmax_variance(x, 0 * x, m, coupling="orthogonal-antithetic") * np.exp(v**2)
        assert float(found) == pytest.approx(float(total), rel=1e-8)


class TestCoefficients:
    def samples(self, make, count=4000):
        generator = random.generator(8)
        return torch.stack([make(draw(3, 3, generator))(X, Y) for _ in range(count)]).numpy()

    def test_of_angles(self):
        samples = self.samples(coefficients.Angular)
        mean, second = theory.angular_moments(A, B, 3)
        assert_mean(samples, mean)
        assert_mean(samples**2, second)
        p = np.arccos((A * B).sum(-1) / np.linalg.norm(A, axis=-1) / np.linalg.norm(B, axis=-1)) / np.pi
        np.testing.assert_allclose(second, p * (p - p / 3 + 1 / 3), rtol=1e-12)  # Lemma 3.2
        np.testing.assert_allclose(1 - 2 * mean + second, (1 - p) * (1 - p + p / 3), rtol=1e-12)

    def test_of_angles_at_the_ends(self):
        x = A[0, 0]
        mean, second = theory.angular_moments(np.stack([x, x, x, 0 * x]), np.stack([2 * x, -x, 0 * x, 0 * x]), 3)
        np.testing.assert_allclose(mean, [0, 1, 0.5, 0.5], atol=1e-15)
        np.testing.assert_allclose(second, [0, 1, 0.25, 0.25], atol=1e-15)

    @pytest.mark.parametrize(("of", "complement"), [("difference", True), ("sum", False)])
    @pytest.mark.slow
    def test_of_gaussians(self, of, complement):
        options = {"scale": 0.5, "of": of, "complement": complement}
        samples = self.samples(lambda tau: coefficients.Gaussian(tau, **options))
        mean, second = theory.gaussian_moments(A, B, 3, **options)
        assert_mean(samples, mean)
        assert_mean(samples**2, second)
        assert fails(assert_mean, samples**2, mean**2 + 0.5 * (second - mean**2))  # half of the variance
        assert fails(assert_mean, samples, theory.gaussian_moments(A, B, 3, **{**options, "scale": 0.6})[0])

    @pytest.mark.slow
    @pytest.mark.parametrize("estimator", ["trigonometric", "positive"])
    def test_of_normalized_gaussians(self, estimator):
        options = {"scale": 0.8, "complement": True, "length": 0.6, "estimator": estimator}
        samples = self.samples(lambda tau: coefficients.Gaussian(tau, **options))
        mean, second = theory.gaussian_moments(A, B, 3, **options)
        assert_mean(samples, mean)
        assert_mean(samples**2, second)
        rho, k = 1 - np.exp(-2 * 0.6**2 / 0.8**2), np.exp(-Z / (2 * 0.8**2))
        if estimator == "trigonometric":  # Eqs. 72 and 73
            np.testing.assert_allclose(second, ((1 - k) ** 2 + (1 - k**2) ** 2 / 6) / rho**2, rtol=1e-12)
            other = ((1 - rho - k) ** 2 + (1 - k**2) ** 2 / 6) / rho**2
            np.testing.assert_allclose(1 - 2 * mean + second, other, rtol=1e-10)
        assert fails(assert_mean, samples, rho * mean)

    def test_a_length_belongs_to_a_complement(self):
        for options in ({"length": 1.0}, {"estimator": "exact"}):
            with pytest.raises(rfgp.InvalidArgumentError):
                theory.gaussian_moments(A, B, 3, **options)


def bipolar(common, antithetic=False, kernel="softmax", coefficient=coefficients.Angular):
    def make(generator):
        omega, other, tau = (draw(n, 3, generator) for n in (2, 2, 3))
        options = {"other": None if common else other, "antithetic": antithetic, "kernel": kernel}
        return softmax.bipolar(omega, coefficient(tau), **options)

    return make


class TestBipolar:
    @pytest.mark.parametrize(("common", "antithetic"), [(False, True), (True, False)])
    @pytest.mark.slow
    def test_angular(self, common, antithetic):
        kernel = KERNELS[antithetic]
        options = {"common": common, "antithetic": antithetic, "kernel": kernel}
        expected = theory.bipolar_variance(A, B, 2, theory.angular_moments(A, B, 3), **options)
        assert_mean(squared_errors(bipolar(common, antithetic, kernel), kernel), expected)

    @pytest.mark.parametrize(
        ("of", "antithetic", "common"),
        [("sum", False, False), ("sum", False, True), ("sum", True, True), ("difference", True, True)],
    )
    @pytest.mark.slow
    def test_gaussian(self, of, antithetic, common):
        """Of the difference as `gaussian_hybrid` has it: one less the exponential."""
        options = {"scale": 0.7, "of": of, "complement": of == "difference"}

        def coefficient(tau):
            return coefficients.Gaussian(tau, **options)

        mean, second = theory.gaussian_moments(A, B, 3, **options)
        found = squared_errors(bipolar(common, antithetic, coefficient=coefficient))
        assert_mean(found, theory.bipolar_variance(A, B, 2, (mean, second), common=common, antithetic=antithetic))
        other = theory.bipolar_variance(A, B, 2, (mean, second), common=common, antithetic=not antithetic)
        assert fails(assert_mean, found, other)

    def test_a_common_draw_is_better(self):
        x, y = np.array([1.0, 0, 0]), np.array([0.3, 0.2, 0])
        moments = theory.angular_moments(x, y, 8)
        common, own = (theory.bipolar_variance(x, y, 8, moments, common=c) for c in (True, False))
        assert common < own

    def test_nothing_varies_along_a_line(self):
        x = np.array([0.4, -0.2, 0.1])
        for y in (x, -x):
            assert theory.bipolar_variance(x, y, 4, theory.angular_moments(x, y, 8)) == pytest.approx(0, abs=1e-14)


class TestPlantedErrors:
    def test_half_of_the_cross_moments(self, monkeypatch):
        """As if there were binomial(m, 2) of them, not m (m - 1): so hybrid paper, App. C, Eq. 36."""
        original = module.variance_at

        def planted(coupling, distances, m, d, features):
            independent = original("iid", distances, m, d, features)
            return independent + 0.5 * (original(coupling, distances, m, d, features) - independent)

        monkeypatch.setattr(module, "variance_at", planted)
        assert fails(TestOneEstimator().test_of_orthogonal_pairs, 6)
        assert fails(TestOneEstimator().test_cross_moments_of_orthogonal_pairs_equal_the_series)

    def test_a_cross_term_of_the_other_sign(self):
        """Theorem 3.1 at vectors of unequal length, from one common frequency, with the coefficient 1/2."""
        x, y = (torch.tensor([[a, 0.0, 0.1]], dtype=torch.float64) for a in (1.0, -0.4))
        omega, count, exact = draw(40_000, 3, random.generator(0)), 40_000, softmax.exact(x, y)[0, 0]
        halves = []
        for pair in (softmax.Positive(omega), softmax.Trigonometric(omega)):
            halves.append(count / 2 * (pair.left(x) * pair.right(y)).unflatten(-1, (-1, count)).sum((0, 1)))
        samples, vectors = ((halves[0] + halves[1] - exact) ** 2).numpy(), (x[0].numpy(), y[0].numpy())
        common, own = (theory.bipolar_variance(*vectors, 1, (0.5, 0.25), common=c) for c in (True, False))
        assert_mean(samples, common)
        assert fails(assert_mean, samples, own)
        assert fails(assert_mean, samples, 2 * own - common)

    def test_moments_of_another_number_of_signs(self):
        samples = TestCoefficients().samples(coefficients.Angular)
        assert fails(assert_mean, samples**2, theory.angular_moments(A, B, 1)[1])


def test_zero_vectors_and_one_dimension():
    zero, one = np.zeros(1), np.ones(1)
    for kind in ("trigonometric", "positive"):
        assert theory.softmax_variance(zero, zero, 3, estimator=kind) == 0
    assert theory.softmax_variance(one, -one, 3, coupling="orthogonal") == 0
    assert theory.softmax_variance(one, one, 3, estimator="trigonometric") == 0
    assert theory.softmax_variance(np.ones((4, 1, 2)), np.ones((3, 2)), 2).shape == (4, 3)
    assert theory.softmax_variance(np.ones((0, 2)), np.ones(2), 2, coupling="simplex").shape == (0,)


ONE = np.ones(3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: theory.softmax_variance(ONE, np.ones(2), 3), "same d"),
        (lambda: theory.softmax_variance(ONE, ONE, 0), "positive integer"),
        (lambda: theory.softmax_variance(ONE, ONE, 3, estimator="cosine"), "estimator must be"),
        (lambda: theory.softmax_variance(ONE, ONE, 3, kernel="linear"), "kernel must be"),
        (lambda: theory.softmax_variance(ONE, ONE, 3, coupling="sobol"), "no closed form"),
        (lambda: theory.softmax_variance(ONE, ONE, 3, coupling="iid-antithetic"), "no closed form"),
        (lambda: theory.softmax_variance(ONE, ONE, 4, coupling="simplex-antithetic"), "no closed form"),
        (lambda: theory.softmax_variance(ONE, ONE, 4, estimator="exponential"), "matrix must be given"),
        (lambda: theory.softmax_variance(ONE, ONE, 4, estimator="exponential", matrix=np.eye(2)), "must be"),
        (lambda: theory.exponential_covariance(ONE, ONE, 1j * np.eye(3), np.ones((2, 3))), "must be"),
        (
            lambda: theory.softmax_variance(
                ONE, ONE, 4, estimator="exponential", matrix=1j * ONE, coupling="orthogonal"
            ),
            "for a complex matrix",
        ),
        (lambda: theory.softmax_variance(ONE, ONE, 4, estimator="trigonometric", coupling="simplex"), "no closed form"),
        (lambda: theory.softmax_variance(np.ones((2, 2)), np.ones((3, 2)), 4), "must broadcast"),
        (
            lambda: theory.softmax_variance(A, B, 4, estimator="exponential", matrix=1j * np.zeros((3, 3))),
            "singular",
        ),
        (lambda: theory.gaussian_moments(A, B, 4, of="product"), "of must be"),
        (lambda: theory.gaussian_moments(A, B, 4, scale=0.0), "scale positive"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(rfgp.InvalidArgumentError, match=message):
        make()


def test_variances_of_the_gaussian_kernel_far_from_the_origin():
    """Factors of the softmax kernel leave double precision there; the kernel and its features do not."""
    rng = np.random.default_rng(0)
    x = 2 * rng.standard_normal((3, 100))
    y = x + 0.1 * rng.standard_normal((3, 100))
    z = ((x - y) ** 2).sum(1)
    trigonometric = (1 - np.exp(-z)) ** 2 / 8
    found = theory.softmax_variance(x, y, 4, estimator="trigonometric", kernel="gaussian")
    np.testing.assert_allclose(found, trigonometric, rtol=1e-9)
    imaginary = 1j * np.ones(100)
    found = theory.softmax_variance(x, y, 4, estimator="exponential", matrix=imaginary, kernel="gaussian")
    np.testing.assert_allclose(found, trigonometric, rtol=1e-6)
    near = x, -y  # where positive features are good
    assert np.isfinite(theory.exponential_covariance(*near, np.ones(100), np.ones(100), kernel="gaussian")).all()
