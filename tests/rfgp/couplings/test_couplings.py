import inspect

import numpy as np
import pytest
import torch
from checks import assert_mean, fails
from frequency_draws import check_distribution, check_order, draws, sample
from scipy import stats

import rfgp
from rfgp import couplings, random, spectra
from rfgp.couplings import low_discrepancy, norms, simplex

SHAPES = [(1, 1), (3, 1), (5, 2), (2, 3), (3, 3), (7, 3), (9, 5)]
ANTITHETIC = ("iid-antithetic", "pairwise-antithetic", "simplex-plus-antithetic")


LAWFUL = [n for n in couplings.names() if not couplings.by_name(n).is_biased]
BIASED = ["constant-norm", "structured", "fast-orthogonal", "fast-simplex"]
WEIGHTED = ["spherical-radial", "adapted"]
TAILS = ["iid", "sobol", "pairwise", "copula", "simplex-plus", "energy"]
"""One coupling for each way to the norms: quantiles of independent, spread, coupled and sorted places."""
GAUSSIAN_ONLY = [*BIASED, "spherical-radial", "fastfood", "simplex-optimized"]


def slow_where_solved(names):
    """Return names as parameters; those of couplings that solve for each draw are slow."""
    return [pytest.param(name, marks=[pytest.mark.slow] * (name == "simplex-optimized")) for name in names]


@pytest.fixture(params=slow_where_solved(couplings.names()))
def name(request):
    return request.param


@pytest.fixture(params=slow_where_solved(LAWFUL))
def unbiased(request):
    return request.param


class Wider(couplings.IID):
    """A coupling with an error: its frequencies have one column more."""

    def _frequencies(self, m, d, spectrum, generator):
        return super()._frequencies(m, d + 1, spectrum, generator)


def test_own_couplings_with_another_shape_are_named():
    with pytest.raises(rfgp.InvalidArgumentError, match=r"shape \(4, 2\), got \(4, 3\)"):
        Wider().sample(4, 2, seed=0)


def test_options_of_a_coupling_that_is_made_already_are_refused():
    with pytest.raises(rfgp.InvalidArgumentError, match="weighted"):
        couplings.by_name(couplings.Energy(), weighted=True)


def test_every_coupling_is_registered():
    classes = {c for _, c in inspect.getmembers(couplings, inspect.isclass) if issubclass(c, couplings.Coupling)}
    known = {type(couplings.by_name(name)) for name in couplings.names()}
    assert classes - {couplings.Coupling, couplings.Antithetic} == known
    for name in (*couplings.names(), *ANTITHETIC):
        assert couplings.name_of(couplings.by_name(name)) == name


@pytest.mark.thinned(10, slow=5)
@pytest.mark.parametrize(("m", "d"), SHAPES)
def test_each_frequency_has_the_spectral_distribution(unbiased, m, d):
    """The kernel that frequencies estimate; the norms of the first and the last, unless weights make up for them."""
    if unbiased.startswith("simplex") and d == 1:
        pytest.skip("there is no simplex in one dimension, which a test of its own shows")
    if unbiased == "spherical-radial" and d <= 2:
        pytest.skip("its weights have no variance, which a test of their distribution finds")
    omega, weights = draws(unbiased, m, d)
    check_distribution(omega, spectra.Gaussian(), weights)
    norms = np.linalg.norm(omega, axis=2)
    for row in () if unbiased in WEIGHTED else (0, m - 1):
        assert stats.kstest(norms[:, row], stats.chi(d).cdf).pvalue > 1e-9
    if m == d == 3:
        unit = omega[:, 0] / norms[:, :1]
        assert_mean(unit, np.zeros(3))
        assert_mean(unit[:, :, None] * unit[:, None, :], np.eye(3) / 3)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_quadrature_radii_and_their_weights(d):
    """rho is chi with d + 2 degrees, its weight d / rho^2 turns that density into chi's with d."""
    omega, weights = draws("spherical-radial", 2 * (d + 1), d)
    radius = np.linalg.norm(omega, axis=2)
    np.testing.assert_allclose(weights, d / radius**2)
    assert stats.kstest(radius[:, 0], stats.chi(d + 2).cdf).pvalue > 1e-9
    r = np.linspace(0.1, 5, 9)
    np.testing.assert_allclose(stats.chi(d + 2).pdf(r) * d / r**2, stats.chi(d).pdf(r))
    unit = omega / radius[:, :, None]
    assert_mean(unit[:, 0], np.zeros(d))


@pytest.mark.thinned(3)
def test_with_another_spectrum_too(name):
    spectrum = spectra.RationalQuadratic(0.7) if name in TAILS else spectra.Matern(0.5)
    if name in GAUSSIAN_ONLY:
        with pytest.raises(rfgp.InvalidArgumentError, match="must be Gaussian"):
            sample(name, 7, 3, repeats=1, spectrum=spectrum)
    else:
        omega, weights = draws(name, 7, 3, spectrum=spectrum)
        check_distribution(omega, spectrum, weights)


@pytest.mark.parametrize("name", ["iid", "halton", "sobol", "digital-net"])
def test_products_have_their_distribution(name):
    spectrum = spectra.ProductCauchy() if name in ("iid", "sobol") else spectra.ProductLaplace()
    omega = sample(name, 5, 3, spectrum=spectrum)
    v = np.random.default_rng(1).standard_normal((5, 3))
    kernel = spectrum.kernel_between(torch.zeros(1, 3, dtype=torch.float64), torch.as_tensor(v))[0].numpy()
    for part in (omega[:, :1], omega[:, :3], omega):
        assert_mean(np.cos(part @ v.T).mean(1), kernel)


class TestPointsThatAreNotScrambled:
    def test_shifted_ones_have_their_distribution(self):
        check_distribution(sample(couplings.Halton("shifted"), 5, 3), spectra.Gaussian())
        matern = spectra.Matern(0.5)
        check_distribution(sample(couplings.Halton("shifted"), 5, 3, spectrum=matern), matern)

    def test_plain_ones_are_the_radical_inverses_in_each_draw(self):
        """Of 1, 2, ..., in the bases 2, 3, 5; in an order of its own each time."""

        def inverse(number, base):
            return 0.0 if number == 0 else (number % base + inverse(number // base, base)) / base

        u = np.array([[inverse(number, base) for base in (2, 3, 5)] for number in range(1, 8)])
        coupling = couplings.Halton("none")
        draws = [coupling.sample(7, 3, seed=seed).dense().numpy() for seed in (0, 1)]
        for draw in draws:
            np.testing.assert_allclose(np.sort(draw, axis=0), np.sort(stats.norm.ppf(u), axis=0), atol=1e-12)
        assert not np.array_equal(*draws)
        assert coupling.is_biased
        assert fails(check_distribution, sample(coupling, 5, 3), spectra.Gaussian())

    def test_shifted_halton_is_linear_in_the_last_of_13_dimensions(self):
        """Below its base a radical inverse is linear, so that two dimensions of large bases say the same."""
        shifted = couplings.Halton("shifted").sample(8, 13, seed=0).dense().numpy()
        u = stats.norm.cdf(shifted[:, -2:])
        gaps = np.diff(np.sort(u, axis=0), axis=0)
        np.testing.assert_allclose(gaps[gaps[:, 0] < 0.5, 0], 1 / 37, atol=1e-12)

    def test_names_options_and_files(self):
        assert couplings.options_of(couplings.by_name("halton")) == {}
        plain = couplings.by_name("halton", randomization="none")
        assert couplings.options_of(plain) == {"randomization": "none"}
        assert [repr(c) for c in (plain, couplings.Halton())] == ["Halton('none')", "Halton()"]
        with pytest.raises(rfgp.InvalidArgumentError, match="one of scrambled, shifted, none, got 'owen'"):
            couplings.Halton("owen")


def test_seed_gives_the_frequencies_of_a_model_of_this_seed():
    draw = couplings.by_name("orthogonal").sample(6, 3, seed=4)
    gp = rfgp.SparseSpectrumGP(num_frequencies=6, coupling="orthogonal", seed=4).condition(np.eye(3), np.arange(3.0))
    assert torch.equal(draw.dense(), gp.feature_map.frequencies.dense())
    assert not torch.equal(couplings.by_name("iid").sample(6, 3).dense(), couplings.by_name("iid").sample(6, 3).dense())
    with pytest.raises(rfgp.InvalidArgumentError, match="seed and generator"):
        couplings.by_name("iid").sample(6, 3, seed=0, generator=random.generator(0))
    assert repr(draw) == "Frequencies(m=6, d=3)"


@pytest.mark.parametrize("name", ANTITHETIC)
def test_antithetic_pairs(name):
    coupling, generator = couplings.by_name(name), random.generator(3)
    omega = coupling.sample(6, 3, generator=generator)
    assert torch.equal(omega.dense()[0::2], -omega.dense()[1::2])
    check_distribution(sample(name, 6, 3), spectra.Gaussian())
    rfgp.features.Laplace(omega)
    with pytest.raises(rfgp.InvalidArgumentError, match="antithetic"):
        rfgp.features.Fourier(omega)
    with pytest.raises(rfgp.InvalidArgumentError, match="must be even, got 5"):
        coupling.sample(5, 3, generator=generator)
    with pytest.raises(rfgp.InvalidArgumentError, match="antithetic"):
        rfgp.SparseSpectrumGP(num_frequencies=4, coupling=name).condition(np.eye(4), np.arange(4.0))


@pytest.mark.parametrize("name", ["simplex", "simplex-plus"])
def test_simplex_blocks(name, monkeypatch):
    monkeypatch.setattr(torch, "randperm", lambda m, generator: torch.arange(m))
    for d in (2, 3, 8):
        omega = sample(name, 2 * d, d, repeats=3)
        unit = omega / np.linalg.norm(omega, axis=2, keepdims=True)
        for block in (unit[:, :d], unit[:, d:]):
            cosines = block @ block.transpose(0, 2, 1)
            off = cosines[:, ~np.eye(d, dtype=bool)]
            if name == "simplex":
                np.testing.assert_allclose(off, -1 / (d - 1), atol=1e-12)
    with pytest.raises(rfgp.InvalidArgumentError, match="at least 2"):
        sample(name, 2, 1, repeats=1)


def test_turning_shortens_the_sum_of_a_block(monkeypatch):
    monkeypatch.setattr(torch, "randperm", lambda m, generator: torch.arange(m))
    d, sums = 6, []
    for sweeps in (0, 1, 20):
        omega = couplings.SimplexPlus(sweeps).sample(d, d, generator=random.generator(0)).dense()
        sums.append(omega.sum(0).norm().item())
    assert sums[0] > sums[1] > sums[2]
    assert sums[2] < 1e-3
    with pytest.raises(rfgp.InvalidArgumentError, match="num_sweeps"):
        couplings.SimplexPlus(-1)


def test_monotone_norms_are_equal_and_stratified_fill_strata(monkeypatch):
    u = stats.chi(4).cdf(np.linalg.norm(sample("stratified", 12, 4, repeats=20), axis=2))
    assert (np.sort((u * 12).astype(int), axis=1) == np.arange(12)).all()
    monkeypatch.setattr(torch, "randperm", lambda m, generator: torch.arange(m))
    norms = np.linalg.norm(sample("monotone", 10, 4, repeats=20), axis=2)
    np.testing.assert_allclose(norms[:, :4], norms[:, :1].repeat(4, axis=1))
    np.testing.assert_allclose(norms[:, 8:], norms[:, 8:9].repeat(2, axis=1))
    assert abs(norms[:, 0] - norms[:, 4]).min() > 1e-6


def test_a_copula_has_its_correlation(monkeypatch):
    monkeypatch.setattr(torch, "randperm", lambda m, generator: torch.arange(m))
    correlation = np.array([[1, -0.6, 0.2], [-0.6, 1, -0.4], [0.2, -0.4, 1]])
    coupling = couplings.Copula(correlation)
    draws = [
        coupling.sample(3, 3, generator=g).dense().norm(dim=1).numpy()
        for g in [random.generator(5)]
        for _ in range(2000)
    ]
    normal = stats.norm.ppf(stats.chi(3).cdf(np.array(draws)))
    products = normal[:, :, None] * normal[:, None, :]
    assert_mean(products, correlation)
    check_distribution(sample(coupling, 7, 3), spectra.Gaussian())
    for wrong in (np.eye(3)[:2], np.ones((3, 3)), np.array([[1, 0.5, 0], [0.4, 1, 0], [0, 0, 1]]), 2 * np.eye(3)):
        with pytest.raises(rfgp.InvalidArgumentError, match="orrelation"):
            couplings.Copula(wrong).sample(3, 3, generator=random.generator(0))


def test_simplex_features_beat_iid_ones_for_the_positive_kernel():
    rng = np.random.default_rng(0)
    x = torch.as_tensor(rng.standard_normal((20, 6)) / 4)
    check_order([couplings.IID(), couplings.Simplex()], rfgp.features.Laplace, x, 6, 600, 4)


class TestPlantedErrors:
    """One fault in each family, found by `check_distribution`."""

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["iid", "pairwise", "simplex-plus", "copula", "energy", "adapted"])
    def test_a_radial_distribution_of_another_dimension(self, name, monkeypatch):
        original = spectra.Gaussian.radial_quantile
        monkeypatch.setattr(spectra.Gaussian, "radial_quantile", lambda self, u, d: original(self, u, d + 1))
        assert fails(check_distribution, sample(name, 4, 3), spectra.Gaussian())

    @pytest.mark.parametrize("name", ["orthogonal", "pairwise"])
    def test_a_qr_factor_without_the_sign_fix(self, name, monkeypatch):
        monkeypatch.setattr(torch, "where", lambda condition, a, b: torch.ones(condition.shape))
        assert fails(check_distribution, sample(name, 3, 3), spectra.Gaussian())

    @pytest.mark.parametrize("engine", ["Halton", "Sobol"])
    def test_points_that_are_not_scrambled(self, engine, monkeypatch):
        original = getattr(low_discrepancy.qmc, engine)
        monkeypatch.setattr(
            low_discrepancy.qmc, engine, lambda d, **options: original(d, **{**options, "scramble": False})
        )
        assert fails(check_distribution, sample(engine.lower(), 4, 3), spectra.Gaussian())

    def test_simplex_blocks_that_are_not_rotated(self, monkeypatch):
        monkeypatch.setattr(simplex, "rotated", lambda blocks, generator: blocks.reshape(-1, blocks.shape[2]))
        for name in ("simplex", "simplex-plus"):
            assert fails(check_distribution, sample(name, 4, 3), spectra.Gaussian())

    def test_planted_unshuffled_strata_and_non_normal_copulas(self, monkeypatch):
        monkeypatch.setattr(torch, "randperm", lambda m, generator: torch.arange(m))
        assert fails(check_distribution, sample("stratified", 4, 3), spectra.Gaussian())
        monkeypatch.undo()
        monkeypatch.setattr(norms.special, "ndtr", lambda z: 0.5 + 0.3 * np.tanh(z))
        assert fails(check_distribution, sample("copula", 4, 3), spectra.Gaussian())

    def test_rows_that_are_not_shuffled(self, monkeypatch):
        class Sorted(couplings.IID):
            def _frequencies(self, *arguments):
                rows = super()._frequencies(*arguments)
                return rows[rows.norm(dim=1).argsort()]

        monkeypatch.setattr(torch, "randperm", lambda m, generator: torch.arange(m))
        assert fails(check_distribution, sample(Sorted(), 4, 3), spectra.Gaussian())

    @pytest.mark.slow
    def test_pairs_of_unequal_frequencies(self, monkeypatch):
        monkeypatch.setattr(
            couplings.Frequencies,
            "paired",
            lambda rows, weights: couplings.Frequencies(torch.cat([rows, -0.8 * rows]), weights.repeat(2), True),
        )
        for name in (*ANTITHETIC, "energy-antithetic"):
            assert fails(check_distribution, sample(name, 6, 3), spectra.Gaussian())

    def test_norms_coupled_by_halves_instead_of_quantiles(self):
        class Halved(couplings.Pairwise):
            def _frequencies(self, m, d, spectrum, generator):
                rows = super()._frequencies(m, d, spectrum, generator)
                rows[1::2] *= (4 - rows[0::2].norm(dim=1)[: len(rows[1::2])] / rows[1::2].norm(dim=1))[:, None] / 3
                return rows

        assert fails(check_distribution, sample(Halved(), 4, 2), spectra.Gaussian())


@pytest.mark.parametrize("name", ["orthogonal", "pairwise"])
@pytest.mark.parametrize(("m", "d"), [(7, 3), (3, 8), (4, 1)])
def test_blocks_are_orthogonal(name, m, d, monkeypatch):
    monkeypatch.setattr(torch, "randperm", lambda m, generator: torch.arange(m))
    omega = sample(name, m, d, repeats=3)
    for block in range(0, m, d):
        rows = omega[:, block : block + d]
        gram = rows @ rows.transpose(0, 2, 1)
        off_diagonal = gram * (1 - np.eye(gram.shape[1]))
        assert abs(off_diagonal).max() < 1e-12


def test_pairwise_norms_are_negatively_monotone(monkeypatch):
    monkeypatch.setattr(torch, "randperm", lambda m, generator: torch.arange(m))
    u = stats.chi(5).cdf(np.linalg.norm(sample("pairwise", 12, 5, repeats=20), axis=2))
    for first in (0, 2, 5, 7, 10):
        np.testing.assert_allclose(u[:, first] + u[:, first + 1], 1, atol=1e-12)
    assert abs(u[:, 4] + u[:, 5] - 1).min() > 1e-6  # the fifth of an odd block is on its own


def test_extreme_uniforms_have_finite_norms():
    u = torch.tensor([2.0**-53, 1 - 2.0**-53], dtype=torch.float64)
    assert torch.isfinite(spectra.Gaussian().radial_quantile(u, 8)).all()


def test_pairwise_beats_orthogonal_beats_iid():
    rng = np.random.default_rng(0)
    x = torch.as_tensor(rng.standard_normal((30, 8)) / np.sqrt(8))
    check_order([couplings.IID(), couplings.Orthogonal(), couplings.Pairwise()], rfgp.features.Fourier, x, 8, 400, 6)


def test_a_draw_repeats_with_its_generator(name):
    one, two = (couplings.by_name(name).sample(5, 3, generator=random.generator(4)).dense() for _ in range(2))
    assert torch.equal(one, two)
    assert one.dtype == torch.float64


def test_frequencies_follow_dtype_and_have_weights(name):
    omega = couplings.by_name(name).sample(6, 3, generator=random.generator(0))
    assert omega.shape == (6, 3)
    if name not in WEIGHTED:
        assert omega.weights.tolist() == [1.0] * 6
    x = torch.randn(4, 3, generator=random.generator(1))
    assert omega.project(x).dtype == torch.float32
    torch.testing.assert_close(omega.project(x.double()), x.double() @ omega.dense().T)
    with pytest.raises(rfgp.InvalidArgumentError, match="must have 3 columns"):
        omega.project(x[:, :2])


@pytest.mark.parametrize(("m", "d"), [(0, 3), (2.0, 3), (True, 3), (4, 0), (4, "3")])
def test_counts_must_be_positive_integers(name, m, d):
    with pytest.raises(rfgp.InvalidArgumentError, match="must be a positive integer"):
        couplings.by_name(name).sample(m, d, generator=random.generator(0))


def test_unknown_names_are_refused():
    with pytest.raises(rfgp.InvalidArgumentError, match=r"one of energy, iid.* got 'sorf'"):
        couplings.by_name("sorf")
    with pytest.raises(rfgp.InvalidArgumentError, match="Coupling 'iid'"):
        couplings.by_name("iid", blocks=2)
    with pytest.raises(rfgp.InvalidArgumentError, match="matrix"):
        couplings.Frequencies(torch.zeros(3))
    for odd in (None, [[1.0, 2.0]], np.ones((2, 2)), 1j * torch.ones(2, 2)):
        with pytest.raises(rfgp.InvalidArgumentError, match=r"a real tensor \(m, d\)"):
            couplings.as_frequencies(odd)
    for odd in ([1.0, 2.0], np.ones(2), 1j * torch.ones(2)):
        with pytest.raises(rfgp.InvalidArgumentError, match=r"weights a real tensor \(m,\)"):
            couplings.Frequencies(torch.ones(2, 2), odd)
    with pytest.raises(rfgp.InvalidArgumentError, match="weights must have shape"):
        couplings.Frequencies(torch.zeros(3, 2), torch.ones(4))
    for weights in ([1.0, -0.1], [1.0, float("nan")], [float("inf"), 1.0]):
        with pytest.raises(rfgp.InvalidArgumentError, match="finite and nonnegative"):
            couplings.Frequencies(torch.zeros(2, 2), torch.tensor(weights))


class TestSharedNorms:
    @pytest.mark.parametrize("correlation", [0.6, 1.0])
    def test_the_distribution_with_histogram_and_correlation(self, correlation):
        coupling = couplings.SharedNorms(correlation, proposal_histogram=(1.0, 2.0, 0.5), proposal_scale=0.9)
        omega, weights = draws(coupling, 6, 3)
        check_distribution(omega, spectra.Gaussian(), weights)

    def test_norms_are_equal_in_a_block_and_correlated_across_blocks(self, monkeypatch):
        monkeypatch.setattr(torch, "randperm", lambda m, generator: torch.arange(m))
        norms = np.linalg.norm(draws(couplings.SharedNorms(0.7), 5, 3)[0], axis=2)
        np.testing.assert_allclose(norms[:, :3], norms[:, :1].repeat(3, 1))
        np.testing.assert_allclose(norms[:, 3], norms[:, 4])
        normal = stats.norm.ppf(stats.chi(3).cdf(norms[:, [0, 3]]))
        assert_mean(normal[:, 0] * normal[:, 1], 0.7)
        whole = np.linalg.norm(draws(couplings.SharedNorms(1.0), 5, 3)[0], axis=2)
        np.testing.assert_allclose(whole, whole[:, :1].repeat(5, 1))

    @pytest.mark.parametrize(
        "options", [{"correlation": 1.1}, {"proposal_scale": 0.0}, {"proposal_histogram": [1.0, -1.0]}]
    )
    def test_bad_options(self, options):
        with pytest.raises(rfgp.InvalidArgumentError):
            couplings.SharedNorms(**options)


@pytest.mark.parametrize("name", couplings.names())
def test_pairs_are_biased_where_their_base_is(name):
    base = couplings.by_name(name)
    assert couplings.Antithetic(base).is_biased is base.is_biased
