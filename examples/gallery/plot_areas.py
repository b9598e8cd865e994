"""
Rows that are areas: from means of cells to a map
=================================================

Elevations are known as means alone: over the airports in each cell of five degrees in Africa (airportsdata by M.
Borsetti, MIT licence). `average_over=` says which rows are the points of one mean. The map between the points follows,
with its standard deviation. The mean of a cell is exact, so the noise is fixed at a small value.
"""

import matplotlib.pyplot as plt
import numpy as np

import rfgp
from rfgp import kernels as k

table = rfgp.datasets.load("airports")
is_arabia = (table["lon"] > 35) & (table["lat"] > 13)
table = table[table["lon"].between(-20, 50) & table["lat"].between(-36, 38) & ~is_arabia]
table = table.assign(
    cell=(table["lat"] // 5).astype(int).astype(str) + ", " + (table["lon"] // 5).astype(int).astype(str)
)
table["mean"] = table.groupby("cell")["elevation"].transform("mean")

gp = rfgp.GP(k.Sphere(("lon", "lat"), k.Matern(nu=0.5)), start={"noise": 100.0}, seed=0)
gp.fit(table[["lon", "lat", "cell"]], table["mean"], average_over="cell", fixed="noise")
p = gp.predict(table)
for name, guess in (("mean of the cell", table["mean"]), ("model", p.mean)):
    print(f"{name}: error of an airport {np.sqrt(np.mean((table['elevation'] - guess) ** 2)):.0f} m")
print(f"95 % intervals hold {np.mean(np.abs(table['elevation'] - p.mean) < 1.96 * p.std):.0%} of the airports")

lon, lat = np.meshgrid(np.linspace(-20, 50, 141), np.linspace(-36, 38, 149))
grid = gp.predict({"lon": lon.ravel(), "lat": lat.ravel()})
figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained", sharey=True)
cells = table.groupby("cell").agg(mean=("mean", "first"), lon=("lon", "first"), lat=("lat", "first")) // [1, 5, 5]
for cell in cells.itertuples():
    color = plt.get_cmap("viridis")(cell.mean / 2000)
    axes[0].add_patch(plt.Rectangle((5 * cell.lon, 5 * cell.lat), 5, 5, color=color))
axes[0].plot(table["lon"], table["lat"], ".", ms=2, color="black")
shown = axes[1].pcolormesh(lon, lat, grid.mean.reshape(lon.shape), vmin=0, vmax=2000, cmap="viridis")
figure.colorbar(shown, ax=axes[1], label="elevation (m)")
shown = axes[2].pcolormesh(lon, lat, grid.std.reshape(lon.shape), cmap="Greys")
figure.colorbar(shown, ax=axes[2], label="standard deviation (m)")
for one, title in zip(axes, ("means of cells, and airports", "map", "its standard deviation"), strict=True):
    one.set(title=title, xlim=(-20, 50), ylim=(-36, 38), xlabel="longitude")
axes[0].set_ylabel("latitude")
