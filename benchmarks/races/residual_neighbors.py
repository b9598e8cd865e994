"""Neighbors of the residual of inducing points by scaled distance, and by the correlation of the residual itself.

The correlation of the residual k - q is that of Gyger, Furrer and Sigrist (2025), arXiv 2507.05064. For a stationary
term with random features the correlation of the term decreases in the scaled distance, so both rules are the same.

A model with `InducingPoints(points, residual=Vecchia(30))` is fitted to some rows of each split of each table. At its
hyperparameters and inducing points, rows and held-out rows get k neighbors (points twice as many, as in predictions) by
either rule. The table shows the NLPD of held-out rows, and the log density of a training row given its predecessors,
in nats, of standardized targets. Residual correlations are dense (n, n), so seconds would say nothing of a search tree.

The data were 3,000 rows and 512 points on six made tables. The correlation of the residual had an NLPD that was higher
by 0.005 with 10 neighbors and by 0.010 with 30 on average. On two-scales it was lower by 0.013 and 0.017, on bumps
higher by 0.014 and 0.031, on weather by 0.034 and 0.038. So the neighbors of a residual are those near in scaled
inputs.

    OMP_NUM_THREADS=1 python -m benchmarks.races.residual_neighbors FOLDER [--tables T,...] [--rows N] [--splits S]
"""

import argparse
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

import rfgp
from benchmarks.protocol import load
from rfgp import kernels as k
from rfgp.blocks import AHEAD, VecchiaBlock
from rfgp.local import pattern_of
from rfgp.models import mean_and_noise
from rfgp.rows import gathered
from rfgp.solvers import kriging
from rfgp.solvers.bordered import all_weights
from rfgp.solvers.whitened import WhitenedSolver
from rfgp.sparse import SparsityPattern

TABLES = ("two-scales", "robot-arm", "bumps", "manifold", "air-time", "weather")
HELD_OUT, NEIGHBORS = 1000, (10, 30)


def likeness(block: VecchiaBlock, pairs: tuple[Tensor, Tensor], features: tuple[Tensor, Tensor] | None) -> Tensor:
    """Return the correlations (q, n) of pairs by the kernel, or by the residual of features (q, F), (n, F)."""
    matrix = block.kernel(*pairs)
    if features is None:
        return matrix
    left, right = features
    variance = block.parameters[1]
    spread = [(variance - phi.square().sum(1)).clamp_min(1e-10 * variance).sqrt() for phi in features]
    return ((matrix - left @ right.mT) / spread[0][:, None] / spread[1]).abs()


def predecessors(matrix: Tensor, count: int) -> SparsityPattern:
    """Return each row's likest rows before it, and itself, for correlations (n, n) of rows in order."""
    masked = matrix.tril(-1) - 2.0 * torch.ones_like(matrix).triu()
    best = masked.topk(min(count, len(matrix) - 1), dim=1)
    near = np.sort(torch.where(best.values > -1.5, best.indices, len(matrix)).numpy(), axis=1)
    return pattern_of(np.where(near == len(matrix), -1, near), np.arange(len(matrix)), len(matrix))


def compare(name: str, folder: Path, split: int, rows: int, points: int) -> Iterator[dict[str, Any]]:
    """Yield the scores of both rules on one split."""
    X, y = load(name, folder)
    order = np.random.default_rng(split).permutation(len(X))[: rows + HELD_OUT]
    X, y = X[order], y[order]
    X, y = X / np.where((spread := X.std(0)) > 0, spread, 1), (y - y.mean()) / y.std()
    approximation = rfgp.InducingPoints(points, residual=rfgp.Vecchia(30))
    gp = rfgp.GP(k.Matern(nu=1.5), approximation=approximation, seed=split).fit(X[HELD_OUT:], y[HELD_OUT:])
    state, known = gp.state, gathered(gp.state.require_rows(purpose="a race"))
    prior, (mean, noise) = state.prior().detached(), mean_and_noise(state.hyperparameters.detached())
    block, scale = kriging.neighbors_of(prior), state.scaling.targets
    new = state.scaling.inputs.forward(torch.from_numpy(X[:HELD_OUT]))
    target = scale.forward(torch.from_numpy(y[:HELD_OUT, None]))[:, 0]
    place = block.order(len(known))
    ordered = known.take(place)
    phi, phi_new = (kriging.features(prior, all_weights(prior, x), x) for x in (ordered.inputs, new))
    for rule in ("distance", "residual"):
        is_residual = rule == "residual"
        among = likeness(block, (ordered.inputs, ordered.inputs), (phi, phi) if is_residual else None)
        across = likeness(block, (new, ordered.inputs), (phi_new, phi) if is_residual else None)
        for count in NEIGHBORS:
            solver = WhitenedSolver(prior, ordered, mean, noise, predecessors(among, count), place)
            near = np.sort(across.topk(AHEAD * count, dim=1).indices.numpy(), axis=1)
            posterior = solver.posterior()
            with patch.object(kriging, "nearest", lambda *_, near=near: near):
                found = posterior.project(new)
                center, variance = posterior.mean(found)[:, 0] + mean, posterior.variance(new, found) + noise
            nlpd = 0.5 * ((target - center).square() / variance + (2 * np.pi * variance).log()).mean()
            density = float(solver.log_marginal_likelihood()) / len(known)
            scores = {"nlpd": round(float(nlpd), 4), "density": round(density, 4)}
            yield {"table": name, "split": split, "neighbors": count, "rule": rule, **scores}


def main() -> None:
    """Print a line of JSON for each comparison that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--points", type=int, default=512)
    parser.add_argument("--splits", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with torch.no_grad():
        for split in range(options.splits):
            for name in options.tables.split(","):
                for line in compare(name, options.folder, split, options.rows, options.points):
                    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
