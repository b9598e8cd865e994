"""Hybrid random features (Choromanski et al. 2022): tables and figures, and the formulas."""

from benchmarks.papers.hybrid.attention import both_signs
from benchmarks.papers.hybrid.clusters import figure_6, table_3
from benchmarks.papers.hybrid.formulas import formulas
from benchmarks.papers.hybrid.pointwise import figure_1, figure_2, figure_5
from benchmarks.papers.hybrid.tables import table_1
from benchmarks.record import Figure

FIGURES: dict[str, Figure] = {
    "formulas": formulas,
    "figure-1": figure_1,
    "figure-2": figure_2,
    "table-1": table_1,
    "figure-5": figure_5,
    "figure-6": figure_6,
    "table-3": table_3,
    "both-signs": both_signs,
}
