"""
Walkers on a graph, independent and stratified
==============================================

The upper row has the diffusion kernel between the middle of a 15 x 15 grid and all of its nodes. It is estimated with
16 walkers per node, once with independent walkers and once with lengths and steps that are stratified. The lower
row has the errors of one draw. Numbers are means over 4 draws, for the whole kernel matrix.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import PowerNorm

import graphs
from graphs import kernels
from rfgp.palette import COLOR_MAPS

SIDE, DRAWS = 15, 4
grid = graphs.Graph.from_grid((SIDE, SIDE))
kernel = kernels.Diffusion(2.0)
options = {
    "independent": {"lengths": "iid", "step_coupling": "independent"},
    "stratified": {"lengths": "systematic", "step_coupling": "stratified"},
}
middle = SIDE * SIDE // 2
exact = kernel.exact(grid)
row = exact[middle].reshape(SIDE, SIDE)
scale = {"cmap": COLOR_MAPS["mean"], "norm": PowerNorm(0.5, 0.0, row.max())}

figure, panels = plt.subplots(2, 3, figsize=(9, 6), layout="constrained")
image = panels[0, 0].imshow(row, **scale)
panels[0, 0].set_title("exact")
for column, (name, settings) in enumerate(options.items(), start=1):
    errors = []
    for seed in range(DRAWS):
        walks = graphs.sample_walks(grid, num_walkers=16, p_halt=0.2, exact_hops=0, seed=seed, **settings)
        phi = walks.features(kernel)
        estimate = (phi @ phi.T).toarray()
        errors.append(np.linalg.norm(estimate - exact) / np.linalg.norm(exact))
        if seed == 0:
            found = estimate[middle].reshape(SIDE, SIDE)
            panels[0, column].imshow(found, **scale)
            wrong = panels[1, column].imshow(found - row, cmap="RdBu_r", vmin=-0.05, vmax=0.05)
    panels[0, column].set_title(name)
    panels[1, column].set_title(f"relative error {np.mean(errors):.1%}")
    print(f"{name}: relative Frobenius error {np.mean(errors):.3f}, {DRAWS} draws")
figure.colorbar(image, ax=panels[0], label="kernel")
figure.colorbar(wrong, ax=panels[1], label="estimate - kernel")
for axes in panels.ravel():
    axes.set_axis_off()
