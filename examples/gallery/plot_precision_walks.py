"""
A field on a graph: by its precision, by walks and exactly
==========================================================

Left: the highways of San Jose as a graph, with speeds at 325 sensors (California Department of Transportation, through
MetricGraph, GPL). The kernel has a sparse precision, so its posterior is exact. Random walks estimate the same kernel.
They fail here, because the fitted lengthscale is many steps. Right: they serve short lengthscales, as on a generated
random graph with 1,000 nodes of degree 8. All models of a graph have the same hyperparameters.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import graphs
import rfgp
from rfgp.palette import COLORS

roads = rfgp.datasets.load("pems")
graph = graphs.Graph.from_roads(roads.lines, roads.sensor_edges, roads.sensor_fractions, min_length=0.5)
sensors = [f"sensor-{i}" for i in range(325)]
long = rfgp.GraphGP(graph, graphs.kernels.RegularizedLaplacian(order=2, sigma=5.0), features="exact", seed=0)
long.fit(sensors[:250], roads.values[:250])
print(f"roads: {graph.num_nodes} nodes, fitted sigma {long.hyperparameters['nodes.sigma'].item():.1f}")

kernel = graphs.kernels.RegularizedLaplacian(order=2, sigma=1.0)
random = graphs.Graph.from_networkx(nx.random_regular_graph(8, 1000, seed=0))
field = kernel.precision(random).sample(seed=0)[0]
noisy = field + 0.3 * field.std() * np.random.default_rng(0).standard_normal(1000)
nodes = list(random.labels)
short = rfgp.GraphGP(random, kernel, features="exact", noise=(0.3 * field.std()) ** 2, outputscale=1.0, seed=0)
short.condition(nodes[:250], noisy[:250])

# %%
# The same kernel by its precision, and by 4, 16 and 64 walkers a node.
sizes = (4, 16, 64)
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
for i, (title, model, hidden) in enumerate(
    (("roads, long lengthscale", long, sensors[250:]), ("random graph, short lengthscale", short, nodes[250:325]))
):
    target, divergences = model.predict(hidden), []
    for size in sizes:
        walks = model.with_approximation(rfgp.RandomWalks(size, seed=0)).predict(hidden)
        divergences.append(rfgp.metrics.kl_divergence(target, walks, per_point=True))
        if i == 0 and size in (4, 64):
            left.loglog(target.std, walks.std, ".", ms=5, color=COLORS[1 + (size > 4)], label=f"{size} walkers")
    precision = model.with_approximation(rfgp.SparsePrecision()).predict(hidden)
    if i == 0:
        left.loglog(target.std, precision.std, ".", ms=5, color=COLORS[0], label="precision")
    rounding = abs(rfgp.metrics.kl_divergence(target, precision, per_point=True))
    print(f"{title}: KL {', '.join(f'{one:.2g}' for one in divergences)} nats a node, precision {rounding:.0e}")
    right.loglog(sizes, divergences, "os"[i] + "-", color=COLORS[(1, 5)[i]], label=title)
left.axline((5, 5), (10, 10), color="black", lw=0.6)
left.set(xlabel="exact standard deviation, mph", ylabel="standard deviation, mph", title="75 held-out sensors on roads")
left.legend()
right.set(xlabel="walkers a node", ylabel="KL(exact || walks), nats a node", title="75 held-out nodes")
right.set(xticks=sizes, xticklabels=sizes)
right.minorticks_off()
right.legend()
