"""The contract of couplings. Each registered coupling has a line in `CASES`."""

import inspect
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from checks import assert_mean
from frequency_draws import check_distribution, draws, sample
from scipy import linalg, special, stats

import rfgp
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
    "halton, shifted": Case("halton", {"randomization": "shifted"}, has_products=True),
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
    "shared-norms, one norm": Case("shared-norms", {"correlation": 1.0}),
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
        assert classes - {couplings.Coupling, couplings.Antithetic} == registered
        assert {case.name.removesuffix("-antithetic") for case in CASES.values()} == set(couplings.names())

    def test_name_and_options_make_the_coupling_again(self, case):
        made = case.make()
        assert couplings.name_of(made) == case.name.replace("energy-antithetic", "energy")
        again = couplings.by_name(couplings.name_of(made), **couplings.options_of(made))
        assert repr(again) == repr(made)
        assert couplings.options_of(again) == couplings.options_of(made)
        assert case.options.keys() <= couplings.options_of(made).keys()
        assert made.is_biased is case.is_biased

    def test_features_choose_the_kind_of_the_energy_coupling(self):
        assert couplings.for_features("energy", "laplace").is_antithetic
        assert not couplings.for_features("energy", "fourier").is_antithetic
        assert repr(couplings.for_features("iid", "laplace")) == "IID()"
        assert couplings.Antithetic(couplings.Structured()).is_biased


class TestDraws:
    def test_a_seed_gives_one_draw(self, case):
        made, (m, d) = case.make(), (8, 3)
        one, two, other = (made.sample(m, d, seed=seed) for seed in (0, 0, 1))
        assert torch.equal(one.dense(), two.dense())
        assert torch.equal(one.weights, two.weights)
        assert not torch.equal(one.dense(), other.dense())
        assert one.shape == tuple(one.dense().shape) == (m, d)
        assert one.dense().dtype == one.weights.dtype == F64
        assert bool((one.weights == 1).all()) is not case.is_weighted
        assert one.antithetic is made.is_antithetic is case.name.endswith("-antithetic")
        if one.antithetic:
            assert torch.equal(one.dense()[::2], -one.dense()[1::2])
            assert torch.equal(one.weights[::2], one.weights[1::2])
            with pytest.raises(rfgp.InvalidArgumentError, match="even"):
                made.sample(5, d, seed=0)

    def test_projections_are_products_with_the_rows(self, case):
        draw = case.make().sample(8, 3, seed=0)
        x = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 4, 3)))
        expected = x @ draw.dense().T
        torch.testing.assert_close(draw.project(x), expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(draw.project(x[0, 0]), expected[0, 0], rtol=0, atol=1e-12)
        torch.testing.assert_close(draw.project(x.float()), expected.float(), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(draw.adjoint(expected[0]), expected[0] @ draw.dense(), rtol=0, atol=1e-11)
        with pytest.raises(rfgp.InvalidArgumentError, match="3 columns"):
            draw.project(x[..., :2])

    def test_models_draw_by_their_seed_and_are_saved(self, case, tmp_path):
        kind = "laplace" if case.make().is_antithetic else "fourier"
        gp = rfgp.SparseSpectrumGP(num_frequencies=8, coupling=case.make(), kind=kind, seed=4, lengthscale=2.0)
        gp.condition(ROWS, ROWS.sum(1))
        drawn, expected = gp.feature_map.frequencies, case.make().sample(8, 3, seed=4)
        assert torch.equal(drawn.dense(), expected.dense())
        assert torch.equal(drawn.weights, expected.weights)
        gp.save(tmp_path / "m")
        again = rfgp.load(tmp_path / "m")
        np.testing.assert_array_equal(again.predict(ROWS).mean, gp.predict(ROWS).mean)
        assert type(again.feature_map.frequencies) is type(drawn)

    def test_other_spectra_are_refused_where_they_must_be(self, case):
        spectrum = spectra.ProductLaplace() if not case.has_products else MATERN
        if case.is_gaussian or not case.has_products:
            with pytest.raises(rfgp.InvalidArgumentError, match=r"Gaussian|isotropic"):
                case.make().sample(8, 3, spectrum=MATERN if case.is_gaussian else spectrum, seed=0)
        else:
            assert case.make().sample(8, 3, spectrum=spectrum, seed=0).shape == (8, 3)


def distribution_cases():
    """Return each unbiased coupling with its shape, and with few frequencies, another spectrum or few dimensions."""
    for number, (name, case) in enumerate(UNBIASED.items()):
        slow = () if case.is_quick else pytest.mark.slow
        yield pytest.param(case, *case.shape, GAUSSIAN, id=name, marks=slow)
        few = 2 if case.make().is_antithetic else 3
        yield pytest.param(case, few, case.few_dims, GAUSSIAN, id=f"{name}, {case.few_dims}d", marks=pytest.mark.slow)
        if case.is_gaussian:
            continue
        other = ROUGH if number % 3 else spectra.RationalQuadratic(0.7)
        yield pytest.param(case, 2, 5, other, id=f"{name}, other spectrum", marks=pytest.mark.slow)
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
        wide = Energy(proposal_scale=1.1).sample(32, 400, spectrum=spectra.RationalQuadratic(1.0), seed=0)
        assert torch.isfinite(wide.weights).all()


# --- variances -------------------------------------------------------------------------------------

V = np.random.default_rng(2).standard_normal((20, 4))
V *= (np.linspace(0.3, 1.0, 20) / np.linalg.norm(V, axis=1))[:, None]


class TestVariance:
    """The mean squared error of 8 frequencies in 4 dimensions, divided by that of independent ones.

    The bounds lie between the ratios of a coupling and of the next worse one, which were measured once.
    """

    def ratio(self, name, repeats=600, kind="fourier", **options):
        v = 1.5 * V if kind == "fourier" else V
        z = np.linalg.norm(v, axis=1)
        omega, weights = draws(couplings.by_name(name, **options), 8, 4, repeats=repeats)
        if kind == "fourier":
            feature, kernel = np.cos, np.exp(-(z**2) / 2)
            independent = (1 - kernel**2) ** 2 / 16
        else:
            feature, kernel = np.exp, np.exp(z**2 / 2)
            independent = (np.exp(2 * z**2) - kernel**2) / 8
        estimates = (weights[:, :, None] * feature(omega @ v.T)).mean(1)
        ratios = ((estimates - kernel) ** 2 / independent).mean(1)
        return ratios.mean(), 6 * ratios.std(ddof=1) / np.sqrt(repeats)

    @pytest.mark.parametrize(
        ("name", "bound"),
        [
            ("halton", 0.7),
            ("digital-net", 0.7),
            ("near-orthogonal", 0.6),
            ("orthogonal", 0.55),
            ("pairwise", 0.36),
            ("stratified", 0.27),
            ("energy", 0.14),
        ],
    )
    def test_fourier_features_are_below_independent_ones(self, name, bound):
        mean, error = self.ratio(name)
        assert mean + error < bound

    @pytest.mark.slow
    def test_weights_lower_the_error_of_the_energy_coupling(self):
        mean, error = self.ratio("energy", weighted=True)
        assert mean + error < self.ratio("energy")[0]

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("name", "bound"),
        [
            ("simplex", 0.8),
            ("simplex-plus", 0.7),
            ("iid-antithetic", 0.7),
            ("pairwise-antithetic", 0.5),
            ("energy-antithetic", 0.45),
        ],
    )
    def test_positive_features_are_below_independent_ones(self, name, bound):
        mean, error = self.ratio(name, 1000, "laplace")
        assert mean + error < bound


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

    def test_near_orthogonal_directions_are_far_from_each_other(self):
        def closest(name):
            return np.max(cosines(one(name, 40, 4)) - 2 * np.eye(40))

        assert closest("near-orthogonal") < closest("orthogonal") - 0.1
        for d in (2, 5):  # d + 1 of them are the corners of a simplex
            found = cosines(one("near-orthogonal", d + 1, d))[~np.eye(d + 1, dtype=bool)]
            np.testing.assert_allclose(found, -1 / d, atol=1e-4)

    def test_pairwise_norms_of_a_block_are_negatively_monotone(self):
        rows = one("pairwise", 12, 5)
        u = stats.chi(5).cdf(np.linalg.norm(rows, axis=1))
        pairs = np.isclose(u[:, None] + u, 1, atol=1e-12, rtol=0) & np.isclose(cosines(rows), 0, atol=1e-12)
        assert sorted(pairs.sum(1)) == [0, 0] + [1] * 10  # the fifth of an odd block is on its own

    @pytest.mark.parametrize(("name", "options"), [("monotone", {}), ("shared-norms", {"correlation": 0.5})])
    def test_norms_are_equal_within_blocks(self, name, options):
        norms = np.linalg.norm(one(name, 10, 4, **options), axis=1)
        equal = np.isclose(norms[:, None], norms, rtol=1e-12)
        assert sorted(equal.sum(1)) == [2] * 2 + [4] * 8

    @pytest.mark.slow
    def test_shared_norms_are_correlated_over_blocks(self):
        norms = np.linalg.norm(sample(couplings.SharedNorms(0.7), 4, 2), axis=2)
        normal = stats.norm.ppf(stats.chi(2).cdf(norms))
        assert_mean((normal.sum(1) / 2) ** 2 / 2 - 1, 0.7)  # both norms occur twice
        whole = np.linalg.norm(one("shared-norms", 5, 3, correlation=1.0), axis=1)
        np.testing.assert_allclose(whole, whole[0])

    @pytest.mark.parametrize(("name", "m"), [("stratified", 12), ("energy", 6), ("energy", 7)])
    def test_norms_fill_strata(self, name, m):
        places = np.sort(stats.chi(3).cdf(np.linalg.norm(one(name, m, 3), axis=1))) * m - np.arange(m)
        assert ((places > 0) & (places < 1)).all()
        mirrored = np.abs(places[0 : m - m % 2 : 2] + places[1::2] - 1).max() < 1e-9
        assert mirrored is np.bool_(name == "energy")

    @pytest.mark.slow
    def test_a_copula_has_its_correlation(self):
        correlation = np.array(CASES["copula, correlation"].options["correlation"])
        norms = np.linalg.norm(sample(couplings.Copula(correlation), 3, 3), axis=2)
        normal = stats.norm.ppf(stats.chi(3).cdf(norms))
        assert_mean(normal.sum(1) ** 2, correlation.sum())
        assert_mean((normal**2).mean(1), 1.0)
        largest = np.linalg.norm(sample(couplings.Copula([[1.0, 0.9], [0.9, 1.0]]), 2, 3), axis=2)
        normal = stats.norm.ppf(stats.chi(3).cdf(largest))
        assert_mean(normal[:, 0] * normal[:, 1], 0.9)

    def test_turning_shortens_the_sum_of_a_block(self):
        sums = [np.linalg.norm(one("simplex-plus", 6, 6, num_sweeps=sweeps).sum(0)) for sweeps in (0, 1, 20)]
        assert sums[0] > sums[1] > sums[2]
        assert sums[2] < 1e-3

    def test_quadrature_integrates_quadratic_forms_exactly(self):
        """The sum of d / rho^2 omega_j omega_j^T over the d + 1 nodes of a rule is (d + 1) I."""
        for d in (1, 2, 5):
            draw = couplings.SphericalRadial().sample(d + 1, d, seed=0)
            form = torch.einsum("i,ij,ik->jk", draw.weights, draw.dense(), draw.dense()) / (d + 1)
            torch.testing.assert_close(form, torch.eye(d, dtype=F64), rtol=0, atol=1e-12)

    def test_the_node_at_the_origin_takes_the_weight_that_is_left(self):
        """The rule's own form: the mean of w_i cos(omega_i . x) over the other nodes, and 1 less the mean of w_i."""
        drawn = [couplings.SphericalRadial(origin=True).sample(9, 3, seed=seed) for seed in range(20)]
        assert len({int(draw.dense().norm(dim=1).argmin()) for draw in drawn}) > 3  # it has no fixed place
        nodes = drawn[0].dense()[drawn[0].dense().norm(dim=1) > 0]
        x, radius = torch.tensor([0.3, -1.0, 0.5], dtype=F64), nodes.norm(dim=1)
        expected = (3 / radius**2 * (nodes @ x).cos()).mean() + 1 - (3 / radius**2).mean()
        torch.testing.assert_close((drawn[0].weights * (drawn[0].dense() @ x).cos()).mean(), expected)
        assert len(nodes) == 8

    def test_fastfood_is_its_product_of_five_matrices(self):
        """Cosines of rows i and j of H G P H B depend on i xor j alone, so that each row has the same ones."""
        found = np.sort(cosines(one("fastfood", 8, 8)), axis=1)
        np.testing.assert_allclose(found, found[:1].repeat(8, 0), atol=1e-12)
        assert np.abs(found[0, :-1]).max() > 0.1

    def test_a_net_has_one_point_in_each_of_many_boxes(self):
        """Of 16 points one in each 16th of an axis, and one in each of 4 x 4 squares of the first two axes."""
        u = stats.norm.cdf(one("digital-net", 16, 3))
        u = u[u[:, 0].argsort()]
        np.testing.assert_allclose(np.diff(u[:, 0]), 1 / 16, atol=1e-9)
        for axis in (1, 2):
            assert sorted((u[:, axis] * 16).astype(int)) == list(range(16))
        squares = (u[:, 1] * 4).astype(int)
        rolled = [np.sort(np.roll(squares, shift).reshape(4, 4), axis=1) for shift in range(4)]
        assert any((square == np.arange(4)).all() for square in rolled)

    def test_plain_halton_points_are_radical_inverses(self):
        def inverse(number, base):
            return 0.0 if number == 0 else (number % base + inverse(number // base, base)) / base

        u = np.array([[inverse(number, base) for base in (2, 3, 5)] for number in range(1, 8)])
        found = one("halton", 7, 3, randomization="none")
        np.testing.assert_allclose(np.sort(found, axis=0), np.sort(stats.norm.ppf(u), axis=0), atol=1e-12)
        shifted = stats.norm.cdf(one("halton", 7, 3, randomization="shifted"))
        shift = (np.sort((shifted - shifted[0]) % 1, axis=0), [np.sort((u - v) % 1, axis=0) for v in u])
        assert any(np.allclose(shift[0], other, atol=1e-9) for other in shift[1])


def simplex(d):
    """Return the vertices of Reid et al. (2023), Eq. 8."""
    ones = np.r_[np.ones(d - 1), 0]
    first = np.sqrt(d / (d - 1)) * np.eye(d)[: d - 1] - (np.sqrt(d) + 1) / (d - 1) ** 1.5 * ones
    return np.vstack([first, ones / np.sqrt(d - 1)])


class TestStructured:
    @pytest.mark.parametrize(
        ("name", "products", "m", "d"),
        [
            ("structured", 1, 8, 8),
            ("structured", 3, 70, 33),
            ("fast-orthogonal", 3, 21, 8),
            ("fast-orthogonal", 2, 10, 5),
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
        assert draw.signs.numel() == 3 * 2**14
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
        assert_mean(pairs, couplings.conformity(vectors, 0.8)[0])

    @pytest.mark.parametrize(("d", "v"), [(2, 1.0), (6, 1.0), (6, 3.0)])
    def test_no_other_directions_do_better(self, d, v):
        rng = np.random.default_rng(0)
        starts = [one("simplex-plus", d, d, seed=1), rng.standard_normal((d, d))]
        norms = np.linalg.norm(starts[0], axis=1)
        starts[1] *= (norms / np.linalg.norm(starts[1], axis=1))[:, None]
        found, other = (couplings.least_conformity(start, v) for start in starts)
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), norms, rtol=1e-12)
        least, again, before = (couplings.conformity(w, v)[0] for w in (found, other, starts[0]))
        assert least <= before + 1e-12
        assert least == pytest.approx(again, rel=1e-5)
        for _ in range(20):  # nearby directions are not better
            near = found + 0.01 * rng.standard_normal((d, d))
            near *= (norms / np.linalg.norm(near, axis=1))[:, None]
            assert couplings.conformity(near, v)[0] > least - 1e-9

    def test_optimized_draws_have_less_conformity_than_plus(self):
        least, first = (couplings.conformity(one(name, 6, 6), 1.0)[0] for name in ("simplex-optimized", "simplex-plus"))
        assert 0.9 * first < least < first


class TestRows:
    """Couplings that depend on the rows of a table."""

    def test_leverage_follows_its_definition(self):
        heights = couplings.leverage_histogram(ROWS[:, :2], 0.1, num_bins=4, num_samples=400)
        distances = np.linalg.norm(ROWS[:, None, :2] - ROWS[:, :2], axis=2)
        omega = np.random.default_rng(0).standard_normal((8000, 2))
        phi = np.exp(1j * ROWS[:, :2] @ omega.T)
        leverage = (phi.conj() * np.linalg.solve(np.exp(-(distances**2) / 2) + 0.1 * np.eye(40), phi)).sum(0).real
        bins = (4 * (1 - np.exp(-(omega**2).sum(1) / 2))).astype(int)
        np.testing.assert_allclose(heights, [leverage[bins == k].mean() for k in range(4)], rtol=0.1)
        root = couplings.leverage_histogram(ROWS[:, :2], 0.1, num_bins=4, num_samples=400, power=0.5)
        np.testing.assert_allclose(np.square(root), heights)

    @pytest.mark.parametrize("spectrum", [GAUSSIAN, MATERN], ids=repr)
    def test_weights_are_those_of_least_squares(self, spectrum):
        """No step to another point of the simplex makes the mean square over all pairs smaller."""
        draw = couplings.DataAdapted(ROWS, optimize_frequencies=False).sample(40, 3, spectrum=spectrum, seed=0)
        weights, differences = draw.weights.numpy() / 40, (ROWS[:, None] - ROWS).reshape(-1, 3)
        assert weights.min() >= 0
        assert weights.sum() == pytest.approx(1, abs=1e-12)
        cosine = np.cos(differences @ draw.dense().numpy().T)
        kernel = spectrum.kernel(torch.from_numpy(np.linalg.norm(differences, axis=1))).numpy()
        slope = 2 * cosine.T @ (cosine @ weights - kernel)
        start = 2 * cosine.T @ (cosine.mean(1) - kernel)
        level = slope[weights > 0].mean()
        assert np.abs(slope[weights > 0] - level).max() < 1e-5 * np.abs(start).max()
        assert (slope - level).min() > -1e-5 * np.abs(start).max()
        assert (weights == 0).any()

    def test_the_objective_is_the_mean_over_normal_differences(self):
        """By Gauss-Hermite quadrature in two dimensions."""
        spread = np.array([[1.3, 0.4], [0.4, 0.5]])
        omega, weights = np.array([[0.3, 1.2], [-1.0, 0.4], [2.0, 0.1]]), np.array([0.5, 0.2, 0.3])
        nodes, share = np.polynomial.hermite_e.hermegauss(60)
        z = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2) @ np.linalg.cholesky(spread).T
        share = np.outer(share, share).reshape(-1) / (2 * np.pi)
        values = []
        for t in (0.1, 0.3, 1.0):
            kernel = np.exp(-0.5 * t * (z**2).sum(1))
            squares = (np.cos(np.sqrt(t) * z @ omega.T) @ weights - kernel) ** 2
            independent = 0.5 + 0.5 * share @ kernel**4 - share @ kernel**2
            values.append(share @ squares / independent)
        found = adapted.normal_error(torch.from_numpy(omega), torch.from_numpy(weights), torch.from_numpy(spread))
        assert found.item() == pytest.approx(np.mean(values), rel=1e-8)

    @pytest.mark.slow
    def test_other_rows_have_smaller_errors_too(self):
        rng = np.random.default_rng(3)
        x, z = (rng.standard_normal((400, 3)) * [1.0, 0.4, 0.1] + rng.integers(0, 2, (400, 1)) for _ in range(2))
        plain, weighted, moved = (
            theory.pairs_error(made, z, 24, num_draws=8).error
            for made in (
                Energy(weighted=True),
                couplings.DataAdapted(x, optimize_frequencies=False),
                couplings.DataAdapted(x),
            )
        )
        assert moved < weighted < 0.8 * plain

    def test_odd_rows_have_finite_frequencies(self):
        for near in (ROWS * 1e-4, ROWS * 1e-9, ROWS * 1e200, ROWS[:1], np.ones((5, 3))):
            draw = couplings.DataAdapted(near).sample(8, 3, seed=0)
            assert bool(draw.dense().isfinite().all())
            assert float(draw.weights.sum()) == pytest.approx(8)

    def test_distances_of_data(self):
        pairs = [(i, j) for i in range(40) for j in range(i)]
        between = np.sort([np.linalg.norm(ROWS[i] - ROWS[j]) for i, j in pairs])
        found = couplings.distances_between(ROWS, num_distances=len(pairs))
        np.testing.assert_allclose(found, np.stack([between, np.ones(len(pairs))], 1))
        table = couplings.distances_between(torch.as_tensor(ROWS), "laplace", num_distances=len(pairs))
        sums = np.array([np.linalg.norm(ROWS[i] + ROWS[j]) for i, j in pairs])
        factor = np.exp([-(np.linalg.norm(ROWS[i] - ROWS[j]) ** 2) for i, j in pairs])
        np.testing.assert_allclose(table, np.stack([sums, factor], 1)[np.argsort(sums)])
        groups = couplings.distances_between(np.repeat(ROWS, 9, axis=0), num_pairs=3000)
        assert groups.shape == (10, 2)
        halves = couplings.distances_between([[0.0], [1.0], [3.0]], num_distances=2)
        np.testing.assert_allclose(halves[:, 0], [2.5**0.5, 3.0])


# --- refusals --------------------------------------------------------------------------------------


class Wider(couplings.IID):
    """A coupling with an error: its frequencies have one column more."""

    def _frequencies(self, m, d, spectrum, generator):
        return super()._frequencies(m, d + 1, spectrum, generator)


def each(call, word, *bad):
    """Return a call for each bad argument, and a word of its refusal."""
    return [(lambda value=value: call(value), word) for value in bad]


IID, NAN = couplings.IID(), float("nan")
PAIRS = IID.sample(2, 2, seed=0).with_negatives()
REFUSED = [
    (lambda: Wider().sample(4, 2, seed=0), r"\(4, 3\)"),
    (lambda: couplings.by_name("sorf"), "got 'sorf'"),
    (lambda: couplings.by_name("iid", blocks=2), "'iid'"),
    (lambda: couplings.by_name(Energy(), weighted=True), "weighted"),
    (lambda: couplings.by_name("energy-antithetic", features="fourier"), "laplace"),
    *each(lambda m: IID.sample(m, 3), "num_frequencies", 0, 2.0, True),
    (lambda: IID.sample(4, "3"), "num_dims"),
    (lambda: IID.sample(2**20, 2**12), "GiB"),
    (lambda: IID.sample(6, 3, seed=0, generator=torch.Generator()), "seed and generator"),
    (lambda: IID.sample(6, 3, generator=0), "generator"),
    (lambda: IID.sample(6, 3, spectrum="gaussian"), "spectrum must be"),
    *each(
        lambda name: couplings.by_name(name).sample(2, 1), "at least 2", "simplex", "simplex-optimized", "fast-simplex"
    ),
    *each(couplings.SimplexOptimized, "distance", 0, NAN, 6.0),
    *each(couplings.SimplexPlus, "num_sweeps", -1),
    *each(couplings.Halton, "randomization", "owen"),
    *each(couplings.Structured, "num_products", 4, True),
    *each(lambda matrix: couplings.Copula(matrix).sample(3, 3), "square", np.eye(3)[:2]),
    *each(lambda matrix: couplings.Copula(matrix).sample(3, 3), "definite", np.ones((3, 3))),
    *each(lambda matrix: couplings.Copula(matrix).sample(3, 3), "diagonal", 2 * np.eye(3), [[1, 0.5], [0.4, 1]]),
    *each(couplings.SharedNorms, "correlation", 1.1),
    *each(lambda scale: couplings.SharedNorms(proposal_scale=scale), "proposal_scale", 0.0),
    *each(couplings.Leverage, "histogram", [], [1.0, 0.0], [1.0, np.inf], [1.0, 1e-7], [[1.0]]),
    *each(lambda x: couplings.leverage_histogram(x, 0.1), "finite|matrix", np.ones(3), [[NAN]]),
    *each(lambda noise: couplings.leverage_histogram(ROWS, noise), "noise", 0.0),
    *each(couplings.DataAdapted, "finite", np.full((3, 2), NAN)),
    (lambda: couplings.DataAdapted(ROWS).sample(4, 2), "3 columns"),
    (lambda: couplings.for_features(couplings.DataAdapted(ROWS), "laplace"), "fourier"),
    *each(couplings.distances_between, "finite", np.zeros((1, 2)), [[1.0], [NAN]]),
    *each(couplings.distances_between, "distinct", np.zeros((5, 2))),
    *each(couplings.distances_between, "1e100", [[1e200], [0.0]]),
    *each(lambda kind: couplings.distances_between(ROWS, kind), "kind", "cosine"),
    *each(lambda count: couplings.distances_between(ROWS, num_pairs=count), "num_pairs", 0),
    *each(Energy, "features", "cosine"),
    *each(lambda effort: Energy(effort=effort), "effort", "some"),
    *each(lambda table: Energy(distances=table), "distances", [1.0], [[1.0, -2.0]], [[1e5, 1.0]]),
    *each(
        lambda options: Energy(**options),
        "proposal_scale",
        *({"proposal_scale": b, "weighted": b < 2} for b in (2, 1.2)),
    ),
    (lambda: Energy("laplace", distances=[[50.0, 1.0]]).sample(4, 3), "positive features"),
    (lambda: couplings.Antithetic(Energy("laplace")), "without pairs"),
    (lambda: Energy().sample_product(8, []), "factors"),
    (lambda: Energy("laplace").sample_product(8, [(GAUSSIAN, 2), (MATERN, 1)]), "Gaussian"),
    (lambda: Energy().sample_product(8, [(GAUSSIAN, 2), (MATERN, 0)]), "num_dims"),
    *each(lambda vectors: couplings.conformity(vectors, 1.0), "vectors", np.ones(3), "ab"),
    *each(couplings.as_frequencies, "real tensor", None, np.ones((2, 2)), 1j * torch.ones(2, 2)),
    *each(couplings.as_frequencies, "matrix", torch.zeros(3)),
    *each(lambda w: couplings.Frequencies(torch.ones(2, 2), w), "real tensor", [1.0, 2.0]),
    *each(lambda w: couplings.Frequencies(torch.ones(2, 2), torch.tensor(w)), "shape", [1.0]),
    *each(lambda w: couplings.Frequencies(torch.ones(2, 2), torch.tensor(w)), "nonnegative", [1.0, -0.1], [1.0, NAN]),
    (lambda: PAIRS.with_negatives(), "antithetic"),
    (lambda: features.Fourier(PAIRS), "antithetic"),
    (lambda: PAIRS.project(torch.ones(2, 3, dtype=torch.int64)), "floating-point"),
    *each(spectra.by_name, "cosine", "cosine"),
    (lambda: spectra.by_name("matern", alpha=2), "'matern'"),
    *each(spectra.Matern, "nu", 0, NAN, True, "3/2", 1000),
    *each(spectra.RationalQuadratic, "alpha", 0, 1.001e4, 0.0199),
    *each(spectra.ProductCauchy().kernel, "distance", torch.ones(2)),
    *each(spectra.ProductCauchy().gram_and_slope, "distance", torch.ones(2, 2)),
    (lambda: spectra.ProductLaplace().radial_quantile(torch.ones(2), 2), "radial"),
    (lambda: spectra.ProductLaplace().radial_log_density(torch.ones(2), 2), "radial"),
    *each(spectra.Matern().coordinate_quantile, "depend", torch.ones(2)),
    (lambda: spectra.Matern(0.5).slope_variance, "derivative"),
    (lambda: spectra.RationalQuadratic(1.0).log_prob(torch.ones(2, 2)), "infinite"),
]


@pytest.mark.parametrize(("call", "word"), REFUSED)
def test_bad_arguments_are_named(call, word):
    with pytest.raises(rfgp.InvalidArgumentError, match=word):
        call()
