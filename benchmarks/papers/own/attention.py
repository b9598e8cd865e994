"""Attention with positive features, by couplings of norms and signs: what the guide on attention quotes."""

import functools

import numpy as np
import torch

from benchmarks.protocol import mean_error
from benchmarks.record import Entries, Figure, Scale, Value, figure
from rfgp import couplings, learn, random
from rfgp.features import softmax

TOKENS, DIMS, SETS, DRAWS = 64, 16, 5, 400
SIZES = (16, 32, 64, 128, 256)
NAMES = (
    "pairwise",
    "monotone",
    "orthogonal-antithetic",
    "pairwise-antithetic",
    "monotone-antithetic",
    "energy-antithetic",
    "learned",
)
LENGTHS = (0.5, 1.0)
"""Deviations of queries and keys, in units of those that couplings are learned for."""
QUANTITIES = ("variance", "covariance", "squared error")


def inputs(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = random.generator(seed)
    q, k = (torch.randn(TOKENS, DIMS, generator=generator, dtype=torch.float64) / DIMS**0.25 for _ in range(2))
    return q, k


@functools.cache
def coupling_for(name: str, m: int) -> couplings.Coupling:
    """Return a coupling, or the one that is learned for m on four other sets."""
    if name != "learned":
        return couplings.by_name(name)
    q, k = (torch.stack(side) * DIMS**0.25 for side in zip(*(inputs(seed) for seed in range(100, 104)), strict=True))
    return learn.learn_attention(learn.attention_error(q, k), m, DIMS, progress=False).coupling


@functools.cache
def measured(name: str, m: int, seed: int, length: float, draws: int) -> np.ndarray:
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


def relative(name: str, m: int, length: float, sets: int, draws: int) -> list[tuple[float, float]]:
    """Return the variance, covariance and error relative to orthogonal frequencies with independent norms."""
    pairs = [(measured(name, m, s, length, draws), measured("orthogonal", m, s, length, draws)) for s in range(sets)]
    return [mean_error(ours[i] / base[i] for ours, base in pairs) for i in range(len(QUANTITIES))]


@figure("couplings for attention, relative to orthogonal directions with independent norms")
def attention(scale: Scale) -> Entries:
    """Return errors of normalized scores and, at the shorter length, variances and covariances of single ones.

    {TOKENS} tokens, queries and keys standard normal in {DIMS} dimensions, divided by d^(1/4) and times the deviation,
    {SETS} sets of them, {DRAWS} draws; the variance of an estimate of exp(q . k), the covariance of two estimates of
    one row, in units of the row's mean, and the mean squared error of normalized scores. Ratios on the same inputs,
    errors over the sets. The learned coupling is that for each m on four other sets of deviation 1
    (`rfgp.learn.learn_attention`).
    """
    values, sets, draws = [], SETS, scale(DRAWS)
    for length in LENGTHS:
        for name in NAMES:
            for m in SIZES[:2] if scale.quick else SIZES:
                found = relative(name, m, length, sets, draws)
                for what, ratio in zip(QUANTITIES, found, strict=True):
                    if what == "squared error" or length < 1:
                        values.append(Value(f"deviation {length:g}, {name}, m = {m}: {what}", *ratio))
    return values, (
        "A change after a first run with 100 draws: the variance of a positive feature grows like exp(|q + k|^2), so"
        " that at deviation 1 averages of variances are a few draws; they are of deviation 1/2 since.",
    )


FIGURES: dict[str, Figure] = {"attention": attention}
