"""The contract of couplings. Each registered coupling has a line in `CASES`."""

import inspect
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
import torch
from checks import assert_mean
from frequency_draws import check_distribution, draws, sample
from named_options import named
from refusals import refused
from scipy import linalg, optimize, special, stats

import rfgp
from benchmarks.papers.own import alternatives
from benchmarks.papers.simplex import conformity as optimized
from rfgp import couplings, features, spectra, theory
from rfgp.couplings import Energy, adapted

F64 = torch.float64
GAUSSIAN, MATERN, ROUGH = spectra.Gaussian(), spectra.Matern(1.5), spectra.Matern(0.5)
ROWS = np.random.default_rng(0).standard_normal((40, 3)) * [1.0, 0.4, 0.1]
HISTOGRAM = [1.0, 2.0, 4.0, 1.0]


@dataclass(frozen=True)
class Case:
    """A coupling, and what its docstring states."""

    name: str
    options: dict = field(default_factory=dict)
    is_biased: bool = False
    is_weighted: bool = False
    is_gaussian: bool = False
    """Whether the spectrum must be Gaussian."""
    has_products: bool = False
    """Whether spectra may be products."""
    shape: tuple = (7, 3)
    few_dims: int = 1
    """The least number of dimensions with a finite variance."""
    is_quick: bool = False
    """Whether the fast tests check its distribution: one for each way to directions and norms."""

    def make(self):
        return couplings.by_name(self.name, **self.options)


WEIGHTED, GAUSSIAN_ONLY = {"is_weighted": True}, {"is_gaussian": True}
BIASED = {"is_biased": True, "is_gaussian": True}
CASES = {
    "energy": Case("energy"),
    "energy, weighted": Case("energy", {"weighted": True}, **WEIGHTED, is_quick=True),
    "energy, histogram": Case("energy", {"proposal_histogram": HISTOGRAM}, **WEIGHTED),
    "energy, scale": Case("energy", {"proposal_scale": 1.2, "distances": [[1.0, 2.0]]}, **WEIGHTED),
    "energy-antithetic": Case("energy-antithetic", {"effort": "full"}, **GAUSSIAN_ONLY, shape=(8, 3)),
    "iid": Case("iid", has_products=True, is_quick=True),
    "iid-antithetic": Case("iid-antithetic", has_products=True, shape=(8, 3)),
    "halton": Case("halton", has_products=True),
    "halton, plain": Case("halton", {"randomization": "none"}, is_biased=True, has_products=True),
    "sobol": Case("sobol", has_products=True),
    "digital-net": Case("digital-net", has_products=True),
    "orthogonal": Case("orthogonal", is_quick=True),
    "pairwise": Case("pairwise", is_quick=True),
    "pairwise-antithetic": Case("pairwise-antithetic", shape=(8, 3)),
    "monotone": Case("monotone"),
    "shared-norms": Case("shared-norms"),
    "shared-norms, options": Case(
        "shared-norms",
        {"correlation": 0.6, "proposal_histogram": tuple(HISTOGRAM), "proposal_scale": 0.9},
        **WEIGHTED,
        is_quick=True,
    ),
    "stratified": Case("stratified"),
    "copula": Case("copula"),
    "copula, correlation": Case("copula", {"correlation": [[1, -0.6, 0.2], [-0.6, 1, -0.4], [0.2, -0.4, 1]]}),
    "simplex": Case("simplex", few_dims=2, is_quick=True),
    "simplex-plus": Case("simplex-plus", {"num_sweeps": 5}, few_dims=2),
    "simplex-plus-antithetic": Case("simplex-plus-antithetic", few_dims=2, shape=(8, 3)),
    "simplex-optimized": Case("simplex-optimized", {"distance": 2.0}, **GAUSSIAN_ONLY, few_dims=2, shape=(3, 2)),
    "constant-norm": Case("constant-norm", **BIASED),
    "structured": Case("structured", {"num_products": 2}, **BIASED),
    "fast-orthogonal": Case("fast-orthogonal", **BIASED),
    "fast-simplex": Case("fast-simplex", **BIASED, few_dims=2),
    "fastfood": Case("fastfood", **GAUSSIAN_ONLY),
    "near-orthogonal": Case("near-orthogonal"),
    "spherical-radial": Case("spherical-radial", **GAUSSIAN_ONLY, **WEIGHTED, few_dims=3),
    "spherical-radial, origin": Case("spherical-radial", {"origin": True}, **BIASED, **WEIGHTED),
    "leverage": Case("leverage"),
    "leverage, histogram": Case("leverage", {"proposal_histogram": HISTOGRAM}, **WEIGHTED),
    "adapted": Case("adapted", **WEIGHTED),
    "adapted, rows": Case(
        "adapted", {"rows": ROWS.tolist(), "optimize_frequencies": False}, is_biased=True, **WEIGHTED
    ),
}
UNBIASED = {name: case for name, case in CASES.items() if not case.is_biased}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


class TestRegistry:
    def test_each_coupling_has_a_case(self):
        classes = {c for _, c in inspect.getmembers(couplings, inspect.isclass) if issubclass(c, couplings.Coupling)}
        registered = {type(couplings.by_name(name)) for name in couplings.names()}
        of_benchmarks = {alternatives.Leverage, alternatives.NearOrthogonal, alternatives.SphericalRadial}
        of_benchmarks.add(optimized.SimplexOptimized)
        assert classes - {couplings.Coupling, couplings.Antithetic} | of_benchmarks == registered
        assert {case.name.removesuffix("-antithetic") for case in CASES.values()} == set(couplings.names())

    def test_name_and_options_make_the_coupling_again(self, case):
        made = case.make()
        name, options = couplings.name_of(made), couplings.options_of(made)
        assert name == case.name.replace("energy-antithetic", "energy")
        again = couplings.by_name(name, **options)
        assert (repr(again), couplings.options_of(again)) == (repr(made), options)
        assert case.options.keys() <= options.keys()
        assert made.is_biased is case.is_biased

    def test_features_choose_the_kind_of_the_energy_coupling(self):
        found = [couplings.for_features("energy", kind).is_antithetic for kind in ("laplace", "fourier")]
        assert found == [True, False]
        assert repr(couplings.for_features("iid", "laplace")) == "IID()"
        assert couplings.Antithetic(couplings.Structured()).is_biased


class TestDraws:
    def test_a_seed_gives_one_draw(self, case):
        made = case.make()
        one, two, other = (made.sample(8, 3, seed=seed) for seed in (0, 0, 1))
        omega, weights = one.dense(), one.weights
        assert torch.equal(omega, two.dense())
        assert torch.equal(weights, two.weights)
        assert not torch.equal(omega, other.dense())
        assert one.shape == tuple(omega.shape) == (8, 3)
        assert omega.dtype == weights.dtype == F64
        assert bool((weights == 1).all()) is not case.is_weighted
        assert one.antithetic is made.is_antithetic is case.name.endswith("-antithetic")
        if one.antithetic:
            assert torch.equal(omega[::2], -omega[1::2])
            assert torch.equal(weights[::2], weights[1::2])
            refused(lambda: made.sample(5, 3, seed=0), rfgp.InvalidArgumentError, "even")

    def test_projections_are_products_with_the_rows(self, case):
        draw = case.make().sample(8, 3, seed=0)
        x = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 4, 3)))
        expected = x @ draw.dense().T
        for rows, found in ((x, expected), (x[0, 0], expected[0, 0])):
            torch.testing.assert_close(draw.project(rows), found, rtol=0, atol=1e-12)
        torch.testing.assert_close(draw.project(x.float()), expected.float(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(draw.adjoint(expected[0]), expected[0] @ draw.dense(), rtol=0, atol=1e-11)
        refused(lambda: draw.project(x[..., :2]), rfgp.InvalidArgumentError, "3 columns")

    def test_other_spectra_are_refused_where_they_must_be(self, case):
        def draw(spectrum):
            return case.make().sample(8, 3, spectrum=spectrum, seed=0)

        if case.is_gaussian:
            refused(lambda: draw(MATERN), rfgp.InvalidArgumentError, "Gaussian")
        elif case.has_products:
            assert draw(spectra.ProductLaplace()).shape == (8, 3)
        else:
            refused(lambda: draw(spectra.ProductLaplace()), rfgp.InvalidArgumentError, "isotropic")


def distribution_cases():
    """Return each unbiased coupling with its shape, and the plain and weighted ones with another spectrum."""
    for number, (name, case) in enumerate(UNBIASED.items()):
        slow = () if case.is_quick else pytest.mark.slow
        yield pytest.param(case, *case.shape, GAUSSIAN, id=name, marks=slow)
        if "," in name and not case.is_weighted:
            continue
        few = (2 if case.make().is_antithetic else 3, case.few_dims) if number % 2 or case.is_gaussian else (2, 5)
        other = GAUSSIAN if case.is_gaussian else ROUGH if number % 3 else spectra.RationalQuadratic(0.7)
        yield pytest.param(case, *few, other, id=f"{name}, few", marks=pytest.mark.slow)
        if case.has_products:
            product = spectra.ProductCauchy() if number % 2 else spectra.ProductLaplace()
            yield pytest.param(case, 4, 3, product, id=f"{name}, product", marks=pytest.mark.slow)


class TestDistribution:
    @pytest.mark.parametrize(("case", "m", "d", "spectrum"), list(distribution_cases()))
    def test_each_frequency_has_the_spectral_distribution(self, case, m, d, spectrum):
        omega, weights = draws(case.make(), m, d, spectrum=spectrum)
        check_distribution(omega, spectrum, weights)
        if spectrum != GAUSSIAN or case.is_weighted:
            return
        norms = np.linalg.norm(omega, axis=2)
        for row in (0, m - 1):
            assert stats.kstest(norms[:, row], stats.chi(d).cdf).pvalue > 1e-9
        unit = omega[:, 0] / norms[:, :1]
        assert_mean(unit, np.zeros(d))
        assert_mean(unit[:, :, None] * unit[:, None, :], np.eye(d) / d)

    @pytest.mark.slow
    @pytest.mark.parametrize("spectrum", [spectra.Matern(0.01), spectra.RationalQuadratic(0.02)], ids=repr)
    def test_the_heaviest_tails_stay_finite(self, spectrum):
        draw = Energy().sample(20, 3, spectrum=spectrum, seed=0)
        assert torch.isfinite(draw.weights).all()
        assert not torch.isnan(draw.dense()).any()


# --- variances -------------------------------------------------------------------------------------

V = np.random.default_rng(2).standard_normal((20, 4))
V *= (np.linspace(0.3, 1.0, 20) / np.linalg.norm(V, axis=1))[:, None]


FOURIER = {
    "halton": 0.7,
    "digital-net": 0.7,
    "near-orthogonal": 0.6,
    "orthogonal": 0.55,
    "pairwise": 0.36,
    "stratified": 0.27,
    "energy": 0.14,
}
POSITIVE = {
    "simplex": 0.8,
    "simplex-plus": 0.7,
    "iid-antithetic": 0.7,
    "pairwise-antithetic": 0.5,
    "energy-antithetic": 0.45,
}


@pytest.mark.parametrize(
    ("name", "bound"),
    [*FOURIER.items(), *(pytest.param(*item, marks=pytest.mark.slow) for item in POSITIVE.items())],
)
def test_errors_are_below_those_of_independent_frequencies(name, bound):
    """The ratio of the mean squared errors of 8 frequencies in 4 dimensions.

    The bounds lie between the ratios of a coupling and of the next worse one, which were measured once.
    """
    is_positive = name in POSITIVE
    v, repeats = (V, 1000) if is_positive else (1.5 * V, 600)
    square = (v**2).sum(1)
    omega, weights = draws(name, 8, 4, repeats=repeats)
    if is_positive:
        feature, kernel = np.exp, np.exp(square / 2)
        independent = (np.exp(2 * square) - kernel**2) / 8
    else:
        feature, kernel = np.cos, np.exp(-square / 2)
        independent = (1 - kernel**2) ** 2 / 16
    estimates = (weights[:, :, None] * feature(omega @ v.T)).mean(1)
    ratios = ((estimates - kernel) ** 2 / independent).mean(1)
    assert ratios.mean() + 6 * ratios.std(ddof=1) / np.sqrt(repeats) < bound


# --- structure of directions and norms -------------------------------------------------------------


def cosines(rows):
    """Return the cosines of the angles between frequencies, with 2 on the diagonal."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit @ unit.T + np.eye(len(rows))


def one(coupling, m, d, seed=0, **options):
    return couplings.by_name(coupling, **options).sample(m, d, seed=seed).dense().numpy()


class TestStructure:
    @pytest.mark.parametrize(
        ("name", "cosine"),
        [*((n, 0.0) for n in ("orthogonal", "pairwise", "monotone", "stratified", "copula")), ("simplex", -1 / 3)],
    )
    @pytest.mark.parametrize(("m", "partners"), [(10, [1] * 2 + [3] * 8), (3, [2] * 3), (1, [0])])
    def test_blocks_of_d_have_equal_angles(self, name, cosine, m, partners):
        found = np.isclose(cosines(one(name, m, 4)), cosine, atol=1e-12, rtol=0).sum(1)
        assert sorted(found) == partners

    @pytest.mark.parametrize(("name", "options"), [("monotone", {}), ("shared-norms", {"correlation": 0.5})])
    def test_norms_are_equal_within_blocks(self, name, options):
        norms = np.linalg.norm(one(name, 10, 4, **options), axis=1)
        equal = np.isclose(norms[:, None], norms, rtol=1e-12)
        assert sorted(equal.sum(1)) == [2] * 2 + [4] * 8
        assert len(set(np.linalg.norm(one("shared-norms", 5, 3, correlation=1.0), axis=1).round(9))) == 1

    @pytest.mark.slow
    def test_shared_norms_are_correlated_over_blocks(self):
        norms = np.linalg.norm(sample(couplings.SharedNorms(0.7), 4, 2), axis=2)
        normal = stats.norm.ppf(stats.chi(2).cdf(norms))
        assert_mean((normal.sum(1) / 2) ** 2 / 2 - 1, 0.7)  # both norms occur twice

    @pytest.mark.slow
    def test_a_copula_has_its_correlation(self):
        correlation = np.array(CASES["copula, correlation"].options["correlation"])
        norms = np.linalg.norm(sample(couplings.Copula(correlation), 3, 3), axis=2)
        normal = stats.norm.ppf(stats.chi(3).cdf(norms))
        assert_mean(normal.sum(1) ** 2, correlation.sum())
        assert_mean((normal**2).mean(1), 1.0)

    def test_quadrature_integrates_quadratic_forms_exactly(self):
        """The sum of d / rho^2 omega_j omega_j^T over the d + 1 nodes of a rule is (d + 1) I."""
        for d in (1, 2, 5):
            draw = alternatives.SphericalRadial().sample(d + 1, d, seed=0)
            form = torch.einsum("i,ij,ik->jk", draw.weights, draw.dense(), draw.dense()) / (d + 1)
            torch.testing.assert_close(form, torch.eye(d, dtype=F64), rtol=0, atol=1e-12)

    def test_the_node_at_the_origin_takes_the_weight_that_is_left(self):
        """The other nodes have the weight d / |omega|^2, and the mean of all is 1."""
        drawn = [alternatives.SphericalRadial(origin=True).sample(9, 3, seed=seed) for seed in range(20)]
        norms = torch.stack([draw.dense().norm(dim=1) for draw in drawn])
        assert ((norms == 0).sum(1) == 1).all()
        assert len(set(norms.argmin(1).tolist())) > 3  # it has no fixed place
        weights = torch.stack([draw.weights for draw in drawn])
        torch.testing.assert_close(weights[norms > 0], 9 / 8 * 3 / norms[norms > 0] ** 2)
        torch.testing.assert_close(weights.mean(1), torch.ones(20, dtype=F64))

    def test_fastfood_is_its_product_of_five_matrices(self):
        """Cosines of rows i and j of H G P H B depend on i xor j alone, so that each row has the same ones."""
        found = np.sort(cosines(one("fastfood", 8, 8)), axis=1)
        np.testing.assert_allclose(found, found[:1].repeat(8, 0), atol=1e-12)
        assert np.abs(found[0, :-1]).max() > 0.1

    def test_plain_halton_points_are_radical_inverses(self):
        def inverse(number, base):
            return 0.0 if number == 0 else (number % base + inverse(number // base, base)) / base

        u = np.array([[inverse(number, base) for base in (2, 3, 5)] for number in range(1, 8)])
        plain, shifted = (
            np.sort(stats.norm.cdf(one("halton", 7, 3, randomization=kind)), axis=0) for kind in ("none", "shifted")
        )
        np.testing.assert_allclose(plain, np.sort(u, axis=0), atol=1e-12)
        for column, found in zip(u.T, shifted.T, strict=True):
            assert any(np.allclose(np.sort((column + found[0] - v) % 1), found, atol=1e-9) for v in column)


def simplex(d):
    """Return the vertices of Reid et al. (2023), Eq. 8."""
    ones = np.r_[np.ones(d - 1), 0]
    first = np.sqrt(d / (d - 1)) * np.eye(d)[: d - 1] - (np.sqrt(d) + 1) / (d - 1) ** 1.5 * ones
    return np.vstack([first, ones / np.sqrt(d - 1)])


class TestStructured:
    @pytest.mark.parametrize(
        ("name", "products", "m", "d"),
        [
            ("structured", 3, 70, 33),
            ("fast-orthogonal", 2, 21, 8),
            ("fast-simplex", 3, 9, 5),
            ("fast-simplex", 1, 5, 2),
        ],
    )
    def test_rows_are_products_of_hadamard_matrices(self, name, products, m, d):
        draw = couplings.by_name(name, num_products=products).sample(m, d, seed=0)
        blocks, count, size = draw.signs.shape
        assert (count, blocks) == (products, -(-m // size))
        assert draw.signs.dtype == torch.int8
        h = linalg.hadamard(size) / np.sqrt(size)
        rows = []
        for block in draw.signs.numpy().astype(float):
            product = np.eye(size)
            for flips in block:
                product = h @ np.diag(flips) @ product
            rows.append(simplex(size) @ product if name == "fast-simplex" else product)
        expected = draw.lengths.numpy()[:, None] * np.concatenate(rows)[:m, :d]
        np.testing.assert_allclose(draw.dense(), expected, atol=1e-12)

    @pytest.mark.parametrize(("name", "d"), [("structured", 5), ("fast-simplex", 8)])
    def test_features_have_two_derivatives(self, name, d):
        phi = features.Fourier(couplings.by_name(name).sample(6, d, seed=0))
        x = torch.from_numpy(np.random.default_rng(1).standard_normal((2, d))).requires_grad_()
        assert torch.autograd.gradcheck(phi, (x,))
        assert torch.autograd.gradgradcheck(lambda v: phi(v)[..., ::5], (x,))

    def test_no_matrix_is_formed(self):
        """A matrix of 2^14 frequencies in 2^14 dimensions would take 2 GiB; rows are in blocks of 32."""
        draw = couplings.Structured().sample(2**14, 2**14, seed=0)
        x = torch.randn(33, 2**14, generator=torch.Generator().manual_seed(1))
        found = draw.project(x)
        torch.testing.assert_close(found.norm(dim=1), x.norm(dim=1) * 2**7, rtol=1e-4, atol=0)
        torch.testing.assert_close(found[32:], draw.project(x[32:]), rtol=1e-5, atol=1e-3)

    @pytest.mark.parametrize(
        ("name", "limit"), [("structured", 0.03), ("fast-orthogonal", 0.01), ("fast-simplex", 0.03)]
    )
    def test_bias_is_far_below_the_stated_bound(self, name, limit):
        """The bound 6 z / sqrt(D) is above 1 at most distances."""
        v = np.random.default_rng(1).standard_normal((5, 8))
        v *= (np.array([0.3, 0.7, 1, 1.5, 2]) / np.linalg.norm(v, axis=1))[:, None]
        z = np.linalg.norm(v, axis=1)
        estimates = np.cos(sample(name, 5, 8) @ v.T).mean(1)
        error = estimates.std(0, ddof=1) / np.sqrt(len(estimates))
        assert (np.abs(estimates.mean(0) - np.exp(-(z**2) / 2)) <= limit * z + 6 * error).all()

    @pytest.mark.slow
    def test_padding_keeps_the_mean_square_of_the_norms(self):
        for name in ("structured", "fast-orthogonal", "fast-simplex"):
            assert_mean((sample(name, 3, 5) ** 2).sum(2), np.full(3, 5.0))

    def test_constant_norms_estimate_the_average_over_a_sphere(self):
        z = np.array([0.3, 1.0, 2.0])
        estimates = np.cos(sample("constant-norm", 5, 8)[:, :, :1] * z).mean(1)
        assert_mean(estimates, special.hyp0f1(4, -8 * z**2 / 4))


# --- conformity, leverage and rows -----------------------------------------------------------------


class TestConformity:
    def test_it_is_the_mean_product_of_two_features_over_rotations(self):
        vectors = np.random.default_rng(0).standard_normal((3, 4))
        gaussian = np.random.default_rng(1).standard_normal((2000, 4))
        terms = np.exp(0.8 * gaussian / np.linalg.norm(gaussian, axis=1, keepdims=True) @ vectors.T)
        pairs = (terms.sum(1) ** 2 - (terms**2).sum(1)) / 6
        assert_mean(pairs, optimized.conformity(vectors, 0.8)[0])

    @pytest.mark.parametrize(("d", "v"), [(2, 1.0), (6, 1.0), (6, 3.0)])
    def test_starts_end_at_one_least_conformity(self, d, v):
        start, other = one("simplex-plus", d, d, seed=1), np.random.default_rng(0).standard_normal((d, d))
        norms = np.linalg.norm(start, axis=1)
        other *= (norms / np.linalg.norm(other, axis=1))[:, None]
        found, again = (optimized.least_conformity(rows, v) for rows in (start, other))
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), norms, rtol=1e-12)
        least, same, before = (optimized.conformity(rows, v)[0] for rows in (found, again, start))
        assert least <= before + 1e-12
        assert least == pytest.approx(same, rel=1e-5)

    def test_optimized_draws_have_less_conformity_than_plus(self):
        least, first = (optimized.conformity(one(name, 6, 6), 1.0)[0] for name in ("simplex-optimized", "simplex-plus"))
        assert 0.9 * first < least < first


class TestRows:
    """Couplings that depend on the rows of a table."""

    def test_leverage_follows_its_definition(self):
        heights = couplings.leverage_histogram(ROWS[:, :2], 0.1, num_bins=4, num_samples=400)
        squares = ((ROWS[:, None, :2] - ROWS[:, :2]) ** 2).sum(2)
        omega = np.random.default_rng(0).standard_normal((8000, 2))
        phi = np.exp(1j * ROWS[:, :2] @ omega.T)
        leverage = (phi.conj() * np.linalg.solve(np.exp(-squares / 2) + 0.1 * np.eye(40), phi)).sum(0).real
        bins = (4 * (1 - np.exp(-(omega**2).sum(1) / 2))).astype(int)
        np.testing.assert_allclose(heights, [leverage[bins == k].mean() for k in range(4)], rtol=0.1)

    @pytest.mark.parametrize("spectrum", [GAUSSIAN, MATERN], ids=repr)
    def test_weights_are_those_of_least_squares(self, spectrum):
        """They are nonnegative, and a large row of ones makes their sum 1 for scipy."""
        draw = couplings.DataAdapted(ROWS, optimize_frequencies=False).sample(40, 3, spectrum=spectrum, seed=0)
        weights, differences = draw.weights.numpy() / 40, (ROWS[:, None] - ROWS).reshape(-1, 3)
        assert weights.min() == 0
        assert weights.sum() == pytest.approx(1, abs=1e-12)
        cosine = np.cos(differences @ draw.dense().numpy().T)
        kernel = spectrum.kernel(torch.from_numpy(np.linalg.norm(differences, axis=1))).numpy()
        expected, _ = optimize.nnls(np.vstack([cosine, np.full(40, 1e4)]), np.r_[kernel, 1e4])
        found, least = (np.sum((cosine @ w - kernel) ** 2) for w in (weights, expected))
        assert found == pytest.approx(least, rel=1e-5)

    def test_the_objective_is_the_mean_over_normal_differences(self):
        """By Gauss-Hermite quadrature in two dimensions."""
        omega, weights = np.random.default_rng(0).standard_normal((3, 2)), np.array([0.5, 0.2, 0.3])
        root, (nodes, share) = np.array([[1.1, 0.0], [0.4, 0.6]]), np.polynomial.hermite_e.hermegauss(60)
        z = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2) @ root.T
        share, values = np.outer(share, share).ravel() / (2 * np.pi), []
        for t in (0.1, 0.3, 1.0):
            kernel = np.exp(-0.5 * t * (z**2).sum(1))
            squares = (np.cos(np.sqrt(t) * z @ omega.T) @ weights - kernel) ** 2
            values.append(share @ squares / (0.5 + 0.5 * share @ kernel**4 - share @ kernel**2))
        found = adapted.normal_error(*(torch.from_numpy(array) for array in (omega, weights, root @ root.T)))
        assert found.item() == pytest.approx(np.mean(values), rel=1e-8)

    @pytest.mark.slow
    def test_other_rows_have_smaller_errors_too(self):
        rng = np.random.default_rng(3)
        x, z = (rng.standard_normal((400, 3)) * [1.0, 0.4, 0.1] + rng.integers(0, 2, (400, 1)) for _ in range(2))
        made = Energy(weighted=True), *(couplings.DataAdapted(x, optimize_frequencies=moves) for moves in (False, True))
        plain, weighted, moved = (theory.pairs_error(each, z, 24, num_draws=8).error for each in made)
        assert moved < weighted < 0.8 * plain

    def test_odd_rows_have_finite_frequencies(self):
        for near in (ROWS * 1e-4, ROWS * 1e-9, ROWS * 1e200, ROWS[:1], np.ones((5, 3))):
            draw = couplings.DataAdapted(near).sample(8, 3, seed=0)
            assert bool(draw.dense().isfinite().all())
            assert float(draw.weights.sum()) == pytest.approx(8)

    def test_distances_of_data(self):
        i, j = np.tril_indices(40, -1)
        between, sums = (np.linalg.norm(ROWS[i] + sign * ROWS[j], axis=1) for sign in (-1, 1))
        found = couplings.distances_between(ROWS, num_distances=len(i))
        np.testing.assert_allclose(found, np.stack([np.sort(between), np.ones(len(i))], 1))
        table = couplings.distances_between(torch.as_tensor(ROWS), "laplace", num_distances=len(i))
        np.testing.assert_allclose(table, np.stack([sums, np.exp(-(between**2))], 1)[np.argsort(sums)])
        halves = couplings.distances_between([[0.0], [1.0], [3.0]], num_distances=2)
        np.testing.assert_allclose(halves[:, 0], [2.5**0.5, 3.0])


# --- refusals --------------------------------------------------------------------------------------


class Wider(couplings.IID):
    """A coupling with an error: its frequencies have one column more."""

    def _frequencies(self, m, d, spectrum, generator):
        return super()._frequencies(m, d + 1, spectrum, generator)


def copula(matrix):
    return couplings.Copula(matrix).sample(3, 3)


def test_a_bad_correlation_is_refused_before_the_draw():
    source = torch.Generator().manual_seed(0)
    before = source.get_state()
    bad = couplings.Copula([[1, 2], [2, 1]])
    refused(lambda: bad.sample(3, 3, generator=source), rfgp.InvalidArgumentError, "correlation")
    assert torch.equal(source.get_state(), before)


IID, ONES, PRODUCT = couplings.IID(), torch.ones(2, 2), spectra.ProductLaplace()
PAIRS = IID.sample(2, 2, seed=0).with_negatives()
ADAPTED = couplings.DataAdapted(ROWS)
REFUSED = [
    (lambda: Wider().sample(4, 2, seed=0), "(4, 3)"),
    (lambda: couplings.by_name("sorf"), "got 'sorf'"),
    (lambda: couplings.by_name("iid", blocks=2), "'iid'"),
    (lambda: couplings.register("iid", couplings.Sobol), "'iid'"),
    (lambda: couplings.register("own", IID), "class"),
    (lambda: couplings.by_name(Energy(), weighted=True), "weighted"),
    (lambda: couplings.by_name("energy-antithetic", features="fourier"), "laplace"),
    *named(partial(IID.sample, num_dims=3), num_frequencies=True),
    *named(partial(IID.sample, 6), num_dims="3"),
    *named(partial(IID.sample, 6, 3), generator=0, spectrum="gaussian"),
    (lambda: IID.sample(2**20, 2**12), "GiB"),
    (lambda: IID.sample(6, 3, seed=0, generator=torch.Generator()), "seed and generator"),
    (lambda: couplings.Simplex().sample(2, 1), "at least 2"),
    (lambda: couplings.FastSimplex().sample(2, 1), "at least 2"),
    *named(optimized.SimplexOptimized, distance=6.0),
    *named(couplings.SimplexPlus, num_sweeps=-1),
    *named(couplings.Halton, randomization="owen"),
    *named(couplings.Structured, num_products=4),
    *named(couplings.SharedNorms, correlation=1.1, proposal_scale=0.0),
    (lambda: alternatives.Leverage([1.0, 1e-7]), "histogram"),
    *named(partial(Energy, weighted=True), proposal_scale=1.2),
    *named(Energy, features="cosine", effort="some", distances=[[1.0, -2.0]], proposal_scale=2),
    (lambda: copula(np.eye(3)[:2]), "square"),
    (lambda: copula(np.ones((3, 3))), "definite"),
    (lambda: copula([[1, 0.5], [0.4, 1]]), "diagonal"),
    (lambda: couplings.leverage_histogram(np.ones(3), 0.1), "matrix"),
    (lambda: couplings.leverage_histogram(ROWS, 0.0), "noise"),
    (lambda: couplings.DataAdapted(np.full((3, 2), np.nan)), "finite"),
    (lambda: ADAPTED.sample(4, 2), "3 columns"),
    (lambda: couplings.for_features(ADAPTED, "laplace"), "fourier"),
    (lambda: couplings.distances_between([[1.0], [np.nan]]), "finite"),
    (lambda: couplings.distances_between(np.zeros((5, 2))), "distinct"),
    (lambda: couplings.distances_between([[1e200], [0.0]]), "1e100"),
    *named(partial(couplings.distances_between, ROWS), kind="cosine", num_pairs=0),
    (lambda: Energy("laplace", distances=[[50.0, 1.0]]).sample(4, 3), "positive features"),
    (lambda: couplings.Antithetic(Energy("laplace")), "without pairs"),
    (lambda: Energy().sample_product(8, []), "factors"),
    (lambda: Energy("laplace").sample_product(8, [(GAUSSIAN, 2), (MATERN, 1)]), "Gaussian"),
    (lambda: optimized.conformity(np.ones(3), 1.0), "vectors"),
    (lambda: couplings.as_frequencies(1j * ONES), "real tensor"),
    (lambda: couplings.as_frequencies(torch.zeros(3)), "matrix"),
    (lambda: couplings.Frequencies(ONES, [1.0, 2.0]), "real tensor"),
    (lambda: couplings.Frequencies(ONES, torch.ones(1)), "shape"),
    (lambda: couplings.Frequencies(ONES, -ONES[0]), "nonnegative"),
    (PAIRS.with_negatives, "antithetic"),
    (lambda: PAIRS.project(ONES.long()), "floating-point"),
    (lambda: spectra.by_name("cosine"), "cosine"),
    (lambda: spectra.by_name("matern", alpha=2), "'matern'"),
    *named(spectra.Matern, nu=1000),
    *named(spectra.RationalQuadratic, alpha=0.0199),
    (lambda: PRODUCT.kernel(ONES), "distance"),
    (lambda: PRODUCT.gram_and_slope(ONES), "distance"),
    (lambda: PRODUCT.radial_quantile(ONES, 2), "radial"),
    (lambda: PRODUCT.radial_log_density(ONES, 2), "radial"),
    (lambda: MATERN.coordinate_quantile(ONES), "depend"),
    (lambda: ROUGH.slope_variance, "derivative"),
    (lambda: spectra.RationalQuadratic(1.0).log_prob(ONES), "infinite"),
]


@pytest.mark.parametrize(("call", "word"), REFUSED)
def test_bad_arguments_are_named(call, word):
    refused(call, rfgp.InvalidArgumentError, word)
