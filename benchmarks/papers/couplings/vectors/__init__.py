"""The half on vectors: Tables 1, 3 and 4, and Figs. 5 to 7.

PNC is pairwise norm coupling, PM are positively monotone norms.
"""

from benchmarks.papers.couplings.vectors.attention import figure_7
from benchmarks.papers.couplings.vectors.copula import figure_5
from benchmarks.papers.couplings.vectors.growth import figure_6
from benchmarks.papers.couplings.vectors.tables import table_1, table_3, table_4

FIGURES = {
    "table-1": table_1,
    "table-3": table_3,
    "table-4": table_4,
    "figure-5": figure_5,
    "figure-6": figure_6,
    "figure-7": figure_7,
}
