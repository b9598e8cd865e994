"""The error of float32 products of features: the log density of a row against that of float64 products."""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from benchmarks.record import Result, Scale, Value
from rfgp.blocks import WeightBlock, Weights
from rfgp.errors import NotPositiveDefiniteError
from rfgp.rows import Block
from rfgp.solvers.lowrank import LinearModel, LowRankSolver, block_rows

ROWS, VARIANCES, DEVIATIONS, FREQUENCIES = (3000, 12_000, 60_000), (1.0, 100.0), (0.3, 0.1, 0.03, 0.01, 0.003), 64


def models(n: int) -> Iterator[tuple[float, float, LinearModel]]:
    """Yield signal variances, noise deviations, and models of n rows."""
    generator = torch.Generator().manual_seed(1)
    x, e = torch.randn(n, 2, generator=generator), torch.randn(n, generator=generator)
    omega = torch.randn(FREQUENCIES, 2, generator=generator) / 1.5
    one = torch.ones((), dtype=torch.float64)

    def phi(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([(x @ omega.T).cos(), (x @ omega.T).sin()], 1) / math.sqrt(FREQUENCIES)

    for variance in VARIANCES:
        for sd in DEVIATIONS:
            rows = Block(x, (torch.sin(x[:, 0]) + torch.cos(x[:, 1]) + sd * e).double()[:, None])
            weights = Weights((WeightBlock(phi, 2 * FREQUENCIES, variance=one * variance),))
            yield variance, sd, LinearModel(weights, rows, torch.zeros(1).double(), one * sd**2)


def density(model: LinearModel, most: float, n: int) -> float:
    """Return the log density of a row, or NaN if a matrix is not positive definite."""
    try:
        return float(LowRankSolver(replace(model, max_float32_error=most)).log_marginal_likelihood()) / n
    except NotPositiveDefiniteError:
        return math.nan


def rounding(scale: Scale) -> Result:
    """Return the errors of the density of a row, by e."""
    values = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in ROWS[:1] if scale.quick else ROWS:
            for variance, sd, model in models(n):
                e = math.sqrt(n * min(n, block_rows(2 * FREQUENCIES))) * 6e-8 * variance / sd**2
                off = density(model, math.inf, n) - density(model, 0.0, n)
                values.append((e, f"n = {n}, s^2 = {variance:g}, noise {sd:g}^2, e = {e:.2g}", off))
    return Result(
        "what float32 products of features cost",
        f"Two columns, {FREQUENCIES} frequencies, float32 features in both; by how much the log density of a row is off"
        " with products in float32; e = sqrt(n b) 6e-8 s^2 / noise (`rfgp.solvers.lowrank`).",
        [Value(name, off) for _, name, off in sorted(values) if not math.isnan(off)],
        [f"Not positive definite in float32: {name}." for _, name, off in sorted(values) if math.isnan(off)],
    )


FIGURES: dict[str, Callable[[Scale], Result]] = {"rounding": rounding}
