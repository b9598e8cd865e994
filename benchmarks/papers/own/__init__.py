"""Figures of our own that README, docs and docstrings quote: no paper has them."""

from benchmarks.papers.own import (
    attention,
    couplings,
    inducing,
    language_model,
    matching,
    norms,
    products,
    road_times,
    roads,
    rounding,
    starvation,
)

FIGURES = {
    **couplings.FIGURES,
    **inducing.FIGURES,
    **attention.FIGURES,
    **language_model.FIGURES,
    **roads.FIGURES,
    **road_times.FIGURES,
    **starvation.FIGURES,
    **rounding.FIGURES,
    **products.FIGURES,
    **norms.FIGURES,
    **matching.FIGURES,
}
