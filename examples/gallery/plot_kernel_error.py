"""
Kernel error against the number of frequencies
==============================================

The root mean square error of the kernel estimate between days of the rented bicycles of Washington, in four columns:
day, temperature, humidity and wind (UCI, H. Fanaee-T and J. Gama 2013, CC BY 4.0). It is from closed forms or 16 draws.
The dotted line falls as one over the square root of m. Orthogonal and pairwise couplings have a smaller constant. The
error of the energy coupling falls faster.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial.distance import pdist

import rfgp
from rfgp import theory
from rfgp.palette import COLORS, styles

bikes = rfgp.datasets.load("bikes")
X = np.column_stack([np.arange(len(bikes)), bikes[["temperature", "humidity", "wind"]]])
X = X / X.std(axis=0) / 2  # the default lengthscale of four columns: two standard deviations
distances = np.quantile(pdist(X), np.linspace(0.05, 0.95, 10))
print(f"pairs of days are {distances[0]:.1f} to {distances[-1]:.1f} lengthscales apart (5 % and 95 % quantiles)")

sizes = (8, 16, 32, 64, 128)
names = ("iid", "orthogonal", "pairwise", "energy")
figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
for name in names:
    errors = [theory.kernel_error(name, distances, m, 4, num_draws=16) for m in sizes]
    number = styles(names)[name]
    axes.loglog(sizes, errors, marker="osD^"[number], color=COLORS[number], label=name)
    print(f"{name}: {errors[-1]:.4f} at m = 128")
guide = [0.5 / m**0.5 for m in sizes]
axes.loglog(sizes, guide, ":", color="0.4", label="slope -1/2")
axes.set(xlabel="frequencies m", ylabel="root mean square error", xticks=sizes, xticklabels=sizes)
axes.minorticks_off()
axes.legend()
