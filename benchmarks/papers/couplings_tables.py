"""Variance-reducing couplings (Reid et al. 2024): Table 1, and what Tables 3 and 4 and Fig. 6 measure, on six tables.

Protocol, fixed before the results were seen (`benchmarks/protocol.py` has the splits): 20 splits; Table 1 has 50 draws
at m = d for Fourier features and m = 2 d for positive ones, where "orthogonal" and "pairwise" include the antiparallel
vectors, as in the paper's App. B.1; relative to independent frequencies. Positive features have the lengthscale of
`Split.for_positive_features`. The Gaussian processes have m = d, 4 d, 16 d, 10 draws on 5 splits: test RMSE, mean KL to
the exact posterior, and KL between the priors at the test rows, per point. Besides, where the published figures of
Table 1 differ, the closed forms at other lengthscales.

    python -m benchmarks.papers.couplings_tables [OUT]
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks import protocol
from rfgp import couplings, features, random, theory

PUBLISHED = {  # relative RMSE of Fourier features, where it is at hand
    "power-plant": (0.669, 0.547),
    "airfoil": (0.586, 0.481),
    "abalone": (0.535, 0.443),
}
METHODS = ("iid", "halton", "orthogonal", "pairwise")
PROCESSES = ("iid", "halton", "sobol", "orthogonal", "pairwise", "energy")


def prepared(name: str, index: int, kind: str) -> protocol.Split:
    case = protocol.split(name, index)
    return case if kind == "fourier" else case.for_positive_features()


def first_table(console: Console) -> None:
    for kind in ("fourier", "laplace"):
        table = Table(title=f"Table 1: kernel RMSE relative to i.i.d., {kind} features")
        for column in ("table", *METHODS, "published orthogonal, pairwise"):
            table.add_column(column)
        for name in protocol.TABLES:
            found: dict[str, list[float]] = {method: [] for method in METHODS}
            for index in range(20):
                case = prepared(name, index, kind)
                m = case.x.shape[1] * (1 if kind == "fourier" else 2)
                for method in METHODS:
                    coupled = kind == "laplace" and method in ("orthogonal", "pairwise")
                    chosen = f"{method}-antithetic" if coupled else method
                    figures = protocol.judge(
                        case, protocol.sampler(chosen, m, case, kind), kind, 50, index, with_kl=False
                    )
                    found[method].append(figures.error)
            ratios = [protocol.mean_error(np.divide(found[method], found["iid"])) for method in METHODS]
            published = PUBLISHED.get(name) if kind == "fourier" else None
            cells = [f"{mean:.3f} ± {error:.3f}" for mean, error in ratios]
            table.add_row(name, *cells, "" if published is None else f"{published[0]}, {published[1]}")
        console.print(table)


def lengthscales(console: Console) -> None:
    """Print the closed forms of Table 1 at multiples of the fitted lengthscale."""
    table = Table(title="Table 1 in closed form, Fourier features: orthogonal, pairwise, by lengthscale / fitted")
    factors = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
    for column in ("table", *map(str, factors), "published"):
        table.add_column(column)
    for name, published in PUBLISHED.items():
        cells = []
        for factor in factors:
            found = []
            for index in range(20):
                x = protocol.split(name, index).x / factor
                z, d = np.quantile(torch.pdist(x).numpy(), (np.arange(300) + 0.5) / 300), x.shape[1]
                iid, *coupled = (theory.variance(c, z, d, d).mean() for c in ("iid", "orthogonal", "pairwise"))
                found.append([np.sqrt(value / iid) for value in coupled])
            cells.append(", ".join(f"{value:.3f}" for value in np.mean(found, axis=0)))
        table.add_row(name, *cells, f"{published[0]}, {published[1]}")
    console.print(table)


def process(case: protocol.Split, test: torch.Tensor, method: str, m: int, kind: str, seed: int) -> np.ndarray:
    """Mean over ten draws of (test RMSE, KL of posteriors, KL of priors at the test rows)."""
    n, exact, generator = len(case.y), case.kernel, random.generator(seed, random.Role.FREQUENCIES)
    best, draw, rows = case.posterior(exact), protocol.sampler(method, m, case, kind), []
    noise = case.noise * torch.eye(len(test), dtype=exact.dtype)
    zero = torch.zeros(len(test), dtype=exact.dtype)
    for _ in range(10):
        phi = features.by_name(kind)(draw(generator))(case.x)
        estimate = phi @ phi.mT
        mean, covariance = case.posterior(estimate)
        prior = protocol.kl((zero, exact[n:, n:] + noise), (zero, estimate[n:, n:] + noise))
        rows.append([float((mean - test).square().mean().sqrt()), protocol.kl(best, (mean, covariance)), prior])
    return np.mean(rows, axis=0)


def processes(console: Console, out: Path | None) -> None:
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(protocol.TABLES), figsize=(22, 7), sharex=True)
    for kind in ("fourier", "laplace"):
        table = Table(title=f"Gaussian processes with {kind} features: test RMSE / posterior KL / prior KL")
        for column in ("table", "m", *PROCESSES):
            table.add_column(column)
        for column, name in enumerate(protocol.TABLES):
            X, y = protocol.load(name)
            curves = {method: [] for method in PROCESSES}
            for times in (1, 4, 16):
                cells = []
                for method in PROCESSES:
                    found = []
                    for index in range(5):
                        case = prepared(name, index, kind)
                        order = random.numpy_generator(0, random.Role.SPLIT, index).permutation(len(X))
                        n, d = len(case.y), case.x.shape[1]
                        train = y[order[:n]]
                        test = torch.as_tensor((y[order[n : len(case.x)]] - train.mean()) / train.std())
                        m = times * d + (times * d) % 2 if kind == "laplace" else times * d
                        found.append(process(case, test, method, m, kind, index))
                    mean, error = np.mean(found, 0), np.std(found, 0, ddof=1) / np.sqrt(5)
                    curves[method].append((mean, error))
                    cells.append(" / ".join(f"{a:.3g}({b:.1g})" for a, b in zip(mean, error, strict=True)))
                table.add_row(name, f"{times} d", *cells)
            if kind == "fourier":
                for row, label in ((0, "posterior KL"), (1, "prior KL")):
                    for method, points in curves.items():
                        values = [mean[row + 1] for mean, _ in points]
                        bars = [error[row + 1] for _, error in points]
                        axes[row, column].errorbar((1, 4, 16), values, bars, marker="o", label=method, capsize=2)
                    axes[row, column].set(xscale="log", yscale="log", title=name if row == 0 else "", ylabel=label)
        console.print(table)
    axes[0, 0].legend(fontsize=8)
    for axis in axes[1]:
        axis.set_xlabel("m / d")
    protocol.save(figure, out, "couplings-figure-6.png")


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    console = Console(width=160)
    assert set(METHODS) <= set(couplings.names())
    first_table(console)
    lengthscales(console)
    processes(console, out)


if __name__ == "__main__":
    main()
