"""Exact solves in linear time of a half-integer Matern process of one column."""

from rfgp.solvers.chain.solver import ChainSolver as ChainSolver
from rfgp.solvers.chain.solver import ascending_rows as ascending_rows
from rfgp.solvers.chain.solver import restored as restored
from rfgp.solvers.chain.solver import supports as supports
