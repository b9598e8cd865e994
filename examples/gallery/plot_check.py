"""
Is the model any good? Residuals and calibration
================================================

Bike rentals of every second day in Washington, from weather and the kind of day. Each day is predicted from all others.
Without a term of the date the residuals of 2011 are negative and those of 2012 positive. The 50 % intervals then hold
too few days, although the 95 % intervals look right.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.dates import ConciseDateFormatter

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS, coverage_band

bikes = rfgp.datasets.load("bikes")
days, others = bikes[::2], bikes[1::2]
weather = k.RBF("temperature") + k.RBF("humidity") + k.RBF("wind") + k.Group("kind")
models = {
    "weather": rfgp.GP(weather, seed=0).fit(days, "rentals"),
    "weather + growth": rfgp.GP(weather + k.RBF("date", name="growth"), seed=0).fit(days, "rentals"),
}
print(rfgp.compare.compare_models(models))
print(rfgp.compare.compare_models(models, others, others["rentals"]))

# %%
# Left are the residuals of left-out days, right the fraction of days inside the central interval of each level. The
# gray band holds the curve of a calibrated model at each level with a probability of 95 %.
figure = plt.figure(figsize=(10, 4.4), layout="constrained")
panels = figure.subplot_mosaic([["weather", "curve"], ["weather + growth", "curve"]], width_ratios=(3, 2))
curve = panels["curve"]
levels = np.linspace(0.02, 0.98, 49)
curve.fill_between(levels, *coverage_band(levels, len(days)), color="0.85", lw=0)
for color, (name, gp) in zip((COLORS[5], COLORS[0]), models.items(), strict=True):
    left_out = gp.leave_one_out()
    residuals = days["rentals"] - left_out.mean
    panels[name].plot(days["date"], residuals, ".", color=color)
    panels[name].axhline(0, color="black", lw=0.8)
    panels[name].set(title=f"residuals: {name}", ylabel="rentals a day", ylim=(-4200, 4200))
    curve.plot(levels, gp.calibration(levels).coverage, color=color, lw=2, label=name)
    z = np.asarray(residuals / np.sqrt(left_out.variance))
    print(f"{name}: correlation of neighboring days {np.corrcoef(z[:-1], z[1:])[0, 1]:.2f}")
    panels[name].xaxis.set_major_formatter(ConciseDateFormatter(panels[name].xaxis.get_major_locator()))
panels["weather + growth"].text(days["date"].iloc[345], -3800, "the day after hurricane Sandy", ha="right", va="center")
curve.set(xlabel="level of the interval", ylabel="fraction of left-out days inside", aspect="equal")
curve.legend(loc="upper left", frameon=False)
