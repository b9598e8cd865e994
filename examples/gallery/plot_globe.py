"""
The globe: elevations of airports
=================================

4,301 airports of the world, one in each cell of 1.5 degrees (airportsdata by M. Borsetti, MIT licence). `k.Sphere`
reads longitudes and latitudes and measures distances through the globe in km, so that the date line and the poles are
no edges. The left map shows the mean, faded where its standard deviation is large, which is far from airports. The
right map shows that deviation, and the airports.
"""

import matplotlib.pyplot as plt
import numpy as np

import rfgp
from rfgp import kernels as k

table = rfgp.datasets.load("airports")
gp = rfgp.GP(k.Sphere(("lon", "lat"), k.Matern(nu=0.5)), seed=0).fit(table[["lon", "lat"]], table["elevation"])
print(f"lengthscale {gp.hyperparameters.lengthscale.item():.0f} km, {gp.terms['sphere(lon, lat)'].cost.note}")

lon, lat = np.meshgrid(np.linspace(-180, 180, 361), np.linspace(-80, 80, 161))
p = gp.predict({"lon": lon.ravel(), "lat": lat.ravel()})
mean, std = p.mean.reshape(lon.shape), p.std.reshape(lon.shape)

figure, (left, right) = plt.subplots(1, 2, figsize=(13, 3.6), layout="constrained", sharey=True)
shown = left.pcolormesh(lon, lat, mean, vmin=0, vmax=2000, cmap="viridis", alpha=1 - 0.9 * std / std.max())
figure.colorbar(shown, ax=left, label="elevation (m)")
shown = right.pcolormesh(lon, lat, std, cmap="Greys")
right.plot(table["lon"], table["lat"], ".", ms=1, color="tab:blue")
figure.colorbar(shown, ax=right, label="standard deviation (m)")
for axes in (left, right):
    axes.set_xlabel("longitude")
    axes.set_ylim(-80, 80)
left.set_ylabel("latitude")
