"""Simplex random features (Reid et al. 2023): conformities, errors, and classification with positive features.

Protocol, fixed before the results were seen.
- Fig. 4: the conformity (cross moment over its independent value) of orthogonal and simplex frequencies against v, in
  closed form, d = 6.
- Fig. 5: mean squared error of the kernel relative to independent features over 30 inputs of norm 0.6 in random
  directions, m = d, d from 2 to 64, 400 draws; simplex-plus besides.
- Figs. 6 to 8: the same against m / d at d = 16, with the fast simplex and SORF, and pairs.
- Fig. 10, Tables 2 and 3: kernel regression of the classes of eight tables by positive features (Nadaraya-Watson),
  inputs scaled by a factor chosen for independent features within the training half among five, m = d, 50 draws,
  accuracy on at most 1,000 test rows.

    python -m benchmarks.papers.simplex [OUT]
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks import protocol
from rfgp import couplings, datasets, features, random, spectra, theory

METHODS = ("iid", "orthogonal", "simplex", "simplex-plus")
CLASSES = ("abalone", "banknote", "car", "yeast", "cmc", "nursery", "wifi", "chess")


def conformities(axis: "mpl.axes.Axes") -> None:
    v = np.linspace(0.05, 3, 60)
    for label, moment in (
        ("orthogonal", theory.orthogonal_moment(v, 6, features="laplace")),
        ("simplex", theory.simplex_moment(v, 6)),
    ):
        axis.plot(v, moment / np.exp(v**2), label=label)
    axis.set(xlabel="v = |x + y|", ylabel="cross moment / exp(v^2)", title="conformity, d = 6")
    axis.legend()


def squared_errors(name: str, x: torch.Tensor, m: int, draws: int) -> np.ndarray:
    coupling, generator = couplings.by_name(name), random.generator(0, random.Role.FREQUENCIES)
    exact = spectra.Gaussian().kernel_between(x, x)
    maps = (features.Laplace(coupling.sample(m, x.shape[1], generator=generator))(x) for _ in range(draws))
    return np.array([float((phi @ phi.mT - exact).square().mean()) for phi in maps])


def inputs(d: int) -> torch.Tensor:
    rows = torch.randn(30, d, generator=random.generator(d, random.Role.DATA), dtype=torch.float64)
    return 0.6 * rows / rows.norm(dim=1, keepdim=True)


def by_dimension(axis: "mpl.axes.Axes") -> None:
    dimensions = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
    for name in METHODS[1:]:
        ratios, bars = [], []
        for d in dimensions:
            base, other = squared_errors("iid", inputs(d), d, 400), squared_errors(name, inputs(d), d, 400)
            ratios.append(other.mean() / base.mean())
            bars.append(ratios[-1] * np.hypot(*(e.std(ddof=1) / 20 / e.mean() for e in (base, other))))
        print(
            f"MSE relative to i.i.d., {name}:",
            {d: f"{r:.3f}({b:.1g})" for d, r, b in zip(dimensions, ratios, bars, strict=True)},
        )
        axis.errorbar(dimensions, ratios, bars, marker="o", capsize=2, label=name)
    axis.set(xlabel="d", ylabel="MSE / i.i.d.", title="m = d", xscale="log")
    _label(axis, (2, 4, 8, 16, 32, 64))
    axis.legend()


def by_number(axis: "mpl.axes.Axes") -> None:
    d, times = 16, (1, 2, 4, 8)
    for name in (*METHODS, "fast-simplex", "structured", "pairwise-antithetic", "energy-antithetic"):
        means = [squared_errors(name, inputs(d), t * d, 200).mean() for t in times]
        print(f"MSE at d = 16, m / d = 1, 2, 4, 8, {name}:", [f"{m:.3g}" for m in means])
        axis.plot(times, means, marker="o", label=name)
    axis.set(xlabel="m / d", ylabel="MSE", title="d = 16", xscale="log", yscale="log")
    _label(axis, times)
    axis.legend(fontsize=7)


def _label(axis: "mpl.axes.Axes", ticks: tuple[int, ...]) -> None:
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.xaxis.minorticks_off()


def accuracy(
    name: str, train: torch.Tensor, labels: torch.Tensor, test: torch.Tensor, truth: torch.Tensor, draws: int
) -> np.ndarray:
    coupling, generator, d = couplings.by_name(name), random.generator(0, random.Role.FREQUENCIES), train.shape[1]
    scores = []
    for _ in range(draws):
        phi = features.Laplace(coupling.sample(d, d, generator=generator))
        scores.append(float(((phi(test) @ (phi(train).mT @ labels)).argmax(1) == truth).double().mean()))
    return 100 * np.array(scores)


def classification(console: Console) -> None:
    table = Table(
        title="Kernel regression with positive features, m = d: accuracy in %, mean ± standard error of 50 draws"
    )
    for column in ("table", "d", "exact", *METHODS):
        table.add_column(column)
    for name in CLASSES:
        source = datasets.load(name)
        X, y = np.asarray(source.X, float), np.unique(np.asarray(source.y), return_inverse=True)[1]
        order = random.numpy_generator(0, random.Role.SPLIT).permutation(len(X))
        half = min(len(X) // 2, 4000)
        train, test = order[:half], order[half : half + 1000]
        spread = np.where(X[train].std(0) > 0, X[train].std(0), 1)
        x = torch.as_tensor((X - X[train].mean(0)) / spread / np.sqrt(X.shape[1]))
        classes = torch.eye(int(y.max()) + 1, dtype=torch.float64)[torch.as_tensor(y)]
        target = torch.as_tensor(y)
        part, rest = train[: half // 2], train[half // 2 :]
        scores = {
            s: accuracy("iid", s * x[part], classes[part], s * x[rest], target[rest], 20).mean()
            for s in (0.25, 0.5, 1, 1.5, 2)
        }
        scale = max(scores, key=scores.__getitem__)
        a, b = scale * x[train], scale * x[test]
        exact = 100 * float(
            ((spectra.Gaussian().kernel_between(b, a) @ classes[train]).argmax(1) == target[test]).double().mean()
        )
        found = [protocol.mean_error(accuracy(method, a, classes[train], b, target[test], 50)) for method in METHODS]
        table.add_row(name, str(X.shape[1]), f"{exact:.1f}", *(f"{mean:.2f} ± {error:.2f}" for mean, error in found))
    console.print(table)


def main() -> None:
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    out = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    figure, axes = plt.subplots(1, 3, figsize=(16, 4.5))
    conformities(axes[0])
    by_dimension(axes[1])
    by_number(axes[2])
    protocol.save(figure, out, "simplex.png")
    classification(Console(width=140))


if __name__ == "__main__":
    main()
