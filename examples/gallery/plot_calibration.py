"""
Calibration before and after: too few features, and more
========================================================

A calibrated model has standardized errors with a standard normal distribution. Too few random features underestimate
the variance far from the rows, so that errors there are many standard deviations large. More features repair this. All
models have the hyperparameters of the exact process.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS

# %%
# One sample of the prior gives the truth. Rows lie in two clusters, and test points everywhere.
rng = np.random.default_rng(0)
kernel = k.RBF(ard=False)
hyperparameters = {"lengthscale": 0.12, "outputscale": 1.0, "noise": 0.0025, "mean": 0.0}
X = np.concatenate([rng.uniform((0, 0), (0.45, 1), (400, 2)), rng.uniform((0.7, 0), (1, 0.6), (200, 2))])
Z = rng.uniform(size=(1500, 2))
everywhere = np.concatenate([X, Z])
distances = np.sum((everywhere[:, None] - everywhere[None]) ** 2, axis=2)
covariance = np.exp(-distances / (2 * hyperparameters["lengthscale"] ** 2)) + 1e-9 * np.eye(len(everywhere))
draw = np.linalg.cholesky(covariance) @ rng.standard_normal(len(everywhere))
y = draw[:600] + 0.05 * rng.standard_normal(600)
target = draw[600:] + 0.05 * rng.standard_normal(1500)

exact = rfgp.GP(kernel, approximation=rfgp.Exact(), start=hyperparameters, standardize=False, seed=0).condition(X, y)
models = {f"{2 * m} features": exact.with_approximation(rfgp.RandomFeatures(m, seed=0)) for m in (32, 128, 512)}
models["exact"] = exact

# %%
# The left panel compares the distribution of the standardized errors with the normal one. The right panel has the
# fraction of test points within the central interval of each level.
levels = np.linspace(0.02, 0.98, 49)
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
grid = np.linspace(-6, 6, 121)
left.plot(grid, norm.pdf(grid), color="black", lw=1, label="standard normal")
right.plot([0, 1], [0, 1], color="black", lw=1)
for i, (name, model) in enumerate(models.items()):
    observed = model.predict(Z).observed()
    z = (target - np.asarray(observed.mean)) / np.asarray(observed.std)
    left.hist(np.clip(z, -6, 6), grid[::4], density=True, histtype="step", color=COLORS[i], lw=1.8)
    coverage = [(np.abs(z) < norm.ppf((1 + level) / 2)).mean() for level in levels]
    right.plot(levels, coverage, color=COLORS[i], lw=2, label=name)
    print(
        f"{name}: mean squared z-score {np.mean(z**2):.2f}, 95 % intervals hold {np.mean(np.abs(z) < 1.96):.0%} of the "
        f"test points, log density {np.asarray(observed.log_prob(target)).mean():.2f}"
    )
left.set(xlabel="standardized error (clipped at 6)", ylabel="density", xlim=(-6.3, 6.3))
right.set(xlabel="level of the interval", ylabel="fraction of test points inside", aspect="equal")
right.legend(loc="upper left")
left.legend(loc="upper left")
