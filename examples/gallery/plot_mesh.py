"""
Mean and deviation on a mesh
============================

A field on the 320 faces of a bumpy sphere, observed at 80 of them on one side. The mean is a smooth field where there
are data, and the deviation grows where there are none.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import Normalize
from mpl_toolkits.mplot3d.art3d import Poly3DCollection

import rfgp
from rfgp import datasets
from rfgp import kernels as k
from rfgp.palette import COLOR_MAPS, color_range

mesh = datasets.make_mesh(seed=0, subdivisions=2)
center = np.asarray(mesh.triangles_center)
value = np.sin(4 * center[:, 0]) + center[:, 2]
rows = np.random.default_rng(0).permutation(np.flatnonzero(center[:, 0] > -0.2))[:80]
places = {name: center[:, i] for i, name in enumerate("xyz")}

gp = rfgp.GP(k.Mesh(mesh), seed=0).fit({name: column[rows] for name, column in places.items()}, value[rows])
prediction = gp.predict(places)

figure = plt.figure(figsize=(9, 4), layout="constrained")
for i, (title, values, kind) in enumerate(
    (("mean", prediction.mean, "mean"), ("standard deviation", prediction.std, "sd"))
):
    axes = figure.add_subplot(1, 2, i + 1, projection="3d")
    scale = plt.cm.ScalarMappable(Normalize(*color_range(np.asarray(values))), COLOR_MAPS[kind])
    axes.add_collection3d(Poly3DCollection(np.asarray(mesh.triangles), facecolors=scale.to_rgba(np.asarray(values))))
    axes.auto_scale_xyz(*np.asarray(mesh.vertices).T)
    axes.set_box_aspect((1, 1, 1))
    axes.view_init(20, -90)
    axes.set_axis_off()
    axes.set_title(title)
    figure.colorbar(scale, ax=axes, shrink=0.6)
