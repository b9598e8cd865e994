"""Exact solves of sparse precisions with a dense border of weights."""

from rfgp.solvers.bordered.solver import BorderedPosterior as BorderedPosterior
from rfgp.solvers.bordered.solver import BorderedSolver as BorderedSolver
