"""A self-contained HTML page of text, tables and interactive plots."""

import base64
import gzip
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from importlib.metadata import version
from typing import Any, ClassVar

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import ArrayLike
from plotly.offline import get_plotlyjs

from rfgp.messages import counted, plain, printable

_OPTIONS: dict[str, Any] = {"loader": PackageLoader("rfgp.report"), "undefined": StrictUndefined}
_LONG = 28
"""The maximum number of characters of the cells of a column of figures. A column with longer ones is text, which
wraps."""


@dataclass(frozen=True, eq=False)
class Plot:
    """An interactive plot.

    Attributes:
        figure: A figure of `rfgp.curves`.
        caption: The content of the plot, and its interpretation.
        height: The height on the screen, in CSS pixels.
        picture: A PNG of a three-dimensional view, for print and browsers without WebGL. If None, there is none.
        wide: Whether the plot has the full width of the page.
        starts_row: Whether the plot begins a new row of the page.
    """

    kind: ClassVar = "plot"
    figure: dict[str, Any]
    caption: str
    height: int = 360
    picture: bytes | None = None
    wide: bool = False
    starts_row: bool = False


@dataclass(frozen=True, eq=False)
class Picture:
    """A PNG of a plot that is too large for a browser.

    Attributes:
        content: The PNG.
        caption: The content of the picture.

    Examples:
        >>> Picture(b"", "A large mesh.").caption
        'A large mesh.'
    """

    kind: ClassVar = "picture"
    content: bytes
    caption: str


@dataclass(frozen=True, eq=False)
class Grid:
    """A table. Its first column is text.

    Attributes:
        header: The names of the columns.
        rows: The cells of each row.
        caption: The content of the table.
        wide: Whether the table has the full width of the page.
        texts: The indices of further columns of text, which wraps. Other columns are numbers.

    Examples:
        >>> Grid(["column", "mean"], [["size", "1.5"]], "1 row.").rows
        [['size', '1.5']]
    """

    kind: ClassVar = "grid"
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str
    wide: bool = True
    texts: Collection[int] = ()

    @property
    def text_columns(self) -> set[int]:
        """The indices of the columns of text: those in `texts`, and those with a long cell."""
        return {i for i in range(1, len(self.header)) if any(len(row[i]) > _LONG for row in self.rows)} | {*self.texts}


@dataclass(frozen=True, eq=False)
class Text:
    """A paragraph.

    Attributes:
        words: The text.

    Examples:
        >>> Text("All rows are used.").words
        'All rows are used.'
    """

    kind: ClassVar = "text"
    words: str


@dataclass(frozen=True, eq=False)
class Command:
    """A command for a shell.

    Attributes:
        line: The command.

    Examples:
        >>> Command("rfgp demo").line
        'rfgp demo'
    """

    kind: ClassVar = "command"
    line: str


Block = Plot | Picture | Grid | Text | Command


@dataclass(frozen=True, eq=False)
class Section:
    """A heading and its blocks.

    Attributes:
        title: The title.
        blocks: The blocks.

    Examples:
        >>> Section("The data", [Text("All rows are used.")]).anchor
        'the-data'
    """

    title: str
    blocks: list[Block] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        """The title as the anchor of a link."""
        return "".join(c if c.isalnum() else "-" for c in self.title.lower())


def render(title: str, lead: str, cards: Sequence[tuple[str, str, str]], sections: Sequence[Section]) -> str:
    """Return the page.

    Args:
        title: The title.
        lead: The first paragraph.
        cards: The main results, as (name, value, remark).
        sections: The sections.

    Examples:
        >>> page = render("A title", "", [], [Section("Data", [Text("1 < 2")])])
        >>> "<p>1 &lt; 2</p>" in page
        True
    """
    environment = Environment(autoescape=True, finalize=_printable, trim_blocks=True, **_OPTIONS)
    environment.filters["base64"] = _base64
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "default": _short}
    return environment.get_template("page.html.j2").render(
        title=title,
        lead=lead,
        cards=cards,
        sections=sections,
        plots=[block for section in sections for block in section.blocks if isinstance(block, Plot)],
        version=version("rfgp"),
        style=_asset("style.css"),
        script=_asset("draw.js"),
        library=gzip.compress(get_plotlyjs().encode(), 9, mtime=0),
    )


def _printable(value: Any) -> Any:
    """Return a text without control characters, and other values unchanged."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _short(values: ArrayLike) -> list[float | None]:
    """Return an array of numbers for JSON, rounded to six digits. Numbers that are not finite are null."""
    numbers = np.asarray(values, dtype=np.float64).tolist()
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in numbers]


def _base64(content: bytes) -> Markup:
    return Markup(base64.b64encode(content).decode())


def _asset(name: str) -> Markup:
    return Markup(resources.files("rfgp.report").joinpath(name).read_text(encoding="utf-8"))


# --- Sentences, which the page escapes and the command line prints ---------------------------------------------------


def sentence(name: str, /, **values: Any) -> str:
    """Return the text of a macro of `templates/sentences.j2`.

    Args:
        name: The name of the macro.
        **values: Its arguments.

    Examples:
        >>> sentence("seen", count=1, reason="order")
        '1 held-out observation repeats a row, or a node, of the training part, because the split is by order.'
    """
    return " ".join(str(getattr(_sentences(), name)(**values)).split())


@cache
def _sentences() -> Any:
    """Return the macros of sentences."""
    environment = Environment(autoescape=False, **_OPTIONS)
    environment.filters |= {"number": number, "plain": plain, "counted": counted}
    environment.filters |= {"digits": "{0:.{1}g}".format, "commas": "{:,}".format}
    return environment.get_template("sentences.j2").module


def number(value: float) -> str:
    """Return a number as text with four significant digits.

    Args:
        value: The number.

    Examples:
        >>> number(1234.567), number(12345.67)
        ('1235', '12,346')
    """
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e7 else f"{value:.4g}"
