"""
Attention by features: the error against their number
======================================================

One head of attention over 256 positions: rows of handwritten digits (the digits of scikit-learn, UCI, CC BY 4.0), times
random weights. Positive random features estimate its scores in time proportional to the number of positions. The error
falls with the number of features, and depends on the coupling of the frequencies. Means over eight draws, with one
standard error.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits

import rfgp
from rfgp.features import softmax
from rfgp.palette import COLORS

pixels = torch.tensor(load_digits().data[:32].reshape(256, 8) / 16, dtype=torch.float64)  # a position is a row of 8
torch.manual_seed(0)
q, k, v = (pixels @ torch.randn(8, 16, dtype=torch.float64) for _ in range(3))
q, k = (x / x.norm(dim=1).mean() * 3 for x in (q, k))  # queries and keys of length 3 on average
exact = torch.nn.functional.scaled_dot_product_attention(q, k, v)

sizes, names = (16, 32, 64, 128, 256, 512), ("iid", "orthogonal", "monotone-antithetic")
figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
for i, name in enumerate(names):
    means, errors = [], []
    for m in sizes:
        draws = []
        for seed in range(8):
            omega = rfgp.couplings.by_name(name).sample(m, 16, generator=torch.Generator().manual_seed(seed))
            found = rfgp.attention.random_feature_attention(q, k, v, softmax.Positive(omega))
            draws.append(float((found - exact).norm() / exact.norm()))
        means.append(np.mean(draws))
        errors.append(np.std(draws, ddof=1) / 8**0.5)
    axes.errorbar(sizes, means, errors, marker="osD"[i], color=COLORS[i], label=name, capsize=2)
    print(f"{name}: relative error {means[0]:.3f} with {sizes[0]} features, {means[-1]:.3f} with {sizes[-1]}")
axes.set(xscale="log", yscale="log", xlabel="features", ylabel="relative error of the output", xticks=sizes)
axes.set(yticks=(0.05, 0.1, 0.2), yticklabels=(0.05, 0.1, 0.2))
axes.set_xticklabels(sizes)
axes.minorticks_off()
axes.set_title("256 positions, one head of 16 dimensions")
axes.legend()
