"""Couplings of walk lengths that are learned for a graph and a kernel."""

from graphs.matching.costs import quantile_costs as quantile_costs
from graphs.matching.costs import quartic_costs as quartic_costs
from graphs.matching.pairs import match_quantiles as match_quantiles
from graphs.matching.pairs import matching_variance as matching_variance
from graphs.matching.tuples import couple_quantiles as couple_quantiles
