"""
Trend, season and residual
==========================

Monthly values of ten years: a slow trend, a yearly season and noise. One model has a term for each, and the effect of
each term has a 95 % band of its own. Effects are centered, because a constant could belong to the trend or to the
season.
"""

import matplotlib.pyplot as plt
import numpy as np

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS

rng = np.random.default_rng(0)
t = np.arange(120) / 12
y = 0.04 * (t - 3) ** 2 + 0.6 * np.sin(2 * np.pi * t) + 0.2 * np.cos(4 * np.pi * t) + 0.15 * rng.standard_normal(120)

kernel = k.RBF("t", name="trend") + k.Periodic("t", period=1.0, name="season")
gp = rfgp.GP(kernel, seed=0).fit({"t": t}, y)
prediction = gp.predict({"t": t})

figure, panels = plt.subplots(4, 1, figsize=(8, 7), sharex=True, layout="constrained")
panels[0].plot(t, y, ".", color="black")
panels[0].plot(t, prediction.mean, color="0.5", lw=1)
panels[0].set(ylabel="values and mean")
for axes, (i, name) in zip(panels[1:], enumerate(("trend", "season")), strict=False):
    effect = prediction.terms[name].centered()
    axes.fill_between(t, *effect.interval(0.95), color=COLORS[i], alpha=0.3, lw=0)
    axes.plot(t, effect.mean, color=COLORS[i])
    axes.set(ylabel=name)
noise = float(np.asarray(prediction.observed().std).mean())
panels[3].axhspan(-1.96 * noise, 1.96 * noise, color=COLORS[2], alpha=0.2, lw=0)
panels[3].plot(t, y - np.asarray(prediction.mean), ".", color=COLORS[2])
panels[3].set(ylabel="residual", xlabel="years")
print(f"standard deviation of an observation {noise:.3f}; the noise that was added has 0.15")
