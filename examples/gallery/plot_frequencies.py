"""
Independent, orthogonal and energy frequencies
==============================================

64 frequencies of the Gaussian kernel in two dimensions. Each point has the same normal distribution in all three
panels. Only their joint distribution differs: independent points clump, energy points repel each other.
"""

import matplotlib.pyplot as plt

from rfgp import couplings
from rfgp.palette import COLORS, styles

names = ("iid", "orthogonal", "energy")
figure, panels = plt.subplots(1, 3, figsize=(9, 3.2), sharex=True, sharey=True, layout="constrained")
for axes, name in zip(panels, names, strict=True):
    points = couplings.by_name(name).sample(64, 2, seed=0).dense().numpy()
    for sign, alpha in ((1, 1.0), (-1, 0.25)):  # a frequency and its negative give the same features
        axes.plot(*(sign * points.T), "o", ms=4, alpha=alpha, color=COLORS[styles(names)[name]], mec="none")
    axes.set(title=name, aspect="equal", xlim=(-3.6, 3.6), ylim=(-3.6, 3.6))
