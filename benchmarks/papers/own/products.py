"""Products of two stationary kernels through random features: i.i.d., paired at random, and jointly drawn."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

import rfgp
from benchmarks import protocol
from benchmarks.record import Entries, Figure, Scale, Value, figure
from rfgp import kernels as k
from rfgp import random, spectra
from rfgp.couplings import Coupling, Energy, Frequencies, by_name
from rfgp.spectra import Spectrum

ROWS, NEW, SIZES, DRAWS, NOISE = 500, 120, (64, 256), 8, 0.1
CASES: dict[str, tuple[tuple[Spectrum, int, float], tuple[Spectrum, int, float]]] = {
    "RBF(2) x Matern32(1)": ((spectra.Gaussian(), 2, 0.7), (spectra.Matern(1.5), 1, 0.5)),
    "RBF(3) x Matern12(2)": ((spectra.Gaussian(), 3, 1.2), (spectra.Matern(0.5), 2, 1.0)),
    "Matern32(1) x Matern32(1)": ((spectra.Matern(1.5), 1, 0.5), (spectra.Matern(1.5), 1, 0.5)),
}
"""Spectrum, number of columns and lengthscale of each factor; columns are uniform on [-sqrt(3), sqrt(3)]."""


class Paired(Coupling):
    """The weighted energy coupling for each factor, rows paired at random."""

    def _draw(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Frequencies:
        return Energy(weighted=True).sample(m, d, spectrum=spectrum, generator=generator)

    def _frequencies(self, m: int, d: int, spectrum: Spectrum, generator: torch.Generator) -> Tensor:
        return self._draw(m, d, spectrum, generator).dense()


METHODS: dict[str, Coupling] = {
    "i.i.d.": by_name("iid"),
    "energies paired at random": Paired(),
    "joint energy": Energy(weighted=True),
    "joint energy, equal weights": Energy(),
}


def process(case: str) -> tuple[rfgp.GP, np.ndarray]:
    """Return the exact process on rows drawn from its prior, and the new rows."""
    (first, a, one), (second, b, other) = CASES[case]
    places = (tuple(range(a)), tuple(range(a, a + b)))
    kernel: Any = k.Stationary(places[0], spectrum=first, ard=False, lengthscale=one)
    kernel = kernel * k.Stationary(places[1], spectrum=second, ard=False, lengthscale=other)
    rng = random.numpy_generator(1, random.Role.DATA)
    X = rng.uniform(-(3**0.5), 3**0.5, (ROWS + NEW, a + b))
    root = np.linalg.cholesky(np.asarray(kernel.matrix(X)) + 1e-8 * np.eye(len(X)))
    y = root @ rng.standard_normal(len(X)) + NOISE**0.5 * rng.standard_normal(len(X))
    gp = rfgp.GP(kernel, approximation=rfgp.Exact(), standardize=False, start={"noise": NOISE, "outputscale": 1.0})
    return gp.condition(X[:ROWS], y[:ROWS]), X


def kernel_error(case: str, X: np.ndarray, exact: np.ndarray, coupling: Coupling, m: int, seed: int) -> float:
    """Return the root mean square error of the product over pairs of rows."""
    factors = [(law, d) for law, d, _ in CASES[case]]
    scale = np.concatenate([np.full(d, length) for _, d, length in CASES[case]])
    drawn = coupling.sample_product(m, factors, seed=seed)
    angles, amplitudes = drawn.project(torch.as_tensor(X / scale)), drawn.amplitudes
    features = torch.cat([amplitudes * angles.cos(), amplitudes * angles.sin()], dim=1).numpy()
    return float(np.sqrt(((features @ features.T - exact) ** 2).mean()))


@figure("products of stationary kernels on different columns")
def products(scale: Scale) -> Entries:
    """Return kernel errors and divergences of each case, method and number of frequencies.

    {ROWS} training and {NEW} new rows drawn from the prior, noise variance {NOISE}, the true hyperparameters, {DRAWS}
    draws; root mean square error of the kernel over pairs of rows, and KL(exact || approximate) of the joint
    distribution of observations at the new rows, in nats. Weighted norms but for the last method.
    """
    values: list[Value] = []
    for case in CASES:
        gp, X = process(case)
        matrix, truth = np.asarray(gp.kernel.matrix(X)), gp.predict(X[ROWS:])
        for m in SIZES:
            for method, coupling in METHODS.items():
                errors, divergences = [], []
                for seed in range(scale(DRAWS)):
                    errors.append(kernel_error(case, X, matrix, coupling, m, seed))
                    other = gp.with_approximation(rfgp.RandomFeatures(m, coupling=coupling, seed=seed))
                    divergences.append(rfgp.metrics.kl_divergence(truth, other.predict(X[ROWS:])))
                name = f"{case}, m = {m}, {method}"
                values.append(Value(f"{name}: kernel error", *protocol.mean_error(np.array(errors))))
                values.append(Value(f"{name}: KL", *protocol.mean_error(np.array(divergences))))
    return values


FIGURES: dict[str, Figure] = {"products": products}
