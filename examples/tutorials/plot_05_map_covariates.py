"""
5. A map with covariates
========================

Heights of the ground are measured at some 1,500 places around the Jacksboro fault in Tennessee (a sample file of
Matplotlib, under its license). Two covariates are known everywhere, as from a satellite: the mean height and the
ruggedness of squares of 3 km. The model has a linear term for each covariate, and a spatial term for everything that
they do not explain. The spatial term is rough and uses nearest neighbors (Vecchia's approximation).
"""

import os
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.interpolate import RegularGridInterpolator
from scipy.io import netcdf_file

import rfgp
from rfgp import kernels as k

with netcdf_file(Path(os.environ.get("RFGP_DATA_DIR", "data")) / "jacksboro.nc", mmap=False) as file:
    heights = file.variables["height"][:].astype(float)  # m
    easts, norths = file.variables["x"][:].copy(), file.variables["y"][:].copy()  # km

# %%
# The covariates are made from the same file: means and standard deviations of squares of 32 x 32 cells, and linear in
# between.

SIDE = 32
rows, columns = (length // SIDE * SIDE for length in heights.shape)
blocks = heights[:rows, :columns].reshape(rows // SIDE, SIDE, columns // SIDE, SIDE)
middles = norths[SIDE // 2 : rows : SIDE], easts[SIDE // 2 : columns : SIDE]
coarse = RegularGridInterpolator(middles, blocks.mean(axis=(1, 3)), bounds_error=False, fill_value=None)
rugged = RegularGridInterpolator(middles, blocks.std(axis=(1, 3)), bounds_error=False, fill_value=None)


def survey(east, north):
    """Return the columns of a table of places: coordinates in km, covariates in m."""
    at = np.column_stack([north, east])
    return {"east": east, "north": north, "coarse": coarse(at), "rugged": rugged(at)}


rng = np.random.default_rng(0)
cells = rng.permutation(heights.size)[:2000]
grid_north, grid_east = np.unravel_index(cells, heights.shape)
places, height = survey(easts[grid_east], norths[grid_north]), heights.ravel()[cells]
south = places["north"] < 8  # a strip in the north is not measured, except for a few places
known = south | (rng.random(2000) < 0.05)
train = {name: column[known] for name, column in places.items()}
print(f"{known.sum()} places, {np.sum(known & ~south)} of them in the strip north of 8 km")

# %%
# The model
# ---------
# The spatial term reads two columns with one lengthscale for each. ``nu=0.5`` to ``2.5`` sets the roughness of a Matern
# kernel: a smaller one is rougher. In Vecchia's approximation each value depends on its 30 nearest neighbors among the
# earlier values. You can also leave the approximation out. The default then plans one for each term.

kernel = k.Linear("coarse") + k.Linear("rugged") + k.Matern(("east", "north"), nu=1.5, name="space")
gp = rfgp.GP(kernel, approximation={"space": rfgp.Vecchia(30)}, seed=0).fit(train, height[known])
print(gp.fit_report)
for name, term in gp.terms.items():
    freedom = "" if term.degrees_of_freedom is None else f"   degrees of freedom {term.degrees_of_freedom:.1f}"
    print(f"{name:15s} {term.approximation!r:12s} share {term.share:6.1%}{freedom}")
print(gp.hyperparameters)

# %%
# Slopes with standard errors
# ---------------------------
# The slope of a covariate is the difference of its term at values one unit apart. The spatial term competes with the
# covariates, because both change in space. The standard error includes this uncertainty. A linear regression assumes
# independent errors, so its standard errors are too small here.

ones = {"east": [0.0, 0.0], "north": [0.0, 0.0], "coarse": [500.0, 500.0], "rugged": [50.0, 50.0]}
design = np.column_stack([np.ones(known.sum()), train["coarse"], train["rugged"]])
naive, squares = np.linalg.lstsq(design, height[known], rcond=None)[:2]
errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * squares / (known.sum() - 3))
print("slope    with the spatial term   linear regression")
for column, i in (("coarse", 1), ("rugged", 2)):
    pair = {**ones, column: [100.0, 101.0]}
    slope = gp.predict(pair).terms[f"linear({column})"].linear([-1, 1])
    mean, std = (np.squeeze(value) for value in (slope.mean, slope.std))
    print(f"{column:8s} {mean:7.3f} +- {std:.3f}       {naive[i]:7.3f} +- {errors[i]:.3f}")

# %%
# Maps
# ----
# Predict on a grid where the covariates are known. The prediction is the sum of the terms. The standard deviation shows
# where the map can be trusted. North of 8 km only the covariates and a few places inform it.

side = np.meshgrid(easts[::5], norths[::5])
grid = survey(side[0].ravel(), side[1].ravel())
prediction = gp.predict(grid)
space = prediction.terms["space"]
figure, panels = plt.subplots(2, 2, figsize=(8.4, 7), layout="compressed", sharex=True, sharey=True)
for axes, values, title, colors in (
    (panels[0, 0], prediction.mean, "height, mean, m", "viridis"),
    (panels[0, 1], prediction.std, "standard deviation, m", "cividis"),
    (panels[1, 0], space.mean, "spatial term, mean, m", "viridis"),
    (panels[1, 1], prediction.without("space").mean, "covariates, mean, m", "viridis"),
):
    shown = axes.pcolormesh(*side, np.asarray(values).reshape(side[0].shape), cmap=colors, rasterized=True)
    axes.set(title=title, aspect="equal", ylim=(norths.min(), norths.max()))
    figure.colorbar(shown, ax=axes, shrink=0.8)
panels[0, 1].plot(train["east"], train["north"], ".", color="white", ms=0.8)
for axes in panels[1]:
    axes.set(xlabel="east, km")
for axes in panels[:, 0]:
    axes.set(ylabel="north, km")

# %%
# White points are the places of the survey.
#
# Do the covariates help?
# -----------------------
# Score three models on the places that the survey left out. The model of the covariates alone misses the spatial
# structure, and its fit warns.

hidden = {name: column[~known] for name, column in places.items()}
alone = rfgp.GP(k.Matern(("east", "north"), nu=1.5), approximation=rfgp.Vecchia(30), seed=0).fit(train, height[known])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    no_space = rfgp.GP(k.Linear("coarse") + k.Linear("rugged"), seed=0).fit(train, height[known])
for warning in caught:
    print(f"{warning.category.__name__}: {warning.message}")

# %%
# Most hidden places are in the strip, far from the survey. There the covariates help most, and a spatial term alone
# returns to the mean. The intervals are a little too wide: the ground is flatter in parts of the strip than elsewhere,
# and the models have one roughness for all places.

for title, model in (("covariates and space", gp), ("space alone", alone), ("covariates alone", no_space)):
    p = model.predict(hidden).observed()
    inside = np.mean(np.abs(p.mean - height[~known]) < 1.96 * p.std)
    print(
        f"{title:21s} RMSE {rfgp.metrics.rmse(height[~known], p):5.1f} m   in the 95 % interval {inside:.1%}   "
        f"log density {p.log_prob(height[~known]).mean():6.3f} nats a place"
    )

# %%
# Is the approximation good enough?
# ---------------------------------
# ``gp.exact()`` is the exact process with the same rows and hyperparameters. The Kullback-Leibler divergence between
# the predictions is in nats, for all points of the set together.

points = {name: column[::15] for name, column in hidden.items()}
exact = gp.exact().predict(points)
print(f"{len(points['east'])} hidden places")
for neighbors in (5, 15, 30):
    near = gp.with_approximation({"space": rfgp.Vecchia(neighbors)})
    kl = rfgp.metrics.kl_divergence(exact, near.predict(points))
    print(f"{neighbors:2d} neighbors: KL to the exact process {kl:.4f} nats")

# %%
# More: :doc:`kernels </howto/kernels>` has coefficients that vary in space, ``k.Linear("coarse") * k.RBF(("east",
# "north"))``. The :doc:`table of approximations </terms>` lists the approximations of each kernel.
