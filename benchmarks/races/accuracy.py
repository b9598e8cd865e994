"""Accuracy against time on kin40k, protein, elevators and bike: learned frequencies, a variational process, xGPR.

Protocol, fixed before the results were seen. A random tenth of the rows is held out (numpy's generator, the seed of the
run); columns and target are standardized on the others; float32. Errors are of the standardized target, NLPD with the
noise. Packages run one after the other within a seed and data set, alone on the machine. The time of a fit is all of
it, from arrays in memory; that of predicting is left out.

- rfgp: `SparseSpectrumGP(learn_frequencies=True)` with nothing tuned but size and steps, five fits each: (m, steps) =
  (128, 60), (128, 150), (256, 60), (256, 300), (512, 200). F = 2 m. Rate, prior, batches and the beginning were
  tuned on airfoil, concrete, power-plant and drawn tables.
- svgp: GPyTorch's SVGP, 512 inducing points from a random subset, Cholesky variational distribution, one lengthscale
  per column, batches of 1024, Adam with rate 0.01 as in its examples. It is evaluated after 5, 10, 30 and 60 s of
  training, without the time of the evaluation.
- xgpr (if its interpreter is given): xGPR 0.4.8, RBF kernel with one lengthscale, its crude tuning with 1024 features
  and its fit with 4096, in its own process. With 4096 features the tuning had not ended after six minutes. F = 4096.

    python -m benchmarks.races.accuracy [--seeds N] [--tables kin40k,...] [--xgpr PYTHON] [--out FILE]
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

TABLES = ("kin40k", "protein", "elevators", "bike")
SETTINGS = ((128, 60), (128, 150), (256, 60), (256, 300), (512, 200))
TIMES = (5.0, 10.0, 30.0, 60.0)

XGPR = """
import sys, time, json
import numpy as np
from xGPR import xGPRegression, build_regression_dataset
a = np.load(sys.argv[1])
begin = time.perf_counter()
data = build_regression_dataset(a["X"].astype(np.float64), a["y"].astype(np.float64), chunk_size=2000)
model = xGPRegression(num_rffs=1024, variance_rffs=512, kernel_choice="RBF", device="cpu", verbose=False, random_seed=0)
model.tune_hyperparams_crude(data)
model.num_rffs = 4096
model.fit(data, mode="cg", tol=1e-6)
seconds = time.perf_counter() - begin
mean, variance = model.predict(a["Z"].astype(np.float64), get_var=True)
e = a["w"] - mean
print(json.dumps([seconds, float(np.sqrt(np.mean(e**2))),
                  float(np.mean(0.5 * (e**2 / variance + np.log(2 * np.pi * variance))))]))
"""


def split(name: str, seed: int) -> tuple[np.ndarray, ...]:
    from rfgp import datasets, tables

    table = tables.read_table(datasets.fetch(name))
    order = np.random.default_rng(seed).permutation(len(table.y))
    test, train = order[: len(order) // 10], order[len(order) // 10 :]
    X, y = table.X, table.y
    X = (X - X[train].mean(0)) / np.where(X[train].std(0) > 0, X[train].std(0), 1)
    y = (y - y[train].mean()) / y[train].std()
    return tuple(a.astype(np.float32) for a in (X[train], y[train], X[test], y[test]))


def errors(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> tuple[float, float]:
    e = y.astype(np.float64) - mean
    return float(np.sqrt(np.mean(e**2))), float(np.mean(0.5 * (e**2 / variance + np.log(2 * np.pi * variance))))


def ours(data: tuple[np.ndarray, ...], seed: int) -> Iterator[tuple[str, float, float, float]]:
    import rfgp

    X, y, Z, w = data
    for m, steps in SETTINGS:
        begin = time.perf_counter()
        gp = rfgp.SparseSpectrumGP(num_frequencies=m, learn_frequencies=True, seed=seed)
        gp.fit(X, y, max_iterations=steps)
        seconds = time.perf_counter() - begin
        p = gp.predict(Z).observed()
        kind = "" if gp.fit_report.frequencies == "learned" else " (rejected)"
        yield f"m {m}, F {2 * m}, {steps} steps{kind}", seconds, *errors(w, p.mean, p.variance)


def svgp(data: tuple[np.ndarray, ...], seed: int) -> Iterator[tuple[str, float, float, float]]:
    import gpytorch
    import torch

    X, y, Z = (torch.as_tensor(a) for a in data[:3])
    torch.manual_seed(seed)

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self, points: Any) -> None:
            law = gpytorch.variational.CholeskyVariationalDistribution(len(points))
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, law))
            self.mean_module = gpytorch.means.ConstantMean()
            kernel = gpytorch.kernels.RBFKernel(ard_num_dims=points.shape[1])
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    begin, read = time.perf_counter(), 0.0
    model = Model(X[torch.randperm(len(X))[:512]].clone())
    model.covar_module.base_kernel.lengthscale = X.shape[1] ** 0.5
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = 0.1
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)
    times, step = list(TIMES), 0
    while times:
        for batch in torch.randperm(len(X)).split(1024):
            optimizer.zero_grad()
            (-objective(model(X[batch]), y[batch])).backward()
            optimizer.step()
            step += 1
            passed = time.perf_counter() - begin - read
            if passed >= times[0]:
                now = time.perf_counter()
                with torch.no_grad():
                    model.eval(), likelihood.eval()
                    laws = [likelihood(model(part)) for part in Z.split(4096)]
                    model.train(), likelihood.train()
                mean, variance = (torch.cat([getattr(p, k) for p in laws]).numpy() for k in ("mean", "variance"))
                yield f"512 points, {step} steps", passed, *errors(data[3], mean, variance)
                read += time.perf_counter() - now
                times.pop(0)
                if not times:
                    return


def xgpr(data: tuple[np.ndarray, ...], interpreter: str) -> Iterator[tuple[str, float, float, float]]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npz"
        np.savez(file, **dict(zip("XyZw", data, strict=True)))
        command = [interpreter, "-c", XGPR, str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr[-500:], file=sys.stderr)
        return
    yield "F 4096", *json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--xgpr", help="the Python of an environment with xGPR")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found = []
    for seed in range(options.seeds):
        for name in options.tables.split(","):
            data = split(name, seed)
            racers = [("svgp", svgp(data, seed)), ("rfgp", ours(data, seed))]
            if options.xgpr and seed == 0:
                racers.append(("xgpr", xgpr(data, options.xgpr)))
            for package, rows in racers:
                for what, seconds, rmse, nlpd in rows:
                    found.append((name, seed, package, what, seconds, rmse, nlpd))
                    print(f"{name} {seed} {package:5s} {what:28s} {seconds:6.1f} s  {rmse:.4f}  {nlpd:.4f}", flush=True)
    if options.out:
        options.out.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
