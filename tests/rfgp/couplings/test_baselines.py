"""Conformities and their minimum, and properties of the baselines of the orthogonal paper."""

import numpy as np
import pytest
import torch
from checks import assert_mean, fails
from frequency_draws import check_distribution, sample
from scipy import optimize, stats

import rfgp
from rfgp import couplings, random, spectra, theory
from rfgp.couplings import fast, low_discrepancy
from rfgp.couplings.simplex import norm_adapted_simplices, rotated


def norms_of(d, seed=0):
    return np.sqrt(np.random.default_rng(seed).chisquare(d, d))


def plus(norms):
    return norm_adapted_simplices(torch.as_tensor(norms)[None], 20)[0].numpy()


class TestConformity:
    def test_it_is_the_mean_product_of_two_features_over_rotations(self):
        vectors, v = np.random.default_rng(0).standard_normal((3, 4)), 0.8
        generator, x = random.generator(0), torch.tensor([v, 0, 0, 0], dtype=torch.float64)
        rotations = rotated(torch.eye(4, dtype=torch.float64).expand(2000, 4, 4), generator)
        terms = np.exp((torch.as_tensor(vectors) @ rotations.reshape(2000, 4, 4) @ x).numpy())
        pairs = (terms.sum(1) ** 2 - (terms**2).sum(1)) / 6
        assert_mean(pairs, couplings.conformity(vectors, v)[0])

    def test_its_mean_over_draws_is_the_cross_moment(self):
        orthogonal = theory.orthogonal_moment(1.0, 5, features="laplace")
        for name, moment in (("orthogonal", orthogonal), ("simplex", theory.simplex_moment(1.0, 5)), ("iid", np.e)):
            assert_mean([couplings.conformity(rows, 1.0)[0] for rows in sample(name, 5, 5)], moment)

    @pytest.mark.parametrize("vectors", [np.ones(3), np.ones((1, 3)), "ab"])
    def test_bad_vectors(self, vectors):
        with pytest.raises(rfgp.InvalidArgumentError):
            couplings.conformity(vectors, 1.0)


class TestOptimum:
    @pytest.mark.parametrize(("d", "v"), [(2, 1.0), (3, 0.5), (6, 1.0), (6, 3.0), (16, 2.0)])
    def test_no_other_directions_do_better(self, d, v):
        for seed in range(3):
            norms = norms_of(d, seed)
            found = couplings.least_conformity(plus(norms), v)
            np.testing.assert_allclose(np.linalg.norm(found, axis=1), norms, rtol=1e-12)
            least = couplings.conformity(found, v)[0]
            assert least <= couplings.conformity(plus(norms), v)[0] + 1e-12
            other = np.random.default_rng(seed).standard_normal((d, d))
            again = couplings.least_conformity(other * (norms / np.linalg.norm(other, axis=1))[:, None], v)
            assert least <= couplings.conformity(again, v)[0] * (1 + 1e-6)

    def test_a_solver_without_gradients_finds_no_less(self):
        norms = norms_of(3, 5)

        def value(raw):
            unit = raw.reshape(3, 3)
            return couplings.conformity(norms[:, None] * unit / np.linalg.norm(unit, axis=1, keepdims=True), 2.0)[0]

        start = np.random.default_rng(0).standard_normal(9)
        other = optimize.minimize(value, start, method="Nelder-Mead", options={"maxiter": 20_000, "fatol": 1e-12})
        found = couplings.conformity(couplings.least_conformity(plus(norms), 2.0), 2.0)[0]
        assert found == pytest.approx(other.fun, rel=1e-4)
        assert found <= other.fun * (1 + 1e-6)

    def test_little_is_won_over_the_first_term_of_the_series(self):
        gains = []
        for seed in range(20):
            norms = norms_of(6, seed)
            start = plus(norms)
            first, least = (couplings.conformity(w, 1.0)[0] for w in (start, couplings.least_conformity(start, 1.0)))
            gains.append(1 - least / first)
        assert min(gains) >= 0
        assert 0.002 < np.mean(gains) < 0.02

    @pytest.mark.parametrize("distance", [0, -1.0, 6.0, float("nan")])
    def test_bad_distances(self, distance):
        with pytest.raises(rfgp.InvalidArgumentError, match="distance must be positive"):
            couplings.SimplexOptimized(distance)

    def test_there_is_no_simplex_in_one_dimension(self):
        with pytest.raises(rfgp.InvalidArgumentError, match="at least 2"):
            couplings.SimplexOptimized().sample(2, 1, seed=0)


class TestBaselines:
    def test_fastfood_is_its_product_of_five_matrices(self, monkeypatch):
        monkeypatch.setattr(torch, "randperm", lambda n, generator: torch.arange(n))
        rows = couplings.Fastfood().sample(8, 8, seed=0).dense()
        gram = rows @ rows.T / (rows.norm(dim=1)[:, None] * rows.norm(dim=1))
        h = fast.hadamard(8)
        spread = h @ gram @ h  # H S^-1 V V^T S^-1 H is the diagonal of G^2
        assert float((spread - spread.diagonal().diag()).abs().max()) < 1e-12

    def test_a_net_has_one_point_in_each_of_many_boxes(self, monkeypatch):
        """Of 16 points one in each 16th of an axis, and one in each of 4 x 4 squares of the first two."""
        monkeypatch.setattr(torch, "randperm", lambda n, generator: torch.arange(n))
        u = stats.norm.cdf(couplings.DigitalNet().sample(16, 3, seed=0).dense().numpy())
        np.testing.assert_allclose((u[:, 0] - np.arange(16) / 16 - u[0, 0]) % 1 % (1 - 1e-9), 0, atol=1e-9)
        for axis in (1, 2):
            assert sorted((u[:, axis] * 16).astype(int)) == list(range(16))
        squares = (u[:, 1] * 4).astype(int).reshape(4, 4)
        assert (np.sort(squares, axis=1) == np.arange(4)).all()

    def test_planted_fastfood_without_its_transforms(self, monkeypatch):
        monkeypatch.setattr(fast, "hadamard", lambda size: torch.eye(size, dtype=torch.float64))
        assert fails(check_distribution, sample("fastfood", 4, 4), spectra.Gaussian())

    def test_planted_nets_without_scrambling(self, monkeypatch):
        sobol = low_discrepancy.qmc.Sobol
        monkeypatch.setattr(low_discrepancy.qmc, "Sobol", lambda d, **options: sobol(d, scramble=False))
        assert fails(check_distribution, sample("digital-net", 4, 3), spectra.Gaussian())
