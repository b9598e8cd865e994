"""
Bands and draws: the exact process and random features
======================================================

The data are 40 rows of a noisy sine with a gap. The gray area is the 95 % band of the exact process. Blue lines are the
mean and the band of random features at the same hyperparameters, and thin lines are draws of the function. Titles have
the divergence KL(exact || features) in nats per point.
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

gp = rfgp.GP(k.RBF(), approximation=rfgp.Exact(), seed=0).fit(x[:, None], y)
exact = gp.predict(grid)

figure, panels = plt.subplots(1, 3, figsize=(12, 3.4), sharey=True, layout="constrained")
for axes, m in zip(panels, (4, 8, 32), strict=True):
    near = gp.with_approximation(rfgp.RandomFeatures(m, seed=0)).predict(grid)
    axes.fill_between(grid[:, 0], *exact.interval(0.95), color="0.85", lw=0, label="exact, 95 %")
    axes.plot(grid[:, 0], np.asarray(near.sample(4, seed=0)).reshape(-1, 240).T, color=COLORS[1], lw=0.8)
    for i, line in enumerate((near.mean, *near.interval(0.95))):
        axes.plot(grid[:, 0], line, color=COLORS[0], ls="-" if i == 0 else "--", label=("features", "95 %", None)[i])
    axes.plot(x, y, ".", color="black")
    divergence = rfgp.metrics.kl_divergence(exact, near, per_point=True)
    axes.set(title=f"{m} frequencies, KL {divergence:.2g}", xlabel="x")
    print(f"{m} frequencies: KL(exact || features) {divergence:.2g} nats per point")
panels[0].legend(loc="lower left", fontsize="small")
