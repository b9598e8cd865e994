"""
Kernels before and after data
=============================

Each kernel has two panels. Above are three draws before data, below the mean and the 95 % band after the same few
observations. Hyperparameters are given and not fitted, so that only the kernels differ.
"""

import matplotlib.pyplot as plt
import numpy as np

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS

rng = np.random.default_rng(4)
grid = np.linspace(0, 10, 201)
x = np.array([0.4, 1.1, 1.9, 2.8, 3.6, 4.5, 5.3, 8.6, 9.4])
y = np.array([-0.9, -0.2, 0.7, 0.4, -0.5, -0.3, 0.8, 1.3, 0.6])


def conditioned(kernel, rows, targets):
    """Return the process given rows, with a standard deviation of the noise of 0.1."""
    options = {"mean": "zero", "standardize": False, "approximation": rfgp.Exact(), "start": {"noise": 0.01}}
    return rfgp.GP(kernel, seed=0, **options).condition(rows, targets)


def prior_draws(gp, points, standard):
    """Return draws of a model before its rows, (n, count), from standard normal numbers (n, count)."""
    covariance = gp.prior_covariance(points).detach().numpy()
    return np.linalg.cholesky(covariance + 1e-8 * np.eye(len(covariance))) @ standard


def panels_of(kernels):
    """Return pairs of panels, before and after data, with the titles of the kernels."""
    _, panels = plt.subplots(2, len(kernels), figsize=(10, 4.2), sharex=True, sharey=True, layout="constrained")
    for title, axes in zip(kernels, panels[0], strict=True):
        axes.set_title(title, fontsize=10)
    panels[0, 0].set(ylabel="before data", ylim=(-4, 4))
    panels[1, 0].set(ylabel="after data")
    return panels.T


def draw(kernels):
    """Draw kernels of the column "x" side by side."""
    standard = rng.standard_normal((len(grid), 3))  # the same for all kernels
    for kernel, (above, below) in zip(kernels.values(), panels_of(kernels), strict=True):
        gp = conditioned(kernel, {"x": x}, y)
        p = gp.predict({"x": grid})
        above.plot(grid, prior_draws(gp, {"x": grid}, standard), color=COLORS[0], lw=1)
        below.fill_between(grid, *p.interval(0.95), color=COLORS[0], alpha=0.25, lw=0)
        below.plot(grid, p.mean, color=COLORS[0])
        below.plot(x, y, ".", color="black")
        below.set_xlabel("x")


# %%
# **Smooth or rough.** All have a lengthscale of 1. RBF is the smoothest, Matern 1/2 the roughest. The rational
# quadratic kernel mixes short and long lengthscales. In the gap the bands widen, and past the rows all return to the
# mean.
draw(
    {
        "RBF": 1.0 * k.RBF("x", lengthscale=1.0),
        "Matern, nu = 2.5": 1.0 * k.Matern("x", 2.5, lengthscale=1.0),
        "Matern, nu = 1.5": 1.0 * k.Matern("x", 1.5, lengthscale=1.0),
        "Matern, nu = 0.5": 1.0 * k.Matern("x", 0.5, lengthscale=1.0),
        "RationalQuadratic": 1.0 * k.RationalQuadratic("x", alpha=0.3, lengthscale=1.0),
    }
)

# %%
# **Constants, lines and levels that wander.** Constant, line and parabola cannot follow these rows: their bands are
# narrow and wrong. The Wiener process and its integral start at 0. After the last row their bands widen without bound.
draw(
    {
        "Constant": 1.0 * k.Constant(),
        "Linear": k.Linear("x", origin=5.0, variance=0.1),
        "Polynomial, degree 2": 0.3 * k.Polynomial("x", 2, origin=5.0, scale=4.0),
        "Wiener": k.Wiener("x", origin=0.0, variance=0.5),
        "IntegratedWiener": k.IntegratedWiener("x", origin=0.0, variance=0.1),
    }
)

# %%
# **Seasons, products and sums.** The period is 3. A product with an RBF kernel lets the form of the season change,
# and a product with a line lets its size grow. A sum adds independent curves.
season = k.Periodic("x", 3.0, lengthscale=1.0)
draw(
    {
        "Periodic": 1.0 * season,
        "Harmonics, 2 waves": 1.0 * k.Harmonics("x", 3.0, num_harmonics=2, lengthscale=1.0),
        "Periodic * RBF": 1.0 * season * k.RBF("x", lengthscale=4.0),
        "Periodic * Linear": season * k.Linear("x", origin=0.0, variance=0.04),
        "Periodic + RBF": 1.0 * season + 1.0 * k.RBF("x", lengthscale=4.0),
    }
)

# %%
# **Curves of categories.** Three shops have one curve each, a product with an RBF kernel. Shop c has rows in the first
# half only, and only some kernels let the other shops inform its second half. Correlations of shops are fitted here.
shops = np.array(["a", "b", "c"])
days = {"x": np.tile(grid[::4], 3), "shop": np.repeat(shops, 51)}
rows = {"x": np.tile(np.arange(0.5, 10.0), 3), "shop": np.repeat(shops, 10)}
known = (rows["shop"] != "c") | (rows["x"] < 5)
target = np.sin(rows["x"]) + np.repeat([0.5, 0.0, -0.5], 10) + 0.1 * rng.standard_normal(30)
kernels = {
    "Group": k.Group("shop"),
    "Categorical": k.Categorical("shop"),
    "Coregionalization": k.Coregionalization("shop"),
}
kernels = {f"{name} * RBF": kernel * k.RBF("x", lengthscale=1.5) for name, kernel in kernels.items()}
standard = np.random.default_rng(2).standard_normal((len(days["x"]), 1))
for kernel, (above, below) in zip(kernels.values(), panels_of(kernels), strict=True):
    gp = rfgp.GP(kernel, mean="zero", seed=0).fit({name: column[known] for name, column in rows.items()}, target[known])
    curves, p = prior_draws(gp, days, standard), gp.predict(days)
    low, high = p.interval(0.95)
    for i, shop in enumerate(shops):
        part, own = days["shop"] == shop, known & (rows["shop"] == shop)
        above.plot(days["x"][part], curves[part], color=COLORS[i], lw=1, label=f"shop {shop}")
        below.fill_between(days["x"][part], low[part], high[part], color=COLORS[i], alpha=0.25, lw=0)
        below.plot(days["x"][part], p.mean[part], color=COLORS[i])
        below.plot(rows["x"][own], target[own], ".", color=COLORS[i])
    below.set_xlabel("x")
    if kernel is kernels["Group * RBF"]:
        above.legend(frameon=False, ncols=3, fontsize=8, loc="upper left")

# %%
# **Two columns.** One draw before data, and the mean after 40 rows. Two lengthscales (`ard=True`, the default) stretch
# the surface. `Additive` adds a curve of each column. A `Linear` factor in u makes a slope that varies with v.
side = np.linspace(0, 10, 26)
surface = {name: values.ravel() for name, values in zip("uv", np.meshgrid(side, side), strict=True)}
rows = {name: rng.uniform(0, 10, 40) for name in "uv"}
target = np.sin(rows["u"]) + 0.2 * (rows["v"] - 5)
kernels = {
    "RBF": 1.0 * k.RBF(("u", "v"), lengthscale=(2.0, 2.0)),
    "RBF, lengthscales 1 and 5": 1.0 * k.RBF(("u", "v"), lengthscale=(1.0, 5.0)),
    "Matern, nu = 0.5": 1.0 * k.Matern(("u", "v"), 0.5, lengthscale=(2.0, 2.0)),
    "Additive": k.Additive(columns=("u", "v")),
    "Linear * RBF": k.Linear("u", origin=5.0, variance=0.1) * k.RBF("v", lengthscale=2.0),
}
standard = rng.standard_normal(26 * 26)
pairs = panels_of(kernels)
for kernel, (above, below) in zip(kernels.values(), pairs, strict=True):
    gp = conditioned(kernel, rows, target)
    for axes, values in ((above, prior_draws(gp, surface, standard)), (below, gp.predict(surface).mean)):
        axes.imshow(np.reshape(values, (26, 26)), origin="lower", extent=(0, 10, 0, 10), vmin=-2.5, vmax=2.5)
        axes.set(ylim=(0, 10), xticks=(0, 5, 10), yticks=(0, 5, 10))
    below.plot(rows["u"], rows["v"], ".", color="white", ms=3)
    below.set_xlabel("u")
for axes, title in zip(pairs[0], ("v, before data", "v, after data"), strict=True):
    axes.set_ylabel(title)
