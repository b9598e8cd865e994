"""Bayesian optimization of Branin and Hartmann-6: simple regret with random features and with BoTorch's SingleTaskGP.

Protocol, fixed before the results were seen. There are ten seeds. The 2 d + 2 first points are from a scrambled Sobol
sequence of the seed, the same for all models. Then there are 30 evaluations (Branin) or 50 (Hartmann-6) of the
noise-free function, one at a time. At each, the model is fitted anew by `fit_gpytorch_mll`. Models:
`rfgp.botorch.RandomFeatureGP` with m = 256 (F = 512) and BoTorch's `SingleTaskGP` with its defaults (the exact process,
the same priors). Acquisitions: qLogEI by `optimize_acqf` (4 restarts, 128 raw samples), and Thompson sampling: one path
of `draw_matheron_paths`, maximized by `optimize_posterior_samples` (4 restarts, 1024 raw samples). Regret: the optimum
less the best value so far. Asked for: with random features and either acquisition, a median regret of at most 0.01 on
Branin and 0.1 on Hartmann-6 in the end.

    python -m benchmarks.races.optimization [--seeds N] [--out FILE.json]
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.exceptions import BotorchWarning
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.sampling.pathwise import draw_matheron_paths
from botorch.test_functions import Branin, Hartmann
from botorch.utils.sampling import draw_sobol_samples, optimize_posterior_samples
from gpytorch.mlls import ExactMarginalLogLikelihood

from rfgp.botorch import RandomFeatureGP

PROBLEMS = {"branin": (Branin(negate=True), 30), "hartmann6": (Hartmann(dim=6, negate=True), 50)}
MODELS = {"random features": lambda X, Y: RandomFeatureGP(X, Y, seed=0), "exact": SingleTaskGP}


def qlogei(model, bounds, best):
    acquisition = qLogExpectedImprovement(model, best_f=best)
    return optimize_acqf(acquisition, bounds=bounds, q=1, num_restarts=4, raw_samples=128)[0]


def thompson(model, bounds, best):
    path = draw_matheron_paths(model, torch.Size([1]))
    return optimize_posterior_samples(path, bounds=bounds, raw_samples=1024, num_restarts=4)[0].reshape(1, -1)


ACQUISITIONS = {"qLogEI": qlogei, "Thompson": thompson}


def regrets(problem, steps, build, acquire, seed):
    torch.manual_seed(seed)
    d, low, high = problem.dim, *problem.bounds
    unit = torch.stack([torch.zeros(d), torch.ones(d)])
    X = draw_sobol_samples(unit, n=2 * d + 2, q=1, seed=seed).squeeze(1)
    Y = problem(low + (high - low) * X)[:, None]
    for _ in range(steps):
        model = build(X, Y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        x = acquire(model, unit, Y.max())
        X, Y = torch.cat([X, x]), torch.cat([Y, problem(low + (high - low) * x)[:, None]])
    best = Y[2 * d + 1 :, 0].cummax(0).values
    return (problem.optimal_value - best).tolist()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    warnings.simplefilter("ignore", BotorchWarning)
    warnings.simplefilter("ignore", RuntimeWarning)
    found = []
    for name, (problem, steps) in PROBLEMS.items():
        for seed in range(options.seeds):
            for model, build in MODELS.items():
                for acquisition, acquire in ACQUISITIONS.items():
                    begin = time.perf_counter()
                    curve = regrets(problem, steps, build, acquire, seed)
                    seconds = time.perf_counter() - begin
                    found.append((name, model, acquisition, seed, curve))
                    print(f"{name} {seed} {model:15s} {acquisition:8s} {curve[-1]:.5f}  {seconds:.0f} s", flush=True)
                    if options.out:
                        options.out.write_text(json.dumps(found))
    for name in PROBLEMS:
        for model in MODELS:
            for acquisition in ACQUISITIONS:
                ends = [c[-1] for n, m, a, _, c in found if (n, m, a) == (name, model, acquisition)]
                quartiles = ", ".join(f"{q:.4f}" for q in np.quantile(ends, (0.25, 0.5, 0.75)))
                print(f"{name} {model:15s} {acquisition:8s} quartiles of the regret: {quartiles}")


if __name__ == "__main__":
    main()
