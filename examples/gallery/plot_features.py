"""
How many features? The distance from the exact process
=======================================================

The rented bicycles of Washington over day, temperature, humidity and wind (UCI, H. Fanaee-T and J. Gama 2013, CC BY
4.0). The model is fitted once, exactly, to 600 days. Random features then replace the process at the same
hyperparameters, and the divergence of their predictions of the other 131 days falls with the number of frequencies.
Means over three draws.
"""

import matplotlib.pyplot as plt
import numpy as np

import rfgp
from rfgp import kernels as k
from rfgp.palette import COLORS, styles

bikes = rfgp.datasets.load("bikes").sample(frac=1, random_state=0, ignore_index=True)
columns = ["date", "temperature", "humidity", "wind"]
train, test = bikes[:600], bikes[600:]
gp = rfgp.GP(k.RBF(columns), approximation=rfgp.Exact(), seed=0).fit(train, "rentals")
exact = gp.predict(test)

sizes, names = (8, 16, 32, 64, 128, 256), ("iid", "orthogonal", "energy")
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
for name in names:
    divergences, errors = [], []
    for m in sizes:
        draws = [gp.with_approximation(rfgp.RandomFeatures(m, coupling=name, seed=i)).predict(test) for i in range(3)]
        divergences.append(np.mean([rfgp.metrics.kl_divergence(exact, p, per_point=True) for p in draws]))
        errors.append(np.mean([rfgp.metrics.rmse(test["rentals"], p) for p in draws]))
    number = styles(names)[name]
    left.loglog(sizes, divergences, marker="osD^"[number], color=COLORS[number], label=name)
    right.semilogx(sizes, errors, marker="osD^"[number], color=COLORS[number], label=name)
    print(f"{name}: KL {divergences[0]:.2g} nats a day with {sizes[0]} frequencies, {divergences[-1]:.2g} with 256")
left.axhline(0.01, color="0.4", ls=":")
left.annotate("0.01 nats: small", (sizes[0], 0.011), color="0.4", fontsize="small")
right.axhline(rfgp.metrics.rmse(test["rentals"], exact), color="black", ls="--", label="exact")
left.set(xlabel="frequencies m", ylabel="KL(exact || features), nats a day")
right.set(xlabel="frequencies m", ylabel="root mean square error, rentals a day")
for axes in (left, right):
    axes.set(xticks=sizes, xticklabels=sizes)
    axes.minorticks_off()
    axes.legend()
