"""
2. Trend, season and groups
===========================

Bicycles rented in Washington depend on a trend, the day of the week, holidays and the weather. One model has a term for
each. You read the effect of each term with its band, and extend a trend into the future. The data are 731 days of 2011
and 2012 (UCI, H. Fanaee-T and J. Gama 2013, CC BY 4.0), and the carbon dioxide of Mauna Loa (Scripps, public domain).
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS

bikes = rfgp.datasets.load("bikes")
bikes["rentals"] /= 1000
print(bikes.head(3))

# %%
# A sum of terms
# --------------
# Each kernel names its column. Dates are days. ``k.Group`` gives each level of a column an effect, with one variance
# for all levels: the random effects of a mixed model. A term has a name, by default after its class and column. The
# term "days" is for what a day shares with the days around it, such as a storm or an event. Without it the bands of the
# others are too narrow.

kernel = (
    k.RBF("date", lengthscale=180.0, name="trend")  # days; the fit starts there
    + k.Matern("date", nu=0.5, lengthscale=5.0, name="days")
    + k.Periodic("date", period=7, name="week")
    + k.Group("kind")
    + k.RBF("temperature", name="temperature")
    + k.Linear("humidity")
)
gp = rfgp.GP(kernel, seed=0).fit(bikes, "rentals")
for name, term in gp.terms.items():
    print(f"{name:17s} share {term.share:6.1%}   degrees of freedom {term.degrees_of_freedom:6.2f}")
print(gp.hyperparameters)

# %%
# All hyperparameters are in the units of the data. ``trend.lengthscale`` is in days, ``noise`` in squares of the
# target's unit, a thousand bicycles. The period is fixed, because you gave it.
#
# Effects with bands
# ------------------
# ``predict(...).terms[name]`` is the posterior distribution of one term. A constant can belong to the trend as well as
# to the kinds of days, so a term alone has a wide band. ``centered()`` is the term minus its mean over the points. The
# constant cancels, and the band shows how well the data determine the shape of the effect.

typical = {"kind": "workday", "temperature": 15.0, "humidity": 60.0}
week = pd.date_range("2012-05-07", periods=7)  # a Monday
warm = np.linspace(-5, 32, 200)
tables = {
    "trend": pd.DataFrame({"date": bikes["date"], **typical}),
    "temperature": pd.DataFrame({"date": week[0], **typical, "temperature": warm}),
    "week": pd.DataFrame({"date": week, **typical}),
}
horizontal = {"trend": bikes["date"], "temperature": warm, "week": ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"]}
figure, panels = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
for i, (axes, (name, table)) in enumerate(zip(panels, tables.items(), strict=True)):
    term = gp.predict(table).terms[name]
    effect = term.centered()
    axes.fill_between(horizontal[name], *effect.interval(0.95), color=COLORS[i], alpha=0.3, lw=0)
    axes.plot(horizontal[name], effect.mean, color=COLORS[i])
    axes.set(title=name)
    print(f"{name}: standard deviation {term.std.mean():.2f}, centered {effect.std.mean():.2f}")
panels[0].set(ylabel="effect, thousand bicycles")
panels[0].xaxis.set_major_locator(plt.matplotlib.dates.YearLocator())
panels[0].xaxis.set_major_formatter(plt.matplotlib.dates.DateFormatter("%Y"))
panels[1].set(xlabel="°C")

# %%
# The service grew, and people ride most at 20 to 25 °C. The effect of the week is ten times smaller than that of the
# temperature.
#
# The bands above are for each day alone. If you compare two points, take the distribution of the difference. ``linear``
# gives it for any weights, here for Friday and Sunday.

of_days = gp.predict(tables["week"]).terms["week"]
difference = of_days.linear(np.eye(7)[4] - np.eye(7)[6])
low, high = (float(np.squeeze(end)) for end in difference.interval(0.95))
print(f"Friday minus Sunday: {1000 * low:.0f} to {1000 * high:.0f} bicycles with 95 % probability")

# %%
# Slopes and groups
# -----------------
# The slope of a linear term is a difference of predictions at points that differ by one. The effects of the kinds of
# days are differences, too.

humid = pd.DataFrame({"date": week[0], **typical, "humidity": [60.0, 61.0]})
slope = gp.predict(humid).terms["linear(humidity)"].linear([-1, 1])
print(f"one percent of humidity: {1000 * np.squeeze(slope.mean):.0f} +- {1000 * np.squeeze(slope.std):.0f} bicycles")

kinds = ["workday", "weekend", "holiday", "a new kind"]
at_kinds = gp.predict(pd.DataFrame({"date": week[0], **typical, "kind": kinds})).terms["group(kind)"]
for kind, mean, std in zip(kinds, at_kinds.mean, at_kinds.std, strict=True):
    print(f"{kind:10s} effect {1000 * mean:5.0f} +- {1000 * std:.0f} bicycles")

# %%
# The kinds hardly differ once the day of the week and the weather are known. A kind without rows has the mean 0, and
# the standard deviation of the differences between kinds. Three kinds hardly determine this number. With more levels it
# becomes more reliable.
#
# Extrapolation
# -------------
# Two years are too few to learn how bicycles continue: is the fall of late 2012 a season or an end? The carbon dioxide
# of Mauna Loa has a longer record. Here are monthly means from 1970 to 1989, and the kernel of the trend decides how it
# continues to 2001.

monthly = rfgp.datasets.load("co2").set_index("week")["co2"].resample("MS").mean().dropna()
monthly = monthly["1970":].rename_axis("month").reset_index()
first, later = monthly[monthly["month"] < "1990"], monthly[monthly["month"] >= "1990"]
trends = {
    "RBF": k.RBF("month", lengthscale=3000.0, name="trend"),
    "Linear + RBF": k.Linear("month", name="trend") + k.RBF("month", lengthscale=1000.0, name="bend"),
    "Linear": k.Linear("month", name="trend"),
}
figure, axes = plt.subplots(figsize=(9, 3.8), layout="constrained")
axes.plot(monthly["month"], monthly["co2"], ".", ms=2, color="black", label="monthly means")
for i, (title, trend) in enumerate(trends.items()):
    kernel = trend + k.Periodic("month", period=365.25, name="year")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        forecast = rfgp.GP(kernel, seed=0).fit(first, "co2").predict(later).observed()
    low, high = forecast.interval(0.95)
    if title == "Linear":
        axes.plot(later["month"], np.column_stack([low, high]), color=COLORS[i], lw=0.8, ls="--", label=[title, None])
    else:
        axes.fill_between(later["month"], low, high, color=COLORS[i], alpha=0.3, lw=0)
        axes.plot(later["month"], forecast.mean, color=COLORS[i], lw=1, label=title)
    print(
        f"{title:17s} log density of 1990 to 2001: {forecast.log_prob(later['co2']).mean():6.2f} nats a month, RMSE "
        f"{rfgp.metrics.rmse(later['co2'], forecast):5.2f} ppm, {', '.join(w.category.__name__ for w in caught)}"
    )
axes.axvline(later["month"].min(), color="gray", lw=0.8, ls=":")
axes.set(ylabel="carbon dioxide, ppm", title="three kernels for the trend, forecasts with 95 % bands")
axes.legend(loc="upper left")

# %%
# The RBF kernel returns to its mean after some lengthscales. A line continues, but its band is too narrow: the model is
# sure that the line is straight, and the fit warns that neighboring errors are alike. The sum has a line and a bend
# that may go on, and the best score. Compare kernels on rows of the kind that you will predict, as here.
#
# Next: :doc:`/howto/forecast` does this with one command, :doc:`/howto/kernels` has products of kernels, such as a
# trend for each store, and :doc:`/howto/series-and-maps` has long series.
