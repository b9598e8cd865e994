"""
7. From roads to speeds, in space and time
==========================================

325 sensors on the highways of San Jose report speeds (California Department of Transportation, through MetricGraph,
GPL). You predict the speed everywhere on the roads, with a standard deviation. The last section adds the hour of the
day, with generated speeds of a small town.
"""

import tempfile

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection

import graphs
import rfgp
from rfgp import datasets
from rfgp import kernels as k
from rfgp.palette import COLORS

# %%
# Roads
# -----
# ``graphs.RoadNetwork`` reads lines of longitudes and latitudes, and GeoJSON such as an export of OpenStreetMap. A
# position is the number of a road and the fraction of its length.

roads = datasets.load("pems")
network = graphs.RoadNetwork.from_roads(roads)
sensors = np.column_stack([roads.sensor_edges, roads.sensor_fractions])
speed = roads.values
print(network)
print(f"{len(speed)} sensors, {speed.min():.0f} to {speed.max():.0f} mph")

# %%
# Sensors usually have coordinates. ``nearest`` finds their positions on the roads, and the distances. ``point`` returns
# the longitudes and latitudes of positions.

positions, distances = network.nearest([(-121.95, 37.316), (-121.90, 37.366)])
for (road, fraction), distance in zip(positions, distances, strict=True):
    print(f"road {int(road)}, fraction {fraction:.2f}, {distance:.0f} m away")
print(network.point(positions).round(4))

# %%
# A field on roads
# ----------------
# ``k.Roads`` is a Whittle-Matern field on the network (Bolin, Simas and Wallin 2024): nearby places along the roads
# have similar speeds. Its precision matrix is sparse, so the fit is exact also for thousands of positions. ``alpha`` is
# the smoothness.

table = {"road": sensors[:, 0].astype(int), "fraction": sensors[:, 1]}
gp = rfgp.GP(k.Roads(network, alpha=2), seed=0).fit(table, speed)
print(gp.hyperparameters)

# %%
# The lengthscale is in meters, the noise in squares of mph. Now predict in the middle of pieces of each road, four
# pieces a road. The color is the mean. A wide line is a certain prediction, a thin line an uncertain one.

road = np.repeat(np.arange(network.num_roads), 4)
start = np.tile(np.arange(4) / 4, network.num_roads)
pieces = np.stack([network.point(np.column_stack([road, start + step])) for step in (0.0, 0.25)], axis=1)
p = gp.predict({"road": road, "fraction": start + 0.125})
low, high = 3.0, 15.0  # mph


def width(std):
    """Return the width of a line for a standard deviation."""
    return 0.6 + 5 * np.clip((high - std) / (high - low), 0, 1)


figure, axes = plt.subplots(figsize=(7.5, 6), layout="constrained")
drawn = axes.add_collection(LineCollection(pieces, cmap="viridis", linewidths=width(p.std), array=p.mean))
axes.plot(*network.point(sensors).T, ".", ms=2.5, color="black", label="sensor")
for value in (low, (low + high) / 2, high):
    axes.plot([], [], lw=width(value), color="0.5", label=f"± {value:.0f} mph")
axes.set(xlabel="longitude", ylabel="latitude", aspect=1 / np.cos(np.radians(37.3)))
axes.legend(loc="lower left", frameon=False)
figure.colorbar(drawn, ax=axes, label="speed, mph", shrink=0.8)
print(f"standard deviation {p.std.min():.1f} to {p.std.max():.1f} mph")

# %%
# Lines are thin on the roads to the south and east, which have no sensors.
#
# Questions about several places
# ------------------------------
# Errors at nearby places are correlated. Averages therefore need the joint distribution. ``linear`` takes weights, here
# for the mean speed of one kilometer without a sensor: ten places on a long road.

lengths = network.edge_lengths
without = np.setdiff1d(np.flatnonzero(lengths > 1000), table["road"])
longest = without[np.argmax(lengths[without])]
along = {"road": np.full(10, longest), "fraction": (np.arange(10) + 0.5) / 10}
p = gp.predict(along)
average = p.linear(np.full(10, 0.1))
print(f"road {longest}, {lengths[longest]:.0f} m: {np.squeeze(average.mean):.1f} +- {np.squeeze(average.std):.1f} mph")
print(f"the same, if errors were independent: +- {np.sqrt((p.std**2).sum()) / 10:.1f} mph")
print(f"probability of less than 45 mph: {np.squeeze(average.cdf(45.0)):.3f}")

# %%
# Check
# -----
# Hide 75 sensors, and compare two models: one along the roads, and one in the plane, which takes the coordinates and no
# roads.

order = np.random.default_rng(0).permutation(325)
hidden, known = order[:75], order[75:]
plane = network.point(sensors)
places = {**table, "east": 88.5 * (plane[:, 0] + 121.9), "north": 111.2 * (plane[:, 1] - 37.3)}  # km
train, test = ({name: column[rows] for name, column in places.items()} for rows in (known, hidden))
for title, kernel in (
    ("along the roads", k.Roads(network, alpha=2)),
    ("in the plane", k.Matern(("east", "north"), nu=0.5)),
):
    p = rfgp.GP(kernel, seed=0).fit(train, speed[known]).predict(test).observed()
    inside = np.mean(np.abs(p.mean - speed[hidden]) < 1.96 * p.std)
    print(
        f"{title:16s} RMSE {rfgp.metrics.rmse(speed[hidden], p):.1f} mph   in the 95 % interval {inside:.0%}   "
        f"log density {p.log_prob(speed[hidden]).mean():.3f} nats a sensor"
    )
print(f"standard deviation of the speeds: {speed.std():.1f} mph")

# %%
# The plane has learned nothing: its error is the standard deviation of the speeds. Each direction of a highway is a
# line of its own. Two sensors are then 20 m apart in the plane, and kilometers apart along the roads. One stands in
# traffic, and the other flows.
#
# A field that changes in time
# ----------------------------
# The sensors of San Jose have one speed each. For hours we generate a town: 60 sensors, 16 hours, a usual speed of each
# place, and two rush hours near one diagonal. A third of the rows is missing.

with tempfile.TemporaryDirectory() as folder:
    path = next(path for path in datasets.write_all(folder) if path.name == "roads.geojson")
    town = graphs.RoadNetwork.from_geojson(path)


def true_speed(road, fraction, hour):
    """Return the mean speed in km/h, (n,)."""
    u, v = ((town.point(np.column_stack([road, fraction])) - [8.62, 49.42]) / 0.02).T
    rush = np.exp(-((hour - 8) ** 2) / 3) + np.exp(-((hour - 17) ** 2) / 5)
    return 45 + 8 * np.cos(3 * u) * np.cos(2 * v) - 18 * np.exp(-4 * (u - v) ** 2) * rush


rng = np.random.default_rng(0)
made = datasets.make_roads(seed=0)
chosen, hours = rng.permutation(120)[:60], np.arange(6.0, 22.0)
rows = {
    "road": np.repeat(made.sensor_edges[chosen], 16),
    "fraction": np.repeat(made.sensor_fractions[chosen], 16),
    "hour": np.tile(hours, 60),
}
kept = rng.random(960) > 1 / 3
rows = {name: column[kept] for name, column in rows.items()}
observed = true_speed(**rows) + 2 * rng.normal(size=kept.sum())

# %%
# The model has three terms: the usual speed of each place, an hourly course of the whole town, and local changes. The
# last is a product of a field on the roads and a kernel of the hour. Products of such fields have sparse precisions
# too, so the fit is exact.

common = k.Matern("hour", nu=1.5, name="town")
local = (k.Roads(town) * k.Matern("hour", nu=1.5)).named("local")
gp = rfgp.GP(k.Roads(town, name="usual") + common + local, seed=0).fit(rows, observed)
for name, term in gp.terms.items():
    print(f"{name:6s} share {term.share:4.0%}   {term.cost.note}")

# %%
# The prediction of one position shows both uncertainties: between the rows of a sensor, and after the last hour. Other
# sensors and other hours fill the gaps.

first = chosen[0]
road, fraction = made.sensor_edges[first], made.sensor_fractions[first]
day = np.linspace(5, 24, 200)
one = {"road": np.full(200, road), "fraction": np.full(200, fraction), "hour": day}
p = gp.predict(one)
own = (rows["road"] == road) & (rows["fraction"] == fraction)
figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
axes.fill_between(day, *p.interval(0.95), color=COLORS[0], alpha=0.3, lw=0, label="95 % band of the mean speed")
axes.plot(day, p.mean, color=COLORS[0], label="mean")
axes.plot(day, true_speed(**one), color=COLORS[6], lw=1, ls="--", label="truth")
axes.plot(rows["hour"][own], observed[own], "o", ms=4, color=COLORS[1], label="rows of this sensor")
axes.set(xlabel="hour", ylabel="speed, km/h")
axes.legend(loc="lower left", ncols=2, fontsize="small")

# %%
# :doc:`/howto/fields` has the files of roads that can be read, and measured examples. ``rfgp traffic roads.geojson
# --target speed`` fits a field of one hour :doc:`on the command line </howto/command-line>`.
