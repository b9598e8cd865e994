"""Exact solves of sparse precisions with a dense border of weights."""

from rfgp.solvers.bordered.pattern import JointPattern as JointPattern
from rfgp.solvers.bordered.posterior import BorderedPosterior as BorderedPosterior
from rfgp.solvers.bordered.solver import BorderedSolver as BorderedSolver
from rfgp.solvers.bordered.system import BorderedSystem as BorderedSystem
