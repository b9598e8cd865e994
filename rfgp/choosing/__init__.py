"""Choices of a table's options: candidates with predicted costs, measured on growing subsets, and the best fitted."""

from rfgp.choosing.choose import advised as advised
from rfgp.choosing.choose import fit_field as fit_field
from rfgp.choosing.choose import fit_open as fit_open
