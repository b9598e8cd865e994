"""Matern processes of one column as Gaussian vectors with a sparse precision."""

from graphs.precisions.chains.field import ChainField as ChainField
from graphs.precisions.chains.knots import place_knots as place_knots
