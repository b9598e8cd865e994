"""Learned copulas (couplings paper, Fig. 5): the training curve on housing at m = d, and what m = 4 d reaches.

Protocol, fixed before the results were seen: housing, split 0 of `benchmarks/protocol.py`, 128 training rows as the
objective's inputs (Eq. 35), the copula of one block at m = d and that of all norms at m = 4 d; 500 steps at most,
seed 0. Judged over 200 other draws on the test rows, beside independent norms, PNC, and the energy coupling.

    python -m benchmarks.papers.copula_curve [OUT]
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch

from benchmarks import protocol
from rfgp import couplings, learn, random


def judged(coupling: couplings.Coupling, objective: learn.Objective, m: int, d: int) -> tuple[float, float]:
    generator = random.generator(1, random.Role.DATA)
    with torch.no_grad():
        values = [float(objective(coupling.sample(m, d, generator=generator))) for _ in range(200)]
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(200))


def main() -> None:
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    out = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    case = protocol.split("housing", 0)
    d, n = case.x.shape[1], len(case.y)
    train, test = learn.kernel_error(case.x[:128]), learn.kernel_error(case.x[n:])
    figure, axes = plt.subplots(1, 2, figsize=(10, 4))
    for axis, times in zip(axes, (1, 4), strict=True):
        m = times * d
        found = learn.learn_copula(train, m, d, size=m, num_steps=500, num_draws=8, patience=15)
        axis.plot(10 * np.arange(len(found.trace)), found.trace, label="copula, over 32 fixed draws")
        colors = iter(("C1", "C2", "C3", "C4"))
        rivals = {"orthogonal": couplings.Orthogonal(), "pairwise": couplings.Pairwise(), "energy": couplings.Energy()}
        for name, coupling in {**rivals, "learned copula": found.coupling}.items():
            on_train, on_test = judged(coupling, train, m, d), judged(coupling, test, m, d)
            print(
                f"m = {times} d, {name}: {on_train[0]:.5f} ± {on_train[1]:.5f} on the training rows, "
                f"{on_test[0]:.5f} ± {on_test[1]:.5f} on the test rows"
            )
            axis.axhline(on_train[0], ls="--", color=next(colors), label=name)
        print(f"m = {times} d: {found.num_steps} steps. {found.message}")
        axis.set(xlabel="step", ylabel="kernel RMSE", title=f"housing, m = {times} d")
        axis.legend(fontsize=8)
    protocol.save(figure, out, "copula.png")


if __name__ == "__main__":
    main()
