"""The papers' tables and figures, compared with ours: `make results`, or

    python -m benchmarks.papers [--only couplings[/table-1],...] [--quick] [--folder results]

Each of them becomes a file under `benchmarks/results`; `--quick` does a tenth of the repeats, and writes under
`out/results`. The documentation's page is made of the files: `python -m benchmarks.page`.
"""

import argparse
import importlib
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.record import RESULTS, Figure, Scale, run

PAPERS = ("couplings", "simplex", "hybrid", "orthogonal", "article", "own")
"""Modules of this folder with `FIGURES`."""


def figures(only: str = "") -> Iterator[tuple[str, str, Figure]]:
    """Yield paper, name and function of the selected figures.

    Args:
        only: The selection, such as "couplings" or "couplings/table-1". If "", all figures.

    Raises:
        ValueError: There is no such paper or figure.
    """
    wanted = [entry for entry in only.split(",") if entry]
    found = set()
    for paper in PAPERS:
        module = importlib.import_module(f"benchmarks.papers.{paper}")
        for name, figure in getattr(module, "FIGURES", {}).items():
            if asked := {paper, f"{paper}/{name}"}.intersection(wanted):
                found |= asked
            if asked or not wanted:
                yield paper, name, figure
    if unknown := sorted(set(wanted) - found):
        raise ValueError(f"There is no {', '.join(unknown)}; the papers are {', '.join(PAPERS)}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="papers, or figures of papers")
    parser.add_argument("--quick", action="store_true", help="a tenth of the repeats")
    parser.add_argument("--folder", type=Path, help="where the files go")
    given = parser.parse_args()
    folder, begin = given.folder or (Path("out/results") if given.quick else RESULTS), time.perf_counter()
    try:
        chosen = list(figures(given.only))
    except ValueError as error:
        parser.error(str(error))
    for paper, name, figure in chosen:
        run(paper, name, figure, Scale(given.quick), folder)
    print(f"\n{len(chosen)} results in {time.perf_counter() - begin:.0f} s: {folder}")


if __name__ == "__main__":
    main()
