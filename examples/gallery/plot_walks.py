"""
Walkers on a graph, independent and stratified
==============================================

Diffusion kernel between the middle of a 15 x 15 grid and all of its nodes, estimated by 16 walkers per node, once
with independent walkers and once with lengths and directions that are stratified. The errors are means over 8 draws,
for the whole kernel matrix.
"""

import matplotlib.pyplot as plt
import numpy as np

import graphs
from graphs import kernels
from rfgp.palette import COLOR_MAPS

grid = graphs.Graph.from_grid((15, 15))
kernel = kernels.Diffusion(2.0)
options = {
    "independent": {"lengths": "iid", "directions": "independent"},
    "stratified": {"lengths": "systematic", "directions": "stratified"},
}
middle = 15 * 7 + 7
exact = kernel.exact(grid)
scale = {"cmap": COLOR_MAPS["mean"], "vmin": 0.0, "vmax": float(np.sort(exact[middle])[-2])}

figure, panels = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
panels[0].imshow(exact[middle].reshape(15, 15), **scale)
panels[0].set_title("exact")
for axes, (name, settings) in zip(panels[1:], options.items(), strict=True):
    errors = []
    for seed in range(8):
        walks = graphs.sample_walks(grid, num_walkers=16, p_halt=0.2, exact_hops=0, seed=seed, **settings)
        phi = walks.features(kernel)
        estimate = (phi @ phi.T).toarray()
        errors.append(np.linalg.norm(estimate - exact) / np.linalg.norm(exact))
        if seed == 0:
            axes.imshow(estimate[middle].reshape(15, 15), **scale)
    axes.set_title(f"{name}\nrelative error {np.mean(errors):.3f}")
    print(
        f"{name}: relative Frobenius error {np.mean(errors):.3f}, standard error {np.std(errors) / 7**0.5:.3f}, 8 draws"
    )
for axes in panels:
    axes.set_axis_off()
