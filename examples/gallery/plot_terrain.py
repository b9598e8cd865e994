"""
A terrain through features, neighbors and both
==============================================

A terrain has smooth hills and short roughness. Noisy heights are known at 1,500 of 2,809 vertices. The kernel has a
smooth and a local term. Random features suit the smooth term, and nearest neighbors the local one. Each term can have
its own approximation.
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
seen[rng.permutation(len(X))[:1500]] = True
y = height + 0.1 * rng.standard_normal(len(X))

# %%
# The sum of a smooth and a local term is fitted once. All models have its hyperparameters, and so does the exact process.
features, neighbors = rfgp.RandomFeatures(256, seed=0), rfgp.Vecchia(20, condition_on="responses")
kernel = k.RBF(ard=False, name="smooth") + k.Matern(nu=2.5, ard=False, name="local")
both = rfgp.GP(kernel, approximation={"smooth": features, "local": neighbors}, seed=0).fit(X[seen], y[seen])
models = {
    "features": both.with_approximation({"smooth": features, "local": features}),
    "neighbors": both.with_approximation({"smooth": neighbors, "local": neighbors}),
    "both": both,
}
predictions = {name: model.predict(X) for name, model in models.items()}
exact = both.exact().predict(X)

# %%
# The upper row has the terrain and the three predictions. The lower row has the local term and the errors.
figure, panels = plt.subplots(2, 4, figsize=(13, 6.6), layout="constrained")
options = {"cmap": COLOR_MAPS["mean"], "vmin": height.min(), "vmax": height.max()}
image = panels[0, 0].imshow(height.reshape(SIDE, SIDE), **options)
panels[0, 0].set_title("terrain")
for axes, (name, prediction) in zip(panels[:, 1:].T, predictions.items(), strict=True):
    error = np.asarray(prediction.mean) - height
    rmse = np.sqrt(np.mean(error[~seen] ** 2))
    divergence = rfgp.metrics.kl_divergence(exact, prediction, per_point=True)
    axes[0].imshow(np.asarray(prediction.mean).reshape(SIDE, SIDE), **options)
    axes[0].set_title(name)
    errors = axes[1].imshow(error.reshape(SIDE, SIDE), cmap="RdBu_r", vmin=-1.5, vmax=1.5)
    axes[1].set_title(f"error, RMSE {rmse:.2f}")
    print(f"{name}: RMSE {rmse:.3f} at {(~seen).sum()} vertices, KL(exact || model) {divergence:.2g} nats per vertex")
term = predictions["both"].terms["local"]
panels[1, 0].imshow(np.asarray(term.mean).reshape(SIDE, SIDE), cmap="PuOr", vmin=-1.5, vmax=1.5)
panels[1, 0].set_title("both: the local term alone")
for axes in panels.ravel():
    axes.set_axis_off()
figure.colorbar(image, ax=panels[0], label="height")
figure.colorbar(errors, ax=panels[1], label="error")
similar = np.corrcoef(np.asarray(term.mean), rough.ravel())[0, 1]
print(f"correlation of the local term with the roughness: {similar:.2f}")
