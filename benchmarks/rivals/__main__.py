"""Add results of a race, and write the page.

A race writes lines of JSON (`benchmarks.races`). `--add NAME FILE` turns them into benchmarks/results/rivals-NAME.json,
with the versions of the packages in the environment that runs it. The page docs/rivals.md is written from these files,
and the documentation draws its pictures from them.

    python -m benchmarks.rivals [--add NAME FILE...]
"""

import argparse
from pathlib import Path

from benchmarks.rivals.page import PAGE, page
from benchmarks.rivals.scores import add, read


def main() -> None:
    """Add results, or write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--add", nargs="+", metavar=("NAME", "FILE"))
    options = parser.parse_args()
    if options.add:
        name, *files = options.add
        print(add(name, list(map(Path, files))))
    PAGE.write_text(page(read()), encoding="utf-8")


if __name__ == "__main__":
    main()
