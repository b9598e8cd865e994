"""
6. A bracket, from STL to a map
===============================

A bent bracket comes from production. A scanner measures its form error at 300 points: the distance of the surface from
the drawing, in mm. You read the drawing from an STL file, fit a field on its surface, and draw the form error with its
standard deviation. Then you find the parts of the surface that violate the tolerance.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import trimesh
from matplotlib.colors import Normalize
from mpl_toolkits.mplot3d.art3d import Poly3DCollection
from scipy.spatial import Delaunay, cKDTree

import rfgp
from rfgp import kernels as k

# %%
# The drawing
# -----------
# Usually you have the file. Here the script makes one: a sheet of 120 x 40 x 4 mm with a hole, bent by 90 degrees.

THICKNESS, RADIUS, BEND = 4.0, 8.0, 55.0  # mm; the bend begins at BEND


def bent(u, v, height):
    """Return the places (n, 3) of a sheet's points: u along it, v across it, and height over its middle."""
    angle = np.clip((u - BEND) / RADIUS, 0, np.pi / 2)
    beyond = np.clip(u - BEND - RADIUS * np.pi / 2, 0, None)
    x = np.minimum(u, BEND) + RADIUS * np.sin(angle) - height * np.sin(angle)
    z = RADIUS * (1 - np.cos(angle)) + beyond + height * np.cos(angle)
    return np.column_stack([x, v, z])


def bracket(spacing=2.5):
    """Return the mesh, and the sheet coordinates u, v, height of its vertices."""
    u, v = (axis.ravel() for axis in np.meshgrid(np.arange(0, 120.1, spacing), np.linspace(-20, 20, 17)))
    far = np.hypot(u - 27.5, v) > 9
    turn = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    u, v = np.append(u[far], 27.5 + 8 * np.cos(turn)), np.append(v[far], 8 * np.sin(turn))
    flat = Delaunay(np.column_stack([u, v])).simplices
    flat = flat[np.hypot(u[flat].mean(1) - 27.5, v[flat].mean(1)) > 7.9]
    edges = np.concatenate([flat[:, [0, 1]], flat[:, [1, 2]], flat[:, [2, 0]]])
    _, first, count = np.unique(np.sort(edges, axis=1), axis=0, return_index=True, return_counts=True)
    a, b = edges[first[count == 1]].T  # the rim and the edge of the hole
    n = len(u)
    sides = np.concatenate([np.column_stack([b, a, a + n]), np.column_stack([b, a + n, b + n])])
    faces = np.concatenate([flat[:, ::-1], flat + n, sides])
    height = np.repeat([-THICKNESS / 2, THICKNESS / 2], n)
    u, v = np.tile(u, 2), np.tile(v, 2)
    return trimesh.Trimesh(bent(u, v, height), faces), u, v, height


drawing, u, v, height = bracket()
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "bracket.stl"
    drawing.export(path)
    mesh = trimesh.load(path)
print(f"{len(mesh.faces)} faces, closed: {mesh.is_watertight}, volume {mesh.volume / 1000:.1f} cm^3")
print(f"size {mesh.extents.round(1)} mm")

# %%
# The measurements
# ----------------
# The sheet has warped. If the outer surface is too far out, the inner surface is too far in. The form error therefore
# has opposite signs on both sides. At the edges it is 0. The scanner cannot look into the bend, so there are no points
# on its inner side.

warp = 0.2 * np.sin(2 * np.pi * u / 120) * (1 - (v / 20) ** 2) * np.tanh((np.hypot(u - 27.5, v) - 8) / 6)
warp *= np.sign(height)
true_error = warp[cKDTree(drawing.vertices).query(mesh.vertices)[1]]  # at the vertices of the file


def on_surface(count, seed):
    """Return random places of the surface (n, 3), and the true form error there (n,)."""
    places, face = trimesh.sample.sample_surface(mesh, count, seed=seed)
    weights = trimesh.triangles.points_to_barycentric(mesh.triangles[face], places)
    return places, (weights * true_error[mesh.faces[face]]).sum(axis=1)


rng = np.random.default_rng(0)
places, error = on_surface(360, seed=0)
visible = (places[:, 0] > 62) | (places[:, 0] < 40) | (places[:, 2] < 0) | (places[:, 2] > 25)
places, error = places[visible], error[visible]
table = {"x": places[:, 0], "y": places[:, 1], "z": places[:, 2]}
measured = error + 0.01 * rng.normal(size=len(error))
print(f"{len(measured)} points, form error {measured.min():.2f} to {measured.max():.2f} mm")

# %%
# The field on the surface
# ------------------------
# ``k.Mesh`` is a Gaussian process along the surface: a Whittle-Matern field of finite elements. Its precision matrix is
# sparse. Two points are close if the way along the surface is short. For comparison, ``k.Matern`` takes distances
# through the air and the metal. Both sides of the sheet are then 4 mm apart.
#
# On the command line this is ``rfgp mesh bracket.stl --values form_error.csv --out results``. The table has the columns
# x, y, z and the values.

gp = rfgp.GP(k.Mesh(mesh), seed=0).fit(table, measured)
print(gp.hyperparameters)
through = rfgp.GP(k.Matern(("x", "y", "z"), nu=1.5), seed=0).fit(table, measured)
others, truth = on_surface(1000, seed=1)
new = {"x": others[:, 0], "y": others[:, 1], "z": others[:, 2]}
for title, model in (("along the surface", gp), ("through the metal", through)):
    p = model.predict(new)
    inside = np.mean(np.abs(p.mean - truth) < 1.96 * p.std)
    print(
        f"{title}: RMSE at 1,000 other points {rfgp.metrics.rmse(truth, p):.4f} mm, in the 95 % interval {inside:.1%}"
    )

# %%
# The map
# -------
# Predict at the center of each face, and draw the mean and the standard deviation. The standard deviation is largest in
# the bend, where the scanner saw nothing.

centers = mesh.triangles_center
at_faces = gp.predict({"x": centers[:, 0], "y": centers[:, 1], "z": centers[:, 2]})


def draw(axes, values, title, colors, limits):
    """Draw one number for each face, in colors."""
    scale = plt.cm.ScalarMappable(Normalize(*limits), colors)
    rgba = scale.to_rgba(values)
    axes.add_collection3d(Poly3DCollection(mesh.triangles, facecolors=rgba, edgecolors=rgba, linewidths=0.4))
    axes.auto_scale_xyz(*mesh.vertices.T)
    axes.set_box_aspect(np.array(mesh.extents), zoom=1.1)
    axes.view_init(28, 140)
    axes.set_axis_off()
    axes.set_title(title)
    axes.figure.colorbar(scale, ax=axes, shrink=0.6)


figure = plt.figure(figsize=(9.5, 4.2), layout="constrained")
left = figure.add_subplot(1, 2, 1, projection="3d")
draw(left, at_faces.mean, "form error, mean, mm", "RdBu_r", (-0.2, 0.2))
right = figure.add_subplot(1, 2, 2, projection="3d")
draw(right, at_faces.std, "standard deviation, mm", "cividis", (0, at_faces.std.max()))

# %%
# Decisions
# ---------
# The tolerance is 0.12 mm. The posterior gives each face a probability of a violation. Multiply it by the area of the
# face for the expected area out of tolerance.

outside = 1 - at_faces.cdf(0.12) + at_faces.cdf(-0.12)
print(f"surface out of tolerance: expected {outside @ mesh.area_faces / mesh.area:.1%}", end="; ")
true_faces = np.abs(true_error[mesh.faces].mean(axis=1)) > 0.12
print(f"true {true_faces @ mesh.area_faces / mesh.area:.1%}")
unsure = (outside > 0.1) & (outside < 0.9)
print(f"undecided faces, with a probability between 10 % and 90 %: {unsure.sum()} of {len(unsure)}")
worst = at_faces.std.argmax()
print(f"measure next at {centers[worst].round(1)} mm, where the standard deviation is {at_faces.std[worst]:.3f} mm")

figure = plt.figure(figsize=(5.4, 4.2), layout="constrained")
draw(figure.add_subplot(projection="3d"), outside, "probability of a violation", "magma_r", (0, 1))

# %%
# ``k.Mesh`` adds to other kernels, as in ``k.Mesh(mesh) + k.Linear("temperature")``. :doc:`/howto/fields` describes
# files, slivers and points off the surface.
