"""Splits of the tables, and scores of draws on them, for all benchmarks.

`rfgp.datasets` finds the data: in the folder that RFGP_DATA_DIR names, in its cache, or at their pinned address.

The splits are those of App. B.1 of Reid et al. (2024): 256 training and 256 test rows of a random split, columns
standardized on the training rows, one lengthscale, hyperparameters of the exact process fitted to the training rows.
The kernel error is over all 512 rows, the KL that of the joint observed distributions at the test rows, in nats per
point, exact process first.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

import rfgp
from rfgp import datasets, features, metrics, random, spectra
from rfgp.couplings import Coupling, Frequencies, for_features

TABLES = ("power-plant", "airfoil", "machine", "concrete", "abalone", "housing")
TRAIN, TEST = 256, 256

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Split:
    """Rows of one split in units of the lengthscale, and the exact posterior.

    Attributes:
        x: The rows (n, d), training rows first.
        y: The standardized targets (n_train,).
        noise: The noise variance divided by the outputscale.
        outputscale: The outputscale of the standardized targets.
        spectrum: The spectrum of the kernel.
    """

    x: torch.Tensor
    y: torch.Tensor
    noise: float
    outputscale: float
    spectrum: spectra.Spectrum

    def for_positive_features(self) -> "Split":
        """Return the split at the lengthscale of Eq. 36, the mean of 2 |x + y| over pairs of training rows.

        The noise and the outputscale are those of the fit, since they do not affect the error of the kernel.
        """
        return replace(self, x=self.x / positive_lengthscale(self.x[: len(self.y)].numpy()))

    @property
    def kernel(self) -> torch.Tensor:
        return self.spectrum.kernel_between(self.x, self.x)

    def posterior(self, kernel: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return mean and covariance of observed targets at the test rows, for a kernel (n, n) at outputscale 1."""
        n = len(self.y)
        noisy = self.outputscale * (kernel + self.noise * torch.eye(len(kernel), dtype=kernel.dtype))
        factor = torch.linalg.cholesky(noisy[:n, :n])
        cross = torch.linalg.solve_triangular(factor, noisy[:n, n:], upper=False)
        target = torch.linalg.solve_triangular(factor, self.y[:, None], upper=False)
        return (cross.mT @ target)[:, 0], noisy[n:, n:] - cross.mT @ cross


def positive_lengthscale(x: Array) -> float:  # (n, d)
    """Return Reid et al.'s (2024) lengthscale for positive features, Eq. 36: (2 / n^2) sum_ij |x_i + x_j|."""
    return 2 * float(np.linalg.norm(x[:, None] + x, axis=2).mean())


def load(name: str, folder: Path | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return columns and target of a table.

    Tables that are not in `rfgp.datasets` are read from NAME.csv.gz in a folder.
    """
    if folder is not None and name not in datasets.names():
        numbers = np.loadtxt(folder / f"{name}.csv.gz", delimiter=",")
        return numbers[:, :-1], numbers[:, -1]
    table = datasets.load(name)
    return np.asarray(table.X, dtype=np.float64), np.asarray(table.y, dtype=np.float64)


def split(name: str, index: int, spectrum: spectra.Spectrum | None = None, lengthscale: float | None = None) -> Split:
    """Return one split of a table; `lengthscale` replaces the fitted one, in standard deviations."""
    X, y = load(name)
    order = random.numpy_generator(0, random.Role.SPLIT, index).permutation(len(X))
    train = min(TRAIN, len(X) * TRAIN // (TRAIN + TEST))
    rows = order[: train + min(TEST, len(X) - train)]
    law = spectrum or spectra.Gaussian()
    exact = rfgp.ExactGP(spectrum=law, ard=False).fit(X[rows[:train]], y[rows[:train]])
    found, scale = exact.hyperparameters, y[rows[:train]].std() ** 2
    mean, spread = X[rows[:train]].mean(0), X[rows[:train]].std(0)
    spread[spread == 0] = 1
    ell = found.lengthscale.detach().numpy() if lengthscale is None else spread * lengthscale  # in the user's units
    x = torch.as_tensor((X[rows] - mean) / ell)
    target = torch.as_tensor((y[rows[:train]] - y[rows[:train]].mean()) / scale**0.5)
    noise, outputscale = found.noise.item() / scale, found.outputscale.item() / scale
    return Split(x, target, noise / outputscale, outputscale, law)


@dataclass(frozen=True, eq=False)
class Law:
    """A normal distribution of observations, for `rfgp.metrics`.

    Attributes:
        mean: The mean (n,).
        covariance: The covariance (n, n), with noise.
    """

    mean: torch.Tensor
    covariance: torch.Tensor

    def observed(self) -> Self:
        return self

    def mean_tensor(self) -> torch.Tensor:
        return self.mean

    def variance_tensor(self) -> torch.Tensor:
        return self.covariance.diagonal()

    def covariance_tensor(self) -> torch.Tensor:
        return self.covariance


def kl(first: tuple[Any, Any], second: tuple[Any, Any], *, per_point: bool = True) -> float:
    """Return KL(first || second) in nats of two normal distributions with means (n,) and covariances (n, n)."""
    p, q = (Law(*map(torch.as_tensor, law)) for law in (first, second))
    return metrics.kl_divergence(p, q, per_point=per_point)


@dataclass(frozen=True)
class Figures:
    """The scores of one coupling on one split.

    Attributes:
        error: The root mean squared kernel error.
        kl: The mean KL.
        z: The largest |z|.
    """

    error: float
    kl: float
    z: float


def judge(
    case: Split,
    draw: Callable[[torch.Generator], Frequencies],
    kind: str,
    repeats: int,
    seed: int,
    with_kl: bool = True,
) -> Figures:
    """Return the scores of `repeats` draws; z compares the mean of 40 kernel entries with their exact values."""
    exact, generator = case.kernel, random.generator(seed, random.Role.FREQUENCIES)
    best = case.posterior(exact)
    places = random.numpy_generator(seed).integers(0, len(exact), (2, 40))
    places = places[:, places[0] != places[1]]
    squares, divergences, entries = [], [], []
    for _ in range(repeats):
        phi = features.by_name(kind)(draw(generator))(case.x)
        estimate = phi @ phi.mT
        squares.append(float((estimate - exact).square().mean()))
        entries.append(estimate[places[0], places[1]].numpy())
        if with_kl:
            divergences.append(kl(best, case.posterior(estimate)))
    values = np.array(entries)
    error = np.maximum(values.std(0, ddof=1) / np.sqrt(repeats), 1e-12)
    z = np.abs(values.mean(0) - exact[places[0], places[1]].numpy()) / error
    return Figures(float(np.sqrt(np.mean(squares))), float(np.mean(divergences)) if with_kl else np.nan, float(z.max()))


def sampler(
    coupling: str | Coupling, m: int, case: Split, kind: str = "fourier"
) -> Callable[[torch.Generator], Frequencies]:
    chosen, d = for_features(coupling, kind), case.x.shape[1]
    return lambda generator: chosen.sample(m, d, spectrum=case.spectrum, generator=generator)


def mean_error(values: Iterable[float]) -> tuple[float, float]:
    found = np.array(list(values))
    return float(found.mean()), float(found.std(ddof=1) / np.sqrt(len(found))) if len(found) > 1 else np.nan


def ratio_of_means(first: ArrayLike, second: ArrayLike, paired: bool = False) -> tuple[float, float]:
    """Return the ratio of two means over draws or splits, and its standard error to first order.

    Args:
        first: The first values (r,).
        second: The second values (r,), or another number of them if not paired.
        paired: Whether both are of the same r draws or splits, in order.
    """
    a, b = (np.asarray(values, dtype=np.float64) for values in (first, second))
    ratio = a.mean() / b.mean()
    relative = [values / values.mean() for values in (a, b)]
    parts = [relative[0] - relative[1]] if paired else relative
    error = np.sqrt(sum(part.var(ddof=1) / len(part) for part in parts))
    return float(ratio), float(abs(ratio) * error)


def geometric(values: Iterable[float]) -> float:
    return float(np.exp(np.mean(np.log(list(values)))))
