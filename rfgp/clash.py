"""The check that the package `graphs` is the one of this distribution, before anything is imported from it."""

import importlib.util
from pathlib import Path


class PackageClashError(ImportError):
    """Another package `graphs` hides this distribution's: rename or uninstall it.

    Examples:
        >>> import rfgp, runpy, unittest.mock
        >>> with unittest.mock.patch("importlib.util.find_spec", return_value=None):  # doctest: +ELLIPSIS
        ...     runpy.run_path(rfgp.__file__)
        Traceback (most recent call last):
        rfgp.clash.PackageClashError: rfgp needs the package 'graphs' of its own distribution...
    """


def check_graphs() -> None:
    """Check that Python finds the package `graphs` of this distribution.

    Raises:
        PackageClashError: If it finds another one, or none.

    Examples:
        >>> from rfgp.clash import check_graphs
        >>> check_graphs()
    """
    spec = importlib.util.find_spec("graphs")
    ours = Path(__file__).resolve().parent.parent / "graphs" / "__init__.py"
    found = Path(spec.origin).resolve() if spec is not None and spec.origin else None
    if found != ours:
        raise PackageClashError(
            f"rfgp needs the package 'graphs' of its own distribution ({ours.parent}), but Python finds "
            f"{found or 'none'}. Rename or uninstall the other one, or move it after rfgp on sys.path."
        )
