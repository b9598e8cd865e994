"""Public data sets by name, downloaded once and checked, and seeded generators of small ones.

Loaders and generators need torch or scipy. They are imported on first use, so the catalog is fast.
"""

from typing import TYPE_CHECKING, Any

from rfgp.datasets.catalog import CATALOG as CATALOG
from rfgp.datasets.catalog import Entry as Entry
from rfgp.datasets.catalog import describe as describe
from rfgp.datasets.catalog import fetch as fetch
from rfgp.datasets.catalog import names as names

if TYPE_CHECKING:
    from rfgp.datasets.generators import make_mesh as make_mesh
    from rfgp.datasets.generators import make_roads as make_roads
    from rfgp.datasets.generators import make_table as make_table
    from rfgp.datasets.generators import make_terrain as make_terrain
    from rfgp.datasets.generators import write_all as write_all
    from rfgp.datasets.generators import write_terrain as write_terrain
    from rfgp.datasets.loading import Split as Split
    from rfgp.datasets.loading import load as load
    from rfgp.datasets.loading import load_classes as load_classes
    from rfgp.datasets.loading import split as split

_GENERATORS = ("make_mesh", "make_roads", "make_table", "make_terrain", "write_all", "write_terrain")
_LOADERS = ("Split", "load", "load_classes", "split")


def __getattr__(name: str) -> Any:
    """Return a generator or a loader from its module on first use."""
    home: Any
    if name in (*_GENERATORS, "generators"):
        import rfgp.datasets.generators as home
    elif name in (*_LOADERS, "loading"):
        import rfgp.datasets.loading as home
    else:
        raise AttributeError(f"module 'rfgp.datasets' has no attribute {name!r}")
    found = globals()[name] = getattr(home, name, home)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_GENERATORS, *_LOADERS} - {"Any", "TYPE_CHECKING"})
