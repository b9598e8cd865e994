"""Add results of a race to the files from which the documentation makes docs/rivals.md.

A race writes lines of JSON (`benchmarks.races`). They become benchmarks/results/rivals-NAME.json, with the versions of
the packages in the environment that runs this. The documentation makes its tables and pictures from these files.

    python -m benchmarks.rivals NAME FILE...
"""

import argparse
from pathlib import Path

from benchmarks.rivals.races import RACES
from benchmarks.rivals.scores import add


def main() -> None:
    """Add results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=RACES)
    parser.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args()
    print(add(options.name, options.files))


if __name__ == "__main__":
    main()
