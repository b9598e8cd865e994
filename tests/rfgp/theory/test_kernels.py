import mpmath
import numpy as np
import pytest
import torch
from checks import assert_mean, fails

import rfgp
from rfgp import couplings, random, spectra, theory, transport

Z = np.array([0.5, 1.0])
GAUSSIAN, MATERN = spectra.Gaussian(), spectra.Matern(1.5)


def errors(coupling, m, d, features, spectrum=GAUSSIAN, repeats=1000, z=Z):
    generator = random.generator(0)
    draws = (couplings.by_name(coupling).sample(m, d, spectrum=spectrum, generator=generator) for _ in range(repeats))
    return np.array([theory.rotated_error(draw, z, spectrum=spectrum, features=features) for draw in draws])


def check_closed_form(coupling, features, m, d, spectrum=GAUSSIAN):
    expected = theory.variance(coupling, Z, m, d, spectrum=spectrum, features=features)
    assert_mean(errors(coupling, m, d, features, spectrum), expected)


CASES = [(c, f) for c in ("iid", "orthogonal", "pairwise") for f in ("fourier", "laplace")] + [("simplex", "laplace")]


class TestClosedForms:
    @pytest.mark.thinned(3, slow=2)
    @pytest.mark.parametrize(("coupling", "features"), CASES)
    @pytest.mark.parametrize(("m", "d"), [(7, 3), (5, 8)])
    def test_they_are_the_variances_of_draws(self, coupling, features, m, d):
        check_closed_form(coupling, features, m, d)

    @pytest.mark.parametrize("coupling", ["iid", "orthogonal", "pairwise"])
    def test_of_other_spectra(self, coupling):
        check_closed_form(coupling, "fourier", 5, 3, MATERN)

    def test_in_one_dimension_nothing_is_coupled_but_by_norms(self):
        np.testing.assert_allclose(theory.variance("orthogonal", Z, 4, 1), theory.independent_variance(Z, 4))

    @pytest.mark.parametrize("d", [2, 3, 8, 13, 64, 784])
    def test_orthogonal_moments_equal_the_corrected_series(self, d):
        """Simplex paper, Eq. 25 with 1 / 2^k: Gamma(d/2) / Gamma(d) sum_k (v^2/2)^k Gamma(k+d) / (k! Gamma(k+d/2))."""
        for x in (0.1, 1.0, 3.0, 5.0):
            for sign, features in ((1, "laplace"), (-1, "fourier")):
                with mpmath.workdps(50):
                    half, whole = mpmath.mpf(d) / 2, mpmath.mpf(d)
                    series = mpmath.nsum(
                        lambda k, h=half, w=whole, s=sign, x=x: (
                            (s * mpmath.mpf(x) ** 2 / 2) ** k
                            * mpmath.rf(w, k)
                            / (mpmath.factorial(k) * mpmath.rf(h, k))
                        ),
                        [0, mpmath.inf],
                        method="d",
                    )
                found = theory.orthogonal_moment(x, d, features=features)
                assert float(found) == pytest.approx(float(series), rel=1e-9, abs=1e-10)

    def test_quadrature_matches_the_closed_form_near_the_gaussian(self):
        """The rational quadratic kernel with alpha = 10^4."""
        near = theory.orthogonal_moment(Z, 3, spectrum=spectra.RationalQuadratic(1e4))
        np.testing.assert_allclose(near, theory.orthogonal_moment(Z, 3), rtol=1e-3)

    @pytest.mark.parametrize("d", [2, 3, 8])
    def test_simplex_moments_equal_the_double_series(self, d):
        """Simplex paper, Eq. 24: E |omega_i + omega_j|^(2k) by the binomial theorem and moments of chi."""
        v = 0.9
        with mpmath.workdps(40):
            half, total = mpmath.mpf(d) / 2, mpmath.mpf(0)
            for k in range(40):
                moment = mpmath.mpf(0)
                for p in range(k + 1):
                    # E (r^2 + r'^2)^(k-p) (r r')^p with r^2 = 2 Gamma(d/2), expanded once more
                    inner = sum(
                        mpmath.binomial(k - p, q)
                        * mpmath.gamma(half + q + mpmath.mpf(p) / 2)
                        * mpmath.gamma(half + k - p - q + mpmath.mpf(p) / 2)
                        for q in range(k - p + 1)
                    )
                    moment += mpmath.binomial(k, p) * mpmath.mpf(-2) ** p / mpmath.mpf(d - 1) ** p * inner
                moment *= mpmath.mpf(2) ** k / mpmath.gamma(half) ** 2
                total += (mpmath.mpf(v) ** 2 / 4) ** k * moment / (mpmath.factorial(k) * mpmath.rf(half, k))
        assert float(theory.simplex_moment(v, d)) == pytest.approx(float(total), rel=1e-9)

    def test_order_of_the_couplings(self):
        """Theorems of both papers: each is better than the last for positive features, and orthogonal ones up to a
        z."""
        for d in (2, 5, 16):
            iid, orthogonal, simplex = (
                theory.variance(c, Z, d, d, features="laplace") for c in ("iid", "orthogonal", "simplex")
            )
            assert (iid > orthogonal).all()
            assert (orthogonal > simplex).all()
            assert (theory.orthogonality_gap(Z, d) > 0).all()
            assert (theory.pairwise_moment(Z, d) < theory.orthogonal_moment(Z, d)).all()

    def test_planted_missing_factor(self, monkeypatch):
        original = theory.moments.kummer
        monkeypatch.setattr(theory.moments, "kummer", lambda d, x: original(d, 2 * np.asarray(x)))
        assert fails(check_closed_form, "orthogonal", "laplace", 3, 3)
        assert fails(check_closed_form, "simplex", "laplace", 3, 3)

    def test_planted_pairs_counted_as_if_all_were_coupled(self, monkeypatch):
        monkeypatch.setattr(theory.kernels, "orthogonal_moment", theory.pairwise_moment)
        assert fails(check_closed_form, "pairwise", "fourier", 7, 3)

    def test_cases_without_closed_form_are_refused(self):
        for coupling, features in (("sobol", "fourier"), ("simplex", "fourier")):
            with pytest.raises(rfgp.InvalidArgumentError, match="no closed form"):
                theory.variance(coupling, Z, 4, 3, features=features)
        with pytest.raises(rfgp.InvalidArgumentError, match="features must be one of"):
            theory.rotated_moments(torch.ones(2, 3), Z, "cosine")


class TestRotations:
    @pytest.mark.parametrize("features", ["fourier", "laplace"])
    def test_moments_are_those_of_rotated_features(self, features):
        """A weighted ensemble turned 2000 times, through the feature maps themselves."""
        generator, rng = random.generator(3), np.random.default_rng(0)
        matrix = torch.as_tensor(rng.standard_normal((6, 3)))
        weights = torch.as_tensor(rng.uniform(0.5, 1.5, 6))
        x = torch.tensor([[0.3, 0.1, -0.2], [-0.1, 0.4, 0.2]], dtype=torch.float64)
        kind = rfgp.features.by_name(features)
        distance = float((x[0] + x[1]).norm() if features == "laplace" else (x[0] - x[1]).norm())
        factor = float(torch.exp((x**2).sum())) if features == "laplace" else 1.0
        estimates = []
        for _ in range(2000):
            rotation = couplings.Orthogonal().sample(3, 3, generator=generator).dense()
            rotation = rotation / rotation.norm(dim=1, keepdim=True)
            phi = kind(couplings.Frequencies(matrix @ rotation, weights))(x)
            estimates.append(float(phi[0] @ phi[1]) * factor)
        mean, second = theory.rotated_moments(couplings.Frequencies(matrix, weights), distance, features)
        assert_mean(np.array(estimates), mean[0])
        assert_mean(np.array(estimates) ** 2, second[0])

    def test_chunks_change_nothing(self, monkeypatch):
        draw = couplings.IID().sample(50, 4, generator=random.generator(0))
        whole = theory.rotated_error(draw, Z)
        monkeypatch.setattr(theory.moments, "ROWS", 7)
        np.testing.assert_allclose(theory.rotated_error(draw.dense(), Z), whole, rtol=1e-10)


def test_positive_feature_errors_have_the_factor_of_each_pair():
    x = np.random.default_rng(0).standard_normal((20, 3)) / 3
    pairs = [(x[i] + x[j], x[i] - x[j]) for i in range(20) for j in range(i)]
    squares = np.array([(plus @ plus, minus @ minus) for plus, minus in pairs])
    factor = np.exp(-squares.sum(1))  # exp(-|x|^2 - |y|^2), squared
    expected = np.sqrt((factor * (np.exp(2 * squares[:, 0]) - np.exp(squares[:, 0])) / 5).mean())
    table = couplings.distances_between(x, "laplace", num_distances=len(pairs))
    assert theory.kernel_error("iid", table, 5, 3, features="laplace") == pytest.approx(expected)


class TestFrequenciesFor:
    X = np.random.default_rng(0).standard_normal((60, 4)) / 2

    def measured(self, coupling, m, scale, features="fourier"):
        x, generator = scale * torch.as_tensor(self.X), random.generator(7)
        exact = GAUSSIAN.kernel_between(x, x)
        away, chosen = ~torch.eye(60, dtype=torch.bool), couplings.for_features(coupling, features)
        kind, squares = rfgp.features.by_name(features), []
        for _ in range(40):
            phi = kind(chosen.sample(m, 4, generator=generator))(x)
            squares.append(float(((phi @ phi.T - exact)[away] ** 2).mean()))
        return np.mean(squares) ** 0.5

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("coupling", "features", "scale", "tolerance"),
        [
            ("iid", "fourier", 1, 0.05),
            ("orthogonal", "fourier", 1, 0.03),
            ("energy", "fourier", 1, 0.02),
            ("energy", "laplace", 0.4, 0.02),
        ],
    )
    def test_error_meets_the_requested_tolerance(self, coupling, features, scale, tolerance):
        m = theory.required_num_frequencies(scale * self.X, tolerance, coupling=coupling, features=features)
        assert 0.75 * tolerance < self.measured(coupling, m, scale, features) < 1.2 * tolerance

    def test_better_couplings_need_fewer(self):
        counts = [
            theory.required_num_frequencies(self.X, 0.02, coupling=c)
            for c in ("iid", "orthogonal", "pairwise", "energy")
        ]
        assert counts == sorted(counts, reverse=True)
        assert counts[0] > 8 * counts[-1]
        assert theory.required_num_frequencies(self.X, 0.9) == 2

    @pytest.mark.parametrize("tolerance", [0.0, 1.0, -1.0, float("nan")])
    def test_bad_tolerances(self, tolerance):
        with pytest.raises(rfgp.InvalidArgumentError, match="between 0 and 1"):
            theory.required_num_frequencies(self.X, tolerance)

    def test_inputs_that_are_far_apart(self):
        assert theory.required_num_frequencies(30 * self.X, 0.2, coupling="orthogonal") <= 16
        with pytest.raises(rfgp.InvalidArgumentError, match="positive features"):
            theory.required_num_frequencies(30 * self.X, 0.2, coupling="iid", features="laplace")
        with pytest.raises(rfgp.InvalidArgumentError, match="distances must be at most"):
            theory.required_num_frequencies(1e50 * self.X, 0.2, coupling="pairwise")
        with pytest.raises(rfgp.InvalidArgumentError, match="at most 1e100"):
            theory.required_num_frequencies(1e200 * self.X, 0.2, coupling="pairwise")
        with pytest.raises(rfgp.InvalidArgumentError, match="distances"):
            theory.kernel_error("iid", [np.nan], 4, 3)
        assert theory.orthogonal_moment(np.array([10.0, 60.0, 1e8]), 3) == pytest.approx([0, 0, 0], abs=1e-5)

    @pytest.mark.parametrize("d", [3, 4, 8, 33])
    def test_moments_at_large_distances_are_those_of_mpmath(self, d):
        for x in (20.0, 31.0, 33.0, 60.0):
            with mpmath.workdps(60):
                exact = float(mpmath.hyp1f1(d, mpmath.mpf(d) / 2, -(mpmath.mpf(x) ** 2) / 2))
            assert float(theory.orthogonal_moment(x, d)) == pytest.approx(exact, abs=1e-10)

    def test_too_many(self, monkeypatch):
        monkeypatch.setattr(theory.kernels, "MAX_DRAWN", 16)
        with pytest.raises(rfgp.InvalidArgumentError, match="the error of 16 frequencies"):
            theory.required_num_frequencies(self.X, 1e-4)


class TestTransport:
    @pytest.mark.parametrize("d", [2, 3, 8])
    @pytest.mark.parametrize("distance", [0.2, 1.0, 2.0])
    def test_antimonotone_norms_solve_it_for_positive_features(self, d, distance):
        costs = transport.transport_costs(distance, d, features="laplace", num_quantiles=24)
        plan = transport.optimal_norm_coupling(costs)
        np.testing.assert_allclose(plan, np.fliplr(np.eye(24)) / 24, atol=1e-12)

    @pytest.mark.parametrize("d", [2, 3, 8])
    def test_and_for_fourier_features_below_a_threshold(self, d):
        threshold = transport.monotone_threshold(d, num_quantiles=24)
        reverse = np.fliplr(np.eye(24)) / 24
        below, above = (transport.transport_costs(f * threshold, d, num_quantiles=24) for f in (0.95, 1.1))
        np.testing.assert_allclose(transport.optimal_norm_coupling(below), reverse, atol=1e-12)
        plan = transport.optimal_norm_coupling(above)
        assert (plan * above).sum() < (reverse * above).sum() - 1e-9
        assert 1 < threshold < 3

    def test_the_threshold_lies_past_the_convex_range(self):
        """C's second derivative in the squared length is C in d + 4 dimensions, positive up to its first zero."""
        d = 3
        first_zero = 6.987932  # of J_(d/2 + 1), d = 3
        top = float(GAUSSIAN.radial_quantile(torch.tensor([1 - 0.5 / 24], dtype=torch.float64), d))
        assert transport.monotone_threshold(d, num_quantiles=24) >= first_zero / (top * 2**0.5) - 1e-3
