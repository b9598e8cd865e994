"""One HTML page that needs no network: sections of text, tables and interactive plots."""

import base64
import gzip
import html
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from importlib import resources
from importlib.metadata import version
from typing import Any

from graphs.builders.files import printable

_LONG = 28
"""The most characters of the cells of a column of figures. A column with longer ones is text, which wraps."""


@dataclass(frozen=True, eq=False)
class Plot:
    """An interactive plot.

    Attributes:
        figure: A plotly figure.
        caption: The content of the plot, and how to read it.
        height: The height on the screen, in CSS pixels.
        picture: A PNG of a three-dimensional view, for print and browsers without WebGL. If None, there is none.
        wide: Whether it takes the page's full width.
        starts_row: Whether it is at the left of the page.
    """

    figure: Any
    caption: str
    height: int = 360
    picture: bytes | None = None
    wide: bool = False
    starts_row: bool = False


@dataclass(frozen=True, eq=False)
class Picture:
    """A PNG of something that is too large to draw in a browser."""

    content: bytes
    caption: str


@dataclass(frozen=True, eq=False)
class Grid:
    """A table, whose first column is text.

    Attributes:
        header: The names of the columns.
        rows: The cells of each row.
        caption: The content of the table.
        wide: Whether it takes the page's full width.
        texts: The places of further columns of text, which wraps. Others are figures.

    Example:
        >>> Grid(["column", "mean"], [["size", "1.5"]], "1 row.").rows
        [['size', '1.5']]
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    wide: bool = True
    texts: Collection[int] = ()

    @property
    def text_columns(self) -> set[int]:
        """The places of the columns of text: those that are named as such, and those with a long cell."""
        return {i for i in range(1, len(self.header)) if any(len(row[i]) > _LONG for row in self.rows)} | {*self.texts}


@dataclass(frozen=True, eq=False)
class Text:
    """A paragraph."""

    words: str


Block = Plot | Picture | Grid | Text


@dataclass(frozen=True, eq=False)
class Section:
    """A heading and its blocks."""

    title: str
    blocks: list[Block] = field(default_factory=list)


def render(title: str, lead: str, cards: Sequence[tuple[str, str, str]], sections: Sequence[Section]) -> str:
    """Return the page.

    Args:
        title: The title.
        lead: The first paragraph.
        cards: The figures to see first, as (name, figure, remark).
        sections: The sections.
    """
    from plotly.offline import get_plotlyjs

    plots = [block for section in sections for block in section.blocks if isinstance(block, Plot)]
    numbers = {id(plot): i for i, plot in enumerate(plots)}
    body = "\n".join(_section(section, numbers) for section in sections)
    links = "".join(f'<a href="#{_anchor(s.title)}">{_escape(s.title)}</a>' for s in sections)
    boxes = "".join(
        f'<div class="card"><span>{_escape(name)}</span><strong>{_escape(figure)}</strong>'
        f"<small>{_escape(remark)}</small></div>"
        for name, figure, remark in cards
    )
    library = base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode()
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="generator" content="rfgp {version("rfgp")}">
<title>{_escape(title)}</title>
<link rel="icon" href="data:,">
<style>{_asset("style.css")}</style>
</head>
<body>
<header><h1>{_escape(title)}</h1><p>{_escape(lead)}</p><nav>{links}</nav></header>
<main>
<div class="cards">{boxes}</div>
{body}
</main>
<footer>Made by rfgp {version("rfgp")}. This file is complete and loads nothing.</footer>
{"".join(_data(plot, numbers[id(plot)]) for plot in plots)}
<script type="text/plain" id="library">{library}</script>
<script>{_asset("draw.js")}</script>
</body>
</html>
"""


# Inline scripts and styles only; plotly needs blob: and data: pictures for its own exports, eval never.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def _escape(text: str) -> str:
    """Return text for HTML, without characters that steer a terminal or a reader."""
    return html.escape(printable(text))


def _section(section: Section, numbers: dict[int, int]) -> str:
    blocks = "\n".join(_block(block, numbers) for block in section.blocks)
    return (
        f'<section id="{_anchor(section.title)}"><h2>{_escape(section.title)}</h2>'
        f'<div class="blocks">{blocks}</div></section>'
    )


def _block(block: Block, numbers: dict[int, int]) -> str:
    if isinstance(block, Text):
        return f"<p>{_escape(block.words)}</p>"
    if isinstance(block, Grid):
        return _grid(block)
    caption = _escape(block.caption)
    if isinstance(block, Picture):
        image = f'<img class="drawn" alt="{caption}" src="{_source(block.content)}">'
        return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"
    number = numbers[id(block)]
    picture = ""
    if block.picture is not None:
        picture = f'<img class="still" alt="{caption}" src="{_source(block.picture)}">'
    kind = ' class="wide"' if block.wide else ' class="left"' if block.starts_row else ""
    return (
        f'<figure{kind}><div class="plot" id="plot-{number}" role="img" aria-label="{caption}" '
        f'style="height:{block.height}px"></div>{picture}<figcaption>{caption}</figcaption></figure>'
    )


def _grid(grid: Grid) -> str:
    """Return a table that scrolls in a box of its own, below its caption."""
    texts = grid.text_columns
    kinds = [' class="text"' if place in texts else "" for place in range(len(grid.header))]
    head = "".join(f'<th scope="col"{kind}>{_escape(cell)}</th>' for kind, cell in zip(kinds, grid.header, strict=True))
    rows = "".join(
        f'<tr><th scope="row">{_escape(row[0])}</th>'
        + "".join(f"<td{kind}>{_escape(cell)}</td>" for kind, cell in zip(kinds[1:], row[1:], strict=True))
        + "</tr>"
        for row in grid.rows
    )
    caption = _escape(grid.caption)
    return (
        f'<div class="grid{" wide" if grid.wide else ""}"><p class="caption">{caption}</p>'
        f'<div class="scroll" tabindex="0"><table aria-label="{caption}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></div>"
    )


def _source(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _data(plot: Plot, number: int) -> str:
    content = json.loads(plot.figure.to_json())
    text = json.dumps({"data": content["data"], "layout": content["layout"]}, allow_nan=False)
    safe = text.replace("<", "\\u003c")  # no text can end the script
    return f'<script type="application/json" id="data-{number}">{safe}</script>\n'


def _anchor(title: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in title.lower())


def _asset(name: str) -> str:
    return resources.files("rfgp.report").joinpath(name).read_text(encoding="utf-8")
