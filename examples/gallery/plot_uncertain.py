"""
Few rows: a point estimate and an average over hyperparameters
==============================================================

The highest temperatures of 12 random days of 2014 in Seattle (NOAA, public domain). Many lengthscales and noises
explain so few rows. A point fit keeps the most probable ones, and its bands may be too narrow. The integrated fit
averages over the others too. Gray points are the other days of the year. Of five draws of 12 days the picture shows the
one in which the point fit is worst. The text has all five.
"""

import matplotlib.pyplot as plt
import numpy as np

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS

seattle = rfgp.datasets.load("seattle")
year = seattle[seattle["date"].dt.year == 2014].reset_index(drop=True)
SHOWN = 3  # the draw with the narrowest bands
figure, panels = plt.subplots(1, 2, figsize=(11, 3.8), sharey=True, layout="constrained")
for i, (axes, kind) in enumerate(zip(panels, ("point", "integrated"), strict=True)):
    inside = []
    for seed in range(5):
        days = np.sort(np.random.default_rng(seed).permutation(365)[:12])
        gp = rfgp.GP(k.RBF("date"), hyperparameter_posterior=kind, seed=0).fit(year.iloc[days], "temperature_max")
        p = gp.predict(year).observed()
        low, high = p.interval(0.95)
        others = np.setdiff1d(np.arange(365), days)
        is_inside = (low <= year["temperature_max"]) & (year["temperature_max"] <= high)
        inside.append(is_inside[others].mean())
        if seed == SHOWN:
            axes.fill_between(year["date"], low, high, color=COLORS[i], alpha=0.25, lw=0, label="95 % band of a day")
            axes.plot(year["date"], p.mean, color=COLORS[i], label="mean")
            axes.plot(year["date"], year["temperature_max"], ".", ms=2.5, color="0.6")
            axes.plot(year["date"][days], year["temperature_max"][days], "o", ms=5, color="black", label="12 rows")
            axes.set_title(f"{kind}: {inside[SHOWN]:.0%} of the other days inside")
    shares = ", ".join(f"{share:.0%}" for share in inside)
    print(f"{kind}: {shares} of the other days are inside, on average {np.mean(inside):.0%}")
for axes in panels:
    axes.xaxis.set_major_locator(plt.matplotlib.dates.MonthLocator((1, 4, 7, 10)))
    axes.xaxis.set_major_formatter(plt.matplotlib.dates.DateFormatter("%b"))
    axes.legend(loc="lower center", fontsize="small", ncols=3)
panels[0].set_ylabel("highest temperature, °C")
