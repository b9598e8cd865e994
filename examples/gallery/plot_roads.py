"""
Speeds on roads, with the certainty as the width of the line
============================================================

Speeds at 325 sensors on the highways of San Jose (California Department of Transportation, through MetricGraph, GPL). A
Whittle-Matern field on the road network predicts the speed at every position from 250 of them. The color is the
predicted speed. A wide line is a certain prediction, a thin line an uncertain one.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection

import graphs
import rfgp
from rfgp.palette import COLOR_MAPS

roads = rfgp.datasets.load("pems")
network = graphs.RoadNetwork.from_roads(roads)
sensors = np.column_stack([roads.sensor_edges, roads.sensor_fractions])
known = np.zeros(325, dtype=bool)
known[np.random.default_rng(0).permutation(325)[:250]] = True  # the others are held out
gp = rfgp.RoadGP(network, alpha=2, seed=0).fit(sensors[known], roads.values[known])

# %%
# Each road is cut into four pieces. The prediction at the middle of a piece gives its color and its width.
road = np.repeat(np.arange(network.num_roads), 4)
start = np.tile(np.arange(4) / 4, network.num_roads)
segments = np.stack([network.point(np.column_stack([road, start + step])) for step in (0.0, 0.25)], axis=1)
speed = gp.predict(np.column_stack([road, start + 0.125]))
mean, std = np.asarray(speed.mean), np.asarray(speed.std)
low, high = np.quantile(std, [0.02, 0.95])
certainty = np.clip((high - std) / (high - low), 0, 1)

figure, axes = plt.subplots(figsize=(8, 6.4), layout="constrained")
lines = LineCollection(segments, cmap=COLOR_MAPS["mean"], linewidths=0.6 + 5 * certainty, array=mean)
axes.add_collection(lines)
axes.plot(*network.point(sensors[known]).T, "o", ms=3, color="black", mec="white", mew=0.4, label="sensor")
for width, value in ((5.6, low), (3.1, (low + high) / 2), (0.6, high)):
    axes.plot([], [], lw=width, color="0.5", label=f"± {value:.0f} mph")
axes.set(aspect=1 / np.cos(np.deg2rad(37.3)), title="predicted speed and its standard deviation")
axes.set_axis_off()
axes.legend(loc="upper left", bbox_to_anchor=(0, 0), ncols=4, frameon=False)
figure.colorbar(lines, ax=axes, label="mph", shrink=0.7)

held, target = gp.predict(sensors[~known]).observed(), roads.values[~known]
low, high = held.interval(0.95)
print(
    f"{len(target)} held-out sensors: root mean square error {rfgp.metrics.rmse(target, held):.1f} mph (standard "
    f"deviation of the speeds {target.std():.1f}), 95 % intervals hold {np.mean((low < target) & (target < high)):.0%}"
)
