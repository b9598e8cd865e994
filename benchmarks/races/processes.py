"""Common parts of the races: cases in their own processes, memory of processes, and lines of results."""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np


def measured(module: str, *arguments: Any, limit: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a benchmark again in a new process, with other arguments.

    The output is text. A failure is returned, not raised.
    """
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)


def last_line(module: str, *arguments: Any) -> str:
    """Return the last line that a case printed; a failing case shows its own error.

    Raises:
        SystemExit: The case has failed.
    """
    done = measured(module, *arguments)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        raise SystemExit(f"{module} {' '.join(map(str, arguments))} failed")
    return done.stdout.splitlines()[-1]


def status(name: str) -> int:
    """Return bytes of this process: `VmRSS` is its memory, `VmHWM` its peak."""
    text = Path("/proc/self/status").read_text()
    return 1024 * int(next(line.split()[1] for line in text.splitlines() if line.startswith(name)))


def figures(module: str, limit: float, *arguments: Any) -> dict[str, Any]:
    """Return the last figures that a case printed as JSON, or the reason for missing ones under "failed"."""
    try:
        done = measured(module, *arguments, limit=limit)
    except subprocess.TimeoutExpired:
        return {"failed": f"longer than {limit:.0f} s"}
    if done.returncode:
        return {"failed": done.stderr.strip()[-300:]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def lines(out: Path | None) -> list[dict[str, Any]]:
    """Return the results in a file of JSON lines."""
    return [json.loads(line) for line in out.read_text().splitlines()] if out and out.exists() else []


def add_line(row: dict[str, Any], out: Path | None) -> None:
    """Add a result to a file of JSON lines, if there is one."""
    if out:
        with out.open("a") as file:
            file.write(json.dumps(row) + "\n")


def run_all(
    module: str,
    cases: Iterable[tuple[str, int, str]],
    arrays: Callable[[str, int], dict[str, Any]],
    limit: float,
    out: Path | None,
) -> list[dict[str, Any]]:
    """Run cases (table, seed, racer), each alone in a process; print and return results, and add them to a file.

    Args:
        module: The module of the race. It accepts `--run RACER SEED FILE`, with the arrays of the case in a numpy file,
            and prints JSON last.
        cases: The cases. Cases with a result in the file are not run again.
        arrays: A function of a table and a seed that returns arrays.
        limit: The seconds after which a process is ended.
        out: The file of results, lines of JSON.
    """
    found = lines(out)
    done = {(row["table"], row["seed"], row["racer"]) for row in found}
    for table, seed, racer in cases:
        if (table, seed, racer) in done:
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rows.npz"
            np.savez(file, **arrays(table, seed))
            row = {"table": table, "seed": seed, "racer": racer, **figures(module, limit, "--run", racer, seed, file)}
        said = "  ".join(f"{key} {value:.4g}" for key, value in row.items() if isinstance(value, float))
        print(f"{table} {seed} {racer:16s} {said}{row.get('failed', '')}", flush=True)
        found.append(row)
        add_line(row, out)
    return found


def options(tables: Sequence[str], racers: Sequence[str]) -> argparse.Namespace:
    """Return the command line of a race with racers of other packages; `tables` and `racers` are lists."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", type=lambda text: text.split(","), default=list(tables))
    parser.add_argument("--racers", type=lambda text: text.split(","), default=list(racers))
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--limit", type=float, default=1200.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def present(packages: dict[str, str]) -> list[str]:
    """Return the racers whose module is installed, and print the omitted ones."""
    absent = [name for name, package in packages.items() if find_spec(package.partition(".")[0]) is None]
    for name in absent:
        print(f"{name} is left out: {packages[name]} is not installed")
    return [name for name in packages if name not in absent]


def page(found: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
    """Return results as Markdown, a table for each data set: means over splits and standard errors of them."""
    text = []
    for table in dict.fromkeys(row["table"] for row in found):
        text += [f"\n## {table}\n", f"| racer | splits | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
        for racer in dict.fromkeys(row["racer"] for row in found if row["table"] == table):
            rows = [row for row in found if (row["table"], row["racer"]) == (table, racer)]
            good = [row for row in rows if "failed" not in row]
            why = "".join(sorted({f"; {row['failed']}" for row in rows if "failed" in row}))
            said = [summary([row[column] for row in good]) for column in columns] if good else ["-"] * len(columns)
            failed = f" ({len(rows) - len(good)} failed{why})" if why else ""
            text.append(f"| {racer} | {len(good)}{failed} | " + " | ".join(said) + " |")
    return "\n".join(text) + "\n"


def show(text: str, file: Path | None) -> None:
    if file:
        file.write_text(text)
    else:
        print(text)


def summary(values: Sequence[float]) -> str:
    """Return "mean ± standard error", or a single value alone."""
    if len(values) == 1:
        return f"{values[0]:.4g}"
    return f"{np.mean(values):.4g} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.2g}"
