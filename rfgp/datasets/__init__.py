"""Public data sets by name, downloaded once and checked, and seeded generators of small ones."""

from rfgp.datasets.catalog import CATALOG as CATALOG
from rfgp.datasets.catalog import Entry as Entry
from rfgp.datasets.catalog import describe as describe
from rfgp.datasets.catalog import names as names
from rfgp.datasets.download import fetch as fetch
from rfgp.datasets.generators import make_mesh as make_mesh
from rfgp.datasets.generators import make_roads as make_roads
from rfgp.datasets.generators import make_table as make_table
from rfgp.datasets.generators import write_all as write_all
from rfgp.datasets.generators import write_large_mesh as write_large_mesh
from rfgp.datasets.loading import Split as Split
from rfgp.datasets.loading import load as load
from rfgp.datasets.loading import load_classes as load_classes
from rfgp.datasets.loading import split as split
