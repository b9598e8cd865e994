"""Models: what a user holds; facades over a regression. Those that need graphs are in `.graph` and `.fields`."""

from rfgp.models.presets import ExactGP as ExactGP
from rfgp.models.presets import SparseSpectrumGP as SparseSpectrumGP
from rfgp.models.process import Process as Process
