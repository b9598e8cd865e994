"""Variances of kernel estimates by quadrature over norms, and averages over rotations by mpmath and scipy."""

from functools import lru_cache

import mpmath
import numpy as np
import pytest
import torch
from scipy import special, stats

import rfgp
from rfgp import couplings, spectra, theory

Z = np.array([0.5, 1.0, 2.0])
MATERN = spectra.Matern(1.5)
NODES, SHARES = np.polynomial.legendre.leggauss(200)
U, SHARES = (NODES + 1) / 2, SHARES / 2
X = np.random.default_rng(0).standard_normal((60, 4)) / 2


def sphere(t, d, features):
    """The mean of cos, or cosh, of t times a coordinate of a uniform direction."""
    return special.hyp0f1(d / 2, (1 if features == "laplace" else -1) * t**2 / 4)


def quantile(spectrum, d):
    return stats.chi(d).ppf if spectrum is None else lambda u: np.sqrt(d * stats.f.ppf(u, d, 3))


@lru_cache
def moment(coupling, z, d, features, spectrum=None):
    """The cross moment of two frequencies of a block, by quadrature over their norms."""
    q = quantile(spectrum, d)
    if coupling == "pairwise":
        return SHARES @ sphere(np.hypot(q(U), q(1 - U)) * z, d, features)
    r, s = q(U)[:, None], q(U)
    inner = -r * s / (d - 1) if coupling == "simplex" else 0.0
    return SHARES @ sphere(np.sqrt(r**2 + s**2 + 2 * inner) * z, d, features) @ SHARES


def dense_variance(coupling, z, m, d, features, spectrum=None):
    """The variance from all pairs of frequencies, in blocks of d."""
    if features == "laplace":
        mean, square = np.exp(z**2 / 2), np.exp(2 * z**2)
    else:
        kernel = MATERN.kernel if spectrum else spectra.Gaussian().kernel
        mean, double = (float(kernel(torch.tensor(c * z, dtype=torch.float64))) for c in (1, 2))
        square = (1 + double) / 2
    total = 0.0
    for i in range(m):
        for j in range(m):
            if i == j:
                total += square
            elif i // d != j // d or coupling == "iid":
                total += mean**2
            else:
                partner = i % d // 2 == j % d // 2
                kind = (
                    coupling
                    if coupling == "simplex"
                    else "pairwise"
                    if coupling == "pairwise" and partner
                    else "orthogonal"
                )
                total += moment(kind, z, d, features, spectrum)
    return total / m**2 - mean**2


class TestClosedForms:
    @pytest.mark.parametrize(
        ("coupling", "features", "spectrum"),
        [
            ("iid", "fourier", None),
            ("iid", "laplace", None),
            ("iid", "fourier", MATERN),
            ("orthogonal", "fourier", None),
            ("orthogonal", "laplace", None),
            ("orthogonal", "fourier", MATERN),
            ("pairwise", "fourier", None),
            ("pairwise", "laplace", None),
            ("pairwise", "fourier", MATERN),
            ("simplex", "laplace", None),
        ],
    )
    def test_variances_are_those_of_all_pairs(self, coupling, features, spectrum):
        for m, d in ((7, 3), (5, 8)):
            found = theory.variance(coupling, Z[:2], m, d, spectrum=spectrum, features=features)
            expected = [dense_variance(coupling, z, m, d, features, spectrum) for z in Z[:2]]
            np.testing.assert_allclose(found, expected, rtol=2e-3 if spectrum else 1e-3)

    @pytest.mark.parametrize("d", [2, 3, 13, 784])
    def test_orthogonal_moments_equal_the_series(self, d):
        """Simplex paper, Eq. 25 with 1 / 2^k; and far away."""
        for z in (0.1, 1.0, 5.0, 31.0, 60.0):
            with mpmath.workdps(60):
                exact = [float(mpmath.hyp1f1(d, mpmath.mpf(d) / 2, s * mpmath.mpf(z) ** 2 / 2)) for s in (-1, 1)]
            assert float(theory.orthogonal_moment(z, d)) == pytest.approx(exact[0], rel=1e-9, abs=1e-10)
            if z < 30:
                assert float(theory.orthogonal_moment(z, d, features="laplace")) == pytest.approx(exact[1], rel=1e-9)

    def test_gaps_are_what_orthogonality_saves(self):
        for features, square in (("fourier", np.exp(-(Z**2))), ("laplace", np.exp(Z**2))):
            gap = theory.orthogonality_gap(Z, 3, features=features)
            np.testing.assert_allclose(gap, square - theory.orthogonal_moment(Z, 3, features=features))
        np.testing.assert_allclose(theory.variance("orthogonal", Z, 4, 1), (1 - np.exp(-(Z**2))) ** 2 / 8)


class TestRotations:
    @pytest.mark.parametrize("d", [1, 2, 3, 8, 33, 100, 101, 784, 5000])
    def test_averages_agree_with_mpmath(self, d):
        """A single frequency: its mean is the average of cos or cosh over directions."""
        for t in (0.0, 1e-6, 0.02, 0.5, 3.0, 17.0, 60.0, 590.0):
            omega = torch.zeros(1, d, dtype=torch.float64)
            omega[0, -1] = t
            with mpmath.workdps(60):
                cosine, cosh = (float(mpmath.hyp0f1(mpmath.mpf(d) / 2, s * mpmath.mpf(t) ** 2 / 4)) for s in (-1, 1))
            assert theory.rotated_moments(omega, 1.0)[0] == pytest.approx(cosine, abs=3e-8)
            if t < 100:
                assert theory.rotated_moments(omega / 2, 2.0, "laplace")[0] == pytest.approx(cosh, rel=1e-8)

    @pytest.mark.parametrize("features", ["fourier", "laplace"])
    @pytest.mark.parametrize("m", [6, pytest.param(520, marks=pytest.mark.slow)])
    def test_moments_are_sums_over_pairs(self, m, features):
        rng = np.random.default_rng(0)
        omega, weights = rng.standard_normal((m, 3)), rng.uniform(0.5, 1.5, m)
        lengths = [np.linalg.norm(omega[:, None] + sign * omega, axis=2) for sign in (1, -1)]
        draw = couplings.Frequencies(torch.from_numpy(omega), torch.from_numpy(weights))
        mean, second = theory.rotated_moments(draw, Z, features)
        error = theory.rotated_error(draw, Z, features=features)
        for k, z in enumerate(Z):
            pairs = [sphere(length * z, 3, features) for length in lengths]
            pairs = pairs[0] if features == "laplace" else sum(pairs) / 2
            assert mean[k] == pytest.approx(weights @ sphere(np.linalg.norm(omega, axis=1) * z, 3, features) / m)
            assert second[k] == pytest.approx(weights @ pairs @ weights / m**2)
            exact = np.exp(z**2 / 2 if features == "laplace" else -(z**2) / 2)
            assert error[k] == pytest.approx(second[k] - 2 * exact * mean[k] + exact**2, abs=1e-9)


class TestKernelError:
    def test_positive_features_have_the_factor_of_each_pair(self):
        pairs = [(X[i, :3] + X[j, :3], X[i, :3] - X[j, :3]) for i in range(20) for j in range(i)]
        squares = np.array([(plus @ plus, minus @ minus) for plus, minus in pairs])
        factor = np.exp(-squares.sum(1))  # exp(-|x|^2 - |y|^2), squared
        expected = np.sqrt((factor * (np.exp(2 * squares[:, 0]) - np.exp(squares[:, 0])) / 5).mean())
        table = couplings.distances_between(X[:20, :3], "laplace", num_distances=len(pairs))
        assert theory.kernel_error("iid", table, 5, 3, features="laplace") == pytest.approx(expected)

    def test_couplings_without_closed_form_are_averaged_over_draws(self):
        made, generator = couplings.Energy(), torch.Generator().manual_seed(0)
        errors = [theory.rotated_error(made.sample(8, 3, generator=generator), Z).mean() for _ in range(32)]
        found = theory.kernel_error("energy", Z, 8, 3, num_draws=32)
        assert found == pytest.approx(np.sqrt(np.mean(errors)), rel=0.15)
        weighted = theory.kernel_error("iid", np.stack([Z, [1.0, 0.5, 2.0]], 1), 8, 3)
        assert weighted**2 == pytest.approx(np.mean([1.0, 0.5, 2.0] * (1 - np.exp(-(Z**2))) ** 2 / 16))

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("coupling", "features", "scale", "tolerance"),
        [("iid", "fourier", 1, 0.05), ("energy", "fourier", 1, 0.02), ("energy", "laplace", 0.4, 0.02)],
    )
    def test_required_frequencies_meet_the_tolerance(self, coupling, features, scale, tolerance):
        x, generator = scale * torch.as_tensor(X), torch.Generator().manual_seed(7)
        m = theory.required_num_frequencies(x, tolerance, coupling=coupling, features=features)
        exact, away = (-0.5 * torch.cdist(x, x) ** 2).exp(), ~torch.eye(60, dtype=torch.bool)
        kind, chosen, squares = rfgp.features.by_name(features), couplings.for_features(coupling, features), []
        for _ in range(40):
            phi = kind(chosen.sample(m, 4, generator=generator))(x)
            squares.append(float(((phi @ phi.T - exact)[away] ** 2).mean()))
        assert 0.75 * tolerance < np.mean(squares) ** 0.5 < 1.2 * tolerance

    def test_better_couplings_need_fewer(self):
        counts = [theory.required_num_frequencies(X, 0.05, coupling=c) for c in ("iid", "orthogonal", "pairwise")]
        assert counts == sorted(counts, reverse=True)
        table = couplings.distances_between(X, num_distances=30)
        kernel = np.exp(-(table[:, 0] ** 2) / 2)
        exact = np.mean((1 - kernel**2) ** 2 / 2) / 0.05**2
        assert exact <= counts[0] <= 1.06 * exact + 2
        assert theory.required_num_frequencies(X, 0.9) == 2
        assert theory.required_num_frequencies(30 * X, 0.2, coupling="orthogonal") <= 16

    @pytest.mark.slow
    def test_a_bias_is_found_where_there_is_one_and_only_there(self):
        """Six standard errors of the squared bias; that of shrunken frequencies is known."""

        class Shrunken(couplings.IID):
            def _frequencies(self, m, d, spectrum, generator):
                return 0.8 * super()._frequencies(m, d, spectrum, generator)

        x = X[:40, :3] * [2.0, 0.8, 0.2]
        none = theory.pairs_error("orthogonal", x, 64, num_draws=64)
        assert none.bias**2 < 6 * none.bias_error
        i, j = np.triu_indices(40, 1)
        square = ((x[i] - x[j]) ** 2).sum(1)
        known = np.mean((np.exp(-0.32 * square) - np.exp(-0.5 * square)) ** 2)
        some = theory.pairs_error(Shrunken(), x, 64, num_draws=300)
        assert abs(some.bias**2 - known) < 6 * some.bias_error < 0.3 * known
        expected = np.mean((1 - np.exp(-square)) ** 2 / 128)
        assert theory.pairs_error("iid", x, 64, num_draws=200).error ** 2 == pytest.approx(expected, rel=0.1)


def required(x, tolerance=0.2, **options):
    return lambda: theory.required_num_frequencies(x, tolerance, **options)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: theory.variance("sobol", Z, 4, 3), "no closed form"),
        (lambda: theory.variance("simplex", Z, 4, 3), "no closed form"),
        (lambda: theory.variance("iid", Z, 0, 3), "positive"),
        (lambda: theory.variance("iid", Z, 4, 3, spectrum=MATERN, features="laplace"), "Gaussian"),
        (lambda: theory.rotated_moments(torch.ones(2, 3), Z, "cosine"), "features"),
        (lambda: theory.kernel_error("iid", [np.nan], 4, 3), "distances"),
        (lambda: theory.kernel_error(couplings.DataAdapted(X), [1.0], 8, 4), "pairs_error"),
        (lambda: theory.pairs_error("iid", X, 4, num_draws=2), "num_draws"),
        (lambda: theory.pairs_error("iid", np.zeros((5000, 1)), 4), "4,096"),
        *((required(X, tolerance), "tolerance") for tolerance in (0.0, 1.0, float("nan"))),
        (required(X, 1e-6, coupling="iid"), "the error of 16777216"),
        (required(30 * X, coupling="iid", features="laplace"), "positive features"),
        (required(1e50 * X, coupling="pairwise"), "at most"),
    ],
)
def test_bad_arguments_are_named(call, word):
    with pytest.raises(rfgp.InvalidArgumentError, match=word):
        call()
