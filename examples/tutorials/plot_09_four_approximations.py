"""
9. Four approximations of one process
=====================================

An approximation replaces the exact process by a cheaper one. How far are they apart? You fit one exact process with two
terms, a smooth trend and a rough map. Then you replace the approximation of each term, and measure the Kullback-Leibler
divergence (KL) from the exact posterior, term by term.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS

rng = np.random.default_rng(0)
n = 1100
t = rng.uniform(0, 10, n)
x, z = rng.uniform(0, 10, (2, n))
# The rough map is a draw from a Matern 3/2 process with the lengthscale 1.5, by 1,000 features.
frequencies = rng.normal(size=(1000, 2)) / np.sqrt(rng.chisquare(3, size=(1000, 1)) / 3) / 1.5
waves = np.cos(np.column_stack([x, z]) @ frequencies.T + rng.uniform(0, 2 * np.pi, 1000))
y = np.sin(t) + 0.3 * t + waves @ rng.normal(size=1000) * np.sqrt(2 / 1000) + 0.3 * rng.normal(size=n)
rows = {"t": t[:1000], "x": x[:1000], "z": z[:1000]}
points = {"t": t[1000:], "x": x[1000:], "z": z[1000:]}

# %%
# The exact process
# -----------------
# All comparisons use the hyperparameters of this fit. ``with_approximation`` returns a copy of the model that has the
# same rows and hyperparameters. So only the approximation differs.

kernel = k.RBF("t", name="trend") + k.Matern(("x", "z"), nu=1.5, name="map")
gp = rfgp.GP(kernel, approximation=rfgp.Exact(), seed=0).fit(rows, y[:1000])
exact = gp.predict(points)
print(gp.hyperparameters)

# %%
# One approximation for both terms
# --------------------------------
# The four approximations are:
#
# - ``RandomFeatures``: random cosines and sines. For any stationary kernel of any number of columns.
# - ``InducingPoints``: the process conditioned on some points of its own. For any kernel.
# - ``Vecchia``: each value depends on its nearest neighbors. For rough kernels of few columns.
# - ``EquispacedFourier``: frequencies on a grid. For smooth kernels of one to three columns.
#
# The KL is in nats, for the joint distribution of new observations at 100 points. The KL of a term compares the
# posteriors of that term alone. Zero is exact, and ten nats are 0.1 nats a point.


def compare(approximation):
    """Return the KL of the sum, that of each term, and the seconds of the posterior and the prediction."""
    start = time.perf_counter()
    p = gp.with_approximation(approximation).predict(points)
    kl = rfgp.metrics.kl_divergence
    found = kl(exact, p), *(kl(exact.terms[name], p.terms[name]) for name in ("trend", "map"))
    return found, time.perf_counter() - start


def report(title, approximation):
    """Print one line of a table."""
    (total, trend, rough), seconds = compare(approximation)
    print(f"{title:44s} {total:9.4f} {trend:9.4f} {rough:9.4f} {seconds:8.2f}")


print(f"{'KL in nats':44s} {'sum':>9s} {'trend':>9s} {'map':>9s} {'seconds':>8s}")
report("RandomFeatures(128)", rfgp.RandomFeatures(128))
report("InducingPoints(128)", rfgp.InducingPoints(128))
report("Vecchia(30)", rfgp.Vecchia(30))
report("EquispacedFourier()", rfgp.EquispacedFourier())

# %%
# The terms explain the sums. Random features and inducing points are good for the smooth trend, and poor for the rough
# map. If several terms use neighbors, their sum is approximated as one process with neighbors in all three columns. The
# terms alone are then poor. Equispaced frequencies are good for both terms, because each term has few columns.
#
# An approximation for each term
# ------------------------------
# Give a dict, and each term has the approximation that suits it. Neighbors are then right for the map.

trend = rfgp.EquispacedFourier()
print(f"{'KL in nats':44s} {'sum':>9s} {'trend':>9s} {'map':>9s} {'seconds':>8s}")
report("trend equispaced, map RandomFeatures(512)", {"trend": trend, "map": rfgp.RandomFeatures(512)})
report("trend equispaced, map InducingPoints(256)", {"trend": trend, "map": rfgp.InducingPoints(256)})
report("trend equispaced, map Vecchia(30)", {"trend": trend, "map": rfgp.Vecchia(30)})
both = rfgp.InducingPoints(64, residual=rfgp.Vecchia(20))
report("trend equispaced, map points and neighbors", {"trend": trend, "map": both})

# %%
# The last line combines two: inducing points for the smooth part of the map, and neighbors for the remainder.
#
# Larger budgets
# --------------
# Each approximation has a size. The map alone shows how fast the error falls with it.

sizes = {
    "random features, frequencies": ((32, 64, 128, 256, 512), rfgp.RandomFeatures),
    "inducing points": ((32, 64, 128, 256, 512), rfgp.InducingPoints),
    "Vecchia, neighbors": ((5, 10, 20, 40), rfgp.Vecchia),
}
figure, axes = plt.subplots(figsize=(7, 4.4), layout="constrained")
for i, (title, (numbers, make)) in enumerate(sizes.items()):
    errors = [compare({"trend": trend, "map": make(number)})[0][2] for number in numbers]
    axes.loglog(numbers, errors, "o-", color=COLORS[i], label=title)
equispaced = compare({"trend": trend, "map": rfgp.EquispacedFourier()})[0][2]
axes.axhline(equispaced, color=COLORS[3], ls="--", label="equispaced frequencies, default tolerance")
axes.set(xlabel="number of frequencies, points or neighbors", ylabel="KL of the map, nats")
figure.legend(loc="outside lower center", ncols=2)

# %%
# Sizes differ in cost. The posterior of m features costs about n m² operations for n rows, and that of m neighbors n
# m³.
#
# How a poor approximation looks
# ------------------------------
# Follow a line through the map. With few features the band is too narrow, and the mean misses details.

line = {"t": np.full(300, 5.0), "x": np.linspace(0, 10, 300), "z": np.full(300, 5.0)}
shown = {
    "exact": gp,
    "32 random features": gp.with_approximation({"trend": trend, "map": rfgp.RandomFeatures(32)}),
    "30 neighbors": gp.with_approximation({"trend": trend, "map": rfgp.Vecchia(30)}),
}
figure, panels = plt.subplots(1, 3, figsize=(10, 3), sharey=True, layout="constrained")
for i, (axes, (title, model)) in enumerate(zip(panels, shown.items(), strict=True)):
    term = model.predict(line).terms["map"].centered()
    axes.fill_between(line["x"], *term.interval(0.95), color=COLORS[i], alpha=0.3, lw=0)
    axes.plot(line["x"], term.mean, color=COLORS[i])
    axes.set(title=title, xlabel="x, at z = 5")
    print(f"{title:19s} mean standard deviation of the map {term.std.mean():.3f}")
panels[0].set(ylabel="map, centered")

# %%
# Which one?
# ----------
# - Up to 2,000 rows the default is exact.
# - For more rows ``approximation="auto"`` plans one for each term by its kernel, its columns and the number of rows.
# - If you doubt it, take ``gp.condition`` on 2,000 of your rows, and compare with ``exact()`` as on this page.
#
# The :doc:`table of approximations </terms>` lists which approximation serves which kernel.
