"""Five speed ratios against plain implementations in the same process, which CI compares with recorded ones.

Protocol. Each case computes the same numbers twice: by the package, and by a plain twin in torch, numpy or scipy that
shares no code with it. Both run once to compile and fill caches, then in turn `REPEATS` times in one thread. The ratio
is that of the least processor times, which depend little on the machine and on its load.

A case fails if its ratio is below two thirds of the recorded one in three attempts. The recorded ratios are medians of
five runs (`--record`, results/ratios.json) and change only with a commit that says why.

- likelihood: log marginal likelihood of 6,000 rows with 256 random frequencies and its gradient, against autograd.
- walks: 64 walkers from each of 4,096 nodes of a grid and the features of one kernel, against vectorized numpy.
- cholesky: a factor of the precision on a grid of 40,000 nodes and its log determinant, against SuperLU.
- lattice: equispaced frequencies on 30,000 rows of one column, against the explicit design matrix.
- attention: causal random-feature attention on 4,096 positions with its gradient, against prefix sums of all positions.

    python -m benchmarks.races.watched [--cases NAME,...] [--record]
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import splu

import graphs
import rfgp
from graphs.precisions import resolvent_field
from rfgp import couplings
from rfgp import kernels as k
from rfgp.attention import random_feature_attention
from rfgp.features import softmax

RESULTS = Path(__file__).parents[1] / "results" / "ratios.json"
REPEATS, ATTEMPTS, RUNS = 5, 3, 5
"""The times that both sides run in an attempt, the attempts before a case fails, and the runs of a record."""
LEAST = 2 / 3
"""The share of the recorded ratio below which an attempt fails."""

Pair = tuple[Callable[[], Any], Callable[[], Any]]
"""A computation by the package and by its twin. Both return numbers that agree."""


def density_of(phi: torch.Tensor, y: torch.Tensor, noise: float) -> torch.Tensor:
    """Return log N(y; 0, Phi Phi^T + noise I) by the Gram matrix of the features."""
    n, size = phi.shape
    chol = torch.linalg.cholesky(phi.mT @ phi + noise * torch.eye(size, dtype=phi.dtype))
    half = torch.linalg.solve_triangular(chol, phi.mT @ y[:, None], upper=False)
    square = (y @ y - half.square().sum()) / noise
    return -0.5 * (square + 2 * chol.diagonal().log().sum() + (n - size) * np.log(noise) + n * np.log(2 * np.pi))


def likelihood() -> Pair:
    """Return the log marginal likelihood of random features with its gradient, in float64."""
    rng, noise = np.random.default_rng(0), 0.1
    x, size = rng.standard_normal((6000, 8)), 256
    y = np.sin(x[:, 0]) + np.sqrt(noise) * rng.standard_normal(len(x))
    given = {"rbf.lengthscale": [3.0] * 8, "rbf.outputscale": 1.0, "noise": noise, "mean": 0.0}
    chosen = rfgp.RandomFeatures(size, coupling="iid")
    gp = rfgp.GP(k.RBF(name="rbf"), approximation=chosen, start=given, standardize=False, seed=0).condition(x, y)
    block = gp.state.prior().weights[0]
    frequencies = 3.0 * block.fourier(*block.parameters)[0].detach()  # at unit lengthscale
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y)

    def fast() -> float:
        value = gp.log_marginal_likelihood()
        torch.autograd.grad(value, list(gp.hyperparameters.parameters()), allow_unused=True)
        return float(value.detach())

    def slow() -> float:
        lengthscale = torch.full((8,), 3.0, dtype=torch.float64, requires_grad=True)
        angles = (inputs / lengthscale) @ frequencies.mT
        value = density_of(torch.cat([angles.cos(), angles.sin()], dim=1) / np.sqrt(size), targets, noise)
        torch.autograd.grad(value, [lengthscale])
        return float(value.detach())

    return fast, slow


def walks() -> Pair:
    """Return the sum of the features of a diffusion kernel from independent walks on a grid."""
    graph, p_halt, kernel = graphs.Graph.from_grid((64, 64)), 0.1, graphs.kernels.Diffusion()
    shift = sp.csr_array(graph.shift_operator)
    plain = {"p_halt": p_halt, "lengths": "iid", "step_coupling": "independent", "exact_hops": 0, "progress": False}

    def fast() -> float:
        return float(graphs.sample_walks(graph, num_walkers=64, seed=0, **plain).features(kernel).sum())

    def slow() -> float:
        rng, n, m = np.random.default_rng(0), shift.shape[0], 64
        totals, degrees = shift.sum(axis=1), np.diff(shift.indptr)
        cumulative = np.cumsum(shift.data)
        before = cumulative[shift.indptr[:-1]] - shift.data[shift.indptr[:-1]]
        start = here = np.repeat(np.arange(n), m)
        load, visits = np.ones(n * m), []
        for weight in kernel.modulation(200):
            visits.append((start, here, weight * load / m))
            going = rng.random(len(here)) >= p_halt
            start, here, load = start[going], here[going], load[going]
            if not len(here):
                break
            aim = before[here] + rng.random(len(here)) * totals[here]
            place = np.searchsorted(cumulative, aim, side="right")
            place = np.clip(place, shift.indptr[here], shift.indptr[here] + degrees[here] - 1)
            load, here = load * totals[here] / (1 - p_halt), shift.indices[place]
        rows, columns, values = (np.concatenate(each) for each in zip(*visits, strict=True))
        return float(sp.csr_array(sp.coo_array((values, (rows, columns)), shape=(n, n))).sum())

    return fast, slow


def cholesky() -> Pair:
    """Return the log determinant of a precision by its sparse factor, with a known analysis and ordering."""
    field = resolvent_field(graphs.Graph.from_grid((200, 200)), 1)
    data = field.entries(np.array([0.04]))
    whole = sp.csc_array(sp.csr_array((data, field.pattern.indices, field.pattern.indptr)))
    options = {"SymmetricMode": True}

    def fast() -> float:
        return float(field.factor(data).log_determinant)

    def slow() -> float:
        factor = splu(whole, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
        return float(np.log(np.abs(factor.U.diagonal())).sum())

    return fast, slow


def lattice() -> Pair:
    """Return the log marginal likelihood of one column under a Gaussian kernel."""
    rng, noise, lengthscale = np.random.default_rng(0), 0.1, 0.005
    x = np.sort(rng.random(30_000))
    y = np.sin(60 * x) + np.sqrt(noise) * rng.standard_normal(len(x))
    given = {"rbf.lengthscale": lengthscale, "rbf.outputscale": 1.0, "noise": noise, "mean": 0.0}
    inputs, targets = torch.from_numpy(x), torch.from_numpy(y)

    def fast() -> float:
        gp = rfgp.GP(k.RBF(name="rbf"), approximation=rfgp.EquispacedFourier(), start=given, standardize=False, seed=0)
        return float(gp.condition(x[:, None], y).log_marginal_likelihood().detach())

    def slow() -> float:
        step = 2 * np.pi / (1 + 8 * lengthscale)
        places = step * torch.arange(int(4 / lengthscale / step) + 1, dtype=torch.float64)
        weights = 2 * step * lengthscale / np.sqrt(2 * np.pi) * torch.exp(-0.5 * (lengthscale * places) ** 2)
        weights[0] /= 2
        angles = inputs[:, None] * places
        phi = torch.cat([angles.cos(), angles.sin()[:, 1:]], dim=1) * torch.cat([weights, weights[1:]]).sqrt()
        return float(density_of(phi, targets, noise))

    return fast, slow


def attention() -> Pair:
    """Return the sum of causal random-feature attention, with its gradient."""
    generator = torch.Generator().manual_seed(0)
    length, width, size = 4096, 32, 64
    queries, keys, values = (0.5 * torch.randn(length, width, generator=generator) for _ in range(3))
    frequencies = couplings.by_name("orthogonal").sample(size, width, seed=0)
    pair, omega = softmax.Positive(frequencies), frequencies.dense().float()

    def gradient(attend: Callable[..., torch.Tensor]) -> float:
        leaves = [each.clone().requires_grad_() for each in (queries, keys, values)]
        total = attend(*leaves).sum()
        torch.autograd.grad(total, leaves)
        return float(total.detach())

    def positive(x: torch.Tensor) -> torch.Tensor:
        scaled = x / width**0.25
        return (scaled @ omega.mT - 0.5 * scaled.square().sum(1, keepdim=True)).exp()

    def plain(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        q, p = positive(query), positive(key)
        sums = (p[:, :, None] * value[:, None, :]).cumsum(0)
        return torch.einsum("lf,lfe->le", q, sums) / (q * p.cumsum(0)).sum(1, keepdim=True)

    def fast() -> float:
        return gradient(lambda query, key, value: random_feature_attention(query, key, value, pair, is_causal=True))

    return fast, lambda: gradient(plain)


CASES: dict[str, Callable[[], Pair]] = {one.__name__: one for one in (likelihood, walks, cholesky, lattice, attention)}


def ratio(pair: Pair, repeats: int = REPEATS) -> float:
    """Return how many times as fast the first of two computations is, by the least processor time of each."""
    least = [np.inf, np.inf]
    for call in pair:
        call()
    for _ in range(repeats):
        for side, call in enumerate(pair):
            begin = time.process_time()
            call()
            least[side] = min(least[side], time.process_time() - begin)
    return least[1] / least[0]


def keeps(pair: Pair, recorded: float, attempts: int = ATTEMPTS) -> tuple[bool, list[float]]:
    """Return whether one of a few attempts reaches two thirds of the recorded ratio, and the ratios of all."""
    found: list[float] = []
    while len(found) < attempts:
        found.append(ratio(pair))
        if found[-1] >= LEAST * recorded:
            return True, found
    return False, found


def main() -> int:
    """Measure the cases; return 1 if one has become slower."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0])
    parser.add_argument("--cases", default=",".join(CASES), help="the cases, separated by commas")
    parser.add_argument("--record", action="store_true", help="write the ratios in place of comparing them")
    options = parser.parse_args()
    torch.set_num_threads(1)
    recorded = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    slower = []
    for name in options.cases.split(","):
        pair = CASES[name]()
        if options.record:
            found = [ratio(pair) for _ in range(RUNS)]
            recorded[name] = round(statistics.median(found), 2)
            print(f"{name}: {recorded[name]} ({min(found):.2f} to {max(found):.2f})")
            continue
        is_kept, found = keeps(pair, recorded[name])
        print(f"{name}: {', '.join(f'{one:.2f}' for one in found)} times as fast, recorded {recorded[name]}")
        slower += [] if is_kept else [name]
    if options.record:
        RESULTS.write_text(json.dumps(recorded, indent=2) + "\n")
    if slower:
        print(f"Slower than two thirds of the recorded ratio in {ATTEMPTS} attempts: {', '.join(slower)}.")
    return int(bool(slower))


if __name__ == "__main__":
    sys.exit(main())
