"""Nearest neighbors of observations, with weights and sparse precisions."""

from rfgp.solvers.whitened.blocked import BlockedInference as BlockedInference
from rfgp.solvers.whitened.blocked import is_large as is_large
from rfgp.solvers.whitened.blocked import whitened as whitened
from rfgp.solvers.whitened.posterior import WhitenedPosterior as WhitenedPosterior
from rfgp.solvers.whitened.solver import WhitenedSolver as WhitenedSolver
