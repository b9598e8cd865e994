"""Estimators of the softmax kernel by their definitions, and their variances by quadrature over frequencies."""

import inspect
from functools import partial

import numpy as np
import pytest
import torch
from checks import assert_mean
from named_options import named
from refusals import refused
from sklearn.datasets import make_blobs

import rfgp
from rfgp import couplings, theory
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


def basic(m, d, kernel, seeded, name, kind):
    return kind(draw(m, d, seeded, name), kernel)


def exponential(m, d, kernel, seeded, name, matrix):
    a = MATRICES[matrix]
    return softmax.Exponential(draw(m, d, seeded, name), a[:d] if a.ndim == 1 else a[:d, :d], kernel)


def angular(m, d, kernel, seeded, name):
    return softmax.angular_hybrid(12 * m, d, num_signs=2, coupling=name, kernel=kernel, generator=seeded)


def gaussian(m, d, kernel, seeded, name, of):
    options = {"num_coefficients": 2, "scale": 1.5, "of": of, "coupling": name, "kernel": kernel}
    return softmax.gaussian_hybrid(18 * m, d, generator=seeded, **options)


def centers(m, d, kernel, seeded, name, scale):
    return softmax.between_centers(draw(m, d, seeded, name), X[1:, :d], Y[:, :d], scale=scale, kernel=kernel)


def bipolar(m, d, kernel, seeded, name):
    other, signs, first = (draw(n, d, seeded, name) for n in (m, 3, m))
    coefficient = softmax.coefficients.Angular(signs)
    return softmax.bipolar(first, coefficient, other=other, antithetic=True, kernel=kernel)


def nested(m, d, kernel, seeded, name):
    base = angular(m, d, kernel, seeded, name)
    constant = (softmax.coefficients.Constant(-0.3), exponential(m, d, kernel, seeded, name, "diagonal"))
    sums = softmax.coefficients.Gaussian(draw(2, d, seeded, name), of="sum")
    return softmax.Hybrid(base, [constant, (sums, softmax.Positive(draw(m, d, seeded, name), kernel))])


def mixture(m, d, kernel, seeded, name):
    omega, others, base = (draw(n, d, seeded, name) for n in (m, 2, m))
    return softmax.gaussian_between_centers(softmax.Trigonometric(base, kernel), omega, others, X[1:, :d], Y[:, :d])


MAKERS = {
    "Trigonometric": partial(basic, kind=softmax.Trigonometric),
    "Positive": partial(basic, kind=softmax.Positive),
    "Exponential": partial(exponential, matrix="real"),
    **{f"Exponential, {matrix}": partial(exponential, matrix=matrix) for matrix in ("diagonal", "complex", "mixed")},
    "bipolar": bipolar,
    "angular_hybrid": angular,
    "gaussian_hybrid": partial(gaussian, of="sum"),
    "gaussian_hybrid, difference": partial(gaussian, of="difference"),
    "between_centers": partial(centers, scale=None),
    "between_centers, mixture": partial(centers, scale=0.3),
    "gaussian_between_centers": mixture,
    "Hybrid": nested,
}


class TestContract:
    """Each estimator is unbiased, differentiable and of the stated shape."""

    def test_no_estimator_is_forgotten(self):
        classes = {n for n, c in vars(softmax).items() if inspect.isclass(c) and issubclass(c, softmax.FeaturePair)}
        recipes = {n for n, f in vars(softmax).items() if inspect.isfunction(f)} - {"exact", "matching_diagonal"}
        assert classes | recipes == {name.split(",")[0] for name in MAKERS} | {"FeaturePair", "clustered"}

    @pytest.mark.slow
    @pytest.mark.parametrize("kind", MAKERS)
    def test_estimates_are_unbiased(self, kind):
        number, seeded = list(MAKERS).index(kind), generator(3)
        kernel, d, name = KERNELS[number % 2], 2 + number % 2, ("orthogonal", "simplex", "iid")[number % 3]
        x, y = X[:, :d], Y[:, :d]
        samples = torch.stack([MAKERS[kind](5, d, kernel, seeded, name)(x, y) for _ in range(1000)])
        assert_mean(samples.numpy(), softmax.exact(x, y, kernel).numpy())

    @pytest.mark.parametrize("kind", MAKERS)
    def test_gradients_shapes_and_dtypes(self, kind):
        pair = MAKERS[kind](2, 3, KERNELS[len(kind) % 2], generator(), "iid")
        x, y = 0.1 + X[:2], 0.1 + Y
        assert torch.autograd.gradcheck(pair, (x.clone().requires_grad_(), y.clone().requires_grad_()))
        many = pair(torch.stack([x, -x]).float(), torch.stack([y, y])[:, :1].float())
        assert many.dtype == torch.float32
        expected = torch.stack([pair(x, y[:1]), pair(-x, y[:1])])
        torch.testing.assert_close(many.double(), expected, rtol=1e-3, atol=1e-3)
        assert pair(x[:0], y).shape == (0, 2)
        assert pair.left(x).shape == pair.right(y).shape == (2, pair.num_features)
        refused(lambda: pair(torch.ones(2, 4), torch.ones(2, 4)), rfgp.InvalidArgumentError, "3 columns")

    def test_a_class_of_ones_own_may_count_its_features(self):
        class Own(softmax.SideMap):
            num_features = property(lambda self: len(self.rows))

            def __init__(self, rows):
                super().__init__("softmax")
                self.rows = rows

            def forward(self, x):
                return (x @ self.rows.mT - x.square().sum(-1, keepdim=True) / 2).exp() / len(self.rows) ** 0.5

        frequencies = torch.randn(5, 3, dtype=torch.float64, generator=generator())
        pair = softmax.FeaturePair(Own(frequencies), Own(frequencies))
        torch.testing.assert_close(pair(X, Y), softmax.Positive(frequencies)(X, Y))

    @pytest.mark.parametrize("of", ["sum", "difference"])
    def test_coefficients_of_zero_have_a_gradient(self, of):
        pair = softmax.gaussian_hybrid(80, 3, of=of, generator=generator())
        x = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda x: pair(x, Y[:1]), x)


# --- definitions -----------------------------------------------------------------------------------

NODES, SHARES = np.polynomial.hermite_e.hermegauss(70)
OMEGA = np.stack(np.meshgrid(NODES, NODES), -1).reshape(-1, 2)
MASS = np.outer(SHARES, SHARES).reshape(-1) / (2 * np.pi)
A, B = X[:, None, :2].numpy(), Y[None, :, :2].numpy()  # every x with every y, in two dimensions


def estimates(matrix, kernel="softmax", x=A, y=B, omega=OMEGA):
    """Return estimates (3, 2, nodes) from one frequency each, by their definition, and the kernel."""
    a = np.diag(matrix) if np.ndim(matrix) == 1 else np.asarray(matrix)
    left, right = x @ a.T, y @ np.linalg.inv(a)
    exponent = (left + right) @ omega.T - 0.5 * ((left**2).sum(-1) + (right**2).sum(-1))[..., None]
    scale = np.exp(-0.5 * ((x**2).sum(-1) + (y**2).sum(-1))) if kernel == "gaussian" else np.ones((3, 2))
    return np.exp(exponent).real * scale[..., None], np.exp((x * y).sum(-1)) * scale


def gaussian_values(u, v, omega, estimator):
    """Return estimates of exp(-|u - v|^2 / 2) from one frequency each."""
    if estimator == "trigonometric":
        return np.cos((u - v) @ omega.T)
    return np.exp((u + v) @ omega.T - ((u**2).sum(-1) + (v**2).sum(-1))[..., None])


class TestExponential:
    @pytest.mark.parametrize("kernel", KERNELS)
    @pytest.mark.parametrize("matrix", [*MATRICES, softmax.Positive, softmax.Trigonometric])
    def test_it_is_its_definition(self, matrix, kernel):
        weights = torch.tensor([0.5, 1.5, 1.0, 1.2], dtype=torch.float64)
        frequencies = couplings.Frequencies(draw(4, 3).dense(), weights)
        if matrix in MATRICES:
            a, pair = MATRICES[matrix], softmax.Exponential(frequencies, MATRICES[matrix], kernel)
        else:
            a = torch.ones(3) * (1 if matrix is softmax.Positive else 1j)
            pair = matrix(frequencies, kernel)
        values, _ = estimates(a.numpy(), kernel, X[:, None].numpy(), Y.numpy(), frequencies.dense().numpy())
        np.testing.assert_allclose(pair(X, Y), (values * weights.numpy()).mean(-1), rtol=1e-12)
        assert pair.is_positive == (not a.is_complex())
        assert pair.num_features == pair.left(X).shape[-1] == (4 if pair.is_positive else 8)

    def test_the_exact_kernel(self):
        torch.testing.assert_close(softmax.exact(X, Y), (X @ Y.T).exp())
        torch.testing.assert_close(softmax.exact(X, Y, "gaussian"), (-0.5 * torch.cdist(X, Y) ** 2).exp())

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
        small = (0.1 * 1.25**0.5) ** 0.5
        np.testing.assert_allclose(a[:3], [1, small, 1 / small], rtol=1e-6)
        assert softmax.matching_diagonal(torch.zeros(2), torch.zeros(2)).tolist() == [1, 1]
        assert softmax.matching_diagonal(torch.ones(1), torch.ones(1)).tolist() == [1j]

    def test_real_diagonals_leave_the_least(self):
        """The least |a r + s / a|^2 over real a is 4 r s where signs agree (hybrid paper, Eq. 88)."""
        a = softmax.matching_diagonal(self.R, self.S, real=True)
        torch.testing.assert_close(a, (self.S / self.R).abs().sqrt())

    def test_a_spread_balances_the_mean_squares(self):
        """|a|^4 is E y^2 / E x^2, with the variance spread^2 of each entry."""
        r, s = torch.tensor([[0.5, -0.5, 0.0], [0.2, 0.7, 0.3]]).double()
        a = softmax.matching_diagonal(r, s, spread=0.4, floor=1e-9)
        torch.testing.assert_close(a.abs() ** 4, (s**2 + 0.16) / (r**2 + 0.16))
        assert (a.imag != 0).tolist() == [True, False, False]


GAUSSIANS = {
    "difference": {},
    "sum": {"of": "sum"},
    "complement": {"complement": True},
    "length": {"complement": True, "length": 0.6},
}


class TestCoefficients:
    def test_angles_are_shares_of_hyperplanes(self):
        """The share of hyperplanes that part x from y; zero vectors have 1/2."""
        tau = draw(9, 3).dense()
        found = softmax.coefficients.Angular(tau)
        x, y = (torch.sign(side @ tau.T) for side in (X, Y))
        torch.testing.assert_close(found(X, Y), (x[:, None] != y).double().mean(-1))
        ends = found(X[:1], torch.stack([3 * X[0], -X[0], 0 * X[0]]))
        np.testing.assert_allclose(ends, [[0, 1, 0.5]], atol=1e-15)
        assert torch.equal(found(X, Y), softmax.coefficients.Angular(tau / tau.norm(dim=1, keepdim=True))(X, Y))

    @pytest.mark.parametrize("estimator", ["trigonometric", "positive"])
    @pytest.mark.parametrize("kind", ["difference", "sum", "length", "matched"])
    def test_gaussians_are_means_over_frequencies(self, kind, estimator):
        tau, scale = draw(5, 3), 0.8
        u, v = X[:, None].numpy() / scale, Y.numpy() / scale
        if kind == "matched":
            coefficient = softmax.coefficients.Matched(tau, REAL, REAL.diagonal(), scale, estimator=estimator)
            u, v = u @ REAL.numpy().T, -v * REAL.diagonal().numpy()
        else:
            coefficient = softmax.coefficients.Gaussian(tau, scale, estimator=estimator, **GAUSSIANS[kind])
            v = -v if kind == "sum" else v
        expected = gaussian_values(u, v, tau.dense().numpy(), estimator).mean(-1)
        if kind == "length":
            expected = (1 - expected) / (1 - np.exp(-2 * 0.36 / scale**2))
        np.testing.assert_allclose(coefficient(X, Y), expected, rtol=1e-12)

    @pytest.mark.parametrize(("i", "j"), [(0, 1), (1, 0), (2, 1)])
    def test_clusters_and_mixtures(self, i, j):
        points = torch.from_numpy(np.random.default_rng(0).standard_normal((7, 3)))
        squares = [torch.cdist(points, side).square() for side in (X, Y)]
        hard = softmax.coefficients.Clusters(X, Y, (i, j))(points, points)
        near = [square.argmin(1) == place for square, place in zip(squares, (i, j), strict=True)]
        torch.testing.assert_close(hard, torch.outer(*near).double())
        soft = softmax.coefficients.GaussianMixture(X, Y, (i, j), 0.7)(points, points)
        shares = [torch.softmax(-square / (2 * 0.7**2), 1) for square in squares]
        torch.testing.assert_close(soft, torch.outer(shares[0][:, i], shares[1][:, j]))

    def test_constants(self):
        constant = softmax.coefficients.Constant(-0.5)
        assert constant.num_features == 0
        torch.testing.assert_close(constant(X, Y), torch.full((3, 2), -0.5).double())


class TestHybrid:
    def parts(self, kernel):
        seeded = generator(1)
        tau, gamma, omega = (draw(n, 3, seeded) for n in (3, 2, 4))
        coefficients, mixed = softmax.coefficients, MAKERS["Exponential, complex"](3, 3, kernel, seeded, "iid")
        return [
            (coefficients.Angular(tau), softmax.Positive(omega, kernel)),
            (coefficients.Gaussian(gamma, complement=True), mixed),
            (coefficients.Constant(-0.2), softmax.Exponential(omega, REAL, kernel)),
            (coefficients.Clusters(X, Y, (1, 1)), softmax.Trigonometric(omega, kernel)),
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
        angular, again = (softmax.angular_hybrid(130, 3, num_signs=4, generator=generator()) for _ in range(2))
        torch.testing.assert_close(angular(X[:1], both), softmax.exact(X[:1], both))
        assert torch.equal(angular(X, Y), again(X, Y))
        assert angular.num_features == 120
        assert softmax.gaussian_hybrid(130, 3, num_coefficients=3, generator=generator()).num_features == 130

    def test_overflow_at_zero_coefficients_has_no_effect(self):
        """Far from its clusters an estimator overflows, where its coefficient is 0."""
        far = torch.tensor([[1.0, 1e-3], [40.0, 40.0]])
        pair = softmax.between_centers(draw(4, 2), far, far / 40, floor=1e-4)
        assert pair(far, far / 40).isfinite().all()


class TestClustered:
    def data(self, spread=0.05):
        middle = np.array([[0.9, -0.5, 0.7], [-0.6, 0.8, 0.5]])
        x, _ = make_blobs(200, centers=middle, cluster_std=spread, random_state=0)
        y, _ = make_blobs(150, centers=middle[::-1] + 0.2, cluster_std=spread, random_state=1)
        return torch.as_tensor(x), torch.as_tensor(y)

    def test_it_is_exact_at_centers(self):
        x, y = self.data(0.0)
        torch.testing.assert_close(softmax.clustered(x, y, 8, generator=generator())(x, y), softmax.exact(x, y))

    def test_several_numbers_of_clusters(self):
        x, y = self.data()

        def pair(count, **options):
            return softmax.clustered(x, y, count, generator=generator(), **options)

        found = pair(100, num_clusters=(2, 3))
        assert 0 < found.num_features <= 100
        assert torch.equal(found(x, y), pair(100, num_clusters=(2, 3))(x, y))
        real = pair(80, real=True, spread=0.0)
        assert real.num_features == 80
        assert (real(x, y) > 0).all()

    def test_real_diagonals_by_their_definition(self):
        """Hybrid paper, Definition H.2 with Eq. 88: features exp(omega . A x - |A x|^2 / 2) of the nearest centers."""
        omega = draw(5, 3).dense()
        pair = softmax.between_centers(omega, X, Y, real=True)
        for i, j in np.ndindex(3, 2):
            a = softmax.matching_diagonal(X[i], Y[j], real=True)
            left, right = ((omega @ v - v @ v / 2).exp() for v in (a * X[i], Y[j] / a))
            torch.testing.assert_close(pair(X[i : i + 1], Y[j : j + 1])[0, 0], (left * right).mean())
        assert pair.num_features == 5 * 6

    def test_the_gaussian_mixture_by_its_definition(self):
        """Hybrid paper, Definition H.1 with Eqs. 91, 92, 95 and 96, real diagonals, vectors apart from the centers."""
        seeded, tau = generator(2), 0.8
        omega, others = (draw(n, 3, seeded).dense() for n in (5, 4))
        base = softmax.Positive(draw(6, 3, seeded))
        pair = softmax.gaussian_between_centers(base, omega, others, X[:2], Y, scale=tau, real=True)
        x, y, expected, rest = 1.1 * X, Y - 0.05, 0.0, 1.0

        def scores(rows, z):
            return (z @ rows.T - z.square().sum(1, keepdim=True) / 2).exp()

        for r, s in ((r, s) for r in X[:2] for s in Y):
            a = softmax.matching_diagonal(r, s, real=True)
            u, v = a * x, y / a
            damped = [(-z.square().sum(1) / (2 * tau**2)).exp() for z in (u, v)]
            weight = torch.outer(*damped) * (scores(others, u / tau) @ scores(others, -v / tau).T) / 4
            expected, rest = expected + weight * (scores(omega, u) @ scores(omega, v).T) / 5, rest - weight
        torch.testing.assert_close(pair(x, y), expected + rest * base(x, y))

    def test_the_gaussian_mixture_is_exact_at_its_centers(self):
        """Also where A is complex, and Eq. 93 as it stands would not be 1."""
        omega, others, base = draw(5, 3), draw(4, 3), softmax.Positive(draw(6, 3))
        for x, y in ((X[:1], Y[:1]), (X[:1], -Y[:1])):
            options = {"estimator": "trigonometric", "floor": 1e-6}
            pair = softmax.gaussian_between_centers(base, omega, others, x, y, **options)
            torch.testing.assert_close(pair(x, y), softmax.exact(x, y))


# --- variances -------------------------------------------------------------------------------------


def covariance(first, second, exact):
    return (first * second) @ MASS - exact**2


class TestTheory:
    @pytest.mark.parametrize("kernel", KERNELS)
    def test_variances_are_those_of_quadrature(self, kernel):
        cases = [("positive", None, np.eye(2)), ("trigonometric", None, 1j * np.eye(2))]
        for matrix in MATRICES.values():
            a = (matrix[:2, :2] if matrix.ndim == 2 else matrix[:2]).numpy()
            cases.append(("exponential", a, a))
        for estimator, given, a in cases:
            values, exact = estimates(a, kernel)
            found = theory.softmax_variance(A, B, 3, estimator=estimator, matrix=given, kernel=kernel)
            np.testing.assert_allclose(found, covariance(values, values, exact) / 3, rtol=1e-8)

    def test_covariances_are_those_of_quadrature(self):
        a, b = REAL[:2, :2].numpy(), COMPLEX[:2, :2].numpy()
        (first, exact), (second, _) = estimates(a), estimates(b)
        found = theory.exponential_covariance(A, B, a, b)
        np.testing.assert_allclose(found, covariance(first, second, exact), rtol=1e-8)

    def test_opposite_pairs_are_those_of_quadrature(self):
        values, exact = estimates(np.eye(2))
        both = (values + values[..., ::-1]) / 2  # the nodes are symmetric
        found = theory.softmax_variance(A, B, 10, coupling="iid-antithetic")
        np.testing.assert_allclose(found, covariance(both, both, exact) / 5, rtol=1e-8)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("name", "m", "kind", "options"),
        [
            ("simplex", 6, softmax.Positive, {}),
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
        ends = theory.angular_moments(A[0], np.array([[2], [-1], [0]]) * A[0], 3)
        np.testing.assert_allclose(ends, [[0, 1, 0.5], [0, 1, 0.25]], atol=1e-15)

    @pytest.mark.parametrize("estimator", ["trigonometric", "positive"])
    @pytest.mark.parametrize("kind", GAUSSIANS)
    def test_moments_of_gaussians(self, kind, estimator):
        scale = 0.8
        values = gaussian_values(A / scale, (-B if kind == "sum" else B) / scale, OMEGA, estimator)
        values = 1 - values if "complement" in GAUSSIANS[kind] else values
        values = values / (1 - np.exp(-2 * 0.36 / scale**2)) if kind == "length" else values
        mean, second = theory.gaussian_moments(A, B, 3, scale=scale, estimator=estimator, **GAUSSIANS[kind])
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
        assert theory.softmax_variance(zero, zero, 3) == 0
        assert theory.softmax_variance(one, -one, 3, coupling="orthogonal") == 0
        assert theory.softmax_variance(one, one, 3, estimator="trigonometric") == 0
        assert theory.softmax_variance(np.ones((0, 2)), np.ones(2), 2, coupling="simplex").shape == (0,)

    def test_variances_of_the_gaussian_kernel_far_from_the_origin(self):
        """Factors of the softmax kernel leave double precision there; the kernel and its features do not."""
        rng = np.random.default_rng(0)
        x = 2 * rng.standard_normal((3, 100))
        y = x + 0.1 * rng.standard_normal((3, 100))
        exact = (1 - np.exp(-((x - y) ** 2).sum(1))) ** 2 / 8
        for estimator, matrix, rtol in (("trigonometric", None, 1e-9), ("exponential", 1j * np.ones(100), 1e-6)):
            found = theory.softmax_variance(x, y, 4, kernel="gaussian", estimator=estimator, matrix=matrix)
            np.testing.assert_allclose(found, exact, rtol=rtol)


# --- refusals --------------------------------------------------------------------------------------

TAU, ONE, PAIRS, HALF = draw(4, 3), np.ones(3), draw(4, 3, name="iid-antithetic"), softmax.coefficients.Constant(0.5)
POSITIVE, GAUSSIAN = softmax.Positive(TAU), softmax.Positive(TAU, "gaussian")
COEFFICIENTS, UNITS, INFINITE = softmax.coefficients, torch.ones(3), X / 0
SEEDED = {"generator": generator()}
VARIANCE = partial(theory.softmax_variance, ONE, ONE, 4)
REFUSED = [
    (lambda: softmax.Exponential(TAU, 0 * UNITS), "singular"),
    (lambda: softmax.Exponential(TAU, INFINITE), "finite"),
    (lambda: softmax.Exponential(TAU, UNITS[:2]), "shape"),
    (lambda: softmax.Exponential(TAU, UNITS.long()), "floating-point"),
    (lambda: softmax.Exponential(PAIRS, 1j * UNITS), "antithetic"),
    *named(partial(softmax.Exponential, TAU, UNITS), kernel="linear"),
    (lambda: softmax.Trigonometric(PAIRS), "antithetic"),
    (lambda: softmax.FeaturePair(POSITIVE.left, GAUSSIAN.right), "equal kernels"),
    (lambda: softmax.matching_diagonal(UNITS, UNITS / 0), "finite"),
    *named(partial(softmax.matching_diagonal, UNITS, UNITS), floor=0.0, spread=-1.0),
    (lambda: COEFFICIENTS.Angular(PAIRS), "antithetic"),
    (lambda: COEFFICIENTS.Gaussian(PAIRS), "antithetic"),
    *named(partial(COEFFICIENTS.Gaussian, TAU), scale=0.0, of="product", estimator="exact", length=1.0),
    *named(partial(COEFFICIENTS.Gaussian, TAU, complement=True), length=0.0),
    (lambda: COEFFICIENTS.Matched(TAU, right=1j * REAL), "real"),
    (lambda: COEFFICIENTS.Constant(float("inf")), "finite"),
    (lambda: COEFFICIENTS.Clusters(X, Y, (0, -1)), "positions"),
    (lambda: COEFFICIENTS.Clusters(INFINITE, Y, (0, 0)), "finite matrix"),
    *named(partial(COEFFICIENTS.GaussianMixture, X, Y, (0, 0)), scale=-1.0),
    (lambda: softmax.Coefficient(0.0, HALF.left, COEFFICIENTS.Angular(TAU).right), "as many"),
    (lambda: softmax.Hybrid(POSITIVE, [(POSITIVE, HALF)]), "pair"),
    (lambda: softmax.Hybrid(GAUSSIAN, [(HALF, POSITIVE)]), "one kernel"),
    (lambda: softmax.bipolar(PAIRS, HALF), "antithetic"),
    *named(partial(softmax.angular_hybrid, num_dims=3, **SEEDED), num_features=35),
    *named(partial(softmax.angular_hybrid, 99, 3, **SEEDED), num_signs=0),
    *named(partial(softmax.angular_hybrid, 99, 3), generator=0),
    (lambda: softmax.clustered(INFINITE, Y, 100, **SEEDED), "finite vectors"),
    (lambda: softmax.clustered(X[:, :2], Y, 100, **SEEDED), "columns"),
    *named(partial(softmax.clustered, X, Y, **SEEDED), num_features=3),
    *named(partial(softmax.clustered, X, Y, 99, **SEEDED), num_clusters=(1, 2, 3)),
    (lambda: theory.softmax_variance(ONE, ONE[:2], 3), "same d"),
    (lambda: theory.softmax_variance(np.ones((2, 3)), np.ones((3, 3)), 3), "broadcast"),
    *named(partial(theory.softmax_variance, ONE, ONE), num_frequencies=0),
    *named(VARIANCE, estimator="cosine", kernel="linear", coupling="sobol"),
    *named(partial(VARIANCE, estimator="trigonometric"), coupling="simplex"),
    *named(partial(VARIANCE, estimator="exponential"), matrix=None),
    *named(partial(VARIANCE, estimator="exponential", coupling="orthogonal"), matrix=1j * ONE),
    *named(partial(theory.gaussian_moments, A, B, 4), of="product", scale=0.0, estimator="exact"),
]


@pytest.mark.parametrize(("call", "word"), REFUSED)
def test_bad_arguments_are_named(call, word):
    refused(call, rfgp.InvalidArgumentError, word)
