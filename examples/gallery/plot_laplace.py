"""
Laplace, variational and exact posteriors
=========================================

The posterior of the function is not Gaussian if the likelihood is not. Left and middle: one latent value f with a count
of 0, or with a label of 1. The exact density is from a fine grid. Laplace's approximation sits at the mode, and the
variational one is the nearest Gaussian. Right: probabilities of 60 labels that the input separates, at the same
hyperparameters. All data are generated.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS

COLOR = {"laplace": COLORS[0], "variational": COLORS[1]}
figure, panels = plt.subplots(1, 3, figsize=(13, 3.8), layout="constrained")
f = np.linspace(-16, 16, 2001)
cases = {
    "one count of 0": ("poisson", 0, 9.0, np.exp(-np.exp(f))),
    "one label of 1": ("bernoulli", 1, 20.0, 1 / (1 + np.exp(-f))),
}
for axes, (title, (likelihood, target, variance, density)) in zip(panels, cases.items(), strict=False):
    exact = density * norm.pdf(f, scale=variance**0.5)
    exact /= exact.sum() * (f[1] - f[0])
    axes.fill_between(f, exact, color="0.85", label="exact")
    mean = (f * exact).sum() * (f[1] - f[0])
    found = f"{title}: exact {mean:.2f} ± {np.sqrt(((f - mean) ** 2 * exact).sum() * (f[1] - f[0])):.2f}"
    for inference, color in COLOR.items():
        start = {"rbf.outputscale": variance, "mean": 0.0}
        gp = rfgp.GP(k.RBF(lengthscale=1.0), likelihood, rfgp.Exact(), inference=inference, start=start, seed=0)
        rows = np.array([[0.0], [1000.0]])  # a fit needs two rows, and the second is too far away to matter
        p = gp.condition(rows, np.array([target, target])).predict(rows[:1])
        axes.plot(f, norm.pdf(f, p.mean, p.std), color=color, label=inference)
        found += f", {inference} {p.mean[0]:.2f} ± {p.std[0]:.2f}"
    axes.set(title=title, xlabel="f", ylabel="posterior density", xlim=(-12, 12))
    axes.legend(fontsize="small")
    print(found)

# If the classes are separated, larger values of f explain the labels as well. The mode stays near 0.
x = np.sort(np.random.default_rng(0).uniform(-3, 3, 60))[:, None]
labels, grid = (x[:, 0] > 0).astype(int), np.linspace(-3, 3, 121)[:, None]
for inference, color in COLOR.items():
    start = {"rbf.outputscale": 20.0}
    gp = rfgp.GP(k.RBF(lengthscale=1.5), "bernoulli", rfgp.Exact(), inference=inference, start=start, seed=0)
    p = gp.condition(x, labels).predict(grid).observed()
    panels[2].plot(grid[:, 0], p.mean, color=color, label=inference)
panels[2].plot(x[:, 0], labels, "|", color="black", ms=8)
panels[2].set(title="60 labels, separated", xlabel="x", ylabel="probability of 1")
panels[2].legend(fontsize="small")
