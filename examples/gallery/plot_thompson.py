"""
Thompson sampling in the plane
==============================

The highest point of an unknown function is found with few measurements. Each round draws four functions from the
posterior and measures where each has its maximum. A function that is drawn through random features can be evaluated at
any point, so that a maximum over 10,000 points costs one matrix product.
"""

import matplotlib.pyplot as plt
import numpy as np

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLOR_MAPS, COLORS

SIDE, ROUNDS, DRAWS = 100, 6, 4
axis = np.linspace(0, 1, SIDE)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
rng = np.random.default_rng(2)


def objective(X):
    """Return four hills (n,) at points (n, 2). The highest has its top near (0.75, 0.3)."""
    hills = ((0.2, 0.25, 0.8, 0.15), (0.25, 0.8, 0.85, 0.18), (0.75, 0.3, 1.2, 0.13), (0.8, 0.8, 0.7, 0.16))
    return sum(h * np.exp(-((X[:, 0] - a) ** 2 + (X[:, 1] - b) ** 2) / (2 * s**2)) for a, b, h, s in hills)


def measure(X):
    """Return noisy values (n,)."""
    return objective(X) + 0.03 * rng.standard_normal(len(X))


# %%
# The first eight points are random. The hyperparameters are fitted again after each round.
X = rng.uniform(size=(8, 2))
y = measure(X)
truth = objective(grid)
best = [objective(X).max()]
panels = {}
for number in range(1, ROUNDS + 1):
    gp = rfgp.GP(k.RBF(ard=False), approximation=rfgp.RandomFeatures(256, seed=number), seed=0).fit(X, y)
    functions = gp.sample_functions(DRAWS, seed=number)
    chosen = grid[np.asarray(functions(grid)).argmax(axis=1)]
    if number in (1, 3, ROUNDS):
        panels[number] = np.asarray(gp.predict(grid).mean), X, chosen
    X, y = np.concatenate([X, chosen]), np.concatenate([y, measure(chosen)])
    best.append(objective(X).max())

figure, axes = plt.subplots(1, 4, figsize=(13, 3.6), layout="constrained", sharex=True, sharey=True)
scale = {"cmap": COLOR_MAPS["mean"], "vmin": -0.2, "vmax": truth.max(), "origin": "lower", "extent": (0, 1, 0, 1)}
image = axes[0].imshow(truth.reshape(SIDE, SIDE), **scale)
axes[0].set_title("the unknown function")
for panel, (number, (mean, seen, chosen)) in zip(axes[1:], panels.items(), strict=True):
    panel.imshow(mean.reshape(SIDE, SIDE), **scale)
    panel.plot(*seen.T, "o", ms=4, color="white", mec="black", mew=0.6, label="measured")
    panel.plot(*chosen.T, "*", ms=13, color=COLORS[5], mec="white", label="maximum of a draw")
    panel.set_title(f"round {number}: posterior mean")
figure.legend(*axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
figure.colorbar(image, ax=axes, shrink=0.8)

print(f"maximum of the function on the grid: {truth.max():.3f}")
for number, value in enumerate(best):
    print(f"best of {8 + DRAWS * number} measurements: {value:.3f}")
