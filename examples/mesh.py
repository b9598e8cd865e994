"""A mesh: interpolate a field on its faces by random walks, with independent and with coupled walkers."""

import numpy as np

import graphs
import rfgp
from rfgp import datasets

mesh = datasets.make_mesh(seed=0)
g = graphs.Graph.from_mesh(mesh)
field = mesh.face_normals[:, 2]
order = np.random.default_rng(0).permutation(g.num_nodes)
seen, hidden = order[:1200], order[1200:]

exact = rfgp.GraphGP(g, kernel="diffusion", features="exact").fit(seen, field[seen])
target = exact.predict(hidden)
print(exact.hyperparameters)
for name, options in {
    "independent": {"lengths": "iid", "step_coupling": "independent"},
    "stratified": {"lengths": "systematic", "step_coupling": "stratified"},
}.items():
    prediction = exact.with_approximation(rfgp.RandomWalks(16, seed=0, **options)).predict(hidden)
    print(f"{name:12s} KL to the exact posterior {rfgp.metrics.kl_divergence(target, prediction):6.2f} nats")
