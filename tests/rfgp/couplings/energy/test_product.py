"""Frequencies of products of kernels: unbiased, better than factors paired at random, and the same for a seed."""

import numpy as np
import pytest
import torch
from checks import assert_mean, fails

import rfgp
from rfgp import couplings, random, spectra
from rfgp import kernels as k
from rfgp.couplings import Energy, coupling
from rfgp.couplings.energy import product
from rfgp.special import sphere_cosine

SMOOTH, ROUGH, MIDDLE = spectra.Gaussian(), spectra.Matern(0.5), spectra.Matern(1.5)
TWO, WIDE, LINES = [(SMOOTH, 2), (MIDDLE, 1)], [(SMOOTH, 3), (ROUGH, 2)], [(MIDDLE, 1), (ROUGH, 1)]
THREE, MIXED = [(MIDDLE, 1), (ROUGH, 2), (SMOOTH, 1)], [(MIDDLE, 1), (SMOOTH, 2), (ROUGH, 1), (SMOOTH, 1)]
CASES = {"wide": WIDE, "lines": LINES, "mixed": MIXED}


class Paired(coupling.WeightedDraws, couplings.Coupling):
    """Ensembles of the energy coupling, paired at random."""

    def __init__(self, base=None):
        self.base = base or Energy()

    def _draw(self, m, d, spectrum, generator):
        return self.base.sample(m, d, spectrum=spectrum, generator=generator)


def positions(factors, count, seed=1, reach=1.5):
    total = sum(d for _, d in factors)
    return np.random.default_rng(seed).uniform(-reach, reach, (count, total))


def exact(factors, x):
    ends = np.cumsum([d for _, d in factors])
    blocks = np.split(x, ends[:-1], axis=1)
    each = [
        s.kernel(torch.as_tensor(np.linalg.norm(b, axis=1))).numpy() for (s, _), b in zip(factors, blocks, strict=True)
    ]
    return np.prod(each, axis=0)


def draws(made, factors, m, repeats=1000):
    generator = random.generator(0, 7)
    drawn = [made.sample_product(m, factors, generator=generator) for _ in range(repeats)]
    return torch.stack([f.dense() for f in drawn]).numpy(), torch.stack([f.weights for f in drawn]).numpy()


def check_unbiased(made, factors, m):
    """The first row, half of the rows and all of them estimate the product; sines have mean 0."""
    x = positions(factors, 5)
    omega, weights = draws(made, factors, m)
    angles, w = omega @ x.T, weights[:, :, None]
    for part in (slice(0, 1), slice(0, (m + 1) // 2), slice(None)):
        assert_mean((w * np.cos(angles))[:, part].mean(1), exact(factors, x))
        assert_mean((w * np.sin(angles))[:, part].mean(1), np.zeros(5))


class TestUnbiased:
    @pytest.mark.parametrize(("factors", "m"), [(WIDE, 3), (LINES, 1), (LINES, 5), (MIXED, 2)])
    def test_rows_have_the_distribution_of_the_product(self, factors, m):
        check_unbiased(Energy(), factors, m)

    @pytest.mark.parametrize("factors", [TWO, LINES], ids=["two", "lines"])
    def test_weights_make_up_for_broader_norms(self, factors):
        check_unbiased(Energy(weighted=True), factors, 3)

    @pytest.mark.parametrize("name", ["orthogonal", "sobol"])
    def test_other_couplings_are_paired_at_random(self, name):
        check_unbiased(couplings.by_name(name), MIXED, 3)

    def test_norms_paired_in_order_are_found(self, monkeypatch):
        monkeypatch.setattr(product, "paired_strata", lambda m, count, generator: torch.arange(m).repeat(count, 1))
        assert fails(check_unbiased, Energy(), WIDE, 2)

    def test_strata_of_each_row_are_independent_and_uniform(self):
        m, generator = 5, random.generator(0, 3)
        strata = np.stack([product.paired_strata(m, 2, generator).numpy() for _ in range(5000)])
        assert (np.sort(strata, axis=2) == np.arange(m)).all()
        for row in (0, m - 1):
            cells = strata[:, 0, row] * m + strata[:, 1, row]
            assert_mean((cells[:, None] == np.arange(m * m)).astype(float), np.full(m * m, 1 / m**2))

    @pytest.mark.parametrize("m", [7, 600])
    def test_norms_of_each_factor_are_stratified(self, m):
        omega = Energy().sample_product(m, WIDE, seed=0).dense()
        edges = torch.arange(1, m, dtype=torch.float64) / m
        for (measure, d), block in zip(WIDE, omega.split([3, 2], dim=1), strict=True):
            norms, bounds = block.norm(dim=1).sort().values, measure.radial_quantile(edges, d)
            assert (norms[:-1] <= bounds * (1 + 1e-9)).all()
            assert (norms[1:] >= bounds * (1 - 1e-9)).all()


def squared_errors(made, factors, m, repeats):
    """Return the mean squared error over positions of each draw."""
    x = positions(factors, 300, reach=2.0)
    omega, weights = draws(made, factors, m, repeats)
    estimates = (weights[:, :, None] * np.cos(omega @ x.T)).mean(1)
    return ((estimates - exact(factors, x)) ** 2).mean(1)


class TestErrors:
    @pytest.mark.parametrize(
        ("factors", "most"),
        [(TWO, 0.85), (WIDE, 0.85), (LINES, 0.85), (THREE, 0.95)],
        ids=["two", "wide", "lines", "three"],
    )
    def test_error_is_below_that_of_random_pairs(self, factors, most):
        """The root mean square is at most `most` times as large, by six standard errors: a false alarm of 1e-9."""
        joint, paired = (squared_errors(made, factors, 64, 100) for made in (Energy(), Paired()))
        difference = most**2 * paired.mean() - joint.mean()
        assert difference > 6 * np.hypot(most**2 * paired.std(), joint.std()) / 100**0.5

    def test_ensembles_of_one_sign_are_found(self, monkeypatch):
        """Energies of one column have one sign in a draw, so without random signs the error does not fall with m."""
        few, many = (squared_errors(Paired(), LINES, m, 20).mean() for m in (32, 512))
        monkeypatch.setattr(coupling, "random_signs", lambda m, generator: torch.ones(m, 1, dtype=torch.float64))
        stays = squared_errors(Paired(), LINES, 512, 20).mean()
        assert many < few / 8
        assert stays > few

    def test_model_of_two_columns_is_near_the_exact_one(self):
        rng = np.random.default_rng(0)
        X = rng.uniform(-1.5, 1.5, (200, 2))
        kernel = k.Matern(0, nu=1.5, lengthscale=0.7) * k.Matern(1, nu=1.5, lengthscale=0.7)
        start = {"noise": 0.1}
        process = rfgp.GP(kernel, approximation=rfgp.Exact(), standardize=False, start=start)
        process = process.condition(X, np.sin(2 * X).sum(1) + 0.3 * rng.standard_normal(200))
        new = rng.uniform(-1.5, 1.5, (50, 2))
        features = process.with_approximation(rfgp.RandomFeatures(512, seed=0))
        assert rfgp.metrics.kl_divergence(process.predict(new), features.predict(new)) < 3


def moment(blocks, weights, spectra_, dims):
    """The second moment over rotations, pair by pair."""
    distances = product.distance_tuples(len(dims))
    total = 0.0
    for weight, z in zip(product.distance_weights(spectra_, distances), distances, strict=True):
        for sign in (1, -1):
            pairs = [
                sphere_cosine(np.linalg.norm(b[:, None] + sign * b[None], axis=2) * one, d)
                for b, d, one in zip(blocks, dims, z, strict=True)
            ]
            total += weight * weights @ np.prod(pairs, axis=0) @ weights / 2
    return total


class TestPotential:
    @pytest.mark.parametrize("factors", [TWO, WIDE, THREE], ids=["two", "wide", "three"])
    def test_gradient_is_that_of_the_dense_moment(self, factors):
        rng, measures, dims = np.random.default_rng(0), tuple(s for s, _ in factors), tuple(d for _, d in factors)
        blocks, weights = [rng.standard_normal((6, d)) for d in dims], rng.uniform(0.5, 2, 6)
        found = product.ProductPotential.of(measures, dims, (12.0,) * len(dims)).gradient(blocks, weights)
        for a, block in enumerate(blocks):
            step, numeric = 1e-4, np.empty_like(block)
            for place in np.ndindex(block.shape):
                values = []
                for sign in (1, -1):
                    moved = [b.copy() for b in blocks]
                    moved[a][place] += sign * step
                    values.append(moment(moved, weights, measures, dims))
                numeric[place] = (values[0] - values[1]) / (2 * step)
            across, expected = (  # along a frequency there is also its own norm's part, which directions cannot change
                gradient - (gradient * block).sum(1, keepdims=True) * block / (block**2).sum(1, keepdims=True)
                for gradient in (2 * found[a], numeric)
            )
            np.testing.assert_allclose(across, expected, atol=0.01 * np.abs(numeric).max())

    @pytest.mark.parametrize("num_factors", [2, 3, 4, 7])
    def test_distances_cover_each_factor_alone_and_pairs(self, num_factors):
        distances = product.distance_tuples(num_factors)
        counts = np.count_nonzero(distances, axis=1)
        assert set(counts) >= {1, 2}
        assert len(distances) < 30
        assert (distances.max(0) > 1).all()

    def test_signs_lower_the_moment_and_keep_norms(self):
        rng, measures = np.random.default_rng(0), (MIDDLE, ROUGH, MIDDLE)
        omega, weights = rng.standard_normal((20, 3)), rng.uniform(0.5, 2, 20)
        found = product.signed(omega, weights, measures)
        before, after = (moment(list(o.T[:, :, None]), weights, measures, (1, 1, 1)) for o in (omega, found))
        np.testing.assert_array_equal(np.abs(found), np.abs(omega))
        assert after < before

    def test_large_ensembles_are_solved_in_blocks(self):
        assert product.plan(1, 2, full=False)[1] == 0
        assert product.plan(512, 2, full=False) == (512, product.STEPS)
        assert product.plan(4096, 2, full=False) == (product.BLOCK_SIZE, product.STEPS)
        assert product.plan(10**6, 2, full=False)[1] == 0
        assert product.plan(4096, 2, full=True) == (4096, product.FULL_STEPS)


class TestDraws:
    @pytest.mark.parametrize("factors", CASES.values(), ids=CASES)
    def test_a_seed_gives_one_draw(self, factors):
        first, again, other = (Energy().sample_product(33, factors, seed=s) for s in (0, 0, 1))
        assert torch.equal(first.dense(), again.dense())
        assert torch.equal(first.weights, again.weights)
        assert not torch.equal(first.dense(), other.dense())

    def test_gaussian_factors_are_one_ensemble(self):
        joint = Energy().sample_product(16, [(SMOOTH, 1), (SMOOTH, 2)], seed=0)
        assert torch.equal(joint.dense(), Energy().sample(16, 3, seed=0).dense())

    def test_given_distances_are_of_one_factor(self):
        made = Energy(distances=[[1.0, 1.0]])
        found, expected = (each.sample_product(16, TWO, seed=0) for each in (made, Paired(made)))
        assert torch.equal(found.dense(), expected.dense())

    def test_full_effort_takes_more_steps(self):
        quick, full = (Energy(effort=e).sample_product(16, TWO, seed=0).dense() for e in ("quick", "full"))
        assert not torch.equal(quick, full)

    @pytest.mark.parametrize(
        ("made", "factors", "match"),
        [
            (Energy(), [], "factors must be pairs"),
            (Energy("laplace"), TWO, "Gaussian"),
            (Energy(), [(SMOOTH, 2), (MIDDLE, 0)], "num_dims"),
            (Energy(), [(SMOOTH, 2), (spectra.ProductCauchy(), 2)], "isotropic"),
        ],
    )
    def test_refusals_name_the_reason(self, made, factors, match):
        with pytest.raises(rfgp.InvalidArgumentError, match=match):
            made.sample_product(8, factors)
