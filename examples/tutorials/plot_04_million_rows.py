"""
4. A million rows
=================

You fit a million rows on one core: a trend and a week over the days, and a map over two coordinates. No row is left
out. The tutorial prints the time of each step on the machine that built this page. It compares the result with the
truth, adds new rows, and saves the model.
"""

import copy
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import rfgp
from rfgp import kernels as k

rng = np.random.default_rng(0)
n = 1_000_000
day = rng.uniform(0, 365, n)
east, north = rng.uniform(0, 20, n), rng.uniform(0, 10, n)


def map_of(east, north):
    return 2 * np.sin(east / 3) * np.cos(north / 2) + np.exp(-((east - 12) ** 2 + (north - 5) ** 2) / 4)


def calendar_of(day):
    return 3 * np.sin(day / 60) + np.exp(np.cos(2 * np.pi * day / 7))


demand = map_of(east, north) + calendar_of(day) + 2 * rng.normal(size=n)
rows = {"day": day, "east": east, "north": north}

# %%
# Fit
# ---
# Smooth terms of one to three columns have a nearly exact approximation: equispaced frequencies
# (``rfgp.EquispacedFourier``). You need not name it, because the default takes it for more than 2,000 rows if it suits.
# The periodic term has a finite Fourier series, too. The fit reads the rows once, and keeps sums over them. The search
# for the hyperparameters then needs the sums only.

kernel = k.RBF("day", name="trend") + k.Periodic("day", period=7, name="week") + k.RBF(("east", "north"), name="map")
start = time.perf_counter()
gp = rfgp.GP(kernel, seed=0).fit(rows, demand)
print(f"fit of {n:,} rows: {time.perf_counter() - start:.1f} s")
print(gp.fit_report)
for name, term in gp.terms.items():
    print(f"{name:6s} {term.approximation!r}: {term.cost.num_features} features, {term.cost.note}")
print(gp.hyperparameters)

# %%
# The last line has the noise variance, which is 4 in the data. The notes state how many features each term has. The
# number depends mainly on the range of each column in lengthscales, and little on the number of rows. Ten times as many
# rows take about ten times as long.
#
# Predict
# -------
# The time of a prediction does not depend on the number of training rows.

new = {"day": rng.uniform(0, 365, 100_000), "east": rng.uniform(0, 20, 100_000), "north": rng.uniform(0, 10, 100_000)}
start = time.perf_counter()
prediction = gp.predict(new)
mean, std = prediction.mean, prediction.std
print(f"mean and standard deviation of {len(mean):,} new rows: {time.perf_counter() - start:.1f} s")
error = mean - map_of(new["east"], new["north"]) - calendar_of(new["day"])
print(f"root mean square error of the function:      {np.sqrt(np.mean(error**2)):.4f}; the noise has 2")
print(f"root mean square standard deviation:         {np.sqrt(np.mean(std**2)):.4f}")
print(f"rows with the truth in the 95 % band:        {np.mean(np.abs(error) < 1.96 * std):.1%}")

# %%
# The effect of the map has a band of its own. ``centered()`` uses the covariance of all its points, so give it a grid
# of some thousand points at most.

side = np.meshgrid(np.linspace(0, 20, 60), np.linspace(0, 10, 30))
places = {"day": np.full(1800, 100.0), "east": side[0].ravel(), "north": side[1].ravel()}
effect = gp.predict(places).terms["map"].centered()
figure, panels = plt.subplots(1, 2, figsize=(10, 2.7), layout="compressed")
for axes, values, title, colors in (
    (panels[0], effect.mean, "effect of the map, mean", "viridis"),
    (panels[1], effect.std, "standard deviation", "cividis"),
):
    shown = axes.pcolormesh(*side, values.reshape(30, 60), cmap=colors, rasterized=True)
    axes.set(title=title, xlabel="east, km", ylabel="north, km", aspect="equal")
    figure.colorbar(shown, ax=axes, shrink=0.8)

# %%
# The standard deviation is largest at the edge, where rows are on one side only.
#
# Does the approximation matter?
# ------------------------------
# The exact process of a million rows does not fit into memory. But you can compare on fewer rows: ``condition`` keeps
# the hyperparameters and takes other rows. It changes the model, so a copy is used. The Kullback-Leibler divergence
# measures the distance of the two predictions, here for 200 rows together.

few = {name: column[:2000] for name, column in rows.items()}
small = copy.deepcopy(gp).condition(few, demand[:2000])
points = {name: column[2000:2200] for name, column in rows.items()}
kl = rfgp.metrics.kl_divergence(small.exact().predict(points), small.predict(points))
print(f"KL(exact || equispaced) of 200 rows: {kl:.2e} nats")

# %%
# New rows
# --------
# ``update`` adds rows to the sums, and ``forget`` subtracts them. No other row is read, so a stream of rows costs the
# same at every step.

more = {"day": rng.uniform(0, 365, 10_000), "east": rng.uniform(0, 20, 10_000), "north": rng.uniform(0, 10, 10_000)}
observed = map_of(more["east"], more["north"]) + calendar_of(more["day"]) + 2 * rng.normal(size=10_000)
start = time.perf_counter()
gp.update(more, observed)
print(f"10,000 rows more: {time.perf_counter() - start:.2f} s")
start = time.perf_counter()
gp.forget(more, observed)
print(f"10,000 rows less: {time.perf_counter() - start:.2f} s")

# %%
# Save
# ----
# A saved model has the sums and no rows, so the file is small. ``rfgp.load`` reads it and executes no code.

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "demand.safetensors"
    gp.save(path)
    print(f"file: {path.stat().st_size / 1e3:.0f} kB")
    again = rfgp.load(path)
    print(
        f"largest difference of 1,800 means: {np.abs(again.predict(places).mean - gp.predict(places).mean).max():.1e}"
    )

# %%
# Larger tables
# -------------
# - A table that is larger than memory can be read from Parquet files in blocks: :doc:`/howto/large-tables`.
# - A rough map, or a kernel of more than three columns, has other approximations: ``rfgp.Vecchia``,
#   ``rfgp.InducingPoints`` and ``rfgp.RandomFeatures``. Tutorial 9 compares them.
# - :doc:`/howto/series-and-maps` has measured times of up to ten million rows.
