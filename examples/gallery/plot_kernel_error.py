"""
Kernel error against the number of frequencies
==============================================

The picture shows the root mean square error of the kernel estimate in four dimensions, over distances from 0.3 to 3
lengthscales. It is from closed forms or 16 draws. The dotted line falls as one over the square root of m. Orthogonal
and pairwise couplings have a smaller constant. The error of the energy coupling falls faster.
"""

import matplotlib.pyplot as plt
import numpy as np

from rfgp import theory
from rfgp.palette import COLORS, styles

distances = np.linspace(0.3, 3, 10)
sizes = (8, 16, 32, 64, 128)
names = ("iid", "orthogonal", "pairwise", "energy")

figure, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
for name in names:
    errors = [theory.kernel_error(name, distances, m, 4, num_draws=16) for m in sizes]
    number = styles(names)[name]
    axes.loglog(sizes, errors, marker="osD^"[number], color=COLORS[number], label=name)
    print(f"{name}: {errors[-1]:.4f} at m = 128")
guide = [0.6 / m**0.5 for m in sizes]
axes.loglog(sizes, guide, ":", color="0.4", label="slope -1/2")
axes.set(xlabel="frequencies m", ylabel="root mean square error", xticks=sizes, xticklabels=sizes)
axes.minorticks_off()
axes.legend()
