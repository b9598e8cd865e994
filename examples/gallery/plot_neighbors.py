"""
Neighbors: what Vecchia's approximation keeps
=============================================

Heights of the ground around the Jacksboro fault in Tennessee (a sample file of Matplotlib, under its license), known at
600 places. `rfgp.Vecchia(k)` puts the rows in a random order. Each row then depends on its k nearest predecessors only.
Left: the ten neighbors of three rows. They are far for the first rows, and close for the last ones. Right: the
divergence from the exact process falls with k.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.io import netcdf_file

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS

with netcdf_file(Path(os.environ.get("RFGP_DATA_DIR", "data")) / "jacksboro.nc", mmap=False) as file:
    height = file.variables["height"][:].astype(float)
    east, north = np.meshgrid(file.variables["x"][:], file.variables["y"][:])
cells = np.random.default_rng(0).permutation(height.size)[:700]  # a random order
X, y = np.column_stack([east.ravel(), north.ravel()])[cells], height.ravel()[cells]  # km, m
train, test = np.arange(600), np.arange(600, 700)

exact = rfgp.GP(k.Matern(nu=1.5, ard=False), approximation=rfgp.Exact(), seed=0).fit(X[train], y[train])
target = exact.predict(X[test])
sizes, divergences = (2, 5, 10, 20, 40, 80), []
for size in sizes:
    near = exact.with_approximation(rfgp.Vecchia(size)).predict(X[test])
    divergences.append(rfgp.metrics.kl_divergence(target, near, per_point=True))
    print(f"{size:2d} neighbors: KL(exact || Vecchia) {divergences[-1]:.1e} nats a place")

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained", width_ratios=(1.2, 1))
shown = left.scatter(*X[train].T, c=y[train], s=8, cmap="viridis")
figure.colorbar(shown, ax=left, label="height, m")
for i, row in enumerate((20, 100, 599)):
    color = COLORS[(1, 5, 3)[i]]
    for near in np.argsort(np.linalg.norm(X[:row] - X[row], axis=1))[:10]:
        left.plot(*X[[row, near]].T, color=color, lw=1.2)
    left.plot(*X[row], "*", ms=14, color=color, mec="white", label=f"row {row + 1}")
left.set(title="ten nearest predecessors", xlabel="east, km", ylabel="north, km", aspect="equal")
left.legend(loc="upper left", fontsize="small")
right.loglog(sizes, divergences, "o-", color=COLORS[0])
right.set(xlabel="neighbors k", ylabel="KL(exact || Vecchia), nats a place", xticks=sizes, xticklabels=sizes)
right.set_title("600 rows, predictions at 100 others")
right.minorticks_off()
