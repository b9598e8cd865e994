"""
The terms of a table: trend, holidays and weather
=================================================

Bicycles rented in Washington on 731 days of 2011 and 2012 (UCI, H. Fanaee-T and J. Gama 2013, CC BY 4.0). One model is
a sum of terms, and each term has a 95 % band of its own. Effects are centered, because a constant could belong to any
of them. Percentages are shares of the variance. The term "days" is what a day shares with the days around it.
"""

import matplotlib.pyplot as plt
import numpy as np

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS
from rfgp.plotting import plot_term

bikes = rfgp.datasets.load("bikes")
bikes["rentals"] /= 1000
kernel = (
    k.RBF("date", lengthscale=180.0, name="trend")
    + k.Matern("date", nu=0.5, lengthscale=5.0, name="days")
    + k.Group("kind", name="kind")
    + k.RBF("temperature", name="temperature")
    + k.RBF("humidity", name="humidity")
)
gp = rfgp.GP(kernel, seed=0).fit(bikes, "rentals")
prediction = gp.predict(bikes)

figure = plt.figure(figsize=(11, 6.4), layout="constrained")
grid = figure.add_gridspec(2, 4, height_ratios=(1.1, 1))
axes = figure.add_subplot(grid[0, :3])
axes.fill_between(bikes["date"], *prediction.observed().interval(0.95), color=COLORS[0], alpha=0.25, lw=0)
axes.plot(bikes["date"], prediction.mean, color=COLORS[0], lw=0.7)
axes.plot(bikes["date"], bikes["rentals"], ".", ms=2.5, color="black")
axes.set(title="rentals: data, mean and 95 % band", ylabel="thousand a day", ylim=(0, None))
axes = figure.add_subplot(grid[0, 3])
residual = bikes["rentals"] - prediction.mean
axes.hist(residual, 40, color=COLORS[7])
axes.set(title="residuals", xlabel="thousand a day", ylabel="days")
for i, name in enumerate(("trend", "temperature", "humidity", "kind")):
    axes = plot_term(gp, name, bikes, axes=figure.add_subplot(grid[1, i]))
    axes.set(title=f"{name}, {gp.terms[name].share:.0%}", ylabel="effect, thousand a day" if i == 0 else "")
    axes.set_xlabel({"temperature": "°C", "humidity": "%", "kind": "thousand a day"}.get(name, ""))
    if name == "trend":
        axes.xaxis.set_major_locator(plt.matplotlib.dates.YearLocator())
        axes.xaxis.set_major_formatter(plt.matplotlib.dates.DateFormatter("%Y"))
    if axes.get_legend() and i:
        axes.get_legend().remove()

coverage = gp.calibration()
inside = coverage.coverage[np.argmin(np.abs(np.asarray(coverage.levels) - 0.95))]
print(f"days in the 95 % interval, each predicted from the others: {inside:.0%}")
worst = residual.abs().idxmax()
print(f"largest residual: {1000 * residual[worst]:.0f} rentals on {bikes['date'][worst]:%Y-%m-%d}")
