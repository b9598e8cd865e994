"""
7. From roads to speeds, in space and time
==========================================

Sixty sensors on the roads of a town report the mean speed of each hour, with gaps. You predict the speed everywhere on
the roads at every hour, with a standard deviation. The map shows both: the color of a road is the speed, and its width
the certainty.
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
# ``graphs.RoadNetwork`` reads GeoJSON, such as an export of OpenStreetMap. The file here is ``data/roads.geojson`` of
# the repository, which ``datasets.write_all`` also writes. A position is the number of a road and the fraction of its
# length.

with tempfile.TemporaryDirectory() as folder:
    path = next(path for path in datasets.write_all(folder) if path.name == "roads.geojson")
    network = graphs.RoadNetwork.from_geojson(path)
print(network)

# %%
# Sensors usually have coordinates. ``nearest`` finds their positions on the roads, and the distances. ``point`` returns
# the longitudes and latitudes of positions.

positions, distances = network.nearest([(8.6202, 49.4177), (8.6085, 49.4051)])
for (road, fraction), distance in zip(positions, distances, strict=True):
    print(f"road {int(road)}, fraction {fraction:.2f}, {distance:.0f} m away")
print(network.point(positions).round(4))

# %%
# Speeds
# ------
# The table has a row for each sensor and hour. The speeds are generated: a usual speed of each place, and two rush
# hours that slow the roads near one diagonal. There are no sensors in the south-east. A third of the rows is missing.


def speed(road, fraction, hour):
    """Return the true mean speed in km/h, (n,)."""
    u, v = ((network.point(np.column_stack([road, fraction])) - [8.62, 49.42]) / 0.02).T
    rush = np.exp(-((hour - 8) ** 2) / 3) + np.exp(-((hour - 17) ** 2) / 5)
    return 45 + 8 * np.cos(3 * u) * np.cos(2 * v) - 18 * np.exp(-4 * (u - v) ** 2) * rush


made = datasets.make_roads(seed=0)
sites = network.point(np.column_stack([made.sensor_edges, made.sensor_fractions]))
rng = np.random.default_rng(0)
order = rng.permutation(120)
corner = (sites[order, 0] > 8.623) & (sites[order, 1] < 49.417)
known, hidden = order[~corner][:60], np.concatenate([order[~corner][60:], order[corner]])
hours = np.arange(6.0, 22.0)


def rows_of(sensors):
    """Return a table with a row for each sensor and hour, and the true speeds."""
    road, fraction = made.sensor_edges[sensors], made.sensor_fractions[sensors]
    table = {
        "road": np.repeat(road, len(hours)),
        "fraction": np.repeat(fraction, len(hours)),
        "hour": np.tile(hours, len(sensors)),
    }
    return table, speed(table["road"], table["fraction"], table["hour"])


full, truth = rows_of(known)
kept = rng.random(len(truth)) > 1 / 3
table = {name: column[kept] for name, column in full.items()}
observed = truth[kept] + 2 * rng.normal(size=kept.sum())
print(f"{kept.sum()} rows of {len(known)} sensors; {len(hidden)} sensors are hidden")

# %%
# A field that changes in time
# ----------------------------
# The model has three terms: the usual speed of each place, an hourly course of the whole town, and local changes. The
# last is a product of a field on the roads and a kernel of the hour: it is smooth in both. Distances are along the
# roads.
#
# The precision matrix of a field on roads is sparse, and so is that of a product with a Matern kernel of one column.
# The fit is therefore exact, also for thousands of latent values.

town = k.Matern("hour", nu=1.5, name="town")
local = (k.Roads(network) * k.Matern("hour", nu=1.5)).named("local")
gp = rfgp.GP(k.Roads(network, name="usual") + town + local, seed=0).fit(table, observed)
for name, term in gp.terms.items():
    print(f"{name:6s} share {term.share:4.0%}   {term.cost.note}")
print(gp.hyperparameters)

# %%
# Lengthscales are in meters for roads, and in hours for the hour. The noise variance of the data is 4.
#
# The map
# -------
# Predict at ten positions of each road. A wide line is a certain prediction, a thin line an uncertain one.

cuts = np.linspace(0, 1, 11)
centers = (cuts[1:] + cuts[:-1]) / 2
everywhere = {
    "road": np.repeat(np.arange(network.num_roads), 10),
    "fraction": np.tile(centers, network.num_roads),
}
ends = [
    network.point(np.column_stack([everywhere["road"], np.tile(cuts[i : i + 10], network.num_roads)])) for i in (0, 1)
]
pieces = np.stack(ends, axis=1)  # (1940, 2, 2)
figure, panels = plt.subplots(1, 2, figsize=(8, 4.6), layout="compressed", sharex=True, sharey=True)
low, high = 1.5, 4.5  # km/h


def width(std):
    """Return the width of a line for a standard deviation."""
    return 0.6 + 5 * np.clip((high - std) / (high - low), 0, 1)


for axes, hour in zip(panels, (8.0, 12.0), strict=True):
    p = gp.predict({**everywhere, "hour": np.full(len(pieces), hour)})
    drawn = LineCollection(pieces, cmap="viridis", linewidths=width(p.std), capstyle="round")
    drawn.set_array(p.mean)
    drawn.set_clim(20, 55)
    axes.add_collection(drawn)
    axes.plot(*sites[known].T, "o", ms=3, color="black", mfc="white", mew=0.6)
    axes.set(title=f"{hour:.0f}:00", xlabel="longitude", aspect=1 / np.cos(np.radians(49.42)))
    axes.autoscale_view()
    axes.ticklabel_format(useOffset=False)
    print(f"{hour:2.0f}:00  standard deviation {p.std.min():.1f} to {p.std.max():.1f} km/h")
panels[0].set(ylabel="latitude")
for value in (low, (low + high) / 2, high):
    panels[0].plot([], [], lw=width(value), color="0.5", label=f"± {value:.1f} km/h")
figure.legend(loc="outside lower center", ncols=3, frameon=False)
figure.colorbar(drawn, ax=panels, label="mean speed, km/h", shrink=0.8)

# %%
# Lines are wide near the sensors (circles), and thin in the south-east, where there are none.
#
# One road over the day
# ---------------------
# The prediction of one position shows both uncertainties: between the rows of a sensor, and after the last hour.

sensor = int(np.argmin([kept[i * len(hours) : (i + 1) * len(hours)].sum() for i in range(len(known))]))
day = np.linspace(5, 24, 200)
road, fraction = made.sensor_edges[known[sensor]], made.sensor_fractions[known[sensor]]
one = {"road": np.full(200, road), "fraction": np.full(200, fraction), "hour": day}
p = gp.predict(one)
own = (table["road"] == road) & (table["fraction"] == fraction)
figure, axes = plt.subplots(figsize=(8, 3.4), layout="constrained")
axes.fill_between(day, *p.interval(0.95), color=COLORS[0], alpha=0.3, lw=0, label="95 % band of the mean speed")
axes.plot(day, p.mean, color=COLORS[0], label="mean")
axes.plot(day, speed(one["road"], one["fraction"], day), color=COLORS[6], lw=1, ls="--", label="truth")
axes.plot(table["hour"][own], observed[own], "o", ms=4, color=COLORS[1], label="rows of this sensor")
axes.set(xlabel="hour", ylabel="speed, km/h", ylim=(16, 56))
axes.legend(loc="lower center", ncols=2)
print(f"rows of this sensor: {own.sum()}")

# %%
# Other sensors and other hours fill the gaps: the field shares information along roads and over hours.
#
# Questions about several places
# ------------------------------
# Errors at nearby places are correlated. Averages therefore need the joint distribution. ``linear`` takes weights, here
# for the mean speed of one road at 8:00.

along = {"road": np.full(10, road), "fraction": centers, "hour": np.full(10, 8.0)}
p = gp.predict(along)
average = p.linear(np.full(10, 0.1))
print(f"mean speed of road {road} at 8:00: {np.squeeze(average.mean):.1f} +- {np.squeeze(average.std):.2f} km/h")
print(f"the same, if errors were independent: +- {np.sqrt((p.std**2).sum()) / 10:.2f} km/h")
print(f"probability of less than 35 km/h: {np.squeeze(average.cdf(35.0)):.3f}")

# %%
# Check
# -----
# Score the model on the hidden sensors, and compare it with two others. One has no local changes. The other uses the
# coordinates and no roads.


def coordinates_of(rows):
    """Return the longitude and latitude of rows, in km."""
    place = network.point(np.column_stack([rows["road"], rows["fraction"]]))
    east, north = ((place - [8.62, 49.42]) * [111.2 * np.cos(np.radians(49.42)), 111.2]).T
    return {"east": east, "north": north, **rows}


new, true_speed = rows_of(hidden)
target = true_speed + 2 * rng.normal(size=len(true_speed))
plane = k.Matern(("east", "north"), nu=0.5, name="usual")
models = {
    "roads x hour": gp,
    "roads + hour": rfgp.GP(k.Roads(network) + town, seed=0).fit(table, observed),
    "plane x hour": rfgp.GP(plane + town + k.Matern(("east", "north"), nu=0.5) * k.Matern("hour", nu=1.5), seed=0).fit(
        coordinates_of(table), observed
    ),
}
for name, model in models.items():
    p = model.predict(coordinates_of(new)).observed()
    inside = np.mean(np.abs(p.mean - target) < 1.96 * p.std)
    print(
        f"{name:13s} RMSE {rfgp.metrics.rmse(target, p):.2f} km/h   in the 95 % interval {inside:.1%}   "
        f"log density {p.log_prob(target).mean():.3f} nats a row"
    )

# %%
# The speeds of this town are smooth in the plane, so the model of the plane is the best of the three here. Prefer
# roads if neighbors in the plane can differ: bridges, parallel roads, rivers. :doc:`/howto/fields` has measured
# examples.
#
# ``rfgp traffic roads.geojson --target speed`` fits a field of one hour :doc:`on the command line
# </howto/command-line>`.
