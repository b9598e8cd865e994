"""Check the internal links of a built site: `python tests/support/site_links.py out/docs`, a step of `make docs`."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The anchors of a page, and the targets of its links, pictures and scripts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the anchors and targets of a tag."""
        for key, value in attrs:
            if key == "id" or (tag == "a" and key == "name"):
                self.anchors.add(value or "")
            elif key in ("href", "src"):
                self.targets.add(value or "")


def broken_links(site: Path) -> list[str]:
    """Return the internal links of a site whose file or anchor does not exist, as "page: target"."""
    root = site.resolve()
    pages = {path: Page(path) for path in sorted(root.rglob("*.html")) if root / "_static" not in path.parents}
    found = []
    for path, page in pages.items():
        for target in sorted(page.targets):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            file = file / "index.html" if file.is_dir() else file
            anchor = unquote(parts.fragment) if file in pages else ""
            if not file.is_file() or (anchor and anchor not in pages[file].anchors):
                found.append(f"{path.relative_to(root)}: {target}")
    return found


def main() -> int:
    """Print the broken links of a site, and return whether there are any or no pages."""
    site = Path(sys.argv[1])
    broken = broken_links(site) if (site / "index.html").is_file() else [f"{site}: no index.html"]
    print(*broken, sep="\n", end="\n" if broken else "")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
