"""Hybrid random features (Choromanski et al. 2022): all tables and figures, and the formulas."""

from benchmarks.papers.hybrid.attention import both_signs
from benchmarks.papers.hybrid.clusters import figure_6, table_3
from benchmarks.papers.hybrid.formulas import formulas
from benchmarks.papers.hybrid.pointwise import figure_1, figure_2, figure_5
from benchmarks.papers.hybrid.sampling import table_4
from benchmarks.papers.hybrid.tables import figure_4, figure_10, table_1, table_2, table_5
from benchmarks.record import Figure

FIGURES: dict[str, Figure] = {
    "formulas": formulas,
    "figure-1": figure_1,
    "figure-2": figure_2,
    "table-1": table_1,
    "table-2": table_2,
    "table-4": table_4,
    "table-5": table_5,
    "figure-4": figure_4,
    "figure-5": figure_5,
    "figure-6": figure_6,
    "table-3": table_3,
    "figure-10": figure_10,
    "both-signs": both_signs,
}
