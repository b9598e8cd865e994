"""Models: what a user holds; facades over a regression. `GraphGP` is in `rfgp.models.graph`."""

from rfgp.models.process import Process as Process
from rfgp.models.table import ExactGP as ExactGP
from rfgp.models.table import SparseSpectrumGP as SparseSpectrumGP
from rfgp.models.table import TableGP as TableGP
