"""
Classes and counts with error bars
==================================

Left: the most probable species of a penguin over two measurements of its bill. Pale colors mean that the model is not
sure (K. B. Gorman, T. D. Williams, W. R. Fraser 2014, CC0). Right: bicycles rented in each hour of the workdays of
September 2012 in Washington (UCI, H. Fanaee-T and J. Gama 2013, CC BY 4.0). They are counts, so their band is narrow at
night and wide at rush hour. One dispersion for all hours makes it wider there than the data.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.colors import to_rgb

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS

penguins = rfgp.datasets.load("penguins").dropna().sample(frac=1, random_state=0, ignore_index=True)
species, columns = ["Adelie", "Chinstrap", "Gentoo"], ["bill_length_mm", "bill_depth_mm"]
train, test = penguins[:170], penguins[170:]
classes = {name: i for i, name in enumerate(species)}
gp = rfgp.GP(k.RBF(columns), "categorical", rfgp.RandomFeatures(64), seed=0).fit(
    train[columns], train["species"].map(classes)
)
found = gp.predict(test[columns]).observed()
print(
    f"penguins: {np.mean(found.labels == test['species'].map(classes)):.1%} of {len(test)} new ones are right", end=", "
)
print(f"mean probability of the most probable species {found.probabilities.max(axis=1).mean():.1%}")

length, depth = np.meshgrid(np.linspace(30, 62, 80), np.linspace(12.5, 22.5, 60))
grid = pd.DataFrame({"bill_length_mm": length.ravel(), "bill_depth_mm": depth.ravel()})
probability = gp.predict(grid).observed().probabilities
colors = np.array([to_rgb(COLORS[i]) for i in range(3)])
sure = np.clip((probability.max(axis=1, keepdims=True) - 1 / 3) * 1.5, 0, 1)
shades = 1 - 0.75 * sure * (1 - colors[probability.argmax(axis=1)])

figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.4), layout="constrained")
left.imshow(shades.reshape(*length.shape, 3), origin="lower", extent=(30, 62, 12.5, 22.5), aspect="auto")
for i, name in enumerate(species):
    rows = train["species"] == name
    left.plot(
        train[columns[0]][rows],
        train[columns[1]][rows],
        "osD"[i],
        ms=4,
        color=COLORS[i],
        mec="white",
        mew=0.5,
        label=name,
    )
left.set(xlabel="length of the bill, mm", ylabel="depth of the bill, mm", title="three classes")
left.legend(loc="lower left")

# The number of rentals has a negative binomial distribution around the exponential of a function of the hour.
hours = rfgp.datasets.load("bikes-hourly")
hours = hours[(hours["time"] >= "2012-09-01") & (hours["time"] < "2012-10-01") & (hours["workingday"] == 1)]
table = pd.DataFrame({"hour": hours["time"].dt.hour.astype(float), "temperature": hours["temperature"]})
counts = hours["rentals"].to_numpy()
kernel = k.Periodic("hour", period=24, name="day") + k.RBF("temperature")
model = rfgp.GP(kernel, "negative-binomial", seed=0).fit(table, counts)
line = pd.DataFrame({"hour": np.linspace(0, 23, 93), "temperature": 22.0})
low, high = model.predict(line).observed().interval(0.95)
right.fill_between(line["hour"], low, high, color=COLORS[0], alpha=0.25, lw=0, label="95 % of the counts, at 22 °C")
right.plot(line["hour"], model.predict(line).observed().mean, color=COLORS[0], label="mean")
right.plot(table["hour"] + np.random.default_rng(0).uniform(-0.2, 0.2, len(table)), counts, ".", ms=3, color="black")
right.set(xlabel="hour of a workday", ylabel="bicycles rented in an hour", title="counts", ylim=(0, None))
right.legend(loc="upper left")
low, high = model.predict(table).observed().interval(0.95)
print(f"hours: {np.mean((low <= counts) & (counts <= high)):.0%} of {len(counts)} counts in their 95 % intervals")
