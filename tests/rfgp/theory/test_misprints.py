"""Formulas of the simplex and orthogonal papers as docs/differences.md corrects them hold, and as printed do not."""

import numpy as np
import pytest
from scipy import special

from rfgp import theory


def gamma_ratio(k, d):
    """Gamma(k + d) Gamma(d/2) / (Gamma(d) Gamma(k + d/2))."""
    logs = special.gammaln(k + d) + special.gammaln(d / 2) - special.gammaln(d) - special.gammaln(k + d / 2)
    return np.exp(logs)


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

    @pytest.mark.parametrize("d", [6, 64])
    def test_section_5_1_lacks_the_number_of_features(self, d):
        logs = special.gammaln([d + 1, d / 2 + 0.5, d / 2, d / 2 + 1]) @ [1, 1, -1, -2]
        coefficient, v = 1 - np.sqrt(np.pi) * np.exp(logs - d * np.log(2)), 1e-3
        found = float(theory.variance("simplex", v, d, d, features="laplace")) / v**2
        assert found == pytest.approx(coefficient / d, rel=1e-2)


class TestOrthogonalPaper:
    def test_near_zero_the_ratio_of_a_finite_block(self):
        for d in (2, 6, 32):
            ratio = float(theory.variance("orthogonal", 0.05, d, d) / theory.variance("iid", 0.05, d, d))
            assert ratio == pytest.approx(3 / (d + 2), rel=0.02)
