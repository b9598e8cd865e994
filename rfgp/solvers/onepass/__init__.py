"""Weights with a design without hyperparameters: statistics of one pass over the rows suffice for all of a fit.

Rows with their own noise need other statistics for each noise, in two passes for each evaluation.
"""

from rfgp.solvers.onepass.solver import OnePassSolver as OnePassSolver
from rfgp.solvers.onepass.solver import SeriesPosterior as SeriesPosterior
from rfgp.solvers.onepass.solver import has_lattices as has_lattices
from rfgp.solvers.onepass.solver import residual_variance_of as residual_variance_of
from rfgp.solvers.onepass.solver import restored_series as restored_series
from rfgp.solvers.onepass.solver import scale_of as scale_of
from rfgp.solvers.onepass.solver import supports as supports
