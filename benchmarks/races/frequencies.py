"""Drawing frequencies, evaluating features, and structured products: times and memory, as ratios in one run.

- Draws of every coupling, m = 4096, d = 64, the second draw of a process: a solution is found by then. The first
  draw, with an empty cache, is printed too.
- Features of 100,000 rows, d = 64, m = 1024, float32, against one matrix product plus its cosine and its sine; the
  peak of memory beyond the output.
- Structured products and features against dense ones, m = d from 64 to 4096, 2^24 entries of input.

Best of seven interleaved repeats.

    python -m benchmarks.races.frequencies
"""

import os
import tempfile
import time
import warnings
from collections.abc import Callable

import torch

import rfgp
from benchmarks.race import status
from rfgp import couplings, features, random


def best(*functions: Callable[[], object], repeats: int = 7) -> list[float]:
    times = [float("inf")] * len(functions)
    for _ in range(repeats):
        for place, function in enumerate(functions):
            start = time.perf_counter()
            function()
            times[place] = min(times[place], time.perf_counter() - start)
    return times


def draws() -> None:
    generator = random.generator(0)
    for name in couplings.names():
        coupling = couplings.by_name(name)

        def draw(coupling: couplings.Coupling = coupling) -> object:
            return coupling.sample(4096, 64, generator=generator)

        start = time.perf_counter()
        draw()
        first = time.perf_counter() - start
        print(f"draw {name:18s} {1e3 * best(draw, repeats=3)[0]:8.1f} ms   (first {1e3 * first:8.1f} ms)")
    start = time.perf_counter()
    couplings.Energy(effort="full").solve(4096, 64)
    print(f'solve m = 4096, d = 64, effort="full": {time.perf_counter() - start:.0f} s')


def feature_map() -> None:
    x = torch.randn(100_000, 64, generator=random.generator(0))
    omega = couplings.Orthogonal().sample(1024, 64, generator=random.generator(1))
    phi, matrix = features.Fourier(omega), omega.dense().float().T.contiguous()
    phi(x[:1000])
    before = status("VmRSS")
    out = phi(x)
    extra = (status("VmHWM") - before) / 1e6 - out.numel() * 4e-6
    print(f"features: output {out.numel() * 4e-6:.0f} MB, at most {extra:.0f} MB more")
    del out

    def floor() -> object:
        angles = x @ matrix
        return angles.cos(), angles.sin()

    one, two = best(floor, lambda: phi(x))
    print(f"features: {1e3 * two:.0f} ms, product + cosine + sine {1e3 * one:.0f} ms, ratio {two / one:.2f}")


def structured() -> None:
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


def main() -> None:
    os.environ["RFGP_CACHE_DIR"] = tempfile.mkdtemp()
    warnings.simplefilter("ignore", rfgp.RfgpWarning)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    feature_map()
    structured()
    draws()


if __name__ == "__main__":
    main()
