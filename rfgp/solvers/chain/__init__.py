"""Exact solves in linear time of a half-integer Matern process of one column."""

from rfgp.solvers.chain.posterior import ChainPosterior as ChainPosterior
from rfgp.solvers.chain.rows import ascending_rows as ascending_rows
from rfgp.solvers.chain.rows import supports as supports
from rfgp.solvers.chain.solver import ChainSolver as ChainSolver
