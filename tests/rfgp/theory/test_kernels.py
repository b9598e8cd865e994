"""Variances of kernel estimates by quadrature over norms, and averages over rotations by mpmath and scipy."""

import itertools
from functools import lru_cache, partial

import mpmath
import numpy as np
import pytest
import torch
from named_options import named
from refusals import refused
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
        mean, double = kernel(torch.tensor([z, 2 * z], dtype=torch.float64)).tolist()
        square = (1 + double) / 2
    total = m * square
    for i, j in itertools.permutations(range(m), 2):
        if i // d != j // d or coupling == "iid":
            total += mean**2
        else:
            is_plain = coupling == "pairwise" and i % d // 2 != j % d // 2
            total += moment("orthogonal" if is_plain else coupling, z, d, features, spectrum)
    return total / m**2 - mean**2


class TestClosedForms:
    @pytest.mark.parametrize(
        ("coupling", "features", "spectrum"),
        [
            *((name, "fourier", spectrum) for name in ("iid", "orthogonal", "pairwise") for spectrum in (None, MATERN)),
            *((name, "laplace", None) for name in ("iid", "orthogonal", "pairwise", "simplex")),
        ],
    )
    def test_variances_are_those_of_all_pairs(self, coupling, features, spectrum):
        for m, d in ((7, 3), (5, 8)):
            found = theory.variance(coupling, Z[:2], m, d, spectrum=spectrum, features=features)
            expected = [dense_variance(coupling, z, m, d, features, spectrum) for z in Z[:2]]
            np.testing.assert_allclose(found, expected, rtol=2e-3 if spectrum else 1e-3)


class TestRotations:
    @pytest.mark.parametrize("d", [1, 2, 3, 8, 33, 100, 101, 784, 5000])
    def test_averages_agree_with_mpmath(self, d):
        """A single frequency: its mean is the average of cos or cosh over directions."""
        for t in (0.0, 1e-6, 0.02, 0.5, 3.0, 17.0, 60.0, 590.0):
            omega = t * torch.eye(1, d, dtype=torch.float64)
            with mpmath.workdps(60):
                cosine, cosh = (float(mpmath.hyp0f1(mpmath.mpf(d) / 2, s * mpmath.mpf(t) ** 2 / 4)) for s in (-1, 1))
            assert theory.rotated_moments(omega, 1.0)[0] == pytest.approx(cosine, abs=3e-8)
            if t < 100:
                assert theory.rotated_moments(omega / 2, 2.0, "laplace")[0] == pytest.approx(cosh, rel=1e-8)

    @pytest.mark.parametrize(("features", "sign"), [("fourier", -1), ("laplace", 1)])
    @pytest.mark.parametrize("m", [6, pytest.param(520, marks=pytest.mark.slow)])
    def test_moments_are_sums_over_pairs(self, m, features, sign):
        rng = np.random.default_rng(0)
        omega, w = rng.standard_normal((m, 3)), rng.uniform(0.5, 1.5, m) / m
        plus, minus, single = (
            sphere(np.linalg.norm(rows, axis=-1)[..., None] * Z, 3, features)
            for rows in (omega[:, None] + omega, omega[:, None] - omega, omega)
        )
        pairs = plus if sign > 0 else (plus + minus) / 2
        draw = couplings.Frequencies(torch.from_numpy(omega), torch.from_numpy(m * w))
        mean, second = w @ single, np.einsum("i,ijk,j->k", w, pairs, w)
        np.testing.assert_allclose(theory.rotated_moments(draw, Z, features), (mean, second), rtol=1e-6)
        exact = np.exp(sign * Z**2 / 2)
        expected = second - 2 * exact * mean + exact**2
        np.testing.assert_allclose(theory.rotated_error(draw, Z, features=features), expected, rtol=1e-6, atol=1e-9)


class TestKernelError:
    def test_positive_features_have_the_factor_of_each_pair(self):
        i, j = np.tril_indices(20, -1)
        plus, minus = (((X[i, :3] + s * X[j, :3]) ** 2).sum(1) for s in (1, -1))
        factor = np.exp(-plus - minus)  # exp(-|x|^2 - |y|^2), squared
        expected = np.sqrt((factor * (np.exp(2 * plus) - np.exp(plus)) / 5).mean())
        table = couplings.distances_between(X[:20, :3], "laplace", num_distances=len(i))
        assert theory.kernel_error("iid", table, 5, 3, features="laplace") == pytest.approx(expected)

    def test_couplings_without_closed_form_are_averaged_over_draws(self):
        errors = [theory.rotated_error(couplings.Energy().sample(8, 3, seed=seed), Z).mean() for seed in range(32)]
        found = theory.kernel_error("energy", Z, 8, 3, num_draws=32)
        assert found == pytest.approx(np.sqrt(np.mean(errors)), rel=0.15)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("coupling", "features", "scale", "tolerance"),
        [("iid", "fourier", 1, 0.05), ("energy", "laplace", 0.4, 0.02)],
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


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: theory.variance("sobol", Z, 4, 3), "no closed form"),
        (lambda: theory.variance("iid", Z, 0, 3), "positive"),
        (lambda: theory.variance("iid", Z, 4, 3, spectrum=MATERN, features="laplace"), "Gaussian"),
        (lambda: theory.kernel_error("iid", [np.nan], 4, 3), "distances"),
        (lambda: theory.kernel_error(couplings.DataAdapted(X), [1.0], 8, 4), "pairs_error"),
        *named(partial(theory.pairs_error, "iid", X, 4), num_draws=2),
        (lambda: theory.pairs_error("iid", np.zeros((5000, 1)), 4), "4,096"),
        *named(partial(theory.required_num_frequencies, X), tolerance=1.0),
        (lambda: theory.required_num_frequencies(X, 1e-6, coupling="iid"), "the error of 16777216"),
        (lambda: theory.required_num_frequencies(30 * X, 0.2, features="laplace"), "positive features"),
    ],
)
def test_bad_arguments_are_named(call, word):
    refused(call, rfgp.InvalidArgumentError, word)
