"""Decisions on a graph: find the best of 10,000 nodes by Thompson sampling, ten measurements at a time.

Each round draws ten functions from the posterior, evaluates each at every node, and measures where each is highest. The
field is smooth, so the kernel lives on few eigenvectors of the Laplacian: features="spectrum".
"""

import numpy as np

import graphs
import rfgp

side = 100
g = graphs.Graph.from_grid((side, side))
rows, columns = np.divmod(np.arange(g.num_nodes), side)
rng = np.random.default_rng(0)
field = np.zeros(g.num_nodes)
for height, (row, column) in zip(rng.uniform(1, 3, 12), rng.uniform(0, side, (12, 2)), strict=True):
    field += height * np.exp(-((rows - row) ** 2 + (columns - column) ** 2) / (2 * 12**2))

nodes = rng.permutation(g.num_nodes)[:100]
gp = rfgp.GraphGP(g, features="spectrum", rank=100, seed=0).fit(nodes, field[nodes] + 0.1 * rng.standard_normal(100))
print(gp.hyperparameters)
print(f"the best of {g.num_nodes} nodes: {field.max():.2f}; the best of the first 100: {field[nodes].max():.2f}")
for round_ in range(5):
    functions = gp.sample_functions(10, seed=round_)
    chosen = functions(np.arange(g.num_nodes)).argmax(axis=1)
    gp.update(chosen, field[chosen] + 0.1 * rng.standard_normal(10))
    print(f"round {round_ + 1}: measured {field[chosen].min():.2f} to {field[chosen].max():.2f}")
