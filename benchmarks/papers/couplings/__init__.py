"""Variance-reducing couplings for random features (Reid et al. 2024)."""

from benchmarks.papers.couplings import vectors

FIGURES = {**vectors.FIGURES}
