"""Show how the public names differ from those of the last release; `--write` records the present ones for a release."""

import sys
from pathlib import Path

import reference_pages as pages

RECORD = Path(__file__).with_name("public-names.txt")


def recorded() -> set[str]:
    """Return the public names of the last release, or of the one in preparation."""
    return set(RECORD.read_text(encoding="utf-8").split())


def main() -> None:
    """Print names that came and went, and with `--write` record the present ones."""
    now = set(pages.public_names())
    for mark, names in (("-", recorded() - now), ("+", now - recorded())):
        print(*(f"{mark} {name}" for name in sorted(names)), sep="\n")
    if "--write" in sys.argv[1:]:
        RECORD.write_text("\n".join(sorted(now)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
