"""A comparison as a table for the terminal, and as JSON for programs."""

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np

from rfgp.compare.results import Comparison, Estimate
from rfgp.errors import requires_extra

if TYPE_CHECKING:
    from rich.table import Table

_COLUMNS = {"kernel_error": "kernel err", "kl": "KL, nats", "rmse": "test RMSE", "nlpd": "NLPD"}


def to_table(comparison: Comparison) -> "Table":
    """Return a table of means, with standard errors of the last digits in brackets.

    Args:
        comparison: The comparison.

    Examples:
        >>> import numpy as np
        >>> from rfgp.compare import Plan, compare_table, to_table
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> few = {"methods": ("iid",), "sizes": (8,), "num_train": 30, "num_test": 10, "plan": Plan(draws=2)}
        >>> run = compare_table(X, X[:, 0] ** 2, **few)
        >>> [column.header for column in to_table(run).columns][:3]
        ['coupling', 'm', 'kernel err']
    """
    with requires_extra("cli"):
        from rich import box
        from rich.table import Table
        from rich.text import Text

    caption = f"{comparison.protocol}. 1.23(4) means 1.23 with standard error 0.04."
    title = Text(comparison.title, style="bold")
    table = Table(
        title=title,
        caption=Text(caption, style="dim"),
        caption_justify="left",
        title_style="bold",
        box=box.SIMPLE,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("coupling", no_wrap=True)
    table.add_column("m", justify="right", no_wrap=True)
    for name in (*_COLUMNS.values(), "s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(f"err/{comparison.baseline}", justify="right", no_wrap=True)
    _add_exact(table, comparison)
    groups = comparison.groups()
    for i, (method, size) in enumerate(groups):
        cells = [format_estimate(comparison.estimate(figure, method, size)) for figure in _COLUMNS]
        seconds = f"{comparison.estimate('seconds', method, size).mean:.2f}"
        ratio = format_estimate(comparison.error_ratio(method, size))
        last = i + 1 == len(groups) or groups[i + 1][1] != size
        table.add_row(method, str(size), *cells, seconds, ratio, end_section=last)
    return table


def _add_exact(table: "Table", comparison: Comparison) -> None:
    rmse, nlpd, seconds = (
        Estimate.of(np.array([[getattr(entry, name) for entry in comparison.exact]]))
        for name in ("rmse", "nlpd", "seconds")
    )
    cells = ["0", "0", format_estimate(rmse), format_estimate(nlpd), f"{seconds.mean:.2f}", ""]
    table.add_row("exact", "", *cells, end_section=True)


def format_estimate(estimate: Estimate) -> str:
    """Return a mean with one digit of its standard error in brackets, such as 1.23(4).

    Args:
        estimate: The mean and its standard error.

    Examples:
        >>> from rfgp.compare import Estimate
        >>> format_estimate(Estimate(1.2345, 0.0432))
        '1.23(4)'
    """
    if not estimate.error > 0 or not math.isfinite(estimate.error):
        return f"{estimate.mean:.3g}"
    if abs(estimate.mean) >= 1e5:
        return f"{estimate.mean:.1e}({estimate.error:.0e})"
    digits = -math.floor(math.log10(float(f"{estimate.error:.0e}")))
    shown = max(0, digits)
    return f"{estimate.mean:.{shown}f}({estimate.error * 10**shown:.0f})"


def to_json(comparison: Comparison) -> str:
    """Return all draws as JSON.

    Args:
        comparison: The comparison.

    Examples:
        >>> import json
        >>> import numpy as np
        >>> from rfgp.compare import Plan, compare_table, to_json
        >>> X = np.linspace(0, 1, 40)[:, None]
        >>> few = {"methods": ("iid",), "sizes": (8,), "num_train": 30, "num_test": 10, "plan": Plan(draws=2)}
        >>> run = compare_table(X, X[:, 0] ** 2, **few)
        >>> list(json.loads(to_json(run)))
        ['title', 'protocol', 'baseline', 'exact', 'draws']
    """
    content = {
        "title": comparison.title,
        "protocol": comparison.protocol,
        "baseline": comparison.baseline,
        "exact": [asdict(entry) for entry in comparison.exact],
        "draws": [asdict(entry) for entry in comparison.draws],
    }
    return json.dumps(content, indent=1, allow_nan=False)
