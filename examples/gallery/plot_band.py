"""
Bands and draws: the exact process and 64 frequencies
=====================================================

The data are 40 rows of a noisy sine with a gap. The left panel has the exact process, the right panel 64 random
frequencies at the same hyperparameters. Thin lines are draws of the function and shaded areas its 95 % bands. The
divergence is printed in nats per point.
"""

import matplotlib.pyplot as plt
import numpy as np

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS

rng = np.random.default_rng(0)
x = np.concatenate([rng.uniform(0, 4, 25), rng.uniform(6, 10, 15)])
y = np.sin(x) + 0.2 * rng.standard_normal(40)
grid = np.linspace(-1, 11, 240)[:, None]

exact = rfgp.GP(k.RBF(), approximation=rfgp.Exact(), seed=0).fit(x[:, None], y)
near = exact.with_approximation(rfgp.RandomFeatures(64, seed=0))

figure, both = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
for axes, gp, title in zip(both, (exact, near), ("exact", "64 frequencies"), strict=True):
    prediction = gp.predict(grid)
    low, high = prediction.interval(0.95)
    axes.fill_between(grid[:, 0], low, high, color=COLORS[0], alpha=0.2, lw=0)
    axes.plot(grid[:, 0], np.asarray(prediction.sample(4, seed=0)).reshape(-1, 240).T, color=COLORS[1], lw=0.8)
    axes.plot(grid[:, 0], prediction.mean, color=COLORS[0])
    axes.plot(x, y, ".", color="black")
    axes.set(title=title, xlabel="x")

divergence = rfgp.metrics.kl_divergence(exact.predict(grid), near.predict(grid), per_point=True)
print(f"KL(exact || 64 frequencies) {divergence:.2g} nats per point")
