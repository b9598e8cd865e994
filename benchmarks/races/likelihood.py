"""One evaluation of a marginal likelihood with its gradient, against `gpytorch.kernels.RFFKernel` in an ExactGP.

Protocol, fixed before the results were seen. There are 36,000 rows of 8 columns, the training size of kin40k. The
values are drawn, since they do not affect the time. Models have 1024 frequencies, so 2048 features, float32, a Gaussian
spectrum, one lengthscale per column and equal hyperparameters. Each evaluation runs in its own process, the packages in
turn. The second of two evaluations is timed. The memory is the peak of the process minus the memory before the first
evaluation. GPyTorch as its documentation has it, with Cholesky factorizations (max_cholesky_size beyond n); its
low-rank root needs no others.

    python -m benchmarks.races.likelihood [--rows N] [--frequencies M] [--repeats R]
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.races.processes import last_line, status

COLUMNS, NOISE = 8, 0.1


def data(rows: int) -> tuple[Any, Any]:
    import torch

    generator = torch.Generator().manual_seed(0)
    X = torch.randn(rows, COLUMNS, generator=generator)
    y = torch.sin(X[:, 0]) + 0.2 * X[:, 1:].sum(1) + 0.1 * torch.randn(rows, generator=generator)
    return (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()


def ours(X: Any, y: Any, frequencies: int) -> Callable[[], float]:
    import torch

    import rfgp

    gp = rfgp.SparseSpectrumGP(
        num_frequencies=frequencies, coupling="orthogonal", standardize=False, dtype=torch.float32, seed=0
    ).condition(X, y)
    gp.hyperparameters.set(lengthscale=[math.sqrt(COLUMNS)] * COLUMNS, noise=NOISE, outputscale=1.0)

    def evaluate() -> float:
        value = gp.log_marginal_likelihood()
        torch.autograd.grad(value, list(gp.hyperparameters.parameters()))
        return float(value.item()) / len(y)

    return evaluate


def theirs(X: Any, y: Any, frequencies: int) -> Callable[[], float]:
    import gpytorch

    class Model(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(X, y, gpytorch.likelihoods.GaussianLikelihood())
            self.mean_module = gpytorch.means.ConstantMean()
            kernel = gpytorch.kernels.RFFKernel(num_samples=frequencies, ard_num_dims=COLUMNS)
            self.covar_module = gpytorch.kernels.ScaleKernel(kernel)

        def forward(self, x: Any) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model = Model().train()
    model.covar_module.base_kernel.lengthscale = math.sqrt(COLUMNS)
    model.covar_module.outputscale, model.likelihood.noise = 1.0, NOISE
    density = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)

    def evaluate() -> float:
        model.zero_grad()
        with gpytorch.settings.max_cholesky_size(10**6):
            value = density(model(X), y)
            value.backward()
        return float(value.item())

    return evaluate


PACKAGES = {"rfgp": ours, "gpytorch": theirs}


def one(package: str, rows: int, frequencies: int) -> None:
    """Print seconds, bytes and the value of one evaluation."""
    X, y = data(rows)
    evaluate = PACKAGES[package](X, y, frequencies)
    before = status("VmRSS")
    evaluate()
    begin = time.perf_counter()
    value = evaluate()
    print(json.dumps([time.perf_counter() - begin, status("VmHWM") - before, value]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=36_000)
    parser.add_argument("--frequencies", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--one", choices=PACKAGES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one, options.rows, options.frequencies)
        return
    found: dict[str, list[list[float]]] = {name: [] for name in PACKAGES}
    for _ in range(options.repeats):
        for name in PACKAGES:
            sizes = ("--rows", options.rows, "--frequencies", options.frequencies)
            found[name].append(json.loads(last_line("benchmarks.races.likelihood", "--one", name, *sizes)))
    for name, results in found.items():
        seconds, memory, values = zip(*results, strict=True)
        print(
            f"{name}: {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), "
            f"{statistics.median(memory) / 2**20:.0f} MiB, log density {values[0]:.4f} a row"
        )
    ratios = [theirs[0] / ours[0] for ours, theirs in zip(*found.values(), strict=True)]
    memory = [ours[1] / theirs[1] for ours, theirs in zip(*found.values(), strict=True)]
    print(
        f"{statistics.median(ratios):.1f} times as fast ({min(ratios):.1f} to {max(ratios):.1f}), with "
        f"{statistics.median(memory):.2f} of its memory ({min(memory):.2f} to {max(memory):.2f})"
    )


if __name__ == "__main__":
    main()
