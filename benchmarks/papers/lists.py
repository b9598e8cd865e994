"""For each table and figure of the papers: whether its data, its protocol and its errors exist.

The entries follow from the paper and from the available data before a figure is run. They do not depend on results.
"partly" means an interpretation of ours or data of the same kind, as the protocol of the figure states. If an entry is
"no", nothing is compared and the figure is not part of rates. Errors are those of the paper if it prints numbers. If it
has a plot or a formula, a claim is tested with our errors.
"""

from typing import NamedTuple

WORDS = ("exists", "partly", "no")


class Facts(NamedTuple):
    """The data, the protocol and the errors of a figure, each with one of `WORDS` and a reason."""

    data: str
    protocol: str
    errors: str

    @property
    def is_counted(self) -> bool:
        """Whether the figure can be compared: none of the three is missing."""
        return not any(fact.startswith("no") for fact in self)

    @property
    def is_whole(self) -> bool:
        """Whether all three exist."""
        return all(fact.startswith("exists") for fact in self)


_NO_DATA, _OURS, _EXACT = "exists: none is needed", "exists: ours, over draws", "exists: exact numbers"
_FOLDS = Facts("exists: six tables", "exists: the authors' public code", "exists: one standard error over folds")
_ROWS = "partly: the shares of rows are not stated, and chosen by Table 2"
_CLUSTERS = "partly: made by a reading of ours"
_LENGTHS = "partly: lengths, distributions and signs not stated"

_COUPLINGS = {
    "table-1": _FOLDS,
    "table-3": _FOLDS,
    "table-4": _FOLDS,
    "table-5": Facts(_NO_DATA, "exists: formulas", _EXACT),
    "figure-3": Facts("exists: cora", "partly: draws, and edges of the random graph, not stated", _OURS),
    "figure-4": Facts(
        "partly: five of six meshes, identified by their faces", "partly: rate, starts, draws not stated", _OURS
    ),
    "figure-5": Facts("exists: housing", "partly: split, m and steps not stated", _OURS),
    "figure-6": Facts("exists: power-plant", "partly: split not stated", _OURS),
    "figure-7": Facts("exists: random tokens", "partly: m and draws not stated", _OURS),
    "figure-8": Facts("exists: eurosis", "partly: p and draws not stated", _OURS),
    "figure-9": Facts("exists: ten graphs", "partly: edges of the random graph not stated", _OURS),
    "figure-10": Facts("exists: ten graphs", "partly: draws not stated", _OURS),
    "figure-11": Facts(
        "exists: pems", "partly: split, scale and rate not stated", "exists: ours, over splits and draws"
    ),
}
_SIMPLEX = {
    "table-2": Facts("exists: the authors' files", _ROWS, "exists: of draws"),
    "table-3": Facts("exists: the authors' files", _ROWS, "exists: of draws"),
    "figure-4": Facts("partly: norms drawn anew", "exists", _OURS),
    "figure-5": Facts(_NO_DATA, "partly: d not stated", _EXACT),
    "figure-6": Facts(_NO_DATA, "partly: m not stated", _EXACT),
    "figure-7": Facts("partly: points drawn anew", "partly: numbers of features not stated", _OURS),
    "figure-8": Facts("exists: the authors' files", _ROWS, _OURS),
    "figure-10": Facts(
        "exists: the authors' files", "partly: which rows validate is not stated", "no: of a best scale"
    ),
}
_HYBRID = {
    "formulas": Facts(_NO_DATA, "exists: formulas", _OURS),
    "figure-1": Facts(_NO_DATA, "exists", _EXACT),
    "figure-2": Facts(_NO_DATA, "partly: (m, n) and sigma not stated", _EXACT),
    "figure-5": Facts(_NO_DATA, "partly: (m, n) and sigma not stated", _EXACT),
    "figure-6": Facts(_CLUSTERS, _LENGTHS, "exists: ours, over data sets"),
    "table-1": Facts(
        "exists: wine, housing", "partly: the rows' scale, (m, n) not stated", "partly: of what not stated"
    ),
    "table-3": Facts(_CLUSTERS, _LENGTHS, "exists: least and greatest of 20"),
    "both-signs": Facts(_NO_DATA, "exists: ours, the paper has none", _OURS),
}
_ORTHOGONAL = {
    "figure-2": Facts("partly: other tables", "partly: whose neighbors is not stated", _EXACT),
    "figure-3": Facts("partly: two points drawn anew", "exists", "exists: ours, over as many draws"),
    "figure-4": Facts("partly: digits and five other tables", "partly: draws and pairs not stated", _OURS),
    "figure-5": Facts("partly: digits for mnist", "partly: values of sigma not stated", _OURS),
    "figure-6": Facts("partly: two photographs", "partly: bits and recall not stated", _OURS),
    "speed": Facts("partly: not gisette", "partly: what is timed is not stated", "exists: ours, over repeats"),
}
_ARTICLE = {
    "figure-2": Facts("partly: how many points is not stated", "partly: numbers of frequencies not stated", _OURS),
    "figure-3": Facts("partly: points and noise of ours", "partly: lambda not stated", "exists: ours, over sets"),
}

FACTS: dict[str, Facts] = {
    f"{paper}/{figure}": facts
    for paper, own in (
        ("couplings", _COUPLINGS),
        ("simplex", _SIMPLEX),
        ("hybrid", _HYBRID),
        ("orthogonal", _ORTHOGONAL),
        ("article", _ARTICLE),
    )
    for figure, facts in own.items()
}
"""By paper and figure."""

NOT_RUN = {
    "couplings/table-2": "ImageNet, about 120 trainings of a vision transformer",
    "simplex/figure-9": "ImageNet and three more sets of pictures",
    "hybrid/table-2": "LibriSpeech, ten trainings of a speech model",
    "hybrid/table-4": "Penn Treebank, and the trained language model",
    "hybrid/table-5": "WikiText2, and the trained language model",
    "hybrid/figure-4": "data of robots, and the code of their policies",
    "hybrid/figure-10": "Penn Treebank, 25 trainings",
    "orthogonal/table-2": "six tables, and the splits and penalties",
    "article/regression": "what was timed",
}
"""Figures that were not run, with what they need."""
