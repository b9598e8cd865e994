"""
Calibration before and after: too few features, and more
========================================================

Heights of the ground around the Jacksboro fault in Tennessee (a sample file of Matplotlib, under its license), with
added noise of 20 m. The standardized errors of a calibrated model have a standard normal distribution. Too few random
features underestimate the variance between the rows, so that errors there are many standard deviations large. More
features repair this. All models have the hyperparameters of the exact process.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.io import netcdf_file
from scipy.stats import norm

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS

with netcdf_file(Path(os.environ.get("RFGP_DATA_DIR", "data")) / "jacksboro.nc", mmap=False) as file:
    height = file.variables["height"][:].astype(float)
    east, north = np.meshgrid(file.variables["x"][:], file.variables["y"][:])
rng = np.random.default_rng(0)
cells = rng.permutation(height.size)[:1600]
X, y = np.column_stack([east.ravel(), north.ravel()])[cells], height.ravel()[cells]  # km, m
y = y + 20 * rng.standard_normal(len(y))
X, Z, y, target = X[:600], X[600:], y[:600], y[600:]

exact = rfgp.GP(k.Matern(nu=1.5), approximation=rfgp.Exact(), seed=0).fit(X, y)
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
    z = (target - observed.mean) / observed.std
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
