"""Estimators of the softmax kernel of every kind, and the vectors on which they are tested."""

import torch

from rfgp import couplings
from rfgp.features import softmax
from rfgp.features.softmax import coefficients

X = torch.tensor([[0.1, -0.2, 0.3], [0.4, 0.0, -0.1], [-0.3, 0.2, 0.1]], dtype=torch.float64)  # |x + y| <= 1
Y = torch.tensor([[0.2, 0.1, -0.3], [-0.1, 0.3, 0.2]], dtype=torch.float64)
REAL = torch.tensor([[1.0, 0.4, -0.2], [0.1, -0.9, 0.3], [0.2, 0.0, 1.2]], dtype=torch.float64)
COMPLEX = torch.complex(REAL, torch.tensor([[0.3, -0.2, 0.1], [0.5, 0.2, 0.0], [-0.1, 0.4, 0.6]], dtype=torch.float64))
MATRICES = {"real": REAL, "diagonal": REAL.diagonal(), "complex": COMPLEX, "mixed": 1j * COMPLEX.diagonal()}


def draw(m, d, generator, name="iid"):
    return couplings.by_name(name).sample(m, d, generator=generator)


def exponential(matrix):
    def make(m, d, kernel, generator, name):
        a = MATRICES[matrix]
        return softmax.Exponential(draw(m, d, generator, name), a[:d] if a.ndim == 1 else a[:d, :d], kernel)

    return make


def basic(kind):
    return lambda m, d, kernel, generator, name: kind(draw(m, d, generator, name), kernel)


def angular(m, d, kernel, generator, name):
    return softmax.angular_hybrid(12 * m, d, num_signs=2, coupling=name, kernel=kernel, generator=generator)


def gaussian(of):
    def make(m, d, kernel, generator, name):
        options = {"num_coefficients": 2, "scale": 1.5, "of": of, "coupling": name, "kernel": kernel}
        return softmax.gaussian_hybrid(18 * m, d, generator=generator, **options)

    return make


def centers(scale):
    def make(m, d, kernel, generator, name):
        return softmax.between_centers(draw(m, d, generator, name), X[1:, :d], Y[:, :d], scale=scale, kernel=kernel)

    return make


def bipolar(m, d, kernel, generator, name):
    other, signs = draw(m, d, generator, name), draw(3, d, generator, name)
    first = draw(m, d, generator, name)
    return softmax.bipolar(first, coefficients.Angular(signs), other=other, antithetic=True, kernel=kernel)


def nested(m, d, kernel, generator, name):
    base = angular(m, d, kernel, generator, name)
    constant = (coefficients.Constant(-0.3), exponential("diagonal")(m, d, kernel, generator, name))
    sums = coefficients.Gaussian(draw(2, d, generator, name), of="sum")
    return softmax.Hybrid(base, [constant, (sums, softmax.Positive(draw(m, d, generator, name), kernel))])


def mixture(m, d, kernel, generator, name):
    omega, others, base = (draw(n, d, generator, name) for n in (m, 2, m))
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
