"""
Mean and standard deviation on a machine part
=============================================

The part is a model of trimesh (MIT). Its temperatures are simulated: one end is hot. A field on the surface is fitted
to 40 noisy temperatures (dots). None of these is on the ring's right half. The mean follows the field where there are
observations, and the standard deviation grows where there are none.
"""

import matplotlib.pyplot as plt
import numpy as np
import trimesh
from matplotlib.colors import Normalize
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

import rfgp
from rfgp.palette import COLOR_MAPS, color_range

part = rfgp.datasets.load("idler_riser")


def heat(places):
    """Return simulated temperatures (n,) at places (n, 3), in degrees Celsius."""
    return 20 + 60 * np.exp(-np.linalg.norm(places - [0.0, 0.0, 0.3], axis=1))


places, _ = trimesh.sample.sample_surface(part, 80, seed=1)
places = places[(places[:, 0] < 1.3) | (places[:, 1] < 0.8)][:40]
gp = rfgp.MeshGP(part, alpha=1, seed=0).fit(places, heat(places) + np.random.default_rng(0).normal(size=len(places)))

# %%
# Faces of the file are long and thin. Small faces look better, and the prediction is defined everywhere on the surface.
fine = part.subdivide_to_size(0.15)
center = fine.triangles_center
prediction, truth = gp.predict(center), heat(center)
covered = np.abs(prediction.mean - truth) < 1.96 * prediction.std
far = (center[:, 0] > 1.3) & (center[:, 1] > 0.8)
print(
    f"95 % intervals contain {covered[far].mean():.0%} of the unobserved side, {covered[~far].mean():.0%} of the rest"
)

light = 0.75 + 0.25 * np.abs(fine.face_normals @ [0.3, -0.5, 0.8])[:, None].clip(0, 1)
parts = {"simulated temperature, °C": (truth, "mean"), "posterior mean, °C": (prediction.mean, "mean")}
parts["standard deviation, °C"] = prediction.std, "sd"
figure = plt.figure(figsize=(12, 4.2), layout="constrained")
for i, (title, (values, kind)) in enumerate(parts.items()):
    axes = figure.add_subplot(1, 3, i + 1, projection="3d", computed_zorder=False)
    scale = plt.cm.ScalarMappable(Normalize(*color_range(truth if kind == "mean" else values)), COLOR_MAPS[kind])
    shades = scale.to_rgba(np.asarray(values))
    shades[:, :3] *= light
    axes.add_collection3d(Poly3DCollection(fine.triangles, facecolors=shades, edgecolors=shades, linewidths=0.2))
    if i == 2:
        axes.plot(*places[places[:, 2] > 0.05].T, "o", ms=4, color="black", mec="white", mew=0.5)
    axes.auto_scale_xyz(*fine.vertices.T)
    axes.set_box_aspect(np.array(fine.extents), zoom=1.25)
    axes.view_init(42, -60)
    axes.set_axis_off()
    axes.set_title(title)
    figure.colorbar(scale, ax=axes, shrink=0.7, location="bottom")
