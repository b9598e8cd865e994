"""Graphs, graph kernels, random walk features and Gaussian Markov random fields.

The package depends on numpy, scipy and numba, not on torch. Functions take and return node labels. Inside, nodes are
positions 0..N-1.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from graphs import errors as errors

if TYPE_CHECKING:
    from graphs import kernels as kernels
    from graphs.names import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Import a public name or a module on first use. `import graphs` loads the errors alone, so that it is fast."""
    if name.startswith("_"):
        raise AttributeError(f"module 'graphs' has no attribute {name!r}")
    if importlib.util.find_spec(f"graphs.{name}") is not None:
        return importlib.import_module(f"graphs.{name}")
    found = globals()[name] = getattr(importlib.import_module("graphs.names"), name)
    return found


def __dir__() -> list[str]:
    """Return the public names, without submodules that users do not need."""
    public = vars(importlib.import_module("graphs.names"))
    shown = {name for name in public if not name.startswith("_") and name != "quantile_costs"}
    return sorted(shown | {"errors", "kernels"})
