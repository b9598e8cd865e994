"""A table: fit a model with random features, then measure its distance from the exact process."""

import numpy as np

import rfgp
from rfgp import datasets

table = datasets.make_table(seed=0)
train, test = np.arange(400), np.arange(400, 600)

gp = rfgp.SparseSpectrumGP(num_frequencies=64, seed=0)
gp.fit(table.X[train], table.y[train])
print(gp.fit_report.message)
for name, lengthscale in zip(table.columns, gp.hyperparameters.lengthscale.tolist(), strict=True):
    print(f"{name:12s} lengthscale {lengthscale:.3g}")

approximate, exact = gp.predict(table.X[test]), gp.exact().predict(table.X[test])
print(f"test RMSE {rfgp.metrics.rmse(table.y[test], approximate):.3f}")
print(f"exact     {rfgp.metrics.rmse(table.y[test], exact):.3f}")
print(f"KL(exact || approximate) {rfgp.metrics.kl_divergence(exact, approximate, per_point=True):.4f} nats per point")
