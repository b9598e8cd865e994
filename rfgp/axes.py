"""New axes of matplotlib without pyplot, and figures as PNG."""

import io
from pathlib import Path
from typing import Any

from rfgp.errors import requires_extra
from rfgp.files import write_atomically

with requires_extra("plot"):
    from matplotlib.figure import Figure


def new_axes(**options: Any) -> Any:
    """Return axes in a new figure, without changing the global state of pyplot.

    Args:
        **options: Options of `Figure.add_subplot`.

    Examples:
        >>> from rfgp.plotting import new_axes
        >>> new_axes().name
        'rectilinear'
    """
    return Figure(figsize=(6.4, 4.8), layout="constrained").add_subplot(**options)


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG. A failure leaves the old file.

    Args:
        figure: The figure.
        path: The file.

    Raises:
        FileWriteError: If the file cannot be written.

    Examples:
        >>> import tempfile
        >>> from rfgp.plotting import new_axes, save
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save(new_axes().figure, Path(folder) / "figure.png")
    """
    write_atomically(path, to_png(figure))


def to_png(figure: Any) -> bytes:
    """Return a figure as the bytes of a PNG file, at 130 dots per inch.

    Args:
        figure: The figure.

    Examples:
        >>> from rfgp.plotting import new_axes, to_png
        >>> to_png(new_axes().figure)[1:4]
        b'PNG'
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    return buffer.getvalue()
