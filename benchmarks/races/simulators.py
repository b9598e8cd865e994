"""Simulators without noise: the default against scikit-learn's Gaussian process with a free noise.

Protocol, fixed before the results were seen. Branin (2 columns, 200 rows), borehole (8 columns, 500 rows) and Friedman
(10 columns, 5 without effect, 500 rows), uniform inputs at seeds 0 to 2, and 1,000 test rows; targets are standardized
on the training rows. "sklearn" has a constant times an RBF with a lengthscale for each column plus white noise with
bounds 1e-10 and 1 (1e-12 at first, which gave negative variances on Branin), and three starts. Scores: NLPD, RMSE,
CRPS, coverage of 95 % intervals.

    python -m benchmarks.races.simulators [--splits N]
"""

import argparse

import numpy as np

import rfgp
from benchmarks import models
from benchmarks.race import Array, Model, Race, Split
from benchmarks.scores import Normal

SIZES = {"branin": (2, 200), "borehole": (8, 500), "friedman": (10, 500)}


def simulated(name: str, u: Array) -> Array:
    """Return the simulator at points (n, d) of the unit cube."""
    if name == "branin":
        a, b = 15 * u[:, 0] - 5, 15 * u[:, 1]
        return (b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6) ** 2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10
    if name == "friedman":
        return 10 * np.sin(np.pi * u[:, 0] * u[:, 1]) + 20 * (u[:, 2] - 0.5) ** 2 + 10 * u[:, 3] + 5 * u[:, 4]
    low = np.array([0.05, 100, 63070, 990, 63.1, 700, 1120, 9855])
    high = np.array([0.15, 50000, 115600, 1110, 116, 820, 1680, 12045])
    rw, r, tu, hu, tl, hl, length, kw = (low + (high - low) * u).T
    log = np.log(r / rw)
    return np.asarray(2 * np.pi * tu * (hu - hl) / (log * (1 + 2 * length * tu / (log * rw**2 * kw) + tu / tl)))


def split(name: str, seed: int, options: argparse.Namespace) -> Split:
    """Return points of the unit cube, and standardized values."""
    d, n = SIZES[name]
    u = np.random.default_rng(seed).random((n + 1000, d))
    y = simulated(name, u)
    y = (y - y[:n].mean()) / y[:n].std()
    return Split(u[:n], y[:n], u[n:], y[n:])


def sklearn_process(X: Array, y: Array, seed: int = 0) -> models.Predict:
    """Fit scikit-learn's process with nearly no noise."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel(1.0, (1e-3, 1e6)) * RBF(np.ones(X.shape[1]), (1e-2, 1e3)) + WhiteKernel(1e-4, (1e-10, 1.0))
    model = GaussianProcessRegressor(kernel, alpha=0.0, n_restarts_optimizer=2, random_state=0).fit(X, y)

    def predict(Z: Array) -> Normal:
        mean, deviation = model.predict(Z, return_std=True)
        return Normal(mean, deviation**2)

    return predict


RACE = Race(
    "benchmarks.races.simulators",
    tuple(SIZES),
    split,
    {
        "default": Model("rfgp.gp", models.gp_observed(lambda seed: rfgp.GP(seed=seed))),
        "sklearn": Model("sklearn.gaussian_process", sklearn_process),
    },
)


def main() -> None:
    """Run the race."""
    RACE.main(__doc__)


if __name__ == "__main__":
    main()
