"""Variance-reducing couplings for random features (Reid et al. 2024): its tables and figures."""

from benchmarks.papers.couplings import vectors, walks

FIGURES = {**vectors.FIGURES, **walks.FIGURES}
