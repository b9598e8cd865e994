"""Inducing points and frequencies adapted to the rows, compared with couplings for the kernel only: eight tables."""

import warnings
from functools import cache
from typing import NamedTuple

import numpy as np
import torch

import rfgp
from benchmarks import protocol
from benchmarks.papers.own.couplings import over_tables
from benchmarks.record import Entries, Figure, Scale, Value, figure
from rfgp import couplings, features, random
from rfgp.blocks import Residual, WeightBlock, Weights
from rfgp.couplings.energy import distances_between
from rfgp.features.inducing import by_k_means, by_pivots
from rfgp.rows import Block
from rfgp.solvers.lowrank import LinearModel, evidence_bounds

TABLES = ("abalone", "airfoil", "bike", "concrete", "elevators", "kin40k", "power-plant", "protein")
TRAIN, TEST, SHARE = 2000, 500, 0.8
"""Rows of each split at most, and the share of a small table that is trained on."""
SIZES, SPLITS, DRAWS = (32, 128, 256), 2, 4
TUNED = {"energy, tuned": False, "energy, tuned and weighted": True}
RANDOM = ("iid", "orthogonal", "pairwise", "energy", "energy, weighted", *TUNED, "adapted weights", "adapted")
POINTS = ("inducing, k-means", "inducing, pivots")
LEFT = {"": "", ", FITC": "fitc", ", VFE": "vfe"}
METHODS = (*RANDOM, *(points + left for points in POINTS for left in LEFT))
BASES = {"error": "pairwise", "kl": "orthogonal"}
NAMES = {"error": "kernel error", "kl": "KL of posteriors"}


class Found(NamedTuple):
    """The mean scores of a method on one split: kernel error, KL and density of a held-out row, in nats."""

    error: float
    kl: float
    density: float


class Case(NamedTuple):
    """A split, its exact kernel and posterior, and the held-out targets."""

    split: protocol.Split
    kernel: torch.Tensor
    exact: tuple[torch.Tensor, torch.Tensor]
    observed: torch.Tensor


@cache
def case_of(name: str, index: int) -> Case:
    X, y = protocol.load(name)
    order = random.numpy_generator(0, random.Role.SPLIT, index).permutation(len(X))
    count = min(TRAIN, int(SHARE * len(X)))
    rows = order[: count + min(TEST, len(X) - count)]
    exact = rfgp.ExactGP(ard=False).fit(X[rows[:count]], y[rows[:count]])
    found, (mean, scale) = exact.hyperparameters, (y[rows[:count]].mean(), y[rows[:count]].std())
    x, target = torch.as_tensor(X[rows] / found.lengthscale.detach().numpy()), torch.as_tensor((y[rows] - mean) / scale)
    noise, variance = found.noise.item() / scale**2, found.outputscale.item() / scale**2
    split = protocol.Split(x, target[:count], noise / variance, variance, rfgp.spectra.Gaussian())
    kernel = split.kernel
    return Case(split, kernel, split.posterior(kernel), target[count:])


def density(law: tuple[torch.Tensor, torch.Tensor], observed: torch.Tensor) -> float:
    deviation = law[1].diagonal().sqrt()
    return float(torch.distributions.Normal(law[0], deviation).log_prob(observed).mean())


def figures(case: Case, method: str, size: int, generator: torch.Generator) -> Found:
    """Return the figures of one draw, with `size` features."""
    split, exact = case.split, case.kernel
    train, spectrum = split.x[: len(split.y)], split.spectrum
    points, _, left = method.rpartition(", ") if method.endswith(("FITC", "VFE")) else (method, "", "")
    if points in POINTS:
        rng = np.random.default_rng(int(torch.randint(2**31, (), generator=generator)))
        chosen = (
            by_k_means(train, size, rng)
            if points == POINTS[0]
            else by_pivots(train, size, spectrum.kernel_between, rng)
        )
        phi = features.Nystrom(chosen, spectrum)(split.x)
    else:
        of = {
            "energy, weighted": couplings.Energy(weighted=True),
            "adapted weights": couplings.DataAdapted(train, optimize_frequencies=False),
            "adapted": couplings.DataAdapted(train),
        }
        if method in TUNED:
            distances = distances_between(train.numpy())
            of[method] = couplings.Energy(weighted=TUNED[method], distances=distances)
        coupling = couplings.by_name(of.get(method, method))
        phi = features.Fourier(coupling.sample(size // 2, train.shape[1], spectrum=spectrum, generator=generator))(
            split.x
        )
    estimate = phi @ phi.mT
    error = float((estimate - exact).square().mean().sqrt())
    if left == "FITC":
        estimate = estimate + (exact - estimate).diagonal().diag()
    mean, covariance = split.posterior(estimate)
    if left == "VFE":
        n = len(split.y)
        covariance = covariance + split.outputscale * (exact - estimate)[n:, n:]
    law = mean, covariance
    return Found(error, protocol.kl(case.exact, law), density(law, case.observed) - density(case.exact, case.observed))


def gap(case: Case, size: int) -> float:
    """Return the distance of the two bounds of the log marginal likelihood by k-means points, nats a row."""
    split = case.split
    train, one = split.x[: len(split.y)], torch.ones((), dtype=torch.float64)
    chosen = by_k_means(train, size, np.random.default_rng(0))
    phi, kernel = features.Nystrom(chosen, split.spectrum), split.spectrum.kernel_between
    block = WeightBlock(phi, len(chosen), (), split.outputscale * one, Residual(False, kernel))
    noise = split.outputscale * split.noise * one
    found = evidence_bounds(
        LinearModel(Weights((block,)), Block(train, split.y[:, None]), torch.zeros(1, dtype=torch.float64), noise)
    )
    return found.divergence / len(train)


@cache
def judged(name: str, size: int, splits: int, draws: int) -> dict[str, list[Found]]:
    """Return each method's figures on the splits of a table, means over draws (root mean squares of the error)."""
    found: dict[str, list[Found]] = {}
    for method in METHODS:
        found[method] = []
        for index in range(splits):
            generator = random.generator(index, random.Role.FREQUENCIES)
            each = np.array([figures(case_of(name, index), method, size, generator) for _ in range(draws)])
            found[method].append(Found(float(np.sqrt(np.mean(each[:, 0] ** 2))), *map(float, each[:, 1:].mean(0))))
    return found


@figure("inducing points, adapted frequencies and couplings, against the exact process of 2,000 rows")
def inducing(scale: Scale) -> Entries:
    """Return the figures over tables, for each number of features and method.

    Fixed before the results were seen. {SPLITS} splits of eight tables, at most {TRAIN} training and {TEST} test rows
    ({SHARE:.0%} of the small tables), inputs standardized, hyperparameters of the exact process, Gaussian kernel, one
    lengthscale; {DRAWS} draws; F features are F / 2 frequencies or F inducing points. Errors of the kernel are over all
    rows, root mean squares; KL(exact || approximate) of the joint distribution of observations at the test rows, nats a
    row. Ratios are of each split's figures, errors over splits; over the tables the geometric mean. Adapted ones have
    seen 512 of the training rows. FITC adds the missing diagonal as noise, at the test rows too; VFE leaves it over
    there.
    """
    values, splits, draws = [], scale(SPLITS), scale(DRAWS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rfgp.RfgpWarning)
        for size in SIZES:
            tables = {name: judged(name, size, splits, draws) for name in (TABLES[:2] if scale.quick else TABLES)}
            for figure, base in BASES.items():
                for method in METHODS:
                    if method == base or (figure == "error" and method.endswith(("FITC", "VFE"))):
                        continue
                    label = f"F = {size}, {method}: {NAMES[figure]} / {base}"
                    pairs = [
                        [(getattr(a, figure), getattr(b, figure)) for a, b in zip(t[method], t[base], strict=True)]
                        for t in tables.values()
                    ]
                    values += over_tables(label, (protocol.mean_error(a / b for a, b in each) for each in pairs))
            for method in METHODS:
                lost = [float(np.mean([one.density for one in t[method]])) for t in tables.values()]
                values.append(
                    Value(
                        f"F = {size}, {method}: density of a held-out row, less the exact process's",
                        float(np.mean(lost)),
                    )
                )
            for name in tables:
                values.append(
                    Value(
                        f"F = {size}, {name}: distance of the bounds of the likelihood, nats a row",
                        gap(case_of(name, 0), size),
                    )
                )
    return values


FIGURES: dict[str, Figure] = {"inducing": inducing}
