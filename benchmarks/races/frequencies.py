"""Products without a matrix and features of them, against dense ones: m = d from 64 to 4,096, 2^24 entries of input.

Best of seven interleaved repeats; ratios in one run.

    python -m benchmarks.races.frequencies
"""

import time
from collections.abc import Callable

import torch

from rfgp import couplings, features, random


def best(*functions: Callable[[], object], repeats: int = 7) -> list[float]:
    times = [float("inf")] * len(functions)
    for _ in range(repeats):
        for place, function in enumerate(functions):
            start = time.perf_counter()
            function()
            times[place] = min(times[place], time.perf_counter() - start)
    return times


def main() -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    for d in (64, 128, 256, 512, 1024, 2048, 4096):
        x = torch.randn(2**24 // d, d, generator=random.generator(0))
        omega = couplings.Structured().sample(d, d, generator=random.generator(1))
        matrix = torch.randn(d, d, generator=random.generator(2))
        fast, dense = features.Fourier(omega), features.Fourier(matrix)
        a, b, c, e = best(
            lambda x=x, m=matrix: x @ m.T,
            lambda x=x, o=omega: o.project(x),
            lambda x=x, f=dense: f(x),
            lambda x=x, f=fast: f(x),
        )
        kept = omega.signs.numel() + 8 * omega.lengths.numel()
        print(
            f"structured, d = {d:4d}: product {a / b:5.2f} times as fast ({1e3 * a:.0f} / {1e3 * b:.0f} ms), "
            f"features {c / e:5.2f} times; {kept:,} bytes instead of {8 * d * d:,}"
        )


if __name__ == "__main__":
    main()
