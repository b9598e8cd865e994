"""
3. Categories, dates and missing values
=======================================

Real tables have text, dates and empty cells. ``rfgp`` reads text and dates of a pandas dataframe directly. Empty
cells need a decision of yours. The first table has 344 penguins with empty cells (K. B. Gorman, T. D. Williams, W. R.
Fraser 2014, CC0), the second four years of weather in Seattle (NOAA, public domain).
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS

penguins = rfgp.datasets.load("penguins")
print(penguins[["species", "island", "bill_length_mm", "flipper_length_mm", "body_mass_g", "sex"]].head())
print(penguins.isna().sum().loc[lambda count: count > 0])

# %%
# Missing values
# --------------
# An empty cell is an error that names the columns, because no replacement is right for every table.

kernel = (
    k.Group("species")
    + k.Group("sex")
    + k.Linear("flipper_length_mm", name="flipper")
    + k.Linear("bill_depth_mm", name="bill")
)
weighed = penguins.dropna(subset="body_mass_g")  # two birds were not measured at all
weighed = weighed.sample(frac=1, random_state=0, ignore_index=True)
train, test = weighed[:250], weighed[250:]
try:
    rfgp.GP(kernel, seed=0).fit(train, "body_mass_g")
except rfgp.DataError as error:
    print(error)

# %%
# There are three remedies:
#
# 1. Leave the rows out: ``train.dropna()``. This is right if few rows have gaps.
# 2. Fill the gaps: a number with the mean, a text with a level of its own such as "unknown". The rows keep their other
#    columns.
# 3. Fill the gaps, and add a column that marks them. ``k.Group`` on this column absorbs a difference between the rows
#    with and without the number.
#
# The command line has the first two as ``rfgp fit penguins --missing drop`` and ``--missing mean``. Only nine birds of
# unknown sex have a mass. To see a difference, we also erase a third of the lengths of the flippers.

rng = np.random.default_rng(0)
gaps = train.assign(flipper_length_mm=train["flipper_length_mm"].mask(rng.random(len(train)) < 1 / 3))
gaps = gaps.fillna({"sex": "unknown"})
whole = train.fillna({"sex": "unknown"})
test = test.fillna({"sex": "unknown"})
filled = gaps.fillna({"flipper_length_mm": gaps["flipper_length_mm"].mean()})
marked = filled.assign(is_marked=gaps["flipper_length_mm"].isna())
models = {}
for title, table, model in (
    ("no gaps", whole, kernel),
    ("rows left out", gaps.dropna(), kernel),
    ("filled", filled, kernel),
    ("filled and marked", marked, kernel + k.Group("is_marked")),
):
    models[title] = rfgp.GP(model, seed=0).fit(table, "body_mass_g")
    prediction = models[title].predict(test.assign(is_marked=False)).observed()
    error, score = rfgp.metrics.rmse(test["body_mass_g"], prediction), prediction.log_prob(test["body_mass_g"]).mean()
    print(f"{title:18s} {len(table)} rows   RMSE on the test rows {error:3.0f} g   log density {score:.3f} nats a row")

# %%
# Lengths are missing at random here, so a marked gap adds nothing. It helps if gaps have a cause, such as birds that
# were too heavy to hold.
#
# Filled cells add noise. If you know which rows have less certain inputs, give a noise variance for each row:
# ``fit(..., noise=variances)``. It adds to the noise that all rows share. Here it is the variance of a flipper within a
# species, times the squared slope of the model without gaps.

two = pd.DataFrame({"species": "Adelie", "sex": "male", "flipper_length_mm": [200.0, 201.0], "bill_depth_mm": 17.0})
slope = np.squeeze(models["no gaps"].predict(two).terms["flipper"].linear([-1, 1]).mean)
within = whole.groupby("species")["flipper_length_mm"].var().mean()
extra = np.where(gaps["flipper_length_mm"].isna(), slope**2 * within, 0.0)
known = rfgp.GP(kernel, seed=0).fit(filled, "body_mass_g", noise=extra)
print(f"slope {slope:.1f} g a mm, standard deviation of a flipper within a species {within**0.5:.1f} mm")
score = known.predict(test).observed().log_prob(test["body_mass_g"]).mean()
print(f"filled, with variances of the rows: log density {score:.3f} nats a row")

# %%
# Categories
# ----------
# ``k.Group`` reads levels: text, integers, booleans, pandas categories. Other kernels read numbers, and booleans are 0
# and 1 for them. A group has one variance for all its levels, which are otherwise unrelated (:doc:`other kernels of
# levels </howto/kernels>`). Effects are centered: a constant that all species share is not part of them.

gp = models["no gaps"]
bird = {"sex": "female", "flipper_length_mm": 200.0, "bill_depth_mm": 17.0}
species = ["Adelie", "Chinstrap", "Gentoo"]
effect = gp.predict(pd.DataFrame({"species": species, **bird})).terms["group(species)"].centered()
rows = whole["species"].value_counts().reindex(species)
print(pd.DataFrame({"rows": rows, "effect, g": effect.mean.round(), "std, g": effect.std.round()}))

# %%
# The effect of a level with few rows is closer to 0, and has a larger standard deviation. Here the birds of unknown sex
# show it: their effect is between those of the other two, as it should be.

sexes = ["female", "male", "unknown"]
effect = gp.predict(pd.DataFrame({**bird, "species": "Adelie", "sex": sexes})).terms["group(sex)"].centered()
rows = whole["sex"].value_counts().reindex(sexes)
print(pd.DataFrame({"rows": rows, "effect, g": effect.mean.round(), "std, g": effect.std.round()}, index=sexes))

# %%
# A level without rows has the mean 0, and the standard deviation of the differences between species. The prediction of
# an emperor penguin is therefore wide, and still wrong: emperors weigh over 20 kg. A model does not know what no row
# shows.

emperor = gp.predict(pd.DataFrame({"species": ["Emperor"], **bird}))
print(f"effect of a new species: {emperor.terms['group(species)'].mean[0]:.0f}", end=" ")
print(f"+- {emperor.terms['group(species)'].std[0]:.0f} g; prediction {emperor.mean[0]:.0f} +- {emperor.std[0]:.0f} g")

# %%
# A selected kernel reads text in another way: one indicator column of zeros and ones for each level. An unknown
# level then has zeros in all indicators. Nothing makes its prediction wider, so ``predict`` warns.

selected = rfgp.GP(seed=0).fit(whole[["species", "flipper_length_mm", "body_mass_g"]][:150], "body_mass_g")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    selected.predict(pd.DataFrame({"species": ["Emperor"], "flipper_length_mm": [200.0]}))
print(caught[0].category.__name__, caught[0].message, sep=": ")

# %%
# Predictions find their columns by name, in any order. A wrong column is an error that names it.

try:
    gp.predict(test.drop(columns="sex"))
except rfgp.DataError as error:
    print(error)

# %%
# Dates
# -----
# Dates are days for kernels on numbers, so the period of a year is 365.25. The table of Seattle has a date, a text and
# numbers. Three years are for the fit, and the last is kept out.

seattle = rfgp.datasets.load("seattle")
print(seattle.dtypes)
years = seattle["date"].dt.year
past, last = seattle[(years < 2015) & (seattle.index % 2 == 0)], seattle[years == 2015]
kernel = (
    k.Periodic("date", period=365.25, name="year")
    + k.Matern("date", nu=0.5, lengthscale=10.0, name="days")
    + k.Group("weather")
)
weather = rfgp.GP(kernel, seed=0).fit(past, "temperature_max")
for name, term in weather.terms.items():
    print(f"{name:15s} share {term.share:6.1%}")
prediction = weather.predict(last).observed()
print(f"RMSE in 2015: {rfgp.metrics.rmse(last['temperature_max'], prediction):.1f} degrees")
error = last["temperature_max"] - prediction.mean
print(f"2015 was warmer than predicted by {error.mean():.1f} degrees on average")
print(f"days in the 95 % interval: {np.mean(np.abs(error) < 1.96 * prediction.std):.0%}")

# %%
# You can predict at dates that you make with pandas, and pass the same dates to matplotlib.

dates = pd.date_range("2014-07-01", "2015-12-31", freq="D")
p = weather.predict(pd.DataFrame({"date": dates, "weather": "sun"})).observed()
figure, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
axes.fill_between(dates, *p.interval(0.95), color=COLORS[0], alpha=0.25, lw=0, label="sunny day, 95 %")
axes.plot(dates, p.mean, color=COLORS[0], label="mean of a sunny day")
shown = seattle[(seattle["date"] >= dates[0]) & (seattle["weather"] == "sun")]
axes.plot(shown["date"], shown["temperature_max"], ".", ms=3, color="black", label="sunny days")
axes.axvline(past["date"].max(), color="gray", lw=0.8, ls=":")
axes.set(ylabel="highest temperature, °C", title="Seattle (dotted: the last row of the fit)")
axes.legend(loc="lower left", ncols=3, fontsize="small")

# %%
# Within the rows the band is narrow. A few days after the last row it is as wide as the weather of a season is
# uncertain. :doc:`Tables </howto/tables>` lists how each kind of column is read.
