import itertools

import numpy as np
import pytest
import torch
from checks import assert_mean, fails
from frequency_draws import check_distribution, draws, sample
from scipy import linalg, stats

import rfgp
from rfgp import couplings, features, random, special, spectra
from rfgp.couplings import hadamard, structured
from rfgp.couplings.simplex import simplex

GAUSSIAN = spectra.Gaussian()
TRANSFORMED = [*(couplings.Structured(k) for k in (1, 2, 3)), couplings.FastOrthogonal(), couplings.FastSimplex()]


def dense_twin(omega):
    """The matrix by scipy's Hadamard matrix and plain products."""
    blocks, _, size = omega.signs.shape
    h = linalg.hadamard(size) / np.sqrt(size)
    rows = []
    for block in range(blocks):
        w = np.eye(size)
        for flip in omega.signs[block].numpy():
            w = h @ np.diag(flip.astype(float)) @ w
        rows.append(simplex(size).numpy() @ w if omega.simplex else w)
    return omega.lengths.numpy()[:, None] * np.concatenate(rows)[: len(omega.lengths), : omega.num_dims]


@pytest.mark.parametrize("coupling", TRANSFORMED, ids=repr)
@pytest.mark.parametrize(("m", "d"), [(8, 8), (3, 8), (21, 8), (10, 5), (5, 2), (70, 33)])
class TestProjection:
    def test_it_equals_the_dense_twin(self, coupling, m, d):
        omega = coupling.sample(m, d, generator=random.generator(0))
        twin = torch.as_tensor(dense_twin(omega))
        assert omega.shape == (m, d)
        torch.testing.assert_close(omega.dense(), twin, rtol=0, atol=1e-12)
        x = torch.randn(2, 7, d, generator=random.generator(1), dtype=torch.float64)
        torch.testing.assert_close(omega.project(x), x @ twin.T, rtol=0, atol=1e-11)
        torch.testing.assert_close(omega.project(x[0, 0]), x[0, 0] @ twin.T, rtol=0, atol=1e-11)
        torch.testing.assert_close(omega.project(x.float()), (x @ twin.T).float(), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(omega.adjoint(x[0] @ twin.T), x[0] @ twin.T @ twin, rtol=0, atol=1e-9)

    @pytest.mark.thinned(7, slow=5)
    def test_derivatives_of_its_features(self, coupling, m, d):
        phi = features.Fourier(coupling.sample(m, d, generator=random.generator(0)))
        rows = 3 if d < 10 else 1
        x = torch.randn(rows, d, generator=random.generator(1), dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(phi, (x,))
        assert torch.autograd.gradgradcheck(lambda v: phi(v)[..., : m + 1 : m], (x,))


def test_blocks_of_rows_change_nothing(monkeypatch):
    omega = couplings.Structured().sample(64, 64, generator=random.generator(0))
    x = torch.randn(40, 64, generator=random.generator(1), dtype=torch.float64)
    whole = omega.project(x)
    monkeypatch.setattr(hadamard, "ENTRIES", 64 * 7)
    torch.testing.assert_close(omega.project(x), whole, rtol=0, atol=1e-13)


def test_no_matrix_is_formed(monkeypatch):
    """m = 2^14 in 2^14 dimensions would take 2 GiB."""
    omega = couplings.Structured().sample(2**14, 2**14, generator=random.generator(0))
    assert omega.signs.numel() == 3 * 2**14
    assert omega.signs.dtype == torch.int8
    monkeypatch.setattr(couplings.StructuredFrequencies, "dense", lambda self: pytest.fail("formed the matrix"))
    assert features.Fourier(omega)(torch.zeros(1, 2**14))[0, 0] == pytest.approx(2**-7)
    x = torch.randn(3, 2**14, generator=random.generator(1))
    torch.testing.assert_close(omega.project(x).norm(dim=1), x.norm(dim=1) * 2**7, rtol=1e-4, atol=0)


V = np.random.default_rng(1).standard_normal((5, 8))
V *= (np.array([0.3, 0.7, 1, 1.5, 2]) / np.linalg.norm(V, axis=1))[:, None]
Z = np.linalg.norm(V, axis=1)


def check_bias(name, bound, m=8, d=8, v=V):
    """The mean of the estimates is nearer to the kernel than the bound, but for 6 standard errors."""
    estimates = np.cos(sample(name, m, d) @ v[:, :d].T).mean(1)
    error = estimates.std(0, ddof=1) / np.sqrt(len(estimates))
    z = np.linalg.norm(v[:, :d], axis=1)
    assert (np.abs(estimates.mean(0) - np.exp(-(z**2) / 2)) <= bound(z) + 6 * error).all()


class TestBias:
    @pytest.mark.parametrize(
        ("name", "limit"), [("structured", 0.03), ("fast-orthogonal", 0.01), ("fast-simplex", 0.03)]
    )
    def test_it_is_far_below_the_stated_bound(self, name, limit):
        """6 z / sqrt(D) is above 1 at most distances; in 8 dimensions the bias is below 0.03 z for any m."""
        for m in (4, 8, 13):
            check_bias(name, lambda z: limit * z, m)
        assert limit < 6 / np.sqrt(8)

    @pytest.mark.thinned(5, slow=3)
    @pytest.mark.parametrize("name", ["structured", "fast-orthogonal", "fast-simplex"])
    @pytest.mark.parametrize(("m", "d"), [(1, 1), (3, 1), (1, 2), (2, 2), (5, 2), (2, 3), (3, 3), (7, 3)])
    def test_it_is_within_the_bound_in_few_dimensions(self, name, m, d):
        if name == "fast-simplex" and d == 1:
            pytest.skip("there is no simplex in one dimension")
        size = hadamard.next_power_of_two(d)
        check_bias(name, lambda z: np.minimum(0.2 * z, 6 * z / np.sqrt(size)), m, d)

    @pytest.mark.parametrize("name", ["structured", "fast-orthogonal", "fast-simplex"])
    def test_padding_leaves_the_mean_square_of_the_norms(self, name):
        """d of the D columns of a row whose squared length is D on average."""
        for m, d in ((1, 3), (9, 5)):
            assert_mean((sample(name, m, d) ** 2).sum(2), np.full(m, float(d)))

    def test_planted_norms(self, monkeypatch):
        """Norms of another dimension are found."""
        original = spectra.Gaussian.radial_quantile
        monkeypatch.setattr(spectra.Gaussian, "radial_quantile", lambda self, u, d: original(self, u, d + 2))
        assert fails(check_bias, "fast-simplex", lambda z: 0.03 * z)
        estimates = np.cos(1.1 * sample("constant-norm", 5, 8) @ V.T).mean(1)
        assert fails(assert_mean, estimates, special.sphere_cosine(np.sqrt(8) * Z, 8))

    @pytest.mark.parametrize("size", [2, 4])
    def test_the_fourth_moment_of_its_rows_over_all_signs(self, size):
        """The docstring's formula, which makes chi norms take away the bias -z^4 / (4 D) that norms sqrt(D) have."""
        signs = np.array(list(itertools.product((-1, 1), repeat=size)))
        h, z = linalg.hadamard(size) / np.sqrt(size), np.array([0.3, -1.0, 0.5, 0.7])[:size]
        rows = z
        for _ in range(3):
            rows = (rows[..., None, :] * signs) @ h.T
        fourth, square = (z**4).sum(), (z**2).sum()
        expected = 3 * square**2 * (1 - 2 / size + 4 / size**2) - 8 * fourth / size**2
        assert (size**2 * rows**4).mean() == pytest.approx(expected, rel=1e-12)

    def test_chi_norms_are_less_biased_than_constant_ones(self):
        """At z = 2 and D = 16 the bias -z^4 / (4 D) exp(-z^2 / 2) of SORF is .034, that with chi norms .001."""
        v = np.random.default_rng(3).standard_normal((6, 16))
        v *= 2 / np.linalg.norm(v, axis=1, keepdims=True)
        bias = {
            name: np.cos(sample(name, 16, 16) @ v.T).mean() - np.exp(-2) for name in ("structured", "fast-orthogonal")
        }
        assert bias["structured"] == pytest.approx(-(2**4) / 64 * np.exp(-2), abs=0.01)
        assert abs(bias["fast-orthogonal"]) < 0.006

    def test_one_product_is_worse_than_three(self):
        """Along an axis H D x is +-1 / sqrt(D): the estimate is cos(z) whatever the signs."""
        x = torch.zeros(2, 8, dtype=torch.float64)
        x[1, 0] = 2.0
        phi = features.Fourier(couplings.Structured(1).sample(8, 8, generator=random.generator(0)))(x)
        assert float(phi[0] @ phi[1]) == pytest.approx(np.cos(2.0))
        three = np.cos(2 * sample("structured", 8, 8)[:, :, 0]).mean()
        assert abs(three - np.exp(-2)) < 0.4 * abs(np.cos(2.0) - np.exp(-2))
        with pytest.raises(rfgp.InvalidArgumentError, match="1, 2 or 3"):
            couplings.Structured(4)

    def test_constant_norms_estimate_another_kernel(self):
        estimates = np.cos(sample("constant-norm", 5, 8) @ V.T).mean(1)
        assert_mean(estimates, special.sphere_cosine(np.sqrt(8) * Z, 8))

    def test_the_bound_holds_where_the_docstring_says_so(self):
        z = np.linspace(0, 8, 400)
        for d in (2, 3, 8, 64, 784):
            bias = special.sphere_cosine(np.sqrt(d) * z, d) - np.exp(-(z**2) / 2)
            assert np.abs(bias).max() < 0.9 / d

    def test_planted_scale(self, monkeypatch):
        monkeypatch.setattr(structured, "next_power_of_two", lambda d: 16)  # padded, but all norms sqrt(16)
        fine = couplings.Structured().sample(8, 8, generator=random.generator(0))
        assert fine.signs.shape[2] == 16
        monkeypatch.undo()
        monkeypatch.setattr(structured.math, "sqrt", lambda value: 2.0 * value**0.5)
        assert fails(check_bias, "structured", lambda z: 0.03 * z)


class TestRivals:
    def test_near_orthogonal_directions_are_far_from_each_other(self):
        def closest(name):
            omega = couplings.by_name(name).sample(40, 4, generator=random.generator(0)).dense()
            unit = omega / omega.norm(dim=1, keepdim=True)
            cosines = unit @ unit.T - 2 * torch.eye(40)
            return float(cosines.max())

        assert closest("near-orthogonal") < closest("orthogonal") - 0.1
        for d in (2, 3, 5):  # d + 1 of them are the corners of a simplex
            omega = couplings.by_name("near-orthogonal").sample(d + 1, d, seed=0).dense()
            unit = omega / omega.norm(dim=1, keepdim=True)
            cosines = (unit @ unit.T)[~torch.eye(d + 1, dtype=torch.bool)].numpy()
            np.testing.assert_allclose(cosines, -1 / d, atol=1e-4)

    def test_quadrature_integrates_quadratic_forms_exactly(self):
        """sum_j d / rho^2 omega_j omega_j^T over the d + 1 nodes of a rule is (d + 1) I."""
        for d in (1, 2, 5):
            omega = couplings.SphericalRadial().sample(d + 1, d, generator=random.generator(0))
            form = torch.einsum("i,ij,ik->jk", omega.weights, omega.dense(), omega.dense()) / (d + 1)
            torch.testing.assert_close(form, torch.eye(d, dtype=torch.float64), rtol=0, atol=1e-12)

    def test_leverage_follows_its_definition(self):
        x = torch.as_tensor(np.random.default_rng(0).standard_normal((40, 2)))
        heights = couplings.leverage_histogram(x, 0.1, num_bins=4, num_samples=400)
        kernel = GAUSSIAN.kernel_between(x, x) + 0.1 * torch.eye(40)
        omega = couplings.IID().sample(4000, 2, generator=random.generator(0)).dense()
        phi = torch.exp(1j * (x @ omega.T))
        leverage = (phi.conj() * torch.linalg.solve(kernel.to(phi.dtype), phi)).sum(0).real
        u = 1 - torch.exp(-(omega**2).sum(1) / 2)
        means = [float(leverage[(u * 4).long() == k].mean()) for k in range(4)]
        np.testing.assert_allclose(heights, means, rtol=0.1)

    def test_leverage_weighted_frequencies_have_the_distribution(self):
        omega, weights = draws(couplings.Leverage([1.0, 3.0, 0.5]), 5, 3)
        check_distribution(omega, GAUSSIAN, weights)
        assert fails(check_distribution, omega, GAUSSIAN)

    @pytest.mark.parametrize(
        ("x", "noise", "words"),
        [(np.ones(3), 0.1, "matrix"), (np.ones((3, 1)), 0.0, "noise"), ([[np.nan]], 1, "finite")],
    )
    def test_bad_leverage(self, x, noise, words):
        with pytest.raises(rfgp.InvalidArgumentError, match=words):
            couplings.leverage_histogram(np.asarray(x), noise)

    def test_the_node_at_the_origin_takes_the_weight_that_is_left(self):
        """The rule's own form: the mean of w_i cos(omega_i . x) over the other nodes, and 1 less the mean of w_i."""
        omega = couplings.SphericalRadial(origin=True).sample(9, 3, generator=random.generator(0))
        rows, weights = omega.dense(), omega.weights
        nodes = rows[rows.norm(dim=1) > 0]
        assert len(nodes) == 8
        assert couplings.SphericalRadial(origin=True).is_biased
        draws = [couplings.SphericalRadial(origin=True).sample(9, 3, seed=seed).dense() for seed in range(40)]
        assert len({int(draw.norm(dim=1).argmin()) for draw in draws}) > 4  # it has no fixed place
        radius = nodes.norm(dim=1)
        x = torch.tensor([0.3, -1.0, 0.5], dtype=torch.float64)
        expected = (3 / radius**2 * (nodes @ x).cos()).mean() + 1 - (3 / radius**2).mean()
        torch.testing.assert_close((weights * (rows @ x).cos()).mean(), expected)
        assert float(weights.mean()) == pytest.approx(1)

    def test_planted_quadrature_without_its_weights(self):
        assert fails(check_distribution, draws("spherical-radial", 5, 3)[0], GAUSSIAN)

    def test_planted_near_orthogonal_without_rotation(self, monkeypatch):
        monkeypatch.setattr(
            "rfgp.couplings.near_orthogonal.haar_rows", lambda b, k, d, generator: torch.eye(d, dtype=torch.float64)
        )
        assert fails(check_distribution, draws("near-orthogonal", 5, 3)[0], GAUSSIAN)


class TestRandomPhase:
    X = torch.tensor([[0.3, -0.2], [-0.5, 0.9]], dtype=torch.float64)

    def estimates(self, kind=features.RandomPhase, repeats=1500):
        generator = random.generator(0)
        maps = (
            kind(couplings.Pairwise().sample(3, 2, generator=generator), generator=generator) for _ in range(repeats)
        )
        return np.array([(phi(self.X) @ phi(self.X).T).numpy() for phi in maps])

    def test_unbiased_also_on_the_diagonal(self):
        assert_mean(self.estimates(), GAUSSIAN.kernel_between(self.X, self.X).numpy())

    def test_planted_phases_that_are_zero(self):
        class Planted(features.RandomPhase):
            def __init__(self, frequencies, *, generator):
                super().__init__(frequencies, generator=generator)
                self.phases = 0 * self.phases

        def check(samples):
            assert_mean(samples, GAUSSIAN.kernel_between(self.X, self.X).numpy())

        assert fails(check, self.estimates(Planted))

    def test_layout(self):
        omega = couplings.IID().sample(4, 2, generator=random.generator(0))
        phi = features.RandomPhase(omega, generator=random.generator(1))
        expected = (self.X @ omega.dense().T + phi.phases).cos() * (2 / 4) ** 0.5
        torch.testing.assert_close(phi(self.X), expected)
        assert phi.num_features == 4
        many = features.RandomPhase(torch.zeros(1000, 2), generator=random.generator(1)).phases.numpy()
        assert stats.kstest(many / (2 * np.pi), "uniform").pvalue > 1e-9
        assert phi(self.X.float()).dtype == torch.float32


def test_models_with_structured_frequencies_are_saved_exactly(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((50, 5)), rng.standard_normal(50)
    for name in ("structured", "fast-orthogonal", "fast-simplex"):
        gp = rfgp.SparseSpectrumGP(num_frequencies=20, coupling=name, seed=1).condition(X, y)
        gp.save(tmp_path / "m.safetensors")
        again = rfgp.load(tmp_path / "m.safetensors")
        np.testing.assert_array_equal(gp.predict(X).mean, again.predict(X).mean)
        assert isinstance(again.feature_map.frequencies, couplings.StructuredFrequencies)
