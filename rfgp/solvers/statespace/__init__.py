"""Exact solves in linear time of sums of Markov processes of one column, with a border of dense weights."""

from rfgp.solvers.statespace.solver import StateSpacePosterior as StateSpacePosterior
from rfgp.solvers.statespace.solver import StateSpaceSolver as StateSpaceSolver
from rfgp.solvers.statespace.solver import supports as supports
