"""Models: what a user holds; facades over a regression. Those that need graphs are in `.graph` and `.fields`."""

from rfgp.models.members import ExactGP as ExactGP
from rfgp.models.members import SparseSpectrumGP as SparseSpectrumGP
from rfgp.models.process import Process as Process
from rfgp.models.table import TableGP as TableGP
