"""Show how the public names differ from those of the last release; `--write` records the present ones for a release.

Public names are those of the pages of docs/reference.
"""

import re
import sys
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs" / "reference"
RECORD = Path(__file__).with_name("public-names.txt")


def listed(page="*"):
    """Return the names of the autosummaries of a page, or of all pages."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(PAGES.glob(f"{page}.rst"))]
    return [name for text in texts for name in re.findall(r"^   ((?:rfgp|graphs)[\w.]*\.\w+)$", text, re.MULTILINE)]


def recorded():
    """Return the public names of the last release, or of the one in preparation."""
    return set(RECORD.read_text(encoding="utf-8").split())


def main():
    """Print names that came and went, and with `--write` record the present ones."""
    now = set(listed())
    for mark, names in (("-", recorded() - now), ("+", now - recorded())):
        print(*(f"{mark} {name}" for name in sorted(names)), sep="\n")
    if "--write" in sys.argv[1:]:
        RECORD.write_text("\n".join(sorted(now)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
