"""
What a Gaussian process gives: curves before and after data
===========================================================

Five pictures for readers who have not used a Gaussian process before. Each one is explained on the page
:doc:`/explanations/gp`. The data are weekly CO2 at Mauna Loa, and bike rentals of 731 days in Washington.
"""

import matplotlib.pyplot as plt
import numpy as np

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS

co2 = rfgp.datasets.load("co2").dropna()
co2["year"] = co2["week"].dt.year + (co2["week"].dt.dayofyear - 1) / 365.25
one_year = co2[co2["week"].dt.year == 1990].assign(month=lambda rows: 12 * (rows["year"] - 1990))
rng = np.random.default_rng(5)
months = {"month": np.linspace(0, 12, 241)}


def draw(axes, mean, low, high, x=months["month"], color=COLORS[0]):
    """Draw a mean with its 95 % band."""
    axes.fill_between(x, low, high, color=color, alpha=0.25, lw=0)
    axes.plot(x, mean, color=color)


def draws_of_prior(lengthscale, mean, deviation, count=5):
    """Return curves that the kernel calls plausible before any data."""
    covariance = deviation**2 * k.RBF("month", lengthscale=lengthscale).matrix(months).numpy()
    return rng.multivariate_normal(np.full(241, mean), covariance, count, method="svd").T


# %%
# **Before data, three weeks, all weeks.** Thin lines are single curves drawn from the distribution. The hyperparameters
# are the same in all panels.
fitted = rfgp.GP(k.RBF("month"), seed=0).fit(one_year, "co2")
print(fitted.hyperparameters)
values = {
    name: fitted.hyperparameters[name].detach().numpy() for name in ("lengthscale", "outputscale", "noise", "mean")
}
lengthscale, mean, deviation = values["lengthscale"].item(), values["mean"].item(), values["outputscale"].item() ** 0.5

figure, panels = plt.subplots(1, 3, figsize=(9, 3.2), sharey=True, layout="constrained")
draw(panels[0], np.full(241, mean), mean - 1.96 * deviation, mean + 1.96 * deviation)
panels[0].plot(months["month"], draws_of_prior(lengthscale, mean, deviation, 3), color=COLORS[0], lw=0.7)
for axes, rows in zip(panels[1:], (one_year.iloc[[4, 18, 36]], one_year), strict=True):
    gp = rfgp.GP(k.RBF("month"), start=values, seed=0).condition(rows, "co2")
    p = gp.predict(months)
    draw(axes, p.mean, *p.interval(0.95))
    axes.plot(months["month"], p.sample(3, seed=0).T, color=COLORS[0], lw=0.7)
    axes.plot(rows["month"], rows["co2"], ".", color="black")
for axes, title in zip(panels, ("before data: the prior", "three weeks", "all 52 weeks"), strict=True):
    axes.set(title=title, xlabel="month of 1990", xticks=range(0, 13, 3))
panels[0].set_ylabel("CO2 (ppm)")

# %%
# **The kernel.** The lengthscale is the distance over which values stay similar. Above are draws before data, below the
# band after every fifth week of the year.
figure, panels = plt.subplots(2, 3, figsize=(9, 5), sharex=True, sharey=True, layout="constrained")
some = one_year[::5]
for column, scale in enumerate((0.3, lengthscale, 12.0)):
    gp = rfgp.GP(k.RBF("month"), start={**values, "lengthscale": scale}, seed=0).condition(some, "co2")
    p = gp.predict(months)
    panels[0, column].plot(months["month"], draws_of_prior(scale, mean, deviation, 3), color=COLORS[0], lw=0.9)
    draw(panels[1, column], p.mean, *p.interval(0.95))
    panels[1, column].plot(some["month"], some["co2"], ".", color="black")
    kind = ("too short", "fitted", "too long")[column]
    panels[0, column].set_title(f"{kind}: {scale:.2g} months")
    panels[1, column].set(xlabel="month of 1990", xticks=range(0, 13, 3))
panels[0, 0].set_ylabel("CO2 (ppm), before data")
panels[1, 0].set_ylabel("CO2 (ppm), after data")

# %%
# **Noise: two bands.** The dark band is of the average number of rentals at a temperature. The light one is of a single
# day. Every second day was held out.
bikes = rfgp.datasets.load("bikes")
train, test = bikes[::2], bikes[1::2].sort_values("temperature")
gp = rfgp.GP(k.RBF("temperature"), seed=0).fit(train[["temperature"]], train["rentals"])
grid = {"temperature": np.linspace(bikes["temperature"].min(), bikes["temperature"].max(), 200)}
p = gp.predict(grid)

figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
axes.fill_between(grid["temperature"], *p.observed().interval(0.95), color=COLORS[0], alpha=0.15, lw=0)
axes.fill_between(grid["temperature"], *p.interval(0.95), color=COLORS[0], alpha=0.5, lw=0)
axes.plot(grid["temperature"], p.mean, color=COLORS[0])
axes.plot(train["temperature"], train["rentals"], ".", color="black", ms=3)
axes.annotate("95 % of the function:\npredict(X)", (3, p.mean[40]), (-4, 5300), arrowprops={"arrowstyle": "-"})
axes.annotate("95 % of single days:\npredict(X).observed()", (30, 7900), (17.5, 8900), arrowprops={"arrowstyle": "-"})
axes.set(xlabel="temperature (°C)", ylabel="rentals a day", ylim=(-1500, 9900))

# %%
# **What 95 % means.** Of the held-out days about 95 % are inside the light band. In a part of them it may be more or
# less.
low, high = gp.predict(test[["temperature"]]).observed().interval(0.95)
is_inside = (test["rentals"].to_numpy() >= low) & (test["rentals"].to_numpy() <= high)
temperature = test["temperature"].to_numpy()

figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
axes.fill_between(temperature, low, high, color=COLORS[0], alpha=0.15, lw=0)
for color, name, rows in ((COLORS[2], "inside", is_inside), (COLORS[5], "outside", ~is_inside)):
    axes.plot(temperature[rows], test["rentals"][rows], ".", color=color, label=f"{name}: {rows.sum()} days")
for left, right in ((-10, 10), (10, 20), (20, 40)):
    rows = (temperature >= left) & (temperature < right)
    middle = (max(left, temperature.min()) + min(right, temperature.max())) / 2
    axes.text(middle, 9300, f"{100 * is_inside[rows].mean():.0f} % inside", ha="center")
    print(f"{left} to {right} °C: {is_inside[rows].mean():.1%} of {rows.sum()} days inside")
for edge in (10, 20):
    axes.axvline(edge, color="0.6", lw=0.8, ls=":")
axes.set(xlabel="temperature (°C)", ylabel="rentals a day", ylim=(-1500, 9900))
axes.legend(loc="lower right", frameon=False)
print(f"all: {is_inside.mean():.1%} of {len(test)} days inside")

# %%
# **Far from data the kernel decides.** Both models were fitted to the weeks before 1990. Without a line the trend
# returns to its mean.
some = co2[co2["year"] >= 1970][::4]
past, later = some[some["year"] < 1990], some[some["year"] >= 1990]
local = k.RBF("year", name="trend") + k.Periodic("year", period=1.0, name="season")
figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for axes, kernel, title in zip(
    panels, (local, k.Linear("year", name="line") + local), ("trend + season", "line + trend + season"), strict=True
):
    gp = rfgp.GP(kernel, seed=0).fit(past[["year"]], past["co2"])
    p = gp.predict(some[["year"]]).observed()
    draw(axes, p.mean, *p.interval(0.95), x=some["year"])
    axes.plot(past["year"], past["co2"], ".", color="black", ms=2, label="rows of the fit")
    axes.plot(later["year"], later["co2"], ".", color=COLORS[5], ms=3, label="what followed")
    axes.set(title=title, xlabel="year")
    inside = rfgp.metrics.interval_coverage(later["co2"], gp.predict(later[["year"]]), [0.95])
    print(f"{title}: {float(inside):.0%} of the later weeks are inside the band")
panels[0].set_ylabel("CO2 (ppm)")
panels[0].legend(loc="upper left", frameon=False)
