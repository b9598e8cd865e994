"""Optimal transport between norms (couplings paper, Theorem 3.2): where negatively monotone norms are the solution.

POT solves the discretised two-marginal problem (64 quantiles of each norm) without assumptions. For positive
features its plan is negatively monotone at every distance; for Fourier features below a threshold in z, which is
plotted against d for four spectra, beside the distances between the rows of six tables in units of the exact
process's lengthscale.

    python -m benchmarks.studies.transport [OUT]
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np

from benchmarks import protocol
from rfgp import couplings, spectra, transport

DIMENSIONS = (2, 3, 4, 5, 6, 8, 10, 13, 16, 24, 32)
SPECTRA = (spectra.Gaussian(), spectra.Matern(2.5), spectra.Matern(1.5), spectra.RationalQuadratic(1.0))


def main() -> None:
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    out = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5))
    for spectrum in SPECTRA:
        thresholds = [transport.monotone_threshold(d, spectrum=spectrum) for d in DIMENSIONS]
        print(repr(spectrum), [round(z, 3) for z in thresholds])
        left.plot(DIMENSIONS, thresholds, marker="o", label=repr(spectrum))
    reverse = np.fliplr(np.eye(64)) / 64
    for d in DIMENSIONS:
        for v in (0.1, 0.5, 1.0, 2.0, 4.0):
            costs = transport.transport_costs(v, d, features="laplace")
            plan = transport.optimal_norm_coupling(costs)
            assert (plan * costs).sum() >= (reverse * costs).sum() * (1 - 1e-12), (d, v)
    print("positive features: the negatively monotone plan costs least at every d and v =", (0.1, 0.5, 1.0, 2.0, 4.0))
    for name in protocol.TABLES:
        case = protocol.split(name, 0)
        z = couplings.distances_between(case.x, num_distances=20)[:, 0]
        left.plot([case.x.shape[1]] * 20, z, "k.", ms=3)
        below = np.mean(z < transport.monotone_threshold(case.x.shape[1]))
        print(f"{name}: {100 * below:.0f} % of the distances lie below the threshold of the Gaussian kernel")
    left.set(xlabel="d", ylabel="distance in lengthscales", ylim=(0, 6))
    left.set_title("Below the line, reversed norms are optimal")
    left.legend(fontsize=8)
    z = 1.3 * transport.monotone_threshold(4)
    plan = transport.optimal_norm_coupling(transport.transport_costs(z, 4))
    right.imshow(plan, origin="lower", cmap="cividis", extent=(0, 1, 0, 1))
    right.set(xlabel="quantile of r", ylabel="quantile of r'", title=f"POT's plan above it (d = 4, z = {z:.2f})")
    protocol.save(figure, out, "transport.png")


if __name__ == "__main__":
    main()
