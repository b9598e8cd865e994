import numpy as np
import pytest
import torch
from checks import assert_mean, fails

import rfgp
from rfgp import couplings, features, random
from rfgp.features import softmax

X = torch.tensor([[0.1, -0.2, 0.3], [0.4, 0.0, -0.1], [-0.3, 0.2, 0.1]], dtype=torch.float64)  # |x + y| <= 1
Y = torch.tensor([[0.2, 0.1, -0.3], [-0.1, 0.3, 0.2]], dtype=torch.float64)
BASIC = (softmax.Trigonometric, softmax.Positive)


def estimates(make, kernel="softmax", count=2000, m=5, name="orthogonal"):
    generator = random.generator(3)
    pairs = (make(couplings.by_name(name).sample(m, 3, generator=generator), kernel) for _ in range(count))
    return torch.stack([pair(X, Y) for pair in pairs]).numpy()


def check_unbiased(samples, kernel="softmax"):
    inner, squares = X.numpy() @ Y.numpy().T, (X**2).sum(1).numpy()[:, None] + (Y**2).sum(1).numpy()
    assert_mean(samples, np.exp(inner) if kernel == "softmax" else np.exp(inner - 0.5 * squares))


@pytest.mark.parametrize("name", ["iid", "pairwise", "simplex", "sobol"])
@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
@pytest.mark.parametrize("kind", BASIC)
def test_estimates_are_unbiased(kind, kernel, name):
    check_unbiased(estimates(kind, kernel, name=name), kernel)


class TestPlantedErrors:
    def test_the_gaussian_kernel_for_softmax(self):
        assert fails(check_unbiased, estimates(softmax.Positive, "gaussian"))

    def test_twice_the_frequencies(self):
        def make(frequencies, kernel):
            return softmax.Trigonometric(1.1 * frequencies.dense(), kernel)

        assert fails(check_unbiased, estimates(make))


@pytest.mark.parametrize(("kind", "same"), [(BASIC[0], features.Fourier), (BASIC[1], features.Laplace)])
def test_features_of_the_gaussian_kernel_are_those_known(kind, same):
    draw = couplings.by_name("energy", weighted=True).sample(8, 3, generator=random.generator(0))
    torch.testing.assert_close(kind(draw, "gaussian").left(X), same(draw)(X))


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
def test_the_exact_kernel(kernel):
    x, y = X.numpy(), Y.numpy()
    dense = [[np.exp(a @ b) if kernel == "softmax" else np.exp(-0.5 * np.sum((a - b) ** 2)) for b in y] for a in x]
    np.testing.assert_allclose(softmax.exact(X, Y, kernel).numpy(), dense, rtol=1e-12)


def test_what_is_no_pair():
    draw = couplings.IID().sample(4, 3, generator=random.generator(0))
    left, right = softmax.Positive(draw).left, softmax.Positive(draw, "gaussian").right
    with pytest.raises(rfgp.InvalidArgumentError, match="no pair"):
        softmax.FeaturePair(left, right)
    with pytest.raises(rfgp.InvalidArgumentError, match="kernel must be one of"):
        softmax.Positive(draw, "linear")
    with pytest.raises(rfgp.InvalidArgumentError, match="repeat each other"):
        softmax.Trigonometric(couplings.by_name("iid-antithetic").sample(4, 3, generator=random.generator(0)))
