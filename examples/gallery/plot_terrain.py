"""
A terrain through features, neighbors and both
==============================================

Heights of the ground around the Jacksboro fault in Tennessee (a sample file of Matplotlib, under its license). They are
known at 1,000 of 3,944 cells, with an added noise of 10 m. The kernel has a smooth and a local term. 128 random
frequencies for each term blur the local one. Neighbors for both terms, or for the local term alone, are close to the
exact process.
"""

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.io import netcdf_file

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLOR_MAPS

with netcdf_file(Path(os.environ.get("RFGP_DATA_DIR", "data")) / "jacksboro.nc", mmap=False) as file:
    height = file.variables["height"][::6, ::6].astype(float)
    east, north = np.meshgrid(file.variables["x"][::6], file.variables["y"][::6])
X, y = np.column_stack([east.ravel(), north.ravel()]), height.ravel()  # km, m
rng = np.random.default_rng(0)
seen = np.zeros(len(y), dtype=bool)
seen[rng.permutation(len(y))[:1000]] = True
measured = y + 10 * rng.standard_normal(len(y))

# %%
# All models have the hyperparameters of one fit to 400 of the cells. The divergence from the exact process is measured
# at 400 cells without a height.
features, neighbors = rfgp.RandomFeatures(128, seed=0), rfgp.Vecchia(10, condition_on="responses")
kernel = k.RBF(ard=False, name="smooth") + k.Matern(nu=0.5, ard=False, name="local")
fitted = rfgp.GP(kernel, start={"noise": 100.0}, seed=0)  # the variance of the noise is known
fitted.fit(X[seen][:400], measured[seen][:400], fixed="noise")
fitted.condition(X[seen], measured[seen])
print(fitted.hyperparameters)
models = {
    "features": fitted.with_approximation({"smooth": features, "local": features}),
    "neighbors": fitted.with_approximation({"smooth": neighbors, "local": neighbors}),
    "both": fitted.with_approximation({"smooth": features, "local": neighbors}),
}
predictions = {name: model.predict(X) for name, model in models.items()}
hidden = X[~seen][:400]
exact = fitted.exact().predict(hidden)

# %%
# The upper row has the terrain and the three predictions. The lower row has the heights that are known and the errors.
figure, panels = plt.subplots(2, 4, figsize=(13, 6.2), layout="constrained")
options = {"cmap": COLOR_MAPS["mean"], "vmin": height.min(), "vmax": height.max()}
image = panels[0, 0].imshow(height, **options)
panels[0, 0].set_title("terrain")
for axes, (name, prediction) in zip(panels[:, 1:].T, predictions.items(), strict=True):
    error = np.asarray(prediction.mean) - y
    rmse = np.sqrt(np.mean(error[~seen] ** 2))
    divergence = rfgp.metrics.kl_divergence(exact, models[name].predict(hidden), per_point=True)
    axes[0].imshow(np.asarray(prediction.mean).reshape(height.shape), **options)
    axes[0].set_title(name)
    errors = axes[1].imshow(error.reshape(height.shape), cmap="RdBu_r", vmin=-150, vmax=150)
    axes[1].set_title(f"error, RMSE {rmse:.0f} m")
    print(f"{name}: RMSE {rmse:.1f} m at {(~seen).sum()} cells, KL(exact || model) {divergence:.2g} nats a cell")
panels[1, 0].imshow(np.where(seen, measured, np.nan).reshape(height.shape), **options)
panels[1, 0].set_title("known heights")
for axes in panels.ravel():
    axes.set_axis_off()
figure.colorbar(image, ax=panels[0], label="height, m")
figure.colorbar(errors, ax=panels[1], label="error, m")
