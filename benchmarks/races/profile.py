"""The time of `rfgp.GP()` by selection and last fit, by kinds of work, and with a busy process on the same cores.

Protocol. Splits, standardization and tables are those of `benchmarks.races.defaults`. Each run is a process of its own
with `--threads` threads, after two fits of 60 other rows that load what is compiled. Up to three runs a split:

- alone: wall and processor seconds, and the wall seconds of the selection and of the last fit (`gp.selection`).
- busy (with `--busy`): the same next to one process that spins on the same cores.
- profiled: seconds by kind of work, under cProfile. With `--clock processor`, the default, they are processor seconds,
  which other processes disturb little. The profile then costs 1 us for each call of a function. With `--clock wall`
  they are wall seconds, at a fifth of that cost. What the profile adds to the processor seconds of the run alone is
  printed as its overhead. It is in the kinds with many short calls, "other" first, so that these look larger than they
  are.

`--cores 0` pins every run, and the spinning process, to these cores. Without it they may run on any.

cProfile names each C function that is called, but not operators: `a @ b` is charged to the function around it.
Therefore the operators of `torch.Tensor` are replaced by functions of the same names while the profile runs. Each
entry of the profile has one kind, so that the kinds add up to the total:

1. By its name: factorizations and triangular solves, sines and cosines, sparse products, wherever they are called.
2. Otherwise by its file, or by that of the function that calls it (C functions, operators, other libraries). These
   kinds are features (with the products that project rows on frequencies), neighbors, sparse algebra, lattices, kernel
   matrices and compilation. Python statements of these files are in these kinds, too.
3. Else by its name: dense products, other work on tensors and arrays, the engine of torch's derivatives. The last one
   holds products and elementwise work of the backward pass that torch does in C++.
4. Else "other": Python.

Compiled loops of numba are profiled as Python functions of their files. Operators of NumPy's arrays, `@` among them,
remain with the function around them. With several threads, seconds of the others count where the main thread waits.

torch.profiler was tried in place of this (elevators, 4,000 rows): it was still busy with its events a minute after a
fit of three.

Results are lines of JSON that are added to `--out`.

    python -m benchmarks.races.profile --folder UCI [--tables T,...] [--seeds N] [--rows N] [--threads N]
                                       [--cores C,...] [--busy] [--clock processor|wall] [--top N] [--out FILE]
"""

import argparse
import contextlib
import cProfile
import functools
import json
import os
import pstats
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.races.defaults import split
from benchmarks.races.processes import add_line

TABLES = ("power-plant", "elevators", "kin40k", "protein")
OTHER = "other"

Entry = tuple[str, int, str]
"""The key of a function in a profile: its file, its line and its name."""

ALWAYS = {
    "factors and solves": r"cholesky|triangular|cho_(factor|solve)|potr[fsi]|trtrs|linalg_(solve|inv|eig|qr|svd|lu)",
    "features": r"\b(sin|cos|sin_|cos_|sincos)\b",
    "sparse algebra": r"_sparsetools|pymetis|superlu",
}
"""Names of C functions by kinds, wherever they are called."""

FOLDERS = {
    "features": ("rfgp/features/", "rfgp/couplings/", "rfgp/approximations/role.py"),
    "neighbors": (
        *("rfgp/local/", "rfgp/fitting/neighbor"),
        *("rfgp/solvers/kriging.py", "sklearn/neighbors/", "scipy/spatial/"),
    ),
    "sparse algebra": ("rfgp/sparse/", "rfgp/blocks/", "rfgp/solvers/bordered.py", "graphs/", "scipy/sparse/"),
    "lattices": ("rfgp/lattices/", "rfgp/solvers/onepass.py", "finufft/", "numpy/fft/"),
    "kernel matrices": ("rfgp/kernels/", "rfgp/spectra/", "rfgp/grams.py"),
    "compilation": ("numba/", "llvmlite/"),
}
"""Files and folders by kinds; the first that holds a file counts."""

ELSE = {
    "dense products": r"\b(mm|addmm_?|bmm|baddbmm|matmul|mv|addmv_?|dot|vdot|tensordot|(c_)?einsum|__r?matmul__)\b",
    "derivatives in torch": r"run_backward",
    "other tensor work": r"torch|numpy|<operator",
}
"""Names of C functions and operators by kinds, called from files that have no kind."""

KINDS = (*dict.fromkeys([*ALWAYS, *FOLDERS, *ELSE]), OTHER)

OPERATORS = [f"__{by}{name}__" for name in ("mul", "add", "sub", "truediv", "pow") for by in ("", "r", "i")]
OPERATORS += ["__matmul__", "__rmatmul__", "__neg__", "__getitem__", "__setitem__"]


# --- kinds -----------------------------------------------------------------------------------------------------------


def _named(entry: Entry, patterns: dict[str, str]) -> str | None:
    """Return the kind of a C function or an operator by its name, None for others."""
    file, _, name = entry
    if file != "~" and not name.startswith("<operator"):
        return None
    return next((kind for kind, pattern in patterns.items() if re.search(pattern, name)), None)


@functools.cache
def _placed(file: str) -> str | None:
    """Return the kind of a file."""
    path = Path(file).as_posix()
    return next((kind for kind, places in FOLDERS.items() if any(f"/{place}" in path for place in places)), None)


def kind_of(entry: Entry, caller: Entry | None) -> str:
    """Return the kind of a function's own seconds when another function, or none, calls it."""
    found = _named(entry, ALWAYS) or _placed(entry[0])
    if found is None and caller is not None and "/rfgp/" not in Path(entry[0]).as_posix():
        found = _placed(caller[0])
    return found or _named(entry, ELSE) or OTHER


def by_entry(profile: cProfile.Profile) -> dict[tuple[str, Entry], float]:
    """Return the seconds of each function by its kind; of one function there may be several kinds, by its callers."""
    out: dict[tuple[str, Entry], float] = defaultdict(float)
    stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for entry, (_, _, own, _, callers) in stats.items():
        left = own
        for caller, (_, _, part, _) in callers.items():
            out[kind_of(entry, caller), entry] += part
            left -= part
        out[kind_of(entry, None), entry] += left  # calls from outside of the profile
    return out


def by_kind(profile: cProfile.Profile) -> dict[str, float]:
    """Return the seconds of each kind."""
    out = dict.fromkeys(KINDS, 0.0)
    for (kind, _), seconds in by_entry(profile).items():
        out[kind] += seconds
    return out


@contextlib.contextmanager
def operators_by_name() -> Iterator[None]:
    """Let the operators of tensors be functions, which a profile has by name."""
    known = {name: torch.Tensor.__dict__.get(name) for name in OPERATORS}
    for name in OPERATORS:
        # A partial is no C function to cProfile: the seconds are those of the operator itself.
        run = functools.partial(getattr(torch.Tensor, name))

        def operator(self: Any, *values: Any, _run: Any = run) -> Any:
            return _run(self, *values)

        operator.__code__ = operator.__code__.replace(co_name=f"<operator {name}>")
        setattr(torch.Tensor, name, operator)
    try:
        yield
    finally:
        for name, method in known.items():
            delattr(torch.Tensor, name) if method is None else setattr(torch.Tensor, name, method)


def profiled(call: Callable[[], Any], clock: str = "processor") -> tuple[Any, cProfile.Profile]:
    """Return the result of a call, and its profile in seconds of the processor or of the wall."""
    profile = cProfile.Profile(time.process_time) if clock == "processor" else cProfile.Profile()
    with operators_by_name():
        out = profile.runcall(call)
    return out, profile


# --- runs ------------------------------------------------------------------------------------------------------------


def run(file: Path, seed: int, how: str, options: argparse.Namespace) -> dict[str, Any]:
    """Fit in this process, and return the figures."""
    import rfgp

    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    data, rng = np.load(file), np.random.default_rng(0)
    x, noise = rng.standard_normal((2, 60, 2))
    for more in ({}, {"kernel": rfgp.kernels.Matern(nu=1.5), "approximation": rfgp.Vecchia()}):
        rfgp.GP(seed=seed, **more).fit(x, x[:, 0] + 0.1 * noise[:, 0])
    begin, busy = time.perf_counter(), time.process_time()

    def fit() -> Any:
        return rfgp.GP(seed=seed).fit(data["X"], data["y"])

    gp, profile = (fit(), None) if how != "profiled" else profiled(fit, options.clock)
    wall, processor = time.perf_counter() - begin, time.process_time() - busy
    out: dict[str, Any] = {"wall": wall, "processor": processor, "chosen": gp.selection.chosen.name}
    out |= {"selection": gp.selection.seconds, "last_fit": gp.selection.fit_seconds}
    if profile is not None:
        longest = sorted(by_entry(profile).items(), key=lambda item: -item[1])[: options.top]
        out |= {"clock": options.clock, "kinds": by_kind(profile)}
        out["longest"] = [[kind, ":".join(map(str, entry)), seconds] for (kind, entry), seconds in longest]
    return out


@contextlib.contextmanager
def spinning(is_wanted: bool) -> Iterator[None]:
    """Keep one process busy on the cores of this one."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if is_wanted else None
    try:
        yield
    finally:
        if other is not None:
            other.kill()
            other.wait()


def race(name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of all runs on one split."""
    X, y, _, _ = split(name, seed, options.folder, options.rows)
    out: dict[str, Any] = {"table": name, "rows": len(X), "columns": X.shape[1], "seed": seed}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npz"
        np.savez(file, X=X, y=y)
        for how in ("alone", *(["busy"] if options.busy else []), "profiled"):
            command = [sys.executable, "-m", "benchmarks.races.profile", "--run", str(file), str(seed), how]
            command += ["--threads", str(options.threads), "--top", str(options.top), "--clock", options.clock]
            with spinning(how == "busy"):
                done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                return {**out, "failed": done.stderr.strip()[-300:]}
            out[how] = json.loads(done.stdout.splitlines()[-1])
    return out


def show(row: dict[str, Any]) -> None:
    """Print the figures of one split."""
    print(f"{row['table']}, {row['rows']:,} rows, {row['columns']} columns, seed {row['seed']}")
    if "failed" in row:
        print(f"    failed: {row['failed']}")
        return
    for how in ("alone", "busy", "profiled"):
        if how in row:
            parts = ", ".join(f"{key.replace('_', ' ')} {row[how][key]:.1f}" for key in ("selection", "last_fit"))
            print(f"    {how:9} wall {row[how]['wall']:7.1f} s ({parts}), processor {row[how]['processor']:7.1f} s")
    kinds = row["profiled"]["kinds"]
    total, clock = sum(kinds.values()), row["profiled"]["clock"]
    for kind, seconds in sorted(kinds.items(), key=lambda item: -item[1]):
        print(f"    {kind:22} {seconds:7.1f} s  {seconds / total:6.1%}")
    overhead = row["profiled"]["processor"] / row["alone"]["processor"] - 1
    print(f"    {'all':22} {total:7.1f} s of {clock}; overhead {overhead:.0%}; chosen: {row['alone']['chosen']}")
    for kind, entry, seconds in row["profiled"]["longest"]:
        print(f"        {seconds:7.2f} s  {kind:22} {entry}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rows", type=int, default=10**9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cores", default="")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--clock", choices=("processor", "wall"), default="processor")
    parser.add_argument("--top", type=int, default=15)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        file, seed, how = options.run
        print(json.dumps(run(Path(file), int(seed), how, options)))
        return
    if options.cores:
        os.sched_setaffinity(0, [int(core) for core in options.cores.split(",")])
    for seed in range(options.seeds):
        for name in options.tables.split(","):
            row = race(name, seed, options)
            show(row)
            add_line(row, options.out)


if __name__ == "__main__":
    main()
