import inspect

import numpy as np
import pytest
import torch
from checks import assert_mean, fails
from estimators import COMPLEX, MAKERS, MATRICES, REAL, X, Y, draw
from hypothesis import given, settings
from hypothesis import strategies as st

import rfgp
from rfgp import couplings, features, random
from rfgp.features import softmax
from rfgp.features.softmax import exponential as module

BASIC = (softmax.Trigonometric, softmax.Positive)
KERNELS = ("softmax", "gaussian")
RANDOM = ("bipolar", "angular_hybrid", "gaussian_hybrid", "gaussian_hybrid, difference", "Hybrid")  # coefficients


def estimates(make, kernel="softmax", count=1000, m=5, d=3, name="orthogonal"):
    generator = random.generator(3)
    x, y = X[:, :d], Y[:, :d]
    return torch.stack([make(m, d, kernel, generator, name)(x, y) for _ in range(count)]).numpy()


def single_estimates(make, kernel="softmax", count=20_000, d=3):
    """Estimates from one independent frequency each, of one pair whose coefficients are not random."""
    pair = make(count, d, kernel, random.generator(3), "iid")
    products = pair.left(X[:, :d])[:, None] * pair.right(Y[:, :d])[None]  # (3, 2, F), a frequency every `count`
    return count * products.unflatten(-1, (-1, count)).sum(-2).movedim(-1, 0).numpy()


def check_unbiased(samples, kernel="softmax", d=3):
    x, y = X[:, :d].numpy(), Y[:, :d].numpy()
    inner, squares = x @ y.T, (x**2).sum(1)[:, None] + (y**2).sum(1)
    assert_mean(samples, np.exp(inner) if kernel == "softmax" else np.exp(inner - 0.5 * squares))


@pytest.mark.parametrize(
    ("kind", "d"),
    [(kind, d) for i, kind in enumerate(MAKERS) for d in ([3 - i % 2] if kind in RANDOM else [1 + i % 2, 3])],
)
@pytest.mark.slow
def test_estimates_are_unbiased(kind, d):
    kernel = KERNELS[d % 2]
    if kind in RANDOM:
        check_unbiased(estimates(MAKERS[kind], kernel, d=d, name="iid"), kernel, d)
    else:
        check_unbiased(single_estimates(MAKERS[kind], kernel, d=d), kernel, d)


@pytest.mark.parametrize(
    ("kind", "name"), [("Trigonometric", "sobol"), ("Exponential, complex", "pairwise"), ("angular_hybrid", "simplex")]
)
@pytest.mark.slow
def test_estimates_of_couplings_are_unbiased(kind, name):
    check_unbiased(estimates(MAKERS[kind], name=name))


@pytest.mark.slow
def test_of_antithetic_frequencies():
    for kind in ("Positive", "Exponential", "Exponential, complex"):
        check_unbiased(estimates(MAKERS[kind], m=4, name="orthogonal-antithetic"))


def test_no_estimator_is_forgotten():
    classes = {n for n, c in vars(softmax).items() if inspect.isclass(c) and issubclass(c, softmax.FeaturePair)}
    recipes = {n for n, f in vars(softmax).items() if inspect.isfunction(f)} - {"exact", "matching_diagonal"}
    assert classes | recipes == {name.split(",")[0] for name in MAKERS} | {"FeaturePair", "clustered"}


class TestPlantedErrors:
    def test_the_gaussian_kernel_for_softmax(self):
        assert fails(check_unbiased, estimates(MAKERS["Positive"], "gaussian"))

    def test_a_tenth_more_of_the_frequencies(self):
        def make(m, d, kernel, generator, name):
            return softmax.Trigonometric(1.1 * draw(m, d, generator, name).dense(), kernel)

        assert fails(check_unbiased, estimates(make))

    def test_the_inverse_for_its_transpose(self, monkeypatch):
        monkeypatch.setattr(module, "inverse_transpose", lambda matrix, d: torch.linalg.inv(matrix))
        assert fails(check_unbiased, estimates(MAKERS["Exponential"]))

    def test_no_conjugate_on_the_right(self):
        def make(*arguments):
            pair = MAKERS["Exponential, complex"](*arguments)
            pair.right.sign = 1.0
            return pair

        assert fails(check_unbiased, estimates(make))

    def test_a_coefficient_of_the_same_draw(self):
        def make(m, d, kernel, generator, name):
            frequencies = draw(m, d, generator, name)
            return softmax.bipolar(frequencies, softmax.coefficients.Gaussian(frequencies), kernel=kernel)

        assert fails(check_unbiased, estimates(make, m=1))

    def test_a_hybrid_whose_coefficients_do_not_sum_to_one(self):
        def make(m, d, kernel, generator, name):
            whole = MAKERS["between_centers"](m, d, kernel, generator, name)
            part = softmax.coefficients.Clusters(X[1:], Y, (0, 0))
            return softmax.Hybrid(None, [(part, whole)])

        assert fails(check_unbiased, single_estimates(make))


@pytest.mark.parametrize(("kind", "same"), [(BASIC[0], features.Fourier), (BASIC[1], features.Laplace)])
def test_features_of_the_gaussian_kernel_are_those_known(kind, same):
    weighted = couplings.by_name("energy", weighted=True).sample(8, 3, generator=random.generator(0))
    torch.testing.assert_close(kind(weighted, "gaussian").left(X), same(weighted)(X))


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_exact_kernel(kernel):
    x, y = X.numpy(), Y.numpy()
    dense = [[np.exp(a @ b) if kernel == "softmax" else np.exp(-0.5 * np.sum((a - b) ** 2)) for b in y] for a in x]
    np.testing.assert_allclose(softmax.exact(X, Y, kernel).numpy(), dense, rtol=1e-12)


class TestExponential:
    def twin(self, frequencies, matrix, kernel):
        """The estimator by its definition, in complex numbers, pair by pair."""
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
        frequencies = couplings.Frequencies(draw(4, 3, random.generator(0)).dense(), weights)
        pair = softmax.Exponential(frequencies, MATRICES[matrix], kernel)
        np.testing.assert_allclose(pair(X, Y).numpy(), self.twin(frequencies, MATRICES[matrix], kernel), rtol=1e-12)
        assert pair.is_positive == (not MATRICES[matrix].is_complex())
        assert pair.num_features == pair.left(X).shape[-1] == (4 if pair.is_positive else 8)

    @pytest.mark.parametrize("kernel", KERNELS)
    def test_the_identity_is_positive_and_i_times_it_trigonometric(self, kernel):
        frequencies, one = draw(4, 3, random.generator(0)), torch.eye(3, dtype=torch.float64)
        for factor, kind in ((1, softmax.Positive), (1j, softmax.Trigonometric)):
            for matrix in (factor * one, (factor * one).diagonal(), factor * one + 0j):
                pair, same = softmax.Exponential(frequencies, matrix, kernel), kind(frequencies, kernel)
                torch.testing.assert_close(pair.left(X), same.left(X), rtol=0, atol=1e-15)
                torch.testing.assert_close(pair.right(Y), same.right(Y), rtol=0, atol=1e-15)
                assert pair.is_positive == same.is_positive

    def test_logarithms_do_not_overflow(self):
        pair = softmax.Exponential(draw(4, 3, random.generator(0)), REAL)
        torch.testing.assert_close(pair.left.log_values(X).exp(), pair.left(X))
        assert pair.left.log_values(500 * X.float()).isfinite().all()

    def test_structured_frequencies(self):
        frequencies = draw(8, 3, random.generator(0), "structured")
        pair, dense = (softmax.Exponential(f, COMPLEX) for f in (frequencies, frequencies.dense()))
        torch.testing.assert_close(pair(X, Y), dense(X, Y))

    def test_gradients_in_the_matrix(self):
        frequencies = draw(2, 3, random.generator(0))
        for matrix in (REAL, COMPLEX, COMPLEX.diagonal()):
            a = matrix.clone().requires_grad_()
            assert torch.autograd.gradcheck(lambda a: softmax.Exponential(frequencies, a)(X, Y), a)

    @pytest.mark.parametrize(
        ("matrix", "message"),
        [
            (torch.zeros(3), "singular"),
            (torch.ones(3, 3), "singular"),
            (1j * torch.ones(3, 3), "singular"),
            (torch.tensor([1.0, float("nan"), 1.0]), "must be finite"),
            (torch.eye(2), "shape"),
            (torch.ones(1, 3, 3), "shape"),
            (torch.ones(3, dtype=torch.int64), "floating-point"),
            (None, "floating-point"),
            ([1.0, 1.0, 1.0], "floating-point"),
        ],
    )
    def test_bad_matrices(self, matrix, message):
        with pytest.raises(rfgp.InvalidArgumentError, match=message):
            softmax.Exponential(draw(4, 3, random.generator(0)), matrix)

    def test_antithetic_frequencies_are_refused(self):
        frequencies = draw(4, 3, random.generator(0), "iid-antithetic")
        with pytest.raises(rfgp.InvalidArgumentError, match="antithetic"):
            softmax.Exponential(frequencies, 1j * torch.ones(3))
        with pytest.raises(rfgp.InvalidArgumentError, match="kernel must be one of"):
            softmax.Exponential(frequencies, torch.ones(3), "linear")


class TestMatchingDiagonal:
    def test_nothing_varies_between_the_two_points(self):
        generator = random.generator(5)
        r, s = torch.tensor([0.5, -0.7, 1.0, 2.0]).double(), torch.tensor([0.3, 0.9, 2.0, -1.0]).double()
        for right in (s, -r.sign() * s.abs()):
            a = softmax.matching_diagonal(r, right)
            torch.testing.assert_close(a * r + right / a, torch.zeros(4) + 0 * a, rtol=0, atol=1e-14)
            pair = softmax.Exponential(draw(1, 4, generator), a)
            torch.testing.assert_close(pair(r[None], right[None]), (r @ right).exp()[None, None])
        assert not a.is_complex()
        assert pair.is_positive

    def test_zero_entries(self):
        r, s = torch.tensor([0.0, 1.0, 0.0, 2.0]), torch.tensor([0.0, 0.0, 1.0, -2.0])
        a = softmax.matching_diagonal(r, s)
        assert a.isfinite().all()
        assert not a.is_complex()
        assert float(a[0]) == 1
        assert float(a[1]) == pytest.approx(1 / float(a[2]))
        assert softmax.matching_diagonal(torch.zeros(2), torch.zeros(2)).tolist() == [1, 1]
        assert softmax.matching_diagonal(torch.ones(1), torch.ones(1)).tolist() == [1j]

    def test_a_real_one(self):
        """The least |a r + s / a|^2 over real a, which leaves 4 r s where signs agree (hybrid paper, Eq. 88)."""
        r, s = torch.tensor([0.5, -0.7, 1.0, 2.0]).double(), torch.tensor([0.3, 0.9, 2.0, -1.0]).double()
        a = softmax.matching_diagonal(r, s, real=True)
        assert not a.is_complex()
        torch.testing.assert_close(a, (s / r).abs().sqrt())
        grid = torch.cat([-torch.logspace(-2, 2, 4001), torch.logspace(-2, 2, 4001)]).double()[:, None]
        left = (a * r + s / a).square()
        np.testing.assert_allclose(left, ((grid * r + s / grid) ** 2).amin(0), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(left, 4 * (r * s).clamp_min(0), atol=1e-12)

    def test_a_spread(self):
        """The least mean of |a x + y / a|^2 over the real and the imaginary a of a grid."""
        generator = random.generator(0)
        for r, s in ((0.5, 0.2), (-0.5, 0.7), (0.0, 0.3), (0.0, 0.0)):
            x, y = (c + 0.4 * torch.randn(100_000, generator=generator, dtype=torch.float64) for c in (r, s))
            points = (torch.tensor([v], dtype=torch.float64) for v in (r, s))
            a = complex(softmax.matching_diagonal(*points, spread=0.4, floor=1e-9))
            costs = {
                b: float((b * x + y / b).abs().square().mean()) for u in np.linspace(0.5, 2, 61) for b in (u, 1j * u)
            }
            assert float((a * x + y / a).abs().square().mean()) < min(costs.values()) + 0.01

    def test_bad_points(self):
        one = torch.ones(2)
        for r, s in ((one, torch.ones(3)), (one[None], one[None]), (one, one / 0), (one.long(), one)):
            with pytest.raises(rfgp.InvalidArgumentError, match="finite floating-point vectors"):
                softmax.matching_diagonal(r, s)
        with pytest.raises(rfgp.InvalidArgumentError, match="floor must be positive"):
            softmax.matching_diagonal(one, one, floor=0.0)
        with pytest.raises(rfgp.InvalidArgumentError, match="spread must be"):
            softmax.matching_diagonal(one, one, spread=-1.0)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(sorted(MAKERS)),
    d=st.integers(1, 3),
    m=st.integers(1, 4),
    sizes=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    batch=st.lists(st.integers(0, 2), max_size=2),
    kernel=st.sampled_from(KERNELS),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_shapes_and_dtypes(kind, d, m, sizes, batch, kernel, dtype):
    pair = MAKERS[kind](m, d, kernel, random.generator(0), "iid")
    generator = random.generator(1)
    x, y = (0.3 * torch.randn(*batch, n, d, generator=generator, dtype=dtype) for n in sizes)
    out = pair(x, y)
    assert out.shape == (*batch, *sizes)
    assert out.dtype == pair.left(x).dtype == dtype
    assert pair.left(x).shape == (*batch, sizes[0], pair.num_features)
    assert pair.right(y).shape == (*batch, sizes[1], pair.num_features)
    torch.testing.assert_close(out.double(), pair(x.double(), y.double()), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", MAKERS)
def test_vectors_that_coincide(kind):
    """Zero, the same, opposite and collinear vectors."""
    v = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64)
    x = torch.stack([0 * v, v, -v, 2 * v])
    pair = MAKERS[kind](500, 3, "softmax", random.generator(0), "iid")
    torch.testing.assert_close(pair(x, x), softmax.exact(x, x), rtol=0.3, atol=0.3)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", MAKERS)
def test_gradients(kind, kernel):
    pair = MAKERS[kind](2, 3, kernel, random.generator(0), "iid")
    x, y = (0.1 + t.clone()[:2] for t in (X, Y))
    assert torch.autograd.gradcheck(pair, (x.requires_grad_(), y.requires_grad_()))


@pytest.mark.parametrize("kind", MAKERS)
def test_inputs_with_other_columns_are_refused(kind):
    pair = MAKERS[kind](2, 3, "softmax", random.generator(0), "iid")
    with pytest.raises(rfgp.InvalidArgumentError, match="3 columns"):
        pair(torch.ones(2, 4), torch.ones(2, 4))


def test_other_objects_than_pairs_are_refused():
    frequencies = draw(4, 3, random.generator(0))
    left, right = softmax.Positive(frequencies).left, softmax.Positive(frequencies, "gaussian").right
    with pytest.raises(rfgp.InvalidArgumentError, match="equal kernels"):
        softmax.FeaturePair(left, right)
    with pytest.raises(rfgp.InvalidArgumentError, match="kernel must be one of"):
        softmax.Positive(frequencies, "linear")
    with pytest.raises(rfgp.InvalidArgumentError, match="antithetic"):
        softmax.Trigonometric(draw(4, 3, random.generator(0), "iid-antithetic"))
