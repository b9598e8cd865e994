"""
Mean and standard deviation on a mesh
=====================================

A random field on the 1,280 faces of a bumpy sphere is observed at 80 of them, with noise (black dots). None of these is
on the left side. The mean follows the field where there are observations, and the standard deviation grows where there
are none.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import Normalize
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

import rfgp
from rfgp import datasets
from rfgp import kernels as k
from rfgp.palette import COLOR_MAPS, color_range

mesh = datasets.make_mesh(seed=0, subdivisions=3)
center = np.asarray(mesh.triangles_center)
rng = np.random.default_rng(0)
waves = (
    rng.normal(size=(400, 3)) / np.sqrt(rng.gamma(1.5, 1 / 1.5, size=(400, 1))) / 0.6
)  # of Matern 3/2, lengthscale 0.6
value = np.sqrt(2 / 400) * np.cos(center @ waves.T + rng.uniform(0, 2 * np.pi, 400)) @ rng.normal(size=400)
rows = rng.permutation(np.flatnonzero(center[:, 0] > -0.2))[:80]
y = value[rows] + 0.1 * rng.normal(size=80)
places = {name: center[:, i] for i, name in enumerate("xyz")}

gp = rfgp.GP(k.Mesh(mesh), seed=0).fit({name: column[rows] for name, column in places.items()}, y)
prediction = gp.predict(places)
unobserved = center[:, 0] < -0.2
covered = np.abs(prediction.mean - value) < 1.96 * prediction.std
shares = covered[unobserved].mean(), covered[~unobserved].mean()
print(f"95 % intervals contain {shares[0]:.0%} of the left side, {shares[1]:.0%} of the rest")

parts = {"field": (value, "mean"), "posterior mean": (prediction.mean, "mean")}
parts["posterior standard deviation"] = prediction.std, "sd"
figure = plt.figure(figsize=(12, 4.2), layout="constrained")
for i, (title, (values, kind)) in enumerate(parts.items()):
    axes = figure.add_subplot(1, 3, i + 1, projection="3d", computed_zorder=False)
    limits = color_range(value if kind == "mean" else np.asarray(values))
    scale = plt.cm.ScalarMappable(Normalize(*limits), COLOR_MAPS[kind])
    axes.add_collection3d(Poly3DCollection(np.asarray(mesh.triangles), facecolors=scale.to_rgba(np.asarray(values))))
    front = rows[mesh.face_normals[rows, 1] < 0]  # of the faces that look at the camera
    axes.plot(*(1.02 * center[front].T), "o", ms=5, color="black", mec="white", mew=0.4)
    axes.auto_scale_xyz(*(0.65 * np.asarray(mesh.vertices)).T)
    axes.set_box_aspect((1, 1, 1))
    axes.view_init(20, -90)
    axes.set_axis_off()
    axes.set_title(title)
    figure.colorbar(scale, ax=axes, shrink=0.7, location="bottom")
