"""
A forecast: level, seasons and bands that widen
===============================================

The data are the monthly passengers of airlines from 1949 to 1960 (Box and Jenkins 1976, Time series analysis, series
G). Their logarithm has a line, a level that wanders, and a year that changes slowly. The bands hold an observation with
95 %. The right picture has forecasts from three origins in the past, each from a fit to the months before.
"""

import matplotlib.pyplot as plt
import numpy as np

import rfgp
from rfgp.palette import COLORS
from rfgp.plotting import plot_forecast

table = rfgp.datasets.load("passengers")
gp = rfgp.GP(seed=0).fit(table[["month"]], np.log(table["passengers"]), horizon=24)
gp.metadata["log"] = True  # targets are logarithms
print(gp.selection.reason)

figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
plot_forecast(gp, gp.forecast(36), target="passengers (thousands)", axes=left)
left.set_xlabel("")

backtest = gp.backtest(horizon=24, folds=3)
print(backtest)
right.plot(table["month"], table["passengers"], color="black", lw=0.8)
for i, (origin, part) in enumerate(backtest.frame.groupby("origin")):
    right.fill_between(part["month"], part["lower"], part["upper"], color=COLORS[i], alpha=0.25, lw=0)
    right.plot(part["month"], part["mean"], color=COLORS[i], label=f"from {origin:%Y-%m}")
right.legend(frameon=False)
right.set_title("backtest")
