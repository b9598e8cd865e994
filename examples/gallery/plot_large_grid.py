"""
360,000 nodes, exactly
======================

A field on a grid of 360,000 nodes is known, with noise, at 3,600 of them. The regularized Laplacian kernel has a
sparse precision, so the means and the standard deviations of all nodes are exact. The hyperparameters are fitted on a
part of 22,500 nodes. They are in steps of the graph, and hold for the whole grid.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

import graphs
import rfgp
from rfgp.palette import COLOR_MAPS, color_range

SIDE, PART = 600, 150
rng = np.random.default_rng(0)
waves = np.hypot(*np.meshgrid(np.fft.fftfreq(SIDE), np.fft.fftfreq(SIDE)))
field = np.fft.ifft2(np.fft.fft2(rng.standard_normal((SIDE, SIDE))) / (1 + (120 * waves) ** 2) ** 1.5).real
field /= field.std()


def observe(side, count):
    """Return nodes of the part of so many columns and rows, and noisy values there."""
    nodes = np.sort(rng.permutation(side * side)[:count])
    return nodes, field[:side, :side].ravel()[nodes] + 0.1 * rng.standard_normal(count)


# %%
# Times depend on the machine. The first call compiles loops, unless a cache has them.
started = time.perf_counter()
kernel = graphs.kernels.RegularizedLaplacian(order=2, sigma=10.0)
part = rfgp.GraphGP(graphs.Graph.from_grid((PART, PART)), kernel, features="precision", seed=0)
part.fit(*observe(PART, 1000))
fitted = time.perf_counter()
values = {name: getattr(part.hyperparameters, name).item() for name in ("outputscale", "noise")}
gp = rfgp.GraphGP(graphs.Graph.from_grid((SIDE, SIDE)), part.fitted_kernel, features="precision", seed=0, **values)
nodes, y = observe(SIDE, 3600)
gp.condition(nodes, y)
conditioned = time.perf_counter()
prediction = gp.predict(np.arange(SIDE * SIDE))
mean, std = (np.asarray(values).reshape(SIDE, SIDE) for values in (prediction.mean, prediction.std))
predicted = time.perf_counter()

# %%
# The lower row enlarges the square of 100 x 100 nodes, with the observed nodes.
low, high = 400, 500
window = (slice(low, high), slice(low, high))
limits = dict(zip(("vmin", "vmax"), color_range(field), strict=True))
figure, panels = plt.subplots(2, 3, figsize=(12, 8), layout="constrained")
for column, (title, values, kind) in enumerate(
    (("field", field, "mean"), ("posterior mean", mean, "mean"), ("posterior standard deviation", std, "sd"))
):
    options = {"cmap": COLOR_MAPS[kind], **(limits if kind == "mean" else {"vmin": 0, "vmax": color_range(std)[1]})}
    image = panels[0, column].imshow(values, **options)
    panels[0, column].set_title(title)
    panels[0, column].add_patch(plt.Rectangle((low, low), high - low, high - low, fill=False, color="white", lw=1.5))
    panels[1, column].imshow(values[window], extent=(low, high, high, low), **options)
    figure.colorbar(image, ax=panels[:, column], location="bottom", shrink=0.8)
rows, columns = np.divmod(nodes, SIDE)
for axes in panels[1, 1:]:
    axes.plot(columns + 0.5, rows + 0.5, ".", ms=4, color="white")
    axes.set(xlim=(low, high), ylim=(high, low))

hidden = np.ones(SIDE * SIDE, dtype=bool)
hidden[nodes] = False
z = ((mean - field) / std).ravel()[hidden]
print(
    f"root mean square error {np.sqrt(np.mean((mean - field) ** 2)):.3f} of a field with "
    f"standard deviation {field.std():.2f}"
)
print(f"95 % intervals hold {np.mean(np.abs(z) < 1.96):.1%} of {hidden.sum():,} nodes without an observation")
print(f"fit on {PART * PART:,} nodes: {fitted - started:.1f} s")
print(f"condition on {len(nodes):,} of {SIDE * SIDE:,} nodes: {conditioned - fitted:.1f} s")
print(f"means and standard deviations of {SIDE * SIDE:,} nodes: {predicted - conditioned:.1f} s")
