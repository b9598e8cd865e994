"""Choices of a table's options: candidates with predicted costs, measured on growing subsets, and the best fitted."""

from rfgp.choosing.choose import advised as advised
from rfgp.choosing.choose import fit_open as fit_open
from rfgp.choosing.kernels import fit_kernels as fit_kernels
