"""Fig. 7 of the couplings paper: what couplings of norms do to attention with positive features.

Protocol, fixed before the results were seen. n = 64 tokens, queries and keys standard normal in d = 16 dimensions and
divided by d^(1/4), five sets of inputs (seeds 0 to 4), 400 draws of m = 16, 32, 64, 128, 256 features each. For each
coupling: the variance of an estimate of exp(q . k), the covariance of two estimates of one row, and the mean squared
error of the row-normalised scores, averages over pairs (pairs of pairs) in units of the row's mean kernel. All
relative to orthogonal directions with independent norms on the same inputs; means over the five sets and standard
errors. The paper compares independent norms, PNC ("pairwise") and PM ("monotone"); antithetic pairs, energy couplings
and what `rfgp.learn.learn_attention` finds for each m on four other sets (seeds 100 to 103) beside them.

A change after a first run with 100 draws: the variance of a positive feature grows like exp(|q + k|^2), so that at this
length the averages of the first two quantities are a few draws. They are of half the queries and keys since; the
error of the scores is of both lengths.

    python -m benchmarks.studies.attention_norms [DRAWS]
"""

import functools
import sys

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from rfgp import couplings, learn, random
from rfgp.features import softmax

TOKENS, DIMS, SETS = 64, 16, 5
SIZES = (16, 32, 64, 128, 256)
NAMES = (
    "orthogonal",
    "pairwise",
    "monotone",
    "orthogonal-antithetic",
    "pairwise-antithetic",
    "monotone-antithetic",
    "energy-antithetic",
    "learned",
)
TITLES = (
    ("variance", 0.5),
    ("covariance", 0.5),
    ("squared error of the scores, half the queries and keys", 0.5),
    ("squared error of the scores", 1.0),
)


def inputs(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = random.generator(seed)
    q, k = (torch.randn(TOKENS, DIMS, generator=generator, dtype=torch.float64) / DIMS**0.25 for _ in range(2))
    return q, k


@functools.cache
def coupling_for(name: str, m: int) -> couplings.Coupling:
    if name != "learned":
        return couplings.by_name(name)
    q, k = (torch.stack(side) * DIMS**0.25 for side in zip(*(inputs(seed) for seed in range(100, 104)), strict=True))
    found = learn.learn_attention(learn.attention_error(q, k), m, DIMS, progress=False)
    print(m, found.coupling, flush=True)
    return found.coupling


@functools.cache
def measure(name: str, m: int, seed: int, length: float, draws: int) -> np.ndarray:
    """Return the variance, the covariance and the error of scores, (3,)."""
    q, k = (length * side for side in inputs(seed))
    exact = softmax.exact(q, k)
    unit, scores = exact.mean(1, keepdim=True), exact / exact.sum(1, keepdim=True)
    coupling, generator = coupling_for(name, m), random.generator(10_000 + seed)
    total, variance, error = torch.zeros(TOKENS, dtype=torch.float64), 0.0, 0.0
    for _ in range(draws):
        estimate = softmax.Positive(coupling.sample(m, DIMS, generator=generator))(q, k)
        difference = (estimate - exact) / unit
        total += difference.sum(1).square()
        variance += float(difference.square().mean())
        error += float((estimate / estimate.sum(1, keepdim=True) - scores).square().mean())
    covariance = (float(total.mean()) - TOKENS * variance) / (TOKENS * (TOKENS - 1))
    return np.array([variance, covariance, error]) / draws


def main() -> None:
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    for number, (title, length) in enumerate(TITLES):
        table = Table(title=f"{title}, relative to orthogonal with independent norms (standard error)")
        table.add_column("coupling")
        for m in SIZES:
            table.add_column(f"m = {m}")
        for name in NAMES:
            table.add_row(name, *(_cell(name, m, length, draws, min(number, 2)) for m in SIZES))
        Console(width=120).print(table)


def _cell(name: str, m: int, length: float, draws: int, quantity: int) -> str:
    pairs = [(measure(name, m, s, length, draws), measure("orthogonal", m, s, length, draws)) for s in range(SETS)]
    ratios = np.array([ours[quantity] / base[quantity] for ours, base in pairs])
    return f"{ratios.mean():.3f} ({ratios.std(ddof=1) / SETS**0.5:.3f})"


if __name__ == "__main__":
    main()
