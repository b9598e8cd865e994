"""
5. A map with covariates
========================

A soil survey measures a metal at 2,400 places. Two covariates are known everywhere: the height and the distance to the
river. The model has a linear term for each covariate, and a spatial term for everything that they do not explain. The
spatial term is rough and uses nearest neighbors (Vecchia's approximation).
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

import rfgp
from rfgp import kernels as k

rng = np.random.default_rng(0)
n = 3000
# The rough part of the truth: a draw from a Matern 3/2 process by 2,000 features, with a lengthscale of 2 km.
frequencies = rng.normal(size=(2000, 2)) / np.sqrt(rng.chisquare(3, size=(2000, 1)) / 3) / 2
phases = rng.uniform(0, 2 * np.pi, 2000)
amplitudes = rng.normal(size=2000) * np.sqrt(2 / 2000) * 0.5


def height(east, north):
    return 200 + 60 * np.sin(east / 5) + 40 * np.cos(north / 4)


def river(east, north):
    return np.abs(north - 10 - 3 * np.sin(east / 4))


def field(east, north):
    return np.cos(np.column_stack([east, north]) @ frequencies.T + phases) @ amplitudes


def survey(east, north):
    return {"east": east, "north": north, "height": height(east, north), "river": river(east, north)}


places = survey(rng.uniform(0, 30, n), rng.uniform(0, 20, n))
east, north = places["east"], places["north"]
metal = 3 - 0.01 * places["height"] - 0.25 * places["river"] + field(east, north) + 0.2 * rng.normal(size=n)
west = east < 24  # a strip in the east is not measured, except for a few places
known = west | (rng.random(n) < 0.05)
train = {name: column[known] for name, column in places.items()}
print(f"{known.sum()} places, {np.sum(known & ~west)} of them in the strip east of 24 km")

# %%
# The model
# ---------
# The spatial term reads two columns with one lengthscale for each. ``nu=0.5`` to ``2.5`` sets the roughness of a Matern
# kernel: a smaller one is rougher. In Vecchia's approximation each value depends on its 30 nearest neighbors among the
# earlier values. You can also leave the approximation out. The default then plans one for each term.

kernel = k.Linear("height") + k.Linear("river") + k.Matern(("east", "north"), nu=1.5, name="space")
gp = rfgp.GP(kernel, approximation={"space": rfgp.Vecchia(30)}, seed=0).fit(train, metal[known])
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
# independent errors, so its standard errors are far too small here.

ones = {"east": [10.0, 10.0], "north": [10.0, 10.0], "height": [200.0, 200.0], "river": [2.0, 2.0]}
design = np.column_stack([np.ones(known.sum()), train["height"], train["river"]])
naive, squares = np.linalg.lstsq(design, metal[known], rcond=None)[:2]
errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * squares / (known.sum() - 3))
print("slope    true   with the spatial term   linear regression")
for column, truth, i in (("height", -0.01, 1), ("river", -0.25, 2)):
    pair = {**ones, column: [2.0, 3.0]}
    slope = gp.predict(pair).terms[f"linear({column})"].linear([-1, 1])
    mean, std = (np.squeeze(value) for value in (slope.mean, slope.std))
    print(f"{column:6s} {truth:6.3f}   {mean:8.4f} +- {std:.4f}     {naive[i]:8.4f} +- {errors[i]:.4f}")

# %%
# Maps
# ----
# Predict on a grid where the covariates are known. The prediction is the sum of the terms. The standard deviation shows
# where the map can be trusted. East of 24 km only the covariates and a few places inform it.

side = np.meshgrid(np.linspace(0, 30, 90), np.linspace(0, 20, 60))
grid = survey(side[0].ravel(), side[1].ravel())
prediction = gp.predict(grid)
space = prediction.terms["space"]
figure, panels = plt.subplots(2, 2, figsize=(9, 5.6), layout="compressed", sharex=True, sharey=True)
for axes, values, title, colors in (
    (panels[0, 0], prediction.mean, "metal, mean", "viridis"),
    (panels[0, 1], prediction.std, "metal, standard deviation", "cividis"),
    (panels[1, 0], space.mean, "spatial term, mean", "viridis"),
    (panels[1, 1], prediction.without("space").mean, "covariates, mean", "viridis"),
):
    shown = axes.pcolormesh(*side, np.asarray(values).reshape(60, 90), cmap=colors, rasterized=True)
    axes.set(title=title, aspect="equal")
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
alone = rfgp.GP(k.Matern(("east", "north"), nu=1.5), approximation=rfgp.Vecchia(30), seed=0).fit(train, metal[known])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    no_space = rfgp.GP(k.Linear("height") + k.Linear("river"), seed=0).fit(train, metal[known])
for warning in caught:
    print(f"{warning.category.__name__}: {warning.message}")

# %%
# Most hidden places are in the strip, far from the survey. A spatial term alone returns to the mean there. Places
# near each other have similar errors. The share of places in the interval therefore varies more than it would if errors
# were independent.

for title, model in (("covariates and space", gp), ("space alone", alone), ("covariates alone", no_space)):
    p = model.predict(hidden).observed()
    inside = np.mean(np.abs(p.mean - metal[~known]) < 1.96 * p.std)
    print(
        f"{title:21s} RMSE {rfgp.metrics.rmse(metal[~known], p):.3f}   in the 95 % interval {inside:.1%}   "
        f"log density {p.log_prob(metal[~known]).mean():6.3f} nats a place"
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
# More: :doc:`kernels </howto/kernels>` has coefficients that vary in space, ``k.Linear("height") * k.RBF(("east",
# "north"))``. The :doc:`table of approximations </terms>` lists the approximations of each kernel.
