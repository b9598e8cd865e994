"""
Bands and draws: the exact process and random features
======================================================

The data are the highest temperatures of every sixth day of 2014 in Seattle (NOAA, public domain). July and August are
left out. The gray area is the 95 % band of the exact process. Blue lines are the mean and the band of random features
at the same hyperparameters, and thin lines are draws of the function. Titles have the divergence KL(exact || features)
in nats a point.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS

seattle = rfgp.datasets.load("seattle")
year = seattle[seattle["date"].dt.year == 2014][::6]
year = year[~year["date"].dt.month.isin([7, 8])]
grid = pd.DataFrame({"date": pd.date_range("2014-01-01", "2015-02-28", freq="2D")})

kernel = k.RBF("date", lengthscale=40.0)
gp = rfgp.GP(kernel, approximation=rfgp.Exact(), seed=0).fit(year, "temperature_max")
exact = gp.predict(grid)

figure, panels = plt.subplots(1, 3, figsize=(12, 3.6), sharey=True, layout="constrained")
for axes, m in zip(panels, (4, 8, 32), strict=True):
    near = gp.with_approximation(rfgp.RandomFeatures(m, seed=0)).predict(grid)
    axes.fill_between(grid["date"], *exact.interval(0.95), color="0.85", lw=0, label="exact, 95 %")
    axes.plot(grid["date"], np.asarray(near.sample(4, seed=0)).reshape(-1, len(grid)).T, color=COLORS[1], lw=0.8)
    for i, line in enumerate((near.mean, *near.interval(0.95))):
        label = ("features", "95 %", None)[i]
        axes.plot(grid["date"], line, color=COLORS[0], ls="-" if i == 0 else "--", label=label)
    axes.plot(year["date"], year["temperature_max"], ".", color="black", ms=4)
    divergence = rfgp.metrics.kl_divergence(exact, near, per_point=True)
    axes.set(title=f"{m} frequencies, KL {divergence:.2g}")
    axes.xaxis.set_major_locator(plt.matplotlib.dates.MonthLocator((1, 7)))
    axes.xaxis.set_major_formatter(plt.matplotlib.dates.DateFormatter("%b %Y"))
    print(f"{m} frequencies: KL(exact || features) {divergence:.2g} nats a point")
panels[0].set(ylabel="highest temperature, °C")
panels[0].legend(loc="lower center", fontsize="small")
