"""What the benchmarks share: one way to run and print a comparison on a public data set.

`rfgp.datasets` finds the data: in the folder that RFGP_DATA_DIR names, in its cache, or at their pinned address.
"""

from pathlib import Path

from rich.console import Console

from rfgp.compare import Comparison, Plan, compare_file, to_json, to_table
from rfgp.datasets import fetch
from rfgp.files import write_atomically


def run(name: str, *, splits: int, draws: int, out: Path | None, **options: object) -> Comparison:
    """Compare on one data set with seed 0, print the table, and keep every draw under `out`."""
    comparison, _ = compare_file(fetch(name), plan=Plan(splits, draws, seed=0), **options)
    Console(width=100).print(to_table(comparison))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(out / f"{name}.json", to_json(comparison).encode())
    return comparison
