"""Orthogonal random features (Yu et al. 2016): Figs. 2 to 5 on the tables at hand.

Protocol, fixed before the results were seen.
- Fig. 2: bias of ORF', SORF and the fast simplex at distance z, from 2,000 draws x 10 directions, beside the exact bias
  of ORF' and SORF's bound 6 z / sqrt(D).
- Fig. 3: variance of ORF relative to independent frequencies, in closed form.
- Fig. 4: kernel mean squared error against m / d on six tables (5 splits, 20 draws).
- Fig. 5 and Table 3: a linear SVM (scikit-learn, C by 3-fold cross-validation among 0.1, 1, 10) on the features of five
  classification tables, m = 2 d, 4 d and 8 d, lengthscale the median distance, 5 draws, a random half to test (at most
  4,000 rows in all).

    python -m benchmarks.papers.orthogonal [OUT]
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC

from benchmarks import protocol
from rfgp import couplings, datasets, features, random, special, theory

METHODS = ("iid", "halton", "orthogonal", "constant-norm", "structured", "pairwise", "energy")
CLASSES = ("banknote", "wifi", "yeast", "cmc", "car")


def biases(axes: np.ndarray) -> None:
    z, rng = np.linspace(0.2, 4, 20), np.random.default_rng(0)
    for axis, d in zip(axes, (8, 32), strict=True):
        for name in ("constant-norm", "structured", "fast-simplex"):
            generator, total = random.generator(0), np.zeros((2000, len(z)))
            coupling = couplings.by_name(name)
            for repeat in range(2000):
                directions = rng.standard_normal((10, d))
                directions /= np.linalg.norm(directions, axis=1, keepdims=True)
                angles = directions @ coupling.sample(d, d, generator=generator).dense().numpy().T
                total[repeat] = np.cos(angles[:, :, None] * z).mean((0, 1))
            bias = total.mean(0) - np.exp(-(z**2) / 2)
            error = total.std(0, ddof=1) / np.sqrt(2000)
            axis.errorbar(z, bias, error, label=name, capsize=2)
            print(f"bias, d = {d}, {name}: at most {np.abs(bias).max():.4f} (± {error.max():.4f})")
        axis.plot(z, special.sphere_cosine(np.sqrt(d) * z, d) - np.exp(-(z**2) / 2), "k--", label="ORF', exact")
        axis.set(xlabel="z", ylabel="bias", title=f"d = {d}; SORF's bound: 6 z / sqrt(d) = {6 / np.sqrt(d):.2f} z")
        axis.legend(fontsize=7)


def variances(axis: "mpl.axes.Axes") -> None:
    z = np.linspace(0.05, 4, 100)
    for d in (2, 4, 8, 16, 32):
        axis.plot(z, theory.variance("orthogonal", z, d, d) / theory.variance("iid", z, d, d), label=f"d = {d}")
    axis.set(xlabel="z", ylabel="variance of ORF / RFF, m = d")
    axis.legend(fontsize=7)


def errors(console: Console) -> None:
    table = Table(title="Fig. 4: kernel mean squared error relative to i.i.d. (m = d / 4 d / 16 d)")
    for column in ("table", *METHODS):
        table.add_column(column)
    for name in protocol.TABLES:
        cells = {method: [] for method in METHODS}
        for times in (1, 4, 16):
            found = {method: [] for method in METHODS}
            for index in range(5):
                case = protocol.split(name, index)
                for method in METHODS:
                    draw = protocol.sampler(method, times * case.x.shape[1], case)
                    found[method].append(protocol.judge(case, draw, "fourier", 20, index, with_kl=False).error ** 2)
            for method in METHODS:
                mean, error = protocol.mean_error(np.divide(found[method], found["iid"]))
                cells[method].append(f"{mean:.2f}({error:.1g})")
        table.add_row(name, *(" / ".join(cells[method]) for method in METHODS))
    console.print(table)


def accuracies(console: Console) -> None:
    table = Table(title="Linear SVM on the features: accuracy in %, m = 2 d / 4 d / 8 d, over 5 draws")
    for column in ("table", "d", *METHODS):
        table.add_column(column)
    for name in CLASSES:
        source = datasets.load(name)
        X, y = np.asarray(source.X, float), np.asarray(source.y)
        order = random.numpy_generator(0, random.Role.SPLIT).permutation(len(X))[:4000]
        X, y = X[order], y[order]
        half = len(X) // 2
        X = (X - X[:half].mean(0)) / np.where(X[:half].std(0) > 0, X[:half].std(0), 1)
        x = torch.as_tensor(X)
        x = x / torch.pdist(x[:500]).median()
        cells = {method: [] for method in METHODS}
        for times in (2, 4, 8):
            for method in METHODS:
                scores, generator = [], random.generator(0, random.Role.FREQUENCIES)
                for _ in range(5):
                    draw = couplings.by_name(method).sample(times * X.shape[1], X.shape[1], generator=generator)
                    phi = features.Fourier(draw)(x).numpy()
                    search = GridSearchCV(LinearSVC(dual=False), {"C": [0.1, 1, 10]}, cv=3).fit(phi[:half], y[:half])
                    scores.append(100 * search.score(phi[half:], y[half:]))
                mean, error = protocol.mean_error(scores)
                cells[method].append(f"{mean:.1f}({error:.1g})")
        table.add_row(name, str(X.shape[1]), *(" / ".join(cells[method]) for method in METHODS))
    console.print(table)


def main() -> None:
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    out = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    console = Console(width=190)
    figure, axes = plt.subplots(1, 3, figsize=(16, 4.5))
    biases(axes[:2])
    variances(axes[2])
    protocol.save(figure, out, "orthogonal.png")
    errors(console)
    accuracies(console)


if __name__ == "__main__":
    main()
