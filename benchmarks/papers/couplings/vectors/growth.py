"""Fig. 6: what grows with the number of features on one split of power-plant.

PNC is pairwise norm coupling.
"""

import math

import torch
from torch import Tensor

from benchmarks.papers.couplings.vectors.estimates import Exact, draw_errors, evaluated
from benchmarks.papers.couplings.vectors.splits import case
from benchmarks.protocol import ratio_of_means
from benchmarks.record import Result, Scale, Value
from rfgp import random
from rfgp.couplings import Frequencies, by_name

BLOCKS = (1, 2, 4, 8, 16)
METRICS = ("kernel error", "KL of posteriors", "prediction error", "KL of priors")
_COUPLINGS = {"i.i.d.": "iid", "orthogonal": "orthogonal", "PNC": "pairwise"}


def prior_divergences(gram: Tensor, phi: Tensor, noise: float) -> Tensor:  # (k, k), (draws, k, F) -> (draws,)
    """Return KL(exact || draw) of the priors of the observed targets, in nats a row; noise over the signal's variance.

    Let T be the features, and M = T'T + r I. The determinant of T T' + r I is r^(k - F) det M, and its inverse is (I -
    T M^-1 T') / r.
    """
    k, size = phi.shape[1:]
    exact = gram + noise * torch.eye(k, dtype=torch.float64)
    upper = torch.linalg.cholesky(phi.mT @ phi + noise * torch.eye(size, dtype=torch.float64))
    through = torch.linalg.solve_triangular(upper, phi.mT, upper=False)
    trace = (exact.trace() - (through * (through @ exact)).sum((1, 2))) / noise
    logs = (k - size) * math.log(noise) + 2 * upper.diagonal(dim1=1, dim2=2).log().sum(1)
    return (trace - k + logs - torch.logdet(exact)) / (2 * k)


def measured(coupling: str, blocks: int, draws: int, seed: int) -> Tensor:  # (draws, 4)
    """Return the squared kernel error, the KL of posteriors, the prediction error, and the KL of priors."""
    split, generator = case("power-plant", "fourier", 0), random.generator(seed, random.Role.FREQUENCIES)
    exact, d = Exact.of(split), split.train.shape[1]
    parts = []
    for start in range(0, draws, 25):
        ensembles: list[Frequencies] = [
            by_name(coupling).sample(blocks * d, d, generator=generator) for _ in range(min(25, draws - start))
        ]
        found = draw_errors(split, exact, ensembles, "fourier")
        priors = prior_divergences(exact.gram, evaluated(ensembles, "fourier", split.test), split.fit.noise)
        parts.append(torch.cat([found, priors[:, None]], 1))
    return torch.cat(parts)


def compared(first: Tensor, second: Tensor, metric: int) -> tuple[float, float]:
    """Return the ratio of two means over draws and its standard error; for the kernel error, of root means."""
    power = 0.5 if METRICS[metric] == "kernel error" else 1.0
    found, error = ratio_of_means(first[:, metric], second[:, metric])
    return found**power, power * found ** (power - 1) * error


def apart_from_one(ratio: float, error: float) -> float:
    """Return the distance of a ratio from one, in standard errors."""
    return (ratio - 1) / error


def figure_6(scale: Scale) -> Result:
    """Return the ratios of couplings for each number of features."""
    claims = (
        *(("orthogonal", "i.i.d.", metric, "< 1") for metric in range(4)),
        ("PNC", "orthogonal", 0, "< 1"),
        *(("PNC", "orthogonal", metric, "1") for metric in range(1, 4)),
    )
    values, draws = [], scale(400)
    for blocks in BLOCKS:
        found = {label: measured(name, blocks, draws, blocks) for label, name in _COUPLINGS.items()}
        for first, second, metric, claim in claims:
            ours = compared(found[first], found[second], metric)
            name = f"m = {blocks} d, {METRICS[metric]}, {first} / {second}"
            z = apart_from_one(*ours) if claim == "1" else None
            values.append(Value(name, *ours, claim, z=z, why=_reason(claim, *ours)))
    return Result(
        "power-plant, one split: errors of the kernel, of predictions, and divergences by number of features",
        f"Split 0 of Table 1, Fourier features, m = d to {BLOCKS[-1]} d in blocks of d, {draws} draws; ratios of"
        " the means over draws (for the kernel of root mean squares), errors over draws. The figure is a plot:"
        " what its text says is tested, that orthogonality helps in every panel, and that PNC lowers the error of"
        " the kernel (its caption: successfully) and brings no benefit in the others, read as a ratio of 1.",
        values,
        missing=("the split", "the numbers of the plot"),
    )


def _reason(claim: str, ratio: float, error: float) -> str:
    if claim != "1" or abs(ratio - 1) <= 2 * error:
        return ""
    return f"PNC {'lowers' if ratio < 1 else 'raises'} it by {100 * abs(1 - ratio):.1f} %, which a plot may not show"
