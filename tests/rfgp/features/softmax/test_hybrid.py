import numpy as np
import pytest
import torch
from checks import assert_mean, fails
from estimators import MAKERS, REAL, X, Y, draw
from sklearn.datasets import make_blobs

import rfgp
from rfgp import couplings, random
from rfgp.features import softmax
from rfgp.features.softmax import coefficients

INNER, NORMS = X @ Y.mT, X.norm(dim=1)[:, None] * Y.norm(dim=1)
ANGLES = (torch.arccos(INNER / NORMS) / torch.pi).numpy()
SQUARES = {"difference": torch.cdist(X, Y).square().numpy(), "sum": torch.cdist(X, -Y).square().numpy()}


def lambdas(make, count=1000, name="iid", n=5):
    generator = random.generator(4)
    return torch.stack([make(draw(n, 3, generator, name))(X, Y) for _ in range(count)]).numpy()


def check_angles(samples):
    assert_mean(samples, ANGLES)


def check_gaussian(samples, of, complement, scale):
    values = np.exp(-SQUARES[of] / (2 * scale**2))
    assert_mean(samples, 1 - values if complement else values)


class TestCoefficients:
    @pytest.mark.parametrize("name", ["iid", "orthogonal", "simplex", "sobol", "leverage"])
    def test_angles(self, name):
        check_angles(lambdas(coefficients.Angular, name=name))

    def test_angles_by_definition(self):
        """The share of hyperplanes that part x from y."""
        tau = draw(9, 3, random.generator(0))
        above = [[np.sign(w @ v) for w in tau.dense().numpy()] for v in torch.cat([X, Y]).numpy()]
        parted = [[np.mean(np.not_equal(a, b)) for b in above[3:]] for a in above[:3]]
        np.testing.assert_allclose(coefficients.Angular(tau)(X, Y).numpy(), parted, atol=1e-15)

    def test_only_directions_matter(self):
        tau = draw(9, 3, random.generator(0)).dense()
        one, other = coefficients.Angular(tau), coefficients.Angular(tau / tau.norm(dim=1, keepdim=True))
        assert torch.equal(one(X, Y), other(X, Y))

    def test_angles_at_the_ends(self):
        coefficient = coefficients.Angular(draw(9, 3, random.generator(0)))
        found = coefficient(X[:1], torch.stack([3 * X[0], -X[0], 0 * X[0]])).numpy()
        np.testing.assert_allclose(found, [[0, 1, 0.5]], atol=1e-15)

    @pytest.mark.parametrize("complement", [False, True])
    @pytest.mark.parametrize("of", ["difference", "sum"])
    def test_gaussian(self, of, complement):
        def make(tau):
            return coefficients.Gaussian(tau, 0.5, of=of, complement=complement)

        check_gaussian(lambdas(make), of, complement, 0.5)
        exact = make(draw(3, 3, random.generator(0)))(X, X if of == "difference" else -X).diagonal()
        torch.testing.assert_close(exact, torch.full((3,), 0.0 if complement else 1.0).double())

    @pytest.mark.slow
    @pytest.mark.parametrize("estimator", ["trigonometric", "positive"])
    def test_the_normalized_gaussian(self, estimator):
        """(1 - exp(-|x - y|^2 / (2 tau^2))) / rho (hybrid paper, Eqs. 67 to 70): known at one end of a sphere."""
        scale, length = 0.8, 0.6
        options = {"complement": True, "length": length, "estimator": estimator}
        rho = 1 - np.exp(-2 * length**2 / scale**2)

        def make(tau):
            return coefficients.Gaussian(tau, scale, **options)

        samples = lambdas(make, 1500)
        values = 1 - np.exp(-SQUARES["difference"] / (2 * scale**2))
        assert_mean(samples, values / rho)
        assert fails(assert_mean, samples, values)  # rho = 1
        one = length * X / X.norm(dim=1, keepdim=True)
        found = make(draw(3, 3, random.generator(0)))
        ends = [found(one, sign * one).diagonal() for sign in (1, -1)]
        exact = 0 if estimator == "trigonometric" else 1
        torch.testing.assert_close(ends[exact], torch.full((3,), float(exact)).double())
        assert (ends[1 - exact] - (1 - exact)).abs().min() > 1e-3

    @pytest.mark.slow
    @pytest.mark.parametrize("estimator", ["trigonometric", "positive"])
    def test_matched(self, estimator):
        """exp(-|L x + R y|^2 / (2 tau^2)): Eq. 20 with L = I, and any L."""
        for left, right in ((None, REAL), (REAL, REAL.diagonal()), (REAL.diagonal(), None)):

            def make(tau, a=left, b=right):
                return coefficients.Matched(tau, a, b, 0.9, estimator=estimator)

            u, v = (z if a is None else z * a if a.ndim == 1 else z @ a.mT for z, a in ((X, left), (Y, right)))
            values = np.exp(-(torch.cdist(u, -v) ** 2).numpy() / (2 * 0.9**2))
            samples = lambdas(make)
            assert_mean(samples, values)
            assert fails(assert_mean, samples, np.exp(-(torch.cdist(u, v) ** 2).numpy() / (2 * 0.9**2)))

    def test_clusters(self):
        grid = [[coefficients.Clusters(X, Y, (i, j))(X, Y) for j in range(2)] for i in range(3)]
        for i in range(3):
            for j in range(2):
                expected = torch.zeros(3, 2).double()
                expected[i, j] = 1
                torch.testing.assert_close(grid[i][j], expected)

    def test_mixtures(self):
        points = random.numpy_generator(0).standard_normal((7, 3))
        left = np.exp(-((points[:, None] - X.numpy()) ** 2).sum(-1) / (2 * 0.7**2))
        right = np.exp(-((points[:, None] - Y.numpy()) ** 2).sum(-1) / (2 * 0.7**2))
        left, right = (a / a.sum(1, keepdims=True) for a in (left, right))
        p, total = torch.as_tensor(points), 0
        for i in range(3):
            for j in range(2):
                found = coefficients.GaussianMixture(X, Y, (i, j), 0.7)(p, p).numpy()
                np.testing.assert_allclose(found, np.outer(left[:, i], right[:, j]), rtol=1e-12)
                total = total + found
                sharp = coefficients.GaussianMixture(X, Y, (i, j), 1e-9)(p, p)
                torch.testing.assert_close(sharp, coefficients.Clusters(X, Y, (i, j))(p, p))
        np.testing.assert_allclose(total, 1)

    def test_a_constant(self):
        coefficient = coefficients.Constant(-0.5)
        assert coefficient.num_features == 0
        torch.testing.assert_close(coefficient(X, Y), torch.full((3, 2), -0.5).double())

    def test_bad_arguments(self):
        tau = draw(4, 3, random.generator(0))
        opposite = draw(4, 3, random.generator(0), "iid-antithetic")
        for make, message in (
            (lambda: coefficients.Angular(opposite), "antithetic"),
            (lambda: coefficients.Gaussian(opposite), "antithetic"),
            (lambda: coefficients.Gaussian(tau, 0.0), "scale must be positive"),
            (lambda: coefficients.Gaussian(tau, float("nan")), "scale must be positive"),
            (lambda: coefficients.Gaussian(tau, of="product"), "of must be"),
            (lambda: coefficients.Gaussian(tau, estimator="exact"), "estimator must be"),
            (lambda: coefficients.Gaussian(tau, length=1.0), "length must be None"),
            (lambda: coefficients.Gaussian(tau, complement=True, length=0.0), "length must be positive"),
            (lambda: coefficients.Matched(tau, scale=0.0), "scale must be positive"),
            (lambda: coefficients.Matched(tau, right=1j * REAL), "must be real"),
            (lambda: coefficients.Matched(tau, REAL[:2]), "diagonal"),
            (lambda: coefficients.Constant(float("inf")), "must be finite"),
            (lambda: coefficients.Clusters(X, Y, (3, 0)), "positions of centers below 3"),
            (lambda: coefficients.Clusters(X[0], Y, (0, 0)), "finite matrix"),
            (lambda: coefficients.Clusters(X / 0, Y, (0, 0)), "finite matrix"),
            (lambda: coefficients.GaussianMixture(X, Y, (0, 0), -1.0), "scale must be positive"),
            (lambda: softmax.Coefficient(0.0, coefficients.Constant(0).left, coefficients.Angular(tau).right), "many"),
        ):
            with pytest.raises(rfgp.InvalidArgumentError, match=message):
                make()


class TestPlantedErrors:
    """A wrong coefficient leaves a hybrid unbiased, so coefficients have checks of their own."""

    def test_an_angle_in_place_of_its_supplement(self):
        def angular(tau):
            found = coefficients.Angular(tau)
            found.right.sign = 1.0
            return found

        assert fails(check_angles, lambdas(angular))

    def test_directions_that_are_not_uniform(self):
        stretch = torch.tensor([1.0, 1.5, 1.0], dtype=torch.float64)
        assert fails(check_angles, lambdas(lambda tau: coefficients.Angular(tau.dense() * stretch), 4000))

    def test_a_scale_without_its_square(self):
        samples = lambdas(lambda tau: coefficients.Gaussian(tau, 0.5**0.5))
        assert fails(check_gaussian, samples, "difference", False, 0.5)

    def test_the_difference_for_the_sum(self):
        assert fails(check_gaussian, lambdas(coefficients.Gaussian), "sum", False, 1.0)


def twin(base, parts, x, y):
    """The mixture of estimates, without features."""
    weights = [coefficient(x, y) for coefficient, _ in parts]
    mixed = sum(weight * pair(x, y) for weight, (_, pair) in zip(weights, parts, strict=True))
    return mixed if base is None else mixed + (1 - sum(weights)) * base(x, y)


class TestHybrid:
    def parts(self, generator, kernel):
        tau, gamma, omega = (draw(n, 3, generator) for n in (3, 2, 4))
        return [
            (coefficients.Angular(tau), softmax.Positive(omega, kernel)),
            (
                coefficients.Gaussian(gamma, complement=True),
                MAKERS["Exponential, complex"](3, 3, kernel, generator, "iid"),
            ),
            (coefficients.Constant(-0.2), MAKERS["Exponential"](3, 3, kernel, generator, "iid")),
            (coefficients.Clusters(X, Y, (1, 1)), softmax.Trigonometric(omega, kernel)),
        ]

    @pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
    @pytest.mark.parametrize("count", [1, 2, 3, 4])
    def test_features_are_those_of_the_mixture(self, kernel, count):
        generator = random.generator(0)
        parts = self.parts(generator, kernel)[:count]
        for base in (None, softmax.Trigonometric(draw(5, 3, generator), kernel)):
            hybrid = softmax.Hybrid(base, parts)
            torch.testing.assert_close(hybrid(X, Y), twin(base, parts, X, Y))
            assert hybrid.num_features == hybrid.left(X).shape[-1]
            assert not hybrid.is_positive
            outer = [(coefficients.Constant(0.4), hybrid), parts[0]]
            torch.testing.assert_close(softmax.Hybrid(hybrid, outer)(X, Y), twin(hybrid, outer, X, Y))

    def test_a_planted_sign_is_found(self, monkeypatch):
        parts = self.parts(random.generator(0), "softmax")
        base = softmax.Trigonometric(draw(5, 3, random.generator(1)))
        hybrid = softmax.Hybrid(base, parts)
        monkeypatch.setattr(hybrid.right, "sign", 1.0)
        assert fails(torch.testing.assert_close, hybrid(X, Y), twin(base, parts, X, Y))

    def test_where_one_estimator_is_exact_so_is_the_hybrid(self):
        for of, sign in (("difference", 1), ("sum", -1)):
            hybrid = softmax.gaussian_hybrid(200, 3, of=of, generator=random.generator(0))
            for x in X:
                torch.testing.assert_close(hybrid(x[None], sign * x[None]), (sign * x @ x).exp()[None, None])
        angular = softmax.angular_hybrid(200, 3, generator=random.generator(0))
        for x in X:
            both = torch.stack([x, -x])
            torch.testing.assert_close(angular(x[None], both), softmax.exact(x[None], both))

    @pytest.mark.slow
    def test_gradients_are_unbiased_though_signs_have_none(self):
        generator, found = random.generator(0), []
        for _ in range(1000):
            x = X[:1].clone().requires_grad_()
            pair = softmax.angular_hybrid(36, 3, num_signs=2, coupling="iid", generator=generator)
            found.append(torch.autograd.grad(pair(x, Y[:1]).sum(), x)[0])
        assert_mean(torch.stack(found).numpy(), ((X[0] @ Y[0]).exp() * Y[:1]).numpy())

    def test_overflow_at_zero_coefficients_has_no_effect(self):
        """Far from its clusters an estimator overflows, where its coefficient is 0."""
        centers = torch.tensor([[1.0, 1e-3], [40.0, 40.0]])
        pair = softmax.between_centers(draw(4, 2, random.generator(0)), centers, centers / 40, floor=1e-4)
        assert pair(centers, centers / 40).isfinite().all()

    def test_a_draw_of_generators_is_repeated(self):
        for recipe in (softmax.angular_hybrid, softmax.gaussian_hybrid):
            first, second = (recipe(100, 3, generator=random.generator(7)) for _ in range(2))
            assert torch.equal(first(X, Y), second(X, Y))
            assert first.num_features <= 100

    def test_bad_parts(self):
        omega = draw(4, 3, random.generator(0))
        positive, half = softmax.Positive(omega), coefficients.Constant(0.5)
        gaussian, opposite = softmax.Positive(omega, "gaussian"), draw(4, 3, random.generator(0), "iid-antithetic")
        generator = random.generator(0)
        for make, message in (
            (lambda: softmax.Hybrid(positive, []), "at least one pair"),
            (lambda: softmax.Hybrid(positive, [(positive, half)]), "pairs of a coefficient and an estimator"),
            (lambda: softmax.Hybrid(positive, [(0.5, positive)]), "pairs of a coefficient and an estimator"),
            (lambda: softmax.Hybrid(gaussian, [(half, positive)]), "one kernel"),
            (lambda: softmax.Hybrid(None, [(half, positive), (half, gaussian)]), "one kernel"),
            (lambda: softmax.bipolar(opposite, half), "antithetic"),
            (lambda: softmax.angular_hybrid(35, 3, generator=generator), "at least 36 for one frequency"),
            (lambda: softmax.angular_hybrid(100, 3, num_signs=0, generator=generator), "num_signs must be"),
            (lambda: softmax.angular_hybrid(100, 3, coupling="best", generator=generator), "best"),
            (lambda: softmax.angular_hybrid(100, 3, generator=0), "torch.Generator"),
            (lambda: softmax.gaussian_hybrid(100, 3, scale=-1.0, generator=generator), "scale must be"),
            (lambda: softmax.gaussian_hybrid(100, 3, of="mean", generator=generator), "of must be"),
            (lambda: softmax.gaussian_hybrid(2.5, 3, generator=generator), "num_features must be"),
        ):
            with pytest.raises(rfgp.InvalidArgumentError, match=message):
                make()


class TestClustered:
    def data(self, spread=0.05):
        centers = np.array([[0.9, -0.5, 0.7], [-0.6, 0.8, 0.5]])
        x, _ = make_blobs(200, centers=centers, cluster_std=spread, random_state=0)
        y, _ = make_blobs(150, centers=centers[::-1] + 0.2, cluster_std=spread, random_state=1)
        return torch.as_tensor(x), torch.as_tensor(y)

    @pytest.mark.parametrize("scale", [None, 0.2])
    def test_it_beats_others_on_clusters(self, scale):
        x, y = self.data()
        exact, squares = softmax.exact(x, y), {}
        for seed in range(20):
            generator = random.generator(seed)
            pairs = {
                "clustered": softmax.clustered(x, y, 160, scale=scale, generator=generator),
                "positive": softmax.Positive(draw(160, 3, generator, "orthogonal")),
                "trigonometric": softmax.Trigonometric(draw(80, 3, generator, "orthogonal")),
            }
            assert pairs["clustered"].num_features <= 160
            for name, pair in pairs.items():
                squares.setdefault(name, []).append(float((pair(x, y) / exact - 1).square().mean()))
        errors = {name: np.mean(found) for name, found in squares.items()}
        assert errors["clustered"] < 0.5 * min(errors["positive"], errors["trigonometric"]), errors

    def test_wide_clusters_need_their_spread(self):
        x, y = self.data(0.5)
        exact, errors = softmax.exact(x, y), []
        for spread in (0.0, None):
            pairs = (softmax.clustered(x, y, 160, spread=spread, generator=random.generator(s)) for s in range(20))
            errors.append(np.median([float((pair(x, y) / exact - 1).square().mean()) for pair in pairs]))
        assert errors[1] < 0.5 * errors[0], errors

    def test_it_is_exact_at_centers(self):
        x, y = self.data(0.0)
        pair = softmax.clustered(x, y, 8, generator=random.generator(0))
        torch.testing.assert_close(pair(x, y), softmax.exact(x, y))

    def test_several_numbers_of_clusters(self):
        x, y = self.data()
        pair = softmax.clustered(x.float(), y.float(), 100, num_clusters=(2, 3), generator=random.generator(0))
        assert pair(x.float(), y.float()).dtype == torch.float32
        assert 0 < pair.num_features <= 100
        again = softmax.clustered(x.float(), y.float(), 100, num_clusters=(2, 3), generator=random.generator(0))
        assert torch.equal(pair(x, y), again(x, y))

    def test_real_diagonals_and_given_centers(self):
        """Hybrid paper, Definition H.2 with Eq. 88: features exp(omega . A x - |A x|^2 / 2) of the nearest centers."""
        omega = draw(5, 3, random.generator(2))
        pair, total = softmax.between_centers(omega, X, Y, real=True), np.zeros((3, 2))
        for i, r in enumerate(X.numpy()):
            for j, s in enumerate(Y.numpy()):
                a = softmax.matching_diagonal(X[i], Y[j], real=True).numpy()
                rows = [np.exp(omega.dense().numpy() @ v - v @ v / 2) for v in (a * r, s / a)]
                total[i, j] = np.mean(rows[0] * rows[1])
        np.testing.assert_allclose(pair(X, Y).numpy(), total, rtol=1e-12)
        assert pair.num_features == 5 * 6
        x, y = self.data()
        drawn = softmax.clustered(x, y, 80, real=True, spread=0.0, generator=random.generator(0))
        assert drawn.num_features == 80
        assert (drawn(x, y) > 0).all()

    def test_the_gaussian_mixture_by_its_definition(self):
        """Hybrid paper, Definition H.1 with Eqs. 91, 92, 95 and 96, real diagonals, vectors apart from the centers."""
        generator, tau = random.generator(2), 0.8
        omega, others = (draw(n, 3, generator).dense() for n in (5, 4))
        base = softmax.Positive(draw(6, 3, generator))
        pair = softmax.gaussian_between_centers(base, omega, others, X[:2], Y, scale=tau, real=True)
        x, y = 1.1 * X, Y - 0.05
        total, rest = np.zeros((3, 2)), np.ones((3, 2))
        for r in X[:2]:
            for s in Y:
                a = softmax.matching_diagonal(r, s, real=True).numpy()
                u, v = a * x.numpy(), y.numpy() / a
                scores, weights = (
                    [np.exp(sign * z @ w.numpy().T / t - (z**2).sum(1, keepdims=True) / c) for z, sign in pairs]
                    for w, t, c, pairs in (
                        (omega, 1, 2, [(u, 1), (v, 1)]),
                        (others, tau, tau**2, [(u, 1), (v, -1)]),
                    )
                )
                weight = weights[0] @ weights[1].T / 4
                total, rest = total + weight * (scores[0] @ scores[1].T / 5), rest - weight
        np.testing.assert_allclose(pair(x, y).numpy(), total + rest * base(x, y).numpy(), rtol=1e-10)

    def test_the_gaussian_mixture_is_exact_at_its_centers(self):
        """Also where A is complex, and Eq. 93 as it stands would not be 1."""
        generator = random.generator(2)
        omega, others = (draw(n, 3, generator) for n in (5, 4))
        for x, y in ((X[:1], Y[:1]), (X[:1], -Y[:1]), (X[1:2] + 0.2, Y[1:2])):
            options = {"estimator": "trigonometric", "floor": 1e-6}
            base = softmax.Positive(draw(6, 3, generator))
            pair = softmax.gaussian_between_centers(base, omega, others, x, y, **options)
            torch.testing.assert_close(pair(x, y), softmax.exact(x, y))

    def test_bad_data(self):
        x, y = self.data()
        generator = random.generator(0)
        for make, message in (
            (lambda: softmax.clustered(x[:1], y, 100, generator=generator), "at least 2 for as many clusters"),
            (lambda: softmax.clustered(x / 0, y, 100, generator=generator), "must be finite vectors"),
            (lambda: softmax.clustered(x, y[:, :2], 100, generator=generator), "as many columns"),
            (lambda: softmax.clustered(x[0], y, 100, generator=generator), "as many columns"),
            (lambda: softmax.clustered(x, y, 3, generator=generator), "num_features must be at least"),
            (lambda: softmax.clustered(x, y, 100, num_clusters=0, generator=generator), "num_clusters must be"),
            (lambda: softmax.clustered(x, y, 100, num_clusters=(1, 2, 3), generator=generator), "num_clusters must be"),
            (lambda: softmax.between_centers(couplings.Frequencies(x[:3]), x[:2], y[0]), "finite"),
        ):
            with pytest.raises(rfgp.InvalidArgumentError, match=message):
                make()


@pytest.mark.parametrize("of", ["sum", "difference"])
def test_gradients_at_a_zero_vector(of):
    """Coefficients have features that are exactly 0 there, and a gradient all the same."""
    pair = softmax.gaussian_hybrid(80, 3, of=of, generator=random.generator(0))
    x = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([[0.3, 0.5, -0.2]], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: pair(x, y), x)
