import numpy as np
import pytest
import torch

import rfgp
from rfgp import lengthscales, random


class TestNeighborDistance:
    def test_it_is_the_mean_of_one_column_of_the_sorted_distances(self):
        x = np.random.default_rng(0).standard_normal((300, 3))
        distances = np.sort(np.linalg.norm(x[:, None] - x, axis=2), axis=1)
        assert lengthscales.neighbor_distance(x) == pytest.approx(distances[:, 50].mean())
        assert lengthscales.neighbor_distance(torch.as_tensor(x), 3) == pytest.approx(distances[:, 3].mean())
        chosen = random.numpy_generator(4, random.Role.SPLIT).permutation(300)[:20]
        found = lengthscales.neighbor_distance(x, num_points=20, seed=4)
        assert found == pytest.approx(distances[chosen, 50].mean())

    def test_bad_inputs(self):
        with pytest.raises(rfgp.InvalidArgumentError, match="at least 51"):
            lengthscales.neighbor_distance(np.ones((50, 2)))
        with pytest.raises(rfgp.InvalidArgumentError, match="copies of itself"):
            lengthscales.neighbor_distance(np.ones((60, 2)))
        with pytest.raises(rfgp.InvalidArgumentError, match="neighbors must be a positive integer"):
            lengthscales.neighbor_distance(np.ones((60, 2)), 0)


def two_clusters(n, seed):
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, 2, n)
    return rng.standard_normal((n, 3)) + 4 * classes[:, None] - 2, classes


class TestTunedToClasses:
    PUBLISHED = (0.41331138, 1.06445901, 0.77656608, 0.90918797, 0.48389667, 0.18788887, 0.21997651, 0.25754408)

    def test_the_published_scales_are_on_the_grid(self):
        for sigma in self.PUBLISHED:
            assert np.abs(lengthscales.SCALES - sigma).min() < 1e-8

    def test_it_is_where_most_classes_are_right(self):
        (a, p), (b, q) = two_clusters(200, 0), two_clusters(100, 1)
        scales = [1e-3, 0.5, 8.0]
        found, accuracies = lengthscales.tuned_to_classes(a, p, b, q, scales=scales, num_draws=3)
        assert found == pytest.approx(2.0)
        assert accuracies[1] > 0.9
        again = lengthscales.class_accuracies("iid", a / 2, p, b / 2, q, 30, 3)
        assert accuracies[1] == again.mean()

    def test_accuracies_are_those_of_the_estimated_kernel(self):
        (a, p), (b, q) = two_clusters(30, 0), two_clusters(20, 1)
        generator = random.generator(5, random.Role.FREQUENCIES)
        expected = []
        for _ in range(4):
            phi = rfgp.features.Laplace(rfgp.couplings.by_name("simplex").sample(3, 3, generator=generator))
            kernel = (phi(torch.as_tensor(b)) @ phi(torch.as_tensor(a)).T).numpy()
            votes = np.array([kernel[:, p == c].sum(1) for c in (0, 1)])
            expected.append((votes.argmax(0) == q).mean())
        np.testing.assert_allclose(lengthscales.class_accuracies("simplex", a, p, b, q, 3, 4, seed=5), expected)

    def test_bad_inputs(self):
        a, p = two_clusters(30, 0)
        for classes in (p[:-1], p - 1, p + 0.5, ["a"] * 30):
            with pytest.raises(rfgp.InvalidArgumentError):
                lengthscales.tuned_to_classes(a, classes, a, p)
        for scales in ([], [0.0], [np.inf]):
            with pytest.raises(rfgp.InvalidArgumentError, match="scales"):
                lengthscales.tuned_to_classes(a, p, a, p, scales=scales)
