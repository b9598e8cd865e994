"""Estimators of the softmax kernel by their definitions, and their variances by quadrature over frequencies."""

import inspect

import numpy as np
import pytest
import torch
from checks import assert_mean
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_blobs

import rfgp
from rfgp import couplings, features, theory
from rfgp.features import softmax

KERNELS = ("softmax", "gaussian")
X = torch.tensor([[0.1, -0.2, 0.3], [0.4, 0.0, -0.1], [-0.3, 0.2, 0.1]], dtype=torch.float64)  # |x + y| <= 1
Y = torch.tensor([[0.2, 0.1, -0.3], [-0.1, 0.3, 0.2]], dtype=torch.float64)
REAL = torch.tensor([[1.0, 0.4, -0.2], [0.1, -0.9, 0.3], [0.2, 0.0, 1.2]], dtype=torch.float64)
COMPLEX = torch.complex(REAL, torch.tensor([[0.3, -0.2, 0.1], [0.5, 0.2, 0.0], [-0.1, 0.4, 0.6]], dtype=torch.float64))
MATRICES = {"real": REAL, "diagonal": REAL.diagonal(), "complex": COMPLEX, "mixed": 1j * COMPLEX.diagonal()}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def draw(m, d, seeded=None, name="iid"):
    return couplings.by_name(name).sample(m, d, generator=seeded or generator())


def exponential(matrix):
    def make(m, d, kernel, seeded, name):
        a = MATRICES[matrix]
        return softmax.Exponential(draw(m, d, seeded, name), a[:d] if a.ndim == 1 else a[:d, :d], kernel)

    return make


def basic(kind):
    return lambda m, d, kernel, seeded, name: kind(draw(m, d, seeded, name), kernel)


def angular(m, d, kernel, seeded, name):
    return softmax.angular_hybrid(12 * m, d, num_signs=2, coupling=name, kernel=kernel, generator=seeded)


def gaussian(of):
    def make(m, d, kernel, seeded, name):
        options = {"num_coefficients": 2, "scale": 1.5, "of": of, "coupling": name, "kernel": kernel}
        return softmax.gaussian_hybrid(18 * m, d, generator=seeded, **options)

    return make


def centers(scale):
    def make(m, d, kernel, seeded, name):
        return softmax.between_centers(draw(m, d, seeded, name), X[1:, :d], Y[:, :d], scale=scale, kernel=kernel)

    return make


def bipolar(m, d, kernel, seeded, name):
    other, signs, first = (draw(n, d, seeded, name) for n in (m, 3, m))
    coefficient = softmax.coefficients.Angular(signs)
    return softmax.bipolar(first, coefficient, other=other, antithetic=True, kernel=kernel)


def nested(m, d, kernel, seeded, name):
    base = angular(m, d, kernel, seeded, name)
    constant = (softmax.coefficients.Constant(-0.3), exponential("diagonal")(m, d, kernel, seeded, name))
    sums = softmax.coefficients.Gaussian(draw(2, d, seeded, name), of="sum")
    return softmax.Hybrid(base, [constant, (sums, softmax.Positive(draw(m, d, seeded, name), kernel))])


def mixture(m, d, kernel, seeded, name):
    omega, others, base = (draw(n, d, seeded, name) for n in (m, 2, m))
    return softmax.gaussian_between_centers(softmax.Trigonometric(base, kernel), omega, others, X[1:, :d], Y[:, :d])


MAKERS = {
    "Trigonometric": basic(softmax.Trigonometric),
    "Positive": basic(softmax.Positive),
    "Exponential": exponential("real"),
    "Exponential, diagonal": exponential("diagonal"),
    "Exponential, complex": exponential("complex"),
    "Exponential, mixed": exponential("mixed"),
    "bipolar": bipolar,
    "angular_hybrid": angular,
    "gaussian_hybrid": gaussian("sum"),
    "gaussian_hybrid, difference": gaussian("difference"),
    "between_centers": centers(None),
    "between_centers, mixture": centers(0.3),
    "gaussian_between_centers": mixture,
    "Hybrid": nested,
}
RANDOM = ("bipolar", "angular_hybrid", "gaussian_hybrid", "gaussian_hybrid, difference", "Hybrid")
"""Estimators whose coefficients are random."""


class TestContract:
    """Each estimator is unbiased, differentiable and of the stated shape."""

    def test_no_estimator_is_forgotten(self):
        classes = {n for n, c in vars(softmax).items() if inspect.isclass(c) and issubclass(c, softmax.FeaturePair)}
        recipes = {n for n, f in vars(softmax).items() if inspect.isfunction(f)} - {"exact", "matching_diagonal"}
        assert classes | recipes == {name.split(",")[0] for name in MAKERS} | {"FeaturePair", "clustered"}

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", MAKERS)
    def test_estimates_are_unbiased(self, kind):
        number = list(MAKERS).index(kind)
        kernel, d, name = KERNELS[number % 2], 2 + number % 2, ("orthogonal", "simplex", "iid")[number % 3]
        x, y, seeded = X[:, :d], Y[:, :d], generator(3)
        if kind in RANDOM:
            pairs = [MAKERS[kind](5, d, kernel, seeded, name) for _ in range(1000)]
            samples = torch.stack([pair(x, y) for pair in pairs])
        else:  # estimates from one frequency each, whose features lie `count` apart
            count = 20_000
            pair = MAKERS[kind](count, d, kernel, seeded, "iid")
            products = pair.left(x)[:, None] * pair.right(y)[None]
            samples = count * products.unflatten(-1, (-1, count)).sum(-2).movedim(-1, 0)
        inner, squares = (x @ y.T).numpy(), ((x**2).sum(1)[:, None] + (y**2).sum(1)).numpy()
        assert_mean(samples.numpy(), np.exp(inner if kernel == "softmax" else inner - 0.5 * squares))

    @pytest.mark.slow
    @settings(max_examples=40, deadline=None)
    @given(
        kind=st.sampled_from(sorted(MAKERS)),
        d=st.integers(1, 3),
        m=st.integers(1, 4),
        sizes=st.tuples(st.integers(0, 3), st.integers(0, 3)),
        batch=st.lists(st.integers(0, 2), max_size=2),
        kernel=st.sampled_from(KERNELS),
        dtype=st.sampled_from([torch.float32, torch.float64]),
    )
    def test_shapes_and_dtypes(self, kind, d, m, sizes, batch, kernel, dtype):
        pair, seeded = MAKERS[kind](m, d, kernel, generator(), "iid"), generator(1)
        x, y = (0.3 * torch.randn(*batch, n, d, generator=seeded, dtype=dtype) for n in sizes)
        out = pair(x, y)
        assert out.shape == (*batch, *sizes)
        assert out.dtype == pair.left(x).dtype == dtype
        assert pair.left(x).shape == (*batch, sizes[0], pair.num_features)
        assert pair.right(y).shape == (*batch, sizes[1], pair.num_features)
        torch.testing.assert_close(out.double(), pair(x.double(), y.double()), rtol=1e-3, atol=1e-3)

    @pytest.mark.parametrize("kind", MAKERS)
    def test_gradients_and_vectors_that_coincide(self, kind):
        pair = MAKERS[kind](2, 3, KERNELS[len(kind) % 2], generator(), "iid")
        x, y = (0.1 + t.clone()[:2] for t in (X, Y))
        assert torch.autograd.gradcheck(pair, (x.requires_grad_(), y.requires_grad_()))
        v = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64)
        x = torch.stack([0 * v, v, -v, 2 * v])
        many = MAKERS[kind](500, 3, "softmax", generator(), "iid")
        torch.testing.assert_close(many(x, x), (x @ x.T).exp(), rtol=0.3, atol=0.3)
        with pytest.raises(rfgp.InvalidArgumentError, match="3 columns"):
            pair(torch.ones(2, 4), torch.ones(2, 4))

    @pytest.mark.parametrize("of", ["sum", "difference"])
    def test_coefficients_of_zero_have_a_gradient(self, of):
        pair = softmax.gaussian_hybrid(80, 3, of=of, generator=generator())
        x = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda x: pair(x, Y[:1]), x)


class TestExponential:
    def definition(self, frequencies, matrix, kernel):
        """The estimator in complex numbers, pair by pair."""
        a = np.diag(matrix) if matrix.ndim == 1 else matrix.numpy()
        omega, weights = frequencies.dense().numpy(), frequencies.weights.numpy()
        out = np.zeros((len(X), len(Y)))
        for i, x in enumerate(X.numpy()):
            for j, y in enumerate(Y.numpy()):
                left, right = a @ x, np.linalg.inv(a).T @ y
                values = [np.exp(w @ left - left @ left / 2) * np.exp(w @ right - right @ right / 2) for w in omega]
                out[i, j] = np.mean(weights * np.array(values)).real
                out[i, j] *= np.exp(-(x @ x + y @ y) / 2) if kernel == "gaussian" else 1
        return out

    @pytest.mark.parametrize("kernel", KERNELS)
    @pytest.mark.parametrize("matrix", MATRICES)
    def test_it_is_its_definition(self, matrix, kernel):
        weights = torch.tensor([0.5, 1.5, 1.0, 1.2], dtype=torch.float64)
        frequencies = couplings.Frequencies(draw(4, 3).dense(), weights)
        pair = softmax.Exponential(frequencies, MATRICES[matrix], kernel)
        np.testing.assert_allclose(pair(X, Y), self.definition(frequencies, MATRICES[matrix], kernel), rtol=1e-12)
        assert pair.is_positive == (not MATRICES[matrix].is_complex())
        assert pair.num_features == pair.left(X).shape[-1] == (4 if pair.is_positive else 8)

    @pytest.mark.parametrize("kernel", KERNELS)
    def test_identities_give_positive_and_trigonometric_features(self, kernel):
        frequencies, one = draw(4, 3), torch.eye(3, dtype=torch.float64)
        for factor, kind in ((1, softmax.Positive), (1j, softmax.Trigonometric)):
            for matrix in (factor * one, (factor * one).diagonal(), factor * one + 0j):
                pair, same = softmax.Exponential(frequencies, matrix, kernel), kind(frequencies, kernel)
                torch.testing.assert_close(pair.left(X), same.left(X), rtol=0, atol=1e-15)
                torch.testing.assert_close(pair.right(Y), same.right(Y), rtol=0, atol=1e-15)
                assert pair.is_positive == same.is_positive

    def test_features_of_the_gaussian_kernel_are_those_known(self):
        weighted = couplings.by_name("energy", weighted=True).sample(8, 3, seed=0)
        for kind, same in ((softmax.Trigonometric, features.Fourier), (softmax.Positive, features.Laplace)):
            torch.testing.assert_close(kind(weighted, "gaussian").left(X), same(weighted)(X))

    def test_the_exact_kernel(self):
        x, y = X.numpy(), Y.numpy()
        np.testing.assert_allclose(softmax.exact(X, Y), [[np.exp(a @ b) for b in y] for a in x], rtol=1e-12)
        expected = [[np.exp(-0.5 * np.sum((a - b) ** 2)) for b in y] for a in x]
        np.testing.assert_allclose(softmax.exact(X, Y, "gaussian"), expected, rtol=1e-12)

    def test_logarithms_do_not_overflow(self):
        pair = softmax.Exponential(draw(4, 3), REAL)
        torch.testing.assert_close(pair.left.log_values(X).exp(), pair.left(X))
        assert pair.left.log_values(500 * X.float()).isfinite().all()

    def test_structured_frequencies_and_gradients_in_the_matrix(self):
        frequencies = draw(8, 3, name="structured")
        pair, dense = (softmax.Exponential(f, COMPLEX) for f in (frequencies, frequencies.dense()))
        torch.testing.assert_close(pair(X, Y), dense(X, Y))
        for matrix in (REAL, COMPLEX, COMPLEX.diagonal()):
            a = matrix.clone().requires_grad_()
            assert torch.autograd.gradcheck(lambda a: softmax.Exponential(draw(2, 3), a)(X, Y), a)


class TestMatchingDiagonal:
    R, S = torch.tensor([0.5, -0.7, 1.0, 2.0]).double(), torch.tensor([0.3, 0.9, 2.0, -1.0]).double()

    def test_nothing_varies_between_the_two_points(self):
        for right in (self.S, -self.R.sign() * self.S.abs()):
            a = softmax.matching_diagonal(self.R, right)
            torch.testing.assert_close(a * self.R + right / a, torch.zeros(4) + 0 * a, rtol=0, atol=1e-14)
            pair = softmax.Exponential(draw(1, 4), a)
            torch.testing.assert_close(pair(self.R[None], right[None]), (self.R @ right).exp()[None, None])
        assert not a.is_complex()

    def test_zero_entries(self):
        a = softmax.matching_diagonal(torch.tensor([0.0, 1.0, 0.0, 2.0]), torch.tensor([0.0, 0.0, 1.0, -2.0]))
        assert not a.is_complex()
        assert float(a[0]) == 1
        np.testing.assert_allclose([a[1], 1 / a[2]], (0.1 * 1.25**0.5) ** 0.5, rtol=1e-6)
        assert softmax.matching_diagonal(torch.zeros(2), torch.zeros(2)).tolist() == [1, 1]
        assert softmax.matching_diagonal(torch.ones(1), torch.ones(1)).tolist() == [1j]

    def test_real_diagonals_leave_the_least(self):
        """The least |a r + s / a|^2 over real a is 4 r s where signs agree (hybrid paper, Eq. 88)."""
        a = softmax.matching_diagonal(self.R, self.S, real=True)
        torch.testing.assert_close(a, (self.S / self.R).abs().sqrt())
        np.testing.assert_allclose((a * self.R + self.S / a) ** 2, 4 * (self.R * self.S).clamp_min(0), atol=1e-12)

    def test_a_spread_balances_the_mean_squares(self):
        """|a|^4 is E y^2 / E x^2, with the variance spread^2 of each entry."""
        for r, s in ((0.5, 0.2), (-0.5, 0.7), (0.0, 0.3)):
            points = (torch.tensor([v], dtype=torch.float64) for v in (r, s))
            a = complex(softmax.matching_diagonal(*points, spread=0.4, floor=1e-9))
            assert abs(a) ** 4 == pytest.approx((s**2 + 0.16) / (r**2 + 0.16))
            assert (a.imag != 0) == (r * s > 0)


class TestCoefficients:
    def test_angles_are_shares_of_hyperplanes(self):
        """The share of hyperplanes that part x from y; zero vectors have 1/2."""
        tau = draw(9, 3)
        found = softmax.coefficients.Angular(tau)
        above = [[np.sign(w @ v) for w in tau.dense().numpy()] for v in torch.cat([X, Y]).numpy()]
        parted = [[np.mean(np.not_equal(a, b)) for b in above[3:]] for a in above[:3]]
        np.testing.assert_allclose(found(X, Y), parted, atol=1e-15)
        ends = found(X[:1], torch.stack([3 * X[0], -X[0], 0 * X[0]]))
        np.testing.assert_allclose(ends, [[0, 1, 0.5]], atol=1e-15)
        unit = softmax.coefficients.Angular(tau.dense() / tau.dense().norm(dim=1, keepdim=True))
        assert torch.equal(found(X, Y), unit(X, Y))

    @pytest.mark.parametrize("estimator", ["trigonometric", "positive"])
    @pytest.mark.parametrize("kind", ["difference", "sum", "complement", "length", "matched"])
    def test_gaussians_are_means_over_frequencies(self, kind, estimator):
        tau, scale, options = draw(5, 3), 0.8, {"estimator": estimator}
        u, v = X.numpy() / scale, Y.numpy() / scale
        rho = 1.0
        if kind == "matched":
            coefficient = softmax.coefficients.Matched(tau, REAL, REAL.diagonal(), scale, **options)
            u, v = u @ REAL.numpy().T, -v * REAL.diagonal().numpy()
        else:
            options |= {"of": "sum" if kind == "sum" else "difference", "complement": kind in ("complement", "length")}
            if kind == "length":
                options["length"], rho = 0.6, 1 - np.exp(-2 * 0.36 / scale**2)
            coefficient = softmax.coefficients.Gaussian(tau, scale, **options)
            v = -v if kind == "sum" else v
        w = tau.dense().numpy()
        if estimator == "trigonometric":
            mean = np.cos((u[:, None] - v) @ w.T).mean(-1)
        else:
            mean = np.exp((u[:, None] + v) @ w.T).mean(-1) * np.exp(-(u**2).sum(1)[:, None] - (v**2).sum(1))
        expected = (1 - mean) / rho if options.get("complement") else mean
        np.testing.assert_allclose(coefficient(X, Y), expected, rtol=1e-12)

    def test_clusters_mixtures_and_constants(self):
        points = torch.from_numpy(np.random.default_rng(0).standard_normal((7, 3)))
        shares = []
        for side in (X, Y):
            weights = np.exp(-((points[:, None] - side) ** 2).sum(-1).numpy() / (2 * 0.7**2))
            shares.append(weights / weights.sum(1, keepdims=True))
        for i in range(3):
            for j in range(2):
                hard = softmax.coefficients.Clusters(X, Y, (i, j))(points, points)
                nearest = [(points[:, None] - side).norm(dim=-1).argmin(1) == k for side, k in ((X, i), (Y, j))]
                assert torch.equal(hard, (nearest[0][:, None] & nearest[1]).double())
                soft = softmax.coefficients.GaussianMixture(X, Y, (i, j), 0.7)(points, points)
                np.testing.assert_allclose(soft, np.outer(shares[0][:, i], shares[1][:, j]), rtol=1e-12)
        constant = softmax.coefficients.Constant(-0.5)
        assert constant.num_features == 0
        torch.testing.assert_close(constant(X, Y), torch.full((3, 2), -0.5).double())


class TestHybrid:
    def parts(self, kernel):
        seeded = generator(1)
        tau, gamma, omega = (draw(n, 3, seeded) for n in (3, 2, 4))
        return [
            (softmax.coefficients.Angular(tau), softmax.Positive(omega, kernel)),
            (
                softmax.coefficients.Gaussian(gamma, complement=True),
                MAKERS["Exponential, complex"](3, 3, kernel, seeded, "iid"),
            ),
            (softmax.coefficients.Constant(-0.2), MAKERS["Exponential"](3, 3, kernel, seeded, "iid")),
            (softmax.coefficients.Clusters(X, Y, (1, 1)), softmax.Trigonometric(omega, kernel)),
        ]

    @pytest.mark.parametrize(("kernel", "count"), [("softmax", 1), ("gaussian", 2), ("softmax", 4)])
    def test_features_are_those_of_the_mixture(self, kernel, count):
        def mixed(base, parts):
            weights = [coefficient(X, Y) for coefficient, _ in parts]
            total = sum(weight * pair(X, Y) for weight, (_, pair) in zip(weights, parts, strict=True))
            return total if base is None else total + (1 - sum(weights)) * base(X, Y)

        parts = self.parts(kernel)[:count]
        for base in (None, softmax.Trigonometric(draw(5, 3), kernel)):
            hybrid = softmax.Hybrid(base, parts)
            torch.testing.assert_close(hybrid(X, Y), mixed(base, parts))
            assert hybrid.num_features == hybrid.left(X).shape[-1]
            assert not hybrid.is_positive
            outer = [(softmax.coefficients.Constant(0.4), hybrid), parts[0]]
            torch.testing.assert_close(softmax.Hybrid(hybrid, outer)(X, Y), mixed(hybrid, outer))

    def test_where_one_estimator_is_exact_so_is_the_hybrid(self):
        for of, sign in (("difference", 1), ("sum", -1)):
            hybrid = softmax.gaussian_hybrid(200, 3, of=of, generator=generator())
            torch.testing.assert_close(hybrid(X, sign * X).diagonal(), (sign * X.square().sum(1)).exp())
        both = torch.stack([X[0], -X[0]])
        found = softmax.angular_hybrid(200, 3, generator=generator())(X[:1], both)
        torch.testing.assert_close(found, softmax.exact(X[:1], both))

    def test_overflow_at_zero_coefficients_has_no_effect(self):
        """Far from its clusters an estimator overflows, where its coefficient is 0."""
        far = torch.tensor([[1.0, 1e-3], [40.0, 40.0]])
        pair = softmax.between_centers(draw(4, 2), far, far / 40, floor=1e-4)
        assert pair(far, far / 40).isfinite().all()

    def test_recipes_repeat_with_their_generator_and_take_what_they_may(self):
        options = {"num_signs": 4}, {"num_coefficients": 3}
        for recipe, more in zip((softmax.angular_hybrid, softmax.gaussian_hybrid), options, strict=True):
            first, second = (recipe(130, 3, generator=generator(7), **more) for _ in range(2))
            assert torch.equal(first(X, Y), second(X, Y))
            assert first.num_features == {4: 120, 3: 130}[next(iter(more.values()))]


class TestClustered:
    def data(self, spread=0.05):
        middle = np.array([[0.9, -0.5, 0.7], [-0.6, 0.8, 0.5]])
        x, _ = make_blobs(200, centers=middle, cluster_std=spread, random_state=0)
        y, _ = make_blobs(150, centers=middle[::-1] + 0.2, cluster_std=spread, random_state=1)
        return torch.as_tensor(x), torch.as_tensor(y)

    @pytest.mark.slow
    def test_wide_clusters_need_their_spread(self):
        (x, y), errors = self.data(0.5), []
        for spread in (0.0, None):
            pairs = (softmax.clustered(x, y, 160, spread=spread, generator=generator(s)) for s in range(20))
            errors.append(np.median([float((pair(x, y) / softmax.exact(x, y) - 1).square().mean()) for pair in pairs]))
        assert errors[1] < 0.5 * errors[0]

    def test_it_is_exact_at_centers(self):
        x, y = self.data(0.0)
        torch.testing.assert_close(softmax.clustered(x, y, 8, generator=generator())(x, y), softmax.exact(x, y))

    def test_several_numbers_of_clusters(self):
        x, y = self.data()
        pair, again = (
            softmax.clustered(x.float(), y.float(), 100, num_clusters=(2, 3), generator=generator()) for _ in range(2)
        )
        assert pair(x.float(), y.float()).dtype == torch.float32
        assert 0 < pair.num_features <= 100
        assert torch.equal(pair(x, y), again(x, y))
        real = softmax.clustered(x, y, 80, real=True, spread=0.0, generator=generator())
        assert real.num_features == 80
        assert (real(x, y) > 0).all()

    def test_real_diagonals_by_their_definition(self):
        """Hybrid paper, Definition H.2 with Eq. 88: features exp(omega . A x - |A x|^2 / 2) of the nearest centers."""
        omega = draw(5, 3)
        pair, total = softmax.between_centers(omega, X, Y, real=True), np.zeros((3, 2))
        for i, r in enumerate(X.numpy()):
            for j, s in enumerate(Y.numpy()):
                a = softmax.matching_diagonal(X[i], Y[j], real=True).numpy()
                rows = [np.exp(omega.dense().numpy() @ v - v @ v / 2) for v in (a * r, s / a)]
                total[i, j] = np.mean(rows[0] * rows[1])
        np.testing.assert_allclose(pair(X, Y), total, rtol=1e-12)
        assert pair.num_features == 5 * 6

    def test_the_gaussian_mixture_by_its_definition(self):
        """Hybrid paper, Definition H.1 with Eqs. 91, 92, 95 and 96, real diagonals, vectors apart from the centers."""
        seeded, tau = generator(2), 0.8
        omega, others = (draw(n, 3, seeded).dense() for n in (5, 4))
        base = softmax.Positive(draw(6, 3, seeded))
        pair = softmax.gaussian_between_centers(base, omega, others, X[:2], Y, scale=tau, real=True)
        x, y = 1.1 * X, Y - 0.05
        total, rest = np.zeros((3, 2)), np.ones((3, 2))
        for r in X[:2]:
            for s in Y:
                a = softmax.matching_diagonal(r, s, real=True).numpy()
                u, v = a * x.numpy(), y.numpy() / a
                scores = [np.exp(z @ omega.numpy().T - (z**2).sum(1, keepdims=True) / 2) for z in (u, v)]
                weights = [np.exp(z @ others.numpy().T / tau - (z**2).sum(1, keepdims=True) / tau**2) for z in (u, -v)]
                weight = weights[0] @ weights[1].T / 4
                total, rest = total + weight * (scores[0] @ scores[1].T / 5), rest - weight
        np.testing.assert_allclose(pair(x, y), total + rest * base(x, y).numpy(), rtol=1e-10)

    def test_the_gaussian_mixture_is_exact_at_its_centers(self):
        """Also where A is complex, and Eq. 93 as it stands would not be 1."""
        seeded = generator(2)
        omega, others, base = draw(5, 3, seeded), draw(4, 3, seeded), softmax.Positive(draw(6, 3, seeded))
        for x, y in ((X[:1], Y[:1]), (X[:1], -Y[:1]), (X[1:2] + 0.2, Y[1:2])):
            options = {"estimator": "trigonometric", "floor": 1e-6}
            pair = softmax.gaussian_between_centers(base, omega, others, x, y, **options)
            torch.testing.assert_close(pair(x, y), softmax.exact(x, y))


# --- variances -------------------------------------------------------------------------------------

NODES, SHARES = np.polynomial.hermite_e.hermegauss(70)
OMEGA = np.stack(np.meshgrid(NODES, NODES), -1).reshape(-1, 2)
MASS = np.outer(SHARES, SHARES).reshape(-1) / (2 * np.pi)
A, B = X[:, None, :2].numpy(), Y[None, :, :2].numpy()  # every x with every y, in two dimensions
SM = np.exp((A * B).sum(-1))
V, Z = ((A + B) ** 2).sum(-1), ((A - B) ** 2).sum(-1)


def estimates(matrix, kernel="softmax"):
    """Estimates (3, 2, nodes) from one frequency each, by the definition of the exponential estimator."""
    a = np.diag(matrix) if np.ndim(matrix) == 1 else np.asarray(matrix)
    left, right = A @ a.T, B @ np.linalg.inv(a)
    exponent = (left + right) @ OMEGA.T - 0.5 * ((left**2).sum(-1) + (right**2).sum(-1))[..., None]
    scale = np.exp(-0.5 * ((A**2).sum(-1) + (B**2).sum(-1))) if kernel == "gaussian" else np.ones_like(SM)
    return np.exp(exponent).real * scale[..., None], SM * scale


def covariance(first, second, exact):
    return (first * second) @ MASS - exact**2


class TestTheory:
    @pytest.mark.parametrize("kernel", KERNELS)
    def test_variances_are_those_of_quadrature(self, kernel):
        for matrix in (REAL, REAL.diagonal(), COMPLEX, 1j * COMPLEX.diagonal()):
            a = (matrix[:2, :2] if matrix.ndim == 2 else matrix[:2]).numpy()
            values, exact = estimates(a, kernel)
            found = theory.softmax_variance(A, B, 3, estimator="exponential", matrix=a, kernel=kernel)
            np.testing.assert_allclose(found, covariance(values, values, exact) / 3, rtol=1e-8)
        for kind, factor in (("positive", 1), ("trigonometric", 1j)):
            values, exact = estimates(factor * np.eye(2), kernel)
            found = theory.softmax_variance(A, B, 3, estimator=kind, kernel=kernel)
            np.testing.assert_allclose(found, covariance(values, values, exact) / 3, rtol=1e-8)

    @pytest.mark.parametrize("kernel", KERNELS)
    def test_covariances_are_those_of_quadrature(self, kernel):
        a, b = REAL[:2, :2].numpy(), COMPLEX[:2, :2].numpy()
        (first, exact), (second, _) = (estimates(matrix, kernel) for matrix in (a, b))
        found = theory.exponential_covariance(A, B, a, b, kernel=kernel)
        np.testing.assert_allclose(found, covariance(first, second, exact), rtol=1e-8)

    def test_opposite_pairs_are_those_of_quadrature(self):
        values, exact = estimates(np.eye(2))
        both = (values + values[..., ::-1]) / 2  # the nodes are symmetric
        found = theory.softmax_variance(A, B, 10, coupling="iid-antithetic")
        np.testing.assert_allclose(found, covariance(both, both, exact) / 5, rtol=1e-8)
        np.testing.assert_allclose(found, np.exp(V) * SM**2 * (1 - np.exp(-V)) ** 2 / 10, rtol=1e-12)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("name", "m", "kind", "options"),
        [
            ("orthogonal", 6, softmax.Positive, {}),
            ("simplex", 6, softmax.Positive, {}),
            ("orthogonal-antithetic", 6, softmax.Positive, {}),
            ("pairwise-antithetic", 6, softmax.Positive, {}),
            ("orthogonal", 5, softmax.Trigonometric, {"estimator": "trigonometric"}),
            ("orthogonal", 4, lambda w: softmax.Exponential(w, REAL), {"estimator": "exponential", "matrix": REAL}),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_of_coupled_features(self, name, m, kind, options):
        seeded, exact = generator(6), softmax.exact(X, Y)
        errors = torch.stack([(kind(draw(m, 3, seeded, name))(X, Y) - exact).square() for _ in range(1000)])
        found = theory.softmax_variance(X[:, None].numpy(), Y[None].numpy(), m, coupling=name, **options)
        assert_mean(errors.numpy(), found)

    def test_moments_of_angles(self):
        """The number of signs that part x and y is binomial (hybrid paper, Lemma 3.2)."""
        mean, second = theory.angular_moments(A, B, 3)
        p = np.arccos((A * B).sum(-1) / np.linalg.norm(A, axis=-1) / np.linalg.norm(B, axis=-1)) / np.pi
        np.testing.assert_allclose(mean, p, rtol=1e-12)
        np.testing.assert_allclose(second, p * (p - p / 3 + 1 / 3), rtol=1e-12)
        x = A[0, 0]
        ends = theory.angular_moments(np.stack([x, x, x, 0 * x]), np.stack([2 * x, -x, 0 * x, 0 * x]), 3)
        np.testing.assert_allclose(ends, [[0, 1, 0.5, 0.5], [0, 1, 0.25, 0.25]], atol=1e-15)

    @pytest.mark.parametrize("estimator", ["trigonometric", "positive"])
    @pytest.mark.parametrize("kind", ["difference", "sum", "complement", "length"])
    def test_moments_of_gaussians(self, kind, estimator):
        scale, is_complement = 0.8, kind in ("complement", "length")
        u, v = A / scale, (-B if kind == "sum" else B) / scale
        if estimator == "trigonometric":
            values = np.cos((u - v) @ OMEGA.T)
        else:
            values = np.exp((u + v) @ OMEGA.T - ((u**2).sum(-1) + (v**2).sum(-1))[..., None])
        values = 1 - values if is_complement else values
        options = {"of": "sum" if kind == "sum" else "difference", "complement": is_complement}
        if kind == "length":
            options["length"] = 0.6
            values = values / (1 - np.exp(-2 * 0.36 / scale**2))
        mean, second = theory.gaussian_moments(A, B, 3, scale=scale, estimator=estimator, **options)
        np.testing.assert_allclose(mean, values @ MASS, rtol=1e-8)
        np.testing.assert_allclose(second, mean**2 + ((values**2) @ MASS - mean**2) / 3, rtol=1e-8)

    @pytest.mark.parametrize("antithetic", [False, True])
    @pytest.mark.parametrize("common", [False, True])
    def test_bipolar_variances_are_those_of_quadrature(self, common, antithetic):
        """Hybrid paper, Theorem 3.1, with coefficients that are independent of the estimators."""
        kernel = KERNELS[antithetic]
        (positive, exact), (trigonometric, _) = (estimates(f * np.eye(2), kernel) for f in (1, 1j))
        if antithetic:
            positive = (positive + positive[..., ::-1]) / 2
        mean, second = theory.angular_moments(A, B, 3)
        parts = covariance(positive, positive, exact), covariance(trigonometric, trigonometric, exact)
        expected = second * parts[0] + (1 - 2 * mean + second) * parts[1]
        if common:
            expected = expected + 2 * (mean - second) * covariance(positive, trigonometric, exact)
        found = theory.bipolar_variance(A, B, 2, (mean, second), common=common, antithetic=antithetic, kernel=kernel)
        np.testing.assert_allclose(found, expected / 2, rtol=1e-8, atol=1e-15)

    def test_zero_vectors_and_one_dimension(self):
        zero, one = np.zeros(1), np.ones(1)
        for kind in ("trigonometric", "positive"):
            assert theory.softmax_variance(zero, zero, 3, estimator=kind) == 0
        assert theory.softmax_variance(one, -one, 3, coupling="orthogonal") == 0
        assert theory.softmax_variance(one, one, 3, estimator="trigonometric") == 0
        assert theory.softmax_variance(np.ones((4, 1, 2)), np.ones((3, 2)), 2).shape == (4, 3)
        assert theory.softmax_variance(np.ones((0, 2)), np.ones(2), 2, coupling="simplex").shape == (0,)

    def test_variances_of_the_gaussian_kernel_far_from_the_origin(self):
        """Factors of the softmax kernel leave double precision there; the kernel and its features do not."""
        rng = np.random.default_rng(0)
        x = 2 * rng.standard_normal((3, 100))
        y = x + 0.1 * rng.standard_normal((3, 100))
        exact = (1 - np.exp(-((x - y) ** 2).sum(1))) ** 2 / 8
        found = theory.softmax_variance(x, y, 4, estimator="trigonometric", kernel="gaussian")
        np.testing.assert_allclose(found, exact, rtol=1e-9)
        matrix = 1j * np.ones(100)
        found = theory.softmax_variance(x, y, 4, estimator="exponential", matrix=matrix, kernel="gaussian")
        np.testing.assert_allclose(found, exact, rtol=1e-6)


# --- refusals --------------------------------------------------------------------------------------

TAU, ONE, PAIRS, HALF = draw(4, 3), np.ones(3), draw(4, 3, name="iid-antithetic"), softmax.coefficients.Constant(0.5)
POSITIVE, GAUSSIAN = softmax.Positive(TAU), softmax.Positive(TAU, "gaussian")
COEFFICIENTS, NAN = softmax.coefficients, float("nan")


def each(call, word, *bad):
    """Return a call for each bad argument, and a word of its refusal."""
    return [(lambda value=value: call(value), word) for value in bad]


def variance(**options):
    return lambda: theory.softmax_variance(ONE, ONE, 4, **options)


REFUSED = [
    *each(lambda matrix: softmax.Exponential(TAU, matrix), "singular", torch.zeros(3), torch.ones(3, 3)),
    *each(lambda matrix: softmax.Exponential(TAU, matrix), "finite", torch.tensor([1.0, NAN, 1.0])),
    *each(lambda matrix: softmax.Exponential(TAU, matrix), "shape", torch.eye(2), torch.ones(1, 3, 3)),
    *each(lambda matrix: softmax.Exponential(TAU, matrix), "floating-point", torch.ones(3).long(), None),
    *each(lambda matrix: softmax.Exponential(PAIRS, matrix), "antithetic", 1j * torch.ones(3)),
    *each(lambda kernel: softmax.Exponential(TAU, torch.ones(3), kernel), "kernel", "linear", 3),
    *each(softmax.Trigonometric, "antithetic", PAIRS),
    *each(lambda right: softmax.FeaturePair(POSITIVE.left, right), "equal kernels", GAUSSIAN.right),
    *each(lambda s: softmax.matching_diagonal(torch.ones(2), s), "finite", torch.ones(3), torch.ones(2) / 0),
    *each(lambda floor: softmax.matching_diagonal(torch.ones(2), torch.ones(2), floor=floor), "floor", 0.0),
    *each(lambda spread: softmax.matching_diagonal(torch.ones(2), torch.ones(2), spread=spread), "spread", -1.0),
    *each(COEFFICIENTS.Angular, "antithetic", PAIRS),
    *each(COEFFICIENTS.Gaussian, "antithetic", PAIRS),
    *each(lambda scale: COEFFICIENTS.Gaussian(TAU, scale), "scale", 0.0, NAN),
    *each(lambda of: COEFFICIENTS.Gaussian(TAU, of=of), "of must", "product"),
    *each(lambda estimator: COEFFICIENTS.Gaussian(TAU, estimator=estimator), "estimator", "exact"),
    (lambda: COEFFICIENTS.Gaussian(TAU, length=1.0), "length"),
    (lambda: COEFFICIENTS.Gaussian(TAU, complement=True, length=0.0), "length"),
    (lambda: COEFFICIENTS.Matched(TAU, right=1j * REAL), "real"),
    *each(COEFFICIENTS.Constant, "finite", float("inf")),
    *each(lambda pair: COEFFICIENTS.Clusters(X, Y, pair), "positions", (3, 0), (0, -1)),
    *each(lambda left: COEFFICIENTS.Clusters(left, Y, (0, 0)), "finite matrix", X[0], X / 0),
    *each(lambda scale: COEFFICIENTS.GaussianMixture(X, Y, (0, 0), scale), "scale", -1.0),
    (lambda: softmax.Coefficient(0.0, HALF.left, COEFFICIENTS.Angular(TAU).right), "as many"),
    *each(lambda parts: softmax.Hybrid(POSITIVE, parts), "pair", [], [(POSITIVE, HALF)], [(0.5, POSITIVE)]),
    (lambda: softmax.Hybrid(GAUSSIAN, [(HALF, POSITIVE)]), "one kernel"),
    (lambda: softmax.bipolar(PAIRS, HALF), "antithetic"),
    *each(lambda count: softmax.angular_hybrid(count, 3, generator=generator()), "num_features", 35, 2.5),
    *each(lambda count: softmax.angular_hybrid(99, 3, num_signs=count, generator=generator()), "num_signs", 0),
    *each(lambda seeded: softmax.angular_hybrid(99, 3, generator=seeded), "torch.Generator", 0),
    *each(lambda x: softmax.clustered(x, Y, 100, generator=generator()), "finite vectors", X[:1], X / 0),
    *each(lambda x: softmax.clustered(x, Y, 100, generator=generator()), "columns", X[:, :2], X[0]),
    *each(lambda count: softmax.clustered(X, Y, count, generator=generator()), "num_features", 3),
    *each(lambda n: softmax.clustered(X, Y, 99, num_clusters=n, generator=generator()), "num_clusters", 0, (1, 2, 3)),
    *each(lambda y: theory.softmax_variance(ONE, y, 3), "same d", np.ones(2)),
    *each(lambda y: theory.softmax_variance(np.ones((2, 3)), y, 3), "broadcast", np.ones((3, 3))),
    *each(lambda m: theory.softmax_variance(ONE, ONE, m), "num_frequencies", 0),
    (variance(estimator="cosine"), "estimator"),
    (variance(kernel="linear"), "kernel"),
    *((variance(coupling=name), "no closed form") for name in ("sobol", "simplex-antithetic")),
    (lambda: theory.softmax_variance(ONE, ONE, 3, coupling="iid-antithetic"), "no closed form"),
    (variance(estimator="trigonometric", coupling="simplex"), "no closed form"),
    (variance(estimator="exponential"), "matrix"),
    (variance(estimator="exponential", matrix=np.eye(2)), "matrix"),
    (variance(estimator="exponential", matrix=1j * ONE, coupling="orthogonal"), "complex matrix"),
    (variance(estimator="exponential", matrix=1j * np.zeros((3, 3))), "singular"),
    (lambda: theory.gaussian_moments(A, B, 4, of="product"), "of must"),
    (lambda: theory.gaussian_moments(A, B, 4, scale=0.0), "scale"),
    (lambda: theory.gaussian_moments(A, B, 4, estimator="exact"), "estimator"),
]


@pytest.mark.parametrize(("call", "word"), REFUSED)
def test_bad_arguments_are_named(call, word):
    with pytest.raises(rfgp.InvalidArgumentError, match=word):
        call()
