"""
One field across refinements of a mesh
======================================

A Whittle-Matern field is defined on the surface. The mesh only discretizes it. Each refinement cuts a triangle into
four and leaves the surface as it is. A fit to the same 150 observations finds the same lengthscale on each mesh, and
the predictions converge.
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np
import trimesh
from matplotlib.colors import Normalize
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

import rfgp
from rfgp import datasets
from rfgp.palette import COLOR_MAPS

mesh = datasets.make_mesh(seed=0, subdivisions=1)
places, _ = trimesh.sample.sample_surface(mesh, 150, seed=0)
values = np.sin(4 * places[:, 0]) + places[:, 2] + 0.1 * np.random.default_rng(0).standard_normal(150)
new, _ = trimesh.sample.sample_surface(mesh, 500, seed=1)

figure = plt.figure(figsize=(13, 3.6), layout="constrained")
scale = plt.cm.ScalarMappable(Normalize(-2, 2), COLOR_MAPS["mean"])
predictions = []
for i in range(4):
    gp = rfgp.MeshGP(mesh, seed=0).fit(places, values)
    predictions.append(gp.predict(new))
    axes = figure.add_subplot(1, 4, i + 1, projection="3d")
    colors = scale.to_rgba(np.asarray(gp.predict(mesh.triangles_center).mean))
    axes.add_collection3d(Poly3DCollection(np.asarray(mesh.triangles), facecolors=colors, ec="0.2", lw=0.6 / 2**i))
    axes.auto_scale_xyz(*(0.62 * np.asarray(mesh.vertices)).T)
    axes.set_box_aspect((1, 1, 1))
    axes.view_init(20, -90)
    axes.set_axis_off()
    lengthscale, noise = gp.hyperparameters.lengthscale.item(), gp.hyperparameters.noise.item()
    axes.set_title(f"{len(mesh.faces):,} triangles\nlengthscale {lengthscale:.2f}")
    print(f"{len(mesh.faces):,} triangles: lengthscale {lengthscale:.3f}, noise variance {noise:.4f}")
    mesh = mesh.subdivide()
figure.colorbar(scale, ax=figure.axes, shrink=0.7)

# %%
# Changes from one mesh to the next are small compared with the standard deviation of the prediction.
for i, (coarse, fine) in enumerate(itertools.pairwise(predictions)):
    change = np.sqrt(np.mean((np.asarray(fine.mean) - np.asarray(coarse.mean)) ** 2))
    print(
        f"refinement {i + 1}: the mean changes by {change:.3f}; mean standard "
        f"deviation {np.asarray(fine.std).mean():.3f}"
    )
