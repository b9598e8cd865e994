"""
2. Trend, season and groups
===========================

Daily sales of three stores depend on a trend, the day of the week, the store and the price. One model has a term for
each. You read the effect of each term with its band, extend the trend into the future, and predict a store without
rows.
"""

import matplotlib.pyplot as plt
import numpy as np

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS

rng = np.random.default_rng(0)
n = 400
day = np.arange(float(n))
store = rng.choice(["north", "south", "west"], n)
price = rng.uniform(1, 3, n)


def trend_of(day):
    return 3 * np.sin(day / 50)


def week_of(day):
    return 1.5 * np.sin(2 * np.pi * day / 7)


units = 20 + trend_of(day) + week_of(day) - 4 * price + 2 * (store == "west") + rng.normal(size=n)
sales = {"day": day, "store": store, "price": price, "units": units}

# %%
# A sum of terms
# --------------
# Each kernel names its column. ``k.Group`` gives each level of a column an effect, with one variance for all levels:
# the random effects of a mixed model. A term has a name, by default after its class and column.

kernel = k.RBF("day", name="trend") + k.Periodic("day", period=7, name="week") + k.Group("store") + k.Linear("price")
gp = rfgp.GP(kernel, seed=0).fit(sales, "units")
for name, term in gp.terms.items():
    print(f"{name:15s} share {term.share:6.1%}   degrees of freedom {term.degrees_of_freedom:5.2f}")
print(gp.hyperparameters)

# %%
# All hyperparameters are in the units of the data. ``trend.lengthscale`` is in days, ``noise`` in squares of the
# target's unit. The noise that was added has the variance 1. The period is fixed, because you gave it.
#
# Effects with bands
# ------------------
# ``predict(...).terms[name]`` is the posterior distribution of one term. A constant can belong to the trend as well as
# to the stores, so a term alone has a wide band. ``centered()`` is the term minus its mean over the points. The
# constant cancels, and the band shows how well the data determine the shape of the effect.

grid = {"day": np.linspace(0, n - 1, 300), "store": ["west"] * 300, "price": np.full(300, 2.0)}
week_grid = {"day": np.linspace(0, 7, 100), "store": ["west"] * 100, "price": np.full(100, 2.0)}
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for axes, points, name, truth in ((left, grid, "trend", trend_of), (right, week_grid, "week", week_of)):
    term = gp.predict(points).terms[name]
    effect, days = term.centered(), points["day"]
    axes.fill_between(days, *effect.interval(0.95), color=COLORS[0], alpha=0.3, lw=0, label="95 % band")
    axes.plot(days, effect.mean, color=COLORS[0], label="mean")
    axes.plot(days, truth(days) - truth(days).mean(), color=COLORS[6], lw=1, ls="--", label="truth")
    axes.set(title=name, xlabel="day", ylabel="effect, units")
    print(f"{name}: standard deviation {term.std.mean():.2f}, centered {effect.std.mean():.2f}")
left.legend()

# %%
# The bands above are for each day alone. If you compare two points, take the distribution of the difference. ``linear``
# gives it for any weights, here for the best and the worst day of the week.

week = gp.predict({"day": np.arange(7.0), "store": ["west"] * 7, "price": np.full(7, 2.0)}).terms["week"]
best, worst = int(week.mean.argmax()), int(week.mean.argmin())
difference = week.linear(np.eye(7)[best] - np.eye(7)[worst])
low, high = (float(np.squeeze(end)) for end in difference.interval(0.95))
truth = week_of(best) - week_of(worst)
print(
    f"day {best} minus day {worst} of the week: {low:.2f} to {high:.2f} units with 95 % probability; true: {truth:.2f}"
)

# %%
# Slopes and groups
# -----------------
# The slope of a linear term is a difference of predictions at prices that differ by one. The effects of the stores are
# differences, too.

prices = gp.predict({"day": [0.0, 0.0], "store": ["west"] * 2, "price": [1.0, 2.0]}).terms["linear(price)"]
slope = prices.linear([-1, 1])
print(f"slope of the price: {np.squeeze(slope.mean):.2f} +- {np.squeeze(slope.std):.2f} units; true: -4")

stores = ["north", "south", "west", "a new one"]
at_stores = gp.predict({"day": [0.0] * 4, "store": stores, "price": [2.0] * 4}).terms["group(store)"]
for name, mean, std in zip(stores, at_stores.mean, at_stores.std, strict=True):
    print(f"{name:10s} effect {mean:5.2f} +- {std:.2f} units")

# %%
# A store without rows has the mean 0, and a large standard deviation: that of the differences between stores. So its
# predictions are wide, as they should be. Three stores hardly determine the variance between stores. With more stores
# this number becomes more reliable.
#
# Extrapolation
# -------------
# Now predict the 120 days after the rows. The week repeats. The trend returns to its mean over some
# lengthscales, and its band grows to that of the prior. The band shows how far ahead the model can see.

future = {"day": np.arange(300.0, 520.0), "store": ["west"] * 220, "price": np.full(220, 2.0)}
prediction = gp.predict(future)
truth = 20 + trend_of(future["day"]) + week_of(future["day"]) - 4 * 2.0 + 2
figure, axes = plt.subplots(figsize=(9, 3.4), layout="constrained")
axes.fill_between(future["day"], *prediction.interval(0.95), color=COLORS[0], alpha=0.3, lw=0, label="95 % band")
axes.plot(future["day"], prediction.mean, color=COLORS[0], label="mean")
axes.plot(future["day"], truth, color=COLORS[6], lw=1, ls="--", label="truth")
axes.axvline(n, color="gray", lw=0.8, ls=":")
axes.set(xlabel="day (dotted: the last row)", ylabel="units, store west, price 2")
axes.legend(loc="lower left")
for ahead in (0, 20, 60, 119):
    row = 100 + ahead
    print(
        f"{ahead:3d} days ahead: mean {prediction.mean[row]:5.1f}, standard deviation {prediction.std[row]:.1f}, "
        f"truth {truth[row]:5.1f}"
    )

# %%
# The kernel decides how a trend continues. The RBF kernel and the rough Matern kernel return to the mean, the first
# with the last slope, the second at once. A linear term continues as a line. Compare kernels on rows of the kind that
# you will predict: fit them to the first 320 days, and score the next 80.

first = {name: column[:320] for name, column in sales.items()}
later = {name: column[320:] for name, column in sales.items()}
for title, trend in (("RBF", k.RBF("day")), ("Matern 1/2", k.Matern("day", nu=0.5)), ("Linear", k.Linear("day"))):
    kernel = trend + k.Periodic("day", period=7) + k.Group("store") + k.Linear("price")
    forecast = rfgp.GP(kernel, seed=0).fit(first, "units").predict(later).observed()
    print(
        f"{title:10s} log density of days 320 to 399: {forecast.log_prob(later['units']).mean():6.3f} nats a row, "
        f"RMSE {rfgp.metrics.rmse(later['units'], forecast):.2f} units"
    )

# %%
# Next: :doc:`/howto/kernels` has products of kernels, such as a trend for each store, and
# :doc:`/howto/series-and-maps` has long series.
