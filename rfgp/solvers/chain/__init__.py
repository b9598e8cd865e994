"""Exact Markov solves of a single half-integer Matern process of one column, with time and memory linear in rows."""

from rfgp.solvers.chain.posterior import ChainPosterior as ChainPosterior
from rfgp.solvers.chain.rows import ascending_rows as ascending_rows
from rfgp.solvers.chain.rows import supports as supports
from rfgp.solvers.chain.solver import ChainSolver as ChainSolver
