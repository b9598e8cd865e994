"""Simulators without noise: the default against scikit-learn's Gaussian process with a free noise.

Protocol, fixed before the results were seen. Branin (2 columns, 200 rows), borehole (8 columns, 500 rows) and Friedman
(10 columns, 5 without effect, 500 rows), uniform inputs at seeds 0 to 2, and 1,000 test rows; targets are standardized
on the training rows. "sklearn" has a constant times an RBF with a lengthscale for each column plus white noise with
bounds 1e-10 and 1 (1e-12 at first, which gave negative variances on Branin), and three starts. Figures: NLPD, RMSE,
coverage of 95 %, processor seconds of the fit, the fitted noise.

    python -m benchmarks.races.simulators [--seeds N]
"""

import argparse
import time
import warnings
from typing import Any

import numpy as np
from scipy.stats import norm

from benchmarks.races.local import Array

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


def sklearn_process(X: Array, y: Array, Z: Array) -> tuple[Array, Array, float]:
    """Return means, variances and the noise of scikit-learn's process."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel(1.0, (1e-3, 1e6)) * RBF(np.ones(X.shape[1]), (1e-2, 1e3)) + WhiteKernel(1e-4, (1e-10, 1.0))
    model = GaussianProcessRegressor(kernel, alpha=0.0, n_restarts_optimizer=2, random_state=0).fit(X, y)
    mean, std = model.predict(Z, return_std=True)
    return mean, std**2, float(model.kernel_.k2.noise_level)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import torch

    import rfgp

    torch.set_num_threads(1)
    for name, (d, n) in SIZES.items():
        for seed in range(options.seeds):
            u = np.random.default_rng(seed).random((n + 1000, d))
            y = simulated(name, u)
            y = (y - y[:n].mean()) / y[:n].std()
            w = y[n:]
            begin = time.process_time()
            gp = rfgp.GP(seed=seed).fit(u[:n], y[:n])
            seconds = time.process_time() - begin
            p: Any = gp.predict(u[n:])
            low, high = p.observed().interval(0.95)
            noise = float(gp.hyperparameters.noise)
            print(f"{name} {seed} default nlpd {-p.observed().log_prob(w).mean():.3f} "
                  f"rmse {np.sqrt(np.mean((p.mean - w) ** 2)):.2e} coverage {np.mean((low <= w) & (w <= high)):.3f} "
                  f"noise {noise:.1e} {seconds:.1f} s", flush=True)  # fmt: skip
            begin = time.process_time()
            mean, variance, noise = sklearn_process(u[:n], y[:n], u[n:])
            seconds, z = time.process_time() - begin, (w - mean) / np.sqrt(variance)
            print(f"{name} {seed} sklearn nlpd {-(norm.logpdf(z) - 0.5 * np.log(variance)).mean():.3f} "
                  f"rmse {np.sqrt(np.mean((mean - w) ** 2)):.2e} coverage {np.mean(np.abs(z) < 1.96):.3f} "
                  f"noise {noise:.1e} {seconds:.1f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
