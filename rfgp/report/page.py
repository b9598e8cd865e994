"""One HTML page that needs no network: sections of text, tables and interactive plots."""

import base64
import gzip
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from importlib.metadata import version
from typing import Any

from graphs.builders.files import printable

_LONG = 28
"""The most characters of a cell of a table that does not wrap."""


@dataclass(frozen=True, eq=False)
class Plot:
    """An interactive plot.

    Attributes:
        figure: A plotly figure.
        caption: The content of the plot, and how to read it.
        height: The height on the screen, in CSS pixels.
        picture: A PNG of a three-dimensional view, for print and browsers without WebGL. If None, there is none.
        wide: Whether it takes the page's full width.
    """

    figure: Any
    caption: str
    height: int = 360
    picture: bytes | None = None
    wide: bool = False


@dataclass(frozen=True, eq=False)
class Picture:
    """A PNG of something that is too large to draw in a browser."""

    content: bytes
    caption: str


@dataclass(frozen=True, eq=False)
class Grid:
    """A table: the first column is text, the others are figures or text."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    wide: bool = True


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
        head = "".join(f'<th scope="col">{_escape(cell)}</th>' for cell in block.header)
        rows = "".join(
            f'<tr><th scope="row">{_escape(row[0])}</th>' + "".join(map(_cell, row[1:])) + "</tr>" for row in block.rows
        )
        caption = _escape(block.caption)
        return (
            f'<div class="scroll{" wide" if block.wide else ""}" tabindex="0"><table><caption>{caption}</caption>'
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        )
    caption = _escape(block.caption)
    if isinstance(block, Picture):
        image = f'<img class="drawn" alt="{caption}" src="{_source(block.content)}">'
        return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"
    number = numbers[id(block)]
    picture = ""
    if block.picture is not None:
        picture = f'<img class="still" alt="{caption}" src="{_source(block.picture)}">'
    kind = ' class="wide"' if block.wide else ""
    return (
        f'<figure{kind}><div class="plot" id="plot-{number}" role="img" aria-label="{caption}" '
        f'style="height:{block.height}px"></div>{picture}<figcaption>{caption}</figcaption></figure>'
    )


def _cell(text: str) -> str:
    """Return a cell of a table: a short one in one line, a long one as text that wraps."""
    kind = ' class="text"' if len(text) > _LONG else ""
    return f"<td{kind}>{_escape(text)}</td>"


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
