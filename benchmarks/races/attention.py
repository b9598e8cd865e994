"""Attention with random features against exact attention and performer-pytorch: time, memory and their growth.

Protocol, fixed before the results were seen. One sequence has 1,024 to 65,536 positions, 8 heads of 64, and standard
normal queries, keys and values in float32. There are 256 positive features from as many orthogonal frequencies.
Attention is bidirectional or causal. Outputs are computed without gradients, and with the gradients of their sum in
queries, keys and values. Exact: `torch.nn.functional.scaled_dot_product_attention`. performer-pytorch: `FastAttention`
as it comes, which without its compiled extension takes its own loop in causal mode. Each case runs in its own process:
a first call, then the best of three, or the first call alone if it took over 20 s. The peak is the increase of the
resident memory of the process by the first call. A method leaves the race at the first size that takes over 60 s or
does not finish. The slopes are those of log time and log peak over the last three sizes, 1 for linear. The package
performer-pytorch is not a dependency. Name the interpreter of an environment that has it and torch.

    OMP_NUM_THREADS=1 python -m benchmarks.races.attention --rival INTERPRETER --largest 65536
"""

import argparse
import json
import math
import subprocess
import sys
from itertools import product

from rich.console import Console
from rich.table import Table

SIZES = tuple(2**k for k in range(10, 17))
METHODS = ("rfgp", "exact", "performer-pytorch")
PATIENCE = 60.0

TIMED = """
import json, resource, sys, time, torch
def resident():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
n, causal, gradients = int(sys.argv[1]), sys.argv[2] == "True", sys.argv[3] == "True"
generator = torch.Generator().manual_seed(0)
q, k, v = (torch.randn(1, 8, n, 64, generator=generator).requires_grad_(gradients) for _ in range(3))
small = [x[..., :256, :] for x in (q, k, v)]
def run(q, k, v):
    with torch.set_grad_enabled(gradients):
        out = attention(q, k, v)
    if gradients:
        torch.autograd.grad(out.sum(), (q, k, v))
run(*small)
before, times = resident(), []
for _ in range(4):
    begin = time.perf_counter()
    run(q, k, v)
    times.append(time.perf_counter() - begin)
    if len(times) == 1:
        peak = resident() - before
        if times[0] > 20:
            break
print(json.dumps([min(times[1:] or times), peak]))
"""

MAKE = {
    "rfgp": """
from rfgp import couplings, random
from rfgp.attention import random_feature_attention
from rfgp.features import softmax
drawn = couplings.by_name("orthogonal").sample(256, 64, generator=random.generator(0))
pair = softmax.Positive(couplings.Frequencies(drawn.dense().float()))
attention = lambda q, k, v: random_feature_attention(q, k, v, pair, is_causal=causal)
""",
    "exact": """
attention = lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
""",
    "performer-pytorch": """
from performer_pytorch import FastAttention
fast = FastAttention(64, 256, causal=causal)
attention = lambda q, k, v: fast(q, k, v)
""",
}


def measure(interpreter: str, method: str, n: int, causal: bool, gradients: bool) -> tuple[float, float] | None:
    """Return seconds and MiB, or None where the case does not finish."""
    head, tail = TIMED.split("small =")
    command = [interpreter, "-W", "ignore", "-c", f"{head}{MAKE[method]}small ={tail}", str(n), str(causal)]
    try:
        done = subprocess.run([*command, str(gradients)], capture_output=True, text=True, check=False, timeout=600)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        print(f"{method}, n = {n}: {(done.stderr.strip().splitlines() or ['killed'])[-1][:90]}", flush=True)
        return None
    seconds, peak = json.loads(done.stdout.splitlines()[-1])
    return seconds, peak


def slope(values: dict[int, float]) -> str:
    last = [(n, value) for n, value in values.items() if value > 0][-3:]
    if len(last) < 3:
        return ""
    return f"{math.log(last[-1][1] / last[0][1]) / math.log(last[-1][0] / last[0][0]):.2f}"


def race(interpreters: dict[str, str], sizes: tuple[int, ...], causal: bool, gradients: bool) -> Table:
    title = f"{'Causal' if causal else 'Both ways'}{', with gradients' if gradients else ''}"
    table = Table(title=f"{title}: seconds (times those of rfgp), and MiB", title_justify="left")
    for column in ("n", *interpreters):
        table.add_column(column, justify="right")
    found: dict[str, dict[int, tuple[float, float]]] = {method: {} for method in interpreters}
    gone: set[str] = set()
    for n in sizes:
        for method, interpreter in interpreters.items():
            result = None if method in gone else measure(interpreter, method, n, causal, gradients)
            if result is not None:
                found[method][n] = result
                print(title, n, method, *result, flush=True)
            if result is None or result[0] > PATIENCE:
                gone.add(method)
        table.add_row(str(n), *(cell(found, method, n) for method in interpreters))
    kinds = ("slope of time", "slope of memory")
    for i, kind in enumerate(kinds):
        table.add_row(kind, *(slope({n: pair[i] for n, pair in values.items()}) for values in found.values()))
    return table


def cell(found: dict[str, dict[int, tuple[float, float]]], method: str, n: int) -> str:
    if n not in found[method]:
        return ""
    seconds, peak = found[method][n]
    ratio = f" ({seconds / found['rfgp'][n][0]:.1f})" if n in found["rfgp"] else ""
    return f"{seconds:.3f}{ratio}, {peak:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rival", help="the interpreter of an environment with performer-pytorch")
    parser.add_argument("--largest", type=int, default=SIZES[-1])
    options = parser.parse_args()
    interpreters = dict.fromkeys(METHODS[:2], sys.executable)
    if options.rival:
        interpreters[METHODS[2]] = options.rival
    sizes = tuple(n for n in SIZES if n <= options.largest)
    tables = [race(interpreters, sizes, causal, grad) for causal, grad in product((False, True), repeat=2)]
    for table in tables:
        Console(width=110).print(table)


if __name__ == "__main__":
    main()
