"""
3. Categories, dates and missing values
=======================================

Real tables have text, dates and empty cells. ``rfgp`` reads text and dates of a pandas dataframe directly. Empty
cells need a decision of yours. This tutorial fits the prices of homes, from a table of sales.
The district is a category, the sale has a date, and the age is missing in some rows.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS

rng = np.random.default_rng(0)
n = 500
districts = pd.Series({"harbor": 60.0, "hill": 30.0, "old town": 45.0, "north": 0.0, "south": 5.0, "station": -20.0})
homes = pd.DataFrame(
    {
        "area": rng.uniform(40, 200, n).round(),
        "district": rng.choice(districts.index, n, p=[0.05, 0.15, 0.2, 0.3, 0.28, 0.02]),
        "garden": rng.random(n) < 0.4,
        "age": rng.gamma(2.0, 20.0, n).round(),
        "sold": pd.Timestamp("2021-01-01") + pd.to_timedelta(rng.integers(0, 4 * 365, n), unit="D"),
    }
)
day = (homes["sold"] - homes["sold"].min()).dt.days
homes["price"] = (
    100
    + 1.5 * homes["area"]
    + homes["district"].map(districts)
    + 20 * homes["garden"]
    - 0.6 * homes["age"]
    + 25 * np.tanh((day - 700) / 300)
    + 12 * np.cos(2 * np.pi * (day - 150) / 365.25)
    + 10 * rng.normal(size=n)
)
print(homes.head())
print(homes.dtypes)

# %%
# How a kernel reads columns
# --------------------------
# The kernel decides how its column is read. ``k.Group("district")`` reads levels. ``k.RBF("sold")`` and
# ``k.Linear("area")`` read numbers, and dates are days. So the period of a year is 365.25. Booleans are 0 and 1 for
# kernels on numbers, and levels for ``k.Group``.

kernel = (
    k.Linear("area")
    + k.Group("district")
    + k.Linear("garden")
    + k.Linear("age")
    + k.RBF("sold", name="market")
    + k.Periodic("sold", period=365.25, name="year")
)
train, test = homes[:400], homes[400:]
gp = rfgp.GP(kernel, seed=0).fit(train, "price")
for name, term in gp.terms.items():
    print(f"{name:16s} share {term.share:6.1%}   degrees of freedom {term.degrees_of_freedom:5.2f}")
print(f"lengthscale of the market: {gp.hyperparameters['market.lengthscale'].item():.0f} days")
print(f"RMSE on the test rows: {rfgp.metrics.rmse(test['price'], gp.predict(test)):.2f}; the noise has 10")

# %%
# Predictions find their columns by name, in any order. A wrong column is an error that names it.

try:
    gp.predict(test.drop(columns="garden"))
except rfgp.DataError as error:
    print(error)

# %%
# Dates on the axis
# -----------------
# You can predict at dates that you make with pandas, and pass the same dates to matplotlib.

dates = pd.date_range("2021-01-01", "2025-07-01", freq="7D")
at_dates = pd.DataFrame({"area": 100.0, "district": "north", "garden": False, "age": 30.0, "sold": dates})
terms = gp.predict(at_dates).terms
figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for axes, name in zip(panels, ("market", "year"), strict=True):
    effect = terms[name].centered()
    axes.fill_between(dates, *effect.interval(0.95), color=COLORS[0], alpha=0.3, lw=0)
    axes.plot(dates, effect.mean, color=COLORS[0])
    axes.axvline(train["sold"].max(), color="gray", lw=0.8, ls=":")
    axes.set(title=name, ylabel="effect on the price")
    axes.xaxis.set_major_locator(plt.matplotlib.dates.YearLocator())
    axes.xaxis.set_major_formatter(plt.matplotlib.dates.DateFormatter("%Y"))

# %%
# The dotted line is the last sale among the training rows.
#
# Rare levels and new levels
# --------------------------
# A group has one variance for all its levels, which are otherwise unrelated (:doc:`other kernels of levels
# </howto/kernels>`). The effect of a level with few rows is closer to 0, and has a larger
# standard deviation. The effects below are centered: a constant that all districts share is not part of them.


def in_districts(names):
    """Return one home in each of some districts, which are otherwise equal."""
    same = {"area": 100.0, "garden": False, "age": 30.0, "sold": dates[100]}
    return pd.DataFrame({"district": list(names), **same})


effect = gp.predict(in_districts(districts.index)).terms["group(district)"].centered()
counts = train["district"].value_counts().reindex(districts.index)
columns = {"rows": counts, "effect": effect.mean, "std": effect.std, "truth": districts - districts.mean()}
print(pd.DataFrame(columns).sort_values("rows").round(1))

# %%
# A level without rows has the mean 0, and the standard deviation of the differences between districts.

effect = gp.predict(in_districts(["lake"])).terms["group(district)"]
print(f"effect of a new district: {effect.mean[0]:.1f} +- {effect.std[0]:.1f}")

# %%
# A selected kernel reads text in another way: one indicator column of zeros and ones for each level. An unknown
# level then has zeros in all indicators. Nothing makes its prediction wider, so ``predict`` warns.

selected = rfgp.GP(seed=0).fit(train[["area", "district", "garden", "price"]][:150], "price")
new = in_districts(["lake"])[["area", "district", "garden"]]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    selected.predict(new)
print(caught[0].category.__name__, caught[0].message, sep=": ")

# %%
# Missing values
# --------------
# An empty cell is an error that names the columns, because no replacement is right for every table. Here a fifth of the
# ages is missing.

gaps = train.copy()
gaps.loc[gaps.index[rng.random(len(gaps)) < 0.2], "age"] = np.nan
try:
    rfgp.GP(kernel, seed=0).fit(gaps, "price")
except rfgp.DataError as error:
    print(error)

# %%
# There are three remedies:
#
# 1. Leave the rows out: ``gaps.dropna()``. This is right if few rows have gaps.
# 2. Fill the gaps with the mean. The rows keep their other columns.
# 3. Fill the gaps, and add a column that marks them. ``k.Group`` on this column absorbs a difference between the rows
#    with and without an age.
#
# The command line has the first two as ``rfgp fit homes.csv --missing drop`` and ``--missing mean``.

filled = gaps.fillna({"age": gaps["age"].mean()})
fitted = {}
marked = filled.assign(age_missing=gaps["age"].isna())
for title, table, model in (
    ("no gaps", train, kernel),
    ("rows left out", gaps.dropna(), kernel),
    ("filled", filled, kernel),
    ("filled and marked", marked, kernel + k.Group("age_missing")),
):
    fitted[title] = rfgp.GP(model, seed=0).fit(table, "price")
    prediction = fitted[title].predict(test.assign(age_missing=False)).observed()
    print(
        f"{title:18s} {len(table)} rows   RMSE on the test rows {rfgp.metrics.rmse(test['price'], prediction):5.2f}   "
        f"log density {prediction.log_prob(test['price']).mean():.3f} nats a row"
    )

# %%
# The ages are missing at random here, so a marked gap adds nothing. It helps if gaps are more frequent in cheap homes.
#
# Filled cells add noise: the fitted noise grows by the variance that the unknown ages cause. If you know which rows
# have less certain inputs, you can also give a noise variance for each row: ``fit(..., noise=variances)``. It adds to
# the noise that all rows share.

extra = np.where(gaps["age"].isna(), 0.6**2 * gaps["age"].var(), 0.0)
known = rfgp.GP(kernel, seed=0).fit(filled, "price", noise=extra)
for title, model in (("no gaps", gp), ("filled", fitted["filled"]), ("filled, variances given", known)):
    print(f"{title:24s} shared noise variance {model.hyperparameters.noise.item():6.1f}")
score = known.predict(test).observed().log_prob(test["price"]).mean()
print(f"filled with known variances: log density {score:.3f} nats a row")

# %%
# :doc:`Tables </howto/tables>` lists how each kind of column is read. If the curves of levels are similar, or if there
# are several outputs, read when to take ``k.Categorical`` or ``k.Coregionalization`` instead of ``k.Group``:
# :doc:`kernels </howto/kernels>`.
