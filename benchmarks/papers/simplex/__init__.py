"""Simplex random features (Reid et al. 2023): conformities, errors, and classes of eight tables."""

from benchmarks.papers.simplex.classification import figure_8, figure_10, table_2, table_3
from benchmarks.papers.simplex.errors import figure_4, figure_5, figure_6, figure_7
from benchmarks.record import Figure

FIGURES: dict[str, Figure] = {
    "figure-4": figure_4,
    "figure-5": figure_5,
    "figure-6": figure_6,
    "figure-7": figure_7,
    "figure-8": figure_8,
    "figure-10": figure_10,
    "table-2": table_2,
    "table-3": table_3,
}
