"""Fig. 7 of the couplings paper: what couplings of norms do to attention with positive features.

Protocol, fixed before the results were seen. n = 64 tokens, queries and keys standard normal in d = 16 dimensions and
divided by d^(1/4), five sets of inputs (seeds 0 to 4), 400 draws of m = 16, 32, 64, 128, 256 features each. For each
coupling: the variance of an estimate of exp(q . k), the covariance of two estimates of one row, and the mean squared
error of the row-normalised scores, averages over pairs (pairs of pairs) in units of the row's mean kernel. All
relative to orthogonal directions with independent norms on the same inputs; means over the five sets and standard
errors. The paper compares independent norms, PNC ("pairwise") and PM ("monotone"); antithetic pairs, energy couplings
and the package's default for attention beside them.

    python benchmarks/papers/attention_norms.py [DRAWS]
"""

import sys

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from rfgp import couplings, random
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
)


def inputs(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = random.generator(seed)
    q, k = (torch.randn(TOKENS, DIMS, generator=generator, dtype=torch.float64) / DIMS**0.25 for _ in range(2))
    return q, k


def measure(name: str, m: int, seed: int, draws: int) -> np.ndarray:
    """Return the variance, the covariance and the error of scores, (3,)."""
    q, k = inputs(seed)
    exact = softmax.exact(q, k)
    unit, scores = exact.mean(1, keepdim=True), exact / exact.sum(1, keepdim=True)
    coupling, generator = couplings.by_name(name), random.generator(10_000 + seed)
    total, variance, error = torch.zeros(TOKENS, dtype=torch.float64), 0.0, 0.0
    for _ in range(draws):
        estimate = softmax.Positive(coupling.sample(m, DIMS, generator=generator))(q, k)
        difference = (estimate - exact) / unit
        total += difference.sum(1).square()
        variance += float(difference.square().mean())
        error += float((estimate / estimate.sum(1, keepdim=True) - scores).square().mean())
    pairs = TOKENS * (TOKENS - 1)
    covariance = (float(total.mean()) - TOKENS * variance) / pairs
    return np.array([variance, covariance, error]) / draws


def main() -> None:
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    for quantity, title in enumerate(("variance", "covariance", "squared error of the scores")):
        table = Table(title=f"{title}, relative to orthogonal with independent norms (standard error)")
        table.add_column("coupling")
        for m in SIZES:
            table.add_column(f"m = {m}")
        for name in NAMES:
            cells = []
            for m in SIZES:
                ratios = np.array(
                    [measured(name, m, s, draws) / measured("orthogonal", m, s, draws) for s in range(SETS)]
                )
                each = ratios[:, quantity]
                cells.append(f"{each.mean():.3f} ({each.std(ddof=1) / SETS**0.5:.3f})")
            table.add_row(name, *cells)
        Console(width=120).print(table)


_KNOWN: dict[tuple[str, int, int], np.ndarray] = {}


def measured(name: str, m: int, seed: int, draws: int) -> np.ndarray:
    if (name, m, seed) not in _KNOWN:
        _KNOWN[name, m, seed] = measure(name, m, seed, draws)
    return _KNOWN[name, m, seed]


if __name__ == "__main__":
    main()
