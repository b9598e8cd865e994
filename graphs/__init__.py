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
else:

    def __getattr__(name: str) -> Any:
        """Import a public name or a module on first use. `import graphs` loads the errors alone, so that it is fast."""
        if name == "__all__":
            return __dir__()
        if name.startswith("_") or not name.isidentifier():
            raise AttributeError(f"module 'graphs' has no attribute {name!r}")
        if importlib.util.find_spec(f"graphs.{name}") is not None:
            return importlib.import_module(f"graphs.{name}")
        names = importlib.import_module("graphs.names")
        if not hasattr(names, name):
            raise AttributeError(f"module 'graphs' has no attribute {name!r}")
        found = globals()[name] = getattr(names, name)
        return found

    def __dir__() -> list[str]:
        """Return the public names, without submodules that users do not need."""
        public = vars(importlib.import_module("graphs.names"))
        shown = {name for name in public if not name.startswith("_")}
        return sorted(shown | {"errors", "kernels"})
