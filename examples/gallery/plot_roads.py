"""
Speeds on roads, with the certainty as the width of the line
============================================================

A town has 120 speed sensors. A Whittle-Matern field on the road network predicts the speed at every position. The color
is the predicted speed. A wide line is a certain prediction, a thin line an uncertain one.
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection

import graphs
import rfgp
from rfgp import datasets
from rfgp.palette import COLOR_MAPS

roads = datasets.make_roads(seed=0)
network = graphs.RoadNetwork.from_roads(roads)
sensors = np.stack([roads.sensor_edges, roads.sensor_fractions], axis=1)
known = sensors[:, 0] % 2 == 0  # half of the sensors; the others are held out
gp = rfgp.RoadGP(network, alpha=2, seed=0).fit(sensors[known], roads.values[known])

# %%
# Each road is cut into 12 pieces. The prediction at the middle of a piece gives its color and its width.
pieces = 12
ends = np.linspace(0, 1, pieces + 1)
middles = (ends[:-1] + ends[1:]) / 2
positions = np.array([(road, middle) for road in range(len(roads.lines)) for middle in middles])
speed = gp.predict(positions)
mean, std = np.asarray(speed.mean), np.asarray(speed.std)


def at(road, fraction):
    """Return the coordinates of a position on a straight road."""
    first, last = roads.lines[int(road)][0], roads.lines[int(road)][-1]
    return (1 - fraction) * first + fraction * last


segments = [[at(road, a), at(road, b)] for road in range(len(roads.lines)) for a, b in itertools.pairwise(ends)]
low, high = np.quantile(std, [0.02, 0.9])
certainty = np.clip((high - std) / (high - low), 0, 1)

figure, axes = plt.subplots(figsize=(8, 6.4), layout="constrained")
lines = LineCollection(segments, cmap=COLOR_MAPS["mean"], linewidths=0.6 + 6 * certainty, capstyle="round")
lines.set_array(mean)
axes.add_collection(lines)
places = np.array([at(*sensor) for sensor in sensors[known]])
axes.plot(*places.T, "o", ms=3.5, color="black", mec="white", mew=0.6, label="sensor")
for width, value in ((6.6, low), (3.6, (low + high) / 2), (0.6, high)):
    axes.plot([], [], lw=width, color="0.5", label=f"± {value:.1f} mph")
axes.set(aspect=1 / np.cos(np.deg2rad(49.4)), title="predicted speed and its standard deviation")
axes.set_axis_off()
axes.legend(loc="upper left", bbox_to_anchor=(0, 0), ncols=4, frameon=False)
figure.colorbar(lines, ax=axes, label="mph", shrink=0.7)

held = gp.predict(sensors[~known])
error = np.sqrt(np.mean((np.asarray(held.mean) - roads.values[~known]) ** 2))
inside = [np.asarray(end) for end in held.observed().interval(0.95)]
coverage = np.mean((inside[0] < roads.values[~known]) & (roads.values[~known] < inside[1]))
print(f"{(~known).sum()} held-out sensors: root mean square error {error:.2f} mph, 95 % intervals hold {coverage:.0%}")
