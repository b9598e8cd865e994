"""
Independent, orthogonal and energy frequencies
==============================================

Solid points are 32 frequencies of the Gaussian kernel in two dimensions. Hollow points are their negatives, which give
the same features. Each frequency has the same normal distribution in all three columns. Only their joint distribution
differs. The lower row has the error of the kernel estimate.
"""

import matplotlib.pyplot as plt
import numpy as np

from rfgp import couplings
from rfgp.palette import COLORS, styles

# %%
# The kernel at a difference r is exp(-r^2 / 2), and its estimate the mean of cos(omega . r) over the frequencies omega.
axis = np.linspace(-3, 3, 81)
differences = np.stack(np.meshgrid(axis, axis), axis=-1)
kernel = np.exp(-np.sum(differences**2, axis=-1) / 2)

names = ("iid", "orthogonal", "energy")
figure, panels = plt.subplots(2, 3, figsize=(9, 6.4), sharex="row", sharey="row", layout="constrained")
for (upper, lower), name in zip(panels.T, names, strict=True):
    points = couplings.by_name(name).sample(32, 2, seed=0).dense().numpy()
    color = COLORS[styles(names)[name]]
    upper.plot(*-points.T, "o", ms=4.5, color="white", mec=color)
    upper.plot(*points.T, "o", ms=4.5, color=color)
    upper.set(title=name, aspect="equal", xlim=(-3.6, 3.6), ylim=(-3.6, 3.6))
    error = np.cos(differences @ points.T).mean(axis=-1) - kernel
    image = lower.imshow(error, cmap="RdBu_r", vmin=-0.4, vmax=0.4, origin="lower", extent=(-3, 3, -3, 3))
    lower.set_title(f"error, RMSE {np.sqrt(np.mean(error**2)):.3f}")
    print(f"{name}: root mean square error {np.sqrt(np.mean(error**2)):.3f}")
panels[0, 0].set_ylabel("frequencies")
panels[1, 0].set_ylabel("differences of inputs")
figure.colorbar(image, ax=panels[1], label="estimate - kernel")
