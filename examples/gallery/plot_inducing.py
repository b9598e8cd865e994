"""
Inducing points move to where the function varies
=================================================

Most rows lie in the left half, where the function is nearly flat. The centers of k-means clusters follow the rows. A
fit with `learn_locations=True` moves the inducing points to the waves on the right. An arrow leads from the start of a
point to its final location.
"""

import matplotlib.pyplot as plt
import numpy as np

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLOR_MAPS

rng = np.random.default_rng(0)
X = np.concatenate([rng.uniform((0, 0), (0.5, 1), (600, 2)), rng.uniform((0.5, 0), (1, 1), (150, 2))])


def function(X):
    """Return values (n,) at points (n, 2): waves that fade out to the left."""
    return np.sin(10 * np.hypot(X[:, 0] - 1, X[:, 1] - 0.5)) / (1 + np.exp(-16 * (X[:, 0] - 0.55)))


y = function(X) + 0.05 * rng.standard_normal(len(X))
points = rfgp.InducingPoints(40, method="vfe", learn_locations=True)
gp = rfgp.GP(k.RBF(ard=False), approximation=points, standardize=False, seed=0).fit(X, y)
start = gp.with_approximation(rfgp.InducingPoints(40, method="vfe"))  # the same hyperparameters, points by k-means

# %%
# Both models have the hyperparameters of the fit, and the exact process has them too.
axis = np.linspace(0, 1, 50)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
exact = gp.exact().predict(grid)
first, last = (np.asarray(model.spec.term_priors[0].basis.points) for model in (start, gp))

figure, panels = plt.subplots(1, 3, figsize=(12, 4.2), layout="constrained", sharex=True, sharey=True)
options = {"origin": "lower", "extent": (0, 1, 0, 1)}
panels[0].imshow(function(grid).reshape(50, 50), cmap=COLOR_MAPS["mean"], alpha=0.75, **options)
panels[0].plot(*X.T, ".", ms=2, color="black", alpha=0.5)
for a, b in zip(first, last, strict=True):
    panels[0].annotate("", b, a, arrowprops={"arrowstyle": "-|>", "color": "black", "shrinkA": 0, "shrinkB": 0})
panels[0].plot(*first.T, "o", ms=5, mfc="white", mec="black", label="start")
panels[0].plot(*last.T, "o", ms=6, color="#D55E00", mec="white", label="learned")
panels[0].set(title="40 inducing points, 750 rows", xlim=(0, 1), ylim=(0, 1))
panels[0].legend(loc="lower left")
for axes, (name, model) in zip(panels[1:], {"start": start, "learned": gp}.items(), strict=True):
    near = model.predict(grid)
    error = np.abs(np.asarray(near.mean) - np.asarray(exact.mean)).reshape(50, 50)
    image = axes.imshow(error, cmap="magma", vmin=0, vmax=0.3, **options)
    divergence = rfgp.metrics.kl_divergence(exact, near, per_point=True)
    axes.set_title(f"{name}: error of the mean\nKL {divergence:.3g} nats per point")
    print(f"{name}: KL(exact || inducing points) {divergence:.3g} nats per point, largest error {error.max():.2f}")
for name, places in (("start", first), ("learned", last)):
    print(f"{name}: {(places[:, 0] > 0.5).sum()} of 40 points in the right half")
figure.colorbar(image, ax=panels, shrink=0.8)
