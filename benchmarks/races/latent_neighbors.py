"""Nearest neighbors that are latent: by a sparse factor and by conjugate gradients, for rows in few and many columns.

A value with its gradient and a posterior with 500 predictions are timed once each, in seconds, after a smaller run that
compiles all loops. The targets are a smooth function with noise of standard deviation 0.3. The gradient by conjugate
gradients is that of neighbors that are responses, whose one factorization is part of its time.

    python -m benchmarks.races.latent_neighbors --rows 2000 10000 --columns 2 8
"""

import argparse
import time

import torch

from rfgp.blocks import Prior, VecchiaBlock
from rfgp.rows import Block
from rfgp.solvers.bordered import BorderedSolver, bordered_latent
from rfgp.solvers.iterative import LatentSolver

NOISE = 0.3
"""The standard deviation of the noise."""


def problem(count, columns, neighbors=30, lengthscale=0.5, seed=0):
    """Return a prior with gradients, rows in the unit cube, their mean and their noise."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, columns, generator=generator, dtype=torch.float64)
    f = torch.sin(6 * x[:, 0]) + torch.cos(4 * x.sum(1))
    y = f + NOISE * torch.randn(count, generator=generator, dtype=torch.float64)
    lengthscale = torch.full((columns,), lengthscale, dtype=torch.float64, requires_grad=True)
    variance = torch.ones((), dtype=torch.float64, requires_grad=True)
    block = VecchiaBlock.stationary("matern32", lengthscale, variance, neighbors, seed, "latent")
    noise = torch.tensor(NOISE**2, dtype=torch.float64, requires_grad=True)
    return Prior(neighbors=block), Block(x, y[:, None]), torch.zeros(1, dtype=torch.float64), noise


def timed(make, given, new):
    """Return the seconds of a value with its gradient and of a posterior with predictions, the value and its error."""
    begin = time.perf_counter()
    solver = make(*given)
    value = solver.log_marginal_likelihood()
    value.backward()
    middle = time.perf_counter()
    with torch.no_grad():
        posterior = make(*given).posterior()
        reads = posterior.project(new)
        posterior.mean(reads), posterior.variance(new, reads)
    return middle - begin, time.perf_counter() - middle, float(value.detach()), solver.likelihood_error


def race(count, columns, neighbors):
    """Print a line for each solver, and the operations and the memory of the factor."""
    new = torch.rand(500, columns, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    given = problem(count, columns, neighbors)
    analysis = BorderedSolver(*given).system.elimination.prior.pattern.analyze()
    print(
        f"{count:,} rows in {columns} columns, {neighbors} neighbors: a factor of {analysis.flops:.1e} operations and "
        f"{analysis.num_bytes / 2**20:,.0f} MiB, {'used' if bordered_latent(*given) else 'not used'}"
    )
    for name, make in (("factor", BorderedSolver), ("conjugate gradients", LatentSolver)):
        first, second, value, error = timed(make, problem(count, columns, neighbors), new)
        print(f"  {name:20} {first:8.2f} s {second:8.2f} s   value {value:.2f}, standard error {error:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[2000, 10000])
    parser.add_argument("--columns", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--neighbors", type=int, default=30)
    options = parser.parse_args()
    for make in (BorderedSolver, LatentSolver):
        timed(make, problem(300, 2), torch.rand(10, 2, dtype=torch.float64))
    for columns in options.columns:
        for count in options.rows:
            race(count, columns, options.neighbors)


if __name__ == "__main__":
    main()
