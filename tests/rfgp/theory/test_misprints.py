"""Formulas of the simplex and orthogonal papers as docs/differences.md corrects them hold, and as printed do not."""

import mpmath
import numpy as np
import pytest
from checks import assert_mean
from frequency_draws import sample
from scipy import integrate, linalg, special, stats

from rfgp import theory


def gamma_ratio(k, d):
    """Gamma(k + d) Gamma(d/2) / (Gamma(d) Gamma(k + d/2))."""
    logs = special.gammaln(k + d) + special.gammaln(d / 2) - special.gammaln(d) - special.gammaln(k + d / 2)
    return np.exp(logs)


def sphere_cosine(r, d):
    """The mean of cos(r u_1) over the unit sphere of d dimensions."""
    return float(mpmath.hyp0f1(d / 2, -(r**2) / 4))


class TestSimplexPaper:
    def test_equation_25_has_a_power_of_one_half(self):
        k, v, d = np.arange(80), 0.9, 6
        terms = v ** (2 * k) / special.factorial(k) * gamma_ratio(k, d)
        gap = float(theory.orthogonality_gap(v, d, features="laplace"))
        assert np.exp(v**2) - (terms / 2.0**k).sum() == pytest.approx(gap, rel=1e-9)
        assert np.exp(v**2) - terms.sum() < 0  # as printed: no gain at all

    def test_equation_77_divides_by_one_minus_the_exponential(self):
        z, d = 0.8, 6
        moment = float(theory.orthogonal_moment(z, d)) - np.exp(-(z**2))
        ratio = float(theory.variance("orthogonal", z, d, d) / theory.variance("iid", z, d, d))
        assert 1 + 2 * (d - 1) / (1 - np.exp(-(z**2))) ** 2 * moment == pytest.approx(ratio, rel=1e-9)
        assert abs(1 + 2 * (d - 1) / (1 + np.exp(-(z**2))) ** 2 * moment - ratio) > 0.1

    def test_equation_80_has_the_exponent_k(self):
        k, m, d = 3, 5, 4000

        def stirling(exponent):
            terms = (exponent, k + d - 1), (d / 2 - 1, d / 2 - 1), (-(k + d / 2 - 1), k + d / 2 - 1), (-(d - 1), d - 1)
            logs = sum(power * np.log(base) for power, base in terms) - k * np.log(2)
            return np.exp(logs) * np.sqrt((k + d - 1) * (d / 2 - 1) / ((k + d / 2 - 1) * (d - 1)))

        assert stirling(k + d - 1) == pytest.approx(gamma_ratio(k, d) / 2**k, rel=1e-4)
        assert stirling(m + d - 1) > 1e6

    @pytest.mark.parametrize("d", [6, 64])
    def test_section_5_1_lacks_the_number_of_features(self, d):
        logs = special.gammaln([d + 1, d / 2 + 0.5, d / 2, d / 2 + 1]) @ [1, 1, -1, -2]
        coefficient, v = 1 - np.sqrt(np.pi) * np.exp(logs - d * np.log(2)), 1e-3
        found = float(theory.variance("simplex", v, d, d, features="laplace")) / v**2
        assert found == pytest.approx(coefficient / d, rel=1e-2)

    @pytest.mark.parametrize("cosine", [0.0, -0.2])
    def test_equation_56_by_its_first_line(self, cosine):
        w, chi = 3.1, stats.chi(6)

        def integral(function):
            return integrate.quad(function, 0, np.pi / 2)[0]

        def density(prefactor, power):
            def integrand(phi):
                c = 1 + np.sin(2 * phi) * cosine
                return w / c**prefactor * chi.pdf(w * np.cos(phi) / np.sqrt(c)) * chi.pdf(w * np.sin(phi) / c**power)

            return integral(integrand)

        def below(length):
            def inner(phi):
                most = length / np.sqrt(1 + np.sin(2 * phi) * cosine)
                return integrate.quad(lambda r: r * chi.pdf(r * np.cos(phi)) * chi.pdf(r * np.sin(phi)), 0, most)[0]

            return integral(inner)

        slope = (below(w + 1e-3) - below(w - 1e-3)) / 2e-3
        assert density(1, 0.5) == pytest.approx(slope, rel=1e-4)
        assert (abs(density(0.5, 1) - slope) > 0.01 * slope) is (cosine != 0)


class TestOrthogonalPaper:
    def test_the_ratio_falls_with_the_fourth_power(self):
        x = np.array([0.05, 0.1]) ** 2
        ratio = 1 - np.exp(-x) * x**2 / (1 - np.exp(-x)) ** 2
        np.testing.assert_allclose(ratio, x**2 / 12, rtol=1e-2)
        assert (ratio < x / 1000).all()

    @pytest.mark.parametrize("name", ["iid", "orthogonal"])
    def test_projections_have_the_square_of_the_norm_as_variance(self, name):
        z = np.array([1.0, -2.0, 0.5, 0.1])
        assert_mean((sample(name, 4, 4) @ z) ** 2, z @ z)

    def test_inner_products_of_theorem_4_scale_with_the_square(self):
        """R = sqrt(d) H diag(H D_2 H D_3 z); its rows have norm |z| and inner products that are quadratic in z."""
        h, rng = linalg.hadamard(8) / np.sqrt(8), np.random.default_rng(0)
        (second, third), z = rng.choice([-1.0, 1.0], (2, 8)), rng.standard_normal(8)
        one, three = (np.sqrt(8) * h * (h @ (second * (h @ (third * factor * z)))) for factor in (1, 3))
        np.testing.assert_allclose(np.linalg.norm(three, axis=1), 3 * np.linalg.norm(z))
        np.testing.assert_allclose(three @ three.T, 9 * one @ one.T, atol=1e-12)

    def test_lemma_6_has_a_decaying_exponential(self):
        d, z = 400, 1.5
        covariance = sphere_cosine(np.sqrt(2 * d) * z, d) - sphere_cosine(np.sqrt(d) * z, d) ** 2
        assert covariance == pytest.approx(-np.exp(-(z**2)) * z**4 / (2 * d), rel=0.02)
        assert covariance > -np.exp(z**2) * z**4 / (2 * d) / 50

    def test_signs_of_projections_estimate_one_less_twice_the_angle(self):
        theta, rng = 0.5, np.random.default_rng(0)
        g = rng.standard_normal((20_000, 2))
        products = np.sign(g[:, 0]) * np.sign(g @ [np.cos(theta), np.sin(theta)])
        assert_mean(products, 1 - 2 * theta / np.pi)

    def test_lemma_7_needs_absolute_values(self):
        """With x = -(1, 1) the printed bound is negative, the difference of means is not."""
        x = np.array([-1.0, -1.0])
        normal = integrate.quad(lambda t: np.cos(t) * stats.norm(scale=np.sqrt(2)).pdf(t), -12, 12)[0]
        signs = np.mean([np.cos(a * x[0] + b * x[1]) for a in (-1, 1) for b in (-1, 1)])
        assert 1.5 * (x**3).sum() / (x @ x) < 0 < abs(normal - signs) <= 1.5 * (np.abs(x) ** 3).sum() / (x @ x)

    def test_near_zero_the_ratio_of_a_finite_block(self):
        for d in (2, 6, 32):
            ratio = float(theory.variance("orthogonal", 0.05, d, d) / theory.variance("iid", 0.05, d, d))
            assert ratio == pytest.approx(3 / (d + 2), rel=0.02)

    def test_lemma_5_is_about_the_root_of_d(self):
        d, z = 400, 1.2
        y = stats.beta(0.5, (d - 1) / 2)  # of a squared coordinate on the unit sphere
        mean = y.expect(lambda square: np.cos(np.sqrt(d * square) * z))
        expected = np.exp(-(z**2) / 2) * (1 - z**4 / (4 * d))
        assert mean == pytest.approx(expected, abs=1e-4)
        assert abs(y.expect(lambda square: np.cos(d * np.sqrt(square))) - expected) > 0.1
