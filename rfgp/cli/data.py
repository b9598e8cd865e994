"""`rfgp datasets`: the public data sets, listed and fetched."""

from pathlib import Path
from typing import Annotated, Any

import typer

from rfgp.cli.common import console, print_json, progress, say


def datasets(
    name: Annotated[list[str] | None, typer.Argument(help="Data sets to fetch. Without names, all are listed.")] = None,
    folder: Annotated[
        Path | None, typer.Option(help="A folder that already holds the files. [default: RFGP_DATA_DIR, if set]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the public data sets, or fetch some: from a local folder, the cache, or their pinned address."""
    from rfgp.datasets import CATALOG, fetch

    if not name:
        entries = list(CATALOG.values())
        if as_json:
            print_json({entry.name: _as_dict(entry) for entry in entries})
        else:
            console.print(_listing(entries))
        return
    paths = {}
    for dataset in name:
        with progress(visible=not as_json) as report:
            paths[dataset] = fetch(dataset, folder, progress=report)
        if not as_json:
            say(f"{dataset}: {paths[dataset]}")
    if as_json:
        print_json(paths)


def _as_dict(entry: Any) -> dict[str, Any]:
    names = ("kind", "rows", "size", "note", "url", "sha256")
    return {name: getattr(entry, name) for name in names}


def _listing(entries: list[Any]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    for title in ("name", "kind", "size", "kB", "what it is"):
        table.add_column(title, justify="right" if title in ("size", "kB") else "left", no_wrap=title != "what it is")
    for entry in entries:
        table.add_row(entry.name, entry.kind, f"{entry.rows:,}", f"{entry.size / 1000:,.0f}", entry.note)
    return table
