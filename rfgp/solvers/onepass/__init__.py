"""Weights whose design depends on no hyperparameter: statistics of one pass over the rows serve a whole fit."""

from rfgp.solvers.onepass.posterior import OnePassPosterior as OnePassPosterior
from rfgp.solvers.onepass.posterior import missing_of as missing_of
from rfgp.solvers.onepass.posterior import restored as restored
from rfgp.solvers.onepass.solver import OnePassSolver as OnePassSolver
from rfgp.solvers.onepass.solver import serves as serves
