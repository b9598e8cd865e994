"""Hybrid random features (Choromanski et al. 2022): Figs. 1 and 2 and Table 3 on vectors and clusters of our own.

Protocol, fixed before the results were seen.
- Figs. 1 and 2: the relative root mean squared error of estimates of exp(x . y) for |x| = |y| = r = 0.5, 1, 1.5, 2 at
  angles 0 to pi, by the closed forms for independent frequencies: trigonometric, positive (both signs), bipolar with
  the angular coefficient (8 signs) and with Gaussian ones (4 frequencies, tau = 1, of the sum and of the difference).
  Two budgets: 128 projections of a vector (m and the coefficient's together), which is what features cost; and 1024
  features, which is what estimates cost. The table has the worst angle and the mean over 33 angles.
- In the place of Table 1, whose exact protocol we could not read: 100 x 100 pairs of rows of housing and concrete,
  standardised and scaled to a root mean square length of 0.5 and 1, by the same closed forms with the same budgets.
- The same from draws, d = 16, with iid, orthogonal and simplex frequencies for both the estimators and the
  coefficients, r = 1, 1024 features, 5 angles, 500 draws.
- Table 3 and Fig. 6: relative error |estimate / exact - 1|, its mean over all pairs of 200 x and 200 y, 512 features,
  5 data sets and 10 draws of each; 2 clusters each of x and of y, centers uniform in [-1, 1]^d, spread 0.05, 0.15 and
  0.3 for each coordinate, d = 4 and 16. Orthogonal frequencies; the mixture's scale is the spread. Means over data
  sets, with standard errors. The last column, zero-one coefficients with A for the spread of the clusters, is ours and
  was added after the others were seen.

    python -m benchmarks.papers.hybrid [OUT]
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks import protocol
from rfgp import couplings, random, theory
from rfgp.features import softmax

LENGTHS, ANGLES = (0.5, 1.0, 1.5, 2.0), np.linspace(0, np.pi, 33)
METHODS = ("trigonometric", "positive", "angular", "gaussian, sum", "gaussian, difference")
SIGNS, WAVES = 8, 4


def frequencies(method: str, budget: str) -> int:
    """Return m, of the positive estimator the number of pairs of signs."""
    if budget == "projections":
        return 128 - {"angular": SIGNS, "gaussian, sum": WAVES, "gaussian, difference": WAVES}.get(method, 0)
    each = {
        "angular": 4 * (SIGNS + 1),
        "gaussian, sum": 2 * (4 * WAVES + 1),
        "gaussian, difference": 2 * (4 * WAVES + 1),
    }
    return 1024 // each.get(method, 2)


def relative_errors(method: str, x: np.ndarray, y: np.ndarray, budget: str) -> np.ndarray:
    """Return the relative root mean squared error for vectors (..., d) by closed forms."""
    m = frequencies(method, budget)
    if method == "trigonometric":
        found = theory.softmax_variance(x, y, m, estimator=method)
    elif method == "positive":
        found = theory.softmax_variance(x, y, 2 * m, coupling="iid-antithetic")
    else:
        of = method.split()[-1]
        moments = (
            theory.angular_moments(x, y, SIGNS)
            if method == "angular"
            else theory.gaussian_moments(x, y, WAVES, of=of, complement=of == "difference")
        )
        found = theory.bipolar_variance(x, y, m, moments, antithetic=True)
    return np.sqrt(np.maximum(found, 0)) / np.exp((x * y).sum(-1))


def closed_forms(console: Console, axes: np.ndarray) -> None:
    for row, budget in zip(axes, ("projections", "features"), strict=True):
        table = Table(title=f"Relative error, equal numbers of {budget}: worst angle / mean over angles")
        for column in ("r", *METHODS):
            table.add_column(column)
        for axis, r in zip(row, LENGTHS, strict=True):
            cells, x = [], r * np.array([1.0, 0.0])
            y = r * np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=-1)
            for method in METHODS:
                found = relative_errors(method, x, y, budget)
                cells.append(f"{found.max():.3g} / {found.mean():.3g}")
                axis.semilogy(ANGLES, np.maximum(found, 1e-4), label=f"{method}, m = {frequencies(method, budget)}")
            table.add_row(f"{r:g}", *cells)
            axis.set(xlabel="angle", ylabel="relative error", title=f"r = {r:g}, equal {budget}")
            axis.legend(fontsize=6)
        console.print(table)


def real_rows(console: Console) -> None:
    table = Table(title="Pairs of rows of real tables: relative error, median / mean / largest")
    for column in ("table", "root mean square |x|", "equal", *METHODS):
        table.add_column(column)
    for name in ("housing", "concrete"):
        rows = protocol.load(name)[0]
        chosen = rows[np.random.default_rng(0).permutation(len(rows))[:200]]
        unit = (chosen - rows.mean(0)) / rows.std(0)
        for r in (0.5, 1.0):
            scaled = unit * r / np.sqrt((unit**2).sum(1).mean())
            x, y = scaled[:100, None], scaled[None, 100:]
            for budget in ("projections", "features"):
                errors = [relative_errors(method, x, y, budget) for method in METHODS]
                cells = (f"{np.median(e):.3f} / {e.mean():.3f} / {e.max():.2f}" for e in errors)
                table.add_row(name, f"{r:g}", budget, *cells)
    console.print(table)


def draw(method: str, coupling: str, d: int, budget: int, generator: torch.Generator) -> softmax.FeaturePair:
    """Return an estimator with at most so many features."""
    if method in ("trigonometric", "positive"):
        kind = {"trigonometric": softmax.Trigonometric, "positive": softmax.Positive}[method]
        m = budget // 2 if method == "trigonometric" else budget
        name = coupling if method == "trigonometric" else f"{coupling}-antithetic"
        return kind(couplings.by_name(name).sample(m, d, generator=generator))
    options = {"coupling": coupling, "generator": generator}
    if method == "angular":
        return softmax.angular_hybrid(budget, d, num_signs=SIGNS, **options)
    return softmax.gaussian_hybrid(budget, d, num_coefficients=WAVES, of=method.split()[-1], **options)


def draws(console: Console) -> None:
    table = Table(title="Relative error at the worst of 5 angles / mean, r = 1, d = 16, 1024 features, 500 draws")
    for column in ("coupling", *METHODS):
        table.add_column(column)
    angles, x = np.linspace(0, np.pi, 5), torch.zeros(1, 16, dtype=torch.float64)
    y = torch.zeros(5, 16, dtype=torch.float64)
    x[0, 0], y[:, 0], y[:, 1] = 1, torch.as_tensor(np.cos(angles)), torch.as_tensor(np.sin(angles))
    exact = softmax.exact(x, y)
    for name in ("iid", "orthogonal", "simplex"):
        cells = []
        for method in METHODS:
            generator = random.generator(0, random.Role.FREQUENCIES)
            found = torch.stack([(draw(method, name, 16, 1024, generator)(x, y) / exact - 1)[0] for _ in range(500)])
            errors = found.square().mean(0).sqrt()
            cells.append(f"{errors.max():.4f} / {errors.mean():.4f}")
        table.add_row(name, *cells)
    console.print(table)


def clusters(seed: int, d: int, spread: float) -> tuple[torch.Tensor, torch.Tensor]:
    rng = random.numpy_generator(seed, random.Role.DATA)
    sides = []
    for _ in range(2):
        centers = rng.uniform(-1, 1, (2, d))
        sides.append(torch.as_tensor(np.repeat(centers, 100, 0) + spread * rng.standard_normal((200, d))))
    return sides[0], sides[1]


def clustered(console: Console) -> None:
    methods = ("zero-one", "mixture", "zero-one, spread")
    table = Table(title="Clusters: mean relative error, 512 features")
    for column in ("d", "spread", *METHODS, *methods):
        table.add_column(column)
    for d in (4, 16):
        for spread in (0.05, 0.15, 0.3):
            cells: dict[str, list[float]] = {name: [] for name in (*METHODS, *methods)}
            for seed in range(5):
                x, y = clusters(seed, d, spread)
                exact = softmax.exact(x, y)
                for name, errors in cells.items():
                    generator, found = random.generator(seed, random.Role.FREQUENCIES), []
                    for _ in range(10):
                        if name in methods:
                            options = {"scale": spread if name == "mixture" else None}
                            options["spread"] = None if name == "zero-one, spread" else 0.0
                            pair = softmax.clustered(x, y, 512, generator=generator, **options)
                        else:
                            pair = draw(name, "orthogonal", d, 512, generator)
                        found.append(float((pair(x, y) / exact - 1).abs().mean()))
                    errors.append(float(np.mean(found)))
            shown = (protocol.mean_error(errors) for errors in cells.values())
            table.add_row(str(d), f"{spread:g}", *(f"{mean:.3f}({error:.1g})" for mean, error in shown))
    console.print(table)


def main() -> None:
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    out = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    console = Console(width=190)
    figure, axes = plt.subplots(2, 4, figsize=(20, 9))
    closed_forms(console, axes)
    protocol.save(figure, out, "hybrid.png")
    real_rows(console)
    draws(console)
    clustered(console)


if __name__ == "__main__":
    main()
