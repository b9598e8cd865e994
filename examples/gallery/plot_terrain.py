"""
A terrain through features, neighbors and both
==============================================

A terrain has smooth hills and short roughness. Noisy heights are known at 1,000 of 2,809 vertices. The kernel has a
smooth and a local term. 128 random frequencies for each term blur the local one. Neighbors for both terms,
or for the local term alone, are close to the exact process.
"""

import matplotlib.pyplot as plt
import numpy as np

import rfgp
from rfgp import datasets
from rfgp import kernels as k
from rfgp.palette import COLOR_MAPS

SIDE = 53
vertices = np.asarray(datasets.make_terrain(seed=0).vertices)
X, hills = vertices[:, :2], vertices[:, 2]
rough = np.random.default_rng(5).standard_normal((SIDE, SIDE))
for _ in range(3):  # white noise, smoothed over neighboring vertices
    near = np.pad(rough, 1, mode="reflect")
    rough = (4 * rough + near[:-2, 1:-1] + near[2:, 1:-1] + near[1:-1, :-2] + near[1:-1, 2:]) / 8
height = hills + 0.5 * (rough / rough.std()).ravel()

rng = np.random.default_rng(0)
seen = np.zeros(len(X), dtype=bool)
seen[rng.permutation(len(X))[:1000]] = True
y = height + 0.1 * rng.standard_normal(len(X))

# %%
# All models have the same given hyperparameters, and so does the exact process. The divergence from it is measured at
# 400 vertices without a height.
start = {
    "smooth.lengthscale": 4.0,
    "smooth.outputscale": 3.9,
    "local.lengthscale": 1.9,
    "local.outputscale": 0.56,
    "noise": 0.01,
    "mean": 0.4,
}
features, neighbors = rfgp.RandomFeatures(128, seed=0), rfgp.Vecchia(10, condition_on="responses")
kernel = k.RBF(ard=False, name="smooth") + k.Matern(nu=2.5, ard=False, name="local")
both = rfgp.GP(kernel, approximation={"smooth": features, "local": neighbors}, start=start, standardize=False, seed=0)
both.condition(X[seen], y[seen])
models = {
    "features": both.with_approximation({"smooth": features, "local": features}),
    "neighbors": both.with_approximation({"smooth": neighbors, "local": neighbors}),
    "both": both,
}
predictions = {name: model.predict(X) for name, model in models.items()}
hidden = X[~seen][:400]
exact = both.exact().predict(hidden)

# %%
# The upper row has the terrain and the three predictions. The lower row has the heights that are known and the errors.
figure, panels = plt.subplots(2, 4, figsize=(13, 6.6), layout="constrained")
options = {"cmap": COLOR_MAPS["mean"], "vmin": height.min(), "vmax": height.max()}
image = panels[0, 0].imshow(height.reshape(SIDE, SIDE), **options)
panels[0, 0].set_title("terrain")
for axes, (name, prediction) in zip(panels[:, 1:].T, predictions.items(), strict=True):
    error = np.asarray(prediction.mean) - height
    rmse = np.sqrt(np.mean(error[~seen] ** 2))
    divergence = rfgp.metrics.kl_divergence(exact, models[name].predict(hidden), per_point=True)
    axes[0].imshow(np.asarray(prediction.mean).reshape(SIDE, SIDE), **options)
    axes[0].set_title(name)
    errors = axes[1].imshow(error.reshape(SIDE, SIDE), cmap="RdBu_r", vmin=-1.5, vmax=1.5)
    axes[1].set_title(f"error, RMSE {rmse:.2f}")
    print(f"{name}: RMSE {rmse:.3f} at {(~seen).sum()} vertices, KL(exact || model) {divergence:.2g} nats per vertex")
panels[1, 0].imshow(np.where(seen, y, np.nan).reshape(SIDE, SIDE), **options)
panels[1, 0].set_title("known heights")
for axes in panels.ravel():
    axes.set_axis_off()
figure.colorbar(image, ax=panels[0], label="height")
figure.colorbar(errors, ax=panels[1], label="error")
