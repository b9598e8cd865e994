"""
Variance starvation, from 32 to 512 features
============================================

Random features span a space of few functions. With many rows, little noise and a short lengthscale, the data
determine all of them, and the standard deviation is too small away from the data. The approximation
has the exact process's hyperparameters.
"""

import matplotlib.pyplot as plt
import numpy as np

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS

rng = np.random.default_rng(0)
x = rng.uniform(0, 6, 600)
y = np.sin(3 * x) + 0.1 * rng.standard_normal(600)
grid = np.linspace(0, 12, 300)[:, None]
start = {"lengthscale": 0.3, "outputscale": 1.0, "noise": 0.01}

exact = rfgp.GP(k.RBF(), approximation=rfgp.Exact(), start=start, standardize=False, seed=0).fit(
    x[:, None], y, fixed=tuple(start)
)

figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
for i, m in enumerate((16, 64, 256)):
    near = exact.with_approximation(rfgp.RandomFeatures(m, coupling="iid", seed=0))
    std = np.asarray(near.predict(grid).std)
    axes.plot(grid[:, 0], std, color=COLORS[i], label=f"{2 * m} features")
    print(f"{2 * m} features: mean standard deviation beyond the data {std[grid[:, 0] > 7].mean():.2f}")
std = np.asarray(exact.predict(grid).std)
print(f"exact: {std[grid[:, 0] > 7].mean():.2f}")
axes.plot(grid[:, 0], std, "k--", label="exact")
axes.axvspan(0, 6, color="0.93", zorder=0)
axes.set(xlabel="x (rows in the gray part)", ylabel="standard deviation of the function")
axes.set_title("more features raise the standard deviation towards the exact one")
axes.legend()
