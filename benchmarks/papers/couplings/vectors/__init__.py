"""The half on vectors: Tables 1 to 4, and Figs. 5 to 7.

PNC is pairwise norm coupling, PM are positively monotone norms.
"""

from benchmarks.papers.couplings.vectors.attention import figure_7
from benchmarks.papers.couplings.vectors.copula import figure_5
from benchmarks.papers.couplings.vectors.growth import figure_6
from benchmarks.papers.couplings.vectors.tables import table_1, table_3, table_4
from benchmarks.record import Result, Scale


def table_2(scale: Scale) -> Result:
    """Return the printed values of Table 2 and ours."""
    return Result(
        "accuracy of vision transformers on ImageNet",
        "A Performer with m = 128 positive features in place of exact attention, 12 layers of 12 heads, width 768, 3072"
        " hidden units, patches of 16 x 16, 90 epochs of 1.3 million pictures in batches of 4096 with Adam, 34 to 48"
        " times for each coupling (App. B.3).",
        impossible="the pictures are not at hand, and about 120 trainings of this size are years of the machines here;"
        " `benchmarks/papers/own/digits.py` asks the same of a small transformer on digits",
        notes=(
            "Printed are accuracies of 0.625 (orthogonal), 0.620 (PNC) and 0.633 (PM), each ± 0.003: PM is 0.8 points"
            " above independent norms, 1.9 standard errors of the difference, and PNC 1.2 below.",
        ),
    )


FIGURES = {
    "table-1": table_1,
    "table-2": table_2,
    "table-3": table_3,
    "table-4": table_4,
    "figure-5": figure_5,
    "figure-6": figure_6,
    "figure-7": figure_7,
}
