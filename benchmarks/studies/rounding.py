"""What float32 products of features cost: the log density of a row against that of float64 products.

Two columns, 64 frequencies, float32 features in both; e = sqrt(n b) 6e-8 s^2 / noise (`rfgp.inference.linear`).

    python -m benchmarks.studies.rounding
"""

import math
import warnings
from dataclasses import replace

import torch

from rfgp.inference import FeatureEvidence, FeaturePrior, LinearModel
from rfgp.inference.linear import block_rows
from rfgp.rows import Block


def main() -> None:
    warnings.simplefilter("ignore")
    one = torch.ones((), dtype=torch.float64)
    for n in (3000, 12_000, 60_000):
        generator = torch.Generator().manual_seed(1)
        x, e = torch.randn(n, 2, generator=generator), torch.randn(n, generator=generator)
        omega = torch.randn(64, 2, generator=generator) / 1.5

        def phi(x: torch.Tensor, omega: torch.Tensor = omega) -> torch.Tensor:
            return torch.cat([(x @ omega.T).cos(), (x @ omega.T).sin()], 1) / 8

        for variance in (1.0, 100.0):
            for sd in (0.3, 0.1, 0.03, 0.01, 0.003):
                rows = Block(x, (torch.sin(x[:, 0]) + torch.cos(x[:, 1]) + sd * e).double()[:, None])
                prior = FeaturePrior(phi, 128, variance=one * variance)
                model = LinearModel(prior, rows, torch.zeros(1).double(), one * sd**2)
                densities = [
                    FeatureEvidence(replace(model, most_rounding=most)).log_marginal_likelihood().item() / n
                    for most in (math.inf, 0.0)
                ]
                rounding = math.sqrt(n * min(n, block_rows(128))) * 6e-8 * variance / sd**2
                print(
                    f"n {n} s^2 {variance:.0f} sd {sd}: e {rounding:.2g}, "
                    f"off by {densities[0] - densities[1]:.2g} a row",
                    flush=True,
                )


if __name__ == "__main__":
    main()
